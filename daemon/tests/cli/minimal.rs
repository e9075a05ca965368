//! A program that was built without optional parts says so wherever one of them is asked for.

use crate::support::{Ended, Folder};
use serde_json::{Value, json};

const PARTS: [&str; 6] = ["acp", "console", "containers", "git", "github", "postgres"];

fn spec(part: &str) -> String {
    format!("@ostler/{part}")
}

/// What is said of a plugin in the configuration.
fn sentence(part: &str) -> String {
    format!(
        "this ostler was built without {part}; install a build with it or remove {} from the configuration",
        spec(part)
    )
}

#[track_caller]
fn refused(ended: &Ended, code: i32, says: &str) {
    assert_eq!(ended.code, Some(code), "{ended:?}");
    assert!(ended.err.contains(says), "{says:?}: {ended:?}");
}

fn json_of(ended: &Ended) -> Value {
    serde_json::from_str(&ended.out).unwrap_or_else(|why| panic!("{why}: {ended:?}"))
}

#[test]
fn a_configured_part_is_named_at_the_start_by_the_doctor_and_in_the_list() {
    let named: Vec<&str> = PARTS.into_iter().filter(|part| *part != "postgres").collect();
    let mut plugins = vec![json!({ "name": "@ostler/echo" })];
    plugins.extend(named.iter().map(|part| json!({ "name": spec(part) })));
    let folder = Folder::new(json!({ "plugins": plugins }));

    let doctor = json_of(&folder.run(&["doctor", "--json"]));
    let checks = doctor["checks"].as_array().unwrap();
    for part in &named {
        let found = |check: &&Value| check["found"].as_str().unwrap_or_default().ends_with(&sentence(part));
        let check = checks.iter().find(found).unwrap_or_else(|| panic!("{part}: {doctor:#}"));
        assert_eq!((&check["check"], &check["state"]), (&json!("plugins"), &json!("error")), "{check}");
        let fix = format!("install a build with it, or ostler plugin remove {}", spec(part));
        assert_eq!(check["fix"], json!(fix));
    }
    let without = format!(", without {}", PARTS.join(", "));
    let is_version = |check: &Value| check["found"].as_str().unwrap_or_default().ends_with(&without);
    assert!(checks.iter().any(is_version), "{doctor:#}");

    let rows = json_of(&folder.run(&["plugin", "list", "--json"]));
    for part in &named {
        let row = rows.as_array().unwrap().iter().find(|row| row["name"] == json!(spec(part))).unwrap();
        assert_eq!(row["state"], "missing", "{row}");
        assert!(row["problem"].as_str().unwrap().ends_with(&sentence(part)), "{row}");
    }

    let daemon = folder.start();
    for part in &named {
        assert!(
            daemon.block.iter().any(|line| line.ends_with(&sentence(part))),
            "{part}: {:?}",
            daemon.block
        );
    }
    let running = json_of(&folder.run(&["plugin", "list", "--json"]));
    for part in &named {
        let row = running.as_array().unwrap().iter().find(|row| row["name"] == json!(spec(part))).unwrap();
        assert!(row["problem"].as_str().unwrap().ends_with(&sentence(part)), "{row}");
    }
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
fn a_host_whose_data_is_in_a_database_does_not_start_without_it() {
    let options = json!({ "url": "postgres://127.0.0.1:1/none" });
    let plugins = json!([{ "name": spec("postgres"), "options": options }, { "name": "@ostler/echo" }]);
    let folder = Folder::new(json!({ "plugins": plugins }));
    refused(&folder.run(&["start"]), 1, &sentence("postgres"));
    for line in [
        &["vault", "list"][..],
        &["user", "list"],
        &["webhook", "list"],
        &["files", "export"],
        &["migrate", "--to", "files"],
    ] {
        refused(&folder.run(line), 1, &sentence("postgres"));
    }
    let doctor = json_of(&folder.run(&["doctor", "--json"]));
    let is_told = |check: &Value| {
        check["check"] == "database"
            && check["found"].as_str().unwrap_or_default().contains("was built without postgres")
    };
    assert!(doctor["checks"].as_array().unwrap().iter().any(is_told), "{doctor:#}");
}

#[test]
fn a_part_is_neither_installed_nor_looked_for_in_a_registry() {
    let folder = Folder::new(json!({ "plugins": [{ "name": "@ostler/echo" }] }));
    let before = folder.read("config.json");
    for part in PARTS {
        refused(&folder.run(&["plugin", "install", &spec(part)]), 1, &sentence(part));
    }
    assert_eq!(folder.read("config.json"), before);

    let home = tempfile::tempdir().unwrap();
    let init = |agent: &str| {
        let mut command = crate::support::program();
        command.args(["init", "--agent", agent]).env("HOME", home.path()).env("PATH", home.path());
        crate::support::ended(command.current_dir(home.path()).env_remove("XDG_STATE_HOME"))
    };
    refused(&init("claude-acp"), 2, "claude-acp is unknown: this ostler was built without acp");
    refused(&init("ehco"), 2, "did you mean echo?");
    assert!(!home.path().join(".config").exists());
}

#[test]
fn commands_of_a_part_say_that_it_is_missing() {
    let folder = Folder::new(json!({ "plugins": [{ "name": "@ostler/echo" }] }));
    for line in ["acp", "mcp-bridge"] {
        refused(&folder.run(&[line]), 1, "this ostler was built without acp; install a build with it");
    }
}
