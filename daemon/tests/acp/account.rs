//! Signing in and out, tokens that clients lend, and the sessions an agent stores itself.

use serde_json::{Value, json};

use crate::agent;
use crate::support::{Folder, Signal, tell, wait_for};
use crate::talk::{Stage, Talk, all, last, text_of};

const RESOURCE: &str = "https://hay.example";

fn folder(entry: Value) -> Folder {
    let options = json!({ "agents": { "fake": entry }, "startTimeoutSeconds": 20 });
    Folder::new(json!({ "plugins": [{ "name": "@ostler/acp", "options": options }] }))
}

fn methods() -> Value {
    json!([{ "id": "browser", "name": "Browser" }, { "id": "t", "type": "terminal", "name": "Terminal", "args": ["x"] }])
}

#[test]
fn an_agent_is_signed_in_and_out_from_the_command_line() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let initialize = json!({ "authMethods": methods(), "agentCapabilities": { "auth": { "logout": {} } } });
    let folder = folder(agent::entry(json!({ "log": log.path(), "initialize": initialize })));
    for running in [false, true] {
        let _daemon = running.then(|| folder.start());
        let ended = folder.run(&["agent", "login", "fake"]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.err.contains("choose one with --method: browser, t"), "{ended:?}");
        let ended = folder.run(&["agent", "login", "fake", "--method", "carrier-pigeon"]);
        assert!(ended.err.contains("it has browser, t"), "{ended:?}");
        let ended = folder.run(&["agent", "login", "fake", "--method", "browser"]);
        assert_eq!((ended.code, ended.out.as_str()), (Some(0), "fake: signed in\n"), "{ended:?}");
        let ended = folder.run(&["agent", "logout", "fake"]);
        assert_eq!((ended.code, ended.out.as_str()), (Some(0), "fake: signed out\n"), "{ended:?}");
    }
    let sent = std::fs::read_to_string(log.path()).unwrap();
    let count = |text: &str| sent.lines().filter(|line| line.contains(text)).count();
    assert_eq!((count("\"methodId\":\"browser\""), count("\"logout\"")), (2, 2), "{sent}");
}

#[test]
fn the_page_that_a_sign_in_needs_is_shown_while_it_waits() {
    let methods = json!([{ "id": "code", "name": "Device code" }]);
    let page = json!({ "mode": "url", "elicitationId": "e", "url": "https://example.com/device",
        "message": "Enter this code: HAY-123" });
    let folder = folder(agent::entry(json!({ "initialize": { "authMethods": methods }, "opens": page })));
    for running in [false, true] {
        let _daemon = running.then(|| folder.start());
        let ended = folder.run(&["agent", "login", "fake"]);
        assert_eq!((ended.code, ended.out.as_str()), (Some(0), "fake: signed in\n"), "{ended:?}");
        let shown = "To sign in to fake, open https://example.com/device\nEnter this code: HAY-123\n";
        assert!(ended.err.contains(shown), "{ended:?}");
    }
}

