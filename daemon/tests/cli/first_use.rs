//! The first minutes: a configuration is written, checked and started, and what is wrong is told with its fix.

use std::path::Path;
use std::process::Command;

use crate::support::{Ended, Folder, Signal, ended, program, tell};
use serde_json::{Value, json};

/// A home that has no configuration yet.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn command(&self, line: &[&str]) -> Command {
        let mut command = program();
        command.args(line).env("HOME", self.path()).env_remove("XDG_STATE_HOME").current_dir(self.path());
        // No container runtime, whatever this computer has.
        command.env("DOCKER_HOST", self.path().join("docker.sock"));
        command
    }

    fn run(&self, line: &[&str]) -> Ended {
        ended(&mut self.command(line))
    }

    fn config(&self) -> Value {
        let file = self.path().join(".config/ostler/config.json");
        serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.run(&["stop"]);
    }
}

#[track_caller]
fn ok(ended: Ended) -> Ended {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended
}

/// The entries of a first configuration that a program writes if it has the part.
fn optional() -> Vec<Value> {
    let parts = [
        ("git", cfg!(feature = "git")),
        ("github", cfg!(feature = "github")),
        ("console", cfg!(feature = "console")),
    ];
    let written = parts.into_iter().filter(|(_, is_built_in)| *is_built_in);
    written.map(|(part, _)| json!({ "name": format!("@ostler/{part}") })).collect()
}

#[test]
fn from_nothing_to_an_answer() {
    let home = Home::new();
    let refused = home.run(&["init"]);
    assert_eq!(refused.code, Some(2));
    assert!(
        refused.err.starts_with("no agent given and standard input is not a terminal; pass --agent echo"),
        "{refused:?}"
    );
    let wrong = home.run(&["init", "--agent", "@ostler/webhook"]);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.err.starts_with("@ostler/webhook is not an agent; pass echo"), "{wrong:?}");
    assert!(!home.path().join(".config").exists());

    let written = ok(home.run(&["init", "--agent", "echo", "--port", "0"]));
    let lines: Vec<&str> = written.out.lines().collect();
    assert!(lines[0].ends_with("/.config/ostler/config.json with agent @ostler/echo."), "{written:?}");
    assert_eq!(lines[1..], ["Next: ostler start", "Then: ostler session send --new \"Hello\""]);
    let terminal = json!({ "name": "@ostler/terminal", "options": { "shellIntegration": true } });
    let mut plugins = vec![json!({ "name": "@ostler/echo" }), terminal, json!({ "name": "@ostler/webhook" })];
    plugins.extend(optional());
    assert_eq!(home.config(), json!({ "port": 0, "plugins": plugins }));
    // Never over one that is there.
    let again = home.run(&["init", "--agent", "echo"]);
    assert_eq!(again.code, Some(2));
    assert!(again.err.contains("config.json already exists and was not changed"), "{again:?}");
    assert_eq!(home.config()["port"], 0);

    let well = ok(home.run(&["doctor"]));
    assert!(well.out.ends_with("No problems found. Start the daemon with: ostler start\n"), "{}", well.out);
    for what in ["configuration", "directories", "port", "plugins", "agents", "vault", "clock", "versions"] {
        assert!(
            well.out.contains(&format!("\nok       {what} "))
                || well.out.starts_with("ok       configuration")
        );
    }
    assert!(!home.path().join(".config/ostler/state.db").exists(), "a check leaves no state");
    ok(home.run(&["start"]));
    let said = ok(home.run(&["session", "send", "--new", "Hello"]));
    assert!(said.out.ends_with("> Hello\n  Hello\n"), "{said:?}");
    let well: Value = serde_json::from_str(&ok(home.run(&["doctor", "--json"])).out).unwrap();
    assert_eq!((&well["ok"], &well["errors"]), (&json!(true), &json!(0)), "{well}");
    let checks = well["checks"].as_array().unwrap();
    assert!(checks.iter().any(|check| check["check"] == "agents" && check["found"] == "echo"), "{well}");
}

#[test]
fn the_next_commands_are_for_the_configuration_that_was_written() {
    let home = Home::new();
    let line = ["--config-file", "other.json", "init", "--agent", "echo", "--port", "0"];
    let written = ok(home.run(&line));
    let lines: Vec<&str> = written.out.lines().skip(1).collect();
    let program = "ostler --config-file other.json";
    assert_eq!(
        lines,
        [format!("Next: {program} start"), format!("Then: {program} session send --new \"Hello\"")]
    );
    for command in ["start", "stop"] {
        ok(home.run(&["--config-file", "other.json", command]));
    }
}

