//! Repeated deliveries, which receive the first answer and have no effect. They are stored across restarts, for as long as
//! their sender repeats one, and up to a number per endpoint.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use ostler_contract::http::StatusCode;
use ostler_contract::points::Collection;
use ostler_contract::read::{Read, Unknown};
use ostler_contract::shared_runs::{EventRuns, NewRecord, Once};
use ostler_contract::{JsonObject, Thrown, Value, json};
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use crate::REPEATS;
use crate::reply::{About, Answer};

/// How many first answers are stored per endpoint, whatever their age.
const MOST: usize = 1000;
/// How many are stored per endpoint as long as their sender may repeat the delivery.
const MOST_IN_SPAN: usize = 10_000;
/// How many answers that could not be stored are retained, of all endpoints. Deliveries beyond that are not handled.
const MOST_UNSTORED: usize = 1000;
/// The field of a record whose runs are not decided yet.
const UNDECIDED: &str = "undecided";
/// How long a delivery waits for the answer of another host.
const DECISION: Duration = Duration::from_secs(25);
/// How often it looks for that answer.
const AGAIN: Duration = Duration::from_millis(50);

/// The first answers.
#[derive(Debug)]
pub(crate) struct Repeats {
    records: Collection,
    /// Deliveries being handled; a concurrent repetition waits for the first.
    going: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    /// By endpoint: the stored deliveries, oldest first.
    order: tokio::sync::Mutex<HashMap<String, VecDeque<Stored>>>,
    /// Answers to deliveries that took effect, by the id of their record, which could not be stored. Their senders did not get
    /// them.
    unstored: Mutex<HashMap<String, Answer>>,
}

/// A stored delivery.
#[derive(Debug)]
struct Stored {
    id: String,
    /// When it was stored, in seconds since 1970.
    at: i64,
}

/// The kind of a delivery.
#[derive(Debug)]
pub(crate) enum Delivered {
    /// A repeated one.
    Again(Answer),
    /// A new one.
    First(Box<First>),
    /// The answers cannot be read, so it can be one or the other.
    Unknown(Unknown),
}

/// A delivery that is handled for the first time. If it is dropped without an answer, the next one is the first.
#[derive(Debug)]
pub(crate) struct First {
    id: String,
    endpoint: String,
    /// The id of the delivery at its sender.
    key: String,
    /// Its id in the log.
    delivery: String,
    /// The time in which its sender repeats a delivery, in seconds.
    span: u64,
    repeats: Arc<Repeats>,
    alone: Option<OwnedMutexGuard<()>>,
}

impl Repeats {
    pub fn new(records: Collection) -> Self {
        Self {
            records,
            going: Mutex::default(),
            order: tokio::sync::Mutex::default(),
            unstored: Mutex::default(),
        }
    }

    /// Returns whether a delivery is repeated; waits for the first if that one is being handled. Stores the answer to the first
    /// if that was not possible. `span` is the time in which its sender repeats a delivery, in seconds.
    ///
    /// # Errors
    /// The answer to the first one cannot be stored.
    pub async fn enter(
        self: &Arc<Self>,
        endpoint: &str,
        key: String,
        delivery: &str,
        span: u64,
    ) -> Result<Delivered, Thrown> {
        let id = crate::id::of('d', &[endpoint, &key]);
        let gate = self.going().entry(id.clone()).or_default().clone();
        let alone = gate.lock_owned().await;
        let first = First {
            id: id.clone(),
            endpoint: endpoint.to_owned(),
            key,
            delivery: delivery.to_owned(),
            span,
            repeats: self.clone(),
            alone: Some(alone),
        };
        let unstored = self.unstored().get(&id).cloned();
        if let Some(answer) = unstored {
            first.store(&answer).await?;
            // Only now: a caller that leaves meanwhile must not make the next one fire the event again.
            self.unstored().remove(&id);
            return Ok(Delivered::Again(answer));
        }
        let answer = match self.answer_of(&id).await {
            Read::Known(answer) => answer,
            Read::Unknown(why) => return Ok(Delivered::Unknown(why)),
        };
        match answer {
            Some(answer) => Ok(Delivered::Again(answer)),
            None if self.unstored().len() >= MOST_UNSTORED => Err(Thrown::new(format_args!(
                "the answers to {MOST_UNSTORED} earlier deliveries are not stored yet"
            ))),
            None => Ok(Delivered::First(Box::new(first))),
        }
    }