#[test]
fn a_method_that_needs_a_terminal_runs_in_this_one() {
    let methods = json!([{ "id": "t", "type": "terminal", "name": "Terminal", "args": ["signed"],
        "env": { "LOFT": "the loft", "STALL": "stall 2" } }]);
    let config = json!({ "initialize": { "authMethods": methods } });
    let mut entry = agent::entry(config);
    // With an argument, it is the sign-in.
    let line = entry["args"][1].as_str().unwrap().to_owned();
    entry["args"][1] =
        format!("if [ \"$0\" = signed ]; then echo welcome to $BARN, $LOFT, $STALL; exit 3; fi; {line}")
            .into();
    entry["env"]["BARN"] = "the barn".into();
    entry["env"]["STALL"] = "stall 1".into();
    let ended = folder(entry).run(&["agent", "login", "fake"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended.out.starts_with("welcome to the barn, the loft, stall 2\nfake: not signed in: ")
            && ended.out.contains("exit code 3"),
        "{ended:?}"
    );
}

/// A folder whose agent signs in with a script, which has the folder as `$HAY`.
fn signs_in_with(script: &str) -> Folder {
    let methods = json!([{ "id": "t", "type": "terminal", "name": "Terminal", "args": ["signed"] }]);
    let mut entry = agent::entry(json!({ "initialize": { "authMethods": methods } }));
    let line = entry["args"][1].as_str().unwrap().to_owned();
    let folder = Folder::new(json!({}));
    let hay = folder.path().display();
    entry["args"][1] = format!("if [ \"$0\" = signed ]; then HAY={hay}; {script}; fi; {line}").into();
    let options = json!({ "agents": { "fake": entry } });
    folder.write(
        "config.json",
        &json!({ "port": 0, "plugins": [{ "name": "@ostler/acp", "options": options }] }).to_string(),
    );
    folder
}

/// The process whose id a file has.
fn process(folder: &Folder, file: &str) -> std::path::PathBuf {
    let id = wait_for(|| folder.read(file).trim().parse::<u32>().ok());
    format!("/proc/{}", id.expect("the program is started")).into()
}

#[test]
fn a_sign_in_in_the_terminal_ends_with_the_command() {
    let below = r#"sh -c 'trap "" TERM; echo $$ > "$0/below"; exec sleep 300' "$HAY" & wait"#;
    let folder = signs_in_with(&format!(r#"echo $$ > "$HAY/own"; {below}; exit 3"#));
    for running in [false, true] {
        let _daemon = running.then(|| folder.start());
        for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
            let mut login = folder.heeding(&["agent", "login", "fake"]).spawn().unwrap();
            let processes = ["own", "below"].map(|file| process(&folder, file));
            assert!(processes.iter().all(|process| process.exists()));
            tell(login.id(), signal);
            assert_eq!(login.wait().unwrap().code(), Some(code), "{running}");
            for (file, process) in ["own", "below"].iter().zip(processes) {
                let gone = || (!process.join("exe").exists()).then_some(());
                assert!(wait_for(gone).is_some(), "{running}: {file}");
                std::fs::remove_file(folder.path().join(file)).unwrap();
            }
        }
    }
}

#[test]
fn what_is_typed_to_interrupt_is_for_the_program_that_signs_in() {
    let folder = signs_in_with(
        r#"trap "" INT; echo $$ > "$HAY/own"; while [ ! -e "$HAY/go" ]; do sleep 0.05; done; exit 0"#,
    );
    for running in [false, true] {
        let _daemon = running.then(|| folder.start());
        let mut login = folder.heeding(&["agent", "login", "fake"]).spawn().unwrap();
        process(&folder, "own");
        tell(login.id(), Signal::INT);
        // The program looks for the file every 50 ms: an interrupt that ended the command would end it before.
        std::thread::sleep(std::time::Duration::from_millis(50));
        folder.write("go", "");
        assert_eq!(login.wait().unwrap().code(), Some(0), "{running}: it waits for the program");
        for file in ["go", "own"] {
            std::fs::remove_file(folder.path().join(file)).unwrap();
        }
    }
}

#[test]
fn what_an_agent_cannot_do_is_said() {
    let folder = folder(agent::entry(json!({})));
    for (arguments, why) in [
        (["agent", "login", "fake"], "fake has no method of signing in; set its API key in agents.fake.env"),
        (["agent", "logout", "fake"], "fake cannot sign out over ACP"),
        (["agent", "sessions", "fake"], "fake does not list its sessions"),
    ] {
        let ended = folder.run(&arguments);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.err.contains(why), "{ended:?}");
    }
}

#[test]
fn a_list_of_sessions_that_never_ends_is_cut() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let lists = json!({ "agentCapabilities": { "sessionCapabilities": { "list": {} } } });
    let folder = folder(agent::entry(json!({ "log": log.path(), "initialize": lists, "endless": true })));
    let ended = folder.run(&["agent", "sessions", "fake"]);
    let sent = std::fs::read_to_string(log.path()).unwrap();
    let pages = sent.matches("\"session/list\"").count();
    // On a slow machine the time is over first.
    let cut = ended.code == Some(0) && pages == 500;
    let late = ended.err.contains("did not list its sessions within 20 seconds");
    assert!(cut || late, "{pages} pages: {ended:?}");
}

#[tokio::test]
async fn a_failed_sign_in_tells_clients_the_methods() {
    let required = json!({ "code": -32000, "message": "Authentication required" });
    let stage = Stage::new(
        json!({ "initialize": { "authMethods": methods() }, "refuse": { "session/new": required } }),
    );
    let mut talk = stage.talk().await;
    let error = talk.fail("hello").await;
    assert_eq!(error["errorType"], "agentNotSignedIn");
    let shown = &error["_meta"]["ostler.authMethods"];
    assert_eq!(shown[0], json!({ "id": "browser", "name": "Browser" }));
    assert!(shown[1]["command"].as_str().unwrap().ends_with(" x"), "{error}");
}

