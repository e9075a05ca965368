//! Pending callbacks: posted at a turn's end, retried if the endpoint requests it, and continued at the next start.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use ostler_contract::http::Uri;
use ostler_contract::points::Collection;
use ostler_contract::read::{Read, Unknown};
use ostler_contract::{JsonObject, PluginHost, Slug, Thrown, Value, json};
use tokio::sync::Semaphore;

use crate::at_last::{read_at_last, remove_at_last};
use crate::callback;
use crate::claims::{Claim, Claims};
use crate::endpoint::Target;
use crate::extras::Retry;
use crate::heard::Waiting;
use crate::reply::About;
use crate::route::Webhook;
use crate::turn::Ended;

/// The maximum number of concurrent posts.
const AT_ONCE: usize = 64;
/// The pauses before a callback that could not be stored or removed is stored or removed again.
const AGAIN: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(1)];

/// The field of a record with the run of the host of a cluster that posts it.
pub(crate) const HELD_BY: &str = "heldBy";
/// How often a host of a cluster looks for callbacks that another one left. A lost host's sessions have moved by then.
const LOOK: Duration = Duration::from_secs(30);

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

/// A callback that a task handles.
#[derive(Debug)]
pub(crate) struct ClaimedCallback {
    callback: Callback,
    /// Whether the next start finds it, or may find it.
    is_stored: bool,
    /// The run of the host of a cluster that its record names.
    held_by: Option<String>,
    claim: Claim,
}

impl ClaimedCallback {
    /// Whether the next start finds it.
    pub fn is_stored(&self) -> bool {
        self.is_stored
    }

    /// Lets its record be removed in the end, because an earlier start may have stored it.
    pub fn assume_stored(&mut self) {
        self.is_stored = true;
    }
}

#[derive(Debug)]
pub(crate) struct Callbacks {
    host: PluginHost,
    records: Collection,
    claims: Claims,
    posting: Semaphore,
}

impl Callbacks {
    pub fn new(host: PluginHost, records: Collection) -> Self {
        Self { host, records, claims: Claims::default(), posting: Semaphore::new(AT_ONCE) }
    }

    /// Claims a callback; `None` if a task has it.
    pub fn claim(&self, callback: Callback) -> Option<ClaimedCallback> {
        let claim = self.claims.take(id(&callback))?;
        Some(ClaimedCallback { callback, is_stored: false, held_by: None, claim })
    }

    /// Stores a callback, and returns the run of the host that its record names.
    async fn store(&self, callback: &Callback) -> Result<Option<String>, Thrown> {
        let held_by = self.host.incarnation()?;
        let mut record = json!({
            "id": id(callback), "endpoint": &*callback.endpoint, "chat": callback.chat, "thread": callback.thread,
            "turn": callback.turn, "url": callback.url.to_string(), "failures": callback.failures,
        });
        if let Some(session) = &callback.session {
            record["session"] = session.as_str().into();
        }
        if let Some(run) = &held_by {
            record[HELD_BY] = run.as_str().into();
        }
        if let Some(next) = callback.next {
            record["next"] = next.to_string().into();
        }
        if let Value::Object(record) = record {
            self.records.put.call((record,)).await?;
        }
        Ok(held_by)
    }

