//! The database as the stores use it: reads on a pool, writes in the order of their calls.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use deadpool::managed::Object;
use ostler_contract::Thrown;
use ostler_contract::live::{Pending, ready};
use ostler_contract::stores::Report;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::connect::{Connector, Pool, PoolError, Purpose, SCAN};
use crate::failure::{Failures, Unopened};
use crate::lease::Lease;
use crate::text::{accepted, original, storable};
use crate::writer::{Queued, Writer, WriterRequest};

/// How long a read is tried; the host waits 10 seconds for a store.
const READ: Duration = Duration::from_secs(9);
/// The first pause before another try.
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The maximum size of queued writes, in bytes.
const WAITING: usize = 64 << 20;
/// The memory of a statement in addition to its values.
const STATEMENT: usize = 256;

/// A value of a statement.
pub type Param = Box<dyn ToSql + Sync + Send>;

/// A statement with its values.
pub struct Sql {
    /// The text, prepared once on each connection.
    pub text: &'static str,
    /// Its values. Those of a statement on a session follow the four of [`Target`].
    pub params: Vec<Param>,
}

impl Sql {
    fn new(text: &'static str, params: Vec<Param>) -> Self {
        Self { text, params: accepted(params) }
    }
}

/// The session that a write appends to. Its first four values are the session's id, the owner, the epoch and the position, and
/// its answer is the number of sessions that it was appended to.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    /// The id.
    pub session: String,
    /// Whether the write removes the session.
    pub ends: bool,
    /// Whether the write changes data that listings show.
    pub is_listed: bool,
}

/// A write: one statement in a transaction that it shares with others.
pub struct Write {
    /// The statement.
    pub sql: Sql,
    /// The session it appends to.
    pub target: Option<Target>,
    /// The session whose owner it changes.
    pub moves: Option<String>,
    /// The automation whose runs it changes, where other hosts show them.
    pub runs_of: Option<String>,
    /// The size of its values.
    pub bytes: usize,
}

impl Write {
    /// Creates a write. `bytes` is the size of its values.
    pub fn new(text: &'static str, params: Vec<Param>, bytes: usize) -> Self {
        let sql = Sql::new(text, params);
        Self { sql, target: None, moves: None, runs_of: None, bytes: bytes + STATEMENT }
    }

    /// Creates a write that appends to a session; its own values are from `$5` on.
    pub fn append(session: String, text: &'static str, params: Vec<Param>, bytes: usize) -> Self {
        let bytes = bytes + session.len() + STATEMENT;
        let target = Some(Target { session, ends: false, is_listed: false });
        Self { sql: Sql::new(text, params), target, moves: None, runs_of: None, bytes }
    }

    /// Creates a write that changes the owner of a session.
    pub fn moving(session: String, text: &'static str, params: Vec<Param>) -> Self {
        let bytes = session.len() + STATEMENT;
        Self { sql: Sql::new(text, params), target: None, moves: Some(session), runs_of: None, bytes }
    }

    /// Marks that the write changes data that listings show.
    #[must_use]
    pub fn listed(mut self) -> Self {
        if let Some(target) = &mut self.target {
            target.is_listed = true;
        }
        self
    }
}

/// The database of a running host.
pub struct Database {
    /// The lease of the host.
    pub lease: Arc<Lease>,
    pool: Pool,
    writes: mpsc::UnboundedSender<WriterRequest>,
    waiting: Arc<AtomicUsize>,
    /// How many stores are open.
    open: AtomicUsize,
    stop: Arc<Notify>,
    /// Closed once the renewal has ended, and with it the lease.
    renewal: watch::Receiver<()>,
    connector: Connector,
    failures: Arc<Failures>,
    /// Held while a probe is written.
    probing: Arc<tokio::sync::Mutex<()>>,
}

impl Database {
    /// Starts the writer. `stores` is how many stores will be closed; `report` receives lines for the log.
    ///
    /// # Errors
    /// There is no tokio runtime.
    pub fn start(
        connector: Connector,
        lease: Arc<Lease>,
        (stop, renewal): (Arc<Notify>, watch::Receiver<()>),
        stores: usize,
        report: Report,
    ) -> Result<Arc<Self>, Thrown> {
        let (writes, asked) = mpsc::unbounded_channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let failures = Arc::new(Failures::new(report.clone()));
        let database = Self {
            lease: lease.clone(),
            pool: connector.pool()?,
            writes,
            waiting: waiting.clone(),
            open: AtomicUsize::new(stores),
            stop,
            renewal,
            connector: connector.clone(),
            failures: failures.clone(),
            probing: Arc::default(),
        };
        tokio::spawn(Writer::new(connector, lease, waiting, failures, report).run(asked));
        Ok(Arc::new(database))
    }

