//! The task that renews the lease, and that joins the cluster again after it has lapsed.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ostler_contract::cluster::{ClusterEvent, ClusterHost};
use ostler_contract::stores::Report;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_postgres::{AsyncMessage, Client};

use crate::cluster::{HOSTS, host_of};
use crate::connect::{CONNECT, Connector};
use crate::failure;
use crate::joining::{self, Candidate};
use crate::lease::{LENGTH, Lease, State};

/// How often the lease is renewed.
const RENEW: Duration = Duration::from_secs(2);
/// The limit of a renewal.
const RENEWAL: Duration = Duration::from_secs(2);
/// The pause before another try.
const RETRY: Duration = Duration::from_millis(250);
/// The limit for joining again, which waits for transactions of the earlier run.
const JOIN: Duration = Duration::from_secs(30);
/// When a host that cannot join again because of sessions in its memory says so.
const STUCK: Duration = Duration::from_secs(60);
/// How often entries of `changes` are removed, in renewals.
const PRUNE_EVERY: u64 = 30;

/// Renews the lease until it is released, and wakes readers of changes.
pub struct Renewal {
    /// Opens the connection.
    pub connector: Connector,
    /// The lease.
    pub lease: Arc<Lease>,
    /// The host.
    pub host: Candidate,
    /// Woken by notifications of the database.
    pub wake: Arc<Notify>,
    /// Receives the request to release the lease.
    pub stop: Arc<Notify>,
    /// The address of the host, once it listens.
    pub url: Arc<watch::Sender<Option<String>>>,
    /// Whether the host drains.
    pub is_draining: Arc<AtomicBool>,
    /// Whether no session is in memory after the lease has lapsed.
    pub is_emptied: Arc<AtomicBool>,
    /// Receives lines for the log.
    pub say: Report,
    /// Dropped at the end.
    pub ended: watch::Sender<()>,
}