#[tokio::test]
async fn a_lent_token_reaches_the_sessions_of_its_client_alone() {
    let mut entry = agent::entry(json!({}));
    entry["credentials"] = json!({ RESOURCE: "HAY_TOKEN" });
    entry["resources"] = json!({ RESOURCE: { "name": "Hayloft", "authorizationServers": ["https://sign.hay.example"],
        "scopes": ["bales:read"], "documentation": "https://hay.example/docs" } });
    entry["env"]["HAY_TOKEN"] = "configured".into();
    let stage = Stage::of(entry, json!({}));
    let mut lender = stage.daemon.initialized("lender").await;
    let root = lender.subscribe("ahp-root://").await;
    let asked = &root["agents"][0]["protectedResources"][0];
    let expected = json!({ "resource": RESOURCE, "resource_name": "Hayloft", "required": false,
        "authorization_servers": ["https://sign.hay.example"], "scopes_supported": ["bales:read"],
        "resource_documentation": "https://hay.example/docs" });
    assert_eq!(*asked, expected, "{root}");
    let params = json!({ "channel": "ahp-root://", "resource": RESOURCE, "token": "lent" });
    lender.request("authenticate", params).await.unwrap();
    let params = json!({ "channel": "fake:/lent", "provider": "fake", "config": {} });
    lender.request("createSession", params).await.unwrap();
    let mut lent = Talk::join(lender, "fake:/lent").await;
    assert_eq!(lent.say("!env HAY_TOKEN").await, "lent");
    let mut other = stage.talk().await;
    assert_eq!(other.say("!env HAY_TOKEN").await, "configured");
    assert!(!stage.folder.read("log").contains("lent\""), "no token in the log");
}

#[tokio::test]
async fn a_proxy_of_the_sessions_editor_is_its_agents() {
    let stage = Stage::new(json!({}));
    let mut editor = stage.daemon.initialized("editor").await;
    editor.subscribe("ahp-root://").await;
    let proxy =
        json!({ "http.proxy": "http://me:s3cret-word@proxy.example:3128", "http.noProxy": ["hay.example"] });
    editor.dispatch("ahp-root://", 100, json!({ "type": "root/configChanged", "config": proxy })).await;
    editor.actions_until("root/configChanged").await;
    let active = json!({ "clientId": "editor", "tools": [] });
    let params = json!({ "channel": "fake:/near", "provider": "fake", "config": {}, "activeClient": active });
    editor.request("createSession", params).await.unwrap();
    let mut near = Talk::join(editor, "fake:/near").await;
    assert_eq!(near.say("!env https_proxy").await, "http://me:s3cret-word@proxy.example:3128/");
    assert_eq!(near.say("!env NO_PROXY").await, "localhost,127.0.0.1,::1,hay.example");
    // What it writes as its last words is masked.
    let error = near.fail("!stderr no way through s3cret-word\n!exit 3").await;
    assert!(error.to_string().contains("no way through <set>"), "{error}");
    // In a session without that editor, an agent connects directly.
    let mut other = stage.talk().await;
    assert_eq!(other.say("!env https_proxy").await, "nothing");
    assert!(!stage.folder.read("log").contains("s3cret-word"), "no password in the log");
}

#[tokio::test]
async fn an_agent_that_needs_a_token_is_not_used_without_one() {
    let mut entry = agent::entry(json!({}));
    entry["credentials"] = json!({ RESOURCE: "HAY_TOKEN" });
    entry["resources"] = json!({ RESOURCE: { "required": true } });
    let stage = Stage::of(entry, json!({}));
    let mut client = stage.daemon.initialized("client").await;
    let created = json!({ "channel": "fake:/one", "provider": "fake", "config": {} });
    let refused = client.request("createSession", created.clone()).await.unwrap_err();
    assert_eq!(refused["code"], -32007, "{refused}");
    assert_eq!(refused["data"]["resources"][0]["resource"], RESOURCE, "{refused}");
    let token = json!({ "channel": "ahp-root://", "resource": RESOURCE, "token": "lent" });
    client.request("authenticate", token.clone()).await.unwrap();
    client.request("createSession", created).await.unwrap();
    let mut talk = Talk::join(client, "fake:/one").await;
    assert_eq!(talk.say("!env HAY_TOKEN").await, "lent");
    // Another client that writes in the session needs none; a chat of its own does.
    let mut other = Talk::join(stage.daemon.initialized("other").await, "fake:/one").await;
    assert_eq!(other.say("!env HAY_TOKEN").await, "lent");
    let chat = json!({ "channel": "fake:/one", "chat": "ahp-chat:/two" });
    assert_eq!(other.client.request("createChat", chat.clone()).await.unwrap_err()["code"], -32007);
    other.client.request("authenticate", token).await.unwrap();
    other.client.request("createChat", chat).await.unwrap();
}

