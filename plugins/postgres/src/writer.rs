//! The writing task: one batch at a time, each in one transaction.
//!
//! A transaction begins with `write_batch`, which fails unless the host has its lease and the transaction is its next one. So a
//! transaction that may or may not have been committed, because the connection broke, can be sent again: the database
//! refuses it if it was.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ostler_contract::Thrown;
use ostler_contract::stores::Report;
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row, Statement};

use crate::batch::{Batch, QueuedWrite};
use crate::commit::{self, Transaction};
use crate::connect::{CONNECT, Connector, Opened, Purpose};
use crate::database::{Target, Write, borrowed, pipelined};
use crate::failure::{self, Failures, Kind, Unopened};
use crate::lease::Lease;

/// The maximum size of a transaction in bytes, unless a single write is larger.
const BATCH_BYTES: usize = 8 << 20;
/// The maximum number of sessions whose positions the writer stores.
const HEADS: usize = 65_536;

const WRITE_BATCH: &str = "SELECT write_batch($1, $2)";
/// Acquires sessions without an owner, or whose owner no longer has a lease.
const CLAIM: &str = "INSERT INTO session_heads (session, owner, epoch, head)
     SELECT session, $2, 1, 0 FROM unnest($1::text[]) AS session
     ON CONFLICT (session) DO UPDATE SET owner = excluded.owner,
         epoch = session_heads.epoch + (session_heads.owner IS DISTINCT FROM excluded.owner)::int
     WHERE session_heads.owner IS NOT DISTINCT FROM excluded.owner OR session_heads.owner IS NULL
         OR NOT EXISTS (
             SELECT 1 FROM host WHERE incarnation = session_heads.owner AND expires_at > clock_timestamp()
         )
     RETURNING session, epoch, head";
/// Finds the sessions that a host of a cluster owns. It claims them with [`crate::cluster`] before it appends.
const FIND: &str =
    "SELECT session, epoch, head FROM session_heads WHERE session = ANY ($1::text[]) AND owner = $2";
/// Reports changed sessions to the other hosts of a cluster, but no write that was refused. Equal notifications of one
/// transaction are sent once.
const REPORT: &str = "WITH noted AS (
         INSERT INTO changes (kind, id, operation, origin)
         SELECT 'session', session, operation, $3 FROM unnest($1::text[], $2::text[]) AS one (session, operation)
         WHERE CASE operation
             WHEN 'delete' THEN NOT EXISTS (SELECT 1 FROM session_heads WHERE session_heads.session = one.session)
             ELSE EXISTS (
                 SELECT 1 FROM session_heads WHERE session_heads.session = one.session AND session_heads.owner = $3
             )
         END
     )
     SELECT pg_notify('ostler_' || current_schema(), '')";
/// Reports automations whose runs changed to the other hosts of a cluster, but no write that was refused.
const REPORT_RUNS: &str = "WITH noted AS (
         INSERT INTO changes (kind, id, operation, origin)
         SELECT 'run', automation, 'update', $2 FROM unnest($1::text[]) AS automation
         WHERE EXISTS (SELECT 1 FROM automation_owners AS of WHERE of.automation = automation AND of.owner = $2)
     )
     SELECT pg_notify('ostler_' || current_schema(), '')";
const COMMITTED: &str = "SELECT batch FROM writer WHERE incarnation = $1 FOR UPDATE";

/// The process of the server for this connection, and when it began.
const PROCESS: &str = "SELECT pid, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()";
const END_PROCESS: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
     WHERE pid = $1 AND backend_start::text = $2 AND usename = current_user";

/// Receives the rows of a write once they are durable, or why it failed.
pub type Answer = Box<dyn FnOnce(Result<Vec<Row>, Thrown>) + Send>;

/// A queued write.
pub struct Queued {
    pub write: Write,
    /// The run of the host that made it.
    pub incarnation: Arc<str>,
    /// The waiting caller.
    pub answer: Answer,
}

pub enum WriterRequest {
    /// Write.
    Write(Queued),
    /// Answer once all earlier writes are done.
    Flush(oneshot::Sender<()>),
}

