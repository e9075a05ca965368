//! Entries of `mcpServers`: the two shapes there are. Credentials in `env` and `headers` may be references to the vault,
//! which are read at each session's start.

use hyper::header::{HeaderName, HeaderValue};
use ostler_contract::secret::SET;
use ostler_contract::{JsonObject, Value, VaultName};

/// The fields of each type, with what a value has to be.
const STDIO: &[Field] = &[
    ("type", Kind::Text),
    ("command", Kind::Text),
    ("args", Kind::Texts),
    ("env", Kind::Credentials(Named::Variable)),
    ("cwd", Kind::Text),
];
const HTTP: &[Field] =
    &[("type", Kind::Text), ("url", Kind::Url), ("headers", Kind::Credentials(Named::Header))];

type Field = (&'static str, Kind);

#[derive(Clone, Copy)]
enum Kind {
    Text,
    Texts,
    Url,
    Credentials(Named),
}

/// What a credential is called by.
#[derive(Clone, Copy)]
enum Named {
    /// The name of an environment variable.
    Variable,
    /// The name of an HTTP header.
    Header,
}

impl Named {
    /// What a name has to be, where this is none.
    fn wrong_name(self, name: &str) -> Option<&'static str> {
        match self {
            Self::Variable => (name.is_empty()
                || name.contains(|c: char| c == '=' || c.is_whitespace() || c.is_control()))
            .then_some("must be named by an environment variable: without =, spaces and control characters"),
            Self::Header => {
                HeaderName::from_bytes(name.as_bytes()).is_err().then_some("must be named by an HTTP header")
            }
        }
    }

    /// What a value has to be, where this is none.
    fn wrong_value(self, value: &str) -> Option<&'static str> {
        match self {
            Self::Variable => value.contains('\0').then_some("must not contain a zero byte"),
            Self::Header => HeaderValue::from_bytes(value.as_bytes())
                .is_err()
                .then_some("must not contain line breaks or other control characters"),
        }
    }
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

/// Why a change of a server cannot be taken with the credentials that are stored for it: `<path> <what>`. A `<set>` where
/// nothing is stored would be lost, and a program or an address that was not there when a credential was stored must not
/// be given it.
pub fn wrong_change(held: Option<&Value>, sent: &JsonObject, after: &Value) -> Option<(String, String)> {
    for place in ["env", "headers"] {
        let at = |server: Option<&Value>| server.and_then(|server| server.get(place)?.as_object().cloned());
        let (held_here, sent_here) =
            (at(held).unwrap_or_default(), sent.get(place).and_then(Value::as_object));
        let is_sent_as_set =
            |key: &str| sent_here.and_then(|sent| sent.get(key)).is_some_and(|value| value == SET);
        for key in sent_here.into_iter().flatten().map(|(key, _)| key) {
            if is_sent_as_set(key) && !held_here.contains_key(key) {
                let what = format!("is {SET}, but nothing is stored there; send the value itself");
                return Some((format!(".{place}.{key}"), what));
            }
        }
        // What is left of the stored credentials: those that were not sent, or sent as they were shown.
        let is_kept = |key: &str| {
            let sent = sent_here.and_then(|sent| sent.get(key));
            sent.is_none() || is_sent_as_set(key)
        };
        let kept = held_here.iter().find(|(key, value)| {
            value.is_string() && is_kept(key) && after[place].get(key.as_str()).is_some()
        });
        if let (Some((key, _)), Some(held)) = (kept, held) {
            let changed = ["type", "command", "args", "cwd", "url"]
                .into_iter()
                .find(|name| held.get(*name) != after.get(*name));
            if let Some(changed) = changed {
                let what = format!(
                    "changes what the stored value of {place}.{key} is given to; send that value again, or null to remove it"
                );
                return Some((format!(".{changed}"), what));
            }
        }
    }
    None
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
            (Self::Credentials(named_by), Value::Object(fields)) => fields
                .iter()
                .filter_map(|(key, value)| {
                    let path = format!("{path}.{}", key.escape_debug());
                    let wrong = |what: &str| Wrong { path: path.clone(), what: what.to_owned(), unknown: false };
                    if let Some(what) = named_by.wrong_name(key).filter(|_| !value.is_null()) {
                        return Some(wrong(what));
                    }
                    match value {
                        Value::String(text) => named_by.wrong_value(text).map(wrong),
                        Value::Null => None,
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
            (Self::Credentials(_), _) => one(false, "an object"),
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
            (
                json!({ "type": "http", "url": "http://a/", "headers": { "A B": "x" } }),
                ".headers.A B must be named by an HTTP header",
            ),
            (
                json!({ "type": "http", "url": "http://a/", "headers": { "A": "x\r\nB: y" } }),
                ".headers.A must not contain line breaks or other control characters",
            ),
            (
                json!({ "type": "stdio", "command": "a", "env": { "A=B": "x" } }),
                ".env.A=B must be named by an environment variable: without =, spaces and control characters",
            ),
            (
                json!({ "type": "stdio", "command": "a", "env": { "A": "x\0" } }),
                ".env.A must not contain a zero byte",
            ),
            (json!({ "type": "http", "url": "ftp://a/" }), ".url must be an http or https URL"),
            (
                json!({ "type": "http", "url": "https://a/", "command": "x" }),
                ".command is not a field of an http server; its fields are type, url, headers",
            ),
        ] {
            assert_eq!(said(bad.clone()), [why], "{bad}");
        }
    }

    #[test]
    fn a_stored_credential_stays_with_its_program() {
        let held = json!({ "type": "stdio", "command": "a", "args": ["b"],
            "env": { "A": "s3cret", "R": { "$secret": "host:r" } } });
        let said = |held: Option<&Value>, sent: Value, after: Value| {
            let Value::Object(sent) = sent else { unreachable!("an object") };
            wrong_change(held, &sent, &after).map(|(path, what)| format!("{path} {what}"))
        };
        let with = |key: &str, value: Value| {
            let mut after = held.clone();
            after[key] = value;
            after
        };
        let set = json!({ "env": { "A": "<set>" } });
        assert_eq!(
            said(
                None,
                json!({ "command": "a", "env": { "A": "<set>" } }),
                json!({ "command": "a", "env": {} })
            )
            .unwrap(),
            ".env.A is <set>, but nothing is stored there; send the value itself"
        );
        let why = |key: &str| {
            format!(
                ".{key} changes what the stored value of env.A is given to; send that value again, or null to remove it"
            )
        };
        for (key, value) in [("command", json!("evil")), ("args", json!(["evil"])), ("cwd", json!("/evil"))] {
            assert_eq!(said(Some(&held), set.clone(), with(key, value.clone())), Some(why(key)));
            assert_eq!(said(Some(&held), json!({ key: value.clone() }), with(key, value)), Some(why(key)));
        }
        for (sent, after) in [
            (set, held.clone()),
            (
                json!({ "env": { "A": "new" }, "command": "x" }),
                json!({ "command": "x", "env": { "A": "new" } }),
            ),
            (json!({ "env": { "A": null }, "command": "x" }), json!({ "command": "x", "env": {} })),
        ] {
            assert_eq!(said(Some(&held), sent, after), None);
        }
    }
}
