//! Chats beside a session's first one: opened plain, from a turn and beside one, changed, closed, and found again.

use std::sync::Arc;
use std::time::Duration;

use ostler_contract::points::{Emit, SessionStore};
use ostler_contract::{Call, Plugin, Value, json};
use ostler_ports::{SqliteSessions, StateDb};
use ostler_testkit::{Builder, MemoryHost, RawClient, Stage};
use tokio::time::Instant;

const SESSION: &str = "stage:/1";
const FIRST: &str = "ahp-chat://default/c3RhZ2U6LzE";
const SECOND: &str = "ahp-chat:/second";

fn builder(stage: &Stage) -> Builder {
    MemoryHost::builder().plugin(stage.plugin(), json!({})).options(|options| {
        options.delta_window_ms = 0;
        options.paths = vec!["/srv/a".into()];
    })
}

fn store(dir: &std::path::Path) -> SessionStore {
    let db = StateDb::open(dir).unwrap();
    Arc::new(SqliteSessions::new(db, ostler_ports::Report::new(|line| panic!("{line}")))).into_point()
}

fn kept(builder: Builder, dir: &std::path::Path) -> Builder {
    builder.sessions(store(dir))
}

/// A client in a session.
async fn begun(host: &MemoryHost) -> RawClient {
    let mut client = host.raw();
    client.initialize("c").await;
    let create = json!({ "channel": SESSION, "workingDirectories": ["file:///srv/a", "file:///srv/b"] });
    client.request("createSession", create).await.unwrap();
    client.request("subscribe", json!({ "channel": SESSION })).await.unwrap();
    client
}

async fn open(client: &mut RawClient, more: Value) -> Result<Value, Value> {
    let mut params = json!({ "channel": SESSION, "chat": SECOND });
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    client.request("createChat", params).await
}

async fn state(client: &mut RawClient, channel: &str) -> Value {
    let subscribed = client.request("subscribe", json!({ "channel": channel })).await.unwrap();
    subscribed["snapshot"]["state"].clone()
}

/// A turn said and ended; the backend answers its `number`th start.
async fn say(
    client: &mut RawClient,
    stage: &Stage,
    chat: &str,
    number: usize,
    turn: &str,
    text: &str,
    answer: &str,
) {
    client.request("subscribe", json!({ "channel": chat })).await.unwrap();
    let started = json!({ "type": "chat/turnStarted", "turnId": turn, "message": { "text": text } });
    client.dispatch(chat, 1, started).await;
    client.actions_until("chat/turnStarted").await;
    for action in [
        json!({ "type": "chat/responsePart", "turnId": turn, "part": { "kind": "markdown", "id": "p", "content": answer } }),
        json!({ "type": "chat/turnComplete", "turnId": turn, "duration": 1 }),
    ] {
        stage.emit(number, Emit::Chat, action);
    }
    client.actions_until("chat/turnComplete").await;
}

fn user(text: &str) -> Value {
    json!({ "text": text, "origin": { "kind": "user" } })
}

#[tokio::test]
async fn a_chat_is_announced_before_the_answer_and_is_a_channel_of_its_own() {
    let stage = Stage::default().with_plain_chats();
    let host = builder(&stage).start().await;
    let mut client = begun(&host).await;
    let open = json!({ "jsonrpc": "2.0", "id": 90, "method": "createChat",
        "params": { "channel": "ahp-session:/1", "chat": SECOND, "initialMessage": user("Hay?") } });
    client.send(&open.to_string()).await;
    // What is sent to a chat on its way waits for it.
    let watch = json!({ "jsonrpc": "2.0", "id": 91, "method": "subscribe", "params": { "channel": SECOND } });
    client.send(&watch.to_string()).await;
    let (mut added, mut answered, mut seen) = (None, false, false);
    while !(answered && seen) {
        let frame = client.next_frame().await.unwrap();
        if frame["params"]["action"]["type"] == "session/chatAdded" {
            assert!(!answered, "it is announced before the answer");
            added = Some(frame["params"]["action"]["summary"].clone());
        }
        if frame["id"] == 90 {
            assert_eq!(frame["result"], Value::Null, "{frame}");
            answered = true;
        }
        if frame["id"] == 91 {
            let state = &frame["result"]["snapshot"]["state"];
            let said = (&state["resource"], &state["activeTurn"]["message"]["text"]);
            assert_eq!(said, (&json!(SECOND), &json!("Hay?")));
            seen = true;
        }
    }
    assert_eq!(added.unwrap()["origin"], json!({ "kind": "user" }));
    assert_eq!(stage.wait_told("begin").await[1], "Hay?");
    let start = stage.start(1);
    assert_eq!((start.uri.as_str(), start.chat_uri.as_str()), (SESSION, SECOND));
    assert_eq!((start.chat_id.as_deref(), start.context, start.resume), (Some(SECOND), None, None));
    assert_eq!(stage.start(0).chat_id, None, "the first chat's conversation is the session's own");
    let session = state(&mut client, SESSION).await;
    assert_eq!(session["defaultChat"], FIRST);
    assert_eq!(session["chats"].as_array().unwrap().len(), 2);
    assert_eq!(
        state(&mut client, FIRST).await["activeTurn"],
        Value::Null,
        "the first chat heard nothing of it"
    );
}

