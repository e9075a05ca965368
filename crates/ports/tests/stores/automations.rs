//! Automation files, from outside: what people write and change.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::lines::Lines;
use ostler_contract::points::{AutomationChange, AutomationStore, ChangeType, KeptAutomation};
use ostler_contract::protocol::wire::state::{
    AutomationDefinition, AutomationDefinitionPatch, AutomationRunState,
};
use ostler_contract::{HostFunction, Value, json};
use ostler_ports::conformance::{Heard, automations_conformance};
use ostler_ports::{FileAutomations, MemoryAutomations, RunRetention, StateDb, Watching};

/// As in the spec: *Webhook automation file shape*.
const WEBHOOK: &str = "\
---
title: Answer tickets
enabled: true
session:
  provider: echo
triggers:
  - id: call
    kind: event
    type: webhook
    title: A ticket came in
    events: [{ id: call }]
    config: { endpoint: tickets }
---

Read the ticket {{event.title}} and answer it.
";

struct Kept {
    folder: tempfile::TempDir,
    store: AutomationStore,
    lines: Lines,
}

impl Kept {
    /// With files that are there already.
    async fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::create_dir_all(folder.path().join("automations")).unwrap();
            fs::write(folder.path().join("automations").join(name), text).unwrap();
        }
        let lines = Lines::default();
        let db = StateDb::open(folder.path()).unwrap();
        let store = FileAutomations::open(folder.path(), db, lines.report()).await.unwrap();
        Self { folder, store: Arc::new(store).into_point(), lines }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("automations").join(name)
    }

    fn write(&self, name: &str, text: &str) {
        crate::edits::write(&self.path(name), text);
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    async fn get(&self, id: &str) -> Option<KeptAutomation> {
        self.store.get.unbounded((id.into(),)).await.unwrap()
    }

    async fn update(&self, id: &str, patch: Value) -> Result<KeptAutomation, String> {
        let patch: AutomationDefinitionPatch = serde_json::from_value(patch).unwrap();
        self.store.update.unbounded((id.into(), patch)).await.map_err(|thrown| thrown.message)
    }

    async fn watch(&self) -> Heard<AutomationChange> {
        let heard = Heard::default();
        self.store.watch.as_ref().unwrap().unbounded((heard.listener(),)).await.unwrap();
        heard
    }

    fn lines(&self) -> Vec<String> {
        self.lines.taken(&self.folder.path().display().to_string())
    }

    async fn line(&self) -> Vec<String> {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let lines = self.lines();
            if !lines.is_empty() {
                return lines;
            }
            assert!(Instant::now() < deadline, "nothing is reported");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

fn change(id: &str, how: ChangeType) -> AutomationChange {
    AutomationChange { id: id.into(), r#type: how }
}

#[tokio::test]
async fn files_do_what_a_store_does() {
    automations_conformance(Kept::new(&[]).await.store).await;
}

#[tokio::test]
async fn files_compared_do_what_a_store_does() {
    let folder = tempfile::tempdir().unwrap();
    let every = Watching::Every(Duration::from_millis(1));
    let db = StateDb::open(folder.path()).unwrap();
    let store = FileAutomations::watched(folder.path(), db, Lines::default().report(), every).await.unwrap();
    automations_conformance(Arc::new(store).into_point()).await;
}

#[tokio::test]
async fn memory_does_what_a_store_does() {
    let store = MemoryAutomations::new(Lines::default().report()).unwrap();
    automations_conformance(Arc::new(store).into_point()).await;
}

#[tokio::test]
async fn the_file_of_the_spec_reads() {
    let kept = Kept::new(&[("answer.md", WEBHOOK)]).await;
    let read = kept.get("answer").await.unwrap();
    let expected: AutomationDefinition = serde_json::from_value(json!({
        "title": "Answer tickets", "enabled": true, "session": { "provider": "echo" },
        "message": {
            "text": "Read the ticket {{event.title}} and answer it.", "origin": { "kind": "automation" },
        },
        "triggers": [{
            "id": "call", "kind": "event", "type": "webhook", "title": "A ticket came in",
            "events": [{ "id": "call", "title": "call" }], "config": { "endpoint": "tickets" },
        }],
    }))
    .unwrap();
    assert_eq!(read.definition, expected);
    assert_eq!(read.owner, None);
    let modified = fs::metadata(kept.path("answer.md")).unwrap().modified().unwrap();
    let modified = format!("{:.3}", jiff::Timestamp::try_from(modified).unwrap());
    assert_eq!(read.modified_at, modified);
    assert!(read.created_at <= modified);
    assert_eq!(kept.lines(), [""; 0]);
    assert_eq!(
        kept.store.place.as_deref(),
        Some(&*fs::canonicalize(kept.path("")).unwrap().to_string_lossy())
            .map(|place| place.trim_end_matches('/'))
    );
}

#[tokio::test]
async fn as_little_as_a_person_may_write() {
    let kept = Kept::new(&[
        ("least.md", "---\ntitle: Least\n---\n"),
        ("night.md", "---\ntitle: Night\nenabled: false\ntriggers:\n- { id: n, kind: schedule, schedule: { expression: 0 3 * * * } }\nowner: user:ada\ncreatedAt: 2026-01-01T00:00:00Z\n---\nSweep.\n"),
    ])
    .await;
    let least = kept.get("least").await.unwrap().definition;
    assert!(least.enabled && least.triggers.is_empty() && least.message.text.is_empty());
    let night = kept.get("night").await.unwrap();
    assert_eq!(
        (night.owner.as_deref(), night.created_at.as_str()),
        (Some("user:ada"), "2026-01-01T00:00:00Z")
    );
    let trigger = serde_json::to_value(&night.definition.triggers[0]).unwrap();
    assert_eq!(trigger["schedule"], json!({ "expression": "0 3 * * *", "timeZone": "UTC" }));
    assert_eq!(kept.lines(), [""; 0]);
}

#[tokio::test]
async fn what_is_wrong_is_said() {
    let wrong = |field: &str| format!("---\ntitle: T\n{field}\n---\n");
    let kept = Kept::new(&[
        ("a.md", &wrong("triggers: [{ id: t, kind: push }]")),
        ("b.md", &wrong("triggers: [{ id: t, kind: event, type: webhook }]")),
        ("c.md", &wrong("enabled: maybe")),
        ("d.md", "---\nenabled: true\n---\n"),
        ("e.md", &wrong("session: { model: opus }")),
        ("f.md", &wrong("triggers: [{ id: t, kind: schedule, schedule: { expression: x }, misfirePolicy: later }]")),
        ("g.md", &wrong("createdAt: yesterday")),
        ("h.md", &wrong("id: other")),
        ("i.md", &wrong("triggers: { id: t }")),
        ("j.md", &wrong("session: { provider: [echo] }")),
        ("k.md", &wrong("tilte: X\nsession: { provider: echo, dir: /x }\ntriggers: [{ id: t, kind: event, type: w, events: [{ id: e, name: E }], schedule: {} }]")),
        ("l.md", &wrong("triggers: [{ id: t, kind: event, type: w, events: [] }]")),
        ("m m.md", &wrong("")),
    ])
    .await;
    insta::assert_debug_snapshot!(kept.lines(), @r#"
    [
        "/automations/m m.md: the file name must be the automation's id: letters, digits, dashes and underscores, at most 80, starting with a letter or digit; ignored",
        "/automations/a.md: triggers[0].kind must be one of schedule, event; skipped until the file is fixed",
        "/automations/b.md: triggers[0].events must be a list; skipped until the file is fixed",
        "/automations/c.md: enabled must be true or false; skipped until the file is fixed",
        "/automations/d.md: title must be a non-empty string; skipped until the file is fixed",
        "/automations/e.md: session.model must be an object; skipped until the file is fixed",
        "/automations/f.md: triggers[0].misfirePolicy must be one of skip, runOnce; skipped until the file is fixed",
        "/automations/g.md: createdAt must be a timestamp, such as 2026-01-31T12:00:00Z; skipped until the file is fixed",
        "/automations/h.md: id other does not match the file name h; skipped until the file is fixed",
        "/automations/i.md: triggers must be a list; skipped until the file is fixed",
        "/automations/j.md: session.provider must be a non-empty string; skipped until the file is fixed",
        "/automations/k.md: tilte is not a field of an automation; ignored",
        "/automations/k.md: session.dir is not a field of an automation; ignored",
        "/automations/k.md: triggers[0].events[0].name is not a field of an automation; ignored",
        "/automations/k.md: triggers[0].schedule is not a field of an automation; ignored",
        "/automations/l.md: triggers[0].events must be a list with at least one event; skipped until the file is fixed",
    ]
    "#);
    let ids: Vec<_> = kept.store.list.unbounded(()).await.unwrap().into_iter().map(|kept| kept.id).collect();
    assert_eq!(ids, ["k"]);

    // Files are read again while they are young, and nothing is said of that.
    let heard = kept.watch().await;
    kept.write("z.md", "---\ntitle: Z\n---\n");
    assert_eq!(heard.next().await, change("z", ChangeType::Added));
    assert_eq!(kept.lines(), [""; 0]);
}

#[tokio::test]
async fn edits_while_the_host_runs() {
    let kept = Kept::new(&[]).await;
    let heard = kept.watch().await;
    kept.write("answer.md", WEBHOOK);
    assert_eq!(heard.next().await, change("answer", ChangeType::Added));
    kept.write("answer.md", &WEBHOOK.replace("enabled: true", "enabled: false"));
    assert_eq!(heard.next().await, change("answer", ChangeType::Updated));
    assert!(!kept.get("answer").await.unwrap().definition.enabled);

    // The old definition is kept while the file is broken, and nothing is written over it.
    let broken = WEBHOOK.replace("kind: event", "kind: evnt");
    kept.write("answer.md", &broken);
    assert_eq!(
        kept.line().await,
        [
            "/automations/answer.md: triggers[0].kind must be one of schedule, event; keeping the last valid version until the file is fixed"
        ]
    );
    assert!(!kept.get("answer").await.unwrap().definition.enabled);
    let refused = kept.update("answer", json!({ "enabled": true })).await.unwrap_err();
    assert!(refused.contains("triggers[0].kind must be one of schedule, event; fix the file"), "{refused}");
    assert_eq!(kept.read("answer.md"), broken);

    // Only what is changed from outside is told; a comment is no change.
    kept.write("answer.md", WEBHOOK);
    assert_eq!(heard.next().await, change("answer", ChangeType::Updated));
    kept.update("answer", json!({ "enabled": false })).await.unwrap();
    kept.write(
        "answer.md",
        &format!("{}\n", kept.read("answer.md").replace("title: Answer", "# mine\ntitle: Answer")),
    );
    kept.store.remove.unbounded(("answer".into(),)).await.unwrap();
    assert!(!kept.path("answer.md").exists());
    kept.write("last.md", "---\ntitle: Last\n---\n");
    assert_eq!(heard.next().await, change("last", ChangeType::Added));
    fs::remove_file(kept.path("last.md")).unwrap();
    assert_eq!(heard.next().await, change("last", ChangeType::Deleted));
    assert_eq!(heard.unheard(), []);
}

#[tokio::test]
async fn what_a_change_does_not_name_stays_as_it_was_written() {
    let kept =
        Kept::new(&[("answer.md", &WEBHOOK.replace("title: Answer", "team-note: keep me\ntitle: Answer"))])
            .await;
    let before = kept.get("answer").await.unwrap();
    let after = kept.update("answer", json!({ "enabled": false })).await.unwrap();
    assert_eq!(after.created_at, before.created_at);
    let text = kept.read("answer.md").replace(&before.created_at, "<then>");
    insta::assert_snapshot!(text, @r#"
    ---
    team-note: keep me
    title: Answer tickets
    enabled: false
    session:
      provider: echo
    triggers:
    - id: call
      kind: event
      type: webhook
      title: A ticket came in
      events:
      - id: call
      config:
        endpoint: tickets
    createdAt: "<then>"
    ---

    Read the ticket {{event.title}} and answer it.
    "#);
    // The same again is no write.
    let stamp = |path| fs::metadata(path).unwrap().modified().unwrap();
    let written = stamp(kept.path("answer.md"));
    kept.update("answer", json!({ "enabled": false })).await.unwrap();
    assert_eq!(stamp(kept.path("answer.md")), written);
    kept.update("answer", json!({ "message": { "text": "Say hello.", "origin": { "kind": "user" } } }))
        .await
        .unwrap();
    assert!(kept.read("answer.md").ends_with("---\nSay hello.\n"));
}

#[tokio::test]
async fn a_new_automation_is_a_file_for_people() {
    let kept = Kept::new(&[]).await;
    let definition: AutomationDefinition = serde_json::from_value(json!({
        "title": "Sweep", "enabled": true, "message": { "text": "Sweep the yard.", "origin": { "kind": "user" } },
        "session": { "provider": "echo", "workingDirectories": ["file:///yard"] },
        "triggers": [{ "kind": "schedule", "id": "night", "schedule": { "expression": "0 3 * * *", "timeZone": "UTC" } }],
    }))
    .unwrap();
    let made =
        kept.store.create.unbounded(("sweep".into(), definition, Some("user:ada".into()))).await.unwrap();
    insta::assert_snapshot!(kept.read("sweep.md").replace(&made.created_at, "<now>"), @r#"
    ---
    title: Sweep
    session:
      provider: echo
      workingDirectories:
      - file:///yard
    enabled: true
    triggers:
    - kind: schedule
      id: night
      schedule:
        expression: 0 3 * * *
        timeZone: UTC
    owner: user:ada
    createdAt: "<now>"
    ---
    Sweep the yard.
    "#);
    let reopened = FileAutomations::open(
        kept.folder.path(),
        StateDb::open(kept.folder.path()).unwrap(),
        Lines::default().report(),
    );
    let store = Arc::new(reopened.await.unwrap()).into_point();
    assert_eq!(store.get.unbounded(("sweep".into(),)).await.unwrap(), Some(made));
}

/// An ended run of `a` with a number, an end and a message of some length.
fn ended_run(number: usize, at: &str, length: usize) -> AutomationRunState {
    serde_json::from_value(json!({
        "resource": format!("ahp-automation-run:/{number}"), "automation": "ahp-automation:/a",
        "origin": { "kind": "manual" }, "sessions": [],
        "lifecycle": {
            "status": "failed", "createdAt": at, "startedAt": at, "completedAt": at,
            "error": { "errorType": "test", "message": "x".repeat(length) },
        },
    }))
    .unwrap()
}

#[tokio::test]
async fn ended_runs_are_retained_by_count_age_and_size_and_others_always() {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.000Z").to_string();
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("automations")).unwrap();
    fs::write(folder.path().join("automations/a.md"), "---\ntitle: A\n---\n").unwrap();
    let db = StateDb::open(folder.path()).unwrap();
    let open = async |retention: Option<RunRetention>| {
        let store =
            FileAutomations::open(folder.path(), db.clone(), Lines::default().report()).await.unwrap();
        let store = match retention {
            Some(retention) => store.retaining(retention),
            None => store,
        };
        Arc::new(store).into_point()
    };
    let numbers = async |store: &AutomationStore| {
        let (mut numbers, mut cursor) = (Vec::new(), None);
        loop {
            let page = store.runs.unbounded(("a".into(), cursor)).await.unwrap();
            numbers.extend(
                page.runs
                    .iter()
                    .map(|run| run.resource.rsplit_once('/').unwrap().1.parse::<usize>().unwrap()),
            );
            cursor = page.next_cursor;
            if cursor.is_none() {
                return numbers;
            }
        }
    };
    let settled = async |store: &AutomationStore, expected: &[usize]| {
        let deadline = Instant::now() + Duration::from_secs(20);
        while numbers(store).await != expected {
            assert!(Instant::now() < deadline, "{:?} is not {expected:?}", numbers(store).await);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let store = open(None).await;
    let running = json!({ "status": "running", "createdAt": now, "startedAt": now });
    let mut going = serde_json::to_value(ended_run(0, &now, 1)).unwrap();
    going["lifecycle"] = running;
    store.run.unbounded((serde_json::from_value(going).unwrap(),)).await.unwrap();
    for number in 1..=6 {
        let at = if number <= 2 { "2026-01-01T00:00:00.000Z" } else { &now };
        store.run.unbounded((ended_run(number, at, 10_000),)).await.unwrap();
    }
    assert_eq!(numbers(&store).await, [6, 5, 4, 3, 2, 1, 0]);

    // What is too much by new rules goes when a host starts with them, and what comes later when a run ends.
    let day = Duration::from_secs(24 * 60 * 60);
    let store = open(Some(RunRetention { age: Some(day), ..RunRetention::default() })).await;
    settled(&store, &[6, 5, 4, 3, 0]).await;
    store.run.unbounded((ended_run(7, "2026-01-01T00:00:00.000Z", 1),)).await.unwrap();
    assert_eq!(numbers(&store).await, [6, 5, 4, 3, 0]);
    let store = open(Some(RunRetention { bytes: Some(31_500), ..RunRetention::default() })).await;
    settled(&store, &[6, 5, 4, 0]).await;
    store.run.unbounded((ended_run(8, &now, 5_000),)).await.unwrap();
    assert_eq!(numbers(&store).await, [8, 6, 5, 0]);
    let store = open(Some(RunRetention { count: 1, ..RunRetention::default() })).await;
    settled(&store, &[8, 0]).await;
    let (tell, mut removed) = tokio::sync::mpsc::unbounded_channel();
    let on_removed = HostFunction::now(move |(runs,): (Vec<String>,)| {
        let _ = tell.send(runs);
        Ok(())
    });
    let watch = store.watch_removed_runs.as_ref().unwrap();
    let stop = watch.unbounded((on_removed,)).await.unwrap().unwrap();
    // The one that was going ends, and is older than the other.
    store.run.unbounded((ended_run(0, &now, 1),)).await.unwrap();
    assert_eq!(numbers(&store).await, [8]);
    // What the start with the new rules removed may still be reported.
    let mut reported = removed.recv().await.unwrap();
    if reported == ["ahp-automation-run:/5", "ahp-automation-run:/6"] {
        reported = removed.recv().await.unwrap();
    }
    assert_eq!(reported, ["ahp-automation-run:/0"]);
    store.run.unbounded((ended_run(9, &now, 1),)).await.unwrap();
    assert_eq!(removed.recv().await.unwrap(), ["ahp-automation-run:/8"]);
    stop.unbounded(()).await.unwrap();
    store.run.unbounded((ended_run(10, &now, 1),)).await.unwrap();
    drop((stop, store));
    assert_eq!(removed.recv().await, None, "nothing is reported to who has stopped");
}

#[tokio::test]
async fn runs_outlive_the_host_and_a_thousand_are_kept() {
    let kept = Kept::new(&[("a.md", "---\ntitle: A\n---\n")]).await;
    let run = |number: usize, status: &str| {
        let at = "2026-01-01T00:00:00Z";
        serde_json::from_value(json!({
            "resource": format!("ahp-automation-run:/{number}"), "automation": "ahp-automation:/a",
            "origin": { "kind": "manual" }, "sessions": [],
            "lifecycle": { "status": status, "createdAt": at, "startedAt": at, "completedAt": at },
        }))
        .unwrap()
    };
    kept.store.run.unbounded((run(0, "running"),)).await.unwrap();
    let kept_runs: Vec<_> =
        (1..=1100).map(|number| kept.store.run.unbounded((run(number, "completed"),))).collect();
    for kept in kept_runs {
        kept.await.unwrap();
    }
    let db = StateDb::open(kept.folder.path()).unwrap();
    let store = FileAutomations::open(kept.folder.path(), db, Lines::default().report()).await.unwrap();
    let store = Arc::new(store).into_point();
    let held = async |number: usize| {
        store.run_of.unbounded((format!("ahp-automation-run:/{number}"),)).await.unwrap().is_some()
    };
    assert!(held(0).await, "one that has not ended is never dropped");
    assert!(!held(100).await && held(101).await && held(1100).await);
    assert_eq!(store.unfinished.as_ref().unwrap().unbounded(()).await.unwrap(), [run(0, "running")]);

    // A new automation of that name begins with no runs.
    fs::remove_file(kept.path("a.md")).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while store.get.unbounded(("a".into(),)).await.unwrap().is_some() {
        assert!(Instant::now() < deadline, "the file's end is not noticed");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!(held(1100).await, "a person may put the file back");
    let definition = serde_json::from_value(json!({
        "title": "A", "enabled": true, "session": {}, "triggers": [],
        "message": { "text": "", "origin": { "kind": "automation" } },
    }));
    store.create.unbounded(("a".into(), definition.unwrap(), None)).await.unwrap();
    assert!(!held(1100).await);
}

/// Removed rows leave pages that later ones use, also those of the index of words.
#[tokio::test]
async fn the_state_database_is_as_large_as_the_runs_that_are_retained() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("automations")).unwrap();
    fs::write(folder.path().join("automations/a.md"), "---\ntitle: A\n---\n").unwrap();
    let db = StateDb::open(folder.path()).unwrap();
    let store = FileAutomations::open(folder.path(), db, Lines::default().report()).await.unwrap();
    let store =
        Arc::new(store.retaining(RunRetention { count: 100, ..RunRetention::default() })).into_point();
    let pages = || -> i64 {
        let db = rusqlite::Connection::open(folder.path().join("state.db")).unwrap();
        db.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap()
    };
    let mut sizes = Vec::new();
    for round in 0..4 {
        let runs = (0..500).map(|number| {
            let run = ended_run(round * 500 + number, "2026-01-01T00:00:00.000Z", 0);
            let mut run = serde_json::to_value(run).unwrap();
            // With words that no other run has.
            let message = format!("{} w{round}x{number} v{}", "oats ".repeat(200), number * 7919);
            run["lifecycle"]["error"]["message"] = message.into();
            let run = serde_json::from_value(run).unwrap();
            store.run.unbounded((run,))
        });
        for stored in runs.collect::<Vec<_>>() {
            stored.await.unwrap();
        }
        sizes.push(pages());
    }
    assert!(sizes[3] <= sizes[0] + sizes[0] / 4, "in pages, after every 500 runs: {sizes:?}");
}
