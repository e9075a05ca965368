//! Connections to the database: opened in one place, all with the same settings and of the same server.
//!
//! Settings are made with statements after connecting, because poolers refuse or ignore those of a start-up message, and are read
//! back.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use deadpool::managed::{self, Metrics, RecycleError, RecycleResult};
use deadpool_postgres::{ClientWrapper, Runtime, Timeouts};
use ostler_contract::Thrown;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_postgres::config::Host;
use tokio_postgres::{AsyncMessage, Client, Config, Error, SimpleQueryMessage};
use uuid::Uuid;

use crate::database::pipelined;
use crate::failure::{self, Kind, Unopened};
use crate::options::Settings;
use crate::server::{Admitted, Identity, Server};
use crate::tls::Tls;

/// How long a client may wait in a transaction before the server ends it: a host that was stopped must not hold locks.
const IDLE_IN_TRANSACTION: Duration = Duration::from_secs(5);
/// The limit for connecting, with everything that the connection needs before it is used.
pub const CONNECT: Duration = Duration::from_secs(4);
/// The limit for reading everything; the host waits 120 seconds for it.
pub const SCAN: Duration = Duration::from_secs(110);
/// The setting with the name of a connection, which shows whether it keeps its settings.
pub const CONNECTION: &str = "ostler.connection";

/// What identifies the server. A database user may be denied either of them.
const SYSTEM: &str = "SELECT system_identifier FROM pg_control_system()";
/// The name of a file of the log begins with the timeline, in 8 hexadecimal digits.
const TIMELINE: &str = "SELECT pg_walfile_name(pg_current_wal_lsn())";

/// The pool of connections that read.
pub type Pool = managed::Pool<Readers>;
pub type PoolError = managed::PoolError<Unopened>;

/// What a connection is for.
#[derive(Default)]
pub struct Purpose<'a> {
    /// The name of the host that its changes carry.
    pub origin: &'a str,
    /// How long a statement may take.
    pub timeout: Duration,
    /// Whether the lease of the host is taken or renewed on it.
    pub is_of_lease: bool,
    /// Woken by notifications.
    pub wake: Option<Arc<Notify>>,
}

/// An open connection.
pub struct Opened {
    /// Sends statements.
    pub client: Client,
    /// The name of the connection.
    pub name: String,
    /// How often the server was replaced before.
    pub changes: u64,
    /// Its process of the server.
    process: String,
    task: JoinHandle<()>,
}

impl Opened {
    /// Checks that the connection still has its settings and its process of the server.
    ///
    /// # Errors
    /// It does not, or does not answer.
    pub async fn check(&self) -> Result<(), Unopened> {
        let sql = format!("SELECT pg_backend_pid(), current_setting('{CONNECTION}', true)");
        let answer = self.client.simple_query(&sql).await?;
        let [process, name] = [0, 1].map(|at| value(&answer, at));
        match (process, name) {
            (Some(process), _) if process != self.process => Err(Unopened::Pooled(format!(
                "process {} of the server served it, and now {process} does",
                self.process
            ))),
            (_, Some(name)) if name == self.name => Ok(()),
            _ => Err(Unopened::Pooled(format!("{CONNECTION} was set on it, and now it is another value"))),
        }
    }
}

/// Opens connections.
#[derive(Clone)]
pub struct Connector {
    /// One for each server of the URL.
    servers: Vec<Config>,
    /// The place in `servers` of the one that was used last.
    last: Arc<AtomicUsize>,
    /// The server that all connections are of.
    server: Arc<Server>,
    tls: Tls,
    /// The schema with the tables.
    pub schema: String,
    /// How long a statement may take.
    pub statement_timeout: Duration,
    pool_size: usize,
}

impl Connector {
    /// Creates a connector for the options.
    pub fn new(settings: &Settings) -> Self {
        Self {
            servers: servers(&settings.config),
            last: Arc::default(),
            server: Arc::default(),
            tls: settings.tls.clone(),
            schema: settings.schema.clone(),
            statement_timeout: settings.statement_timeout,
            pool_size: settings.pool_size,
        }
    }

    /// Abandons all open connections, because one of them no longer answers, or no longer writes. Statements on them fail as if
    /// the connections had been closed, and are repeated on new ones.
    pub fn abandon(&self) {
        self.server.abandon();
    }

