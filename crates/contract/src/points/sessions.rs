//! The session store: data of sessions that backends do not store. Spec: *Registration methods*.

use ostler_contract_derive::Cross;
use ostler_protocol::JsonObject;
use ostler_protocol::wire::state::{Turn, UsageInfo};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::PortValue;
use crate::call::Call;

/// The store of sessions, by id. When a `set…` function resolves, its data is durable.
#[derive(Debug, Clone, Default, Cross)]
pub struct SessionStore {
    /// Read and archived marks.
    pub flags: Call<fn(id: String) -> Option<SessionFlags>>,
    /// Stores the marks.
    pub set_flags: Call<fn(id: String, flags: SessionFlags)>,
    /// The record of a session, or nothing.
    pub config: Call<fn(id: String) -> Option<KeptSession>>,
    /// Stores the record.
    pub set_config: Call<fn(id: String, session: KeptSession)>,
    /// Artifacts and references of the session.
    pub artifacts: Call<fn(id: String) -> Vec<Value>>,
    /// Stores them.
    pub set_artifacts: Call<fn(id: String, artifacts: Vec<Value>)>,
    /// Pull requests of the session, by working directory.
    pub pull_requests: Call<fn(id: String) -> JsonObject>,
    /// Stores them.
    pub set_pull_requests: Call<fn(id: String, pull_requests: JsonObject)>,
    /// Title of a chat that a user or agent set.
    pub chat_title: Call<fn(id: String, chat: String) -> Option<String>>,
    /// Stores the title, which cannot be removed.
    pub set_chat_title: Call<fn(id: String, chat: String, title: Option<String>)>,
    /// The session's chats.
    pub chats: Call<fn(id: String) -> Vec<KeptChat>>,
    /// Stores them.
    pub set_chats: Call<fn(id: String, chats: Vec<KeptChat>)>,
    /// The ids of all sessions.
    pub sessions: Call<fn() -> Vec<String>>,
    /// Deletes all data of a session.
    pub forget: Call<fn(id: String)>,
    /// All sessions with their marks. Without it, the host requests them one by one.
    pub all: Option<Call<fn() -> Vec<StoredSession>>>,
    /// One session with its marks and chats, or nothing. Without it, the host requests them separately.
    pub session: Option<Call<fn(id: String) -> Option<StoredSession>>>,
    /// A page of the listing: up to `limit` sessions after a position, the latest `modifiedAt` first, then by `uri`,
    /// both compared as text. Fewer than `limit` only on the last page. A store with `page`, `sessionOfChat` and
    /// `drafts` is read on demand; from any other, every session is loaded at the start.
    pub page: Option<Call<fn(limit: u64, after: Option<ListedPlace>) -> Vec<StoredSession>>>,
    /// The id of the session with an open chat of that URI, or nothing; the first stored one if there are several.
    /// Default chats with the host's URI can be omitted.
    pub session_of_chat: Option<Call<fn(chat: String) -> Option<String>>>,
    /// The ids of the sessions with `draft`.
    pub drafts: Option<Call<fn() -> Vec<String>>>,
    /// The ids of the sessions with a chat that has `queued` or `starting`, or with a turn that is `unended` in a chat that the
    /// list of chats, if there is one, contains. After its start the host sends the messages to their agents, and lists the turns
    /// as failed; in a cluster, also when another host is lost. Sessions that another host is serving can be omitted. Without it, all this waits until somebody uses the session.
    pub waiting: Option<Call<fn() -> Vec<String>>>,
    /// The number of sessions. Without it, the host counts `sessions()`.
    pub count: Option<Call<fn() -> u64>>,
    /// The turns of a chat, oldest first. Without all three turn functions, the host stores turns itself.
    pub turns: Option<Call<fn(id: String, chat: String) -> Vec<KeptTurn>>>,
    /// Stores a turn at a position, replacing the one there.
    pub set_turn: Option<Call<fn(id: String, chat: String, place: u64, turn: KeptTurn)>>,
    /// Deletes the turns of a chat from a position on.
    pub drop_turns: Option<Call<fn(id: String, chat: String, from: u64)>>,
    /// The annotations of a session. Without this and `setAnnotations`, the host stores annotations itself.
    pub annotations: Option<Call<fn(id: String) -> Vec<Value>>>,
    /// Stores them.
    pub set_annotations: Option<Call<fn(id: String, annotations: Vec<Value>)>>,
    /// What the session's backend reported beside its turns, such as its customizations; an empty object if nothing is stored.
    /// Without this and `setReported`, the host stores it itself.
    pub reported: Option<Call<fn(id: String) -> JsonObject>>,
    /// Stores it.
    pub set_reported: Option<Call<fn(id: String, reported: JsonObject)>>,
    /// Stores an attachment of a session; equal ids have equal content. Without both attachment functions, the host
    /// stores attachments itself.
    pub set_attachment: Option<Call<fn(id: String, attachment: String, content: KeptAttachment)>>,
    /// An attachment by its id, of any session, or nothing.
    pub attachment: Option<Call<fn(attachment: String) -> Option<KeptAttachment>>>,
    /// Called once when the host closes, after its sessions and the plugins' close functions: writes pending data.
    pub close: Option<Call<fn()>>,
}

