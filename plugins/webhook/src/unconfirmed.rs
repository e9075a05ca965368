//! Turns that the host did not confirm in time. Their calls are answered, so the plugin sees them through, over restarts too: it
//! finds out whether the host has them, sends them again if not, and reports their ends.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ostler_contract::budget::Charge;
use ostler_contract::http::Uri;
use ostler_contract::points::Collection;
use ostler_contract::read::Read;
use ostler_contract::{Budget, JsonObject, PluginHost, Slug, Thrown, Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::at_last::{read_at_last, remove_at_last};
use crate::callback;
use crate::callbacks::{Callback, ClaimedCallback, HELD_BY};
use crate::claims::{Claim, Claims};
use crate::endpoint::{BotTarget, Target};
use crate::extras::Retry;
use crate::heard::Waiting;
use crate::host_connection::{SEARCHED, SentBefore, TurnAcceptance, TurnRejection};
use crate::route::Webhook;
use crate::turn::{Ended, TurnPhase};

/// How long the answer to a call waits for the record of its turn.
const STORED_WITHIN: Duration = Duration::from_secs(1);
/// The memory for messages of unconfirmed turns, in bytes. A turn without room is searched for, and sent again from its record once
/// there is room.
pub(crate) const MEMORY: usize = 64 * 1024 * 1024;
/// The memory of a message in addition to its text.
const MESSAGE: usize = 1024;
/// The first and the longest pause before an unconfirmed turn is searched for again. The time doubles in between.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How many turns are remembered that may have been sent.
const MOST_UNSURE: usize = 10_000;

/// A turn that the host did not confirm.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct UnconfirmedTurn {
    pub endpoint: Slug,
    pub session: String,
    pub chat: String,
    pub thread: String,
    pub turn: String,
    /// Where its end is posted.
    pub url: Option<Uri>,
}

impl UnconfirmedTurn {
    fn callback(&self) -> Option<Callback> {
        Some(Callback {
            endpoint: self.endpoint.clone(),
            chat: self.chat.clone(),
            session: Some(self.session.clone()),
            thread: self.thread.clone(),
            turn: self.turn.clone(),
            url: self.url.clone()?,
            failures: 0,
            next: None,
        })
    }
}

/// An unconfirmed turn that a task sees through.
struct ClaimedTurn {
    turn: UnconfirmedTurn,
    /// Its message, if there is memory for it.
    message: Option<(Value, Charge)>,
    /// The memory of the message.
    size: usize,
    /// Its callback, unless another task handles that.
    callback: Option<ClaimedCallback>,
    record: Record,
}

/// The record of an unconfirmed turn, and the claim of the task that sees it through.
struct Record {
    claim: Claim,
    /// The write of the record, which may fail.
    storing: Option<JoinHandle<()>>,
}

/// Whether a host sees a recorded turn through.
enum Continues {
    No,
    /// Its own, of an earlier start.
    Own,
    /// That of another run of a host of the cluster, which is lost.
    OfAnother,
}

/// The outcome of a search for the message of a turn.
enum Recall {
    /// The message can be sent.
    Found,
    /// There is no memory for it, or it cannot be read now.
    NotNow,
    /// It is neither in memory nor stored.
    Lost,
}

#[derive(Debug)]
pub(crate) struct UnconfirmedTurns {
    host: PluginHost,
    records: Collection,
    memory: Budget,
    claims: Claims,
    /// Turns of deliveries that may have been stored although their calls were refused, oldest first.
    unsure: Mutex<VecDeque<String>>,
}

impl UnconfirmedTurns {
    pub fn new(host: PluginHost, records: Collection, memory: usize) -> Self {
        let memory = Budget::new(memory);
        Self { host, records, memory, claims: Claims::default(), unsure: Mutex::default() }
    }

    /// Remembers a turn that may have been stored although its call is refused.
    pub fn note_unsure(&self, turn: &str) {
        let mut unsure = self.unsure.lock().unwrap_or_else(PoisonError::into_inner);
        if !unsure.iter().any(|other| other == turn) {
            unsure.push_back(turn.to_owned());
            while unsure.len() > MOST_UNSURE {
                unsure.pop_front();
            }
        }
    }

