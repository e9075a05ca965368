//! Sessions that rest in the store: listed from there, loaded when somebody needs them, let go of again.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ostler_contract::points::{KeptChat, KeptSession, SessionFlags, SessionStore};
use ostler_contract::{Call, Thrown, Value, json};
use ostler_ports::{SqliteSessions, StateDb};
use ostler_protocol::uri;
use ostler_testkit::{Builder, MemoryHost, RawClient};
use tokio::sync::Notify;

fn store(dir: &Path) -> SessionStore {
    let db = StateDb::open(dir).unwrap();
    Arc::new(SqliteSessions::new(db, ostler_ports::Report::new(|line| panic!("{line}")))).into_point()
}

/// The same store as one that cannot be read on demand.
fn plain(store: SessionStore) -> SessionStore {
    SessionStore { session: None, page: None, session_of_chat: None, count: None, ..store }
}

/// The same store with nothing but what has to be there for sessions to be read on demand.
fn least(store: SessionStore) -> SessionStore {
    SessionStore { session: None, count: None, all: None, ..store }
}

fn builder(store: SessionStore) -> Builder {
    MemoryHost::builder()
        .plugin(ostler_plugin_echo::plugin(), json!({}))
        .options(|options| options.delta_window_ms = 0)
        .sessions(store)
}

fn session(number: usize) -> KeptSession {
    KeptSession {
        uri: format!("echo:/s{number}"),
        provider: "echo".into(),
        title: format!("Session {number}"),
        owner: number.is_multiple_of(5).then(|| "user:ada".into()),
        client: None,
        created_at: "2026-01-01T00:00:00.000Z".into(),
        // Several of each.
        modified_at: format!("2026-01-01T00:00:{:02}.000Z", number * 7 % 60),
        working_directories: vec!["file:///srv".into()],
        ..KeptSession::default()
    }
}

fn chat(uri: &str) -> KeptChat {
    KeptChat { uri: uri.into(), title: Some(format!("of {uri}")), ..KeptChat::default() }
}

async fn fill(store: &SessionStore, count: usize) {
    let writes = (0..count).map(|number| async move {
        let id = format!("s{number}");
        let kept = session(number);
        let mut chats =
            vec![KeptChat { uri: uri::default_chat(&kept.uri), default: true, ..KeptChat::default() }];
        match number % 4 {
            1 => chats.push(chat(&format!("ahp-chat:/c{number}"))),
            2 => {
                (chats[0].closed, chats[0].default) = (true, false);
                chats.push(KeptChat { default: true, ..chat(&format!("mine:/c{number}")) });
                chats.push(chat(&format!("ahp-chat:/d{number}")));
            }
            _ => {}
        }
        store.set_config.unbounded((id.clone(), kept)).await.unwrap();
        store.set_chats.unbounded((id.clone(), chats)).await.unwrap();
        if number.is_multiple_of(3) {
            let flags = SessionFlags { is_read: true, is_archived: number.is_multiple_of(6) };
            store.set_flags.unbounded((id, flags)).await.unwrap();
        }
    });
    futures::future::join_all(writes).await;
}

async fn client(host: &MemoryHost) -> RawClient {
    let mut client = host.raw();
    client.initialize("c").await;
    client
}

async fn listed(client: &mut RawClient, page: Option<usize>) -> Vec<Value> {
    let (mut items, mut cursor) = (Vec::new(), Value::Null);
    loop {
        let mut params = json!({ "channel": "ahp-root://" });
        if let Some(page) = page {
            params["limit"] = page.into();
        }
        if !cursor.is_null() {
            params["cursor"] = cursor.clone();
        }
        let listed = client.request("listSessions", params).await.unwrap();
        let rows = listed["items"].as_array().unwrap();
        assert!(page.is_none_or(|page| rows.len() <= page));
        items.extend(rows.clone());
        cursor = listed["nextCursor"].clone();
        if cursor.is_null() {
            return items;
        }
    }
}

