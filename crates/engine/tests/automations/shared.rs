//! Automations that several hosts share: one run for each cause, and overlap, order and the cap as on one host.

use std::sync::Arc;
use std::time::Duration;

use crate::support::shared::Town;
use crate::support::{Yard, on_build, pass, settle, statuses};
use ostler_contract::host::{EventData, Firing, Routing};
use ostler_contract::shared_runs::{EventRecords, EventRuns, FiredOnce, NewRecord, Once};
use ostler_contract::{JsonObject, Value, json};

const LOST: &str = "its host, a, was lost while this run was going";

fn fields(data: Value) -> JsonObject {
    data.as_object().cloned().unwrap()
}

/// The record of an event with its runs.
fn record(collection: &str, id: &str, runs: EventRuns<'_>) -> NewRecord {
    let (EventRuns::Decided(runs) | EventRuns::Requested(runs)) = runs;
    NewRecord { collection: collection.into(), record: fields(json!({ "id": id, "runs": runs })) }
}

fn once(id: &str) -> Once {
    let name = id.to_owned();
    Once { cause: format!("webhook:in:{id}"), record: Arc::new(move |runs| record("repeats", &name, runs)) }
}

fn records(id: &str, is_once: bool) -> EventRecords {
    let name = id.to_owned();
    EventRecords {
        once: is_once.then(|| once(id)),
        log: Some(Arc::new(move |runs| record("log", &name, runs))),
    }
}

async fn fire_once(yard: &Yard, id: &str, n: u64) -> FiredOnce {
    let builds = yard.host.plugin("builds");
    let data = EventData::Fields(fields(json!({ "n": n })).into());
    let fired =
        builds.fire_event("build".into(), "done".into(), data, None, records(id, true)).await.unwrap();
    settle().await;
    fired
}

#[tokio::test(start_paused = true)]
async fn the_host_that_was_first_decides_about_the_events_of_all() {
    let town = Town::default();
    town.kept.put("a", on_build(json!({})));
    let (a, b) = (town.host("a").await, town.host("b").await);
    let first = a.fire(1).await;
    assert_eq!(town.owner("a").as_deref(), Some("a"));
    let second = b.fire(2).await;
    assert_eq!(b.fire(3).await, second, "it is merged into the run that waits");
    assert_ne!(first, second);
    assert_eq!(statuses(&town.kept.runs_of("a")), ["running", "pending"]);
    a.end(0, 0).await;
    pass(1).await;
    assert!(a.begun()[1].1.starts_with("Build 3, 2 so far"), "{:?}", a.begun());
    a.end(1, 1).await;
    assert_eq!(statuses(&town.kept.runs_of("a")), ["completed", "completed"]);
    assert!(b.begun().is_empty());
}

#[tokio::test(start_paused = true)]
async fn overlap_and_the_cap_hold_over_two_hosts_and_after_one_is_lost() {
    let town = Town::default();
    town.kept.put("skips", on_build(json!({ "overlap": "skip" })));
    town.kept.put("capped", on_build(json!({ "overlap": "parallel", "hourlyCap": 3 })));
    let (a, b) = (town.host("a").await, town.host("b").await);
    assert_eq!(a.fire(1).await.len(), 2);
    assert_eq!(b.fire(2).await.len(), 1, "the other one is dropped");
    assert_eq!(town.kept.runs_of("skips")[0]["_meta"]["ostler.dropped"], 1);
    assert_eq!(a.fire(3).await.len(), 1);
    assert!(b.fire(4).await.is_empty(), "one is dropped, and the other has reached its cap");
    assert_eq!(town.kept.runs_of("capped").len(), 3);

    town.lose("a", a).await;
    pass(3).await;
    assert_eq!(town.owner("capped").as_deref(), Some("b"));
    assert_eq!(b.fire(5).await.len(), 1, "the cap is that of the hosts together");
    assert_eq!(town.kept.runs_of("capped").len(), 3);
    assert_eq!(town.kept.runs_of("skips").len(), 2);
}

/// Returns how many events the runs of an automation contain.
fn events(town: &Town, id: &str) -> u64 {
    town.kept.runs_of(id).iter().map(|run| run["_meta"]["ostler.count"].as_u64().unwrap_or(1)).sum()
}