#[tokio::test]
async fn what_cannot_be_opened_is_refused_and_leaves_nothing() {
    let stage = Stage::default().with_plain_chats();
    let host = builder(&stage).start().await;
    let mut client = begun(&host).await;
    let from = |kind: &str| json!({ "source": { "kind": kind, "chat": FIRST, "turnId": "t" } });
    let rows = [
        (json!({ "channel": "stage:/none" }), -32001, "No agent for session stage:/none"),
        (json!({ "chat": "no uri" }), -32602, "no uri is not a chat URI"),
        (json!({ "chat": "ahp-chat:" }), -32602, "ahp-chat: is not a chat URI"),
        (json!({ "chat": "x-notes:/1" }), -32602, "x-notes:/1 is not a chat URI"),
        (json!({ "chat": "ahp-terminal:/1" }), -32602, "ahp-terminal:/1 is not a chat URI"),
        (json!({ "chat": FIRST }), -32003, &format!("{FIRST} already exists")),
        (json!({ "chat": "ahp-chat:/1" }), -32003, "ahp-chat:/1 already exists"),
        (json!({ "chat": "stage:/1" }), -32003, "stage:/1 already exists"),
        (from("fork"), -32602, "stage cannot fork a chat from a turn"),
        (from("sideChat"), -32602, "stage cannot start a side chat from a turn"),
        (from("dream"), -32602, "dream is not a chat source this host knows"),
        (json!({ "source": { "kind": "fork" } }), -32602, "a source of kind fork needs chat and turnId"),
        (
            json!({ "workingDirectories": ["file:///etc"] }),
            -32602,
            "file:///etc is not a working directory of stage:/1",
        ),
        (
            json!({ "initialMessage": { "text": "x", "origin": { "kind": "agent" } } }),
            -32602,
            "initialMessage: a client may only send messages of a person",
        ),
    ];
    for (params, code, message) in rows {
        let error = open(&mut client, params.clone()).await.expect_err(&params.to_string());
        assert_eq!((&error["code"], error["message"].as_str().unwrap()), (&json!(code), message), "{params}");
    }
    assert_eq!(state(&mut client, SESSION).await["chats"].as_array().unwrap().len(), 1);
    assert_eq!(stage.started(), 1, "no backend was asked");
    assert_eq!(open(&mut client, json!({})).await, Ok(Value::Null), "the URI is still free");
    assert_eq!(open(&mut client, json!({})).await.unwrap_err()["code"], -32003, "and now it is not");

    let one = Stage::default();
    let host = builder(&one).start().await;
    let mut client = begun(&host).await;
    let refused = open(&mut client, json!({})).await.unwrap_err();
    assert_eq!(
        (&refused["code"], &refused["message"]),
        (&json!(-32602), &json!("stage supports one chat per session"))
    );
    let agents = state(&mut client, "ahp-root://").await["agents"].clone();
    assert_eq!(agents[0]["capabilities"], Value::Null, "and it is not advertised");
}

#[tokio::test]
async fn several_chats_are_advertised_as_the_backend_has_them() {
    for (stage, capability) in [
        (Stage::default().with_plain_chats(), json!({})),
        (Stage::default().with_chats(), json!({ "fork": true, "sideChat": true })),
    ] {
        let host = builder(&stage).start().await;
        let mut client = host.raw();
        client.initialize("c").await;
        let root = state(&mut client, "ahp-root://").await;
        assert_eq!(root["agents"][0]["capabilities"]["multipleChats"], capability);
    }
}