#[cfg(all(feature = "acp", feature = "console"))]
#[test]
fn a_preset_is_an_agent() {
    let home = Home::new();
    let written = ok(home.run(&["init", "--agent", "claude-acp"]));
    let lines: Vec<&str> = written.out.lines().collect();
    assert!(lines[0].ends_with("config.json with agent claude-acp."), "{written:?}");
    assert_eq!(lines[1..3], ["Check the agent: ostler agent check claude-acp", "Next: ostler start"]);
    assert_eq!(lines.last(), Some(&"Console: http://127.0.0.1:9187/plugins/console/"));
    let mut plugins = vec![
        json!({ "name": "@ostler/acp", "options": { "presets": ["claude-acp"] } }),
        json!({ "name": "@ostler/terminal", "options": { "shellIntegration": true } }),
        json!({ "name": "@ostler/webhook" }),
    ];
    plugins.extend(optional());
    assert_eq!(home.config(), json!({ "plugins": plugins }));
}

#[cfg(feature = "containers")]
#[test]
fn containers_are_enabled_where_a_runtime_is_found() {
    for (arguments, named) in [(&[][..], true), (&["--no-containers"], false)] {
        let home = Home::new();
        let _listener = std::os::unix::net::UnixListener::bind(home.path().join("docker.sock")).unwrap();
        ok(home.run(&[&["init", "--agent", "echo"], arguments].concat()));
        let plugins = home.config()["plugins"].as_array().unwrap().clone();
        assert_eq!(plugins.contains(&json!({ "name": "@ostler/containers" })), named, "{plugins:?}");
    }
}

#[test]
fn an_agent_of_a_path_is_named_and_one_that_is_none_leaves_nothing() {
    let home = Home::new();
    std::fs::write(home.path().join("mine.ts"), "export function apply() {}").unwrap();
    std::fs::write(home.path().join("none.ts"), "export const nothing = 1;").unwrap();
    for (agent, says) in [("./none.ts", "apply"), ("./gone.ts", "is not there")] {
        let refused = home.run(&["init", "--agent", agent]);
        assert!(refused.code != Some(0) && refused.err.contains(says), "{refused:?}");
        assert!(!home.path().join(".config").exists(), "{agent}");
    }
    let file = home.path().join("other/c.json");
    let file = file.to_str().unwrap();
    let written = ok(home.run(&[
        "--config-file",
        file,
        "init",
        "--agent",
        "./mine.ts",
        "--no-terminal",
        "--no-webhook",
        "--no-github",
        "--no-console",
        "--path",
        ".",
        "--json",
    ]));
    let written: Value = serde_json::from_str(&written.out).unwrap();
    assert_eq!(written["next"], format!("ostler --config-file {file} start"));
    let config: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let here = home.path().canonicalize().unwrap();
    assert_eq!(config["paths"], json!([here]));
    let mut plugins = optional();
    plugins.retain(|entry| entry["name"] == "@ostler/git");
    plugins.push(json!({ "name": here.join("mine.ts") }));
    assert_eq!(config["plugins"], json!(plugins));
}

/// An `npm` that knows no package, and one plugin that has no `apply`.
#[cfg(all(unix, feature = "acp"))]
const NPM: &str = r#"#!/bin/sh
echo "$@" >> "$HOME/npm.log"
shift; dir=$1; shift
case "$1 $2 $3" in
  "view --json none@"*) echo '{ "name": "none", "version": "1.0.0", "ostler": {} }' ;;
  "install --save none@"*)
    mkdir -p "$dir/node_modules/none"
    echo '{ "name": "none", "version": "1.0.0", "main": "index.js" }' > "$dir/node_modules/none/package.json"
    echo 'export const nothing = 1;' > "$dir/node_modules/none/index.js"
    echo '{}' > "$dir/package-lock.json"
    echo '{ "private": true, "dependencies": { "none": "1" } }' > "$dir/package.json" ;;
  "uninstall --save none") rm -r "$dir/node_modules/none"; echo '{ "private": true }' > "$dir/package.json" ;;
  *) echo 'npm error code E404' >&2; exit 1 ;;
esac
"#;

