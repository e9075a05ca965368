//! Answers of plugins that something waits for: each has its time, so that one that hangs costs what it was asked for
//! and nothing else.

use std::time::Duration;

use ostler_contract::Thrown;

/// The answer, or a failure that says how long it was waited for.
pub(crate) async fn in_time<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, Thrown>>,
) -> Result<T, Thrown> {
    match tokio::time::timeout(limit, answer).await {
        Ok(answered) => answered,
        Err(_) => Err(Thrown::new(format_args!("it did not answer within {} seconds", limit.as_secs()))),
    }
}
