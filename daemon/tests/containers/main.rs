//! Containers of the bundled plugin: in a real runtime, which `.ci/podman` starts, and with a runtime that fails.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

mod command_line;

use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use support::{Client, Daemon, Folder, tell};

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
      rules: { source: options.rules, target: '/etc/deep/rules' },
      state: { state: '/var/lib/runner', seed: [options.seed] },
      tool: { part: 'tool' },
    }),
    create: ({ computer, emit }) => ({
      async begin(turnId, line) {
        const { program, args, cwd, env } = await computer.how({ program: 'sh', args: ['-c', line] });
        let content;
        try {
          content = (await run(program, args, { cwd, env })).stdout;
        } catch (error) {
          content = `failed: ${error.stderr} ${error.code}`;
        }
        emit('chat', { type: 'chat/responsePart', turnId, part: { kind: 'markdown', id: turnId, content } });
        emit('chat', { type: 'chat/turnComplete', turnId, duration: 0 });
      },
      cancel() {},
      close() {},
    }),
  });
}
";

/// The Podman of `.ci/podman`: its socket and the image.
fn podman() -> (String, String) {
    let variable =
        |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name}: run this with .ci/podman"));
    (variable("OSTLER_TEST_PODMAN"), variable("OSTLER_TEST_IMAGE"))
}

