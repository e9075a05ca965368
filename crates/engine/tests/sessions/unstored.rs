//! What a store does not take is not acknowledged, on one host as in a cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ostler_contract::points::{Emit, SessionStore};
use ostler_contract::{Call, Thrown, json};
use ostler_protocol::uri;
use ostler_testkit::cases::empty_sessions;
use ostler_testkit::{MemoryHost, RawClient, Stage};
use tokio::time::Instant;

const SESSION: &str = "stage:/1";

/// A store that fails while it is told to.
fn store(fails: &Arc<AtomicBool>) -> SessionStore {
    let write = || {
        let fails = fails.clone();
        move || match fails.load(Ordering::SeqCst) {
            true => Err(Thrown::new("the disk does not answer")),
            false => Ok(()),
        }
    };
    let (turn, chats) = (write(), write());
    SessionStore {
        set_turn: Some(Call::now(move |_| turn())),
        set_chats: Call::now(move |_| chats()),
        turns: Some(Call::now(|_| Ok(Vec::new()))),
        drop_turns: Some(Call::now(|_| Ok(()))),
        ..empty_sessions()
    }
}

/// A session on a host with that store, with its client and the URI of its chat.
async fn session(stage: &Stage, fails: &Arc<AtomicBool>) -> (MemoryHost, RawClient, String) {
    let host = MemoryHost::builder().plugin(stage.plugin(), json!({})).sessions(store(fails)).start().await;
    let chat = uri::default_chat(SESSION);
    let mut client = host.raw();
    client.initialize("c").await;
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    client.request("subscribe", json!({ "channel": chat })).await.unwrap();
    (host, client, chat)
}

#[tokio::test(start_paused = true)]
async fn a_queued_message_is_acknowledged_once_it_is_stored() {
    let (stage, fails) = (Stage::default(), Arc::new(AtomicBool::new(false)));
    let (_host, mut client, chat) = session(&stage, &fails).await;
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "Go." } });
    client.dispatch(&chat, 1, turn).await;
    client.actions_until("chat/turnStarted").await;

    fails.store(true, Ordering::SeqCst);
    let since = Instant::now();
    let ends = fails.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(2)).await;
        ends.store(false, Ordering::SeqCst);
    });
    let message = json!({ "text": "And on.", "origin": { "kind": "user" } });
    let queued = json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": "q", "message": message });
    client.dispatch(&chat, 2, queued).await;
    let seen = client.actions_until("chat/pendingMessageSet").await.pop().unwrap();
    assert!(seen.get("rejectionReason").is_none(), "{seen}");
    assert!(since.elapsed() >= Duration::from_secs(2), "{:?}", since.elapsed());
    assert!(!stage.told().iter().any(|told| told.get("close").is_some()), "the agent goes on");
}

#[tokio::test(start_paused = true)]
async fn a_turn_whose_start_is_not_stored_is_rejected_and_its_end_is_shown_once_it_is_stored() {
    let (stage, fails) = (Stage::default(), Arc::new(AtomicBool::new(false)));
    let (_host, mut client, chat) = session(&stage, &fails).await;
    fails.store(true, Ordering::SeqCst);
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "Go." } });
    client.dispatch(&chat, 1, turn).await;
    let rejected = loop {
        let envelope = client.next_action().await;
        if !envelope["origin"].is_null() {
            break envelope;
        }
    };
    assert!(rejected["rejectionReason"].is_string(), "{rejected}");
    assert_eq!(rejected["_meta"], json!({ "ostler.retryable": true }));

    // The agent has begun. The end of the turn is shown once all of it is stored.
    stage.emit(0, Emit::Chat, json!({ "type": "chat/turnComplete", "turnId": "t", "duration": 1 }));
    let since = Instant::now();
    let ends = fails.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(20)).await;
        ends.store(false, Ordering::SeqCst);
    });
    client.actions_until("chat/turnComplete").await;
    assert!(since.elapsed() >= Duration::from_secs(20), "{:?}", since.elapsed());
}
