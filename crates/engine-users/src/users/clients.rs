//! The connected clients, for the layers below connections.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::sync::{Arc, Weak};

use ostler_contract::Value;
use ostler_engine_core::ids::ConnectionId;
use ostler_engine_core::outbox::{Closed, Outbox};
use ostler_protocol::{RpcError, Version};
use parking_lot::{Mutex, RwLock};

use super::principal::Principal;

/// The maximum number of clients whose versions are stored.
const REMEMBERED_MAX: usize = 10_000;

/// The answer to a request of the host to a client.
pub type Answer = Result<Value, RpcError>;

/// A client by its id and its user. Clients choose their ids, so that the same id can be that of another user's client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientIdentity {
    pub id: String,
    /// The owner of the work it starts.
    pub owner: Option<String>,
}

impl ClientIdentity {
    /// Returns whether a connection belongs to the client.
    pub fn is_of(&self, connection: &dyn Client) -> bool {
        connection.client_id().as_ref() == Some(&self.id) && connection.owner() == self.owner
    }

    /// Returns whether the client has an open connection.
    pub fn is_connected(&self, clients: &Clients) -> bool {
        clients.identities().contains(self)
    }
}

/// One open connection.
pub trait Client: Debug + Send + Sync {
    /// Its number.
    fn id(&self) -> ConnectionId;

    /// The client's id, once initialized.
    fn client_id(&self) -> Option<String>;

    /// Its principal, according to the current users file.
    fn principal(&self) -> Principal;

    /// The owner of the work it starts.
    fn owner(&self) -> Option<String>;

    /// Its tokens, by resource.
    fn credentials(&self) -> BTreeMap<String, String>;

    fn is_closed(&self) -> bool;

    /// Whether the client said over it that it is active in a session, by the session's URI.
    fn is_active_in(&self, session: &str) -> bool;

    /// Records that it is not active in a session, by the session's URI.
    fn leaves(&self, session: &str);

    /// Records that a session, by its URI, has handled that it said it is active there.
    fn answered(&self, session: &str, is_active: bool);

    /// Whether it is open and has not ended a subscription, by the URI from its request.
    fn wants(&self, spelled: &str) -> bool;

    fn outbox(&self) -> &Arc<Outbox>;

    /// Sends a request; resolves to the client's answer.
    fn ask<'a>(&'a self, method: &'a str, params: &'a Value) -> futures::future::BoxFuture<'a, Answer>;

    fn close(&self);

    /// Ends what it may no longer have, after users have changed or a page has signed out.
    fn review(self: Arc<Self>);
}

/// The open connections by number.
#[derive(Debug, Default)]
pub struct Clients {
    open: RwLock<HashMap<ConnectionId, Weak<dyn Client>>>,
    /// The latest version of each client, for one that reconnects without declaring it.
    versions: Mutex<HashMap<String, Version>>,
}

impl Clients {
    /// Adds an opened connection.
    pub fn add(&self, id: ConnectionId, client: Weak<dyn Client>) {
        self.open.write().insert(id, client);
    }

    /// Removes a closed connection.
    pub fn remove(&self, id: ConnectionId) {
        self.open.write().remove(&id);
    }

    /// Returns the clients that have an open connection.
    pub fn identities(&self) -> Vec<ClientIdentity> {
        let identity =
            |open: Arc<dyn Client>| Some(ClientIdentity { id: open.client_id()?, owner: open.owner() });
        self.open().into_iter().filter_map(identity).collect()
    }

    /// Returns every open connection.
    pub fn open(&self) -> Vec<Arc<dyn Client>> {
        self.open.read().values().filter_map(Weak::upgrade).collect()
    }

    /// Returns the connection of a number.
    pub fn get(&self, id: ConnectionId) -> Option<Arc<dyn Client>> {
        self.open.read().get(&id).and_then(Weak::upgrade)
    }

    /// Closes a connection for a reason that its client receives.
    pub fn close(&self, id: ConnectionId, why: Closed) {
        if let Some(connection) = self.get(id) {
            connection.outbox().close(why);
            connection.close();
        }
    }

    /// Returns whether a connection belongs to a client.
    pub fn is_client(&self, id: ConnectionId, client: &str) -> bool {
        self.get(id).is_some_and(|connection| connection.client_id().as_deref() == Some(client))
    }

    /// Returns whether a client has an open connection.
    pub fn is_connected(&self, client: &str) -> bool {
        self.open().iter().any(|open| open.client_id().as_deref() == Some(client))
    }

    /// Records the version of a client.
    pub fn remember_version(&self, client: &str, version: Version) {
        let mut versions = self.versions.lock();
        if versions.len() >= REMEMBERED_MAX {
            versions.clear();
        }
        versions.insert(client.to_owned(), version);
    }

    /// Returns the latest version of a client.
    pub fn version_of(&self, client: &str) -> Option<Version> {
        self.versions.lock().get(client).copied()
    }
}
