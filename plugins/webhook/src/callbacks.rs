//! Pending callbacks: posted at a turn's end, retried if the endpoint requests it, and continued at the next start.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use ostler_contract::http::Uri;
use ostler_contract::points::Collection;
use ostler_contract::{JsonObject, Slug, Thrown, Value, json};
use tokio::sync::Semaphore;

use crate::callback;
use crate::endpoint::Target;
use crate::extras::Retry;
use crate::host_connection::Waiting;
use crate::read_at_last::read_at_last;
use crate::reply::About;
use crate::route::Webhook;
use crate::turn::Ended;

/// The maximum number of concurrent posts.
const AT_ONCE: usize = 64;
/// The pauses before a callback that could not be stored is stored again.
const AGAIN: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(1)];

/// A pending callback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Callback {
    pub endpoint: Slug,
    pub chat: String,
    /// The session of the chat; unknown for one that an earlier version stored.
    pub session: Option<String>,
    pub thread: String,
    pub turn: String,
    pub url: Uri,
    /// How often it has failed.
    pub failures: u32,
    /// When it is retried, if it has failed.
    pub next: Option<Timestamp>,
}

/// The callbacks.
#[derive(Debug)]
pub(crate) struct Callbacks {
    records: Collection,
    /// The callbacks that a task is handling, and whether each is stored for a later start.
    going: Mutex<HashMap<String, bool>>,
    posting: Semaphore,
}

impl Callbacks {
    pub fn new(records: Collection) -> Self {
        Self { records, going: Mutex::default(), posting: Semaphore::new(AT_ONCE) }
    }

    /// Stores a callback, so that the next start finds it.
    pub async fn store(&self, callback: &Callback) -> Result<(), Thrown> {
        let mut record = json!({
            "id": id(callback), "endpoint": &*callback.endpoint, "chat": callback.chat, "thread": callback.thread,
            "turn": callback.turn, "url": callback.url.to_string(), "failures": callback.failures,
        });
        if let Some(session) = &callback.session {
            record["session"] = session.as_str().into();
        }
        if let Some(next) = callback.next {
            record["next"] = next.to_string().into();
        }
        match record {
            Value::Object(record) => self.records.put.call((record,)).await,
            _ => Ok(()),
        }
    }

