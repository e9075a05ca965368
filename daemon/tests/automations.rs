//! Automations of a real daemon: files edited by hand while it runs, and what a `kill -9` leaves.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use serde_json::{Value, json};
use support::{Client, Folder, runs_of};

const ALL: &str = "ahp-automations://";

fn echo() -> Folder {
    Folder::new(json!({ "plugins": [{ "name": "@ostler/echo" }, { "name": "@ostler/webhook" }] }))
}

fn scheduled(expression: &str) -> String {
    format!(
        "---\ntitle: Night\nsession: {{ provider: echo }}\ntriggers:\n  - id: night\n    kind: schedule\n    schedule: {{ \
         expression: {expression}, timeZone: Europe/Berlin }}\n---\nSweep.\n"
    )
}

/// The entry of an automation, once it is as it should be.
async fn entry(client: &mut Client, id: &str, is: impl Fn(&Value) -> bool) -> Value {
    let of = format!("ahp-automation:/{id}");
    let deadline = std::time::Instant::now() + support::LIMIT;
    loop {
        let catalogue = client.subscribe(ALL).await;
        let found =
            catalogue["entries"].as_array().unwrap().iter().find(|entry| entry["resource"] == json!(of));
        if let Some(found) = found.filter(|entry| is(entry)) {
            return found.clone();
        }
        assert!(std::time::Instant::now() < deadline, "{id} does not become so: {catalogue}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schedule_written_by_hand_is_planned_and_stays_planned_when_the_process_is_killed() {
    let folder = echo();
    let daemon = folder.start();
    let mut client = daemon.initialized("hand").await;
    client.subscribe(ALL).await;
    // The first of January, so that no test ever meets it.
    folder.write("automations/night.md", &scheduled("0 3 1 1 *"));
    let planned = entry(&mut client, "night", |_| true).await["nextRunAt"].clone();
    let next = planned.as_str().expect("it is planned");
    assert!(next.ends_with("-01-01T02:00:00.000Z"), "three in the morning in Berlin: {next}");
    folder.write("automations/night.md", &scheduled("30 4 1 1 *"));
    let moved = entry(&mut client, "night", |entry| entry["nextRunAt"] != planned).await["nextRunAt"].clone();
    assert!(moved.as_str().unwrap().ends_with("-01-01T03:30:00.000Z"), "{moved}");
    // One that does not read leaves what was there, and is told of.
    folder.write("automations/night.md", "---\ntitle: [\n---\n");
    folder.wait_for_log("night.md");
    assert_eq!(entry(&mut client, "night", |_| true).await["nextRunAt"], moved);
    folder.write("automations/night.md", &scheduled("0 0 L * *"));
    folder.wait_for_log(
        "automation night: its trigger night never fires: schedule.expression has a day of month",
    );
    entry(&mut client, "night", |entry| entry["nextRunAt"] == Value::Null).await;
    folder.write("automations/night.md", &scheduled("30 4 1 1 *"));
    entry(&mut client, "night", |entry| entry["nextRunAt"] == moved).await;
    daemon.kill();

    let daemon = folder.start();
    let mut client = daemon.initialized("hand").await;
    let entry = entry(&mut client, "night", |_| true).await;
    assert_eq!(entry["nextRunAt"], moved);
    assert_eq!(entry["runs"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_was_accepted_is_found_after_a_kill_whether_its_run_went_on_or_waited() {
    let folder = Folder::with_webhook("/hang");
    let one_at_a_time = folder.read("automations/note.md").replace("overlap: parallel", "overlap: queue");
    folder.write("automations/note.md", &one_at_a_time);
    let daemon = folder.start();
    for n in 0..4 {
        let (status, _) =
            daemon.post("/plugins/webhook/in", Some("right"), &json!({ "n": n }).to_string()).await;
        assert_eq!(status, 202);
    }
    daemon.kill();

    let daemon = folder.start();
    let mut client = daemon.initialized("finder").await;
    let runs = runs_of(&client.subscribe(ALL).await, "note");
    assert_eq!(runs.len(), 2, "one that went on, and one that waited: {runs:?}");
    assert_eq!(runs[1]["lifecycle"]["status"], "failed");
    assert_eq!(runs[1]["origin"]["event"]["n"], 0);
    assert_eq!(runs[0]["origin"]["event"]["n"], 1);
    assert_eq!(runs[0]["_meta"]["ostler.count"], 3, "every call is counted");
    assert_eq!(runs[0]["_meta"]["ostler.latest"]["n"], 3);
    let going =
        entry(&mut client, "note", |entry| entry["runs"][0]["lifecycle"]["status"] == "running").await;
    assert_eq!(going["runs"][0]["resource"], runs[0]["resource"], "the one that waited goes on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn automations_nobody_owns_are_called_unless_the_host_is_told_otherwise() {
    let folder = Folder::with_webhook("hello");
    for (arguments, runs) in [(vec!["--unowned-automations", "none"], 0), (vec![], 1)] {
        let daemon = folder.start_with(&arguments);
        let (status, _) = daemon.post("/plugins/webhook/in", Some("right"), "{}").await;
        assert_eq!(status, 202);
        let mut client = daemon.initialized("asker").await;
        assert_eq!(runs_of(&client.subscribe(ALL).await, "note").len(), runs, "{arguments:?}");
        daemon.kill();
    }
}