async fn error(client: &mut RawClient, method: &str, params: Value) -> (i64, String) {
    let error = client.request(method, params).await.unwrap_err();
    (error["code"].as_i64().unwrap(), error["message"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn nothing_is_loaded_at_the_start_and_the_listing_is_what_it_was() {
    let dir = tempfile::tempdir().unwrap();
    fill(&store(dir.path()), 150).await;
    let whole = builder(plain(store(dir.path()))).start().await;
    assert_eq!(whole.host.sessions.all().len(), 150);
    let expected = listed(&mut client(&whole).await, None).await;
    assert_eq!(expected.len(), 150);
    assert!(expected.iter().any(|row| row["chats"].as_array().is_some_and(|chats| chats.len() == 2)));
    for store in [store(dir.path()), least(store(dir.path()))] {
        let host = builder(store).start().await;
        assert_eq!((host.host.sessions.all().len(), host.host.sessions.count()), (0, 150));
        let mut client = client(&host).await;
        for page in [None, Some(1), Some(7), Some(149), Some(150), Some(500)] {
            assert_eq!(listed(&mut client, page).await, expected, "in pages of {page:?}");
        }
        assert_eq!(host.host.sessions.all().len(), 0, "a listing loads none");
        let root = client.request("subscribe", json!({ "channel": "ahp-root://" })).await.unwrap();
        assert_eq!(root["snapshot"]["state"]["activeSessions"], 150);

        // Some of them in memory, and a page that begins at each place.
        for number in [0, 1, 2, 33, 77, 149] {
            host.host.sessions.session(&format!("s{number}")).await.known().unwrap().unwrap();
        }
        assert_eq!(host.host.sessions.all().len(), 6);
        for page in [None, Some(1), Some(10)] {
            assert_eq!(listed(&mut client, page).await, expected, "in pages of {page:?}");
        }
    }
}

#[tokio::test]
async fn what_is_in_memory_is_listed_as_it_is_there() {
    let dir = tempfile::tempdir().unwrap();
    fill(&store(dir.path()), 40).await;
    let host = builder(store(dir.path())).start().await;
    let mut client = client(&host).await;
    client.request("createSession", json!({ "channel": "echo:/new", "provider": "echo" })).await.unwrap();
    let chat = uri::default_chat("echo:/new");
    client.request("subscribe", json!({ "channel": chat })).await.unwrap();
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t1", "message": { "text": "hello" } });
    client.dispatch(&chat, 1, turn).await;
    client.actions_until("chat/turnComplete").await;
    client.request("subscribe", json!({ "channel": "echo:/s7" })).await.unwrap();
    let rename = json!({ "type": "session/titleChanged", "title": "Renamed" });
    client.dispatch("echo:/s7", 1, rename).await;
    client.actions_until("session/titleChanged").await;
    client.request("disposeSession", json!({ "channel": "echo:/s8" })).await.unwrap();
    assert_eq!(host.host.sessions.count(), 40);
    for page in [None, Some(3)] {
        let rows = listed(&mut client, page).await;
        let of = |uri: &str| rows.iter().filter(|row| row["resource"] == uri).collect::<Vec<_>>();
        assert_eq!((rows.len(), of("echo:/new").len(), of("echo:/s8").len()), (40, 1, 0));
        assert_eq!((of("echo:/s7").len(), &of("echo:/s7")[0]["title"]), (1, &json!("Renamed")));
    }
}

#[tokio::test]
async fn what_happens_while_the_store_is_read_is_in_the_listing() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    fill(&store, 6).await;
    let (read, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (page, told, waits) = (store.page.clone().unwrap(), read.clone(), go_on.clone());
    let page = Call::new(move |arguments| {
        let (page, told, waits) = (page.clone(), told.clone(), waits.clone());
        async move {
            let rows = page.unbounded(arguments).await;
            told.notify_one();
            waits.notified().await;
            rows
        }
    });
    let host = builder(SessionStore { page: Some(page), ..store }).start().await;
    let mut here = client(&host).await;
    let mut lister = client(&host).await;
    for session in ["echo:/draft", "echo:/held"] {
        here.request("createSession", json!({ "channel": session, "provider": "echo" })).await.unwrap();
    }
    lister
        .send(r#"{"jsonrpc":"2.0","id":99,"method":"listSessions","params":{"channel":"ahp-root://"}}"#)
        .await;
    read.notified().await;
    for session in ["echo:/draft", "echo:/s1"] {
        here.request("disposeSession", json!({ "channel": session })).await.unwrap();
    }
    here.request("subscribe", json!({ "channel": "echo:/s2" })).await.unwrap();
    here.dispatch("echo:/s2", 1, json!({ "type": "session/titleChanged", "title": "Renamed" })).await;
    here.actions_until("session/titleChanged").await;
    for (at, session) in [(2, "echo:/held"), (3, "echo:/new")] {
        if at == 3 {
            here.request("createSession", json!({ "channel": session, "provider": "echo" })).await.unwrap();
        }
        let chat = uri::default_chat(session);
        here.request("subscribe", json!({ "channel": chat })).await.unwrap();
        let turn = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "words" } });
        here.dispatch(&chat, at, turn).await;
        here.actions_until("chat/turnComplete").await;
    }
    go_on.notify_one();
    let rows = loop {
        let frame = lister.next_frame().await.unwrap();
        if frame["id"] == 99 {
            break frame["result"]["items"].as_array().unwrap().clone();
        }
    };
    let mut shown: Vec<&str> = rows.iter().map(|row| row["resource"].as_str().unwrap()).collect();
    shown.sort_unstable();
    let expected = ["echo:/held", "echo:/new", "echo:/s0", "echo:/s2", "echo:/s3", "echo:/s4", "echo:/s5"];
    assert_eq!(shown, expected);
    assert_eq!(rows.iter().find(|row| row["resource"] == "echo:/s2").unwrap()["title"], "Renamed");
}

#[tokio::test]
async fn a_draft_is_loaded_at_the_start_and_not_listed() {
    let dir = tempfile::tempdir().unwrap();
    fill(&store(dir.path()), 4).await;
    let host = builder(store(dir.path())).start().await;
    let mut here = client(&host).await;
    here.request("createSession", json!({ "channel": "echo:/form", "provider": "echo" })).await.unwrap();
    assert_eq!((listed(&mut here, None).await.len(), host.host.sessions.count()), (4, 4));
    for store in [store(dir.path()), plain(store(dir.path()))] {
        let host = builder(store).start().await;
        assert!(host.host.sessions.get("form").is_some(), "its time runs");
        let mut here = client(&host).await;
        for page in [None, Some(1), Some(4), Some(5)] {
            assert_eq!(listed(&mut here, page).await.len(), 4);
        }
        assert_eq!(host.host.sessions.count(), 4);
        here.request("subscribe", json!({ "channel": "echo:/form" })).await.unwrap();
    }
}

#[tokio::test]
async fn a_session_that_rests_is_found_by_every_name_it_has() {
    let dir = tempfile::tempdir().unwrap();
    fill(&store(dir.path()), 12).await;
    let first = uri::default_chat("echo:/s1");
    for (channel, has) in [
        ("echo:/s1", "Session 1"),
        ("ahp-session:/s1", "Session 1"),
        (first.as_str(), "Session 1"),
        ("ahp-chat:/s1", "Session 1"),
        ("ahp-chat:/c1", "of ahp-chat:/c1"),
        ("mine:/c2", "of mine:/c2"),
        ("ahp-chat:/d2", "of ahp-chat:/d2"),
    ] {
        for store in [store(dir.path()), least(store(dir.path())), plain(store(dir.path()))] {
            let host = builder(store).start().await;
            let mut here = client(&host).await;
            let seen = here.request("subscribe", json!({ "channel": channel })).await.unwrap();
            assert_eq!(seen["snapshot"]["state"]["title"], has, "{channel}");
            let host = builder(self::store(dir.path())).start().await;
            let mut here = host.raw();
            let back = json!({ "channel": "ahp-root://", "clientId": "c", "lastSeenServerSeq": 0, "subscriptions": [channel] });
            let back = here.request("reconnect", back).await.unwrap();
            assert_eq!(back["snapshots"][0]["state"]["title"], has, "{channel}");
        }
    }
    let host = builder(store(dir.path())).start().await;
    let mut here = client(&host).await;
    for channel in ["echo:/nobody", "ahp-chat:/nobody", "mine:/c3", &uri::default_chat("echo:/nobody")] {
        assert_eq!(error(&mut here, "subscribe", json!({ "channel": channel })).await.0, -32001, "{channel}");
    }
    assert_eq!(host.host.sessions.all().len(), 0);
    // Its closed chat is nobody's channel; what names the role is the chat that has it.
    let role = here.request("subscribe", json!({ "channel": uri::default_chat("echo:/s2") })).await.unwrap();
    assert_eq!(role["snapshot"]["state"]["title"], "of mine:/c2");
    // Every command that names a session.
    for (method, params) in [
        ("fetchTurns", json!({ "channel": "ahp-chat:/c5" })),
        ("completions", json!({ "channel": "echo:/s6", "kind": "userMessage", "text": "/", "offset": 1 })),
        ("disposeSession", json!({ "channel": "echo:/s9" })),
    ] {
        here.request(method, params).await.unwrap();
    }
    assert_eq!(error(&mut here, "disposeSession", json!({ "channel": "echo:/s9" })).await.0, -32001);
    here.dispatch("echo:/s10", 1, json!({ "type": "session/titleChanged", "title": "Hay" })).await;
    here.request("subscribe", json!({ "channel": "echo:/s10" })).await.unwrap();
    let title = store(dir.path()).config.unbounded(("s10".into(),)).await.unwrap().unwrap().title;
    assert_eq!(title, "Hay", "an action is taken where nobody watches");
    assert_eq!(store(dir.path()).config.unbounded(("s9".into(),)).await.unwrap(), None);
}

#[tokio::test]
async fn an_id_or_a_chat_that_is_stored_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    fill(&store(dir.path()), 6).await;
    let host = builder(store(dir.path())).start().await;
    let mut client = client(&host).await;
    for channel in ["echo:/s3", "ahp-session:/s3", "other:/s3"] {
        let create = json!({ "channel": channel, "provider": "echo" });
        assert_eq!(error(&mut client, "createSession", create).await.0, -32003, "{channel}");
    }
    assert_eq!(store(dir.path()).config.unbounded(("s3".into(),)).await.unwrap().unwrap(), session(3));
    for chat in ["mine:/c2", "ahp-chat:/c1", "ahp-chat:/s4", "ahp-chat:/c5"] {
        let create = json!({ "channel": "echo:/s0", "chat": chat });
        assert_eq!(error(&mut client, "createChat", create).await.0, -32003, "{chat}");
    }
    assert_eq!(host.host.sessions.count(), 6);
}

