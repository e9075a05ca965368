//! Chats that are moved: within their session, into another one, and into one of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use ostler_contract::call::Signature;
use ostler_contract::points::{Emit, SessionStore};
use ostler_contract::{Call, Value, json};
use ostler_ports::{SqliteSessions, StateDb};
use ostler_testkit::cases::at_once;
use ostler_testkit::{Builder, MemoryHost, RawClient, Stage};

const FIRST: &str = "ahp-chat://default/c3RhZ2U6LzE";
const HAY: &str = "ahp-chat:/hay";
const OATS: &str = "ahp-chat:/oats";

fn kept(stage: &Stage, dir: &std::path::Path) -> Builder {
    let db = StateDb::open(dir).unwrap();
    let sessions =
        Arc::new(SqliteSessions::new(db, ostler_ports::Report::new(|line| panic!("{line}")))).into_point();
    MemoryHost::builder()
        .plugin(stage.plugin(), json!({}))
        .plugin(ostler_plugin_echo::plugin(), json!({}))
        .sessions(sessions)
        .options(|options| options.delta_window_ms = 0)
}

/// Two sessions, the first with three chats; in `hay` something was said.
async fn begun(host: &MemoryHost, stage: &Stage) -> RawClient {
    let mut client = host.raw();
    client.initialize("c").await;
    for session in ["stage:/1", "stage:/2"] {
        client.request("createSession", json!({ "channel": session })).await.unwrap();
    }
    for chat in [HAY, OATS] {
        client.request("createChat", json!({ "channel": "stage:/1", "chat": chat })).await.unwrap();
    }
    client.request("subscribe", json!({ "channel": HAY })).await.unwrap();
    let started = json!({ "type": "chat/turnStarted", "turnId": "t1", "message": { "text": "Hay?" } });
    client.dispatch(HAY, 1, started).await;
    client.actions_until("chat/turnStarted").await;
    stage.emit(2, Emit::Chat, json!({ "type": "chat/turnComplete", "turnId": "t1", "duration": 1 }));
    client.actions_until("chat/turnComplete").await;
    client
}

async fn state(client: &mut RawClient, channel: &str) -> Value {
    let subscribed = client.request("subscribe", json!({ "channel": channel })).await.unwrap();
    subscribed["snapshot"]["state"].clone()
}

async fn chats(client: &mut RawClient, session: &str) -> Vec<String> {
    let state = state(client, session).await;
    let chats = state["chats"].as_array().unwrap();
    chats.iter().map(|chat| chat["resource"].as_str().unwrap().to_owned()).collect()
}

async fn to(client: &mut RawClient, chat: &str, destination: Value) -> Result<Value, Value> {
    client.request("moveChat", json!({ "channel": chat, "destination": destination })).await
}

fn session(session: &str, after: Option<&str>) -> Value {
    match after {
        Some(after) => json!({ "kind": "session", "session": session, "after": after }),
        None => json!({ "kind": "session", "session": session }),
    }
}

#[tokio::test]
async fn a_chat_takes_another_place_in_its_session() {
    let (dir, stage) = (tempfile::tempdir().unwrap(), Stage::default().with_plain_chats());
    let host = kept(&stage, dir.path()).start().await;
    let mut client = begun(&host, &stage).await;
    let seen = state(&mut client, "stage:/1").await;
    let movable: Vec<&Value> =
        seen["chats"].as_array().unwrap().iter().map(|chat| &chat["movable"]).collect();
    assert_eq!(movable, [&Value::Null, &json!(true), &json!(true)], "the default chat stays");
    let moved = to(&mut client, HAY, session("ahp-session:/1", Some(OATS))).await;
    assert_eq!(moved, Ok(json!({ "session": "stage:/1" })));
    let reordered = client.actions_until("session/chatsReordered").await.pop().unwrap();
    assert_eq!(reordered["action"]["chats"], json!([FIRST, OATS, HAY]));
    to(&mut client, HAY, session("stage:/1", None)).await.unwrap();
    assert_eq!(chats(&mut client, "stage:/1").await, [HAY, FIRST, OATS]);
    to(&mut client, HAY, session("stage:/1", Some("ahp-chat:/1"))).await.unwrap();
    assert_eq!(
        chats(&mut client, "stage:/1").await,
        [FIRST, HAY, OATS],
        "behind the default chat, by its old name"
    );
    to(&mut client, OATS, session("stage:/1", Some(FIRST))).await.unwrap();
    drop(host);
    let host = kept(&stage, dir.path()).start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    assert_eq!(chats(&mut client, "stage:/1").await, [FIRST, OATS, HAY], "the order is kept");
    assert_eq!(state(&mut client, "stage:/1").await["defaultChat"], FIRST);
}

