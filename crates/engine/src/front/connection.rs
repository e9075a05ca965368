//! Connections, the only entry point of the host: a connection receives parsed messages and answers into an outbox.
//! WebSocket, stdio and plugins' connections use it.

mod identity;
mod leaving;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use futures::future::BoxFuture;
use ostler_contract::Charge;
use ostler_contract::budget::{SMALL, VALUE};
use ostler_contract::events::Event;
use ostler_contract::points::Lender;
use ostler_engine_core::fanout::Subscriber;
use ostler_engine_core::ids::ConnectionId;
use ostler_engine_core::long_work::long_work;
use ostler_engine_core::outbox::Outbox;
use ostler_engine_core::refusals::{before_initialize, no_memory, too_many_requests};
use ostler_engine_core::responder::{ConnectionRef, Responder};
use ostler_engine_core::traces;
use ostler_engine_core::wire::{Sender, Tap};
use ostler_engine_users::users::Credential;
use ostler_engine_users::users::clients::{Answer, Client};
use ostler_engine_users::users::principal::Principal;
use ostler_protocol::commands::{Command, Needs, Notification};
use ostler_protocol::message::{BadFrame, count_values, encode};
use ostler_protocol::origins::WayIn;
use ostler_protocol::{Message, RpcError, Value, Version};
use parking_lot::Mutex;

use crate::front::Front;
use crate::front::channels::kind_of;
use crate::front::client_requests::Requests;
use crate::front::command_slots::Turns;
use crate::front::commands::{provider, subject};
use crate::front::order::{Order, Work, claimed_session};
use crate::front::relay::{Across, Relayed};

/// The maximum number of unanswered requests of a connection.
const MOST_REQUESTS: usize = 1024;

/// One peer.
#[derive(Debug)]
pub struct Connection {
    id: ConnectionId,
    way: WayIn,
    /// What let it in.
    opened_by: Credential,
    front: Arc<Front>,
    pub outbox: Arc<Outbox>,
    /// The slots of its commands that use much memory or time.
    pub(super) turns: Turns,
    /// The unanswered requests to the client.
    pub(crate) requests: Requests,
    /// The messages that wait for the session store.
    pub(super) order: Order,
    /// The link to the host of the client, if that is another one.
    across: Option<Across>,
    /// What it has at other hosts, once it has something there.
    relayed: OnceLock<Box<Relayed>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    principal: Principal,
    /// What made it that principal, after it was opened.
    signed_in_by: Credential,
    /// Set by `initialize` or `reconnect`.
    client: Option<Introduced>,
    /// The canonical URIs by the URIs from the client's requests.
    subscriptions: HashMap<String, String>,
    /// The sessions in which it said that it is active, subscribed or not, with the memory charged for each.
    active_in: HashMap<String, leaving::Activity>,
    /// Tokens of the connection, by resource.
    credentials: BTreeMap<String, String>,
    /// How often each resource received a token, so that the expiry of an earlier one has no effect.
    given: BTreeMap<String, u64>,
    closed: bool,
}

/// The initialized client.
#[derive(Debug, Clone)]
struct Introduced {
    id: String,
    version: Version,
}

impl Connection {
    /// Opens a connection for a peer that nothing can sign out.
    pub fn open(front: &Arc<Front>, principal: Principal, way: WayIn) -> Arc<Self> {
        Self::open_by(front, principal, way, Credential::default())
    }

    /// Opens a connection for a peer, which ends with the credential that let it in.
    pub fn open_by(front: &Arc<Front>, principal: Principal, way: WayIn, by: Credential) -> Arc<Self> {
        Self::open_with(front, (principal, by), way, None)
    }

    /// Opens a connection for a client of another host, which watches its credential.
    pub(super) fn open_across(
        front: &Arc<Front>,
        principal: Principal,
        way: WayIn,
        across: Across,
    ) -> Arc<Self> {
        Self::open_with(front, (principal, Credential::default()), way, Some(across))
    }

