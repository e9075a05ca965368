//! What a run is made of: the plugins it names, the flags it is given, what they become.

use crate::support::{Client, Daemon, Folder, runs_of};
use serde_json::{Value, json};

const YARD: &str = r"
    import { readFileSync } from 'node:fs';
    export const name = 'yard';
    export function apply(host, options) {
        host.log('applied once');
        host.registerTool({
            definition: { name: 'stamp', description: 'Stamps', inputSchema: { type: 'object' } },
            run: async () => ({ success: true, content: [{ type: 'text', text: 'stamped' }] }),
        });
        host.registerVault({
            get: async () => undefined, set: async () => {}, delete: async () => false, list: async () => [],
        }, 'replace');
        host.registerSessionConfig('stall', { type: 'integer', title: 'Stall', default: 7 });
        host.registerRoute(async (request) => {
            const { file } = await request.json();
            const text = file && readFileSync(file, 'utf8');
            return Response.json({ pid: process.pid, version: host.version, options, text });
        });
        return { registerTool: 'ignored' };
    }
";

fn folder(config: Value) -> Folder {
    let folder = Folder::new(config);
    folder.write("yard.js", YARD);
    folder
}

async fn backends(daemon: &Daemon) -> Vec<String> {
    let mut client = daemon.initialized("who").await;
    let state = client.subscribe("ahp-root://").await;
    state["agents"]
        .as_array()
        .unwrap()
        .iter()
        .map(|agent| agent["provider"].as_str().unwrap().to_owned())
        .collect()
}

async fn said(client: &mut Client, session: &str, prompt: &str) -> String {
    client.request("createSession", json!({ "channel": session, "provider": "echo" })).await.unwrap();
    let chat = ostler_protocol::uri::default_chat(session);
    client.subscribe(&chat).await;
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t1", "message": { "text": prompt } });
    client.dispatch(&chat, 1, turn).await;
    json!(client.actions_until("chat/turnComplete").await).to_string()
}

