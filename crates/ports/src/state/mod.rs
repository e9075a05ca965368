//! The state database of the host: `state.db` in the state folder, an SQLite database.
//!
//! One thread writes. Waiting writes are committed together, and each is acknowledged after that commit. Other threads
//! read the latest commit and never wait for the writer. A look-up by key takes less time than waking one of them and
//! runs on the caller's thread.

mod backup;
mod guard;
mod relocate;
mod reserve;
mod schema;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use ostler_contract::Thrown;
use ostler_contract::live::{Pending, ready};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use tokio::sync::oneshot;

use crate::atomic;
use crate::disk::DiskProbe;
use crate::worker::stopped;
use guard::Guard;
pub use relocate::Relocated;
use writer::{Job, Writer, WriterRequest};

/// The number of reading threads.
const READERS: usize = 2;
/// How long to wait for another process's lock of the file.
const BUSY: Duration = Duration::from_secs(5);

/// The open database.
pub struct StateDb {
    place: Arc<str>,
    writes: mpsc::Sender<WriterRequest>,
    /// `None` if the writer's connection is the only one.
    reads: Option<Reads>,
    hears: Hears,
    disk: Disk,
}

/// Receives why nothing can be stored, or `None` once that is possible again.
type Hears = Arc<OnceLock<Box<dyn Fn(Option<&str>) + Send + Sync>>>;

/// The folders in which files have to be writable, once they are watched.
type Disk = Arc<OnceLock<DiskProbe>>;

type Read = Box<dyn FnOnce(&Connection) + Send>;

/// The connections for reading; a reader locks one.
struct Reads {
    connections: Arc<[Mutex<Connection>]>,
    asked: mpsc::Sender<Read>,
}

/// Why a job on the database failed.
pub(crate) enum Failure {
    Sqlite(rusqlite::Error),
    Thrown(Thrown),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<Thrown> for Failure {
    fn from(thrown: Thrown) -> Self {
        Self::Thrown(thrown)
    }
}

impl StateDb {
    /// Returns the path of the database in a state folder.
    pub fn file(dir: &Path) -> PathBuf {
        dir.join("state.db")
    }

    /// Opens the database of a state folder, and migrates an older one. Rejects damaged files and those of a newer host
    /// or another program, and leaves them unchanged. Blocks.
    pub fn open(dir: &Path) -> Result<Arc<Self>, Thrown> {
        let path = Self::file(dir);
        let place: Arc<str> = path.display().to_string().into();
        let unwritten = |error| Thrown::new(format_args!("{place} could not be created: {error}"));
        refuse_cut(&path, &place)?;
        atomic::make_private_folder(dir).map_err(unwritten)?;
        atomic::make_private(&path).map_err(unwritten)?;
        let failed = |error| Thrown::new(sentence(&place, &error));

        let writer = Connection::open(&path).map_err(failed)?;
        schema::check(&writer, &place).map_err(|failure| thrown(&place, failure))?;
        let mut writer = configure(writer).map_err(failed)?;
        schema::upgrade(&mut writer).map_err(|failure| thrown(&place, failure))?;
        let reader = || {
            let connection = Connection::open(&path).and_then(configure)?;
            schema::add_views(&connection)?;
            read_only(connection).map(Mutex::new)
        };
        let connections: Arc<[_]> =
            (0..READERS).map(|_| reader()).collect::<Result<_, _>>().map_err(failed)?;
        let (reads, asked) = mpsc::channel();
        let asked = Arc::new(Mutex::new(asked));
        for at in 0..READERS {
            let (connections, asked) = (connections.clone(), asked.clone());
            start("state reads", move || read_all(&connections[at], &asked))?;
        }
        Self::start(writer, place, Some(Reads { connections, asked: reads }), Some(path))
    }

    /// Checks the database that a start would open, if any: that of `dir`, or the one that it would move there from
    /// `former`. Rejects what [`StateDb::open`] rejects, and writes nothing. No process may have it open. Blocks.
    pub fn examine(former: &Path, dir: &Path) -> Result<Option<PathBuf>, Thrown> {
        let Some(path) = Self::found(former, dir) else { return Ok(None) };
        let place = path.display().to_string();
        refuse_cut(&path, &place)?;
        std::fs::File::options()
            .append(true)
            .open(&path)
            .map_err(|error| Thrown::new(format_args!("{place} could not be created: {error}")))?;
        let failed = |error| Thrown::new(sentence(&place, &error));
        let connection = untouched(&path).map_err(failed)?;
        schema::check(&connection, &place).map_err(|failure| thrown(&place, failure))?;
        Ok(Some(path))
    }