    fn open_with(
        front: &Arc<Front>,
        (principal, opened_by): (Principal, Credential),
        way: WayIn,
        across: Option<Across>,
    ) -> Arc<Self> {
        // Where the users are shared, the other host has recorded that of its client.
        let is_recorded =
            across.is_some() && front.access.gate.people().is_some_and(|people| people.are_shared());
        if let (Principal::Person(person), false) = (&principal, is_recorded) {
            front.access.record_sign_in(person);
        }
        let id = front.core.next_connection();
        let tap = Tap { wire: front.core.wire.clone(), connection: id };
        let budget = front.core.budget.part(front.core.options.limits.connection_memory);
        let (limit, host) = (front.core.options.outbox, front.core.budget.clone());
        let outbox = match &across {
            None => Outbox::within(limit, budget, host, tap),
            Some(across) => across.outbox(limit, budget, host),
        };
        let connection = Arc::new(Self {
            id,
            way,
            opened_by,
            outbox,
            across,
            relayed: OnceLock::new(),
            turns: Turns::new(),
            front: front.clone(),
            requests: Requests::default(),
            order: Order::default(),
            state: Mutex::new(State {
                principal,
                signed_in_by: Credential::default(),
                client: None,
                subscriptions: HashMap::new(),
                active_in: HashMap::new(),
                credentials: BTreeMap::new(),
                given: BTreeMap::new(),
                closed: false,
            }),
        });
        connection.show_lists();
        let client = Arc::downgrade(&connection);
        front.access.clients.add(id, client);
        if !connection.opened_by.is_valid() {
            // It ended after it had let the peer in; nothing else looks at it before the next change.
            Self::review(&connection);
        }
        connection
    }

    /// Returns its number.
    pub fn id(&self) -> ConnectionId {
        self.id
    }

    /// Returns how its messages enter the host.
    pub(crate) fn way(&self) -> WayIn {
        self.way
    }

    /// Returns the client's id, once initialized.
    pub fn client_id(&self) -> Option<String> {
        self.state.lock().client.as_ref().map(|client| client.id.clone())
    }

