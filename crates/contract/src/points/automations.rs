//! The automation store: definitions and runs. The host matches events, starts runs and settles them; the
//! store keeps. Spec: *Registration methods*.

use ostler_contract_derive::Cross;
use ostler_protocol::wire::state::{
    AutomationDefinition, AutomationDefinitionPatch, AutomationRunState, AutomationTriggerDefinition,
};
use serde::{Deserialize, Serialize};

use super::{ChangeType, PortValue};
use crate::call::Call;

/// Where automations and their runs are kept.
#[derive(Debug, Clone, Default, Cross)]
pub struct AutomationStore {
    /// Every automation.
    pub list: Call<fn() -> Vec<KeptAutomation>>,
    /// One of them, or nothing.
    pub get: Call<fn(id: String) -> Option<KeptAutomation>>,
    /// Event types beyond the host's and the plugins' that this store's automations may wait for.
    pub triggers: Call<fn() -> Vec<AutomationTriggerDefinition>>,
    /// Keeps a new one.
    pub create:
        Call<fn(id: String, definition: AutomationDefinition, owner: Option<String>) -> KeptAutomation>,
    /// Changes one: keys left out stay as they are.
    pub update: Call<fn(id: String, changes: AutomationDefinitionPatch) -> KeptAutomation>,
    /// Forgets one; `true` when there was one.
    pub remove: Call<fn(id: String) -> bool>,
    /// Keeps a run, replacing what its URI held. Once this resolves a crash does not lose it.
    pub run: Call<fn(run: AutomationRunState)>,
    /// One run by its URI, or nothing.
    pub run_of: Call<fn(uri: String) -> Option<AutomationRunState>>,
    /// The runs of an automation, newest first, a page at a time.
    pub runs: Call<fn(id: String, cursor: Option<String>) -> RunPage>,
    /// Calls back after a definition was changed from outside; answers the function that stops it.
    pub watch: Option<Call<fn(on_change: Call<fn(change: AutomationChange)>) -> Option<Call<fn()>>>>,
    /// The runs that had not ended when the host last stopped.
    pub unfinished: Option<Call<fn() -> Vec<AutomationRunState>>>,
    /// How far the schedules of an automation have come, or nothing. A store without this and `keep_progress` has
    /// automations whose schedules do not fire.
    pub progress: Option<Call<fn(id: String) -> Option<AutomationProgress>>>,
    /// Keeps how far the schedules of an automation have come.
    pub keep_progress: Option<Call<fn(id: String, progress: AutomationProgress)>>,
    /// Where definitions are kept, for the announcement.
    pub place: Option<String>,
    /// Called once when the host closes, after its sessions and what plugins do then: keeps what is not kept yet.
    pub close: Option<Call<fn()>>,
}

impl PortValue for AutomationStore {
    const NAME: &'static str = "automations";
}

/// An automation as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct KeptAutomation {
    /// Its id: the last part of its URI.
    pub id: String,
    /// What it does and when.
    pub definition: AutomationDefinition,
    /// Whose it is; fixed when it is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// ISO 8601.
    pub created_at: String,
    /// ISO 8601.
    pub modified_at: String,
}

/// How far the schedules of an automation have come.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct AutomationProgress {
    /// Its schedule triggers.
    pub schedules: Vec<ScheduleProgress>,
    /// Scheduled runs counted against `afterRuns`; absent where there is no such condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_count: Option<i64>,
}

/// How far one schedule trigger has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct ScheduleProgress {
    /// The trigger.
    pub trigger: String,
    /// The expression that `next` was worked out from.
    pub expression: String,
    /// Its time zone.
    pub time_zone: String,
    /// The earliest occurrence that has not been dealt with, ISO 8601.
    pub next: String,
}

/// A page of runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct RunPage {
    /// Newest first.
    pub runs: Vec<AutomationRunState>,
    /// Where the next page begins; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// One definition changed from outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct AutomationChange {
    /// The automation.
    pub id: String,
    /// How.
    pub r#type: ChangeType,
}