#[tokio::test]
async fn installing_a_plugin_and_naming_it_adds_what_it_registers() {
    let folder = folder(json!({}));
    for spec in ["@ostler/echo", "./yard.js"] {
        assert_eq!(folder.run(&["plugin", "install", spec]).code, Some(0));
    }
    let daemon = folder.start();
    assert_eq!(backends(&daemon).await, ["echo"]);
    assert!(daemon.block.contains(&"vault from a plugin".to_owned()), "{:?}", daemon.block);
    let mut client = daemon.initialized("one").await;
    let session = "echo:/7e0c6a1e-1111-4222-8333-444455556666";
    let seen = said(&mut client, session, "/tool stamp {}").await;
    assert!(seen.contains("stamped"), "{seen}");
    let asked =
        client.request("resolveSessionConfig", json!({ "channel": "ahp-root://", "provider": "echo" })).await;
    assert_eq!(asked.unwrap()["values"]["stall"], 7);
    // It runs in this very process, once, and what its `apply` answers is nothing.
    let elsewhere = Folder::new(json!({}));
    elsewhere.write("note", "Mind the step.");
    let file = json!({ "file": elsewhere.path().join("note") });
    let (status, body) = daemon.post("/plugins/yard/", None, &file.to_string()).await;
    let seen: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, seen["pid"].as_u64()), (200, Some(u64::from(daemon.child.id()))), "{seen}");
    assert_eq!(seen["text"], "Mind the step.", "nothing keeps it in a folder");
    assert_eq!(seen["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(folder.read("log").matches("plugin yard: applied once").count(), 1);
    assert!(!daemon.block.iter().any(|line| line.contains("applied once")), "the log is stderr");
}

#[tokio::test]
async fn a_run_may_name_its_own_plugins_or_none() {
    let folder = folder(json!({ "plugins": [{ "name": "./yard.js" }], "host": "127.0.0.2" }));
    let daemon = folder.start_with(&["--plugin", "@ostler/echo"]);
    assert!(daemon.url.starts_with("ws://127.0.0.2:"), "{}", daemon.url);
    assert!(daemon.block.contains(&"plugins echo".to_owned()), "{:?}", daemon.block);
    assert_eq!(backends(&daemon).await, ["echo"]);
    assert!(!folder.read("log").contains("yard"), "what is not named is not even imported");
    assert_eq!(daemon.stop(), Some(0));
    let daemon = folder.start_with(&[
        "--plugin",
        "@ostler/echo",
        "--plugin",
        "./yard.js",
        "--plugin-option",
        "yard.size=1",
    ]);
    assert!(daemon.block.contains(&"plugins echo, yard".to_owned()), "{:?}", daemon.block);
    let config: Value = serde_json::from_str(&folder.read("config.json")).unwrap();
    assert_eq!(config["plugins"], json!([{ "name": "./yard.js" }]), "the file is as it was");
    assert_eq!(daemon.stop(), Some(0));
    let none = folder.run(&["--no-plugins"]);
    assert_eq!(none.code, Some(1), "{none:?}");
    assert!(none.err.contains("No backend is loaded"), "it brings none of its own: {none:?}");
}

#[test]
fn one_connection_on_stdin_and_stdout() {
    let folder = folder(json!({ "plugins": [{ "name": "@ostler/echo" }] }));
    let mut daemon = folder.over_stdio();
    let answer = daemon.initialize("0.9.0");
    assert_eq!(answer["serverInfo"]["name"], "ostler", "{answer}");
    let ended = daemon.end();
    assert_eq!(ended.code, Some(0));
    let said = ended.err;
    assert!(said.lines().any(|line| line.starts_with("ostler over stdio (")), "{said}");
    // It is nobody else's daemon.
    assert!(!folder.state_file("daemon.json").exists());
    assert_eq!(folder.run(&["status"]).code, Some(1));
}

#[tokio::test]
async fn automations_nobody_owns_run_unless_a_flag_says_otherwise() {
    let folder = Folder::with_webhook("hello");
    let daemon = folder.start_with(&["--unowned-automations", "none"]);
    assert_eq!(daemon.post("/plugins/webhook/in", Some("right"), "{}").await.0, 202);
    let mut client = daemon.initialized("one").await;
    let catalogue = client.subscribe("ahp-automations://").await;
    assert_eq!(runs_of(&catalogue, "note"), Vec::<Value>::new());
    assert_eq!(daemon.stop(), Some(0));
    for flags in [&["--unowned-automations", "every"][..], &[]] {
        let folder = Folder::with_webhook("hello");
        let daemon = folder.start_with(flags);
        assert_eq!(daemon.post("/plugins/webhook/in", Some("right"), "{}").await.0, 202);
        let mut client = daemon.initialized("two").await;
        assert_eq!(client.ended_runs(1).await.len(), 1);
    }
    assert_eq!(folder.run(&["--unowned-automations", "some"]).code, Some(2));
}

#[tokio::test]
async fn files_of_the_directories_served_are_read_and_no_others() {
    let served = tempfile::tempdir().unwrap();
    let served = served.path().canonicalize().unwrap();
    std::fs::write(served.join("menu"), "Stew").unwrap();
    let folder = Folder::new(json!({ "paths": [served], "plugins": [{ "name": "@ostler/echo" }] }));
    folder.write("vault.json", r#"{ "host:key": "s3cret" }"#);
    let daemon = folder.start();
    let mut client = daemon.initialized("c").await;
    let mut read = async |path: &std::path::Path| {
        let uri = format!("file://{}", path.display());
        client.request("resourceRead", json!({ "uri": uri })).await
    };
    assert_eq!(read(&served.join("menu")).await.unwrap()["data"], "Stew");
    let refused = read(&folder.path().join("vault.json")).await.unwrap_err();
    assert_eq!(refused["code"], -32009, "{refused}");
    assert!(
        refused["message"].as_str().unwrap().ends_with(
            "vault.json is outside the directories this host serves; to serve it, add its directory to paths in the \
             configuration, or start the host with --path <directory>"
        ),
        "{refused}"
    );
}

#[tokio::test]
async fn a_child_hears_the_signals_its_daemon_ignores() {
    let folder = folder(json!({ "plugins": [{ "name": "@ostler/echo" }, { "name": "./deaf.js" }] }));
    folder.write(
        "deaf.js",
        r"
        import { spawnSync } from 'node:child_process';
        export function apply(host) {
            host.registerRoute(() => Response.json(spawnSync('sh', ['-c', 'kill -INT $$; exit 3'])));
        }",
    );
    // As a shell without job control starts what it leaves in the background.
    let ours = folder.command(&[]);
    let mut deaf = std::process::Command::new("sh");
    deaf.args(["-c", r#"trap '' INT; exec "$0" "$@""#]).arg(ours.get_program()).args(ours.get_args());
    deaf.envs(ours.get_envs().filter_map(|(name, value)| Some((name, value?)))).current_dir(folder.path());
    let daemon = folder.started(deaf);
    let (status, body) = daemon.post("/plugins/deaf/", None, "").await;
    let ended: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &ended["signal"]), (200, &json!("SIGINT")), "{ended}");
}
