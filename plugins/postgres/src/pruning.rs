//! The removal of what is not retained: in small statements, each a transaction of its own, on the connections that read. So neither
//! a write nor the renewal of the lease waits for more than one of them.

use std::collections::{HashMap, HashSet};
use std::sync::Weak;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use ostler_contract::Thrown;
use tokio::time::Instant;
use tokio_postgres::Row;

use crate::database::{Param, number};
use crate::runs::Runs;

/// How often rows are removed.
const LOOK: Duration = Duration::from_secs(30);
/// How often the runs of all automations are examined, and not only of those whose runs have ended at this host.
const LOOK_AT_ALL: Duration = Duration::from_secs(300);
/// The maximum number of rows that one statement removes.
pub const STEP: i64 = 1000;
/// The maximum number of runs that are counted by one statement, unless one automation has more.
const COUNTED: u32 = 100_000;

/// Removes the oldest changes, which every host that follows them has read, also if the clock was ahead when they were written.
///
/// As all of these, it begins after what the one before it removed: an index has the entries of removed rows for as long as any
/// transaction of the server can see them.
pub const CHANGES: &str = "WITH oldest AS MATERIALIZED (
         SELECT ctid AS place, at FROM changes WHERE (xid, seq) > ($2::text::xid8, $3) ORDER BY xid, seq LIMIT $1
     ), gone AS (
         DELETE FROM changes WHERE ctid = ANY (ARRAY(
             SELECT place FROM oldest
             WHERE at NOT BETWEEN now() - interval '10 minutes' AND now() + interval '10 minutes'
         )) RETURNING xid, seq
     )
     SELECT xid::text, seq FROM gone ORDER BY gone.xid DESC, gone.seq DESC LIMIT 1";
/// Removes changes that another server has written, of which this is a copy: their transactions are in the future of this one.
const FOREIGN_CHANGES: &str = "WITH gone AS (
         DELETE FROM changes WHERE ctid = ANY (ARRAY(
             SELECT ctid FROM changes WHERE xid >= pg_snapshot_xmax(pg_current_snapshot()) LIMIT $1
         )) RETURNING 1
     )
     SELECT 1 FROM gone LIMIT 1";
/// Removes decided wakes whose cause no host observes any more.
pub const WAKES: &str = "WITH gone AS (
         DELETE FROM automation_wakes WHERE number = ANY (ARRAY(
             SELECT number FROM automation_wakes
             WHERE done AND at >= $2::text::timestamptz AND at < now() - interval '2 hours'
             ORDER BY at LIMIT $1 FOR UPDATE SKIP LOCKED
         )) RETURNING at
     )
     SELECT max(at)::text FROM gone HAVING count(*) > 0";
/// Finds the indexes that are rebuilt. An index of the kind GIN retains each key that it ever had: words, and values of fields.
const OVERGROWN: &str = "SELECT of.index
     FROM (VALUES ('records', 'records_by_field'), ('automation_run_words', 'automation_run_words_by_word'))
         AS of (rows, index)
     WHERE pg_relation_size(of.index::regclass) > greatest($1::bigint, 2 * pg_table_size(of.rows::regclass))";
/// The minimum size of an index that is rebuilt, in bytes.
const OVERGROWN_FROM: i64 = 16 << 20;
/// Finds the automations that have runs, with one step in an index for each.
const AUTOMATIONS: &str = "WITH RECURSIVE with_runs AS (
         (SELECT automation FROM automation_runs ORDER BY automation LIMIT 1)
         UNION ALL
         SELECT (
             SELECT runs.automation FROM automation_runs AS runs WHERE runs.automation > with_runs.automation
             ORDER BY runs.automation LIMIT 1
         )
         FROM with_runs WHERE with_runs.automation IS NOT NULL
     )
     SELECT automation FROM with_runs WHERE automation IS NOT NULL";
/// Finds the newest ended run that is not retained, of each automation that has one.
pub const EXCESS: &str = "SELECT of.automation, newest.number
     FROM unnest($1::text[]) AS of (automation)
     CROSS JOIN LATERAL (
         SELECT number FROM automation_runs AS runs WHERE runs.automation = of.automation AND ended
         ORDER BY number DESC OFFSET $2 LIMIT 1
     ) AS newest";