#[tokio::test]
async fn a_fork_copies_what_was_said_through_its_turn() {
    let stage = Stage::default().with_chats().forking_at(json!({ "t1": "point-1", "t2": "point-2" }));
    let host = builder(&stage).start().await;
    let mut client = begun(&host).await;
    for (turn, text, answer) in [("t1", "Hay?", "Yes."), ("t2", "Oats?", "No."), ("t3", "Water?", "Always.")]
    {
        say(&mut client, &stage, FIRST, 0, turn, text, answer).await;
    }
    let from = |chat: &str, turn: &str| json!({ "source": { "kind": "fork", "chat": chat, "turnId": turn } });
    let unknown = open(&mut client, from(FIRST, "t9")).await.unwrap_err();
    assert_eq!(unknown["message"], format!("t9 is not a turn in {FIRST}"));
    let elsewhere = open(&mut client, from("ahp-chat:/none", "t1")).await.unwrap_err();
    assert_eq!(elsewhere["message"], "ahp-chat:/none is not a chat in stage:/1");
    let no_point = open(&mut client, from(FIRST, "t3")).await.unwrap_err();
    assert_eq!(
        (&no_point["code"], &no_point["message"]),
        (&json!(-32602), &json!("t3 is not a turn this host can fork from"))
    );
    // The old spelling of the first chat is it too.
    open(&mut client, from("ahp-chat:/1", "t2")).await.unwrap();
    let seen = state(&mut client, SECOND).await;
    let turns: Vec<&str> =
        seen["turns"].as_array().unwrap().iter().map(|turn| turn["id"].as_str().unwrap()).collect();
    assert_eq!(turns, ["t1", "t2"]);
    assert_eq!(seen["turns"][1]["responseParts"][0]["content"], "No.");
    assert_eq!(seen["origin"], json!({ "kind": "fork", "chat": FIRST, "turnId": "t2" }));
    let start = stage.start(1);
    assert_eq!((start.fork_at.as_deref(), start.rewind_at, start.context), (Some("point-2"), None, None));
    assert_eq!(start.seed.unwrap().len(), 2);
    say(&mut client, &stage, SECOND, 1, "t3", "Straw?", "Some.").await;
    assert_eq!(
        state(&mut client, FIRST).await["turns"].as_array().unwrap().len(),
        3,
        "the two go their own ways"
    );

    let stage = Stage::default().with_chats();
    let host = builder(&stage).start().await;
    let mut client = begun(&host).await;
    say(&mut client, &stage, FIRST, 0, "t1", "Hay?", "Yes.").await;
    open(&mut client, from(FIRST, "t1")).await.unwrap();
    assert_eq!(
        stage.start(1).fork_at.as_deref(),
        Some("t1"),
        "a backend with no names of its own has the turn's id"
    );
}

#[tokio::test]
async fn a_side_chat_is_told_of_its_turn_and_shows_nothing_of_it() {
    let stage = Stage::default().with_chats();
    let host = builder(&stage).start().await;
    let mut client = begun(&host).await;
    say(&mut client, &stage, FIRST, 0, "t1", "Hay?", "Yes, of course.").await;
    let selection = json!({ "text": "of course", "responsePartId": "p" });
    let source =
        json!({ "source": { "kind": "sideChat", "chat": FIRST, "turnId": "t1", "selection": selection } });
    open(&mut client, source).await.unwrap();
    let context = stage.start(1).context.unwrap();
    assert!(context.contains("Person: Hay?\n\nAgent: Yes, of course."), "{context}");
    assert!(context.ends_with("of course"), "{context}");
    let seen = state(&mut client, SECOND).await;
    assert_eq!(seen["turns"], json!([]));
    assert!(!seen.to_string().contains("Agent: Yes"), "hidden context is never on the wire: {seen}");
    assert_eq!(
        seen["origin"],
        json!({ "kind": "sideChat", "chat": FIRST, "turnId": "t1", "selection": selection })
    );

    // Beside the running turn, as far as it has come.
    client
        .dispatch(
            FIRST,
            2,
            json!({ "type": "chat/turnStarted", "turnId": "t2", "message": { "text": "Oats?" } }),
        )
        .await;
    client.actions_until("chat/turnStarted").await;
    let part = json!({ "type": "chat/responsePart", "turnId": "t2", "part": { "kind": "markdown", "id": "p", "content": "Let me" } });
    stage.emit(0, Emit::Chat, part);
    client.actions_until("chat/responsePart").await;
    let source =
        json!({ "chat": "notes:/third", "source": { "kind": "sideChat", "chat": FIRST, "turnId": "t2" } });
    open(&mut client, source).await.unwrap();
    assert!(stage.start(2).context.unwrap().ends_with("Person: Oats?\n\nAgent: Let me"));
    assert_eq!(
        state(&mut client, "notes:/third").await["resource"],
        "notes:/third",
        "any URI a client chooses"
    );
}

