//! Runs that are stored together with records, and runs that several hosts share: the owners of automations, and the wakes
//! that they decide.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ostler_contract::Thrown;
use ostler_contract::live::{Pending, ready};
use ostler_contract::protocol::uri::automation_id;
use ostler_contract::protocol::wire::state::AutomationRunState;
use ostler_contract::shared_runs::{
    Acquired, Decision, NewRecord, RunTransactions, Sent, SharedRuns, Wake, WakeKind, Work,
};
use ostler_contract::stores::Report;
use tokio_postgres::Row;

use crate::database::{Database, Param, Write, decode, encode, number};
use crate::external_changes::Listeners;
use crate::find_runs::Facts;
use crate::records::row_of;
use crate::runs::{Runs, cause};

/// How many undecided wakes an automation may have.
const MOST_WAITING: i64 = 1000;
/// How many wakes are read at once.
const PAGE: i64 = 1000;
/// How soon a write is tried again while another host stores the same record.
const AGAIN: Duration = Duration::from_millis(20);
/// How often. The host waits 10 seconds for a store.
const TRIES: usize = 400;

const STORE: &str = "SELECT store_runs($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";
const SEND: &str = "SELECT status, wake FROM send_wakes($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";
/// The same with a log entry, which is stored if the runs are.
const STORE_LOGGED: &str = "WITH stored AS MATERIALIZED (
         SELECT store_runs($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) AS status
     ), logged AS (
         INSERT INTO records (collection, id, record, digest, fields)
             SELECT $14::text, $15::text, $16::text, $17::bytea, $18::bigint[] FROM stored WHERE status = 'new'
             ON CONFLICT DO NOTHING
     )
     SELECT status FROM stored";
const SEND_LOGGED: &str = "WITH sent AS MATERIALIZED (
         SELECT status, wake FROM send_wakes($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
     ), logged AS (
         INSERT INTO records (collection, id, record, digest, fields)
             SELECT $12::text, $13::text, $14::text, $15::bytea, $16::bigint[]
             WHERE NOT EXISTS (SELECT 1 FROM sent WHERE status <> 'sent')
             ON CONFLICT DO NOTHING
     )
     SELECT status, wake FROM sent";
const CLAIM: &str = "SELECT automation, previous FROM claim_automations($1, $2)";
const RELEASE: &str = "UPDATE automation_owners AS owners SET owner = NULL
     WHERE owner = $1 AND NOT EXISTS (
         SELECT 1 FROM automation_runs AS runs WHERE runs.automation = owners.automation AND NOT runs.ended
     )";
const SETTLE: &str = "UPDATE automation_wakes SET done = true, outcome = $2, run = 'null'
     FROM automation_owners AS owners
     WHERE uri = $1 AND NOT done AND owners.automation = automation_wakes.automation AND owners.owner = $3";
const OUTCOMES: &str = "SELECT uri, outcome FROM automation_wakes WHERE uri = ANY ($1) AND done
     UNION ALL SELECT uri, uri FROM automation_runs WHERE uri = ANY ($1)";
