//! Several hosts that work as one on shared stores: who they are, and which of them owns a session.
//!
//! A native plugin that provides the stores joins its host to a cluster with [`crate::PluginHost::join_cluster`]. A host that
//! joined none is alone and pays nothing.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use ostler_protocol::error::code;
use ostler_protocol::{RpcError, json, names};

use crate::live::{Pending, ready};
use crate::secret::Secret;
use crate::thrown::Thrown;

/// A host of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterHost {
    /// Its stable name.
    pub id: String,
    /// The run of the host, which is new after each start. Sessions are owned by runs.
    pub incarnation: String,
    /// Its address for other hosts: `ws://…` or `wss://…`. Absent until it listens.
    pub url: Option<String>,
    /// Its version of ostler.
    pub version: String,
    /// Whether it takes no new sessions because it is about to stop.
    pub is_draining: bool,
    /// Whether its lease is valid by the clock of the database.
    pub is_alive: bool,
}

/// Who may write a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionOwner {
    /// This host.
    Here,
    /// Another host with a valid lease.
    Elsewhere(ClusterHost),
    /// No host, or one whose lease has expired; `last` is the latest of them, if it is known.
    Nobody {
        /// The host that owned it last.
        last: Option<ClusterHost>,
    },
}

/// What happens in the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClusterEvent {
    /// This host can no longer write: its lease could not be renewed in time or was taken over. Its clients are
    /// disconnected and its sessions leave memory.
    LeaseLost,
    /// This host can write again.
    LeaseRegained,
    /// A host started, stopped, was lost, or began to drain.
    HostsChanged,
    /// Another host added a session to the list: it created one, or a draft became one.
    SessionAdded {
        /// The id of the session.
        id: String,
    },
    /// Another host changed or created a session.
    SessionChanged {
        /// The id of the session.
        id: String,
        /// The run of that host.
        by: String,
    },
    /// Another host removed a session.
    SessionRemoved {
        /// The id of the session.
        id: String,
        /// Its URI, if it was listed.
        listed: Option<String>,
    },
    /// Another host stored runs of an automation.
    RunsChanged {
        /// The id of the automation.
        automation: String,
    },
}

/// Receives the events of a cluster, in order. It must not block.
pub type ClusterListener = Arc<dyn Fn(ClusterEvent) + Send + Sync>;

/// Why a session is not loaded or created here: another host has to serve it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionElsewhere {
    /// The id of the session.
    pub session: String,
    /// The host that owns it, or that should.
    pub host: ClusterHost,
}

impl SessionElsewhere {
    /// The name of the error, by which it is recognised.
    pub const NAME: &str = "SessionElsewhere";

    /// Returns whether an error says that another host has to serve a session.
    pub fn is(why: &Thrown) -> bool {
        why.name == Self::NAME
    }
}

impl From<SessionElsewhere> for RpcError {
    fn from(SessionElsewhere { session, host }: SessionElsewhere) -> Self {
        // Callers do not reach the address of the host, which is for the others of the cluster.
        let message = format!("session {session} is served by host {} of the cluster; try again", host.id);
        RpcError::new(code::CONFLICT, message).with_data(json!({
            "session": session, "host": host.id, "incarnation": host.incarnation, (names::RETRYABLE): true,
        }))
    }
}

impl From<SessionElsewhere> for Thrown {
    fn from(elsewhere: SessionElsewhere) -> Self {
        Self { name: SessionElsewhere::NAME.to_owned(), ..Self::from(RpcError::from(elsewhere)) }
    }
}

/// Measurements of a host in a cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClusterGauges {
    /// Whether the host has its lease.
    pub has_lease: bool,
    /// Time since the lease was renewed.
    pub lease_age: Duration,
    /// How long the last renewal took, which is a small write of the database.
    pub database_latency: Duration,
}

/// The directory of a cluster: hosts, owners of sessions, and what changes. Every function is answered by the shared store and
/// is called within a limit.
pub trait Cluster: Debug + Send + Sync {
    /// The run of this host.
    fn incarnation(&self) -> String;

    /// The token with which hosts of the cluster authenticate to each other.
    fn token(&self) -> Secret<String>;

    /// Every known host, this one included.
    fn hosts(&self) -> Pending<Vec<ClusterHost>>;

    /// The owner of a session. A session that is stored nowhere has none.
    fn owner(&self, session: String) -> Pending<SessionOwner>;

    /// Makes this host the owner of a session that no living host owns, and returns the owner afterwards.
    fn claim(&self, session: String) -> Pending<SessionOwner>;

    /// Gives up a session, after every write of it is stored, so that another host can claim it.
    fn release(&self, session: String) -> Pending<()>;

    /// Sets whether this host drains.
    fn set_draining(&self, is_draining: bool) -> Pending<()>;

    /// Sets the address of this host for others, once it listens.
    fn set_url(&self, url: String);

    /// Ends the lease of a host by its id, so that others take over its sessions. Returns whether there was one.
    fn evict(&self, host: String) -> Pending<bool>;

    /// Adds a listener of events.
    fn listen(&self, listener: ClusterListener);

    /// The stable name of this host.
    fn id(&self) -> String {
        self.incarnation()
    }

    /// Records that all sessions have left memory after [`ClusterEvent::LeaseLost`], so that the host can join again.
    fn emptied(&self) {}

    /// Records that a session that this host owns needs the files of this host.
    fn bind(&self, _session: String) -> Pending<()> {
        ready(Ok(()))
    }

    /// The host whose files a session needs, if it needs those of one host.
    fn bound_to(&self, _session: String) -> Pending<Option<ClusterHost>> {
        ready(Ok(None))
    }

    /// Whether every host has the same files under a path.
    fn is_shared(&self, _path: &str) -> bool {
        true
    }

    /// Whether this host drains.
    fn is_draining(&self) -> bool {
        false
    }

    /// Current measurements.
    fn gauges(&self) -> ClusterGauges {
        ClusterGauges { has_lease: true, ..ClusterGauges::default() }
    }
}
