//! The host of a client whose sessions another host serves: what it passes on, and what comes back.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use ostler_contract::cluster::ClusterHost;
use ostler_engine_core::envelope::split_number;
use ostler_engine_core::outbox::Outbox;
use ostler_engine_core::responder::Responder;
use ostler_engine_users::users::principal::Principal;
use ostler_protocol::commands::{Command, DispatchAction, Notification};
use ostler_protocol::message::{Params, encode};
use ostler_protocol::{Id, JsonObject, Message, RpcError, Version, json};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::frames::{Kind, WithId, snapshot_in, split_id, with_from_seq};
use super::wire::{LinkMessage, WirePrincipal, version_text};
use super::{Link, Relay, Route, moving, unreachable};
use crate::front::commands::subject;
use crate::front::connection::Connection;

/// How long a subscription waits for a session whose host is lost to be served again.
pub(super) const TAKEN_OVER: Duration = Duration::from_secs(20);
/// How often hosts can return a message before its client is asked to try again.
pub(super) const BOUNCES_MAX: u8 = 4;

/// What a connection has at other hosts.
#[derive(Debug, Default)]
pub(crate) struct Relayed {
    ends: Mutex<Ends>,
    /// The subscriptions of `initialize` or `reconnect` at other hosts.
    pub(super) entering: Mutex<Vec<String>>,
    /// The number of requests of this host for the connection.
    pub(super) requests: AtomicU64,
}

#[derive(Debug, Default)]
struct Ends {
    open: Vec<End>,
    is_closed: bool,
}

/// The connection of a client at another host.
#[derive(Debug)]
pub(super) struct End {
    link: Arc<Link>,
    number: u64,
    /// The requests without an answer.
    pub pending: HashMap<Id, Pending>,
    /// The subscribed channels, by the URIs from the client's requests.
    pub subscriptions: HashSet<String>,
}

/// A request that another host has not answered.
#[derive(Debug)]
pub(super) enum Pending {
    /// A request of the client.
    Request(Responder),
    /// A subscription of the client, which can be requested again.
    Subscribe { responder: Responder, params: Params, channel: String, until: Instant },
    /// A subscription of `initialize` or `reconnect`.
    Collect { channel: String, answer: oneshot::Sender<Option<String>> },
}

/// How often and how long a command is passed to another host.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tries {
    /// How often hosts returned it.
    pub bounces: u8,
    /// When a subscription fails if its host is still not reachable.
    pub until: Instant,
}

impl Tries {
    pub fn new() -> Self {
        Self { bounces: 0, until: Instant::now() + TAKEN_OVER }
    }
}

/// A message for another host.
pub(super) struct Passed {
    pub host: Arc<ClusterHost>,
    pub session: String,
    pub frame: String,
    pub bounces: u8,
    pub request: Option<(Id, Pending)>,
}

impl Relayed {
    /// Returns the requests that were sent over a link, with the subscriptions, and forgets them.
    pub(super) fn take(&self, link: &Arc<Link>) -> Option<End> {
        let mut ends = self.ends.lock();
        let at = ends.open.iter().position(|end| Arc::ptr_eq(&end.link, link))?;
        Some(ends.open.swap_remove(at))
    }

    pub(super) fn take_pending(&self, link: &Arc<Link>, id: &Id) -> Option<Pending> {
        let mut ends = self.ends.lock();
        let end = ends.open.iter_mut().find(|end| Arc::ptr_eq(&end.link, link))?;
        end.pending.remove(id)
    }

    pub(super) fn unsubscribed(&self, link: &Arc<Link>, channel: &str) {
        let mut ends = self.ends.lock();
        if let Some(end) = ends.open.iter_mut().find(|end| Arc::ptr_eq(&end.link, link)) {
            end.subscriptions.remove(channel);
        }
    }

    /// Notifies the other hosts of a change of the connection.
    fn notify(&self, message: impl Fn(u64) -> LinkMessage) {
        for end in &self.ends.lock().open {
            end.link.queue.message(message(end.number).text(""), None);
        }
    }

    /// Ends everything at other hosts because the client disconnected.
    pub fn close(&self) {
        let ends = {
            let mut ends = self.ends.lock();
            ends.is_closed = true;
            std::mem::take(&mut ends.open)
        };
        for End { link, number, pending, .. } in ends {
            link.forget(number);
            link.queue.message(LinkMessage::Close { connection: number }.text(""), None);
            for (_, pending) in pending {
                if let Pending::Request(responder) | Pending::Subscribe { responder, .. } = pending {
                    responder.leave();
                }
            }
        }
    }

    /// Notifies the other hosts of the identity of the connection.
    pub fn principal_changed(&self, principal: &Principal) {
        self.notify(|connection| LinkMessage::Principal { connection, principal: principal.into() });
    }

    /// Notifies the other hosts of a token.
    pub fn credential_changed(&self, resource: &str, token: &str) {
        self.notify(|connection| LinkMessage::Credential {
            connection,
            resource: resource.to_owned(),
            token: token.to_owned(),
        });
    }

