//! Whether a wake becomes a run now, later, or not at all: the overlap setting and the hourly cap.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::settings::{Overlap, Settings};

/// What the hourly cap counts within.
const CAP_WINDOW: Duration = Duration::from_secs(3600);

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
                Some(held) => return Admission::Fold(held.clone()),
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

    /// The run that may begin now, moved to those that are going.
    pub fn next(&mut self, overlap: Overlap, chat_busy: bool) -> Option<String> {
        if (chat_busy || !self.going.is_empty()) && overlap != Overlap::Parallel {
            return None;
        }
        let run = self.waiting.pop_front()?;
        self.going.push(run.clone());
        Some(run)
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

    #[tokio::test(start_paused = true)]
    async fn one_waits_and_the_others_are_counted_into_it() {
        let mut lane = Lane::default();
        assert_eq!(admit(&mut lane, "1", Cause::Event, Overlap::Queue), Admission::Start);
        assert_eq!(admit(&mut lane, "2", Cause::Clock, Overlap::Queue), Admission::Wait);
        assert_eq!(admit(&mut lane, "3", Cause::Event, Overlap::Queue), Admission::Fold("2".into()));
        assert_eq!(admit(&mut lane, "4", Cause::Press, Overlap::Queue), Admission::Start);
        lane.leave("1");
        assert_eq!(lane.next(Overlap::Queue, false), None);
        lane.leave("4");
        assert_eq!(lane.next(Overlap::Queue, true), None, "somebody else talks in its chat");
        assert_eq!(lane.next(Overlap::Queue, false), Some("2".into()));
        assert_eq!(lane.next(Overlap::Queue, false), None);
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
