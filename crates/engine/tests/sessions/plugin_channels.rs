//! What plugin channels hold to where time and people come in: a plugin that hangs costs what it was asked for, and
//! whoever may no longer watch does not.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ostler_contract::points::{Channel, ChannelHandle, Method, PublishOptions, Reader};
use ostler_contract::{Call, JsonObject, Plugin, Thrown, Value, json};
use ostler_engine::users::{UsersFile, hash_of};
use ostler_engine::{People, Principal};
use ostler_testkit::{MemoryHost, RawClient, SIGN_IN};
use tokio::time::Instant;

/// What the plugin did, and what it is to do.
#[derive(Clone, Default)]
struct Board {
    handle: Arc<Mutex<Option<ChannelHandle>>>,
    told: Arc<Mutex<Vec<String>>>,
    /// Whether `authorize` lets in.
    lets_in: Arc<AtomicBool>,
}

impl Board {
    fn plugin(&self) -> Plugin {
        let board = self.clone();
        Plugin::new("@test/board", move |host, _| {
            let board = board.clone();
            Box::pin(async move {
                let (snapshots, lets_in, left) =
                    (board.told.clone(), board.lets_in.clone(), board.told.clone());
                let channel = Channel {
                    grant: "x-board:get".into(),
                    snapshot: Call::new(move |(uri, _, client): (String, Option<Reader>, String)| {
                        snapshots.lock().unwrap().push(format!("snapshot {uri} {client}"));
                        async move {
                            match uri.as_str() {
                                "x-board://never" => std::future::pending().await,
                                _ => Ok(json!({})),
                            }
                        }
                    }),
                    authorize: Some(Call::new(move |(uri, _): (String, Reader)| {
                        let lets_in = lets_in.load(Ordering::Relaxed);
                        async move {
                            match uri.as_str() {
                                "x-board://never" => std::future::pending().await,
                                _ => Ok(lets_in),
                            }
                        }
                    })),
                    left: Some(Call::now(move |(client,)| {
                        left.lock().unwrap().push(format!("left {client}"));
                        Ok(())
                    })),
                    ..Channel::default()
                };
                *board.handle.lock().unwrap() = Some(host.register_channel("x-board".into(), channel)?);
                Ok(())
            })
        })
    }

    fn publish(&self, uri: &str, text: &str, options: PublishOptions) -> Result<(), Thrown> {
        let handle = self.handle.lock().unwrap().clone().unwrap();
        let action = json!({ "type": "x-board/note", "text": text });
        handle.publish.call((uri.to_owned(), action.as_object().cloned().unwrap(), Some(options)))
    }

