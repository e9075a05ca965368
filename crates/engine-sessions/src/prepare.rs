//! The preparation of an action: evaluating the policies and storing attachments. Both wait for a plugin, so they run
//! outside the mailbox. Later messages of the same client to the same chat wait for the preparation; all others
//! continue.

use ostler_engine_core::ids::ConnectionId;
use ostler_engine_core::message::run_of;
use ostler_engine_core::refusals::{NO_SUCH_CHAT, Rejection};
use ostler_engine_core::tasks;
use ostler_engine_users::users::policies::Use;
use ostler_protocol::wire::actions::StateAction;
use ostler_protocol::wire::state::{Message, ModelSelection, PendingMessageKind};

use super::actor::Actor;
use super::client_actions::refuse;
use super::deferred::DeferredPart;
use super::mailbox::{Dispatch, ToSession};
use super::queue::Posted;

/// An action that is being prepared.
#[derive(Debug)]
pub(super) struct Preparing {
    pub number: u64,
    pub connection: ConnectionId,
    /// The chat's number; `None` for the session itself.
    pub chat: Option<u64>,
    /// Whether this prepares the answer to a client's request; a cancellation does not wait for that.
    pub is_question: bool,
    #[expect(clippy::vec_box, reason = "messages arrive boxed and are forwarded as they arrived")]
    pub waiting: Vec<Box<Posted>>,
}

/// The steps of a preparation.
#[derive(Debug)]
struct Wanted {
    /// The model to evaluate the policies with, if they are evaluated.
    policies: Option<Option<String>>,
    /// Whether the action's message has attachments to store.
    attachments: bool,
}

/// Returns the message of a client's action.
pub(super) fn message_of(action: &mut StateAction) -> Option<&mut Message> {
    match action {
        StateAction::ChatTurnStarted(started) => Some(&mut started.message),
        StateAction::ChatPendingMessageSet(set) => Some(&mut set.message),
        StateAction::ChatDraftChanged(changed) => changed.draft.as_mut(),
        _ => None,
    }
}

impl Actor {
    /// Gives a message the model with which the session was started, unless it names one or the agent has had a turn.
    pub(super) fn choose_model(&self, at: usize, message: &mut Message) {
        let is_default = Some(&self.chats[at].uri) == self.state.default_chat.as_ref();
        if is_default && message.model.is_none() {
            let model = self.entry.view().record.model.clone();
            message.model = model.map(|id| ModelSelection { id, config: None });
        }
    }

    /// Forgets the model with which the session was started, once the agent has a turn.
    pub(super) fn forget_model(&mut self, at: usize) {
        let is_default = Some(&self.chats[at].uri) == self.state.default_chat.as_ref();
        if is_default && self.entry.view().record.model.is_some() {
            self.revise(|record| record.model = None);
            self.deferred.add(DeferredPart::Session);
        }
    }

    /// Starts the preparation of an action; returns the dispatch if none is needed.
    ///
    /// # Errors
    /// The action is invalid.
    pub(super) fn prepare(
        &mut self,
        at: usize,
        action: &mut StateAction,
        dispatch: Dispatch,
    ) -> Result<Option<Dispatch>, (Dispatch, Rejection)> {
        if !matches!(action, StateAction::ChatDraftChanged(_))
            && let Some(message) = message_of(action)
        {
            self.choose_model(at, message);
        }
        let wanted = match self.wanted(at, action, &dispatch) {
            Ok(Some(wanted)) => wanted,
            Ok(None) => return Ok(Some(dispatch)),
            Err(why) => return Err((dispatch, why)),
        };
        let number = self.next_preparation;
        self.next_preparation += 1;
        self.preparing.push(Preparing {
            number,
            connection: dispatch.connection.id,
            chat: Some(self.chats[at].number),
            is_question: false,
            waiting: Vec::new(),
        });
        let (sessions, entry, mailbox) = (self.sessions.clone(), self.entry.clone(), self.mailbox.clone());
        let mut action = Box::new(action.clone());
        tasks::spawn(async move {
            let prepared = async {
                if let Some(model) = &wanted.policies {
                    // A session stays on its machine, which the policies allowed when the session was created.
                    let wanted = Use { agent: &entry.provider, model: model.as_deref(), computer: None };
                    let charged = sessions.charged_to(&entry);
                    let asked = sessions.access.may_use(dispatch.sender.as_deref(), &charged, wanted).await;
                    asked.map_err(|refused| Rejection::from(&refused))?;
                }
                match message_of(&mut action) {
                    Some(message) if wanted.attachments => {
                        sessions.store_attachments(&entry.id, message).await
                    }
                    _ => Ok(()),
                }
            };
            let outcome = prepared.await.map(|()| action);
            let dispatch = Box::new(dispatch);
            let _ = mailbox.send(ToSession::Prepared { number, dispatch, outcome });
        });
        Ok(None)
    }

