//! Customizations that a backend lists and clients switch on and off.

use std::sync::Arc;

use ostler_contract::points::Emit;
use ostler_contract::{Value, json};
use ostler_ports::{SqliteSessions, StateDb};
use ostler_testkit::{MemoryHost, RawClient, Stage};

const SESSION: &str = "stage:/1";
const CHAT: &str = "ahp-chat://default/c3RhZ2U6LzE";

async fn host(stage: &Stage, dir: &std::path::Path) -> (MemoryHost, RawClient) {
    let db = StateDb::open(dir).unwrap();
    let store =
        Arc::new(SqliteSessions::new(db, ostler_ports::Report::new(|line| panic!("{line}")))).into_point();
    let builder = MemoryHost::builder().plugin(stage.plugin(), json!({})).sessions(store);
    let host = builder.options(|options| options.delta_window_ms = 0).start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    (host, client)
}

/// A customization as the backend lists it each time: with a skill, and everything on.
fn kit() -> Value {
    json!({ "type": "plugin", "id": "kit", "uri": "file:///kit", "name": "Kit",
        "children": [{ "type": "skill", "id": "braid", "uri": "file:///kit/braid", "name": "braid" }] })
}

/// Begins a turn, in which the `number`th start of the backend lists its customizations; answers the session's.
async fn list(client: &mut RawClient, stage: &Stage, number: usize) -> Value {
    let turn = format!("t{number}");
    let started = json!({ "type": "chat/turnStarted", "turnId": turn, "message": { "text": turn } });
    client.dispatch(CHAT, 1, started).await;
    while !stage.told().iter().any(|told| told["begin"][0] == json!(turn)) {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    stage.emit(
        number,
        Emit::Session,
        json!({ "type": "session/customizationUpdated", "customization": kit() }),
    );
    client.actions_until("session/customizationUpdated").await;
    stage.emit(number, Emit::Chat, json!({ "type": "chat/turnComplete", "turnId": turn, "duration": 0 }));
    client.actions_until("chat/turnComplete").await;
    customizations(client).await
}

/// The names of the `/` commands that are offered in a message.
async fn slashes(client: &mut RawClient) -> Vec<String> {
    let typed = json!({ "channel": CHAT, "kind": "userMessage", "text": "/", "offset": 1 });
    let found = client.request("completions", typed).await.unwrap();
    let names = found["items"].as_array().unwrap().iter().map(|item| item["insertText"].as_str().unwrap());
    names.map(|name| name.trim().to_owned()).collect()
}

#[tokio::test]
async fn a_disabled_customization_offers_no_commands() {
    let (dir, stage) = (tempfile::tempdir().unwrap(), Stage::default());
    let (_host, mut client) = host(&stage, dir.path()).await;
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    client.request("subscribe", json!({ "channel": SESSION })).await.unwrap();
    client.request("subscribe", json!({ "channel": CHAT })).await.unwrap();
    list(&mut client, &stage, 0).await;
    let (off, on) =
        (json!([{ "kind": "session", "enabled": false }]), json!([{ "kind": "session", "enabled": true }]));
    let before = slashes(&mut client).await;
    assert!(before.contains(&"/braid".to_owned()), "{before:?}");
    for id in ["kit", "braid"] {
        toggle(&mut client, id, off.clone()).await;
        let offered = slashes(&mut client).await;
        assert!(!offered.contains(&"/braid".to_owned()), "{id}: {offered:?}");
        toggle(&mut client, id, on.clone()).await;
        assert_eq!(slashes(&mut client).await, before, "{id}");
    }
}

async fn customizations(client: &mut RawClient) -> Value {
    let subscribed = client.request("subscribe", json!({ "channel": SESSION })).await.unwrap();
    subscribed["snapshot"]["state"]["customizations"].clone()
}

async fn toggle(client: &mut RawClient, id: &str, decisions: Value) -> Value {
    let action = json!({ "type": "session/customizationToggled", "id": id, "enablement": decisions });
    client.dispatch(SESSION, 2, action).await;
    client.actions_until("session/customizationToggled").await.pop().unwrap()
}

fn told(stage: &Stage) -> Vec<Value> {
    stage.told().into_iter().filter_map(|mut told| told.get_mut("customization").map(Value::take)).collect()
}

#[tokio::test]
async fn a_switched_customization_stays_so_when_its_backend_lists_it_again_and_after_a_restart() {
    let (dir, stage) = (tempfile::tempdir().unwrap(), Stage::default());
    let (first, mut client) = host(&stage, dir.path()).await;
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    client.request("subscribe", json!({ "channel": SESSION })).await.unwrap();
    client.request("subscribe", json!({ "channel": CHAT })).await.unwrap();
    assert_eq!(list(&mut client, &stage, 0).await, json!([kit()]));
    let off = json!([{ "kind": "session", "enabled": false }]);
    let unknown = toggle(&mut client, "hay", off.clone()).await;
    assert_eq!(unknown["rejectionReason"], "there is no customization hay");
    for id in ["kit", "braid"] {
        assert!(toggle(&mut client, id, off.clone()).await.get("rejectionReason").is_none());
    }
    let mut switched = kit();
    switched["enablement"] = off;
    switched["children"][0]["enabled"] = false.into();
    assert_eq!(customizations(&mut client).await, json!([switched]));
    assert_eq!(told(&stage), [json!(["kit", false]), json!(["braid", false])]);

    // What the backend lists again, it lists as it has it by itself.
    stage.emit(
        0,
        Emit::Session,
        json!({ "type": "session/customizationsChanged", "customizations": [kit()] }),
    );
    client.actions_until("session/customizationsChanged").await;
    assert_eq!(customizations(&mut client).await, json!([switched]));
    assert_eq!(told(&stage).len(), 2, "it was told before");

    drop((first, client));
    let (_second, mut client) = host(&stage, dir.path()).await;
    client.request("subscribe", json!({ "channel": SESSION })).await.unwrap();
    client.request("subscribe", json!({ "channel": CHAT })).await.unwrap();
    assert_eq!(list(&mut client, &stage, 1).await, json!([switched]));
    let mut again = told(&stage).split_off(2);
    again.sort_by_key(Value::to_string);
    assert_eq!(again, [json!(["braid", false]), json!(["kit", false])], "a backend that started is told");

    assert!(toggle(&mut client, "kit", json!([])).await.get("rejectionReason").is_none());
    assert_eq!(told(&stage).last(), Some(&json!(["kit", true])));
}
