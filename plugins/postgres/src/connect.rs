//! Connections to the database: one kind for each use, all with the same settings.

use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime, Timeouts};
use ostler_contract::Thrown;
use tokio_postgres::{Client, Config, Connection, Error, Socket};

use crate::options::Settings;
use crate::tls::{Stream, Tls};

/// How long a client may wait in a transaction before the server ends it: a host that was stopped must not hold locks.
const IDLE_IN_TRANSACTION: Duration = Duration::from_secs(5);
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
        }
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
        let manager = Manager::from_config(self.config(self.statement_timeout, ""), self.tls.clone(), config);
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

/// Polls a connection until it ends.
pub fn drive(connection: Connection<Socket, Stream<Socket>>) {
    // Each waiting statement receives its error.
    tokio::spawn(async move { drop(connection.await) });
}
