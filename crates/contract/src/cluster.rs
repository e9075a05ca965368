//! Several hosts that work as one on shared stores: who they are, and which of them owns a session.
//!
//! A native plugin that provides the stores joins its host to a cluster with [`crate::PluginHost::join_cluster`]. A host that
//! joined none is alone and pays nothing.

use std::fmt::Debug;
use std::sync::Arc;

use crate::live::Pending;
use crate::secret::Secret;

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
    /// Another host changed or created a session.
    SessionChanged {
        /// The id of the session.
        id: String,
    },
    /// Another host removed a session.
    SessionRemoved {
        /// The id of the session.
        id: String,
    },
    /// Another host stored or ended a run.
    RunChanged {
        /// The automation of the run.
        automation: String,
        /// The URI of the run.
        run: String,
    },
}

/// Receives the events of a cluster, in order. It must not block.
pub type ClusterListener = Arc<dyn Fn(ClusterEvent) + Send + Sync>;

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

    /// Sets the listener of events, once.
    fn listen(&self, listener: ClusterListener);
}
