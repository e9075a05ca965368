//! Runs of automations that other hosts own. Those hosts report whose runs changed; this host reads them and shows them to its
//! clients: in the catalogue, in the feed, and in the channels of runs.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use ostler_contract::{Thrown, limit};
use ostler_engine_core::fanout::Outgoing;
use ostler_protocol::wire::actions::{
    AutomationRunLifecycleChangedAction, AutomationRunPrimarySessionChangedAction,
    AutomationRunSessionRemovedAction, AutomationRunSessionSetAction, StateAction,
};
use ostler_protocol::wire::state::{AutomationRunLifecycle, AutomationRunState};
use ostler_protocol::{Version, uri};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Automations;
use super::run::is_over;

/// How long reports are collected, so that a burst of runs costs one read of an automation.
const GATHER: Duration = Duration::from_millis(100);
/// The pause after the store could not be read.
const RETRY: Duration = Duration::from_secs(2);
/// How often the task checks whether the host stops.
const LOOK: Duration = Duration::from_secs(5);
/// How long a run without subscribers is followed: a client that returns subscribes after the run was read.
const RETAINED: Duration = Duration::from_secs(60);

/// What is known of the runs of other hosts.
#[derive(Debug, Default)]
pub(super) struct RunsElsewhere {
    /// The ids of automations with changed runs that were not read yet.
    changed: Mutex<BTreeSet<String>>,
    notify: Arc<Notify>,
    /// The runs with subscribers at this host.
    followed: Mutex<HashMap<String, Followed>>,
}

/// A run that clients follow.
#[derive(Debug)]
struct Followed {
    /// The URI of its automation.
    automation: String,
    shown: PublishedRun,
    /// Whether some subscribers saw another state.
    differs: bool,
    since: Instant,
}

/// What actions change of a run, as its subscribers saw it last. Its event, which can be long, does not change.
#[derive(Debug, Clone, PartialEq)]
struct PublishedRun {
    sessions: Vec<String>,
    primary_session: Option<String>,
    lifecycle: AutomationRunLifecycle,
}

impl PublishedRun {
    fn of(run: &AutomationRunState) -> Self {
        Self {
            sessions: run.sessions.clone(),
            primary_session: run.primary_session.clone(),
            lifecycle: run.lifecycle.clone(),
        }
    }
}

impl RunsElsewhere {
    /// Reads the runs of an automation soon.
    pub fn report(&self, automation: String) {
        self.changed.lock().insert(automation);
        self.notify.notify_one();
    }

    /// Follows a run as a subscriber has just seen it.
    fn follow(&self, run: &AutomationRunState) {
        let shown = PublishedRun::of(run);
        let id = uri::automation_id(&run.automation).unwrap_or_default().to_owned();
        self.followed
            .lock()
            .entry(run.resource.clone())
            .and_modify(|followed| {
                followed.differs |= followed.shown != shown;
                followed.since = Instant::now();
            })
            .or_insert_with(|| Followed {
                automation: run.automation.clone(),
                shown: PublishedRun::of(run),
                differs: false,
                since: Instant::now(),
            });
        // It may have changed since it was read.
        self.report(id);
    }
}

/// Shows the runs of other hosts for as long as this host runs.
pub(super) async fn show_runs_elsewhere(automations: Weak<Automations>) {
    let Some(notify) = automations.upgrade().map(|automations| automations.elsewhere.notify.clone()) else {
        return;
    };
    let mut said = None;
    loop {
        let is_reported = tokio::time::timeout(LOOK, notify.notified()).await.is_ok();
        if is_reported {
            tokio::time::sleep(GATHER).await;
        }
        let Some(showing) = automations.upgrade().filter(|automations| !automations.core.is_stopping())
        else {
            return;
        };
        let changed = std::mem::take(&mut *showing.elsewhere.changed.lock());
        let mut failed = None;
        for id in changed {
            if let Err(why) = showing.show_runs_of(&id).await {
                showing.elsewhere.report(id);
                failed = Some(why.message);
            }
        }
        if let Some(why) = failed.as_ref().filter(|_| failed != said) {
            showing.core.log.warn(format_args!("runs of other hosts could not be read: {why}; trying again"));
        }
        let pause = failed.is_some();
        said = failed;
        drop(showing);
        if pause {
            tokio::time::sleep(RETRY).await;
        }
    }
}

impl Automations {
    /// Shows a run that another host may change to the client that has just seen it in this state.
    pub fn follow_run(&self, run: &AutomationRunState) {
        if self.core.shared_runs().is_some() && !is_over(&run.lifecycle) {
            self.elsewhere.follow(run);
        }
    }

    /// Reads the runs of all automations soon, because reports may have been missed.
    pub(super) fn report_all(&self) {
        let ids: Vec<String> = self.catalogue.lock().entries.keys().cloned().collect();
        ids.into_iter().for_each(|id| self.elsewhere.report(id));
    }

    /// Follows runs that this host no longer owns.
    pub(super) fn follow_lost(&self, runs: &[AutomationRunState]) {
        let (watched, others): (Vec<_>, Vec<_>) =
            runs.iter().partition(|run| self.core.fanout.is_watched(&run.resource));
        watched.into_iter().for_each(|run| self.elsewhere.follow(run));
        self.end_run_pasts(others.into_iter().map(|run| &*run.resource));
    }