    /// Notifies the other hosts of the settings of the connection.
    pub fn settings_changed(&self, settings: &JsonObject) {
        self.notify(|connection| LinkMessage::Settings { connection, settings: settings.clone() });
    }
}

impl Relay {
    /// Passes frames of another host on to connections.
    pub(super) fn deliver(self: &Arc<Self>, link: &Arc<Link>, to: &[u64], frame: &str) {
        let Some(front) = self.front.upgrade() else { return };
        let connections = to.iter().filter_map(|number| link.connection(*number));
        let Some(numbered) = split_number(frame) else {
            connections.for_each(|connection| connection.relay_received(link, frame));
            return;
        };
        let fanout = &front.core.fanout;
        if numbered.is_rejection {
            // A rejection has the number of the latest action.
            let frame = ostler_engine_core::envelope::renumbered(numbered.head, fanout.seq(), numbered.tail);
            return connections.for_each(|connection| connection.outbox.send(frame.clone()));
        }
        let outboxes: Vec<Arc<Outbox>> = connections.map(|connection| connection.outbox.clone()).collect();
        fanout.relay(numbered.head, numbered.tail, &outboxes);
    }
}

impl Connection {
    /// Enters the client of another host.
    pub(super) fn enter_across(
        self: &Arc<Self>,
        client: &str,
        version: Version,
        credentials: std::collections::BTreeMap<String, String>,
        settings: JsonObject,
    ) {
        self.introduce(client, version);
        let front = self.front();
        front.access.clients.remember_version(client, version);
        front.core.root.set_own_values(self.id(), settings);
        for (resource, token) in credentials {
            self.keep_credential(&resource, &token);
        }
    }

    /// Passes a command on to the host that serves its session. Returns it if this host does.
    pub(in crate::front) async fn relay_command(
        self: &Arc<Self>,
        relay: &Arc<Relay>,
        method: &str,
        params: Params,
        mut command: Command,
        responder: Responder,
    ) -> Option<(Command, Responder)> {
        let wanted = match &mut command {
            Command::Initialize(params) => params.initial_subscriptions.as_mut(),
            Command::Reconnect(params) => Some(&mut params.subscriptions),
            _ => None,
        };
        if let Some(wanted) = wanted {
            let mut elsewhere = Vec::new();
            for channel in std::mem::take(wanted) {
                match relay.route(self.front(), &channel).await {
                    Ok(Route::Here) => wanted.push(channel),
                    // With an unknown owner it is tried again.
                    Ok(Route::Elsewhere(..)) | Err(_) => elsewhere.push(channel),
                }
            }
            if !elsewhere.is_empty() {
                *self.relayed().entering.lock() = elsewhere;
            }
            return Some((command, responder));
        }
        let subject = subject(&command);
        let route = relay.route_command(self.front(), &subject).await;
        let (host, session) = match route {
            Ok(Route::Here) => return Some((command, responder)),
            Ok(Route::Elsewhere(host, session)) => (host, session),
            Err(why) => {
                responder.fail(why);
                return None;
            }
        };
        let subscribes = subject.served.filter(|_| subject.subscribes).map(str::to_owned);
        drop(command);
        self.pass_command(relay, (host, session), (method, params), subscribes, responder, Tries::new())
            .await;
        None
    }

    pub(super) async fn pass_command(
        self: &Arc<Self>,
        relay: &Arc<Relay>,
        (host, session): (Arc<ClusterHost>, String),
        (method, params): (&str, Params),
        subscribes: Option<String>,
        responder: Responder,
        Tries { bounces, until }: Tries,
    ) {
        let id = responder.id().clone();
        let frame = frame_of(&id, method, &params);
        if let Some(across) = self.across() {
            responder.leave();
            return across.bounce(session, &frame);
        }
        let pending = match subscribes {
            Some(channel) => Pending::Subscribe { responder, params, channel, until },
            None => Pending::Request(responder),
        };
        self.pass(relay, Passed { host, session, frame, bounces, request: Some((id, pending)) }).await;
    }

