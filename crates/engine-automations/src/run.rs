//! Runs: each is stored before it has any effect, works in a session, and ends when that session is idle.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ahp::reducers::{ReduceOutcome, apply_action_to_automation_run};
use ostler_contract::JsonObject;
use ostler_contract::events::TurnStatus;
use ostler_contract::shared_runs::Decision;
use ostler_engine_core::fanout::{Fanout, Outgoing, Subscriber};
use ostler_engine_core::tasks;
use ostler_engine_core::traces;
use ostler_engine_users::users::principal::Principal;
use ostler_protocol::wire::actions::{
    AutomationRunLifecycleChangedAction, AutomationRunSessionRemovedAction, StateAction,
};
use ostler_protocol::wire::state::{
    AutomationManualRunOrigin, AutomationPendingRunLifecycle, AutomationRunLifecycle, AutomationRunOrigin,
    AutomationRunState,
};
use ostler_protocol::{RpcError, Version, json, names, uri};
use tokio::time::Instant;
use tracing::Span;

use super::Automations;
use super::catalogue::none;
use super::fire::StoredRunSender;
use super::lanes::{Cause, Lane, Next};
use super::merged_wakes::MergedWakes;
use super::shared::mark_cause;
use super::stored_runs::RunWrite;

/// How many requests to run an automation are remembered, so that a repeated request starts one run.
const REQUESTS_KEPT: usize = 1000;

/// Facts of a run under `_meta.ostler.<fact>`: the owner, the source of the trigger, the number of merged events, the
/// newest event's data, what the data of the newest event does not keep of what was sent, the number of events steered into its turn, the number of events dropped during it, the request
/// that started it, the newest event's id if its data has its own field `event`, the cause that starts no other run, and how
/// often it was resumed after its host was lost. `after` is in `finishing.rs`.
pub(super) const OWNER: &str = "owner";
const TRIGGERED_BY: &str = "triggeredBy";
pub(super) const COUNT: &str = "count";
pub(super) const LATEST: &str = "latest";
pub(super) const LITERALS: &str = "literals";
pub(super) const STEERED: &str = "steered";
pub(super) const DROPPED: &str = "dropped";
const REQUEST: &str = "request";
pub(super) const EVENT: &str = "event";
pub(super) const CAUSE: &str = "cause";
pub(super) const RESUMED: &str = "resumed";

/// How often a new run is tried to be stored: other runs wait for it.
const NEW_RUN: u32 = 5;

const CHAT_BUSY: &str = "The chat this automation runs in is already running a turn";

/// Returns the automation and the cause of a run whose cause starts no other one.
fn key_of_cause(run: &AutomationRunState) -> Option<(String, String)> {
    let cause = run.meta.as_ref()?.get(&names::meta_key(CAUSE))?.as_str()?;
    Some((uri::automation_id(&run.automation)?.to_owned(), cause.to_owned()))
}

/// Runs that have not ended, by URI, with their sessions and their lane in each automation.
#[derive(Debug)]
pub(super) struct Runs {
    pub open: HashMap<String, AutomationRunState>,
    pub(super) by_session: HashMap<String, String>,
    /// Runs that have ended, but whose end is not stored yet.
    pub(super) ended: HashMap<String, AutomationRunState>,
    /// The tracing spans of the runs that have started.
    pub(super) spans: HashMap<String, Span>,
    /// What is known of the events merged into a run, by its URI; some may not be stored yet.
    pub noted: HashMap<String, MergedWakes>,
    pub lanes: HashMap<String, Lane>,
    /// Runs whose session has accepted their message.
    pub said: HashSet<String>,
    /// Runs whose operation after the turn is in progress here.
    pub(super) finishing: HashSet<String>,
    /// The outcomes of turns whose session is not idle yet, with the error.
    outcomes: HashMap<String, (TurnStatus, Option<String>)>,
    /// The decisions about wakes that the next write of a run contains, by its URI.
    pub(super) undecided: HashMap<String, Vec<Decision>>,
    /// Runs accepted before the unfinished runs of the store were read, which may list them too; `None` afterwards.
    pub(super) early: Option<HashSet<String>>,
}

