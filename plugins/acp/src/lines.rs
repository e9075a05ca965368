//! Finds the messages in a line of an agent's output. Agents write control sequences, progress or a byte order mark before a
//! message, several messages on one line, batches, and answers that JSON-RPC does not know. None of that may leave a request
//! without an answer.

use ostler_contract::protocol::error::code::INTERNAL_ERROR;
use ostler_contract::protocol::surrogates::well_formed;
use ostler_contract::{Value, json};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::errors::plain;
use crate::masks::Masks;
use crate::parsed::Name;

/// The maximum number of messages on one line.
const MESSAGES: usize = 1_000;
/// How often the text after a `{` that begins no message is looked at.
const ATTEMPTS: usize = 64;
/// The retained length of what is not a message.
const SHOWN: usize = 200;

/// What a line holds.
#[derive(Debug, Default, PartialEq)]
pub struct Found {
    /// Its messages, each on a line.
    pub messages: Vec<(String, Name)>,
    /// The beginning of what is not a message, masked.
    pub noise: Option<String>,
    /// Whether it has more messages than are read. What is left out can be an answer that somebody waits for.
    pub is_too_long: bool,
}

impl Found {
    fn add_noise(&mut self, text: &str, masks: &Masks) {
        if self.noise.is_some() {
            return;
        }
        // It can have ended in the middle of a line.
        let text = text.trim().trim_start_matches('\u{feff}');
        let shown: String = masks.hide_in_beginning(&plain(text)).chars().take(SHOWN).collect();
        // What stands between the messages of a batch is not worth a word.
        if !shown.chars().all(|c| c.is_whitespace() || matches!(c, '[' | ']' | ',' | '\u{feff}')) {
            self.noise = Some(shown.trim().to_owned());
        }
    }
}

/// Returns the messages of a line, with answers that cannot be understood in the form of errors.
pub fn messages_in(line: String, masks: &Masks) -> Found {
    let mut found = Found::default();
    let line = match well_formed(line.as_bytes()).map(String::from_utf8) {
        Some(Ok(mended)) => mended,
        _ => line,
    };
    let name = Members::of(&line).filter(Members::is_as_it_should_be).and_then(|members| members.name());
    if let Some(name) = name {
        found.messages.push((line, name));
        return found;
    }
    // Where the text begins that belongs to no message, and where the next message is looked for.
    let (mut rest, mut from, mut attempts) = (0, 0, 0);
    while let Some(at) = line[from..].find('{').map(|next| from + next) {
        let mut values = serde_json::Deserializer::from_str(&line[at..]).into_iter::<&RawValue>();
        match values.next() {
            Some(Ok(value)) => {
                found.add_noise(&line[rest..at], masks);
                if found.messages.len() == MESSAGES {
                    found.is_too_long = true;
                    return found;
                }
                add(value.get(), masks, &mut found);
                from = at + value.get().len();
                rest = from;
            }
            // The beginning of a message that has no end. What is in it is no message of its own.
            Some(Err(error)) if error.is_eof() => break,
            _ => {
                attempts += 1;
                if attempts == ATTEMPTS {
                    break;
                }
                from = at + 1;
            }
        }
    }
    found.add_noise(&line[rest..], masks);
    found
}

fn add(text: &str, masks: &Masks, found: &mut Found) {
    let Some(members) = Members::of(text) else { return found.add_noise(text, masks) };
    let message = match members.is_as_it_should_be() {
        true => Some(text.to_owned()),
        false => members.understood(masks),
    };
    let named = message.and_then(|text| {
        let name = Members::of(&text)?.name()?;
        Some((text, name))
    });
    match named {
        Some(message) => found.messages.push(message),
        None => found.add_noise(text, masks),
    }
}

/// A message by its members.
struct Members<'a> {
    text: &'a str,
    head: Head<'a>,
}

#[derive(serde::Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    method: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
}

/// The other members; one that is `null` is there.
#[derive(Default, serde::Deserialize)]
struct Rest<'a> {
    #[serde(borrow, default, deserialize_with = "there")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "there")]
    error: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "there")]
    params: Option<&'a RawValue>,
}

