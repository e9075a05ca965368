//! The kinds of channels. Each file is one kind: its grant, its canonical URI, its snapshot, the handling of clients'
//! actions, and what follows when a client unsubscribes.

mod automations;
mod changeset;
mod none;
mod plugin;
mod resource_watch;
mod root;
mod run;
mod session;
mod telemetry;
mod terminal;

use std::sync::Arc;

use futures::future::BoxFuture;
use ostler_contract::read::Read;
use ostler_engine_core::fanout::{Origin, Subscriber};
use ostler_engine_core::refusals::no_channel;
use ostler_engine_sessions::{Snapshots, snapshot};
use ostler_protocol::actions::Action;
use ostler_protocol::grants::Grant;
use ostler_protocol::uri::Channel;
use ostler_protocol::{RpcError, Value};

use crate::front::Front;
use crate::front::connection::Connection;

/// The number of copies of an action in memory until it is handled, in addition to its text.
const COPIES: usize = 2;

/// A requested subscription.
pub(super) struct Subscribing {
    /// The URI from the client's request.
    pub spelled: String,
    pub latency: Option<u64>,
    /// How many of a chat's turns the client requests, if not all.
    pub turns: Option<usize>,
    pub answer: Snapshots,
}

/// An authorized action of a client.
pub(super) struct Dispatched<'a> {
    /// The URI from the client's request.
    pub spelled: &'a str,
    pub row: &'static Action,
    pub action: &'a Arc<Value>,
    pub origin: &'a Origin,
    /// The length of its text.
    pub length: usize,
}

/// The operations of a kind of channel for a connection.
pub(super) trait ChannelKind: Send + Sync {
    /// Checks that a connection can subscribe to it.
    fn may_watch(&self, connection: &Connection) -> Result<(), RpcError>;

    /// Returns the canonical URI of the channel, if it exists.
    fn resolve(&self, front: &Front, spelled: &str) -> Result<String, RpcError>;

    /// Subscribes an authorized connection and delivers the snapshot.
    fn subscribe(&self, connection: &Arc<Connection>, subscribing: Subscribing);

    /// Returns why it accepts no actions at all, if that is so.
    fn takes_none(&self) -> Option<&'static str> {
        None
    }

    /// Handles an action, or returns why it is rejected.
    fn dispatch(&self, _: &Arc<Connection>, dispatched: Dispatched<'_>) -> Result<(), String> {
        Err(no_channel(dispatched.spelled).message)
    }

    /// Returns whether a plugin decides on access or has the state, which can take long.
    fn asks_plugin(&self) -> bool {
        false
    }

    /// Asks the plugin whether a reconnecting client can still subscribe to it.
    fn may_resume<'a>(&'a self, _: &'a Arc<Connection>, _: &'a str) -> BoxFuture<'a, Read<bool>> {
        Box::pin(std::future::ready(Read::Known(true)))
    }

    /// Restores a subscription of a lost connection.
    fn resume(&self, connection: &Connection, spelled: &str, channel: &str) {
        connection.remember(spelled, channel);
    }

    /// Ends a subscription that the connection is no longer authorized for.
    fn recheck(&self, connection: &Arc<Connection>, spelled: &str) {
        if self.may_watch(connection).is_err() {
            connection.handle_unsubscribe(spelled);
        }
    }

    /// Called when a connection is no longer subscribed to it, for any reason.
    fn left(&self, _: &Connection, _channel: &str) {}

    /// Called when a client unsubscribes from it.
    fn unsubscribed(&self, _: &Connection, _channel: &str) {}
}

/// Returns the kind of the channel that a client names.
pub(super) fn kind_of(front: &Front, spelled: &str) -> Box<dyn ChannelKind> {
    match front.sessions.channel(spelled) {
        Channel::Root => Box::new(root::Root),
        channel @ (Channel::Session(_)
        | Channel::Chat(_)
        | Channel::DefaultChat(_)
        | Channel::Worker { .. }
        | Channel::Annotations(_)) => Box::new(session::OfSession(channel)),
        Channel::Changeset { .. } => Box::new(changeset::Changeset),
        Channel::Automations => Box::new(automations::Catalogue),
        Channel::AutomationRun(id) => Box::new(run::Run(id)),
        Channel::Terminal(uri) => Box::new(terminal::Terminal(uri)),
        Channel::ResourceWatch(id) => Box::new(resource_watch::Watch(id)),
        Channel::Telemetry => Box::new(telemetry::Telemetry),
        Channel::Plugin { scheme } => Box::new(plugin::Plugin { scheme }),
        Channel::Other => Box::new(none::NoChannel),
    }
}

/// Checks a grant of a connection.
fn require(connection: &Connection, subject: &'static str, operation: &'static str) -> Result<(), RpcError> {
    connection.front().access.gate.require(&connection.principal(), &Grant::of(subject, operation))
}

/// Subscribes to a channel whose state is in memory: `state` adds the subscriber and returns the snapshot.
fn begin(
    connection: &Arc<Connection>,
    name: &str,
    subscribing: Subscribing,
    state: impl FnOnce(Subscriber) -> Result<(String, u64), RpcError>,
) {
    let Subscribing { spelled, latency, answer, .. } = subscribing;
    let subscriber = connection.subscriber(&spelled, name, latency);
    connection.remember(&spelled, name);
    let begun = answer.give_first(|| state(subscriber).map(|(state, seq)| snapshot(&spelled, &state, seq)));
    if let Err((answer, error)) = begun {
        answer.fail(error);
    }
}
