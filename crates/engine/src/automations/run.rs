//! Runs: kept before anything comes of them, a session each, settled when it falls quiet.

use std::collections::HashMap;
use std::sync::Arc;

use ahp::reducers::{ReduceOutcome, apply_action_to_automation_run};
use ostler_contract::events::{Event, TurnStatus};
use ostler_contract::host::Fired;
use ostler_contract::points::TriggerType;
use ostler_contract::registry::Owner;
use ostler_contract::{Call, Caller, JsonObject, Thrown, Value};
use ostler_protocol::wire::actions::{
    AutomationRunLifecycleChangedAction, AutomationRunPrimarySessionChangedAction,
    AutomationRunSessionRemovedAction, AutomationRunSessionSetAction, StateAction,
};
use ostler_protocol::wire::state::{
    AutomationDefinition, AutomationManualRunOrigin, AutomationPendingRunLifecycle, AutomationRunLifecycle,
    AutomationRunOrigin, AutomationRunState, AutomationRunSummary, AutomationTriggeredRunOrigin, MessageKind,
};
use ostler_protocol::{RpcError, Version, json, names, uri};
use tokio::sync::oneshot;

use super::Automations;
use super::catalogue::none;
use super::message::{Facts, fill};
use super::triggers::Waiting;
use crate::fanout::{Fanout, Outgoing, Subscriber};
use crate::host::{Host, message};
use crate::sessions::{NewSession, Place, TurnRequest};

/// Hand-made requests remembered, so that one sent twice starts one run.
const REQUESTS_KEPT: usize = 1000;

/// Runs that have not ended, by URI, and the sessions they wait for.
#[derive(Debug, Default)]
pub(super) struct Runs {
    open: HashMap<String, AutomationRunState>,
    by_session: HashMap<String, String>,
}

/// A run as its automation's entry shows it.
pub(super) fn summary_of(run: &AutomationRunState) -> AutomationRunSummary {
    AutomationRunSummary {
        resource: run.resource.clone(),
        automation: run.automation.clone(),
        origin: run.origin.clone(),
        lifecycle: run.lifecycle.clone(),
        primary_session: run.primary_session.clone(),
        session_count: i64::try_from(run.sessions.len()).unwrap_or(i64::MAX),
        meta: run.meta.clone(),
    }
}

impl Automations {
    /// Whether a run has not ended.
    pub fn has_run(&self, run: &str) -> bool {
        self.runs.lock().open.contains_key(run)
    }

    /// Subscribes to a run that has not ended; answers its state as JSON text and the number it was taken at.
    pub fn subscribe_run(&self, fanout: &Fanout, run: &str, subscriber: Subscriber) -> Option<(String, u64)> {
        let runs = self.runs.lock();
        let state = serde_json::to_string(runs.open.get(run)?).ok()?;
        Some((state, fanout.subscribe(run, subscriber)))
    }

    /// Applies actions to a run and tells its watchers; answers it as it is then.
    fn apply(&self, fanout: &Fanout, run: &str, actions: Vec<StateAction>) -> Option<AutomationRunState> {
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
        let state = state.clone();
        if is_over(&state.lifecycle) {
            runs.open.remove(run);
            runs.by_session.retain(|_, of| of != run);
        }
        Some(state)
    }

    /// What is left of a run's session once it is disposed.
    pub(crate) async fn session_gone(&self, host: &Host, session: &str) {
        let run = self.runs.lock().by_session.remove(session);
        let Some(run) = run else { return };
        let removed = AutomationRunSessionRemovedAction { session: session.to_owned() };
        let cancelled = host.lifecycle(&run, "cancelled", None);
        let state = self.apply(
            &host.fanout,
            &run,
            vec![StateAction::AutomationRunSessionRemoved(removed)].into_iter().chain(cancelled).collect(),
        );
        if let Some(state) = state {
            self.show(&host.fanout, &state);
            host.keep_run(state).await;
        }
    }
}

fn is_over(lifecycle: &AutomationRunLifecycle) -> bool {
    !matches!(lifecycle, AutomationRunLifecycle::Pending(_) | AutomationRunLifecycle::Running(_))
}

