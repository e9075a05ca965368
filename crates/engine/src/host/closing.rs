//! The end of the host: rejects new work, notifies plugins, ends sessions, runs the plugins' close functions, then
//! closes the stores. Each step has its own limit, so that one that hangs does not affect the others.

use std::sync::Arc;
use std::time::Duration;

use ostler_contract::events::Event;
use ostler_contract::points::{
    AutomationStore, Close, Computers, Containers, Policies, Port, PortValue, RecordStore, SessionStore,
    TerminalStore, Usage, Vault,
};
use ostler_contract::{Call, Registry, limit};
use ostler_engine_core::stage::Stage;
use ostler_engine_sessions::ToSession;
use ostler_engine_users::users::principal::Principal;
use tokio::sync::oneshot;

use crate::host::Host;

/// The limit of all listeners to `stopping`.
const STOPPING_LIMIT: Duration = Duration::from_secs(5);
/// The limit for ending all sessions.
const SESSIONS_LIMIT: Duration = Duration::from_secs(5);

impl Host {
    /// Ends the announcements; later lines are dropped.
    pub fn end_announcements(&self) -> Vec<String> {
        self.front.end_announcements()
    }

    /// Rejects new sessions and turns from now on, notifies the plugins, and closes their connections.
    pub async fn stop(&self) {
        if !self.core.reach(Stage::Stopping) {
            return;
        }
        self.heard(self.core.events.raise_and_wait(Event::Stopping {})).await;
        self.close_plugin_connections();
    }

    /// Waits for listeners, within a limit.
    async fn heard(&self, told: impl Future<Output = ()>) {
        if tokio::time::timeout(STOPPING_LIMIT, told).await.is_err() {
            let whom = self.core.events.give_up().unwrap_or_else(|| "a plugin".to_owned());
            let seconds = STOPPING_LIMIT.as_secs();
            self.core.log.warn(format_args!(
                "{whom} did not answer within {seconds} seconds; the host stops without it"
            ));
        }
    }

    fn close_plugin_connections(&self) {
        for connection in self.access.clients.open() {
            if matches!(connection.principal(), Principal::Plugin { .. }) {
                connection.close();
            }
        }
    }

    /// Ends everything: first sessions, then the plugins' close functions in order, then the stores.
    pub async fn close(self: &Arc<Self>) {
        self.stop().await;
        if !self.core.reach(Stage::Closing) {
            return;
        }
        self.close_sessions().await;
        self.workspace.close_terminals().await;
        // A plugin's close function runs after all its notifications.
        self.heard(self.core.events.all_heard()).await;
        let Some(registry) = self.core.registry() else { return };
        for close in registry.all::<Close>() {
            self.limited(limit::CLOSE, &close.close, format!("{}: its close", close.owner)).await;
        }
        self.close_store::<TerminalStore>(registry, |store| &store.close).await;
        self.close_store::<Containers>(registry, |containers| &containers.close).await;
        self.close_store::<Computers>(registry, |computers| &computers.close).await;
        self.close_store::<AutomationStore>(registry, |store| &store.close).await;
        self.close_store::<SessionStore>(registry, |store| &store.close).await;
        if let Some(close) = self.core.own_sessions().and_then(|own| own.close.as_ref()) {
            self.limited(limit::STORE_CLOSE, close, "the close of the host's own turns".to_owned()).await;
        }
        self.close_store::<Usage>(registry, |store| &store.close).await;
        self.close_store::<RecordStore>(registry, |store| &store.close).await;
        self.close_store::<Policies>(registry, |store| &store.close).await;
        self.close_store::<Vault>(registry, |store| &store.close).await;
    }

    async fn close_sessions(self: &Arc<Self>) {
        let awake = self.sessions.all().into_iter().filter(|entry| entry.is_awake());
        let waits: Vec<_> = awake
            .map(|entry| {
                let (done, wait) = oneshot::channel();
                self.sessions.tell(&entry, ToSession::Close { done });
                wait
            })
            .collect();
        if tokio::time::timeout(SESSIONS_LIMIT, futures::future::join_all(waits)).await.is_err() {
            let seconds = SESSIONS_LIMIT.as_secs();
            self.core.log.warn(format_args!("some sessions did not end within {seconds} seconds"));
        }
    }

    async fn close_store<V: PortValue>(&self, registry: &Registry, of: fn(&V) -> &Option<Call<fn()>>) {
        for held in registry.all::<Port<V>>() {
            if let Some(close) = of(&held.value.value) {
                let what = format!("{}: the close of its {} store", held.owner, V::NAME);
                self.limited(limit::STORE_CLOSE, close, what).await;
            }
        }
    }

    /// Calls a close function with a limit and logs errors.
    async fn limited(&self, limit: Duration, close: &Call<fn()>, what: String) {
        if let Err(why) = close.within(limit, ()).await {
            self.core.log.uncaught(format_args!("{what} failed: {}", why.for_log()));
        }
    }
}
