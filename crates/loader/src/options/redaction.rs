//! Redaction of options for display, and the merge of redacted options that are sent back. Spec: *Options and
//! credentials*, 4 to 7 and 10.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use ostler_contract::secret::SET;
use ostler_contract::{JsonObject, Value, VaultName};

use super::secrets::is_reference;
use super::walk::{Nodes, rewrite};

/// The schema of the options that are redacted.
#[derive(Debug, Clone, Copy)]
pub enum SchemaInfo<'a> {
    /// The imported plugin declares this schema, or none and therefore no credentials.
    Declared(Option<&'a Value>),
    /// The schema is not available, so every option may be a credential.
    Unknown,
}

/// Returns options with `<set>` in place of each credential, for everyone but the file's owner at a terminal.
pub fn redacted(options: &JsonObject, schema: SchemaInfo<'_>) -> JsonObject {
    let redacted = |(key, value): (&String, &Value)| (key.clone(), redacted_at(value, &option(schema, key)));
    options.iter().map(redacted).collect()
}

/// The part of a schema that describes one value.
enum ValueSchema<'a> {
    Known(Nodes<'a>),
    Unknown,
}

fn option<'a>(schema: SchemaInfo<'a>, key: &str) -> ValueSchema<'a> {
    match schema {
        SchemaInfo::Unknown => ValueSchema::Unknown,
        SchemaInfo::Declared(schema) => {
            let whole = Nodes::of(schema);
            // A schema that is `writeOnly` as a whole hides each option.
            if whole.hidden() { ValueSchema::Unknown } else { ValueSchema::Known(whole.member(key)) }
        }
    }
}

fn redacted_at(value: &Value, schema: &ValueSchema<'_>) -> Value {
    match schema {
        ValueSchema::Known(nodes) => redacted_value(value, nodes),
        ValueSchema::Unknown => SET.into(),
    }
}

/// Returns a value, redacted by the schema nodes that describe it.
pub fn redacted_value(value: &Value, nodes: &Nodes<'_>) -> Value {
    rewrite(value, nodes, &mut |_, nodes, value| match nodes.hidden() {
        // A valid vault name is not a secret. An invalid one may be the secret itself.
        true if names_secret(value) => Some(value.clone()),
        true => Some(SET.into()),
        false => None,
    })
}

fn names_secret(value: &Value) -> bool {
    is_reference(value) && value["$secret"].as_str().is_some_and(|name| VaultName::parse(name).is_ok())
}

