//! A cluster in memory: the directory of its hosts and of the owners of sessions, and links between hosts in one process.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{SinkExt as _, StreamExt as _};
use ostler_contract::call::Signature;
use ostler_contract::cluster::{Cluster, ClusterEvent, ClusterHost, ClusterListener, SessionOwner};
use ostler_contract::live::{Pending, ready};
use ostler_contract::points::SessionStore;
use ostler_contract::{Call, Secret, Thrown};
use ostler_engine::{Front, LinkDialer, LinkTransport};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::memory_host::Builder;
use crate::wrapped_store::{WrapCall, wrapped_store};
use crate::{MemoryHost, RawClient};

/// The token of the cluster.
const TOKEN: &str = "cluster-token";

/// A cluster whose hosts share stores in memory.
#[derive(Debug, Clone, Default)]
pub struct MemoryCluster(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    members: Vec<Arc<Member>>,
    /// The incarnation of the owner of each session.
    owners: HashMap<String, String>,
    /// The texts of frames that hosts sent over links.
    frames: Vec<String>,
    /// Whether `frames` are recorded.
    records: bool,
}

impl fmt::Debug for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("State").field("owners", &self.owners).finish_non_exhaustive()
    }
}

/// A host of the cluster.
struct Member {
    cluster: MemoryCluster,
    id: String,
    incarnation: String,
    state: Mutex<MemberState>,
    /// Becomes true when all connections to the host are cut.
    cut: watch::Sender<bool>,
    asked: AtomicUsize,
}

#[derive(Default)]
struct MemberState {
    is_alive: bool,
    is_draining: bool,
    listeners: Vec<ClusterListener>,
    front: Option<Weak<Front>>,
    url: Option<String>,
}

impl fmt::Debug for Member {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Member({})", self.incarnation)
    }
}

impl Member {
    fn host(&self) -> ClusterHost {
        let state = self.state.lock();
        ClusterHost {
            id: self.id.clone(),
            incarnation: self.incarnation.clone(),
            url: state.url.clone().or_else(|| state.front.as_ref().map(|_| format!("ws://{}", self.id))),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            is_draining: state.is_draining,
            is_alive: state.is_alive,
        }
    }

    fn is_alive(&self) -> bool {
        self.state.lock().is_alive
    }
}

/// A host in a cluster.
#[derive(Debug)]
pub struct ClusteredHost {
    /// The host.
    pub memory: MemoryHost,
    member: Arc<Member>,
}

impl std::ops::Deref for ClusteredHost {
    type Target = MemoryHost;

    fn deref(&self) -> &MemoryHost {
        &self.memory
    }
}

impl MemoryCluster {
    /// Creates a cluster without hosts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a host of the cluster with a session store that all its hosts share.
    pub async fn start(&self, id: &str, store: SessionStore, builder: Builder) -> ClusteredHost {
        self.start_wrapped(id, store, builder, &Unwrapped).await
    }

    /// Like [`MemoryCluster::start`], with the store as a wrapper shows it to this host.
    pub async fn start_wrapped(
        &self,
        id: &str,
        store: SessionStore,
        builder: Builder,
        wrapper: &impl WrapCall,
    ) -> ClusteredHost {
        let incarnation = {
            let state = self.0.lock();
            format!("{id}-{}", state.members.iter().filter(|member| member.id == id).count())
        };
        let member = Arc::new(Member {
            cluster: self.clone(),
            id: id.to_owned(),
            incarnation,
            state: Mutex::new(MemberState { is_alive: true, ..MemberState::default() }),
            cut: watch::Sender::new(false),
            asked: AtomicUsize::new(0),
        });
        self.0.lock().members.push(member.clone());
        let joined: Arc<dyn Cluster> = Arc::new(Joined(member.clone()));
        let dialer = Arc::new(Dialer(member.clone()));
        let memory = builder
            .sessions(wrapped_store(&fenced(&store, &member), wrapper))
            .own(move |host| host.join_cluster(joined))
            .links_unless_set(dialer)
            .start()
            .await;
        member.state.lock().front = Some(Arc::downgrade(&memory.host.front));
        self.raise(None, &ClusterEvent::HostsChanged);
        ClusteredHost { memory, member }
    }

    /// Ends the lease of a host without notice, as when its process is killed: it can no longer write, its clients and
    /// links are cut, and its sessions have no living owner.
    pub fn kill(&self, host: &ClusteredHost) {
        self.cut(host);
        self.expire(host);
    }

    /// Cuts all links and clients of a host, which keeps its lease.
    pub fn cut(&self, host: &ClusteredHost) {
        host.member.cut.send_replace(true);
        host.memory.close_clients();
    }

    /// Ends the lease of a host.
    pub fn expire(&self, host: &ClusteredHost) {
        host.member.state.lock().is_alive = false;
        self.raise(None, &ClusterEvent::HostsChanged);
    }

