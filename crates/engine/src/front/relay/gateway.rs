//! The host of a client whose sessions another host serves: what it passes on, and what comes back.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ostler_contract::cluster::ClusterHost;
use ostler_protocol::commands::{Command, DispatchAction, Notification};
use ostler_protocol::message::{Params, encode};
use ostler_protocol::wire::state::TerminalClaim;
use ostler_protocol::{Id, JsonObject, Message, RpcError, Version, json};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::Span;

use super::frames::{Kind, WithId, snapshot_in, split_id, with_from_seq};
use super::wire::{LinkMessage, WirePrincipal, version_text};
use super::{Link, Relay, Route, moving, unreachable};
use crate::core::envelope::split_number;
use crate::core::outbox::{Closed, Outbox};
use crate::core::responder::Responder;
use crate::front::connection::Connection;
use crate::front::order::Work;
use crate::sessions::Collected;
use crate::users::principal::Principal;

/// How long a subscription waits for a session whose host is lost to be served again.
const TAKEN_OVER: Duration = Duration::from_secs(20);
/// How long to wait before the owner of a session is determined again.
const ASK_AGAIN: Duration = Duration::from_millis(250);
/// How often hosts can return a message before its client is asked to try again.
const BOUNCES_MAX: u8 = 4;

/// What a connection has at other hosts.
#[derive(Debug, Default)]
pub(crate) struct Relayed {
    ends: Mutex<Ends>,
    /// The subscriptions of `initialize` or `reconnect` at other hosts.
    entering: Mutex<Vec<String>>,
    /// The number of requests of this host for the connection.
    requests: AtomicU64,
}

#[derive(Debug, Default)]
struct Ends {
    open: Vec<End>,
    is_closed: bool,
}

/// The connection of a client at another host.
#[derive(Debug)]
struct End {
    link: Arc<Link>,
    number: u64,
    /// The requests without an answer.
    pending: HashMap<Id, Pending>,
    /// The subscribed channels, by the URIs from the client's requests.
    subscriptions: HashSet<String>,
}

/// A request that another host has not answered.
#[derive(Debug)]
enum Pending {
    /// A request of the client.
    Request(Responder),
    /// A subscription of the client, which can be requested again.
    Subscribe { responder: Responder, params: Params, channel: String, until: Instant },
    /// A subscription of `initialize` or `reconnect`.
    Collect { channel: String, answer: oneshot::Sender<Option<String>> },
}

/// How often and how long a command is passed to another host.
#[derive(Debug, Clone, Copy)]
struct Tries {
    /// How often hosts returned it.
    bounces: u8,
    /// When a subscription fails if its host is still not reachable.
    until: Instant,
}

impl Tries {
    fn new() -> Self {
        Self { bounces: 0, until: Instant::now() + TAKEN_OVER }
    }
}

/// A message for another host.
struct Passed {
    host: Arc<ClusterHost>,
    session: String,
    frame: String,
    bounces: u8,
    request: Option<(Id, Pending)>,
}

impl Relayed {
    /// Returns the requests that were sent over a link, with the subscriptions, and forgets them.
    fn take(&self, link: &Arc<Link>) -> Option<End> {
        let mut ends = self.ends.lock();
        let at = ends.open.iter().position(|end| Arc::ptr_eq(&end.link, link))?;
        Some(ends.open.swap_remove(at))
    }

    fn take_pending(&self, link: &Arc<Link>, id: &Id) -> Option<Pending> {
        let mut ends = self.ends.lock();
        let end = ends.open.iter_mut().find(|end| Arc::ptr_eq(&end.link, link))?;
        end.pending.remove(id)
    }

