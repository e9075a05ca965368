//! Commands for chats: opening and closing additional chats of a session.

use std::sync::Arc;

use ostler_engine_core::refusals::{already_exists, message_too_long, no_chat, not_served, nothing_at};
use ostler_engine_core::responder::Responder;
use ostler_engine_core::tasks;
use ostler_engine_sessions::{Destination, NewChat, Place, ToSession};
use ostler_protocol::grants::Grant;
use ostler_protocol::uri::{self, Channel};
use ostler_protocol::wire::commands as c;
use ostler_protocol::wire::state::MessageKind;
use ostler_protocol::{RpcError, Value, Version};
use tokio::sync::oneshot;

use crate::front::connection::Connection;

impl Connection {
    pub(super) fn handle_create_chat(self: &Arc<Self>, params: c::CreateChatParams, responder: Responder) {
        let front = self.front().clone();
        let Some(entry) = front.sessions.by_uri(&params.channel) else {
            return responder.fail(nothing_at(&params.channel));
        };
        if let Err(refused) = self.is_chat(&params.chat) {
            return responder.fail(refused);
        }
        if let Err(refused) = self.check_tokens(front.core.agent(&entry.provider).as_deref()) {
            return responder.fail(refused);
        }
        if params.initial_message.as_ref().is_some_and(|message| message.origin.kind != MessageKind::User) {
            let why = "initialMessage: a client may only send messages of a person";
            return responder.fail(RpcError::invalid_params(why));
        }
        if let Some(why) = params.initial_message.as_ref().and_then(|message| message_too_long(&message.text))
        {
            return responder.fail(RpcError::invalid_params(format!("initialMessage: {why}")));
        }
        let mut message = params.initial_message;
        if let Some(message) = &mut message {
            front.sessions.note_client(message, self.client_id().as_deref());
        }
        let new = NewChat {
            uri: params.chat,
            source: params.source,
            working_directories: params.working_directories,
            message,
            sender: self.owner(),
            way: Some(self.way()),
            credentials: self.credentials(),
            lender: self.lender(),
            ..NewChat::default()
        };
        let wait = match front.sessions.open_chat(&entry, new) {
            Ok(wait) => wait,
            Err(refused) => return responder.fail(refused),
        };
        tasks::spawn(async move {
            let ended = || Err(nothing_at(&params.channel));
            match wait.await.unwrap_or_else(|_| ended()) {
                Ok(()) => responder.done(),
                Err(refused) => responder.fail(refused),
            }
        });
    }

    /// Returns whether a client can choose a URI for a chat: any with an unreserved scheme and an id.
    fn is_chat(&self, chat: &str) -> Result<(), RpcError> {
        let sessions = &self.front().sessions;
        if sessions.locate(&sessions.channel(chat)).is_some() {
            return Err(RpcError::session_exists(already_exists(chat)));
        }
        match Channel::parse(chat) {
            Channel::Chat(_) => Ok(()),
            Channel::Session(_) if uri::session_id(chat).is_some() => Ok(()),
            _ => Err(RpcError::invalid_params(format!("{chat} is not a chat URI"))),
        }
    }

    pub(super) fn handle_move_chat(self: &Arc<Self>, params: c::MoveChatParams, responder: Responder) {
        if self.version() < Version::V1 {
            return responder.fail(not_served("moveChat"));
        }
        let (front, spelled) = (self.front().clone(), params.channel);
        let (entry, place) = match front.sessions.locate(&front.sessions.channel(&spelled)) {
            None | Some((_, Place::Session)) => {
                return responder.fail(no_chat(&spelled));
            }
            Some(located) => located,
        };
        let to = match params.destination {
            c::ChatMoveDestination::Session(to) => match front.sessions.by_uri(&to.session) {
                Some(taker) => Destination::Session(taker, to.after),
                None => return responder.fail(nothing_at(&to.session)),
            },
            c::ChatMoveDestination::NewSession(_) => {
                // It creates one.
                if let Err(refused) =
                    front.access.gate.require(&self.principal(), &Grant::of("session", "create"))
                {
                    return responder.fail(refused);
                }
                Destination::New
            }
            c::ChatMoveDestination::Unknown(to) => {
                let kind = to.get("kind").and_then(Value::as_str).unwrap_or("nothing");
                let why = format!("destination {kind} is unknown or lacks a field");
                return responder.fail(RpcError::invalid_params(why));
            }
        };
        tasks::spawn(async move {
            let moved = front.sessions.move_chat((entry, place, spelled), to).await;
            responder.settle(moved.map(|session| c::MoveChatResult { session }));
        });
    }

    pub(super) fn handle_dispose_chat(&self, spelled: String, responder: Responder) {
        let front = self.front();
        let (entry, place) = match front.sessions.locate(&front.sessions.channel(&spelled)) {
            None | Some((_, Place::Session)) => {
                return responder.fail(no_chat(&spelled));
            }
            Some(located) => located,
        };
        let (answer, wait) = oneshot::channel();
        front.sessions.tell(&entry, ToSession::CloseChat { spelled: spelled.clone(), place, answer });
        tasks::spawn(async move {
            let gone = || Err(no_chat(&spelled));
            match wait.await.unwrap_or_else(|_| gone()) {
                Ok(()) => responder.done(),
                Err(refused) => responder.fail(refused),
            }
        });
    }
}