/// Returns every text in a place that the schema marks as a credential.
pub fn credentials(options: &JsonObject, schema: Option<&Value>) -> Vec<String> {
    fn texts(value: &Value, into: &mut Vec<String>) {
        match value {
            Value::String(text) => into.push(text.clone()),
            Value::Array(entries) => entries.iter().for_each(|entry| texts(entry, into)),
            Value::Object(_) if names_secret(value) => {}
            Value::Object(fields) => fields.values().for_each(|value| texts(value, into)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    rewrite(&Value::Object(options.clone()), &Nodes::of(schema), &mut |_, nodes, value| {
        nodes.hidden().then(|| texts(value, &mut found)).map(|()| Value::Null)
    });
    found
}

/// A `<set>` that does not stand for a stored value. The message does not repeat the sent value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path} {problem}; send the whole value, or a reference {{ $secret: <name> }} where one is allowed")]
pub struct PlaceholderError {
    /// `.key[0]`
    pub path: String,
    /// What is wrong with it.
    pub problem: PlaceholderProblem,
}

/// What is wrong with a `<set>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PlaceholderProblem {
    /// It is in a list, and which stored entry it stands for is ambiguous.
    #[error("is {SET}, but it is ambiguous which stored entry that refers to")]
    Ambiguous,
    /// No value is stored in its place.
    #[error("is {SET}, but nothing is stored there")]
    Nothing,
    /// The stored value in its place has another redacted form.
    #[error("contains {SET}, but is not the stored value as it is shown")]
    Different,
}

impl PlaceholderProblem {
    fn at(self, path: &str) -> PlaceholderError {
        PlaceholderError { path: path.to_owned(), problem: self }
    }
}

/// Merges the options that a client sent into the stored ones. `<set>` retains the stored value, `null` removes it,
/// another value replaces it. Options that are not named stay.
///
/// # Errors
/// A text with a `<set>` that is not the redacted form of the stored value.
pub fn patched(
    stored: &JsonObject,
    sent: &JsonObject,
    schema: SchemaInfo<'_>,
) -> Result<JsonObject, PlaceholderError> {
    let mut patched = stored.clone();
    for (key, sent) in sent {
        let schema = option(schema, key);
        let path = inner(key, stored.contains_key(key), "")?;
        match merge(stored.get(key), sent, &schema, &path)? {
            Some(value) => {
                patched.insert(key.clone(), value);
            }
            None => {
                patched.shift_remove(key);
            }
        }
    }
    Ok(patched)
}

/// Returns the new value of the option at a path. A `<set>` in the sent value retains the stored value there;
/// everything else replaces it, including members that are not named.
///
/// # Errors
/// A text with a `<set>` that is not the redacted form of the stored value.
pub fn replaced(
    stored: &JsonObject,
    at: &[String],
    sent: &Value,
    schema: SchemaInfo<'_>,
) -> Result<Option<Value>, PlaceholderError> {
    let Some((first, rest)) = at.split_first() else { return Ok(None) };
    let (mut schema, mut value) = (option(schema, first), stored.get(first));
    let mut path = inner(first, value.is_some(), "")?;
    for key in rest {
        schema = schema.member(key);
        value = value.and_then(|value| value.get(key));
        path = inner(key, value.is_some(), &path)?;
    }
    replacement(value, sent, &schema, &path)
}

fn replacement(
    stored: Option<&Value>,
    sent: &Value,
    schema: &ValueSchema<'_>,
    path: &str,
) -> Result<Option<Value>, PlaceholderError> {
    let Value::Object(fields) = sent else { return merge(stored, sent, schema, path) };
    if is_reference(sent) {
        return merge(stored, sent, schema, path);
    }
    let stored = stored.filter(|stored| !is_reference(stored)).and_then(Value::as_object);
    let mut made = JsonObject::new();
    for (key, sent) in fields {
        let before = stored.and_then(|stored| stored.get(key));
        let path = inner(key, before.is_some(), path)?;
        if let Some(value) = replacement(before, sent, &schema.member(key), &path)? {
            made.insert(key.clone(), value);
        }
    }
    Ok(Some(Value::Object(made)))
}

/// Replaces the name and password of each URL in a text: `https://user:password@host/` becomes `https://<set>@host/`.
pub fn without_password(text: &str) -> Cow<'_, str> {
    let mut redacted = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        let authority = after.split(['/', '?', '#']).next().unwrap_or_default();
        let host = authority.rsplit_once('@').map(|(_, host)| format!("{SET}@{host}"));
        redacted.extend([before, "://", host.as_deref().unwrap_or(authority)]);
        rest = &after[authority.len()..];
    }
    redacted.push_str(rest);
    if redacted == text { Cow::Borrowed(text) } else { Cow::Owned(redacted) }
}

/// Returns whether a text contains a `<set>`, also percent-encoded in a URL.
fn is_placeholder_text(text: &str) -> bool {
    text.contains(SET) || text.to_ascii_lowercase().contains("%3cset%3e@")
}

/// Returns the path of a member. A new name must not contain a `<set>`.
fn inner(key: &str, is_stored: bool, path: &str) -> Result<String, PlaceholderError> {
    let path = format!("{path}.{key}");
    if is_placeholder_text(key) && !is_stored {
        Err(PlaceholderProblem::Different.at(&path))
    } else {
        Ok(path)
    }
}

/// Returns the stored value that a sent value with a `<set>` stands for.
fn restored(
    stored: Option<&Value>,
    sent: &Value,
    schema: &ValueSchema<'_>,
    path: &str,
) -> Result<Value, PlaceholderError> {
    let whole = sent == SET;
    let Some(stored) = stored else {
        return Err(if whole { PlaceholderProblem::Nothing } else { PlaceholderProblem::Different }.at(path));
    };
    // A reference is not redacted, but it is also a credential.
    let is_redacted_form =
        stored == sent || if schema.hidden() { whole } else { without_userinfo(stored.clone()) == *sent };
    if is_redacted_form { Ok(stored.clone()) } else { Err(PlaceholderProblem::Different.at(path)) }
}

/// Hides the name and password of each URL in a value.
pub fn without_userinfo(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(without_password(&text).into_owned()),
        Value::Array(entries) => entries.into_iter().map(without_userinfo).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(key, value)| (key, without_userinfo(value))).collect()
        }
        other => other,
    }
}

impl<'a> ValueSchema<'a> {
    /// Whether a value here is redacted as a whole.
    fn hidden(&self) -> bool {
        match self {
            Self::Known(nodes) => nodes.hidden(),
            Self::Unknown => true,
        }
    }

    fn member(&self, key: &str) -> ValueSchema<'a> {
        match self {
            Self::Known(nodes) if !nodes.hidden() => Self::Known(nodes.member(key)),
            _ => Self::Unknown,
        }
    }

    fn entry(&self, index: usize) -> ValueSchema<'a> {
        match self {
            Self::Known(nodes) if !nodes.hidden() => Self::Known(nodes.entry(index)),
            _ => Self::Unknown,
        }
    }
}

