//! Returns free memory to the system whenever the daemon is idle.
//!
//! A daemon often waits for hours. The memory that its start or a busy hour left free in the allocator is not needed
//! then.

use std::time::Duration;

/// How long the process has to be idle before memory is trimmed.
const REST: Duration = Duration::from_secs(1);
/// How often the process is checked after a trim.
const SELDOM: Duration = Duration::from_secs(10);
/// A process that uses less than one part in so many of the time is idle.
const RESTS: u32 = 100;
/// A process that is never idle is also trimmed once its memory has grown by so much since the last trim.
const MORE: usize = 32 * 1024 * 1024;
/// The minimum interval of trims of such a process.
const PAUSE: Duration = Duration::from_secs(5);
/// CPU time that must pass before memory is trimmed again.
const WORK: Duration = Duration::from_millis(100);

/// Trims memory after the start and after each period of work, as long as it is polled.
pub async fn watch() {
    let Some(now) = processor_time() else { return };
    let mut rest = Rest { seen: now, trimmed: None };
    let (mut last, mut left) = (tokio::time::Instant::now(), ostler_memory::resident().unwrap_or_default());
    loop {
        tokio::time::sleep(rest.window()).await;
        let Some(now) = processor_time() else { return };
        let has_more = || ostler_memory::resident().is_some_and(|resident| resident > left + MORE);
        if rest.look(now) || last.elapsed() >= PAUSE && has_more() {
            // The allocator takes milliseconds for a large heap.
            let _ = tokio::task::spawn_blocking(ostler_memory::trim).await;
            (last, left) = (tokio::time::Instant::now(), ostler_memory::resident().unwrap_or_default());
        }
    }
}

/// The CPU time of this process, as far as the next trim depends on it.
struct Rest {
    /// The CPU time at the last check.
    seen: Duration,
    /// The CPU time when memory was last trimmed.
    trimmed: Option<Duration>,
}

impl Rest {
    /// Returns whether enough work was done for a trim.
    fn due(&self) -> bool {
        self.trimmed.is_none_or(|trimmed| self.seen.saturating_sub(trimmed) > WORK)
    }

    /// Returns how long to wait until the next check.
    fn window(&self) -> Duration {
        if self.due() { REST } else { SELDOM }
    }

    /// Records the CPU time one window after the last check; returns whether to trim now.
    fn look(&mut self, now: Duration) -> bool {
        let rested = now.saturating_sub(self.seen) < self.window() / RESTS;
        let trims = self.due() && rested;
        self.seen = now;
        if trims {
            self.trimmed = Some(now);
        }
        trims
    }
}

/// Returns the CPU time of this process.
#[cfg(target_os = "linux")]
fn processor_time() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).ok()
}

/// Memory is not trimmed on other systems.
#[cfg(not(target_os = "linux"))]
fn processor_time() -> Option<Duration> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_trims_once_after_each_time_of_work() {
        let ms = Duration::from_millis;
        let mut rest = Rest { seen: ms(20), trimmed: None };
        assert_eq!(rest.window(), REST);
        assert!(!rest.look(ms(400)), "it starts");
        assert!(rest.look(ms(401)), "it has started");
        assert_eq!(rest.window(), SELDOM);
        assert!(!rest.look(ms(402)), "nothing has come since");
        assert!(!rest.look(ms(490)), "too little has come since");
        assert!(!rest.look(ms(900)), "it works");
        assert_eq!(rest.window(), REST);
        assert!(!rest.look(ms(910)), "it works still");
        assert!(rest.look(ms(911)), "it has worked");
        assert_eq!(rest.window(), SELDOM);
    }
}
