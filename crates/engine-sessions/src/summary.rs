//! The session's data in listings, which follows the state of its chats.

use std::sync::atomic::Ordering;

use ostler_contract::points::{KeptChat, KeptSession, SessionFlags};
use ostler_protocol::message::encode;
use ostler_protocol::wire::actions::{PartialChatSummary, SessionChatUpdatedAction, StateAction};
use ostler_protocol::wire::state::{
    ChangesSummary, ChatInteractivity, ChatState, ChatSummary, SessionChatSummary, SessionStatus,
    SessionSummary,
};
use ostler_protocol::{JsonObject, uri};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use super::actor::Actor;
use super::annotations;

/// The bits of a status that hold activity rather than flags.
pub(super) const ACTIVITY: u32 = 0b1_1111;

/// Returns the bits of a status for flags.
pub(super) fn marks(flags: SessionFlags) -> u32 {
    let bits = |set: bool, mark: SessionStatus| if set { mark.bits() } else { 0 };
    bits(flags.is_read, SessionStatus::IsRead) | bits(flags.is_archived, SessionStatus::IsArchived)
}

/// Returns the flags in a status.
pub(super) fn flags_in(status: u32) -> SessionFlags {
    let has = |mark: SessionStatus| status & mark.bits() != 0;
    SessionFlags { is_read: has(SessionStatus::IsRead), is_archived: has(SessionStatus::IsArchived) }
}

