//! Decides whether a wake becomes a run now, later or never: the overlap setting, the order of its event, and the
//! hourly cap.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::order::{Order, Ordered};
use super::settings::{AutomationSettings, Overlap};

/// The window of the hourly cap.
const CAP_WINDOW: Duration = Duration::from_secs(3600);
/// Number of wakes within [`BURST_WINDOW`], merged into one run, that count as a burst.
const BURST: u32 = 8;
const BURST_WINDOW: Duration = Duration::from_millis(10);
/// The longest time that a burst delays a run.
const PUT_OFF: Duration = Duration::from_millis(100);

/// What requests a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Cause<'a> {
    /// An event fired a trigger.
    Event,
    /// An event fired a trigger, and its runs are ordered.
    Ordered(&'a Order),
    /// An event that the running turn did not accept; it is already counted against the cap.
    Counted,
    /// A schedule is due.
    Clock,
    /// A client started it by hand.
    Press,
}

/// The runs of one automation that have not ended. Ordered and unordered runs do not wait for each other, unless the
/// automation is pinned and they share its chat.
#[derive(Debug, Clone, Default)]
pub(super) struct Lane {
    /// The unordered runs that have begun, oldest first.
    going: Vec<String>,
    /// The unordered runs that wait.
    waiting: VecDeque<Waiting>,
    /// The ordered runs.
    ordered: Ordered,
    /// The place of the latest accepted run.
    place: u64,
    /// When events started runs.
    woken: VecDeque<Instant>,
    /// The rate of wakes merged into the waiting run.
    counted: Rate,
    /// Since when that run, which could begin, is delayed.
    put_off: Option<Instant>,
}

/// A waiting, unordered run.
#[derive(Debug, Clone)]
struct Waiting {
    run: String,
    place: u64,
}

/// Which of the waiting runs may begin.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// This run begins now.
    Begin(String),
    /// No run may begin, or a later call is already scheduled for it.
    Nothing,
    /// The caller should ask again after this time.
    Later(Duration),
}

/// The number of wakes in the current window and in the previous one.
#[derive(Debug, Clone, Default)]
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

/// The decision on a wake.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// A run begins.
    Start,
    /// A run waits.
    Wait,
    /// The wake is merged into this waiting run.
    Fold(String),
    /// The wake's message goes into the running turn, of this newest begun run if there is one.
    Steer(Option<String>),
    /// The wake is dropped, and counted in this run.
    Drop(Option<String>),
    /// The wake is dropped: this many runs were started within the hour.
    Capped(usize),
}

impl Lane {
    /// Returns the waiting run that a wake is merged into, or `None` if [`Lane::admit`] has to decide. Adds the wake to the
    /// rate of merged wakes. During a burst, nearly every wake is merged, and none of those needs a separate run.
    pub fn merge(&mut self, cause: Cause<'_>, settings: &AutomationSettings, now: Instant) -> Option<&str> {
        let overlap = match cause {
            Cause::Ordered(_) | Cause::Press => return None,
            Cause::Counted => Overlap::Queue,
            Cause::Event | Cause::Clock => settings.overlap_in_effect(),
        };
        let held = match overlap {
            Overlap::Queue | Overlap::Steer => self.waiting.back()?,
            Overlap::Parallel | Overlap::Skip => return None,
        };
        self.counted.count(now);
        Some(&held.run)
    }

    /// Decides on a wake. Adds its run if it gets one.
    pub fn admit(
        &mut self,
        run: &str,
        cause: Cause<'_>,
        settings: &AutomationSettings,
        chat_busy: bool,
        now: Instant,
    ) -> Admission {
        if let Cause::Ordered(order) = cause {
            return self.admit_ordered(run, order, settings, chat_busy, now);
        }
        if let Some(held) = self.merge(cause, settings, now) {
            return Admission::Fold(held.to_owned());
        }
        let overlap = match cause {
            Cause::Counted => Overlap::Queue,
            _ => settings.overlap_in_effect(),
        };
        let busy = chat_busy
            || !self.going.is_empty()
            || !self.waiting.is_empty()
            || settings.pinned && !self.ordered.is_empty();
        let how = match (busy, cause, overlap) {
            (false, ..) | (_, Cause::Press, _) | (_, _, Overlap::Parallel) => Admission::Start,
            (true, _, Overlap::Skip) => {
                let waiting = self.waiting.back().map(|held| &held.run);
                return Admission::Drop(self.going.last().or(waiting).cloned());
            }
            (true, Cause::Event, Overlap::Steer) => Admission::Steer(self.going.last().cloned()),
            (true, ..) => Admission::Wait,
        };
        if cause == Cause::Event
            && let Err(times) = self.count(settings, now)
        {
            return Admission::Capped(times);
        }
        match how {
            Admission::Start => self.going.push(run.to_owned()),
            Admission::Wait => {
                self.place += 1;
                self.waiting.push_back(Waiting { run: run.to_owned(), place: self.place });
            }
            _ => {}
        }
        how
    }

