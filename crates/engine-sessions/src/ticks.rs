//! What a session does at a time of its own, without a message.

use std::time::Duration;

use ostler_contract::limit;
use tokio::time::Instant;

use super::actor::Actor;
use super::awake_limit::SLEEP_AFTER;
use super::queue::Inbox;

/// How often a running turn is stored.
const KEEP_EVERY: Duration = Duration::from_secs(5);

impl Actor {
    /// Returns the time of the next action that no message triggers.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let gathered =
            self.chats.iter().filter_map(|chat| chat.gathered.as_ref().map(|gathered| gathered.due)).min();
        let unkept = self
            .chats
            .iter()
            .filter(|chat| chat.unkept && chat.running().is_some())
            .map(|chat| chat.kept_at + KEEP_EVERY)
            .min();
        let sleep = (self.is_idle() && self.can_rest()).then(|| self.busy_at + SLEEP_AFTER);
        [gathered, unkept, self.deferred.due(), self.storing.owed_at, sleep].into_iter().flatten().min()
    }

    /// Does what is due. Messages that need no store are handled meanwhile.
    pub(super) async fn tick(&mut self, inbox: Inbox) -> Option<Inbox> {
        self.inbox = Some(inbox);
        let now = Instant::now();
        for at in 0..self.chats.len() {
            if self.chats[at].gathered.as_ref().is_some_and(|gathered| gathered.due <= now) {
                self.flush_gathered(at);
            }
            if self.chats[at].unkept && self.chats[at].kept_at + KEEP_EVERY <= now {
                let write = self.keep_running_turn(at);
                self.write_unwaited(write);
            }
        }
        if self.deferred.due().is_some_and(|due| due <= now) {
            self.write_deferred();
        }
        if self.storing.owed_at.is_some_and(|due| due <= now) {
            self.pay(now + limit::STORE).await;
        }
        self.settle();
        self.inbox.take()
    }
}

pub(super) async fn wait_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
