//! Errors for callers, with the codes of JSON-RPC and of the protocol.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Error codes with the names of the protocol.
pub mod code {
    pub use ahp_types::errors::ahp_error_codes::{
        ALREADY_EXISTS, AUTH_REQUIRED, CONFLICT, NOT_FOUND, PERMISSION_DENIED, PROVIDER_NOT_FOUND,
        SESSION_ALREADY_EXISTS, SESSION_NOT_FOUND, TURN_IN_PROGRESS, UNSUPPORTED_PROTOCOL_VERSION,
    };
    pub use ahp_types::errors::json_rpc_error_codes::{
        INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR,
    };
}

/// The error of a failed command. If a plugin command or provider throws one, the caller receives it unchanged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct RpcError {
    /// One of [`code`], or one of a plugin.
    pub code: i32,
    /// What is wrong and what to do, for users.
    pub message: String,
    /// Data for programs, if the code has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident = $code:ident;)+) => {
        impl RpcError {
            $($(#[$doc])* pub fn $name(message: impl Into<String>) -> Self { Self::new(code::$code, message) })+
        }
    };
}

constructors! {
    /// The frame is not JSON.
    parse_error = PARSE_ERROR;
    /// The frame is not a JSON-RPC message, or came before `initialize`.
    invalid_request = INVALID_REQUEST;
    /// The host does not serve the method, or the provider does not have it.
    method_not_found = METHOD_NOT_FOUND;
    /// The parameters are invalid.
    invalid_params = INVALID_PARAMS;
    /// An unexpected failure.
    internal = INTERNAL_ERROR;
    /// No such session, chat or automation.
    session_not_found = SESSION_NOT_FOUND;
    /// No backend has that name.
    provider_not_found = PROVIDER_NOT_FOUND;
    /// A session, chat or terminal already has that URI.
    session_exists = SESSION_ALREADY_EXISTS;
    /// Rejected during a turn.
    turn_in_progress = TURN_IN_PROGRESS;
    /// The command requires a signed-in user.
    auth_required = AUTH_REQUIRED;
    /// No such file, record or terminal.
    not_found = NOT_FOUND;
    /// The caller does not have the grant, or a policy denies it.
    permission_denied = PERMISSION_DENIED;
    /// `createOnly`, and the resource exists.
    already_exists = ALREADY_EXISTS;
    /// `ifMatch` does not match.
    conflict = CONFLICT;
}

impl RpcError {
    /// An error with any code.
    pub fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// Returns the error for a command that the protocol does not have or the host does not serve.
    pub fn no_command(method: &str) -> Self {
        Self::method_not_found(format!("{method} is not a command this host serves"))
    }

    /// Returns the error for a cursor that no page returned.
    pub fn unrecognised_cursor(cursor: &str) -> Self {
        Self::invalid_params(format!("Unrecognised cursor {cursor}"))
    }

    /// Adds data for programs.
    #[must_use]
    pub fn with_data(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }
}

/// Returns the position of a syntax error in JSON, without the text there, which may be a secret.
pub fn no_json(error: &serde_json::Error) -> String {
    format!("line {}, column {}: not JSON", error.line(), error.column())
}