impl Default for Runs {
    fn default() -> Self {
        Self {
            open: HashMap::default(),
            by_session: HashMap::default(),
            ended: HashMap::default(),
            spans: HashMap::default(),
            noted: HashMap::default(),
            lanes: HashMap::default(),
            said: HashSet::default(),
            finishing: HashSet::default(),
            outcomes: HashMap::default(),
            undecided: HashMap::default(),
            early: Some(HashSet::default()),
        }
    }
}

impl Automations {
    /// Whether a run has not ended.
    pub fn has_run(&self, run: &str) -> bool {
        self.runs.lock().open.contains_key(run)
    }

    /// Returns how many runs have not ended, and how many of those wait for earlier ones.
    pub fn run_counts(&self) -> (usize, usize) {
        let runs = self.runs.lock();
        (runs.open.len(), runs.lanes.values().map(Lane::waiting).sum())
    }

    /// Subscribes to a run that has not ended. Returns its state as JSON text and the sequence number of that state.
    pub fn subscribe_run(&self, fanout: &Fanout, run: &str, subscriber: Subscriber) -> Option<(String, u64)> {
        let runs = self.runs.lock();
        let state = serde_json::to_string(runs.open.get(run)?).ok()?;
        Some((state, fanout.subscribe(run, subscriber)))
    }

    /// Applies actions to a run and publishes them to its subscribers. Returns the new state.
    pub(super) fn apply(&self, fanout: &Fanout, run: &str, actions: Vec<StateAction>) -> Option<RunWrite> {
        let mut runs = self.runs.lock();
        let state = runs.open.get_mut(run)?;
        let mut outgoing = Vec::new();
        for action in actions {
            if apply_action_to_automation_run(state, &action) == ReduceOutcome::Applied
                && let Ok(text) = serde_json::to_string(&action)
            {
                outgoing.push(Outgoing::host(text, Version::V0_9));
            }
        }
        fanout.publish(run, outgoing);
        self.feed_run(state);
        let state = state.clone();
        let write = runs.write_of(state);
        if is_over(&write.state.lifecycle) {
            runs.ended.insert(write.state.resource.clone(), write.state.clone());
            runs.leave(&write.state);
        }
        Some(write)
    }

    /// Removes a disposed session from its run and cancels the run.
    pub async fn session_gone(&self, session: &str) {
        let run = self.runs.lock().by_session.remove(session);
        let Some(run) = run else { return };
        let removed = AutomationRunSessionRemovedAction { session: session.to_owned() };
        let cancelled = self.lifecycle(&run, "cancelled", None);
        let actions = vec![StateAction::AutomationRunSessionRemoved(removed)].into_iter().chain(cancelled);
        if let Some((write, keeping)) = self.change(&run, actions.collect()) {
            let RunWrite { state, .. } = &write;
            self.list_run(&state.resource, &state.automation).await;
            let kept = keeping.await;
            self.store_end(kept, &write).await;
            if let Some(automations) = self.me() {
                automations.begin_waiting(uri::automation_id(&state.automation).unwrap_or_default());
            }
        }
    }
}

impl Runs {
    /// Adds an accepted run.
    pub fn accept(&mut self, run: AutomationRunState) {
        if let Some(early) = &mut self.early {
            early.insert(run.resource.clone());
        }
        self.open.insert(run.resource.clone(), run);
    }

    /// Adds a run whose turn completed before a stop of the host.
    pub(super) fn add_completed(&mut self, run: &AutomationRunState) {
        self.outcomes.insert(run.resource.clone(), (TurnStatus::Complete, None));
        if let Some(session) = &run.primary_session {
            self.by_session.insert(session.clone(), run.resource.clone());
        }
    }

    /// Returns the current state of a run, unless its end is already stored.
    pub fn state_of(&self, run: &str) -> Option<&AutomationRunState> {
        self.open.get(run).or_else(|| self.ended.get(run))
    }

    /// Removes every run of an automation, and returns those that had not ended. Turns that still run in their sessions
    /// continue without a run.
    pub fn forget(&mut self, id: &str) -> Vec<AutomationRunState> {
        let Some(lane) = self.lanes.remove(id) else { return Vec::new() };
        let mut open = Vec::new();
        for run in lane.runs() {
            open.extend(self.open.remove(run));
            self.noted.remove(run);
            self.undecided.remove(run);
            self.spans.remove(run);
            self.said.remove(run);
            self.finishing.remove(run);
            self.outcomes.remove(run);
            self.by_session.retain(|_, of| of != run);
        }
        open
    }

