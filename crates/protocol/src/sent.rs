//! JSON as its sender wrote it. [`Value`] has no room for every JSON number: an integer beyond 64 bits or `1.10` loses its
//! digits, and `1E400` is an error. What a value does not keep is read beside it, so that the text and the keys made of a
//! value distinguish what the sender distinguished, and comparisons are exact.

use serde::de::DeserializeOwned;
use serde_json::{Map, Number, Value};

use crate::JsonObject;
use crate::decimal::Decimal;
use crate::surrogates::{distinct, read_json};

/// Stands for a number beyond the range of floats; it has its length, followed by spaces.
const LARGE: &str = "1e308";

/// The memory of a field beside its key and value, in bytes.
const FIELD: usize = 64;

/// The parts of a JSON text that its value does not keep: for a number whose digits differ, the digits; for text with lone
/// surrogates, a text that tells them apart ([`distinct`]). They have the places of the values: by field of objects, by
/// position in lists. `Null` where the value has everything.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Literals(Value);

impl Literals {
    /// Returns whether the value keeps everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_null()
    }

    /// Returns the form in which they are stored.
    pub fn into_value(self) -> Value {
        self.0
    }

    /// Reads the stored form.
    pub fn from_value(value: Value) -> Self {
        Self(value)
    }

    /// Returns those of a field; `None` for a value that keeps everything.
    pub fn field(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    /// Sets those of a field that replaces any other of the same name.
    pub fn set_field(&mut self, key: &str, literal: Self) {
        if let (Value::Object(fields), true) = (&mut self.0, literal.is_empty()) {
            // The order has no meaning, and a text can repeat its names often.
            fields.swap_remove(key);
            if fields.is_empty() {
                self.0 = Value::Null;
            }
        }
        if !literal.is_empty() {
            if self.0.is_null() {
                self.0 = Value::Object(Map::new());
            }
            if let Value::Object(fields) = &mut self.0 {
                fields.insert(key.to_owned(), literal.0);
            }
        }
    }
}

/// Reads JSON, and what the value does not keep of its text. Text beyond what [`Value`] can contain is no error.
///
/// # Errors
/// Text that is not JSON, or does not fit.
pub fn read_sent<T: DeserializeOwned>(text: &[u8]) -> Result<(T, Literals), serde_json::Error> {
    let scanned = Scanned::of(text);
    let Some(scanned) = scanned else { return Ok((read_json(text)?, Literals::default())) };
    let value = match scanned.too_large.is_empty() {
        true => read_json(text)?,
        false => read_json(&scanned.in_range(text))?,
    };
    let mut reader = Reader { text, at: 0 };
    Ok((value, Literals(reader.value())))
}

/// Returns whether a text has anything that its value does not keep.
pub fn has_literals(text: &[u8]) -> bool {
    Scanned::of(text).is_some()
}

/// A JSON object as its sender wrote it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SentObject {
    /// Its fields.
    pub fields: JsonObject,
    /// What the fields do not keep.
    pub literals: Literals,
}

impl SentObject {
    /// Reads the text of an object.
    ///
    /// # Errors
    /// Text that is not a JSON object.
    pub fn read(text: &[u8]) -> Result<Self, serde_json::Error> {
        let (fields, literals) = read_sent(text)?;
        Ok(Self { fields, literals })
    }

    /// Sets a field.
    pub fn insert(&mut self, key: &str, value: Value) {
        self.literals.set_field(key, Literals::default());
        self.fields.insert(key.to_owned(), value);
    }

    /// Returns the fields with their literals.
    pub fn as_sent(&self) -> SentFields<'_> {
        SentFields { fields: &self.fields, literals: Some(&self.literals.0) }
    }
}

impl From<JsonObject> for SentObject {
    fn from(fields: JsonObject) -> Self {
        Self { fields, literals: Literals::default() }
    }
}

/// The fields of an object as its sender wrote them.
#[derive(Debug, Clone, Copy)]
pub struct SentFields<'a> {
    fields: &'a JsonObject,
    literals: Option<&'a Value>,
}

impl<'a> SentFields<'a> {
    /// Combines fields with their stored literals.
    pub fn new(fields: &'a JsonObject, literals: Option<&'a Value>) -> Self {
        Self { fields, literals }
    }

    /// Returns the memory of the literals, in bytes.
    pub fn literals_size(self) -> usize {
        self.literals.map_or(0, size_of_literals)
    }

