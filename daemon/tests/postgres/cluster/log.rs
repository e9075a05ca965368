//! The log of webhook calls that the hosts share.

use std::collections::BTreeSet;

use ostler_testkit::postgres::Postgres;
use serde_json::{Value, json};

use super::hosts::{TOKEN, add_webhook, call, folder, get, until};
use crate::support::{Daemon, Folder, LIMIT};

const SECRET: Option<&str> = Some("right");

/// The calls of an endpoint as a host shows them.
pub async fn calls(daemon: &Daemon, endpoint: &str) -> Vec<Value> {
    let (status, log) = get(daemon, &format!("/api/webhook/log/{endpoint}")).await;
    assert_eq!(status, 200, "{log}");
    log["calls"].as_array().unwrap().clone()
}

async fn send(daemon: &Daemon, path: &str, body: &Value) -> Value {
    let headers = format!("Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n");
    let (status, answer) = daemon.ask(&format!("POST {path}"), &headers, &body.to_string()).await;
    assert_eq!(status, 200, "{answer}");
    answer
}

/// Calls a host in parallel, every second time with an id of the delivery; returns the runs of the answers.
async fn call_many(daemon: &Daemon, name: &str, count: usize) -> BTreeSet<String> {
    let address = daemon.address().to_owned();
    let calls = (0..count).map(|n| {
        let (address, id) = (address.clone(), if n % 2 == 0 { format!("{name}-{n}") } else { String::new() });
        let body = json!({ "n": format!("{name}-{n}") });
        tokio::spawn(async move { call(&address, &address, &id, &body).await })
    });
    let mut runs = BTreeSet::new();
    for call in calls.collect::<Vec<_>>() {
        let (status, answer) = call.await.unwrap();
        assert_eq!(status, 202, "{answer}");
        let run = answer
            .lines()
            .find_map(|line| line.split_once("#/run/ahp-automation-run%3A%2F"))
            .expect("a run")
            .1
            .trim();
        assert!(runs.insert(run.to_owned()), "{run} is the run of two calls");
    }
    runs
}

/// The runs that a log contains, by their ids; each call has one.
fn runs_of(calls: &[Value]) -> Vec<String> {
    let run = |call: &Value| {
        let run = call["runs"][0].as_str().unwrap_or_else(|| panic!("a call without a run: {call}"));
        run.rsplit_once('/').unwrap().1.to_owned()
    };
    calls.iter().map(run).collect()
}

async fn hosts(server: &Postgres) -> ([Folder; 2], [Daemon; 2]) {
    let folders = [folder(server, "a"), folder(server, "b")];
    let daemons = folders.each_ref().map(Folder::start);
    let parallel = json!({ "overlap": "parallel", "hourlyCap": 1_000_000 });
    add_webhook(server, &daemons.each_ref(), "noted {{event.n}}", parallel).await;
    (folders, daemons)
}