    /// Decides on an ordered event and adds its run.
    fn admit_ordered(
        &mut self,
        run: &str,
        order: &Order,
        settings: &AutomationSettings,
        chat_busy: bool,
        now: Instant,
    ) -> Admission {
        if let Err(times) = self.count(settings, now) {
            return Admission::Capped(times);
        }
        self.place += 1;
        if self.waits(order, settings, chat_busy) {
            self.ordered.wait(run, order, self.place);
            return Admission::Wait;
        }
        self.ordered.begin(run, order);
        Admission::Start
    }

    /// Whether a run with this order has to wait.
    fn waits(&self, order: &Order, settings: &AutomationSettings, chat_busy: bool) -> bool {
        match settings.pinned {
            true => {
                chat_busy || !self.going.is_empty() || !self.waiting.is_empty() || !self.ordered.is_empty()
            }
            false => self.ordered.is_taken(order.key),
        }
    }

    /// Whether this many runs with this order can be accepted: those that have to wait need room.
    pub fn has_room(
        &self,
        order: &Order,
        runs: usize,
        settings: &AutomationSettings,
        chat_busy: bool,
    ) -> bool {
        let begin = usize::from(!self.waits(order, settings, chat_busy));
        self.ordered.has_room(order, runs.saturating_sub(begin))
    }

    /// Returns the place of the latest accepted run.
    pub fn place(&self) -> u64 {
        self.place
    }

    /// Counts a wake against the hourly cap. Returns the number of wakes as the error if it has reached the cap.
    fn count(&mut self, settings: &AutomationSettings, now: Instant) -> Result<(), usize> {
        while self.woken.front().is_some_and(|at| now.duration_since(*at) >= CAP_WINDOW) {
            self.woken.pop_front();
        }
        if self.woken.len() >= settings.cap() {
            return Err(self.woken.len());
        }
        self.woken.push_back(now);
        Ok(())
    }

    /// Adds a run that was waiting when the host stopped, after those accepted before it.
    pub fn resume(&mut self, run: &str, order: Option<&Order>, place: u64) {
        self.place = self.place.max(place);
        match order {
            Some(order) => self.ordered.wait(run, order, place),
            None => self.waiting.push_back(Waiting { run: run.to_owned(), place }),
        }
    }

    /// Adds a run that had begun when its host stopped and that starts again.
    pub fn go_on(&mut self, run: &str, order: Option<&Order>, place: u64) {
        self.place = self.place.max(place);
        match order {
            Some(order) => self.ordered.begin(run, order),
            None => self.going.push(run.to_owned()),
        }
    }

    /// Sets how long ago events started runs, oldest first, as another host counted them.
    pub fn set_woken(&mut self, woken: &[Duration], now: Instant) {
        self.woken = woken.iter().filter_map(|ago| now.checked_sub(*ago)).collect();
    }

    pub fn runs(&self) -> impl Iterator<Item = &String> {
        let waiting = self.waiting.iter().map(|held| &held.run);
        self.going.iter().chain(waiting).chain(self.ordered.runs())
    }

