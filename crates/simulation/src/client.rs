//! Clients: each has a copy of all state, moves to another host when its own does not serve it, and records what it was told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ostler_contract::{Value, json};
use ostler_protocol::{Version, uri};
use ostler_testkit::mirror::{Mirror, State};
use parking_lot::Mutex;

use crate::history::History;
use crate::host::{Addresses, Socket, connect, fire};
use crate::ledger::Ledger;
use crate::network::Network;
use crate::random::Random;

/// The name of all clients in the network.
pub const PARTY: &str = "clients";
/// How often a client looks.
const LOOK: Duration = Duration::from_millis(20);
/// How often a client asks its host for a sign of life.
const PING: Duration = Duration::from_secs(1);
/// How long a client waits for anything from its host while it has asked for something.
const SILENCE: Duration = Duration::from_secs(3);
/// How long a client waits for the answer of one request.
const PATIENCE: Duration = Duration::from_secs(25);
/// How long the sender of an event waits for its answer.
const ANSWER: Duration = Duration::from_secs(12);
/// The sessions that clients create.
const SESSIONS: u64 = 5;

/// What clients share.
#[derive(Clone)]
pub struct World {
    /// The network.
    pub network: Network,
    /// The hosts.
    pub addresses: Addresses,
    /// The names of the hosts.
    pub names: Arc<[String]>,
    /// The history.
    pub history: History,
    /// What was acknowledged.
    pub ledger: Ledger,
    /// Whether clients change anything.
    pub is_active: Arc<Mutex<bool>>,
}

impl World {
    fn acts(&self) -> bool {
        *self.is_active.lock()
    }
}

struct Asked {
    method: String,
    at: Duration,
}

/// A client.
pub struct Client {
    world: World,
    mirror: Mirror,
    socket: Option<Socket>,
    /// The index of its host.
    home: usize,
    /// Whether it waits for its host where others move to another one.
    stays: bool,
    random: Random,
    /// Dispatched actions by `clientSeq`.
    dispatched: BTreeMap<i64, (String, Value)>,
    asked: BTreeMap<u64, Asked>,
    heard: Duration,
    pinged: Duration,
    retry: Duration,
    next_act: Duration,
    count: u64,
}

impl Client {
    /// Creates a client.
    pub fn new(world: &World, name: &str, home: usize, random: Random) -> Self {
        Self {
            world: world.clone(),
            mirror: Mirror::new(name, Version::V1),
            socket: None,
            home,
            stays: false,
            random,
            dispatched: BTreeMap::new(),
            asked: BTreeMap::new(),
            heard: Duration::ZERO,
            pinged: Duration::ZERO,
            retry: Duration::ZERO,
            next_act: Duration::from_secs(2),
            count: 0,
        }
    }

    /// Makes it wait for its host instead of moving to another one.
    pub fn staying(self) -> Self {
        Self { stays: true, ..self }
    }

    /// Returns its copy of the state.
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// Returns the name of its host.
    pub fn host(&self) -> String {
        self.world.names[self.home % self.world.names.len()].clone()
    }

    fn note(&self, what: impl std::fmt::Display) {
        self.world.history.note(self.mirror.name(), what);
    }

    /// Does what there is to do now.
    pub fn look(&mut self) {
        let now = self.world.history.now();
        if self.socket.is_none() && now >= self.retry {
            let socket = connect(&self.world.network, &self.world.addresses, PARTY, &self.host());
            match socket {
                Some(socket) => {
                    self.note(format_args!("connects to {}", self.host()));
                    self.socket = Some(socket);
                    (self.heard, self.pinged) = (now, now);
                    self.mirror.connect();
                }
                None => {
                    self.home += usize::from(!self.stays);
                    self.retry = now + self.random.millis(50, 300);
                }
            }
        }
        self.receive(now);
        self.expire(now);
        if self.socket.is_some() && self.mirror.is_ready() {
            if now >= self.pinged + PING {
                self.pinged = now;
                self.mirror.ask("ping", json!({ "channel": uri::ROOT }));
            }
            if self.world.acts() && now >= self.next_act {
                self.next_act = now + self.random.millis(100, 1500);
                self.act();
            }
        }
        self.send(now);
    }

    /// Follows channels that did not exist before, too.
    pub fn want_everything(&mut self) {
        self.mirror.want_everything();
    }

