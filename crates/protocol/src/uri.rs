//! Channel URIs: the channel that a URI names, and the equivalent spellings.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::names::HOST;

/// The root channel.
pub const ROOT: &str = "ahp-root://";
/// The automation catalogue.
pub const AUTOMATIONS: &str = "ahp-automations://";
/// An alias of [`AUTOMATIONS`].
pub const AUTOMATIONS_CATALOG: &str = "ahp-automations://catalog";

const LINK: &str = "agent-host-session://";
const SESSION_ALIAS: &str = "ahp-session";
const CHAT: &str = "ahp-chat";
const DEFAULT_CHAT: &str = "ahp-chat://default/";
const WORKER_CHAT: &str = "ahp-chat://subagent/";
const AUTOMATION: &str = "ahp-automation:/";
const AUTOMATION_RUN: &str = "ahp-automation-run:/";
const TERMINAL: &str = "ahp-terminal";
const RESOURCE_WATCH: &str = "ahp-resource-watch:/";

/// What follows the host's name in the URI of an attachment.
const ATTACHMENT: &str = "-attachment:/";
/// What follows the host's name in the URI of inline content.
const INLINE: &str = "-inline:";

/// The channel that a URI names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Channel {
    /// [`ROOT`]
    Root,
    /// A session by its id; any scheme before the id is accepted.
    Session(String),
    /// A chat with its own URI.
    Chat(String),
    /// The default chat of the session with this id.
    DefaultChat(String),
    /// A worker chat: the session's URI and the call that spawned it.
    Worker {
        /// The session's URI, decoded.
        session: String,
        /// The tool call's id.
        call: String,
    },
    /// `<session>/changeset/<scope>`
    Changeset {
        /// The session's id.
        session: String,
        /// `session`, `uncommitted`, `turn/…`, `compare/…`
        scope: String,
    },
    /// `<session>/annotations`
    Annotations(String),
    /// The catalogue.
    Automations,
    /// A run, by its id.
    AutomationRun(String),
    /// A terminal, by its URI.
    Terminal(String),
    /// A watch on a resource, by its id.
    ResourceWatch(String),
    /// Logs, spans or measurements of the host.
    Telemetry,
    /// A plugin's channel: its scheme starts with `x-`.
    Plugin {
        /// Lowercase.
        scheme: String,
    },
    /// A URI for which this host has no channels.
    Other,
}

/// The session of a channel, as far as the channel's URI names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionOf<'a> {
    /// The session with this id.
    Id(&'a str),
    /// The session that has a chat with this URI.
    Chat(&'a str),
    /// None.
    None,
}

impl Channel {
    /// Returns the session that the channel belongs to.
    pub fn session(&self) -> SessionOf<'_> {
        match self {
            Self::Session(id) | Self::DefaultChat(id) | Self::Annotations(id) => SessionOf::Id(id),
            Self::Changeset { session: id, .. } => SessionOf::Id(id),
            Self::Worker { session, .. } => session_id(session).map_or(SessionOf::None, SessionOf::Id),
            Self::Chat(chat) => SessionOf::Chat(chat),
            Self::Root
            | Self::Automations
            | Self::AutomationRun(_)
            | Self::Terminal(_)
            | Self::ResourceWatch(_)
            | Self::Telemetry
            | Self::Plugin { .. }
            | Self::Other => SessionOf::None,
        }
    }

    /// Parses a channel URI. A scheme that the protocol does not define names a session, such as `echo:/<id>`.
    pub fn parse(uri: &str) -> Self {
        match uri {
            ROOT => return Self::Root,
            AUTOMATIONS | AUTOMATIONS_CATALOG => return Self::Automations,
            _ => {}
        }
        let Some((scheme, rest)) = uri.split_once(':') else { return Self::Other };
        if !is_scheme(scheme) {
            return Self::Other;
        }
        let scheme = scheme.to_ascii_lowercase();
        match scheme.as_str() {
            "ahp-otlp" => Self::Telemetry,
            CHAT => Self::parse_chat(uri, rest),
            "ahp-automation-run" => {
                path_id(rest).map_or(Self::Other, |id| Self::AutomationRun(id.to_owned()))
            }
            TERMINAL | "agenthost-terminal" => Self::Terminal(uri.to_owned()),
            "ahp-resource-watch" => {
                path_id(rest).map_or(Self::Other, |id| Self::ResourceWatch(id.to_owned()))
            }
            SESSION_ALIAS => Self::parse_session(rest),
            own if own.starts_with("ahp-") => Self::Other,
            plugin if plugin.starts_with("x-") => Self::Plugin { scheme },
            _ => Self::parse_session(rest),
        }
    }

    fn parse_chat(uri: &str, rest: &str) -> Self {
        if let Some(encoded) = uri.strip_prefix(DEFAULT_CHAT) {
            return match decode(encoded).as_deref().and_then(session_id) {
                Some(id) => Self::DefaultChat(id.to_owned()),
                None => Self::Chat(uri.to_owned()),
            };
        }
        if let Some((encoded, call)) = uri.strip_prefix(WORKER_CHAT).and_then(|rest| rest.split_once('/')) {
            return match decode(encoded) {
                Some(session) if !call.is_empty() => Self::Worker { session, call: call.to_owned() },
                _ => Self::Chat(uri.to_owned()),
            };
        }
        match path_id(rest) {
            Some(_) => Self::Chat(uri.to_owned()),
            None => Self::Other,
        }
    }

    fn parse_session(rest: &str) -> Self {
        let path = rest.trim_start_matches('/');
        let (id, tail) = path.split_once('/').unwrap_or((path, ""));
        if id.is_empty() {
            return Self::Other;
        }
        let session = id.to_owned();
        match tail {
            "" => Self::Session(session),
            "annotations" => Self::Annotations(session),
            _ => match tail.strip_prefix("changeset/") {
                Some(scope) if !scope.is_empty() => Self::Changeset { session, scope: scope.to_owned() },
                _ => Self::Other,
            },
        }
    }
}