    /// Whether a turn may have been sent before.
    pub fn is_unsure(&self, turn: &str) -> bool {
        self.unsure.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|other| other == turn)
    }

    /// Claims a turn; `None` if a task sees it through.
    fn claim(&self, turn: &str) -> Option<Claim> {
        self.claims.take(id(turn))
    }

    /// Stores a turn, so that the next start finds it.
    fn store(
        &self,
        turn: &UnconfirmedTurn,
        message: &Value,
    ) -> impl Future<Output = Result<(), Thrown>> + Send + use<> {
        let mut record = JsonObject::from_iter([
            ("id".to_owned(), id(&turn.turn).into()),
            // Of hosts that share a store without a cluster, each sees its own through.
            ("host".to_owned(), self.host.facts().host_name.as_str().into()),
            ("endpoint".to_owned(), turn.endpoint.to_string().into()),
            ("session".to_owned(), turn.session.as_str().into()),
            ("chat".to_owned(), turn.chat.as_str().into()),
            ("thread".to_owned(), turn.thread.as_str().into()),
            ("turn".to_owned(), turn.turn.as_str().into()),
            ("message".to_owned(), message.clone()),
            ("since".to_owned(), crate::now().into()),
        ]);
        if let Some(url) = &turn.url {
            record.insert("url".to_owned(), json!(url.to_string()));
        }
        if let Ok(Some(run)) = self.host.incarnation() {
            record.insert(HELD_BY.to_owned(), run.into());
        }
        self.records.put.call((record,))
    }
}

fn id(turn: &str) -> String {
    crate::id::of('u', &[turn])
}

/// The memory of a message.
fn size_of(message: &Value) -> usize {
    MESSAGE + message["text"].as_str().map_or(0, str::len)
}

fn read(record: &JsonObject) -> Option<(UnconfirmedTurn, Value)> {
    let text = |field: &str| record.get(field).and_then(Value::as_str);
    let owned = |field: &str| text(field).map(str::to_owned);
    let turn = UnconfirmedTurn {
        endpoint: Slug::parse(text("endpoint")?)?,
        session: owned("session")?,
        chat: owned("chat")?,
        thread: owned("thread")?,
        turn: owned("turn")?,
        url: text("url").and_then(|url| url.parse().ok()),
    };
    Some((turn, record.get("message")?.clone()))
}

impl Webhook {
    /// Sees a turn through that the host did not confirm. The receiver gets its end.
    pub(crate) async fn see_through(
        self: &Arc<Self>,
        turn: UnconfirmedTurn,
        message: Value,
        callback: Option<ClaimedCallback>,
        retry: Option<Retry>,
        waiting: Waiting,
    ) -> oneshot::Receiver<Ended> {
        let (done, end) = oneshot::channel();
        let webhook = self.clone();
        let Some(claim) = self.unconfirmed.claim(&turn.turn) else {
            tokio::spawn(async move {
                // The task that sees it through confirms it.
                let ended = webhook.connection.end_of(waiting, &turn.chat, &turn.turn).await;
                if let Some(callback) = callback {
                    webhook.post_until_taken(callback, retry, &ended).await;
                }
                let _ = done.send(ended);
            });
            return end;
        };
        let (stored, is_stored) = oneshot::channel::<()>();
        let store = self.unconfirmed.store(&turn, &message);
        let storing = tokio::spawn({
            let (webhook, endpoint) = (self.clone(), turn.endpoint.clone());
            async move {
                webhook.unconfirmed_stored(&endpoint, store).await;
                let _ = stored.send(());
            }
        });
        let size = size_of(&message);
        let charge = self.unconfirmed.memory.try_take(size);
        let message = charge.map(|charge| (message, charge));
        let record = Record { claim, storing: Some(storing) };
        let claimed = ClaimedTurn { turn, message, size, callback, record };
        // Before the call waits, because its caller may leave.
        tokio::spawn(async move {
            let ended = webhook.finish(claimed, retry, waiting).await;
            let _ = done.send(ended);
        });
        // A store that did not confirm the turn may be as slow for its record.
        let _ = tokio::time::timeout(STORED_WITHIN, is_stored).await;
        end
    }

    /// Continues the unconfirmed turns of an earlier start. Afterwards their callbacks are claimed.
    pub(crate) async fn resume_unconfirmed(self: &Arc<Self>) {
        let list = || async { self.unconfirmed.records.list.read(()).await };
        let stored = read_at_last(&self.host, "the unconfirmed turns of an earlier start", list).await;
        self.continue_unconfirmed(stored).await;
    }

    /// Continues the unconfirmed turns of hosts of the cluster that are lost, before their callbacks.
    pub(crate) async fn take_over_unconfirmed(self: &Arc<Self>) -> Read<()> {
        match self.unconfirmed.records.list.read(()).await {
            Read::Known(stored) => {
                self.continue_unconfirmed(stored).await;
                Read::Known(())
            }
            Read::Unknown(why) => Read::Unknown(why),
        }
    }

