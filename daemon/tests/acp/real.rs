//! Real agents, where they are installed: `OSTLER_TEST_AGENTS` names a folder that holds one npm project for each.
//! Without it these tests do not run; they are never counted as passed.

use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::NamedTempFile;

use crate::model::Model;
use crate::record;
use crate::talk::{Stage, Talk, all, last, text_of};

/// A file of an installed agent.
fn installed(agent: &str, file: &str) -> PathBuf {
    let folder =
        std::env::var("OSTLER_TEST_AGENTS").expect("OSTLER_TEST_AGENTS names the folder of the agents");
    let path = PathBuf::from(folder).join(agent).join("node_modules").join(file);
    assert!(path.is_file(), "{} is missing; .ci/run installs it", path.display());
    path
}

/// A file of a preset's package, or of the named part of it, which is installed in the version that users get.
fn of_preset(id: &str, part: Option<&str>, file: &str) -> PathBuf {
    let (package, version) = package_of(id);
    let package = part.map_or(package, str::to_owned);
    let manifest = installed(id, &format!("{package}/package.json"));
    let manifest: Value = serde_json::from_str(&std::fs::read_to_string(manifest).unwrap()).unwrap();
    assert_eq!(manifest["version"], version, "{package}: the version of the preset {id}");
    installed(id, &format!("{package}/{file}"))
}

/// The package of a preset, and its version.
fn package_of(id: &str) -> (String, String) {
    let file = format!("{}/../plugins/acp/presets/{id}/agent.json", env!("CARGO_MANIFEST_DIR"));
    let preset: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let package = preset["distribution"]["npx"]["package"].as_str().unwrap();
    let (name, version) = package.rsplit_once('@').unwrap();
    (name.to_owned(), version.to_owned())
}

/// The presets whose agents are driven here.
const DRIVEN: [&str; 3] = ["codex-acp", "opencode", "gemini"];

/// The presets are the one list of packages and versions: what is tested is what users get.
#[test]
fn the_agents_of_these_tests_are_those_of_the_presets() {
    let script = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../.ci/run")).unwrap();
    let installs = script.lines().filter_map(|line| line.trim().strip_prefix("agent ")?.split_once(' '));
    let mut presets = Vec::new();
    for (folder, packages) in installs.filter(|(folder, _)| !matches!(*folder, "example" | "devcontainer")) {
        let of_preset = packages.starts_with(&format!("\"$(package {folder}"));
        assert!(
            of_preset,
            "agent {folder} {packages}: name its package by the preset, as $(package {folder})"
        );
        presets.push(folder.to_owned());
    }
    assert_eq!(presets, DRIVEN);
    for id in DRIVEN {
        let (package, version) = package_of(id);
        assert!(
            !script.contains(&format!("{package}@")),
            "{package} has its version {version} in its preset only"
        );
    }
}

/// The example agent says the same each time: it has no model, so it has no thoughts, and it ignores the MCP servers it is told.
fn example() -> (Stage, NamedTempFile) {
    let script = installed("example", "@agentclientprotocol/sdk/dist/examples/agent.js");
    let log = NamedTempFile::new().unwrap();
    let entry = json!({ "command": "node", "args": [script], "name": "Example" });
    (Stage::of(record::entry(entry, log.path()), json!({})), log)
}

/// Waits for an approval and answers it; answers the actions until then.
async fn approve(talk: &mut Talk, turn: &str, option: Option<&str>) -> Vec<Value> {
    let seen = talk.until(&["session/inputNeededSet"]).await;
    let call = last(&seen)["request"]["toolCall"]["toolCallId"].clone();
    let mut answer = json!({ "type": "chat/toolCallConfirmed", "turnId": turn, "toolCallId": call });
    match option {
        Some(option) => {
            answer["approved"] = true.into();
            answer["confirmed"] = "user-action".into();
            answer["selectedOptionId"] = option.into();
        }
        None => {
            answer["approved"] = false.into();
            answer["reason"] = "denied".into();
        }
    }
    talk.act(answer).await;
    seen
}

