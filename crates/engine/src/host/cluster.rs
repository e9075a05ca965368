//! The host in a cluster: what it does when it loses its lease, and how it drains.

use std::collections::BTreeMap;
use std::sync::Arc;

use ostler_contract::Thrown;
use ostler_contract::cluster::{ClusterEvent, ClusterHost};
use ostler_engine_core::outbox::Closed;
use ostler_engine_core::tasks;
use ostler_engine_sessions::{Sessions, ask};
use tokio::sync::{Notify, mpsc};

use super::Host;

/// Why a host without its lease rejects clients.
const LOST: &str = "this host lost its lease of the shared database, so other hosts may serve its sessions; connect to another \
    host, or try again once this one has joined the cluster again";

/// A host in its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterState {
    /// Every known host.
    pub hosts: Vec<ClusterHost>,
    /// The sessions that this host owns.
    pub sessions: usize,
    /// Those with a running turn.
    pub running: usize,
    /// Why hosts cannot be reached from here at their addresses, by their ids.
    pub unreachable: BTreeMap<String, String>,
}

impl Host {
    /// Follows the events of the cluster, if the host is in one. Returns what tells that the hosts changed.
    pub(super) fn follow_cluster(&self) -> Arc<Notify> {
        let hosts_changed = Arc::new(Notify::new());
        let Some(cluster) = self.core.cluster() else { return hosts_changed };
        let (events, mut received) = mpsc::unbounded_channel();
        cluster.listen(Arc::new(move |event| {
            if matches!(
                event,
                ClusterEvent::LeaseLost | ClusterEvent::LeaseRegained | ClusterEvent::HostsChanged
            ) {
                // Without a receiver the host is closed.
                drop(events.send(event));
            }
        }));
        let (sessions, changed) = (Arc::downgrade(&self.sessions), hosts_changed.clone());
        tasks::spawn(async move {
            while let Some(event) = received.recv().await {
                let Some(sessions) = sessions.upgrade() else { return };
                if matches!(event, ClusterEvent::HostsChanged | ClusterEvent::LeaseRegained) {
                    changed.notify_one();
                }
                follow(&sessions, event).await;
            }
        });
        hosts_changed
    }

    /// Returns the state of the cluster, if the host is in one.
    ///
    /// # Errors
    /// The error of the cluster.
    pub async fn cluster_state(&self) -> Result<Option<ClusterState>, Thrown> {
        let Some(cluster) = self.core.cluster() else { return Ok(None) };
        let hosts = ask(cluster.hosts()).await?;
        let sessions = self.sessions.all();
        let running = sessions.iter().filter(|entry| entry.is_awake() && entry.is_at_work()).count();
        let unreachable = self.front.relay().map(|relay| relay.unreachable()).unwrap_or_default();
        Ok(Some(ClusterState { hosts, sessions: sessions.len(), running, unreachable }))
    }

    /// Begins or ends to drain: a draining host takes no new sessions, and hands sessions without a running turn over.
    ///
    /// # Errors
    /// The host is in no cluster; the error of the cluster.
    pub async fn set_draining(&self, is_draining: bool) -> Result<(), Thrown> {
        let cluster = self.core.cluster().ok_or_else(|| Thrown::new("this host is in no cluster"))?;
        ask(cluster.set_draining(is_draining)).await?;
        if is_draining {
            // If they cannot be read now, the next change of them is soon enough.
            if let Ok(hosts) = ask(cluster.hosts()).await {
                self.sessions.hosts_are(&hosts);
            }
            tasks::spawn(self.sessions.clone().hand_all_over());
        }
        Ok(())
    }
}

async fn follow(sessions: &Arc<Sessions>, event: ClusterEvent) {
    let core = &sessions.core;
    let Some(cluster) = core.cluster() else { return };
    match event {
        ClusterEvent::LeaseLost => {
            core.set_lost_lease(Some(LOST.to_owned()));
            for client in sessions.access.clients.open() {
                sessions.access.clients.close(client.id(), Closed::LostLease);
            }
            sessions.abandon_all().await;
            cluster.emptied();
        }
        ClusterEvent::LeaseRegained => core.set_lost_lease(None),
        // On a separate task, so that the loss of the lease does not wait for it.
        ClusterEvent::HostsChanged => drop(tasks::spawn(return_sessions(sessions.clone()))),
        _ => {}
    }
}

/// Hands sessions over to hosts that have their files and are back.
async fn return_sessions(sessions: Arc<Sessions>) {
    let Some(cluster) = sessions.core.cluster() else { return };
    // If the hosts cannot be read now, the next change is soon enough.
    if let Ok(hosts) = ask(cluster.hosts()).await {
        sessions.return_to(&hosts).await;
    }
}
