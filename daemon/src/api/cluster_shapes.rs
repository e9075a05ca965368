//! What the requests about the cluster take and return.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The process serves requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Alive {
    /// Always true.
    pub alive: bool,
}

/// The host serves clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ready {
    /// Always true; a host that is not ready answers with status 503 and the reason.
    pub ready: bool,
}

/// The state of the cluster, as one host sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterStatus {
    /// The name of this host.
    pub host: String,
    /// Whether this host takes no new sessions and hands its sessions over.
    pub draining: bool,
    /// Whether it drains and has no session left that another host takes, and no running turn.
    pub drained: bool,
    /// The number of sessions that this host owns.
    pub sessions: usize,
    /// The number of those with a running turn.
    pub running: usize,
    /// The lease of this host.
    pub lease: LeaseStatus,
    /// Every known host.
    pub hosts: Vec<ClusterMember>,
}

/// The lease of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeaseStatus {
    /// Whether the host has it.
    pub held: bool,
    /// Milliseconds since it was renewed.
    pub age_ms: u64,
    /// Milliseconds that the last renewal took.
    pub database_ms: u64,
}

/// A host of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterMember {
    /// Its name.
    pub id: String,
    /// Whether it is the host that answers.
    pub here: bool,
    /// Its address for the other hosts, once it listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Its version of ostler.
    pub version: String,
    /// Whether its lease is valid.
    pub alive: bool,
    /// Whether it drains.
    pub draining: bool,
    /// Why the host that answers cannot connect to it at its address, if it cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreachable: Option<String>,
}

/// Drains the host, or ends that.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Drain {
    /// Whether the host takes sessions again.
    #[serde(default)]
    pub undo: bool,
}

/// Ends the lease of a host.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Evict {
    /// The name of the host.
    pub id: String,
}

/// A host whose lease was ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Evicted {
    /// The name of the host.
    pub evicted: String,
}
