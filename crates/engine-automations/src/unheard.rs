//! What became of an event: the runs that it started, and why automations got none.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use ostler_contract::host::Firing;
use ostler_contract::points::TriggerType;
use ostler_contract::read::Read;
use ostler_contract::shared_runs::{EventRecords, FiredOnce};
use ostler_contract::{JsonObject, Pending, Thrown};
use ostler_protocol::Value;
use ostler_protocol::sent::SentObject;
use ostler_protocol::wire::state::{AutomationDefinition, AutomationTrigger};

use super::catalogue::is_automation_id;
use super::fire::StoredRunReceiver;
use super::triggers::{canonical, required_keys, same_field};
use crate::Automations;

/// How many automations are named for one event.
const MOST_NAMED: usize = 8;
/// How many are collected for one event, while nothing else can change the triggers.
const MOST_COLLECTED: usize = 64;
/// How many fields of an event are compared to find them.
const MOST_FIELDS: usize = 1_000;
/// The longest text that is compared, in bytes.
const LONGEST_VALUE: usize = 256;

/// How long a caller waits for the reason why an automation cannot be read.
const READ: Duration = Duration::from_secs(1);

/// Why an event has no run that is about none of the automations.
const NO_LISTENER: &str = "no automation that could be read waits for this event";

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
        if !self.events.iter().any(|named| named == event) {
            return format!("its trigger {trigger} does not name the event {event}");
        }
        let differs = |(key, wanted): &(&String, &Value)| !same_field(key, wanted, data.as_sent());
        let keys: Vec<&str> = self.config.iter().filter(differs).map(|(key, _)| key.as_str()).collect();
        if !keys.is_empty() {
            return format!("its trigger {trigger} requires another value of {}", keys.join(", "));
        }
        match self.is_enabled {
            false => format!("it is disabled; enable it with: ostler automation enable {automation}"),
            true => format!("its trigger {trigger} did not wait for it yet"),
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

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.by_value.is_empty() && self.of.is_empty()
    }

    /// Returns why an event that fired no trigger did not fire those that it is about: those with its values of the keys that
    /// their type requires, or, where it requires none, those that share a value with its data.
    pub fn unheard(&self, r#type: &str, required: &[String], event: &str, data: &SentObject) -> Vec<String> {
        if self.of.is_empty() {
            return Vec::new();
        }
        let mut found: BTreeMap<&str, &Arc<Declared>> = BTreeMap::new();
        let mut is_whole = true;
        for declared in self.about(r#type, required, data) {
            if found.contains_key(declared.automation.as_str()) {
                continue;
            }
            if found.len() == MOST_COLLECTED {
                is_whole = false;
                break;
            }
            found.insert(declared.automation.as_str(), declared);
        }
        let more = found.len().saturating_sub(MOST_NAMED);
        let why = |declared: &&Arc<Declared>| no_run(&declared.automation, &declared.why(event, data));
        let mut whys: Vec<String> = found.values().take(MOST_NAMED).map(why).collect();
        match (more, is_whole) {
            (0, _) => {}
            (_, true) => whys.push(format!("{more} more automations")),
            (_, false) => whys.push(format!("more than {more} more automations")),
        }
        whys
    }

    /// Returns each automation that an event is about, with a trigger and why the event does not fire it.
    pub fn explained(
        &self,
        r#type: &str,
        required: &[String],
        event: &str,
        data: &SentObject,
    ) -> BTreeMap<String, (String, String)> {
        let about = self.about(r#type, required, data).take(MOST_COLLECTED);
        let of = |declared: &Arc<Declared>| {
            (declared.automation.clone(), (declared.trigger.clone(), declared.why(event, data)))
        };
        about.map(of).collect()
    }

    /// Returns the triggers that an event is about, some of them several times.
    fn about<'a>(
        &'a self,
        r#type: &'a str,
        required: &'a [String],
        data: &'a SentObject,
    ) -> Box<dyn Iterator<Item = &'a Arc<Declared>> + 'a> {
        let of_key = move |key: String| self.by_value.get(&(r#type.to_owned(), key));
        if required.is_empty() {
            // A long body has many fields, and the plugin's own are the last ones.
            let fields = data.fields.iter().rev().take(MOST_FIELDS).filter(|(_, value)| is_short(value));
            let keys = fields.map(|(key, value)| value_key(key, value)).chain([String::new()]);
            return Box::new(keys.filter_map(of_key).flatten());
        }
        let of_field = |key: &String| {
            let value = data.fields.get(key).filter(|value| is_short(value))?;
            of_key(value_key(key, value))
        };
        let lists: Option<Vec<&Vec<Arc<Declared>>>> = required.iter().map(of_field).collect();
        let rarest = lists.unwrap_or_default().into_iter().min_by_key(|list| list.len());
        let has_all = move |declared: &&Arc<Declared>| {
            required.iter().all(|key| {
                declared.config.get(key).is_some_and(|wanted| same_field(key, wanted, data.as_sent()))
            })
        };
        Box::new(rarest.into_iter().flatten().filter(has_all))
    }
}

/// Whether a value of a call is compared with those of triggers.
pub(super) fn is_short(value: &Value) -> bool {
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
        let required = self.required_of(r#type);
        let unheard = self.index.read().unheard(r#type, &required, event, &data);
        let fired = self.wake_in_order("", &[], event, SentObject::default(), None, records);
        let automations = self.clone();
        Box::pin(async move {
            let mut fired = fired.await?;
            if let FiredOnce::Fired(Firing::Started { unstarted, .. })
            | FiredOnce::Recorded(Firing::Started { unstarted, .. }) = &mut fired
            {
                *unstarted = match unheard.is_empty() {
                    true => vec![automations.no_listener(&required, &data).await],
                    false => unheard,
                };
            }
            Ok(fired)
        })
    }

    /// Returns why no listed automation waits for an event: the automation named like what the event is about cannot be read,
    /// or there is none.
    async fn no_listener(&self, required: &[String], data: &SentObject) -> String {
        let unread = self.unread_listener(required, data).await;
        unread.map_or_else(|| NO_LISTENER.to_owned(), |(id, why)| no_run(&id, &why))
    }

    /// Returns the automation that is named like what the event is about and cannot be read, with the reason.
    pub(super) async fn unread_listener(
        &self,
        required: &[String],
        data: &SentObject,
    ) -> Option<(String, String)> {
        let values = required.iter().filter_map(|key| data.fields.get(key)?.as_str());
        let ids: Vec<&str> = values.filter(|id| is_automation_id(id)).collect();
        for id in ids {
            if self.entry(id).is_none()
                && let Some(why) = self.why_unread(id).await
            {
                return Some((id.to_owned(), why));
            }
        }
        None
    }

    /// Returns why an automation cannot be read, if it was found out now or shortly before. Events do not load the store:
    /// one read is made at a time.
    async fn why_unread(&self, id: &str) -> Option<String> {
        let store = self.core.automation_store()?;
        let unread = &self.unheard_events.unread;
        if let Some(known) = unread.known(id) {
            return known;
        }
        let _alone = unread.reading.try_lock().ok()?;
        let why = match store.get.read(READ, (id.to_owned(),)).await {
            Read::Unknown(why) => Some(format!("it cannot be read: {why}")),
            Read::Known(_) => None,
        };
        unread.remember(id, why.clone());
        why
    }

    /// Returns the keys that a type requires of the config of each trigger.
    pub(super) fn required_of(&self, r#type: &str) -> Vec<String> {
        let types = self.core.registry().map(|registry| registry.all::<TriggerType>()).unwrap_or_default();
        let kind = types.iter().find(|held| *held.r#type == *r#type);
        kind.map(|kind| required_keys(kind).map(str::to_owned).collect()).unwrap_or_default()
    }
}
