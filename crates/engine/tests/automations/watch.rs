//! Automations that watch sessions: rules, presets, and what their runs say.

use crate::support::{Kept, Yard, pass, settle};
use ostler_contract::{Value, json};

const SESSION: &str = "stage:/mine";

fn rule(event: &str, config: Value) -> Value {
    trigger("session", event, config)
}

fn watch(preset: &str, config: Value) -> Value {
    trigger("watch", preset, config)
}

fn trigger(r#type: &str, event: &str, config: Value) -> Value {
    json!({
        "triggers": [{ "id": "t", "kind": "event", "type": r#type, "title": "Something",
            "events": [{ "id": event, "title": event }], "config": config }],
        "message": { "text": "Look at {{sessionTitle}}.", "origin": { "kind": "automation" } },
        "_meta": { "ostler": { "overlap": "parallel" } },
    })
}

/// A host with one watching automation and a session of somebody's own, whose backend is the first.
async fn watched(definition: Value) -> Yard {
    let kept = Kept::default();
    kept.put("w", definition);
    let mut yard = Yard::new(&kept).await;
    yard.client.request("createSession", json!({ "channel": SESSION, "provider": "stage" })).await.unwrap();
    settle().await;
    yard
}

async fn begin(yard: &mut Yard, turn: &str) {
    let chat = ostler_protocol::uri::default_chat(SESSION);
    let started = json!({ "type": "chat/turnStarted", "turnId": turn, "message": { "text": "Mine" } });
    yard.client.dispatch(&chat, 1, started).await;
    settle().await;
}

async fn queue(yard: &mut Yard, id: &str) {
    let chat = ostler_protocol::uri::default_chat(SESSION);
    let queued = json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": id,
        "message": { "text": "next", "origin": { "kind": "user" } } });
    yard.client.dispatch(&chat, 2, queued).await;
    settle().await;
}

async fn end(yard: &Yard, turn: &str) {
    yard.emit(0, json!({ "type": "chat/turnComplete", "turnId": turn, "duration": 1 }));
    settle().await;
}

async fn fail(yard: &Yard, turn: &str) {
    yard.emit(
        0,
        json!({ "type": "chat/error", "turnId": turn, "duration": 1,
            "part": { "kind": "error", "error": { "errorType": "x", "message": "broke" } } }),
    );
    settle().await;
}

async fn tool(yard: &Yard, turn: &str, call: &str, input: &str, success: bool) {
    for action in [
        json!({ "type": "chat/toolCallStart", "turnId": turn, "toolCallId": call, "toolName": "sh", "displayName": "Shell" }),
        json!({ "type": "chat/toolCallReady", "turnId": turn, "toolCallId": call, "invocationMessage": "Runs",
            "toolInput": input, "confirmed": "not-needed" }),
        json!({ "type": "chat/toolCallComplete", "turnId": turn, "toolCallId": call,
            "result": { "success": success, "pastTenseMessage": "Ran" } }),
    ] {
        yard.emit(0, action);
    }
    settle().await;
}

