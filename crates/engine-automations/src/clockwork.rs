//! The host's scheduler: it starts due runs once and stores the progress of the schedules.

use std::sync::{Arc, Weak};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use ostler_contract::limit;
use ostler_engine_core::tasks;
use ostler_protocol::wire::state::{
    AutomationDefinition, AutomationDefinitionPatch, AutomationRunOrigin, AutomationTriggeredRunOrigin,
};
use tokio::time::{Instant, sleep};

use super::catalogue::History;
use super::lanes::Cause;
use super::plan::{Due, Occurrence, most_runs};
use crate::Automations;

/// How long to sleep before reading the clock again: it may be adjusted, and the machine may sleep.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// How often to look whether data can be stored again.
const LOOK_FOR_STORAGE: Duration = Duration::from_secs(1);

/// How far the clock can differ from the time that has passed without being set.
const SLEWED: SignedDuration = SignedDuration::from_secs(1);

/// How long the clock must not have been set before an automation whose date has passed is switched off, which is stored.
const SETTLED: Duration = Duration::from_secs(600);

/// The clock as it was at the last look.
struct Look {
    clock: Timestamp,
    at: Instant,
    /// Since when it was not set, as far as is known.
    steady_since: Instant,
}

impl Look {
    fn first(clock: Timestamp) -> Self {
        let at = Instant::now();
        Self { clock, at, steady_since: at }
    }

    /// Looks again. Returns whether the clock was set back since the last look.
    fn again(&mut self, clock: Timestamp) -> bool {
        let passed = SignedDuration::try_from(self.at.elapsed()).unwrap_or(SignedDuration::MAX);
        let ahead = clock.duration_since(self.clock).saturating_sub(passed);
        (self.clock, self.at) = (clock, Instant::now());
        if ahead.abs() > SLEWED {
            self.steady_since = self.at;
        }
        ahead < -SLEWED
    }

    fn is_settled(&self) -> bool {
        self.at.duration_since(self.steady_since) >= SETTLED
    }
}

/// Starts due runs for as long as the host runs. While nothing can be stored, they wait.
pub(super) async fn serve_schedules(automations: Weak<Automations>) {
    let mut look: Option<Look> = None;
    loop {
        let Some(running) = automations.upgrade().filter(|automations| !automations.core.is_stopping())
        else {
            return;
        };
        let now = running.core.clock.now();
        let look = look.get_or_insert_with(|| Look::first(now));
        if look.again(now) {
            running.correct_schedules(now).await;
        }
        if running.core.lost_storage().is_some() {
            drop(running);
            sleep(LOOK_FOR_STORAGE).await;
            continue;
        }
        let due = running.plans.lock().take_due(now, look.is_settled());
        for due in due {
            running.serve_due(due).await;
        }
        let (next, is_waiting) = {
            let plans = running.plans.lock();
            (plans.next(now), plans.is_waiting())
        };
        let (clock, changed) = (running.core.clock.clone(), running.planned.clone());
        drop(running);
        let wait = next.map_or(LOOK_AGAIN, |next| {
            Duration::try_from(next.duration_since(clock.now())).unwrap_or_default().min(LOOK_AGAIN)
        });
        tokio::select! {
            () = sleep(wait), if is_waiting => {}
            () = changed.notified() => {}
        }
    }
}

impl Automations {
    /// Whether schedules fire on this host, which requires a store of their progress.
    pub fn keeps_schedules(&self) -> bool {
        self.core
            .automation_store()
            .is_some_and(|store| store.progress.is_some() && store.keep_progress.is_some())
    }