    fn wanted(
        &self,
        at: usize,
        action: &StateAction,
        dispatch: &Dispatch,
    ) -> Result<Option<Wanted>, Rejection> {
        let (message, spends, is_new) = match action {
            StateAction::ChatTurnStarted(started) => {
                self.may_start(at, started)?;
                (&started.message, true, true)
            }
            StateAction::ChatPendingMessageSet(set) => {
                self.may_talk(at, &set.message)?;
                (&set.message, set.kind == PendingMessageKind::Queued, true)
            }
            StateAction::ChatDraftChanged(changed) => match &changed.draft {
                Some(draft) => (draft, false, true),
                None => return Ok(None),
            },
            StateAction::ChatTurnResume(_) => match self.chats[at].state.turns.last() {
                Some(last) => (&last.message, true, false),
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        let asks = spends && self.sessions.access.asks_policies(dispatch.sender.as_deref());
        let attachments = is_new && self.sessions.has_attachments_to_store(message);
        let wanted = Wanted {
            policies: asks.then(|| message.model.as_ref().map(|model| model.id.clone())),
            attachments,
        };
        Ok((asks || attachments).then_some(wanted))
    }

    /// Handles an action whose preparation has finished, then the messages that waited for it.
    pub(super) async fn prepared(
        &mut self,
        number: u64,
        dispatch: Dispatch,
        outcome: Result<Box<StateAction>, Rejection>,
    ) {
        let at = self.preparing.iter().position(|preparing| preparing.number == number);
        let waiting = at.map(|at| self.preparing.remove(at).waiting).unwrap_or_default();
        let outcome = match (outcome, self.chat_at(&dispatch.place)) {
            (Ok(action), Some(at)) => self.chat_action(at, *action, dispatch.origin.clone(), &dispatch).await,
            (Ok(_), None) => refuse(NO_SUCH_CHAT),
            (Err(why), _) => Err(why),
        };
        self.answer_failure(&dispatch, outcome);
        for posted in waiting.into_iter().rev() {
            self.again.push_front(posted);
        }
    }

    /// Holds a client's message back if an action of the same client is being prepared; returns any other message.
    pub(super) fn waits_for_prepared(&mut self, posted: Box<Posted>) -> Option<Box<Posted>> {
        if self.preparing.is_empty() {
            return Some(posted);
        }
        let message = &posted.message;
        let Some(connection) = message.dispatched_by() else { return Some(posted) };
        let chat = message.place().and_then(|place| self.chat_at(place)).map(|at| self.chats[at].number);
        let cancels = message.is_cancellation();
        // A cancellation waits for no answer, unless the start of its turn does.
        let turn = message.turn();
        let has_turn = |preparing: &Preparing| {
            turn.is_some() && preparing.waiting.iter().any(|posted| posted.message.turn() == turn)
        };
        let of = |preparing: &&mut Preparing| {
            preparing.connection == connection
                && preparing.chat == chat
                && (!(preparing.is_question && cancels) || has_turn(preparing))
        };
        match self.preparing.iter_mut().find(of) {
            Some(preparing) => {
                preparing.waiting.push(posted);
                None
            }
            None => Some(posted),
        }
    }

    /// Evaluates the policies for a queued message. The result arrives as a message in the mailbox.
    pub(super) fn ask_about_queued(
        &mut self,
        at: usize,
        id: String,
        model: Option<String>,
        sender: Option<String>,
    ) {
        let chat = self.chats[at].number;
        self.chats[at].asking = Some(id.clone());
        let (sessions, entry, mailbox) = (self.sessions.clone(), self.entry.clone(), self.mailbox.clone());
        tasks::spawn(async move {
            let wanted = Use { agent: &entry.provider, model: model.as_deref(), computer: None };
            let charged = sessions.charged_to(&entry);
            let asked = sessions.access.may_use(sender.as_deref(), &charged, wanted).await;
            let refused = asked.err().map(|refused| refused.message);
            let _ = mailbox.send(ToSession::QueuedAsked { chat, id, refused });
        });
    }

    /// Starts the turn of a queued message for which the policies were evaluated.
    pub(super) async fn queued_asked(&mut self, at: usize, id: &str, refused: Option<String>) {
        if self.chats[at].asking.as_deref() == Some(id) {
            self.chats[at].asking = None;
        }
        if self.chats[at].running().is_some() {
            // Another turn started first; when it ends, the message is handled again.
            return;
        }
        match self.first_queued(at) {
            Some(next) if next.id == id && !self.waits_with_queue() => {
                if refused.is_none() && run_of(&next.message).is_none() && self.waits_for_token(at) {
                    return;
                }
                self.begin_next(at, next, refused).await
            }
            _ => self.after_quiet(at).await,
        }
    }
}
