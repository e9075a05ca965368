//! The examples of terminals, machines and dev containers, run.

use std::collections::BTreeMap;
use std::sync::Arc;

use ostler::local_system::OnDisk;
use ostler_contract::points::{Agent, AgentSession, Emit, MachineNeed, MachineProcess, Start};
use ostler_contract::{Call, Frozen, Plugin, Thrown, json};
use ostler_testkit::RawClient;

use crate::examples::{start, with};
use crate::side::action;

pub async fn a_shell_is_typed_into(file: &str) {
    let (host, dir) = start(file, json!({})).await;
    let mut client = host.raw();
    client.initialize("typist").await;
    let shell = "ahp-terminal:/shell";
    let cwd = format!("file://{}", dir.path().display());
    client.request("createTerminal", json!({ "channel": shell, "cwd": cwd })).await.unwrap();
    let state = client.request("subscribe", json!({ "channel": shell })).await.unwrap();
    assert_eq!(state["snapshot"]["state"]["title"], "sh");
    let said = async |client: &mut RawClient, word: &str| {
        let mut said = String::new();
        while !said.contains(word) {
            said.push_str(
                client.actions_until("terminal/data").await.pop().unwrap()["action"]["data"]
                    .as_str()
                    .unwrap(),
            );
        }
        said
    };
    client
        .dispatch(shell, 1, json!({ "type": "terminal/input", "data": "pwd; echo $COLUMNS $TERM\r" }))
        .await;
    let where_it_is = said(&mut client, "80 dumb").await;
    assert!(where_it_is.contains(&dir.path().file_name().unwrap().to_string_lossy()[..]), "{where_it_is}");
    // What runs is interrupted, and the shell goes on.
    let busy = "trap : INT; sh -c 'trap \"echo caught; exit\" INT; echo on; while :; do sleep 0.05; done'\r";
    client.dispatch(shell, 2, json!({ "type": "terminal/input", "data": busy })).await;
    said(&mut client, "on").await;
    client.dispatch(shell, 3, json!({ "type": "terminal/input", "data": "\u{3}" })).await;
    said(&mut client, "caught").await;
    client.dispatch(shell, 4, json!({ "type": "terminal/input", "data": "exit 5\r" })).await;
    let exited = client.actions_until("terminal/exited").await.pop().unwrap();
    assert_eq!(exited["action"]["exitCode"], 5);
    let lost = json!({ "channel": "ahp-terminal:/lost", "cwd": "file:///no/such/place" });
    client.request("createTerminal", lost).await.unwrap();
    let state = client.request("subscribe", json!({ "channel": "ahp-terminal:/lost" })).await.unwrap();
    let state = &state["snapshot"]["state"];
    assert_eq!(state["lifecycle"], json!({ "status": "exited", "exitCode": 127 }));
    assert_eq!(state["content"][0]["value"], "/no/such/place: no such directory\n");
    host.host.close().await;
}