#[tokio::test]
async fn a_token_lent_later_reaches_the_sessions_of_its_client_alone() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let capabilities = json!({ "sessionCapabilities": { "resume": {} } });
    let mut entry =
        agent::entry(json!({ "log": log.path(), "initialize": { "agentCapabilities": capabilities } }));
    entry["credentials"] = json!({ RESOURCE: "HAY_TOKEN" });
    entry["env"]["HAY_TOKEN"] = "configured".into();
    let stage = Stage::of(entry, json!({}));
    let lend = |token: &str| json!({ "channel": "ahp-root://", "resource": RESOURCE, "token": token });
    let created = |uri: &str| json!({ "channel": uri, "provider": "fake", "config": {} });
    let mut lender = stage.daemon.initialized("lender").await;
    lender.request("createSession", created("fake:/lent")).await.unwrap();
    let mut lent = Talk::join(lender, "fake:/lent").await;
    assert_eq!(lent.say("!env HAY_TOKEN").await, "configured");
    let mut foreign = stage.daemon.initialized("other").await;
    foreign.request("createSession", created("fake:/other")).await.unwrap();
    // A chat of the other client in this session is the other client's.
    let of_other = "ahp-chat:/of-other";
    foreign.request("createChat", json!({ "channel": "fake:/lent", "chat": of_other })).await.unwrap();
    let mut other = Talk::join(foreign, "fake:/other").await;
    assert_eq!(other.say("!env HAY_TOKEN").await, "configured");

    lent.client.request("authenticate", lend("first")).await.unwrap();
    assert_eq!(lent.say("!env HAY_TOKEN").await, "first");
    assert_eq!(other.say("!env HAY_TOKEN").await, "configured");
    other.client.request("authenticate", lend("foreign")).await.unwrap();
    assert_eq!(other.say("!env HAY_TOKEN").await, "foreign");
    assert_eq!(lent.say("!env HAY_TOKEN").await, "first");
    other.client.subscribe(of_other).await;
    other.chat = of_other.to_owned();
    assert_eq!(other.say("!env HAY_TOKEN").await, "foreign");

    // A running turn ends with what it began with.
    lent.begin("!say x\n!sleep 200\n!env HAY_TOKEN").await;
    lent.until(&["chat/responsePart"]).await;
    lent.client.request("authenticate", lend("second")).await.unwrap();
    assert_eq!(text_of(&lent.until(&["chat/turnComplete"]).await), "first");
    assert_eq!(lent.say("!env HAY_TOKEN").await, "second");
    // The same token starts nothing again.
    let starts = || std::fs::read_to_string(log.path()).unwrap().matches("\"initialize\"").count();
    let before = starts();
    lent.client.request("authenticate", lend("second")).await.unwrap();
    assert_eq!(lent.say("!env HAY_TOKEN").await, "second");
    assert_eq!(starts(), before);
    // What is taken back is not taken from a session that has it.
    lent.client.request("authenticate", lend("")).await.unwrap();
    assert_eq!(lent.say("!env HAY_TOKEN").await, "second");
    assert!(std::fs::read_to_string(log.path()).unwrap().contains("session/resume"), "the same conversation");

    // It is not stored; the client lends it again.
    drop((lent, other));
    let stage = stage.restarted(true);
    let later = async |name: &str, uri: &str, token: &str| {
        let mut client = stage.daemon.initialized(name).await;
        client.request("authenticate", lend(token)).await.unwrap();
        Talk::join(client, uri).await.say("!env HAY_TOKEN").await
    };
    assert_eq!(later("third", "fake:/lent", "of the third").await, "configured");
    assert_eq!(later("lender", "fake:/lent", "again").await, "again");
    assert_eq!(later("other", "fake:/other", "again foreign").await, "again foreign");
    for token in ["first", "second", "foreign", "again"] {
        assert!(!stage.folder.read("log").contains(&format!("{token}\"")), "no token in the log");
    }
}

