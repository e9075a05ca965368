//! Reads the automations of the store at the start, and retries those that cannot be read: accepted runs wait for them.

use std::sync::Arc;
use std::time::Duration;

use ostler_contract::points::{AutomationChange, AutomationStore};
use ostler_contract::read::Read;
use ostler_contract::{HostFunction, Thrown, limit};
use ostler_engine_core::tasks;

use super::Automations;

/// The first and the longest pause after the store failed. The time doubles in between.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

fn pauses() -> impl Iterator<Item = Duration> {
    std::iter::successors(Some(FIRST_PAUSE), |pause| Some((*pause * 2).min(LONGEST_PAUSE)))
}

impl Automations {
    /// Reads something of an automation until it is known; `None` once it is no longer `wanted`.
    pub(super) async fn read_at_last<T, F: Future<Output = Read<T>>>(
        &self,
        id: &str,
        what: &str,
        read: impl Fn() -> F,
        wanted: impl Fn() -> bool,
    ) -> Option<T> {
        for pause in pauses() {
            match read().await {
                Read::Known(stored) => return Some(stored),
                Read::Unknown(why) => {
                    let log = &self.core.log;
                    log.warn(format_args!(
                        "the {what} of automation {id} could not be read: {why}; trying again"
                    ));
                }
            }
            tokio::time::sleep(pause).await;
            if !wanted() {
                return None;
            }
        }
        None
    }

    /// Reads the automations of the store, watches it for edits, and resumes the runs that a stop left unfinished. A
    /// store that fails is retried in the background: no run resumes before its automation is known.
    pub async fn load_automations(self: Arc<Self>) {
        let Err(why) = self.load().await else { return };
        self.core.log.warn(format_args!("{why}; trying again"));
        let automations = self.weak();
        tasks::spawn(async move {
            for pause in pauses() {
                tokio::time::sleep(pause).await;
                let Some(automations) = automations.upgrade() else { return };
                if automations.load().await.is_ok() {
                    return automations.core.log.info("the automations and their unfinished runs were read");
                }
            }
        });
    }

    /// Loads the automations once. Steps that succeeded before are not repeated.
    async fn load(self: &Arc<Self>) -> Result<(), String> {
        let store = self.core.automation_store().cloned();
        let first = !*self.loaded.borrow();
        if let Some(store) = store.as_ref().filter(|_| first) {
            let listed = self.list_stored(store).await;
            listed.map_err(|why| format!("the automations could not be read: {why}"))?;
            self.watch_store(store).await;
            self.watch_removed_runs(store).await;
        }
        // Must precede the first event: runs that waited come before runs accepted later.
        let resuming = self.resume_runs().await;
        if first {
            self.loaded.send_replace(true);
            if store.is_some() && self.keeps_schedules() {
                tasks::spawn(super::clockwork::serve_schedules(self.weak()));
            }
            if self.core.shared_runs().is_some() {
                tasks::spawn(super::shared::serve_shared(self.weak()));
                tasks::spawn(super::runs_elsewhere::show_runs_elsewhere(self.weak()));
            }
        }
        resuming.map_err(|why| format!("unfinished runs could not be read: {why}"))
    }

    async fn watch_store(self: &Arc<Self>, store: &AutomationStore) {
        let Some(watch) = &store.watch else { return };
        let automations = self.weak();
        let on_change = HostFunction::new(move |(change,): (AutomationChange,)| {
            let automations = automations.upgrade();
            async move {
                if let Some(automations) = automations {
                    automations.automation_changed(change).await;
                }
                Ok(())
            }
        });
        if let Err(why) = watch.within(limit::STORE, (on_change,)).await {
            self.core.log.warn(format_args!("edits of automations are not detected: {why}"));
        }
    }

    /// Publishes the runs that the store removes by its own rules to the readers of the feed.
    async fn watch_removed_runs(&self, store: &AutomationStore) {
        let Some(watch) = &store.watch_removed_runs else { return };
        let core = Arc::downgrade(&self.core);
        let on_removed = HostFunction::now(move |(runs,): (Vec<String>,)| {
            if let Some(core) = core.upgrade() {
                runs.iter().for_each(|run| core.feeds.runs.remove(run));
            }
            Ok(())
        });
        if let Err(why) = watch.within(limit::STORE, (on_removed,)).await {
            self.core.log.warn(format_args!("streams of runs do not show which runs are removed: {why}"));
        }
    }

    /// Asks the store for an unlisted automation that runs wait for. If it does not exist, the runs are cancelled; if
    /// it cannot be read, they wait until it is repaired.
    pub(super) fn seek(self: &Arc<Self>, id: &str) {
        if self.waiting_for(id) == 0 || !self.sought.lock().insert(id.to_owned()) {
            return;
        }
        let (automations, id) = (self.weak(), id.to_owned());
        tasks::spawn(async move {
            let mut said = None;
            for pause in pauses() {
                let Some(seeking) = automations.upgrade() else { return };
                let found = seeking.sought_now(&id).await;
                let Err(why) = found else {
                    seeking.sought.lock().remove(&id);
                    // Runs that arrived in the meantime started no search of their own.
                    return seeking.begin_waiting(&id);
                };
                if said.as_ref() != Some(&why.message) {
                    let waiting = seeking.waiting_for(&id);
                    seeking.core.log.warn(format_args!(
                        "{waiting} runs of automation {id} wait because it cannot be read: {why}; fix it to run them, or \
                         remove it to cancel them"
                    ));
                    said = Some(why.message);
                }
                drop(seeking);
                tokio::time::sleep(pause).await;
            }
        });
    }

    async fn sought_now(self: &Arc<Self>, id: &str) -> Result<(), Thrown> {
        if self.entry(id).is_some() {
            return Ok(());
        }
        let Some(store) = self.core.automation_store() else { return Ok(()) };
        match store.get.read(limit::STORE, (id.to_owned(),)).await.known()? {
            Some(kept) => self.list_entry(kept).await?,
            None => {
                let waiting = self.runs.lock().lanes.get_mut(id).map(|lane| lane.take_waiting());
                for run in waiting.into_iter().flatten() {
                    self.settle_run(&run, "cancelled", None).await;
                }
            }
        }
        Ok(())
    }

    fn waiting_for(&self, id: &str) -> usize {
        self.runs.lock().lanes.get(id).map_or(0, |lane| lane.waiting())
    }
}
