//! Passing on a cancellation to a backend while its session waits for a store. The running turns are listed beside the
//! mailbox, and the sender of the cancellation notifies the backend directly. The session ends the turn when it handles
//! the action.

use ostler_engine_core::lean_channel::WeakSender;
use ostler_protocol::Value;
use ostler_protocol::actions::Class;
use parking_lot::Mutex;

use super::actor::Actor;
use super::backend::Tell;
use super::mailbox::Dispatch;
use super::{Place, SessionEntry};

/// The running turns of a session.
#[derive(Debug, Default)]
pub(super) struct Stops(Mutex<Vec<Stop>>);

#[derive(Debug)]
struct Stop {
    /// The chat's URI.
    chat: String,
    turn: String,
    backend: WeakSender<Box<Tell>>,
    /// Whether the backend was asked to cancel the turn.
    told: bool,
}

impl Stops {
    /// Adds a turn that was sent to its backend.
    pub fn add(&self, chat: &str, turn: &str, backend: WeakSender<Box<Tell>>) {
        let mut stops = self.0.lock();
        stops.retain(|stop| stop.chat != chat);
        stops.push(Stop { chat: chat.to_owned(), turn: turn.to_owned(), backend, told: false });
    }

    /// Asks the backend of a turn to cancel it, once. Returns whether the turn is listed.
    pub fn stop(&self, chat: &str, turn: &str) -> bool {
        let mut stops = self.0.lock();
        let Some(stop) = stops.iter_mut().find(|stop| stop.chat == chat && stop.turn == turn) else {
            return false;
        };
        if !std::mem::replace(&mut stop.told, true)
            && let Some(backend) = stop.backend.upgrade()
        {
            let _ = backend.send(Box::new(Tell::Cancel { turn: turn.to_owned() }));
        }
        true
    }

    /// Removes the turn of a chat.
    pub fn ended(&self, chat: &str) {
        let mut stops = self.0.lock();
        stops.retain(|stop| stop.chat != chat);
        super::awake_limit::release(&mut stops);
    }
}

impl SessionEntry {
    /// Passes a dispatched cancellation on to the backend if its turn runs.
    pub(super) fn stop_if_cancelled(&self, dispatch: &Dispatch) {
        if dispatch.row.class != Class::Cancel {
            return;
        }
        // A dispatch that is not valid is rejected later, and must not cancel anything.
        let reads = dispatch.action.get("duration").is_none_or(Value::is_number);
        let Some(turn) = dispatch.action.get("turnId").and_then(Value::as_str).filter(|_| reads) else {
            return;
        };
        match &dispatch.place {
            Place::DefaultChat => self.stops.stop(&self.default_chat(), turn),
            Place::Chat(chat) => self.stops.stop(chat, turn),
            Place::Session | Place::Annotations => false,
        };
    }
}

impl Actor {
    /// Asks a chat's backend to cancel a turn, once for each turn.
    pub(super) fn cancel_backend(&mut self, at: usize, turn: String) {
        let chat = &mut self.chats[at];
        if chat.cancelled.as_ref() == Some(&turn) {
            return;
        }
        chat.cancelled = Some(turn.clone());
        if !self.entry.stops.stop(&chat.uri, &turn) {
            self.tell_if_awake(at, Tell::Cancel { turn });
        }
    }
}
