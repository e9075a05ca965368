//! The session store: what the host keeps of a session beside what its backend keeps. Spec: *Registration
//! methods*.

use ostler_contract_derive::Cross;
use ostler_protocol::JsonObject;
use ostler_protocol::wire::state::Turn;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::PortValue;
use crate::call::Call;

/// Where sessions are kept, by their id. Once a `set…` resolves a crash does not lose it.
#[derive(Debug, Clone, Default, Cross)]
pub struct SessionStore {
    /// Read and archived marks.
    pub flags: Call<fn(id: String) -> Option<SessionFlags>>,
    /// Keeps the marks.
    pub set_flags: Call<fn(id: String, flags: SessionFlags)>,
    /// Who the session is and how it is set up, or nothing.
    pub config: Call<fn(id: String) -> Option<KeptSession>>,
    /// Keeps that.
    pub set_config: Call<fn(id: String, session: KeptSession)>,
    /// Artifacts and references of the session.
    pub artifacts: Call<fn(id: String) -> Vec<Value>>,
    /// Keeps them.
    pub set_artifacts: Call<fn(id: String, artifacts: Vec<Value>)>,
    /// Pull requests of the session, by working directory.
    pub pull_requests: Call<fn(id: String) -> JsonObject>,
    /// Keeps them.
    pub set_pull_requests: Call<fn(id: String, pull_requests: JsonObject)>,
    /// A chat's title, if a person or agent gave it one.
    pub chat_title: Call<fn(id: String, chat: String) -> Option<String>>,
    /// Keeps it; nothing takes it back.
    pub set_chat_title: Call<fn(id: String, chat: String, title: Option<String>)>,
    /// The session's chats.
    pub chats: Call<fn(id: String) -> Vec<KeptChat>>,
    /// Keeps them.
    pub set_chats: Call<fn(id: String, chats: Vec<KeptChat>)>,
    /// The ids of the sessions held.
    pub sessions: Call<fn() -> Vec<String>>,
    /// Forgets everything about a session.
    pub forget: Call<fn(id: String)>,
    /// Every session with its marks, at once; the host asks one by one where it is left out.
    pub all: Option<Call<fn() -> Vec<StoredSession>>>,
    /// One session with its marks and chats, or nothing; the host asks for them one by one where it is left out.
    pub session: Option<Call<fn(id: String) -> Option<StoredSession>>>,
    /// A page of the listing: up to `limit` sessions, the latest `modifiedAt` first and by `uri` among equal ones,
    /// compared as text, beginning after a place. Fewer than `limit` only where nothing follows. A store that has
    /// `page`, `sessionOfChat` and `drafts` is read on demand; of any other, every session is loaded at the start.
    pub page: Option<Call<fn(limit: u64, after: Option<ListedPlace>) -> Vec<StoredSession>>>,
    /// The id of the session that has an open chat of that URI, or nothing; the one stored first where several do. A
    /// default chat with the URI the host gave it may be left out.
    pub session_of_chat: Option<Call<fn(chat: String) -> Option<String>>>,
    /// The ids of the sessions that have `draft`.
    pub drafts: Option<Call<fn() -> Vec<String>>>,
    /// How many sessions are held; the host counts `sessions()` where it is left out.
    pub count: Option<Call<fn() -> u64>>,
    /// The turns of a chat, oldest first. Where any of these three is left out the host keeps turns itself.
    pub turns: Option<Call<fn(id: String, chat: String) -> Vec<Turn>>>,
    /// Keeps a turn at its place, replacing what the place held.
    pub set_turn: Option<Call<fn(id: String, chat: String, place: u64, turn: KeptTurn)>>,
    /// Forgets the turns of a chat from a place on.
    pub drop_turns: Option<Call<fn(id: String, chat: String, from: u64)>>,
    /// The annotations of a session. Where this or `setAnnotations` is left out the host keeps annotations itself.
    pub annotations: Option<Call<fn(id: String) -> Vec<Value>>>,
    /// Keeps them.
    pub set_annotations: Option<Call<fn(id: String, annotations: Vec<Value>)>>,
    /// Keeps an attachment beside a session; the same id is the same content. Where either of these two is left out the
    /// host keeps attachments itself.
    pub set_attachment: Option<Call<fn(id: String, attachment: String, content: KeptAttachment)>>,
    /// An attachment by its id, whichever session it is kept beside, or nothing.
    pub attachment: Option<Call<fn(attachment: String) -> Option<KeptAttachment>>>,
    /// Called once when the host closes, after its sessions and what plugins do then: keeps what is not kept yet.
    pub close: Option<Call<fn()>>,
}

impl SessionStore {
    /// Whether it keeps attachments.
    pub fn keeps_attachments(&self) -> bool {
        self.set_attachment.is_some() && self.attachment.is_some()
    }

