//! The load of a cluster under faults: clients that write turns through any host, a sender that calls a webhook of any host until it
//! accepts, and clients that follow everything.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ostler_protocol::Version;
use ostler_testkit::mirror::Mirror;
use ostler_testkit::postgres::Postgres;
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinHandle;

use super::history::{Event, History, record_owners, stored_turns};
use super::hosts::{
    Host, add_webhook, call, chat_of, client, connected, create, eventually, opened, run_turn, through,
    unfinished_runs, until,
};
use crate::support::{Client, LIMIT};

/// How many sessions are written.
const SESSIONS: usize = 3;
/// How long a client waits for a turn, and a sender for an answer, before it tries another host.
const PATIENCE: Duration = Duration::from_secs(15);
/// The pause between two turns of a session, and between two calls.
const PAUSE: Duration = Duration::from_millis(50);
/// The same where times are measured or a test takes minutes: the clients, which are not optimized, must not take the processors from
/// the hosts.
const LONG_PAUSE: Duration = Duration::from_millis(500);
/// How long a follower waits for the next frame.
const NEXT_FRAME: Duration = Duration::from_millis(5);

/// The name of one of the sessions that are written.
pub fn session(at: usize) -> String {
    format!("echo:/s{at}")
}

/// A running load.
pub struct Load {
    pub history: Arc<History>,
    /// The addresses of the hosts for clients, and the names that they have themselves.
    addresses: Arc<Mutex<Vec<(String, String)>>>,
    pause: Duration,
    ends: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
    followers: Vec<JoinHandle<Follower>>,
}

fn addresses(hosts: &[Host]) -> Vec<(String, String)> {
    hosts
        .iter()
        .map(|host| {
            let own = host.daemon.as_ref().map(|daemon| daemon.address().to_owned()).unwrap_or_default();
            (format!("127.0.0.1:{}", host.clients.port), own)
        })
        .collect()
}

impl Load {
    /// Creates the sessions and the webhook, and begins.
    pub async fn start(server: &Postgres, hosts: &[Host]) -> Self {
        Self::begin(server, hosts, PAUSE).await
    }

    /// Like [`Load::start`], for a test that measures how long takeovers take, or that runs for minutes.
    pub async fn start_slow(server: &Postgres, hosts: &[Host]) -> Self {
        Self::begin(server, hosts, LONG_PAUSE).await
    }

    async fn begin(server: &Postgres, hosts: &[Host], pause: Duration) -> Self {
        record_owners(server);
        let daemons: Vec<_> = hosts.iter().map(Host::running).collect();
        let parallel = json!({ "overlap": "parallel", "hourlyCap": 1_000_000, "onHostLost": "resume" });
        add_webhook(server, &daemons, "noted {{event.n}}", parallel).await;
        for at in 0..SESSIONS {
            let mut creator = client(hosts[at % hosts.len()].running(), "creator").await;
            let chat = create(&mut creator, &session(at)).await;
            assert_eq!(run_turn(&mut creator, &chat, "first", "first").await, Some(true));
        }
        let mut load = Self {
            history: Arc::default(),
            addresses: Arc::new(Mutex::new(addresses(hosts))),
            pause,
            ends: Arc::default(),
            tasks: Vec::new(),
            followers: Vec::new(),
        };
        for at in 0..SESSIONS {
            load.write(at);
        }
        load.call();
        for host in hosts {
            let follower = Follower::new(host.id, host.url());
            load.followers.push(tokio::spawn(follower.run(load.ends.clone())));
        }
        load.progresses("the load begins").await;
        load
    }

    /// Uses the addresses of hosts that were started again.
    pub fn hosts_changed(&self, hosts: &[Host]) {
        *self.addresses.lock() = addresses(hosts);
    }

    fn write(&mut self, at: usize) {
        let (addresses, ends, history) = (self.addresses.clone(), self.ends.clone(), self.history.clone());
        let pause = self.pause;
        self.tasks.push(tokio::spawn(async move {
            let (session, mut tried) = (session(at), at);
            while !ends.load(Ordering::Relaxed) {
                tried += 1;
                let url = {
                    let addresses = addresses.lock();
                    format!("ws://{}", addresses[tried % addresses.len()].0)
                };
                let id = format!("w{at}-{tried}");
                let written = tokio::time::timeout(PATIENCE, through(&url, &session, &id)).await;
                if let Ok(Ok(())) = written {
                    history.add(Event::Turn { session: session.clone(), id });
                }
                // The load that the test asked for.
                tokio::time::sleep(pause).await;
            }
        }));
    }

    fn call(&mut self) {
        let (addresses, ends, history) = (self.addresses.clone(), self.ends.clone(), self.history.clone());
        let pause = self.pause;
        self.tasks.push(tokio::spawn(async move {
            let (mut number, mut tried) = (0, 0);
            while !ends.load(Ordering::Relaxed) {
                let (address, own) = {
                    let addresses = addresses.lock();
                    addresses[tried % addresses.len()].clone()
                };
                tried += 1;
                // A delivery is repeated, at another host, until it is accepted.
                let (id, body) = (format!("call-{number}"), json!({ "n": number }));
                let called = tokio::time::timeout(PATIENCE, call(&address, &own, &id, &body)).await;
                if let Ok((202, _)) = called {
                    history.add(Event::Call { number });
                    number += 1;
                }
                // The load that the test asked for.
                tokio::time::sleep(pause).await;
            }
        }));
    }

