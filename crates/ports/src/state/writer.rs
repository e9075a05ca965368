//! The thread that writes: a batch at a time, each one commit.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use ostler_contract::Thrown;
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::{Failure, sentence, thrown};
use crate::worker::stopped;

/// How many writes go into one commit at most.
const BATCH: usize = 256;

/// A write that waits.
pub(super) trait Write: Send {
    /// Writes; whether that went well.
    fn run(&mut self, connection: &Connection) -> bool;
    /// Tells who asked, once it is known whether the commit succeeded.
    fn answer(self: Box<Self>, committed: Result<(), Thrown>);
}

/// What the writer is asked for.
pub(super) enum Asked {
    /// To write.
    Write(Box<dyn Write>),
    /// To bring what was committed into the database's own file.
    Checkpoint(oneshot::Sender<Result<(), Thrown>>),
}

/// A write with what came of it.
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
        // Nobody waits any more: it is written all the same.
        let _ = self.answer.send(done);
    }
}

/// Serves writes until nobody can ask for any.
pub(super) fn write_all(connection: &Connection, place: &str, asked: &Receiver<Asked>) {
    while let Ok(first) = asked.recv() {
        let (mut batch, mut checkpoints) = (Batch::default(), Vec::new());
        let mut next = Some(first);
        // What is asked for while the batch is being written joins it: it costs no commit of its own.
        while let Some(asked_for) = next {
            match asked_for {
                Asked::Write(write) => batch.run(connection, write),
                Asked::Checkpoint(answer) => checkpoints.push(answer),
            }
            next = if batch.writes.len() < BATCH { asked.try_recv().ok() } else { None };
        }
        let failed = |error| Thrown::new(sentence(place, &error));
        if !batch.writes.is_empty() {
            let committed = batch.commit(connection).map_err(|error| {
                // Whatever was begun is taken back; where nothing was, there is nothing to take back.
                let _ = connection.execute_batch("ROLLBACK");
                failed(error)
            });
            for write in batch.writes {
                write.answer(committed.clone());
            }
        }
        for answer in checkpoints {
            let done = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
            let _ = answer.send(done.map_err(failed));
        }
    }
}

/// Writes that share a commit.
#[derive(Default)]
struct Batch {
    writes: Vec<Box<dyn Write>>,
    /// What failed for all of them.
    failed: Option<rusqlite::Error>,
}

impl Batch {
    fn run(&mut self, connection: &Connection, mut write: Box<dyn Write>) {
        if self.failed.is_none() {
            let begun = if self.writes.is_empty() { execute(connection, "BEGIN IMMEDIATE") } else { Ok(()) };
            self.failed = begun.and_then(|()| one(connection, &mut *write)).err();
        }
        self.writes.push(write);
    }

    fn commit(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        match self.failed.take() {
            Some(error) => Err(error),
            None => execute(connection, "COMMIT"),
        }
    }
}

/// Runs one write, so that one that fails takes none of the others with it.
fn one(connection: &Connection, write: &mut dyn Write) -> rusqlite::Result<()> {
    execute(connection, "SAVEPOINT one")?;
    if !write.run(connection) {
        execute(connection, "ROLLBACK TO one")?;
    }
    execute(connection, "RELEASE one")
}

fn execute(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}
