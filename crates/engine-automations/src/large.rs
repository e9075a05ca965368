//! Events with much data: only the fields that an automation reads are parsed.

use std::borrow::Cow;
use std::fmt;

use ostler_contract::budget::VALUE;
use ostler_contract::{Value, json};
use ostler_protocol::event_path::{self, Within};
use ostler_protocol::sent::{Literals, SentObject, read_sent};
use ostler_protocol::surrogates::well_formed;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// The longest text of a value that is parsed.
pub(super) const LONGEST: usize = 1024 * 1024;
/// The longest text of an unread field that is stored.
const SHORT: usize = 4 * 1024;
/// The limit for all stored fields that nothing reads.
const UNREAD: usize = 64 * 1024;

/// The parsed fields of an event's data.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Selected {
    pub fields: SentObject,
    /// Names of fields that are too long to be parsed.
    pub too_long: Vec<String>,
}

/// Why a text has no fields.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    NotJson,
    NotAnObject,
}

impl Unreadable {
    pub fn text(&self) -> &'static str {
        match self {
            Self::NotJson => "not JSON",
            Self::NotAnObject => "not a JSON object",
        }
    }
}

/// Returns the fields at these [paths](ostler_protocol::event_path) and the short fields.
pub(super) fn select(text: &[u8], names: &[&str]) -> Result<Selected, Unreadable> {
    if std::str::from_utf8(text).is_err() {
        return Err(Unreadable::NotJson);
    }
    match select_in(text, names) {
        Err(Unreadable::NotJson) => match well_formed(text) {
            Some(text) => select_in(&text, names),
            None => Err(Unreadable::NotJson),
        },
        selected => selected,
    }
}

fn select_in(text: &[u8], names: &[&str]) -> Result<Selected, Unreadable> {
    let mut selected = Selected::default();
    let mut unread = UNREAD;
    let read = Select { names, unread: &mut unread, too_long: &mut selected.too_long };
    let mut reader = serde_json::Deserializer::from_slice(text);
    let fields = read.deserialize(&mut reader).and_then(|fields| reader.end().map(|()| fields));
    match fields {
        Ok(fields) => {
            selected.fields = fields;
            Ok(selected)
        }
        Err(error) if error.is_data() && serde_json::from_slice::<IgnoredAny>(text).is_ok() => {
            Err(Unreadable::NotAnObject)
        }
        Err(_) => Err(Unreadable::NotJson),
    }
}

struct Select<'a> {
    names: &'a [&'a str],
    /// How much more of the unread fields may be stored.
    unread: &'a mut usize,
    too_long: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Select<'_> {
    type Value = SentObject;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<SentObject, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Select<'_> {
    type Value = SentObject;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<SentObject, A::Error> {
        let mut read = SentObject::default();
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            let raw: &RawValue = map.next_value()?;
            let value = self.value(&key, raw.get());
            // With duplicate names, the last field counts.
            let (value, literals) = value.map_or_else(Default::default, |(value, read)| (Some(value), read));
            read.literals.set_field(&key, literals);
            match value {
                Some(value) => drop(read.fields.insert(key.into_owned(), value)),
                None => drop(read.fields.remove(&*key)),
            }
        }
        Ok(read)
    }
}