/// Find the oldest runs that are not retained. The first columns are the URI and the number.
const BEYOND_COUNT: &str = "SELECT oldest.uri, oldest.number, of.automation
     FROM unnest($2::text[], $3::bigint[], $4::bigint[]) AS of (automation, removed, newest)
     CROSS JOIN LATERAL (
         SELECT uri, number FROM automation_runs AS runs
         WHERE runs.automation = of.automation AND ended AND number > of.removed AND number <= of.newest
         ORDER BY number LIMIT $1
     ) AS oldest
     LIMIT $1";
const BEYOND_AGE: &str = "SELECT uri, number, ended_at FROM automation_runs
     WHERE ended AND ended_at >= $2 AND ended_at < $3 ORDER BY ended_at LIMIT $1";
const BEYOND_BYTES: &str = "SELECT uri, number FROM automation_runs
     WHERE ended AND number > $2 AND number <= $3 ORDER BY number LIMIT $1";
const REMOVE: &str = "DELETE FROM automation_runs WHERE number = ANY ($1) AND ended";
/// Finds the newest ended run that has no place.
const WITHOUT_PLACE: &str = "SELECT number FROM (
         SELECT number, sum(bytes) OVER (ORDER BY number DESC) AS total FROM automation_runs WHERE ended
     ) AS runs WHERE total > $1::bigint ORDER BY number DESC LIMIT 1";

/// Removes what is not retained, for as long as the host has its stores.
pub async fn keep_up(runs: Weak<Runs>) {
    if let Some(runs) = runs.upgrade()
        && let Err(why) = runs.index().await
    {
        runs.report.say(format!("runs of an earlier version could not be indexed: {why}"));
    }
    let mut pruning = Pruning { examined_all: None, said: None };
    loop {
        {
            let Some(runs) = runs.upgrade().filter(|runs| !runs.database().lease.is_over()) else { return };
            pruning.look(&runs).await;
        }
        tokio::time::sleep(LOOK).await;
    }
}

struct Pruning {
    /// When the runs of all automations were examined.
    examined_all: Option<Instant>,
    /// The failure that the log has.
    said: Option<String>,
}

impl Pruning {
    async fn look(&mut self, runs: &Runs) {
        let began = Instant::now();
        let of_all = self.examined_all.is_none_or(|at| at.elapsed() >= LOOK_AT_ALL);
        let due = std::mem::take(&mut *runs.due.lock());
        let outcomes = [
            changes(runs, of_all).await,
            wakes(runs).await,
            runs_beyond_count(runs, &due, of_all).await,
            runs_beyond_age(runs).await,
            match of_all {
                true => runs_beyond_bytes(runs).await.and(overgrown_indexes(runs).await),
                false => Ok(()),
            },
        ];
        match outcomes.into_iter().find_map(Result::err) {
            None => {
                self.said = None;
                if of_all {
                    self.examined_all = Some(began);
                }
            }
            Some(why) => {
                runs.due.lock().extend(due);
                // Without a lease, the log has the reason already.
                if runs.database().lease.check().is_ok() && self.said.as_ref() != Some(&why.message) {
                    runs.report.say(format!("old rows could not be removed, retrying: {why}"));
                    self.said = Some(why.message);
                }
            }
        }
    }
}

/// Repeats a statement until it removes nothing. If it removes less than it may, another host has removed the same rows at the same
/// time; of two that do, one at least goes on.
async fn changes(runs: &Runs, of_all: bool) -> Result<(), Thrown> {
    if of_all {
        while !runs.database().rows(FOREIGN_CHANGES, vec![Box::new(STEP)]).await?.is_empty() {}
    }
    let mut last = ("0".to_owned(), 0_i64);
    loop {
        let params: Vec<Param> = vec![Box::new(STEP), Box::new(last.0.clone()), Box::new(last.1)];
        match runs.database().rows(CHANGES, params).await?.first() {
            Some(row) => last = (row.get(0), row.get(1)),
            None => return Ok(()),
        }
    }
}

/// As [`changes`].
async fn wakes(runs: &Runs) -> Result<(), Thrown> {
    let mut last = "-infinity".to_owned();
    loop {
        let params: Vec<Param> = vec![Box::new(STEP), Box::new(last)];
        match runs.database().rows(WAKES, params).await?.first() {
            Some(row) => last = row.get(0),
            None => return Ok(()),
        }
    }
}

