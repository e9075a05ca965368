//! A client of either of two hosts reaches the sessions of both.

use std::time::{Duration, Instant};

use ostler_testkit::postgres::Postgres;
use serde_json::{Value, json};

use super::hosts::{
    TOKEN, add_bot, chat_of, client, folder, folder_with, folder_with_bots, options, start_turn, until,
};
use crate::support::tls::{AUTHORITY, acceptor};
use crate::support::{Client, LIMIT};

const SESSION: &str = "echo:/one";
/// How long it may take until another host serves the sessions of one that was killed.
const TAKEOVER: Duration = Duration::from_secs(15);

fn chat() -> String {
    chat_of(SESSION)
}

async fn say(client: &mut Client, turn: &str) {
    assert!(start_turn(client, &chat(), turn, turn).await);
}

/// Reads until a turn ends; returns the number of the action that ended it.
async fn ended(client: &mut Client, turn: &str) -> u64 {
    loop {
        let frame = client.next_frame().await.expect("the connection is open");
        let params = &frame["params"];
        assert!(params.get("rejectionReason").is_none(), "{frame}");
        if params["action"]["type"] == "chat/turnComplete" && params["action"]["turnId"] == turn {
            return params["serverSeq"].as_u64().unwrap();
        }
    }
}

/// Requests until the answer is one.
async fn eventually(
    client: &mut Client,
    method: &str,
    params: &Value,
    holds: impl Fn(&Value) -> bool,
) -> Value {
    let end = Instant::now() + TAKEOVER;
    loop {
        let answer = client.request(method, params.clone()).await;
        if let Ok(answer) = &answer
            && holds(answer)
        {
            return answer.clone();
        }
        assert!(Instant::now() < end, "{method}: {answer:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn any_daemon_serves_any_client() {
    let server = Postgres::start();
    let (here, there) = (folder(&server, "a"), folder(&server, "b"));
    let (a, b) = (here.start(), there.start());
    let mut near = client(&a, "near").await;
    near.request("createSession", json!({ "channel": SESSION, "provider": "echo" })).await.unwrap();
    near.subscribe(&chat()).await;
    say(&mut near, "t1").await;
    ended(&mut near, "t1").await;
    let mut far = client(&b, "far").await;
    // The second host knows the address of the first one once that has renewed its lease.
    let subscribed = eventually(&mut far, "subscribe", &json!({ "channel": chat() }), |_| true).await;
    let snapshot = &subscribed["snapshot"];
    assert_eq!(snapshot["state"]["turns"][0]["id"], "t1");
    say(&mut far, "t2").await;
    let number = ended(&mut far, "t2").await;
    assert!(number > snapshot["fromSeq"].as_u64().unwrap());
    ended(&mut near, "t2").await;
    let owner = "SELECT owner_id FROM ostler.session_heads WHERE session = 'one' AND owner IS NOT NULL";
    assert_eq!(server.psql("ostler", owner), "a");
    let listed = far.request("listSessions", json!({})).await.unwrap();
    assert_eq!(listed["items"][0]["resource"], SESSION);

    // The owner is killed: its client elsewhere is disconnected, and continues at the host that takes the session over.
    a.kill();
    let begun = Instant::now();
    while far.next_frame().await.is_some() {}
    let mut far = Client::connect(&format!("{}/?tkn={TOKEN}", b.url)).await;
    let back = json!({ "channel": "ahp-root://", "clientId": "far", "lastSeenServerSeq": number,
        "subscriptions": ["ahp-root://", chat()] });
    let result = far.request("reconnect", back).await.unwrap();
    assert_eq!(result["type"], "snapshot");
    let snapshots = result["snapshots"].as_array().unwrap();
    let snapshot = snapshots.iter().find(|snapshot| snapshot["resource"] == chat()).unwrap();
    assert_eq!(snapshot["state"]["turns"].as_array().unwrap().len(), 2, "{snapshot}");
    assert!(begun.elapsed() < TAKEOVER);
    say(&mut far, "t3").await;
    ended(&mut far, "t3").await;
    assert_eq!(server.psql("ostler", owner), "b");

    // The first host returns, and its clients reach the session at the second one.
    let a = here.start();
    let mut near = client(&a, "near").await;
    let subscribed = eventually(&mut near, "subscribe", &json!({ "channel": chat() }), |_| true).await;
    assert_eq!(subscribed["snapshot"]["state"]["turns"].as_array().unwrap().len(), 3);
    say(&mut near, "t4").await;
    ended(&mut near, "t4").await;
    ended(&mut far, "t4").await;
    let log = format!("{}{}", here.read("log"), there.read("log"));
    assert!(!log.contains("of-the-cluster"), "{log}");
}

/// Passes TLS connections on to the port that it is told, without TLS; returns its own port.
async fn terminator(mut leads_to: tokio::sync::watch::Receiver<u16>) -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let to = *leads_to.wait_for(|port| *port != 0).await.unwrap();
            tokio::spawn(async move {
                let Ok(mut outer) = acceptor().accept(stream).await else { return };
                let mut inner = tokio::net::TcpStream::connect(("127.0.0.1", to)).await.unwrap();
                // The end of either connection ends the other one.
                let _ = tokio::io::copy_bidirectional(&mut outer, &mut inner).await;
            });
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn a_link_over_tls_accepts_the_authorities_of_the_system() {
    let server = Postgres::start();
    let (tells, leads_to) = tokio::sync::watch::channel(0);
    let mut options = options(&server, "a", &["/"]);
    options["cluster"]["url"] = format!("wss://localhost:{}", terminator(leads_to).await).into();
    let here = folder_with(&options);
    let a = here.start();
    tells.send(a.address().rsplit_once(':').unwrap().1.parse().unwrap()).unwrap();
    let mut near = client(&a, "near").await;
    near.request("createSession", json!({ "channel": SESSION, "provider": "echo" })).await.unwrap();
    near.subscribe(&chat()).await;
    for (id, authority) in [("b", None), ("c", Some(AUTHORITY))] {
        let there = folder(&server, id);
        let mut command = there.command(&[]);
        if let Some(authority) = authority {
            command.env("SSL_CERT_FILE", authority);
        }
        let daemon = there.started(command);
        let mut far = client(&daemon, id).await;
        if authority.is_some() {
            eventually(&mut far, "subscribe", &json!({ "channel": chat() }), |_| true).await;
            say(&mut far, "t1").await;
            ended(&mut near, "t1").await;
        } else {
            until(LIMIT, "the certificate is refused", || there.read("log").contains("UnknownIssuer")).await;
            assert!(far.request("subscribe", json!({ "channel": chat() })).await.is_err());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn a_bot_is_called_at_every_host_and_has_one_session() {
    let server = Postgres::start();
    let folders = ["a", "b", "c"].map(|id| folder_with_bots(&server, id));
    let hosts = folders.each_ref().map(crate::support::Folder::start);
    add_bot(&server, &hosts[0]).await;
    for round in 0..2 {
        for (folder, host) in folders.iter().zip(&hosts) {
            let end = Instant::now() + LIMIT;
            loop {
                let body = json!({ "thread": "t", "text": format!("hello {round}") }).to_string();
                let (status, answer) = host.post("/plugins/webhook/ask", Some("right"), &body).await;
                if status == 200 {
                    assert!(answer.contains("hello"), "{answer}");
                    break;
                }
                // A host knows the address of another one once that has renewed its lease, and the endpoint a moment after it was added.
                let is_early = round == 0 && matches!(status, 404 | 503);
                assert!(is_early && Instant::now() < end, "{status} {answer}: {}", folder.read("log"));
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
    assert_eq!(server.psql("ostler", "SELECT count(*) FROM ostler.sessions"), "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn an_address_that_leads_nowhere_is_noticed_by_its_host_and_by_the_others() {
    let server = Postgres::start();
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let mut wrong = options(&server, "a", &["/"]);
    wrong["cluster"]["url"] = format!("ws://{closed}").into();
    let (here, there) = (folder_with(&wrong), folder(&server, "b"));
    let (_a, _b) = (here.start(), there.start());
    let own = here.wait_for_log("does not reach itself at its cluster.url");
    assert!(own.contains(&closed.to_string()) && own.contains("set cluster.url"), "{own}");
    let other = there.wait_for_log("host a cannot be reached");
    assert!(other.contains("correct the cluster.url of host a"), "{other}");
    for (folder, found) in
        [(&here, "this host does not reach itself"), (&there, "host a cannot be reached from here")]
    {
        let examined = folder.run(&["doctor"]);
        let lines = examined.out.lines().filter(|line| line.contains(" cluster ")).collect::<Vec<_>>();
        assert!(
            lines.len() == 1 && lines[0].starts_with("warning") && lines[0].contains(found),
            "{examined:?}"
        );
        let status = folder.run(&["cluster", "status"]);
        assert!(status.out.contains("cannot be reached"), "{status:?}");
    }
    // A host that can be reached is no finding.
    let third = folder(&server, "c");
    let _c = third.start();
    until(LIMIT, "its own check", || third.run(&["cluster", "status"]).out.contains("host c at")).await;
    let status = third.run(&["cluster", "status"]);
    let line = status.out.lines().find(|line| line.starts_with("host c")).unwrap();
    assert!(!line.contains("cannot be reached"), "{status:?}");
}