    /// Removes every run. Turns that still run in their sessions continue without a run.
    pub fn forget_all(&mut self) {
        *self = Self { early: None, ..Self::default() };
    }

    /// Removes a run that has ended or that could not be stored.
    fn leave(&mut self, run: &AutomationRunState) {
        self.open.remove(&run.resource);
        if self.noted.get(&run.resource).is_some_and(|noted| !noted.has_task()) {
            self.noted.remove(&run.resource);
        }
        self.said.remove(&run.resource);
        self.finishing.remove(&run.resource);
        self.outcomes.remove(&run.resource);
        if let Some(span) = self.spans.remove(&run.resource) {
            span.record("outcome", traces::run_outcome(&run.lifecycle));
        }
        self.by_session.retain(|_, of| *of != run.resource);
        let id = uri::automation_id(&run.automation).unwrap_or_default();
        if let Some(lane) = self.lanes.get_mut(id) {
            lane.leave(&run.resource);
            if lane.is_idle(Instant::now()) {
                self.lanes.remove(id);
            }
        }
    }
}

/// Whether a run has ended.
pub(super) fn is_over(lifecycle: &AutomationRunLifecycle) -> bool {
    !matches!(lifecycle, AutomationRunLifecycle::Pending(_) | AutomationRunLifecycle::Running(_))
}

impl Automations {
    pub(super) fn new_run(
        &self,
        automation: &str,
        origin: AutomationRunOrigin,
        owner: Option<&str>,
        by: Option<&str>,
        count: u64,
    ) -> AutomationRunState {
        let mut meta = JsonObject::new();
        for (fact, value) in [(OWNER, owner), (TRIGGERED_BY, by)] {
            if let Some(value) = value {
                meta.insert(names::meta_key(fact), value.into());
            }
        }
        if count > 1 {
            meta.insert(names::meta_key(COUNT), count.into());
        }
        AutomationRunState {
            resource: uri::automation_run(&self.core.new_ascending_id()),
            automation: automation.to_owned(),
            origin,
            lifecycle: AutomationRunLifecycle::Pending(AutomationPendingRunLifecycle {
                created_at: self.core.clock.iso(),
            }),
            sessions: Vec::new(),
            primary_session: None,
            meta: (!meta.is_empty()).then_some(meta),
        }
    }

    /// Starts a run by hand. A repeated request returns the same run.
    pub async fn run_automation(
        self: &Arc<Self>,
        automation: &str,
        request: &str,
        by: &Principal,
    ) -> Result<String, RpcError> {
        self.core.automations_kept()?;
        let unknown = || RpcError::session_not_found(none(automation));
        let id = uri::automation_id(automation).ok_or_else(unknown)?;
        let entry = self.entry(id).ok_or_else(unknown)?;
        self.access.gate.require_owned(by, entry.owner.as_deref(), "run", &entry.wire.resource)?;
        let refused = |why: String| RpcError::permission_denied(why);
        self.may_start(entry.owner.as_deref()).map_err(refused)?;
        let settings = &entry.settings;
        let key = (id.to_owned(), request.to_owned());
        // Loads the pinned session first; it is looked up again below, under the lock on requests.
        let _held = self.load_pinned(settings).await.known()?;
        let run = {
            let mut requests = self.requests.lock();
            if let Some(run) = requests.get(&key) {
                return Ok(run.clone());
            }
            if settings.pinned {
                self.own_pinned(settings, entry.owner.as_deref()).map_err(refused)?;
                if self.pinned_chat_is_busy(settings) {
                    return Err(refused(CHAT_BUSY.to_owned()));
                }
            }
            if requests.len() >= REQUESTS_KEPT {
                requests.clear();
            }
            let origin = AutomationRunOrigin::Manual(AutomationManualRunOrigin {});
            let by = self.access.owner_of(by);
            let mut run =
                self.new_run(&entry.wire.resource, origin, entry.owner.as_deref(), by.as_deref(), 1);
            run.meta.get_or_insert_default().insert(names::meta_key(REQUEST), request.into());
            if self.core.shared_runs().is_some() {
                mark_cause([&mut run], &format!("request:{request}"));
            }
            requests.insert(key, run.resource.clone());
            run
        };
        let lost = || RpcError::internal(format!("the run of {automation} could not be stored"));
        let first = run.resource.clone();
        let kept = self.wake(&entry, run, Cause::Press).map_err(|_| lost())?;
        let kept = kept.await.ok().flatten().ok_or_else(lost)?;
        if kept != first {
            // Another host started a run for the same request.
            self.requests.lock().insert((id.to_owned(), request.to_owned()), kept.clone());
        }
        Ok(kept)
    }

