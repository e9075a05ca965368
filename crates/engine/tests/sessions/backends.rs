//! What a backend is handed and what it is told: worker chats, approvals, MCP servers, the tools endpoint.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ostler_contract::host::SessionRequest;
use ostler_contract::points::{Emit, Tool, ToolSpec, ToolsServer, Vault, Worker, WorkerRequest};
use ostler_contract::{Call, Func, JsonObject, Plugin, Value, json};
use ostler_engine::McpServers;
use ostler_engine::sessions::OpenToolsServer;
use ostler_testkit::{Builder, MemoryHost, RawClient, Stage, action};

const SESSION: &str = "stage:/1";

fn chat() -> String {
    ostler_protocol::uri::default_chat(SESSION)
}

fn builder(stage: &Stage) -> Builder {
    MemoryHost::builder().plugin(stage.plugin(), json!({})).options(|options| options.delta_window_ms = 0)
}

/// A session in which turn `t` runs, watched.
async fn running(host: &MemoryHost, stage: &Stage) -> RawClient {
    let mut client = host.raw();
    client.initialize("c").await;
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    for channel in [SESSION.to_owned(), chat()] {
        client.request("subscribe", json!({ "channel": channel })).await.unwrap();
    }
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "Go." } });
    client.dispatch(&chat(), 1, turn).await;
    stage.wait_told("begin").await;
    client
}

/// Makes a tool call that runs.
fn call(stage: &Stage, id: &str) {
    for action in running_call("t", id) {
        stage.emit(0, Emit::Chat, action);
    }
}

fn running_call(turn: &str, id: &str) -> [Value; 2] {
    [
        json!({ "type": "chat/toolCallStart", "turnId": turn, "toolCallId": id, "toolName": "task", "displayName": "Task" }),
        json!({ "type": "chat/toolCallReady", "turnId": turn, "toolCallId": id, "invocationMessage": "Working",
            "confirmed": "not-needed" }),
    ]
}

async fn worker(stage: &Stage, id: &str, request: Value) -> Worker {
    let request: WorkerRequest = serde_json::from_value(request).unwrap();
    stage.start(0).subagent.unwrap().call((id.to_owned(), request)).await.unwrap()
}

async fn state(client: &mut RawClient, channel: &str) -> Value {
    let subscribed = client.request("subscribe", json!({ "channel": channel })).await.unwrap();
    subscribed["snapshot"]["state"].clone()
}

/// A tool call of a worker that waits for an approval, and a question.
fn ask(worker: &Worker) {
    for asked in [
        json!({ "type": "chat/toolCallStart", "turnId": worker.turn_id, "toolCallId": "rm", "toolName": "rm", "displayName": "Remove" }),
        json!({ "type": "chat/toolCallReady", "turnId": worker.turn_id, "toolCallId": "rm", "invocationMessage": "Remove it",
            "options": [{ "id": "once", "label": "Once", "kind": "approve", "group": 0 },
                        { "id": "always", "label": "Always", "kind": "approve", "group": 0 }] }),
        json!({ "type": "chat/responsePart", "turnId": worker.turn_id,
            "part": { "kind": "inputRequest", "request": { "id": "q", "message": "Which?" } } }),
    ] {
        worker.emit.call((action(asked),)).unwrap();
    }
}

