//! What the requests take and return that list sessions.

use ostler_contract::{JsonObject, Value};
use ostler_protocol::wire::state::{ChatState, SessionOrigin, SessionStatus, SessionSummary};
use ostler_protocol::{names, uri};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::pending::PendingRequest;

/// The state of a session that waits for input.
pub const WAITING: &str = "waiting";
/// The same, as messages name it.
pub const INPUT_NEEDED: &str = "input needed";
/// How many sessions a page has where nothing is said.
pub const PAGE: u32 = 50;
/// The path of the list of sessions.
pub const SESSIONS: &str = "/api/sessions";
/// The path of one session, before its id.
pub const SESSION: &str = "/api/sessions/";
/// How the error begins of a session that does not exist.
pub const NO_SESSION: &str = "There is no session ";
/// The error of a cursor that is not one.
pub const NO_CURSOR: &str = "cursor is not one of this list";

/// Which sessions are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionFilter {
    /// The backend.
    pub provider: Option<String>,
    /// Owner of the session, such as `user:ada`.
    pub owner: Option<String>,
    /// Whether it waits for input.
    pub waiting: Option<bool>,
    /// Whether it is archived.
    pub archived: Option<bool>,
    /// Words that all occur in the title, the id, the owner or a working directory.
    pub text: Option<String>,
    /// `next` of the previous page.
    pub cursor: Option<String>,
    /// Maximum number of sessions. Default: 50.
    #[schemars(range(min = 1, max = 500))]
    pub limit: Option<u32>,
}

/// How much of a session is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionDetail {
    /// Maximum number of last turns of its default chat. Default: 0.
    #[schemars(range(min = 0, max = 100))]
    pub turns: Option<u32>,
}

/// A page of sessions, the one modified last first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SessionList {
    /// The sessions. A page may have fewer than asked for.
    pub sessions: Vec<Session>,
    /// Cursor of the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    /// The id.
    pub id: String,
    /// The URI, which clients of the protocol subscribe to.
    pub uri: String,
    /// Where people open it: its page of the web console, or else its address in the API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The backend.
    pub provider: String,
    /// The title; empty before the first turn.
    pub title: String,
    /// What it does.
    #[schemars(extend("enum" = ["idle", "running", "waiting", "failed"]))]
    pub state: String,
    /// What it is doing, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity: Option<String>,
    /// Whether somebody has read it.
    pub read: bool,
    /// Whether it is archived.
    pub archived: bool,
    /// The owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Id of the run that created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// URIs of its working directories.
    pub directories: Vec<String>,
    /// When it was created, ISO 8601.
    pub created_at: String,
    /// When it was modified last.
    pub modified_at: String,
}

/// A session with the last turns of its default chat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionDetails {
    /// The session.
    #[serde(flatten)]
    pub session: Session,
    /// Its chats.
    pub chats: Vec<String>,
    /// What it waits for; absent if it waits for nothing, or if the caller may not see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<Vec<PendingRequest>>,
    /// The last turns of its default chat, in the form of the protocol, oldest first; absent unless asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<Vec<JsonObject>>,
    /// Whether the chat has earlier turns; absent unless turns were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier_turns: Option<bool>,
}

impl SessionFilter {
    /// Returns whether a session is one of those asked for.
    pub fn fits(&self, session: &Session) -> bool {
        let says = |word: &str| {
            let parts = [Some(&session.title), Some(&session.id), session.owner.as_ref()];
            let mut all = parts.into_iter().flatten().chain(&session.directories);
            all.any(|part| part.to_lowercase().contains(word))
        };
        self.provider.as_ref().is_none_or(|wanted| session.provider == *wanted)
            && self.owner.as_ref().is_none_or(|wanted| session.owner.as_ref() == Some(wanted))
            && self.waiting.is_none_or(|wanted| (session.state == WAITING) == wanted)
            && self.archived.is_none_or(|wanted| session.archived == wanted)
            && self.text.as_ref().is_none_or(|text| text.to_lowercase().split_whitespace().all(says))
    }
}

impl Session {
    /// Makes it from the session's entry in a listing, and the URL under which people open it.
    pub fn of(row: &SessionSummary, url: Option<String>) -> Self {
        let has = |status: SessionStatus| row.status & status.bits() == status.bits();
        let owner = row.meta.as_ref().and_then(|meta| meta.get(&names::meta_key("owner"))?.as_str());
        let run = match &row.origin {
            Some(SessionOrigin::Automation(origin)) => origin.run.rsplit('/').next().map(str::to_owned),
            _ => None,
        };
        let state = match () {
            () if has(SessionStatus::InputNeeded) => WAITING,
            () if has(SessionStatus::InProgress) => "running",
            () if has(SessionStatus::Error) => "failed",
            () => "idle",
        };
        Self {
            id: uri::session_id(&row.resource).unwrap_or_default().to_owned(),
            uri: row.resource.clone(),
            url,
            provider: row.provider.clone(),
            title: row.title.clone(),
            state: state.to_owned(),
            activity: row.activity.clone(),
            read: has(SessionStatus::IsRead),
            archived: has(SessionStatus::IsArchived),
            owner: owner.map(str::to_owned),
            run,
            directories: row.working_directories.clone().unwrap_or_default(),
            created_at: row.created_at.clone(),
            modified_at: row.modified_at.clone(),
        }
    }
}

/// Returns at most so many of the last turns of a chat, and whether it has earlier ones.
pub fn last_turns(chat: &ChatState, limit: usize) -> (Vec<JsonObject>, bool) {
    let ended = chat.turns.iter().map(serde_json::to_value);
    let all = ended.chain(chat.active_turn.iter().map(serde_json::to_value));
    let all: Vec<JsonObject> = all
        .filter_map(|turn| match turn {
            Ok(Value::Object(turn)) => Some(turn),
            _ => None,
        })
        .collect();
    let before = all.len().saturating_sub(limit);
    (all.into_iter().skip(before).collect(), before > 0 || chat.turns_next_cursor.is_some())
}

/// The cursor of the page after a session.
pub fn cursor(modified_at: &str, uri: &str) -> String {
    format!("{modified_at}|{uri}")
}

/// When the session before a page was modified, and its URI; `None` unless it is a cursor.
pub fn place(cursor: &str) -> Option<(&str, &str)> {
    cursor.split_once('|').filter(|(at, _)| at.parse::<jiff::Timestamp>().is_ok())
}
