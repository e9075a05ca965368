//! What is revoked through one host ends at every other one within a second, whatever else the server of the database does, and a
//! host that cannot read its users serves none of them.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use ostler_testkit::postgres::Postgres;
use serde_json::{Value, json};

use crate::cluster::hosts::{Host, TOKEN, call, chat_of};
use crate::support::{Client, Daemon, Ended, Folder, LIMIT};

/// How long something revoked may be served.
const REVOKED_WITHIN: Duration = Duration::from_secs(1);
/// How long a host serves its users without an answer of the database, with what it waits for one, and a margin for a busy computer.
const SURE_FOR: Duration = Duration::from_secs(4);

/// A transaction in another database of the server, which has written and stays open.
struct OpenTransaction(Child);

impl OpenTransaction {
    async fn begin(server: &Postgres) -> Self {
        server.psql("postgres", "CREATE DATABASE other");
        let sql = "BEGIN; SELECT txid_current(); SELECT pg_sleep(300); COMMIT";
        let mut command = server.psql_command("other", sql);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let open =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = 'other' AND backend_xid IS NOT NULL";
        let begun = Instant::now();
        while server.psql("postgres", open) != "1" {
            assert!(begun.elapsed() < LIMIT, "the transaction does not begin");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Self(child)
    }

    fn is_open(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for OpenTransaction {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[track_caller]
fn ok(ended: Ended) -> String {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.out.trim().to_owned()
}

fn add(folder: &Folder, id: &str, role: &str) -> String {
    ok(folder.run(&["user", "add", id, "--role", role]))
}

/// The answer to a request with a token: the status and the head.
async fn ask(daemon: &Daemon, path: &str, token: &str) -> (u16, String) {
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\r\n",
        daemon.address()
    );
    let answer = daemon.exchange(request.as_bytes()).await;
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, answer.to_lowercase())
}

async fn me(daemon: &Daemon, token: &str) -> u16 {
    ask(daemon, "/api/me", token).await.0
}

/// Repeats what was revoked until it is refused with this status. Its last success has to begin within a second.
async fn ends(what: &str, refused: u16, mut attempt: impl AsyncFnMut() -> u16) {
    let revoked = Instant::now();
    loop {
        let begun = revoked.elapsed();
        let status = attempt().await;
        if status == refused {
            return;
        }
        // A host that is not sure refuses with 503.
        assert!(status == 503 || begun < REVOKED_WITHIN, "{what}: {status} after {begun:?}");
        assert!(begun < LIMIT, "{what}: never {refused}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Repeats until the status is this one.
async fn begins(what: &str, wanted: u16, limit: Duration, mut attempt: impl AsyncFnMut() -> u16) {
    let begun = Instant::now();
    loop {
        let status = attempt().await;
        if status == wanted {
            return;
        }
        assert!(begun.elapsed() < limit, "{what}: {status}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn post(daemon: &Daemon, path: &str, body: Value) -> u16 {
    daemon.post(path, Some(TOKEN), &body.to_string()).await.0
}

/// Signs a client in with a personal token.
async fn signed_in(daemon: &Daemon, token: &str, name: &str) -> Client {
    let mut client = Client::connect(&format!("{}/?tkn={token}", daemon.url)).await;
    client.initialize(name).await;
    let resource = daemon.block.iter().find_map(|line| line.strip_prefix("sign-in ")).expect("it has users");
    client.request("authenticate", json!({ "resource": resource, "token": token })).await.unwrap();
    client
}

/// Two hosts on a server, with a user `ada` whose token this is.
async fn hosts(server: &Postgres) -> ([Host; 2], String) {
    let (mut first, mut second) = (Host::new(server, "first").await, Host::new(server, "second").await);
    first.start();
    let token = add(&first.folder, "ada", "member");
    first.daemon.take().unwrap().stop();
    first.start();
    second.start();
    ([first, second], token)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn revocations_apply_within_a_second_during_a_transaction_of_another_database() {
    let server = Postgres::start();
    let ([first, second], token) = hosts(&server).await;
    let (a, b) = (first.running(), second.running());
    let mut open = OpenTransaction::begin(&server).await;

    // What is added is there as soon, also for the first call.
    let other = add(&first.folder, "ben", "member");
    assert_eq!(me(b, &other).await, 200, "an added user");
    let mut ada = signed_in(b, &token, "ada").await;
    let chat = chat_of("echo:/one");
    ada.request("createSession", json!({ "channel": "echo:/one", "provider": "echo" })).await.unwrap();
    ada.subscribe(&chat).await;
    assert_eq!(post(a, "/api/vault/set/host%3Ain", json!({ "value": "right" })).await, 200);
    let endpoint = r#"{"id": "in", "automation": true, "secret": "host:in"}"#;
    let insert = format!(
        "INSERT INTO ostler.records (collection, id, record) VALUES ('webhooks', 'in', '{endpoint}')"
    );
    server.psql("ostler", &insert);
    let definition = json!({ "title": "Note", "enabled": true, "triggers": [{ "kind": "event", "id": "called", "type": "webhook",
            "title": "Called", "events": [{ "id": "call", "title": "Call" }], "config": { "endpoint": "in" } }],
        "session": { "provider": "echo" }, "message": { "text": "x", "origin": { "kind": "automation" } } });
    server.psql(
        "ostler",
        &format!(
            "INSERT INTO ostler.automations VALUES ('note', '{definition}', 'root:x', '2026-01-01T00:00:00Z', '2026-01-01T00:00:00Z')"
        ),
    );
    let body = json!({});
    let (address, name) = (b.address().to_owned(), b.address().to_owned());
    begins("an added record", 202, SURE_FOR, async || call(&address, &name, "x", &body).await.0).await;
    begins("an added automation", 200, SURE_FOR, async || {
        let mut client = Client::connect(&format!("{}/?tkn={TOKEN}", b.url)).await;
        client.initialize("reads").await;
        let state = client.subscribe("ahp-automations://").await;
        if state["entries"].as_array().is_some_and(|entries| !entries.is_empty()) { 200 } else { 0 }
    })
    .await;

    assert_eq!(post(a, "/api/vault/set/host%3Ain", json!({ "value": "other" })).await, 200);
    ends("a replaced secret", 401, async || call(&address, &name, "y", &body).await.0).await;

    let mut admin = Client::connect(&format!("{}/?tkn={TOKEN}", a.url)).await;
    admin.initialize("admin").await;
    let roles = json!({ "channel": "ahp-root://", "uri": "user://ada", "data": r#"{"roles":[]}"#, "encoding": "utf-8" });
    admin.request("resourceWrite", roles).await.unwrap();
    ends("a removed grant", 403, async || match ada.request("listSessions", json!({})).await {
        Ok(_) => 200,
        Err(why) if why["code"] == -32009 => 403,
        Err(why) if why["data"]["retryable"] == true => 503,
        Err(why) => panic!("{why}"),
    })
    .await;

    let new = ok(first.folder.run(&["user", "token", "ada"]));
    ends("a replaced token", 401, async || me(b, &token).await).await;
    assert_eq!(ada.closed().await.0, 1008, "what the token opened ends with it");
    assert_eq!(me(b, &new).await, 200);

    let mut connected = signed_in(b, &other, "ben").await;
    ok(first.folder.run(&["user", "rm", "ben", "--yes"]));
    ends("a removed user", 401, async || me(b, &other).await).await;
    assert_eq!(connected.closed().await.0, 1008);
    assert!(open.is_open(), "the transaction was open all the time");
}

/// How the connections of a host to the database fail.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    Stalled,
    Refused,
    StalledUntilTheLeaseIsLost,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn a_host_that_cannot_read_its_users_refuses_them_with_503_and_never_401() {
    let server = Postgres::start();
    let ([first, second], mut token) = hosts(&server).await;
    let b = second.running();
    for fault in [Fault::Stalled, Fault::Refused, Fault::StalledUntilTheLeaseIsLost] {
        begins("the host is sure", 200, LIMIT, async || me(b, &token).await).await;
        assert_eq!(me(b, "wrong").await, 401);
        let mut ada = signed_in(b, &token, "ada").await;
        let cut = Instant::now();
        match fault {
            Fault::Refused => second.database.refuse(),
            Fault::Stalled | Fault::StalledUntilTheLeaseIsLost => second.database.stall(),
        }
        // The other host revokes the token meanwhile.
        let new = ok(first.folder.run(&["user", "token", "ada"]));
        let lasts = if fault == Fault::StalledUntilTheLeaseIsLost { 3 * SURE_FOR } else { SURE_FOR };
        let mut refused = 0;
        while refused == 0 || cut.elapsed() < lasts {
            let asked = cut.elapsed();
            assert!(asked < LIMIT, "{fault:?}: nothing is refused");
            let ((status, answer), (of_wrong, _)) =
                tokio::join!(ask(b, "/api/me", &token), ask(b, "/api/me", "wrong"));
            match (status, of_wrong) {
                (503, 503) => {
                    refused += 1;
                    assert!(answer.contains("retry-after: "), "{fault:?}: {answer}");
                }
                // What was read before is valid for a second.
                (200, 401 | 503) => assert!(asked < REVOKED_WITHIN, "{fault:?}: served after {asked:?}"),
                other => panic!("{fault:?}: {other:?} after {asked:?}"),
            }
            // The outage lasts for real.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(ask(b, "/api/ready", "").await.0, 503, "{fault:?}");
        assert_eq!(ada.closed().await.0, 1013, "{fault:?}");
        match tokio_tungstenite::connect_async(format!("{}/?tkn={token}", b.url)).await {
            Err(tokio_tungstenite::tungstenite::Error::Http(response)) => {
                assert_eq!(response.status(), 503, "{fault:?}");
                assert!(response.headers().contains_key("retry-after"), "{fault:?}");
            }
            other => panic!("{fault:?}: {other:?}"),
        }
        // The connection token is not one of a user.
        assert_eq!(me(b, TOKEN).await, 200, "{fault:?}");
        second.database.restore();
        begins("the host is sure again", 200, LIMIT, async || me(b, &new).await).await;
        assert_eq!(me(b, &token).await, 401, "{fault:?}");
        token = new;
    }
}
