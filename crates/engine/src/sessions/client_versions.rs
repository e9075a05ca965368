//! What a client of 0.9 sees of sessions and chats. It is sent none of the actions 1.0 added, so its snapshots hold
//! nothing that only those actions change: it would stay on the screen as it was.

use ostler_protocol::Value;
use ostler_protocol::wire::actions::StateAction;
use ostler_protocol::wire::state::{ChatState, ChatSummary, SessionState, SessionStatus};

/// The bits of a chat's status that 1.0 added. A session's own marks are older.
const CHAT_MARKS: u32 = SessionStatus::IsRead.bits() | SessionStatus::IsArchived.bits();

/// A chat as 0.9 has it.
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

/// A session as 0.9 has it.
pub(super) fn session(state: &SessionState) -> Option<Value> {
    let mut state = state.clone();
    state.chats.iter_mut().for_each(summary);
    let mut seen = serde_json::to_value(&state).ok()?;
    if let Some(customizations) = seen.get_mut("customizations") {
        no_longer_blocking(customizations);
    }
    Some(seen)
}

/// Leaves out which MCP servers hold a session up while they start, which 1.0 added with the action that lets them
/// start behind it.
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

/// An action of 0.9 whose content 1.0 extended, as 0.9 has it; `None` where it is the same.
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
