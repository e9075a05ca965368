//! `ostler agent list` and `ostler agent check`, with a running daemon and without one.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Map, Value, json};

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
    assert_eq!(json_of(&folder, &["session", "list"], 0), json!({ "sessions": [] }));
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
            // The agent itself is sound.
            let report = json_of(&folder, &["agent", "check", "fake"], i32::from(!wins));
            let expected = if wins { "ready" } else { "unavailable" };
            assert_eq!(report["state"], expected, "{report}");
            if !wins {
                let problem =
                    format!("{why}; rename agents.fake, or remove that plugin", why = why.as_str().unwrap());
                assert_eq!(report["problem"], json!(problem));
                let text = folder.run(&["agent", "check", "fake"]).out;
                assert_eq!(text, format!("fake: fake, not available\n  problem    {problem}\n"));
            }
            if let Some(daemon) = daemon {
                assert_eq!(daemon.stop(), Some(0));
            }
        }
    }
}

#[test]
fn an_agent_that_is_left_out_says_why_wherever_it_is_named() {
    let own = agent::entry(json!({}));
    let agents =
        json!({ "sound": own, "session": own, "Up.Per": own, "bare": {}, "other": { "preset": "nothing" } });
    let options = json!({ "agents": agents, "presets": ["nowhere"] });
    let folder = Folder::new(json!({ "plugins": [{ "name": "@ostler/acp", "options": options }] }));
    for running in [false, true] {
        let daemon = running.then(|| folder.start());
        let listed = json_of(&folder, &["agent", "list"], 0);
        let rows = listed["agents"].as_array().unwrap();
        for (provider, why, remedy) in [
            ("session", "reserved", "rename agents.session"),
            ("Up.Per", "lowercase letters, digits and dashes", "rename agents.Up.Per"),
            ("bare", "needs a command or a preset", "correct agents.bare"),
            ("other", "there is no preset \"nothing\"", "correct agents.other"),
            (
                "nowhere",
                "there is no such preset; the presets are claude-acp",
                "correct nowhere in the option presets",
            ),
        ] {
            let report = json_of(&folder, &["agent", "check", provider], 1);
            assert_eq!(report["state"], "unavailable", "{report}");
            let problem = report["problem"].as_str().unwrap();
            assert!(problem.contains(why) && problem.ends_with(&format!("; {remedy}")), "{problem}");
            let row = rows.iter().find(|row| row["provider"] == provider).expect(provider);
            assert!(row["unavailable"].as_str().unwrap().contains(why), "{row}");
            let ended = folder.run(&["agent", "sessions", provider]);
            assert_eq!(ended.code, Some(2), "{ended:?}");
            assert!(ended.err.contains(&format!("{provider} is not available: ")), "{ended:?}");
        }
        assert_eq!(json_of(&folder, &["agent", "check", "sound"], 0)["state"], "ready");
        if let Some(daemon) = daemon {
            assert_eq!(daemon.stop(), Some(0));
        }
    }
}

#[test]
fn an_entry_that_the_host_leaves_out_says_why_and_the_others_load() {
    let own = agent::entry(json!({}));
    let mut secret = own.clone();
    secret["env"]["KEY"] = json!({ "$secret": "host:missing" });
    let mut odd = own.clone();
    odd["evn"] = json!({});
    let agents = json!({ "sound": odd, "keyless": secret, "gemini": { "command": 5 }, "none": 7 });
    let folder = Folder::new(
        json!({ "plugins": [{ "name": "@ostler/acp", "options": { "agents": agents, "presets": ["gemini"] } }] }),
    );
    for running in [false, true] {
        let daemon = running.then(|| folder.start());
        let listed = json_of(&folder, &["agent", "list"], 0);
        let rows = listed["agents"].as_array().unwrap();
        assert_eq!(rows.len(), 4, "{listed}");
        for (provider, why) in [
            (
                "keyless",
                "agents.keyless.env.KEY names host:missing: the vault holds no host:missing; set it with: ostler vault set \
                 host:missing",
            ),
            ("gemini", "agents.gemini.command must be text; correct it"),
            ("none", "agents.none must be an object; correct it"),
        ] {
            let report = json_of(&folder, &["agent", "check", provider], 1);
            assert_eq!(
                (&report["state"], &report["problem"]),
                (&json!("unavailable"), &json!(why)),
                "{report}"
            );
            let row = rows.iter().find(|row| row["provider"] == provider).expect(provider);
            assert!(why.starts_with(row["unavailable"].as_str().unwrap()), "{row}");
        }
        let report = json_of(&folder, &["agent", "check", "sound"], 0);
        let odd = "agents.sound.evn is not a member of an agent and is ignored; did you mean env?";
        assert_eq!((&report["state"], &report["warnings"]), (&json!("ready"), &json!([odd])), "{report}");
        if let Some(daemon) = daemon {
            assert_eq!(daemon.stop(), Some(0));
        }
    }
    // Of options beside the entries the whole plugin is in doubt.
    let folder = Folder::new(json!({ "plugins": [{ "name": "@ostler/acp", "options": { "presets": 5 } }] }));
    let ended = folder.run(&["agent", "check", "sound"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.err.contains("@ostler/acp is configured and not loaded"), "{ended:?}");
}

#[test]
fn a_program_that_is_there_and_cannot_run_is_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    fs::write(&script, "#!/no/such/interpreter -x\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    for (command, why) in [
        (script.as_path(), "exists, but /no/such/interpreter, the interpreter in its first line, is missing"),
        (folder.path(), "is a directory, not a program"),
    ] {
        for scope in ["auto", "group"] {
            let options = json!({ "scope": scope, "agents": { "fake": { "command": command } } });
            let configured =
                Folder::new(json!({ "plugins": [{ "name": "@ostler/acp", "options": options }] }));
            let report = json_of(&configured, &["agent", "check", "fake"], 1);
            let told = format!(
                "fake cannot start: {} {why}; correct that, or agents.fake.command",
                command.display()
            );
            assert_eq!(report["problem"], told, "{scope}");
        }
    }
}