/// The owner of a session, and its position.
#[derive(Clone, Copy)]
struct Head {
    epoch: i64,
    position: i64,
}

/// A connection with its statements.
struct Open {
    client: Client,
    statements: HashMap<&'static str, Statement>,
}

/// The rows of each write of a transaction, or why it was refused.
type Rows = Vec<Result<Vec<Row>, Thrown>>;
type Failed = commit::Failed<Rows>;

impl QueuedWrite for Queued {
    fn incarnation(&self) -> &Arc<str> {
        &self.incarnation
    }

    fn target(&self) -> Option<(&str, bool)> {
        self.write.target.as_ref().map(|target| (&*target.session, target.ends))
    }

    fn moves(&self) -> Option<&str> {
        self.write.moves.as_deref()
    }
}

/// One transaction of the writer.
struct Sent<'a> {
    writer: &'a mut Writer,
    batch: &'a [Write],
}

pub struct Writer {
    connector: Connector,
    lease: Arc<Lease>,
    waiting: Arc<AtomicUsize>,
    failures: Arc<Failures>,
    /// Receives lines for the log.
    report: Report,
    /// Whether the log says that writes wait.
    is_late: bool,
    /// The process of the server for the last connection, and when it began.
    process: Option<(i32, String)>,
    /// How often the server was replaced.
    changes: u64,
    open: Option<Open>,
    /// The run of the host that writes.
    incarnation: Arc<str>,
    /// The number of the last transaction that was committed.
    number: i64,
    heads: HashMap<String, Head>,
}

impl Writer {
    /// Creates the writer of a host that has just taken its lease.
    pub fn new(
        connector: Connector,
        lease: Arc<Lease>,
        waiting: Arc<AtomicUsize>,
        failures: Arc<Failures>,
        report: Report,
    ) -> Self {
        let incarnation = lease.incarnation();
        Self {
            connector,
            lease,
            waiting,
            failures,
            report,
            is_late: false,
            process: None,
            changes: 0,
            open: None,
            incarnation,
            number: 0,
            heads: HashMap::new(),
        }
    }

    /// Serves requests until all senders are dropped.
    pub async fn run(mut self, mut asked: mpsc::UnboundedReceiver<WriterRequest>) {
        let (mut flushes, mut held) = (Vec::new(), None);
        loop {
            let first = match held.take() {
                Some(held) => held,
                None => match asked.recv().await {
                    Some(first) => first,
                    None => return,
                },
            };
            let (mut batch, mut bytes) = (Batch::default(), 0);
            let mut next = Some(first);
            while let Some(one) = next {
                match one {
                    WriterRequest::Write(queued) if !batch.takes(&queued) => {
                        held = Some(WriterRequest::Write(queued));
                        break;
                    }
                    WriterRequest::Write(queued) => {
                        bytes += queued.write.bytes;
                        batch.add(queued);
                    }
                    WriterRequest::Flush(answer) => flushes.push(answer),
                }
                let is_full = batch.is_full() || bytes >= BATCH_BYTES;
                next = if is_full { None } else { asked.try_recv().ok() };
            }
            self.store(batch.into_writes()).await;
            // Later requests were not begun.
            for answer in flushes.drain(..) {
                let _ = answer.send(());
            }
        }
    }

    /// Writes a batch, and answers each of its writes. If one is rejected, each gets a separate transaction.
    async fn store(&mut self, queued: Vec<Queued>) {
        let Some(first) = queued.first() else { return };
        if first.incarnation != self.incarnation {
            self.incarnation = first.incarnation.clone();
            self.number = 0;
            self.heads.clear();
            // Its changes carry the name of the earlier run.
            self.open = None;
        }
        let (writes, answers): (Vec<Write>, Vec<Answer>) =
            queued.into_iter().map(|one| (one.write, one.answer)).unzip();
        let answers = answers.into_iter().zip(writes.iter().map(|write| write.bytes).collect::<Vec<_>>());
        match self.store_together(&writes).await {
            Ok(rows) => answers.zip(rows).for_each(|(answer, rows)| self.answer(answer, rows)),
            Err(_) if writes.len() > 1 && self.lease.check_for(&self.incarnation).is_ok() => {
                for (write, answer) in writes.iter().zip(answers) {
                    let rows = self.store_together(std::slice::from_ref(write)).await;
                    let rows = rows.and_then(|mut rows| rows.pop().unwrap_or_else(|| Ok(Vec::new())));
                    self.answer(answer, rows);
                }
            }
            Err(why) => answers.for_each(|answer| self.answer(answer, Err(why.clone()))),
        }
    }

