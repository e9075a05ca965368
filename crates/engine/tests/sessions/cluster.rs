//! Any host of a cluster serves any client: what concerns a session of another host is relayed to it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ostler_contract::call::Signature;
use ostler_contract::cluster::SessionElsewhere;
use ostler_contract::points::{SessionFlags, Terminal, TerminalEvents, TerminalRequest, TerminalStore};
use ostler_contract::read::{Read, Unknown};
use ostler_contract::{Call, Thrown, Value, json};
use ostler_engine::feed::{Change, FeedRead};
use ostler_engine::outbox::Closed;
use ostler_engine::users::{UsersFile, hash_of};
use ostler_engine::{HostOptions, People};
use ostler_ports::{SqliteSessions, StateDb};
use ostler_protocol::Version;
use ostler_protocol::wire::state::{SessionStatus, SessionSummary};
use ostler_testkit::mirror::{Mirror, ROWS, Step};
use ostler_testkit::wrapped_store::{WrapCall, wrapped_store};
use ostler_testkit::{Builder, ClusteredHost, MemoryCluster, MemoryHost, RawClient, SIGN_IN};
use parking_lot::Mutex;
use proptest::prelude::*;

const SESSION: &str = "echo:/one";

fn chat() -> String {
    ostler_protocol::uri::default_chat(SESSION)
}

/// Hosts that share the sessions of a database in memory.
pub(crate) struct Inn {
    pub cluster: MemoryCluster,
    db: Arc<StateDb>,
}

impl Inn {
    pub fn new() -> Self {
        Self { cluster: MemoryCluster::new(), db: StateDb::memory().unwrap() }
    }

    pub fn builder() -> Builder {
        MemoryHost::builder().plugin(ostler_plugin_echo::plugin(), json!({}))
    }

    pub async fn host(&self, id: &str) -> ClusteredHost {
        self.start(id, Self::builder()).await
    }

    pub async fn start(&self, id: &str, builder: Builder) -> ClusteredHost {
        let store = SqliteSessions::new(self.db.clone(), ostler_ports::Report::new(|line| panic!("{line}")));
        let store = Arc::new(store).into_point();
        self.cluster.start(id, store, builder).await
    }
}

async fn create(client: &mut RawClient) {
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
}

async fn subscribe(client: &mut RawClient, channel: &str) -> Value {
    let subscribed = client.request("subscribe", json!({ "channel": channel })).await.unwrap();
    subscribed["snapshot"].clone()
}

async fn say(client: &mut RawClient, seq: i64, turn: &str, text: &str) {
    say_in(client, SESSION, seq, turn, text).await;
}

pub(crate) async fn say_in(client: &mut RawClient, session: &str, seq: i64, turn: &str, text: &str) {
    let action = json!({ "type": "chat/turnStarted", "turnId": turn, "message": { "text": text } });
    client.dispatch(&ostler_protocol::uri::default_chat(session), seq, action).await;
}

/// Queues a message behind the turn that runs.
async fn queue(client: &mut RawClient, seq: i64, text: &str) {
    let message = json!({ "text": text, "origin": { "kind": "user" } });
    let waits = json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": "q", "message": message });
    client.dispatch(&chat(), seq, waits).await;
    client.actions_until("chat/pendingMessageSet").await;
}

/// Returns a client that another host let in before.
async fn reconnect(host: &ClusteredHost, name: &str, seen: u64, channels: &[&str]) -> (RawClient, Value) {
    let mut client = host.raw();
    let params = json!({ "channel": "ahp-root://", "clientId": name, "lastSeenServerSeq": seen,
        "subscriptions": channels });
    let result = client.request("reconnect", params).await.unwrap();
    (client, result)
}