#[tokio::test]
async fn a_token_does_not_reach_another_user_who_names_the_same_client() {
    let mut entry = agent::entry(json!({}));
    entry["credentials"] = json!({ RESOURCE: "HAY_TOKEN" });
    let options = json!({ "agents": { "fake": entry } });
    let folder = Folder::new(
        json!({ "users": "users.json", "plugins": [{ "name": "@ostler/acp", "options": options }] }),
    );
    let tokens = ["ada", "ben"].map(|name| {
        let ended = folder.run(&["user", "add", name, "--role", "member"]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.out.trim().to_owned()
    });
    let daemon = folder.start();
    let resource = daemon.block.iter().find_map(|line| line.strip_prefix("sign-in ")).unwrap();
    let mut talks = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let mut client = daemon.initialized("same").await;
        client.request("authenticate", json!({ "resource": resource, "token": token })).await.unwrap();
        let uri = format!("fake:/{at}");
        let created = json!({ "channel": uri, "provider": "fake", "config": {} });
        client.request("createSession", created).await.unwrap();
        talks.push(Talk::join(client, &uri).await);
    }
    for (at, talk) in talks.iter_mut().enumerate() {
        let lent = json!({ "resource": RESOURCE, "token": format!("of {at}") });
        talk.client.request("authenticate", lent).await.unwrap();
    }
    for (at, talk) in talks.iter_mut().enumerate() {
        assert_eq!(talk.say("!env HAY_TOKEN").await, format!("of {at}"));
    }
}

/// Waits until commands find the daemon: its record is written after it has announced itself.
fn found(stage: &Stage) {
    let up = || (stage.folder.run(&["status"]).code == Some(0)).then_some(());
    assert!(wait_for(up).is_some());
}

fn stored() -> Value {
    let row = |id: &str, title: &str| json!({ "sessionId": id, "title": title, "updatedAt": "2026-11-01T00:00:00Z" });
    json!([row("old-1", "Haymaking"), row("old-2", "Threshing"), row("old-3", "Milling")])
}

