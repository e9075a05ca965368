//! Whether a wake becomes a run now, later, or not at all: the overlap setting and the hourly cap.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::settings::{Overlap, Settings};

/// What the hourly cap counts within.
const CAP_WINDOW: Duration = Duration::from_secs(3600);
/// So many wakes within [`BURST_WINDOW`], counted into one run, are a burst.
const BURST: u32 = 8;
const BURST_WINDOW: Duration = Duration::from_millis(10);
/// How long a run is put off at most during a burst.
const PUT_OFF: Duration = Duration::from_millis(100);

/// What asks for a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// A trigger heard an event.
    Event,
    /// The same, counted against the cap already, which the running turn did not take.
    Counted,
    /// A schedule is due.
    Clock,
    /// Somebody pressed a button.
    Press,
}

/// The runs of one automation that have not ended.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Those that were begun, oldest first.
    pub going: Vec<String>,
    /// Those that wait for them.
    pub waiting: VecDeque<String>,
    /// When events started runs.
    woken: VecDeque<Instant>,
    /// The wakes counted into the run that waits.
    counted: Rate,
    /// Since when that run is put off though it may begin.
    put_off: Option<Instant>,
}

/// What may begin of the runs that wait.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// This one, now.
    Begin(String),
    /// None, or a later call is arranged for it.
    Nothing,
    /// To be asked again after this time.
    Later(Duration),
}

/// How many wakes came in the window that runs and in the one before.
#[derive(Debug, Default)]
struct Rate {
    begun: Option<Instant>,
    now: u32,
    before: u32,
}

impl Rate {
    fn count(&mut self, now: Instant) {
        match self.begun.map(|begun| now.duration_since(begun)) {
            Some(age) if age < BURST_WINDOW => {}
            Some(age) => {
                self.before = if age < 2 * BURST_WINDOW { self.now } else { 0 };
                (self.begun, self.now) = (Some(now), 0);
            }
            None => self.begun = Some(now),
        }
        self.now = self.now.saturating_add(1);
    }

    fn is_burst(&self, now: Instant) -> bool {
        let age = self.begun.map(|begun| now.duration_since(begun));
        age.is_some_and(|age| {
            age < 2 * BURST_WINDOW && self.now >= BURST || age < BURST_WINDOW && self.before >= BURST
        })
    }
}

/// What becomes of a wake.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// A run begins.
    Start,
    /// A run waits.
    Wait,
    /// It is counted into a run that waits.
    Fold(String),
    /// It is to be said in the running turn; the newest run, where one is going.
    Steer(Option<String>),
    /// Nothing; the run it fell to.
    Drop(Option<String>),
    /// Nothing, after so many within the hour.
    Capped(usize),
}

impl Lane {
    /// Decides on a wake, and puts its run in its place where one comes of it.
    pub fn admit(
        &mut self,
        run: &str,
        cause: Cause,
        settings: &Settings,
        chat_busy: bool,
        now: Instant,
    ) -> Admission {
        let overlap = match cause {
            Cause::Counted => Overlap::Queue,
            _ => settings.overlap_in_effect(),
        };
        let busy = chat_busy || !self.going.is_empty() || !self.waiting.is_empty();
        let how = match (busy, cause, overlap) {
            (false, ..) | (_, Cause::Press, _) | (_, _, Overlap::Parallel) => Admission::Start,
            (true, _, Overlap::Skip) => {
                return Admission::Drop(self.going.last().or(self.waiting.back()).cloned());
            }
            (true, Cause::Event, Overlap::Steer) if self.waiting.is_empty() => {
                Admission::Steer(self.going.last().cloned())
            }
            (true, ..) => match self.waiting.back() {
                Some(held) => {
                    self.counted.count(now);
                    return Admission::Fold(held.clone());
                }
                None => Admission::Wait,
            },
        };
        if cause == Cause::Event {
            while self.woken.front().is_some_and(|at| now.duration_since(*at) >= CAP_WINDOW) {
                self.woken.pop_front();
            }
            if self.woken.len() >= settings.cap() {
                return Admission::Capped(self.woken.len());
            }
            self.woken.push_back(now);
        }
        match how {
            Admission::Start => self.going.push(run.to_owned()),
            Admission::Wait => self.waiting.push_back(run.to_owned()),
            _ => {}
        }
        how
    }

    /// Takes the run that may begin now to those that are going. During a burst of wakes counted into it, it is put off:
    /// accepting them comes first, for at most [`PUT_OFF`].
    pub fn next(&mut self, overlap: Overlap, chat_busy: bool, now: Instant) -> Next {
        let free = !chat_busy && self.going.is_empty() || overlap == Overlap::Parallel;
        if !free || self.waiting.is_empty() {
            return Next::Nothing;
        }
        match self.put_off {
            _ if !self.counted.is_burst(now) => {}
            None => {
                self.put_off = Some(now);
                return Next::Later(BURST_WINDOW);
            }
            Some(since) if now.duration_since(since) < PUT_OFF => return Next::Later(BURST_WINDOW),
            Some(_) => {}
        }
        self.put_off = None;
        self.counted = Rate::default();
        match self.waiting.pop_front() {
            Some(run) => {
                self.going.push(run.clone());
                Next::Begin(run)
            }
            None => Next::Nothing,
        }
    }

    /// Takes a run out.
    pub fn leave(&mut self, run: &str) {
        self.going.retain(|held| held != run);
        self.waiting.retain(|held| held != run);
    }