    /// Passes an action on to the host that serves its session. Returns it if this host does.
    pub(in crate::front) async fn relay_dispatch(
        self: &Arc<Self>,
        relay: &Arc<Relay>,
        params: &Params,
        dispatch: DispatchAction,
    ) -> Option<DispatchAction> {
        match relay.route(self.front(), &dispatch.channel).await {
            Ok(Route::Here) => return Some(dispatch),
            Ok(Route::Elsewhere(host, session)) => {
                let method = "dispatchAction";
                let frame = format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{}}}"#, params.text());
                if let Some(across) = self.across() {
                    across.bounce(session, &frame);
                } else {
                    self.pass(relay, Passed { host, session, frame, bounces: 0, request: None }).await;
                }
            }
            Err(why) => self.refuse_unsent(&dispatch, &why),
        }
        None
    }

    /// Ends a subscription at another host; returns whether it had one.
    pub(in crate::front) fn relay_unsubscribe(&self, channel: &str) -> bool {
        let Some(relayed) = self.relayed_if_any() else { return false };
        let mut ends = relayed.ends.lock();
        let mut had = false;
        for end in &mut ends.open {
            if end.subscriptions.remove(channel) {
                let params = json!({ "channel": channel });
                let frame = encode::notification("unsubscribe", &params).unwrap_or_default();
                let message = LinkMessage::Frame { to: vec![end.number], bounces: 0 };
                end.link.queue.message(message.text(&frame), None);
                had = true;
            }
        }
        had
    }

    /// Sends a message over the link to a host. This connection is not read further while the link is full.
    pub(super) async fn pass(self: &Arc<Self>, relay: &Arc<Relay>, passed: Passed) {
        let Passed { host, session, frame, bounces, mut request } = passed;
        if bounces > BOUNCES_MAX {
            return self.give_up(request, &frame, &moving(&session));
        }
        // A link can end before the message is queued.
        for _ in 0..2 {
            let link = relay.link_to(&host);
            link.queue.has_room().await;
            let mut ends = self.relayed().ends.lock();
            if ends.is_closed || self.is_closed() {
                return;
            }
            let at = ends.open.iter().position(|end| Arc::ptr_eq(&end.link, &link));
            let at = match at {
                Some(at) => at,
                None => {
                    let Some(number) = link.open(self) else { continue };
                    link.queue.message(self.opening(number).text(""), None);
                    let (pending, subscriptions) = (HashMap::new(), HashSet::new());
                    ends.open.push(End { link: link.clone(), number, pending, subscriptions });
                    ends.open.len() - 1
                }
            };
            let end = &mut ends.open[at];
            if let Some((id, pending)) = request.take() {
                if let Pending::Subscribe { channel, .. } | Pending::Collect { channel, .. } = &pending {
                    end.subscriptions.insert(channel.clone());
                }
                end.pending.insert(id, pending);
            }
            let charge = self.charge_copies(frame.len(), 1);
            let message = LinkMessage::Frame { to: vec![end.number], bounces };
            return link.queue.message(message.text(&frame), charge);
        }
        self.give_up(request, &frame, &unreachable(&host));
    }

    /// Answers a message that no host received.
    fn give_up(&self, request: Option<(Id, Pending)>, frame: &str, why: &RpcError) {
        match request {
            Some((_, Pending::Request(responder) | Pending::Subscribe { responder, .. })) => {
                responder.fail(why.clone());
            }
            Some((_, Pending::Collect { .. })) => {}
            None => {
                if let Ok(Message::Notification { method, params }) = Message::parse(frame)
                    && let Some(Ok(Notification::DispatchAction(dispatch))) =
                        Notification::decode(&method, &params)
                {
                    self.refuse_unsent(&dispatch, why);
                }
            }
        }
    }

    /// The message that opens this connection at another host.
    fn opening(&self, connection: u64) -> LinkMessage {
        LinkMessage::Open {
            connection,
            client: self.client_id().unwrap_or_default(),
            way: self.way().name().to_owned(),
            version: version_text(self.version()).to_owned(),
            principal: WirePrincipal::from(&self.principal()),
            credentials: self.credentials().unwrap_or_default(),
            settings: self.front().core.root.own_values(self.id()),
        }
    }

    /// Passes on a frame of another host that is not an action.
    fn relay_received(self: &Arc<Self>, link: &Arc<Link>, frame: &str) {
        let Some(split) = split_id(frame) else { return self.outbox.send(frame.to_owned()) };
        if split.kind == Kind::Request {
            let (link, number, id) = (link.clone(), self.number_on(link), split.id.clone());
            let Some(number) = number else { return };
            return self.pass_on(split.head, split.tail, move |outcome| {
                let answer = encode::message(&Message::Response { id, outcome });
                let message = LinkMessage::Frame { to: vec![number], bounces: 0 };
                link.queue.message(message.text(&answer), None);
            });
        }
        let Some(relayed) = self.relayed_if_any() else { return };
        let Some(pending) = relayed.take_pending(link, &split.id) else { return };
        // Later actions of the channel have later numbers.
        let seq = || self.front().core.fanout.seq();
        let failed = split.kind == Kind::Error;
        match pending {
            Pending::Request(responder) => responder.relayed(frame.to_owned()),
            Pending::Subscribe { responder, channel, .. } => {
                if failed {
                    relayed.unsubscribed(link, &channel);
                    return responder.relayed(frame.to_owned());
                }
                responder.relayed(with_from_seq(frame, seq()));
            }
            Pending::Collect { channel, answer } => {
                if failed {
                    relayed.unsubscribed(link, &channel);
                }
                let _ = answer.send(snapshot_of(&split, failed, seq));
            }
        }
    }

    fn number_on(&self, link: &Arc<Link>) -> Option<u64> {
        let ends = self.relayed_if_any()?.ends.lock();
        ends.open.iter().find(|end| Arc::ptr_eq(&end.link, link)).map(|end| end.number)
    }
}

fn snapshot_of(answer: &WithId<'_>, failed: bool, seq: impl FnOnce() -> u64) -> Option<String> {
    if failed { None } else { snapshot_in(answer, seq()) }
}

fn frame_of(id: &Id, method: &str, params: &Params) -> String {
    let id = serde_json::to_string(id).unwrap_or_default();
    let method = ostler_protocol::Value::from(method);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method},"params":{}}}"#, params.text())
}
