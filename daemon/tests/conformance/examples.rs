//! The examples a person can copy: one per registration point, each run, and none that nobody runs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ostler_contract::events::Event;
use ostler_contract::http::{Body, StatusCode, header};
use ostler_contract::points::{
    AutomationStore, POINTS, Policies, RecordStore, Route, SessionStore, TriggerType, Usage, Vault,
};
use ostler_contract::registry::Registrant;
use ostler_contract::{Value, json};
use ostler_engine::users::{UsersFile, hash_of};
use ostler_engine::{People, Principal};
use ostler_loader::PluginConfig;
use ostler_ports::{FileVault, memory_records};
use ostler_testkit::{Builder, MemoryHost, RawClient, SIGN_IN};

use crate::machine_examples::{
    a_backend_runs_in_a_folder, a_client_speaks_to_the_host_of_a_folder, a_shell_is_typed_into,
};
use crate::side::{Talk, builder, object};

/// Each registration method and the example that shows it. A point without a row fails.
const EXAMPLES: &[(&str, &str)] = &[
    ("registerAgent", "agent.ts"),
    ("registerTool", "tool.ts"),
    ("registerSessionConfig", "session-setting.ts"),
    ("registerResourceProvider", "resource-provider.ts"),
    ("registerChannel", "channel.ts"),
    ("registerMethod", "method.ts"),
    ("registerTerminals", "terminals.ts"),
    ("registerComputers", "computers.ts"),
    ("registerContainers", "containers.ts"),
    ("registerAutomations", "automations.ts"),
    ("registerSessions", "sessions.ts"),
    ("registerVault", "vault.ts"),
    ("registerPolicies", "policies.ts"),
    ("registerUsage", "usage.ts"),
    ("registerResources", "resources.ts"),
    ("registerChanges", "changes.ts"),
    ("registerDirectories", "directories.ts"),
    ("registerWorktrees", "worktrees.ts"),
    ("registerGithub", "github.ts"),
    ("registerDiagnostics", "diagnostics.ts"),
    ("registerRecords", "records.ts"),
    ("registerRoute", "route.ts"),
    ("registerTriggerType", "trigger-type.ts"),
    ("registerChatPreamble", "chat-preamble.ts"),
    ("registerClose", "close.ts"),
    ("on", "listener.ts"),
    ("problem", "problem.ts"),
];

/// Makes the test of each example, and the list of the examples that have one.
macro_rules! run {
    ($($file:literal $test:ident),+ $(,)?) => {
        /// The examples that are run.
        const RUN: &[&str] = &[$($file),+];

        mod run {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                super::$test($file).await;
            })+
        }
    };
}

run! {
    "agent.ts" a_backend_says_what_it_hears,
    "tool.ts" notes_are_kept_and_found,
    "session-setting.ts" a_ticket_is_picked,
    "resource-provider.ts" a_menu_is_read_and_written,
    "channel.ts" turns_are_watched_by_whose_they_are,
    "method.ts" feedback_is_kept,
    "terminals.ts" a_shell_is_typed_into,
    "computers.ts" a_backend_runs_in_a_folder,
    "containers.ts" a_client_speaks_to_the_host_of_a_folder,
    "automations.ts" a_store_takes_the_automations,
    "sessions.ts" a_store_takes_the_sessions,
    "vault.ts" a_vault_takes_the_secrets,
    "policies.ts" a_store_takes_the_policies,
    "usage.ts" a_store_takes_what_work_cost,
    "resources.ts" one_folder_is_read_and_nothing_beside_it,
    "changes.ts" what_is_not_committed_is_shown_and_put_back,
    "directories.ts" a_note_left_there_is_shown,
    "worktrees.ts" a_session_works_on_a_branch_of_its_own,
    "github.ts" a_pull_request_is_found_and_opened,
    "diagnostics.ts" turns_are_counted_and_told,
    "records.ts" a_store_takes_the_records,
    "route.ts" a_route_asks_for_its_token,
    "trigger-type.ts" a_file_that_changes_wakes,
    "chat-preamble.ts" a_chat_is_told_of_the_others,
    "close.ts" what_was_said_is_written_in_the_end,
    "listener.ts" turns_are_timed,
    "problem.ts" what_cannot_be_used_is_reported,
    "push-notes.ts" a_push_is_summed_up,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("examples/plugins")
}