#[tokio::test]
async fn a_worker_has_a_chat_of_its_own_whose_answers_reach_its_leads_backend() {
    let stage = Stage::default();
    let host = builder(&stage).start().await;
    let mut client = running(&host, &stage).await;
    call(&stage, "w1");
    let opened =
        worker(&stage, "w1", json!({ "title": "Digger", "agentName": "mole", "prompt": "Dig." })).await;
    assert_eq!(opened.uri, ostler_protocol::uri::worker_chat(SESSION, "w1"));
    assert!(opened.uri.starts_with("ahp-chat://subagent/"), "{}", opened.uri);
    let session = state(&mut client, SESSION).await;
    let row = session["chats"].as_array().unwrap().iter().find(|row| row["resource"] == *opened.uri).unwrap();
    assert_eq!((&row["interactivity"], &row["title"]), (&json!("read-only"), &json!("Digger")));
    assert_eq!(row["origin"]["toolCallId"], "w1");
    let seen = state(&mut client, &opened.uri).await;
    assert_eq!(
        (&seen["activeTurn"]["id"], &seen["activeTurn"]["message"]["text"]),
        (&json!(opened.turn_id), &json!("Dig."))
    );
    let lead = state(&mut client, &chat()).await;
    let link = &lead["activeTurn"]["responseParts"][0]["toolCall"]["content"][0];
    assert_eq!((&link["type"], &link["resource"]), (&json!("subagent"), &json!(opened.uri)), "{lead}");

    let draft = json!({ "text": "Hm", "origin": { "kind": "user" } });
    client.dispatch(&opened.uri, 50, json!({ "type": "chat/draftChanged", "draft": draft })).await;
    let refused = client.actions_until("chat/draftChanged").await.pop().unwrap();
    assert!(refused["rejectionReason"].is_string(), "{refused}");
    let unnamed: WorkerRequest = serde_json::from_value(json!({ "title": "Nobody" })).unwrap();
    let refused = stage.start(0).subagent.unwrap().call((" ".to_owned(), unnamed)).await.unwrap_err();
    assert_eq!(refused.message, "subagent needs the id of the tool call that opens the worker");

    ask(&opened);
    client.actions_until("chat/responsePart").await;
    let confirmed = json!({ "type": "chat/toolCallConfirmed", "turnId": opened.turn_id, "toolCallId": "rm",
        "approved": true, "selectedOptionId": "always" });
    client.dispatch(&opened.uri, 2, confirmed).await;
    assert_eq!(stage.wait_told("confirm").await, json!(["rm", true, "always"]));
    let answered = json!({ "type": "chat/inputCompleted", "requestId": "q", "response": "accept" });
    client.dispatch(&opened.uri, 3, answered).await;
    assert_eq!(stage.wait_told("answer").await, json!(["q", true, {}]));

    opened.end.call((ostler_contract::events::TurnStatus::Complete, None)).unwrap();
    client.actions_until("chat/turnComplete").await;
    assert_eq!(state(&mut client, &opened.uri).await["turns"][0]["state"], "complete");
}

#[tokio::test]
async fn a_call_keeps_the_link_to_its_worker_whatever_its_backend_says_of_its_content() {
    let stage = Stage::default();
    let host = builder(&stage).start().await;
    let mut client = running(&host, &stage).await;
    let content = async |client: &mut RawClient, place: &str, part: usize| {
        let state = state(client, &chat()).await;
        state.pointer(&format!("{place}/responseParts/{part}/toolCall/content")).cloned().unwrap_or_default()
    };
    let link =
        |worker: &Worker, title: &str| json!({ "type": "subagent", "resource": worker.uri, "title": title });
    let text = |text: &str| json!({ "type": "text", "text": text });
    call(&stage, "w1");
    let first = worker(&stage, "w1", json!({ "title": "First" })).await;
    let of_first = link(&first, "First");
    assert_eq!(content(&mut client, "/activeTurn", 0).await, json!([of_first]));
    let changed = json!({ "type": "chat/toolCallContentChanged", "turnId": "t", "toolCallId": "w1", "content": [text("half")] });
    stage.emit(0, Emit::Chat, changed);
    client.actions_until("chat/toolCallContentChanged").await;
    client.actions_until("chat/toolCallContentChanged").await;
    assert_eq!(content(&mut client, "/activeTurn", 0).await, json!([text("half"), of_first]));
    // One that is opened before its call runs is linked once it does.
    let [start, ready] = running_call("t", "w2");
    stage.emit(0, Emit::Chat, start);
    let second = worker(&stage, "w2", json!({ "title": "Second" })).await;
    let of_second = link(&second, "Second");
    stage.emit(0, Emit::Chat, ready);
    client.actions_until("chat/toolCallContentChanged").await;
    assert_eq!(content(&mut client, "/activeTurn", 1).await, json!([of_second]));

    let done = |id: &str, content: Value| {
        let mut result = json!({ "success": true, "pastTenseMessage": "Done" });
        if !content.is_null() {
            result["content"] = content;
        }
        json!({ "type": "chat/toolCallComplete", "turnId": "t", "toolCallId": id, "result": result })
    };
    stage.emit(0, Emit::Chat, done("w1", json!([text("all")])));
    let told = client.actions_until("chat/toolCallComplete").await.pop().unwrap();
    assert_eq!(
        told["action"]["result"]["content"],
        json!([text("all"), of_first]),
        "watchers are told so too"
    );
    // A backend may say the link itself.
    stage.emit(0, Emit::Chat, done("w2", json!([of_second])));
    client.actions_until("chat/toolCallComplete").await;
    call(&stage, "w3");
    let third = worker(&stage, "w3", json!({ "title": "Third" })).await;
    stage.emit(0, Emit::Chat, done("w3", Value::Null));
    stage.emit(0, Emit::Chat, json!({ "type": "chat/turnComplete", "turnId": "t", "duration": 1 }));
    client.actions_until("chat/turnComplete").await;
    for (part, expected) in
        [(0, json!([text("all"), of_first])), (1, json!([of_second])), (2, json!([link(&third, "Third")]))]
    {
        assert_eq!(content(&mut client, "/turns/0", part).await, expected);
    }
}