    async fn until_told(&self, what: &str) {
        for _ in 0..50_000 {
            if self.told.lock().unwrap().iter().any(|told| told == what) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("{what} was not told: {:?}", self.told.lock().unwrap());
    }
}

type Seen = fn(reader: Option<Reader>, client: String) -> bool;

fn seen_by(visible: Call<Seen>) -> PublishOptions {
    PublishOptions { visible: Some(visible), to: None }
}

async fn host(board: &Board) -> MemoryHost {
    MemoryHost::builder().plugin(board.plugin(), json!({})).start().await
}

async fn guarded(board: &Board, roles: &[&str]) -> MemoryHost {
    let host = MemoryHost::builder()
        .plugin(board.plugin(), json!({}))
        .people(People::new(SIGN_IN, "inn"))
        .start()
        .await;
    know(&host, roles);
    host
}

/// Lets the host know ada, with these grants.
fn know(host: &MemoryHost, grants: &[&str]) {
    let file = json!({ "roles": { "r": grants }, "users": [{ "id": "ada", "roles": ["r"], "token": hash_of("a") }] });
    host.host.access.gate.people().unwrap().set(UsersFile::parse(&file.to_string()).unwrap()).unwrap();
    host.host.review_authority();
}

fn ada(host: &MemoryHost) -> Principal {
    Principal::Person(host.host.access.gate.people().unwrap().now().person("ada").unwrap())
}

async fn watching(host: &MemoryHost, name: &str, uri: &str) -> RawClient {
    let mut client = host.raw();
    client.initialize(name).await;
    client.request("subscribe", json!({ "channel": uri })).await.unwrap();
    client
}

async fn text(client: &mut RawClient) -> String {
    client.next_action().await["action"]["text"].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_visible_that_hangs_costs_that_subscriber_and_no_other_uri() {
    let board = Board::default();
    let host = host(&board).await;
    let mut ada = watching(&host, "ada", "x-board://a").await;
    let mut bob = watching(&host, "bob", "x-board://a").await;
    let mut elsewhere = watching(&host, "elsewhere", "x-board://b").await;
    let hangs_for_bob = Call::new(|(_, client): (Option<Reader>, String)| async move {
        match client.as_str() {
            "bob" => std::future::pending().await,
            _ => Ok(true),
        }
    });
    board.publish("x-board://a", "first", seen_by(hangs_for_bob)).unwrap();
    board.publish("x-board://a", "second", PublishOptions::default()).unwrap();
    board.publish("x-board://b", "at once", PublishOptions::default()).unwrap();
    let begun = Instant::now();
    assert_eq!(text(&mut elsewhere).await, "at once");
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!((text(&mut ada).await.as_str(), text(&mut ada).await.as_str()), ("first", "second"));
    assert_eq!(text(&mut bob).await, "second", "what follows comes to it");
    host.log.wait_for("visible for 1 of 2 on x-board://a failed: it did not answer within 5 seconds").await;
}

#[tokio::test]
async fn whoever_comes_while_others_are_asked_about_is_asked_about_too() {
    let board = Board::default();
    let host = host(&board).await;
    let mut ada = watching(&host, "ada", "x-board://a").await;
    let (go, wait) = tokio::sync::watch::channel(false);
    let asked = Arc::new(Mutex::new(Vec::new()));
    let asks = asked.clone();
    let visible = Call::new(move |(_, client): (Option<Reader>, String)| {
        asks.lock().unwrap().push(client);
        let mut wait = wait.clone();
        async move {
            wait.wait_for(|go| *go).await.unwrap();
            Ok(true)
        }
    });
    board.publish("x-board://a", "one", seen_by(visible)).unwrap();
    let mut late = watching(&host, "late", "x-board://a").await;
    go.send(true).unwrap();
    assert_eq!(text(&mut late).await, "one");
    assert_eq!(text(&mut ada).await, "one");
    assert_eq!(*asked.lock().unwrap(), ["ada", "late"]);
}

#[tokio::test]
async fn a_publish_asks_about_everybody_in_one_crossing() {
    /// A function of another side's, that counts how often it is crossed to.
    struct Foreign(Arc<AtomicUsize>);

    impl ostler_contract::live::Callable for Foreign {
        fn shape(&self) -> &'static ostler_contract::shape::FunctionShape {
            match <Call<Seen> as ostler_contract::Cross>::shape() {
                ostler_contract::shape::Shape::Function(shape) => shape(),
                _ => unreachable!(),
            }
        }

        fn call(&self, _: Vec<ostler_contract::Live>) -> ostler_contract::Pending<ostler_contract::Live> {
            panic!("asked about one alone")
        }

        fn call_now(&self, _: Vec<ostler_contract::Live>) -> Result<ostler_contract::Live, Thrown> {
            panic!("asked at once")
        }

        fn call_each(
            &self,
            rows: Vec<Vec<ostler_contract::Live>>,
        ) -> futures::future::BoxFuture<'static, Vec<Result<ostler_contract::Live, Thrown>>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            let answers = rows.iter().map(|_| Ok(ostler_contract::Live::Data(true.into()))).collect();
            Box::pin(std::future::ready(answers))
        }
    }

