//! The tasks that renew the lease and read changes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ostler_contract::cluster::{ClusterEvent, ClusterHost};
use ostler_plugin_postgres::lease::State;
use tokio::time::Instant;

use super::{Member, is_set};

/// How often the lease is renewed.
const RENEW: Duration = Duration::from_secs(2);
/// The limit of a renewal.
const RENEWAL: Duration = Duration::from_secs(2);
/// The pause before another try.
const RETRY: Duration = Duration::from_millis(250);
/// The limit for joining again.
const JOIN: Duration = Duration::from_secs(30);
/// How often changes are read without a notification.
const POLL: Duration = Duration::from_secs(5);

/// Renews the lease until it is released, and joins again after it has lapsed.
pub async fn renew(member: Arc<Member>) {
    let lease = &member.lease;
    let mut known: Option<Vec<ClusterHost>> = None;
    let mut addresses = member.url.subscribe();
    let mut runs = 0_u64;
    while !lease.is_over() {
        let begun = Instant::now();
        if lease.state() == State::Lapsed {
            runs += 1;
            match join_again(&member, runs).await {
                true => continue,
                false => break,
            }
        }
        let (me, url) = (lease.incarnation(), member.url.borrow().clone());
        let sent = Instant::now();
        let (own, address) = (me.clone(), url.clone());
        let renewal =
            member.database.call(&lease.id, None, move |tables| tables.renew(&own, address.as_ref()));
        let is_late = match tokio::time::timeout(RENEWAL, renewal).await.ok().flatten() {
            Some(Some(hosts)) => {
                if !lease.extend(sent) {
                    continue;
                }
                if lease.is_member && known.replace(hosts) != known {
                    lease.tell(&ClusterEvent::HostsChanged);
                }
                false
            }
            Some(None) => {
                lease.lose(&me);
                if !lease.is_member {
                    break;
                }
                continue;
            }
            None => true,
        };
        let pause = if is_late { RETRY } else { RENEW.saturating_sub(begun.elapsed()) };
        tokio::select! {
            biased;
            () = member.stop.notified() => break,
            Ok(()) = addresses.changed() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
    lease.close();
    let me = member.me();
    let given_up = member.database.call(&lease.id, None, move |tables| tables.give_up(&me));
    drop(tokio::time::timeout(RENEWAL, given_up).await);
    member.ended.send_replace(true);
}

/// Joins under a new name of the run, once no session of the earlier run is in memory. Returns false if the host stops.
async fn join_again(member: &Arc<Member>, runs: u64) -> bool {
    let lease = &member.lease;
    loop {
        if is_set(&member.is_emptied) || !lease.has_listeners() {
            let old = lease.incarnation();
            let base = old.split('~').next().unwrap_or_default().to_owned();
            let (new, id) = (format!("{base}~{runs}"), lease.id.clone());
            let (next, is_draining) = (new.clone(), is_set(&member.is_draining));
            let sent = Instant::now();
            let taken = member.database.call(&lease.id, None, move |tables| {
                tables.remove_host(&old);
                tables.take((&id, env!("CARGO_PKG_VERSION")), &next, true, is_draining)
            });
            match tokio::time::timeout(JOIN, taken).await.ok().flatten() {
                Some(Ok(())) => {
                    member.is_emptied.store(false, Ordering::Release);
                    return lease.join_again(&new, sent);
                }
                Some(Err(_)) => {
                    lease.stay_lost();
                    return false;
                }
                None => {}
            }
        }
        tokio::select! {
            biased;
            () = member.stop.notified() => return false,
            () = tokio::time::sleep(RETRY) => {}
        }
    }
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
