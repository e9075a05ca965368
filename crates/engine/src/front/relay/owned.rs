//! The end of a link at the owner of sessions: each client of the other host has a connection here.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use ostler_contract::{Budget, Charge, JsonObject};
use ostler_engine_core::fanout::Subscriber;
use ostler_engine_core::link_queue::LinkQueue;
use ostler_engine_core::outbox::{Closed, Outbox};
use ostler_engine_core::tasks;
use ostler_engine_users::users::principal::Principal;
use ostler_protocol::origins::WayIn;
use ostler_protocol::{Version, uri, version};
use tokio::sync::mpsc;

use super::link::{LinkTransport, drive};
use super::lists::send_rows;
use super::wire::{LinkMessage, ROOT, WirePrincipal};
use crate::front::Front;
use crate::front::connection::Connection;

/// The maximum number of messages of a client that wait to be handled.
const WAITING_MAX: usize = 4096;
/// How many outboxes can be queued on a link.
pub(super) const OUTBOXES: usize = 4;

/// The link of a connection whose client another host serves.
#[derive(Debug)]
pub(crate) struct Across {
    pub(super) queue: Arc<LinkQueue>,
    pub(super) number: u64,
    /// How often the message that is being handled was returned by a host.
    bounces: AtomicU8,
}

impl Across {
    /// Creates the outbox of the connection.
    pub(in crate::front) fn outbox(&self, limit: usize, budget: Budget, host: Budget) -> Arc<Outbox> {
        Outbox::across(limit, budget, host, self.queue.clone(), self.number)
    }

    /// Returns a frame about a session that another host owns.
    pub(super) fn bounce(&self, session: String, frame: &str) {
        let bounces = self.bounces.load(Ordering::Relaxed);
        let message = LinkMessage::Bounced { connection: self.number, bounces, session };
        self.queue.message(message.text(frame), None);
    }
}

/// Something that another host sends about a client, in order.
enum Inbound {
    Frame(String, u8, Option<Charge>),
    Principal(WirePrincipal),
    Credential(String, String),
    Settings(JsonObject),
}

/// The connection of a client of another host.
struct Remote {
    connection: Arc<Connection>,
    inbox: mpsc::Sender<Inbound>,
}

impl Remote {
    /// Passes on a message; a client that sends faster than it is served is disconnected.
    fn pass(&self, inbound: Inbound) {
        if self.inbox.try_send(inbound).is_err() {
            self.connection.outbox.close(Closed::Behind);
        }
    }

    fn frame(&self, frame: &str, bounces: u8) {
        let charge = if frame.len() > ostler_contract::budget::SMALL {
            let Some(charge) = self.connection.outbox.budget().try_take(frame.len()) else {
                return self.connection.outbox.close(Closed::NoMemory);
            };
            Some(charge)
        } else {
            None
        };
        self.pass(Inbound::Frame(frame.to_owned(), bounces, charge));
    }
}

/// What another host receives over a link.
struct Serving {
    front: Arc<Front>,
    queue: Arc<LinkQueue>,
    remotes: HashMap<u64, Remote>,
    /// The subscription of the root channel.
    watch: Option<Subscriber>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(watch) = &self.watch {
            self.front.core.fanout.unsubscribe(uri::ROOT, watch.connection);
        }
        for remote in self.remotes.values() {
            remote.connection.close();
        }
        self.queue.close("the link has ended");
    }
}

impl Front {
    /// Serves a link that another host of the cluster opened with the token of the cluster, until it ends.
    pub async fn serve_link(self: &Arc<Self>, transport: LinkTransport) {
        let Some(cluster) = self.core.cluster() else { return };
        let queue = LinkQueue::new(OUTBOXES * self.core.options.outbox);
        queue.message(LinkMessage::Hello { incarnation: cluster.incarnation() }.text(""), None);
        let mut serving =
            Serving { front: self.clone(), queue: queue.clone(), remotes: HashMap::new(), watch: None };
        drive(transport, &queue, &self.core, |message, frame| serving.receive(message, frame)).await;
    }
}

