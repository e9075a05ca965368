//! The end of a session: for its clients, when the host closes, and by disposal.

use std::sync::Arc;

use ostler_contract::events::{Event, TurnStatus};
use ostler_contract::limit;
use ostler_engine_core::fanout::Fanout;
use ostler_engine_core::message::run_of;
use ostler_engine_core::outbox::Closed;
use ostler_engine_core::refusals::{NOT_STORED, try_again};
use ostler_engine_users::users::clients::Client;
use ostler_protocol::uri;
use ostler_protocol::wire::actions::{SessionActiveClientRemovedAction, StateAction};
use tokio::time::Instant;

use super::SessionEntry;
use super::actor::Actor;
use super::awake_limit::refuse;
use super::deferred::DeferredPart;
use super::queue::Inbox;

impl SessionEntry {
    /// Returns the URIs that name the session's default chat, whichever chat that is.
    pub(super) fn names_of_default_chat(&self) -> [String; 2] {
        [uri::default_chat(&self.uri), uri::chat(&self.id)]
    }

    /// Ends the channels of a session that is gone, apart from its chats with own URIs.
    pub(super) fn end_channels(&self, fanout: &Fanout) {
        let alias = uri::session_alias(&self.id);
        fanout.end(&uri::annotations(&self.uri), &[uri::annotations(&alias)]);
        fanout.end(&self.uri, &[alias]);
        let [role, short] = self.names_of_default_chat();
        fanout.end(&role, &[short]);
    }
}

impl Actor {
    /// Removes a client from the active clients once none of its connections is subscribed to the session or said that it is active
    /// there.
    pub(super) fn handle_left(&mut self, client: &str) {
        let Some(active) = self.active_clients.iter().find(|active| active.id == client).cloned() else {
            return;
        };
        let mut watchers = self.core.fanout.watchers(&self.entry.uri);
        for chat in &self.chats {
            watchers.extend(self.core.fanout.watchers(&chat.uri));
        }
        let clients = &self.sessions.access.clients;
        let is_of_client = |&id| clients.get(id).is_some_and(|connection| active.is_of(&*connection));
        let acts = |open: &Arc<dyn Client>| active.is_of(&**open) && open.is_active_in(&self.entry.uri);
        if watchers.iter().any(is_of_client) || clients.open().iter().any(acts) {
            return;
        }
        self.remove_active_client(client);
    }

    fn remove_active_client(&mut self, client: &str) {
        self.client_gone(client);
        let removed = SessionActiveClientRemovedAction { client_id: client.to_owned() };
        self.apply_session(StateAction::SessionActiveClientRemoved(removed), None);
        self.active_clients_changed();
    }

    /// Removes the active clients that disconnected while the session was asleep.
    pub(super) fn remove_disconnected(&mut self) {
        for client in self.active_clients.clone() {
            if !client.is_connected(&self.sessions.access.clients) {
                self.remove_active_client(&client.id);
            }
        }
    }

    /// Stores the running turns, ends them and closes the backends.
    pub(super) async fn close(&mut self, reason: &str) {
        for at in 0..self.chats.len() {
            self.flush_gathered(at);
            if self.chats[at].running().is_some() {
                let charged = self.charge_running(at);
                // Stored as failed, and as doing nothing.
                self.chats[at].is_broken = true;
                self.chats[at].stored_activity = None;
                self.deferred.add(DeferredPart::Chats);
                futures::join!(charged, self.keep_running_turn(at));
            }
        }
        if self.chats.iter().any(|chat| chat.is_broken) && self.state.activity.take().is_some() {
            self.dirty = true;
            self.deferred.add(DeferredPart::Session);
        }
        self.settle();
        self.settle_writes().await;
        self.pay(Instant::now() + limit::STORE).await;
        self.end_backends(reason).await;
    }

