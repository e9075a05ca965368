//! The row of this host in PostgreSQL, which is its lease, and the connection that renews it and hears of changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ostler_contract::cluster::ClusterHost;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_postgres::types::{ToSql, Type};

use crate::cluster::{HOSTS, host_of};
use crate::connect::{CONNECT, CONNECTION, Connector, Opened, Purpose};
use crate::failure::{self, Unopened};
use crate::joining::{self, Candidate};
use crate::keep_lease::{HostRow, JOIN, Joined, RENEWAL};
use crate::lease::{LENGTH, Lease};
use crate::pooler;

/// Renews the lease, and wakes readers of changes.
pub struct Renewal {
    /// Opens the connection.
    connector: Connector,
    lease: Arc<Lease>,
    host: Candidate,
    /// Woken by notifications of the database.
    wake: Arc<Notify>,
    /// Whether the host drains.
    is_draining: Arc<AtomicBool>,
    open: Option<Opened>,
    /// Whether the last connection was shared with others.
    was_shared: bool,
}

impl HostRow for Renewal {
    async fn renew(&mut self, url: Option<String>) -> (Instant, Result<Option<Vec<ClusterHost>>, String>) {
        if self.open.as_ref().is_none_or(|open| open.client.is_closed()) {
            self.open = match tokio::time::timeout(CONNECT, self.listen()).await {
                Ok(Ok(open)) => {
                    self.was_shared = false;
                    Some(open)
                }
                Ok(Err(why)) => return (Instant::now(), Err(why.sentence())),
                Err(_) => return (Instant::now(), Err("no connection within 4 seconds".to_owned())),
            };
        }
        let sent = Instant::now();
        let Some(open) = &self.open else { return (sent, Err("not connected".to_owned())) };
        let renewed = match tokio::time::timeout(RENEWAL, self.send(open, url)).await {
            Ok(Ok(renewed)) => Ok(renewed),
            Ok(Err(why)) => {
                if let Unopened::Failed(failure) = &why {
                    self.connector.notice(failure);
                }
                self.was_shared = matches!(why, Unopened::Pooled(_));
                Err(why.sentence())
            }
            Err(_) => {
                // The other connections would be waited for much longer.
                self.connector.abandon();
                Err("no answer within 2 seconds".to_owned())
            }
        };
        (sent, renewed)
    }

    fn new_name(&mut self) -> String {
        joining::new_incarnation()
    }

    async fn join_again(&mut self, former: &[String], name: &str) -> Result<Joined, String> {
        let purpose = Purpose { origin: name, timeout: JOIN, is_of_lease: true, wake: None };
        let opened = tokio::time::timeout(CONNECT, self.connector.open(purpose)).await;
        let opened = opened.map_err(|_| "no connection within 4 seconds".to_owned())?;
        let client = opened.map_err(|why| why.sentence())?.client;
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
        let Some(Opened { client, .. }) = &self.open else { return };
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
        self.open = None;
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
        Self { connector, lease, host, wake, is_draining, open: None, was_shared: false }
    }

    async fn send(&self, open: &Opened, url: Option<String>) -> Result<Option<Vec<ClusterHost>>, Unopened> {
        let Opened { client, name, .. } = open;
        // The row of a host of a cluster that has expired is not renewed, whatever the host's own clock says: another host may
        // have taken sessions over.
        let alive = if self.lease.is_member { "AND expires_at > clock_timestamp()" } else { "" };
        let sql = format!(
            "UPDATE host SET expires_at = clock_timestamp() + interval '{LENGTH}', url = $2 WHERE incarnation = $1 {alive}
             RETURNING current_setting('{CONNECTION}', true)"
        );
        let incarnation = self.lease.incarnation();
        let params: [(&(dyn ToSql + Sync), Type); 2] = [(&&*incarnation, Type::TEXT), (&url, Type::TEXT)];
        let renewed = client.query_typed(&sql, &params).await?;
        let Some(row) = renewed.first() else { return Ok(None) };
        let connection: Option<String> = row.get(0);
        if connection.as_ref() != Some(name) {
            // A pooler can be set to another mode while the host runs. A host whose connections are shared has no lease.
            let what = format!("{CONNECTION} was set on it, and now it is another value");
            return Err(Unopened::Pooled(what));
        }
        if !self.lease.is_member {
            return Ok(Some(Vec::new()));
        }
        let hosts = client.query(HOSTS, &[]).await?;
        Ok(Some(hosts.iter().map(host_of).collect()))
    }

    async fn listen(&self) -> Result<Opened, Unopened> {
        let incarnation = self.lease.incarnation();
        let purpose = Purpose {
            origin: &incarnation,
            timeout: RENEWAL,
            is_of_lease: true,
            wake: Some(self.wake.clone()),
        };
        let open = self.connector.open(purpose).await?;
        if self.was_shared {
            pooler::check(&self.connector, &open).await?;
        }
        // A renewal waits for no disk. A crash of the server loses at most the last one: the one before it is valid for as
        // long as the host relies on the last.
        let prepare = format!("SET synchronous_commit = off; LISTEN ostler_{}", self.connector.schema);
        open.client.batch_execute(&prepare).await?;
        // Whatever was notified in between.
        self.wake.notify_one();
        Ok(open)
    }
}
