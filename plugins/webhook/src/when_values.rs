//! The values of a call that an expression reads, for people.

use ostler_contract::Value;
use ostler_contract::protocol::event_path;
use ostler_contract::protocol::sent::SentFields;
use url::form_urlencoded;

use crate::route::Head;

/// The maximum length of a value, in characters.
const LONGEST: usize = 200;
/// The maximum number of values.
const MOST: usize = 50;

/// Returns the paths of an expression with the values that a call has there; `null` for none. What is a method of a value, such as
/// `contains`, is no part of a path.
pub(crate) fn values(expression: &str, event: SentFields<'_>, head: &Head) -> Vec<(String, Value)> {
    let mut found: Vec<(String, Value)> = Vec::new();
    for (root, path) in paths(expression) {
        let name = format!("{root}{path}");
        if found.len() == MOST || found.iter().any(|(other, _)| *other == name) {
            continue;
        }
        let step = path.strip_prefix('.').unwrap_or(path);
        let value = match root {
            "event" => event_path::find(event, step).map(|value| value.value().clone()),
            "headers" => head.facts().find(|(name, _)| *name == plain(step)).map(|(_, value)| value.into()),
            _ => {
                let query = head.uri.query().unwrap_or_default().as_bytes();
                let mut pairs = form_urlencoded::parse(query);
                pairs.rfind_name(&plain(step))
            }
        };
        found.push((name, value.map_or(Value::Null, short)));
    }
    found
}

trait Last {
    fn rfind_name(&mut self, name: &str) -> Option<Value>;
}

impl Last for form_urlencoded::Parse<'_> {
    fn rfind_name(&mut self, name: &str) -> Option<Value> {
        // Of several parameters with the same name the last one counts, as in an expression.
        self.filter(|(other, _)| other == name).last().map(|(_, value)| value.into_owned().into())
    }
}

/// Returns the name in a path of one step.
fn plain(step: &str) -> String {
    let quoted = step.strip_prefix("[\"").and_then(|rest| rest.strip_suffix("\"]"));
    quoted.unwrap_or(step).to_owned()
}

/// Shortens a value that people could not read.
fn short(value: Value) -> Value {
    let text = match &value {
        Value::String(text) => text.clone(),
        Value::Array(_) | Value::Object(_) => value.to_string(),
        _ => return value,
    };
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()).into(),
        None => value,
    }
}

/// Returns the variables of an expression with the paths after them.
fn paths(expression: &str) -> Vec<(&'static str, &str)> {
    let mut all = Vec::new();
    let mut at = 0;
    let bytes = expression.as_bytes();
    while let Some(byte) = bytes.get(at) {
        if matches!(byte, b'"' | b'\'' | b'`') {
            at = after_quoted(bytes, at);
            continue;
        }
        if !is_name(*byte) {
            at += 1;
            continue;
        }
        let begin = at;
        while bytes.get(at).is_some_and(|byte| is_name(*byte)) {
            at += 1;
        }
        let is_field = begin > 0 && bytes.get(begin - 1) == Some(&b'.');
        let name = expression.get(begin..at).unwrap_or_default();
        let root = ["event", "headers", "query"].into_iter().find(|root| *root == name && !is_field);
        if let Some(root) = root {
            let end = end_of_path(bytes, at);
            all.push((root, expression.get(at..end).unwrap_or_default()));
            at = end;
        }
    }
    all
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Returns the place after a quoted text.
fn after_quoted(bytes: &[u8], begin: usize) -> usize {
    let quote = bytes.get(begin);
    let mut at = begin + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 1,
            byte if Some(byte) == quote => return at + 1,
            _ => {}
        }
        at += 1;
    }
    at
}

/// Returns the end of the steps `.name`, `["name"]` and `[0]`.
fn end_of_path(bytes: &[u8], begin: usize) -> usize {
    let mut end = begin;
    loop {
        let mut at = end;
        match bytes.get(at) {
            Some(b'.') => {
                at += 1;
                while bytes.get(at).is_some_and(|byte| is_name(*byte)) {
                    at += 1;
                }
                if at == end + 1 || bytes.get(at) == Some(&b'(') {
                    return end;
                }
            }
            Some(b'[') if bytes.get(at + 1) == Some(&b'"') => {
                at = after_quoted(bytes, at + 1);
                if bytes.get(at) != Some(&b']') {
                    return end;
                }
                at += 1;
            }
            Some(b'[') => {
                at += 1;
                while bytes.get(at).is_some_and(u8::is_ascii_digit) {
                    at += 1;
                }
                if at == end + 1 || bytes.get(at) != Some(&b']') {
                    return end;
                }
                at += 1;
            }
            _ => return end,
        }
        end = at;
    }
}

#[cfg(test)]
mod tests {
    use ostler_contract::json;
    use ostler_contract::protocol::sent::SentObject;

    use super::*;

    fn of(expression: &str) -> Vec<(String, Value)> {
        let body = r#"{"action":"opened","issue":{"labels":[{"name":"bug"}],"n":12345678901234567890},"event":{"x":1}}"#;
        let event = SentObject::read(body.as_bytes()).unwrap();
        let mut headers = ostler_contract::http::HeaderMap::new();
        headers.insert("x-github-event", "issues".parse().unwrap());
        let head = Head { headers, uri: "/plugins/webhook/a?from=b&from=c".parse().unwrap() };
        values(expression, event.as_sent(), &head)
    }

    #[test]
    fn the_values_of_an_expression_are_those_of_its_paths() {
        let value = |name: &str, value: Value| (name.to_owned(), value);
        assert_eq!(
            of(
                r#"event.action == "event.no" && event.action != () && event.issue.labels[0].name.contains("b")"#
            ),
            [value("event.action", json!("opened")), value("event.issue.labels[0].name", json!("bug"))]
        );
        assert_eq!(of(r#"event["event"].x > 0"#), [value(r#"event["event"].x"#, json!(1))]);
        assert_eq!(of("event.missing.of.that == ()"), [value("event.missing.of.that", Value::Null)]);
        assert_eq!(
            of(r#"headers["x-github-event"] == 'a' || query.from == `event.b`"#),
            [value(r#"headers["x-github-event"]"#, json!("issues")), value("query.from", json!("c"))]
        );
        assert_eq!(of(r#""bug" in event.issue.labels.pluck("name")"#)[0].0, "event.issue.labels");
    }

    proptest::proptest! {
        /// Each path is a part of the expression.
        #[test]
        fn any_text_has_paths_of_itself(text in ".{0,60}|(event|headers|query|[.\\[\\]\"'0-9a-z( ])*") {
            for (root, path) in paths(&text) {
                let whole = format!("{root}{path}");
                proptest::prop_assert!(text.contains(&whole));
            }
        }
    }
}
