//! Runs that are ordered by a field of their events, and those that share a session for each value of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{Kept, Yard, on_build, pass, settle, statuses};
use ostler_contract::host::{EventData, Firing, Routing};
use ostler_contract::points::{Policies, RecordStore};
use ostler_contract::{Call, JsonObject, Value, json};
use ostler_engine::users::{People, UsersFile};
use ostler_ports::memory_records;
use ostler_testkit::{Builder, Stage};
use tokio::sync::watch;
use tokio::time::Instant;

fn fields(data: Value) -> JsonObject {
    data.as_object().cloned().unwrap()
}

fn routing(session: bool) -> Option<Routing> {
    Some(Routing { by: "repo.name".to_owned(), session })
}

/// Fires the build of a repository; answers what came of it.
async fn fire(yard: &Yard, repo: &str, n: u64, session: bool) -> Firing {
    let data = EventData::Fields(fields(json!({ "repo": { "name": repo }, "n": n })).into());
    fire_data(yard, data, session).await
}

async fn fire_data(yard: &Yard, data: EventData, session: bool) -> Firing {
    let builds = yard.host.plugin("builds");
    let firing = builds
        .fire_event("build".into(), "done".into(), data, routing(session), Default::default())
        .await
        .unwrap();
    let firing = firing.firing().unwrap();
    settle().await;
    firing
}

/// What backends were told, without what the host adds.
fn said(yard: &Yard) -> Vec<String> {
    let begun = yard.begun().into_iter();
    begun.map(|(_, text)| text.split(',').next().unwrap().trim_start_matches("Build ").to_owned()).collect()
}

fn with_records(records: &RecordStore) -> impl FnOnce(Builder) -> Builder {
    let records = records.clone();
    |builder| builder.records(records)
}

