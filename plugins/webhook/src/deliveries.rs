//! The log of calls: recent calls of an endpoint with their answers and outcomes. It contains nothing of a body, a
//! token or a URL.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ostler_contract::http::StatusCode;
use ostler_contract::points::Collection;
use ostler_contract::{JsonObject, PluginHost, Thrown, Value};
use serde::Serialize;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::reply::Answer;

/// How many accepted calls are retained per endpoint.
const ADMITTED: usize = 50;
/// How many rejected calls are retained, which anyone can make in any number.
const REFUSED: usize = 20;
/// How long lines are collected before they are stored.
const GATHER: Duration = Duration::from_millis(500);

/// One call.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Delivery {
    /// Its id, for a replay.
    pub id: String,
    /// Time of its arrival, ISO 8601.
    pub at: String,
    /// The duration until the answer, in ms.
    pub ms: u64,
    /// The status of the answer.
    pub status: u16,
    /// Why it was rejected or failed: for the owner of the endpoint, where the caller learns less.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The size of its body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<usize>,
    /// Its thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// The chat of its turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chat: Option<String>,
    /// Its turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
    /// The runs that it started.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<String>,
    /// Whether it was a repeated delivery, which received the first answer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub again: bool,
    /// Whether `when` excluded it, so that it fired nothing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub left_out: bool,
    /// Until when its body is stored, ISO 8601.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_until: Option<String>,
    /// The delivery that it replays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replays: Option<String>,
    /// The answer to its callback.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callback: Option<String>,
}

impl Delivery {
    /// Creates the log entry of a new call.
    pub fn begun() -> Self {
        Self { id: crate::id::fresh('d'), at: crate::now(), ..Self::default() }
    }

    /// Records its answer.
    pub fn answered(&mut self, outcome: &Result<Answer, Thrown>, started: Instant) {
        let (status, why) = match outcome {
            Ok(answer) => (answer.status, answer.body.get("message").and_then(Value::as_str)),
            Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, Some("the host failed; see its log")),
        };
        self.status = status.as_u16();
        self.why = self.why.take().or_else(|| why.map(str::to_owned));
        self.ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    }
}

/// A call that is remembered.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
enum Row {
    /// A call to this process. Most are dropped before they are stored, so it becomes JSON only then.
    New(Box<Delivery>),
    /// A call that an earlier start stored.
    Stored(Value),
}

impl Row {
    /// Records the answer to the callback of a turn, if this call started the turn.
    fn call_back(&mut self, turn: &str, answer: &str) -> bool {
        match self {
            Self::New(delivery) if delivery.turn.as_deref() == Some(turn) => {
                delivery.callback = Some(answer.to_owned());
                true
            }
            Self::Stored(row) if row["turn"] == turn => {
                row["callback"] = answer.into();
                true
            }
            Self::New(_) | Self::Stored(_) => false,
        }
    }
}

/// The log of one endpoint.
#[derive(Debug, Default)]
struct Log {
    /// Whether the stored entries of earlier starts are included.
    loaded: bool,
    dirty: bool,
    deliveries: VecDeque<Row>,
    refused: VecDeque<Row>,
}

/// The logs of all endpoints.
#[derive(Debug)]
pub(crate) struct Deliveries {
    records: Collection,
    held: Mutex<HashMap<String, Log>>,
    changed: Arc<Notify>,
}

impl Deliveries {
    pub fn new(records: Collection) -> Self {
        Self { records, held: Mutex::default(), changed: Arc::default() }
    }

    /// Records a call.
    pub fn add(&self, endpoint: &str, delivery: Box<Delivery>, admitted: bool) {
        {
            let mut held = self.held();
            let log = match held.get_mut(endpoint) {
                Some(log) => log,
                None => held.entry(endpoint.to_owned()).or_default(),
            };
            let (rows, most) = match admitted {
                true => (&mut log.deliveries, ADMITTED),
                false => (&mut log.refused, REFUSED),
            };
            rows.push_back(Row::New(delivery));
            while rows.len() > most {
                rows.pop_front();
            }
            log.dirty = true;
        }
        self.changed.notify_one();
    }

    /// Records the answer to a call's callback.
    pub fn called_back(&self, endpoint: &str, turn: &str, said: &str) {
        let mut held = self.held();
        let Some(log) = held.get_mut(endpoint) else { return };
        if log.deliveries.iter_mut().rev().any(|row| row.call_back(turn, said)) {
            log.dirty = true;
            self.changed.notify_one();
        }
    }

    /// Stores new log lines, until the plugin ends.
    pub async fn store_periodically(self: Arc<Self>, host: PluginHost) {
        let mut said = None;
        loop {
            self.changed.notified().await;
            tokio::time::sleep(GATHER).await;
            let failed = self.flush().await.err().map(|why| why.message);
            // Once for each reason: many calls may fail for the same one.
            if let Some(why) = failed.as_ref().filter(|_| failed != said) {
                let _ = host.log(format!("cannot store the log of calls: {why}"));
            }
            said = failed;
        }
    }

    /// Stores new log lines.
    pub async fn flush(&self) -> Result<(), Thrown> {
        let dirty: Vec<(String, bool)> = {
            let held = self.held();
            held.iter().filter(|(_, log)| log.dirty).map(|(id, log)| (id.clone(), log.loaded)).collect()
        };
        for (endpoint, loaded) in dirty {
            if !loaded {
                let before = self.records.get.call((endpoint.clone(),)).await?.unwrap_or_default();
                self.load(&endpoint, &before);
            }
            if let Some(record) = self.take(&endpoint) {
                self.records.put.call((record,)).await?;
            }
        }
        Ok(())
    }

    fn load(&self, endpoint: &str, before: &JsonObject) {
        let mut held = self.held();
        let Some(log) = held.get_mut(endpoint) else { return };
        let older = |field: &str| before.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
        for row in older("deliveries").into_iter().rev() {
            if log.deliveries.len() < ADMITTED {
                log.deliveries.push_front(Row::Stored(row));
            }
        }
        for row in older("refused").into_iter().rev() {
            if log.refused.len() < REFUSED {
                log.refused.push_front(Row::Stored(row));
            }
        }
        log.loaded = true;
    }

    fn take(&self, endpoint: &str) -> Option<JsonObject> {
        let mut held = self.held();
        let log = held.get_mut(endpoint)?;
        log.dirty = false;
        let rows = |rows: &VecDeque<Row>| serde_json::to_value(rows).ok();
        Some(JsonObject::from_iter([
            ("id".to_owned(), endpoint.into()),
            ("deliveries".to_owned(), rows(&log.deliveries)?),
            ("refused".to_owned(), rows(&log.refused)?),
        ]))
    }

    fn held(&self) -> MutexGuard<'_, HashMap<String, Log>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
