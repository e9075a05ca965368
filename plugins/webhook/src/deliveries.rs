//! The log of calls: recent calls of an endpoint with their answers and outcomes. It contains nothing of a body, a
//! token or a URL.
//!
//! On a host with files, a list of each endpoint is stored up to half a second later. Where several hosts may write, the row of
//! a call is a record of its own, which is stored together with the runs of the call; what is known later replaces that record.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use ostler_contract::http::StatusCode;
use ostler_contract::points::Collection;
use ostler_contract::shared_runs::{EventRuns, NewRecord, RecordOf};
use ostler_contract::{JsonObject, PluginHost, Thrown, Value};
use serde::{Serialize, Serializer};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::DELIVERIES;
use crate::recorded_calls::{self, ADMITTED, REFUSED, RecordedCalls, Repeated, row_record, rows_of};
use crate::reply::Answer;
use crate::shared_store::SharedStore;

/// How long lines are collected before they are stored.
const GATHER: Duration = Duration::from_millis(500);

/// One call.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Delivery {
    /// When it arrived.
    #[serde(skip)]
    started: Option<Instant>,
    /// Its id, for a replay.
    pub id: String,
    /// Time of its arrival, ISO 8601 in JSON. Most calls are dropped from the log before they are stored.
    #[serde(serialize_with = "iso")]
    pub at: Timestamp,
    /// The duration until the answer, in ms.
    pub ms: u64,
    /// The status of the answer.
    pub status: u16,
    /// Why it was rejected or failed: for the owner of the endpoint, where the caller learns less.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// How many calls it stands for, if more than one was rejected for the same reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<u64>,
    /// The size of its body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// The chat of its turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chat: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
    /// The runs that it started.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<String>,
    /// Why automations got no run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unstarted: Vec<String>,
    /// The delivery that it repeats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeats: Option<String>,
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
        let started = Some(Instant::now());
        Self { started, id: crate::id::fresh('d'), at: Timestamp::now(), ..Self::default() }
    }

    /// Records its answer.
    pub fn answered(&mut self, outcome: &Result<Answer, Thrown>) {
        let (status, why) = match outcome {
            Ok(answer) => (answer.status, answer.body.get("message").and_then(Value::as_str)),
            Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, Some("the host failed; see its log")),
        };
        self.status = status.as_u16();
        self.why = self.why.take().or_else(|| why.map(str::to_owned));
        self.ms = self.elapsed();
    }

    fn elapsed(&self) -> u64 {
        let elapsed = self.started.map_or(Duration::ZERO, |started| started.elapsed());
        u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns its record. JSON of this type is always an object.
    fn record(&self, endpoint: &str, is_refused: bool) -> JsonObject {
        let row = match serde_json::to_value(self) {
            Ok(Value::Object(row)) => row,
            _ => JsonObject::new(),
        };
        row_record(endpoint, row, is_refused)
    }
}

fn iso<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&crate::iso(*at))
}

/// The row of an accepted call that is stored together with its runs.
pub(crate) struct RowWithRuns {
    /// Creates the record.
    pub record: RecordOf,
    /// The runs in that record, once it was created.
    runs: Arc<OnceLock<Vec<String>>>,
}

