//! What the host says about turns, and the calls that wait for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ostler_contract::Value;
use ostler_contract::protocol::names;
use tokio::sync::{oneshot, watch};

use crate::host_connection::{TurnAcceptance, Watched};
use crate::turn::{TurnPhase, is_turn};

/// What a connection is told about a dispatched action: that it was accepted, or why not.
type EchoOutcome = Result<(), Rejected>;

/// Why an action was rejected.
#[derive(Debug)]
pub(crate) struct Rejected {
    pub why: String,
    /// Whether it can be sent again.
    pub is_retryable: bool,
}

/// The waiting calls.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// By sequence number of the action.
    pub echoes: HashMap<i64, oneshot::Sender<EchoOutcome>>,
    /// By turn, also under the id of its queued message: whether the host has shown it. Changes at its end.
    turns: HashMap<String, Arc<watch::Sender<bool>>>,
}

impl Heard {
    /// Whether a call waits for the end of a turn.
    pub fn is_awaited(&self) -> bool {
        !self.turns.is_empty()
    }

    /// Lets all waiting calls look for their turns.
    pub fn wake_all(&self) {
        self.turns.values().for_each(|turn| turn.send_modify(|_| ()));
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A call that waits for a turn's end. Several can wait for the same turn.
#[derive(Debug)]
pub(crate) struct Waiting {
    turn: watch::Receiver<bool>,
    /// The subscription that delivers the turn's end.
    pub watched: Option<Watched>,
    // Dropped last, when the receiver is gone.
    cleanup: Cleanup,
}

impl Waiting {
    pub fn new(heard: &Arc<Mutex<Heard>>, turn: &str) -> Self {
        let turn = lock(heard).turns.entry(turn.to_owned()).or_default().subscribe();
        Self { turn, watched: None, cleanup: Cleanup(heard.clone()) }
    }

    /// The host has the turn, which may have ended already.
    pub fn known(&mut self, phase: TurnPhase) -> TurnAcceptance {
        self.look_now();
        TurnAcceptance::Known(phase)
    }

    /// Lets the next wait end at once.
    pub fn look_now(&mut self) {
        self.turn.mark_changed();
    }

    /// Waits until the turn may have ended.
    pub async fn changed(&mut self) {
        // The sender exists as long as a receiver.
        let _ = self.turn.changed().await;
    }

    /// Listens for the end of the running turn too, if that is this one under an id of the host, because its message was queued.
    /// Returns whether it did not listen before.
    pub fn runs_as(&self, running: &Value, turn: &str) -> bool {
        let mut heard = lock(&self.cleanup.0);
        let Some(id) = running["id"].as_str().filter(|id| *id != turn && is_turn(running, turn)) else {
            return false;
        };
        let Some(own) = heard.turns.get(turn).cloned() else { return false };
        heard.turns.insert(id.to_owned(), own).is_none()
    }

    /// Whether the host has shown the turn, or its queued message, to this connection.
    pub fn was_shown(&self) -> bool {
        *self.turn.borrow()
    }
}

/// Removes the turns that no call waits for.
#[derive(Debug)]
struct Cleanup(Arc<Mutex<Heard>>);

impl Drop for Cleanup {
    fn drop(&mut self) {
        lock(&self.0).turns.retain(|_, turn| turn.receiver_count() > 0);
    }
}

/// Handles one message of the host.
pub(crate) fn hear(heard: &Mutex<Heard>, client: &str, message: &Value) {
    if message["method"] != "action" {
        return;
    }
    let (params, action) = (&message["params"], &message["params"]["action"]);
    let mut heard = lock(heard);
    let rejected = params["rejectionReason"].as_str();
    if params["origin"]["clientId"] == client
        && let Some(echo) = params["origin"]["clientSeq"].as_i64().and_then(|seq| heard.echoes.remove(&seq))
    {
        let is_retryable = params["_meta"][names::meta_key(names::RETRYABLE)] == true;
        let _ = echo.send(match rejected {
            Some(why) => Err(Rejected { why: why.to_owned(), is_retryable }),
            None => Ok(()),
        });
    }
    if rejected.is_some() {
        return;
    }
    let text = |field: &str| action[field].as_str();
    let shown = |turn: &watch::Sender<bool>| {
        turn.send_if_modified(|is_shown| {
            *is_shown = true;
            false
        });
    };
    match (text("type"), text("turnId")) {
        (Some("chat/turnStarted"), Some(turn)) => {
            // The queued message is now a turn, with an id from the host.
            if let Some(waiting) = text("queuedMessageId").and_then(|id| heard.turns.get(id).cloned()) {
                heard.turns.insert(turn.to_owned(), waiting);
            }
            heard.turns.get(turn).into_iter().for_each(|turn| shown(turn));
        }
        (Some("chat/pendingMessageSet"), _) => {
            text("id").and_then(|id| heard.turns.get(id)).into_iter().for_each(|turn| shown(turn));
        }
        (Some("chat/turnComplete" | "chat/turnCancelled" | "chat/error"), Some(turn)) => {
            heard.turns.get(turn).into_iter().for_each(|turn| turn.send_modify(|_| ()));
        }
        (Some("chat/pendingMessageRemoved"), _) => {
            text("id")
                .and_then(|id| heard.turns.get(id))
                .into_iter()
                .for_each(|turn| turn.send_modify(|_| ()));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use ostler_contract::json;

    use super::*;

    fn tell(heard: &Mutex<Heard>, action: Value) {
        hear(heard, "webhook", &json!({ "method": "action", "params": { "action": action } }));
    }

    #[test]
    fn each_call_that_waits_for_a_turn_hears_its_end() {
        let heard = Arc::default();
        let [mut first, second, mut third] = [(); 3].map(|()| Waiting::new(&heard, "queued"));
        drop(second);
        tell(&heard, json!({ "type": "chat/turnStarted", "turnId": "t1", "queuedMessageId": "queued" }));
        let mut late = Waiting::new(&heard, "queued");
        for waiting in [&mut first, &mut third, &mut late] {
            assert_eq!(waiting.changed().now_or_never(), None);
            assert!(waiting.was_shown());
        }
        drop(late);
        tell(&heard, json!({ "type": "chat/turnComplete", "turnId": "t1" }));
        for mut waiting in [first, third] {
            assert_eq!(waiting.changed().now_or_never(), Some(()));
            assert_eq!(waiting.changed().now_or_never(), None, "once");
        }
        assert!(lock(&heard).turns.is_empty());
    }

    #[test]
    fn an_echo_for_the_plugin_of_another_host_confirms_nothing() {
        let heard = Mutex::new(Heard::default());
        let (echo, mut wait) = oneshot::channel();
        lock(&heard).echoes.insert(1, echo);
        let echoed = |client: &str| {
            json!({ "method": "action", "params": { "origin": { "clientId": client, "clientSeq": 1 },
                "action": { "type": "chat/turnStarted", "turnId": "t" } } })
        };
        hear(&heard, "webhook-a", &echoed("webhook-b"));
        assert!(wait.try_recv().is_err());
        hear(&heard, "webhook-a", &echoed("webhook-a"));
        assert!(wait.try_recv().unwrap().is_ok());
    }

    #[test]
    fn a_rejected_turn_was_not_shown() {
        let heard = Arc::default();
        let waiting = Waiting::new(&heard, "t1");
        let action = json!({ "type": "chat/turnStarted", "turnId": "t1" });
        let params = json!({ "action": action, "rejectionReason": "it is not stored" });
        hear(&heard, "webhook", &json!({ "method": "action", "params": params }));
        assert!(!waiting.was_shown());
        tell(&heard, action);
        assert!(waiting.was_shown());
    }
}
