//! The relay between hosts of a cluster: any host serves any client.
//!
//! A host passes the messages of its clients that concern a session of another living host to that host, over one link
//! for all its clients ([`link`]). At the owner, each of these clients has a [`Connection`](super::connection::Connection)
//! like any other ([`owned`]), whose frames are sent over the link, those that several clients share once. This host
//! numbers the actions anew, so that a client sees one sequence of numbers ([`gateway`]).

mod again;
mod frames;
mod gateway;
mod link;
mod lists;
mod owned;
mod reach;
mod unreported;
mod wire;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock, Weak};

use ostler_contract::cluster::{Cluster, ClusterEvent, ClusterHost, SessionElsewhere, SessionOwner};
use ostler_contract::read::{Read, Unknown};
use ostler_contract::{Thrown, limit};
use ostler_engine_core::link_queue::LinkQueue;
use ostler_engine_core::outbox::Closed;
use ostler_engine_core::refusals::{moving, try_again, unread};
use ostler_engine_core::tasks;
use ostler_engine_sessions::{RowChange, another, ask};
use ostler_protocol::RpcError;
use ostler_protocol::uri::{self, Channel, SessionOf};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::front::Front;
use crate::front::commands::Subject;
use crate::front::connection::Connection;
pub(crate) use gateway::Relayed;
use link::drive;
pub use link::{LinkDialer, LinkTransport};
use lists::Recipients;
pub(crate) use owned::Across;
use owned::OUTBOXES;
use wire::{LinkMessage, ROOT};

/// The limit for connecting to another host.
const DIAL_LIMIT: std::time::Duration = std::time::Duration::from_secs(3);
/// How long to wait before a link that ended is opened again.
const FOLLOW_AGAIN: std::time::Duration = std::time::Duration::from_secs(1);
/// How long a message waits for a session that a draining host hands over: until the backend of the session has closed.
const HANDED_OVER: std::time::Duration =
    limit::BACKEND_CLOSE.saturating_add(std::time::Duration::from_secs(1));
/// How often it looks whether the session has left memory.
const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_millis(50);
/// The maximum number of sessions and chats whose owners are cached.
const CACHED_MAX: usize = 100_000;

/// The host that serves a channel.
#[derive(Debug, Clone)]
pub(super) enum Route {
    Here,
    /// Another one, with the session of the channel, or its terminal.
    Elsewhere(Arc<ClusterHost>, String),
}

/// The relay of a host in a cluster.
pub(crate) struct Relay {
    front: Weak<Front>,
    cluster: Arc<dyn Cluster>,
    dialer: Arc<OnceLock<Arc<dyn LinkDialer>>>,
    /// The links to other hosts, by their runs.
    links: Mutex<HashMap<String, Arc<Link>>>,
    owners: Mutex<Owners>,
    lists: lists::Lists,
    reports: unreported::Reports,
    reach: reach::Reach,
    /// Held while a whole row is read and reported.
    reporting: tokio::sync::Mutex<()>,
    /// The runs of hosts whose links have ended, so that attempts to open them again are not logged.
    reported: Mutex<HashSet<String>>,
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Relay")
    }
}

/// The owners that were asked for before.
#[derive(Default)]
struct Owners {
    /// The owners of sessions, if another host is the owner.
    hosts: HashMap<String, Arc<ClusterHost>>,
    /// The sessions of chats with separate URIs.
    sessions: HashMap<String, String>,
}

/// The link to another host.
#[derive(Debug)]
pub(super) struct Link {
    host: Arc<ClusterHost>,
    queue: Arc<LinkQueue>,
    table: Mutex<Table>,
}

/// The connections of a link.
#[derive(Debug)]
struct Table {
    /// The number of the latest one.
    latest: u64,
    open: HashMap<u64, Weak<Connection>>,
    is_ended: bool,
}

impl Link {
    fn new(host: Arc<ClusterHost>, limit: usize) -> Arc<Self> {
        let table = Table { latest: ROOT, open: HashMap::new(), is_ended: false };
        Arc::new(Self { host, queue: LinkQueue::new(limit), table: Mutex::new(table) })
    }

