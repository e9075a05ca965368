//! Events that plugins fire, and their result: a run that begins, a run that waits, or a message in the running turn.

use std::sync::Arc;

use ostler_contract::host::{EventData, Fired, Firing, Routing};
use ostler_contract::live::ready;
use ostler_contract::points::TriggerType;
use ostler_contract::registry::Registrant;
use ostler_contract::shared_runs::{EventRecords, FiredOnce, Wake, WakeKind};
use ostler_contract::{Caller, HostFunction, JsonObject, Pending, Thrown, limit};
use ostler_engine_core::message::message;
use ostler_engine_core::tasks;
use ostler_engine_sessions::{Place, ToSession, TurnRequest};
use ostler_protocol::grants::Grant;
use ostler_protocol::sent::{SentFields, SentObject};
use ostler_protocol::wire::state::{AutomationRunOrigin, AutomationRunState, MessageKind};
use ostler_protocol::{RpcError, Value, names, uri};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::Span;

use super::catalogue::CatalogueEntry;
use super::lanes::{Admission, Cause};
use super::large::{LONGEST, Unreadable, select};
use super::merged_wakes::MergedWake;
use super::message::{RunPlace, fields_read, opening};
use super::order::Order;
use super::run::{COUNT, DROPPED, EVENT, LATEST, LITERALS, STEERED};
use super::shared::{id_of, kind_of, mark_cause};
use super::triggers::Waiting;
use super::unheard::Woken;
use super::wake_event::{WakeEvent, facts_for, of_plugin};
use crate::Automations;

/// Why an event started no run during another one.
pub(super) const SKIPPED: &str = "a run of it is active, and its overlap is skip";

/// What an event became that is stored together with its record.
#[derive(Debug)]
pub(super) enum Admitted {
    Run {
        run: AutomationRunState,
        /// Whether it begins now.
        begins: bool,
        kept: StoredRunSender,
    },
    /// An event of this run.
    Merged {
        run: String,
        /// Whether no task stores its events.
        first: bool,
    },
}

/// Receives the run that an event started or was merged into, once that run is stored, or `None` if there is no such
/// run. Closed without a value if the run cannot be stored.
pub(super) type StoredRunReceiver = oneshot::Receiver<Option<String>>;

/// Returns a run that is stored already.
fn known(run: String) -> StoredRunReceiver {
    let (stored, wait) = oneshot::channel();
    let _ = stored.send(Some(run));
    wait
}

/// The sender of a [`StoredRunReceiver`].
pub(super) type StoredRunSender = oneshot::Sender<Option<String>>;

