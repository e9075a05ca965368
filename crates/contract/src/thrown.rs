//! What a call across the plugin boundary fails with.

use std::fmt;
use std::time::Duration;

use ostler_protocol::RpcError;
use ostler_protocol::error::code;
use serde_json::Value;

/// The name of the error of a call that took too long, as web APIs have it.
const TIMED_OUT: &str = "TimeoutError";

/// A failure that crossed the boundary: a JavaScript exception, a rejected promise, a native error.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Thrown {
    /// `Error`, `TypeError`, `RpcError`, …
    pub name: String,
    /// The sentence.
    pub message: String,
    /// Where it was thrown, for the log only.
    pub stack: Option<String>,
    /// Code and data, where an `RpcError` was thrown.
    pub rpc: Option<RpcCode>,
}

/// What makes a thrown error an answer to a client's request.
#[derive(Debug, Clone, PartialEq)]
pub struct RpcCode {
    /// The JSON-RPC code.
    pub code: i32,
    /// Facts for a program.
    pub data: Option<Value>,
}

impl Thrown {
    /// An `Error` with this sentence.
    pub fn new(message: impl fmt::Display) -> Self {
        Self { name: "Error".to_owned(), message: message.to_string(), stack: None, rpc: None }
    }

    /// A plugin that did not answer within a limit.
    pub fn timed_out(limit: Duration) -> Self {
        let message = format_args!("it did not answer within {} seconds", limit.as_secs());
        Self { name: TIMED_OUT.to_owned(), ..Self::new(message) }
    }

    /// Whether a plugin did not answer in time.
    pub fn is_timeout(&self) -> bool {
        self.name == TIMED_OUT
    }

    /// What a client is told: the `RpcError` thrown, or an internal error with the sentence.
    pub fn into_rpc(self) -> RpcError {
        match self.rpc {
            Some(rpc) => RpcError { code: rpc.code, message: self.message, data: rpc.data },
            None => RpcError::new(code::INTERNAL_ERROR, self.message),
        }
    }

    /// The sentence with the place it came from on the lines below, for the log.
    pub fn for_log(&self) -> String {
        match &self.stack {
            Some(stack) => format!("{}\n{}", self.message, stack.trim_end()),
            None => self.message.clone(),
        }
    }
}

impl From<RpcError> for Thrown {
    fn from(error: RpcError) -> Self {
        Self {
            name: "RpcError".to_owned(),
            message: error.message,
            stack: None,
            rpc: Some(RpcCode { code: error.code, data: error.data }),
        }
    }
}

impl From<String> for Thrown {
    fn from(message: String) -> Self {
        Self::new(message)
    }
}

impl From<&str> for Thrown {
    fn from(message: &str) -> Self {
        Self::new(message)
    }
}