#[tokio::test]
#[ignore = "needs the example agent of the ACP SDK"]
async fn the_example_agent_runs_a_tool_with_approval_and_with_denial() {
    let (stage, log) = example();
    let mut talk = stage.talk().await;
    let turn = talk.begin("hello").await;
    let mut seen = approve(&mut talk, &turn, Some("allow")).await;
    seen.extend(talk.until(&["chat/turnComplete"]).await);
    let said = text_of(&seen);
    assert!(
        said.starts_with("I'll help you with that.") && said.ends_with("The changes have been applied."),
        "{said}"
    );
    let results = all(&seen, "chat/toolCallComplete");
    assert_eq!((results.len(), &results[1]["result"]["success"]), (2, &json!(true)), "{results:?}");
    let turn = talk.begin("again").await;
    let mut seen = approve(&mut talk, &turn, None).await;
    seen.extend(talk.until(&["chat/turnComplete"]).await);
    assert!(text_of(&seen).ends_with("I'll skip the configuration update."), "{}", text_of(&seen));
    assert_eq!(stage.daemon.stop(), Some(0));
    let methods: Vec<String> = record::checked(log.path()).into_iter().collect();
    assert_eq!(methods, ["initialize", "session/new", "session/prompt", "session/request_permission"]);
}

#[tokio::test]
#[ignore = "needs the example agent of the ACP SDK"]
async fn the_example_agent_is_cancelled_and_answers_again() {
    let (stage, _log) = example();
    let mut talk = stage.talk().await;
    let turn = talk.begin("hello").await;
    talk.until(&["chat/responsePart"]).await;
    talk.act(json!({ "type": "chat/turnCancelled", "turnId": turn, "duration": 0 })).await;
    talk.until(&["chat/turnCancelled"]).await;
    talk.begin("again").await;
    let seen = talk.until(&["chat/responsePart"]).await;
    assert!(text_of(&seen).starts_with("I'll help you with that."), "{seen:?}");
}

#[tokio::test]
#[ignore = "needs the example agent of the ACP SDK"]
async fn two_clients_watch_the_example_agent() {
    let (stage, _log) = example();
    let mut talk = stage.talk().await;
    let other = stage.daemon.initialized("other").await;
    let mut other = Talk::join(other, "fake:/one").await;
    let turn = talk.begin("hello").await;
    let mine = approve(&mut talk, &turn, Some("allow")).await;
    let theirs = other.until(&["session/inputNeededSet"]).await;
    assert_eq!(text_of(&mine), text_of(&theirs));
    assert_eq!(
        text_of(&talk.until(&["chat/turnComplete"]).await),
        text_of(&other.until(&["chat/turnComplete"]).await)
    );
}

/// The text of each prompt that the agent was sent, from the log of frames.
fn prompts(log: &NamedTempFile) -> Vec<String> {
    let sent = std::fs::read_to_string(log.path()).unwrap();
    let frames = sent.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    frames
        .filter(|frame| frame["method"] == "session/prompt")
        .map(|frame| frame["params"].to_string())
        .collect()
}

/// Approves what the agent of the first session asks for, for ever.
async fn approve_all(mut client: crate::support::Client) {
    let session = loop {
        let listed = client.request("listSessions", json!({ "channel": "ahp-root://" })).await.unwrap();
        match listed["items"][0]["resource"].as_str() {
            Some(session) => break session.to_owned(),
            None => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
        }
    };
    let mut talk = Talk::join(client, &session).await;
    loop {
        let needed = last(&talk.until(&["session/inputNeededSet"]).await)["request"].clone();
        let (turn, call) = (&needed["turnId"], &needed["toolCall"]["toolCallId"]);
        talk.act(
            json!({ "type": "chat/toolCallConfirmed", "turnId": turn, "toolCallId": call, "approved": true,
            "confirmed": "user-action" }),
        )
        .await;
    }
}