impl Automations {
    /// Reports an event of a plugin's trigger type. Every automation that matches starts a run; the call does not wait
    /// for the runs.
    pub fn fire(
        self: &Arc<Self>,
        caller: &Caller,
        r#type: &str,
        event: &str,
        data: JsonObject,
    ) -> Result<Fired, Thrown> {
        self.check_fire(caller, r#type, event)?;
        let (answer, wait) = oneshot::channel();
        if *self.loaded.borrow() {
            let _ = answer.send(Ok(self.wake_all(&by_plugin(caller), r#type, event, data.into())));
        } else {
            let (automations, mut loaded) = (Arc::downgrade(self), self.loaded.subscribe());
            let (caller, r#type, event) = (caller.clone(), r#type.to_owned(), event.to_owned());
            tasks::spawn(async move {
                let _ = loaded.wait_for(|loaded| *loaded).await;
                let Some(automations) = automations.upgrade() else { return };
                // Whether the plugin loaded and keeps its trigger type is known only now.
                let woken = automations.check_fire(&caller, &r#type, &event);
                if let Err(why) = &woken {
                    automations.core.log.warn(why);
                }
                let by = by_plugin(&caller);
                let _ = answer.send(woken.map(|()| automations.wake_all(&by, &r#type, &event, data.into())));
            });
        }
        let wait = Arc::new(parking_lot::Mutex::new(Some(wait)));
        Ok(Fired {
            kept: HostFunction::new(move |()| {
                let wait = wait.lock().take();
                async move {
                    let Some(wait) = wait else { return Ok(Vec::new()) };
                    let woken = wait
                        .await
                        .map_err(|_| Thrown::new("the host ended before this event was handled"))??;
                    woken.runs().await
                }
            }),
        })
    }

    /// Returns the triggers that an event fires.
    fn matching(&self, r#type: &str, event: &str, data: &SentObject) -> Vec<Arc<Waiting>> {
        let (matching, _) = self.index.read().matching(r#type, event, data);
        if matching.is_empty() {
            self.note_unheard(r#type, event, data.as_sent());
        }
        matching
    }

    /// Starts the runs of the automations that an event matches.
    fn wake_all(self: &Arc<Self>, by: &str, r#type: &str, event: &str, data: SentObject) -> Woken {
        let matching = self.matching(r#type, event, &data);
        self.wake_each(by, &matching, event, data)
    }

    /// Wakes each automation that an event of a plugin matched.
    fn wake_each(
        self: &Arc<Self>,
        by: &str,
        matching: &[Arc<Waiting>],
        event: &str,
        data: SentObject,
    ) -> Woken {
        let mut woken = Woken::default();
        for (waiting, own_field, facts) in facts_for(matching, event, data) {
            let happened = of_plugin(by, waiting, event, own_field);
            woken.add(&waiting.automation, self.wake_by_event(&waiting.automation, &happened, facts, 1));
        }
        woken
    }

    /// Starts the runs of an event of a native plugin, which may be ordered. Long JSON text is parsed outside the
    /// shared threads, one text at a time, and only the fields that the matching automations read.
    pub fn fire_event(
        self: Arc<Self>,
        caller: &Caller,
        r#type: String,
        event: String,
        data: EventData,
        routing: Option<Routing>,
        records: EventRecords,
    ) -> Pending<FiredOnce> {
        let data = match data {
            // Nearly every event takes this path, which needs no future that contains the event.
            EventData::Fields(data) if *self.loaded.borrow() => {
                return match self.check_fire(caller, &r#type, &event) {
                    Ok(()) => self.wake_fields(caller, &r#type, &event, data, routing.as_ref(), records),
                    Err(why) => ready(Err(why)),
                };
            }
            data => data,
        };
        let caller = caller.clone();
        Box::pin(async move {
            let ended = || Thrown::new("the host ended before this event was handled");
            if !*self.loaded.borrow() {
                let mut loaded = self.loaded.subscribe();
                let read = tokio::time::timeout(limit::STORE_SCAN, loaded.wait_for(|loaded| *loaded)).await;
                read.map_err(|_| Thrown::new("the automations could not be read yet; send the event again"))?
                    .map_err(|_| ended())?;
            }
            self.check_fire(&caller, &r#type, &event)?;
            let (text, over) = match data {
                EventData::Fields(data) => {
                    return self.wake_fields(&caller, &r#type, &event, data, routing.as_ref(), records).await;
                }
                EventData::Text { text, over } => (text, over),
            };
            let by = by_plugin(&caller);
            let automations = self.clone();
            let read = move || {
                automations.wake_all_text(&by, (&r#type, &event), (&text, &over), routing.as_ref(), records)
            };
            let alone = self.reading_text.lock().await;
            let woken = tokio::task::spawn_blocking(read).await.map_err(|_| ended())?;
            // Others read their texts while the runs of this one are stored.
            drop(alone);
            match woken {
                Ok(fired) => fired.await,
                Err(why) => Err(Thrown::from(RpcError::invalid_params(why.text()))),
            }
        })
    }

    fn wake_fields(
        self: &Arc<Self>,
        caller: &Caller,
        r#type: &str,
        event: &str,
        data: SentObject,
        routing: Option<&Routing>,
        records: EventRecords,
    ) -> Pending<FiredOnce> {
        let matching = self.matching(r#type, event, &data);
        if matching.is_empty() {
            return self.fire_unheard((r#type, event), data, records);
        }
        self.wake_in_order(&by_plugin(caller), &matching, event, data, routing, records)
    }

    fn wake_all_text(
        self: &Arc<Self>,
        by: &str,
        (r#type, event): (&str, &str),
        (text, over): (&[u8], &JsonObject),
        routing: Option<&Routing>,
        records: EventRecords,
    ) -> Result<Pending<FiredOnce>, Unreadable> {
        let with_own = |mut read: SentObject| {
            over.iter().for_each(|(key, value)| read.insert(key, value.clone()));
            read
        };
        let keys = self.index.read().keys(r#type, event);
        let mut names: Vec<&str> = keys.iter().map(String::as_str).collect();
        let decides = with_own(select(text, &names)?.fields);
        let matching = self.matching(r#type, event, &decides);
        let woken: Vec<_> = matching.iter().filter_map(|waiting| self.entry(&waiting.automation)).collect();
        names.extend(woken.iter().flat_map(|entry| fields_read(&entry.wire.definition)));
        names.extend(routing.map(|routing| routing.by.as_str()));
        if matching.is_empty() {
            return Ok(self.fire_unheard((r#type, event), decides, records));
        }
        let mut read = select(text, &names)?;
        read.too_long.sort_unstable();
        read.too_long.dedup();
        for field in &read.too_long {
            self.core.log.warn(format_args!(
                "{{{{event.{field}}}}} of a {type} event is longer than the {LONGEST} bytes that are read, so it is empty"
            ));
        }
        Ok(self.wake_in_order(by, &matching, event, with_own(read.fields), routing, records))
    }

    /// Wakes the automations that an event matched: all of them, or none if one of them has no room for a waiting run. What
    /// is left to do is in the returned future.
    pub(super) fn wake_in_order(
        self: &Arc<Self>,
        by: &str,
        matching: &[Arc<Waiting>],
        event: &str,
        data: SentObject,
        routing: Option<&Routing>,
        records: EventRecords,
    ) -> Pending<FiredOnce> {
        let order = routing.and_then(|routing| Order::of(routing, data.as_sent()));
        let shared = self.core.shared_runs();
        // Only this function queues ordered runs. The lock therefore preserves the room that was found, and events are
        // accepted in the order of their arrival.
        let _in_order = order.is_some().then(|| self.ordering.lock());
        if let Some(order) = &order
            && !self.have_room(matching, order)
        {
            let full = if records.once.is_some() { FiredOnce::Recorded } else { FiredOnce::Fired };
            return ready(Ok(full(Firing::Full)));
        }
        if order.is_none() && shared.is_none() && records.once.is_none() {
            let woken = self.wake_each(by, matching, event, data);
            return Box::pin(async move { woken.firing().await.map(FiredOnce::Fired) });
        }
        let mut woken = Woken::default();
        let mut runs: Vec<(Arc<CatalogueEntry>, AutomationRunState)> = Vec::new();
        for (waiting, own_field, facts) in facts_for(matching, event, data) {
            let happened = of_plugin(by, waiting, event, own_field);
            match self.woken(&waiting.automation, &happened) {
                Ok(entry) => {
                    let run = self.run_of_event(&entry, &happened, facts, 1);
                    runs.push((entry, run));
                }
                Err(why) => woken.add(&waiting.automation, Err(why)),
            }
        }
        if let Some(once) = &records.once {
            mark_cause(runs.iter_mut().map(|(_, run)| run), &once.cause);
        }
        if let Some(shared) = shared {
            let kind = WakeKind::of_event(order.as_ref().and(routing));
            let wakes = runs.into_iter().map(|(_, run)| Wake { run, kind: kind.clone() });
            return Box::pin(self.clone().send_wakes(shared.clone(), wakes.collect(), records, woken));
        }
        let cause = order.as_ref().map_or(Cause::Event, Cause::Ordered);
        let EventRecords { once, log } = records;
        if let (Some(once), Some(transactions)) = (once, self.core.run_transactions()) {
            let mut group = Vec::new();
            for (entry, run) in runs {
                let id = id_of(&run).to_owned();
                woken.add(&id, self.admit(&entry, run, cause, Some(&mut group)).1);
            }
            return Box::pin(self.clone().serve_group(transactions.clone(), group, woken, (once, log)));
        }
        for (entry, run) in runs {
            let id = id_of(&run).to_owned();
            let stored = match self.run_of_cause(&run) {
                Some(earlier) => Ok(known(earlier)),
                None => self.wake_here(&entry, run, cause).1,
            };
            woken.add(&id, stored);
        }
        Box::pin(async move { woken.firing().await.map(FiredOnce::Fired) })
    }

    pub(super) fn check_fire(&self, caller: &Caller, r#type: &str, event: &str) -> Result<(), Thrown> {
        let Some(registry) = self.core.registry() else { return Ok(()) };
        let own = registry
            .all::<TriggerType>()
            .iter()
            .find(|held| *held.r#type == *r#type && held.owner == Registrant::Plugin(caller.plugin.clone()));
        TriggerType::may_fire(own.map(|held| &**held), &caller.plugin, r#type, event)
    }

    /// Wakes one automation for an event, unless its owner may not see the event.
    pub(super) fn wake_by_event(
        self: &Arc<Self>,
        automation: &str,
        happened: &WakeEvent<'_>,
        facts: SentObject,
        count: u64,
    ) -> Result<StoredRunReceiver, String> {
        let entry = self.woken(automation, happened)?;
        let cause = happened.order.map_or(Cause::Event, Cause::Ordered);
        match self.merge(automation, &entry, happened, cause, facts, count) {
            Ok(kept) => Ok(kept),
            Err(facts) => self.wake(&entry, self.run_of_event(&entry, happened, facts, count), cause),
        }
    }

    /// Returns an automation that an event wakes, unless its owner may not see the event; the error is the reason.
    pub(super) fn woken(
        &self,
        automation: &str,
        happened: &WakeEvent<'_>,
    ) -> Result<Arc<CatalogueEntry>, String> {
        let entry = self.entry(automation).ok_or("it was removed")?;
        if let Err(why) = self.may_be_woken(entry.owner.as_deref(), happened.of_session) {
            let WakeEvent { trigger, event, .. } = happened;
            self.core.log.warn(format_args!(
                "{}: its trigger {trigger} is not woken by the event {event}: {why}",
                entry.wire.resource
            ));
            return Err(why);
        }
        Ok(entry)
    }

    /// Checks that an event may wake an automation of this owner; the error is the reason. Session events require the
    /// right to read sessions.
    pub(super) fn may_be_woken(
        &self,
        owner: Option<&str>,
        of_session: Option<Option<&str>>,
    ) -> Result<(), String> {
        let Some(owner) = owner else {
            return match self.core.options.unowned_automations {
                true => Ok(()),
                false => Err("it has no owner, and unownedAutomations is none".to_owned()),
            };
        };
        // The grant for subscribing to a session, which `session:read` includes.
        self.access.require_of(owner, &Grant::of("session", "state")).map_err(|refused| refused.message)?;
        match of_session {
            Some(session) if !self.access.sees_of(owner, session) => Err(format!(
                "{owner} may only see its own sessions, and this one belongs to {}",
                session.unwrap_or("no user")
            )),
            _ => Ok(()),
        }
    }

    /// Turns a wake into a run, a merged event or nothing, for which the error is the reason. Where hosts share runs, the owner of the automation does so.
    pub(super) fn wake(
        self: &Arc<Self>,
        entry: &CatalogueEntry,
        run: AutomationRunState,
        cause: Cause<'_>,
    ) -> Result<StoredRunReceiver, String> {
        match self.core.shared_runs() {
            Some(shared) => Ok(self.send_wake(shared, Wake { run, kind: kind_of(cause) })),
            None => self.wake_here(entry, run, cause).1,
        }
    }

    /// Turns a wake into a run, a merged event or nothing on this host. Returns whether it starts a run of its own.
    pub(super) fn wake_here(
        self: &Arc<Self>,
        entry: &CatalogueEntry,
        run: AutomationRunState,
        cause: Cause<'_>,
    ) -> (bool, Result<StoredRunReceiver, String>) {
        self.admit(entry, run, cause, None)
    }

    /// Like [`Self::wake_here`]. A run that starts or waits is added to `group`, which has to be served; without it, the run is
    /// stored and served.
    pub(super) fn admit(
        self: &Arc<Self>,
        entry: &CatalogueEntry,
        mut run: AutomationRunState,
        cause: Cause<'_>,
        group: Option<&mut Vec<Admitted>>,
    ) -> (bool, Result<StoredRunReceiver, String>) {
        let Some(id) = uri::automation_id(&run.automation).map(str::to_owned) else {
            return (false, Err("its URI has no id".to_owned()));
        };
        let settings = &entry.settings;
        let chat_busy = self.pinned_chat_is_busy(settings);
        let resource = run.resource.clone();
        let (kept, wait) = oneshot::channel();
        let (admission, kept) = {
            let mut runs = self.runs.lock();
            let lane = runs.lanes.entry(id.clone()).or_default();
            let admission = lane.admit(&resource, cause, settings, chat_busy, Instant::now());
            match &admission {
                Admission::Start | Admission::Wait => {
                    if let Cause::Ordered(order) = cause {
                        order.mark(&mut run, lane.place());
                    }
                    runs.accept(run.clone());
                }
                // Counts the wake before the run can end.
                Admission::Fold(held) => {
                    let wake = MergedWake::of(run, self.core.shared_runs().is_some());
                    let first = runs.note(held, COUNT, wake, kept);
                    drop(runs);
                    match group {
                        Some(group) => group.push(Admitted::Merged { run: held.clone(), first }),
                        None if first => self.keep_notes(held.clone()),
                        None => {}
                    }
                    return (false, Ok(wait));
                }
                _ => {}
            }
            (admission, kept)
        };
        match admission {
            Admission::Start | Admission::Wait => {
                let begins = admission == Admission::Start;
                match group {
                    Some(group) => group.push(Admitted::Run { run, begins, kept }),
                    None => drop(tasks::spawn(self.clone().serve_run(run, begins, kept))),
                }
                return (true, Ok(wait));
            }
            // Counted above.
            Admission::Fold(_) => {}
            Admission::Drop(Some(held)) => {
                // The caller receives no run id: no run receives this event.
                let (counted, is_counted) = oneshot::channel();
                self.note(held, counted, run, DROPPED);
                if self.core.shared_runs().is_none() {
                    return (false, Err(SKIPPED.to_owned()));
                }
                tasks::spawn(async move {
                    if is_counted.await.is_ok() {
                        let _ = kept.send(None);
                    }
                });
                return (false, Ok(wait));
            }
            Admission::Drop(None) => return (false, Err(SKIPPED.to_owned())),
            Admission::Steer(held) => {
                tasks::spawn(self.clone().steer_or_queue(id, held, run, kept));
            }
            Admission::Capped(times) => {
                self.core.log.warn(format_args!(
                    "{} woke {times} times in the last hour, so this wake was dropped",
                    run.automation
                ));
                return (false, Err(format!("{times} runs in the last hour reach its hourlyCap")));
            }
        }
        (false, Ok(wait))
    }

    /// Counts a wake in an existing run and stores the count.
    fn note(
        self: &Arc<Self>,
        held: String,
        kept: StoredRunSender,
        wake: AutomationRunState,
        what: &'static str,
    ) {
        let wake = MergedWake::of(wake, self.core.shared_runs().is_some());
        let first = self.runs.lock().note(&held, what, wake, kept);
        if first {
            self.keep_notes(held);
        }
    }

    /// Adds a wake's message to the running turn; if the turn does not accept it, queues the wake.
    async fn steer_or_queue(
        self: Arc<Self>,
        id: String,
        held: Option<String>,
        run: AutomationRunState,
        kept: StoredRunSender,
    ) {
        let Some(entry) = self.entry(&id) else { return };
        let settings = &entry.settings;
        let session = match &held {
            Some(held) => self.runs.lock().open.get(held).and_then(|run| run.primary_session.clone()),
            None => settings.pinned_session.clone(),
        };
        // A session with a running turn is in memory.
        let target = session.and_then(|session| self.sessions.by_uri(&session));
        if let Some(target) = target
            && target.owner == entry.owner
            // Its run ends with the reason.
            && !self.has_no_message(&entry, &run)
        {
            let links = &self.core.options.links;
            let place = RunPlace { run: held.as_deref(), session: &target.uri, links };
            let request = TurnRequest {
                place: Place::DefaultChat,
                message: message(opening(&entry.wire.definition, &run, place), MessageKind::Automation),
                model: None,
                sender: settings.editor.clone().or(entry.owner.clone()),
                queue: false,
                // A message added to a running turn starts no work, so no policy applies.
                allowed: true,
                span: Span::current(),
            };
            let (taken, wait) = oneshot::channel();
            self.sessions.tell(&target, ToSession::Steer { request: Box::new(request), taken });
            if wait.await == Ok(true) {
                match held {
                    Some(held) => self.note(held, kept, run, STEERED),
                    None => drop(kept.send(None)),
                }
                return;
            }
        }
        let chat_busy = self.pinned_chat_is_busy(settings);
        let admission = {
            let mut runs = self.runs.lock();
            let lane = runs.lanes.entry(id).or_default();
            let admission = lane.admit(&run.resource, Cause::Counted, settings, chat_busy, Instant::now());
            if matches!(admission, Admission::Start | Admission::Wait) {
                runs.open.insert(run.resource.clone(), run.clone());
            }
            admission
        };
        match admission {
            Admission::Start => self.serve_run(run, true, kept).await,
            Admission::Wait => self.serve_run(run, false, kept).await,
            Admission::Fold(held) => self.note(held, kept, run, COUNT),
            _ => {}
        }
    }
}

/// The name of a plugin as the source of an event.
pub(super) fn by_plugin(caller: &Caller) -> String {
    format!("plugin:{}", caller.plugin)
}

/// Returns how many events a run contains.
pub(super) fn count_of(run: &AutomationRunState) -> u64 {
    let counted = run.meta.as_ref().and_then(|meta| meta.get(&names::meta_key(COUNT))?.as_u64());
    counted.unwrap_or(1)
}

/// Returns the id of a run's newest event, if the event's data has its own field `event`.
pub(super) fn event_id_of(run: &AutomationRunState) -> Option<&Value> {
    run.meta.as_ref()?.get(&names::meta_key(EVENT))
}

/// Returns the data of a run's newest event.
pub(super) fn event_of(run: &AutomationRunState) -> Option<SentFields<'_>> {
    let fact = |fact: &str| run.meta.as_ref()?.get(&names::meta_key(fact));
    let latest = fact(LATEST).and_then(Value::as_object);
    let fields = latest.or(match &run.origin {
        AutomationRunOrigin::Trigger(origin) => origin.event.as_ref(),
        AutomationRunOrigin::Manual(_) => None,
    });
    Some(SentFields::new(fields?, fact(LITERALS)))
}