    /// Reads the newest runs of an automation of another host, and those that clients follow.
    async fn show_runs_of(&self, id: &str) -> Result<(), Thrown> {
        let Some(store) = self.core.automation_store() else { return Ok(()) };
        for run in self.followed_of(id) {
            if let Some(run) = store.run_of.read(limit::STORE, (run,)).await.known()? {
                self.show_followed(&run);
            }
        }
        if self.owns_runs_of(id) || self.entry(id).is_none() {
            return Ok(());
        }
        let page = store.runs.read(limit::STORE, (id.to_owned(), None)).await.known()?;
        for summary in self.list_page(id, &page) {
            self.core.feeds.runs.put(|| Arc::new(summary));
        }
        Ok(())
    }

    /// Ends the pasts of runs whose changes this host no longer publishes: a client that returns receives snapshots.
    fn end_run_pasts<'a>(&self, runs: impl Iterator<Item = &'a str>) {
        let mut runs = runs.peekable();
        if runs.peek().is_some() {
            self.core.fanout.end_pasts(runs);
        }
    }

    /// Returns the followed runs of an automation.
    fn followed_of(&self, id: &str) -> Vec<String> {
        let mut followed = self.elsewhere.followed.lock();
        let is_dropped =
            |run: &str, of: &Followed| of.since.elapsed() >= RETAINED && !self.core.fanout.is_watched(run);
        let dropped: Vec<String> =
            followed.extract_if(|run, of| is_dropped(run, of)).map(|(run, _)| run).collect();
        self.end_run_pasts(dropped.iter().map(String::as_str));
        let runs = followed.iter().filter(|(_, of)| uri::automation_id(&of.automation) == Some(id));
        runs.map(|(run, _)| run.clone()).collect()
    }

    /// Publishes how a followed run changed, unless this host owns it and publishes its changes itself.
    pub(super) fn show_followed(&self, run: &AutomationRunState) {
        if self.has_run(&run.resource) {
            return;
        }
        // Locked until the actions are queued, so that they are sent in the order of the reads.
        let mut followed = self.elsewhere.followed.lock();
        let Some(of) = followed.get_mut(&run.resource) else { return };
        let now = PublishedRun::of(run);
        let actions = changes(&of.shown, &now, of.differs);
        let outgoing = actions
            .iter()
            .filter_map(|action| serde_json::to_string(action).ok())
            .map(|text| Outgoing::host(text, Version::V0_9))
            .collect::<Vec<_>>();
        if !outgoing.is_empty() {
            self.core.fanout.publish(&run.resource, outgoing);
        }
        match is_over(&run.lifecycle) {
            true => drop(followed.remove(&run.resource)),
            false => (of.shown, of.differs) = (now, false),
        }
    }
}

/// Returns the actions that turn one state of a run into a later one; with `all`, those that also turn a state in between into
/// it, except for a session that was added and removed in between. Each sets a value, so it does nothing where the value is known.
fn changes(from: &PublishedRun, to: &PublishedRun, all: bool) -> Vec<StateAction> {
    let mut actions = Vec::new();
    for session in from.sessions.iter().filter(|session| !to.sessions.contains(session)) {
        let removed = AutomationRunSessionRemovedAction { session: session.clone() };
        actions.push(StateAction::AutomationRunSessionRemoved(removed));
    }
    for session in to.sessions.iter().filter(|session| all || !from.sessions.contains(session)) {
        let set = AutomationRunSessionSetAction { session: session.clone() };
        actions.push(StateAction::AutomationRunSessionSet(set));
    }
    if all || from.primary_session != to.primary_session {
        let primary =
            AutomationRunPrimarySessionChangedAction { primary_session: to.primary_session.clone() };
        actions.push(StateAction::AutomationRunPrimarySessionChanged(primary));
    }
    if all || from.lifecycle != to.lifecycle {
        let lifecycle = AutomationRunLifecycleChangedAction { lifecycle: to.lifecycle.clone() };
        actions.push(StateAction::AutomationRunLifecycleChanged(Box::new(lifecycle)));
    }
    actions
}

#[cfg(test)]
mod tests {
    use ahp::reducers::apply_action_to_automation_run;
    use serde_json::json;

    use super::*;

    fn run(sessions: &[&str], primary: Option<&str>, status: &str) -> AutomationRunState {
        let mut run = json!({
            "resource": "ahp-automation-run:/one", "automation": "ahp-automation:/a",
            "origin": { "kind": "manual" }, "sessions": sessions,
            "lifecycle": { "status": status, "createdAt": "1", "startedAt": "2", "completedAt": "3" },
        });
        if let Some(primary) = primary {
            run["primarySession"] = primary.into();
        }
        serde_json::from_value(run).unwrap()
    }

    #[test]
    fn subscribers_that_saw_different_states_have_the_last_one() {
        let states = [
            run(&[], None, "pending"),
            run(&["echo:/a"], Some("echo:/a"), "running"),
            run(&["echo:/a", "echo:/b"], Some("echo:/b"), "running"),
            run(&["echo:/b"], None, "completed"),
        ];
        for (at, from) in states.iter().enumerate() {
            for to in &states[at..] {
                let exact = changes(&PublishedRun::of(from), &PublishedRun::of(to), false);
                assert_eq!(exact.is_empty(), from == to);
                for (seen, actions) in
                    [(from, exact), (to, changes(&PublishedRun::of(from), &PublishedRun::of(to), true))]
                {
                    let mut seen = seen.clone();
                    for action in &actions {
                        apply_action_to_automation_run(&mut seen, action);
                    }
                    assert_eq!(PublishedRun::of(&seen), PublishedRun::of(to));
                }
            }
        }
    }
}
