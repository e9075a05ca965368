//! `ostler cluster …`: shows the hosts that share a database, drains this one, and evicts others.

use std::time::Duration;

use clap::Subcommand;
use ostler_contract::json;
use tokio::time::Instant;

use crate::answer::Answer;
use crate::api::cluster_shapes::{ClusterMember, ClusterStatus, Drain, Evict, Evicted};
use crate::daemon_file;
use crate::exit::Exit;
use crate::place::Place;
use crate::remote::Remote;

/// How long `drain` waits for running turns.
const DRAINS_WITHIN: Duration = Duration::from_secs(600);
/// How often it asks.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// The `ostler cluster` commands.
#[derive(Debug, Clone, Subcommand)]
pub enum ClusterVerb {
    /// Show the hosts of the cluster and the sessions of this one
    Status,
    /// Hand the sessions of the daemon over to other hosts and wait for its running turns, for example before an upgrade
    Drain {
        /// Take sessions again
        #[arg(long)]
        undo: bool,
    },
    /// End the lease of a host that is lost or unreachable, so that others serve its sessions
    Evict {
        /// Name of the host, as ostler cluster status shows it
        id: String,
    },
}

/// Runs the command.
///
/// # Errors
/// Exit 1 if no daemon runs, it serves no HTTP API, it is in no cluster, or turns still run after 10 minutes; exit 2 for an
/// unknown host.
pub async fn cluster(at: &Place, verb: ClusterVerb) -> Result<Answer, Exit> {
    let daemon = match at.remote()? {
        Some(remote) => remote,
        None => match daemon_file::running(&at.folders()?) {
            Some(record) => Remote::here(&record)?,
            None => return Ok(Answer::none_running("running")),
        },
    };
    match verb {
        ClusterVerb::Status => Ok(shown(&daemon.get("/api/cluster").await?)),
        ClusterVerb::Drain { undo } => {
            let status: ClusterStatus = daemon.post("/api/cluster/drain", &Drain { undo }).await?;
            if undo { Ok(shown(&status)) } else { drained(&daemon, status).await }
        }
        ClusterVerb::Evict { id } => {
            let Evicted { evicted } = daemon.post("/api/cluster/evict", &Evict { id }).await?;
            let line = format!("Host {evicted} has no lease any more; other hosts serve its sessions.");
            Ok(Answer::new([line], json!({ "evicted": evicted })).named([evicted]))
        }
    }
}

/// Waits until the daemon has no session left.
async fn drained(daemon: &Remote, mut status: ClusterStatus) -> Result<Answer, Exit> {
    let end = Instant::now() + DRAINS_WITHIN;
    while !status.drained {
        if Instant::now() >= end {
            return Err(Exit::machine(format!(
                "the host drains, and {} of its sessions still have a running turn; wait, or stop the daemon, which ends them",
                status.running
            )));
        }
        tokio::time::sleep(ASK_EVERY).await;
        status = daemon.get("/api/cluster").await?;
        if !status.draining {
            return Err(Exit::machine("the drain was ended by another command"));
        }
    }
    Ok(shown(&status))
}

fn shown(status: &ClusterStatus) -> Answer {
    let ClusterStatus { host, draining, drained, sessions, running, lease, hosts } = status;
    let state = match (lease.held, drained, draining) {
        (false, ..) => ", without a lease",
        (_, true, _) => ", drained",
        (_, _, true) => ", draining",
        _ => "",
    };
    let sessions = format!("{sessions} session{}", if *sessions == 1 { "" } else { "s" });
    let mut lines = vec![format!("{host}{state}: {sessions}, {running} with a running turn")];
    lines.push(format!("lease renewed {} ms ago in {} ms", lease.age_ms, lease.database_ms));
    lines.extend(hosts.iter().map(line));
    Answer::new(lines, json!(status)).named(hosts.iter().map(|host| host.id.clone()))
}

fn line(host: &ClusterMember) -> String {
    let ClusterMember { id, here, url, version, alive, draining, unreachable } = host;
    let state = match (alive, draining) {
        (false, _) => "lost",
        (_, true) => "draining",
        _ => "running",
    };
    let at = url.as_ref().map(|url| format!(" at {url}")).unwrap_or_default();
    let here = if *here { " (this one)" } else { "" };
    let unreachable =
        unreachable.as_ref().map(|why| format!("; cannot be reached: {why}")).unwrap_or_default();
    format!("host {id}{at}: {state}, version {version}{here}{unreachable}")
}