    /// Remembers the request that started a stored run, so that the same request after a restart starts no other run.
    pub(super) fn remember_request(&self, run: &AutomationRunState) {
        let request = run.meta.as_ref().and_then(|meta| meta.get(&names::meta_key(REQUEST))?.as_str());
        if let (Some(request), Some(id)) = (request, uri::automation_id(&run.automation)) {
            let key = (id.to_owned(), request.to_owned());
            self.requests.lock().insert(key, run.resource.clone());
        }
    }

    /// Remembers the cause of a stored run. The host can have been killed before the record that identifies its event was stored.
    pub(super) fn remember_cause(&self, run: &AutomationRunState) {
        // Where hosts share runs, their store knows the causes.
        if self.core.shared_runs().is_none()
            && let Some(key) = key_of_cause(run)
        {
            self.causes.lock().insert(key, run.resource.clone());
        }
    }

    /// Returns the run that an earlier start stored for the automation and the cause of a run.
    pub(super) fn run_of_cause(&self, run: &AutomationRunState) -> Option<String> {
        key_of_cause(run).and_then(|key| self.causes.lock().get(&key).cloned())
    }

    /// Stores an accepted run and begins it. A run that cannot be stored has no effect.
    pub(super) async fn serve_run(
        self: Arc<Self>,
        run: AutomationRunState,
        begins: bool,
        kept: StoredRunSender,
    ) {
        match self.keep_run_at_last(&run.resource, Some(NEW_RUN)).await {
            true => self.serve_stored(run, begins, kept).await,
            false => self.drop_unstored(&run),
        }
    }

    /// Removes an accepted run that could not be stored.
    pub(super) fn drop_unstored(self: &Arc<Self>, run: &AutomationRunState) {
        let mut runs = self.runs.lock();
        runs.leave(run);
        // The senders of events merged into it get no answer, because those events are not stored.
        runs.noted.remove(&run.resource);
        runs.undecided.remove(&run.resource);
        drop(runs);
        self.begin_waiting(uri::automation_id(&run.automation).unwrap_or_default());
    }

    /// Publishes a stored run and begins it.
    pub(super) async fn serve_stored(
        self: Arc<Self>,
        run: AutomationRunState,
        begins: bool,
        kept: StoredRunSender,
    ) {
        // Its automation may have been removed while it was stored, and the readers of the feed know that.
        if self.runs.lock().state_of(&run.resource).is_some() {
            self.feed_run(&run);
        }
        self.list_run(&run.resource, &run.automation).await;
        let _ = kept.send(Some(run.resource.clone()));
        if begins {
            self.begin_run(&run.resource).await;
        }
    }

    /// Begins the waiting runs that may begin now.
    pub(super) fn begin_waiting(self: &Arc<Self>, id: &str) {
        loop {
            let Some(entry) = self.entry(id) else { return self.seek(id) };
            let settings = &entry.settings;
            let chat_busy = self.pinned_chat_is_busy(settings);
            let next = {
                let mut runs = self.runs.lock();
                runs.lanes.get_mut(id).map(|lane| lane.next(settings, chat_busy, Instant::now()))
            };
            let run = match next {
                Some(Next::Begin(run)) => run,
                None | Some(Next::Nothing) => return,
                Some(Next::Later(wait)) => {
                    let (automations, id) = (self.weak(), id.to_owned());
                    tasks::spawn(async move {
                        tokio::time::sleep(wait).await;
                        if let Some(automations) = automations.upgrade() {
                            automations.begin_waiting(&id);
                        }
                    });
                    return;
                }
            };
            let automations = self.clone();
            match entry.wire.definition.enabled {
                true => drop(tasks::spawn(async move { automations.begin_run(&run).await })),
                // The automation was switched off in the meantime.
                false => {
                    drop(tasks::spawn(async move { automations.settle_run(&run, "cancelled", None).await }))
                }
            }
        }
    }