/// Waits until a condition holds.
async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(std::time::Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn numbers(actions: &[Value]) -> Vec<u64> {
    actions.iter().map(|action| action["serverSeq"].as_u64().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn clients_of_other_hosts_see_a_session_and_each_action_is_sent_once_per_host() {
    let inn = Inn::new();
    let (a, b, c) = (inn.host("a").await, inn.host("b").await, inn.host("c").await);
    let mut maker = a.connect("maker").await;
    create(&mut maker).await;
    subscribe(&mut maker, &chat()).await;
    let mut others = Vec::new();
    for at in 0..10 {
        let mut other =
            if at % 2 == 0 { b.connect(&format!("b{at}")).await } else { c.connect(&format!("c{at}")).await };
        let snapshot = subscribe(&mut other, &chat()).await;
        assert_eq!(
            (&snapshot["resource"], snapshot["state"]["turns"].as_array().unwrap().len()),
            (&json!(chat()), 0)
        );
        others.push((other, snapshot["fromSeq"].as_u64().unwrap()));
    }
    assert_eq!(b.host.sessions.all().len(), 0, "only the owner has the session in memory");
    inn.cluster.record();
    say(&mut others[3].0, 1, "t1", "one two three four five").await;
    let expected: Vec<Value> = maker.actions_until("chat/turnComplete").await;
    let kinds = |actions: &[Value]| actions.iter().map(|action| action["action"].clone()).collect::<Vec<_>>();
    for (other, from) in &mut others {
        let seen = other.actions_until("chat/turnComplete").await;
        assert_eq!(kinds(&seen), kinds(&expected));
        assert_eq!(seen[0]["origin"], json!({ "clientId": "c3", "clientSeq": 1 }));
        let numbers = numbers(&seen);
        assert!(numbers[0] > *from && numbers.is_sorted_by(|one, next| one < next), "{from}: {numbers:?}");
    }
    // Two hosts with five clients each.
    for action in &expected {
        let number = format!(r#""serverSeq":{},"#, action["serverSeq"]);
        let last = format!(r#""serverSeq":{}}}"#, action["serverSeq"]);
        let sent = inn.cluster.recorded(&number).len() + inn.cluster.recorded(&last).len();
        assert_eq!(sent, 2, "{action}");
    }
    // Later messages do not ask for the owner again.
    let asked = b.asked();
    say(&mut others[0].0, 1, "t2", "again").await;
    for (other, _) in &mut others {
        other.actions_until("chat/turnComplete").await;
    }
    assert_eq!(b.asked(), asked);
}

#[tokio::test(start_paused = true)]
async fn a_host_without_a_session_serves_its_own_beside() {
    let inn = Inn::new();
    let (a, b) = (inn.host("a").await, inn.host("b").await);
    create(&mut a.connect("maker").await).await;
    let mut client = b.connect("c").await;
    subscribe(&mut client, &chat()).await;
    let own = "echo:/own";
    client.request("createSession", json!({ "channel": own })).await.unwrap();
    let own_chat = ostler_protocol::uri::default_chat(own);
    subscribe(&mut client, &own_chat).await;
    let turn =
        |text: &str| json!({ "type": "chat/turnStarted", "turnId": text, "message": { "text": text } });
    client.dispatch(&own_chat, 1, turn("here")).await;
    client.dispatch(&chat(), 2, turn("there")).await;
    let mut seen = client.actions_until("chat/turnComplete").await;
    seen.extend(client.actions_until("chat/turnComplete").await);
    let numbers = numbers(&seen);
    assert!(numbers.is_sorted_by(|one, next| one < next), "one sequence: {numbers:?}");
    assert_eq!(
        (inn.cluster.owner_of("one").unwrap(), inn.cluster.owner_of("own").unwrap()),
        ("a".into(), "b".into())
    );
    // An id of another host is taken.
    let taken = client.request("createSession", json!({ "channel": SESSION })).await.unwrap_err();
    assert_eq!(taken["code"], -32003, "{taken}");
    // What is not served is rejected to its sender by the owner.
    client
        .dispatch(&chat(), 3, json!({ "type": "chat/turnCancelled", "turnId": "none", "duration": 0 }))
        .await;
    let rejected = client.next_action().await;
    assert_eq!(rejected["rejectionReason"], "no such turn is running in this chat");
    assert!(rejected["serverSeq"].as_u64() >= numbers.last().copied(), "{rejected}");
    client.notify("unsubscribe", json!({ "channel": chat() })).await;
    let none = client.request("subscribe", json!({ "channel": "echo:/none" })).await.unwrap_err();
    assert_eq!(none["code"], -32001, "{none}");
    client.dispatch(&chat(), 4, turn("unheard")).await;
    client.dispatch(&own_chat, 5, turn("heard")).await;
    let seen = client.actions_until("chat/turnComplete").await;
    assert!(seen.iter().all(|action| action["channel"] == own_chat), "{seen:#?}");
}

#[tokio::test(start_paused = true)]
async fn commands_about_a_session_reach_its_owner() {
    let inn = Inn::new();
    let (a, b) = (inn.host("a").await, inn.host("b").await);
    create(&mut a.connect("maker").await).await;
    let mut client = b.connect("c").await;
    subscribe(&mut client, SESSION).await;
    subscribe(&mut client, &chat()).await;
    say(&mut client, 1, "t1", "some words").await;
    client.actions_until("chat/turnComplete").await;
    let fork = json!({ "channel": SESSION, "chat": "ahp-chat:/fork",
        "source": { "kind": "fork", "chat": chat(), "turnId": "t1" } });
    assert_eq!(client.request("createChat", fork).await, Ok(Value::Null));
    let forked = subscribe(&mut client, "ahp-chat:/fork").await;
    assert_eq!(forked["state"]["turns"].as_array().unwrap().len(), 1);
    // A turn that is cancelled.
    let slow = json!({ "type": "session/configChanged", "config": { "delayMs": 200 } });
    client.dispatch(SESSION, 2, slow).await;
    client.actions_until("session/configChanged").await;
    say(&mut client, 3, "t2", "a b c d e f g h i j k l m n o p q r s t u v w x y z").await;
    client.actions_until("chat/responsePart").await;
    let cancel = json!({ "type": "chat/turnCancelled", "turnId": "t2", "duration": 1 });
    client.dispatch(&chat(), 4, cancel).await;
    let cancelled = client.actions_until("chat/turnCancelled").await;
    assert_eq!(cancelled.last().unwrap()["channel"], chat());
    let turns = json!({ "channel": chat(), "cursor": "0" });
    let _ = client.request("fetchTurns", turns).await;
    let completed = client
        .request("completions", json!({ "channel": chat(), "kind": "userMessage", "text": "/", "offset": 1 }))
        .await;
    assert!(completed.is_ok(), "{completed:?}");
    assert_eq!(client.request("disposeChat", json!({ "channel": "ahp-chat:/fork" })).await, Ok(Value::Null));
    assert_eq!(client.request("disposeSession", json!({ "channel": SESSION })).await, Ok(Value::Null));
    assert!(a.host.sessions.get("one").is_none());
    let ended = client.request("disposeSession", json!({ "channel": SESSION })).await.unwrap_err();
    assert_eq!(ended["code"], -32001, "{ended}");
}

#[tokio::test(start_paused = true)]
async fn the_lists_of_other_hosts_are_live() {
    let inn = Inn::new();
    let (a, b) = (inn.host("a").await, inn.host("b").await);
    let mut watcher = b.connect("w").await;
    let root = subscribe(&mut watcher, "ahp-root://").await;
    assert_eq!(root["state"]["activeSessions"], 0);
    let mut maker = a.connect("maker").await;
    create(&mut maker).await;
    subscribe(&mut maker, &chat()).await;
    say(&mut maker, 1, "t1", "some words").await;
    maker.actions_until("chat/turnComplete").await;
    let mut seen = Vec::new();
    while !seen.contains(&"root/activeSessionsChanged".to_owned())
        || !seen.contains(&"root/sessionAdded".to_owned())
    {
        let frame = watcher.next_frame().await.unwrap();
        let name = match frame["method"].as_str().unwrap() {
            "action" => frame["params"]["action"]["type"].as_str().unwrap().to_owned(),
            method => method.to_owned(),
        };
        if name == "root/sessionAdded" {
            assert_eq!(frame["params"]["summary"]["resource"], SESSION);
        }
        if name == "root/activeSessionsChanged" {
            assert_eq!(frame["params"]["action"]["activeSessions"], 1);
        }
        seen.push(name);
    }
    assert_eq!(seen.iter().filter(|name| *name == "root/sessionAdded").count(), 1);
    let listed = watcher.request("listSessions", json!({})).await.unwrap();
    assert_eq!(listed["items"][0]["resource"], SESSION);
    // Readers of the API receive the whole row.
    let feed = &b.host.core.feeds.sessions;
    let mut place = feed.place();
    let titled = json!({ "type": "session/titleChanged", "title": "Renamed" });
    maker.dispatch(SESSION, 2, titled).await;
    let has_title = || {
        let FeedRead::Changes(changes) = feed.read(place) else { panic!("lost") };
        place = changes.last().map_or(place, |(last, _)| *last);
        let is_it = |change: &Change<SessionSummary>| matches!(change, Change::Put(row) if row.title == "Renamed" && row.resource == SESSION);
        changes.iter().any(|(_, change)| is_it(change))
    };
    eventually("the row is reported", has_title).await;
    maker.request("disposeSession", json!({ "channel": SESSION })).await.unwrap();
    loop {
        let frame = watcher.next_frame().await.unwrap();
        if frame["method"] == "root/sessionRemoved" {
            assert_eq!(frame["params"]["session"], SESSION);
            break;
        }
    }
    let count = || {
        let state = serde_json::to_value(b.host.core.root.agents()).is_ok();
        state && b.host.sessions.count() == 0
    };
    eventually("the session is not counted any more", count).await;
}

#[tokio::test(start_paused = true)]
async fn a_session_of_a_host_without_a_link_is_added_to_lists_and_removed() {
    let inn = Inn::new();
    let (a, b) = (inn.host("a").await, inn.host("b").await);
    let mut watcher = b.connect("w").await;
    subscribe(&mut watcher, "ahp-root://").await;
    inn.cluster.cut(&a);
    let mut maker = a.connect("maker").await;
    create_used(&mut maker).await;
    let added = notified(&mut watcher).await;
    assert_eq!(
        (&added["method"], &added["params"]["summary"]["resource"]),
        (&json!("root/sessionAdded"), &json!(SESSION))
    );
    eventually("the session is counted", || b.host.sessions.count() == 1).await;
    maker.request("disposeSession", json!({ "channel": SESSION })).await.unwrap();
    let removed = notified(&mut watcher).await;
    assert_eq!(
        (&removed["method"], &removed["params"]["session"]),
        (&json!("root/sessionRemoved"), &json!(SESSION))
    );
    eventually("the session is not counted any more", || b.host.sessions.count() == 0).await;
    // With a link, each change is reported once; the same URI again is news.
    inn.cluster.kill(&a);
    let c = inn.host("c").await;
    let mut maker = c.connect("maker").await;
    for _ in 0..2 {
        create_used(&mut maker).await;
        maker.request("disposeSession", json!({ "channel": SESSION })).await.unwrap();
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    create_used(&mut maker).await;
    let mut seen = Vec::new();
    while seen.len() < 5 {
        let method = notified(&mut watcher).await["method"].clone();
        if method != "root/sessionSummaryChanged" {
            seen.push(method);
        }
    }
    let (added, removed) = ("root/sessionAdded", "root/sessionRemoved");
    assert_eq!(seen, [added, removed, added, removed, added]);
}

/// Creates a session and uses it, so that it is listed.
async fn create_used(client: &mut RawClient) {
    create(client).await;
    subscribe(client, &chat()).await;
    say(client, 1, "t1", "some words").await;
    client.actions_until("chat/turnComplete").await;
}

#[tokio::test(start_paused = true)]
async fn terminals_of_other_hosts_are_listed_and_used() {
    let inn = Inn::new();
    let (opened, typed) =
        (Arc::new(Mutex::new(Vec::<TerminalEvents>::new())), Arc::new(Mutex::new(String::new())));
    let own = |typed: &Arc<Mutex<String>>, opened: &Arc<Mutex<Vec<TerminalEvents>>>| {
        let (typed, opened) = (typed.clone(), opened.clone());
        move |host: &ostler_contract::PluginHost| {
            let create = Call::now(move |(_, events): (TerminalRequest, TerminalEvents)| {
                opened.lock().push(events);
                let typed = typed.clone();
                let input = Call::now(move |(text,): (String,)| {
                    typed.lock().push_str(&text);
                    Ok(())
                });
                Ok(Terminal { input, dispose: Call::now(|()| Ok(())), ..Terminal::default() })
            });
            host.register_terminals(TerminalStore { create, ..TerminalStore::default() }, None)
        }
    };
    let a = inn.start("a", Inn::builder().own(own(&typed, &opened))).await;
    let unused = (Arc::default(), Arc::default());
    let b = inn.start("b", Inn::builder().own(own(&unused.0, &unused.1))).await;
    create_used(&mut a.connect("maker").await).await;
    let mut client = b.connect("c").await;
    let root = subscribe(&mut client, "ahp-root://").await;
    assert_eq!(root["state"]["terminals"], json!([]));

    // One of a session is opened at the host of the session.
    let (terminal, of_host) = ("ahp-terminal:/of-session", "ahp-terminal:/of-host");
    let claim = json!({ "kind": "session", "session": SESSION, "chat": chat() });
    client.request("createTerminal", json!({ "channel": terminal, "claim": claim })).await.unwrap();
    assert_eq!((opened.lock().len(), unused.1.lock().len()), (1, 0));
    let snapshot = subscribe(&mut client, terminal).await;
    assert_eq!(snapshot["resource"], terminal);
    let data = opened.lock()[0].data.clone();
    data.call(("hello".to_owned(),)).unwrap();
    let said = client.actions_until("terminal/data").await.pop().unwrap();
    assert_eq!((&said["channel"], &said["action"]["data"]), (&json!(terminal), &json!("hello")));
    let input = json!({ "type": "terminal/input", "data": "ls\n" });
    client.dispatch(terminal, 1, input).await;
    eventually("the terminal receives the input", || *typed.lock() == "ls\n").await;

    // One of no session is found by clients of other hosts, too.
    let mut other = a.connect("other").await;
    let claim = json!({ "kind": "client", "clientId": "other" });
    other.request("createTerminal", json!({ "channel": of_host, "claim": claim })).await.unwrap();
    let listed = |action: &Value| -> Vec<String> {
        let terminals = action["action"]["terminals"].as_array().unwrap();
        terminals.iter().map(|one| one["resource"].as_str().unwrap().to_owned()).collect()
    };
    loop {
        let changed = client.actions_until("root/terminalsChanged").await.pop().unwrap();
        if listed(&changed) == [terminal, of_host] {
            break;
        }
    }
    assert_eq!(subscribe(&mut client, of_host).await["resource"], of_host);
    client.request("disposeTerminal", json!({ "channel": of_host })).await.unwrap();
    let changed = client.actions_until("root/terminalsChanged").await.pop().unwrap();
    assert_eq!(listed(&changed), [terminal]);
    let missing = client.request("subscribe", json!({ "channel": of_host })).await.unwrap_err();
    assert_eq!(missing["code"], -32008, "{missing}");

    // A host that begins to follow knows them; those of a lost host are gone.
    let c = inn.start("c", Inn::builder().own(own(&unused.0, &unused.1))).await;
    let mut late = c.connect("late").await;
    let root = subscribe(&mut late, "ahp-root://").await;
    if root["state"]["terminals"] == json!([]) {
        let changed = late.actions_until("root/terminalsChanged").await.pop().unwrap();
        assert_eq!(listed(&changed), [terminal]);
    }
    inn.cluster.kill(&a);
    let changed = late.actions_until("root/terminalsChanged").await.pop().unwrap();
    assert_eq!(listed(&changed), Vec::<String>::new());
}

/// Returns the next notification about a list.
async fn notified(client: &mut RawClient) -> Value {
    loop {
        let frame = client.next_frame().await.unwrap();
        if frame["method"].as_str().unwrap_or_default().starts_with("root/session") {
            return frame;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn tools_and_files_of_a_client_are_reached_through_its_host() {
    let inn = Inn::new();
    let (a, b) = (inn.host("a").await, inn.host("b").await);
    create(&mut a.connect("maker").await).await;
    let mut editor = b.connect("editor").await;
    subscribe(&mut editor, SESSION).await;
    subscribe(&mut editor, &chat()).await;
    let tool = json!({ "name": "shout", "title": "Shout", "description": "Shouts.",
        "inputSchema": { "type": "object", "properties": { "text": { "type": "string" } } } });
    let active = json!({ "type": "session/activeClientSet", "activeClient": { "clientId": "editor", "tools": [tool] } });
    editor.dispatch(SESSION, 1, active).await;
    editor.actions_until("session/activeClientSet").await;
    say(&mut editor, 2, "t1", r#"/tool shout {"text":"hey"}"#).await;
    let ready = editor.actions_until("chat/toolCallReady").await.pop().unwrap();
    let call = &ready["action"]["toolCallId"];
    let done = json!({ "type": "chat/toolCallComplete", "turnId": "t1", "toolCallId": call,
        "result": { "success": true, "pastTenseMessage": "Shouted",
            "content": [{ "type": "text", "text": "HEY" }] } });
    editor.dispatch(&chat(), 3, done).await;
    let ended = editor.actions_until("chat/turnComplete").await;
    assert!(ended.iter().any(|action| action.to_string().contains("HEY")), "{ended:#?}");
    // The owner reads a file that the client publishes; two requests have the same number at the two hosts.
    let mut reader = a.connect("reader").await;
    let uri = "vscode-agent-client://editor/file/-/home/ada/a.txt";
    let here = b.connect("here").await;
    for host in [Some(&mut reader), None] {
        let mut own = here_or(host, &b).await;
        let (answer, asked) = futures::join!(own.request("resourceRead", json!({ "uri": uri })), async {
            loop {
                let frame = editor.next_frame().await.unwrap();
                if frame["method"] == "resourceRead" {
                    let reply = json!({ "jsonrpc": "2.0", "id": frame["id"],
                        "result": { "data": "aGF5", "encoding": "base64", "contentType": "text/plain" } });
                    editor.send(&reply.to_string()).await;
                    return frame["params"]["uri"].clone();
                }
            }
        });
        assert_eq!(answer.unwrap()["data"], "aGF5");
        assert_eq!(asked, "file:///home/ada/a.txt");
    }
    drop(here);
}

async fn here_or(given: Option<&mut RawClient>, host: &ClusteredHost) -> RawClient {
    match given {
        Some(client) => {
            let mut fresh = host.raw();
            fresh.initialize("fresh").await;
            std::mem::replace(client, fresh)
        }
        None => host.connect("other").await,
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_continues_at_a_third_host() {
    let inn = Inn::new();
    let (a, b, c) = (inn.host("a").await, inn.host("b").await, inn.host("c").await);
    create(&mut a.connect("maker").await).await;
    let mut client = b.connect("c").await;
    subscribe(&mut client, &chat()).await;
    say(&mut client, 1, "t1", "some words").await;
    let seen = numbers(&client.actions_until("chat/turnComplete").await).pop().unwrap();
    client.connection.close();
    for host in [&c, &b, &a] {
        let (mut client, result) = reconnect(host, "c", seen, &["ahp-root://", &chat()]).await;
        assert_eq!(result["type"], "snapshot", "{result}");
        let snapshots = result["snapshots"].as_array().unwrap();
        let snapshot = snapshots.iter().find(|snapshot| snapshot["resource"] == chat()).unwrap();
        assert!(snapshots.iter().any(|snapshot| snapshot["resource"] == "ahp-root://"));
        let turns = snapshot["state"]["turns"].as_array().unwrap().len();
        let turn = format!("t{}", turns + 1);
        say(&mut client, 1, &turn, "more words").await;
        let actions = client.actions_until("chat/turnComplete").await;
        let numbers = numbers(&actions);
        assert!(numbers[0] > snapshot["fromSeq"].as_u64().unwrap());
        client.connection.close();
    }
    // A client that initializes with subscriptions.
    let mut client = b.raw();
    let params = json!({ "channel": "ahp-root://", "clientId": "i", "protocolVersions": ["1.0.0"],
        "initialSubscriptions": [SESSION, chat(), "echo:/none"] });
    let result = client.request("initialize", params).await.unwrap();
    let resources: Vec<_> =
        result["snapshots"].as_array().unwrap().iter().map(|snapshot| snapshot["resource"].clone()).collect();
    assert_eq!(resources, [json!(SESSION), json!(chat())]);
}

#[tokio::test(start_paused = true)]
async fn a_client_of_the_same_host_receives_what_it_missed_of_sessions_there() {
    let inn = Inn::new();
    let (a, _b) = (inn.host("a").await, inn.host("b").await);
    let mut client = a.connect("c").await;
    create(&mut client).await;
    subscribe(&mut client, &chat()).await;
    say(&mut client, 1, "t1", "some words").await;
    let seen = client.actions_until("chat/turnStarted").await.pop().unwrap()["serverSeq"].as_u64().unwrap();
    client.actions_until("chat/turnComplete").await;
    client.connection.close();
    let (_, result) = reconnect(&a, "c", seen, &[&chat()]).await;
    assert_eq!(result["type"], "replay", "{result}");
}

#[tokio::test(start_paused = true)]
async fn when_the_owner_dies_clients_reconnect_and_another_host_takes_over() {
    let inn = Inn::new();
    let (a, b, c) = (inn.host("a").await, inn.host("b").await, inn.host("c").await);
    create(&mut a.connect("maker").await).await;
    let mut client = b.connect("c").await;
    let mut bystander = b.connect("bystander").await;
    subscribe(&mut bystander, "ahp-root://").await;
    subscribe(&mut client, SESSION).await;
    subscribe(&mut client, &chat()).await;
    say(&mut client, 1, "t1", "some words").await;
    client.actions_until("chat/turnComplete").await;
    client
        .dispatch(SESSION, 2, json!({ "type": "session/configChanged", "config": { "delayMs": 100 } }))
        .await;
    client.actions_until("session/configChanged").await;
    say(&mut client, 3, "t2", "a b c d e f g h i j k l m n o p q r s t u v w x y z").await;
    client.actions_until("chat/responsePart").await;
    inn.cluster.cut(&a);
    assert_eq!(client.ended().await, Closed::Moved);
    // The lease of the owner is valid for some time; the client waits for its end.
    let chat = chat();
    let channels = [SESSION, &chat, "ahp-root://"];
    let waits = reconnect(&b, "c", 1, &channels);
    let ends = async {
        tokio::time::sleep(Duration::from_millis(400)).await;
        inn.cluster.expire(&a);
    };
    let ((mut client, result), ()) = futures::join!(waits, ends);
    assert_eq!(result["type"], "snapshot");
    let snapshots = result["snapshots"].as_array().unwrap();
    assert_eq!(snapshots.len(), 3, "{result:#}");
    let snapshot = snapshots.iter().find(|snapshot| snapshot["resource"] == chat).unwrap();
    assert_eq!(snapshot["state"]["turns"][0]["id"], "t1");
    assert_eq!(inn.cluster.owner_of("one").as_deref(), Some("b"));
    say(&mut client, 1, "t3", "done").await;
    client.actions_until("chat/turnComplete").await;
    // The new owner serves clients of a third host.
    let mut third = c.connect("third").await;
    subscribe(&mut third, &chat).await;
    say(&mut third, 1, "t4", "done").await;
    client.actions_until("chat/turnComplete").await;
    assert!(!bystander.connection.outbox.is_closed(), "a client without sessions there stays connected");
}

/// Nobody opens the sessions of the lost host: a message waits in one, and in the other one only a turn was running.
#[tokio::test(start_paused = true)]
async fn what_a_lost_host_left_unfinished_goes_on_at_another_one() {
    let inn = Inn::new();
    let (a, b) = (inn.host("a").await, inn.host("b").await);
    let mut maker = a.connect("maker").await;
    let slow = json!({ "delayMs": 1000 });
    for session in ["echo:/one", "echo:/two"] {
        maker.request("createSession", json!({ "channel": session, "config": slow })).await.unwrap();
        subscribe(&mut maker, &ostler_protocol::uri::default_chat(session)).await;
        say_in(&mut maker, session, 1, "t1", "words that take some seconds until they end").await;
        maker.actions_until("chat/responsePart").await;
    }
    queue(&mut maker, 2, "next").await;
    inn.cluster.kill(&a);
    eventually("the sessions have another host", || {
        ["one", "two"].iter().all(|id| inn.cluster.owner_of(id).as_deref() == Some("b"))
    })
    .await;
    let mut client = b.connect("c").await;
    let listed = async |client: &mut RawClient| {
        let listed = client.request("listSessions", json!({})).await.unwrap();
        let rows = listed["items"].as_array().unwrap().iter();
        rows.map(|row| (row["resource"].as_str().unwrap().to_owned(), row["status"].clone()))
            .collect::<std::collections::BTreeMap<_, _>>()
    };
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        if listed(&mut client).await
            == [("echo:/one".into(), json!(8)), ("echo:/two".into(), json!(2))].into()
        {
            break;
        }
    }
    assert_eq!(
        listed(&mut client).await,
        [("echo:/one".into(), json!(8)), ("echo:/two".into(), json!(2))].into()
    );
    let state = subscribe(&mut client, &chat()).await;
    assert_eq!(state["state"]["activeTurn"]["message"]["text"], "next", "{state}");
}

/// The host that drains goes on to run: nothing tells the other one that it gave a session up.
#[tokio::test(start_paused = true)]
async fn what_waits_at_a_host_that_drains_goes_on_at_another_one() {
    let inn = Inn::new();
    let (a, b) = (inn.host("a").await, inn.host("b").await);
    let mut maker = a.connect("maker").await;
    let slow = json!({ "delayMs": 1000 });
    maker.request("createSession", json!({ "channel": SESSION, "config": slow })).await.unwrap();
    subscribe(&mut maker, &chat()).await;
    say(&mut maker, 1, "t1", "words that take some seconds until they end").await;
    maker.actions_until("chat/responsePart").await;
    queue(&mut maker, 2, "next").await;
    a.host.set_draining(true).await.unwrap();
    for _ in 0..1200 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        if inn.cluster.owner_of("one").as_deref() == Some("b") {
            break;
        }
    }
    assert_eq!(inn.cluster.owner_of("one").as_deref(), Some("b"));
    tokio::time::sleep(Duration::from_secs(20)).await;
    let state = subscribe(&mut b.connect("c").await, &chat()).await;
    let texts: Vec<_> =
        state["state"]["turns"].as_array().unwrap().iter().map(|turn| &turn["message"]["text"]).collect();
    assert_eq!(texts.len(), 2, "{state}");
    assert_eq!([texts[1], &state["state"]["turns"][1]["state"]], ["next", "complete"], "{state}");
}

/// The writes of a store fail while this is set.
struct Full(Arc<AtomicBool>);

impl WrapCall for Full {
    fn wrap<S: Signature>(&self, call: &Call<S>, writes: bool) -> Call<S> {
        let (call, is_full) = (call.clone(), self.0.clone());
        Call::new(move |arguments| {
            let fails = writes && is_full.load(Ordering::Relaxed);
            let call = call.clone();
            async move {
                match fails {
                    true => Err(Thrown::new("the disk is full")),
                    false => call.unbounded(arguments).await,
                }
            }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn clients_see_nothing_that_could_not_be_stored() {
    let inn = Inn::new();
    let is_full = Arc::new(AtomicBool::new(false));
    let store = SqliteSessions::new(inn.db.clone(), ostler_ports::Report::new(|line| panic!("{line}")));
    let store = wrapped_store(&Arc::new(store).into_point(), &Full(is_full.clone()));
    let a = inn.cluster.start("a", store, Inn::builder()).await;
    let b = inn.host("b").await;
    let mut maker = a.connect("maker").await;
    create(&mut maker).await;
    let mut clients = [maker, b.connect("far").await];
    for client in &mut clients {
        subscribe(client, &chat()).await;
    }
    say(&mut clients[0], 1, "t1", "some words").await;
    for client in &mut clients {
        client.actions_until("chat/turnComplete").await;
    }
    // The end of a turn is written again.
    say(&mut clients[0], 2, "t2", "/slow 5s done").await;
    for client in &mut clients {
        client.actions_until("chat/turnStarted").await;
    }
    is_full.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_millis(5500)).await;
    is_full.store(false, Ordering::Relaxed);
    for client in &mut clients {
        client.actions_until("chat/turnComplete").await;
    }
    // Neither a start nor an end is shown that is not stored in the end.
    let mut rejected = Vec::new();
    for (turn, text) in [("t3", "words"), ("t4", "/slow 5s lost")] {
        let mut clients = [a.connect("near").await, b.connect("far").await];
        for client in &mut clients {
            subscribe(client, &chat()).await;
        }
        is_full.store(turn == "t3", Ordering::Relaxed);
        say(&mut clients[0], 1, turn, text).await;
        if turn == "t4" {
            clients[0].actions_until("chat/turnStarted").await;
            is_full.store(true, Ordering::Relaxed);
        }
        for client in &mut clients {
            while let Some(frame) = client.next_frame().await {
                let shown = &frame["params"]["action"]["type"];
                if frame["params"]["rejectionReason"].is_string() {
                    assert_eq!(frame["params"]["_meta"], json!({ "ostler.retryable": true }), "{frame}");
                    rejected.push(turn);
                    continue;
                }
                assert!(
                    shown != "chat/turnComplete" && (turn == "t4" || shown != "chat/turnStarted"),
                    "{frame}"
                );
            }
            assert_eq!(client.ended().await, Closed::Moved);
        }
        is_full.store(false, Ordering::Relaxed);
    }
    assert_eq!(rejected, ["t3"], "its sender can send it again");
    for host in [&a, &b] {
        let snapshot = subscribe(&mut host.connect("reader").await, &chat()).await;
        let turns = snapshot["state"]["turns"].as_array().unwrap();
        let seen: Vec<_> = turns.iter().map(|turn| (turn["id"].clone(), turn["state"].clone())).collect();
        let expected = [("t1", "complete"), ("t2", "complete"), ("t4", "error")];
        assert_eq!(seen, expected.map(|(id, state)| (json!(id), json!(state))));
    }
    let mut again = b.connect("again").await;
    subscribe(&mut again, &chat()).await;
    say(&mut again, 1, "t5", "words").await;
    again.actions_until("chat/turnComplete").await;
}

#[tokio::test(start_paused = true)]
async fn a_host_replays_nothing_of_a_session_that_another_one_served() {
    let inn = Inn::new();
    let (a, b) = (inn.host("a").await, inn.host("b").await);
    create(&mut a.connect("maker").await).await;
    let mut client = b.connect("c").await;
    subscribe(&mut client, &chat()).await;
    say(&mut client, 1, "t1", "some words").await;
    let seen = numbers(&client.actions_until("chat/turnStarted").await).pop().unwrap();
    let last = numbers(&client.actions_until("chat/turnComplete").await).pop().unwrap();
    inn.cluster.kill(&a);
    assert_eq!(client.ended().await, Closed::Moved);
    // Its own host takes the session over, and numbered the actions of the first owner too.
    for seen in [seen, last] {
        let (_, result) = reconnect(&b, "c", seen, &[&chat()]).await;
        assert_eq!(result["type"], "snapshot", "{result}");
        assert_eq!(result["snapshots"][0]["state"]["turns"][0]["state"], "complete");
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_takes_over_reports_what_the_lost_host_did_not() {
    let inn = Inn::new();
    let (a, b) = (inn.host("a").await, inn.host("b").await);
    let mut watcher = b.connect("w").await;
    subscribe(&mut watcher, "ahp-root://").await;
    let mut maker = a.connect("maker").await;
    create(&mut maker).await;
    subscribe(&mut maker, &chat()).await;
    say(&mut maker, 1, "t1", "some words").await;
    maker.actions_until("chat/turnComplete").await;
    while watcher.next_frame().await.unwrap()["method"] != "root/sessionAdded" {}
    // As if it had been stored by the first owner, whose link ended before it was sent.
    let store =
        Arc::new(SqliteSessions::new(inn.db.clone(), ostler_ports::Report::new(|line| panic!("{line}"))))
            .into_point();
    let flags = SessionFlags { is_archived: true, ..SessionFlags::default() };
    store.set_flags.unbounded(("one".to_owned(), flags)).await.unwrap();
    inn.cluster.give("one", &b);
    subscribe(&mut watcher, SESSION).await;
    inn.cluster.kill(&a);
    loop {
        let frame = watcher.next_frame().await.unwrap();
        let status = frame["params"]["changes"]["status"].as_u64().unwrap_or_default();
        if status & u64::from(SessionStatus::IsArchived.bits()) != 0 {
            assert_eq!(frame["method"], "root/sessionSummaryChanged");
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_whole_row_of_a_session_that_has_another_host_is_reported() {
    let inn = Inn::new();
    let (a, b, c) = (inn.host("a").await, inn.host("b").await, inn.host("c").await);
    let mut watcher = c.connect("w").await;
    subscribe(&mut watcher, "ahp-root://").await;
    create_used(&mut a.connect("maker").await).await;
    while notified(&mut watcher).await["method"] != "root/sessionAdded" {}
    // As if the first owner had stored it and was lost before it sent it, while the link is still open.
    let store =
        Arc::new(SqliteSessions::new(inn.db.clone(), ostler_ports::Report::new(|line| panic!("{line}"))))
            .into_point();
    let flags = SessionFlags { is_archived: true, ..SessionFlags::default() };
    store.set_flags.unbounded(("one".to_owned(), flags)).await.unwrap();
    inn.cluster.give("one", &b);
    let mut client = b.connect("c").await;
    subscribe(&mut client, SESSION).await;
    let titled = json!({ "type": "session/titleChanged", "title": "Renamed" });
    client.dispatch(SESSION, 1, titled).await;
    loop {
        let changes = notified(&mut watcher).await["params"]["changes"].clone();
        let status = changes["status"].as_u64().unwrap_or_default();
        if status & u64::from(SessionStatus::IsArchived.bits()) != 0 {
            assert_eq!(changes["title"], "Renamed");
            break;
        }
    }
}

/// A store that reports errors of writes that it has done, that cannot be read, or that answers reads later.
#[derive(Debug, Clone, Default)]
struct Unsure {
    loses_answers: Arc<AtomicBool>,
    is_unreadable: Arc<AtomicBool>,
    is_slow: Arc<AtomicBool>,
}

impl WrapCall for Unsure {
    fn wrap<S: Signature>(&self, call: &Call<S>, writes: bool) -> Call<S> {
        let (call, unsure) = (call.clone(), self.clone());
        Call::new(move |arguments| {
            let (call, unsure) = (call.clone(), unsure.clone());
            async move {
                let answer = call.unbounded(arguments).await;
                if !writes && unsure.is_slow.load(Ordering::Relaxed) {
                    // Tests with a slow store pause time.
                    tokio::time::sleep(Duration::from_secs(5)).await;
                }
                match if writes { &unsure.loses_answers } else { &unsure.is_unreadable } {
                    fails if fails.load(Ordering::Relaxed) => Err(Thrown::new("the answer was lost")),
                    _ => answer,
                }
            }
        })
    }
}

impl Inn {
    async fn unsure(&self, id: &str, unsure: &Unsure) -> ClusteredHost {
        let store = SqliteSessions::new(self.db.clone(), ostler_ports::Report::new(|line| panic!("{line}")));
        self.cluster.start_wrapped(id, Arc::new(store).into_point(), Self::builder(), unsure).await
    }

    /// Creates a session at a host, whose links are then cut. Returns a client of another host that follows the list, and one
    /// of the session.
    async fn without_link(&self, a: &ClusteredHost, b: &ClusteredHost) -> (RawClient, RawClient) {
        let mut watcher = b.connect("w").await;
        subscribe(&mut watcher, "ahp-root://").await;
        create_used(&mut a.connect("maker").await).await;
        while notified(&mut watcher).await["method"] != "root/sessionAdded" {}
        self.cluster.cut(a);
        let mut maker = a.connect("maker").await;
        subscribe(&mut maker, SESSION).await;
        (watcher, maker)
    }
}

/// Waits until the row of a session has a title.
async fn is_titled(client: &mut RawClient, title: &str) {
    while notified(client).await["params"]["changes"]["title"] != title {}
}

async fn rename(client: &mut RawClient, seq: i64, title: &str) {
    client.dispatch(SESSION, seq, json!({ "type": "session/titleChanged", "title": title })).await;
}

#[tokio::test(start_paused = true)]
async fn the_row_of_a_session_whose_host_has_no_link_is_reported() {
    let inn = Inn::new();
    let (a, b) = (inn.host("a").await, inn.host("b").await);
    let (mut watcher, mut maker) = inn.without_link(&a, &b).await;
    for title in ["Once", "Twice"] {
        rename(&mut maker, 1, title).await;
        is_titled(&mut watcher, title).await;
        let listed = watcher.request("listSessions", json!({})).await.unwrap();
        assert_eq!(listed["items"][0]["title"], title);
        maker = a.connect("maker").await;
        subscribe(&mut maker, SESSION).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_row_is_reported_once_the_store_can_be_read() {
    let inn = Inn::new();
    let unsure = Unsure::default();
    let (a, b) = (inn.host("a").await, inn.unsure("b", &unsure).await);
    let (mut watcher, mut maker) = inn.without_link(&a, &b).await;
    unsure.is_unreadable.store(true, Ordering::Relaxed);
    rename(&mut maker, 1, "Renamed").await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    unsure.is_unreadable.store(false, Ordering::Relaxed);
    is_titled(&mut watcher, "Renamed").await;
}

#[tokio::test(start_paused = true)]
async fn the_row_of_a_session_that_was_stored_without_an_answer_is_reported() {
    let inn = Inn::new();
    let unsure = Unsure::default();
    let (a, b) = (inn.unsure("a", &unsure).await, inn.host("b").await);
    let mut watchers = [a.connect("near").await, b.connect("far").await];
    for watcher in &mut watchers {
        subscribe(watcher, "ahp-root://").await;
    }
    let mut maker = a.connect("maker").await;
    create_used(&mut maker).await;
    for watcher in &mut watchers {
        while notified(watcher).await["method"] != "root/sessionAdded" {}
    }
    subscribe(&mut maker, SESSION).await;
    unsure.loses_answers.store(true, Ordering::Relaxed);
    rename(&mut maker, 2, "Renamed").await;
    assert_eq!(maker.ended().await, Closed::Moved);
    unsure.loses_answers.store(false, Ordering::Relaxed);
    for watcher in &mut watchers {
        is_titled(watcher, "Renamed").await;
        let listed = watcher.request("listSessions", json!({})).await.unwrap();
        assert_eq!(listed["items"][0]["title"], "Renamed");
    }
}

/// A store whose reads do not end; it counts those that are in progress.
struct Endless(Arc<AtomicUsize>);

/// A read in progress.
struct Reading(Arc<AtomicUsize>);

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl WrapCall for Endless {
    fn wrap<S: Signature>(&self, call: &Call<S>, writes: bool) -> Call<S> {
        let (call, reads) = (call.clone(), self.0.clone());
        Call::new(move |arguments| {
            let call = call.clone();
            let reading = (!writes).then(|| {
                reads.fetch_add(1, Ordering::Relaxed);
                Reading(reads.clone())
            });
            async move {
                if let Some(_reading) = reading {
                    std::future::pending::<()>().await;
                }
                call.unbounded(arguments).await
            }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_listing_is_not_read_on_for_a_client_that_has_left() {
    let inn = Inn::new();
    let store = SqliteSessions::new(inn.db.clone(), ostler_ports::Report::new(|line| panic!("{line}")));
    let reads = Arc::new(AtomicUsize::new(0));
    let store = Arc::new(store).into_point();
    let a = inn.cluster.start_wrapped("a", store, Inn::builder(), &Endless(reads.clone())).await;
    let client = a.connect("leaves").await;
    // Reads of the start end with their limits.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let before = reads.load(Ordering::Relaxed);
    client
        .send(&json!({ "jsonrpc": "2.0", "id": 9, "method": "listSessions", "params": {} }).to_string())
        .await;
    eventually("the list is read", || reads.load(Ordering::Relaxed) == before + 1).await;
    client.connection.close();
    let left = tokio::time::Instant::now();
    eventually("the read ends", || reads.load(Ordering::Relaxed) == before).await;
    assert!(left.elapsed() < Duration::from_secs(1), "{:?}", left.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_listing_has_what_was_reported_while_it_was_read() {
    let inn = Inn::new();
    let unsure = Unsure::default();
    let (a, b) = (inn.host("a").await, inn.unsure("b", &unsure).await);
    for session in ["echo:/removed", "echo:/renamed"] {
        let mut maker = a.connect(session).await;
        maker.request("createSession", json!({ "channel": session })).await.unwrap();
        subscribe(&mut maker, &ostler_protocol::uri::default_chat(session)).await;
        say_in(&mut maker, session, 1, "t1", "some words").await;
        maker.actions_until("chat/turnComplete").await;
    }
    let mut watcher = b.connect("w").await;
    subscribe(&mut watcher, "ahp-root://").await;
    unsure.is_slow.store(true, Ordering::Relaxed);
    // It has read the store, which answers later.
    watcher.send(r#"{ "jsonrpc": "2.0", "id": 90, "method": "listSessions", "params": {} }"#).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    let mut maker = a.connect("maker").await;
    create_used(&mut maker).await;
    maker.request("disposeSession", json!({ "channel": "echo:/removed" })).await.unwrap();
    subscribe(&mut maker, "echo:/renamed").await;
    let renamed = json!({ "type": "session/titleChanged", "title": "Renamed" });
    maker.dispatch("echo:/renamed", 2, renamed).await;
    is_titled(&mut watcher, "Renamed").await;
    let listed = loop {
        let frame = watcher.next_frame().await.unwrap();
        if frame["id"] == 90 {
            break frame["result"].clone();
        }
    };
    let rows = listed["items"].as_array().unwrap().iter();
    let rows: BTreeSet<_> =
        rows.map(|row| (row["resource"].as_str().unwrap(), row["title"].as_str().unwrap())).collect();
    let title = "some words";
    assert_eq!(rows, BTreeSet::from([(SESSION, title), ("echo:/renamed", "Renamed")]));
}

#[tokio::test(start_paused = true)]
async fn a_session_is_not_older_after_a_host_whose_clock_is_behind_has_changed_it() {
    let inn = Inn::new();
    let ahead = Inn::builder().started("2026-01-01T01:00:00Z".parse().unwrap());
    let behind = Inn::builder().started("2026-01-01T00:00:00Z".parse().unwrap());
    let (a, b, c) = (inn.start("a", ahead).await, inn.start("b", behind).await, inn.host("c").await);
    create_used(&mut a.connect("maker").await).await;
    let mut watcher = c.connect("w").await;
    subscribe(&mut watcher, "ahp-root://").await;
    let row = async |watcher: &mut RawClient| {
        let listed = watcher.request("listSessions", json!({})).await.unwrap();
        let row = &listed["items"][0];
        (row["modifiedAt"].as_str().unwrap().to_owned(), row["status"].as_u64().unwrap())
    };
    let (first, _) = row(&mut watcher).await;
    assert!(first.starts_with("2026-01-01T01:"), "{first}");
    inn.cluster.kill(&a);
    let mut client = b.connect("c").await;
    subscribe(&mut client, &chat()).await;
    say(&mut client, 1, "t2", "/slow 10s later").await;
    client.actions_until("chat/turnStarted").await;
    let running = u64::from(SessionStatus::InProgress.bits());
    loop {
        let changed = notified(&mut watcher).await["params"]["changes"].clone();
        if changed["status"].as_u64().is_some_and(|status| status & running != 0) {
            break;
        }
    }
    let (later, status) = row(&mut watcher).await;
    assert_eq!((later >= first, status & running), (true, running), "{first} {later}");
}

#[tokio::test(start_paused = true)]
async fn requests_fail_so_that_they_can_be_repeated_when_the_owner_is_lost() {
    let inn = Inn::new();
    let (a, b) = (inn.host("a").await, inn.host("b").await);
    create(&mut a.connect("maker").await).await;
    let mut client = b.connect("c").await;
    subscribe(&mut client, SESSION).await;
    client.notify("unsubscribe", json!({ "channel": SESSION })).await;
    inn.cluster.cut(&a);
    let failed = client.request("disposeSession", json!({ "channel": SESSION })).await.unwrap_err();
    assert_eq!((&failed["code"], &failed["data"]["retryable"]), (&json!(-32603), &json!(true)), "{failed}");
    // A subscription waits until the session has an owner again.
    let subscribes = client.request("subscribe", json!({ "channel": SESSION }));
    let ends = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        inn.cluster.expire(&a);
    };
    let (subscribed, ()) = futures::join!(subscribes, ends);
    assert_eq!(subscribed.unwrap()["snapshot"]["resource"], SESSION);
    assert_eq!(client.request("disposeSession", json!({ "channel": SESSION })).await, Ok(Value::Null));
}

#[tokio::test(start_paused = true)]
async fn a_message_for_a_former_owner_is_returned_and_sent_to_the_new_one() {
    let inn = Inn::new();
    // The first host retains only the latest session.
    let few = |options: &mut HostOptions| {
        options.resting_sessions = 0;
        options.limits.awake_sessions = 1;
    };
    let a = inn.start("a", Inn::builder().options(few)).await;
    let (b, c) = (inn.host("b").await, inn.host("c").await);
    let mut maker = a.connect("maker").await;
    create(&mut maker).await;
    let mut client = b.connect("c").await;
    subscribe(&mut client, &chat()).await;
    say(&mut client, 1, "t1", "some words").await;
    client.actions_until("chat/turnComplete").await;
    client.notify("unsubscribe", json!({ "channel": chat() })).await;
    eventually("nobody follows it", || !a.host.core.fanout.watchers(&chat()).iter().any(|_| true)).await;
    let mut others = 0;
    let mut leave = async || {
        while a.host.sessions.all().iter().any(|entry| entry.id == "one") {
            others += 1;
            let other = format!("echo:/other{others}");
            let _ = maker.request("createSession", json!({ "channel": other })).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert!(others < 100, "the session stays in memory");
        }
    };
    leave().await;
    inn.cluster.give("one", &c);
    let snapshot = subscribe(&mut client, &chat()).await;
    assert_eq!(snapshot["state"]["turns"][0]["id"], "t1");
    assert!(c.host.sessions.all().iter().any(|entry| entry.id == "one"));
    assert!(!a.host.sessions.all().iter().any(|entry| entry.id == "one"), "its former owner did not load it");
    say(&mut client, 2, "t2", "some words").await;
    client.actions_until("chat/turnComplete").await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_drains_hands_its_sessions_over() {
    let inn = Inn::new();
    let (a, b) = (inn.host("a").await, inn.host("b").await);
    let mut near = a.connect("near").await;
    create(&mut near).await;
    let mut far = b.connect("far").await;
    subscribe(&mut far, &chat()).await;
    say(&mut far, 1, "t1", "some words").await;
    far.actions_until("chat/turnComplete").await;
    a.host.set_draining(true).await.unwrap();
    assert_eq!(far.ended().await, Closed::Moved);
    let (mut far, result) = reconnect(&b, "far", 1, &[&chat()]).await;
    assert_eq!(result["snapshots"][0]["state"]["turns"][0]["id"], "t1", "{result}");
    assert_eq!(inn.cluster.owner_of("one").as_deref(), Some("b"));
    say(&mut far, 2, "t2", "some words").await;
    far.actions_until("chat/turnComplete").await;
    // Its clients are served by the other host, also with new sessions.
    subscribe(&mut near, &chat()).await;
    near.request("createSession", json!({ "channel": "echo:/new" })).await.unwrap();
    assert_eq!(inn.cluster.owner_of("new").as_deref(), Some("b"));
    let new_chat = ostler_protocol::uri::default_chat("echo:/new");
    subscribe(&mut near, &new_chat).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_disconnected_without_the_others() {
    let inn = Inn::new();
    let a = inn.host("a").await;
    let small = |options: &mut HostOptions| options.outbox = 64 * 1024;
    let b = inn.start("b", Inn::builder().options(small)).await;
    create(&mut a.connect("maker").await).await;
    let (mut client, mut slow) = (b.connect("c").await, b.connect("slow").await);
    subscribe(&mut client, &chat()).await;
    subscribe(&mut slow, &chat()).await;
    let long = "word ".repeat(2000);
    for turn in 0..16 {
        say(&mut client, turn, &format!("t{turn}"), &long).await;
        client.actions_until("chat/turnComplete").await;
    }
    assert_eq!(slow.ended().await, Closed::Behind);
    slow.connection.close();
    assert!(!client.connection.outbox.is_closed());
    say(&mut client, 20, "last", "word").await;
    client.actions_until("chat/turnComplete").await;
    // The owner no longer has a connection for it.
    eventually("the connection at the owner is closed", || a.host.core.fanout.watchers(&chat()).len() == 1)
        .await;
}

fn users(role_of_ben: &str) -> People {
    let people = People::new(SIGN_IN, "inn");
    let file = json!({
        "roles": { "none": [] },
        "users": [
            { "id": "ada", "roles": ["admin"], "token": hash_of("ada's") },
            { "id": "ben", "roles": [role_of_ben], "token": hash_of("ben's") },
        ]
    });
    people.set(UsersFile::parse(&file.to_string()).unwrap()).unwrap();
    people
}

#[tokio::test(start_paused = true)]
async fn the_owner_decides_what_a_user_of_another_host_may() {
    let inn = Inn::new();
    let a = inn.start("a", Inn::builder().people(users("none"))).await;
    let b = inn.start("b", Inn::builder().people(users("admin"))).await;
    let sign_in = |token: &'static str| json!({ "resource": SIGN_IN, "token": token });
    let mut maker = a.connect("maker").await;
    maker.request("authenticate", sign_in("ada's")).await.unwrap();
    create(&mut maker).await;
    let mut client = b.connect("c").await;
    let subscribe = json!({ "channel": SESSION });
    let refused = client.request("subscribe", subscribe.clone()).await.unwrap_err();
    assert_eq!(refused["code"], -32007, "{refused}");
    // The identity follows the client, also to a connection that is open there.
    client.request("authenticate", sign_in("ben's")).await.unwrap();
    let refused = client.request("subscribe", subscribe.clone()).await.unwrap_err();
    assert_eq!(refused["message"], "ben may not session:state here");
    client.request("authenticate", sign_in("ada's")).await.unwrap();
    let state = client.request("subscribe", subscribe).await.unwrap();
    assert_eq!(state["snapshot"]["resource"], SESSION);
    let created = "echo:/two";
    client.request("createSession", json!({ "channel": created })).await.unwrap();
    let owners: HashMap<_, _> = [&a, &b]
        .map(|host| host.host.sessions.all())
        .into_iter()
        .flatten()
        .map(|entry| (entry.uri.clone(), entry.owner.clone()))
        .collect();
    assert_eq!(owners[created].as_deref(), Some("user:ada"));
}

#[tokio::test(start_paused = true)]
async fn a_connection_of_a_plugin_reaches_sessions_of_other_hosts() {
    let inn = Inn::new();
    let a = inn.host("a").await;
    let plugin = || ostler_contract::Plugin::new("@test/bot", |_, _| Box::pin(async { Ok(()) }));
    let b = inn.start("b", Inn::builder().plugin(plugin(), json!({}))).await;
    create(&mut a.connect("maker").await).await;
    let peer = b.plugin("bot").connect().unwrap();
    let initialize = json!({ "clientId": "bot", "protocolVersions": ["1.0.0"] });
    let request =
        |method: &str, params: Value| peer.request.call((method.to_owned(), params.as_object().cloned()));
    request("initialize", initialize).await.unwrap();
    let subscribed = request("subscribe", json!({ "channel": chat() })).await.unwrap();
    assert_eq!(subscribed["snapshot"]["resource"], chat());
}

#[tokio::test(start_paused = true)]
async fn a_plugin_is_told_of_sessions_of_other_hosts() {
    let inn = Inn::new();
    let a = inn.host("a").await;
    let plugin = || ostler_contract::Plugin::new("@test/bot", |_, _| Box::pin(async { Ok(()) }));
    let b = inn.start("b", Inn::builder().plugin(plugin(), json!({}))).await;
    create_used(&mut a.connect("maker").await).await;
    let bot = b.plugin("bot");
    assert_eq!(bot.session_kept(SESSION.to_owned()).await, Ok(true));
    assert_eq!(bot.session_kept("other:/one".to_owned()).await, Ok(false), "it is of another backend");
    assert_eq!(bot.session_kept("echo:/none".to_owned()).await, Ok(false));
    assert_eq!(bot.session_owner(SESSION.to_owned()).await, Ok(None));
    assert_eq!(inn.cluster.owner_of("one").as_deref(), Some("a"), "it stays there");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_has_just_moved_is_not_absent() {
    let inn = Inn::new();
    let (a, b) = (inn.host("a").await, inn.host("b").await);
    create_used(&mut a.connect("maker").await).await;
    // What a host asks once it was chosen to serve a message, and another one has claimed the session since.
    for channel in [SESSION.to_owned(), chat()] {
        let Read::Unknown(Unknown(why)) = b.host.sessions.located(&channel).await else {
            panic!("{channel} is said to be absent or here");
        };
        assert!(SessionElsewhere::is(&why), "{why}");
        let answer = why.into_rpc();
        assert!(!answer.message.contains("://"), "no address of a host: {}", answer.message);
        assert_eq!(answer.data.unwrap()["url"], Value::Null);
    }
    assert!(matches!(b.host.sessions.located("echo:/none").await, Read::Known(None)));
}

/// A client, its connection, and the host it connects to.
struct Peer {
    mirror: Mirror,
    line: Option<RawClient>,
    home: usize,
}

impl Peer {
    fn new(name: &str, version: Version, home: usize) -> Self {
        Self { mirror: Mirror::new(name, version), line: None, home }
    }

    fn connect(&mut self, hosts: &[ClusteredHost]) {
        if self.line.is_none() {
            self.line = Some(hosts[self.home].raw());
            self.mirror.connect();
        }
    }

    /// Sends and reads what is there to send and to read; a client that was disconnected connects again.
    async fn exchange(&mut self, hosts: &[ClusteredHost]) {
        let Some(line) = &mut self.line else { return };
        for frame in self.mirror.outgoing() {
            line.send(&frame).await;
        }
        for frame in line.ready_frames().await {
            self.mirror.receive(&frame);
        }
        if line.connection.outbox.is_closed() {
            self.drop_line();
            self.connect(hosts);
        }
    }

    fn drop_line(&mut self) {
        if let Some(line) = self.line.take() {
            line.connection.close();
            self.mirror.disconnected();
        }
    }

    /// Moves to another host, which does not know this client.
    fn moves(&mut self, to: usize) {
        self.drop_line();
        self.home = to;
        self.mirror.host_ended();
    }
}

async fn settle(hosts: &[ClusteredHost], peers: &mut [Peer], rounds: usize, each: Duration) {
    for _ in 0..rounds {
        for peer in peers.iter_mut() {
            peer.exchange(hosts).await;
        }
        // Time is paused.
        tokio::time::sleep(each).await;
    }
}

/// What a client does: which client, what, to what, and how.
type Choice = (usize, Step, u8, u8);

fn choice() -> impl Strategy<Value = Choice> {
    let choice = (0..4_usize, 0..ROWS.len(), any::<u8>(), any::<u8>());
    choice.prop_map(|(client, row, at, how)| (client, ROWS[row], at, how))
}

const HOSTS: [&str; 3] = ["a", "b", "c"];

async fn play(steps: Vec<Choice>) {
    let inn = Inn::new();
    let mut hosts = Vec::new();
    for id in HOSTS {
        hosts.push(inn.start(id, Inn::builder().session_tools()).await);
    }
    // Hosts that were killed stay in memory: nothing of them must have an effect.
    let mut killed = Vec::new();
    let versions = [Version::V1, Version::V0_9, Version::V1, Version::V0_9];
    let mut peers: Vec<Peer> = versions
        .into_iter()
        .enumerate()
        .map(|(at, version)| Peer::new(&format!("c{at}"), version, at % hosts.len()))
        .collect();
    for peer in &mut peers {
        peer.connect(&hosts);
    }
    for (number, (client, step, at, how)) in steps.into_iter().enumerate() {
        match step {
            Step::Drop => peers[client].drop_line(),
            Step::Return => {
                let to = usize::from(how) % hosts.len();
                if peers[client].line.is_none() && to != peers[client].home {
                    peers[client].moves(to);
                }
                peers[client].connect(&hosts);
            }
            Step::Restart => {
                let at = usize::from(how) % hosts.len();
                inn.cluster.kill(&hosts[at]);
                let host = inn.start(HOSTS[at], Inn::builder().session_tools()).await;
                killed.push(std::mem::replace(&mut hosts[at], host));
                for peer in peers.iter_mut().filter(|peer| peer.home == at) {
                    // The new host does not know which version a client speaks, connected or not.
                    let was_connected = peer.line.is_some();
                    peer.moves(at);
                    if was_connected {
                        peer.connect(&hosts);
                    }
                }
            }
            Step::Wait => {
                settle(&hosts, &mut peers, 4, Duration::from_millis(u64::from(how) * u64::from(at) / 40))
                    .await;
            }
            // Settings of a host are those of this host.
            Step::Configure if how % 3 == 0 => {}
            step => peers[client].mirror.step(step, number, at, how),
        }
        settle(&hosts, &mut peers, 1, Duration::from_millis(u64::from(how % 4))).await;
    }
    for peer in &mut peers {
        peer.connect(&hosts);
    }
    settle(&hosts, &mut peers, 60, Duration::from_secs(1)).await;
    for peer in &mut peers {
        peer.mirror.want_everything();
    }
    settle(&hosts, &mut peers, 40, Duration::from_secs(1)).await;
    let own: BTreeSet<String> = peers.iter().flat_map(|peer| peer.mirror.own()).cloned().collect();
    let count = peers.len();
    peers.push(Peer::new("older", Version::V0_9, 1));
    peers.push(Peer::new("newer", Version::V1, 2));
    for fresh in &mut peers[count..] {
        fresh.mirror.follow_sessions(own.clone());
        fresh.connect(&hosts);
    }
    settle(&hosts, &mut peers, 20, Duration::from_secs(1)).await;
    let (peers, fresh) = peers.split_at(count);
    for peer in peers {
        let fresh = fresh.iter().find(|fresh| fresh.mirror.version() == peer.mirror.version()).unwrap();
        let compared = fresh.mirror.compare(&fresh.mirror).and_then(|()| peer.mirror.compare(&fresh.mirror));
        compared.unwrap_or_else(|difference| panic!("{difference}"));
    }
}

/// How many cases are played, which `OSTLER_CLUSTER_CASES` overrides.
const CASES: u32 = 24;

fn cases() -> u32 {
    std::env::var("OSTLER_CLUSTER_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(CASES)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]
    #[test]
    fn all_clients_of_all_hosts_end_equal(steps in proptest::collection::vec(choice(), 1..60)) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(play(steps));
    }
}
