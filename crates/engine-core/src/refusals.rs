//! Errors that several places return.

use ostler_contract::cluster::SessionElsewhere;
use ostler_contract::read::Unknown;
use ostler_protocol::nearest::did_you_mean;
use ostler_protocol::uri::Channel;
use ostler_protocol::{RpcError, Value, json, names};

use crate::shared::Core;

/// The host is stopping, and no new work begins.
pub const STOPPING: &str = "the host is stopping";
/// The host of a cluster may no longer write.
pub const LOST_LEASE: &str = "the host lost its lease of the shared database; try again";
/// A change of a session could not be stored.
pub const NOT_STORED: &str = "the session store did not store this; try again";
/// The session ended before it answered.
pub const SESSION_ENDED: &str = "the session has ended";
/// The session has no such chat.
pub const NO_SUCH_CHAT: &str = "there is no such chat";
/// A worker chat belongs to its backend.
pub const READ_ONLY: &str = "this chat is read-only";
/// A steering message without a running turn.
pub const NO_TURN_TO_STEER: &str = "no turn is running that could take this message";
/// A change of directories during a turn.
pub const FOLDERS_IN_USE: &str = "TurnInProgress: folders cannot be changed while a turn runs";
/// A chat that is not moved because its new position could not be stored.
pub const NOT_MOVED: &str = "the chat could not be stored, so it was not moved";
/// An action without a name.
pub const NO_ACTION_TYPE: &str = "an action needs a type";

/// Why an action is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The sentence for its sender.
    pub why: String,
    /// Whether the host did not refuse the action itself, so that the same action may be accepted later.
    pub is_retryable: bool,
}

impl Rejection {
    /// Rejects an action that can be sent again later.
    pub fn retryable(why: impl Into<String>) -> Self {
        Self { why: why.into(), is_retryable: true }
    }
}

impl From<String> for Rejection {
    fn from(why: String) -> Self {
        Self { why, is_retryable: false }
    }
}

impl From<&str> for Rejection {
    fn from(why: &str) -> Self {
        why.to_owned().into()
    }
}

impl From<Rejection> for RpcError {
    fn from(rejection: Rejection) -> Self {
        match rejection.is_retryable {
            true => try_again(&rejection.why),
            false => Self::internal(rejection.why),
        }
    }
}

impl From<&RpcError> for Rejection {
    fn from(error: &RpcError) -> Self {
        let is_retryable = error.data.as_ref().is_some_and(|data| data[names::RETRYABLE] == true);
        Self { why: error.message.clone(), is_retryable }
    }
}

/// A session, or the one of a channel, has no owner that can serve it just now. The request can be repeated.
pub fn moving(spelled: &str) -> RpcError {
    try_again(format!("{spelled} is being moved between hosts; try again"))
}

/// The store could not say what it has of a channel, or another host has its session by now. The request can be repeated.
pub fn unread(spelled: &str, why: &Unknown) -> RpcError {
    if SessionElsewhere::is(&why.0) {
        return moving(spelled);
    }
    try_again(format!("{spelled} could not be read from the store, try again: {why}"))
}

/// A failure of the host after which the same request may succeed.
pub fn try_again(why: impl Into<String>) -> RpcError {
    RpcError::internal(why).with_data(json!({ (names::RETRYABLE): true }))
}

/// The users cannot be read, so nobody knows whether they still are what they were.
pub const UNREAD_USERS: &str =
    "the users of this host cannot be read from the database at the moment; try again";

/// As [`UNREAD_USERS`]. The request can be repeated.
pub fn unread_users() -> RpcError {
    try_again(UNREAD_USERS)
}

/// No memory is available for answers.
pub fn no_memory() -> RpcError {
    RpcError::internal(
        "the memory for answers is in use (limits.connectionMemoryMb, limits.memoryMb); read the answers that wait, \
         then ask again",
    )
}

pub fn no_memory_to_read() -> RpcError {
    RpcError::internal("the memory of the host is in use (limits.memoryMb); try to read it again later")
}

/// The longest text of a client's message, in bytes. A session's messages are in memory while it is awake.
const LONGEST_MESSAGE: usize = 4 * 1024 * 1024;

/// Returns why the text of a message is rejected, if it is too long.
pub fn message_too_long(text: &str) -> Option<String> {
    let length = text.len();
    (length > LONGEST_MESSAGE).then(|| {
        format!("the text of the message has {length} bytes; the limit is {LONGEST_MESSAGE}; attach a long text as a file")
    })
}

/// A connection with too many requests.
pub fn too_many_requests() -> RpcError {
    RpcError::internal(
        "too many requests of this connection wait for their answers; wait for some, then ask again",
    )
}