#[tokio::test]
async fn where_the_store_cannot_say_nothing_is_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    fill(&store(dir.path()), 2).await;
    let broken = SessionStore {
        session: Some(Call::new(|_| async { Err(Thrown::new("the disk is on fire")) })),
        ..store(dir.path())
    };
    let host = builder(broken).start().await;
    let mut client = client(&host).await;
    let create = json!({ "channel": "echo:/s1", "provider": "echo" });
    let (code, why) = error(&mut client, "createSession", create).await;
    assert!(code == -32603 && why.contains("the disk is on fire"), "{code} {why}");
    assert_eq!(store(dir.path()).config.unbounded(("s1".into(),)).await.unwrap().unwrap(), session(1));
    let (code, why) = error(&mut client, "subscribe", json!({ "channel": "echo:/s1" })).await;
    assert!(
        code == -32603 && why.contains("the disk is on fire"),
        "it is not said to be missing: {code} {why}"
    );
    assert!(host.log.has("the disk is on fire"));
}

#[tokio::test]
async fn a_session_is_loaded_once_however_many_ask_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    fill(&store(dir.path()), 3).await;
    let asked = Arc::new(AtomicUsize::new(0));
    let store = store(dir.path());
    let slow = {
        let (asked, session) = (asked.clone(), store.session.clone().unwrap());
        Call::new(move |arguments| {
            asked.fetch_add(1, Ordering::SeqCst);
            let answer = session.unbounded(arguments);
            async move {
                let answer = answer.await;
                tokio::time::sleep(Duration::from_millis(20)).await;
                answer
            }
        })
    };
    let host = builder(SessionStore { session: Some(slow), ..store }).start().await;
    let (one, other, chat) = tokio::join!(
        host.host.sessions.session("s1"),
        host.host.sessions.session_at("echo:/s1"),
        host.host.sessions.located("ahp-chat:/c1")
    );
    let (one, other, chat) =
        (one.known().unwrap().unwrap(), other.known().unwrap().unwrap(), chat.known().unwrap().unwrap().0);
    assert!(Arc::ptr_eq(&one, &other) && Arc::ptr_eq(&one, &chat));
    assert_eq!(asked.load(Ordering::SeqCst), 1);

    // One who stops waiting takes it from nobody.
    let is_asked = async {
        while asked.load(Ordering::SeqCst) < 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        () = is_asked => {}
        _ = host.host.sessions.session("s2") => panic!("it is loaded at once"),
    }
    assert!(host.host.sessions.session("s2").await.known().unwrap().is_some());
    assert_eq!(asked.load(Ordering::SeqCst), 2);

    // A session is disposed of by one client while others look for it.
    let (mut remover, mut looker) = (client(&host).await, client(&host).await);
    let (removed, seen) = tokio::join!(
        remover.request("disposeSession", json!({ "channel": "echo:/s0" })),
        looker.request("subscribe", json!({ "channel": "echo:/s0" })),
    );
    assert_eq!(removed, Ok(Value::Null));
    drop(seen);
    assert!(host.host.sessions.session("s0").await.known().unwrap().is_none());
    assert_eq!(listed(&mut looker, None).await.len(), 2);
    let create = json!({ "channel": "echo:/s0", "provider": "echo" });
    assert_eq!(looker.request("createSession", create).await, Ok(Value::Null));
}