/// Returns the summary of a session that is new or asleep, without its chats.
pub(super) fn summary_at_rest(kept: &KeptSession, flags: SessionFlags) -> SessionSummary {
    let mut meta = kept.meta.clone();
    meta.extend(kept.facts.clone());
    if let Some(owner) = &kept.owner {
        meta.insert(ostler_protocol::names::meta_key("owner"), owner.as_str().into());
    }
    SessionSummary {
        provider: kept.provider.clone(),
        title: kept.title.clone(),
        status: SessionStatus::Idle.bits() | marks(flags),
        activity: kept.activity.clone(),
        origin: kept.origin.clone().and_then(|origin| serde_json::from_value(origin).ok()),
        project: kept.project.clone().and_then(|project| serde_json::from_value(project).ok()),
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

/// Adds the stored chats to the summary of a session that is asleep.
pub(super) fn rest<'a>(
    summary: &mut SessionSummary,
    default: String,
    chats: impl Iterator<Item = &'a KeptChat>,
) {
    let mut any_failed = false;
    let chats: Vec<_> = chats
        .inspect(|chat| any_failed |= chat.failed && chat.worker_of.is_none())
        .map(|chat| SessionChatSummary {
            resource: chat.uri.clone(),
            title: match &chat.title {
                None if chat.uri == default => summary.title.clone(),
                title => title.clone().unwrap_or_default(),
            },
            origin: chat.origin.clone().and_then(|origin| serde_json::from_value(origin).ok()),
            interactivity: chat.worker_of.is_some().then_some(ChatInteractivity::ReadOnly),
            status: Some(activity_at_rest(chat).bits() | marks(chat.flags)),
            changes: None,
        })
        .collect();
    if any_failed {
        summary.status = summary.status & !ACTIVITY | SessionStatus::Error.bits();
    }
    summary.default_chat = Some(default);
    summary.chats = several(chats);
}

fn activity_at_rest(chat: &KeptChat) -> SessionStatus {
    match chat.failed {
        true => SessionStatus::Error,
        false => SessionStatus::Idle,
    }
}

/// A listing names the chats of a session only if there are several.
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
    /// Publishes the changes of the chats since the last call, and of the session's summary.
    pub(super) fn refresh_summaries(&mut self) {
        if self.storing.is_serving {
            // The states contain a change that is not stored yet.
            self.dirty = true;
            return;
        }
        self.refresh_chats();
        self.refresh_row();
    }

    /// Publishes the changes of the chats in the session's list.
    pub(super) fn refresh_chats(&mut self) {
        for at in 0..self.chats.len() {
            let modified = self.chats[at].changed_at(|| self.core.clock.iso()).to_owned();
            let Some(last) = self.published_chat(at) else { continue };
            let Some(changes) = chat_changes(last, &self.chats[at].state, &modified) else { continue };
            let chat = self.chats[at].uri.clone();
            self.apply_session(
                StateAction::SessionChatUpdated(SessionChatUpdatedAction { chat, changes }),
                None,
            );
        }
    }

    /// Returns a chat as the session's subscribers have it. The session lists its chats in the same order, except for a
    /// chat that is about to be added or was just removed.
    fn published_chat(&self, at: usize) -> Option<&ChatSummary> {
        let (uri, chats) = (&self.chats[at].uri, &self.state.chats);
        let listed = chats.get(at).filter(|chat| chat.resource == *uri);
        listed.or_else(|| chats.iter().find(|chat| chat.resource == *uri))
    }

    /// Returns the status of the session for a snapshot. No action tells its activity to subscribers, who know that of the chats.
    pub(super) fn status_now(&self) -> u32 {
        self.state.status & !ACTIVITY | self.activity()
    }

    /// Returns the activity of the session: that of its default chat, overridden by any chat that needs input or
    /// failed.
    fn activity(&self) -> u32 {
        let default = self.state.default_chat.as_deref();
        let lead = self.chats.iter().find(|chat| Some(chat.uri.as_str()) == default).or(self.chats.last());
        let mut activity = lead.map_or(SessionStatus::Idle.bits(), |chat| chat.state.status & ACTIVITY);
        let any = |status: SessionStatus| {
            self.chats.iter().any(|chat| chat.state.status & ACTIVITY == status.bits())
        };
        // A worker whose turn failed gets no other one.
        let own_error = self
            .chats
            .iter()
            .any(|chat| !chat.is_worker() && chat.state.status & ACTIVITY == SessionStatus::Error.bits());
        if any(SessionStatus::InputNeeded)
            || self.state.status & ACTIVITY == SessionStatus::InputNeeded.bits()
        {
            activity = SessionStatus::InputNeeded.bits();
        } else if own_error && activity == SessionStatus::Idle.bits() {
            activity = SessionStatus::Error.bits();
        } else if any(SessionStatus::InProgress) && activity == SessionStatus::Idle.bits() {
            activity = SessionStatus::InProgress.bits();
        }
        activity
    }

    /// Publishes the session's view and notifies the subscribers of the root channel of its changes.
    pub(super) fn refresh_row(&mut self) {
        if self.storing.is_serving {
            self.dirty = true;
            return;
        }
        self.entry.background.store(self.works_in_background(), Ordering::Release);
        let moved = self.chats.iter_mut().fold(false, |moved, chat| chat.take_modified() | moved);
        let last = self.entry.view();
        let last = &*last.summary;
        // Another host, whose clock is ahead, may have changed it before. With an earlier time, this row would count as older.
        let modified = moved.then(|| self.core.clock.iso().max(last.modified_at.clone()));
        let next = self.summary(last, modified);
        if next == *last {
            return;
        }
        let is_kept = next.modified_at == last.modified_at
            && next.working_directories == last.working_directories
            && next.project == last.project;
        if !is_kept {
            self.entry.set_stored(false);
        }
        let view = self.publish(next);
        let changes = RowChanges { last, next: &view.summary };
        if !self.announced || changes.is_empty() {
            return;
        }
        self.core.feeds.sessions.put(|| view.summary.clone());
        let params = SummaryChanged { channel: uri::ROOT, session: &self.entry.uri, changes };
        if let Ok(frame) = encode::notification("root/sessionSummaryChanged", &params) {
            self.flush_out();
            self.core.fanout.notify(uri::ROOT, frame);
        }
    }

    /// Returns the session's current summary for listings. A change cannot remove a field, so a field that was listed
    /// before is listed as empty, and a chat that remains of several is still listed.
    fn summary(&self, last: &SessionSummary, modified: Option<String>) -> SessionSummary {
        let chat = |at| match self.published_chat(at) {
            Some(published) => listed(published),
            None => listed(&self.chats[at].summary()),
        };
        let listed = || (0..self.chats.len()).map(chat).collect();
        SessionSummary {
            resource: last.resource.clone(),
            provider: last.provider.clone(),
            created_at: last.created_at.clone(),
            origin: last.origin.clone(),
            project: self.state.project.clone(),
            title: self.state.title.clone(),
            status: self.activity() | marks(self.flags()),
            activity: self.state.activity.clone(),
            modified_at: modified.unwrap_or_else(|| last.modified_at.clone()),
            working_directories: self.state.working_directories.clone(),
            annotations: self.state.annotations.clone(),
            changes: self.changes.clone().or_else(|| last.changes.is_some().then(no_changes)),
            default_chat: self.state.default_chat.clone(),
            chats: (self.chats.len() > 1 || last.chats.is_some()).then(listed),
            meta: super::reported::listed_meta(self.state.meta.as_ref())
                .or_else(|| last.meta.is_some().then(JsonObject::new)),
        }
    }
}

