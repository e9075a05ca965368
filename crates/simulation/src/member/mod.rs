//! A host's access to the model of the database, with the protocol of `@ostler/postgres`: the lease, its renewal and the
//! protocol of transactions are the plugin's code, against the model; the stores and the directory of the cluster do the same
//! steps as those of the plugin.

mod automations;
mod cluster;
mod renewal;
mod sessions;
mod shared_runs;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ostler_contract::Thrown;
use ostler_contract::cluster::Cluster;
use ostler_contract::live::{Pending, ready};
use ostler_contract::points::{AutomationStore, SessionStore};
use ostler_contract::shared_runs::{RunTransactions, SharedRuns};
use ostler_plugin_postgres::lease::Lease;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::database::Database;
use crate::database::tables::Tables;
pub use cluster::TOKEN;
use writer::{Queued, Target, Writer};

/// How long a read is tried.
const READ: Duration = Duration::from_secs(9);
/// How long one attempt takes at most.
const STATEMENT: Duration = Duration::from_secs(5);
/// How long a start waits for the lease of a run that ended without releasing it.
const PATIENCE: Duration = Duration::from_secs(12);
/// The first pause before another try.
const PAUSE: Duration = Duration::from_millis(50);
/// The longest.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Called when runs may wait for this host.
type RunsListener = Arc<dyn Fn() + Send + Sync>;

/// The member's access to the database.
pub struct Member {
    database: Database,
    /// The lease.
    pub lease: Arc<Lease>,
    writes: mpsc::UnboundedSender<Queued>,
    url: watch::Sender<Option<String>>,
    is_draining: AtomicBool,
    is_emptied: Arc<AtomicBool>,
    runs_listener: Mutex<Option<RunsListener>>,
    stop: Arc<tokio::sync::Notify>,
    ended: watch::Sender<bool>,
}

impl std::fmt::Debug for Member {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Member({})", self.lease.id)
    }
}

impl Member {
    /// Takes the lease of a host, and starts what keeps it. Waits for the lease of an earlier run that did not release it.
    ///
    /// # Errors
    /// The lease is not free in time.
    pub async fn join(
        database: &Database,
        id: &str,
        incarnation: &str,
        is_member: bool,
    ) -> Result<Arc<Self>, Thrown> {
        let begun = Instant::now();
        let sent = loop {
            let sent = Instant::now();
            let (name, own) = (id.to_owned(), incarnation.to_owned());
            let taken = database.call(id, None, move |tables| {
                tables.take((&name, env!("CARGO_PKG_VERSION")), &own, is_member, false)
            });
            let taken = tokio::time::timeout(STATEMENT, taken).await.ok().flatten();
            match taken {
                Some(Ok(())) => break sent,
                _ if begun.elapsed() > PATIENCE => {
                    return Err(Thrown::new(format_args!("the lease of {id} is not free")));
                }
                Some(Err(rest)) => tokio::time::sleep(rest.min(Duration::from_millis(500))).await,
                None => tokio::time::sleep(PAUSE).await,
            }
        };
        let lease = Lease::new(id.to_owned(), is_member, incarnation, sent);
        let (writes, queued) = mpsc::unbounded_channel();
        let member = Arc::new(Self {
            database: database.clone(),
            lease: lease.clone(),
            writes,
            url: watch::Sender::new(None),
            is_draining: AtomicBool::new(false),
            is_emptied: Arc::default(),
            runs_listener: Mutex::default(),
            stop: Arc::default(),
            ended: watch::Sender::new(false),
        });
        tokio::spawn(Writer::new(database.clone(), lease.clone()).run(queued));
        tokio::spawn(renewal::renew(member.clone()));
        if is_member {
            tokio::spawn(lease.watch());
        }
        tokio::spawn(renewal::follow(member.clone()));
        Ok(member)
    }

    /// The directory of the cluster.
    pub fn cluster(self: &Arc<Self>) -> Arc<dyn Cluster> {
        Arc::new(cluster::Directory(self.clone()))
    }

    /// The session store.
    pub fn sessions(self: &Arc<Self>) -> SessionStore {
        sessions::store(self)
    }

    /// The automation store.
    pub fn automations(self: &Arc<Self>) -> AutomationStore {
        automations::store(self)
    }

