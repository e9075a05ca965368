//! The paths below directories, for completions. A small directory is read for each answer. A thread reads a large one,
//! and an answer waits for it only for a short time. Its paths are retained while they are requested, and read again in
//! the background.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// How long an answer waits for a directory that is being read, because the user is typing.
const WAITED: Duration = Duration::from_millis(1_000);
/// A directory with fewer paths is read each time.
const SMALL: usize = 5_000;
/// The age from which paths are read again.
const FRESH: Duration = Duration::from_secs(5);
/// How long unused paths are retained.
const UNUSED: Duration = Duration::from_secs(300);
/// The maximum number of directories with retained paths.
const DIRECTORIES: usize = 3;
/// The maximum number of paths of a directory, and their maximum size in bytes.
const PATHS: usize = 300_000;
const BYTES: usize = 16 << 20;

/// Reads a directory: calls the function with each path until it returns `false`. Directories end with a slash.
pub(super) type Walk = Box<dyn FnOnce(&mut dyn FnMut(String) -> bool) + Send>;

/// The listings, by directory.
type Listings = Mutex<HashMap<PathBuf, Arc<Listing>>>;

/// The paths of directories.
#[derive(Debug, Clone)]
pub(super) struct PathIndex {
    listings: Arc<Listings>,
    small: usize,
    waited: Duration,
    fresh: Duration,
}

impl Default for PathIndex {
    fn default() -> Self {
        Self { listings: Arc::default(), small: SMALL, waited: WAITED, fresh: FRESH }
    }
}

/// The paths below one directory.
#[derive(Debug)]
struct Listing {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug)]
struct State {
    names: Vec<Name>,
    bytes: usize,
    /// When reading completed.
    read: Option<Instant>,
    used: Instant,
    /// Whether they are being read again.
    again: bool,
}

#[derive(Debug)]
struct Name {
    path: Box<str>,
    /// The path in lower case, if it differs.
    lower: Option<Box<str>>,
}

impl Name {
    fn new(path: String) -> Self {
        let lower = path.to_lowercase();
        let lower = (lower != path).then(|| lower.into());
        Self { path: path.into(), lower }
    }

    /// Returns how well it matches the typed text in lower case, and its depth; less is better.
    fn rank(&self, typed: &str) -> Option<(u8, usize)> {
        let path = self.lower.as_deref().unwrap_or(&self.path);
        let whole = path.trim_end_matches('/');
        let name = whole.rsplit('/').next().unwrap_or(whole);
        let stem = name.split('.').next().unwrap_or_default();
        let rank = match () {
            () if name == typed || stem == typed => 0,
            () if name.starts_with(typed) => 1,
            () if name.contains(typed) => 2,
            () if path.contains(typed) => 3,
            () => return None,
        };
        Some((rank, whole.matches('/').count()))
    }
}

impl Listing {
    fn new() -> Arc<Self> {
        let now = Instant::now();
        let state = State { names: Vec::new(), bytes: 0, read: None, used: now, again: false };
        Arc::new(Self { state: Mutex::new(state), ended: Condvar::new() })
    }

    /// Reads the directory on the current thread.
    fn read(&self, walk: Walk) {
        walk(&mut |path| {
            let name = Name::new(path);
            let mut state = self.state.lock();
            state.bytes += name.path.len() + name.lower.as_ref().map_or(0, |lower| lower.len());
            state.names.push(name);
            state.names.len() < PATHS && state.bytes < BYTES
        });
        let mut state = self.state.lock();
        state.names.shrink_to_fit();
        state.read = Some(Instant::now());
        self.ended.notify_all();
    }

    /// Waits until the directory is read, at most until a deadline.
    fn wait(&self, end: Instant) {
        let mut state = self.state.lock();
        state.used = Instant::now();
        while state.read.is_none() && !self.ended.wait_until(&mut state, end).timed_out() {}
    }

