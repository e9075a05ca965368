//! The answer to one request, and the outbox of its connection.

use std::sync::Arc;

use ostler_contract::Charge;
use ostler_protocol::message::encode;
use ostler_protocol::{Id, RpcError};
use serde::Serialize;
use tracing::Span;

use crate::ids::ConnectionId;
use crate::log::Log;
use crate::long_work::long_work;
use crate::outbox::{Frame, Item, Outbox};
use crate::refusals::no_memory;

/// How often a request checks whether its client has left.
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(250);

/// The number of a connection and its outbox.
#[derive(Debug, Clone)]
pub struct ConnectionRef {
    /// Its number.
    pub id: ConnectionId,
    pub outbox: Arc<Outbox>,
}

/// Sends the single answer to a request. If it is dropped without one, it sends an error.
#[derive(Debug)]
pub struct Responder {
    id: Id,
    outbox: Arc<Outbox>,
    log: Log,
    answered: bool,
    /// The span of the request, which ends with it.
    span: Span,
    _request: Option<Charge>,
}

impl Responder {
    pub fn new(id: Id, outbox: Arc<Outbox>, log: Log, span: Span, request: Option<Charge>) -> (Self, usize) {
        let owed = outbox.owe();
        (Self { id, outbox, log, answered: false, span, _request: request }, owed)
    }

    /// Answers with a result.
    pub fn ok<T: Serialize>(mut self, result: &T) {
        self.answered = true;
        match encode::result(&self.id, result) {
            Ok(frame) => self.outbox.answer(frame, || self.no_memory()),
            Err(error) => {
                self.outbox.send(encode::error(Some(&self.id), &RpcError::internal(error.to_string())))
            }
        }
    }

    /// Answers with a result that is already JSON text.
    pub fn raw(mut self, result: &str) {
        self.answered = true;
        self.outbox.answer(encode::raw_result(&self.id, result), || self.no_memory());
    }

    /// Begins the frame of a result that is written directly into it, with capacity for so many bytes. A closing brace
    /// ends the frame.
    pub fn begin(&self, room: usize) -> String {
        encode::begin_result(&self.id, room)
    }

    /// Answers with a frame whose memory was charged before; corrects the charge to its size.
    pub fn frame(mut self, mut frame: String, mut charge: Charge) {
        self.answered = true;
        frame.shrink_to_fit();
        charge.set(frame.len());
        self.outbox.push(Item::Frame(Frame::charged(frame.into(), charge)));
    }

    /// Answers with a result whose memory was charged before; corrects the charge to the size of the frame.
    pub fn ok_charged<T: Serialize + Sync>(mut self, result: &T, mut charge: Charge) {
        match long_work(charge.bytes(), || encode::sized_result(&self.id, result)) {
            Ok(frame) => {
                self.answered = true;
                charge.set(frame.len());
                self.outbox.push(Item::Frame(Frame::charged(frame.into(), charge)));
            }
            Err(error) => self.fail(RpcError::internal(error.to_string())),
        }
    }

    fn no_memory(&self) -> String {
        encode::error(Some(&self.id), &no_memory())
    }

    /// The id of the request.
    pub fn id(&self) -> &Id {
        &self.id
    }

    /// Answers with the frame of another host.
    pub fn relayed(mut self, frame: String) {
        self.answered = true;
        self.outbox.answer(frame, || self.no_memory());
    }

    /// Waits until the connection of the request is closed.
    pub async fn left(&self) {
        while !self.outbox.is_closed() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Leaves the request to another host, or without an answer because its client has left.
    pub fn leave(mut self) {
        self.answered = true;
    }

    /// Answers with `null`.
    pub fn done(self) {
        self.raw("null");
    }

    /// Answers with an error, redacted like the log, because a plugin may have put a secret into it.
    pub fn fail(mut self, mut error: RpcError) {
        self.answered = true;
        self.span.record("outcome", "failed");
        error.message = self.log.without_secrets(error.message);
        self.outbox.send(encode::error(Some(&self.id), &error));
    }

    /// Answers with the JSON text of `result`, before everything that is queued after `result` begins. Without text,
    /// the request remains unanswered.
    pub fn raw_first<E>(mut self, result: impl FnOnce() -> Result<String, E>) -> Result<(), (Self, E)> {
        self.outbox.hold();
        match result() {
            Ok(result) => {
                self.answered = true;
                let result = encode::raw_result(&self.id, &result);
                self.outbox.release(self.outbox.framed(result, || self.no_memory()));
                Ok(())
            }
            Err(why) => {
                self.outbox.unhold();
                Err((self, why))
            }
        }
    }

    /// Answers with `result`, before everything that is queued after `result` begins.
    pub fn ok_first<T: Serialize>(mut self, result: impl FnOnce() -> T) {
        self.outbox.hold();
        self.answered = true;
        let frame = match encode::result(&self.id, &result()) {
            Ok(frame) => self.outbox.framed(frame, || self.no_memory()),
            Err(error) => encode::error(Some(&self.id), &RpcError::internal(error.to_string())).into(),
        };
        self.outbox.release(frame);
    }

    /// Answers with the outcome.
    pub fn settle<T: Serialize>(self, outcome: Result<T, RpcError>) {
        match outcome {
            Ok(result) => self.ok(&result),
            Err(error) => self.fail(error),
        }
    }

    /// Answers with a result, before the held items.
    pub fn release(mut self, result: &str) {
        self.answered = true;
        self.outbox.release(encode::raw_result(&self.id, result));
    }

    /// Answers with a result of several parts, before the held items. The memory of large parts was charged before.
    pub fn release_parts(mut self, head: &str, parts: Vec<(String, Option<Charge>)>, tail: &str) {
        self.answered = true;
        let length = parts.iter().map(|(part, _)| part.len() + 1).sum::<usize>();
        let mut frame = self.begin(head.len() + length + tail.len() + 1);
        frame.push_str(head);
        let mut whole: Option<Charge> = None;
        for (at, (part, charge)) in parts.into_iter().enumerate() {
            if at > 0 {
                frame.push(',');
            }
            frame.push_str(&part);
            match (&mut whole, charge) {
                (Some(whole), Some(charge)) => whole.merge(charge),
                (None, charge) => whole = charge,
                (Some(_), None) => {}
            }
        }
        frame.push_str(tail);
        frame.push('}');
        match whole {
            Some(mut charge) => {
                charge.set(frame.len());
                self.outbox.release(Frame::charged(frame.into(), charge));
            }
            None => self.outbox.release(frame),
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if !self.answered {
            self.span.record("outcome", "failed");
            let error = RpcError::internal("the host ended before it had an answer");
            self.outbox.send(encode::error(Some(&self.id), &error));
        }
        self.outbox.paid();
    }
}
