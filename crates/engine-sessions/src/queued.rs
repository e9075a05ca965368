//! The queues of chats: messages that wait for the end of a turn, for the start of the host, or for another host.

use ostler_engine_core::message::run_of;
use ostler_engine_core::tasks;
use ostler_protocol::wire::actions::ChatTurnStartedAction;
use ostler_protocol::wire::state::PendingMessage;

use super::actor::Actor;
use super::mailbox::ToSession;
use super::senders::{TurnRefusal, sender_of};

impl Actor {
    /// Returns the first queued message of a chat.
    pub(super) fn first_queued(&self, at: usize) -> Option<PendingMessage> {
        self.chats[at].state.queued_messages.as_ref().and_then(|queue| queue.first().cloned())
    }

    /// Starts the first queued message; returns whether there is one. The policies may have changed while it was
    /// queued, so they are evaluated again, outside the mailbox. If another host should serve the session, it starts the message.
    pub(super) async fn begin_queued(&mut self, at: usize) -> bool {
        let Some(next) = self.first_queued(at) else { return false };
        // It starts with the next start of the host, or there.
        if self.waits_with_queue() {
            return true;
        }
        if self.chats[at].asking.as_deref() == Some(next.id.as_str()) {
            return true;
        }
        if run_of(&next.message).is_none() && self.waits_for_token(at) {
            // Nothing follows until then.
            return false;
        }
        let sender = sender_of(&next.message);
        match self.sessions.access.asks_policies(sender.as_deref()) {
            true => self.ask_about_queued(at, next.id, next.message.model.map(|model| model.id), sender),
            false => self.begin_next(at, next, None).await,
        }
        true
    }

    /// Whether queued messages start with the next start of the host, or at another host.
    pub(super) fn waits_with_queue(&self) -> bool {
        self.core.is_stopping() || self.leaves_queue()
    }

    /// Whether queued messages are left to the host that takes the session.
    pub(super) fn leaves_queue(&self) -> bool {
        self.sessions.belongs_elsewhere(&self.entry) && !self.has_queued_run() && !self.works_in_background()
    }

    /// Whether a queued message is that of a run, which only the host that started the run sees through.
    pub(super) fn has_queued_run(&self) -> bool {
        let queued = self.chats.iter().flat_map(|chat| chat.state.queued_messages.iter().flatten());
        queued.into_iter().any(|queued| run_of(&queued.message).is_some())
    }

    /// Starts the queued messages of chats in which no turn runs, which remain after the host stopped, or come from another host.
    pub(super) async fn begin_all_queued(&mut self) {
        if self.agent.is_none() {
            if self.chats.iter().any(|chat| chat.state.queued_messages.is_some()) {
                let (uri, provider) = (&self.entry.uri, &self.entry.provider);
                self.core.log.warn(format_args!("{uri}: its queued messages wait for the agent {provider}"));
            }
            return;
        }
        if self.core.lost_storage().is_some() {
            // Their turns could not be stored, and they would start again.
            if self.chats.iter().any(|chat| chat.state.queued_messages.is_some()) {
                let (core, mailbox) = (self.core.clone(), self.mailbox.clone());
                tasks::spawn(async move {
                    if core.can_store().await {
                        let _ = mailbox.send(ToSession::GoOn);
                    }
                });
            }
            return;
        }
        for number in self.chats.iter().map(|chat| chat.number).collect::<Vec<_>>() {
            if let Some(at) = self.chat_numbered(number)
                && self.chats[at].running().is_none()
            {
                self.begin_queued(at).await;
            }
            if self.storing.has_failed {
                return;
            }
        }
        self.settle();
    }

    /// Starts the turn of a queued message, or fails it immediately: the policies denied it, or its sender no longer has
    /// the grants.
    pub(super) async fn begin_next(&mut self, at: usize, next: PendingMessage, refused: Option<String>) {
        let sender = sender_of(&next.message);
        let refused = refused.map(TurnRefusal::by_policies).or_else(|| self.refusal_of(&next.message));
        let cannot = self.chats[at].ended.clone().or_else(|| self.check_own_tokens(at).err());
        let refused = refused.or_else(|| cannot.map(TurnRefusal::by_backend));
        let action = ChatTurnStartedAction {
            turn_id: self.core.new_id(),
            started_at: self.core.clock.iso(),
            message: next.message,
            queued_message_id: Some(next.id),
            meta: None,
        };
        self.begin_or_refuse(at, action, sender, refused).await;
    }
}
