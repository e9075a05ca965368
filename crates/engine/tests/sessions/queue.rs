//! A queued message is in one place at every moment: killed after any write, a host finds it waiting or in a turn.

use std::sync::{Arc, Mutex};

use ostler_contract::points::{Emit, KeptChat, KeptSession, KeptTurn, SessionStore};
use ostler_contract::{Call, Value, json};
use ostler_ports::{SqliteSessions, StateDb};
use ostler_testkit::{MemoryHost, RawClient, Stage};

const SESSION: &str = "stage:/1";

/// One write, as a session store takes it.
#[derive(Clone)]
enum Write {
    Session(String, KeptSession),
    Chats(String, Vec<KeptChat>),
    Turn(String, String, u64, Box<KeptTurn>),
    Drop(String, String, u64),
}

fn store() -> SessionStore {
    let store =
        SqliteSessions::new(StateDb::memory().unwrap(), ostler_ports::Report::new(|line| panic!("{line}")));
    Arc::new(store).into_point()
}

/// A store that notes each write, in the order they are asked for.
fn noting(writes: &Arc<Mutex<Vec<Write>>>) -> SessionStore {
    let own = store();
    macro_rules! noted {
        ($member:expr, $note:expr) => {{
            let (member, writes) = ($member.clone(), writes.clone());
            Call::new(move |arguments| {
                // A store writes in the order it is asked.
                writes.lock().unwrap().push($note(Clone::clone(&arguments)));
                member.unbounded(arguments)
            })
        }};
    }
    SessionStore {
        set_config: noted!(own.set_config, |(id, session)| Write::Session(id, session)),
        set_chats: noted!(own.set_chats, |(id, chats)| Write::Chats(id, chats)),
        set_turn: Some(noted!(own.set_turn.as_ref().unwrap(), |(id, chat, place, turn)| {
            Write::Turn(id, chat, place, Box::new(turn))
        })),
        drop_turns: Some(noted!(own.drop_turns.as_ref().unwrap(), |(id, chat, from)| {
            Write::Drop(id, chat, from)
        })),
        ..own
    }
}

async fn host(stage: &Stage, store: SessionStore) -> MemoryHost {
    MemoryHost::builder()
        .plugin(stage.plugin(), json!({}))
        .options(|options| options.delta_window_ms = 0)
        .sessions(store)
        .start()
        .await
}

async fn chat(client: &mut RawClient) -> Value {
    let chat = ostler_protocol::uri::default_chat(SESSION);
    let subscribed = client.request("subscribe", json!({ "channel": chat })).await.unwrap();
    subscribed["snapshot"]["state"].clone()
}

/// How often a text was said or waits, in a host that starts on what was written.
async fn found(writes: &[Write], text: &str) -> (usize, usize) {
    let store = store();
    for write in writes.iter().cloned() {
        match write {
            Write::Session(id, session) => store.set_config.unbounded((id, session)).await.unwrap(),
            Write::Chats(id, chats) => store.set_chats.unbounded((id, chats)).await.unwrap(),
            Write::Turn(id, chat, place, turn) => {
                store.set_turn.as_ref().unwrap().unbounded((id, chat, place, *turn)).await.unwrap();
            }
            Write::Drop(id, chat, from) => {
                store.drop_turns.as_ref().unwrap().unbounded((id, chat, from)).await.unwrap();
            }
        }
    }
    let host = host(&Stage::default(), store).await;
    let mut client = host.raw();
    client.initialize("c").await;
    let state = chat(&mut client).await;
    let count = |rows: &Value| {
        let rows = rows.as_array().cloned().unwrap_or_default();
        rows.iter().filter(|row| row["message"]["text"] == text).count()
    };
    // The first one that waits has begun.
    let begun = usize::from(state["activeTurn"]["message"]["text"] == text);
    (count(&state["turns"]) + begun, count(&state["queuedMessages"]))
}

#[tokio::test]
async fn killed_after_any_write_a_queued_message_is_there_once() {
    let (stage, writes) = (Stage::default(), Arc::new(Mutex::new(Vec::new())));
    let host = host(&stage, noting(&writes)).await;
    let mut client = host.raw();
    client.initialize("c").await;
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    chat(&mut client).await;
    let channel = ostler_protocol::uri::default_chat(SESSION);
    let turn = json!({ "type": "chat/turnStarted", "turnId": "first", "message": { "text": "first" } });
    client.dispatch(&channel, 1, turn).await;
    stage.wait_told("begin").await;
    for (seq, id) in [(2, "second"), (3, "third")] {
        let queued = json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": id, "message": { "text": id } });
        client.dispatch(&channel, seq, queued).await;
        client.actions_until("chat/pendingMessageSet").await;
    }
    let queued = writes.lock().unwrap().len();
    let end = |turn: &str| json!({ "type": "chat/turnComplete", "turnId": turn, "duration": 1 });
    stage.emit(0, Emit::Chat, end("first"));
    let begun = client.actions_until("chat/turnStarted").await.pop().unwrap();
    let second = begun["action"]["turnId"].as_str().unwrap().to_owned();
    let started = writes.lock().unwrap().len();
    stage.emit(0, Emit::Chat, end(&second));
    client.actions_until("chat/turnStarted").await;
    let all = writes.lock().unwrap().clone();
    assert!(queued < started && started < all.len());
    for killed in queued..=all.len() {
        for text in ["second", "third"] {
            let (said, waits) = found(&all[..killed], text).await;
            assert_eq!(
                said + waits,
                1,
                "{text} after {killed} of {}: {said} turns, {waits} waiting",
                all.len()
            );
        }
        let said = found(&all[..killed], "second").await.0;
        assert!(killed < started || said == 1, "whoever was shown the turn finds it");
    }
    // Taken back with its turn, it does not wait again.
    let truncated = json!({ "type": "chat/truncated", "turnId": "first" });
    client.dispatch(&channel, 4, truncated).await;
    client.actions_until("chat/truncated").await;
    stage.wait_told("close").await;
    let all = writes.lock().unwrap().clone();
    assert_eq!(found(&all, "second").await, (0, 0));
}