    /// Ends the lease of the hosts with an id.
    pub fn expire_id(&self, id: &str) {
        let members = self.0.lock().members.clone();
        members
            .iter()
            .filter(|member| member.id == id)
            .for_each(|member| member.state.lock().is_alive = false);
        self.raise(None, &ClusterEvent::HostsChanged);
    }

    /// Gives a session to another host without notice.
    pub fn give(&self, session: &str, to: &ClusteredHost) {
        self.0.lock().owners.insert(session.to_owned(), to.member.incarnation.clone());
    }

    /// Returns the id of the host that owns a session.
    pub fn owner_of(&self, session: &str) -> Option<String> {
        let state = self.0.lock();
        let incarnation = state.owners.get(session)?;
        let member = state.members.iter().find(|member| member.incarnation == *incarnation)?;
        member.is_alive().then(|| member.id.clone())
    }

    /// Records the messages that hosts send over links from now on.
    pub fn record(&self) {
        let mut state = self.0.lock();
        state.records = true;
        state.frames.clear();
    }

    /// Returns the recorded messages that contain a text.
    pub fn recorded(&self, text: &str) -> Vec<String> {
        self.0.lock().frames.iter().filter(|frame| frame.contains(text)).cloned().collect()
    }

    fn raise(&self, except: Option<&Member>, event: &ClusterEvent) {
        let members = self.0.lock().members.clone();
        for member in members {
            if except.is_some_and(|except| except.incarnation == member.incarnation) || !member.is_alive() {
                continue;
            }
            let listeners = member.state.lock().listeners.clone();
            for listener in listeners {
                listener(event.clone());
            }
        }
    }

    fn owner(&self, of: &Member, session: &str) -> SessionOwner {
        let state = self.0.lock();
        let Some(incarnation) = state.owners.get(session) else { return SessionOwner::Nobody { last: None } };
        let owner = state.members.iter().find(|member| member.incarnation == *incarnation);
        match owner {
            Some(owner) if owner.incarnation == of.incarnation => SessionOwner::Here,
            Some(owner) if owner.is_alive() => SessionOwner::Elsewhere(owner.host()),
            owner => SessionOwner::Nobody { last: owner.map(|owner| owner.host()) },
        }
    }
}

impl ClusteredHost {
    /// Returns how often the host asked the directory for the owner of a session.
    pub fn asked(&self) -> usize {
        self.member.asked.load(Ordering::Relaxed)
    }

    /// Connects and initializes a client.
    pub async fn connect(&self, name: &str) -> RawClient {
        let mut client = self.memory.raw();
        client.initialize(name).await;
        client
    }
}

/// The cluster as one host sees it.
#[derive(Debug)]
struct Joined(Arc<Member>);

impl Cluster for Joined {
    fn incarnation(&self) -> String {
        self.0.incarnation.clone()
    }

    fn token(&self) -> Secret<String> {
        Secret::new(TOKEN.to_owned())
    }

    fn hosts(&self) -> Pending<Vec<ClusterHost>> {
        let members = self.0.cluster.0.lock().members.clone();
        ready(Ok(members.iter().map(|member| member.host()).collect()))
    }

    fn owner(&self, session: String) -> Pending<SessionOwner> {
        self.0.asked.fetch_add(1, Ordering::Relaxed);
        ready(Ok(self.0.cluster.owner(&self.0, &session)))
    }

    fn claim(&self, session: String) -> Pending<SessionOwner> {
        if !self.0.is_alive() {
            return ready(Err(Thrown::new("the lease is lost")));
        }
        let cluster = &self.0.cluster;
        if matches!(cluster.owner(&self.0, &session), SessionOwner::Nobody { .. }) {
            cluster.0.lock().owners.insert(session.clone(), self.0.incarnation.clone());
        }
        ready(Ok(cluster.owner(&self.0, &session)))
    }

    fn release(&self, session: String) -> Pending<()> {
        let mut state = self.0.cluster.0.lock();
        if state.owners.get(&session) == Some(&self.0.incarnation) {
            state.owners.remove(&session);
        }
        ready(Ok(()))
    }

    fn set_draining(&self, is_draining: bool) -> Pending<()> {
        self.0.state.lock().is_draining = is_draining;
        self.0.cluster.raise(None, &ClusterEvent::HostsChanged);
        ready(Ok(()))
    }

    fn is_draining(&self) -> bool {
        self.0.state.lock().is_draining
    }

    fn id(&self) -> String {
        self.0.id.clone()
    }

    fn set_url(&self, url: String) {
        self.0.state.lock().url = Some(url);
        self.0.cluster.raise(None, &ClusterEvent::HostsChanged);
    }

    fn evict(&self, _: String) -> Pending<bool> {
        ready(Ok(false))
    }

    fn listen(&self, listener: ClusterListener) {
        self.0.state.lock().listeners.push(listener);
    }
}

/// Connects a host to others in this process.
#[derive(Debug)]
struct Dialer(Arc<Member>);