#[cfg(unix)]
#[cfg(feature = "acp")]
#[test]
fn a_misspelled_agent_is_told_and_one_that_cannot_be_installed_leaves_nothing() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    let npm = home.path().join("bin/npm");
    std::fs::create_dir(npm.parent().unwrap()).unwrap();
    std::fs::write(&npm, NPM).unwrap();
    std::fs::set_permissions(&npm, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", npm.parent().unwrap().display());
    let init = |agent: &str| {
        let refused = ended(home.command(&["init", "--agent", agent]).env("PATH", &path));
        assert!(refused.code != Some(0), "{agent}: {refused:?}");
        assert!(!home.path().join(".config").exists(), "{agent} leaves something");
        refused.err
    };
    for (agent, meant) in [("ehco", "echo"), ("claude-apc", "claude-acp"), ("@ostler/ech", "@ostler/echo")] {
        let told = init(agent);
        assert!(told.starts_with(&format!("no agent is called {agent}; did you mean {meant}?")), "{told}");
    }
    assert!(!home.path().join("npm.log").exists(), "npm is not asked");
    for agent in ["ehco@latest", "something-else-altogether", "@others/echo"] {
        assert!(init(agent).contains("E404"), "{agent}");
    }
    assert!(init("none").contains("apply"));
    // What was there stays.
    let config = home.path().join(".config/ostler");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join("vault.json"), "{}").unwrap();
    let refused = ended(home.command(&["init", "--agent", "@others/echo"]).env("PATH", &path));
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let left: Vec<_> = std::fs::read_dir(&config).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(left, ["vault.json"]);
}

#[test]
fn what_is_wrong_is_told_with_its_fix() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let folder = Folder::new(json!({}));
    let config = json!({
        "port": port, "prot": 1,
        "plugins": [{ "name": "@ostler/ecko" }, { "name": "@ostler/webhook", "options": {} }, { "name": "./secret.ts", "options": { "key": { "$secret": "host:key" } } }],
    });
    folder.write("config.json", &config.to_string());
    folder.write(
        "secret.ts",
        "export const optionsSchema = { type: 'object', properties: { key: { type: 'string', 'x-secret': true } } };
         export function apply() {}",
    );
    folder.write("webhooks/in.md", "---\nid: in\nautomation: true\nsecret: host:in\n---\n");
    folder.write("webhooks/odd.md", "---\nid: odd\nautomation: true\n---\n");
    folder.write("versions.json", "[]");
    folder.write("vault.json", "{}");
    let told = folder.run(&["doctor", "--json"]);
    assert_eq!(told.code, Some(1), "{told:?}");
    let told: Value = serde_json::from_str(&told.out).unwrap();
    let checks = told["checks"].as_array().unwrap();
    for (what, state, found, fix) in [
        (
            "configuration",
            "warning",
            "unknown key prot; ignored; did you mean port?",
            "correct or remove the key",
        ),
        ("agents", "error", "no backend is loaded; the daemon will refuse to start", "ostler plugin install"),
        ("plugins", "error", "plugin secret skipped", "ostler plugin check"),
        ("port", "error", "is in use by another program", "choose another port"),
        (
            "plugins",
            "error",
            "Did you mean @ostler/echo?",
            "correct the name in the configuration, or remove it with: ostler plugin remove @ostler/ecko",
        ),
        (
            "vault",
            "error",
            "host:key is not set but required by plugins[2].options.key",
            "ostler vault set host:key",
        ),
        ("vault", "error", "host:in is not set but required by webhooks/in.md", "ostler vault set host:in"),
        ("vault", "error", "webhooks/odd.md: ", "ostler webhook rm odd"),
        ("versions", "error", "versions.json", "correct or remove the file"),
    ] {
        let text = |check: &Value, field: &str| check[field].as_str().unwrap_or_default().to_owned();
        let told = checks.iter().any(|check| {
            check["check"] == what
                && check["state"] == state
                && text(check, "found").contains(found)
                && text(check, "fix").contains(fix)
        });
        assert!(told, "{what}: {found:?}, {fix:?} in {checks:#?}");
    }
    let of = |what: &str| checks.iter().filter(|check| check["check"] == what).count();
    assert_eq!((of("plugins"), of("agents")), (3, 1), "nothing is told twice: {checks:#?}");
    let lines = folder.run(&["doctor"]).out;
    let last = lines.lines().last().unwrap();
    assert_eq!(last, format!("{} errors, 1 warning.", told["errors"]));
    assert!(lines.contains(&format!("\n{:24}fix: ", "")), "{lines}");

    folder.write("config.json", "{");
    let broken = folder.run(&["doctor"]);
    assert_eq!(broken.code, Some(1), "{broken:?}");
    assert!(
        broken.out.starts_with("error    configuration  ") && broken.out.contains("is not JSON"),
        "{broken:?}"
    );
    let none = Home::new().run(&["doctor"]);
    assert!(none.out.contains("fix: create one with: ostler init"), "{none:?}");
}

