//! Records the host's messages in transcripts that leave them open with `{"host":"?"}`.

use std::path::Path;

use ostler_contract::{JsonObject, Value, json};

use super::pattern::is_uuid;

/// Whether this run records.
pub fn recording() -> bool {
    std::env::var_os("OSTLER_WIRE_RECORD").is_some_and(|asked| !asked.is_empty())
}

/// The value that leaves the host's message open.
pub(super) const OPEN: &str = "?";

/// Replaces each open line by the recorded messages.
pub(super) fn write(path: &Path, filled: &[(usize, Vec<(String, Value)>)]) {
    let text = std::fs::read_to_string(path).expect("the transcript");
    let mut lines = Vec::new();
    for (at, line) in text.lines().enumerate() {
        match filled.iter().find(|(open, _)| *open == at + 1) {
            None => lines.push(line.to_owned()),
            Some((_, frames)) => lines.extend(frames.iter().map(|(on, frame)| {
                let frame = general(None, frame);
                let line =
                    if on == "a" { json!({ "host": frame }) } else { json!({ "host": frame, "at": on }) };
                line.to_string()
            })),
        }
    }
    std::fs::write(path, lines.join("\n") + "\n").expect("the transcript is written");
}

/// Replaces the values that differ from run to run by placeholders.
fn general(key: Option<&str>, value: &Value) -> Value {
    match (key, value) {
        (Some("serverSeq" | "fromSeq"), Value::Number(_)) => json!("<seq>"),
        (Some("duration"), Value::Number(_)) => json!("<number>"),
        (Some("version" | "nextCursor"), Value::String(_)) => json!("<text>"),
        (Some("ostler.grants"), _) => json!("<any>"),
        (_, Value::String(text)) => {
            if text.parse::<jiff::Timestamp>().is_ok() {
                return json!("<time>");
            }
            if is_uuid(text) {
                return json!("<uuid>");
            }
            // The default chat of a session whose id is a UUID.
            if text.starts_with("ahp-chat://default/") && text.len() > 60 {
                return json!("ahp-chat://default/<text>");
            }
            match text.rsplit_once('/') {
                Some((before, last)) if is_uuid(last) => json!(format!("{before}/<uuid>")),
                _ => value.clone(),
            }
        }
        (_, Value::Array(items)) => items.iter().map(|item| general(None, item)).collect(),
        (_, Value::Object(fields)) => {
            let fields = fields.iter().filter(|(name, _)| *name != "jsonrpc");
            Value::Object(JsonObject::from_iter(fields.map(|(name, value)| {
                // Whether a change contains the time depends on the timing of the run.
                let moves = key == Some("changes") && name == "modifiedAt";
                let written = if moves { "modifiedAt?" } else { name.as_str() };
                (written.to_owned(), general(Some(name), value))
            })))
        }
        _ => value.clone(),
    }
}
