//! Sessions in whose chats messages wait: they go on after the start of the host, without anybody who opens them.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use ostler_contract::limit;
use ostler_contract::read::Read;
use tokio::sync::oneshot;

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
        let mut pauses = AGAIN.into_iter();
        let mut ids = loop {
            match waiting.read(limit::STORE, ()).await {
                Read::Known(ids) => break ids,
                Read::Unknown(why) => {
                    let log = &self.core.log;
                    log.warn(format_args!("the sessions with queued messages could not be read: {why}"));
                    if !self.pause(&mut pauses).await {
                        return;
                    }
                }
            }
        };
        let mut pauses = AGAIN.into_iter();
        loop {
            let woken = futures::stream::iter(ids).map(|id| {
                let sessions = self.clone();
                async move { (!sessions.go_on_with(&id).await).then_some(id) }
            });
            ids = woken.buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect().await;
            if ids.is_empty() {
                return;
            }
            if !self.pause(&mut pauses).await {
                let count = ids.len();
                return self.core.log.warn(format_args!(
                    "the queued messages of {count} sessions wait until somebody opens them: {}",
                    ids.join(", ")
                ));
            }
        }
    }

    async fn pause(&self, pauses: &mut impl Iterator<Item = Duration>) -> bool {
        let Some(pause) = pauses.next() else { return false };
        tokio::time::sleep(pause).await;
        !self.core.is_stopping()
    }

    /// Wakes a session. Returns false if it has to be tried again.
    async fn go_on_with(self: Arc<Self>, id: &str) -> bool {
        // Sessions that users open come first.
        while self.awake() >= self.core.options.limits.awake_sessions {
            if self.core.is_stopping() {
                return true;
            }
            tokio::time::sleep(LOOK).await;
        }
        let entry = match self.session_here(id).await {
            Read::Known(Some(entry)) => entry,
            Read::Known(None) => return true,
            Read::Unknown(_) => return self.core.is_stopping(),
        };
        // The next one wakes when this one is awake.
        let (answer, is_awake) = oneshot::channel();
        self.tell(&entry, ToSession::GoOn);
        self.tell(&entry, ToSession::Chats { answer });
        is_awake.await.is_ok() || self.core.is_stopping() || entry.is_gone()
    }
}
