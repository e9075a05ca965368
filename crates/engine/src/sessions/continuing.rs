//! Sessions with unfinished work: in whose chats messages wait, or turns ran when their host was killed. They go on after the start
//! of the host, and after the loss of another one of the cluster, without anybody who opens them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use ostler_contract::read::Read;
use ostler_contract::{Call, Thrown, limit};
use tokio::sync::{Notify, oneshot};

use super::ownership::ask;
use super::{Sessions, ToSession};

/// How many sessions wake at a time for their unfinished work.
const AT_ONCE: usize = 4;
/// The pauses before the sessions that could not be read or woken are tried again.
const AGAIN: [Duration; 4] =
    [Duration::from_secs(5), Duration::from_secs(15), Duration::from_secs(60), Duration::from_secs(300)];
/// How often it is looked whether one more session may be awake.
const LOOK: Duration = Duration::from_secs(1);

/// What keeps sessions from going on.
enum Left {
    Unread(Thrown),
    Asleep(Vec<String>),
}

impl Sessions {
    /// Wakes the sessions with unfinished work that no other host of a cluster has: they start the messages, and the turns have
    /// failed. In a cluster, ends with the host; `hosts_changed` tells that another one may be lost.
    pub(crate) async fn continue_unfinished(self: Arc<Self>, hosts_changed: Arc<Notify>) {
        let Some(waiting) = self.core.session_store().and_then(|store| store.waiting.clone()) else { return };
        let log = &self.core.log;
        let mut pauses = AGAIN.into_iter();
        while !self.core.is_stopping() {
            let left = self.wake_unfinished(&waiting).await;
            match (left, pauses.next()) {
                (Some(_), Some(pause)) => {
                    let _or_the_pause_ends = tokio::time::timeout(pause, hosts_changed.notified()).await;
                    continue;
                }
                (Some(Left::Unread(why)), None) => log.warn(format_args!(
                    "queued messages wait until somebody opens their sessions, which could not be read: {why}"
                )),
                (Some(Left::Asleep(ids)), None) => {
                    let (count, named) = (ids.len(), ids.join(", "));
                    log.warn(format_args!(
                        "the queued messages of {count} sessions wait until somebody opens them: {named}"
                    ));
                }
                (None, _) => {}
            }
            if self.core.cluster().is_none() {
                return;
            }
            hosts_changed.notified().await;
            pauses = AGAIN.into_iter();
        }
    }

    /// Wakes the sessions with unfinished work that are asleep. Returns what has to be tried again.
    async fn wake_unfinished(self: &Arc<Self>, waiting: &Call<fn() -> Vec<String>>) -> Option<Left> {
        if self.is_draining() {
            return None;
        }
        let mut ids = match waiting.read(limit::STORE_SCAN, ()).await {
            Read::Known(ids) => ids,
            Read::Unknown(why) => return Some(Left::Unread(why.0)),
        };
        ids.retain(|id| !self.get(id).is_some_and(|entry| entry.is_awake()));
        let is_full = AtomicBool::new(false);
        let woken = futures::stream::iter(ids).map(|id| {
            let (sessions, is_full) = (self.clone(), &is_full);
            async move { (!sessions.go_on_with(&id, is_full).await).then_some(id) }
        });
        let left: Vec<_> = woken.buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect().await;
        (!left.is_empty()).then_some(Left::Asleep(left))
    }

    /// Wakes a session. Returns false if it has to be tried again.
    async fn go_on_with(self: Arc<Self>, id: &str, is_full: &AtomicBool) -> bool {
        // Sessions that users open come first.
        while !self.core.is_stopping() && self.awake() >= self.core.options.limits.awake_sessions {
            if !is_full.swap(true, Ordering::AcqRel) {
                let log = &self.core.log;
                log.warn(
                    "sessions with unfinished work wait: too many sessions are awake (limits.awakeSessions)",
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