pub async fn a_backend_runs_in_a_folder(file: &str) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("gitconfig"), "[user]").unwrap();
    let git = dir.path().join("gitconfig").display().to_string();
    // A backend that runs a process of its own and says what it said.
    let runner = Plugin::new("@example/runner", move |host, _| {
        let needs: BTreeMap<String, MachineNeed> = serde_json::from_value(json!({
            "git": { "file": git, "target": "/.gitconfig" }, "level": { "name": "LEVEL", "default": "high" },
        }))
        .unwrap();
        Box::pin(async move {
            host.register_agent(Agent {
                provider: "runner".into(),
                display_name: "Runner".into(),
                schema: Call::now(|()| Ok(json!({ "properties": {} }))),
                defaults: Call::now(|()| Ok(Default::default())),
                machine: Some(Call::now(move |()| Ok(needs.clone()))),
                create: Call::now(|(start,): (Frozen<Start>,)| {
                    Ok(AgentSession {
                        begin: Call::new(move |(turn, text, ..): (String, String, _, _, _)| {
                            let start = start.0.clone();
                            async move {
                                let process = MachineProcess {
                                    program: "sh".into(),
                                    args: vec!["-c".into(), text],
                                    ..MachineProcess::default()
                                };
                                let how = start.computer.unwrap().how.call((process,)).await?;
                                let mut ran = tokio::process::Command::new(how.program);
                                ran.args(how.args).current_dir(how.cwd.unwrap());
                                let said = ran.output().await.map_err(Thrown::new)?;
                                let said = String::from_utf8_lossy(&said.stdout).into_owned();
                                let part = json!({ "kind": "markdown", "id": turn, "content": said });
                                start.emit.call((
                                    Emit::Chat,
                                    action(
                                        json!({ "type": "chat/responsePart", "turnId": turn, "part": part }),
                                    )?,
                                ))?;
                                start.emit.call((
                                    Emit::Chat,
                                    action(
                                        json!({ "type": "chat/turnComplete", "turnId": turn, "duration": 0 }),
                                    )?,
                                ))
                            }
                        }),
                        cancel: Call::now(|_| Ok(())),
                        close: Call::now(|_| Ok(())),
                        ..AgentSession::default()
                    })
                }),
                ..Agent::default()
            })
        })
    });
    let work = tempfile::tempdir().unwrap();
    let work_path = work.path().display().to_string();
    let host = with(file, dir.path(), json!({ "profiles": { "plain": { "title": "Plain" } } }))
        .plugin(runner, json!({}))
        .here(Arc::new(OnDisk::new(dir.path())))
        .options(|options| options.paths = vec![work_path])
        .start()
        .await;
    let mut client = host.raw();
    client.initialize("c").await;
    let create =
        json!({ "channel": "runner:/a", "provider": "runner", "config": { "computer": "disposable:plain" } });
    client.request("createSession", create).await.unwrap();
    let chat = ostler_protocol::uri::default_chat("runner:/a");
    client.request("subscribe", json!({ "channel": chat })).await.unwrap();
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "echo $LEVEL; cat ~/.gitconfig; touch made" } });
    client.dispatch(&chat, 1, turn).await;
    let part = client.actions_until("chat/responsePart").await.pop().unwrap();
    assert_eq!(part["action"]["part"]["content"], "high\n[user]");
    assert!(work.path().join("made").exists(), "the session's folder is where it works");
    let machine = dir.path().join("machines/runner-a");
    assert!(machine.exists());
    client.request("disposeSession", json!({ "channel": "runner:/a" })).await.unwrap();
    assert!(!machine.exists() && work.path().join("made").exists());
}

pub async fn a_client_speaks_to_the_host_of_a_folder(file: &str) {
    let (host, dir) = start(file, json!({ "command": ["sh", "-c", "echo up in $PWD; cat"] })).await;
    let mut client = host.raw();
    client.initialize("c").await;
    let word = |verb: &str| format!("vscode/devContainers/{verb}");
    assert_eq!(client.request(&word("isDockerAvailable"), json!({})).await, Ok(json!(true)));
    let connect = json!({ "connectionId": "a", "workspaceFolder": dir.path() });
    let made = client.request(&word("connect"), connect).await.unwrap();
    assert_eq!(made["address"], "devcontainer:c1");
    let next = async |client: &mut RawClient| loop {
        let frame = client.next_frame().await.unwrap();
        if frame.get("method").is_some() {
            return frame;
        }
    };
    let output = next(&mut client).await;
    assert_eq!(output["method"], word("output"));
    assert!(output["params"]["data"].as_str().unwrap().starts_with("up in "), "{output}");
    let send = json!({ "connectionId": "a", "data": "{\"jsonrpc\":\"2.0\"}" });
    client.request(&word("relaySend"), send).await.unwrap();
    let said = next(&mut client).await;
    assert_eq!(
        (&said["method"], &said["params"]["data"]),
        (&json!(word("relayMessage")), &json!("{\"jsonrpc\":\"2.0\"}"))
    );
    let address = json!({ "address": "devcontainer:c1" });
    client.request("x-ostler/containers/remove", address).await.unwrap();
    let ended = next(&mut client).await["method"].clone();
    assert!([word("relayClose"), word("closeConnection")].iter().any(|way| ended == way.as_str()), "{ended}");
}
