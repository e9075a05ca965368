//! The recent past of every channel, which a client that lost its connection receives. All channels share one limit,
//! and the oldest action of all is removed first.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::{FRAME_WEIGHT, Logged, OVERLAY_WEIGHT};

impl Logged {
    /// Returns the memory of an entry: a short frame is smaller than its overhead, and an overlay contains more than
    /// its frame.
    fn weight(&self) -> usize {
        let older = self.outgoing.older.as_ref().map_or(0, String::len);
        let overlay = if self.outgoing.overlay.is_some() { OVERLAY_WEIGHT } else { 0 };
        size_of::<Self>() + size_of::<Arc<str>>() + FRAME_WEIGHT + self.frame.len() + older + overlay
    }
}

/// The past of one channel.
#[derive(Debug, Default)]
struct Past {
    actions: VecDeque<Logged>,
    /// Every action of the channel after this one is retained.
    from: u64,
}

/// The past of all channels.
#[derive(Debug)]
pub(super) struct Log {
    channels: HashMap<Arc<str>, Past>,
    /// The channel of each retained action, oldest first.
    order: VecDeque<Arc<str>>,
    bytes: usize,
    limit: usize,
    /// The number before the first one of this host.
    start: u64,
    /// The latest number whose channel no longer has a past.
    forgotten: u64,
}

impl Log {
    /// Creates a log of at most `limit` bytes, of actions with numbers from `start` on.
    pub fn new(limit: usize, start: u64) -> Self {
        Self { channels: HashMap::new(), order: VecDeque::new(), bytes: 0, limit, start, forgotten: start }
    }

    /// Adds actions of one channel. They are retained until the next call of [`Log::trim`], whatever their size.
    pub fn add(&mut self, channel: &Arc<str>, actions: impl Iterator<Item = Logged>) {
        let past = self.channels.entry(channel.clone()).or_insert_with(|| {
            let from = self.forgotten;
            Past { from, ..Past::default() }
        });
        for logged in actions {
            self.bytes += logged.weight();
            past.actions.push_back(logged);
            self.order.push_back(channel.clone());
        }
    }

    /// Returns the `count` newest actions of a channel, oldest first.
    pub fn newest(&self, channel: &str, count: usize) -> impl Iterator<Item = &Logged> + Clone {
        let actions = self.channels.get(channel).map(|past| past.actions.range(past.actions.len() - count..));
        actions.into_iter().flatten()
    }

    /// Removes actions beyond the limit.
    pub fn trim(&mut self) {
        while self.bytes > self.limit {
            let Some(channel) = self.order.pop_front() else { break };
            let Some(past) = self.channels.get_mut(&channel) else { continue };
            if let Some(oldest) = past.actions.pop_front() {
                self.bytes -= oldest.weight();
                past.from = oldest.seq;
            }
            if past.actions.is_empty() {
                self.forgotten = self.forgotten.max(past.from);
                self.channels.remove(&channel);
            }
        }
    }

    /// Forgets the actions of a channel up to a number.
    pub fn forget(&mut self, channel: &str, until: u64) {
        self.forgotten = self.forgotten.max(until);
        if let Some(past) = self.channels.remove(channel) {
            self.bytes -= past.actions.iter().map(Logged::weight).sum::<usize>();
            self.order.retain(|other| **other != *channel);
        }
    }

    /// Returns the actions of a channel after a number, oldest first; `None` if some were removed.
    pub fn after(&self, channel: &str, seen: u64) -> Option<impl Iterator<Item = &Logged>> {
        let past = self.channels.get(channel);
        if seen < self.start || seen < past.map_or(self.forgotten, |past| past.from) {
            return None;
        }
        let actions = past.map(|past| {
            let first = past.actions.partition_point(|logged| logged.seq <= seen);
            past.actions.range(first..)
        });
        Some(actions.into_iter().flatten())
    }

    /// Returns whether a number is from this host.
    pub fn knows(&self, seen: u64) -> bool {
        seen >= self.start
    }
}
