//! The record of a profile: a tree of the functions that called each other, and the time in each of its nodes.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use super::Frame;

/// The time between two samples.
pub(super) const INTERVAL: Duration = Duration::from_millis(1);
/// The maximum number of intervals; the profile ends with the last one. Two minutes without a pause.
const MOST_INTERVALS: usize = 120_000;
/// The maximum number of nodes. The time in later ones is that of their caller.
const MOST_NODES: usize = 20_000;
/// The maximum number of functions. Later ones are `(program)`.
const MOST_FUNCTIONS: usize = 5_000;

/// The indices of the nodes that every profile has.
const ROOT: usize = 0;
const PROGRAM: usize = 1;
const IDLE: usize = 2;

/// A CPU profile in the form of a `.cpuprofile` file of V8. Times are microseconds.
#[derive(Debug, Clone, Default)]
pub struct CpuProfile {
    /// The tree of calls; the first node is its root.
    pub nodes: Vec<ProfileNode>,
    /// When it began and ended, by a clock of its own.
    pub start: u64,
    #[allow(missing_docs)]
    pub end: u64,
    /// The ids of nodes, in the order of time: each from its time on until the next one.
    pub samples: Vec<u32>,
    /// For each sample, the time since the one before, and for the first one since the start.
    pub deltas: Vec<u64>,
    /// Whether it ended before it was asked to, because it was full.
    pub is_full: bool,
}

/// A function, called along one path.
#[derive(Debug, Clone, Default)]
pub struct ProfileNode {
    /// Its number, from 1.
    pub id: u32,
    /// The name of the function, `(root)`, `(program)` or `(idle)`; empty if it has none.
    pub function: String,
    /// A number for each file; 0 if there is none.
    pub script: u32,
    /// The URL of the file that defines it; empty if there is none.
    pub url: String,
    /// Where its definition begins, line and column counted from 0.
    pub at: Option<(u32, u32)>,
    /// How many samples it was the innermost function of.
    pub hits: u32,
    /// The ids of the functions that it called.
    pub children: Vec<u32>,
}

#[derive(Debug)]
struct Node {
    function: usize,
    parent: usize,
    hits: u32,
}

#[derive(Debug)]
pub(super) struct Recording {
    epoch: Instant,
    begun: Instant,
    /// Until when time is accounted for.
    until: Instant,
    /// When the next sample is due.
    due: Instant,
    is_busy: bool,
    /// The time of turns that no sample has yet. The engine polls after a number of instructions, in whatever turn, so
    /// that it belongs to the next sample.
    unsampled: Duration,
    idle: Duration,
    functions: Vec<Frame>,
    /// By function as the engine has it.
    by_function: HashMap<Frame, usize>,
    nodes: Vec<Node>,
    /// By caller and function.
    by_call: HashMap<(usize, usize), usize>,
    intervals: Vec<(usize, Duration)>,
    is_full: bool,
}

impl Recording {
    pub(super) fn new(epoch: Instant, now: Instant, is_busy: bool) -> Self {
        let named = |name: &str| Frame { name: name.to_owned(), ..Frame::default() };
        let node = |function| Node { function, parent: ROOT, hits: 0 };
        Self {
            epoch,
            begun: now,
            until: now,
            due: now + INTERVAL,
            is_busy,
            unsampled: Duration::ZERO,
            idle: Duration::ZERO,
            functions: ["(root)", "(program)", "(idle)"].map(named).into(),
            by_function: HashMap::new(),
            nodes: [ROOT, PROGRAM, IDLE].map(node).into(),
            by_call: HashMap::new(),
            intervals: Vec::new(),
            is_full: false,
        }
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.due && !self.is_full
    }

