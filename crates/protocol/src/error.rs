//! The error a caller is told: JSON-RPC's codes and the protocol's own.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Error codes, by the names the protocol gives them.
pub mod code {
    pub use ahp_types::errors::ahp_error_codes::{
        ALREADY_EXISTS, AUTH_REQUIRED, CONFLICT, NOT_FOUND, PERMISSION_DENIED, PROVIDER_NOT_FOUND,
        SESSION_ALREADY_EXISTS, SESSION_NOT_FOUND, TURN_IN_PROGRESS, UNSUPPORTED_PROTOCOL_VERSION,
    };
    pub use ahp_types::errors::json_rpc_error_codes::{
        INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR,
    };
}

/// What a command is answered with when it fails. A plugin command or provider that throws one has it passed
/// to the caller as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct RpcError {
    /// One of [`code`], or a plugin's own.
    pub code: i32,
    /// What is wrong and what to do, for a person.
    pub message: String,
    /// Facts a program acts on, where the code has some.
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
    /// Nothing here serves that method, or the provider lacks it.
    method_not_found = METHOD_NOT_FOUND;
    /// The parameters are not what the method takes.
    invalid_params = INVALID_PARAMS;
    /// Anything unforeseen.
    internal = INTERNAL_ERROR;
    /// No such session, chat or automation.
    session_not_found = SESSION_NOT_FOUND;
    /// No backend of that name is loaded.
    provider_not_found = PROVIDER_NOT_FOUND;
    /// A session, chat or terminal holds that URI already.
    session_exists = SESSION_ALREADY_EXISTS;
    /// Refused while a turn runs.
    turn_in_progress = TURN_IN_PROGRESS;
    /// Nobody is signed in and the command needs somebody.
    auth_required = AUTH_REQUIRED;
    /// No such file, record or terminal.
    not_found = NOT_FOUND;
    /// The caller lacks the grant, or a policy refuses.
    permission_denied = PERMISSION_DENIED;
    /// `createOnly` met something that exists.
    already_exists = ALREADY_EXISTS;
    /// `ifMatch` no longer matches.
    conflict = CONFLICT;
}

impl RpcError {
    /// An error with any code.
    pub fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// No command of that name: nothing of the protocol's, or nothing here provides it.
    pub fn no_command(method: &str) -> Self {
        Self::method_not_found(format!("{method} is not a command this host serves"))
    }

    /// A page is asked for behind something that no answer named.
    pub fn unrecognised_cursor(cursor: &str) -> Self {
        Self::invalid_params(format!("Unrecognised cursor {cursor}"))
    }

    /// The same error with facts for a program.
    #[must_use]
    pub fn with_data(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }
}

/// Where a text breaks that is no JSON, and not what stands there: that may be a secret.
pub fn no_json(error: &serde_json::Error) -> String {
    format!("line {}, column {}: this is no JSON", error.line(), error.column())
}
