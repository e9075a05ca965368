//! Sessions, seen by clients.

use ostler_contract::points::{Agent, AgentSession, Start};
use ostler_contract::{Call, Frozen, JsonObject, Plugin, Thrown, Value, json};
use ostler_testkit::MemoryHost;

const SESSION: &str = "echo:/6f1c";

async fn host() -> MemoryHost {
    MemoryHost::builder()
        .plugin(ostler_plugin_echo::plugin(), json!({}))
        .options(|o| o.delta_window_ms = 0)
        .start()
        .await
}

fn chat() -> String {
    ostler_protocol::uri::default_chat(SESSION)
}

fn turn(id: &str, text: &str) -> Value {
    json!({ "type": "chat/turnStarted", "turnId": id, "message": { "text": text } })
}

#[tokio::test(start_paused = true)]
async fn a_turn_streams_back_word_by_word() {
    let host = host().await;
    let mut client = host.raw();
    client.initialize("c").await;
    assert_eq!(
        client.request("createSession", json!({ "channel": SESSION, "provider": "echo" })).await,
        Ok(Value::Null)
    );
    let subscribed = client.request("subscribe", json!({ "channel": chat() })).await.unwrap();
    assert_eq!(subscribed["snapshot"]["resource"], json!(chat()));
    client.dispatch(&chat(), 7, turn("t1", "hello to you")).await;
    let actions = client.actions_until("chat/turnComplete").await;
    let names: Vec<&str> = actions.iter().map(|a| a["action"]["type"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "chat/turnStarted",
            "chat/responsePart",
            "chat/delta",
            "chat/delta",
            "chat/delta",
            "chat/turnComplete"
        ]
    );
    assert_eq!(actions[0]["origin"], json!({ "clientId": "c", "clientSeq": 7 }));
    let said: String = actions[2..5].iter().map(|a| a["action"]["content"].as_str().unwrap()).collect();
    assert_eq!(said, "hello to you");
    let seqs: Vec<u64> = actions.iter().map(|a| a["serverSeq"].as_u64().unwrap()).collect();
    assert!(seqs.windows(2).all(|pair| pair[0] < pair[1]), "{seqs:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_backend_that_never_pauses_is_seen_while_it_speaks() {
    let host = MemoryHost::builder()
        .plugin(ostler_plugin_echo::plugin(), json!({}))
        .options(|o| o.delta_window_ms = 5)
        .start()
        .await;
    let mut client = host.raw();
    client.initialize("c").await;
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    client.request("subscribe", json!({ "channel": chat() })).await.unwrap();
    client.dispatch(&chat(), 1, turn("t1", "/words 300000")).await;
    let actions = client.actions_until("chat/turnComplete").await;
    let said: Vec<usize> =
        actions.iter().filter_map(|action| action["action"]["content"].as_str()).map(str::len).collect();
    let (most, all) = (said.iter().max().unwrap(), said.iter().sum::<usize>());
    assert!(most * 2 < all, "{most} of {all} came at once");
}

#[tokio::test(start_paused = true)]
async fn commands_and_dispatches_sent_back_to_back_keep_their_order() {
    let host = host().await;
    let mut client = host.raw();
    client.initialize("c").await;
    for frame in [
        json!({ "jsonrpc": "2.0", "id": 91, "method": "createSession", "params": { "channel": SESSION } }),
        json!({ "jsonrpc": "2.0", "id": 92, "method": "subscribe", "params": { "channel": chat() } }),
        json!({ "jsonrpc": "2.0", "method": "dispatchAction", "params": { "channel": SESSION, "clientSeq": 1,
            "action": { "type": "session/activeClientSet", "activeClient": { "clientId": "c", "tools": [] } } } }),
        json!({ "jsonrpc": "2.0", "method": "dispatchAction", "params": { "channel": chat(), "clientSeq": 2, "action": turn("t1", "go") } }),
    ] {
        client.send(&frame.to_string()).await;
    }
    let actions = client.actions_until("chat/turnComplete").await;
    assert_eq!(actions[0]["action"]["type"], "chat/turnStarted");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_is_refused_to_its_sender_alone() {
    let host = host().await;
    let mut client = host.raw();
    client.initialize("c").await;
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    let mut other = host.raw();
    other.initialize("o").await;
    for channel in [SESSION.to_owned(), chat()] {
        client.request("subscribe", json!({ "channel": channel })).await.unwrap();
        other.request("subscribe", json!({ "channel": channel })).await.unwrap();
    }
    let seq = host.host.core.fanout.seq();
    let cases = [
        (
            chat(),
            json!({ "type": "chat/turnCancelled", "turnId": "t", "duration": 0 }),
            "no such turn is running in this chat",
        ),
        (
            chat(),
            json!({ "type": "chat/delta", "turnId": "t", "partId": "p", "content": "x" }),
            "only the host sends chat/delta",
        ),
        (chat(), json!({ "type": "chat/nonsense" }), "chat/nonsense is not an action this host serves"),
        (chat(), json!({}), "an action needs a type"),
        (chat(), json!({ "type": "chat/turnStarted" }), "chat/turnStarted: missing field `turnId`"),
        (
            chat(),
            json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "x", "origin": { "kind": "agent" } } }),
            "a client may only send messages of a person",
        ),
        (
            SESSION.to_owned(),
            json!({ "type": "session/titleChanged", "title": "  " }),
            "a title needs at least one character",
        ),
        (SESSION.to_owned(), turn("t", "x"), "chat/turnStarted does not belong on echo:/6f1c"),
        (
            "echo:/nobody".to_owned(),
            json!({ "type": "session/isReadChanged", "isRead": true }),
            "No agent for session echo:/nobody",
        ),
        (
            "x-notes://all".to_owned(),
            json!({ "type": "x-notes/added" }),
            "a plugin's channel accepts no actions of clients",
        ),
        (
            chat(),
            json!({ "type": "chat/toolCallConfirmed", "turnId": "t", "toolCallId": "c", "approved": true }),
            "the tool call c does not wait for an approval",
        ),
        (chat(), json!({ "type": "chat/truncated", "turnId": "gone" }), "gone is not a turn of this chat"),
    ];
    for (at, (channel, action, why)) in cases.into_iter().enumerate() {
        client.dispatch(&channel, at as i64, action.clone()).await;
        let refused = client.next_action().await;
        assert_eq!(refused["rejectionReason"], json!(why));
        assert_eq!(refused["origin"]["clientSeq"], json!(at));
        assert_eq!(refused["action"], action);
    }
    assert_eq!(host.host.core.fanout.seq(), seq, "a refusal takes no number");
    client.dispatch(SESSION, 99, json!({ "type": "session/titleChanged", "title": "Kept" })).await;
    let seen = other.next_action().await;
    assert_eq!(seen["action"]["title"], "Kept", "nothing of the refusals reached another client");
    let seq = host.host.core.fanout.seq();
    client.dispatch(SESSION, 100, json!({ "type": "session/titleChanged", "title": " Kept" })).await;
    client.dispatch(SESSION, 101, json!({ "type": "session/titleChanged", "title": "Other" })).await;
    let told = other.actions_until("session/titleChanged").await.pop().unwrap();
    assert_eq!(told["action"]["title"], "Other", "what changes nothing is not told of");
    assert!(host.host.core.fanout.seq() > seq);
    for wrong in ["relative", "http://x/y", "file://elsewhere/a", ""] {
        let session = json!({ "channel": "echo:/lost", "workingDirectories": [wrong] });
        let refused = client.request("createSession", session).await.unwrap_err();
        let why = format!("workingDirectories: {wrong} is neither a file: URI nor an absolute path");
        assert_eq!((&refused["code"], &refused["message"]), (&json!(-32602), &json!(why)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_turn_ends_once_and_a_queued_message_takes_its_place() {
    let host = host().await;
    let mut client = host.raw();
    client.initialize("c").await;
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    client.request("subscribe", json!({ "channel": chat() })).await.unwrap();
    client.dispatch(&chat(), 1, turn("t1", "/hang")).await;
    let queued = json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": "q1", "message": { "text": "next" } });
    client.dispatch(&chat(), 2, queued).await;
    client.actions_until("chat/pendingMessageSet").await;
    client.dispatch(&chat(), 3, turn("t2", "busy")).await;
    assert!(client.next_action().await["rejectionReason"].as_str().unwrap().contains("pending"));
    client.dispatch(&chat(), 4, json!({ "type": "chat/turnCancelled", "turnId": "t1", "duration": 5 })).await;
    let cancelled = client.next_action().await;
    assert_eq!(cancelled["action"]["type"], "chat/turnCancelled");
    let started = client.next_action().await;
    assert_eq!(started["action"]["queuedMessageId"], "q1");
    client.actions_until("chat/turnComplete").await;
    let state =
        client.request("subscribe", json!({ "channel": chat() })).await.unwrap()["snapshot"]["state"].clone();
    assert_eq!(state["turns"][0]["state"], "cancelled");
    assert_eq!(state["turns"][1]["state"], "complete");
    assert!(state.get("queuedMessages").is_none());
}

#[tokio::test(start_paused = true)]
async fn scripted_turns_end_as_they_say() {
    let host = host().await;
    let mut client = host.raw();
    client.initialize("c").await;
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    client.request("subscribe", json!({ "channel": chat() })).await.unwrap();
    client.request("subscribe", json!({ "channel": SESSION })).await.unwrap();
    client.dispatch(&chat(), 1, turn("t1", "/fail because")).await;
    let failed = client.actions_until("chat/error").await.pop().unwrap();
    assert_eq!(failed["action"]["part"]["error"]["message"], "because");
    client.dispatch(&chat(), 2, turn("t2", "/throw up")).await;
    let thrown = client.actions_until("chat/error").await.pop().unwrap();
    assert_eq!(thrown["action"]["part"]["error"]["message"], "up");
    assert!(host.log.has("backend echo failed: up"), "{:?}", host.log.all());
    client.dispatch(&chat(), 3, turn("t3", "/ask Who?")).await;
    let asked = client.actions_until("session/inputNeededSet").await.pop().unwrap();
    let id = asked["action"]["request"]["id"].as_str().unwrap().to_owned();
    client
        .dispatch(&chat(), 4, json!({ "type": "chat/inputCompleted", "requestId": id, "response": "accept" }))
        .await;
    assert_eq!(
        client.actions_until("chat/inputCompleted").await.pop().unwrap()["rejectionReason"],
        "the question answer needs an answer"
    );
    let answers = json!({ "answer": { "state": "submitted", "value": { "kind": "text", "value": "me" } } });
    client.dispatch(&chat(), 5, json!({ "type": "chat/inputCompleted", "requestId": id, "response": "accept", "answers": answers })).await;
    let rest = client.actions_until("chat/turnComplete").await;
    assert!(rest.iter().any(|a| a["action"]["type"] == "session/inputNeededRemoved"));
    let said: String = rest
        .iter()
        .filter(|a| a["action"]["type"] == "chat/delta")
        .map(|a| a["action"]["content"].as_str().unwrap())
        .collect();
    assert_eq!(said, "You said: me");
}

#[tokio::test(start_paused = true)]
async fn listings_and_the_root_follow_a_session_through_its_life() {
    let host = host().await;
    let mut watcher = host.raw();
    watcher.initialize("w").await;
    watcher.request("subscribe", json!({ "channel": "ahp-root://" })).await.unwrap();
    let mut client = host.raw();
    client.initialize("c").await;
    client
        .request("createSession", json!({ "channel": "ahp-session:/abc", "provider": "echo" }))
        .await
        .unwrap();
    let error = client.request("createSession", json!({ "channel": "echo:/abc" })).await.unwrap_err();
    assert_eq!(error["code"], -32003);
    let error = client
        .request("createSession", json!({ "channel": "echo:/x", "provider": "nobody" }))
        .await
        .unwrap_err();
    assert_eq!(
        (error["code"].clone(), error["message"].as_str().unwrap()),
        (json!(-32002), "No provider called nobody")
    );
    let chat = ostler_protocol::uri::default_chat("echo:/abc");
    client.dispatch(&chat, 1, turn("t1", "  Name   me\nso ")).await;
    let added = watcher.next_frame().await.unwrap();
    let summary = &added["params"]["summary"];
    assert_eq!(
        (&added["method"], &summary["resource"], &summary["title"]),
        (&json!("root/sessionAdded"), &json!("echo:/abc"), &json!("Name me so"))
    );
    let listed = client.request("listSessions", json!({ "channel": "ahp-root://" })).await.unwrap();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    client.dispatch("echo:/abc", 2, json!({ "type": "session/titleChanged", "title": "Renamed" })).await;
    client.request("disposeSession", json!({ "channel": "ahp-session:/abc" })).await.unwrap();
    let mut titles = Vec::new();
    loop {
        let frame = watcher.next_frame().await.unwrap();
        match frame["method"].as_str().unwrap() {
            "root/sessionSummaryChanged" => {
                titles.extend(frame["params"]["changes"]["title"].as_str().map(str::to_owned))
            }
            "root/sessionRemoved" => break,
            _ => {}
        }
    }
    assert_eq!(titles, ["Renamed"]);
    let error = client.request("subscribe", json!({ "channel": "echo:/abc" })).await.unwrap_err();
    assert_eq!(error["code"], -32001);
    assert_eq!(client.request("listSessions", json!({})).await.unwrap()["items"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn before_initialize_only_ping_is_answered() {
    let host = host().await;
    let mut client = host.raw();
    assert_eq!(client.request("ping", json!({})).await, Ok(Value::Null));
    assert_eq!(client.request("listSessions", json!({})).await.unwrap_err()["code"], -32600);
    let refused = client
        .request(
            "initialize",
            json!({ "channel": "ahp-root://", "clientId": "c", "protocolVersions": ["0.5.1"] }),
        )
        .await
        .unwrap_err();
    assert_eq!(refused["code"], -32005);
    assert!(refused["data"]["supportedVersions"].is_array());
    assert_eq!(client.ended().await, ostler_engine::outbox::Closed::Protocol);
}

/// A backend that cannot start a session in one directory.
fn picky() -> Plugin {
    Plugin::new("@test/picky", |host, _| {
        Box::pin(async move {
            host.register_agent(Agent {
                provider: "picky".into(),
                display_name: "Picky".into(),
                schema: Call::now(|()| Ok(json!({ "properties": {} }))),
                defaults: Call::now(|()| Ok(JsonObject::new())),
                create: Call::now(|(start,): (Frozen<Start>,)| match start.0.working_directory.as_deref() {
                    Some("/wrong") => Err(Thrown::new("not here")),
                    _ => Ok(AgentSession {
                        begin: Call::now(|_| Ok(())),
                        cancel: Call::now(|_| Ok(())),
                        close: Call::now(|_| Ok(())),
                        ..AgentSession::default()
                    }),
                }),
                ..Agent::default()
            })
        })
    })
}

#[tokio::test]
async fn a_creation_tells_its_progress_to_the_end_and_is_of_a_session() {
    let host = MemoryHost::builder().plugin(picky(), json!({})).start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    for channel in ["ahp-chat:/1", "ahp-terminal:/1", "ahp-automation-run:/1", "ahp-root://"] {
        let refused = client.request("createSession", json!({ "channel": channel })).await.unwrap_err();
        assert_eq!(refused["code"], -32602, "{channel}: {refused}");
    }
    // The second one fails: its directory is none.
    for (session, folder, last) in
        [("picky:/p1", None, "Ready"), ("picky:/p2", Some("file:///wrong"), "Failed")]
    {
        let mut params = json!({ "channel": session, "progressToken": session });
        if let Some(folder) = folder {
            params["workingDirectories"] = json!([folder]);
        }
        let frame = json!({ "jsonrpc": "2.0", "id": 500, "method": "createSession", "params": params });
        client.send(&frame.to_string()).await;
        let mut told = Vec::new();
        loop {
            let frame = client.next_frame().await.unwrap();
            if frame["id"] == 500 {
                assert_eq!(frame.get("error").is_some(), folder.is_some(), "{frame}");
                break;
            }
            if frame["method"] == "root/progress" {
                told.push(frame["params"].clone());
            }
        }
        let end = told.last().unwrap_or_else(|| panic!("{session} says nothing"));
        assert_eq!([&end["message"], &end["progress"]], [&json!(last), &end["total"]], "{told:?}");
    }
}