    /// Claims a callback; returns `false` if a task is handling it.
    pub fn take(&self, callback: &Callback) -> bool {
        match self.going.lock().unwrap_or_else(PoisonError::into_inner).entry(id(callback)) {
            Entry::Vacant(new) => {
                new.insert(false);
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    fn is_stored(&self, callback: &Callback) -> bool {
        let going = self.going.lock().unwrap_or_else(PoisonError::into_inner);
        going.get(&id(callback)).copied().unwrap_or_default()
    }

    fn set_stored(&self, callback: &Callback) {
        let mut going = self.going.lock().unwrap_or_else(PoisonError::into_inner);
        going.entry(id(callback)).and_modify(|is_stored| *is_stored = true);
    }

    async fn forget(&self, callback: &Callback) {
        let _ = self.records.remove.call((id(callback),)).await;
        self.release(callback);
    }

    /// Ends the claim of a callback.
    fn release(&self, callback: &Callback) {
        self.going.lock().unwrap_or_else(PoisonError::into_inner).remove(&id(callback));
    }
}

fn id(callback: &Callback) -> String {
    crate::id::of('c', &[&callback.endpoint, &callback.turn])
}

fn read(record: &JsonObject) -> Option<Callback> {
    let text = |field: &str| record.get(field).and_then(Value::as_str);
    let owned = |field: &str| text(field).map(str::to_owned);
    Some(Callback {
        endpoint: Slug::parse(text("endpoint")?)?,
        chat: owned("chat")?,
        session: owned("session"),
        thread: owned("thread")?,
        turn: owned("turn")?,
        url: text("url")?.parse().ok()?,
        failures: u32::try_from(record.get("failures")?.as_u64()?).ok()?,
        next: text("next").and_then(|next| next.parse().ok()),
    })
}

impl Webhook {
    /// Posts a callback once its turn has ended. A failure is only logged.
    pub(crate) fn call_back(self: &Arc<Self>, callback: Callback, retry: Option<Retry>, waiting: Waiting) {
        let webhook = self.clone();
        tokio::spawn(async move {
            let ended = webhook.connection.end_of(waiting, &callback.chat, &callback.turn).await;
            webhook.post_until_taken(callback, retry, &ended).await;
        });
    }

    /// Continues the callbacks of an earlier start.
    pub(crate) async fn resume_callbacks(self: &Arc<Self>) {
        let list = || async { self.callbacks.records.list.call(()).await.into() };
        for record in read_at_last(&self.host, "the callbacks of an earlier start", list).await {
            // A callback of a concurrent call is not from an earlier start.
            let Some(callback) = read(&record).filter(|callback| self.callbacks.take(callback)) else {
                continue;
            };
            let webhook = self.clone();
            tokio::spawn(async move {
                // The endpoint's record may have been edited since; its current content applies.
                let Some(retry) = webhook.may_still_go(&callback).await else {
                    webhook.problem(
                        &callback.endpoint,
                        "dropped a callback of an earlier start that its endpoint no longer allows",
                    );
                    return webhook.callbacks.forget(&callback).await;
                };
                let ended = webhook.connection.end_of_old(&callback.chat, &callback.turn).await;
                webhook.post_until_taken(callback, Some(retry), &ended).await;
            });
        }
    }

    /// Stores a callback for a later start. Returns whether it is stored.
    pub(crate) async fn store_callback(&self, callback: &Callback) -> bool {
        match self.callbacks.store(callback).await {
            Ok(()) => self.callbacks.set_stored(callback),
            Err(why) => self.problem(&callback.endpoint, &format!("cannot store a callback: {why}")),
        }
        self.callbacks.is_stored(callback)
    }

    /// Stores a new callback for a later start, and tries again for a while if that fails: a caller that is told that it is accepted
    /// relies on it. Returns whether it is stored.
    pub(crate) async fn keep_callback(&self, callback: &Callback) -> bool {
        for pause in AGAIN {
            if self.callbacks.is_stored(callback) || self.store_callback(callback).await {
                return true;
            }
            tokio::time::sleep(pause).await;
        }
        self.store_callback(callback).await
    }

    async fn may_still_go(&self, callback: &Callback) -> Option<Retry> {
        let what = format!("{}, which has a callback of an earlier start,", crate::named(&callback.endpoint));
        let endpoint = read_at_last(&self.host, &what, || self.endpoints.get(&callback.endpoint)).await?;
        let Target::Bot(target) = &endpoint.target else { return None };
        callback::checked(target.callback_prefix.as_ref()?, Some(&callback.url.to_string())).ok()?;
        endpoint.extras.retry
    }

    /// Posts the end of a turn, and again if the endpoint requests it, until it is taken.
    pub(crate) async fn post_until_taken(&self, mut callback: Callback, retry: Option<Retry>, ended: &Ended) {
        let body = ended.told(&callback.thread, &callback.turn);
        if let Some(next) = callback.next {
            let left = next.duration_since(Timestamp::now());
            tokio::time::sleep(Duration::try_from(left).unwrap_or_default()).await;
        }
        let about = About { runs: Vec::new(), session: callback.session.clone() };
        loop {
            let posted = {
                let _place = self.callbacks.posting.acquire().await;
                callback::post(&self.host, &callback.url, &body, &about).await
            };
            let why = match posted {
                Ok(status) => {
                    self.deliveries.called_back(&callback.endpoint, &callback.turn, status.as_str());
                    break;
                }
                Err(why) => why,
            };
            callback.failures += 1;
            self.deliveries.called_back(&callback.endpoint, &callback.turn, &why);
            let to = callback.url.host().unwrap_or_default();
            let turn = &callback.turn;
            let Some(wait) = retry.and_then(|retry| retry.wait(callback.failures)) else {
                self.problem(
                    &callback.endpoint,
                    &format!("the callback of turn {turn} to {to} failed: {why}"),
                );
                break;
            };
            let again = wait.as_secs();
            self.problem(
                &callback.endpoint,
                &format!("the callback of turn {turn} to {to} failed: {why}; retrying in {again} seconds"),
            );
            callback.next = Timestamp::now().checked_add(wait).ok();
            self.store_callback(&callback).await;
            tokio::time::sleep(wait).await;
        }
        match retry {
            Some(_) => self.callbacks.forget(&callback).await,
            None => self.callbacks.release(&callback),
        }
    }
}