    fn answer(&self, (answer, bytes): (Answer, usize), rows: Result<Vec<Row>, Thrown>) {
        self.waiting.fetch_sub(bytes, Ordering::AcqRel);
        answer(rows);
    }

    /// Writes a batch in one transaction, and retries as often as necessary.
    async fn store_together(&mut self, batch: &[Write]) -> Result<Rows, Thrown> {
        let (lease, incarnation, mut number) = (self.lease.clone(), self.incarnation.clone(), self.number);
        let rows = commit::commit(&mut Sent { writer: self, batch }, &lease, &incarnation, &mut number).await;
        self.number = number;
        if lease.check_for(&incarnation).is_err() {
            self.heads.clear();
        }
        rows
    }

    /// How long the writer waits for the answer of a statement, which the database limits too.
    fn limit(&self) -> Duration {
        self.connector.statement_timeout + Duration::from_secs(1)
    }

    /// The number of the last transaction of this host that was committed. Waits for one that has not ended.
    async fn last_committed(&mut self) -> Result<Option<i64>, String> {
        self.connect().await?;
        let Some(open) = &self.open else { return Err("not connected".to_owned()) };
        let me = &*self.incarnation;
        let params: [&(dyn ToSql + Sync); 1] = [&me];
        let read = open.client.query_opt(COMMITTED, &params);
        let row = match tokio::time::timeout(self.limit(), read).await {
            Ok(row) => row.map_err(|why| failure::sentence(&why)),
            Err(_) => Err("no answer in time".to_owned()),
        };
        if row.is_err() {
            self.open = None;
        }
        Ok(row?.map(|row| row.get(0)))
    }

    async fn connect(&mut self) -> Result<(), String> {
        if self.open.as_ref().is_some_and(|open| !open.client.is_closed()) {
            return Ok(());
        }
        self.open = None;
        let opening = async {
            let timeout = self.connector.statement_timeout;
            let purpose = Purpose { origin: &self.incarnation, timeout, ..Purpose::default() };
            let Opened { client, changes, .. } = self.connector.open(purpose).await?;
            if let Some(before) = &self.process {
                // If its connection does not answer, its transaction still has locks, until the server ends it after 5 seconds.
                client.execute(END_PROCESS, &[&before.0, &before.1]).await?;
            }
            let process = client.query_one(PROCESS, &[]).await?;
            // Without it, an acknowledged write can be lost.
            client
                .batch_execute(
                    "SELECT set_config('synchronous_commit', 'on', false)
                     WHERE current_setting('synchronous_commit') = 'off'",
                )
                .await?;
            Ok::<_, Unopened>((client, changes, (process.get(0), process.get(1))))
        };
        let (client, changes, process) = match tokio::time::timeout(CONNECT, opening).await {
            Ok(opened) => opened.map_err(|why| why.sentence())?,
            Err(_) => return Err("no connection within 4 seconds".to_owned()),
        };
        self.process = Some(process);
        if std::mem::replace(&mut self.changes, changes) != changes {
            // A server that replaced another one may lack its last writes.
            self.heads.clear();
        }
        self.open = Some(Open { client, statements: HashMap::new() });
        Ok(())
    }

