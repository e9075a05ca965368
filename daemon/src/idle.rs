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
    let Some(now) = processor_time() else { return };
    let mut rest = Rest { seen: now, given: None };
    loop {
        tokio::time::sleep(rest.window()).await;
        let Some(now) = processor_time() else { return };
        if rest.look(now) {
            ostler_memory::give_back();
        }
    }
}

/// What is known of the time this process spent on a processor.
struct Rest {
    /// When it was last looked at.
    seen: Duration,
    /// When memory was last given back.
    given: Option<Duration>,
}

impl Rest {
    /// Whether there is something to give back.
    fn due(&self) -> bool {
        self.given.is_none_or(|given| self.seen.saturating_sub(given) > WORK)
    }

    /// How long to wait until the next look.
    fn window(&self) -> Duration {
        if self.due() { REST } else { SELDOM }
    }

    /// Takes the time of now, a window after the last; answers whether memory is to be given back.
    fn look(&mut self, now: Duration) -> bool {
        let rested = now.saturating_sub(self.seen) < self.window() / RESTS;
        let gives = self.due() && rested;
        self.seen = now;
        if gives {
            self.given = Some(now);
        }
        gives
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_gives_back_once_after_each_time_of_work() {
        let ms = Duration::from_millis;
        let mut rest = Rest { seen: ms(20), given: None };
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
