//! Rate limits of endpoints, with a sliding window, so that no burst exceeds the limit.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::extras::Limit;

/// The times of calls, by endpoint.
#[derive(Debug, Default)]
pub(crate) struct Limits(Mutex<HashMap<String, VecDeque<Instant>>>);

impl Limits {
    /// Counts a call, or returns how long the next one has to wait.
    pub fn take(&self, endpoint: &str, limit: Limit) -> Result<(), Duration> {
        self.look(endpoint, limit, |taken, now| taken.push_back(now))
    }

    /// Returns how long the next call has to wait, if it does.
    pub fn wait(&self, endpoint: &str, limit: Limit) -> Option<Duration> {
        self.look(endpoint, limit, |_, _| ()).err()
    }

    fn look(
        &self,
        endpoint: &str,
        limit: Limit,
        with_room: impl FnOnce(&mut VecDeque<Instant>, Instant),
    ) -> Result<(), Duration> {
        let now = Instant::now();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = all.entry(endpoint.to_owned()).or_default();
        while taken.front().is_some_and(|at| now.duration_since(*at) >= limit.per) {
            taken.pop_front();
        }
        if let Some(oldest) = taken.len().checked_sub(limit.calls).and_then(|at| taken.get(at)) {
            return Err(limit.per.saturating_sub(now.duration_since(*oldest)));
        }
        with_room(taken, now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn so_many_in_so_long() {
        let limits = Limits::default();
        let limit = Limit { calls: 2, per: Duration::from_secs(60), is_unavailable: false };
        assert_eq!(limits.take("a", limit), Ok(()));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(limits.wait("a", limit), None);
        assert_eq!(limits.take("a", limit), Ok(()));
        assert_eq!(limits.wait("a", limit), Some(Duration::from_secs(50)));
        assert_eq!(limits.take("a", limit), Err(Duration::from_secs(50)));
        assert_eq!(limits.take("b", limit), Ok(()), "another endpoint has its own");
        tokio::time::advance(Duration::from_secs(50)).await;
        assert_eq!(limits.take("a", limit), Ok(()));
        assert_eq!(limits.take("a", limit), Err(Duration::from_secs(10)));
        let fewer = Limit { calls: 1, ..limit };
        assert_eq!(limits.take("a", fewer), Err(Duration::from_secs(60)), "a record edited to take fewer");
    }
}