/// It stores no sessions, so that it is told the conversation.
#[tokio::test]
#[ignore = "needs the example agent of the ACP SDK"]
async fn the_example_agent_continues_after_it_was_killed_and_after_the_host_was() {
    let (stage, log) = example();
    let mut talk = stage.talk().await;
    talk.begin("remember seven").await;
    talk.until(&["chat/responsePart"]).await;
    crate::processes::kill_agents(stage.daemon.child.id());
    let seen = talk.until(&["chat/error"]).await;
    assert_eq!(last(&seen)["part"]["error"]["errorType"], "agentEnded", "{seen:#?}");
    let told = |prompt: &str, texts: &[&str]| texts.iter().all(|text| prompt.contains(text));
    let (seen, asked) = run(&mut talk, "after its end", true).await;
    assert!(asked == 1 && text_of(&seen).ends_with("The changes have been applied."), "{seen:#?}");
    let sent = prompts(&log).pop().unwrap();
    assert!(told(&sent, &["remember seven", "after its end"]), "{sent}");
    drop(talk);
    let stage = stage.restarted(true);
    let mut talk = Talk::join(stage.daemon.initialized("later").await, "fake:/one").await;
    let (seen, asked) = run(&mut talk, "after the restart", true).await;
    assert!(asked == 1 && text_of(&seen).ends_with("The changes have been applied."), "{seen:#?}");
    let sent = prompts(&log).pop().unwrap();
    assert!(told(&sent, &["remember seven", "after its end", "after the restart"]), "{sent}");
    assert_eq!(stage.daemon.stop(), Some(0));
    record::checked(log.path());
}

#[tokio::test]
#[ignore = "needs the example agent of the ACP SDK"]
async fn the_example_agent_answers_a_webhook() {
    let script = installed("example", "@agentclientprotocol/sdk/dist/examples/agent.js");
    let entry = json!({ "command": "node", "args": [script], "name": "Example" });
    // It repeats nothing of what it is told, and asks for an approval each time, which a client gives.
    let told = |_: &str| "I'll help you with that.".to_owned();
    crate::bots::a_webhook_gets(&entry, "hello from outside", told, approve_all).await;
}

/// A tool of a plugin, to be called through the session's endpoint.
const TOOLS: &str = "
export const name = 'tools';
export function apply(host) {
  host.registerTool({ definition: { name: 'shout', description: 'Shouts.', inputSchema: { type: 'object',
    properties: { text: { type: 'string' } } } }, run: ({ text }) => text.toUpperCase() });
}
";

/// How one agent is driven.
struct Driven {
    entry: Value,
    /// The directive that makes its model run a shell command.
    shell: &'static str,
    thinks: bool,
    /// Whether it asks for an approval of a shell command.
    asks: bool,
    model: Model,
    _home: tempfile::TempDir,
}

/// A folder for an agent's own files, and the variables that name it.
fn home() -> (tempfile::TempDir, Value) {
    let home = tempfile::tempdir().unwrap();
    let at = |folder: &str| home.path().join(folder);
    let env = json!({ "HOME": home.path(), "XDG_CONFIG_HOME": at(".config"), "XDG_DATA_HOME": at(".data"),
        "XDG_STATE_HOME": at(".state"), "XDG_CACHE_HOME": at(".cache"), "TERM": "dumb" });
    (home, env)
}

fn with(mut env: Value, more: Value) -> Value {
    env.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    env
}

fn codex() -> Driven {
    let script = of_preset("codex-acp", None, "dist/index.js");
    let (home, env) = home();
    let model = Model::start();
    let port = model.port;
    let config = format!(
        "model = \"fake-model\"\nmodel_provider = \"fake\"\n[model_providers.fake]\nname = \"fake\"\n\
         base_url = \"http://127.0.0.1:{port}/v1\"\nwire_api = \"responses\"\nenv_key = \"FAKE_KEY\"\n"
    );
    std::fs::create_dir_all(home.path().join(".codex")).unwrap();
    std::fs::write(home.path().join(".codex/config.toml"), config).unwrap();
    // In the other modes its own reviewer, which needs a model that judges, decides about tools.
    let env = with(
        env,
        json!({ "CODEX_HOME": home.path().join(".codex"), "FAKE_KEY": "x", "NO_BROWSER": "1", "MODEL_PROVIDER": "fake",
            "INITIAL_AGENT_MODE": "agent-full-access" }),
    );
    let entry = json!({ "command": "node", "args": [script], "env": env });
    let shell = r#"!tool exec_command {"cmd":"echo hi-from-tool > f.txt; cat f.txt"}"#;
    Driven { entry, shell, thinks: true, asks: false, model, _home: home }
}

