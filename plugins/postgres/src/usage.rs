//! The store of usage.

use std::sync::Arc;

use jiff::Timestamp;
use ostler_contract::Thrown;
use ostler_contract::live::{Pending, ready};
use ostler_contract::points::{Usage as Point, UsageEntry, UsageQuery, UsageTotal};
use ostler_contract::stores::Report;

use crate::database::{Database, Param, Write, decode, encode};

/// Instants are stored as text that sorts by time; these sort before and after all of them.
const FIRST: &str = "";
const LAST: &str = "~";

/// Stores an entry.
pub const RECORD: &str = "WITH entry AS (
         INSERT INTO usage (at, entry, usd, input_usd, output_usd, tokens, input, output, cache_read, cache_write, calls,
             seconds)
         VALUES ($1, $2, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) RETURNING number, at
     ), charged AS (
         INSERT INTO usage_charges (pool, at, number) SELECT pool, at, number FROM entry, unnest($3::text[]) AS pool
     )
     INSERT INTO usage_pools (pool) SELECT unnest($3::text[]) ON CONFLICT DO NOTHING";
/// The filter of every query.
macro_rules! asked {
    ($select:literal, $rest:literal) => {
        concat!(
            $select,
            " FROM usage WHERE ($1::text IS NULL OR number IN (
                  SELECT number FROM usage_charges WHERE pool = $1 AND at >= $2 AND at < $3
              )) AND at >= $2 AND at < $3 ",
            $rest
        )
    };
}
const TOTAL: &str = asked!(
    "SELECT sum(usd), sum(input_usd), sum(output_usd), sum(seconds), sum(tokens)::bigint, sum(input)::bigint,
         sum(output)::bigint, sum(cache_read)::bigint, sum(cache_write)::bigint, sum(calls)::bigint",
    ""
);
const RECORDS: &str = asked!("SELECT number, entry", "ORDER BY at DESC, number DESC LIMIT $4");

/// Usage in the database.
pub struct Usage {
    database: Arc<Database>,
    report: Report,
}

impl Usage {
    /// Creates the store.
    pub fn new(database: Arc<Database>, report: Report) -> Self {
        Self { database, report }
    }

    /// Returns the store as its registration point declares it.
    pub fn into_point(self: Arc<Self>) -> Point {
        Point {
            record: member!(self, |store: &Arc<Self>, (entry,)| match record(entry) {
                Ok(write) => store.database.put(write),
                Err(refused) => ready(Err(refused)),
            }),
            total: member!(self, |store: &Arc<Self>, (query,)| store.total(query)),
            pools: member!(self, |store: &Arc<Self>, ()| store.pools()),
            records: member!(self, |store: &Arc<Self>, (query,)| store.records(query)),
            close: Some(member!(self, |store: &Arc<Self>, ()| store.database.close())),
        }
    }

    fn total(self: &Arc<Self>, query: UsageQuery) -> Pending<UsageTotal> {
        let store = self.clone();
        Box::pin(async move {
            let rows = store.database.rows(TOTAL, params(query)?).await?;
            let Some(row) = rows.first() else { return Ok(UsageTotal::default()) };
            let count = |at: usize| row.get::<_, Option<i64>>(at).map(i64::unsigned_abs);
            Ok(UsageTotal {
                usd: row.get(0),
                input_usd: row.get(1),
                output_usd: row.get(2),
                seconds: row.get(3),
                tokens: count(4),
                input: count(5),
                output: count(6),
                cache_read: count(7),
                cache_write: count(8),
                calls: count(9),
            })
        })
    }

    fn pools(self: &Arc<Self>) -> Pending<Vec<String>> {
        let store = self.clone();
        Box::pin(async move {
            let rows = store.database.rows("SELECT pool FROM usage_pools ORDER BY pool", vec![]).await?;
            Ok(rows.iter().map(|row| row.get(0)).collect())
        })
    }

    fn records(self: &Arc<Self>, query: UsageQuery) -> Pending<Vec<UsageEntry>> {
        let store = self.clone();
        Box::pin(async move {
            let limit = query.limit.map(counted);
            let mut params = params(query)?;
            params.push(Box::new(limit));
            let rows = store.database.rows(RECORDS, params).await?;
            let read = |row: &tokio_postgres::Row| {
                let number: i64 = row.get(0);
                // One that cannot be read keeps none of the others from being listed.
                decode(row.get(1), "usage entry", &number.to_string())
                    .map_err(|why| store.report.say(format!("{why}; skipped")))
                    .ok()
            };
            Ok(rows.iter().filter_map(read).collect())
        })
    }
}

fn record(mut entry: UsageEntry) -> Result<Write, Thrown> {
    let at = entry.at.as_deref().map(instant).transpose()?;
    entry.at = Some(at.ok_or_else(|| Thrown::new("a usage entry requires a time"))?);
    let text = encode(&entry)?;
    let size = text.len() + entry.charged().iter().map(String::len).sum::<usize>();
    Ok(Write::new(RECORD, entry_params(&entry, text)?, size))
}

/// The values of [`RECORD`] for an entry and its text.
///
/// # Errors
/// The entry has no valid time.
pub fn entry_params(entry: &UsageEntry, text: String) -> Result<Vec<Param>, Thrown> {
    let at = entry.at.as_deref().map(instant).transpose()?;
    let at = at.ok_or_else(|| Thrown::new("a usage entry requires a time"))?;
    let mut pools = entry.charged();
    pools.sort();
    pools.dedup();
    let mut total = UsageTotal::default();
    total.add(entry);
    let mut params: Vec<Param> = vec![Box::new(at), Box::new(text), Box::new(pools)];
    for money in [total.usd, total.input_usd, total.output_usd] {
        params.push(Box::new(money));
    }
    for count in [total.tokens, total.input, total.output, total.cache_read, total.cache_write, total.calls] {
        params.push(Box::new(count.map(counted)));
    }
    params.push(Box::new(total.seconds));
    Ok(params)
}

fn params(query: UsageQuery) -> Result<Vec<Param>, Thrown> {
    let read = |at: &Option<String>, open: &str| at.as_deref().map_or_else(|| Ok(open.to_owned()), instant);
    let (from, until) = (read(&query.from, FIRST)?, read(&query.until, LAST)?);
    Ok(vec![Box::new(query.pool), Box::new(from), Box::new(until)])
}

/// An instant as it is stored: in UTC, so that its text sorts by time.
fn instant(text: &str) -> Result<String, Thrown> {
    let at: Timestamp =
        text.parse().map_err(|_| Thrown::new(format_args!("{text:?} is not an ISO 8601 timestamp")))?;
    Ok(format!("{at:.3}"))
}

/// Converts a count to the database's integer, limited so that sums do not overflow.
fn counted(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX).min(1 << 53)
}
