//! Limits repeated log lines, because anyone can call an endpoint as often as they like and must not fill the log.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long a line suppresses equal ones of the same endpoint.
const STANDS: Duration = Duration::from_secs(60);
/// How many different lines of an endpoint are logged in that time, because a caller may be able to vary them.
const DIFFERENT: usize = 8;

/// The last lines of each endpoint.
#[derive(Debug, Default)]
pub(crate) struct LogLimit(Mutex<HashMap<String, Vec<Line>>>);

#[derive(Debug)]
struct Line {
    text: String,
    at: Instant,
    /// How many equal lines were suppressed since.
    left_out: u64,
}

impl LogLimit {
    /// Returns whether to log a line now, with the number of equal lines suppressed since it was last logged.
    pub fn again(&self, endpoint: &str, text: &str) -> Option<u64> {
        let now = Instant::now();
        let stands = |line: &Line| now.duration_since(line.at) < STANDS;
        let mut endpoints = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !endpoints.contains_key(endpoint) {
            endpoints.insert(endpoint.to_owned(), Vec::new());
        }
        let lines = endpoints.get_mut(endpoint)?;
        if let Some(line) = lines.iter_mut().find(|line| line.text == text) {
            if stands(line) {
                line.left_out += 1;
                return None;
            }
            line.at = now;
            return Some(std::mem::take(&mut line.left_out));
        }
        if lines.len() >= DIFFERENT {
            let oldest = lines.iter().enumerate().min_by_key(|(_, line)| line.at)?.0;
            if stands(lines.get(oldest)?) {
                return None;
            }
            lines.swap_remove(oldest);
        }
        lines.push(Line { text: text.to_owned(), at: now, left_out: 0 });
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_line_stands_for_equal_ones_of_a_minute() {
        let limit = LogLimit::default();
        assert_eq!(limit.again("a", "one"), Some(0));
        assert_eq!(limit.again("b", "one"), Some(0));
        for _ in 0..1000 {
            assert_eq!(limit.again("a", "one"), None);
        }
        assert_eq!(limit.again("a", "two"), Some(0), "another problem is logged");
        tokio::time::advance(STANDS).await;
        assert_eq!(limit.again("a", "one"), Some(1000));
        assert_eq!(limit.again("a", "one"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn lines_that_all_differ_are_bounded() {
        let limit = LogLimit::default();
        let logged =
            |from: usize| (from..from + 1000).filter_map(|n| limit.again("a", &n.to_string())).count();
        assert_eq!(logged(0), DIFFERENT);
        assert_eq!(limit.again("b", "one"), Some(0), "of another endpoint");
        tokio::time::advance(STANDS).await;
        assert_eq!(logged(1000), DIFFERENT);
    }
}
