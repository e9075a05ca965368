//! The outcome of a turn, from the state of its chat.

use ostler_contract::protocol::names;
use ostler_contract::{JsonObject, Value, json};
use sha2::{Digest as _, Sha256};

use crate::bot_call::BotCall;

/// Returns the `_meta` of a call's message: its endpoint and thread, and the turn's name for the caller.
pub(crate) fn message(said: &BotCall, endpoint: &str, turn: &str, model: Option<&str>) -> Value {
    let call = json!({ "endpoint": endpoint, "thread": said.thread, "turn": turn });
    let meta = JsonObject::from_iter([(names::meta_key("webhook"), call)]);
    let mut message = json!({ "text": said.text, "_meta": meta });
    if let Some(model) = model {
        message["model"] = json!({ "id": model });
    }
    message
}

/// The outcome of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ended {
    /// `complete`, `cancelled` or `error`.
    pub status: &'static str,
    /// Its Markdown parts.
    pub text: String,
    /// Why it failed.
    pub error: Option<String>,
}

impl Ended {
    /// Returns the outcome of a turn that failed.
    pub fn failed(why: &str) -> Self {
        Self { status: "error", text: String::new(), error: Some(why.to_owned()) }
    }

    /// Returns the outcome of a turn whose session was disposed first.
    pub fn without_session() -> Self {
        Self::failed("the session ended before the turn")
    }

    /// Returns the outcome of a message that was withdrawn before it became a turn.
    pub fn withdrawn() -> Self {
        Self { status: "cancelled", text: String::new(), error: None }
    }

    /// Returns the outcome of a turn that an earlier start may have accepted, and that is not in its chat.
    pub fn missing() -> Self {
        Self::failed(
            "the host does not have the turn: it ended before it accepted it, or the message was withdrawn",
        )
    }

    /// Returns the form for callers: `{ thread, turn, status, text, error }`.
    pub fn told(&self, thread: &str, turn: &str) -> Value {
        let mut told = json!({ "thread": thread, "turn": turn, "status": self.status, "text": self.text });
        if let Some(error) = &self.error {
            told["error"] = error.as_str().into();
        }
        told
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TurnPhase {
    /// It has ended.
    Ended(Ended),
    /// It runs, or waits.
    Goes,
    /// It is not in this state.
    Nowhere,
    /// Its chat no longer exists.
    Gone,
    /// The chat cannot be read now.
    Unknown,
}

impl TurnPhase {
    /// Whether the host has the turn.
    pub fn is_there(&self) -> bool {
        matches!(self, Self::Ended(_) | Self::Goes)
    }
}

/// Returns the id of the turn of a delivery, which the host accepts once. A delivery whose turn failed can have another one.
pub(crate) fn id_of_delivery(delivery: &str, attempt: u32) -> String {
    let mut bytes = [0; 16];
    let digest = Sha256::digest(format!("{delivery}/{attempt}"));
    bytes.copy_from_slice(&digest[..16]);
    let id = uuid::Builder::from_bytes(bytes).with_version(uuid::Version::Custom);
    id.with_variant(uuid::Variant::RFC4122).into_uuid().to_string()
}

/// Whether an entry of a chat's state is a turn, or the queued message of one.
pub(crate) fn is_turn(entry: &Value, turn: &str) -> bool {
    entry["id"] == turn || entry["message"]["_meta"][names::meta_key("webhook")]["turn"] == turn
}

/// Finds a turn in a chat's state. One that was queued has an id from the host and is identified by its message.
pub(crate) fn find(state: &Value, turn: &str) -> TurnPhase {
    let is = |entry: &Value| is_turn(entry, turn);
    if is(&state["activeTurn"]) || state["queuedMessages"].as_array().into_iter().flatten().any(is) {
        return TurnPhase::Goes;
    }
    match state["turns"].as_array().into_iter().flatten().rev().find(|entry| is(entry)) {
        Some(turn) => TurnPhase::Ended(read(turn)),
        None => TurnPhase::Nowhere,
    }
}

fn read(turn: &Value) -> Ended {
    let parts = || turn["responseParts"].as_array().into_iter().flatten();
    let text: Vec<&str> = parts()
        .filter(|part| part["kind"] == "markdown")
        .filter_map(|part| part["content"].as_str())
        .filter(|content| !content.is_empty())
        .collect();
    let status = match turn["state"].as_str() {
        Some("complete") => "complete",
        Some("cancelled") => "cancelled",
        _ => "error",
    };
    let mut failure =
        parts().filter(|part| part["kind"] == "error").filter_map(|part| part["error"]["message"].as_str());
    let error = (status == "error").then(|| failure.next_back().unwrap_or("the turn failed").to_owned());
    Ended { status, text: text.join("\n\n"), error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delivery_has_the_same_turn_again_unless_that_failed() {
        let id = id_of_delivery("d1", 0);
        assert_eq!(id_of_delivery("d1", 0), id);
        assert_eq!(uuid::Uuid::parse_str(&id).unwrap().get_version_num(), 8);
        assert!(id != id_of_delivery("d1", 1) && id != id_of_delivery("d2", 0));
    }

    #[test]
    fn what_a_turn_said_and_why_it_failed() {
        let turn =
            |id: &str, state: &str, parts: Value| json!({ "id": id, "state": state, "responseParts": parts });
        let said = BotCall { thread: "t".to_owned(), text: "hi".to_owned(), callback: None };
        let mine = message(&said, "e", "mine", None);
        let state = json!({
            "turns": [
                turn("a", "complete", json!([
                    { "kind": "markdown", "content": "One." }, { "kind": "toolCall" },
                    { "kind": "reasoning", "content": "hm" }, { "kind": "markdown", "content": "Two." },
                ])),
                turn("b", "error", json!([{ "kind": "error", "error": { "message": "no model" } }])),
                turn("c", "cancelled", json!([])),
                { "id": "host", "state": "complete", "responseParts": [], "message": mine },
            ],
            "activeTurn": { "id": "d", "message": { "text": "x" } },
            "queuedMessages": [{ "id": "e", "message": {} }],
        });
        let ended = |status, text: &str, error: Option<&str>| {
            TurnPhase::Ended(Ended { status, text: text.to_owned(), error: error.map(str::to_owned) })
        };
        assert_eq!(find(&state, "a"), ended("complete", "One.\n\nTwo.", None));
        assert_eq!(find(&state, "b"), ended("error", "", Some("no model")));
        assert_eq!(find(&state, "c"), ended("cancelled", "", None));
        assert_eq!(find(&state, "mine"), ended("complete", "", None), "a turn that waited first");
        assert_eq!((find(&state, "d"), find(&state, "e")), (TurnPhase::Goes, TurnPhase::Goes));
        assert_eq!(find(&state, "f"), TurnPhase::Nowhere);
        let told = Ended::failed("x").told("t", "1");
        assert_eq!(told, json!({ "thread": "t", "turn": "1", "status": "error", "text": "", "error": "x" }));
        assert_eq!(Ended::withdrawn().told("t", "1").get("error"), None);
    }
}
