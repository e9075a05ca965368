//! Which client watches which URIs of a scheme, over all its connections. What a plugin is told of that is begun in the
//! order it came about, on a task of the scheme's own.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::core::ids::ConnectionId;

/// Something to tell a plugin.
pub(crate) type Begin = Box<dyn FnOnce() + Send>;

/// Every scheme somebody watched.
#[derive(Debug, Default)]
pub(super) struct Watching(Mutex<HashMap<String, Scheme>>);

#[derive(Debug)]
struct Scheme {
    clients: HashMap<String, Client>,
    begin: mpsc::UnboundedSender<Begin>,
}

#[derive(Debug, Default)]
struct Client {
    /// Which URIs, on which connections.
    watches: HashSet<(ConnectionId, String)>,
    /// Whether it came to watch one: else there is nothing to leave.
    came: bool,
}

impl Watching {
    /// Counts a watch and begins what comes of it.
    pub(super) fn add(&self, scheme: &str, client: &str, at: (ConnectionId, String), begin: Option<Begin>) {
        let mut schemes = self.0.lock();
        let scheme = schemes.entry(scheme.to_owned()).or_insert_with(Scheme::new);
        scheme.clients.entry(client.to_owned()).or_default().watches.insert(at);
        if let Some(begin) = begin {
            let _ = scheme.begin.send(begin);
        }
    }

    /// Puts down that a client has its snapshot.
    pub(super) fn came(&self, scheme: &str, client: &str) {
        let mut schemes = self.0.lock();
        if let Some(client) = schemes.get_mut(scheme).and_then(|scheme| scheme.clients.get_mut(client)) {
            client.came = true;
        }
    }

    /// Ends a watch; `left` is begun where it was the client's last. One whose snapshot failed is as if it had never
    /// been.
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
        tokio::spawn(async move {
            while let Some(begin) = queue.recv().await {
                begin();
            }
        });
        Self { clients: HashMap::new(), begin }
    }
}
