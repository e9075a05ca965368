//! Runs of all automations by what is known of them: pages that cost no more however many runs there are.
//!
//! Each query follows one index from the newest run on, and looks at a bounded number of its rows: a page that is not full
//! has a cursor where there may be more.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use ostler_contract::live::Pending;
use ostler_contract::points::{RunPage, RunQuery};
use ostler_contract::protocol::uri::automation_id;
use ostler_contract::protocol::wire::state::AutomationRunState;
use ostler_contract::{RpcError, Thrown};
use rusqlite::types::Value as Sql;
use rusqlite::{Connection, OptionalExtension as _, params_from_iter};

use super::words::{self, Search};
use super::{Runs, cursor_of, number_in, run_in};
use crate::Report;
use crate::sessions::decode;
use crate::state::Failure;

/// The most runs of a page.
const PAGE_MAX: u64 = 500;
/// How many rows of an index a page looks at.
const EXAMINED: usize = 5000;
/// How far the clock of the host may have been set back and forth without a run missing between two times.
const CLOCK: SignedDuration = SignedDuration::from_hours(1);

/// Conditions that an index does not answer, for the row `f`.
const FITS: &str = "coalesce((?2 IS NULL OR f.automation = ?2) AND (?3 IS NULL OR f.state = ?3)
    AND (?4 IS NULL OR f.owner = ?4) AND (?5 IS NULL OR f.accepted_at >= ?5)
    AND (?6 IS NULL OR f.accepted_at < ?6), 0)";

/// A query that was checked.
struct Query {
    automation: Option<String>,
    state: Option<String>,
    owner: Option<String>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    search: Option<Search>,
    /// Runs of lower numbers are asked for.
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
            since: time("since", query.since.as_deref())?,
            until: time("until", query.until.as_deref())?,
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

    /// The rows to look at, with whether they fit.
    fn sql(&self) -> String {
        let fits = format!("SELECT f.number, {FITS} FROM");
        match (&self.search, &self.automation, &self.state, &self.owner) {
            (Some(_), ..) => format!(
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

    fn parameters(&self, (from, to): (i64, i64)) -> [Sql; 8] {
        let text = |value: &Option<String>| value.clone().map_or(Sql::Null, Sql::Text);
        let time = |value: Option<Timestamp>| value.map_or(Sql::Null, |time| Sql::Text(iso(time)));
        [
            Sql::Integer(to.min(self.before)),
            text(&self.automation),
            text(&self.state),
            text(&self.owner),
            time(self.since),
            time(self.until),
            Sql::Integer(from),
            text(&self.search.as_ref().map(Search::expression)),
        ]
    }

    /// The numbers between which runs of these times are: from the first, before the second. Runs are numbered as they are
    /// accepted, so that their times ascend unless the clock is set.
    fn numbers(&self, db: &Connection) -> Result<(i64, i64), Failure> {
        let from = match self.since {
            None => i64::MIN,
            Some(since) => {
                let since = since.checked_sub(CLOCK).unwrap_or(Timestamp::MIN);
                let sql = "SELECT number FROM automation_run_facts WHERE accepted_at >= ?1 ORDER BY accepted_at LIMIT 1";
                let found = db.prepare_cached(sql)?.query_row([iso(since)], |row| row.get(0)).optional()?;
                found.unwrap_or(i64::MAX)
            }
        };
        let to = match self.until {
            None => i64::MAX,
            Some(until) => {
                let until = until.checked_add(CLOCK).unwrap_or(Timestamp::MAX);
                let sql = "SELECT number FROM automation_run_facts WHERE accepted_at < ?1 ORDER BY accepted_at DESC LIMIT 1";
                let found: Option<i64> =
                    db.prepare_cached(sql)?.query_row([iso(until)], |row| row.get(0)).optional()?;
                found.map_or(i64::MIN, |number| number.saturating_add(1))
            }
        };
        Ok((from, to))
    }

    /// The runs that have not ended and have the words, newest first: they are not in the index.
    fn open(&self, db: &Connection, within: (i64, i64), titles: &Titles) -> Result<Vec<i64>, Failure> {
        let Some(search) = &self.search else { return Ok(Vec::new()) };
        let sql = format!(
            "SELECT r.number, r.uri, r.run, {FITS} FROM automation_runs r INDEXED BY automation_runs_unfinished
             JOIN automation_run_facts f ON f.number = r.number
             WHERE r.ended = 0 AND r.number < ?1 AND r.number >= ?7 AND ?8 IS NOT NULL
             ORDER BY r.number DESC LIMIT {EXAMINED}"
        );
        let mut asked = db.prepare_cached(&sql)?;
        let mut rows = asked.query(params_from_iter(self.parameters(within)))?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            if row.get(3)? {
                let uri: String = row.get(1)?;
                let read = decode(row.get_ref(2)?.as_str().unwrap_or_default(), "run", &uri);
                let Ok(run): Result<AutomationRunState, Failure> = read else { continue };
                let title = automation_id(&run.automation).and_then(|id| titles.get(id));
                if search.finds(&words::of(&run, title.map(String::as_str))) {
                    found.push(row.get(0)?);
                }
            }
        }
        Ok(found)
    }

    fn page(&self, db: &Connection, report: &Report, titles: &Titles) -> Result<RunPage, Failure> {
        let within = self.numbers(db)?;
        let mut open = self.open(db, within, titles)?.into_iter().peekable();
        let mut asked = db.prepare_cached(&self.sql())?;
        let mut rows = asked.query(params_from_iter(self.parameters(within)))?;
        let mut next = || -> Result<Option<(i64, bool)>, Failure> {
            Ok(rows.next()?.map(|row| Ok::<_, rusqlite::Error>((row.get(0)?, row.get(1)?))).transpose()?)
        };
        let (mut indexed, mut examined) = (next()?, 0);
        let (mut page, mut last) = (RunPage::default(), self.before);
        loop {
            // Whichever is newer: a row of the index, or a run beside it.
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
            let is_full = u64::try_from(page.runs.len()).unwrap_or(u64::MAX) >= self.limit;
            if examined > EXAMINED || (fits && is_full) {
                page.next_cursor = Some(cursor_of(last));
                return Ok(page);
            }
            if fits {
                page.runs.extend(run_of(db, number, report)?);
            }
            last = number;
        }
    }
}

fn run_of(db: &Connection, number: i64, report: &Report) -> Result<Option<AutomationRunState>, Failure> {
    let mut asked = db.prepare_cached("SELECT uri, run FROM automation_runs WHERE number = ?1")?;
    let mut rows = asked.query([number])?;
    rows.next()?.map_or(Ok(None), |row| run_in(row, report))
}

/// The titles of automations, by their ids.
pub(crate) type Titles = HashMap<String, String>;

impl Runs {
    /// A page of the runs that a query asks for. Runs that have not ended are found by these titles.
    pub(crate) fn find(&self, query: RunQuery, titles: Titles) -> Pending<RunPage> {
        let report = self.report.clone();
        self.db.read(move |db| Query::read(query)?.page(db, &report, &titles))
    }
}

fn time(field: &str, text: Option<&str>) -> Result<Option<Timestamp>, Thrown> {
    let read = |text: &str| {
        text.parse().map_err(|_| {
            Thrown::from(RpcError::invalid_params(format!(
                "{field} must be a time such as 2027-01-01T00:00:00Z"
            )))
        })
    };
    text.map(read).transpose()
}

/// As the host writes times, so that texts compare as times do.
fn iso(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}
