//! The recent past of every channel: what a client that lost its connection is sent of the channels it had. All channels
//! share one limit, and the oldest action of all goes first.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::{FRAME_WEIGHT, Logged, OVERLAY_WEIGHT};

impl Logged {
    /// What it takes in memory to keep it: a short frame takes less than what stands around it, and an overlay holds
    /// more than its frame shows.
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
    /// Every action of the channel after this one is there.
    from: u64,
}

/// The past of all channels.
#[derive(Debug)]
pub(super) struct Log {
    channels: HashMap<Arc<str>, Past>,
    /// The channel of each action there is, oldest first.
    order: VecDeque<Arc<str>>,
    bytes: usize,
    limit: usize,
    /// The number before the first one of this host.
    start: u64,
    /// The latest number whose channel has no past any more.
    forgotten: u64,
}

impl Log {
    /// A log of at most `limit` bytes, of actions that are numbered from `start` on.
    pub fn new(limit: usize, start: u64) -> Self {
        Self { channels: HashMap::new(), order: VecDeque::new(), bytes: 0, limit, start, forgotten: start }
    }

    /// Adds actions of one channel. They are there until the next call of [`Log::trim`], however large they are.
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

    /// The `count` newest actions of a channel, oldest first.
    pub fn newest(&self, channel: &str, count: usize) -> impl Iterator<Item = &Logged> + Clone {
        let actions = self.channels.get(channel).map(|past| past.actions.range(past.actions.len() - count..));
        actions.into_iter().flatten()
    }

    /// Removes what is over the limit.
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

    /// The actions of a channel after a number, oldest first; `None` where some are gone.
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

    /// Whether a number is one of this host.
    pub fn knows(&self, seen: u64) -> bool {
        seen >= self.start
    }
}
