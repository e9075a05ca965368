//! Refusals that more than one place gives.

use ostler_protocol::nearest::did_you_mean;
use ostler_protocol::uri::Channel;
use ostler_protocol::{RpcError, Value};

use crate::core::shared::Core;

/// Nothing new begins any more.
pub(crate) const STOPPING: &str = "the host is stopping";
/// Whoever waited for a session's answer gets none.
pub(crate) const SESSION_ENDED: &str = "the session has ended";
/// The session has no chat of that name.
pub(crate) const NO_SUCH_CHAT: &str = "there is no such chat";
/// A worker's chat is its backend's.
pub(crate) const READ_ONLY: &str = "this chat is read-only";
/// A steering message with no turn to go into.
pub(crate) const NO_TURN_TO_STEER: &str = "no turn is running that could take this message";
/// A change of folders under a running turn.
pub(crate) const FOLDERS_IN_USE: &str = "TurnInProgress: folders cannot be changed while a turn runs";
/// A chat that stays where it is, as its new place could not be written down.
pub(crate) const NOT_MOVED: &str = "the chat could not be stored, so it was not moved";
/// An action without a name.
pub(crate) const NO_ACTION_TYPE: &str = "an action needs a type";

/// The memory for answers is in use.
pub(crate) fn no_memory() -> RpcError {
    RpcError::internal(
        "the memory for answers is in use (limits.connectionMemoryMb, limits.memoryMb); read the answers that wait, \
         then ask again",
    )
}

/// The longest text of a client's message, in bytes. A session's messages are in memory while it is awake.
const LONGEST_MESSAGE: usize = 4 * 1024 * 1024;

/// Why the text of a message is refused, where it is too long.
pub(crate) fn message_too_long(text: &str) -> Option<String> {
    let length = text.len();
    (length > LONGEST_MESSAGE).then(|| {
        format!("the text of a message may take {LONGEST_MESSAGE} bytes, not {length}; attach a long text as a file")
    })
}

/// A connection that asks and does not wait.
pub(crate) fn too_many_requests() -> RpcError {
    RpcError::internal(
        "too many requests of this connection wait for their answers; wait for some, then ask again",
    )
}

/// No such session.
pub(crate) fn no_session(uri: &str) -> RpcError {
    RpcError::session_not_found(format!("No agent for session {uri}"))
}

/// No such chat, or what is named is none.
pub(crate) fn no_chat(spelled: &str) -> RpcError {
    RpcError::session_not_found(format!("No chat at {spelled}"))
}

/// A session or chat nobody knows.
pub(crate) fn nothing_at(spelled: &str) -> RpcError {
    match Channel::parse(spelled) {
        Channel::Session(_) => no_session(spelled),
        _ => no_chat(spelled),
    }
}

/// No such run of an automation.
pub(crate) fn no_run(spelled: &str) -> RpcError {
    RpcError::not_found(format!("No run at {spelled}"))
}

/// A chat or terminal has that URI.
pub(crate) fn already_exists(uri: &str) -> String {
    format!("{uri} already exists")
}

/// A backend that cannot work in more than one folder is given another.
pub(crate) fn one_folder(provider: &str) -> String {
    format!("{provider} works in one folder")
}

/// A chat works in folders of its session alone.
pub(crate) fn no_directory_of(folder: &str, session: &str) -> String {
    format!("{folder} is not a working directory of {session}")
}

/// A chat of another session, or none.
pub(crate) fn no_chat_in(spelled: &str, session: &str) -> RpcError {
    RpcError::invalid_params(format!("{spelled} is not a chat in {session}"))
}

/// No such question, or it is answered.
pub(crate) fn no_question(request: &str) -> String {
    format!("nothing called {request} waits for an answer")
}

/// An action that does not read.
pub(crate) fn lacks_field(what: &str, action: &Value) -> String {
    ostler_protocol::unread::unread(what, action)
}

/// An action of another kind of channel.
pub(crate) fn does_not_belong(action: &str, channel: &str) -> String {
    format!("{action} does not belong on {channel}")
}

/// A command of somebody who has not introduced themselves.
pub(crate) fn before_initialize(method: &str) -> RpcError {
    RpcError::invalid_request(format!("{method} came before initialize"))
}

/// A command this host has no provider for, or none of the protocol that was agreed on.
pub(crate) fn not_served(command: &str) -> RpcError {
    RpcError::method_not_found(format!("This host does not serve {command} yet"))
}

/// A provider that is not here, or that the asker may not use.
pub(crate) fn no_provider(core: &Core, provider: &str) -> RpcError {
    let hint = did_you_mean(provider, core.listed_agents().map(|agent| &*agent.provider));
    RpcError::provider_not_found(format!("No provider called {provider}{hint}"))
}

/// What is said of a backend that is not here.
pub(crate) const NOT_LOADED: &str = "is not loaded on this host";

/// The backend of a kept session is not here any more.
pub(crate) fn not_loaded(provider: &str) -> String {
    format!("{provider} {NOT_LOADED}")
}

/// A machine was named for a backend that says nothing of what it needs in one.
pub(crate) fn no_machine_for(provider: &str) -> String {
    format!("{provider} cannot run in a machine")
}

/// The host has no automation store.
pub(crate) fn no_automations() -> RpcError {
    RpcError::method_not_found("this host keeps no automations")
}

/// Nobody registered the scheme.
pub(crate) fn nothing_serves(scheme: &str) -> RpcError {
    RpcError::method_not_found(format!("nothing here serves {scheme}:"))
}

/// A URI of no kind of channel.
pub(crate) fn no_channel(uri: &str) -> RpcError {
    RpcError::not_found(format!("there is no channel {uri}"))
}

/// Why a key is refused that no setting has.
pub fn no_setting(key: &str) -> String {
    format!("{key} is not a setting of this host")
}
