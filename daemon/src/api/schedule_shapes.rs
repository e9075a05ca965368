//! The shapes of an automation's schedules.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An automation with its schedules.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduledAutomation {
    /// Its id.
    pub id: String,
    /// Its title.
    pub title: String,
    /// Whether it is enabled.
    pub enabled: bool,
    /// Its schedules.
    pub schedules: Vec<ShownSchedule>,
    /// When it is due next, at most five times; none while it is disabled.
    pub next: Vec<NextTime>,
}

/// A schedule.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShownSchedule {
    /// The id of its trigger.
    pub trigger: String,
    /// The cron expression.
    pub expression: String,
    /// The time zone of the expression.
    pub time_zone: String,
    /// The expression in English.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_words: Option<String>,
}

/// A time at which an automation is due.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NextTime {
    /// The time, ISO 8601 in UTC.
    pub at: String,
    /// The same time in the time zone of its schedule, with the offset.
    pub local: String,
    /// That time zone.
    pub time_zone: String,
}