fn opencode() -> Driven {
    let command = of_preset("opencode", Some("opencode-linux-x64"), "bin/opencode");
    let (home, env) = home();
    let model = Model::start();
    let port = model.port;
    let config = json!({ "autoupdate": false, "share": "disabled", "model": "fake/fake-model", "small_model": "fake/fake-model",
        "permission": { "bash": "ask", "edit": "ask" }, "provider": { "fake": { "npm": "@ai-sdk/openai-compatible", "name": "Fake",
            "options": { "baseURL": format!("http://127.0.0.1:{port}/v1"), "apiKey": "x" },
            "models": { "fake-model": { "name": "Fake", "limit": { "context": 100_000, "output": 4000 } } } } } });
    let folder = home.path().join(".config/opencode");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("opencode.json"), config.to_string()).unwrap();
    let env = with(
        env,
        json!({ "OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1", "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1" }),
    );
    let entry = json!({ "command": command, "args": ["acp"], "env": env });
    let shell = r#"!tool bash {"command":"echo hi-from-tool > f.txt; cat f.txt","description":"Writes"}"#;
    Driven { entry, shell, thinks: true, asks: true, model, _home: home }
}

fn gemini() -> Driven {
    let script = of_preset("gemini", None, "bundle/gemini.js");
    let (home, env) = home();
    let model = Model::start();
    let port = model.port;
    let settings = json!({ "security": { "auth": { "selectedType": "gemini-api-key" } }, "privacy": { "usageStatisticsEnabled": false },
        "telemetry": { "enabled": false }, "general": { "enableAutoUpdate": false }, "model": { "name": "fake-model" } });
    std::fs::create_dir_all(home.path().join(".gemini")).unwrap();
    std::fs::write(home.path().join(".gemini/settings.json"), settings.to_string()).unwrap();
    let env = with(
        env,
        json!({ "GEMINI_API_KEY": "x", "GOOGLE_GEMINI_BASE_URL": format!("http://127.0.0.1:{port}"), "GEMINI_MODEL": "fake-model",
            "GEMINI_CLI_NO_RELAUNCH": "1", "GEMINI_CLI_TRUST_WORKSPACE": "true" }),
    );
    let entry = json!({ "command": "node", "args": [script, "--acp"], "env": env });
    let shell = r#"!tool run_shell_command {"command":"echo hi-from-tool > f.txt; cat f.txt"}"#;
    Driven { entry, shell, thinks: true, asks: true, model, _home: home }
}

/// Runs a turn and answers every approval the same way; answers the actions and how many approvals were asked.
async fn run(talk: &mut Talk, text: &str, approved: bool) -> (Vec<Value>, usize) {
    let turn = talk.begin(text).await;
    let (mut seen, mut asked) = (Vec::new(), 0);
    loop {
        seen.extend(
            talk.until(&["session/inputNeededSet", "chat/turnComplete", "chat/error", "chat/turnCancelled"])
                .await,
        );
        let action = last(&seen);
        if action["type"] != "session/inputNeededSet" {
            return (seen, asked);
        }
        let call = action["request"]["toolCall"]["toolCallId"].clone();
        if action["request"]["kind"] == "toolClientExecution" {
            let result = json!({ "success": true, "pastTenseMessage": "Weighed",
                "content": [{ "type": "text", "text": "seven stone" }] });
            talk.act(json!({ "type": "chat/toolCallComplete", "turnId": turn, "toolCallId": call, "result": result }))
                .await;
            continue;
        }
        asked += 1;
        let mut answer = json!({ "type": "chat/toolCallConfirmed", "turnId": turn, "toolCallId": call, "approved": approved });
        match approved {
            true => answer["confirmed"] = "user-action".into(),
            false => answer["reason"] = "denied".into(),
        }
        talk.act(answer).await;
    }
}

