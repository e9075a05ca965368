//! A session that slept, and one whose host was stopped, killed, lost or replaced, is the one that clients had: each conversation is
//! held once per disturbance, and what clients read afterwards is compared with what they read before.

use std::time::Duration;

use ostler_contract::points::Emit;
use ostler_contract::{Value, json};
use ostler_ports::StateDb;
use ostler_testkit::{RawClient, Stage, action};

use super::world::{ALL, Disturbance, SESSION, World, connected, host, store_of};

const OTHER: &str = "ahp-chat:/other";

/// Holds a conversation once per disturbance, and compares the row and the states before and after it.
async fn same_after_each(converse: impl AsyncFn(&mut World)) {
    for how in ALL {
        let mut world = World::at(how.home(), Stage::default().with_plain_chats()).await;
        converse(&mut world).await;
        // Deferred writes are done.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let (row, seen) = (world.row().await, world.seen().await);
        world.disturb(how).await;
        assert_eq!(world.row().await, row, "the row after {how:?}");
        assert_eq!(world.seen().await, seen, "after {how:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn workers_and_their_turns_stay() {
    same_after_each(async |world| {
        world.begin("t1").await;
        world.call("t1", "one").await;
        world.done_worker("one", json!({ "title": "First", "prompt": "Look." })).await;
        world.done_worker("deep", json!({ "title": "Inner", "parentToolCallId": "one" })).await;
        world.call("t1", "two").await;
        world.done_worker("two", json!({ "title": "Second" })).await;
        world.end("t1").await;
        world.begin("t2").await;
        world.end("t2").await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn workers_of_truncated_turns_are_gone() {
    same_after_each(async |world| {
        for (turn, call, inner) in [("t1", "one", "one-inner"), ("t2", "two", "two-inner")] {
            world.begin(turn).await;
            world.call(turn, call).await;
            world.done_worker(call, json!({ "title": call })).await;
            world.done_worker(inner, json!({ "title": inner, "parentToolCallId": call })).await;
            world.end(turn).await;
        }
        let chat = world.chat.clone();
        world.dispatch(&chat, json!({ "type": "chat/truncated", "turnId": "t1" })).await;
        let seen = world.seen().await;
        let titles: Vec<&str> =
            seen["chats"].as_array().unwrap().iter().filter_map(|chat| chat["title"].as_str()).collect();
        assert_eq!(titles, ["t1", "one", "one-inner"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_turn_is_shown_as_failed() {
    same_after_each(async |world| {
        world.client.request("createChat", json!({ "channel": SESSION, "chat": OTHER })).await.unwrap();
        world.begin("t1").await;
        let error = json!({ "errorType": "x", "message": "No." });
        world
            .emit(json!({ "type": "chat/error", "turnId": "t1", "duration": 1,
                "part": { "kind": "error", "error": error } }))
            .await;
        let (row, seen) = (world.row().await, world.seen().await);
        assert_eq!([&row["status"], &seen["session"]["status"]], [&json!(2), &json!(2)], "{row}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_failed_is_not_a_failed_session() {
    same_after_each(async |world| {
        world.begin("t1").await;
        world.call("t1", "one").await;
        let worker = world.worker("one", json!({ "title": "First" })).await;
        let error = json!({ "errorType": "x", "message": "No." });
        let failed = json!({ "type": "chat/error", "turnId": worker.turn_id, "duration": 1,
            "part": { "kind": "error", "error": error } });
        worker.emit.call((action(failed),)).unwrap();
        world.end("t1").await;
        let (row, seen) = (world.row().await, world.seen().await);
        assert_eq!([&row["status"], &seen["session"]["status"]], [&json!(1), &json!(1)], "{row}");
        assert_eq!(seen["chats"][1]["status"], 2, "{seen}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_session_follows_its_chats() {
    same_after_each(async |world| {
        world.begin("t1").await;
        assert_eq!(world.seen().await["session"]["status"], 8);
        world.ask_to_remove("t1").await;
        assert_eq!(world.seen().await["session"]["status"], 24);
        let chat = world.chat.clone();
        world
            .dispatch(
                &chat,
                json!({ "type": "chat/toolCallConfirmed", "turnId": "t1", "toolCallId": "rm",
                "approved": true, "confirmed": "user-action" }),
            )
            .await;
        world.end("t1").await;
        assert_eq!(world.seen().await["session"]["status"], 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_clients_set_stays() {
    same_after_each(async |world| {
        world.client.request("createChat", json!({ "channel": SESSION, "chat": OTHER })).await.unwrap();
        world.begin("t1").await;
        world.end("t1").await;
        let chat = world.chat.clone();
        world.dispatch(SESSION, json!({ "type": "session/titleChanged", "title": "Ours" })).await;
        world.dispatch(&chat, json!({ "type": "chat/draftChanged", "draft": { "text": "And", "origin": { "kind": "user" } } })).await;
        world.dispatch(SESSION, json!({ "type": "session/isArchivedChanged", "isArchived": true })).await;
        world
            .client
            .request(
                "moveChat",
                json!({ "channel": OTHER, "destination": { "kind": "session", "session": SESSION } }),
            )
            .await
            .unwrap();
    })
    .await;
}

/// A turn that the end of the host broke is as one that failed while the host ran.
#[tokio::test(start_paused = true)]
async fn a_broken_turn_leaves_nothing_open_and_the_queue_goes_on() {
    for how in [Disturbance::Stops, Disturbance::Killed] {
        let mut world = World::new().await;
        world.begin("t1").await;
        world.call("t1", "runs").await;
        let worker = world.worker("runs", json!({ "title": "Worker" })).await;
        world.ask_to_remove("t1").await;
        world.queue("q1").await;
        world.queue("q2").await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        world.disturb(how).await;
        if how == Disturbance::Stops {
            // Listed before anybody opens it, unless its queue goes on first.
            let status = world.row().await["status"].clone();
            assert!([json!(2), json!(8)].contains(&status), "{status}");
        }
        // A new message does not overtake those that waited.
        world.watch().await;
        let chat = world.chat.clone();
        let state = world.client.request("subscribe", json!({ "channel": chat })).await.unwrap();
        let state = &state["snapshot"]["state"];
        let broken = &state["turns"][0];
        assert_eq!([&broken["id"], &broken["state"]], [&json!("t1"), &json!("error")], "{how:?} {state}");
        assert!(broken["duration"].is_i64(), "{broken}");
        for part in broken["responseParts"].as_array().unwrap() {
            if part["kind"] == "toolCall" {
                assert_eq!(part["toolCall"]["status"], "cancelled", "{how:?} {part}");
            }
        }
        assert_eq!(state["activeTurn"]["message"]["text"], "q1", "{how:?} {state}");
        assert_eq!(state["queuedMessages"][0]["id"], "q2", "{how:?} {state}");
        let inner = world.client.request("subscribe", json!({ "channel": worker.uri })).await.unwrap();
        let inner = &inner["snapshot"]["state"];
        assert_eq!(inner["turns"][0]["state"], "error", "{how:?} {inner}");
        assert_eq!(inner["interactivity"], "read-only", "{how:?} {inner}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_host_was_killed_in_a_turn_is_listed_as_failed_before_anybody_opens_it() {
    for how in [Disturbance::Stops, Disturbance::Killed] {
        let mut world = World::new().await;
        world.begin("t1").await;
        world.disturb(how).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(world.row().await["status"], 2, "{how:?}");
        assert_eq!(world.store.waiting.as_ref().unwrap().unbounded(()).await.unwrap(), [""; 0], "{how:?}");
        // A turn that a client continues is broken again.
        world.disturb(Disturbance::Killed).await;
        assert_eq!(world.row().await["status"], 2, "{how:?}");
    }
}

/// Where the backend can continue a turn that the end of the host broke, clients can ask for it, before and after its
/// backend was there.
#[tokio::test(start_paused = true)]
async fn a_broken_turn_goes_on_where_the_backend_can() {
    for (how, earlier) in [
        (Disturbance::Stops, false),
        (Disturbance::Killed, false),
        (Disturbance::Stops, true),
        (Disturbance::Killed, true),
    ] {
        let mut world =
            World::with(Stage::default().with_plain_chats().naming_conversations().resuming()).await;
        if earlier {
            // The next turn wakes the backend.
            world.begin("t0").await;
            world.end("t0").await;
            world.disturb(Disturbance::Sleeps).await;
            world.watch().await;
        }
        world.begin("t1").await;
        world.stage.wait_begun("t1").await;
        world.call("t1", "runs").await;
        // It is stored that its backend can continue it.
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.disturb(how).await;
        world.watch().await;
        let chat = world.chat.clone();
        let state = world.client.request("subscribe", json!({ "channel": chat })).await.unwrap();
        let parts = state["snapshot"]["state"]["turns"][usize::from(earlier)]["responseParts"]
            .as_array()
            .unwrap()
            .clone();
        assert_eq!(parts.last().unwrap()["resumable"], true, "{how:?} {parts:?}");
        world.dispatch(&chat, json!({ "type": "chat/turnResume", "turnId": "t1" })).await;
        assert_eq!(world.stage.wait_told("resume").await, "t1");
        let start = world.stage.start(world.own_backend());
        assert_eq!(start.resume.as_deref(), Some("own-0"));
        let seed: Vec<_> = start.seed.unwrap().into_iter().map(|turn| turn.id).collect();
        assert_eq!(seed.last().unwrap(), "t1", "the backend has the message of the turn");
        world.end("t1").await;
        let state = world.client.request("subscribe", json!({ "channel": chat })).await.unwrap();
        assert_eq!(state["snapshot"]["state"]["turns"][usize::from(earlier)]["state"], "complete", "{state}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_waited_goes_on_although_nobody_opens_its_session() {
    for how in [Disturbance::Stops, Disturbance::Killed] {
        let mut world = World::new().await;
        world.begin("t1").await;
        world.queue("q1").await;
        world.disturb(how).await;
        let begun = |world: &World| world.stage.told().iter().any(|told| told["begin"][1] == "q1");
        for _ in 0..1000 {
            if begun(&world) {
                break;
            }
            tokio::task::yield_now().await;
        }
        assert!(begun(&world), "{how:?}");
        // Nothing waits once its turn has ended, and nothing wakes at the next start.
        world.watch().await;
        let state = world.client.request("subscribe", json!({ "channel": world.chat })).await.unwrap();
        let turn = state["snapshot"]["state"]["activeTurn"]["id"].as_str().unwrap().to_owned();
        world.end(&turn).await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        let waiting = world.store.waiting.as_ref().unwrap();
        assert_eq!(waiting.unbounded(()).await.unwrap(), [""; 0], "{how:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_works_in_the_background_does_not_sleep() {
    let mut world = World::new().await;
    world.begin("t1").await;
    world
        .emit(json!({ "type": "chat/backgroundWorkSet",
            "work": { "kind": "shell", "id": "w", "label": "Build", "command": "make", "startedAt": "2026-01-01T00:00:00Z" } }))
        .await;
    world.end("t1").await;
    drop(std::mem::replace(&mut world.client, world.host.raw()));
    tokio::time::sleep(Duration::from_secs(2000)).await;
    let entry = world.host.host.sessions.session("1").await.known().unwrap().unwrap();
    assert!(entry.is_awake(), "its work goes on");
    assert!(!world.stage.told().iter().any(|told| told.get("close").is_some()));
    let backend = world.own_backend();
    world.stage.emit(backend, Emit::Chat, json!({ "type": "chat/backgroundWorkRemoved", "id": "w" }));
    tokio::time::sleep(Duration::from_secs(2000)).await;
    assert!(!entry.is_awake());
}

/// An MCP server, as backends list it.
fn server(id: &str, state: &str) -> Value {
    let state = match state {
        "error" => json!({ "kind": "error", "error": { "errorType": "x", "message": "No." } }),
        state => json!({ "kind": state }),
    };
    json!({ "type": "mcpServer", "id": id, "uri": "file:///mcp.json", "name": id, "enabled": true, "state": state })
}

fn kit() -> Value {
    json!({ "type": "plugin", "id": "kit", "uri": "file:///kit", "name": "Kit",
        "children": [{ "type": "skill", "id": "braid", "uri": "file:///kit/braid", "name": "braid" }] })
}

async fn report(world: &mut World) {
    world.begin("t1").await;
    let listed = json!([kit(), server("broken", "error"), server("off", "stopped")]);
    world.emit_session(json!({ "type": "session/customizationsChanged", "customizations": listed })).await;
    let tool = json!({ "name": "rake", "description": "Rakes.", "inputSchema": { "type": "object" } });
    world.emit_session(json!({ "type": "session/serverToolsChanged", "tools": [tool] })).await;
    let meta = json!({ "farm.herd": { "cows": 3 }, "agentHost/sessionArtifacts": [{ "uri": "file:///a" }] });
    world.emit_session(json!({ "type": "session/metaChanged", "_meta": meta })).await;
    world
        .emit(json!({ "type": "chat/canvasesChanged", "canvases": [{ "resource": "ahp-canvas:/1" }] }))
        .await;
    world.end("t1").await;
    world.emit(json!({ "type": "chat/activityChanged", "activity": "Watching" })).await;
    world.emit_session(json!({ "type": "session/activityChanged", "activity": "Indexing" })).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_backend_reports_beside_its_turns_stays() {
    same_after_each(async |world| {
        report(world).await;
        let (row, seen) = (world.row().await, world.seen().await);
        let session = &seen["session"];
        assert_eq!(session["customizations"].as_array().unwrap().len(), 3, "{session}");
        assert_eq!(session["serverTools"][0]["name"], "rake");
        assert_eq!(session["_meta"]["farm.herd"]["cows"], 3);
        assert_eq!(session["_meta"]["agentHost/sessionArtifacts"][0]["uri"], "file:///a");
        assert_eq!([&row["activity"], &row["_meta"]["farm.herd"]["cows"]], [&json!("Indexing"), &json!(3)]);
        assert_eq!(row["_meta"].get("agentHost/sessionArtifacts"), None, "{row}");
        assert_eq!(seen["chats"][0]["activity"], "Watching");
        assert_eq!(seen["chats"][0]["canvases"][0]["resource"], "ahp-canvas:/1");
    })
    .await;
}

/// What a backend listed can be used before one runs again: its commands are offered, its servers started.
#[tokio::test(start_paused = true)]
async fn what_a_backend_reported_can_be_used_while_none_runs() {
    for how in ALL {
        let mut world = World::at(how.home(), Stage::default().with_plain_chats()).await;
        report(&mut world).await;
        let ready = server("broken", "ready");
        world.emit_session(json!({ "type": "session/customizationUpdated", "customization": ready })).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        world.disturb(how).await;
        let started = world.stage.started();
        let typed = json!({ "channel": world.chat, "kind": "userMessage", "text": "/", "offset": 1 });
        let found = world.client.request("completions", typed).await.unwrap();
        assert!(found.to_string().contains("/braid"), "{how:?} {found}");
        world.watch().await;
        let seen = world.seen().await;
        let listed = &seen["session"]["customizations"];
        assert_eq!(listed[1]["state"]["kind"], "stopped", "no process runs: {how:?} {listed}");
        assert_eq!(world.stage.started(), started, "looking starts nothing");
        world.dispatch(SESSION, json!({ "type": "session/mcpServerStartRequested", "id": "broken" })).await;
        assert_eq!(world.stage.wait_told("startMcpServer").await, "broken");
        assert_eq!(world.stage.started(), started + 1);
    }
}

/// A server is shown as it is where the backend that was to start it cannot start, and is not started for nobody.
#[tokio::test(start_paused = true)]
async fn a_server_whose_backend_does_not_start_has_failed() {
    let mut world = World::new().await;
    report(&mut world).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.disturb(Disturbance::Stops).await;
    world.watch().await;
    world.stage.fail_starts(1);
    world.dispatch(SESSION, json!({ "type": "session/mcpServerStartRequested", "id": "off" })).await;
    let failed = world.client.actions_until("session/mcpServerStateChanged").await.pop().unwrap();
    let state = &failed["action"]["state"];
    assert_eq!(
        [&state["kind"], &state["error"]["message"]],
        ["error", "the stage does not start"],
        "{failed}"
    );
    // Another attempt starts one.
    world.dispatch(SESSION, json!({ "type": "session/mcpServerStartRequested", "id": "off" })).await;
    assert_eq!(world.stage.wait_told("startMcpServer").await, "off");
}

/// A client that only watches something else stays active while the session sleeps, and has left if it disconnects then.
#[tokio::test(start_paused = true)]
async fn a_connected_client_stays_active_while_the_session_sleeps() {
    for leaves in [false, true] {
        let mut world = World::new().await;
        world.begin("t1").await;
        world.end("t1").await;
        let mut editor = world.host.raw();
        editor.initialize("editor").await;
        editor.request("subscribe", json!({ "channel": "ahp-root://" })).await.unwrap();
        let tool = json!({ "name": "shout", "description": "Shouts.", "inputSchema": { "type": "object" } });
        let active = json!({ "clientId": "editor", "tools": [tool] });
        editor
            .dispatch(SESSION, 1, json!({ "type": "session/activeClientSet", "activeClient": active }))
            .await;
        world.client.actions_until("session/activeClientSet").await;
        world.disturb(Disturbance::Sleeps).await;
        let editor = (!leaves).then_some(editor);
        world.watch().await;
        let subscribed = world.client.request("subscribe", json!({ "channel": SESSION })).await.unwrap();
        let clients =
            subscribed["snapshot"]["state"]["activeClients"].as_array().cloned().unwrap_or_default();
        let ids: Vec<_> = clients.iter().map(|client| client["clientId"].as_str().unwrap()).collect();
        assert_eq!(ids, if leaves { vec![] } else { vec!["editor"] });
        world.begin("t2").await;
        world.stage.wait_begun("t2").await;
        let tools = world.stage.start(world.own_backend()).tools.unwrap_or_default();
        let offered = tools.iter().any(|tool| tool.definition.name == "editor__shout");
        assert_eq!(offered, !leaves);
        drop(editor);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_disconnects_is_active_no_more_whatever_it_subscribed_to() {
    for subscribes in [false, true] {
        let mut world = World::new().await;
        let mut editor = world.host.raw();
        editor.initialize("editor").await;
        if subscribes {
            editor.request("subscribe", json!({ "channel": world.chat })).await.unwrap();
        }
        let set = json!({ "type": "session/activeClientSet", "activeClient": { "clientId": "editor", "tools": [] } });
        editor.dispatch(SESSION, 1, set).await;
        world.client.actions_until("session/activeClientSet").await;
        drop(editor);
        world.client.actions_until("session/activeClientRemoved").await;
    }
}

/// Without a subscription too: the end of one connection says nothing about the others.
#[tokio::test(start_paused = true)]
async fn a_client_that_another_connection_makes_active_stays_when_one_ends() {
    let mut world = World::new().await;
    let mut open = Vec::new();
    for at in 0..2 {
        let mut editor = world.host.raw();
        editor.initialize("editor").await;
        let tool = json!({ "name": format!("shout-{at}"), "inputSchema": { "type": "object" } });
        let active = json!({ "clientId": "editor", "tools": [tool] });
        let set = json!({ "type": "session/activeClientSet", "activeClient": active });
        editor.dispatch(SESSION, 1 + at, set).await;
        world.client.actions_until("session/activeClientSet").await;
        open.push(editor);
    }
    drop(open.remove(0));
    tokio::time::sleep(Duration::from_secs(100)).await;
    let subscribed = world.client.request("subscribe", json!({ "channel": SESSION })).await.unwrap();
    assert_eq!(subscribed["snapshot"]["state"]["activeClients"].as_array().unwrap().len(), 1);
    drop(open);
    world.client.actions_until("session/activeClientRemoved").await;
}

const BARN: &str = "https://barn.example";

async fn lend(client: &mut RawClient) {
    let token = json!({ "channel": "ahp-root://", "resource": BARN, "token": "hay" });
    client.request("authenticate", token).await.unwrap();
}

/// The token that a backend needs is as necessary after a restart as at the creation of its session, for every message.
#[tokio::test(start_paused = true)]
async fn a_backend_that_needs_a_token_does_not_start_without_one() {
    for how in [Disturbance::Stops, Disturbance::Killed] {
        let stage = Stage::default().with_plain_chats().needing(BARN);
        let store = store_of(StateDb::memory().unwrap());
        let host = host(&stage, &store).await;
        let mut client = connected(&host).await;
        let refused = client.request("createSession", json!({ "channel": SESSION })).await.unwrap_err();
        assert_eq!(refused["code"], -32007, "{refused}");
        lend(&mut client).await;
        client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
        let mut world = World::of(stage, store, host, client);
        world.watch().await;
        world.begin("t1").await;
        world.end("t1").await;
        world.disturb(how).await;
        world.watch().await;
        let starts = world.stage.started();
        let chat = world.chat.clone();
        let turn = json!({ "type": "chat/turnStarted", "turnId": "t2", "message": { "text": "t2" } });
        world.client.dispatch(&chat, 90, turn).await;
        let (mut asked, mut rejected) = (Vec::new(), None);
        while rejected.is_none() {
            let frame = world.client.next_frame().await.unwrap();
            if frame["method"] == "auth/required" {
                asked.push(frame["params"].clone());
            }
            rejected = frame["params"].get("rejectionReason").cloned();
        }
        assert_eq!(rejected.unwrap(), refused["message"], "{how:?}");
        assert_eq!(asked[0]["resource"]["resource"], BARN);
        assert_eq!([&asked[0]["reason"], &asked[0]["channel"]], ["required", "ahp-root://"]);
        // A queued message waits for the token.
        world.queue("q1").await;
        assert_eq!(world.stage.started(), starts);
        lend(&mut world.client).await;
        world.client.actions_until("chat/turnStarted").await;
        for _ in 0..1000 {
            if world.stage.started() > starts {
                break;
            }
            tokio::task::yield_now().await;
        }
        let credentials = world.stage.start(starts).credentials.unwrap();
        assert_eq!(credentials[BARN], "hay", "{how:?}");
    }
}

/// A session whose backend needs a token, which nobody lends since its host was stopped.
async fn without_token() -> World {
    let stage = Stage::default().with_plain_chats().needing(BARN);
    let store = store_of(StateDb::memory().unwrap());
    let first = host(&stage, &store).await;
    let mut client = connected(&first).await;
    lend(&mut client).await;
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    let mut world = World::of(stage, store, first, client);
    world.watch().await;
    world.begin("t1").await;
    world.end("t1").await;
    world.disturb(Disturbance::Stops).await;
    world
}

/// A message that waits for a token wakes its session when the token comes.
#[tokio::test(start_paused = true)]
async fn a_session_that_sleeps_wakes_for_the_token_that_its_queue_waits_for() {
    let mut world = without_token().await;
    world.watch().await;
    world.queue("q1").await;
    world.disturb(Disturbance::Sleeps).await;
    let begun = |world: &World| world.stage.told().iter().any(|told| told["begin"][1] == "q1");
    assert!(!begun(&world));
    lend(&mut world.client).await;
    for _ in 0..1000 {
        if begun(&world) {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert!(begun(&world));
}

/// Another client of the same user may bring the token that the one that created the session no longer does.
#[tokio::test(start_paused = true)]
async fn another_client_of_the_same_user_brings_the_token() {
    let mut world = without_token().await;
    let mut other = world.host.raw();
    other.initialize("other").await;
    lend(&mut other).await;
    world.client = other;
    world.watch().await;
    world.begin("t2").await;
    world.stage.wait_begun("t2").await;
    assert_eq!(world.stage.start(world.own_backend()).credentials.unwrap()[BARN], "hay");
}