    let board = Board::default();
    let host = host(&board).await;
    let mut watchers = Vec::new();
    for at in 0..100 {
        watchers.push(watching(&host, &format!("c{at}"), "x-board://a").await);
    }
    let crossed = Arc::new(AtomicUsize::new(0));
    let foreign = ostler_contract::Function::new(Foreign(crossed.clone()));
    let visible =
        <Call<Seen> as ostler_contract::Cross>::from_live(ostler_contract::Live::Function(foreign)).unwrap();
    board.publish("x-board://a", "one", seen_by(visible)).unwrap();
    for watcher in &mut watchers {
        assert_eq!(text(watcher).await, "one");
    }
    assert_eq!(crossed.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_lane_takes_only_so_much() {
    let board = Board::default();
    let host = host(&board).await;
    let _ada = watching(&host, "ada", "x-board://a").await;
    let never = Call::new(|_: (Option<Reader>, String)| std::future::pending());
    board.publish("x-board://a", "first", seen_by(never)).unwrap();
    for _ in 0..10_000 {
        board.publish("x-board://a", "more", PublishOptions::default()).unwrap();
    }
    let refused = board.publish("x-board://a", "too much", PublishOptions::default()).unwrap_err();
    assert_eq!(
        refused.message,
        "plugin board: publish is rejected: 10000 actions of x-board://a wait for their visible"
    );
    board.publish("x-board://b", "elsewhere", PublishOptions::default()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_never_comes_fails_that_subscribe_alone() {
    let board = Board::default();
    let host = host(&board).await;
    let mut client = host.raw();
    // A client that asks for it as it comes in is not held for that long.
    let begun = Instant::now();
    let hello = json!({ "clientId": "c", "protocolVersions": ["1.0.0"],
        "initialSubscriptions": ["x-board://never", "x-board://a"] });
    let introduced = client.request("initialize", hello).await.unwrap();
    let resources: Vec<&Value> =
        introduced["snapshots"].as_array().unwrap().iter().map(|seen| &seen["resource"]).collect();
    assert_eq!(resources, ["x-board://a"]);
    assert_eq!(begun.elapsed(), Duration::from_secs(5));
    host.log.wait_for("the snapshot of x-board://never failed: it did not answer within 10 seconds").await;
    let error = client.request("subscribe", json!({ "channel": "x-board://never" })).await.unwrap_err();
    assert_eq!(error["code"], -32603);
    board.publish("x-board://never", "unheard", PublishOptions::default()).unwrap();
    board.publish("x-board://a", "heard", PublishOptions::default()).unwrap();
    assert_eq!(text(&mut client).await, "heard");
    // The plugin may have put the client down before it hung, so it is told of its end.
    client.connection.close();
    board.until_told("left c").await;
}

#[tokio::test]
async fn what_a_client_makes_up_has_an_end() {
    let board = Board::default();
    let host = host(&board).await;
    let mut client = watching(&host, "c", "x-board://0").await;
    let long = format!("x-board://{}", "a".repeat(2048));
    let refused = client.request("subscribe", json!({ "channel": long })).await.unwrap_err();
    assert_eq!(refused["message"], "a channel's URI has at most 2048 bytes");
    for at in 1..4096 {
        client.request("subscribe", json!({ "channel": format!("x-board://{at}") })).await.unwrap();
    }
    let refused = client.request("subscribe", json!({ "channel": "x-board://more" })).await.unwrap_err();
    assert_eq!(refused["message"], "this connection watches 4096 channels; unsubscribe from some first");
    client.notify("unsubscribe", json!({ "channel": "x-board://7" })).await;
    client.request("subscribe", json!({ "channel": "x-board://more" })).await.unwrap();
}

#[tokio::test]
async fn a_replay_that_asks_too_much_begins_anew() {
    let board = Board::default();
    let host = host(&board).await;
    let mut client = watching(&host, "c", "x-board://a").await;
    let seq = client.request("subscribe", json!({ "channel": "x-board://a" })).await.unwrap();
    client.connection.close();
    let asked = Arc::new(AtomicUsize::new(0));
    for _ in 0..=1000 {
        let asks = asked.clone();
        let visible = Call::now(move |_: (Option<Reader>, String)| {
            asks.fetch_add(1, Ordering::Relaxed);
            Ok(true)
        });
        board.publish("x-board://a", "one of many", seen_by(visible)).unwrap();
    }
    board.publish("x-board://b", "the end", PublishOptions::default()).unwrap();
    let mut back = host.raw();
    // All of it is out once the lane is empty.
    let end = std::time::Instant::now() + Duration::from_secs(30);
    let from = seq["snapshot"]["fromSeq"].as_u64().unwrap();
    while host.host.core.fanout.seq() < from + 1002 {
        assert!(std::time::Instant::now() < end);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let reconnect = json!({ "clientId": "c", "lastSeenServerSeq": from, "subscriptions": ["x-board://a"] });
    let back = back.request("reconnect", reconnect).await.unwrap();
    assert_eq!((&back["type"], back["snapshots"].as_array().unwrap().len()), (&json!("snapshot"), 1));
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_command_that_never_answers_is_an_error_in_the_end() {
    let plugin = Plugin::new("@test/slow", |host, _| {
        Box::pin(async move {
            let handle = Call::new(|_: (JsonObject, _, _, _)| std::future::pending());
            host.register_method(
                "x-slow/call".into(),
                Method { grant: "x-slow:call".into(), handle, ..Method::default() },
            )
        })
    });
    let host = MemoryHost::builder().plugin(plugin, json!({})).start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    let call = json!({ "jsonrpc": "2.0", "id": 7, "method": "x-slow/call" });
    client.send(&call.to_string()).await;
    // Longer than a client of the tests waits for a frame.
    tokio::time::sleep(Duration::from_secs(599)).await;
    assert!(client.ready_frames().await.is_empty());
    tokio::time::sleep(Duration::from_secs(2)).await;
    let answered = client.next_frame().await.unwrap();
    assert_eq!(answered["error"]["message"], "it did not answer within 600 seconds");
    assert!(
        host.log.has("plugin slow: its command x-slow/call failed: it did not answer within 600 seconds")
    );
}

#[tokio::test]
async fn a_client_that_is_gone_before_its_snapshot_has_left() {
    let board = Board::default();
    let host = host(&board).await;
    let mut client = host.raw();
    client.initialize("c").await;
    let subscribe = json!({ "jsonrpc": "2.0", "id": 9, "method": "subscribe", "params": { "channel": "x-board://never" } });
    client.send(&subscribe.to_string()).await;
    board.until_told("snapshot x-board://never c").await;
    client.notify("unsubscribe", json!({ "channel": "x-board://never" })).await;
    board.until_told("left c").await;
    assert!(
        board
            .handle
            .lock()
            .unwrap()
            .clone()
            .unwrap()
            .subscribers
            .call(("x-board://never".into(),))
            .unwrap()
            .is_empty()
    );
}

#[tokio::test(start_paused = true)]
async fn an_authorize_that_never_answers_is_a_refusal() {
    let board = Board::default();
    let host = guarded(&board, &[]).await;
    let mut client = host.raw_as(ada(&host));
    client.initialize("c").await;
    let refused = client.request("subscribe", json!({ "channel": "x-board://never" })).await.unwrap_err();
    assert_eq!(refused["message"], "ada may not x-board:get here");
    host.log.wait_for("the authorize of x-board://never failed: it did not answer within 10 seconds").await;
}

#[tokio::test]
async fn whoever_loses_the_grant_watches_no_longer() {
    let board = Board::default();
    let host = guarded(&board, &["x-board:get"]).await;
    let mut client = host.raw_as(ada(&host));
    client.initialize("c").await;
    client.request("subscribe", json!({ "channel": "x-board://a" })).await.unwrap();
    // Losing the grant, `authorize` is asked.
    board.lets_in.store(true, Ordering::Relaxed);
    know(&host, &[]);
    board.publish("x-board://a", "still", PublishOptions::default()).unwrap();
    assert_eq!(text(&mut client).await, "still");
    board.lets_in.store(false, Ordering::Relaxed);
    know(&host, &["session:read"]);
    board.until_told("left c").await;
    board.publish("x-board://a", "unheard", PublishOptions::default()).unwrap();
    assert!(client.ready_frames().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_replay_does_not_wait_for_a_visible_that_hangs() {
    let board = Board::default();
    let host = host(&board).await;
    let mut client = host.raw();
    client.initialize("c").await;
    let from = client.request("subscribe", json!({ "channel": "x-board://a" })).await.unwrap();
    client.connection.close();
    let never = Call::new(|_: (Option<Reader>, String)| std::future::pending());
    board.publish("x-board://a", "never seen", seen_by(never)).unwrap();
    board.publish("x-board://a", "seen", PublishOptions::default()).unwrap();
    tokio::task::yield_now().await;
    let mut back = host.raw();
    let reconnect = json!({ "clientId": "c", "lastSeenServerSeq": from["snapshot"]["fromSeq"], "subscriptions": ["x-board://a"] });
    let replay = back.request("reconnect", reconnect).await.unwrap();
    let actions = replay["actions"].as_array().unwrap();
    assert_eq!(actions.len(), 1, "{replay}");
    assert_eq!(actions[0]["action"]["text"], "seen");
}

#[tokio::test]
async fn a_row_without_a_grant_lets_nobody_in() {
    let without = |name: &'static str| {
        Plugin::new("@test/open", move |host, _| {
            Box::pin(async move {
                match name {
                    "channel" => host
                        .register_channel(
                            "x-open".into(),
                            Channel { snapshot: Call::now(|_| Ok(Value::Null)), ..Channel::default() },
                        )
                        .map(drop),
                    _ => host.register_method(
                        "x-open/call".into(),
                        Method {
                            handle: Call::now(|_: (JsonObject, _, _, _)| Ok(Value::Null)),
                            ..Method::default()
                        },
                    ),
                }
            })
        })
    };
    for name in ["channel", "method"] {
        let host = MemoryHost::builder().plugin(without(name), json!({})).may_fail().start().await;
        assert!(
            host.problems[0].contains(&format!("needs {name}.grant to be a non-empty string")),
            "{:?}",
            host.problems
        );
        let mut client = host.raw();
        client.initialize("c").await;
        client.request("subscribe", json!({ "channel": "x-open://a" })).await.unwrap_err();
        client.request("x-open/call", json!({})).await.unwrap_err();
    }
}

/// One thing that happens to a channel and its clients.
#[derive(Debug, Clone)]
enum Step {
    /// An action, for the clients in the mask; `None` asks nobody. How often its `visible` lets others go first.
    Publish(Option<u8>, u8),
    /// A client's connection is lost, after it read what was there.
    Lose(usize),
    /// It comes back.
    Back(usize),
    /// Others go first.
    Wait,
}

fn steps() -> impl proptest::strategy::Strategy<Value = Vec<Step>> {
    use proptest::prelude::*;
    let step = prop_oneof![
        4 => (proptest::option::of(0u8..8), 0u8..4).prop_map(|(mask, yields)| Step::Publish(mask, yields)),
        2 => (0usize..3).prop_map(Step::Lose),
        2 => (0usize..3).prop_map(Step::Back),
        1 => Just(Step::Wait),
    ];
    proptest::collection::vec(step, 0..40)
}

/// A client that reads, goes and comes back.
struct Reading {
    name: String,
    client: Option<RawClient>,
    seen: Vec<String>,
    last: u64,
}

impl Reading {
    fn take(&mut self, envelope: &Value) {
        let seq = envelope["serverSeq"].as_u64().unwrap();
        assert!(seq > self.last, "{} saw {seq} after {}", self.name, self.last);
        self.last = seq;
        self.seen.push(envelope["action"]["text"].as_str().unwrap().to_owned());
    }

    async fn read(&mut self) {
        let Some(client) = &mut self.client else { return };
        for frame in client.ready_frames().await {
            self.take(&frame["params"]);
        }
    }

    async fn back(&mut self, host: &MemoryHost) {
        if self.client.is_some() {
            return;
        }
        let mut client = host.raw();
        let params = json!({ "clientId": self.name, "lastSeenServerSeq": self.last, "subscriptions": ["x-board://a"] });
        let replay = client.request("reconnect", params).await.unwrap();
        assert_eq!(replay["type"], "replay");
        for envelope in replay["actions"].as_array().unwrap() {
            self.take(envelope);
        }
        self.client = Some(client);
    }
}

async fn play(steps: Vec<Step>) {
    let board = Board::default();
    let host = host(&board).await;
    let mut readers = Vec::new();
    for at in 0..3 {
        let name = format!("c{at}");
        let mut client = host.raw();
        client.initialize(&name).await;
        let seen = client.request("subscribe", json!({ "channel": "x-board://a" })).await.unwrap();
        let last = seen["snapshot"]["fromSeq"].as_u64().unwrap();
        readers.push(Reading { name, client: Some(client), seen: Vec::new(), last });
    }
    let from = host.host.core.fanout.seq();
    let mut published = Vec::new();
    for step in steps {
        match step {
            Step::Publish(mask, yields) => {
                let options = match mask {
                    None => PublishOptions::default(),
                    Some(mask) => {
                        seen_by(Call::new(move |(_, client): (Option<Reader>, String)| async move {
                            for _ in 0..yields {
                                tokio::task::yield_now().await;
                            }
                            let at: u8 = client[1..].parse().unwrap();
                            Ok(mask & (1 << at) != 0)
                        }))
                    }
                };
                let text = published.len().to_string();
                board.publish("x-board://a", &text, options).unwrap();
                published.push(mask.unwrap_or(7));
            }
            Step::Lose(at) => {
                readers[at].read().await;
                if let Some(client) = readers[at].client.take() {
                    client.connection.close();
                }
            }
            Step::Back(at) => readers[at].back(&host).await,
            Step::Wait => tokio::task::yield_now().await,
        }
    }
    while host.host.core.fanout.seq() < from + published.len() as u64 {
        tokio::task::yield_now().await;
    }
    for (at, reader) in readers.iter_mut().enumerate() {
        reader.back(&host).await;
        reader.read().await;
        let sent = published.iter().enumerate().filter(|(_, mask)| *mask & (1 << at) != 0);
        let sent: Vec<String> = sent.map(|(text, _)| text.to_string()).collect();
        assert_eq!(reader.seen, sent, "{}", reader.name);
    }
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 200, ..Default::default() })]

    #[test]
    fn whoever_goes_and_comes_back_misses_nothing_it_may_see(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(play(steps));
    }
}
