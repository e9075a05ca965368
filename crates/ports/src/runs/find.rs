//! Searches the runs of all automations in pages whose cost does not depend on the number of runs.
//!
//! Each query follows one index, beginning with the newest run, and examines a bounded number of rows: a page that is
//! not full still has a cursor if there may be more runs.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use ostler_contract::live::Pending;
use ostler_contract::points::{RunPage, RunQuery};
use ostler_contract::protocol::uri::automation_id;
use ostler_contract::protocol::wire::state::AutomationRunState;
use ostler_contract::stores::Unreadable;
use ostler_contract::stores::runs::{self as stores, Search, query_time, run_time};
use ostler_contract::{RpcError, Thrown};
use rusqlite::types::Value as Sql;
use rusqlite::{Connection, OptionalExtension as _, params_from_iter};

use super::words;
use super::{Runs, cursor_of, number_in, run_in};
use crate::sessions::decode;
use crate::state::Failure;

/// Maximum number of runs on a page.
const PAGE_MAX: u64 = 500;
/// How many rows of an index are examined for a page.
const EXAMINED: usize = 5000;
/// How many of the newest runs are examined for a common prefix before the index is queried.
const RECENT: usize = 1000;
/// The most terms of a prefix that the index is queried for individually.
const TERMS: usize = 32;
/// How far the host's clock may have been adjusted without a query by time missing a run.
const CLOCK: SignedDuration = SignedDuration::from_hours(1);

/// Conditions that the index does not cover, for the row `f`.
const FITS: &str = "coalesce((?2 IS NULL OR f.automation = ?2) AND (?3 IS NULL OR f.state = ?3)
    AND (?4 IS NULL OR f.owner = ?4) AND (?5 IS NULL OR f.accepted_at >= ?5)
    AND (?6 IS NULL OR f.accepted_at < ?6), 0)";

/// A validated query.
struct Query {
    automation: Option<String>,
    state: Option<String>,
    owner: Option<String>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    search: Option<Search>,
    /// Only runs with lower numbers match.
    before: i64,
    limit: u64,
}

impl Query {
    fn read(query: RunQuery) -> Result<Self, Thrown> {
        let before = match &query.cursor {
            None => i64::MAX,
            Some(cursor) => number_in(cursor).ok_or_else(|| RpcError::unrecognised_cursor(cursor))?,
        };
        Ok(Self {
            since: query_time("since", query.since.as_deref())?,
            until: query_time("until", query.until.as_deref())?,
            automation: query.automation,
            state: query.state,
            owner: query.owner,
            search: query.text.as_deref().and_then(Search::new),
            before,
            limit: query.limit.clamp(1, PAGE_MAX),
        })
    }

    fn has_not_ended(&self) -> bool {
        matches!(self.state.as_deref(), Some("pending" | "running"))
    }

    /// Returns the SQL for the rows to examine, each with whether it matches: the rows of the word index, or all.
    fn sql(&self, by_words: bool) -> String {
        let fits = format!("SELECT f.number, {FITS} FROM");
        match (by_words.then_some(()), &self.automation, &self.state, &self.owner) {
            (Some(()), ..) => format!(
                "{fits} automation_run_words w JOIN automation_run_facts f ON f.number = w.rowid
                 WHERE w.automation_run_words MATCH ?8 AND w.rowid < ?1 AND w.rowid >= ?7 ORDER BY w.rowid DESC"
            ),
            (None, ..) if self.has_not_ended() => format!(
                "{fits} automation_runs r INDEXED BY automation_runs_unfinished
                 JOIN automation_run_facts f ON f.number = r.number
                 WHERE r.ended = 0 AND r.number < ?1 AND r.number >= ?7 AND ?8 IS NULL ORDER BY r.number DESC"
            ),
            (None, Some(_), Some(_), _) => format!(
                "{fits} automation_run_facts f INDEXED BY automation_run_facts_of
                 WHERE f.ended = 1 AND f.automation = ?2 AND f.state = ?3 AND f.number < ?1 AND f.number >= ?7
                    AND ?8 IS NULL ORDER BY f.number DESC"
            ),
            (None, Some(_), None, _) => format!(
                "{fits} automation_runs r INDEXED BY automation_runs_of
                 JOIN automation_run_facts f ON f.number = r.number
                 WHERE r.automation = ?2 AND r.number < ?1 AND r.number >= ?7 AND ?8 IS NULL ORDER BY r.number DESC"
            ),
            (None, None, _, Some(_)) => format!(
                "{fits} automation_run_facts f INDEXED BY automation_run_facts_by_owner
                 WHERE f.owner = ?4 AND f.owner IS NOT NULL AND f.number < ?1 AND f.number >= ?7 AND ?8 IS NULL
                 ORDER BY f.number DESC"
            ),
            (None, None, Some(_), None) => format!(
                "{fits} automation_run_facts f INDEXED BY automation_run_facts_by_state
                 WHERE f.ended = 1 AND f.state = ?3 AND f.number < ?1 AND f.number >= ?7 AND ?8 IS NULL
                 ORDER BY f.number DESC"
            ),
            (None, None, None, None) => format!(
                "{fits} automation_run_facts f WHERE f.number < ?1 AND f.number >= ?7 AND ?8 IS NULL
                 ORDER BY f.number DESC"
            ),
        }
    }