fn path_id(rest: &str) -> Option<&str> {
    let id = rest.trim_start_matches('/');
    (!id.is_empty()).then_some(id)
}

fn decode(encoded: &str) -> Option<String> {
    String::from_utf8(URL_SAFE_NO_PAD.decode(encoded).ok()?).ok()
}

/// Returns whether `text` is a valid scheme of a URI.
pub fn is_scheme(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.' | b'_'))
}

/// The scheme of a URI, lowercase; a bare path has none.
pub fn scheme(uri: &str) -> Option<String> {
    let (scheme, _) = uri.split_once(':')?;
    is_scheme(scheme).then(|| scheme.to_ascii_lowercase())
}

/// The id in a session URI, whatever its scheme.
pub fn session_id(uri: &str) -> Option<&str> {
    let (scheme, rest) = uri.split_once(':')?;
    let id = rest.trim_start_matches('/');
    (is_scheme(scheme) && !id.is_empty() && !id.contains('/')).then_some(id)
}

/// The session URI as this host lists it.
pub fn session(provider: &str, id: &str) -> String {
    format!("{provider}:/{id}")
}

/// The URI of a session that does not name its provider.
pub fn session_alias(id: &str) -> String {
    format!("{SESSION_ALIAS}:/{id}")
}

/// The first chat of a session, a role that moves with the default chat.
pub fn default_chat(session: &str) -> String {
    format!("{DEFAULT_CHAT}{}", URL_SAFE_NO_PAD.encode(session))
}

/// The channel of a session's annotations.
pub fn annotations(session: &str) -> String {
    format!("{session}/annotations")
}

/// An attachment stored beside a session.
pub fn attachment(id: &str) -> String {
    format!("{HOST}{ATTACHMENT}{id}")
}

/// The id in an [`attachment`] URI.
pub fn attachment_id(uri: &str) -> Option<&str> {
    uri.strip_prefix(HOST)?.strip_prefix(ATTACHMENT).filter(|id| !id.is_empty() && !id.contains('/'))
}

/// Returns a URI that contains text of the file with the `file:` URI `of`. Clients read it with `resourceRead`, like
/// any content. They could not put a `data:` URI into their own URIs, because its path does not begin with a slash.
pub fn inline(of: &str, text: &str) -> String {
    let path = of.strip_prefix("file://").unwrap_or(of).trim_start_matches('/');
    format!("{HOST}{INLINE}/{path}?{}", URL_SAFE_NO_PAD.encode(text))
}

/// Returns the text of an [`inline`] URI; `None` for another URI, and an empty text if it is invalid.
pub fn inline_text(uri: &str) -> Option<String> {
    let rest = uri.strip_prefix(HOST)?.strip_prefix(INLINE)?;
    let encoded = rest.split_once('?').map_or("", |(_, encoded)| encoded);
    Some(
        URL_SAFE_NO_PAD
            .decode(encoded)
            .ok()
            .and_then(|bytes| String::from_utf8(bytes).ok())
            .unwrap_or_default(),
    )
}

/// The URI of a chat that the host creates.
pub fn chat(id: &str) -> String {
    format!("{CHAT}:/{id}")
}

/// The chat of a worker that a tool call spawned.
pub fn worker_chat(session: &str, call: &str) -> String {
    format!("{WORKER_CHAT}{}/{call}", URL_SAFE_NO_PAD.encode(session))
}

/// Returns the id from the old spelling of a session's first chat, `ahp-chat:/<session id>`.
pub fn old_default_chat(uri: &str) -> Option<&str> {
    uri.strip_prefix("ahp-chat:/").filter(|id| !id.is_empty() && !id.contains('/'))
}

