//! Endpoints whose calls are ordered by a field, or share a session for each value of it.

use std::path::Path;
use std::sync::Arc;

use crate::support::{SECRET, World, endpoint, folder, read, request, until, write};
use ostler_contract::bodies::LONG;
use ostler_contract::{Value, json};
use ostler_ports::{FileAutomations, FileVault, SqliteSessions, StateDb};
use ostler_testkit::{MemoryHost, Stage};

/// An automation that does what a call says.
fn automation(dir: &Path, id: &str, overlap: &str) {
    write(
        dir,
        &format!("automations/{id}.md"),
        &format!(
            "---\ntitle: Hook\nsession: {{ provider: echo }}\ntriggers:\n  - {{ id: t, kind: event, type: webhook, \
             events: [{{ id: call }}], config: {{ endpoint: {id} }} }}\n\
             _meta: {{ ostler: {{ overlap: {overlap}, hourlyCap: 1000000 }} }}\n---\n{{{{event.say}}}}\n"
        ),
    );
}

fn call(repo: &str, n: usize, say: &str) -> String {
    json!({ "repository": { "full_name": repo }, "n": n, "say": say }).to_string()
}

/// The runs of an automation, in the order of their calls.
async fn runs(world: &World, id: &str) -> Vec<Value> {
    let state = world.chat("ahp-automations://").await;
    let entries = state["entries"].as_array().unwrap().clone();
    let of = format!("ahp-automation:/{id}");
    let entry = entries.into_iter().find(|entry| entry["resource"] == json!(of)).unwrap();
    let mut runs = entry["runs"].as_array().unwrap().clone();
    runs.sort_by_key(|run| run["origin"]["event"]["n"].as_u64());
    runs
}

/// The runs, once all of them have these statuses.
async fn settled(world: &World, id: &str, statuses: &[&str]) -> Vec<Value> {
    until(async || {
        let runs = runs(world, id).await;
        let are: Vec<_> = runs.iter().map(|run| run["lifecycle"]["status"].as_str().unwrap()).collect();
        (are == statuses).then_some(runs.clone())
    })
    .await
}

async fn dispose(world: &World, session: &Value) {
    world.client().await.request("disposeSession", json!({ "channel": session })).await.unwrap();
}

#[tokio::test]
async fn calls_of_a_value_run_in_their_order_and_others_beside_them() {
    let dir = folder();
    endpoint(dir.path(), "fire", "automation: true\norderBy: repository.full_name");
    automation(dir.path(), "fire", "skip");
    let world = World::start(&dir).await;
    for (n, (repo, say)) in
        [("a/b", "/hang"), ("a/b", "/slow 20ms"), ("a/b", "/slow 20ms"), ("c/d", "hello"), ("c/d", "hello")]
            .into_iter()
            .enumerate()
    {
        assert_eq!(world.post("fire", call(repo, n, say)).await, (202, json!({ "endpoint": "fire" })));
    }
    let going = settled(&world, "fire", &["running", "pending", "pending", "completed", "completed"]).await;
    dispose(&world, &going[0]["primarySession"]).await;
    let ended =
        settled(&world, "fire", &["cancelled", "completed", "completed", "completed", "completed"]).await;
    for (first, next) in [(0, 1), (1, 2), (3, 4)] {
        let at = |run: usize, what: &str| ended[run]["lifecycle"][what].as_str().unwrap().to_owned();
        assert!(at(first, "completedAt") <= at(next, "startedAt"), "{ended:#?}");
    }
    let rows = world.deliveries("fire", 5).await;
    let told: Vec<_> = rows.iter().map(|row| row["runs"][0].clone()).collect();
    assert_eq!(
        told,
        ended.iter().map(|run| run["resource"].clone()).collect::<Vec<_>>(),
        "a run for each call"
    );

    // Calls without the field are under the overlap of the automation.
    for (n, repo) in [(5, json!(null)), (6, json!(null)), (7, json!({ "full_name": [1] }))] {
        let body = json!({ "repository": repo, "n": n, "say": "/hang" });
        assert_eq!(world.post("fire", body.to_string()).await.0, 202);
    }
    assert_eq!(runs(&world, "fire").await.len(), 6);
}