#[tokio::test]
async fn a_closed_chat_is_gone_and_the_last_one_stays() {
    let stage = Stage::default().with_plain_chats();
    let host = builder(&stage).start().await;
    let mut client = begun(&host).await;
    let close = |chat: &str| json!({ "channel": chat });
    let last = client.request("disposeChat", close(FIRST)).await.unwrap_err();
    let why = format!("{FIRST} is the only chat in {SESSION}; dispose the session instead");
    assert_eq!((&last["code"], &last["message"]), (&json!(-32602), &json!(why)));
    open(&mut client, json!({ "initialMessage": user("Hay?") })).await.unwrap();
    stage.wait_told("begin").await;
    client.request("subscribe", json!({ "channel": SECOND })).await.unwrap();
    for (channel, id) in [(SECOND, "later"), (FIRST, "too")] {
        let pending = json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": id, "message": { "text": id } });
        client.dispatch(channel, 3, pending).await;
    }
    assert_eq!(client.request("disposeChat", close(SECOND)).await, Ok(Value::Null));
    let mut seen = Vec::new();
    while seen.last().map(String::as_str) != Some("session/chatRemoved") {
        seen.push(client.next_action().await["action"]["type"].as_str().unwrap().to_owned());
    }
    assert!(
        seen.contains(&"chat/turnCancelled".to_owned()),
        "what ran is ended for whoever watched: {seen:?}"
    );
    let session = state(&mut client, SESSION).await;
    assert_eq!((&session["chats"].as_array().unwrap().len(), &session["defaultChat"]), (&1, &json!(FIRST)));
    let gone = client.request("disposeChat", close(SECOND)).await.unwrap_err();
    assert_eq!((&gone["code"], &gone["message"]), (&json!(-32001), &json!(format!("No chat at {SECOND}"))));
    assert_eq!(client.request("subscribe", close(SECOND)).await.unwrap_err()["code"], -32001);
    for _ in 0..20_000 {
        if stage.told().contains(&json!({ "close": true })) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    assert!(stage.told().contains(&json!({ "close": true })), "its backend ended: {:?}", stage.told());
    let begun = stage.told().iter().filter(|told| told.get("begin").is_some()).count();
    assert_eq!(begun, 2, "what waited in it was not said: {:?}", stage.told());
    open(&mut client, json!({})).await.unwrap();
}

#[tokio::test]
async fn the_listing_is_told_that_one_chat_is_left() {
    let stage = Stage::default().with_plain_chats();
    let host = builder(&stage).start().await;
    let mut client = begun(&host).await;
    client.request("subscribe", json!({ "channel": "ahp-root://" })).await.unwrap();
    open(&mut client, json!({ "initialMessage": user("Hay?") })).await.unwrap();
    stage.wait_told("begin").await;
    client.request("disposeChat", json!({ "channel": SECOND })).await.unwrap();
    let mut listed = Vec::new();
    while listed.last() != Some(&1) {
        let frame = client.next_frame().await.unwrap();
        let chats =
            frame["params"]["changes"]["chats"].as_array().or(frame["params"]["summary"]["chats"].as_array());
        listed.extend(chats.map(Vec::len));
    }
    listed.dedup();
    assert_eq!(listed, [2, 1]);
}

#[tokio::test]
async fn the_default_role_passes_on_with_the_chat_that_held_it() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::default().with_plain_chats();
    let host = kept(builder(&stage), dir.path()).start().await;
    let mut client = begun(&host).await;
    open(&mut client, json!({ "initialMessage": user("Hay?") })).await.unwrap();
    client.request("disposeChat", json!({ "channel": FIRST })).await.unwrap();
    let moved = client.actions_until("session/defaultChatChanged").await;
    assert_eq!(moved.last().unwrap()["action"]["defaultChat"], SECOND);
    client.actions_until("session/chatRemoved").await;
    // The name of the role reaches whoever has it, under the name it was asked by.
    let seen = state(&mut client, FIRST).await;
    assert_eq!((&seen["resource"], &seen["activeTurn"]["message"]["text"]), (&json!(FIRST), &json!("Hay?")));
    stage.emit(
        1,
        Emit::Chat,
        json!({ "type": "chat/turnComplete", "turnId": seen["activeTurn"]["id"], "duration": 1 }),
    );
    let ended = client.actions_until("chat/turnComplete").await;
    assert_eq!(ended.last().unwrap()["channel"], FIRST);
    client.notify("unsubscribe", json!({ "channel": FIRST })).await;
    host.host.close().await;

    let host = kept(builder(&stage), dir.path()).start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    for spelled in [FIRST, SECOND, "ahp-chat:/1"] {
        assert_eq!(state(&mut client, spelled).await["turns"][0]["message"]["text"], "Hay?", "{spelled}");
    }
    assert_eq!(state(&mut client, SESSION).await["defaultChat"], SECOND);
    client
        .dispatch(
            FIRST,
            1,
            json!({ "type": "chat/turnStarted", "turnId": "t9", "message": { "text": "Oats?" } }),
        )
        .await;
    client.actions_until("chat/turnStarted").await;
    for _ in 0..20_000 {
        if stage.started() == 3 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    assert_eq!(stage.start(2).chat_id.as_deref(), Some(SECOND), "its conversation keeps its own name");
}

#[tokio::test]
async fn chats_are_found_again_with_everything_about_them() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::default().with_chats().in_many_folders();
    let host = kept(builder(&stage), dir.path()).start().await;
    let mut client = begun(&host).await;
    say(&mut client, &stage, FIRST, 0, "t1", "Hay?", "Yes.").await;
    let side = json!({ "workingDirectories": ["file:///srv/b"],
        "source": { "kind": "sideChat", "chat": FIRST, "turnId": "t1", "selection": { "text": "Yes" } } });
    open(&mut client, side).await.unwrap();
    let fork =
        json!({ "chat": "ahp-chat:/third", "source": { "kind": "fork", "chat": FIRST, "turnId": "t1" } });
    open(&mut client, fork).await.unwrap();
    assert_eq!(stage.start(1).working_directory.as_deref(), Some("/srv/b"));
    client.request("subscribe", json!({ "channel": SECOND })).await.unwrap();
    client.dispatch(SECOND, 1, json!({ "type": "session/titleChanged", "title": " My  side " })).await;
    let echoed = client.actions_until("session/titleChanged").await;
    let echoed = echoed.last().unwrap();
    assert_eq!(
        (&echoed["channel"], &echoed["origin"]["clientSeq"]),
        (&json!(SECOND), &json!(1)),
        "its sender hears of it"
    );
    client.dispatch(SECOND, 2, json!({ "type": "chat/isReadChanged", "isRead": true })).await;
    client.dispatch(SECOND, 3, json!({ "type": "chat/isReadChanged", "isRead": true })).await;
    client.dispatch(SECOND, 4, json!({ "type": "chat/isArchivedChanged", "isArchived": true })).await;
    let seen = client.actions_until("chat/isArchivedChanged").await;
    let reads = seen.iter().filter(|seen| seen["action"]["type"] == "chat/isReadChanged").count();
    assert_eq!(reads, 1, "what changes nothing is not echoed");
    let mut before = Vec::new();
    for chat in [FIRST, SECOND, "ahp-chat:/third"] {
        before.push(state(&mut client, chat).await);
    }
    assert_eq!((&before[1]["title"], &before[2]["title"]), (&json!("My side"), &json!("Hay?")));
    let told = stage.start(1).context;
    let listed = client.request("listSessions", json!({})).await.unwrap()["items"][0].clone();
    drop(client);
    // Nothing is closed first: what was answered is kept.
    drop(host);

    let host = kept(builder(&stage), dir.path()).start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    let again = client.request("listSessions", json!({})).await.unwrap()["items"][0].clone();
    assert_eq!(again["defaultChat"], json!(FIRST));
    for field in ["defaultChat", "chats"] {
        assert_eq!(listed[field], again[field], "{field} is listed before anybody wakes the session");
    }
    let mut after = Vec::new();
    for chat in [SECOND, "ahp-chat:/third", FIRST] {
        after.push(state(&mut client, chat).await);
    }
    for (was, is) in [(&before[1], &after[0]), (&before[2], &after[1]), (&before[0], &after[2])] {
        for field in ["resource", "title", "status", "origin", "workingDirectories", "turns"] {
            assert_eq!(was[field], is[field], "{field} of {}", was["resource"]);
        }
    }
    assert_eq!(open(&mut client, json!({})).await.unwrap_err()["code"], -32003, "its URI is still taken");
    client
        .dispatch(
            SECOND,
            1,
            json!({ "type": "chat/turnStarted", "turnId": "s1", "message": { "text": "Why?" } }),
        )
        .await;
    for _ in 0..20_000 {
        if stage.started() == 4 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    assert!(told.is_some());
    assert_eq!(stage.start(3).context, told, "what its first turn is owed, it is given after a restart");
    assert_eq!(stage.start(3).working_directory.as_deref(), Some("/srv/b"));
    assert_eq!(state(&mut client, SECOND).await["status"].as_u64().unwrap() & 32, 0, "a new turn is unread");
}

#[tokio::test]
async fn a_chat_works_in_a_part_of_its_sessions_folders() {
    let stage = Stage::default().with_plain_chats().in_many_folders();
    let host = builder(&stage).start().await;
    let mut client = begun(&host).await;
    open(&mut client, json!({ "workingDirectories": ["file:///srv/a"] })).await.unwrap();
    client.request("subscribe", json!({ "channel": SECOND })).await.unwrap();
    let set = |kind: &str, folder: &str| json!({ "type": format!("chat/workingDirectory{kind}"), "directory": folder });
    for (action, why) in [
        (set("Set", "file:///etc"), "file:///etc is not a working directory of stage:/1"),
        (set("Removed", "file:///srv/a"), "the first folder of a chat cannot be removed"),
        (set("Removed", "file:///srv/b"), "file:///srv/b is not a folder of this chat"),
    ] {
        let name = action["type"].as_str().unwrap().to_owned();
        client.dispatch(SECOND, 1, action).await;
        assert_eq!(client.actions_until(&name).await.last().unwrap()["rejectionReason"], why);
    }
    client.dispatch(SECOND, 2, set("Set", "file:///srv/b")).await;
    client.actions_until("chat/workingDirectorySet").await;
    client
        .dispatch(
            SECOND,
            3,
            json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "Go." } }),
        )
        .await;
    stage.wait_told("begin").await;
    assert_eq!(stage.start(2).additional, Some(vec!["/srv/b".to_owned()]), "its conversation goes on there");
    client.dispatch(SECOND, 4, set("Removed", "file:///srv/b")).await;
    let refused = client.actions_until("chat/workingDirectoryRemoved").await;
    let why = refused.last().unwrap()["rejectionReason"].as_str().unwrap();
    assert!(why.starts_with("TurnInProgress"), "{why}");
}

