//! Edits of a configuration file's text that change only the changed values and leave the rest as its author wrote it.

use std::ops::Range;

use ostler_contract::{JsonObject, Value};

/// A value longer than this is written over several lines.
const LINE: usize = 80;
/// The maximum number of single edits of a change.
const EDITS: usize = 1_000;

/// Returns the text of an object with the values of `after`. Unchanged parts keep their bytes; new parts are formatted
/// like their surroundings. `None` if the text cannot be changed like this.
pub(super) fn patched(text: &str, after: &JsonObject) -> Option<String> {
    let mut text = text.to_owned();
    for _ in 0..EDITS {
        let root = Parser { text: &text, at: 0 }.root()?;
        let style = Style::of(&text, &root);
        match style.edit(&root, &Value::Object(after.clone()), 0)? {
            Some((range, new)) => text.replace_range(range, &new),
            None => return Some(text),
        }
    }
    None
}

/// A value with its position.
struct Node {
    range: Range<usize>,
    value: Value,
    /// The elements of a list, or the fields of an object.
    parts: Vec<Part>,
}

/// An element, or a field from its key on.
struct Part {
    start: usize,
    key: Option<String>,
    node: Node,
}

/// Parses the text of valid JSON.
struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn root(mut self) -> Option<Node> {
        // A byte order mark is not part of it.
        self.at = self.text.find(|character| character != '\u{feff}')?;
        self.node()
    }

    fn peek(&mut self) -> Option<u8> {
        let rest = self.text.get(self.at..)?;
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
        self.text.as_bytes().get(self.at).copied()
    }

    fn node(&mut self) -> Option<Node> {
        let opens = self.peek()?;
        let start = self.at;
        let mut parts = Vec::new();
        match opens {
            b'{' | b'[' => loop {
                // After the opening bracket, or a comma.
                self.at += 1;
                if matches!(self.peek()?, b'}' | b']') {
                    self.at += 1;
                    break;
                }
                let start = self.at;
                let key = match opens {
                    b'{' => {
                        let key = self.scalar()?.as_str()?.to_owned();
                        self.peek().filter(|colon| *colon == b':')?;
                        self.at += 1;
                        Some(key)
                    }
                    _ => None,
                };
                let node = self.node()?;
                parts.push(Part { start, key, node });
                if self.peek()? != b',' {
                    self.at += 1;
                    break;
                }
            },
            _ => drop(self.scalar()?),
        }
        let range = start..self.at;
        let value = serde_json::from_str(&self.text[range.clone()]).ok()?;
        Some(Node { range, value, parts })
    }

    /// A string, a number or a literal.
    fn scalar(&mut self) -> Option<Value> {
        let rest = self.text.get(self.at..)?;
        let end = match rest.strip_prefix('"') {
            Some(inner) => {
                let mut escaped = false;
                let ends = |character: char| {
                    let ends = !escaped && character == '"';
                    escaped = !escaped && character == '\\';
                    ends
                };
                inner.find(ends)? + 2
            }
            None => rest.find([',', ']', '}', ' ', '\t', '\r', '\n']).unwrap_or(rest.len()),
        };
        self.at += end;
        serde_json::from_str(&rest[..end]).ok()
    }
}

/// The formatting of a file.
struct Style<'a> {
    text: &'a str,
    newline: &'static str,
    indent: &'a str,
    /// The space after a comma or a colon, and inside the braces of an object on one line.
    space: &'static str,
    /// Whether the file is more than one line.
    wide: bool,
}

impl<'a> Style<'a> {
    fn of(text: &'a str, root: &Node) -> Self {
        let first = root.parts.first();
        let before = first.map_or("", |part| &text[root.range.start + 1..part.start]);
        let indent = before.rsplit_once('\n').map_or("  ", |(_, indent)| indent);
        let colon = first.and_then(|part| text[part.start..part.node.range.start].rsplit_once(':'));
        let space = colon.map_or(" ", |(_, space)| space);
        Self {
            text,
            newline: if text.contains("\r\n") { "\r\n" } else { "\n" },
            indent: if indent.is_empty() { "  " } else { indent },
            space: if space.is_empty() { "" } else { " " },
            wide: first.is_none() || text[root.range.clone()].contains('\n'),
        }
    }