#[tokio::test]
async fn a_chat_stored_with_two_sessions_is_the_first_ones() {
    let dir = tempfile::tempdir().unwrap();
    let filled = store(dir.path());
    fill(&filled, 3).await;
    for id in ["s2", "s1"] {
        let first = uri::default_chat(&format!("echo:/{id}"));
        let chats = vec![KeptChat { default: true, ..chat(&first) }, chat("ahp-chat:/both")];
        filled.set_chats.unbounded((id.into(), chats)).await.unwrap();
    }
    for store in [store(dir.path()), plain(store(dir.path()))] {
        let host = builder(store).start().await;
        let mut client = client(&host).await;
        // The other one is loaded first.
        for (id, count) in [("s2", 1), ("s1", 2)] {
            let seen =
                client.request("subscribe", json!({ "channel": format!("echo:/{id}") })).await.unwrap();
            assert_eq!(seen["snapshot"]["state"]["chats"].as_array().unwrap().len(), count, "{id}");
        }
        assert_eq!(host.host.sessions.located("ahp-chat:/both").await.known().unwrap().unwrap().0.id, "s1");
    }
}

#[tokio::test]
async fn what_nobody_needs_any_more_is_let_go_of() {
    let dir = tempfile::tempdir().unwrap();
    fill(&store(dir.path()), 60).await;
    let host = builder(store(dir.path())).options(|options| options.resting_sessions = 8).start().await;
    let mut client = client(&host).await;
    let before = listed(&mut client, None).await;
    let held = host.host.sessions.session("s0").await.known().unwrap().unwrap();
    client.request("subscribe", json!({ "channel": "ahp-chat:/c1" })).await.unwrap();
    for number in 2..60 {
        host.host.sessions.session(&format!("s{number}")).await.known().unwrap().unwrap();
        assert!(host.host.sessions.all().len() <= 14, "{}", host.host.sessions.all().len());
    }
    let ids = || host.host.sessions.all().iter().map(|entry| entry.id.clone()).collect::<Vec<_>>();
    for id in ["s0", "s1", "s59"] {
        assert!(ids().contains(&id.to_owned()), "{id} is held, awake or was used just now: {:?}", ids());
    }
    assert!(Arc::ptr_eq(&held, &host.host.sessions.session("s0").await.known().unwrap().unwrap()));
    assert_eq!((listed(&mut client, None).await, host.host.sessions.count()), (before, 60));
    // One that went is there again when it is asked for, by its chat as well.
    assert!(!ids().contains(&"s2".to_owned()));
    let seen = client.request("subscribe", json!({ "channel": "mine:/c2" })).await.unwrap();
    assert_eq!(seen["snapshot"]["state"]["title"], "of mine:/c2");
}