#[tokio::test]
async fn a_worker_without_a_prompt_has_a_turn_all_the_same() {
    let stage = Stage::default();
    let host = builder(&stage).start().await;
    let mut client = running(&host, &stage).await;
    call(&stage, "w1");
    let opened = worker(&stage, "w1", json!({ "title": "Digger" })).await;
    let seen = state(&mut client, &opened.uri).await;
    assert_eq!(
        (&seen["activeTurn"]["id"], &seen["activeTurn"]["message"]["text"]),
        (&json!(opened.turn_id), &json!(""))
    );
    let again = worker(&stage, "w1", json!({ "title": "Digger", "prompt": "Again." })).await;
    assert_eq!(again.turn_id, opened.turn_id, "one chat and one turn per call");
}

#[tokio::test]
async fn a_workers_own_worker_is_linked_where_it_was_spawned() {
    let stage = Stage::default();
    let host = builder(&stage).start().await;
    let mut client = running(&host, &stage).await;
    call(&stage, "w1");
    let outer = worker(&stage, "w1", json!({ "title": "Outer" })).await;
    for emitted in running_call(&outer.turn_id, "w2") {
        outer.emit.call((action(emitted),)).unwrap();
    }
    let inner = worker(&stage, "w2", json!({ "title": "Inner", "parentToolCallId": "w1" })).await;
    let seen = state(&mut client, &outer.uri).await;
    assert_eq!(
        seen["activeTurn"]["responseParts"][0]["toolCall"]["content"][0]["resource"],
        json!(inner.uri),
        "{seen}"
    );
    assert_eq!(state(&mut client, &inner.uri).await["origin"]["chat"], json!(outer.uri));
    ask(&inner);
    client.actions_until("chat/responsePart").await;
    let refused = json!({ "type": "chat/toolCallConfirmed", "turnId": inner.turn_id, "toolCallId": "rm",
        "approved": false, "reason": "denied" });
    client.dispatch(&inner.uri, 2, refused).await;
    assert_eq!(stage.wait_told("confirm").await, json!(["rm", false, null]));
}

#[tokio::test]
async fn stopping_a_worker_is_its_leads_backends_to_do() {
    for stage in [Stage::default(), Stage::default().without_stop_worker()] {
        let host = builder(&stage).start().await;
        let mut client = running(&host, &stage).await;
        call(&stage, "w1");
        let opened = worker(&stage, "w1", json!({ "title": "Digger" })).await;
        client.request("subscribe", json!({ "channel": opened.uri })).await.unwrap();
        let stop = json!({ "type": "chat/turnCancelled", "turnId": opened.turn_id, "duration": 0 });
        client.dispatch(&opened.uri, 2, stop).await;
        client.actions_until("chat/turnCancelled").await;
        let told = stage.wait_told(if stage.stops_workers() { "stopWorker" } else { "cancel" }).await;
        assert_eq!(told, json!(if stage.stops_workers() { "w1" } else { "t" }));
    }
}

