//! Chats of a session other than its first one. A chat is opened in steps, and a failed step leaves nothing behind.

use std::collections::BTreeMap;
use std::sync::Arc;

use ostler_contract::points::{Agent, AgentSession, KeptChat, Lender, PreambleChat, Start};
use ostler_contract::registry::Owned;
use ostler_contract::{Thrown, in_time, limit};
use ostler_engine_core::refusals::{STOPPING, already_exists, no_chat_in, no_directory_of, nothing_at};
use ostler_engine_core::tasks;
use ostler_engine_users::users::policies::Use;
use ostler_protocol::origins::WayIn;
use ostler_protocol::wire::actions::{
    ChatTurnStartedAction, SessionChatAddedAction, SessionChatRemovedAction, SessionDefaultChatChangedAction,
    StateAction,
};
use ostler_protocol::wire::commands::{ChatSource, ForkChatSource, SideChatSource};
use ostler_protocol::wire::state::{ChatOrigin, Message};
use ostler_protocol::{RpcError, Value};
use tokio::sync::oneshot;

use super::Place;
use super::actor::Actor;
use super::backend::{Backend, Tell};
use super::chat::Chat;
use super::create::started;
use super::deferred::DeferredPart;
use super::mailbox::ToSession;
use super::queue::Posted;
use super::side_chats::context_of;
use crate::Sessions;

/// A request for a new chat.
#[derive(Debug, Default)]
pub struct NewChat {
    pub uri: String,
    /// The chat and turn from which the chat is created.
    pub source: Option<ChatSource>,
    /// The origin of the chat, if that is neither a user nor `source`.
    pub origin: Option<ChatOrigin>,
    /// The subset of the session's folders that the chat works in.
    pub working_directories: Option<Vec<String>>,
    /// The initial title, if there is one.
    pub title: Option<String>,
    /// The first message.
    pub message: Option<Message>,
    /// The principal that counts as the sender.
    pub sender: Option<String>,
    /// How the first message entered the host, if a client sent it.
    pub way: Option<WayIn>,
    /// The tokens of the requesting connection, by protected resource.
    pub credentials: Option<BTreeMap<String, String>>,
    /// The requesting client.
    pub lender: Option<Lender>,
}

/// A chat that is being opened. Its URI is claimed, and messages to it wait.
#[derive(Debug)]
pub(super) struct Opening {
    pub uri: String,
    pub number: u64,
    #[expect(clippy::vec_box, reason = "messages arrive boxed and are forwarded as they arrived")]
    pub waiting: Vec<Box<Posted>>,
    /// The stored chats, if the chat is being moved to another session.
    pub kept: Vec<KeptChat>,
}

/// A new chat whose backend was created or failed to start.
#[derive(Debug)]
pub struct ChatReady {
    number: u64,
    chat: Box<Chat>,
    outcome: Result<Backend, RpcError>,
    message: Option<Message>,
    sender: Option<String>,
    answer: oneshot::Sender<Result<(), RpcError>>,
}

/// The resolved source of a chat.
struct Source {
    origin: ChatOrigin,
    /// The context that a side chat starts with.
    context: Option<String>,
    /// The indexes of the chat and the turn at which a fork begins.
    fork: Option<(usize, usize)>,
}

impl Actor {
    /// Holds a message back if it is for a chat that is being opened; returns any other message.
    pub(super) fn held_back(&mut self, posted: Box<Posted>) -> Option<Box<Posted>> {
        if self.opening.is_empty() {
            return Some(posted);
        }
        let message = &posted.message;
        let to = |opening: &Opening| match (message.place(), message.chat_number()) {
            (Some(Place::Chat(uri)), _) => *uri == opening.uri,
            (_, Some(number)) => number == opening.number,
            _ => false,
        };
        match self.opening.iter().position(to) {
            Some(at) => {
                self.opening[at].waiting.push(posted);
                None
            }
            None => Some(posted),
        }
    }