    /// Returns the fields alone.
    pub fn fields(self) -> &'a JsonObject {
        self.fields
    }

    /// Returns the value of a field.
    pub fn get(self, key: &str) -> Option<SentValue<'a>> {
        let literal = self.literals.and_then(|literals| literals.get(key));
        Some(SentValue { value: self.fields.get(key)?, literal })
    }

    /// Returns the JSON text, with the digits of the sender.
    pub fn json(self) -> String {
        let mut text = String::new();
        self.write_json(&mut text);
        text
    }

    fn write_json(self, to: &mut String) {
        to.push('{');
        for (at, (key, value)) in self.iter().enumerate() {
            to.push_str(if at > 0 { "," } else { "" });
            to.push_str(&Value::from(key).to_string());
            to.push(':');
            value.write_json(to);
        }
        to.push('}');
    }

    /// Returns all fields.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, SentValue<'a>)> {
        self.fields.iter().map(move |(key, value)| {
            (key.as_str(), SentValue { value, literal: self.literals.and_then(|literals| literals.get(key)) })
        })
    }
}

fn size_of_literals(literals: &Value) -> usize {
    size_of::<Value>()
        + match literals {
            Value::String(text) => text.len(),
            Value::Array(entries) => entries.iter().map(size_of_literals).sum(),
            Value::Object(fields) => {
                fields.iter().map(|(key, literal)| key.len() + FIELD + size_of_literals(literal)).sum()
            }
            _ => 0,
        }
}

/// A value as its sender wrote it.
#[derive(Debug, Clone, Copy)]
pub struct SentValue<'a> {
    value: &'a Value,
    literal: Option<&'a Value>,
}

impl<'a> SentValue<'a> {
    /// Combines a value with its literals.
    pub fn new(value: &'a Value, literal: Option<&'a Value>) -> Self {
        Self { value, literal }
    }

    /// Returns the value alone.
    pub fn value(self) -> &'a Value {
        self.value
    }

    /// Returns what the value itself does not keep, if it is a number or text.
    pub fn literal(self) -> Option<&'a str> {
        self.literal?.as_str()
    }

    /// Returns the fields of an object.
    pub fn fields(self) -> Option<SentFields<'a>> {
        Some(SentFields { fields: self.value.as_object()?, literals: self.literal })
    }

    /// Returns the entries of a list.
    pub fn entries(self) -> Option<impl Iterator<Item = SentValue<'a>>> {
        let entries = self.value.as_array()?.iter().enumerate();
        Some(entries.map(move |(at, value)| SentValue {
            value,
            literal: self.literal.and_then(|literals| literals.get(at)),
        }))
    }

    /// Returns an entry of a list.
    pub fn entry(self, at: usize) -> Option<SentValue<'a>> {
        let value = self.value.as_array()?.get(at)?;
        Some(SentValue { value, literal: self.literal.and_then(|literals| literals.get(at)) })
    }

    /// Returns the exact value of a number.
    pub fn decimal(self) -> Option<Decimal> {
        let Value::Number(number) = self.value else { return None };
        match self.literal() {
            Some(digits) => Decimal::parse(digits),
            None => Decimal::parse(&number.to_string()),
        }
    }

    /// Returns text as it is, and other values as JSON with the digits of the sender.
    pub fn text(self) -> String {
        match self.value {
            Value::String(text) => text.clone(),
            _ => {
                let mut text = String::new();
                self.write_json(&mut text);
                text
            }
        }
    }

    fn write_json(self, to: &mut String) {
        match (self.value, self.literal) {
            (Value::Number(_), Some(Value::String(digits))) => to.push_str(digits),
            (Value::Array(_), Some(Value::Array(_))) => {
                to.push('[');
                for (at, entry) in self.entries().into_iter().flatten().enumerate() {
                    to.push_str(if at > 0 { "," } else { "" });
                    entry.write_json(to);
                }
                to.push(']');
            }
            (Value::Object(fields), literals @ Some(Value::Object(_))) => {
                SentFields { fields, literals }.write_json(to);
            }
            (value, _) => to.push_str(&value.to_string()),
        }
    }

    /// Returns a text that is the same for values that are equal as JSON, and for no others: numbers count by value.
    /// `None` for null, lists and objects.
    pub fn key(self) -> Option<String> {
        match self.value {
            Value::Bool(_) => Some(self.value.to_string()),
            Value::Number(_) => self.decimal().map(|number| number.to_string()),
            Value::String(text) => Some(match self.literal() {
                Some(distinct) => format!("surrogates:{}", Value::from(distinct)),
                None => Value::from(text.as_str()).to_string(),
            }),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }
}

/// What a text has that its value does not keep.
struct Scanned {
    /// The places of the numbers beyond the range of floats.
    too_large: Vec<(usize, usize)>,
}