#[tokio::test]
async fn a_session_with_several_chats_is_disposed_of_whole() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::default().with_plain_chats();
    let host = kept(builder(&stage), dir.path()).start().await;
    let mut client = begun(&host).await;
    open(&mut client, json!({})).await.unwrap();
    client.request("disposeSession", json!({ "channel": SESSION })).await.unwrap();
    for channel in [SESSION, FIRST, SECOND] {
        let gone = client.request("subscribe", json!({ "channel": channel })).await.unwrap_err();
        assert_eq!(gone["code"], -32001, "{channel}");
    }
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    open(&mut client, json!({})).await.unwrap();
    assert_eq!(state(&mut client, SESSION).await["chats"].as_array().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_preamble_that_never_answers_holds_nobody_up_for_ever() {
    let hung = Plugin::new("@test/hung", |host, _| {
        Box::pin(async move {
            host.register_chat_preamble(Call::new(|_| std::future::pending()))?;
            host.register_chat_preamble(Call::now(|_| Ok(Some("said all the same".to_owned()))))
        })
    });
    let stage = Stage::default().with_plain_chats();
    let host = builder(&stage).plugin(hung, json!({})).start().await;
    let mut client = begun(&host).await;
    let frame = json!({ "jsonrpc": "2.0", "id": 90, "method": "createChat",
        "params": { "channel": SESSION, "chat": SECOND, "initialMessage": user("Hay?") } });
    client.send(&frame.to_string()).await;
    // Meanwhile the session goes on.
    let started = json!({ "type": "chat/turnStarted", "turnId": "t1", "message": { "text": "Oats?" } });
    client.dispatch(FIRST, 1, started).await;
    assert_eq!(stage.wait_told("begin").await[1], "Oats?");
    assert_eq!(stage.started(), 1);
    loop {
        let frame = client.next_frame().await.unwrap();
        if frame["id"] == 90 {
            assert_eq!(frame["result"], Value::Null, "{frame}");
            break;
        }
    }
    assert_eq!(stage.start(1).context.as_deref(), Some("said all the same"));
    let line = host.log.wait_for("did not answer").await;
    assert_eq!(
        line,
        format!("plugin hung: its preamble of {SECOND} failed: it did not answer within 10 seconds")
    );
}

#[tokio::test(start_paused = true)]
async fn a_chat_whose_session_ends_before_it_is_there_is_none() {
    let hung = Plugin::new("@test/hung", |host, _| {
        Box::pin(async move { host.register_chat_preamble(Call::new(|_| std::future::pending())) })
    });
    let stage = Stage::default().with_plain_chats();
    let host = builder(&stage).plugin(hung, json!({})).start().await;
    let mut client = begun(&host).await;
    let frame = json!({ "jsonrpc": "2.0", "id": 90, "method": "createChat",
        "params": { "channel": SESSION, "chat": SECOND } });
    client.send(&frame.to_string()).await;
    client.request("disposeSession", json!({ "channel": SESSION })).await.unwrap();
    loop {
        let frame = client.next_frame().await.unwrap();
        if frame["id"] == 90 {
            assert_eq!(frame["error"]["code"], -32001, "{frame}");
            break;
        }
    }
    let closed = stage.told().iter().filter(|told| told.get("close").is_some()).count();
    assert_eq!((stage.started(), closed), (2, 2), "what was started for it is closed");
    assert_eq!(client.request("subscribe", json!({ "channel": SECOND })).await.unwrap_err()["code"], -32001);
}

#[tokio::test]
async fn a_session_kept_in_a_machine_never_runs_outside_one() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::default();
    let host = kept(builder(&stage), dir.path()).start().await;
    drop(begun(&host).await);
    drop(host);
    // The backend ran in machines when this was kept.
    let sessions = store(dir.path());
    let started = stage.started();
    let mut row = sessions.config.unbounded(("1".to_owned(),)).await.unwrap().unwrap();
    row.values.insert("computer".to_owned(), "computer://barn".into());
    sessions.set_config.unbounded(("1".to_owned(), row)).await.unwrap();
    drop(sessions);

    let host = kept(builder(&stage), dir.path()).start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    let why = "this session runs in computer://barn, and stage cannot run in a machine";
    let state = client.request("subscribe", json!({ "channel": SESSION })).await.unwrap();
    let state = &state["snapshot"]["state"];
    assert_eq!((&state["lifecycle"], &state["creationError"]["message"]), (&json!("failed"), &json!(why)));
    client.request("subscribe", json!({ "channel": FIRST })).await.unwrap();
    let said = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "Hay?" } });
    client.dispatch(FIRST, 1, said).await;
    let refused = client.actions_until("chat/turnStarted").await.pop().unwrap();
    assert_eq!(refused["rejectionReason"], why);
    assert_eq!(stage.started(), started, "nothing ran on the host");
}

