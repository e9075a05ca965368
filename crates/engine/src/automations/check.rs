//! What a definition has to hold to for its triggers to fire: refused where a client saves it, said where a file has
//! it.

use ostler_protocol::wire::state::{AutomationDefinition, AutomationTrigger};

use super::rule::Rule;
use super::schedule::Schedule;
use super::settings::Settings;
use super::watching::is_watched_type;
use crate::host::Host;

/// Whether a definition can be kept. `triggers` are those to look at: a change that leaves them out is not held up
/// by what was saved before.
pub(super) fn check(
    definition: &AutomationDefinition,
    triggers: Option<&[AutomationTrigger]>,
    schedules: bool,
) -> Result<(), String> {
    if definition.title.trim().is_empty() {
        return Err("an automation needs a title".to_owned());
    }
    Settings::of(definition).check()?;
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

/// Says what keeps an automation's triggers from firing.
pub(super) fn log_problems(host: &Host, id: &str, definition: &AutomationDefinition) {
    if let Err(why) = Settings::of(definition).check() {
        host.log.line(format_args!("automation {id}: {why}; it queues"));
    }
    for trigger in &definition.triggers {
        let (name, schedule) = match trigger {
            AutomationTrigger::Schedule(trigger) => (&trigger.id, true),
            AutomationTrigger::Event(trigger) => (&trigger.id, false),
        };
        let why = match check_trigger(trigger) {
            Err(why) => why,
            Ok(()) if schedule && !host.keeps_schedules() => "schedules do not fire on this host".to_owned(),
            Ok(()) => continue,
        };
        host.log.line(format_args!("automation {id}: its trigger {name} never fires: {why}"));
    }
}
