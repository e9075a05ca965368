//! The writing thread, which commits in batches.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use ostler_contract::Thrown;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode};
use tokio::sync::oneshot;

use super::guard::Guard;
use super::reserve::reserve;
use super::{Disk, Failure, Hears, execute, sentence, thrown};
use crate::worker::stopped;

/// The maximum number of writes in a commit.
const BATCH: usize = 256;
/// How often the files are checked while nothing is written.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How often the disk is checked at most.
const CHECK_DISK_EVERY: Duration = Duration::from_secs(1);

/// A queued write.
pub(super) trait Write: Send {
    /// Writes; returns whether it succeeded.
    fn run(&mut self, connection: &Connection) -> bool;
    /// Answers the caller once the outcome of the commit is known.
    fn answer(self: Box<Self>, committed: Result<(), Thrown>);
}

/// A request to the writer.
pub(super) enum WriterRequest {
    /// Write.
    Write(Box<dyn Write>),
    /// Merge the log into the database file.
    Checkpoint(oneshot::Sender<Result<(), Thrown>>),
}

/// A write with its outcome.
pub(super) struct Job<F, T> {
    pub(super) job: Option<F>,
    pub(super) done: Option<Result<T, Failure>>,
    pub(super) answer: oneshot::Sender<Result<T, Thrown>>,
    pub(super) place: Arc<str>,
}

impl<F, T> Write for Job<F, T>
where
    F: FnOnce(&Connection) -> Result<T, Failure> + Send,
    T: Send,
{
    fn run(&mut self, connection: &Connection) -> bool {
        self.done = self.job.take().map(|job| job(connection));
        matches!(self.done, Some(Ok(_)))
    }

    fn answer(self: Box<Self>, committed: Result<(), Thrown>) {
        let done = self.done.unwrap_or_else(|| Err(stopped().into()));
        let done = committed.and(done.map_err(|failure| thrown(&self.place, failure)));
        // The caller may no longer wait; it is written anyway.
        let _ = self.answer.send(done);
    }
}

/// The writing connection and its files.
pub(super) struct Writer {
    connection: Connection,
    place: Arc<str>,
    guard: Option<Guard>,
    hears: Hears,
    disk: Disk,
    /// Why the disk cannot be written, and when that was checked.
    full: Option<String>,
    checked: Option<Instant>,
    /// Why nothing can be stored, as last reported.
    lost: Option<String>,
}

impl Writer {
    pub(super) fn new(
        connection: Connection,
        place: Arc<str>,
        guard: Option<Guard>,
        (hears, disk): (Hears, Disk),
    ) -> Self {
        Self { connection, place, guard, hears, disk, full: None, checked: None, lost: None }
    }

    /// Gives the log of the database at `path` its usual size.
    pub(super) fn reserve_log(&mut self, path: &Path) {
        if self.look().is_ok() {
            reserve(&self.connection, path);
        }
    }

