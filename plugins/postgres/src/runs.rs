//! Automation runs, and their retention.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ostler_contract::live::{Pending, ready};
use ostler_contract::points::{AutomationProgress, RunPage};
use ostler_contract::protocol::names;
use ostler_contract::protocol::uri::automation_id;
use ostler_contract::protocol::wire::state::{
    AutomationRunLifecycle, AutomationRunOrigin, AutomationRunState,
};
use ostler_contract::shared_runs::Decision;
use ostler_contract::stores::{Report, Unreadable, Watchers};
use ostler_contract::{RpcError, Thrown};
use parking_lot::Mutex;
use tokio_postgres::Row;

use crate::database::{Database, Param, Write, decode, encode, number};
use crate::find_runs::Facts;
use crate::pruning;

/// The maximum number of runs in a page.
const PAGE: i64 = 20;

const KEEP: &str = "WITH stored AS (
         INSERT INTO automation_runs (uri, automation, cause, ended, ended_at, bytes, run, state, work_owner, accepted_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
         ON CONFLICT (uri) DO UPDATE SET ended = excluded.ended, ended_at = excluded.ended_at, bytes = excluded.bytes,
             run = excluded.run, state = excluded.state, work_owner = excluded.work_owner, accepted_at = excluded.accepted_at
         RETURNING number
     )
     INSERT INTO automation_run_words (number, words)
     SELECT number, array_to_tsvector($11::text[]) FROM stored WHERE $11::text[] IS NOT NULL
     ON CONFLICT (number) DO UPDATE SET words = excluded.words";
/// The same where hosts share runs: only the owner of the automation stores its runs, and the wake of the run and those that it
/// counts are decided with it.
const KEEP_OWNED: &str = "WITH owned AS (
         SELECT 1 FROM automation_owners WHERE automation = $2 AND owner = $12 FOR SHARE
     ), stored AS (
         INSERT INTO automation_runs (
             uri, automation, cause, ended, ended_at, bytes, run, state, work_owner, accepted_at, owner
         )
         SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $12 FROM owned
         ON CONFLICT (uri) DO UPDATE SET ended = excluded.ended, ended_at = excluded.ended_at, bytes = excluded.bytes,
             run = excluded.run, state = excluded.state, work_owner = excluded.work_owner, accepted_at = excluded.accepted_at,
             owner = excluded.owner
         RETURNING uri, number
     ), decided AS (
         UPDATE automation_wakes SET
             done = true, run = 'null', outcome = CASE WHEN automation_wakes.uri = ANY ($14::text[]) THEN NULL ELSE $1 END
         FROM stored
         WHERE automation_wakes.uri = ANY (array_append($13::text[] || $14::text[], $1::text)) AND NOT done
     ), indexed AS (
         INSERT INTO automation_run_words (number, words)
         SELECT number, array_to_tsvector($11::text[]) FROM stored WHERE $11::text[] IS NOT NULL
         ON CONFLICT (number) DO UPDATE SET words = excluded.words
     )
     SELECT uri FROM stored";
/// Turns undecided wakes into runs, on a host that shares runs with no other.
const ADOPT: &str = "WITH wakes AS (
         DELETE FROM automation_wakes WHERE NOT done RETURNING number, uri, automation, cause, run
     )
     INSERT INTO automation_runs (uri, automation, cause, ended, bytes, run)
     SELECT uri, automation, nullif(cause, uri), false, length(run), run FROM wakes ORDER BY number
     ON CONFLICT DO NOTHING";
/// Which ended runs of automations are retained. The oldest go first; runs that have not ended stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// How many of each automation.
    pub count: u32,
    /// For how long after their end; without it, any time.
    pub age: Option<Duration>,
    /// How many bytes those of all automations take; without it, any number.
    pub bytes: Option<u64>,
}

impl Default for Retention {
    fn default() -> Self {
        Self { count: 1000, age: None, bytes: None }
    }
}

/// Runs in the database.
pub struct Runs {
    database: Arc<Database>,
    pub(crate) report: Report,
    unreadable: Unreadable,
    pub(crate) retention: Retention,
    /// Who is notified of runs that retention removed.
    pub(crate) removed: Watchers<Vec<String>>,
    /// The automations of which runs have ended since runs were last removed.
    pub(crate) due: Arc<Mutex<HashSet<String>>>,
    /// Whether several hosts share the runs.
    is_shared: bool,
}

