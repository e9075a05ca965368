//! Whatever clients do, lose and take up again, and whenever the host ends and starts again, in the end all of them see
//! what the host has.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use ostler_contract::call::Signature;
use ostler_contract::points::SessionStore;
use ostler_contract::{Call, Value, json};
use ostler_ports::{MemoryAutomations, SqliteSessions, StateDb};
use ostler_protocol::Version;
use ostler_testkit::mirror::{Beside, Mirror, ROWS, Step};
use ostler_testkit::wrapped_store::{WrapCall, wrapped_store};
use ostler_testkit::{MemoryHost, RawClient};
use proptest::prelude::*;

const SESSION: &str = "echo:/one";

fn chat() -> String {
    ostler_protocol::uri::default_chat(SESSION)
}

async fn snapshot(socket: &mut RawClient, channel: &str) -> (Value, u64) {
    let subscribed = socket.request("subscribe", json!({ "channel": channel })).await.unwrap();
    let snapshot = &subscribed["snapshot"];
    (snapshot["state"].clone(), snapshot["fromSeq"].as_u64().unwrap())
}

/// Says something and answers the last number that came of it.
async fn said(socket: &mut RawClient, turn: &str) -> u64 {
    said_in(socket, &chat(), turn).await
}

async fn said_in(socket: &mut RawClient, chat: &str, turn: &str) -> u64 {
    let action = json!({ "type": "chat/turnStarted", "turnId": turn, "message": { "text": "some words" } });
    socket.dispatch(chat, 1, action).await;
    let actions = socket.actions_until("chat/turnComplete").await;
    actions.last().unwrap()["serverSeq"].as_u64().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_client_of_the_host_before_a_restart_is_given_snapshots() {
    let mut seen = 0;
    for (at, started) in ["2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"].into_iter().enumerate() {
        let host = MemoryHost::builder()
            .plugin(ostler_plugin_echo::plugin(), json!({}))
            .started(started.parse().unwrap())
            .start()
            .await;
        let mut socket = host.raw();
        socket.initialize("maker").await;
        socket.request("createSession", json!({ "channel": SESSION })).await.unwrap();
        snapshot(&mut socket, &chat()).await;
        let last = said(&mut socket, "t1").await;
        // The second host has given out more numbers than the first, so that none of the first's is too high.
        for turn in ["t2", "t3"].into_iter().take(2 * at) {
            said(&mut socket, turn).await;
        }
        if at == 0 {
            seen = last;
            continue;
        }
        let mut back = host.raw();
        let params = json!({ "channel": "ahp-root://", "clientId": "c", "lastSeenServerSeq": seen,
            "subscriptions": [chat()] });
        let result = back.request("reconnect", params).await.unwrap();
        assert_eq!(result["type"], "snapshot", "{result}");
        assert_eq!(result["snapshots"][0]["state"]["turns"].as_array().unwrap().len(), 3);
    }
}

/// What a client does: which client, what, to what, and how.
#[derive(Clone, Copy)]
struct Choice(usize, Step, u8, u8);

impl std::fmt::Debug for Choice {
    /// On one line, however the steps around it are printed.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self(client, step, at, how) = self;
        write!(formatter, "Choice({client}, Step::{step:?}, {at}, {how})")
    }
}

fn choice() -> impl Strategy<Value = Choice> {
    let choice = (0..4_usize, 0..ROWS.len(), any::<u8>(), any::<u8>());
    choice.prop_map(|(client, row, at, how)| Choice(client, ROWS[row], at, how))
}

/// What the clients follow beside sessions: the host in memory has no terminals and no repositories.
const BESIDE: Beside = Beside { automations: true, terminals: false, changesets: false };

/// How a host is set up that plays steps.
#[derive(Debug, Clone, Copy)]
struct Setup {
    window: u64,
    replay: usize,
    resting: usize,
    /// Chooses how long each call of the store takes.
    seed: u64,
}

/// How long the calls of a store take: the same for a seed.
#[derive(Debug)]
struct Latency {
    dice: AtomicU64,
    writes: tokio::sync::Mutex<()>,
}

