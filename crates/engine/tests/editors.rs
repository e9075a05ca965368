//! What editors rely on: snapshots of the version they speak, directories, settings, tools of their own.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use ostler_contract::{Plugin, Value, json};
use ostler_engine::{Found, Here, Pinned};
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
        assert_eq!(started_as["action"]["startedAt"], started, "a turn starts when its client says");
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
    }
}

/// The disk of the machine the test runs on.
struct Disk;

impl Here for Disk {
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
    host.host.listening();
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
        assert!(message.starts_with("workingDirectories: file://") && message.ends_with(why), "{message}");
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
    assert_eq!(said(&rest), "editor left before it had run this tool");
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
