//! Events that are merged into a run that already exists. Those that arrive during a write are stored by the next one,
//! published once and acknowledged together: a burst of calls costs a commit for each batch, not one for each call.

use std::sync::{Arc, LazyLock};

use ostler_contract::JsonObject;
use ostler_contract::shared_runs::Decision;
use ostler_engine_core::tasks;
use ostler_protocol::sent::{Literals, SentObject};
use ostler_protocol::wire::state::{AutomationRunOrigin, AutomationRunState, AutomationTriggeredRunOrigin};
use ostler_protocol::{Value, names};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::catalogue::CatalogueEntry;
use super::fire::{StoredRunReceiver, StoredRunSender, count_of, event_id_of};
use super::lanes::Cause;
use super::run::{COUNT, DROPPED, EVENT, LATEST, LITERALS, Runs};
use super::wake_event::WakeEvent;
use crate::Automations;

/// The parts of a wake that a run receives when the wake is merged into it.
pub(super) struct MergedWake {
    /// How many events it contains.
    pub count: u64,
    /// The data of its newest event, if an event caused it.
    pub event: Option<SentObject>,
    /// The id of that event, if its data has its own field `event`.
    pub id: Option<Value>,
    /// Its name in a store that several hosts share, in which it is decided.
    pub wake: Option<String>,
}

impl MergedWake {
    /// Returns the parts of a wake. `is_shared` if several hosts share the runs.
    pub fn of(mut run: AutomationRunState, is_shared: bool) -> Self {
        let literals = run.meta.as_mut().and_then(|meta| meta.shift_remove(LITERALS_KEY.as_str()));
        let literals = literals.map(Literals::from_value).unwrap_or_default();
        let (count, id) = (count_of(&run), event_id_of(&run).cloned());
        let event = match run.origin {
            AutomationRunOrigin::Trigger(AutomationTriggeredRunOrigin { event, .. }) => event,
            AutomationRunOrigin::Manual(_) => None,
        };
        let wake = is_shared.then_some(run.resource);
        Self { count, event: event.map(|fields| SentObject { fields, literals }), id, wake }
    }
}

impl Runs {
    /// Counts a wake in a run, under the fact `what`; `kept` is notified once that is stored. The next write of the run decides
    /// the wake. Returns whether no task writes that run's counts yet, so that the caller has to start one.
    pub(super) fn note(&mut self, held: &str, what: &str, wake: MergedWake, kept: StoredRunSender) -> bool {
        match (self.open.get_mut(held), &wake.wake) {
            (Some(run), decided) => {
                if let Some(wake) = decided {
                    let run = (what != DROPPED).then(|| held.to_owned());
                    let decision = Decision { wake: wake.clone(), run };
                    self.undecided.entry(held.to_owned()).or_default().push(decision);
                }
                count(run.meta.get_or_insert_default(), what, wake);
            }
            // No later write of the run counts it.
            (None, Some(_)) => {
                let _ = kept.send(None);
                return false;
            }
            (None, None) => {}
        }
        if !self.noted.contains_key(held) {
            self.noted.insert(held.to_owned(), MergedWakes::default());
        }
        let Some(waiting) = self.noted.get_mut(held) else { return false };
        waiting.senders.push(kept);
        if waiting.senders.len() == waiting.half {
            waiting.half_waits.notify_waiters();
        }
        !std::mem::replace(&mut waiting.written, true)
    }
}

/// From so many waiting callers on, a commit begins once it has half of them: the calls of the others are handled during
/// that commit. Fewer callers share one, since a commit takes longer than their calls.
const HALVED: usize = 8;

/// The senders to notify once the counts of a run are stored.
#[derive(Debug, Default)]
pub(super) struct MergedWakes {
    senders: Vec<StoredRunSender>,
    /// Half of the callers that waited at the end of the last commit; 0 if they were fewer than [`HALVED`].
    half: usize,
    /// Notified once so many callers wait.
    half_waits: Arc<Notify>,
    /// Whether a task writes the counts.
    written: bool,
}

impl MergedWakes {
    /// Records how many callers waited at the end of a commit: for that commit, or for the next one.
    fn waited(&mut self, for_this: usize) {
        let callers = for_this + self.senders.len();
        self.half = if callers < HALVED { 0 } else { callers / 2 };
    }

    /// Whether a task writes the counts.
    pub(super) fn has_task(&self) -> bool {
        self.written
    }

    /// Whether the next commit has half of the callers already.
    fn is_half(&self) -> bool {
        self.half > 0 && self.senders.len() >= self.half
    }
}

/// The keys of facts that most calls of a burst write.
static COUNT_KEY: LazyLock<String> = LazyLock::new(|| names::meta_key(COUNT));
static LATEST_KEY: LazyLock<String> = LazyLock::new(|| names::meta_key(LATEST));
static EVENT_KEY: LazyLock<String> = LazyLock::new(|| names::meta_key(EVENT));
static LITERALS_KEY: LazyLock<String> = LazyLock::new(|| names::meta_key(LITERALS));

fn count(meta: &mut JsonObject, what: &str, wake: MergedWake) {
    if what == COUNT {
        // A run started by an event already counts that event.
        add(meta, &COUNT_KEY, 1, wake.count);
        if let Some(SentObject { fields, literals }) = wake.event {
            set(meta, &LATEST_KEY, Value::Object(fields));
            let literals = (!literals.is_empty()).then(|| literals.into_value());
            for (key, value) in [(&EVENT_KEY, wake.id), (&LITERALS_KEY, literals)] {
                match value {
                    Some(value) => set(meta, key, value),
                    None => drop(meta.shift_remove(key.as_str())),
                }
            }
        }
    } else {
        add(meta, &names::meta_key(what), 0, wake.count);
    }
}