impl Latency {
    fn roll(&self) -> Duration {
        let mut dice = self.dice.load(Ordering::Relaxed);
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        self.dice.store(dice, Ordering::Relaxed);
        Duration::from_millis([0, 0, 0, 0, 0, 0, 1, 1, 20, 60, 60, 300][(dice >> 32) as usize % 12])
    }
}

/// The calls of a store take time before and after they have an effect. Time is paused while they have one.
struct Slow(Arc<Latency>);

impl WrapCall for Slow {
    fn wrap<S: Signature>(&self, call: &Call<S>, writes: bool) -> Call<S> {
        let (call, latency) = (call.clone(), self.0.clone());
        Call::new(move |arguments| {
            let (call, latency) = (call.clone(), latency.clone());
            async move {
                let _turn = match writes {
                    true => Some(latency.writes.lock().await),
                    false => None,
                };
                // Time is paused.
                tokio::time::sleep(latency.roll()).await;
                let answer = futures::executor::block_on(call.unbounded(arguments));
                // Time is paused.
                tokio::time::sleep(latency.roll()).await;
                answer
            }
        })
    }
}

/// The sessions of a database, whose calls take time.
fn store(db: &Arc<StateDb>, seed: u64) -> SessionStore {
    let own = Arc::new(SqliteSessions::new(db.clone(), ostler_ports::Report::new(|line| panic!("{line}"))))
        .into_point();
    let latency = Arc::new(Latency { dice: AtomicU64::new(seed | 1), writes: tokio::sync::Mutex::new(()) });
    wrapped_store(&own, &Slow(latency))
}

/// A client and its connection.
struct Peer {
    mirror: Mirror,
    line: Option<RawClient>,
}

impl Peer {
    fn connect(&mut self, host: &MemoryHost) {
        if self.line.is_none() {
            self.line = Some(host.raw());
            self.mirror.connect();
        }
    }

    /// Sends and reads what is there to send and to read.
    async fn exchange(&mut self) {
        let Some(line) = &mut self.line else { return };
        for frame in self.mirror.outgoing() {
            line.send(&frame).await;
        }
        for frame in line.ready_frames().await {
            self.mirror.receive(&frame);
        }
    }

    fn drop_line(&mut self) {
        if let Some(line) = self.line.take() {
            line.connection.close();
            self.mirror.disconnected();
        }
    }
}

/// Lets everybody send and read for a while.
async fn settle(peers: &mut [Peer], rounds: usize, each: Duration) {
    for _ in 0..rounds {
        for peer in peers.iter_mut() {
            peer.exchange().await;
        }
        // Time is paused.
        tokio::time::sleep(each).await;
    }
}

/// Plays steps on one host until it ends or there are none left; answers whether there may be more.
async fn play_on_one(
    host: &MemoryHost,
    peers: &mut [Peer],
    steps: &mut impl Iterator<Item = (usize, Choice)>,
) -> bool {
    for (number, Choice(client, step, at, how)) in steps {
        let peer = &mut peers[client];
        match step {
            Step::Drop => peer.drop_line(),
            Step::Return => peer.connect(host),
            Step::Restart => {
                if how % 2 == 1 {
                    host.host.stop().await;
                    host.host.close().await;
                }
                return true;
            }
            Step::Wait => settle(peers, 4, Duration::from_millis(u64::from(how) * u64::from(at) / 40)).await,
            step => peer.mirror.step(step, number, at, how),
        }
        settle(peers, 1, Duration::from_millis(u64::from(how % 4))).await;
    }
    false
}