impl Runs {
    /// Creates the store, and a task that removes runs that are not retained.
    ///
    /// # Errors
    /// There is no tokio runtime.
    pub fn new(
        database: Arc<Database>,
        report: Report,
        retention: Retention,
        is_shared: bool,
    ) -> Result<Arc<Self>, Thrown> {
        let removed = Watchers::new("removed runs".to_owned(), report.clone())?;
        let unreadable = Unreadable::of_runs(report.clone(), &removed);
        let runs = Arc::new(Self {
            database,
            report,
            unreadable,
            retention,
            removed,
            due: Arc::default(),
            is_shared,
        });
        tokio::spawn(pruning::keep_up(Arc::downgrade(&runs)));
        Ok(runs)
    }

    pub(crate) fn database(&self) -> &Arc<Database> {
        &self.database
    }

    /// Stores a run.
    pub fn keep(&self, run: &AutomationRunState) -> Pending<()> {
        self.keep_with(run, Vec::new())
    }

    /// Stores a run, and decides wakes that it counts, where hosts share runs.
    pub fn keep_with(&self, run: &AutomationRunState, decisions: Vec<Decision>) -> Pending<()> {
        let text = match encode(run) {
            Ok(text) => text,
            Err(thrown) => return ready(Err(thrown)),
        };
        let ended_at = ended_at(run);
        let automation = automation_id(&run.automation).unwrap_or(&run.automation).to_owned();
        let Facts { state, owner, accepted_at, words } = Facts::of(run);
        let words_size: usize = words.iter().flatten().map(String::len).sum();
        let has_ended = ended_at.is_some();
        let size = run.resource.len() + automation.len() + text.len() + words_size;
        let mut params: Vec<Param> = vec![
            Box::new(run.resource.clone()),
            Box::new(automation),
            Box::new(cause(run)),
            Box::new(ended_at.is_some()),
            Box::new(ended_at),
            Box::new(number(text.len() as u64)),
            Box::new(text),
            Box::new(state),
            Box::new(owner),
            Box::new(accepted_at),
            Box::new(words),
        ];
        let id = automation_id(&run.automation).unwrap_or(&run.automation).to_owned();
        let ended = has_ended.then(|| (self.due.clone(), id.clone()));
        let note_ended = move || {
            if let Some((due, automation)) = ended {
                due.lock().insert(automation);
            }
        };
        if !self.is_shared {
            return self.database.write(Write::new(KEEP, params, size), move |_| {
                note_ended();
                Ok(())
            });
        }
        let (merged, dropped): (Vec<Decision>, Vec<Decision>) =
            decisions.into_iter().partition(|decision| decision.run.is_some());
        let [merged, dropped] = [merged, dropped]
            .map(|decisions| decisions.into_iter().map(|decision| decision.wake).collect::<Vec<String>>());
        let size = size + merged.iter().chain(&dropped).map(String::len).sum::<usize>();
        let owner = self.database.lease.incarnation().to_string();
        params.extend([Box::new(owner) as Param, Box::new(merged), Box::new(dropped)]);
        let automation = run.automation.clone();
        let write = Write { runs_of: Some(id), ..Write::new(KEEP_OWNED, params, size) };
        self.database.write(write, move |rows| match rows.is_empty() {
            true => Err(Thrown::new(format_args!("PostgreSQL: another host has the runs of {automation}"))),
            false => {
                note_ended();
                Ok(())
            }
        })
    }

    /// Returns a run by its URI.
    pub fn of(self: &Arc<Self>, uri: String) -> Pending<Option<AutomationRunState>> {
        let runs = self.clone();
        Box::pin(async move {
            let sql = "SELECT run FROM automation_runs WHERE uri = $1";
            let rows = runs.database.rows(sql, vec![Box::new(uri.clone())]).await?;
            rows.first().map(|row| decode(row.get(0), "run", &uri)).transpose()
        })
    }

