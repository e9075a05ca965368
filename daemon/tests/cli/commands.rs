//! The command line: a daemon in the background, its plugins and secrets, and what each command answers.

use std::io::Write;
use std::process::Stdio;

use crate::support::{Ended, Folder, ended, program, wait_for};
use serde_json::{Value, json};

/// A folder with the echo backend; a daemon started in it is ended with the test.
struct Inn(Folder);

impl Inn {
    fn new() -> Self {
        Self(Folder::new(json!({ "plugins": [{ "name": "@ostler/echo" }] })))
    }

    fn run(&self, line: &str) -> Ended {
        self.0.run(&line.split(' ').collect::<Vec<_>>())
    }

    /// The answer of a command that does what was asked.
    #[track_caller]
    fn ok(&self, line: &str) -> String {
        let ended = self.run(line);
        assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
        ended.out
    }

    #[track_caller]
    fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.ok(&format!("{line} --json"))).unwrap()
    }

    /// The command ends with this code and says this on stderr, and nothing on stdout.
    #[track_caller]
    fn refused(&self, line: &str, code: i32, says: &str) {
        let ended = self.run(line);
        assert_eq!(ended.code, Some(code), "{line}: {ended:?}");
        assert!(ended.err.contains(says), "{line}: {says:?} is not in {:?}", ended.err);
        assert_eq!(ended.out, "", "{line}");
    }

    fn config(&self) -> Value {
        serde_json::from_str(&self.0.read("config.json")).unwrap()
    }

    /// Runs a command with something on standard input.
    fn piped(&self, line: &str, input: &str) -> Ended {
        let mut command = self.0.command(&line.split(' ').collect::<Vec<_>>());
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        Ended {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Drop for Inn {
    fn drop(&mut self) {
        // Asked of the command, which finds the daemon wherever its state is.
        let status: Value = serde_json::from_str(&self.run("status --json").out).unwrap_or_default();
        if let Some(pid) = status["pid"].as_u64() {
            crate::support::tell(u32::try_from(pid).unwrap(), crate::support::Signal::KILL);
        }
    }
}

#[test]
fn a_large_log_is_rotated_while_the_daemon_runs() {
    let plugins = json!({ "plugins": [{ "name": "@ostler/echo" }, { "name": "./flood.js" }] });
    let inn = Inn(Folder::new(plugins));
    inn.0.write(
        "flood.js",
        "export const apply = (host) => {
          for (let n = 0; n < 12_000; n++) host.log(`${n} ${'x'.repeat(1000)}`);
          host.log('the flood is over');
        };",
    );
    inn.ok("start");
    let size = |file: &str| std::fs::metadata(inn.0.state_file(file)).map_or(0, |found| found.len());
    let is_over = || inn.ok("logs -n 100000").contains("the flood is over").then_some(());
    wait_for(is_over).expect("the last line is in the log");
    let (log, rotated) = (size("daemon.log"), size("daemon.log.1"));
    // 12 MB were written: the first 5 MiB were rotated away.
    let limit = 5 * 1024 * 1024 + 128 * 1024;
    assert!((1..limit).contains(&log) && (1..limit).contains(&rotated), "{log} {rotated}");
    assert_eq!(size("daemon.log.new"), 0);
    let lines = [inn.0.read_state("daemon.log.1"), inn.0.read_state("daemon.log")].concat();
    let numbers: Vec<u64> = lines
        .lines()
        .filter_map(|line| line.split_once("plugin flood: ")?.1.split(' ').next()?.parse().ok())
        .collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "no line is lost");
    assert_eq!(numbers.last(), Some(&11_999));
    // What comes later is in the new file, and the commands find it.
    inn.ok("stop");
    assert!(inn.0.read_state("daemon.log").contains(" stopping"));
}

