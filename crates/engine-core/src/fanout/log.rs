//! The recent past of every channel, which a client that lost its connection receives. All channels share one limit,
//! and the oldest action of all is removed first.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::{FRAME_WEIGHT, Logged, OVERLAY_WEIGHT};

impl Logged {
    /// Returns the memory of an action: a short frame is smaller than its overhead, and an overlay contains more than
    /// its frame.
    fn weight(&self) -> usize {
        let older = self.outgoing.older.as_ref().map_or(0, String::len);
        let overlay = if self.outgoing.overlay.is_some() { OVERLAY_WEIGHT } else { 0 };
        size_of::<Self>() + FRAME_WEIGHT + self.frame.len() + older + overlay
    }
}

/// An action of a channel, or the end of its past, among those of all channels.
#[derive(Debug)]
struct Mark {
    channel: Arc<str>,
    seq: u64,
    is_end: bool,
}

impl Mark {
    /// Returns the memory of a mark. With an end, the name of a channel without actions stays in memory.
    fn weight(&self) -> usize {
        let past = if self.is_end { size_of::<(Arc<str>, Past)>() + self.channel.len() } else { 0 };
        size_of::<Self>() + past
    }
}

/// The past of one channel.
#[derive(Debug)]
struct Past {
    actions: VecDeque<Logged>,
    /// Every action of the channel after this one is retained, and the channel has not ended since.
    from: u64,
    /// The number of its newest mark.
    newest: u64,
    /// Whether the channel had subscribers when it ended. They may have seen later numbers of other channels, and still
    /// have its state.
    is_cut: bool,
}

impl Past {
    /// Creates the past of a channel without actions after a number.
    fn after(seq: u64) -> Self {
        Self { actions: VecDeque::new(), from: seq, newest: seq, is_cut: false }
    }
}

/// The past of all channels.
#[derive(Debug)]
pub(super) struct Log {
    channels: HashMap<Arc<str>, Past>,
    /// What is retained of all channels, oldest first, and the actions that a later end removed.
    order: VecDeque<Mark>,
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
        let past = self.channels.entry(channel.clone()).or_insert_with(|| Past::after(self.forgotten));
        for logged in actions {
            let mark = Mark { channel: channel.clone(), seq: logged.seq, is_end: false };
            self.bytes += mark.weight() + logged.weight();
            self.order.push_back(mark);
            past.newest = logged.seq;
            past.actions.push_back(logged);
        }
    }

    /// Returns the `count` newest actions of a channel, oldest first.
    pub fn newest(&self, channel: &str, count: usize) -> impl Iterator<Item = &Logged> + Clone {
        let actions = self.channels.get(channel).map(|past| past.actions.range(past.actions.len() - count..));
        actions.into_iter().flatten()
    }

    /// Removes what is beyond the limit.
    pub fn trim(&mut self) {
        while self.bytes > self.limit {
            let Some(mark) = self.order.pop_front() else { break };
            self.bytes -= mark.weight();
            let Some(past) = self.channels.get_mut(&mark.channel) else { continue };
            if let Some(oldest) = past.actions.pop_front_if(|oldest| oldest.seq == mark.seq) {
                self.bytes -= oldest.weight();
            }
            past.from = past.from.max(mark.seq);
            if past.newest == mark.seq {
                self.forgotten = self.forgotten.max(past.from);
                self.channels.remove(&mark.channel);
            }
        }
    }

    /// Ends the past of a channel with a number: an earlier state is not continued by what is added later. With `is_cut`,
    /// no later past of the name is replayed to anybody. Returns the removed actions, which may be much memory to free.
    pub fn end(&mut self, channel: &Arc<str>, seq: u64, is_cut: bool) -> VecDeque<Logged> {
        let past = self.channels.entry(channel.clone()).or_insert_with(|| Past::after(seq));
        let is_cut = is_cut || past.is_cut;
        let removed = std::mem::replace(past, Past { is_cut, ..Past::after(seq) }).actions;
        self.bytes -= removed.iter().map(Logged::weight).sum::<usize>();
        let mark = Mark { channel: channel.clone(), seq, is_end: true };
        self.bytes += mark.weight();
        self.order.push_back(mark);
        removed
    }

    /// Returns the actions of a channel after a number, oldest first; `None` if some were removed.
    pub fn after(&self, channel: &str, seen: u64) -> Option<impl Iterator<Item = &Logged>> {
        let past = self.channels.get(channel);
        let is_cut = past.is_some_and(|past| past.is_cut);
        if is_cut || seen < self.start || seen < past.map_or(self.forgotten, |past| past.from) {
            return None;
        }
        let actions = past.map(|past| {
            let first = past.actions.partition_point(|logged| logged.seq <= seen);
            past.actions.range(first..)
        });
        Some(actions.into_iter().flatten())
    }

    /// Forgets everything up to a number.
    pub fn begin_at(&mut self, start: u64) {
        *self = Self::new(self.limit, start);
    }

    /// Returns whether a number is from this host.
    pub fn knows(&self, seen: u64) -> bool {
        seen >= self.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_part_of_the_limit() {
        let mut log = Log::new(4000, 0);
        for seq in 1..=1000 {
            let channel = if seq % 2 == 0 { "even" } else { &format!("odd {seq}") };
            log.end(&channel.into(), seq, false);
            log.trim();
        }
        assert!((10..50).contains(&log.order.len()), "{}", log.order.len());
        assert_eq!(log.bytes, log.order.iter().map(Mark::weight).sum::<usize>());
        assert_eq!(log.channels.len(), log.order.len() / 2 + 1);
        assert!(log.after("odd 1", 0).is_none());
        assert!(log.after("odd 1", 999).is_some(), "its end is no longer retained");
        assert!(log.after("even", 999).is_none());
        log.limit = 0;
        log.trim();
        assert_eq!((log.bytes, log.channels.len(), log.forgotten), (0, 0, 1000));
    }
}
