//! Reads what an earlier start left. A store that is away for a moment must not lose it.

use std::future::Future;
use std::time::Duration;

use ostler_contract::PluginHost;
use ostler_contract::read::Read;

/// The first and the longest pause after a read failed. The time doubles in between.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Reads until the outcome is known. Only a task that nothing else waits for may await it.
pub(crate) async fn read_at_last<T, F>(host: &PluginHost, what: &str, read: impl Fn() -> F) -> T
where
    F: Future<Output = Read<T>>,
{
    let mut pause = FIRST_PAUSE;
    loop {
        match read().await {
            Read::Known(stored) => return stored,
            Read::Unknown(why) => {
                let _ = host.log(format!("{what} could not be read: {why}; trying again"));
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
