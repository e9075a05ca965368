//! Automations that several hosts share. Every host stores the wakes that it observes; the owner of an automation decides about
//! them and has all its runs, so that overlap, order and the hourly cap are those of a single host.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use ostler_contract::cluster::ClusterEvent;
use ostler_contract::host::{Firing, Routing};
use ostler_contract::shared_runs::{
    Acquired, EventRecords, EventRuns, FiredOnce, Once, RecordOf, RunTransactions, Sent, SharedRuns, Wake,
    WakeKind,
};
use ostler_contract::{Thrown, in_time, limit};
use ostler_engine_core::tasks;
use ostler_protocol::wire::state::AutomationRunState;
use ostler_protocol::{names, uri};
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::Automations;
use super::catalogue::CatalogueEntry;
use super::fire::{Admitted, StoredRunReceiver, StoredRunSender, event_of};
use super::lanes::Cause;
use super::order::Order;
use super::plan::most_runs;
use super::run::CAUSE;
use super::unheard::Woken;

/// How often a host looks for work without a notification.
const LOOK: Duration = Duration::from_secs(2);
/// How long a caller waits for the decision about a wake. The wake is stored, so it starts its run later.
const DECISION: Duration = Duration::from_secs(20);
/// The longest cause that is stored as it is, in bytes.
const LONGEST_CAUSE: usize = 200;

/// The wakes that this host stored or decides, and the automations that it owns.
#[derive(Debug, Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// Notified when there may be something to do.
    changed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct State {
    owned: HashSet<String>,
    /// Wakes that this host decides.
    deciding: HashSet<String>,
    /// Wakes whose decision was stored with the run that counts them, until they are marked as decided.
    stored: HashSet<String>,
    /// Decided wakes, with their runs, that a look that has begun may still find.
    decided: HashMap<String, Option<String>>,
    /// Automations without room for another waiting run, whose wakes wait in the store.
    full: HashSet<String>,
    /// Who waits for the decision about a wake.
    waiting: HashMap<String, Vec<StoredRunSender>>,
    /// Whether this host is notified of work.
    listens: bool,
    /// How often this host lost its lease, and with it what it decided.
    losses: u64,
}

/// The wakes of one call of which this host decides before they are stored.
#[derive(Debug, Default)]
struct Claimed {
    wakes: HashSet<String>,
    losses: u64,
}

pub(super) fn kind_of(cause: Cause<'_>) -> WakeKind {
    match cause {
        Cause::Event | Cause::Counted => WakeKind::Event,
        Cause::Ordered(order) => WakeKind::Ordered { by: order.by.clone(), session: order.session },
        Cause::Clock => WakeKind::Clock,
        Cause::Press => WakeKind::Manual,
    }
}

/// Writes the cause into runs, so that it starts no others. An automation with several matching triggers has several runs.
pub(super) fn mark_cause<'a>(runs: impl IntoIterator<Item = &'a mut AutomationRunState>, cause: &str) {
    let cause = match cause.len() > LONGEST_CAUSE {
        true => {
            let hash = hex::encode(digest(&SHA256, cause.as_bytes()));
            let kind = cause.split(':').next().unwrap_or_default();
            format!("{}:sha256:{hash}", kind.get(..LONGEST_CAUSE).unwrap_or(kind))
        }
        false => cause.to_owned(),
    };
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for run in runs {
        let count = counts.entry(&run.automation).or_default();
        *count += 1;
        let cause = if *count > 1 { format!("{cause}#{count}") } else { cause.clone() };
        run.meta.get_or_insert_default().insert(names::meta_key(CAUSE), cause.into());
    }
}

pub(super) fn id_of(run: &AutomationRunState) -> &str {
    uri::automation_id(&run.automation).unwrap_or_default()
}

/// Looks for work for as long as the host runs.
pub(super) async fn serve_shared(automations: Weak<Automations>) {
    let Some(changed) = automations.upgrade().map(|automations| automations.shared.changed.clone()) else {
        return;
    };
    let (mut thorough, mut said) = (Instant::now(), None);
    loop {
        let Some(running) = automations.upgrade().filter(|automations| !automations.core.is_stopping())
        else {
            return;
        };
        // What a draining host owned is looked for at once, so that callers do not wait for another host to take it.
        let is_thorough = thorough.elapsed() >= LOOK || running.is_draining();
        if is_thorough {
            thorough = Instant::now();
        }
        let failed = running.look(is_thorough).await.err().map(|why| why.message);
        if let Some(why) = failed.as_ref().filter(|_| failed != said) {
            running.core.log.warn(format_args!("runs of automations that wait could not be read: {why}"));
        }
        said = failed;
        drop(running);
        let _ = tokio::time::timeout(LOOK, changed.notified()).await;
    }
}

