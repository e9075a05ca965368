//! The log of calls and stored bodies where several hosts may write to the store of records.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{Outside, SECRET, World, automation, builder, endpoint, folder, records, until, write};
use ostler_contract::live::Pending;
use ostler_contract::points::{AutomationStore, RecordStore};
use ostler_contract::protocol::wire::state::AutomationRunState;
use ostler_contract::shared_runs::{NewRecord, RunTransactions};
use ostler_contract::{JsonObject, Value, json};
use ostler_plugin_webhook::recorded_calls::{RecordedCalls, rows_of};
use ostler_ports::{FileAutomations, StateDb};
use tempfile::TempDir;

const BACK: &str = "https://hooks.example/in/x";

/// Stores the runs of one host, and records in a store of all hosts.
#[derive(Debug, Clone)]
struct Transactions {
    automations: AutomationStore,
    records: RecordStore,
    /// How many log entries were stored together with runs.
    logged: Arc<AtomicUsize>,
}

impl RunTransactions for Transactions {
    fn store(
        &self,
        runs: Vec<AutomationRunState>,
        record: NewRecord,
        log: Option<NewRecord>,
    ) -> Pending<bool> {
        let stores = self.clone();
        Box::pin(async move {
            stores.logged.fetch_add(usize::from(log.is_some()), Ordering::Relaxed);
            for NewRecord { collection, record } in [Some(record), log].into_iter().flatten() {
                let opened = stores.records.collection.unbounded((collection, Default::default())).await?;
                opened.put.unbounded((record,)).await?;
            }
            for run in runs {
                stores.automations.run.unbounded((run,)).await?;
            }
            Ok(true)
        })
    }
}

/// Starts a host with its own automations whose records are in a store of several hosts.
async fn host(records: &RecordStore) -> (World, Arc<AtomicUsize>) {
    let dir = folder();
    write(
        dir.path(),
        "vault.json",
        &json!({ "host:hook": SECRET, "host:webhook-bodies": "0123456789abcdef" }).to_string(),
    );
    automation(dir.path(), "fire");
    let db = StateDb::open(dir.path()).unwrap();
    let automations = FileAutomations::open(dir.path(), db, ostler_ports::Report::quiet()).await.unwrap();
    let automations = Arc::new(automations).into_point();
    let logged: Arc<AtomicUsize> = Arc::default();
    let transactions =
        Transactions { automations: automations.clone(), records: records.clone(), logged: logged.clone() };
    let builder = builder(dir.path())
        .await
        .automations(automations)
        .records(records.clone())
        .own(move |host| host.join_runs(Arc::new(transactions), None));
    (World::of(&dir, builder).await, logged)
}

/// A folder with the records of all hosts: the endpoints `fire`, `kept` and `back`.
fn shared() -> (Arc<TempDir>, RecordStore) {
    let dir = folder();
    endpoint(dir.path(), "fire", "automation: true\ndedupe: X-Id");
    endpoint(dir.path(), "kept", "automation: true\nkeepBodies: 7d");
    endpoint(
        dir.path(),
        "back",
        "bot: bot://echo\ncallbackPrefix: https://hooks.example/in/\nretry: { times: 3, first: 1s }",
    );
    let records = records(dir.path());
    (dir, records)
}

async fn call(world: &World, id: Option<&str>, what: &str) {
    let bearer = format!("Bearer {SECRET}");
    let mut headers = vec![("authorization", &*bearer)];
    headers.extend(id.map(|id| ("x-id", id)));
    assert_eq!(world.post_with("fire", json!({ "what": what }).to_string(), &headers).await.0, 202);
}

/// The recorded calls of an endpoint, as a command shows them.
async fn calls(world: &World, endpoint: &str) -> RecordedCalls {
    let all = world.kept("webhook-deliveries").await;
    let list = all.iter().find(|record| record["id"] == endpoint).cloned();
    let of = rows_of(endpoint);
    let rows = all.into_iter().filter(|record| record.get("endpoint") == of.get("endpoint"));
    RecordedCalls::of(list.as_ref(), rows.collect())
}

/// The rows of an endpoint in a collection.
async fn rows(world: &World, collection: &str, endpoint: &str) -> Vec<JsonObject> {
    let mut all = world.kept(collection).await;
    all.retain(|record| record.get("endpoint").is_some_and(|of| of == endpoint));
    all
}