    /// Adds a connection; returns its number, or `None` once the link has ended.
    fn open(&self, connection: &Arc<Connection>) -> Option<u64> {
        let mut table = self.table.lock();
        if table.is_ended {
            return None;
        }
        table.latest += 1;
        let number = table.latest;
        table.open.insert(number, Arc::downgrade(connection));
        Some(number)
    }

    fn connection(&self, number: u64) -> Option<Arc<Connection>> {
        self.table.lock().open.get(&number)?.upgrade()
    }

    /// Removes a connection.
    fn forget(&self, number: u64) -> Option<Arc<Connection>> {
        self.table.lock().open.remove(&number)?.upgrade()
    }

    fn end(&self) -> Vec<Arc<Connection>> {
        self.queue.close("the link has ended");
        let mut table = self.table.lock();
        table.is_ended = true;
        table.open.drain().filter_map(|(_, connection)| connection.upgrade()).collect()
    }
}

/// The error of a request whose host cannot be reached. The request can be repeated.
fn unreachable(host: &ClusterHost) -> RpcError {
    let why = format!("host {}, which serves this session, cannot be reached; try again", host.id);
    try_again(why)
}

/// The error of a message whose session has an unknown owner.
fn unknown(session: &str, why: &Thrown) -> RpcError {
    try_again(format!("the owner of session {session} could not be determined: {why}"))
}

impl Front {
    /// Sets how other hosts of the cluster are reached. Without it, they are not.
    pub fn set_link_dialer(&self, dialer: Arc<dyn LinkDialer>) {
        let _ = self.dialer.set(dialer);
    }

    /// Returns the relay, if the host is in a cluster.
    pub(crate) fn relay(&self) -> Option<&Arc<Relay>> {
        self.relay.get()
    }

    /// Relays from now on, if the host is in a cluster.
    pub(crate) fn join_cluster(self: &Arc<Self>) {
        let Some(cluster) = self.core.cluster() else { return };
        let relay = Arc::new(Relay {
            front: Arc::downgrade(self),
            cluster: cluster.clone(),
            dialer: self.dialer.clone(),
            links: Mutex::default(),
            owners: Mutex::default(),
            lists: lists::Lists::default(),
            reports: unreported::Reports::default(),
            reach: reach::Reach::default(),
            reporting: tokio::sync::Mutex::default(),
            reported: Mutex::default(),
        });
        if self.relay.set(relay.clone()).is_err() {
            return;
        }
        let heard = Arc::downgrade(&relay);
        let runtime = tokio::runtime::Handle::current();
        cluster.listen(Arc::new(move |event| {
            if let Some(relay) = heard.upgrade() {
                let _entered = runtime.enter();
                relay.happened(event);
            }
        }));
        let rows = Arc::downgrade(&relay);
        self.sessions.listen_to_rows(Box::new(move |change| {
            let Some(relay) = rows.upgrade() else { return };
            match change {
                RowChange::Loaded(id) => relay.was_loaded(&id),
                RowChange::Unknown(id) => relay.report_soon(id, Recipients::Everyone),
            }
        }));
        relay.follow_hosts();
    }
}

impl Relay {
    fn happened(self: &Arc<Self>, event: ClusterEvent) {
        match event {
            ClusterEvent::HostsChanged => {
                self.owners.lock().hosts.clear();
                self.follow_hosts();
            }
            ClusterEvent::LeaseLost | ClusterEvent::LeaseRegained => self.owners.lock().hosts.clear(),
            ClusterEvent::SessionAdded { id } => self.was_added(id),
            ClusterEvent::SessionRemoved { id, listed } => {
                self.owners.lock().hosts.remove(&id);
                if let Some(session) = listed {
                    self.was_removed(id, session);
                }
            }
            ClusterEvent::SessionChanged { id, by } => self.was_stored(id, &by),
            // The automations listen for these themselves.
            ClusterEvent::RunsChanged { .. } => {}
        }
    }

