//! No plugin call blocks others: the priority lane of a session's mailbox, and stores and backends that never answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ostler_contract::host::SessionRequest;
use ostler_contract::points::{
    Agent, AgentSession, AutomationStore, Changes, ChangesState, Emit, Policies, SessionStore, Usage,
};
use ostler_contract::{Call, JsonObject, Plugin, Value, json};
use ostler_engine::users::UsersFile;
use ostler_engine::{People, Principal};
use ostler_ports::{SqliteSessions, StateDb};
use ostler_testkit::cases::{empty_automations, empty_sessions};
use ostler_testkit::{MemoryHost, RawClient, SIGN_IN, Stage, action};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

const SESSION: &str = "stage:/1";
const SECOND: &str = "ahp-chat:/2";

/// What a backend was told.
type Told = Arc<Mutex<Vec<String>>>;

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

/// Policies that allow everything, until they never answer again.
#[derive(Clone, Default)]
struct Stuck {
    stuck: Arc<AtomicBool>,
    /// How often they were read.
    reads: Arc<AtomicUsize>,
}

impl Stuck {
    fn policies(&self) -> Policies {
        let Self { stuck, reads } = self.clone();
        Policies {
            list: Call::new(move |()| {
                let stuck = stuck.load(Ordering::SeqCst);
                reads.fetch_add(1, Ordering::SeqCst);
                async move {
                    if stuck {
                        return std::future::pending().await;
                    }
                    let row = json!({ "id": "yes", "scope": "all", "kind": "agent", "effect": "allow" });
                    Ok(vec![row.as_object().cloned().unwrap()])
                }
            }),
            get: Call::now(|_| Ok(None)),
            put: Call::now(|_| Ok(())),
            remove: Call::now(|_| Ok(false)),
            close: None,
        }
    }

    /// A host that asks them, with a session of a user they restrict.
    async fn host(&self, stage: &Stage) -> (MemoryHost, RawClient) {
        let people = People::new(SIGN_IN, "inn");
        let file = json!({
            "roles": { "keeper": ["session:*"] },
            "users": [{ "id": "ada", "roles": ["admin"] }, { "id": "ben", "roles": ["keeper"] }]
        });
        people.set(UsersFile::parse(&file.to_string()).unwrap()).unwrap();
        let caller = Plugin::new("@test/caller", |_, _| Box::pin(async { Ok(()) }));
        let host = MemoryHost::builder()
            .plugin(stage.plugin(), json!({}))
            .plugin(caller, json!({}))
            .grants(&["session:*"])
            .options(|options| options.check_policies = true)
            .people(people)
            .policies(self.policies())
            .start()
            .await;
        let mut ben = user(&host, "ben").await;
        ben.request("createSession", json!({ "channel": SESSION })).await.unwrap();
        ben.request("subscribe", json!({ "channel": chat() })).await.unwrap();
        (host, ben)
    }
}

async fn user(host: &MemoryHost, id: &str) -> RawClient {
    let person = host.host.access.gate.people().unwrap().now().person(id).unwrap();
    let mut client = host.raw_as(Principal::Person(person));
    client.initialize(id).await;
    client
}

