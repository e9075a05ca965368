//! Repeated deliveries, which receive the first answer and have no effect. They are stored across restarts, up to a
//! number per endpoint.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ostler_contract::http::StatusCode;
use ostler_contract::points::Collection;
use ostler_contract::{JsonObject, Thrown, Value, json};
use tokio::sync::OwnedMutexGuard;

use crate::reply::{About, Answer};

/// How many first answers are stored per endpoint.
const MOST: usize = 1000;

/// The first answers.
#[derive(Debug)]
pub(crate) struct Repeats {
    records: Collection,
    /// Deliveries being handled; a concurrent repetition waits for the first.
    going: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    /// By endpoint: the stored deliveries, oldest first.
    order: tokio::sync::Mutex<HashMap<String, VecDeque<String>>>,
}

/// The kind of a delivery.
#[derive(Debug)]
pub(crate) enum Delivered {
    /// A repeated one.
    Again(Answer),
    /// A new one.
    First(First),
}

/// A delivery that is handled for the first time. If it is dropped without an answer, the next one is the first.
#[derive(Debug)]
pub(crate) struct First {
    id: String,
    endpoint: String,
    repeats: Arc<Repeats>,
    alone: Option<OwnedMutexGuard<()>>,
}

impl Repeats {
    pub fn new(records: Collection) -> Self {
        Self { records, going: Mutex::default(), order: tokio::sync::Mutex::default() }
    }

    /// Returns whether a delivery is repeated; waits for the first if that one is being handled.
    pub async fn enter(self: &Arc<Self>, endpoint: &str, key: &str) -> Result<Delivered, Thrown> {
        let id = crate::id::of('d', &[endpoint, key]);
        let gate = self.going().entry(id.clone()).or_default().clone();
        let alone = gate.lock_owned().await;
        let first = First {
            id: id.clone(),
            endpoint: endpoint.to_owned(),
            repeats: self.clone(),
            alone: Some(alone),
        };
        match self.records.get.call((id,)).await?.as_ref().and_then(read) {
            Some(answer) => Ok(Delivered::Again(answer)),
            None => Ok(Delivered::First(first)),
        }
    }

    fn going(&self) -> MutexGuard<'_, HashMap<String, Arc<tokio::sync::Mutex<()>>>> {
        self.going.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl First {
    /// Stores the first answer, and removes the oldest beyond the limit.
    pub async fn store(self, answer: &Answer) -> Result<(), Thrown> {
        let mut record = json!({
            "id": self.id, "endpoint": self.endpoint, "at": crate::now(), "status": answer.status.as_u16(),
            "answer": answer.body,
        });
        if !answer.about.runs.is_empty() {
            record["runs"] = json!(answer.about.runs);
        }
        if let Some(session) = &answer.about.session {
            record["session"] = session.as_str().into();
        }
        let repeats = &self.repeats;
        let mut order = repeats.order.lock().await;
        if !order.contains_key(&self.endpoint) {
            order.insert(self.endpoint.clone(), self.stored_so_far().await?);
        }
        if let Value::Object(record) = record {
            repeats.records.put.call((record,)).await?;
        }
        let Some(of_endpoint) = order.get_mut(&self.endpoint) else { return Ok(()) };
        of_endpoint.push_back(self.id.clone());
        while of_endpoint.len() > MOST {
            if let Some(oldest) = of_endpoint.pop_front() {
                repeats.records.remove.call((oldest,)).await?;
            }
        }
        Ok(())
    }

    async fn stored_so_far(&self) -> Result<VecDeque<String>, Thrown> {
        let of_endpoint = JsonObject::from_iter([("endpoint".to_owned(), self.endpoint.as_str().into())]);
        let mut records = self.repeats.records.find.call((of_endpoint,)).await?;
        let text = |record: &JsonObject, field: &str| {
            record.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        records.sort_by_key(|record| text(record, "at"));
        Ok(records.iter().map(|record| text(record, "id")).collect())
    }
}

impl Drop for First {
    fn drop(&mut self) {
        let mut going = self.repeats.going();
        self.alone.take();
        if going.get(&self.id).is_some_and(|gate| Arc::strong_count(gate) == 1) {
            going.remove(&self.id);
        }
    }
}

fn read(record: &JsonObject) -> Option<Answer> {
    let status = u16::try_from(record.get("status")?.as_u64()?).ok()?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let runs = record.get("runs").and_then(Value::as_array).into_iter().flatten().filter_map(text).collect();
    let about = About { runs, session: record.get("session").and_then(text) };
    Some(Answer::new(StatusCode::from_u16(status).ok()?, record.get("answer")?.clone()).about(about))
}
