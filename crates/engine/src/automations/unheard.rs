//! What became of an event: the runs that it started, and why automations got none.

use std::collections::HashMap;
use std::sync::Arc;

use ostler_contract::host::Firing;
use ostler_contract::points::TriggerType;
use ostler_contract::read::Read;
use ostler_contract::shared_runs::{EventRecords, FiredOnce};
use ostler_contract::{JsonObject, Pending, Thrown, limit};
use ostler_protocol::Value;
use ostler_protocol::sent::SentObject;
use ostler_protocol::wire::state::{AutomationDefinition, AutomationTrigger};

use super::fire::StoredRunReceiver;
use super::triggers::{canonical, same_field};
use crate::automations::Automations;

/// How many automations are named for one event.
const MOST_NAMED: usize = 8;
/// How many fields of an event are compared to find them.
const MOST_FIELDS: usize = 1_000;
/// The longest text that is compared, in bytes.
const LONGEST_VALUE: usize = 256;

/// Why a wake that was counted elsewhere, or decided by another host, has no run.
const UNCOUNTED: &str =
    "no run counts this event; the log of the host that decides about its runs has the reason";

/// What an event woke.
#[derive(Debug, Default)]
pub(super) struct Woken {
    /// The ids of automations and the runs that they got.
    waits: Vec<(String, StoredRunReceiver)>,
    /// Why there are no others.
    unstarted: Vec<String>,
}

impl Woken {
    /// Adds what an automation got.
    pub fn add(&mut self, automation: &str, got: Result<StoredRunReceiver, String>) {
        match got {
            Ok(wait) => self.waits.push((automation.to_owned(), wait)),
            Err(why) => self.unstarted.push(no_run(automation, &why)),
        }
    }

    /// Returns the runs, once each is stored.
    pub async fn firing(self) -> Result<Firing, Thrown> {
        let Self { waits, mut unstarted } = self;
        let (automations, waits): (Vec<_>, Vec<_>) = waits.into_iter().unzip();
        let stored = stored(waits).await?;
        let without = automations.iter().zip(&stored).filter(|(_, run)| run.is_none());
        unstarted.extend(without.map(|(automation, _)| no_run(automation, UNCOUNTED)));
        Ok(Firing::Started { runs: stored.into_iter().flatten().collect(), unstarted })
    }

    /// Returns the URIs of the runs, once each is stored.
    pub async fn runs(self) -> Result<Vec<String>, Thrown> {
        let stored = stored(self.waits.into_iter().map(|(_, wait)| wait).collect()).await?;
        Ok(stored.into_iter().flatten().collect())
    }
}

async fn stored(waits: Vec<StoredRunReceiver>) -> Result<Vec<Option<String>>, Thrown> {
    let runs = futures::future::join_all(waits).await;
    let lost = |_| Thrown::new("a run this event started could not be stored");
    runs.into_iter().map(|run| run.map_err(lost)).collect()
}

fn no_run(automation: &str, why: &str) -> String {
    format!("automation {automation}: {why}")
}

/// A trigger of an automation, whether or not an event can fire it.
#[derive(Debug)]
struct Declared {
    automation: String,
    trigger: String,
    r#type: String,
    events: Vec<String>,
    config: JsonObject,
    is_enabled: bool,
}

impl Declared {
    /// Returns why an event did not fire it.
    fn why(&self, event: &str, data: &SentObject) -> String {
        let Self { automation, trigger, .. } = self;
        if !self.is_enabled {
            return format!("it is disabled; enable it with: ostler automation enable {automation}");
        }
        if !self.events.iter().any(|named| named == event) {
            return format!("its trigger {trigger} does not name the event {event}");
        }
        let differs = |(key, wanted): &(&String, &Value)| !same_field(key, wanted, data.as_sent());
        let keys: Vec<&str> = self.config.iter().filter(differs).map(|(key, _)| key.as_str()).collect();
        match keys.is_empty() {
            true => format!("its trigger {trigger} lacks a key that its type requires"),
            false => format!("its trigger {trigger} requires another value of {}", keys.join(", ")),
        }
    }