    /// The runs that hosts share.
    pub fn shared_runs(self: &Arc<Self>) -> Arc<dyn SharedRuns> {
        Arc::new(shared_runs::Shared(self.clone()))
    }

    /// Runs that are stored with records.
    pub fn run_transactions(self: &Arc<Self>) -> Arc<dyn RunTransactions> {
        Arc::new(shared_runs::Shared(self.clone()))
    }

    fn me(&self) -> String {
        self.lease.incarnation().to_string()
    }

    fn wake_runs(&self) {
        let listener = self.runs_listener.lock().clone();
        if let Some(listener) = listener {
            listener();
        }
    }

    /// Reads. Tries again while the database does not answer.
    fn read<T: Send + 'static>(
        self: &Arc<Self>,
        job: impl Fn(&mut Tables) -> T + Send + Sync + 'static,
    ) -> Pending<T> {
        let (member, job) = (self.clone(), Arc::new(job));
        Box::pin(async move {
            let begun = Instant::now();
            let mut pause = PAUSE;
            loop {
                member.lease.check()?;
                let job = job.clone();
                let call = member.database.call(&member.lease.id, None, move |tables| job(tables));
                if let Ok(Some(answer)) = tokio::time::timeout(STATEMENT, call).await {
                    return Ok(answer);
                }
                if begun.elapsed() + pause >= READ {
                    return Err(Thrown::new("the database cannot be reached"));
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        })
    }

    /// Writes. The write is queued now and acknowledged once it is durable.
    fn write<T: Send + 'static>(
        &self,
        job: impl Fn(&mut Tables, &str) -> Result<T, Thrown> + Send + Sync + 'static,
    ) -> Pending<T> {
        self.queue(None, None, job)
    }

    /// Appends to a session.
    fn append<T: Send + 'static>(
        &self,
        session: &str,
        job: impl Fn(&mut Tables, &str) -> Result<T, Thrown> + Send + Sync + 'static,
    ) -> Pending<T> {
        self.queue(Some(Target { session: session.to_owned(), ends: false }), None, job)
    }

    fn queue<T: Send + 'static>(
        &self,
        target: Option<Target>,
        moves: Option<String>,
        job: impl Fn(&mut Tables, &str) -> Result<T, Thrown> + Send + Sync + 'static,
    ) -> Pending<T> {
        let incarnation = match self.lease.current() {
            Ok(incarnation) => incarnation,
            Err(why) => return ready(Err(why)),
        };
        let (answer, answered) = oneshot::channel();
        let outcome: Arc<Mutex<Option<Result<T, Thrown>>>> = Arc::default();
        let (written, session) = (outcome.clone(), target.as_ref().map(|target| target.session.clone()));
        let execute = move |tables: &mut Tables, me: &str, is_owner: bool| {
            *written.lock() = Some(match (is_owner, &session) {
                (false, Some(session)) => {
                    Err(Thrown::new(format_args!("session {session} is owned by another host")))
                }
                _ => job(tables, me),
            });
        };
        let answer = move |failed: Option<Thrown>| {
            let done = outcome.lock().take();
            let lost = || Err(Thrown::new("the write was not executed"));
            // The caller may no longer wait.
            let _ = answer.send(failed.map_or_else(|| done.unwrap_or_else(lost), Err));
        };
        let queued =
            Queued { incarnation, target, moves, execute: Arc::new(execute), answer: Box::new(answer) };
        let stopped = || Thrown::new("the stores are closed");
        if self.writes.send(queued).is_err() {
            return ready(Err(stopped()));
        }
        Box::pin(async move { answered.await.unwrap_or_else(|_| Err(stopped())) })
    }

    /// Waits for earlier writes, and gives the lease up.
    fn close(self: &Arc<Self>) -> Pending<()> {
        let member = self.clone();
        Box::pin(async move {
            // Without a lease nothing waits to be written.
            let _ = member.write(|_, _| Ok(())).await;
            member.stop.notify_one();
            let mut ended = member.ended.subscribe();
            let _ = ended.wait_for(|ended| *ended).await;
            Ok(())
        })
    }
}

fn is_set(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Acquire)
}