#[tokio::test]
async fn a_chat_goes_on_in_another_session() {
    let (dir, stage) = (tempfile::tempdir().unwrap(), Stage::default().with_plain_chats());
    let host = kept(&stage, dir.path()).start().await;
    let mut client = begun(&host, &stage).await;
    for channel in ["stage:/1", "stage:/2"] {
        client.request("subscribe", json!({ "channel": channel })).await.unwrap();
    }
    assert_eq!(to(&mut client, HAY, session("stage:/2", None)).await, Ok(json!({ "session": "stage:/2" })));
    let added = client.actions_until("session/chatAdded").await.pop().unwrap();
    assert_eq!(
        (&added["channel"], &added["action"]["summary"]["resource"]),
        (&json!("stage:/2"), &json!(HAY))
    );
    let removed = client.actions_until("session/chatRemoved").await.pop().unwrap();
    assert_eq!((&removed["channel"], &removed["action"]["chat"]), (&json!("stage:/1"), &json!(HAY)));
    assert_eq!(chats(&mut client, "stage:/1").await, [FIRST, OATS]);
    assert_eq!(chats(&mut client, "stage:/2").await[0], HAY, "first, where nothing is said");
    assert_eq!(state(&mut client, HAY).await["turns"][0]["message"]["text"], "Hay?");
    // Who watched it goes on watching, and its conversation is taken up again there.
    let started = json!({ "type": "chat/turnStarted", "turnId": "t2", "message": { "text": "More?" } });
    client.dispatch(HAY, 2, started).await;
    client.actions_until("chat/turnStarted").await;
    for _ in 0..20_000 {
        if stage.started() == 5 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    let start = stage.start(4);
    assert_eq!(
        (start.uri.as_str(), start.chat_uri.as_str(), start.chat_id.as_deref()),
        ("stage:/2", HAY, Some(HAY))
    );
    assert_eq!(start.seed.unwrap().len(), 1);
    stage.emit(4, Emit::Chat, json!({ "type": "chat/turnComplete", "turnId": "t2", "duration": 1 }));
    client.actions_until("chat/turnComplete").await;
    drop(host);
    let host = kept(&stage, dir.path()).start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    assert_eq!(state(&mut client, HAY).await["turns"].as_array().unwrap().len(), 2);
    assert_eq!(chats(&mut client, "stage:/1").await, [FIRST, OATS]);
    assert!(chats(&mut client, "stage:/2").await.contains(&HAY.to_owned()));
}

#[tokio::test]
async fn a_chat_becomes_a_session_of_its_own() {
    let (dir, stage) = (tempfile::tempdir().unwrap(), Stage::default().with_plain_chats());
    let host = kept(&stage, dir.path()).start().await;
    let mut client = begun(&host, &stage).await;
    let started = stage.started();
    let moved = to(&mut client, HAY, json!({ "kind": "newSession" })).await.unwrap();
    let session = moved["session"].as_str().unwrap().to_owned();
    assert!(session.starts_with("stage:/") && session != "stage:/1");
    let changed = client.actions_until("chat/movableChanged").await.pop().unwrap();
    assert_eq!(changed["action"]["movable"], false);
    let seen = state(&mut client, &session).await;
    assert_eq!((&seen["defaultChat"], &seen["title"]), (&json!(HAY), &json!("Hay?")));
    assert_eq!(seen["chats"][0]["movable"], false);
    assert_eq!(stage.started(), started, "nothing is started for nobody");
    assert_eq!(to(&mut client, HAY, json!({ "kind": "newSession" })).await.unwrap_err()["code"], -32602);
    drop(host);
    let host = kept(&stage, dir.path()).start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    let role = ostler_protocol::uri::default_chat(&session);
    assert_eq!(state(&mut client, &role).await["turns"][0]["message"]["text"], "Hay?");
    assert_eq!(chats(&mut client, "stage:/1").await, [FIRST, OATS]);
}

#[tokio::test]
async fn what_cannot_be_moved_stays_as_it_is() {
    let (dir, stage) = (tempfile::tempdir().unwrap(), Stage::default().with_plain_chats());
    let host = kept(&stage, dir.path()).start().await;
    let mut client = begun(&host, &stage).await;
    client.request("createSession", json!({ "channel": "echo:/3", "provider": "echo" })).await.unwrap();
    for (chat, destination, code, why) in [
        ("ahp-chat:/none", session("stage:/2", None), -32001, "No chat at ahp-chat:/none"),
        (HAY, session("stage:/none", None), -32001, "No agent for session stage:/none"),
        (FIRST, session("stage:/2", None), -32602, &*format!("{FIRST} cannot be moved")),
        (HAY, session("stage:/1", Some(HAY)), -32602, &*format!("{HAY} cannot be moved behind itself")),
        (HAY, session("stage:/1", Some("ahp-chat:/2")), -32602, "ahp-chat:/2 is not a chat in stage:/1"),
        (HAY, session("stage:/2", Some(OATS)), -32602, &*format!("{OATS} is not a chat in stage:/2")),
        (
            HAY,
            session("echo:/3", None),
            -32602,
            "cannot move a chat of stage to a session of echo: the providers differ",
        ),
        (HAY, json!({ "kind": "moon" }), -32602, "destination moon is unknown or lacks a field"),
    ] {
        let refused = to(&mut client, chat, destination.clone()).await.expect_err(why);
        assert_eq!(
            (&refused["code"], refused["message"].as_str().unwrap()),
            (&json!(code), why),
            "{destination}"
        );
    }
    let started = json!({ "type": "chat/turnStarted", "turnId": "t2", "message": { "text": "Busy." } });
    client.dispatch(HAY, 2, started).await;
    client.actions_until("chat/turnStarted").await;
    let busy = to(&mut client, HAY, session("stage:/2", None)).await.unwrap_err();
    assert_eq!(busy["code"], -32004, "{busy}");
    assert_eq!(chats(&mut client, "stage:/1").await, [FIRST, HAY, OATS]);
    assert_eq!(state(&mut client, HAY).await["activeTurn"]["id"], "t2");

    let mut older = host.raw();
    let params = json!({ "channel": "ahp-root://", "clientId": "old", "protocolVersions": ["0.9.0"] });
    older.request("initialize", params).await.unwrap();
    assert_eq!(to(&mut older, OATS, session("stage:/2", None)).await.unwrap_err()["code"], -32601);
}

/// A call of a store that is made only so many times, and never answers after that.
fn ending<S: Signature>(call: &Call<S>, left: &Arc<AtomicI64>) -> Call<S> {
    let (call, left) = (call.clone(), left.clone());
    Call::new(move |arguments| {
        let (call, left) = (call.clone(), left.clone());
        async move {
            if left.fetch_sub(1, Ordering::Relaxed) <= 0 {
                return std::future::pending().await;
            }
            call.unbounded(arguments).await
        }
    })
}

/// The sessions of a database, which takes so many more writes. `reads_on_demand` says whether it is read at the start
/// only.
fn killed_after(db: &Arc<StateDb>, left: &Arc<AtomicI64>, reads_on_demand: bool) -> SessionStore {
    let own = Arc::new(SqliteSessions::new(db.clone(), ostler_ports::Report::new(|line| panic!("{line}"))));
    let own = at_once(own.into_point());
    let store = SessionStore {
        set_config: ending(&own.set_config, left),
        set_chats: ending(&own.set_chats, left),
        set_chat_title: ending(&own.set_chat_title, left),
        set_flags: ending(&own.set_flags, left),
        forget: ending(&own.forget, left),
        set_turn: own.set_turn.as_ref().map(|call| ending(call, left)),
        drop_turns: own.drop_turns.as_ref().map(|call| ending(call, left)),
        set_attachment: own.set_attachment.as_ref().map(|call| ending(call, left)),
        ..own
    };
    match reads_on_demand {
        true => store,
        false => SessionStore { page: None, session_of_chat: None, drafts: None, ..store },
    }
}

/// Has something done on a host with these sessions, which then ends whatever it is doing.
fn on_host<T>(
    db: &Arc<StateDb>,
    reads_on_demand: bool,
    work: impl AsyncFnOnce(MemoryHost, Arc<AtomicI64>) -> T,
) -> T {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let left = Arc::new(AtomicI64::new(i64::MAX));
        let host = MemoryHost::builder()
            .plugin(ostler_plugin_echo::plugin(), json!({}))
            .sessions(killed_after(db, &left, reads_on_demand))
            .start()
            .await;
        work(host, left).await
    })
}

