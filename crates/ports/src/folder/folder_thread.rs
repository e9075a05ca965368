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
use ostler_contract::problems::Finding;
use tokio::sync::oneshot;

use super::events::{FolderId, folder_id};
use super::load::{Read, read, read_all};
use super::{
    Changed, Contents, Current, Edit, EditOf, Edited, FolderEvent, FolderSetup, Format, REPAIR, Request,
    Watching,
};
use crate::atomic::{self, Access, Staged};
use crate::stamp::Stamp;

const SUFFIX: &str = ".md";
/// How long a file has to be unchanged before it is read, because an editor writes in several steps.
const REST: Duration = Duration::from_millis(50);
/// After this time it is read even if it keeps changing.
const LONGEST_REST: Duration = Duration::from_millis(500);
/// How often a watched folder is compared, to find changes whose events were lost.
const COMPARE: Duration = Duration::from_secs(30);
/// How often a folder is compared that cannot be watched.
const UNWATCHED: Duration = Duration::from_secs(2);
/// The pause after a comparison, as a multiple of its duration.
const SHARE: u32 = 50;
/// How many files are compared before waiting requests are served.
const STEP: usize = 512;
/// How many edits are synced together.
const BATCH: usize = 256;

pub(super) struct FolderThread<F: Format> {
    setup: FolderSetup,
    format: F,
    contents: Arc<RwLock<Contents<F>>>,
    /// Files that cannot be read: their stamps, and why.
    broken: HashMap<String, (Stamp, String)>,
    /// Files whose names no value can have; each is reported once.
    strays: HashSet<String>,
    /// Files to read once they stop changing.
    due: HashMap<String, Due>,
    comparison: Option<Comparison>,
    /// When the next comparison begins; during a comparison, set only if another one was requested.
    next_comparison: Option<Instant>,
    watch: Watch,
}

struct Due {
    first: Instant,
    at: Instant,
}

/// A running comparison of the folder with the contents in memory.
struct Comparison {
    files: Option<ReadDir>,
    seen: HashSet<String>,
    took: Duration,
}

enum Watch {
    /// To be set up, for the first time or again.
    Wanted,
    /// The system watches this folder; `None` if it is missing.
    On(Option<FolderId>),
    /// Not possible here; reported once.
    Impossible,
}

type Answer<V> = (oneshot::Sender<Result<Edited<V>, Thrown>>, Result<Edited<V>, Thrown>);

impl<F: Format> FolderThread<F> {
    pub(super) fn new(setup: FolderSetup, format: F, contents: Arc<RwLock<Contents<F>>>) -> Self {
        Self {
            setup,
            format,
            contents,
            broken: HashMap::new(),
            strays: HashSet::new(),
            due: HashMap::new(),
            comparison: None,
            next_comparison: None,
            watch: Watch::Wanted,
        }
    }

    /// Reads the whole folder, before other threads can access it.
    pub(super) fn load(&mut self) -> Result<(), String> {
        let unreadable =
            |path: &PathBuf, error: io::Error| format!("{} cannot be read: {error}", path.display());
        let listed = match fs::read_dir(&self.setup.path) {
            Ok(listed) => listed,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(unreadable(&self.setup.path, error)),
        };
        let mut files = Vec::new();
        for file in listed {
            let file = file.map_err(|error| unreadable(&self.setup.path, error))?;
            atomic::sweep_file(&file.path());
            if let Some(name) = file.file_name().to_str()
                && let Some(id) = self.id_of(name)
            {
                files.push((id.to_owned(), name.to_owned()));
            }
        }
        files.sort_unstable();
        for (id, name, found) in read_all(&self.format, &self.setup.path, files) {
            if let Some(found) = found {
                // No watcher exists yet.
                self.apply_read(&id, &name, found);
            }
        }
        Ok(())
    }

