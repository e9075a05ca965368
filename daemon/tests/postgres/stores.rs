//! A real daemon whose stores are in a real PostgreSQL. `.ci/postgres` runs these tests.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::support::{Client, Daemon, Folder, LIMIT};
use ostler_testkit::not_run;
use ostler_testkit::postgres::{PASSWORD, Pooler, Postgres};
use serde_json::{Value, json};

const TOKEN: &str = "the-token";

/// A folder with a daemon on a schema of the server.
fn folder(server: &Postgres, schema: &str) -> Folder {
    let plugins = json!([
        { "name": "@ostler/postgres", "options": {
            "url": server.url(), "schema": schema, "passwordFile": server.password_file(),
            "vaultKeyFile": server.key_file(),
        } },
        { "name": "@ostler/echo" }, { "name": "@ostler/bot" }, { "name": "@ostler/webhook" },
        { "name": "@ostler/console" },
    ]);
    Folder::new(json!({ "connectionToken": TOKEN, "plugins": plugins }))
}

async fn client(daemon: &Daemon, name: &str) -> Client {
    let mut client = Client::connect(&format!("{}/?tkn={TOKEN}", daemon.url)).await;
    client.initialize(name).await;
    client
}

/// Runs a turn that echoes a text; returns the chat.
async fn turn(client: &mut Client, session: &str, text: &str) -> String {
    let chat = ostler_protocol::uri::default_chat(session);
    client.request("createSession", json!({ "channel": session, "provider": "echo" })).await.unwrap();
    client.request("subscribe", json!({ "channel": chat })).await.unwrap();
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": text } });
    assert!(client.try_dispatch(&chat, 1, turn).await);
    loop {
        let frame = client.next_frame().await.expect("the turn ends");
        if frame["params"]["action"]["type"] == "chat/turnComplete" {
            return chat;
        }
    }
}

async fn texts(client: &mut Client, chat: &str) -> Vec<String> {
    let state = client.subscribe(chat).await;
    let turns = state["turns"].as_array().unwrap();
    turns.iter().map(|turn| turn["message"]["text"].as_str().unwrap().to_owned()).collect()
}