async fn values(records: &RecordStore) -> Vec<JsonObject> {
    let name = "automation-sessions".to_owned();
    let opened = records.collection.unbounded((name, Default::default())).await.unwrap();
    opened.list.unbounded(()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn runs_of_a_value_follow_each_other_and_those_of_others_run_beside_them() {
    let kept = Kept::default();
    kept.put("a", on_build(json!({ "overlap": "skip" })));
    let yard = Yard::new(&kept).await;
    for (repo, n) in [("x", 1), ("x", 2), ("y", 3), ("x", 4), ("y", 5)] {
        let Firing::Started { runs, .. } = fire(&yard, repo, n, false).await else {
            panic!("it was refused")
        };
        assert_eq!(runs.len(), 1, "each event has its run");
    }
    assert_eq!(said(&yard), ["1", "3"]);
    assert_eq!(statuses(&kept.runs_of("a")), ["running", "pending", "running", "pending", "pending"]);
    assert_eq!(kept.runs_of("a")[0]["_meta"]["ostler.orderBy"], "repo.name");
    yard.end(0, 0).await;
    assert_eq!(said(&yard), ["1", "3", "2"]);
    yard.end(2, 2).await;
    yard.end(1, 1).await;
    assert_eq!(said(&yard), ["1", "3", "2", "4", "5"]);
    assert_eq!(yard.stage.started(), 5, "a session each");
    assert!(
        yard.begun().iter().all(|(_, text)| text.contains(", 1 so far.")),
        "none is counted into another"
    );

    // One without the field is as if there was no order.
    for data in [json!({ "n": 6 }), json!({ "n": 7, "repo": { "name": ["x"] } })] {
        fire_data(&yard, EventData::Fields(fields(data).into()), false).await;
    }
    assert_eq!(said(&yard)[5..], ["6"], "the second one is skipped");
}

#[tokio::test(start_paused = true)]
async fn a_field_of_a_long_text_orders_too() {
    let kept = Kept::default();
    kept.put("a", on_build(json!({})));
    let yard = Yard::new(&kept).await;
    // Short values are read anyway, as far as there is room.
    let filler: Vec<Value> = (0..3000).map(|at| json!({ "at": at, "text": "x".repeat(50) })).collect();
    for (n, name) in [(1, "x"), (2, "x"), (3, "y")] {
        let name = name.repeat(5000);
        let text = json!({ "filler": filler, "n": n, "repo": { "more": "m".repeat(5000), "name": name } });
        let data = EventData::Text { text: text.to_string().into(), over: fields(json!({ "over": 1 })) };
        let started = tokio::spawn({
            let builds = yard.host.plugin("builds").clone();
            async move {
                builds
                    .fire_event("build".into(), "done".into(), data, routing(false), Default::default())
                    .await
            }
        });
        assert!(
            matches!(started.await.unwrap().unwrap().firing(), Some(Firing::Started { runs, .. }) if runs.len() == 1)
        );
        settle().await;
    }
    assert_eq!(said(&yard), ["1", "3"]);
    let builds = yard.host.plugin("builds");
    let data = EventData::Text { text: "[]".into(), over: JsonObject::new() };
    let refused = builds
        .fire_event("build".into(), "done".into(), data, routing(false), Default::default())
        .await
        .unwrap_err();
    assert!(refused.rpc.is_some(), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_long_text_is_read_while_the_run_of_another_one_is_stored() {
    let kept = Kept::default();
    kept.put("a", on_build(json!({ "overlap": "parallel" })));
    let yard = Yard::new(&kept).await;
    let fire_text = |n: u64| {
        let builds = yard.host.plugin("builds").clone();
        let data = EventData::Text { text: json!({ "n": n }).to_string().into(), over: JsonObject::new() };
        async move { builds.fire_event("build".into(), "done".into(), data, None, Default::default()).await }
    };
    let (stored, late) = tokio::sync::oneshot::channel();
    *kept.late.lock().unwrap() = Some(late);
    let first = tokio::spawn(fire_text(1));
    while kept.late.lock().unwrap().is_some() {
        tokio::task::yield_now().await;
    }
    let before = Instant::now();
    assert!(
        matches!(fire_text(2).await.unwrap().firing(), Some(Firing::Started { runs, .. }) if runs.len() == 1)
    );
    assert!(before.elapsed() < Duration::from_secs(1), "it waited for the store's timeout");
    assert!(!first.is_finished());
    stored.send(()).unwrap();
    assert!(first.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn what_waits_survives_a_kill_in_its_order() {
    let kept = Kept::default();
    kept.put("a", on_build(json!({})));
    let yard = Yard::new(&kept).await;
    for (repo, n) in [("x", 1), ("x", 2), ("y", 3), ("x", 4), ("y", 5), ("x", 6)] {
        fire(&yard, repo, n, false).await;
    }
    drop(yard);
    // A store need not answer them in order.
    kept.runs.lock().unwrap().reverse();
    let yard = Yard::new(&kept).await;
    let mut runs = kept.runs_of("a");
    runs.sort_by_key(|run| run["origin"]["event"]["n"].as_u64());
    assert_eq!(statuses(&runs), ["failed", "running", "failed", "pending", "running", "pending"]);
    assert_eq!(said(&yard), ["2", "5"]);
    fire(&yard, "x", 7, false).await;
    let mut ended = 0;
    while yard.begun().len() > ended {
        yard.end(ended, ended).await;
        ended += 1;
    }
    assert_eq!(said(&yard), ["2", "5", "4", "6", "7"], "and before what is accepted later");
}

/// A store with one run of `x` that went on at a kill, and two that waited.
async fn killed() -> Kept {
    let kept = Kept::default();
    kept.put("a", on_build(json!({})));
    let yard = Yard::new(&kept).await;
    for n in 1..4 {
        fire(&yard, "x", n, false).await;
    }
    assert_eq!(statuses(&kept.runs_of("a")), ["running", "pending", "pending"]);
    kept
}

#[tokio::test(start_paused = true)]
async fn runs_wait_for_an_automation_that_cannot_be_read_after_a_kill() {
    let kept = killed().await;
    kept.unreadable.lock().unwrap().insert("a".to_owned());
    let mut yard = Yard::new(&kept).await;
    pass(300).await;
    assert_eq!(statuses(&kept.runs_of("a")), ["failed", "pending", "pending"]);
    let line = "2 runs of automation a wait because it cannot be read: line 3 is wrong; fix it to run them, or remove it \
                to cancel them";
    let lines = yard.host.log.all();
    assert_eq!(lines.iter().filter(|said| *said == line).count(), 1, "{lines:?}");

    kept.unreadable.lock().unwrap().clear();
    pass(20).await;
    assert_eq!(said(&yard), ["2"]);
    let listed = yard.entry("a").await["runs"].as_array().unwrap().clone();
    assert_eq!(statuses(&listed), ["pending", "running", "failed"], "its runs are listed again");
    yard.end(0, 0).await;
    assert_eq!(said(&yard), ["2", "3"]);
}

#[tokio::test(start_paused = true)]
async fn runs_of_an_automation_that_was_removed_before_the_start_are_cancelled() {
    let kept = killed().await;
    kept.definitions.lock().unwrap().clear();
    let yard = Yard::new(&kept).await;
    assert_eq!(statuses(&kept.runs_of("a")), ["failed", "cancelled", "cancelled"]);
    drop(yard);

    let kept = killed().await;
    kept.unreadable.lock().unwrap().insert("a".to_owned());
    let _yard = Yard::new(&kept).await;
    kept.unreadable.lock().unwrap().clear();
    kept.definitions.lock().unwrap().clear();
    pass(20).await;
    assert_eq!(statuses(&kept.runs_of("a")), ["failed", "cancelled", "cancelled"], "removed, not repaired");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_resumed_before_the_store_can_list_its_automations() {
    for fails in [|kept: &Kept| kept.unlisted.clone(), |kept: &Kept| kept.unfinished_fails.clone()] {
        let kept = killed().await;
        fails(&kept).store(true, Ordering::SeqCst);
        let yard = Yard::new(&kept).await;
        pass(300).await;
        assert_eq!(statuses(&kept.runs_of("a")), ["running", "pending", "pending"]);
        fails(&kept).store(false, Ordering::SeqCst);
        pass(20).await;
        assert_eq!(statuses(&kept.runs_of("a")), ["failed", "running", "pending"]);
        yard.end(0, 0).await;
        assert_eq!(said(&yard), ["2", "3"]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_is_refused_while_the_store_cannot_list_its_automations() {
    let kept = killed().await;
    kept.unlisted.store(true, Ordering::SeqCst);
    let yard = Yard::new(&kept).await;
    let data = EventData::Fields(fields(json!({ "repo": { "name": "x" }, "n": 4 })).into());
    let builds = yard.host.plugin("builds");
    let refused = builds
        .fire_event("build".into(), "done".into(), data, routing(false), Default::default())
        .await
        .unwrap_err();
    assert_eq!(refused.message, "the automations could not be read yet; send the event again");
}

#[tokio::test(start_paused = true)]
async fn a_run_accepted_before_unfinished_runs_could_be_read_is_not_resumed() {
    let kept = killed().await;
    kept.unfinished_fails.store(true, Ordering::SeqCst);
    let yard = Yard::new(&kept).await;
    fire(&yard, "y", 4, false).await;
    kept.unfinished_fails.store(false, Ordering::SeqCst);
    pass(20).await;
    assert_eq!(said(&yard), ["4", "2"]);
    assert_eq!(statuses(&kept.runs_of("a")), ["failed", "running", "pending", "running"]);
}

#[tokio::test(start_paused = true)]
async fn switching_it_off_cancels_what_waits() {
    let kept = Kept::default();
    kept.put("a", on_build(json!({})));
    let mut yard = Yard::new(&kept).await;
    for (repo, n) in [("x", 1), ("x", 2), ("x", 3)] {
        fire(&yard, repo, n, false).await;
    }
    assert_eq!(yard.update("a", json!({ "enabled": false })).await, None);
    yard.end(0, 0).await;
    assert_eq!(statuses(&kept.runs_of("a")), ["completed", "cancelled", "cancelled"]);
    let disabled = "automation a: it is disabled; enable it with: ostler automation enable a";
    assert_eq!(
        fire(&yard, "x", 4, false).await,
        Firing::Started { runs: vec![], unstarted: vec![disabled.to_owned()] }
    );
}

#[tokio::test(start_paused = true)]
async fn an_event_that_finds_no_room_is_refused_whole() {
    let kept = Kept::default();
    kept.put("a", on_build(json!({ "hourlyCap": 5000 })));
    let yard = Yard::new(&kept).await;
    for n in 0..=1000 {
        let data = EventData::Fields(fields(json!({ "repo": { "name": "x" }, "n": n })).into());
        let builds = yard.host.plugin("builds");
        let firing = builds
            .fire_event("build".into(), "done".into(), data, routing(false), Default::default())
            .await
            .unwrap();
        assert!(matches!(firing.firing(), Some(Firing::Started { runs, .. }) if runs.len() == 1));
    }
    kept.put("b", on_build(json!({ "hourlyCap": 5000 })));
    let definition = kept.definitions.lock().unwrap()["b"].definition.clone();
    let create = json!({ "type": "automation/createRequested", "resource": "ahp-automation:/b", "definition": definition });
    yard.client.dispatch("ahp-automations://", 1, create).await;
    settle().await;
    assert_eq!(fire(&yard, "x", 1001, false).await, Firing::Full);
    assert_eq!(kept.runs_of("a").len(), 1001, "nothing is stored for it");
    assert_eq!(kept.runs_of("b").len(), 0, "nor for an automation that had room");
    assert!(matches!(fire(&yard, "y", 1002, false).await, Firing::Started { runs, .. } if runs.len() == 2));
    yard.end(0, 0).await;
    assert!(matches!(fire(&yard, "x", 1003, false).await, Firing::Started { runs, .. } if runs.len() == 2));
}

#[tokio::test(start_paused = true)]
async fn a_pinned_automation_takes_ordered_events_one_after_the_other() {
    let kept = Kept::default();
    kept.put("a", on_build(json!({ "session": "pinned" })));
    let yard = Yard::new(&kept).await;
    for (repo, n) in [("x", 1), ("y", 2), ("x", 3)] {
        fire(&yard, repo, n, true).await;
    }
    assert_eq!(said(&yard), ["1"]);
    yard.end(0, 0).await;
    yard.end(0, 1).await;
    assert_eq!((said(&yard), yard.stage.started()), (["1", "2", "3"].map(str::to_owned).to_vec(), 1));
}

#[tokio::test(start_paused = true)]
async fn runs_of_a_value_are_turns_of_one_session() {
    let (kept, records) = (Kept::default(), memory_records());
    kept.put_of("a", Some("root:inn"), on_build(json!({})));
    let mut yard = Yard::with(&kept, Stage::default(), with_records(&records)).await;
    for (repo, n) in [("x", 1), ("y", 2), ("x", 3)] {
        fire(&yard, repo, n, true).await;
    }
    assert_eq!(said(&yard), ["1", "2"]);
    yard.end(0, 0).await;
    assert_eq!((said(&yard)[2].as_str(), yard.stage.started()), ("3", 2));
    let runs = kept.runs_of("a");
    assert_eq!(statuses(&runs), ["completed", "running", "running"]);
    let session = runs[0]["primarySession"].as_str().unwrap().to_owned();
    assert_eq!((&runs[2]["primarySession"], &runs[2]["sessions"]), (&json!(session), &json!([session])));
    assert_ne!(runs[1]["primarySession"], json!(session));
    assert_eq!(runs[2]["_meta"]["ostler.sessionBy"], "repo.name");
    let entry = yard.host.host.sessions.by_uri(&session).unwrap();
    assert_eq!((entry.view().summary.title.as_str(), entry.owner.as_deref()), ("a: x", Some("root:inn")));
    yard.end(0, 2).await;
    assert_eq!(statuses(&kept.runs_of("a")), ["completed", "running", "completed"]);
    let record = values(&records).await.into_iter().find(|record| record["value"] == "x").unwrap();
    assert_eq!((&record["automation"], &record["field"]), (&json!("a"), &json!("repo.name")));
    assert_eq!(record["session"], json!(session));

    // Somebody talks in it: the run's message follows.
    let chat = ostler_protocol::uri::default_chat(&session);
    let turn = json!({ "type": "chat/turnStarted", "turnId": "mine", "message": { "text": "Hello" } });
    yard.client.dispatch(&chat, 9, turn).await;
    settle().await;
    fire(&yard, "x", 4, true).await;
    assert_eq!(yard.begun().len(), 4);
    yard.end(0, 3).await;
    assert_eq!(said(&yard)[4], "4");
    assert_eq!(statuses(&kept.runs_of("a"))[3..], ["running"]);
    yard.end(0, 4).await;
    assert_eq!(statuses(&kept.runs_of("a"))[3..], ["completed"]);

    // A session that is gone is made again, and its record goes with it.
    yard.client.request("disposeSession", json!({ "channel": session })).await.unwrap();
    settle().await;
    assert!(values(&records).await.iter().all(|record| record["value"] == "y"));
    fire(&yard, "x", 5, true).await;
    let other = kept.runs_of("a")[4]["primarySession"].clone();
    assert_ne!(other, json!(session));
    fire(&yard, "x", 6, true).await;
    yard.client.request("disposeSession", json!({ "channel": other })).await.unwrap();
    settle().await;
    let runs = kept.runs_of("a");
    assert_eq!(statuses(&runs)[4..], ["cancelled", "running"], "what waited runs in a new one");
    assert!(runs[5]["primarySession"] != other && runs[5]["primarySession"].is_string());
    assert!(values(&records).await.iter().any(|record| record["session"] == runs[5]["primarySession"]));

    let removed = json!({ "type": "automation/removed", "resource": "ahp-automation:/a" });
    yard.client.dispatch("ahp-automations://", 10, removed).await;
    settle().await;
    assert_eq!(values(&records).await, Vec::<JsonObject>::new());
}

#[tokio::test(start_paused = true)]
async fn a_run_ends_as_its_own_turn_did_once_no_chat_of_its_session_is_busy() {
    let (kept, records) = (Kept::default(), memory_records());
    kept.put("a", on_build(json!({})));
    let stage = Stage::default().with_plain_chats();
    let mut yard = Yard::with(&kept, stage, with_records(&records)).await;
    fire(&yard, "x", 1, true).await;
    let session = kept.runs_of("a")[0]["primarySession"].as_str().unwrap().to_owned();
    let second = "ahp-chat:/second";
    yard.client.request("createChat", json!({ "channel": session, "chat": second })).await.unwrap();
    let turn = json!({ "type": "chat/turnStarted", "turnId": "other", "message": { "text": "Hello" } });
    yard.client.dispatch(second, 9, turn).await;
    settle().await;
    assert_eq!(yard.begun().len(), 2);
    yard.end(0, 0).await;
    assert_eq!(statuses(&kept.runs_of("a")), ["running"], "its session is busy");
    let cancelled = json!({ "type": "chat/turnCancelled", "turnId": "other", "duration": 1 });
    yard.client.dispatch(second, 10, cancelled).await;
    settle().await;
    assert_eq!(statuses(&kept.runs_of("a")), ["completed"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_message_is_removed_from_the_queue_is_cancelled() {
    let (kept, records) = (Kept::default(), memory_records());
    kept.put("a", on_build(json!({})));
    let mut yard = Yard::with(&kept, Stage::default(), with_records(&records)).await;
    fire(&yard, "x", 1, true).await;
    yard.end(0, 0).await;
    let session = kept.runs_of("a")[0]["primarySession"].as_str().unwrap().to_owned();
    let chat = ostler_protocol::uri::default_chat(&session);
    let turn = json!({ "type": "chat/turnStarted", "turnId": "mine", "message": { "text": "Hello" } });
    yard.client.dispatch(&chat, 9, turn).await;
    settle().await;
    for n in [2, 3] {
        fire(&yard, "x", n, true).await;
    }
    let subscribed = yard.client.request("subscribe", json!({ "channel": chat })).await.unwrap();
    let id = subscribed["snapshot"]["state"]["queuedMessages"][0]["id"].clone();
    let removed = json!({ "type": "chat/pendingMessageRemoved", "kind": "queued", "id": id });
    yard.client.dispatch(&chat, 10, removed).await;
    settle().await;
    assert_eq!(statuses(&kept.runs_of("a")), ["completed", "cancelled", "running"]);
    yard.end(0, 1).await;
    assert_eq!(said(&yard).last().unwrap(), "3");
    yard.end(0, 2).await;
    assert_eq!(statuses(&kept.runs_of("a")), ["completed", "cancelled", "completed"]);
}

#[tokio::test(start_paused = true)]
async fn a_session_of_somebody_else_is_never_used() {
    let (kept, records) = (Kept::default(), memory_records());
    kept.put_of("a", Some("root:inn"), on_build(json!({})));
    let mut yard = Yard::with(&kept, Stage::default(), with_records(&records)).await;
    fire(&yard, "x", 1, true).await;
    yard.end(0, 0).await;
    let made = json!({ "channel": "stage:/theirs", "provider": "stage" });
    yard.client.request("createSession", made).await.unwrap();
    let mut record = values(&records).await.remove(0);
    record.insert("session".to_owned(), "stage:/theirs".into());
    let name = "automation-sessions".to_owned();
    let opened = records.collection.unbounded((name, Default::default())).await.unwrap();
    opened.put.unbounded((record,)).await.unwrap();
    assert_ne!(yard.host.host.sessions.by_uri("stage:/theirs").unwrap().owner.as_deref(), Some("root:inn"));
    fire(&yard, "x", 2, true).await;
    let session = kept.runs_of("a")[1]["primarySession"].clone();
    assert!(session.is_string() && session != "stage:/theirs");
    assert_eq!(values(&records).await[0]["session"], session);
}

/// The policies are asked between the look at the session and the turn in it.
#[tokio::test(start_paused = true)]
async fn a_session_that_ends_just_before_its_turn_is_replaced_and_policies_are_asked_for_each_run() {
    let (kept, records) = (Kept::default(), memory_records());
    kept.put_of("a", Some("user:ada"), on_build(json!({})));
    let ada = json!({ "id": "ada", "roles": ["ada"], "signedIn": "2026-01-01T00:00:00Z" });
    let users = json!({ "roles": { "ada": ["session:read", "session:create"] }, "users": [ada] });
    let people = People::new("https://inn.example", "inn");
    people.set(UsersFile::parse(&users.to_string()).unwrap()).unwrap();
    let (gate, opened) = watch::channel(true);
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = reads.clone();
    let policies = Policies {
        list: Call::new(move |()| {
            let mut opened = opened.clone();
            counted.fetch_add(1, Ordering::SeqCst);
            async move {
                let _ = opened.wait_for(|open| *open).await;
                let rows = json!([{ "id": "yes", "scope": "all", "kind": "agent", "effect": "allow" }]);
                Ok(rows.as_array().unwrap().iter().map(|row| fields(row.clone())).collect())
            }
        }),
        get: Call::now(|_| Ok(None)),
        put: Call::now(|_| Ok(())),
        remove: Call::now(|_| Ok(false)),
        close: None,
    };
    let with = with_records(&records);
    let mut yard = Yard::with(&kept, Stage::default(), |builder| {
        with(builder).people(people).policies(policies).options(|options| options.check_policies = true)
    })
    .await;
    fire(&yard, "x", 1, true).await;
    yard.end(0, 0).await;
    let first = kept.runs_of("a")[0]["primarySession"].clone();
    let before = reads.load(Ordering::SeqCst);
    gate.send_replace(false);
    fire(&yard, "x", 2, true).await;
    assert_eq!(statuses(&kept.runs_of("a")), ["completed", "pending"]);
    assert!(reads.load(Ordering::SeqCst) > before, "of a turn in a session that is there too");
    yard.client.request("disposeSession", json!({ "channel": first })).await.unwrap();
    gate.send_replace(true);
    settle().await;
    let run = kept.runs_of("a")[1].clone();
    assert_eq!(run["lifecycle"]["status"], "running", "{run}");
    assert!(run["primarySession"].is_string() && run["primarySession"] != first);
    assert_eq!(run["sessions"], json!([run["primarySession"]]), "the other one is not listed");
    assert_eq!(said(&yard), ["1", "2"]);
    assert_eq!(values(&records).await[0]["session"], run["primarySession"]);
    yard.end(1, 1).await;
    assert_eq!(statuses(&kept.runs_of("a")), ["completed", "completed"]);
}

#[tokio::test(start_paused = true)]
async fn without_a_record_store_each_run_has_a_session_of_its_own() {
    let kept = Kept::default();
    kept.put("a", on_build(json!({})));
    let yard = Yard::new(&kept).await;
    fire(&yard, "x", 1, true).await;
    yard.end(0, 0).await;
    fire(&yard, "x", 2, true).await;
    assert_eq!(
        (statuses(&kept.runs_of("a")), yard.stage.started()),
        (["completed", "running"].map(str::to_owned).to_vec(), 2)
    );
    assert!(yard.host.log.has("there is no record store"), "{:#?}", yard.host.log.all());
}

#[tokio::test(start_paused = true)]
async fn the_collection_of_sessions_is_the_hosts() {
    let yard = Yard::new(&Kept::default()).await;
    let refused = yard.host.plugin("builds").records("automation-sessions".into(), None).unwrap_err();
    assert!(refused.message.contains("records automation-sessions are reserved for the host"), "{refused}");
}
