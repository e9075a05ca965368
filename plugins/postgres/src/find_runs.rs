//! The search of runs: by their facts, which are columns, and by their words, which an index has once they have ended.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ostler_contract::live::Pending;
use ostler_contract::points::{RunPage, RunQuery};
use ostler_contract::protocol::uri::automation_id;
use ostler_contract::protocol::wire::state::AutomationRunState;
use ostler_contract::stores::runs::{Search, owner_of, query_time, run_time, state_of, words};
use ostler_contract::{RpcError, Thrown, Value};

use crate::database::{Param, Write, decode};
use crate::runs::{Runs, ended_at};

/// The maximum number of runs in a page.
const PAGE_MAX: u64 = 500;
/// The maximum length of a word in the index, in bytes; the database refuses longer ones.
const WORD_MAX: usize = 2000;
/// How many of the newest runs are examined for words before the index is used.
const RECENT: usize = 1000;
/// How many runs without facts are read at once.
const STEP: i64 = 500;

/// Stores the facts of a run that an earlier version stored.
const INDEX: &str = "WITH found AS (
         UPDATE automation_runs SET state = $2, work_owner = $3, accepted_at = $4 WHERE number = $1 RETURNING number
     )
     INSERT INTO automation_run_words (number, words)
     SELECT number, array_to_tsvector($5::text[]) FROM found WHERE $5::text[] IS NOT NULL
     ON CONFLICT (number) DO UPDATE SET words = excluded.words";

/// What a run is found by.
pub struct Facts {
    pub state: String,
    /// The owner of its work.
    pub owner: Option<String>,
    /// When it was accepted.
    pub accepted_at: String,
    /// Its words, once it has ended.
    pub words: Option<Vec<String>>,
}

impl Facts {
    /// Returns the facts of a run.
    pub fn of(run: &AutomationRunState) -> Self {
        let (state, accepted_at) = state_of(run);
        Self {
            state: state.to_owned(),
            owner: owner_of(run).map(str::to_owned),
            accepted_at: accepted_at.to_owned(),
            // The title of the automation is looked up by the search.
            words: ended_at(run).map(|_| lexemes(&words(run, None))),
        }
    }
}

fn lexemes(words: &str) -> Vec<String> {
    let mut all: Vec<String> = words
        .split(' ')
        .filter(|word| !word.is_empty() && word.len() <= WORD_MAX)
        .map(str::to_lowercase)
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The text of a statement, with its values.
#[derive(Default)]
struct Statement {
    text: String,
    params: Vec<Param>,
}

impl Statement {
    /// Adds a value, and returns its name.
    fn param(&mut self, value: Param) -> usize {
        self.params.push(value);
        self.params.len()
    }

    fn and(&mut self, condition: &str, value: Param) {
        let at = self.param(value);
        let _ = write!(self.text, " AND {condition} ${at}");
    }
}

impl Runs {
    /// Returns a page of the runs that match a query.
    pub fn find(self: &Arc<Self>, query: RunQuery) -> Pending<RunPage> {
        let runs = self.clone();
        Box::pin(async move { runs.find_page(query).await })
    }

    async fn find_page(&self, query: RunQuery) -> Result<RunPage, Thrown> {
        let limit = query.limit.clamp(1, PAGE_MAX);
        let mut before = match &query.cursor {
            None => i64::MAX,
            Some(cursor) => number_in(cursor).ok_or_else(|| RpcError::unrecognised_cursor(cursor))?,
        };
        let since = query_time("since", query.since.as_deref())?.map(run_time);
        let until = query_time("until", query.until.as_deref())?.map(run_time);
        let search = query.text.as_deref().and_then(Search::new);
        let titles = match &search {
            Some(_) => self.titles().await?,
            None => HashMap::new(),
        };
        let asked = Asked { since, until, titles: &titles, search: search.as_ref(), query: &query };
        let (mut page, mut last) = (RunPage::default(), before);
        // The index is slow only for words that many runs have, and then the newest runs fill the page.
        let mut is_recent = search.is_some();
        loop {
            let lacking = i64::try_from(limit).unwrap_or(i64::MAX) + 1 - page.runs.len() as i64;
            let statement = asked.statement(before, lacking, is_recent);
            let rows = self.database().rows_of(&statement.text, statement.params).await?;
            if is_recent && (rows.len() as i64) < lacking {
                is_recent = false;
                continue;
            }
            for row in &rows {
                let (number, ended): (i64, bool) = (row.get(0), row.get(3));
                let run = self.run_in(row).filter(|run| match &search {
                    // The words of a run that has not ended are not in the index.
                    Some(search) if !ended => {
                        let id = automation_id(&run.automation).unwrap_or(&run.automation);
                        search.finds(&words(run, titles.get(id).map(String::as_str)))
                    }
                    _ => true,
                });
                if run.is_some() && page.runs.len() as u64 >= limit {
                    page.next_cursor = Some(URL_SAFE_NO_PAD.encode(last.to_be_bytes()));
                    return Ok(page);
                }
                page.runs.extend(run);
                last = number;
            }
            if (rows.len() as i64) < lacking {
                return Ok(page);
            }
            before = last;
        }
    }

    /// The titles of the automations, by id.
    async fn titles(&self) -> Result<HashMap<String, String>, Thrown> {
        let rows = self.database().rows("SELECT id, definition FROM automations", vec![]).await?;
        let title = |row: &tokio_postgres::Row| {
            let definition: Value = decode(row.get(1), "automation", row.get(0)).ok()?;
            Some((row.get(0), definition.get("title")?.as_str()?.to_owned()))
        };
        Ok(rows.iter().filter_map(title).collect())
    }

    /// Stores the facts of runs that have none, because an earlier version stored them.
    ///
    /// # Errors
    /// The database fails.
    pub async fn index(&self) -> Result<(), Thrown> {
        let mut after = 0_i64;
        loop {
            let rows = self
                .database()
                .rows(
                    "SELECT number, uri, run FROM automation_runs WHERE state IS NULL AND number > $1
                     ORDER BY number LIMIT $2",
                    vec![Box::new(after), Box::new(STEP)],
                )
                .await?;
            let Some(last) = rows.last() else { return Ok(()) };
            after = last.get(0);
            let mut written = Vec::new();
            for row in &rows {
                let Some(run) = self.run_in(row) else { continue };
                let Facts { state, owner, accepted_at, words } = Facts::of(&run);
                let params: Vec<Param> = vec![
                    Box::new(row.get::<_, i64>(0)),
                    Box::new(state),
                    Box::new(owner),
                    Box::new(accepted_at),
                    Box::new(words),
                ];
                written.push(self.database().put(Write::new(INDEX, params, 512)));
            }
            for written in written {
                written.await?;
            }
        }
    }
}

/// A validated query.
struct Asked<'a> {
    query: &'a RunQuery,
    since: Option<String>,
    until: Option<String>,
    search: Option<&'a Search>,
    titles: &'a HashMap<String, String>,
}