impl Host {
    /// Says that an event of a plugin's trigger type happened. Every automation it matches starts a run; the
    /// call does not wait for them.
    pub(crate) fn fire(
        self: &Arc<Self>,
        caller: &Caller,
        r#type: &str,
        event: &str,
        data: JsonObject,
    ) -> Result<Fired, Thrown> {
        self.check_fire(caller, r#type, event)?;
        let (answer, wait) = oneshot::channel();
        if *self.automations.loaded.borrow() {
            let _ = answer.send(Ok(self.wake_all(r#type, event, &data)));
        } else {
            let (host, mut loaded) = (Arc::downgrade(self), self.automations.loaded.subscribe());
            let (caller, r#type, event) = (caller.clone(), r#type.to_owned(), event.to_owned());
            tokio::spawn(async move {
                let _ = loaded.wait_for(|loaded| *loaded).await;
                let Some(host) = host.upgrade() else { return };
                // Only now is it known whether the plugin applied and kept the name.
                let woken = host.check_fire(&caller, &r#type, &event);
                if let Err(why) = &woken {
                    host.log.line(why);
                }
                let _ = answer.send(woken.map(|()| host.wake_all(&r#type, &event, &data)));
            });
        }
        let wait = Arc::new(parking_lot::Mutex::new(Some(wait)));
        Ok(Fired {
            kept: Call::new(move |()| {
                let wait = wait.lock().take();
                async move {
                    let Some(wait) = wait else { return Ok(Vec::new()) };
                    let waits = wait
                        .await
                        .map_err(|_| Thrown::new("the host ended before this event was heard"))??;
                    let runs = futures::future::join_all(waits).await;
                    let lost = |_| Thrown::new("a run this event started could not be kept");
                    runs.into_iter().map(|run| run.map_err(lost)).collect()
                }
            }),
        })
    }

    /// Starts the runs of the automations an event matches.
    fn wake_all(
        self: &Arc<Self>,
        r#type: &str,
        event: &str,
        data: &JsonObject,
    ) -> Vec<oneshot::Receiver<String>> {
        let matching = self.automations.matching(r#type, event, data);
        matching.into_iter().filter_map(|waiting| self.wake(waiting, event, data)).collect()
    }

    fn check_fire(&self, caller: &Caller, r#type: &str, event: &str) -> Result<(), Thrown> {
        let needs =
            |what: &str| Thrown::new(format_args!("plugin {}: fireTrigger needs {what}", caller.plugin));
        let Some(registry) = self.registry() else { return Ok(()) };
        let own = registry
            .all::<TriggerType>()
            .iter()
            .find(|held| *held.r#type == *r#type && held.owner == Owner::Plugin(caller.plugin.clone()));
        let Some(own) = own else {
            return Err(needs(&format!("type to be a type this plugin registered, not {type}")));
        };
        if !own.events.iter().any(|offered| *offered.id == *event) {
            return Err(needs(&format!("event to be an event {type} offers, not {event}")));
        }
        Ok(())
    }

    /// Starts the run of one automation an event matched.
    fn wake(
        self: &Arc<Self>,
        waiting: Waiting,
        event: &str,
        data: &JsonObject,
    ) -> Option<oneshot::Receiver<String>> {
        let entry = self.automations.entry(&waiting.automation)?;
        if entry.owner.is_none() && !self.options.unowned_automations {
            return None;
        }
        let mut facts = data.clone();
        facts.insert("event".to_owned(), event.into());
        let origin = AutomationRunOrigin::Trigger(AutomationTriggeredRunOrigin {
            trigger_id: waiting.trigger,
            scheduled_for: None,
            catch_up: None,
            event: Some(facts),
        });
        let run = self.new_run(&entry.wire.resource, origin, entry.owner.as_deref());
        let (kept, wait) = oneshot::channel();
        tokio::spawn(self.clone().serve_run(run, Some(kept)));
        Some(wait)
    }

    fn new_run(
        &self,
        automation: &str,
        origin: AutomationRunOrigin,
        owner: Option<&str>,
    ) -> AutomationRunState {
        let mut meta = JsonObject::new();
        if let Some(owner) = owner {
            meta.insert(names::meta_key("owner"), owner.into());
        }
        AutomationRunState {
            resource: uri::automation_run(&self.new_id()),
            automation: automation.to_owned(),
            origin,
            lifecycle: AutomationRunLifecycle::Pending(AutomationPendingRunLifecycle {
                created_at: self.clock.iso(),
            }),
            sessions: Vec::new(),
            primary_session: None,
            meta: (!meta.is_empty()).then_some(meta),
        }
    }

    /// Starts a run by hand; the same request asked again answers the same run.
    pub(crate) async fn run_automation(
        self: &Arc<Self>,
        automation: &str,
        request: &str,
        _by: Option<String>,
    ) -> Result<String, RpcError> {
        if self.automation_store().is_none() {
            return Err(RpcError::method_not_found("this host keeps no automations"));
        }
        let unknown = || RpcError::session_not_found(none(automation));
        let id = uri::automation_id(automation).ok_or_else(unknown)?;
        let entry = self.automations.entry(id).ok_or_else(unknown)?;
        let key = (id.to_owned(), request.to_owned());
        let run = {
            let mut requests = self.automations.requests.lock();
            if let Some(run) = requests.get(&key) {
                return Ok(run.clone());
            }
            if requests.len() >= REQUESTS_KEPT {
                requests.clear();
            }
            let origin = AutomationRunOrigin::Manual(AutomationManualRunOrigin {});
            let run = self.new_run(&entry.wire.resource, origin, entry.owner.as_deref());
            requests.insert(key, run.resource.clone());
            run
        };
        let resource = run.resource.clone();
        let (kept, wait) = oneshot::channel();
        tokio::spawn(self.clone().serve_run(run, Some(kept)));
        wait.await.map_err(|_| RpcError::internal(format!("the run of {automation} could not be kept")))?;
        Ok(resource)
    }

    /// Takes a run from being asked for to its session. Nothing comes of a run that is not kept.
    async fn serve_run(self: Arc<Self>, run: AutomationRunState, kept: Option<oneshot::Sender<String>>) {
        let resource = run.resource.clone();
        if !self.keep_run(run.clone()).await {
            return;
        }
        self.automations.runs.lock().open.insert(resource.clone(), run.clone());
        if self.automations.show(&self.fanout, &run) {
            self.page_runs(uri::automation_id(&run.automation).unwrap_or_default()).await;
        }
        if let Some(kept) = kept {
            let _ = kept.send(resource.clone());
        }
        let automation = run.automation.clone();
        self.events.raise(Event::AutomationFire { automation, run: resource.clone() });
        if let Err(why) = self.start_run(&run).await {
            self.log.line(format_args!("{resource} of {} could not start: {why}", run.automation));
            self.settle_run(&resource, "failed", Some(why)).await;
        }
    }

    async fn start_run(self: &Arc<Self>, run: &AutomationRunState) -> Result<(), String> {
        let id = uri::automation_id(&run.automation).unwrap_or_default();
        let entry = self.automations.entry(id).ok_or_else(|| none(&run.automation))?;
        let definition = entry.wire.definition;
        let text = opening(&definition, run);
        let new = NewSession {
            id: self.new_id(),
            provider: definition.session.provider.clone(),
            owner: entry.owner.clone(),
            working_directories: definition.session.working_directories.clone().unwrap_or_default(),
            config: definition.session.config.clone().unwrap_or_default(),
            title: Some(definition.title.clone()),
            origin: Some(json!({ "kind": "automation", "automation": run.automation, "run": run.resource })),
            ..NewSession::default()
        };
        let claimed = self.claim_session(new).map_err(|error| error.message)?;
        let session = claimed.start(self).await.map_err(|error| error.message)?;
        self.automations.runs.lock().by_session.insert(session.uri.clone(), run.resource.clone());
        let running = self.lifecycle(&run.resource, "running", None);
        let linked = [
            StateAction::AutomationRunSessionSet(AutomationRunSessionSetAction {
                session: session.uri.clone(),
            }),
            StateAction::AutomationRunPrimarySessionChanged(AutomationRunPrimarySessionChangedAction {
                primary_session: Some(session.uri.clone()),
            }),
        ];
        self.change_run(&run.resource, running.into_iter().chain(linked).collect()).await;
        let mut first = message(text, MessageKind::Automation);
        first.attachments.clone_from(&definition.message.attachments);
        first.agent.clone_from(&definition.session.agent);
        let request = TurnRequest {
            place: Place::DefaultChat,
            message: first,
            model: definition.session.model.clone().or(definition.message.model),
            sender: entry.owner,
            queue: false,
        };
        self.start_turn(&session, request).await.map(|_| ())
    }

    /// A session fell quiet: the run that waits for it is over.
    pub(crate) fn session_quiet(&self, session: &str, status: TurnStatus, why: Option<String>, busy: bool) {
        let run = self.automations.runs.lock().by_session.get(session).cloned();
        let (Some(run), false) = (run, busy) else { return };
        let Some(host) = self.me() else { return };
        tokio::spawn(async move {
            match status {
                TurnStatus::Complete => host.settle_run(&run, "completed", None).await,
                TurnStatus::Cancelled => host.settle_run(&run, "cancelled", None).await,
                TurnStatus::Error => {
                    let why = why.map_or_else(
                        || "its turn failed".to_owned(),
                        |why| format!("its turn failed: {why}"),
                    );
                    host.settle_run(&run, "failed", Some(why)).await;
                }
            }
        });
    }

    async fn settle_run(&self, run: &str, how: &str, why: Option<String>) {
        if let Some(action) = self.lifecycle(run, how, why) {
            self.change_run(run, vec![action]).await;
        }
    }

    async fn change_run(&self, run: &str, actions: Vec<StateAction>) {
        let Some(state) = self.automations.apply(&self.fanout, run, actions) else { return };
        self.automations.show(&self.fanout, &state);
        self.keep_run(state).await;
    }

    async fn keep_run(&self, run: AutomationRunState) -> bool {
        let Some(store) = self.automation_store() else { return false };
        let resource = run.resource.clone();
        match store.run.call((run,)).await {
            Ok(()) => true,
            Err(why) => {
                self.log.line(format_args!("{resource} could not be kept: {why}"));
                false
            }
        }
    }

    /// The action that brings a run into a state; none where it has ended.
    fn lifecycle(&self, run: &str, status: &str, why: Option<String>) -> Option<StateAction> {
        let held = self.automations.runs.lock().open.get(run)?.lifecycle.clone();
        let held = serde_json::to_value(held).ok()?;
        let now = self.clock.iso();
        let mut next = json!({ "status": status, "createdAt": held["createdAt"] });
        if status == "running" {
            next["startedAt"] = now.into();
        } else {
            next["completedAt"] = now.into();
            if let Some(started) = held.get("startedAt") {
                next["startedAt"] = started.clone();
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

    /// Takes up the runs a stop left open: one that had not begun is begun, one that had is a failed one.
    pub(super) async fn resume_runs(self: &Arc<Self>) {
        let Some(unfinished) = self.automation_store().and_then(|store| store.unfinished.clone()) else {
            return;
        };
        let open = match unfinished.call(()).await {
            Ok(open) => open,
            Err(why) => return self.log.line(format_args!("unfinished runs could not be read: {why}")),
        };
        for run in open {
            let resource = run.resource.clone();
            let pending = matches!(run.lifecycle, AutomationRunLifecycle::Pending(_));
            self.automations.runs.lock().open.insert(resource.clone(), run.clone());
            if pending {
                tokio::spawn(self.clone().serve_run(run, None));
            } else {
                let why = "the host stopped while this run was going".to_owned();
                self.settle_run(&resource, "failed", Some(why)).await;
            }
        }
    }

    /// A run the store knows.
    pub(crate) async fn kept_run(&self, run: &str) -> Option<AutomationRunState> {
        let store = self.automation_store()?;
        store.run_of.call((run.to_owned(),)).await.ok().flatten()
    }
}

impl Automations {
    pub(super) fn matching(&self, r#type: &str, event: &str, data: &JsonObject) -> Vec<Waiting> {
        self.index.read().matching(r#type, event, data)
    }

    fn show(&self, fanout: &Fanout, run: &AutomationRunState) -> bool {
        uri::automation_id(&run.automation).is_some_and(|id| self.show_run(fanout, id, summary_of(run)))
    }
}

/// What a run says first.
fn opening(definition: &AutomationDefinition, run: &AutomationRunState) -> String {
    let template = match definition.message.text.trim() {
        "" => &definition.title,
        _ => &definition.message.text,
    };
    let AutomationRunOrigin::Trigger(origin) = &run.origin else { return fill(template, &Facts::default()) };
    let created = match &run.lifecycle {
        AutomationRunLifecycle::Pending(pending) => Some(pending.created_at.as_str()),
        _ => None,
    };
    let trigger = definition.triggers.iter().find_map(|trigger| match trigger {
        ostler_protocol::wire::state::AutomationTrigger::Event(trigger)
            if trigger.id == origin.trigger_id =>
        {
            Some(trigger.title.as_str())
        }
        _ => None,
    });
    let event = origin.event.as_ref().and_then(|data| data.get("event")).and_then(Value::as_str);
    fill(
        template,
        &Facts { trigger, event, data: origin.event.as_ref(), count: event.map(|_| 1), at: created },
    )
}