    /// Returns the keys of its list: one without a config is about every event.
    fn keys(&self) -> impl Iterator<Item = (String, String)> {
        let all = self.config.is_empty().then(String::new);
        let values = self.config.iter().map(|(key, value)| value_key(key, value));
        all.into_iter().chain(values).map(|key| (self.r#type.clone(), key))
    }
}

/// Every trigger, by its type and each value of its config.
#[derive(Debug, Default)]
pub(super) struct DeclaredTriggers {
    by_value: HashMap<(String, String), Vec<Arc<Declared>>>,
    of: HashMap<String, Vec<Arc<Declared>>>,
}

impl DeclaredTriggers {
    /// Adds the triggers of an automation that has none here.
    pub fn add(&mut self, id: &str, definition: &AutomationDefinition) {
        for trigger in &definition.triggers {
            let AutomationTrigger::Event(trigger) = trigger else { continue };
            let declared = Arc::new(Declared {
                automation: id.to_owned(),
                trigger: trigger.id.clone(),
                r#type: trigger.r#type.clone(),
                events: trigger.events.iter().map(|event| event.id.clone()).collect(),
                config: trigger.config.clone().unwrap_or_default(),
                is_enabled: definition.enabled,
            });
            for key in declared.keys() {
                self.by_value.entry(key).or_default().push(declared.clone());
            }
            self.of.entry(id.to_owned()).or_default().push(declared);
        }
    }

    /// Removes the triggers of an automation.
    pub fn remove(&mut self, id: &str) {
        for declared in self.of.remove(id).unwrap_or_default() {
            for key in declared.keys() {
                let Some(list) = self.by_value.get_mut(&key) else { continue };
                list.retain(|other| !Arc::ptr_eq(other, &declared));
                if list.is_empty() {
                    self.by_value.remove(&key);
                }
            }
        }
    }

    /// Whether nothing is left.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.by_value.is_empty() && self.of.is_empty()
    }

    /// Returns why an event that fired no trigger did not fire those that share a value with its data.
    pub fn unheard(&self, r#type: &str, event: &str, data: &SentObject) -> Vec<String> {
        if self.of.is_empty() {
            return Vec::new();
        }
        // A long body has many fields, and the plugin's own are the last ones.
        let fields = data.fields.iter().rev().take(MOST_FIELDS).filter(|(_, value)| is_short(value));
        let keys = fields.map(|(key, value)| value_key(key, value)).chain([String::new()]);
        let near = |key| self.by_value.get(&(r#type.to_owned(), key));
        let mut found: Vec<&Arc<Declared>> = keys.filter_map(near).flatten().collect();
        found.sort_by(|a, b| a.automation.cmp(&b.automation));
        found.dedup_by(|later, first| later.automation == first.automation);
        let more = found.len().saturating_sub(MOST_NAMED);
        let mut whys: Vec<String> = found
            .iter()
            .take(MOST_NAMED)
            .map(|declared| no_run(&declared.automation, &declared.why(event, data)))
            .collect();
        if more > 0 {
            whys.push(format!("{more} more automations"));
        }
        whys
    }
}

/// Whether a value of a call is compared with those of triggers.
fn is_short(value: &Value) -> bool {
    match value {
        Value::String(text) => text.len() <= LONGEST_VALUE,
        Value::Array(_) | Value::Object(_) => false,
        _ => true,
    }
}

fn value_key(key: &str, value: &Value) -> String {
    format!("{key}:{}", canonical(value))
}

impl Automations {
    /// Stores the records of an event that matches no automation, and finds out why.
    pub(super) fn fire_unheard(
        self: &Arc<Self>,
        (r#type, event): (&str, &str),
        data: SentObject,
        records: EventRecords,
    ) -> Pending<FiredOnce> {
        let unheard = self.index.read().unheard(r#type, event, &data);
        let fired = self.wake_in_order("", &[], event, SentObject::default(), None, records);
        let (automations, r#type) = (self.clone(), r#type.to_owned());
        Box::pin(async move {
            let mut fired = fired.await?;
            if let FiredOnce::Fired(Firing::Started { unstarted, .. })
            | FiredOnce::Recorded(Firing::Started { unstarted, .. }) = &mut fired
            {
                *unstarted = match unheard.is_empty() {
                    true => vec![automations.no_listener(&r#type, &data).await],
                    false => unheard,
                };
            }
            Ok(fired)
        })
    }

    /// Returns why no listed automation waits for an event: the automation named like what the event is about cannot be read,
    /// or there is none.
    async fn no_listener(&self, r#type: &str, data: &SentObject) -> String {
        if let Some(store) = self.core.automation_store() {
            for id in self.required_values(r#type, data) {
                if self.entry(&id).is_none()
                    && let Read::Unknown(why) = store.get.read(limit::STORE, (id.clone(),)).await
                {
                    return no_run(&id, &format!("it cannot be read: {why}"));
                }
            }
        }
        "no automation that could be read waits for this event".to_owned()
    }

    /// Returns the values of an event's data under the keys that its type requires of triggers.
    fn required_values(&self, r#type: &str, data: &SentObject) -> Vec<String> {
        let Some(registry) = self.core.registry() else { return Vec::new() };
        let types = registry.all::<TriggerType>();
        let kind = types.iter().find(|held| *held.r#type == *r#type);
        let required = kind.and_then(|kind| kind.config_schema.as_ref()?.get("required")?.as_array());
        let keys = required.into_iter().flatten().filter_map(Value::as_str);
        keys.filter_map(|key| data.fields.get(key)?.as_str().map(str::to_owned)).collect()
    }
}
