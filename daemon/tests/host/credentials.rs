//! Options of plugins as clients see and change them, over a real daemon: what is marked is never said, what is
//! sent back replaces what it says.

use crate::support::{Client, Daemon, Folder, ended, program};
use proptest::prelude::*;
use serde_json::{Value, json};

const TOKEN: &str = "the-connection-token";

const NOTES: &str = r"
    export const name = 'notes';
    export const title = 'Notes';
    export const defaults = { size: 3 };
    export const optionsSchema = { properties: {
        key: { type: 'string', writeOnly: true, default: 'SECRET-default' },
        size: { type: 'integer' },
        env: { type: 'object', additionalProperties: { type: 'string', writeOnly: true } },
        later: { type: 'object', secretAtUse: true, writeOnly: true } } };
    export function apply(host, options) {
        host.registerRoute(() => new Response(JSON.stringify(options)));
    }
";

/// A daemon with its API, the echo backend and these plugins.
fn folder(plugins: Value) -> Folder {
    let mut all = vec![json!({ "name": "@ostler/echo" })];
    all.extend(plugins.as_array().unwrap().clone());
    let folder = Folder::new(json!({ "http": true, "connectionToken": TOKEN, "plugins": all }));
    folder.write("notes.js", NOTES);
    folder
}

fn notes(options: Value) -> Value {
    json!([{ "name": "./notes.js", "options": options }])
}

async fn ask(daemon: &Daemon, head: &str, headers: &str, body: &str) -> (u16, Value) {
    daemon.ask(head, headers, body).await
}

async fn api(daemon: &Daemon, head: &str, body: Value) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let headers = format!("Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n");
    ask(daemon, head, &headers, &body).await
}

async fn get(daemon: &Daemon, path: &str) -> Value {
    let (status, answer) = api(daemon, &format!("GET /api/{path}"), Value::Null).await;
    assert_eq!(status, 200, "{path}: {answer}");
    answer
}

async fn post(daemon: &Daemon, path: &str, body: Value) -> Value {
    let (status, answer) = api(daemon, &format!("POST /api/{path}"), body).await;
    assert_eq!(status, 200, "{path}: {answer}");
    answer
}

async fn client(daemon: &Daemon) -> Client {
    let mut client = Client::connect(&format!("{}/?tkn={TOKEN}", daemon.url)).await;
    client.initialize("one").await;
    client
}

async fn root(client: &mut Client) -> Value {
    client.subscribe("ahp-root://").await
}

fn held(folder: &Folder) -> Value {
    serde_json::from_str::<Value>(&folder.read("config.json")).unwrap()["plugins"][1]["options"].clone()
}