    /// Opens the database that a start would open, if any, for reading only. Rejects what [`StateDb::open`] rejects, and one
    /// that a start would migrate. No process may have it open. Blocks.
    pub(crate) fn read_only(former: &Path, dir: &Path) -> Result<Option<Connection>, Thrown> {
        let Some(path) = Self::found(former, dir) else { return Ok(None) };
        let place = path.display().to_string();
        refuse_cut(&path, &place)?;
        let failed = |error| Thrown::new(sentence(&place, &error));
        let connection = untouched(&path).map_err(failed)?;
        schema::check(&connection, &place).map_err(|failure| thrown(&place, failure))?;
        if !schema::is_current(&connection).map_err(failed)? {
            return Err(Thrown::new(format_args!(
                "{place} was written by an older ostler; start this version once, and stop it, to update the file"
            )));
        }
        connection.busy_timeout(BUSY).map_err(failed)?;
        connection.set_prepared_statement_cache_capacity(64);
        Ok(Some(connection))
    }

    /// Returns the file that a start would open, or move from `former`.
    fn found(former: &Path, dir: &Path) -> Option<PathBuf> {
        let is_there = |path: &PathBuf| std::fs::symlink_metadata(path).is_ok();
        [dir, former].into_iter().map(Self::file).find(is_there)
    }

    /// Calls `hears` when the file was removed, replaced or truncated, after which every write is rejected, and when a
    /// removed one is back; and when a watched disk cannot be written, and when it can be again. Only the first registered
    /// function is called.
    pub fn watch_file(&self, hears: impl Fn(Option<&str>) + Send + Sync + 'static) {
        let _ = self.hears.set(Box::new(hears));
    }

    /// Watches the disks of folders, from now on. While they cannot be written, writes are still tried: the log has room for
    /// some. Only the first call counts.
    pub fn watch_disk(&self, probe: DiskProbe) {
        let _ = self.disk.set(probe);
    }

    /// Opens a database in memory, which otherwise behaves like one in a file.
    pub fn memory() -> Result<Arc<Self>, Thrown> {
        let place: Arc<str> = "the state in memory".into();
        let mut writer =
            Connection::open_in_memory().map_err(|error| Thrown::new(sentence(&place, &error)))?;
        schema::upgrade(&mut writer).map_err(|failure| thrown(&place, failure))?;
        // It is read on the same connection.
        schema::add_views(&writer).map_err(|error| Thrown::new(sentence(&place, &error)))?;
        Self::start(writer, place, None, None)
    }

    /// Starts the writing thread. `path` is the database's file, if it has one.
    fn start(
        writer: Connection,
        place: Arc<str>,
        reads: Option<Reads>,
        path: Option<PathBuf>,
    ) -> Result<Arc<Self>, Thrown> {
        let (writes, asked) = mpsc::channel();
        let (hears, disk) = (Hears::default(), Disk::default());
        let guard = path.as_deref().map(Guard::of);
        let mut writer = Writer::new(writer, place.clone(), guard, (hears.clone(), disk.clone()));
        start("state writes", move || {
            if let Some(path) = path {
                writer.reserve_log(&path);
            }
            writer.write_all(&asked);
        })?;
        Ok(Arc::new(Self { place, writes, reads, hears, disk }))
    }

    /// Writes. The write is queued now and acknowledged once it is durable. A failed write changes nothing.
    pub(crate) fn write<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
    ) -> Pending<T> {
        let (answer, answered) = oneshot::channel();
        let write = Job { job: Some(job), done: None, answer, place: self.place.clone() };
        later(self.writes.send(WriterRequest::Write(Box::new(write))).is_ok(), answered)
    }

    /// Moves committed data from the log into the database file, so that a copy of that file alone is complete.
    pub(crate) fn checkpoint(&self) -> Pending<()> {
        let (answer, answered) = oneshot::channel();
        later(self.writes.send(WriterRequest::Checkpoint(answer)).is_ok(), answered)
    }

    /// Reads the latest commit.
    pub(crate) fn read<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
    ) -> Pending<T> {
        let Some(reads) = &self.reads else { return self.write(job) };
        let (answer, answered) = oneshot::channel();
        let place = self.place.clone();
        let read: Read = Box::new(move |connection| {
            let done = view(connection, job);
            // The caller no longer waits.
            let _ = answer.send(done.map_err(|failure| thrown(&place, failure)));
        });
        later(reads.asked.send(read).is_ok(), answered)
    }

    /// Reads a few rows by their keys on the caller's thread, or on a reading thread if every connection is in use or
    /// another process has locked the file.
    pub(crate) fn look_up<T: Send + 'static>(
        &self,
        job: impl Fn(&Connection) -> Result<T, Failure> + Send + 'static,
    ) -> Pending<T> {
        let free =
            self.reads.iter().flat_map(|reads| &*reads.connections).find_map(|one| one.try_lock().ok());
        let done = free.and_then(|connection| without_waiting(&connection, &job));
        match done {
            Some(done) => ready(done.map_err(|failure| thrown(&self.place, failure))),
            None => self.read(job),
        }
    }
}