#[test]
fn every_point_has_an_example() {
    for point in POINTS {
        let row = EXAMPLES.iter().find(|(method, _)| *method == point.method);
        let (method, file) =
            row.unwrap_or_else(|| panic!("{} has no example: write one and name it here", point.method));
        let text =
            std::fs::read_to_string(folder().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(text.contains(&format!("host.{method}(")), "{file} does not call {method}");
        let guide = std::fs::read_to_string(folder().join("../../docs/plugins.md")).unwrap();
        assert!(
            guide.contains(&format!("`{method}")) && guide.contains(&format!("plugins/{file}")),
            "docs/plugins.md does not name {method} and {file}"
        );
    }
    assert_eq!(EXAMPLES.len(), POINTS.len(), "an example is of a point there is not");
}

#[test]
fn no_example_is_there_that_nobody_runs() {
    let there: BTreeSet<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let run: BTreeSet<String> = RUN.iter().map(|file| (*file).to_owned()).collect();
    assert_eq!(there, run);
}

/// A host with the echo backend, a folder and this example.
pub fn with(file: &str, dir: &Path, options: Value) -> Builder {
    let entry = PluginConfig {
        options: object(options),
        ..PluginConfig::named(&folder().join(file).display().to_string())
    };
    builder().folder(dir).plugin(ostler_plugin_echo::plugin(), json!({})).entry(entry)
}

pub async fn start(file: &str, options: Value) -> (MemoryHost, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let host = with(file, dir.path(), options).records(memory_records()).start().await;
    assert!(host.problems.is_empty(), "{:?}", host.problems);
    (host, dir)
}

async fn a_backend_says_what_it_hears(file: &str) {
    let (host, _dir) = start(file, json!({})).await;
    let mut talk = Talk::with(&host, "parrot").await;
    assert_eq!(talk.say("hello  to you").await, "hello  to you");
    let slow = json!({ "channel": "parrot:/slow", "provider": "parrot", "config": { "delayMs": 60_000 } });
    talk.client.request("createSession", slow).await.unwrap();
    talk.chat = ostler_protocol::uri::default_chat("parrot:/slow");
    let chat = talk.chat.clone();
    talk.client.request("subscribe", json!({ "channel": chat })).await.unwrap();
    let turn = talk.begin("never said").await;
    talk.client.actions_until("chat/responsePart").await;
    talk.client
        .dispatch(&chat, 9, json!({ "type": "chat/turnCancelled", "turnId": turn, "duration": 0 }))
        .await;
    talk.client.actions_until("chat/turnCancelled").await;
}

async fn notes_are_kept_and_found(file: &str) {
    let (host, _dir) = start(file, json!({})).await;
    let mut talk = Talk::with(&host, "echo").await;
    let note = json!({ "title": "Hay, oats", "text": "Order more." });
    assert_eq!(talk.tool("note_keep", note.clone()).await, "kept as hay-oats");
    assert_eq!(talk.tool("note_find", json!({ "word": "more" })).await, json!([note]).to_string());
    assert_eq!(talk.tool("note_find", json!({ "word": "less" })).await, "[]");
    let kept = host
        .plugin("tool")
        .records("notes".into(), None)
        .unwrap()
        .get
        .call(("hay-oats".into(),))
        .await
        .unwrap();
    assert_eq!(kept.unwrap()["session"], "echo:/talk");
}

async fn a_menu_is_read_and_written(file: &str) {
    let (host, _dir) = start(file, json!({})).await;
    let mut client = host.raw();
    client.initialize("cook").await;
    let read = client.request("resourceRead", json!({ "uri": "menu://today" })).await.unwrap();
    assert_eq!(read["data"], "Soup");
    client
        .request("resourceWrite", json!({ "uri": "menu://today", "data": "Pie", "encoding": "utf-8" }))
        .await
        .unwrap();
    assert_eq!(
        client.request("resourceRead", json!({ "uri": "menu://today" })).await.unwrap()["data"],
        "Pie"
    );
    host.log.wait_for("plugin resource-provider: cook changed menu://today").await;
    let listed = client.request("resourceList", json!({ "uri": "menu://" })).await.unwrap();
    assert_eq!(listed["entries"].as_array().unwrap().len(), 2);
    let none = client.request("resourceRead", json!({ "uri": "menu://never" })).await.unwrap_err();
    assert_eq!(
        (&none["code"], &none["message"]),
        (&json!(-32008), &json!("nothing is served at menu://never"))
    );
    let long = json!({ "uri": "menu://today", "data": "x".repeat(201), "encoding": "utf-8" });
    assert_eq!(client.request("resourceWrite", long).await.unwrap_err()["data"], json!({ "most": 200 }));
}

async fn a_ticket_is_picked(file: &str) {
    let (host, _dir) = start(file, json!({})).await;
    let tickets = host.plugin("session-setting").records("tickets".into(), None).unwrap();
    for (id, title, state, risk) in [
        ("t1", "Fix the gate", "open", "low"),
        ("t2", "Move the stable", "open", "high"),
        ("t3", "Old", "done", "low"),
    ] {
        let ticket = json!({ "id": id, "title": title, "state": state, "risk": risk });
        tickets.put.call((object(ticket),)).await.unwrap();
    }
    let mut client = host.raw();
    client.initialize("c").await;
    let resolved = client.request("resolveSessionConfig", json!({ "provider": "echo" })).await.unwrap();
    let ticket = &resolved["schema"]["properties"]["ticket"];
    assert_eq!((&ticket["enum"], &ticket["enumDynamic"]), (&json!(["t1", "t2"]), &json!(true)));
    assert_eq!(resolved["values"]["care"], "careful");
    let quick = json!({ "property": "ticket", "query": "the", "config": { "care": "quick" } });
    let picked = client.request("sessionConfigCompletions", quick).await.unwrap();
    assert_eq!(
        picked["items"],
        json!([{ "value": "t1", "label": "Fix the gate", "description": "low risk" }])
    );
}

async fn turns_are_watched_by_whose_they_are(file: &str) {
    let dir = tempfile::tempdir().unwrap();
    let host = with(file, dir.path(), json!({})).people(People::new(SIGN_IN, "inn")).start().await;
    let people = json!({
        "roles": { "r": ["session:read", "session:write", "x-activity:get"] },
        "users": [{ "id": "ada", "roles": ["r"], "token": hash_of("a") },
            { "id": "bob", "roles": ["r"], "token": hash_of("b") }],
    });
    let known = host.host.access.gate.people().unwrap();
    known.set(UsersFile::parse(&people.to_string()).unwrap()).unwrap();
    let mut watchers = Vec::new();
    for id in ["ada", "bob"] {
        let mut client = host.raw_as(Principal::Person(known.now().person(id).unwrap()));
        client.initialize(id).await;
        let seen = client.request("subscribe", json!({ "channel": "x-activity://turns" })).await.unwrap();
        assert_eq!(seen["snapshot"]["state"], json!({ "turns": [] }));
        client.request("createSession", json!({ "channel": format!("echo:/{id}") })).await.unwrap();
        watchers.push(client);
    }
    for (client, turn) in watchers.iter_mut().zip(["of-ada", "of-bob"]) {
        let chat = ostler_protocol::uri::default_chat(&format!("echo:/{}", &turn[3..]));
        let say = json!({ "type": "chat/turnStarted", "turnId": turn, "message": { "text": "hello" } });
        client.dispatch(&chat, 1, say).await;
    }
    for (client, turn) in watchers.iter_mut().zip(["of-ada", "of-bob"]) {
        for what in ["started", "ended"] {
            let action = client.next_action().await["action"].clone();
            assert_eq!(
                (&action["type"], &action["turn"]["turn"]),
                (&json!(format!("x-activity/{what}")), &json!(turn))
            );
        }
    }
    watchers.pop();
    host.log.wait_for("plugin channel: bob looks no longer").await;
}

async fn feedback_is_kept(file: &str) {
    let (host, _dir) = start(file, json!({})).await;
    let mut client = host.raw();
    client.initialize("ada").await;
    let refused = client.request("x-feedback/send", json!({ "text": " " })).await.unwrap_err();
    assert_eq!((&refused["code"], &refused["data"]), (&json!(-32602), &json!({ "field": "text" })));
    let sent = client.request("x-feedback/send", json!({ "text": "More hay." })).await.unwrap();
    let feedback = host.plugin("method").records("feedback".into(), None).unwrap();
    let kept = feedback.get.call((sent["id"].as_str().unwrap().to_owned(),)).await.unwrap().unwrap();
    assert_eq!((&kept["from"], &kept["text"]), (&json!("ada"), &json!("More hay.")));
}

/// The suites of the stores themselves are beside, in `stores.rs`.
async fn a_store_takes_the_automations(file: &str) {
    let (host, _dir) = start(file, json!({})).await;
    assert!(matches!(host.registry().holder::<AutomationStore>(), Some(Registrant::Plugin(_))));
}

async fn a_store_takes_the_sessions(file: &str) {
    let (host, _dir) = start(file, json!({})).await;
    assert!(matches!(host.registry().holder::<SessionStore>(), Some(Registrant::Plugin(_))));
}

async fn a_vault_takes_the_secrets(file: &str) {
    let (host, dir) = start(file, json!({ "file": "kept/secrets.json" })).await;
    let vault = host.registry().port::<Vault>().unwrap();
    vault.set.unbounded(("host:key".into(), "value".into())).await.unwrap();
    assert_eq!(
        std::fs::read_to_string(dir.path().join("kept/secrets.json")).unwrap(),
        r#"{"host:key":"value"}"#
    );
}

async fn a_store_takes_the_policies(file: &str) {
    let (host, dir) = start(file, json!({ "file": "kept/policies.json" })).await;
    let policies = host.registry().port::<Policies>().unwrap();
    let row = object(json!({ "id": "a", "scope": "all", "kind": "agent", "effect": "allow" }));
    policies.put.unbounded((row.clone(),)).await.unwrap();
    let kept: Value =
        serde_json::from_str(&std::fs::read_to_string(dir.path().join("kept/policies.json")).unwrap())
            .unwrap();
    assert_eq!(kept, json!([row]));
    host.log.wait_for("plugin policies: policy a is kept").await;
}

/// A repository with one commit.
fn repository(dir: &Path) -> PathBuf {
    let root = dir.canonicalize().unwrap().join("inn");
    std::fs::create_dir(&root).unwrap();
    std::fs::write(root.join("menu"), "Stew\n").unwrap();
    let git = |args: &[&str]| {
        let mut command = std::process::Command::new("git");
        command.arg("-C").arg(&root).args(["-c", "user.name=A", "-c", "user.email=a@example.com"]).args(args);
        let output = command.env("GIT_CONFIG_GLOBAL", "/dev/null").output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    git(&["init", "-q", "-b", "main"]);
    // The plugin reads the user's configuration, too.
    git(&["config", "core.autocrlf", "false"]);
    git(&["add", "."]);
    git(&["commit", "-q", "-m", "Open"]);
    root
}

/// A client in a session of its own, in this directory.
async fn at(host: &MemoryHost, directory: &Path, config: Value) -> RawClient {
    let mut client = host.raw();
    client.initialize("c").await;
    let directories = [format!("file://{}", directory.display())];
    let session = json!({ "channel": "echo:/1", "workingDirectories": directories, "config": config });
    client.request("createSession", session).await.unwrap();
    client
}

/// The first action of a type that comes, with what it says.
async fn told(client: &mut RawClient, name: &str) -> Value {
    client.actions_until(name).await.pop().unwrap()["action"].clone()
}

async fn what_is_not_committed_is_shown_and_put_back(file: &str) {
    let (host, dir) = start(file, json!({})).await;
    let root = repository(dir.path());
    std::fs::write(root.join("menu"), "Stew\nAle\n").unwrap();
    let mut client = at(&host, &root, json!({})).await;
    let channel = "echo:/1/changeset/uncommitted";
    let seen = client.request("subscribe", json!({ "channel": channel })).await.unwrap();
    let files = &seen["snapshot"]["state"]["files"];
    assert_eq!(
        (&files[0]["id"], &files[0]["edit"]["diff"]),
        (&json!("menu"), &json!({ "added": 1, "removed": 0 }))
    );
    let target = json!({ "kind": "resource", "resource": files[0]["edit"]["after"]["uri"] });
    let revert = json!({ "channel": channel, "operationId": "revert", "target": target });
    client.request("invokeChangesetOperation", revert).await.unwrap();
    assert_eq!(std::fs::read_to_string(root.join("menu")).unwrap(), "Stew\n");
    // Whoever watches may see it on its way.
    while told(&mut client, "changeset/contentChanged").await["files"] != json!([]) {}
}

async fn a_note_left_there_is_shown(file: &str) {
    let (host, dir) = start(file, json!({})).await;
    let root = dir.path().canonicalize().unwrap();
    std::fs::write(root.join("NOTE.md"), "The stove is hot.\nMind it.").unwrap();
    let mut client = at(&host, &root, json!({})).await;
    let seen = client.request("subscribe", json!({ "channel": "echo:/1" })).await.unwrap();
    let mut meta = seen["snapshot"]["state"]["_meta"].clone();
    if meta["note"].is_null() {
        meta = told(&mut client, "session/metaChanged").await["_meta"].clone();
    }
    assert_eq!(meta["note"]["text"], "The stove is hot.");
}

async fn a_session_works_on_a_branch_of_its_own(file: &str) {
    let (host, dir) = start(file, json!({})).await;
    let root = repository(dir.path());
    let mut client =
        at(&host, &root, json!({ "isolation": "worktree", "worktreeBranchPrefix": "work/" })).await;
    let tree = root.with_file_name("inn.worktrees").join("1");
    assert_eq!(std::fs::read_to_string(tree.join("menu")).unwrap(), "Stew\n");
    let head = std::fs::read_to_string(root.join(".git/worktrees/1/HEAD")).unwrap();
    assert_eq!(head.trim(), "ref: refs/heads/work/1");
    client.request("disposeSession", json!({ "channel": "echo:/1" })).await.unwrap();
    assert!(!tree.exists(), "it goes with its session");
    assert!(root.join(".git/refs/heads/work/1").exists(), "its branch stays");
}

async fn a_pull_request_is_found_and_opened(file: &str) {
    let dir = tempfile::tempdir().unwrap();
    let host = with(file, dir.path(), json!({ "repository": "inn/stable" })).start().await;
    let mut client = at(&host, dir.path(), json!({})).await;
    let root = client.request("subscribe", json!({ "channel": "ahp-root://" })).await.unwrap();
    let offered = root["snapshot"]["state"]["agents"][0]["protectedResources"][0].clone();
    assert_eq!(
        (&offered["resource"], &offered["required"]),
        (&json!("https://api.github.com/repos"), &json!(false))
    );
    // This host has no way to the network: whoever asks is told so, and the session goes on.
    let create = json!({ "channel": "echo:/1", "title": "Oats" });
    assert!(client.request("x-ostler/pull-request/create", create).await.is_err());
    client.request("subscribe", json!({ "channel": "echo:/1" })).await.unwrap();
}

async fn turns_are_counted_and_told(file: &str) {
    let (host, _dir) = start(file, json!({ "seconds": 0.01 })).await;
    assert_eq!(Talk::with(&host, "echo").await.say("one").await, "one");
    let mut client = host.raw();
    assert_eq!(client.initialize("c").await["telemetry"], json!({ "metrics": "ahp-otlp://metrics" }));
    client.request("subscribe", json!({ "channel": "ahp-otlp://metrics" })).await.unwrap();
    loop {
        let frame = client.next_frame().await.unwrap();
        let metric = &frame["params"]["payload"]["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0];
        if metric["sum"]["dataPoints"][0]["asInt"] == "1" {
            break;
        }
    }
    let network = client.request("x-ostler/diagnostics/network", json!({})).await.unwrap();
    assert!(network["hostname"].is_string(), "{network}");
}

async fn one_folder_is_read_and_nothing_beside_it(file: &str) {
    let dir = tempfile::tempdir().unwrap();
    let inn = dir.path().canonicalize().unwrap();
    std::fs::create_dir_all(inn.join("book/deep")).unwrap();
    std::fs::write(inn.join("book/deep/welcome.md"), "# Welcome").unwrap();
    std::fs::write(inn.join("key"), "K").unwrap();
    std::os::unix::fs::symlink("../key", inn.join("book/link")).unwrap();
    let host = with(file, &inn, json!({ "folder": "book" })).start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    let uri = |path: &str| format!("file://{}/{path}", inn.display());
    let read = client.request("resourceRead", json!({ "uri": uri("book/deep/welcome.md") })).await.unwrap();
    assert_eq!(read["data"], "# Welcome");
    let listed = client.request("resourceList", json!({ "uri": uri("book") })).await.unwrap();
    assert_eq!(listed["entries"][0], json!({ "name": "deep", "type": "directory" }));
    for (path, code) in
        [("key", -32009), ("book/../key", -32009), ("book/link", -32009), ("book/none", -32008)]
    {
        let refused = client.request("resourceRead", json!({ "uri": uri(path) })).await.unwrap_err();
        assert_eq!(refused["code"], code, "{path}");
    }
    let session = json!({ "channel": "echo:/1", "workingDirectories": [uri("book")] });
    client.request("createSession", session).await.unwrap();
    let typed = json!({ "channel": "echo:/1", "kind": "userMessage", "text": "@WEL", "offset": 4 });
    let told = client.request("completions", typed).await.unwrap();
    assert_eq!(told["items"][0]["insertText"], "@deep/welcome.md");
}

async fn a_store_takes_what_work_cost(file: &str) {
    let (host, dir) = start(file, json!({ "file": "kept/usage.jsonl" })).await;
    let entry = json!({ "kind": "computer", "owner": "user:ada", "seconds": 2.5, "computer": "box" });
    host.plugin("usage").record_usage(serde_json::from_value(entry).unwrap()).await.unwrap();
    let usage = host.registry().port::<Usage>().unwrap();
    assert_eq!(usage.pools.unbounded(()).await.unwrap(), ["user:ada"]);
    let kept = std::fs::read_to_string(dir.path().join("kept/usage.jsonl")).unwrap();
    let kept: Value = serde_json::from_str(&kept).unwrap();
    assert_eq!((&kept["seconds"], &kept["pools"]), (&json!(2.5), &json!(["user:ada"])));
}

async fn a_store_takes_the_records(file: &str) {
    let (host, _dir) = start(file, json!({})).await;
    assert!(matches!(host.registry().holder::<RecordStore>(), Some(Registrant::Plugin(_))));
    let notes = host.plugin("records").records("notes".into(), None).unwrap();
    notes.put.call((object(json!({ "id": "a" })),)).await.unwrap();
    host.log.wait_for("plugin records: notes/a is written").await;
}

async fn a_route_asks_for_its_token(file: &str) {
    let dir = tempfile::tempdir().unwrap();
    let vault = Arc::new(FileVault::new(&dir.path().join("own"), ostler_ports::Report::quiet()).unwrap())
        .into_point();
    vault.set.unbounded(("host:status".into(), "right".into())).await.unwrap();
    let host =
        with(file, dir.path(), json!({ "token": { "$secret": "host:status" } })).vault(vault).start().await;
    let handler = host.registry().all::<Route>()[0].handler.clone();
    let ask = async |method: &str, path: &str, token: &str| {
        let request =
            http::Request::builder().method(method).uri(path).header(header::HOST, "127.0.0.1:9187");
        let request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        handler.unbounded((request.body(Body::from("all well")).unwrap(),)).await.unwrap()
    };
    assert_eq!(ask("GET", "/plugins/route/status", "wrong").await.status(), StatusCode::UNAUTHORIZED);
    let status = ask("GET", "/plugins/route/status", "right").await;
    assert_eq!(status.status(), StatusCode::OK);
    let body: Value = serde_json::from_slice(&status.into_body().read(1024).await.unwrap()).unwrap();
    assert_eq!(body["host"], "localhost");
    assert_eq!(ask("POST", "/plugins/route/say", "right").await.status(), StatusCode::NO_CONTENT);
    host.log.wait_for("plugin route: all well").await;
    assert_eq!(ask("GET", "/plugins/route/else", "right").await.status(), StatusCode::NOT_FOUND);
}

async fn a_file_that_changes_wakes(file: &str) {
    let inbox = tempfile::tempdir().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let automations = dir.path().join("automations");
    std::fs::create_dir_all(&automations).unwrap();
    let text = "---\ntitle: Sort\nenabled: true\nsession: { provider: echo }\ntriggers:\n  - id: t\n    kind: event\n    type: folder-watch\n    \
                title: A folder\n    events: [{ id: changed }]\n    config: { folder: inbox }\n---\nSort {{event.file}}.\n";
    std::fs::write(automations.join("sort.md"), text).unwrap();
    let db = ostler_ports::StateDb::open(dir.path()).unwrap();
    let store = ostler_ports::FileAutomations::open(
        dir.path(),
        db,
        ostler_ports::Report::new(|line| panic!("{line}")),
    )
    .await
    .unwrap();
    let options = json!({ "folders": { "inbox": inbox.path() } });
    let host = with(file, dir.path(), options).automations(Arc::new(store).into_point()).start().await;
    assert_eq!(host.registry().all::<TriggerType>()[0].r#type.to_string(), "folder-watch");
    let listening =
        Event::Listening { runtime: "test".into(), host: "127.0.0.1".into(), port: 1, guarded: false };
    host.host.core.events.raise_and_wait(listening).await;
    let mut client = host.raw();
    client.initialize("c").await;
    client.request("subscribe", json!({ "channel": "ahp-automations://" })).await.unwrap();
    std::fs::write(inbox.path().join("letter.txt"), "Dear host").unwrap();
    let set = client.actions_until("automation/set").await.pop().unwrap();
    let run = set["action"]["automation"]["runs"][0].clone();
    assert_eq!(run["origin"]["event"]["file"], "letter.txt", "{run}");
    host.host.close().await;
}

async fn what_was_said_is_written_in_the_end(file: &str) {
    let (host, dir) = start(file, json!({})).await;
    let mut talk = Talk::with(&host, "echo").await;
    talk.say("one").await;
    talk.say("two").await;
    // Listeners are told in order, so the last message was heard once a later event was.
    host.host.core.events.raise_and_wait(Event::Stopping {}).await;
    host.host.close().await;
    let said = std::fs::read_to_string(dir.path().join("said.jsonl")).unwrap();
    assert_eq!(
        said,
        "{\"session\":\"echo:/talk\",\"text\":\"one\"}\n{\"session\":\"echo:/talk\",\"text\":\"two\"}\n"
    );
}

async fn turns_are_timed(file: &str) {
    let (host, _dir) = start(file, json!({})).await;
    Talk::with(&host, "echo").await.say("one").await;
    host.log.wait_for("plugin listener: echo:/talk: turn t1 ended complete after ").await;
    let listening =
        Event::Listening { runtime: "test".into(), host: "127.0.0.1".into(), port: 9187, guarded: false };
    host.host.core.events.raise_and_wait(listening).await;
    assert_eq!(host.host.end_announcements(), ["turns are timed, port 9187"]);
}

async fn a_chat_is_told_of_the_others(file: &str) {
    let (host, _dir) = start(file, json!({})).await;
    let mut talk = Talk::with(&host, "echo").await;
    talk.say("Feed the horses").await;
    let open = json!({ "channel": talk.session, "chat": "ahp-chat:/2" });
    talk.client.request("createChat", open).await.unwrap();
    talk.client.request("subscribe", json!({ "channel": "ahp-chat:/2" })).await.unwrap();
    talk.chat = "ahp-chat:/2".into();
    assert_eq!(talk.say("/heard").await, "Beside this chat there are:\n- Feed the horses");
}

async fn what_cannot_be_used_is_reported(file: &str) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("snippets.yaml"), "greet: Say hello to {{name}}.\nbad: [1, 2]\n").unwrap();
    let host = with(file, dir.path(), json!({})).start().await;
    let [problem] = &host.problems[..] else { panic!("{:?}", host.problems) };
    assert!(problem.contains("snippet bad must be text"), "{problem}");
    assert_eq!(
        Talk::with(&host, "echo").await.tool("snippet_greet", json!({ "name": "Ada" })).await,
        "Say hello to Ada."
    );
    let empty = tempfile::tempdir().unwrap();
    let host = with(file, empty.path(), json!({})).start().await;
    assert!(host.problems[0].contains("snippets.yaml could not be read"), "{:?}", host.problems);
}

async fn a_push_is_summed_up(file: &str) {
    let (host, _dir) = start(file, json!({ "most": 1 })).await;
    let push = json!({ "ref": "refs/heads/main", "repository": "inn/stable", "commits": [
        { "id": "0123456789", "message": "Feed the horses\n\nTwice." }, { "id": "9876543210", "message": "Sweep" } ] });
    let said = Talk::with(&host, "echo").await.tool("push_notes", push).await;
    assert_eq!(said, "2 new on main of inn/stable:\n- Feed the horses (0123456)\nand 1 more");
}