#[tokio::test(start_paused = true)]
async fn the_first_delta_of_a_part_goes_out_immediately_and_those_after_it_are_coalesced() {
    const WINDOW: Duration = Duration::from_millis(75);
    let stage = Stage::default();
    let host = builder(&stage).options(|options| options.delta_window_ms = 75).start().await;
    let mut client = begun(&host).await;
    client.request("subscribe", json!({ "channel": FIRST })).await.unwrap();
    let started = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "go" } });
    client.dispatch(FIRST, 1, started).await;
    client.actions_until("chat/turnStarted").await;
    let begun = Instant::now();
    let delta = |kind: &str, part: &str, content: &str| {
        let action = json!({ "type": kind, "turnId": "t", "partId": part, "content": content });
        stage.emit(0, Emit::Chat, action);
    };
    let part = json!({ "kind": "markdown", "id": "p", "content": "" });
    stage.emit(0, Emit::Chat, json!({ "type": "chat/responsePart", "turnId": "t", "part": part }));
    let part = json!({ "kind": "reasoning", "id": "r", "content": "" });
    stage.emit(0, Emit::Chat, json!({ "type": "chat/responsePart", "turnId": "t", "part": part }));
    for content in ["a", "b", "c"] {
        delta("chat/delta", "p", content);
    }
    let mut seen = Vec::new();
    let mut next = async |client: &mut RawClient, kind: &str| {
        let action = client.actions_until(kind).await.pop().unwrap()["action"].clone();
        seen.push((action["content"].as_str().unwrap().to_owned(), begun.elapsed()));
    };
    next(&mut client, "chat/delta").await;
    next(&mut client, "chat/delta").await;
    // Another kind: what is gathered goes out before it, and it goes out immediately.
    delta("chat/delta", "p", "d");
    delta("chat/reasoning", "r", "e");
    next(&mut client, "chat/delta").await;
    next(&mut client, "chat/reasoning").await;
    // After a pause longer than the window nothing waits.
    tokio::time::sleep(WINDOW * 2).await;
    delta("chat/reasoning", "r", "f");
    next(&mut client, "chat/reasoning").await;
    let now = Duration::ZERO;
    let wanted = [("a", now), ("bc", WINDOW), ("d", WINDOW), ("e", WINDOW), ("f", WINDOW * 3)];
    let wanted: Vec<_> = wanted.into_iter().map(|(content, at)| (content.to_owned(), at)).collect();
    assert_eq!(seen, wanted);
}