async fn says(client: &mut RawClient, chat: &str) {
    client.request("subscribe", json!({ "channel": chat })).await.unwrap();
    let started = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "Hay?" } });
    client.dispatch(chat, 1, started).await;
    client.actions_until("chat/turnComplete").await;
}

/// Moves a chat on a host that ends after so many writes; answers whether it was moved.
async fn moves(host: MemoryHost, left: Arc<AtomicI64>, writes: i64, destination: &Value) -> bool {
    let mut client = host.raw();
    client.initialize("c").await;
    for session in ["echo:/older", "echo:/one", "echo:/younger"] {
        client.request("createSession", json!({ "channel": session, "provider": "echo" })).await.unwrap();
        says(&mut client, &ostler_protocol::uri::default_chat(session)).await;
    }
    client.request("createChat", json!({ "channel": "echo:/one", "chat": HAY })).await.unwrap();
    says(&mut client, HAY).await;
    // What is written later is written.
    tokio::time::sleep(Duration::from_secs(1)).await;
    left.store(writes, Ordering::Relaxed);
    let moving = to(&mut client, HAY, destination.clone());
    tokio::time::timeout(Duration::from_secs(5), moving).await.is_ok_and(|moved| moved.is_ok())
}

/// Every chat is in one session, with what was said in it, and no session is without chats.
async fn has_all(host: MemoryHost, case: &str) {
    let mut client = host.raw();
    client.initialize("c").await;
    let listed = client.request("listSessions", json!({ "channel": "ahp-root://" })).await.unwrap();
    let mut all = Vec::new();
    for row in listed["items"].as_array().unwrap() {
        let session = row["resource"].as_str().unwrap();
        let held = chats(&mut client, session).await;
        assert!(!held.is_empty(), "{case}: {session} has no chats");
        for chat in &held {
            let turns = state(&mut client, chat).await["turns"].as_array().unwrap().len();
            assert_eq!(turns, 1, "{case}: {chat} of {session}");
        }
        all.extend(held);
    }
    assert_eq!(all.iter().filter(|chat| *chat == HAY).count(), 1, "{case}: {all:?}");
    assert_eq!(all.len(), 4, "{case}: {all:?}");
}

