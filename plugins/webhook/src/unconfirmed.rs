//! Turns that the host did not confirm in time. Their calls are answered, so the plugin sees them through, over restarts too: it
//! finds out whether the host has them, sends them again if not, and reports their ends.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ostler_contract::budget::Charge;
use ostler_contract::http::Uri;
use ostler_contract::points::Collection;
use ostler_contract::{Budget, JsonObject, PluginHost, Slug, Thrown, Value, json};
use tokio::sync::oneshot;

use crate::callback;
use crate::callbacks::Callback;
use crate::endpoint::Target;
use crate::extras::Retry;
use crate::host_connection::Waiting;
use crate::read_at_last::read_at_last;
use crate::route::Webhook;
use crate::turn::Ended;

/// How long the answer to a call waits for the record of its turn.
const STORED_WITHIN: Duration = Duration::from_secs(1);
/// The memory for messages of unconfirmed turns, in bytes. A turn without room is searched for, but not sent again before the next
/// start.
const MEMORY: usize = 64 * 1024 * 1024;
/// The memory of a message in addition to its text.
const MESSAGE: usize = 1024;
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

/// The message of an unconfirmed turn, if there is memory for it.
type Retained = Option<(Value, Charge)>;

/// The unconfirmed turns.
#[derive(Debug)]
pub(crate) struct UnconfirmedTurns {
    host: PluginHost,
    records: Collection,
    memory: Budget,
    /// The turns that a task sees through.
    going: Mutex<HashSet<String>>,
    /// Turns of deliveries that may have been stored although their calls were refused, oldest first.
    unsure: Mutex<VecDeque<String>>,
}