/// Connects everybody, lets everything come to its end, and compares all with a client that has just come.
async fn compare_all(host: &MemoryHost, peers: &mut Vec<Peer>) {
    for peer in peers.iter_mut() {
        peer.connect(host);
    }
    settle(peers, 40, Duration::from_secs(1)).await;
    for peer in peers.iter_mut() {
        peer.mirror.want_everything();
    }
    settle(peers, 40, Duration::from_secs(1)).await;
    let own: BTreeSet<String> = peers.iter().flat_map(|peer| peer.mirror.own()).cloned().collect();
    let mut fresh = [("older", Version::V0_9), ("newer", Version::V1)]
        .map(|(name, version)| Peer { mirror: Mirror::new(name, version).with(BESIDE), line: None });
    for peer in &mut fresh {
        peer.mirror.follow_sessions(own.clone());
    }
    let count = peers.len();
    peers.extend(fresh);
    for peer in peers.iter_mut() {
        peer.connect(host);
    }
    settle(peers, 20, Duration::from_secs(1)).await;
    let (peers, fresh) = peers.split_at(count);
    for peer in peers {
        let fresh = fresh.iter().find(|fresh| fresh.mirror.version() == peer.mirror.version()).unwrap();
        let compared = fresh.mirror.compare(&fresh.mirror).and_then(|()| peer.mirror.compare(&fresh.mirror));
        compared.unwrap_or_else(|difference| panic!("{difference}"));
    }
}

fn play(steps: Vec<Choice>, setup: Setup) {
    let mut started: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let db = StateDb::memory().unwrap();
    // The store outlives the runtimes of the hosts, so its watchers have a separate one.
    let store_runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let automations = {
        let _entered = store_runtime.enter();
        Arc::new(MemoryAutomations::new(ostler_ports::Report::new(|line| panic!("{line}"))).unwrap())
    };
    let mut peers: Vec<Peer> = [Version::V1, Version::V0_9, Version::V1, Version::V0_9]
        .into_iter()
        .enumerate()
        .map(|(at, version)| Peer {
            mirror: Mirror::new(&format!("c{at}"), version).with(BESIDE),
            line: None,
        })
        .collect();
    let mut connected = vec![true; peers.len()];
    let mut steps = steps.into_iter().enumerate();
    for generation in 0.. {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let (more, took, host) = runtime.block_on(async {
            let begun = tokio::time::Instant::now();
            let host = MemoryHost::builder()
                .plugin(ostler_plugin_echo::plugin(), json!({}))
                .session_tools()
                .sessions(store(&db, setup.seed.wrapping_add(generation)))
                .automations(automations.clone().into_point())
                .started(started)
                .options(|options| {
                    options.delta_window_ms = setup.window;
                    options.replay = setup.replay;
                    options.resting_sessions = setup.resting;
                })
                .start()
                .await;
            for (peer, connected) in peers.iter_mut().zip(&connected) {
                if *connected {
                    peer.connect(&host);
                }
            }
            let more = play_on_one(&host, &mut peers, &mut steps).await;
            if !more {
                compare_all(&host, &mut peers).await;
            }
            (more, begun.elapsed(), host)
        });
        // Ends everything the host was doing.
        drop(runtime);
        drop(host);
        started += took + Duration::from_secs(1);
        connected = peers.iter().map(|peer| peer.line.is_some()).collect();
        for peer in &mut peers {
            peer.line = None;
            peer.mirror.host_ended();
        }
        if !more {
            break;
        }
    }
}

/// How many cases are played, which `OSTLER_RECONNECT_CASES` overrides.
const CASES: u32 = 64;

