//! Sessions before their first turn: told of to nobody, removed once their clients are gone, found again by those that
//! come back.

use std::sync::Arc;
use std::time::Duration;

use ostler_contract::events::{Event, EventName};
use ostler_contract::host::SessionRequest;
use ostler_contract::points::{Emit, SessionStore};
use ostler_contract::{Call, Frozen, Plugin, Value, json};
use ostler_ports::{SqliteSessions, StateDb};
use ostler_testkit::cases::empty_sessions;
use ostler_testkit::{Builder, MemoryHost, RawClient, Stage};

const SESSION: &str = "stage:/1";
const CHAT: &str = "ahp-chat://default/c3RhZ2U6LzE";
/// Just before a draft no client uses is removed, and the rest of that time and a little more.
const ALMOST: Duration = Duration::from_millis(29_900);
const REST: Duration = Duration::from_millis(200);

/// A plugin that logs what it hears of sessions and turns.
fn listener() -> Plugin {
    Plugin::new("@test/listener", |host, _| {
        Box::pin(async move {
            for name in [EventName::SessionStart, EventName::SessionEnd, EventName::TurnStart] {
                let log = host.clone();
                host.on(
                    name,
                    Call::now(move |(event, _): (Frozen<Event>, _)| {
                        log.log(serde_json::to_string(&event.0).unwrap())
                    }),
                )?;
            }
            Ok(())
        })
    })
}

fn builder(stage: &Stage) -> Builder {
    MemoryHost::builder()
        .plugin(stage.plugin(), json!({}))
        .plugin(listener(), json!({}))
        .options(|options| options.delta_window_ms = 0)
}

fn heard(host: &MemoryHost) -> Vec<Value> {
    let lines = host.log.all();
    let heard = lines.iter().filter_map(|line| line.strip_prefix("plugin listener: "));
    heard.filter_map(|event| serde_json::from_str(event).ok()).collect()
}

async fn client(host: &MemoryHost, name: &str) -> RawClient {
    let mut client = host.raw();
    client.initialize(name).await;
    client
}

async fn watch(client: &mut RawClient, channel: &str) -> Value {
    let subscribed = client.request("subscribe", json!({ "channel": channel })).await.unwrap();
    subscribed["snapshot"]["state"].clone()
}

async fn create(client: &mut RawClient) {
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
}

async fn listed(client: &mut RawClient) -> Vec<Value> {
    client.request("listSessions", json!({})).await.unwrap()["items"].as_array().unwrap().clone()
}

fn turn(id: &str, text: &str) -> Value {
    json!({ "type": "chat/turnStarted", "turnId": id, "message": { "text": text } })
}

fn is_there(host: &MemoryHost) -> bool {
    host.host.sessions.by_uri(SESSION).is_some()
}

/// Lets time pass, and everything happen that is due.
async fn pass(time: Duration) {
    // Time is paused.
    tokio::time::sleep(time).await;
}

/// What a client that watches the root was told, by method or action.
async fn told(watcher: &mut RawClient) -> Vec<String> {
    let frames = watcher.ready_frames().await;
    let name = |frame: &Value| match frame["method"].as_str() {
        Some("action") => frame["params"]["action"]["type"].as_str().unwrap_or_default().to_owned(),
        other => other.unwrap_or_default().to_owned(),
    };
    frames.iter().map(name).collect()
}