#[test]
fn a_daemon_runs_in_the_background_until_it_is_stopped() {
    let inn = Inn::new();
    let none = inn.run("status");
    assert_eq!((none.code, none.out.as_str()), (Some(1), "None running.\n"));
    assert_eq!(inn.run("status --json").out, "{\"running\":false}\n");
    assert_eq!(inn.run("stop --json").out, "{\"stopped\":false}\n");
    assert_eq!(inn.run("stop").code, Some(1));
    assert_eq!(inn.run("restart").out, "None running.\n");

    let started = inn.json("start");
    let (url, pid) = (started["url"].as_str().unwrap(), started["pid"].as_u64().unwrap());
    assert!(url.starts_with("ws://127.0.0.1:"), "{started}");
    let served = std::fs::canonicalize(inn.0.path()).unwrap();
    assert_eq!(started["paths"], json!([served]));
    let running =
        format!("Could not start it: One is already running: {url} (pid {pid}); stop it with: ostler stop");
    inn.refused("start", 1, &running);
    // In the foreground neither: one folder has one daemon.
    inn.refused("--port 0", 1, &format!("One is already running: {url} (pid {pid})"));

    let status = inn.ok("status");
    let lines: Vec<&str> = status.lines().collect();
    assert!(lines[0].starts_with(&format!("ostler on {url} (pid {pid}), started 2")), "{status}");
    assert_eq!(lines[1], format!("serving {}", served.display()));
    assert_eq!(inn.ok("status --quiet"), format!("{url}\n"));
    let record: Value = serde_json::from_str(&inn.0.read_state("daemon.json")).unwrap();
    assert_eq!(inn.json("status")["startedAt"], record["startedAt"]);

    let restarted = inn.json("restart");
    assert_ne!(restarted["url"], started["url"], "any free port");
    assert_ne!(inn.json("status")["startedAt"], record["startedAt"]);
    assert!(inn.0.read_state("daemon.log").contains("restart: stopping (SIGHUP)"));

    let url = restarted["url"].as_str().unwrap();
    // What the configuration says by now is nothing to either.
    inn.0.write("config.json", "{");
    assert_eq!(inn.ok("status --quiet"), format!("{url}\n"));
    assert_eq!(inn.ok("stop"), format!("Stopped {url} (pid {pid}).\n"));
    assert_eq!(inn.run("status").code, Some(1));
    assert!(!inn.0.state_file("daemon.json").exists());
    assert!(inn.0.read_state("daemon.log").trim_end().ends_with("stopping"));
}

