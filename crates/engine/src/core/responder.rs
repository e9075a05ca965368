//! The answer to one request, and where a connection's frames go.

use std::sync::Arc;

use ostler_contract::Charge;
use ostler_protocol::message::encode;
use ostler_protocol::{Id, RpcError};
use serde::Serialize;
use tracing::Span;

use crate::core::ids::ConnectionId;
use crate::core::log::Log;
use crate::core::long_work::long_work;
use crate::core::outbox::{Frame, Item, Outbox};
use crate::core::refusals::no_memory;

/// A connection's number and where its frames go.
#[derive(Debug, Clone)]
pub struct ConnectionRef {
    /// Which.
    pub id: ConnectionId,
    /// Where to.
    pub outbox: Arc<Outbox>,
}

/// The one answer a request gets. Dropped unanswered, it says so.
#[derive(Debug)]
pub struct Responder {
    id: Id,
    outbox: Arc<Outbox>,
    log: Log,
    answered: bool,
    /// The span of the request, which ends with it.
    span: Span,
    /// What the request takes in memory.
    _request: Option<Charge>,
}

impl Responder {
    pub(crate) fn new(
        id: Id,
        outbox: Arc<Outbox>,
        log: Log,
        span: Span,
        request: Option<Charge>,
    ) -> (Self, usize) {
        let owed = outbox.owe();
        (Self { id, outbox, log, answered: false, span, _request: request }, owed)
    }

    /// Answers a result.
    pub fn ok<T: Serialize>(mut self, result: &T) {
        self.answered = true;
        match encode::result(&self.id, result) {
            Ok(frame) => self.outbox.answer(frame, || self.no_memory()),
            Err(error) => {
                self.outbox.send(encode::error(Some(&self.id), &RpcError::internal(error.to_string())))
            }
        }
    }

    /// Answers a result that is JSON text already.
    pub fn raw(mut self, result: &str) {
        self.answered = true;
        self.outbox.answer(encode::raw_result(&self.id, result), || self.no_memory());
    }

    /// Begins the frame of a result that is written straight into it, with room for so many bytes. The frame ends with a
    /// closing brace.
    pub(crate) fn begin(&self, room: usize) -> String {
        encode::begin_result(&self.id, room)
    }

    /// Answers with a frame whose memory was charged before it was made; the charge is corrected to its size.
    pub(crate) fn frame(mut self, mut frame: String, mut charge: Charge) {
        self.answered = true;
        frame.shrink_to_fit();
        charge.set(frame.len());
        self.outbox.push(Item::Frame(Frame::charged(frame.into(), charge)));
    }

    /// Answers a result whose memory was charged before it was made; the charge is corrected to the frame's size.
    pub(crate) fn ok_charged<T: Serialize>(mut self, result: &T, mut charge: Charge) {
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

    /// Answers `null`.
    pub fn done(self) {
        self.raw("null");
    }

    /// Answers an error. What a log may not hold, a sentence may not hold either: a plugin may have put it there.
    pub fn fail(mut self, mut error: RpcError) {
        self.answered = true;
        self.span.record("outcome", "failed");
        error.message = self.log.without_secrets(error.message);
        self.outbox.send(encode::error(Some(&self.id), &error));
    }

    /// Answers the JSON text that `result` gives before everything that is queued from its begin on. Where it gives none,
    /// the answer is still to be made.
    pub(crate) fn raw_first<E>(
        mut self,
        result: impl FnOnce() -> Result<String, E>,
    ) -> Result<(), (Self, E)> {
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

    /// Answers what came of it.
    pub fn settle<T: Serialize>(self, outcome: Result<T, RpcError>) {
        match outcome {
            Ok(result) => self.ok(&result),
            Err(error) => self.fail(error),
        }
    }

    /// Answers a result before everything that was held back.
    pub(crate) fn release(mut self, result: &str) {
        self.answered = true;
        self.outbox.release(encode::raw_result(&self.id, result));
    }

    /// Answers a result of several parts before everything that was held back. The memory of the parts was charged where
    /// they are large.
    pub(crate) fn release_parts(mut self, head: &str, parts: Vec<(String, Option<Charge>)>, tail: &str) {
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
