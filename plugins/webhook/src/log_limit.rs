//! Limits repeated log lines, because anyone can call an endpoint as often as they like and must not fill the log.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long a line about an endpoint suppresses similar ones.
const STANDS: Duration = Duration::from_secs(60);

/// When a line about an endpoint was last logged, and how many were suppressed since.
#[derive(Debug, Default)]
pub(crate) struct LogLimit(Mutex<HashMap<String, (Instant, u64)>>);

impl LogLimit {
    /// Returns whether to log it now, with the number of suppressed lines since the last one.
    pub fn again(&self, endpoint: &str) -> Option<u64> {
        let now = Instant::now();
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match told.get_mut(endpoint) {
            Some((at, left_out)) if now.duration_since(*at) < STANDS => {
                *left_out += 1;
                None
            }
            Some((at, left_out)) => {
                *at = now;
                Some(std::mem::take(left_out))
            }
            None => {
                told.insert(endpoint.to_owned(), (now, 0));
                Some(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_line_stands_for_those_of_a_minute() {
        let told = LogLimit::default();
        assert_eq!(told.again("a"), Some(0));
        assert_eq!(told.again("b"), Some(0));
        for _ in 0..1000 {
            assert_eq!(told.again("a"), None);
        }
        tokio::time::advance(STANDS).await;
        assert_eq!(told.again("a"), Some(1000));
        assert_eq!(told.again("a"), None);
    }
}