impl Automations {
    /// Takes over what this host has to do now, and begins to listen for more.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(super) async fn begin_sharing(self: &Arc<Self>, shared: &Arc<dyn SharedRuns>) -> Result<(), Thrown> {
        if !std::mem::replace(&mut self.shared.state.lock().listens, true) {
            let changed = self.shared.changed.clone();
            shared.listen(Arc::new(move || changed.notify_one()));
            if let Some(cluster) = self.core.cluster() {
                let automations = self.weak();
                cluster.listen(Arc::new(move |event| {
                    let Some(automations) = automations.upgrade() else { return };
                    match event {
                        ClusterEvent::LeaseLost => automations.forget_runs(),
                        ClusterEvent::HostsChanged => automations.shared.changed.notify_one(),
                        ClusterEvent::LeaseRegained => {
                            automations.shared.changed.notify_one();
                            automations.report_all();
                        }
                        ClusterEvent::RunsChanged { automation } => automations.elsewhere.report(automation),
                        _ => {}
                    }
                }));
            }
        }
        self.look(true).await
    }

    /// Forgets every run, because another host may take them over. Their turns are ended by the sessions.
    fn forget_runs(&self) {
        self.runs.lock().forget_all();
        let mut state = self.shared.state.lock();
        *state = State { listens: true, losses: state.losses + 1, ..State::default() };
    }

    /// Whether this host leaves decisions to other hosts.
    fn is_draining(&self) -> bool {
        self.core.cluster().is_some_and(|cluster| cluster.is_draining())
    }

    /// Whether this host decides about the runs of an automation.
    pub(super) fn owns_runs_of(&self, id: &str) -> bool {
        self.shared.state.lock().owned.contains(id)
    }

    /// Stores one wake; returns its run.
    pub(super) fn send_wake(self: &Arc<Self>, shared: &Arc<dyn SharedRuns>, wake: Wake) -> StoredRunReceiver {
        let (kept, wait) = oneshot::channel();
        let (automations, shared) = (self.clone(), shared.clone());
        tasks::spawn(async move {
            let automation = wake.run.automation.clone();
            let (wakes, records) = (vec![wake], EventRecords::default());
            match automations.clone().send_wakes(shared, wakes, records, Woken::default()).await {
                Ok(FiredOnce::Fired(Firing::Started { runs, .. })) => {
                    let _ = kept.send(runs.into_iter().next());
                }
                Ok(FiredOnce::Fired(Firing::Requested)) => drop(kept.send(None)),
                Ok(_) => automations
                    .core
                    .log
                    .warn(format_args!("{automation} was not woken: too many of its runs wait")),
                Err(why) => {
                    automations
                        .core
                        .log
                        .warn(format_args!("a run of {automation} could not be stored: {why}"));
                }
            }
        });
        wait
    }

    /// Stores wakes, and the records of their event with them. Returns their runs once the owners of the automations have
    /// decided.
    pub(super) async fn send_wakes(
        self: Arc<Self>,
        shared: Arc<dyn SharedRuns>,
        wakes: Vec<Wake>,
        records: EventRecords,
        mut woken: Woken,
    ) -> Result<FiredOnce, Thrown> {
        let EventRecords { once, log } = records;
        if wakes.is_empty() && once.is_none() && log.is_none() {
            return woken.firing().await.map(FiredOnce::Fired);
        }
        let names: Vec<String> = wakes.iter().map(|wake| wake.run.resource.clone()).collect();
        let runs = match wakes.is_empty() {
            true => EventRuns::Decided(&[]),
            false => EventRuns::Requested(&names),
        };
        let (record, log) = (once.map(|once| (once.record)(runs)), log.map(|log| log(runs)));
        // Before they are stored, so that no look decides them too.
        let claimed = self.shared.state.lock().claim(if self.is_draining() { &[] } else { &wakes });
        let sent = in_time(limit::STORE, shared.send(wakes.clone(), record, log)).await;
        let stored = match sent {
            Ok(Sent::Stored(stored)) => stored,
            not_stored => {
                self.shared.state.lock().release(&claimed);
                return match not_stored {
                    Ok(Sent::Full) => Ok(FiredOnce::Fired(Firing::Full)),
                    Ok(_) => Ok(FiredOnce::Repeated),
                    Err(why) => {
                        // It may have been stored.
                        self.shared.changed.notify_one();
                        Err(why)
                    }
                };
            }
        };
        if wakes.is_empty() {
            return woken.firing().await.map(FiredOnce::Recorded);
        }
        for (key, wake) in stored.into_iter().zip(wakes) {
            let id = id_of(&wake.run).to_owned();
            woken.add(&id, Ok(self.await_decision(key, wake, &claimed)));
        }
        Ok(FiredOnce::Fired(match tokio::time::timeout(DECISION, woken.firing()).await {
            Ok(firing) => firing?,
            Err(_) => Firing::Requested,
        }))
    }

    /// Waits for the decision about a stored wake, which is made here if it was claimed.
    fn await_decision(self: &Arc<Self>, key: String, wake: Wake, claimed: &Claimed) -> StoredRunReceiver {
        let (keep, wait) = oneshot::channel();
        let (resource, entry) = (&wake.run.resource, self.entry(id_of(&wake.run)));
        let here = {
            let mut state = self.shared.state.lock();
            // Otherwise a look may decide it now: it has taken the automation over since.
            let own = claimed.losses == state.losses && claimed.wakes.contains(resource);
            let here = entry.filter(|_| own && key == *resource);
            if own && here.is_none() {
                // An earlier wake has the same cause, or the automation was removed.
                state.deciding.remove(resource);
            }
            match state.decided.get(&key) {
                Some(run) => drop(keep.send(run.clone())),
                None => state.waiting.entry(key).or_default().push(keep),
            }
            here
        };
        match here {
            Some(entry) => self.decide(&entry, wake),
            None => self.shared.changed.notify_one(),
        }
        wait
    }

    /// Finds what this host has to do: automations to take over, wakes to decide, and decisions that callers wait for. A
    /// thorough look also compares which automations this host owns.
    async fn look(self: &Arc<Self>, is_thorough: bool) -> Result<(), Thrown> {
        let Some(shared) = self.core.shared_runs() else { return Ok(()) };
        let (owned, deciding, full, decided_before) = {
            let mut state = self.shared.state.lock();
            if is_thorough {
                state.full.clear();
            }
            let decided_before: Vec<String> = state.decided.keys().cloned().collect();
            let owned = is_thorough.then(|| state.owned.iter().cloned().collect());
            let full = state.full.iter().cloned().collect();
            (owned, state.deciding.iter().cloned().collect(), full, decided_before)
        };
        let work = in_time(limit::STORE_SCAN, shared.take(owned, deciding, full)).await?;
        for id in work.lost {
            self.shared.state.lock().owned.remove(&id);
            let open = self.runs.lock().forget(&id);
            self.follow_lost(&open);
        }
        for acquired in work.acquired {
            self.acquire(acquired).await;
        }
        for wake in work.wakes {
            self.decide_stored(wake).await;
        }
        let waiting: Vec<String> = {
            let mut state = self.shared.state.lock();
            decided_before.iter().for_each(|key| drop(state.decided.remove(key)));
            state.waiting.retain(|_, keeps| {
                keeps.retain(|keep| !keep.is_closed());
                !keeps.is_empty()
            });
            state.waiting.keys().filter(|key| !state.deciding.contains(*key)).cloned().collect()
        };
        if !waiting.is_empty() {
            for (key, run) in in_time(limit::STORE, shared.outcomes(waiting)).await? {
                self.answer(&key, run.as_deref());
            }
        }
        Ok(())
    }

    /// Takes over an automation with its runs.
    async fn acquire(self: &Arc<Self>, acquired: Acquired) {
        let Acquired { automation: id, previous, unfinished, woken } = acquired;
        if !self.shared.state.lock().owned.insert(id.clone()) {
            return;
        }
        if let Err(why) = self.list_missing(&id).await {
            self.core.log.warn(format_args!("automation {id} could not be read: {why}"));
        }
        let entry = self.entry(&id);
        let limits_runs = entry.as_ref().is_some_and(|entry| most_runs(&entry.wire.definition).is_some());
        let progress = self.core.automation_store().and_then(|store| store.progress.clone());
        if let Some(progress) = progress.filter(|_| limits_runs) {
            // Without its count, it would run more often than it may.
            let is_owned = || self.shared.state.lock().owned.contains(&id);
            let read = || progress.read(limit::STORE, (id.clone(),));
            let Some(stored) = self.read_at_last(&id, "progress", read, is_owned).await else { return };
            if let Some(count) = stored.and_then(|progress| progress.run_count) {
                self.plans.lock().set_count(&id, count);
            }
        }
        if !woken.is_empty() {
            self.runs.lock().lanes.entry(id.clone()).or_default().set_woken(&woken, Instant::now());
        }
        // This host publishes further changes itself.
        unfinished.iter().for_each(|run| self.show_followed(run));
        self.resume_open(unfinished, previous.as_deref()).await;
    }

    /// Lists an automation that another host has just stored.
    async fn list_missing(&self, id: &str) -> Result<(), Thrown> {
        if self.entry(id).is_some() {
            return Ok(());
        }
        let Some(store) = self.core.automation_store() else { return Ok(()) };
        if let Some(kept) = store.get.read(limit::STORE, (id.to_owned(),)).await.known()? {
            self.list_entry(kept).await?;
        }
        Ok(())
    }

    async fn decide_stored(self: &Arc<Self>, wake: Wake) {
        let (key, id) = (wake.run.resource.clone(), id_of(&wake.run).to_owned());
        let losses = {
            let mut state = self.shared.state.lock();
            if !state.may_decide(&id)
                || state.decided.contains_key(&key)
                || !state.deciding.insert(key.clone())
            {
                return;
            }
            state.losses
        };
        if let Err(why) = self.list_missing(&id).await {
            self.core.log.warn(format_args!("automation {id}, which was woken, could not be read: {why}"));
            return self.shared.undecide(&key, losses);
        }
        match self.entry(&id) {
            Some(entry) => self.decide(&entry, wake),
            // It was removed.
            None => self.decided(key, None, losses).await,
        }
    }

    /// Decides a wake of an automation that this host owns.
    fn decide(self: &Arc<Self>, entry: &Arc<CatalogueEntry>, wake: Wake) {
        let Wake { run, kind } = wake;
        let (key, id) = (run.resource.clone(), id_of(&run).to_owned());
        let definition = &entry.wire.definition;
        let most = most_runs(definition);
        let is_clock = kind == WakeKind::Clock;
        let losses = self.shared.state.lock().losses;
        let is_over = || {
            let counted = self.plans.lock().shown(&id).run_count;
            is_clock && counted.zip(most).is_some_and(|(counted, most)| counted >= most)
        };
        if kind != WakeKind::Manual && !definition.enabled || is_over() {
            let automations = self.clone();
            tasks::spawn(async move { automations.decided(key, None, losses).await });
            return;
        }
        let order = match &kind {
            WakeKind::Ordered { by, session } => {
                let routing = Routing { by: by.clone(), session: *session };
                event_of(&run).and_then(|data| Order::of(&routing, data))
            }
            _ => None,
        };
        let in_order = order.is_some().then(|| self.ordering.lock());
        if let Some(order) = &order
            && !self.has_room(&id, entry, order, 1)
        {
            let mut state = self.shared.state.lock();
            state.full.insert(id);
            state.deciding.remove(&key);
            return;
        }
        let cause = match (&kind, &order) {
            (WakeKind::Clock, _) => Cause::Clock,
            (WakeKind::Manual, _) => Cause::Press,
            (_, Some(order)) => Cause::Ordered(order),
            (_, None) => Cause::Event,
        };
        let (started, wait) = self.wake_here(entry, run, cause);
        drop(in_order);
        let mut last = false;
        if is_clock && started {
            let counted = self.plans.lock().count(&id);
            last = counted.zip(most).is_some_and(|(counted, most)| counted >= most);
            self.show_schedules(&self.core.fanout, &id);
        }
        let automations = self.clone();
        tasks::spawn(async move {
            let outcome = match wait {
                Ok(wait) => wait.await,
                Err(_) => Ok(None),
            };
            match outcome {
                Ok(run) => automations.decided(key, run, losses).await,
                Err(_) => automations.shared.undecide(&key, losses),
            }
            match (is_clock, last) {
                (true, true) => automations.switch_off(&id).await,
                (true, false) => automations.keep_progress(&id).await,
                _ => {}
            }
        });
    }

    /// Records a decision that was made after so many losses of the lease. It is stored with the run that the wake started, or
    /// that counts it.
    async fn decided(&self, key: String, run: Option<String>, losses: u64) {
        let is_stored = run.as_ref() == Some(&key) || self.shared.state.lock().stored.remove(&key);
        if !is_stored {
            if run.is_some() {
                // This host lost the run that counted the wake before it was stored.
                return self.shared.undecide(&key, losses);
            }
            if let Some(shared) = self.core.shared_runs()
                && let Err(why) = in_time(limit::STORE, shared.settle(key.clone(), None)).await
            {
                self.core.log.warn(format_args!("the decision about {key} could not be stored: {why}"));
                return self.shared.undecide(&key, losses);
            }
        }
        {
            let mut state = self.shared.state.lock();
            if state.losses != losses {
                return;
            }
            state.deciding.remove(&key);
            state.decided.insert(key.clone(), run.clone());
        }
        self.answer(&key, run.as_deref());
    }

    fn answer(&self, key: &str, run: Option<&str>) {
        let waiting = self.shared.state.lock().waiting.remove(key);
        for keep in waiting.into_iter().flatten() {
            let _ = keep.send(run.map(str::to_owned));
        }
    }

    /// Stores the runs of an event and its records in one transaction, and serves the runs.
    pub(super) async fn serve_group(
        self: Arc<Self>,
        transactions: Arc<dyn RunTransactions>,
        group: Vec<Admitted>,
        woken: Woken,
        (once, log): (Once, Option<RecordOf>),
    ) -> Result<FiredOnce, Thrown> {
        let mut names: Vec<String> = Vec::new();
        for one in &group {
            if !names.iter().any(|name| name == one.run()) {
                names.push(one.run().to_owned());
            }
        }
        let storing = {
            // The lock sends writes to the store in the order of the changes.
            let _in_order = self.keeping.lock();
            let runs = self.runs.lock();
            let states = names.iter().filter_map(|run| runs.state_of(run).cloned()).collect();
            drop(runs);
            let runs = EventRuns::Decided(&names);
            let (record, log) = ((once.record)(runs), log.map(|log| log(runs)));
            in_time(limit::STORE, transactions.store(states, record, log))
        };
        // Events that were merged into a run are stored by its task, too.
        for one in &group {
            if let Admitted::Merged { run, first: true } = one {
                self.keep_notes(run.clone());
            }
        }
        let stored = storing.await;
        let is_stored = matches!(stored, Ok(true));
        for one in group {
            if let Admitted::Run { run, begins, kept } = one {
                match is_stored {
                    true => drop(tasks::spawn(self.clone().serve_stored(run, begins, kept))),
                    false => self.drop_unstored(&run),
                }
            }
        }
        if !stored? {
            return Ok(FiredOnce::Repeated);
        }
        woken.firing().await.map(FiredOnce::Recorded)
    }
}