#[tokio::test]
async fn a_session_that_fell_asleep_goes_only_as_it_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    fill(&store(dir.path()), 20).await;
    let host = builder(store(dir.path()))
        .options(|options| options.resting_sessions = 2)
        .started("2027-01-01T00:00:00Z".parse().unwrap())
        .start()
        .await;
    let mut client = client(&host).await;
    let chat = uri::default_chat("echo:/s4");
    client.request("subscribe", json!({ "channel": chat })).await.unwrap();
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t1", "message": { "text": "hello there" } });
    client.dispatch(&chat, 1, turn).await;
    client.actions_until("chat/turnComplete").await;
    client.notify("unsubscribe", json!({ "channel": chat })).await;
    client.request("fetchTurns", json!({ "channel": chat })).await.unwrap();
    let before = listed(&mut client, None).await;
    assert_eq!(before[0]["resource"], "echo:/s4");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(601)).await;
    tokio::time::resume();
    while host.host.sessions.get("s4").is_some_and(|entry| entry.is_awake()) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for number in 5..20 {
        host.host.sessions.session(&format!("s{number}")).await.known().unwrap().unwrap();
    }
    assert!(host.host.sessions.get("s4").is_none(), "it was let go of");
    assert_eq!(listed(&mut client, None).await, before);
    let seen = client.request("subscribe", json!({ "channel": chat })).await.unwrap();
    assert_eq!(seen["snapshot"]["state"]["turns"][0]["id"], "t1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twelve_thousand_sessions_cost_nothing_until_somebody_asks() {
    let dir = tempfile::tempdir().unwrap();
    fill(&store(dir.path()), 12_000).await;
    let start = std::time::Instant::now();
    let host = builder(store(dir.path())).start().await;
    println!("a host over 12,000 sessions starts in {:?}", start.elapsed());
    assert_eq!((host.host.sessions.all().len(), host.host.sessions.count()), (0, 12_000));
    let mut client = client(&host).await;
    let (mut cursor, mut took, mut seen) = (Value::Null, Vec::new(), 0);
    for _ in 0..40 {
        let mut params = json!({ "channel": "ahp-root://", "limit": 50 });
        if !cursor.is_null() {
            params["cursor"] = cursor;
        }
        let start = std::time::Instant::now();
        let page = client.request("listSessions", params).await.unwrap();
        took.push(start.elapsed());
        seen += page["items"].as_array().unwrap().len();
        cursor = page["nextCursor"].clone();
    }
    took.sort_unstable();
    println!("a page of 50 takes {:?}, at most {:?}", took[20], took[39]);
    assert_eq!((seen, host.host.sessions.all().len()), (2000, 0));
}

