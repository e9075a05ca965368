//! Working on a plugin: the daemon and the check take up what its author changes.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Daemon, Folder, LIMIT, Signal, tell, wait_for};
use serde_json::json;

/// A plugin whose route answers a word it imports.
const ROUTE: &str = "\
import { word } from './lib/word.ts';
export function apply(host) {
  host.registerRoute(() => new Response(word));
}
";

fn word(text: &str) -> String {
    format!("export const word: string = '{text}';\n")
}

fn folder() -> Folder {
    let folder = Folder::new(json!({ "plugins": [{ "name": "@ostler/echo" }, { "name": "./route.ts" }] }));
    folder.write("route.ts", ROUTE);
    folder.write("lib/word.ts", &word("one"));
    folder
}

/// Waits until the route answers this.
async fn answers(address: &str, wanted: &str) {
    let get = format!("GET /plugins/route/ HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let end = Instant::now() + LIMIT;
    loop {
        let answer = crate::support::exchange(address, get.as_bytes()).await;
        if answer.ends_with(&format!("\r\n\r\n{wanted}")) {
            return;
        }
        assert!(Instant::now() < end, "{wanted:?} is never answered: {answer:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The lines of the next announcement, up to its token's.
fn announced(daemon: &mut Daemon) -> Vec<String> {
    let mut block = Vec::new();
    loop {
        let mut line = String::new();
        assert!(daemon.out.read_line(&mut line).unwrap() > 0, "it ended: {block:?}");
        let last = line.contains("connection token");
        block.push(line.trim_end().to_owned());
        if last {
            return block;
        }
    }
}

#[tokio::test]
async fn a_daemon_starts_again_in_place_when_a_file_of_a_plugin_changes() {
    let folder = folder();
    let mut daemon = folder.start_with(&["--watch-plugins"]);
    let address = daemon.address().to_owned();
    answers(&address, "one").await;
    let mut client = daemon.initialized("c").await;
    client.request("createSession", json!({ "channel": "echo:/s", "provider": "echo" })).await.unwrap();
    let chat = ostler_protocol::uri::default_chat("echo:/s");
    client.subscribe(&chat).await;
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "well met" } });
    client.dispatch(&chat, 1, turn).await;
    client.actions_until("chat/turnComplete").await;

    // A file that no plugin is made of changes nothing.
    folder.write("other.ts", "export {};\n");
    // A file that is imported does.
    folder.write("lib/word.ts", &word("two"));
    while client.next_frame().await.is_some() {}
    assert_eq!(
        announced(&mut daemon)[0],
        daemon.block[0],
        "the same port, though any free one was asked for"
    );
    answers(&address, "two").await;
    folder.wait_for_log("restart: stopping (");
    let log = folder.read("log");
    let line = log.lines().find(|line| line.contains("restart: stopping (")).unwrap();
    assert!(line.ends_with("/lib/word.ts changed)"), "{line}");

    // Clients find what they left.
    let mut again = daemon.initialized("c").await;
    let turns = again.subscribe(&chat).await["turns"].clone();
    assert_eq!(turns[0]["message"]["text"], "well met", "{turns}");

    // And again: the process is the same one, and so is what it watches.
    folder.write("route.ts", &ROUTE.replace("Response(word)", "Response('three')"));
    assert_eq!(announced(&mut daemon)[0], daemon.block[0]);
    answers(&address, "three").await;
    assert!(daemon.child.try_wait().unwrap().is_none());
    assert_eq!(daemon.stop(), Some(0));
}

#[tokio::test]
async fn a_turn_that_runs_is_waited_for_and_a_stop_is_heard_meanwhile() {
    let folder = folder();
    let mut daemon = folder.start_with(&["--watch-plugins"]);
    let mut client = daemon.initialized("c").await;
    client.request("createSession", json!({ "channel": "echo:/s", "provider": "echo" })).await.unwrap();
    let chat = ostler_protocol::uri::default_chat("echo:/s");
    client.subscribe(&chat).await;
    let begin = |turn: &str, text: &str| json!({ "type": "chat/turnStarted", "turnId": turn, "message": { "text": text } });
    client.dispatch(&chat, 1, begin("t1", "/slow 2s still said")).await;
    client.actions_until("chat/turnStarted").await;
    folder.write("lib/word.ts", &word("two"));
    // It ends as it would have, and only then the daemon starts again.
    client.actions_until("chat/turnComplete").await;
    folder.wait_for_log("a plugin file changed; waiting for the turn in echo:/s");
    assert_eq!(announced(&mut daemon)[0], daemon.block[0]);
    let mut client = daemon.initialized("c").await;
    let turns = client.subscribe(&chat).await["turns"].clone();
    assert_eq!(turns[0]["state"], "complete", "{turns}");

    client.dispatch(&chat, 2, begin("t2", "/hang")).await;
    client.actions_until("chat/turnStarted").await;
    folder.write("lib/word.ts", &word("three"));
    let waits = || (folder.read("log").matches("waiting for the turn in").count() == 2).then_some(());
    wait_for(waits).expect("it waits");
    assert_eq!(daemon.stop(), Some(0), "it ends instead of starting again");
}

#[tokio::test]
async fn a_plugin_that_is_broken_for_a_while_does_not_end_the_daemon() {
    const AGENT: &str = "\
export function apply(host) {
  host.registerRoute(() => new Response('up'));
  host.registerAgent({
    provider: 'mine', displayName: 'Mine', schema: () => ({ type: 'object', properties: {} }), defaults: () => ({}),
    create: () => ({ begin() {}, cancel() {}, close() {} }),
  });
}
";
    let folder = Folder::new(json!({ "plugins": [{ "name": "./route.mjs" }] }));
    folder.write("route.mjs", AGENT);
    let mut daemon = folder.start_with(&["--watch-plugins"]);
    let address = daemon.address().to_owned();
    answers(&address, "up").await;
    // The only backend goes: nothing could be served, but its author is still at it.
    folder.write("route.mjs", "export function apply( {\n");
    folder.wait_for_log("Waiting for a change of the configuration or of a plugin's files.");
    folder.write("route.mjs", &AGENT.replace("'up'", "'back'"));
    assert_eq!(announced(&mut daemon)[0], daemon.block[0]);
    answers(&address, "back").await;
    assert_eq!(daemon.stop(), Some(0));
}

