//! Events of plugins that no automation waits for, for the list of problems: whoever sends them gets no error.

use std::collections::BTreeMap;
use std::time::SystemTime;

use ostler_contract::JsonObject;
use ostler_contract::points::TriggerType;
use ostler_contract::problems::{Finding, KnownProblem, ProblemKind};
use ostler_protocol::sent::SentFields;
use parking_lot::Mutex;

use super::Automations;
use super::triggers::required_keys;

/// How many kinds of events are remembered. Only those whose sender is known are, so a stranger adds none.
const REMEMBERED: usize = 100;

/// The events, by type, event id and the values of the keys that the type requires of a trigger's config, with the time at
/// which one came first.
#[derive(Debug, Default)]
pub(super) struct UnheardEvents(Mutex<BTreeMap<(String, String, String), (JsonObject, SystemTime)>>);

impl Automations {
    /// Remembers an event that fired no trigger, if its type requires something of each trigger by which it can be told
    /// from events that a trigger leaves out on purpose.
    pub(super) fn note_unheard(&self, r#type: &str, event: &str, data: SentFields<'_>) {
        let Some(required) = self.required_config(r#type, data) else { return };
        let key =
            (r#type.to_owned(), event.to_owned(), serde_json::Value::from(required.clone()).to_string());
        let mut unheard = self.unheard_events.0.lock();
        if unheard.len() < REMEMBERED {
            unheard.entry(key).or_insert((required, SystemTime::now()));
        }
    }

    fn required_config(&self, r#type: &str, data: SentFields<'_>) -> Option<JsonObject> {
        let registry = self.core.registry()?;
        let kind = registry.all::<TriggerType>().iter().find(|held| *held.r#type == *r#type)?;
        let values: JsonObject = required_keys(kind)
            .map(|key| Some((key.to_owned(), data.get(key)?.value().clone())))
            .collect::<Option<_>>()?;
        (!values.is_empty()).then_some(values)
    }

    /// Returns the remembered events that still no automation waits for, and forgets the others.
    pub(crate) fn unheard_problems(&self) -> Vec<KnownProblem> {
        let index = self.index.read();
        let mut unheard = self.unheard_events.0.lock();
        unheard.retain(|(r#type, event, _), (required, _)| !index.waits_for(r#type, event, required));
        let problem = |((r#type, event, _), (required, since)): (
            &(String, String, String),
            &(JsonObject, SystemTime),
        )| {
            let values: Vec<String> = required.iter().map(|(key, value)| format!("{key}: {value}")).collect();
            let values = values.join(", ");
            let found = format!(
                "events of type {type} with {values} start nothing: no enabled automation has a trigger of type {type} \
                 for {event} with config: {{ {values} }}"
            );
            let fix = "enable or correct the automation (ostler automation list), or remove what sends them";
            KnownProblem {
                kind: ProblemKind::Automations,
                place: format!("{type} {values}"),
                finding: Finding::error(found).fixed_by(fix),
                since: *since,
            }
        };
        unheard.iter().map(problem).collect()
    }
}
