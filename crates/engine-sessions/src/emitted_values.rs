//! Values of emitted actions that are outside of the closed sets of the protocol.
//!
//! The protocol's types preserve unknown values for other versions of it, as variants named `Unknown` of some hundred
//! types. Their `Debug` form is the only one in which all of them differ from known values, so this reads it as a stream.

use std::fmt::{self, Write as _};

use ostler_contract::wire::StateAction;

/// The maximum number of bytes of a value in a message.
const SHOWN: usize = 80;

/// What is wrong with a value whose kind cannot be read.
const KIND: &str = "is of an unknown kind, or lacks a member of its kind";

/// Returns the first value of an action that the protocol does not have, or lacks: what it is, and its place.
pub(super) fn foreign(action: &StateAction) -> Option<String> {
    let mut reader = Reader::default();
    // The reader ends the formatting with an error when it has found a value.
    let _ = write!(reader, "{action:?}");
    reader.found
}

/// What contains the current value.
enum Frame {
    /// A structure or a map.
    Fields { name: String, field: String },
    /// A list, with the index of the current value.
    Items(usize),
    /// A variant with a value.
    Variant(String),
}

/// A reader of the `Debug` form of a value.
#[derive(Default)]
struct Reader {
    frames: Vec<Frame>,
    word: String,
    text: String,
    in_text: bool,
    escaped: bool,
    found: Option<String>,
}

impl Reader {
    fn begin(&mut self, frame: impl FnOnce(String) -> Frame) {
        let name = std::mem::take(&mut self.word);
        self.frames.push(frame(name));
    }

    /// Ends a value that is a word.
    fn end_word(&mut self) {
        let is_group = matches!(self.frames.last(), Some(Frame::Fields { name, field })
            if name == "ConfirmationOption" && field == "group");
        if is_group && self.word == "None" {
            self.report("is missing");
        }
        self.word.clear();
    }

    fn is_unknown(&self) -> bool {
        matches!(self.frames.last(), Some(Frame::Variant(name)) if name == "Unknown")
    }

    /// Returns whether the value is what a tool returned. A client may have run the tool, and may know other kinds.
    fn is_of_tool(&self) -> bool {
        let fields = self.frames.iter().rev().find_map(|frame| match frame {
            Frame::Fields { field, .. } => Some(field),
            _ => None,
        });
        fields.is_some_and(|field| field == "content")
    }

    fn report(&mut self, what: &str) {
        let mut place = String::new();
        let mut within = "";
        for frame in &self.frames {
            match frame {
                Frame::Fields { name, field } => {
                    let dot = if place.is_empty() { "" } else { "." };
                    let _ = write!(place, "{dot}{}", camel(field));
                    within = name;
                }
                Frame::Items(at) => {
                    let _ = write!(place, "[{at}]");
                }
                Frame::Variant(_) => {}
            }
        }
        let types = if within.is_empty() { String::new() } else { format!("; see {within} in @ostler/sdk") };
        self.found = Some(format!("{place} {what}{types}"));
    }

    fn read(&mut self, character: char) {
        match character {
            '"' => {
                self.in_text = true;
                self.text.clear();
            }
            '{' | '(' | '[' if self.is_unknown() && !self.is_of_tool() => self.report(KIND),
            '{' => self.begin(|name| Frame::Fields { name, field: String::new() }),
            '(' => self.begin(Frame::Variant),
            '[' => self.begin(|_| Frame::Items(0)),
            ')' if self.word == "Null" && self.is_unknown() && !self.is_of_tool() => self.report(KIND),
            ':' => {
                let key = if self.word.is_empty() { &self.text } else { &self.word };
                if let Some(Frame::Fields { field, .. }) = self.frames.last_mut() {
                    field.clone_from(key);
                }
                self.word.clear();
            }
            ',' => {
                self.end_word();
                if let Some(Frame::Items(at)) = self.frames.last_mut() {
                    *at += 1;
                }
            }
            '}' | ')' | ']' => {
                self.end_word();
                self.frames.pop();
            }
            ' ' => {}
            other => self.word.push(other),
        }
    }