#[tokio::test]
async fn a_tool_finds_its_session_without_a_listing() {
    let dir = tempfile::tempdir().unwrap();
    let store = SessionStore {
        page: Some(Call::now(|_| Err(Thrown::new("every session was listed")))),
        sessions: Call::now(|()| Err(Thrown::new("every session was listed"))),
        all: None,
        ..store(dir.path())
    };
    let host = builder(store).session_tools().start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    client.request("createSession", json!({ "channel": "echo:/a", "provider": "echo" })).await.unwrap();
    let chat = uri::default_chat("echo:/a");
    client.request("subscribe", json!({ "channel": chat })).await.unwrap();
    for (at, (session, answer)) in
        [("echo:/a", "Chat created"), ("echo:/b", "No agent for session echo:/b")].into_iter().enumerate()
    {
        let text = format!("/tool createChat {}", json!({ "prompt": "hi", "session": session }));
        let turn =
            json!({ "type": "chat/turnStarted", "turnId": format!("t{at}"), "message": { "text": text } });
        client.dispatch(&chat, i64::try_from(at).unwrap(), turn).await;
        let seen = client.actions_until("chat/turnComplete").await;
        let seen = serde_json::to_string(&seen).unwrap();
        assert!(seen.contains(answer), "{seen}");
    }
}

/// A session as a client knows it from what the root channel tells it.
async fn told_until(client: &mut RawClient, row: &mut Value, what: &str) {
    loop {
        let frame = client.next_frame().await.unwrap();
        let params = &frame["params"];
        match frame["method"].as_str() {
            Some("root/sessionAdded") => *row = params["summary"].clone(),
            Some("root/sessionSummaryChanged") => {
                for (key, value) in params["changes"].as_object().unwrap() {
                    row[key] = value.clone();
                }
            }
            Some("action") if params["action"]["type"] == what => return,
            _ => {}
        }
    }
}