    /// Starts to open a chat. Checks run here; everything else runs outside the mailbox.
    pub(super) fn open_chat(&mut self, new: NewChat, answer: oneshot::Sender<Result<(), RpcError>>) {
        let (source, agent) = match self.may_open(&new) {
            Ok(allowed) => allowed,
            Err(refused) => {
                self.sessions.release_chat(&new.uri);
                let _ = answer.send(Err(refused));
                return;
            }
        };
        let number = self.next_chat;
        self.next_chat += 1;
        let audience = self.core.fanout.audience(&new.uri);
        let title = new.title.as_deref().unwrap_or_default();
        let mut chat = Chat::new(number, new.uri.clone(), title, self.core.clock.iso(), audience);
        chat.state.origin = Some(source.origin.clone());
        chat.state.working_directories = new.working_directories;
        if let Some((at, place)) = source.fork {
            let from = &self.chats[at].state;
            chat.copy_turns(&self.chats[at], place);
            chat.state.working_directories.clone_from(&from.working_directories);
            chat.state.title.clone_from(&from.title);
        }
        if let Some(lender) = new.lender.filter(|lender| Some(lender) != self.entry.lender().as_ref()) {
            self.entry.borrow(&lender, new.credentials.clone().unwrap_or_default());
            chat.lender = Some(Box::new(lender));
        }
        let mut start = self.start_of(&chat, new.credentials);
        let fork_point = source.fork.map(|(at, place)| {
            let turn = self.chats[at].state.turns[place].id.clone();
            start.seed = Some(chat.state.turns.clone());
            start.context = chat.untold_context().map(str::to_owned);
            start.resume.clone_from(&self.chats[at].backend_id);
            let (answered, wait) = oneshot::channel();
            self.tell_backend(
                at,
                Tell::ForkPoint { turn: turn.clone(), named: self.chats[at].name_of(&turn), answered },
            );
            (turn, wait)
        });
        let about = fork_point.is_none().then(|| PreambleChat {
            session: self.entry.uri.clone(),
            chat: new.uri.clone(),
            origin: source.origin,
            chats: self.chats.iter().map(Chat::summary).collect(),
        });
        self.opening.push(Opening { uri: new.uri, number, waiting: Vec::new(), kept: Vec::new() });
        let (sessions, mailbox, provider) =
            (self.sessions.clone(), self.mailbox.clone(), self.entry.provider.clone());
        let (mut message, sender, beside) = (new.message, new.sender, source.context);
        if let Some(message) = &mut message {
            self.sign(message, sender.as_deref(), new.way);
        }
        let entry = self.entry.clone();
        tasks::spawn(async move {
            if let Some(message) = &mut message
                && let Err(refused) = first_message(&sessions, &entry, message, sender.as_deref()).await
            {
                let outcome = Err(refused);
                let ready =
                    ChatReady { number, chat: Box::new(chat), outcome, message: None, sender, answer };
                let _ = mailbox.send(ToSession::ChatReady(Box::new(ready)));
                return;
            }
            start.mcp_servers = sessions.mcp_servers_for(&entry).await;
            if let Some(about) = about {
                let said = [sessions.chat_preamble(&about).await, beside].into_iter().flatten();
                let said = said.collect::<Vec<_>>().join("\n\n");
                chat.context = (!said.is_empty()).then_some(said);
                start.context.clone_from(&chat.context);
            }
            let made = match fork_point {
                Some((turn, wait)) => match forked_at(&provider, turn, wait).await {
                    Ok(point) => {
                        start.fork_at = Some(point);
                        made(&agent, start).await
                    }
                    Err(refused) => Err(refused),
                },
                None => made(&agent, start).await,
            };
            let outcome = made.map(|session| Backend::running(session, number, mailbox.clone()));
            let ready = ChatReady { number, chat: Box::new(chat), outcome, message, sender, answer };
            let _ = mailbox.send(ToSession::ChatReady(Box::new(ready)));
        });
    }

