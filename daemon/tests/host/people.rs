//! A daemon that knows people: the door, signing in, edits of the file, grants of plugins, and the verbs.

use std::time::{Duration, Instant};

use crate::support::{Client, Daemon, Folder};
use serde_json::{Value, json};

const NOBODY: i64 = -32007;
const REFUSED: i64 = -32009;

fn folder(more: Value) -> Folder {
    let mut config = json!({ "plugins": [{ "name": "@ostler/echo" }], "users": "users.json" });
    config.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
    Folder::new(config)
}

/// Adds somebody; answers the token.
fn add(folder: &Folder, arguments: &[&str]) -> String {
    let ended = folder.run(&[&["user", "add"], arguments].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(ended.err.contains("not shown again"), "{}", ended.err);
    ended.out.trim().to_owned()
}

fn resource(daemon: &Daemon) -> String {
    let line = daemon.block.iter().find_map(|line| line.strip_prefix("sign-in ")).unwrap();
    assert_eq!(line, format!("https://{}", daemon.address()));
    line.to_owned()
}

async fn sign_in(daemon: &Daemon, client: &mut Client, token: &str) -> Result<Value, Value> {
    client.request("authenticate", json!({ "resource": resource(daemon), "token": token })).await
}

async fn list(client: &mut Client) -> Result<(), i64> {
    client.request("listSessions", json!({})).await.map(drop).map_err(|error| error["code"].as_i64().unwrap())
}

/// Asks until the answer is this one.
async fn list_until(client: &mut Client, wanted: Result<(), i64>) {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let now = list(client).await;
        if now == wanted {
            return;
        }
        assert!(Instant::now() < end, "{now:?}, not {wanted:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn people_sign_in_and_edits_of_the_file_bind() {
    let folder = folder(json!({}));
    let token = add(&folder, &["ada", "--role", "member"]);
    let daemon = folder.start();
    let mut client = daemon.initialized("c").await;
    let refused = client.request("listSessions", json!({})).await.unwrap_err();
    assert_eq!(refused["code"], NOBODY);
    assert_eq!(refused["data"]["resources"][0]["resource"], resource(&daemon));
    assert_eq!(sign_in(&daemon, &mut client, "wrong").await.unwrap_err()["code"], NOBODY);
    sign_in(&daemon, &mut client, &token).await.unwrap();
    assert_eq!(list(&mut client).await, Ok(()));
    let root = client.subscribe("ahp-root://").await;
    assert_eq!(root["_meta"]["ostler.principal"], "user:ada");
    client.request("createSession", json!({ "channel": "echo:/1" })).await.unwrap();
    let chat = client.subscribe("echo:/1").await["defaultChat"].as_str().unwrap().to_owned();
    client.subscribe(&chat).await;
    client
        .dispatch(
            &chat,
            1,
            json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "Hello" } }),
        )
        .await;
    let seen = client.actions_until("chat/turnComplete").await;
    let turn = seen.iter().find(|said| said["action"]["type"] == "chat/turnStarted").unwrap();
    assert_eq!(turn["action"]["message"]["_meta"]["ostler.sender"], "user:ada");

    // Another role, by hand. What the host itself writes, that somebody was here, is written first.
    let written =
        crate::support::wait_for(|| Some(folder.read("users.json")).filter(|text| text.contains("signedIn")));
    let written = written.expect("it is put down who was here");
    folder.write("users.json", &written.replace("\"member\"", "\"nothing\""));
    list_until(&mut client, Err(REFUSED)).await;
    folder.wait_for_log("user ada has unknown role nothing");
    // A file that breaks is said, and changes nothing.
    folder.write("users.json", &format!("{written} and {token}"));
    folder.wait_for_log("users.json: line");
    assert_eq!(list(&mut client).await, Err(REFUSED));
    folder.write("users.json", &written);
    list_until(&mut client, Ok(())).await;
    // A new token takes the place of the one before; who is signed in stays so.
    let second = folder.run(&["user", "token", "ada"]).out.trim().to_owned();
    assert_ne!(second, token);
    let mut other = daemon.initialized("d").await;
    let end = Instant::now() + Duration::from_secs(30);
    while sign_in(&daemon, &mut other, &second).await.is_err() {
        assert!(Instant::now() < end, "the new token is never taken");
    }
    assert!(sign_in(&daemon, &mut other, &token).await.is_err());
    assert_eq!(folder.run(&["user", "rm", "ada", "--yes"]).code, Some(0));
    list_until(&mut client, Err(NOBODY)).await;

    let said = folder.read("log") + &*daemon.block.join("\n") + &*folder.read("users.json");
    for secret in [&token, &second] {
        assert!(!said.contains(secret.as_str()), "a token is shown");
    }
}

