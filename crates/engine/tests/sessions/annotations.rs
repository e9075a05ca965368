//! What clients note beside a session's files: one channel a session, the same for all who watch it, found again.

use std::sync::Arc;
use std::time::Duration;

use ostler_contract::points::SessionStore;
use ostler_contract::{Value, json};
use ostler_engine::users::UsersFile;
use ostler_engine::{People, Principal};
use ostler_ports::{SqliteSessions, StateDb};
use ostler_testkit::{Builder, MemoryHost, RawClient, SIGN_IN, Stage};

const SESSION: &str = "stage:/1";
const NOTES: &str = "stage:/1/annotations";

fn store(dir: &std::path::Path) -> SessionStore {
    let db = StateDb::open(dir).unwrap();
    Arc::new(SqliteSessions::new(db, ostler_ports::Report::new(|line| panic!("{line}")))).into_point()
}

fn builder() -> Builder {
    MemoryHost::builder().plugin(Stage::default().plugin(), json!({}))
}

async fn client(host: &MemoryHost, name: &str) -> RawClient {
    let mut client = host.raw();
    client.initialize(name).await;
    client
}

/// A client that watches the annotations of a session of its own, in which something was said.
async fn noting(host: &MemoryHost) -> RawClient {
    let mut client = client(host, "c").await;
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    client.request("subscribe", json!({ "channel": SESSION })).await.unwrap();
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "Go." } });
    client.dispatch(&ostler_protocol::uri::default_chat(SESSION), 1, turn).await;
    client.actions_until("session/ready").await;
    assert_eq!(notes(&mut client).await, json!([]));
    client
}

async fn notes(client: &mut RawClient) -> Value {
    let subscribed = client.request("subscribe", json!({ "channel": NOTES })).await.unwrap();
    assert_eq!(subscribed["snapshot"]["resource"], NOTES);
    subscribed["snapshot"]["state"]["annotations"].clone()
}

fn note(id: &str, entries: Value) -> Value {
    json!({ "id": id, "origin": { "session": SESSION }, "resource": "file:///srv/a", "resolved": false, "entries": entries })
}

fn entry(id: &str, text: &str) -> Value {
    json!({ "id": id, "text": text })
}

/// Dispatches a change; answers what comes back of it.
async fn change(client: &mut RawClient, action: Value) -> Value {
    client.dispatch(NOTES, 7, action.clone()).await;
    client.actions_until(action["type"].as_str().unwrap()).await.pop().unwrap()
}

async fn listed(client: &mut RawClient) -> Value {
    client.request("listSessions", json!({})).await.unwrap()["items"][0]["annotations"].clone()
}

fn counts(annotations: u64, entries: u64) -> Value {
    json!({ "resource": NOTES, "annotationCount": annotations, "entryCount": entries })
}

#[tokio::test(start_paused = true)]
async fn every_change_reaches_all_who_watch_and_the_listing() {
    let host = builder().start().await;
    let mut one = noting(&host).await;
    let mut two = client(&host, "two").await;
    assert_eq!(notes(&mut two).await, json!([]));
    assert_eq!(listed(&mut one).await, counts(0, 0));
    let range = json!({ "start": { "line": 1, "character": 0 }, "end": { "line": 2, "character": 4 } });
    for action in [
        json!({ "type": "annotations/set", "annotation": note("a", json!([entry("1", "Why?")])) }),
        json!({ "type": "annotations/entrySet", "annotationId": "a", "entry": entry("2", "Because.") }),
        json!({ "type": "annotations/entrySet", "annotationId": "a", "entry": entry("1", "Why so?") }),
        json!({ "type": "annotations/updated", "annotationId": "a", "resolved": true, "range": range }),
        json!({ "type": "annotations/set", "annotation": note("b", json!([entry("1", "Oats")])) }),
        json!({ "type": "annotations/entryRemoved", "annotationId": "a", "entryId": "2" }),
        json!({ "type": "annotations/removed", "annotationId": "b" }),
    ] {
        let echoed = change(&mut one, action.clone()).await;
        assert_eq!((&echoed["action"], &echoed["rejectionReason"]), (&action, &Value::Null));
        assert_eq!((&echoed["channel"], &echoed["origin"]["clientId"]), (&json!(NOTES), &json!("c")));
        let seen = two.next_action().await;
        assert_eq!((&seen["action"], &seen["serverSeq"]), (&action, &echoed["serverSeq"]));
    }
    let mut left = note("a", json!([entry("1", "Why so?")]));
    left["resolved"] = true.into();
    left["range"] = range;
    let state = json!([left]);
    assert_eq!((notes(&mut one).await, notes(&mut two).await), (state.clone(), state));
    assert_eq!(listed(&mut one).await, counts(1, 1));
    let session = one.request("subscribe", json!({ "channel": SESSION })).await.unwrap();
    assert_eq!(session["snapshot"]["state"]["annotations"], counts(1, 1));
    // Another spelling of the session is another spelling of its channel.
    let alias = "ahp-session:/1/annotations";
    let subscribed = two.request("subscribe", json!({ "channel": alias })).await.unwrap();
    assert_eq!(subscribed["snapshot"]["resource"], alias);
}

