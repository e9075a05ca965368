//! Reads what an earlier start left, and removes what is done. A store that is away for a moment must lose neither.

use std::future::Future;
use std::time::Duration;

use ostler_contract::PluginHost;
use ostler_contract::points::Collection;
use ostler_contract::read::Read;

/// The first and the longest pause after a failure. The time doubles in between.
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

/// Removes a record until that succeeds, so that the next start does not take it for unfinished. Only a task that nothing else waits
/// for may await it.
pub(crate) async fn remove_at_last(host: &PluginHost, what: &str, records: &Collection, id: &str) {
    let mut pause = FIRST_PAUSE;
    while let Err(why) = records.remove.call((id.to_owned(),)).await {
        if pause == FIRST_PAUSE {
            let _ = host.log(format!("{what} could not be removed: {why}; trying again"));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