fn no_changes() -> ChangesSummary {
    ChangesSummary { additions: Some(0), deletions: Some(0), files: Some(0) }
}

/// The params of `root/sessionSummaryChanged`.
#[derive(Serialize)]
struct SummaryChanged<'a> {
    channel: &'a str,
    session: &'a str,
    changes: RowChanges<'a>,
}

/// Returns the changes of a chat that its session's subscribers do not have, or `None` if there are none. Changes that
/// an update cannot express are ignored: the removal of a field, and the two fields that the reducer only reads from a
/// whole summary.
fn chat_changes(last: &ChatSummary, next: &ChatState, modified: &String) -> Option<PartialChatSummary> {
    fn changed<T: PartialEq + Clone>(last: &T, next: &T) -> Option<T> {
        (last != next).then(|| next.clone())
    }
    // Every field is named here, so that a field added to the protocol causes a compile error.
    let ChatSummary {
        resource: _,
        title,
        status,
        activity,
        modified_at,
        changes,
        origin,
        movable: _,
        interactivity: _,
        working_directories,
    } = last;
    // The reducer reads an absent activity as unchanged; an empty one clears the displayed one.
    let (drawn, drawing) = (activity.as_deref().unwrap_or(""), next.activity.as_deref().unwrap_or(""));
    let changes = PartialChatSummary {
        resource: None,
        title: changed(title, &next.title),
        status: changed(status, &next.status),
        activity: (drawn != drawing).then(|| drawing.to_owned()),
        modified_at: changed(modified_at, modified),
        changes: changed(changes, &next.changes).flatten(),
        origin: changed(origin, &next.origin).flatten(),
        movable: None,
        interactivity: None,
        working_directories: changed(working_directories, &next.working_directories).flatten(),
    };
    (changes != PartialChatSummary::default()).then_some(changes)
}

/// The changed fields of a summary. An activity that ended is `null`; other absent fields are omitted.
struct RowChanges<'a> {
    last: &'a SessionSummary,
    next: &'a SessionSummary,
}

/// Whether a field of a summary is present.
trait Present {
    fn is_present(&self) -> bool {
        true
    }
}

impl Present for String {}

impl Present for u32 {}

impl<T> Present for Option<T> {
    fn is_present(&self) -> bool {
        self.is_some()
    }
}

macro_rules! row_changes {
    ($($field:ident: $name:literal),+) => {
        impl RowChanges<'_> {
            fn is_empty(&self) -> bool {
                // Every field is named here, so that a field added to the protocol causes a compile error.
                let SessionSummary { resource: _, provider: _, created_at: _, $($field),+ } = self.next;
                true $(&& (*$field == self.last.$field || !sends($name, $field)))+
            }
        }

        impl Serialize for RowChanges<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut fields = serializer.serialize_map(None)?;
                $(if self.next.$field != self.last.$field && sends($name, &self.next.$field) {
                    fields.serialize_entry($name, &self.next.$field)?;
                })+
                fields.end()
            }
        }
    };
}

fn sends(name: &str, field: &impl Present) -> bool {
    name == "activity" || field.is_present()
}

row_changes!(
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
