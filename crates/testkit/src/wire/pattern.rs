//! Compares the values that a line expects with the actual ones. `<kind>` or `<kind:name>` in a text stands for a value
//! that is not known in advance; a name is bound at its first use and must have the same value from then on.

use std::collections::BTreeMap;

use ostler_contract::Value;

/// The key that allows further fields in an object.
const MORE: &str = "...";
/// The last character in the name of an optional field.
const OPTIONAL: char = '?';

/// The bound values by name.
#[derive(Debug, Clone, Default)]
pub(super) struct Bindings(BTreeMap<String, Value>);

impl Bindings {
    /// Replaces the names in a client's line by their values.
    pub fn fill(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.fill_text(text),
            Value::Array(items) => items.iter().map(|item| self.fill(item)).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(key, value)| (key.clone(), self.fill(value))).collect()
            }
            other => other.clone(),
        }
    }

    fn fill_text(&self, text: &str) -> Value {
        let mut filled = text.to_owned();
        for (name, value) in &self.0 {
            let hole = text.split('<').filter_map(|part| part.split_once('>')).find_map(|(inside, _)| {
                inside.split_once(':').filter(|(_, of)| of == name).map(|_| format!("<{inside}>"))
            });
            let Some(hole) = hole else { continue };
            if text == hole {
                return value.clone();
            }
            let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            filled = filled.replace(&hole, &shown);
        }
        Value::String(filled)
    }

    /// Adds a line for every place at which two values differ.
    pub fn differences(&mut self, expected: &Value, seen: &Value, at: &str, lines: &mut Vec<String>) {
        match (expected, seen) {
            (Value::Object(wanted), Value::Object(found)) => {
                for (name, value) in wanted.iter().filter(|(key, _)| *key != MORE) {
                    let key = name.trim_end_matches(OPTIONAL);
                    match found.get(key) {
                        Some(found) => self.differences(value, found, &format!("{at}.{key}"), lines),
                        None if key != name => {}
                        None => lines.push(format!("{at}.{key}: expected {value}, there is none")),
                    }
                }
                if !wanted.contains_key(MORE) {
                    let named =
                        |key: &String| wanted.keys().any(|name| name.trim_end_matches(OPTIONAL) == key);
                    let extra = found.iter().filter(|(key, _)| !named(key));
                    lines.extend(extra.map(|(key, value)| format!("{at}.{key}: nobody expected {value}")));
                }
            }
            (Value::Array(wanted), Value::Array(found)) => {
                for (index, (wanted, found)) in wanted.iter().zip(found).enumerate() {
                    self.differences(wanted, found, &format!("{at}[{index}]"), lines);
                }
                if wanted.len() != found.len() {
                    lines.push(format!("{at}: expected {} items, there are {}", wanted.len(), found.len()));
                }
            }
            (Value::String(pattern), _) if self.fits(pattern, seen) => {}
            (expected, seen) if expected == seen => {}
            (expected, seen) => lines.push(format!("{at}: expected {expected}, is {seen}")),
        }
    }

    fn fits(&mut self, pattern: &str, seen: &Value) -> bool {
        let Some((before, rest)) = pattern.split_once('<') else { return seen.as_str() == Some(pattern) };
        let Some((inside, after)) = rest.split_once('>') else { return seen.as_str() == Some(pattern) };
        let (kind, name) = inside.split_once(':').map_or((inside, None), |(kind, name)| (kind, Some(name)));
        let held = if before.is_empty() && after.is_empty() {
            seen.clone()
        } else {
            let Some(text) = seen.as_str() else { return false };
            match text.strip_prefix(before).and_then(|text| text.strip_suffix(after)) {
                Some(held) => Value::from(held),
                None => return false,
            }
        };
        if !is(kind, &held) {
            return seen.as_str() == Some(pattern);
        }
        match name {
            Some(name) => *self.0.entry(name.to_owned()).or_insert_with(|| held.clone()) == held,
            None => true,
        }
    }
}

fn is(kind: &str, value: &Value) -> bool {
    match kind {
        "any" => true,
        "seq" | "number" => value.is_u64(),
        "text" => value.as_str().is_some_and(|text| !text.is_empty()),
        "time" => value.as_str().is_some_and(|text| text.parse::<jiff::Timestamp>().is_ok()),
        "uuid" => value.as_str().is_some_and(is_uuid),
        _ => false,
    }
}

/// Whether a text is a UUID in the usual notation.
pub(super) fn is_uuid(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    let hex = |group: &&str| group.bytes().all(|byte| byte.is_ascii_hexdigit());
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12]) && groups.iter().all(hex)
}

#[cfg(test)]
mod tests {
    use ostler_contract::json;

    use super::*;

    fn compare(expected: Value, seen: Value) -> Vec<String> {
        let mut lines = Vec::new();
        Bindings::default().differences(&expected, &seen, "$", &mut lines);
        lines
    }

    #[test]
    fn a_line_says_where_it_differs() {
        assert_eq!(compare(json!({ "a": [1, 2] }), json!({ "a": [1, 2] })), Vec::<String>::new());
        assert_eq!(compare(json!({ "a": [1, 2] }), json!({ "a": [1, 3] })), ["$.a[1]: expected 2, is 3"]);
        assert_eq!(
            compare(json!({ "a": 1, "b": 2 }), json!({ "b": 2, "c": 3 })),
            ["$.a: expected 1, there is none", "$.c: nobody expected 3"]
        );
        assert_eq!(compare(json!({ "...": true, "a": 1 }), json!({ "a": 1, "c": 3 })), Vec::<String>::new());
        assert!(compare(json!({ "a?": 1 }), json!({})).is_empty());
        assert_eq!(compare(json!({ "a?": 1 }), json!({ "a": 2 })), ["$.a: expected 1, is 2"]);
        assert_eq!(compare(json!([1]), json!([])), ["$: expected 1 items, there are 0"]);
    }

    #[test]
    fn what_cannot_be_known_is_known_by_its_kind_and_name() {
        assert!(compare(json!("<seq>"), json!(4)).is_empty());
        assert!(!compare(json!("<seq>"), json!("4")).is_empty());
        assert!(compare(json!("<time>"), json!("2026-01-01T00:00:00Z")).is_empty());
        assert!(!compare(json!("<time>"), json!("soon")).is_empty());
        assert!(compare(json!("run:/<uuid>"), json!("run:/2f0d7c52-6a4b-4a86-9df5-1d1c2b3a4f5e")).is_empty());
        assert!(!compare(json!("run:/<uuid>"), json!("walk:/2f0d7c52")).is_empty());
        assert!(!compare(json!(["<seq:a>", "<seq:a>"]), json!([1, 2])).is_empty());
        let mut bound = Bindings::default();
        bound.differences(&json!(["<seq:a>", "x/<text:b>"]), &json!([7, "x/y"]), "$", &mut Vec::new());
        assert_eq!(
            bound.fill(&json!(["<seq:a>", "z/<text:b>/<seq:a>", "<seq:c>"])),
            json!([7, "z/y/7", "<seq:c>"])
        );
    }
}
