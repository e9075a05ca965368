//! The runs that hosts share.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use ostler_contract::live::Pending;
use ostler_contract::protocol::uri::automation_id;
use ostler_contract::protocol::wire::state::{
    AutomationRunLifecycle, AutomationRunOrigin, AutomationRunState,
};
use ostler_contract::shared_runs::{
    Acquired, Decision, NewRecord, RunTransactions, Sent, SharedRuns, Wake, Work,
};

use super::Member;
use super::automations::{cause, keep_with, row_of};
use crate::database::tables::{RunRow, Tables, WakeRow};
use crate::simulation::time_at;

/// How many undecided wakes an automation may have.
const MOST_WAITING: usize = 1000;
/// An event counts for an hour.
const HOUR: Duration = Duration::from_secs(3600);

/// The shared runs, as a member sees them.
#[derive(Debug)]
pub struct Shared(pub Arc<Member>);

/// Stores a record unless there is one with its id.
fn store_new(tables: &mut Tables, record: &NewRecord) -> bool {
    let id = record.record.get("id").and_then(|id| id.as_str()).unwrap_or_default().to_owned();
    let key = (record.collection.clone(), id);
    let is_new = !tables.records.contains_key(&key);
    if is_new {
        tables.records.insert(key, record.record.clone());
    }
    is_new
}

fn automation_of(run: &AutomationRunState) -> String {
    automation_id(&run.automation).unwrap_or(&run.automation).to_owned()
}

impl RunTransactions for Shared {
    fn store(
        &self,
        runs: Vec<AutomationRunState>,
        record: NewRecord,
        log: Option<NewRecord>,
    ) -> Pending<bool> {
        self.0.write(move |tables, me| {
            if !store_new(tables, &record) {
                return Ok(false);
            }
            if let Some(log) = &log {
                store_new(tables, log);
            }
            for run in &runs {
                if !tables.runs.get(&run.resource).is_some_and(|row| row.is_ended) {
                    tables.keep_run(me, row_of(run.clone()))?;
                }
            }
            Ok(true)
        })
    }
}

fn send(tables: &mut Tables, wakes: &[Wake], record: Option<&NewRecord>, log: Option<&NewRecord>) -> Sent {
    let waiting = |id: &str| tables.wakes.iter().filter(|row| row.automation == id && !row.is_done).count();
    if wakes.iter().any(|wake| waiting(&automation_of(&wake.run)) >= MOST_WAITING) {
        return Sent::Full;
    }
    if let Some(record) = record
        && !store_new(tables, record)
    {
        return Sent::Repeated;
    }
    if let Some(log) = log {
        store_new(tables, log);
    }
    let mut stored = Vec::new();
    for wake in wakes {
        let automation = automation_of(&wake.run);
        let uri = wake.run.resource.clone();
        // Without a cause, the wake is its own.
        let cause = cause(&wake.run).unwrap_or_else(|| uri.clone());
        let same = tables.wakes.iter().find(|row| row.automation == automation && row.cause == cause);
        let run = tables
            .runs
            .values()
            .find(|row| row.automation == automation && row.cause.as_ref() == Some(&cause));
        let known = same.map(|row| row.wake.run.resource.clone());
        match known.or_else(|| run.map(|row| row.run.resource.clone())) {
            Some(known) => stored.push(known),
            None => {
                stored.push(uri);
                let row = WakeRow { automation, cause, wake: wake.clone(), is_done: false, outcome: None };
                tables.wakes.push(row);
            }
        }
    }
    Sent::Stored(stored)
}

fn woken(tables: &Tables, automation: &str) -> Vec<Duration> {
    let now = time_at(tables.now);
    let mut of: Vec<&RunRow> = tables.runs.values().filter(|row| row.automation == automation).collect();
    of.sort_by_key(|row| row.number);
    let age = |row: &&RunRow| {
        let is_event =
            matches!(&row.run.origin, AutomationRunOrigin::Trigger(origin) if origin.scheduled_for.is_none());
        let created = match &row.run.lifecycle {
            AutomationRunLifecycle::Pending(state) => &state.created_at,
            AutomationRunLifecycle::Running(state) => &state.created_at,
            AutomationRunLifecycle::Completed(state) => &state.created_at,
            AutomationRunLifecycle::Failed(state) => &state.created_at,
            AutomationRunLifecycle::Cancelled(state) => &state.created_at,
        };
        let created: Timestamp = created.parse().ok().filter(|_| is_event)?;
        Duration::try_from(now.duration_since(created)).ok().filter(|age| *age <= HOUR)
    };
    of.iter().filter_map(age).collect()
}

