//! The files and the state database of a host that does not run, for moving it to another store and back.

mod edited;
mod files;
mod state;
mod users;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ostler_contract::live::{Pending, ready};
use ostler_contract::points::{Policies, Vault};
use ostler_contract::stores::transfer::{Content, Item, Kind, PAGE_BYTES, PAGE_ITEMS, Position, Transfer};
use ostler_contract::stores::watchers::blocking;
use ostler_contract::{JsonObject, Secret, Thrown, Value};
use rusqlite::Connection;

use crate::policies::FilePolicies;
use crate::runs::Titles;
use crate::sessions::encode;
use crate::state::{Failure, StateDb};
use crate::vault::FileVault;
use crate::{Report, atomic};
pub use edited::{EditedContent, EditedFile, read_edited_files, write_edited_file};
use files::Files;

/// The field of each known collection that is the body of its files; `None` for a collection whose files have none.
pub type Bodies = BTreeMap<String, Option<String>>;

/// The files of a host, and its state database.
pub struct FileTransfer {
    config_dir: PathBuf,
    files: Arc<Files>,
    vault: Vault,
    policies: Policies,
    state: State,
    /// The users file, if it is copied.
    users: Option<PathBuf>,
    /// The titles of the automations, once runs are copied.
    titles: Mutex<Option<Arc<Titles>>>,
}

/// The state database.
enum State {
    /// There is none.
    Missing,
    /// It is only read.
    Source(Arc<Mutex<Connection>>),
    /// It is written.
    Target(Arc<StateDb>),
}

impl FileTransfer {
    /// Opens the files of a host for reading. Changes nothing, except that SQLite can create the index of a log beside a
    /// database that was not closed. Blocks.
    ///
    /// # Errors
    /// The state database is damaged, newer, or of a version that a start has to migrate first.
    pub fn source(
        config_dir: &Path,
        state_dir: &Path,
        bodies: Bodies,
        report: Report,
    ) -> Result<Self, Thrown> {
        let state = match StateDb::read_only(config_dir, state_dir)? {
            Some(connection) => State::Source(Arc::new(Mutex::new(connection))),
            None => State::Missing,
        };
        Self::new(config_dir, bodies, report, state)
    }

    /// Opens the files of a host for writing, and creates the state database. Blocks.
    ///
    /// # Errors
    /// The state database cannot be opened.
    pub fn target(
        config_dir: &Path,
        state_dir: &Path,
        bodies: Bodies,
        report: Report,
    ) -> Result<Self, Thrown> {
        let folder =
            |error| Thrown::new(format_args!("{} could not be created: {error}", config_dir.display()));
        atomic::make_private_folder(config_dir).map_err(folder)?;
        let state = State::Target(StateDb::open(state_dir)?);
        Self::new(config_dir, bodies, report, state)
    }

    /// Copies this users file, too.
    #[must_use]
    pub fn with_users(mut self, users: Option<PathBuf>) -> Self {
        self.users = users;
        self
    }