    /// Checks whether a chat may be opened as requested. Returns its source and its agent.
    fn may_open(&self, new: &NewChat) -> Result<(Source, Owned<Agent>), RpcError> {
        let (session, provider) = (&self.entry.uri, &self.entry.provider);
        if self.core.is_stopping() {
            return Err(RpcError::internal(STOPPING));
        }
        let Some(agent) = self.agent.clone() else {
            return Err(RpcError::provider_not_found(self.without_backend()));
        };
        if agent.chats.is_none() {
            return Err(RpcError::invalid_params(format!("{provider} supports one chat per session")));
        }
        let source = self.source(&agent, new)?;
        let folders = self.state.working_directories.iter().flatten();
        if let (Some(wanted), None) = (&new.working_directories, source.fork)
            && let Some(other) = wanted.iter().find(|wanted| !folders.clone().any(|folder| folder == *wanted))
        {
            return Err(RpcError::invalid_params(no_directory_of(other, session)));
        }
        Ok((source, agent))
    }

    fn source(&self, agent: &Agent, new: &NewChat) -> Result<Source, RpcError> {
        let invalid = |why: String| Err(RpcError::invalid_params(why));
        let (session, provider) = (&self.entry.uri, &self.entry.provider);
        let abilities = agent.chats.unwrap_or_default();
        let (asked, turn) = match &new.source {
            None => {
                let origin = new.origin.clone().unwrap_or(ChatOrigin::User);
                return Ok(Source { origin, context: None, fork: None });
            }
            Some(ChatSource::Fork(_)) if !abilities.fork => {
                return invalid(format!("{provider} cannot fork a chat from a turn"));
            }
            Some(ChatSource::SideChat(_)) if !abilities.side_chat => {
                return invalid(format!("{provider} cannot start a side chat from a turn"));
            }
            Some(ChatSource::Fork(ForkChatSource { chat, turn_id })) => (chat, turn_id),
            Some(ChatSource::SideChat(SideChatSource { chat, turn_id, .. })) => (chat, turn_id),
            Some(ChatSource::Unknown(source)) => {
                let kind = source.get("kind").and_then(Value::as_str).unwrap_or("nothing");
                return invalid(match kind {
                    "fork" | "sideChat" => format!("a source of kind {kind} needs chat and turnId"),
                    _ => format!("{kind} is not a chat source this host knows"),
                });
            }
        };
        let located = self.sessions.locate(&self.sessions.channel(asked));
        let at = located
            .filter(|(entry, _)| Arc::ptr_eq(entry, &self.entry))
            .and_then(|(_, place)| self.chat_at(&place));
        let Some(at) = at else { return Err(no_chat_in(asked, session)) };
        let (chat, turn_id) = (self.chats[at].uri.clone(), turn.clone());
        let unknown = || RpcError::invalid_params(format!("{turn} is not a turn in {asked}"));
        match &new.source {
            Some(ChatSource::SideChat(SideChatSource { selection, .. })) => {
                let selection = selection.clone().filter(|selection| !selection.text.trim().is_empty());
                let context =
                    context_of(&self.chats[at].state, turn, selection.as_ref()).ok_or_else(unknown)?;
                let origin = ChatOrigin::SideChat { chat, turn_id, selection };
                Ok(Source { origin, context: Some(context), fork: None })
            }
            _ => {
                let turns = &self.chats[at].state.turns;
                if self.chats[at].is_worker() || self.chats[at].running() == Some(turn.as_str()) {
                    return Err(cannot_fork(turn));
                }
                let place = turns.iter().position(|held| held.id == *turn).ok_or_else(unknown)?;
                // Its backend says where the fork begins.
                self.check_own_tokens(at).map_err(RpcError::auth_required)?;
                let origin = ChatOrigin::Fork { chat, turn_id };
                Ok(Source { origin, context: None, fork: Some((at, place)) })
            }
        }
    }

