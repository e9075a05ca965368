//! What becomes of a wake while a run is going: overlap modes, pinned chats, the hourly cap, owners.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{Kept, Yard, on_build, pass, settle, statuses};
use ostler_contract::{Value, json};
use ostler_engine::Principal;
use ostler_engine::users::{People, UsersFile};
use ostler_testkit::Stage;

/// People of these roles' grants; whoever `came` has signed in.
fn people(came: &[&str], users: &[(&str, &[&str])]) -> People {
    let mut file = json!({ "roles": {}, "users": [] });
    for (id, grants) in users {
        file["roles"][id] = json!(grants);
        let mut user = json!({ "id": id, "roles": [id] });
        if came.contains(id) {
            user["signedIn"] = "2026-01-01T00:00:00Z".into();
        }
        file["users"].as_array_mut().unwrap().push(user);
    }
    let people = People::new("https://inn.example", "inn");
    people.set(UsersFile::parse(&file.to_string()).unwrap()).unwrap();
    people
}

fn person(yard: &Yard, id: &str) -> Principal {
    Principal::Person(yard.host.host.access.gate.people().unwrap().now().person(id).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_queued_wake_waits_and_later_ones_are_counted_into_it() {
    let kept = Kept::default();
    kept.put("a", on_build(json!({})));
    let mut yard = Yard::new(&kept).await;
    let first = yard.fire(1).await;
    let second = yard.fire(2).await;
    assert_ne!(first, second);
    assert_eq!(yard.fire(3).await, second, "whoever fired is told of the run that waits");
    assert_eq!(yard.fire(4).await, second);
    assert_eq!(statuses(&kept.runs_of("a")), ["running", "pending"], "both are kept");
    assert_eq!(yard.begun().len(), 1);
    let waiting = kept.runs_of("a")[1].clone();
    assert_eq!(waiting["_meta"]["ostler.count"], 3);
    assert_eq!(waiting["origin"]["event"], json!({ "n": 2, "event": "done" }), "provenance does not move");
    assert_eq!(yard.entry("a").await["runs"][0]["_meta"]["ostler.count"], 3);
    yard.end(0, 0).await;
    assert_eq!(statuses(&kept.runs_of("a")), ["completed", "running"]);
    let said = yard.begun()[1].1.clone();
    assert!(said.starts_with("Build 4, 3 so far.\n\nWhat woke this run: done\nCount: 3\nAt: "), "{said}");
    yard.end(1, 1).await;
    assert_eq!(statuses(&kept.runs_of("a")), ["completed", "completed"]);
    assert_eq!(yard.fire(5).await.len(), 1);
}

/// The tasks that keep a run list it too, each once its own write is answered. A write of the run's first state that is
/// answered after the run's end must not list the run as what it was then.
#[tokio::test(start_paused = true)]
async fn a_write_that_is_answered_late_does_not_list_a_run_that_has_ended_as_open() {
    for counted in [false, true] {
        let kept = Kept::default();
        kept.put("a", on_build(json!({})));
        let mut yard = Yard::new(&kept).await;
        yard.fire(1).await;
        if counted {
            yard.fire(2).await;
        }
        let (answer, wait) = tokio::sync::oneshot::channel();
        *kept.late.lock().unwrap() = Some(wait);
        let fired = yard.host.plugin("builds").fire_trigger(
            "build".into(),
            "done".into(),
            json!({}).as_object().cloned().unwrap(),
        );
        settle().await;
        yard.end(0, 0).await;
        yard.end(1, 1).await;
        assert_eq!(statuses(&kept.runs_of("a")), ["completed", "completed"]);
        answer.send(()).unwrap();
        assert_eq!(fired.unwrap().kept.call(()).await.unwrap().len(), 1);
        settle().await;
        let listed = yard.entry("a").await["runs"].as_array().unwrap().clone();
        assert_eq!(statuses(&listed), ["completed", "completed"], "counted: {counted}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waited_is_begun_after_a_crash() {
    let kept = Kept::default();
    kept.put("a", on_build(json!({})));
    let yard = Yard::new(&kept).await;
    yard.fire(1).await;
    yard.fire(2).await;
    drop(yard);
    let yard = Yard::new(&kept).await;
    let runs = kept.runs_of("a");
    assert_eq!(statuses(&runs), ["failed", "running"]);
    assert_eq!(runs[0]["lifecycle"]["error"]["message"], "the host stopped while this run was going");
    assert!(yard.begun()[0].1.starts_with("Build 2"));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_when_its_automation_is_switched_off_is_cancelled() {
    let kept = Kept::default();
    kept.put("a", on_build(json!({})));
    let mut yard = Yard::new(&kept).await;
    yard.fire(1).await;
    yard.fire(2).await;
    assert_eq!(yard.update("a", json!({ "enabled": false })).await, None);
    yard.end(0, 0).await;
    assert_eq!(statuses(&kept.runs_of("a")), ["completed", "cancelled"]);
    assert_eq!(yard.fire(3).await, Vec::<String>::new());
    yard.press("a", "r").await.expect("a person may run one that is switched off");
}

#[tokio::test(start_paused = true)]
async fn skipped_wakes_are_counted_on_the_run_they_fell_to_and_parallel_ones_run() {
    let kept = Kept::default();
    kept.put("skip", on_build(json!({ "overlap": "skip" })));
    kept.put("parallel", on_build(json!({ "overlap": "parallel" })));
    let yard = Yard::new(&kept).await;
    assert_eq!(yard.fire(1).await.len(), 2);
    assert_eq!(yard.fire(2).await.len(), 1);
    assert_eq!(yard.fire(3).await.len(), 1);
    assert_eq!(statuses(&kept.runs_of("parallel")), ["running"; 3]);
    assert_eq!(statuses(&kept.runs_of("skip")), ["running"]);
    assert_eq!(kept.runs_of("skip")[0]["_meta"]["ostler.dropped"], 2);
}

#[tokio::test(start_paused = true)]
async fn a_steering_wake_is_said_in_the_running_turn() {
    let kept = Kept::default();
    kept.put("a", on_build(json!({ "overlap": "steer" })));
    let yard = Yard::with(&kept, Stage::default().steering(), |builder| builder).await;
    let first = yard.fire(1).await;
    assert_eq!(yard.fire(2).await, first);
    let steered = yard.stage.wait_told("steer").await;
    assert!(steered.as_str().unwrap().starts_with("Build 2, 1 so far."), "{steered}");
    assert_eq!(kept.runs_of("a").len(), 1);
    assert_eq!(kept.runs_of("a")[0]["_meta"]["ostler.steered"], 1);

    // A backend that takes no word leaves it to wait.
    let kept = Kept::default();
    kept.put("a", on_build(json!({ "overlap": "steer" })));
    let yard = Yard::new(&kept).await;
    let first = yard.fire(1).await;
    assert_ne!(yard.fire(2).await, first);
    assert_eq!(statuses(&kept.runs_of("a")), ["running", "pending"]);
}

#[tokio::test(start_paused = true)]
async fn events_start_twenty_runs_an_hour_and_no_more() {
    let kept = Kept::default();
    kept.put("a", on_build(json!({ "overlap": "parallel" })));
    let mut yard = Yard::new(&kept).await;
    for n in 0..20 {
        assert_eq!(yard.fire(n).await.len(), 1);
    }
    assert_eq!(yard.fire(20).await, Vec::<String>::new());
    let line = "ahp-automation:/a woke 20 times in the last hour, so this wake was dropped";
    assert!(yard.host.log.has(line), "{:#?}", yard.host.log.all());
    yard.press("a", "r").await.expect("a press is no event");
    assert_eq!(yard.update("a", json!({ "enabled": false })).await, None);
    assert_eq!(yard.update("a", json!({ "enabled": true })).await, None);
    assert_eq!(yard.fire(21).await.len(), 0, "switching it off and on gives no new hour");
    pass(3600).await;
    assert_eq!(yard.fire(22).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pinned_automation_runs_every_turn_in_one_chat() {
    let kept = Kept::default();
    let mut definition = on_build(json!({ "session": "pinned" }));
    definition["_meta"]["other"] = "kept".into();
    kept.put("a", definition);
    let mut yard = Yard::new(&kept).await;
    yard.fire(1).await;
    let session = kept.meta("a")["ostler"]["pinnedSession"].as_str().unwrap().to_owned();
    assert_eq!(kept.meta("a")["other"], "kept");
    yard.end(0, 0).await;
    yard.fire(2).await;
    assert_eq!(yard.stage.started(), 1);
    let runs = kept.runs_of("a");
    assert_eq!(statuses(&runs), ["completed", "running"]);
    assert!(runs.iter().all(|run| run["primarySession"] == json!(session)));
    let busy = yard.press("a", "r").await.unwrap_err();
    assert_eq!(
        busy,
        json!({ "code": -32009, "message": "The chat this automation runs in is already running a turn" })
    );
    yard.end(0, 1).await;

    // Somebody's own turn in that chat holds a wake back, and its end lets it go.
    let chat = ostler_protocol::uri::default_chat(&session);
    let turn = json!({ "type": "chat/turnStarted", "turnId": "mine", "message": { "text": "Hello" } });
    yard.client.dispatch(&chat, 9, turn).await;
    settle().await;
    yard.fire(3).await;
    assert_eq!(statuses(&kept.runs_of("a"))[2..], ["pending"]);
    yard.end(0, 2).await;
    assert_eq!(statuses(&kept.runs_of("a"))[2..], ["running"]);
    yard.end(0, 3).await;

    // A client cannot move it elsewhere, and a session that is gone is made again.
    let moved = json!({ "_meta": { "ostler": { "session": "pinned", "pinnedSession": "stage:/other" } } });
    assert_eq!(yard.update("a", moved).await, None);
    assert_eq!(kept.meta("a")["ostler"]["pinnedSession"], json!(session));
    yard.client.request("disposeSession", json!({ "channel": session })).await.unwrap();
    yard.fire(4).await;
    let other = kept.meta("a")["ostler"]["pinnedSession"].as_str().unwrap().to_owned();
    assert_ne!(other, session);
    let refused = yard
        .update("a", json!({ "_meta": { "ostler": { "session": "pinned", "overlap": "parallel" } } }))
        .await;
    assert_eq!(
        refused.as_deref(),
        Some("A pinned automation runs one turn at a time in its own chat, so overlap cannot be parallel")
    );
}

#[tokio::test(start_paused = true)]
async fn a_pinned_automation_keeps_out_of_another_owners_chat() {
    let kept = Kept::default();
    let yard = Yard::new(&kept).await;
    let mut client = yard.host.raw();
    client.initialize("d").await;
    client
        .request("createSession", json!({ "channel": "stage:/theirs", "provider": "stage" }))
        .await
        .unwrap();
    drop(yard);
    kept.put_of(
        "a",
        Some("root:host"),
        on_build(json!({ "session": "pinned", "pinnedSession": "stage:/theirs" })),
    );
    let mut yard = Yard::new(&kept).await;
    yard.client
        .request("createSession", json!({ "channel": "stage:/theirs", "provider": "stage" }))
        .await
        .unwrap();
    let why = "This automation is set to run in a chat that belongs to somebody else";
    assert_eq!(yard.press("a", "r").await.unwrap_err(), json!({ "code": -32009, "message": why }));
    yard.fire(1).await;
    let runs = kept.runs_of("a");
    assert_eq!(statuses(&runs), ["failed"]);
    assert_eq!(runs[0]["lifecycle"]["error"]["message"], why);
    assert_eq!(runs[0]["lifecycle"].get("startedAt"), None);
}

#[tokio::test(start_paused = true)]
async fn one_nobody_owns_is_woken_only_where_the_host_lets_it() {
    let kept = Kept::default();
    kept.put("nobodys", on_build(json!({})));
    kept.put_of("roots", Some("root:host"), on_build(json!({})));
    let mut yard = Yard::with(&kept, Stage::default(), |builder| {
        builder.options(|options| options.unowned_automations = false)
    })
    .await;
    assert_eq!(yard.fire(1).await.len(), 1);
    assert_eq!((kept.runs_of("nobodys").len(), kept.runs_of("roots").len()), (0, 1));
    assert_eq!(kept.runs_of("roots")[0]["_meta"]["ostler.owner"], "root:host");
    yard.press("nobodys", "r").await.expect("a press is nobody's event");
}

#[tokio::test(start_paused = true)]
async fn a_run_acts_as_its_owner_who_has_to_be_known_and_to_hold_what_it_takes() {
    let kept = Kept::default();
    for (id, owner) in [
        ("plugins", "plugin:builds"),
        ("roots", "root:inn"),
        ("adas", "user:ada"),
        ("bens", "user:ben"),
        ("cleos", "user:cleo"),
        ("dans", "user:dan"),
        ("eves", "user:eve"),
        ("fays", "user:fay"),
    ] {
        kept.put_of(id, Some(owner), on_build(json!({})));
    }
    let known = people(
        &["ada", "ben", "dan"],
        &[
            ("ada", &["session:read", "session:create"]),
            ("ben", &["session:create"]),
            ("cleo", &["session:read", "session:create"]),
            ("dan", &["session:read"]),
            ("eve", &["session:read"]),
        ],
    );
    let mut yard = Yard::with(&kept, Stage::default(), |builder| builder.people(known)).await;
    yard.fire(1).await;
    let session = kept.runs_of("adas")[0]["primarySession"].as_str().unwrap().to_owned();
    assert_eq!(yard.host.host.sessions.by_uri(&session).unwrap().owner.as_deref(), Some("user:ada"));
    assert_eq!(kept.runs_of("adas")[0]["_meta"]["ostler.owner"], "user:ada");
    assert_eq!(statuses(&kept.runs_of("roots")), ["running"]);
    assert_eq!(
        (kept.runs_of("plugins").len(), kept.runs_of("bens").len()),
        (0, 0),
        "they may not read a session"
    );
    let refused = [
        ("cleo", "cleo has to sign in once before an automation of theirs may run"),
        ("dan", "user:dan may not session:create here"),
        // A sign-in would change nothing.
        ("eve", "user:eve may not session:create here"),
    ];
    for (id, why) in refused {
        let runs = kept.runs_of(&format!("{id}s"));
        assert_eq!(statuses(&runs), ["failed"]);
        assert_eq!(runs[0]["lifecycle"]["error"]["message"], why);
        let pressed = yard.press(&format!("{id}s"), "r").await.unwrap_err();
        assert_eq!((&pressed["code"], &pressed["message"]), (&json!(-32009), &json!(why)));
    }
    let gone = yard.press("fays", "r").await.unwrap_err();
    assert_eq!(gone["message"], "fay is not a user of this host, so no automation of theirs may run");
    assert_eq!(kept.runs_of("fays").len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_run_is_asked_of_its_owners_policies_with_the_agent_and_model_it_names() {
    let kept = Kept::default();
    let with_model = |model: &str| {
        let mut definition = on_build(json!({}));
        definition["session"] = json!({ "provider": "stage", "model": { "id": model } });
        definition
    };
    kept.put_of("small", Some("user:ada"), with_model("maker/small"));
    kept.put_of("large", Some("user:ada"), with_model("maker/large"));
    let mut pinned = with_model("maker/large");
    pinned["_meta"]["ostler"]["pinned"] = json!(true);
    kept.put_of("pinned", Some("user:ada"), pinned);
    let mut another = on_build(json!({}));
    another["session"] = json!({ "provider": "echo" });
    kept.put_of("another", Some("user:ada"), another);
    let known = people(&["ada"], &[("ada", &["session:read", "session:create"])]);
    let rows = [
        json!({ "id": "yes", "scope": "all", "kind": "agent", "effect": "allow" }),
        json!({ "id": "frugal", "scope": "user:ada", "kind": "agent", "effect": "deny",
            "match": { "model": ["maker/large"] } }),
        json!({ "id": "quiet", "scope": "all", "kind": "agent", "effect": "deny", "match": { "agent": ["echo"] } }),
    ];
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = reads.clone();
    let policies = ostler_contract::points::Policies {
        list: ostler_contract::Call::now(move |()| {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(rows.iter().map(|row| row.as_object().cloned().unwrap()).collect())
        }),
        get: ostler_contract::Call::now(|_| Ok(None)),
        put: ostler_contract::Call::now(|_| Ok(())),
        remove: ostler_contract::Call::now(|_| Ok(false)),
        close: None,
    };
    let mut yard = Yard::with(&kept, Stage::default(), |builder| {
        let builder = builder.plugin(ostler_plugin_echo::plugin(), json!({}));
        builder.people(known).policies(policies).options(|options| options.check_policies = true)
    })
    .await;
    // The host itself looks when it starts.
    reads.store(0, Ordering::SeqCst);
    for id in ["small", "large", "pinned", "another"] {
        yard.press(id, "r").await.unwrap();
    }
    let waits = |id: &&str| kept.runs_of(id).is_empty() || statuses(&kept.runs_of(id)) == ["pending"];
    while ["small", "large", "pinned", "another"].iter().any(waits) {
        settle().await;
    }
    assert_eq!(statuses(&kept.runs_of("small")), ["running"]);
    assert_eq!(reads.load(Ordering::SeqCst), 4, "once for each run");
    let frugal = "frugal refuses agent stage with model maker/large";
    for (id, why) in [("large", frugal), ("pinned", frugal), ("another", "quiet refuses agent echo")] {
        let runs = kept.runs_of(id);
        assert_eq!(statuses(&runs), ["failed"]);
        assert_eq!(runs[0]["lifecycle"]["error"]["message"], why);
    }
    assert_eq!(yard.host.host.sessions.count(), 1, "no session is made for what is refused");
}

#[tokio::test(start_paused = true)]
async fn the_same_press_is_the_same_run_after_a_crash_too() {
    let kept = Kept::default();
    kept.put("a", on_build(json!({})));
    let mut yard = Yard::new(&kept).await;
    let run = yard.press("a", "r").await.unwrap();
    drop(yard);
    let mut yard = Yard::new(&kept).await;
    assert_eq!(yard.press("a", "r").await.unwrap(), run);
    assert_ne!(yard.press("a", "other").await.unwrap(), run);
}

#[tokio::test(start_paused = true)]
async fn a_removed_automation_leaves_no_run_behind() {
    let kept = Kept::default();
    kept.put("a", on_build(json!({})));
    let yard = Yard::new(&kept).await;
    yard.fire(1).await;
    yard.fire(2).await;
    let removed = json!({ "type": "automation/removed", "resource": "ahp-automation:/a" });
    yard.client.dispatch("ahp-automations://", 1, removed).await;
    settle().await;
    yard.end(0, 0).await;
    assert_eq!(kept.runs_of("a"), Vec::<Value>::new());
    assert_eq!(yard.begun().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_an_event_carried_is_read_by_whoever_may_read_the_automation() {
    let kept = Kept::default();
    kept.put_of("a", Some("root:inn"), on_build(json!({})));
    let known = people(&[], &[("ada", &["automation:list"]), ("ben", &["session:read", "automation:run"])]);
    let yard = Yard::with(&kept, Stage::default(), |builder| builder.people(known)).await;
    let run = yard.fire(7).await.remove(0);
    for (id, may) in [("ada", true), ("ben", false)] {
        let mut client = yard.host.raw_as(person(&yard, id));
        client.initialize(id).await;
        for channel in ["ahp-automations://", &run] {
            let answer = client.request("subscribe", json!({ "channel": channel })).await;
            let text = match &answer {
                Ok(read) => read.to_string(),
                Err(refused) => refused["message"].to_string(),
            };
            assert_eq!(text.contains(r#""event":{"n":7,"event":"done"}"#), may, "{id} {channel}: {text}");
            assert_eq!(answer.is_ok(), may, "{text}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_has_ended_is_shown_so_before_its_end_is_kept() {
    let kept = Kept::default();
    kept.put("a", on_build(json!({})));
    let mut yard = Yard::new(&kept).await;
    let run = yard.fire(1).await.remove(0);
    kept.stuck.store(true, std::sync::atomic::Ordering::SeqCst);
    yard.end(0, 0).await;
    assert_eq!(statuses(&kept.runs_of("a")), ["running"], "the store has not heard of it");
    let seen = yard.client.request("subscribe", json!({ "channel": run })).await.unwrap();
    assert_eq!(seen["snapshot"]["state"]["lifecycle"]["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_burst_that_one_run_waits_for_is_kept_in_few_writes_and_answered_after_them() {
    const BURST: usize = 1000;
    let kept = Kept::default();
    kept.put("a", on_build(json!({ "hourlyCap": 5000 })));
    let yard = Yard::new(&kept).await;
    yard.fire(0).await;
    let waiting = yard.fire(1).await;
    let before = kept.writes.load(Ordering::SeqCst);
    let builds = yard.host.plugin("builds");
    let fire = |n: usize| {
        let data = json!({ "n": n }).as_object().cloned().unwrap();
        builds.fire_trigger("build".into(), "done".into(), data).unwrap().kept.call(())
    };
    let answers = futures::future::join_all((2..BURST + 2).map(fire)).await;
    assert!(answers.into_iter().all(|answer| answer.unwrap() == waiting));
    let run = kept.runs_of("a")[1].clone();
    assert_eq!(run["_meta"]["ostler.count"], BURST + 1, "every one is kept by the time it is answered");
    assert_eq!(run["_meta"]["ostler.latest"]["n"], BURST + 1);
    let writes = kept.writes.load(Ordering::SeqCst) - before;
    assert!(writes <= 10, "{writes} writes");

    // What is not kept is not said to be, and a store that does not answer is waited for in a limited time.
    kept.stuck.store(true, Ordering::SeqCst);
    let answer = tokio::time::timeout(std::time::Duration::from_secs(60), fire(0)).await;
    assert!(answer.expect("in time").is_err());
}

/// On one worker, as the daemon has it on two processors. Time is real, since it cannot be paused there; the number of writes
/// depends on the order in which the worker polls its tasks, and not on how long they take.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn half_of_a_bursts_callers_share_a_write_while_the_others_are_handled() {
    const CALLERS: usize = 32;
    const EACH: usize = 20;
    let kept = Kept::default();
    kept.put("a", on_build(json!({ "hourlyCap": 5000 })));
    let yard = Arc::new(Yard::new(&kept).await);
    yard.fire(0).await;
    yard.fire(1).await;
    *kept.slow.lock().unwrap() = Some(Duration::from_millis(2));
    let before = kept.writes.load(Ordering::SeqCst);
    let callers = (0..CALLERS).map(|_| {
        let yard = yard.clone();
        tokio::spawn(async move {
            for n in 0..EACH {
                let data = json!({ "n": n }).as_object().cloned().unwrap();
                let fired = yard.host.plugin("builds").fire_trigger("build".into(), "done".into(), data);
                fired.unwrap().kept.call(()).await.unwrap();
            }
        })
    });
    futures::future::try_join_all(callers.collect::<Vec<_>>()).await.unwrap();
    let writes = kept.writes.load(Ordering::SeqCst) - before;
    assert_eq!(kept.runs_of("a")[1]["_meta"]["ostler.count"], CALLERS * EACH + 1);
    // All callers together would share about as many as each of them makes calls.
    assert!((EACH * 3 / 2..EACH * 3).contains(&writes), "{writes} writes for {EACH} calls of each caller");
}

#[tokio::test(start_paused = true)]
async fn many_wakes_one_after_the_other_publish_the_entry_a_bounded_number_of_times() {
    let kept = Kept::default();
    kept.put("a", on_build(json!({})));
    let mut yard = Yard::new(&kept).await;
    yard.entry("a").await;
    for n in 0..200 {
        yard.fire(n).await;
    }
    let sets = |frames: Vec<Value>| -> Vec<Value> {
        let sets = frames.into_iter().filter(|frame| frame["params"]["action"]["type"] == "automation/set");
        sets.map(|set| set["params"]["action"]["automation"]["runs"][0]["_meta"]["ostler.count"].clone())
            .collect()
    };
    let published = sets(yard.client.ready_frames().await);
    assert!((1..=16).contains(&published.len()), "{published:?}");
    assert_eq!(yard.entry("a").await["runs"][0]["_meta"]["ostler.count"], 199, "a snapshot has them all");
    tokio::time::sleep(Duration::from_millis(60)).await;
    settle().await;
    assert_eq!(sets(yard.client.ready_frames().await), [json!(199)], "the others share one publication");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_begins_once_a_burst_of_wakes_is_over() {
    let kept = Kept::default();
    kept.put("a", on_build(json!({})));
    let yard = Yard::new(&kept).await;
    for n in 0..22 {
        yard.fire(n).await;
    }
    yard.end(0, 0).await;
    assert_eq!(statuses(&kept.runs_of("a")), ["completed", "pending"]);
    yard.fire(22).await;
    assert_eq!(yard.begun().len(), 1, "a wake is still counted into it");
    tokio::time::sleep(Duration::from_millis(30)).await;
    settle().await;
    assert_eq!(statuses(&kept.runs_of("a")), ["completed", "running"]);
    assert!(yard.begun()[1].1.contains("\nCount: 22\n"), "{:?}", yard.begun());
}