fn ids(rows: &[Value]) -> BTreeSet<&str> {
    rows.iter().map(|row| row["id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn the_calls_of_two_hosts_are_one_log() {
    let (_dir, records) = shared();
    let ((one, logged), (other, _)) = (host(&records).await, host(&records).await);
    call(&one, Some("a"), "a").await;
    assert_eq!(logged.load(Ordering::Relaxed), 1);
    let at_once = calls(&one, "fire").await.accepted;
    assert_eq!((at_once.len(), &at_once[0]["status"]), (1, &json!(202)), "it is stored with the run");
    assert_eq!(at_once[0]["runs"].as_array().unwrap().len(), 1);
    for at in 0..10 {
        call(&one, None, &at.to_string()).await;
        call(&other, Some(&at.to_string()), &at.to_string()).await;
    }
    call(&other, Some("a"), "a").await;
    other.post_with("fire", "{}", &[]).await;
    let all = until(async || {
        let all = calls(&one, "fire").await;
        (all.accepted.len() >= 22 && !all.refused.is_empty()).then_some(all)
    })
    .await;
    assert_eq!((all.accepted.len(), ids(&all.accepted).len(), all.refused.len()), (22, 22, 1));
    let runs: BTreeSet<&str> = all.accepted.iter().filter_map(|row| row["runs"][0].as_str()).collect();
    assert_eq!(runs.len(), 21, "each run once, and none of the repeated call");
    assert_eq!(all.accepted.iter().filter(|row| row["again"] == true).count(), 1);
    assert_eq!(all, calls(&other, "fire").await);

    // Only so many are retained, of all hosts together.
    for _ in 0..40 {
        for world in [&one, &other] {
            call(world, None, "more").await;
            world.post_with("fire", "{}", &[]).await;
        }
    }
    until(async || {
        let rows = rows(&one, "webhook-deliveries", "fire").await;
        let refused = rows.iter().filter(|row| row.contains_key("refused")).count();
        let counted = calls(&one, "fire").await.refused.first().is_some_and(|row| row["times"] == 81);
        // Each host merges what it finds when it stores calls, and leaves the newest row.
        (rows.len() - refused == 50 && refused <= 4 && counted).then_some(())
    })
    .await;
}

#[tokio::test]
async fn lists_become_rows_and_rows_become_lists() {
    let (dir, records) = shared();
    let list = "---\nid: fire\ndeliveries:\n  - { at: 2026-01-01T00:00:00.000Z, status: 202 }\n  \
                - { id: d1, at: 2026-01-02T00:00:00.000Z, status: 202 }\nrefused:\n  \
                - { id: d2, at: 2026-01-03T00:00:00.000Z, status: 401 }\n---\n";
    write(dir.path(), "webhook-deliveries/fire.md", list);
    let (world, _) = host(&records).await;
    let old = calls(&world, "fire").await;
    assert_eq!((old.accepted.len(), old.refused.len()), (2, 1), "an old list is read");
    call(&world, None, "x").await;
    let rows_of_all = until(async || {
        let all = world.kept("webhook-deliveries").await;
        all.iter().all(|record| record["id"] != "fire").then_some(all)
    })
    .await;
    assert_eq!(rows_of_all.len(), 4);
    let converted = calls(&world, "fire").await;
    assert_eq!((converted.accepted.len(), ids(&converted.refused)), (3, BTreeSet::from(["d2"])));
    world.host.host.close().await;
    drop(world);

    // A host that shares its records with no other.
    let own = folder();
    automation(own.path(), "fire");
    let alone = World::of(&own, builder(own.path()).await.records(records)).await;
    assert_eq!(calls(&alone, "fire").await, converted);
    call(&alone, None, "y").await;
    let accepted = alone.deliveries("fire", 4).await;
    assert_eq!(accepted[1]["id"], "d1");
    until(async || rows(&alone, "webhook-deliveries", "fire").await.is_empty().then_some(())).await;
    assert_eq!(calls(&alone, "fire").await.refused, converted.refused);
}

#[tokio::test]
async fn a_late_answer_to_a_callback_is_added_to_its_row() {
    let (_dir, records) = shared();
    let (world, _) = host(&records).await;
    world.posts.answer(&[Outside::Status(500), Outside::Status(500)]);
    let (_, body) = world.say_back("back", "t", "hello", BACK).await;
    let row = until(async || {
        let row = calls(&world, "back").await.accepted.pop()?;
        (row["callback"] == "200").then_some(row)
    })
    .await;
    assert_eq!((&row["turn"], &row["status"]), (&body["turn"], &json!(202)));
    assert_eq!(rows(&world, "webhook-deliveries", "back").await.len(), 1);
}

#[tokio::test]
async fn a_host_replays_what_another_one_received() {
    let (_dir, records) = shared();
    let ((one, _), (other, _)) = (host(&records).await, host(&records).await);
    for world in [&one, &other] {
        assert_eq!(world.post("kept", json!({ "what": "x" }).to_string()).await.0, 202);
    }
    let listed = rows(&one, "webhook-kept", "kept").await;
    assert_eq!(listed.len(), 2, "each host lists its own");
    for body in &listed {
        for world in [&one, &other] {
            let replayed =
                world.client().await.request("x-webhook/replay", json!({ "delivery": body["id"] })).await;
            assert_eq!(replayed.unwrap()["status"], 202);
        }
    }
    let replays = until(async || {
        let all = calls(&one, "kept").await.accepted;
        let replays: Vec<Value> = all.into_iter().filter(|row| row["replays"].is_string()).collect();
        (replays.len() == 4).then_some(replays)
    })
    .await;
    assert_eq!(ids(&replays).len(), 4);

    for _ in 0..30 {
        for world in [&one, &other] {
            assert_eq!(world.post("kept", "{}").await.0, 202);
        }
    }
    let listed = rows(&one, "webhook-kept", "kept").await;
    let bodies = one.kept("webhook-bodies").await;
    assert_eq!((listed.len(), bodies.len()), (50, 50), "the newest of both");
}