#[tokio::test(start_paused = true)]
async fn a_session_is_announced_with_its_first_turn() {
    let stage = Stage::default().with_chats();
    let host = builder(&stage).start().await;
    let mut watcher = client(&host, "w").await;
    watch(&mut watcher, "ahp-root://").await;
    let mut client = client(&host, "c").await;
    create(&mut client).await;
    assert_eq!(stage.started(), 1, "its backend is there once createSession is answered");
    assert_eq!(watch(&mut client, SESSION).await["lifecycle"], "creating");
    watch(&mut client, CHAT).await;
    for (seq, (channel, action)) in [
        (SESSION, json!({ "type": "session/titleChanged", "title": "Plan" })),
        (SESSION, json!({ "type": "session/configChanged", "config": { "mood": "calm" } })),
        (
            CHAT,
            json!({ "type": "chat/draftChanged", "draft": { "text": "He", "origin": { "kind": "user" } } }),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        client.dispatch(channel, seq as i64, action.clone()).await;
        let seen = client.actions_until(action["type"].as_str().unwrap()).await.pop().unwrap();
        assert_eq!(seen["rejectionReason"], Value::Null, "{seen}");
    }
    pass(Duration::from_secs(3600)).await;
    assert_eq!((listed(&mut client).await, listed(&mut watcher).await), (vec![], vec![]));
    assert_eq!(told(&mut watcher).await, Vec::<String>::new());
    assert_ne!(watch(&mut watcher, "ahp-root://").await["activeSessions"], 1);
    assert_eq!(heard(&host), Vec::<Value>::new());
    let taken = client.request("createSession", json!({ "channel": SESSION })).await.unwrap_err();
    assert_eq!(taken["code"], -32003);

    client.dispatch(CHAT, 9, turn("t1", "Hello")).await;
    let seen = client.actions_until("session/ready").await;
    assert!(seen.iter().any(|seen| seen["action"]["type"] == "chat/turnStarted"), "{seen:#?}");
    stage.wait_told("begin").await;
    let added = watcher.next_frame().await.unwrap();
    assert_eq!(added["method"], "root/sessionAdded");
    let summary = &added["params"]["summary"];
    assert_eq!((&summary["resource"], &summary["title"]), (&json!(SESSION), &json!("Plan")));
    assert_eq!(summary["status"].as_u64().unwrap() & 0b1_1111, 8, "its turn runs: {summary}");
    assert_eq!(watch(&mut client, SESSION).await["lifecycle"], "ready");
    assert_eq!(listed(&mut watcher).await[0], *summary);
    assert_eq!(watch(&mut watcher, "ahp-root://").await["activeSessions"], 1);
    host.log.wait_for("turn_start").await;
    let begun = json!([
        { "type": "session_start", "session": SESSION, "provider": "stage", "client": "c" },
        { "type": "turn_start", "session": SESSION, "chat": CHAT, "turn": "t1" },
    ]);
    assert_eq!(Value::from(heard(&host)), begun);

    stage.emit(0, Emit::Chat, json!({ "type": "chat/turnComplete", "turnId": "t1", "duration": 0 }));
    client.dispatch(CHAT, 10, turn("t2", "Again")).await;
    client.actions_until("chat/turnStarted").await;
    let later = told(&mut watcher).await;
    assert!(!later.contains(&"root/sessionAdded".to_owned()), "once: {later:?}");
    client.request("disposeSession", json!({ "channel": SESSION })).await.unwrap();
    assert!(told(&mut watcher).await.contains(&"root/sessionRemoved".to_owned()));
    host.log.wait_for("session_end").await;
}

#[tokio::test(start_paused = true)]
async fn whatever_says_the_first_thing_announces_it() {
    let opening = json!({ "text": "Begin.", "origin": { "kind": "user" } });
    let queued = json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": "q", "message": { "text": "Next." } });
    for first in ["a queued message", "a second chat's message", "the backend"] {
        let stage = Stage::default().with_chats();
        let host = builder(&stage).start().await;
        let mut watcher = client(&host, "w").await;
        watch(&mut watcher, "ahp-root://").await;
        let mut client = client(&host, "c").await;
        create(&mut client).await;
        client.request("createChat", json!({ "channel": SESSION, "chat": "ahp-chat:/2" })).await.unwrap();
        pass(REST).await;
        assert_eq!(told(&mut watcher).await, Vec::<String>::new(), "a chat nobody spoke in is no turn");
        match first {
            "a queued message" => client.dispatch(CHAT, 1, queued.clone()).await,
            "the backend" => stage.emit(
                0,
                Emit::Chat,
                json!({ "type": "chat/turnStarted", "turnId": "own", "startedAt": "2026-01-01T00:00:00Z",
                    "message": { "text": "By itself.", "origin": { "kind": "agent" } } }),
            ),
            _ => {
                let chat = json!({ "channel": SESSION, "chat": "ahp-chat:/3", "initialMessage": opening });
                client.request("createChat", chat).await.unwrap();
            }
        }
        let added = watcher.next_frame().await.unwrap();
        assert_eq!(added["method"], "root/sessionAdded", "{first}");
        assert_eq!(listed(&mut client).await.len(), 1, "{first}");
        assert_eq!(watch(&mut client, SESSION).await["lifecycle"], "ready", "{first}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_chat_that_is_moved_into_a_draft_brings_its_turns() {
    let stage = Stage::default().with_chats();
    let host = builder(&stage).start().await;
    let mut client = client(&host, "c").await;
    create(&mut client).await;
    let opening = json!({ "text": "Begin.", "origin": { "kind": "user" } });
    let chat = json!({ "channel": SESSION, "chat": "ahp-chat:/2", "initialMessage": opening });
    client.request("createChat", chat).await.unwrap();
    watch(&mut client, "ahp-chat:/2").await;
    let id = watch(&mut client, "ahp-chat:/2").await["activeTurn"]["id"].clone();
    stage.emit(1, Emit::Chat, json!({ "type": "chat/turnComplete", "turnId": id, "duration": 0 }));
    client.actions_until("chat/turnComplete").await;
    client.request("createSession", json!({ "channel": "stage:/2" })).await.unwrap();
    assert_eq!(listed(&mut client).await.len(), 1);
    let destination = json!({ "kind": "session", "session": "stage:/2" });
    client
        .request("moveChat", json!({ "channel": "ahp-chat:/2", "destination": destination }))
        .await
        .unwrap();
    assert_eq!(listed(&mut client).await.len(), 2);
    assert_eq!(watch(&mut client, "stage:/2").await["lifecycle"], "ready");
}

#[tokio::test(start_paused = true)]
async fn one_whose_clients_are_gone_is_removed_after_a_while() {
    for subscribes in [true, false] {
        let stage = Stage::default().naming_conversations();
        let host = builder(&stage).start().await;
        let mut watcher = client(&host, "w").await;
        watch(&mut watcher, "ahp-root://").await;
        let mut client = client(&host, "c").await;
        create(&mut client).await;
        if subscribes {
            watch(&mut client, SESSION).await;
            watch(&mut client, CHAT).await;
        }
        pass(Duration::from_secs(3600)).await;
        assert!(is_there(&host), "its client is there");
        client.connection.close();
        pass(ALMOST).await;
        assert!(is_there(&host));
        pass(REST).await;
        assert!(!is_there(&host));
        assert_eq!(stage.told(), [json!({ "close": true }), json!({ "delete": "own-0" })]);
        assert_eq!(told(&mut watcher).await, Vec::<String>::new(), "nobody was told that it was there");
        assert_eq!(heard(&host), Vec::<Value>::new());
        let gone = watcher.request("subscribe", json!({ "channel": SESSION })).await.unwrap_err();
        assert_eq!(gone["code"], -32001);
        create(&mut watcher).await;
    }
}

/// Its id is looked up in the store first, and the client does not wait for that.
#[tokio::test(start_paused = true)]
async fn one_whose_client_is_gone_before_it_is_there_is_removed_too() {
    let (stage, gate) = (Stage::default(), Arc::new(tokio::sync::Semaphore::new(0)));
    let opens = gate.clone();
    let session = Call::new(move |_| {
        let opens = opens.clone();
        async move {
            opens.acquire().await.unwrap().forget();
            Ok(None)
        }
    });
    // A store that needs no thread, which paused time would not wait for.
    let store = SessionStore {
        session: Some(session),
        page: Some(Call::now(|_| Ok(Vec::new()))),
        session_of_chat: Some(Call::now(|_| Ok(None))),
        drafts: Some(Call::now(|()| Ok(Vec::new()))),
        // So many that the id may be taken by one that is not in memory.
        count: Some(Call::now(|()| Ok(1))),
        ..empty_sessions()
    };
    let host = builder(&stage).sessions(store).start().await;
    let client = client(&host, "c").await;
    let create =
        json!({ "jsonrpc": "2.0", "id": 90, "method": "createSession", "params": { "channel": SESSION } });
    client.send(&create.to_string()).await;
    client.connection.close();
    pass(REST).await;
    assert!(!is_there(&host), "its id is still looked up");
    gate.add_permits(100);
    pass(ALMOST - REST).await;
    assert!(is_there(&host));
    pass(2 * REST).await;
    assert!(!is_there(&host));
}

#[tokio::test(start_paused = true)]
async fn one_that_some_client_uses_stays() {
    let stage = Stage::default();
    let host = builder(&stage).start().await;
    let (mut one, mut two) = (client(&host, "one").await, client(&host, "two").await);
    create(&mut one).await;
    watch(&mut one, SESSION).await;
    watch(&mut two, CHAT).await;
    one.connection.close();
    pass(Duration::from_secs(3600)).await;
    assert!(is_there(&host), "another client watches its chat");
    two.notify("unsubscribe", json!({ "channel": CHAT })).await;
    pass(ALMOST).await;
    // The first client comes back just in time, and leaves again.
    let mut back = host.raw();
    let reconnect = json!({ "channel": "ahp-root://", "clientId": "one", "lastSeenServerSeq": host.host.core.fanout.seq(),
        "subscriptions": [SESSION] });
    assert_eq!(back.request("reconnect", reconnect).await.unwrap()["missing"], json!([]));
    pass(Duration::from_secs(3600)).await;
    assert!(is_there(&host));
    back.connection.close();
    pass(ALMOST).await;
    assert!(is_there(&host), "it has all the time once more");
    pass(REST).await;
    assert!(!is_there(&host));

    // One that its maker unsubscribes from, or leaves out on coming back, is left.
    for leaves in ["unsubscribe", "reconnect"] {
        let mut three = client(&host, "three").await;
        create(&mut three).await;
        watch(&mut three, SESSION).await;
        if leaves == "unsubscribe" {
            three.notify("unsubscribe", json!({ "channel": SESSION })).await;
        } else {
            three.connection.close();
            three = host.raw();
            let reconnect = json!({ "channel": "ahp-root://", "clientId": "three",
                "lastSeenServerSeq": host.host.core.fanout.seq(), "subscriptions": [] });
            three.request("reconnect", reconnect).await.unwrap();
        }
        pass(ALMOST).await;
        assert!(is_there(&host));
        pass(REST).await;
        assert!(!is_there(&host), "{leaves}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_was_spoken_in_stays() {
    let stage = Stage::default();
    let host = builder(&stage).start().await;
    let mut speaks = client(&host, "c").await;
    create(&mut speaks).await;
    speaks.dispatch(CHAT, 1, turn("t1", "Hello")).await;
    speaks.connection.close();
    pass(Duration::from_secs(3600)).await;
    let mut other = client(&host, "o").await;
    assert_eq!(listed(&mut other).await.len(), 1);
    // Nor does it become a draft again when its turns are taken back.
    watch(&mut other, CHAT).await;
    other.dispatch(CHAT, 1, json!({ "type": "chat/truncated" })).await;
    other.actions_until("chat/truncated").await;
    other.connection.close();
    pass(Duration::from_secs(3600)).await;
    assert!(is_there(&host));
}

#[tokio::test(start_paused = true)]
async fn sessions_that_no_client_opened_a_form_for_are_announced_at_once() {
    let stage = Stage::default();
    let caller = Plugin::new("@test/caller", |_, _| Box::pin(async { Ok(()) }));
    let host = builder(&stage).plugin(caller, json!({})).start().await;
    let mut watcher = client(&host, "w").await;
    watch(&mut watcher, "ahp-root://").await;
    let peer = host.plugin("caller").connect().unwrap();
    let object = |value: Value| value.as_object().cloned().unwrap();
    for (method, params) in [
        ("initialize", json!({ "clientId": "p", "protocolVersions": ["1.0.0"] })),
        ("createSession", json!({ "channel": SESSION })),
    ] {
        peer.request.call((method.to_owned(), Some(object(params)))).await.unwrap();
    }
    let added = watcher.next_frame().await.unwrap();
    assert_eq!(added["params"]["summary"]["resource"], SESSION);
    assert_eq!(watch(&mut watcher, SESSION).await["lifecycle"], "ready");
    let request = SessionRequest { owner: "user:ada".into(), ..SessionRequest::default() };
    host.plugin("caller").start_session(request).await.unwrap();
    assert_eq!(listed(&mut watcher).await.len(), 2);
    until(|| heard(&host).len() == 2).await;
}

fn store(dir: &std::path::Path) -> SessionStore {
    let db = StateDb::open(dir).unwrap();
    Arc::new(SqliteSessions::new(db, ostler_ports::Report::new(|line| panic!("{line}")))).into_point()
}

/// Lets time pass at once, on a host whose store has threads of its own.
async fn skip(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

async fn until(what: impl Fn() -> bool) {
    for _ in 0..20_000 {
        if what() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("it did not come about");
}

#[tokio::test]
async fn a_client_that_comes_back_after_a_restart_finds_it() {
    let (dir, stage) = (tempfile::tempdir().unwrap(), Stage::default());
    let first = builder(&stage).sessions(store(dir.path())).start().await;
    let mut maker = client(&first, "c").await;
    create(&mut maker).await;
    maker.request("createSession", json!({ "channel": "stage:/left" })).await.unwrap();
    let typed =
        json!({ "type": "chat/draftChanged", "draft": { "text": "He", "origin": { "kind": "user" } } });
    watch(&mut maker, CHAT).await;
    maker.dispatch(CHAT, 1, typed).await;
    maker.actions_until("chat/draftChanged").await;
    // A crash right now could lose the draft.
    let stored = store(dir.path());
    while stored.chats.unbounded((SESSION.strip_prefix("stage:/").unwrap().into(),)).await.unwrap().is_empty()
    {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // As a crash leaves it: nothing is closed.
    let again = builder(&stage).sessions(store(dir.path())).start().await;
    let mut back = again.raw();
    let reconnect = json!({ "channel": "ahp-root://", "clientId": "c", "lastSeenServerSeq": 1,
        "subscriptions": [SESSION, CHAT] });
    let found = back.request("reconnect", reconnect).await.unwrap();
    assert_eq!(found["snapshots"][0]["state"]["lifecycle"], "creating");
    assert_eq!(found["snapshots"][1]["state"]["draft"]["text"], "He");
    assert_eq!(listed(&mut back).await, Vec::<Value>::new());
    skip(ALMOST).await;
    assert!(again.host.sessions.by_uri("stage:/left").is_some());
    skip(REST).await;
    until(|| again.host.sessions.by_uri("stage:/left").is_none()).await;
    assert!(is_there(&again), "this one is used");
    back.dispatch(CHAT, 2, turn("t1", "Hello")).await;
    back.actions_until("session/ready").await;
    assert_eq!(listed(&mut back).await.len(), 1);
    again.log.wait_for("session_start").await;
    assert_eq!(heard(&again)[0]["client"], "c", "it is who created it");
    // Its turn is stored, and that it was announced.
    let last = builder(&stage).sessions(store(dir.path())).start().await;
    let mut reader = client(&last, "r").await;
    let rows = listed(&mut reader).await;
    assert_eq!((rows.len(), &rows[0]["resource"]), (1, &json!(SESSION)));
    assert_eq!(watch(&mut reader, SESSION).await["lifecycle"], "ready");
    assert!(last.host.sessions.by_uri("stage:/left").is_none(), "what was removed is forgotten");
    drop((first, again));
}