/// An endpoint, its secret and its automation, as an operator of the database creates them.
async fn add_webhook(server: &Postgres, schema: &str, daemon: &Daemon) {
    let headers = format!("Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n");
    let (status, answer) =
        daemon.ask("POST /api/vault/set/host%3Ain", &headers, &json!({ "value": "right" }).to_string()).await;
    assert_eq!(status, 200, "{answer}");
    let endpoint = json!({ "id": "in", "automation": true, "secret": "host:in" });
    let definition = json!({
        "title": "Note", "enabled": true, "message": { "text": "noted {{event.n}}", "origin": { "kind": "automation" } },
        "session": { "provider": "echo" },
        "triggers": [{ "kind": "event", "id": "called", "type": "webhook", "title": "Called",
            "events": [{ "id": "call", "title": "Call" }], "config": { "endpoint": "in" } }],
        "_meta": { "ostler": { "overlap": "parallel", "hourlyCap": 1_000_000 } },
    });
    server.psql("ostler", &format!(
        "INSERT INTO {schema}.records (collection, id, record) VALUES ('webhooks', 'in', '{endpoint}');
         INSERT INTO {schema}.automations VALUES ('note', '{definition}', NULL, '2026-01-01T00:00:00Z', '2026-01-01T00:00:00Z')"
    ));
    let end = std::time::Instant::now() + LIMIT;
    // Until the host has noticed both.
    while server.psql("ostler", &format!("SELECT count(*) FROM {schema}.automation_runs")) == "0" {
        daemon.post("/plugins/webhook/in", Some("right"), r#"{ "n": -1 }"#).await;
        assert!(std::time::Instant::now() < end, "no call starts a run");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn sessions_runs_and_secrets_are_in_the_database_and_there_after_a_restart() {
    let server = Postgres::start();
    let folder = folder(&server, "ostler");
    let daemon = folder.start();
    assert!(
        daemon.block.iter().any(|line| line.contains("automations from plugin postgres")),
        "{:?}",
        daemon.block
    );
    assert!(daemon.block.iter().any(|line| line.contains("vault from a plugin")), "{:?}", daemon.block);
    let mut ada = client(&daemon, "ada").await;
    let chat = turn(&mut ada, "echo:/one", "hello").await;
    add_webhook(&server, "ostler", &daemon).await;
    let (status, _) = daemon.post("/plugins/webhook/in", Some("right"), r#"{ "n": 1 }"#).await;
    assert_eq!(status, 202);
    // A name that an earlier version accepted can be deleted.
    server.psql(
        "ostler",
        "INSERT INTO ostler.vault SELECT 'host:a//b', key_id, value FROM ostler.vault WHERE name = 'host:in'",
    );
    let headers = format!("Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n");
    for (code, says) in [(200, "deleted"), (400, "a secret is named")] {
        let (status, answer) = daemon.ask("POST /api/vault/delete/host%3Aa%2F%2Fb", &headers, "{}").await;
        assert!(status == code && answer.to_string().contains(says), "{status} {answer}");
    }
    let ended = "SELECT count(*) FROM ostler.automation_runs WHERE NOT ended";
    crate::support::wait_for(|| (server.psql("ostler", ended) == "0").then_some(())).expect("the runs end");
    assert_eq!(daemon.stop(), Some(0));
    assert_eq!(server.psql("ostler", "SELECT count(*) FROM ostler.host"), "0", "the lease is given up");
    for file in ["vault.json", "automations", "webhooks", "policies.json"] {
        assert!(!folder.path().join(file).exists(), "{file} is in the database");
    }

    let daemon = folder.start();
    let mut ada = client(&daemon, "ada again").await;
    assert_eq!(texts(&mut ada, &chat).await, ["hello"]);
    let listed = ada.request("listSessions", json!({})).await.unwrap();
    assert!(listed["items"].as_array().unwrap().len() >= 3, "{listed}");
    let (status, _) = daemon.post("/plugins/webhook/in", Some("right"), r#"{ "n": 2 }"#).await;
    assert_eq!(status, 202, "the secret is there");
    assert!(!folder.read("log").contains(PASSWORD), "{}", folder.read("log"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn what_was_accepted_is_there_after_the_daemon_or_the_server_was_killed() {
    let server = Arc::new(Postgres::start());
    let folder = folder(&server, "ostler");
    let mut daemon = folder.start();
    add_webhook(&server, "ostler", &daemon).await;
    let mut accepted: Vec<i64> = Vec::new();
    for round in 0..4 {
        let taken = Arc::new(AtomicUsize::new(0));
        let calls: Vec<_> = (0..4)
            .map(|lane| {
                let (address, taken) = (daemon.address().to_owned(), taken.clone());
                tokio::spawn(async move {
                    let mut accepted = Vec::new();
                    for at in 0..20 {
                        let number: i64 = round * 1000 + lane * 100 + at;
                        let body = json!({ "n": number }).to_string();
                        let path = "/plugins/webhook/in";
                        match crate::support::post(&address, path, Some("right"), &body).await {
                            Some((202, _)) => accepted.push(number),
                            Some(_) => {}
                            None => break,
                        }
                        taken.fetch_add(1, Ordering::Relaxed);
                    }
                    accepted
                })
            })
            .collect();
        while taken.load(Ordering::Relaxed) < 12 {
            tokio::task::yield_now().await;
        }
        if round % 2 == 0 {
            let server = server.clone();
            tokio::task::spawn_blocking(move || server.restart_immediately()).await.unwrap();
            for calls in calls {
                accepted.extend(calls.await.unwrap());
            }
        } else {
            daemon.kill();
            for calls in calls {
                accepted.extend(calls.await.unwrap());
            }
            // The lease of the killed daemon expires first.
            daemon = folder.start();
        }
    }
    assert!(accepted.len() >= 20, "{}", accepted.len());
    let numbers = "SELECT run::json -> 'origin' -> 'event' ->> 'n' FROM ostler.automation_runs";
    let stored = server.psql("ostler", numbers);
    let mut stored: Vec<i64> = stored.lines().filter_map(|line| line.parse().ok()).collect();
    stored.sort_unstable();
    for number in accepted {
        let runs = stored.iter().filter(|stored| **stored == number).count();
        assert_eq!(runs, 1, "call {number} was accepted");
    }
    drop(daemon);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn a_daemon_without_its_database_does_not_start_with_other_stores() {
    let server = Postgres::start();
    let first = folder(&server, "ostler");
    let daemon = first.start();
    let second = folder(&server, "ostler");
    let ended = second.run(&[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let address = daemon.address();
    assert!(ended.err.contains("another host uses the database") && ended.err.contains(address), "{ended:?}");
    // The first serves on.
    let mut ada = client(&daemon, "ada").await;
    turn(&mut ada, "echo:/one", "hello").await;
    drop(daemon);

    let plugins = |options: Value| json!({ "port": 0, "plugins": [{ "name": "@ostler/postgres", "options": options }, { "name": "@ostler/echo" }] });
    second.write(
        "config.json",
        &plugins(
            json!({ "url": "postgresql://ostler@127.0.0.1:1/ostler", "vaultKeyFile": server.key_file() }),
        )
        .to_string(),
    );
    let ended = second.run(&[]);
    assert!(ended.code == Some(1) && ended.err.contains("Connection refused"), "{ended:?}");
    second.write(
        "config.json",
        &plugins(json!({ "url": format!("postgresql://ostler:{PASSWORD}@127.0.0.1/ostler") })).to_string(),
    );
    let ended = second.run(&[]);
    assert!(ended.code == Some(1) && ended.err.contains("must not contain a password"), "{ended:?}");
    assert!(!format!("{ended:?}").contains(PASSWORD), "{ended:?}");
    let late = json!({ "port": 0, "plugins": [{ "name": "@ostler/echo" }, { "name": "@ostler/postgres" }] });
    second.write("config.json", &late.to_string());
    let ended = second.run(&[]);
    assert!(ended.code == Some(2) && ended.err.contains("@ostler/postgres must be the first"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn a_pooler_that_shares_connections_is_refused_by_start_and_doctor_with_the_remedy() {
    let server = Postgres::start();
    let Some(pooler) = Pooler::start(&server, "pool_mode = transaction") else {
        return not_run("PgBouncer is not installed");
    };
    let folder = folder(&server, "ostler");
    folder.write("config.json", &folder.read("config.json").replace(&server.url(), &pooler.url()));
    let remedy = "connect to PostgreSQL directly, or set pool_mode = session in PgBouncer";
    let started = folder.run(&[]);
    assert!(started.code == Some(1) && started.err.contains(remedy), "{started:?}");
    let doctor = folder.run(&["doctor"]);
    assert!(doctor.code == Some(1) && doctor.out.contains(&format!("fix: {remedy}")), "{doctor:?}");

    pooler.reload("pool_mode = session");
    let daemon = folder.start();
    let is_found = || (folder.run(&["status"]).code == Some(0)).then_some(());
    crate::support::wait_for(is_found).expect("the daemon is found");
    let doctor = folder.run(&["doctor"]);
    assert_eq!(doctor.code, Some(0), "{doctor:?}");
    turn(&mut client(&daemon, "ada").await, "echo:/one", "hello").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn requests_with_nul_are_answered_as_by_a_host_with_files() {
    let server = Postgres::start();
    let plugins = json!([{ "name": "@ostler/echo" }, { "name": "@ostler/console" }]);
    let files = Folder::new(json!({ "connectionToken": TOKEN, "plugins": plugins }));
    let stores = folder(&server, "ostler");
    let (files, stores) = (files.start(), stores.start());
    let authorization = format!("Authorization: Bearer {TOKEN}\r\n");
    for request in [
        "GET /api/runs?owner=%00",
        "GET /api/runs?text=a%00b",
        "GET /api/runs?automation=%00",
        "GET /api/sessions/a%00b",
        "GET /api/runs/a%00b",
        "GET /api/usage/user%3Aa%00b",
        "GET /api/webhook/log/a%00b",
    ] {
        let expected = files.ask(request, &authorization, "").await;
        assert!([200, 400, 404].contains(&expected.0), "{request}: {expected:?}");
        assert_eq!(stores.ask(request, &authorization, "").await, expected, "{request}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn a_host_that_cannot_write_is_not_ready() {
    let server = Postgres::start();
    let folder = folder(&server, "ostler");
    let daemon = folder.start();
    assert_eq!(daemon.ask("GET /api/ready", "", "").await.0, 200);
    let mut locking =
        server.psql_command("ostler", "BEGIN; LOCK ostler.writer IN EXCLUSIVE MODE; SELECT pg_sleep(60)");
    let mut locking = locking.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let becomes = async |status: u16| {
        let end = Instant::now() + LIMIT;
        while daemon.ask("GET /api/ready", "", "").await.0 != status {
            assert!(Instant::now() < end, "ready is never {status}");
        }
    };
    becomes(503).await;
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE query LIKE '%pg_sleep(60)%' AND pid <> pg_backend_pid()";
    server.psql("ostler", end);
    locking.wait().unwrap();
    becomes(200).await;
}

/// Waits until a condition holds in the database.
fn wait_in(server: &Postgres, sql: &str) {
    crate::support::wait_for(|| (server.psql("ostler", sql) == "t").then_some(())).expect(sql);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn a_bot_call_whose_turn_the_database_refuses_is_to_be_sent_again_and_runs_once() {
    let server = Postgres::start();
    let folder = folder(&server, "ostler");
    let mut daemon = folder.start();
    let headers = format!("Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n");
    let secret = json!({ "value": "right" }).to_string();
    assert_eq!(daemon.ask("POST /api/vault/set/host%3Ain", &headers, &secret).await.0, 200);
    let bot = json!({ "id": "helper", "name": "Helper" });
    let endpoint = json!({ "id": "talk", "bot": "bot://helper", "secret": "host:in", "reply": "none", "dedupe": "X-Id" });
    server.psql(
        "ostler",
        &format!(
            "INSERT INTO ostler.records (collection, id, record)
             VALUES ('bots', 'helper', '{bot}'), ('webhooks', 'talk', '{endpoint}')"
        ),
    );
    let call = async |daemon: &Daemon, id: &str, text: &str| {
        let body = json!({ "thread": "t", "text": text }).to_string();
        let (address, length) = (daemon.address().to_owned(), body.len());
        let head = format!(
            "POST /plugins/webhook/talk HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nAuthorization: Bearer right\r\n\
             Content-Type: application/json\r\nX-Id: {id}\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        let answer = daemon.exchange(head.as_bytes()).await;
        let status: u16 = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
        (status, answer)
    };
    let end = Instant::now() + LIMIT;
    // Until the host has noticed the records.
    while call(&daemon, "0", "first").await.0 != 202 {
        assert!(Instant::now() < end, "the bot never answers");
    }
    let stalled = "BEGIN; LOCK TABLE ostler.session_heads IN EXCLUSIVE MODE; SELECT pg_sleep(25); COMMIT";
    let mut stalled = server.psql_command("ostler", stalled);
    let mut stalled = stalled.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_in(
        &server,
        "SELECT count(*) > 0 FROM pg_locks JOIN pg_class ON pg_class.oid = relation
         WHERE relname = 'session_heads' AND mode = 'ExclusiveLock' AND granted",
    );
    let (status, answer) = call(&daemon, "1", "second").await;
    assert_eq!(status, 503, "{answer}");
    assert!(answer.to_ascii_lowercase().contains("\r\nretry-after: 5\r\n"), "{answer}");
    let ends = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE query LIKE '%pg_sleep(25)%' AND pid <> pg_backend_pid()";
    server.psql("ostler", ends);
    stalled.wait().unwrap();
    let end = Instant::now() + LIMIT;
    while call(&daemon, "1", "second").await.0 != 202 {
        assert!(Instant::now() < end, "the repeated call is never accepted");
    }
    wait_in(&server, "SELECT count(*) = 1 FROM ostler.turns WHERE kept LIKE '%\"second\"%'");
    daemon.kill();
    daemon = folder.start();
    assert_eq!(call(&daemon, "1", "second").await.0, 202);
    assert_eq!(call(&daemon, "2", "third").await.0, 202);
    wait_in(&server, "SELECT count(*) = 1 FROM ostler.turns WHERE kept LIKE '%\"third\"%'");
    let seconds = "SELECT count(*) FROM ostler.turns WHERE kept LIKE '%\"second\"%'";
    assert_eq!(server.psql("ostler", seconds), "1");
}