#[tokio::test]
async fn the_door_of_a_host_that_knows_people() {
    let folder = folder(json!({ "connectionToken": "the host's own" }));
    let ada = add(&folder, &["ada"]);
    let cleo = add(&folder, &["cleo", "--role", "admin"]);
    let mut file: Value = serde_json::from_str(&folder.read("users.json")).unwrap();
    file["users"][1]["trustToken"] = json!(true);
    folder.write("users.json", &file.to_string());
    let daemon = folder.start();
    let come = async |token: &str| {
        let query: String = token.replace(' ', "%20").replace('\'', "%27");
        let mut client = Client::connect(&format!("{}/?tkn={query}", daemon.url)).await;
        let came = client.initialize("c").await;
        (client, came["_meta"]["ostler.principal"].clone())
    };
    let (mut root, principal) = come("the host's own").await;
    assert!(principal.as_str().unwrap().starts_with("root:"), "{principal}");
    assert_eq!(list(&mut root).await, Ok(()));
    let (mut admitted, principal) = come(&ada).await;
    assert_eq!(principal, Value::Null);
    assert_eq!(list(&mut admitted).await, Err(NOBODY));
    let (mut trusted, principal) = come(&cleo).await;
    assert_eq!(principal, "user:cleo");
    assert_eq!(list(&mut trusted).await, Ok(()));
    // That is a sign-in: automations of hers may run. A token that only admits is none.
    let signed_in = || {
        let file: Value = serde_json::from_str(&folder.read("users.json")).ok()?;
        file["users"][1]["signedIn"].is_string().then_some(file)
    };
    let file = crate::support::wait_for(signed_in).expect("the first sign-in is recorded");
    assert_eq!((&file["users"][0]["id"], file["users"][0].get("signedIn")), (&json!("ada"), None));
    for wrong in ["", "/?tkn=wrong"] {
        let url = format!("{}{wrong}", daemon.url);
        assert!(tokio_tungstenite::connect_async(url).await.is_err(), "{wrong:?} is let in");
    }
}

#[tokio::test]
async fn a_plugin_holds_what_its_entry_says() {
    let plugin = "export const name = 'asker';\nexport function apply(host) {\n\
        host.on('listening', async () => {\n\
        const peer = host.connect();\n\
        await peer.request('initialize', { channel: 'ahp-root://', clientId: 'asker', protocolVersions: ['0.9.0'] });\n\
        const tried = [];\n\
        for (const [method, params] of [['listSessions', {}], ['createSession', { channel: 'echo:/p' }]]) {\n\
        try { await peer.request(method, params); tried.push(`${method} ok`); } catch (error) { tried.push(error.message); }\n\
        }\nhost.log(`tried ${tried.join('; ')}`);\n});\n}\n";
    for (grants, users, said) in [
        (json!(["session:list"]), true, "tried listSessions ok; plugin:asker may not session:create here"),
        (
            json!([]),
            true,
            "tried plugin:asker may not session:list here; plugin:asker may not session:create here",
        ),
        (json!([]), false, "tried listSessions ok; createSession ok"),
    ] {
        let mut config =
            json!({ "plugins": [{ "name": "@ostler/echo" }, { "name": "./asker.mjs", "grants": grants }] });
        if users {
            config["users"] = json!("users.json");
        }
        let folder = Folder::new(config);
        folder.write("asker.mjs", plugin);
        folder.write("users.json", "{}");
        let daemon = folder.start();
        let line = folder.wait_for_log("tried ");
        assert!(line.ends_with(said), "{line}");
        assert!(daemon.stop().is_some());
    }
}