#[tokio::test]
async fn the_field_of_a_long_body_orders_too() {
    let dir = folder();
    endpoint(dir.path(), "fire", "automation: true\norderBy: repository.full_name");
    automation(dir.path(), "fire", "skip");
    let world = World::start(&dir).await;
    let filler: Vec<_> = (0..LONG / 64).map(|at| json!({ "at": at, "text": "x".repeat(64) })).collect();
    for (n, repo) in ["a", "a", "b"].into_iter().enumerate() {
        // Beside values that take all the room for what nothing reads, and too long to be stored unread.
        let body = json!({ "filler": filler.iter().map(|v| json!({ "k": v })).collect::<Vec<_>>(), "n": n, "say": "/hang",
            "repository": { "text": "y".repeat(5000), "full_name": repo.repeat(5000) } });
        assert!(body.to_string().len() > LONG);
        assert_eq!(world.post("fire", body.to_string()).await.0, 202);
    }
    settled(&world, "fire", &["running", "pending", "running"]).await;
}

#[tokio::test]
async fn a_call_that_finds_no_room_is_to_be_sent_again() {
    let dir = folder();
    endpoint(dir.path(), "fire", "automation: true\norderBy: endpoint\ndedupe: X-Delivery");
    automation(dir.path(), "fire", "queue");
    let world = World::start(&dir).await;
    let bearer = format!("Bearer {SECRET}");
    let deliver = async |n: usize| {
        let id = n.to_string();
        let headers = [("authorization", bearer.as_str()), ("x-delivery", id.as_str())];
        world.send(request("fire", call("a/b", n, "/hang"), &headers)).await
    };
    for n in 0..=1000 {
        assert_eq!(deliver(n).await.status(), 202, "{n}");
    }
    let refused = deliver(1001).await;
    assert_eq!(refused.headers()["retry-after"], "5");
    let message = "Too many calls wait for earlier ones; retry later";
    assert_eq!(read(refused).await, (503, json!({ "message": message })));
    let row =
        until(async || world.deliveries("fire", 50).await.into_iter().find(|row| row["status"] == 503)).await;
    assert_eq!((&row["why"], &row["runs"]), (&json!(message), &json!(null)));
    let stored = world.host.host.core.automation_store().unwrap().unfinished.clone().unwrap();
    let stored = stored.unbounded(()).await.unwrap();
    assert_eq!(stored.len(), 1001, "nothing is stored for it");
    let going = stored.iter().find_map(|run| run.primary_session.clone()).unwrap();
    dispose(&world, &json!(going)).await;
    until(async || (deliver(1001).await.status() == 202).then_some(())).await;
}

