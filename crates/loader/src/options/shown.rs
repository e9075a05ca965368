//! Options as they are shown, and taking back what was shown. Spec: *Options and credentials*, 4 to 7 and 10.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use ostler_contract::secret::SET;
use ostler_contract::{JsonObject, Value, VaultName};

use super::secrets::is_reference;
use super::walk::{Nodes, rewrite};

/// What is known of the schema whose options are shown.
#[derive(Debug, Clone, Copy)]
pub enum Known<'a> {
    /// The plugin was imported and declares this schema, or none, and so marks nothing.
    Schema(Option<&'a Value>),
    /// Nobody knows what it marks.
    Nothing,
}

/// Options as anybody but the file's owner at a terminal is shown them: `<set>` for each credential.
pub fn shown(options: &JsonObject, known: Known<'_>) -> JsonObject {
    let shown = |(key, value): (&String, &Value)| (key.clone(), shown_at(value, &option(known, key)));
    options.iter().map(shown).collect()
}

/// What describes one option.
enum Place<'a> {
    Known(Nodes<'a>),
    Unknown,
}

fn option<'a>(known: Known<'a>, key: &str) -> Place<'a> {
    match known {
        Known::Nothing => Place::Unknown,
        Known::Schema(schema) => {
            let whole = Nodes::of(schema);
            // A mark on the whole is one on each option.
            if whole.hidden() { Place::Unknown } else { Place::Known(whole.member(key)) }
        }
    }
}

fn shown_at(value: &Value, place: &Place<'_>) -> Value {
    match place {
        Place::Known(nodes) => shown_value(value, nodes),
        Place::Unknown => SET.into(),
    }
}

/// A value as it is shown where these nodes describe it.
pub fn shown_value(value: &Value, nodes: &Nodes<'_>) -> Value {
    rewrite(value, nodes, &mut |_, nodes, value| match nodes.hidden() {
        // The name is no secret, unless it is none: then it may be the value itself.
        true if names_secret(value) => Some(value.clone()),
        true => Some(SET.into()),
        false => None,
    })
}

fn names_secret(value: &Value) -> bool {
    is_reference(value) && value["$secret"].as_str().is_some_and(|name| VaultName::parse(name).is_ok())
}

/// Every text that stands where a credential belongs.
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

/// A `<set>` that cannot be taken. What was sent is not repeated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path} {why}; send the whole value, or a reference {{ $secret: <name> }} where one is allowed")]
pub struct Untold {
    /// `.key[0]`
    pub path: String,
    /// Why not.
    pub why: Why,
}

/// Why a `<set>` cannot be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// It is in a list whose entries cannot be told apart.
    #[error("is {SET}, but it is ambiguous which stored entry that refers to")]
    Ambiguous,
    /// There is no value that it could keep.
    #[error("is {SET}, but nothing is stored there")]
    Nothing,
    /// The value in its place is shown as another text.
    #[error("contains {SET}, but is not the stored value as it is shown")]
    Another,
}

impl Why {
    fn at(self, path: &str) -> Untold {
        Untold { path: path.to_owned(), why: self }
    }
}