fn merge(
    stored: Option<&Value>,
    sent: &Value,
    schema: &ValueSchema<'_>,
    path: &str,
) -> Result<Option<Value>, PlaceholderError> {
    match (stored, sent) {
        (_, Value::Null) => Ok(None),
        // A reference is one value, not an object with a member of that name.
        (stored, sent) if (sent.is_string() || is_reference(sent)) && contains_placeholder(sent) => {
            restored(stored, sent, schema, path).map(Some)
        }
        (_, sent) if is_reference(sent) => Ok(Some(sent.clone())),
        (stored, Value::Object(fields)) => {
            let mut merged = match stored {
                Some(stored @ Value::Object(before)) if !is_reference(stored) => before.clone(),
                _ => JsonObject::new(),
            };
            for (key, sent) in fields {
                let path = inner(key, merged.contains_key(key), path)?;
                match merge(merged.get(key), sent, &schema.member(key), &path)? {
                    Some(value) => {
                        merged.insert(key.clone(), value);
                    }
                    None => {
                        merged.shift_remove(key);
                    }
                }
            }
            Ok(Some(Value::Object(merged)))
        }
        (stored, Value::Array(sent)) => {
            let stored = stored.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            list(stored, sent, schema, path).map(|entries| Some(Value::Array(entries)))
        }
        (_, sent) => Ok(Some(sent.clone())),
    }
}

/// Merges a list, which is sent as a whole. An entry with a `<set>` stands for a stored entry.
fn list(
    stored: &[Value],
    sent: &[Value],
    schema: &ValueSchema<'_>,
    path: &str,
) -> Result<Vec<Value>, PlaceholderError> {
    let mut entries = Vec::new();
    let matches = sent.iter().any(contains_placeholder).then(|| EntryMatches::of(stored, sent, schema));
    for (index, entry) in sent.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let before = match &matches {
            Some(matches) if contains_placeholder(entry) => match matches.entry(index) {
                Some(at) => stored.get(at),
                None => return Err(PlaceholderProblem::Ambiguous.at(&path)),
            },
            _ => None,
        };
        entries.extend(merge(before, entry, &schema.entry(index), &path)?);
    }
    Ok(entries)
}

/// Matches the entries of a sent list that contain a `<set>` with the stored entries.
struct EntryMatches {
    /// The indexes of the stored entries by their redacted form.
    redacted: HashMap<String, Vec<usize>>,
    /// How often each sent entry occurs.
    claims: HashMap<String, usize>,
    /// The sent entries in order, each with whether it is a text.
    sent: Vec<(String, bool)>,
    /// Indexes at which the sent entry differs from the redacted one in more than credentials.
    changed: Vec<usize>,
    /// How the number of sent entries compares with that of the stored ones.
    count: std::cmp::Ordering,
}

impl EntryMatches {
    fn of(stored: &[Value], sent: &[Value], schema: &ValueSchema<'_>) -> Self {
        let seen: Vec<Value> = stored
            .iter()
            .enumerate()
            .map(|(index, value)| redacted_at(value, &schema.entry(index)))
            .collect();
        let is_changed = |index: &usize| {
            let schema = schema.entry(*index);
            plain(&without_credentials(&sent[*index], &schema))
                != plain(&without_credentials(&seen[*index], &schema))
        };
        let changed = (0..seen.len().min(sent.len())).filter(is_changed).collect();
        let (mut redacted, mut claims) = (HashMap::<_, Vec<_>>::new(), HashMap::new());
        for (index, entry) in seen.iter().enumerate() {
            redacted.entry(plain(entry)).or_default().push(index);
        }
        let count = sent.len().cmp(&stored.len());
        let sent: Vec<_> = sent.iter().map(|entry| (plain(entry), entry.is_string())).collect();
        for (entry, _) in &sent {
            *claims.entry(entry.clone()).or_default() += 1;
        }
        Self { redacted, claims, sent, changed, count }
    }

    /// Returns the index of the stored entry that the sent entry at `index` stands for, or `None` if that is ambiguous.
    /// It is the one with this redacted form. If several have it, each must be at its index. A changed entry is the one
    /// at its index, if no other was changed, moved, added or removed.
    fn entry(&self, index: usize) -> Option<usize> {
        let (entry, is_text) = self.sent.get(index)?;
        let in_place = |at: &usize| self.sent.get(*at).is_some_and(|(sent, _)| sent == entry);
        match self.redacted.get(entry).map(Vec::as_slice) {
            Some([only]) => (self.claims.get(entry) == Some(&1)).then_some(*only),
            // Values that are only a credential are identified by their index.
            Some(alike) if *is_text => (self.count.is_ge() && alike.contains(&index)).then_some(index),
            Some(alike) => (alike.contains(&index) && alike.iter().all(in_place)).then_some(index),
            None => (self.count.is_eq() && self.changed.iter().all(|at| *at == index)).then_some(index),
        }
    }
}

