//! Actions that differ between connections.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::ids::ConnectionId;

/// The form of an action for each connection.
#[derive(Clone)]
pub struct Overlay {
    seen: Arc<dyn Fn(ConnectionId) -> Overlaid + Send + Sync>,
    pub(super) again: Option<Arc<Again>>,
}

pub(super) type Again = dyn Fn(ConnectionId) -> BoxFuture<'static, bool> + Send + Sync;

impl Overlay {
    /// Creates an overlay from a function of the connection, called at the send and at a replay.
    pub fn new(seen: impl Fn(ConnectionId) -> Overlaid + Send + Sync + 'static) -> Self {
        Self { seen: Arc::new(seen), again: None }
    }

    /// Like [`Overlay::new`], with an asynchronous check at a replay.
    #[must_use]
    pub fn asked_again(
        mut self,
        again: impl Fn(ConnectionId) -> BoxFuture<'static, bool> + Send + Sync + 'static,
    ) -> Self {
        self.again = Some(Arc::new(again));
        self
    }

    pub(super) fn seen(&self, by: ConnectionId) -> Overlaid {
        (self.seen)(by)
    }
}

impl std::fmt::Debug for Overlay {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Overlay")
    }
}

/// The form of an action for one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Overlaid {
    /// The action unchanged.
    Same,
    /// Another action in its place.
    Other(String),
    Nothing,
}
