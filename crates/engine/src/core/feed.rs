//! Changes of a list in the order in which they happened, for readers that come back: the latest are retained for a while,
//! and one that has missed more is told so.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;

/// How many changes are retained.
pub const MOST: usize = 4096;
/// How many bytes they have, as JSON.
const MOST_BYTES: usize = 8 << 20;
/// How many changes a reader takes at a time.
const AT_ONCE: usize = 64;

/// A change of a list.
#[derive(Debug)]
pub enum Change<T> {
    /// An entry is new, or is so now.
    Put(Arc<T>),
    /// The entry of this URI is no longer there; of an automation's URI, all its runs.
    Removed(String),
}

/// The place of a reader in a feed, as readers keep it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// When the feed began, in microseconds since 1970: feeds of different starts of the host do not continue each other.
    start: i64,
    /// How many changes came before.
    next: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.start, self.next)
    }
}

impl Place {
    /// Reads a place as it was written.
    pub fn parse(text: &str) -> Option<Self> {
        let (start, next) = text.split_once('-')?;
        Some(Self { start: start.parse().ok()?, next: next.parse().ok()? })
    }
}

/// What a reader gets from a feed.
#[derive(Debug)]
pub enum Read<T> {
    /// Changes in their order, each with the place after it; none where nothing happened since.
    Changes(Vec<(Place, Arc<Change<T>>)>),
    /// The place is too old, or of another feed.
    Lost,
}

/// The latest changes of a list. They are retained from the first reader on: before it, nobody can come back.
#[derive(Debug)]
pub struct Feed<T> {
    start: i64,
    kept: Mutex<Kept<T>>,
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct Kept<T> {
    is_read: bool,
    next: u64,
    changes: VecDeque<(Arc<Change<T>>, usize)>,
    bytes: usize,
}

impl<T: Serialize> Feed<T> {
    /// An empty feed of a host that started at this time, in microseconds since 1970.
    pub fn new(start: i64) -> Self {
        let kept = Kept { is_read: false, next: 0, changes: VecDeque::new(), bytes: 0 };
        Self { start, kept: Mutex::new(kept), changed: watch::Sender::new(()) }
    }

    /// Adds an entry that is new or changed.
    pub(crate) fn put(&self, entry: impl FnOnce() -> Arc<T>) {
        self.add(|| {
            let entry = entry();
            let mut size = Size(0);
            let _ = serde_json::to_writer(&mut size, &entry);
            (Change::Put(entry), size.0)
        });
    }

    /// Adds that an entry is removed.
    pub(crate) fn remove(&self, uri: &str) {
        self.add(|| (Change::Removed(uri.to_owned()), uri.len()));
    }

    fn add(&self, change: impl FnOnce() -> (Change<T>, usize)) {
        let mut kept = self.kept.lock();
        if !kept.is_read {
            return;
        }
        let (change, bytes) = change();
        kept.changes.push_back((Arc::new(change), bytes));
        kept.bytes += bytes;
        kept.next += 1;
        while kept.changes.len() > MOST || kept.bytes > MOST_BYTES {
            let Some((_, bytes)) = kept.changes.pop_front() else { break };
            kept.bytes -= bytes;
        }
        drop(kept);
        self.wake();
    }

    /// The place after the latest change, from which on nothing is missed.
    pub fn place(&self) -> Place {
        let mut kept = self.kept.lock();
        kept.is_read = true;
        Place { start: self.start, next: kept.next }
    }

    /// Some of the changes after a place.
    pub fn read(&self, after: Place) -> Read<T> {
        let kept = self.kept.lock();
        let oldest = kept.next - kept.changes.len() as u64;
        if after.start != self.start || !kept.is_read || !(oldest..=kept.next).contains(&after.next) {
            return Read::Lost;
        }
        let skipped = usize::try_from(after.next - oldest).unwrap_or(usize::MAX);
        let later = kept.changes.iter().skip(skipped).take(AT_ONCE).enumerate();
        let place = |at: usize| Place { start: self.start, next: after.next + at as u64 + 1 };
        Read::Changes(later.map(|(at, (change, _))| (place(at), change.clone())).collect())
    }

    /// Is told of each change, and when readers have to look whether they may still read.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Has readers look whether they may still read.
    pub(crate) fn wake(&self) {
        self.changed.send_replace(());
    }
}

/// Counts what is written.
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

    fn seen(feed: &Feed<usize>, after: Place) -> Option<(Vec<usize>, Place)> {
        match feed.read(after) {
            Read::Lost => None,
            Read::Changes(changes) => {
                let last = changes.last().map_or(after, |(place, _)| *place);
                let entry = |(_, change): &(Place, Arc<Change<usize>>)| match &**change {
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
        assert_eq!((place.to_string().as_str(), Place::parse("7-2")), ("7-2", Some(place)));
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
            assert_eq!(seen(&feed, Place::parse(other).unwrap()), None, "{other}");
        }
        for nonsense in ["", "7", "7-", "-", "a-b", "7-1-2"] {
            assert_eq!(Place::parse(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn large_entries_are_retained_in_smaller_number() {
        let feed = Feed::new(7);
        let begin = feed.place();
        for _ in 0..9 {
            feed.put(|| Arc::new("x".repeat(1 << 20)));
        }
        assert!(matches!(feed.read(begin), Read::Lost));
        assert!(feed.kept.lock().bytes <= MOST_BYTES);
    }
}
