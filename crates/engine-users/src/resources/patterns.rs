//! Filters of the changes under a watched URI.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use ostler_contract::Value;
use ostler_engine_core::file_uris::file_path;
use ostler_protocol::RpcError;
use ostler_protocol::wire::state::ResourceWatchState;

/// The maximum number of patterns in a watch.
const PATTERNS: usize = 100;
/// The maximum length of a pattern.
const LONGEST: usize = 1000;

/// The patterns that a watch includes and excludes.
#[derive(Debug)]
pub struct WatchFilter {
    root: String,
    includes: Option<GlobSet>,
    excludes: Option<GlobSet>,
}

impl WatchFilter {
    /// Parses the patterns of a watch.
    pub fn read(state: &ResourceWatchState) -> Result<Self, RpcError> {
        Ok(Self {
            root: plain(&state.root),
            includes: patterns("includes", state.includes.as_ref())?,
            excludes: patterns("excludes", state.excludes.as_ref())?,
        })
    }

    /// Returns whether a change of a URI is included. The root itself always is.
    pub fn holds(&self, uri: &str) -> bool {
        let changed = plain(uri);
        let below = changed.strip_prefix(&self.root).map(|rest| rest.trim_start_matches('/'));
        let Some(below) = below.filter(|below| !below.is_empty()) else { return true };
        self.includes.as_ref().is_none_or(|set| set.is_match(below))
            && !self.excludes.as_ref().is_some_and(|set| set.is_match(below))
    }
}

/// Normalizes the spelling of a URI.
fn plain(uri: &str) -> String {
    file_path(uri).trim_end_matches('/').to_owned()
}

/// Compiles `{ items }`: globs and paths; a path includes everything below it.
fn patterns(name: &str, said: Option<&Value>) -> Result<Option<GlobSet>, RpcError> {
    let wrong = |why: String| RpcError::invalid_params(format!("{name} {why}"));
    let Some(said) = said.filter(|said| !said.is_null()) else { return Ok(None) };
    let items = said.get("items").and_then(Value::as_array);
    let items = items.ok_or_else(|| wrong("must be { items: [...] }".to_owned()))?;
    if items.len() > PATTERNS {
        return Err(wrong(format!("must have at most {PATTERNS} patterns")));
    }
    let mut set = GlobSetBuilder::new();
    for item in items {
        let text = item.as_str().filter(|text| !text.is_empty() && text.len() <= LONGEST);
        let text = text.ok_or_else(|| wrong(format!("contains {item}, which is not a pattern")))?;
        let path = text.trim_start_matches("./").trim_end_matches('/');
        for pattern in [path.to_owned(), format!("{path}/**")] {
            let glob = GlobBuilder::new(&pattern).literal_separator(true).build();
            set.add(glob.map_err(|error| wrong(format!("contains an invalid pattern: {error}")))?);
        }
    }
    set.build().map(Some).map_err(|error| wrong(format!("cannot be read: {error}")))
}

#[cfg(test)]
mod tests {
    use ostler_contract::json;

    use super::*;

    fn wanted(includes: Value, excludes: Value) -> Result<WatchFilter, RpcError> {
        let state = json!({ "root": "file:///srv/a%20b/", "recursive": true, "includes": includes, "excludes": excludes });
        WatchFilter::read(&serde_json::from_value(state).expect("a watch"))
    }

    #[test]
    fn patterns_are_of_paths_below_what_is_watched() {
        let items = |items: &[&str]| json!({ "items": items });
        let held = |wanted: &WatchFilter| -> Vec<&str> {
            ["a.rs", "b.txt", "src/c.rs", "src/deep/d.rs"]
                .into_iter()
                .filter(|path| wanted.holds(&format!("file:///srv/a%20b/{path}")))
                .collect()
        };
        let all = wanted(Value::Null, Value::Null).expect("read");
        assert_eq!(held(&all).len(), 4);
        assert!(all.holds("file:///srv/a%20b"), "what is watched itself");
        assert_eq!(held(&wanted(items(&["*.rs"]), Value::Null).expect("read")), ["a.rs"]);
        assert_eq!(
            held(&wanted(items(&["**/*.rs"]), items(&["src/deep"])).expect("read")),
            ["a.rs", "src/c.rs"]
        );
        assert_eq!(held(&wanted(Value::Null, items(&["./src/"])).expect("read")), ["a.rs", "b.txt"]);
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for wrong in [
            json!([]),
            json!({ "items": [1] }),
            json!({ "items": [""] }),
            json!({ "items": ["a[" ] }),
            json!({ "items": vec!["a"; 101] }),
        ] {
            assert!(wanted(wrong.clone(), Value::Null).is_err(), "{wrong}");
        }
    }
}
