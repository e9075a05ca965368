//! Entries of `mcpServers`, in two forms. Credentials in `env` and `headers` can be references to the vault, which are
//! resolved at each session's start.

use hyper::header::{HeaderName, HeaderValue};
use ostler_contract::{JsonObject, Value, VaultName};
use ostler_loader::options::{contains_placeholder, without_userinfo};

/// The fields of each type, with the requirement of each value.
const STDIO: &[Field] = &[
    ("type", Kind::Text),
    ("command", Kind::Text),
    ("args", Kind::Texts),
    ("env", Kind::Credentials(CredentialKind::Variable)),
    ("cwd", Kind::Text),
];
const HTTP: &[Field] =
    &[("type", Kind::Text), ("url", Kind::Url), ("headers", Kind::Credentials(CredentialKind::Header))];

type Field = (&'static str, Kind);

#[derive(Clone, Copy)]
enum Kind {
    Text,
    Texts,
    Url,
    Credentials(CredentialKind),
}

/// The kind of a credential's name.
#[derive(Clone, Copy)]
enum CredentialKind {
    /// The name of an environment variable.
    Variable,
    /// The name of an HTTP header.
    Header,
}

impl CredentialKind {
    /// Returns the requirement of a name, if it is invalid.
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

    /// Returns the requirement of a value, if it is invalid.
    fn wrong_value(self, value: &str) -> Option<&'static str> {
        match self {
            Self::Variable => value.contains('\0').then_some("must not contain a zero byte"),
            Self::Header => HeaderValue::from_bytes(value.as_bytes())
                .is_err()
                .then_some("must not contain line breaks or other control characters"),
        }
    }
}

/// A problem of an entry: `<path> <what>`, with an empty path for the entry itself. Unknown fields are marked, because
/// such a server can still be started.
pub struct Wrong {
    /// `.env.KEY`
    pub path: String,
    /// The rest of the message.
    pub what: String,
    /// Whether it is only an unknown field.
    pub unknown: bool,
}

/// Returns all problems of an entry.
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

/// The receivers of a stored credential. Headers are not among them, because they go to the same address.
const GIVEN_TO: &[&str] = &["type", "command", "args", "cwd", "url", "env"];

/// Returns why a change of a server cannot keep its stored credentials: `<path> <what>`. A new program, variable or
/// address must not receive a credential that was stored before.
pub fn wrong_change(held: &Value, sent: &JsonObject, after: &Value) -> Option<(String, String)> {
    let kept = kept(held, sent, after)?;
    // An empty value counts as missing.
    let empty = [Value::Null, Value::Array(Vec::new()), Value::Object(JsonObject::new())];
    let at = |server: &Value, name: &str| server.get(name).filter(|value| !empty.contains(value)).cloned();
    let is_changed = |name: &&&str| at(held, name) != at(after, name);
    let changed = GIVEN_TO.iter().find(is_changed)?;
    let what = format!(
        "changes what the stored value of {kept} is given to; send that value again, or null to remove it"
    );
    Some((format!(".{changed}"), what))
}

/// Returns a stored credential that a change keeps, because it was omitted or sent in its redacted form: a value of
/// `env` or `headers`, or a text with a password in a URL.
fn kept(held: &Value, sent: &JsonObject, after: &Value) -> Option<String> {
    let is_kept = |sent: Option<&Value>| sent.is_none_or(contains_placeholder);
    for place in ["env", "headers"] {
        let is_sent = |key: &str| sent.get(place).and_then(|sent| sent.get(key));
        for (key, value) in held.get(place).and_then(Value::as_object).into_iter().flatten() {
            if value.is_string() && is_kept(is_sent(key)) && after[place].get(key).is_some() {
                return Some(format!("{place}.{key}"));
            }
        }
    }
    let is_hiding = |value: &Value| without_userinfo(value.clone()) != *value;
    let others = held
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| !matches!(name.as_str(), "env" | "headers"));
    let kept = |(name, value): &(&String, &Value)| is_hiding(value) && is_kept(sent.get(*name));
    others.into_iter().find(kept).map(|(name, _)| name.clone())
}

