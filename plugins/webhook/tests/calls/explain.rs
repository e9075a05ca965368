//! What is said of a call before it is made is what happens when it is made, and saying it changes nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::support::{SECRET, World, automation, endpoint, folder, until, write};
use ostler_contract::{Value, json};
use ring::hmac;

/// A call of an endpoint.
#[derive(Debug, Clone)]
struct Call {
    path: &'static str,
    headers: Vec<(&'static str, String)>,
    body: &'static str,
}

fn call(path: &'static str, headers: &[(&'static str, &str)], body: &'static str) -> Call {
    Call { path, headers: headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(), body }
}

fn signed(body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    format!("sha256={}", hex::encode(hmac::sign(&key, body.as_bytes())))
}

async fn explain(world: &World, call: &Call) -> Result<Value, Value> {
    let (endpoint, query) = call.path.split_once('?').unwrap_or((call.path, ""));
    let headers: Vec<String> = call.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    let params = json!({ "endpoint": endpoint, "headers": headers, "query": query, "body": call.body });
    world.client().await.request("x-webhook/explain", params).await
}

async fn make(world: &World, call: &Call) -> u16 {
    let headers: Vec<(&str, &str)> =
        call.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    world.post_with(call.path, call.body, &headers).await.0
}

/// Every file with its content. Those that are written beside their place can be gone by then.
fn files(dir: &Path) -> BTreeMap<std::path::PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(files(&path));
        } else if let Ok(content) = std::fs::read(&path) {
            all.insert(path, content);
        }
    }
    all
}

