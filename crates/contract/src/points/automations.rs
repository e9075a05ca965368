//! The automation store: definitions and runs. The host matches events, starts runs and records their results. Spec:
//! *Registration methods*.

use ostler_contract_derive::Cross;
use ostler_protocol::wire::state::{
    AutomationDefinition, AutomationDefinitionPatch, AutomationRunState, AutomationTriggerDefinition,
};
use serde::{Deserialize, Serialize};

use super::{ChangeType, PortValue};
use crate::call::{Call, HostFunction};

/// The store of automations and their runs.
#[derive(Debug, Clone, Default, Cross)]
pub struct AutomationStore {
    /// All automations.
    pub list: Call<fn() -> Vec<KeptAutomation>>,
    /// One automation, or nothing if it does not exist. While this fails, the accepted runs of the automation wait.
    pub get: Call<fn(id: String) -> Option<KeptAutomation>>,
    /// Event types of this store's automations in addition to those of the host and of plugins.
    pub triggers: Call<fn() -> Vec<AutomationTriggerDefinition>>,
    /// Stores a new automation, which has no runs.
    pub create:
        Call<fn(id: String, definition: AutomationDefinition, owner: Option<String>) -> KeptAutomation>,
    /// Changes an automation; absent keys are unchanged.
    pub update: Call<fn(id: String, changes: AutomationDefinitionPatch) -> KeptAutomation>,
    /// Deletes an automation; `true` if it existed.
    pub remove: Call<fn(id: String) -> bool>,
    /// Stores a run, replacing the one with its URI. When it resolves, the run is durable.
    pub run: Call<fn(run: AutomationRunState)>,
    /// One run by its URI, or nothing.
    pub run_of: Call<fn(uri: String) -> Option<AutomationRunState>>,
    /// The runs of an automation, newest first, in pages.
    pub runs: Call<fn(id: String, cursor: Option<String>) -> RunPage>,
    /// The runs of all automations that a query asks for, newest first, in pages. Without this, the runs of one automation can
    /// be listed at a time.
    pub find_runs: Option<Call<fn(query: RunQuery) -> RunPage>>,
    /// Calls back with the URIs of runs that the store removed by its own rules; returns the function that stops it. Runs that
    /// are removed with their automation are not reported.
    pub watch_removed_runs:
        Option<Call<fn(on_removed: HostFunction<fn(runs: Vec<String>)>) -> Option<Call<fn()>>>>,
    /// Calls back after a definition changed outside the host; returns the function that stops it.
    pub watch: Option<Call<fn(on_change: HostFunction<fn(change: AutomationChange)>) -> Option<Call<fn()>>>>,
    /// The runs that had not ended when the host stopped.
    pub unfinished: Option<Call<fn() -> Vec<AutomationRunState>>>,
    /// The progress of an automation's schedules, or nothing. Without this and `keep_progress`, schedules do not fire.
    pub progress: Option<Call<fn(id: String) -> Option<AutomationProgress>>>,
    /// Stores the progress of an automation's schedules.
    pub keep_progress: Option<Call<fn(id: String, progress: AutomationProgress)>>,
    /// Location of the definitions, for the announcement.
    pub place: Option<String>,
    /// Called once when the host closes, after its sessions and the plugins' close functions: writes pending data.
    pub close: Option<Call<fn()>>,
}

impl PortValue for AutomationStore {
    const NAME: &'static str = "automations";
}

/// A stored automation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct KeptAutomation {
    /// Its id, the last segment of its URI.
    pub id: String,
    /// The definition.
    pub definition: AutomationDefinition,
    /// The owner, which does not change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Time of creation, ISO 8601.
    pub created_at: String,
    /// Time of the last change, ISO 8601.
    pub modified_at: String,
}

/// The progress of an automation's schedules.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct AutomationProgress {
    /// Its schedule triggers.
    pub schedules: Vec<ScheduleProgress>,
    /// Scheduled runs counted for `afterRuns`; absent without that condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_count: Option<i64>,
}

/// The progress of one schedule trigger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct ScheduleProgress {
    /// Id of the trigger.
    pub trigger: String,
    /// The expression from which `next` was computed.
    pub expression: String,
    /// Its time zone.
    pub time_zone: String,
    /// The earliest occurrence that was not handled, ISO 8601.
    pub next: String,
}

/// Which runs are asked for. A field that is absent asks for all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct RunQuery {
    /// Id of the automation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub automation: Option<String>,
    /// State: `pending`, `running`, `completed`, `failed` or `cancelled`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Owner of the automation when the run was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Accepted at this time or later, ISO 8601.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Accepted before this time, ISO 8601.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Words that all occur in the run: in the automation's title or id, the event, the error, the owner or a session. A
    /// word with `*` at its end stands for every word that begins so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Where the previous page ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Maximum number of runs. A page may have fewer, and is the last one only if it has no cursor.
    pub limit: u64,
}

/// A page of runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct RunPage {
    /// Newest first.
    pub runs: Vec<AutomationRunState>,
    /// Cursor of the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// A definition that changed outside the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct AutomationChange {
    /// Id of the automation.
    pub id: String,
    /// Kind of change.
    pub r#type: ChangeType,
}
