//! The row of a host in the model, which the plugin's code renews, and the task that reads changes.

use std::sync::Arc;
use std::time::Duration;

use ostler_contract::cluster::ClusterHost;
use ostler_plugin_postgres::keep_lease::{HostRow, Joined, Keeper, RENEWAL};
use tokio::time::Instant;

use super::{Member, is_set};

/// How often changes are read without a notification.
const POLL: Duration = Duration::from_secs(5);

/// Renews the lease until it is released, and joins again after it has lapsed.
pub async fn renew(member: Arc<Member>) {
    let keeper = Keeper {
        lease: member.lease.clone(),
        stop: member.stop.clone(),
        url: member.url.subscribe(),
        is_emptied: member.is_emptied.clone(),
        report: ostler_contract::stores::Report::quiet(),
    };
    keeper.run(&mut Row { member: member.clone(), runs: 0 }).await;
    member.ended.send_replace(true);
}

/// The row of a host.
struct Row {
    member: Arc<Member>,
    /// How often it has joined again, or tried.
    runs: u64,
}

impl HostRow for Row {
    async fn renew(&mut self, url: Option<String>) -> (Instant, Result<Option<Vec<ClusterHost>>, String>) {
        let (own, sent) = (self.member.me(), Instant::now());
        let id = &self.member.lease.id;
        let renewal = self.member.database.call(id, None, move |tables| tables.renew(&own, url.as_ref()));
        let renewed = tokio::time::timeout(RENEWAL, renewal).await.ok().flatten();
        (sent, renewed.ok_or_else(|| "no answer".to_owned()))
    }

    fn new_name(&mut self) -> String {
        self.runs += 1;
        let present = self.member.me();
        format!("{}~{}", present.split('~').next().unwrap_or_default(), self.runs)
    }

    async fn join_again(&mut self, former: &[String], name: &str) -> Result<Joined, String> {
        let (id, former, name) = (self.member.lease.id.clone(), former.to_vec(), name.to_owned());
        let (is_draining, sent) = (is_set(&self.member.is_draining), Instant::now());
        let taken = self.member.database.call(&self.member.lease.id, None, move |tables| {
            former.iter().for_each(|name| tables.remove_host(name));
            tables.take((&id, env!("CARGO_PKG_VERSION")), &name, true, is_draining)
        });
        match taken.await {
            Some(Ok(())) => Ok(Joined::At(sent)),
            Some(Err(_)) => Ok(Joined::Refused("another host has this name".to_owned())),
            None => Err("no answer".to_owned()),
        }
    }

    async fn give_up(&mut self) {
        let me = self.member.me();
        let given_up =
            self.member.database.call(&self.member.lease.id, None, move |tables| tables.give_up(&me));
        given_up.await;
    }

    fn disconnect(&mut self) {}
}

/// Reads changes of other hosts until the lease is over.
pub async fn follow(member: Arc<Member>) {
    let mut changed = member.database.changes();
    let mut read = member.database.tables().changes.len();
    while !member.lease.is_over() {
        let _ = tokio::time::timeout(POLL, changed.changed()).await;
        changed.mark_unchanged();
        member.wake_runs();
        let from = read;
        let changes = member.read(move |tables| tables.changes[from..].to_vec()).await;
        // What cannot be read now is read the next time.
        let Ok(changes) = changes else { continue };
        read += changes.len();
        let me = member.me();
        for (by, event) in changes {
            if by != me {
                member.lease.tell(&event);
            }
        }
    }
}