#[tokio::test(start_paused = true)]
async fn the_roots_watchers_are_told_of_new_counts() {
    let host = builder().start().await;
    let mut one = noting(&host).await;
    let mut root = client(&host, "root").await;
    root.request("subscribe", json!({ "channel": "ahp-root://" })).await.unwrap();
    let set = json!({ "type": "annotations/set", "annotation": note("a", json!([entry("1", "x"), entry("2", "y")])) });
    change(&mut one, set).await;
    loop {
        let frame = root.next_frame().await.unwrap();
        let told = &frame["params"]["changes"]["annotations"];
        if frame["method"] == "root/sessionSummaryChanged" && !told.is_null() {
            assert_eq!(*told, counts(1, 2));
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_is_refused_and_what_changes_nothing_is_not_echoed() {
    let host = builder().start().await;
    let mut one = noting(&host).await;
    let first = note("a", json!([entry("1", "Why?")]));
    change(&mut one, json!({ "type": "annotations/set", "annotation": first })).await;
    let twice = json!([entry("1", "x"), entry("1", "y")]);
    for (action, why) in [
        (
            json!({ "type": "annotations/set", "annotation": note("b", json!([])) }),
            "an annotation needs at least one entry",
        ),
        (
            json!({ "type": "annotations/set", "annotation": note(" ", json!([entry("1", "x")])) }),
            "an annotation needs an id",
        ),
        (
            json!({ "type": "annotations/set", "annotation": note("b", json!([entry("", "x")])) }),
            "an entry needs an id",
        ),
        (json!({ "type": "annotations/set", "annotation": note("b", twice) }), "b: duplicate entry id 1"),
        (
            json!({ "type": "annotations/updated", "annotationId": "gone", "resolved": true }),
            "there is no annotation gone",
        ),
        (json!({ "type": "annotations/removed", "annotationId": "gone" }), "there is no annotation gone"),
        (
            json!({ "type": "annotations/entrySet", "annotationId": "gone", "entry": entry("1", "x") }),
            "there is no annotation gone",
        ),
        (
            json!({ "type": "annotations/entryRemoved", "annotationId": "a", "entryId": "9" }),
            "a has no entry 9",
        ),
        (
            json!({ "type": "annotations/entryRemoved", "annotationId": "a", "entryId": "1" }),
            "1 is the last entry of a; dispatch annotations/removed instead",
        ),
        (
            json!({ "type": "annotations/set", "annotation": note("b", json!([entry("1", &"x".repeat(5 << 20))])) }),
            "the annotations of this session exceed 4 MiB; remove some",
        ),
        (json!({ "type": "annotations/set" }), "annotations/set: missing field `annotation`"),
    ] {
        let refused = change(&mut one, action).await;
        assert_eq!(refused["rejectionReason"], why);
    }
    let seq = host.host.core.fanout.seq();
    one.dispatch(NOTES, 8, json!({ "type": "annotations/set", "annotation": first })).await;
    one.dispatch(NOTES, 9, json!({ "type": "annotations/updated", "annotationId": "a", "resolved": false }))
        .await;
    assert_eq!(notes(&mut one).await, json!([first]));
    assert_eq!(host.host.core.fanout.seq(), seq);
    // On another channel of the session they are out of place, and so are others on this one.
    one.dispatch(SESSION, 10, json!({ "type": "annotations/removed", "annotationId": "a" })).await;
    let refused = one.next_action().await;
    assert_eq!(refused["rejectionReason"], "annotations/removed does not belong on stage:/1");
    one.dispatch(NOTES, 11, json!({ "type": "session/titleChanged", "title": "x" })).await;
    let refused = one.next_action().await;
    assert_eq!(refused["rejectionReason"], "session/titleChanged does not belong on stage:/1/annotations");
    for channel in ["stage:/nobody/annotations", "ahp-session:/nobody/annotations"] {
        let refused = one.request("subscribe", json!({ "channel": channel })).await.unwrap_err();
        assert_eq!(refused["code"], -32001);
        one.dispatch(channel, 12, json!({ "type": "annotations/removed", "annotationId": "a" })).await;
        assert!(one.next_action().await["rejectionReason"].is_string());
    }
}

#[tokio::test]
async fn they_are_found_after_a_restart_and_go_with_their_session() {
    let dir = tempfile::tempdir().unwrap();
    let first = builder().sessions(store(dir.path())).start().await;
    let mut one = noting(&first).await;
    let kept = note("a", json!([entry("1", "Why?"), entry("2", "Hm.")]));
    change(&mut one, json!({ "type": "annotations/set", "annotation": kept })).await;
    // As a crash leaves it: what was echoed is stored.
    let again = builder().sessions(store(dir.path())).start().await;
    let mut two = client(&again, "two").await;
    assert_eq!(listed(&mut two).await, counts(1, 2), "before anything wakes the session");
    assert_eq!(notes(&mut two).await, json!([kept]));
    change(&mut two, json!({ "type": "annotations/entryRemoved", "annotationId": "a", "entryId": "1" }))
        .await;
    assert_eq!(store(dir.path()).annotations.unwrap().unbounded(("1".into(),)).await.unwrap().len(), 1);
    two.request("disposeSession", json!({ "channel": SESSION })).await.unwrap();
    assert_eq!(
        store(dir.path()).annotations.unwrap().unbounded(("1".into(),)).await.unwrap(),
        Vec::<Value>::new()
    );
    two.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    assert_eq!(notes(&mut two).await, json!([]));
    drop(first);
}

#[tokio::test]
async fn a_session_store_that_keeps_none_leaves_them_to_the_host() {
    let (dir, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let without = || SessionStore { annotations: None, set_annotations: None, ..store(dir.path()) };
    let host = builder().sessions(without()).start().await;
    host.host.core.set_own_sessions(store(own.path()));
    let mut one = noting(&host).await;
    change(&mut one, json!({ "type": "annotations/set", "annotation": note("a", json!([entry("1", "x")])) }))
        .await;
    let stored =
        async || store(own.path()).annotations.unwrap().unbounded(("1".into(),)).await.unwrap().len();
    assert_eq!(stored().await, 1);
    one.request("disposeSession", json!({ "channel": SESSION })).await.unwrap();
    assert_eq!(stored().await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_costs_the_change_and_not_what_there_is() {
    let fails = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let failing = fails.clone();
    let sessions = SessionStore {
        annotations: Some(ostler_contract::Call::now(|_| Ok(vec![]))),
        set_annotations: Some(ostler_contract::Call::now(move |_| {
            match failing.load(std::sync::atomic::Ordering::Relaxed) {
                true => Err("the disk is full".into()),
                false => Ok(()),
            }
        })),
        ..ostler_testkit::cases::empty_sessions()
    };
    let host = builder().sessions(sessions).start().await;
    let mut one = noting(&host).await;
    let first = note("a", json!([entry("1", "x")]));
    change(&mut one, json!({ "type": "annotations/set", "annotation": first })).await;
    fails.store(true, std::sync::atomic::Ordering::Relaxed);
    let refused = change(&mut one, json!({ "type": "annotations/removed", "annotationId": "a" })).await;
    assert_eq!(refused["rejectionReason"], "the annotation could not be stored; try again");
    assert_eq!((notes(&mut one).await, listed(&mut one).await), (json!([first]), counts(1, 1)));
    assert!(host.log.has("the disk is full"), "{:?}", host.log.all());
}

#[tokio::test(start_paused = true)]
async fn reading_and_writing_ask_for_grants() {
    let host = builder().people(People::new(SIGN_IN, "inn")).start().await;
    let users = ["reader", "blind", "reviewer"].map(|role| json!({ "id": role, "roles": [role] }));
    let roles = json!({ "reader": ["session:list", "session:state"], "blind": ["session:list"],
        "reviewer": ["session:state", "session:review"] });
    let file = json!({ "roles": roles, "users": users });
    host.host.access.gate.people().unwrap().set(UsersFile::parse(&file.to_string()).unwrap()).unwrap();
    let mut root = host.raw_as(Principal::Root);
    root.initialize("root").await;
    root.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    let set = json!({ "type": "annotations/set", "annotation": note("a", json!([entry("1", "x")])) });
    for (who, reads, writes) in [("reader", true, false), ("blind", false, false), ("reviewer", true, true)] {
        let person = host.host.access.gate.people().unwrap().now().person(who).unwrap();
        let mut client = host.raw_as(Principal::Person(person));
        client.initialize(who).await;
        let subscribed = client.request("subscribe", json!({ "channel": NOTES })).await;
        assert_eq!(subscribed.is_ok(), reads, "{who}: {subscribed:?}");
        client.dispatch(NOTES, 1, set.clone()).await;
        let answered = client.next_action().await;
        assert_eq!(answered["rejectionReason"].is_null(), writes, "{who}: {answered}");
        if !writes {
            assert!(answered["rejectionReason"].as_str().unwrap().contains("session:review"), "{answered}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_comes_back_is_told_what_it_missed() {
    let host = builder().start().await;
    let one = noting(&host).await;
    let seen = host.host.core.fanout.seq();
    one.connection.close();
    let mut two = client(&host, "two").await;
    assert_eq!(notes(&mut two).await, json!([]));
    let set = json!({ "type": "annotations/set", "annotation": note("a", json!([entry("1", "x")])) });
    change(&mut two, set.clone()).await;
    let mut back = host.raw();
    let reconnect = json!({ "channel": "ahp-root://", "clientId": "c", "lastSeenServerSeq": seen, "subscriptions": [NOTES] });
    let replay = back.request("reconnect", reconnect).await.unwrap();
    assert_eq!((&replay["type"], &replay["actions"][0]["action"]), (&json!("replay"), &set));
    // It counts as a client of the session while it watches: nothing is removed from under it.
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let removed = json!({ "type": "annotations/removed", "annotationId": "a" });
    assert_eq!(change(&mut back, removed.clone()).await["action"], removed);
}
