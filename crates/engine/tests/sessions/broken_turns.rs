//! Turns that the end of a host broke, as an earlier version or a removed chat left them.

use std::time::Duration;

use ostler_contract::json;
use ostler_contract::points::KeptChat;
use ostler_testkit::Stage;

use super::world::{Disturbance, SESSION, World};

/// Earlier versions stored no more than the error of the turn.
#[tokio::test(start_paused = true)]
async fn a_turn_that_an_earlier_version_broke_by_a_kill_has_failed() {
    let mut world = World::with(Stage::default().with_plain_chats().resuming()).await;
    world.begin("t1").await;
    world.emit(json!({ "type": "chat/activityChanged", "activity": "Digging" })).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let turns = world.store.turns.clone().unwrap();
    let of_chat = ("1".to_owned(), world.chat.clone());
    let mut kept = turns.unbounded(of_chat.clone()).await.unwrap().remove(0);
    assert!(kept.unended && !kept.broken, "{kept:?}");
    kept.unended = false;
    let set_turn = world.store.set_turn.clone().unwrap();
    set_turn.unbounded(("1".into(), world.chat.clone(), 0, kept)).await.unwrap();
    let mut chats = world.store.chats.unbounded(("1".into(),)).await.unwrap();
    chats[0].activity = Some("Digging".to_owned());
    world.store.set_chats.unbounded(("1".into(), chats)).await.unwrap();

    world.disturb(Disturbance::Killed).await;
    world.watch().await;
    let seen = world.seen().await;
    let chat = &seen["chats"][0];
    assert_eq!([&chat["status"], &chat["activity"]], [&json!(2), &json!(null)], "{chat}");
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(world.row().await["status"], 2);
    let kept = turns.unbounded(of_chat.clone()).await.unwrap().remove(0);
    assert!(kept.broken, "it is recorded: {kept:?}");
    // A chat that was truncated to such a turn does not fail again.
    world.begin("t2").await;
    world.end("t2").await;
    let chat = world.chat.clone();
    world.dispatch(&chat, json!({ "type": "chat/truncated", "turnId": "t1" })).await;
    let before = world.seen().await;
    world.disturb(Disturbance::Stops).await;
    assert_eq!(world.seen().await, before);
}

/// A worker whose lead is not in the session, and a chat that the session does not list, never go on.
#[tokio::test(start_paused = true)]
async fn turns_of_discarded_chats_wake_no_session() {
    let mut world = World::new().await;
    world.begin("t1").await;
    world.end("t1").await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let turns = world.store.turns.clone().unwrap();
    let mut kept = turns.unbounded(("1".into(), world.chat.clone())).await.unwrap().remove(0);
    kept.unended = true;
    let set_turn = world.store.set_turn.clone().unwrap();
    let orphan = KeptChat {
        uri: "ahp-chat:/orphan".into(),
        worker_of: Some("ahp-chat:/gone".into()),
        ..KeptChat::default()
    };
    for chat in [&orphan.uri, "ahp-chat:/unlisted"] {
        set_turn.unbounded(("1".into(), chat.into(), 0, kept.clone())).await.unwrap();
    }
    let mut chats = world.store.chats.unbounded(("1".into(),)).await.unwrap();
    chats.push(orphan);
    world.store.set_chats.unbounded(("1".into(), chats)).await.unwrap();
    for _ in 0..2 {
        world.disturb(Disturbance::Stops).await;
        tokio::time::sleep(Duration::from_secs(30)).await;
    }
    let waiting = world.store.waiting.clone().unwrap();
    assert_eq!(waiting.unbounded(()).await.unwrap(), [""; 0]);
    world.watch().await;
    assert_eq!(world.seen().await["session"]["chats"].as_array().unwrap().len(), 1, "{SESSION}");
}
