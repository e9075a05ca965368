//! Automations: valid ids and definitions, changes of a definition, and the errors of a store.

use ostler_protocol::RpcError;
use ostler_protocol::wire::state::{
    AutomationDefinition, AutomationDefinitionPatch, AutomationDisableCondition, AutomationTrigger, Message,
    MessageKind, MessageOrigin,
};

use crate::thrown::Thrown;

/// The longest id: a UUID fits twice.
const ID_MAX: usize = 80;

/// Validates an id.
///
/// # Errors
/// The rule for ids.
pub fn check_id(id: &str) -> Result<(), String> {
    let mut bytes = id.bytes();
    let good = bytes.next().is_some_and(|first| first.is_ascii_alphanumeric())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        && id.len() <= ID_MAX;
    if good {
        return Ok(());
    }
    Err(format!(
        "the file name must be the automation's id: letters, digits, dashes and underscores, at most \
         {ID_MAX}, starting with a letter or digit"
    ))
}

/// Validates an id that a client sent.
///
/// # Errors
/// `InvalidParams` with the rule for ids.
pub fn refuse_id(id: &str) -> Result<(), Thrown> {
    check_id(id).map_err(|why| RpcError::invalid_params(why).into())
}

/// Returns the error for an automation that does not exist.
pub fn none_such(id: &str) -> Thrown {
    let uri = ostler_protocol::uri::automation(id);
    RpcError::session_not_found(format!("No automation at {uri}")).into()
}

/// Returns the error for an automation that exists already.
pub fn exists(id: &str) -> Thrown {
    let uri = ostler_protocol::uri::automation(id);
    RpcError::already_exists(format!("{uri} already exists")).into()
}

/// Returns a message as automations store it: with the protocol's origin for it, without blank lines around the text.
pub fn message(message: Message) -> Message {
    let text = message.text.trim_matches(['\n', '\r']).to_owned();
    Message { text, origin: MessageOrigin { kind: MessageKind::Automation }, ..message }
}

/// Returns the definition with the fields of a patch in place of its own. An empty list of conditions removes them.
pub fn patched(definition: &AutomationDefinition, patch: AutomationDefinitionPatch) -> AutomationDefinition {
    let before = definition.clone();
    AutomationDefinition {
        title: patch.title.unwrap_or(before.title),
        message: patch.message.map_or(before.message, message),
        session: patch.session.unwrap_or(before.session),
        enabled: patch.enabled.unwrap_or(before.enabled),
        triggers: patch.triggers.unwrap_or(before.triggers),
        disable_conditions: patch
            .disable_conditions
            .map_or(before.disable_conditions, |conditions| Some(conditions).filter(|some| !some.is_empty())),
        meta: patch.meta.map_or(before.meta, |meta| Some(meta).filter(|some| !some.is_empty())),
    }
}

/// Formats a time as ISO 8601 with milliseconds.
pub fn iso(at: jiff::Timestamp) -> String {
    format!("{at:.3}")
}

/// Validates a definition beyond its types.
///
/// # Errors
/// What is wrong, and where.
pub fn check(definition: &AutomationDefinition) -> Result<(), String> {
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
            return Err(format!("triggers[{at}].id must be unique"));
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
            return Err(format!("disableConditions[{at}].kind must be unique; {kind} is named twice"));
        }
        kinds.push(kind);
    }
    Ok(())
}

/// The form of a time, for errors.
pub const TIMESTAMP: &str = "a timestamp, such as 2026-01-31T12:00:00Z";

/// Returns whether a text is a time.
pub fn is_timestamp(text: &str) -> bool {
    text.parse::<jiff::Timestamp>().is_ok()
}
