//! Renews the lease of a host until it is released, and joins the cluster again after it has lapsed. Independent of the
//! database, so that the simulation of a cluster runs it too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ostler_contract::cluster::{ClusterEvent, ClusterHost};
use ostler_contract::stores::Report;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::lease::{Lease, State};

/// How often the lease is renewed.
const RENEW: Duration = Duration::from_secs(2);
/// The limit of a renewal, and of the release.
pub const RENEWAL: Duration = Duration::from_secs(2);
/// The pause before another try.
const RETRY: Duration = Duration::from_millis(250);
/// The limit for joining again, which waits for transactions of the earlier run.
pub const JOIN: Duration = Duration::from_secs(30);
/// When a host that cannot join again because of sessions in its memory says so.
const STUCK: Duration = Duration::from_secs(60);

/// The row of a host in the database, and the connection that renews it.
pub trait HostRow: Send {
    /// Renews the lease once; returns when the renewal was sent, and the hosts of the cluster if this one still has the lease.
    fn renew(
        &mut self,
        url: Option<String>,
    ) -> impl Future<Output = (Instant, Result<Option<Vec<ClusterHost>>, String>)> + Send;

    /// Tries once to join the cluster again under a new name of this run.
    fn join_again(&mut self) -> impl Future<Output = Result<Joined, String>> + Send;

    /// Releases the lease. If this fails, it expires.
    fn give_up(&mut self) -> impl Future<Output = ()> + Send;

    /// The connection is no longer used.
    fn disconnect(&mut self);
}

/// The outcome of joining again.
pub enum Joined {
    /// The new name of the run, and when the request was sent.
    As(String, Instant),
    /// Another host has the name of this one.
    Refused(String),
}

/// The task that keeps the lease.
pub struct Keeper {
    /// The lease.
    pub lease: Arc<Lease>,
    /// Receives the request to release the lease.
    pub stop: Arc<Notify>,
    /// The address of the host, once it listens.
    pub url: watch::Receiver<Option<String>>,
    /// Whether no session is in memory after the lease has lapsed.
    pub is_emptied: Arc<AtomicBool>,
    /// Receives lines for the log.
    pub say: Report,
}

impl Keeper {
    /// Runs until the lease is released or lost.
    pub async fn run(mut self, row: &mut impl HostRow) {
        let mut is_late = false;
        let mut known: Option<Vec<ClusterHost>> = None;
        while !self.lease.is_over() {
            let begun = Instant::now();
            if self.lease.state() == State::Lapsed {
                row.disconnect();
                match self.join_again(row).await {
                    true => continue,
                    false if self.lease.state() == State::Lost => return,
                    false => break,
                }
            }
            let (incarnation, url) = (self.lease.incarnation(), self.url.borrow_and_update().clone());
            let (sent, renewed) = row.renew(url).await;
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
                    self.lease.lose(&incarnation);
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
                    row.disconnect();
                    if !is_late {
                        (self.say)(format!("the lease could not be renewed, retrying: {why}"));
                    }
                    is_late = true;
                }
            }
            let pause = if is_late { RETRY } else { RENEW.saturating_sub(begun.elapsed()) };
            tokio::select! {
                biased;
                () = self.stop.notified() => break,
                // Other hosts can reach this one as soon as it listens.
                Ok(()) = self.url.changed() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        self.lease.close();
        drop(tokio::time::timeout(RENEWAL, row.give_up()).await);
    }

    /// Joins the cluster again, under a new name of this run, once no session of the earlier run is in memory. Returns false
    /// if the host stops.
    async fn join_again(&self, row: &mut impl HostRow) -> bool {
        (self.say)(
            "the host has lost its lease in the cluster; it closes its connections and joins again"
                .to_owned(),
        );
        let begun = Instant::now();
        let (mut is_stuck, mut last) = (false, String::new());
        loop {
            // Without a listener there are no sessions.
            if self.is_emptied.load(Ordering::Acquire) || !self.lease.has_listeners() {
                match tokio::time::timeout(JOIN, row.join_again()).await {
                    Ok(Ok(Joined::As(incarnation, sent))) => {
                        self.is_emptied.store(false, Ordering::Release);
                        (self.say)("the host has joined the cluster again".to_owned());
                        return self.lease.join_again(&incarnation, sent) || !self.lease.is_over();
                    }
                    Ok(Ok(Joined::Refused(why))) => {
                        (self.say)(format!("{why}; this host stores nothing more"));
                        self.lease.stay_lost();
                        return !self.lease.is_over();
                    }
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
                biased;
                () = self.stop.notified() => return false,
                () = tokio::time::sleep(RETRY) => {}
            }
        }
    }
}