    /// Returns the first edit from a node to a value; `Some(None)` if they are equal.
    fn edit(&self, node: &Node, after: &Value, depth: usize) -> Option<Option<(Range<usize>, String)>> {
        match (&node.value, after) {
            (before, after) if before == after => Some(None),
            (Value::Object(before), Value::Object(after)) => {
                for (at, part) in node.parts.iter().enumerate() {
                    match after.get(part.key.as_ref()?) {
                        None => return Some(Some((self.without(node, at), String::new()))),
                        Some(value) => {
                            if let Some(edit) = self.edit(&part.node, value, depth + 1)? {
                                return Some(Some(edit));
                            }
                        }
                    }
                }
                let (key, value) = after.iter().find(|(key, _)| !before.contains_key(*key))?;
                Some(Some(self.with(node, node.parts.len(), Some(key), value, depth)))
            }
            (Value::Array(before), Value::Array(after)) => {
                let same = before.iter().zip(after).take_while(|(before, after)| before == after).count();
                let (old, new) = (&before[same..], &after[same..]);
                let end = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();
                match (old.len() - end, new.len() - end) {
                    (0, _) => Some(Some(self.with(node, same, None, &new[0], depth))),
                    (_, 0) => Some(Some((self.without(node, same), String::new()))),
                    _ => self.edit(&node.parts[same].node, &new[0], depth + 1),
                }
            }
            (_, after) => {
                let wide = self.is_wide(node);
                Some(Some((node.range.clone(), self.shown(after, wide, depth))))
            }
        }
    }

    /// Returns the range that is removed with a part: the comma and the space to its neighbor.
    fn without(&self, node: &Node, at: usize) -> Range<usize> {
        let part = &node.parts[at];
        match (at.checked_sub(1).map(|before| &node.parts[before]), node.parts.get(at + 1)) {
            (Some(before), _) => before.node.range.end..part.node.range.end,
            (None, Some(next)) => part.start..next.start,
            (None, None) => node.range.start + 1..node.range.end - 1,
        }
    }

    /// Inserts a new part before the one with this index, or at the end.
    fn with(
        &self,
        node: &Node,
        at: usize,
        key: Option<&String>,
        value: &Value,
        depth: usize,
    ) -> (Range<usize>, String) {
        let key = key.map(|key| format!("{}:{}", Value::from(key.as_str()), self.space)).unwrap_or_default();
        let (open, close) = (node.range.start + 1, node.range.end - 1);
        let Some(last) = node.parts.last() else {
            let shown = format!("{key}{}", self.shown(value, false, depth + 1));
            let inside = match (self.wide, &node.value) {
                (true, _) => {
                    let newline = self.line(depth);
                    format!("{newline}{}{shown}{newline}", self.indent)
                }
                (false, Value::Object(_)) => format!("{0}{shown}{0}", self.space),
                (false, _) => shown,
            };
            return (open..close, inside);
        };
        // New elements are formatted like existing ones.
        let wide = node.parts.iter().any(|part| self.is_wide(&part.node))
            && !node.parts.iter().any(|part| !part.node.parts.is_empty() && !self.is_wide(&part.node));
        let shown = format!("{key}{}", self.shown(value, wide, depth + 1));
        let previous = node.parts.len().checked_sub(2).map_or(open, |at| node.parts[at].node.range.end);
        let gap = &self.text[previous..last.start];
        let gap = match gap.rfind(['\n', ',']) {
            Some(at) if gap[at..].starts_with('\n') => format!("{}{}", self.newline, &gap[at + 1..]),
            _ => self.space.to_owned(),
        };
        match node.parts.get(at) {
            Some(next) => (next.start..next.start, format!("{shown},{gap}")),
            None => (last.node.range.end..last.node.range.end, format!(",{gap}{shown}")),
        }
    }

    fn is_wide(&self, node: &Node) -> bool {
        self.text[node.range.clone()].contains('\n')
    }

    fn line(&self, depth: usize) -> String {
        format!("{}{}", self.newline, self.indent.repeat(depth))
    }

    /// Formats a value in the style of the file, over several lines if `wide` is set or it does not fit on one.
    fn shown(&self, value: &Value, wide: bool, depth: usize) -> String {
        let narrow = self.narrow(value);
        if !wide && (narrow.chars().count() <= LINE || !self.wide) {
            return narrow;
        }
        let inside = |rows: Vec<String>, [open, close]: [char; 2]| {
            let rows: Vec<String> =
                rows.into_iter().map(|row| format!("{}{row}", self.line(depth + 1))).collect();
            format!("{open}{}{}{close}", rows.join(","), self.line(depth))
        };
        match value {
            Value::Array(list) if !list.is_empty() => {
                let rows = list.iter().map(|value| self.shown(value, false, depth + 1));
                inside(rows.collect(), ['[', ']'])
            }
            Value::Object(fields) if !fields.is_empty() => {
                let row = |(key, value): (&String, &Value)| {
                    let key = Value::from(key.as_str());
                    format!("{key}:{}{}", self.space, self.shown(value, false, depth + 1))
                };
                inside(fields.iter().map(row).collect(), ['{', '}'])
            }
            _ => narrow,
        }
    }

    /// A value on one line.
    fn narrow(&self, value: &Value) -> String {
        let space = self.space;
        let joined = |rows: Vec<String>| rows.join(&format!(",{space}"));
        match value {
            Value::Array(list) => {
                format!("[{}]", joined(list.iter().map(|value| self.narrow(value)).collect()))
            }
            Value::Object(fields) if !fields.is_empty() => {
                let row = |(key, value): (&String, &Value)| {
                    format!("{}:{space}{}", Value::from(key.as_str()), self.narrow(value))
                };
                format!("{{{space}{}{space}}}", joined(fields.iter().map(row).collect()))
            }
            other => other.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use ostler_contract::json;
    use proptest::prelude::*;

    use super::*;

    fn changed(text: &str, change: impl FnOnce(&mut Value)) -> String {
        let mut after: Value = serde_json::from_str(text).unwrap();
        change(&mut after);
        let new = patched(text, after.as_object().unwrap()).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&new).unwrap(), after);
        new
    }

