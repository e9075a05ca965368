//! The scheme `usage:`: the pools, their charges, and the entries.

use std::sync::{Arc, Weak};

use ostler_contract::points::{
    Reader, ResourceContent, ResourceFacts, ResourceProvider, SchemeDescription, SchemeProvider,
};
use ostler_contract::{Call, RpcError, Text, Thrown, Value};
use ostler_engine_core::weak::upgraded;
use ostler_protocol::grants;
use ostler_protocol::own::UsageGroupsParams;
use ostler_protocol::wire::commands::DirectoryEntry;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::period::Running;
use super::read::may_read;
use crate::usage::Ledger;

pub(super) const SCHEME: &str = "usage";

/// The characters of a pool that are escaped, because it is one segment of a URI.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The resource that a URI names.
#[derive(Debug, PartialEq, Eq)]
enum UsageResource {
    Pools,
    Groups,
    Pool(String),
    Running(String, &'static str),
    Range(String),
    Records(String),
}

/// A URI of the scheme: its resource and its query.
struct UsageUri {
    named: UsageResource,
    query: Vec<(String, String)>,
}

impl UsageUri {
    fn read(uri: &str) -> Result<Self, RpcError> {
        let unknown = || RpcError::not_found(format!("{uri} is not a resource of {SCHEME}:"));
        let rest = uri.get(SCHEME.len()..).and_then(|rest| rest.strip_prefix("://")).ok_or_else(unknown)?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut segments = path.trim_end_matches('/').split('/');
        let first = segments.next().unwrap_or_default();
        let decoded = percent_decode_str(first).decode_utf8().map_err(|_| unknown())?.into_owned();
        let leaf = segments.next();
        if segments.next().is_some() {
            return Err(unknown());
        }
        let named = match (first, leaf) {
            ("", None) => UsageResource::Pools,
            ("groups", None) => UsageResource::Groups,
            (_, None) => UsageResource::Pool(decoded),
            (_, Some("range")) => UsageResource::Range(decoded),
            (_, Some("records")) => UsageResource::Records(decoded),
            (_, Some(word)) => match Running::ALL.iter().find(|(_, running)| *running == word) {
                Some((_, running)) => UsageResource::Running(decoded, running),
                None => return Err(unknown()),
            },
        };
        let query = url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        Ok(Self { named, query })
    }

