//! What listings show of a session, kept in step with its chats.

use ostler_contract::points::{KeptChat, KeptSession, SessionFlags};
use ostler_protocol::message::encode;
use ostler_protocol::uri;
use ostler_protocol::wire::actions::{PartialChatSummary, SessionChatUpdatedAction, StateAction};
use ostler_protocol::wire::state::{ChatSummary, SessionChatSummary, SessionStatus, SessionSummary};
use ostler_protocol::{JsonObject, Value, json};

use super::actor::Actor;
use super::annotations;

/// The bits of a status that are activity, not marks.
const ACTIVITY: u32 = 0b1_1111;

/// The bits of a status that are marks.
pub(super) fn marks(flags: SessionFlags) -> u32 {
    let bits = |set: bool, mark: SessionStatus| if set { mark.bits() } else { 0 };
    bits(flags.is_read, SessionStatus::IsRead) | bits(flags.is_archived, SessionStatus::IsArchived)
}

/// A session that is new or rests as listings show it, but for its chats.
pub(super) fn summary_at_rest(kept: &KeptSession, flags: SessionFlags) -> SessionSummary {
    let mut meta = JsonObject::new();
    if let Some(owner) = &kept.owner {
        meta.insert(ostler_protocol::names::meta_key("owner"), owner.as_str().into());
    }
    SessionSummary {
        provider: kept.provider.clone(),
        title: kept.title.clone(),
        status: SessionStatus::Idle.bits() | marks(flags),
        activity: None,
        origin: kept.origin.clone().and_then(|origin| serde_json::from_value(origin).ok()),
        project: None,
        working_directories: (!kept.working_directories.is_empty()).then(|| kept.working_directories.clone()),
        annotations: Some(annotations::summary(&kept.uri, kept.annotations)),
        resource: kept.uri.clone(),
        created_at: kept.created_at.clone(),
        modified_at: kept.modified_at.clone(),
        changes: None,
        meta: (!meta.is_empty()).then_some(meta),
        chats: None,
        default_chat: None,
    }
}

/// Shows a session that rests with the chats it was kept with.
pub(super) fn rest<'a>(
    summary: &mut SessionSummary,
    default: String,
    chats: impl Iterator<Item = &'a KeptChat>,
) {
    let chats: Vec<_> = chats
        .map(|chat| SessionChatSummary {
            resource: chat.uri.clone(),
            title: match &chat.title {
                None if chat.uri == default => summary.title.clone(),
                title => title.clone().unwrap_or_default(),
            },
            origin: chat.origin.clone().and_then(|origin| serde_json::from_value(origin).ok()),
            interactivity: None,
            status: Some(SessionStatus::Idle.bits() | marks(chat.flags)),
            changes: None,
        })
        .collect();
    summary.default_chat = Some(default);
    summary.chats = several(chats);
}

/// A listing names the chats of a session that has more than its one.
fn several(chats: Vec<SessionChatSummary>) -> Option<Vec<SessionChatSummary>> {
    (chats.len() > 1).then_some(chats)
}

fn listed(chat: &ChatSummary) -> SessionChatSummary {
    SessionChatSummary {
        resource: chat.resource.clone(),
        title: chat.title.clone(),
        origin: chat.origin.clone(),
        interactivity: chat.interactivity,
        status: Some(chat.status),
        changes: chat.changes.clone(),
    }
}

impl Actor {
    /// Publishes what changed of the chats since last time, and of the session's row.
    pub(super) fn refresh_summaries(&mut self) {
        for at in 0..self.chats.len() {
            let next = self.chats[at].summary();
            let last = &self.chats[at].published;
            if next == *last {
                continue;
            }
            let changes = chat_changes(last, &next);
            let chat = next.resource.clone();
            self.chats[at].published = next;
            self.apply_session(
                StateAction::SessionChatUpdated(SessionChatUpdatedAction { chat, changes }),
                None,
            );
        }
        self.refresh_row();
    }

    /// The activity of the session: that of its default chat, raised by any chat that needs somebody or
    /// failed.
    fn activity(&self) -> u32 {
        let default = self.state.default_chat.as_deref();
        let lead = self.chats.iter().find(|chat| Some(chat.uri.as_str()) == default).or(self.chats.last());
        let mut activity = lead.map_or(SessionStatus::Idle.bits(), |chat| chat.state.status & ACTIVITY);
        let any = |status: SessionStatus| {
            self.chats.iter().any(|chat| chat.state.status & ACTIVITY == status.bits())
        };
        if any(SessionStatus::InputNeeded)
            || self.state.status & ACTIVITY == SessionStatus::InputNeeded.bits()
        {
            activity = SessionStatus::InputNeeded.bits();
        } else if any(SessionStatus::Error) && activity == SessionStatus::Idle.bits() {
            activity = SessionStatus::Error.bits();
        } else if any(SessionStatus::InProgress) && activity == SessionStatus::Idle.bits() {
            activity = SessionStatus::InProgress.bits();
        }
        activity
    }

