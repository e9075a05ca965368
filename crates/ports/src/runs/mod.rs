//! Automation runs in the state database.

mod find;
mod retention;
mod words;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ostler_contract::live::{Pending, ready};
use ostler_contract::points::{AutomationProgress, RunPage};
use ostler_contract::protocol::uri::automation_id;
use ostler_contract::protocol::wire::state::{AutomationRunLifecycle, AutomationRunState};
use ostler_contract::stores::{Unreadable, Watchers, runs as search};
use ostler_contract::{RpcError, Thrown};
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::Report;
use crate::sessions::{decode, encode};
use crate::state::{Failure, StateDb};

pub(crate) use find::Titles;
pub use retention::RunRetention;

/// How many runs a page contains.
const PAGE: i64 = 20;

#[derive(Clone)]
pub(crate) struct Runs {
    db: Arc<StateDb>,
    report: Report,
    unreadable: Unreadable,
    retention: RunRetention,
    /// Watchers to notify of runs that retention removed.
    pub(crate) removed: Watchers<Vec<String>>,
}

impl Runs {
    pub(crate) fn new(db: Arc<StateDb>, report: Report) -> Result<Self, Thrown> {
        let removed = Watchers::new("removed runs".to_owned(), report.clone())?;
        let unreadable = Unreadable::of_runs(report.clone(), &removed);
        Ok(Self { db, report, unreadable, retention: RunRetention::default(), removed })
    }

    /// Returns the same runs with other retention rules; a background task applies them to the stored runs.
    pub(crate) fn retaining(self, retention: RunRetention) -> Self {
        let removed = self.removed.clone();
        tokio::spawn(retention.keep_up(Arc::downgrade(&self.db), self.report.clone(), removed));
        Self { retention, ..self }
    }

    pub(crate) fn close(&self) -> Pending<()> {
        self.db.checkpoint()
    }

    /// Stores a run. `title` is its automation's title, which is indexed with the run once it has ended.
    pub(crate) fn keep(&self, run: &AutomationRunState, title: Option<&str>) -> Pending<()> {
        let text = match encode(run) {
            Ok(text) => text,
            Err(thrown) => return ready(Err(thrown)),
        };
        let ended = has_ended(run);
        let automation = automation_id(&run.automation).unwrap_or(&run.automation).to_owned();
        let (uri, retention) = (run.resource.clone(), self.retention);
        let words = ended.then(|| search::words(run, title));
        let written = self.db.write(move |db| {
            // The usual change of a run that has not ended: it leaves the index of those runs as it is.
            let sql = "UPDATE automation_runs SET run = ?2 WHERE uri = ?1 AND ended = 0";
            if !ended && db.prepare_cached(sql)?.execute(params![uri, text])? == 1 {
                return Ok(Vec::new());
            }
            db.prepare_cached(
                "INSERT INTO automation_runs (uri, automation, ended, run) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (uri) DO UPDATE SET ended = excluded.ended, run = excluded.run",
            )?
            .execute(params![uri, automation, ended, text])?;
            if let Some(words) = words {
                db.prepare_cached(
                    "INSERT OR REPLACE INTO automation_run_words (rowid, text)
                     SELECT number, ?2 FROM automation_runs WHERE uri = ?1",
                )?
                .execute([&uri, &words])?;
                return retention.after(db, &automation);
            }
            Ok(Vec::new())
        });
        let removed = self.removed.clone();
        Box::pin(async move {
            let uris = written.await?;
            if !uris.is_empty() {
                removed.notify(&uris);
            }
            Ok(())
        })
    }

    pub(crate) fn of(&self, uri: String) -> Pending<Option<AutomationRunState>> {
        self.db.read(move |db| {
            let mut asked = db.prepare_cached("SELECT run FROM automation_runs WHERE uri = ?1")?;
            let text: Option<String> = asked.query_row([&uri], |row| row.get(0)).optional()?;
            text.map(|text| decode(&text, "run", &uri)).transpose()
        })
    }

    pub(crate) fn page(&self, id: String, cursor: Option<String>) -> Pending<RunPage> {
        let unreadable = self.unreadable.clone();
        self.db.read(move |db| {
            let before = match cursor {
                None => i64::MAX,
                Some(cursor) => number_of(db, &id, &cursor)?
                    .ok_or_else(|| Thrown::from(RpcError::unrecognised_cursor(&cursor)))?,
            };
            let mut asked = db.prepare_cached(
                "SELECT number, uri, run FROM automation_runs WHERE automation = ?1 AND number < ?2
                 ORDER BY number DESC LIMIT ?3",
            )?;
            let mut rows = asked.query(params![id, before, PAGE + 1])?;
            let mut page = RunPage::default();
            let (mut last, mut taken) = (0, 0);
            while let Some(row) = rows.next()? {
                if taken == PAGE {
                    page.next_cursor = Some(cursor_of(last));
                    break;
                }
                taken += 1;
                last = row.get("number")?;
                page.runs.extend(run_in(row, &unreadable)?);
            }
            Ok(page)
        })
    }