    fn said(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns whether a reader can read this without a grant. Lists contain only what the reader can read.
    fn open_to(&self, reader: &Reader) -> bool {
        match &self.named {
            UsageResource::Pools | UsageResource::Groups => true,
            UsageResource::Pool(pool)
            | UsageResource::Running(pool, _)
            | UsageResource::Range(pool)
            | UsageResource::Records(pool) => may_read(Some(reader), pool),
        }
    }
}

impl Ledger {
    async fn read_usage(&self, uri: &str, reader: Option<&Reader>) -> Result<Value, Thrown> {
        let asked = UsageUri::read(uri)?;
        let (from, until) = (asked.said("from"), asked.said("until"));
        Ok(match &asked.named {
            UsageResource::Pools => self.charged_pools(reader).await?.into(),
            UsageResource::Groups => {
                let owned = |text: Option<&str>| text.map(str::to_owned);
                let by = asked.said("by").unwrap_or_default().to_owned();
                self.groups(&UsageGroupsParams { by, from: owned(from), until: owned(until) }, reader).await?
            }
            UsageResource::Pool(pool) => Value::Object(self.pool_row(pool).await?),
            UsageResource::Running(pool, word) => {
                let running = Running::ALL.iter().find(|(_, known)| known == word);
                self.running_total(pool, running.map_or(Running::Day, |(running, _)| *running)).await?
            }
            UsageResource::Range(pool) => self.range_total(pool, from, until).await?,
            UsageResource::Records(pool) => {
                serde_json::to_value(self.pool_records(pool, from, until).await?).unwrap_or_default()
            }
        })
    }
}

/// Returns the provider of the read-only scheme for usage.
pub fn provider(ledger: Weak<Ledger>) -> SchemeProvider {
    let ledger = Arc::new(move || upgraded(&ledger));
    let (read, list) = (ledger.clone(), ledger);
    let provider = ResourceProvider {
        read: Call::new(move |(uri, reader): (String, Option<Reader>)| {
            let ledger = read();
            async move { Ok(ResourceContent::json(&ledger?.read_usage(&uri, reader.as_ref()).await?)) }
        }),
        list: Some(Call::new(move |(uri, reader): (String, Option<Reader>)| {
            let ledger = list();
            async move {
                if UsageUri::read(&uri)?.named != UsageResource::Pools {
                    return Err(RpcError::not_found(format!("{uri} is not a directory")).into());
                }
                let pools = ledger?.charged_pools(reader.as_ref()).await?;
                let name = |pool: &String| utf8_percent_encode(pool, SEGMENT).to_string();
                let entry = |name| DirectoryEntry { name, r#type: "file".to_owned() };
                Ok(pools.iter().map(name).map(entry).collect())
            }
        })),
        resolve: Some(Call::now(move |(uri, ..): (String, _, _)| {
            let directory = UsageUri::read(&uri)?.named == UsageResource::Pools;
            let r#type = if directory { "directory" } else { "file" }.to_owned();
            let content_type = (!directory).then(|| "application/json".to_owned());
            Ok(ResourceFacts { r#type, content_type, ..ResourceFacts::default() })
        })),
        authorize: Some(Call::now(|(uri, reader): (String, Reader)| {
            Ok(UsageUri::read(&uri).is_ok_and(|asked| asked.open_to(&reader)))
        })),
        describe: Some(Call::now(|()| {
            let known = grants::subject(SCHEME);
            Ok(SchemeDescription {
                title: known.map(|known| known.title.to_owned()),
                description: known.map(|known| known.description.to_owned()),
                manifest: None,
            })
        })),
        ..ResourceProvider::default()
    };
    SchemeProvider { scheme: Text::from(SCHEME), provider }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_names_a_pool_and_what_is_asked_of_it() {
        let named = |uri| UsageUri::read(uri).map(|asked| asked.named).map_err(|error| error.code);
        let not_found = Err(ostler_protocol::error::code::NOT_FOUND);
        let pool = || "project:web:shop".to_owned();
        assert_eq!(named("usage://"), Ok(UsageResource::Pools));
        assert_eq!(named("usage://groups?by=user"), Ok(UsageResource::Groups));
        assert_eq!(named("usage://project%3Aweb%3Ashop"), Ok(UsageResource::Pool(pool())));
        assert_eq!(named("usage://project%3Aweb%3Ashop/week"), Ok(UsageResource::Running(pool(), "week")));
        assert_eq!(
            named("usage://project%3Aweb%3Ashop/range?from=2026-01-01"),
            Ok(UsageResource::Range(pool()))
        );
        assert_eq!(named("usage://project%3Aweb%3Ashop/records"), Ok(UsageResource::Records(pool())));
        for uri in ["usage://a/year", "usage://a/day/b", "usage://groups/day/x", "usage:a", "usage://%ff"] {
            assert_eq!(named(uri), not_found, "{uri}");
        }
        assert_eq!(UsageUri::read("usage://a/range?from=1&until=2%2B").unwrap().said("until"), Some("2+"));
    }

    #[test]
    fn own_pools_and_those_of_memberships_are_read_unasked() {
        let reader = |memberships: &[&str], grants: &[&str]| Reader {
            id: "user:ada".to_owned(),
            memberships: memberships.iter().map(|text| (*text).to_owned()).collect(),
            grants: grants.iter().map(|text| (*text).to_owned()).collect(),
            ..Reader::default()
        };
        let member = reader(&["web:shop", "ops", "data:*"], &["session:read"]);
        for (pool, open) in [
            ("user:ada", true),
            ("user:ben", false),
            ("root:inn", false),
            ("team:web", true),
            ("team:ops", true),
            ("team:sales", false),
            ("project:web:shop", true),
            ("project:web:blog", false),
            ("project:ops:x", false),
            ("project:data:anything", true),
        ] {
            assert_eq!(may_read(Some(&member), pool), open, "{pool}");
            assert!(may_read(Some(&reader(&[], &["usage:read"])), pool));
            assert!(may_read(None, pool));
        }
    }
}
