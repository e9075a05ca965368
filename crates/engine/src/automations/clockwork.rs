//! The host's scheduler: it starts due runs once and stores the progress of the schedules.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::catalogue::History;
use ostler_contract::limit;
use ostler_protocol::wire::state::{
    AutomationDefinition, AutomationDefinitionPatch, AutomationRunOrigin, AutomationTriggeredRunOrigin,
};
use tokio::time::sleep;

use super::lanes::Cause;
use super::plan::{Due, Occurrence, most_runs};
use crate::automations::Automations;
use crate::core::tasks;

/// How long to sleep before reading the clock again: it may be adjusted, and the machine may sleep.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// How often to look whether data can be stored again.
const LOOK_FOR_STORAGE: Duration = Duration::from_secs(1);

/// Starts due runs for as long as the host runs. While nothing can be stored, they wait.
pub(super) async fn serve_schedules(automations: Weak<Automations>) {
    loop {
        let Some(running) = automations.upgrade().filter(|automations| !automations.core.is_stopping())
        else {
            return;
        };
        if running.core.lost_storage().is_some() {
            drop(running);
            sleep(LOOK_FOR_STORAGE).await;
            continue;
        }
        let due = running.plans.lock().take_due(running.core.clock.now());
        for due in due {
            running.serve_due(due).await;
        }
        let next = running.plans.lock().next();
        let changed = running.planned.clone();
        let now = running.core.clock.now();
        drop(running);
        match next {
            Some(next) => {
                let wait = Duration::try_from(next.duration_since(now)).unwrap_or_default().min(LOOK_AGAIN);
                tokio::select! {
                    () = sleep(wait) => {}
                    () = changed.notified() => {}
                }
            }
            None => changed.notified().await,
        }
    }
}

impl Automations {
    /// Whether schedules fire on this host, which requires a store of their progress.
    pub(crate) fn keeps_schedules(&self) -> bool {
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
            plans.set(id, before, definition, kept.as_ref(), self.core.clock.now());
            for run in &history.runs.runs {
                // The host stopped after it stored the run and before it stored the progress.
                if let AutomationRunOrigin::Trigger(origin) = &run.origin
                    && let Some(at) = origin.scheduled_for.as_ref().and_then(|at| at.parse().ok())
                {
                    plans.passed(id, &origin.trigger_id, at);
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
            Ok(kept) => self.keep_entry(kept, None).await,
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
        scheduled_for: Some(crate::core::clock::iso(occurrence.at)),
        catch_up: occurrence.catch_up.then_some(true),
        event: None,
    })
}
