//! The thread of a folder: it alone reads and writes the folder's files.

use std::collections::{HashMap, HashSet};
use std::fs::{self, ReadDir};
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};
use std::time::{Duration, Instant};

use ostler_contract::Thrown;
use ostler_contract::points::ChangeType;
use tokio::sync::oneshot;

use super::events::{FolderId, folder_id};
use super::load::{Read, read, read_all};
use super::{Changed, Edit, EditOf, Edited, Format, Held, Order, Place, Seen, Shelf, Watching};
use crate::atomic::{self, Access, Staged};
use crate::stamp::Stamp;

const SUFFIX: &str = ".md";
/// How long a file has to rest before it is read: an editor writes in several steps.
const REST: Duration = Duration::from_millis(50);
/// After this long it is read all the same.
const LONGEST_REST: Duration = Duration::from_millis(500);
/// How often a watched folder is compared for what events did not tell.
const COMPARE: Duration = Duration::from_secs(30);
/// How often one is compared that cannot be watched.
const UNWATCHED: Duration = Duration::from_secs(2);
/// A comparison may take this share of the time.
const SHARE: u32 = 50;
/// How many files are compared before somebody else has a turn.
const STEP: usize = 512;
/// How many edits become durable together.
const BATCH: usize = 256;

pub(super) struct Keeper<F: Format> {
    place: Place,
    format: F,
    shelf: Arc<RwLock<Shelf<F>>>,
    /// Files that do not read: as they were, and why.
    broken: HashMap<String, (Stamp, String)>,
    /// Files no value can have, said once.
    strays: HashSet<String>,
    /// Files to look at, once they rest.
    due: HashMap<String, Due>,
    comparison: Option<Comparison>,
    /// When the next one begins; while one is under way, only where something asks for another.
    next_comparison: Option<Instant>,
    watch: Watch,
}

struct Due {
    first: Instant,
    at: Instant,
}

/// A comparison of the folder with what is in memory, under way.
struct Comparison {
    files: Option<ReadDir>,
    seen: HashSet<String>,
    took: Duration,
}

enum Watch {
    /// To be set up: not yet, or no more.
    Wanted,
    /// By the system; none where the folder is missing.
    On(Option<FolderId>),
    /// Not possible here; said once.
    Impossible,
}

type Answer<V> = (oneshot::Sender<Result<Edited<V>, Thrown>>, Result<Edited<V>, Thrown>);

impl<F: Format> Keeper<F> {
    pub(super) fn new(place: Place, format: F, shelf: Arc<RwLock<Shelf<F>>>) -> Self {
        Self {
            place,
            format,
            shelf,
            broken: HashMap::new(),
            strays: HashSet::new(),
            due: HashMap::new(),
            comparison: None,
            next_comparison: None,
            watch: Watch::Wanted,
        }
    }

    /// Reads the whole folder, before anybody else has it.
    pub(super) fn load(&mut self) -> Result<(), String> {
        let unreadable =
            |path: &PathBuf, error: io::Error| format!("{} cannot be read: {error}", path.display());
        let listed = match fs::read_dir(&self.place.path) {
            Ok(listed) => listed,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(unreadable(&self.place.path, error)),
        };
        let mut files = Vec::new();
        for file in listed {
            let file = file.map_err(|error| unreadable(&self.place.path, error))?;
            atomic::sweep_file(&file.path());
            if let Some(name) = file.file_name().to_str()
                && let Some(id) = self.id_of(name)
            {
                files.push((id.to_owned(), name.to_owned()));
            }
        }
        files.sort_unstable();
        for (id, name, found) in read_all(&self.format, &self.place.path, files) {
            if let Some(found) = found {
                // Nobody watches yet.
                self.take_in(&id, &name, found);
            }
        }
        Ok(())
    }