    /// Abandons all open connections if a statement failed because the server cannot be written any more: another one may have
    /// replaced it.
    pub fn notice(&self, failure: &Error) {
        if failure::kind(failure) == Kind::ReadOnly {
            self.abandon();
        }
    }

    /// The settings of a connection.
    fn settings(&self, purpose: &Purpose<'_>, name: &str) -> [(&'static str, String); 6] {
        [
            ("search_path", self.schema.clone()),
            ("statement_timeout", purpose.timeout.as_millis().to_string()),
            ("idle_in_transaction_session_timeout", IDLE_IN_TRANSACTION.as_millis().to_string()),
            ("DateStyle", "ISO".to_owned()),
            ("ostler.origin", purpose.origin.to_owned()),
            (CONNECTION, name.to_owned()),
        ]
    }

    /// Opens a connection to the first server that can be used, and checks its settings.
    ///
    /// # Errors
    /// No server can be reached, accepts the user, and can be written; or the connection has other settings.
    pub async fn open(&self, purpose: Purpose<'_>) -> Result<Opened, Unopened> {
        let (count, last) = (self.servers.len(), self.last.load(Ordering::Relaxed));
        let mut failed = None;
        for at in (0..count).map(|after| (last + after) % count) {
            match self.open_at(&self.servers[at], &purpose).await {
                Ok(opened) => {
                    self.last.store(at, Ordering::Relaxed);
                    return Ok(opened);
                }
                Err(why) => failed = Some(why),
            }
        }
        Err(failed.unwrap_or_else(|| Unopened::Unfit("url names no server".to_owned())))
    }

    async fn open_at(&self, server: &Config, purpose: &Purpose<'_>) -> Result<Opened, Unopened> {
        let (client, mut connection) = server.connect(self.tls.clone()).await?;
        let name = Uuid::new_v4().to_string();
        let (process, identity) = tokio::select! {
            biased;
            ended = &mut connection => return Err(match ended {
                Err(why) => why.into(),
                Ok(()) => Unopened::Unfit("the server closed the connection".to_owned()),
            }),
            prepared = self.prepare(&client, purpose, &name) => prepared?,
        };
        let Admitted { changes, mut abandoned } =
            self.server.admit(identity, purpose.is_of_lease).map_err(Unopened::Unfit)?;
        let wake = purpose.wake.clone();
        let task = tokio::spawn(async move {
            let messages = async {
                while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                    if let (AsyncMessage::Notification(_), Some(wake)) = (message, &wake) {
                        wake.notify_one();
                    }
                }
            };
            tokio::select! {
                // Each waiting statement receives its error.
                () = messages => {}
                Ok(()) = abandoned.changed() => {}
            }
        });
        Ok(Opened { client, name, changes, process, task })
    }

    /// Makes the settings and reads them back; returns the process of the server, and what identifies the server. Without prepared
    /// statements, which a pooler can confuse.
    async fn prepare(
        &self,
        client: &Client,
        purpose: &Purpose<'_>,
        name: &str,
    ) -> Result<(String, Identity), Unopened> {
        let settings = self.settings(purpose, name);
        let list =
            |one: &dyn Fn(&(&str, String)) -> String| settings.iter().map(one).collect::<Vec<_>>().join(", ");
        let sql = [
            format!(
                "SELECT {}",
                list(&|(setting, value)| format!(
                    "set_config('{setting}', '{}', false)",
                    value.replace('\'', "''")
                ))
            ),
            format!(
                "SELECT {}, pg_backend_pid(), pg_is_in_recovery(), current_setting('transaction_read_only')",
                list(&|(setting, _)| format!("current_setting('{setting}', true)"))
            ),
            SYSTEM.to_owned(),
            TIMELINE.to_owned(),
        ];
        let mut answers = pipelined(sql.iter().map(|sql| client.simple_query(sql))).await.into_iter();
        let mut answer = || answers.next().unwrap_or_else(|| Ok(Vec::new()));
        let (made, read) = (&answer()?, &answer()?);
        for (at, (setting, wanted)) in settings.iter().enumerate() {
            let (made, read) = (value(made, at), value(read, at));
            // Times are read back with units.
            let is_wanted = *setting != "search_path" || read == Some(wanted);
            if made.is_none() || made != read || !is_wanted {
                let read = read.map_or_else(|| "not set".to_owned(), |read| format!("{read:?}"));
                return Err(Unopened::Pooled(format!("{setting} was set to {wanted:?} and is {read}")));
            }
        }
        let more = |at: usize| value(read, settings.len() + at).unwrap_or_default();
        if more(1) == "t" {
            return Err(Unopened::Unfit(
                "the server is a standby, which cannot be written; use the address of the primary".to_owned(),
            ));
        }
        if more(2) != "off" {
            return Err(Unopened::Unfit(
                "the server cannot be written (default_transaction_read_only); use the address of the primary".to_owned(),
            ));
        }
        let system = answer().ok().and_then(|answer| value(&answer, 0).map(str::to_owned));
        let timeline =
            answer().ok().and_then(|answer| u32::from_str_radix(value(&answer, 0)?.get(..8)?, 16).ok());
        Ok((more(0).to_owned(), Identity { system, timeline }))
    }

    /// Creates the pool of connections that read. It connects when it is used.
    ///
    /// # Errors
    /// There is no tokio runtime.
    pub fn pool(&self) -> Result<Pool, Thrown> {
        Pool::builder(Readers(self.clone()))
            .max_size(self.pool_size)
            .runtime(Runtime::Tokio1)
            .timeouts(Timeouts {
                wait: Some(Duration::from_secs(8)),
                create: Some(Duration::from_secs(5)),
                recycle: Some(Duration::from_secs(2)),
            })
            .build()
            .map_err(Thrown::new)
    }
}