fn woken(yard: &Yard) -> usize {
    yard.kept.runs_of("w").len()
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_finished_wakes_a_run_that_says_which() {
    let mut yard = watched(rule("turnCompleted", json!({}))).await;
    begin(&mut yard, "t").await;
    assert_eq!(woken(&yard), 0);
    end(&yard, "t").await;
    let run = yard.kept.runs_of("w")[0].clone();
    let event = &run["origin"]["event"];
    assert_eq!(
        (&event["event"], &event["session"], &event["provider"], &event["automated"], &event["count"]),
        (&json!("turnCompleted"), &json!(SESSION), &json!("stage"), &json!(false), &json!(1))
    );
    let said = yard.begun()[1].1.clone();
    assert!(
        said.starts_with("Look at Mine.\n\nWhat woke this run: turnCompleted\nSession: Mine (stage:/mine)\nCount: 1\nAt: 2026-"),
        "{said}"
    );
    // Its own session ends a turn too, which wakes nothing.
    yard.end(1, 1).await;
    assert_eq!(woken(&yard), 1);
    begin(&mut yard, "f").await;
    fail(&yard, "f").await;
    assert_eq!(woken(&yard), 1, "one that failed did not finish");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_finished_wakes_what_waits_for_its_lead() {
    let mut yard = watched(rule("childFinished", json!({ "filter": { "sessions": [SESSION] } }))).await;
    begin(&mut yard, "t").await;
    let started = json!({ "type": "chat/toolCallStart", "turnId": "t", "toolCallId": "w1", "toolName": "task",
        "displayName": "Task" });
    let ready = json!({ "type": "chat/toolCallReady", "turnId": "t", "toolCallId": "w1",
        "invocationMessage": "Working", "confirmed": "not-needed" });
    yard.emit(0, started);
    yard.emit(0, ready);
    let request = serde_json::from_value(json!({ "title": "Digger", "prompt": "Dig." })).unwrap();
    let worker = yard.stage.start(0).subagent.unwrap().call(("w1".to_owned(), request)).await.unwrap();
    settle().await;
    assert_eq!(woken(&yard), 0, "it still digs");
    worker.end.call((ostler_contract::events::TurnStatus::Complete, None)).unwrap();
    settle().await;
    let event = yard.kept.runs_of("w")[0]["origin"]["event"].clone();
    assert_eq!(
        (&event["event"], &event["session"], &event["child"]),
        (&json!("childFinished"), &json!(SESSION), &json!(worker.uri))
    );
    end(&yard, "t").await;
    assert_eq!(woken(&yard), 1, "the lead is nobody's child");
}

#[tokio::test(start_paused = true)]
async fn a_rule_counts_and_forgets() {
    let mut yard = watched(rule("toolFailed", json!({ "count": { "n": 3, "within": "5m" } }))).await;
    begin(&mut yard, "t").await;
    tool(&yard, "t", "1", "a", false).await;
    tool(&yard, "t", "2", "a", true).await;
    tool(&yard, "t", "3", "b", false).await;
    pass(301).await;
    tool(&yard, "t", "4", "c", false).await;
    tool(&yard, "t", "5", "d", false).await;
    assert_eq!(woken(&yard), 0, "two of the four are too old");
    tool(&yard, "t", "6", "e", false).await;
    assert_eq!(woken(&yard), 1);
    let event = yard.kept.runs_of("w")[0]["origin"]["event"].clone();
    assert_eq!((&event["count"], &event["tool"], &event["toolCalls"]), (&json!(3), &json!("sh"), &json!(6)));
    tool(&yard, "t", "7", "e", false).await;
    tool(&yard, "t", "8", "e", false).await;
    assert_eq!(woken(&yard), 1, "it begins to count anew");
}

#[tokio::test(start_paused = true)]
async fn a_filter_leaves_other_sessions_alone() {
    for (filter, is_mine) in [
        (json!({ "sessions": [SESSION] }), true),
        (json!({ "sessions": ["stage:/other"] }), false),
        (json!({ "providers": ["stage", "other"], "automated": false }), true),
        (json!({ "providers": ["other"] }), false),
        (json!({ "automated": true }), false),
        (json!({ "owners": ["user:ada"] }), false),
        (json!({ "projects": ["p"] }), false),
        (json!({ "folders": ["/work"] }), true),
        (json!({ "folders": ["/wor"] }), false),
        (json!({ "folders": ["file:///work/yard"] }), true),
    ] {
        let kept = Kept::default();
        kept.put("w", rule("idle", json!({ "filter": filter.clone() })));
        let mut yard = Yard::new(&kept).await;
        let create =
            json!({ "channel": SESSION, "provider": "stage", "workingDirectories": ["file:///work/yard"] });
        yard.client.request("createSession", create).await.unwrap();
        settle().await;
        begin(&mut yard, "t").await;
        end(&yard, "t").await;
        assert_eq!(woken(&yard), usize::from(is_mine), "{filter}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_has_to_follow_or_to_stay_away() {
    let follows = json!({ "then": { "kind": "event", "event": "turnFailed", "within": "1m" } });
    let mut yard = watched(rule("toolFailed", follows)).await;
    begin(&mut yard, "t").await;
    tool(&yard, "t", "1", "a", false).await;
    pass(61).await;
    fail(&yard, "t").await;
    assert_eq!(woken(&yard), 0, "it came too late");
    begin(&mut yard, "u").await;
    tool(&yard, "u", "2", "a", false).await;
    fail(&yard, "u").await;
    assert_eq!(woken(&yard), 1);

    let absent = json!({ "then": { "kind": "absent", "event": "turnCompleted", "for": "2m" } });
    let mut yard = watched(rule("toolFailed", absent)).await;
    begin(&mut yard, "t").await;
    tool(&yard, "t", "1", "a", false).await;
    end(&yard, "t").await;
    pass(600).await;
    assert_eq!(woken(&yard), 0, "it came");
    begin(&mut yard, "u").await;
    tool(&yard, "u", "2", "a", false).await;
    pass(119).await;
    assert_eq!(woken(&yard), 0);
    pass(2).await;
    assert_eq!(woken(&yard), 1);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_looks_stuck() {
    let mut yard = watched(watch("looks-stuck", json!({}))).await;
    begin(&mut yard, "t").await;
    tool(&yard, "t", "1", "same", true).await;
    tool(&yard, "t", "2", "same", true).await;
    tool(&yard, "t", "3", "other", true).await;
    assert_eq!(woken(&yard), 0);
    tool(&yard, "t", "4", "same", true).await;
    assert_eq!(woken(&yard), 1);
    assert_eq!(yard.kept.runs_of("w")[0]["origin"]["event"]["event"], "looks-stuck");
}

#[tokio::test(start_paused = true)]
async fn tools_that_fail_one_after_the_other() {
    let mut yard = watched(watch("failing-tools", json!({ "times": 2 }))).await;
    begin(&mut yard, "t").await;
    tool(&yard, "t", "1", "a", false).await;
    tool(&yard, "t", "2", "b", true).await;
    tool(&yard, "t", "3", "c", false).await;
    assert_eq!(woken(&yard), 0, "one in between worked");
    tool(&yard, "t", "4", "d", false).await;
    assert_eq!(woken(&yard), 1);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_silent_for_long() {
    let mut yard = watched(watch("long-silent-turn", json!({ "minutes": 2 }))).await;
    begin(&mut yard, "t").await;
    pass(100).await;
    tool(&yard, "t", "1", "a", true).await;
    pass(100).await;
    assert_eq!(woken(&yard), 0, "it stirred in between");
    pass(30).await;
    assert_eq!(woken(&yard), 1, "while it still runs");
    pass(600).await;
    assert_eq!(woken(&yard), 1, "once a turn");
    end(&yard, "t").await;
    begin(&mut yard, "u").await;
    end(&yard, "u").await;
    pass(600).await;
    assert_eq!(woken(&yard), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failure_nobody_follows_up() {
    let mut yard = watched(watch("idle-after-failure", json!({}))).await;
    begin(&mut yard, "t").await;
    fail(&yard, "t").await;
    pass(170).await;
    begin(&mut yard, "u").await;
    end(&yard, "u").await;
    pass(600).await;
    assert_eq!(woken(&yard), 0, "somebody went on");
    begin(&mut yard, "v").await;
    fail(&yard, "v").await;
    pass(181).await;
    assert_eq!(woken(&yard), 1);
}

#[tokio::test(start_paused = true)]
async fn a_message_behind_a_busy_turn() {
    let mut yard = watched(watch("waiting-while-busy", json!({ "toolCalls": 2 }))).await;
    begin(&mut yard, "t").await;
    tool(&yard, "t", "1", "a", true).await;
    queue(&mut yard, "m1").await;
    assert_eq!(woken(&yard), 0, "it has hardly begun");
    tool(&yard, "t", "2", "a", true).await;
    queue(&mut yard, "m2").await;
    assert_eq!(woken(&yard), 1);
    assert_eq!(yard.kept.runs_of("w")[0]["origin"]["event"]["queued"], 2);
}

#[tokio::test(start_paused = true)]
async fn the_hosts_own_types_come_first_and_a_rule_that_is_none_is_refused() {
    let mut yard = watched(rule("idle", json!({}))).await;
    let types = yard.client.request("listAutomationTriggerDefinitions", json!({})).await.unwrap();
    let names: Vec<_> = types["items"].as_array().unwrap().iter().map(|one| one["type"].clone()).collect();
    assert_eq!(names, ["session", "watch", "build"]);
    let changed = rule("idle", json!({ "count": { "n": 0 } }));
    let refused = yard.update("w", json!({ "triggers": changed["triggers"] })).await;
    assert_eq!(refused.as_deref(), Some("count.n has to be a whole number of 1 or more"));
    let unlisted = trigger("nobodys", "x", json!({}));
    assert_eq!(yard.update("w", json!({ "triggers": unlisted["triggers"] })).await, None, "it never fires");
}
