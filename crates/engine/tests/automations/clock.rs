//! Schedules: they fire in their own time zone, catch up once, and stop where they were told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::support::{Kept, Yard, pass, settle, statuses};
use jiff::{SignedDuration, Timestamp};
use ostler_contract::points::{AutomationProgress, ScheduleProgress};
use ostler_contract::{Value, json};
use ostler_engine::Clock;
use ostler_testkit::{MemoryHost, Stage};

const HOUR: u64 = 3600;

fn at(expression: &str, zone: &str) -> Value {
    json!({ "triggers": [{ "id": "clock", "kind": "schedule",
        "schedule": { "expression": expression, "timeZone": zone } }] })
}

fn progress(expression: &str, next: &str) -> AutomationProgress {
    AutomationProgress {
        schedules: vec![ScheduleProgress {
            trigger: "clock".into(),
            expression: expression.into(),
            time_zone: "UTC".into(),
            next: next.into(),
        }],
        run_count: None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_schedule_fires_when_its_time_comes_in_its_own_zone() {
    let kept = Kept::default();
    kept.put("morning", at("30 9 * * *", "Europe/Berlin"));
    let mut yard = Yard::new(&kept).await;
    assert_eq!(yard.entry("morning").await["nextRunAt"], "2026-01-01T08:30:00.000Z");
    pass(8 * HOUR + 29 * 60).await;
    assert!(kept.runs_of("morning").is_empty());
    pass(61).await;
    let runs = kept.runs_of("morning");
    assert_eq!(statuses(&runs), ["running"]);
    assert_eq!(
        runs[0]["origin"],
        json!({ "kind": "trigger", "triggerId": "clock", "scheduledFor": "2026-01-01T08:30:00.000Z" })
    );
    assert_eq!(yard.begun()[0].1, "Go.", "a run by the clock is woken by no event");
    yard.end(0, 0).await;
    assert_eq!(statuses(&kept.runs_of("morning")), ["completed"]);
    assert_eq!(yard.entry("morning").await["nextRunAt"], "2026-01-02T08:30:00.000Z");
    pass(24 * HOUR).await;
    assert_eq!(kept.runs_of("morning").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_was_missed_is_caught_up_with_once_or_not_at_all() {
    let kept = Kept::default();
    kept.put("once", at("0 9 * * *", "UTC"));
    let mut skips = at("0 9 * * *", "UTC");
    skips["triggers"][0]["misfirePolicy"] = "skip".into();
    kept.put("skips", skips);
    kept.put("changed", at("0 8 * * *", "UTC"));
    for id in ["once", "skips", "changed"] {
        let held = progress("0 9 * * *", "2025-12-28T09:00:00.000Z");
        kept.progress.lock().unwrap().insert(id.into(), held);
    }
    let mut yard = Yard::new(&kept).await;
    pass(1).await;
    let runs = kept.runs_of("once");
    assert_eq!(runs.len(), 1, "four were missed, and one catches up with them");
    assert_eq!(runs[0]["origin"]["scheduledFor"], "2025-12-31T09:00:00.000Z");
    assert_eq!(runs[0]["origin"]["catchUp"], true);
    assert!(kept.runs_of("skips").is_empty());
    assert!(kept.runs_of("changed").is_empty(), "it was written anew while the host was away");
    for id in ["once", "skips"] {
        assert_eq!(yard.entry(id).await["nextRunAt"], "2026-01-01T09:00:00.000Z");
        assert_eq!(kept.progress.lock().unwrap()[id].schedules[0].next, "2026-01-01T09:00:00.000Z");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_missed_by_a_moment_is_skipped_too() {
    let kept = Kept::default();
    kept.put("once", at("59 23 * * *", "UTC"));
    let mut skips = at("59 23 * * *", "UTC");
    skips["triggers"][0]["misfirePolicy"] = "skip".into();
    kept.put("skips", skips);
    let mut by_the_minute = at("* * * * *", "UTC");
    by_the_minute["triggers"][0]["misfirePolicy"] = "skip".into();
    kept.put("minutes", by_the_minute);
    for (id, expression) in [("once", "59 23 * * *"), ("skips", "59 23 * * *"), ("minutes", "* * * * *")] {
        // A minute before the host is there again, and at that very moment.
        let next = if id == "minutes" { "2026-01-01T00:00:00.000Z" } else { "2025-12-31T23:59:00.000Z" };
        kept.progress.lock().unwrap().insert(id.into(), progress(expression, next));
    }
    let mut yard = Yard::new(&kept).await;
    pass(1).await;
    assert_eq!(kept.runs_of("once").len(), 1);
    assert!(kept.runs_of("skips").is_empty() && kept.runs_of("minutes").is_empty());
    assert_eq!(yard.entry("skips").await["nextRunAt"], "2026-01-01T23:59:00.000Z");
    // While the host is there it fires.
    pass(60).await;
    assert_eq!(kept.runs_of("minutes").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_occurrence_whose_run_was_kept_is_not_run_again_after_a_crash() {
    let kept = Kept::default();
    kept.put("once", at("0 9 * * *", "UTC"));
    let held = progress("0 9 * * *", "2025-12-31T09:00:00.000Z");
    kept.progress.lock().unwrap().insert("once".into(), held);
    let run = json!({ "resource": "ahp-automation-run:/r", "automation": "ahp-automation:/once", "sessions": [],
        "origin": { "kind": "trigger", "triggerId": "clock", "scheduledFor": "2025-12-31T09:00:00.000Z" },
        "lifecycle": { "status": "pending", "createdAt": "2025-12-31T09:00:00.000Z" } });
    kept.runs.lock().unwrap().push(serde_json::from_value(run).unwrap());
    let yard = Yard::new(&kept).await;
    pass(60).await;
    let runs = kept.runs_of("once");
    assert_eq!(statuses(&runs), ["running"], "the run that was kept begins, and no other");
    assert_eq!(yard.begun().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_schedule_that_had_its_runs_is_switched_off_and_begins_anew_when_switched_on() {
    let kept = Kept::default();
    let mut twice = at("0 * * * *", "UTC");
    twice["disableConditions"] = json!([{ "kind": "afterRuns", "max": 2 }]);
    twice["_meta"] = json!({ "ostler": { "overlap": "parallel" } });
    kept.put("twice", twice);
    let mut yard = Yard::new(&kept).await;
    yard.press("twice", "r").await.unwrap();
    assert_eq!(yard.entry("twice").await["runCount"], 0, "a press is not counted");
    pass(HOUR).await;
    assert_eq!(yard.entry("twice").await["runCount"], 1);
    pass(5 * HOUR).await;
    let entry = yard.entry("twice").await;
    assert_eq!((kept.runs_of("twice").len(), kept.enabled("twice")), (3, false));
    assert_eq!((&entry["runCount"], &entry["nextRunAt"]), (&json!(2), &Value::Null));
    assert_eq!(yard.update("twice", json!({ "enabled": true })).await, None);
    let entry = yard.entry("twice").await;
    assert_eq!((&entry["runCount"], &entry["nextRunAt"]), (&json!(0), &json!("2026-01-01T07:00:00.000Z")));
    assert_eq!(kept.runs_of("twice").len(), 3, "what passed while it was off was not missed");
}

#[tokio::test(start_paused = true)]
async fn a_schedule_ends_with_its_date() {
    let kept = Kept::default();
    let mut until = at("0 * * * *", "UTC");
    until["disableConditions"] = json!([{ "kind": "afterDate", "date": "2026-01-01T01:30:00Z" }]);
    kept.put("until", until);
    let _yard = Yard::new(&kept).await;
    pass(HOUR + 60).await;
    assert!(kept.enabled("until"));
    pass(5 * HOUR).await;
    assert_eq!((kept.runs_of("until").len(), kept.enabled("until")), (1, false));
}

#[tokio::test(start_paused = true)]
async fn the_clock_obeys_the_overlap_setting() {
    let kept = Kept::default();
    kept.put("queue", at("0 * * * *", "UTC"));
    let mut skip = at("0 * * * *", "UTC");
    skip["_meta"] = json!({ "ostler": { "overlap": "skip" } });
    kept.put("skip", skip);
    let yard = Yard::new(&kept).await;
    pass(3 * HOUR + 60).await;
    assert_eq!(statuses(&kept.runs_of("queue")), ["running", "pending"]);
    assert_eq!(statuses(&kept.runs_of("skip")), ["running"]);
    assert_eq!(kept.runs_of("skip")[0]["_meta"]["ostler.dropped"], 2);
    yard.end(0, 0).await;
    yard.end(1, 1).await;
    assert_eq!(statuses(&kept.runs_of("queue")), ["completed", "running"]);
    assert_eq!(statuses(&kept.runs_of("skip")), ["completed"]);
}

#[tokio::test(start_paused = true)]
async fn a_schedule_that_cannot_be_read_is_refused_and_one_in_a_file_is_told_of() {
    let kept = Kept::default();
    kept.put("bad", at("0 0 L * *", "UTC"));
    kept.put("good", at("0 0 1 1 *", "UTC"));
    let mut yard = Yard::new(&kept).await;
    let why = "schedule.expression has a day of month that cannot be read: L";
    assert!(yard.host.log.has(&format!("automation bad: its trigger clock never fires: {why}")));
    let triggers = at("0 0 L * *", "UTC")["triggers"].clone();
    assert_eq!(yard.update("good", json!({ "triggers": triggers })).await, Some(why.to_owned()));
    assert_eq!(yard.update("bad", json!({ "title": "Other" })).await, None, "its triggers are not looked at");
}

#[tokio::test(start_paused = true)]
async fn schedules_are_advertised_only_where_they_fire() {
    let kept = Kept::default();
    let yard = Yard::new(&kept).await;
    let mut client = yard.host.raw();
    let known = client.initialize("a").await;
    assert_eq!(known["automations"]["schedules"], json!({ "minIntervalMinutes": 1 }));

    kept.put("clock", at("* * * * *", "UTC"));
    let stage = Stage::default();
    let mut forgetful = kept.store();
    forgetful.keep_progress = None;
    let host = MemoryHost::builder().plugin(stage.plugin(), json!({})).automations(forgetful).start().await;
    let mut client = host.raw();
    let known = client.initialize("a").await;
    assert_eq!(known["automations"]["create"], json!({}));
    assert_eq!(known["automations"].get("schedules"), None);
    assert!(
        host.log.has("automation clock: its trigger clock never fires: schedules do not fire on this host")
    );
    pass(600).await;
    settle().await;
    assert_eq!((kept.runs_of("clock").len(), stage.started()), (0, 0));
}

/// A clock that can be set: by how many seconds it is ahead of the time that passes.
#[derive(Clone)]
struct SetClock(Arc<AtomicI64>);

impl SetClock {
    fn right() -> Self {
        Self(Arc::default())
    }

    fn set(&self, ahead: i64) {
        self.0.store(ahead, Ordering::SeqCst);
    }

    /// The clock of a host that starts now.
    fn clock(&self) -> Clock {
        let (passes, ahead) = (Clock::following_tokio(BEGIN.parse().unwrap()), self.0.clone());
        Clock::new(move || passes.now() + SignedDuration::from_secs(ahead.load(Ordering::SeqCst)))
    }

    async fn yard(&self, kept: &Kept) -> Yard {
        Yard::with(kept, Stage::default(), |builder| builder.clock(self.clock())).await
    }
}

const BEGIN: &str = "2026-01-01T00:00:00Z";
const DAY: i64 = 24 * 3600;

/// Every minute, with a run for each occurrence.
fn minutes(policy: &str) -> Value {
    let mut minutes = at("* * * * *", "UTC");
    minutes["triggers"][0]["misfirePolicy"] = policy.into();
    minutes["_meta"] = json!({ "ostler": { "overlap": "parallel" } });
    minutes
}

fn scheduled(kept: &Kept, id: &str) -> Vec<String> {
    kept.runs_of(id).iter().map(|run| run["origin"]["scheduledFor"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn schedules_go_on_from_the_time_to_which_the_clock_is_set() {
    for policy in ["runOnce", "skip"] {
        // Back and forth, from a clock that was right and from one that was wrong.
        for steps in [[-7200, 0], [7200, 0], [-120, 0], [400 * DAY, 0], [-400 * DAY, 0], [DAY, -DAY], [90, 3]]
        {
            let (kept, clock) = (Kept::default(), SetClock::right());
            kept.put("minutes", minutes(policy));
            let mut yard = clock.yard(&kept).await;
            pass(90).await;
            assert_eq!(scheduled(&kept, "minutes"), ["2026-01-01T00:01:00.000Z"]);
            let mut seen = 1;
            for ahead in steps {
                clock.set(ahead);
                // A look at the clock, and two occurrences.
                pass(30 + 120).await;
                let now = yard.host.host.core.clock.now();
                let runs = scheduled(&kept, "minutes");
                assert!((1..=4).contains(&(runs.len() - seen)), "{policy} {steps:?} {ahead}: {runs:?}");
                seen = runs.len();
                let next = yard.entry("minutes").await["nextRunAt"].as_str().unwrap().to_owned();
                let stored = kept.progress.lock().unwrap()["minutes"].schedules[0].next.clone();
                assert_eq!(next, stored);
                let left = next.parse::<Timestamp>().unwrap().duration_since(now);
                assert!((0..=60).contains(&left.as_secs()), "{policy} {steps:?} {ahead}: {next} at {now}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_occurrence_does_not_come_again_when_the_clock_is_set_back_by_a_moment() {
    let (kept, clock) = (Kept::default(), SetClock::right());
    kept.put("minutes", minutes("runOnce"));
    let _yard = clock.yard(&kept).await;
    pass(65).await;
    // The next look is before the minute.
    clock.set(-45);
    pass(50).await;
    assert_eq!(scheduled(&kept, "minutes"), ["2026-01-01T00:01:00.000Z"]);
    pass(60).await;
    assert_eq!(scheduled(&kept, "minutes"), ["2026-01-01T00:01:00.000Z", "2026-01-01T00:02:00.000Z"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_wrong_clock_stored_does_not_silence_a_schedule_after_a_restart() {
    let (kept, clock) = (Kept::default(), SetClock::right());
    kept.put("minutes", minutes("skip"));
    kept.put("daily", at("0 9 * * *", "UTC"));
    clock.set(400 * DAY);
    let yard = clock.yard(&kept).await;
    pass(90).await;
    assert_eq!(scheduled(&kept, "minutes"), ["2027-02-05T00:01:00.000Z"]);
    yard.host.host.close().await;
    drop(yard);
    clock.set(0);
    let mut yard = clock.yard(&kept).await;
    for (id, next) in [("minutes", "2026-01-01T00:01:00.000Z"), ("daily", "2026-01-01T09:00:00.000Z")] {
        assert_eq!(yard.entry(id).await["nextRunAt"], next);
        assert_eq!(kept.progress.lock().unwrap()[id].schedules[0].next, next);
    }
    pass(90).await;
    assert_eq!(scheduled(&kept, "minutes")[1..], ["2026-01-01T00:01:00.000Z"]);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_ahead_for_minutes_switches_no_schedule_off() {
    let (kept, clock) = (Kept::default(), SetClock::right());
    let mut until = minutes("skip");
    until["disableConditions"] = json!([{ "kind": "afterDate", "date": "2026-01-02T00:00:00Z" }]);
    kept.put("until", until);
    let _yard = clock.yard(&kept).await;
    pass(90).await;
    clock.set(10 * DAY);
    pass(300).await;
    assert_eq!((kept.runs_of("until").len(), kept.enabled("until")), (1, true));
    clock.set(0);
    pass(90).await;
    assert!(kept.runs_of("until").len() > 1 && kept.enabled("until"));
    clock.set(10 * DAY);
    pass(700).await;
    assert!(!kept.enabled("until"));
}
