//! Turns taken back: from a chat's clients, from the store and from its backend.

use std::sync::Arc;

use ostler_contract::points::{Emit, SessionStore};
use ostler_contract::{Value, json};
use ostler_ports::{SqliteSessions, StateDb};
use ostler_testkit::{MemoryHost, RawClient, Stage};

const SESSION: &str = "stage:/1";
const CHAT: &str = "ahp-chat://default/c3RhZ2U6LzE";

fn store(dir: &std::path::Path) -> SessionStore {
    let db = StateDb::open(dir).unwrap();
    Arc::new(SqliteSessions::new(db, ostler_ports::Report::new(|line| panic!("{line}")))).into_point()
}

async fn host(stage: &Stage, dir: &std::path::Path) -> MemoryHost {
    let builder = MemoryHost::builder().plugin(stage.plugin(), json!({})).sessions(store(dir));
    builder.options(|options| options.delta_window_ms = 0).start().await
}

async fn watching(host: &MemoryHost) -> RawClient {
    let mut client = host.raw();
    client.initialize("c").await;
    for channel in [SESSION, CHAT] {
        client.request("subscribe", json!({ "channel": channel })).await.unwrap();
    }
    client
}

/// A client in a session with two turns, `t1` and `t2`, of its backend's first start.
async fn talked(host: &MemoryHost, stage: &Stage) -> RawClient {
    let mut client = host.raw();
    client.initialize("c").await;
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    for channel in [SESSION, CHAT] {
        client.request("subscribe", json!({ "channel": channel })).await.unwrap();
    }
    for turn in ["t1", "t2"] {
        say(&mut client, stage, 0, turn).await;
    }
    client
}

/// A turn said and ended; the backend answers its `number`th start.
async fn say(client: &mut RawClient, stage: &Stage, number: usize, turn: &str) {
    begin(client, stage, turn).await;
    stage.emit(number, Emit::Chat, json!({ "type": "chat/turnComplete", "turnId": turn, "duration": 0 }));
    client.actions_until("chat/turnComplete").await;
}

async fn begin(client: &mut RawClient, stage: &Stage, turn: &str) {
    let started = json!({ "type": "chat/turnStarted", "turnId": turn, "message": { "text": turn } });
    client.dispatch(CHAT, 1, started).await;
    client.actions_until("chat/turnStarted").await;
    stage.wait_begun(turn).await;
}

async fn truncate(client: &mut RawClient, after: Option<&str>) -> Value {
    let mut action = json!({ "type": "chat/truncated" });
    if let Some(turn) = after {
        action["turnId"] = turn.into();
    }
    client.dispatch(CHAT, 7, action).await;
    client.actions_until("chat/truncated").await.pop().unwrap()
}

async fn turns(client: &mut RawClient) -> Vec<String> {
    let subscribed = client.request("subscribe", json!({ "channel": CHAT })).await.unwrap();
    let turns = subscribed["snapshot"]["state"]["turns"].as_array().unwrap().clone();
    turns.iter().map(|turn| turn["id"].as_str().unwrap().to_owned()).collect()
}

/// What a start says of the conversation it continues: the backend's id, where it rewinds to, the turns it is handed.
fn continued(stage: &Stage, number: usize) -> Value {
    let start = stage.start(number);
    let seed = start.seed.map(|turns| turns.into_iter().map(|turn| turn.id).collect::<Vec<_>>());
    json!([start.resume, start.rewind_at, seed])
}

#[tokio::test]
async fn starting_over_removes_every_turn_and_the_conversation_at_the_backend() {
    let (dir, stage) = (tempfile::tempdir().unwrap(), Stage::default().naming_conversations());
    let host = host(&stage, dir.path()).await;
    let mut client = talked(&host, &stage).await;
    let echoed = truncate(&mut client, None).await;
    assert_eq!(echoed["origin"], json!({ "clientId": "c", "clientSeq": 7 }));
    assert_eq!(echoed["rejectionReason"], Value::Null);
    assert_eq!(turns(&mut client).await, Vec::<String>::new());
    let listed = client.request("listSessions", json!({})).await.unwrap();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1, "it was announced once and stays");
    // What the old backend still says is of nothing.
    stage.emit(
        0,
        Emit::Chat,
        json!({ "type": "chat/turnStarted", "turnId": "late", "startedAt": "2026-01-01T00:00:00Z",
        "message": { "text": "late", "origin": { "kind": "agent" } } }),
    );
    say(&mut client, &stage, 1, "t3").await;
    assert_eq!(continued(&stage, 1), json!([null, null, null]), "another conversation");
    assert_eq!(turns(&mut client).await, ["t3"]);
    let told: Vec<Value> = stage.told().into_iter().filter(|told| told.get("begin").is_none()).collect();
    assert_eq!(told, [json!({ "close": true }), json!({ "delete": "own-0" })]);
    // On a chat without turns there is nothing to take back, and its backend stays.
    truncate(&mut client, None).await;
    assert_eq!(turns(&mut client).await, Vec::<String>::new());
    truncate(&mut client, None).await;
    say(&mut client, &stage, 2, "t4").await;
    assert_eq!((stage.started(), turns(&mut client).await), (3, vec!["t4".to_owned()]));
}

