//! What waits for the store and what does not: the start of a turn, its end, and writes that are deferred.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ostler_contract::call::Signature;
use ostler_contract::points::{Emit, SessionStore};
use ostler_contract::{Call, Thrown, Value, json};
use ostler_ports::{SqliteSessions, StateDb};
use ostler_testkit::cases::{at_once, empty_sessions};
use ostler_testkit::wrapped_store::{WrapCall, wrapped_store};
use ostler_testkit::{MemoryHost, RawClient, Stage};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

const SESSION: &str = "stage:/1";

fn chat() -> String {
    ostler_protocol::uri::default_chat(SESSION)
}

fn store() -> SessionStore {
    let store =
        SqliteSessions::new(StateDb::memory().unwrap(), ostler_ports::Report::new(|line| panic!("{line}")));
    Arc::new(store).into_point()
}

/// A store whose writes of turns are answered as often as `gate` lets them.
fn gated(gate: &Arc<Semaphore>) -> SessionStore {
    let own = at_once(store());
    let (set_turn, gate) = (own.set_turn.clone().unwrap(), gate.clone());
    let set_turn = Call::new(move |arguments: (String, String, u64, _)| {
        let (written, gate) = (set_turn.unbounded(arguments), gate.clone());
        async move {
            gate.acquire().await.unwrap().forget();
            written.await
        }
    });
    SessionStore { set_turn: Some(set_turn), ..own }
}

async fn host(stage: &Stage, store: SessionStore) -> (MemoryHost, RawClient) {
    let host = MemoryHost::builder()
        .plugin(stage.plugin(), json!({}))
        .options(|options| options.delta_window_ms = 0)
        .sessions(store)
        .start()
        .await;
    let mut client = host.raw();
    client.initialize("c").await;
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    for channel in [SESSION.to_owned(), chat()] {
        client.request("subscribe", json!({ "channel": channel })).await.unwrap();
    }
    (host, client)
}

fn types(frames: &[Value]) -> Vec<&str> {
    frames.iter().filter_map(|frame| frame["params"]["action"]["type"].as_str()).collect()
}

fn emit_word(stage: &Stage, turn: &str) {
    let part = json!({ "kind": "markdown", "id": "p", "content": "" });
    stage.emit(0, Emit::Chat, json!({ "type": "chat/responsePart", "turnId": turn, "part": part }));
    stage.emit(
        0,
        Emit::Chat,
        json!({ "type": "chat/delta", "turnId": turn, "partId": "p", "content": "word" }),
    );
}

#[tokio::test]
async fn a_backend_begins_while_its_turn_is_stored_and_is_published_after_that() {
    let (stage, gate) = (Stage::default(), Arc::new(Semaphore::new(0)));
    let (_host, mut client) = host(&stage, gated(&gate)).await;
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "Go." } });
    client.dispatch(&chat(), 1, turn).await;
    stage.wait_told("begin").await;
    emit_word(&stage, "t");
    let early = client.ready_frames().await;
    assert_eq!(types(&early), [""; 0], "nothing of a turn is published before its start is stored");
    gate.add_permits(1);
    let seen = client.actions_until("chat/delta").await;
    let seen: Vec<_> = seen.iter().filter_map(|action| action["action"]["type"].as_str()).collect();
    assert_eq!(
        seen.iter().filter(|name| name.starts_with("chat/")).collect::<Vec<_>>(),
        [&"chat/turnStarted", &"chat/responsePart", &"chat/delta"]
    );
}