impl<'a> Select<'a> {
    fn value(&mut self, key: &str, text: &str) -> Option<(Value, Literals)> {
        let weight = || text.len() + VALUE * ostler_protocol::message::count_values(text.as_bytes());
        if self.names.iter().any(|name| event_path::within(name, key) == Some(Within::Here)) {
            if text.len() <= LONGEST && weight() <= 16 * LONGEST {
                return read_sent(text.as_bytes()).ok();
            }
            self.too_long.push(key.to_owned());
            return None;
        }
        let below = |name: &&'a str| match event_path::within(name, key)? {
            Within::Below(path) => Some(path),
            Within::Here => None,
        };
        let inside: Vec<&str> = self.names.iter().filter_map(below).collect();
        if !inside.is_empty() && text.starts_with('{') {
            let within = Select { names: &inside, unread: self.unread, too_long: self.too_long };
            let mut reader = serde_json::Deserializer::from_str(text);
            let read = within.deserialize(&mut reader).ok()?;
            return Some((Value::Object(read.fields), read.literals));
        }
        let last = inside.iter().filter_map(|path| event_path::first_index(path)).max();
        if let Some(last) = last
            && text.starts_with('[')
        {
            let within = Select { names: &inside, unread: self.unread, too_long: self.too_long };
            let mut reader = serde_json::Deserializer::from_str(text);
            return SelectEntries { within, last }.deserialize(&mut reader).ok();
        }
        if text.len() <= SHORT
            && let Some(left) = self.unread.checked_sub(key.len() + weight())
        {
            *self.unread = left;
            return read_sent(text.as_bytes()).ok();
        }
        // A name inside of it, which is not there, must not be found in the mark.
        let omitted = if inside.is_empty() { self.omitted(key, text.len()) } else { None };
        Some((omitted?, Literals::default()))
    }

    /// The mark of an unread field that is not stored, as long as there is room for marks.
    fn omitted(&mut self, key: &str, bytes: usize) -> Option<Value> {
        *self.unread = self.unread.checked_sub(key.len() + 3 * VALUE)?;
        Some(json!({ "omitted": bytes }))
    }
}

/// Reads the entries of a list up to the last one that is read. What is not read of them is null.
struct SelectEntries<'a> {
    within: Select<'a>,
    last: usize,
}

impl<'de> DeserializeSeed<'de> for SelectEntries<'_> {
    type Value = (Value, Literals);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for SelectEntries<'_> {
    type Value = (Value, Literals);

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<Self::Value, A::Error> {
        let (mut entries, mut literals) = (Vec::new(), Vec::new());
        while entries.len() <= self.last {
            let Some(raw) = seq.next_element::<&RawValue>()? else { break };
            let read = self.within.value(&entries.len().to_string(), raw.get());
            let (value, literal) = read.unwrap_or_default();
            entries.push(value);
            literals.push(literal.into_value());
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        let literals = match literals.iter().all(Value::is_null) {
            true => Literals::default(),
            false => Literals::from_value(literals.into()),
        };
        Ok((entries.into(), literals))
    }
}

#[cfg(test)]
mod tests {
    use ostler_protocol::event_path::find;
    use ostler_protocol::json;

    use super::*;

    fn selected(text: &str, names: &[&str]) -> Value {
        Value::Object(select(text.as_bytes(), names).unwrap().fields.fields)
    }