    /// Reads a part of a text up to its end. Returns the rest.
    fn read_text<'a>(&mut self, part: &'a str) -> &'a str {
        let mut end = None;
        for (at, byte) in part.bytes().enumerate() {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => {
                    end = Some(at);
                    break;
                }
                _ => {}
            }
        }
        let (text, rest) = part.split_at(end.unwrap_or(part.len()));
        let room = SHOWN.saturating_sub(self.text.len());
        self.text.push_str(&text[..text.floor_char_boundary(room)]);
        if end.is_none() {
            return rest;
        }
        self.in_text = false;
        if self.is_unknown() {
            let what = format!("has the unknown value \"{}\"", self.text);
            self.report(&what);
        }
        &rest[1..]
    }
}

impl fmt::Write for Reader {
    fn write_str(&mut self, mut part: &str) -> fmt::Result {
        while !part.is_empty() {
            if self.in_text {
                part = self.read_text(part);
            } else if let Some(character) = part.chars().next() {
                self.read(character);
                part = &part[character.len_utf8()..];
            }
            if self.found.is_some() {
                return Err(fmt::Error);
            }
        }
        Ok(())
    }
}

/// Returns the name of a member on the wire.
fn camel(field: &str) -> String {
    let mut words = field.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| {
        let mut characters = word.chars();
        let initial = characters.next().map(|initial| initial.to_ascii_uppercase());
        name + &initial.into_iter().chain(characters).collect::<String>()
    })
}

#[cfg(test)]
mod tests {
    use ostler_contract::{Value, json};

    use super::*;

    fn of(action: Value) -> Option<String> {
        foreign(&ostler_protocol::actions::read(action).unwrap())
    }

    #[test]
    fn values_outside_of_a_closed_set_are_named_with_their_place() {
        let ready = |options: Value| {
            of(
                json!({ "type": "chat/toolCallReady", "turnId": "t", "toolCallId": "c", "invocationMessage": "Run", "options": options }),
            )
        };
        let fine = json!({ "id": "a", "label": "Unknown(\"x\"), kind: Unknown(\"y\") \\\" {", "kind": "approve", "group": 0 });
        let with = |key: &str, value: Value| {
            let mut option = fine.clone();
            option[key] = value;
            option
        };
        assert_eq!(ready(json!([fine.clone(), with("kind", json!("deny"))])), None);
        let place = "see ConfirmationOption in @ostler/sdk";
        assert_eq!(
            ready(json!([fine.clone(), with("kind", json!("maybe"))])),
            Some(format!("options[1].kind has the unknown value \"maybe\"; {place}"))
        );
        let mut without = fine.clone();
        without.as_object_mut().unwrap().remove("group");
        assert_eq!(ready(json!([without])), Some(format!("options[0].group is missing; {place}")));
    }

    #[test]
    fn every_action_of_a_backend_is_read() {
        let part = |part: Value| of(json!({ "type": "chat/responsePart", "turnId": "t", "part": part }));
        assert_eq!(part(json!({ "kind": "markdown", "id": "p", "content": "Unknown(\"x\")" })), None);
        for unread in [
            json!({ "kind": "marked", "id": "p" }),
            json!({ "kind": "markdown" }),
            json!("text"),
            json!([]),
            json!(null),
        ] {
            let what = "part is of an unknown kind, or lacks a member of its kind; see ChatResponsePartAction in @ostler/sdk";
            assert_eq!(part(unread), Some(what.to_owned()));
        }
        let complete = |content: Value, meta: Value| {
            of(json!({ "type": "chat/toolCallComplete", "turnId": "t", "toolCallId": "c", "_meta": meta,
                "result": { "success": true, "pastTenseMessage": "Ran", "content": content } }))
        };
        let fine = json!({ "type": "text", "text": "a" });
        assert_eq!(complete(json!([fine]), json!({ "kind": "Unknown(\"x\")", "a": [{ "b": null }] })), None);
        // What a client's tool returned is passed on, also if only the client knows it.
        assert_eq!(complete(json!([fine, { "type": "picture" }, "x", null]), json!({})), None);
    }
}