impl Kind {
    fn wrong(self, path: &str, value: &Value) -> Vec<Wrong> {
        let must = |path: String, be: &str| Wrong { path, what: format!("must be {be}"), unknown: false };
        let one = |fits: bool, be: &str| if fits { Vec::new() } else { vec![must(path.to_owned(), be)] };
        match (self, value) {
            // As if it were omitted.
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
                            // The name is not repeated, because it may be the secret itself.
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
        let said = |held: &Value, sent: Value, after: Value| {
            let Value::Object(sent) = sent else { unreachable!("an object") };
            wrong_change(held, &sent, &after).map(|(path, what)| format!("{path} {what}"))
        };
        let with = |held: &Value, key: &str, value: Value| {
            let mut after = held.clone();
            after[key] = value;
            after
        };
        let why = |key: &str, kept: &str| {
            format!(
                ".{key} changes what the stored value of {kept} is given to; send that value again, or null to remove it"
            )
        };
        let set = json!({ "env": { "A": "<set>" } });
        for (key, value) in [
            ("type", json!("http")),
            ("command", json!("evil")),
            ("args", json!(["evil"])),
            ("args", Value::Null),
            ("cwd", json!("/evil")),
            ("url", json!("https://evil/")),
        ] {
            let after = with(&held, key, value.clone());
            assert_eq!(said(&held, set.clone(), after.clone()), Some(why(key, "env.A")));
            assert_eq!(said(&held, json!({ key: value }), after), Some(why(key, "env.A")));
        }
        for added in ["LD_PRELOAD", "PATH", "R"] {
            let mut after = held.clone();
            after["env"][added] = json!("/evil");
            let sent = json!({ "env": { "A": "<set>", added: "/evil" } });
            assert_eq!(said(&held, sent, after.clone()), Some(why("env", "env.A")));
            assert_eq!(said(&held, json!({ "env": { added: "/evil" } }), after), Some(why("env", "env.A")));
        }
        let in_args = json!({ "type": "stdio", "command": "a", "args": ["--db", "mysql://u:pw@h/db"] });
        let shown = json!(["--db", "mysql://<set>@h/db"]);
        for (key, value) in
            [("command", json!("evil")), ("env", json!({ "PATH": "/evil" })), ("cwd", json!("/evil"))]
        {
            let after = with(&in_args, key, value.clone());
            assert_eq!(
                said(&in_args, json!({ "args": shown, key: value }), after.clone()),
                Some(why(key, "args"))
            );
            assert_eq!(said(&in_args, json!({ key: value }), after), Some(why(key, "args")));
        }
        let args = json!(["mysql://u:pw@h/db", "--db"]);
        let sent = json!({ "args": ["mysql://<set>@h/db", "--db"] });
        assert_eq!(said(&in_args, sent, with(&in_args, "args", args)), Some(why("args", "args")));
        let in_url = json!({ "type": "http", "url": "https://u:pw@h/x", "headers": {} });
        for (held, sent, after) in [
            (&held, set, held.clone()),
            (
                &held,
                json!({ "env": { "A": "new" }, "command": "x" }),
                json!({ "command": "x", "env": { "A": "new" } }),
            ),
            (&held, json!({ "env": { "A": null }, "command": "x" }), json!({ "command": "x", "env": {} })),
            (&in_args, json!({ "args": shown, "env": {} }), with(&in_args, "env", json!({}))),
            (&in_args, json!({ "args": [], "command": "x" }), json!({ "command": "x", "args": [] })),
            (
                &in_url,
                json!({ "url": "https://<set>@h/x", "headers": { "X": "x" } }),
                with(&in_url, "headers", json!({ "X": "x" })),
            ),
            (
                &in_url,
                json!({ "url": "https://u:new@h/y" }),
                with(&in_url, "url", json!("https://u:new@h/y")),
            ),
        ] {
            assert_eq!(said(held, sent, after), None);
        }
    }
}