/// Returns a value of the only row of an answer.
fn value(answer: &[SimpleQueryMessage], at: usize) -> Option<&str> {
    let row = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    row?.get(at)
}

/// Returns the configuration of each server that a URL names.
fn servers(all: &Config) -> Vec<Config> {
    let count = all.get_hosts().len().max(all.get_hostaddrs().len());
    if count < 2 {
        return vec![all.clone()];
    }
    let each = (0..count).map(|at| {
        let mut one = Config::new();
        match all.get_hosts().get(at) {
            Some(Host::Tcp(name)) => drop(one.host(name)),
            Some(Host::Unix(folder)) => drop(one.host_path(folder)),
            None => {}
        }
        if let Some(address) = all.get_hostaddrs().get(at) {
            one.hostaddr(*address);
        }
        if let Some(port) = all.get_ports().get(at).or_else(|| all.get_ports().first()) {
            one.port(*port);
        }
        if let Some(user) = all.get_user() {
            one.user(user);
        }
        if let Some(password) = all.get_password() {
            one.password(password);
        }
        if let Some(name) = all.get_dbname() {
            one.dbname(name);
        }
        if let Some(name) = all.get_application_name() {
            one.application_name(name);
        }
        if let Some(limit) = all.get_tcp_user_timeout() {
            one.tcp_user_timeout(*limit);
        }
        if let Some(limit) = all.get_connect_timeout() {
            // Servers that do not answer leave time for the others.
            one.connect_timeout(*limit / u32::try_from(count).unwrap_or(u32::MAX));
        }
        one.ssl_mode(all.get_ssl_mode())
            .ssl_negotiation(all.get_ssl_negotiation())
            .channel_binding(all.get_channel_binding())
            .keepalives(all.get_keepalives())
            .keepalives_idle(all.get_keepalives_idle());
        one
    });
    each.collect()
}

/// Opens the connections of the pool.
pub struct Readers(Connector);

impl managed::Manager for Readers {
    type Type = ClientWrapper;
    type Error = Unopened;

    async fn create(&self) -> Result<ClientWrapper, Unopened> {
        let purpose = Purpose { timeout: self.0.statement_timeout, ..Purpose::default() };
        let Opened { client, task, .. } = self.0.open(purpose).await?;
        Ok(ClientWrapper::new(client, task))
    }

    async fn recycle(&self, client: &mut ClientWrapper, _: &Metrics) -> RecycleResult<Unopened> {
        match client.is_closed() {
            true => Err(RecycleError::message("it is closed")),
            false => Ok(()),
        }
    }
}
