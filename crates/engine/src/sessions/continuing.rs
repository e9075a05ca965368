//! Sessions in whose chats messages wait, which nobody has to open: they go on after the start of the host, and when another host
//! of a cluster is gone.

use std::sync::Arc;

use futures::StreamExt as _;
use ostler_contract::limit;
use ostler_contract::read::Read;
use tokio::sync::oneshot;

use super::{Sessions, ToSession};

/// How many sessions wake at a time for what waits in them.
const AT_ONCE: usize = 4;

impl Sessions {
    /// Wakes the sessions in whose chats messages wait, and which no other host of a cluster has. They start the messages.
    pub(crate) async fn continue_waiting(self: Arc<Self>) {
        let _one_at_a_time = self.continuing.lock().await;
        let waiting = futures::stream::iter(self.waiting().await);
        waiting.for_each_concurrent(AT_ONCE, |id| self.clone().go_on_with(id)).await;
    }

    /// The ids of the sessions in whose stored chats messages wait.
    async fn waiting(&self) -> Vec<String> {
        let Some(waiting) = self.core.session_store().and_then(|store| store.waiting.as_ref()) else {
            return Vec::new();
        };
        let ids = waiting.read(limit::STORE, ()).await;
        ids.or_assume(Vec::new(), "their messages wait until somebody opens them", |why| {
            self.core.log.warn(format_args!("the sessions with queued messages could not be read: {why}"));
        })
    }

    async fn go_on_with(self: Arc<Self>, id: String) {
        if self.core.is_stopping() {
            return;
        }
        let Read::Known(Some(entry)) = self.session_here(&id).await else { return };
        // The next one wakes when this one is awake.
        let (answer, is_awake) = oneshot::channel();
        self.tell(&entry, ToSession::GoOn);
        self.tell(&entry, ToSession::Chats { answer });
        let _ = is_awake.await;
    }
}
