//! What editors rely on: snapshots of the version they speak, directories, settings, tools of their own.

use std::collections::BTreeMap;
use std::sync::Arc;

use ostler_contract::{Plugin, Value, json};
use ostler_engine::{Found, LocalSystem, Pinned, Principal};
use ostler_ports::{SqliteSessions, StateDb};
use ostler_protocol::grants::Grant;
use ostler_testkit::cases::at_once;
use ostler_testkit::{MemoryHost, RawClient};

const SESSION: &str = "echo:/6f1c";

async fn host() -> MemoryHost {
    MemoryHost::builder()
        .plugin(ostler_plugin_echo::plugin(), json!({}))
        .options(|options| options.delta_window_ms = 0)
        .start()
        .await
}

fn chat() -> String {
    ostler_protocol::uri::default_chat(SESSION)
}

fn turn(id: &str, text: &str) -> Value {
    json!({ "type": "chat/turnStarted", "turnId": id, "message": { "text": text } })
}

async fn speaking(host: &MemoryHost, name: &str, version: &str) -> RawClient {
    let mut client = host.raw();
    let params = json!({ "channel": "ahp-root://", "clientId": name, "protocolVersions": [version] });
    client.request("initialize", params).await.unwrap();
    client
}

async fn state(client: &mut RawClient, channel: &str) -> Value {
    let seen = client.request("subscribe", json!({ "channel": channel })).await.unwrap();
    seen["snapshot"]["state"].clone()
}

fn said(actions: &[Value]) -> String {
    actions.iter().filter_map(|action| action["action"]["content"].as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn an_older_client_sees_no_state_whose_actions_it_is_not_sent() {
    let host = host().await;
    let mut new = speaking(&host, "new", "1.0.0").await;
    let mut old = speaking(&host, "old", "0.9.0").await;
    new.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    let second = "ahp-chat:/second";
    new.request("createChat", json!({ "channel": SESSION, "chat": second })).await.unwrap();
    let live = state(&mut old, SESSION).await;
    assert_eq!(live["chats"].as_array().unwrap().len(), 2);
    new.dispatch(second, 1, json!({ "type": "chat/isReadChanged", "isRead": true })).await;
    new.dispatch(second, 2, json!({ "type": "chat/isArchivedChanged", "isArchived": true })).await;
    new.dispatch(SESSION, 3, json!({ "type": "session/isReadChanged", "isRead": true })).await;

    let (seen, whole) = (state(&mut old, second).await, state(&mut new, second).await);
    assert_eq!((&whole["status"], &whole["movable"]), (&json!(1 + 32 + 64), &json!(true)));
    assert_eq!((&seen["status"], seen.get("movable")), (&json!(1), None));
    assert_eq!(seen["title"], whole["title"]);

    let (seen, whole) = (state(&mut old, SESSION).await, state(&mut new, SESSION).await);
    let marks = |state: &Value| {
        let chats = state["chats"].as_array().unwrap();
        let marked = chats.iter().find(|chat| chat["resource"] == second).unwrap();
        (marked["status"].clone(), marked.get("movable").cloned())
    };
    assert_eq!(marks(&whole), (json!(97), Some(json!(true))));
    assert_eq!(marks(&seen), (json!(1), None));
    assert_eq!((&seen["status"], &whole["status"]), (&json!(33), &json!(33)), "a session's marks are older");

    // What followed the first snapshot agrees with it.
    let mut followed = Vec::new();
    for frame in old.ready_frames().await {
        let action = &frame["params"]["action"];
        followed.extend(action["changes"].get("status").cloned());
        followed.extend(action["summary"].get("status").cloned());
        assert!(action["summary"].get("movable").is_none() && action["changes"].get("movable").is_none());
    }
    assert!(!followed.is_empty() && followed.iter().all(|status| *status == 1), "{followed:?}");

    let again = json!({ "channel": "ahp-root://", "clientId": "back", "protocolVersions": ["0.9.0"],
        "initialSubscriptions": [second] });
    let let_in = host.raw().request("initialize", again).await.unwrap();
    assert_eq!(let_in["snapshots"][0]["state"]["status"], 1);
}

#[tokio::test(start_paused = true)]
async fn sessions_are_sorted_by_the_hosts_clock() {
    let host = host().await;
    let mut client = host.raw();
    client.initialize("c").await;
    for (id, started) in [("late", "2099-01-01T00:00:00.000Z"), ("early", "1999-01-01T00:00:00.000Z")] {
        let session = format!("echo:/{id}");
        client.request("createSession", json!({ "channel": session })).await.unwrap();
        let chat = ostler_protocol::uri::default_chat(&session);
        client.request("subscribe", json!({ "channel": chat })).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_secs(60)).await;
        let mut action = turn("t1", "hello");
        action["startedAt"] = started.into();
        client.dispatch(&chat, 1, action).await;
        let started_as = client.actions_until("chat/turnStarted").await.pop().unwrap();
        let started_at = started_as["action"]["startedAt"].as_str().unwrap();
        assert!(("2026".."2027").contains(&started_at), "{started_at} is not of the host's clock");
        client.actions_until("chat/turnComplete").await;
        tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    }
    let listed = client.request("listSessions", json!({})).await.unwrap();
    let rows: Vec<_> =
        listed["items"].as_array().unwrap().iter().map(|row| row["resource"].clone()).collect();
    assert_eq!(rows, ["echo:/early", "echo:/late"]);
    for row in listed["items"].as_array().unwrap() {
        let (created, modified) = (row["createdAt"].as_str().unwrap(), row["modifiedAt"].as_str().unwrap());
        assert!(created < modified && modified < "2099", "{row}");
        let watched = client.request("subscribe", json!({ "channel": row["resource"] })).await.unwrap();
        let chat = &watched["snapshot"]["state"]["chats"][0];
        let changed = chat["modifiedAt"].as_str().unwrap();
        assert!(created < changed && changed <= modified, "{chat} of {row}");
    }
}

/// Clients whose clocks are wrong start turns and cancel them; what of it is stored, sorted or shown is of the host's clock,
/// also after the host was killed.
#[test]
fn no_time_of_a_clients_clock_is_stored() {
    let db = StateDb::memory().unwrap();
    let other = "ahp-chat:/other";
    let chats = || {
        ["echo:/1", "echo:/2"].map(ostler_protocol::uri::default_chat).into_iter().chain([other.to_owned()])
    };
    let mut before: Vec<Value> = Vec::new();
    for killed in [false, true] {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let store = SqliteSessions::new(db.clone(), ostler_ports::Report::new(|line| panic!("{line}")));
            let started = if killed { "2026-02-01T00:00:00Z" } else { "2026-01-01T00:00:00Z" };
            let host = MemoryHost::builder()
                .plugin(ostler_plugin_echo::plugin(), json!({}))
                .sessions(at_once(Arc::new(store).into_point()))
                .started(started.parse().unwrap())
                .start()
                .await;
            let mut client = host.raw();
            client.initialize("c").await;
            if !killed {
                for session in ["echo:/1", "echo:/2"] {
                    client.request("createSession", json!({ "channel": session })).await.unwrap();
                }
                client.request("createChat", json!({ "channel": "echo:/1", "chat": other })).await.unwrap();
                let times = [
                    ("t1", "0001-01-01T00:00:00Z", 0),
                    // Later than any turn can end.
                    ("t2", "9999-12-30T22:00:00.999Z", i64::MAX),
                    ("t3", "2031-01-01T00:00:00Z", -1),
                ];
                for (at, chat) in chats().enumerate() {
                    client.request("subscribe", json!({ "channel": chat })).await.unwrap();
                    for (turn_id, started, duration) in times {
                        tokio::time::sleep(std::time::Duration::from_secs(60)).await;
                        let mut action = turn(turn_id, "/hang");
                        action["startedAt"] = started.into();
                        client.dispatch(&chat, 1 + at as i64, action).await;
                        client.actions_until("chat/turnStarted").await;
                        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
                        let cancel =
                            json!({ "type": "chat/turnCancelled", "turnId": turn_id, "duration": duration });
                        client.dispatch(&chat, 10 + at as i64, cancel).await;
                        let cancelled = client.actions_until("chat/turnCancelled").await.pop().unwrap();
                        assert_eq!(cancelled["action"]["duration"], 5000, "{started}");
                    }
                }
                // What is written later is written.
                tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            }
            let mut after = Vec::new();
            for chat in chats() {
                let read = client.request("subscribe", json!({ "channel": chat })).await.unwrap();
                let state = &read["snapshot"]["state"];
                let turns = state["turns"].as_array().unwrap();
                assert_eq!(turns.len(), 3);
                let started: Vec<_> = turns.iter().map(|turn| turn["startedAt"].clone()).collect();
                after.push(json!([state["modifiedAt"], started]));
            }
            for session in ["echo:/1", "echo:/2"] {
                let read = client.request("subscribe", json!({ "channel": session })).await.unwrap();
                let chats = read["snapshot"]["state"]["chats"].as_array().unwrap();
                after.push(chats.iter().map(|chat| chat["modifiedAt"].clone()).collect());
            }
            let listed = client.request("listSessions", json!({})).await.unwrap();
            after.push(
                listed["items"].as_array().unwrap().iter().map(|row| row["modifiedAt"].clone()).collect(),
            );
            let text = json!(after).to_string();
            for time in text.split('"').filter(|part| part.contains('T')) {
                assert!(
                    ("2026-01-01".."2026-01-02").contains(&time),
                    "{time} is not of the host's clock: {text}"
                );
            }
            if killed {
                assert_eq!(json!(after), json!(before));
            }
            before = after;
        });
    }
}

