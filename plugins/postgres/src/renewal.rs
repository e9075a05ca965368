//! The row of this host in PostgreSQL, which is its lease, and the connection that renews it and hears of changes.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ostler_contract::cluster::ClusterHost;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_postgres::{AsyncMessage, Client};

use crate::cluster::{HOSTS, host_of};
use crate::connect::{CONNECT, Connector};
use crate::failure;
use crate::joining::{self, Candidate};
use crate::keep_lease::{HostRow, JOIN, Joined, RENEWAL};
use crate::lease::{LENGTH, Lease};

/// How often entries of `changes` are removed, in renewals.
const PRUNE_EVERY: u64 = 30;

/// Renews the lease, and wakes readers of changes.
pub struct Renewal {
    /// Opens the connection.
    connector: Connector,
    /// The lease.
    lease: Arc<Lease>,
    /// The host.
    host: Candidate,
    /// Woken by notifications of the database.
    wake: Arc<Notify>,
    /// Whether the host drains.
    is_draining: Arc<AtomicBool>,
    client: Option<Client>,
    renewals: u64,
}

impl HostRow for Renewal {
    async fn renew(&mut self, url: Option<String>) -> (Instant, Result<Option<Vec<ClusterHost>>, String>) {
        let renewals = self.renewals;
        self.renewals += 1;
        if self.client.as_ref().is_none_or(Client::is_closed) {
            self.client = match tokio::time::timeout(CONNECT, self.listen()).await {
                Ok(Ok(open)) => Some(open),
                Ok(Err(why)) => return (Instant::now(), Err(failure::sentence(&why))),
                Err(_) => return (Instant::now(), Err("no connection within 4 seconds".to_owned())),
            };
        }
        let sent = Instant::now();
        let Some(open) = &self.client else { return (sent, Err("not connected".to_owned())) };
        let renewed = tokio::time::timeout(RENEWAL, self.send(open, url, renewals)).await;
        let renewed = renewed.unwrap_or_else(|_| {
            // The other connections would be waited for much longer.
            self.connector.abandon();
            Err("no answer within 2 seconds".to_owned())
        });
        (sent, renewed)
    }

    fn new_name(&mut self) -> String {
        joining::new_incarnation()
    }

    async fn join_again(&mut self, former: &[String], name: &str) -> Result<Joined, String> {
        let opened = tokio::time::timeout(CONNECT, self.connector.open(name, JOIN)).await;
        let opened = opened.map_err(|_| "no connection within 4 seconds".to_owned())?;
        let (client, connection) = opened.map_err(|why| failure::sentence(&why))?;
        self.connector.drive(connection);
        let given_up = client.execute("DELETE FROM host WHERE incarnation = ANY ($1)", &[&former]).await;
        given_up.map_err(|why| failure::sentence(&why))?;
        let host = Candidate { is_draining: self.is_draining.load(Ordering::Acquire), ..self.host.clone() };
        let sent = Instant::now();
        let taken = joining::take(&client, &self.connector.schema, &host, name).await;
        Ok(match taken.map_err(|why| why.message)? {
            Some(holder) => Joined::Refused(holder.refusal(&host).message),
            None => Joined::At(sent),
        })
    }

    async fn give_up(&mut self) {
        let Some(client) = &self.client else { return };
        let given_up = async {
            let incarnation = self.lease.incarnation();
            if self.lease.is_member {
                let released = "UPDATE session_heads SET owner = NULL WHERE owner = $1";
                client.execute(released, &[&&*incarnation]).await?;
            }
            client.execute("DELETE FROM host WHERE incarnation = $1", &[&&*incarnation]).await
        };
        drop(given_up.await);
    }

    fn disconnect(&mut self) {
        self.client = None;
    }
}

impl Renewal {
    /// Creates the row of a host that has just taken its lease.
    pub fn new(
        connector: Connector,
        lease: Arc<Lease>,
        host: Candidate,
        wake: Arc<Notify>,
        is_draining: Arc<AtomicBool>,
    ) -> Self {
        Self { connector, lease, host, wake, is_draining, client: None, renewals: 0 }
    }

    async fn send(
        &self,
        open: &Client,
        url: Option<String>,
        renewals: u64,
    ) -> Result<Option<Vec<ClusterHost>>, String> {
        // The row of a host of a cluster that has expired is not renewed, whatever the host's own clock says: another host may
        // have taken sessions over.
        let alive = if self.lease.is_member { "AND expires_at > clock_timestamp()" } else { "" };
        let sql = format!(
            "UPDATE host SET expires_at = clock_timestamp() + interval '{LENGTH}', url = $2 WHERE incarnation = $1 {alive}"
        );
        let incarnation = self.lease.incarnation();
        let renewed = open.execute(&sql, &[&&*incarnation, &url]).await;
        let renewed = renewed.map_err(|why| failure::sentence(&why))?;
        if renewals % PRUNE_EVERY == PRUNE_EVERY - 1 {
            // The rest is removed the next time.
            let pruned = "DELETE FROM changes WHERE at < now() - interval '10 minutes'";
            drop(open.execute(pruned, &[]).await);
        }
        if renewed != 1 {
            return Ok(None);
        }
        if !self.lease.is_member {
            return Ok(Some(Vec::new()));
        }
        let hosts = open.query(HOSTS, &[]).await.map_err(|why| failure::sentence(&why))?;
        Ok(Some(hosts.iter().map(host_of).collect()))
    }

    async fn listen(&self) -> Result<Client, tokio_postgres::Error> {
        let (client, mut connection) = self.connector.open(&self.lease.incarnation(), RENEWAL).await?;
        let wake = self.wake.clone();
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                if let AsyncMessage::Notification(_) = message {
                    wake.notify_one();
                }
            }
        });
        // A renewal waits for no disk. A crash of the server loses at most the last one: the one before it is valid for as
        // long as the host relies on the last.
        let prepare = format!("SET synchronous_commit = off; LISTEN ostler_{}", self.connector.schema);
        client.batch_execute(&prepare).await?;
        // Whatever was notified in between.
        self.wake.notify_one();
        Ok(client)
    }
}