#[tokio::test]
async fn a_session_of_the_agent_is_listed_and_continued() {
    let chunk = |kind: &str, text: &str| json!({ "sessionUpdate": kind, "content": { "type": "text", "text": text } });
    let replay = [
        chunk("user_message_chunk", "how much "),
        chunk("user_message_chunk", "hay?"),
        chunk("agent_message_chunk", "seven bales"),
    ];
    let log = tempfile::NamedTempFile::new().unwrap();
    for capabilities in [json!({ "loadSession": true }), json!({ "sessionCapabilities": { "resume": {} } })] {
        let loads = capabilities.get("loadSession").is_some();
        let mut capabilities = capabilities;
        capabilities["sessionCapabilities"]["list"] = json!({});
        let stage =
            Stage::new(json!({ "log": log.path(), "initialize": { "agentCapabilities": capabilities },
            "sessions": stored(), "replay": if loads { json!(replay) } else { json!([]) } }));
        found(&stage);
        let listed = stage.folder.run(&["agent", "sessions", "fake", "--json"]);
        let listed: Value =
            serde_json::from_str(&listed.out).unwrap_or_else(|why| panic!("{why}: {listed:?}"));
        let ids: Vec<&str> =
            listed["sessions"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap()).collect();
        assert_eq!(ids, ["old-1", "old-2", "old-3"]);
        let ended = stage.folder.run(&["agent", "import", "fake", "old-9"]);
        assert!(ended.code == Some(2) && ended.err.contains("fake has no session old-9"), "{ended:?}");
        let ended = stage.folder.run(&["agent", "import", "fake", "old-2", "--json"]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let session: Value = serde_json::from_str(&ended.out).unwrap();
        let session = session["session"].as_str().unwrap().to_owned();
        let mut client = stage.daemon.initialized("later").await;
        let state = client.subscribe(&session).await;
        assert_eq!(state["title"], "Threshing", "{state}");
        let mut talk = Talk::join(client, &session).await;
        let seen = talk.turn("hello").await;
        assert_eq!(text_of(&seen), "You said: hello", "the agent knows the turns");
        let parts = all(&seen, "chat/responsePart");
        let earlier = parts.iter().find_map(|part| part["part"]["content"]["markdown"].as_str());
        let expected = "Earlier in this session:\n\n**User:** how much hay?\n\nseven bales";
        assert_eq!(earlier, loads.then_some(expected), "{seen:#?}");
        // The next process continues it without telling it again.
        talk.fail("!exit 1").await;
        assert_eq!(talk.say("again").await, "You said: again");
        let sent = std::fs::read_to_string(log.path()).unwrap();
        let method = if loads { "session/load" } else { "session/resume" };
        let opened = sent.lines().filter(|line| line.contains(method) && line.contains("old-2")).count();
        assert!(opened >= 2 && !sent.contains("session/new"), "{sent}");
        assert!(sent.contains("session/list"), "{sent}");
    }
}

#[tokio::test]
async fn a_session_that_the_agent_no_longer_has_is_not_replaced_by_a_new_one() {
    let refused = json!({ "code": -32002, "message": "Resource not found" });
    let capabilities = json!({ "loadSession": true, "sessionCapabilities": { "list": {} } });
    let stage =
        Stage::new(json!({ "initialize": { "agentCapabilities": capabilities }, "sessions": stored(),
        "refuse": { "session/load": refused } }));
    // The setting is there once the agent was started.
    found(&stage);
    assert_eq!(stage.folder.run(&["agent", "sessions", "fake"]).code, Some(0));
    let mut talk = stage.talk_in("fake:/one", json!({ "agentSession": "old-1" })).await;
    let seen = talk.turn("hello").await;
    let error = &last(&seen)["part"]["error"];
    assert_eq!(error["message"], "fake refused session/load: Resource not found", "{seen:#?}");
}

#[tokio::test]
async fn an_agent_that_signs_in_with_its_key_does_so_where_the_key_is_configured() {
    for key in [true, false] {
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut entry = agent::entry(json!({ "log": log.path() }));
        entry["preset"] = "codex-acp".into();
        if key {
            entry["env"]["OPENAI_API_KEY"] = "k".into();
        }
        let stage = Stage::of(entry, json!({}));
        stage.talk().await.say("hello").await;
        let sent = std::fs::read_to_string(log.path()).unwrap();
        assert_eq!(sent.contains("\"methodId\":\"api-key\""), key, "{sent}");
        assert_eq!(sent.contains("\"method\":\"authenticate\""), key, "{sent}");
    }
}

#[tokio::test]
async fn a_disposed_session_is_deleted_by_the_agent_once_also_where_it_slept() {
    let capabilities = json!({ "sessionCapabilities": { "delete": {} } });
    for slept in [false, true] {
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut stage =
            Stage::new(json!({ "log": log.path(), "initialize": { "agentCapabilities": capabilities } }));
        stage.talk().await.say("hello").await;
        if slept {
            stage = stage.restarted(false);
        }
        let mut client = stage.daemon.initialized("later").await;
        client.request("disposeSession", json!({ "channel": "fake:/one" })).await.unwrap();
        let sent = || std::fs::read_to_string(log.path()).unwrap();
        let deleted = || sent().lines().filter(|line| line.contains("session/delete")).count();
        assert!(wait_for(|| (deleted() > 0).then_some(())).is_some(), "{}", sent());
        stage.daemon.stop();
        assert_eq!(deleted(), 1, "{}", sent());
    }
}

#[tokio::test]
async fn only_a_sessions_owner_announces_unsaved_text_for_it() {
    let options = json!({ "agents": { "fake": agent::entry(json!({})) } });
    let folder = Folder::new(
        json!({ "users": "users.json", "plugins": [{ "name": "@ostler/acp", "options": options }] }),
    );
    let add = |name: &str| {
        let ended = folder.run(&["user", "add", name, "--role", "member"]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.out.trim().to_owned()
    };
    let tokens = [add("ada"), add("ben")];
    let daemon = folder.start();
    let resource = daemon.block.iter().find_map(|line| line.strip_prefix("sign-in ")).unwrap();
    let mut clients = Vec::new();
    for (name, token) in ["ada", "ben"].into_iter().zip(&tokens) {
        let mut client = daemon.initialized(name).await;
        client.request("authenticate", json!({ "resource": resource, "token": token })).await.unwrap();
        clients.push(client);
    }
    let params = json!({ "channel": "fake:/one", "provider": "fake", "config": {} });
    clients[0].request("createSession", params).await.unwrap();
    let announced = json!({ "session": "fake:/one" });
    clients[0].request("x-acp/buffers", announced.clone()).await.unwrap();
    let refused = clients[1].request("x-acp/buffers", announced).await.unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains("belongs to another user"), "{refused}");
}