    /// Returns how many runs wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len() + self.ordered.waiting()
    }

    /// Moves the run that may begin now to the begun ones. During a burst of wakes merged into it, the run is delayed
    /// for at most [`PUT_OFF`], because accepting the wakes comes first.
    pub fn next(&mut self, settings: &AutomationSettings, chat_busy: bool, now: Instant) -> Next {
        let mut free = !chat_busy && self.going.is_empty();
        if settings.pinned {
            free &= !self.ordered.is_going();
            // The chat goes to the run that was accepted first.
            let earlier = |ordered| self.waiting.front().is_none_or(|held| ordered < held.place);
            if free
                && self.ordered.first().is_some_and(earlier)
                && let Some(run) = self.ordered.next()
            {
                return Next::Begin(run);
            }
        } else {
            free |= settings.overlap_in_effect() == Overlap::Parallel;
            if let Some(run) = self.ordered.next() {
                return Next::Begin(run);
            }
        }
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
            Some(Waiting { run, .. }) => {
                self.going.push(run.clone());
                Next::Begin(run)
            }
            None => Next::Nothing,
        }
    }

    /// Removes and returns the waiting runs.
    pub fn take_waiting(&mut self) -> Vec<String> {
        let waiting = self.waiting.drain(..).map(|held| held.run);
        waiting.chain(self.ordered.take_waiting()).collect()
    }

    /// Removes a run.
    pub fn leave(&mut self, run: &str) {
        self.going.retain(|held| held != run);
        self.waiting.retain(|held| held.run != run);
        self.ordered.leave(run);
    }

    /// Whether the lane can be removed: no run and no recent wake.
    pub fn is_idle(&self, now: Instant) -> bool {
        let old = self.woken.back().is_none_or(|at| now.duration_since(*at) >= CAP_WINDOW);
        self.going.is_empty() && self.waiting.is_empty() && self.ordered.is_empty() && old
    }
}

#[cfg(test)]
mod tests {
    use ostler_contract::{Value, json};

    use super::super::order::MOST_WAITING;
    use super::super::order::tests::by;
    use super::*;

    const CAP: usize = 20;

    fn set(overlap: Overlap) -> AutomationSettings {
        AutomationSettings { overlap, ..AutomationSettings::default() }
    }

    fn admit(lane: &mut Lane, run: &str, cause: Cause<'_>, overlap: Overlap) -> Admission {
        lane.admit(run, cause, &set(overlap), false, Instant::now())
    }

    fn next(lane: &mut Lane, chat_busy: bool) -> Next {
        lane.next(&set(Overlap::Queue), chat_busy, Instant::now())
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
        let more = AutomationSettings { hourly_cap: Some(CAP + 1), ..AutomationSettings::default() };
        assert_eq!(
            lane.admit("z", Cause::Event, &more, false, Instant::now()),
            Admission::Wait,
            "it has its own cap"
        );
    }

    fn ordered(lane: &mut Lane, run: &str, value: Value, settings: &AutomationSettings) -> Admission {
        lane.admit(run, Cause::Ordered(&by(value)), settings, false, Instant::now())
    }

