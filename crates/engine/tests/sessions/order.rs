//! The order of a connection's messages while the session store is slow: what needs the store waits, and with it what has
//! to come later; everything else continues.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ostler_contract::points::{KeptSession, SessionFlags, SessionStore, StoredSession};
use ostler_contract::{Call, Value, json};
use ostler_protocol::uri;
use ostler_testkit::cases::empty_sessions;
use ostler_testkit::{MemoryHost, RawClient, Stage};
use tokio::time::Instant;

/// How long a slow store takes for a session; less than it may.
const SLOW: Duration = Duration::from_secs(3);
const SESSION: &str = "stage:/1";
/// A session that is in the store only.
const STORED: &str = "stage:/stored";

/// What a slow store counts, once it is slow.
#[derive(Default)]
struct Slow {
    is_slow: AtomicBool,
    /// How often it was asked for a session.
    asked: AtomicUsize,
}

/// A store with one session, which takes `delay` to say what it has once it is slow, or does not say it.
fn store(delay: Option<Duration>, slow: Arc<Slow>) -> SessionStore {
    let session = Call::new(move |(id,): (String,)| {
        let is_slow = slow.is_slow.load(Ordering::SeqCst);
        slow.asked.fetch_add(usize::from(is_slow), Ordering::SeqCst);
        async move {
            match delay {
                Some(delay) if is_slow => tokio::time::sleep(delay).await,
                None if is_slow => std::future::pending().await,
                _ => {}
            }
            let session = KeptSession {
                uri: STORED.into(),
                provider: "stage".into(),
                created_at: "2026-01-01T00:00:00.000Z".into(),
                modified_at: "2026-01-01T00:00:00.000Z".into(),
                ..KeptSession::default()
            };
            let flags = SessionFlags::default();
            Ok((id == "stored").then_some(StoredSession { id, session, flags, chats: None }))
        }
    });
    SessionStore {
        session: Some(session),
        page: Some(Call::now(|_| Ok(Vec::new()))),
        session_of_chat: Some(Call::now(|_| Ok(None))),
        drafts: Some(Call::now(|()| Ok(Vec::new()))),
        count: Some(Call::now(|()| Ok(1))),
        turns: Some(Call::now(|_| Ok(Vec::new()))),
        set_turn: Some(Call::now(|_| Ok(()))),
        drop_turns: Some(Call::now(|_| Ok(()))),
        ..empty_sessions()
    }
}

fn chat(session: &str) -> String {
    uri::default_chat(session)
}

/// A host with a slow store, and a client that watches a chat of a session in memory.
async fn slow(delay: Option<Duration>) -> (MemoryHost, RawClient, Arc<Slow>) {
    let slow = Arc::<Slow>::default();
    let store = store(delay, slow.clone());
    let host = MemoryHost::builder()
        .plugin(Stage::default().plugin(), json!({}))
        .sessions(store)
        .options(|options| options.delta_window_ms = 0)
        .start()
        .await;
    let mut client = host.raw();
    client.initialize("c").await;
    client.request("createSession", json!({ "channel": SESSION, "provider": "stage" })).await.unwrap();
    client.request("subscribe", json!({ "channel": chat(SESSION) })).await.unwrap();
    slow.is_slow.store(true, Ordering::SeqCst);
    (host, client, slow)
}

async fn ask(client: &RawClient, id: &str, method: &str, params: Value) {
    let frame = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    client.send(&frame.to_string()).await;
}

fn draft(text: &str) -> Value {
    json!({ "type": "chat/draftChanged", "draft": { "text": text, "origin": { "kind": "user" } } })
}

/// A frame in one word: the id of an answer, with `!` where it is an error, or the client's count of an action.
fn word(frame: &Value) -> Option<String> {
    if let Some(id) = frame["id"].as_str() {
        let failed = if frame.get("error").is_some() { "!" } else { "" };
        return Some(format!("{id}{failed}"));
    }
    let seq = frame["params"]["origin"]["clientSeq"].as_i64()?;
    let rejected = if frame["params"]["rejectionReason"].is_null() { "" } else { "!" };
    Some(format!("#{seq}{rejected}"))
}

