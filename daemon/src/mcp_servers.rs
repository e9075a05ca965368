//! Entries of `mcpServers`: the two shapes there are. Credentials in `env` and `headers` may be references to the vault,
//! which are read at each session's start.

use ostler_contract::{Value, VaultName};

/// The fields of each type, with what a value has to be.
const STDIO: &[Field] = &[
    ("type", Kind::Text),
    ("command", Kind::Text),
    ("args", Kind::Texts),
    ("env", Kind::Credentials),
    ("cwd", Kind::Text),
];
const HTTP: &[Field] = &[("type", Kind::Text), ("url", Kind::Url), ("headers", Kind::Credentials)];

type Field = (&'static str, Kind);

#[derive(Clone, Copy)]
enum Kind {
    Text,
    Texts,
    Url,
    Credentials,
}

/// What is wrong with an entry: `<path> <what>`, the path empty for the entry itself. A field that its type does not have
/// is told apart: such a server can be started all the same.
pub struct Wrong {
    /// `.env.KEY`
    pub path: String,
    /// The rest of the sentence.
    pub what: String,
    /// Whether it is a field too many, and nothing else.
    pub unknown: bool,
}

/// Everything that is wrong with an entry.
pub fn wrong_with(server: &Value) -> Vec<Wrong> {
    let wrong =
        |path: &str, what: &str| vec![Wrong { path: path.to_owned(), what: what.to_owned(), unknown: false }];
    let Value::Object(fields) = server else { return wrong("", "must be an object") };
    let (kind, needed, known) = match fields.get("type").and_then(Value::as_str) {
        Some("stdio") => ("a stdio server", "command", STDIO),
        Some("http") => ("an http server", "url", HTTP),
        _ => return wrong(".type", "must be stdio or http"),
    };
    let mut found = Vec::new();
    if fields.get(needed).is_none_or(Value::is_null) {
        found.extend(wrong("", &format!("is {kind} without {needed}")));
    }
    for (name, value) in fields {
        match known.iter().find(|(known, _)| known == name) {
            Some((_, kind)) => found.extend(kind.wrong(&format!(".{name}"), value)),
            None => {
                let others: Vec<_> = known.iter().map(|(name, _)| *name).collect();
                let what = format!("is not a field of {kind}; its fields are {}", others.join(", "));
                found.push(Wrong { path: format!(".{name}"), what, unknown: true });
            }
        }
    }
    found
}

impl Kind {
    fn wrong(self, path: &str, value: &Value) -> Vec<Wrong> {
        let must = |path: String, be: &str| Wrong { path, what: format!("must be {be}"), unknown: false };
        let one = |fits: bool, be: &str| if fits { Vec::new() } else { vec![must(path.to_owned(), be)] };
        match (self, value) {
            // As if it were left out.
            (_, Value::Null) => Vec::new(),
            (Self::Text, value) => {
                one(value.as_str().is_some_and(|text| !text.is_empty()), "a non-empty string")
            }
            (Self::Url, value) => {
                let url = value.as_str().and_then(|text| url::Url::parse(text).ok());
                one(url.is_some_and(|url| matches!(url.scheme(), "http" | "https")), "an http or https URL")
            }
            (Self::Texts, Value::Array(entries)) => {
                let others = entries.iter().enumerate().filter(|(_, entry)| !entry.is_string());
                others.map(|(at, _)| must(format!("{path}[{at}]"), "a string")).collect()
            }
            (Self::Texts, _) => one(false, "a list of strings"),
            (Self::Credentials, Value::Object(fields)) => fields
                .iter()
                .filter_map(|(key, value)| {
                    let path = format!("{path}.{key}");
                    match value {
                        Value::String(_) | Value::Null => None,
                        Value::Object(reference) if reference.len() == 1 && reference.contains_key("$secret") => {
                            let named = reference["$secret"].as_str().map(VaultName::parse);
                            // The name is not repeated: what stands in its place may be the secret itself.
                            (!matches!(named, Some(Ok(_)))).then(|| {
                                let forms = "{ $secret: <name> } with host:<name>, team:<team>/<name> or user:<id>/<name>";
                                must(path, forms)
                            })
                        }
                        _ => Some(must(path, "a string or { $secret: <name> }")),
                    }
                })
                .collect(),
            (Self::Credentials, _) => one(false, "an object"),
        }
    }
}

#[cfg(test)]
mod tests {
    use ostler_contract::json;

    use super::*;

    fn said(server: Value) -> Vec<String> {
        wrong_with(&server).into_iter().map(|wrong| format!("{} {}", wrong.path, wrong.what)).collect()
    }

    #[test]
    fn the_two_shapes_and_nothing_else() {
        for good in [
            json!({ "type": "stdio", "command": "npx", "args": ["-y", "x"], "cwd": "/srv",
                "env": { "A": "a", "B": { "$secret": "team:inn/b" } } }),
            json!({ "type": "http", "url": "https://a.example/mcp", "headers": { "x-key": { "$secret": "host:k" } } }),
        ] {
            assert_eq!(said(good), Vec::<String>::new());
        }
        for (bad, why) in [
            (json!("npx"), " must be an object"),
            (json!({ "command": "npx" }), ".type must be stdio or http"),
            (json!({ "type": "sse", "url": "https://a/" }), ".type must be stdio or http"),
            (json!({ "type": "stdio" }), " is a stdio server without command"),
            (json!({ "type": "http" }), " is an http server without url"),
            (json!({ "type": "stdio", "command": 5 }), ".command must be a non-empty string"),
            (json!({ "type": "stdio", "command": "" }), ".command must be a non-empty string"),
            (json!({ "type": "stdio", "command": "a", "args": "b" }), ".args must be a list of strings"),
            (json!({ "type": "stdio", "command": "a", "args": ["b", 5] }), ".args[1] must be a string"),
            (json!({ "type": "stdio", "command": "a", "env": ["B"] }), ".env must be an object"),
            (
                json!({ "type": "stdio", "command": "a", "env": { "B": 5 } }),
                ".env.B must be a string or { $secret: <name> }",
            ),
            (
                json!({ "type": "stdio", "command": "a", "env": { "B": { "$secret": "s3cret" } } }),
                ".env.B must be { $secret: <name> } with host:<name>, team:<team>/<name> or user:<id>/<name>",
            ),
            (
                json!({ "type": "stdio", "command": "a", "env": { "B": { "$secret": "host:b", "x": 1 } } }),
                ".env.B must be a string or { $secret: <name> }",
            ),
            (json!({ "type": "stdio", "command": "a", "cwd": 1 }), ".cwd must be a non-empty string"),
            (json!({ "type": "http", "url": "ftp://a/" }), ".url must be an http or https URL"),
            (
                json!({ "type": "http", "url": "https://a/", "command": "x" }),
                ".command is not a field of an http server; its fields are type, url, headers",
            ),
        ] {
            assert_eq!(said(bad.clone()), [why], "{bad}");
        }
    }
}