#[tokio::test]
async fn a_daemon_that_watches_and_has_no_backend_follows_its_configuration() {
    let route = |says: &str| {
        format!("export const apply = (host) => {{ host.registerRoute(() => new Response('{says}')); }}")
    };
    let folder = Folder::new(json!({ "plugins": [{ "name": "@ostler/echo" }, { "name": "./route.mjs" }] }));
    folder.write("route.mjs", &route("up"));
    let mut daemon = folder.start_with(&["--watch-plugins"]);
    let address = daemon.address().to_owned();
    answers(&address, "up").await;
    let config = folder.read("config.json");
    let mut disabled: serde_json::Value = serde_json::from_str(&config).unwrap();
    disabled["plugins"][0]["enabled"] = false.into();
    folder.write("config.json", &disabled.to_string());
    folder.write("route.mjs", &route("back"));
    folder.wait_for_log("Waiting for a change of the configuration");
    folder.write("config.json", &config);
    assert_eq!(announced(&mut daemon)[0], daemon.block[0]);
    answers(&address, "back").await;
    assert_eq!(daemon.stop(), Some(0));
}

#[tokio::test]
async fn a_detached_daemon_that_watches_is_restarted_and_stopped_like_any_other() {
    let folder = folder();
    let started = folder.run(&["start", "--watch-plugins", "--json"]);
    assert_eq!(started.code, Some(0), "{started:?}");
    let status = || -> serde_json::Value {
        serde_json::from_str(&folder.run(&["status", "--json"]).out).unwrap_or_default()
    };
    let first = status();
    let address = first["url"].as_str().unwrap().strip_prefix("ws://").unwrap().to_owned();
    answers(&address, "one").await;
    folder.write("lib/word.ts", &word("two"));
    let moved = wait_for(|| {
        Some(status()).filter(|now| now["startedAt"] != first["startedAt"] && now["url"].is_string())
    });
    let second = moved.expect("it starts again");
    assert_eq!((&second["url"], &second["pid"]), (&first["url"], &first["pid"]));
    answers(&address, "two").await;
    // Asked for by hand, it takes what it was asked for at first: any free port.
    let restarted = folder.run(&["restart"]);
    assert_eq!(restarted.code, Some(0), "{restarted:?}");
    assert_eq!(folder.run(&["stop"]).code, Some(0));
}

#[test]
fn what_does_not_go_with_watching_is_refused() {
    let folder = folder();
    for flag in ["--stdio", "--no-plugins"] {
        let refused = folder.run(&["--watch-plugins", flag]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.err.contains("cannot be used with"), "{refused:?}");
    }
}

/// `ostler plugin check --watch`, its lines one after the other.
struct Check {
    child: Child,
    out: BufReader<ChildStdout>,
    err: BufReader<ChildStderr>,
}

impl Check {
    fn start(folder: &Folder, spec: &str) -> Self {
        let mut command = folder.command(&["plugin", "check", spec, "--watch"]);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        Self { child, out: BufReader::new(out), err: BufReader::new(err) }
    }

    fn until(reader: &mut impl BufRead, what: &str) -> String {
        let mut seen = String::new();
        while !seen.lines().any(|line| line.starts_with(what)) {
            assert!(reader.read_line(&mut seen).unwrap() > 0, "{what:?} is not in {seen}");
        }
        seen
    }

    /// Waits until it has checked, and waits for changes.
    fn watches(&mut self) {
        Self::until(&mut self.err, "watching ");
    }
}

impl Drop for Check {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_check_that_watches_checks_again_after_each_change() {
    let folder = folder();
    let mut check = Check::start(&folder, "./route.ts");
    Check::until(&mut check.out, "registered: registerRoute");
    check.watches();
    folder.write("route.ts", &ROUTE.replace("'./lib/word.ts'", "'./lib/later.ts'"));
    let seen = Check::until(&mut check.out, "refused: ");
    assert!(seen.contains("Cannot find module '") && seen.contains("lib/later.ts' imported from"), "{seen}");
    check.watches();
    // What was missing is there.
    folder.write("lib/later.ts", &word("later"));
    Check::until(&mut check.out, "registered: registerRoute");
    check.watches();
    folder.write("lib/later.ts", "throw new Error('torn');\nexport const word = '';\n");
    let seen = Check::until(&mut check.out, "refused: ");
    assert!(seen.contains("torn"), "{seen}");
    check.watches();
    tell(check.child.id(), Signal::INT);
    let ended = wait_for(|| check.child.try_wait().unwrap()).expect("it ends when told to");
    assert_eq!(ended.code(), Some(1), "as the last check did");
}
