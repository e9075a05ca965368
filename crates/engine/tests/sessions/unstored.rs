//! What a store does not take is not acknowledged, on one host as in a cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ostler_contract::call::Signature;
use ostler_contract::points::{Emit, KeptChat, KeptTurn, SessionStore};
use ostler_contract::{Call, Thrown, Value, json};
use ostler_ports::{SqliteSessions, StateDb};
use ostler_protocol::uri;
use ostler_testkit::cases::{at_once, empty_sessions};
use ostler_testkit::wrapped_store::{WrapCall, wrapped_store};
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

/// A store that keeps what it takes, and fails while it is told to.
struct Keeping {
    fails: Arc<AtomicBool>,
    store: SessionStore,
}

struct Failing(Arc<AtomicBool>);

impl WrapCall for Failing {
    fn wrap<S: Signature>(&self, call: &Call<S>, writes: bool) -> Call<S> {
        let (call, fails) = (call.clone(), self.0.clone());
        Call::new(move |arguments| {
            let (call, fails) = (call.clone(), writes && fails.load(Ordering::SeqCst));
            async move {
                match fails {
                    true => Err(Thrown::new("the disk does not answer")),
                    false => call.unbounded(arguments).await,
                }
            }
        })
    }
}

impl Keeping {
    fn new() -> Self {
        let fails = Arc::new(AtomicBool::new(false));
        let own = SqliteSessions::new(
            StateDb::memory().unwrap(),
            ostler_ports::Report::new(|line| panic!("{line}")),
        );
        let store = wrapped_store(&at_once(Arc::new(own).into_point()), &Failing(fails.clone()));
        Self { fails, store }
    }

    /// Fails from now on, for a time.
    fn fail_for(&self, time: Duration) {
        fail_for(&self.fails, time);
    }

    async fn host(&self, stage: &Stage) -> MemoryHost {
        MemoryHost::builder().plugin(stage.plugin(), json!({})).sessions(self.store.clone()).start().await
    }
}

fn fail_for(fails: &Arc<AtomicBool>, time: Duration) {
    fails.store(true, Ordering::SeqCst);
    let fails = fails.clone();
    tokio::spawn(async move {
        tokio::time::sleep(time).await;
        fails.store(false, Ordering::SeqCst);
    });
}

/// What clients see of a session and of its chats.
async fn seen(host: &MemoryHost) -> Value {
    let mut client = host.raw();
    client.initialize("reader").await;
    let subscribe = async |client: &mut RawClient, channel: &str| {
        client.request("subscribe", json!({ "channel": channel })).await.unwrap()["snapshot"]["state"].clone()
    };
    let session = subscribe(&mut client, SESSION).await;
    let mut chats = Vec::new();
    for chat in session["chats"].as_array().unwrap() {
        let chat = subscribe(&mut client, chat["resource"].as_str().unwrap()).await;
        // A running turn is a failed one after a kill.
        let ended = chat["turns"].as_array().unwrap().iter();
        let turns = ended.chain(chat.get("activeTurn")).map(|turn| json!([turn["id"], turn["message"]]));
        chats.push(json!({
            "resource": chat["resource"], "turns": turns.collect::<Vec<_>>(), "queued": chat["queuedMessages"],
            "draft": chat["draft"], "title": chat["title"],
        }));
    }
    json!({ "title": session["title"], "isRead": session["isRead"], "isArchived": session["isArchived"], "chats": chats })
}

const OTHER: &str = "ahp-chat:/other";
const LAST: &str = "ahp-chat:/last";

/// A session with three chats: in the first a turn has ended and one is running.
async fn busy(stage: &Stage, kept: &Keeping) -> (MemoryHost, RawClient, String) {
    let (host, chat) = (kept.host(stage).await, uri::default_chat(SESSION));
    let mut client = host.raw();
    client.initialize("c").await;
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    for channel in [SESSION, &chat] {
        client.request("subscribe", json!({ "channel": channel })).await.unwrap();
    }
    for chat in [OTHER, LAST] {
        client.request("createChat", json!({ "channel": SESSION, "chat": chat })).await.unwrap();
    }
    for (seq, turn) in [(1, "t1"), (2, "t2")] {
        let started = json!({ "type": "chat/turnStarted", "turnId": turn, "message": { "text": turn } });
        client.dispatch(&chat, seq, started).await;
        client.actions_until("chat/turnStarted").await;
        if turn == "t1" {
            end(stage, turn);
            client.actions_until("chat/turnComplete").await;
        }
    }
    (host, client, chat)
}

/// Ends a turn of the first chat, whose backend is the first one with a turn.
fn end(stage: &Stage, turn: &str) {
    let complete = json!({ "type": "chat/turnComplete", "turnId": turn, "duration": 1 });
    let own = (0..stage.started()).find(|at| stage.start(*at).chat_id.is_none());
    stage.emit(own.expect("a backend"), Emit::Chat, complete);
}

