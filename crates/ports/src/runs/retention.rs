//! The retention of ended runs.

use std::sync::Weak;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use ostler_contract::stores::watchers::Watchers;
use rusqlite::{Connection, OptionalExtension as _, Params, params};

use crate::Report;
use crate::state::{Failure, StateDb};

/// The most runs that one write removes, because other writes wait for it. Removing the words of a run takes a tenth of
/// a millisecond.
const STEP: i64 = 200;
/// The interval of the search for runs that are too old.
const LOOK: Duration = Duration::from_secs(3600);

/// Which ended runs of automations are retained. The oldest are removed first; runs that have not ended stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunRetention {
    /// Maximum number of runs for each automation.
    pub count: u32,
    /// Maximum time after their end; unlimited if absent.
    pub age: Option<Duration>,
    /// Maximum size of all automations' runs as stored, in bytes; unlimited if absent.
    pub bytes: Option<u64>,
}

impl Default for RunRetention {
    fn default() -> Self {
        Self { count: 1000, age: None, bytes: None }
    }
}

impl RunRetention {
    /// Removes excess runs after a run of `automation` has ended. Returns the URIs of the removed runs.
    pub(super) fn after(&self, db: &Connection, automation: &str) -> Result<Vec<String>, Failure> {
        Ok([self.by_count(db, automation)?, self.by_age(db)?, self.by_bytes(db)?].concat())
    }

    /// Removes some of the excess runs. Returns the URIs of the removed runs.
    fn step(&self, db: &Connection) -> Result<Vec<String>, Failure> {
        let mut asked =
            db.prepare_cached("SELECT automation FROM automation_run_totals WHERE runs > ?1 LIMIT 1")?;
        let crowded: Option<String> = asked.query_row([self.count], |row| row.get(0)).optional()?;
        let counted = match crowded {
            Some(automation) => self.by_count(db, &automation)?,
            None => Vec::new(),
        };
        Ok([counted, self.by_age(db)?, self.by_bytes(db)?].concat())
    }

    fn by_count(&self, db: &Connection, automation: &str) -> Result<Vec<String>, Failure> {
        let mut asked = db.prepare_cached(
            "SELECT coalesce(max(runs), 0) FROM automation_run_totals WHERE automation = ?1",
        )?;
        let runs: i64 = asked.query_row([automation], |row| row.get(0))?;
        let excess = runs - i64::from(self.count);
        if excess <= 0 {
            return Ok(Vec::new());
        }
        remove(
            db,
            "number IN (
                 SELECT number FROM automation_runs WHERE automation = ?1 AND ended = 1 ORDER BY number LIMIT ?2
             )",
            params![automation, excess.min(STEP)],
        )
    }

    fn by_age(&self, db: &Connection) -> Result<Vec<String>, Failure> {
        let Some(age) = self.age else { return Ok(Vec::new()) };
        let oldest =
            SignedDuration::try_from(age).ok().and_then(|age| Timestamp::now().checked_sub(age).ok());
        let Some(oldest) = oldest else { return Ok(Vec::new()) };
        // The format in which the host writes times, so that texts compare in the order of their times.
        let oldest = oldest.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string();
        remove(
            db,
            "number IN (SELECT number FROM automation_runs WHERE ended_at < ?1 ORDER BY ended_at LIMIT ?2)",
            params![oldest, STEP],
        )
    }

    fn by_bytes(&self, db: &Connection) -> Result<Vec<String>, Failure> {
        let Some(bytes) = self.bytes else { return Ok(Vec::new()) };
        let mut asked = db.prepare_cached("SELECT coalesce(sum(bytes), 0) FROM automation_run_totals")?;
        let stored: i64 = asked.query_row([], |row| row.get(0))?;
        let mut excess = stored - i64::try_from(bytes).unwrap_or(i64::MAX);
        if excess <= 0 {
            return Ok(Vec::new());
        }
        let mut oldest = db.prepare_cached(
            "SELECT number, octet_length(run) FROM automation_runs WHERE ended = 1 ORDER BY number LIMIT ?1",
        )?;
        let mut rows = oldest.query([STEP])?;
        let mut last = None;
        while excess > 0
            && let Some(row) = rows.next()?
        {
            last = Some(row.get::<_, i64>(0)?);
            excess -= row.get::<_, i64>(1)?;
        }
        drop(rows);
        remove(db, "ended = 1 AND number <= ?1", [last])
    }

    /// Applies the rules to the stored runs, in steps between which other writes proceed; then removes runs that become
    /// too old, for as long as the database is open.
    pub(super) async fn keep_up(self, db: Weak<StateDb>, report: Report, watchers: Watchers<Vec<String>>) {
        loop {
            let Some(open) = db.upgrade() else { return };
            let removed = open.write(move |db| self.step(db));
            drop(open);
            match removed.await {
                Ok(uris) if !uris.is_empty() => {
                    watchers.notify(&uris);
                    continue;
                }
                Ok(_) if self.age.is_none() => return,
                Ok(_) => {}
                Err(why) => report.say(format!("old runs could not be removed: {why}")),
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Removes the runs that a condition selects. Returns their URIs.
fn remove(db: &Connection, condition: &str, params: impl Params) -> Result<Vec<String>, Failure> {
    let sql = format!("DELETE FROM automation_runs WHERE {condition} RETURNING uri");
    let mut removed = db.prepare_cached(&sql)?;
    let uris = removed.query_map(params, |row| row.get(0))?;
    Ok(uris.collect::<Result<_, _>>()?)
}