    /// Serves orders until told to stop.
    pub(super) fn run(mut self, orders: &Receiver<Order<F::Value>>) {
        if self.place.watching == Watching::Events {
            self.set_up_watch();
        }
        // Something may have happened between reading and watching.
        self.next_comparison = Some(Instant::now());
        loop {
            let mut order = match orders.recv_timeout(self.free_for()) {
                Ok(order) => Some(order),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            while let Some(taken) = order.take() {
                match taken {
                    Order::Stop => return,
                    Order::Seen(seen) => self.note(seen),
                    Order::Edit { id, edit, answer } => {
                        order = self.edit_some((id, edit, answer), orders);
                    }
                }
            }
            self.look_at_due();
            self.compare();
        }
    }

    /// How long nothing but an order has to be done.
    fn free_for(&self) -> Duration {
        if self.comparison.is_some() {
            return Duration::ZERO;
        }
        let until = |at: Instant| at.saturating_duration_since(Instant::now());
        let comparison = self.next_comparison.map_or(COMPARE, until);
        // The first one found will do: they rest about as long.
        self.due.values().next().map_or(comparison, |due| until(due.at).min(comparison))
    }

    fn note(&mut self, seen: Seen) {
        match seen {
            Seen::File(name) if is_own(&name) => self.look_soon(name),
            Seen::File(_) => {}
            Seen::Folder => {
                self.watch = Watch::Wanted;
                self.compare_soon();
            }
            Seen::Lost => self.compare_soon(),
        }
    }

    fn compare_soon(&mut self) {
        let soon = Instant::now() + REST;
        self.next_comparison = Some(self.next_comparison.map_or(soon, |next| next.min(soon)));
    }

    fn look_soon(&mut self, name: String) {
        let now = Instant::now();
        let due = self.due.entry(name).or_insert(Due { first: now, at: now });
        due.at = (now + REST).min(due.first + LONGEST_REST);
    }

    fn look_at_due(&mut self) {
        let now = Instant::now();
        let ripe: Vec<_> =
            self.due.extract_if(|_, due| due.at <= now).map(|(name, _)| name).take(STEP).collect();
        for name in ripe {
            if let Some(id) = self.id_of(&name).map(str::to_owned)
                && let Some(changed) = self.look(&id, &name)
            {
                (self.place.tell)(changed);
            }
        }
    }

    /// The id of a value's file; a Markdown file that cannot be one is said once.
    fn id_of<'n>(&mut self, name: &'n str) -> Option<&'n str> {
        let id = name.strip_suffix(SUFFIX).filter(|_| is_own(name))?;
        match self.format.check_id(id) {
            Ok(()) => Some(id),
            Err(why) => {
                if self.strays.insert(name.to_owned()) {
                    (self.place.report)(format!("{}: {why}; ignored", self.place.path.join(name).display()));
                }
                None
            }
        }
    }

    fn shelf(&self) -> RwLockWriteGuard<'_, Shelf<F>> {
        self.shelf.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn stamp(&self, id: &str) -> Option<Stamp> {
        match self.broken.get(id) {
            Some((stamp, _)) => Some(*stamp),
            None => self.shelf.read().unwrap_or_else(PoisonError::into_inner).stamp(id).copied(),
        }
    }

    /// Reads a file again if it is another one.
    fn look(&mut self, id: &str, name: &str) -> Option<Changed> {
        let path = self.place.path.join(name);
        if let (Ok(found), Some(stamp)) = (fs::metadata(&path), self.stamp(id))
            && stamp.still(&found)
        {
            return None;
        }
        match read(&self.format, &path, id) {
            Some(found) => self.take_in(id, name, found),
            None => {
                self.broken.remove(id);
                self.changed(false, |shelf, _| shelf.take(id))
            }
        }
    }

    fn take_in(&mut self, id: &str, name: &str, found: Read<F::Value>) -> Option<Changed> {
        let path = self.place.path.join(name);
        // A young file is read again, and says nothing new.
        let again = self.stamp(id).is_some_and(|stamp| stamp.is_of_same_file(&found.stamp));
        for ignored in found.ignored.iter().filter(|_| !again) {
            (self.place.report)(format!("{}: {ignored}; ignored", path.display()));
        }
        match found.value {
            Ok(value) => {
                self.broken.remove(id);
                self.changed(false, |shelf, format| shelf.put(format, id, value, found.stamp))
            }
            Err(why) => {
                let before = self.broken.insert(id.to_owned(), (found.stamp, why.clone()));
                if !(again && before.is_some_and(|(_, before)| before == why)) {
                    let held = self.shelf().get(id).is_some();
                    let until = if held { "keeping the last valid version" } else { "skipped" };
                    (self.place.report)(format!(
                        "{}: {why}; {until} until the file is fixed",
                        path.display()
                    ));
                }
                None
            }
        }
    }

    fn changed(
        &self,
        own: bool,
        change: impl FnOnce(&mut Shelf<F>, &F) -> Option<(Arc<str>, ChangeType)>,
    ) -> Option<Changed> {
        let (id, how) = change(&mut self.shelf(), &self.format)?;
        Some(Changed { id, how, own })
    }

    /// Carries out edits that are waiting, the folder synced once for all of them; answers the order after
    /// them that is none.
    fn edit_some(
        &mut self,
        first: (String, EditOf<F::Value>, oneshot::Sender<Result<Edited<F::Value>, Thrown>>),
        orders: &Receiver<Order<F::Value>>,
    ) -> Option<Order<F::Value>> {
        let mut next = Some(first);
        let mut other = None;
        let mut answers: Vec<Answer<F::Value>> = Vec::new();
        let mut changes = Vec::new();
        while let Some((id, edit, answer)) = next.take() {
            let edited = self.edit(&id, edit, &mut changes);
            answers.push((answer, edited));
            if answers.len() == BATCH {
                break;
            }
            match orders.try_recv() {
                Ok(Order::Edit { id, edit, answer }) => next = Some((id, edit, answer)),
                Ok(order) => other = Some(order),
                Err(_) => {}
            }
        }
        let synced = match changes.iter().any(|changed: &Changed| changed.own) {
            true => atomic::sync_folder(&self.place.path).map_err(|error| self.unwritten(error)),
            false => Ok(()),
        };
        for changed in changes {
            (self.place.tell)(changed);
        }
        for (answer, edited) in answers {
            // Nobody waits any more: it is done all the same.
            let _ = answer.send(synced.clone().and(edited));
        }
        other
    }

    fn edit(
        &mut self,
        id: &str,
        edit: EditOf<F::Value>,
        changes: &mut Vec<Changed>,
    ) -> Result<Edited<F::Value>, Thrown> {
        // An id becomes part of a path.
        self.format.check_id(id).map_err(Thrown::new)?;
        let name = format!("{id}{SUFFIX}");
        // What somebody has just written by hand is what is edited.
        changes.extend(self.look(id, &name));
        let before = self.shelf().get(id).cloned();
        let broken = self.broken.get(id).map(|(_, why)| why.as_str());
        let after = match edit(Held { value: before.as_ref(), broken })? {
            Edit::Keep => before.clone(),
            Edit::Remove => {
                match fs::remove_file(self.place.path.join(&name)) {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(self.unwritten(error)),
                    _ => {}
                }
                self.broken.remove(id);
                changes.extend(self.changed(true, |shelf, _| shelf.take(id)));
                None
            }
            Edit::Write(text) => {
                // What cannot be read back is not written.
                let value = self.format.read(id, &text, &mut Vec::new());
                let value = value.map_err(|why| Thrown::new(format_args!("cannot store {id}: {why}")))?;
                let unchanged = before.as_ref().is_some_and(|before| self.format.same(before, &value));
                if unchanged && broken.is_none() {
                    return Ok(Edited { after: before.clone(), before });
                }
                let (value, stamp) =
                    self.write(&name, &text, value).map_err(|error| self.unwritten(error))?;
                self.broken.remove(id);
                changes
                    .extend(self.changed(true, |shelf, format| shelf.put(format, id, value.clone(), stamp)));
                Some(value)
            }
        };
        Ok(Edited { before, after })
    }

    fn write(&mut self, name: &str, text: &str, value: F::Value) -> io::Result<(F::Value, Stamp)> {
        if !self.place.path.is_dir() {
            atomic::make_folder(&self.place.path)?;
            self.watch_again();
            self.compare_soon();
        }
        let path = self.place.path.join(name);
        let (found, stamp) = Staged::new(&path, text.as_bytes(), Access::Owner)?.place()?;
        Ok((self.format.date(value, &found), stamp))
    }

    fn unwritten(&self, error: io::Error) -> Thrown {
        Thrown::new(format_args!("{} could not be written: {error}", self.place.path.display()))
    }

    fn set_up_watch(&mut self) {
        match self.place.events.watch(&self.place.path) {
            Ok(folder) => self.watch = Watch::On(folder),
            Err(why) => {
                self.watch = Watch::Impossible;
                let (path, every) = (self.place.path.display(), UNWATCHED.as_secs());
                let line = format!("cannot watch {path}: {why}; comparing it every {every} s instead");
                (self.place.report)(line);
            }
        }
    }

    /// Compares some more files, or begins to where it is time.
    fn compare(&mut self) {
        let start = Instant::now();
        let Some(mut comparison) = self.comparison.take() else {
            if self.next_comparison.is_some_and(|next| next <= start) {
                self.watch_again();
                self.next_comparison = None;
                let files = fs::read_dir(&self.place.path).ok();
                self.comparison = Some(Comparison { files, seen: HashSet::new(), took: Duration::ZERO });
            }
            return;
        };
        for _ in 0..STEP {
            match comparison.files.as_mut().and_then(Iterator::next) {
                Some(Ok(file)) => {
                    if let Some(name) = file.file_name().to_str().map(str::to_owned)
                        && let Some(id) = self.id_of(&name)
                    {
                        let same =
                            |stamp: Stamp| fs::metadata(file.path()).is_ok_and(|found| stamp.still(&found));
                        if !self.stamp(id).is_some_and(same) {
                            self.look_soon(name.clone());
                        }
                        comparison.seen.insert(name);
                    }
                }
                // It went while it was listed, or cannot be listed: what is not seen is looked at.
                Some(Err(_)) => {}
                None => {
                    comparison.took += start.elapsed();
                    self.end_comparison(&comparison);
                    return;
                }
            }
        }
        comparison.took += start.elapsed();
        self.comparison = Some(comparison);
    }

    /// Watches the folder where it is another one than the one watched.
    fn watch_again(&mut self) {
        let wanted = match self.watch {
            Watch::Wanted => true,
            Watch::On(watched) => watched != folder_id(&self.place.path),
            Watch::Impossible => false,
        };
        if wanted && self.place.watching == Watching::Events {
            self.set_up_watch();
        }
    }

    fn end_comparison(&mut self, comparison: &Comparison) {
        let file_of = |id: &str| format!("{id}{SUFFIX}");
        let unseen: Vec<String> = {
            let shelf = self.shelf.read().unwrap_or_else(PoisonError::into_inner);
            let held = shelf.keys().map(|id| &**id).chain(self.broken.keys().map(String::as_str));
            held.map(file_of).filter(|name| !comparison.seen.contains(name)).collect()
        };
        for name in unseen {
            self.look_soon(name);
        }
        let every = match (self.place.watching, &self.watch) {
            (Watching::Every(every), _) => every,
            (Watching::Events, Watch::Impossible) => UNWATCHED,
            (Watching::Events, _) => COMPARE,
        };
        // What was asked for meanwhile is not put off.
        self.next_comparison.get_or_insert(Instant::now() + every.max(comparison.took * SHARE));
    }
}

/// Whether a file may hold a value: editors and writers leave hidden ones for a moment.
fn is_own(name: &str) -> bool {
    name.ends_with(SUFFIX) && !name.starts_with('.')
}
