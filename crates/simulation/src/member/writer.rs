//! The writing task of a host: one transaction at a time. It does what the writer of the plugin does: transactions are numbered,
//! so that one whose answer was lost is not executed twice, and appends say the owner, the epoch and the position that the writer
//! knows.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use ostler_contract::Thrown;
use ostler_plugin_postgres::lease::Lease;
use tokio::sync::mpsc;

use super::{Batch, LONGEST_PAUSE, PAUSE, STATEMENT};
use crate::database::Database;
use crate::database::tables::{Head, Refused, Tables};

/// The maximum number of writes in a transaction.
const BATCH: usize = 256;

/// The session that a write appends to.
#[derive(Debug, Clone)]
pub struct Target {
    /// Its id.
    pub session: String,
    /// Whether the write ends it.
    pub ends: bool,
}

/// Executes a write, or notes that the host does not own its session.
type Execute = Arc<dyn Fn(&mut Tables, &str, bool) + Send + Sync>;

/// A queued write.
pub struct Queued {
    /// The run of the host that made it.
    pub incarnation: Arc<str>,
    /// The session it appends to.
    pub target: Option<Target>,
    /// The session whose owner it changes.
    pub moves: Option<String>,
    /// Executes it.
    pub execute: Execute,
    /// Receives the end: what it answered, or why the transaction failed.
    pub answer: Box<dyn FnOnce(Option<Thrown>) + Send>,
}

/// What a transaction executes.
#[derive(Clone)]
struct Statement {
    target: Option<Target>,
    moves: Option<String>,
    execute: Execute,
}

type Heads = BTreeMap<String, Head>;

/// The writer.
pub struct Writer {
    database: Database,
    lease: Arc<Lease>,
    incarnation: Arc<str>,
    /// The number of the last transaction that was committed.
    number: u64,
    heads: Heads,
}

impl Writer {
    /// Creates the writer of a host that has just taken its lease.
    pub fn new(database: Database, lease: Arc<Lease>) -> Self {
        let incarnation = lease.incarnation();
        Self { database, lease, incarnation, number: 0, heads: Heads::new() }
    }

    /// Serves writes until nobody can send any.
    pub async fn run(mut self, mut queued: mpsc::UnboundedReceiver<Queued>) {
        let mut waiting = Batch::new();
        loop {
            if waiting.is_empty() {
                match queued.recv().await {
                    Some(first) => waiting.push_back(first),
                    None => return,
                }
            }
            while let Ok(next) = queued.try_recv() {
                waiting.push_back(next);
            }
            let batch = take(&mut waiting);
            self.store(batch).await;
        }
    }

    async fn store(&mut self, batch: Vec<Queued>) {
        let Some(first) = batch.first() else { return };
        if first.incarnation != self.incarnation {
            self.incarnation = first.incarnation.clone();
            self.number = 0;
            self.heads.clear();
        }
        let statements: Arc<[Statement]> = batch
            .iter()
            .map(|one| Statement {
                target: one.target.clone(),
                moves: one.moves.clone(),
                execute: one.execute.clone(),
            })
            .collect();
        let failed = self.commit(&statements).await.err();
        for one in batch {
            (one.answer)(failed.clone());
        }
    }

    /// Commits a transaction, and tries as often as necessary.
    async fn commit(&mut self, statements: &Arc<[Statement]>) -> Result<(), Thrown> {
        let (mut pause, mut is_unsure) = (PAUSE, false);
        loop {
            if let Err(why) = self.lease.check_for(&self.incarnation) {
                self.heads.clear();
                return Err(why);
            }
            if is_unsure {
                // The transaction that may have been committed ends first.
                match self.last_committed().await {
                    Some(Some(last)) if last > self.number => {
                        self.number = last;
                        self.heads.clear();
                        return Ok(());
                    }
                    Some(Some(_)) => {
                        is_unsure = false;
                        continue;
                    }
                    Some(None) => self.lease.lose(&self.incarnation),
                    None => {}
                }
            } else {
                match self.attempt(statements.clone()).await {
                    Some(Ok(heads)) => {
                        self.number += 1;
                        self.heads = heads;
                        return Ok(());
                    }
                    Some(Err(Refused::NoLease)) => {
                        self.heads.clear();
                        if self.last_committed().await == Some(None) {
                            self.lease.lose(&self.incarnation);
                        }
                    }
                    Some(Err(Refused::Committed)) => {
                        self.heads.clear();
                        match self.last_committed().await {
                            Some(Some(last)) => self.number = last,
                            Some(None) => self.lease.lose(&self.incarnation),
                            None => {}
                        }
                    }
                    None => {
                        self.heads.clear();
                        is_unsure = true;
                    }
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Sends the transaction once; the answer is nothing if it may or may not have been committed.
    async fn attempt(&self, statements: Arc<[Statement]>) -> Option<Result<Heads, Refused>> {
        let (me, number, heads) = (self.incarnation.clone(), self.number + 1, self.heads.clone());
        let is_member = self.lease.is_member;
        let call = self.database.call(&self.lease.id, Some(&self.incarnation), move |tables| {
            tables.begin(&me, number)?;
            Ok(execute(tables, &me, is_member, &statements, heads))
        });
        tokio::time::timeout(STATEMENT, call).await.ok().flatten()
    }

    /// The number of the last transaction that was committed, if the host has a row.
    async fn last_committed(&self) -> Option<Option<u64>> {
        let me = self.incarnation.clone();
        let call = self
            .database
            .call(&self.lease.id, Some(&self.incarnation), move |tables| tables.last_committed(&me));
        tokio::time::timeout(STATEMENT, call).await.ok().flatten()
    }
}

/// Takes the writes of the next transaction: positions of sessions are read once, at its beginning, and everything in it is of
/// one run of the host.
fn take(waiting: &mut Batch) -> Vec<Queued> {
    let (mut batch, mut appended, mut moved): (Vec<Queued>, HashSet<String>, HashSet<String>) =
        Default::default();
    while let Some(next) = waiting.front() {
        let fits = batch.last().is_none_or(|last| {
            let ends = last.target.as_ref().is_some_and(|target| target.ends);
            let appends = next.target.as_ref().is_some_and(|target| moved.contains(&target.session));
            let moves = next.moves.as_ref().is_some_and(|session| appended.contains(session));
            !ends && !appends && !moves && last.incarnation == next.incarnation
        });
        if !fits || batch.len() >= BATCH {
            break;
        }
        appended.extend(next.target.as_ref().map(|target| target.session.clone()));
        moved.extend(next.moves.clone());
        batch.extend(waiting.pop_front());
    }
    batch
}

/// Executes the statements of a transaction; returns the positions of sessions after it.
fn execute(
    tables: &mut Tables,
    me: &str,
    is_member: bool,
    statements: &[Statement],
    mut heads: Heads,
) -> Heads {
    for session in statements.iter().filter_map(|one| one.moves.as_ref()) {
        heads.remove(session);
    }
    for session in statements.iter().filter_map(|one| one.target.as_ref().map(|target| &target.session)) {
        if !heads.contains_key(session)
            && let Some(head) = tables.find(me, is_member, session)
        {
            heads.insert(session.clone(), head);
        }
    }
    for one in statements {
        let is_owner = match &one.target {
            None => true,
            Some(Target { session, ends }) => match heads.get_mut(session) {
                Some(head) => {
                    let at = *head;
                    head.position += 1;
                    let is_owner = tables.append(me, session, at, *ends);
                    if *ends || !is_owner {
                        heads.remove(session);
                    }
                    is_owner
                }
                None => false,
            },
        };
        (one.execute)(tables, me, is_owner);
    }
    heads
}