impl Serving {
    fn receive(&mut self, message: LinkMessage, frame: &str) -> Result<(), String> {
        match message {
            LinkMessage::Open { connection, client, way, version, principal, credentials, settings } => {
                if self.front.core.lost_lease().is_some() {
                    let refused = LinkMessage::Closed { connection, why: Closed::Moved.into() };
                    self.queue.message(refused.text(""), None);
                    return Ok(());
                }
                let version = version::negotiate(&[version]).map_err(|error| error.message)?.version;
                let known = principal.clone().here(&self.front);
                let unknown = principal.is_unknown(&known).then_some(principal);
                let way = WayIn::named(&way).unwrap_or(WayIn::Plugin);
                let across =
                    Across { queue: self.queue.clone(), number: connection, bounces: AtomicU8::new(0) };
                let opened = Connection::open_across(&self.front, known, way, across);
                opened.enter_across(&client, version, credentials, settings);
                self.remotes.insert(connection, serve(opened, connection, self.queue.clone()));
                if let Some(principal) = unknown {
                    self.pass(connection, Inbound::Principal(principal));
                }
            }
            LinkMessage::Frame { to, bounces } => {
                for remote in to.iter().filter_map(|number| self.remotes.get(number)) {
                    remote.frame(frame, bounces);
                }
            }
            LinkMessage::Principal { connection, principal } => {
                self.pass(connection, Inbound::Principal(principal));
            }
            LinkMessage::Credential { connection, resource, token } => {
                self.pass(connection, Inbound::Credential(resource, token));
            }
            LinkMessage::Settings { connection, settings } => {
                self.pass(connection, Inbound::Settings(settings));
            }
            LinkMessage::Close { connection } => {
                if let Some(remote) = self.remotes.remove(&connection) {
                    remote.connection.close();
                }
            }
            LinkMessage::Watch => self.watch(),
            _ => {}
        }
        Ok(())
    }

    fn pass(&self, connection: u64, inbound: Inbound) {
        if let Some(remote) = self.remotes.get(&connection) {
            remote.pass(inbound);
        }
    }

    /// Sends the notifications of the root channel to the other host.
    fn watch(&mut self) {
        if self.watch.is_some() {
            return;
        }
        let core = &self.front.core;
        let budget = core.budget.part(core.options.limits.connection_memory);
        let outbox = Outbox::across(
            OUTBOXES * core.options.outbox,
            budget,
            core.budget.clone(),
            self.queue.clone(),
            ROOT,
        );
        let subscriber = Subscriber {
            connection: core.next_connection(),
            outbox,
            version: Version::V1,
            alias: None,
            latency: None,
            hold: None,
            flow: None,
        };
        core.fanout.subscribe(uri::ROOT, subscriber.clone());
        send_rows(&self.front, &subscriber.outbox);
        core.root.send_terminals(|frame| subscriber.outbox.send(frame));
        self.watch = Some(subscriber);
    }
}

/// Returns the principal on this host, which may not have heard of a user that the other host knows.
async fn known(front: &Front, principal: WirePrincipal) -> Principal {
    let here = principal.clone().here(front);
    match principal.is_unknown(&here) && front.access.gate.learn().await {
        true => principal.here(front),
        false => here,
    }
}

/// Handles the messages of a client one after the other, until either side closes its connection.
fn serve(connection: Arc<Connection>, number: u64, queue: Arc<LinkQueue>) -> Remote {
    let (inbox, mut messages) = mpsc::channel(WAITING_MAX);
    let remote = Remote { connection: connection.clone(), inbox };
    tasks::spawn(async move {
        let outbox = connection.outbox.clone();
        let receiving = async {
            while let Some(inbound) = messages.recv().await {
                match inbound {
                    Inbound::Frame(frame, bounces, _charge) => {
                        // Its host reads no more of a client that does not read its answers; this is the rest.
                        outbox.writable().await;
                        if let Some(across) = connection.across() {
                            across.bounces.store(bounces, Ordering::Relaxed);
                        }
                        Box::pin(connection.receive_frame(&frame)).await;
                    }
                    Inbound::Principal(principal) => {
                        connection.change_principal(known(connection.front(), principal).await);
                        connection.drop_forbidden();
                    }
                    Inbound::Credential(resource, token) => {
                        connection.keep_credential(&resource, &token);
                    }
                    Inbound::Settings(settings) => {
                        connection.front().core.root.set_own_values(connection.id(), settings);
                    }
                }
            }
        };
        tokio::select! {
            () = receiving => {}
            why = outbox.closed() => {
                queue.message(LinkMessage::Closed { connection: number, why: why.into() }.text(""), None);
            }
        }
        connection.close();
    });
    remote
}
