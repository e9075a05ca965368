//! A full disk: what was acknowledged is remembered, what cannot be stored is refused, and runs wait until there is room.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Duration;

use crate::support::disk::Disk;
use crate::support::{Daemon, Folder, LIMIT};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

const TOKEN: &str = "full-disk-token";
/// How many calls find the full disk.
const REFUSED: usize = 3;

/// A configuration folder with its state on a small disk, and the log elsewhere.
struct World {
    disk: Disk,
    folder: Folder,
    _log: TempDir,
}

impl World {
    /// Endpoints `in`, which recognizes deliveries by `X-Id`, and `order`, whose calls are answered one after the other.
    fn new() -> Option<Self> {
        let (dir, log) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let disk = Disk::try_mount(dir.path(), 32)?;
        symlink(log.path().join("log"), dir.path().join("log")).unwrap();
        let folder = Folder { dir };
        let plugins = json!([{ "name": "@ostler/echo" }, { "name": "@ostler/webhook" }]);
        let config = json!({ "port": 0, "deltaWindowMs": 0, "http": true, "connectionToken": TOKEN, "plugins": plugins });
        folder.write("config.json", &config.to_string());
        folder.write("vault.json", r#"{ "host:in": "right" }"#);
        fs::set_permissions(folder.path().join("vault.json"), Permissions::from_mode(0o600)).unwrap();
        for (id, field) in [("in", "dedupe: X-Id"), ("order", "orderBy: lane")] {
            let endpoint = format!("---\nid: {id}\nautomation: true\nsecret: host:in\n{field}\n---\n");
            folder.write(&format!("webhooks/{id}.md"), &endpoint);
            let automation = format!(
                "---\ntitle: {id}\nsession: {{ provider: echo }}\ntriggers:\n  - {{ id: called, kind: event, type: webhook, \
                 title: Called, events: [{{ id: call }}], config: {{ endpoint: {id} }} }}\n\
                 _meta: {{ ostler: {{ overlap: parallel, hourlyCap: 1000 }} }}\n---\n{{{{event.say}}}}\n"
            );
            folder.write(&format!("automations/{id}.md"), &automation);
        }
        Some(Self { disk, folder, _log: log })
    }

    /// Starts a daemon on the full disk, which has to refuse.
    fn is_refused(&self) {
        let ended = self.folder.run(&[]);
        assert_eq!((ended.code, &*ended.out), (Some(1), ""), "{}", ended.err);
        assert!(
            ended.err.contains("Could not start it: ") && ended.err.contains("the disk is full"),
            "{}",
            ended.err
        );
    }
}

/// The header of requests to the API.
fn token() -> String {
    format!("Authorization: Bearer {TOKEN}\r\n")
}

/// Calls an endpoint; answers the status.
async fn call(daemon: &Daemon, endpoint: &str, id: usize, body: &Value) -> u16 {
    let head = format!("POST /plugins/webhook/{endpoint}");
    let headers = format!("Authorization: Bearer right\r\nContent-Type: application/json\r\nX-Id: {id}\r\n");
    let (address, body) = (daemon.address(), body.to_string());
    let length = body.len();
    let sent = format!(
        "{head} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
    );
    let answer = daemon.exchange(sent.as_bytes()).await;
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
    assert_eq!(status == 503, answer.to_ascii_lowercase().contains("\r\nretry-after: 5\r\n"), "{answer}");
    status
}

/// A delivery with its id in its event.
async fn deliver(daemon: &Daemon, id: usize) -> u16 {
    call(daemon, "in", id, &json!({ "id": id, "say": "hello", "padding": "x".repeat(2000) })).await
}

/// The runs of an automation, newest first.
async fn runs(daemon: &Daemon, automation: &str) -> Vec<Value> {
    let head = format!("GET /api/runs?limit=500&automation={automation}");
    let (status, page) = daemon.ask(&head, &token(), "").await;
    assert_eq!(status, 200, "{page}");
    page["runs"].as_array().unwrap().clone()
}

/// How many runs each delivery has.
async fn runs_by_delivery(daemon: &Daemon) -> BTreeMap<usize, usize> {
    let mut counts = BTreeMap::new();
    for run in runs(daemon, "in").await {
        *counts.entry(usize::try_from(run["event"]["id"].as_u64().unwrap()).unwrap()).or_default() += 1;
    }
    counts
}

/// The states of the runs of `order`, by their lane's place.
async fn states(daemon: &Daemon) -> Vec<String> {
    let mut states: Vec<String> =
        runs(daemon, "order").await.iter().map(|run| run["state"].as_str().unwrap().to_owned()).collect();
    states.reverse();
    states
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !holds().await {
        assert!(Instant::now() < end, "not {what}");
        sleep(Duration::from_millis(20)).await;
    }
}

async fn until_ready(daemon: &Daemon, status: u16) {
    until("ready", async || daemon.ask("GET /api/ready", "", "").await.0 == status).await;
}

fn not_run() {
    ostler_testkit::not_run("mounting a small file system needs root");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deliveries_that_were_acknowledged_on_a_full_disk_run_once() {
    let Some(world) = World::new() else { return not_run() };
    let daemon = world.folder.start();
    let (mut acknowledged, mut refused) = (Vec::new(), Vec::new());
    for id in 0.. {
        match deliver(&daemon, id).await {
            202 => acknowledged.push(id),
            503 => refused.push(id),
            status => panic!("{status}"),
        }
        if id == 2 {
            world.disk.fill();
        }
        if refused.len() == REFUSED {
            break;
        }
        assert!(id < 100, "the full disk is not noticed");
    }
    assert_eq!(deliver(&daemon, refused[0]).await, 503, "its answer is not stored yet");
    daemon.kill();
    world.is_refused();
    world.disk.clear();
    let daemon = world.folder.start();
    let before = runs_by_delivery(&daemon).await;
    for id in acknowledged.iter().chain(&refused) {
        assert_eq!(deliver(&daemon, *id).await, 202, "{id}");
    }
    let after = runs_by_delivery(&daemon).await;
    for id in &acknowledged {
        assert_eq!((before.get(id), after.get(id)), (Some(&1), Some(&1)), "delivery {id}");
    }
    assert!(refused.iter().all(|id| after.contains_key(id)), "{after:?}");
    daemon.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_that_could_not_be_remembered_runs_once_when_it_is_repeated() {
    let Some(world) = World::new() else { return not_run() };
    let daemon = world.folder.start();
    // Its first record creates the folder.
    assert_eq!(deliver(&daemon, 0).await, 202);
    world.disk.fill();
    assert_eq!(deliver(&daemon, 1).await, 503);
    until_ready(&daemon, 503).await;
    assert_eq!(deliver(&daemon, 1).await, 503);
    world.disk.clear();
    until_ready(&daemon, 200).await;
    assert_eq!((deliver(&daemon, 1).await, deliver(&daemon, 1).await), (202, 202));
    assert_eq!(deliver(&daemon, 2).await, 202);
    assert_eq!(runs_by_delivery(&daemon).await, BTreeMap::from([(0, 1), (1, 1), (2, 1)]));
    daemon.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_wait_on_a_full_disk_and_go_on_once_there_is_room() {
    let Some(world) = World::new() else { return not_run() };
    let daemon = world.folder.start();
    for say in ["/slow 4s", "second"] {
        assert_eq!(call(&daemon, "order", 0, &json!({ "lane": "a", "say": say })).await, 202);
    }
    world.disk.fill();
    until_ready(&daemon, 503).await;
    let (_, status) = daemon.ask("GET /api/status", &token(), "").await;
    assert_eq!(status["ready"], false, "{status}");
    assert!(status["problem"].as_str().unwrap().contains("the disk is full"), "{status}");
    let doctor = world.folder.run(&["doctor"]);
    assert_eq!(doctor.code, Some(1), "{}", doctor.out);
    for found in ["error    directories", "the disk is full", "the running daemon is not ready"] {
        assert!(doctor.out.contains(found), "{found}: {}", doctor.out);
    }
    assert_eq!(call(&daemon, "order", 0, &json!({ "lane": "b", "say": "third" })).await, 503);
    let json = format!("{}Content-Type: application/json\r\n", token());
    let (status, refused) =
        daemon.ask("POST /api/vault/set/host%3Aother", &json, r#"{ "value": "x" }"#).await;
    assert_eq!(status, 503, "{refused}");
    until("over", async || states(&daemon).await[0] != "running").await;
    assert_eq!(states(&daemon).await, ["completed", "pending"]);
    world.disk.clear();
    until_ready(&daemon, 200).await;
    until("completed", async || states(&daemon).await == ["completed", "completed"]).await;
    let doctor = world.folder.run(&["doctor"]);
    assert_eq!(doctor.code, Some(0), "{}", doctor.out);
    daemon.kill();
    let daemon = world.folder.start();
    assert_eq!(states(&daemon).await, ["completed", "completed"], "the end of the first is stored, too");
    daemon.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_on_a_full_disk_leaves_waiting_runs_as_they_are() {
    let Some(world) = World::new() else { return not_run() };
    let daemon = world.folder.start();
    for say in ["/hang", "second"] {
        assert_eq!(call(&daemon, "order", 0, &json!({ "lane": "a", "say": say })).await, 202);
    }
    until("running", async || states(&daemon).await == ["running", "pending"]).await;
    world.disk.fill();
    daemon.kill();
    world.is_refused();
    world.is_refused();
    world.disk.clear();
    let daemon = world.folder.start();
    until("completed", async || states(&daemon).await == ["failed", "completed"]).await;
    daemon.stop();
}