fn cases() -> u32 {
    std::env::var("OSTLER_RECONNECT_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(CASES)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]
    #[test]
    fn all_clients_end_equal(
        steps in proptest::collection::vec(choice(), 1..80),
        window in prop_oneof![Just(0_u64), Just(75)],
        replay in prop_oneof![Just(2_000_usize), Just(1 << 20)],
        resting in prop_oneof![Just(0_usize), Just(1000)],
        seed in any::<u64>(),
    ) {
        play(steps, Setup { window, replay, resting, seed });
    }
}

/// An annotation is stored while a backend speaks, and takes longer than the session waits for it.
#[test]
fn what_was_said_before_a_change_that_takes_time_to_store_is_told_before_it() {
    let steps = vec![
        Choice(0, Step::Create, 0, 1),
        Choice(0, Step::Wait, 15, 160),
        Choice(0, Step::Say, 0, 9),
        Choice(0, Step::Annotate, 0, 123),
    ];
    for seed in 0..40 {
        play(steps.clone(), Setup { window: 0, replay: 2000, resting: 0, seed: 7919 * seed + 1 });
    }
    let steps = [vec![Choice(0, Step::Wait, 0, 0); 2], steps].concat();
    play(steps, Setup { window: 0, replay: 2000, resting: 0, seed: 3_487_775_444_963_554_782 });
}

/// A client is away while a session is disposed and created again with the same URI.
#[tokio::test(start_paused = true)]
async fn a_session_does_not_continue_a_disposed_one_of_its_name() {
    let host = MemoryHost::builder().plugin(ostler_plugin_echo::plugin(), json!({})).start().await;
    let mut socket = host.raw();
    socket.initialize("maker").await;
    socket.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    snapshot(&mut socket, &chat()).await;
    let seen = said(&mut socket, "t1").await;
    assert_eq!(reconnected(&host, seen, json!([chat()])).await["type"], "replay");
    socket.request("disposeSession", json!({ "channel": SESSION })).await.unwrap();
    let gone = reconnected(&host, seen, json!(["ahp-root://", chat()])).await;
    assert_eq!((&gone["type"], &gone["missing"]), (&json!("replay"), &json!([chat()])), "{gone}");
    socket.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    for channel in [SESSION.to_owned(), chat(), format!("{SESSION}/annotations")] {
        let result = reconnected(&host, seen, json!([channel])).await;
        assert_eq!(result["type"], "snapshot", "{channel}: {result}");
    }
    let result = reconnected(&host, seen, json!([chat()])).await;
    assert_eq!(result["snapshots"][0]["state"]["turns"], json!([]), "{result}");
    assert_eq!(
        reconnected(&host, seen, json!(["ahp-root://"])).await["type"],
        "replay",
        "other channels are not affected"
    );
}

/// Reconnects and returns the answer.
async fn reconnected(host: &MemoryHost, seen: u64, subscriptions: Value) -> Value {
    let params = json!({ "channel": "ahp-root://", "clientId": "c", "lastSeenServerSeq": seen,
        "subscriptions": subscriptions });
    host.raw().request("reconnect", params).await.unwrap()
}

/// A client keeps its subscriptions of a disposed session, as the official one does, and sees numbers of other channels.
#[tokio::test(start_paused = true)]
async fn a_client_that_saw_a_session_end_is_not_resumed_on_a_later_one_of_its_name() {
    let host = MemoryHost::builder().plugin(ostler_plugin_echo::plugin(), json!({})).start().await;
    let mut socket = host.raw();
    socket.initialize("maker").await;
    socket.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    let (mut watcher, session_alias) = (host.raw(), "ahp-session:/one");
    watcher.initialize("c").await;
    let names = [SESSION, session_alias, &chat(), "ahp-chat:/one", &format!("{SESSION}/annotations")];
    for name in names {
        snapshot(&mut watcher, name).await;
    }
    snapshot(&mut socket, &chat()).await;
    said(&mut socket, "t1").await;
    socket.request("disposeSession", json!({ "channel": SESSION })).await.unwrap();
    socket.request("createSession", json!({ "channel": "echo:/other" })).await.unwrap();
    let other = ostler_protocol::uri::default_chat("echo:/other");
    snapshot(&mut socket, &other).await;
    let seen = said_in(&mut socket, &other, "t").await;
    socket.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    for name in names {
        let result = reconnected(&host, seen, json!([name])).await;
        assert_eq!(result["type"], "snapshot", "{name}: {result}");
    }
    assert_eq!(reconnected(&host, seen, json!([other])).await["type"], "replay");
}

/// The names of the default chat belong to the chat that has the role when the session is disposed.
#[tokio::test(start_paused = true)]
async fn names_of_the_default_chat_are_not_resumed_on_a_later_session() {
    let host = MemoryHost::builder().plugin(ostler_plugin_echo::plugin(), json!({})).start().await;
    let mut socket = host.raw();
    socket.initialize("maker").await;
    for session in [SESSION, "echo:/other"] {
        socket.request("createSession", json!({ "channel": session })).await.unwrap();
    }
    socket.request("createChat", json!({ "channel": SESSION, "chat": "ahp-chat:/own" })).await.unwrap();
    socket.request("disposeChat", json!({ "channel": chat() })).await.unwrap();
    let mut watcher = host.raw();
    watcher.initialize("c").await;
    let names = [chat(), "ahp-chat:/one".to_owned()];
    for name in &names {
        snapshot(&mut watcher, name).await;
    }
    socket.request("disposeSession", json!({ "channel": SESSION })).await.unwrap();
    let other = ostler_protocol::uri::default_chat("echo:/other");
    snapshot(&mut socket, &other).await;
    let seen = said_in(&mut socket, &other, "t").await;
    socket.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    for name in names {
        let result = reconnected(&host, seen, json!([name])).await;
        assert_eq!(result["type"], "snapshot", "{name}: {result}");
    }
}

/// Two names of a chat are those of whichever chat is the default.
#[tokio::test(start_paused = true)]
async fn a_name_is_not_resumed_on_the_chat_that_has_it_now() {
    let host = MemoryHost::builder().plugin(ostler_plugin_echo::plugin(), json!({})).start().await;
    let mut socket = host.raw();
    socket.initialize("maker").await;
    socket.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    let heir = "ahp-chat:/own";
    socket.request("createChat", json!({ "channel": SESSION, "chat": heir })).await.unwrap();
    snapshot(&mut socket, &chat()).await;
    let away = said(&mut socket, "t1").await;
    snapshot(&mut socket, heir).await;
    socket.request("disposeChat", json!({ "channel": chat() })).await.unwrap();
    let seen = said_in(&mut socket, heir, "t").await;
    for name in [chat(), "ahp-chat:/one".to_owned()] {
        // The second one was subscribed to the former default chat until it was closed.
        for seen in [away, seen] {
            let result = reconnected(&host, seen, json!([name])).await;
            assert_eq!(result["type"], "snapshot", "{name} after {seen}: {result}");
            assert_eq!(result["snapshots"][0]["state"]["turns"][0]["id"], "t", "{result}");
        }
    }
    assert_eq!(reconnected(&host, seen, json!([heir])).await["type"], "replay");
}

/// A session's default chat has two names: its own, and the one that follows whichever chat is the default.
#[tokio::test(start_paused = true)]
async fn each_name_of_a_channel_is_watched_and_let_go_on_its_own() {
    let host = MemoryHost::builder().plugin(ostler_plugin_echo::plugin(), json!({})).start().await;
    let mut socket = host.raw();
    socket.initialize("maker").await;
    socket.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    let own = "ahp-chat:/own";
    socket.request("createChat", json!({ "channel": SESSION, "chat": own })).await.unwrap();
    socket.request("disposeChat", json!({ "channel": chat() })).await.unwrap();
    snapshot(&mut socket, own).await;
    snapshot(&mut socket, &chat()).await;
    let turn =
        |turn: &str| json!({ "type": "chat/turnStarted", "turnId": turn, "message": { "text": "words" } });
    socket.dispatch(own, 1, turn("t1")).await;
    let mut ended = Vec::new();
    while ended.len() < 2 {
        let last = socket.actions_until("chat/turnComplete").await.pop().unwrap();
        ended.push(last["channel"].as_str().unwrap().to_owned());
    }
    ended.sort();
    assert_eq!(ended, [chat(), own.to_owned()], "both names are told");

    socket.notify("unsubscribe", json!({ "channel": chat() })).await;
    socket.dispatch(own, 2, turn("t2")).await;
    let seen = socket.actions_until("chat/turnComplete").await;
    assert!(seen.iter().all(|envelope| envelope["channel"] == own), "{seen:#?}");
    assert!(socket.ready_frames().await.is_empty());
}