    pub(super) fn turn(&mut self, is_busy: bool, now: Instant) {
        self.advance(now);
        // Shorter ones are added up, so that many short turns do not fill the record.
        if is_busy && self.idle >= INTERVAL {
            let idle = std::mem::take(&mut self.idle);
            self.push(IDLE, idle);
        }
        if !is_busy && self.unsampled >= INTERVAL {
            let program = std::mem::take(&mut self.unsampled);
            self.push(PROGRAM, program);
        }
        self.is_busy = is_busy;
    }

    pub(super) fn sample(
        &mut self,
        running: Vec<Frame>,
        origin: impl Fn(&Frame) -> Option<Frame>,
        now: Instant,
    ) {
        self.due = now + INTERVAL;
        self.advance(now);
        // Where the functions could not be read, the time is that of the next sample.
        if running.is_empty() {
            return;
        }
        let node = running.into_iter().rev().fold(ROOT, |caller, frame| self.node(caller, frame, &origin));
        let time = std::mem::take(&mut self.unsampled);
        self.push(node, time);
    }

    fn advance(&mut self, now: Instant) {
        let time = now.saturating_duration_since(self.until);
        self.until = self.until.max(now);
        if self.is_full {
            return;
        }
        match self.is_busy {
            true => self.unsampled += time,
            false => self.idle += time,
        }
    }

    fn node(&mut self, caller: usize, frame: Frame, origin: impl Fn(&Frame) -> Option<Frame>) -> usize {
        let function = self.function(frame, origin);
        if let Some(known) = self.by_call.get(&(caller, function)) {
            return *known;
        }
        if self.nodes.len() >= MOST_NODES {
            return caller;
        }
        let node = self.nodes.len();
        self.nodes.push(Node { function, parent: caller, hits: 0 });
        self.by_call.insert((caller, function), node);
        node
    }

    fn function(&mut self, frame: Frame, origin: impl Fn(&Frame) -> Option<Frame>) -> usize {
        if let Some(known) = self.by_function.get(&frame) {
            return *known;
        }
        if self.functions.len() >= MOST_FUNCTIONS {
            return PROGRAM;
        }
        let function = self.functions.len();
        self.functions.push(origin(&frame).unwrap_or_else(|| frame.clone()));
        self.by_function.insert(frame, function);
        function
    }

    fn push(&mut self, node: usize, time: Duration) {
        if self.is_full || time.is_zero() {
            return;
        }
        self.intervals.push((node, time));
        if let Some(node) = self.nodes.get_mut(node) {
            node.hits += 1;
        }
        self.is_full = self.intervals.len() >= MOST_INTERVALS;
    }

    pub(super) fn end(mut self, now: Instant) -> CpuProfile {
        self.advance(now);
        let (program, idle) = (std::mem::take(&mut self.unsampled), std::mem::take(&mut self.idle));
        self.push(PROGRAM, program);
        self.push(IDLE, idle);
        let start = micros(self.begun.saturating_duration_since(self.epoch));
        let mut scripts = HashMap::new();
        let mut nodes: Vec<ProfileNode> = Vec::with_capacity(self.nodes.len());
        for (at, node) in self.nodes.iter().enumerate() {
            let Frame { name, file, at: place } = &self.functions[node.function];
            let next = u32::try_from(scripts.len()).unwrap_or(u32::MAX).saturating_add(1);
            let script = if file.is_empty() { 0 } else { *scripts.entry(file.as_str()).or_insert(next) };
            nodes.push(ProfileNode {
                id: id(at),
                function: name.clone(),
                script,
                url: url(file),
                at: place.map(|(line, column)| (line.saturating_sub(1), column.saturating_sub(1))),
                hits: node.hits,
                children: Vec::new(),
            });
            // The caller of a node is before it.
            if at != ROOT
                && let Some(caller) = nodes.get_mut(node.parent)
            {
                caller.children.push(id(at));
            }
        }
        // Rounded as times since the start, so that the error does not add up.
        let (mut samples, mut deltas) = (Vec::new(), Vec::new());
        let (mut since, mut before) = (Duration::ZERO, 0);
        for (node, time) in &self.intervals {
            samples.push(id(*node));
            let at = micros(since);
            deltas.push(at - before);
            before = at;
            since += *time;
        }
        // Readers give a sample the time until the next one.
        let length = micros(since);
        samples.push(id(if self.is_busy { PROGRAM } else { IDLE }));
        deltas.push(length - before);
        CpuProfile { nodes, start, end: start + length, samples, deltas, is_full: self.is_full }
    }
}