    pub(crate) fn unfinished(&self) -> Pending<Vec<AutomationRunState>> {
        let unreadable = self.unreadable.clone();
        self.db.read(move |db| {
            let mut asked = db.prepare_cached(
                "SELECT number, uri, run FROM automation_runs WHERE ended = 0 ORDER BY number",
            )?;
            let mut rows = asked.query([])?;
            let mut runs = Vec::new();
            while let Some(row) = rows.next()? {
                runs.extend(run_in(row, &unreadable)?);
            }
            Ok(runs)
        })
    }

    pub(crate) fn progress(&self, id: String) -> Pending<Option<AutomationProgress>> {
        self.db.read(move |db| {
            let mut asked =
                db.prepare_cached("SELECT progress FROM automation_progress WHERE automation = ?1")?;
            let text: Option<String> = asked.query_row([&id], |row| row.get(0)).optional()?;
            text.map(|text| decode(&text, "schedules of", &id)).transpose()
        })
    }

    pub(crate) fn keep_progress(&self, id: String, progress: &AutomationProgress) -> Pending<()> {
        let text = match encode(progress) {
            Ok(text) => text,
            Err(thrown) => return ready(Err(thrown)),
        };
        self.db.write(move |db| {
            db.prepare_cached(
                "INSERT INTO automation_progress (automation, progress) VALUES (?1, ?2)
                 ON CONFLICT (automation) DO UPDATE SET progress = excluded.progress",
            )?
            .execute([&id, &text])?;
            Ok(())
        })
    }

    /// Removes every run of an automation and the progress of its schedules.
    pub(crate) fn forget(&self, id: String) -> Pending<()> {
        self.db.write(move |db| {
            db.prepare_cached("DELETE FROM automation_runs WHERE automation = ?1")?.execute([&id])?;
            db.prepare_cached("DELETE FROM automation_run_totals WHERE automation = ?1")?.execute([&id])?;
            db.prepare_cached("DELETE FROM automation_progress WHERE automation = ?1")?.execute([&id])?;
            Ok(())
        })
    }
}

/// Stores a run that another store had, as it is, without the rules for ended runs.
pub(crate) fn insert(
    db: &Connection,
    run: &AutomationRunState,
    text: &str,
    titles: &Titles,
) -> Result<(), Failure> {
    let ended = has_ended(run);
    let automation = automation_id(&run.automation).unwrap_or(&run.automation);
    db.prepare_cached("INSERT INTO automation_runs (uri, automation, ended, run) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![run.resource, automation, ended, text])?;
    if ended {
        let words = search::words(run, titles.get(automation).map(String::as_str));
        db.prepare_cached("INSERT INTO automation_run_words (rowid, text) VALUES (?1, ?2)")?
            .execute(params![db.last_insert_rowid(), words])?;
    }
    Ok(())
}

fn has_ended(run: &AutomationRunState) -> bool {
    !matches!(run.lifecycle, AutomationRunLifecycle::Pending(_) | AutomationRunLifecycle::Running(_))
}

/// Returns the run of a row. A run that cannot be read is reported and skipped.
fn run_in(row: &rusqlite::Row<'_>, unreadable: &Unreadable) -> Result<Option<AutomationRunState>, Failure> {
    let uri: String = row.get("uri")?;
    match decode(row.get_ref("run")?.as_str().unwrap_or_default(), "run", &uri) {
        Ok(run) => Ok(unreadable.read(&uri, Ok(run))),
        Err(Failure::Thrown(why)) => Ok(unreadable.read(&uri, Err(why))),
        Err(failure) => Err(failure),
    }
}

fn cursor_of(number: i64) -> String {
    URL_SAFE_NO_PAD.encode(number.to_be_bytes())
}

fn number_in(cursor: &str) -> Option<i64> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
    Some(i64::from_be_bytes(bytes.try_into().ok()?))
}

/// Returns the number in a cursor, if it is a cursor of this automation.
fn number_of(db: &Connection, id: &str, cursor: &str) -> Result<Option<i64>, Failure> {
    let Some(number) = number_in(cursor) else { return Ok(None) };
    let mut asked =
        db.prepare_cached("SELECT 1 FROM automation_runs WHERE automation = ?1 AND number = ?2")?;
    Ok(asked.exists(params![id, number])?.then_some(number))
}