/// Each write may be the last one of a host that is killed.
#[test]
fn a_host_killed_in_a_move_leaves_each_chat_in_one_session_and_no_session_without_chats() {
    for reads_on_demand in [true, false] {
        for destination in
            [json!({ "kind": "newSession" }), session("echo:/older", None), session("echo:/younger", None)]
        {
            let moved = (0..40).position(|writes| {
                let case = format!("{writes} writes of a move to {destination}, on demand {reads_on_demand}");
                let db = StateDb::memory().unwrap();
                let moved = on_host(&db, reads_on_demand, async |host, left| {
                    moves(host, left, writes, &destination).await
                });
                on_host(&db, reads_on_demand, async |host, _| has_all(host, &case).await);
                moved
            });
            // Otherwise nothing was killed in the middle.
            assert!(moved.is_some_and(|writes| writes > 2), "{moved:?} writes for {destination}");
        }
    }
}

/// The chat is nowhere else before the other session has it.
#[tokio::test]
async fn a_session_that_stores_its_chats_keeps_one_that_is_on_its_way_to_another() {
    // The backend of the chat takes its time to end.
    let stage = Stage::default().with_plain_chats().never_closing();
    let sessions =
        SqliteSessions::new(StateDb::memory().unwrap(), ostler_ports::Report::new(|line| panic!("{line}")));
    let store = Arc::new(sessions).into_point();
    let host = MemoryHost::builder().plugin(stage.plugin(), json!({})).sessions(store.clone()).start().await;
    let mut client = begun(&host, &stage).await;
    client.request("subscribe", json!({ "channel": OATS })).await.unwrap();
    let params = json!({ "channel": HAY, "destination": { "kind": "newSession" } });
    let moving = json!({ "jsonrpc": "2.0", "id": 1000, "method": "moveChat", "params": params });
    client.send(&moving.to_string()).await;
    stage.wait_told("close").await;
    let draft = json!({ "text": "Oats?", "origin": { "kind": "user" } });
    client.dispatch(OATS, 2, json!({ "type": "chat/draftChanged", "draft": draft })).await;
    client.actions_until("chat/draftChanged").await;
    let mut stored = Vec::new();
    for _ in 0..200 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        stored = store.chats.unbounded(("1".into(),)).await.unwrap();
        if stored.iter().any(|chat| chat.draft.is_some()) {
            break;
        }
    }
    let uris: Vec<&str> = stored.iter().map(|chat| chat.uri.as_str()).collect();
    assert_eq!(uris, [FIRST, HAY, OATS], "{stored:?}");
}