/// Two hosts, of which the first one has a run of an automation that is going, and one that waits.
async fn with_a_waiting_run(town: &Town, overlap: &str) -> (Yard, Yard) {
    town.kept.put("a", on_build(json!({ "overlap": overlap })));
    let (a, b) = (town.host("a").await, town.host("b").await);
    assert_eq!((a.fire(1).await.len(), a.fire(2).await.len()), (1, usize::from(overlap == "queue")));
    assert_eq!(town.owner("a").as_deref(), Some("a"));
    (a, b)
}

#[tokio::test(start_paused = true)]
async fn a_merged_event_is_decided_once_when_its_owner_is_lost_after_any_of_its_writes() {
    for writes in 0..4 {
        let town = Town::default();
        let (a, b) = with_a_waiting_run(&town, "queue").await;
        town.cut_after("a", writes);
        let lost = async {
            pass(1).await;
            town.lose("a", a).await;
        };
        let (runs, ()) = tokio::join!(b.fire(3), lost);
        pass(3).await;
        assert_eq!(town.owner("a").as_deref(), Some("b"));
        let stored = town.kept.runs_of("a");
        // Where nothing was stored, the run that waited has begun, and the event starts one.
        let of = if writes == 0 { 2 } else { 1 };
        assert_eq!(json!(runs), json!([stored[of]["resource"]]), "after {writes} writes");
        assert_eq!((stored.len(), events(&town, "a")), (of + 1, 3), "after {writes} writes: {stored:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_event_is_counted_once_when_its_owner_is_lost_after_any_of_its_writes() {
    for writes in 0..4 {
        let town = Town::default();
        let (a, b) = with_a_waiting_run(&town, "skip").await;
        let before = town.kept.runs_of("a")[0]["_meta"]["ostler.dropped"].as_u64();
        assert_eq!(before, Some(1));
        town.cut_after("a", writes);
        let lost = async {
            pass(1).await;
            town.lose("a", a).await;
        };
        let (runs, ()) = tokio::join!(b.fire(3), lost);
        pass(3).await;
        let stored = town.kept.runs_of("a");
        let dropped = stored[0]["_meta"]["ostler.dropped"].as_u64().unwrap();
        // Where nothing was stored, the run has failed with its host, and the event starts one.
        let expected = if writes == 0 { (1, 1, 2) } else { (0, 2, 1) };
        assert_eq!((runs.len() as u64, dropped, stored.len()), expected, "after {writes} writes: {stored:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_is_decided_once_when_answers_of_the_store_are_lost() {
    for lost in [1, 3] {
        let town = Town::default();
        let (a, b) = with_a_waiting_run(&town, "queue").await;
        town.lose_answers("a", lost);
        let runs = b.fire(3).await;
        assert_eq!(json!(runs), json!([town.kept.runs_of("a")[1]["resource"]]));
        pass(30).await;
        assert_eq!((town.kept.runs_of("a").len(), events(&town, "a")), (2, 3), "{lost} answers are lost");
        a.end(0, 0).await;
        pass(1).await;
        assert!(a.begun()[1].1.starts_with("Build 3, 2 so far"), "{:?}", a.begun());
        // A run of its own, whose answer is lost, begins as well.
        a.end(1, 1).await;
        pass(1).await;
        town.lose_answers("a", lost);
        b.fire(4).await;
        pass(30).await;
        assert_eq!(a.begun().len(), 3, "{:?}", a.begun());
        assert_eq!(statuses(&town.kept.runs_of("a")), ["completed", "completed", "running"]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_with_an_id_starts_one_run_on_whatever_hosts_it_arrives() {
    let town = Town::default();
    town.kept.put("a", on_build(json!({ "overlap": "parallel" })));
    let hosts = [town.host("a").await, town.host("b").await];
    let fired = futures::join!(fire_once(&hosts[0], "x", 1), fire_once(&hosts[1], "x", 1));
    let is_started = |fired: &FiredOnce| matches!(fired, FiredOnce::Fired(Firing::Started { runs, .. }) if runs.len() == 1);
    let started = [&fired.0, &fired.1].into_iter().filter(|fired| is_started(fired)).count();
    assert_eq!(started, 1, "{fired:?}");
    assert!(matches!(fired, (FiredOnce::Repeated, _) | (_, FiredOnce::Repeated)), "{fired:?}");
    assert_eq!(town.kept.runs_of("a").len(), 1);
    assert_eq!(town.kept.runs_of("a")[0]["_meta"]["ostler.cause"], "webhook:in:x");
    assert!(is_started(&fire_once(&hosts[1], "y", 2).await));
    assert_eq!(town.records().len(), 2);
    assert_eq!(town.kept.runs_of("a").len(), 2);
    let log = town.log();
    assert_eq!(log.iter().map(|row| &row["id"]).collect::<Vec<_>>(), ["x", "y"], "one entry of each event");
    for (row, run) in log.iter().zip(town.kept.runs_of("a")) {
        assert_eq!(row["runs"], json!([run["resource"]]), "with its run");
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_without_an_id_is_logged_with_its_runs_where_hosts_share_them() {
    let town = Town::default();
    town.kept.put("a", on_build(json!({ "overlap": "parallel" })));
    let host = town.host("a").await;
    let builds = host.host.plugin("builds");
    let data = EventData::Fields(fields(json!({ "n": 1 })).into());
    let fired =
        builds.fire_event("build".into(), "done".into(), data, None, records("x", false)).await.unwrap();
    assert!(matches!(&fired, FiredOnce::Fired(Firing::Started { runs, .. }) if runs.len() == 1), "{fired:?}");
    let run = &town.kept.runs_of("a")[0]["resource"];
    assert_eq!(town.log(), [fields(json!({ "id": "x", "runs": [run] }))]);
    assert!(town.records().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_wake_that_is_decided_before_its_sender_knows_that_it_is_stored_starts_one_turn() {
    let town = Town::default();
    town.kept.put("a", on_build(json!({ "overlap": "parallel" })));
    let host = town.host("a").await;
    town.delay_answers(Duration::from_millis(300));
    // Nobody owns the automation: the host finds the wake, takes the automation over and decides before the answer arrives.
    for n in 0..2 {
        assert_eq!(host.fire(n).await.len(), 1);
        pass(2).await;
        host.end(n as usize, n as usize).await;
        pass(2).await;
        assert_eq!(host.begun().len() as u64, n + 1, "{:?}", host.begun());
    }
    assert_eq!(statuses(&town.kept.runs_of("a")), ["completed", "completed"]);
}

#[tokio::test(start_paused = true)]
async fn a_schedule_starts_one_run_for_each_of_its_times() {
    let town = Town::default();
    town.kept.put(
        "clock",
        json!({ "triggers": [{ "id": "clock", "kind": "schedule",
            "schedule": { "expression": "* * * * *", "timeZone": "UTC" } }],
            "disableConditions": [{ "kind": "afterRuns", "max": 4 }],
            "_meta": { "ostler": { "overlap": "parallel" } } }),
    );
    let (a, b, c) = (town.host("a").await, town.host("b").await, town.host("c").await);
    pass(125).await;
    assert_eq!(town.kept.runs_of("clock").len(), 2);
    let owner = town.owner("clock").unwrap();
    let (mut left, mut lost) = (Vec::new(), None);
    for (name, yard) in [("a", a), ("b", b), ("c", c)] {
        match name == owner {
            true => lost = Some(yard),
            false => left.push(yard),
        }
    }
    town.lose(&owner, lost.unwrap()).await;
    pass(240).await;
    let runs = town.kept.runs_of("clock");
    let times: std::collections::BTreeSet<_> =
        runs.iter().map(|run| run["origin"]["scheduledFor"].as_str().unwrap().to_owned()).collect();
    assert_eq!((runs.len(), times.len()), (4, 4), "each once, and no more than it may run");
    assert!(!town.kept.enabled("clock"));
    assert_ne!(town.owner("clock"), Some(owner));
}

#[tokio::test(start_paused = true)]
async fn the_runs_of_a_lost_host_end_or_resume_on_one_other() {
    let town = Town::default();
    town.kept.put("fails", on_build(json!({})));
    town.kept.put("resumes", on_build(json!({ "onHostLost": "resume" })));
    let (a, b, c) = (town.host("a").await, town.host("b").await, town.host("c").await);
    a.fire(1).await;
    b.fire(2).await;
    for id in ["fails", "resumes"] {
        assert_eq!(statuses(&town.kept.runs_of(id)), ["running", "pending"]);
    }
    town.lose("a", a).await;
    pass(3).await;
    let failed = &town.kept.runs_of("fails")[0]["lifecycle"];
    assert_eq!((&failed["status"], &failed["error"]["message"]), (&json!("failed"), &json!(LOST)));
    assert_eq!(statuses(&town.kept.runs_of("fails")), ["failed", "running"]);
    let resumed = town.kept.runs_of("resumes");
    assert_eq!(statuses(&resumed), ["running", "pending"], "it has its place in the order");
    assert_eq!(resumed[0]["_meta"]["ostler.resumed"], 1);
    let begun: Vec<String> = [&b, &c].iter().flat_map(|yard| yard.begun()).map(|(_, text)| text).collect();
    let count = |n: u64| begun.iter().filter(|text| text.starts_with(&format!("Build {n}"))).count();
    assert_eq!((count(1), count(2)), (1, 1), "{begun:?}");
}

#[tokio::test(start_paused = true)]
async fn ordered_events_of_two_hosts_run_in_their_order() {
    let town = Town::default();
    town.kept.put("a", on_build(json!({})));
    let (a, b) = (town.host("a").await, town.host("b").await);
    for (yard, n) in [(&a, 1), (&b, 2), (&a, 3), (&b, 4)] {
        let data = EventData::Fields(fields(json!({ "k": "x", "n": n })).into());
        let routing = Some(Routing { by: "k".into(), session: false });
        let builds = yard.host.plugin("builds");
        let firing = builds
            .fire_event("build".into(), "done".into(), data, routing, Default::default())
            .await
            .unwrap();
        assert!(matches!(firing.firing(), Some(Firing::Started { runs, .. }) if runs.len() == 1));
        settle().await;
    }
    for turn in 0..4 {
        assert_eq!(a.begun().len(), turn + 1);
        assert!(a.begun()[turn].1.starts_with(&format!("Build {}", turn + 1)));
        a.end(turn, turn).await;
    }
    assert_eq!(statuses(&town.kept.runs_of("a")), ["completed"; 4]);
}

#[tokio::test(start_paused = true)]
async fn a_request_of_a_client_starts_one_run_on_whatever_host_it_is_repeated() {
    let town = Town::default();
    town.kept.put("a", json!({}));
    let (mut a, mut b) = (town.host("a").await, town.host("b").await);
    let run = a.press("a", "r").await.unwrap();
    assert_eq!(b.press("a", "r").await.unwrap(), run);
    assert_ne!(b.press("a", "s").await.unwrap(), run);
    assert_eq!(town.kept.runs_of("a").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_single_host_stores_the_runs_of_an_event_with_its_record() {
    let town = Town::default();
    town.kept.put("a", on_build(json!({})));
    let yard = town.only_host().await;
    assert!(
        matches!(fire_once(&yard, "x", 1).await, FiredOnce::Recorded(Firing::Started { runs, .. }) if runs.len() == 1)
    );
    assert_eq!((town.records().len(), statuses(&town.kept.runs_of("a"))), (1, vec!["running".to_owned()]));
    let waits = fire_once(&yard, "y", 2).await;
    assert_eq!(fire_once(&yard, "z", 3).await, waits, "it is merged into the run that waits");
    assert_eq!(town.records().len(), 3);
    let logged: Vec<_> = town.log().iter().map(|row| row["runs"].clone()).collect();
    assert_eq!(logged.len(), 3);
    assert!(logged[0] != logged[1] && logged[1] == logged[2], "{logged:?}");
    yard.end(0, 0).await;
    pass(1).await;
    assert!(yard.begun()[1].1.starts_with("Build 3, 2 so far"), "{:?}", yard.begun());
    yard.end(1, 1).await;
    assert_eq!(fire_once(&yard, "x", 5).await, FiredOnce::Repeated, "and takes no place");
    assert_eq!(town.log().len(), 3, "nor an entry");
    assert!(
        matches!(fire_once(&yard, "w", 6).await, FiredOnce::Recorded(Firing::Started { runs, .. }) if runs.len() == 1)
    );
    assert_eq!(statuses(&town.kept.runs_of("a")), ["completed", "completed", "running"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_resumes_after_a_restart_where_its_automation_says_so_but_not_for_ever() {
    let kept = crate::support::Kept::default();
    kept.put("a", on_build(json!({ "onHostLost": "resume" })));
    let yard = Yard::new(&kept).await;
    yard.fire(1).await;
    drop(yard);
    for resumed in 1..=3 {
        let yard = Yard::new(&kept).await;
        let runs = kept.runs_of("a");
        assert_eq!(statuses(&runs), ["running"]);
        assert_eq!(runs[0]["_meta"]["ostler.resumed"], resumed);
        assert!(yard.begun()[0].1.starts_with("Build 1"));
        yard.fire(2).await;
        assert_eq!(yard.begun().len(), 1, "the next one waits for it");
        kept.runs.lock().unwrap().truncate(1);
    }
    let yard = Yard::new(&kept).await;
    assert_eq!(statuses(&kept.runs_of("a")), ["failed"]);
    assert!(yard.begun().is_empty());
}
