//! `when` of an endpoint: which calls fire automations.

use crate::support::{SECRET, World, automation, endpoint, folder, read, request, write};
use ostler_contract::{Bodies, Budget, json};

#[tokio::test]
async fn a_call_that_when_leaves_out_is_accepted_and_fires_nothing() {
    let dir = folder();
    let when = r#"event.action == "opened" && "bug" in event.labels.pluck("name") && headers["x-event-key"] == "issue""#;
    endpoint(dir.path(), "fire", &format!("automation: true\ndedupe: X-Delivery\nwhen: >-\n  {when}"));
    automation(dir.path(), "fire");
    let world = World::start(&dir).await;
    let bearer = format!("Bearer {SECRET}");
    let call = async |kind: &str, delivery: &str, body: String| {
        let headers = [("authorization", &*bearer), ("x-event-key", kind), ("x-delivery", delivery)];
        world.post_with("fire", body, &headers).await
    };
    let body = |action: &str, more: &str| {
        json!({ "action": action, "labels": [{ "name": "bug" }], "more": more }).to_string()
    };
    let accepted = (202, json!({ "endpoint": "fire" }));
    assert_eq!(call("issue", "1", body("opened", "")).await, accepted);
    assert_eq!(call("issue", "2", body("closed", "")).await, accepted);
    assert_eq!(call("push", "3", body("opened", "")).await, accepted);
    assert_eq!(call("issue", "4", "{}".to_owned()).await, accepted);
    assert_eq!(world.runs("fire").await, 1);
    // Long bodies are not read on the way to the automations, but the expression sees all of them.
    let long = "x".repeat(300 * 1024);
    assert_eq!(call("issue", "5", body("opened", &long)).await, accepted);
    assert_eq!(call("issue", "6", body("closed", &long)).await, accepted);
    assert_eq!(world.runs("fire").await, 2);
    assert_eq!(call("issue", "2", body("opened", "")).await, accepted, "answered as the first");
    assert_eq!(world.runs("fire").await, 2);
    let rows = world.deliveries("fire", 7).await;
    let left_out: Vec<bool> = rows.iter().map(|row| row["leftOut"] == true).collect();
    assert_eq!(left_out, [false, true, true, true, false, true, false]);

    assert_eq!(call("issue", "7", "[]".to_owned()).await.0, 400);
    let larger = body("opened", &"x".repeat(1024 * 1024));
    assert_eq!(call("issue", "8", larger).await.0, 400, "an expression is asked about so much");
    let values = json!({ "action": "opened", "list": vec![0; 140_000] }).to_string();
    let many = call("issue", "9", values).await;
    assert_eq!(many, (400, json!({ "message": "The body is JSON with more than 100000 values" })));
    assert_eq!(world.runs("fire").await, 2);
}

#[tokio::test]
async fn a_filter_that_fails_has_the_sender_try_again() {
    let dir = folder();
    endpoint(dir.path(), "fire", "automation: true\ndedupe: X-Delivery\nwhen: event.action");
    automation(dir.path(), "fire");
    let world = World::start(&dir).await;
    let bearer = format!("Bearer {SECRET}");
    let headers = [("authorization", &*bearer), ("x-delivery", "1")];
    for _ in 0..3 {
        let answer = world.post_with("fire", r#"{"action":"hush"}"#, &headers).await;
        assert_eq!(answer, (500, json!({ "message": "The endpoint's filter failed; see the host's log" })));
    }
    let line = world.host.log.wait_for("cannot evaluate when: ").await;
    assert_eq!(
        line,
        "plugin webhook: endpoint webhooks/fire cannot evaluate when: it is string, not true or false"
    );
    assert_eq!(world.host.log.all().iter().filter(|line| line.contains("cannot evaluate")).count(), 1);
    // The record is edited within the minute, and fails differently.
    endpoint(dir.path(), "fire", "automation: true\ndedupe: X-Delivery\nwhen: event.action.nothing()");
    let answered = async || {
        let answer = world.post_with("fire", r#"{"action":"hush"}"#, &headers).await;
        world.host.log.has("cannot evaluate when: Function not found: nothing").then_some(answer)
    };
    assert_eq!(crate::support::until(answered).await.0, 500);
    let rows = world.deliveries("fire", 4).await;
    assert_eq!(rows[0]["why"], "cannot evaluate when: it is string, not true or false");
    let why = rows.last().unwrap()["why"].as_str().unwrap();
    assert!(why.starts_with("cannot evaluate when: Function not found: nothing"), "{why}");
    endpoint(dir.path(), "fire", "automation: true\ndedupe: X-Delivery\nwhen: event.action == \"hush\"");
    let world = world.again().await;
    assert_eq!(world.post_with("fire", r#"{"action":"hush"}"#, &headers).await.0, 202);
    assert_eq!(world.runs("fire").await, 1, "the sender's next try fires");
}

#[tokio::test]
async fn a_record_with_a_wrong_expression_is_no_endpoint() {
    let dir = folder();
    for (id, fields) in [
        ("loops", "automation: true\nwhen: \"while true {}\""),
        ("names", "automation: true\nwhen: evnt.a == 1"),
        ("bot", "bot: bot://echo\nreply: none\nwhen: event.a == 1"),
        ("number", "automation: true\nwhen: 5"),
    ] {
        endpoint(dir.path(), id, fields);
    }
    write(
        dir.path(),
        "webhooks/good.md",
        "---\nid: good\nautomation: true\nsecret: host:hook\nwhen: event.a == 1\n---\n",
    );
    let world = World::start(&dir).await;
    for id in ["loops", "names", "bot", "number"] {
        assert_eq!(world.post(id, "{}").await.0, 404, "{id}");
        world.host.log.wait_for(&format!("endpoint webhooks/{id}: when ")).await;
    }
    assert_eq!(world.post("good", "{}").await.0, 202);
    assert!(world.host.log.has("endpoint webhooks/names: when is invalid: Undefined variable: evnt"));
}

#[tokio::test]
async fn values_of_a_call_wait_for_memory_and_are_refused_without() {
    let dir = folder();
    endpoint(dir.path(), "plain", "automation: true");
    endpoint(dir.path(), "asked", "automation: true\nwhen: event.a == 1");
    let world = World::start(&dir).await;
    let budget = Budget::new(8 * 1024 * 1024);
    let bodies = Bodies::new(budget.clone(), 0);
    let bearer = format!("Bearer {SECRET}");
    let call = async |endpoint: &str, body: &str| {
        let mut request = request(endpoint, body.to_owned(), &[("authorization", &bearer)]);
        request.extensions_mut().insert(bodies.clone());
        read(world.send(request).await).await.0
    };
    let values = format!(r#"{{"a":1,"d":[{}0]}}"#, "[[]],".repeat(20_000));
    let text = format!(r#"{{"a":1,"d":"{}"}}"#, "x".repeat(100_000));
    for endpoint in ["plain", "asked"] {
        let used = budget.take_anyway(4 * 1024 * 1024);
        assert_eq!(call(endpoint, &text).await, 202, "it has few values");
        assert_eq!(call(endpoint, &values).await, 503);
        drop(used);
        assert_eq!(call(endpoint, r#"{"a":1}"#).await, 202);
        assert_eq!(budget.used(), 0, "every charge ended");
    }
}