impl Scanned {
    /// Looks through a text, which can be something else than JSON; `None` if its value keeps everything.
    fn of(text: &[u8]) -> Option<Self> {
        let (mut at, mut found, mut too_large) = (0, false, Vec::new());
        while let Some(byte) = text.get(at) {
            match byte {
                b'"' => {
                    let end = string_end(text, at);
                    found = found || distinct(&text[at..end]).is_some();
                    at = end;
                }
                b'-' | b'0'..=b'9' => {
                    let end = number_end(text, at);
                    match kept(&text[at..end]) {
                        Kept::Yes => {}
                        Kept::No => found = true,
                        Kept::TooLarge => too_large.push((at, end)),
                    }
                    at = end;
                }
                _ => at += 1,
            }
        }
        (found || !too_large.is_empty()).then_some(Self { too_large })
    }

    /// Returns the text with numbers that a float can be, at the same places.
    fn in_range(&self, text: &[u8]) -> Vec<u8> {
        let mut text = text.to_vec();
        for (begin, end) in &self.too_large {
            let begin = begin + usize::from(text[*begin] == b'-');
            let replaced = LARGE.bytes().chain(std::iter::repeat(b' '));
            text[begin..*end].iter_mut().zip(replaced).for_each(|(byte, replaced)| *byte = replaced);
        }
        text
    }
}