/// The checks of `doctor` that are not ok: what, state and what was found.
fn wrong(folder: &Folder, variables: &[(&str, &str)]) -> Vec<(String, String, String)> {
    let told = ended(folder.command(&["doctor", "--json"]).envs(variables.iter().copied()));
    let told: Value = serde_json::from_str(&told.out).unwrap();
    let text = |check: &Value, field: &str| check[field].as_str().unwrap_or_default().to_owned();
    let checks = told["checks"].as_array().unwrap().iter();
    let checks = checks.map(|check| (text(check, "check"), text(check, "state"), text(check, "found")));
    checks.filter(|(_, state, _)| state != "ok").collect()
}

#[track_caller]
fn one_wrong(folder: &Folder, variables: &[(&str, &str)], what: &str, state: &str, found: &str) {
    let wrong = wrong(folder, variables);
    let [(one, its, line)] = wrong.as_slice() else { panic!("{wrong:#?}") };
    assert_eq!((one.as_str(), its.as_str()), (what, state), "{line}");
    assert!(line.contains(found), "{found:?} is not in {line:?}");
}

/// What keeps a start from working is found before it, in the same words, and what it finds is left as it is.
#[test]
fn what_a_start_fails_on_is_found_before_it() {
    let echo = json!([{ "name": "@ostler/echo" }]);
    let folder = Folder::new(json!({ "port": 0, "plugins": echo }));
    assert_eq!(wrong(&folder, &[]), []);
    let refused = |said: &str| {
        let start = folder.run(&["start"]);
        assert!(start.code != Some(0) && start.err.contains(said), "{said:?}: {start:?}");
    };

    // The database: left by a daemon that was stopped and by one that was killed, damaged, and cut short.
    ok(folder.run(&["start"]));
    let running: Value = serde_json::from_str(&ok(folder.run(&["status", "--json"])).out).unwrap();
    let pid = u32::try_from(running["pid"].as_u64().unwrap()).unwrap();
    let database = folder.state_file("state.db");
    let state = database.parent().unwrap();
    let log = folder.state_file("state.db-wal");
    assert!(log.metadata().unwrap().len() > 0, "what it wrote last is in the log");
    tell(pid, Signal::KILL);
    let begun = std::time::Instant::now();
    while !folder.run(&["status"]).out.starts_with("None running") {
        assert!(begun.elapsed() < crate::support::LIMIT, "it outlives a kill");
    }
    assert_eq!(wrong(&folder, &[]), []);
    ok(folder.run(&["start"]));
    ok(folder.run(&["stop"]));
    let beside = || {
        let files = std::fs::read_dir(state).unwrap().map(|file| file.unwrap().file_name());
        let mut files: Vec<_> = files.filter(|name| name.to_string_lossy().starts_with("state.db")).collect();
        files.sort();
        files
    };
    let before = beside();
    assert_eq!(wrong(&folder, &[]), []);
    assert_eq!(beside(), before, "a check leaves no state");
    let whole = std::fs::read(&database).unwrap();
    std::fs::write(&database, "garbage, not a database, garbage").unwrap();
    one_wrong(&folder, &[], "state", "error", "state.db is damaged: file is not a database");
    refused("state.db is damaged: file is not a database");
    std::fs::write(&database, "").unwrap();
    std::fs::write(&log, "something").unwrap();
    one_wrong(&folder, &[], "state", "error", "it was truncated");
    refused("it was truncated");
    std::fs::remove_file(&log).unwrap();
    std::fs::write(&database, whole).unwrap();
    assert_eq!(wrong(&folder, &[]), []);

    // A state folder that cannot be made.
    folder.write("file", "");
    let file = folder.path().join("file");
    for home in [file.to_str().unwrap(), "/proc/x"] {
        one_wrong(&folder, &[("XDG_STATE_HOME", home)], "directories", "error", "cannot be created: ");
        let found = &wrong(&folder, &[("XDG_STATE_HOME", home)])[0].2;
        assert!(!found.contains(".ostler-doctor"), "{found} names a file that was only tried");
        let start = ended(folder.command(&["start"]).env("XDG_STATE_HOME", home));
        assert_eq!(start.code, Some(1), "{start:?}");
    }

    // The file of the token.
    folder.write("token", "\n");
    for (token, said) in [("token", "is empty; remove it"), ("/proc/x/token", "/proc/x/token c")] {
        let config = json!({ "port": 0, "plugins": echo, "connectionTokenFile": token });
        folder.write("config.json", &config.to_string());
        one_wrong(&folder, &[], "token", "error", said);
        refused(said);
    }
    let config = json!({ "port": 0, "plugins": echo, "connectionTokenFile": "new/token" });
    folder.write("config.json", &config.to_string());
    assert_eq!(wrong(&folder, &[]), []);
    assert!(!folder.path().join("new").exists(), "a check creates no token");
}

