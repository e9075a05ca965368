//! What is wrong with a running daemon is shown wherever its health is.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Daemon, Ended, Folder, wait_for};

const CALLED: &str = "---\ntitle: Calls of hub\nsession: { provider: echo }\ntriggers:\n  - { id: t, kind: KIND, type: webhook, \
     title: Call, events: [{ id: call }], config: { endpoint: hub } }\n---\n{{event.ref}}\n";

fn config() -> Value {
    json!({ "plugins": [{ "name": "@ostler/echo" }, { "name": "@ostler/webhook" }] })
}

/// Makes the host know users. Its commands have the connection token.
fn users(config: &mut Value) {
    config["users"] = "users.json".into();
    config["connectionTokenFile"] = "token".into();
}

/// What is wrong with a folder, and the list that shows it.
struct Case {
    of: &'static str,
    config: Value,
    file: Option<(&'static str, String)>,
    says: &'static str,
    list: &'static [&'static str],
}

fn cases() -> Vec<Case> {
    let with = |change: &dyn Fn(&mut Value)| {
        let mut config = config();
        change(&mut config);
        config
    };
    let user = |roles: &str| {
        format!(
            "{{ \"users\": [{{ \"id\": \"ann\", {roles} }}], \"roles\": {{ \"dev\": [\"sesion:read\"] }} }}"
        )
    };
    vec![
        Case {
            of: "a mistake in a trigger",
            config: config(),
            file: Some(("automations/hub.md", CALLED.replace("KIND", "evnt"))),
            says: "hub.md: triggers",
            list: &["automation", "list"],
        },
        Case {
            of: "a schedule without a next time",
            config: config(),
            file: Some((
                "automations/never.md",
                "---\ntitle: Never\nsession: { provider: echo }\ntriggers:\n  - { id: t, kind: schedule, title: S, \
                 schedule: { expression: '0 0 30 2 *' } }\n---\nx\n"
                    .to_owned(),
            )),
            says: "never fires",
            list: &["automation", "list"],
        },
        Case {
            of: "an endpoint that cannot be read",
            config: config(),
            file: Some(("webhooks/hub.md", "---\nid: hub\nautomation: [\n---\n".to_owned())),
            says: "hub.md:",
            list: &["webhook", "list"],
        },
        Case {
            of: "a plugin that is skipped",
            config: with(&|config| {
                let plugins = config["plugins"].as_array_mut().unwrap();
                plugins.push(json!({ "name": "@ostler/terminal", "options": { "shellIntegration": "yes" } }));
            }),
            file: None,
            says: "plugins.terminal.options.shellIntegration",
            list: &["plugin", "list"],
        },
        Case {
            of: "an option that no plugin knows",
            config: with(&|config| config["plugins"][0]["options"] = json!({ "delays": 1 })),
            file: None,
            says: "is not an option echo knows; passed through",
            list: &["plugin", "list"],
        },
        Case {
            of: "policies that cannot be read",
            config: with(&|config| {
                users(config);
                config["policies"] = json!({ "check": true });
            }),
            file: Some(("policies.json", "[{".to_owned())),
            says: "cannot read the policies",
            list: &["user", "list"],
        },
        Case {
            of: "a grant of no kind",
            config: with(&|config| users(config)),
            file: Some(("users.json", user("\"roles\": [\"dev\"]"))),
            says: "sesion:read",
            list: &["user", "list"],
        },
        Case {
            of: "a member of a user that nothing reads",
            config: with(&|config| users(config)),
            file: Some(("users.json", user("\"role\": [\"dev\"]"))),
            says: "role",
            list: &["user", "list"],
        },
    ]
}

fn running(folder: &Folder) -> Daemon {
    let daemon = folder.start();
    wait_for(|| (folder.run(&["status"]).code == Some(0)).then_some(())).expect("the daemon is found");
    daemon
}

#[track_caller]
fn says(ended: &Ended, what: &str, of: &str) {
    assert!(ended.out.contains(what) || ended.err.contains(what), "{of}: {what} is not in {ended:?}");
}