/// The disk of the machine the test runs on.
struct Disk;

impl LocalSystem for Disk {
    fn home(&self) -> Option<String> {
        None
    }

    fn look(&self, path: &str) -> Option<Found> {
        let real = std::fs::canonicalize(path).ok()?;
        Some(Found { is_directory: real.is_dir(), real: real.to_string_lossy().into_owned() })
    }

    fn parts(&self) -> Result<BTreeMap<String, Pinned>, String> {
        Ok(BTreeMap::new())
    }
}

/// A plugin that starts nothing by itself.
fn starter() -> Plugin {
    Plugin::new("@test/starter", |_, _| Box::pin(async { Ok(()) }))
}

#[tokio::test]
async fn a_client_names_directories_that_are_served() {
    let disk = tempfile::tempdir().unwrap();
    let path = |name: &str| disk.path().join(name).to_string_lossy().into_owned();
    for folder in ["served/yard", "other"] {
        std::fs::create_dir_all(path(folder)).unwrap();
    }
    std::fs::write(path("served/file"), "").unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink(path("other"), path("served/out")).unwrap();
    let served = path("served");
    let host = MemoryHost::builder()
        .plugin(ostler_plugin_echo::plugin(), json!({}))
        .plugin(starter(), json!({}))
        .here(Arc::new(Disk))
        .options(|options| options.paths = vec![served])
        .start()
        .await;
    host.host.core.listening();
    let mut client = host.raw();
    client.initialize("c").await;
    let uri = |name: &str| format!("file://{}", path(name));
    for (folder, code, why) in [
        ("served/gone", -32602, "does not exist"),
        ("served/file", -32602, "is not a directory"),
        ("other", -32009, "is outside the directories this host serves"),
        ("served/out", -32009, "is outside the directories this host serves"),
        ("nowhere", -32009, "is outside the directories this host serves"),
        ("served/../other", -32009, "is outside the directories this host serves"),
    ] {
        let session = json!({ "channel": SESSION, "workingDirectories": [uri(folder)] });
        let refused = client.request("createSession", session).await.unwrap_err();
        assert_eq!(refused["code"], code, "{folder}: {refused}");
        let message = refused["message"].as_str().unwrap();
        assert!(message.starts_with("workingDirectories: file://") && message.contains(why), "{message}");
    }
    assert!(host.host.sessions.all().is_empty(), "what is refused leaves nothing");
    // None at all is the default, and one that is served is taken.
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    assert_eq!(state(&mut client, SESSION).await["workingDirectories"], json!([uri("served")]));
    let yard = json!({ "channel": "echo:/yard", "workingDirectories": [uri("served/yard")] });
    client.request("createSession", yard).await.unwrap();

    // A plugin's session works anywhere there is.
    let start = async |folder: &str| {
        let request = json!({ "owner": "plugin:starter", "workingDirectory": path(folder) });
        host.plugin("starter").start_session(serde_json::from_value(request).unwrap()).await
    };
    start("other").await.unwrap();
    let refused = start("gone").await.unwrap_err();
    assert!(refused.message.ends_with("does not exist"), "{}", refused.message);
}

