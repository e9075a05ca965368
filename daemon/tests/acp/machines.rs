//! Agents in machines: what they need there, and their process in one.

use serde_json::{Value, json};

use crate::agent;
use crate::talk::{Stage, Talk};

/// A machine that is this computer, under other paths.
const MACHINES: &str = "
export const name = 'machines';
export function apply(host) {
  const made = [];
  host.registerComputers({
    how: (computer, { program, args, cwd, env }) =>
      ({ program: '/bin/sh', args: ['-c', 'exec \"$@\"', 'enter', program, ...args], cwd: '/', env: { ...env, MACHINE: computer, MACHINE_CWD: cwd },
        secrets: ['key-of-the-barn'] }),
    list: () => made,
    profiles: () => ({ barn: {} }),
    make(request) {
      host.log(`make ${JSON.stringify(request.plan)}`);
      made.push({ id: 'm1', running: true, mounts: [{ source: request.workingDirectory, target: '/work' }] });
      return 'computer://m1';
    },
  });
}
";

fn stage(entry: Value) -> Stage {
    let versions = json!({ "node": "24.1.0" });
    let stage = Stage::configured(entry, json!({}), json!({}), Some(MACHINES));
    stage.folder.write("versions.json", &versions.to_string());
    stage
}

async fn talk(stage: &Stage) -> Talk {
    let mut client = stage.daemon.initialized("one").await;
    let directory = format!("file://{}", stage.work().display());
    let params = json!({ "channel": "fake:/one", "provider": "fake", "config": { "computer": "disposable:barn" },
        "workingDirectories": [directory] });
    client.request("createSession", params).await.unwrap();
    Talk::join(client, "fake:/one").await
}

#[tokio::test]
async fn an_agent_runs_in_the_machine_of_its_session() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut entry = agent::entry(json!({ "log": log.path() }));
    entry["env"]["OWN"] = "hay".into();
    let stage = stage(entry);
    let mut talk = talk(&stage).await;
    assert_eq!(talk.say("!env MACHINE").await, "computer://m1");
    assert_eq!(talk.say("!env MACHINE_CWD").await, "/work");
    assert_eq!(talk.say("!env OWN").await, "hay");
    assert_eq!(talk.say("!env HOME").await, "/var/lib/ostler/fake", "its volume");
    let sent = std::fs::read_to_string(log.path()).unwrap();
    let frame = |method: &str| -> Value {
        let frames = sent.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        frames.into_iter().find(|frame| frame["method"] == method).unwrap()["params"].clone()
    };
    assert_eq!(frame("session/new")["cwd"], "/work");
    assert_eq!(frame("session/new")["mcpServers"], json!([]), "no address of this host");
    let capabilities = &frame("initialize")["clientCapabilities"];
    assert_eq!(
        (&capabilities["terminal"], &capabilities["fs"]["readTextFile"]),
        (&json!(false), &json!(false))
    );
    let params = json!({ "channel": talk.session });
    talk.client.request("disposeSession", params).await.unwrap();
}

#[tokio::test]
async fn a_command_line_of_a_user_runs_in_the_machine_of_the_session() {
    let config = json!({ "plugins": [{ "name": "@ostler/terminal" }] });
    let stage = Stage::configured(agent::entry(json!({})), json!({}), config, Some(MACHINES));
    let mut talk = talk(&stage).await;
    let seen = talk.turn("!printf '%s %s' \"$MACHINE\" \"$MACHINE_CWD\"; exit 3").await;
    let done = seen.iter().find(|action| action["type"] == "chat/toolCallComplete").unwrap();
    let result = &done["result"];
    assert_eq!(result["content"][1]["text"], "computer://m1 /work", "{result}");
    assert_eq!(result["content"][0]["result"]["exitCode"], 3, "{result}");
    let terminal = json!({ "channel": result["content"][0]["resource"] });
    let shown = talk.client.request("subscribe", terminal).await.unwrap();
    assert_eq!(shown["snapshot"]["state"]["title"], "Terminal");
}

#[tokio::test]
async fn what_a_machine_has_for_its_agent_is_masked() {
    let script = "echo no hay for key-of-the-barn >&2; exit 3";
    let stage = stage(json!({ "command": "/bin/sh", "args": ["-c", script] }));
    let error = talk(&stage).await.fail("hello").await;
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("no hay for <set>\n"), "{message}");
}

