//! The end of a session: for its clients, when the host closes, and by disposal.

use ostler_contract::events::Event;
use ostler_protocol::uri;
use ostler_protocol::wire::actions::{SessionActiveClientRemovedAction, StateAction};

use super::actor::Actor;

impl Actor {
    /// Removes a client from the active clients once none of its connections is subscribed to the session.
    pub(super) fn handle_left(&mut self, client: &str) {
        let present = self.state.active_clients.iter().any(|active| active.client_id == client);
        if !present {
            return;
        }
        let mut watchers = self.core.fanout.watchers(&self.entry.uri);
        for chat in &self.chats {
            watchers.extend(self.core.fanout.watchers(&chat.uri));
        }
        if watchers.iter().any(|&connection| self.sessions.access.clients.is_client(connection, client)) {
            return;
        }
        self.client_gone(client);
        let removed = SessionActiveClientRemovedAction { client_id: client.to_owned() };
        self.apply_session(StateAction::SessionActiveClientRemoved(removed), None);
        self.tools_changed();
        self.sync_client_plugins(None);
    }

    /// Ends the running turns and closes the backends.
    pub(super) async fn close(&mut self, reason: &str) {
        for at in 0..self.chats.len() {
            self.flush_gathered(at);
            if let Some(turn) = self.chats[at].running().map(str::to_owned) {
                self.keep_running_turn(at).await;
                if self.chats[at].backend.is_some() {
                    self.cancel_backend(at, turn);
                }
            }
        }
        self.settle();
        self.settle_writes().await;
        self.entry.end();
        let removing = reason == "disposed";
        let closing: Vec<_> = self
            .chats
            .iter_mut()
            .filter_map(|chat| chat.backend.take())
            .map(|backend| backend.close(removing))
            .collect();
        futures::future::join_all(closing).await;
        if self.announced {
            let session = self.entry.uri.clone();
            self.core.events.raise(Event::SessionEnd { session, reason: reason.to_owned() });
        }
    }

    /// Closes the backends and ends the session without a write.
    pub(super) async fn abandon(&mut self) {
        self.entry.end();
        let closing: Vec<_> = self
            .chats
            .iter_mut()
            .filter_map(|chat| chat.backend.take())
            .map(|backend| backend.close(false))
            .collect();
        futures::future::join_all(closing).await;
        if self.announced {
            let session = self.entry.uri.clone();
            self.core.events.raise(Event::SessionEnd { session, reason: "closing".to_owned() });
        }
    }

    /// Ends the session and deletes it from memory, its backend and the store.
    pub(super) async fn dispose(&mut self) {
        self.close("disposed").await;
        let ids: Vec<String> = self.chats.iter().filter_map(|chat| chat.backend_id.clone()).collect();
        for chat in &self.chats {
            self.core.fanout.remove(&chat.uri);
        }
        self.core.fanout.remove(&self.entry.uri);
        self.core.fanout.remove(&uri::annotations(&self.entry.uri));
        self.sessions.forget_session(&self.entry, ids).await;
    }
}
