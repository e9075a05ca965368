//! Real daemons that share the automations of a real PostgreSQL. `.ci/postgres` runs these tests.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_testkit::postgres::Postgres;
use serde_json::{Value, json};
use support::{Daemon, Folder, LIMIT};

const TOKEN: &str = "the-token";
/// How long the takeover of a lost host may take, with the wait for its lease.
const TAKEOVER: Duration = Duration::from_secs(20);

/// A folder with a host of the cluster.
fn folder(server: &Postgres, id: &str) -> Folder {
    let plugins = json!([
        { "name": "@ostler/postgres", "options": {
            "url": server.url(), "passwordFile": server.password_file(), "vaultKeyFile": server.key_file(),
            "cluster": { "id": id, "url": "ws://127.0.0.1:0", "tokenFile": "cluster-token", "sharedPaths": ["/"] },
        } },
        { "name": "@ostler/echo" }, { "name": "@ostler/webhook" }, { "name": "@ostler/console" },
    ]);
    let folder = Folder::new(json!({ "connectionToken": TOKEN, "plugins": plugins }));
    folder.write("cluster-token", "a-token-of-the-cluster-with-32-bytes\n");
    folder
}

/// Adds an endpoint `in`, which recognizes repeated deliveries, and its automation with these settings, and waits until every
/// host has them.
async fn add_webhook(server: &Postgres, daemons: &[&Daemon], message: &str, own: Value) {
    let headers = format!("Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n");
    let value = json!({ "value": "right" }).to_string();
    let (status, answer) = daemons[0].ask("POST /api/vault/set/host%3Ain", &headers, &value).await;
    assert_eq!(status, 200, "{answer}");
    let endpoint = json!({ "id": "in", "automation": true, "secret": "host:in", "dedupe": "x-id" });
    let definition = json!({
        "title": "Note", "enabled": true, "message": { "text": message, "origin": { "kind": "automation" } },
        "session": { "provider": "echo" },
        "triggers": [{ "kind": "event", "id": "called", "type": "webhook", "title": "Called",
            "events": [{ "id": "call", "title": "Call" }], "config": { "endpoint": "in" } }],
        "_meta": { "ostler": { "hourlyCap": 1_000_000, "overlap": "parallel" } },
    });
    let insert = |definition: &Value| {
        server.psql(
            "ostler",
            &format!(
                "INSERT INTO ostler.automations VALUES ('note', '{definition}', NULL, '2026-01-01T00:00:00Z',
                     '2026-01-01T00:00:00Z')
                 ON CONFLICT (id) DO UPDATE SET definition = excluded.definition"
            ),
        )
    };
    insert(&definition);
    server.psql(
        "ostler",
        &format!(
            "INSERT INTO ostler.records (collection, id, record) VALUES ('webhooks', 'in', '{endpoint}')"
        ),
    );
    for (at, daemon) in daemons.iter().enumerate() {
        let end = Instant::now() + LIMIT;
        let sql = format!(
            "SELECT count(*) FROM ostler.automation_runs WHERE run::json #>> '{{origin,event,probe}}' = '{at}'"
        );
        while server.psql("ostler", &sql) == "0" {
            daemon
                .post("/plugins/webhook/in", Some("right"), &json!({ "probe": at.to_string() }).to_string())
                .await;
            assert!(Instant::now() < end, "no call of host {at} starts a run");
        }
    }
    let ended = "SELECT count(*) FROM ostler.automation_runs WHERE NOT ended";
    until(LIMIT, "the first runs end", || server.psql("ostler", ended) == "0");
    let mut definition = definition;
    definition["_meta"]["ostler"] = own;
    insert(&definition);
    // Edits arrive with a notification.
    tokio::time::sleep(Duration::from_secs(1)).await;
}

fn until(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    support::wait_within(limit, || holds().then_some(())).unwrap_or_else(|| panic!("in time: {what}"));
}

/// Calls the endpoint of a host; returns the status and the whole answer.
async fn call(address: &str, id: &str, body: &Value) -> (u16, String) {
    let body = body.to_string();
    let request = format!(
        "POST /plugins/webhook/in HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nAuthorization: Bearer right\r\n\
         X-Id: {id}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = support::exchange(address, request.as_bytes()).await;
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, answer)
}

