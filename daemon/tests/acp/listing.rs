//! `ostler agent list` and `ostler agent check`, with a running daemon and without one.

use serde_json::{Value, json};

use crate::agent;
use crate::support::Folder;

fn folder(entry: Value) -> Folder {
    Folder::new(config(entry))
}

fn config(entry: Value) -> Value {
    let options = json!({ "agents": { "fake": entry }, "startTimeoutSeconds": 20 });
    json!({ "plugins": [{ "name": "@ostler/acp", "options": options }, { "name": "@ostler/echo" }] })
}

fn json_of(folder: &Folder, arguments: &[&str], code: i32) -> Value {
    let ended = folder.run(&[arguments, &["--json"]].concat());
    assert_eq!(ended.code, Some(code), "{ended:?}");
    serde_json::from_str(&ended.out).unwrap_or_else(|why| panic!("{why}: {ended:?}"))
}

#[test]
fn a_check_reports_what_an_agent_supports_and_the_list_remembers_it() {
    let initialize = json!({ "agentInfo": { "name": "fake", "version": "2.1.0" },
        "agentCapabilities": { "loadSession": true, "promptCapabilities": { "image": true } } });
    let new =
        json!({ "models": { "currentModelId": "m", "availableModels": [{ "modelId": "m", "name": "M" }] } });
    let folder = folder(agent::entry(json!({ "initialize": initialize, "new": new })));
    for running in [false, true] {
        let daemon = running.then(|| folder.start());
        let report = json_of(&folder, &["agent", "check", "fake", "--prompt", "!say seven"], 0);
        assert_eq!((&report["state"], &report["version"]), (&json!("ready"), &json!("2.1.0")), "{report}");
        assert_eq!(report["models"], json!(["m"]));
        let supports = |member: &str| report["supports"][member] == true;
        assert!(
            supports("load") && supports("image") && supports("mcpHttp") && !supports("resume"),
            "{report}"
        );
        assert_eq!(report["answer"], json!({ "text": "seven", "stopReason": "end_turn" }));
        let missing = report["missing"].to_string();
        assert!(missing.contains("additional directories") && !missing.contains("images"), "{missing}");
        let listed = json_of(&folder, &["agent", "list"], 0);
        let rows = listed["agents"].as_array().unwrap();
        assert_eq!(
            (&rows[0]["provider"], &rows[0]["version"]),
            (&json!("fake"), &json!("2.1.0")),
            "{listed}"
        );
        assert_eq!((&rows[1]["provider"], &rows[1]["acp"]), (&json!("echo"), &json!(false)));
        assert!(listed["presets"].as_array().unwrap().contains(&json!("gemini")), "{listed}");
        if let Some(daemon) = daemon {
            assert_eq!(daemon.stop(), Some(0));
        }
    }
    let text = folder.run(&["agent", "list"]).out;
    assert!(text.starts_with("fake: fake, version 2.1.0, supports load, images, MCP over HTTP\n"), "{text}");
}