/// Everything an agent is expected to do.
async fn drive(driven: Driven) {
    let Driven { entry, shell, thinks, asks, model, _home } = driven;
    let log = NamedTempFile::new().unwrap();
    let entry = record::entry(entry, log.path());
    crate::bots::a_webhook_is_answered(&entry, "hello from outside").await;
    let stage = Stage::configured(entry, json!({}), json!({}), Some(TOOLS));
    let mut talk = stage.talk().await;
    let (seen, _) = run(&mut talk, "hello", true).await;
    assert!(text_of(&seen).contains("You said: ") && text_of(&seen).contains("hello"), "{seen:#?}");
    if thinks {
        let (seen, _) = run(&mut talk, "!think considering hay", true).await;
        let thought =
            all(&seen, "chat/responsePart").into_iter().any(|action| action["part"]["kind"] == "reasoning");
        assert!(thought, "a thought: {seen:#?}");
    }
    let (seen, asked) = run(&mut talk, shell, true).await;
    assert!((asked > 0) == asks && text_of(&seen).contains("hi-from-tool"), "{asked}: {seen:#?}");
    assert!(stage.work().join("f.txt").is_file());
    std::fs::remove_file(stage.work().join("f.txt")).unwrap();
    if asks {
        let (seen, asked) = run(&mut talk, shell, false).await;
        assert!(asked > 0 && !stage.work().join("f.txt").exists(), "{asked}: {seen:#?}");
    }
    let (seen, _) = run(&mut talk, r#"!tool shout {"text":"hay"}"#, true).await;
    assert!(text_of(&seen).contains("HAY"), "{seen:#?}");
    // A client joins with a tool; its call is shown once.
    let tool = json!({ "name": "weigh", "description": "Weighs.", "inputSchema": { "type": "object",
        "properties": { "of": { "type": "string" } } } });
    let client = json!({ "clientId": "fake--one", "tools": [tool] });
    talk.act_on("fake:/one", json!({ "type": "session/activeClientSet", "activeClient": client })).await;
    let (seen, _) = run(&mut talk, r#"!tool weigh {"of":"hay"}"#, true).await;
    let begun = all(&seen, "chat/toolCallStart");
    assert!(begun.len() == 1 && begun[0]["contributor"]["kind"] == "client", "{seen:#?}");
    assert!(text_of(&seen).contains("seven stone"), "{seen:#?}");
    let turn = talk.begin("!words 300").await;
    talk.until(&["chat/delta"]).await;
    talk.act(json!({ "type": "chat/turnCancelled", "turnId": turn, "duration": 0 })).await;
    talk.until(&["chat/turnCancelled"]).await;
    let (seen, _) = run(&mut talk, "still there", true).await;
    assert!(text_of(&seen).contains("still there"), "{seen:#?}");
    // Two clients watch one turn.
    let mut other = Talk::join(stage.daemon.initialized("other").await, "fake:/one").await;
    let (mine, _) = run(&mut talk, "seen by two", true).await;
    let theirs = other.until(&["chat/turnComplete"]).await;
    assert_eq!(text_of(&mine), text_of(&theirs));
    // The agent is killed in the middle of a turn; the next one continues the conversation.
    talk.begin("!words 300").await;
    talk.until(&["chat/responsePart"]).await;
    crate::processes::kill_agents(stage.daemon.child.id());
    let seen = talk.until(&["chat/error"]).await;
    assert_eq!(last(&seen)["part"]["error"]["errorType"], "agentEnded", "{seen:#?}");
    let (seen, _) = run(&mut talk, "after the agent's end", true).await;
    assert!(text_of(&seen).contains("after the agent's end"), "{seen:#?}");
    assert!(model.was_asked(&["seen by two", "after the agent's end"]), "the conversation continues");
    drop((talk, other));
    let stage = stage.restarted(true);
    let mut talk = Talk::join(stage.daemon.initialized("later").await, "fake:/one").await;
    let (seen, _) = run(&mut talk, "after the restart", true).await;
    assert!(text_of(&seen).contains("after the restart"), "{seen:#?}");
    assert!(model.was_asked(&["seen by two", "after the restart"]), "the conversation continues");
    assert_eq!(stage.daemon.stop(), Some(0));
    // Everything that was sent to the agent fits the protocol's schema.
    let methods = record::checked(log.path());
    let asked = asks.then_some("session/request_permission");
    for method in ["initialize", "session/new", "session/prompt", "session/cancel"].into_iter().chain(asked) {
        assert!(methods.contains(method), "{method}: {methods:?}");
    }
}

#[tokio::test]
#[ignore = "needs codex-acp"]
async fn codex_is_driven() {
    drive(codex()).await;
}

#[tokio::test]
#[ignore = "needs opencode"]
async fn opencode_is_driven() {
    drive(opencode()).await;
}

#[tokio::test]
#[ignore = "needs the Gemini CLI"]
async fn gemini_is_driven() {
    drive(gemini()).await;
}
