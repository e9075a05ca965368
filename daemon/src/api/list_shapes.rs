//! What the requests take and return that list sessions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which sessions are asked for.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
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
