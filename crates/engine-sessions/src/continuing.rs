//! Sessions with unfinished work: in whose chats messages wait, or turns ran when their host was killed. They go on after the start
//! of the host, and after the loss of another one of the cluster, without anybody who opens them.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::StreamExt as _;
use ostler_contract::read::Read;
use ostler_contract::{Thrown, limit};
use ostler_engine_core::log::Log;
use tokio::sync::{Notify, oneshot};

use super::ownership::ask;
use super::{Sessions, ToSession};

/// How many sessions wake at a time for their unfinished work.
const AT_ONCE: usize = 4;
/// The pauses before the sessions that could not be read or woken are tried again.
const AGAIN: [Duration; 4] =
    [Duration::from_secs(5), Duration::from_secs(15), Duration::from_secs(60), Duration::from_secs(300)];
/// How often a host of a cluster looks for sessions that another one has given up.
const NEXT: Duration = Duration::from_secs(30);
/// How often it is looked whether one more session may be awake.
const LOOK: Duration = Duration::from_secs(1);

/// What keeps sessions from going on.
enum Left {
    Unread(Thrown),
    Asleep(Vec<String>),
}

/// Continues what is unfinished in sessions that no other host of a cluster has: messages start, and turns have failed. In a
/// cluster, ends with the host: `hosts_changed` tells that another one may be lost, and one that drains gives sessions up without
/// notice.
pub async fn continue_unfinished(sessions: Weak<Sessions>, hosts_changed: Arc<Notify>) {
    let mut pauses = AGAIN.into_iter();
    let (mut is_reported, mut is_over) = (false, false);
    // Sessions that were woken here go on whenever they can.
    let mut woken = HashSet::new();
    loop {
        let pause = {
            let Some(sessions) = sessions.upgrade().filter(|sessions| !sessions.core.is_stopping()) else {
                return;
            };
            let is_alone = sessions.core.cluster().is_none();
            match sessions.wake_unfinished(&mut woken).await {
                None => {
                    is_over = is_alone;
                    (pauses, is_reported) = (AGAIN.into_iter(), false);
                    NEXT
                }
                Some(left) => pauses.next().unwrap_or_else(|| {
                    if !std::mem::replace(&mut is_reported, true) {
                        left.report(&sessions.core.log);
                    }
                    is_over = is_alone;
                    NEXT
                }),
            }
        };
        if is_over {
            return;
        }
        if tokio::time::timeout(pause, hosts_changed.notified()).await.is_ok() {
            woken.clear();
            pauses = AGAIN.into_iter();
        }
    }
}

impl Left {
    fn report(&self, log: &Log) {
        match self {
            Self::Unread(why) => log.warn(format_args!(
                "sessions with queued messages or broken turns wait until a user opens them; they could not be read: {why}"
            )),
            Self::Asleep(ids) => {
                let (count, named) = (ids.len(), ids.join(", "));
                log.warn(format_args!(
                    "{count} sessions with queued messages or broken turns wait until a user opens them: {named}"
                ));
            }
        }
    }
}

impl Sessions {
    /// Wakes the sessions with unfinished work that are asleep and were not woken before. Returns what has to be tried again.
    async fn wake_unfinished(self: &Arc<Self>, before: &mut HashSet<String>) -> Option<Left> {
        let waiting = self.core.session_store().and_then(|store| store.waiting.clone())?;
        if self.is_draining() {
            return None;
        }
        let mut ids = match waiting.read(limit::STORE_SCAN, ()).await {
            Read::Known(ids) => ids,
            Read::Unknown(why) => return Some(Left::Unread(why.0)),
        };
        ids.retain(|id| !before.contains(id) && !self.get(id).is_some_and(|entry| entry.is_awake()));
        let is_full = AtomicBool::new(false);
        let woken = futures::stream::iter(ids).map(|id| {
            let (sessions, is_full) = (self.clone(), &is_full);
            async move { (sessions.go_on_with(&id, is_full).await, id) }
        });
        let mut left = Vec::new();
        let mut woken = woken.buffer_unordered(AT_ONCE);
        while let Some((is_woken, id)) = woken.next().await {
            match is_woken {
                // Another host may have it now, and give it up later.
                true if self.get(&id).is_some_and(|entry| entry.is_awake()) => drop(before.insert(id)),
                true => {}
                false => left.push(id),
            }
        }
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
