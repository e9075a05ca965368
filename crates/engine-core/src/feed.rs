//! Feeds: the changes of a list in order, for readers that resume. The latest ones are retained for a while; a reader
//! that has missed more is notified of that.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;

/// How many changes are retained.
pub const MOST: usize = 4096;
/// Their maximum size in bytes, as JSON.
const MOST_BYTES: usize = 8 << 20;
/// The maximum number of changes per read.
const AT_ONCE: usize = 64;

/// A change of a list.
#[derive(Debug)]
pub enum Change<T> {
    /// An entry is new or changed.
    Put(Arc<T>),
    /// The entry of this URI was removed; for an automation's URI, all its runs.
    Removed(String),
}

/// The position of a reader in a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedPosition {
    /// The start of the feed, in microseconds since 1970, because feeds of different starts of the host do not continue
    /// each other.
    start: i64,
    /// The number of earlier changes.
    next: u64,
}

impl fmt::Display for FeedPosition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.start, self.next)
    }
}

impl FeedPosition {
    /// Parses a formatted position.
    pub fn parse(text: &str) -> Option<Self> {
        let (start, next) = text.split_once('-')?;
        Some(Self { start: start.parse().ok()?, next: next.parse().ok()? })
    }
}

/// The result of a read.
#[derive(Debug)]
pub enum FeedRead<T> {
    /// Changes in order, each with the position after it; empty if there are none.
    Changes(Vec<(FeedPosition, Arc<Change<T>>)>),
    /// The position is too old, or of another feed.
    Lost,
}

/// The latest changes of a list. They are retained from the first reader on, because before that no reader can resume.
#[derive(Debug)]
pub struct Feed<T> {
    start: i64,
    retained: Mutex<Retained<T>>,
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct Retained<T> {
    is_read: bool,
    next: u64,
    changes: VecDeque<(Arc<Change<T>>, usize)>,
    bytes: usize,
}

impl<T: Serialize> Feed<T> {
    /// Creates an empty feed of a host that started at this time, in microseconds since 1970.
    pub fn new(start: i64) -> Self {
        let retained = Retained { is_read: false, next: 0, changes: VecDeque::new(), bytes: 0 };
        Self { start, retained: Mutex::new(retained), changed: watch::Sender::new(()) }
    }

    /// Returns whether changes are retained.
    pub fn is_read(&self) -> bool {
        self.retained.lock().is_read
    }

    /// Adds an entry that is new or changed.
    pub fn put(&self, entry: impl FnOnce() -> Arc<T>) {
        self.add(|| {
            let entry = entry();
            let mut size = Size(0);
            let _ = serde_json::to_writer(&mut size, &entry);
            (Change::Put(entry), size.0)
        });
    }

    /// Adds the removal of an entry.
    pub fn remove(&self, uri: &str) {
        self.add(|| (Change::Removed(uri.to_owned()), uri.len()));
    }

    fn add(&self, change: impl FnOnce() -> (Change<T>, usize)) {
        let mut retained = self.retained.lock();
        if !retained.is_read {
            return;
        }
        let (change, bytes) = change();
        retained.changes.push_back((Arc::new(change), bytes));
        retained.bytes += bytes;
        retained.next += 1;
        while retained.changes.len() > MOST || retained.bytes > MOST_BYTES {
            let Some((_, bytes)) = retained.changes.pop_front() else { break };
            retained.bytes -= bytes;
        }
        drop(retained);
        self.wake();
    }

    /// Returns the position after the latest change, from which on no change is missed.
    pub fn place(&self) -> FeedPosition {
        let mut retained = self.retained.lock();
        retained.is_read = true;
        FeedPosition { start: self.start, next: retained.next }
    }

    /// Returns some of the changes after a position.
    pub fn read(&self, after: FeedPosition) -> FeedRead<T> {
        let retained = self.retained.lock();
        let oldest = retained.next - retained.changes.len() as u64;
        if after.start != self.start || !retained.is_read || !(oldest..=retained.next).contains(&after.next) {
            return FeedRead::Lost;
        }
        let skipped = usize::try_from(after.next - oldest).unwrap_or(usize::MAX);
        let later = retained.changes.iter().skip(skipped).take(AT_ONCE).enumerate();
        let place = |at: usize| FeedPosition { start: self.start, next: after.next + at as u64 + 1 };
        FeedRead::Changes(later.map(|(at, (change, _))| (place(at), change.clone())).collect())
    }

    /// Receives a notification of each change, and when readers have to check their grants.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Makes readers check their grants.
    pub fn wake(&self) {
        self.changed.send_replace(());
    }
}

/// A writer that counts bytes.
struct Size(usize);

impl io::Write for Size {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(feed: &Feed<usize>, after: FeedPosition) -> Option<(Vec<usize>, FeedPosition)> {
        match feed.read(after) {
            FeedRead::Lost => None,
            FeedRead::Changes(changes) => {
                let last = changes.last().map_or(after, |(place, _)| *place);
                let entry = |(_, change): &(FeedPosition, Arc<Change<usize>>)| match &**change {
                    Change::Put(entry) => **entry,
                    Change::Removed(uri) => 100 + uri.len(),
                };
                Some((changes.iter().map(entry).collect(), last))
            }
        }
    }

    #[test]
    fn a_reader_that_comes_back_misses_nothing_or_is_told() {
        let feed = Feed::new(7);
        feed.put(|| panic!("nobody can come back yet"));
        let begin = feed.place();
        assert_eq!(seen(&feed, begin), Some((vec![], begin)));
        feed.put(|| Arc::new(1));
        feed.remove("a");
        let (entries, place) = seen(&feed, begin).unwrap();
        assert_eq!(entries, [1, 101]);
        assert_eq!((place.to_string().as_str(), FeedPosition::parse("7-2")), ("7-2", Some(place)));
        assert_eq!(seen(&feed, place), Some((vec![], place)));
        for entry in 0..MOST {
            feed.put(|| Arc::new(entry));
        }
        let (entries, next) = seen(&feed, place).unwrap();
        assert_eq!((entries, next.to_string()), ((0..AT_ONCE).collect(), format!("7-{}", 2 + AT_ONCE)));
        feed.put(|| Arc::new(0));
        assert_eq!(seen(&feed, place), None, "the oldest is no longer there");
        assert!(seen(&feed, next).is_some());
        for other in ["8-5", "7-9999"] {
            assert_eq!(seen(&feed, FeedPosition::parse(other).unwrap()), None, "{other}");
        }
        for nonsense in ["", "7", "7-", "-", "a-b", "7-1-2"] {
            assert_eq!(FeedPosition::parse(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn large_entries_are_retained_in_smaller_number() {
        let feed = Feed::new(7);
        let begin = feed.place();
        for _ in 0..9 {
            feed.put(|| Arc::new("x".repeat(1 << 20)));
        }
        assert!(matches!(feed.read(begin), FeedRead::Lost));
        assert!(feed.retained.lock().bytes <= MOST_BYTES);
    }
}