/// What a client asks for while the store fails: the channel and the action of a dispatch, or a request.
fn changes(chat: &str) -> Vec<(&'static str, Value)> {
    let dispatch = |channel: &str, action: Value| ("", json!({ "channel": channel, "action": action }));
    let queued = |id: &str| {
        let message = json!({ "text": id, "origin": { "kind": "user" } });
        json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": id, "message": message })
    };
    vec![
        dispatch(chat, queued("q")),
        dispatch(OTHER, json!({ "type": "chat/turnStarted", "turnId": "o", "message": { "text": "Go." } })),
        dispatch(chat, json!({ "type": "chat/draftChanged", "draft": { "text": "Well" } })),
        dispatch(SESSION, json!({ "type": "session/titleChanged", "title": "New" })),
        dispatch(SESSION, json!({ "type": "session/isArchivedChanged", "isArchived": true })),
        ("disposeChat", json!({ "channel": OTHER })),
        ("moveChat", json!({ "channel": LAST, "destination": { "kind": "session", "session": SESSION } })),
    ]
}

#[tokio::test(start_paused = true)]
async fn what_goes_on_in_memory_is_stored_once_the_store_takes_it() {
    for at in 0..changes("").len() {
        let (stage, kept) = (Stage::default().with_chats(), Keeping::new());
        let (host, mut client, chat) = busy(&stage, &kept).await;
        let (method, params) = changes(&chat).swap_remove(at);
        kept.fail_for(Duration::from_secs(20));
        let refused = match method {
            "" => {
                client.dispatch(params["channel"].as_str().unwrap(), 9, params["action"].clone()).await;
                loop {
                    let envelope = client.next_action().await;
                    if !envelope["origin"].is_null() {
                        break envelope["_meta"]["ostler.retryable"] == true;
                    }
                }
            }
            method => {
                let answer = client.request(method, params.clone()).await;
                answer.unwrap_err()["data"]["retryable"] == true
            }
        };
        // A draft is published before it is stored.
        assert_eq!(refused, params["action"]["type"] != "chat/draftChanged", "{params}");
        tokio::time::sleep(Duration::from_secs(60)).await;
        // Nothing else happens, and the host is killed.
        end(&stage, "t2");
        client.actions_until("chat/turnComplete").await;
        let before = seen(&host).await;
        let again = kept.host(&Stage::default().with_chats()).await;
        assert_eq!(before, seen(&again).await, "{params}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_queued_message_whose_start_was_not_stored_runs_once() {
    let (stage, mut kept) = (Stage::default().with_chats(), Keeping::new());
    // The store fails from the end of the turn before it.
    let (set_turn, fails) = (kept.store.set_turn.clone().unwrap(), kept.fails.clone());
    kept.store.set_turn = Some(Call::new(move |arguments: (String, String, u64, KeptTurn)| {
        let (fails, ends) =
            (fails.clone(), arguments.3.turn.id == "t2" && arguments.3.turn.duration.is_some());
        let stored = set_turn.unbounded(arguments);
        async move {
            stored.await?;
            if ends {
                fail_for(&fails, Duration::from_secs(10));
            }
            Ok(())
        }
    }));
    let (host, mut client, chat) = busy(&stage, &kept).await;
    let (_, queued) = changes(&chat).swap_remove(0);
    client.dispatch(&chat, 3, queued["action"].clone()).await;
    client.actions_until("chat/pendingMessageSet").await;
    end(&stage, "t2");
    let started = client.actions_until("chat/turnStarted").await.pop().unwrap();
    tokio::time::sleep(Duration::from_secs(20)).await;
    end(&stage, started["action"]["turnId"].as_str().unwrap());
    client.actions_until("chat/turnComplete").await;
    let again = kept.host(&Stage::default().with_chats()).await;
    let (before, after) = (seen(&host).await, seen(&again).await);
    assert!(after["chats"][0]["queued"].is_null(), "{after}");
    assert_eq!(before, after);
}

/// Whenever the host is killed, it is in the stored queue or in a stored turn.
#[tokio::test(start_paused = true)]
async fn a_queued_message_whose_turn_the_store_does_not_take_is_in_the_store() {
    let (stage, mut kept) = (Stage::default().with_chats(), Keeping::new());
    let (is_queued, is_in_turn, is_lost) = <(Arc<AtomicBool>, Arc<AtomicBool>, Arc<AtomicBool>)>::default();
    let set_turn = kept.store.set_turn.clone().unwrap();
    let fails = Arc::new(AtomicBool::new(false));
    let (turn_fails, stored) = (fails.clone(), is_in_turn.clone());
    kept.store.set_turn = Some(Call::new(move |arguments: (String, String, u64, KeptTurn)| {
        let (fails, stored) = (turn_fails.load(Ordering::SeqCst), stored.clone());
        let is_it = arguments.3.turn.message.text == "q";
        let set = set_turn.unbounded(arguments);
        async move {
            if is_it && fails {
                return Err(Thrown::new("the disk does not answer"));
            }
            set.await?;
            stored.fetch_or(is_it, Ordering::SeqCst);
            Ok(())
        }
    }));
    let set_chats = kept.store.set_chats.clone();
    let (queued, in_turn, lost) = (is_queued.clone(), is_in_turn.clone(), is_lost.clone());
    kept.store.set_chats = Call::new(move |arguments: (String, Vec<KeptChat>)| {
        let waits = arguments.1.iter().any(KeptChat::waits);
        let was_queued = queued.fetch_or(waits, Ordering::SeqCst);
        lost.fetch_or(was_queued && !waits && !in_turn.load(Ordering::SeqCst), Ordering::SeqCst);
        set_chats.unbounded(arguments)
    });
    let (_host, mut client, chat) = busy(&stage, &kept).await;
    let (_, queued) = changes(&chat).swap_remove(0);
    client.dispatch(&chat, 3, queued["action"].clone()).await;
    client.actions_until("chat/pendingMessageSet").await;
    // Only its turn is not taken.
    fail_for(&fails, Duration::from_secs(9));
    end(&stage, "t2");
    client.actions_until("chat/turnStarted").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(is_queued.load(Ordering::SeqCst) && is_in_turn.load(Ordering::SeqCst));
    assert!(!is_lost.load(Ordering::SeqCst), "it was neither in the queue nor in a turn");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_the_store_does_not_delete_loses_nothing() {
    let (stage, kept) = (Stage::default().with_chats().naming_conversations(), Keeping::new());
    let (host, mut client, chat) = busy(&stage, &kept).await;
    let mut other = host.raw();
    other.initialize("other").await;
    other.request("subscribe", json!({ "channel": chat })).await.unwrap();
    kept.fail_for(Duration::from_secs(20));
    let refused = client.request("disposeSession", json!({ "channel": SESSION })).await.unwrap_err();
    assert_eq!(refused["data"]["retryable"], true, "{refused}");
    assert!(!stage.told().iter().any(|told| told.get("delete").is_some()), "{:?}", stage.told());
    tokio::time::sleep(Duration::from_secs(30)).await;
    // Its turn goes on, for all clients.
    end(&stage, "t2");
    other.actions_until("chat/turnComplete").await;
    client.request("disposeSession", json!({ "channel": SESSION })).await.unwrap();
    assert!(stage.told().iter().any(|told| told.get("delete").is_some()), "{:?}", stage.told());
    client.request("subscribe", json!({ "channel": SESSION })).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn a_failed_change_of_one_chat_rewrites_no_turn_of_others() {
    let (stage, mut kept) = (Stage::default().with_chats(), Keeping::new());
    let written: Arc<parking_lot::Mutex<Vec<KeptTurn>>> = Arc::default();
    let (set_turn, noted) = (kept.store.set_turn.clone().unwrap(), written.clone());
    kept.store.set_turn = Some(Call::new(move |arguments: (String, String, u64, KeptTurn)| {
        noted.lock().push(arguments.3.clone());
        set_turn.unbounded(arguments)
    }));
    let (_host, mut client, _chat) = busy(&stage, &kept).await;
    end(&stage, "t2");
    client.actions_until("chat/turnComplete").await;
    let last = written.lock().last().cloned().unwrap();
    written.lock().clear();
    kept.fail_for(Duration::from_secs(2));
    client.dispatch(SESSION, 9, json!({ "type": "session/titleChanged", "title": "New" })).await;
    client.actions_until("session/titleChanged").await;
    assert!(written.lock().iter().all(|turn| *turn == last), "{:?}", written.lock());
}

#[tokio::test(start_paused = true)]
async fn removed_turns_do_not_return_where_only_their_removal_failed() {
    let (stage, mut kept) = (Stage::default().with_chats(), Keeping::new());
    let (drop_turns, fails) = (kept.store.drop_turns.clone().unwrap(), Arc::new(AtomicBool::new(false)));
    let failing = fails.clone();
    kept.store.drop_turns = Some(Call::new(move |arguments| {
        let (dropped, fails) = (drop_turns.clone(), failing.load(Ordering::SeqCst));
        async move {
            match fails {
                true => Err(Thrown::new("the disk does not answer")),
                false => dropped.unbounded(arguments).await,
            }
        }
    }));
    let (_host, mut client, chat) = busy(&stage, &kept).await;
    end(&stage, "t2");
    client.actions_until("chat/turnComplete").await;
    fail_for(&fails, Duration::from_secs(20));
    client.dispatch(&chat, 9, json!({ "type": "chat/truncated", "turnId": "t1" })).await;
    let answer = loop {
        let envelope = client.next_action().await;
        if !envelope["origin"].is_null() {
            break envelope;
        }
    };
    assert_eq!(answer["_meta"]["ostler.retryable"], true, "{answer}");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let after = seen(&kept.host(&Stage::default().with_chats()).await).await;
    assert_eq!(after["chats"][0]["turns"].as_array().unwrap().len(), 1, "{after}");
}
