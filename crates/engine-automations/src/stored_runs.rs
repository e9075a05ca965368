//! The writes of runs to the store, in the order of the changes, each with the decisions about wakes that the run counts.

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use ostler_contract::read::Read;
use ostler_contract::shared_runs::Decision;
use ostler_contract::{Thrown, in_time, limit};
use ostler_protocol::wire::actions::StateAction;
use ostler_protocol::wire::state::AutomationRunState;

use super::Automations;
use super::run::Runs;

/// The first and the longest pause before a run that could not be stored is stored again. The time doubles in between.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(16);

/// A state of a run as it is written, with the decisions about wakes that it counts.
#[derive(Debug, Clone)]
pub(super) struct RunWrite {
    pub state: AutomationRunState,
    decisions: Vec<Decision>,
}

/// A write that was sent to the store.
struct SentWrite {
    run: String,
    decisions: Vec<Decision>,
    answer: BoxFuture<'static, Result<(), Thrown>>,
}

impl Runs {
    /// Returns a state of a run as it is written now.
    pub(super) fn write_of(&self, state: AutomationRunState) -> RunWrite {
        let decisions = self.undecided.get(&state.resource).cloned().unwrap_or_default();
        RunWrite { state, decisions }
    }

    /// Removes decisions that were stored with a run; returns their wakes.
    fn decided(&mut self, run: &str, decisions: &[Decision]) -> Vec<String> {
        let Some(left) = self.undecided.get_mut(run) else { return Vec::new() };
        let stored = left.extract_if(.., |decision| decisions.contains(decision));
        let wakes = stored.map(|decision| decision.wake).collect();
        if left.is_empty() {
            self.undecided.remove(run);
        }
        wakes
    }
}

impl Automations {
    /// Applies actions to a run and sends the new state to the store. The future returns whether it is stored.
    pub(super) fn change(
        &self,
        run: &str,
        actions: Vec<StateAction>,
    ) -> Option<(RunWrite, impl Future<Output = bool> + Send + use<>)> {
        // Locked from the change on, so that no other change of the run is sent before it.
        let _in_order = self.keeping.lock();
        let write = self.apply(&self.core.fanout, run, actions)?;
        let keeping = self.keep_state(&write);
        Some((write, keeping))
    }

    /// Stores the current state of a run. Returns whether it is stored.
    pub(super) async fn keep_run(&self, run: &str) -> bool {
        let sent = {
            // The lock sends writes to the store in the order of the changes.
            let _in_order = self.keeping.lock();
            let runs = self.runs.lock();
            let write = runs.state_of(run).map(|state| runs.write_of(state.clone()));
            drop(runs);
            // The run has ended in the meantime, and that state is stored.
            let Some(write) = write else { return self.core.automation_store().is_some() };
            self.send_to_store(write)
        };
        match sent {
            Some(sent) => self.is_kept(sent).await,
            None => false,
        }
    }

    /// Stores the current state of a run. Where several hosts share the runs, a write that failed can have been stored, and a wake
    /// that it decides must not be decided again, so it is tried until it is stored or this host no longer has the run; at most
    /// `tries` times, if they are limited.
    pub(super) async fn keep_run_at_last(&self, run: &str, tries: Option<u32>) -> bool {
        let (mut tried, mut pause) = (0, FIRST_PAUSE);
        loop {
            if self.keep_run(run).await {
                return true;
            }
            tried += 1;
            if self.core.shared_runs().is_none() || tries == Some(tried) {
                return false;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            if self.core.is_stopping() || self.runs.lock().state_of(run).is_none() {
                return false;
            }
        }
    }

    /// Sends a state of a run to the store. `keeping` has to be locked.
    fn send_to_store(&self, write: RunWrite) -> Option<SentWrite> {
        let RunWrite { state, decisions } = write;
        let run = state.resource.clone();
        let answer = match self.core.shared_runs() {
            Some(shared) if !decisions.is_empty() => {
                in_time(limit::STORE, shared.store_with(state, decisions.clone())).boxed()
            }
            _ => self.core.automation_store()?.run.within(limit::STORE, (state,)).boxed(),
        };
        Some(SentWrite { run, decisions, answer })
    }

    /// Stores the given state of a run. The write is sent to the store before this function returns; `keeping` has to be locked.
    fn keep_state(&self, write: &RunWrite) -> impl Future<Output = bool> + Send + use<> {
        let (automations, sent) = (self.weak(), self.send_to_store(write.clone()));
        async move {
            let (Some(sent), Some(automations)) = (sent, automations.upgrade()) else { return false };
            let run = sent.run.clone();
            let kept = automations.is_kept(sent).await;
            if kept {
                automations.runs.lock().ended.remove(&run);
            }
            kept
        }
    }

    /// Stores the end of a run that could not be stored, once that is possible again.
    pub(super) async fn store_end(&self, mut kept: bool, write: &RunWrite) {
        // Not if the host has lost its runs in the meantime, because another one may have them.
        let is_ours = || self.runs.lock().ended.contains_key(&write.state.resource);
        let mut pause = FIRST_PAUSE;
        while !kept && !self.core.is_stopping() {
            match self.core.lost_storage() {
                Some(_) if !self.core.can_store().await => return,
                None if self.core.shared_runs().is_none() => return,
                None => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Some(_) => {}
            }
            if !is_ours() {
                return;
            }
            let keeping = {
                let _in_order = self.keeping.lock();
                self.keep_state(write)
            };
            kept = keeping.await;
        }
    }

    async fn is_kept(&self, sent: SentWrite) -> bool {
        let SentWrite { run, decisions, answer } = sent;
        if let Err(why) = answer.await {
            self.core.log.warn(format_args!("{run} could not be stored: {why}"));
            return false;
        }
        if !decisions.is_empty() {
            let wakes = self.runs.lock().decided(&run, &decisions);
            self.shared.are_stored(wakes);
        }
        true
    }

    /// Returns a run from the store.
    pub async fn kept_run(&self, run: &str) -> Read<Option<AutomationRunState>> {
        // The store may not have its end yet, and subscribers receive no further action.
        if let Some(ended) = self.runs.lock().ended.get(run) {
            return Read::Known(Some(ended.clone()));
        }
        match self.core.automation_store() {
            Some(store) => store.run_of.read(limit::STORE, (run.to_owned(),)).await,
            None => Read::Known(None),
        }
    }
}
