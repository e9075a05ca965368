//! Whether the end of a chat is stored as it is in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the writes that change the last turn of a chat. They are stored in their order.
#[derive(Debug, Clone, Default)]
pub(super) struct StoredEnd(Arc<Writes>);

#[derive(Debug, Default)]
struct Writes {
    begun: AtomicU64,
    stored: AtomicU64,
}

impl StoredEnd {
    /// Counts a write that has begun. The future returns whether it succeeded.
    pub fn written<W: Future<Output = bool> + Send>(
        &self,
        write: W,
    ) -> impl Future<Output = bool> + Send + use<W> {
        let writes = self.0.clone();
        let number = writes.begun.fetch_add(1, Ordering::Relaxed) + 1;
        async move {
            let is_stored = write.await;
            if is_stored {
                writes.stored.fetch_max(number, Ordering::Relaxed);
            }
            is_stored
        }
    }

    /// Whether the latest write succeeded.
    pub fn is_stored(&self) -> bool {
        self.0.stored.load(Ordering::Relaxed) == self.0.begun.load(Ordering::Relaxed)
    }
}
