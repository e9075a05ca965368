//! Endpoints: whose secret opens which, and what clients are told of the trigger.

use crate::support::{World, automation, endpoint, folder, write};
use ostler_contract::json;

#[tokio::test]
async fn each_endpoint_has_its_own_secret() {
    let dir = folder();
    write(dir.path(), "vault.json", r#"{ "host:a": "one", "host:b": "two" }"#);
    endpoint(dir.path(), "a", "automation: true\nsecret: host:a");
    endpoint(dir.path(), "b", "bot: bot://helper\nreply: none\nsecret: host:b");
    automation(dir.path(), "a");
    let world = World::start(&dir).await;
    let call = async |path: &str, token: &str| {
        let bearer = format!("Bearer {token}");
        world.post_with(path, r#"{"thread":"t","text":"x"}"#, &[("authorization", &bearer)]).await.0
    };
    assert_eq!((call("a", "one").await, call("b", "two").await), (202, 202));
    assert_eq!((call("a", "two").await, call("b", "one").await), (401, 401), "another's does not pass");
    assert_eq!(world.runs("a").await, 1);
    assert_eq!(world.kept("webhook-threads").await.len(), 1);
}

#[tokio::test]
async fn a_secret_that_no_header_carries_is_reported() {
    let dir = folder();
    write(dir.path(), "vault.json", r#"{ "host:lines": "one\ntwo" }"#);
    endpoint(dir.path(), "a", "automation: true\nsecret: host:lines");
    let world = World::start(&dir).await;
    assert_eq!(world.post_with("a", "{}", &[("authorization", "Bearer one")]).await.0, 401);
    let says = "is unavailable: host:lines contains a line break or another control character, which a header cannot contain";
    world.host.log.wait_for(says).await;
    assert!(!world.host.log.has("two"), "the value is in no line");
}

#[tokio::test]
async fn the_trigger_has_one_event_and_asks_for_one_endpoint() {
    let world = World::start(&folder()).await;
    let mut client = world.client().await;
    let params = json!({ "channel": "ahp-root://" });
    let listed = client.request("listAutomationTriggerDefinitions", params).await.unwrap();
    let all =
        listed["triggers"].as_array().or(listed["items"].as_array()).or(listed["definitions"].as_array());
    let webhook =
        all.unwrap_or_else(|| panic!("{listed}")).iter().find(|row| row["type"] == "webhook").unwrap();
    let events: Vec<_> = webhook["events"].as_array().unwrap().iter().map(|event| &event["id"]).collect();
    assert_eq!(events, [&json!("call")]);
    let fields: Vec<_> = webhook["configSchema"]["properties"].as_object().unwrap().keys().collect();
    assert_eq!(fields, ["endpoint"]);
    assert_eq!(webhook["configSchema"]["required"], json!(["endpoint"]));
}
