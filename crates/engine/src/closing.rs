//! The end: new work is refused, sessions end, then what plugins want to do, in order.

use std::sync::Arc;
use std::time::Duration;

use ostler_contract::points::Close;
use tokio::sync::oneshot;

use crate::host::{Host, Stage};
use crate::principal::Principal;
use crate::sessions::ToSession;

impl Host {
    /// Whether the host ends.
    pub fn is_closing(&self) -> bool {
        self.stage() == Stage::Closing
    }

    /// Ends the announcements: a line said later is dropped.
    pub fn end_announcements(&self) -> Vec<String> {
        self.announcements.lock().take().unwrap_or_default()
    }

    /// Refuses new sessions and turns from now on.
    pub fn stop_turns(&self) {
        self.reach(Stage::Stopping);
    }

    /// Whether new sessions and turns are refused.
    pub fn is_stopping(&self) -> bool {
        self.stage() >= Stage::Stopping
    }

    /// Ends the connections plugins opened.
    pub fn close_plugin_connections(&self) {
        for connection in self.open_connections() {
            if matches!(connection.principal(), Principal::Plugin { .. }) {
                connection.close();
            }
        }
    }

    /// Ends everything: sessions first, then what plugins want to do, in order.
    pub async fn close(self: &Arc<Self>) {
        if !self.reach(Stage::Closing) {
            return;
        }
        let waits: Vec<_> = self
            .sessions
            .all()
            .into_iter()
            .filter(|entry| entry.is_awake())
            .map(|entry| {
                let (done, wait) = oneshot::channel();
                self.tell(&entry, ToSession::Close { done });
                wait
            })
            .collect();
        let sessions = futures::future::join_all(waits);
        if tokio::time::timeout(Duration::from_secs(10), sessions).await.is_err() {
            self.log.line("some sessions did not end within 10 seconds");
        }
        let Some(registry) = self.registry() else { return };
        for close in registry.all::<Close>() {
            if let Err(why) = close.close.call(()).await {
                self.log.line(format_args!("{}: its close failed: {}", close.owner, why.for_log()));
            }
        }
    }
}
