//! The subscriptions of each client to URIs of a scheme, over all its connections. A separate task per scheme notifies
//! the plugin of them in order.

use std::collections::{HashMap, HashSet};

use ostler_engine_core::ids::ConnectionId;
use ostler_engine_core::tasks;
use parking_lot::Mutex;
use tokio::sync::mpsc;

/// A notification of a plugin.
pub(crate) type Begin = Box<dyn FnOnce() + Send>;

/// Every scheme that had subscribers.
#[derive(Debug, Default)]
pub(super) struct Watching(Mutex<HashMap<String, Scheme>>);

#[derive(Debug)]
struct Scheme {
    clients: HashMap<String, Client>,
    begin: mpsc::UnboundedSender<Begin>,
}

#[derive(Debug, Default)]
struct Client {
    /// The URIs with their connections.
    watches: HashSet<(ConnectionId, String)>,
    /// Whether a subscription was established; otherwise there is none to end.
    came: bool,
}

impl Watching {
    /// Counts a subscription and starts the resulting notification.
    pub(super) fn add(&self, scheme: &str, client: &str, at: (ConnectionId, String), begin: Option<Begin>) {
        let mut schemes = self.0.lock();
        let scheme = schemes.entry(scheme.to_owned()).or_insert_with(Scheme::new);
        scheme.clients.entry(client.to_owned()).or_default().watches.insert(at);
        if let Some(begin) = begin {
            let _ = scheme.begin.send(begin);
        }
    }

    /// Records that a client has its snapshot.
    pub(super) fn came(&self, scheme: &str, client: &str) {
        let mut schemes = self.0.lock();
        if let Some(client) = schemes.get_mut(scheme).and_then(|scheme| scheme.clients.get_mut(client)) {
            client.came = true;
        }
    }

    /// Ends a subscription; starts `left` if it was the client's last one. A subscription whose snapshot failed does
    /// not count.
    pub(super) fn remove(
        &self,
        scheme: &str,
        client: &str,
        at: &(ConnectionId, String),
        failed: bool,
        left: Option<Begin>,
    ) {
        let mut schemes = self.0.lock();
        let Some(scheme) = schemes.get_mut(scheme) else { return };
        let Some(watching) = scheme.clients.get_mut(client) else { return };
        if !watching.watches.remove(at) {
            return;
        }
        watching.came |= !failed;
        let came = watching.came;
        if !watching.watches.is_empty() {
            return;
        }
        scheme.clients.remove(client);
        if let Some(left) = left.filter(|_| came) {
            let _ = scheme.begin.send(left);
        }
    }
}

impl Scheme {
    fn new() -> Self {
        let (begin, mut queue) = mpsc::unbounded_channel::<Begin>();
        tasks::spawn(async move {
            while let Some(begin) = queue.recv().await {
                begin();
            }
        });
        Self { clients: HashMap::new(), begin }
    }
}
