//! Settings of whoever built the host, on the root channel: who sees them, who changes them, what is told.

use std::sync::{Arc, Mutex};

use ostler_contract::live::{Pending, ready};
use ostler_contract::{JsonObject, Value, json};
use ostler_engine::Principal;
use ostler_engine::settings::{OwnChange, OwnSettings};
use ostler_protocol::grants::Grant;
use ostler_testkit::{MemoryHost, RawClient, Stage};

/// One setting, `own.key`, that hides what it holds and refuses `bad`.
#[derive(Default)]
struct Own(Mutex<Value>);

fn object(value: Value) -> JsonObject {
    value.as_object().cloned().unwrap()
}

impl OwnSettings for Own {
    fn owns(&self, key: &str) -> bool {
        key.starts_with("own.")
    }

    fn schema(&self) -> JsonObject {
        object(json!({ "own.key": { "type": "string", "title": "Key" } }))
    }

    fn values(&self) -> JsonObject {
        let set = !self.0.lock().unwrap().is_null();
        object(if set { json!({ "own.key": "<set>" }) } else { json!({}) })
    }

    fn meta(&self) -> JsonObject {
        object(json!({ "ostler.restartNeeded": ["own.key"] }))
    }

    fn change(&self, config: JsonObject) -> Pending<OwnChange> {
        let value = config["own.key"].clone();
        ready(Ok(if value == "bad" {
            OwnChange { refused: Some("own.key must be good".to_owned()), ..OwnChange::default() }
        } else {
            *self.0.lock().unwrap() = value;
            OwnChange { shown: self.values(), refused: None }
        }))
    }
}

async fn host() -> (MemoryHost, Arc<Own>) {
    let host = MemoryHost::builder().plugin(Stage::default().plugin(), json!({})).guarded().start().await;
    let own = Arc::new(Own::default());
    host.host.channels.set_own_settings(own.clone());
    (host, own)
}

/// Somebody with these grants, and the root state they see.
async fn reader(host: &MemoryHost, name: &str, grants: &[&str]) -> (RawClient, Value) {
    let grants = grants.iter().map(|grant| Grant::parse(grant).unwrap()).collect();
    let mut client = host.raw_as(Principal::Plugin { id: name.to_owned(), grants });
    client.initialize(name).await;
    let subscribed = client.request("subscribe", json!({ "channel": "ahp-root://" })).await.unwrap();
    let state = subscribed["snapshot"]["state"].clone();
    (client, state)
}

#[tokio::test(start_paused = true)]
async fn only_who_may_read_the_configuration_sees_them() {
    let (host, own) = host().await;
    *own.0.lock().unwrap() = json!("SECRET");
    let (mut writer, state) = reader(&host, "writer", &["config:read", "config:change"]).await;
    assert_eq!(state["config"]["values"]["own.key"], "<set>");
    assert_eq!(state["config"]["schema"]["properties"]["own.key"]["title"], "Key");
    assert_eq!(state["_meta"]["ostler.restartNeeded"], json!(["own.key"]));
    let (mut other, state) = reader(&host, "other", &["session:read"]).await;
    assert!(!state.to_string().contains("own."), "{state}");
    let (mut watcher, _) = reader(&host, "watcher", &["config:read"]).await;

    let change = json!({ "type": "root/configChanged", "config": { "own.key": "SECRET-2" } });
    writer.dispatch("ahp-root://", 1, change).await;
    let shown = json!({ "type": "root/configChanged", "config": { "own.key": "<set>" } });
    assert_eq!(writer.next_action().await["action"], shown);
    assert_eq!(watcher.next_action().await["action"], shown);
    let empty = json!({ "type": "root/configChanged", "config": {} });
    assert_eq!(other.next_action().await["action"], empty);
    assert_eq!(*own.0.lock().unwrap(), "SECRET-2");

    // Who may read may not write for that.
    let change = json!({ "type": "root/configChanged", "config": { "own.key": "SECRET-3" } });
    watcher.dispatch("ahp-root://", 1, change).await;
    let refused = watcher.next_action().await;
    assert!(refused["rejectionReason"].as_str().unwrap().contains("may not config:change here"), "{refused}");
    assert_eq!(refused["action"], empty, "the value is not sent back");
    assert_eq!(*own.0.lock().unwrap(), "SECRET-2");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_repeats_no_value_and_a_replacement_takes_nothing_back() {
    let (host, own) = host().await;
    let (mut client, _) = reader(&host, "writer", &["config:read", "config:change"]).await;
    let mut send = async |seq: i64, config: Value, replace: bool| {
        let mut action = json!({ "type": "root/configChanged", "config": config });
        if replace {
            action["replace"] = true.into();
        }
        client.dispatch("ahp-root://", seq, action).await;
        let mut seen = vec![client.next_action().await];
        seen.extend(client.ready_frames().await.into_iter().map(|frame| frame["params"].clone()));
        seen
    };
    let refused = send(1, json!({ "own.key": "bad", "deferredTitleGeneration": true }), false).await;
    assert_eq!(refused.last().unwrap()["rejectionReason"], "own.key must be good");
    assert!(!json!(refused).to_string().contains("bad\""), "{refused:?}");
    send(2, json!({ "own.key": "SECRET", "deferredTitleGeneration": true }), false).await;
    let replaced = send(3, json!({ "deferredTitleGeneration": false }), true).await;
    assert_eq!(replaced.last().unwrap()["action"]["config"]["own.key"], "<set>", "{replaced:?}");
    assert_eq!(*own.0.lock().unwrap(), "SECRET");
    let unknown = send(4, json!({ "nobody": 1 }), false).await;
    assert_eq!(unknown[0]["rejectionReason"], "nobody is not a setting of this host");
    // Whatever the reason is, what was sent is not in it nor beside it; what is in force may be.
    for (seq, config) in [
        (5, json!({ "nobody": "SECRET-5" })),
        (6, json!({ "deferredTitleGeneration": "SECRET-6" })),
        (7, json!({ "workspaceTrust": "SECRET-7", "deferredTitleGeneration": true })),
        (8, json!({ "own.key": "bad", "nobody": "SECRET-8" })),
        (9, json!("SECRET-9")),
        (10, json!(["SECRET-10"])),
    ] {
        let refused = send(seq, config, false).await;
        assert!(refused.last().unwrap()["rejectionReason"].is_string(), "{refused:?}");
        assert!(!json!(refused).to_string().contains("SECRET"), "{refused:?}");
        assert_ne!(refused.last().unwrap()["action"]["config"]["deferredTitleGeneration"], true);
    }
    let (mut blind, _) = reader(&host, "blind", &["config:change"]).await;
    let change = json!({ "type": "root/configChanged", "config": { "own.key": "bad" } });
    blind.dispatch("ahp-root://", 1, change).await;
    let refused = blind.next_action().await;
    assert_eq!(
        (&refused["action"]["config"], &refused["rejectionReason"]),
        (&json!({}), &json!("own.key must be good")),
        "who may not read the settings is shown none"
    );
    let (_, state) = reader(&host, "later", &["config:read"]).await;
    assert_eq!(state["config"]["values"]["deferredTitleGeneration"], false);
    assert_eq!(state["config"]["values"]["own.key"], "<set>");
}