    /// Waits until more was acknowledged.
    pub async fn progresses(&self, what: &str) {
        let before = self.history.acknowledged();
        eventually(what, async || match self.history.acknowledged() > before + 2 * SESSIONS {
            true => Ok(()),
            false => Err("nothing is acknowledged".to_owned()),
        })
        .await;
    }

    /// Waits until a session of a lost host is served through another one, and records how long that took since `lost`.
    pub async fn takeover(&self, of: &str, host: &Host, lost: Instant) {
        let (url, mut tried) = (host.url(), 0);
        let served = async || {
            tried += 1;
            let id = format!("after-{}-{tried}", host.id);
            let served = tokio::time::timeout(PATIENCE, through(&url, of, &id)).await;
            served.map_err(|_| "no answer".to_owned())?
        };
        eventually("the takeover", served).await;
        self.history.add(Event::Takeover { after: lost.elapsed() });
    }

    /// Ends the load and checks what was recorded, while all hosts run.
    pub async fn check(self, server: &Postgres, hosts: &[Host]) {
        self.ends.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
        until(LIMIT, "the runs end", || unfinished_runs(server) == 0).await;
        for (follower, host) in self.followers.into_iter().zip(hosts) {
            follower.await.unwrap().converges(host).await;
        }
        for host in hosts {
            for at in 0..SESSIONS {
                is_stored(server, host, &session(at)).await;
            }
        }
        self.history.check(server);
    }
}

/// Waits until a new client of a host has the stored turns of a session.
async fn is_stored(server: &Postgres, host: &Host, session: &str) {
    let same = async || {
        let mut client = connected(&host.url(), "reader").await.ok_or("no connection")?;
        let subscribed = client.try_request("subscribe", json!({ "channel": chat_of(session) })).await;
        let subscribed = subscribed.ok_or("the connection ended")?.map_err(|why| why.to_string())?;
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let turns = subscribed["snapshot"]["state"]["turns"].as_array().into_iter().flatten();
        let seen: Vec<_> = turns.map(|turn| (text(&turn["id"]), text(&turn["state"]))).collect();
        let stored = stored_turns(server, session);
        // A snapshot has the latest turns.
        let is_end = stored.ends_with(&seen) && !seen.is_empty();
        if is_end { Ok(()) } else { Err(format!("{session} at {}: {seen:?}, stored: {stored:?}", host.id)) }
    };
    eventually("a client has what is stored", same).await;
}

/// A client that follows all sessions through one host and reconnects.
struct Follower {
    mirror: Mirror,
    socket: Option<Client>,
    url: String,
    retry_at: Instant,
}

impl Follower {
    fn new(host: &str, url: String) -> Self {
        let mirror = Mirror::new(&format!("follower of {host}"), Version::V1);
        Self { mirror, socket: None, url, retry_at: Instant::now() }
    }

    async fn run(mut self, ends: Arc<AtomicBool>) -> Self {
        while !ends.load(Ordering::Relaxed) {
            self.exchange().await;
            tokio::time::sleep(NEXT_FRAME).await;
        }
        self
    }

    fn disconnect(&mut self) {
        self.socket = None;
        self.mirror.disconnected();
        self.retry_at = Instant::now() + Duration::from_millis(200);
    }

    /// Connects if necessary, sends what there is to send, and reads what is there.
    async fn exchange(&mut self) {
        if self.socket.is_none() {
            if Instant::now() < self.retry_at {
                return;
            }
            let Some(socket) = opened(&self.url).await else { return self.disconnect() };
            self.socket = Some(socket);
            self.mirror.connect();
        }
        let Some(socket) = &mut self.socket else { return };
        for frame in self.mirror.outgoing() {
            if !socket.try_send(&frame).await {
                return self.disconnect();
            }
        }
        while let Ok(frame) = tokio::time::timeout(NEXT_FRAME, socket.next_frame()).await {
            let Some(frame) = frame else { return self.disconnect() };
            // A host without its lease refuses everything; a session of a lost host can be subscribed to later.
            if frame.get("error").is_some() {
                return self.disconnect();
            }
            self.mirror.receive(&frame);
        }
    }

    /// Waits until it has what a new client of the host has.
    async fn converges(mut self, host: &Host) {
        self.url = host.url();
        let mut fresh = Self::new(host.id, host.url());
        let end = Instant::now() + LIMIT;
        loop {
            self.exchange().await;
            fresh.exchange().await;
            let compared =
                fresh.mirror.compare(&fresh.mirror).and_then(|()| self.mirror.compare(&fresh.mirror));
            let Err(difference) = compared else { return };
            assert!(Instant::now() < end, "{}: {difference}", host.id);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
