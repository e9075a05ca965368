//! A host with one session, and what can happen to it between a conversation and the next look at it.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use ostler_contract::points::{Emit, SessionStore, Worker, WorkerRequest};
use ostler_contract::{Value, json};
use ostler_ports::{SqliteSessions, StateDb};
use ostler_protocol::uri;
use ostler_testkit::cases::at_once;
use ostler_testkit::{Builder, ClusteredHost, MemoryCluster, MemoryHost, RawClient, Stage, action};
use tempfile::TempDir;

pub(super) const SESSION: &str = "stage:/1";

/// What happens between the conversation and the look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Disturbance {
    Sleeps,
    Stops,
    Killed,
    /// The host drains, and another one of its cluster serves the session.
    Moves,
    /// The host loses its lease, and another one of its cluster serves the session.
    Lost,
    /// Another host starts with a backup, which was made while the first one ran.
    Restored,
}

pub(super) const ALL: [Disturbance; 6] = [
    Disturbance::Sleeps,
    Disturbance::Stops,
    Disturbance::Killed,
    Disturbance::Moves,
    Disturbance::Lost,
    Disturbance::Restored,
];

/// Where the sessions are stored, and who can serve them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Home {
    Memory,
    Files,
    Cluster,
}

impl Home {
    /// Returns what can happen there.
    pub(super) fn disturbances(self) -> Vec<Disturbance> {
        ALL.into_iter().filter(|how| how.homes().contains(&self)).collect()
    }
}

impl Disturbance {
    fn homes(self) -> &'static [Home] {
        match self {
            Self::Sleeps => &[Home::Memory, Home::Files, Home::Cluster],
            Self::Stops | Self::Killed => &[Home::Memory, Home::Files],
            Self::Moves | Self::Lost => &[Home::Cluster],
            Self::Restored => &[Home::Files],
        }
    }

    /// Returns where it can happen.
    pub(super) fn home(self) -> Home {
        self.homes()[0]
    }
}

/// The host that serves the session.
pub(super) enum Serving {
    Alone(MemoryHost),
    Member(ClusteredHost),
}

impl Deref for Serving {
    type Target = MemoryHost;

    fn deref(&self) -> &MemoryHost {
        match self {
            Self::Alone(host) => host,
            Self::Member(host) => host,
        }
    }
}

/// A host with a session, in which a client says what a test wants.
pub(super) struct World {
    pub(super) stage: Stage,
    pub(super) store: SessionStore,
    pub(super) host: Serving,
    pub(super) client: RawClient,
    pub(super) chat: String,
    pub(super) seq: i64,
    cluster: Option<MemoryCluster>,
    /// The folder of the database; earlier ones have hosts that go on.
    folders: Vec<TempDir>,
    hosts: usize,
}

fn builder(stage: &Stage) -> Builder {
    MemoryHost::builder().plugin(stage.plugin(), json!({})).options(|options| options.delta_window_ms = 0)
}

pub(super) async fn host(stage: &Stage, store: &SessionStore) -> MemoryHost {
    builder(stage).sessions(store.clone()).start().await
}

pub(super) fn store_of(db: Arc<StateDb>) -> SessionStore {
    at_once(
        Arc::new(SqliteSessions::new(db, ostler_ports::Report::new(|line| panic!("{line}")))).into_point(),
    )
}

pub(super) async fn connected(host: &MemoryHost) -> RawClient {
    let mut client = host.raw();
    client.initialize("c").await;
    client
}

impl World {
    pub(super) async fn new() -> Self {
        Self::with(Stage::default().with_plain_chats()).await
    }

    pub(super) async fn with(stage: Stage) -> Self {
        Self::at(Home::Memory, stage).await
    }

    /// A session of a host at such a place.
    pub(super) async fn at(home: Home, stage: Stage) -> Self {
        let folders: Vec<TempDir> =
            (home == Home::Files).then(|| tempfile::tempdir().unwrap()).into_iter().collect();
        let db = match &folders[..] {
            [folder] => StateDb::open(folder.path()),
            _ => StateDb::memory(),
        };
        let store = store_of(db.unwrap());
        let cluster = (home == Home::Cluster).then(MemoryCluster::new);
        let host = match &cluster {
            Some(cluster) => Serving::Member(cluster.start("host-0", store.clone(), builder(&stage)).await),
            None => Serving::Alone(host(&stage, &store).await),
        };
        let mut client = connected(&host).await;
        client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
        let chat = uri::default_chat(SESSION);
        let mut world = Self { stage, store, host, client, chat, seq: 0, cluster, folders, hosts: 1 };
        world.watch().await;
        world
    }