    /// Returns the best matches of the typed text in lower case.
    fn best(&self, typed: &str, most: usize) -> Vec<String> {
        let state = self.state.lock();
        let mut found: Vec<((u8, usize), &str)> = Vec::new();
        for name in &state.names {
            if let Some(rank) = name.rank(typed) {
                found.push((rank, &name.path));
            }
            // No more in memory than the answer can contain.
            if found.len() > 8 * most {
                found.sort_unstable();
                found.truncate(most);
            }
        }
        found.sort_unstable();
        found.into_iter().take(most).map(|(_, path)| path.to_owned()).collect()
    }

    /// Returns whether all paths are known, and are few.
    fn is_small(&self, small: usize) -> bool {
        let state = self.state.lock();
        state.read.is_some() && state.names.len() < small
    }

    /// Returns once that the paths have to be read again.
    fn begins_again(&self, fresh: Duration) -> bool {
        let mut state = self.state.lock();
        let old = !state.again && state.read.is_some_and(|read| read.elapsed() > fresh);
        state.again |= old;
        old
    }

    fn is_unused(&self) -> bool {
        self.state.lock().used.elapsed() > UNUSED
    }
}

impl PathIndex {
    /// Returns the paths below a directory that best match the typed text in lower case.
    pub(super) fn find(&self, directory: &Path, typed: &str, most: usize, walk: Walk) -> Vec<String> {
        let known = self.listings.lock().get(directory).cloned();
        let listing = match known.filter(|known| !known.is_small(self.small)) {
            Some(listing) => {
                if listing.begins_again(self.fresh) {
                    let next = Listing::new();
                    self.read(directory, &next, walk, true);
                }
                listing
            }
            None => {
                let listing = Listing::new();
                self.insert(directory, listing.clone());
                self.read(directory, &listing, walk, false);
                listing
            }
        };
        listing.wait(Instant::now() + self.waited);
        if listing.is_small(self.small) {
            forget(&self.listings, directory, &listing);
        }
        listing.best(typed, most)
    }

    /// Begins to read a directory whose paths are not known.
    pub(super) fn prepare(&self, directory: &Path, walk: Walk) {
        if !self.listings.lock().contains_key(directory) {
            let listing = Listing::new();
            self.insert(directory, listing.clone());
            self.read(directory, &listing, walk, false);
        }
    }

    /// Starts a thread that reads a directory. When it has read all paths, they replace the earlier ones.
    fn read(&self, directory: &Path, listing: &Arc<Listing>, walk: Walk, replaces: bool) {
        let (all, reads, directory) = (self.listings.clone(), listing.clone(), directory.to_owned());
        let small = self.small;
        let read = move || {
            reads.read(walk);
            let is_small = reads.is_small(small);
            if !replaces {
                if is_small {
                    // It is read again for the next answer.
                    forget(&all, &directory, &reads);
                }
                return;
            }
            let mut all = all.lock();
            if is_small {
                all.remove(&directory);
            } else if let Some(earlier) = all.get_mut(&directory) {
                reads.state.lock().used = earlier.state.lock().used;
                *earlier = reads;
            }
        };
        // Without a thread, only the paths read so far are available.
        if std::thread::Builder::new().name("names".to_owned()).spawn(read).is_err() {
            listing.state.lock().read = Some(Instant::now());
        }
    }

    fn insert(&self, directory: &Path, listing: Arc<Listing>) {
        let mut all = self.listings.lock();
        if all.len() >= DIRECTORIES {
            let used = |listing: &Arc<Listing>| listing.state.lock().used;
            let oldest = all.iter().min_by_key(|(_, listing)| used(listing)).map(|(path, _)| path.clone());
            oldest.map(|path| all.remove(&path));
        }
        let first = all.is_empty();
        all.insert(directory.to_owned(), listing);
        drop(all);
        if first {
            let all = Arc::downgrade(&self.listings);
            let _ = std::thread::Builder::new().name("names".to_owned()).spawn(move || forget_unused(&all));
        }
    }
}