    /// Follows these sessions even if they are not listed.
    pub fn follow(&mut self, sessions: BTreeSet<String>) {
        self.mirror.follow_sessions(sessions);
        self.mirror.want_everything();
    }

    fn send(&mut self, now: Duration) {
        let frames = self.mirror.outgoing();
        let Some(socket) = &self.socket else { return };
        for text in frames {
            let frame: Value = serde_json::from_str(&text).unwrap_or_default();
            let params = &frame["params"];
            if let Some(id) = frame["id"].as_u64() {
                let method = frame["method"].as_str().unwrap_or_default().to_owned();
                self.asked.insert(id, Asked { method, at: now });
            } else if frame["method"] == "dispatchAction" {
                let channel = params["channel"].as_str().unwrap_or_default().to_owned();
                let seq = params["clientSeq"].as_i64().unwrap_or_default();
                self.dispatched.insert(seq, (channel, params["action"].clone()));
            }
            // What is sent into a connection that has ended is lost.
            let _ = socket.outgoing.send(text);
        }
    }

    fn receive(&mut self, now: Duration) {
        loop {
            let Some(socket) = &mut self.socket else { return };
            let bytes = match socket.incoming.try_recv() {
                Ok(bytes) => bytes,
                Err(tokio::sync::mpsc::error::TryRecvError::Empty) => return,
                Err(_) => return self.lose(now, "the connection ended"),
            };
            self.heard = now;
            let frame: Value = serde_json::from_slice(&bytes).unwrap_or_default();
            if frame["method"] == "action" {
                self.acknowledged(&frame["params"]);
            } else if frame.get("method").is_some() && frame.get("id").is_some() {
                // A request of the host.
                continue;
            } else if let Some(id) = frame["id"].as_u64() {
                let asked = self.asked.remove(&id);
                let method = asked.map(|asked| asked.method).unwrap_or_default();
                let is_basic = matches!(method.as_str(), "initialize" | "reconnect" | "listSessions");
                if let Some(error) = frame.get("error") {
                    if is_basic {
                        return self.lose(now, &format!("{method}: {}", error["message"]));
                    }
                    self.note(format_args!("{method} failed: {}", error["message"]));
                }
            }
            self.mirror.receive(&frame);
        }
    }

    /// Ends a connection that does not answer.
    fn expire(&mut self, now: Duration) {
        let waits_since = self.asked.values().map(|asked| asked.at).min();
        let Some(since) = waits_since else { return };
        if now > self.heard.max(since) + SILENCE {
            self.lose(now, "the host is silent");
        } else if now > since + PATIENCE {
            self.lose(now, "a request is not answered");
        }
    }

    fn lose(&mut self, now: Duration, why: &str) {
        self.note(format_args!("lost {}: {why}", self.host()));
        self.socket = None;
        self.mirror.disconnected();
        self.asked.clear();
        self.dispatched.clear();
        if self.random.chance(70) && !self.stays {
            self.home += 1;
        }
        self.retry = now + self.random.millis(20, 300);
    }

    fn acknowledged(&mut self, params: &Value) {
        let origin = &params["origin"];
        if origin["clientId"] != self.mirror.name() {
            return;
        }
        let seq = origin["clientSeq"].as_i64().unwrap_or_default();
        let Some((channel, action)) = self.dispatched.remove(&seq) else { return };
        if let Some(why) = params.get("rejectionReason") {
            return self.note(format_args!("{} was rejected: {why}", action["type"]));
        }
        match action["type"].as_str() {
            Some("chat/turnStarted") => {
                let turn = action["turnId"].as_str().unwrap_or_default().to_owned();
                self.note(format_args!("{turn} is acknowledged"));
                self.world.ledger.with(|entries| entries.turns.insert((channel, turn)));
            }
            Some("session/titleChanged") => {
                let title = action["title"].as_str().unwrap_or_default().to_owned();
                self.note(format_args!("{title} of {channel} is acknowledged"));
                self.world.ledger.with(|entries| entries.titles.insert((channel, title)));
            }
            _ => {}
        }
    }