    /// Whether there is nothing to remember.
    pub fn is_idle(&self, now: Instant) -> bool {
        let old = self.woken.back().is_none_or(|at| now.duration_since(*at) >= CAP_WINDOW);
        self.going.is_empty() && self.waiting.is_empty() && old
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAP: usize = 20;

    fn set(overlap: Overlap) -> Settings {
        Settings { overlap, ..Settings::default() }
    }

    fn admit(lane: &mut Lane, run: &str, cause: Cause, overlap: Overlap) -> Admission {
        lane.admit(run, cause, &set(overlap), false, Instant::now())
    }

    fn next(lane: &mut Lane, chat_busy: bool) -> Next {
        lane.next(Overlap::Queue, chat_busy, Instant::now())
    }

    #[tokio::test(start_paused = true)]
    async fn one_waits_and_the_others_are_counted_into_it() {
        let mut lane = Lane::default();
        assert_eq!(admit(&mut lane, "1", Cause::Event, Overlap::Queue), Admission::Start);
        assert_eq!(admit(&mut lane, "2", Cause::Clock, Overlap::Queue), Admission::Wait);
        assert_eq!(admit(&mut lane, "3", Cause::Event, Overlap::Queue), Admission::Fold("2".into()));
        assert_eq!(admit(&mut lane, "4", Cause::Press, Overlap::Queue), Admission::Start);
        lane.leave("1");
        assert_eq!(next(&mut lane, false), Next::Nothing);
        lane.leave("4");
        assert_eq!(next(&mut lane, true), Next::Nothing, "somebody else talks in its chat");
        assert_eq!(next(&mut lane, false), Next::Begin("2".into()));
        assert_eq!(next(&mut lane, false), Next::Nothing);
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_is_put_off_during_a_burst_and_no_longer_than_the_bound() {
        let mut lane = Lane::default();
        admit(&mut lane, "1", Cause::Event, Overlap::Queue);
        admit(&mut lane, "2", Cause::Event, Overlap::Queue);
        lane.leave("1");
        let fold = |lane: &mut Lane, wakes| {
            for _ in 0..wakes {
                assert_eq!(admit(lane, "x", Cause::Event, Overlap::Queue), Admission::Fold("2".into()));
            }
        };
        fold(&mut lane, BURST);
        let begun = Instant::now();
        while next(&mut lane, false) == Next::Later(BURST_WINDOW) {
            fold(&mut lane, 2);
            tokio::time::advance(Duration::from_millis(2)).await;
        }
        assert_eq!(begun.elapsed(), PUT_OFF, "though the burst continues");
        assert_eq!(lane.going, ["2"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_begins_once_a_burst_is_over_and_immediately_where_there_is_none() {
        let mut lane = Lane::default();
        for (wakes, put_off) in [(BURST - 1, Duration::ZERO), (10 * BURST, 2 * BURST_WINDOW)] {
            admit(&mut lane, "1", Cause::Event, Overlap::Queue);
            admit(&mut lane, "2", Cause::Event, Overlap::Queue);
            for _ in 0..wakes {
                admit(&mut lane, "x", Cause::Event, Overlap::Queue);
            }
            lane.leave("1");
            let ended = Instant::now();
            while let Next::Later(wait) = next(&mut lane, false) {
                tokio::time::advance(wait).await;
            }
            assert_eq!(lane.going, ["2"]);
            assert_eq!(ended.elapsed(), put_off, "{wakes} wakes");
            lane.leave("2");
            tokio::time::advance(BURST_WINDOW).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_mode_does_its_own() {
        let mut lane = Lane::default();
        assert_eq!(admit(&mut lane, "1", Cause::Event, Overlap::Skip), Admission::Start);
        assert_eq!(admit(&mut lane, "2", Cause::Event, Overlap::Skip), Admission::Drop(Some("1".into())));
        assert_eq!(admit(&mut lane, "3", Cause::Clock, Overlap::Skip), Admission::Drop(Some("1".into())));
        assert_eq!(admit(&mut lane, "4", Cause::Event, Overlap::Parallel), Admission::Start);
        assert_eq!(admit(&mut lane, "5", Cause::Event, Overlap::Steer), Admission::Steer(Some("4".into())));
        assert_eq!(admit(&mut lane, "6", Cause::Clock, Overlap::Steer), Admission::Wait);
        assert_eq!(admit(&mut lane, "7", Cause::Event, Overlap::Steer), Admission::Fold("6".into()));
        assert_eq!(
            Lane::default().admit("1", Cause::Event, &set(Overlap::Skip), true, Instant::now()),
            Admission::Drop(None)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn events_start_so_many_an_hour_and_no_more() {
        let mut lane = Lane::default();
        for at in 0..CAP {
            let run = at.to_string();
            assert_eq!(admit(&mut lane, &run, Cause::Event, Overlap::Parallel), Admission::Start);
            lane.leave(&run);
            tokio::time::advance(Duration::from_secs(60)).await;
        }
        assert_eq!(admit(&mut lane, "x", Cause::Event, Overlap::Queue), Admission::Capped(CAP));
        assert!(lane.going.is_empty());
        assert_eq!(admit(&mut lane, "clock", Cause::Clock, Overlap::Queue), Admission::Start);
        assert_eq!(admit(&mut lane, "hand", Cause::Press, Overlap::Queue), Admission::Start);
        lane.leave("clock");
        lane.leave("hand");
        tokio::time::advance(CAP_WINDOW - Duration::from_secs(60 * CAP as u64)).await;
        assert_eq!(
            admit(&mut lane, "y", Cause::Event, Overlap::Queue),
            Admission::Start,
            "the first is an hour old"
        );
        assert!(!lane.is_idle(Instant::now()));
        let more = Settings { hourly_cap: Some(CAP + 1), ..Settings::default() };
        assert_eq!(
            lane.admit("z", Cause::Event, &more, false, Instant::now()),
            Admission::Wait,
            "it has its own cap"
        );
    }
}
