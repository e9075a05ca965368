//! Sessions in whose chats messages wait: they go on after the start of the host, without anybody who opens them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use ostler_contract::read::Read;
use ostler_contract::{Thrown, limit};
use tokio::sync::oneshot;

use super::ownership::ask;
use super::{Sessions, ToSession};

/// How many sessions wake at a time for what waits in them.
const AT_ONCE: usize = 4;
/// The pauses before the sessions that could not be read or woken are tried again.
const AGAIN: [Duration; 4] =
    [Duration::from_secs(5), Duration::from_secs(15), Duration::from_secs(60), Duration::from_secs(300)];
/// How often it is looked whether one more session may be awake.
const LOOK: Duration = Duration::from_secs(1);

impl Sessions {
    /// Wakes the sessions in whose chats messages wait, and which no other host of a cluster has. They start the messages.
    pub(crate) async fn continue_waiting(self: Arc<Self>) {
        let Some(waiting) = self.core.session_store().and_then(|store| store.waiting.as_ref()) else {
            return;
        };
        let log = &self.core.log;
        let mut pauses = AGAIN.into_iter();
        let mut ids = loop {
            match waiting.read(limit::STORE_SCAN, ()).await {
                Read::Known(ids) => break ids,
                Read::Unknown(why) => match pauses.next() {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => {
                        return log.warn(format_args!(
                            "queued messages wait until somebody opens their sessions, which could not be read: {why}"
                        ));
                    }
                },
            }
            if self.core.is_stopping() {
                return;
            }
        };
        let (mut pauses, is_full) = (AGAIN.into_iter(), AtomicBool::new(false));
        loop {
            let woken = futures::stream::iter(ids).map(|id| {
                let (sessions, is_full) = (self.clone(), &is_full);
                async move { (!sessions.go_on_with(&id, is_full).await).then_some(id) }
            });
            ids = woken.buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect().await;
            if ids.is_empty() || self.core.is_stopping() {
                return;
            }
            let Some(pause) = pauses.next() else {
                let (count, named) = (ids.len(), ids.join(", "));
                return log.warn(format_args!(
                    "the queued messages of {count} sessions wait until somebody opens them: {named}"
                ));
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Wakes a session. Returns false if it has to be tried again.
    async fn go_on_with(self: Arc<Self>, id: &str, is_full: &AtomicBool) -> bool {
        // Sessions that users open come first.
        while !self.core.is_stopping() && self.awake() >= self.core.options.limits.awake_sessions {
            if !is_full.swap(true, Ordering::AcqRel) {
                let log = &self.core.log;
                log.warn(
                    "sessions with queued messages wait: too many sessions are awake (limits.awakeSessions)",
                );
            }
            self.rest_idle_sessions();
            tokio::time::sleep(LOOK).await;
        }
        if self.core.is_stopping() {
            return true;
        }
        match self.is_bound_elsewhere(id).await {
            Ok(false) => {}
            // That host has its files, and continues it.
            Ok(true) => return true,
            Err(_) => return false,
        }
        let entry = match self.session_here(id).await {
            Read::Known(Some(entry)) => entry,
            Read::Known(None) => return true,
            Read::Unknown(_) => return false,
        };
        // The next one wakes when this one is awake.
        let (answer, is_awake) = oneshot::channel();
        self.tell(&entry, ToSession::GoOn);
        self.tell(&entry, ToSession::Chats { answer });
        is_awake.await.is_ok()
    }

    /// Whether a session needs the files of another host of the cluster.
    async fn is_bound_elsewhere(&self, id: &str) -> Result<bool, Thrown> {
        let Some(cluster) = self.core.cluster() else { return Ok(false) };
        let bound = ask(cluster.bound_to(id.to_owned())).await?;
        Ok(bound.is_some_and(|host| host.id != cluster.id()))
    }
}
