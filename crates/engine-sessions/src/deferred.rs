//! Deferred writes: read flags, drafts and the session's data in listings. Clients see them before they are stored, and
//! a crash may lose them. They are written together after a short delay, so that a burst of them costs one commit and
//! none delays a commit that a client waits for.

use std::time::Duration;

use futures::future::OptionFuture;
use ostler_engine_core::tasks;
use tokio::time::Instant;

use super::actor::Actor;

/// How long a deferred write waits for others to share its commit.
pub(super) const DELAY: Duration = Duration::from_millis(100);

/// A part of the session's stored state that can be written later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeferredPart {
    /// The session's read and archived flags.
    Flags,
    /// The session's record.
    Session,
    /// The list of its chats, with their flags and drafts.
    Chats,
    /// What its backend reported.
    Reported,
}

/// The parts that wait to be written.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    flags: bool,
    session: bool,
    chats: bool,
    reported: bool,
    due: Option<Instant>,
}

impl Deferred {
    /// Adds a part. The first one sets the time at which all of them are written.
    pub fn add(&mut self, part: DeferredPart) {
        match part {
            DeferredPart::Flags => self.flags = true,
            DeferredPart::Session => self.session = true,
            DeferredPart::Chats => self.chats = true,
            DeferredPart::Reported => self.reported = true,
        }
        self.due.get_or_insert_with(|| Instant::now() + DELAY);
    }

    /// Returns when the parts must be written.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }
}

impl Actor {
    /// Writes the deferred parts in one commit. No caller waits for it, but the session does not end or sleep before it
    /// has finished.
    pub(super) fn write_deferred(&mut self) {
        let Deferred { flags, session, chats, reported, due } = std::mem::take(&mut self.deferred);
        if due.is_none() {
            return;
        }
        let flags = OptionFuture::from(flags.then(|| self.keep_flags(self.flags())));
        let session = OptionFuture::from(session.then(|| self.keep_session()));
        // What is owed is written with them, turns first: a queued message leaves the chats once its turn is stored.
        let chats = chats && self.storing.owed_at.is_none();
        let chats = OptionFuture::from(chats.then(|| self.keep_chats()));
        let reported = OptionFuture::from(reported.then(|| self.keep_reported()));
        self.write_unwaited(async move {
            futures::join!(flags, session, chats, reported);
        });
    }

    /// Starts a write that no answer waits for. The session does not end or sleep before it has finished.
    pub(super) fn write_unwaited<T: Send + 'static>(
        &mut self,
        write: impl Future<Output = T> + Send + 'static,
    ) {
        self.unwaited.retain(|task| !task.is_finished());
        self.unwaited.push(tasks::spawn(async move {
            write.await;
        }));
    }

    /// Writes the deferred parts and waits until all pending writes are stored.
    pub(super) async fn settle_writes(&mut self) {
        self.write_deferred();
        futures::future::join_all(self.unwaited.drain(..)).await;
    }
}