/// Returns a value as text that does not depend on the order of keys, with the name and password of each URL hidden.
fn plain(value: &Value) -> String {
    fn sorted(value: &Value) -> Value {
        match value {
            Value::String(text) => without_password(text).into(),
            Value::Array(entries) => entries.iter().map(sorted).collect(),
            Value::Object(fields) => {
                let sorted: BTreeMap<_, _> =
                    fields.iter().map(|(key, value)| (key.clone(), sorted(value))).collect();
                sorted.into_iter().collect()
            }
            other => other.clone(),
        }
    }
    sorted(value).to_string()
}

/// Returns an entry without its credentials, which identifies it when a credential was replaced.
fn without_credentials(value: &Value, schema: &ValueSchema<'_>) -> Value {
    match (value, schema) {
        (_, ValueSchema::Unknown) => Value::Null,
        (_, ValueSchema::Known(nodes)) if nodes.hidden() => Value::Null,
        (Value::Object(fields), schema) => fields
            .iter()
            .map(|(key, value)| (key.clone(), without_credentials(value, &schema.member(key))))
            .filter(|(_, value)| !value.is_null())
            .collect(),
        (Value::Array(entries), schema) => {
            let each = |(index, entry)| without_credentials(entry, &schema.entry(index));
            entries.iter().enumerate().map(each).collect()
        }
        (value, _) => value.clone(),
    }
}