    async fn continue_unconfirmed(self: &Arc<Self>, stored: Vec<JsonObject>) {
        for record in stored {
            let Some((turn, message)) = read(&record) else { continue };
            let Some(claim) = self.unconfirmed.claim(&turn.turn) else { continue };
            match self.continues(&record, &turn.session).await {
                Continues::No => continue,
                Continues::Own => {}
                Continues::OfAnother => {
                    // A write whose answer was lost may be done, and names this run of the host.
                    self.unconfirmed_stored(&turn.endpoint, self.unconfirmed.store(&turn, &message)).await;
                }
            }
            let callback = turn.callback().and_then(|callback| self.callbacks.claim(callback));
            // The message is read again when it is sent.
            let (size, record) = (size_of(&message), Record { claim, storing: None });
            tokio::spawn(self.clone().resume_turn(ClaimedTurn {
                turn,
                message: None,
                size,
                callback,
                record,
            }));
        }
    }

    /// Waits for the write of a turn. A failure is only logged.
    async fn unconfirmed_stored(&self, endpoint: &Slug, write: impl Future<Output = Result<(), Thrown>>) {
        if let Err(why) = write.await {
            self.problem(endpoint, &format!("cannot store an unconfirmed turn: {why}"));
        }
    }

    /// Whether this host sees a recorded turn through.
    async fn continues(&self, record: &JsonObject, session: &str) -> Continues {
        let text = |field: &str| record.get(field).and_then(Value::as_str).map(str::to_owned);
        match self.host.incarnation() {
            Ok(Some(own)) => {
                let from = text(HELD_BY);
                // This run of the host has a task for it, or has confirmed it since the list was read.
                if from.as_ref() == Some(&own) {
                    return Continues::No;
                }
                // One that cannot be decided is looked at again.
                match self.host.takes_over(from, session.to_owned()).await {
                    Ok(true) => Continues::OfAnother,
                    _ => Continues::No,
                }
            }
            _ if text("host").as_ref() == Some(&self.host.facts().host_name) => Continues::Own,
            _ => Continues::No,
        }
    }

    async fn resume_turn(self: Arc<Self>, mut claimed: ClaimedTurn) {
        let id = claimed.turn.endpoint.clone();
        let what = format!("{}, which has an unconfirmed turn,", crate::named(&id));
        let endpoint = read_at_last(&self.host, &what, || self.endpoints.get(&id)).await;
        // The endpoint's record may have been edited since; its current content applies.
        let target = endpoint.as_deref().and_then(|endpoint| match &endpoint.target {
            Target::Bot(target) => Some((target, endpoint.extras.retry)),
            Target::Automation => None,
        });
        if !target.is_some_and(|(target, _)| allows_callback(target, claimed.turn.url.as_ref()))
            && let Some(callback) = claimed.callback.take()
        {
            self.drop_callback(callback);
        }
        let Some((_, retry)) = target else {
            self.problem(&id, "dropped a turn of an earlier start: its endpoint no longer has a bot");
            return self.remove_unconfirmed(claimed.record);
        };
        let waiting = self.connection.wait_for(&claimed.turn.turn);
        self.finish(claimed, retry, waiting).await;
    }

    /// Confirms a turn, waits for its end and posts it.
    async fn finish(
        self: &Arc<Self>,
        mut claimed: ClaimedTurn,
        retry: Option<Retry>,
        mut waiting: Waiting,
    ) -> Ended {
        let confirmed = self.confirm(&mut waiting, &mut claimed).await;
        let ClaimedTurn { turn, message, mut callback, record, .. } = claimed;
        drop(message);
        if let Some(callback) = callback.as_mut().filter(|callback| !callback.is_stored()) {
            self.store_callback(callback).await;
        }
        // Otherwise the record is the only one of the callback.
        let mut record = Some(record);
        if callback.as_ref().is_none_or(ClaimedCallback::is_stored) {
            record.take().into_iter().for_each(|record| self.remove_unconfirmed(record));
        }
        let UnconfirmedTurn { endpoint, chat, turn, .. } = turn;
        let ended = match confirmed {
            Ok(()) => {
                let _ = self.host.log(format!(
                    "{} has turn {turn}, which the host did not confirm in time",
                    crate::named(&endpoint)
                ));
                self.connection.end_of(waiting, &chat, &turn).await
            }
            Err(ended) => {
                if let Some(why) = &ended.error {
                    let what = format!("turn {turn} of a call that was accepted is lost: {why}");
                    self.problem(&endpoint, &what);
                }
                ended
            }
        };
        // Without a callback here, another task posts it.
        if let Some(callback) = callback {
            self.post_until_taken(callback, retry, &ended).await;
        }
        record.into_iter().for_each(|record| self.remove_unconfirmed(record));
        ended
    }