/// Else a host that is killed in between would find the message in the queue and tell the backend again.
#[tokio::test(start_paused = true)]
async fn a_backend_hears_of_a_message_that_waited_once_its_turn_is_stored() {
    let (stage, gate) = (Stage::default(), Arc::new(Semaphore::new(1)));
    let (_host, mut client) = host(&stage, gated(&gate)).await;
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "Go." } });
    client.dispatch(&chat(), 1, turn).await;
    client.actions_until("chat/turnStarted").await;
    let message = json!({ "text": "Go on.", "origin": { "kind": "user" } });
    let queued = json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": "q", "message": message });
    client.dispatch(&chat(), 2, queued).await;
    client.actions_until("chat/pendingMessageSet").await;
    stage.emit(0, Emit::Chat, json!({ "type": "chat/turnComplete", "turnId": "t", "duration": 1 }));
    gate.add_permits(1);
    client.actions_until("chat/turnComplete").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let begun = || stage.told().iter().filter(|told| told.get("begin").is_some()).count();
    assert_eq!((begun(), gate.available_permits()), (1, 0), "the turn is not stored");
    gate.add_permits(1);
    client.actions_until("chat/turnStarted").await;
    tokio::time::timeout(Duration::from_secs(10), async {
        while begun() < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await
    .expect("the backend begins");
}

#[tokio::test]
async fn words_do_not_wait_for_the_end_of_their_turn_to_be_stored() {
    let (stage, gate) = (Stage::default(), Arc::new(Semaphore::new(1)));
    let (_host, mut client) = host(&stage, gated(&gate)).await;
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "Go." } });
    client.dispatch(&chat(), 1, turn).await;
    client.actions_until("chat/turnStarted").await;
    emit_word(&stage, "t");
    stage.emit(0, Emit::Chat, json!({ "type": "chat/turnComplete", "turnId": "t", "duration": 1 }));
    client.actions_until("chat/delta").await;
    assert!(!types(&client.ready_frames().await).contains(&"chat/turnComplete"));
    gate.add_permits(1);
    client.actions_until("chat/turnComplete").await;
}

/// The writer and the connections share a processor: what a session published before a change is sent before the writer has
/// work. A runtime with one thread polls in a fixed order, so this does not depend on time.
#[tokio::test]
async fn words_are_sent_before_the_writer_is_given_the_end_of_their_turn() {
    let (stage, own) = (Stage::default(), store());
    let received = Arc::new(Mutex::new(Vec::new()));
    let at_write = Arc::new(Mutex::new(Vec::new()));
    let (set_turn, seen, noted) = (own.set_turn.clone().unwrap(), received.clone(), at_write.clone());
    let set_turn = Call::new(move |arguments: (String, String, u64, _)| {
        noted.lock().push(Vec::clone(&seen.lock()));
        set_turn.unbounded(arguments)
    });
    let (_host, mut client) = host(&stage, SessionStore { set_turn: Some(set_turn), ..own }).await;
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "Go." } });
    client.dispatch(&chat(), 1, turn).await;
    client.actions_until("chat/turnStarted").await;
    let seen = received.clone();
    let reader = tokio::spawn(async move {
        loop {
            let action = client.next_action().await;
            let name = action["action"]["type"].as_str().unwrap().to_owned();
            seen.lock().push(name.clone());
            if name == "chat/turnComplete" {
                return;
            }
        }
    });
    tokio::task::yield_now().await;
    emit_word(&stage, "t");
    stage.emit(0, Emit::Chat, json!({ "type": "chat/turnComplete", "turnId": "t", "duration": 1 }));
    tokio::time::timeout(Duration::from_secs(10), reader).await.unwrap().unwrap();
    let at_write = at_write.lock();
    assert_eq!(at_write.len(), 2, "its start and its end: {at_write:?}");
    assert!(at_write[1].iter().any(|name| name == "chat/delta"), "sent before the end: {at_write:?}");
}

/// A store that notes the writes of marks and of chats, and needs no thread that paused time would not wait for.
fn noting(written: &Arc<Mutex<Vec<&'static str>>>) -> SessionStore {
    let (flags, chats) = (written.clone(), written.clone());
    SessionStore {
        set_flags: Call::now(move |_| {
            flags.lock().push("flags");
            Ok(())
        }),
        set_chats: Call::now(move |_| {
            chats.lock().push("chats");
            Ok(())
        }),
        ..empty_sessions()
    }
}

