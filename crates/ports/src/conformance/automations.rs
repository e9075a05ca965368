use ostler_contract::points::{AutomationProgress, AutomationStore, RunPage, ScheduleProgress};
use ostler_contract::protocol::error::code;
use ostler_contract::protocol::wire::state::{
    AutomationDefinition, AutomationDefinitionPatch, AutomationRunState, MessageKind,
};
use ostler_contract::{Thrown, Value, json};
use serde::de::DeserializeOwned;

/// Tests an automation store, which is empty at the start. Tests optional members if it has them.
pub async fn automations_conformance(store: AutomationStore) {
    keeps_definitions(&store).await;
    changes_what_is_named(&store).await;
    refuses(&store).await;
    keeps_runs(&store).await;
    keeps_progress(&store).await;
    assert_eq!(store.triggers.unbounded(()).await, Ok(vec![]));
}

fn wire<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn definition() -> AutomationDefinition {
    wire(json!({
        "title": "Answer tickets", "enabled": true,
        "message": {
            "text": "Read {{event.title}}.\n\nThen answer:\n---\nyes",
            "origin": { "kind": "automation" }, "model": { "id": "m" }, "_meta": { "k": [1.5, null] },
        },
        "session": {
            "provider": "echo", "model": { "id": "m", "config": { "effort": "high", "n": 1, "none": null } },
            "workingDirectories": ["file:///stable"], "config": { "isolation": "folder", "none": null },
        },
        "triggers": [
            {
                "kind": "event", "id": "call", "type": "webhook", "title": "A call", "description": "From outside",
                "events": [{ "id": "call", "title": "Call" }, { "id": "other", "title": "Other", "description": "x" }],
                "config": { "endpoint": "tickets", "n": 1, "none": null },
            },
            {
                "kind": "schedule", "id": "night", "misfirePolicy": "skip",
                "schedule": { "expression": "0 3 * * MON-FRI", "timeZone": "Europe/Berlin" },
            },
        ],
        "disableConditions": [{ "kind": "afterRuns", "max": 3 }, { "kind": "afterDate", "date": "2027-01-01T00:00:00Z" }],
        "_meta": { "ostler": { "overlap": "skip" } },
    }))
}

fn simple(title: &str) -> AutomationDefinition {
    wire(json!({
        "title": title, "enabled": false, "message": { "text": "", "origin": { "kind": "automation" } }, "session": {},
        "triggers": [],
    }))
}

fn code_of<T: std::fmt::Debug>(answer: Result<T, Thrown>) -> i32 {
    answer.unwrap_err().into_rpc().code
}

async fn keeps_definitions(store: &AutomationStore) {
    assert_eq!(store.list.unbounded(()).await, Ok(vec![]));
    assert_eq!(store.get.unbounded(("a".into(),)).await, Ok(None));
    assert_eq!(store.remove.unbounded(("a".into(),)).await, Ok(false));

    let owner = Some("user:ada".to_owned());
    let made = store.create.unbounded(("a".into(), definition(), owner.clone())).await.unwrap();
    assert_eq!((&made.id, &made.definition, &made.owner), (&"a".to_owned(), &definition(), &owner));
    for at in [&made.created_at, &made.modified_at] {
        assert!(at.parse::<jiff::Timestamp>().is_ok(), "{at} is a time");
    }
    assert_eq!(store.get.unbounded(("a".into(),)).await, Ok(Some(made.clone())));

    let uuid = "6f1c0a6e-0d1f-4c36-8f5b-6a3b1f7f2a11";
    let second = store.create.unbounded((uuid.into(), simple("Second"), None)).await.unwrap();
    assert_eq!((&second.definition, &second.owner), (&simple("Second"), &None));
    let mut all = store.list.unbounded(()).await.unwrap();
    all.sort_by(|one, other| other.id.cmp(&one.id));
    assert_eq!(all, [made, second]);

    assert_eq!(
        code_of(store.create.unbounded(("a".into(), simple("Again"), None)).await),
        code::ALREADY_EXISTS
    );
    assert_eq!(store.get.unbounded(("a".into(),)).await.unwrap().unwrap().definition, definition());
    assert_eq!(store.remove.unbounded((uuid.into(),)).await, Ok(true));
    assert_eq!(store.remove.unbounded((uuid.into(),)).await, Ok(false));
    assert_eq!(store.get.unbounded((uuid.into(),)).await, Ok(None));
}