/// Returns a link to a session, or to a chat in it, in the form that tools show to a model.
pub fn link(session: &str, chat: Option<&str>) -> String {
    let (provider, id) = session.split_once(":/").unwrap_or(("", session));
    let chat = chat.map(|chat| {
        let id = chat.strip_prefix("ahp-chat:/").unwrap_or(chat);
        url_words(id)
    });
    match chat {
        Some(chat) => format!("{LINK}{provider}/{id}?chat={chat}"),
        None => format!("{LINK}{provider}/{id}"),
    }
}

/// Returns the id of the session that a [`link`] names.
pub fn linked(link: &str) -> Option<&str> {
    let (_, rest) = link.strip_prefix(LINK)?.split_once('/')?;
    let id = rest.split('?').next()?;
    (!id.is_empty()).then_some(id)
}

/// Encodes text for a query.
fn url_words(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::with_capacity(text.len()), |mut into, byte| {
        match byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            true => into.push(byte.into()),
            false => drop(write!(into, "%{byte:02X}")),
        }
        into
    })
}

/// An automation's URI.
pub fn automation(id: &str) -> String {
    format!("{AUTOMATION}{id}")
}

/// The id in an automation's URI.
pub fn automation_id(uri: &str) -> Option<&str> {
    uri.strip_prefix(AUTOMATION).map(|id| id.trim_start_matches('/')).filter(|id| !id.is_empty())
}

/// A run's URI.
pub fn automation_run(id: &str) -> String {
    format!("{AUTOMATION_RUN}{id}")
}

/// A terminal's channel.
pub fn terminal(id: &str) -> String {
    format!("{TERMINAL}:/{id}")
}

/// A resource watch's channel.
pub fn resource_watch(id: &str) -> String {
    format!("{RESOURCE_WATCH}{id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_content_is_read_from_its_uri() {
        for text in ["", "a?b#c%\n", "\u{e4}\u{1f600}"] {
            let uri = inline("file:///a%20b/c.rs", text);
            assert!(uri.starts_with("ostler-inline:/a%20b/c.rs?"), "{uri}");
            assert_eq!(inline_text(&uri).as_deref(), Some(text));
        }
        assert_eq!(inline_text("ostler-attachment:/a?Yg"), None);
        assert_eq!(inline_text("ostler-inline:/a?%%").as_deref(), Some(""));
        assert_eq!(inline_text("ostler-inline:/a").as_deref(), Some(""));
    }

    #[test]
    fn channels_by_spelling() {
        assert_eq!(Channel::parse("ahp-root://"), Channel::Root);
        assert_eq!(Channel::parse("echo:/abc"), Channel::Session("abc".into()));
        assert_eq!(Channel::parse("ahp-session:/abc"), Channel::Session("abc".into()));
        assert_eq!(
            Channel::parse("echo:/abc/changeset/turn/t1"),
            Channel::Changeset { session: "abc".into(), scope: "turn/t1".into() }
        );
        assert_eq!(Channel::parse("echo:/abc/annotations"), Channel::Annotations("abc".into()));
        assert_eq!(Channel::parse("x-notes://all"), Channel::Plugin { scheme: "x-notes".into() });
        assert_eq!(Channel::parse("ahp-automations://catalog"), Channel::Automations);
        // What is no channel of a client's is not another's name either.
        for alias in ["ahp-root:", "ahp-root://x", "AHP-ROOT://", "ahp-automations:", "ahp-automations://x"] {
            assert_eq!(Channel::parse(alias), Channel::Other, "{alias}");
        }
        assert_eq!(Channel::parse("ahp-nonsense:/1"), Channel::Other);
        assert_eq!(Channel::parse("no scheme"), Channel::Other);
        assert_eq!(Channel::parse("echo:/abc/other"), Channel::Other);
    }

    #[test]
    fn a_link_names_its_session_and_chat() {
        let linked_to = link("echo:/6f1c", Some("ahp-chat:/a b"));
        assert_eq!(linked_to, "agent-host-session://echo/6f1c?chat=a%20b");
        assert_eq!(linked(&linked_to), Some("6f1c"));
        assert_eq!(linked(&link("echo:/6f1c", None)), Some("6f1c"));
        assert_eq!(link("echo:/1", Some("notes:/2")), "agent-host-session://echo/1?chat=notes%3A%2F2");
        for text in ["echo:/6f1c", "agent-host-session://echo", "agent-host-session://echo/"] {
            assert_eq!(linked(text), None, "{text}");
        }
    }

    #[test]
    fn the_default_chat_names_its_session() {
        let chat = default_chat("echo:/6f1c");
        assert_eq!(chat, "ahp-chat://default/ZWNobzovNmYxYw");
        assert_eq!(Channel::parse(&chat), Channel::DefaultChat("6f1c".into()));
        assert_eq!(
            Channel::parse(&worker_chat("echo:/6f1c", "call-1")),
            Channel::Worker { session: "echo:/6f1c".into(), call: "call-1".into() }
        );
    }

    proptest::proptest! {
        #[test]
        fn no_uri_panics(uri in ".{0,80}") {
            let _ = Channel::parse(&uri);
        }
    }
}
