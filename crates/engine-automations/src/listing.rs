//! An automation in the catalogue channel: its definition with its latest runs, published to subscribers at a bounded
//! pace.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ostler_contract::limit;
use ostler_contract::points::RunPage;
use ostler_contract::read::Read;
use ostler_engine_core::fanout::{Fanout, Origin, Outgoing};
use ostler_engine_core::tasks;
use ostler_protocol::wire::actions::{AutomationSetAction, StateAction};
use ostler_protocol::wire::state::{AutomationEntry, AutomationRunSummary};
use ostler_protocol::{Version, uri};
use tokio::time::Instant;

use super::Automations;
use super::catalogue::CatalogueEntry;
use super::pace::Pace;
use super::run_summary::summary_of;

/// How many runs an entry contains.
const RUNS_LISTED: usize = 20;

/// One automation of the catalogue.
#[derive(Debug)]
pub(super) struct Listed {
    pub entry: Arc<CatalogueEntry>,
    /// Newest first.
    runs: VecDeque<AutomationRunSummary>,
    runs_next_cursor: Option<String>,
    /// Whether new runs made the list longer than an entry may be.
    crowded: bool,
    /// Locked while the page of newest runs is read.
    paging: Arc<tokio::sync::Mutex<()>>,
    pace: Pace,
    /// Whether a task publishes the entry once the pace allows.
    deferred: bool,
}

impl Listed {
    /// Creates an entry with its newest runs.
    pub fn new(entry: CatalogueEntry, runs: &RunPage) -> Self {
        Self {
            entry: Arc::new(entry),
            runs: runs.runs.iter().map(summary_of).collect(),
            runs_next_cursor: runs.next_cursor.clone(),
            crowded: false,
            paging: Arc::default(),
            pace: Pace::default(),
            deferred: false,
        }
    }

    /// Returns the automation with its runs as the protocol's entry.
    pub fn wire(&self) -> AutomationEntry {
        AutomationEntry {
            runs: self.runs.iter().cloned().collect(),
            runs_next_cursor: self.runs_next_cursor.clone(),
            ..self.entry.wire.clone()
        }
    }

    /// Publishes the current entry.
    pub fn publish(&mut self, fanout: &Fanout, origin: Option<Origin>) {
        self.deferred = false;
        publish(
            fanout,
            &StateAction::AutomationSet(Box::new(AutomationSetAction { automation: self.wire() })),
            origin,
        );
    }

    /// Publishes the entry if the pace allows it. Otherwise returns the time until it may be published, or `None` if
    /// that is already scheduled.
    fn publish_paced(&mut self, fanout: &Fanout) -> Option<Duration> {
        if self.deferred {
            return None;
        }
        match self.pace.take(Instant::now()) {
            Ok(()) => {
                self.publish(fanout, None);
                None
            }
            Err(wait) => {
                self.deferred = true;
                Some(wait)
            }
        }
    }

    /// Adds or replaces a run. Returns whether that changed it.
    fn put(&mut self, run: AutomationRunSummary) -> bool {
        match self.runs.iter_mut().find(|listed| listed.resource == run.resource) {
            Some(listed) if *listed == run => return false,
            Some(listed) => *listed = run,
            None => {
                self.runs.push_front(run);
                self.crowded |= self.runs.len() > RUNS_LISTED;
            }
        }
        true
    }

    /// Removes all runs that are older than the newest page, and stores the cursor that leads to them.
    fn cut(&mut self, page: &RunPage) {
        let oldest = page.runs.last();
        let at = oldest.and_then(|oldest| self.runs.iter().position(|run| run.resource == oldest.resource));
        if let Some(at) = at {
            self.runs.truncate(at + 1);
            self.runs_next_cursor.clone_from(&page.next_cursor);
        }
        self.crowded = self.runs.len() > RUNS_LISTED;
    }
}

/// Publishes an action of the catalogue channel.
pub(super) fn publish(fanout: &Fanout, action: &StateAction, origin: Option<Origin>) {
    if let Ok(text) = serde_json::to_string(action) {
        fanout.publish(uri::AUTOMATIONS, vec![Outgoing { origin, ..Outgoing::host(text, Version::V0_9) }]);
    }
}

impl Automations {
    fn with_listed<T>(&self, id: &str, change: impl FnOnce(&mut Listed) -> T) -> Option<T> {
        self.catalogue.lock().entries.get_mut(id).map(change)
    }

    /// Adds a page of older runs to an entry.
    pub(super) fn add_page(&self, fanout: &Fanout, id: &str, page: RunPage) {
        let mut catalogue = self.catalogue.lock();
        let Some(listed) = catalogue.entries.get_mut(id) else { return };
        for run in page.runs.iter().map(summary_of) {
            if !listed.runs.iter().any(|known| known.resource == run.resource) {
                listed.runs.push_back(run);
            }
        }
        listed.runs_next_cursor = page.next_cursor;
        listed.publish(fanout, None);
    }
}

impl Automations {
    /// Lists a run's current state and publishes its automation's entry. Several tasks list the same run; the last one lists the newest state, because the state
    /// is read under the lock that stores it. A run that is neither open nor ended was listed as ended by the task that
    /// stored its end.
    pub(super) async fn list_run(&self, run: &str, automation: &str) {
        let Some(id) = uri::automation_id(automation) else { return };
        let put = |listed: &mut Listed| {
            if let Some(summary) = self.runs.lock().state_of(run).map(summary_of) {
                listed.put(summary);
            }
            listed.crowded
        };
        if self.with_listed(id, put) == Some(true) {
            self.list_newest(id).await;
        }
        self.publish_listed(id);
    }

    /// Lists the newest page of an automation's runs, which another host stored. Returns those that changed.
    pub(super) fn list_page(&self, id: &str, page: &RunPage) -> Vec<AutomationRunSummary> {
        let put = |listed: &mut Listed| {
            let newest = page.runs.iter().rev().map(|run| self.newest(run));
            let changed: Vec<_> = newest.filter(|run| listed.put(run.clone())).collect();
            if listed.crowded {
                listed.cut(page);
            }
            changed
        };
        let changed = self.with_listed(id, put).unwrap_or_default();
        if !changed.is_empty() {
            self.publish_listed(id);
        }
        changed
    }

    /// Publishes an automation's entry: immediately, or together with later changes after many publications.
    fn publish_listed(&self, id: &str) {
        let publish = |listed: &mut Listed| listed.publish_paced(&self.core.fanout);
        let Some(wait) = self.with_listed(id, publish).flatten() else { return };
        let (automations, id) = (self.weak(), id.to_owned());
        tasks::spawn(async move {
            tokio::time::sleep(wait).await;
            let Some(automations) = automations.upgrade() else { return };
            automations.with_listed(&id, |listed| listed.publish(&automations.core.fanout, None));
        });
    }

    /// Reduces an entry to its newest page of runs; its cursor leads to the others. Runs that are listed while a page
    /// is read share the next one.
    async fn list_newest(&self, id: &str) {
        let Some(store) = self.core.automation_store() else { return };
        let Some(paging) = self.with_listed(id, |listed| listed.paging.clone()) else { return };
        let _turn = paging.lock().await;
        if self.with_listed(id, |listed| listed.crowded) != Some(true) {
            return;
        }
        match store.runs.read(limit::STORE, (id.to_owned(), None)).await {
            Read::Known(page) => drop(self.with_listed(id, |listed| listed.cut(&page))),
            Read::Unknown(why) => {
                self.core.log.warn(format_args!("the runs of {id} could not be read: {why}"))
            }
        }
    }
}