    fn parameters(&self, (from, to): (i64, i64), expression: Option<&str>) -> [Sql; 8] {
        let text = |value: &Option<String>| value.clone().map_or(Sql::Null, Sql::Text);
        let time = |value: Option<Timestamp>| value.map_or(Sql::Null, |time| Sql::Text(run_time(time)));
        [
            Sql::Integer(to.min(self.before)),
            text(&self.automation),
            text(&self.state),
            text(&self.owner),
            time(self.since),
            time(self.until),
            Sql::Integer(from),
            expression.map_or(Sql::Null, |expression| Sql::Text(expression.to_owned())),
        ]
    }

    /// Returns the range of numbers for the queried times: the first inclusive, the second exclusive. Runs are numbered
    /// in the order in which they are accepted, so their times ascend unless the clock is adjusted.
    fn numbers(&self, db: &Connection) -> Result<(i64, i64), Failure> {
        let from = match self.since {
            None => i64::MIN,
            Some(since) => {
                let since = since.checked_sub(CLOCK).unwrap_or(Timestamp::MIN);
                let sql = "SELECT number FROM automation_run_facts WHERE accepted_at >= ?1 ORDER BY accepted_at LIMIT 1";
                let found =
                    db.prepare_cached(sql)?.query_row([run_time(since)], |row| row.get(0)).optional()?;
                found.unwrap_or(i64::MAX)
            }
        };
        let to = match self.until {
            None => i64::MAX,
            Some(until) => {
                let until = until.checked_add(CLOCK).unwrap_or(Timestamp::MAX);
                let sql = "SELECT number FROM automation_run_facts WHERE accepted_at < ?1 ORDER BY accepted_at DESC LIMIT 1";
                let found: Option<i64> =
                    db.prepare_cached(sql)?.query_row([run_time(until)], |row| row.get(0)).optional()?;
                found.map_or(i64::MIN, |number| number.saturating_add(1))
            }
        };
        Ok((from, to))
    }

