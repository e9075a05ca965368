//! Endpoints with `format: cloudevents`.

use crate::support::{SECRET, World, automation, endpoint, folder, read, request};
use ostler_contract::http::Method;
use ostler_contract::{Value, json};
use ring::hmac;

const STRUCTURED: &str = "application/cloudevents+json; charset=utf-8";

/// The attributes of an event, as headers.
fn binary<'a>(id: &'a str, bearer: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        ("authorization", bearer),
        ("ce-specversion", "1.0"),
        ("ce-type", "com.example.someevent"),
        ("ce-source", "/mycontext/subcontext"),
        ("ce-id", id),
        ("content-type", "application/json"),
    ]
}

fn event(source: &str, id: &str) -> String {
    json!({ "specversion": "1.0", "type": "com.example.someevent", "source": source, "id": id, "data": { "a": 1 } })
        .to_string()
}

async fn newest(world: &World) -> Value {
    let state = world.chat("ahp-automations://").await;
    state["entries"][0]["runs"][0]["origin"]["event"].clone()
}

#[tokio::test]
async fn an_event_fires_in_either_mode_and_once() {
    let dir = folder();
    endpoint(dir.path(), "events", "automation: true\nformat: cloudevents\ndedupe: true");
    automation(dir.path(), "events");
    let world = World::start(&dir).await;
    let bearer = format!("Bearer {SECRET}");
    let structured = async |body: String| {
        world.post_with("events", body, &[("authorization", &bearer), ("content-type", STRUCTURED)]).await
    };
    let accepted = (202, json!({ "endpoint": "events" }));
    assert_eq!(structured(event("/a", "1")).await, accepted);
    let fired = newest(&world).await;
    assert_eq!((&fired["type"], &fired["data"]["a"]), (&json!("com.example.someevent"), &json!(1)));
    assert_eq!(structured(event("/a", "1")).await, accepted);
    assert_eq!(world.runs("events").await, 1, "the same event");
    assert_eq!(structured(event("/b", "1")).await, accepted);
    assert_eq!(world.runs("events").await, 2, "an id is one of its source");

    for _ in 0..2 {
        assert_eq!(world.post_with("events", r#"{"b":2}"#, &binary("1", &bearer)).await, accepted);
    }
    assert_eq!(world.runs("events").await, 3);
    let fired = newest(&world).await;
    assert_eq!(
        fired,
        json!({
            "specversion": "1.0", "type": "com.example.someevent", "source": "/mycontext/subcontext", "id": "1",
            "datacontenttype": "application/json", "data": { "b": 2 }, "endpoint": "events", "event": "call",
        })
    );

    let batch = [("authorization", bearer.as_str()), ("content-type", "application/cloudevents-batch+json")];
    assert_eq!(world.post_with("events", "[]", &batch).await.0, 415);
    assert_eq!(structured("{}".to_owned()).await.0, 400);
    assert_eq!(world.post("events", "{}").await.0, 400, "what has no attributes is not an event");
    assert_eq!(structured(" ".repeat((1 << 20) + 1)).await.0, 400);
    let stranger = [("content-type", STRUCTURED), ("authorization", "Bearer wrong")];
    assert_eq!(world.post_with("events", event("/c", "1"), &stranger).await.0, 401);
    assert_eq!(world.runs("events").await, 3);
}

#[tokio::test]
async fn an_event_can_be_signed_and_can_talk_to_a_bot() {
    let dir = folder();
    endpoint(
        dir.path(),
        "signed",
        "automation: true\nformat: cloudevents\nverify: { scheme: hmac, header: X-Signature }",
    );
    automation(dir.path(), "signed");
    endpoint(dir.path(), "bot", "bot: bot://echo\nreply: sync\nformat: cloudevents");
    let world = World::start(&dir).await;
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), b"hello=world");
    let signature = hex::encode(signature);
    let mut headers = binary("1", &signature);
    headers[0].0 = "x-signature";
    headers[5].1 = "application/x-www-form-urlencoded";
    assert_eq!(world.post_with("signed", "hello=world", &headers).await.0, 202);
    assert_eq!(newest(&world).await["data_base64"], "aGVsbG89d29ybGQ=", "the data is the form as it came");
    headers[0].1 = "00";
    assert_eq!(world.post_with("signed", "hello=world", &headers).await.0, 401);

    let bearer = format!("Bearer {SECRET}");
    let (status, body) = world.post_with("bot?thread=t", r#"{"b":2}"#, &binary("1", &bearer)).await;
    let said: Value = serde_json::from_str(body["text"].as_str().unwrap()).unwrap();
    assert_eq!((status, &said["data"], &said["id"]), (200, &json!({ "b": 2 }), &json!("1")));
}

#[tokio::test]
async fn a_sender_that_asks_first_may_call() {
    let dir = folder();
    endpoint(dir.path(), "events", "automation: true\nformat: cloudevents");
    endpoint(dir.path(), "slow", "automation: true\nformat: cloudevents\nlimit: { calls: 2, per: 1s }");
    endpoint(dir.path(), "fire", "automation: true");
    let world = World::start(&dir).await;
    let ask = async |path: &str, headers: &[(&str, &str)]| {
        let mut request = request(path, "", headers);
        *request.method_mut() = Method::OPTIONS;
        world.send(request).await
    };
    let origin = ("webhook-request-origin", "eventemitter.example.com");
    for (path, rate) in [("events", "*"), ("slow", "120")] {
        let response = ask(path, &[origin, ("webhook-request-rate", "1000")]).await;
        assert_eq!(response.status().as_u16(), 200);
        let header = |name: &str| response.headers()[name].to_str().unwrap();
        assert_eq!(header("webhook-allowed-origin"), "eventemitter.example.com");
        assert_eq!((header("webhook-allowed-rate"), header("allow")), (rate, "POST"));
    }
    let long = "a".repeat(256);
    for headers in [
        &[][..],
        &[origin, origin],
        &[("webhook-request-origin", "a b")],
        &[("webhook-request-origin", "")],
        &[("webhook-request-origin", &long)],
    ] {
        let response = ask("events", headers).await;
        assert!(response.headers().get("webhook-allowed-origin").is_none());
        assert_eq!(read(response).await.0, 405, "{headers:?}");
    }
    assert_eq!(read(ask("fire", &[origin]).await).await.0, 405, "no endpoint for events");
    assert_eq!(read(ask("nobody", &[origin]).await).await.0, 404);
}