#[test]
fn another_command_line_is_not_the_agent_that_was_checked() {
    let folder = folder(agent::entry(json!({})));
    json_of(&folder, &["agent", "check", "fake"], 0);
    assert!(json_of(&folder, &["agent", "list"], 0)["agents"][0]["supports"].is_object());
    let ended = folder.run(&["plugin", "config", "acp", "agents.fake.args", r#"["-c", "exit 1"]"#]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let listed = json_of(&folder, &["agent", "list"], 0);
    assert_eq!(listed["agents"][0].get("supports"), None, "{listed}");
}

#[test]
fn a_new_version_drops_what_the_earlier_one_reported() {
    // The version is in a variable: the command line stays the same.
    let entry = |version: &str, new: Value| {
        agent::entry(json!({ "initialize": { "agentInfo": { "version": version } }, "new": new }))
    };
    let modes = json!({ "modes": { "currentModeId": "a", "availableModes": [{ "id": "a", "name": "A" }] } });
    let folder = folder(entry("1", modes));
    assert_eq!(json_of(&folder, &["agent", "check", "fake"], 0)["modes"], json!(["a"]));
    assert_eq!(json_of(&folder, &["agent", "list"], 0)["agents"][0]["modes"], json!(["a"]));
    folder.write("config.json", &config(entry("2", json!({}))).to_string());
    json_of(&folder, &["agent", "check", "fake"], 0);
    let listed = json_of(&folder, &["agent", "list"], 0);
    assert_eq!((&listed["agents"][0]["version"], listed["agents"][0].get("modes")), (&json!("2"), None));
}

#[test]
fn a_check_names_what_is_missing() {
    let missing = folder(json!({ "preset": "gemini", "env": { "PATH": "/nowhere" } }));
    let report = json_of(&missing, &["agent", "check", "fake"], 1);
    assert_eq!(report["state"], "notInstalled");
    assert_eq!(report["install"], "install Node.js, which brings npx");
    let listed = missing.run(&["agent", "list"]).out;
    assert!(
        listed.starts_with("fake: Gemini CLI, not installed; install Node.js, which brings npx\n"),
        "{listed}"
    );

    let required = json!({ "code": -32000, "message": "Authentication required" });
    let methods = json!([{ "id": "key", "name": "API key", "description": "Set HAY_KEY" },
        { "id": "t", "type": "terminal", "name": "Terminal", "args": ["login"] }]);
    let entry = agent::entry(
        json!({ "initialize": { "authMethods": methods }, "refuse": { "session/new": required } }),
    );
    let signed_out = folder(entry);
    let report = json_of(&signed_out, &["agent", "check", "fake"], 1);
    assert_eq!(report["state"], "notSignedIn");
    assert_eq!(
        report["authMethods"][0],
        json!({ "id": "key", "name": "API key", "description": "Set HAY_KEY" })
    );
    assert!(report["authMethods"][1]["command"].as_str().unwrap().ends_with(" login"), "{report}");
    let text = signed_out.run(&["agent", "check", "fake"]).out;
    assert!(text.starts_with("fake: fake, not signed in\n"), "{text}");
    assert!(
        text.contains("  sign in    ostler agent login fake --method key (API key: Set HAY_KEY)\n"),
        "{text}"
    );

    let failing = folder(agent::entry(json!({ "exitOn": "initialize" })));
    let report = json_of(&failing, &["agent", "check", "fake"], 1);
    assert_eq!(report["state"], "failed");
    assert!(report["problem"].as_str().unwrap().starts_with("fake ended with exit code 9"), "{report}");
}

#[test]
fn a_check_leaves_no_session_and_grants_nothing() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let sessions = json!({ "agentCapabilities": { "sessionCapabilities": { "close": {}, "delete": {} } } });
    let folder = folder(agent::entry(json!({ "log": log.path(), "initialize": sessions })));
    let ask = json!({ "toolCall": { "toolCallId": "c", "title": "rm" },
        "options": [{ "optionId": "yes", "name": "Yes", "kind": "allow_once" }] });
    let daemon = folder.start();
    let prompt = format!("!request session/request_permission {ask}");
    let report = json_of(&folder, &["agent", "check", "fake", "--prompt", &prompt], 0);
    assert_eq!(report["answer"]["text"], json!({ "outcome": { "outcome": "cancelled" } }).to_string());
    let sent = std::fs::read_to_string(log.path()).unwrap();
    assert!(sent.contains("session/close") && sent.contains("session/delete"), "{sent}");
    assert_eq!(json_of(&folder, &["session", "list"], 0), json!([]));
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
fn an_agent_that_is_not_configured_is_refused_with_the_configured_ones() {
    let folder = folder(agent::entry(json!({})));
    for running in [false, true] {
        let _daemon = running.then(|| folder.start());
        let ended = folder.run(&["agent", "check", "nobody"]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(
            ended.err.contains("unknown ACP agent \"nobody\"; the configured ones are: fake"),
            "{ended:?}"
        );
    }
    let none = Folder::new(json!({ "plugins": [{ "name": "@ostler/echo" }] }));
    let ended = none.run(&["agent", "check", "fake"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.err.contains("ostler plugin install @ostler/acp"), "{ended:?}");
}

#[test]
fn a_check_may_take_longer_than_other_requests() {
    let options = json!({ "agents": { "fake": agent::entry(json!({})) } });
    let folder = Folder::new(json!({ "plugins": [{ "name": "@ostler/acp", "options": options }] }));
    let _daemon = folder.start();
    // A client waits 30 seconds for other answers.
    let ended = folder.run(&["agent", "check", "fake", "--prompt", "!sleep 31000\n!say hay"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.out.contains("  reply      hay\n"), "{ended:?}");
}

#[test]
fn an_agent_whose_name_another_plugin_has_is_not_shown_as_available() {
    let other = "export const name = 'other'
export const apply = (host) => host.registerAgent({ provider: 'fake', displayName: 'Other',
  schema: () => ({ type: 'object', properties: {} }), defaults: () => ({}), create: () => ({ begin() {}, cancel() {}, close() {} }) })";
    let options = json!({ "agents": { "fake": agent::entry(json!({})), "sound": agent::entry(json!({})) } });
    let acp = json!({ "name": "@ostler/acp", "options": options });
    let why = "another plugin has an agent or a URI scheme of this name";
    for (first, wins) in [(true, false), (false, true)] {
        let beside = json!({ "name": "./other.mjs" });
        let plugins = if first { [beside, acp.clone()] } else { [acp.clone(), beside] };
        let folder = Folder::new(json!({ "plugins": plugins }));
        folder.write("other.mjs", other);
        for running in [false, true] {
            let daemon = running.then(|| folder.start());
            let listed = json_of(&folder, &["agent", "list"], 0);
            let rows: Vec<(&Value, &Value, &Value, &Value)> = listed["agents"]
                .as_array()
                .unwrap()
                .iter()
                .map(|row| (&row["provider"], &row["name"], &row["acp"], &row["unavailable"]))
                .collect();
            let (fake, sound) = (json!("fake"), json!("sound"));
            let (yes, no, none, why) = (json!(true), json!(false), Value::Null, json!(why));
            let other = json!("Other");
            let expected = match wins {
                true => vec![(&fake, &fake, &yes, &none), (&sound, &sound, &yes, &none)],
                false => vec![
                    (&fake, &other, &no, &none),
                    (&sound, &sound, &yes, &none),
                    (&fake, &fake, &yes, &why),
                ],
            };
            assert_eq!(rows, expected, "{listed}");
            let text = folder.run(&["agent", "list"]).out;
            let shown = "fake: fake, not available: another plugin has an agent or a URI scheme of this name; \
                         rename agents.fake, or remove that plugin\n";
            assert_eq!(text.contains(shown), !wins, "{text}");
            if let Some(daemon) = daemon {
                assert_eq!(daemon.stop(), Some(0));
            }
        }
    }
}