#[tokio::test]
async fn calls_of_a_value_are_turns_of_one_session_after_a_restart_too() {
    let dir = folder();
    endpoint(dir.path(), "fire", "automation: true\nsession: { by: repository.full_name }");
    automation(dir.path(), "fire", "parallel");
    let world = World::start(&dir).await;
    for (n, repo) in ["a/b", "a/b", "c/d"].into_iter().enumerate() {
        assert_eq!(world.post("fire", call(repo, n, &format!("/slow 20ms {n}"))).await.0, 202);
    }
    let first = settled(&world, "fire", &["completed"; 3]).await;
    let session = first[0]["primarySession"].clone();
    assert_eq!((&first[1]["primarySession"], &first[1]["sessionCount"]), (&session, &json!(1)));
    assert_ne!(first[2]["primarySession"], session);
    let said = async |world: &World| {
        let state = world.chat(session.as_str().unwrap()).await;
        let chat = world.chat(state["defaultChat"].as_str().unwrap()).await;
        let turns = chat["turns"].as_array().unwrap().clone();
        (
            state["title"].clone(),
            turns
                .iter()
                .map(|turn| turn["message"]["text"].as_str().unwrap()[..12].to_owned())
                .collect::<Vec<_>>(),
        )
    };
    assert_eq!(
        said(&world).await,
        (json!("Hook: a/b"), vec!["/slow 20ms 0".to_owned(), "/slow 20ms 1".to_owned()])
    );

    // What waits when the host stops goes on in that session.
    for n in 3..6 {
        let say = if n == 3 { "/hang" } else { "/slow 20ms" };
        assert_eq!(world.post("fire", call("a/b", n, &format!("{say} {n}"))).await.0, 202);
    }
    settled(&world, "fire", &["completed", "completed", "completed", "running", "pending", "pending"]).await;
    let world = world.again().await;
    let runs = until(async || {
        let runs = runs(&world, "fire").await;
        runs.iter().skip(4).all(|run| run["lifecycle"]["status"] == "completed").then_some(runs)
    })
    .await;
    assert_ne!(runs[3]["lifecycle"]["status"], "completed");
    assert!(runs[4..].iter().all(|run| run["primarySession"] == session), "{runs:#?}");
    assert_eq!(said(&world).await.1[3..], ["/slow 20ms 4", "/slow 20ms 5"]);

    // A session that is disposed is replaced.
    dispose(&world, &session).await;
    for n in 6..8 {
        assert_eq!(world.post("fire", call("a/b", n, "hello")).await.0, 202);
    }
    let runs = until(async || {
        let runs = self::runs(&world, "fire").await;
        (runs.len() == 8 && runs[6..].iter().all(|run| run["lifecycle"]["status"] == "completed"))
            .then_some(runs)
    })
    .await;
    assert!(runs[6]["primarySession"].is_string() && runs[6]["primarySession"] != session);
    assert_eq!(runs[7]["primarySession"], runs[6]["primarySession"]);
}

#[tokio::test]
async fn a_session_whose_backend_is_gone_is_replaced() {
    let dir = folder();
    endpoint(dir.path(), "fire", "automation: true\nsession: { by: repository.full_name }");
    automation(dir.path(), "fire", "queue");
    let file = std::fs::read_to_string(dir.path().join("automations/fire.md")).unwrap();
    write(dir.path(), "automations/fire.md", &file.replace("session: { provider: echo }\n", ""));
    let world = World::start(&dir).await;
    assert_eq!(world.post("fire", call("a/b", 0, "hello")).await.0, 202);
    let echo = settled(&world, "fire", &["completed"]).await[0]["primarySession"].clone();
    assert!(echo.as_str().unwrap().starts_with("echo:/"));
    world.host.host.close().await;
    drop(world);

    let db = StateDb::open(dir.path()).unwrap();
    let automations =
        FileAutomations::open(dir.path(), db.clone(), ostler_ports::Report::quiet()).await.unwrap();
    let stage = Stage::default();
    let builder = MemoryHost::builder()
        .plugin(stage.plugin(), json!({}))
        .plugin(ostler_plugin_webhook::plugin(), json!({}))
        .sessions(Arc::new(SqliteSessions::new(db, ostler_ports::Report::quiet())).into_point())
        .automations(Arc::new(automations).into_point())
        .records(crate::support::records(dir.path()))
        .vault(Arc::new(FileVault::new(dir.path(), ostler_ports::Report::quiet()).unwrap()).into_point());
    let world = World::of(&dir, builder).await;
    assert_eq!(world.post("fire", call("a/b", 1, "hello")).await.0, 202);
    let other = settled(&world, "fire", &["completed", "running"]).await[1]["primarySession"].clone();
    assert!(other.as_str().unwrap().starts_with("stage:/"));
    assert_eq!(world.kept("automation-sessions").await[0]["session"], other);
}

#[tokio::test]
async fn an_endpoint_of_a_bot_has_no_order() {
    let dir = folder();
    endpoint(dir.path(), "talk", "bot: bot://echo\nreply: sync\norderBy: thread");
    endpoint(dir.path(), "both", "automation: true\norderBy: a\nsession: { by: b }");
    let world = World::start(&dir).await;
    for (id, why) in [
        ("talk", "orderBy requires automation: true; a bot's calls have one chat and an order already"),
        ("both", "orderBy must be b too, or be left out: the calls that share a session run in that order"),
    ] {
        assert_eq!(world.say(id, "t", "hello").await.0, 404);
        world.host.log.wait_for(&format!("endpoint webhooks/{id}: {why}; a call to it answers 404")).await;
    }
}
