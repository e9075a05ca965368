//! Who owns sessions while hosts are killed, stopped, drained and evicted.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ostler_testkit::postgres::Postgres;
use serde_json::{Value, json};

use super::history::{check_owners, record_owners};
use super::hosts::{
    TOKEN, chat_of, client, connected, create, eventually, folder, folder_with, get, id_of, options, owner,
    run_turn, takeover_limit, through, turns,
};
use crate::support::{self, Daemon, Signal};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn another_host_serves_the_sessions_of_a_killed_one() {
    let server = Postgres::start();
    let (first, second) = (folder(&server, "first"), folder(&server, "second"));
    let (a, b) = (first.start(), second.start());
    record_owners(&server);
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
    assert!(took < takeover_limit(), "{took:?}");
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
    check_owners(&server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn a_host_that_was_stopped_for_20_seconds_writes_nothing_and_recovers() {
    let server = Postgres::start();
    let (first, second) = (folder(&server, "first"), folder(&server, "second"));
    let (a, b) = (first.start(), second.start());
    record_owners(&server);
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
    assert!(stopped.elapsed() < takeover_limit() + Duration::from_secs(3), "{:?}", stopped.elapsed());
    // The stopped process continues long after its lease has ended.
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
    check_owners(&server);
    let log = first.read("log");
    assert!(log.contains("the host has joined the cluster again"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn a_draining_host_hands_its_sessions_over_and_waits_for_running_turns() {
    let server = Postgres::start();
    let (first, second) = (folder(&server, "first"), folder(&server, "second"));
    let (a, b) = (first.start(), second.start());
    record_owners(&server);
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
    check_owners(&server);

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
    assert!(took < takeover_limit(), "{took:?}");
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
    refused(&alone, "that one is in a cluster: set the option cluster here too");
    refused(&options(&server, "first", &[]), "it has the same name");
    let mut other = options(&server, "second", &[]);
    let (key, token) = (server.key_file(), server.key_file().with_file_name("other.token"));
    let other_key = key.with_file_name("other.key");
    std::fs::write(&other_key, STANDARD.encode([7; 32])).unwrap();
    std::fs::write(&token, "of-another-cluster").unwrap();
    other["vaultKeyFile"] = json!(other_key);
    refused(&other, "it has another key of the vault");
    other["vaultKeyFile"] = json!(key);
    other["cluster"]["tokenFile"] = json!(token);
    refused(&other, "it has another token");
    other["cluster"]["sharedPath"] = json!(["/"]);
    refused(&other, "unknown field `sharedPath`");
    assert_eq!(a.stop(), Some(0));
    // Without other hosts, the secrets of a cluster can be replaced.
    other["cluster"].as_object_mut().unwrap().remove("sharedPath");
    let replaced = folder_with(&other);
    assert_eq!(replaced.start().stop(), Some(0));

    let single = folder_with(&alone);
    let daemon = single.start();
    assert_eq!(get(&daemon, "/api/cluster").await.0, 409);
    refused(&options(&server, "first", &[]), "that one has no option cluster");
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
