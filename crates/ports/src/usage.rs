//! The usage store, in the state database.

use std::sync::Arc;

use jiff::Timestamp;
use ostler_contract::Thrown;
use ostler_contract::live::{Pending, ready};
use ostler_contract::points::{Usage, UsageEntry, UsageQuery, UsageTotal};
use rusqlite::{Connection, Row, named_params, params};

use crate::Report;
use crate::sessions::{decode, encode};
use crate::state::{Failure, StateDb};

/// Usage in the state database. With [`StateDb::memory`] it ends with the process.
pub struct SqliteUsage {
    db: Arc<StateDb>,
    report: Report,
}

/// The filter of every query.
const ASKED: &str = "(:pool IS NULL OR usage.number IN (
        SELECT number FROM usage_charges WHERE pool = :pool AND at >= :from AND at < :until))
    AND at >= :from AND at < :until";

/// Instants are stored as text that sorts by time; these sort before and after all of them.
const FIRST: &str = "";
const LAST: &str = "~";

impl SqliteUsage {
    /// Creates the store of a database.
    pub fn new(db: Arc<StateDb>, report: Report) -> Self {
        Self { db, report }
    }

    /// Returns the store as its registration point declares it.
    pub fn into_point(self: Arc<Self>) -> Usage {
        Usage {
            record: member!(self, |store: &Self, (entry,)| store.record(entry)),
            total: member!(self, |store: &Self, (query,)| store.total(query)),
            pools: member!(self, |store: &Self, ()| store.pools()),
            records: member!(self, |store: &Self, (query,)| store.records(query)),
            close: Some(member!(self, |store: &Self, ()| store.db.checkpoint())),
        }
    }

    fn record(&self, mut entry: UsageEntry) -> Pending<()> {
        let at = match entry.at.as_deref().map(instant) {
            Some(Ok(at)) => at,
            Some(Err(thrown)) => return ready(Err(thrown)),
            None => return ready(Err(Thrown::new("a usage entry requires a time"))),
        };
        entry.at = Some(at.clone());
        let text = match encode(&entry) {
            Ok(text) => text,
            Err(thrown) => return ready(Err(thrown)),
        };
        self.db.write(move |db| insert_at(db, &entry, &at, &text))
    }

    fn total(&self, query: UsageQuery) -> Pending<UsageTotal> {
        let (from, until) = match range(&query) {
            Ok(range) => range,
            Err(thrown) => return ready(Err(thrown)),
        };
        self.db.read(move |db| {
            let mut asked = db.prepare_cached(&format!(
                "SELECT sum(usd) AS usd, sum(input_usd) AS input_usd, sum(output_usd) AS output_usd,
                     sum(tokens) AS tokens, sum(input) AS input, sum(output) AS output,
                     sum(cache_read) AS cache_read, sum(cache_write) AS cache_write, sum(calls) AS calls,
                     sum(seconds) AS seconds
                 FROM usage WHERE {ASKED}"
            ))?;
            let asked = asked.query_row(
                named_params! { ":pool": query.pool, ":from": from, ":until": until },
                |row| {
                    let count = |column: &str| {
                        row.get::<_, Option<i64>>(column).map(|sum| sum.map(i64::unsigned_abs))
                    };
                    Ok(UsageTotal {
                        usd: row.get("usd")?,
                        input_usd: row.get("input_usd")?,
                        output_usd: row.get("output_usd")?,
                        tokens: count("tokens")?,
                        input: count("input")?,
                        output: count("output")?,
                        cache_read: count("cache_read")?,
                        cache_write: count("cache_write")?,
                        calls: count("calls")?,
                        seconds: row.get("seconds")?,
                    })
                },
            );
            Ok(asked?)
        })
    }

    fn pools(&self) -> Pending<Vec<String>> {
        self.db.read(|db| {
            let mut asked = db.prepare_cached("SELECT pool FROM usage_pools ORDER BY pool")?;
            Ok(asked.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
        })
    }

    fn records(&self, query: UsageQuery) -> Pending<Vec<UsageEntry>> {
        let (from, until) = match range(&query) {
            Ok(range) => range,
            Err(thrown) => return ready(Err(thrown)),
        };
        let limit = query.limit.map_or(-1, counted);
        let report = self.report.clone();
        self.db.read(move |db| {
            let mut asked = db.prepare_cached(&format!(
                "SELECT number, entry FROM usage WHERE {ASKED} ORDER BY at DESC, number DESC LIMIT :limit"
            ))?;
            let mut rows = asked.query(
                named_params! { ":pool": query.pool, ":from": from, ":until": until, ":limit": limit },
            )?;
            let mut entries = Vec::new();
            while let Some(row) = rows.next()? {
                entries.extend(entry_in(row, &report)?);
            }
            Ok(entries)
        })
    }
}

/// Stores an entry that another store had, as it is.
pub(crate) fn insert(db: &Connection, entry: &UsageEntry, text: &str) -> Result<(), Failure> {
    let at = entry.at.as_deref().ok_or_else(|| Thrown::new("a usage entry requires a time"))?;
    insert_at(db, entry, &instant(at)?, text)
}

fn insert_at(db: &Connection, entry: &UsageEntry, at: &str, text: &str) -> Result<(), Failure> {
    let mut pools = entry.charged();
    pools.sort();
    pools.dedup();
    let mut total = UsageTotal::default();
    total.add(entry);
    db.prepare_cached(
        "INSERT INTO usage (at, entry, usd, input_usd, output_usd, tokens, input, output, cache_read,
             cache_write, calls, seconds)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    )?
    .execute(params![
        at,
        text,
        total.usd,
        total.input_usd,
        total.output_usd,
        total.tokens.map(counted),
        total.input.map(counted),
        total.output.map(counted),
        total.cache_read.map(counted),
        total.cache_write.map(counted),
        total.calls.map(counted),
        total.seconds
    ])?;
    let number = db.last_insert_rowid();
    for pool in pools {
        db.prepare_cached("INSERT INTO usage_charges (pool, at, number) VALUES (?1, ?2, ?3)")?
            .execute(params![pool, at, number])?;
        db.prepare_cached("INSERT OR IGNORE INTO usage_pools (pool) VALUES (?1)")?.execute([pool])?;
    }
    Ok(())
}

/// Returns the entry of a row, or `None` if it cannot be read, so that the others can be listed.
fn entry_in(row: &Row<'_>, report: &Report) -> Result<Option<UsageEntry>, Failure> {
    let number: i64 = row.get("number")?;
    match decode(row.get_ref("entry")?.as_str().unwrap_or_default(), "usage entry", &number.to_string()) {
        Ok(entry) => Ok(Some(entry)),
        Err(Failure::Thrown(thrown)) => {
            report.say(format!("{thrown}; skipped"));
            Ok(None)
        }
        Err(failure) => Err(failure),
    }
}

/// Returns start and end in the stored form of instants.
fn range(query: &UsageQuery) -> Result<(String, String), Thrown> {
    let read = |at: &Option<String>, open: &str| at.as_deref().map_or_else(|| Ok(open.to_owned()), instant);
    Ok((read(&query.from, FIRST)?, read(&query.until, LAST)?))
}

/// Formats an instant in its stored form: in UTC, so that the text sorts by time.
fn instant(text: &str) -> Result<String, Thrown> {
    let at: Timestamp =
        text.parse().map_err(|_| Thrown::new(format_args!("{text:?} is not an ISO 8601 timestamp")))?;
    Ok(format!("{at:.3}"))
}

/// Converts a count to SQLite's integer, limited so that sums do not overflow.
fn counted(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX).min(1 << 53)
}
