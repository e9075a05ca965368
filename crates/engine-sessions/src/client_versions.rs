//! Sessions and chats as AHP 0.9 clients see them. Such a client receives none of the actions that 1.0 added, so its
//! snapshots omit fields that only those actions change; they would become stale.

use ostler_protocol::Value;
use ostler_protocol::wire::actions::StateAction;
use ostler_protocol::wire::state::{ChatState, ChatSummary, SessionState, SessionStatus};

/// The bits of a chat's status that 1.0 added. A session's own flags are older.
const CHAT_MARKS: u32 = SessionStatus::IsRead.bits() | SessionStatus::IsArchived.bits();

/// Converts a chat to its form in 0.9.
pub(super) fn chat(mut state: ChatState) -> ChatState {
    state.status &= !CHAT_MARKS;
    state.changes = None;
    state.movable = None;
    state.changesets = None;
    state.background_work = None;
    state.canvases = None;
    state
}

fn summary(chat: &mut ChatSummary) {
    chat.status &= !CHAT_MARKS;
    chat.changes = None;
    chat.movable = None;
}

/// Converts a session to its form in 0.9.
pub(super) fn session(state: &SessionState) -> Option<Value> {
    let mut state = state.clone();
    state.chats.iter_mut().for_each(summary);
    let mut seen = serde_json::to_value(&state).ok()?;
    if let Some(customizations) = seen.get_mut("customizations") {
        no_longer_blocking(customizations);
    }
    Some(seen)
}

/// Removes the `blocking` field of MCP servers that are starting. 1.0 added it together with the action that moves the
/// start to the background.
fn no_longer_blocking(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.get("kind").is_some_and(|kind| kind == "starting") {
                fields.shift_remove("blocking");
            }
            fields.values_mut().for_each(no_longer_blocking);
        }
        Value::Array(items) => items.iter_mut().for_each(no_longer_blocking),
        _ => {}
    }
}

/// Encodes an action of 0.9 that 1.0 extended in its 0.9 form; returns `None` if both forms are the same.
pub(super) fn action(action: &StateAction) -> Option<String> {
    let marked = |status: u32| status & CHAT_MARKS != 0;
    let older = match action {
        StateAction::SessionChatAdded(added)
            if marked(added.summary.status)
                || added.summary.changes.is_some()
                || added.summary.movable.is_some() =>
        {
            let mut added = added.clone();
            summary(&mut added.summary);
            StateAction::SessionChatAdded(added)
        }
        StateAction::SessionChatUpdated(updated)
            if updated.changes.status.is_some_and(marked)
                || updated.changes.changes.is_some()
                || updated.changes.movable.is_some() =>
        {
            let mut updated = updated.clone();
            updated.changes.status = updated.changes.status.map(|status| status & !CHAT_MARKS);
            updated.changes.changes = None;
            updated.changes.movable = None;
            StateAction::SessionChatUpdated(updated)
        }
        _ => return None,
    };
    serde_json::to_string(&older).ok()
}