#[tokio::test]
async fn an_approval_carries_the_option_chosen_or_none() {
    let stage = Stage::default();
    let host = builder(&stage).start().await;
    let mut client = running(&host, &stage).await;
    let ready = |id: &str| {
        [
            json!({ "type": "chat/toolCallStart", "turnId": "t", "toolCallId": id, "toolName": "rm", "displayName": "Remove" }),
            json!({ "type": "chat/toolCallReady", "turnId": "t", "toolCallId": id, "invocationMessage": "Remove it",
                "options": [{ "id": "once", "label": "Once", "kind": "approve", "group": 0 },
                            { "id": "never", "label": "Never", "kind": "deny", "group": 1 }] }),
        ]
    };
    for (id, answer, told) in [
        ("a", json!({ "approved": true, "selectedOptionId": "once" }), json!(["a", true, "once"])),
        (
            "b",
            json!({ "approved": false, "reason": "denied", "selectedOptionId": "never" }),
            json!(["b", false, "never"]),
        ),
        ("c", json!({ "approved": true }), json!(["c", true, null])),
        ("d", json!({ "approved": false, "reason": "denied" }), json!(["d", false, null])),
    ] {
        ready(id).into_iter().for_each(|action| stage.emit(0, Emit::Chat, action));
        let actions = client.actions_until("chat/toolCallReady").await;
        assert_eq!(actions.last().unwrap()["action"]["options"][1]["kind"], "deny");
        let mut action = json!({ "type": "chat/toolCallConfirmed", "turnId": "t", "toolCallId": id });
        action.as_object_mut().unwrap().extend(answer.as_object().unwrap().clone());
        client.dispatch(&chat(), 2, action).await;
        client.actions_until("chat/toolCallConfirmed").await;
        stage.wait_told("confirm").await;
        assert!(stage.told().contains(&json!({ "confirm": told })), "{told}: {:?}", stage.told());
    }
    // An option that was not offered, and one that contradicts the answer, reach no backend.
    ready("e").into_iter().for_each(|action| stage.emit(0, Emit::Chat, action));
    client.actions_until("chat/toolCallReady").await;
    let before = stage.told().len();
    for (approved, option, refusal) in [
        (true, "always", "always is not an option of the tool call e"),
        (false, "always", "always is not an option of the tool call e"),
        (true, "", " is not an option of the tool call e"),
        (true, "never", "the option never denies the tool call e, so approved cannot be true"),
        (false, "once", "the option once approves the tool call e, so approved cannot be false"),
    ] {
        let action = json!({ "type": "chat/toolCallConfirmed", "turnId": "t", "toolCallId": "e",
            "approved": approved, "selectedOptionId": option });
        client.dispatch(&chat(), 3, action).await;
        let refused = client.actions_until("chat/toolCallConfirmed").await.pop().unwrap();
        assert_eq!(refused["rejectionReason"], refusal);
    }
    assert_eq!(stage.told().len(), before, "{:?}", stage.told());
    let seen = state(&mut client, &chat()).await;
    let waits = json!(seen["activeTurn"]["responseParts"]).to_string();
    assert!(waits.contains("pending-confirmation"), "{waits}");
    // One that offers none takes none.
    let plain = [
        json!({ "type": "chat/toolCallStart", "turnId": "t", "toolCallId": "f", "toolName": "rm", "displayName": "Remove" }),
        json!({ "type": "chat/toolCallReady", "turnId": "t", "toolCallId": "f", "invocationMessage": "Remove it" }),
    ];
    plain.into_iter().for_each(|action| stage.emit(0, Emit::Chat, action));
    client.actions_until("chat/toolCallReady").await;
    let action = json!({ "type": "chat/toolCallConfirmed", "turnId": "t", "toolCallId": "f", "approved": true,
        "selectedOptionId": "once" });
    client.dispatch(&chat(), 4, action).await;
    let refused = client.actions_until("chat/toolCallConfirmed").await.pop().unwrap();
    assert_eq!(refused["rejectionReason"], "once is not an option of the tool call f");
}

