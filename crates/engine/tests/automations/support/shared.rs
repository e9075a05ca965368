//! Runs that several hosts share, in memory: a model of a database that outlives the hosts.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ostler_contract::live::{Pending, ready};
use ostler_contract::points::AutomationStore;
use ostler_contract::shared_runs::{
    Acquired, Decision, NewRecord, RunTransactions, Sent, SharedRuns, Wake, Work,
};
use ostler_contract::{Call, JsonObject, Plugin, Thrown, json};
use ostler_protocol::uri;
use ostler_protocol::wire::state::{AutomationRunLifecycle, AutomationRunOrigin, AutomationRunState};
use ostler_testkit::Stage;

use super::{Kept, Yard, settle};

struct Row {
    wake: Wake,
    cause: String,
    /// The decision: a run or none.
    outcome: Option<Option<String>>,
}

#[derive(Default)]
struct Tables {
    alive: BTreeSet<String>,
    /// The owner of each automation, and the one before it.
    owners: BTreeMap<String, (String, Option<String>)>,
    wakes: Vec<Row>,
    records: BTreeMap<String, JsonObject>,
    log: Vec<JsonObject>,
    listeners: Vec<Arc<dyn Fn() + Send + Sync>>,
    /// How long the answer to a stored wake is on its way; that to a stored run takes twice as long.
    answer_takes: Duration,
    /// By host: how many more of its writes are done before it is cut off.
    cut_after: BTreeMap<String, usize>,
    /// By host: how many answers to its next writes are lost.
    lost_answers: BTreeMap<String, usize>,
}