impl RowWithRuns {
    /// Returns the runs of the stored row.
    pub fn runs(&self) -> &[String] {
        self.runs.get().map_or(&[], Vec::as_slice)
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

    /// The status and the reason of a rejected call.
    fn reason(&self) -> (u64, &str) {
        match self {
            Self::New(delivery) => (delivery.status.into(), delivery.why.as_deref().unwrap_or_default()),
            Self::Stored(row) => recorded_calls::reason(row),
        }
    }

    /// How many calls it stands for.
    fn times(&self) -> u64 {
        match self {
            Self::New(delivery) => delivery.times.unwrap_or(1),
            Self::Stored(row) => recorded_calls::times(row),
        }
    }

    fn count(&mut self, times: u64) {
        match self {
            Self::New(delivery) => delivery.times = Some(times),
            Self::Stored(row) => row["times"] = times.into(),
        }
    }

    /// Returns its record, unless it is one of an earlier start.
    fn record(&self, endpoint: &str, is_refused: bool) -> Option<JsonObject> {
        match self {
            Self::New(delivery) => Some(delivery.record(endpoint, is_refused)),
            Self::Stored(_) => None,
        }
    }
}

/// The log of one endpoint. In a shared store, it has only what is not stored yet.
#[derive(Debug, Default)]
struct Log {
    /// Whether the stored entries of earlier starts are included.
    loaded: bool,
    dirty: bool,
    deliveries: VecDeque<Row>,
    refused: VecDeque<Row>,
    /// Answers to the callbacks of stored calls: the turn and the answer.
    callbacks: VecDeque<(String, String)>,
    /// Records of rows that the list replaces.
    replaced: Vec<String>,
}

impl Log {
    /// Adds the older rows of another log of the endpoint.
    fn prepend(&mut self, older: Self) {
        prepend(&mut self.deliveries, older.deliveries, ADMITTED);
        prepend_refused(&mut self.refused, older.refused);
        prepend(&mut self.callbacks, older.callbacks, ADMITTED);
    }
}

fn prepend<T>(
    to: &mut VecDeque<T>,
    older: impl IntoIterator<Item = T, IntoIter: DoubleEndedIterator>,
    most: usize,
) {
    for one in older.into_iter().rev() {
        if to.len() < most {
            to.push_front(one);
        }
    }
}

/// Adds a rejected call, newer than the others. Of those with the same reason, one row has the newest and their number, so
/// that a stranger's many calls displace no other reason.
fn add_refused(rows: &mut VecDeque<Row>, mut row: Row) {
    if let Some(at) = rows.iter().position(|other| other.reason() == row.reason())
        && let Some(other) = rows.remove(at)
    {
        row.count(other.times().saturating_add(row.times()));
    }
    rows.push_back(row);
    while rows.len() > REFUSED {
        rows.pop_front();
    }
}

fn prepend_refused(to: &mut VecDeque<Row>, older: impl IntoIterator<Item = Row>) {
    let newer = std::mem::take(to);
    older.into_iter().chain(newer).for_each(|row| add_refused(to, row));
}

/// The logs of all endpoints.
#[derive(Debug)]
pub(crate) struct Deliveries {
    records: Collection,
    store: SharedStore,
    held: Mutex<HashMap<String, Log>>,
    changed: Arc<Notify>,
}

impl Deliveries {
    pub fn new(records: Collection, store: SharedStore) -> Self {
        Self { records, store, held: Mutex::default(), changed: Arc::default() }
    }

    /// Records a call.
    pub fn add(&self, endpoint: &str, delivery: Box<Delivery>, admitted: bool) {
        {
            let mut held = self.held();
            let log = match held.get_mut(endpoint) {
                Some(log) => log,
                None => held.entry(endpoint.to_owned()).or_default(),
            };
            match admitted {
                true => {
                    log.deliveries.push_back(Row::New(delivery));
                    while log.deliveries.len() > ADMITTED {
                        log.deliveries.pop_front();
                    }
                }
                false => add_refused(&mut log.refused, Row::New(delivery)),
            }
            log.dirty = true;
        }
        self.changed.notify_one();
    }

    /// Returns the row of an accepted call to be stored together with its runs, if the store can do so.
    pub fn row_with_runs(&self, endpoint: &str, delivery: &Delivery) -> Option<RowWithRuns> {
        if !self.store.is_shared() {
            return None;
        }
        let (endpoint, delivery) = (endpoint.to_owned(), delivery.clone());
        let runs: Arc<OnceLock<Vec<String>>> = Arc::default();
        let created = runs.clone();
        let record = move |runs: EventRuns<'_>| {
            let (EventRuns::Decided(runs) | EventRuns::Requested(runs)) = runs;
            let runs = created.get_or_init(|| runs.to_vec()).clone();
            let status = StatusCode::ACCEPTED.as_u16();
            let row = Delivery { status, ms: delivery.elapsed(), runs, ..delivery.clone() };
            NewRecord { collection: DELIVERIES.to_owned(), record: row.record(&endpoint, false) }
        };
        Some(RowWithRuns { record: Arc::new(record), runs })
    }

    /// Replaces the stored row of an accepted call before its answer.
    pub async fn replace(&self, endpoint: &str, delivery: &Delivery) -> Result<(), Thrown> {
        let (status, ms) = (StatusCode::ACCEPTED.as_u16(), delivery.elapsed());
        let row = Delivery { status, ms, ..delivery.clone() };
        self.records.put.call((row.record(endpoint, false),)).await
    }

