//! What an automation's definition has to hold to beyond its types.

use ostler_contract::protocol::wire::state::{
    AutomationDefinition, AutomationDisableCondition, AutomationTrigger,
};

/// The error says what is wrong and where.
pub(super) fn check(definition: &AutomationDefinition) -> Result<(), String> {
    if definition.title.trim().is_empty() {
        return Err("title must be a non-empty string".to_owned());
    }
    let mut ids = Vec::new();
    for (at, trigger) in definition.triggers.iter().enumerate() {
        let (id, events) = match trigger {
            AutomationTrigger::Schedule(trigger) => (&trigger.id, None),
            AutomationTrigger::Event(trigger) => (&trigger.id, Some(&trigger.events)),
        };
        if id.trim().is_empty() {
            return Err(format!("triggers[{at}].id must be a non-empty string"));
        }
        if ids.contains(&id) {
            return Err(format!("triggers[{at}].id must be one no other trigger has"));
        }
        ids.push(id);
        if events.is_some_and(Vec::is_empty) {
            return Err(format!("triggers[{at}].events must be a list with at least one event"));
        }
    }
    let mut kinds = Vec::new();
    for (at, condition) in definition.disable_conditions.iter().flatten().enumerate() {
        let kind = match condition {
            AutomationDisableCondition::AfterRuns(condition) if condition.max < 1 => {
                return Err(format!("disableConditions[{at}].max must be a whole number of 1 or more"));
            }
            AutomationDisableCondition::AfterDate(condition) if !is_timestamp(&condition.date) => {
                return Err(format!("disableConditions[{at}].date must be {TIMESTAMP}"));
            }
            AutomationDisableCondition::AfterRuns(_) => "afterRuns",
            AutomationDisableCondition::AfterDate(_) => "afterDate",
        };
        if kinds.contains(&kind) {
            return Err(format!(
                "disableConditions[{at}].kind must be one no other condition has; {kind} is named twice"
            ));
        }
        kinds.push(kind);
    }
    Ok(())
}

pub(super) const TIMESTAMP: &str = "a timestamp, such as 2026-01-31T12:00:00Z";

pub(super) fn is_timestamp(text: &str) -> bool {
    text.parse::<jiff::Timestamp>().is_ok()
}