/// Options after a client sent some: `<set>` leaves what is held, another value replaces it, `null` takes it
/// back, and what was not named stays.
///
/// # Errors
/// A text with a `<set>` that is not what is shown of the value in its place.
pub fn patched(held: &JsonObject, sent: &JsonObject, known: Known<'_>) -> Result<JsonObject, Untold> {
    let mut patched = held.clone();
    for (key, sent) in sent {
        let place = option(known, key);
        let path = inner(key, held.contains_key(key), "")?;
        match taken(held.get(key), sent, &place, &path)? {
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

/// Options after one was set: a `<set>` in the value leaves what is held there; anything else takes the place of what
/// was, so that what is not named is gone.
///
/// # Errors
/// A text with a `<set>` that is not what is shown of the value in its place.
pub fn replaced(
    held: &JsonObject,
    at: &[String],
    sent: &Value,
    known: Known<'_>,
) -> Result<Option<Value>, Untold> {
    let Some((first, rest)) = at.split_first() else { return Ok(None) };
    let (mut place, mut value) = (option(known, first), held.get(first));
    let mut path = inner(first, value.is_some(), "")?;
    for key in rest {
        place = place.member(key);
        value = value.and_then(|value| value.get(key));
        path = inner(key, value.is_some(), &path)?;
    }
    replacement(value, sent, &place, &path)
}

fn replacement(
    held: Option<&Value>,
    sent: &Value,
    place: &Place<'_>,
    path: &str,
) -> Result<Option<Value>, Untold> {
    let Value::Object(fields) = sent else { return taken(held, sent, place, path) };
    if is_reference(sent) {
        return taken(held, sent, place, path);
    }
    let held = held.filter(|held| !is_reference(held)).and_then(Value::as_object);
    let mut made = JsonObject::new();
    for (key, sent) in fields {
        let before = held.and_then(|held| held.get(key));
        let path = inner(key, before.is_some(), path)?;
        if let Some(value) = replacement(before, sent, &place.member(key), &path)? {
            made.insert(key.clone(), value);
        }
    }
    Ok(Some(Value::Object(made)))
}

/// `https://user:password@host/` as `https://<set>@host/`, for each URL of a text; any other text as it is.
pub fn without_password(text: &str) -> Cow<'_, str> {
    let mut shown = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        let authority = after.split(['/', '?', '#']).next().unwrap_or_default();
        let host = authority.rsplit_once('@').map(|(_, host)| format!("{SET}@{host}"));
        shown.extend([before, "://", host.as_deref().unwrap_or(authority)]);
        rest = &after[authority.len()..];
    }
    shown.push_str(rest);
    if shown == text { Cow::Borrowed(text) } else { Cow::Owned(shown) }
}

/// Whether a text holds a `<set>`, also as a program writes it that encodes the URL around it.
fn is_stand_in(text: &str) -> bool {
    text.contains(SET) || text.to_ascii_lowercase().contains("%3cset%3e@")
}

/// The path of a member. A name with a `<set>` in it is only taken where it is one already.
fn inner(key: &str, is_held: bool, path: &str) -> Result<String, Untold> {
    let path = format!("{path}.{key}");
    if is_stand_in(key) && !is_held { Err(Why::Another.at(&path)) } else { Ok(path) }
}

/// What a value with a `<set>` in it keeps: the value in its place, if that is shown so.
fn kept(held: Option<&Value>, sent: &Value, place: &Place<'_>, path: &str) -> Result<Value, Untold> {
    let whole = sent == SET;
    let Some(held) = held else { return Err(if whole { Why::Nothing } else { Why::Another }.at(path)) };
    // A reference is shown as written, but it is a credential as well.
    let is_shown =
        held == sent || if place.hidden() { whole } else { without_userinfo(held.clone()) == *sent };
    if is_shown { Ok(held.clone()) } else { Err(Why::Another.at(path)) }
}

/// A value with the name and password of each URL in it hidden.
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

impl<'a> Place<'a> {
    /// Whether a value here is shown as `<set>`.
    fn hidden(&self) -> bool {
        match self {
            Self::Known(nodes) => nodes.hidden(),
            Self::Unknown => true,
        }
    }

    fn member(&self, key: &str) -> Place<'a> {
        match self {
            Self::Known(nodes) if !nodes.hidden() => Self::Known(nodes.member(key)),
            _ => Self::Unknown,
        }
    }

    fn entry(&self, index: usize) -> Place<'a> {
        match self {
            Self::Known(nodes) if !nodes.hidden() => Self::Known(nodes.entry(index)),
            _ => Self::Unknown,
        }
    }
}

