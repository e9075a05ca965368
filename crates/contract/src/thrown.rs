//! The error of a call across the plugin boundary.

use std::fmt;
use std::time::Duration;

use ostler_protocol::RpcError;
use ostler_protocol::error::code;
use serde_json::Value;

/// The name of a timeout error, as in web APIs.
const TIMED_OUT: &str = "TimeoutError";

/// A failure that crossed the boundary: a JavaScript exception, a rejected promise, a native error.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Thrown {
    /// `Error`, `TypeError`, `RpcError`, …
    pub name: String,
    /// The message.
    pub message: String,
    /// The stack, for the log only.
    pub stack: Option<String>,
    /// Code and data, if an `RpcError` was thrown.
    pub rpc: Option<RpcCode>,
}

/// The code and data that make an error an answer to a client's request.
#[derive(Debug, Clone, PartialEq)]
pub struct RpcCode {
    /// The JSON-RPC code.
    pub code: i32,
    /// Data for programs.
    pub data: Option<Value>,
}

impl Thrown {
    /// Creates an `Error` with a message.
    pub fn new(message: impl fmt::Display) -> Self {
        Self { name: "Error".to_owned(), message: message.to_string(), stack: None, rpc: None }
    }

    /// Creates the error for a plugin that did not answer within a limit.
    pub fn timed_out(limit: Duration) -> Self {
        let message = format_args!("it did not answer within {} seconds", limit.as_secs());
        Self { name: TIMED_OUT.to_owned(), ..Self::new(message) }
    }

    /// Returns whether it is a timeout.
    pub fn is_timeout(&self) -> bool {
        self.name == TIMED_OUT
    }

    /// Returns the error for a client: the thrown `RpcError`, or an internal error with the message.
    pub fn into_rpc(self) -> RpcError {
        match self.rpc {
            Some(rpc) => RpcError { code: rpc.code, message: self.message, data: rpc.data },
            None => RpcError::new(code::INTERNAL_ERROR, self.message),
        }
    }

    /// Returns the message with the stack on the lines below, for the log.
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