    /// A session that a client has created at a host.
    pub(super) fn of(stage: Stage, store: SessionStore, host: MemoryHost, client: RawClient) -> Self {
        let (host, chat) = (Serving::Alone(host), uri::default_chat(SESSION));
        Self { stage, store, host, client, chat, seq: 0, cluster: None, folders: Vec::new(), hosts: 1 }
    }

    pub(super) async fn watch(&mut self) {
        for channel in [SESSION.to_owned(), self.chat.clone()] {
            self.client.request("subscribe", json!({ "channel": channel })).await.unwrap();
        }
    }

    pub(super) async fn dispatch(&mut self, channel: &str, action: Value) {
        self.seq += 1;
        let name = action["type"].as_str().unwrap().to_owned();
        self.client.dispatch(channel, self.seq, action).await;
        let seen = self.client.actions_until(&name).await.pop().unwrap();
        assert!(seen.get("rejectionReason").is_none(), "{seen}");
    }

    pub(super) async fn begin(&mut self, turn: &str) {
        let action = json!({ "type": "chat/turnStarted", "turnId": turn, "message": { "text": turn } });
        let chat = self.chat.clone();
        self.dispatch(&chat, action).await;
    }

    pub(super) async fn queue(&mut self, id: &str) {
        let message = json!({ "text": id, "origin": { "kind": "user" } });
        let action =
            json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": id, "message": message });
        let chat = self.chat.clone();
        self.dispatch(&chat, action).await;
    }

    /// The backend emits in the first chat, and the client sees it.
    pub(super) async fn emit(&mut self, action: Value) {
        let name = action["type"].as_str().unwrap().to_owned();
        self.stage.emit(self.own_backend(), Emit::Chat, action);
        self.client.actions_until(&name).await;
    }

    /// The backend emits in the session, and the client sees it.
    pub(super) async fn emit_session(&mut self, action: Value) {
        let name = action["type"].as_str().unwrap().to_owned();
        self.stage.emit(self.own_backend(), Emit::Session, action);
        self.client.actions_until(&name).await;
    }

    /// The latest backend of the first chat.
    pub(super) fn own_backend(&self) -> usize {
        (0..self.stage.started()).rev().find(|at| self.stage.start(*at).chat_id.is_none()).unwrap()
    }

    pub(super) async fn end(&mut self, turn: &str) {
        self.emit(json!({ "type": "chat/turnComplete", "turnId": turn, "duration": 1 })).await;
    }

    pub(super) async fn call(&mut self, turn: &str, call: &str) {
        let start = json!({ "type": "chat/toolCallStart", "turnId": turn, "toolCallId": call,
            "toolName": "task", "displayName": "Task" });
        self.emit(start).await;
        let ready = json!({ "type": "chat/toolCallReady", "turnId": turn, "toolCallId": call,
            "invocationMessage": "Working", "confirmed": "not-needed" });
        self.emit(ready).await;
    }

    /// A call that waits for an approval.
    pub(super) async fn ask_to_remove(&mut self, turn: &str) {
        let start = json!({ "type": "chat/toolCallStart", "turnId": turn, "toolCallId": "rm",
            "toolName": "rm", "displayName": "Remove" });
        self.emit(start).await;
        let ready = json!({ "type": "chat/toolCallReady", "turnId": turn, "toolCallId": "rm",
            "invocationMessage": "Remove it" });
        self.emit(ready).await;
    }

    pub(super) async fn worker(&mut self, call: &str, request: Value) -> Worker {
        let request: WorkerRequest = serde_json::from_value(request).unwrap();
        let start = self.stage.start(self.own_backend());
        let worker = start.subagent.unwrap().call((call.to_owned(), request)).await.unwrap();
        self.client.actions_until("session/chatAdded").await;
        worker
    }

    /// A worker that says something and ends.
    pub(super) async fn done_worker(&mut self, call: &str, request: Value) {
        let worker = self.worker(call, request).await;
        for said in [
            json!({ "type": "chat/responsePart", "turnId": worker.turn_id,
                "part": { "kind": "markdown", "id": "p", "content": call } }),
            json!({ "type": "chat/turnComplete", "turnId": worker.turn_id, "duration": 1 }),
        ] {
            worker.emit.call((action(said),)).unwrap();
        }
        // Its end is handled before what its lead emits next.
        self.emit(json!({ "type": "chat/activityChanged", "activity": call })).await;
        self.emit(json!({ "type": "chat/activityChanged" })).await;
    }