    /// Opens links to all living hosts, for the notifications of their root channels.
    fn follow_hosts(self: &Arc<Self>) {
        let relay = self.clone();
        tasks::spawn(async move {
            if relay.front.upgrade().is_none_or(|front| front.core.is_stopping()) {
                return;
            }
            let Ok(hosts) = ask(relay.cluster.hosts()).await else { return };
            let own = relay.cluster.incarnation();
            let alive: HashSet<_> =
                hosts.iter().filter(|host| host.is_alive).map(|host| host.incarnation.clone()).collect();
            relay.forget_unreachable(&hosts);
            for host in hosts {
                if host.is_alive && host.url.is_some() && host.incarnation == own {
                    relay.check_own_address();
                } else if host.is_alive && host.url.is_some() {
                    relay.link_to(&Arc::new(host));
                }
            }
            let links: Vec<_> = relay.links.lock().values().cloned().collect();
            for link in links.iter().filter(|link| !alive.contains(&link.host.incarnation)) {
                link.queue.close("the host was lost or has stopped");
            }
        });
    }

    /// Returns the link to a host; opens it if there is none.
    fn link_to(self: &Arc<Self>, host: &Arc<ClusterHost>) -> Arc<Link> {
        let mut links = self.links.lock();
        if let Some(link) = links.get(&host.incarnation) {
            return link.clone();
        }
        let limit = self.front.upgrade().map_or(0, |front| OUTBOXES * front.core.options.outbox);
        let link = Link::new(host.clone(), limit);
        links.insert(host.incarnation.clone(), link.clone());
        tasks::spawn(self.clone().run(link.clone()));
        link
    }

    /// Runs a link until it ends; then what was relayed over it ends.
    async fn run(self: Arc<Self>, link: Arc<Link>) {
        let dialed = self.dial(&link).await;
        let was_open = dialed.is_ok();
        self.reached(&link.host, dialed.as_ref().map(drop).map_err(String::as_str));
        let why = match dialed {
            Ok(transport) => {
                let Some(core) = self.front.upgrade().map(|front| front.core.clone()) else { return };
                link.queue
                    .message(LinkMessage::Hello { incarnation: self.cluster.incarnation() }.text(""), None);
                link.queue.message(LinkMessage::Watch.text(""), None);
                drive(transport, &link.queue, &core, |message, frame| self.received(&link, message, frame))
                    .await
            }
            Err(why) => why,
        };
        if let Some(front) = self.front.upgrade() {
            let is_new = self.reported.lock().insert(link.host.incarnation.clone());
            if (was_open || is_new) && !front.core.is_stopping() {
                let id = &link.host.id;
                match was_open {
                    true => front.core.log.warn(format_args!("the link to host {id} ended: {why}")),
                    false => front.core.log.warn(format_args!(
                        "host {id} cannot be reached, so clients of this host cannot use its sessions: {why}; correct the \
                         cluster.url of host {id}, or the network between the hosts"
                    )),
                }
            }
            self.forget_rows(&link);
            let incarnation = &link.host.incarnation;
            front.core.root.set_terminals_elsewhere(&front.core.fanout, incarnation, Vec::new());
            self.count_again();
        }
        self.remove(&link);
        let lost = link.host.incarnation.clone();
        self.owners.lock().hosts.retain(|_, host| host.incarnation != lost);
        for connection in link.end() {
            connection.relay_ended(&self, &link, Closed::Moved);
        }
        tokio::time::sleep(FOLLOW_AGAIN).await;
        self.follow_hosts();
    }

    fn remove(&self, link: &Arc<Link>) {
        let mut links = self.links.lock();
        if links.get(&link.host.incarnation).is_some_and(|current| Arc::ptr_eq(current, link)) {
            links.remove(&link.host.incarnation);
        }
    }