/// Removes a listing, if it is still the one of the directory.
fn forget(all: &Listings, directory: &Path, listing: &Arc<Listing>) {
    let mut all = all.lock();
    if all.get(directory).is_some_and(|held| Arc::ptr_eq(held, listing)) {
        all.remove(directory);
    }
}

/// Removes unused listings, until none is left.
fn forget_unused(all: &Weak<Listings>) {
    loop {
        std::thread::sleep(UNUSED / 5);
        let Some(all) = all.upgrade() else { return };
        let mut all = all.lock();
        all.retain(|_, listing| !listing.is_unused());
        if all.is_empty() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn walk(paths: &[&str]) -> Walk {
        let paths: Vec<String> = paths.iter().map(|&path| path.to_owned()).collect();
        Box::new(move |each| {
            for path in paths {
                if !each(path) {
                    return;
                }
            }
        })
    }

    /// Directories of which all are large, or none.
    fn names(small: usize, waited: Duration) -> PathIndex {
        PathIndex { small, waited, fresh: LONG, ..PathIndex::default() }
    }

    /// Longer than a thread takes on a busy computer.
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn the_best_fits_come_first() {
        let paths = ["a/b/Menu.rs", "menu/", "menu/x.rs", "deep/er/the-menu.rs", "menubar.rs", "other"];
        let found = names(SMALL, LONG).find(Path::new("/d"), "menu", 4, walk(&paths));
        assert_eq!(found, ["menu/", "a/b/Menu.rs", "menubar.rs", "deep/er/the-menu.rs"]);
    }

    #[test]
    fn a_small_directory_is_read_each_time() {
        let (names, directory) = (names(SMALL, LONG), Path::new("/d"));
        assert_eq!(names.find(directory, "a", 9, walk(&["a"])), ["a"]);
        assert_eq!(names.find(directory, "a", 9, walk(&["a", "ab"])), ["a", "ab"]);
        assert!(names.listings.lock().is_empty());
        // One that is prepared is used while it is read, and not later.
        names.prepare(directory, walk(&["a"]));
        let end = Instant::now() + LONG;
        while names.find(directory, "b", 9, walk(&["b"])) != ["b"] {
            assert!(Instant::now() < end, "it is not read again");
        }
    }

    #[test]
    fn a_large_directory_is_read_in_the_background() {
        let (names, directory) = (names(0, Duration::ZERO), Path::new("/d"));
        let until = |what: &str, is: &dyn Fn() -> bool| {
            let end = Instant::now() + LONG;
            while !is() {
                assert!(Instant::now() < end, "{what}");
                std::thread::yield_now();
            }
        };
        let unread = || -> Walk { Box::new(|_| panic!("it is read once")) };
        // It is answered as far as it is read.
        let ((begun, begins), (go_on, goes_on)) = (mpsc::channel::<()>(), mpsc::channel::<()>());
        let slow: Walk = Box::new(move |each| {
            each("a".to_owned());
            let _ = begun.send(());
            let _ = goes_on.recv();
            each("ab".to_owned());
        });
        names.find(directory, "a", 9, slow);
        begins.recv().unwrap();
        assert_eq!(names.find(directory, "a", 9, unread()), ["a"]);
        go_on.send(()).unwrap();
        let listing = names.listings.lock()[directory].clone();
        until("it is not read", &|| listing.state.lock().read.is_some());
        assert_eq!(names.find(directory, "a", 9, unread()), ["a", "ab"]);
        // Old paths are answered while they are read again.
        listing.state.lock().read = Instant::now().checked_sub(2 * LONG);
        assert_eq!(names.find(directory, "a", 9, walk(&["abc"])), ["a", "ab"]);
        until("they are not replaced", &|| !Arc::ptr_eq(&names.listings.lock()[directory], &listing));
        assert_eq!(names.find(directory, "a", 9, unread()), ["abc"]);
        for number in 0..9 {
            names.insert(Path::new(&format!("/{number}")), Listing::new());
        }
        assert_eq!(names.listings.lock().len(), DIRECTORIES);
    }
}