    pub(super) async fn disturb(&mut self, how: Disturbance) {
        match how {
            Disturbance::Sleeps => {
                drop(std::mem::replace(&mut self.client, self.host.raw()));
                // Time is paused.
                tokio::time::sleep(Duration::from_secs(700)).await;
                let entry = self.host.host.sessions.session("1").await.known().unwrap().unwrap();
                assert!(!entry.is_awake(), "it sleeps");
            }
            Disturbance::Stops => {
                self.host.host.stop().await;
                self.host.host.close().await;
            }
            // What the store has at this moment, while the other host goes on.
            Disturbance::Killed => {}
            Disturbance::Moves | Disturbance::Lost => self.leave(how).await,
            Disturbance::Restored => {
                let (copied, former) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
                let dir = self.folders.last().unwrap().path();
                StateDb::copy_to(former.path(), dir, &StateDb::file(copied.path())).unwrap().unwrap();
                StateDb::verify(&StateDb::file(copied.path())).unwrap();
                self.store = store_of(StateDb::open(copied.path()).unwrap());
                self.folders.push(copied);
            }
        }
        if matches!(how, Disturbance::Stops | Disturbance::Killed | Disturbance::Restored) {
            self.host = Serving::Alone(host(&self.stage, &self.store).await);
        }
        self.client = connected(&self.host).await;
    }

    /// Another host of the cluster serves the session.
    pub(super) async fn leave(&mut self, how: Disturbance) {
        let cluster = self.cluster.clone().unwrap();
        let id = format!("host-{}", self.hosts);
        self.hosts += 1;
        let next = cluster.start(&id, self.store.clone(), builder(&self.stage)).await;
        let former = std::mem::replace(&mut self.host, Serving::Member(next));
        let Serving::Member(former) = former else { unreachable!("a host of the cluster") };
        if how == Disturbance::Moves {
            drop(std::mem::replace(&mut self.client, self.host.raw()));
            former.host.set_draining(true).await.unwrap();
            let is_former = |cluster: &MemoryCluster| {
                let owner = cluster.owner_of("1");
                owner.is_some_and(|owner| owner != id)
            };
            for _ in 0..600 {
                if !is_former(&cluster) {
                    break;
                }
                // Time is paused.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            assert!(!is_former(&cluster), "it is handed over");
            former.host.stop().await;
            former.host.close().await;
            cluster.expire(&former);
        } else {
            cluster.kill(&former);
        }
    }

    /// The session's row in listings.
    pub(super) async fn row(&mut self) -> Value {
        let listed = self.client.request("listSessions", json!({})).await.unwrap();
        let mut row = without(listed["items"][0].clone(), &["modifiedAt"]);
        // An update cannot remove the list of chats, so a chat that remains of several is still listed.
        if row["chats"].as_array().is_some_and(|chats| chats.len() == 1) {
            row.as_object_mut().unwrap().remove("chats");
        }
        row
    }

    /// What clients read of the session and of each of its chats.
    pub(super) async fn seen(&mut self) -> Value {
        let mut read = async |channel: &str| {
            let subscribed = self.client.request("subscribe", json!({ "channel": channel })).await.unwrap();
            subscribed["snapshot"]["state"].clone()
        };
        let session = read(SESSION).await;
        let mut chats = Vec::new();
        for chat in session["chats"].as_array().unwrap() {
            chats.push(without(read(chat["resource"].as_str().unwrap()).await, MAY_DIFFER));
        }
        json!({ "session": without(session, MAY_DIFFER), "chats": chats })
    }
}

/// What may differ: who is there, and the time of the host's own last change. The list of chats, whose updates cannot remove
/// a field, can have an activity that ended as an empty one. A list that became empty and none are the same to clients, and
/// so is `movable`, whose absence means `false`.
const MAY_DIFFER: &[&str] = &["activeClients", "modifiedAt"];

fn without(mut value: Value, keys: &[&str]) -> Value {
    match &mut value {
        Value::Object(fields) => {
            fields.retain(|key, value| {
                !keys.contains(&key.as_str())
                    && (key != "activity" || *value != json!(""))
                    && (key != "movable" || *value != json!(false))
                    && *value != json!([])
            });
            fields.values_mut().for_each(|field| *field = without(field.take(), keys));
        }
        Value::Array(entries) => entries.iter_mut().for_each(|entry| *entry = without(entry.take(), keys)),
        _ => {}
    }
    value
}