/// The state of each run by the field `n` of its event.
fn runs(server: &Postgres) -> BTreeMap<String, Vec<String>> {
    let sql = "SELECT run::json #>> '{origin,event,n}', run::json #>> '{lifecycle,status}' FROM ostler.automation_runs
        WHERE run::json #>> '{origin,event,n}' IS NOT NULL";
    let mut runs: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in server.psql("ostler", sql).lines() {
        let (n, status) = line.split_once('|').unwrap();
        runs.entry(n.to_owned()).or_default().push(status.to_owned());
    }
    runs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn a_delivery_that_two_hosts_receive_at_the_same_time_starts_one_run() {
    let server = Postgres::start();
    let folders = [folder(&server, "a"), folder(&server, "b")];
    let daemons = folders.each_ref().map(Folder::start);
    let parallel = json!({ "overlap": "parallel", "hourlyCap": 1_000_000 });
    add_webhook(&server, &daemons.each_ref(), "noted {{event.n}}", parallel).await;
    let addresses = daemons.each_ref().map(|daemon| daemon.address().to_owned());
    let began = Instant::now();
    for round in 0..10 {
        let calls: Vec<_> = (0..10)
            .flat_map(|at| addresses.clone().map(|address| (round * 10 + at, address)))
            .map(|(n, address)| {
                tokio::spawn(async move { (n, call(&address, &format!("id-{n}"), &json!({ "n": n })).await) })
            })
            .collect();
        let mut locations: BTreeMap<i32, Vec<String>> = BTreeMap::new();
        for call in calls {
            let (n, (status, answer)) = call.await.unwrap();
            assert_eq!(status, 202, "{answer}");
            let location = answer.lines().find(|line| line.to_ascii_lowercase().starts_with("location:"));
            // Each host names its own address.
            let run =
                location.and_then(|location| location.split_once("#/run/")).map(|(_, run)| run.to_owned());
            locations.entry(n).or_default().extend(run);
        }
        for (n, of) in locations {
            assert!(of.len() == 2 && of[0] == of[1], "call {n} is answered with one run: {of:?}");
        }
    }
    println!("200 calls of 100 deliveries to two hosts: {:?}", began.elapsed());
    let started = runs(&server);
    assert_eq!(started.len(), 100);
    assert!(started.values().all(|of| of.len() == 1), "{started:?}");
    // Later, on both hosts.
    for address in &addresses {
        assert_eq!(call(address, "id-7", &json!({ "n": 7 })).await.0, 202);
    }
    assert_eq!(runs(&server)["7"].len(), 1);
    let ended = "SELECT count(*) FROM ostler.automation_runs WHERE NOT ended";
    until(LIMIT, "the runs end", || server.psql("ostler", ended) == "0");
    let undecided = "SELECT count(*) FROM ostler.automation_wakes WHERE NOT done";
    assert_eq!(server.psql("ostler", undecided), "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn overlap_and_the_cap_hold_over_two_hosts() {
    let server = Postgres::start();
    let folders = [folder(&server, "a"), folder(&server, "b")];
    let daemons = folders.each_ref().map(Folder::start);
    add_webhook(&server, &daemons.each_ref(), "/slow {{event.wait}} noted", json!({ "overlap": "skip" }))
        .await;
    let addresses = daemons.each_ref().map(|daemon| daemon.address().to_owned());
    let calls = (0..10).map(|n| {
        let address = addresses[n % 2].clone();
        tokio::spawn(async move {
            call(&address, &format!("skip-{n}"), &json!({ "n": format!("skip-{n}"), "wait": "3s" })).await
        })
    });
    for call in calls.collect::<Vec<_>>() {
        assert_eq!(call.await.unwrap().0, 202);
    }
    assert_eq!(runs(&server).len(), 1, "the others fell into its time");
    let ended = "SELECT count(*) FROM ostler.automation_runs WHERE NOT ended";
    until(LIMIT, "the run ends", || server.psql("ostler", ended) == "0");
    let dropped = "SELECT sum((run::json #>> '{_meta,ostler.dropped}')::int) FROM ostler.automation_runs";
    assert_eq!(server.psql("ostler", dropped), "9");

    // The first runs count, too.
    let before: usize = server.psql("ostler", "SELECT count(*) FROM ostler.automation_runs").parse().unwrap();
    let capped = format!(r#"{{ "overlap": "parallel", "hourlyCap": {} }}"#, before + 3);
    server.psql(
        "ostler",
        &format!("UPDATE ostler.automations SET definition = jsonb_set(definition::jsonb, '{{_meta,ostler}}', '{capped}')"),
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    for n in 0..10 {
        let body = json!({ "n": format!("cap-{n}"), "wait": "1ms" });
        assert_eq!(call(&addresses[n % 2], &format!("cap-{n}"), &body).await.0, 202);
    }
    let started = runs(&server).keys().filter(|n| n.starts_with("cap-")).count();
    assert_eq!(started, 3, "{:?}", runs(&server));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn the_runs_of_a_killed_host_end_once_or_resume_on_another() {
    let server = Arc::new(Postgres::start());
    for (how, first) in [("fail", "failed"), ("resume", "completed")] {
        let folders = ["a", "b", "c"].map(|id| folder(&server, &format!("{how}-{id}")));
        let mut daemons: Vec<Daemon> = folders.iter().map(Folder::start).collect();
        server.psql(
            "ostler",
            "TRUNCATE ostler.automations, ostler.automation_runs, ostler.automation_wakes,
            ostler.automation_owners, ostler.records CASCADE",
        );
        add_webhook(
            &server,
            &daemons.iter().collect::<Vec<_>>(),
            "/slow {{event.wait}} noted {{event.n}}",
            json!({ "overlap": "queue", "onHostLost": how }),
        )
        .await;
        let address = daemons[1].address().to_owned();
        let accepted = call(&address, "running", &json!({ "n": "running", "wait": "5s" })).await;
        assert_eq!(accepted.0, 202, "{}", accepted.1);
        until(LIMIT, "it runs", || runs(&server)["running"] == ["running"]);
        let accepted = call(&address, "queued", &json!({ "n": "queued", "wait": "1ms" })).await;
        assert_eq!(accepted.0, 202, "{}", accepted.1);
        let owner =
            server.psql("ostler", "SELECT host FROM ostler.automation_owners WHERE automation = 'note'");
        let at = folders.iter().position(|folder| folder.read("config.json").contains(&owner)).unwrap();
        let killed = Instant::now();
        daemons.remove(at).kill();
        // A repeated delivery to a host that is left.
        let left = daemons[0].address().to_owned();
        assert_eq!(call(&left, "running", &json!({ "n": "running", "wait": "5s" })).await.0, 202);
        let moved = "SELECT host FROM ostler.automation_owners WHERE automation = 'note'";
        until(TAKEOVER, "another host takes over", || server.psql("ostler", moved) != owner);
        println!("{how}: taken over after {:?}", killed.elapsed());
        let ended = "SELECT count(*) FROM ostler.automation_runs WHERE NOT ended";
        until(LIMIT, "the runs end", || server.psql("ostler", ended) == "0");
        let runs = runs(&server);
        assert_eq!(runs["running"], [first], "{how}");
        assert_eq!(runs["queued"], ["completed"], "{how}");
        let of = "FROM ostler.automation_runs WHERE run::json #>> '{origin,event,n}' = 'running'";
        let error =
            server.psql("ostler", &format!("SELECT run::json #>> '{{lifecycle,error,message}}' {of}"));
        let resumed = server.psql("ostler", &format!("SELECT run::json #>> '{{_meta,ostler.resumed}}' {of}"));
        match how {
            "fail" => assert_eq!(error, format!("its host, {owner}, was lost while this run was going")),
            _ => assert_eq!(resumed, "1"),
        }
        // The turn that was interrupted, and the one that is done again.
        let turns = server.psql("ostler", &format!(
            "SELECT count(*) FROM ostler.turns WHERE session = (SELECT regexp_replace(run::json ->> 'primarySession', '^.*/', '') {of})"
        ));
        assert_eq!(turns, if how == "fail" { "1" } else { "2" }, "{how}: it continues in its session");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn a_schedule_on_three_hosts_starts_one_run_for_each_of_its_times() {
    let server = Postgres::start();
    let folders = ["a", "b", "c"].map(|id| folder(&server, id));
    let daemons: Vec<Daemon> = folders.iter().map(Folder::start).collect();
    let definition = json!({
        "title": "Clock", "enabled": true, "message": { "text": "tick", "origin": { "kind": "automation" } },
        "session": { "provider": "echo" },
        "triggers": [{ "id": "clock", "kind": "schedule", "schedule": { "expression": "* * * * *", "timeZone": "UTC" } }],
        "_meta": { "ostler": { "overlap": "parallel" } },
    });
    for at in 0..5 {
        server.psql("ostler", &format!(
            "INSERT INTO ostler.automations VALUES ('clock-{at}', '{definition}', NULL, '2026-01-01T00:00:00Z',
                 '2026-01-01T00:00:00Z')"
        ));
    }
    let ended = "SELECT count(DISTINCT automation), count(DISTINCT automation || cause), count(*)
        FROM ostler.automation_runs WHERE ended";
    until(Duration::from_secs(90), "the schedules are due", || {
        server.psql("ostler", ended).starts_with("5|")
    });
    // Any host that is late has fired by then.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let counts = server.psql("ostler", ended);
    let counts: Vec<usize> = counts.split('|').map(|count| count.parse().unwrap()).collect();
    assert_eq!(counts[1], counts[2], "one run for each time");
    let causes = server.psql("ostler", "SELECT count(*) FROM ostler.automation_runs WHERE cause IS NULL");
    assert_eq!(causes, "0");
    let log: String = folders.iter().map(|folder| folder.read("log")).collect();
    assert!(!log.contains("could not be"), "{log}");
    drop(daemons);
}