    /// Returns the principal of the connection, according to the current users file.
    pub fn principal(&self) -> Principal {
        let principal = self.state.lock().principal.clone();
        self.front.access.gate.now(principal)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    pub(crate) fn front(&self) -> &Arc<Front> {
        &self.front
    }

    /// Returns the link to the host of the client, if that is another one.
    pub(super) fn across(&self) -> Option<&Across> {
        self.across.as_ref()
    }

    /// Returns what it has at other hosts.
    pub(super) fn relayed(&self) -> &Relayed {
        self.relayed.get_or_init(Box::default)
    }

    /// Returns what it has at other hosts, if it ever had something there.
    pub(super) fn relayed_if_any(&self) -> Option<&Relayed> {
        self.relayed.get().map(|relayed| &**relayed)
    }

    pub(crate) fn reference(&self) -> ConnectionRef {
        ConnectionRef { id: self.id, outbox: self.outbox.clone() }
    }

    /// Returns the owner of the work that this connection starts.
    pub(crate) fn owner(&self) -> Option<String> {
        self.front.access.owner_of(&self.principal())
    }

    /// Returns the identity under which it lends tokens to the chats it created.
    pub(crate) fn lender(&self) -> Option<Lender> {
        Some(Lender { client: self.client_id()?, owner: self.owner() })
    }

    pub(crate) fn credentials(&self) -> Option<BTreeMap<String, String>> {
        let credentials = self.state.lock().credentials.clone();
        (!credentials.is_empty()).then_some(credentials)
    }

    /// Handles a frame with any content.
    pub async fn receive_frame(self: &Arc<Self>, text: &str) {
        if let Some(tap) = self.outbox.tap() {
            tap.record(Sender::Client, [text.as_bytes()]);
        }
        // The charge of a bad frame is released here and not with low priority: others may wait for the memory.
        let (charge, message) = long_work(text.len(), || match self.charge_values(text) {
            Ok(charge) => (charge, Message::parse(text)),
            Err(error) => (None, Err(BadFrame { id: None, error })),
        });
        match message {
            Ok(message) => self.receive(message, charge).await,
            Err(bad) => self.refuse(&bad),
        }
    }

    /// Charges the memory of a long message's values in addition to its text.
    fn charge_values(&self, text: &str) -> Result<Option<Charge>, RpcError> {
        if text.len() <= SMALL {
            return Ok(None);
        }
        let values = count_values(text.as_bytes());
        let budget = self.outbox.budget();
        match values.checked_mul(VALUE).filter(|bytes| *bytes <= budget.limit()) {
            Some(bytes) => budget.try_take(bytes).map(Some).ok_or_else(no_memory),
            None => Err(RpcError::invalid_request(format!(
                "the message contains {values} JSON values; the limit is {}",
                budget.limit() / VALUE
            ))),
        }
    }

    /// Charges a long message that waits to be handled. It is already in memory, so later reads wait.
    pub(crate) fn charge_copies(&self, length: usize, copies: usize) -> Option<Charge> {
        (length > SMALL).then(|| self.outbox.budget().take_anyway(length * copies))
    }

    /// Handles a message that did not arrive as a frame.
    pub(crate) async fn receive_own(self: &Arc<Self>, message: Message) {
        if let Some(tap) = self.outbox.tap() {
            tap.record(Sender::Client, [encode::message(&message).as_bytes()]);
        }
        self.receive(message, None).await;
    }

    /// Handles a message. Messages of a connection are handled one after the other. Long work continues on other tasks,
    /// and messages that need the session store wait in `order`, so that later ones do not have to wait. `values` is
    /// the charge of the message's values.
    async fn receive(self: &Arc<Self>, message: Message, values: Option<Charge>) {
        if self.state.lock().closed {
            return;
        }
        match message {
            Message::Request { id, method, params } => {
                let charge = self.charge_copies(params.text().len(), 1);
                let span = traces::command();
                let (responder, owed) = Responder::new(
                    id,
                    self.outbox.clone(),
                    self.front.core.log.clone(),
                    span.clone(),
                    charge,
                );
                if owed > MOST_REQUESTS && !matches!(self.state.lock().principal, Principal::Plugin { .. }) {
                    return responder.fail(too_many_requests());
                }
                if method == "ping" {
                    span.record("method", "ping");
                    return responder.done();
                }
                if let Err(unknown) = self.knows_users().await {
                    return responder.fail(unknown);
                }
                let decoded = long_work(params.text().len(), || Command::decode(&method, &params));
                let command = match decoded {
                    Ok(command) => command,
                    Err(error) => match self.front.plugin_command(&method) {
                        Some(command) => {
                            span.record("method", &*method);
                            if self.order.is_empty() {
                                return self.handle_plugin_command(command, &params, responder);
                            }
                            return Box::pin(self.take(Work::Plugin { command, params, responder }, values))
                                .await;
                        }
                        None => return responder.fail(error),
                    },
                };
                span.record("method", &*method);
                if self.state.lock().client.is_none() && !subject(&command).introduces() {
                    return responder.fail(before_initialize(&method));
                }
                let unserved = provider(&command)
                    .and_then(|provider| self.front.workspace.unserved(provider, command.name()));
                if let Some(unserved) = unserved {
                    return responder.fail(unserved);
                }
                let Some(responder) = self.enter(&command, responder) else { return };
                let (command, responder) = match self.front.relay() {
                    None => (command, responder),
                    Some(relay) => {
                        let relayed = self.relay_command(relay, &method, params, command, responder);
                        let Some(served_here) = Box::pin(relayed).await else { return };
                        served_here
                    }
                };
                // The state of the largest command is not part of the future that receives every message.
                Box::pin(self.take(Work::Command { command, responder, span }, values)).await;
            }
            Message::Notification { method, params } => {
                if self.state.lock().client.is_none() {
                    return;
                }
                let decoded = long_work(params.text().len(), || Notification::decode(&method, &params));
                match decoded {
                    Some(Ok(Notification::DispatchAction(dispatch))) => {
                        if let Err(unknown) = self.knows_users().await {
                            return self.refuse_unsent(&dispatch, &unknown);
                        }
                        let dispatch = match self.front.relay() {
                            None => dispatch,
                            Some(relay) => {
                                let relayed = self.relay_dispatch(relay, &params, dispatch);
                                let Some(served_here) = Box::pin(relayed).await else { return };
                                served_here
                            }
                        };
                        let (sessions, length) = (&self.front.sessions, params.text().len());
                        if self.order.is_empty()
                            && let Ok(_held) = sessions.at_hand(&dispatch.channel)
                            && let Ok(_claims) = claimed_session(&dispatch)
                                .map_or(Ok(None), |session| sessions.at_hand(session))
                        {
                            return self.handle_dispatch(dispatch, length);
                        }
                        Box::pin(self.take(Work::Dispatch { dispatch, length }, values)).await;
                    }
                    Some(Ok(Notification::UnreadAction(unread))) => self.refuse_unread(&unread),
                    Some(Ok(Notification::Unsubscribe(params))) => {
                        if self.relay_unsubscribe(&params.channel) {
                            return;
                        }
                        if self.order.is_empty() {
                            return self.handle_unsubscribe(&params.channel);
                        }
                        Box::pin(self.take(Work::Unsubscribe { channel: params.channel }, values)).await;
                    }
                    Some(Err(error)) => {
                        let client = self.client_id().unwrap_or_default();
                        self.front.core.log.warn(format_args!("client {client}: {error}; ignored"));
                    }
                    None => {}
                }
            }
            Message::Response { id, outcome } => self.requests.answer(&id, outcome),
        }
    }

    /// Answers an invalid frame; the connection continues.
    pub fn refuse(&self, bad: &BadFrame) {
        self.outbox.send(encode::error(bad.id.as_ref(), &bad.error));
    }

    pub(super) fn admit(&self, needs: &Needs) -> Result<(), RpcError> {
        match needs {
            Needs::Nothing => Ok(()),
            Needs::Grant(grant) => self.front.access.gate.require(&self.principal(), grant),
            // An unknown scheme is reported before its grant is checked.
            Needs::OnScheme { .. } => Ok(()),
        }
    }

    /// Records the initialized client.
    pub(crate) fn introduce(&self, id: &str, version: Version) {
        self.state.lock().client = Some(Introduced { id: id.to_owned(), version });
        self.front.core.events.raise(Event::ClientConnect { client: id.to_owned() });
    }

    /// Stores a token for a resource, and lends it to the chats that the client created; an empty one removes it.
    /// Returns the number of the token among the resource's.
    pub(crate) fn keep_credential(&self, resource: &str, token: &str) -> u64 {
        let nth = {
            let mut state = self.state.lock();
            match token.is_empty() {
                true => state.credentials.remove(resource),
                false => state.credentials.insert(resource.to_owned(), token.to_owned()),
            };
            state.give(resource)
        };
        if let Some(lender) = self.lender() {
            self.front.sessions.lend(&lender, resource, token);
        }
        if let Some(relayed) = self.relayed_if_any() {
            relayed.credential_changed(resource, token);
        }
        nth
    }
    /// Notifies other hosts of the settings of the connection.
    pub(super) fn settings_changed(&self) {
        if let Some(relayed) = self.relayed_if_any() {
            relayed.settings_changed(&self.front.core.root.own_values(self.id));
        }
    }

    /// Returns the protocol version of the connection; the newest before `initialize`.
    pub(crate) fn version(&self) -> Version {
        self.state.lock().client.as_ref().map_or(Version::V1, |client| client.version)
    }

    /// Returns a subscriber for a channel that the client names.
    pub(crate) fn subscriber(&self, spelled: &str, channel: &str, latency: Option<u64>) -> Subscriber {
        Subscriber {
            connection: self.id,
            outbox: self.outbox.clone(),
            version: self.version(),
            alias: (spelled != channel).then(|| spelled.into()),
            latency,
            hold: None,
            flow: None,
        }
    }

    /// Records a subscription, to end it with the connection.
    pub(crate) fn remember(&self, spelled: &str, channel: &str) {
        self.state.lock().subscriptions.insert(spelled.to_owned(), channel.to_owned());
    }

    /// Returns the number of its subscriptions.
    pub(crate) fn watches(&self) -> usize {
        self.state.lock().subscriptions.len()
    }

    /// Runs a function if a recorded subscription was not ended; returns whether it did.
    pub(crate) fn while_wanted(&self, spelled: &str, then: impl FnOnce()) -> bool {
        let state = self.state.lock();
        let wanted = !state.closed && state.subscriptions.contains_key(spelled);
        if wanted {
            then();
        }
        wanted
    }

    /// Removes a subscription that failed.
    pub(crate) fn forget(&self, spelled: &str) {
        self.state.lock().subscriptions.remove(spelled);
    }

    pub(crate) fn handle_unsubscribe(&self, spelled: &str) {
        let (channel, is_watched_still) = {
            let mut state = self.state.lock();
            let Some(channel) = state.subscriptions.remove(spelled) else { return };
            let others = state.subscriptions.values().any(|other| *other == channel);
            (channel, others)
        };
        if is_watched_still {
            // Under another name of the channel; a session's default chat has two, for example.
            return self.front.core.fanout.unsubscribe_as(&channel, spelled, self.id);
        }
        self.front.sessions.unsubscribe(&channel, self.id);
        let kind = kind_of(&self.front, &channel);
        kind.left(self, &channel);
        kind.unsubscribed(self, &channel);
    }
}

impl Client for Connection {
    fn id(&self) -> ConnectionId {
        self.id
    }