    /// Returns the answer that a delivery got, if it came before.
    pub async fn known(&self, endpoint: &str, key: &str) -> Read<Option<Answer>> {
        let id = crate::id::of('d', &[endpoint, key]);
        let unstored = self.unstored().get(&id).cloned();
        match unstored {
            Some(answer) => Read::Known(Some(answer)),
            None => self.answer_of(&id).await,
        }
    }

    /// Returns the answer to a delivery. Waits for the one of another host that handles it now.
    async fn answer_of(&self, id: &str) -> Read<Option<Answer>> {
        let begun = Instant::now();
        loop {
            let record = match self.records.get.read((id.to_owned(),)).await {
                Read::Known(Some(record)) => record,
                Read::Known(None) => return Read::Known(None),
                Read::Unknown(why) => return Read::Unknown(why),
            };
            if !is_undecided(&record) || begun.elapsed() >= DECISION {
                return Read::Known(read(&record));
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    fn unstored(&self) -> MutexGuard<'_, HashMap<String, Answer>> {
        self.unstored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn going(&self) -> MutexGuard<'_, HashMap<String, Arc<tokio::sync::Mutex<()>>>> {
        self.going.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl First {
    /// Returns the id of the delivery's record.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns what identifies the delivery where runs are stored together with its record. `answer` is that of a delivery that
    /// starts runs.
    pub fn once(&self, answer: impl Fn() -> Answer + Send + Sync + 'static) -> Once {
        let (id, endpoint, delivery) = (self.id.clone(), self.endpoint.clone(), self.delivery.clone());
        Once {
            cause: format!("webhook:{}:{}", self.endpoint, self.key),
            record: Arc::new(move |runs| {
                let (runs, is_decided) = match runs {
                    EventRuns::Decided(runs) => (runs.to_vec(), true),
                    EventRuns::Requested(_) => (Vec::new(), false),
                };
                let about = About { runs, session: None };
                let mut record = record_of(&id, &endpoint, &delivery, &answer().about(about));
                if !is_decided {
                    record.insert(UNDECIDED.to_owned(), true.into());
                }
                NewRecord { collection: REPEATS.to_owned(), record }
            }),
        }
    }

    /// Returns the answer to a delivery that another host handled first.
    pub async fn repeated(&self) -> Result<Answer, Thrown> {
        let answer = self.repeats.answer_of(&self.id).await.known()?;
        answer.ok_or_else(|| {
            Thrown::new("another host handles this delivery and did not answer yet; send it again")
        })
    }

    /// Stores the first answer, unless its record is stored already, and removes the oldest beyond the limit.
    ///
    /// # Errors
    /// The answer cannot be stored. It is retained, and the repeated delivery stores it.
    pub async fn store(self, answer: &Answer) -> Result<(), Thrown> {
        let repeats = &self.repeats;
        let unstored = Unstored { first: &self, answer: Some(answer) };
        let mut order = repeats.order.lock().await;
        if !answer.is_recorded {
            repeats.records.put.call((record_of(&self.id, &self.endpoint, &self.delivery, answer),)).await?;
        }
        unstored.forget();
        // What remains beyond the limit is removed after a later delivery.
        let Ok(of_endpoint) = self.in_order(&mut order).await else { return Ok(()) };
        let now = Timestamp::now().as_second();
        of_endpoint.push_back(Stored { id: self.id.clone(), at: now });
        while is_over(of_endpoint, now, self.span) {
            let Some(oldest) = of_endpoint.pop_front() else { break };
            if repeats.records.remove.call((oldest.id.clone(),)).await.is_err() {
                of_endpoint.push_front(oldest);
                break;
            }
        }
        Ok(())
    }

    /// Returns the other stored deliveries of the endpoint, oldest first.
    async fn in_order<'a>(
        &self,
        order: &'a mut HashMap<String, VecDeque<Stored>>,
    ) -> Result<&'a mut VecDeque<Stored>, Thrown> {
        let stored = match order.contains_key(&self.endpoint) {
            true => VecDeque::new(),
            false => {
                let mut stored = self.stored_so_far().await?;
                stored.retain(|stored| stored.id != self.id);
                stored
            }
        };
        Ok(order.entry(self.endpoint.clone()).or_insert(stored))
    }

    async fn stored_so_far(&self) -> Result<VecDeque<Stored>, Thrown> {
        let of_endpoint = JsonObject::from_iter([("endpoint".to_owned(), self.endpoint.as_str().into())]);
        let records = self.repeats.records.find.read((of_endpoint,)).await.known()?;
        let stored = |record: &JsonObject| {
            let text = |field: &str| record.get(field).and_then(Value::as_str).unwrap_or_default();
            let at = text("at").parse::<Timestamp>().unwrap_or_default();
            (at, Stored { id: text("id").to_owned(), at: at.as_second() })
        };
        let mut stored: Vec<_> = records.iter().map(stored).collect();
        stored.sort_by_key(|(at, _)| *at);
        Ok(stored.into_iter().map(|(_, stored)| stored).collect())
    }
}

/// Whether the oldest of an endpoint's deliveries is no longer stored: there are too many, or its sender no longer repeats it.
fn is_over(stored: &VecDeque<Stored>, now: i64, span: u64) -> bool {
    // A sender's last call can be late, and clocks differ.
    let span = i64::try_from(span.saturating_add(span / 10)).unwrap_or(i64::MAX);
    let is_old = stored.front().is_some_and(|oldest| now.saturating_sub(oldest.at) > span);
    stored.len() > if is_old { MOST } else { MOST_IN_SPAN }
}

/// An answer that is retained when this is dropped before it is stored, also because the caller left.
struct Unstored<'a> {
    first: &'a First,
    answer: Option<&'a Answer>,
}

impl Unstored<'_> {
    fn forget(mut self) {
        self.answer = None;
    }
}