impl UnconfirmedTurns {
    pub fn new(host: PluginHost, records: Collection) -> Self {
        let memory = Budget::new(MEMORY);
        Self { host, records, memory, going: Mutex::default(), unsure: Mutex::default() }
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

    /// Claims a turn; returns `false` if a task sees it through.
    fn take(&self, turn: &str) -> bool {
        self.going.lock().unwrap_or_else(PoisonError::into_inner).insert(turn.to_owned())
    }

    /// Stores a turn, so that the next start finds it.
    fn store(
        &self,
        turn: &UnconfirmedTurn,
        message: &Value,
    ) -> impl Future<Output = Result<(), Thrown>> + Send + use<> {
        let mut record = JsonObject::from_iter([
            ("id".to_owned(), id(&turn.turn).into()),
            // In a shared store, each host sees its own through.
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
        self.records.put.call((record,))
    }

    async fn forget(&self, turn: &str) {
        let _ = self.records.remove.call((id(turn),)).await;
        self.going.lock().unwrap_or_else(PoisonError::into_inner).remove(turn);
    }
}

fn id(turn: &str) -> String {
    crate::id::of('u', &[turn])
}

/// The memory of a message.
fn size_of(message: &Value) -> usize {
    MESSAGE + message["text"].as_str().map_or(0, str::len)
}

fn read(record: &JsonObject, host: &str) -> Option<(UnconfirmedTurn, Value)> {
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
    let message = record.get("message")?.clone();
    (text("host") == Some(host)).then_some((turn, message))
}

impl Webhook {
    /// Sees a turn through that the host did not confirm. The receiver gets its end.
    pub(crate) async fn see_through(
        self: &Arc<Self>,
        turn: UnconfirmedTurn,
        message: Value,
        retry: Option<Retry>,
        waiting: Waiting,
    ) -> oneshot::Receiver<Ended> {
        let (done, end) = oneshot::channel();
        if self.unconfirmed.take(&turn.turn) {
            let storing = tokio::spawn(self.unconfirmed.store(&turn, &message));
            match tokio::time::timeout(STORED_WITHIN, storing).await {
                Ok(Ok(Ok(()))) => {}
                Ok(Ok(Err(why))) => {
                    self.problem(&turn.endpoint, &format!("cannot store an unconfirmed turn: {why}"));
                }
                // A store that did not confirm the turn may be as slow for its record.
                Ok(Err(_)) | Err(_) => {}
            }
            let webhook = self.clone();
            let charge = self.unconfirmed.memory.try_take(size_of(&message));
            let message = charge.map(|charge| (message, charge));
            tokio::spawn(async move {
                let ended = webhook.finish(turn, message, retry, waiting).await;
                let _ = done.send(ended);
            });
        }
        end
    }

    /// Continues the unconfirmed turns of an earlier start.
    pub(crate) async fn resume_unconfirmed(self: &Arc<Self>) {
        let list = || async { self.unconfirmed.records.list.call(()).await.into() };
        let name = self.host.facts().host_name.clone();
        for record in read_at_last(&self.host, "the unconfirmed turns of an earlier start", list).await {
            let turn = read(&record, &name).filter(|(turn, _)| self.unconfirmed.take(&turn.turn));
            let Some((mut turn, message)) = turn else { continue };
            let charge = self.unconfirmed.memory.take(size_of(&message)).await;
            let message = charge.map(|charge| (message, charge));
            let webhook = self.clone();
            tokio::spawn(async move {
                let what = format!("{}, which has an unconfirmed turn,", crate::named(&turn.endpoint));
                let endpoint = read_at_last(&webhook.host, &what, || webhook.endpoints.get(&turn.endpoint));
                let endpoint = endpoint.await;
                // The endpoint's record may have been edited since; its current content applies.
                let Some((target, retry)) = endpoint.as_deref().and_then(|endpoint| match &endpoint.target {
                    Target::Bot(target) => Some((target, endpoint.extras.retry)),
                    Target::Automation => None,
                }) else {
                    webhook.problem(
                        &turn.endpoint,
                        "dropped a turn of an earlier start: it talks to no bot now",
                    );
                    return webhook.unconfirmed.forget(&turn.turn).await;
                };
                let prefix = target.callback_prefix.as_ref();
                turn.url = turn.url.filter(|url| {
                    prefix.is_some_and(|prefix| callback::checked(prefix, Some(&url.to_string())).is_ok())
                });
                let waiting = webhook.connection.wait_for(&turn.turn);
                webhook.finish(turn, message, retry, waiting).await;
            });
        }
    }

    /// Confirms a turn, waits for its end and posts it.
    async fn finish(
        self: &Arc<Self>,
        turn: UnconfirmedTurn,
        message: Retained,
        retry: Option<Retry>,
        mut waiting: Waiting,
    ) -> Ended {
        let UnconfirmedTurn { endpoint, session, chat, thread, turn, url } = turn;
        let sent = message.as_ref().map(|(message, _)| message);
        let confirmed = self.connection.confirm(&mut waiting, &chat, &turn, sent).await;
        drop(message);
        let callback = url.map(|url| Callback {
            endpoint: endpoint.clone(),
            chat: chat.clone(),
            session: Some(session),
            thread,
            turn: turn.clone(),
            url,
            failures: 0,
            next: None,
        });
        // Otherwise the record is the only one of the callback.
        let is_stored = match &callback {
            Some(callback) if retry.is_some() && self.callbacks.take(callback) => {
                self.store_callback(callback).await
            }
            Some(_) => false,
            None => true,
        };
        if is_stored {
            self.unconfirmed.forget(&turn).await;
        }
        let ended = match confirmed {
            Ok(()) => {
                let _ = self.host.log(format!(
                    "{} has turn {turn}, which the host did not confirm in time",
                    crate::named(&endpoint)
                ));
                self.connection.end_of(waiting, &chat, &turn).await
            }
            Err(ended) => {
                let why = ended.error.as_deref().unwrap_or_default();
                self.problem(&endpoint, &format!("turn {turn} of a call that was accepted is lost: {why}"));
                ended
            }
        };
        if let Some(callback) = callback {
            self.post_until_taken(callback, retry, &ended).await;
        }
        if !is_stored {
            self.unconfirmed.forget(&turn).await;
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_by_the_host_that_wrote_it() {
        let record = json!({
            "id": id("t1"), "host": "one", "endpoint": "talk", "session": "echo:/1", "chat": "ahp-chat:/1", "thread": "t",
            "turn": "t1", "message": { "text": "hello" }, "url": "https://hooks.example/a",
        });
        let Value::Object(record) = record else { unreachable!() };
        let (turn, message) = read(&record, "one").unwrap();
        assert_eq!(message["text"], "hello");
        assert_eq!(
            (&*turn.turn, turn.url.unwrap().to_string()),
            ("t1", "https://hooks.example/a".to_owned())
        );
        assert_eq!(read(&record, "two"), None);
    }
}
