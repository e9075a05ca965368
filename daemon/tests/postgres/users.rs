//! The stores of the users file: the suite that each of them passes, and real daemons whose users are in a database.
//! `.ci/postgres` runs the ignored tests.

#![allow(clippy::panic)]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Client, Daemon, Ended, Folder, LIMIT, wait_for};
use ostler::users_file::UsersOnDisk;
use ostler_plugin_postgres::{Direct, Retention, plugin};
use ostler_ports::conformance::users_conformance;
use ostler_testkit::MemoryHost;
use ostler_testkit::postgres::Postgres;
use serde_json::{Value, json};
use tokio::sync::Notify;

const TOKEN: &str = "the-token";
const REFUSED: i64 = -32009;

fn options(server: &Postgres) -> Value {
    json!({ "url": server.url(), "passwordFile": server.password_file(), "vaultKeyFile": server.key_file() })
}

/// A folder with these keys of the configuration, on the database.
fn folder_with(options: &Value, more: Value) -> Folder {
    let plugins = json!([{ "name": "@ostler/postgres", "options": options }, { "name": "@ostler/echo" }]);
    let mut config = json!({ "connectionToken": TOKEN, "plugins": plugins });
    config.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
    Folder::new(config)
}

/// The folder of a host of a cluster.
fn member(server: &Postgres, id: &str) -> Folder {
    let token = server.password_file().with_file_name("cluster.token");
    fs::write(&token, "of-the-cluster").unwrap();
    let mut options = options(server);
    options["cluster"] =
        json!({ "url": "ws://127.0.0.1:0", "tokenFile": token, "id": id, "sharedPaths": ["/"] });
    folder_with(&options, json!({ "users": "users.json" }))
}

#[track_caller]
fn ok(ended: Ended) -> String {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.out
}

/// Adds a user; returns the token.
fn add(folder: &Folder, id: &str, role: &str) -> String {
    ok(folder.run(&["user", "add", id, "--role", role])).trim().to_owned()
}

/// The users in the database, as text.
fn stored(server: &Postgres) -> String {
    server.psql("ostler", "SELECT content FROM ostler.users")
}

async fn root(daemon: &Daemon, name: &str) -> Client {
    let mut client = Client::connect(&format!("{}/?tkn={TOKEN}", daemon.url)).await;
    client.initialize(name).await;
    client
}

/// Authenticates a client with a personal token.
async fn sign_in(daemon: &Daemon, client: &mut Client, token: &str) -> Result<(), i64> {
    let line = daemon.block.iter().find_map(|line| line.strip_prefix("sign-in ")).expect("it has users");
    let params = json!({ "resource": line, "token": token });
    client.request("authenticate", params).await.map(drop).map_err(|error| error["code"].as_i64().unwrap())
}

/// A client that has not signed in, on a connection that a personal token opened.
async fn opened(daemon: &Daemon, token: &str, name: &str) -> Option<Client> {
    let connecting = tokio_tungstenite::connect_async(format!("{}/?tkn={token}", daemon.url));
    let (socket, _) = tokio::time::timeout(LIMIT, connecting).await.ok()?.ok()?;
    let mut client = Client::of(socket);
    client.initialize(name).await;
    Some(client)
}

async fn list(client: &mut Client) -> Result<(), i64> {
    client.request("listSessions", json!({})).await.map(drop).map_err(|error| error["code"].as_i64().unwrap())
}

