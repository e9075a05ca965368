//! How a cancellation reaches a backend while its session waits for a store: the running turns are listed beside the
//! mailbox, and whoever sends the cancellation passes it on. The session ends the turn when it handles the action.

use ostler_protocol::Value;
use ostler_protocol::actions::Class;
use parking_lot::Mutex;

use super::actor::Actor;
use super::backend::Tell;
use super::mailbox::Dispatch;
use super::{Entry, Place};
use crate::core::lean_channel::WeakSender;

/// The running turns of a session.
#[derive(Debug, Default)]
pub(super) struct Stops(Mutex<Vec<Stop>>);

#[derive(Debug)]
struct Stop {
    /// The chat's URI.
    chat: String,
    turn: String,
    backend: WeakSender<Box<Tell>>,
    /// Whether the backend was told to stop it.
    told: bool,
}

impl Stops {
    /// Lists a turn whose backend was told to run it.
    pub fn add(&self, chat: &str, turn: &str, backend: WeakSender<Box<Tell>>) {
        let mut stops = self.0.lock();
        stops.retain(|stop| stop.chat != chat);
        stops.push(Stop { chat: chat.to_owned(), turn: turn.to_owned(), backend, told: false });
    }

    /// Tells the backend of a turn to stop it, once; answers whether the turn is listed.
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

    /// Forgets the turn of a chat.
    pub fn ended(&self, chat: &str) {
        let mut stops = self.0.lock();
        stops.retain(|stop| stop.chat != chat);
        super::awake_limit::release(&mut stops);
    }
}

impl Entry {
    /// Passes a cancellation on to the backend, if that is what was dispatched and the turn runs.
    pub(super) fn stop_if_cancelled(&self, dispatch: &Dispatch) {
        if dispatch.row.class != Class::Cancel {
            return;
        }
        // One that does not read is rejected later, and stops nothing.
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
    /// Has a chat's backend stop a turn; once for each turn.
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
