//! How often an automation's entry is published. Every publication carries the whole entry, and a burst of wakes
//! changes it thousands of times.

use std::time::Duration;

use tokio::time::Instant;

/// Publications that may follow each other immediately.
const BURST: u32 = 16;
/// Time after which one more is allowed.
const INTERVAL: Duration = Duration::from_millis(50);

/// The publications of one entry: [`BURST`] immediately, then one per [`INTERVAL`].
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pace {
    /// When the whole burst is allowed again.
    full: Option<Instant>,
}

impl Pace {
    /// Uses one publication.
    ///
    /// # Errors
    /// The time until the next one is allowed.
    pub fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let used = self.full.map_or(Duration::ZERO, |full| full.saturating_duration_since(now));
        let most = INTERVAL * (BURST - 1);
        if used > most {
            return Err(used - most);
        }
        self.full = Some(now + used + INTERVAL);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_followed_by_one_per_interval() {
        let mut pace = Pace::default();
        for _ in 0..BURST {
            assert_eq!(pace.take(Instant::now()), Ok(()));
        }
        assert_eq!(pace.take(Instant::now()), Err(INTERVAL));
        tokio::time::advance(INTERVAL).await;
        assert_eq!(pace.take(Instant::now()), Ok(()));
        assert_eq!(pace.take(Instant::now()), Err(INTERVAL));
        tokio::time::advance(INTERVAL * BURST).await;
        for _ in 0..BURST {
            assert_eq!(pace.take(Instant::now()), Ok(()));
        }
        assert!(pace.take(Instant::now()).is_err());
    }
}