    /// Returns a page of the runs of an automation.
    pub fn page(self: &Arc<Self>, id: String, cursor: Option<String>) -> Pending<RunPage> {
        let runs = self.clone();
        Box::pin(async move {
            let before = match cursor {
                None => i64::MAX,
                Some(cursor) => {
                    let number = runs.number_of(&id, &cursor).await?;
                    number.ok_or_else(|| Thrown::from(RpcError::unrecognised_cursor(&cursor)))?
                }
            };
            let params: Vec<Param> = vec![Box::new(id), Box::new(before), Box::new(PAGE + 1)];
            let rows = runs
                .database
                .rows(
                    "SELECT number, uri, run FROM automation_runs WHERE automation = $1 AND number < $2
                     ORDER BY number DESC LIMIT $3",
                    params,
                )
                .await?;
            let mut page = RunPage::default();
            let mut last = 0_i64;
            for (at, row) in rows.iter().enumerate() {
                if at as i64 == PAGE {
                    page.next_cursor = Some(URL_SAFE_NO_PAD.encode(last.to_be_bytes()));
                    break;
                }
                last = row.get(0);
                page.runs.extend(runs.run_in(row));
            }
            Ok(page)
        })
    }

    /// The number in a cursor of this automation's.
    async fn number_of(&self, id: &str, cursor: &str) -> Result<Option<i64>, Thrown> {
        let bytes = URL_SAFE_NO_PAD.decode(cursor).ok().and_then(|bytes| bytes.try_into().ok());
        let Some(number) = bytes.map(i64::from_be_bytes) else { return Ok(None) };
        let params: Vec<Param> = vec![Box::new(id.to_owned()), Box::new(number)];
        let sql = "SELECT 1 FROM automation_runs WHERE automation = $1 AND number = $2";
        let rows = self.database.rows(sql, params).await?;
        Ok((!rows.is_empty()).then_some(number))
    }

    /// Returns the runs that have not ended.
    pub fn unfinished(self: &Arc<Self>) -> Pending<Vec<AutomationRunState>> {
        let runs = self.clone();
        Box::pin(async move {
            if !runs.is_shared {
                // The schema may have been shared before.
                runs.database.put(Write::new(ADOPT, vec![], 0)).await?;
            }
            let sql = "SELECT number, uri, run FROM automation_runs WHERE NOT ended ORDER BY number";
            let rows = runs.database.scan(sql, vec![]).await?;
            Ok(rows.iter().filter_map(|row| runs.run_in(row)).collect())
        })
    }

    /// Returns the progress of an automation's schedules.
    pub fn progress(self: &Arc<Self>, id: String) -> Pending<Option<AutomationProgress>> {
        let runs = self.clone();
        Box::pin(async move {
            let sql = "SELECT progress FROM automation_progress WHERE automation = $1";
            let rows = runs.database.rows(sql, vec![Box::new(id.clone())]).await?;
            rows.first().map(|row| decode(row.get(0), "schedules of", &id)).transpose()
        })
    }

    /// Stores it.
    pub fn keep_progress(&self, id: String, progress: &AutomationProgress) -> Pending<()> {
        match encode(progress) {
            Ok(text) => {
                let size = id.len() + text.len();
                self.database.put(Write::new(
                    "INSERT INTO automation_progress (automation, progress) VALUES ($1, $2)
                     ON CONFLICT (automation) DO UPDATE SET progress = excluded.progress",
                    vec![Box::new(id), Box::new(text)],
                    size,
                ))
            }
            Err(thrown) => ready(Err(thrown)),
        }
    }

    /// The run of a row. One that cannot be read keeps none of the others from being listed.
    pub(crate) fn run_in(&self, row: &Row) -> Option<AutomationRunState> {
        let uri: String = row.get(1);
        self.unreadable.read(&uri, decode(row.get(2), "run", &uri))
    }
}

/// When a run ended, if it has.
pub fn ended_at(run: &AutomationRunState) -> Option<String> {
    match &run.lifecycle {
        AutomationRunLifecycle::Pending(_) | AutomationRunLifecycle::Running(_) => None,
        AutomationRunLifecycle::Completed(end) => Some(end.completed_at.clone()),
        AutomationRunLifecycle::Failed(end) => Some(end.completed_at.clone()),
        AutomationRunLifecycle::Cancelled(end) => Some(end.completed_at.clone()),
    }
}

/// The cause that must start only one run: the instant of a schedule, or what the host wrote into the run.
pub fn cause(run: &AutomationRunState) -> Option<String> {
    let scheduled_for = match &run.origin {
        AutomationRunOrigin::Trigger(origin) => {
            origin.scheduled_for.as_ref().map(|at| format!("schedule:{}:{at}", origin.trigger_id))
        }
        AutomationRunOrigin::Manual(_) => None,
    };
    let marked = || Some(run.meta.as_ref()?.get(&names::meta_key("cause"))?.as_str()?.to_owned());
    scheduled_for.or_else(marked)
}
