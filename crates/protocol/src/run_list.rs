//! Runs of automations as they are listed: the query of `x-ostler/runs/list`, of `GET /api/runs` and of `ostler automation
//! runs`, and their answer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::JsonObject;

/// Which runs are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunFilter {
    /// Id or URI of the automation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub automation: Option<String>,
    /// State of the run.
    #[schemars(extend("enum" = ["pending", "running", "completed", "failed", "cancelled"]))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Owner of the run, such as `user:ada`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Accepted at this time or later.
    #[schemars(extend("format" = "date-time"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Accepted before this time.
    #[schemars(extend("format" = "date-time"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Words that all occur in the run: in the automation's title or id, the event, the error, the owner or a session. A
    /// word with `*` at its end stands for every word that begins so; at most eight words count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// `next` of the previous page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Maximum number of runs. Default: 50.
    #[schemars(range(min = 1, max = 500))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// A page of runs, newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunList {
    /// The runs. A page may have fewer than asked for.
    pub runs: Vec<Run>,
    /// Cursor of the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A run of an automation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// The id.
    pub id: String,
    /// The URI, which clients of the protocol subscribe to.
    pub uri: String,
    /// Where people open it: its page of the web console, or else its address in the API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Id of the automation.
    pub automation: String,
    /// Title of the automation, if it exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The state.
    #[schemars(extend("enum" = ["pending", "running", "completed", "failed", "cancelled"]))]
    pub state: String,
    /// Why it failed; in lists, the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Owner of the automation when the run was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Who started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub triggered_by: Option<String>,
    /// Id of the trigger; absent for a run that was started by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<String>,
    /// Data of the event; in lists, only up to 4 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<JsonObject>,
    /// When it was accepted, ISO 8601.
    pub accepted_at: String,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// What was done with its changes after its turn, if its automation says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<RunOperation>,
    /// URI of the session to open first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// URIs of its sessions; absent in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<Vec<String>>,
}

/// The operation of a run after its turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunOperation {
    /// The operation.
    #[schemars(extend("enum" = ["commit", "create-pr"]))]
    pub operation: String,
    /// Its state.
    #[schemars(extend("enum" = ["running", "done", "failed"]))]
    pub state: String,
    /// What it did, such as the commit, or why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// URL of the pull request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}
