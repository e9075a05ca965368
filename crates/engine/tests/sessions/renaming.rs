//! A backend whose conversation gets another id is continued with the latest.

use std::sync::Arc;

use ostler_contract::json;
use ostler_contract::points::{Emit, SessionStore};
use ostler_ports::{SqliteSessions, StateDb};
use ostler_testkit::{MemoryHost, RawClient, Stage};

const SESSION: &str = "stage:/1";
const CHAT: &str = "ahp-chat://default/c3RhZ2U6LzE";

fn store(dir: &std::path::Path) -> SessionStore {
    let db = StateDb::open(dir).unwrap();
    Arc::new(SqliteSessions::new(db, ostler_ports::Report::new(|line| panic!("{line}")))).into_point()
}

async fn host(stage: &Stage, dir: &std::path::Path) -> MemoryHost {
    MemoryHost::builder().plugin(stage.plugin(), json!({})).sessions(store(dir)).start().await
}

async fn begin(client: &mut RawClient, stage: &Stage, turn: &str) {
    let started = json!({ "type": "chat/turnStarted", "turnId": turn, "message": { "text": turn } });
    client.dispatch(CHAT, 1, started).await;
    client.actions_until("chat/turnStarted").await;
    while !stage.told().iter().any(|told| told["begin"][0] == turn) {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
}

async fn end(client: &mut RawClient, stage: &Stage, number: usize, turn: &str) {
    stage.emit(number, Emit::Chat, json!({ "type": "chat/turnComplete", "turnId": turn, "duration": 0 }));
    client.actions_until("chat/turnComplete").await;
}

async fn subscribed(host: &MemoryHost) -> RawClient {
    let mut client = host.raw();
    client.initialize("c").await;
    for channel in [SESSION, CHAT] {
        client.request("subscribe", json!({ "channel": channel })).await.unwrap();
    }
    client
}

#[tokio::test]
async fn a_conversation_continues_under_the_id_it_had_when_its_latest_turn_ended() {
    let (dir, stage) = (tempfile::tempdir().unwrap(), Stage::default().naming_conversations());
    let first = host(&stage, dir.path()).await;
    let mut client = first.raw();
    client.initialize("c").await;
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    let mut client = subscribed(&first).await;
    begin(&mut client, &stage, "t1").await;
    end(&mut client, &stage, 0, "t1").await;
    begin(&mut client, &stage, "t2").await;
    stage.rename_conversations("another");
    end(&mut client, &stage, 0, "t2").await;
    // What is stored with this one comes after the id.
    begin(&mut client, &stage, "t3").await;
    end(&mut client, &stage, 0, "t3").await;
    // As a crash leaves it: nothing is closed.
    let again = host(&stage, dir.path()).await;
    let mut client = subscribed(&again).await;
    begin(&mut client, &stage, "t4").await;
    assert_eq!(stage.start(1).resume.as_deref(), Some("another"));
    drop(first);
}
