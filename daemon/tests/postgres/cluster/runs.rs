//! Automations that the hosts share.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ostler_testkit::postgres::Postgres;
use serde_json::{Value, json};

use super::clock::Clock;
use super::hosts::{
    add_webhook, client, create, eventually, folder, folder_with, get, options, start_turn, unfinished_runs,
    until,
};
use crate::support::{Client, Daemon, Folder, LIMIT};

/// How long the takeover of a lost host may take, with the wait for its lease.
const TAKEOVER: Duration = Duration::from_secs(20);

/// Calls the endpoint of a host; returns the status and the whole answer.
async fn call(address: &str, id: &str, body: &Value) -> (u16, String) {
    super::hosts::call(address, address, id, body).await
}

/// The seconds since the last full minute.
fn seconds_of_minute() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() % 60
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
    let started = runs(&server);
    assert_eq!(started.len(), 100);
    assert!(started.values().all(|of| of.len() == 1), "{started:?}");
    // Later, on both hosts.
    for address in &addresses {
        assert_eq!(call(address, "id-7", &json!({ "n": 7 })).await.0, 202);
    }
    assert_eq!(runs(&server)["7"].len(), 1);
    until(LIMIT, "the runs end", || unfinished_runs(&server) == 0).await;
    let undecided = "SELECT count(*) FROM ostler.automation_wakes WHERE NOT done";
    assert_eq!(server.psql("ostler", undecided), "0");
}