    /// Serves requests until it receives `Stop`.
    pub(super) fn run(mut self, requests: &Receiver<Request<F::Value>>) {
        if self.setup.watching == Watching::Events {
            self.set_up_watch();
        }
        // Something may have happened between reading and watching.
        self.next_comparison = Some(Instant::now());
        loop {
            let mut request = match requests.recv_timeout(self.free_for()) {
                Ok(request) => Some(request),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            while let Some(taken) = request.take() {
                match taken {
                    Request::Stop => return,
                    Request::Observed(seen) => self.note(seen),
                    Request::Edit { id, edit, answer } => {
                        request = self.edit_some((id, edit, answer), requests);
                    }
                }
            }
            self.look_at_due();
            self.compare();
        }
    }

    /// How long the thread may wait for a request before it has other work.
    fn free_for(&self) -> Duration {
        if self.comparison.is_some() {
            return Duration::ZERO;
        }
        let until = |at: Instant| at.saturating_duration_since(Instant::now());
        let comparison = self.next_comparison.map_or(COMPARE, until);
        // Any of them will do: their times are close together.
        self.due.values().next().map_or(comparison, |due| until(due.at).min(comparison))
    }

    fn note(&mut self, seen: FolderEvent) {
        match seen {
            FolderEvent::File(name) if is_own(&name) => self.look_soon(name),
            FolderEvent::File(_) => {}
            FolderEvent::Folder => {
                self.watch = Watch::Wanted;
                self.compare_soon();
            }
            FolderEvent::Lost => self.compare_soon(),
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
            let Some(id) = self.id_of(&name).map(str::to_owned) else {
                self.forget_removed_strays();
                continue;
            };
            if let Some(changed) = self.look(&id, &name) {
                (self.setup.tell)(changed);
            }
        }
    }

    /// Files with names that no value can have are no problem any more once they are gone.
    fn forget_removed_strays(&mut self) {
        let path = &self.setup.path;
        let removed: Vec<String> = self.strays.extract_if(|name| !path.join(name).exists()).collect();
        removed.iter().for_each(|name| self.set_problems(name, Vec::new()));
    }

    /// The id of a value's file. A Markdown file with an invalid name is reported once.
    fn id_of<'n>(&mut self, name: &'n str) -> Option<&'n str> {
        let id = name.strip_suffix(SUFFIX).filter(|_| is_own(name))?;
        match self.format.check_id(id) {
            Ok(()) => Some(id),
            Err(why) => {
                if self.strays.insert(name.to_owned()) {
                    let line = format!("{}: {why}; ignored", self.setup.path.join(name).display());
                    self.setup.report.say(line.clone());
                    self.set_problems(
                        name,
                        vec![Finding::warning(line).fixed_by("rename or remove the file")],
                    );
                }
                None
            }
        }
    }

    fn contents(&self) -> RwLockWriteGuard<'_, Contents<F>> {
        self.contents.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn stamp(&self, id: &str) -> Option<Stamp> {
        match self.broken.get(id) {
            Some((stamp, _)) => Some(*stamp),
            None => self.contents.read().unwrap_or_else(PoisonError::into_inner).stamp(id).copied(),
        }
    }

    /// Reads a file again if it changed.
    fn look(&mut self, id: &str, name: &str) -> Option<Changed> {
        let path = self.setup.path.join(name);
        if let (Ok(found), Some(stamp)) = (fs::metadata(&path), self.stamp(id))
            && stamp.still(&found)
        {
            return None;
        }
        match read(&self.format, &path, id) {
            Some(found) => self.apply_read(id, name, found),
            None => {
                self.broken.remove(id);
                self.set_problems(name, Vec::new());
                self.changed(false, |contents, _| contents.take(id))
            }
        }
    }

    fn apply_read(&mut self, id: &str, name: &str, found: Read<F::Value>) -> Option<Changed> {
        let path = self.setup.path.join(name);
        // A file that was written just before it was read is read again; it is not reported twice.
        let again = self.stamp(id).is_some_and(|stamp| stamp.is_of_same_file(&found.stamp));
        let ignored = found.ignored.iter().map(|ignored| format!("{}: {ignored}; ignored", path.display()));
        let mut findings: Vec<Finding> = ignored.map(Finding::warning).collect();
        for finding in findings.iter().filter(|_| !again) {
            self.setup.report.say(finding.found.clone());
        }
        match found.value {
            Ok(value) => {
                self.broken.remove(id);
                self.set_problems(name, findings);
                self.changed(false, |contents, format| contents.put(format, id, value, found.stamp))
            }
            Err(why) => {
                let before = self.broken.insert(id.to_owned(), (found.stamp, why.clone()));
                let held = self.contents().get(id).is_some();
                let until = if held { "keeping the last valid version" } else { "skipped" };
                let line = format!("{}: {why}; {until} until the file is fixed", path.display());
                findings.push(Finding::error(line.clone()).fixed_by(REPAIR));
                self.set_problems(name, findings);
                if !(again && before.is_some_and(|(_, before)| before == why)) {
                    self.setup.report.say(line);
                }
                None
            }
        }
    }

    /// Lists what is wrong with a file.
    fn set_problems(&self, name: &str, findings: Vec<Finding>) {
        let place = self.setup.path.join(name);
        self.setup.report.set(self.setup.kind, &place.display().to_string(), findings);
    }

    fn changed(
        &self,
        own: bool,
        change: impl FnOnce(&mut Contents<F>, &F) -> Option<(Arc<str>, ChangeType)>,
    ) -> Option<Changed> {
        let (id, how) = change(&mut self.contents(), &self.format)?;
        Some(Changed { id, how, own })
    }

    /// Carries out the waiting edits and syncs the folder once for all of them. Returns the request after them that is
    /// not an edit.
    fn edit_some(
        &mut self,
        first: (String, EditOf<F::Value>, oneshot::Sender<Result<Edited<F::Value>, Thrown>>),
        requests: &Receiver<Request<F::Value>>,
    ) -> Option<Request<F::Value>> {
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
            match requests.try_recv() {
                Ok(Request::Edit { id, edit, answer }) => next = Some((id, edit, answer)),
                Ok(request) => other = Some(request),
                Err(_) => {}
            }
        }
        let synced = match changes.iter().any(|changed: &Changed| changed.own) {
            true => atomic::sync_folder(&self.setup.path).map_err(|error| self.unwritten(error)),
            false => Ok(()),
        };
        for changed in changes {
            (self.setup.tell)(changed);
        }
        for (answer, edited) in answers {
            // The caller may have stopped waiting; the edit is still done.
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
        // The edit applies to what was written into the file last, also by hand.
        changes.extend(self.look(id, &name));
        let before = self.contents().get(id).cloned();
        let broken = self.broken.get(id).map(|(_, why)| why.as_str());
        let after = match edit(Current { value: before.as_ref(), broken })? {
            Edit::Unchanged => before.clone(),
            Edit::Remove => {
                match fs::remove_file(self.setup.path.join(&name)) {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(self.unwritten(error)),
                    _ => {}
                }
                self.broken.remove(id);
                self.set_problems(&name, Vec::new());
                changes.extend(self.changed(true, |contents, _| contents.take(id)));
                None
            }
            Edit::Write(text) => {
                // Text that cannot be parsed again is not written.
                let value = self.format.read(id, &text, &mut Vec::new());
                let value = value.map_err(|why| Thrown::new(format_args!("cannot store {id}: {why}")))?;
                let unchanged = before.as_ref().is_some_and(|before| self.format.same(before, &value));
                if unchanged && broken.is_none() {
                    return Ok(Edited { after: before.clone(), before });
                }
                let (value, stamp) =
                    self.write(&name, &text, value).map_err(|error| self.unwritten(error))?;
                self.broken.remove(id);
                self.set_problems(&name, Vec::new());
                changes.extend(
                    self.changed(true, |contents, format| contents.put(format, id, value.clone(), stamp)),
                );
                Some(value)
            }
        };
        Ok(Edited { before, after })
    }

    fn write(&mut self, name: &str, text: &str, value: F::Value) -> io::Result<(F::Value, Stamp)> {
        if !self.setup.path.is_dir() {
            atomic::make_folder(&self.setup.path)?;
            self.watch_again();
            self.compare_soon();
        }
        let path = self.setup.path.join(name);
        let (found, stamp) = Staged::new(&path, text.as_bytes(), Access::Owner)?.place()?;
        Ok((self.format.date(value, &found), stamp))
    }

    fn unwritten(&self, error: io::Error) -> Thrown {
        Thrown::new(format_args!("{} could not be written: {error}", self.setup.path.display()))
    }

    fn set_up_watch(&mut self) {
        match self.setup.events.watch(&self.setup.path) {
            Ok(folder) => self.watch = Watch::On(folder),
            Err(why) => {
                self.watch = Watch::Impossible;
                let (path, every) = (self.setup.path.display(), UNWATCHED.as_secs());
                let line = format!("cannot watch {path}: {why}; comparing it every {every} s instead");
                self.setup.report.say(line);
            }
        }
    }

    /// Compares the next files, or begins a comparison if it is due.
    fn compare(&mut self) {
        let start = Instant::now();
        let Some(mut comparison) = self.comparison.take() else {
            if self.next_comparison.is_some_and(|next| next <= start) {
                self.watch_again();
                self.next_comparison = None;
                let files = fs::read_dir(&self.setup.path).ok();
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
                // The file was removed during the listing, or cannot be listed. Files that were not seen are read
                // afterwards.
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

    /// Watches the folder again if the path leads to another folder than the watched one.
    fn watch_again(&mut self) {
        let wanted = match self.watch {
            Watch::Wanted => true,
            Watch::On(watched) => watched != folder_id(&self.setup.path),
            Watch::Impossible => false,
        };
        if wanted && self.setup.watching == Watching::Events {
            self.set_up_watch();
        }
    }

    fn end_comparison(&mut self, comparison: &Comparison) {
        let file_of = |id: &str| format!("{id}{SUFFIX}");
        let unseen: Vec<String> = {
            let contents = self.contents.read().unwrap_or_else(PoisonError::into_inner);
            let held = contents.keys().map(|id| &**id).chain(self.broken.keys().map(String::as_str));
            held.map(file_of).filter(|name| !comparison.seen.contains(name)).collect()
        };
        for name in unseen {
            self.look_soon(name);
        }
        self.forget_removed_strays();
        let every = match (self.setup.watching, &self.watch) {
            (Watching::Every(every), _) => every,
            (Watching::Events, Watch::Impossible) => UNWATCHED,
            (Watching::Events, _) => COMPARE,
        };
        // A comparison that was requested during this one is not postponed.
        self.next_comparison.get_or_insert(Instant::now() + every.max(comparison.took * SHARE));
    }
}

/// Returns whether a file may contain a value. Editors and writers create hidden files for a moment.
fn is_own(name: &str) -> bool {
    name.ends_with(SUFFIX) && !name.starts_with('.')
}
