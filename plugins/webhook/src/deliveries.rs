//! What an endpoint was sent lately, what each call was answered and what came of it. Nothing of a body, a
//! token or a URL is written down.

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

/// How many calls that passed are remembered, per endpoint.
const ADMITTED: usize = 50;
/// How many that did not: strangers may make any number of them.
const REFUSED: usize = 20;
/// How long lines are gathered before they are kept.
const GATHER: Duration = Duration::from_millis(500);

/// One call.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Delivery {
    /// What it is called, to replay it.
    pub id: String,
    /// When it came, ISO 8601.
    pub at: String,
    /// How long the answer took, in ms.
    pub ms: u64,
    /// What it was answered.
    pub status: u16,
    /// Why it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// How long its body was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<usize>,
    /// The thread it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// The chat its turn is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chat: Option<String>,
    /// The turn it became.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
    /// The runs it started.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<String>,
    /// Whether it was a delivery sent again, answered as the first.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub again: bool,
    /// Whether `when` left it out, so that it fired nothing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub left_out: bool,
    /// Until when its body is kept, ISO 8601.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_until: Option<String>,
    /// The delivery it replays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replays: Option<String>,
    /// What its callback was answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callback: Option<String>,
}

impl Delivery {
    /// One that comes now.
    pub fn begun() -> Self {
        Self { id: crate::id::fresh('d'), at: crate::now(), ..Self::default() }
    }

    /// Puts down what it was answered.
    pub fn answered(&mut self, outcome: &Result<Answer, Thrown>, started: Instant) {
        let (status, why) = match outcome {
            Ok(answer) => (answer.status, answer.body.get("message").and_then(Value::as_str)),
            Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, Some("the host failed; see its log")),
        };
        self.status = status.as_u16();
        self.why = why.map(str::to_owned);
        self.ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    }
}

/// A call that is remembered.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
enum Row {
    /// One of this process. Most are forgotten before they are stored, so it becomes JSON only then.
    New(Box<Delivery>),
    /// One that an earlier start stored.
    Stored(Value),
}

impl Row {
    /// Puts down what the callback of a turn was answered, where this is the call of the turn.
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

/// One endpoint's.
#[derive(Debug, Default)]
struct Log {
    /// Whether what an earlier start kept is in here.
    loaded: bool,
    dirty: bool,
    deliveries: VecDeque<Row>,
    refused: VecDeque<Row>,
}

/// Every endpoint's.
#[derive(Debug)]
pub(crate) struct Deliveries {
    kept: Collection,
    held: Mutex<HashMap<String, Log>>,
    changed: Arc<Notify>,
}

impl Deliveries {
    pub fn new(kept: Collection) -> Self {
        Self { kept, held: Mutex::default(), changed: Arc::default() }
    }

    /// Puts a call down.
    pub fn add(&self, endpoint: &str, delivery: Delivery, admitted: bool) {
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
            rows.push_back(Row::New(Box::new(delivery)));
            while rows.len() > most {
                rows.pop_front();
            }
            log.dirty = true;
        }
        self.changed.notify_one();
    }

    /// Puts down what a call's callback was answered.
    pub fn called_back(&self, endpoint: &str, turn: &str, said: &str) {
        let mut held = self.held();
        let Some(log) = held.get_mut(endpoint) else { return };
        if log.deliveries.iter_mut().rev().any(|row| row.call_back(turn, said)) {
            log.dirty = true;
            self.changed.notify_one();
        }
    }

    /// Keeps what was put down, again and again.
    pub async fn keep_on(self: Arc<Self>, host: PluginHost) {
        let mut said = None;
        loop {
            self.changed.notified().await;
            tokio::time::sleep(GATHER).await;
            let failed = self.flush().await.err().map(|why| why.message);
            // Once for each reason: where it cannot be kept there may be many calls.
            if let Some(why) = failed.as_ref().filter(|_| failed != said) {
                let _ = host.log(format!("cannot store the log of calls: {why}"));
            }
            said = failed;
        }
    }

    /// Keeps what was put down.
    pub async fn flush(&self) -> Result<(), Thrown> {
        let dirty: Vec<(String, bool)> = {
            let held = self.held();
            held.iter().filter(|(_, log)| log.dirty).map(|(id, log)| (id.clone(), log.loaded)).collect()
        };
        for (endpoint, loaded) in dirty {
            if !loaded {
                let before = self.kept.get.call((endpoint.clone(),)).await?.unwrap_or_default();
                self.load(&endpoint, &before);
            }
            if let Some(record) = self.take(&endpoint) {
                self.kept.put.call((record,)).await?;
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
