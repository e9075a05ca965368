//! Several real daemons on one PostgreSQL, while they are killed, stopped and drained. `.ci/postgres` runs these tests.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ostler_testkit::postgres::Postgres;
use serde_json::{Value, json};
use support::{Client, Daemon, Folder, LIMIT, Signal};

const TOKEN: &str = "the-token";
/// How long a takeover may take.
const TAKEOVER: Duration = Duration::from_secs(10);

/// The options of a host of the cluster.
fn options(server: &Postgres, id: &str, shared: &[&str]) -> Value {
    let token = server.password_file().with_file_name("cluster.token");
    std::fs::write(&token, "of-the-cluster").unwrap();
    json!({
        "url": server.url(), "passwordFile": server.password_file(), "vaultKeyFile": server.key_file(),
        "cluster": { "url": "ws://127.0.0.1:0", "tokenFile": token, "id": id, "sharedPaths": shared },
    })
}

fn folder_with(options: &Value) -> Folder {
    let plugins = json!([{ "name": "@ostler/postgres", "options": options }, { "name": "@ostler/echo" }]);
    Folder::new(json!({ "http": true, "connectionToken": TOKEN, "plugins": plugins }))
}

/// The folder of a host whose files every host has.
fn folder(server: &Postgres, id: &str) -> Folder {
    folder_with(&options(server, id, &["/"]))
}

/// A client, unless the daemon does not accept it.
async fn connected(url: &str, name: &str) -> Option<Client> {
    let connecting = tokio_tungstenite::connect_async(format!("{url}/?tkn={TOKEN}"));
    let (socket, _) = tokio::time::timeout(Duration::from_secs(5), connecting).await.ok()?.ok()?;
    let mut client = Client::of(socket);
    let hello = json!({ "channel": "ahp-root://", "clientId": name, "protocolVersions": ["1.0.0"] });
    client.try_request("initialize", hello).await?.ok()?;
    Some(client)
}

async fn client(daemon: &Daemon, name: &str) -> Client {
    connected(&daemon.url, name).await.expect("the daemon accepts clients")
}

fn chat_of(session: &str) -> String {
    ostler_protocol::uri::default_chat(session)
}

/// Creates a session and subscribes to its chat.
async fn create(client: &mut Client, session: &str) -> String {
    client.request("createSession", json!({ "channel": session, "provider": "echo" })).await.unwrap();
    client.subscribe(&chat_of(session)).await;
    chat_of(session)
}

/// Runs a turn in a chat that the client subscribes to; returns whether it completed.
async fn run_turn(client: &mut Client, chat: &str, id: &str, text: &str) -> Option<bool> {
    let action = json!({ "type": "chat/turnStarted", "turnId": id, "message": { "text": text } });
    client.try_dispatch(chat, 1, action).await.then_some(())?;
    loop {
        let frame = client.next_frame().await?;
        let action = &frame["params"]["action"];
        match action["type"].as_str() {
            _ if frame["method"] != "action" || action["turnId"] != id => {}
            Some("chat/turnComplete") => return Some(true),
            Some("chat/error") => return Some(false),
            _ if frame["params"].get("rejectionReason").is_some() => return Some(false),
            _ => {}
        }
    }
}

/// Runs a turn of a session through a host; the error is why it did not complete.
async fn through(url: &str, session: &str, id: &str) -> Result<(), String> {
    let mut client = connected(url, id).await.ok_or("no connection")?;
    let chat = chat_of(session);
    let subscribed = client.try_request("subscribe", json!({ "channel": chat })).await;
    subscribed.ok_or("the connection ended")?.map_err(|why| why.to_string())?;
    match run_turn(&mut client, &chat, id, id).await {
        Some(true) => Ok(()),
        Some(false) => Err("the turn failed".to_owned()),
        None => Err("the connection ended during the turn".to_owned()),
    }
}