impl Drop for Unstored<'_> {
    fn drop(&mut self) {
        if let Some(answer) = self.answer {
            let delivery = answer.delivery.clone().or_else(|| Some(self.first.delivery.clone()));
            self.first.repeats.unstored().insert(self.first.id.clone(), answer.clone().first_to(delivery));
        }
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

/// Returns the record of a first answer, which a delivery got.
fn record_of(id: &str, endpoint: &str, delivery: &str, answer: &Answer) -> JsonObject {
    let mut record = JsonObject::from_iter([
        ("id".to_owned(), id.into()),
        ("endpoint".to_owned(), endpoint.into()),
        ("at".to_owned(), crate::now().into()),
        ("status".to_owned(), answer.status.as_u16().into()),
        ("answer".to_owned(), answer.body.clone()),
        ("delivery".to_owned(), answer.delivery.as_deref().unwrap_or(delivery).into()),
    ]);
    if !answer.about.runs.is_empty() {
        record.insert("runs".to_owned(), json!(answer.about.runs));
    }
    if let Some(session) = &answer.about.session {
        record.insert("session".to_owned(), session.as_str().into());
    }
    record
}

/// Whether another host handles the delivery of a record now. If that host was lost, the record stays as it is.
fn is_undecided(record: &JsonObject) -> bool {
    let at = record.get("at").and_then(Value::as_str).and_then(|at| at.parse::<Timestamp>().ok());
    let is_new = at.is_some_and(|at| Timestamp::now().duration_since(at).unsigned_abs() < DECISION);
    is_new && record.get(UNDECIDED).is_some()
}

fn read(record: &JsonObject) -> Option<Answer> {
    let status = u16::try_from(record.get("status")?.as_u64()?).ok()?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let runs = record.get("runs").and_then(Value::as_array).into_iter().flatten().filter_map(text).collect();
    let about = About { runs, session: record.get("session").and_then(text) };
    let answer = Answer::new(StatusCode::from_u16(status).ok()?, record.get("answer")?.clone()).about(about);
    // An earlier version did not store it.
    Some(answer.first_to(record.get("delivery").and_then(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delivery_is_stored_as_long_as_its_sender_repeats_it() {
        let stored = |count: usize, at| (0..count).map(|id| Stored { id: id.to_string(), at }).collect();
        assert!(!is_over(&stored(MOST, 0), 1_000_000, 0));
        assert!(is_over(&stored(MOST + 1, 0), 1_000_000, 0));
        assert!(!is_over(&stored(MOST + 1, 0), 110, 100));
        assert!(is_over(&stored(MOST + 1, 0), 111, 100));
        assert!(is_over(&stored(MOST_IN_SPAN + 1, 0), 10, 100), "their memory has a limit");
    }

    #[test]
    fn a_new_record_is_undecided_until_its_host_decides_or_is_lost() {
        let mut record = record_of("d", "hook", "d1", &Answer::new(StatusCode::ACCEPTED, json!({})));
        assert!(!is_undecided(&record));
        record.insert(UNDECIDED.to_owned(), true.into());
        assert!(is_undecided(&record));
        record.insert("at".to_owned(), "2020-01-01T00:00:00.000Z".into());
        assert!(!is_undecided(&record));
    }
}