/// Returns the end of the string that begins at a quotation mark.
fn string_end(text: &[u8], begin: usize) -> usize {
    let mut at = begin + 1;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

fn number_end(text: &[u8], begin: usize) -> usize {
    let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
    begin + text[begin..].iter().take_while(|byte| is_part(byte)).count()
}

/// Whether a value keeps the digits of a number.
enum Kept {
    Yes,
    No,
    /// It is beyond the range of floats.
    TooLarge,
}

fn kept(number: &[u8]) -> Kept {
    // Nearly every number is a short integer.
    if number.len() <= 18 && number[0] != b'-' && number.iter().all(u8::is_ascii_digit) {
        return Kept::Yes;
    }
    let Ok(text) = std::str::from_utf8(number) else { return Kept::Yes };
    match serde_json::from_str::<Number>(text) {
        Ok(number) if number.to_string() == text => Kept::Yes,
        Ok(_) => Kept::No,
        Err(_) if Decimal::parse(text).is_some() => Kept::TooLarge,
        // It is not JSON.
        Err(_) => Kept::Yes,
    }
}

/// Reads the literals of a text that is known to be JSON.
struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn peek(&mut self) -> Option<u8> {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn string(&mut self) -> &[u8] {
        let begin = self.at;
        self.at = string_end(self.text, begin);
        &self.text[begin..self.at]
    }

    fn value(&mut self) -> Value {
        match self.peek() {
            Some(b'{') => self.object(),
            Some(b'[') => self.list(),
            Some(b'"') => distinct(self.string()).map_or(Value::Null, Value::String),
            Some(b'-' | b'0'..=b'9') => {
                let begin = self.at;
                self.at = number_end(self.text, begin);
                let number = &self.text[begin..self.at];
                match kept(number) {
                    Kept::Yes => Value::Null,
                    Kept::No | Kept::TooLarge => String::from_utf8_lossy(number).into(),
                }
            }
            _ => {
                let is_word = |byte: &u8| byte.is_ascii_alphabetic();
                self.at +=
                    self.text[self.at.min(self.text.len())..].iter().take_while(|byte| is_word(byte)).count();
                Value::Null
            }
        }
    }

    fn object(&mut self) -> Value {
        self.at += 1;
        let mut literals = Literals::default();
        while self.peek() == Some(b'"') {
            let key: Option<String> = read_json(self.string()).ok();
            // The colon.
            self.peek();
            self.at += 1;
            let literal = Literals(self.value());
            if let Some(key) = key {
                literals.set_field(&key, literal);
            }
            if self.peek() == Some(b',') {
                self.at += 1;
            }
        }
        self.at += 1;
        literals.0
    }

    fn list(&mut self) -> Value {
        self.at += 1;
        let (mut entries, mut used) = (Vec::new(), 0);
        while !matches!(self.peek(), None | Some(b']')) {
            let literal = self.value();
            let has_literal = !literal.is_null();
            entries.push(literal);
            if has_literal {
                used = entries.len();
            }
            if self.peek() == Some(b',') {
                self.at += 1;
            }
        }
        self.at += 1;
        entries.truncate(used);
        match used {
            0 => Value::Null,
            _ => Value::Array(entries),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn sent(text: &str) -> SentObject {
        SentObject::read(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn what_a_value_keeps_has_no_literals() {
        for text in [
            r#"{"a":1,"b":[-1,0.5,1000.0,true,null],"c":{"d":"x","e":"\ud83d\ude00"},"f":1.5e-7}"#,
            r#"{"id":18446744073709551615,"n":-9223372036854775808,"x":"1e3 \\ud800","y":[]}"#,
            "{}",
        ] {
            assert_eq!(sent(text).literals, Literals::default(), "{text}");
            assert!(!has_literals(text.as_bytes()));
        }
    }

    #[test]
    fn digits_are_those_of_the_sender() {
        let text = r#" { "id" : 12345678901234567890123, "n":1e3, "z":[0, 1.10, {"deep":[[],-0, 1E400]}], "s":"plain",
            "large":-2e308,"u":"\uD800" , "again":1.10, "again":1 }"#;
        let read = sent(text);
        assert_eq!(read.fields["id"], json!(1.2345678901234568e22));
        assert_eq!((&read.fields["large"], &read.fields["z"][2]["deep"][2]), (&json!(-1e308), &json!(1e308)));
        let expected = json!({
            "id": "12345678901234567890123", "n": "1e3", "z": [null, "1.10", { "deep": [null, "-0", "1E400"] }],
            "large": "-2e308", "u": "\u{fffd}d800",
        });
        assert_eq!(read.literals, Literals(expected));
        let of = |key: &str| read.as_sent().get(key).unwrap().text();
        assert_eq!(of("id"), "12345678901234567890123");
        assert_eq!(of("z"), r#"[0,1.10,{"deep":[[],-0,1E400]}]"#);
        assert_eq!(
            (of("s"), of("u"), of("again")),
            ("plain".to_owned(), "\u{fffd}".to_owned(), "1".to_owned())
        );
    }

    #[test]
    fn a_value_alone_is_read_as_well() {
        let of = |text: &str| {
            let (value, literals): (Value, _) = read_sent(text.as_bytes()).unwrap();
            SentValue::new(&value, Some(&literals.0)).text()
        };
        for text in ["1.10", "1E400", "[1e3,{\"a\":0.10}]", "true", "null"] {
            assert_eq!(of(text), text);
        }
        for text in ["1.", "1E", "01", "--1", "[1e3", "{\"a\":1E400", "1e400x", ""] {
            assert!(read_sent::<Value>(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn keys_are_equal_for_equal_values_only() {
        let key = |text: &str| {
            let read = sent(&format!("{{\"k\":{text}}}"));
            read.as_sent().get("k").unwrap().key()
        };
        for equal in [
            &["1", "1.0", "1e0", "10E-1"][..],
            &["12345678901234567890123", "12345678901234567890123.00", "1.2345678901234567890123e22"],
            &["0.1", "1e-1", "0.10"],
            &["9007199254740993", "9007199254740993.0"],
            &["\"\\ud800\"", "\"\\uD800\""],
            &["\"a\"", "\"\\u0061\""],
        ] {
            assert!(equal.iter().all(|text| key(text) == key(equal[0])), "{equal:?}");
        }
        let different = [
            "1",
            "\"1\"",
            "true",
            "\"true\"",
            "12345678901234567890123",
            "12345678901234567890124",
            "9007199254740992",
            "9007199254740993",
            "1E400",
            "1E401",
            "-1E400",
            "1.00000000000000000001",
            "\"\\ud800\"",
            "\"\\ud801\"",
            "\"\\udc00\"",
            "\"\\ufffd\"",
            "\"\\ufffdd800\"",
        ];
        for (at, one) in different.iter().enumerate() {
            let keys = different.iter().map(|other| key(other));
            assert_eq!(
                keys.enumerate().find(|(_, other)| *other == key(one)).map(|(at, _)| at),
                Some(at),
                "{one}"
            );
        }
        for none in ["null", "[1]", "{\"a\":1}"] {
            assert_eq!(key(none), None);
        }
    }

    fn number() -> impl Strategy<Value = String> {
        "-?(0|[1-9][0-9]{0,24})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,4})?"
    }

    fn json_text() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            number(),
            Just("null".to_owned()),
            Just("true".to_owned()),
            Just("\"\\ud800x\"".to_owned()),
            Just("\"a\\\"1.10\"".to_owned()),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(|list| format!("[{}]", list.join(","))),
                prop::collection::btree_map("[ab]", inner, 0..3).prop_map(|fields| {
                    let fields: Vec<String> =
                        fields.into_iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
                    format!("{{{}}}", fields.join(","))
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_text_keeps_the_digits_of_its_numbers(text in json_text()) {
            let (value, literals): (Value, _) = read_sent(text.as_bytes()).unwrap();
            let written = match &value {
                Value::String(_) => value.to_string(),
                _ => SentValue::new(&value, Some(&literals.0)).text(),
            };
            prop_assert_eq!(written, text.replace("\\ud800", "\u{fffd}"));
            prop_assert_eq!(has_literals(text.as_bytes()), !literals.is_empty());
        }

        #[test]
        fn nothing_panics(text in proptest::collection::vec(any::<u8>(), 0..60), json in json_text(), at in 0..40_usize) {
            let _ = read_sent::<Value>(&text);
            let mut cut = json.into_bytes();
            cut.truncate(at);
            let _ = read_sent::<Value>(&cut);
            cut.extend(text);
            let _ = read_sent::<JsonObject>(&cut);
        }
    }
}