/// The command line that an entry of the registry means.
fn command_line(preset: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let (mut words, of, from) = match &preset["distribution"] {
        of if of["npx"].is_object() => (vec!["npx".to_owned(), "--yes".to_owned()], &of["npx"], "--package"),
        of => (vec!["uvx".to_owned()], &of["uvx"], "--from"),
    };
    for with in preset["_meta"]["ostler"]["with"].as_array().into_iter().flatten() {
        words.extend(["--with".to_owned(), text(with)]);
    }
    if of["cmd"].is_string() {
        words.push(from.to_owned());
    }
    words.push(text(&of["package"]));
    words.extend(of["cmd"].as_str().map(str::to_owned));
    words.extend(of["args"].as_array().into_iter().flatten().map(text));
    words.join(" ")
}

#[test]
fn every_preset_is_started_with_npx_or_uvx() {
    // Both note their command line and become the agent.
    let folder = tempfile::tempdir().unwrap();
    let (log, own) = (folder.path().join("log"), agent::entry(json!({})));
    let script = format!(
        "#!/bin/sh\necho \"${{0##*/}} $*\" >> {}\n{}\n",
        log.display(),
        own["args"][1].as_str().unwrap()
    );
    for runner in ["npx", "uvx"] {
        let file = folder.path().join(runner);
        fs::write(&file, &script).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let env = json!({ "PATH": path, "FAKE_AGENT": own["env"]["FAKE_AGENT"] });
    let presets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugins/acp/presets");
    let read = |file: &Path| serde_json::from_str::<Value>(&fs::read_to_string(file).unwrap()).unwrap();
    let mut presets: Vec<Value> = fs::read_dir(presets)
        .unwrap()
        .flatten()
        .map(|entry| read(&entry.path().join("agent.json")))
        .collect();
    // One of a newer registry, without a release.
    let newer = json!({ "id": "brand-new", "name": "Brand New", "version": "1.0.0",
        "distribution": { "uvx": { "package": "brand-new==1.0.0", "args": ["acp"], "env": { "HAY": "x" } } } });
    let registry = folder.path().join("registry.json");
    fs::write(&registry, json!({ "version": "1.0.0", "agents": [newer] }).to_string()).unwrap();
    presets.push(newer);
    let ids = presets.iter().map(|preset| preset["id"].as_str().unwrap().to_owned());
    let agents: Map<String, Value> = ids.map(|id| (id, json!({ "env": env }))).collect();
    let options = json!({ "agents": agents, "registry": registry });
    let configured = Folder::new(json!({ "plugins": [{ "name": "@ostler/acp", "options": options }] }));
    let mut runners = Vec::new();
    for preset in &presets {
        fs::write(&log, "").unwrap();
        let report = json_of(&configured, &["agent", "check", preset["id"].as_str().unwrap()], 0);
        assert_eq!((&report["state"], &report["name"]), (&json!("ready"), &preset["name"]), "{report}");
        let line = command_line(preset);
        assert_eq!(fs::read_to_string(&log).unwrap(), format!("{line}\n"));
        runners.extend(line.split_once(' ').map(|(runner, _)| runner.to_owned()));
    }
    assert!(runners.contains(&"npx".to_owned()) && runners.contains(&"uvx".to_owned()), "{runners:?}");
}