impl Shared {
    /// Leaves a wake to a later look, unless what this host decided was lost with its lease.
    fn undecide(&self, key: &str, losses: u64) {
        let mut state = self.state.lock();
        if state.losses == losses {
            state.deciding.remove(key);
            state.stored.remove(key);
        }
    }

    /// The decisions about these wakes are stored.
    pub fn are_stored(&self, wakes: Vec<String>) {
        self.state.lock().stored.extend(wakes);
    }
}

impl State {
    fn may_decide(&self, id: &str) -> bool {
        self.owned.contains(id) && !self.full.contains(id)
    }

    /// Marks wakes that are not stored yet as decided by this host, if it owns their automations.
    fn claim(&mut self, wakes: &[Wake]) -> Claimed {
        let mut claimed = Claimed { losses: self.losses, ..Claimed::default() };
        for wake in wakes.iter().filter(|wake| self.may_decide(id_of(&wake.run))) {
            claimed.wakes.insert(wake.run.resource.clone());
        }
        self.deciding.extend(claimed.wakes.iter().cloned());
        claimed
    }

    /// Leaves claimed wakes to a later look, which finds those that were stored.
    fn release(&mut self, claimed: &Claimed) {
        if claimed.losses == self.losses {
            self.deciding.retain(|wake| !claimed.wakes.contains(wake));
        }
    }
}

impl Admitted {
    fn run(&self) -> &str {
        match self {
            Self::Run { run, .. } => &run.resource,
            Self::Merged { run, .. } => run,
        }
    }
}