    fn unsubscribed(&self, link: &Arc<Link>, channel: &str) {
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

/// Returns the channel that determines which host serves a command, if it is about a session.
fn subject(command: &Command) -> Option<&str> {
    Some(match command {
        Command::Subscribe(params) => &params.channel,
        Command::CreateSession(params) => &params.channel,
        Command::DisposeSession(params) => &params.channel,
        Command::FetchTurns(params) => &params.channel,
        Command::CreateChat(params) => &params.channel,
        Command::DisposeChat(params) => &params.channel,
        Command::MoveChat(params) => &params.channel,
        Command::Completions(params) => &params.channel,
        Command::InvokeChangesetOperation(params) => &params.channel,
        Command::DetachedWorktreeCreate(params) => &params.session,
        Command::PullRequestCreate(params) => &params.channel,
        Command::CreateTerminal(params) => match &params.claim {
            Some(TerminalClaim::Session(claim)) => &claim.session,
            _ => return None,
        },
        _ => return None,
    })
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
            let frame = crate::core::envelope::renumbered(numbered.head, fanout.seq(), numbered.tail);
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
        let Some(channel) = subject(&command) else { return Some((command, responder)) };
        let route = match &command {
            Command::CreateSession(_) => relay.route_new(channel).await,
            _ => relay.route(self.front(), channel).await,
        };
        let (host, session) = match route {
            Ok(Route::Here) => return Some((command, responder)),
            Ok(Route::Elsewhere(host, session)) => (host, session),
            Err(why) => {
                responder.fail(why);
                return None;
            }
        };
        let channel = channel.to_owned();
        let subscribes = matches!(command, Command::Subscribe(_));
        drop(command);
        let subscribes = subscribes.then_some(channel);
        self.pass_command(relay, (host, session), (method, params), subscribes, responder, Tries::new())
            .await;
        None
    }

    async fn pass_command(
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
            Err(why) => self.refuse_unsent(&dispatch, &why.message),
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
    async fn pass(self: &Arc<Self>, relay: &Arc<Relay>, passed: Passed) {
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
                    self.refuse_unsent(&dispatch, &why.message);
                }
            }
        }
    }

    /// The message that opens this connection at another host.
    fn opening(&self, connection: u64) -> LinkMessage {
        LinkMessage::Open {
            connection,
            client: self.client_id().unwrap_or_default(),
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

    /// Sends a returned message to the host that owns its session now.
    pub(super) fn relay_bounced(
        self: &Arc<Self>,
        relay: &Arc<Relay>,
        link: &Arc<Link>,
        session: &str,
        frame: &str,
        bounces: u8,
    ) {
        let Some(relayed) = self.relayed_if_any() else { return };
        let Ok(message) = Message::parse(frame) else { return };
        let bounces = bounces.saturating_add(1);
        let tries = Tries { bounces, ..Tries::new() };
        let (connection, relay) = (self.clone(), relay.clone());
        match message {
            Message::Request { id, method, params } => match relayed.take_pending(link, &id) {
                Some(Pending::Request(responder)) => {
                    drop(tokio::spawn(async move {
                        connection.command_again(&relay, &method, params, responder, tries).await;
                    }));
                }
                Some(Pending::Subscribe { responder, params, channel, .. }) => {
                    relayed.unsubscribed(link, &channel);
                    drop(tokio::spawn(async move {
                        connection.command_again(&relay, &method, params, responder, tries).await;
                    }));
                }
                // It determines the owner again.
                Some(Pending::Collect { channel, answer }) => {
                    relayed.unsubscribed(link, &channel);
                    drop(answer);
                }
                None => {}
            },
            Message::Notification { method, params } => {
                let Some(Ok(Notification::DispatchAction(dispatch))) = Notification::decode(&method, &params)
                else {
                    return;
                };
                if bounces > BOUNCES_MAX {
                    return self.refuse_unsent(&dispatch, &moving(session).message);
                }
                let frame = frame.to_owned();
                tokio::spawn(async move {
                    match relay.route(connection.front(), &dispatch.channel).await {
                        Ok(Route::Here) => {
                            let length = params.text().len();
                            connection.take(Work::Dispatch { dispatch, length }, None).await;
                        }
                        Ok(Route::Elsewhere(host, session)) => {
                            let passed = Passed { host, session, frame, bounces, request: None };
                            connection.pass(&relay, passed).await;
                        }
                        Err(why) => connection.refuse_unsent(&dispatch, &why.message),
                    }
                });
            }
            Message::Response { .. } => {}
        }
    }

    /// Handles a command again whose session has another owner now.
    async fn command_again(
        self: &Arc<Self>,
        relay: &Arc<Relay>,
        method: &str,
        params: Params,
        responder: Responder,
        tries: Tries,
    ) {
        let command = match Command::decode(method, &params) {
            Ok(command) => command,
            Err(error) => return responder.fail(error),
        };
        let Some(channel) = subject(&command).map(str::to_owned) else { return };
        let route = match &command {
            Command::CreateSession(_) => relay.route_new(&channel).await,
            _ => relay.route(self.front(), &channel).await,
        };
        match route {
            Ok(Route::Here) => {
                let work = Work::Command { command, responder, span: Span::none() };
                Box::pin(self.take(work, None)).await;
            }
            Ok(Route::Elsewhere(host, session)) => {
                let subscribes = matches!(command, Command::Subscribe(_)).then_some(channel);
                drop(command);
                self.pass_command(relay, (host, session), (method, params), subscribes, responder, tries)
                    .await;
            }
            Err(why) => responder.fail(why),
        }
    }

    /// Ends what the connection has over a link that ended, or at a host that closed it. A client that subscribed there
    /// is disconnected, and receives the current states when it reconnects.
    pub(super) fn relay_ended(self: &Arc<Self>, relay: &Arc<Relay>, link: &Arc<Link>, why: Closed) {
        let Some(end) = self.relayed_if_any().and_then(|relayed| relayed.take(link)) else { return };
        let mut subscriptions = end.subscriptions;
        for (_, pending) in end.pending {
            match pending {
                Pending::Request(responder) => responder.fail(unreachable(&link.host)),
                Pending::Subscribe { responder, until, .. } if Instant::now() > until => {
                    responder.fail(unreachable(&link.host));
                }
                Pending::Subscribe { responder, params, channel, until } => {
                    subscriptions.remove(&channel);
                    let tries = Tries { until, ..Tries::new() };
                    let (connection, relay) = (self.clone(), relay.clone());
                    tokio::spawn(async move {
                        connection.subscribe_later(&relay, params, responder, &channel, tries).await;
                    });
                }
                Pending::Collect { channel, answer } => {
                    subscriptions.remove(&channel);
                    drop(answer);
                }
            }
        }
        if !subscriptions.is_empty() || why != Closed::Moved {
            self.outbox.close(why);
        }
    }

    /// Subscribes once the session of a lost host is served again.
    async fn subscribe_later(
        self: &Arc<Self>,
        relay: &Arc<Relay>,
        params: Params,
        responder: Responder,
        channel: &str,
        tries: Tries,
    ) {
        loop {
            tokio::time::sleep(ASK_AGAIN).await;
            if self.is_closed() {
                return responder.leave();
            }
            let route = relay.route(self.front(), channel).await;
            let is_served = match &route {
                Ok(Route::Here) => true,
                Ok(Route::Elsewhere(host, _)) => relay.is_reachable(host),
                Err(_) => false,
            };
            if is_served || Instant::now() > tries.until {
                return self.command_again(relay, "subscribe", params, responder, tries).await;
            }
        }
    }

    /// Subscribes to the channels of `initialize` or `reconnect` that other hosts serve; omits those that fail.
    pub(in crate::front) fn collect_elsewhere(
        self: &Arc<Self>,
    ) -> Option<impl Future<Output = Vec<Collected>> + use<>> {
        let relay = self.front().relay()?.clone();
        let entering = std::mem::take(&mut *self.relayed_if_any()?.entering.lock());
        if entering.is_empty() {
            return None;
        }
        let connection = self.clone();
        Some(async move {
            let mut named = HashSet::new();
            let wanted = entering.iter().filter(|channel| named.insert(channel.as_str()));
            let each = wanted.map(|channel| connection.collect_one(&relay, channel));
            futures::future::join_all(each).await.into_iter().flatten().collect()
        })
    }

    async fn collect_one(self: &Arc<Self>, relay: &Arc<Relay>, channel: &str) -> Option<Collected> {
        let end = Instant::now() + TAKEN_OVER;
        while !self.is_closed() && !self.outbox.is_closed() && Instant::now() < end {
            match relay.route(self.front(), channel).await {
                Ok(Route::Here) => {
                    let _held = self.front().sessions.load_channel(channel).await;
                    return self.collect(&[channel.to_owned()]).await.pop();
                }
                Ok(Route::Elsewhere(host, session)) => {
                    let (answer, wait) = oneshot::channel();
                    let number = self.relayed().requests.fetch_add(1, Ordering::Relaxed);
                    let id = Id::Text(format!("ostler/subscribe/{number}"));
                    let params = json!({ "channel": channel });
                    let frame = encode::request(&id, "subscribe", &params).unwrap_or_default();
                    let pending = Pending::Collect { channel: channel.to_owned(), answer };
                    let request = Some((id, pending));
                    self.pass(relay, Passed { host, session, frame, bounces: 0, request }).await;
                    if let Ok(snapshot) = wait.await {
                        return snapshot.map(|text| Collected { text, charge: None });
                    }
                }
                Err(_) => {}
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
        None
    }
}

impl Relay {
    /// Returns whether a host may answer: it can be connected to.
    fn is_reachable(self: &Arc<Self>, host: &Arc<ClusterHost>) -> bool {
        let link = self.link_to(host);
        let is_ended = link.table.lock().is_ended;
        !is_ended
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