/// Removes the runs that a statement finds; returns what it found. Whoever shows them is told of each, also if another host has removed
/// it, or this one with a statement whose answer was lost.
async fn removed(runs: &Runs, sql: &'static str, of: Vec<Param>) -> Result<Vec<Row>, Thrown> {
    let mut params: Vec<Param> = vec![Box::new(STEP)];
    params.extend(of);
    let found = runs.database().rows(sql, params).await?;
    if !found.is_empty() {
        let numbers: Vec<i64> = found.iter().map(|row| row.get(1)).collect();
        runs.database().rows(REMOVE, vec![Box::new(numbers)]).await?;
        runs.removed.notify(&found.iter().map(|row| row.get(0)).collect());
    }
    Ok(found)
}

async fn runs_beyond_count(runs: &Runs, due: &HashSet<String>, of_all: bool) -> Result<(), Thrown> {
    let automations: Vec<String> = match of_all {
        true => {
            let rows = runs.database().scan(AUTOMATIONS, vec![]).await?;
            rows.iter().map(|row| row.get(0)).collect()
        }
        false => due.iter().cloned().collect(),
    };
    let count = runs.retention.count;
    let together = (COUNTED / count.max(1)).clamp(1, 100);
    for some in automations.chunks(together as usize) {
        let params: Vec<Param> = vec![Box::new(some.to_vec()), Box::new(i64::from(count))];
        let found = runs.database().scan(EXCESS, params).await?;
        if found.is_empty() {
            continue;
        }
        let of: Vec<String> = found.iter().map(|row| row.get(0)).collect();
        let newest: Vec<i64> = found.iter().map(|row| row.get(1)).collect();
        let mut last: HashMap<String, i64> = HashMap::new();
        loop {
            let after: Vec<i64> = of.iter().map(|one| last.get(one).copied().unwrap_or_default()).collect();
            let params: Vec<Param> = vec![Box::new(of.clone()), Box::new(after), Box::new(newest.clone())];
            let rows = removed(runs, BEYOND_COUNT, params).await?;
            if rows.is_empty() {
                break;
            }
            for row in &rows {
                let (number, automation): (i64, String) = (row.get(1), row.get(2));
                let last = last.entry(automation).or_default();
                *last = number.max(*last);
            }
        }
    }
    Ok(())
}

async fn runs_beyond_age(runs: &Runs) -> Result<(), Thrown> {
    let oldest = runs.retention.age.and_then(|age| {
        let age = SignedDuration::try_from(age).ok()?;
        Timestamp::now().checked_sub(age).ok()
    });
    let Some(oldest) = oldest else { return Ok(()) };
    // In the host's format, so that texts compare like times.
    let oldest = oldest.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string();
    let mut last = String::new();
    loop {
        let params: Vec<Param> = vec![Box::new(last), Box::new(oldest.clone())];
        match removed(runs, BEYOND_AGE, params).await?.last().map(|row| row.get(2)) {
            Some(newest) => last = newest,
            None => return Ok(()),
        }
    }
}

async fn runs_beyond_bytes(runs: &Runs) -> Result<(), Thrown> {
    let Some(bytes) = runs.retention.bytes else { return Ok(()) };
    let found = runs.database().scan(WITHOUT_PLACE, vec![Box::new(number(bytes))]).await?;
    let Some(newest) = found.first().map(|row| row.get::<_, i64>(0)) else { return Ok(()) };
    let mut last = 0_i64;
    loop {
        let params: Vec<Param> = vec![Box::new(last), Box::new(newest)];
        match removed(runs, BEYOND_BYTES, params).await?.last().map(|row| row.get(1)) {
            Some(removed) => last = removed,
            None => return Ok(()),
        }
    }
}

/// Rebuilds indexes, while others read and write their tables.
async fn overgrown_indexes(runs: &Runs) -> Result<(), Thrown> {
    let database = runs.database();
    for row in database.rows(OVERGROWN, vec![Box::new(OVERGROWN_FROM)]).await? {
        database.rebuild(row.get(0)).await?;
    }
    Ok(())
}