#[tokio::test]
async fn a_fork_begins_at_the_backends_own_name_of_its_turn() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::default().with_chats().naming_conversations().recording();
    let host = kept(builder(&stage), dir.path()).start().await;
    let mut client = begun(&host).await;
    say(&mut client, &stage, FIRST, 0, "t1", "Hay?", "Yes.").await;
    drop((client, host));
    let host = kept(builder(&stage), dir.path()).start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    open(&mut client, json!({ "source": { "kind": "fork", "chat": FIRST, "turnId": "t1" } })).await.unwrap();
    let forks: Vec<_> = (1..stage.started()).filter_map(|number| stage.start(number).fork_at).collect();
    assert_eq!(forks, ["own-t1"]);
    // The fork knows the name as well.
    say(&mut client, &stage, SECOND, stage.started() - 1, "t2", "Oats?", "No.").await;
    client.dispatch(SECOND, 2, json!({ "type": "chat/truncated", "turnId": "t1" })).await;
    client.actions_until("chat/truncated").await;
    let started = json!({ "type": "chat/turnStarted", "turnId": "t3", "message": { "text": "Straw?" } });
    client.dispatch(SECOND, 3, started).await;
    stage.wait_begun("t3").await;
    assert_eq!(stage.start(stage.started() - 1).rewind_at.as_deref(), Some("own-t1"));
}

