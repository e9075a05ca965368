//! A turn the host says nothing of for too long.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{SECRET, World};
use ostler_contract::points::{SessionStore, Vault};
use ostler_contract::{Call, JsonObject, json};
use ostler_ports::memory_records;
use ostler_testkit::MemoryHost;
use tokio::time::Instant;

/// A store in memory; while it hangs, no title is ever kept.
fn store(hangs: Arc<AtomicBool>) -> SessionStore {
    SessionStore {
        flags: Call::now(|_| Ok(None)),
        set_flags: Call::now(|_| Ok(())),
        config: Call::now(|_| Ok(None)),
        set_config: Call::now(|_| Ok(())),
        chat_title: Call::now(|_| Ok(None)),
        set_chat_title: Call::new(move |_| {
            let hangs = hangs.load(Ordering::Relaxed);
            async move { if hangs { pending().await } else { Ok(()) } }
        }),
        artifacts: Call::now(|_| Ok(vec![])),
        set_artifacts: Call::now(|_| Ok(())),
        pull_requests: Call::now(|_| Ok(JsonObject::new())),
        set_pull_requests: Call::now(|_| Ok(())),
        chats: Call::now(|_| Ok(vec![])),
        set_chats: Call::now(|_| Ok(())),
        sessions: Call::now(|()| Ok(vec![])),
        forget: Call::now(|_| Ok(())),
        ..SessionStore::default()
    }
}

pub fn vault() -> Vault {
    Vault {
        get: Call::now(|_| Ok(Some(SECRET.to_owned()))),
        set: Call::now(|_| Ok(())),
        delete: Call::now(|_| Ok(false)),
        list: Call::now(|()| Ok(vec![])),
        ..Vault::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_not_echoed_in_time_is_not_refused() {
    let records = memory_records();
    for (collection, record) in [
        ("bots", json!({ "id": "helper", "name": "Helper" })),
        ("webhooks", json!({ "id": "none", "bot": "bot://helper", "secret": "host:k", "reply": "none" })),
        ("webhooks", json!({ "id": "sync", "bot": "bot://helper", "secret": "host:k", "reply": "sync" })),
    ] {
        let opened = records.collection.unbounded((collection.to_owned(), Default::default())).await.unwrap();
        opened.put.unbounded((record.as_object().cloned().unwrap(),)).await.unwrap();
    }
    let hangs = Arc::new(AtomicBool::new(false));
    let host = MemoryHost::builder()
        .plugin(ostler_plugin_bot::plugin(), json!({ "root": "/nowhere" }))
        .plugin(ostler_plugin_webhook::plugin(), json!({}))
        .sessions(store(hangs.clone()))
        .records(records)
        .vault(vault());
    let world = World::of(&Arc::new(tempfile::tempdir().unwrap()), host).await;
    for (endpoint, status) in [("none", 202), ("sync", 200)] {
        assert_eq!(world.say(endpoint, "t", "first").await.0, status);
        // The session is busy with something else for longer than the plugin waits.
        hangs.store(true, Ordering::Relaxed);
        let chat = world.chat_of(endpoint).await;
        let client = world.client().await;
        for title in ["a", "b"] {
            client.dispatch(&chat, 1, json!({ "type": "session/titleChanged", "title": title })).await;
        }
        let started = Instant::now();
        let (answered, body) = world.say(endpoint, "t", "second").await;
        assert_eq!(answered, status, "{body}");
        let took = started.elapsed();
        match status {
            202 => assert!((10..11).contains(&took.as_secs()), "{took:?}"),
            _ => assert!(took > Duration::from_secs(11), "it waited for the turn all the same: {took:?}"),
        }
        let line = format!("the turn in {chat} was not echoed within 10 seconds; the call continues");
        assert!(world.host.log.has(&line), "{:?}", world.host.log.all());
        hangs.store(false, Ordering::Relaxed);
        // The session may still store the second title.
        let came = async {
            while world.chat(&chat).await["turns"].as_array().unwrap().last().unwrap()["id"] != body["turn"] {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(11), came).await.expect("and the turn came about");
    }
}