    /// Serves requests until all senders are dropped.
    pub(super) fn write_all(&mut self, asked: &Receiver<WriterRequest>) {
        loop {
            let first = match asked.recv_timeout(LOOK_EVERY) {
                Ok(first) => first,
                Err(RecvTimeoutError::Timeout) => {
                    let _ = self.look();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let (mut batch, mut checkpoints) = (Batch::default(), Vec::new());
            let whole = self.look();
            let mut next = Some(first);
            // Requests that arrive during the batch join it and need no separate commit.
            while let Some(asked_for) = next {
                match asked_for {
                    WriterRequest::Write(write) if whole.is_ok() => batch.run(&self.connection, write),
                    WriterRequest::Write(write) => batch.writes.push(write),
                    WriterRequest::Checkpoint(answer) => checkpoints.push(answer),
                }
                next = if batch.writes.len() < BATCH { asked.try_recv().ok() } else { None };
            }
            if !batch.writes.is_empty() {
                let committed = whole.and_then(|()| self.commit(&mut batch));
                for write in batch.writes {
                    write.answer(committed.clone());
                }
            }
            for answer in checkpoints {
                let _ = answer.send(self.checkpoint());
            }
        }
    }

    /// Merges the log into the database file, unless the file was truncated, which would create half a database.
    fn checkpoint(&mut self) -> Result<(), Thrown> {
        self.look()?;
        let done = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        done.map_err(|error| Thrown::new(sentence(&self.place, &error)))?;
        self.look()
    }

    /// Commits a batch. It is durable if the files are still the opened ones after the commit.
    fn commit(&mut self, batch: &mut Batch) -> Result<(), Thrown> {
        if let Err(error) = batch.commit(&self.connection) {
            // Rolls back the transaction, if one has begun.
            let _ = self.connection.execute_batch("ROLLBACK");
            self.note_full(&error);
            return Err(Thrown::new(sentence(&self.place, &error)));
        }
        self.look()
    }

    /// Reports a full disk that a write found, before the failure of the write is known.
    fn note_full(&mut self, error: &rusqlite::Error) {
        if error.sqlite_error_code() == Some(ErrorCode::DiskFull) && self.disk.get().is_some() {
            (self.full, self.checked) = (Some(sentence(&self.place, error)), Some(Instant::now()));
            let _ = self.look();
        }
    }

    /// Checks the disk, unless that was just done.
    fn check_disk(&mut self) {
        if let Some(probe) = self.disk.get()
            && self.checked.is_none_or(|at| at.elapsed() >= CHECK_DISK_EVERY)
        {
            self.full = match self.full {
                Some(_) => probe.write().err(),
                None => probe.check().err(),
            };
            self.checked = Some(Instant::now());
        }
    }

    /// Checks the files and the disk, and reports changes of their state. Writes are rejected only because of the files.
    fn look(&mut self) -> Result<(), Thrown> {
        self.check_disk();
        let lost = self.guard.as_mut().and_then(|guard| guard.look().err());
        let reported = lost.as_ref().or(self.full.as_ref());
        if reported != self.lost.as_ref() {
            if let Some(hears) = self.hears.get() {
                hears(reported.map(String::as_str));
            }
            self.lost = reported.cloned();
        }
        if self.guard.as_ref().is_some_and(Guard::is_lost) {
            // Closing would merge the rest of the log into the database.
            let _ = self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        }
        lost.map_or(Ok(()), |lost| Err(Thrown::new(lost)))
    }
}

/// Writes that share a commit.
#[derive(Default)]
struct Batch {
    writes: Vec<Box<dyn Write>>,
    /// Whether a transaction has begun and contains a write.
    begun: bool,
    /// The error for all of them.
    failed: Option<rusqlite::Error>,
}

impl Batch {
    fn run(&mut self, connection: &Connection, mut write: Box<dyn Write>) {
        if self.failed.is_none() {
            self.failed = self.add(connection, &mut *write).err();
        }
        self.writes.push(write);
    }

    /// Runs one write, so that a failure does not affect the others. The first one is the whole transaction and needs
    /// no savepoint.
    fn add(&mut self, connection: &Connection, write: &mut dyn Write) -> rusqlite::Result<()> {
        if self.begun {
            execute(connection, "SAVEPOINT one")?;
            if !write.run(connection) {
                execute(connection, "ROLLBACK TO one")?;
            }
            return execute(connection, "RELEASE one");
        }
        execute(connection, "BEGIN IMMEDIATE")?;
        self.begun = write.run(connection);
        // SQLite ends a transaction itself after some errors.
        match self.begun || connection.is_autocommit() {
            true => Ok(()),
            false => execute(connection, "ROLLBACK"),
        }
    }

    fn commit(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        match self.failed.take() {
            Some(error) => Err(error),
            None if self.begun => execute(connection, "COMMIT"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A batch of inserts, each with whether it fails after its insert; the numbers that are stored then.
    fn stored(writes: &[(i64, bool)]) -> Vec<i64> {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE numbers (number INTEGER)").unwrap();
        let mut batch = Batch::default();
        for &(number, fails) in writes {
            let job = move |connection: &Connection| {
                connection.execute("INSERT INTO numbers VALUES (?1)", [number])?;
                if fails { Err(Failure::Thrown(Thrown::new("refused"))) } else { Ok(()) }
            };
            let (answer, _) = oneshot::channel();
            batch.run(
                &connection,
                Box::new(Job { job: Some(job), done: None, answer, place: "memory".into() }),
            );
        }
        batch.commit(&connection).unwrap();
        assert!(connection.is_autocommit(), "no transaction is left open");
        let mut asked = connection.prepare("SELECT number FROM numbers ORDER BY number").unwrap();
        asked.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn a_write_that_fails_takes_no_other_of_its_commit_with_it() {
        assert_eq!(stored(&[(1, false)]), [1]);
        assert_eq!(stored(&[(1, true)]), Vec::<i64>::new());
        assert_eq!(stored(&[(1, true), (2, true), (3, false), (4, true), (5, false)]), [3, 5]);
        assert_eq!(stored(&[(1, false), (2, true), (3, false)]), [1, 3]);
    }
}