    fn all_next(lane: &mut Lane, settings: &AutomationSettings) -> Vec<String> {
        let begin = || match lane.next(settings, false, Instant::now()) {
            Next::Begin(run) => Some(run),
            _ => None,
        };
        std::iter::from_fn(begin).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn ordered_runs_wait_for_those_of_their_value_alone_and_are_not_counted_together() {
        for overlap in [Overlap::Queue, Overlap::Skip, Overlap::Parallel, Overlap::Steer] {
            let (mut lane, settings) = (Lane::default(), set(overlap));
            assert_eq!(admit(&mut lane, "u1", Cause::Event, overlap), Admission::Start);
            assert_eq!(ordered(&mut lane, "a1", json!("a"), &settings), Admission::Start);
            assert_eq!(ordered(&mut lane, "a2", json!("a"), &settings), Admission::Wait);
            assert_eq!(ordered(&mut lane, "b1", json!("b"), &settings), Admission::Start);
            assert_eq!(ordered(&mut lane, "a3", json!("a"), &settings), Admission::Wait);
            assert_eq!(ordered(&mut lane, "b2", json!("b"), &settings), Admission::Wait);
            assert_eq!(lane.waiting(), 3);
            let unordered = admit(&mut lane, "u2", Cause::Event, overlap);
            assert_eq!(
                unordered,
                match overlap {
                    Overlap::Queue => Admission::Wait,
                    Overlap::Skip => Admission::Drop(Some("u1".into())),
                    Overlap::Parallel => Admission::Start,
                    Overlap::Steer => Admission::Steer(Some("u1".into())),
                }
            );
            assert_eq!(all_next(&mut lane, &settings), [""; 0], "{overlap:?}");
            lane.leave("b1");
            lane.leave("a1");
            assert_eq!(all_next(&mut lane, &settings), ["a2", "b2"], "{overlap:?}");
            lane.leave("a2");
            assert_eq!(all_next(&mut lane, &settings), ["a3"]);
            for run in ["a3", "b2", "u1", "u2"] {
                lane.leave(run);
            }
            assert!(!lane.is_idle(Instant::now()), "the cap is remembered");
            tokio::time::advance(CAP_WINDOW).await;
            assert!(lane.is_idle(Instant::now()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_that_puts_off_another_run_puts_off_no_ordered_one() {
        let (mut lane, settings) = (Lane::default(), set(Overlap::Queue));
        admit(&mut lane, "1", Cause::Event, Overlap::Queue);
        admit(&mut lane, "2", Cause::Event, Overlap::Queue);
        for _ in 0..BURST {
            admit(&mut lane, "x", Cause::Event, Overlap::Queue);
        }
        for run in ["a1", "a2"] {
            ordered(&mut lane, run, json!("a"), &settings);
        }
        lane.leave("1");
        lane.leave("a1");
        assert_eq!(next(&mut lane, false), Next::Begin("a2".into()));
        assert_eq!(next(&mut lane, false), Next::Later(BURST_WINDOW));
    }

    #[tokio::test(start_paused = true)]
    async fn the_one_chat_of_a_pinned_automation_is_for_whoever_came_first() {
        let settings = AutomationSettings { pinned: true, ..set(Overlap::Queue) };
        let mut lane = Lane::default();
        assert_eq!(ordered(&mut lane, "a1", json!("a"), &settings), Admission::Start);
        assert_eq!(ordered(&mut lane, "b1", json!("b"), &settings), Admission::Wait, "another value too");
        let unordered =
            |lane: &mut Lane, run| lane.admit(run, Cause::Event, &settings, false, Instant::now());
        assert_eq!(unordered(&mut lane, "u1"), Admission::Wait);
        assert_eq!(ordered(&mut lane, "a2", json!("a"), &settings), Admission::Wait);
        assert_eq!(unordered(&mut lane, "u2"), Admission::Fold("u1".into()));
        let mut order = Vec::new();
        for ended in ["a1", "b1", "u1", "a2"] {
            assert_eq!(all_next(&mut lane, &settings), [""; 0]);
            lane.leave(ended);
            assert_eq!(lane.next(&settings, true, Instant::now()), Next::Nothing, "somebody talks in it");
            order.extend(all_next(&mut lane, &settings));
        }
        assert_eq!(order, ["b1", "u1", "a2"]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_cap_counts_ordered_runs_of_every_value() {
        let mut lane = Lane::default();
        let settings = AutomationSettings { hourly_cap: Some(3), ..AutomationSettings::default() };
        assert_eq!(ordered(&mut lane, "a1", json!("a"), &settings), Admission::Start);
        assert_eq!(ordered(&mut lane, "a2", json!("a"), &settings), Admission::Wait);
        assert_eq!(ordered(&mut lane, "b1", json!("b"), &settings), Admission::Start);
        assert_eq!(ordered(&mut lane, "c1", json!("c"), &settings), Admission::Capped(3));
        tokio::time::advance(CAP_WINDOW).await;
        assert_eq!(ordered(&mut lane, "c2", json!("c"), &settings), Admission::Start);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_queue_has_room_for_what_need_not_wait() {
        let mut lane = Lane::default();
        let settings = AutomationSettings { hourly_cap: Some(usize::MAX), ..AutomationSettings::default() };
        for run in 0..=MOST_WAITING {
            assert!(lane.has_room(&by(json!("a")), 1, &settings, false));
            ordered(&mut lane, &run.to_string(), json!("a"), &settings);
        }
        assert!(!lane.has_room(&by(json!("a")), 1, &settings, false));
        assert!(lane.has_room(&by(json!("b")), 1, &settings, false), "it begins immediately");
        assert!(!lane.has_room(&by(json!("b")), 2, &settings, false), "the second one waits");
        lane.leave("0");
        all_next(&mut lane, &settings);
        assert!(lane.has_room(&by(json!("a")), 1, &settings, false));
    }

    #[tokio::test(start_paused = true)]
    async fn what_waited_when_the_host_stopped_comes_before_what_is_accepted_later() {
        let (mut lane, settings) = (Lane::default(), set(Overlap::Queue));
        lane.resume("a1", Some(&by(json!("a"))), 7);
        lane.resume("a2", Some(&by(json!("a"))), 8);
        assert_eq!(ordered(&mut lane, "a3", json!("a"), &settings), Admission::Wait);
        assert_eq!(lane.place(), 9);
        for run in ["a1", "a2", "a3"] {
            assert_eq!(all_next(&mut lane, &settings), [run]);
            lane.leave(run);
        }
    }
}