    /// Adds a chat whose backend was created to the session: it is stored, then announced, then its first message is
    /// sent. A chat whose backend failed leaves nothing behind.
    pub(super) async fn chat_ready(&mut self, ready: ChatReady) {
        let ChatReady { number, chat, outcome, message, sender, answer } = ready;
        let uri = chat.uri.clone();
        let outcome = match outcome {
            Ok(backend) => self.take_in(*chat, backend).await,
            Err(refused) => Err(refused),
        };
        // Messages to the chat wait until it is stored.
        let waiting = match self.opening.iter().position(|opening| opening.number == number) {
            Some(at) => self.opening.swap_remove(at).waiting,
            None => Vec::new(),
        };
        match outcome {
            Ok(at) => {
                if let Some(message) = message {
                    self.say_first(at, message, sender).await;
                }
                self.settle();
                let _ = answer.send(Ok(()));
            }
            Err(refused) => {
                self.core.fanout.end(&uri, &[]);
                self.sessions.release_chat(&uri);
                let _ = answer.send(Err(refused));
            }
        }
        self.again.extend(waiting);
    }

    async fn take_in(&mut self, mut chat: Chat, backend: Backend) -> Result<usize, RpcError> {
        chat.backend = Some(backend);
        chat.state.movable = Some(true);
        let at = self.chats.len();
        self.chats.push(chat);
        if !self.keep_added(at).await {
            let mut chat = self.chats.remove(at);
            if let Some(backend) = chat.backend.take() {
                tasks::spawn(backend.close(true));
            }
            return Err(RpcError::internal("the chat could not be stored, so it was not opened"));
        }
        let summary = self.chats[at].summary();
        self.apply_session(StateAction::SessionChatAdded(SessionChatAddedAction { summary }), None);
        Ok(at)
    }

    async fn say_first(&mut self, at: usize, message: Message, sender: Option<String>) {
        let refused = self.refusal_of(&message);
        let started = ChatTurnStartedAction {
            turn_id: self.core.new_id(),
            started_at: self.core.clock.iso(),
            message,
            queued_message_id: None,
            meta: None,
        };
        self.begin_or_refuse(at, started, sender, refused).await;
    }

    /// Closes a chat and removes it. If it was the default chat, the first remaining chat becomes the default.
    pub(super) async fn close_chat(&mut self, place: &Place, spelled: &str) -> Result<(), RpcError> {
        let Some(at) = self.chat_at(place) else {
            return Err(nothing_at(spelled));
        };
        if self.chats[at].is_worker() {
            let why = format!("{spelled} is a worker's chat; it is removed with the chat that started it");
            return Err(RpcError::invalid_params(why));
        }
        if self.chats.iter().filter(|chat| !chat.is_worker()).count() == 1 {
            return Err(RpcError::invalid_params(format!(
                "{spelled} is the only chat in {}; dispose the session instead",
                self.entry.uri
            )));
        }
        self.stop_for_good(at).await;
        let number = self.chats[at].number;
        let goes = |chat: &Chat| chat.number == number || chat.lead == Some(number);
        (0..self.chats.len()).filter(|&at| goes(&self.chats[at])).collect::<Vec<_>>().into_iter().for_each(
            |at| {
                self.withdraw_questions(at);
            },
        );
        let (gone, left): (Vec<Chat>, Vec<Chat>) =
            std::mem::take(&mut self.chats).into_iter().partition(goes);
        self.chats = left;
        let default = gone.iter().any(|chat| Some(&chat.uri) == self.state.default_chat.as_ref());
        let heir = self.chats.iter().find(|chat| !chat.is_worker());
        if let (true, Some(heir)) = (default, heir) {
            let (uri, backend_id) = (heir.uri.clone(), heir.backend_id.clone());
            let changed = SessionDefaultChatChangedAction { default_chat: Some(uri) };
            self.apply_session(StateAction::SessionDefaultChatChanged(changed), None);
            // Before clients find the heir by these names.
            self.core.fanout.end_names(&self.entry.names_of_default_chat());
            self.revise(|record| record.backend_id = backend_id);
            if let Some(at) = self.chat_at(&Place::DefaultChat) {
                self.set_movable(at, false);
            }
        }
        // Both writes share a commit.
        let writes = futures::future::join(self.keep_session(), self.keep_chats());
        self.stored_session(writes).await;
        for chat in gone {
            self.forget_chat(chat).await;
        }
        Ok(())
    }