/// Reads until a client has seen the end of a run, in the run's channel and in the catalogue. Returns the actions of the run.
async fn seen_to_end(client: &mut Client, run: &str) -> Vec<String> {
    let (mut actions, mut is_listed) = (Vec::new(), false);
    while !is_listed || !actions.iter().any(|action| action == "automationRun/lifecycleChanged completed") {
        let frame = client.next_frame().await.expect("the connection is open");
        let (channel, action) = (&frame["params"]["channel"], &frame["params"]["action"]);
        if *channel == run {
            let status = action["lifecycle"]["status"].as_str().unwrap_or_default();
            actions.push(format!("{} {status}", action["type"].as_str().unwrap()).trim_end().to_owned());
        }
        let runs = action["automation"]["runs"].as_array();
        is_listed |= runs.into_iter().flatten().any(|listed| {
            listed["resource"] == run
                && listed["lifecycle"]["status"] == "completed"
                && listed["primarySession"].is_string()
        });
    }
    actions
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn a_run_is_live_at_every_host_and_after_a_reconnect() {
    let server = Postgres::start();
    let folders = [folder(&server, "a"), folder(&server, "b"), folder(&server, "c")];
    let daemons = folders.each_ref().map(Folder::start);
    add_webhook(&server, &daemons.each_ref(), "/slow {{event.wait}} noted", json!({ "overlap": "parallel" }))
        .await;
    let address = daemons[0].address().to_owned();
    let mut clients = Vec::new();
    for daemon in &daemons {
        let mut client = client(daemon, "follows").await;
        client.subscribe("ahp-automations://").await;
        clients.push(client);
    }
    let (status, answer) = call(&address, "one", &json!({ "n": 1, "wait": "4s" })).await;
    assert_eq!(status, 202, "{answer}");
    let link = answer.split_once("#/run/").unwrap().1.split_whitespace().next().unwrap();
    let run = link.replace("%3A", ":").replace("%2F", "/");
    for client in &mut clients {
        let state = client.subscribe(&run).await;
        assert_ne!(state["lifecycle"]["status"], "completed");
    }
    // Clients that lost their connections return to another host each.
    let mut returned = Vec::new();
    for (at, client) in clients.into_iter().enumerate() {
        drop(client);
        let daemon = &daemons[(at + 1) % 3];
        let mut client = Client::connect(&format!("{}/?tkn={}", daemon.url, super::hosts::TOKEN)).await;
        let back = json!({ "channel": "ahp-root://", "clientId": "follows", "lastSeenServerSeq": 0,
            "subscriptions": ["ahp-root://", "ahp-automations://", run] });
        let result = client.request("reconnect", back).await.unwrap();
        assert!(result["missing"].as_array().is_none_or(Vec::is_empty), "{result}");
        returned.push(client);
    }
    for client in &mut returned {
        let actions = seen_to_end(client, &run).await;
        let ends = actions.iter().filter(|action| action.ends_with(" completed")).count();
        assert_eq!(ends, 1, "{actions:?}");
    }
}

/// Whether the list of waiting sessions of a host has a session.
async fn waits_at(daemon: &Daemon, session: &str) -> bool {
    let (status, listed) = get(daemon, "/api/sessions?waiting=true").await;
    assert_eq!(status, 200, "{listed}");
    listed["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .any(|row| row["uri"] == session && row["state"] == "waiting")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn the_http_api_of_each_host_has_the_sessions_of_all() {
    let server = Postgres::start();
    let folders = [folder(&server, "a"), folder(&server, "b")];
    let daemons = folders.each_ref().map(Folder::start);
    let mut owner = client(&daemons[0], "owner").await;
    let chat = create(&mut owner, "echo:/one").await;
    assert!(start_turn(&mut owner, &chat, "t1", "/confirm nothing {}").await);
    for daemon in &daemons {
        eventually("the session waits", async || match waits_at(daemon, "echo:/one").await {
            true => Ok(()),
            false => Err("not listed".to_owned()),
        })
        .await;
        let read = async || {
            let (status, session) = get(daemon, "/api/sessions/one?turns=5").await;
            match status {
                200 => Ok(session),
                status => Err(format!("{status} {session}")),
            }
        };
        let (session, _) = eventually("the session is read", read).await;
        assert_eq!((&session["uri"], &session["state"]), (&json!("echo:/one"), &json!("waiting")));
        assert_eq!(session["chats"], json!([chat]));
        let turns = session["turns"].as_array().unwrap();
        assert_eq!(turns.last().unwrap()["id"], "t1", "{session}");
        assert_eq!(get(daemon, "/api/sessions/none").await.0, 404);
    }
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
    until(LIMIT, "the run ends", || unfinished_runs(&server) == 0).await;
    let dropped = "SELECT sum((run::json #>> '{_meta,ostler.dropped}')::int) FROM ostler.automation_runs";
    assert_eq!(server.psql("ostler", dropped), "9");
    let log = super::log::calls(&daemons[0], "in").await;
    let of_runs: Vec<usize> =
        log[log.len() - 10..].iter().map(|row| row["runs"].as_array().map_or(0, Vec::len)).collect();
    assert_eq!(of_runs.iter().sum::<usize>(), 1, "the log has no run of a call that was dropped: {log:?}");

    // The first runs count, too.
    let before: usize = server.psql("ostler", "SELECT count(*) FROM ostler.automation_runs").parse().unwrap();
    let capped = format!(r#"{{ "overlap": "parallel", "hourlyCap": {} }}"#, before + 3);
    server.psql(
        "ostler",
        &format!("UPDATE ostler.automations SET definition = jsonb_set(definition::jsonb, '{{_meta,ostler}}', '{capped}')"),
    );
    // Both hosts read the edit after its notification, and neither reports that it has.
    tokio::time::sleep(Duration::from_secs(1)).await;
    for n in 0..10 {
        let body = json!({ "n": format!("cap-{n}"), "wait": "1ms" });
        assert_eq!(call(&addresses[n % 2], &format!("cap-{n}"), &body).await.0, 202);
    }
    let started = runs(&server).keys().filter(|n| n.starts_with("cap-")).count();
    assert_eq!(started, 3, "{:?}", runs(&server));
}

/// What became of a run whose host was killed.
struct Interrupted {
    server: Postgres,
    /// The name of the host.
    host: String,
    error: String,
    /// How often it was resumed.
    resumed: String,
    /// The number of turns of its session.
    turns: String,
}

/// Kills the host that owns an automation with a running and a waiting run, and waits until another one has ended both.
/// `shared` are the folders with the same files on every host.
async fn interrupt(on_host_lost: &str, shared: &[&str], state: &str) -> Interrupted {
    let server = Postgres::start();
    let folders = ["host-a", "host-b", "host-c"].map(|id| folder_with(&options(&server, id, shared)));
    let mut daemons: Vec<Daemon> = folders.iter().map(Folder::start).collect();
    add_webhook(
        &server,
        &daemons.iter().collect::<Vec<_>>(),
        "/slow {{event.wait}} noted {{event.n}}",
        json!({ "overlap": "queue", "onHostLost": on_host_lost }),
    )
    .await;
    let address = daemons[1].address().to_owned();
    let accepted = call(&address, "running", &json!({ "n": "running", "wait": "5s" })).await;
    assert_eq!(accepted.0, 202, "{}", accepted.1);
    until(LIMIT, "it runs", || runs(&server)["running"] == ["running"]).await;
    let accepted = call(&address, "queued", &json!({ "n": "queued", "wait": "1ms" })).await;
    assert_eq!(accepted.0, 202, "{}", accepted.1);
    let owner = "SELECT host FROM ostler.automation_owners WHERE automation = 'note'";
    let host = server.psql("ostler", owner);
    let at = folders.iter().position(|folder| folder.read("config.json").contains(&host)).unwrap();
    daemons.remove(at).kill();
    // A repeated delivery to a host that is left.
    let left = daemons[0].address().to_owned();
    assert_eq!(call(&left, "running", &json!({ "n": "running", "wait": "5s" })).await.0, 202);
    until(TAKEOVER, "another host takes over", || server.psql("ostler", owner) != host).await;
    until(LIMIT, "the runs end", || unfinished_runs(&server) == 0).await;
    let ended = runs(&server);
    assert_eq!(
        (&ended["running"], &ended["queued"]),
        (&vec![state.to_owned()], &vec!["completed".to_owned()])
    );
    let of = "FROM ostler.automation_runs WHERE run::json #>> '{origin,event,n}' = 'running'";
    let error = server.psql("ostler", &format!("SELECT run::json #>> '{{lifecycle,error,message}}' {of}"));
    let resumed = server.psql("ostler", &format!("SELECT run::json #>> '{{_meta,ostler.resumed}}' {of}"));
    let turns = server.psql("ostler", &format!(
        "SELECT count(*) FROM ostler.turns WHERE session = (SELECT regexp_replace(run::json ->> 'primarySession', '^.*/', '') {of})"
    ));
    Interrupted { server, host, error, resumed, turns }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn the_run_of_a_killed_host_fails_once() {
    let Interrupted { host, error, turns, .. } = interrupt("fail", &["/"], "failed").await;
    assert_eq!(error, format!("its host, {host}, was lost while this run was going"));
    assert_eq!(turns, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn the_run_of_a_killed_host_resumes_in_its_session_on_another() {
    let Interrupted { resumed, turns, .. } = interrupt("resume", &["/"], "completed").await;
    // The turn that was interrupted, and the one that is done again.
    assert_eq!((&*resumed, &*turns), ("1", "2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn the_run_of_a_killed_host_that_has_its_files_resumes_in_a_new_session() {
    let Interrupted { server, host, resumed, turns, .. } = interrupt("resume", &[], "completed").await;
    assert_eq!((&*resumed, &*turns), ("1", "1"));
    let bound =
        "SELECT count(*) FROM ostler.session_heads JOIN ostler.turns USING (session) WHERE bound_to = ";
    assert_eq!(server.psql("ostler", &format!("{bound}'{host}' AND kept LIKE '%noted running%'")), "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn a_schedule_on_three_hosts_starts_one_run_for_each_of_its_times() {
    let server = Postgres::start();
    let folders = ["a", "b", "c"].map(|id| folder(&server, id));
    // The clocks of all hosts are 12 seconds before the next minute.
    let clock = Clock::new();
    clock.set(i64::try_from(48 + 60 - seconds_of_minute()).unwrap());
    let daemons = folders.each_ref().map(|folder| folder.started(clock.applied(folder.command(&[]))));
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
    })
    .await;
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