/// What came back of an action a client dispatched.
async fn echo_of(client: &mut RawClient, seq: i64) -> Value {
    loop {
        let mut frame = client.next_frame().await.unwrap();
        if frame["params"]["origin"]["clientSeq"] == seq {
            return frame["params"].take();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn policies_that_never_answer_hold_up_only_what_waits_for_them() {
    let (stage, stuck) = (Stage::default(), Stuck::default());
    let (host, mut ben) = stuck.host(&stage).await;
    let mut ada = user(&host, "ada").await;
    stuck.stuck.store(true, Ordering::SeqCst);
    let since = Instant::now();
    ben.dispatch(&chat(), 1, begin("b")).await;
    let draft =
        json!({ "type": "chat/draftChanged", "draft": { "text": "Next.", "origin": { "kind": "user" } } });
    ben.dispatch(&chat(), 2, draft).await;
    // Another client of the same chat, and other requests of the same connection.
    ada.request("subscribe", json!({ "channel": chat() })).await.unwrap();
    ada.dispatch(&chat(), 11, begin("a")).await;
    assert_eq!(echo_of(&mut ada, 11).await["rejectionReason"], Value::Null);
    ada.dispatch(&chat(), 12, cancel("a")).await;
    assert_eq!(echo_of(&mut ada, 12).await["rejectionReason"], Value::Null);
    ben.request("fetchTurns", json!({ "channel": chat() })).await.unwrap();
    ben.request("subscribe", json!({ "channel": SESSION })).await.unwrap();
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    let why = "cannot read the policies, so no work can start: it did not answer within 5 seconds";
    let refused = echo_of(&mut ben, 1).await;
    assert!(refused["rejectionReason"].as_str().unwrap().starts_with(why), "{refused}");
    assert!(since.elapsed() < Duration::from_secs(6), "{:?}", since.elapsed());
    let later = echo_of(&mut ben, 2).await;
    assert_eq!(later["action"]["type"], "chat/draftChanged", "what followed keeps its place: {later}");
    assert_eq!(later["rejectionReason"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn policies_are_read_once_for_each_start_of_work() {
    let (stage, stuck) = (Stage::default(), Stuck::default());
    let (host, mut ben) = stuck.host(&stage).await;
    let reads = || stuck.reads.swap(0, Ordering::SeqCst);
    reads();
    ben.dispatch(&chat(), 1, begin("a")).await;
    ben.actions_until("chat/turnStarted").await;
    assert_eq!(reads(), 1, "a turn");
    ben.dispatch(&chat(), 2, cancel("a")).await;
    ben.actions_until("chat/turnCancelled").await;
    assert_eq!(reads(), 0, "a cancel");
    let waits = json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": "w",
        "message": { "text": "Go.", "origin": { "kind": "user" } } });
    ben.dispatch(&chat(), 3, waits).await;
    ben.actions_until("chat/turnStarted").await;
    assert_eq!(reads(), 1, "a queued message that starts immediately");
    let request = SessionRequest {
        owner: "user:ben".to_owned(),
        prompt: Some("Go.".to_owned()),
        ..SessionRequest::default()
    };
    host.plugin("caller").start_session(request).await.unwrap();
    assert_eq!(reads(), 1, "a session with its first turn");
}

#[tokio::test(start_paused = true)]
async fn an_automation_store_that_never_answers_holds_up_no_other_request() {
    let store = AutomationStore { triggers: Call::new(|()| std::future::pending()), ..empty_automations() };
    let host =
        MemoryHost::builder().plugin(Stage::default().plugin(), json!({})).automations(store).start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    let since = Instant::now();
    let asked = json!({ "jsonrpc": "2.0", "id": "slow", "method": "listAutomationTriggerDefinitions",
        "params": { "channel": "ahp-root://" } });
    client.send(&asked.to_string()).await;
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    client.request("listSessions", json!({ "channel": "ahp-root://" })).await.unwrap();
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    let failed = loop {
        let frame = client.next_frame().await.unwrap();
        if frame["id"] == "slow" {
            break frame;
        }
    };
    let why = "the automation store did not answer within 10 seconds";
    assert!(failed["error"]["message"].as_str().unwrap_or_default().starts_with(why), "{failed}");
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_never_takes_a_message_in_holds_up_nothing() {
    let stage = Stage::default().never_steering();
    let (host, mut client) = running(&stage).await;
    let mut other = host.raw();
    other.initialize("o").await;
    let since = Instant::now();
    let steering = json!({ "type": "chat/pendingMessageSet", "kind": "steering", "id": "s",
        "message": { "text": "Left.", "origin": { "kind": "user" } } });
    client.dispatch(&chat(), 2, steering).await;
    stage.wait_told("steer").await;
    other.request("subscribe", json!({ "channel": chat() })).await.unwrap();
    other.dispatch(&chat(), 1, cancel("t")).await;
    other.actions_until("chat/turnCancelled").await;
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    let started = client.actions_until("chat/turnStarted").await.pop().unwrap();
    assert_eq!(started["action"]["message"]["text"], "Left.", "it becomes the next turn");
    assert!(since.elapsed() < Duration::from_secs(6), "{:?}", since.elapsed());
}

/// A client may replace, or set and remove, messages as often as it wants while the backend takes none.
#[tokio::test(start_paused = true)]
async fn messages_that_a_backend_does_not_take_in_are_limited() {
    const EACH: usize = 1 << 20;
    for removes in [false, true] {
        let stage = Stage::default().never_steering();
        let (host, mut client) = running(&stage).await;
        let before = host.host.gauges().session_memory;
        let text = "x".repeat(EACH);
        let mut refused = 0;
        for at in 0..40 {
            let steering = json!({ "type": "chat/pendingMessageSet", "kind": "steering", "id": "s",
                "message": { "text": text, "origin": { "kind": "user" } } });
            client.dispatch(&chat(), 2 * at + 2, steering).await;
            let seen = echo_of(&mut client, 2 * at + 2).await;
            if let Some(why) = seen["rejectionReason"].as_str() {
                assert!(why.starts_with("the agent has not answered earlier messages"), "{why}");
                refused += 1;
            }
            if removes {
                let removed = json!({ "type": "chat/pendingMessageRemoved", "kind": "steering", "id": "s" });
                client.dispatch(&chat(), 2 * at + 3, removed).await;
                echo_of(&mut client, 2 * at + 3).await;
            }
        }
        assert!((20..=39).contains(&refused), "{refused} of 40");
        let used = host.host.gauges().session_memory - before;
        assert!((8 * EACH..=20 * EACH).contains(&used), "{used}");
        assert_eq!(told(&stage, "steer"), 40 - refused);
        client.dispatch(&chat(), 900, cancel("t")).await;
        client.actions_until("chat/turnCancelled").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancel_reaches_a_backend_while_the_session_waits_for_its_store() {
    let (stage, stuck) = (Stage::default(), Arc::new(AtomicBool::new(false)));
    let gate = stuck.clone();
    let store = SessionStore {
        set_turn: Some(Call::new(move |_| {
            let stuck = gate.load(Ordering::SeqCst);
            async move {
                match stuck {
                    true => std::future::pending().await,
                    false => Ok(()),
                }
            }
        })),
        turns: Some(Call::now(|_| Ok(Vec::new()))),
        drop_turns: Some(Call::now(|_| Ok(()))),
        ..empty_sessions()
    };
    let host = MemoryHost::builder().plugin(stage.plugin(), json!({})).sessions(store).start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    for session in [SESSION, "stage:/2"] {
        client.request("createSession", json!({ "channel": session })).await.unwrap();
    }
    client.request("subscribe", json!({ "channel": chat() })).await.unwrap();
    stuck.store(true, Ordering::SeqCst);
    answers_again(&stuck, 10_100);
    let since = Instant::now();
    client.dispatch(&chat(), 1, begin("t")).await;
    stage.wait_told("begin").await;
    client.dispatch(&chat(), 2, cancel("t")).await;
    stage.wait_told("cancel").await;
    client.request("subscribe", json!({ "channel": "stage:/2" })).await.unwrap();
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    let seen = client.actions_until("chat/turnCancelled").await;
    assert_eq!(seen[0]["action"]["type"], "chat/turnStarted", "each in its place: {seen:?}");
    assert!(since.elapsed() >= Duration::from_secs(10), "nothing is acknowledged before it is stored");
    assert!(since.elapsed() < Duration::from_secs(31), "{:?}", since.elapsed());
    assert_eq!(told(&stage, "cancel"), 1, "its backend is told once");
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_never_closes_holds_up_only_the_end_of_its_session() {
    let stage = Stage::default().never_closing();
    let (host, mut client) = running(&stage).await;
    let mut other = host.raw();
    other.initialize("o").await;
    let since = Instant::now();
    let end = json!({ "jsonrpc": "2.0", "id": "end", "method": "disposeSession",
        "params": { "channel": SESSION } });
    client.send(&end.to_string()).await;
    stage.wait_told("close").await;
    // Another client, and other requests of the same connection.
    other.request("createSession", json!({ "channel": "stage:/2" })).await.unwrap();
    client.request("createSession", json!({ "channel": "stage:/3" })).await.unwrap();
    client.request("listSessions", json!({ "channel": "ahp-root://" })).await.unwrap();
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    let ended = loop {
        let frame = client.next_frame().await.unwrap();
        if frame["id"] == "end" {
            break frame;
        }
    };
    assert_eq!(ended["error"], Value::Null, "{ended}");
    assert!(since.elapsed() >= Duration::from_secs(5), "{:?}", since.elapsed());
    assert!(since.elapsed() < Duration::from_secs(11), "{:?}", since.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_forgets_a_session_ends_its_disposal_in_time() {
    let store = SessionStore { forget: Call::new(|_| std::future::pending()), ..empty_sessions() };
    let stage = Stage::default();
    let host = MemoryHost::builder().plugin(stage.plugin(), json!({})).sessions(store).start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    let since = Instant::now();
    let refused = client.request("disposeSession", json!({ "channel": SESSION })).await.unwrap_err();
    assert_eq!(refused["data"]["retryable"], true, "{refused}");
    assert!(since.elapsed() < Duration::from_secs(11), "{:?}", since.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_automation_store_that_never_writes_rejects_the_action_in_time() {
    let store = AutomationStore { create: Call::new(|_| std::future::pending()), ..empty_automations() };
    let host =
        MemoryHost::builder().plugin(Stage::default().plugin(), json!({})).automations(store).start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    let since = Instant::now();
    let definition = json!({ "title": "Oats", "enabled": false, "session": { "provider": "stage" }, "triggers": [],
        "message": { "text": "Go.", "origin": { "kind": "automation" } } });
    let create = json!({ "type": "automation/createRequested", "resource": "ahp-automation:/oats",
        "definition": definition });
    client.dispatch("ahp-automations://", 1, create).await;
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    let rejected = echo_of(&mut client, 1).await;
    assert_eq!(rejected["rejectionReason"], "it did not answer within 10 seconds", "{rejected}");
    assert!(since.elapsed() < Duration::from_secs(11), "{:?}", since.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_session_store_that_never_lists_holds_up_no_other_request() {
    let store = SessionStore {
        page: Some(Call::new(|_| std::future::pending())),
        session_of_chat: Some(Call::now(|_| Ok(None))),
        drafts: Some(Call::now(|()| Ok(Vec::new()))),
        count: Some(Call::now(|()| Ok(1))),
        ..empty_sessions()
    };
    let stage = Stage::default();
    let host = MemoryHost::builder().plugin(stage.plugin(), json!({})).sessions(store).start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    let since = Instant::now();
    let list = json!({ "jsonrpc": "2.0", "id": "slow", "method": "listSessions",
        "params": { "channel": "ahp-root://" } });
    client.send(&list.to_string()).await;
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    client.request("subscribe", json!({ "channel": chat() })).await.unwrap();
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    let failed = loop {
        let frame = client.next_frame().await.unwrap();
        if frame["id"] == "slow" {
            break frame;
        }
    };
    let why = "the sessions could not be read from the store, try again: it did not answer within 10 seconds";
    assert_eq!(failed["error"]["message"], why, "{failed}");
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_closes_goes_on_with_its_other_calls() {
    let ended = Arc::new(Notify::new());
    let plugin = Plugin::new("@test/slow", move |host, _| {
        let ended = ended.clone();
        Box::pin(async move {
            host.register_agent(Agent {
                provider: "stage".into(),
                display_name: "Slow".into(),
                schema: Call::now(|()| Ok(json!({ "properties": {} }))),
                defaults: Call::now(|()| Ok(JsonObject::new())),
                create: Call::now(move |_| {
                    let (begun, closing, ended) = (ended.clone(), ended.clone(), Arc::new(Notify::new()));
                    let over = ended.clone();
                    Ok(AgentSession {
                        // Its turn ends when it is closed, and it is closed when its turn has ended.
                        begin: Call::new(move |_| {
                            let (begun, ended) = (begun.clone(), ended.clone());
                            async move {
                                begun.notified().await;
                                tokio::time::sleep(Duration::from_millis(100)).await;
                                ended.notify_one();
                                Ok(())
                            }
                        }),
                        cancel: Call::now(|_| Ok(())),
                        close: Call::new(move |_| {
                            closing.notify_one();
                            let over = over.clone();
                            async move {
                                over.notified().await;
                                Ok(())
                            }
                        }),
                        ..AgentSession::default()
                    })
                }),
                ..Agent::default()
            })
        })
    });
    let host = MemoryHost::builder().plugin(plugin, json!({})).start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    client.request("subscribe", json!({ "channel": chat() })).await.unwrap();
    client.dispatch(&chat(), 1, begin("t")).await;
    client.actions_until("chat/turnStarted").await;
    let since = Instant::now();
    client.request("disposeSession", json!({ "channel": SESSION })).await.unwrap();
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_is_never_recorded_delays_only_the_turn_that_waits_for_it() {
    let stage = Stage::default();
    let changes = Plugin::new("@test/changes", |host, _| {
        Box::pin(async move {
            host.register_changes(
                Changes {
                    scopes: Call::now(|_| Ok(vec![])),
                    state: Call::now(|_| Ok(ChangesState::default())),
                    summary: Call::now(|_| Ok(None)),
                    turn_start: Some(Call::new(|_| std::future::pending())),
                    ..Changes::default()
                },
                None,
            )
        })
    });
    let host = MemoryHost::builder()
        .plugin(stage.plugin(), json!({}))
        .plugin(changes, json!({}))
        .options(|options| options.paths = vec!["/work/yard".to_owned()])
        .start()
        .await;
    let mut client = host.raw();
    client.initialize("c").await;
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    for channel in [SESSION.to_owned(), chat()] {
        client.request("subscribe", json!({ "channel": channel })).await.unwrap();
    }
    let since = Instant::now();
    client.dispatch(&chat(), 1, begin("t")).await;
    client.actions_until("chat/turnStarted").await;
    // Another call of the same backend.
    let mood = json!({ "type": "session/configChanged", "config": { "mood": "calm" } });
    client.dispatch(SESSION, 2, mood).await;
    assert_eq!(echo_of(&mut client, 2).await["rejectionReason"], Value::Null);
    client.dispatch(&chat(), 3, cancel("t")).await;
    client.actions_until("chat/turnCancelled").await;
    client.dispatch(&chat(), 4, begin("u")).await;
    client.actions_until("chat/turnStarted").await;
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    assert_eq!(told(&stage, "begin"), 0, "the directory may still be recorded");
    let begun = stage.wait_told("begin").await;
    assert_eq!(begun[0], "u", "a turn that was cancelled before it began is not begun");
    assert!(since.elapsed() >= Duration::from_secs(5), "{:?}", since.elapsed());
    assert!(since.elapsed() < Duration::from_secs(11), "{:?}", since.elapsed());
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!((told(&stage, "begin"), told(&stage, "cancel")), (1, 0));
}

/// Has the store answer again after the first write has failed, before it is repeated.
fn answers_again(stuck: &Arc<AtomicBool>, after: u64) {
    let stuck = stuck.clone();
    tokio::spawn(async move {
        // Time is paused.
        tokio::time::sleep(Duration::from_millis(after)).await;
        stuck.store(false, Ordering::SeqCst);
    });
}

/// A function of a store that answers until it is stuck.
fn until_stuck<A: Send + 'static>(
    stuck: &Arc<AtomicBool>,
) -> impl Fn(A) -> futures::future::BoxFuture<'static, Result<(), ostler_contract::Thrown>> + Send + Sync + 'static
{
    let stuck = stuck.clone();
    move |_| {
        let stuck = stuck.load(Ordering::SeqCst);
        Box::pin(async move {
            match stuck {
                true => std::future::pending().await,
                false => Ok(()),
            }
        })
    }
}

/// The state of a channel, as a new client is given it.
async fn seen(host: &MemoryHost, name: &str, channel: &str) -> Value {
    let mut client = host.raw();
    client.initialize(name).await;
    client.request("subscribe", json!({ "channel": channel })).await.unwrap()["snapshot"]["state"].clone()
}

fn draft(text: &str) -> Value {
    json!({ "type": "chat/draftChanged", "draft": { "text": text, "origin": { "kind": "user" } } })
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_stores_a_turn_holds_up_only_what_is_told_of_it() {
    let (stage, stuck) = (Stage::default(), Arc::new(AtomicBool::new(false)));
    let store = SessionStore {
        set_turn: Some(Call::new(until_stuck(&stuck))),
        turns: Some(Call::now(|_| Ok(Vec::new()))),
        drop_turns: Some(Call::now(|_| Ok(()))),
        ..empty_sessions()
    };
    let host = MemoryHost::builder().plugin(stage.plugin(), json!({})).sessions(store).start().await;
    let (mut client, mut other) = (host.raw(), host.raw());
    client.initialize("c").await;
    other.initialize("o").await;
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    for client in [&mut client, &mut other] {
        client.request("subscribe", json!({ "channel": chat() })).await.unwrap();
    }
    stuck.store(true, Ordering::SeqCst);
    answers_again(&stuck, 20_100);
    let since = Instant::now();
    client.dispatch(&chat(), 1, begin("t")).await;
    stage.wait_told("begin").await;
    let part = json!({ "kind": "markdown", "id": "p", "content": "Early." });
    stage.emit(0, Emit::Chat, json!({ "type": "chat/responsePart", "turnId": "t", "part": part }));
    // The start is being stored.
    other.dispatch(&chat(), 1, draft("Mine.")).await;
    assert_eq!(echo_of(&mut other, 1).await["rejectionReason"], Value::Null);
    let state = seen(&host, "a", &chat()).await;
    assert_eq!(
        (&state["activeTurn"], &state["turns"], &state["draft"]["text"]),
        (&Value::Null, &json!([]), &json!("Mine."))
    );
    let session = seen(&host, "b", SESSION).await;
    assert_eq!(session["title"], "", "the turn will give it a title");
    client.request("fetchTurns", json!({ "channel": chat() })).await.unwrap();
    client.dispatch(&chat(), 2, cancel("t")).await;
    stage.wait_told("cancel").await;
    assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
    let told = client.ready_frames().await;
    assert!(
        told.iter().all(|frame| frame["params"]["action"]["type"] != "chat/turnStarted"),
        "nothing is told before it is stored: {told:?}"
    );
    client.actions_until("chat/turnStarted").await;
    assert!(since.elapsed() >= Duration::from_secs(10), "{:?}", since.elapsed());
    // The end is being stored.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let state = seen(&host, "d", &chat()).await;
    assert_eq!((&state["activeTurn"]["id"], &state["turns"]), (&json!("t"), &json!([])));
    other.dispatch(&chat(), 2, draft("Other.")).await;
    assert_eq!(echo_of(&mut other, 2).await["action"]["draft"]["text"], "Other.");
    assert!(since.elapsed() < Duration::from_secs(19), "{:?}", since.elapsed());
    client.actions_until("chat/turnCancelled").await;
    assert!(since.elapsed() >= Duration::from_secs(20), "{:?}", since.elapsed());
    assert!(since.elapsed() < Duration::from_secs(31), "{:?}", since.elapsed());
    let state = seen(&host, "e", &chat()).await;
    assert_eq!((&state["activeTurn"], &state["turns"][0]["id"]), (&Value::Null, &json!("t")));
    assert_eq!(seen(&host, "f", SESSION).await["title"], "Go.");
}

#[tokio::test(start_paused = true)]
async fn a_running_turn_streams_while_a_queued_message_and_a_title_are_stored() {
    let (stage, stuck) = (Stage::default(), Arc::new(AtomicBool::new(false)));
    let store = SessionStore { set_chats: Call::new(until_stuck(&stuck)), ..empty_sessions() };
    let host = MemoryHost::builder()
        .plugin(stage.plugin(), json!({}))
        .sessions(store)
        .options(|options| options.delta_window_ms = 0)
        .start()
        .await;
    let (mut client, mut other) = (host.raw(), host.raw());
    client.initialize("c").await;
    other.initialize("o").await;
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    for client in [&mut client, &mut other] {
        client.request("subscribe", json!({ "channel": chat() })).await.unwrap();
    }
    client.dispatch(&chat(), 1, begin("t")).await;
    let part = json!({ "kind": "markdown", "id": "p", "content": "" });
    stage.wait_told("begin").await;
    stage.emit(0, Emit::Chat, json!({ "type": "chat/responsePart", "turnId": "t", "part": part }));
    other.actions_until("chat/responsePart").await;
    stuck.store(true, Ordering::SeqCst);
    let since = Instant::now();
    let queued = json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": "q",
        "message": { "text": "Next.", "origin": { "kind": "user" } } });
    let rename = json!({ "type": "session/titleChanged", "title": "Hay" });
    for (seq, action) in [(2, queued), (3, rename)] {
        client.dispatch(&chat(), seq, action).await;
        for word in 0..300 {
            let delta =
                json!({ "type": "chat/delta", "turnId": "t", "partId": "p", "content": format!("{word} ") });
            stage.emit(0, Emit::Chat, delta);
            if word % 100 == 0 {
                other.actions_until("chat/delta").await;
            }
        }
        let state = seen(&host, &format!("s{seq}"), &chat()).await;
        assert!(state["activeTurn"]["responseParts"][0]["content"].as_str().unwrap().ends_with("299 "));
        match seq {
            2 => assert_eq!(state["queuedMessages"], Value::Null, "it is being stored"),
            _ => assert_eq!(state["title"], "Go.", "the other one is being stored"),
        }
        let passed = since.elapsed();
        assert!(passed < Duration::from_secs(if seq == 2 { 2 } else { 13 }), "{passed:?}");
        let answered = echo_of(&mut client, seq).await;
        assert_eq!(answered["rejectionReason"], "the session store did not store this; try again");
        assert!(
            since.elapsed() >= Duration::from_secs(if seq == 2 { 10 } else { 20 }),
            "{:?}",
            since.elapsed()
        );
    }
    let state = seen(&host, "last", &chat()).await;
    assert_eq!((&state["queuedMessages"][0]["id"], &state["title"]), (&json!("q"), &json!("Hay")));
}

#[tokio::test(start_paused = true)]
async fn a_usage_store_that_never_answers_holds_up_only_the_end_of_its_turn() {
    let stage = Stage::default();
    let usage = Plugin::new("@test/usage", |host, _| {
        Box::pin(async move {
            let usage = Usage {
                record: Call::new(|_| std::future::pending()),
                total: Call::new(|_| std::future::pending()),
                pools: Call::now(|()| Ok(Vec::new())),
                records: Call::now(|_| Ok(Vec::new())),
                close: None,
            };
            host.register_usage(usage, None)
        })
    });
    let host = MemoryHost::builder()
        .plugin(stage.plugin(), json!({}))
        .plugin(usage, json!({}))
        .options(|options| options.delta_window_ms = 0)
        .start()
        .await;
    let (mut client, mut other) = (host.raw(), host.raw());
    client.initialize("c").await;
    other.initialize("o").await;
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    for client in [&mut client, &mut other] {
        client.request("subscribe", json!({ "channel": chat() })).await.unwrap();
    }
    client.dispatch(&chat(), 1, begin("t")).await;
    stage.wait_told("begin").await;
    let usage = json!({ "inputTokens": 5, "outputTokens": 7, "model": "oats" });
    stage.emit(0, Emit::Chat, json!({ "type": "chat/usage", "turnId": "t", "usage": usage }));
    other.actions_until("chat/usage").await;
    let since = Instant::now();
    stage.emit(0, Emit::Chat, json!({ "type": "chat/turnComplete", "turnId": "t", "duration": 1 }));
    let totals = json!({ "jsonrpc": "2.0", "id": "slow", "method": "x-ostler/usage/totals",
        "params": { "pools": ["user:ada"] } });
    client.send(&totals.to_string()).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(seen(&host, "a", &chat()).await["activeTurn"]["id"], "t");
    other.dispatch(&chat(), 1, draft("Mine.")).await;
    assert_eq!(echo_of(&mut other, 1).await["rejectionReason"], Value::Null);
    client.request("listSessions", json!({ "channel": "ahp-root://" })).await.unwrap();
    assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
    other.actions_until("chat/turnComplete").await;
    assert!(since.elapsed() >= Duration::from_secs(10), "{:?}", since.elapsed());
    assert!(since.elapsed() < Duration::from_secs(12), "{:?}", since.elapsed());
}

/// A store that answers until it is stuck.
fn stuck_store(stuck: &Arc<AtomicBool>) -> SessionStore {
    SessionStore {
        set_turn: Some(Call::new(until_stuck(stuck))),
        turns: Some(Call::now(|_| Ok(Vec::new()))),
        drop_turns: Some(Call::new(until_stuck(stuck))),
        set_chats: Call::new(until_stuck(stuck)),
        set_config: Call::new(until_stuck(stuck)),
        set_annotations: Some(Call::new(until_stuck(stuck))),
        annotations: Some(Call::now(|_| Ok(Vec::new()))),
        ..empty_sessions()
    }
}

/// Each change of a session's chats, turns and annotations, and the action that tells of it.
fn changes() -> Vec<(&'static str, &'static str)> {
    vec![
        ("open", "session/chatAdded"),
        ("close", "session/chatRemoved"),
        ("move", "session/chatsReordered"),
        ("truncate", "chat/truncated"),
        ("narrow", "chat/workingDirectorySet"),
        ("annotate", "annotations/set"),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_stores_a_change_of_chats_holds_up_nothing_else() {
    for (change, told) in changes() {
        let stage = Stage::default().with_plain_chats().in_many_folders();
        let stuck = Arc::new(AtomicBool::new(false));
        let host = MemoryHost::builder()
            .plugin(stage.plugin(), json!({}))
            .sessions(stuck_store(&stuck))
            .start()
            .await;
        let (mut client, mut other) = (host.raw(), host.raw());
        client.initialize("c").await;
        other.initialize("o").await;
        let folders = json!(["file:///yard", "file:///barn"]);
        let create = json!({ "channel": SESSION, "workingDirectories": folders });
        client.request("createSession", create).await.unwrap();
        let notes = format!("{SESSION}/annotations");
        client.request("subscribe", json!({ "channel": chat() })).await.unwrap();
        other.request("subscribe", json!({ "channel": chat() })).await.unwrap();
        client.dispatch(&chat(), 1, begin("t")).await;
        other.actions_until("chat/turnStarted").await;
        client.request("createChat", json!({ "channel": SESSION, "chat": SECOND })).await.unwrap();
        for channel in [SESSION, SECOND, &notes] {
            client.request("subscribe", json!({ "channel": channel })).await.unwrap();
        }
        client.dispatch(SECOND, 1, begin("s")).await;
        client.actions_until("chat/turnStarted").await;
        client.dispatch(SECOND, 2, cancel("s")).await;
        client.actions_until("chat/turnCancelled").await;
        stage.wait_told("cancel").await;
        client.ready_frames().await;
        stuck.store(true, Ordering::SeqCst);
        answers_again(&stuck, 10_100);
        let since = Instant::now();
        let request = |method: &str, params: Value| {
            json!({ "jsonrpc": "2.0", "id": 90, "method": method, "params": params }).to_string()
        };
        match change {
            "open" => {
                client
                    .send(&request("createChat", json!({ "channel": SESSION, "chat": "ahp-chat:/3" })))
                    .await;
            }
            "close" => client.send(&request("disposeChat", json!({ "channel": SECOND }))).await,
            "move" => {
                let first =
                    json!({ "channel": SECOND, "destination": { "kind": "session", "session": SESSION } });
                client.send(&request("moveChat", first)).await;
            }
            "truncate" => client.dispatch(SECOND, 3, json!({ "type": told })).await,
            "narrow" => {
                client.dispatch(SECOND, 3, json!({ "type": told, "directory": "file:///barn" })).await;
            }
            _ => {
                let entries = json!([{ "id": "1", "text": "Why?" }]);
                let annotation = json!({ "id": "a", "origin": { "session": SESSION }, "resource": "file:///yard/a",
                    "resolved": false, "entries": entries });
                client.dispatch(&notes, 3, json!({ "type": told, "annotation": annotation })).await;
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        other.dispatch(&chat(), 1, draft("Mine.")).await;
        assert_eq!(echo_of(&mut other, 1).await["rejectionReason"], Value::Null, "{change}");
        seen(&host, "a", &chat()).await;
        other.dispatch(&chat(), 2, cancel("t")).await;
        stage.wait_told("cancel").await;
        assert!(since.elapsed() < Duration::from_secs(3), "{change}: {:?}", since.elapsed());
        let early = client.ready_frames().await;
        assert!(
            early.iter().all(|frame| frame["params"]["action"]["type"] != told),
            "{change}: nothing is told before it is stored: {early:?}"
        );
        match change {
            "open" => while client.next_frame().await.unwrap()["id"] != 90 {},
            _ => drop(client.actions_until(told).await),
        }
        assert!(since.elapsed() > Duration::from_secs(9), "{change}: {:?}", since.elapsed());
    }
}

/// A store from which annotations and attachments are never read.
fn unread_store() -> SessionStore {
    SessionStore {
        annotations: Some(Call::new(|_| std::future::pending())),
        set_annotations: Some(Call::now(|_| Ok(()))),
        attachment: Some(Call::new(|_| std::future::pending())),
        set_attachment: Some(Call::now(|_| Ok(()))),
        turns: Some(Call::now(|_| Ok(Vec::new()))),
        set_turn: Some(Call::now(|_| Ok(()))),
        drop_turns: Some(Call::now(|_| Ok(()))),
        ..empty_sessions()
    }
}

#[tokio::test(start_paused = true)]
async fn annotations_that_are_never_read_hold_up_only_messages_about_them() {
    let stage = Stage::default();
    let host = MemoryHost::builder().plugin(stage.plugin(), json!({})).sessions(unread_store()).start().await;
    let (mut client, mut other) = (host.raw(), host.raw());
    client.initialize("c").await;
    other.initialize("o").await;
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    client.request("subscribe", json!({ "channel": chat() })).await.unwrap();
    other.request("subscribe", json!({ "channel": chat() })).await.unwrap();
    client.dispatch(&chat(), 1, begin("t")).await;
    other.actions_until("chat/turnStarted").await;
    let since = Instant::now();
    let notes = format!("{SESSION}/annotations");
    let subscribe =
        json!({ "jsonrpc": "2.0", "id": 90, "method": "subscribe", "params": { "channel": notes } });
    client.send(&subscribe.to_string()).await;
    let entries = json!([{ "id": "1", "text": "Why?" }]);
    let annotation = json!({ "id": "a", "origin": { "session": SESSION }, "resource": "file:///yard/a",
        "resolved": false, "entries": entries });
    client.dispatch(&notes, 2, json!({ "type": "annotations/set", "annotation": annotation })).await;
    // The same client, another one, and a snapshot of the session.
    client.dispatch(&chat(), 3, draft("Mine.")).await;
    assert_eq!(echo_of(&mut client, 3).await["rejectionReason"], Value::Null);
    seen(&host, "a", SESSION).await;
    other.dispatch(&chat(), 1, cancel("t")).await;
    other.actions_until("chat/turnCancelled").await;
    stage.wait_told("cancel").await;
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    let mut waits: Vec<Value> = Vec::new();
    while waits.len() < 2 {
        let frame = client.next_frame().await.unwrap();
        if frame["id"] == 90 || frame["params"]["origin"]["clientSeq"] == 2 {
            waits.push(frame);
        }
    }
    assert!(since.elapsed() < Duration::from_secs(12), "{:?}", since.elapsed());
    let why = "the annotations could not be read: it did not answer within 10 seconds";
    assert!(waits[0]["error"]["message"].as_str().unwrap_or_default().contains(why), "{waits:#?}");
    assert!(waits[1]["params"]["rejectionReason"].as_str().unwrap_or_default().contains(why), "{waits:#?}");
}

#[tokio::test(start_paused = true)]
async fn attachments_that_are_never_read_hold_up_only_the_move_of_their_chat() {
    let stage = Stage::default().with_chats();
    let host = MemoryHost::builder().plugin(stage.plugin(), json!({})).sessions(unread_store()).start().await;
    let (mut client, mut other) = (host.raw(), host.raw());
    client.initialize("c").await;
    other.initialize("o").await;
    for session in [SESSION, "stage:/9"] {
        client.request("createSession", json!({ "channel": session })).await.unwrap();
    }
    let opening = json!({ "text": "Look.", "origin": { "kind": "user" }, "attachments": [{ "type": "resource",
        "label": "a", "uri": ostler_protocol::uri::attachment("0123456789abcdef") }] });
    let chat = json!({ "channel": SESSION, "chat": SECOND, "initialMessage": opening });
    client.request("createChat", chat).await.unwrap();
    client.request("subscribe", json!({ "channel": SECOND })).await.unwrap();
    stage.wait_told("begin").await;
    let running = seen(&host, "a", SECOND).await["activeTurn"]["id"].clone();
    stage.emit(2, Emit::Chat, json!({ "type": "chat/turnComplete", "turnId": running, "duration": 1 }));
    client.actions_until("chat/turnComplete").await;
    let since = Instant::now();
    let destination = json!({ "kind": "session", "session": "stage:/9" });
    let moves = json!({ "jsonrpc": "2.0", "id": 90, "method": "moveChat",
        "params": { "channel": SECOND, "destination": destination } });
    client.send(&moves.to_string()).await;
    let taker = ostler_protocol::uri::default_chat("stage:/9");
    other.request("subscribe", json!({ "channel": taker })).await.unwrap();
    other.dispatch(&taker, 1, begin("u")).await;
    other.actions_until("chat/turnStarted").await;
    other.dispatch(&taker, 2, cancel("u")).await;
    other.actions_until("chat/turnCancelled").await;
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    tokio::time::sleep(Duration::from_secs(10)).await;
    let answer = loop {
        let frame = client.next_frame().await.unwrap();
        if frame["id"] == 90 {
            break frame;
        }
    };
    assert!(answer["error"].is_object(), "{answer}");
    assert!(since.elapsed() >= Duration::from_secs(10), "{:?}", since.elapsed());
    seen(&host, "b", SECOND).await;
}

/// Each call of the backend has an outcome of its own, also if a client sends a message again with the same id.
#[tokio::test(start_paused = true)]
async fn the_outcome_of_one_steering_message_is_not_that_of_the_next_one() {
    let stage = Stage::default().never_steering();
    let (_host, mut client) = running(&stage).await;
    let steering = |text: &str| {
        json!({ "type": "chat/pendingMessageSet", "kind": "steering", "id": "s",
            "message": { "text": text, "origin": { "kind": "user" } } })
    };
    client.dispatch(&chat(), 2, steering("Left.")).await;
    let removed = json!({ "type": "chat/pendingMessageRemoved", "kind": "steering", "id": "s" });
    client.dispatch(&chat(), 3, removed).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    client.dispatch(&chat(), 4, steering("Later.")).await;
    echo_of(&mut client, 4).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let seen = client.ready_frames().await;
    let queued = seen.iter().filter(|frame| frame["params"]["action"]["kind"] == "queued").count();
    assert_eq!((told(&stage, "steer"), queued), (2, 0), "the agent has taken the second one: {seen:#?}");
}

#[tokio::test]
async fn a_turn_that_is_cancelled_while_its_backend_starts_never_reaches_it() {
    let (dir, starts, told) = (tempfile::tempdir().unwrap(), Arc::new(Semaphore::new(2)), Told::default());
    let agent = {
        let (starts, told) = (starts.clone(), told.clone());
        Agent {
            provider: "stage".into(),
            display_name: "Stage".into(),
            schema: Call::now(|()| Ok(json!({ "properties": {} }))),
            defaults: Call::now(|()| Ok(JsonObject::new())),
            create: Call::new(move |_| {
                let (starts, told) = (starts.clone(), told.clone());
                async move {
                    starts.acquire().await.unwrap().forget();
                    let (begun, cancelled) = (told.clone(), told);
                    Ok(AgentSession {
                        begin: Call::now(move |(turn, ..): (String, String, _, _, _)| {
                            begun.lock().push(format!("begin {turn}"));
                            Ok(())
                        }),
                        cancel: Call::now(move |(turn,): (String,)| {
                            cancelled.lock().push(format!("cancel {turn}"));
                            Ok(())
                        }),
                        close: Call::now(|_| Ok(())),
                        ..AgentSession::default()
                    })
                }
            }),
            ..Agent::default()
        }
    };
    let plugin = Plugin::new("@test/slow", move |host, _| {
        let agent = agent.clone();
        Box::pin(async move { host.register_agent(agent) })
    });
    let db = StateDb::open(dir.path()).unwrap();
    let sessions =
        Arc::new(SqliteSessions::new(db, ostler_ports::Report::new(|line| panic!("{line}")))).into_point();
    let host = MemoryHost::builder()
        .plugin(plugin, json!({}))
        .sessions(sessions)
        .options(|options| options.limits.awake_sessions = 1)
        .start()
        .await;
    let mut client = host.raw();
    client.initialize("c").await;
    // The second one puts the first one to sleep.
    for session in [SESSION, "stage:/2"] {
        client.request("createSession", json!({ "channel": session })).await.unwrap();
    }
    client.request("subscribe", json!({ "channel": chat() })).await.unwrap();
    client.dispatch(&chat(), 1, begin("t1")).await;
    client.actions_until("chat/turnStarted").await;
    client.dispatch(&chat(), 2, cancel("t1")).await;
    client.actions_until("chat/turnCancelled").await;
    client.dispatch(&chat(), 3, begin("t2")).await;
    client.actions_until("chat/turnStarted").await;
    assert!(told.lock().is_empty());
    starts.add_permits(1);
    while told.lock().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(*told.lock(), ["begin t2"]);
}