    async fn dial(&self, link: &Link) -> Result<LinkTransport, String> {
        let dialer = self.dialer.get().ok_or("this host cannot connect to others")?;
        if link.host.url.is_none() {
            return Err("it has no address; it does not listen yet".to_owned());
        }
        let dialed = dialer.dial((*link.host).clone(), self.cluster.token());
        match tokio::time::timeout(DIAL_LIMIT, dialed).await {
            Ok(dialed) => dialed,
            Err(_) => Err(format!("it did not accept within {} seconds", DIAL_LIMIT.as_secs())),
        }
    }

    /// Returns the host that serves a channel. A session without an owner becomes one of this host.
    ///
    /// # Errors
    /// The owner could not be determined.
    pub(super) async fn route(&self, front: &Front, channel: &str) -> Result<Route, RpcError> {
        let sessions = &front.sessions;
        let parsed = sessions.channel(channel);
        if let Channel::Terminal(terminal) = parsed {
            let incarnation = front.core.root.host_of_terminal(&terminal);
            let link = incarnation.and_then(|incarnation| self.links.lock().get(&incarnation).cloned());
            return Ok(match link {
                Some(link) => Route::Elsewhere(link.host.clone(), terminal),
                None => Route::Here,
            });
        }
        let (id, chat) = match parsed.session() {
            SessionOf::Id(id) => {
                let chat = matches!(parsed, Channel::Session(_)).then(|| channel.to_owned());
                (Some(id.to_owned()), chat)
            }
            SessionOf::Chat(chat) => {
                let held = sessions.session_of_chat(chat).map(|entry| entry.id.clone());
                if let Some(held) = held
                    && self.stays(front, &held).await
                {
                    return Ok(Route::Here);
                }
                (uri::old_default_chat(chat).map(str::to_owned), Some(chat.to_owned()))
            }
            SessionOf::None => return Ok(Route::Here),
        };
        if let Some(id) = &id
            && self.stays(front, id).await
        {
            return Ok(Route::Here);
        }
        let known = {
            let owners = self.owners.lock();
            let session = owners.sessions.get(channel).or(id.as_ref());
            session.and_then(|session| Some((owners.hosts.get(session)?.clone(), session.clone())))
        };
        if let Some((host, session)) = known {
            return Ok(Route::Elsewhere(host, session));
        }
        // The URI of a session can also be that of a chat, which only the store knows.
        let stored = match &chat {
            Some(chat) => {
                let owner = sessions.owner_of_chat(chat).await.known();
                owner.map_err(|why| unread(chat, &why))?
            }
            None => None,
        };
        let session = match (stored, id) {
            (Some(session), _) => {
                let mut owners = self.owners.lock();
                if owners.sessions.len() >= CACHED_MAX {
                    owners.sessions.clear();
                }
                owners.sessions.insert(channel.to_owned(), session.clone());
                session
            }
            (None, Some(id)) => id,
            (None, None) => return Ok(Route::Here),
        };
        if self.stays(front, &session).await {
            return Ok(Route::Here);
        }
        match ask(self.cluster.owner(session.clone())).await.map_err(|why| unknown(&session, &why))? {
            SessionOwner::Here => Ok(Route::Here),
            SessionOwner::Elsewhere(host) => Ok(self.elsewhere(host, session)),
            // A load claims it, unless another host has its files.
            SessionOwner::Nobody { .. } => match sessions.session(&session).await {
                Read::Known(_) => Ok(Route::Here),
                Read::Unknown(Unknown(why)) if SessionElsewhere::is(&why) => self.better(why, session).await,
                Read::Unknown(Unknown(why)) => Err(unknown(&session, &why)),
            },
        }
    }