    /// Finds out whether the host has a turn that it did not confirm, and sends it again under the same id if not, for as long as
    /// that takes. Returns the outcome of a turn that the host does not have in the end.
    async fn confirm(&self, waiting: &mut Waiting, claimed: &mut ClaimedTurn) -> Result<(), Ended> {
        let (mut pause, mut lost_since) = (FIRST_PAUSE, None);
        loop {
            let UnconfirmedTurn { chat, turn, .. } = &claimed.turn;
            match self.connection.look(waiting, chat, turn).await {
                phase @ (TurnPhase::Ended(_) | TurnPhase::Goes) => {
                    waiting.known(phase);
                    return Ok(());
                }
                TurnPhase::Gone => return Err(Ended::without_session()),
                // The host had it, and a user took it back.
                TurnPhase::Nowhere if waiting.was_shown() => return Err(Ended::withdrawn()),
                TurnPhase::Nowhere => match self.recall(claimed).await {
                    Recall::Found if self.send_again(waiting, claimed).await? => return Ok(()),
                    Recall::Found | Recall::NotNow => {}
                    Recall::Lost => {
                        if lost_since.get_or_insert_with(Instant::now).elapsed() > SEARCHED {
                            return Err(Ended::failed("the host did not accept the turn"));
                        }
                    }
                },
                TurnPhase::Unknown => {}
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Brings the message of a turn into memory.
    async fn recall(&self, claimed: &mut ClaimedTurn) -> Recall {
        if claimed.message.is_some() {
            return Recall::Found;
        }
        let Record { claim, storing } = &claimed.record;
        let is_written = storing.as_ref().is_none_or(JoinHandle::is_finished);
        let Some(charge) = self.unconfirmed.memory.try_take(claimed.size) else { return Recall::NotNow };
        match self.unconfirmed.records.get.read((claim.id().to_owned(),)).await {
            Read::Known(Some(mut record)) => match record.remove("message") {
                Some(message) => {
                    claimed.message = Some((message, charge));
                    Recall::Found
                }
                None => Recall::Lost,
            },
            Read::Known(None) if is_written => Recall::Lost,
            Read::Known(None) | Read::Unknown(_) => Recall::NotNow,
        }
    }

    /// Sends the message of a turn again. Returns whether the host has it then, or why the host refuses it.
    async fn send_again(&self, waiting: &mut Waiting, claimed: &ClaimedTurn) -> Result<bool, Ended> {
        let Some((message, _)) = &claimed.message else { return Ok(false) };
        let UnconfirmedTurn { chat, turn, .. } = &claimed.turn;
        match self.connection.send(waiting, chat, turn, message, SentBefore::Yes).await {
            Ok(TurnAcceptance::Accepted | TurnAcceptance::Known(_)) => Ok(true),
            Ok(TurnAcceptance::Unheard) | Err(TurnRejection::Failed(_)) => Ok(false),
            Err(TurnRejection::Refused(why) | TurnRejection::Gone(why)) => Err(Ended::failed(&why)),
        }
    }

    /// Removes the record of a turn that is done. No other task can have it before that succeeds.
    fn remove_unconfirmed(self: &Arc<Self>, record: Record) {
        let webhook = self.clone();
        tokio::spawn(async move {
            if let Some(storing) = record.storing {
                // A write that is still on its way would put it there again.
                let _ = storing.await;
            }
            let UnconfirmedTurns { host, records, .. } = &webhook.unconfirmed;
            remove_at_last(host, "the record of a turn that is confirmed", records, record.claim.id()).await;
        });
    }
}

/// Whether a bot endpoint allows the callback of an earlier start.
fn allows_callback(target: &BotTarget, url: Option<&Uri>) -> bool {
    target
        .callback_prefix
        .as_ref()
        .zip(url)
        .is_some_and(|(prefix, url)| callback::checked(prefix, Some(&url.to_string())).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read() {
        let record = json!({
            "id": id("t1"), "host": "one", "endpoint": "talk", "session": "echo:/1", "chat": "ahp-chat:/1", "thread": "t",
            "turn": "t1", "message": { "text": "hello" }, "url": "https://hooks.example/a",
        });
        let Value::Object(record) = record else { unreachable!() };
        let (turn, message) = read(&record).unwrap();
        assert_eq!(message["text"], "hello");
        assert_eq!(
            (&*turn.turn, turn.url.unwrap().to_string()),
            ("t1", "https://hooks.example/a".to_owned())
        );
    }
}
