//! Events of plugins that no automation waits for, for the list of problems: whoever sends them gets no error.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use jiff::Timestamp;
use ostler_contract::JsonObject;
use ostler_contract::points::TriggerType;
use ostler_contract::problems::{Finding, KnownProblem, ProblemKind};
use ostler_protocol::sent::SentFields;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Automations;
use super::triggers::{canonical, required_keys};
use super::unheard::is_short;

/// How many kinds of events are remembered. Only those whose sender is known are, so a stranger adds none.
const REMEMBERED: usize = 100;
/// How long one is remembered without another event of its kind.
const FORGOTTEN_AFTER: Duration = Duration::from_hours(24);
/// Of how many automations it is remembered whether they can be read.
const MOST_UNREAD: usize = 100;
/// How long that is.
const UNREAD_FOR: Duration = Duration::from_secs(10);

/// The type and the event id of a kind of events, and its values of the keys that the type requires of a trigger's config,
/// as an index has them.
type Kind = (String, String, Vec<(String, String)>);

/// Events of one kind.
#[derive(Debug, Clone)]
struct Noted {
    /// The required keys with their values.
    required: JsonObject,
    /// When one came first.
    since: Timestamp,
    /// When one came last.
    latest: Instant,
}

/// What is remembered of events that no automation waits for.
#[derive(Debug, Default)]
pub(super) struct UnheardEvents {
    kinds: Mutex<BTreeMap<Kind, Noted>>,
    /// Why the automations that they are about cannot be read.
    pub unread: UnreadAutomations,
}

/// Why automations cannot be read, as of their last reads.
#[derive(Debug, Default)]
pub(super) struct UnreadAutomations {
    /// Locked while one is read.
    pub reading: tokio::sync::Mutex<()>,
    known: Mutex<HashMap<String, (Option<String>, Instant)>>,
}

impl UnreadAutomations {
    /// Returns what the last read of an automation found: why it cannot be read, if so. `None` if that is too long ago.
    pub fn known(&self, id: &str) -> Option<Option<String>> {
        let known = self.known.lock();
        known.get(id).filter(|(_, at)| at.elapsed() < UNREAD_FOR).map(|(why, _)| why.clone())
    }

    /// Remembers what a read of an automation found.
    pub fn remember(&self, id: &str, why: Option<String>) {
        let mut known = self.known.lock();
        if known.len() >= MOST_UNREAD && !known.contains_key(id) {
            let oldest = known.iter().min_by_key(|(_, (_, at))| *at).map(|(id, _)| id.clone());
            if let Some(oldest) = oldest {
                known.remove(&oldest);
            }
        }
        known.insert(id.to_owned(), (why, Instant::now()));
    }
}

impl Automations {
    /// Remembers an event that fired no trigger, if its type requires something of each trigger by which it can be told
    /// from events that a trigger leaves out on purpose.
    pub(super) fn note_unheard(&self, r#type: &str, event: &str, data: SentFields<'_>) {
        let Some(required) = self.required_config(r#type, data) else { return };
        let values: Vec<_> = required.iter().map(|(key, value)| (key.clone(), canonical(value))).collect();
        if self.index.read().waits_for(r#type, event, &values) {
            return;
        }
        let now = Instant::now();
        let kind = (r#type.to_owned(), event.to_owned(), values);
        let mut kinds = self.unheard_events.kinds.lock();
        kinds.retain(|_, noted| now.duration_since(noted.latest) < FORGOTTEN_AFTER);
        if kinds.len() >= REMEMBERED && !kinds.contains_key(&kind) {
            let oldest = kinds.iter().min_by_key(|(_, noted)| noted.latest).map(|(kind, _)| kind.clone());
            if let Some(oldest) = oldest {
                kinds.remove(&oldest);
            }
        }
        let noted = Noted { required, since: self.core.clock.now(), latest: now };
        kinds.entry(kind).or_insert(noted).latest = now;
    }

    /// Returns an event's values of the keys that its type requires; `None` if it requires none, or an index has no such
    /// values.
    fn required_config(&self, r#type: &str, data: SentFields<'_>) -> Option<JsonObject> {
        let registry = self.core.registry()?;
        let kind = registry.all::<TriggerType>().iter().find(|held| *held.r#type == *r#type)?;
        let value = |key: &str| data.fields().get(key).filter(|value| is_short(value) && !value.is_null());
        let values: JsonObject = required_keys(kind)
            .map(|key| Some((key.to_owned(), value(key)?.clone())))
            .collect::<Option<_>>()?;
        (!values.is_empty()).then_some(values)
    }

    /// Returns the remembered events that still no automation waits for, and forgets the others.
    pub fn unheard_problems(&self) -> Vec<KnownProblem> {
        let mut listed: Vec<(Kind, Noted)> = {
            let kinds = self.unheard_events.kinds.lock();
            kinds.iter().map(|(kind, noted)| (kind.clone(), noted.clone())).collect()
        };
        let mut ended = Vec::new();
        {
            let index = self.index.read();
            listed.retain(|(kind, noted)| {
                let (r#type, event, values) = kind;
                let stays =
                    noted.latest.elapsed() < FORGOTTEN_AFTER && !index.waits_for(r#type, event, values);
                if !stays {
                    ended.push((kind.clone(), noted.latest));
                }
                stays
            });
        }
        if !ended.is_empty() {
            let mut kinds = self.unheard_events.kinds.lock();
            for (kind, latest) in ended {
                // One that came since then is about what the automations are now.
                if kinds.get(&kind).is_some_and(|noted| noted.latest == latest) {
                    kinds.remove(&kind);
                }
            }
        }
        listed.into_iter().map(|((r#type, event, _), noted)| problem(&r#type, &event, &noted)).collect()
    }
}

fn problem(r#type: &str, event: &str, noted: &Noted) -> KnownProblem {
    let values: Vec<String> = noted.required.iter().map(|(key, value)| format!("{key}: {value}")).collect();
    let values = values.join(", ");
    let found = format!(
        "events of type {type} with {values} start nothing: no enabled automation has a trigger of type {type} for {event} \
         with config: {{ {values} }}"
    );
    let fix = "enable or correct the automation (ostler automation list), or remove what sends them";
    KnownProblem {
        kind: ProblemKind::Automations,
        place: format!("{type} {values}"),
        finding: Finding::warning(found).fixed_by(fix),
        since: noted.since.into(),
    }
}
