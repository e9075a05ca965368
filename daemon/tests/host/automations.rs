//! Automations of a real daemon: files edited by hand while it runs, and what a `kill -9` leaves.

use crate::support::{Client, Folder, runs_of};
use serde_json::{Value, json};

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
    let deadline = std::time::Instant::now() + crate::support::LIMIT;
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

/// Three calls of one value, of which two wait; then a kill, and a file that cannot be read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_wait_survive_a_start_with_a_broken_automation_and_run_once_it_is_repaired() {
    let folder = Folder::with_webhook("{{event.say}} {{event.n}}");
    folder.write("webhooks/in.md", "---\nid: in\nautomation: true\nsecret: host:in\norderBy: of.repo\n---\n");
    let daemon = folder.start();
    for (n, say) in [(1, "/hang"), (2, "hello"), (3, "hello")] {
        let body = json!({ "of": { "repo": "a" }, "n": n, "say": say }).to_string();
        assert_eq!(daemon.post("/plugins/webhook/in", Some("right"), &body).await.0, 202);
    }
    // A kill before the first run begins would leave three that wait.
    let mut client = daemon.initialized("finder").await;
    let is_running = |run: &Value| run["lifecycle"]["status"] == "running";
    entry(&mut client, "note", |entry| entry["runs"].as_array().unwrap().iter().any(is_running)).await;
    daemon.kill();
    let whole = folder.read("automations/note.md");
    folder.write("automations/note.md", &whole.replace("triggers:", "triggers: [unclosed"));
    let daemon = folder.start();
    let line = folder.wait_for_log("2 runs of automation note wait because it cannot be read");
    assert!(line.contains("automations/note.md"), "{line}");
    // They survive any number of such starts.
    daemon.kill();
    let daemon = folder.start();
    let mut client = daemon.initialized("finder").await;
    folder.write("automations/note.md", &whole);
    let entry = entry(&mut client, "note", |entry| {
        let runs = entry["runs"].as_array().unwrap();
        runs.len() == 3 && runs.iter().all(|run| run["lifecycle"].get("completedAt").is_some())
    })
    .await;
    let mut runs = entry["runs"].as_array().unwrap().clone();
    runs.sort_by_key(|run| run["origin"]["event"]["n"].as_u64());
    let statuses: Vec<_> = runs.iter().map(|run| run["lifecycle"]["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["failed", "completed", "completed"]);
    let (ended, began) = (&runs[1]["lifecycle"]["completedAt"], &runs[2]["lifecycle"]["startedAt"]);
    assert!(ended.as_str().unwrap() <= began.as_str().unwrap(), "in their order: {runs:#?}");
}

/// Calls of two values, each with one that goes on and two that wait; then a kill.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_wait_in_an_order_are_run_in_it_and_in_their_session_after_a_kill() {
    let folder = Folder::with_webhook("{{event.say}} {{event.n}}");
    let endpoint = "---\nid: in\nautomation: true\nsecret: host:in\nsession: { by: of.repo }\n---\n";
    folder.write("webhooks/in.md", endpoint);
    let daemon = folder.start();
    let post = async |daemon: &crate::support::Daemon, repo: &str, n: u64, say: &str| {
        let body = json!({ "of": { "repo": repo }, "n": n, "say": say }).to_string();
        assert_eq!(daemon.post("/plugins/webhook/in", Some("right"), &body).await.0, 202);
    };
    let of = |repo: &str, entry: &Value| -> Vec<Value> {
        let mut runs = entry["runs"].as_array().unwrap().clone();
        runs.retain(|run| run["origin"]["event"]["of"]["repo"] == repo);
        runs.sort_by_key(|run| run["origin"]["event"]["n"].as_u64());
        runs
    };
    let mut client = daemon.initialized("finder").await;
    // The session of a value is there before the kill.
    post(&daemon, "a", 0, "hello").await;
    entry(&mut client, "note", |entry| entry["runs"][0]["lifecycle"]["status"] == "completed").await;
    for (n, say) in [(1, "/hang"), (2, "/slow 20ms"), (3, "/slow 20ms")] {
        post(&daemon, "a", n, say).await;
        post(&daemon, "b", n, say).await;
    }
    // Both first runs are in their turns: a restart fails these, and would begin one that had not begun.
    let hangs =
        |entry: &Value, repo| of(repo, entry).iter().any(|run| run["lifecycle"]["status"] == "running");
    entry(&mut client, "note", |entry| hangs(entry, "a") && hangs(entry, "b")).await;
    daemon.kill();

    let daemon = folder.start();
    let mut client = daemon.initialized("finder").await;
    post(&daemon, "a", 4, "/slow 20ms").await;
    let ended = |entry: &Value| {
        let all = ["a", "b"].iter().flat_map(|repo| of(repo, entry)).collect::<Vec<_>>();
        all.len() == 8 && all.iter().all(|run| run["lifecycle"].get("completedAt").is_some())
    };
    let entry = entry(&mut client, "note", ended).await;
    for (repo, runs, hung) in [("a", of("a", &entry), 1), ("b", of("b", &entry), 0)] {
        for (at, run) in runs.iter().enumerate() {
            let status = if at == hung { "failed" } else { "completed" };
            assert_eq!(run["lifecycle"]["status"], status, "{repo}: {runs:#?}");
        }
        for next in runs[hung..].windows(2) {
            let (ended, began) = (&next[0]["lifecycle"]["completedAt"], &next[1]["lifecycle"]["startedAt"]);
            assert!(ended.as_str().unwrap() <= began.as_str().unwrap(), "{repo}: {runs:#?}");
        }
    }
    let sessions =
        |repo| of(repo, &entry).iter().map(|run| run["primarySession"].clone()).collect::<Vec<_>>();
    let (a, b) = (sessions("a"), sessions("b"));
    assert!(a.iter().all(|session| *session == a[0]) && a[0].is_string(), "{a:?}");
    assert!(b[1..].iter().all(|session| *session == b[1]) && b[1] != a[0], "{b:?}");
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