    /// Returns the runs that have not ended and match the search, newest first: they are not in the index.
    fn open(&self, db: &Connection, within: (i64, i64), titles: &Titles) -> Result<Vec<i64>, Failure> {
        let Some(search) = &self.search else { return Ok(Vec::new()) };
        let sql = format!(
            "SELECT r.number, r.uri, r.run, {FITS} FROM automation_runs r INDEXED BY automation_runs_unfinished
             JOIN automation_run_facts f ON f.number = r.number
             WHERE r.ended = 0 AND r.number < ?1 AND r.number >= ?7 AND ?8 IS NULL
             ORDER BY r.number DESC LIMIT {EXAMINED}"
        );
        let mut asked = db.prepare_cached(&sql)?;
        let mut rows = asked.query(params_from_iter(self.parameters(within, None)))?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            if row.get(3)? {
                let uri: String = row.get(1)?;
                let read = decode(row.get_ref(2)?.as_str().unwrap_or_default(), "run", &uri);
                let Ok(run): Result<AutomationRunState, Failure> = read else { continue };
                if has_words(search, &run, titles) {
                    found.push(row.get(0)?);
                }
            }
        }
        Ok(found)
    }

    /// Returns a page of matching runs if the newest runs fill it. The index is slow only for words that many runs
    /// contain.
    fn recent(
        &self,
        db: &Connection,
        search: &Search,
        within: (i64, i64),
        (unreadable, titles): (&Unreadable, &Titles),
    ) -> Result<Option<RunPage>, Failure> {
        let mut asked = db.prepare_cached(&self.sql(false))?;
        let mut rows = asked.query(params_from_iter(self.parameters(within, None)))?;
        let (mut page, mut last) = (RunPage::default(), self.before);
        for _ in 0..RECENT {
            let Some(row) = rows.next()? else { return Ok(Some(page)) };
            let (number, fits): (i64, bool) = (row.get(0)?, row.get(1)?);
            let run = if fits { run_of(db, number, unreadable)? } else { None };
            if let Some(run) = run.filter(|run| has_words(search, run, titles)) {
                if is_full(&page, self.limit) {
                    page.next_cursor = Some(cursor_of(last));
                    return Ok(Some(page));
                }
                page.runs.push(run);
            }
            last = number;
        }
        Ok(None)
    }

    fn page(&self, db: &Connection, unreadable: &Unreadable, titles: &Titles) -> Result<RunPage, Failure> {
        let within = self.numbers(db)?;
        let mut expression = None;
        if let Some(search) = &self.search {
            let found = words::expression(search, |begin| terms_of(db, begin))?;
            if found.is_broad
                && let Some(page) = self.recent(db, search, within, (unreadable, titles))?
            {
                return Ok(page);
            }
            expression = Some(found.text);
        }
        let mut open = self.open(db, within, titles)?.into_iter().peekable();
        let mut asked = db.prepare_cached(&self.sql(expression.is_some()))?;
        let mut rows = asked.query(params_from_iter(self.parameters(within, expression.as_deref())))?;
        let mut next = || -> Result<Option<(i64, bool)>, Failure> {
            Ok(rows.next()?.map(|row| Ok::<_, rusqlite::Error>((row.get(0)?, row.get(1)?))).transpose()?)
        };
        let (mut indexed, mut examined) = (next()?, 0);
        let (mut page, mut last) = (RunPage::default(), self.before);
        loop {
            // Take the newer of the two: a row of the index, or an open run.
            let beside = open.next_if(|open| indexed.is_none_or(|(number, _)| *open > number));
            let (number, fits) = match (beside, indexed) {
                (Some(number), _) => (number, true),
                (None, Some(row)) => {
                    indexed = next()?;
                    examined += 1;
                    row
                }
                (None, None) => return Ok(page),
            };
            if examined > EXAMINED || (fits && is_full(&page, self.limit)) {
                page.next_cursor = Some(cursor_of(last));
                return Ok(page);
            }
            if fits {
                page.runs.extend(run_of(db, number, unreadable)?);
            }
            last = number;
        }
    }
}

fn is_full(page: &RunPage, limit: u64) -> bool {
    u64::try_from(page.runs.len()).unwrap_or(u64::MAX) >= limit
}

fn has_words(search: &Search, run: &AutomationRunState, titles: &Titles) -> bool {
    let title = automation_id(&run.automation).and_then(|id| titles.get(id));
    search.finds(&stores::words(run, title.map(String::as_str)))
}

/// Returns the terms of the index with this prefix, or `None` if there are more than [`TERMS`].
fn terms_of(db: &Connection, begin: &str) -> Result<Option<Vec<String>>, Failure> {
    let mut asked =
        db.prepare_cached("SELECT term FROM temp.automation_run_terms WHERE term >= ?1 LIMIT 1")?;
    let (mut terms, mut from) = (Vec::new(), begin.to_owned());
    loop {
        let next: Option<String> = asked.query_row([&from], |row| row.get(0)).optional()?;
        let Some(term) = next.filter(|term| term.starts_with(begin)) else { return Ok(Some(terms)) };
        if terms.len() == TERMS {
            return Ok(None);
        }
        // Lower than the continuation of any longer term; this skips the other rows of the term.
        from = format!("{term}\u{1}");
        terms.push(term);
    }
}

fn run_of(
    db: &Connection,
    number: i64,
    unreadable: &Unreadable,
) -> Result<Option<AutomationRunState>, Failure> {
    let mut asked = db.prepare_cached("SELECT uri, run FROM automation_runs WHERE number = ?1")?;
    let mut rows = asked.query([number])?;
    rows.next()?.map_or(Ok(None), |row| run_in(row, unreadable))
}

/// The titles of automations, by id.
pub(crate) type Titles = HashMap<String, String>;

impl Runs {
    /// Returns a page of the runs that match a query. `titles` are searched for runs that have not ended.
    pub(crate) fn find(&self, query: RunQuery, titles: Titles) -> Pending<RunPage> {
        let unreadable = self.unreadable.clone();
        self.db.read(move |db| Query::read(query)?.page(db, &unreadable, &titles))
    }
}