#[test]
fn people_teams_and_projects_are_kept_by_verbs() {
    let folder = folder(json!({}));
    let run = |arguments: &[&str]| {
        let ended = folder.run(arguments);
        (ended.code, ended.out, ended.err)
    };
    let fails = |arguments: &[&str], sentence: &str| {
        let (code, _, err) = run(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {err}");
        assert!(err.contains(sentence), "{arguments:?}: {err}");
    };
    assert_eq!(run(&["user", "list"]).1, "no users\n");
    fails(&["user", "add", "ada", "--role", "nope"], "unknown role nope; the roles are admin, guest, member");
    fails(&["user", "add", "a:b"], "is not a valid id");
    fails(&["user", "add", "ada", "--member", "core"], "unknown team core; there are no teams yet");
    assert_eq!(run(&["team", "add", "core", "--title", "Core"]).0, Some(0));
    assert_eq!(run(&["project", "add", "search"]).0, Some(0));
    let token = add(&folder, &["ada", "--member", "core:search", "--primary", "core:search"]);
    assert_eq!(token.len(), 64);
    fails(&["user", "add", "ada"], "user ada already exists");
    fails(&["user", "token", "eve"], "unknown user eve");
    fails(&["team", "rm", "core", "--yes"], "team core is still used by user ada");
    fails(&["project", "rm", "search", "--yes"], "project search is still used by user ada");
    fails(&["user", "rm", "ada"], "Confirm with --yes");
    assert_eq!(run(&["user", "list"]).1, "ada: guest of core:search\n");
    let listed: Value = serde_json::from_str(&run(&["user", "list", "--json"]).1).unwrap();
    let ada = json!({ "id": "ada", "roles": ["guest"], "memberships": ["core:search"], "primary": "core:search", "token": true });
    assert_eq!(listed, json!([ada]));
    assert_eq!(run(&["team", "list"]).1, "core: Core\n");
    let written = folder.read("users.json");
    assert!(written.contains("sha256:") && !written.contains(&token));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(folder.path().join("users.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    assert_eq!(run(&["user", "rm", "ada", "--yes"]).1, "Removed user ada.\n");
    assert_eq!(run(&["project", "rm", "search", "--yes"]).0, Some(0));
    // What nobody here knows stays; what does not read is not written over.
    folder.write("users.json", r#"{ "ours": 1, "users": [{ "id": "b", "note": "x" }] }"#);
    assert_eq!(run(&["user", "token", "b"]).0, Some(0));
    let kept: Value = serde_json::from_str(&folder.read("users.json")).unwrap();
    assert_eq!((&kept["ours"], &kept["users"][0]["note"]), (&json!(1), &json!("x")));
    folder.write("users.json", "{ broken");
    assert_eq!(run(&["user", "add", "eve"]).0, Some(1));
    assert_eq!(folder.read("users.json"), "{ broken");
}

#[tokio::test]
async fn policies_of_the_folder_bind_once_switched_on() {
    let deny = json!([{ "id": "no-echo", "scope": "all", "kind": "agent", "effect": "deny", "match": { "agent": ["echo"] } }]);
    for (check, why) in [(false, None), (true, Some("no-echo refuses agent echo"))] {
        let folder = folder(json!({ "policies": { "check": check } }));
        let token = add(&folder, &["ada", "--role", "member"]);
        folder.write("policies.json", &deny.to_string());
        let daemon = folder.start();
        let mut client = daemon.initialized("c").await;
        sign_in(&daemon, &mut client, &token).await.unwrap();
        let made = client.request("createSession", json!({ "channel": "echo:/1" })).await;
        let said = made.err().map(|error| error["message"].as_str().unwrap().to_owned());
        assert_eq!(said.as_deref(), why);
        // An edit by hand binds the next one.
        folder.write("policies.json", &deny.to_string().replace("deny", "allow"));
        client.request("createSession", json!({ "channel": "echo:/2" })).await.unwrap();
    }
}

/// One request of the API as whoever has the token.
async fn api(daemon: &Daemon, token: &str, head: &str, body: Value) -> (u16, Value) {
    let headers = format!("Authorization: Bearer {token}\r\nContent-Type: application/json\r\n");
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let head = head.replacen(' ', " /api/", 1);
    daemon.ask(&head, &headers, &body).await
}

/// Asks, and answers the status and the message of a refusal.
async fn refused(daemon: &Daemon, token: &str, head: &str, body: Value) -> (u16, String) {
    let (status, answer) = api(daemon, token, head, body).await;
    (status, answer["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn the_api_knows_people_by_their_tokens() {
    let folder = folder(json!({ "http": true, "connectionToken": "the-hosts-own" }));
    for team in ["core", "side"] {
        assert_eq!(folder.run(&["team", "add", team]).code, Some(0));
    }
    let ada = add(&folder, &["ada", "--role", "admin"]);
    let ben = add(&folder, &["ben", "--role", "member", "--member", "core"]);
    let mut file: Value = serde_json::from_str(&folder.read("users.json")).unwrap();
    file["roles"] = json!({
        "hands": ["config:read", "team:read", "team:write", "user:read", "user:write", "role:read"],
    });
    file["users"][1]["roles"] = json!(["member", "hands"]);
    folder.write("users.json", &file.to_string());
    let daemon = folder.start();

    // Whoever shows no token that is known is not let in, and everybody known is told what they may not.
    assert_eq!(api(&daemon, "nobody's", "GET status", Value::Null).await.0, 401);
    assert_eq!(api(&daemon, &ada, "GET status", Value::Null).await.0, 200);
    let (status, config) = api(&daemon, &ben, "GET config", Value::Null).await;
    assert_eq!(status, 200, "{config}");
    assert!(!config.to_string().contains("the-hosts-own"), "{config}");
    let only = "may not install or remove a plugin here; only the deployment token may";
    for (token, who) in [(&ada, "ada"), (&ben, "ben")] {
        let body = json!({ "name": "@ostler/bot" });
        assert_eq!(
            refused(&daemon, token, "POST plugin/install", body).await,
            (403, format!("{who} {only}"))
        );
    }
    let (status, manifest) = api(&daemon, &ben, "GET cli-manifest", Value::Null).await;
    assert_eq!((status, &manifest["program"]["name"]), (200, &json!("ostler")));

    // Secrets: the host's ask for its configuration, a team's for being of it, a person's are that person's.
    let value = || json!({ "value": "v" });
    assert_eq!(api(&daemon, "the-hosts-own", "POST vault/set/host%3Ak", value()).await.0, 200);
    assert_eq!(
        refused(&daemon, &ben, "POST vault/set/host%3Ak", value()).await,
        (403, "ben may not config:change here".to_owned())
    );
    assert_eq!(api(&daemon, &ben, "POST vault/set/team%3Acore%2Fk", value()).await.0, 200);
    assert_eq!(
        refused(&daemon, &ben, "POST vault/set/team%3Aside%2Fk", value()).await,
        (403, "ben may not change team:side/k here".to_owned())
    );
    assert_eq!(api(&daemon, &ben, "POST vault/set/user%3Aben%2Fk", value()).await.0, 200);
    assert_eq!(refused(&daemon, &ada, "POST vault/delete/user%3Aben%2Fk", json!({})).await.0, 403);
    let names = async |token: &str| {
        let (_, rows) = api(&daemon, token, "GET vault/list", Value::Null).await;
        rows.as_array()
            .unwrap()
            .iter()
            .map(|row| row["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&ada).await, ["host:k"]);
    assert_eq!(names(&ben).await, ["host:k", "team:core/k", "user:ben/k"]);
    assert_eq!(names("the-hosts-own").await.len(), 3);

    // Use: one's own, and what one's grants say.
    let (status, row) = api(&daemon, &ben, "GET usage/user%3Aben", Value::Null).await;
    assert_eq!((status, &row["pool"], &row["kind"]), (200, &json!("user:ben"), &json!("user")), "{row}");
    assert_eq!(api(&daemon, &ben, "GET usage/team%3Acore", Value::Null).await.0, 200);
    assert_eq!(
        refused(&daemon, &ben, "GET usage/user%3Aada", Value::Null).await,
        (403, "ben may not usage:get here".to_owned())
    );
    assert_eq!(api(&daemon, &ada, "GET usage/user%3Aben", Value::Null).await.0, 200);

    // People: nobody gives away what they do not hold, and what is added binds at once.
    let (status, made) =
        api(&daemon, &ben, "POST user/add", json!({ "id": "cleo", "roles": ["hands"] })).await;
    assert_eq!(status, 200, "{made}");
    let cleo = made["token"].as_str().unwrap().to_owned();
    assert_eq!(api(&daemon, &cleo, "GET status", Value::Null).await.0, 200);
    let more = json!({ "id": "dan", "roles": ["admin"] });
    let (status, why) = refused(&daemon, &ben, "POST user/add", more).await;
    assert_eq!(status, 403, "{why}");
    assert!(why.contains("does not have"), "{why}");
    assert_eq!(refused(&daemon, &ben, "POST user/add", json!({ "id": "cleo" })).await.0, 400);
    let (_, listed) = api(&daemon, &ben, "GET user/list", Value::Null).await;
    assert_eq!(listed.as_array().unwrap().len(), 3);
    assert!(!listed.to_string().contains("sha256"), "{listed}");
    assert_eq!(api(&daemon, &cleo, "POST user/rm", json!({ "id": "cleo" })).await.0, 200);
    assert_eq!(api(&daemon, &cleo, "GET status", Value::Null).await.0, 401, "cleo is gone");
    assert_eq!(api(&daemon, &ada, "POST team/rm", json!({ "id": "side" })).await.0, 200);
    let left = folder.read("log") + &*folder.read("users.json") + &*daemon.block.join("\n");
    assert!(!left.contains(&cleo), "a token is kept or said");
}

#[tokio::test]
async fn an_api_without_a_connection_token_is_for_people() {
    let folder = folder(json!({ "http": true, "withoutConnectionToken": true }));
    let ada = add(&folder, &["ada", "--role", "admin"]);
    let daemon = folder.start();
    assert_eq!(daemon.block[1], format!("http on http://{}/api", daemon.address()));
    assert_eq!(api(&daemon, &ada, "GET status", Value::Null).await.0, 200);
    assert_eq!(daemon.ask("GET /api/status", "", "").await.0, 401);
}

#[tokio::test]
async fn what_work_cost_is_there_after_a_restart_and_told_to_whose_it_is() {
    let meter = "export function apply(host) {
        host.on('listening', () => host.recordUsage({
            kind: 'computer', owner: 'user:ada', computer: 'box', seconds: 1, cost: { amount: 0.25, currency: 'USD' },
        }));
    }";
    let plugins = json!([{ "name": "@ostler/echo" }, { "name": "./meter.js" }]);
    let folder = folder(json!({ "plugins": plugins, "usage": { "timezone": "Mars/Base" } }));
    folder.write("meter.js", meter);
    let (ada, ben) = (add(&folder, &["ada", "--role", "member"]), add(&folder, &["ben", "--role", "member"]));
    folder.start().stop();
    let daemon = folder.start();
    folder.wait_for_log("config.json: usage.timezone: unknown time zone Mars/Base; using the system's");
    let mut client = daemon.initialized("c").await;
    sign_in(&daemon, &mut client, &ada).await.unwrap();
    let totals = client.request("x-ostler/usage/totals", json!({})).await.unwrap();
    let expected = json!({ "usd": 0.5, "seconds": 2.0 });
    assert_eq!(
        (&totals["totals"][0]["pool"], &totals["totals"][0]["month"]),
        (&json!("user:ada"), &expected)
    );
    sign_in(&daemon, &mut client, &ben).await.unwrap();
    assert_eq!(client.request("x-ostler/usage/totals", json!({})).await.unwrap(), json!({ "totals": [] }));
    let read = client.request("resourceRead", json!({ "uri": "usage://user%3Aada" })).await.unwrap_err();
    assert_eq!(read["code"], REFUSED);
}

#[tokio::test]
async fn a_misspelled_pool_is_no_pool_without_charges() {
    let folder = folder(json!({ "http": true, "connectionToken": "the-hosts-own" }));
    let daemon = folder.start();
    for pool in ["ada", "users:ada", "user:", "project:core"] {
        let why = format!("invalid pool {pool}: use user:<id>, ");
        let (status, said) =
            refused(&daemon, "the-hosts-own", &format!("GET usage/{pool}"), Value::Null).await;
        assert_eq!(status, 400, "{said}");
        assert!(said.starts_with(&why), "{said}");
        let ended = folder.run(&["usage", pool]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.err.starts_with(&why), "{ended:?}");
    }
    let (status, usage) = api(&daemon, "the-hosts-own", "GET usage/project%3Acore%3Ahay", Value::Null).await;
    assert_eq!((status, &usage["pool"]), (200, &json!("project:core:hay")));
}

const BOARD: &str = r"
    export const name = 'board';
    export function apply(host) {
        const board = host.registerChannel('x-board', {
            grant: 'x-board:get',
            snapshot: (uri, reader) => ({ for: reader.id }),
            left: (client) => host.log(`${client} left`),
        });
        host.registerMethod('x-board/say', {
            grant: 'x-board:put',
            handle({ text, hide }, reader, client, owner) {
                const visible = (reader) => reader.id !== hide;
                board.publish('x-board://a', { type: 'x-board/said', text, owner }, { visible });
                return board.subscribers('x-board://a').map((watcher) => watcher.reader.id);
            },
        });
    }
";

#[tokio::test]
async fn a_plugins_channel_and_commands_ask_for_the_grants_they_name() {
    let folder = folder(json!({ "plugins": [{ "name": "@ostler/echo" }, { "name": "./board.js" }] }));
    folder.write("board.js", BOARD);
    let tokens = ["ada", "bob", "cleo"].map(|id| add(&folder, &[id]));
    let mut file: Value = serde_json::from_str(&folder.read("users.json")).unwrap();
    file["roles"] = json!({ "talks": ["x-board:*"], "watches": ["x-board:read"], "else": ["session:read"] });
    for (at, role) in ["talks", "watches", "else"].into_iter().enumerate() {
        file["users"][at]["roles"] = json!([role]);
    }
    folder.write("users.json", &file.to_string());
    let daemon = folder.start();
    let mut clients = Vec::new();
    for (token, name) in tokens.iter().zip(["a", "b", "c"]) {
        let mut client = daemon.initialized(name).await;
        let nobody = client.request("subscribe", json!({ "channel": "x-board://a" })).await.unwrap_err();
        assert_eq!(nobody["code"], NOBODY);
        sign_in(&daemon, &mut client, token).await.unwrap();
        clients.push(client);
    }
    let [ada, bob, cleo] = &mut clients[..] else { panic!("three") };
    assert_eq!(ada.subscribe("x-board://a").await, json!({ "for": "user:ada" }));
    assert_eq!(bob.subscribe("x-board://a").await, json!({ "for": "user:bob" }));
    let refused = cleo.request("subscribe", json!({ "channel": "x-board://a" })).await.unwrap_err();
    assert_eq!(
        (&refused["code"], &refused["message"]),
        (&json!(REFUSED), &json!("cleo may not x-board:get here"))
    );
    let refused = bob.request("x-board/say", json!({ "text": "mine" })).await.unwrap_err();
    assert_eq!(refused["message"], "bob may not x-board:put here");
    let watching =
        ada.request("x-board/say", json!({ "text": "for ada", "hide": "user:bob" })).await.unwrap();
    assert_eq!(watching, json!(["user:ada", "user:bob"]));
    ada.request("x-board/say", json!({ "text": "for both" })).await.unwrap();
    let seen = bob.actions_until("x-board/said").await.pop().unwrap();
    assert_eq!((&seen["action"]["text"], &seen["action"]["owner"]), (&json!("for both"), &json!("user:ada")));
    // Whoever comes back is asked about again, and whoever lost the grant watches no longer.
    let mut back = daemon.client().await;
    let last = seen["serverSeq"].as_u64().unwrap();
    let reconnect =
        json!({ "clientId": "b", "lastSeenServerSeq": last - 2, "subscriptions": ["x-board://a"] });
    assert_eq!(
        back.request("reconnect", reconnect.clone()).await.unwrap()["missing"],
        json!(["x-board://a"])
    );
    sign_in(&daemon, &mut back, &tokens[1]).await.unwrap();
    let replayed = back.request("reconnect", reconnect).await.unwrap();
    let texts: Vec<&Value> =
        replayed["actions"].as_array().unwrap().iter().map(|sent| &sent["action"]["text"]).collect();
    assert_eq!(texts, ["for both"], "{replayed}");
    // What the host itself writes, that each was here, is written first.
    let written = crate::support::wait_for(|| {
        let written = folder.read("users.json");
        (written.matches("signedIn").count() == 3).then_some(written)
    });
    let mut file: Value = serde_json::from_str(&written.unwrap()).unwrap();
    file["users"][1]["roles"] = json!(["else"]);
    folder.write("users.json", &file.to_string());
    folder.wait_for_log("plugin board: b left");
    let watching = ada.request("x-board/say", json!({ "text": "alone" })).await.unwrap();
    assert_eq!(watching, json!(["user:ada"]));
}