/// Selects a row if the host of `$1` drains and leaves its work to another one.
macro_rules! hands_over {
    () => {
        "SELECT 1 FROM host AS me WHERE me.incarnation = $1 AND me.draining AND EXISTS (
             SELECT 1 FROM host AS takes
             WHERE takes.member AND NOT takes.draining AND takes.expires_at > clock_timestamp()
         )"
    };
}
const HANDS_OVER: &str = hands_over!();
const WAKES: &str = concat!(
    "SELECT uri, kind, run FROM automation_wakes JOIN automation_owners USING (automation)
     WHERE owner = $1 AND NOT done AND uri <> ALL ($2) AND automation <> ALL ($3) AND NOT EXISTS (",
    hands_over!(),
    ") ORDER BY number LIMIT $4"
);
const UNFINISHED: &str =
    "SELECT automation, uri, run FROM automation_runs WHERE automation = ANY ($1) AND NOT ended
     ORDER BY number";
/// Runs that events started within the hour, with their age in milliseconds. Earlier versions stored no time beside the run.
const WOKEN: &str = "SELECT automation, age FROM (
         SELECT automation, number,
             (extract(epoch FROM clock_timestamp() - (run::json #>> '{lifecycle,createdAt}')::timestamptz) * 1000)::bigint
                 AS age
         FROM automation_runs
         WHERE automation = ANY ($1)
             AND (accepted_at IS NULL OR accepted_at >= to_char(
                 clock_timestamp() AT TIME ZONE 'UTC' - interval '1 hour', 'YYYY-MM-DD\"T\"HH24:MI:SS'
             ))
             AND run::json #>> '{origin,kind}' = 'trigger'
             AND run::json #>> '{origin,scheduledFor}' IS NULL
     ) AS runs WHERE age BETWEEN 0 AND 3600000 ORDER BY number";

/// The runs of all hosts on the schema.
pub struct Shared {
    database: Arc<Database>,
    runs: Arc<Runs>,
    report: Report,
    listeners: Arc<Listeners>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// The rows of runs, as arrays of their columns.
#[derive(Default)]
struct Columns {
    uris: Vec<String>,
    automations: Vec<String>,
    causes: Vec<Option<String>>,
    sizes: Vec<i64>,
    runs: Vec<String>,
    states: Vec<String>,
    owners: Vec<Option<String>>,
    accepted: Vec<String>,
    bytes: usize,
}

impl Columns {
    fn of<'a>(runs: impl Iterator<Item = &'a AutomationRunState>) -> Result<Self, Thrown> {
        let mut columns = Self::default();
        for run in runs {
            let text = encode(run)?;
            columns.bytes += 2 * run.resource.len() + text.len();
            columns.sizes.push(number(text.len() as u64));
            columns.runs.push(text);
            let Facts { state, owner, accepted_at, .. } = Facts::of(run);
            columns.states.push(state);
            columns.owners.push(owner);
            columns.accepted.push(accepted_at);
            columns.uris.push(run.resource.clone());
            columns.automations.push(automation_id(&run.automation).unwrap_or(&run.automation).to_owned());
            columns.causes.push(cause(run));
        }
        Ok(columns)
    }
}

impl Shared {
    /// Creates it for the host of this lease.
    pub fn new(runs: Arc<Runs>, report: Report, listeners: Arc<Listeners>) -> Self {
        Self { database: runs.database().clone(), runs, report, listeners }
    }

    fn me(&self) -> String {
        self.database.lease.incarnation().to_string()
    }

    fn wake_in(&self, row: &Row) -> Option<Wake> {
        let uri: String = row.get(0);
        let read = || {
            let kind: WakeKind = decode(row.get(1), "wake", &uri)?;
            Ok(Wake { run: decode(row.get(2), "wake", &uri)?, kind })
        };
        read().map_err(|why: Thrown| self.report.say(format!("{why}; skipped"))).ok()
    }

    /// Takes over automations without a living owner; returns them with their last owner.
    async fn claim(&self) -> Result<Vec<(String, Option<String>)>, Thrown> {
        let sql = "SELECT EXISTS (SELECT 1 FROM unowned_automations($1))";
        let unowned = self.database.rows(sql, vec![Box::new(self.me())]).await?;
        if !unowned.first().is_some_and(|row| row.get(0)) {
            return Ok(Vec::new());
        }
        let params: Vec<Param> = vec![Box::new(self.me()), Box::new(self.database.lease.id.clone())];
        let claimed = self.database.write(Write::new(CLAIM, params, 0), |rows| {
            Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
        });
        claimed.await
    }

    /// Leaves automations without unfinished runs to another host, if this host drains and another one takes them.
    async fn release(&self) -> Result<(), Thrown> {
        if !self.database.rows(HANDS_OVER, vec![Box::new(self.me())]).await?.is_empty() {
            self.database.put(Write::new(RELEASE, vec![Box::new(self.me())], 0)).await?;
        }
        Ok(())
    }

    /// The automations that this host owns, with their owners before it.
    async fn owned(&self) -> Result<HashMap<String, Option<String>>, Thrown> {
        let sql = "SELECT automation, previous FROM automation_owners WHERE owner = $1";
        let rows = self.database.rows(sql, vec![Box::new(self.me())]).await?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    async fn acquired(&self, owned: Vec<(String, Option<String>)>) -> Result<Vec<Acquired>, Thrown> {
        if owned.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<String> = owned.iter().map(|(id, _)| id.clone()).collect();
        let mut acquired: HashMap<String, Acquired> = owned
            .into_iter()
            .map(|(automation, previous)| {
                let previous = previous.filter(|previous| *previous != self.database.lease.id);
                (automation.clone(), Acquired { automation, previous, ..Acquired::default() })
            })
            .collect();
        for row in &self.database.scan(UNFINISHED, vec![Box::new(ids.clone())]).await? {
            let (automation, uri): (String, String) = (row.get(0), row.get(1));
            match (decode(row.get(2), "run", &uri), acquired.get_mut(&automation)) {
                (Ok(run), Some(of)) => of.unfinished.push(run),
                (Err(why), _) => self.report.say(format!("{why}; skipped")),
                (_, None) => {}
            }
        }
        for row in &self.database.scan(WOKEN, vec![Box::new(ids.clone())]).await? {
            let (automation, age): (String, i64) = (row.get(0), row.get(1));
            if let Some(of) = acquired.get_mut(&automation) {
                of.woken.push(Duration::from_millis(u64::try_from(age).unwrap_or_default()));
            }
        }
        Ok(ids.iter().filter_map(|id| acquired.remove(id)).collect())
    }

    async fn work(
        &self,
        held: Option<Vec<String>>,
        deciding: Vec<String>,
        full: Vec<String>,
    ) -> Result<Work, Thrown> {
        let mut work = Work::default();
        let claimed = self.claim().await?;
        match held {
            None => work.acquired = self.acquired(claimed).await?,
            Some(held) => {
                self.release().await?;
                let mut owned = self.owned().await?;
                let held: HashSet<String> = held.into_iter().collect();
                work.lost = held.iter().filter(|id| !owned.contains_key(*id)).cloned().collect();
                owned.retain(|id, _| !held.contains(id));
                let mut new: Vec<_> = owned.into_iter().collect();
                new.sort_unstable();
                work.acquired = self.acquired(new).await?;
            }
        }
        let params: Vec<Param> =
            vec![Box::new(self.me()), Box::new(deciding), Box::new(full), Box::new(PAGE)];
        let rows = self.database.rows(WAKES, params).await?;
        work.wakes = rows.iter().filter_map(|row| self.wake_in(row)).collect();
        if rows.len() as i64 == PAGE {
            self.listeners.wake_runs();
        }
        Ok(work)
    }
}

/// Writes until no other transaction stores the same record.
async fn unless_busy<T>(
    write: impl Fn() -> Pending<Option<T>>,
    first: Pending<Option<T>>,
) -> Result<T, Thrown> {
    let mut written = first.await?;
    for _ in 0..TRIES {
        match written {
            Some(done) => return Ok(done),
            None => tokio::time::sleep(AGAIN).await,
        }
        written = write().await?;
    }
    Err(Thrown::new("PostgreSQL: another host stores the same record and does not finish; try again later"))
}

/// The parameters of a record, or those of none.
fn record_params(record: Option<&NewRecord>) -> Result<(Vec<Param>, usize), Thrown> {
    let row = record.map(|record| row_of(&record.collection, record.record.clone())).transpose()?;
    Ok(match row {
        Some(row) => {
            let bytes = row.text.len() + 128;
            let collection = record.map(|record| record.collection.clone());
            (
                vec![
                    Box::new(collection),
                    Box::new(Some(row.id)),
                    Box::new(Some(row.text)),
                    Box::new(Some(row.digest)),
                    Box::new(Some(row.fields)),
                ],
                bytes,
            )
        }
        None => (
            vec![
                Box::new(None::<String>),
                Box::new(None::<String>),
                Box::new(None::<String>),
                Box::new(None::<Vec<u8>>),
                Box::new(None::<Vec<i64>>),
            ],
            0,
        ),
    })
}

/// Adds the parameters of a log entry, if there is one; returns their size.
fn add_log(log: Option<&NewRecord>, params: &mut Vec<Param>) -> Result<usize, Thrown> {
    if log.is_none() {
        return Ok(0);
    }
    let (log, bytes) = record_params(log)?;
    params.extend(log);
    Ok(bytes)
}

impl RunTransactions for Shared {
    fn store(
        &self,
        runs: Vec<AutomationRunState>,
        record: NewRecord,
        log: Option<NewRecord>,
    ) -> Pending<bool> {
        let database = self.database.clone();
        let write = move || {
            let prepare = || {
                let columns = Columns::of(runs.iter())?;
                let Columns { uris, automations, causes, sizes, bytes, .. } = columns;
                let (record, more) = record_params(Some(&record))?;
                let mut params: Vec<Param> = vec![
                    Box::new(uris),
                    Box::new(automations),
                    Box::new(causes),
                    Box::new(sizes),
                    Box::new(columns.runs),
                    Box::new(columns.states),
                    Box::new(columns.owners),
                    Box::new(columns.accepted),
                ];
                params.extend(record);
                let sql = if log.is_some() { STORE_LOGGED } else { STORE };
                let more = more + add_log(log.as_ref(), &mut params)?;
                Ok(Write::new(sql, params, bytes + more))
            };
            match prepare() {
                Ok(write) => database.write(write, |rows| {
                    let status: Option<String> = rows.first().map(|row| row.get(0));
                    Ok(match status.as_deref() {
                        Some("new") => Some(true),
                        Some("exists") => Some(false),
                        _ => None,
                    })
                }),
                Err(why) => ready(Err(why)),
            }
        };
        // Queued before this function returns.
        let first = write();
        Box::pin(unless_busy(write, first))
    }
}

impl SharedRuns for Shared {
    fn send(&self, wakes: Vec<Wake>, record: Option<NewRecord>, log: Option<NewRecord>) -> Pending<Sent> {
        let database = self.database.clone();
        let write = move || {
            let prepare = || {
                let kinds: Vec<String> =
                    wakes.iter().map(|wake| encode(&wake.kind)).collect::<Result<_, _>>()?;
                let columns = Columns::of(wakes.iter().map(|wake| &wake.run))?;
                let Columns { uris, automations, causes, runs, bytes, .. } = columns;
                // Without a cause, the wake is its own.
                let causes: Vec<String> = causes
                    .into_iter()
                    .zip(&uris)
                    .map(|(cause, uri)| cause.unwrap_or_else(|| uri.clone()))
                    .collect();
                let (record, more) = record_params(record.as_ref())?;
                let mut params: Vec<Param> = vec![
                    Box::new(uris),
                    Box::new(automations),
                    Box::new(causes),
                    Box::new(kinds),
                    Box::new(runs),
                    Box::new(MOST_WAITING),
                ];
                params.extend(record);
                let sql = if log.is_some() { SEND_LOGGED } else { SEND };
                let more = more + add_log(log.as_ref(), &mut params)?;
                Ok(Write::new(sql, params, bytes + more))
            };
            match prepare() {
                Ok(write) => database.write(write, |rows| {
                    let status: Option<String> = rows.first().map(|row| row.get(0));
                    Ok(match status.as_deref() {
                        Some("full") => Some(Sent::Full),
                        Some("exists") => Some(Sent::Repeated),
                        Some("busy") => None,
                        _ => Some(Sent::Stored(rows.iter().map(|row| row.get(1)).collect())),
                    })
                }),
                Err(why) => ready(Err(why)),
            }
        };
        let first = write();
        Box::pin(unless_busy(write, first))
    }

    fn outcomes(&self, wakes: Vec<String>) -> Pending<HashMap<String, Option<String>>> {
        let database = self.database.clone();
        Box::pin(async move {
            let rows = database.rows(OUTCOMES, vec![Box::new(wakes)]).await?;
            Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
        })
    }

    fn take(&self, owned: Option<Vec<String>>, deciding: Vec<String>, full: Vec<String>) -> Pending<Work> {
        let shared = Self {
            database: self.database.clone(),
            runs: self.runs.clone(),
            report: self.report.clone(),
            listeners: self.listeners.clone(),
        };
        Box::pin(async move { shared.work(owned, deciding, full).await })
    }

    fn store_with(&self, run: AutomationRunState, decisions: Vec<Decision>) -> Pending<()> {
        self.runs.keep_with(&run, decisions)
    }

    fn settle(&self, wake: String, run: Option<String>) -> Pending<()> {
        let size = wake.len();
        let params: Vec<Param> = vec![Box::new(wake), Box::new(run), Box::new(self.me())];
        self.database.put(Write::new(SETTLE, params, size))
    }

    fn listen(&self, listener: Arc<dyn Fn() + Send + Sync>) {
        self.listeners.runs(listener);
    }
}
