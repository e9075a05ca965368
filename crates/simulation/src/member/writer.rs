//! The writing task of a host: one transaction at a time. What is in a transaction, and when it is sent again, is the plugin's
//! code. As in its writer, appends say the owner, the epoch and the position that the writer knows.

use std::collections::BTreeMap;
use std::sync::Arc;

use ostler_contract::Thrown;
use ostler_plugin_postgres::batch::{Batch, QueuedWrite};
use ostler_plugin_postgres::commit::{self, Failed, Transaction};
use ostler_plugin_postgres::lease::Lease;
use tokio::sync::mpsc;

use super::STATEMENT;
use crate::database::Database;
use crate::database::tables::{Head, Refused, Tables};

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

impl QueuedWrite for Queued {
    fn incarnation(&self) -> &Arc<str> {
        &self.incarnation
    }

    fn target(&self) -> Option<(&str, bool)> {
        self.target.as_ref().map(|target| (&*target.session, target.ends))
    }

    fn moves(&self) -> Option<&str> {
        self.moves.as_deref()
    }
}

/// What a transaction executes.
#[derive(Clone)]
struct Statement {
    target: Option<Target>,
    moves: Option<String>,
    execute: Execute,
}

type Heads = BTreeMap<String, Head>;

/// Why a call of the database has no answer.
const UNREACHABLE: &str = "the database cannot be reached";

/// The writer.
pub struct Writer {
    database: Database,
    lease: Arc<Lease>,
    incarnation: Arc<str>,
    /// The number of the last transaction that was committed.
    number: i64,
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
        let mut held = None;
        loop {
            let first = match held.take() {
                Some(held) => held,
                None => match queued.recv().await {
                    Some(first) => first,
                    None => return,
                },
            };
            let mut batch = Batch::default();
            batch.add(first);
            while !batch.is_full()
                && let Ok(next) = queued.try_recv()
            {
                if !batch.takes(&next) {
                    held = Some(next);
                    break;
                }
                batch.add(next);
            }
            self.store(batch.into_writes()).await;
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
        let (lease, incarnation, mut number) = (self.lease.clone(), self.incarnation.clone(), self.number);
        let mut sent = Sent { writer: self, statements };
        let committed = commit::commit(&mut sent, &lease, &incarnation, &mut number).await;
        self.number = number;
        committed.map(drop)
    }

    /// Sends the transaction once; the answer is nothing if it may or may not have been committed.
    async fn attempt(&self, statements: Arc<[Statement]>, number: u64) -> Option<Result<Heads, Refused>> {
        let (me, heads) = (self.incarnation.clone(), self.heads.clone());
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

/// One transaction of the writer.
struct Sent<'a> {
    writer: &'a mut Writer,
    statements: &'a Arc<[Statement]>,
}

impl Transaction for Sent<'_> {
    type Result = Heads;

    async fn attempt(&mut self, number: i64) -> Result<Heads, Failed<Heads>> {
        match self.writer.attempt(self.statements.clone(), number.unsigned_abs()).await {
            Some(Ok(heads)) => Ok(heads),
            Some(Err(Refused::NoLease)) => Err(Failed::NoLease),
            Some(Err(Refused::Committed)) => Err(Failed::Committed),
            // It may have been committed. Its positions are not known then.
            None => Err(Failed::Unavailable(UNREACHABLE.to_owned(), Some(Heads::new()))),
        }
    }

    async fn last_committed(&mut self) -> Result<Option<i64>, String> {
        match self.writer.last_committed().await {
            Some(number) => Ok(number.map(|number| i64::try_from(number).unwrap_or(i64::MAX))),
            None => Err(UNREACHABLE.to_owned()),
        }
    }

    fn settle(&mut self, heads: &Heads) {
        self.writer.heads.clone_from(heads);
    }

    fn forget(&mut self) {
        self.writer.heads.clear();
    }

    fn disconnect(&mut self) {}

    fn is_late(&mut self, _: &str) {}
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