    /// Whether some chat changed since this was asked last.
    fn take_modified(&mut self) -> bool {
        let mut moved = false;
        for chat in &self.chats {
            let seen = self.modified.insert(chat.number, chat.state.modified_at.clone());
            moved |= seen.as_ref() != Some(&chat.state.modified_at);
        }
        self.modified.retain(|number, _| self.chats.iter().any(|chat| chat.number == *number));
        moved
    }

    /// Brings the row up to date and tells the root's watchers what changed of it.
    pub(super) fn refresh_row(&mut self) {
        let modified = self.take_modified().then(|| self.core.clock.iso());
        let activity = self.activity();
        let chats: Vec<_> = self.chats.iter().map(|chat| listed(&chat.published)).collect();
        let mut row = self.entry.row.lock();
        let last = row.summary.clone();
        let marks = marks(row.flags);
        let next = &mut row.summary;
        next.title.clone_from(&self.state.title);
        next.status = activity | marks;
        next.activity.clone_from(&self.state.activity);
        next.working_directories.clone_from(&self.state.working_directories);
        next.meta.clone_from(&self.state.meta);
        next.annotations.clone_from(&self.state.annotations);
        next.changes.clone_from(&self.changes);
        if let Some(modified) = modified {
            next.modified_at = modified;
        }
        next.default_chat.clone_from(&self.state.default_chat);
        next.chats = several(chats);
        let next = row.summary.clone();
        let directories = next.working_directories.as_deref().unwrap_or_default();
        let kept = &mut row.kept;
        if kept.title != next.title
            || kept.modified_at != next.modified_at
            || kept.working_directories != directories
        {
            kept.title.clone_from(&next.title);
            kept.modified_at.clone_from(&next.modified_at);
            kept.working_directories = directories.to_vec();
            row.unsaved = true;
        }
        drop(row);
        if !self.announced {
            return;
        }
        let changes = row_changes(&last, &next);
        if changes.is_empty() {
            return;
        }
        let params = json!({ "channel": uri::ROOT, "session": self.entry.uri, "changes": changes });
        if let Ok(frame) = encode::notification("root/sessionSummaryChanged", &params) {
            self.flush_out();
            self.core.fanout.notify(uri::ROOT, frame);
        }
    }
}

fn chat_changes(last: &ChatSummary, next: &ChatSummary) -> PartialChatSummary {
    fn changed<T: PartialEq + Clone>(last: &T, next: &T) -> Option<T> {
        (last != next).then(|| next.clone())
    }
    PartialChatSummary {
        resource: None,
        title: changed(&last.title, &next.title),
        status: changed(&last.status, &next.status),
        // The reducer reads an absent activity as unchanged; an empty one clears what is drawn.
        activity: changed(&last.activity, &next.activity).map(Option::unwrap_or_default),
        modified_at: changed(&last.modified_at, &next.modified_at),
        changes: changed(&last.changes, &next.changes).flatten(),
        origin: changed(&last.origin, &next.origin).flatten(),
        movable: changed(&last.movable, &next.movable).flatten(),
        interactivity: changed(&last.interactivity, &next.interactivity).flatten(),
        working_directories: changed(&last.working_directories, &next.working_directories).flatten(),
    }
}

/// The fields of a row that changed; an activity that ended is `null`.
fn row_changes(last: &SessionSummary, next: &SessionSummary) -> JsonObject {
    let mut fields = JsonObject::new();
    macro_rules! changed {
        ($($field:ident: $name:literal),+) => {
            // Every field is named here, so that a field the protocol adds does not compile until it is.
            let SessionSummary { resource: _, provider: _, created_at: _, $($field),+ } = next;
            $(if *$field != last.$field {
                match serde_json::to_value($field) {
                    Ok(Value::Null) if $name != "activity" => {}
                    Ok(value) => drop(fields.insert($name.to_owned(), value)),
                    Err(_) => {}
                }
            })+
        };
    }
    changed!(
        title: "title",
        status: "status",
        activity: "activity",
        origin: "origin",
        project: "project",
        modified_at: "modifiedAt",
        working_directories: "workingDirectories",
        annotations: "annotations",
        changes: "changes",
        default_chat: "defaultChat",
        chats: "chats",
        meta: "_meta"
    );
    fields
}