    /// Writes a batch once.
    async fn attempt(&mut self, batch: &[Write], number: i64) -> Result<Rows, Failed> {
        let limit = self.limit();
        let late = || Failed::Unavailable("no answer in time".to_owned(), None);
        let work = tokio::time::timeout(limit, self.transaction(batch, number)).await;
        let rows = match work {
            Ok(Ok(rows)) => rows,
            Ok(Err(failed)) => {
                if let (Some(open), false) = (&self.open, matches!(failed, Failed::Unavailable(..))) {
                    let rolled_back =
                        tokio::time::timeout(limit, open.client.batch_execute("ROLLBACK")).await;
                    if !matches!(rolled_back, Ok(Ok(()))) {
                        self.open = None;
                    }
                }
                return Err(failed);
            }
            Err(_) => return Err(late()),
        };
        let Some(open) = &self.open else { return Err(late()) };
        if self.lease.check_for(&self.incarnation).is_err() {
            drop(tokio::time::timeout(limit, open.client.batch_execute("ROLLBACK")).await);
            return Err(late());
        }
        match tokio::time::timeout(limit, open.client.batch_execute("COMMIT")).await {
            Ok(Ok(())) => Ok(rows),
            Ok(Err(why)) => Err(Failed::Unavailable(failure::sentence(&why), Some(rows))),
            Err(_) => Err(Failed::Unavailable("no answer in time".to_owned(), Some(rows))),
        }
    }

    /// Everything of a transaction but its commit.
    async fn transaction(&mut self, batch: &[Write], number: i64) -> Result<Rows, Failed> {
        let sent = self.send(batch, number).await;
        sent.map_err(|why| match why {
            Unsent::Unavailable(why) => Failed::Unavailable(why, None),
            Unsent::Failed(why) => {
                self.connector.notice(&why);
                self.refused(&why)
            }
        })
    }

    fn refused(&self, why: &Error) -> Failed {
        match failure::kind(why) {
            Kind::Unavailable | Kind::ReadOnly | Kind::Aborted => {
                Failed::Unavailable(failure::sentence(why), None)
            }
            Kind::NoLease => Failed::NoLease,
            Kind::Committed => Failed::Committed,
            Kind::Refused => Failed::Refused(self.failures.of(why)),
        }
    }

    async fn send(&mut self, batch: &[Write], number: i64) -> Result<Rows, Unsent> {
        self.connect().await.map_err(Unsent::Unavailable)?;
        let texts: HashSet<&'static str> = batch
            .iter()
            .map(|one| one.sql.text)
            .chain(["BEGIN", WRITE_BATCH, CLAIM, FIND, REPORT, REPORT_RUNS])
            .collect();
        let Some(open) = &mut self.open else {
            return Err(Unsent::Unavailable("not connected".to_owned()));
        };
        for text in texts {
            if !open.statements.contains_key(text) {
                let statement = open.client.prepare(text).await?;
                open.statements.insert(text, statement);
            }
        }
        let Open { client, statements } = &*open;
        let me = &*self.incarnation;
        for one in batch {
            if let Some(session) = &one.moves {
                self.heads.remove(session);
            }
        }
        let mut sent: Vec<(&Statement, Vec<&(dyn ToSql + Sync)>)> =
            vec![(&statements["BEGIN"], vec![]), (&statements[WRITE_BATCH], vec![&me, &number])];
        let mut unclaimed: Vec<&String> = Vec::new();
        for one in batch {
            if let Some(Target { session, .. }) = &one.target
                && !self.heads.contains_key(session)
                && !unclaimed.contains(&session)
            {
                unclaimed.push(session);
            }
        }
        if !unclaimed.is_empty() {
            let find = if self.lease.is_member { FIND } else { CLAIM };
            sent.push((&statements[find], vec![&unclaimed, &me]));
            let claimed = all(pipelined(
                sent.iter().map(|(statement, params)| client.query(*statement, params)),
            )
            .await)?;
            for row in claimed.last().into_iter().flatten() {
                self.heads.insert(row.get(0), Head { epoch: row.get(1), position: row.get(2) });
            }
            sent.clear();
        }
        // The four values of each statement on a session.
        let mut places: Vec<Option<(i64, i64)>> = Vec::with_capacity(batch.len());
        for one in batch {
            places.push(match &one.target {
                None => None,
                Some(Target { session, .. }) => match self.heads.get_mut(session) {
                    // Another host owns it, so no row has this epoch.
                    None => Some((-1, -1)),
                    Some(head) => {
                        let place = (head.epoch, head.position);
                        head.position += 1;
                        Some(place)
                    }
                },
            });
        }
        let before = sent.len();
        for (one, place) in batch.iter().zip(&places) {
            let mut params: Vec<&(dyn ToSql + Sync)> = Vec::with_capacity(one.sql.params.len() + 4);
            if let (Some(Target { session, .. }), Some((epoch, position))) = (&one.target, place) {
                params.extend([session as &(dyn ToSql + Sync), &me, epoch, position]);
            }
            params.extend(borrowed(&one.sql.params));
            sent.push((&statements[one.sql.text], params));
        }
        let (changed, operations) =
            if self.lease.is_member { changed_sessions(batch) } else { (Vec::new(), Vec::new()) };
        if !changed.is_empty() {
            sent.push((&statements[REPORT], vec![&changed, &operations, &me]));
        }
        let changed: BTreeSet<&String> = batch.iter().filter_map(|one| one.runs_of.as_ref()).collect();
        let changed: Vec<&String> = changed.into_iter().collect();
        if !changed.is_empty() {
            sent.push((&statements[REPORT_RUNS], vec![&changed, &me]));
        }
        let rows =
            all(pipelined(sent.iter().map(|(statement, params)| client.query(*statement, params))).await)?;
        let answers = batch.iter().zip(rows.into_iter().skip(before)).map(|(one, rows)| match &one.target {
            Some(Target { session, .. }) if rows.first().is_none_or(|row| row.get::<_, i64>(0) == 0) => {
                Err(Thrown::new(format_args!("PostgreSQL: session {session} is owned by another host")))
            }
            _ => Ok(rows),
        });
        Ok(answers.collect())
    }
}