/// The hidden context of a side chat, until a turn with it reaches a backend, and again for another conversation.
#[tokio::test]
async fn hidden_context_comes_with_the_first_turn_that_the_backend_receives() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::default().with_chats().naming_conversations();
    let host = kept(builder(&stage), dir.path()).start().await;
    let mut client = begun(&host).await;
    say(&mut client, &stage, FIRST, 0, "t1", "Hay?", "Yes.").await;
    let side = json!({ "source": { "kind": "sideChat", "chat": FIRST, "turnId": "t1" } });
    open(&mut client, side).await.unwrap();
    let context = stage.start(1).context;
    assert!(context.is_some());
    drop((client, host));

    // A start that fails delivers nothing.
    let host = kept(builder(&stage), dir.path()).start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    client.request("subscribe", json!({ "channel": SECOND })).await.unwrap();
    let begin = async |client: &mut RawClient, turn: &str| {
        let started = json!({ "type": "chat/turnStarted", "turnId": turn, "message": { "text": "Why?" } });
        client.dispatch(SECOND, 1, started).await;
    };
    stage.fail_starts(1);
    begin(&mut client, "s1").await;
    client.actions_until("chat/error").await;
    begin(&mut client, "s2").await;
    stage.wait_begun("s2").await;
    let latest = |stage: &Stage| stage.start(stage.started() - 1);
    assert_eq!(latest(&stage).context, context);
    assert_eq!(latest(&stage).seed.map(|turns| turns.len()), Some(1));
    let complete = |stage: &Stage, turn: &str| {
        let number = stage.started() - 1;
        stage.emit(number, Emit::Chat, json!({ "type": "chat/turnComplete", "turnId": turn, "duration": 1 }));
    };
    complete(&stage, "s2");
    client.actions_until("chat/turnComplete").await;
    host.host.stop().await;
    host.host.close().await;

    // The conversation has it.
    let host = kept(builder(&stage), dir.path()).start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    client.request("subscribe", json!({ "channel": SECOND })).await.unwrap();
    begin(&mut client, "s3").await;
    stage.wait_begun("s3").await;
    assert_eq!((latest(&stage).context, latest(&stage).seed_context), (None, context.clone()));
    complete(&stage, "s3");
    client.actions_until("chat/turnComplete").await;

    // Another conversation has not.
    client.dispatch(SECOND, 2, json!({ "type": "chat/truncated" })).await;
    client.actions_until("chat/truncated").await;
    begin(&mut client, "s4").await;
    stage.wait_begun("s4").await;
    let start = latest(&stage);
    assert_eq!((start.context, start.seed_context, start.seed), (context, None, None));
}

/// A store may have titles beside its list of chats, which the contract names as its own members.
#[tokio::test]
async fn a_title_that_the_list_of_chats_lacks_is_that_of_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::default().with_plain_chats();
    let host = kept(builder(&stage), dir.path()).start().await;
    let mut client = begun(&host).await;
    say(&mut client, &stage, FIRST, 0, "t1", "Hay?", "Yes.").await;
    open(&mut client, json!({})).await.unwrap();
    drop((client, host));
    let own = store(dir.path());
    let title = Some("Of the store".to_owned());
    own.set_chat_title.unbounded(("1".to_owned(), SECOND.to_owned(), title)).await.unwrap();
    let host = kept(builder(&stage), dir.path()).start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    assert_eq!(state(&mut client, SECOND).await["title"], "Of the store");
}
