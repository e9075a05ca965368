//! Validates a definition so that its triggers can fire. A definition that a client saves is rejected; for one from a
//! file the problem is logged.

use ostler_contract::points::TriggerType;
use ostler_contract::registry::Owned;
use ostler_protocol::template::invalid_paths;
use ostler_protocol::wire::state::{AutomationDefinition, AutomationTrigger};

use super::rule::{Rule, SESSION, WATCH};
use super::schedule::Schedule;
use super::settings::AutomationSettings;
use super::watching::is_watched_type;
use crate::automations::Automations;

/// Checks whether a definition can be stored. Only `triggers` are validated, so that problems of triggers saved earlier
/// do not reject a change that leaves them out.
pub(super) fn check(
    definition: &AutomationDefinition,
    triggers: Option<&[AutomationTrigger]>,
    schedules: bool,
) -> Result<(), String> {
    if definition.title.trim().is_empty() {
        return Err("an automation needs a title".to_owned());
    }
    AutomationSettings::of(definition).check()?;
    for trigger in triggers.unwrap_or_default() {
        if matches!(trigger, AutomationTrigger::Schedule(_)) && !schedules {
            return Err(
                "schedules do not fire on this host, which does not keep how far they have come".to_owned()
            );
        }
        check_trigger(trigger)?;
    }
    Ok(())
}

fn check_trigger(trigger: &AutomationTrigger) -> Result<(), String> {
    match trigger {
        AutomationTrigger::Schedule(trigger) => Schedule::read(&trigger.schedule).map(drop),
        AutomationTrigger::Event(trigger) if is_watched_type(&trigger.r#type) => {
            Rule::read(trigger).map(drop)
        }
        AutomationTrigger::Event(_) => Ok(()),
    }
}

/// Logs what prevents an automation's triggers from firing.
pub(super) fn log_problems(automations: &Automations, id: &str, definition: &AutomationDefinition) {
    if let Err(why) = AutomationSettings::of(definition).check() {
        automations.core.log.warn(format_args!("automation {id}: {why}; it queues"));
    }
    for unread in AutomationSettings::unread(definition) {
        automations.core.log.warn(format_args!("automation {id}: {unread}"));
    }
    for why in invalid_paths(&definition.message.text) {
        automations
            .core
            .log
            .warn(format_args!("automation {id}: a placeholder of its message is always empty: {why}"));
    }
    for trigger in &definition.triggers {
        let name = match trigger {
            AutomationTrigger::Schedule(trigger) => &trigger.id,
            AutomationTrigger::Event(trigger) => &trigger.id,
        };
        if let Some(why) = stops_trigger(automations, trigger) {
            automations.core.log.warn(format_args!("automation {id}: its trigger {name} never fires: {why}"));
        }
        for why in unoffered_events(automations, trigger) {
            automations
                .core
                .log
                .warn(format_args!("automation {id}: its trigger {name} waits in vain for {why}"));
        }
    }
}

fn stops_trigger(automations: &Automations, trigger: &AutomationTrigger) -> Option<String> {
    if let Err(why) = check_trigger(trigger) {
        return Some(why);
    }
    match trigger {
        AutomationTrigger::Schedule(_) => {
            (!automations.keeps_schedules()).then(|| "schedules do not fire on this host".to_owned())
        }
        AutomationTrigger::Event(trigger) => {
            let types = types_of_plugins(automations)?;
            let offered = |r#type: &str| types.iter().any(|held| *held.r#type == *r#type);
            (!is_watched_type(&trigger.r#type) && !offered(&trigger.r#type)).then(|| {
                let own = [SESSION, WATCH];
                let offered: Vec<&str> =
                    own.into_iter().chain(types.iter().map(|held| &*held.r#type)).collect();
                format!("nothing here offers the type {}, only {}", trigger.r#type, offered.join(", "))
            })
        }
    }
}

/// Returns the events of a trigger that its type, registered by a plugin, does not offer. A client may still save them,
/// because the plugin may offer them later.
fn unoffered_events(automations: &Automations, trigger: &AutomationTrigger) -> Vec<String> {
    let AutomationTrigger::Event(trigger) = trigger else { return Vec::new() };
    let types = types_of_plugins(automations).unwrap_or_default();
    let Some(held) = types.iter().find(|held| *held.r#type == *trigger.r#type) else { return Vec::new() };
    let offered: Vec<&str> = held.events.iter().map(|event| &*event.id).collect();
    let unoffered = trigger.events.iter().filter(|event| !offered.contains(&event.id.as_str()));
    unoffered
        .map(|event| format!("{}: {} offers only {}", event.id, trigger.r#type, offered.join(", ")))
        .collect()
}

fn types_of_plugins(automations: &Automations) -> Option<Vec<Owned<TriggerType>>> {
    Some(automations.core.registry()?.all::<TriggerType>().to_vec())
}