/// The next `count` answers and echoes.
async fn words(client: &mut RawClient, count: usize) -> Vec<String> {
    let mut words = Vec::new();
    while words.len() < count {
        words.extend(word(&client.next_frame().await.unwrap()));
    }
    words
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_says_whether_an_id_is_taken_holds_up_only_that_session() {
    let (host, mut client, _) = slow(None).await;
    let since = Instant::now();
    ask(&client, "new", "createSession", json!({ "channel": "stage:/new", "provider": "stage" })).await;
    ask(&client, "newer", "createSession", json!({ "channel": "stage:/newer", "provider": "stage" })).await;
    ask(&client, "of new", "subscribe", json!({ "channel": "stage:/new" })).await;
    client.dispatch(&chat(STORED), 1, draft("Later.")).await;
    client.dispatch(&chat(SESSION), 2, draft("Now.")).await;
    let begin = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "Go." } });
    client.dispatch(&chat(SESSION), 3, begin).await;
    client.dispatch(&chat(SESSION), 4, json!({ "type": "chat/turnCancelled", "turnId": "t" })).await;
    ask(&client, "turns", "fetchTurns", json!({ "channel": chat(SESSION) })).await;
    assert_eq!(words(&mut client, 4).await, ["#2", "#3", "#4", "turns"]);
    client.notify("unsubscribe", json!({ "channel": chat(SESSION) })).await;
    ask(&client, "again", "subscribe", json!({ "channel": chat(SESSION) })).await;
    assert_eq!(words(&mut client, 1).await, ["again"]);
    let mut other = host.raw();
    other.initialize("o").await;
    other.request("subscribe", json!({ "channel": chat(SESSION) })).await.unwrap();
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    let mut failed = words(&mut client, 4).await;
    assert!(failed.iter().position(|word| word == "new!") < failed.iter().position(|word| word == "of new!"));
    failed.sort_unstable();
    assert_eq!(failed, ["#1!", "new!", "newer!", "of new!"]);
    assert!(since.elapsed() < Duration::from_secs(11), "all waited together: {:?}", since.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_follows_the_creation_of_a_session_finds_it() {
    let (_host, mut client, _) = slow(Some(SLOW)).await;
    let new = "stage:/new";
    let since = Instant::now();
    ask(&client, "new", "createSession", json!({ "channel": new, "provider": "stage" })).await;
    ask(&client, "twice", "createSession", json!({ "channel": new, "provider": "stage" })).await;
    ask(&client, "watch", "subscribe", json!({ "channel": chat(new) })).await;
    client.dispatch(&chat(new), 1, draft("First.")).await;
    client.dispatch(&chat(new), 2, draft("Second.")).await;
    ask(&client, "turns", "fetchTurns", json!({ "channel": chat(new) })).await;
    ask(&client, "other", "fetchTurns", json!({ "channel": chat(SESSION) })).await;
    assert_eq!(words(&mut client, 1).await, ["other"]);
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    let mut seen = words(&mut client, 6).await;
    assert!(seen.iter().position(|word| word == "#1") < seen.iter().position(|word| word == "#2"));
    seen.sort_unstable();
    assert_eq!(seen, ["#1", "#2", "new", "turns", "twice!", "watch"]);
}

#[tokio::test(start_paused = true)]
async fn messages_to_a_session_that_is_loaded_keep_their_order() {
    let (_host, mut client, store) = slow(Some(SLOW)).await;
    ask(&client, "watch", "subscribe", json!({ "channel": chat(STORED) })).await;
    for seq in 1..=20 {
        client.dispatch(&chat(STORED), seq, draft(&format!("Draft {seq}."))).await;
        if seq == 10 {
            // Under another name.
            ask(&client, "session", "subscribe", json!({ "channel": STORED })).await;
        }
    }
    client.dispatch(&chat(SESSION), 21, draft("Elsewhere.")).await;
    assert_eq!(words(&mut client, 1).await, ["#21"]);
    let expected: Vec<_> = std::iter::once("watch".to_owned())
        .chain((1..=10).map(|seq| format!("#{seq}")))
        .chain(std::iter::once("session".to_owned()))
        .chain((11..=20).map(|seq| format!("#{seq}")))
        .collect();
    assert_eq!(words(&mut client, 22).await, expected);
    assert_eq!(store.asked.load(Ordering::SeqCst), 1, "the session is loaded once");
}

#[tokio::test(start_paused = true)]
async fn what_follows_a_reconnect_comes_after_it() {
    let (host, _first, _) = slow(Some(SLOW)).await;
    let mut client = host.raw();
    let since = Instant::now();
    let back = json!({ "channel": "ahp-root://", "clientId": "c", "lastSeenServerSeq": 0,
        "subscriptions": [chat(SESSION), chat(STORED)] });
    ask(&client, "back", "reconnect", back).await;
    client.dispatch(&chat(SESSION), 1, draft("After.")).await;
    ask(&client, "turns", "fetchTurns", json!({ "channel": chat(SESSION) })).await;
    ask(&client, "models", "resolveSessionConfig", json!({ "channel": "ahp-root://", "provider": "stage" }))
        .await;
    ask(&client, "ping", "ping", json!({ "channel": "ahp-root://" })).await;
    assert_eq!(words(&mut client, 2).await, ["ping", "models"], "what runs on its own does not wait");
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    assert_eq!(words(&mut client, 3).await, ["back", "#1", "turns"]);
}

#[tokio::test(start_paused = true)]
async fn a_connection_whose_messages_all_wait_is_read_no_further() {
    let (_host, mut client, _) = slow(None).await;
    let all = async {
        for seq in 0..400 {
            client.dispatch(&chat(STORED), seq, draft("Waits.")).await;
        }
    };
    let since = Instant::now();
    tokio::time::timeout(Duration::from_secs(120), all).await.unwrap();
    assert!(
        since.elapsed() >= Duration::from_secs(20),
        "three times as many as may wait: {:?}",
        since.elapsed()
    );
    let seen = words(&mut client, 400).await;
    let expected: Vec<_> = (0..400).map(|seq| format!("#{seq}!")).collect();
    assert_eq!(seen, expected);
}
