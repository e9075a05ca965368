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
        let (mut batch, mut checkpoints) = (Vec::new(), Vec::new());
        for next in std::iter::once(first).chain(asked.try_iter().take(BATCH - 1)) {
            match next {
                Asked::Write(write) => batch.push(write),
                Asked::Checkpoint(answer) => checkpoints.push(answer),
            }
        }
        let failed = |error| Thrown::new(sentence(place, &error));
        if !batch.is_empty() {
            let committed = commit(connection, &mut batch).map_err(|error| {
                // Whatever was begun is taken back; where nothing was, there is nothing to take back.
                let _ = connection.execute_batch("ROLLBACK");
                failed(error)
            });
            for write in batch {
                write.answer(committed.clone());
            }
        }
        for answer in checkpoints {
            let done = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
            let _ = answer.send(done.map_err(failed));
        }
    }
}

fn commit(connection: &Connection, batch: &mut [Box<dyn Write>]) -> rusqlite::Result<()> {
    let execute = |sql: &str| connection.prepare_cached(sql)?.execute([]).map(drop);
    execute("BEGIN IMMEDIATE")?;
    for write in batch {
        // So that one that fails takes none of the others with it.
        execute("SAVEPOINT one")?;
        if !write.run(connection) {
            execute("ROLLBACK TO one")?;
        }
        execute("RELEASE one")?;
    }
    execute("COMMIT")
}
