//! Chats as commands: opened beside a session's first one, and closed.

use std::sync::Arc;

use ostler_protocol::RpcError;
use ostler_protocol::uri::{self, Channel};
use ostler_protocol::wire::commands as c;
use ostler_protocol::wire::state::MessageKind;
use tokio::sync::oneshot;

use crate::connection::{Connection, Responder};
use crate::sessions::{NewChat, Place, ToSession, not_found};

impl Connection {
    pub(super) fn handle_create_chat(self: &Arc<Self>, params: c::CreateChatParams, responder: Responder) {
        let host = self.host().clone();
        let Some(entry) = host.sessions.by_uri(&params.channel) else {
            return responder.fail(RpcError::session_not_found(not_found(&params.channel)));
        };
        if let Err(refused) = self.is_chat(&params.chat) {
            return responder.fail(refused);
        }
        if params.initial_message.as_ref().is_some_and(|message| message.origin.kind != MessageKind::User) {
            let why = "initialMessage: a client may only send messages of a person";
            return responder.fail(RpcError::invalid_params(why));
        }
        let new = NewChat {
            uri: params.chat,
            source: params.source,
            working_directories: params.working_directories,
            message: params.initial_message,
            sender: self.owner(),
            credentials: self.credentials(),
            ..NewChat::default()
        };
        let wait = match host.open_chat(&entry, new) {
            Ok(wait) => wait,
            Err(refused) => return responder.fail(refused),
        };
        tokio::spawn(async move {
            let ended = || Err(RpcError::session_not_found(not_found(&params.channel)));
            match wait.await.unwrap_or_else(|_| ended()) {
                Ok(()) => responder.done(),
                Err(refused) => responder.fail(refused),
            }
        });
    }

    /// Whether a client may choose a URI for a chat: anything with a scheme that is nobody's, and an id.
    fn is_chat(&self, chat: &str) -> Result<(), RpcError> {
        let sessions = &self.host().sessions;
        if sessions.locate(&sessions.channel(chat)).is_some() {
            return Err(RpcError::session_exists(format!("{chat} already exists")));
        }
        match Channel::parse(chat) {
            Channel::Chat(_) => Ok(()),
            Channel::Session(_) if uri::session_id(chat).is_some() => Ok(()),
            _ => Err(RpcError::invalid_params(format!("{chat} is not a chat URI"))),
        }
    }

    pub(super) fn handle_dispose_chat(&self, spelled: String, responder: Responder) {
        let host = self.host();
        let (entry, place) = match host.sessions.locate(&host.sessions.channel(&spelled)) {
            None | Some((_, Place::Session)) => {
                return responder.fail(RpcError::session_not_found(format!("No chat at {spelled}")));
            }
            Some(located) => located,
        };
        let (answer, wait) = oneshot::channel();
        host.tell(&entry, ToSession::CloseChat { spelled: spelled.clone(), place, answer });
        tokio::spawn(async move {
            let gone = || Err(RpcError::session_not_found(format!("No chat at {spelled}")));
            match wait.await.unwrap_or_else(|_| gone()) {
                Ok(()) => responder.done(),
                Err(refused) => responder.fail(refused),
            }
        });
    }
}