#[tokio::test]
async fn a_credential_is_set_in_every_answer_but_the_file_at_a_terminal() {
    let options = json!({
        "key": "SECRET-key", "size": 5, "env": { "A": "SECRET-a", "B": { "$secret": "host:b" } },
        "later": { "x": { "$secret": "team:t/x" } }, "extra": "shown"
    });
    let folder = folder(notes(options.clone()));
    folder.write("vault.json", r#"{ "host:b": "SECRET-b" }"#);
    let daemon = folder.start();
    let shown = json!({
        "key": "<set>", "size": 5, "env": { "A": "<set>", "B": { "$secret": "host:b" } }, "later": "<set>", "extra": "shown"
    });
    let mut client = client(&daemon).await;
    let state = root(&mut client).await;
    assert_eq!(state["config"]["values"]["plugins.notes"], json!({ "enabled": true, "options": shown }));
    assert_eq!(get(&daemon, "config").await["config"]["plugins"][1]["options"], shown);
    let row = &get(&daemon, "plugin/list").await[1];
    assert_eq!((&row["options"], &row["id"], &row["state"]), (&shown, &json!("notes"), &json!("ready")));
    assert_eq!(post(&daemon, "plugin/config", json!({ "name": "notes" })).await["options"], shown);
    assert_eq!(post(&daemon, "plugin/config", json!({ "name": "./notes.js" })).await["options"], shown);
    let seen = get(&daemon, "config").await;
    assert_eq!(
        (&seen["config"]["connectionToken"], &seen["config"]["http"]),
        (&json!("<set>"), &json!(true))
    );
    let schema =
        &state["config"]["schema"]["properties"]["plugins.notes"]["properties"]["options"]["properties"];
    assert_eq!((&schema["key"]["writeOnly"], &schema["size"]["type"]), (&json!(true), &json!("integer")));
    assert!(!state.to_string().contains("SECRET-"), "{state}");
    let printed = folder.run(&["config"]).out;
    assert_eq!(printed, folder.read("config.json") + "\n");
    assert!(printed.contains("SECRET-key") && printed.contains(r#"{"$secret":"host:b"}"#), "{printed}");
    let listed = folder.run(&["plugin", "list"]).out;
    assert!(
        listed.contains(r#"env: {"A":"<set>","B":{"$secret":"host:b"}}"#) && !listed.contains("SECRET-"),
        "{listed}"
    );
    // What `apply` is handed: strings, and what it reads itself as it is written.
    let (_, handed) = ask(&daemon, "GET /plugins/notes/", "", "").await;
    assert_eq!(
        handed,
        json!({
            "size": 5, "key": "SECRET-key", "env": { "A": "SECRET-a", "B": "SECRET-b" },
            "later": { "x": { "$secret": "team:t/x" } }, "extra": "shown"
        })
    );
    assert!(!folder.read("log").contains("SECRET-"), "{}", folder.read("log"));
}

#[tokio::test]
async fn what_a_client_sends_back_replaces_what_it_says() {
    let folder =
        folder(notes(json!({ "key": "SECRET-key", "env": { "A": "SECRET-a", "B": "SECRET-b" }, "size": 1 })));
    let daemon = folder.start();
    let mut client = client(&daemon).await;
    root(&mut client).await;
    let mut seq = 0;
    let mut change = async |value: Value| {
        seq += 1;
        let action = json!({ "type": "root/configChanged", "config": { "plugins.notes": value } });
        client.dispatch("ahp-root://", seq, action).await;
        client.actions_until("root/configChanged").await.pop().unwrap()
    };
    let same = change(json!({ "options": { "key": "<set>", "env": { "A": "<set>", "B": "<set>" } } })).await;
    assert_eq!(same["rejectionReason"], Value::Null, "{same}");
    assert_eq!(
        held(&folder),
        json!({ "key": "SECRET-key", "env": { "A": "SECRET-a", "B": "SECRET-b" }, "size": 1 })
    );

    let new = change(json!({ "options": { "key": "SECRET-new", "env": { "A": "SECRET-new-a" } } })).await;
    assert_eq!(
        held(&folder),
        json!({ "key": "SECRET-new", "env": { "A": "SECRET-new-a", "B": "SECRET-b" }, "size": 1 })
    );
    let options = json!({ "key": "<set>", "env": { "A": "<set>", "B": "<set>" }, "size": 1 });
    assert_eq!(new["action"]["config"]["plugins.notes"], json!({ "enabled": true, "options": options }));
    assert_eq!(new["origin"]["clientSeq"], 2);

    // Set one by one it is the same.
    for body in [
        json!({ "name": "notes", "key": "key", "value": "<set>" }),
        json!({ "name": "notes", "key": "env.A", "value": "<set>" }),
        json!({ "name": "notes", "key": "env", "value": { "A": "<set>", "B": "SECRET-set-b" } }),
    ] {
        post(&daemon, "plugin/config/set", body).await;
    }
    assert_eq!(
        held(&folder),
        json!({ "key": "SECRET-new", "env": { "A": "SECRET-new-a", "B": "SECRET-set-b" }, "size": 1 })
    );

    change(json!({ "options": { "key": null, "env": { "B": null } } })).await;
    assert_eq!(held(&folder), json!({ "env": { "A": "SECRET-new-a" }, "size": 1 }));

    let wrong = change(json!({ "options": { "size": "SECRET-size", "key": "SECRET-other" } })).await;
    assert_eq!(wrong["rejectionReason"], "plugins.notes.options.size must be an integer");
    assert!(!wrong.to_string().contains("SECRET-"), "{wrong}");
    let wrong = change(json!({ "options": { "key": { "$secret": "SECRET-none" } } })).await;
    assert!(
        wrong["rejectionReason"]
            .as_str()
            .unwrap()
            .starts_with("plugins.notes.options.key: a secret is named host:<name>")
    );
    assert!(!wrong.to_string().contains("SECRET-"), "{wrong}");
    assert_eq!(held(&folder), json!({ "env": { "A": "SECRET-new-a" }, "size": 1 }));

    // The same over HTTP.
    let row = post(
        &daemon,
        "plugin/config",
        json!({ "name": "notes", "options": { "env": { "A": "<set>", "C": "SECRET-c" } } }),
    )
    .await;
    assert_eq!(row["options"], json!({ "env": { "A": "<set>", "C": "<set>" }, "size": 1 }));
    assert_eq!(held(&folder), json!({ "env": { "A": "SECRET-new-a", "C": "SECRET-c" }, "size": 1 }));
    let row =
        post(&daemon, "plugin/config", json!({ "name": "notes", "options": { "env": { "A": null } } })).await;
    assert_eq!(row["options"], json!({ "env": { "C": "<set>" }, "size": 1 }));
    assert_eq!(held(&folder), json!({ "env": { "C": "SECRET-c" }, "size": 1 }));
    assert_eq!(
        post(&daemon, "plugin/config/set", json!({ "name": "notes", "key": "size", "value": 9 })).await["options"]
            ["size"],
        9
    );
    assert_eq!(
        post(&daemon, "plugin/config/unset", json!({ "name": "notes", "key": "size" })).await["options"]
            .get("size"),
        None
    );
    // It holds from the next start on, and says so.
    assert_eq!(get(&daemon, "config").await["restartNeeded"], json!(["plugins.notes"]));
    let mut later = self::client(&daemon).await;
    assert_eq!(root(&mut later).await["_meta"]["ostler.restartNeeded"], json!(["plugins.notes"]));
    assert!(!folder.read("log").contains("SECRET-"), "{}", folder.read("log"));
}

#[tokio::test]
async fn of_a_plugin_nobody_could_look_into_nothing_is_shown() {
    let folder = folder(json!([
        { "name": "./notes.js", "enabled": false, "options": { "key": "SECRET-1", "size": 5, "env": { "A": { "$secret": "host:a" } } } },
        { "name": "./gone.js", "options": { "a": "SECRET-2" } },
        { "name": "./broken.js", "options": { "a": "SECRET-3" } },
        { "name": "./bad.js", "options": { "a": "SECRET-4" } },
        { "name": "./open.js", "options": { "a": "in the open" } },
        { "name": "./late.js", "options": { "key": "SECRET-5", "size": "not a size" } },
    ]));
    folder.write("broken.js", "throw new Error('no')");
    folder.write(
        "bad.js",
        "export const optionsSchema = { properties: { a: { type: 5 } } }; export function apply() {}",
    );
    folder.write("open.js", "export function apply() {}");
    folder.write("late.js", &NOTES.replace("'notes'", "'late'"));
    let daemon = folder.start();
    let rows = get(&daemon, "plugin/list").await;
    let options = |at: usize| rows[at]["options"].clone();
    assert_eq!(options(1), json!({ "key": "<set>", "size": "<set>", "env": "<set>" }));
    assert_eq!(
        (options(2), options(3), options(4)),
        (json!({ "a": "<set>" }), json!({ "a": "<set>" }), json!({ "a": "<set>" }))
    );
    assert_eq!(options(5), json!({ "a": "in the open" }), "it marks nothing");
    assert_eq!(
        options(6),
        json!({ "key": "<set>", "size": "not a size" }),
        "it declares its schema, though its options do not fit"
    );
    let states: Vec<&str> =
        rows.as_array().unwrap().iter().map(|row| row["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["ready", "disabled", "missing", "error", "error", "ready", "error"]);
    let mut client = client(&daemon).await;
    let state = root(&mut client).await;
    assert_eq!(
        state["config"]["values"]["plugins.notes"],
        json!({ "enabled": false, "options": { "key": "<set>", "size": "<set>", "env": "<set>" } })
    );
    assert_eq!(state["config"]["values"]["plugins.open"]["options"], json!({ "a": "in the open" }));
    // Turned on, it is known from the next start on.
    let row = post(&daemon, "plugin/enable", json!({ "name": "notes" })).await;
    assert_eq!((&row["enabled"], &row["options"]["size"]), (&json!(true), &json!("<set>")));
    for path in ["config", "plugin/list"] {
        assert!(!get(&daemon, path).await.to_string().contains("SECRET-"));
    }
}

#[tokio::test]
async fn other_settings_are_edited_on_the_root_channel() {
    let folder = folder(json!([]));
    let daemon = folder.start();
    let (mut one, mut two) = (client(&daemon).await, client(&daemon).await);
    root(&mut one).await;
    root(&mut two).await;
    let servers = json!({ "x": { "type": "http", "url": "https://me:SECRET-pw@h/", "headers": { "a": "SECRET-h" } },
            "y": { "type": "stdio", "command": "y", "env": { "KEY": "SECRET-e" } } });
    let action =
        json!({ "type": "root/configChanged", "config": { "mcpServers": servers, "advancedTools": true } });
    one.dispatch("ahp-root://", 1, action).await;
    let seen = two.actions_until("root/configChanged").await.pop().unwrap();
    let shown = json!({ "x": { "type": "http", "url": "https://<set>@h/", "headers": { "a": "<set>" } },
        "y": { "type": "stdio", "command": "y", "env": { "KEY": "<set>" } } });
    assert_eq!(seen["action"]["config"], json!({ "mcpServers": shown, "advancedTools": true }));
    one.actions_until("root/configChanged").await;
    let file: Value = serde_json::from_str(&folder.read("config.json")).unwrap();
    assert_eq!((&file["mcpServers"], &file["advancedTools"]), (&servers, &json!(true)));
    let mut send = async |seq: i64, config: Value| {
        one.dispatch("ahp-root://", seq, json!({ "type": "root/configChanged", "config": config })).await;
        one.actions_until("root/configChanged").await.pop().unwrap()
    };
    send(2, json!({ "mcpServers": { "x": { "headers": { "a": "<set>", "b": "SECRET-b" } } } })).await;
    let file: Value = serde_json::from_str(&folder.read("config.json")).unwrap();
    assert_eq!(file["mcpServers"]["x"]["headers"], json!({ "a": "SECRET-h", "b": "SECRET-b" }));
    let refused = send(3, json!({ "port": "x" })).await;
    assert_eq!(refused["rejectionReason"], "port must be an integer between 0 and 65535");
    let refused = send(4, json!({ "plugins.nobody": { "enabled": false } })).await;
    assert_eq!(refused["rejectionReason"], "unknown plugin nobody; configured plugins: echo");
    let refused = send(5, json!({ "connectionToken": "x" })).await;
    assert_eq!(refused["rejectionReason"], "connectionToken is not a setting of this host");
    let set = send(7, json!({ "wire": "frames" })).await;
    assert_eq!(set.get("rejectionReason"), None, "{set}");
    let recorded = folder.path().join("wire/frames").display().to_string();
    assert_eq!(set["action"]["config"]["wire"], recorded);
    send(8, json!({ "mcpServers": { "z": { "type": "http", "url": "https://h/", "headers": { "a": "SECRET-z" } } } })).await;
    let refused = send(10, json!({ "plugins.nobody": { "options": { "key": "SECRET-p" } } })).await;
    assert!(refused["rejectionReason"].is_string(), "{refused}");
    send(9, json!({ "wire": null })).await;
    let before = folder.read("config.json");
    for (seq, servers, why) in [
        (11, json!("x"), "mcpServers must be an object"),
        (12, json!({ "n": "x" }), "mcpServers.n must be an object"),
        (13, json!({ "n": { "command": "x" } }), "mcpServers.n.type must be stdio or http"),
        (14, json!({ "n": { "type": "stdio" } }), "mcpServers.n is a stdio server without command"),
        (
            15,
            json!({ "n": { "type": "stdio", "command": "x", "args": "SECRET" } }),
            "mcpServers.n.args must be a list of strings",
        ),
        (
            16,
            json!({ "n": { "type": "http", "url": "https://h/", "headers": { "a": { "$secret": "SECRET" } } } }),
            "mcpServers.n.headers.a must be { $secret: <name> } with host:<name>, team:<team>/<name> or user:<id>/<name>",
        ),
        (
            17,
            json!({ "y": { "url": "https://h/" } }),
            "mcpServers.y.url is not a field of a stdio server; its fields are type, command, args, env, cwd; send null to \
             remove it",
        ),
        (18, json!({ "y": { "command": null } }), "mcpServers.y is a stdio server without command"),
        (
            21,
            json!({ "x": { "url": "https://evil.example/" } }),
            "mcpServers.x.url changes what the stored value of headers.a is given to; send that value again, or null to \
             remove it",
        ),
        (
            22,
            json!({ "x": null, "w": { "type": "http", "url": "https://h/", "headers": { "a": "<set>" } } }),
            "mcpServers.w.headers.a is <set>, but nothing is stored there; send the whole value, or a reference \
             { $secret: <name> } where one is allowed",
        ),
        (
            23,
            json!({ "w": { "type": "http", "url": "https://h/", "headers": { "a": "x\r\nb: y" } } }),
            "mcpServers.w.headers.a must not contain line breaks or other control characters",
        ),
    ] {
        let refused = send(seq, json!({ "mcpServers": servers })).await;
        assert_eq!(refused["rejectionReason"], why, "{servers}");
        assert_eq!(folder.read("config.json"), before, "nothing is written");
    }
    let reference = json!({ "type": "stdio", "command": "n", "env": { "K": { "$secret": "host:k" } } });
    let taken = send(19, json!({ "mcpServers": { "n": reference, "y": null } })).await;
    let servers = &taken["action"]["config"]["mcpServers"];
    assert_eq!(
        (&servers["n"], servers.get("y")),
        (&reference, None),
        "a reference is shown as written: {taken}"
    );
    let eighth = |recorded: &String| recorded.matches(r#""clientSeq":8"#).count() >= 2;
    let recorded = crate::support::wait_for(|| Some(folder.read("wire/frames")).filter(eighth));
    let recorded = recorded
        .unwrap_or_else(|| panic!("not as it came and as it was told: {}", folder.read("wire/frames")));
    assert!(!recorded.contains("SECRET"), "{recorded}");
    assert_eq!(get(&daemon, "config").await["restartNeeded"], json!([]), "all hold at once");
}

const TAIL: &str = "send the whole value, or a reference { $secret: <name> } where one is allowed";
const NOTHING: &str = "is <set>, but nothing is stored there";
const ANOTHER: &str = "contains <set>, but is not the stored value as it is shown";
const AMBIGUOUS: &str = "is <set>, but it is ambiguous which stored entry that refers to";

/// The same for a plugin in JavaScript and one that comes with the host.
#[cfg(feature = "acp")]
#[tokio::test]
async fn a_stand_in_is_taken_back_as_it_was_shown_or_rejected() {
    let texts = json!({
        "url": "https://u:SECRET-1@h/x", "urls": ["https://u:SECRET-2@a/", "https://u:SECRET-3@b/"], "plain": "open"
    });
    let with_texts = |mut options: Value| {
        options.as_object_mut().unwrap().extend(texts.as_object().unwrap().clone());
        options
    };
    let folder = folder(json!([
        { "name": "./notes.js", "options": with_texts(json!({ "key": "SECRET-4", "env": { "A": "SECRET-5" } })) },
        { "name": "@ostler/acp", "options": with_texts(json!({
            "agents": { "x": { "command": "true", "env": { "A": "SECRET-6" } } } })) },
    ]));
    let daemon = folder.start();
    let mut client = client(&daemon).await;
    let state = root(&mut client).await;
    assert!(!state.to_string().contains("SECRET-"), "{state}");
    let before = folder.read("config.json");
    let mut seq = 0;
    let mut send = async |config: Value| {
        seq += 1;
        client.dispatch("ahp-root://", seq, json!({ "type": "root/configChanged", "config": config })).await;
        client.actions_until("root/configChanged").await.pop().unwrap()
    };
    let own = [
        ("notes", json!({ "env": { "C": "<set>" } }), "env.C", NOTHING),
        ("notes", json!({ "key": "https://<set>@h/" }), "key", ANOTHER),
        ("notes", json!({ "later": { "x": { "k": "<set>" } } }), "later.x.k", NOTHING),
        ("acp", json!({ "agents": { "x": { "env": { "C": "<set>" } } } }), "agents.x.env.C", NOTHING),
        ("acp", json!({ "agents": { "y": { "env": { "A": "<set>" } } } }), "agents.y.env.A", NOTHING),
    ];
    let both = [
        (json!({ "url": "https://<set>@h/y" }), "url", ANOTHER),
        (json!({ "url": "https://<set>@evil/x" }), "url", ANOTHER),
        (json!({ "url": "https://v:<set>@h/x" }), "url", ANOTHER),
        (json!({ "plain": "<set>" }), "plain", ANOTHER),
        (json!({ "new": "https://<set>@h/x" }), "new", ANOTHER),
        (json!({ "new": "<set>" }), "new", NOTHING),
        (json!({ "urls": ["https://<set>@a/evil", "https://<set>@b/"] }), "urls[0]", ANOTHER),
        (
            json!({ "urls": ["https://<set>@a/", "https://<set>@b/", "https://<set>@c/"] }),
            "urls[2]",
            AMBIGUOUS,
        ),
    ];
    let each =
        |plugin: &'static str| both.iter().map(move |(sent, path, why)| (plugin, sent.clone(), *path, *why));
    for (plugin, sent, path, why) in own.into_iter().chain(each("notes")).chain(each("acp")) {
        let expected = format!("plugins.{plugin}.options.{path} {why}; {TAIL}");
        let refused = send(json!({ format!("plugins.{plugin}"): { "options": sent } })).await;
        assert_eq!(refused["rejectionReason"], expected.as_str(), "{sent}");
        let (status, answer) =
            api(&daemon, "POST /api/plugin/config", json!({ "name": plugin, "options": sent })).await;
        assert_eq!((status, &answer["message"]), (400, &json!(expected)), "{sent}");
        for (key, value) in sent.as_object().unwrap() {
            let ended = folder.run(&["plugin", "config", plugin, key, &value.to_string()]);
            assert_eq!(ended.code, Some(2), "{key} {value}: {ended:?}");
            assert!(ended.err.contains("<set>") && !ended.err.contains("SECRET"), "{ended:?}");
        }
        assert_eq!(folder.read("config.json"), before, "{sent}");
    }
    // Everything as it was shown is no change.
    for plugin in ["plugins.notes", "plugins.acp"] {
        let same = send(json!({ plugin: state["config"]["values"][plugin] })).await;
        assert_eq!(same.get("rejectionReason"), None, "{same}");
        assert_eq!(folder.read("config.json"), before, "{plugin}");
    }
    let ended = folder.run(&["plugin", "install", "git+https://<set>@h.invalid/plugin.git"]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""), "{ended:?}");
    assert!(ended.err.contains("a spec with <set> cannot be installed; write its password"), "{ended:?}");
    drop(daemon);
    let ended = folder.run(&["--plugin-option", "notes.url=https://<set>@h/x"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.err.contains("notes.url contains <set>; write the value itself"), "{ended:?}");
}

#[tokio::test]
async fn a_stored_credential_of_a_server_goes_where_it_was_stored_for() {
    let held = json!({
        "u": { "type": "http", "url": "https://u:SECRET-1@h/x" },
        "ar": { "type": "stdio", "command": "x", "args": ["--db", "mysql://u:SECRET-2@h/db"] },
        "e": { "type": "stdio", "command": "x", "env": { "T": "SECRET-3", "U": "SECRET-4" } },
    });
    let folder = folder(json!([]));
    let mut config: Value = serde_json::from_str(&folder.read("config.json")).unwrap();
    config["mcpServers"] = held;
    folder.write("config.json", &config.to_string());
    let daemon = folder.start();
    let mut client = client(&daemon).await;
    let shown = root(&mut client).await["config"]["values"]["mcpServers"].clone();
    assert!(!shown.to_string().contains("SECRET-"), "{shown}");
    let before = folder.read("config.json");
    let mut seq = 0;
    let mut send = async |servers: Value| {
        seq += 1;
        let action = json!({ "type": "root/configChanged", "config": { "mcpServers": servers } });
        client.dispatch("ahp-root://", seq, action).await;
        client.actions_until("root/configChanged").await.pop().unwrap()
    };
    let with = |server: &str, changes: Value| {
        let mut sent = shown[server].clone();
        sent.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        json!({ server: sent })
    };
    let db = |args: &[&str]| with("ar", json!({ "args": args }));
    let env = |name: &str| with("e", json!({ "env": { name: "/evil", "T": "<set>", "U": "<set>" } }));
    let unknown = |why: &str| format!("{why}; {TAIL}");
    let given = |kept: &str| {
        format!(
            "changes what the stored value of {kept} is given to; send that value again, or null to remove it"
        )
    };
    for (sent, path, why) in [
        (with("u", json!({ "url": "https://<set>@h/y" })), "u.url", unknown(ANOTHER)),
        (with("u", json!({ "url": "http://<set>@h/x" })), "u.url", unknown(ANOTHER)),
        (json!({ "new": { "type": "http", "url": "https://<set>@evil/x" } }), "new.url", unknown(ANOTHER)),
        (json!({ "new": shown["e"] }), "new.env.T", unknown(NOTHING)),
        (json!({ "new": shown["ar"] }), "new.args[1]", unknown(AMBIGUOUS)),
        (db(&["--db", "mysql://<set>@evil/db"]), "ar.args[1]", unknown(ANOTHER)),
        (db(&["--db", "mysql://<set>@h/db", "-v"]), "ar.args", given("args")),
        (db(&["mysql://<set>@h/db"]), "ar.args", given("args")),
        (with("ar", json!({ "command": "evil" })), "ar.command", given("args")),
        (json!({ "ar": { "command": "evil" } }), "ar.command", given("args")),
        (with("ar", json!({ "env": { "PATH": "/evil" } })), "ar.env", given("args")),
        (with("ar", json!({ "cwd": "/evil" })), "ar.cwd", given("args")),
        (env("LD_PRELOAD"), "e.env", given("env.T")),
        (env("PATH"), "e.env", given("env.T")),
        (json!({ "e": { "env": { "LD_PRELOAD": "/evil" } } }), "e.env", given("env.T")),
        (json!({ "e": { "env": { "T": "new" } } }), "e.env", given("env.U")),
        (with("e", json!({ "cwd": "/evil" })), "e.cwd", given("env.T")),
        (with("e", json!({ "env": { "V": "<set>" } })), "e.env.V", unknown(NOTHING)),
    ] {
        let refused = send(sent.clone()).await;
        assert_eq!(refused["rejectionReason"], format!("mcpServers.{path} {why}"), "{sent}");
        assert_eq!(folder.read("config.json"), before, "{sent}");
    }
    let same = send(shown.clone()).await;
    assert_eq!(same.get("rejectionReason"), None, "{same}");
    assert_eq!(folder.read("config.json"), before);
    // With the credential it is taken.
    let new = json!({ "type": "stdio", "command": "y", "args": ["mysql://u:SECRET-5@h/db"] });
    let taken =
        send(json!({ "ar": new, "e": { "command": "y", "env": { "T": "SECRET-6", "U": null } } })).await;
    assert_eq!(taken.get("rejectionReason"), None, "{taken}");
    let file: Value = serde_json::from_str(&folder.read("config.json")).unwrap();
    assert_eq!(file["mcpServers"]["ar"], new);
    assert_eq!(
        file["mcpServers"]["e"],
        json!({ "type": "stdio", "command": "y", "env": { "T": "SECRET-6" } })
    );
}

#[test]
fn what_a_command_prints_hides_the_passwords_the_api_hides() {
    let options = json!({ "db": "postgres://me:SECRET-db@h/x", "more": ["https://SECRET-t@h/"] });
    let folder = folder(json!([
        { "name": "./open.js", "options": options },
        { "name": "git+https://me:SECRET-git@h.invalid/plugin.git" },
    ]));
    folder.write("open.js", "export function apply() {}");
    for arguments in [
        &["plugin", "list"][..],
        &["plugin", "list", "--json"],
        &["plugin", "list", "--quiet"],
        &["plugin", "config", "open"],
        &["plugin", "config", "open", "--json"],
        &["plugin", "config", "nobody"],
        &["plugin", "config", "open", "other", "https://me:SECRET-o@h/"],
    ] {
        let ended = folder.run(arguments);
        assert!(!ended.out.contains("SECRET") && !ended.err.contains("SECRET"), "{arguments:?}: {ended:?}");
    }
    let listed = folder.run(&["plugin", "list"]).out;
    for shown in ["postgres://<set>@h/x", "https://<set>@h/", "git+https://<set>@h.invalid/plugin.git"] {
        assert!(listed.contains(shown), "{listed}");
    }
    assert!(folder.read("config.json").contains("https://me:SECRET-o@h/"), "it is hidden, not lost");
}

/// Who may change settings writes no file of their choice with the host's rights.
#[tokio::test]
async fn frames_are_recorded_at_run_time_only_in_the_hosts_own_folder() {
    let folder = folder(json!([]));
    let outside = tempfile::tempdir().unwrap();
    folder.write("users.json", "{}");
    folder.write("vault.json", "{}");
    std::fs::create_dir(folder.path().join("wire")).unwrap();
    let target = outside.path().join("profile");
    std::fs::write(&target, "echo").unwrap();
    std::os::unix::fs::symlink(&target, folder.path().join("wire/link")).unwrap();
    std::fs::create_dir(folder.path().join("wire/inner")).unwrap();
    let daemon = folder.start();
    let mut one = client(&daemon).await;
    root(&mut one).await;
    let in_folder = |name: &str| folder.path().join(name).display().to_string();
    let before = folder.read("config.json");
    let mut seq = 0;
    let mut send = async |value: &str| {
        seq += 1;
        let action = json!({ "type": "root/configChanged", "config": { "wire": value } });
        one.dispatch("ahp-root://", seq, action).await;
        one.actions_until("root/configChanged").await.pop().unwrap()
    };
    for named in [
        "",
        ".",
        "..",
        "wire/frames",
        "../vault.json",
        "../frames",
        "none/frames",
        "link",
        "inner",
        "inner/frames",
        &in_folder("users.json"),
        &in_folder("vault.json"),
        &in_folder("wire"),
        &in_folder("wire/../users.json"),
        &in_folder("wire/link"),
        &in_folder("wirelike/frames"),
        &target.display().to_string(),
        "/root/.bashrc",
    ] {
        let refused = send(named).await;
        let why = refused["rejectionReason"].as_str().unwrap_or_else(|| panic!("{named} is taken"));
        assert_eq!(
            why,
            format!("wire must name a file in {}, such as frames.jsonl", in_folder("wire")),
            "{named}"
        );
        assert_eq!(refused["action"]["config"].get("wire"), None);
    }
    assert_eq!(folder.read("config.json"), before);
    assert_eq!(
        (folder.read("users.json"), folder.read("vault.json"), std::fs::read_to_string(&target).unwrap()),
        ("{}".to_owned(), "{}".to_owned(), "echo".to_owned())
    );
    let file = in_folder("wire/frames");
    for named in ["frames", &file] {
        let set = send(named).await;
        assert_eq!((set.get("rejectionReason"), &set["action"]["config"]["wire"]), (None, &json!(file)));
    }
    drop(daemon);
    // What an operator wrote may be anywhere; a client that sends all settings back changes nothing about it.
    let own = outside.path().join("own").display().to_string();
    let mut config: Value = serde_json::from_str(&folder.read("config.json")).unwrap();
    config["wire"] = json!(own);
    folder.write("config.json", &config.to_string());
    let daemon = folder.start();
    let mut one = client(&daemon).await;
    root(&mut one).await;
    let action = json!({ "type": "root/configChanged", "config": { "wire": own, "advancedTools": true } });
    one.dispatch("ahp-root://", 1, action).await;
    let set = one.actions_until("root/configChanged").await.pop().unwrap();
    assert_eq!(set.get("rejectionReason"), None, "{set}");
    assert!(std::fs::read_to_string(&own).unwrap().contains("advancedTools"), "it goes on being written");
}

#[tokio::test]
async fn the_api_answers_who_has_the_token_and_nobody_else() {
    let folder = folder(json!([]));
    let daemon = folder.start();
    let http = format!("http on http://{}/api", daemon.address());
    assert_eq!(daemon.block[1], http);
    let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
    for (head, headers, body, status, says) in [
        ("GET /api/status", "", "", 401, "A connection token is required"),
        ("GET /api/status", "Authorization: Bearer wrong\r\n", "", 401, "A connection token is required"),
        ("GET /api/nope", bearer.as_str(), "", 404, "No API at /api/nope"),
        ("POST /api/status", &bearer, "", 405, "/api/status only accepts GET"),
        ("GET /api/plugin/config", &bearer, "", 405, "/api/plugin/config only accepts POST"),
        ("POST /api/plugin/config", &bearer, "x", 415, "The content type must be application/json"),
        ("POST /api/plugin/config", &bearer, "", 400, "name is required in the body"),
        ("GET /v1/models", &bearer, "", 404, "No API at /v1/models"),
    ] {
        let (seen, answer) = ask(&daemon, head, headers, body).await;
        assert_eq!((seen, &answer["message"]), (status, &json!(says)), "{head}");
    }
    // The head of what GET answers, without its body, also of a stream.
    for (path, headers) in [
        ("/api/health", String::new()),
        ("/api/status", bearer.clone()),
        ("/api/sessions", format!("{bearer}Accept: text/event-stream\r\n")),
    ] {
        let head = format!(
            "HEAD {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{headers}\r\n",
            daemon.address()
        );
        let answer = daemon.exchange(head.as_bytes()).await;
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\n"),
            "{path}: {answer}"
        );
        assert!(answer.to_lowercase().contains("content-length: "), "{path}: {answer}");
    }
    let head = format!(
        "HEAD /api/plugin/config HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{bearer}\r\n",
        daemon.address()
    );
    let answer = daemon.exchange(head.as_bytes()).await;
    assert!(
        answer.starts_with("HTTP/1.1 405 ") && answer.to_lowercase().contains("allow: post\r\n"),
        "{answer}"
    );
    for origins in [
        &["https://evil.org"][..],
        &["chrome-extension://abcdef"],
        &["file://"],
        &["null"],
        &["http://localhost:3000", "https://evil.org"],
        &["https://evil.org", "http://localhost:3000"],
    ] {
        let sent: String = origins.iter().map(|origin| format!("Origin: {origin}\r\n")).collect();
        assert_eq!(
            ask(&daemon, "GET /api/status", &format!("{bearer}{sent}"), "").await.0,
            403,
            "{origins:?}"
        );
    }
    let near = format!("{bearer}Origin: http://localhost:3000\r\n");
    let (status, answer) = ask(&daemon, "GET /api/status", &near, "").await;
    assert_eq!((status, &answer["url"]), (200, &json!(daemon.url)));
    assert_eq!(ask(&daemon, &format!("GET /api/status?tkn={TOKEN}"), "", "").await.0, 200);
    let host = daemon
        .exchange(
            format!("GET /api/status HTTP/1.1\r\nHost: evil.org\r\nConnection: close\r\n{bearer}\r\n")
                .as_bytes(),
        )
        .await;
    assert!(host.contains("403") && host.contains("This API does not answer to evil.org"), "{host}");
    let (status, answer) = api(&daemon, "POST /api/restart", json!({})).await;
    assert_eq!(
        (status, &answer["message"]),
        (409, &json!("the daemon runs in the foreground and cannot restart itself"))
    );

    assert_eq!(
        post(&daemon, "vault/set/host%3Ak", json!({ "value": "SECRET-k" })).await,
        json!({ "name": "host:k", "set": true })
    );
    assert_eq!(get(&daemon, "vault/list").await, json!([{ "name": "host:k", "set": true, "named": [] }]));
    assert_eq!(post(&daemon, "vault/delete/host%3Ak", json!({})).await["deleted"], true);
    let (status, answer) = api(&daemon, "POST /api/vault/delete/host%3Ak", json!({})).await;
    assert_eq!((status, &answer["message"]), (409, &json!("the vault holds no host:k")));
    assert_eq!(api(&daemon, "POST /api/vault/set/k", json!({ "value": "x" })).await.0, 400);
    let installed = post(&daemon, "plugin/install", json!({ "name": "@ostler/webhook" })).await;
    assert_eq!(installed["restart"], true);
    assert_eq!(
        post(&daemon, "plugin/remove", json!({ "name": "@ostler/webhook" })).await["removed"],
        json!(["@ostler/webhook"])
    );

    let off = Folder::new(json!({ "connectionToken": TOKEN, "plugins": [{ "name": "@ostler/echo" }] }));
    let daemon = off.start();
    assert_eq!(ask(&daemon, "GET /api/status", &bearer, "").await.0, 404);
    for (config, says) in [
        (
            r#"{ "http": true }"#,
            "http needs a credential: pass --connection-token, --connection-token-file or --users.",
        ),
        (r#"{ "http": { "host": "127.0.0.1" }, "connectionToken": "x" }"#, "http.host requires http.port"),
        (
            r#"{ "http": { "port": 1.5 }, "connectionToken": "x" }"#,
            "http.port must be an integer between 0 and 65535",
        ),
    ] {
        let wrong = Folder::new(json!({}));
        wrong.write("config.json", config);
        let ended = wrong.run(&[]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.err.contains(says), "{ended:?}");
    }
    let own = Folder::new(
        json!({ "http": { "port": 0 }, "connectionToken": TOKEN, "plugins": [{ "name": "@ostler/echo" }] }),
    );
    let daemon = own.start();
    let there = daemon.block[1].strip_prefix("http on http://").unwrap().strip_suffix("/api").unwrap();
    assert_ne!(there, daemon.address());
    assert_eq!(ask(&daemon, "GET /api/status", &bearer, "").await.0, 404);
    let _ = ended(program().args(["status", "--config-file"]).arg(own.path().join("config.json")));
}

/// A schema, options with secrets in marked places, and how deep they are.
fn marked() -> impl Strategy<Value = (Value, Value)> {
    let leaf = prop_oneof![
        "SECRET-[a-z]{6}".prop_map(|text| (json!(text), json!({ "type": "string", "writeOnly": true }))),
        "SECRET-[a-z]{6}".prop_map(|text| (json!([text]), json!({ "writeOnly": true }))),
        (0..9).prop_map(|number| (json!(number), json!({ "type": "integer" }))),
    ];
    leaf.prop_recursive(3, 8, 2, |inner| {
        prop_oneof![
            inner
                .clone()
                .prop_map(|(value, node)| (json!({ "k": value }), json!({ "properties": { "k": node } }))),
            inner
                .clone()
                .prop_map(|(value, node)| (json!({ "k": value }), json!({ "additionalProperties": node }))),
            inner.clone().prop_map(|(value, node)| (
                json!({ "k": value }),
                json!({ "patternProperties": { "k": node } })
            )),
            inner.prop_map(|(value, node)| (json!([value]), json!({ "items": node }))),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 20, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever a plugin marks, however it fails and whatever it says: no answer and no line holds it.
    #[test]
    fn no_answer_and_no_line_holds_a_marked_value(
        places in proptest::collection::vec(marked(), 1..4), fails in any::<bool>(), enabled in any::<bool>()
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (mut options, mut nodes) = (json!({}), json!({}));
            for (at, (value, node)) in places.iter().enumerate() {
                options[format!("o{at}")] = value.clone();
                nodes[format!("o{at}")] = node.clone();
            }
            let folder = folder(json!([{ "name": "./loud.js", "enabled": enabled, "options": options }]));
            let schema = json!({ "properties": nodes });
            folder.write("loud.js", &format!(
                "export const optionsSchema = {schema};\nconst heard = [];\nexport function apply(host, options) {{\n\
                 const flat = (v) => typeof v === 'object' ? Object.values(v).forEach(flat) : host.log('it is ' + v);\n\
                 host.on('log', (event) => heard.push(event.line)); host.on('listening', () => host.say('heard ' + heard.join(' ')));\n\
                 flat(options); console.log(options); host.problem('with ' + JSON.stringify(options));\n\
                 if ({fails}) throw new Error('no good: ' + JSON.stringify(options)); }}"
            ));
            let daemon = folder.start();
            let mut client = client(&daemon).await;
            let mut seen = vec![root(&mut client).await.to_string()];
            for path in ["config", "plugin/list", "status"] {
                seen.push(get(&daemon, path).await.to_string());
            }
            seen.push(post(&daemon, "plugin/config", json!({ "name": "loud", "options": options })).await.to_string());
            seen.push(post(&daemon, "plugin/config", json!({ "name": "loud" })).await.to_string());
            seen.push(folder.run(&["plugin", "list"]).out);
            seen.push(folder.run(&["plugin", "list", "--json"]).out);
            let mut rest = String::new();
            let mut daemon = daemon;
            daemon.signal(crate::support::Signal::TERM);
            std::io::Read::read_to_string(&mut daemon.out, &mut rest).unwrap();
            seen.push(daemon.block.join("\n") + rest.as_str());
            seen.push(folder.read("log"));
            for text in seen {
                assert!(!text.contains("SECRET-"), "{text}");
            }
        });
    }
}