#[tokio::test(start_paused = true)]
async fn resolved_settings_hold_no_key_this_host_has_not() {
    let host = host().await;
    let mut client = host.raw();
    client.initialize("c").await;
    let config = json!({ "isolation": "worktree", "branch": "main", "autoApprove": "default", "delayMs": 3 });
    let resolved = client.request("resolveSessionConfig", json!({ "config": config })).await.unwrap();
    assert_eq!(resolved["values"], json!({ "delayMs": 3 }));
}

async fn with_tool(host: &MemoryHost, name: &str) -> RawClient {
    let mut client = host.raw();
    client.initialize(name).await;
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    client.request("subscribe", json!({ "channel": SESSION })).await.unwrap();
    client.request("subscribe", json!({ "channel": chat() })).await.unwrap();
    let tool = json!({ "name": "shout", "description": "Shouts.", "inputSchema": { "type": "object" } });
    let active = json!({ "clientId": name, "tools": [tool] });
    client.dispatch(SESSION, 1, json!({ "type": "session/activeClientSet", "activeClient": active })).await;
    client.actions_until("session/activeClientSet").await;
    client
}

#[tokio::test(start_paused = true)]
async fn echo_has_a_client_run_the_clients_tool() {
    let host = host().await;
    let mut client = with_tool(&host, "editor").await;
    for (at, name) in ["editor__shout", "shout"].into_iter().enumerate() {
        let id = format!("t{at}");
        client.dispatch(&chat(), 2, turn(&id, &format!(r#"/tool {name} {{"text":"a"}}"#))).await;
        let actions = client.actions_until("session/inputNeededSet").await;
        let of = |kind: &str| actions.iter().find(|a| a["action"]["type"] == kind).unwrap()["action"].clone();
        let start = of("chat/toolCallStart");
        let contributor = json!({ "kind": "client", "clientId": "editor" });
        assert_eq!((&start["toolName"], &start["contributor"]), (&json!("shout"), &contributor));
        assert_eq!(of("chat/toolCallReady")["toolInput"], r#"{"text":"a"}"#);
        let request = of("session/inputNeededSet")["request"].clone();
        assert_eq!(
            (&request["kind"], &request["clientId"], &request["toolCall"]["toolInput"]),
            (&json!("toolClientExecution"), &json!("editor"), &json!(r#"{"text":"a"}"#))
        );
        let result = json!({ "success": true, "pastTenseMessage": "Shouted",
            "content": [{ "type": "text", "text": "A!" }] });
        let done = json!({ "type": "chat/toolCallComplete", "turnId": id,
            "toolCallId": start["toolCallId"], "result": result });
        client.dispatch(&chat(), 3, done).await;
        let rest = client.actions_until("chat/turnComplete").await;
        let completed = rest.iter().find(|a| a["action"]["type"] == "chat/toolCallComplete").unwrap();
        assert_eq!(completed["action"]["result"], result);
        assert!(rest.iter().any(|a| a["action"]["type"] == "session/inputNeededRemoved"));
        assert_eq!(said(&rest), "A!");
    }
    // One that leaves has not run it.
    client.dispatch(&chat(), 4, turn("last", "/tool shout {}")).await;
    client.actions_until("session/inputNeededSet").await;
    client.dispatch(SESSION, 5, json!({ "type": "session/activeClientRemoved", "clientId": "editor" })).await;
    let rest = client.actions_until("chat/turnComplete").await;
    assert_eq!(said(&rest), "editor disconnected before it had run this tool");
}

#[tokio::test(start_paused = true)]
async fn echo_shows_the_input_of_a_call_it_asks_approval_for() {
    let host = host().await;
    let mut client = with_tool(&host, "editor").await;
    client.dispatch(&chat(), 2, turn("t1", r#"/confirm shout {"text":"a"}"#)).await;
    let asked = client.actions_until("session/inputNeededSet").await.pop().unwrap();
    let call = asked["action"]["request"]["toolCall"].clone();
    assert_eq!(call["invocationMessage"], r#"Calling shout with {"text":"a"}"#);
    assert_eq!(call["toolInput"], r#"{"text":"a"}"#);
    assert_eq!(call["confirmationTitle"], "Call shout");
    let approve = json!({ "type": "chat/toolCallConfirmed", "turnId": "t1", "toolCallId": call["toolCallId"],
        "approved": true, "selectedOptionId": "approve" });
    client.dispatch(&chat(), 3, approve).await;
    let actions = client.actions_until("session/inputNeededSet").await;
    let request = &actions.last().unwrap()["action"]["request"];
    assert_eq!(request["kind"], "toolClientExecution", "an approved call is the client's to run");
}

#[tokio::test(start_paused = true)]
async fn a_setting_of_the_host_approves_all_calls() {
    let host = host().await;
    let mut client = with_tool(&host, "editor").await;
    let set = |value: bool| json!({ "type": "root/configChanged", "config": { "globalAutoApproveEnabled": value } });
    client.request("subscribe", json!({ "channel": "ahp-root://" })).await.unwrap();
    client.dispatch("ahp-root://", 2, set(true)).await;
    client.actions_until("root/configChanged").await;
    client.dispatch(&chat(), 3, turn("t1", r#"/confirm shout {"text":"a"}"#)).await;
    let actions = client.actions_until("session/inputNeededSet").await;
    let request = &actions.last().unwrap()["action"]["request"];
    assert_eq!(request["kind"], "toolClientExecution", "nobody is asked: {request}");
    let approved =
        actions.iter().find(|action| action["action"]["type"] == "chat/toolCallConfirmed").unwrap();
    assert_eq!(
        (&approved["action"]["approved"], &approved["action"]["confirmed"]),
        (&json!(true), &json!("setting"))
    );
    client.dispatch(SESSION, 4, json!({ "type": "session/activeClientRemoved", "clientId": "editor" })).await;
    client.actions_until("chat/turnComplete").await;
    // Without it, users are asked again.
    client.dispatch("ahp-root://", 5, set(false)).await;
    client.actions_until("root/configChanged").await;
    client.dispatch(&chat(), 6, turn("t2", r#"/confirm shout {"text":"a"}"#)).await;
    let asked = client.actions_until("session/inputNeededSet").await.pop().unwrap();
    assert_eq!(asked["action"]["request"]["kind"], "toolConfirmation");
}

#[tokio::test(start_paused = true)]
async fn a_session_shows_a_running_chat_before_its_turn_begins() {
    let host = host().await;
    let mut client = speaking(&host, "editor", "1.0.0").await;
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    state(&mut client, SESSION).await;
    state(&mut client, &chat()).await;
    for (seq, id) in [(1, "t1"), (2, "t2")] {
        client.dispatch(&chat(), seq, turn(id, "Hello")).await;
        let actions = client.actions_until("chat/turnComplete").await;
        let at = |found: &dyn Fn(&Value) -> bool| {
            actions.iter().position(|action| found(&action["action"])).unwrap()
        };
        let begun = at(&|action| action["type"] == "chat/turnStarted");
        let shown = at(&|action| {
            action["type"] == "session/chatUpdated"
                && action["changes"]["status"].as_u64().is_some_and(|status| status & 8 != 0)
        });
        assert!(shown < begun, "{id}: {shown} {begun}");
        assert!(actions[shown]["serverSeq"].as_u64() < actions[begun]["serverSeq"].as_u64());
    }
}

/// Answers the next request the host sends a client.
async fn answer(client: &mut RawClient, reply: Value) -> (String, Value) {
    loop {
        let frame = client.next_frame().await.unwrap();
        if let (Some(id), Some(method)) = (frame.get("id"), frame["method"].as_str()) {
            let mut answer = json!({ "jsonrpc": "2.0", "id": id });
            answer.as_object_mut().unwrap().extend(reply.as_object().unwrap().clone());
            client.send(&answer.to_string()).await;
            return (method.to_owned(), frame["params"].clone());
        }
    }
}

/// What comes of a request while another client answers what the host asks it.
async fn served(
    reader: &mut RawClient,
    publisher: &mut RawClient,
    method: &str,
    params: Value,
    reply: Value,
) -> (Result<Value, Value>, (String, Value)) {
    futures::join!(reader.request(method, params), answer(publisher, reply))
}

const WRAPPED: &str = "vscode-agent-client://editor/file/-/home/ada/a.txt";

#[tokio::test(start_paused = true)]
async fn what_a_client_publishes_is_read_there() {
    let host = host().await;
    let (mut editor, mut reader) = (host.raw(), host.raw());
    editor.initialize("editor").await;
    reader.initialize("reader").await;
    let text = json!({ "result": { "data": "aGF5", "encoding": "base64", "contentType": "text/plain" } });
    let read = json!({ "uri": WRAPPED });
    let (answered, asked) = served(&mut reader, &mut editor, "resourceRead", read, text.clone()).await;
    assert_eq!(answered, Ok(text["result"].clone()));
    let params = json!({ "channel": "ahp-root://", "uri": "file:///home/ada/a.txt" });
    assert_eq!(asked, ("resourceRead".to_owned(), params), "the client is asked for its own URI");
    let read = json!({ "uri": WRAPPED, "encoding": "utf-8" });
    let (answered, _) = served(&mut reader, &mut editor, "resourceRead", read, text.clone()).await;
    assert_eq!(answered.unwrap(), json!({ "data": "hay", "encoding": "utf-8", "contentType": "text/plain" }));

    // Any other scheme with the client's id is passed on as it is, and so is a refusal.
    let error = json!({ "code": -32008, "message": "No hay", "data": { "left": 0 } });
    let read = json!({ "uri": "memory://editor/barn/hay" });
    let (answered, asked) =
        served(&mut reader, &mut editor, "resourceRead", read, json!({ "error": error })).await;
    assert_eq!((answered, &asked.1["uri"]), (Err(error), &json!("memory://editor/barn/hay")));

    let entries = json!({ "entries": [{ "name": "a", "type": "file" }] });
    let reply = json!({ "result": entries });
    for (method, params, own) in [
        ("resourceList", json!({ "uri": WRAPPED }), json!({ "uri": "file:///home/ada/a.txt" })),
        (
            "resourceWrite",
            json!({ "uri": WRAPPED, "data": "x", "encoding": "utf-8" }),
            json!({ "data": "x" }),
        ),
        (
            "resourceMove",
            json!({ "source": WRAPPED, "destination": format!("{WRAPPED}.old") }),
            json!({ "destination": "file:///home/ada/a.txt.old" }),
        ),
    ] {
        let (answered, asked) = served(&mut reader, &mut editor, method, params, reply.clone()).await;
        assert_eq!((answered, asked.0.as_str()), (Ok(entries.clone()), method));
        for (key, value) in own.as_object().unwrap() {
            assert_eq!(&asked.1[key], value);
        }
    }
    let across = json!({ "source": WRAPPED, "destination": "vscode-agent-client://reader/file/-/b" });
    assert_eq!(reader.request("resourceCopy", across).await.unwrap_err()["code"], -32602);
    let watched = reader.request("createResourceWatch", json!({ "uri": WRAPPED })).await.unwrap_err();
    assert_eq!(watched["code"], -32601);
    let gone = json!({ "uri": "vscode-agent-client://nobody/file/-/a" });
    assert_eq!(reader.request("resourceRead", gone).await.unwrap_err()["code"], -32008);
    let nothing = reader.request("resourceRead", json!({ "uri": "memory://nobody/a" })).await.unwrap_err();
    assert_eq!(
        (&nothing["code"], &nothing["message"]),
        (&json!(-32601), &json!("nothing here serves memory:"))
    );

    // A client that does not answer, one that answers too much, and one that leaves.
    let begun = tokio::time::Instant::now();
    let silent = reader.request("resourceRead", json!({ "uri": WRAPPED })).await.unwrap_err();
    assert_eq!(silent["message"], "client editor did not answer resourceRead within 30 seconds");
    assert_eq!(begun.elapsed().as_secs(), 30);
    editor.next_frame().await.unwrap();
    let much = json!({ "result": { "data": "x".repeat((16 << 20) + 1), "encoding": "utf-8" } });
    let (answered, _) =
        served(&mut reader, &mut editor, "resourceRead", json!({ "uri": WRAPPED }), much).await;
    let refused = answered.unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains("the limit is 16777216"), "{refused}");
    let leaving = async {
        let asked = editor.next_frame().await.unwrap();
        assert_eq!(asked["method"], "resourceRead");
        editor.connection.close();
    };
    let read = json!({ "uri": WRAPPED });
    let (answered, ()) = futures::join!(reader.request("resourceRead", read), leaving);
    assert_eq!(answered.unwrap_err()["message"], "client editor disconnected");
}

/// A client may have several connections: one it came back on before the host noticed that the first was dead, or one that
/// does not serve requests.
#[tokio::test(start_paused = true)]
async fn what_a_client_with_several_connections_publishes_is_read_over_the_newest_that_answers() {
    let host = host().await;
    let (mut older, mut newer, mut reader) = (host.raw(), host.raw(), host.raw());
    older.initialize("editor").await;
    newer.initialize("editor").await;
    reader.initialize("reader").await;
    let reply = |text: &str| json!({ "result": { "data": text, "encoding": "utf-8" } });
    let read = || json!({ "uri": WRAPPED });
    let (answered, _) = served(&mut reader, &mut newer, "resourceRead", read(), reply("new")).await;
    assert_eq!(answered.unwrap()["data"], "new");
    assert!(older.ready_frames().await.is_empty(), "one connection is asked");

    for (method, result) in [
        ("resourceRead", reply("old")),
        ("resourceList", json!({ "result": { "entries": [] } })),
        ("resourceResolve", json!({ "result": { "uri": "file:///a", "type": "file" } })),
    ] {
        let asked = tokio::time::Instant::now();
        let (answered, _) = served(&mut reader, &mut older, method, read(), result.clone()).await;
        assert_eq!(answered, Ok(result["result"].clone()), "the newer one says nothing");
        assert!(asked.elapsed().as_secs() < 5, "{method}: {:?}", asked.elapsed());
    }

    // A change is asked of one connection only.
    newer.ready_frames().await;
    let write = json!({ "uri": WRAPPED, "data": "x", "encoding": "utf-8" });
    let silent = reader.request("resourceWrite", write).await.unwrap_err();
    assert_eq!(silent["message"], "client editor did not answer resourceWrite within 30 seconds");
    assert_eq!(newer.ready_frames().await.len(), 1);
    assert!(older.ready_frames().await.is_empty());

    let leaving = async {
        newer.next_frame().await.unwrap();
        newer.connection.close();
        answer(&mut older, reply("left")).await
    };
    let asked = tokio::time::Instant::now();
    let (answered, _) = futures::join!(reader.request("resourceRead", read()), leaving);
    assert_eq!(answered.unwrap()["data"], "left");
    assert_eq!(asked.elapsed().as_millis(), 0, "no time is lost where a connection is known to be gone");
    let silent = reader.request("resourceRead", read()).await.unwrap_err();
    assert_eq!(silent["message"], "client editor did not answer resourceRead within 30 seconds");
}

#[tokio::test(start_paused = true)]
async fn a_backend_reads_what_a_client_publishes() {
    let host = host().await;
    let mut client = with_tool(&host, "editor").await;
    client.dispatch(&chat(), 2, turn("t1", &format!("/read {WRAPPED}"))).await;
    let reply = json!({ "result": { "data": "aGF5", "encoding": "base64" } });
    let (method, params) = answer(&mut client, reply).await;
    assert_eq!((method.as_str(), &params["uri"]), ("resourceRead", &json!("file:///home/ada/a.txt")));
    assert_eq!(said(&client.actions_until("chat/turnComplete").await), "hay");
    client.dispatch(&chat(), 3, turn("t2", &format!("/read {WRAPPED}"))).await;
    let failed = client.actions_until("chat/error").await.pop().unwrap();
    assert_eq!(
        failed["action"]["part"]["error"]["message"],
        "client editor did not answer resourceRead within 30 seconds"
    );
}

/// A window on another computer attaches its files by URIs that name no client.
#[tokio::test(start_paused = true)]
async fn a_backend_reads_an_attachment_that_only_its_sender_has() {
    const REMOTE: &str = "vscode-remote://ssh-remote+box/home/ada/a.txt";
    let host = host().await;
    let mut client = with_tool(&host, "editor").await;
    let mut other = host.raw();
    other.initialize("other").await;
    let attach = |uri: &str| {
        let claim = json!({ "ostler.client": "other", "own": 1 });
        json!([{ "type": "resource", "uri": uri, "label": "a.txt", "_meta": claim }])
    };
    let read = |uri: &str, attached: &str| message_with(&format!("/read {uri}"), attach(attached));
    let reply = || json!({ "result": { "data": "hay", "encoding": "utf-8" } });
    let start =
        |id: &str, message: Value| json!({ "type": "chat/turnStarted", "turnId": id, "message": message });

    client.dispatch(&chat(), 2, start("t1", read(REMOTE, REMOTE))).await;
    let asked = answer(&mut client, reply()).await;
    assert_eq!((asked.0.as_str(), &asked.1["uri"]), ("resourceRead", &json!(REMOTE)));
    assert_eq!(said(&client.actions_until("chat/turnComplete").await), "hay");
    let meta = async |client: &mut RawClient| {
        let turns = state(client, &chat()).await["turns"].as_array().unwrap().clone();
        turns.last().unwrap()["message"]["attachments"][0]["_meta"].clone()
    };
    assert_eq!(meta(&mut client).await, json!({ "own": 1, "ostler.client": "editor" }));

    // From the queue as well, where the host no longer knows who sent it but for its note.
    let note = "untitled:Untitled-1";
    let queued =
        json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": "q", "message": read(note, note) });
    client.dispatch(&chat(), 3, queued).await;
    assert_eq!(answer(&mut client, reply()).await.1["uri"], note);
    assert_eq!(said(&client.actions_until("chat/turnComplete").await), "hay");

    // What is served elsewhere is not marked, and a URI that nobody attached is not asked for.
    for (at, uri) in ["file:///a", "https://example.org/a", WRAPPED].into_iter().enumerate() {
        client.dispatch(&chat(), 4, start(&format!("s{at}"), message_with("hi", attach(uri)))).await;
        client.actions_until("chat/turnComplete").await;
        assert_eq!(meta(&mut client).await, json!({ "own": 1 }), "{uri}");
    }
    let failure = async |client: &mut RawClient| {
        let failed = client.actions_until("chat/error").await.pop().unwrap();
        failed["action"]["part"]["error"]["message"].as_str().unwrap().to_owned()
    };
    client.dispatch(&chat(), 5, start("t5", read("vscode-remote://b/c", "file:///a"))).await;
    assert_eq!(failure(&mut client).await, "nothing here serves vscode-remote:");
    assert!(other.ready_frames().await.is_empty(), "another client is asked for nothing");

    // Once the client is gone, the error says so.
    other.request("subscribe", json!({ "channel": chat() })).await.unwrap();
    client.connection.close();
    other.dispatch(&chat(), 1, turn("t6", &format!("/read {REMOTE}"))).await;
    assert_eq!(
        failure(&mut other).await,
        format!("{REMOTE}: client editor, which attached it, is not connected")
    );
}

fn message_with(text: &str, attachments: Value) -> Value {
    json!({ "text": text, "origin": { "kind": "user" }, "attachments": attachments })
}

fn picture(bytes: &[u8]) -> Value {
    use ostler_contract::points::ResourceContent;
    json!({ "type": "embeddedResource", "label": "barn.png", "displayKind": "image", "contentType": "image/png",
        "data": ResourceContent::base64(bytes).data })
}

async fn kept_host(store: &ostler_contract::points::SessionStore) -> MemoryHost {
    MemoryHost::builder()
        .plugin(ostler_plugin_echo::plugin(), json!({}))
        .options(|options| options.delta_window_ms = 0)
        .sessions(store.clone())
        .start()
        .await
}

fn store() -> ostler_contract::points::SessionStore {
    use ostler_ports::{SqliteSessions, StateDb};
    let db = StateDb::memory().unwrap();
    Arc::new(SqliteSessions::new(db, ostler_ports::Report::quiet())).into_point()
}

#[tokio::test]
async fn a_large_attachment_is_stored_beside_its_session() {
    let store = store();
    let host = kept_host(&store).await;
    let mut client = host.raw();
    client.initialize("c").await;
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    client.request("subscribe", json!({ "channel": chat() })).await.unwrap();
    let (small, large) = (picture(&[1; 4096]), picture(&[2; 1_500_000]));
    let note = json!({ "type": "simple", "label": "note", "modelRepresentation": "hay" });
    let started = json!({ "type": "chat/turnStarted", "turnId": "t1",
        "message": message_with("look", json!([small, large, note])) });
    client.dispatch(&chat(), 1, started).await;
    let echoed = client.actions_until("chat/turnStarted").await.pop().unwrap();
    assert_eq!(echoed["origin"]["clientSeq"], 1);
    let attachments = echoed["action"]["message"]["attachments"].clone();
    assert_eq!((&attachments[0], &attachments[2]), (&small, &note));
    let uri = attachments[1]["uri"].as_str().unwrap().to_owned();
    assert_eq!(
        attachments[1],
        json!({ "type": "resource", "label": "barn.png", "displayKind": "image", "contentType": "image/png",
            "uri": uri, "sizeHint": 1_500_000 })
    );
    client.actions_until("chat/turnComplete").await;
    let seen = client.request("subscribe", json!({ "channel": chat() })).await.unwrap();
    assert!(seen.to_string().len() < 20_000, "{} bytes", seen.to_string().len());

    // Clients and backends read it.
    let read = client.request("resourceRead", json!({ "uri": uri })).await.unwrap();
    assert_eq!(read, json!({ "data": large["data"], "encoding": "base64", "contentType": "image/png" }));
    let facts = client.request("resourceResolve", json!({ "uri": uri })).await.unwrap();
    assert_eq!(facts, json!({ "uri": uri, "type": "file", "size": 1_500_000, "contentType": "image/png" }));
    client.dispatch(&chat(), 2, turn("t2", &format!("/read {uri}"))).await;
    let said = said(&client.actions_until("chat/turnComplete").await);
    assert_eq!(said, format!("image/png {}", large["data"].as_str().unwrap()));

    // The same content is kept once, whichever message brings it.
    let queued = json!({ "type": "chat/draftChanged", "draft": message_with("later", json!([large])) });
    client.dispatch(&chat(), 3, queued).await;
    let draft = client.actions_until("chat/draftChanged").await.pop().unwrap();
    assert_eq!(draft["action"]["draft"]["attachments"][0]["uri"], uri.as_str());
    let broken = json!({ "type": "embeddedResource", "label": "bad.png", "contentType": "image/png",
        "data": "?".repeat(9000) });
    let started =
        json!({ "type": "chat/turnStarted", "turnId": "t3", "message": message_with("x", json!([broken])) });
    client.dispatch(&chat(), 4, started).await;
    let refused = client.actions_until("chat/turnStarted").await.pop().unwrap();
    let why = refused["rejectionReason"].as_str().unwrap();
    assert!(why.starts_with("the attachment bad.png is not base64"), "{why}");

    // It is there after a restart, and goes with its session.
    host.host.close().await;
    let host = kept_host(&store).await;
    let mut client = host.raw();
    client.initialize("c").await;
    let seen = client.request("subscribe", json!({ "channel": chat() })).await.unwrap();
    let turns = &seen["snapshot"]["state"]["turns"];
    assert_eq!(turns[0]["message"]["attachments"][1]["uri"], uri.as_str());
    assert_eq!(client.request("resourceRead", json!({ "uri": uri })).await.unwrap()["data"], large["data"]);
    client.request("disposeSession", json!({ "channel": SESSION })).await.unwrap();
    let gone = client.request("resourceRead", json!({ "uri": uri })).await.unwrap_err();
    assert_eq!(
        (&gone["code"], &gone["message"]),
        (&json!(-32008), &json!(format!("No attachment at {uri}")))
    );
}

#[tokio::test]
async fn a_moved_chat_keeps_its_attachments() {
    let store = store();
    let host = kept_host(&store).await;
    let mut client = host.raw();
    client.initialize("c").await;
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    let second = "ahp-chat:/second";
    let first = message_with("look", json!([picture(&[3; 10_000])]));
    let create = json!({ "channel": SESSION, "chat": second, "initialMessage": first });
    client.request("createChat", create).await.unwrap();
    let seen = client.request("subscribe", json!({ "channel": second })).await.unwrap();
    let chat = &seen["snapshot"]["state"];
    let message = chat["turns"].get(0).unwrap_or(&chat["activeTurn"])["message"].clone();
    let uri = message["attachments"][0]["uri"].as_str().unwrap().to_owned();
    if !chat["activeTurn"].is_null() {
        client.actions_until("chat/turnComplete").await;
    }
    let to = json!({ "channel": second, "destination": { "kind": "newSession" } });
    client.request("moveChat", to).await.unwrap();
    client.request("disposeSession", json!({ "channel": SESSION })).await.unwrap();
    let read = client.request("resourceRead", json!({ "uri": uri })).await.unwrap();
    assert_eq!(read["contentType"], "image/png");
}

#[tokio::test(start_paused = true)]
async fn settings_of_an_editor_are_its_own_and_reach_its_backends() {
    let host = host().await;
    let mut other = host.raw();
    other.initialize("other").await;
    other.request("subscribe", json!({ "channel": "ahp-root://" })).await.unwrap();
    let mut client = with_tool(&host, "editor").await;
    let seen = client.request("subscribe", json!({ "channel": "ahp-root://" })).await.unwrap();
    let properties = &seen["snapshot"]["state"]["config"]["schema"]["properties"];
    assert_eq!(properties["telemetryLevel"]["enum"], json!(["off", "crash", "error", "all"]));
    let push = |config: Value| json!({ "type": "root/configChanged", "config": config });
    let rules = json!({ "ls": true, "/^git/": { "approve": true, "matchCommandLine": true }, "rm": false });
    for (seq, config) in [
        (10, json!({ "telemetryLevel": "error" })),
        (11, json!({ "systemProxyEnabled": false })),
        (12, json!({ "terminalAutoApproveEnabled": true })),
        (13, json!({ "terminalAutoApproveRules": rules })),
        (14, json!({ "sessionSyncEnabled": true, "proxy": "http://me:s3cret@proxy.example:3128" })),
        (15, json!({ "autoReplyEnabled": false, "preferLongContextEnabled": true })),
    ] {
        client.dispatch("ahp-root://", seq, push(config.clone())).await;
        let echo = client.actions_until("root/configChanged").await.pop().unwrap();
        assert_eq!(echo.get("rejectionReason"), None, "{echo}");
        assert_eq!((&echo["action"]["config"], &echo["origin"]["clientSeq"]), (&config, &json!(seq)));
        let told = other.actions_until("root/configChanged").await.pop().unwrap();
        assert_eq!(told["action"]["config"], json!({}), "another client learns nothing of it");
    }
    for (config, why) in [
        (json!({ "telemetryLevel": "much" }), "telemetryLevel must be one of off, crash, error, all"),
        (json!({ "terminalAutoApproveEnabled": "yes" }), "terminalAutoApproveEnabled must be true or false"),
        (json!({ "terminalAutoApproveRules": [] }), "terminalAutoApproveRules must be an object"),
        (json!({ "colour": "red" }), "colour is not a setting of this host"),
        (
            json!({ "customizations": "x".repeat(300_000) }),
            "the settings of this connection have 300299 bytes; the limit is 262144",
        ),
    ] {
        client.dispatch("ahp-root://", 20, push(config)).await;
        let refused = client.actions_until("root/configChanged").await.pop().unwrap();
        assert_eq!(refused["rejectionReason"], why);
    }
    let seen = client.request("subscribe", json!({ "channel": "ahp-root://" })).await.unwrap();
    let values = json!({ "telemetryLevel": "error", "systemProxyEnabled": false, "autoReplyEnabled": false,
        "terminalAutoApproveEnabled": true, "terminalAutoApproveRules": rules });
    assert_eq!(seen["snapshot"]["state"]["config"]["values"], values, "what means nothing here is not shown");

    client.dispatch(&chat(), 30, turn("t1", "/settings")).await;
    let told: Value = serde_json::from_str(&said(&client.actions_until("chat/turnComplete").await)).unwrap();
    assert_eq!(told, values);
    // Those of an editor that is not active in the session do not count, and those of one that is do.
    other.dispatch("ahp-root://", 1, push(json!({ "terminalAutoApproveEnabled": false }))).await;
    other.actions_until("root/configChanged").await;
    client.dispatch(&chat(), 31, turn("t2", "/settings")).await;
    let told: Value = serde_json::from_str(&said(&client.actions_until("chat/turnComplete").await)).unwrap();
    assert_eq!(told, values);
    let active = json!({ "clientId": "other", "tools": [] });
    other.dispatch(SESSION, 2, json!({ "type": "session/activeClientSet", "activeClient": active })).await;
    client.actions_until("session/activeClientSet").await;
    client.dispatch(&chat(), 32, turn("t3", "/settings")).await;
    let told: Value = serde_json::from_str(&said(&client.actions_until("chat/turnComplete").await)).unwrap();
    assert_eq!(told["terminalAutoApproveEnabled"], false);
}

#[tokio::test(start_paused = true)]
async fn a_proxy_of_an_editor_reaches_backends_if_its_user_may_configure_the_host() {
    let host = MemoryHost::builder()
        .plugin(ostler_plugin_echo::plugin(), json!({}))
        .options(|options| options.delta_window_ms = 0)
        .guarded()
        .start()
        .await;
    let proxy = json!({ "http.proxy": "http://me:s3cret@proxy.example:3128", "http.noProxy": ["example.org"],
        "telemetryLevel": "off" });
    let asked = async |name: &str, grants: &[&str], config: &Value| {
        let grants: Vec<Grant> = grants.iter().map(|grant| Grant::parse(grant).unwrap()).collect();
        let mut client = host.raw_as(Principal::Plugin { id: name.to_owned(), grants: grants.into() });
        client.initialize(name).await;
        let seen = client.request("subscribe", json!({ "channel": "ahp-root://" })).await.unwrap();
        let properties = &seen["snapshot"]["state"]["config"]["schema"]["properties"];
        assert_eq!(properties["http.noProxy"]["type"], "array");
        client.dispatch("ahp-root://", 1, json!({ "type": "root/configChanged", "config": config })).await;
        let echo = client.actions_until("root/configChanged").await.pop().unwrap();
        assert_eq!(echo.get("rejectionReason"), None, "{echo}");
        let seen = client.request("subscribe", json!({ "channel": "ahp-root://" })).await.unwrap();
        let values = &seen["snapshot"]["state"]["config"]["values"];
        assert_eq!(values.get("http.proxy"), None, "no state contains the password of a proxy");
        let session = format!("echo:/{name}");
        let active = json!({ "clientId": name, "tools": [] });
        client.request("createSession", json!({ "channel": session, "activeClient": active })).await.unwrap();
        let chat = ostler_protocol::uri::default_chat(&session);
        client.request("subscribe", json!({ "channel": chat })).await.unwrap();
        client.dispatch(&chat, 2, turn("t1", "/settings")).await;
        let settings = said(&client.actions_until("chat/turnComplete").await);
        serde_json::from_str::<Value>(&settings).unwrap()
    };
    let may = ["session:*", "chat:*", "config:change"];
    let expected = json!({ "telemetryLevel": "off", "http.proxy": "***@proxy.example:3128",
        "http.noProxy": ["example.org"] });
    assert_eq!(asked("operator", &may, &proxy).await, expected);
    assert_eq!(asked("member", &may[..2], &proxy).await, json!({ "telemetryLevel": "off" }));
}

/// VS Code pushes all its settings in one action when it connects; a later release has more of them.
#[tokio::test(start_paused = true)]
async fn settings_of_an_editor_come_together_with_unknown_ones() {
    let host = MemoryHost::builder().plugin(ostler_plugin_echo::plugin(), json!({})).guarded().start().await;
    let reads = Grant::parse("session:read").unwrap();
    let mut client = host.raw_as(Principal::Plugin { id: "editor".to_owned(), grants: vec![reads].into() });
    client.initialize("editor").await;
    client.request("subscribe", json!({ "channel": "ahp-root://" })).await.unwrap();
    let mut push = async |seq: i64, config: Value| {
        client.dispatch("ahp-root://", seq, json!({ "type": "root/configChanged", "config": config })).await;
        client.actions_until("root/configChanged").await.pop().unwrap()
    };
    let known = json!({ "http.proxy": "", "agentMerge.enabled": false, "deferredTitleGeneration": false,
        "globalAutoApproveEnabled": false, "systemProxyEnabled": true, "autoReplyEnabled": false,
        "autoArchiveMergedSessionsAfterDays": 0, "sessionCatalogEnabled": true });
    let mut config = known.clone();
    config["inventedLater"] = json!({ "a": 1 });
    let echo = push(1, config.clone()).await;
    assert_eq!((&echo["rejectionReason"], &echo["action"]["config"]), (&Value::Null, &known), "{echo}");
    // What changes the host is not for this user to change, in company neither.
    config["globalAutoApproveEnabled"] = true.into();
    let refused = push(2, config).await;
    let why = refused["rejectionReason"].as_str().unwrap();
    assert!(why.contains("may not config:change here"), "{why}");
    let refused = push(3, json!({ "inventedLater": 1 })).await;
    assert!(refused["rejectionReason"].is_string(), "{refused}");
    let seen = client.request("subscribe", json!({ "channel": "ahp-root://" })).await.unwrap();
    let values = &seen["snapshot"]["state"]["config"]["values"];
    assert_eq!((&values["systemProxyEnabled"], &values["inventedLater"]), (&json!(true), &Value::Null));
    assert_ne!(values["globalAutoApproveEnabled"], true);
}