impl Asked<'_> {
    /// The statement for runs before a number: of all runs, or of the newest.
    fn statement(&self, before: i64, limit: i64, is_recent: bool) -> Statement {
        const COLUMNS: &str = "SELECT r.number, r.uri, r.run, r.ended FROM";
        const WORDS: &str = "LEFT JOIN automation_run_words w ON w.number = r.number";
        let mut statement = Statement::default();
        let first = statement.param(Box::new(before));
        let from = match (is_recent, self.search) {
            (true, _) => format!("{COLUMNS} (SELECT * FROM automation_runs r WHERE r.number < ${first}"),
            (false, Some(_)) => format!("{COLUMNS} automation_runs r {WORDS} WHERE r.number < ${first}"),
            (false, None) => format!("{COLUMNS} automation_runs r WHERE r.number < ${first}"),
        };
        statement.text = from;
        let facts = [
            ("r.automation =", &self.query.automation),
            ("r.state =", &self.query.state),
            ("r.work_owner =", &self.query.owner),
            ("r.accepted_at >=", &self.since),
            ("r.accepted_at <", &self.until),
        ];
        for (condition, value) in facts {
            if let Some(value) = value {
                statement.and(condition, Box::new(value.clone()));
            }
        }
        if is_recent {
            let _ = write!(statement.text, " ORDER BY r.number DESC LIMIT {RECENT}) AS r {WORDS} WHERE true");
        }
        if let Some(search) = self.search {
            self.add_words(&mut statement, search, is_recent);
        }
        let limit = statement.param(Box::new(limit));
        let _ = write!(statement.text, " ORDER BY r.number DESC LIMIT ${limit}");
        statement
    }

    /// Adds the conditions of the words. A run matches that has all of them, or whose automation has those it lacks in its
    /// title. Runs that have not ended are examined by the caller.
    fn add_words(&self, statement: &mut Statement, search: &Search, is_recent: bool) {
        let lexemes = search.words.iter().map(|word| {
            let lexeme = format!("'{}'{}", word.text, if word.begins { ":*" } else { "" });
            let alone = Search { words: vec![word.clone()] };
            let named = self.titles.iter().filter(|(_, title)| alone.finds(&lexemes_of_title(title)));
            (lexeme, named.map(|(id, _)| id.clone()).collect::<Vec<_>>())
        });
        let lexemes: Vec<(String, Vec<String>)> = lexemes.collect();
        if !is_recent && lexemes.iter().all(|(_, named)| named.is_empty()) {
            let all: Vec<String> = lexemes.into_iter().map(|(lexeme, _)| lexeme).collect();
            let all = statement.param(Box::new(all.join(" & ")));
            let _ = write!(
                statement.text,
                " AND r.number IN (
                     SELECT number FROM automation_runs WHERE NOT ended
                     UNION ALL SELECT number FROM automation_run_words WHERE words @@ ${all}::text::tsquery
                 )"
            );
            return;
        }
        for (lexeme, named) in lexemes {
            let lexeme = statement.param(Box::new(lexeme));
            let _ = write!(statement.text, " AND (NOT r.ended OR w.words @@ ${lexeme}::text::tsquery");
            if !named.is_empty() {
                let named = statement.param(Box::new(named));
                let _ = write!(statement.text, " OR r.automation = ANY (${named})");
            }
            statement.text.push(')');
        }
    }
}

/// The words of a title, separated by spaces.
fn lexemes_of_title(title: &str) -> String {
    Search::new(title)
        .map(|title| title.words.into_iter().map(|word| word.text).collect::<Vec<_>>().join(" "))
        .unwrap_or_default()
}

fn number_in(cursor: &str) -> Option<i64> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
    Some(i64::from_be_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_unique_lexemes_that_the_database_accepts() {
        assert_eq!(lexemes("Disk full  disk Überlauf "), ["disk", "full", "überlauf"]);
        assert_eq!(lexemes(&format!("{} a", "x".repeat(WORD_MAX + 1))), ["a"]);
        assert_eq!(lexemes_of_title("Every-Night build*"), "every night build");
    }
}