/// Rejects an empty database with a log from a crash, which SQLite never creates.
fn refuse_cut(path: &Path, place: &str) -> Result<(), Thrown> {
    if std::fs::metadata(path).is_ok_and(|found| found.len() == 0) && has_log(path) {
        return Err(Thrown::new(format_args!(
            "{place} is empty, but its log {place}-wal is not: it was truncated; restore a backup, or move both away \
             to start empty"
        )));
    }
    Ok(())
}

/// Returns whether the database's write-ahead log is not empty.
fn has_log(path: &Path) -> bool {
    std::fs::metadata(log_of(path)).is_ok_and(|found| found.len() > 0)
}

/// Returns the path of the write-ahead log of the database at `path`.
fn log_of(path: &Path) -> PathBuf {
    with_suffix(path, "-wal")
}

/// Returns the path of SQLite's index of the log of the database at `path`, which its connections share.
fn index_of(path: &Path) -> PathBuf {
    with_suffix(path, "-shm")
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Opens a database for reading without creating files beside it.
fn untouched(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    match path.to_str() {
        // Otherwise SQLite would create a log for reading.
        Some(text) if !has_log(path) => {
            let text = text.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
            let uri = format!("file:{text}?immutable=1");
            Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI)
        }
        _ => Connection::open_with_flags(path, flags),
    }
}

fn later<T: Send + 'static>(sent: bool, answered: oneshot::Receiver<Result<T, Thrown>>) -> Pending<T> {
    if !sent {
        return ready(Err(stopped()));
    }
    Box::pin(async move { answered.await.unwrap_or_else(|_| Err(stopped())) })
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Thrown> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map(drop)
        .map_err(|error| Thrown::new(format_args!("the state cannot start a thread: {error}")))
}

fn configure(connection: Connection) -> rusqlite::Result<Connection> {
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "full")?;
    // For systems where a plain sync leaves the write in the cache of the disk.
    connection.pragma_update(None, "fullfsync", true)?;
    connection.pragma_update(None, "journal_size_limit", 64 << 20)?;
    connection.set_prepared_statement_cache_capacity(64);
    // Otherwise SQLite replans a statement for each value of a parameter that a partial index can depend on.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(connection)
}

fn read_only(connection: Connection) -> rusqlite::Result<Connection> {
    connection.pragma_update(None, "query_only", true)?;
    // Only the writing connection decides whether the log can be moved into the database.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(connection)
}

fn read_all(connection: &Mutex<Connection>, asked: &Mutex<mpsc::Receiver<Read>>) {
    loop {
        let next = asked.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match next {
            Ok(job) => job(&connection.lock().unwrap_or_else(PoisonError::into_inner)),
            Err(_) => return,
        }
    }
}

/// A consistent view of the database for all reads during its lifetime.
struct View<'a>(&'a Connection);

impl<'a> View<'a> {
    fn begin(connection: &'a Connection) -> rusqlite::Result<Self> {
        execute(connection, "BEGIN")?;
        Ok(Self(connection))
    }
}

impl Drop for View<'_> {
    fn drop(&mut self) {
        // Nothing was written. If this fails, the next transaction cannot begin and reports why.
        let _ = execute(self.0, "ROLLBACK");
    }
}

/// Runs all reads of a job in one view.
fn view<T>(
    connection: &Connection,
    job: impl FnOnce(&Connection) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let view = View::begin(connection)?;
    job(view.0)
}

/// Executes a cached prepared statement.
fn execute(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}

/// Reads, or returns `None` if that would wait for another process.
fn without_waiting<T>(
    connection: &Connection,
    job: impl FnOnce(&Connection) -> Result<T, Failure>,
) -> Option<Result<T, Failure>> {
    connection.busy_timeout(Duration::ZERO).ok()?;
    let done = view(connection, job);
    connection.busy_timeout(BUSY).ok()?;
    match &done {
        Err(Failure::Sqlite(error)) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => None,
        _ => Some(done),
    }
}

fn thrown(place: &str, failure: Failure) -> Thrown {
    match failure {
        Failure::Thrown(thrown) => thrown,
        Failure::Sqlite(error) => Thrown::new(sentence(place, &error)),
    }
}

/// Describes what is wrong with the file and what to do.
fn sentence(place: &str, error: &rusqlite::Error) -> String {
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => format!(
            "{place} is damaged: {error}; stop the host and restore a backup, or move the file away to start empty"
        ),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            format!("{place} is locked by another process: {error}")
        }
        Some(ErrorCode::DiskFull) => format!("{place} could not be written: the disk is full"),
        _ => format!("{place} could not be used: {error}"),
    }
}