    /// Plans an automation's schedules and stores their progress. `history` is that of an automation that is listed for
    /// the first time, otherwise empty.
    pub(super) async fn plan(
        &self,
        id: &str,
        before: Option<&AutomationDefinition>,
        definition: &AutomationDefinition,
        history: &History,
    ) {
        if !self.keeps_schedules() {
            return;
        }
        let kept = &history.progress;
        let planned = {
            let mut plans = self.plans.lock();
            let now = self.core.clock.now();
            plans.set(id, before, definition, kept.as_ref(), now);
            for run in &history.runs.runs {
                // The host stopped after it stored the run and before it stored the progress.
                if let AutomationRunOrigin::Trigger(origin) = &run.origin
                    && let Some(at) = origin.scheduled_for.as_ref().and_then(|at| at.parse().ok())
                {
                    plans.passed(id, &origin.trigger_id, at, now);
                }
            }
            plans.progress(id)
        };
        self.planned.notify_one();
        let nothing = planned.schedules.is_empty() && planned.run_count.is_none();
        if kept.as_ref() != Some(&planned) && !(nothing && kept.is_none() && before.is_none()) {
            self.keep_progress(id).await;
        }
    }

    /// Plans schedules again that were planned by a clock that was ahead, and stores their progress.
    async fn correct_schedules(&self, now: Timestamp) {
        let corrected = self.plans.lock().correct(now);
        if corrected.is_empty() {
            return;
        }
        self.core.log.warn(format_args!(
            "the clock was set back to {now}; the next runs of {} automations are planned again",
            corrected.len()
        ));
        for id in corrected {
            self.show_schedules(&self.core.fanout, &id);
            self.keep_progress(&id).await;
        }
    }

    pub(super) async fn keep_progress(&self, id: &str) {
        let Some(keep) = self.core.automation_store().and_then(|store| store.keep_progress.clone()) else {
            return;
        };
        let keeping = {
            let _in_order = self.keeping.lock();
            let progress = self.plans.lock().progress(id);
            keep.within(limit::STORE, (id.to_owned(), progress))
        };
        if let Err(why) = keeping.await {
            self.core
                .log
                .warn(format_args!("the progress of the schedules of {id} could not be stored: {why}"));
        }
    }

    async fn serve_due(self: &Arc<Self>, due: Due) {
        let Due { automation: id, occurrences, expired } = due;
        let Some(entry) = self.entry(&id) else { return };
        let mut waits = Vec::new();
        let mut last = expired;
        for occurrence in occurrences {
            let owner = entry.owner.as_deref();
            let run = self.new_run(&entry.wire.resource, origin_of(occurrence), owner, None, 1);
            if self.core.shared_runs().is_some() {
                // Every host does so; the cause of the run makes it one wake, which the owner counts.
                drop(self.wake(&entry, run, Cause::Clock));
                continue;
            }
            let (admitted, kept) = self.wake_here(&entry, run, Cause::Clock);
            waits.extend(kept);
            if admitted {
                let counted = self.plans.lock().count(&id);
                let most = most_runs(&entry.wire.definition);
                if counted.zip(most).is_some_and(|(counted, most)| counted >= most) {
                    last = true;
                    break;
                }
            }
        }
        self.show_schedules(&self.core.fanout, &id);
        if self.core.shared_runs().is_some() && !last {
            return;
        }
        let automations = self.clone();
        tasks::spawn(async move {
            // If the run is stored but the progress is not, the next start finds the run. If the run is not stored, it
            // is due again.
            futures::future::join_all(waits).await;
            match last {
                true => automations.switch_off(&id).await,
                false => automations.keep_progress(&id).await,
            }
        });
    }

    pub(super) async fn switch_off(&self, id: &str) {
        let Some(store) = self.core.automation_store() else { return };
        let changes =
            AutomationDefinitionPatch { enabled: Some(false), ..AutomationDefinitionPatch::default() };
        match store.update.within(limit::STORE, (id.to_owned(), changes)).await {
            Ok(kept) => {
                self.core.log.warn(format_args!(
                    "automation {id} is disabled because its time is over; to enable it again: ostler automation enable {id}"
                ));
                self.keep_entry(kept, None).await;
            }
            Err(why) => self
                .core
                .log
                .warn(format_args!("{id} could not be switched off though its time is over: {why}")),
        }
    }
}

fn origin_of(occurrence: Occurrence) -> AutomationRunOrigin {
    AutomationRunOrigin::Trigger(AutomationTriggeredRunOrigin {
        trigger_id: occurrence.trigger,
        scheduled_for: Some(ostler_engine_core::clock::iso(occurrence.at)),
        catch_up: occurrence.catch_up.then_some(true),
        event: None,
    })
}
