//! Terminals, machines and dev containers of plugins, served by the real program over a socket.

use std::path::Path;

use crate::support::{Client, Folder, wait_for};
use serde_json::{Value, json};

fn example(file: &str) -> String {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("examples/plugins");
    examples.join(file).display().to_string()
}

/// A backend that runs a line in its machine and says what that said.
const RUNNER: &str = "\
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
const run = promisify(execFile);
export function apply(host, options) {
  host.registerAgent({
    provider: 'runner', displayName: 'Runner', schema: () => ({ properties: {} }), defaults: () => ({}),
    machine: () => ({
      token: { name: 'TOKEN', required: true },
      rules: { file: options.rules, target: '/rules', readOnly: true },
      cli: { part: 'cli' },
    }),
    create: ({ computer, emit }) => ({
      async begin(turnId, line) {
        const { program, args, cwd, env } = await computer.how({ program: 'sh', args: ['-c', line] });
        const { stdout } = await run(program, args, { cwd, env });
        emit('chat', { type: 'chat/responsePart', turnId, part: { kind: 'markdown', id: 'said', content: stdout } });
        emit('chat', { type: 'chat/turnComplete', turnId, duration: 0 });
      },
      cancel() {},
      close() {},
    }),
  });
}
";

/// What a terminal says, until it said a word.
async fn until(client: &mut Client, word: &str) -> String {
    let mut said = String::new();
    while !said.contains(word) {
        let data = client.actions_until("terminal/data").await.pop().unwrap();
        said.push_str(data["action"]["data"].as_str().unwrap());
    }
    said
}

#[tokio::test]
async fn a_shell_is_shared_and_ends_with_the_daemon() {
    let folder =
        Folder::new(json!({ "plugins": [{ "name": "@ostler/echo" }, { "name": example("terminals.ts") }] }));
    let daemon = folder.start();
    let (mut one, mut two) = (daemon.client().await, daemon.initialized("two").await);
    assert_eq!(one.initialize("one").await["terminalCommandPrefix"], "!");
    two.subscribe("ahp-root://").await;
    let shell = "ahp-terminal:/shell";
    one.request("createTerminal", json!({ "channel": shell })).await.unwrap();
    let listed = two.actions_until("root/terminalsChanged").await.pop().unwrap();
    assert_eq!(listed["action"]["terminals"][0]["resource"], shell);
    one.subscribe(shell).await;
    one.dispatch(shell, 1, json!({ "type": "terminal/input", "data": "echo pid $$ end\r" })).await;
    let said = until(&mut one, "end").await;
    let pid: u32 = said.split_whitespace().nth(1).unwrap().parse().unwrap();
    // Who comes later sees what was said before, and types into the same shell.
    let seen = two.subscribe(shell).await;
    assert!(seen["content"][0]["value"].as_str().unwrap().contains(&format!("pid {pid} end")), "{seen}");
    two.dispatch(shell, 1, json!({ "type": "terminal/input", "data": "echo from two\r" })).await;
    until(&mut one, "from two").await;
    assert!(Path::new(&format!("/proc/{pid}")).exists());
    assert_eq!(daemon.stop(), Some(0));
    let gone = wait_for(|| (!Path::new(&format!("/proc/{pid}")).exists()).then_some(()));
    assert!(gone.is_some(), "no shell outlives the daemon");
}

#[tokio::test]
async fn a_session_runs_in_a_machine_made_for_it() {
    let folder = Folder::new(json!({}));
    let rules = folder.path().join("rules.txt").display().to_string();
    folder.write("runner.mjs", RUNNER);
    let config = json!({ "port": 0, "deltaWindowMs": 0, "plugins": [
        { "name": "./runner.mjs", "options": { "rules": rules, "token": "s3cr3t" } },
        { "name": example("computers.ts"), "options": { "profiles": { "plain": {}, "other": { "needs": { "rules": "rules" } } } } },
    ] });
    folder.write("config.json", &config.to_string());
    let daemon = folder.start();
    let mut client = daemon.initialized("c").await;
    let create = async |client: &mut Client, named: &str| {
        let params = json!({ "channel": "runner:/1", "provider": "runner", "config": { "computer": named } });
        client.request("createSession", params).await
    };
    let missing = create(&mut client, "disposable:plain").await.unwrap_err();
    let why = format!(
        "need rules of agent runner: {rules} does not exist (from the option plugins.runner.options.rules)"
    );
    assert_eq!((&missing["code"], &missing["message"]), (&json!(-32602), &json!(why)));
    let relative = create(&mut client, "disposable:other").await.unwrap_err();
    let why = "need rules of agent runner: rules is not an absolute path (from profile other)";
    assert_eq!(relative["message"], why);
    folder.write("rules.txt", "Be kind.");
    // The maker of this host builds no parts, so one that is pinned is refused by it, and nothing is left of that.
    folder.write("versions.json", r#"{ "cli": "1.2.3" }"#);
    let parts = create(&mut client, "disposable:plain").await.unwrap_err();
    assert!(parts["message"].as_str().unwrap().contains("cli 1.2.3 is needed"), "{parts}");
    folder.write("versions.json", "{}");
    assert_eq!(create(&mut client, "disposable:plain").await, Ok(Value::Null));
    let chat = ostler_protocol::uri::default_chat("runner:/1");
    client.subscribe(&chat).await;
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "echo $TOKEN; cat ~/rules; env | wc -l" } });
    client.dispatch(&chat, 1, turn).await;
    let part = client.actions_until("chat/responsePart").await.pop().unwrap();
    let said = part["action"]["part"]["content"].as_str().unwrap().to_owned();
    assert!(said.starts_with("s3cr3t\nBe kind."), "{said}");
    let machine = folder.path().join("machines/runner-1");
    assert!(machine.exists());
    client.request("disposeSession", json!({ "channel": "runner:/1" })).await.unwrap();
    assert!(!machine.exists());
    assert!(!folder.read("log").contains("s3cr3t"));
}

#[tokio::test]
async fn a_client_reaches_the_host_inside_and_its_end_ends_the_relay() {
    let containers = json!({ "name": example("containers.ts"), "options": { "command": ["sh", "-c", "echo $$ > pid; cat"] } });
    let folder = Folder::new(json!({ "plugins": [{ "name": "@ostler/echo" }, containers] }));
    let daemon = folder.start();
    let mut client = daemon.client().await;
    assert_eq!(client.initialize("c").await["_meta"]["vscode.devContainers"], true);
    let connect = json!({ "connectionId": "a", "workspaceFolder": folder.path() });
    let made = client.request("vscode/devContainers/connect", connect).await.unwrap();
    assert_eq!(made["address"], "devcontainer:c1");
    let frame = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let send = json!({ "connectionId": "a", "data": frame });
    client.request("vscode/devContainers/relaySend", send).await.unwrap();
    let heard = loop {
        let next = client.next_frame().await.unwrap();
        if next["method"] == "vscode/devContainers/relayMessage" {
            break next;
        }
    };
    assert_eq!(heard["params"], json!({ "connectionId": "a", "data": frame }));
    let pid = wait_for(|| {
        std::fs::read_to_string(folder.path().join("pid")).ok().filter(|pid| pid.ends_with('\n'))
    });
    let process = format!("/proc/{}", pid.unwrap().trim());
    assert!(Path::new(&process).exists());
    drop(client);
    assert!(wait_for(|| (!Path::new(&process).exists()).then_some(())).is_some());
}