/// The runs of each automation.
async fn runs(world: &World) -> BTreeMap<String, usize> {
    let state = world.chat("ahp-automations://").await;
    let entries = state["entries"].as_array().unwrap().iter();
    let count = |entry: &Value| {
        let id = entry["resource"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
        (id, entry["runs"].as_array().map_or(0, Vec::len))
    };
    entries.map(count).collect()
}

fn hub(dir: &Path, id: &str, fields: &str, config: &str) {
    let text = format!(
        "---\ntitle: Hub\nenabled: true\nsession: {{ provider: echo }}\ntriggers:\n  - {{ id: t, kind: event, type: webhook, title: T, \
         events: [{{ id: call }}], config: {config} }}\n{fields}\n---\ngot {{{{event.what}}}}\n"
    );
    let text = if fields.contains("enabled:") { text.replacen("enabled: true\n", "", 1) } else { text };
    write(dir, &format!("automations/{id}.md"), &text);
}

async fn world() -> World {
    let dir = folder();
    let at = dir.path();
    endpoint(at, "token", "automation: true");
    automation(at, "token");
    endpoint(at, "hub", "automation: true\nverify: github\ndedupe: true\nwhen: event.what == \"push\"");
    hub(at, "hub", "", "{ endpoint: hub }");
    hub(at, "hub-of-dev", "", "{ endpoint: hub, ref: dev }");
    hub(at, "hub-off", "enabled: false", "{ endpoint: hub }");
    endpoint(at, "slack", "automation: true\nverify: slack");
    automation(at, "slack");
    endpoint(at, "capped", "automation: true");
    hub(at, "capped", "_meta: { ostler: { overlap: parallel, hourlyCap: 1 } }", "{ endpoint: capped }");
    endpoint(at, "broken", "automation: true");
    write(at, "automations/broken.md", "---\ntitle: Broken\ntriggers: 5\n---\nx\n");
    endpoint(at, "nobody", "automation: true");
    endpoint(at, "few", "automation: true\nlimit: { calls: 1, per: 1h }");
    automation(at, "few");
    endpoint(at, "events", "automation: true\nformat: cloudevents\ndedupe: true");
    automation(at, "events");
    endpoint(at, "ordered", "automation: true\norderBy: what\nsession: { by: what }");
    automation(at, "ordered");
    endpoint(at, "failing", "automation: true\nwhen: event.what / 0 == 1");
    automation(at, "failing");
    endpoint(at, "talk", "bot: bot://echo\nreply: none");
    World::start(&dir).await
}

#[tokio::test]
async fn what_is_explained_happens_and_nothing_before() {
    let world = world().await;
    let bearer = format!("Bearer {SECRET}");
    let bearer = [("authorization", bearer.as_str())];
    let body = r#"{"what":"push","ref":"main"}"#;
    let signature = signed(body);
    let other = r#"{"what":"issue"}"#;
    let github = |id: &'static str, body: &'static str| {
        call(
            "hub",
            &[("x-hub-signature-256", &signed(body)), ("x-github-delivery", id), ("x-github-event", "push")],
            body,
        )
    };
    let old = (SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() - 1000).to_string();
    let event = r#"{"specversion":"1.0","id":"7","source":"/a","type":"b","data":{"what":"push"}}"#;
    let json = [bearer[0], ("content-type", "application/cloudevents+json")];
    let calls = [
        call("token", &bearer, body),
        call("token", &[], body),
        call("token", &[("authorization", "Bearer another")], body),
        call("token", &bearer, "[1]"),
        call("token", &bearer, ""),
        github("1", body),
        github("1", body),
        github("2", other),
        call("hub", &[("x-hub-signature-256", &signature), ("x-github-event", "ping")], body),
        call("hub", &[("x-hub-signature-256", &signature)], other),
        call("slack", &[("x-slack-signature", "v0=00"), ("x-slack-request-timestamp", &old)], body),
        call("capped", &bearer, body),
        call("capped", &bearer, body),
        call("broken", &bearer, body),
        call("nobody", &bearer, body),
        call("few", &bearer, body),
        call("few", &bearer, body),
        call("events", &json, event),
        call("events", &json, event),
        call("events", &bearer, body),
        call("ordered", &bearer, body),
        call("ordered", &bearer, body),
        call("failing", &bearer, body),
        call("talk?thread=a", &bearer, "hello"),
        call("talk", &bearer, "hello"),
    ];
    for call in &calls {
        let ran = runs(&world).await;
        let said = until(async || {
            // What ran before is written at its own time, and the same explanation changes something each time, or never.
            let before = files(world.dir.path());
            let said = explain(&world, call).await.unwrap();
            (files(world.dir.path()) == before).then_some(said)
        })
        .await;
        assert_eq!(explain(&world, call).await.unwrap()["status"], said["status"], "{call:?}");
        assert_eq!(runs(&world).await, ran, "{call:?}");
        assert!(!said.to_string().contains(SECRET), "{said}");
        assert_eq!(said["status"], make(&world, call).await, "{call:?}: {said}");
        let starts = said["automations"].as_array().into_iter().flatten();
        let mut expected = ran;
        if said["problem"].is_null() {
            for row in starts.filter(|row| row["starts"] == true) {
                *expected.get_mut(row["automation"].as_str().unwrap()).unwrap() += 1;
            }
        }
        assert_eq!(runs(&world).await, expected, "{call:?}: {said}");
    }
}

#[tokio::test]
async fn an_explanation_names_what_decides() {
    let world = world().await;
    let body = r#"{"what":"push","ref":"main"}"#;
    let headers =
        [("x-hub-signature-256", "sha256=00"), ("x-github-delivery", "17"), ("x-github-event", "push")];
    let said = explain(&world, &call("hub", &headers, body)).await.unwrap();
    assert_eq!(
        (&said["status"], &said["verified"], &said["sender"], &said["event"], &said["delivery"]),
        (&json!(401), &json!(false), &json!("github"), &json!("push"), &json!("17"))
    );
    assert_eq!(said["problem"], "The sender's signature is missing or malformed");
    assert_eq!(said["retries"], "github waits 10 s for an answer and never repeats a failed call");
    assert_eq!(
        said["when"],
        json!({ "expression": "event.what == \"push\"", "holds": true, "values": [{ "path": "event.what", "value": "push" }] })
    );
    let rows: BTreeMap<&str, &Value> = said["automations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["automation"].as_str().unwrap(), row))
        .collect();
    let hub = rows["hub"];
    assert_eq!(
        (&hub["starts"], &hub["begins"], &hub["agent"]),
        (&json!(true), &json!("now"), &json!("echo"))
    );
    assert!(hub["message"].as_str().unwrap().starts_with("got push\n"), "{hub}");
    assert_eq!((&hub["session"], &hub["fails"]), (&Value::Null, &Value::Null));
    assert_eq!(rows["hub-of-dev"]["why"], "its trigger t requires another value of ref");
    assert_eq!(rows["hub-off"]["why"], "it is disabled; enable it with: ostler automation enable hub-off");

    let bearer = format!("Bearer {SECRET}");
    let bearer = [("authorization", bearer.as_str())];
    let said = explain(&world, &call("broken", &bearer, "{}")).await.unwrap();
    let why = said["automations"][0]["why"].as_str().unwrap();
    assert!(why.starts_with("it cannot be read: "), "{why}");
    let said = explain(&world, &call("talk?thread=a", &bearer, "hello")).await.unwrap();
    assert_eq!(
        (&said["target"], &said["bot"]),
        (&json!("bot://echo"), &json!({ "thread": "a", "text": "hello" }))
    );

    // The next call continues the session of its value.
    assert_eq!(make(&world, &call("ordered", &bearer, body)).await, 202);
    let session = until(async || {
        let said = explain(&world, &call("ordered", &bearer, body)).await.unwrap();
        said["automations"][0]["session"].as_str().map(str::to_owned)
    })
    .await;
    assert!(session.starts_with("echo:/"), "{session}");

    for (endpoint, headers, why) in [
        ("none", json!([]), "no valid endpoint has the id none; see the endpoints with: ostler webhook list"),
        ("token", json!(["a b: c"]), "a b is not the name of a header"),
        ("token", json!(["a"]), "header \"a\" has no colon; write it as 'Name: value'"),
        ("token", json!(["a: b\u{7}c"]), "the value of a is invalid"),
    ] {
        let params = json!({ "endpoint": endpoint, "headers": headers });
        let refused = world.client().await.request("x-webhook/explain", params).await.unwrap_err();
        assert_eq!((&refused["code"], &refused["message"]), (&json!(-32602), &json!(why)));
    }
}
