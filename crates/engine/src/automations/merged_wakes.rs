//! Events that are merged into a run that already exists. Those that arrive during a write are stored by the next one,
//! published once and acknowledged together: a burst of calls costs a commit for each batch, not one for each call.

use std::sync::Arc;

use ostler_contract::JsonObject;
use ostler_protocol::wire::state::{AutomationRunOrigin, AutomationRunState, AutomationTriggeredRunOrigin};
use ostler_protocol::{Value, names};

use super::fire::{Keep, count_of, event_id_of};
use super::run::{COUNT, EVENT, LATEST, Runs};
use crate::automations::Automations;
use crate::core::tasks;

/// An event to be merged into a run, and the sender that is notified once it is stored.
pub(super) struct MergedWake {
    /// The fact of the run that holds the count.
    pub what: &'static str,
    pub wake: AutomationRunState,
    pub kept: Keep,
}

impl Runs {
    /// Counts an event in a run. Returns whether no task writes that run's counts yet, so that the caller has to start
    /// one.
    pub(super) fn note(&mut self, held: &str, merged: MergedWake) -> bool {
        if let Some(run) = self.open.get_mut(held) {
            count(run.meta.get_or_insert_default(), merged.what, merged.wake);
        }
        let waiting = self.noted.entry(held.to_owned()).or_default();
        waiting.senders.push(merged.kept);
        !std::mem::replace(&mut waiting.written, true)
    }
}

/// The senders to notify once the counts of a run are stored.
#[derive(Debug, Default)]
pub(super) struct MergedWakes {
    senders: Vec<Keep>,
    /// Whether a task writes the counts.
    written: bool,
}

fn count(meta: &mut JsonObject, what: &str, wake: AutomationRunState) {
    let key = names::meta_key(what);
    let before = meta.get(&key).and_then(Value::as_u64);
    // A run started by an event already counts that event.
    let counted = before.unwrap_or(u64::from(what == COUNT));
    meta.insert(key, counted.saturating_add(count_of(&wake)).into());
    if what != COUNT {
        return;
    }
    let id = event_id_of(&wake).cloned();
    if let AutomationRunOrigin::Trigger(AutomationTriggeredRunOrigin { event: Some(event), .. }) = wake.origin
    {
        meta.insert(names::meta_key(LATEST), Value::Object(event));
        match id {
            Some(id) => drop(meta.insert(names::meta_key(EVENT), id)),
            None => drop(meta.shift_remove(&names::meta_key(EVENT))),
        }
    }
}

impl Automations {
    /// Publishes and stores the counts of a run until there are no new ones.
    pub(super) fn keep_notes(self: &Arc<Self>, held: String) {
        let automations = self.clone();
        tasks::spawn(async move {
            loop {
                // A caller that was just answered may call again; calls read before this task continues share the next
                // commit.
                tokio::task::yield_now().await;
                let (automation, senders) = {
                    let mut runs = automations.runs.lock();
                    let senders = match runs.noted.get_mut(&held) {
                        Some(noted) if !noted.senders.is_empty() => std::mem::take(&mut noted.senders),
                        _ => {
                            runs.noted.remove(&held);
                            return;
                        }
                    };
                    (runs.open.get(&held).map(|run| run.automation.clone()), senders)
                };
                // If the run cannot be stored, the senders are dropped without an answer.
                if automations.keep_run(&held).await {
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