    /// Ends the running turn of a chat that is about to be closed and prevents further turns.
    async fn stop_for_good(&mut self, at: usize) {
        self.chats[at].state.queued_messages = None;
        let Some(turn) = self.chats[at].running().map(str::to_owned) else { return };
        self.cancel_backend(at, turn);
        self.cancel_running(at).await;
    }

    pub(super) async fn forget_chat(&mut self, mut chat: Chat) {
        let removed = SessionChatRemovedAction { chat: chat.uri.clone() };
        self.apply_session(StateAction::SessionChatRemoved(removed), None);
        if chat.has_reports() {
            self.deferred.add(DeferredPart::Reported);
        }
        self.flush_out();
        self.core.fanout.end(&chat.uri, &[]);
        self.sessions.release_chat(&chat.uri);
        self.stored(self.forget_turns(&chat.uri)).await;
        let (sessions, entry, id) = (self.sessions.clone(), self.entry.clone(), chat.backend_id.take());
        let backend = chat.backend.take();
        // A backend that closes slowly does not block the actor.
        tasks::spawn(async move {
            if let Some(backend) = backend {
                backend.close(true).await;
            }
            if let Some(id) = id {
                sessions.delete_copy(&entry, &chat.uri, id).await;
            }
        });
    }
}

/// Checks the first message of a new chat and stores its attachments.
async fn first_message(
    sessions: &Sessions,
    entry: &super::SessionEntry,
    message: &mut Message,
    sender: Option<&str>,
) -> Result<(), RpcError> {
    let model = message.model.as_ref().map(|model| model.id.as_str());
    let wanted = Use { agent: &entry.provider, model, computer: None };
    sessions.access.may_use(sender, &sessions.charged_to(entry), wanted).await?;
    sessions.store_attachments(&entry.id, message).await.map_err(RpcError::from)
}

fn cannot_fork(turn: &str) -> RpcError {
    RpcError::invalid_params(format!("{turn} is not a turn this host can fork from"))
}

/// Returns the backend's id of the point after a turn at which it forks.
async fn forked_at(
    provider: &str,
    turn: String,
    wait: oneshot::Receiver<Result<Option<String>, Thrown>>,
) -> Result<String, RpcError> {
    match in_time(limit::BACKEND_START, async { Ok(wait.await) }).await {
        Ok(Ok(Ok(point))) => point.ok_or_else(|| cannot_fork(&turn)),
        Ok(Ok(Err(why))) | Err(why) => {
            Err(RpcError::internal(format!("{provider} could not fork after {turn}: {}", why.message)))
        }
        Ok(Err(_)) => {
            Err(RpcError::internal(format!("{provider} is not loaded, so it cannot fork after {turn}")))
        }
    }
}

/// Starts the backend of a chat.
async fn made(agent: &Agent, start: Start) -> Result<AgentSession, RpcError> {
    started(agent, start).await.map_err(|why| match why.rpc {
        Some(_) => why.into_rpc(),
        None => RpcError::internal(format!("{} could not open a chat: {}", agent.provider, why.message)),
    })
}

impl Sessions {
    /// Claims a chat's URI and asks its session to open it; messages sent to the chat from then on wait. The receiver
    /// resolves when the chat is open and its first message was sent.
    pub fn open_chat(
        self: &Arc<Self>,
        entry: &Arc<super::SessionEntry>,
        new: NewChat,
    ) -> Result<oneshot::Receiver<Result<(), RpcError>>, RpcError> {
        let uri = new.uri.clone();
        if !self.claim_new_chat(&uri, &entry.id) {
            return Err(RpcError::session_exists(already_exists(&uri)));
        }
        let (answer, wait) = oneshot::channel();
        if !self.tell(entry, ToSession::OpenChat { chat: Box::new(new), answer }) {
            self.release_chat(&uri);
            return Err(nothing_at(&entry.uri));
        }
        Ok(wait)
    }
}