/// The session does not exist.
pub fn no_session(uri: &str) -> RpcError {
    RpcError::session_not_found(format!("No agent for session {uri}"))
}

/// The chat does not exist, or the URI is not a chat.
pub fn no_chat(spelled: &str) -> RpcError {
    RpcError::session_not_found(format!("No chat at {spelled}"))
}

/// An unknown session or chat.
pub fn nothing_at(spelled: &str) -> RpcError {
    match Channel::parse(spelled) {
        Channel::Session(_) => no_session(spelled),
        _ => no_chat(spelled),
    }
}

/// The run does not exist.
pub fn no_run(spelled: &str) -> RpcError {
    RpcError::not_found(format!("No run at {spelled}"))
}

/// A chat or terminal already has that URI.
pub fn already_exists(uri: &str) -> String {
    format!("{uri} already exists")
}

/// A second directory for a backend that supports only one.
pub fn one_folder(provider: &str) -> String {
    format!("{provider} supports only one folder")
}

/// A directory of a chat that is not one of its session.
pub fn no_directory_of(folder: &str, session: &str) -> String {
    format!("{folder} is not a working directory of {session}")
}

/// A chat of another session, or an unknown one.
pub fn no_chat_in(spelled: &str, session: &str) -> RpcError {
    RpcError::invalid_params(format!("{spelled} is not a chat in {session}"))
}

/// The request for input does not exist, or was answered.
pub fn no_question(request: &str) -> String {
    format!("no request {request} waits for an answer")
}

/// An invalid action.
pub fn lacks_field(what: &str, action: &Value) -> String {
    ostler_protocol::unread::unread(what, action)
}

/// An action of another kind of channel.
pub fn does_not_belong(action: &str, channel: &str) -> String {
    format!("{action} does not belong on {channel}")
}

/// A command before `initialize`.
pub fn before_initialize(method: &str) -> RpcError {
    RpcError::invalid_request(format!("{method} was received before initialize"))
}

/// A command without a provider on this host, or not in the negotiated protocol version.
pub fn not_served(command: &str) -> RpcError {
    RpcError::method_not_found(format!("This host does not serve {command} yet"))
}

/// A provider that does not exist, or that the caller cannot use.
pub fn no_provider(core: &Core, provider: &str) -> RpcError {
    let hint = did_you_mean(provider, core.listed_agents().map(|agent| &*agent.provider));
    RpcError::provider_not_found(format!("No provider called {provider}{hint}"))
}

/// Returns the message about a missing backend.
pub const NOT_LOADED: &str = "is not loaded on this host";

/// The backend of a stored session no longer exists.
pub fn not_loaded(provider: &str) -> String {
    format!("{provider} {NOT_LOADED}")
}

/// A machine for a backend that does not declare its needs.
pub fn no_machine_for(provider: &str) -> String {
    format!("{provider} cannot run in a machine")
}

/// The host has no automation store.
pub fn no_automations() -> RpcError {
    RpcError::method_not_found("this host has no automation store")
}

/// No plugin registered the scheme.
pub fn nothing_serves(scheme: &str) -> RpcError {
    RpcError::method_not_found(format!("nothing here serves {scheme}:"))
}

/// A URI that is not a channel.
pub fn no_channel(uri: &str) -> RpcError {
    RpcError::not_found(format!("there is no channel {uri}"))
}

/// Returns the error for an unknown setting.
pub fn no_setting(key: &str) -> String {
    format!("{key} is not a setting of this host")
}

#[cfg(test)]
mod tests {
    use ostler_contract::Thrown;
    use ostler_contract::cluster::{ClusterHost, SessionElsewhere};

    use super::*;

    #[test]
    fn a_session_of_another_host_is_moving_and_the_request_can_be_repeated() {
        let host = ClusterHost {
            id: "b".to_owned(),
            incarnation: "b-0".to_owned(),
            url: Some("ws://10.0.0.2:9187".to_owned()),
            version: String::new(),
            is_draining: false,
            is_alive: true,
        };
        let elsewhere = SessionElsewhere { session: "one".to_owned(), host };
        let refused = unread("echo:/one", &Unknown(Thrown::from(elsewhere)));
        assert_eq!(refused.message, "echo:/one is being moved between hosts; try again");
        assert_eq!(refused.data, Some(json!({ "retryable": true })));
        let refused = unread("echo:/one", &Unknown(Thrown::new("it is away")));
        assert!(refused.message.contains("could not be read from the store"), "{}", refused.message);
    }
}