    /// Records the answer to a call's callback.
    pub fn called_back(&self, endpoint: &str, turn: &str, said: &str) {
        let mut held = self.held();
        let log = match held.get_mut(endpoint) {
            Some(log) => log,
            // The call is in the store.
            None if self.store.is_shared() => held.entry(endpoint.to_owned()).or_default(),
            None => return,
        };
        if !log.deliveries.iter_mut().rev().any(|row| row.call_back(turn, said)) {
            if !self.store.is_shared() {
                return;
            }
            log.callbacks.push_back((turn.to_owned(), said.to_owned()));
            while log.callbacks.len() > ADMITTED {
                log.callbacks.pop_front();
            }
        }
        log.dirty = true;
        self.changed.notify_one();
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
            if self.store.is_shared() {
                self.flush_rows(&endpoint).await?;
                continue;
            }
            if !loaded {
                let list = self.records.get.read((endpoint.clone(),)).await.known()?;
                let rows = self.records.find.read((rows_of(&endpoint),)).await.known()?;
                self.load(&endpoint, list.as_ref(), rows);
            }
            if let Some((record, replaced)) = self.take(&endpoint) {
                self.records.put.call((record,)).await?;
                for id in replaced {
                    self.records.remove.call((id,)).await?;
                }
            }
        }
        Ok(())
    }

    fn load(&self, endpoint: &str, list: Option<&JsonObject>, rows: Vec<JsonObject>) {
        let mut held = self.held();
        let Some(log) = held.get_mut(endpoint) else { return };
        log.replaced = rows.iter().filter_map(|row| row.get("id")?.as_str().map(str::to_owned)).collect();
        let calls = RecordedCalls::of(list, rows);
        prepend(&mut log.deliveries, calls.accepted.into_iter().map(Row::Stored), ADMITTED);
        prepend_refused(&mut log.refused, calls.refused.into_iter().map(Row::Stored));
        log.loaded = true;
    }

    /// Returns the list of an endpoint, and the records that it replaces.
    fn take(&self, endpoint: &str) -> Option<(JsonObject, Vec<String>)> {
        let mut held = self.held();
        let log = held.get_mut(endpoint)?;
        log.dirty = false;
        let rows = |rows: &VecDeque<Row>| serde_json::to_value(rows).ok();
        let list = JsonObject::from_iter([
            ("id".to_owned(), endpoint.into()),
            ("deliveries".to_owned(), rows(&log.deliveries)?),
            ("refused".to_owned(), rows(&log.refused)?),
        ]);
        Some((list, std::mem::take(&mut log.replaced)))
    }

    /// Stores the new rows of an endpoint in a shared store. What fails is stored by the next flush.
    async fn flush_rows(&self, endpoint: &str) -> Result<(), Thrown> {
        let Some(new) = self.held().remove(endpoint) else { return Ok(()) };
        let stored = match self.store_rows(endpoint, &new).await {
            Ok(()) => self.prune(endpoint).await,
            Err(why) => Err(why),
        };
        if stored.is_err() {
            let mut held = self.held();
            let log = held.entry(endpoint.to_owned()).or_default();
            log.prepend(new);
            log.dirty = true;
            drop(held);
            self.changed.notify_one();
        }
        stored
    }

    async fn store_rows(&self, endpoint: &str, new: &Log) -> Result<(), Thrown> {
        let accepted = new.deliveries.iter().filter_map(|row| row.record(endpoint, false));
        let refused = new.refused.iter().filter_map(|row| row.record(endpoint, true));
        let mut records: Vec<JsonObject> = accepted.chain(refused).collect();
        let key = |record: &JsonObject| {
            ["at", "id"].map(|field| record.get(field).and_then(Value::as_str).map(str::to_owned))
        };
        // Every host locks rows in the same order.
        records.sort_by_key(key);
        let puts = join_all(records.into_iter().map(|record| self.records.put.call((record,)))).await;
        puts.into_iter().collect::<Result<(), _>>()?;
        for (turn, said) in &new.callbacks {
            let mut wanted = rows_of(endpoint);
            wanted.insert("turn".to_owned(), turn.as_str().into());
            for mut row in self.records.find.read((wanted,)).await.known()? {
                row.insert("callback".to_owned(), said.as_str().into());
                self.records.put.call((row,)).await?;
            }
        }
        Ok(())
    }

    /// Removes the oldest rows beyond the limits. Turns the list of a host with files or of an earlier version into rows.
    async fn prune(&self, endpoint: &str) -> Result<(), Thrown> {
        let list = self.records.get.read((endpoint.to_owned(),)).await.known()?;
        let rows = self.records.find.read((rows_of(endpoint),)).await.known()?;
        if list.is_some() {
            let is_row = |row: &JsonObject| rows.iter().any(|one| one.get("id") == row.get("id"));
            let RecordedCalls { accepted, refused, .. } = RecordedCalls::of(list.as_ref(), Vec::new());
            let accepted = accepted.into_iter().map(|row| (row, false));
            for (row, is_refused) in accepted.chain(refused.into_iter().map(|row| (row, true))) {
                let Value::Object(mut row) = row else { continue };
                let at = row.get("at").and_then(Value::as_str).unwrap_or_default();
                let id = crate::id::of('d', &[endpoint, at]);
                row.entry("id").or_insert_with(|| id.into());
                if !is_row(&row) {
                    self.records.put.call((row_record(endpoint, row, is_refused),)).await?;
                }
            }
            self.records.remove.call((endpoint.to_owned(),)).await?;
        }
        let RecordedCalls { excess, repeated, .. } = RecordedCalls::of(list.as_ref(), rows);
        let removed = join_all(excess.into_iter().map(|id| self.records.remove.call((id,)))).await;
        removed.into_iter().collect::<Result<Vec<bool>, _>>()?;
        for Repeated { newest, older } in repeated {
            let Value::Object(mut row) = newest else { continue };
            // The newest one stays, so that the reason is always shown, and one beside it is few enough.
            if older.len() < 2 {
                continue;
            }
            // Of several hosts, the one that removes a row counts it, in a row that no other one has read.
            let mut counted = 0_u64;
            for (id, times) in older {
                if self.records.remove.call((id,)).await? {
                    counted = counted.saturating_add(times);
                }
            }
            if counted > 0 {
                row.insert("id".to_owned(), crate::id::fresh('d').into());
                row.insert("times".to_owned(), counted.into());
                self.records.put.call((row_record(endpoint, row, true),)).await?;
            }
        }
        Ok(())
    }

    fn held(&self) -> MutexGuard<'_, HashMap<String, Log>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejected_calls_with_one_reason_have_one_row() {
        let call = |why: &str| {
            let why = Some(why.to_owned());
            Row::New(Box::new(Delivery { status: 401, why, ..Delivery::begun() }))
        };
        let stored = |why: &str, times: u64| {
            Row::Stored(ostler_contract::json!({ "status": 401, "why": why, "times": times }))
        };
        let mut rows = VecDeque::new();
        add_refused(&mut rows, call("the signature does not match"));
        for _ in 0..100 {
            add_refused(&mut rows, call("no token"));
        }
        let shown = |rows: &VecDeque<Row>| {
            rows.iter().map(|row| (row.reason().1.to_owned(), row.times())).collect::<Vec<_>>()
        };
        let owned = |why: &str, times| (why.to_owned(), times);
        assert_eq!(shown(&rows), [owned("the signature does not match", 1), owned("no token", 100)]);
        // Rows of an earlier start are counted with them, and keep their place if there is no newer one.
        prepend_refused(&mut rows, [stored("no token", 7), stored("too large", 2)]);
        assert_eq!(
            shown(&rows),
            [owned("too large", 2), owned("the signature does not match", 1), owned("no token", 107)]
        );
        for at in 0..REFUSED {
            add_refused(&mut rows, call(&at.to_string()));
        }
        assert_eq!((rows.len(), rows[0].reason().1), (REFUSED, "0"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_delivery_takes_the_time_until_its_answer() {
        let mut delivery = Delivery::begun();
        tokio::time::advance(Duration::from_millis(1234)).await;
        delivery.answered(&Err(Thrown::new("full")));
        assert_eq!((delivery.ms, delivery.status), (1234, 500));
    }
}