fn acquired(tables: &Tables, id: String, previous: Option<String>, own_id: &str) -> Acquired {
    let mut open: Vec<&RunRow> =
        tables.runs.values().filter(|row| row.automation == id && !row.is_ended).collect();
    open.sort_by_key(|row| row.number);
    Acquired {
        previous: previous.filter(|previous| previous != own_id),
        unfinished: open.into_iter().map(|row| row.run.clone()).collect(),
        woken: woken(tables, &id),
        automation: id,
    }
}

impl SharedRuns for Shared {
    fn send(&self, wakes: Vec<Wake>, record: Option<NewRecord>, log: Option<NewRecord>) -> Pending<Sent> {
        let member = self.0.clone();
        let sent = member.write(move |tables, _| Ok(send(tables, &wakes, record.as_ref(), log.as_ref())));
        Box::pin(async move {
            let sent = sent.await;
            member.database.wake();
            sent
        })
    }

    fn outcomes(&self, wakes: Vec<String>) -> Pending<HashMap<String, Option<String>>> {
        self.0.read(move |tables| {
            let asked = |uri: &String| wakes.contains(uri);
            let decided = tables.wakes.iter().filter(|row| row.is_done && asked(&row.wake.run.resource));
            let mut outcomes: HashMap<String, Option<String>> =
                decided.map(|row| (row.wake.run.resource.clone(), row.outcome.clone())).collect();
            let runs = tables.runs.keys().filter(|uri| asked(uri));
            outcomes.extend(runs.map(|uri| (uri.clone(), Some(uri.clone()))));
            outcomes
        })
    }

    fn take(&self, held: Option<Vec<String>>, deciding: Vec<String>, full: Vec<String>) -> Pending<Work> {
        let member = self.0.clone();
        Box::pin(async move {
            let (me, own_id) = (member.me(), member.lease.id.clone());
            let own = me.clone();
            let mut claimed = Vec::new();
            if member.read(move |tables| !tables.unowned(&own).is_empty()).await? {
                let id = own_id.clone();
                claimed = member.write(move |tables, me| Ok(tables.claim_automations(me, &id))).await?;
            }
            if held.is_some() && super::is_set(&member.is_draining) {
                member
                    .write(|tables, me| {
                        if !tables.hands_over(me) {
                            return Ok(());
                        }
                        let open: HashSet<String> = tables
                            .runs
                            .values()
                            .filter(|row| !row.is_ended)
                            .map(|row| row.automation.clone())
                            .collect();
                        for (id, row) in &mut tables.owners {
                            if row.owner.as_deref() == Some(me) && !open.contains(id) {
                                row.owner = None;
                            }
                        }
                        Ok(())
                    })
                    .await?;
            }
            let work = member.read(move |tables| {
                let mut work = Work::default();
                let claimed = match &held {
                    None => claimed.clone(),
                    Some(held) => {
                        let owned =
                            tables.owners.iter().filter(|(_, row)| row.owner.as_deref() == Some(&*me));
                        let owned: Vec<(String, Option<String>)> =
                            owned.map(|(id, row)| (id.clone(), row.previous.clone())).collect();
                        let is_owned = |id: &&String| owned.iter().any(|(own, _)| own == *id);
                        work.lost = held.iter().filter(|id| !is_owned(id)).cloned().collect();
                        owned.into_iter().filter(|(id, _)| !held.contains(id)).collect()
                    }
                };
                let claimed = claimed.into_iter();
                work.acquired =
                    claimed.map(|(id, previous)| acquired(tables, id, previous, &own_id)).collect();
                let waits = |row: &&WakeRow| {
                    !row.is_done
                        && tables.owns_runs(&me, &row.automation)
                        && !deciding.contains(&row.wake.run.resource)
                        && !full.contains(&row.automation)
                };
                if !tables.hands_over(&me) {
                    work.wakes = tables.wakes.iter().filter(waits).map(|row| row.wake.clone()).collect();
                }
                work
            });
            work.await
        })
    }

    fn store_with(&self, run: AutomationRunState, decisions: Vec<Decision>) -> Pending<()> {
        let member = self.0.clone();
        let stored = keep_with(&member, run, decisions);
        Box::pin(async move {
            let stored = stored.await;
            member.database.wake();
            stored
        })
    }

    fn settle(&self, wake: String, run: Option<String>) -> Pending<()> {
        let member = self.0.clone();
        let settled = self.0.write(move |tables, me| {
            let row = tables.wakes.iter().find(|row| row.wake.run.resource == wake);
            if row.is_some_and(|row| tables.owns_runs(me, &row.automation)) {
                tables.decide(&wake, run.clone());
            }
            Ok(())
        });
        Box::pin(async move {
            let settled = settled.await;
            member.database.wake();
            settled
        })
    }

    fn listen(&self, listener: Arc<dyn Fn() + Send + Sync>) {
        *self.0.runs_listener.lock() = Some(listener);
    }
}
