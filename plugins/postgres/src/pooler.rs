//! Whether a connection of the host is one connection of the server. A pooler between them can give each transaction to another
//! connection, with the settings and the prepared statements of other clients.

use std::time::Duration;

use tokio_postgres::Client;

use crate::connect::{CONNECT, Connector, Opened, Purpose};
use crate::failure::Unopened;

/// How long a connection may wait for another one. One that waits longer is compared when the other one waits for nothing.
const WAIT: Duration = Duration::from_secs(2);
/// How often each connection is compared afterwards: a pooler that takes the server's connections in turns gives another one then.
const ROUNDS: usize = 2;
/// The limit of each statement.
const STATEMENT: Duration = Duration::from_secs(8);

/// Checks that a connection keeps its settings while and after another one is used.
///
/// # Errors
/// It does not, or the server has no second connection for this host.
pub async fn check(connector: &Connector, first: &Opened) -> Result<(), Unopened> {
    let purpose = Purpose { timeout: STATEMENT, ..Purpose::default() };
    let second = tokio::time::timeout(CONNECT, connector.open(purpose)).await.map_err(|_| {
        Unopened::Unfit(
            "no second connection within 4 seconds; a host needs poolSize and three more (see pool_size of a pooler, and \
             max_connections)"
                .to_owned(),
        )
    })??;
    // With a transaction open, it has a connection of the server for itself.
    begin(&second.client).await?;
    let during = tokio::time::timeout(WAIT, first.check()).await;
    second.client.batch_execute("ROLLBACK").await?;
    during.unwrap_or(Ok(()))?;
    for _ in 0..ROUNDS {
        first.check().await?;
        second.check().await?;
    }
    Ok(())
}

async fn begin(client: &Client) -> Result<(), Unopened> {
    client.batch_execute("BEGIN").await.map_err(|why| match why.as_db_error() {
        Some(refused) => Unopened::Pooled(refused.message().to_owned()),
        None => why.into(),
    })
}
