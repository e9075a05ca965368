//! Starting: flags, configuration, what is announced, how it ends.

use std::process::Command;

use crate::support::{Folder, ended, program};
use serde_json::{Value, json};

fn echo() -> serde_json::Value {
    json!({ "plugins": [{ "name": "@ostler/echo" }] })
}

/// The command refuses with this code and says this, and nothing on stdout.
#[track_caller]
fn refused(ended: &crate::support::Ended, code: i32, says: &str) {
    assert_eq!(ended.code, Some(code), "{ended:?}");
    assert!(ended.err.contains(says), "{says:?} is not in {:?}", ended.err);
    assert_eq!(ended.out, "");
}

#[test]
fn a_host_without_a_backend_does_not_start() {
    let folder = Folder::new(json!({}));
    refused(&folder.run(&[]), 1, "No backend is loaded, so this host could serve nothing.");
    let skipped = Folder::new(json!({ "plugins": [{ "name": "./gone.ts" }] }));
    let ended = skipped.run(&[]);
    refused(&ended, 1, "No backend is loaded");
    assert!(ended.err.contains("skipped: Plugin ./gone.ts is not there: tried "), "{}", ended.err);
}

#[test]
fn a_wrong_configuration_ends_with_2_and_says_where() {
    let folder = Folder::new(echo());
    let file = folder.path().join("config.json");
    let shown = file.display();
    for (text, says) in [
        ("{", format!("{shown} is not JSON: ")),
        ("[]", format!("{shown} is not a JSON object")),
        (r#"{ "port": "x" }"#, format!("{shown}: port must be an integer")),
        (r#"{ "port": 65536 }"#, format!("{shown}: port must be an integer between 0 and 65535")),
        (
            r#"{ "routes": { "port": -1 } }"#,
            format!("{shown}: routes.port must be an integer between 0 and 65535"),
        ),
        (
            r#"{ "deltaWindowMs": 1001 }"#,
            format!("{shown}: deltaWindowMs must be an integer between 0 and 1000"),
        ),
        (r#"{ "plugins": [{ "options": {} }] }"#, format!("{shown}: plugins[0].name must be a string")),
        (r#"{ "sessions": "cloud" }"#, format!("{shown}: sessions must be ")),
        (r#"{ "routes": { "host": "127.0.0.1" } }"#, "routes.host requires routes.port".to_owned()),
        (
            r#"{ "origins": ["https://a.example", "b.example"] }"#,
            r#"origins[1] must be a URL with a host, such as https://host.example, not "b.example""#
                .to_owned(),
        ),
        (
            r#"{ "publicUrl": "host.example" }"#,
            "publicUrl must be an http or https URL such as https://host.example: relative URL".to_owned(),
        ),
        (r#"{ "publicUrl": "ftp://host.example" }"#, "its scheme is another one".to_owned()),
        (r#"{ "publicUrl": "https://ada:secret@host.example" }"#, "remove the credentials".to_owned()),
        (r#"{ "publicUrl": "https://host.example/?a=b" }"#, "remove the query and the fragment".to_owned()),
        (r#"{ "host": "example.org" }"#, "invalid address example.org".to_owned()),
        (
            r#"{ "host": "0.0.0.0" }"#,
            "0.0.0.0 is reachable from other computers, so connections need a token".to_owned(),
        ),
        (r#"{ "connectionToken": "a", "connectionTokenFile": "b" }"#, "has more than one of".to_owned()),
        (r#"{ "paths": ["/nowhere/at/all"] }"#, format!("{shown}: paths: /nowhere/at/all does not exist")),
        (r#"{ "http": 5 }"#, format!("{shown}: http must be true or an object")),
    ] {
        folder.write("config.json", text);
        refused(&folder.run(&[]), 2, &says);
    }
}

#[test]
fn wrong_arguments_end_with_2() {
    let folder = Folder::new(echo());
    for (arguments, says) in [
        (&["--nope"][..], "unexpected argument '--nope'"),
        (&["--port", "70000"], "invalid value '70000'"),
        (&["--plugin", "x", "--no-plugins"], "cannot be used with"),
        (&["--no-cwd"], "--no-cwd without a directory to serve"),
        (&["--connection-token", "a", "--without-connection-token"], "pass one of"),
        (&["--connection-token", " "], "the connection token is empty"),
        (&["--host", "0.0.0.0"], "connections need a token"),
        (&["--issuer", "http://id.example.org"], "issuer must be github or the https URL"),
        (&["--path", "/nowhere/at/all"], "--path: /nowhere/at/all does not exist"),
        (&["--json"], "--json is not supported in the foreground"),
        (&["--quiet"], "--quiet is not supported in the foreground"),
        (&["--worktrees-root=trees"], "--worktrees-root is not supported by this host"),
    ] {
        refused(&folder.run(arguments), 2, says);
    }
    let says = "wire: cannot write /nowhere/at/all: No such file or directory";
    refused(&folder.run(&["--wire", "/nowhere/at/all"]), 1, says);
    for flag in [&["--json"][..], &["--quiet"], &["--config-file", "c.json"]] {
        let said = format!("{} is not supported by ostler demo; leave it out", flag[0]);
        refused(&ended(program().arg("demo").args(flag)), 2, &said);
    }
    let help = ended(program().args(["demo", "--help"]));
    assert_eq!(help.code, Some(0), "{help:?}");
    assert!(help.out.contains("--keep") && help.out.contains("--no-color"), "{}", help.out);
    for refused in ["--json", "--quiet", "--config-file"] {
        assert!(!help.out.contains(refused), "{refused} is refused, but told: {}", help.out);
    }
    for number in ["0", "two", "-1", ""] {
        let refusal = "TOKIO_WORKER_THREADS: must be a number of threads, at least 1";
        refused(&ended(program().arg("status").env("TOKIO_WORKER_THREADS", number)), 2, refusal);
    }
    let gone = ended(program().args(["--config-file", "/nowhere/config.json"]));
    refused(&gone, 2, "/nowhere/config.json does not exist");
}

#[test]
fn a_key_nobody_knows_is_reported_and_left_out() {
    let folder = Folder::new(json!({
        "plugins": [{ "name": "@ostler/echo", "speed": 3 }], "colour": "red", "stdio": true,
    }));
    let daemon = folder.start();
    let shown = folder.path().join("config.json");
    for line in [
        "unknown key colour; ignored",
        "unknown key plugins[0].speed; ignored",
        "stdio is only allowed on the command line; ignored",
    ] {
        folder.wait_for_log(&format!("{}: {line}", shown.display()));
    }
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
fn it_announces_itself_in_one_block_and_ends_when_told() {
    let folder = Folder::new(json!({
        "plugins": [{ "name": "@ostler/echo" }, { "name": "@ostler/webhook" }, { "name": "./broken.ts" }],
        "connectionTokenFile": "token",
    }));
    folder.write("broken.ts", "export function apply() { throw new Error('not\\ntoday') }");
    let daemon = folder.start();
    let dir = folder.path().display();
    let served = std::fs::canonicalize(folder.path()).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let address = daemon.address();
    assert_eq!(
        daemon.block,
        [
            format!("ostler on ws://{address} (ostler {version}), serving {}", served.display()),
            format!("pid {}", daemon.child.id()),
            format!("automations in {dir}/automations, schedules fire"),
            "plugins echo, webhook".to_owned(),
            format!("config {dir}/config.json"),
            format!("vault {dir}/vault.json"),
            format!("connection token in {dir}/token"),
        ]
    );
    assert_eq!(folder.read("token").trim().len(), 64);
    let mut daemon = daemon;
    let mut skipped = String::new();
    std::io::BufRead::read_line(&mut daemon.out, &mut skipped).unwrap();
    assert!(skipped.starts_with("skipped: plugin broken ") && skipped.contains("not today"), "{skipped:?}");
    assert_eq!(daemon.stop(), Some(0));
    folder.wait_for_log("stopping");
}

#[test]
fn flags_beat_the_configuration() {
    let folder = Folder::new(echo());
    folder.write("elsewhere/note", "");
    let daemon =
        folder.start_with(&["--path", "elsewhere", "--automations", "memory", "--without-connection-token"]);
    assert!(daemon.block[0].ends_with("/elsewhere"), "{:?}", daemon.block);
    assert_eq!(daemon.block[2], "automations in memory, schedules do not fire");
    assert!(
        daemon.block.last().unwrap().starts_with("no connection token: connections from any address"),
        "{:?}",
        daemon.block
    );
}

#[test]
fn the_second_file_is_merged_over_the_first() {
    let folder = Folder::new(echo());
    folder.write("home/ostler/config.json", r#"{ "port": 0, "host": "127.0.0.2", "plugins": [] }"#);
    folder.write(
        "more.json",
        r#"{ "host": "127.0.0.1", "plugins": [{ "name": "@ostler/echo" }], "port": "x" }"#,
    );
    let run = || {
        ended(
            program()
                .env("XDG_CONFIG_HOME", folder.path().join("home"))
                .env("OSTLER_CONFIG", folder.path().join("more.json"))
                .current_dir(folder.path()),
        )
    };
    refused(&run(), 2, "more.json: port must be an integer");
    std::fs::remove_file(folder.path().join("more.json")).unwrap();
    refused(&run(), 2, "more.json does not exist");
    let own = ended(program().env("XDG_CONFIG_HOME", folder.path().join("home")).current_dir(folder.path()));
    refused(&own, 1, "No backend is loaded");
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = Folder::new(echo());
    let port = taken.local_addr().unwrap().port().to_string();
    refused(
        &folder.run(&["--port", &port]),
        1,
        &format!(
            "cannot listen on 127.0.0.1:{port}: it is in use by another program; stop it (find it with ss "
        ),
    );
}

#[test]
fn a_start_and_doctor_name_the_same_remedy_for_an_address() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    for (host, port) in [
        ("127.0.0.1", taken.local_addr().unwrap().port()),
        // An address of documentation, which no computer has.
        ("192.0.2.1", 9187),
    ] {
        let mut config = echo();
        config["host"] = host.into();
        config["port"] = port.into();
        config["connectionToken"] = "0123456789abcdef0123456789abcdef".into();
        let folder = Folder::new(echo());
        folder.write("config.json", &config.to_string());
        let doctor: Value = serde_json::from_str(&folder.run(&["doctor", "--json"]).out).unwrap();
        let checks = doctor["checks"].as_array().unwrap();
        let check = checks.iter().find(|check| check["check"] == "port" && check["state"] == "error");
        let check = check.unwrap_or_else(|| panic!("{host}: {doctor}"));
        let found = check["found"].as_str().unwrap().strip_prefix("cannot listen on ").unwrap();
        let said = format!("cannot listen on {found}; {}", check["fix"].as_str().unwrap());
        assert!(found.starts_with(&format!("{host}:{port}: ")), "{found}");
        for line in [&[][..], &["start"]] {
            let ended = folder.run(line);
            assert_eq!(ended.code, Some(1), "{line:?}: {ended:?}");
            assert!(ended.err.contains(&said), "{line:?}: {said:?} is not in {:?}", ended.err);
        }
    }
}

#[test]
fn over_stdio_too_a_folder_that_is_served_is_left_to_its_host() {
    let folder = Folder::new(echo());
    let daemon = folder.start();
    // Others find it a moment after it said that it is up.
    crate::support::wait_for(|| folder.state_file("daemon.json").exists().then_some(()))
        .expect("it is found");
    let beside = folder.run(&["--stdio"]);
    refused(&beside, 1, "One is already running: ws://");
    let memory = ["--stdio", "--sessions", "memory", "--automations", "memory"];
    let beside = folder.run(&memory);
    assert_eq!(beside.code, Some(0), "{beside:?}");
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
fn a_configuration_named_without_a_folder_is_that_of_the_working_directory() {
    let folder = Folder::new(json!({ "plugins": [{ "name": "@ostler/echo" }, { "name": "gone" }] }));
    let ended = ended(
        program().args(["--config-file", "config.json", "--plugin", "gone"]).current_dir(folder.path()),
    );
    let dir = folder.path().canonicalize().unwrap();
    refused(&ended, 1, &format!("Plugin gone is not installed in {}; run npm install there", dir.display()));
}

#[cfg(unix)]
#[test]
fn a_demonstration_that_is_told_to_stop_leaves_nothing() {
    let elsewhere = tempfile::tempdir().unwrap();
    let mut demo = program()
        .args(["demo", "--keep"])
        .env("TMPDIR", elsewhere.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let out = std::io::BufReader::new(demo.stdout.take().unwrap());
    let serving = std::io::BufRead::lines(out)
        .map(Result::unwrap)
        .find_map(|line| line.strip_prefix("Serving on ws://")?.split(' ').next().map(str::to_owned))
        .expect("it serves");
    assert!(std::net::TcpStream::connect(&serving).is_ok());
    crate::support::tell(demo.id(), crate::support::Signal::TERM);
    assert_eq!(demo.wait().unwrap().code(), Some(0));
    assert!(std::net::TcpStream::connect(&serving).is_err(), "its host is gone");
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}

#[test]
fn the_demonstration_ends_well_and_leaves_nothing() {
    let elsewhere = tempfile::tempdir().unwrap();
    let demo = ended(program().arg("demo").env("TMPDIR", elsewhere.path()));
    assert_eq!(demo.code, Some(0), "{demo:?}");
    for said in [
        "plugin push-notes from ",
        "202 {\"endpoint\":\"github-push\"}",
        "[tool call push_notes]",
        "- Sweep the yard before dawn (b4c9d1c)",
        "The run completed at ",
        "\ncurl -i http://127.0.0.1:",
    ] {
        assert!(demo.out.contains(said), "{said:?} is not in {}", demo.out);
    }
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}

#[test]
fn the_demonstration_works_in_a_folder_named_from_here() {
    let here = tempfile::tempdir().unwrap();
    let demo = ended(program().args(["demo", "--dir", "here"]).current_dir(here.path()));
    assert_eq!(demo.code, Some(0), "{demo:?}");
    assert!(demo.out.contains("The run completed at "), "{}", demo.out);
    assert!(here.path().join("here/config.json").is_file(), "a named folder is left");
}

#[cfg(target_os = "linux")]
#[test]
fn it_takes_as_many_files_as_it_may_have() {
    let folder = Folder::new(echo());
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "ulimit -Sn 64 && ulimit -Hn 4096 && exec \"$0\" \"$@\""])
        .arg(program().get_program())
        .arg("--config-file")
        .arg(folder.path().join("config.json"));
    let daemon = folder.started(shell);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", daemon.child.id())).unwrap();
    let files: Vec<&str> =
        limits.lines().find(|line| line.starts_with("Max open files")).unwrap().split_whitespace().collect();
    assert_eq!(files[3..5], ["4096", "4096"]);
}

#[test]
fn a_key_that_only_other_hosts_have_ends_the_start() {
    for (key, value) in [
        ("worktreesRoot", json!("trees")),
        ("updateCheck", json!(false)),
        ("closedChats", json!("delete")),
        ("proxy", json!({})),
    ] {
        let mut config = echo();
        config[key] = value;
        let ended = Folder::new(config).run(&[]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        let why = format!("config.json: {key} is not supported by this host; remove it");
        assert!(ended.err.contains(&why), "{}", ended.err);
    }
}
