//! The priority lane of a session's mailbox: what it passes, and what it does not pass.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use ostler_contract::points::Emit;
use ostler_contract::{Value, json};
use ostler_testkit::cases::empty_sessions;
use ostler_testkit::{MemoryHost, RawClient, Stage, action};

const SESSION: &str = "stage:/1";

fn chat() -> String {
    ostler_protocol::uri::default_chat(SESSION)
}

fn begin(turn: &str) -> Value {
    json!({ "type": "chat/turnStarted", "turnId": turn, "message": { "text": "Go." } })
}

fn cancel(turn: &str) -> Value {
    json!({ "type": "chat/turnCancelled", "turnId": turn })
}

/// A host with a session in which turn `t` runs, watched by a client.
async fn running(stage: &Stage) -> (MemoryHost, RawClient) {
    let host = MemoryHost::builder()
        .plugin(stage.plugin(), json!({}))
        .sessions(empty_sessions())
        .options(|options| options.delta_window_ms = 0)
        .start()
        .await;
    let mut client = host.raw();
    client.initialize("c").await;
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    client.request("subscribe", json!({ "channel": chat() })).await.unwrap();
    client.dispatch(&chat(), 1, begin("t")).await;
    stage.wait_told("begin").await;
    let part = json!({ "kind": "markdown", "id": "p", "content": "" });
    stage.emit(0, Emit::Chat, json!({ "type": "chat/responsePart", "turnId": "t", "part": part }));
    client.actions_until("chat/responsePart").await;
    (host, client)
}

/// Has the backend of a session emit as much as may wait, while nothing is taken.
fn flood(stage: &Stage) -> usize {
    let emit = stage.start(0).emit;
    let word = || action(json!({ "type": "chat/delta", "turnId": "t", "partId": "p", "content": "neigh " }));
    (0..100_000).take_while(|_| emit.call((Emit::Chat, word())).is_ok()).count()
}

fn told(stage: &Stage, name: &str) -> usize {
    stage.told().iter().filter(|told| told.get(name).is_some()).count()
}

#[tokio::test(start_paused = true)]
async fn a_cancel_passes_what_a_backend_emitted() {
    let stage = Stage::default();
    let (_host, mut client) = running(&stage).await;
    assert_eq!(flood(&stage), 50_000);
    client.dispatch(&chat(), 2, cancel("t")).await;
    let seen = client.actions_until("chat/turnCancelled").await;
    assert!(seen.len() < 1000, "{} actions came before the cancel took effect", seen.len());
    assert_eq!(told(&stage, "cancel"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_finds_the_turn_its_sender_started_before_it() {
    let stage = Stage::default();
    let (_host, mut client) = running(&stage).await;
    flood(&stage);
    for (seq, action) in [cancel("t"), begin("u"), cancel("u")].into_iter().enumerate() {
        client.dispatch(&chat(), 2 + seq as i64, action).await;
    }
    let mut seen = client.actions_until("chat/turnCancelled").await;
    seen.extend(client.actions_until("chat/turnCancelled").await);
    let own: Vec<_> = seen
        .iter()
        .filter(|params| params["origin"]["clientSeq"].as_i64() >= Some(2))
        .map(|params| (params["action"]["turnId"].clone(), params["rejectionReason"].clone()))
        .collect();
    assert_eq!(
        own,
        [("t", Value::Null), ("u", Value::Null), ("u", Value::Null)].map(|(turn, why)| (json!(turn), why)),
        "in the order they were sent, and none is rejected"
    );
    assert!(seen.len() < 1000, "{}", seen.len());
}

#[tokio::test(start_paused = true)]
async fn a_disposed_session_stops_before_it_takes_what_was_emitted() {
    let stage = Stage::default();
    let (_host, mut client) = running(&stage).await;
    flood(&stage);
    client.request("disposeSession", json!({ "channel": SESSION })).await.unwrap();
    assert_eq!((told(&stage, "cancel"), told(&stage, "close")), (1, 1));
    let deltas = client.ready_frames().await.into_iter().filter(|frame| frame["method"] == "action").count();
    assert!(deltas > 0, "what was emitted before is not lost");
}