/// Repeats until it succeeds; returns how long that took.
async fn eventually<T>(what: &str, mut attempt: impl AsyncFnMut() -> Result<T, String>) -> (T, Duration) {
    let begun = Instant::now();
    loop {
        match attempt().await {
            Ok(done) => return (done, begun.elapsed()),
            Err(why) => assert!(begun.elapsed() < LIMIT, "{what}: {why}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The states and the texts of the turns of a chat, as its subscribers see them.
async fn turns(client: &mut Client, chat: &str) -> Vec<(String, String)> {
    let state = client.subscribe(chat).await;
    let turns = state["turns"].as_array().unwrap().iter();
    turns
        .map(|turn| {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            (text(&turn["message"]["text"]), text(&turn["state"]))
        })
        .collect()
}

async fn get(daemon: &Daemon, path: &str) -> (u16, Value) {
    daemon.ask(&format!("GET {path}"), &format!("Authorization: Bearer {TOKEN}\r\n"), "").await
}

/// The id of a session in the database.
fn id_of(session: &str) -> &str {
    session.split_once(":/").unwrap().1
}

/// The name of the host that owns a session.
fn owner(server: &Postgres, session: &str) -> String {
    let id = id_of(session);
    server.psql(
        "ostler",
        &format!("SELECT owner_id FROM ostler.session_heads WHERE session = '{id}' AND owner IS NOT NULL"),
    )
}

/// Records every owner, epoch and position that sessions have.
fn record_histories(server: &Postgres) {
    server.psql(
        "ostler",
        "CREATE TABLE ostler.histories (at bigserial, session text, owner text, epoch bigint, head bigint);
         CREATE FUNCTION ostler.note_history() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO ostler.histories (session, owner, epoch, head) VALUES (NEW.session, NEW.owner, NEW.epoch, NEW.head);
             RETURN NULL;
         END $$;
         CREATE TRIGGER history AFTER INSERT OR UPDATE ON ostler.session_heads FOR EACH ROW
             EXECUTE FUNCTION ostler.note_history();",
    );
}

/// Checks that each epoch of a session had one writer, and that each write was one position after the last.
fn check_histories(server: &Postgres) {
    let rows = server
        .psql("ostler", "SELECT session, coalesce(owner, ''), epoch, head FROM ostler.histories ORDER BY at");
    let mut writers: BTreeMap<(String, i64), BTreeSet<String>> = BTreeMap::new();
    let mut last: BTreeMap<String, (i64, i64)> = BTreeMap::new();
    let mut writes = 0;
    for row in rows.lines() {
        let [session, owner, epoch, head]: [&str; 4] = row.split('|').collect::<Vec<_>>().try_into().unwrap();
        let (epoch, head): (i64, i64) = (epoch.parse().unwrap(), head.parse().unwrap());
        if let Some((epoch_before, head_before)) = last.insert(session.to_owned(), (epoch, head)) {
            assert!(epoch >= epoch_before && (head == head_before || head == head_before + 1), "{row}");
            if head > head_before {
                assert_eq!(epoch, epoch_before, "{row}: a write is no change of the owner");
                assert!(!owner.is_empty(), "{row}: a write without an owner");
                writes += 1;
            }
        }
        if !owner.is_empty() {
            writers.entry((session.to_owned(), epoch)).or_default().insert(owner.to_owned());
        }
    }
    assert!(writes > 0, "{rows}");
    for (epoch, owners) in writers {
        assert_eq!(owners.len(), 1, "{epoch:?}: {owners:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn another_host_serves_the_sessions_of_a_killed_one_within_10_seconds() {
    let server = Postgres::start();
    let (first, second) = (folder(&server, "first"), folder(&server, "second"));
    let (a, b) = (first.start(), second.start());
    record_histories(&server);
    let mut ada = client(&a, "ada").await;
    let chat = create(&mut ada, "echo:/one").await;
    assert_eq!(run_turn(&mut ada, &chat, "t1", "hello").await, Some(true));
    let listed = client(&b, "lists").await.request("listSessions", json!({})).await.unwrap();
    assert_eq!(listed["items"][0]["resource"], "echo:/one", "lists have the sessions of all hosts: {listed}");
    assert_eq!(owner(&server, "echo:/one"), "first");
    let mut taken = client(&b, "taken").await;
    let refused = taken.request("createSession", json!({ "channel": "echo:/one", "provider": "echo" })).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused["code"], -32003, "{refused}");

    let action =
        json!({ "type": "chat/turnStarted", "turnId": "t2", "message": { "text": "/slow 60s never" } });
    ada.dispatch(&chat, 2, action).await;
    ada.actions_until("chat/turnStarted").await;
    a.kill();
    let (_, took) = eventually("the takeover", async || through(&b.url, "echo:/one", "t3").await).await;
    assert!(took < TAKEOVER, "{took:?}");
    let mut ben = client(&b, "ben").await;
    let of = |text: &str, state: &str| (text.to_owned(), state.to_owned());
    let expected = [of("hello", "complete"), of("/slow 60s never", "error"), of("t3", "complete")];
    assert_eq!(turns(&mut ben, &chat).await, expected);
    let (status, seen) = get(&b, "/api/cluster").await;
    assert_eq!(status, 200, "{seen}");
    let alive = |id: &str| {
        seen["hosts"].as_array().unwrap().iter().find(|host| host["id"] == id).unwrap()["alive"].clone()
    };
    assert_eq!((alive("first"), alive("second")), (json!(false), json!(true)), "{seen}");

    // The lost host comes back; the session stays where it is.
    let a = first.start();
    let mut ada = client(&a, "ada again").await;
    let chat = create(&mut ada, "echo:/two").await;
    assert_eq!(run_turn(&mut ada, &chat, "t", "hello").await, Some(true));
    through(&b.url, "echo:/one", "t4").await.unwrap();
    assert_eq!((owner(&server, "echo:/one"), owner(&server, "echo:/two")), ("second".into(), "first".into()));
    drop(ada);
    // A host that stops gives its sessions up.
    assert_eq!(a.stop(), Some(0));
    let (_, took) = eventually("the handover", async || through(&b.url, "echo:/two", "t5").await).await;
    assert!(took < Duration::from_secs(3), "{took:?}");
    check_histories(&server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn a_host_that_was_stopped_for_20_seconds_writes_nothing_and_recovers() {
    let server = Postgres::start();
    let (first, second) = (folder(&server, "first"), folder(&server, "second"));
    let (a, b) = (first.start(), second.start());
    record_histories(&server);
    let mut ada = client(&a, "ada").await;
    let chat = create(&mut ada, "echo:/one").await;
    assert_eq!(run_turn(&mut ada, &chat, "t1", "hello").await, Some(true));
    // A turn that ends, and would be stored, after the host continues.
    let slow = create(&mut ada, "echo:/slow").await;
    let action =
        json!({ "type": "chat/turnStarted", "turnId": "s1", "message": { "text": "/slow 21s zombie" } });
    ada.dispatch(&slow, 2, action).await;
    ada.actions_until("chat/turnStarted").await;

    a.signal(Signal::STOP);
    let stopped = Instant::now();
    // The host reads this when it continues.
    let action = json!({ "type": "chat/turnStarted", "turnId": "z", "message": { "text": "zombie" } });
    ada.dispatch(&chat, 3, action).await;
    for session in ["echo:/one", "echo:/slow"] {
        eventually("the takeover", async || through(&b.url, session, "t2").await).await;
    }
    assert!(stopped.elapsed() < TAKEOVER + Duration::from_secs(3), "{:?}", stopped.elapsed());
    tokio::time::sleep(Duration::from_secs(20).saturating_sub(stopped.elapsed())).await;
    a.signal(Signal::CONT);

    let (code, why) = ada.closed().await;
    assert_eq!(code, 1013, "{why}");
    assert!(why.contains("lost its lease"), "{why}");
    let (mut again, _) = eventually("the host recovers", async || {
        connected(&a.url, "ada again").await.ok_or("refused".to_owned())
    })
    .await;
    let chat = create(&mut again, "echo:/new").await;
    assert_eq!(run_turn(&mut again, &chat, "t", "hello").await, Some(true));
    // Its sessions stay with the other host, whatever it still had in memory.
    through(&b.url, "echo:/one", "t3").await.unwrap();
    through(&b.url, "echo:/slow", "t3").await.unwrap();
    assert_eq!(owner(&server, "echo:/one"), "second");
    let stored = server.psql(
        "ostler",
        "SELECT session, kept::json -> 'turn' ->> 'id', kept::json -> 'turn' ->> 'state' FROM ostler.turns ORDER BY session, place",
    );
    let id = |session: &str| id_of(session).to_owned();
    let rows: Vec<String> = stored.lines().map(str::to_owned).collect();
    let expected = [
        format!("{}|t|complete", id("echo:/new")),
        format!("{}|t1|complete", id("echo:/one")),
        format!("{}|t2|complete", id("echo:/one")),
        format!("{}|t3|complete", id("echo:/one")),
        format!("{}|s1|error", id("echo:/slow")),
        format!("{}|t2|complete", id("echo:/slow")),
        format!("{}|t3|complete", id("echo:/slow")),
    ];
    assert_eq!(rows, expected, "{stored}");
    check_histories(&server);
    let log = first.read("log");
    assert!(log.contains("the host has joined the cluster again"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn a_draining_host_hands_its_sessions_over_and_waits_for_running_turns() {
    let server = Postgres::start();
    let (first, second) = (folder(&server, "first"), folder(&server, "second"));
    let (a, b) = (first.start(), second.start());
    record_histories(&server);
    let (mut ada, mut ben) = (client(&a, "ada").await, client(&a, "ben").await);
    let idle = create(&mut ada, "echo:/idle").await;
    assert_eq!(run_turn(&mut ada, &idle, "t1", "hello").await, Some(true));
    let busy = create(&mut ben, "echo:/busy").await;
    let action =
        json!({ "type": "chat/turnStarted", "turnId": "t1", "message": { "text": "/slow 3s done" } });
    ben.dispatch(&busy, 2, action).await;
    ben.actions_until("chat/turnStarted").await;
    assert_eq!(get(&a, "/api/ready").await.0, 200);

    let drained = {
        let mut drain = first.command(&["cluster", "drain", "--json"]);
        tokio::task::spawn_blocking(move || support::ended(&mut drain))
    };
    let (code, why) = ada.closed().await;
    assert_eq!(code, 1012, "{why}");
    // The running turn is not disturbed.
    ben.actions_until("chat/turnComplete").await;
    let drained = drained.await.unwrap();
    assert_eq!(drained.code, Some(0), "{drained:?}");
    let status: Value = serde_json::from_str(&drained.out).unwrap();
    assert_eq!((&status["drained"], &status["sessions"]), (&json!(true), &json!(0)), "{status}");
    let (code, unready) = get(&a, "/api/ready").await;
    assert!(code == 503 && unready["message"].as_str().unwrap().contains("drains"), "{unready}");
    assert_eq!(get(&a, "/api/health").await.0, 200);
    let probe = daemon_without_token(&a, "/api/ready").await;
    assert_eq!(probe, 503, "a probe needs no token");

    let mut new = client(&a, "new").await;
    let created = new.request("createSession", json!({ "channel": "echo:/other", "provider": "echo" })).await;
    match created {
        Ok(_) => assert_eq!(owner(&server, "echo:/other"), "second"),
        Err(refused) => assert_eq!(refused["data"]["host"], "second", "{refused}"),
    }
    for (session, turns_before) in [("echo:/idle", 1), ("echo:/busy", 1)] {
        through(&b.url, session, "t2").await.unwrap();
        let mut reader = client(&b, "reader").await;
        let turns = turns(&mut reader, &chat_of(session)).await;
        assert_eq!(turns.len(), turns_before + 1);
        assert!(turns.iter().all(|(_, state)| state == "complete"), "{turns:?}");
    }
    let undone = first.run(&["cluster", "drain", "--undo"]);
    assert!(undone.code == Some(0) && undone.out.contains("host second"), "{undone:?}");
    assert_eq!(get(&a, "/api/ready").await.0, 200);
    create(&mut new, "echo:/new").await;
    check_histories(&server);

    let (_, metrics) = (get(&a, "/api/cluster").await, a.exchange(
        format!("GET /api/metrics HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer {TOKEN}\r\n\r\n", a.address())
            .as_bytes(),
    ).await);
    for name in [
        "ostler_cluster_lease_age_seconds",
        "ostler_cluster_owned_sessions 1",
        "ostler_cluster_database_latency_seconds",
    ] {
        assert!(metrics.contains(name), "{name}: {metrics}");
    }
}

async fn daemon_without_token(daemon: &Daemon, path: &str) -> u16 {
    // The name in the request is that of no listener, as that of a probe.
    let request = format!("GET {path} HTTP/1.1\r\nHost: 10.0.0.7:1\r\nConnection: close\r\n\r\n");
    let answer = daemon.exchange(request.as_bytes()).await;
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn a_session_that_needs_the_files_of_a_lost_host_is_readable_and_says_why_it_cannot_continue() {
    let server = Postgres::start();
    let (first, second) =
        (folder_with(&options(&server, "first", &[])), folder_with(&options(&server, "second", &[])));
    let (a, b) = (first.start(), second.start());
    let mut ada = client(&a, "ada").await;
    let chat = create(&mut ada, "echo:/one").await;
    assert_eq!(run_turn(&mut ada, &chat, "t1", "hello").await, Some(true));
    a.kill();
    let read = async || {
        let mut ben = connected(&b.url, "ben").await.ok_or("no connection")?;
        let subscribed = ben.request("subscribe", json!({ "channel": chat })).await;
        let subscribed = subscribed.map_err(|why| why.to_string())?;
        Ok((ben, subscribed["snapshot"]["state"].clone()))
    };
    let ((mut ben, state), took) = eventually("the session is readable", read).await;
    assert!(took < TAKEOVER, "{took:?}");
    assert_eq!(state["turns"][0]["message"]["text"], "hello");
    let action = json!({ "type": "chat/turnStarted", "turnId": "t2", "message": { "text": "more" } });
    ben.dispatch(&chat, 1, action).await;
    let frame = loop {
        let frame = ben.next_frame().await.expect("an answer");
        if frame["params"].get("rejectionReason").is_some() {
            break frame;
        }
    };
    let why = frame["params"]["rejectionReason"].to_string();
    assert!(why.contains("on host first") && why.contains("start that host again"), "{why}");

    // Once its host is back, the session returns to it.
    let a = first.start();
    let (code, why) = ben.closed().await;
    assert_eq!(code, 1012, "{why}");
    eventually("the session returns", async || through(&a.url, "echo:/one", "t2").await).await;
    assert_eq!(owner(&server, "echo:/one"), "first");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn hosts_with_and_without_the_option_share_no_schema_and_a_name_is_one_hosts() {
    let server = Postgres::start();
    let first = folder(&server, "first");
    let a = first.start();
    let refused = |options: &Value, what: &str| {
        let ended = folder_with(options).run(&[]);
        assert!(ended.code == Some(1) && ended.err.contains(what), "{what}: {ended:?}");
    };
    let mut alone = options(&server, "alone", &[]);
    alone.as_object_mut().unwrap().remove("cluster");
    refused(&alone, "That one is in a cluster: set the option cluster here too");
    refused(&options(&server, "first", &[]), "It has the same name");
    assert_eq!(a.stop(), Some(0));

    let single = folder_with(&alone);
    let daemon = single.start();
    assert_eq!(get(&daemon, "/api/cluster").await.0, 409);
    refused(&options(&server, "first", &[]), "That one has no option cluster");
    let second = folder_with(&alone).run(&[]);
    assert!(
        second.code == Some(1) && second.err.contains("set the option cluster on both hosts"),
        "{second:?}"
    );
    assert_eq!(daemon.stop(), Some(0));

    // A host that is evicted loses its sessions and joins again.
    let (a, second) = (first.start(), folder(&server, "second"));
    let b = second.start();
    let mut ada = client(&a, "ada").await;
    create(&mut ada, "echo:/one").await;
    let evicted = second.run(&["cluster", "evict", "first"]);
    assert_eq!(evicted.code, Some(0), "{evicted:?}");
    assert_eq!(ada.closed().await.0, 1013);
    eventually("the session moves", async || through(&b.url, "echo:/one", "t").await).await;
    eventually("the host recovers", async || {
        connected(&a.url, "ada").await.map(drop).ok_or("refused".to_owned())
    })
    .await;
    let unknown = second.run(&["cluster", "evict", "third"]);
    assert!(unknown.code == Some(2) && unknown.err.contains("the cluster has no host third"), "{unknown:?}");
    let own = second.run(&["cluster", "evict", "second"]);
    assert!(own.code == Some(2) && own.err.contains("cannot evict itself"), "{own:?}");
}

/// Three hosts, whose clients write turns through whichever host accepts them, while one is killed and started again, one is
/// stopped for longer than its lease, and the server is restarted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn no_completed_turn_is_lost_and_no_session_has_two_writers() {
    let server = Arc::new(Postgres::start());
    let folders = ["first", "second", "third"].map(|id| folder(&server, id));
    let mut daemons: Vec<Option<Daemon>> = folders.iter().map(|folder| Some(folder.start())).collect();
    record_histories(&server);
    let urls: Arc<parking_lot::Mutex<Vec<String>>> = Arc::new(parking_lot::Mutex::new(
        daemons.iter().flatten().map(|daemon| daemon.url.clone()).collect(),
    ));
    for at in 0..4 {
        let mut creator = client(daemons[at % 3].as_ref().unwrap(), "creator").await;
        let chat = create(&mut creator, &format!("echo:/s{at}")).await;
        assert_eq!(run_turn(&mut creator, &chat, "first", "first").await, Some(true));
    }
    let (ends, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let writers: Vec<_> = (0..4)
        .map(|at| {
            let (urls, ends, done) = (urls.clone(), ends.clone(), done.clone());
            tokio::spawn(async move {
                let (session, mut completed, mut tried) = (format!("echo:/s{at}"), Vec::new(), 0);
                while !ends.load(Ordering::Relaxed) {
                    tried += 1;
                    let url = urls.lock()[tried % 3].clone();
                    let id = format!("w{at}-{tried}");
                    if let Ok(Ok(())) =
                        tokio::time::timeout(Duration::from_secs(15), through(&url, &session, &id)).await
                    {
                        completed.push(id);
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                }
                (session, completed)
            })
        })
        .collect();
    let progress = async |what: &str| {
        let before = done.load(Ordering::Relaxed);
        eventually(what, async || match done.load(Ordering::Relaxed) > before + 12 {
            true => Ok(()),
            false => Err("the clients write nothing".to_owned()),
        })
        .await;
    };
    progress("before the faults").await;
    daemons[0].take().unwrap().kill();
    progress("while a host is killed").await;
    let stopped = daemons[1].as_ref().unwrap();
    stopped.signal(Signal::STOP);
    tokio::time::sleep(Duration::from_secs(12)).await;
    stopped.signal(Signal::CONT);
    progress("after a host continues").await;
    let again = folders[0].start();
    urls.lock()[0].clone_from(&again.url);
    daemons[0] = Some(again);
    progress("after a host starts again").await;
    let restarted = server.clone();
    tokio::task::spawn_blocking(move || restarted.restart_immediately()).await.unwrap();
    progress("after the server restarts").await;
    ends.store(true, Ordering::Relaxed);
    for writer in writers {
        let (session, completed) = writer.await.unwrap();
        let stored = server.psql(
            "ostler",
            &format!(
                "SELECT kept::json -> 'turn' ->> 'id' FROM ostler.turns WHERE session = '{}' ORDER BY place",
                id_of(&session)
            ),
        );
        let stored: Vec<&str> = stored.lines().collect();
        assert!(!completed.is_empty(), "{session}");
        for id in &completed {
            assert_eq!(stored.iter().filter(|one| *one == id).count(), 1, "{session}: {id} in {stored:?}");
        }
        let order: Vec<_> = stored.iter().filter(|one| completed.iter().any(|id| id == *one)).collect();
        assert!(
            order.iter().zip(&completed).all(|(one, id)| **one == id),
            "{session}: {order:?}, {completed:?}"
        );
    }
    check_histories(&server);
}