#[test]
fn what_is_wrong_is_shown_wherever_health_is() {
    for Case { of, config, file, says: what, list } in cases() {
        let folder = Folder::new(config.clone());
        folder.write("users.json", "{ \"users\": [], \"roles\": {} }");
        if let Some((file, text)) = &file {
            folder.write(file, text);
        }
        // Without a daemon, doctor reads the files.
        says(&folder.run(&["doctor"]), what, of);
        let started = folder.run(&["start"]);
        says(&started, what, of);
        assert_eq!(started.code, Some(0), "{of}: {started:?}");
        for line in [&["status"], &["doctor"], list] {
            says(&folder.run(line), what, of);
        }
        let status: Value = serde_json::from_str(&folder.run(&["status", "--json"]).out).unwrap();
        let problems = status["problems"].as_array().unwrap();
        let is_it = |problem: &&Value| problem["found"].as_str().unwrap().contains(what);
        let problem = problems.iter().find(is_it).unwrap_or_else(|| panic!("{of}: {status}"));
        assert!(problem["fix"].is_string() && problem["since"].is_string(), "{of}: {problem}");
        // Once it is repaired while the daemon runs, nothing is wrong.
        if let Some((file, _)) = file.filter(|(file, _)| !file.ends_with(".json")) {
            fs::remove_file(folder.path().join(file)).unwrap();
            wait_for(|| (!folder.run(&["status"]).out.contains(what)).then_some(())).expect(of);
        }
        assert_eq!(folder.run(&["stop"]).code, Some(0), "{of}");
    }
}

#[test]
fn a_session_that_cannot_be_read_is_said() {
    let folder = Folder::new(config());
    let daemon = running(&folder);
    assert_eq!(folder.run(&["session", "send", "--new", "hello"]).code, Some(0));
    assert_eq!(daemon.stop(), Some(0));
    let db = rusqlite::Connection::open(folder.state_file("state.db")).unwrap();
    db.execute("UPDATE sessions SET kept = json_set(kept, '$.provider', 1)", []).unwrap();
    drop(db);
    let daemon = running(&folder);
    for line in [&["session", "list"][..], &["status"], &["doctor"]] {
        says(&folder.run(line), "cannot read the stored session", "a damaged row");
    }
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
fn a_vault_that_is_edited_wrongly_is_said_before_it_is_used() {
    let folder = Folder::new(config());
    let daemon = running(&folder);
    folder.write("vault.json", "{");
    says(&folder.run(&["status"]), "the vault is unavailable", "an edit");
    folder.write("vault.json", "{}");
    assert!(!folder.run(&["status"]).out.contains("vault"));
    assert_eq!(daemon.stop(), Some(0));
}

#[tokio::test]
async fn calls_that_start_nothing_are_a_problem_until_an_automation_waits_for_them() {
    let folder = Folder::new(config());
    folder.write("webhooks/hub.md", "---\nid: hub\nautomation: true\nsecret: host:hub\n---\n");
    folder.write("vault.json", r#"{ "host:hub": "right" }"#);
    folder.write("automations/hub.md", &CALLED.replace("KIND", "evnt"));
    let daemon = running(&folder);
    let (status, _) = daemon.post("/plugins/webhook/hub", Some("right"), "{}").await;
    assert_eq!(status, 202);
    let what = "events of type webhook with endpoint: \"hub\" start nothing";
    says(&folder.run(&["webhook", "list"]), what, "a call that started nothing");
    folder.write("automations/hub.md", &CALLED.replace("KIND", "event"));
    wait_for(|| (!folder.run(&["status"]).out.contains("hub")).then_some(())).expect("it is repaired");
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
fn a_plugin_that_the_start_skipped_is_not_ready() {
    let mut config = config();
    let skipped = json!({ "name": "@ostler/terminal", "options": { "shellIntegration": "yes" } });
    config["plugins"].as_array_mut().unwrap().push(skipped);
    let folder = Folder::new(config);
    let daemon = running(&folder);
    let rows: Value = serde_json::from_str(&folder.run(&["plugin", "list", "--json"]).out).unwrap();
    assert_eq!(rows[2]["state"], "error", "{rows}");
    let doctor = folder.run(&["doctor"]).out;
    assert!(!doctor.contains("ok       plugins        terminal"), "{doctor}");
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
fn a_host_that_tells_commands_nothing_says_so() {
    let mut config = config();
    config["users"] = "users.json".into();
    let folder = Folder::new(config);
    folder.write("users.json", "{ \"users\": [], \"roles\": {} }");
    for line in ["start", "status", "doctor"] {
        says(&folder.run(&[line]), "cannot read the problems of the daemon", line);
    }
    assert_eq!(folder.run(&["stop"]).code, Some(0));
}

#[test]
fn a_configuration_that_changed_since_the_start_is_said() {
    let folder = Folder::new(config());
    let daemon = running(&folder);
    assert!(!folder.run(&["status"]).out.contains("has changed since the start"));
    let before = folder.read("config.json");
    let mut changed: Value = serde_json::from_str(&before).unwrap();
    changed["deltaWindowMs"] = 5.into();
    folder.write("config.json", &changed.to_string());
    says(&folder.run(&["doctor"]), "the configuration has changed since the start: deltaWindowMs", "an edit");
    folder.write("config.json", "{");
    says(&folder.run(&["status"]), "the configuration can no longer be read", "a broken edit");
    folder.write("config.json", &before);
    assert!(!folder.run(&["status"]).out.contains("since the start"));
    assert_eq!(daemon.stop(), Some(0));
}
