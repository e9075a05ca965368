//! The path of one option, `<key>.<key>…`, in flags and commands.

use ostler_contract::{JsonObject, Value};

use super::secrets::is_reference;

/// Why an option cannot be set at a path. The messages never contain values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionPathError {
    /// A part of the path is empty.
    #[error("{0} is not a path of an option: a part of it is empty")]
    Empty(String),
    /// A part is a reserved word of JavaScript.
    #[error("{0} is not a path of an option: {1} is not an allowed key")]
    Reserved(String, String),
    /// A parent is not an object.
    #[error("{0} is not an object, so nothing can be put into it")]
    NotAnObject(String),
    /// A parent is a reference to a secret.
    #[error("{0} names a secret, so nothing can be put into it; set it as a whole")]
    Reference(String),
}

/// Splits a path into its keys.
///
/// # Errors
/// A path with an empty or a reserved part.
pub fn keys(path: &str) -> Result<Vec<String>, OptionPathError> {
    let keys: Vec<String> = path.split('.').map(str::to_owned).collect();
    for key in &keys {
        match key.as_str() {
            "" => return Err(OptionPathError::Empty(path.to_owned())),
            "__proto__" | "constructor" | "prototype" => {
                return Err(OptionPathError::Reserved(path.to_owned(), key.clone()));
            }
            _ => {}
        }
    }
    Ok(keys)
}

/// Sets the value at a path and creates missing parent objects.
///
/// # Errors
/// A parent that cannot contain the value.
pub fn set(options: &mut JsonObject, path: &str, value: Value) -> Result<(), OptionPathError> {
    let keys = keys(path)?;
    let Some((last, way)) = keys.split_last() else { return Ok(()) };
    let mut at = options;
    let mut walked = String::new();
    for key in way {
        walked = if walked.is_empty() { key.clone() } else { format!("{walked}.{key}") };
        let inner = at.entry(key.clone()).or_insert_with(|| Value::Object(JsonObject::new()));
        if is_reference(inner) {
            return Err(OptionPathError::Reference(walked));
        }
        at = inner.as_object_mut().ok_or(OptionPathError::NotAnObject(walked.clone()))?;
    }
    at.insert(last.clone(), value);
    Ok(())
}

/// Removes the value at a path. Returns `false` if there is none.
///
/// # Errors
/// An invalid path.
pub fn unset(options: &mut JsonObject, path: &str) -> Result<bool, OptionPathError> {
    let keys = keys(path)?;
    let Some((last, way)) = keys.split_last() else { return Ok(false) };
    let mut at = options;
    for key in way {
        let Some(inner) = at.get_mut(key).filter(|inner| !is_reference(inner)).and_then(Value::as_object_mut)
        else {
            return Ok(false);
        };
        at = inner;
    }
    Ok(at.shift_remove(last).is_some())
}

/// Parses a typed value: JSON if it is valid JSON, otherwise text. A number that would be printed differently from how
/// it was typed (`1.0`, `007`, `1e3`, an id of twenty digits) stays text.
///
/// # Errors
/// Such a number in an object or a list, where text and number are ambiguous.
pub fn typed(text: &str) -> Result<Value, String> {
    match serde_json::from_str::<Value>(text) {
        Ok(Value::Number(number)) if printed(&number) == text.trim() => Ok(Value::Number(number)),
        Ok(Value::Number(_)) | Err(_) => Ok(Value::String(text.to_owned())),
        Ok(value) => {
            match every_number_is_kept(text, &value) {
                true => Ok(value),
                false => Err("it contains a number that would be stored with other digits; put it in quotes"
                    .to_owned()),
            }
        }
    }
}

/// Formats a number as JavaScript does: without `1.0`, and with integers up to 2^53.
fn printed(number: &serde_json::Number) -> String {
    let Some(value) = number.as_f64() else { return String::new() };
    match value.abs() {
        0.0 => "0".to_owned(),
        1e-6..1e21 => value.to_string(),
        1e21.. => format!("{value:e}").replace('e', "e+"),
        _ => format!("{value:e}"),
    }
}