impl SessionStore {
    /// Returns whether the store stores attachments.
    pub fn keeps_attachments(&self) -> bool {
        self.set_attachment.is_some() && self.attachment.is_some()
    }

    /// Returns whether the store stores turns.
    pub fn keeps_turns(&self) -> bool {
        self.turns.is_some() && self.set_turn.is_some() && self.drop_turns.is_some()
    }

    /// Returns whether sessions can be read on demand instead of at the start.
    pub fn reads_on_demand(&self) -> bool {
        self.page.is_some() && self.session_of_chat.is_some() && self.drafts.is_some()
    }

    /// Returns whether the store stores annotations.
    pub fn keeps_annotations(&self) -> bool {
        self.annotations.is_some() && self.set_annotations.is_some()
    }

    /// Returns whether the store stores what backends reported.
    pub fn keeps_reported(&self) -> bool {
        self.reported.is_some() && self.set_reported.is_some()
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
    /// A user has seen the latest output.
    #[serde(default)]
    pub is_read: bool,
    /// The session is archived.
    #[serde(default)]
    pub is_archived: bool,
}

/// The record of a session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct KeptSession {
    /// Its URI in listings.
    pub uri: String,
    /// Its backend.
    pub provider: String,
    /// Owner: `user:<id>`, `plugin:<id>`, …; absent without a users file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Another owner in whose name it works, such as that of the bot that answers in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub works_for: Option<String>,
    /// The client that created it, whose tokens its backend receives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Its title.
    pub title: String,
    /// Time of creation, ISO 8601; never changes.
    pub created_at: String,
    /// Time of the last change, ISO 8601.
    pub modified_at: String,
    /// Values of its settings.
    #[serde(default)]
    pub values: JsonObject,
    /// Directories as `file://` URIs.
    #[serde(default)]
    pub working_directories: Vec<String>,
    /// What its directory belongs to, as far as it is known: `{ uri, displayName }`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<Value>,
    /// The facts about its directory that were read last, such as its branch; listings show them.
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    pub facts: JsonObject,
    /// What its backend added to its `_meta`; listings show it.
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    pub meta: JsonObject,
    /// What its backend says it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity: Option<String>,
    /// What created it, if not a user: `{ kind: "automation", automation, run }`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Value>,
    /// The backend's id of the conversation to continue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend_id: Option<String>,
    /// Its working tree, which is removed with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worktree: Option<super::Worktree>,
    /// `{ team, project }` that is charged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Value>,
    /// The model of its first turn, if the session was started with one and without a prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Present while the session is a draft: a client created it, and no turn has started; or `moving`, `creating` or
    /// `detached`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draft: Option<KeptDraft>,
    /// Numbers of its annotations.
    #[serde(default, skip_serializing_if = "AnnotationCounts::is_none")]
    pub annotations: AnnotationCounts,
    /// Which of its customizations were switched on or off: the decisions by id, as clients made them.
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    pub toggled: JsonObject,
    /// Which files of its changesets users reviewed: by the changeset's scope, fingerprints of the changes by file.
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    pub reviewed: JsonObject,
}

