//! A folder of Markdown files, each one value under the name of its file: read once, kept in memory, changed
//! by calls and by people's edits. Records and automations are both kept so.
//!
//! One thread per folder does everything that touches its files, in order. Readers take what is in memory.

mod events;
mod keeper;
mod load;
mod shelf;

use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, mpsc};
use std::thread;
use std::time::Duration;

use ostler_contract::Thrown;
use ostler_contract::live::{Pending, ready};
use ostler_contract::points::ChangeType;
use tokio::sync::oneshot;

use crate::Report;
use crate::worker::stopped;
pub(crate) use events::Events;
use keeper::Keeper;
pub(crate) use load::read_text;
pub(crate) use shelf::Shelf;

/// How a folder learns of edits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watching {
    /// The operating system tells. The folder is compared now and then all the same: events get lost.
    Events,
    /// The folder is compared this often, where the system cannot tell: some network file systems.
    Every(Duration),
}

/// What the files of a folder hold.
pub(crate) trait Format: Send + Sync + 'static {
    /// What one holds; cheap to clone.
    type Value: Clone + Send + Sync + 'static;
    /// Whatever finds values otherwise than by id.
    type Index: Default + Send + Sync + 'static;

    /// Whether a file may be called that, without its `.md`. If not, why.
    fn check_id(&self, id: &str) -> Result<(), String>;
    /// Reads a file's text, and says what in it is ignored. The error says what is wrong and where.
    fn read(&self, id: &str, text: &str, ignored: &mut Vec<String>) -> Result<Self::Value, String>;
    /// What a file's times say of its value.
    fn date(&self, value: Self::Value, _: &Metadata) -> Self::Value {
        value
    }
    /// Whether two values are alike, so that nothing changed.
    fn same(&self, one: &Self::Value, other: &Self::Value) -> bool;
    /// Keeps the index true.
    fn reindex(_: &mut Self::Index, _: &Arc<str>, _: Option<&Self::Value>, _: Option<&Self::Value>) {}
}

/// A value that changed.
pub(crate) struct Changed {
    pub(crate) id: Arc<str>,
    pub(crate) how: ChangeType,
    /// Whether a call changed it; otherwise somebody edited the file.
    pub(crate) own: bool,
}

/// What stands under an id when it is to be edited.
pub(crate) struct Held<'a, V> {
    pub(crate) value: Option<&'a V>,
    /// Why the file does not read, if it is there and does not.
    pub(crate) broken: Option<&'a str>,
}

/// What becomes of it.
pub(crate) enum Edit {
    Keep,
    /// The file's new text.
    Write(String),
    Remove,
}

/// What came of an edit.
pub(crate) struct Edited<V> {
    pub(crate) before: Option<V>,
    pub(crate) after: Option<V>,
}

type EditOf<V> = Box<dyn FnOnce(Held<'_, V>) -> Result<Edit, Thrown> + Send>;

/// What the folder's thread is asked.
enum Order<V> {
    Edit { id: String, edit: EditOf<V>, answer: oneshot::Sender<Result<Edited<V>, Thrown>> },
    Seen(Seen),
    Stop,
}

/// What the system tells of a folder.
pub(crate) enum Seen {
    /// A file in it, by name.
    File(String),
    /// The folder itself came or went.
    Folder,
    /// Events were lost.
    Lost,
}

/// Where a folder is and whom it tells.
pub(crate) struct Place {
    pub(crate) path: PathBuf,
    pub(crate) events: Arc<Events>,
    pub(crate) watching: Watching,
    pub(crate) report: Report,
    pub(crate) tell: Box<dyn Fn(Changed) + Send>,
}

/// The folder, open.
pub(crate) struct Folder<F: Format> {
    path: PathBuf,
    shelf: Arc<RwLock<Shelf<F>>>,
    orders: mpsc::Sender<Order<F::Value>>,
    events: Arc<Events>,
}

impl<F: Format> Folder<F> {
    /// Reads every file; a folder that is not there is an empty one. Blocks.
    pub(crate) fn open(place: Place, format: F) -> Result<Self, String> {
        let path = place.path.clone();
        let events = place.events.clone();
        let (orders, taken) = mpsc::channel();
        let shelf = Arc::new(RwLock::new(Shelf::default()));
        let mut keeper = Keeper::new(place, format, shelf.clone());
        keeper.load()?;

        let tell = orders.clone();
        events.route(&path, move |seen| {
            // The folder is being closed.
            let _ = tell.send(Order::Seen(seen));
        });
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        thread::Builder::new()
            .name(name)
            .spawn(move || keeper.run(&taken))
            .map_err(|error| format!("{}: cannot start a thread: {error}", path.display()))?;
        Ok(Self { path, shelf, orders, events })
    }

    /// Everything in it, to read.
    pub(crate) fn shelf(&self) -> RwLockReadGuard<'_, Shelf<F>> {
        self.shelf.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything in it, to change the index of.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Shelf<F>) -> T) -> T {
        change(&mut self.shelf.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Edits one file. The edit takes its place now and is given what stands there when its turn comes; once
    /// the answer is there, a crash does not lose it.
    pub(crate) fn edit(
        &self,
        id: String,
        edit: impl FnOnce(Held<'_, F::Value>) -> Result<Edit, Thrown> + Send + 'static,
    ) -> Pending<Edited<F::Value>> {
        let (answer, answered) = oneshot::channel();
        match self.orders.send(Order::Edit { id, edit: Box::new(edit), answer }) {
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
        let _ = self.orders.send(Order::Stop);
    }
}
