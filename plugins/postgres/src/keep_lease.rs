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
/// How many names of unanswered tries to join again are retained. What an earlier one has stored has expired.
const TRIES_KNOWN: usize = 100;
/// When a host that cannot join again because of sessions in its memory says so.
const STUCK: Duration = Duration::from_secs(60);

/// The row of a host in the database, and the connection that renews it.
pub trait HostRow: Send {
    /// Renews the lease once; returns when the renewal was sent, and the hosts of the cluster if this one still has the lease.
    fn renew(
        &mut self,
        url: Option<String>,
    ) -> impl Future<Output = (Instant, Result<Option<Vec<ClusterHost>>, String>)> + Send;

    /// Returns a new name of this run.
    fn new_name(&mut self) -> String;

    /// Tries once to join the cluster again under a new name of this run, in place of its former names.
    fn join_again(
        &mut self,
        former: &[String],
        name: &str,
    ) -> impl Future<Output = Result<Joined, String>> + Send;

    /// Releases the lease. If this fails, it expires.
    fn give_up(&mut self) -> impl Future<Output = ()> + Send;

    /// The connection is no longer used.
    fn disconnect(&mut self);
}

/// The outcome of joining again.
pub enum Joined {
    /// It has joined by a request that was sent at this time.
    At(Instant),
    /// Another host has the name of this one.
    Refused(String),
}

/// The task that keeps the lease.
pub struct Keeper {
    pub lease: Arc<Lease>,
    /// Receives the request to release the lease.
    pub stop: Arc<Notify>,
    /// The address of the host, once it listens.
    pub url: watch::Receiver<Option<String>>,
    /// Whether no session is in memory after the lease has lapsed.
    pub is_emptied: Arc<AtomicBool>,
    /// Receives lines for the log.
    pub report: Report,
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
                        self.report.say("PostgreSQL answers again; storing resumes");
                    }
                    is_late = false;
                    if self.lease.is_member && known.replace(hosts) != known {
                        self.lease.tell(&ClusterEvent::HostsChanged);
                    }
                }
                Ok(None) => {
                    self.lease.lose(&incarnation);
                    if !self.lease.is_member {
                        self.report.say(
                            "another host has taken over the database; this one stores nothing more; stop it"
                                .to_owned(),
                        );
                        return;
                    }
                    continue;
                }
                Err(why) => {
                    row.disconnect();
                    if !is_late {
                        self.report.say(format!("the lease could not be renewed, retrying: {why}"));
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
        self.report.say(
            "the host has lost its lease in the cluster; it closes its connections and joins again"
                .to_owned(),
        );
        let begun = Instant::now();
        let (mut is_stuck, mut last) = (false, String::new());
        // Also the names of tries whose answers were lost: they can have joined, and must not prevent the next one.
        let mut names = vec![self.lease.incarnation().to_string()];
        loop {
            // Without a listener there are no sessions.
            if self.is_emptied.load(Ordering::Acquire) || !self.lease.has_listeners() {
                let name = row.new_name();
                let joined = tokio::time::timeout(JOIN, row.join_again(&names, &name)).await;
                match joined {
                    Ok(Ok(Joined::At(sent))) => {
                        self.is_emptied.store(false, Ordering::Release);
                        self.report.say("the host has joined the cluster again");
                        return self.lease.join_again(&name, sent) || !self.lease.is_over();
                    }
                    Ok(Ok(Joined::Refused(why))) => {
                        self.report.say(format!("{why}; this host stores nothing more"));
                        self.lease.stay_lost();
                        return !self.lease.is_over();
                    }
                    Ok(Err(why)) if why != last => {
                        self.report
                            .say(format!("the host could not join the cluster again, retrying: {why}"));
                        last = why;
                    }
                    _ => {}
                }
                names.push(name);
                if names.len() > TRIES_KNOWN {
                    names.remove(1);
                }
            } else if !is_stuck && begun.elapsed() > STUCK {
                is_stuck = true;
                self.report.say(
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

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// The table of hosts, of which one has this name, and what becomes of the answers of the database.
    struct Table {
        row: Option<String>,
        /// Whether the answers to the next tries to join arrive.
        answers: VecDeque<bool>,
        renewed: Arc<Notify>,
    }

    impl HostRow for Table {
        async fn renew(&mut self, _: Option<String>) -> (Instant, Result<Option<Vec<ClusterHost>>, String>) {
            // The row under the first name has been taken over.
            let hosts = self.row.as_ref().map(|_| Vec::new());
            if hosts.is_some() {
                self.renewed.notify_one();
            }
            (Instant::now(), Ok(hosts))
        }

        fn new_name(&mut self) -> String {
            format!("run-{}", self.answers.len())
        }

        async fn join_again(&mut self, former: &[String], name: &str) -> Result<Joined, String> {
            if self.row.as_ref().is_some_and(|row| former.contains(row)) {
                self.row = None;
            }
            if let Some(row) = &self.row {
                return Ok(Joined::Refused(format!("{row} has this name")));
            }
            self.row = Some(name.to_owned());
            match self.answers.pop_front() {
                Some(false) => Err("the answer was lost".to_owned()),
                _ => Ok(Joined::At(Instant::now())),
            }
        }

        async fn give_up(&mut self) {}

        fn disconnect(&mut self) {}
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_joins_again_although_the_answers_to_earlier_tries_were_lost() {
        let lease = Lease::new("h".to_owned(), true, "first", Instant::now());
        let renewed = Arc::new(Notify::new());
        let mut table =
            Table { row: None, answers: VecDeque::from([false, false, true]), renewed: renewed.clone() };
        let keeper = Keeper {
            lease: lease.clone(),
            stop: Arc::default(),
            url: watch::channel(None).1,
            is_emptied: Arc::default(),
            report: Report::quiet(),
        };
        let kept = tokio::spawn(async move { keeper.run(&mut table).await });
        let joined = tokio::time::timeout(JOIN, renewed.notified()).await;
        assert!(joined.is_ok(), "it has not joined: {:?}", lease.state());
        assert_eq!((lease.check(), &*lease.incarnation()), (Ok(()), "run-1"));
        kept.abort();
    }
}
