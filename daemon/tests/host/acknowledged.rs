//! Nothing is acknowledged before it is durable: a daemon that is killed at any moment, right after an answer or during a
//! commit, has everything after the next start that a client saw acknowledged.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Client, Daemon, Folder, Signal, tell};
use futures::future::join_all;
use serde_json::{Value, json};

/// Clients that work at the same time.
const CLIENTS: usize = 6;
/// How often the daemon is killed, and how long all rounds together take at most.
const ROUNDS: u64 = 16;
const TOGETHER: Duration = Duration::from_secs(15);
/// At most this many acknowledgments are seen before a kill.
const MOST: u64 = 60;
/// How long clients wait for acknowledgments that must not come. Nothing is ordered after them: what is asked next of a
/// session waits for the same commit.
const SILENCE: Duration = Duration::from_millis(200);

/// What clients saw acknowledged, by session.
#[derive(Debug, Default)]
struct Session {
    /// The title its client saw last, and the one it asked for after that, which may be stored or not.
    title: Option<String>,
    asked: Option<String>,
    turns: Vec<String>,
}

/// Kills the daemon as soon as so many acknowledgments were seen.
struct Trap {
    left: AtomicU64,
    pid: u32,
}

impl Trap {
    /// Counts an acknowledgment that was just read.
    fn seen(&self) {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            tell(self.pid, Signal::KILL);
        }
    }
}

/// Reads actions until one of this client has this type; nothing where the daemon is killed before.
async fn echo(client: &mut Client, name: &str) -> Option<()> {
    loop {
        let frame = client.next_frame().await?;
        let params = &frame["params"];
        if params["action"]["type"] == name && params["origin"].is_object() {
            assert!(params.get("rejectionReason").is_none(), "{frame}");
            return Some(());
        }
    }
}

/// Creates sessions, renames them and starts turns in them until the daemon is killed.
async fn work(mut client: Client, name: String, trap: Arc<Trap>) -> BTreeMap<String, Session> {
    let mut seen = BTreeMap::new();
    for at in 0.. {
        let session = format!("echo:/{name}-{at}");
        if let Some(false) | None = one(&mut client, &session, &trap, &mut seen).await {
            break;
        }
    }
    seen
}

async fn one(
    client: &mut Client,
    session: &str,
    trap: &Trap,
    seen: &mut BTreeMap<String, Session>,
) -> Option<bool> {
    client.try_request("createSession", json!({ "channel": session, "provider": "echo" })).await?.unwrap();
    trap.seen();
    let acknowledged = seen.entry(session.to_owned()).or_default();
    let chat = ostler_protocol::uri::default_chat(session);
    for channel in [session, &chat] {
        client.try_request("subscribe", json!({ "channel": channel })).await?.unwrap();
    }
    for round in 0..3 {
        let title = format!("title {round}");
        acknowledged.asked = Some(title.clone());
        let action = json!({ "type": "session/titleChanged", "title": title });
        client.try_dispatch(session, 2 * round, action).await.then_some(())?;
        echo(client, "session/titleChanged").await?;
        trap.seen();
        acknowledged.title = acknowledged.asked.take();
        let turn = format!("t{round}");
        let text = format!("say {round}");
        let action = json!({ "type": "chat/turnStarted", "turnId": turn, "message": { "text": text } });
        client.try_dispatch(&chat, 2 * round + 1, action).await.then_some(())?;
        echo(client, "chat/turnStarted").await?;
        trap.seen();
        acknowledged.turns.push(turn);
        while client.next_frame().await?["params"]["action"]["type"] != "chat/turnComplete" {}
    }
    Some(true)
}