async fn mark_and_draft(client: &mut RawClient, times: i64) {
    for at in 0..times {
        let mark = json!({ "type": "session/isReadChanged", "isRead": at % 2 == 0 });
        client.dispatch(SESSION, 2 * at, mark).await;
        client.actions_until("session/isReadChanged").await;
        let text = format!("draft {at}");
        let draft =
            json!({ "type": "chat/draftChanged", "draft": { "text": text, "origin": { "kind": "user" } } });
        client.dispatch(&chat(), 2 * at + 1, draft).await;
        client.actions_until("chat/draftChanged").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_marks_and_drafts_is_written_once() {
    let (stage, written) = (Stage::default(), Arc::default());
    let (_host, mut client) = host(&stage, noting(&written)).await;
    written.lock().clear();
    mark_and_draft(&mut client, 51).await;
    assert_eq!(*written.lock(), [""; 0], "published before they are written");
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert_eq!(*written.lock(), ["flags", "chats"]);
}

#[tokio::test]
async fn a_host_that_closes_writes_what_is_deferred() {
    let (stage, store) = (Stage::default(), store());
    let (host, mut client) = host(&stage, store.clone()).await;
    mark_and_draft(&mut client, 1).await;
    host.host.close().await;
    assert!(store.flags.unbounded(("1".into(),)).await.unwrap().unwrap().is_read);
    let chats = store.chats.unbounded(("1".into(),)).await.unwrap();
    assert_eq!(chats[0].draft.as_ref().unwrap()["text"], "draft 0");
}

/// Reads or writes of a store fail while this is set.
struct Failing {
    writes: bool,
    fails: Arc<AtomicBool>,
}

impl WrapCall for Failing {
    fn wrap<S: Signature>(&self, call: &Call<S>, writes: bool) -> Call<S> {
        let (call, fails, is_concerned) = (call.clone(), self.fails.clone(), writes == self.writes);
        Call::new(move |arguments| {
            let (call, fails) = (call.clone(), is_concerned && fails.load(Ordering::Relaxed));
            async move {
                match fails {
                    true => Err(Thrown::new("the database is slow")),
                    false => futures::executor::block_on(call.unbounded(arguments)),
                }
            }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_cannot_be_read_is_not_overwritten() {
    let fails = Arc::new(AtomicBool::new(false));
    let store = wrapped_store(&store(), &Failing { writes: false, fails: fails.clone() });
    let start = async || {
        let builder = MemoryHost::builder().plugin(ostler_plugin_echo::plugin(), json!({}));
        builder.sessions(store.clone()).start().await
    };
    let session = "echo:/1";
    let chat = ostler_protocol::uri::default_chat(session);
    let say = async |client: &mut RawClient, turn: &str| {
        let action = json!({ "type": "chat/turnStarted", "turnId": turn, "message": { "text": turn } });
        client.dispatch(&chat, 1, action).await;
        client.actions_until("chat/turnComplete").await;
    };
    let host = start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    client.request("createSession", json!({ "channel": session })).await.unwrap();
    client.request("subscribe", json!({ "channel": chat })).await.unwrap();
    say(&mut client, "t1").await;
    drop(client);
    host.host.stop().await;
    host.host.close().await;

    let host = start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    // Known, but asleep.
    client.request("listSessions", json!({})).await.unwrap();
    assert!(host.host.sessions.session("1").await.known().unwrap().is_some());
    fails.store(true, Ordering::Relaxed);
    let refused = client.request("subscribe", json!({ "channel": chat })).await.unwrap_err();
    assert_eq!(refused["data"]["retryable"], true, "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("the database is slow"), "{refused}");
    fails.store(false, Ordering::Relaxed);
    let subscribed = client.request("subscribe", json!({ "channel": chat })).await.unwrap();
    assert_eq!(subscribed["snapshot"]["state"]["turns"][0]["id"], "t1");
    say(&mut client, "t2").await;
    let stored = store.turns.as_ref().unwrap().unbounded(("1".to_owned(), chat.clone())).await.unwrap();
    assert_eq!(stored.iter().map(|turn| turn.turn.id.as_str()).collect::<Vec<_>>(), ["t1", "t2"]);
}