#[tokio::test]
async fn options_that_cannot_be_told_apart_are_dropped_and_edited_input_is_refused() {
    let stage = Stage::default();
    let host = builder(&stage).start().await;
    let mut client = running(&host, &stage).await;
    let options = json!([{ "id": "x", "label": "Yes", "kind": "approve", "group": 0 },
        { "id": "x", "label": "No", "kind": "deny", "group": 1 }]);
    for action in [
        json!({ "type": "chat/toolCallStart", "turnId": "t", "toolCallId": "a", "toolName": "rm", "displayName": "Remove" }),
        json!({ "type": "chat/toolCallReady", "turnId": "t", "toolCallId": "a", "invocationMessage": "Remove it",
            "toolInput": "rm a", "options": options }),
    ] {
        stage.emit(0, Emit::Chat, action);
    }
    let ready = client.actions_until("chat/toolCallReady").await.pop().unwrap();
    assert_eq!(ready["action"]["options"], Value::Null, "{ready}");
    let call = json!({ "status": "pending-confirmation", "toolCallId": "a", "toolName": "rm", "displayName": "Remove",
        "invocationMessage": "Remove it", "options": options });
    let request =
        json!({ "kind": "toolConfirmation", "id": "a", "chat": chat(), "turnId": "t", "toolCall": call });
    stage.emit(0, Emit::Session, json!({ "type": "session/inputNeededSet", "request": request }));
    let asked = client.actions_until("session/inputNeededSet").await.pop().unwrap();
    assert_eq!(asked["action"]["request"]["toolCall"]["options"], Value::Null, "{asked}");
    let confirm = |more: Value| {
        let mut action = json!({ "type": "chat/toolCallConfirmed", "turnId": "t", "toolCallId": "a" });
        action.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        action
    };
    for (answer, refusal) in [
        (json!({ "approved": false, "selectedOptionId": "x" }), "x is not an option of the tool call a"),
        (
            json!({ "approved": true, "editedToolInput": "rm b" }),
            "the input of the tool call a cannot be edited",
        ),
    ] {
        client.dispatch(&chat(), 2, confirm(answer)).await;
        let refused = client.actions_until("chat/toolCallConfirmed").await.pop().unwrap();
        assert!(refused["rejectionReason"].as_str().unwrap().starts_with(refusal), "{refused}");
    }
    client.dispatch(&chat(), 3, confirm(json!({ "approved": false, "reason": "denied" }))).await;
    client.actions_until("chat/toolCallConfirmed").await;
    stage.wait_told("confirm").await;
    assert!(stage.told().contains(&json!({ "confirm": ["a", false, null] })), "{:?}", stage.told());
}

#[tokio::test]
async fn mcp_servers_are_read_at_each_sessions_start() {
    let (stage, asked) = (Stage::default(), Arc::new(AtomicU64::new(0)));
    let counted = asked.clone();
    let servers = McpServers::new(move || match counted.fetch_add(1, Ordering::Relaxed) {
        0 => JsonObject::new(),
        n => json!({ "notes": { "type": "http", "url": format!("https://a.example/{n}") } })
            .as_object()
            .unwrap()
            .clone(),
    });
    let host = builder(&stage).options(|options| options.mcp_servers = servers).start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    for number in 1..=3 {
        client.request("createSession", json!({ "channel": format!("stage:/{number}") })).await.unwrap();
    }
    assert_eq!(stage.start(0).mcp_servers, None, "absent, not empty");
    for number in [1, 2] {
        let servers = stage.start(number).mcp_servers.unwrap();
        assert_eq!(servers["notes"]["url"], json!(format!("https://a.example/{number}")));
    }
    let without = Stage::default();
    let host = builder(&without).start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    assert_eq!(without.start(0).mcp_servers, None);
}

#[tokio::test]
async fn secrets_of_mcp_servers_are_read_for_the_session_they_belong_to() {
    let secret = |name: &str| json!({ "$secret": name });
    let configured = json!({
        "any": { "type": "stdio", "command": "c", "env": { "KEY": secret("host:k"), "OPEN": "as it is" } },
        "ada": { "type": "http", "url": "https://a.example/", "headers": { "x-key": secret("user:ada/k") } },
        "inn": { "type": "http", "url": "https://a.example/", "headers": { "x-key": secret("team:inn/k") } },
        "none": { "type": "stdio", "command": "c", "env": { "KEY": secret("host:none") } },
        "odd": { "type": "stdio", "command": "c", "env": { "KEY": secret("SECRET-typed-here") } },
    });
    let configured = configured.as_object().unwrap().clone();
    let servers = McpServers::new(move || configured.clone());
    let vault = Vault {
        get: Call::now(
            |(name,): (String,)| Ok((name != "host:none").then(|| format!("the value of {name}"))),
        ),
        set: Call::now(|_| Ok(())),
        delete: Call::now(|_| Ok(false)),
        list: Call::now(|()| Ok(vec![])),
        close: None,
    };
    let stage = Stage::default();
    let starter = Plugin::new("@test/starter", |_, _| Box::pin(std::future::ready(Ok(()))));
    let host = builder(&stage)
        .plugin(starter, json!({}))
        .options(|options| options.mcp_servers = servers)
        .vault(vault)
        .start()
        .await;
    let mut number = 0;
    let mut given = async |owner: &str| {
        let request =
            SessionRequest { owner: owner.into(), provider: Some("stage".into()), ..Default::default() };
        host.plugin("starter").start_session(request).await.unwrap();
        number += 1;
        let servers = stage.start(number - 1).mcp_servers.unwrap();
        assert_eq!(servers["any"]["env"], json!({ "KEY": "the value of host:k", "OPEN": "as it is" }));
        let header = |name: &str| servers.get(name).map(|server| server["headers"]["x-key"].clone());
        (servers.len(), header("ada"), header("inn"))
    };
    let (ada, inn) = (Some(json!("the value of user:ada/k")), Some(json!("the value of team:inn/k")));
    assert_eq!(given("user:ada").await, (2, ada, None));
    assert_eq!(given("team:inn").await, (2, None, inn.clone()));
    assert_eq!(given("project:inn:stable").await, (2, None, inn));
    assert_eq!(given("user:bea").await, (1, None, None));
    for line in [
        "skipped mcpServers.ada: headers.x-key names user:ada/k: it is for sessions of user ada",
        "skipped mcpServers.inn: headers.x-key names team:inn/k: it is for sessions of team inn",
        "skipped mcpServers.none: env.KEY names host:none: the vault holds no host:none",
        "skipped mcpServers.odd: env.KEY is not a secret reference: a secret is named host:<name>, team:<team>/<name> or \
         user:<id>/<name>",
    ] {
        assert!(host.log.has(line), "{line}: {:#?}", host.log.all());
    }
    assert!(!host.log.has("SECRET-typed-here") && !host.log.has("the value of"), "{:#?}", host.log.all());
}