impl Transaction for Sent<'_> {
    type Result = Rows;

    async fn attempt(&mut self, number: i64) -> Result<Rows, Failed> {
        self.writer.attempt(self.batch, number).await
    }

    async fn last_committed(&mut self) -> Result<Option<i64>, String> {
        self.writer.last_committed().await
    }

    fn settle(&mut self, rows: &Rows) {
        for (one, rows) in self.batch.iter().zip(rows) {
            let Some(Target { session, ends, .. }) = &one.target else { continue };
            if *ends || rows.is_err() {
                self.writer.heads.remove(session);
            }
        }
        if self.writer.heads.len() > HEADS {
            self.writer.heads.clear();
        }
        if std::mem::take(&mut self.writer.is_late) {
            self.writer.report.say("writes are stored again");
        }
    }

    fn forget(&mut self) {
        for one in self.batch {
            if let Some(Target { session, .. }) = &one.target {
                self.writer.heads.remove(session);
            }
        }
    }

    fn disconnect(&mut self) {
        self.writer.open = None;
    }

    fn is_late(&mut self, why: &str) {
        if !std::mem::replace(&mut self.writer.is_late, true) {
            self.writer.report.say(format!("writes wait for the database, retrying: {why}"));
        }
    }
}

/// The sessions whose listed data a batch changes, each once, and how.
fn changed_sessions(batch: &[Write]) -> (Vec<&String>, Vec<&'static str>) {
    let (mut sessions, mut operations) = (Vec::new(), Vec::new());
    for target in batch.iter().filter_map(|one| one.target.as_ref()) {
        if target.ends || target.is_listed && !sessions.contains(&&target.session) {
            sessions.push(&target.session);
            operations.push(if target.ends { "delete" } else { "update" });
        }
    }
    (sessions, operations)
}

/// Why a transaction was not sent completely.
enum Unsent {
    Unavailable(String),
    Failed(Error),
}

impl From<Error> for Unsent {
    fn from(why: Error) -> Self {
        Self::Failed(why)
    }
}

/// The rows of every statement, or why the first one failed.
fn all(answers: Vec<Result<Vec<Row>, Error>>) -> Result<Vec<Vec<Row>>, Error> {
    answers.into_iter().collect()
}
