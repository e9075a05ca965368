use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Report, Watchers};
use crate::problems::{Finding, ProblemKind};
use crate::{HostFunction, Thrown};

/// How many entries are remembered at most. What a database contains may be damaged without limit.
const REMEMBERED: usize = 1000;

/// The stored entries of one kind that cannot be read. They are left out of lists, so that the others can be listed, and are in
/// the host's list of problems until they can be read or are removed.
///
/// ```
/// use ostler_contract::problems::{ProblemKind, Problems};
/// use ostler_contract::stores::{Report, Unreadable};
/// use ostler_contract::Thrown;
///
/// let problems = Problems::default();
/// let report = Report::quiet().keeping(problems.clone());
/// let unreadable = Unreadable::of_sessions(report);
/// assert_eq!(unreadable.read("s1", Err::<u8, _>(Thrown::new("no title"))), None);
/// assert_eq!(problems.list()[0].place, "session s1");
/// assert_eq!(unreadable.read("s1", Ok(1)), Some(1));
/// assert!(problems.list().is_empty());
/// ```
#[derive(Debug, Clone)]
pub struct Unreadable {
    report: Report,
    kind: ProblemKind,
    /// The beginning of the name of an entry in the list, before its id.
    prefix: String,
    fix: &'static str,
    known: Arc<Mutex<BTreeSet<String>>>,
}

impl Unreadable {
    fn new(report: Report, kind: ProblemKind, prefix: String, fix: &'static str) -> Self {
        Self { report, kind, prefix, fix, known: Arc::default() }
    }

    /// Creates the set of a store of sessions, by their ids.
    pub fn of_sessions(report: Report) -> Self {
        let fix = "restore a backup of the database, or delete the session";
        Self::new(report, ProblemKind::Storage, "session ".to_owned(), fix)
    }

    /// Creates the set of a store of automations, by their ids.
    pub fn of_automations(report: Report) -> Self {
        let fix = "restore a backup of the database, or remove the automation";
        Self::new(report, ProblemKind::Automations, "stored automation ".to_owned(), fix)
    }

    /// Creates the set of a collection of records, by their ids.
    pub fn of_records(report: Report, collection: &str) -> Self {
        let fix = "restore a backup of the database, or remove the record";
        Self::new(report, ProblemKind::Records, format!("record {collection}/"), fix)
    }

    /// Creates the set of a store of runs, by their URIs. Those that retention removed are no longer wrong.
    pub fn of_runs(report: Report, removed: &Watchers<Vec<String>>) -> Self {
        let fix = "restore a backup of the database; retention removes the run when it is old";
        let unreadable = Self::new(report, ProblemKind::Storage, "run ".to_owned(), fix);
        let forget = unreadable.clone();
        // Both belong to the store, and end with it.
        let _stays = removed.add(HostFunction::now(move |(uris,): (Vec<String>,)| {
            uris.iter().for_each(|uri| forget.is_readable(uri));
            Ok(())
        }));
        unreadable
    }

    /// Returns an entry of a list that was read. One that cannot be read is reported, to the log the first time.
    pub fn read<T>(&self, id: &str, entry: Result<T, Thrown>) -> Option<T> {
        self.noted(id, entry).ok()
    }

    /// Like [`Unreadable::read`], for one that was asked for by its id.
    ///
    /// # Errors
    /// Those of `entry`.
    pub fn noted<T>(&self, id: &str, entry: Result<T, Thrown>) -> Result<T, Thrown> {
        match &entry {
            Ok(_) => self.is_readable(id),
            Err(why) => self.cannot_read(id, why),
        }
        entry
    }

    fn cannot_read(&self, id: &str, why: &Thrown) {
        let found = format!("{why}; skipped until it is fixed");
        let mut known = self.known.lock();
        if !known.contains(id) {
            if known.len() >= REMEMBERED {
                return;
            }
            known.insert(id.to_owned());
            self.report.say(found.as_str());
        }
        self.report.set(self.kind, &self.place(id), vec![Finding::error(found).fixed_by(self.fix)]);
    }

    /// An entry can be read again, or was removed.
    pub fn is_readable(&self, id: &str) {
        if self.known.lock().remove(id) {
            self.report.set(self.kind, &self.place(id), Vec::new());
        }
    }

    /// Forgets those that are not among the `ids` of a complete list.
    pub fn keep_only<'a>(&self, ids: impl IntoIterator<Item = &'a str>) {
        if self.known.lock().is_empty() {
            return;
        }
        let listed: BTreeSet<&str> = ids.into_iter().collect();
        let gone = |id: &&String| !listed.contains(id.as_str());
        let removed: Vec<String> = self.known.lock().iter().filter(gone).cloned().collect();
        removed.iter().for_each(|id| self.is_readable(id));
    }

    fn place(&self, id: &str) -> String {
        format!("{}{id}", self.prefix)
    }
}