fn taken(held: Option<&Value>, sent: &Value, place: &Place<'_>, path: &str) -> Result<Option<Value>, Untold> {
    match (held, sent) {
        (_, Value::Null) => Ok(None),
        // A reference is one value, not an object with a member of that name.
        (held, sent) if (sent.is_string() || is_reference(sent)) && holds_set(sent) => {
            kept(held, sent, place, path).map(Some)
        }
        (_, sent) if is_reference(sent) => Ok(Some(sent.clone())),
        (held, Value::Object(fields)) => {
            let mut merged = match held {
                Some(held @ Value::Object(before)) if !is_reference(held) => before.clone(),
                _ => JsonObject::new(),
            };
            for (key, sent) in fields {
                let path = inner(key, merged.contains_key(key), path)?;
                match taken(merged.get(key), sent, &place.member(key), &path)? {
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
        (held, Value::Array(sent)) => {
            let held = held.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            list(held, sent, place, path).map(|entries| Some(Value::Array(entries)))
        }
        (_, sent) => Ok(Some(sent.clone())),
    }
}

/// A list is sent whole, and an entry with a `<set>` in it stands for one that was shown.
fn list(held: &[Value], sent: &[Value], place: &Place<'_>, path: &str) -> Result<Vec<Value>, Untold> {
    let mut entries = Vec::new();
    let same = sent.iter().any(holds_set).then(|| Same::of(held, sent, place));
    for (index, entry) in sent.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let before = match &same {
            Some(same) if holds_set(entry) => match same.entry(index) {
                Some(at) => held.get(at),
                None => return Err(Why::Ambiguous.at(&path)),
            },
            _ => None,
        };
        entries.extend(taken(before, entry, &place.entry(index), &path)?);
    }
    Ok(entries)
}

/// Which of the held entries those with a `<set>` in a sent list are.
struct Same {
    /// Each entry as it was shown, and the places that show it.
    shown: HashMap<String, Vec<usize>>,
    /// Each entry as it was sent, and how often.
    claims: HashMap<String, usize>,
    /// What was sent, in order, and whether it is nothing but text.
    sent: Vec<(String, bool)>,
    /// Places where another entry was sent than was shown, credentials aside.
    changed: Vec<usize>,
    /// Whether as many entries were sent as are held, and whether fewer.
    count: std::cmp::Ordering,
}

impl Same {
    fn of(held: &[Value], sent: &[Value], place: &Place<'_>) -> Self {
        let seen: Vec<Value> =
            held.iter().enumerate().map(|(index, value)| shown_at(value, &place.entry(index))).collect();
        let is_changed = |index: &usize| {
            let place = place.entry(*index);
            plain(&without_credentials(&sent[*index], &place))
                != plain(&without_credentials(&seen[*index], &place))
        };
        let changed = (0..seen.len().min(sent.len())).filter(is_changed).collect();
        let (mut shown, mut claims) = (HashMap::<_, Vec<_>>::new(), HashMap::new());
        for (index, entry) in seen.iter().enumerate() {
            shown.entry(plain(entry)).or_default().push(index);
        }
        let count = sent.len().cmp(&held.len());
        let sent: Vec<_> = sent.iter().map(|entry| (plain(entry), entry.is_string())).collect();
        for (entry, _) in &sent {
            *claims.entry(entry.clone()).or_default() += 1;
        }
        Self { shown, claims, sent, changed, count }
    }

    /// The held entry that is sent at `index`; nothing where that is ambiguous. It is the one that was shown so. Of
    /// several shown alike each has to be in its place. One that was changed is the one in its place, where no other
    /// was changed, moved, added or removed.
    fn entry(&self, index: usize) -> Option<usize> {
        let (entry, is_text) = self.sent.get(index)?;
        let in_place = |at: &usize| self.sent.get(*at).is_some_and(|(sent, _)| sent == entry);
        match self.shown.get(entry).map(Vec::as_slice) {
            Some([only]) => (self.claims.get(entry) == Some(&1)).then_some(*only),
            // Values that are nothing but a credential have only their place.
            Some(alike) if *is_text => (self.count.is_ge() && alike.contains(&index)).then_some(index),
            Some(alike) => (alike.contains(&index) && alike.iter().all(in_place)).then_some(index),
            None => (self.count.is_eq() && self.changed.iter().all(|at| *at == index)).then_some(index),
        }
    }
}

/// A value as text, the same however its keys are ordered, with the name and password of each URL in it hidden.
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

/// What of an entry is no credential: by it an entry whose credential was replaced is known again.
fn without_credentials(value: &Value, place: &Place<'_>) -> Value {
    match (value, place) {
        (_, Place::Unknown) => Value::Null,
        (_, Place::Known(nodes)) if nodes.hidden() => Value::Null,
        (Value::Object(fields), place) => fields
            .iter()
            .map(|(key, value)| (key.clone(), without_credentials(value, &place.member(key))))
            .filter(|(_, value)| !value.is_null())
            .collect(),
        (Value::Array(entries), place) => {
            let each = |(index, entry)| without_credentials(entry, &place.entry(index));
            entries.iter().enumerate().map(each).collect()
        }
        (value, _) => value.clone(),
    }
}

/// Whether a value holds a text or a name with a `<set>`.
pub fn holds_set(value: &Value) -> bool {
    match value {
        Value::String(text) => is_stand_in(text),
        Value::Array(entries) => entries.iter().any(holds_set),
        Value::Object(fields) => fields.iter().any(|(key, value)| is_stand_in(key) || holds_set(value)),
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
            Value::Object(shown(&options(), Known::Schema(Some(&schema)))),
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
        assert_eq!(shown(&options(), Known::Schema(None)), options());
        assert_eq!(shown(&options(), Known::Schema(Some(&json!({})))), options());
        let hidden = shown(&options(), Known::Nothing);
        assert_eq!(hidden.keys().collect::<Vec<_>>(), options().keys().collect::<Vec<_>>());
        assert!(hidden.values().all(|value| value == "<set>"), "{hidden:?}");
        let all = json!({ "writeOnly": true });
        assert!(shown(&options(), Known::Schema(Some(&all))).values().all(|value| value == "<set>"));
    }

    #[test]
    fn a_reference_is_shown_as_written_and_what_is_none_is_not() {
        let schema = json!({ "properties": { "key": { "writeOnly": true } } });
        let seen = |value: Value| {
            shown(&object(json!({ "key": value })), Known::Schema(Some(&schema)))["key"].clone()
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
        let known = Known::Schema(Some(&schema));
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
            assert_eq!(after(sent), Err(Why::Ambiguous.at(path)));
        }
        for (sent, path, why) in [
            (json!({ "absent": "<set>" }), ".absent", Why::Nothing),
            (json!({ "env": { "C": "<set>" } }), ".env.C", Why::Nothing),
            (json!({ "absent": { "deep": ["<set>"] } }), ".absent.deep[0]", Why::Ambiguous),
            (json!({ "keys": [["<set>"]] }), ".keys[0]", Why::Ambiguous),
            (json!({ "url": "<set>" }), ".url", Why::Another),
            (json!({ "token": "https://<set>@h/" }), ".token", Why::Another),
            (json!({ "token": "Bearer <set>" }), ".token", Why::Another),
            (json!({ "new": { "$secret": "<set>" } }), ".new", Why::Another),
            (json!({ "new": { "<set>": 1 } }), ".new.<set>", Why::Another),
        ] {
            assert_eq!(after(sent), Err(why.at(path)));
        }
    }

    /// Entries that moved and changed never get each other's credential.
    #[test]
    fn an_entry_that_moved_and_changed_is_ambiguous() {
        let schema = schema();
        let known = Known::Schema(Some(&schema));
        let entry = |name: &str| json!({ "name": name, "token": "<set>" });
        let after = |sent: &[Value]| {
            let after = patched(&options(), &object(json!({ "servers": sent })), known);
            after.map(|after| after["servers"].clone())
        };
        let held = |name: &str, token: &str| json!({ "name": name, "token": token });
        for (sent, kept) in [
            (vec![entry("two"), entry("one")], vec![held("two", "t2"), held("one", "t1")]),
            (vec![entry("one"), entry("second")], vec![held("one", "t1"), held("second", "t2")]),
            (vec![entry("first"), held("two", "new")], vec![held("first", "t1"), held("two", "new")]),
            (vec![held("three", "t3"), entry("one")], vec![held("three", "t3"), held("one", "t1")]),
            (vec![json!({ "token": "<set>", "name": "two" })], vec![held("two", "t2")]),
        ] {
            assert_eq!(after(&sent), Ok(json!(kept)), "{sent:?}");
        }
        for (sent, path) in [
            (vec![entry("second"), entry("one")], ".servers[0]"),
            (vec![entry("two"), entry("first")], ".servers[1]"),
            (vec![entry("first"), entry("second")], ".servers[0]"),
            (vec![entry("first"), held("three", "t3")], ".servers[0]"),
            (vec![entry("one"), entry("one")], ".servers[0]"),
            (vec![entry("one"), entry("two"), entry("three")], ".servers[2]"),
            (vec![entry("first"), entry("two"), held("three", "t3")], ".servers[0]"),
        ] {
            assert_eq!(after(&sent), Err(Why::Ambiguous.at(path)), "{sent:?}");
        }
        let alike = object(json!({ "servers": [held("a", "1"), held("a", "2"), held("b", "3")] }));
        let after = |sent: &[Value]| patched(&alike, &object(json!({ "servers": sent })), known);
        assert_eq!(after(&[entry("a"), entry("a"), entry("b")]), Ok(alike.clone()));
        assert!(after(&[entry("a"), entry("b"), held("c", "new")]).is_err(), "which of the two was removed?");
    }

    #[test]
    fn an_entry_with_a_password_in_a_url_keeps_its_own() {
        let held = object(json!({ "list": [{ "url": "https://u:one@a/" }, { "url": "https://u:two@b/" }] }));
        let sent = object(json!({ "list": [{ "url": "https://<set>@b/" }, { "url": "https://<set>@a/" }] }));
        let kept = patched(&held, &sent, Known::Schema(None)).unwrap();
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

    /// Options as a client is shown them.
    fn seen(options: &JsonObject, known: Known<'_>) -> JsonObject {
        object(without_userinfo(Value::Object(shown(options, known))))
    }

    proptest! {
        #[test]
        fn a_marked_value_is_never_shown_and_comes_back_as_it_was(held in members()) {
            let (options, schema) = held;
            let known = Known::Schema(Some(&schema));
            let seen = seen(&options, known);
            prop_assert!(!Value::Object(seen.clone()).to_string().contains("SECRET-"), "{seen:?}");
            prop_assert_eq!(patched(&options, &seen, known), Ok(options.clone()));
            prop_assert_eq!(patched(&options, &shown(&options, Known::Nothing), Known::Nothing), Ok(options));
        }

        /// Whatever is sent, also what is shown of other options, no `<set>` is ever written.
        #[test]
        fn nothing_shown_is_ever_written(held in members(), other in members(), unknown: bool) {
            let ((options, schema), (others, elsewhere)) = (held, other);
            let known = if unknown { Known::Nothing } else { Known::Schema(Some(&schema)) };
            let sent = [
                seen(&options, known),
                seen(&others, Known::Schema(Some(&elsewhere))),
                seen(&others, Known::Schema(None)),
                seen(&others, known),
                shown(&others, Known::Nothing),
            ];
            prop_assert_eq!(patched(&options, &sent[0], known), Ok(options.clone()));
            for sent in &sent {
                if let Ok(after) = patched(&options, sent, known) {
                    prop_assert!(!holds_set(&Value::Object(after.clone())), "{sent:?}: {after:?}");
                }
                for (key, sent) in sent {
                    if let Ok(Some(after)) = replaced(&options, std::slice::from_ref(key), sent, known) {
                        prop_assert!(!holds_set(&after), "{key} {sent}: {after}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_url_sent_back_as_it_was_shown_keeps_its_password() {
        let held = json!({ "url": "https://u:pw@h/x", "list": ["https://u:pw@a/", "b"] });
        let sent = json!({ "url": "https://<set>@h/x", "list": ["b", "https://<set>@a/"] });
        let kept =
            patched(held.as_object().unwrap(), sent.as_object().unwrap(), Known::Schema(None)).unwrap();
        assert_eq!(
            Value::Object(kept),
            json!({ "url": "https://u:pw@h/x", "list": ["b", "https://u:pw@a/"] })
        );
    }

    /// A URL is taken back as it was shown or not at all.
    #[test]
    fn another_url_without_its_password_is_rejected() {
        let held = object(json!({
            "url": "https://u:pw@h/x", "plain": "https://h/", "list": ["https://u:p1@a/", "https://u:p2@b/"],
            "text": "from https://u:p3@a/ to https://u:p4@b/"
        }));
        let known = Known::Schema(None);
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
            let untold = patched(&held, &object(sent.clone()), known).unwrap_err();
            assert_eq!(untold.path, path, "{sent}");
            let (key, value) = sent.as_object().unwrap().iter().next().unwrap();
            assert!(replaced(&held, std::slice::from_ref(key), value, known).is_err(), "{sent}");
        }
        let same =
            json!({ "text": "from https://<set>@a/ to https://<set>@b/", "list": ["https://<set>@b/"] });
        let kept = patched(&held, same.as_object().unwrap(), known).unwrap();
        assert_eq!((&kept["text"], &kept["list"]), (&held["text"], &json!(["https://u:p2@b/"])));
    }

    #[test]
    fn what_is_set_takes_the_place_of_what_was_but_for_credentials() {
        let schema = json!({ "properties": { "env": { "additionalProperties": { "writeOnly": true } } } });
        let held = json!({ "env": { "A": "a", "B": "b" } });
        let at = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
        let set = |keys: &[&str], value: Value| {
            replaced(held.as_object().unwrap(), &at(keys), &value, Known::Schema(Some(&schema))).unwrap()
        };
        assert_eq!(set(&["env", "A"], json!("<set>")), Some(json!("a")));
        assert_eq!(set(&["env", "A"], json!("new")), Some(json!("new")));
        assert_eq!(set(&["env"], json!({ "A": "<set>", "C": "c" })), Some(json!({ "A": "a", "C": "c" })));
        assert_eq!(set(&["env"], Value::Null), None);
        let untold =
            replaced(held.as_object().unwrap(), &at(&["none", "deep"]), &json!("<set>"), Known::Nothing);
        assert_eq!(untold, Err(Why::Nothing.at(".none.deep")));
    }
}
