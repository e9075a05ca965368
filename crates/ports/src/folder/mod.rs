//! A folder of Markdown files, one value in each file, under the file's name. The values are read once and stay in
//! memory; calls and edits of the files change them. Records and automations are stored this way.
//!
//! One thread per folder reads and writes its files, in order. Readers use the values in memory.

mod contents;
mod events;
mod folder_thread;
mod load;

use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, mpsc};
use std::thread;
use std::time::Duration;

use ostler_contract::Thrown;
use ostler_contract::live::{Pending, ready};
use ostler_contract::points::ChangeType;
use ostler_contract::problems::ProblemKind;
use tokio::sync::oneshot;

use crate::Report;
use crate::worker::stopped;
pub(crate) use contents::Contents;
pub(crate) use events::Events;
use folder_thread::FolderThread;
pub(crate) use load::read_text;

/// What to do about a file that cannot be read.
pub(crate) const REPAIR: &str = "correct the file, or remove it";

/// How a folder notices edits of its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watching {
    /// By events of the operating system. The folder is also compared periodically, because events can be lost.
    Events,
    /// By comparing the folder at this interval, where the system has no events: some network file systems.
    Every(Duration),
}

/// The format of the files of a folder.
pub(crate) trait Format: Send + Sync + 'static {
    /// The value of one file; cheap to clone.
    type Value: Clone + Send + Sync + 'static;
    /// An index that finds values by something other than their id.
    type Index: Default + Send + Sync + 'static;

    /// Checks a file's name, without its `.md`. The error says why it is not allowed.
    fn check_id(&self, id: &str) -> Result<(), String>;
    /// Parses a file's text and adds to `ignored` what it ignores. The error says what is wrong and where.
    fn read(&self, id: &str, text: &str, ignored: &mut Vec<String>) -> Result<Self::Value, String>;
    /// Sets the times of a value from its file's metadata.
    fn date(&self, value: Self::Value, _: &Metadata) -> Self::Value {
        value
    }
    /// Returns whether two values are equal, so that nothing changed.
    fn same(&self, one: &Self::Value, other: &Self::Value) -> bool;
    /// Updates the index after a change of one value.
    fn reindex(_: &mut Self::Index, _: &Arc<str>, _: Option<&Self::Value>, _: Option<&Self::Value>) {}
}

/// A value that changed.
pub(crate) struct Changed {
    pub(crate) id: Arc<str>,
    pub(crate) how: ChangeType,
    /// Whether a call changed it; otherwise the file was edited.
    pub(crate) own: bool,
}

/// The current state of the file that an edit changes.
pub(crate) struct Current<'a, V> {
    pub(crate) value: Option<&'a V>,
    /// Why the file cannot be read, if it exists and cannot.
    pub(crate) broken: Option<&'a str>,
}

/// What an edit does with the file.
pub(crate) enum Edit {
    Unchanged,
    /// The file's new text.
    Write(String),
    Remove,
}

/// The value before and after an edit.
pub(crate) struct Edited<V> {
    pub(crate) before: Option<V>,
    pub(crate) after: Option<V>,
}

type EditOf<V> = Box<dyn FnOnce(Current<'_, V>) -> Result<Edit, Thrown> + Send>;

/// A request to the folder's thread.
enum Request<V> {
    Edit { id: String, edit: EditOf<V>, answer: oneshot::Sender<Result<Edited<V>, Thrown>> },
    Observed(FolderEvent),
    Stop,
}

/// An event of the operating system about a folder.
pub(crate) enum FolderEvent {
    /// A file in it, by name.
    File(String),
    /// The folder itself was created or removed.
    Folder,
    /// Events were lost.
    Lost,
}

/// Where a folder is, and who is notified of its changes.
pub(crate) struct FolderSetup {
    pub(crate) path: PathBuf,
    pub(crate) events: Arc<Events>,
    pub(crate) watching: Watching,
    /// What its files are, in the list of problems.
    pub(crate) kind: ProblemKind,
    pub(crate) report: Report,
    pub(crate) tell: Box<dyn Fn(Changed) + Send>,
}

/// An open folder.
pub(crate) struct Folder<F: Format> {
    path: PathBuf,
    contents: Arc<RwLock<Contents<F>>>,
    requests: mpsc::Sender<Request<F::Value>>,
    events: Arc<Events>,
}

impl<F: Format> Folder<F> {
    /// Reads every file. A missing folder counts as empty. Blocks.
    pub(crate) fn open(setup: FolderSetup, format: F) -> Result<Self, String> {
        let path = setup.path.clone();
        let events = setup.events.clone();
        let (requests, taken) = mpsc::channel();
        let contents = Arc::new(RwLock::new(Contents::default()));
        let mut folder_thread = FolderThread::new(setup, format, contents.clone());
        folder_thread.load()?;

        let tell = requests.clone();
        events.route(&path, move |seen| {
            // The folder is being closed.
            let _ = tell.send(Request::Observed(seen));
        });
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        thread::Builder::new()
            .name(name)
            .spawn(move || folder_thread.run(&taken))
            .map_err(|error| format!("{}: cannot start a thread: {error}", path.display()))?;
        Ok(Self { path, contents, requests, events })
    }

    /// Locks the contents for reading.
    pub(crate) fn contents(&self) -> RwLockReadGuard<'_, Contents<F>> {
        self.contents.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the contents for a change of their index.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Contents<F>) -> T) -> T {
        change(&mut self.contents.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Edits one file. The edit is queued now and receives the current value when its turn comes. Once it has been
    /// acknowledged, it is durable.
    pub(crate) fn edit(
        &self,
        id: String,
        edit: impl FnOnce(Current<'_, F::Value>) -> Result<Edit, Thrown> + Send + 'static,
    ) -> Pending<Edited<F::Value>> {
        let (answer, answered) = oneshot::channel();
        match self.requests.send(Request::Edit { id, edit: Box::new(edit), answer }) {
            Ok(()) => Box::pin(async move { answered.await.unwrap_or_else(|_| Err(stopped())) }),
            Err(_) => ready(Err(stopped())),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl<F: Format> Drop for Folder<F> {
    fn drop(&mut self) {
        self.events.forget(&self.path);
        // Its thread may have ended already.
        let _ = self.requests.send(Request::Stop);
    }
}