/// Removes the calls of the setup from the log.
fn clear(server: &Postgres) {
    server.psql("ostler", "DELETE FROM ostler.records WHERE collection = 'webhook-deliveries'");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn the_calls_of_all_hosts_are_in_one_log() {
    let server = Postgres::start();
    let (_folders, daemons) = hosts(&server).await;
    clear(&server);
    let (one, other) = tokio::join!(call_many(&daemons[0], "one", 20), call_many(&daemons[1], "other", 20));
    let expected: BTreeSet<String> = one.union(&other).cloned().collect();
    assert_eq!(expected.len(), 40);
    for daemon in &daemons {
        let log = calls(daemon, "in").await;
        let runs = runs_of(&log);
        assert_eq!(runs.len(), 40, "each call once");
        assert_eq!(runs.into_iter().collect::<BTreeSet<_>>(), expected);
        assert!(log.iter().all(|call| call["status"] == 202), "{log:?}");
        assert!(log.is_sorted_by_key(|call| call["at"].as_str().unwrap().to_owned()));
    }

    // Rejected calls displace none of them, and the newest of all hosts are retained.
    for _ in 0..15 {
        for daemon in &daemons {
            assert_eq!(daemon.post("/plugins/webhook/in", Some("wrong"), "{}").await.0, 401);
        }
    }
    let newest = call_many(&daemons[1], "newest", 30).await;
    let stored = |what: &str, refused: &str| {
        let sql = format!(
            "SELECT {what} FROM ostler.records WHERE collection = 'webhook-deliveries'
                 AND record::json ->> 'endpoint' = 'in' AND (record::json ->> 'refused') IS {refused} NULL"
        );
        server.psql("ostler", &sql)
    };
    let times = "sum(coalesce((record::json ->> 'times')::int, 1))";
    let is_done = || stored("count(*)", "") == "50" && stored(times, "NOT") == "30";
    until(LIMIT, "old calls are removed", is_done).await;
    let log = calls(&daemons[0], "in").await;
    let (accepted, rejected): (Vec<Value>, Vec<Value>) =
        log.into_iter().partition(|call| call["status"] == 202);
    assert_eq!((accepted.len(), rejected.len()), (50, 1), "one row for each reason");
    assert_eq!(rejected[0]["times"], 30);
    assert!(newest.is_subset(&runs_of(&accepted).into_iter().collect()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn the_accepted_calls_of_a_killed_host_are_in_the_log_of_another() {
    let server = Postgres::start();
    let (folders, [mut one, other]) = hosts(&server).await;
    for round in 0..3 {
        clear(&server);
        let accepted = call_many(&one, &format!("round-{round}"), 20).await;
        one.kill();
        let log = calls(&other, "in").await;
        let runs: Vec<String> = runs_of(&log);
        assert_eq!(runs.len(), 20, "each call once: {log:?}");
        assert_eq!(runs.into_iter().collect::<BTreeSet<_>>(), accepted);
        assert!(log.iter().all(|call| call["status"] == 202), "{log:?}");
        let stored = server.psql(
            "ostler",
            &format!(
                "SELECT uri FROM ostler.automation_runs WHERE run::json #>> '{{origin,event,n}}' LIKE 'round-{round}-%'"
            ),
        );
        let stored = stored.lines().map(|uri| uri.rsplit_once('/').unwrap().1.to_owned());
        assert_eq!(stored.collect::<BTreeSet<_>>(), accepted, "each run once");
        one = folders[0].start();
    }
    drop(one);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn a_host_replays_the_call_of_another() {
    let server = Postgres::start();
    let (_folders, daemons) = hosts(&server).await;
    send(&daemons[0], "/api/vault/set/host%3Awebhook-bodies", &json!({ "value": "0123456789abcdef" })).await;
    server.psql(
        "ostler",
        "UPDATE ostler.records SET record = jsonb_set(record::jsonb, '{keepBodies}', '\"7d\"')::text
             WHERE collection = 'webhooks' AND id = 'in'",
    );
    clear(&server);
    for daemon in &daemons {
        assert_eq!(daemon.post("/plugins/webhook/in", SECRET, r#"{ "n": "kept" }"#).await.0, 202);
    }
    let received = calls(&daemons[0], "in").await;
    assert_eq!(received.len(), 2);
    for (call, daemon) in received.iter().zip(daemons.iter().rev()) {
        assert!(call["keptUntil"].is_string(), "{call}");
        let replayed = send(daemon, "/api/webhook/replay", &json!({ "delivery": call["id"] })).await;
        assert_eq!(replayed["status"], 202, "{replayed}");
        let log = calls(&daemons[0], "in").await;
        let replay = log.iter().find(|one| one["replays"] == call["id"]).expect("it is in the log");
        assert_eq!(replay["runs"], replayed["runs"]);
    }
    let endpoints = get(&daemons[1], "/api/webhook/list").await.1.to_string();
    let last = &calls(&daemons[1], "in").await[3];
    assert!(endpoints.contains(last["id"].as_str().unwrap()), "{endpoints}");
    let mut log = calls(&daemons[1], "in").await;
    log.retain(|call| call["keptUntil"].is_string());
    assert_eq!(log.len(), 2);
}