    /// Whether it keeps turns.
    pub fn keeps_turns(&self) -> bool {
        self.turns.is_some() && self.set_turn.is_some() && self.drop_turns.is_some()
    }

    /// Whether sessions can be read on demand, so that none has to be loaded at the start.
    pub fn reads_on_demand(&self) -> bool {
        self.page.is_some() && self.session_of_chat.is_some() && self.drafts.is_some()
    }

    /// Whether it keeps annotations.
    pub fn keeps_annotations(&self) -> bool {
        self.annotations.is_some() && self.set_annotations.is_some()
    }
}

impl PortValue for SessionStore {
    const NAME: &'static str = "sessions";
}

/// Marks of a session, shared by all clients.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct SessionFlags {
    /// Somebody has seen what it said last.
    #[serde(default)]
    pub is_read: bool,
    /// It was put away.
    #[serde(default)]
    pub is_archived: bool,
}

/// Who a session is and how it is set up.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct KeptSession {
    /// Its URI, as the host lists it.
    pub uri: String,
    /// Its backend.
    pub provider: String,
    /// `user:<id>`, `plugin:<id>`, …; absent without a users directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Its title.
    pub title: String,
    /// ISO 8601; never moves.
    pub created_at: String,
    /// ISO 8601.
    pub modified_at: String,
    /// Settings chosen.
    #[serde(default)]
    pub values: JsonObject,
    /// `file://` URIs.
    #[serde(default)]
    pub working_directories: Vec<String>,
    /// What made it, where that was no person: `{ kind: "automation", automation, run }`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Value>,
    /// The backend's own id to continue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend_id: Option<String>,
    /// The working tree made for it, which goes with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worktree: Option<super::Worktree>,
    /// `{ team, project }` the work is charged to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Value>,
    /// Present while the session is a draft: a client created it and no turn has started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draft: Option<KeptDraft>,
    /// How many annotations it has.
    #[serde(default, skip_serializing_if = "AnnotationCounts::is_none")]
    pub annotations: AnnotationCounts,
}

/// How many annotations a session has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct AnnotationCounts {
    /// Annotations.
    pub annotations: u64,
    /// Entries of all of them.
    pub entries: u64,
}

impl AnnotationCounts {
    fn is_none(&self) -> bool {
        self.annotations == 0
    }
}

/// A session that is not announced and not listed before its first turn.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct KeptDraft {
    /// The client that created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
}

/// A session with its marks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct StoredSession {
    /// Its id.
    pub id: String,
    /// Who it is.
    pub session: KeptSession,
    /// Its marks.
    #[serde(default)]
    pub flags: SessionFlags,
    /// Its chats; the host asks for them one by one where they are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chats: Option<Vec<KeptChat>>,
}

/// A place in the listing of sessions: that of the session a page ended with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct ListedPlace {
    /// Its `modifiedAt`.
    pub modified_at: String,
    /// Its URI.
    pub uri: String,
}

/// One chat of a session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct KeptChat {
    /// Its URI.
    pub uri: String,
    /// The name its conversation is kept under at the backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend_id: Option<String>,
    /// Its title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Value>,
    /// Whether it is the session's default chat.
    #[serde(default)]
    pub default: bool,
    /// Whether it was closed: its conversation stays claimed and is not listed.
    #[serde(default)]
    pub closed: bool,
    /// What waits to be said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queued: Vec<Value>,
    /// What somebody is writing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draft: Option<Value>,
    /// Whether its title came of what was said first; another one was given to it.
    #[serde(default)]
    pub derived: bool,
    /// The part of the session's folders it works in, as `file://` URIs; all of them where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directories: Option<Vec<String>>,
    /// Its own marks.
    #[serde(default)]
    pub flags: SessionFlags,
    /// Hidden context its first turn still has to be given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Whether turns were removed from it that its backend still has to be told of.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rewind: bool,
    /// The queued message that a turn is being started with. It waits again where the turn is not in the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starting: Option<StartingTurn>,
}

/// A turn that takes a queued message.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct StartingTurn {
    /// The turn's id.
    pub turn: String,
    /// The message as it waited.
    pub queued: Value,
}

/// What a message brought along and now refers to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct KeptAttachment {
    /// Its media type.
    pub content_type: String,
    /// Its bytes, as base64.
    pub data: String,
}

/// A turn as it is kept: a finished one, or a running one as far as it has come.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct KeptTurn {
    /// The turn. One still running is kept as if it had failed, which is what a crash makes of it.
    pub turn: Turn,
    /// Who sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<String>,
    /// The backend's own name for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transcript_id: Option<String>,
}
