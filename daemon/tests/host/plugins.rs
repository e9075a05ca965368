//! Plugins in JavaScript that go wrong, in the daemon itself: each costs itself, with a line that names it.

use std::io::BufRead;

use crate::support::{Client, Folder, wait_for};
use serde_json::json;

/// A route that shows that a plugin is there, and tools that go wrong.
const LATER: &str = "\
export function apply(host) {
  const tool = (name, run) => host.registerTool({ definition: { name }, run });
  tool('spin', () => { for (;;); });
  tool('hoard', () => { const all = []; for (;;) all.push(new Uint8Array(1 << 20)); });
  tool('forget', () => { Promise.reject(new RangeError('nobody waits')); return 'forgotten'; });
  tool('exit', () => process.exit(1));
  tool('fine', () => 'fine');
  host.registerRoute(() => new Response('served'));
}
";

/// Has the echo backend call a tool; answers what it said.
async fn tool(client: &mut Client, chat: &str, turn: &str, name: &str) -> String {
    let message = json!({ "text": format!("/tool {name} {{}}") });
    client.dispatch(chat, 1, json!({ "type": "chat/turnStarted", "turnId": turn, "message": message })).await;
    let actions = client.actions_until("chat/turnComplete").await;
    let words = actions.iter().filter(|seen| seen["action"]["type"] == "chat/delta");
    words.map(|seen| seen["action"]["content"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_plugin_that_goes_wrong_costs_itself_alone() {
    let names = ["import", "apply", "spins", "spins-importing", "hoards", "default-only", "later"];
    let plugins: Vec<_> = names.iter().map(|name| json!({ "name": format!("./{name}.mjs") })).collect();
    let plugins: Vec<_> = [json!({ "name": "@ostler/echo" })].into_iter().chain(plugins).collect();
    let limits = json!({ "busyLimitMs": 300, "memoryLimitMb": 32 });
    let folder = Folder::new(json!({ "plugins": plugins, "javascript": limits }));
    folder.write(
        "import.mjs",
        "const words = 'torn apart';\nthrow new Error(words);\nexport function apply() {}\n",
    );
    folder.write("apply.mjs", "export function apply() {\n  throw new TypeError('not today');\n}\n");
    folder.write("spins.mjs", "export function apply(host) {\n  for (;;);\n}\n");
    folder.write("spins-importing.mjs", "for (;;);\nexport function apply() {}\n");
    folder.write(
        "hoards.mjs",
        "export function apply() { const all = []; for (;;) all.push(new Array(1000).fill({})); }\n",
    );
    folder.write("default-only.mjs", "export default function apply() {}\n");
    folder.write("later.mjs", LATER);
    let mut daemon = folder.start();

    let mut skipped: Vec<String> = (0..6)
        .map(|_| {
            let mut line = String::new();
            daemon.out.read_line(&mut line).unwrap();
            line
        })
        .collect();
    for (name, why) in [
        ("./import.mjs", "torn apart"),
        ("plugin apply ", "not today"),
        ("plugin spins ", "plugin spins ran for more than 0.3 seconds without a pause and was interrupted"),
        ("./spins-importing.mjs", "ran for more than 0.3 seconds without a pause and was interrupted"),
        ("hoards", "plugin hoards needs more memory than its limit of 32 MB"),
        ("default-only", "does not export an apply function"),
    ] {
        let at = skipped
            .iter()
            .position(|line| line.starts_with("skipped: ") && line.contains(name) && line.contains(why));
        skipped.remove(at.unwrap_or_else(|| panic!("no line says that {name} {why}: {skipped:#?}")));
    }
    folder.wait_for_log("apply.mjs:2:");
    folder.wait_for_log("import.mjs:2:");

    let mut client = daemon.initialized("c").await;
    client.request("createSession", json!({ "channel": "echo:/s", "provider": "echo" })).await.unwrap();
    let chat = ostler_protocol::uri::default_chat("echo:/s");
    client.subscribe(&chat).await;
    let interrupted = "plugin later ran for more than 0.3 seconds without a pause and was interrupted";
    assert_eq!(tool(&mut client, &chat, "t1", "spin").await, interrupted);
    let hoarded = tool(&mut client, &chat, "t2", "hoard").await;
    assert!(hoarded.ends_with("plugin later needs more memory than its limit of 32 MB"), "{hoarded}");
    assert_eq!(tool(&mut client, &chat, "t3", "forget").await, "forgotten");
    let line = folder.wait_for_log("nobody waits");
    assert!(line.contains("plugin later: unhandled rejection: "), "{line}");
    folder.wait_for_log("later.mjs:5:");
    assert!(tool(&mut client, &chat, "t4", "exit").await.contains("does not end the daemon"));
    assert_eq!(tool(&mut client, &chat, "t5", "fine").await, "fine", "the plugin itself goes on");
    let get =
        format!("GET /plugins/later/ HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", daemon.address());
    assert!(daemon.exchange(get.as_bytes()).await.ends_with("served"));
    assert_eq!(daemon.stop(), Some(0));
}

/// Starts a shell with a child of its own, and says who they are.
const PARENT: &str = "\
import { spawn } from 'node:child_process';
export function apply(host) {
  const shell = spawn('sh', ['-c', 'sleep 997 & echo $!; wait']);
  shell.stdout.once('data', (data) => host.log(`runs ${shell.pid} ${String(data).trim()}.`));
  host.registerClose(() => host.log('closed'));
}
";

fn parent() -> (Folder, crate::support::Daemon, Vec<u32>) {
    let folder = Folder::new(json!({ "plugins": [{ "name": "@ostler/echo" }, { "name": "./parent.mjs" }] }));
    folder.write("parent.mjs", PARENT);
    let daemon = folder.start();
    let line = folder.wait_for_log("plugin parent: runs ");
    let (_, numbers) = line.split_once("runs ").unwrap();
    let numbers = numbers.trim_end_matches('.').split(' ').map(|number| number.parse().unwrap()).collect();
    (folder, daemon, numbers)
}

/// Whether a process is there and no corpse nobody has fetched yet.
fn runs(process: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{process}/stat")) else { return false };
    !stat.rsplit(')').next().unwrap().trim_start().starts_with('Z')
}

#[test]
fn children_of_a_plugin_end_with_the_daemon() {
    let (folder, daemon, children) = parent();
    assert!(children.len() == 2 && children.iter().copied().all(runs), "{children:?}");
    assert_eq!(daemon.stop(), Some(0));
    folder.wait_for_log("plugin parent: closed");
    for child in children {
        assert!(wait_for(|| (!runs(child)).then_some(())).is_some(), "{child} runs on");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_child_of_a_plugin_ends_with_a_daemon_that_is_killed() {
    let (_folder, daemon, children) = parent();
    daemon.kill();
    assert!(wait_for(|| (!runs(children[0])).then_some(())).is_some(), "{children:?} run on");
    // What the child started itself is nobody's here.
    crate::support::tell(children[1], crate::support::Signal::KILL);
}

#[tokio::test]
async fn tools_that_need_the_operators_leave_follow_the_setting() {
    const ADVANCED: &str = "export function apply(host) {
  host.registerTool({ definition: { name: 'advanced' }, advancedPermission: true, run: () => 'let through' });
}
";
    let plugins = json!([{ "name": "@ostler/echo" }, { "name": "./advanced.mjs" }]);
    let missing = "there is no tool advanced";
    for (setting, flags, said) in [
        (json!(null), &[][..], missing),
        (json!(false), &[], missing),
        (json!(true), &[], "let through"),
        (json!(null), &["--advanced-tools"], "let through"),
    ] {
        let mut config = json!({ "plugins": plugins });
        if !setting.is_null() {
            config["advancedTools"] = setting.clone();
        }
        let folder = Folder::new(config);
        folder.write("advanced.mjs", ADVANCED);
        let daemon = folder.start_with(flags);
        let mut client = daemon.initialized("c").await;
        client.subscribe("ahp-root://").await;
        let mut next = 0;
        let mut call = async |client: &mut Client, session: &str| {
            let chat = ostler_protocol::uri::default_chat(session);
            client.subscribe(&chat).await;
            next += 1;
            tool(client, &chat, &format!("t{next}"), "advanced").await
        };
        let create = json!({ "channel": "echo:/before", "provider": "echo" });
        client.request("createSession", create).await.unwrap();
        assert_eq!(call(&mut client, "echo:/before").await, said, "{setting} {flags:?}");
        for (at, leave, said) in [(0, true, "let through"), (1, false, missing)] {
            let action = json!({ "type": "root/configChanged", "config": { "advancedTools": leave } });
            client.dispatch("ahp-root://", 10 + at, action).await;
            client.actions_until("root/configChanged").await;
            let session = format!("echo:/after-{at}");
            client.request("createSession", json!({ "channel": session, "provider": "echo" })).await.unwrap();
            assert_eq!(call(&mut client, &session).await, said, "a session made after {leave}");
        }
    }
}