    /// Returns whether a session is in memory. The clients of a session that is handed over return at once: their messages
    /// wait until another host can serve them.
    async fn stays(&self, front: &Front, session: &str) -> bool {
        let end = Instant::now() + HANDED_OVER;
        while front.sessions.is_leaving(session) && Instant::now() < end {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        front.sessions.get(session).is_some()
    }

    /// Returns the host that serves a command; this one without a channel.
    ///
    /// # Errors
    /// Like [`Self::route`] and [`Self::route_new`].
    pub(super) async fn route_command(
        &self,
        front: &Front,
        subject: &Subject<'_>,
    ) -> Result<Route, RpcError> {
        match (subject.created(), subject.served) {
            (Some(created), _) => self.route_new(created).await,
            (None, Some(channel)) => self.route(front, channel).await,
            (None, None) => Ok(Route::Here),
        }
    }

    /// Returns the host that creates a session.
    ///
    /// # Errors
    /// The owner could not be determined.
    async fn route_new(&self, channel: &str) -> Result<Route, RpcError> {
        let Some(session) = uri::session_id(channel).map(str::to_owned) else { return Ok(Route::Here) };
        let owner = ask(self.cluster.owner(session.clone())).await.map_err(|why| unknown(&session, &why))?;
        if let SessionOwner::Elsewhere(host) = owner {
            return Ok(self.elsewhere(host, session));
        }
        if !self.cluster.is_draining() {
            self.reports.forget(&session);
            return Ok(Route::Here);
        }
        let other = another(&self.cluster, &session).await.map_err(|why| unknown(&session, &why))?;
        Ok(other.map_or(Route::Here, |host| Route::Elsewhere(Arc::new(host), session)))
    }

    /// Returns the host that should serve a session, which it can claim itself.
    async fn better(&self, why: Thrown, session: String) -> Result<Route, RpcError> {
        let why = why.into_rpc();
        let incarnation = why.data.as_ref().and_then(|data| data["incarnation"].as_str().map(str::to_owned));
        let hosts = ask(self.cluster.hosts()).await.map_err(|why| unknown(&session, &why))?;
        match hosts.into_iter().find(|host| Some(&host.incarnation) == incarnation.as_ref()) {
            Some(host) => Ok(Route::Elsewhere(Arc::new(host), session)),
            None => Err(moving(&session)),
        }
    }

    fn elsewhere(&self, host: ClusterHost, session: String) -> Route {
        let host = Arc::new(host);
        let mut owners = self.owners.lock();
        if owners.hosts.len() >= CACHED_MAX {
            owners.hosts.clear();
        }
        owners.hosts.insert(session.clone(), host.clone());
        Route::Elsewhere(host, session)
    }

    /// Forgets the owner of a session because it is another one now.
    fn owner_changed(&self, session: &str) {
        let mut owners = self.owners.lock();
        owners.hosts.remove(session);
        owners.sessions.retain(|_, of| of != session);
    }

    /// Counts the sessions of the store again, after changes that other hosts may not have reported.
    fn count_again(&self) {
        let Some(front) = self.front.upgrade() else { return };
        tasks::spawn(async move {
            // The next link that opens or ends counts again.
            if front.sessions.count_listed().await.is_ok() {
                front.core.root.set_active_sessions(&front.core.fanout, front.sessions.count());
            }
        });
    }

    /// Handles a message of the owner.
    fn received(self: &Arc<Self>, link: &Arc<Link>, message: LinkMessage, frame: &str) -> Result<(), String> {
        match message {
            LinkMessage::Hello { incarnation } if incarnation != link.host.incarnation => {
                return Err("another run of the host answered".to_owned());
            }
            LinkMessage::Hello { .. } => self.count_again(),
            LinkMessage::Frame { to, .. } if to == [ROOT] => self.watched(link, frame),
            LinkMessage::Frame { to, .. } => self.deliver(link, &to, frame),
            LinkMessage::Bounced { connection, bounces, session } => {
                self.owner_changed(&session);
                if let Some(connection) = link.connection(connection) {
                    connection.relay_bounced(self, link, &session, frame, bounces);
                }
            }
            LinkMessage::Closed { connection, why } => {
                if let Some(connection) = link.forget(connection) {
                    connection.relay_ended(self, link, why.into());
                }
            }
            _ => {}
        }
        Ok(())
    }
}