    fn installed(text: &str) -> String {
        changed(text, |config| {
            let plugins = config.as_object_mut().unwrap().entry("plugins").or_insert_with(|| json!([]));
            plugins.as_array_mut().unwrap().push(json!({ "name": "./new" }));
        })
    }

    #[test]
    fn what_is_added_is_written_as_what_is_around_it() {
        let text = "{\n    \"plugins\":   [\n        { \"name\": \"a\" },\n        {\"name\":\"b\"}\n    ],\n    \"mcpServers\": {},\n\n    \"deltaWindowMs\": 1e1\n}\n";
        let with = text.replace("{\"name\":\"b\"}\n", "{\"name\":\"b\"},\n        { \"name\": \"./new\" }\n");
        assert_eq!(installed(text), with);
        for (text, with) in [
            ("{}\n", "{\n  \"plugins\": [{ \"name\": \"./new\" }]\n}\n"),
            ("{\n}\n", "{\n  \"plugins\": [{ \"name\": \"./new\" }]\n}\n"),
            ("{\"plugins\":[{\"name\":\"a\"}]}", "{\"plugins\":[{\"name\":\"a\"},{\"name\":\"./new\"}]}"),
            ("{ \"port\": 1, \"plugins\": [] }", "{ \"port\": 1, \"plugins\": [{ \"name\": \"./new\" }] }"),
            (
                "{\r\n\t\"plugins\": [\r\n\t\t\"x\"\r\n\t]\r\n}\r\n",
                "{\r\n\t\"plugins\": [\r\n\t\t\"x\",\r\n\t\t{ \"name\": \"./new\" }\r\n\t]\r\n}\r\n",
            ),
            ("{\n\t\"plugins\": []\n}", "{\n\t\"plugins\": [\n\t\t{ \"name\": \"./new\" }\n\t]\n}"),
            (
                "{\n  \"plugins\": [\n    {\n      \"name\": \"a\"\n    }\n  ]\n}\n",
                "{\n  \"plugins\": [\n    {\n      \"name\": \"a\"\n    },\n    {\n      \"name\": \"./new\"\n    }\n  ]\n}\n",
            ),
        ] {
            assert_eq!(installed(text), with, "{text}");
        }
        assert_eq!(
            patched("\u{feff}{ \"port\": 1 }", json!({ "port": 2 }).as_object().unwrap()).unwrap(),
            "\u{feff}{ \"port\": 2 }"
        );
    }

    #[test]
    fn what_is_changed_or_taken_out_costs_nothing_around_it() {
        let text = "{\n  \"zeta\": [1,  2,3],\n  \"plugins\": [\n    { \"name\": \"a\",  \"options\": { \"most\": 5 } },\n    { \"name\": \"b\" }\n  ],\n  \"port\": 1\n}\n";
        let with = |config: &mut Value| {
            config["plugins"][0]["options"]["most"] = json!(6);
            config["plugins"][0]["enabled"] = json!(false);
            config["port"] = json!("x");
        };
        let new =
            text.replace("5 } }", "6 }, \"enabled\": false }").replace("\"port\": 1", "\"port\": \"x\"");
        assert_eq!(changed(text, with), new);
        let first = changed(text, |config| drop(config["plugins"].as_array_mut().unwrap().remove(0)));
        assert_eq!(first, text.replace("{ \"name\": \"a\",  \"options\": { \"most\": 5 } },\n    ", ""));
        let last = changed(text, |config| drop(config["plugins"].as_array_mut().unwrap().remove(1)));
        assert_eq!(last, text.replace(",\n    { \"name\": \"b\" }", ""));
        let key = changed(text, |config| drop(config.as_object_mut().unwrap().remove("zeta")));
        assert_eq!(key, text.replace("\"zeta\": [1,  2,3],\n  ", ""));
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            ".{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                object(inner).prop_map(Value::Object),
            ]
        })
    }

    fn object(value: impl Strategy<Value = Value>) -> impl Strategy<Value = JsonObject> {
        proptest::collection::vec(("[a-c\"\\\\é]{0,2}", value), 0..5)
            .prop_map(|rows| rows.into_iter().collect())
    }

    proptest! {
        #[test]
        fn the_text_says_what_it_was_changed_to(before in object(value()), after in object(value()), wide: bool) {
            let before = Value::Object(before);
            let text = if wide { format!("{before:#}\n") } else { before.to_string() };
            let new = patched(&text, &after).unwrap();
            prop_assert_eq!(serde_json::from_str::<Value>(&new).unwrap(), Value::Object(after));
        }
    }
}