fn there<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl<'a> Members<'a> {
    fn of(text: &'a str) -> Option<Self> {
        // A list would be read as the members in their order.
        let head = text.trim_start().starts_with('{').then(|| serde_json::from_str(text).ok())??;
        Some(Self { text, head })
    }

    fn rest(&self) -> Rest<'a> {
        serde_json::from_str(self.text).unwrap_or_default()
    }

    fn name(&self) -> Option<Name> {
        Name::of(self.head.id, self.head.method)
    }

    /// Whether it is a notification, a request with an id that can be answered, or an answer of JSON-RPC.
    fn is_as_it_should_be(&self) -> bool {
        let Head { id, method } = &self.head;
        match (id, method) {
            // Of what the agent sends most, nothing else has to be looked at.
            (None, _) => true,
            (Some(id), Some(_)) => !is_float(id.get()),
            (Some(_), None) => {
                let rest = self.rest();
                match (rest.result, rest.error) {
                    (Some(_), None) => true,
                    (None, Some(error)) => is_error(error.get()),
                    _ => false,
                }
            }
        }
    }

    /// Returns it as a message that can be understood; `None` if it has no id that a sender waits for.
    fn understood(&self, masks: &Masks) -> Option<String> {
        let id = self.head.id?.get();
        if self.head.method.is_some() {
            // As a request with this id, of which the sender knows the answer again.
            let number: f64 = id.parse().ok().filter(|number: &f64| number.fract() == 0.0)?;
            let whole = format!("{number:.0}").parse::<i64>().ok()?;
            return self.with_id(whole);
        }
        let Rest { result, error, .. } = self.rest();
        let is_null = |value: &RawValue| value.get() == "null";
        match (result, error) {
            // As version 1 of JSON-RPC writes it.
            (Some(result), Some(error)) if is_null(error) => {
                Some(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#))
            }
            (Some(result), Some(error)) if is_null(result) && is_error(error.get()) => {
                Some(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#))
            }
            (result, error) => {
                let said = match (result.filter(|result| !is_null(result)), error) {
                    (_, None) => "neither a result nor an error".to_owned(),
                    (Some(_), Some(error)) => {
                        format!("a result and an error: {}", quoted(error.get(), masks))
                    }
                    (None, Some(error)) => quoted(error.get(), masks),
                };
                let message = format!("its response is invalid: {said}");
                let code = error.and_then(|error| code_of(error.get())).unwrap_or(INTERNAL_ERROR);
                let error: Value = json!({ "code": code, "message": message });
                Some(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#))
            }
        }
    }

    fn with_id(&self, id: i64) -> Option<String> {
        let method = self.head.method?.get();
        let params = self.rest().params.map(|params| format!(r#","params":{params}"#)).unwrap_or_default();
        Some(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method}{params}}}"#))
    }
}

fn quoted(text: &str, masks: &Masks) -> String {
    let shown = masks.hide(&plain(text));
    match shown.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", masks.hide_in_beginning(&shown[..end])),
        None => shown,
    }
}

fn is_float(id: &str) -> bool {
    id.starts_with(['-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']) && id.parse::<i64>().is_err()
}

/// Returns the code of an error whose other members do not fit.
fn code_of(error: &str) -> Option<i32> {
    #[derive(serde::Deserialize)]
    struct Error {
        code: f64,
    }
    let Error { code } = serde_json::from_str(error).ok()?;
    format!("{code:.0}").parse().ok().filter(|_| code.fract() == 0.0)
}

/// Whether a text is an error of JSON-RPC.
fn is_error(text: &str) -> bool {
    #[derive(serde::Deserialize)]
    #[expect(dead_code, reason = "only whether they are there and fit")]
    struct Error {
        code: i32,
        message: String,
    }
    serde_json::from_str::<Error>(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(line: &str) -> (Vec<String>, Option<String>) {
        let Found { messages, noise, .. } = messages_in(line.to_owned(), &Masks::default());
        (messages.into_iter().map(|(text, _)| text).collect(), noise)
    }

    const UPDATE: &str = r#"{"jsonrpc":"2.0","method":"session/update","params":{}}"#;
    const ANSWER: &str = r#"{"jsonrpc":"2.0","id":"a","result":null}"#;

    #[test]
    fn what_is_written_around_a_message_does_not_hide_it() {
        for (before, noise) in [
            ("", None),
            ("\u{feff}", None),
            ("\u{1b}]0;busy\u{7}", None),
            ("\r 10%\r100%\r", Some(" 10%100%")),
            ("[info] ", Some("[info]")),
            ("\u{1b}[2K[1/3] building ", Some("[1/3] building")),
        ] {
            for message in [UPDATE, ANSWER] {
                let (found, said) = texts(&format!("{before}{message}"));
                assert_eq!(found, [message], "{before:?}");
                assert_eq!(said.as_deref(), noise.map(str::trim), "{before:?}");
            }
        }
        assert_eq!(texts(&format!("{UPDATE} done")), (vec![UPDATE.to_owned()], Some("done".to_owned())));
        assert_eq!(texts("Loading plugins…"), (vec![], Some("Loading plugins…".to_owned())));
        assert_eq!(texts(r#"{"half":"#), (vec![], Some(r#"{"half":"#.to_owned())));
        assert_eq!(texts(r#"{"level":"info"}"#), (vec![], Some(r#"{"level":"info"}"#.to_owned())));
        assert_eq!(texts("42"), (vec![], Some("42".to_owned())));
        assert_eq!(texts("  "), (vec![], None));
    }

    #[test]
    fn a_line_can_hold_several_messages() {
        let both =
            |noise: Option<&str>| (vec![UPDATE.to_owned(), ANSWER.to_owned()], noise.map(str::to_owned));
        for (line, noise) in [
            (format!("{UPDATE}{ANSWER}"), None),
            (format!("{UPDATE} {ANSWER}"), None),
            (format!("[{UPDATE},{ANSWER}]"), None),
            (format!("[{UPDATE}][{ANSWER}]"), None),
            (format!("\u{1b}[2K[{UPDATE}, {ANSWER}] "), None),
            (format!("[info] [{UPDATE},{ANSWER}]"), Some("[info] [")),
            (format!("[{UPDATE},{ANSWER}] done"), Some("] done")),
            (format!("{UPDATE} 50%\r{ANSWER}"), Some("50%")),
            (format!("loaded {{plugins: 3}} {UPDATE}{ANSWER}"), Some("loaded {plugins: 3}")),
            (format!("a quoted \"{{\" {UPDATE}{ANSWER}"), Some("a quoted \"{\"")),
        ] {
            assert_eq!(texts(&line), both(noise), "{line}");
        }
        let many = vec![UPDATE; MESSAGES + 1];
        for line in [format!("[{}]", many.join(",")), many.concat()] {
            let found = messages_in(line, &Masks::default());
            assert!(found.messages.len() == MESSAGES && found.is_too_long);
        }
        let holes = "{".repeat(ATTEMPTS) + UPDATE;
        assert_eq!(texts(&holes).0, Vec::<String>::new());
    }

    #[test]
    fn what_is_in_an_unfinished_message_is_no_message() {
        let half = format!(r#"{{"method":"a","params":{UPDATE}"#);
        assert_eq!(texts(&half).0, Vec::<String>::new());
    }

    #[test]
    fn half_of_a_surrogate_pair_costs_that_half() {
        let (found, noise) = texts(r#"{"method":"session/update","params":{"text":"a \ud800 b"}}"#);
        assert_eq!(found, [r#"{"method":"session/update","params":{"text":"a \ufffd b"}}"#]);
        assert_eq!(noise, None);
    }

    #[test]
    fn an_answer_that_cannot_be_understood_is_an_error_with_its_id() {
        for (members, said) in [
            (r#""error":{"message":"busy"}"#, r#"{"message":"busy"}"#),
            (r#""error":"busy""#, r#""busy""#),
            (r#""error":{"code":"x","message":"busy"}"#, r#"{"code":"x","message":"busy"}"#),
            (r#""error":{"code":1.5,"message":"busy"}"#, r#"{"code":1.5,"message":"busy"}"#),
            (r#""error":null"#, "null"),
            (r#""other":1"#, "neither a result nor an error"),
            (r#""result":null,"error":"busy""#, r#""busy""#),
            (r#""result":{},"error":{"code":1,"message":"busy"}"#, r#"{"code":1,"message":"busy"}"#),
        ] {
            let (found, noise) = texts(&format!(r#"{{"jsonrpc":"2.0","id":"a",{members}}}"#));
            assert_eq!((found.len(), noise), (1, None), "{members}");
            let answer: Value = serde_json::from_str(&found[0]).unwrap();
            let code = if said.contains(r#""code":1,"#) { 1 } else { INTERNAL_ERROR };
            assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("a"), &json!(code)));
            assert!(answer["error"]["message"].as_str().unwrap().ends_with(said), "{answer}");
        }
        // A code that can be read says what to do.
        let (found, _) = texts(r#"{"id":"a","error":{"code":-32000.0,"message":null}}"#);
        assert!(found[0].contains(r#""code":-32000,"#), "{found:?}");
        // Version 1 of JSON-RPC writes both.
        let (found, _) = texts(r#"{"id":"a","result":{"b":1},"error":null}"#);
        assert_eq!(found, [r#"{"jsonrpc":"2.0","id":"a","result":{"b":1}}"#]);
        let (found, _) = texts(r#"{"id":"a","result":null,"error":{"code":1,"message":"m"}}"#);
        assert_eq!(found, [r#"{"jsonrpc":"2.0","id":"a","error":{"code":1,"message":"m"}}"#]);
    }

    #[test]
    fn a_request_with_a_whole_float_as_its_id_is_one_with_that_number() {
        let (found, _) = texts(r#"{"id":7.0,"method":"fs/read_text_file","params":{"path":"/a"}}"#);
        assert_eq!(
            found,
            [r#"{"jsonrpc":"2.0","id":7,"method":"fs/read_text_file","params":{"path":"/a"}}"#]
        );
        assert_eq!(texts(r#"{"id":7.5,"method":"m"}"#).0, Vec::<String>::new());
    }
}