/// Returns whether a value contains a text or a name with a `<set>`.
pub fn contains_placeholder(value: &Value) -> bool {
    match value {
        Value::String(text) => is_placeholder_text(text),
        Value::Array(entries) => entries.iter().any(contains_placeholder),
        Value::Object(fields) => {
            fields.iter().any(|(key, value)| is_placeholder_text(key) || contains_placeholder(value))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use ostler_contract::json;
    use proptest::prelude::*;

    use super::*;

    fn object(value: Value) -> JsonObject {
        value.as_object().unwrap().clone()
    }

    fn schema() -> Value {
        json!({
            "$defs": { "key": { "type": "string", "writeOnly": true } },
            "properties": {
                "token": { "type": "string", "writeOnly": true },
                "url": { "type": "string" },
                "env": { "type": "object", "additionalProperties": { "type": "string", "writeOnly": true } },
                "headers": { "patternProperties": { "^x-": { "writeOnly": true } }, "properties": { "x-open": {} } },
                "keys": { "type": "array", "items": { "writeOnly": true } },
                "servers": { "items": { "properties": { "name": {}, "token": { "$ref": "#/$defs/key" } } } },
                "parts": { "allOf": [{ "properties": { "a": { "writeOnly": true } } }, { "properties": { "b": {} } }] },
                "far": { "$ref": "https://elsewhere/schema" },
                "whole": { "writeOnly": true, "properties": { "open": {} } }
            }
        })
    }

    fn options() -> JsonObject {
        object(json!({
            "token": "t", "url": "u", "env": { "A": "a", "B": { "$secret": "host:b" } },
            "headers": { "x-key": "k", "x-open": "o", "plain": "p" }, "keys": ["k1", "k2"],
            "servers": [{ "name": "one", "token": "t1" }, { "name": "two", "token": "t2" }],
            "parts": { "a": "a", "b": "b" }, "far": { "x": 1 }, "whole": { "open": 1 }, "unknown": "shown"
        }))
    }

    #[test]
    fn a_mark_is_honoured_wherever_a_schema_may_carry_it() {
        let schema = schema();
        assert_eq!(
            Value::Object(redacted(&options(), SchemaInfo::Declared(Some(&schema)))),
            json!({
                "token": "<set>", "url": "u", "env": { "A": "<set>", "B": { "$secret": "host:b" } },
                "headers": { "x-key": "<set>", "x-open": "<set>", "plain": "p" }, "keys": ["<set>", "<set>"],
                "servers": [{ "name": "one", "token": "<set>" }, { "name": "two", "token": "<set>" }],
                "parts": { "a": "<set>", "b": "b" }, "far": "<set>", "whole": "<set>", "unknown": "shown"
            })
        );
    }

    #[test]
    fn a_plugin_that_marks_nothing_shows_everything_and_one_nobody_knows_nothing() {
        assert_eq!(redacted(&options(), SchemaInfo::Declared(None)), options());
        assert_eq!(redacted(&options(), SchemaInfo::Declared(Some(&json!({})))), options());
        let hidden = redacted(&options(), SchemaInfo::Unknown);
        assert_eq!(hidden.keys().collect::<Vec<_>>(), options().keys().collect::<Vec<_>>());
        assert!(hidden.values().all(|value| value == "<set>"), "{hidden:?}");
        let all = json!({ "writeOnly": true });
        assert!(
            redacted(&options(), SchemaInfo::Declared(Some(&all))).values().all(|value| value == "<set>")
        );
    }

    #[test]
    fn a_reference_is_shown_as_written_and_what_is_none_is_not() {
        let schema = json!({ "properties": { "key": { "writeOnly": true } } });
        let seen = |value: Value| {
            redacted(&object(json!({ "key": value })), SchemaInfo::Declared(Some(&schema)))["key"].clone()
        };
        for name in ["host:k", "team:t/k", "user:u/k"] {
            assert_eq!(seen(json!({ "$secret": name })), json!({ "$secret": name }));
        }
        for other in
            [json!({ "$secret": "sk-live" }), json!({ "$secret": 5 }), json!({ "$secret": "host:k", "x": 1 })]
        {
            assert_eq!(seen(other), "<set>");
        }
    }

    #[test]
    fn what_is_sent_back_replaces_what_it_says_and_nothing_else() {
        let schema = schema();
        let known = SchemaInfo::Declared(Some(&schema));
        let after = |sent: Value| patched(&options(), &object(sent), known).map(Value::Object);
        let with = |path: &str, value: Value| {
            let mut options = Value::Object(options());
            *options.pointer_mut(path).unwrap() = value;
            options
        };
        assert_eq!(after(json!({ "token": "<set>" })).unwrap(), Value::Object(options()));
        assert_eq!(after(json!({ "token": "new" })).unwrap(), with("/token", json!("new")));
        assert_eq!(after(json!({ "env": { "A": "<set>" } })).unwrap(), Value::Object(options()));
        assert_eq!(after(json!({ "env": { "A": "new" } })).unwrap(), with("/env/A", json!("new")));
        assert_eq!(
            after(json!({ "env": { "B": "plain" } })).unwrap(),
            with("/env/B", json!("plain")),
            "a reference is one value"
        );
        assert_eq!(
            after(json!({ "env": { "A": { "$secret": "host:a" } } })).unwrap(),
            with("/env/A", json!({ "$secret": "host:a" }))
        );
        assert_eq!(after(json!({ "token": null })).unwrap().get("token"), None);
        assert_eq!(
            after(json!({ "env": { "A": null } })).unwrap()["env"],
            json!({ "B": { "$secret": "host:b" } })
        );
        assert_eq!(
            after(json!({ "keys": ["<set>", "<set>", "k3"] })).unwrap()["keys"],
            json!(["k1", "k2", "k3"])
        );
        assert_eq!(
            after(json!({ "servers": [{ "name": "two", "token": "<set>" }] })).unwrap()["servers"],
            json!([{ "name": "two", "token": "t2" }]),
            "an entry keeps its own credential"
        );
        assert_eq!(
            after(
                json!({ "servers": [{ "name": "1", "token": "<set>" }, { "name": "two", "token": null }] })
            )
            .unwrap()["servers"],
            json!([{ "name": "1", "token": "t1" }, { "name": "two" }])
        );
        for (sent, path) in [
            (json!({ "keys": ["<set>"] }), ".keys[0]"),
            (json!({ "keys": ["new", "<set>", "<set>"] }), ".keys[2]"),
            (json!({ "servers": [{ "name": "other", "token": "<set>" }] }), ".servers[0]"),
            (json!({ "keys": ["<set>", "<set>", "<set>"] }), ".keys[2]"),
        ] {
            assert_eq!(after(sent), Err(PlaceholderProblem::Ambiguous.at(path)));
        }
        for (sent, path, why) in [
            (json!({ "absent": "<set>" }), ".absent", PlaceholderProblem::Nothing),
            (json!({ "env": { "C": "<set>" } }), ".env.C", PlaceholderProblem::Nothing),
            (json!({ "absent": { "deep": ["<set>"] } }), ".absent.deep[0]", PlaceholderProblem::Ambiguous),
            (json!({ "keys": [["<set>"]] }), ".keys[0]", PlaceholderProblem::Ambiguous),
            (json!({ "url": "<set>" }), ".url", PlaceholderProblem::Different),
            (json!({ "token": "https://<set>@h/" }), ".token", PlaceholderProblem::Different),
            (json!({ "token": "Bearer <set>" }), ".token", PlaceholderProblem::Different),
            (json!({ "new": { "$secret": "<set>" } }), ".new", PlaceholderProblem::Different),
            (json!({ "new": { "<set>": 1 } }), ".new.<set>", PlaceholderProblem::Different),
        ] {
            assert_eq!(after(sent), Err(why.at(path)));
        }
    }

    /// Below a part that is hidden as a whole, each member and entry is a credential.
    #[test]
    fn a_part_of_a_hidden_value_is_restored() {
        let schema = json!({ "properties": {
            "whole": { "writeOnly": true, "properties": { "open": {} }, "items": {} }, "plain": {}
        } });
        let known = SchemaInfo::Declared(Some(&schema));
        let patch = |stored: &Value, sent: Value| {
            patched(&object(stored.clone()), &object(sent), known).map(Value::Object)
        };
        let fields = json!({ "whole": { "open": "o" } });
        assert_eq!(patch(&fields, json!({ "whole": { "open": "<set>" } })), Ok(fields));
        let list = json!({ "whole": ["a", "b"] });
        assert_eq!(patch(&list, json!({ "whole": ["<set>", "<set>"] })), Ok(list));
        let nested = json!({ "whole": { "open": ["a"] } });
        assert_eq!(patch(&nested, json!({ "whole": { "open": ["<set>"] } })), Ok(nested));
    }

    #[test]
    fn a_reference_is_replaced_as_a_whole_and_replaces_as_a_whole() {
        let (reference, fields) = (json!({ "$secret": "host:k" }), json!({ "x": 1 }));
        for (stored, sent) in [(&reference, &fields), (&fields, &reference)] {
            let stored = object(json!({ "key": stored }));
            let after = patched(&stored, &object(json!({ "key": sent })), SchemaInfo::Declared(None));
            assert_eq!(after.unwrap()["key"], *sent);
        }
    }

    #[test]
    fn credentials_are_the_texts_in_hidden_places() {
        let schema = schema();
        let mut found = credentials(&options(), Some(&schema));
        found.sort_unstable();
        assert_eq!(found, ["a", "a", "k", "k1", "k2", "o", "t", "t1", "t2"]);
        let schema = json!({ "properties": { "key": { "writeOnly": true } } });
        let of = |value: Value| credentials(&object(json!({ "key": value, "open": "o" })), Some(&schema));
        assert_eq!(of(json!({ "list": ["a", { "b": "c" }, 5, null] })), ["a", "c"]);
        assert_eq!(of(json!({ "in": { "$secret": "host:k" } })), [""; 0]);
        assert_eq!(of(json!({ "$secret": "sk-live" })), ["sk-live"]);
        assert_eq!(credentials(&options(), None), [""; 0]);
    }

    /// Entries that moved and changed never get each other's credential.
    #[test]
    fn an_entry_that_moved_and_changed_is_ambiguous() {
        let schema = schema();
        let known = SchemaInfo::Declared(Some(&schema));
        let entry = |name: &str| json!({ "name": name, "token": "<set>" });
        let after = |sent: &[Value]| {
            let after = patched(&options(), &object(json!({ "servers": sent })), known);
            after.map(|after| after["servers"].clone())
        };
        let stored = |name: &str, token: &str| json!({ "name": name, "token": token });
        for (sent, kept) in [
            (vec![entry("two"), entry("one")], vec![stored("two", "t2"), stored("one", "t1")]),
            (vec![entry("one"), entry("second")], vec![stored("one", "t1"), stored("second", "t2")]),
            (vec![entry("first"), stored("two", "new")], vec![stored("first", "t1"), stored("two", "new")]),
            (vec![stored("three", "t3"), entry("one")], vec![stored("three", "t3"), stored("one", "t1")]),
            (vec![json!({ "token": "<set>", "name": "two" })], vec![stored("two", "t2")]),
        ] {
            assert_eq!(after(&sent), Ok(json!(kept)), "{sent:?}");
        }
        for (sent, path) in [
            (vec![entry("second"), entry("one")], ".servers[0]"),
            (vec![entry("two"), entry("first")], ".servers[1]"),
            (vec![entry("first"), entry("second")], ".servers[0]"),
            (vec![entry("first"), stored("three", "t3")], ".servers[0]"),
            (vec![entry("one"), entry("one")], ".servers[0]"),
            (vec![entry("one"), entry("two"), entry("three")], ".servers[2]"),
            (vec![entry("first"), entry("two"), stored("three", "t3")], ".servers[0]"),
        ] {
            assert_eq!(after(&sent), Err(PlaceholderProblem::Ambiguous.at(path)), "{sent:?}");
        }
        let alike = object(json!({ "servers": [stored("a", "1"), stored("a", "2"), stored("b", "3")] }));
        let after = |sent: &[Value]| patched(&alike, &object(json!({ "servers": sent })), known);
        assert_eq!(after(&[entry("a"), entry("a"), entry("b")]), Ok(alike.clone()));
        assert!(
            after(&[entry("a"), entry("b"), stored("c", "new")]).is_err(),
            "which of the two was removed?"
        );
    }

    #[test]
    fn an_entry_with_a_password_in_a_url_keeps_its_own() {
        let stored =
            object(json!({ "list": [{ "url": "https://u:one@a/" }, { "url": "https://u:two@b/" }] }));
        let sent = object(json!({ "list": [{ "url": "https://<set>@b/" }, { "url": "https://<set>@a/" }] }));
        let kept = patched(&stored, &sent, SchemaInfo::Declared(None)).unwrap();
        assert_eq!(kept["list"], json!([{ "url": "https://u:two@b/" }, { "url": "https://u:one@a/" }]));
    }

    /// A value with secrets in it, the schema that marks them, and how it looks.
    fn marked() -> impl Strategy<Value = (Value, Value)> {
        let secret = "SECRET-[a-z0-9]{4}";
        let leaf = prop_oneof![
            secret.prop_map(|text| (json!(text), json!({ "type": "string", "writeOnly": true }))),
            secret.prop_map(|text| (json!({ "in": [text] }), json!({ "writeOnly": true }))),
            (0..9).prop_map(|number| (json!(number), json!({ "type": "integer" }))),
            Just((json!({ "$secret": "host:open" }), json!({ "writeOnly": true }))),
            Just((json!("open"), json!({}))),
            ("SECRET-[a-z0-9]{4}", "[a-b]").prop_map(|(text, host)| {
                (json!(format!("https://u:{text}@{host}/")), json!({ "type": "string" }))
            }),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            let keyed = proptest::collection::vec(("[a-d]", inner.clone()), 0..4);
            prop_oneof![
                keyed.prop_map(|members| {
                    let members: std::collections::BTreeMap<_, _> = members.into_iter().collect();
                    let value: JsonObject =
                        members.iter().map(|(k, (v, _))| (k.clone(), v.clone())).collect();
                    let nodes: JsonObject = members.into_iter().map(|(k, (_, n))| (k, n)).collect();
                    (Value::Object(value), json!({ "properties": nodes }))
                }),
                ("[a-d]", inner.clone()).prop_map(|(key, (value, node))| (
                    json!({ key: value }),
                    json!({ "additionalProperties": node })
                )),
                ("[a-d]", inner.clone()).prop_map(|(key, (value, node))| {
                    (json!({ key: value }), json!({ "patternProperties": { "^[a-d]$": node } }))
                }),
                inner.clone().prop_map(|(value, node)| (json!([value, value]), json!({ "items": node }))),
                inner.prop_map(|(value, node)| (value, json!({ "anyOf": [{}, { "allOf": [node] }] }))),
            ]
        })
    }

    /// Options, and the schema that marks the secrets in them.
    fn members() -> impl Strategy<Value = (JsonObject, Value)> {
        proptest::collection::vec(marked(), 1..4).prop_map(|members| {
            let (mut options, mut nodes) = (JsonObject::new(), JsonObject::new());
            for (at, (value, node)) in members.into_iter().enumerate() {
                options.insert(format!("o{at}"), value);
                nodes.insert(format!("o{at}"), node);
            }
            (options, json!({ "properties": nodes }))
        })
    }

    /// Options as a client sees them.
    fn seen(options: &JsonObject, schema: SchemaInfo<'_>) -> JsonObject {
        object(without_userinfo(Value::Object(redacted(options, schema))))
    }

    proptest! {
        #[test]
        fn a_marked_value_is_never_shown_and_comes_back_as_it_was(stored in members()) {
            let (options, schema) = stored;
            let known = SchemaInfo::Declared(Some(&schema));
            let seen = seen(&options, known);
            prop_assert!(!Value::Object(seen.clone()).to_string().contains("SECRET-"), "{seen:?}");
            prop_assert_eq!(patched(&options, &seen, known), Ok(options.clone()));
            prop_assert_eq!(patched(&options, &redacted(&options, SchemaInfo::Unknown), SchemaInfo::Unknown), Ok(options));
        }

        /// No `<set>` is ever stored, whatever is sent, including redacted forms of other options.
        #[test]
        fn nothing_shown_is_ever_written(stored in members(), other in members(), unknown: bool) {
            let ((options, schema), (others, elsewhere)) = (stored, other);
            let known = if unknown { SchemaInfo::Unknown } else { SchemaInfo::Declared(Some(&schema)) };
            let sent = [
                seen(&options, known),
                seen(&others, SchemaInfo::Declared(Some(&elsewhere))),
                seen(&others, SchemaInfo::Declared(None)),
                seen(&others, known),
                redacted(&others, SchemaInfo::Unknown),
            ];
            prop_assert_eq!(patched(&options, &sent[0], known), Ok(options.clone()));
            for sent in &sent {
                if let Ok(after) = patched(&options, sent, known) {
                    prop_assert!(!contains_placeholder(&Value::Object(after.clone())), "{sent:?}: {after:?}");
                }
                for (key, sent) in sent {
                    if let Ok(Some(after)) = replaced(&options, std::slice::from_ref(key), sent, known) {
                        prop_assert!(!contains_placeholder(&after), "{key} {sent}: {after}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_url_sent_back_as_it_was_shown_keeps_its_password() {
        let stored = json!({ "url": "https://u:pw@h/x", "list": ["https://u:pw@a/", "b"] });
        let sent = json!({ "url": "https://<set>@h/x", "list": ["b", "https://<set>@a/"] });
        let kept =
            patched(stored.as_object().unwrap(), sent.as_object().unwrap(), SchemaInfo::Declared(None))
                .unwrap();
        assert_eq!(
            Value::Object(kept),
            json!({ "url": "https://u:pw@h/x", "list": ["b", "https://u:pw@a/"] })
        );
    }

    /// A sent URL restores the stored one only in its redacted form.
    #[test]
    fn another_url_without_its_password_is_rejected() {
        let stored = object(json!({
            "url": "https://u:pw@h/x", "plain": "https://h/", "list": ["https://u:p1@a/", "https://u:p2@b/"],
            "text": "from https://u:p3@a/ to https://u:p4@b/"
        }));
        let known = SchemaInfo::Declared(None);
        for (sent, path) in [
            (json!({ "url": "https://<set>@h/y" }), ".url"),
            (json!({ "url": "https://<set>@elsewhere/x" }), ".url"),
            (json!({ "url": "https://v:<set>@h/x" }), ".url"),
            (json!({ "url": "https://%3Cset%3E@h/x" }), ".url"),
            (json!({ "url": " https://<set>@h/x" }), ".url"),
            (json!({ "url": { "in": "https://<set>@h/x" } }), ".url.in"),
            (json!({ "plain": "https://<set>@h/" }), ".plain"),
            (json!({ "new": "https://<set>@h/" }), ".new"),
            (json!({ "list": ["https://<set>@a/evil", "https://<set>@b/"] }), ".list[0]"),
            (json!({ "list": ["https://<set>@c/", "https://<set>@b/"] }), ".list[0]"),
            (json!({ "list": ["https://<set>@a/", "https://<set>@a/"] }), ".list[0]"),
            (json!({ "list": ["https://<set>@a/", "https://<set>@b/", "https://<set>@c/"] }), ".list[2]"),
            (json!({ "text": "from https://<set>@b/ to https://<set>@a/" }), ".text"),
            (json!({ "text": "from https://u:new@a/ to https://<set>@b/" }), ".text"),
        ] {
            let error = patched(&stored, &object(sent.clone()), known).unwrap_err();
            assert_eq!(error.path, path, "{sent}");
            let (key, value) = sent.as_object().unwrap().iter().next().unwrap();
            assert!(replaced(&stored, std::slice::from_ref(key), value, known).is_err(), "{sent}");
        }
        let unchanged =
            json!({ "text": "from https://<set>@a/ to https://<set>@b/", "list": ["https://<set>@b/"] });
        let kept = patched(&stored, unchanged.as_object().unwrap(), known).unwrap();
        assert_eq!((&kept["text"], &kept["list"]), (&stored["text"], &json!(["https://u:p2@b/"])));
    }

    #[test]
    fn what_is_set_takes_the_place_of_what_was_but_for_credentials() {
        let schema = json!({ "properties": { "env": { "additionalProperties": { "writeOnly": true } } } });
        let stored = json!({ "env": { "A": "a", "B": "b" } });
        let at = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
        let set = |keys: &[&str], value: Value| {
            replaced(stored.as_object().unwrap(), &at(keys), &value, SchemaInfo::Declared(Some(&schema)))
                .unwrap()
        };
        assert_eq!(set(&["env", "A"], json!("<set>")), Some(json!("a")));
        assert_eq!(set(&["env", "A"], json!("new")), Some(json!("new")));
        assert_eq!(set(&["env"], json!({ "A": "<set>", "C": "c" })), Some(json!({ "A": "a", "C": "c" })));
        assert_eq!(set(&["env"], Value::Null), None);
        let error = replaced(
            stored.as_object().unwrap(),
            &at(&["none", "deep"]),
            &json!("<set>"),
            SchemaInfo::Unknown,
        );
        assert_eq!(error, Err(PlaceholderProblem::Nothing.at(".none.deep")));
    }
}
