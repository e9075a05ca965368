//! The cluster of the host, and the probes of load balancers and supervisors.

use std::time::Duration;

use ostler_contract::cluster::ClusterHost;
use ostler_contract::limit;
use ostler_engine::Core;
use ostler_protocol::names;

use super::Refused;
use super::cluster_shapes::{Alive, ClusterMember, ClusterStatus, Drain, Evict, Evicted, LeaseStatus, Ready};
use super::rows::Ask;
use crate::control::Control;
use crate::exit::Exit;

/// How long the database may take to answer a probe.
const PROBE: Duration = Duration::from_secs(2);

/// The process serves requests.
pub(super) async fn health(_: Ask) -> Result<Alive, Refused> {
    Ok(Alive { alive: true })
}

/// Whether clients should be sent here.
pub(super) async fn ready(ask: Ask) -> Result<Ready, Refused> {
    match unready(&ask.control.host.core).await {
        None => Ok(Ready { ready: true }),
        Some(why) => Err(Refused::NotReady(why)),
    }
}

/// Why no client should be sent here.
async fn unready(core: &Core) -> Option<String> {
    if core.is_stopping() {
        return Some("the host is stopping".to_owned());
    }
    if let Some(lost) = core.lost_storage() {
        return Some(lost);
    }
    if let Some(cluster) = core.cluster() {
        if cluster.is_draining() {
            return Some("the host drains".to_owned());
        }
        if !cluster.gauges().has_lease {
            return Some("the host has no lease in its cluster".to_owned());
        }
    }
    // The id of no session: what is asked is whether the store answers.
    let stored = core.session_store()?.config.read(PROBE.min(limit::STORE), (String::new(),)).await;
    stored.known().err().map(|why| format!("the session store does not answer: {why}"))
}

pub(super) async fn status(ask: Ask) -> Result<ClusterStatus, Refused> {
    current(&ask.control).await
}

async fn current(control: &Control) -> Result<ClusterStatus, Refused> {
    let host = &control.host;
    let Some(cluster) = host.core.cluster() else {
        let why = "this host is in no cluster; see the option cluster of @ostler/postgres";
        return Err(Exit::machine(format!("{why}: {}", names::page("cluster"))).into());
    };
    let state = host.cluster_state().await.map_err(|why| Exit::machine(why.message))?;
    let state = state.ok_or(Refused::NotThere)?;
    let (own, gauges) = (cluster.id(), cluster.gauges());
    let draining = cluster.is_draining();
    // Sessions stay where no other host takes them.
    let others = |host: &ClusterHost| host.id != own && host.is_alive && !host.is_draining;
    let stay = state.running == 0 && !state.hosts.iter().any(others);
    Ok(ClusterStatus {
        host: own.clone(),
        draining,
        drained: draining && (state.sessions == 0 || stay),
        sessions: state.sessions,
        running: state.running,
        lease: LeaseStatus {
            held: gauges.has_lease,
            age_ms: millis(gauges.lease_age),
            database_ms: millis(gauges.database_latency),
        },
        hosts: state
            .hosts
            .into_iter()
            .map(|host| ClusterMember {
                here: host.id == own,
                unreachable: state.unreachable.get(&host.id).cloned(),
                id: host.id,
                url: host.url,
                version: host.version,
                alive: host.is_alive,
                draining: host.is_draining,
            })
            .collect(),
    })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(super) async fn drain(ask: Ask, Drain { undo }: Drain) -> Result<ClusterStatus, Refused> {
    ask.control.host.set_draining(!undo).await.map_err(|why| Exit::machine(why.message))?;
    current(&ask.control).await
}

pub(super) async fn evict(ask: Ask, Evict { id }: Evict) -> Result<Evicted, Refused> {
    let cluster = ask.control.host.core.cluster();
    let cluster = cluster.ok_or_else(|| Exit::machine("this host is in no cluster"))?;
    if id == cluster.id() {
        return Err(Exit::usage("this host cannot evict itself; drain it and stop it").into());
    }
    match cluster.evict(id.clone()).await.map_err(|why| Exit::machine(why.message))? {
        true => Ok(Evicted { evicted: id }),
        false => {
            Err(Exit::usage(format!("the cluster has no host {id}; ostler cluster status lists them")).into())
        }
    }
}