    fn act(&mut self) {
        self.count += 1;
        let own = |mirror: &Mirror, is_chat: bool| -> Vec<String> {
            let channels = mirror.channels().filter(|channel| match mirror.state(channel) {
                Some(State::Chat(_)) => is_chat,
                Some(State::Session(state)) => !is_chat && state.origin.is_none(),
                _ => false,
            });
            channels.cloned().collect()
        };
        let (sessions, chats) = (own(&self.mirror, false), own(&self.mirror, true));
        let number = format!("{}-{}", self.mirror.name(), self.count);
        match self.random.below(10) {
            0 | 1 => {
                let session = format!("echo:/s{}", self.random.below(SESSIONS));
                if !sessions.contains(&session) {
                    self.note(format_args!("creates {session}"));
                    self.mirror.create(&session, json!({ "provider": "echo", "config": { "delayMs": 20 } }));
                }
            }
            2 | 3 if !sessions.is_empty() => {
                let session = sessions[self.random.index(sessions.len())].clone();
                let action = json!({ "type": "session/titleChanged", "title": format!("Title {number}") });
                self.mirror.act(&session, action);
            }
            4..=8 if !chats.is_empty() => {
                let chat = chats[self.random.index(chats.len())].clone();
                let text = match self.random.below(6) {
                    0 => "/slow 2s later".to_owned(),
                    1 => "/think hard".to_owned(),
                    2 => "/fail".to_owned(),
                    _ => format!("some words of {number} to say back"),
                };
                let message = json!({ "text": text, "origin": { "kind": "user" } });
                self.note(format_args!("says t{number}"));
                self.mirror.act(
                    &chat,
                    json!({ "type": "chat/turnStarted", "turnId": format!("t{number}"),
                        "startedAt": "2026-01-01T00:00:00Z", "message": message }),
                );
            }
            _ => {}
        }
    }
}

/// Runs clients until the simulation ends.
pub async fn run(clients: Arc<Mutex<Vec<Client>>>) {
    loop {
        clients.lock().iter_mut().for_each(Client::look);
        tokio::time::sleep(LOOK).await;
    }
}

/// Sends events to any host, each until it is acknowledged, as a sender of webhooks does.
pub async fn send_events(world: World, mut random: Random, number: std::ops::Range<u64>) {
    for n in number {
        tokio::time::sleep(random.millis(200, 4000)).await;
        if !world.acts() {
            return;
        }
        world.ledger.with(|entries| entries.events.insert(n, false));
        loop {
            let host = world.names[random.index(world.names.len())].clone();
            let fired = fire(&world.network, &world.addresses, (PARTY, &host), (format!("event-{n}"), n));
            let fired = tokio::time::timeout(ANSWER, fired).await;
            match fired {
                Ok(Ok(fired)) => {
                    world.history.note("sender", format_args!("event {n} at {host}: {fired:?}"));
                    break;
                }
                Ok(Err(why)) => {
                    world.history.note("sender", format_args!("event {n} at {host} failed: {why}"));
                }
                Err(_) => world.history.note("sender", format_args!("event {n} at {host}: no answer")),
            }
            tokio::time::sleep(random.millis(100, 1000)).await;
        }
        world.ledger.with(|entries| entries.events.insert(n, true));
    }
}

/// Asks the other hosts for a channel of a session whose host was lost, until it is served.
pub async fn probe(world: World, channel: String, lost_host: String, at: usize) {
    let lost = world.history.now();
    let others: Vec<String> = world.names.iter().filter(|name| **name != lost_host).cloned().collect();
    let mut turn = 0;
    loop {
        turn += 1;
        let host = &others[turn % others.len()];
        if let Some(mut socket) = connect(&world.network, &world.addresses, PARTY, host) {
            let name = format!("probe{at}-{turn}");
            let initialize = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize",
                "params": { "channel": uri::ROOT, "clientId": name, "protocolVersions": ["1.0.0"] } });
            let subscribe =
                json!({ "jsonrpc": "2.0", "id": 2, "method": "subscribe", "params": { "channel": channel } });
            let _ = socket.outgoing.send(initialize.to_string());
            let _ = socket.outgoing.send(subscribe.to_string());
            let answer = async {
                while let Some(bytes) = socket.incoming.recv().await {
                    let frame: Value = serde_json::from_slice(&bytes).unwrap_or_default();
                    if frame["id"] == 2 {
                        return frame.get("result").is_some();
                    }
                }
                false
            };
            if answer.await {
                break;
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let served = world.history.now();
    world.history.note("probe", format_args!("{channel} of {lost_host} is served after {:?}", served - lost));
    world.ledger.with(|entries| entries.failovers[at].served = Some(served));
}