    /// Writes. The write is queued now and acknowledged once it is durable. A failed write changes nothing. `read` runs
    /// in the order of the writes.
    pub fn write<T: Send + 'static>(
        &self,
        write: Write,
        read: impl FnOnce(Vec<Row>) -> Result<T, Thrown> + Send + 'static,
    ) -> Pending<T> {
        let incarnation = match self.lease.current() {
            Ok(incarnation) => incarnation,
            Err(why) => return ready(Err(why)),
        };
        self.write_as(incarnation, write, read)
    }

    /// Writes in the name of a run of the host, if it is still the current one.
    pub fn write_as<T: Send + 'static>(
        &self,
        incarnation: Arc<str>,
        write: Write,
        read: impl FnOnce(Vec<Row>) -> Result<T, Thrown> + Send + 'static,
    ) -> Pending<T> {
        let bytes = write.bytes;
        if self.waiting.fetch_add(bytes, Ordering::AcqRel) + bytes > WAITING {
            self.waiting.fetch_sub(bytes, Ordering::AcqRel);
            return ready(Err(Thrown::new(
                "PostgreSQL: 64 MB of writes wait for the database; try again later",
            )));
        }
        let (answer, answered) = oneshot::channel();
        let queued = Queued {
            write,
            incarnation,
            answer: Box::new(move |rows| {
                // The caller may no longer wait; it is written anyway.
                drop(answer.send(rows.and_then(read)));
            }),
        };
        if self.writes.send(WriterRequest::Write(queued)).is_err() {
            return ready(Err(stopped()));
        }
        Box::pin(async move { answered.await.unwrap_or_else(|_| Err(stopped())) })
    }

    /// Writes a transaction that changes no data, which shows whether data can be written. At most one of them waits.
    pub fn probe(self: &Arc<Self>) -> Pending<()> {
        let database = self.clone();
        Box::pin(async move {
            let one = database.probing.clone().lock_owned().await;
            let written = database.put(Write::new("SELECT 1", vec![], 0));
            // It stays the only one if its caller waits no longer.
            let written = tokio::spawn(async move {
                let written = written.await;
                drop(one);
                written
            });
            written.await.map_err(Thrown::new)?
        })
    }

    /// Writes without an answer.
    pub fn put(&self, write: Write) -> Pending<()> {
        self.write(write, |_| Ok(()))
    }

    /// Reads rows. Tries again while the database is unavailable.
    ///
    /// # Errors
    /// The host has no lease, the database rejects the statement, or is unavailable for too long.
    pub async fn rows(&self, sql: &'static str, params: Vec<Param>) -> Result<Vec<Row>, Thrown> {
        self.retried(READ, sql, params, None).await
    }

    /// As [`Self::rows`], for a statement whose text is made of few parts.
    ///
    /// # Errors
    /// As [`Self::rows`].
    pub async fn rows_of(&self, sql: &str, params: Vec<Param>) -> Result<Vec<Row>, Thrown> {
        self.retried(READ, sql, params, None).await
    }

    /// Reads rows of a whole table, which may take long.
    ///
    /// # Errors
    /// As [`Self::rows`].
    pub async fn scan(&self, sql: &'static str, params: Vec<Param>) -> Result<Vec<Row>, Thrown> {
        self.retried(SCAN, sql, params, Some(SCAN)).await
    }

    /// Rebuilds an index, unless another host does so now.
    ///
    /// # Errors
    /// The database fails, or takes too long because a transaction stays open.
    pub async fn rebuild(&self, index: &str) -> Result<(), Thrown> {
        let incarnation = self.lease.current()?;
        let purpose = Purpose { origin: &incarnation, timeout: SCAN, ..Purpose::default() };
        let client = self.connector.open(purpose).await?.client;
        let failed = |why: tokio_postgres::Error| self.failures.of(&why);
        let alone = "SELECT pg_try_advisory_lock(hashtextextended('ostler:rebuild:' || current_schema(), 0))";
        if !client.query_one(alone, &[]).await.map_err(failed)?.get::<_, bool>(0) {
            return Ok(());
        }
        // What an interrupted one has left, which every write would update.
        let parts = [format!("{index}_ccnew"), format!("{index}_ccold")];
        let clean = async || {
            for part in &parts {
                client.batch_execute(&format!("DROP INDEX CONCURRENTLY IF EXISTS {part}")).await?;
            }
            Ok(())
        };
        clean().await.map_err(failed)?;
        let rebuilt = client.batch_execute(&format!("REINDEX INDEX CONCURRENTLY {index}")).await;
        if rebuilt.is_err() {
            drop(clean().await);
        }
        rebuilt.map_err(failed)
    }

    async fn retried(
        &self,
        limit: Duration,
        sql: &str,
        params: Vec<Param>,
        timeout: Option<Duration>,
    ) -> Result<Vec<Row>, Thrown> {
        let (begun, params) = (Instant::now(), accepted(params));
        let mut pause = PAUSE;
        loop {
            self.lease.check()?;
            match self.read_once(sql, &params, timeout).await {
                Ok(rows) => return Ok(rows),
                Err(why) => {
                    if why.is_lasting() || begun.elapsed() + pause >= limit {
                        return Err(match why {
                            Unopened::Failed(error) => self.failures.of(&error),
                            why => self.failures.away(why.sentence()),
                        });
                    }
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn read_once(
        &self,
        sql: &str,
        params: &[Param],
        timeout: Option<Duration>,
    ) -> Result<Vec<Row>, Unopened> {
        let client = self.pool.get().await.map_err(|why| match why {
            PoolError::Backend(why) => why,
            PoolError::Timeout(_) => {
                Unopened::Unfit("no connection became free in time (poolSize)".to_owned())
            }
            _ => Unopened::Unfit("the connections that read are closed".to_owned()),
        })?;
        let limit = timeout.unwrap_or(self.connector.statement_timeout) + Duration::from_millis(500);
        let read = async {
            let statement = client.prepare_cached(sql).await?;
            match timeout {
                None => client.query(&statement, &borrowed(params)).await,
                Some(timeout) => {
                    let begin =
                        format!("BEGIN READ ONLY; SET LOCAL statement_timeout = {}", timeout.as_millis());
                    client.batch_execute(&begin).await?;
                    let rows = client.query(&statement, &borrowed(params)).await;
                    client.batch_execute("ROLLBACK").await?;
                    rows
                }
            }
        };
        let read = tokio::time::timeout(limit, read).await;
        match read {
            Ok(Ok(rows)) => Ok(rows),
            Ok(Err(why)) => {
                self.connector.notice(&why);
                let why = Unopened::Failed(why);
                if !why.is_lasting() {
                    // Its state is unknown.
                    drop(Object::take(client));
                }
                Err(why)
            }
            Err(_) => {
                drop(Object::take(client));
                Err(Unopened::Unfit("no answer in time".to_owned()))
            }
        }
    }

    /// Closes one store; with the last one, waits for the writes and gives the lease up.
    pub fn close(self: &Arc<Self>) -> Pending<()> {
        let database = self.clone();
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            if database.writes.send(WriterRequest::Flush(answer)).is_ok() {
                drop(answered.await);
            }
            if database.open.fetch_sub(1, Ordering::AcqRel) == 1 {
                database.stop.notify_one();
                // Otherwise the process could end before the lease is released, and other hosts would wait for it.
                let mut renewal = database.renewal.clone();
                while renewal.changed().await.is_ok() {}
            }
            Ok(())
        })
    }
}

/// Borrows the values of a statement.
pub fn borrowed(params: &[Param]) -> Vec<&(dyn ToSql + Sync)> {
    params.iter().map(|param| &**param as &(dyn ToSql + Sync)).collect()
}

/// Polls all futures once, in order, so that they send in order; then waits for each.
pub async fn pipelined<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut all: Vec<_> = futures.into_iter().map(|one| Box::pin(futures::future::maybe_done(one))).collect();
    std::future::poll_fn(|context| {
        for one in &mut all {
            let _ = one.as_mut().poll(context);
        }
        std::task::Poll::Ready(())
    })
    .await;
    let mut outputs = Vec::with_capacity(all.len());
    for mut one in all {
        one.as_mut().await;
        outputs.extend(one.as_mut().take_output());
    }
    outputs
}

fn stopped() -> Thrown {
    Thrown::new("PostgreSQL: the stores are closed")
}

/// Writes a value as JSON text.
///
/// # Errors
/// The value has no text.
pub fn json(value: &impl Serialize) -> Result<String, Thrown> {
    serde_json::to_string(value)
        .map_err(|error| Thrown::new(format_args!("cannot store this value: {error}")))
}

/// Writes a value as JSON text that the database stores.
///
/// # Errors
/// As [`json`].
pub fn encode(value: &impl Serialize) -> Result<String, Thrown> {
    json(value).map(storable)
}

/// Reads a value from JSON text.
///
/// # Errors
/// It is not of this type.
pub fn parse<T: DeserializeOwned>(text: &str, what: &str, of: &str) -> Result<T, Thrown> {
    serde_json::from_str(text)
        .map_err(|error| Thrown::new(format_args!("cannot read the stored {what} {of}: {error}")))
}

/// Reads a value from stored JSON text.
///
/// # Errors
/// As [`parse`].
pub fn decode<T: DeserializeOwned>(text: &str, what: &str, of: &str) -> Result<T, Thrown> {
    parse(&original(text), what, of)
}

/// Converts a number to the database's integer.
pub fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