/// Repeats until the answer is this one.
async fn until(what: &str, wanted: Result<(), i64>, mut ask: impl AsyncFnMut() -> Result<(), i64>) {
    let repeated = async {
        while ask().await != wanted {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LIMIT, repeated).await.unwrap_or_else(|_| panic!("{what}: never {wanted:?}"));
}

/// A user who has signed in at a host, whose database may have learned of the user a moment ago.
async fn signed_in(daemon: &Daemon, token: &str, name: &str) -> Client {
    let mut found = None;
    until("the connection is accepted", Ok(()), async || {
        found = opened(daemon, token, name).await;
        found.as_ref().map(drop).ok_or(0)
    })
    .await;
    let mut client = found.unwrap();
    sign_in(daemon, &mut client, token).await.unwrap();
    client
}

#[tokio::test]
async fn the_users_file_passes_the_suite() {
    let dir = tempfile::tempdir().unwrap();
    let users = || Arc::new(UsersOnDisk::new(dir.path().join("folder/users.json")));
    users_conformance(users(), users()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn users_in_postgres_pass_the_suite_and_every_change_is_noticed() {
    let server = Postgres::start();
    let options = options(&server);
    let host = MemoryHost::builder().plugin(plugin(Retention::default()), options.clone()).start().await;
    let store = host.host.core.users_store().expect("the plugin provides the users").clone();
    let direct = Direct::connect(options.as_object().unwrap(), Path::new("/")).await.unwrap();
    users_conformance(store.clone(), direct.users()).await;

    let heard = Arc::new(Notify::new());
    let listener = heard.clone();
    store.listen(Arc::new(move || listener.notify_one()));
    // Calls can be about an earlier change.
    let becomes = async |wanted: Option<&str>| {
        let becomes = async {
            loop {
                heard.notified().await;
                if store.read().await.unwrap().as_deref() == wanted {
                    return;
                }
            }
        };
        tokio::time::timeout(LIMIT, becomes).await.unwrap_or_else(|_| panic!("{wanted:?} is not noticed"));
    };
    direct.users().change(Arc::new(|_| Ok(Some(r#"{"users":[]}"#.into())))).await.unwrap();
    becomes(Some(r#"{"users":[]}"#)).await;
    server.psql("ostler", r#"UPDATE ostler.users SET content = '{"users":[{"id":"sql"}]}'"#);
    becomes(Some(r#"{"users":[{"id":"sql"}]}"#)).await;
    server.psql("ostler", "DELETE FROM ostler.users");
    becomes(None).await;
    host.host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn changes_of_users_apply_on_every_host_of_a_cluster() {
    let server = Postgres::start();
    let (first, second) = (member(&server, "first"), member(&server, "second"));
    // What a host of an earlier version had in its file.
    first.write(
        "users.json",
        r#"{ "roles": { "idle": [] }, "users": [{ "id": "old", "roles": ["member"] }] }"#,
    );
    second.write("users.json", r#"{ "users": [{ "id": "other", "roles": ["admin"] }] }"#);
    let a = first.start();
    first.wait_for_log("was stored as the users in PostgreSQL");
    let b = second.start();
    second.wait_for_log("users.json is not read and differs from the users in PostgreSQL");
    assert!(stored(&server).contains("old") && !stored(&server).contains("other"), "{}", stored(&server));
    assert!(second.read("users.json").contains("other"), "the file is left as it is");

    // A user who is created through one host signs in on the other.
    let token = add(&first, "ada", "member");
    let mut ada = signed_in(&b, &token, "ada").await;
    assert_eq!(list(&mut ada).await, Ok(()));
    ada.request("createSession", json!({ "channel": "echo:/b", "provider": "echo" })).await.unwrap();
    let mut creates = root(&a, "creates").await;
    creates.request("createSession", json!({ "channel": "echo:/a", "provider": "echo" })).await.unwrap();
    // One of this host, and one that is relayed.
    let chats = ["echo:/b", "echo:/a"].map(ostler_protocol::uri::default_chat);
    for chat in &chats {
        ada.subscribe(chat).await;
    }
    let first_sign_in = || stored(&server).contains("signedIn").then_some(());
    wait_for(first_sign_in).expect("the first sign-in is recorded in the database");

    // A grant that is changed through one host applies to an open connection of the other.
    let mut admin = root(&a, "admin").await;
    let roles = async |admin: &mut Client, roles: &str| {
        let data = json!({ "roles": [roles] }).to_string();
        let params =
            json!({ "channel": "ahp-root://", "uri": "user://ada", "data": data, "encoding": "utf-8" });
        admin.request("resourceWrite", params).await.unwrap();
    };
    roles(&mut admin, "idle").await;
    until("the grant is lost", Err(REFUSED), async || list(&mut ada).await).await;
    roles(&mut admin, "member").await;
    until("the grant is back", Ok(()), async || list(&mut ada).await).await;
    // Its subscriptions were ended, so they are made again.
    for chat in &chats {
        ada.subscribe(chat).await;
    }

    // A token that is replaced through one host is invalid on the other.
    let new = ok(first.run(&["user", "token", "ada"])).trim().to_owned();
    until("the old token is invalid", Err(0), async || opened(&b, &token, "x").await.map(drop).ok_or(0))
        .await;
    // What the token opened ends with it.
    assert_eq!(ada.closed().await.0, 1008);
    let mut ada = signed_in(&b, &new, "ada").await;
    for chat in &chats {
        ada.subscribe(chat).await;
    }

    // A user who is removed through one host loses everything on the other.
    ok(first.run(&["user", "rm", "ada", "--yes"]));
    assert_eq!(ada.closed().await.0, 1008);
    let mut others = root(&b, "others").await;
    for (at, chat) in chats.iter().enumerate() {
        others.subscribe(chat).await;
        let turn = json!({ "type": "chat/turnStarted", "turnId": format!("t{at}"), "message": { "text": "secret" } });
        others.dispatch(chat, 1, turn).await;
        others.actions_until("chat/turnComplete").await;
    }
    assert!(opened(&b, &new, "z").await.is_none(), "the token of a removed user opens no connection");

    for secret in [&token, &new] {
        for text in [first.read("log"), second.read("log"), stored(&server), first.read("users.json")] {
            assert!(!text.contains(secret.as_str()), "a token is shown");
        }
    }
    assert_eq!((a.stop(), b.stop()), (Some(0), Some(0)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn users_are_refused_without_the_database_and_no_host_starts_without_it() {
    let server = Postgres::start();
    let folder = folder_with(&options(&server), json!({ "users": "users.json" }));
    let daemon = folder.start();
    folder.wait_for_log("there are none; no user can sign in");
    let mut before = root(&daemon, "before").await;
    assert_eq!(list(&mut before).await, Ok(()));
    let token = add(&folder, "ada", "member");
    let mut ada = signed_in(&daemon, &token, "ada").await;
    wait_for(|| stored(&server).contains("signedIn").then_some(())).expect("the sign-in is recorded");
    let edited = stored(&server);
    // An invalid change with SQL leaves the last valid users in force.
    server.psql("ostler", r#"UPDATE ostler.users SET content = '{"users":1}'"#);
    folder.wait_for_log("users must be a list; keeping the last valid users and grants");
    assert_eq!(list(&mut ada).await, Ok(()));
    server.psql("ostler", &format!("UPDATE ostler.users SET content = '{edited}'"));

    server.stop();
    assert_eq!(ada.closed().await.0, 1013, "nobody knows whether the user is still one");
    assert!(opened(&daemon, &token, "again").await.is_none());
    let ping = before.request("ping", json!({})).await;
    assert!(ping.is_ok(), "the connection token is not one of a user: {ping:?}");
    server.start_again();
    let second = wait_for(|| {
        let ended = folder.run(&["user", "token", "ada"]);
        (ended.code == Some(0)).then(|| ended.out.trim().to_owned())
    });
    drop(signed_in(&daemon, &second.expect("the database answers again"), "later").await);
    assert_eq!(daemon.stop(), Some(0));

    server.stop();
    let ended = folder.run(&[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    server.start_again();
    // An invalid file of an earlier version is neither lost nor ignored.
    server.psql("ostler", "DELETE FROM ostler.users");
    folder.write("users.json", "{ broken");
    for command in [&[][..], &["user", "add", "ben"]] {
        let ended = folder.run(command);
        assert!(ended.code == Some(1) && ended.err.contains("users.json: line 1"), "{ended:?}");
    }
    assert_eq!(stored(&server), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn a_host_checks_grants_once_its_database_has_users() {
    let server = Postgres::start();
    // Without the key `users`.
    let folder = folder_with(&options(&server), json!({}));
    let daemon = folder.start();
    let mut client = root(&daemon, "open").await;
    let hello = client.request("listSessions", json!({})).await;
    assert!(hello.is_ok(), "{hello:?}");
    add(&folder, "ada", "member");
    while client.next_frame().await.is_some() {}
    folder.wait_for_log("grants are checked from now on");
    let mut client = Client::connect(&format!("{}/?tkn={TOKEN}", daemon.url)).await;
    let hello = client.initialize("again").await;
    assert!(hello["_meta"]["ostler.principal"].as_str().unwrap().starts_with("root:"), "{hello}");
    assert_eq!(daemon.stop(), Some(0));
    let daemon = folder.start();
    assert!(daemon.block.iter().any(|line| line.starts_with("sign-in ")), "{:?}", daemon.block);
    ok(folder.run(&["user", "rm", "ada", "--yes"]));
    assert_eq!(ok(folder.run(&["user", "list"])), "no users\n");
    assert_eq!(daemon.stop(), Some(0));
    let daemon = folder.start();
    assert!(daemon.block.iter().any(|line| line.starts_with("sign-in ")), "also without a user left");
    assert_eq!(daemon.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn users_move_to_postgres_and_back() {
    let server = Postgres::start();
    let mut entry = json!({ "name": "@ostler/postgres", "options": options(&server), "enabled": false });
    let config = |users: bool, entry: &Value| {
        let mut config = json!({ "connectionToken": TOKEN, "plugins": [entry, { "name": "@ostler/echo" }] });
        if users {
            config["users"] = json!("users.json");
        }
        config
    };
    let folder = Folder::new(config(true, &entry));
    let ada = add(&folder, "ada", "member");
    let mut file: Value = serde_json::from_str(&folder.read("users.json")).unwrap();
    (file["note"], file["roles"]["idle"]) = (json!("kept"), json!([]));
    folder.write("users.json", &file.to_string());
    let told = ok(folder.run(&["migrate", "--to", "postgres", "--write-config"]));
    assert!(told.contains("users files"), "{told}");
    let daemon = folder.start();
    drop(signed_in(&daemon, &ada, "ada").await);
    let ben = add(&folder, "ben", "guest");
    assert!(!folder.read("users.json").contains("ben"), "the file is not used any more");
    assert_eq!(daemon.stop(), Some(0));

    ok(folder.run(&["migrate", "--to", "files", "--force", "--write-config"]));
    let file: Value = serde_json::from_str(&folder.read("users.json")).unwrap();
    assert_eq!((&file["note"], &file["roles"]["idle"]), (&json!("kept"), &json!([])), "{file}");
    let ids: Vec<&str> =
        file["users"].as_array().unwrap().iter().map(|user| user["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["ada", "ben"]);
    let daemon = folder.start();
    for token in [&ada, &ben] {
        drop(signed_in(&daemon, token, "moved").await);
    }
    assert_eq!(daemon.stop(), Some(0));

    // A host without the key is not opened by the move to files.
    entry.as_object_mut().unwrap().remove("enabled");
    let open = Folder::new(config(false, &entry));
    let ended = open.run(&["migrate", "--to", "files", "--write-config"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let written: Value = serde_json::from_str(&open.read("config.json")).unwrap();
    assert!(written["users"].as_str().unwrap().ends_with("users.json"), "{written}");
    let daemon = open.start();
    drop(signed_in(&daemon, &ben, "ben").await);
    assert_eq!(daemon.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn edits_of_the_users_file_reach_the_database_record_by_record() {
    let server = Postgres::start();
    let mut watched = options(&server);
    watched["watchFiles"] = json!(true);
    let folder = folder_with(&watched, json!({ "users": "users.json" }));
    folder.write(
        "users.json",
        r#"{ "users": [{ "id": "ada", "roles": ["member"] }, { "id": "ben", "roles": [] }] }"#,
    );
    let daemon = folder.start();
    folder.wait_for_log("was stored as the users in PostgreSQL");
    let stores = |what: &str, holds: &dyn Fn(&Value) -> bool| {
        let now = || serde_json::from_str::<Value>(&stored(&server)).unwrap();
        wait_for(|| holds(&now()).then_some(())).unwrap_or_else(|| panic!("{what}: {}", now()));
    };
    let roles = |file: &Value, at: usize| file["users"][at]["roles"].clone();

    let record = || fs::read_to_string(folder.state_file("edited-files.json")).ok();
    wait_for(|| record()?.contains("users.json user ada").then_some(())).expect("the file is compared");
    // The token of one is created in the database, the roles of the other are edited: that is no conflict.
    ok(folder.run(&["user", "token", "ada"]));
    folder.write(
        "users.json",
        r#"{ "roles": { "x": [] }, "users": [{ "id": "ada", "roles": ["member"] }, { "id": "ben", "roles": ["x"] }] }"#,
    );
    stores("an edited user", &|file| roles(file, 1) == json!(["x"]));
    stores("a token", &|file| {
        file["users"][0]["token"].as_str().is_some_and(|token| token.starts_with("sha256:"))
    });
    folder.wait_for_log("users.json user ada is not stored: the database has a newer version");
    ok(folder.run(&["files", "export", "users.json"]));
    assert!(folder.read("users.json").contains("sha256:"));
    // A record that is removed from the file is removed; a missing or broken file removes nobody.
    folder.write("users.json", &folder.read("users.json").replace("\"ben\"", "\"cleo\""));
    stores("a replaced user", &|file| {
        file["users"][1]["id"] == "cleo" && file["users"].as_array().unwrap().len() == 2
    });
    let before = folder.read("users.json");
    folder.write("users.json", "{ broken");
    folder.wait_for_log("users.json is not stored: ");
    fs::remove_file(folder.path().join("users.json")).unwrap();
    folder.write(
        "automations/note.md",
        "---\ntitle: Noted\nsession: { provider: echo }\ntriggers: []\n---\nNote it.\n",
    );
    folder.wait_for_log("stored automations/note.md");
    stores("nobody is removed", &|file| file["users"].as_array().unwrap().len() == 2);
    folder.write("users.json", &before);

    ok(folder.run(&["files", "export", "--folder", "copy"]));
    let copy = folder.read("copy/users.json");
    folder.write("copy/users.json", &copy.replace("\"cleo\"", "\"dora\""));
    let told = ok(folder.run(&["files", "import", "--folder", "copy", "users.json user dora"]));
    assert!(told.contains("stored users.json user dora"), "{told}");
    stores("an imported user", &|file| file["users"][2]["id"] == "dora");
    let found: Value = serde_json::from_str(&folder.run(&["doctor", "--json"]).out).unwrap();
    let users = found["checks"].as_array().unwrap().iter().find(|row| row["check"] == "users").unwrap();
    assert!(
        users["state"] == "ok" && users["found"].as_str().unwrap().contains("users in PostgreSQL"),
        "{users}"
    );
    assert_eq!(daemon.stop(), Some(0));
}
