//! Memory given back whenever the daemon has come to rest.
//!
//! It starts once and then waits, often for hours: the pages of the program that only the start ran, and what a busy
//! hour left free in the allocator, need not stay.

use std::time::Duration;

/// How long it has to rest.
const REST: Duration = Duration::from_secs(1);
/// How often it is looked at once memory was given back.
const SELDOM: Duration = Duration::from_secs(10);
/// A process that takes less than one part in so many of the time rests.
const RESTS: u32 = 100;
/// Work worth a second time, since the last.
const WORK: Duration = Duration::from_millis(100);

/// Gives memory back after the start and after each time of work, for as long as it is polled.
pub async fn watch() {
    let mut given: Option<Duration> = None;
    let Some(mut before) = processor_time() else { return };
    loop {
        let due = given.is_none_or(|given| before - given > WORK);
        let window = if due { REST } else { SELDOM };
        tokio::time::sleep(window).await;
        let Some(now) = processor_time() else { return };
        if due && now - before < window / RESTS {
            ostler_memory::give_back();
            given = processor_time();
        }
        before = now;
    }
}

/// How long this process has run on a processor.
#[cfg(target_os = "linux")]
fn processor_time() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).ok()
}

/// Nothing is given back on other systems, so nobody looks.
#[cfg(not(target_os = "linux"))]
fn processor_time() -> Option<Duration> {
    None
}