    /// Ends the running turns and closes the backends, without a write.
    async fn end_backends(&mut self, reason: &str) {
        for at in 0..self.chats.len() {
            if let Some(turn) = self.chats[at].running().map(str::to_owned)
                && self.chats[at].backend.is_some()
            {
                self.cancel_backend(at, turn);
            }
        }
        self.entry.end();
        self.close_backends(reason == "disposed").await;
        if self.announced {
            let session = self.entry.uri.clone();
            self.core.events.raise(Event::SessionEnd { session, reason: reason.to_owned() });
        }
    }

    /// Closes the backends of all chats; `removing` says that the session is deleted.
    pub(super) async fn close_backends(&mut self, removing: bool) {
        let backends = self.chats.iter_mut().filter_map(|chat| chat.backend.take());
        let closing: Vec<_> = backends.map(|backend| backend.close(removing)).collect();
        futures::future::join_all(closing).await;
    }

    /// Closes the backends and ends the session without a write.
    pub(super) async fn abandon(&mut self) {
        self.entry.end();
        self.close_backends(false).await;
        if self.announced {
            let session = self.entry.uri.clone();
            self.core.events.raise(Event::SessionEnd { session, reason: "closing".to_owned() });
        }
    }

    /// Removes a session from memory, a change of which could not be stored. Its clients are disconnected; when they return, it is
    /// read from the store, here or by another host.
    pub(super) async fn give_up(&mut self, mut inbox: Inbox) {
        let sessions = self.sessions.clone();
        self.core.log.warn(format_args!("{} is read again from the store: {NOT_STORED}", self.entry.uri));
        let channels = sessions.channels_of(&self.entry);
        let has_lease = self.core.cluster().is_none_or(|cluster| cluster.gauges().has_lease);
        let why = if has_lease { Closed::Moved } else { Closed::LostLease };
        self.entry.end();
        // Before the pasts of the channels end, so that none of them sees a later number.
        for connection in channels.iter().flat_map(|channel| self.core.fanout.watchers(channel)) {
            sessions.access.clients.close(connection, why);
        }
        // The release follows the writes that are still queued, and precedes the next claim.
        sessions.leave_memory(&self.entry);
        inbox.close();
        while let Some(posted) = inbox.try_next() {
            refuse(&sessions, posted.message, &try_again(NOT_STORED));
        }
        if let Some(observer) = sessions.observer() {
            for chat in &self.chats {
                let running = chat.state.active_turn.as_ref().map(|turn| &turn.message);
                let last = chat.state.turns.last().map(|turn| &turn.message);
                if let Some(run) = running.or(last).and_then(run_of) {
                    observer.run_turn_ended(run, TurnStatus::Error, Some(NOT_STORED.to_owned()));
                }
            }
            observer.session_quiet(&self.entry.uri, false, false);
        }
        self.abandon().await;
    }

    /// Ends the session and deletes it from the store, from memory, and whatever else it has. Returns whether the store has
    /// deleted it; otherwise nothing else is deleted, and the session goes on, or is read from the store again if the outcome is
    /// not known.
    pub(super) async fn dispose(&mut self) -> bool {
        (0..self.chats.len()).for_each(|at| self.flush_gathered(at));
        self.settle();
        self.settle_writes().await;
        if !self.sessions.delete_stored(&self.entry).await {
            if self.core.cluster().is_some() || !self.is_still_stored().await {
                self.not_stored();
            }
            return false;
        }
        self.end_backends("disposed").await;
        let ids: Vec<String> = self.chats.iter().filter_map(|chat| chat.backend_id.clone()).collect();
        let role = self.entry.names_of_default_chat();
        for chat in &self.chats {
            let is_default = Some(&chat.uri) == self.state.default_chat.as_ref();
            self.core.fanout.end(&chat.uri, if is_default { &role } else { &[] });
        }
        self.entry.end_channels(&self.core.fanout);
        self.sessions.forget_session(&self.entry, ids).await;
        true
    }

    /// Whether the store has the session after a failed deletion. A store handles its calls in their order.
    async fn is_still_stored(&self) -> bool {
        let Some(store) = self.store() else { return false };
        let read = store.config.read(limit::STORE, (self.entry.id.clone(),)).await;
        matches!(read.known(), Ok(Some(_)))
    }
}