    fn client_id(&self) -> Option<String> {
        self.client_id()
    }

    fn principal(&self) -> Principal {
        self.principal()
    }

    fn owner(&self) -> Option<String> {
        self.owner()
    }

    fn credentials(&self) -> BTreeMap<String, String> {
        self.credentials().unwrap_or_default()
    }

    fn is_closed(&self) -> bool {
        self.is_closed()
    }

    fn is_active_in(&self, session: &str) -> bool {
        self.state.lock().active_in.contains_key(session)
    }

    fn leaves(&self, session: &str) {
        self.acts_no_more_in(session, None);
    }

    fn answered(&self, session: &str, is_active: bool) {
        self.acts_no_more_in(session, Some(is_active));
    }

    fn wants(&self, spelled: &str) -> bool {
        self.while_wanted(spelled, || {})
    }

    fn outbox(&self) -> &Arc<Outbox> {
        &self.outbox
    }

    fn ask<'a>(&'a self, method: &'a str, params: &'a Value) -> BoxFuture<'a, Answer> {
        Box::pin(self.ask(method, params))
    }

    fn close(&self) {
        self.close();
    }

    fn review(self: Arc<Self>) {
        Self::review(&self);
    }
}

impl State {
    fn give(&mut self, resource: &str) -> u64 {
        let given = self.given.entry(resource.to_owned()).or_default();
        *given += 1;
        *given
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
    }
}
