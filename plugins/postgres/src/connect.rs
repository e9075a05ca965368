//! Connections to the database: one kind for each use, all with the same settings.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Connect, Manager, ManagerConfig, Pool, RecyclingMethod, Runtime, Timeouts};
use futures::future::BoxFuture;
use ostler_contract::Thrown;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config, Connection, Error, Socket};

use crate::options::Settings;
use crate::tls::{Stream, Tls};

/// How long a client may wait in a transaction before the server ends it: a host that was stopped must not hold locks.
const IDLE_IN_TRANSACTION: Duration = Duration::from_secs(5);
/// The limit for connecting, with everything that the connection needs before it is used.
pub const CONNECT: Duration = Duration::from_secs(4);
/// The limit for reading everything; the host waits 120 seconds for it.
pub const SCAN: Duration = Duration::from_secs(110);

/// Opens connections.
#[derive(Clone)]
pub struct Connector {
    config: Config,
    tls: Tls,
    /// The schema with the tables.
    pub schema: String,
    /// How long a statement may take.
    pub statement_timeout: Duration,
    pool_size: usize,
    /// Changes when the open connections are abandoned.
    abandoned: Arc<watch::Sender<()>>,
}

impl Connector {
    /// Creates a connector for the options.
    pub fn new(settings: &Settings) -> Self {
        Self {
            config: settings.config.clone(),
            tls: settings.tls.clone(),
            schema: settings.schema.clone(),
            statement_timeout: settings.statement_timeout,
            pool_size: settings.pool_size,
            abandoned: Arc::default(),
        }
    }

    /// Abandons all open connections, because one of them no longer answers. Statements on them fail as if the connections had
    /// been closed, and are repeated on new ones.
    pub fn abandon(&self) {
        self.abandoned.send_replace(());
    }

    /// Polls a connection until it ends or is abandoned.
    pub fn drive(&self, connection: Connection<Socket, Stream<Socket>>) -> JoinHandle<()> {
        let mut abandoned = self.abandoned.subscribe();
        tokio::spawn(async move {
            tokio::select! {
                // Each waiting statement receives its error.
                _ = connection => {}
                Ok(()) = abandoned.changed() => {}
            }
        })
    }

    fn config(&self, timeout: Duration, more: &str) -> Config {
        let mut config = self.config.clone();
        config.options(format!(
            "-c search_path={} -c statement_timeout={} -c idle_in_transaction_session_timeout={} -c DateStyle=ISO{more}",
            self.schema,
            timeout.as_millis(),
            IDLE_IN_TRANSACTION.as_millis(),
        ));
        config
    }

    /// Opens a connection whose changes carry the name of a host. The second value has to be polled.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses the user.
    pub async fn open(
        &self,
        origin: &str,
        timeout: Duration,
    ) -> Result<(Client, Connection<Socket, Stream<Socket>>), Error> {
        self.config(timeout, &format!(" -c ostler.origin={origin}")).connect(self.tls.clone()).await
    }

    /// Creates the pool of connections that read. It connects when it is used.
    ///
    /// # Errors
    /// There is no tokio runtime.
    pub fn pool(&self) -> Result<Pool, Thrown> {
        let config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let of_reads = self.config(self.statement_timeout, "");
        let manager = Manager::from_connect(of_reads, self.clone(), config);
        Pool::builder(manager)
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

impl Connect for Connector {
    fn connect(&self, config: &Config) -> BoxFuture<'_, Result<(Client, JoinHandle<()>), Error>> {
        let config = config.clone();
        Box::pin(async move {
            let (client, connection) = config.connect(self.tls.clone()).await?;
            Ok((client, self.drive(connection)))
        })
    }
}