#[test]
fn start_says_what_was_skipped_and_why_it_did_not_come_up() {
    let inn = Inn(Folder::new(json!({
        "colour": "red",
        "plugins": [{ "name": "@ostler/echo" }, { "name": "./one.ts" }, { "name": "./gone.ts" }],
    })));
    inn.0.write("one.ts", "export function apply(host) { host.problem('one record\\nis broken'); }");
    let started = inn.run("start");
    assert_eq!(started.code, Some(0), "{started:?}");
    let lines: Vec<&str> = started.out.lines().collect();
    let skipped: Vec<&&str> = lines.iter().filter(|line| line.starts_with("skipped: ")).collect();
    assert_eq!(skipped.len(), 2, "{lines:?}");
    assert!(lines.iter().any(|line| line.ends_with("one record is broken")), "{lines:?}");
    assert!(lines[2].starts_with("ostler on ws://"), "skipped lines come first: {lines:?}");
    assert!(started.err.contains("unknown key colour; ignored"), "{}", started.err);
    let again = inn.ok("restart");
    assert_eq!(again.lines().filter(|line| line.starts_with("skipped: ")).count(), 2, "{again}");
    inn.ok("stop");

    inn.0.write("config.json", r#"{ "port": 0 }"#);
    let shown = inn.0.state_file("daemon.log");
    inn.refused("start", 1, &format!("Could not start it: it exited with 1. See {}", shown.display()));
    inn.refused(
        "start",
        1,
        "No backend is loaded, so this host could serve nothing. Run ostler plugin install",
    );
    inn.0.write("config.json", r#"{ "port": 0, "plugins": [{ "name": "@ostler/echo", "enabled": false }] }"#);
    inn.refused("start", 1, "Disabled: echo; enable one with: ostler plugin enable <name>.");
    std::fs::remove_file(&shown).unwrap();
    std::fs::create_dir(&shown).unwrap();
    inn.refused("start", 1, &format!("Could not start it: {} could not be opened: ", shown.display()));
    std::fs::remove_dir(&shown).unwrap();
    inn.0.write("config.json", r#"{ "port": "x" }"#);
    inn.refused("start", 2, "port must be an integer");
    inn.refused("start --stdio", 2, "--stdio cannot be detached: it serves the process that started it.");
    inn.refused("--port 1 status", 2, "flags of a run are accepted after `ostler start`");
    inn.refused("status --json --quiet", 2, "--json and --quiet cannot be used together");
}

#[test]
fn a_restart_that_cannot_come_up_takes_nothing_down() {
    let inn = Inn::new();
    let started = inn.json("start --connection-token-file token");
    let config = inn.0.read("config.json");
    inn.0.write("config.json", r#"{ "port": "x" }"#);
    inn.refused("restart", 2, "port must be an integer");
    inn.0.write("config.json", &config);
    std::fs::write(inn.0.path().join("token"), "").unwrap();
    inn.refused("restart", 2, "is empty; remove it to create a new token");
    assert_eq!(inn.json("status")["url"], started["url"]);
}

#[test]
fn a_restart_without_a_backend_is_refused() {
    let inn = Inn::new();
    let started = inn.json("start");
    let disabled = inn.run("plugin disable echo");
    assert_eq!(disabled.code, Some(0), "{disabled:?}");
    let remedy = "ostler plugin enable @ostler/echo";
    assert!(
        disabled.err.contains(&format!("does not restart without one; enable one with: {remedy}")),
        "{disabled:?}"
    );
    inn.refused("restart", 1, &format!("no enabled plugin has a backend, without which the daemon does not start; enable one with: {remedy}"));
    let status = inn.json("status");
    assert_eq!((&status["url"], &status["pid"]), (&started["url"], &started["pid"]));
    let enabled = inn.run("plugin enable echo");
    assert!(!enabled.err.contains("backend"), "{enabled:?}");
    inn.ok("restart");
    // A plugin that is not loaded yet may have one. If it has none, the command says so.
    inn.0.write("none.mjs", "export function apply() {}");
    inn.0.write("config.json", r#"{ "port": 0, "plugins": [{ "name": "./none.mjs" }] }"#);
    inn.refused("restart", 1, "No backend is loaded, so this host could serve nothing.");
    inn.0.write("config.json", r#"{ "port": 0, "plugins": [{ "name": "@ostler/echo" }] }"#);
    inn.ok("start");
    let removed = inn.run("plugin remove echo --yes");
    assert!(removed.err.contains("ostler plugin install @ostler/echo"), "{removed:?}");
    // A restart that is forced is not refused.
    inn.refused("restart --force", 1, "No backend is loaded, so this host could serve nothing.");
}

#[test]
fn a_daemon_that_still_starts_is_seen_and_stopped() {
    let inn = Inn::new();
    inn.0.write(
        "slow.js",
        "await new Promise(() => setTimeout(() => {}, 600000)); export function apply() {}",
    );
    let plugins = json!({ "port": 0, "plugins": [{ "name": "@ostler/echo" }, { "name": "./slow.js" }] });
    inn.0.write("config.json", &plugins.to_string());
    let mut child =
        inn.0.command(&[]).stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null()).spawn().unwrap();
    let pid = child.id();
    let status = wait_for(|| {
        let status: Value = serde_json::from_str(&inn.run("status --json").out).unwrap();
        status.get("starting").is_some().then_some(status)
    });
    assert_eq!(status, Some(json!({ "running": false, "starting": pid })));
    inn.refused("start", 1, &format!("Could not start it: One is already starting (pid {pid})"));
    assert_eq!(inn.ok("stop"), format!("Stopped the starting daemon (pid {pid}).\n"));
    wait_for(|| child.try_wait().unwrap()).expect("it ends");
}

#[test]
fn a_daemon_is_started_again_where_it_was_and_says_what_its_plugins_announce() {
    let inn = Inn::new();
    inn.0.write(
        "loud.js",
        "export function apply(host) { host.on('listening', () => host.say('loud at https://inn.example.org/')); }",
    );
    let mut config = inn.config();
    config["plugins"].as_array_mut().unwrap().push(json!({ "name": "./loud.js" }));
    inn.0.write("config.json", &config.to_string());
    // Started with a path relative to where it was started.
    let mut start = program();
    start.current_dir(inn.0.path()).args(["start", "--config-file", "config.json", "--json"]);
    assert_eq!(ended(&mut start).code, Some(0));
    let status = inn.ok("status");
    assert!(status.ends_with("\nloud at https://inn.example.org/\n"), "{status}");
    let elsewhere = tempfile::tempdir().unwrap();
    let mut restart = program();
    restart
        .current_dir(elsewhere.path())
        .arg("restart")
        .arg("--config-file")
        .arg(inn.0.path().join("config.json"));
    let restarted = ended(&mut restart);
    assert_eq!(restarted.code, Some(0), "{restarted:?}");
    let served = std::fs::canonicalize(inn.0.path()).unwrap();
    assert_eq!(inn.json("status")["paths"], json!([served]));
}

#[test]
fn a_daemon_in_the_foreground_is_found_and_stopped_and_does_not_start_itself_again() {
    let inn = Inn::new();
    let mut daemon = inn.0.start();
    let status = wait_for(|| (inn.run("status").code == Some(0)).then(|| inn.json("status"))).unwrap();
    assert_eq!(status["pid"].as_u64(), Some(u64::from(daemon.child.id())));
    inn.refused("restart", 1, "runs in the foreground");
    inn.ok("stop");
    let code = wait_for(|| daemon.child.try_wait().unwrap()).unwrap();
    assert_eq!(code.code(), Some(0));
}

#[tokio::test]
async fn a_turn_that_runs_is_not_cut_short_unless_forced() {
    let inn = Inn::new();
    let started = inn.json("start");
    let mut client = crate::support::Client::connect(started["url"].as_str().unwrap()).await;
    client.initialize("busy").await;
    let session = "echo:/5d0c6a1e-1111-4222-8333-444455556666";
    client.request("createSession", json!({ "channel": session, "provider": "echo" })).await.unwrap();
    let chat = ostler_protocol::uri::default_chat(session);
    client.subscribe(&chat).await;
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t1", "message": { "text": "/hang" } });
    client.dispatch(&chat, 1, turn).await;
    client.actions_until("chat/turnStarted").await;
    let refused = inn.run("restart");
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let says = format!("cannot restart it: a turn is running in {session}; use --force to end it");
    assert!(refused.err.contains(&says), "{refused:?}");
    assert_eq!(inn.json("status")["url"], started["url"]);
    let forced = inn.json("restart --force");
    assert_ne!(forced["url"], started["url"]);
    assert!(inn.0.read_state("daemon.log").contains("restart: stopping (SIGUSR2)"));
}

#[test]
fn config_prints_the_files_as_they_are() {
    let inn = Inn::new();
    let text = "{ \"port\": 0,\n  \"plugins\": [{ \"name\": \"@ostler/echo\", \"options\": { \"key\": \"sk-live\" } }] }\n";
    inn.0.write("config.json", text);
    let printed = inn.run("config");
    assert_eq!(printed.out, text);
    assert!(printed.err.contains("config.json"), "{}", printed.err);
    assert_eq!(inn.json("config")["files"][0]["config"]["plugins"][0]["options"]["key"], "sk-live");
    let none =
        ended(program().args(["config", "--json"]).env("XDG_CONFIG_HOME", inn.0.path().join("nowhere")));
    assert_eq!(none.out, "{\"files\":[]}\n");
}

const NOTES: &str = r"
    export const name = 'notes';
    export const title = 'Notes';
    export const optionsSchema = { required: ['key'], properties: {
        key: { type: 'string', writeOnly: true }, size: { type: 'integer', minimum: 1 },
        env: { type: 'object', additionalProperties: { type: 'string', writeOnly: true } } } };
    export function apply(host, options) { host.log(`size ${JSON.stringify(options)}`); }
";

#[test]
fn plugins_are_installed_listed_configured_and_removed() {
    let inn = Inn(Folder::new(json!({})));
    inn.0.write("own/notes.ts", NOTES);
    assert_eq!(inn.ok("plugin list"), "no plugins configured\n");
    assert_eq!(inn.ok("plugin install @ostler/echo"), "Installed @ostler/echo, id echo.\n");
    inn.ok("plugin install ./own/notes.ts");
    let file = std::fs::canonicalize(inn.0.path().join("own/notes.ts")).unwrap();
    let file = file.display();
    assert_eq!(
        inn.ok("plugin list"),
        format!(
            "ready @ostler/echo -> bundled (echo, Echo)\nunconfigured {file} -> {file} (notes, Notes): needs key\n"
        )
    );
    inn.refused(
        "plugin config notes size 0",
        2,
        "plugins.notes.options.size must be an integer of 1 or more",
    );
    inn.refused("plugin config notes size", 2, "missing value for size");
    inn.refused("plugin config notes env.a.__proto__ x", 2, "is not an allowed key");
    inn.refused(
        "plugin config notes key {\"$secret\":\"k\"}",
        2,
        "a secret is named host:<name>, team:<team>/<name>",
    );
    inn.refused("plugin config nobody", 2, "unknown plugin nobody; configured plugins: echo, notes");
    let set = inn.ok("plugin config notes key sk-live-1");
    assert_eq!(
        set,
        format!("ready {file} -> {file} (notes, Notes)\n  key: <set>\n  size is not set\n  env is not set\n")
    );
    inn.ok("plugin config notes size 7");
    inn.ok("plugin config notes env.ID 007");
    inn.ok("plugin config notes env.KEY {\"$secret\":\"host:k\"}");
    // The spec as written names it too.
    inn.ok(&format!("plugin config {file} colour red"));
    let options = json!({
        "key": "sk-live-1", "size": 7, "env": { "ID": "007", "KEY": { "$secret": "host:k" } }, "colour": "red"
    });
    assert_eq!(inn.config()["plugins"][1]["options"], options);
    let row = &inn.json("plugin list")[1];
    let shown = json!({
        "key": "<set>", "size": 7, "env": { "ID": "<set>", "KEY": { "$secret": "host:k" } }, "colour": "red"
    });
    assert_eq!(row["options"], shown);
    assert_eq!((&row["id"], &row["state"]), (&json!("notes"), &json!("ready")));
    let listed = inn.ok("plugin list");
    assert!(listed.contains(r#"  env: {"ID":"<set>","KEY":{"$secret":"host:k"}}"#), "{listed}");
    inn.ok("plugin config unset notes env.ID");
    let twice = inn.run("plugin config unset notes env.ID");
    assert!(twice.err.contains("is not set"), "{twice:?}");

    assert_eq!(inn.json("plugin disable notes")["options"]["colour"], "<set>");
    assert_eq!(inn.config()["plugins"][1]["enabled"], false);
    assert_eq!(inn.json("plugin list")[1]["state"], "disabled");
    assert_eq!(inn.json("plugin enable notes")["state"], "ready");
    assert_eq!(inn.config()["plugins"][1].get("enabled"), None);

    inn.refused(
        "plugin remove notes",
        2,
        "Remove notes? Confirm with --yes; standard input is not a terminal",
    );
    inn.ok("plugin remove notes --yes");
    assert_eq!(inn.config()["plugins"], json!([{ "name": "@ostler/echo" }]));
    inn.refused("plugin install @ostler/sdk", 2, "@ostler/sdk is part of this host");
    inn.refused("plugin install ./nowhere.ts", 2, "is not there");
    inn.0.write("none.mjs", "export default function apply() {}");
    inn.refused("plugin install ./none.mjs", 1, "none.mjs does not export an apply function");
    assert_eq!(inn.config()["plugins"], json!([{ "name": "@ostler/echo" }]));
    inn.refused("plugin update echo", 2, "was not installed as a package");
    assert_eq!(inn.ok("plugin update all"), "Nothing to update.\n");
    inn.ok("start");
    let hinted = inn.run("plugin disable echo");
    assert!(hinted.err.contains("ostler restart"), "{hinted:?}");
}

/// An `npm` that knows one plugin of three versions, and one package that is no plugin.
const NPM: &str = r#"#!/bin/sh
echo "$@" >> "$FOLDER/npm.log"
shift; dir=$1; shift
case "$1 $2 $3" in
  "view --json plain@"*) echo '{ "name": "plain", "version": "1.0.0" }'; exit 0 ;;
  "view --json gone@"*) echo 'npm error code E404' >&2; exit 1 ;;
  "view --json notes@*") echo '[{ "version": "1.0.0", "ostler": {} }, { "version": "1.1.0", "ostler": {}, "peerDependencies": { "@ostler/sdk": "^0.1.0" } }, { "version": "2.0.0", "ostler": {}, "peerDependencies": { "@ostler/sdk": "^9.0.0" } }]'; exit 0 ;;
  "view --json notes@"*) echo '{ "version": "2.0.0", "ostler": {}, "peerDependencies": { "@ostler/sdk": "^9.0.0" } }'; exit 0 ;;
esac
case "$1" in
  uninstall) rm -r "$dir/node_modules/notes"; echo '{ "private": true }' > "$dir/package.json"; exit 0 ;;
  update) version=1.2.0 ;;
  install) version=${3#notes@} ;;
esac
[ "$version" = latest ] && version=2.0.0
mkdir -p "$dir/node_modules/notes"
echo "{ \"name\": \"notes\", \"version\": \"$version\", \"main\": \"index.js\" }" > "$dir/node_modules/notes/package.json"
echo 'export function apply() {}' > "$dir/node_modules/notes/index.js"
echo '{ "private": true, "dependencies": { "notes": "1" } }' > "$dir/package.json"
"#;

#[cfg(unix)]
#[test]
fn packages_come_through_npm() {
    use std::os::unix::fs::PermissionsExt;
    let inn = Inn(Folder::new(json!({ "plugins": [{ "name": "@ostler/echo" }] })));
    inn.0.write("bin/npm", NPM);
    let npm = inn.0.path().join("bin/npm");
    std::fs::set_permissions(&npm, std::fs::Permissions::from_mode(0o755)).unwrap();
    let run = |line: &str, path: &str| {
        let mut command = inn.0.command(&line.split(' ').collect::<Vec<_>>());
        ended(command.env("PATH", path).env("FOLDER", inn.0.path()))
    };
    let bin = format!("{}:/usr/bin:/bin", inn.0.path().join("bin").display());
    let ok = |line: &str| {
        let ended = run(line, &bin);
        assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
        ended.out
    };
    let empty = inn.0.path().join("nothing").display().to_string();
    let none = run("plugin install notes", &empty);
    assert_eq!(none.code, Some(1));
    assert!(none.err.contains("npm not found; install Node.js"), "{none:?}");
    assert!(none.err.contains(&inn.0.path().join("node_modules").display().to_string()), "{none:?}");

    let plain = run("plugin install plain", &bin);
    assert_eq!(plain.code, Some(2));
    assert!(plain.err.contains("plain is not a plugin for this host"), "{plain:?}");
    assert!(!inn.0.read("npm.log").contains("install --save plain"), "refused before npm runs");
    let gone = run("plugin install gone", &bin);
    assert_eq!(gone.code, Some(1));
    assert!(gone.err.contains("npm view failed:\n  code E404"), "{gone:?}");

    // The newest version that works with this host, not the newest.
    assert_eq!(ok("plugin install notes"), "Installed notes 1.1.0, id notes.\n");
    assert_eq!(inn.config()["plugins"][1], json!({ "name": "notes" }));
    assert_eq!(serde_json::from_str::<Value>(&ok("plugin list --json")).unwrap()[1]["state"], "ready");
    assert_eq!(ok("plugin update all"), "notes 1.1.0 -> 1.2.0\n");
    assert_eq!(ok("plugin update notes"), "Nothing to update.\n");
    assert_eq!(ok("plugin update notes --force"), "notes 1.2.0 -> 2.0.0\n");
    let several = run("plugin update all notes", &bin);
    assert!(
        several.err.contains("all updates every plugin and cannot be combined with names"),
        "{several:?}"
    );
    assert_eq!(ok("plugin remove notes --yes --quiet"), "notes\n");
    assert!(!inn.0.path().join("node_modules/notes").exists());
    assert_eq!(ok("plugin install notes --no-enable"), "Installed notes 1.1.0.\n");
    assert_eq!(inn.config()["plugins"], json!([{ "name": "@ostler/echo" }]));
    // Quiet in a pipe: nothing of a progress line is left in what it says.
    assert_eq!(run("plugin install notes --no-enable", &bin).err, "");
}

#[test]
fn secrets_go_in_and_are_never_printed() {
    let inn = Inn(Folder::new(json!({ "plugins": [
        { "name": "@ostler/echo", "options": { "a": [{ "$secret": "host:one" }], "b": { "$secret": "sk-live" } } }
    ] })));
    let set = inn.piped("vault set host:two", "hunter2\n\n");
    assert_eq!((set.code, set.out.as_str()), (Some(0), "Set host:two.\n"));
    assert_eq!(
        serde_json::from_str::<Value>(&inn.0.read("vault.json")).unwrap(),
        json!({ "host:two": "hunter2\n" })
    );
    let listed = inn.run("vault list");
    assert_eq!(listed.out, "host:one not set (plugins[0].options.a[0])\nhost:two set\n");
    inn.piped("vault set host:one", "x");
    assert_eq!(
        inn.json("vault list")[0],
        json!({ "name": "host:one", "set": true, "named": ["plugins[0].options.a[0]"] })
    );
    assert_eq!(inn.ok("vault list --quiet"), "host:one\nhost:two\n");
    inn.refused("vault set one", 2, "a secret is named host:<name>, team:<team>/<name> or user:<id>/<name>");
    inn.refused("vault set host:one", 2, "the value of host:one is empty");
    inn.refused("vault delete host:one", 2, "Confirm with --yes");
    assert_eq!(inn.ok("vault delete host:one --yes"), "Deleted host:one.\n");
    inn.refused("vault delete host:one --yes", 1, "the vault holds no host:one");
}

#[test]
fn shells_complete_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let script = ended(program().args(["completion", shell])).out;
        for word in ["restart", "vault", "install", "plugin-option"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    assert!(!ended(program().args(["completion", "bash"])).out.contains("--detached"));
    assert_eq!(ended(program().args(["completion", "tcsh"])).code, Some(2));
}

#[test]
fn a_plugin_is_written_checked_and_installed() {
    let inn = Inn::new();
    let wrote = inn.ok("plugin new greeter");
    assert!(wrote.contains("greeter"), "{wrote}");
    inn.refused("plugin new greeter", 2, "already exists and is not empty");
    inn.refused("plugin new Greeter", 2, "invalid plugin name");
    let checked = inn.json("plugin check ./greeter");
    assert_eq!(
        (&checked["id"], &checked["holds"], &checked["refused"]),
        (&json!("greeter"), &json!(true), &json!([]))
    );
    assert!(!checked["registered"].as_array().unwrap().is_empty(), "{checked}");
    inn.0.write(
        "bad.js",
        "export const name = 'bad';\nexport function apply(host) { host.registerTool({}) }\n",
    );
    let bad = inn.run("plugin check ./bad.js");
    assert_eq!(bad.code, Some(1), "{bad:?}");
    assert!(bad.out.contains("refused: ") && bad.out.contains("registerTool needs"), "{bad:?}");
    inn.refused("plugin check ./bad.js --option key", 2, "--option: key is not <key>=<value>");
    assert_eq!(inn.run("plugin install ./greeter").code, Some(0));
    assert_eq!(inn.json("plugin list")[1]["state"], "ready");
}

#[test]
fn endpoints_are_added_and_tried_beside_the_daemon_that_runs() {
    let inn = Inn(Folder::new(json!({
        "plugins": [{ "name": "@ostler/echo" }, { "name": "@ostler/webhook" }], "routes": { "port": 0 },
    })));
    inn.ok("start");
    inn.refused("webhook add fire", 2, "<--bot <BOT>|--automation>");
    inn.refused("webhook add fire --automation --bot bot://b", 2, "cannot be used with");
    let added = inn.json("webhook add fire --automation");
    let tried = wait_for(|| {
        let tried = inn.run("webhook test fire --json");
        let json: Value = serde_json::from_str(&tried.out).ok()?;
        (json["status"] != 404).then_some((tried.code, json))
    })
    .unwrap();
    assert_eq!((tried.0, &tried.1["status"]), (Some(0), &json!(202)), "{added} {tried:?}");
    assert!(inn.ok("webhook list").contains("fire"));
    assert_eq!(inn.run("webhook test nobody").code, Some(2));
}

#[test]
fn one_option_for_one_run() {
    let inn = Inn::new();
    inn.0.write("notes.ts", NOTES);
    let entry =
        json!({ "name": "./notes.ts", "options": { "key": "sk-live-1", "env": { "A": "from the file" } } });
    let mut config = inn.config();
    config["plugins"].as_array_mut().unwrap().push(entry);
    config["plugins"].as_array_mut().unwrap().push(json!({ "name": "@ostler/webhook", "enabled": false }));
    inn.0.write("config.json", &config.to_string());
    let options = ["notes.size=9", "./notes.ts.env.B=x", "notes.colour=red"];
    let flags: Vec<&str> = options.iter().flat_map(|option| ["--plugin-option", option]).collect();
    let daemon = inn.0.start_with(&flags);
    let said = inn.0.wait_for_log("plugin notes: size");
    assert!(
        said.contains(r#""size":9"#) && said.contains(r#""B":"x""#) && said.contains(r#""colour":"red""#),
        "{said}"
    );
    assert_eq!(daemon.stop(), Some(0));
    assert_eq!(inn.config(), config, "the file is as it was");
    for (option, says) in [
        ("notes.key.deep=SECRET", "key is not an object, so nothing can be put into it"),
        ("nobody.size=1", "nobody.size: no such plugin in this run; plugins are echo, notes, webhook"),
        ("notes=SECRET", "notes: no such plugin in this run"),
        ("webhook.syncTimeoutSeconds=1", "the plugin is disabled"),
        ("notes.env.__proto__=SECRET", "is not an allowed key"),
        ("notes.size", "expected <id>.<key>=<value>"),
        ("notes.env=[1e3]", "a number that would be stored with other digits"),
    ] {
        let ended = inn.0.run(&["--plugin-option", option]);
        assert_eq!(ended.code, Some(2), "{option}: {ended:?}");
        assert!(ended.err.contains(says), "{option}: {:?}", ended.err);
        assert!(!ended.err.contains("SECRET"), "{:?}", ended.err);
    }
}

#[test]
fn an_install_leaves_the_rest_of_the_configuration_as_it_is_written() {
    let inn = Inn::new();
    inn.0.write("notes.ts", "export function apply() {}\n");
    let written = "{\n    \"port\":   0,\n\n    \"plugins\": [\n        { \"name\": \"@ostler/echo\" }\n    ],\n    \"deltaWindowMs\":  10\n}\n";
    inn.0.write("config.json", written);
    inn.ok("plugin install ./notes.ts");
    let notes = inn.0.path().canonicalize().unwrap().join("notes.ts");
    let added = format!(
        "{{ \"name\": \"@ostler/echo\" }},\n        {{ \"name\": {:?} }}",
        notes.display().to_string()
    );
    assert_eq!(inn.0.read("config.json"), written.replace("{ \"name\": \"@ostler/echo\" }", &added));
    inn.ok("plugin remove notes --yes");
    assert_eq!(inn.0.read("config.json"), written);
}