/// Returns whether the numbers in a JSON text are written as its value would print them.
fn every_number_is_kept(text: &str, value: &Value) -> bool {
    fn numbers(value: &Value, into: &mut Vec<String>) {
        match value {
            Value::Number(number) => into.push(printed(number)),
            Value::Array(entries) => entries.iter().for_each(|entry| numbers(entry, into)),
            Value::Object(fields) => fields.values().for_each(|value| numbers(value, into)),
            _ => {}
        }
    }
    let mut held = Vec::new();
    numbers(value, &mut held);
    let mut typed = Vec::new();
    let mut bytes = text.bytes().enumerate().peekable();
    let mut quoted = false;
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => quoted = !quoted,
            b'\\' if quoted => drop(bytes.next()),
            b'-' | b'0'..=b'9' if !quoted => {
                let mut end = at + 1;
                while let Some((next, _)) =
                    bytes.next_if(|(_, b)| matches!(b, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'))
                {
                    end = next + 1;
                }
                typed.push(text[at..end].to_owned());
            }
            _ => {}
        }
    }
    // A duplicate key occurs only once in the value.
    held.sort_unstable();
    typed.sort_unstable();
    held == typed
}

#[cfg(test)]
mod tests {
    use ostler_contract::json;

    use super::*;

    #[test]
    fn a_value_is_what_was_typed() {
        for (text, value) in [
            ("true", json!(true)),
            ("12", json!(12)),
            ("1.5", json!(1.5)),
            ("1.0", json!("1.0")),
            ("-0", json!("-0")),
            ("0", json!(0)),
            ("-1.25", json!(-1.25)),
            ("1e-7", json!(1e-7)),
            ("1e+21", json!(1e21)),
            ("1e21", json!("1e21")),
            ("9007199254740991", json!(9_007_199_254_740_991_u64)),
            ("9007199254740993", json!("9007199254740993")),
            ("null", json!(null)),
            (r#""12""#, json!("12")),
            ("007", json!("007")),
            ("1e3", json!("1e3")),
            ("12345678901234567890123", json!("12345678901234567890123")),
            ("plain text", json!("plain text")),
            (r#"{"a":[1,"x\"1e3",true]}"#, json!({ "a": [1, "x\"1e3", true] })),
            ("[12, -3.25,45]", json!([12, -3.25, 45])),
            ("", json!("")),
        ] {
            assert_eq!(typed(text), Ok(value), "{text}");
        }
        for text in ["[1e3]", "[1.0]", r#"{"a":12345678901234567890123}"#] {
            assert!(typed(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_place_is_made_unless_something_is_in_the_way() {
        let mut options = json!({ "a": { "b": 1 }, "text": "t", "key": { "$secret": "host:k" } })
            .as_object()
            .unwrap()
            .clone();
        set(&mut options, "a.c.d", json!(2)).unwrap();
        set(&mut options, "new", json!(3)).unwrap();
        set(&mut options, "key", json!("plain")).unwrap();
        assert_eq!(
            Value::Object(options.clone()),
            json!({ "a": { "b": 1, "c": { "d": 2 } }, "text": "t", "key": "plain", "new": 3 })
        );
        assert_eq!(unset(&mut options, "a.c.d"), Ok(true));
        assert_eq!(unset(&mut options, "a.c.d"), Ok(false));
        assert_eq!(unset(&mut options, "text.x"), Ok(false));
        set(&mut options, "key", json!({ "$secret": "host:k" })).unwrap();
        let no = |path: &str| set(&mut options.clone(), path, json!("SECRET")).unwrap_err().to_string();
        insta::assert_snapshot!(no("text.inner"), @"text is not an object, so nothing can be put into it");
        insta::assert_snapshot!(no("key.$secret"), @"key names a secret, so nothing can be put into it; set it as a whole");
        insta::assert_snapshot!(no("a..b"), @"a..b is not a path of an option: a part of it is empty");
        insta::assert_snapshot!(no("a.__proto__.b"), @"a.__proto__.b is not a path of an option: __proto__ is not an allowed key");
    }

    proptest::proptest! {
        #[test]
        fn typing_never_fails_on_text(text in "\\PC{0,20}") {
            if let Ok(Value::String(read)) = typed(&text) {
                proptest::prop_assert!(read == text || serde_json::from_str::<String>(&text).is_ok_and(|inner| inner == read));
            }
        }
    }
}