impl Renewal {
    /// Runs until the lease is released or lost.
    pub async fn run(self) {
        let mut client: Option<Client> = None;
        let (mut is_late, mut renewals) = (false, 0_u64);
        let mut known: Option<Vec<ClusterHost>> = None;
        let mut addresses = self.url.subscribe();
        while !self.lease.is_over() {
            let begun = Instant::now();
            if self.lease.state() == State::Lapsed {
                client = None;
                match self.join_again().await {
                    true => continue,
                    false if self.lease.state() == State::Lost => return,
                    false => break,
                }
            }
            let (sent, renewed) = self.renew(&mut client, renewals).await;
            renewals += 1;
            match renewed {
                Ok(Some(hosts)) => {
                    if !self.lease.extend(sent) {
                        continue;
                    }
                    if is_late {
                        (self.say)("PostgreSQL answers again; storing resumes".to_owned());
                    }
                    is_late = false;
                    if self.lease.is_member && known.replace(hosts) != known {
                        self.lease.tell(&ClusterEvent::HostsChanged);
                    }
                }
                Ok(None) => {
                    self.lease.lose(&self.lease.incarnation());
                    if !self.lease.is_member {
                        (self.say)(
                            "another host has taken over the database; this one stores nothing more. Stop it"
                                .to_owned(),
                        );
                        return;
                    }
                    continue;
                }
                Err(why) => {
                    client = None;
                    if !is_late {
                        (self.say)(format!("the lease could not be renewed, retrying: {why}"));
                    }
                    is_late = true;
                }
            }
            let pause = if is_late { RETRY } else { RENEW.saturating_sub(begun.elapsed()) };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                // Other hosts can reach this one as soon as it listens.
                Ok(()) = addresses.changed() => {}
                () = self.stop.notified() => break,
            }
        }
        self.give_up(client).await;
        drop(self.ended);
    }

    /// Renews once; returns when the renewal was sent, and the hosts if this one still has the lease.
    async fn renew(
        &self,
        client: &mut Option<Client>,
        renewals: u64,
    ) -> (Instant, Result<Option<Vec<ClusterHost>>, String>) {
        if client.as_ref().is_none_or(Client::is_closed) {
            *client = match tokio::time::timeout(CONNECT, self.listen()).await {
                Ok(Ok(open)) => Some(open),
                Ok(Err(why)) => return (Instant::now(), Err(failure::sentence(&why))),
                Err(_) => return (Instant::now(), Err("no connection within 4 seconds".to_owned())),
            };
        }
        let sent = Instant::now();
        let Some(open) = client else { return (sent, Err("not connected".to_owned())) };
        let renewed = tokio::time::timeout(RENEWAL, self.send(open, renewals)).await;
        let renewed = renewed.unwrap_or_else(|_| {
            // The other connections would be waited for much longer.
            self.connector.abandon();
            Err("no answer within 2 seconds".to_owned())
        });
        (sent, renewed)
    }

    async fn send(&self, open: &Client, renewals: u64) -> Result<Option<Vec<ClusterHost>>, String> {
        let url = self.url.borrow().clone();
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

    /// Joins the cluster again, under a new name of this run, once no session of the earlier run is in memory. Returns false
    /// if the host stops.
    async fn join_again(&self) -> bool {
        (self.say)(
            "the host has lost its lease in the cluster; it closes its connections and joins again"
                .to_owned(),
        );
        let begun = Instant::now();
        let (mut is_stuck, mut last) = (false, String::new());
        loop {
            // Without a listener there are no sessions.
            if self.is_emptied.load(Ordering::Acquire) || !self.lease.has_listeners() {
                match tokio::time::timeout(JOIN, self.try_to_join()).await {
                    Ok(Ok(true)) => return true,
                    Ok(Ok(false)) => return !self.lease.is_over(),
                    Ok(Err(why)) if why != last => {
                        (self.say)(format!("the host could not join the cluster again, retrying: {why}"));
                        last = why;
                    }
                    _ => {}
                }
            } else if !is_stuck && begun.elapsed() > STUCK {
                is_stuck = true;
                (self.say)(
                    "sessions of the lost lease are still in memory, so the host cannot join the cluster again; restart it"
                        .to_owned(),
                );
            }
            tokio::select! {
                () = tokio::time::sleep(RETRY) => {}
                () = self.stop.notified() => return false,
            }
        }
    }

    /// Tries once; returns whether the host has joined.
    async fn try_to_join(&self) -> Result<bool, String> {
        let incarnation = joining::new_incarnation();
        let opened = tokio::time::timeout(CONNECT, self.connector.open(&incarnation, JOIN)).await;
        let opened = opened.map_err(|_| "no connection within 4 seconds".to_owned())?;
        let (client, connection) = opened.map_err(|why| failure::sentence(&why))?;
        self.connector.drive(connection);
        let old = self.lease.incarnation();
        let given_up = client.execute("DELETE FROM host WHERE incarnation = $1", &[&&*old]).await;
        given_up.map_err(|why| failure::sentence(&why))?;
        let host = Candidate { is_draining: self.is_draining.load(Ordering::Acquire), ..self.host.clone() };
        let sent = Instant::now();
        let taken = joining::take(&client, &self.connector.schema, &host, &incarnation).await;
        if let Some(holder) = taken.map_err(|why| why.message)? {
            (self.say)(format!("{}; this host stores nothing more", holder.refusal(&host).message));
            self.lease.stay_lost();
            return Ok(false);
        }
        self.is_emptied.store(false, Ordering::Release);
        (self.say)("the host has joined the cluster again".to_owned());
        Ok(self.lease.join_again(&incarnation, sent))
    }

    async fn give_up(&self, client: Option<Client>) {
        self.lease.close();
        let Some(client) = client else { return };
        let given_up = async {
            let incarnation = self.lease.incarnation();
            if self.lease.is_member {
                let released = "UPDATE session_heads SET owner = NULL WHERE owner = $1";
                client.execute(released, &[&&*incarnation]).await?;
            }
            client.execute("DELETE FROM host WHERE incarnation = $1", &[&&*incarnation]).await
        };
        // If this fails, the lease expires.
        drop(tokio::time::timeout(RENEWAL, given_up).await);
    }
}