fn id(node: usize) -> u32 {
    u32::try_from(node).unwrap_or(u32::MAX).saturating_add(1)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Returns the URL of a file, which readers of profiles open.
fn url(file: &str) -> String {
    if !Path::new(file).is_absolute() {
        return file.to_owned();
    }
    url::Url::from_file_path(file).map_or_else(|()| file.to_owned(), String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(name: &str) -> Frame {
        Frame { name: name.to_owned(), file: "/a.ts".to_owned(), at: Some((3, 5)) }
    }

    #[test]
    fn every_moment_is_that_of_a_sample_or_a_pause() {
        let begun = Instant::now();
        let at = |millis: u64| begun + Duration::from_millis(millis);
        let mut recording = Recording::new(begun, begun, false);
        let stack = || vec![frame("inner"), frame("outer")];
        let none = |_: &Frame| None;
        recording.turn(true, at(10));
        assert!(recording.is_due(at(11)));
        recording.sample(stack(), none, at(12));
        assert!(!recording.is_due(at(12)));
        // Where the functions could not be read, the next sample has the time.
        recording.sample(Vec::new(), none, at(14));
        recording.sample(stack(), none, at(17));
        recording.turn(false, at(19));
        let profile = recording.end(at(25));
        let names: Vec<&str> = profile.nodes.iter().map(|node| node.function.as_str()).collect();
        assert_eq!(names, ["(root)", "(program)", "(idle)", "outer", "inner"]);
        assert_eq!(profile.samples, [3, 5, 5, 2, 3, 3]);
        assert_eq!(profile.deltas, [0, 10_000, 2_000, 5_000, 2_000, 6_000]);
        assert_eq!(profile.end - profile.start, 25_000);
        assert_eq!(
            (profile.nodes[0].children.as_slice(), profile.nodes[3].children.as_slice()),
            (&[2, 3, 4][..], &[5][..])
        );
        assert_eq!((profile.nodes[4].hits, profile.nodes[4].at), (2, Some((2, 4))));
        assert_eq!((profile.nodes[4].url.as_str(), profile.nodes[4].script), ("file:///a.ts", 1));
        assert!(!profile.is_full);
    }

    #[test]
    fn a_profile_has_a_limit_in_every_direction() {
        let begun = Instant::now();
        let mut recording = Recording::new(begun, begun, true);
        let mut now = begun;
        for at in 0..MOST_INTERVALS + 10 {
            now += INTERVAL;
            recording.sample(vec![frame(&at.to_string())], |_| None, now);
        }
        assert!(!recording.is_due(now + INTERVAL), "nothing is read for a full profile");
        let profile = recording.end(now + INTERVAL);
        assert!(profile.is_full);
        assert_eq!(profile.samples.len(), MOST_INTERVALS + 1);
        assert!(profile.nodes.len() <= MOST_FUNCTIONS + 1, "{}", profile.nodes.len());
        assert_eq!(profile.end - profile.start, u64::try_from(MOST_INTERVALS).unwrap() * 1000);
    }

    #[test]
    fn many_short_turns_are_few_intervals() {
        let begun = Instant::now();
        let mut recording = Recording::new(begun, begun, false);
        let mut now = begun;
        for _ in 0..10_000 {
            recording.turn(true, now);
            now += Duration::from_micros(30);
            recording.turn(false, now);
            now += Duration::from_micros(70);
        }
        let profile = recording.end(now);
        assert!(profile.samples.len() < 1_000, "{}", profile.samples.len());
        assert_eq!(profile.end - profile.start, 1_000_000);
    }
}