    /// Records the outcome of a run's turn. The run ends once its session is idle.
    pub fn run_turn_ended(&self, run: &str, status: TurnStatus, why: Option<String>) {
        let mut runs = self.runs.lock();
        if runs.open.contains_key(run) {
            runs.outcomes.insert(run.to_owned(), (status, why));
        }
    }

    /// Cancels a run whose message was removed from the queue before its turn.
    pub fn run_withdrawn(&self, run: &str) {
        let Some(automations) = self.me() else { return };
        let run = run.to_owned();
        tasks::spawn(async move { automations.settle_run(&run, "cancelled", None).await });
    }

    /// Ends the run of a session that has become idle, with the outcome of the run's own turn.
    pub fn session_quiet(&self, session: &str, busy: bool, waits: bool) {
        if busy {
            return;
        }
        let run = self.runs.lock().by_session.get(session).cloned();
        let Some(automations) = self.me() else { return };
        let Some(run) = run else {
            // The turn belonged to no run; it occupied a pinned chat that runs may wait for.
            for id in self.pinned_to(session) {
                automations.begin_waiting(&id);
            }
            return;
        };
        let outcome = {
            let runs = self.runs.lock();
            match runs.outcomes.get(&run) {
                Some(outcome) => outcome.clone(),
                // The run's message is neither queued nor in a turn any more.
                None if runs.said.contains(&run) && !waits => (TurnStatus::Cancelled, None),
                // Another turn ended before the run's own.
                None => return,
            }
        };
        tasks::spawn(async move {
            match outcome {
                (TurnStatus::Complete, _) => automations.complete_run(&run).await,
                (TurnStatus::Cancelled, _) => automations.settle_run(&run, "cancelled", None).await,
                (TurnStatus::Error, why) => {
                    let why = why.map_or_else(
                        || "its turn failed".to_owned(),
                        |why| format!("its turn failed: {why}"),
                    );
                    automations.settle_run(&run, "failed", Some(why)).await;
                }
            }
        });
    }

    pub(super) async fn settle_run(self: &Arc<Self>, run: &str, how: &str, why: Option<String>) {
        if let Some(action) = self.lifecycle(run, how, why) {
            self.change_run(run, vec![action]).await;
        }
    }

    /// Changes a run. The write is sent to the store before this function returns, so that later writes follow it. The
    /// returned future waits until the change is stored and, if the run has ended, begins the runs that waited for it.
    pub(super) fn change_run(
        self: &Arc<Self>,
        run: &str,
        actions: Vec<StateAction>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let automations = self.clone();
        let change = self.change(run, actions);
        async move {
            let Some((write, keeping)) = change else { return };
            let RunWrite { state, .. } = &write;
            automations.list_run(&state.resource, &state.automation).await;
            let kept = keeping.await;
            if is_over(&state.lifecycle) {
                automations.store_end(kept, &write).await;
                automations.begin_waiting(uri::automation_id(&state.automation).unwrap_or_default());
            }
        }
    }

    /// Returns the action that changes a run's lifecycle, or `None` if the run has ended.
    pub(super) fn lifecycle(&self, run: &str, status: &str, why: Option<String>) -> Option<StateAction> {
        let held = self.runs.lock().open.get(run)?.lifecycle.clone();
        let held = serde_json::to_value(held).ok()?;
        let now = self.core.clock.iso();
        let mut next = json!({ "status": status, "createdAt": held["createdAt"] });
        match status {
            "pending" => {}
            "running" => next["startedAt"] = now.into(),
            _ => {
                next["completedAt"] = now.into();
                if let Some(started) = held.get("startedAt") {
                    next["startedAt"] = started.clone();
                }
            }
        }
        if let Some(message) = why {
            next["error"] = json!({ "errorType": "automation", "message": message });
        }
        let lifecycle = serde_json::from_value(next).ok()?;
        Some(StateAction::AutomationRunLifecycleChanged(Box::new(AutomationRunLifecycleChangedAction {
            lifecycle,
        })))
    }
}