#[tokio::test]
async fn the_tools_endpoint_is_there_only_where_the_host_has_tool_servers() {
    let stage = Stage::default();
    let host = builder(&stage).start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    assert!(stage.start(0).tools_server.is_none());

    let stage = Stage::default();
    let host = builder(&stage).start().await;
    host.host.sessions.set_tools_server(OpenToolsServer::new(|tools, _| {
        let session = tools.session().to_owned();
        let close = Func::new(|()| Ok(()));
        let (url, outdated) = (format!("http://127.0.0.1/ahp-mcp/{session}"), Func::new(|_| Ok(false)));
        let open = ToolsServer { url, token: "k".into(), outdated, close };
        Box::pin(async move { Ok((session == SESSION).then_some(open)) })
    }));
    let mut client = host.raw();
    client.initialize("c").await;
    for session in [SESSION, "stage:/none"] {
        client.request("createSession", json!({ "channel": session })).await.unwrap();
    }
    let open = async |number| stage.start(number).tools_server.unwrap().call((None,)).await.unwrap();
    let opened = open(0).await.unwrap();
    assert_eq!((opened.url.as_str(), opened.token.as_str()), ("http://127.0.0.1/ahp-mcp/stage:/1", "k"));
    assert!(open(1).await.is_none(), "nothing where none can be opened");
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_never_pauses_is_told_to() {
    let stage = Stage::default();
    let host = MemoryHost::builder().plugin(stage.plugin(), json!({})).start().await;
    let mut client = running(&host, &stage).await;
    let part = json!({ "kind": "markdown", "id": "p", "content": "" });
    stage.emit(0, Emit::Chat, json!({ "type": "chat/responsePart", "turnId": "t", "part": part }));
    let emit = stage.start(0).emit;
    let word = || action(json!({ "type": "chat/delta", "turnId": "t", "partId": "p", "content": "neigh " }));
    // Nothing is taken while this task does not pause.
    let refused = (0..100_000).find_map(|_| emit.call((Emit::Chat, word())).err()).unwrap();
    assert_eq!(
        (refused.name.as_str(), refused.message.as_str()),
        ("QuotaExceededError", "50000 emitted actions already wait; pause before there are more")
    );
    let end = action(json!({ "type": "chat/turnComplete", "turnId": "t", "duration": 1 }));
    while emit.call((Emit::Chat, end.clone())).is_err() {
        tokio::task::yield_now().await;
    }
    client.actions_until("chat/turnComplete").await;
    let said = state(&mut client, &chat()).await["turns"][0]["responseParts"][0]["content"].to_string();
    assert!(said.matches("neigh").count() >= 49_000, "what was taken is not lost");
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_emits_much_at_once_is_told_to_pause() {
    let stage = Stage::default();
    let host = MemoryHost::builder().plugin(stage.plugin(), json!({})).start().await;
    let mut client = running(&host, &stage).await;
    let part = json!({ "kind": "markdown", "id": "p", "content": "" });
    stage.emit(0, Emit::Chat, json!({ "type": "chat/responsePart", "turnId": "t", "part": part }));
    let emit = stage.start(0).emit;
    let text = "n".repeat(1 << 20);
    let word = || action(json!({ "type": "chat/delta", "turnId": "t", "partId": "p", "content": text }));
    let whole = |at: u32| {
        let part = json!({ "kind": "markdown", "id": format!("q{at}"), "content": text });
        action(json!({ "type": "chat/responsePart", "turnId": "t", "part": part }))
    };
    // Nothing is taken while this task does not pause.
    let mut emitted = 0;
    let refused = (0..1000).find_map(|at| {
        let next = if at % 2 == 0 { word() } else { whole(at) };
        emitted += 1;
        emit.call((Emit::Chat, next)).err()
    });
    let refused = refused.expect("bytes are limited");
    assert_eq!(refused.name, "QuotaExceededError");
    assert!(
        refused.message.ends_with(" bytes of emitted actions already wait; pause before there are more"),
        "{refused}"
    );
    assert!((5..=9).contains(&emitted), "{emitted} MiB");
    // All places are given back, and one that is larger than all of them passes alone.
    client.actions_until("chat/delta").await;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let large =
        json!({ "type": "chat/delta", "turnId": "t", "partId": "p", "content": "n".repeat(20 << 20) });
    emit.call((Emit::Chat, action(large))).unwrap();
    assert!(emit.call((Emit::Chat, word())).is_err());
}

/// A host with the echo backend, and a client in a session of it.
async fn echo(options: Value) -> (MemoryHost, RawClient, String) {
    let shout = Plugin::new("@test/shout", |host, _| {
        Box::pin(async move {
            for name in ["shout", "whisper"] {
                host.register_tool(Tool {
                    definition: ToolSpec { name: name.into(), ..ToolSpec::default() },
                    run: Call::now(move |_| Ok(name.into())),
                    ..Tool::default()
                })?;
            }
            Ok(())
        })
    });
    let builder =
        MemoryHost::builder().plugin(ostler_plugin_echo::plugin(), options).plugin(shout, json!({}));
    let host = builder.options(|options| options.delta_window_ms = 0).start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    client.request("createSession", json!({ "channel": "echo:/1" })).await.unwrap();
    let chat = ostler_protocol::uri::default_chat("echo:/1");
    for channel in ["echo:/1", chat.as_str()] {
        client.request("subscribe", json!({ "channel": channel })).await.unwrap();
    }
    (host, client, chat)
}

fn begin(turn: &str, text: &str) -> Value {
    json!({ "type": "chat/turnStarted", "turnId": turn, "message": { "text": text } })
}

/// Reads a turn to its end; answers the type it ended with and what was said in it.
async fn ended(client: &mut RawClient, chat: &str) -> (String, String) {
    let mut said = String::new();
    loop {
        let seen = client.next_action().await;
        let action = &seen["action"];
        if seen["channel"] == *chat {
            said.push_str(action["content"].as_str().unwrap_or_default());
            let kind = action["type"].as_str().unwrap();
            if ["chat/turnComplete", "chat/turnCancelled"].contains(&kind) {
                return (kind.to_owned(), said);
            }
        }
    }
}

#[tokio::test]
async fn a_backends_option_says_what_stopping_a_worker_stops() {
    for (options, end, said) in [
        (json!({}), "chat/turnComplete", "The worker was stopped."),
        (json!({ "workerStop": "worker" }), "chat/turnComplete", "The worker was stopped."),
        (json!({ "workerStop": "session" }), "chat/turnCancelled", ""),
    ] {
        let (_host, mut client, chat) = echo(options.clone()).await;
        client.dispatch(&chat, 1, begin("t", "/worker /hang")).await;
        let added = client.actions_until("session/chatAdded").await.pop().unwrap();
        let worker = added["action"]["summary"]["resource"].as_str().unwrap().to_owned();
        let turn = state(&mut client, &worker).await["activeTurn"]["id"].clone();
        let stop = json!({ "type": "chat/turnCancelled", "turnId": turn, "duration": 0 });
        client.dispatch(&worker, 2, stop).await;
        assert_eq!(ended(&mut client, &chat).await, (end.to_owned(), said.to_owned()), "{options}");
        assert_eq!(state(&mut client, &worker).await["turns"][0]["state"], "cancelled");
    }
}

#[tokio::test]
async fn a_backend_keeps_an_approval_for_its_session_and_tool() {
    let (_host, mut client, chat) = echo(json!({})).await;
    let asked = async |client: &mut RawClient, channel: &str, turn: &str, tool: &str| {
        client.dispatch(channel, 1, begin(turn, &format!("/confirm {tool}"))).await;
        client.actions_until("chat/toolCallReady").await.pop().unwrap()["action"].clone()
    };
    let ready = asked(&mut client, &chat, "t1", "shout").await;
    let ids: Vec<&str> =
        ready["options"].as_array().unwrap().iter().map(|option| option["id"].as_str().unwrap()).collect();
    assert_eq!((ids, &ready["confirmed"]), (vec!["approve", "alwaysApprove", "deny"], &Value::Null));
    let answer = |turn: &str, option: &str| {
        json!({ "type": "chat/toolCallConfirmed", "turnId": turn, "toolCallId": format!("{turn}-call"),
            "approved": true, "selectedOptionId": option })
    };
    client.dispatch(&chat, 2, answer("t1", "approve")).await;
    assert_eq!(ended(&mut client, &chat).await.1, "shout");
    assert!(asked(&mut client, &chat, "t2", "shout").await["options"].is_array(), "once is once");
    client.dispatch(&chat, 2, answer("t2", "alwaysApprove")).await;
    assert_eq!(ended(&mut client, &chat).await.1, "shout");
    assert_eq!(
        asked(&mut client, &chat, "t3", "shout").await["confirmed"],
        "setting",
        "it is not asked again"
    );
    assert_eq!(ended(&mut client, &chat).await.1, "shout");
    // In another chat of the session neither; for another tool and in another session it is.
    client.request("createChat", json!({ "channel": "echo:/1", "chat": "ahp-chat:/2" })).await.unwrap();
    client.request("subscribe", json!({ "channel": "ahp-chat:/2" })).await.unwrap();
    assert_eq!(asked(&mut client, "ahp-chat:/2", "t1", "shout").await["confirmed"], "setting");
    assert!(asked(&mut client, &chat, "t4", "whisper").await["options"].is_array());
    client.request("createSession", json!({ "channel": "echo:/2" })).await.unwrap();
    let other = ostler_protocol::uri::default_chat("echo:/2");
    client.request("subscribe", json!({ "channel": other })).await.unwrap();
    assert!(asked(&mut client, &other, "t1", "shout").await["options"].is_array());
}

#[tokio::test]
async fn a_backend_that_can_no_longer_continue_is_not_sent_messages() {
    let stage = Stage::default();
    let host = builder(&stage).start().await;
    let mut client = running(&host, &stage).await;
    stage.end_with("The barn is closed.");
    stage.emit(0, Emit::Chat, json!({ "type": "chat/turnComplete", "turnId": "t", "duration": 1 }));
    client.actions_until("chat/turnComplete").await;
    let mut refused = Value::Null;
    for number in 0..100 {
        // The host asks after the turn has ended, so that a message may come before the answer.
        let turn = format!("t{number}");
        let started = json!({ "type": "chat/turnStarted", "turnId": turn, "message": { "text": "On." } });
        client.dispatch(&chat(), 2, started).await;
        let answered = client.actions_until("chat/turnStarted").await.pop().unwrap();
        if answered.get("rejectionReason").is_some() {
            refused = answered["rejectionReason"].clone();
            break;
        }
        stage.wait_begun(&turn).await;
        stage.emit(0, Emit::Chat, json!({ "type": "chat/turnComplete", "turnId": turn, "duration": 1 }));
        client.actions_until("chat/turnComplete").await;
    }
    assert_eq!(refused, "The barn is closed.");
    let queued = json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": "q", "message": { "text": "On." } });
    client.dispatch(&chat(), 3, queued).await;
    let answered = client.actions_until("chat/pendingMessageSet").await.pop().unwrap();
    assert_eq!(answered["rejectionReason"], "The barn is closed.");
    // Another conversation can continue.
    client.dispatch(&chat(), 4, json!({ "type": "chat/truncated" })).await;
    client.actions_until("chat/truncated").await;
    let started = json!({ "type": "chat/turnStarted", "turnId": "again", "message": { "text": "On." } });
    client.dispatch(&chat(), 5, started).await;
    stage.wait_begun("again").await;
}