    /// Returns the existing files and folders that a copy to these folders would write: what to move away for an empty
    /// target. Blocks.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub fn stored(config_dir: &Path, state_dir: &Path) -> Result<Vec<PathBuf>, Thrown> {
        let mut found = files::stored(config_dir)?;
        found.extend([FileVault::FILE, FilePolicies::FILE].map(|name| config_dir.join(name)));
        let database = StateDb::file(state_dir);
        for suffix in ["-shm", "-wal", ""] {
            let mut name = database.clone().into_os_string();
            name.push(suffix);
            found.push(name.into());
        }
        found.retain(|path| std::fs::symlink_metadata(path).is_ok());
        Ok(found)
    }

    fn new(config_dir: &Path, bodies: Bodies, report: Report, state: State) -> Result<Self, Thrown> {
        Ok(Self {
            config_dir: config_dir.to_owned(),
            vault: Arc::new(FileVault::new(config_dir, report.clone())?).into_point(),
            policies: Arc::new(FilePolicies::new(config_dir)).into_point(),
            files: Arc::new(Files { config_dir: config_dir.to_owned(), bodies, report }),
            state,
            users: None,
            titles: Mutex::default(),
        })
    }

    fn read_state(&self, kind: Kind, after: Position) -> Pending<Vec<Item>> {
        match &self.state {
            State::Missing => ready(Ok(Vec::new())),
            State::Target(db) => db.read(move |db| state::page(db, kind, &after)),
            State::Source(connection) => {
                let (connection, place) = (connection.clone(), self.config_dir.display().to_string());
                Box::pin(async move {
                    let read = move || {
                        let connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
                        state::page(&connection, kind, &after).map_err(|failure| match failure {
                            Failure::Thrown(thrown) => thrown,
                            Failure::Sqlite(error) => Thrown::new(format_args!(
                                "the state database of {place} could not be read: {error}"
                            )),
                        })
                    };
                    blocking(read).await?
                })
            }
        }
    }

    fn append_state(&self, kind: Kind, items: Vec<Item>) -> Pending<()> {
        let State::Target(db) = &self.state else {
            return ready(Err(Thrown::new("the files of the host are open for reading")));
        };
        let titles = match kind {
            Kind::Run => self.titles(),
            _ => Ok(Arc::default()),
        };
        match titles {
            Ok(titles) => db.write(move |db| state::append(db, kind, items, &titles)),
            Err(thrown) => ready(Err(thrown)),
        }
    }

    /// The titles of the automations, which are copied before the runs.
    fn titles(&self) -> Result<Arc<Titles>, Thrown> {
        let mut titles = self.titles.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(titles) = &*titles {
            return Ok(titles.clone());
        }
        let read = Arc::new(self.files.titles()?);
        *titles = Some(read.clone());
        Ok(read)
    }

    fn secrets(&self, after: Option<Position>) -> Pending<Vec<Item>> {
        let vault = self.vault.clone();
        Box::pin(async move {
            let after = after.and_then(|after| after.key.into_iter().next());
            let mut items = Vec::new();
            for name in vault.list.unbounded(()).await? {
                if after.as_ref().is_some_and(|after| name <= *after) || items.len() == PAGE_ITEMS {
                    continue;
                }
                let Some(value) = vault.get.unbounded((name.clone(),)).await? else { continue };
                items.push(Item {
                    position: Position { key: vec![name], number: 0 },
                    content: Content::Secret(Secret::new(value)),
                });
            }
            Ok(items)
        })
    }

    fn policies(&self, after: Option<Position>) -> Pending<Vec<Item>> {
        let list = self.policies.list.unbounded(());
        Box::pin(async move {
            let mut items = Vec::new();
            for (at, row) in list.await?.into_iter().enumerate() {
                let number = i64::try_from(at).unwrap_or(i64::MAX);
                if after.as_ref().is_none_or(|after| number > after.number) && items.len() < PAGE_ITEMS {
                    let id = row.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
                    items.push(Item::json(vec![id], number, encode(&row)?));
                }
            }
            Ok(items)
        })
    }

    fn append_secrets(&self, items: Vec<Item>) -> Pending<()> {
        let vault = self.vault.clone();
        Box::pin(async move {
            for Item { position, content } in items {
                let (Some(name), Content::Secret(value)) = (position.key.into_iter().next(), content) else {
                    continue;
                };
                vault.set.unbounded((name, value.reveal().clone())).await?;
            }
            Ok(())
        })
    }

    fn append_policies(&self, items: Vec<Item>) -> Pending<()> {
        let policies = self.policies.clone();
        Box::pin(async move {
            for item in items {
                let Content::Json(text) = &item.content else { continue };
                let row: JsonObject = serde_json::from_str(text).map_err(Thrown::new)?;
                policies.put.unbounded((row,)).await?;
            }
            Ok(())
        })
    }
}

impl Transfer for FileTransfer {
    fn place(&self) -> String {
        format!("the files in {}", self.config_dir.display())
    }

    fn read(&self, kind: Kind, after: Option<Position>) -> Pending<Vec<Item>> {
        match kind {
            Kind::Secret => self.secrets(after),
            Kind::Users => match (self.users.clone(), after) {
                (Some(path), None) => Box::pin(async move { blocking(move || users::read(&path)).await? }),
                _ => ready(Ok(Vec::new())),
            },
            Kind::Policy => self.policies(after),
            Kind::Record | Kind::Automation => {
                let files = self.files.clone();
                Box::pin(async move { blocking(move || files.read(kind, after.as_ref())).await? })
            }
            _ => self.read_state(kind, after.unwrap_or_else(first)),
        }
    }

    fn append(&self, kind: Kind, items: Vec<Item>) -> Pending<()> {
        match kind {
            Kind::Secret => self.append_secrets(items),
            Kind::Users => match self.users.clone() {
                Some(path) => Box::pin(async move { blocking(move || users::write(&path, items)).await? }),
                None => ready(Err(Thrown::new("the copy has no path for the users file"))),
            },
            Kind::Policy => self.append_policies(items),
            Kind::Record | Kind::Automation => {
                let files = self.files.clone();
                Box::pin(async move { blocking(move || files.append(kind, items)).await? })
            }
            _ => self.append_state(kind, items),
        }
    }

    fn close(&self) -> Pending<()> {
        match &self.state {
            State::Target(db) => db.checkpoint(),
            State::Missing | State::Source(_) => ready(Ok(())),
        }
    }
}

/// The position before all others.
fn first() -> Position {
    Position { key: vec![String::new(), String::new()], number: i64::MIN }
}

/// The items of a page, until it is full.
#[derive(Default)]
struct Page {
    items: Vec<Item>,
    bytes: usize,
}

impl Page {
    /// Adds an item. Returns whether the page is full.
    fn add(&mut self, item: Item) -> bool {
        self.bytes += item.bytes();
        self.items.push(item);
        self.items.len() >= PAGE_ITEMS || self.bytes >= PAGE_BYTES
    }
}
