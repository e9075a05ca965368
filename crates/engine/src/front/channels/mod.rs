//! The kinds of channels. Each file is one kind: who may watch it, what it is called, the state a subscription begins with,
//! what an action of a client does there, and what follows when a client leaves it.

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
use ostler_protocol::actions::Action;
use ostler_protocol::grants::Grant;
use ostler_protocol::uri::Channel;
use ostler_protocol::{RpcError, Value};

use crate::core::fanout::{Origin, Subscriber};
use crate::core::refusals::no_channel;
use crate::front::Front;
use crate::front::connection::Connection;
use crate::sessions::{Snapshots, snapshot};

/// How often an action is in memory until it is handled, beside its text.
const COPIES: usize = 2;

/// A subscription asked for.
pub(super) struct Subscribing {
    /// The URI as the client spelt it.
    pub spelled: String,
    pub latency: Option<u64>,
    /// How many of a chat's turns the client wants, where not all.
    pub turns: Option<usize>,
    pub answer: Snapshots,
}

/// An action a client dispatched, which it may.
pub(super) struct Dispatched<'a> {
    /// The URI as the client spelt it.
    pub spelled: &'a str,
    pub row: &'static Action,
    pub action: &'a Arc<Value>,
    pub origin: &'a Origin,
    /// The length of its text.
    pub length: usize,
}

/// What a kind of channel does for a connection.
pub(super) trait ChannelKind: Send + Sync {
    /// Whether a connection may watch it.
    fn may_watch(&self, connection: &Connection) -> Result<(), RpcError>;

    /// The channel's own name, if it is there.
    fn resolve(&self, front: &Front, spelled: &str) -> Result<String, RpcError>;

    /// Subscribes a connection that may watch it; the snapshot goes where it is wanted.
    fn subscribe(&self, connection: &Arc<Connection>, subscribing: Subscribing);

    /// Why it takes no action at all, whatever the action is.
    fn takes_none(&self) -> Option<&'static str> {
        None
    }

    /// Takes an action, or says why not.
    fn dispatch(&self, _: &Arc<Connection>, dispatched: Dispatched<'_>) -> Result<(), String> {
        Err(no_channel(dispatched.spelled).message)
    }

    /// Whether a plugin decides who may watch it and what the state is, which may take long.
    fn asks_plugin(&self) -> bool {
        false
    }

    /// Whether a client that comes back may watch it still, by what the plugin says.
    fn may_resume<'a>(&'a self, _: &'a Arc<Connection>, _: &'a str) -> BoxFuture<'a, bool> {
        Box::pin(std::future::ready(true))
    }

    /// Takes a subscription up again where a lost connection was.
    fn resume(&self, connection: &Connection, spelled: &str, channel: &str) {
        connection.remember(spelled, channel);
    }

    /// Ends a subscription the connection may not have any more.
    fn recheck(&self, connection: &Arc<Connection>, spelled: &str) {
        if self.may_watch(connection).is_err() {
            connection.handle_unsubscribe(spelled);
        }
    }

    /// A connection watches it no longer, however that came.
    fn left(&self, _: &Connection, _channel: &str) {}

    /// A client unsubscribed from it.
    fn unsubscribed(&self, _: &Connection, _channel: &str) {}
}

/// The kind of the channel a client spells so.
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

/// Asks a connection for a grant.
fn require(connection: &Connection, subject: &'static str, operation: &'static str) -> Result<(), RpcError> {
    connection.front().access.gate.require(&connection.principal(), &Grant::of(subject, operation))
}

/// Subscribes to a channel whose state is at hand: `state` adds the subscriber and returns the state it begins with.
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