/// Adds to a number that begins with `first`.
fn add(meta: &mut JsonObject, key: &str, first: u64, count: u64) {
    let before = meta.get(key).and_then(Value::as_u64).unwrap_or(first);
    set(meta, key, before.saturating_add(count).into());
}

/// Sets a value that usually exists.
fn set(meta: &mut JsonObject, key: &str, value: Value) {
    match meta.get_mut(key) {
        Some(current) => *current = value,
        None => drop(meta.insert(key.to_owned(), value)),
    }
}

impl Automations {
    /// Merges an event into the waiting run of its automation. Returns the event's data if it is not merged here: no run waits,
    /// the overlap or the order excludes it, or several hosts share the runs.
    pub(super) fn merge(
        self: &Arc<Self>,
        automation: &str,
        entry: &CatalogueEntry,
        happened: &WakeEvent<'_>,
        cause: Cause<'_>,
        facts: SentObject,
        count: u64,
    ) -> Result<StoredRunReceiver, SentObject> {
        if self.core.shared_runs().is_some() {
            return Err(facts);
        }
        let mut runs = self.runs.lock();
        let lane = runs.lanes.get_mut(automation);
        let held = lane.and_then(|lane| lane.merge(cause, &entry.settings, Instant::now()));
        let Some(held) = held.map(str::to_owned) else { return Err(facts) };
        let (kept, wait) = oneshot::channel();
        let id = happened.own_field.then(|| happened.event.into());
        // Counts the wake before the run can end.
        let merged = MergedWake { count, event: Some(facts), id, wake: None };
        let first = runs.note(&held, COUNT, merged, kept);
        drop(runs);
        if first {
            self.keep_notes(held);
        }
        Ok(wait)
    }

    /// Publishes and stores the counts of a run until there are no new ones.
    pub(super) fn keep_notes(self: &Arc<Self>, held: String) {
        let automations = self.clone();
        tasks::spawn(async move {
            loop {
                let half_waits = {
                    let runs = automations.runs.lock();
                    let noted = runs.noted.get(&held);
                    noted
                        .filter(|noted| !noted.is_half())
                        .map(|noted| noted.half_waits.clone().notified_owned())
                };
                if let Some(half_waits) = half_waits {
                    // A caller that was just answered may call again; calls read before this task continues share the
                    // next commit.
                    tokio::select! {
                        biased;
                        () = tokio::task::yield_now() => {}
                        () = half_waits => {}
                    }
                }
                let (automation, senders) = {
                    let mut runs = automations.runs.lock();
                    let automation = runs.open.get(&held).map(|run| run.automation.clone());
                    let Some(noted) = runs.noted.get_mut(&held) else { return };
                    if noted.senders.is_empty() {
                        noted.written = false;
                        // What is known of the callers is retained as long as the run is open.
                        if automation.is_none() {
                            runs.noted.remove(&held);
                        }
                        return;
                    }
                    (automation, std::mem::take(&mut noted.senders))
                };
                // If the run cannot be stored, the senders are dropped without an answer.
                let is_kept = automations.keep_run_at_last(&held, None).await;
                if let Some(noted) = automations.runs.lock().noted.get_mut(&held) {
                    noted.waited(senders.len());
                }
                if is_kept {
                    if let Some(automation) = automation {
                        automations.list_run(&held, &automation).await;
                    }
                    for sender in senders {
                        let _ = sender.send(Some(held.clone()));
                    }
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use ostler_protocol::json;

    use super::*;

    fn note(runs: &mut Runs, callers: usize) {
        for _ in 0..callers {
            let wake = MergedWake { count: 1, event: None, id: None, wake: None };
            runs.note("run", COUNT, wake, oneshot::channel().0);
        }
    }

    #[test]
    fn the_literals_of_a_run_are_those_of_its_newest_event() {
        let event = |text: &str| {
            let event = SentObject::read(text.as_bytes()).unwrap();
            MergedWake { count: 1, event: Some(event), id: None, wake: None }
        };
        let mut meta = JsonObject::new();
        for (text, literals) in [
            (r#"{"n":1.10}"#, Some(json!({ "n": "1.10" }))),
            (r#"{"n":2}"#, None),
            (r#"{"n":1e3}"#, Some(json!({ "n": "1e3" }))),
        ] {
            count(&mut meta, COUNT, event(text));
            assert_eq!(meta.get("ostler.literals"), literals.as_ref(), "{text}");
        }
        // What is not merged changes nothing of the event.
        count(&mut meta, DROPPED, event(r#"{"n":3.0e0}"#));
        assert_eq!(meta["ostler.literals"], json!({ "n": "1e3" }));
    }

    #[test]
    fn a_commit_begins_once_half_of_the_callers_wait() {
        for (callers, half) in [(1, None), (7, None), (8, Some(4)), (9, Some(4)), (32, Some(16))] {
            let mut runs = Runs::default();
            note(&mut runs, callers);
            let noted = runs.noted.get_mut("run").unwrap();
            assert!(!noted.is_half(), "nothing is known of the callers yet");
            noted.senders.truncate(1);
            noted.waited(callers - 1);
            noted.senders.clear();
            let mut half_waits = Box::pin(noted.half_waits.clone().notified_owned());
            let before = half.unwrap_or(callers) - 1;
            note(&mut runs, before);
            assert!(half_waits.as_mut().now_or_never().is_none(), "{before} of {callers}");
            note(&mut runs, 1);
            assert_eq!(half_waits.as_mut().now_or_never().is_some(), half.is_some(), "of {callers}");
            assert_eq!(runs.noted["run"].is_half(), half.is_some());
        }
    }
}