impl LinkDialer for Dialer {
    fn dial(
        &self,
        host: ClusterHost,
        token: Secret<String>,
    ) -> BoxFuture<'static, Result<LinkTransport, String>> {
        let from = self.0.clone();
        Box::pin(async move {
            if token.reveal() != TOKEN {
                return Err("another token".to_owned());
            }
            let cluster = from.cluster.clone();
            let to = cluster.0.lock().members.iter().find(|to| to.incarnation == host.incarnation).cloned();
            let to = to.ok_or("no such host")?;
            let front = to.state.lock().front.as_ref().and_then(Weak::upgrade);
            let front = front.filter(|_| !*to.cut.borrow() && !*from.cut.borrow()).ok_or("refused")?;
            let ((near_out, far_in), (far_out, near_in)) =
                (pipe(&cluster, &from, &to), pipe(&cluster, &to, &from));
            let far = LinkTransport { incoming: far_in, outgoing: far_out };
            tokio::spawn(async move { front.serve_link(far).await });
            Ok(LinkTransport { incoming: near_in, outgoing: near_out })
        })
    }
}

type Incoming = std::pin::Pin<Box<dyn futures::Stream<Item = Bytes> + Send>>;
type Outgoing = std::pin::Pin<Box<dyn futures::Sink<String, Error = String> + Send>>;

fn pipe(cluster: &MemoryCluster, one: &Member, other: &Member) -> (Outgoing, Incoming) {
    let (sender, receiver) = futures::channel::mpsc::unbounded::<Bytes>();
    let cluster = cluster.clone();
    let sender = sender
        .with(move |text: String| {
            let mut state = cluster.0.lock();
            if state.records {
                state.frames.push(text.clone());
            }
            futures::future::ready(Ok::<_, futures::channel::mpsc::SendError>(Bytes::from(text)))
        })
        .sink_map_err(|error| error.to_string());
    let cuts = [one.cut.subscribe(), other.cut.subscribe()];
    let cut = cuts.map(|mut cut| {
        Box::pin(async move {
            let _ = cut.wait_for(|cut| *cut).await;
        })
    });
    let receiver = receiver.take_until(futures::future::select_all(cut));
    (Box::pin(sender), Box::pin(receiver))
}

/// Shows a store as it is.
struct Unwrapped;

impl WrapCall for Unwrapped {
    fn wrap<S: Signature>(&self, call: &Call<S>, _writes: bool) -> Call<S> {
        call.clone()
    }
}

/// Rejects the writes of a host that has lost its lease, and notifies the other hosts of changes.
fn fenced(store: &SessionStore, member: &Arc<Member>) -> SessionStore {
    let fenced = SessionStore { close: None, ..wrapped_store(store, &Fence(member.clone())) };
    let (added, gone) = (store.clone(), store.clone());
    let by = member.incarnation.clone();
    let changed = move |id: String| ClusterEvent::SessionChanged { id, by: by.clone() };
    let has_changed = changed.clone();
    SessionStore {
        set_config: reported(&fenced.set_config, member, move |(id, kept)| {
            let (id, is_new) = (id.clone(), kept.draft.is_none() && listed_as(&added, id).is_none());
            let added = is_new.then(|| ClusterEvent::SessionAdded { id: id.clone() });
            added.into_iter().chain([has_changed(id)]).collect()
        }),
        set_flags: reported(&fenced.set_flags, member, move |(id, _)| vec![changed(id.clone())]),
        forget: reported(&fenced.forget, member, move |(id,)| {
            vec![ClusterEvent::SessionRemoved { id: id.clone(), listed: listed_as(&gone, id) }]
        }),
        ..fenced
    }
}

/// The URI of a session, if it is listed.
fn listed_as(store: &SessionStore, id: &str) -> Option<String> {
    let kept = futures::executor::block_on(store.config.unbounded((id.to_owned(),))).ok()??;
    kept.draft.is_none().then_some(kept.uri)
}

/// Rejects writes without a lease.
struct Fence(Arc<Member>);

impl WrapCall for Fence {
    fn wrap<S: Signature>(&self, call: &Call<S>, writes: bool) -> Call<S> {
        let (call, member) = (call.clone(), self.0.clone());
        Call::new(move |arguments| {
            let is_fenced = writes && !member.is_alive();
            let call = call.clone();
            async move {
                if is_fenced {
                    return Err(Thrown::new("the lease is lost"));
                }
                // Another thread answers; paused time must not pass until then.
                futures::executor::block_on(call.unbounded(arguments))
            }
        })
    }
}

fn reported<S: Signature>(
    call: &Call<S>,
    member: &Arc<Member>,
    events: impl Fn(&S::Arguments) -> Vec<ClusterEvent> + Send + Sync + 'static,
) -> Call<S> {
    let (call, member) = (call.clone(), member.clone());
    Call::new(move |arguments| {
        let (call, member, events) = (call.clone(), member.clone(), events(&arguments));
        async move {
            let answer = call.unbounded(arguments).await?;
            for event in &events {
                member.cluster.raise(Some(&member), event);
            }
            Ok(answer)
        }
    })
}