    /// Whether a callback is still for this host to post. One that lost its place in the cluster may have lost its callbacks to
    /// another one, which has posted them by then.
    async fn is_own(&self, claimed: &ClaimedCallback) -> Result<bool, Unknown> {
        let own = self.host.incarnation().map_err(Unknown)?;
        let is_sure = own == claimed.held_by && matches!(self.host.lost_storage(), Ok(None));
        if own.is_none() || !claimed.is_stored || is_sure {
            return Ok(true);
        }
        let record = self.records.get.read((claimed.claim.id().to_owned(),)).await.known()?;
        let held_by = |record: &JsonObject| record.get(HELD_BY)?.as_str().map(str::to_owned);
        // A write whose answer was lost may have given it to this run.
        Ok(record
            .map(|record| held_by(&record))
            .is_some_and(|holder| holder == claimed.held_by || holder == own))
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
    pub(crate) fn call_back(
        self: &Arc<Self>,
        callback: ClaimedCallback,
        retry: Option<Retry>,
        waiting: Waiting,
    ) {
        let webhook = self.clone();
        tokio::spawn(async move {
            let Callback { chat, turn, .. } = &callback.callback;
            let ended = webhook.connection.end_of(waiting, chat, turn).await;
            webhook.post_until_taken(callback, retry, &ended).await;
        });
    }

    /// Continues the callbacks of an earlier start, except those of its unconfirmed turns.
    pub(crate) async fn resume_callbacks(self: &Arc<Self>) {
        let list = || async { self.callbacks.records.list.read(()).await };
        let stored = read_at_last(&self.host, "the callbacks of an earlier start", list).await;
        self.continue_callbacks(stored).await;
    }

    /// Continues the unconfirmed turns and the callbacks of hosts of the cluster that are lost, for as long as this one runs.
    pub(crate) async fn take_over_callbacks(self: Arc<Self>) {
        let (webhook, mut said) = (Arc::downgrade(&self), None);
        drop(self);
        while let Some(webhook) = webhook.upgrade()
            && matches!(webhook.host.incarnation(), Ok(Some(_)))
        {
            // First the turns, so that each has its callback.
            let stored = match webhook.take_over_unconfirmed().await {
                Read::Known(()) => webhook.callbacks.records.list.read(()).await,
                Read::Unknown(why) => Read::Unknown(why),
            };
            match stored {
                Read::Known(stored) => {
                    said = None;
                    webhook.continue_callbacks(stored).await;
                }
                Read::Unknown(why) => {
                    if said.as_ref() != Some(&why) {
                        let what = "the callbacks that other hosts left could not be read";
                        let _ = webhook.host.log(format!("{what}: {why}; trying again"));
                    }
                    said = Some(why);
                }
            }
            drop(webhook);
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn continue_callbacks(self: &Arc<Self>, stored: Vec<JsonObject>) {
        for record in stored {
            // A callback of a concurrent call is not from an earlier start.
            let callback = read(&record).and_then(|callback| self.callbacks.claim(callback));
            let Some(mut callback) = callback else { continue };
            let from = record.get(HELD_BY).and_then(Value::as_str).map(str::to_owned);
            if let Ok(Some(own)) = self.host.incarnation() {
                // This run of the host has a task for it, or has posted it since the list was read.
                if from.as_ref() == Some(&own) {
                    continue;
                }
                let session = callback.callback.session.clone().unwrap_or_default();
                // One that cannot be decided is looked at again.
                if !self.host.takes_over(from.clone(), session).await.unwrap_or(false) {
                    continue;
                }
                callback.held_by.clone_from(&from);
                if from.is_some() {
                    self.store_callback(&mut callback).await;
                }
            }
            callback.assume_stored();
            let webhook = self.clone();
            tokio::spawn(async move {
                // The endpoint's record may have been edited since; its current content applies.
                let Some(retry) = webhook.may_still_go(&callback.callback).await else {
                    return webhook.drop_callback(callback);
                };
                // It is stored before its turn is sent, so the host may have been killed in between.
                let Callback { chat, turn, failures, .. } = &callback.callback;
                let ended = webhook.connection.end_of_earlier(chat, turn, *failures > 0).await;
                webhook.post_until_taken(callback, retry, &ended).await;
            });
        }
    }

    /// Drops a callback of an earlier start.
    pub(crate) fn drop_callback(self: &Arc<Self>, callback: ClaimedCallback) {
        self.problem(
            &callback.callback.endpoint,
            "dropped a callback of an earlier start that its endpoint no longer allows",
        );
        self.remove_callback(callback);
    }

    /// Stores a callback for a later start. A failure is only logged.
    pub(crate) async fn store_callback(&self, callback: &mut ClaimedCallback) {
        match self.callbacks.store(&callback.callback).await {
            Ok(held_by) => (callback.is_stored, callback.held_by) = (true, held_by),
            Err(why) => {
                self.problem(&callback.callback.endpoint, &format!("cannot store a callback: {why}"));
            }
        }
    }

    /// Stores a new callback for a later start, and tries again for a while if that fails: a caller that is told that it is accepted
    /// relies on it.
    ///
    /// # Errors
    /// It cannot be stored.
    pub(crate) async fn keep_callback(&self, callback: &mut ClaimedCallback) -> Result<(), Thrown> {
        let kept = again(|| self.callbacks.store(&callback.callback)).await;
        // A write whose answer was lost may be done.
        callback.is_stored = true;
        match kept {
            Ok(held_by) => callback.held_by = held_by,
            Err(why) => {
                let id = callback.claim.id().to_owned();
                callback.is_stored = self.callbacks.records.remove.call((id,)).await.is_err();
                return Err(Thrown::new(format_args!("its callback: {}", why.message)));
            }
        }
        Ok(())
    }

    /// Removes the record of a callback whose call is refused. If that fails, the next start finds it.
    pub(crate) async fn withdraw_callback(&self, callback: &mut ClaimedCallback) {
        if !callback.is_stored {
            return;
        }
        let id = callback.claim.id();
        match again(|| self.callbacks.records.remove.call((id.to_owned(),))).await {
            Ok(_) => callback.is_stored = false,
            Err(why) => self.problem(
                &callback.callback.endpoint,
                &format!("cannot remove the callback of a call that was refused: {why}"),
            ),
        }
    }

    /// Removes a callback that is done. No other task can have it before that succeeds.
    fn remove_callback(self: &Arc<Self>, callback: ClaimedCallback) {
        let webhook = self.clone();
        tokio::spawn(async move {
            let what = format!("a callback of {} that is done", crate::named(&callback.callback.endpoint));
            remove_at_last(&webhook.host, &what, &webhook.callbacks.records, callback.claim.id()).await;
        });
    }

    /// Returns the endpoint's retries if it still allows a callback of an earlier start.
    async fn may_still_go(&self, callback: &Callback) -> Option<Option<Retry>> {
        let what = format!("{}, which has a callback of an earlier start,", crate::named(&callback.endpoint));
        let endpoint = read_at_last(&self.host, &what, || self.endpoints.get(&callback.endpoint)).await?;
        let Target::Bot(target) = &endpoint.target else { return None };
        callback::checked(target.callback_prefix.as_ref()?, Some(&callback.url.to_string())).ok()?;
        Some(endpoint.extras.retry)
    }

    /// Posts the end of a turn, and again if the endpoint requests it, until it is taken.
    pub(crate) async fn post_until_taken(
        self: &Arc<Self>,
        mut claimed: ClaimedCallback,
        retry: Option<Retry>,
        ended: &Ended,
    ) {
        let callback = &mut claimed.callback;
        let body = ended.told(&callback.thread, &callback.turn);
        if let Some(next) = callback.next {
            let left = next.duration_since(Timestamp::now());
            tokio::time::sleep(Duration::try_from(left).unwrap_or_default()).await;
        }
        let about = About { runs: Vec::new(), session: callback.session.clone() };
        loop {
            match self.callbacks.is_own(&claimed).await {
                Ok(true) => {}
                Ok(false) => return,
                // Known once the store answers.
                Err(_) => {
                    tokio::time::sleep(AGAIN[1]).await;
                    continue;
                }
            }
            if claimed.is_stored && self.host.incarnation() != Ok(claimed.held_by.clone()) {
                self.store_callback(&mut claimed).await;
            }
            let callback = &mut claimed.callback;
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
            self.store_callback(&mut claimed).await;
            tokio::time::sleep(wait).await;
        }
        if claimed.is_stored {
            self.remove_callback(claimed);
        }
    }
}

/// Tries again for a while what fails.
async fn again<T, F: Future<Output = Result<T, Thrown>>>(what: impl Fn() -> F) -> Result<T, Thrown> {
    for pause in AGAIN {
        if let Ok(done) = what().await {
            return Ok(done);
        }
        tokio::time::sleep(pause).await;
    }
    what().await
}