async fn changes_what_is_named(store: &AutomationStore) {
    let before = store.get.unbounded(("a".into(),)).await.unwrap().unwrap();
    let update = async |patch: Value| {
        let changes: AutomationDefinitionPatch = wire(patch);
        let kept = store.update.unbounded(("a".into(), changes)).await.unwrap();
        assert_eq!(store.get.unbounded(("a".into(),)).await, Ok(Some(kept.clone())));
        assert_eq!((&kept.owner, &kept.created_at), (&before.owner, &before.created_at), "these never move");
        kept
    };
    let mut expected = definition();

    assert_eq!(update(json!({})).await, before, "a change of nothing is none");
    expected.title = "Answer them".into();
    assert_eq!(update(json!({ "title": "Answer them" })).await.definition, expected);
    expected.enabled = false;
    assert_eq!(update(json!({ "enabled": false })).await.definition, expected);
    expected.message = wire(json!({ "text": "Say no.", "origin": { "kind": "automation" } }));
    let said = json!({ "message": { "text": "Say no.", "origin": { "kind": "user" } } });
    let kept = update(said).await;
    assert_eq!(kept.definition.message.origin.kind, MessageKind::Automation);
    assert_eq!(kept.definition, expected);
    expected.session = wire(json!({ "provider": "other" }));
    assert_eq!(update(json!({ "session": { "provider": "other" } })).await.definition, expected);
    expected.triggers.truncate(1);
    assert_eq!(update(json!({ "triggers": expected.triggers })).await.definition, expected);
    expected.disable_conditions = None;
    let kept = update(json!({ "disableConditions": [] })).await;
    assert_eq!(
        kept.definition.disable_conditions.unwrap_or_default(),
        [],
        "an empty list removes all of them"
    );
    expected.triggers.clear();
    expected.meta = wire(json!({ "ostler": { "session": "pinned" } }));
    assert_eq!(
        update(json!({ "triggers": [], "_meta": { "ostler": { "session": "pinned" } } })).await.definition,
        expected
    );

    let missing = store.update.unbounded(("nobody".into(), AutomationDefinitionPatch::default())).await;
    assert_eq!(code_of(missing), code::SESSION_NOT_FOUND);
}

async fn refuses(store: &AutomationStore) {
    for id in ["", "../a", "a/b", "a.b", "-a", &"a".repeat(100)] {
        assert_eq!(
            code_of(store.create.unbounded((id.into(), simple("x"), None)).await),
            code::INVALID_PARAMS,
            "{id}"
        );
        assert_eq!(store.get.unbounded((id.into(),)).await, Ok(None));
        assert_eq!(store.remove.unbounded((id.into(),)).await, Ok(false));
    }
    let event = json!({ "kind": "event", "id": "e", "type": "webhook", "title": "t", "events": [{ "id": "call", "title": "c" }] });
    let mut without = event.clone();
    without["events"] = json!([]);
    let before = store.get.unbounded(("a".into(),)).await.unwrap();
    for (changes, why) in [
        (json!({ "title": " " }), "title must be a non-empty string"),
        (json!({ "triggers": [event.clone(), event] }), "triggers[1].id must be unique"),
        (json!({ "triggers": [without] }), "triggers[0].events must be a list with at least one event"),
        (
            json!({ "disableConditions": [{ "kind": "afterRuns", "max": 0 }] }),
            "disableConditions[0].max must be a whole number of 1 or more",
        ),
        (
            json!({ "disableConditions": [{ "kind": "afterRuns", "max": 1 }, { "kind": "afterRuns", "max": 2 }] }),
            "disableConditions[1].kind must be unique; afterRuns is named twice",
        ),
        (
            json!({ "disableConditions": [{ "kind": "afterDate", "date": "soon" }] }),
            "disableConditions[0].date must be a timestamp",
        ),
    ] {
        let refused = store.update.unbounded(("a".into(), wire(changes))).await.unwrap_err();
        assert!(refused.message.contains(why), "{refused}, and not {why}");
    }
    assert_eq!(store.get.unbounded(("a".into(),)).await, Ok(before), "what is refused changes nothing");
}

fn run(automation: &str, number: usize, status: &str) -> AutomationRunState {
    let at = format!("2026-01-01T00:00:{:02}.000Z", number % 60);
    let lifecycle = match status {
        "pending" => json!({ "status": status, "createdAt": at }),
        "running" => json!({ "status": status, "createdAt": at, "startedAt": at }),
        "failed" => {
            json!({ "status": status, "createdAt": at, "completedAt": at, "error": { "errorType": "x", "message": "no" } })
        }
        _ => json!({ "status": status, "createdAt": at, "startedAt": at, "completedAt": at }),
    };
    wire(json!({
        "resource": format!("ahp-automation-run:/{automation}-{number}"), "automation": format!("ahp-automation:/{automation}"),
        "origin": { "kind": "trigger", "triggerId": "call", "event": { "endpoint": "tickets", "n": number } },
        "lifecycle": lifecycle, "sessions": ["echo:/s"], "primarySession": "echo:/s", "_meta": { "ostler.owner": "user:ada" },
    }))
}

