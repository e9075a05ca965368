//! The clients that are connected, as the parts below connections see them.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::sync::{Arc, Weak};

use ostler_contract::Value;
use ostler_protocol::{RpcError, Version};
use parking_lot::{Mutex, RwLock};

use super::principal::Principal;
use crate::core::ids::ConnectionId;
use crate::core::outbox::Outbox;

/// How many clients' versions are remembered.
const REMEMBERED_MAX: usize = 10_000;

/// The answer to a request the host sent to a client.
pub(crate) type Answer = Result<Value, RpcError>;

/// One open connection.
pub(crate) trait Client: Debug + Send + Sync {
    /// Its number.
    fn id(&self) -> ConnectionId;

    /// The client's id, once it introduced itself.
    fn client_id(&self) -> Option<String>;

    /// Who it is, by what the host knows of users now.
    fn principal(&self) -> Principal;

    /// The owner of the work it starts.
    fn owner(&self) -> Option<String>;

    /// The tokens it pushed, by resource.
    fn credentials(&self) -> BTreeMap<String, String>;

    /// Whether it is closed.
    fn is_closed(&self) -> bool;

    /// Whether it is there and has not ended a subscription, by the URI as it spelt it.
    fn wants(&self, spelled: &str) -> bool;

    /// What waits to be written to it.
    fn outbox(&self) -> &Arc<Outbox>;

    /// Sends a request; resolves to the client's answer.
    fn ask<'a>(&'a self, method: &'a str, params: &'a Value) -> futures::future::BoxFuture<'a, Answer>;

    /// Closes the connection.
    fn close(&self);

    /// Ends the subscriptions the connection may not have any more.
    fn drop_forbidden(self: Arc<Self>);
}

/// The open connections by number.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    open: RwLock<HashMap<ConnectionId, Weak<dyn Client>>>,
    /// The version each client used last, for one that reconnects without saying.
    versions: Mutex<HashMap<String, Version>>,
}

impl Clients {
    /// Adds a connection that was opened.
    pub(crate) fn add(&self, id: ConnectionId, client: Weak<dyn Client>) {
        self.open.write().insert(id, client);
    }

    /// Removes a connection that is closed.
    pub(crate) fn remove(&self, id: ConnectionId) {
        self.open.write().remove(&id);
    }

    /// Returns every open connection.
    pub(crate) fn open(&self) -> Vec<Arc<dyn Client>> {
        self.open.read().values().filter_map(Weak::upgrade).collect()
    }

    /// Returns the connection of a number.
    pub(crate) fn get(&self, id: ConnectionId) -> Option<Arc<dyn Client>> {
        self.open.read().get(&id).and_then(Weak::upgrade)
    }

    /// Whether a connection is one of a client's.
    pub(crate) fn is_client(&self, id: ConnectionId, client: &str) -> bool {
        self.get(id).is_some_and(|connection| connection.client_id().as_deref() == Some(client))
    }

    /// Whether a client has an open connection.
    pub(crate) fn is_connected(&self, client: &str) -> bool {
        self.open().iter().any(|open| open.client_id().as_deref() == Some(client))
    }

    /// Remembers which version a client uses.
    pub(crate) fn remember_version(&self, client: &str, version: Version) {
        let mut versions = self.versions.lock();
        if versions.len() >= REMEMBERED_MAX {
            versions.clear();
        }
        versions.insert(client.to_owned(), version);
    }

    /// The version a client used last.
    pub(crate) fn version_of(&self, client: &str) -> Option<Version> {
        self.versions.lock().get(client).copied()
    }
}