/// Every request that needs a capability which is withheld in a machine.
fn withheld(stage: &Stage) -> Vec<(&'static str, Value)> {
    let secret = stage.work().join("secret");
    std::fs::write(&secret, "of the host").unwrap();
    let escaped = stage.work().join("escaped");
    let of = json!({ "terminalId": "terminal-1" });
    vec![
        ("fs/read_text_file", json!({ "path": secret })),
        ("fs/write_text_file", json!({ "path": escaped, "content": "x" })),
        ("terminal/create", json!({ "command": "touch", "args": [escaped] })),
        ("terminal/output", of.clone()),
        ("terminal/wait_for_exit", of.clone()),
        ("terminal/kill", of.clone()),
        ("terminal/release", of),
    ]
}

#[tokio::test]
async fn an_agent_in_a_machine_has_no_files_and_no_commands_of_the_host() {
    let stage = stage(agent::entry(json!({})));
    let mut talk = talk(&stage).await;
    for (method, params) in withheld(&stage) {
        let answer: Value =
            serde_json::from_str(&talk.say(&format!("!request {method} {params}")).await).unwrap();
        assert_eq!(answer["code"], -32601, "{method}: {answer}");
    }
    assert!(!stage.work().join("escaped").exists());
}

#[tokio::test]
async fn what_is_withheld_in_a_machine_is_withheld_while_the_session_is_opened() {
    for method in ["initialize", "session/new"] {
        // The directory is known once the host has it.
        let folder = tempfile::tempdir().unwrap();
        let escaped = folder.path().join("escaped");
        let requests = json!([["terminal/create", { "command": "touch", "args": [escaped] }],
            ["fs/write_text_file", { "path": escaped, "content": "x" }]]);
        let stage = stage(agent::entry(json!({ "requests": { method: requests } })));
        let mut talk = talk(&stage).await;
        let answers: Value = serde_json::from_str(&talk.say("!answers").await).unwrap();
        let codes: Vec<&Value> = answers.as_array().unwrap().iter().map(|answer| &answer["code"]).collect();
        assert_eq!(codes, [-32601, -32601], "{method}: {answers}");
        assert!(!escaped.exists());
    }
}

#[tokio::test]
async fn a_presets_machine_has_its_volume_its_variables_and_its_part() {
    let stage = stage(json!({ "preset": "codex-acp", "command": "no-such-agent" }));
    let mut talk = talk(&stage).await;
    stage.folder.wait_for_log("\"target\":\"/var/lib/ostler/fake\"");
    stage.folder.wait_for_log("\"part\":\"node\",\"version\":\"24.1.0\"");
    let error = talk.fail("hello").await;
    assert_eq!(error["errorType"], "agentEnded", "the program is looked up in the machine: {error}");
}

/// A configuration with containers of the Podman of `.ci/podman`, whose user reads what the agent is made of.
fn contained(folder: &std::path::Path) -> Value {
    use std::os::unix::fs::PermissionsExt as _;
    let variable =
        |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name}: run this with .ci/podman"));
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::copy(std::env::current_exe().unwrap(), folder.join("agent")).unwrap();
    let mount = json!({ "source": folder, "target": "/opt/agent", "readOnly": true });
    json!({ "name": "@ostler/containers", "options": {
        "socket": variable("OSTLER_TEST_PODMAN"), "image": variable("OSTLER_TEST_IMAGE"),
        "profiles": { "barn": { "network": "none", "folder": "/work", "mounts": [mount] } },
    } })
}

#[tokio::test]
#[ignore = "needs Podman: .ci/podman"]
async fn an_agent_runs_in_a_container_and_ends_with_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let agent_folder = tempfile::tempdir().unwrap();
    let plugins = json!({ "plugins": [contained(agent_folder.path())] });
    let mut entry = agent::entry(json!({}));
    entry["args"] = json!(["-c", "exec /opt/agent/agent agent::run --exact --nocapture 3>&1 1>/dev/null"]);
    entry["env"]["OWN"] = "hay".into();
    let stage = Stage::configured(entry, json!({}), plugins, None);
    std::fs::set_permissions(stage.work(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let mut talk = talk(&stage).await;
    assert_eq!(talk.say("!env OWN").await, "hay");
    assert_eq!(talk.say("!env container").await, "podman");
    assert_eq!(talk.say("!env HOME").await, "/var/lib/ostler/fake", "its volume");
    let list = json!({ "channel": "ahp-root://", "uri": "computer://" });
    let listed = talk.client.request("resourceList", list.clone()).await.unwrap();
    assert_eq!(listed["entries"].as_array().unwrap().len(), 1, "{listed}");
    let params = json!({ "channel": talk.session });
    talk.client.request("disposeSession", params).await.unwrap();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while talk.client.request("resourceList", list.clone()).await.unwrap()["entries"] != json!([]) {
        assert!(std::time::Instant::now() < end, "the container is left");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}
