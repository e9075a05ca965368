//! Validates a definition so that its triggers can fire. A definition that a client saves is rejected; for one from a
//! file the problem is logged.

use ostler_contract::points::{AutomationStore, KeptAutomation, TriggerType};
use ostler_contract::problems::{Finding, ProblemKind};
use ostler_contract::registry::Owned;
use ostler_contract::{Thrown, limit};
use ostler_protocol::template::invalid_paths;
use ostler_protocol::wire::state::{AutomationDefinition, AutomationTrigger};

use super::rule::{Rule, SESSION, WATCH};
use super::schedule::Schedule;
use super::settings::AutomationSettings;
use super::triggers::{Lacking, lacking};
use super::watching::is_watched_type;
use crate::Automations;

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
                "schedules do not fire on this host: its store does not record their progress".to_owned()
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

/// Lists and logs what prevents an automation's triggers from firing, and which of its settings do not apply, on a host whose
/// schedules fire or do not.
pub(super) fn set_problems(
    automations: &Automations,
    id: &str,
    definition: &AutomationDefinition,
    lacking: &[Lacking],
    schedules: bool,
) {
    let settings =
        AutomationSettings::of(definition).check().err().map(|why| format!("{why}; using overlap: queue"));
    let mut findings: Vec<Finding> = settings
        .into_iter()
        .chain(AutomationSettings::unread(definition))
        .map(|why| Finding::warning(format!("automation {id}: {why}")))
        .collect();
    findings.extend(lacking.iter().map(|lacking| Finding::error(lacking.line(id))));
    findings.extend(invalid_paths(&definition.message.text).map(|why| {
        Finding::warning(format!("automation {id}: a placeholder of its message is always empty: {why}"))
    }));
    for trigger in &definition.triggers {
        let name = match trigger {
            AutomationTrigger::Schedule(trigger) => &trigger.id,
            AutomationTrigger::Event(trigger) => &trigger.id,
        };
        let never = stops_trigger(automations, trigger, schedules);
        findings
            .extend(never.map(|why| {
                Finding::error(format!("automation {id}: its trigger {name} never fires: {why}"))
            }));
        findings.extend(unoffered_events(automations, trigger).into_iter().map(|why| {
            Finding::error(format!(
                "automation {id}: trigger {name}: no loaded plugin offers the event {why}"
            ))
        }));
    }
    let fix = format!("correct automations/{id}.md, or change the automation with a client");
    // One that is disabled starts nothing, as its owner wants.
    let of_owner = |finding: Finding| Finding { is_error: finding.is_error && definition.enabled, ..finding };
    let findings = findings.into_iter().map(|finding| of_owner(finding).fixed_by(&fix)).collect();
    automations.core.log.set_problems(ProblemKind::Automations, &format!("automation {id}"), findings);
}

impl Automations {
    /// Lists what is wrong with the automations of a store that is not that of this host, and whose schedules fire.
    ///
    /// # Errors
    /// Why the store cannot be read.
    pub async fn judge(&self, store: &AutomationStore) -> Result<(), Thrown> {
        for KeptAutomation { id, definition, .. } in store.list.read(limit::STORE_SCAN, ()).await.known()? {
            set_problems(self, &id, &definition, &lacking(self, &definition), true);
        }
        Ok(())
    }
}

fn stops_trigger(automations: &Automations, trigger: &AutomationTrigger, schedules: bool) -> Option<String> {
    if let Err(why) = check_trigger(trigger) {
        return Some(why);
    }
    match trigger {
        AutomationTrigger::Schedule(trigger) => {
            if !schedules {
                return Some("schedules do not fire on this host".to_owned());
            }
            let next = Schedule::read(&trigger.schedule).ok()?.after(automations.core.clock.now());
            next.is_none().then(|| "its schedule has no next time".to_owned())
        }
        AutomationTrigger::Event(trigger) => {
            let types = types_of_plugins(automations)?;
            let offered = |r#type: &str| types.iter().any(|held| *held.r#type == *r#type);
            (!is_watched_type(&trigger.r#type) && !offered(&trigger.r#type)).then(|| {
                let own = [SESSION, WATCH];
                let offered: Vec<&str> =
                    own.into_iter().chain(types.iter().map(|held| &*held.r#type)).collect();
                format!("no loaded plugin offers the type {}, only {}", trigger.r#type, offered.join(", "))
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
        .map(|event| format!("{}; {} offers only {}", event.id, trigger.r#type, offered.join(", ")))
        .collect()
}

fn types_of_plugins(automations: &Automations) -> Option<Vec<Owned<TriggerType>>> {
    Some(automations.core.registry()?.all::<TriggerType>().to_vec())
}