    #[test]
    fn what_is_read_and_what_is_short_is_there() {
        let long = "x".repeat(5000);
        let text = json!({
            "a": { "b": { "c": [1, { "d": long }], "long": long }, "n": 1, "long": long },
            "a.b": long, "list": [long], "short": { "k": [true] }, "é": 1
        })
        .to_string();
        let (string, list) = (json!({ "omitted": 5002 }), json!({ "omitted": 5004 }));
        let object = json!({ "omitted": json!({ "b": { "c": [1, { "d": long }], "long": long }, "n": 1, "long": long }).to_string().len() });
        assert_eq!(
            selected(&text, &[]),
            json!({ "a": object, "a.b": string, "list": list, "short": { "k": [true] }, "é": 1 })
        );
        assert_eq!(
            selected(&text, &["a.b.c", "list"]),
            json!({
                "a": { "b": { "c": [1, { "d": long }], "long": string }, "n": 1, "long": string },
                "a.b": string, "list": [long], "short": { "k": [true] }, "é": 1,
            })
        );
        assert_eq!(selected(&text, &["list.omitted"]).get("list"), None, "a mark is no field");
        assert_eq!(selected(&text, &["a.b"])["a.b"], json!(long), "a field's whole name comes first");
        assert_eq!(selected(r#"{"x":1,"x":2,"\ud800":3}"#, &["x"]), json!({ "x": 2, "\u{fffd}": 3 }));
    }

    #[test]
    fn the_digits_of_the_sender_are_read() {
        let text = br#"{"id":12345678901234567890123,"a":{"b":1E400,"long":[1.10]},"x":1.0e1,"x":2}"#;
        let read = select(text, &["a.b"]).unwrap().fields;
        let of = |name: &str| find(read.as_sent(), name).unwrap().text();
        assert_eq!(
            [of("id"), of("a.b"), of("a.long"), of("x")],
            ["12345678901234567890123", "1E400", "[1.10]", "2"]
        );
    }

    #[test]
    fn entries_of_lists_are_read_up_to_the_last_one_of_a_path() {
        let long = "x".repeat(5000);
        let text =
            json!({ "list": [long, { "id": long, "more": long }, 3, { "x.y": [1.5, long] }, long, long] });
        let omitted = json!({ "omitted": 5002 });
        assert_eq!(
            selected(&text.to_string(), &["list.1.id", "list[3][\"x.y\"][1]"])["list"],
            json!([omitted, { "id": long, "more": omitted }, 3, { "x.y": [1.5, long] }]),
        );
        assert_eq!(selected(&text.to_string(), &["list.9.id"])["list"].as_array().unwrap().len(), 6);
        let digits = format!("{{\"a\":[1.10,\"{long}\",{{\"b\":2.50}}]}}");
        let read = select(digits.as_bytes(), &["a[2].b"]).unwrap().fields;
        assert_eq!(find(read.as_sent(), "a[2].b").unwrap().text(), "2.50");
        let many = format!("{{\"a\":[{}1]}}", "1,".repeat(1_000_000));
        let read = select(many.as_bytes(), &["a.9999"]).unwrap().fields.fields;
        assert_eq!(read["a"].as_array().unwrap().len(), 10_000, "no more than the path needs");
        assert_eq!(read["a"][9999], 1);
    }

    #[test]
    fn what_is_no_object_is_told_apart_from_what_is_no_json() {
        for text in ["[1]", "3", "null", "\"x\""] {
            assert_eq!(select(text.as_bytes(), &[]), Err(Unreadable::NotAnObject), "{text}");
        }
        for text in [&b""[..], b"{", b"[", b"{}x", b"{\"a\":}", b"{\"a\":\"\xff\"}", b"[1]]"] {
            assert_eq!(select(text, &["a"]), Err(Unreadable::NotJson), "{text:?}");
        }
    }

    #[test]
    fn a_value_too_long_is_named_and_unread_values_are_bounded() {
        let long = format!("{{\"x\":\"{}\",\"y\":[{}1]}}", "x".repeat(LONGEST), "{},".repeat(300_000));
        let read = select(long.as_bytes(), &["x", "y"]).unwrap();
        assert_eq!((read.fields.fields.len(), read.too_long), (0, vec!["x".to_owned(), "y".to_owned()]));
        let many: Vec<String> = (0..100_000).map(|at| format!("\"k{at}\":1")).collect();
        let fields = select(format!("{{{}}}", many.join(",")).as_bytes(), &[]).unwrap().fields.fields;
        assert!(!fields.is_empty() && fields.len() < 600, "{}", fields.len());
    }

    proptest::proptest! {
        #[test]
        fn every_name_is_read_as_from_the_whole(
            data in "\\{(\"[ab]{1,2}\":(1|1\\.10|\"x\"|\\{\"[ab]\":[0-9]\\}|\\[1\\]|\\[2,\\{\"[ab]\":1\\.0\\}\\]),){0,4}\"z\":0\\}",
            names in proptest::collection::vec("[ab](\\.[ab01]|\\[[01]\\]|\\[\"[ab]\"\\]){0,2}", 0..4),
        ) {
            let whole = SentObject::read(data.as_bytes()).unwrap();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let fields = select(data.as_bytes(), &names).unwrap().fields;
            for name in names {
                let of = |read: &SentObject| find(read.as_sent(), name).map(|found| (found.value().clone(), found.text()));
                proptest::prop_assert_eq!(of(&fields), of(&whole));
            }
        }

        #[test]
        fn nothing_panics(text in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..60)) {
            let _ = select(&text, &["a.b"]);
        }
    }
}
