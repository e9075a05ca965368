//! The directory of the cluster.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ostler_contract::Secret;
use ostler_contract::cluster::{Cluster, ClusterGauges, ClusterHost, ClusterListener, SessionOwner};
use ostler_contract::live::{Pending, ready};
use ostler_plugin_postgres::lease::State;

use super::{Member, is_set};

/// The token of the cluster.
pub const TOKEN: &str = "cluster-token";

/// The hosts and owners, as a member sees them.
#[derive(Debug)]
pub struct Directory(pub Arc<Member>);

impl Cluster for Directory {
    fn incarnation(&self) -> String {
        self.0.me()
    }

    fn token(&self) -> Secret<String> {
        Secret::new(TOKEN.to_owned())
    }

    fn hosts(&self) -> Pending<Vec<ClusterHost>> {
        self.0.read(|tables| tables.cluster_hosts())
    }

    fn owner(&self, session: String) -> Pending<SessionOwner> {
        let me = match self.0.lease.current() {
            Ok(me) => me,
            Err(why) => return ready(Err(why)),
        };
        self.0.read(move |tables| tables.owner(&me, &session))
    }

    fn claim(&self, session: String) -> Pending<SessionOwner> {
        let (id, named) = (self.0.lease.id.clone(), session.clone());
        self.0.queue(None, Some(session), move |tables, me| {
            Ok(match tables.claim(me, Some(&id), &named) {
                true => SessionOwner::Here,
                false => tables.owner(me, &named),
            })
        })
    }

    fn release(&self, session: String) -> Pending<()> {
        if self.0.lease.check().is_err() {
            // Without its lease the host owns nothing.
            return ready(Ok(()));
        }
        let named = session.clone();
        self.0.queue(None, Some(session), move |tables, me| {
            tables.release(me, &named);
            Ok(())
        })
    }

    fn set_draining(&self, is_draining: bool) -> Pending<()> {
        self.0.is_draining.store(is_draining, Ordering::Release);
        if self.0.lease.check().is_err() {
            // It is stored when the host joins again.
            return ready(Ok(()));
        }
        let id = self.0.lease.id.clone();
        self.0.write(move |tables, me| {
            if let Some(row) = tables.hosts.get_mut(&id).filter(|row| row.incarnation == me) {
                row.is_draining = is_draining;
            }
            Ok(())
        })
    }

    fn set_url(&self, url: String) {
        self.0.url.send_replace(Some(url));
    }

    fn evict(&self, host: String) -> Pending<bool> {
        self.0.write(move |tables, me| {
            let is_other = tables.hosts.get(&host).is_some_and(|row| row.incarnation != me);
            if is_other {
                tables.hosts.remove(&host);
            }
            Ok(is_other)
        })
    }

    fn listen(&self, listener: ClusterListener) {
        self.0.lease.listen(listener);
    }

    fn id(&self) -> String {
        self.0.lease.id.clone()
    }

    fn emptied(&self) {
        if self.0.lease.state() == State::Lapsed {
            self.0.is_emptied.store(true, Ordering::Release);
        }
    }

    fn bind(&self, session: String) -> Pending<()> {
        let id = self.0.lease.id.clone();
        self.0.write(move |tables, me| {
            if let Some(head) =
                tables.heads.get_mut(&session).filter(|head| head.owner.as_deref() == Some(me))
            {
                head.bound_to = Some(id.clone());
            }
            Ok(())
        })
    }

    fn bound_to(&self, session: String) -> Pending<Option<ClusterHost>> {
        self.0.read(move |tables| tables.bound_to(&session))
    }

    fn is_shared(&self, path: &str) -> bool {
        path.starts_with("/shared/")
    }

    fn is_draining(&self) -> bool {
        is_set(&self.0.is_draining)
    }

    fn gauges(&self) -> ClusterGauges {
        let (sent, took) = self.0.lease.renewed();
        ClusterGauges {
            has_lease: self.0.lease.check().is_ok(),
            lease_age: sent.elapsed(),
            database_latency: took,
        }
    }
}