/// A configuration folder that the user of Podman reads, with the runner and containers.
fn folder(socket: &str, image: &str, more: Value) -> Folder {
    let folder = Folder::new(json!({}));
    let path = folder.path().display().to_string();
    let mut options = json!({
        "socket": socket, "image": image,
        "profiles": { "plain": { "network": "none" } },
        "parts": { "tool": { "image": image, "path": "/part" } },
    });
    for (name, value) in more.as_object().unwrap() {
        options[name] = value.clone();
    }
    let runner = json!({ "rules": format!("{path}/rules.txt"), "seed": format!("{path}/seed.txt"), "token": "s3cr3t" });
    let config = json!({ "port": 0, "deltaWindowMs": 0, "plugins": [
        { "name": "./runner.mjs", "options": runner }, { "name": "@ostler/containers", "options": options },
    ] });
    folder.write("config.json", &config.to_string());
    folder.write("runner.mjs", RUNNER);
    folder.write("rules.txt", "Be kind.\n");
    folder.write("seed.txt", "seeded\n");
    folder.write("versions.json", r#"{ "tool": "1.0" }"#);
    folder.write("work/here.txt", "here\n");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(folder.path().join("work"), Permissions::from_mode(0o777)).unwrap();
    folder
}

/// Creates a session in a machine.
async fn create(client: &mut Client, folder: &Folder, session: &str, computer: &str) -> Result<Value, Value> {
    let directory = format!("file://{}", folder.path().join("work").display());
    let params = json!({ "channel": session, "provider": "runner", "config": { "computer": computer },
        "workingDirectories": [directory] });
    client.request("createSession", params).await
}

/// Runs a line in a session's machine.
async fn say(client: &mut Client, session: &str, turn: &str, line: &str) -> String {
    let chat = ostler_protocol::uri::default_chat(session);
    client.subscribe(&chat).await;
    let turn = json!({ "type": "chat/turnStarted", "turnId": turn, "message": { "text": line } });
    client.dispatch(&chat, 1, turn).await;
    let said = client.actions_until("chat/turnComplete").await;
    let part = said.iter().find(|action| action["action"]["type"] == "chat/responsePart").unwrap();
    part["action"]["part"]["content"].as_str().unwrap().to_owned()
}

async fn read(client: &mut Client, uri: &str) -> Result<Value, Value> {
    client.request("resourceRead", json!({ "channel": "ahp-root://", "uri": uri })).await
}

async fn write(client: &mut Client, uri: &str, data: &str) -> Result<Value, Value> {
    let params = json!({ "channel": "ahp-root://", "uri": uri, "data": data, "encoding": "utf-8" });
    client.request("resourceWrite", params).await
}

async fn delete(client: &mut Client, uri: &str) -> Result<Value, Value> {
    client.request("resourceDelete", json!({ "channel": "ahp-root://", "uri": uri, "recursive": true })).await
}

async fn names(client: &mut Client, uri: &str) -> Vec<String> {
    let listed =
        client.request("resourceList", json!({ "channel": "ahp-root://", "uri": uri })).await.unwrap();
    let entries = listed["entries"].as_array().unwrap();
    entries.iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect()
}

/// What the runtime itself says.
fn runtime(socket: &str, method: &str, path: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    write!(stream, "{method} {path} HTTP/1.1\r\nhost: d\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// How many containers there are whose name has a text.
fn containers(socket: &str, of: &str) -> usize {
    let all = runtime(socket, "GET", "/v1.41/containers/json?all=true");
    all.matches(&format!("\"Names\":[\"/{of}")).count()
}

#[track_caller]
fn until(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(40);
    while !is() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The children of all threads of a process.
fn children(id: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{id}/task")).unwrap().flatten();
    let children = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    children
        .flat_map(|line| line.split_whitespace().map(|id| id.parse().unwrap()).collect::<Vec<_>>())
        .collect()
}

/// The name of a machine's container, and the part that all of a host's have.
async fn container(client: &mut Client, id: &str) -> (String, String) {
    let status = read(client, &format!("computer://{id}/status")).await.unwrap();
    let status: Value = serde_json::from_str(status["data"].as_str().unwrap()).unwrap();
    let container = status["container"].as_str().unwrap().to_owned();
    let (socket, _) = podman();
    let whole = runtime(&socket, "GET", &format!("/v1.41/containers/{container}/json"));
    let name = whole.split("\"Name\":\"/").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let prefix = name.strip_suffix(id).unwrap().to_owned();
    (container, prefix)
}

async fn client(daemon: &Daemon) -> Client {
    daemon.initialized("c").await
}

#[tokio::test]
#[ignore = "needs Podman: .ci/podman"]
async fn a_session_has_what_its_backend_needs_and_continues_after_a_crash() {
    let (socket, image) = podman();
    let folder = folder(&socket, &image, json!({}));
    let daemon = folder.start();
    let mut one = client(&daemon).await;
    create(&mut one, &folder, "runner:/1", "disposable:plain").await.unwrap();
    let line = "echo $TOKEN; cat /etc/deep/rules; cat /var/lib/runner/seed.txt; /opt/ostler/tool/bin/tool x; cat here.txt; \
                echo made > made.txt; echo kept > /kept; touch /opt/ostler/tool/bin/tool 2>/dev/null || echo read-only";
    let said = say(&mut one, "runner:/1", "t1", line).await;
    assert_eq!(said, "s3cr3t\nBe kind.\nseeded\npart x\nhere\nread-only\n");
    assert_eq!(fs::read_to_string(folder.path().join("work/made.txt")).unwrap(), "made\n");
    let machines = names(&mut one, "computer://").await;
    let [id] = &machines[..] else { panic!("{machines:?}") };
    let (_, prefix) = container(&mut one, id).await;
    let code = say(&mut one, "runner:/1", "t2", "echo no >&2; exit 3").await;
    assert_eq!(code, "failed: no\n 3", "stderr and the exit code arrive");

    daemon.kill();
    let daemon = folder.start();
    let mut one = client(&daemon).await;
    assert_eq!(say(&mut one, "runner:/1", "t3", "cat /kept").await, "kept\n", "the same machine");
    write(&mut one, &format!("computer://{id}/state"), "stopped").await.unwrap();
    assert_eq!(say(&mut one, "runner:/1", "t4", "cat /kept").await, "kept\n", "it is started");
    assert!(!folder.read("log").contains("s3cr3t"));

    // A second machine has the volume of the first, which is not seeded again.
    say(&mut one, "runner:/1", "t5", "echo changed > /var/lib/runner/seed.txt").await;
    create(&mut one, &folder, "runner:/2", "disposable:plain").await.unwrap();
    assert_eq!(say(&mut one, "runner:/2", "t1", "cat /var/lib/runner/seed.txt").await, "changed\n");
    for session in ["runner:/1", "runner:/2"] {
        one.request("disposeSession", json!({ "channel": session })).await.unwrap();
    }
    until("containers are left", || containers(&socket, &prefix) == 0);
}

#[tokio::test]
#[ignore = "needs Podman: .ci/podman"]
async fn a_machine_of_a_session_that_ended_meanwhile_is_removed() {
    let (socket, image) = podman();
    let folder = folder(&socket, &image, json!({}));
    let daemon = folder.start();
    let mut one = client(&daemon).await;
    for session in ["runner:/1", "runner:/2"] {
        create(&mut one, &folder, session, "disposable:plain").await.unwrap();
        say(&mut one, session, "t1", "true").await;
    }
    let id = names(&mut one, "computer://").await.remove(0);
    let (_, prefix) = container(&mut one, &id).await;
    assert_eq!(containers(&socket, &prefix), 2);
    daemon.kill();
    // As if the sessions had ended while the runtime was away.
    let state = folder.state_file("state.db");
    for file in [state.clone(), state.with_extension("db-wal"), state.with_extension("db-shm")] {
        let _ = fs::remove_file(file);
    }
    let daemon = folder.start();
    until("containers are left", || containers(&socket, &prefix) == 0);
    drop(daemon);
}

#[tokio::test]
#[ignore = "needs Podman: .ci/podman"]
async fn no_process_outlives_the_daemon() {
    let (socket, image) = podman();
    let folder = folder(&socket, &image, json!({}));
    let daemon = folder.start();
    let mut one = client(&daemon).await;
    create(&mut one, &folder, "runner:/1", "disposable:plain").await.unwrap();
    let chat = ostler_protocol::uri::default_chat("runner:/1");
    one.subscribe(&chat).await;
    // Neither reads what it is sent nor listens to SIGTERM, and leaves something behind.
    let line = "trap '' TERM; (trap '' TERM; sleep 4711) & sleep 4712; sleep 4713";
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t1", "message": { "text": line } });
    one.dispatch(&chat, 1, turn).await;
    let id = names(&mut one, "computer://").await.remove(0);
    let (_, prefix) = container(&mut one, &id).await;
    let sleeping = || {
        // Processes of a rootless runtime are processes of this computer.
        let all = fs::read_dir("/proc").unwrap().flatten();
        let lines = all.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        // Another test has a `sleep 4714`.
        let own = [b"sleep\x004711", b"sleep\x004712", b"sleep\x004713"];
        lines.filter(|line| own.iter().any(|own| line.starts_with(*own))).count()
    };
    until("the processes do not start", || sleeping() == 2);
    daemon.kill();
    until("processes are left", || sleeping() == 0);
    let daemon = folder.start();
    let mut one = client(&daemon).await;
    one.subscribe(&chat).await;
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t2", "message": { "text": line } });
    one.dispatch(&chat, 1, turn).await;
    until("the processes do not start again", || sleeping() == 2);
    daemon.stop();
    until("processes are left by a daemon that ended", || sleeping() == 0);

    // Killed together with what would have ended them.
    let daemon = folder.start();
    let mut one = client(&daemon).await;
    one.subscribe(&chat).await;
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t3", "message": { "text": line } });
    one.dispatch(&chat, 1, turn).await;
    until("the processes do not start a third time", || sleeping() == 2);
    let entered: Vec<u32> = children(daemon.child.id())
        .into_iter()
        .filter(|id| fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default().ends_with(b"\0enter\0"))
        .collect();
    assert_eq!(entered.len(), 1, "one process entered the machine");
    tell(entered[0], Signal::KILL);
    daemon.kill();
    assert_eq!(sleeping(), 2, "nobody ended them");
    let daemon = folder.start();
    until("processes are left after a new start", || sleeping() == 0);
    let mut one = client(&daemon).await;
    one.request("disposeSession", json!({ "channel": "runner:/1" })).await.unwrap();
    until("containers are left", || containers(&socket, &prefix) == 0);
}

#[tokio::test]
#[ignore = "needs Podman: .ci/podman"]
async fn a_machine_is_a_resource() {
    let (socket, image) = podman();
    let folder = folder(&socket, &image, json!({}));
    let daemon = folder.start();
    let mut one = client(&daemon).await;
    let manifest = json!({ "network": "none", "workdir": "/root" }).to_string();
    write(&mut one, "computer://barn", &manifest).await.unwrap();
    assert_eq!(names(&mut one, "computer://").await, ["barn"]);
    let (_, prefix) = container(&mut one, "barn").await;
    let state = |read: Result<Value, Value>| read.unwrap()["data"].as_str().unwrap().to_owned();
    assert_eq!(state(read(&mut one, "computer://barn/state").await), "running");

    write(&mut one, "computer://barn/files/root/a b.txt".replace(' ', "%20").as_str(), "hay\n")
        .await
        .unwrap();
    assert_eq!(state(read(&mut one, "computer://barn/files/root/a%20b.txt").await), "hay\n");
    assert_eq!(names(&mut one, "computer://barn/files/root").await, ["a b.txt"]);
    assert!(names(&mut one, "computer://barn/files").await.contains(&"bin".to_owned()));
    let facts = json!({ "channel": "ahp-root://", "uri": "computer://barn/files/root/a%20b.txt" });
    let facts = one.request("resourceResolve", facts).await.unwrap();
    assert_eq!((&facts["type"], &facts["size"]), (&json!("file"), &json!(4)), "{facts}");
    for missing in ["computer://barn/files/none", "computer://stable/state"] {
        assert_eq!(read(&mut one, missing).await.unwrap_err()["code"], -32008, "{missing}");
    }
    create(&mut one, &folder, "runner:/1", "computer://barn").await.unwrap();
    assert_eq!(say(&mut one, "runner:/1", "t1", "cat 'a b.txt'").await, "hay\n");
    write(&mut one, "computer://barn/state", "stopped").await.unwrap();
    assert_eq!(state(read(&mut one, "computer://barn/state").await), "stopped");
    let stats: Value = serde_json::from_str(&state(read(&mut one, "computer://barn/stats").await)).unwrap();
    assert_eq!(stats, json!({ "running": false }));
    write(&mut one, "computer://barn/state", "running").await.unwrap();
    write(&mut one, "computer://barn/state", "restarted").await.unwrap();
    assert_eq!(state(read(&mut one, "computer://barn/files/root/a%20b.txt").await), "hay\n");

    let taken = write(&mut one, "computer://barn", &manifest).await.unwrap_err();
    assert_eq!(taken["code"], -32010, "{taken}");
    delete(&mut one, "computer://barn").await.unwrap();
    assert_eq!(containers(&socket, &prefix), 0);
    // The session that ran in it does not fall back to the host.
    let said = one.request("disposeSession", json!({ "channel": "runner:/1" })).await;
    assert!(said.is_ok(), "{said:?}");
}

/// A configuration whose echo backend calls tools.
fn with_tools(socket: &str, image: &str, advanced: bool) -> Folder {
    let folder = folder(socket, image, json!({ "tools": true }));
    let path = folder.path().join("config.json");
    let mut config: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    config["advancedTools"] = advanced.into();
    config["plugins"].as_array_mut().unwrap().push(json!({ "name": "@ostler/echo" }));
    fs::write(&path, config.to_string()).unwrap();
    folder
}

/// Has the echo backend call a tool; the text of its result, and whether it succeeded.
async fn call(client: &mut Client, session: &str, turn: &str, tool: &str, input: Value) -> (bool, String) {
    let chat = ostler_protocol::uri::default_chat(session);
    client.subscribe(&chat).await;
    let turn = json!({ "type": "chat/turnStarted", "turnId": turn, "message": { "text": format!("/tool {tool} {input}") } });
    client.dispatch(&chat, 1, turn).await;
    let said = client.actions_until("chat/turnComplete").await;
    let done = said.iter().find(|action| action["action"]["type"] == "chat/toolCallComplete").unwrap();
    let result = &done["action"]["result"];
    let failed = result["error"]["message"].as_str();
    let text = result["content"][0]["text"].as_str().or(failed).unwrap_or_else(|| panic!("{result}"));
    (result["success"] == true, text.to_owned())
}

async fn echo(client: &mut Client, folder: &Folder, session: &str) {
    let directory = format!("file://{}", folder.path().join("work").display());
    let params = json!({ "channel": session, "provider": "echo", "workingDirectories": [directory] });
    client.request("createSession", params).await.unwrap();
}

#[tokio::test]
async fn tools_for_machines_need_the_operators_permission() {
    let profile = json!({ "profile": "plain" });
    let folder = with_tools("/no/such/socket", "localhost/x", false);
    let daemon = folder.start();
    let mut one = client(&daemon).await;
    echo(&mut one, &folder, "echo:/1").await;
    let (made, why) = call(&mut one, "echo:/1", "t1", "request_disposable_computer", profile.clone()).await;
    assert_eq!((made, why.as_str()), (false, "there is no tool request_disposable_computer"));
    drop(daemon);
    let folder = with_tools("/no/such/socket", "localhost/x", true);
    let daemon = folder.start();
    let mut one = client(&daemon).await;
    echo(&mut one, &folder, "echo:/1").await;
    let (made, why) = call(&mut one, "echo:/1", "t1", "request_disposable_computer", profile).await;
    assert!(!made && why.contains("/no/such/socket"), "{why}");
}

#[tokio::test]
#[ignore = "needs Podman: .ci/podman"]
async fn a_model_makes_a_machine_and_runs_commands_in_it() {
    let (socket, image) = podman();
    let folder = with_tools(&socket, &image, true);
    let daemon = folder.start();
    let mut one = client(&daemon).await;
    echo(&mut one, &folder, "echo:/1").await;
    echo(&mut one, &folder, "echo:/2").await;
    let plain = json!({ "profile": "plain" });
    let (made, text) = call(&mut one, "echo:/1", "t1", "request_disposable_computer", plain.clone()).await;
    assert!(made, "{text}");
    let machine: Value = serde_json::from_str(&text).unwrap();
    let computer = machine["computer"].as_str().unwrap();
    assert_eq!(machine["workdir"], folder.path().join("work").display().to_string());
    let (_, prefix) = container(&mut one, computer.strip_prefix("computer://").unwrap()).await;
    let exec = |command: &str| json!({ "computer": computer, "command": command, "timeoutSeconds": 60 });
    let (ran, text) = call(&mut one, "echo:/1", "t2", "computer_exec", exec("cat here.txt; exit 3")).await;
    let result: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((ran, result), (true, json!({ "exitCode": 3, "truncated": false, "output": "here\n" })));
    let mut slow = exec("echo begun; sleep 4714");
    slow["timeoutSeconds"] = json!(10);
    let (ran, text) = call(&mut one, "echo:/1", "t3", "computer_exec", slow).await;
    assert!(!ran && text.contains("did not end within 10 seconds") && text.contains("begun"), "{text}");
    let sleeps = || {
        let all = fs::read_dir("/proc").unwrap().flatten();
        let mut lines = all.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        lines.any(|line| line.starts_with(b"sleep\x004714"))
    };
    until("what was ended runs on", || !sleeps());
    // Another session sees nothing of it.
    for (turn, tool) in [("t1", "computer_exec"), ("t2", "release_computer")] {
        let (ran, why) = call(&mut one, "echo:/2", turn, tool, exec("id")).await;
        assert!(!ran && why.contains(&format!("No machine at {computer}")), "{why}");
    }
    let (released, why) =
        call(&mut one, "echo:/1", "t4", "release_computer", json!({ "computer": computer })).await;
    assert!(released, "{why}");
    assert_eq!(containers(&socket, &prefix), 0);
    // What is not released ends with the session.
    let (made, text) = call(&mut one, "echo:/1", "t5", "request_disposable_computer", plain).await;
    assert!(made && containers(&socket, &prefix) == 1, "{text}");
    one.request("disposeSession", json!({ "channel": "echo:/1" })).await.unwrap();
    until("containers are left", || containers(&socket, &prefix) == 0);
}

#[tokio::test]
async fn what_a_manifest_may_not_name_is_refused() {
    let folder = folder("/no/such/socket", "localhost/x", json!({ "images": ["ghcr.io/acme/*"] }));
    let daemon = folder.start();
    let mut one = client(&daemon).await;
    for (id, manifest, says) in [
        ("-x", json!({}), "-x is not an id of a machine"),
        ("barn", json!({ "image": "docker.io/evil" }), "image: docker.io/evil is not allowed here"),
        ("barn", json!({ "image": "-v" }), "image: -v"),
        (
            "barn",
            json!({ "mounts": [{ "source": "/", "target": "/host" }] }),
            "mounts: not allowed here; name a profile (plain)",
        ),
        ("barn", json!({ "folder": "/" }), "folder: not allowed here"),
        ("barn", json!({ "profile": "none" }), "there is no profile none; there are plain"),
        (
            "barn",
            json!({ "devcontainer": { "folder": "/x" }, "image": "ghcr.io/acme/x" }),
            "devcontainer: not together",
        ),
        ("barn", json!({ "colour": "red" }), "colour"),
    ] {
        let refused = write(&mut one, &format!("computer://{id}"), &manifest.to_string()).await.unwrap_err();
        assert_eq!(refused["code"], -32602, "{refused}");
        assert!(refused["message"].as_str().unwrap().contains(says), "{refused}");
    }
    let refused = write(&mut one, "computer://barn", r#"{ "image": "ghcr.io/acme/x" }"#).await.unwrap_err();
    let says = "no container runtime listens at /no/such/socket: the socket does not exist";
    assert_eq!(refused["message"], says);
    let refused = create(&mut one, &folder, "runner:/1", "disposable:plain").await.unwrap_err();
    assert_eq!(refused["message"], format!("cannot create a machine from disposable:plain: {says}"));
    let list = json!({ "channel": "ahp-root://", "uri": "computer://" });
    assert_eq!(one.request("resourceList", list).await.unwrap_err()["message"], says);
}

#[tokio::test]
async fn a_runtime_that_does_not_answer_delays_only_its_own() {
    let folder = folder("docker.sock", "localhost/x", json!({}));
    let socket = folder.path().join("docker.sock");
    let options = fs::read_to_string(folder.path().join("config.json")).unwrap();
    folder.write("config.json", &options.replace("\"docker.sock\"", &json!(socket).to_string()));
    let _listener = UnixListener::bind(&socket).unwrap();
    let daemon = folder.start();
    let (mut one, mut two) = (client(&daemon).await, daemon.initialized("two").await);
    let begun = Instant::now();
    let slow = create(&mut one, &folder, "runner:/1", "disposable:plain");
    let other = async {
        two.request("ping", json!({ "channel": "ahp-root://" })).await.unwrap();
        begun.elapsed()
    };
    let (slow, other) = tokio::join!(slow, other);
    assert!(other < Duration::from_secs(4), "{other:?}");
    let why = slow.unwrap_err();
    assert!(
        why["message"].as_str().unwrap().ends_with("the container runtime did not answer within 8 seconds"),
        "{why}"
    );
}

/// A stand-in for the dev-container command line.
fn stand_in(folder: &Folder, script: &str) -> Value {
    folder.write("devcontainer", &format!("#!/bin/sh\n[ \"$1\" = --version ] && echo 0 && exit\n{script}\n"));
    let program = folder.path().join("devcontainer");
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    json!(program)
}

async fn connect(client: &mut Client, path: &Path) -> Result<Value, Value> {
    client
        .request("vscode/devContainers/connect", json!({ "connectionId": "a", "workspaceFolder": path }))
        .await
}

#[tokio::test]
async fn what_the_dev_container_command_line_lacks_or_refuses_is_said() {
    let folder = folder("/no/such/socket", "localhost/x", json!({}));
    let socket = folder.path().join("docker.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n[]");
        }
    });
    let failing = stand_in(
        &folder,
        "echo 'Error: no such image' >&2\necho '{\"outcome\":\"error\",\"message\":\"Command failed: docker pull x\",\
         \"description\":\"An error occurred setting up the container.\"}'\nexit 1",
    );
    folder.write("work/.devcontainer.json", "{}");
    for (program, docker, path, says) in [
        (
            json!("no-such-devcontainer"),
            "sh",
            "work",
            "is not installed; install it with npm install -g @devcontainers/cli",
        ),
        (
            failing.clone(),
            "sh",
            "work",
            ": An error occurred setting up the container: Command failed: docker pull x: Error: no such image",
        ),
        (
            failing.clone(),
            "no-such-docker",
            "work",
            "no-such-docker of the option devcontainer.docker is not installed",
        ),
        (failing, "sh", ".", "has no .devcontainer/devcontainer.json or .devcontainer.json"),
    ] {
        let options = json!({ "socket": socket, "devcontainer": { "program": program, "docker": docker,
            "plugins": [{ "name": "@ostler/echo" }] } });
        let config = json!({ "port": 0, "plugins": [
            { "name": "@ostler/echo" }, { "name": "@ostler/containers", "options": options }
        ] });
        folder.write("config.json", &config.to_string());
        let daemon = folder.start();
        let mut one = daemon.client().await;
        assert_eq!(one.initialize("c").await["_meta"]["vscode.devContainers"], true);
        let refused = connect(&mut one, &folder.path().join(path)).await.unwrap_err();
        assert!(refused["message"].as_str().unwrap().contains(says), "{refused}");
    }
}

#[tokio::test]
#[ignore = "needs Podman: .ci/podman"]
async fn a_client_speaks_to_the_host_in_a_dev_container() {
    let (socket, image) = podman();
    let folder = folder(&socket, &image, json!({}));
    folder.write("work/.devcontainer.json", "{}");
    // Makes the container with the labels it was given, as the real one does, with the API.
    let script = r#"
labels=
while [ $# -gt 0 ]; do case "$1" in --id-label) labels="$labels,\"${2%%=*}\":\"${2#*=}\""; shift;; esac; shift; done
echo making >&2
body="{\"Image\":\"IMAGE\",\"Labels\":{${labels#,}},\"Entrypoint\":[\"/bin/sleep\",\"3600\"],\"HostConfig\":{\"NetworkMode\":\"none\"}}"
id=$(curl -s --unix-socket "${DOCKER_HOST#unix://}" -H 'content-type: application/json' -d "$body" http://d/v1.41/containers/create | sed 's/.*"Id":"//; s/".*//')
curl -s --unix-socket "${DOCKER_HOST#unix://}" -X POST http://d/v1.41/containers/$id/start
echo "{\"outcome\":\"success\",\"containerId\":\"$id\",\"remoteUser\":\"root\",\"remoteWorkspaceFolder\":\"/root\"}"
"#;
    let program = stand_in(&folder, &script.replace("IMAGE", &image));
    let options = json!({ "socket": socket, "image": image,
        "devcontainer": { "program": program, "plugins": [{ "name": "@ostler/echo" }] } });
    let config = json!({ "port": 0, "plugins": [
        { "name": "@ostler/echo" }, { "name": "@ostler/containers", "options": options }
    ] });
    folder.write("config.json", &config.to_string());
    let daemon = folder.start();
    let mut one = client(&daemon).await;
    let made = connect(&mut one, &folder.path().join("work")).await.unwrap();
    assert_eq!(made["remoteWorkspaceFolder"], "/root");
    assert_eq!(greet(&mut one).await["result"]["protocolVersion"], "1.0.0");
    let container = json!({ "address": made["address"] });
    one.request("x-ostler/containers/remove", container).await.unwrap();
    assert_eq!(names(&mut one, "computer://").await, Vec::<String>::new());
}

/// Speaks to the host inside of the connection `a`; its answer to `initialize`.
async fn greet(one: &mut Client) -> Value {
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "channel": "ahp-root://", "clientId": "inside", "protocolVersions": ["1.0.0"], "initialSubscriptions": [] } });
    let send = json!({ "connectionId": "a", "data": hello.to_string() });
    one.request("vscode/devContainers/relaySend", send).await.unwrap();
    let answer = loop {
        let frame = one.next_frame().await.unwrap();
        match frame["method"].as_str() {
            Some("vscode/devContainers/relayMessage") => {
                break frame["params"]["data"].as_str().unwrap().to_owned();
            }
            Some("vscode/devContainers/relayClose") => panic!("the host inside ended"),
            _ => {}
        }
    };
    serde_json::from_str(&answer).unwrap()
}