impl Tables {
    /// Begins a write of a host.
    fn begin_write(&mut self, host: &str) -> Result<(), Thrown> {
        match self.cut_after.get_mut(host) {
            Some(0) => Err(Thrown::new("the connection is lost")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Ends a write of a host, whose answer can be lost.
    fn end_write(&mut self, host: &str) -> Result<(), Thrown> {
        match self.lost_answers.get_mut(host) {
            Some(left) if *left > 0 => {
                *left -= 1;
                Err(Thrown::new("the answer was lost"))
            }
            _ => Ok(()),
        }
    }
}

/// The database.
#[derive(Clone, Default)]
pub struct Town {
    pub kept: Kept,
    tables: Arc<Mutex<Tables>>,
}

/// The database as one host uses it.
#[derive(Clone)]
struct Member {
    town: Town,
    name: String,
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

fn id_of(run: &AutomationRunState) -> String {
    uri::automation_id(&run.automation).unwrap().to_owned()
}

fn is_open(run: &AutomationRunState) -> bool {
    matches!(run.lifecycle, AutomationRunLifecycle::Pending(_) | AutomationRunLifecycle::Running(_))
}

fn cause_of(run: &AutomationRunState) -> String {
    if let AutomationRunOrigin::Trigger(origin) = &run.origin
        && let Some(at) = &origin.scheduled_for
    {
        return format!("schedule:{}:{at}", origin.trigger_id);
    }
    let marked = run.meta.as_ref().and_then(|meta| meta.get("ostler.cause")?.as_str());
    marked.unwrap_or(&run.resource).to_owned()
}

impl Town {
    /// Starts a host.
    pub async fn host(&self, name: &str) -> Yard {
        let member = Member { town: self.clone(), name: name.to_owned() };
        self.tables.lock().unwrap().alive.insert(name.to_owned());
        let store = member.store();
        let joins = Plugin::new("@test/town", move |host, _| {
            let member = Arc::new(member.clone());
            Box::pin(async move { host.join_runs(member.clone(), Some(member)) })
        });
        let stage = Stage::default();
        Yard::with(&self.kept, stage, |builder| builder.plugin(joins, json!({})).automations(store)).await
    }

    /// Starts a host that shares runs with no other and can store them with records.
    pub async fn only_host(&self) -> Yard {
        let member = Member { town: self.clone(), name: "only".to_owned() };
        let joins = Plugin::new("@test/town", move |host, _| {
            let member = Arc::new(member.clone());
            Box::pin(async move { host.join_runs(member, None) })
        });
        Yard::with(&self.kept, Stage::default(), |builder| builder.plugin(joins, json!({}))).await
    }

    /// Ends a host without a word, and then its lease.
    pub async fn lose(&self, name: &str, yard: Yard) {
        drop(yard);
        self.tables.lock().unwrap().alive.remove(name);
        settle().await;
    }

    /// Delays the answers to wakes that are stored by a time, and those to runs by twice that.
    pub fn delay_answers(&self, by: Duration) {
        self.tables.lock().unwrap().answer_takes = by;
    }

    /// Cuts a host off after so many more of its writes.
    pub fn cut_after(&self, host: &str, writes: usize) {
        self.tables.lock().unwrap().cut_after.insert(host.to_owned(), writes);
    }

    /// Loses the answers to the next writes of a host, which are done.
    pub fn lose_answers(&self, host: &str, answers: usize) {
        self.tables.lock().unwrap().lost_answers.insert(host.to_owned(), answers);
    }

    pub fn owner(&self, automation: &str) -> Option<String> {
        self.tables.lock().unwrap().owners.get(automation).map(|(owner, _)| owner.clone())
    }

    /// The records that were stored with runs.
    pub fn records(&self) -> Vec<JsonObject> {
        self.tables.lock().unwrap().records.values().cloned().collect()
    }

    /// The log entries that were stored with runs.
    pub fn log(&self) -> Vec<JsonObject> {
        self.tables.lock().unwrap().log.clone()
    }

    fn notify(&self) {
        let listeners = self.tables.lock().unwrap().listeners.clone();
        listeners.iter().for_each(|listener| listener());
    }
}

impl Member {
    /// The store of automations, in which only the owner of an automation stores its runs.
    fn store(&self) -> AutomationStore {
        let mut store = self.town.kept.store();
        let (inner, member) = (store.run.clone(), self.clone());
        store.run = Call::new(move |(run,): (AutomationRunState,)| {
            let written = member.write_run(&run, &[]);
            let (inner, member) = (inner.clone(), member.clone());
            async move {
                let answer_takes = written?;
                inner.unbounded((run,)).await?;
                member.town.notify();
                // Tests that set it pause time.
                tokio::time::sleep(2 * answer_takes).await;
                member.town.tables.lock().unwrap().end_write(&member.name)
            }
        });
        store
    }

    /// Decides the wake of a run of this host and those that the run counts; returns how long half of the answer takes.
    fn write_run(&self, run: &AutomationRunState, decisions: &[Decision]) -> Result<Duration, Thrown> {
        let mut tables = self.town.tables.lock().unwrap();
        tables.begin_write(&self.name)?;
        if tables.owners.get(&id_of(run)).is_none_or(|(owner, _)| *owner != self.name) {
            return Err(Thrown::new("another host has the runs"));
        }
        let own = Decision { wake: run.resource.clone(), run: Some(run.resource.clone()) };
        for decision in decisions.iter().chain([&own]) {
            let row = tables.wakes.iter_mut().find(|row| row.wake.run.resource == decision.wake);
            if let Some(row) = row {
                row.outcome = Some(decision.run.clone());
            }
        }
        Ok(tables.answer_takes)
    }
}

impl RunTransactions for Member {
    fn store(
        &self,
        runs: Vec<AutomationRunState>,
        record: NewRecord,
        log: Option<NewRecord>,
    ) -> Pending<bool> {
        let mut tables = self.town.tables.lock().unwrap();
        let id = record.record["id"].as_str().unwrap().to_owned();
        if tables.records.contains_key(&id) {
            return ready(Ok(false));
        }
        tables.records.insert(id, record.record);
        tables.log.extend(log.map(|log| log.record));
        runs.into_iter().for_each(|run| self.town.kept.put_run(run));
        ready(Ok(true))
    }
}

impl SharedRuns for Member {
    fn send(&self, wakes: Vec<Wake>, record: Option<NewRecord>, log: Option<NewRecord>) -> Pending<Sent> {
        let mut tables = self.town.tables.lock().unwrap();
        if let Some(NewRecord { record, .. }) = record {
            let id = record["id"].as_str().unwrap().to_owned();
            if tables.records.contains_key(&id) {
                return ready(Ok(Sent::Repeated));
            }
            tables.records.insert(id, record);
        }
        tables.log.extend(log.map(|log| log.record));
        let mut keys = Vec::new();
        for wake in wakes {
            let cause = cause_of(&wake.run);
            let same = tables
                .wakes
                .iter()
                .find(|row| row.cause == cause && id_of(&row.wake.run) == id_of(&wake.run));
            if let Some(row) = same {
                keys.push(row.wake.run.resource.clone());
                continue;
            }
            keys.push(wake.run.resource.clone());
            tables.wakes.push(Row { wake, cause, outcome: None });
        }
        let answer_takes = tables.answer_takes;
        drop(tables);
        self.town.notify();
        if answer_takes.is_zero() {
            return ready(Ok(Sent::Stored(keys)));
        }
        Box::pin(async move {
            // Tests that set it pause time.
            tokio::time::sleep(answer_takes).await;
            Ok(Sent::Stored(keys))
        })
    }

    fn outcomes(&self, wakes: Vec<String>) -> Pending<HashMap<String, Option<String>>> {
        let tables = self.town.tables.lock().unwrap();
        let asked = tables.wakes.iter().filter(|row| wakes.contains(&row.wake.run.resource));
        let decided = asked.filter_map(|row| Some((row.wake.run.resource.clone(), row.outcome.clone()?)));
        ready(Ok(decided.collect()))
    }

    fn take(&self, owned: Option<Vec<String>>, deciding: Vec<String>, full: Vec<String>) -> Pending<Work> {
        let mut tables = self.town.tables.lock().unwrap();
        let runs = self.town.kept.runs.lock().unwrap().clone();
        let mut busy: BTreeSet<String> = runs.iter().filter(|run| is_open(run)).map(id_of).collect();
        busy.extend(tables.wakes.iter().filter(|row| row.outcome.is_none()).map(|row| id_of(&row.wake.run)));
        let mut acquired = Vec::new();
        for id in busy {
            let before = tables.owners.get(&id).map(|(owner, _)| owner.clone());
            if before.as_ref().is_some_and(|owner| tables.alive.contains(owner)) {
                continue;
            }
            tables.owners.insert(id.clone(), (self.name.clone(), before));
            acquired.push(id);
        }
        let mut work = Work::default();
        if let Some(held) = owned {
            let mine = tables.owners.iter().filter(|(_, (owner, _))| *owner == self.name);
            let mine: Vec<String> = mine.map(|(id, _)| id.clone()).collect();
            work.lost = held.iter().filter(|id| !mine.contains(id)).cloned().collect();
            acquired = mine.into_iter().filter(|id| !held.contains(id)).collect();
        }
        work.acquired = acquired
            .into_iter()
            .map(|automation| {
                let of = |run: &&AutomationRunState| id_of(run) == automation;
                Acquired {
                    previous: tables.owners[&automation].1.clone().filter(|name| *name != self.name),
                    unfinished: runs.iter().filter(|run| is_open(run)).filter(of).cloned().collect(),
                    woken: runs.iter().filter(of).map(|_| Duration::from_secs(60)).collect(),
                    automation,
                }
            })
            .collect();
        let mine = |row: &&Row| {
            let (run, id) = (&row.wake.run.resource, id_of(&row.wake.run));
            row.outcome.is_none()
                && tables.owners.get(&id).is_some_and(|(owner, _)| *owner == self.name)
                && !deciding.contains(run)
                && !full.contains(&id)
        };
        work.wakes = tables.wakes.iter().filter(mine).map(|row| row.wake.clone()).collect();
        ready(Ok(work))
    }

    fn store_with(&self, run: AutomationRunState, decisions: Vec<Decision>) -> Pending<()> {
        let written = self.write_run(&run, &decisions);
        let member = self.clone();
        Box::pin(async move {
            let answer_takes = written?;
            member.town.kept.put_run(run);
            member.town.notify();
            // Tests that set it pause time.
            tokio::time::sleep(2 * answer_takes).await;
            member.town.tables.lock().unwrap().end_write(&member.name)
        })
    }

    fn settle(&self, wake: String, run: Option<String>) -> Pending<()> {
        let mut tables = self.town.tables.lock().unwrap();
        if let Err(why) = tables.begin_write(&self.name) {
            return ready(Err(why));
        }
        if let Some(row) = tables.wakes.iter_mut().find(|row| row.wake.run.resource == wake) {
            row.outcome = Some(run);
        }
        drop(tables);
        self.town.notify();
        ready(Ok(()))
    }

    fn listen(&self, listener: Arc<dyn Fn() + Send + Sync>) {
        self.town.tables.lock().unwrap().listeners.push(listener);
    }
}