#[tokio::test]
async fn what_is_told_listed_and_stored_of_a_session_is_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let host = builder(store.clone()).start().await;
    let mut client = client(&host).await;
    let (session, chat) = ("echo:/a", uri::default_chat("echo:/a"));
    let new = json!({ "channel": session, "provider": "echo", "workingDirectories": [] });
    client.request("createSession", new).await.unwrap();
    for channel in ["ahp-root://", session, &chat] {
        client.request("subscribe", json!({ "channel": channel })).await.unwrap();
    }
    let mut row = Value::Null;
    let turn = |id: &str| json!({ "type": "chat/turnStarted", "turnId": id, "message": { "text": "hello" } });
    client.dispatch(&chat, 1, turn("t1")).await;
    told_until(&mut client, &mut row, "chat/turnComplete").await;
    for (seq, action) in [
        json!({ "type": "session/isReadChanged", "isRead": true }),
        json!({ "type": "session/titleChanged", "title": "another title" }),
        json!({ "type": "session/isArchivedChanged", "isArchived": true }),
        json!({ "type": "session/configChanged", "config": { "delayMs": 1 } }),
    ]
    .into_iter()
    .enumerate()
    {
        client.dispatch(session, 2 + i64::try_from(seq).unwrap(), action.clone()).await;
        told_until(&mut client, &mut row, action["type"].as_str().unwrap()).await;
    }
    // Takes the mark of a session that was read off again.
    client.dispatch(&chat, 9, turn("t2")).await;
    told_until(&mut client, &mut row, "chat/turnComplete").await;
    client.dispatch(session, 10, json!({ "type": "session/titleChanged", "title": "the last title" })).await;
    told_until(&mut client, &mut row, "session/titleChanged").await;
    // What follows an action is told before the next request is answered.
    let snapshot = client.request("subscribe", json!({ "channel": session })).await.unwrap();
    for frame in client.ready_frames().await {
        if frame["method"] == "root/sessionSummaryChanged" {
            for (key, value) in frame["params"]["changes"].as_object().unwrap() {
                row[key] = value.clone();
            }
        }
    }
    let listed = listed(&mut client, None).await;
    row.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    assert_eq!(listed, [row.clone()]);
    assert_eq!(row["title"], "the last title");
    let state = &snapshot["snapshot"]["state"];
    for key in ["title", "status", "defaultChat"] {
        assert_eq!(state[key], row[key], "{key}");
    }
    host.host.close().await;
    let kept = store.config.unbounded(("a".to_owned(),)).await.unwrap().unwrap();
    let flags = store.flags.unbounded(("a".to_owned(),)).await.unwrap().unwrap();
    assert_eq!(kept.title, row["title"]);
    assert_eq!(kept.modified_at, row["modifiedAt"]);
    assert_eq!(kept.values, *json!({ "delayMs": 1 }).as_object().unwrap());
    assert_eq!((flags.is_read, flags.is_archived), (false, true));
}

#[tokio::test]
async fn the_store_is_asked_for_an_id_while_it_may_have_it() {
    let dir = tempfile::tempdir().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let counting = || {
        let (asked, inner) = (asked.clone(), store(dir.path()));
        let session = inner.session.clone().unwrap();
        let session = Call::new(move |(id,): (String,)| {
            asked.fetch_add(1, Ordering::Relaxed);
            session.unbounded((id,))
        });
        SessionStore { session: Some(session), ..inner }
    };
    let new = |id: &str| json!({ "channel": format!("echo:/{id}"), "provider": "echo" });
    {
        let host = builder(counting()).start().await;
        let mut client = client(&host).await;
        client.request("createSession", new("a")).await.unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 0, "every session is in memory");
        assert_eq!(error(&mut client, "createSession", new("a")).await.0, -32003);
        host.host.close().await;
    }
    fill(&store(dir.path()), 1).await;
    let host = builder(counting()).start().await;
    let mut client = client(&host).await;
    assert_eq!(error(&mut client, "createSession", new("s0")).await.0, -32003);
    assert!(asked.load(Ordering::Relaxed) > 0, "a session is only in the store");
}

/// As many sessions as a store can have do not fit into one answer.
#[tokio::test]
async fn a_list_without_a_limit_has_a_cursor_after_a_thousand_sessions() {
    const COUNT: usize = 2050;
    let dir = tempfile::tempdir().unwrap();
    fill(&store(dir.path()), COUNT).await;
    let host = builder(store(dir.path())).start().await;
    let mut client = client(&host).await;
    let (mut sizes, mut all, mut cursor) = (Vec::new(), Vec::new(), Value::Null);
    loop {
        let mut params = json!({});
        if cursor.is_string() {
            params["cursor"] = cursor;
        }
        let mut page = client.request("listSessions", params).await.unwrap();
        let items = page["items"].as_array().unwrap();
        sizes.push(items.len());
        all.extend(items.iter().map(|row| row["resource"].as_str().unwrap().to_owned()));
        cursor = page["nextCursor"].take();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!(sizes, [1000, 1000, 50]);
    all.sort();
    all.dedup();
    assert_eq!(all.len(), COUNT);
}