/// Numbers of annotations of a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct AnnotationCounts {
    /// Annotations.
    pub annotations: u64,
    /// Entries of all annotations.
    pub entries: u64,
}

impl AnnotationCounts {
    fn is_none(&self) -> bool {
        self.annotations == 0
    }
}

/// The state of a session that is not announced or listed before its first turn, or that is being made for a chat of another
/// session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct KeptDraft {
    /// The client that created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Whether its chats are being moved from another session, which may be stored with them too. After a crash the host
    /// removes them from the other one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub moving: bool,
    /// Whether the session is stored only for its working tree, which is being created. After a crash the host removes
    /// both.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub creating: bool,
    /// The session for which a client requested a detached working tree. The record is of that tree then, and not of a
    /// session; its id is the tree's handle, and its time of the last change is when a client last named the tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detached: Option<String>,
}

/// A session with its marks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct StoredSession {
    /// Its id.
    pub id: String,
    /// Its record.
    pub session: KeptSession,
    /// Its marks.
    #[serde(default)]
    pub flags: SessionFlags,
    /// Its chats. Without them, the host requests them per session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chats: Option<Vec<KeptChat>>,
}

/// A position in the listing of sessions: the last session of a page.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct ListedPlace {
    /// Its `modifiedAt`.
    pub modified_at: String,
    /// Its URI.
    pub uri: String,
}

/// A chat of a session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct KeptChat {
    /// Its URI.
    pub uri: String,
    /// The name of its conversation at the backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend_id: Option<String>,
    /// Its title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Its origin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Value>,
    /// Whether it is the session's default chat.
    #[serde(default)]
    pub default: bool,
    /// Whether it was closed: its conversation is not reused and not listed.
    #[serde(default)]
    pub closed: bool,
    /// In the chat of a worker: the URI of the chat whose backend runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_of: Option<String>,
    /// What its backend says it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity: Option<String>,
    /// Whether its latest turn failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// Queued messages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queued: Vec<Value>,
    /// The draft of a user's message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draft: Option<Value>,
    /// Whether its title was derived from its first message; otherwise it was set.
    #[serde(default)]
    pub derived: bool,
    /// The session's directories that it uses, as `file://` URIs. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directories: Option<Vec<String>>,
    /// Its marks.
    #[serde(default)]
    pub flags: SessionFlags,
    /// Hidden context for the first turn of its conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Whether its backend has received the context.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub told: bool,
    /// Whether its backend has not been informed yet of removed turns.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rewind: bool,
    /// The queued message whose turn is being started. It is queued again if the turn is not in the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starting: Option<StartingTurn>,
    /// The client that created it, if it is not the client of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lender: Option<Lender>,
    /// Time of the last change, ISO 8601. Default: the one of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified_at: Option<String>,
}

impl KeptChat {
    /// Returns whether messages wait in it.
    pub fn waits(&self) -> bool {
        !self.queued.is_empty() || self.starting.is_some()
    }
}

/// A client whose tokens the backend of a chat receives.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct Lender {
    /// The client.
    pub client: String,
    /// The owner of its work; absent without a users file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

/// A turn that uses a queued message.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct StartingTurn {
    /// The turn's id.
    pub turn: String,
    /// The queued message.
    pub queued: Value,
}

/// An attachment of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct KeptAttachment {
    /// Media type.
    pub content_type: String,
    /// Bytes as base64.
    pub data: String,
}

/// A stored turn, finished or running.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct KeptTurn {
    /// The turn. A running turn is stored as failed, which is its state after a crash.
    pub turn: Turn,
    /// Whether it had not ended when it was stored. The name is one that no tool or agent uses in what a turn has of them, so that
    /// stores can look for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unended: bool,
    /// In a turn that has not ended: the part of its usage that was charged before, because the turn goes on after it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charged_usage: Option<UsageInfo>,
    /// Whether the end of the host broke it and a start has recorded that. Turns that an earlier version broke do not have it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub broken: bool,
    /// The sender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<String>,
    /// The backend's name of the turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transcript_id: Option<String>,
}
