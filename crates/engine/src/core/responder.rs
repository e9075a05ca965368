//! The answer to one request, and where a connection's frames go.

use std::sync::Arc;

use ostler_contract::Charge;
use ostler_protocol::message::encode;
use ostler_protocol::{Id, RpcError};
use serde::Serialize;
use tracing::Span;

use crate::core::ids::ConnectionId;
use crate::core::log::Log;
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

    /// Answers a result whose memory was charged before it was made; the charge is corrected to the frame's size.
    pub(crate) fn ok_charged<T: Serialize>(mut self, result: &T, mut charge: Charge) {
        match encode::sized_result(&self.id, result) {
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