/// Everything that was acknowledged is there.
async fn check(daemon: &Daemon, seen: &BTreeMap<String, Session>) {
    let mut client = daemon.initialized("checker").await;
    for (uri, acknowledged) in seen {
        let found = client.request("subscribe", json!({ "channel": uri })).await;
        let found = found.unwrap_or_else(|error| panic!("{uri} was created and is gone: {error}"));
        let title = found["snapshot"]["state"]["title"].as_str().unwrap();
        let expected = [acknowledged.title.as_deref(), acknowledged.asked.as_deref()];
        assert!(
            acknowledged.title.is_none() || expected.contains(&Some(title)),
            "{uri}: {title} {acknowledged:?}"
        );
        let chat = client.subscribe(&ostler_protocol::uri::default_chat(uri)).await;
        let turns: Vec<&str> =
            chat["turns"].as_array().unwrap().iter().filter_map(|turn| turn["id"].as_str()).collect();
        for turn in &acknowledged.turns {
            assert!(turns.contains(&turn.as_str()), "{uri} has lost its turn {turn}: {turns:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_just_before_a_kill_is_there_after_the_next_start() {
    let seed = RandomState::new().build_hasher().finish();
    println!("seed {seed}");
    let folder = Folder::new(json!({ "plugins": [{ "name": "@ostler/echo" }] }));
    let begun = Instant::now();
    let (mut all, mut last) = (0, BTreeMap::new());
    for round in 0..ROUNDS {
        if round >= ROUNDS / 4 && begun.elapsed() > TOGETHER {
            break;
        }
        let daemon = folder.start();
        check(&daemon, &last).await;
        // The moment after an answer, whichever it is; the first of a start among them.
        let left = seed.rotate_left(u32::try_from(round).unwrap() * 5) % MOST + 1;
        let left = if round == 0 { 1 } else { left };
        let trap = Arc::new(Trap { left: AtomicU64::new(left), pid: daemon.child.id() });
        let mut clients = Vec::new();
        for at in 0..CLIENTS {
            let name = format!("r{round}c{at}");
            clients.push((daemon.initialized(&name).await, name));
        }
        let work = clients.into_iter().map(|(client, name)| tokio::spawn(work(client, name, trap.clone())));
        let work: Vec<_> = work.collect();
        last = BTreeMap::new();
        for client in work {
            last.append(&mut client.await.unwrap());
        }
        daemon.kill();
        all += last.len();
    }
    let daemon = folder.start();
    check(&daemon, &last).await;
    println!("{all} sessions");
    assert!(all >= 4);
}

/// What one client waits for while nothing can be committed.
struct Waiting {
    client: Client,
    session: &'static str,
    wanted: &'static str,
}

impl Waiting {
    /// Asks for one thing that has to be durable before it is acknowledged.
    async fn ask(daemon: &Daemon, session: &'static str, wanted: &'static str) -> Self {
        let mut client = daemon.initialized(session).await;
        let chat = ostler_protocol::uri::default_chat(session);
        if wanted != "createSession" {
            client.request("createSession", json!({ "channel": session })).await.unwrap();
            client.subscribe(session).await;
            client.subscribe(&chat).await;
        }
        Self { client, session, wanted }
    }

    async fn send(&mut self) {
        let chat = ostler_protocol::uri::default_chat(self.session);
        match self.wanted {
            "createSession" => {
                let params = json!({ "channel": self.session });
                let request =
                    json!({ "jsonrpc": "2.0", "id": 99, "method": "createSession", "params": params });
                self.client.send(&request.to_string()).await;
            }
            "session/titleChanged" => {
                let action = json!({ "type": self.wanted, "title": "Durable" });
                self.client.dispatch(self.session, 1, action).await;
            }
            _ => {
                let action = json!({ "type": self.wanted, "turnId": "t", "message": { "text": "say it" } });
                self.client.dispatch(&chat, 1, action).await;
            }
        }
    }

    /// Whether a frame acknowledges it, or shows anything of it.
    fn shows(&self, frame: &Value) -> bool {
        let kind = frame["params"]["action"]["type"].as_str().unwrap_or_default();
        frame["id"] == 99 || kind == self.wanted || kind.starts_with("chat/")
    }

    /// No frame acknowledges it for a while.
    async fn stay_silent(&mut self) {
        let until = tokio::time::Instant::now() + SILENCE;
        while let Ok(frame) = tokio::time::timeout_at(until, self.client.next_frame()).await {
            let frame = frame.expect("the connection is open");
            assert!(!self.shows(&frame), "acknowledged before it is durable: {frame}");
        }
    }

    async fn acknowledged(&mut self) {
        loop {
            let frame = self.client.next_frame().await.expect("the connection is open");
            if self.shows(&frame) {
                assert!(frame.get("error").is_none(), "{frame}");
                return;
            }
        }
    }

    fn seen(&self) -> (String, Session) {
        let mut seen = Session::default();
        match self.wanted {
            "session/titleChanged" => seen.title = Some("Durable".to_owned()),
            "chat/turnStarted" => seen.turns.push("t".to_owned()),
            _ => {}
        }
        (self.session.to_owned(), seen)
    }
}

async fn waiting(daemon: &Daemon) -> Vec<Waiting> {
    let mut all = Vec::new();
    for (session, wanted) in [
        ("echo:/created", "createSession"),
        ("echo:/renamed", "session/titleChanged"),
        ("echo:/begun", "chat/turnStarted"),
    ] {
        all.push(Waiting::ask(daemon, session, wanted).await);
    }
    all
}

/// Another process that has locked the database: no commit succeeds until this is dropped.
fn locked(folder: &Folder) -> rusqlite::Connection {
    let other = rusqlite::Connection::open(folder.state_file("state.db")).unwrap();
    other.busy_timeout(Duration::from_secs(5)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    other
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_acknowledged_while_it_cannot_be_committed() {
    let folder = Folder::new(json!({ "plugins": [{ "name": "@ostler/echo" }] }));
    let daemon = folder.start();
    let mut clients = waiting(&daemon).await;
    let lock = locked(&folder);
    for client in &mut clients {
        client.send().await;
    }
    join_all(clients.iter_mut().map(Waiting::stay_silent)).await;
    // Killed during the commit: nothing was promised, and the next start is whole.
    daemon.kill();
    drop(lock);
    let daemon = folder.start();
    check(
        &daemon,
        &clients.iter().skip(1).map(|client| (client.session.to_owned(), Session::default())).collect(),
    )
    .await;
    daemon.kill();

    // Killed right after the commit that was waited for.
    let folder = Folder::new(json!({ "plugins": [{ "name": "@ostler/echo" }] }));
    let daemon = folder.start();
    let mut clients = waiting(&daemon).await;
    let lock = locked(&folder);
    for client in &mut clients {
        client.send().await;
    }
    drop(lock);
    for client in &mut clients {
        client.acknowledged().await;
    }
    daemon.kill();
    check(&folder.start(), &clients.iter().map(Waiting::seen).collect()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marks_and_drafts_are_published_though_nothing_can_be_committed() {
    let folder = Folder::new(json!({ "plugins": [{ "name": "@ostler/echo" }] }));
    let daemon = folder.start();
    let mut client = daemon.initialized("c").await;
    let session = "echo:/1";
    let chat = ostler_protocol::uri::default_chat(session);
    client.request("createSession", json!({ "channel": session })).await.unwrap();
    client.subscribe(session).await;
    client.subscribe(&chat).await;
    let lock = locked(&folder);
    let mark = json!({ "type": "session/isReadChanged", "isRead": true });
    let draft =
        json!({ "type": "chat/draftChanged", "draft": { "text": "half", "origin": { "kind": "user" } } });
    client.dispatch(session, 1, mark).await;
    echo(&mut client, "session/isReadChanged").await.unwrap();
    client.dispatch(&chat, 2, draft).await;
    echo(&mut client, "chat/draftChanged").await.unwrap();
    drop(lock);
    // A host that stops in order loses none.
    assert_eq!(daemon.stop(), Some(0));
    let daemon = folder.start();
    let mut client = daemon.initialized("c").await;
    assert_eq!(client.subscribe(&chat).await["draft"]["text"], "half");
    let read = ostler_protocol::wire::state::SessionStatus::IsRead.bits();
    let status = client.subscribe(session).await["status"].as_u64().unwrap();
    assert_ne!(status & u64::from(read), 0);
}

/// Counts the commits in the database's log: the last page of each has the size of the database in its header.
fn commits(folder: &Folder) -> usize {
    const HEADER: usize = 32;
    const FRAME: usize = 24;
    let log = std::fs::read(folder.state_file("state.db-wal")).unwrap();
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap()) as usize;
    let (page, salts) = (number(&log[8..12]), &log[16..24]);
    let frames = log[HEADER..].chunks_exact(FRAME + page).take_while(|frame| &frame[8..16] == salts);
    frames.filter(|frame| number(&frame[4..8]) > 0).count()
}

/// How long the log does not grow once what the host writes later is written: the thread that writes rests for half a
/// second at most before it writes more.
const LATER: Duration = Duration::from_millis(650);

/// Waits until what the host writes later is written; returns the number of commits.
async fn settled(folder: &Folder) -> usize {
    let (mut seen, mut since) = (commits(folder), Instant::now());
    while since.elapsed() < LATER {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let now = commits(folder);
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
    }
    seen
}

/// A turn, and the commits of its start and its end.
const TURN: (&str, usize) = ("a turn", 2);
/// The same with what the host writes later, and the most commits that it takes.
const TURN_AND_ROW: (&str, usize) = ("a turn and the row of its session", 3);
/// How often the commits are counted: if the computer stops this test for a tenth of a second, it also counts what the host
/// writes later, but hardly each time.
const ATTEMPTS: usize = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_acknowledged_takes_one_commit() {
    let mut fewest = commits_taken().await;
    let is_more = |(name, taken): &(&String, &usize)| {
        let turn = [TURN, TURN_AND_ROW].into_iter().find(|(turn, _)| name == turn);
        **taken > turn.map_or(1, |(_, most)| most)
    };
    for _ in 1..ATTEMPTS {
        if !fewest.iter().any(|taken| is_more(&taken)) {
            break;
        }
        for (name, taken) in commits_taken().await {
            fewest.entry(name).and_modify(|fewest| *fewest = taken.min(*fewest));
        }
    }
    let wrong: Vec<_> = fewest.iter().filter(is_more).collect();
    assert!(wrong.is_empty(), "these always took more commits: {wrong:?}");
    assert!(fewest.values().all(|taken| *taken > 0), "some took no commit: {fewest:?}");
    assert_eq!(fewest[TURN.0], TURN.1);
}

/// Returns the number of commits of each operation, until the test saw its acknowledgment.
async fn commits_taken() -> BTreeMap<String, usize> {
    let mut taken = BTreeMap::new();
    let folder = Folder::new(json!({ "plugins": [{ "name": "@ostler/echo" }] }));
    let daemon = folder.start();
    let mut client = daemon.initialized("c").await;
    client.request("createSession", json!({ "channel": "echo:/warm" })).await.unwrap();
    let session = "echo:/1";
    let chat = ostler_protocol::uri::default_chat(session);

    let before = settled(&folder).await;
    client.request("createSession", json!({ "channel": session })).await.unwrap();
    taken.insert("createSession".to_owned(), commits(&folder) - before);
    client.subscribe(session).await;
    client.subscribe(&chat).await;

    for (at, (channel, action)) in [
        (session, json!({ "type": "session/titleChanged", "title": "Plan" })),
        (session, json!({ "type": "session/isArchivedChanged", "isArchived": true })),
        (&*chat, json!({ "type": "chat/turnStarted", "turnId": "t1", "message": { "text": "/hang" } })),
        (
            &*chat,
            json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": "q",
            "message": { "text": "Next.", "origin": { "kind": "user" } } }),
        ),
        (&*chat, json!({ "type": "chat/pendingMessageRemoved", "kind": "queued", "id": "q" })),
        (&*chat, json!({ "type": "chat/turnCancelled", "turnId": "t1" })),
        (&*chat, json!({ "type": "chat/truncated" })),
    ]
    .into_iter()
    .enumerate()
    {
        let name = action["type"].as_str().unwrap().to_owned();
        let before = settled(&folder).await;
        client.dispatch(channel, i64::try_from(at).unwrap(), action).await;
        echo(&mut client, &name).await.unwrap();
        taken.insert(name, commits(&folder) - before);
    }

    let before = settled(&folder).await;
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t2", "message": { "text": "/words 1" } });
    client.dispatch(&chat, 90, turn).await;
    while client.next_frame().await.unwrap()["params"]["action"]["type"] != "chat/turnComplete" {}
    taken.insert(TURN.0.to_owned(), commits(&folder) - before);
    // With what the host writes later.
    taken.insert(TURN_AND_ROW.0.to_owned(), settled(&folder).await - before);
    taken
}
