//! `bot://<slug>`, with the requested chat.

use ostler_contract::id::SLUG_RULE;
use ostler_contract::{RpcError, Slug};

/// The resource of a `bot:` URI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    /// All bots.
    Root,
    /// One bot.
    Bot {
        slug: Slug,
        /// The key of the requested chat.
        chat: Option<String>,
    },
}

/// The maximum length of a chat's key, in bytes.
const KEY_MAX: usize = 200;

impl Address {
    /// Parses the URI of a read.
    pub fn read(uri: &str) -> Result<Self, RpcError> {
        let (name, query) = parts(uri);
        if name.is_empty() {
            return Ok(Self::Root);
        }
        let slug = Slug::parse(name).ok_or_else(|| nobody(uri))?;
        let mut chat = None;
        for (key, value) in url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            if key != "chat" {
                continue;
            }
            if value.is_empty() || value.len() > KEY_MAX {
                return Err(RpcError::invalid_params(format!("chat is a key of 1 to {KEY_MAX} bytes")));
            }
            chat = Some(value.into_owned());
        }
        Ok(Self::Bot { slug, chat })
    }

    /// Parses the URI of a write or deletion.
    pub fn written(uri: &str) -> Result<Slug, RpcError> {
        let (name, query) = parts(uri);
        if name.is_empty() || name.contains('/') || query.is_some() {
            let why = format!("{uri} is not where a bot is; write bot://<slug>");
            return Err(RpcError::invalid_params(why));
        }
        Slug::parse(name)
            .ok_or_else(|| RpcError::invalid_params(format!("{name} is not a bot's name: {SLUG_RULE}")))
    }
}

/// Returns the path without leading slashes, and the query.
fn parts(uri: &str) -> (&str, Option<&str>) {
    let rest = uri.split_once(':').map_or(uri, |(_, rest)| rest);
    let rest = rest.split('#').next().unwrap_or_default();
    let (path, query) = match rest.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (rest, None),
    };
    (path.trim_start_matches('/'), query)
}

/// Returns the error for a bot that does not exist.
pub(crate) fn nobody(uri: &str) -> RpcError {
    RpcError::not_found(format!("No bot at {uri}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bot(slug: &str, chat: Option<&str>) -> Address {
        Address::Bot { slug: Slug::parse(slug).unwrap(), chat: chat.map(str::to_owned) }
    }

    #[test]
    fn addresses() {
        for root in ["bot://", "bot:/", "bot:"] {
            assert_eq!(Address::read(root), Ok(Address::Root), "{root}");
        }
        for one in ["bot://helper", "bot:/helper", "BOT://helper", "bot://helper#top"] {
            assert_eq!(Address::read(one), Ok(bot("helper", None)), "{one}");
        }
        assert_eq!(Address::read("bot://helper?chat=deploy"), Ok(bot("helper", Some("deploy"))));
        assert_eq!(Address::read("bot://helper?x=1&chat=a%20b"), Ok(bot("helper", Some("a b"))));
        for none in ["bot://helper/more", "bot://Helper", "bot://9", "bot://helper/"] {
            let error = Address::read(none).unwrap_err();
            assert_eq!((error.code, error.message), (-32008, format!("No bot at {none}")));
        }
        assert_eq!(Address::read("bot://helper?chat=").unwrap_err().code, -32602);
        for none in ["bot://", "bot://helper/more", "bot://Helper", "bot://helper?chat=a"] {
            assert_eq!(Address::written(none).unwrap_err().code, -32602, "{none}");
        }
        assert_eq!(
            Address::written("bot://Helper").unwrap_err().message,
            format!("Helper is not a bot's name: {SLUG_RULE}")
        );
    }

    proptest::proptest! {
        #[test]
        fn no_uri_panics(uri in ".{0,60}") {
            let _ = Address::read(&uri);
            let _ = Address::written(&uri);
        }
    }
}