async fn keeps_runs(store: &AutomationStore) {
    let page = async |id: &str, cursor: Option<String>| store.runs.unbounded((id.into(), cursor)).await;
    let numbers = |page: &RunPage| -> Vec<usize> {
        let number = |run: &AutomationRunState| run.resource.rsplit('-').next().unwrap().parse().unwrap();
        page.runs.iter().map(number).collect()
    };
    assert_eq!(page("a", None).await, Ok(RunPage::default()));
    assert_eq!(store.run_of.unbounded(("ahp-automation-run:/a-1".into(),)).await, Ok(None));
    store.create.unbounded(("b".into(), simple("B"), None)).await.unwrap();

    for number in 0..45 {
        store.run.unbounded((run("a", number, "pending"),)).await.unwrap();
        store.run.unbounded((run("b", number, "pending"),)).await.unwrap();
    }
    assert_eq!(
        store.run_of.unbounded(("ahp-automation-run:/a-7".into(),)).await,
        Ok(Some(run("a", 7, "pending")))
    );
    for (number, status) in [(7, "running"), (8, "failed"), (9, "cancelled")] {
        store.run.unbounded((run("a", number, status),)).await.unwrap();
        let uri = format!("ahp-automation-run:/a-{number}");
        assert_eq!(store.run_of.unbounded((uri,)).await, Ok(Some(run("a", number, status))), "{status}");
    }

    let first = page("a", None).await.unwrap();
    assert_eq!(numbers(&first), (25..45).rev().collect::<Vec<_>>(), "a page is 20, newest first");
    store.run.unbounded((run("a", 45, "pending"),)).await.unwrap();
    let second = page("a", first.next_cursor.clone()).await.unwrap();
    assert_eq!(numbers(&second), (5..25).rev().collect::<Vec<_>>(), "a new run moves no page");
    assert_eq!(second.runs[17], run("a", 7, "running"), "a run keeps its place");
    let third = page("a", second.next_cursor).await.unwrap();
    assert_eq!((numbers(&third), &third.next_cursor), ((0..5).rev().collect(), &None));

    for cursor in ["nonsense", "", "AAAAAAAAAAE", &first.next_cursor.unwrap()] {
        let refused = page("b", Some(cursor.into())).await.unwrap_err().into_rpc();
        assert_eq!(
            (refused.code, refused.message),
            (code::INVALID_PARAMS, format!("Unrecognised cursor {cursor}"))
        );
    }

    if let Some(unfinished) = &store.unfinished {
        let left = unfinished.unbounded(()).await.unwrap();
        assert_eq!(left.len(), 46 - 2 + 45);
        for number in 0..45 {
            store.run.unbounded((run("b", number, "completed"),)).await.unwrap();
        }
        let left = unfinished.unbounded(()).await.unwrap();
        assert!(
            left.len() == 44
                && left.contains(&run("a", 7, "running"))
                && !left.contains(&run("a", 8, "failed"))
        );
    }
    assert_eq!(store.remove.unbounded(("b".into(),)).await, Ok(true));
    assert_eq!(page("b", None).await, Ok(RunPage::default()), "an automation's runs go with it");
    assert_eq!(store.run_of.unbounded(("ahp-automation-run:/b-1".into(),)).await, Ok(None));
    assert_eq!(page("a", None).await.unwrap().runs.len(), 20);
}

async fn keeps_progress(store: &AutomationStore) {
    let (Some(progress), Some(keep)) = (&store.progress, &store.keep_progress) else { return };
    let come = |next: &str, run_count| AutomationProgress {
        schedules: vec![ScheduleProgress {
            trigger: "night".into(),
            expression: "0 3 * * *".into(),
            time_zone: "Europe/Berlin".into(),
            next: next.into(),
        }],
        run_count,
    };
    assert_eq!(progress.unbounded(("timed".into(),)).await, Ok(None));
    for come in [come("2026-01-01T02:00:00.000Z", None), come("2026-01-02T02:00:00.000Z", Some(3))] {
        keep.unbounded(("timed".into(), come.clone())).await.unwrap();
        assert_eq!(progress.unbounded(("timed".into(),)).await, Ok(Some(come)));
    }
    store.create.unbounded(("timed".into(), simple("Timed"), None)).await.unwrap();
    assert_eq!(progress.unbounded(("timed".into(),)).await, Ok(None), "a new automation has come nowhere");
    keep.unbounded(("timed".into(), come("2026-01-01T02:00:00.000Z", None))).await.unwrap();
    assert_eq!(store.remove.unbounded(("timed".into(),)).await, Ok(true));
    assert_eq!(progress.unbounded(("timed".into(),)).await, Ok(None), "it goes with its automation");
}