#[test]
fn secrets_of_mcp_servers_users_and_plugins_are_checked() {
    let echo = json!([{ "name": "@ostler/echo" }]);
    let server = json!({ "type": "stdio", "command": "cat", "env": { "A": { "$secret": "host:zz" } } });
    let folder = Folder::new(json!({}));
    let config = json!({ "port": 0, "plugins": echo, "mcpServers": { "m": server } });
    folder.write("config.json", &config.to_string());
    one_wrong(&folder, &[], "vault", "error", "host:zz is not set but required by mcpServers.m.env.A");
    let listed: Value = serde_json::from_str(&ok(folder.run(&["vault", "list", "--json"])).out).unwrap();
    assert_eq!(listed, json!([{ "name": "host:zz", "set": false, "named": ["mcpServers.m.env.A"] }]));

    let config = json!({ "port": 0, "plugins": echo, "users": "users.json", "connectionToken": "x" });
    folder.write("config.json", &config.to_string());
    one_wrong(&folder, &[], "users", "warning", "users.json does not exist; no user can sign in");
    folder.write("users.json", r#"{"users":"#);
    one_wrong(&folder, &[], "users", "error", "users.json: ");
    folder.write("users.json", r#"{"users":[{"id":"ada","roles":["nope"]}]}"#);
    one_wrong(&folder, &[], "users", "warning", "user ada has unknown role nope; ignored");
    folder.write("users.json", r#"{"users":[{"id":"ada"}]}"#);
    assert_eq!(wrong(&folder, &[]), []);

    folder.write("bad.mjs", "export function apply() { throw new Error('boom'); }");
    let config = json!({ "port": 0, "plugins": [echo[0], { "name": "./bad.mjs" }] });
    folder.write("config.json", &config.to_string());
    one_wrong(&folder, &[], "plugins", "error", "boom");
    assert!(!folder.run(&["doctor"]).out.contains("ok       plugins        bad"));
}

#[cfg(feature = "acp")]
#[test]
fn programs_of_agents_are_checked() {
    let folder = Folder::new(json!({}));
    let agents = json!({ "agents": { "x": { "command": "no-such-program" } } });
    let config = json!({ "port": 0, "plugins": [{ "name": "@ostler/acp", "options": agents }] });
    folder.write("config.json", &config.to_string());
    one_wrong(&folder, &[], "agents", "error", "x: no-such-program is not installed");
    ok(folder.run(&["start"]));
    one_wrong(&folder, &[], "agents", "error", "x: no-such-program is not installed");
    ok(folder.run(&["stop"]));
}

#[test]
fn a_start_that_fails_prints_the_line_that_says_why() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let folder = Folder::new(json!({ "plugins": [{ "name": "@ostler/echo" }] }));
    folder.write(
        "config.json",
        &json!({ "port": address.port(), "plugins": [{ "name": "@ostler/echo" }] }).to_string(),
    );
    let failed = folder.run(&["start"]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    let lines: Vec<&str> = failed.err.lines().collect();
    assert!(lines[0].starts_with("Could not start it: it exited with 1. See "), "{failed:?}");
    assert!(lines[1].starts_with(&format!("cannot listen on {address}: ")), "{failed:?}");
    assert_eq!(lines.len(), 2, "nothing but the reason: {failed:?}");

    folder.write(
        "noisy.ts",
        "export function apply(host) { for (let i = 0; i < 40; i++) host.log(`line ${i}`); }",
    );
    folder.write("config.json", &json!({ "port": 0, "plugins": [{ "name": "./noisy.ts" }] }).to_string());
    let failed = folder.run(&["start"]);
    let lines: Vec<&str> = failed.err.lines().collect();
    assert!(lines[1].starts_with("No backend is loaded, so this host could serve nothing."), "{failed:?}");
    assert_eq!(lines.len(), 2, "{failed:?}");
}
