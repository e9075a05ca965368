//! Standing answers: choices of users with a permanent option, per session and tool. They are stored, because most
//! agents forget them when their process ends.

use std::time::Duration;

use ostler_contract::points::Collection;
use ostler_contract::{JsonObject, Slug, Value};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use crate::permissions::Choice;

/// Their collection, with a record for each provider.
pub const APPROVALS: &str = "acp-approvals";
/// The maximum number of sessions with answers; those with the oldest answers are dropped.
const SESSIONS: usize = 500;
/// The maximum number of answers of a session; the oldest are dropped.
const ANSWERS: usize = 200;
const STORE_LIMIT: Duration = Duration::from_secs(5);

/// The answers of one provider's sessions.
pub struct Standing {
    id: Option<String>,
    stored: Collection,
    /// One read or write at a time.
    turn: Mutex<()>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Record {
    /// Sorted by their newest answers.
    sessions: Vec<OfSession>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct OfSession {
    session: String,
    answers: Vec<Answer>,
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Answer {
    tool: String,
    option: Choice,
}

impl Standing {
    /// Creates it for a provider, in the collection.
    pub fn new(provider: &str, stored: Collection) -> Self {
        let id = Slug::parse(provider).map(|slug| slug.to_string());
        Self { id, stored, turn: Mutex::new(()) }
    }

    /// Returns the standing option for a tool in a session, if the agent offers it again: with the same id, label and
    /// kind.
    pub async fn find(&self, session: &str, tool: &str, offered: &[Choice]) -> Option<Choice> {
        let _turn = self.turn.lock().await;
        let record = self.read().await.ok()?;
        let of = record.sessions.into_iter().find(|of| of.session == session)?;
        let answer = of.answers.into_iter().rev().find(|answer| answer.tool == tool)?;
        offered.contains(&answer.option).then_some(answer.option)
    }

    /// Stores an option that a user chose.
    ///
    /// # Errors
    /// Why it is not stored.
    pub async fn add(&self, session: &str, tool: String, option: Choice) -> Result<(), String> {
        let change = |record: &mut Record| {
            let at = record.sessions.iter().position(|of| of.session == session);
            let mut of = at.map(|at| record.sessions.remove(at)).unwrap_or_default();
            of.session = session.to_owned();
            of.answers.retain(|answer| answer.tool != tool);
            of.answers.push(Answer { tool, option });
            of.answers.drain(..of.answers.len().saturating_sub(ANSWERS));
            record.sessions.push(of);
            record.sessions.drain(..record.sessions.len().saturating_sub(SESSIONS));
        };
        self.change(change).await
    }

    /// Removes the answers of a removed session.
    pub async fn forget(&self, session: &str) {
        let change = |record: &mut Record| record.sessions.retain(|of| of.session != session);
        let _ = self.change(change).await;
    }

    async fn change(&self, change: impl FnOnce(&mut Record)) -> Result<(), String> {
        let _turn = self.turn.lock().await;
        let Some(id) = self.id.clone() else {
            return Err("the provider is not the id of a record".to_owned());
        };
        let mut record = self.read().await?;
        let before = serde_json::to_value(&record).unwrap_or_default();
        change(&mut record);
        let after = serde_json::to_value(&record).unwrap_or_default();
        let Value::Object(mut fields) = after.clone() else { return Ok(()) };
        if before == after {
            return Ok(());
        }
        fields.insert("id".to_owned(), id.into());
        let put = tokio::time::timeout(STORE_LIMIT, self.stored.put.call((fields,))).await;
        put.map_err(|_| late())?.map_err(|why| why.to_string())
    }

    async fn read(&self) -> Result<Record, String> {
        let Some(id) = self.id.clone() else { return Ok(Record::default()) };
        let got = tokio::time::timeout(STORE_LIMIT, self.stored.get.read((id,))).await;
        let record: Option<JsonObject> = got.map_err(|_| late())?.known().map_err(|why| why.to_string())?;
        match record {
            Some(record) => serde_json::from_value(Value::Object(record)).map_err(|why| why.to_string()),
            None => Ok(Record::default()),
        }
    }
}

fn late() -> String {
    format!("the store of records did not answer within {} seconds", STORE_LIMIT.as_secs())
}