#[tokio::test]
async fn a_chat_that_was_started_over_stays_so_after_a_restart() {
    let (dir, stage) = (tempfile::tempdir().unwrap(), Stage::default().naming_conversations());
    let first = host(&stage, dir.path()).await;
    let mut client = talked(&first, &stage).await;
    truncate(&mut client, None).await;
    // As a crash leaves it: nothing is closed.
    let again = host(&stage, dir.path()).await;
    let mut client = watching(&again).await;
    assert_eq!(turns(&mut client).await, Vec::<String>::new());
    say(&mut client, &stage, 1, "t3").await;
    assert_eq!(continued(&stage, 1), json!([null, null, null]));
    drop(first);
}

#[tokio::test]
async fn turns_after_one_are_removed_here_and_at_the_backend_even_over_a_restart() {
    let (dir, stage) = (tempfile::tempdir().unwrap(), Stage::default().naming_conversations());
    let first = host(&stage, dir.path()).await;
    let mut client = talked(&first, &stage).await;
    truncate(&mut client, Some("t1")).await;
    assert_eq!(turns(&mut client).await, ["t1"]);
    let again = host(&stage, dir.path()).await;
    let mut client = watching(&again).await;
    assert_eq!(turns(&mut client).await, ["t1"]);
    say(&mut client, &stage, 1, "t3").await;
    assert_eq!(continued(&stage, 1), json!(["own-0", "t1", ["t1"]]));
    assert!(!stage.told().iter().any(|told| told.get("delete").is_some()), "{:?}", stage.told());
    // It was told: the next one continues where the conversation is.
    let last = host(&stage, dir.path()).await;
    let mut client = watching(&last).await;
    say(&mut client, &stage, 2, "t4").await;
    assert_eq!(continued(&stage, 2), json!(["own-0", null, ["t1", "t3"]]));
    drop((first, again));
}

#[tokio::test]
async fn a_running_turn_is_dropped_and_everybody_who_waits_for_it_is_told() {
    for after in [None, Some("t2")] {
        let (dir, stage) = (tempfile::tempdir().unwrap(), Stage::default().naming_conversations());
        let host = host(&stage, dir.path()).await;
        let mut client = talked(&host, &stage).await;
        begin(&mut client, &stage, "t3").await;
        let question = json!({ "kind": "chatInput", "id": "q", "chat": CHAT, "request": { "id": "q", "message": "Which?" } });
        stage.emit(0, Emit::Session, json!({ "type": "session/inputNeededSet", "request": question }));
        client.actions_until("session/inputNeededSet").await;
        client.dispatch(CHAT, 7, json!({ "type": "chat/truncated", "turnId": after })).await;
        let seen = client.actions_until("chat/truncated").await;
        let kinds: Vec<&str> = seen.iter().map(|seen| seen["action"]["type"].as_str().unwrap()).collect();
        assert!(kinds.contains(&"session/inputNeededRemoved"), "{kinds:?}");
        assert!(!kinds.contains(&"chat/turnCancelled"), "the turn is dropped without a word: {kinds:?}");
        let left = if after.is_some() { vec!["t1", "t2"] } else { vec![] };
        assert_eq!(turns(&mut client).await, left);
        say(&mut client, &stage, 1, "t4").await;
        let told: Vec<Value> = stage.told().into_iter().filter(|told| told.get("begin").is_none()).collect();
        assert_eq!(told[..2], [json!({ "cancel": "t3" }), json!({ "close": after.is_none() })]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_dropped_does_not_change_when_its_chat_was_modified() {
    let (stage, host) = (Stage::default(), MemoryHost::builder());
    let host = host.plugin(stage.plugin(), json!({})).start().await;
    let mut client = talked(&host, &stage).await;
    begin(&mut client, &stage, "t3").await;
    let modified = async |client: &mut RawClient| {
        let subscribed = client.request("subscribe", json!({ "channel": CHAT })).await.unwrap();
        subscribed["snapshot"]["state"]["modifiedAt"].clone()
    };
    let before = modified(&mut client).await;
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    truncate(&mut client, Some("t1")).await;
    assert_eq!(modified(&mut client).await, before, "the reducers of its watchers leave it as it is");
}

#[tokio::test]
async fn a_backend_is_rewound_by_its_own_names_of_turns() {
    let stage = Stage::default().naming_conversations().recording();
    let dir = tempfile::tempdir().unwrap();
    let first = host(&stage, dir.path()).await;
    let mut client = talked(&first, &stage).await;
    truncate(&mut client, Some("t1")).await;
    say(&mut client, &stage, 1, "t3").await;
    assert_eq!(continued(&stage, 1), json!(["own-0", "own-t1", ["t1"]]));
    // A name that comes after the end of its turn counts as well, and names stay over restarts.
    stage.start(1).on_turn_recorded.call(("t3".to_owned(), "later".to_owned())).unwrap();
    say(&mut client, &stage, 1, "t4").await;
    let again = host(&stage, dir.path()).await;
    let mut client = watching(&again).await;
    truncate(&mut client, Some("t3")).await;
    say(&mut client, &stage, 2, "t5").await;
    assert_eq!(continued(&stage, 2), json!(["own-0", "later", ["t1", "t3"]]));
    drop(first);
}
