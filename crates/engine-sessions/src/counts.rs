//! The numbers of sessions, in memory and in the store.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ostler_contract::{Thrown, limit};

use super::Sessions;

/// The numbers of sessions.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// The number of sessions, in memory and in the store. Changes only while the sessions in memory are locked.
    pub total: AtomicUsize,
    /// The number of listed sessions of a cluster.
    pub listed: AtomicUsize,
    /// Whether `total` includes the sessions in the store.
    pub counted: AtomicBool,
}

impl Sessions {
    /// Returns the number of listed sessions, in memory or not: all except drafts.
    pub fn count(&self) -> usize {
        if !self.is_alone() {
            return self.counts.listed.load(Ordering::Acquire);
        }
        self.counts.total.load(Ordering::Acquire).saturating_sub(self.drafts.lock().len())
    }

    /// Counts a session that a host of the cluster added to the listing, or removed.
    pub fn counts_listed(&self, is_added: bool) {
        let counted = |count: usize| Some(if is_added { count + 1 } else { count.saturating_sub(1) });
        let _ = self.counts.listed.fetch_update(Ordering::AcqRel, Ordering::Acquire, counted);
    }

    /// Counts the sessions of a cluster in the store.
    pub async fn count_listed(&self) -> Result<(), Thrown> {
        let Some(store) = self.core.session_store() else { return Ok(()) };
        let (Some(count), Some(drafts)) = (&store.count, &store.drafts) else { return Ok(()) };
        let before = self.counts.listed.load(Ordering::Acquire);
        let drafts = drafts.read(limit::STORE, ()).await.known()?.len();
        let count = usize::try_from(count.read(limit::STORE, ()).await.known()?).unwrap_or(usize::MAX);
        // A change in the meantime may or may not be included.
        let listed = count.saturating_sub(drafts);
        let _ = self.counts.listed.compare_exchange(before, listed, Ordering::AcqRel, Ordering::Acquire);
        Ok(())
    }
}
