//! Turns of bots whose store fails, is slow, or loses its answers: a call is accepted only if its turn is stored, or if the host
//! says nothing of it for ten seconds, and then the plugin sees it through.

use std::sync::Arc;
use std::time::Duration;

use futures::executor::block_on;
use ostler_contract::call::Signature;
use ostler_contract::points::{RecordStore, StoredCollection};
use ostler_contract::{Call, Thrown, Value, json};
use ostler_ports::{SqliteSessions, StateDb, memory_records};
use ostler_testkit::wrapped_store::{WrapCall, wrapped_store};
use ostler_testkit::{Builder, MemoryCluster, MemoryHost};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::time::Instant;

use crate::echo::vault;
use crate::support::{SECRET, World, read, request, until};

pub const BACK: &str = "https://hooks.example/in/a";

/// What happens to the writes of a session store.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// They fail after this time.
    Fails(Duration),
    /// They are done, and an error is reported after this time.
    LosesAnswers(Duration),
    /// They are done after this time.
    IsLate(Duration),
}

/// The fault of a store. Tests pause time.
#[derive(Clone, Default)]
pub struct Faults {
    now: Arc<Mutex<Option<Fault>>>,
    /// Whether the calls of the store block by themselves.
    blocks: bool,
}

impl Faults {
    pub fn set(&self, fault: impl Into<Option<Fault>>) {
        *self.now.lock() = fault.into();
    }
}

impl WrapCall for Faults {
    fn wrap<S: Signature>(&self, call: &Call<S>, writes: bool) -> Call<S> {
        let (call, faults) = (call.clone(), self.clone());
        Call::new(move |arguments| {
            let (fault, blocks) = (faults.now.lock().filter(|_| writes), faults.blocks);
            let call = call.clone();
            async move {
                match fault {
                    Some(Fault::Fails(after)) => {
                        // Time is paused.
                        tokio::time::sleep(after).await;
                        return Err(Thrown::new("canceling statement due to statement timeout"));
                    }
                    // Time is paused.
                    Some(Fault::IsLate(after)) => tokio::time::sleep(after).await,
                    Some(Fault::LosesAnswers(_)) | None => {}
                }
                let answer = call.unbounded(arguments);
                let answer = match blocks {
                    true => answer.await,
                    // The paused time stands still while the thread of the store works.
                    false => tokio::task::spawn_blocking(move || block_on(answer)).await.unwrap(),
                };
                match fault {
                    Some(Fault::LosesAnswers(after)) => {
                        // Time is paused.
                        tokio::time::sleep(after).await;
                        Err(Thrown::new("the answer was lost"))
                    }
                    _ => answer,
                }
            }
        })
    }
}

/// What outlives a host.
#[derive(Clone)]
pub struct Stores {
    dir: Arc<TempDir>,
    db: Arc<StateDb>,
    pub records: RecordStore,
    pub faults: Faults,
    /// The memory of the messages of unconfirmed turns.
    pub memory: usize,
}

impl Stores {
    pub async fn new() -> Self {
        let (dir, records) = (Arc::new(tempfile::tempdir().unwrap()), memory_records());
        let endpoint = |id: &str, fields: Value| {
            let mut record = json!({ "id": id, "bot": "bot://echo", "secret": "host:k" });
            record.as_object_mut().unwrap().extend(fields.as_object().cloned().unwrap());
            ("webhooks", record)
        };
        for (collection, record) in [
            ("bots", json!({ "id": "echo", "name": "Echo", "harness": "echo", "answers": true })),
            endpoint("none", json!({ "reply": "none" })),
            endpoint("once", json!({ "reply": "none", "dedupe": "X-Id" })),
            endpoint("sync", json!({ "reply": "sync", "dedupe": "X-Id" })),
            endpoint("back", json!({ "callbackPrefix": "https://hooks.example/in/", "dedupe": "X-Id" })),
            endpoint("anew", json!({ "callbackPrefix": "https://hooks.example/in/", "retry": true })),
            endpoint(
                "kept",
                json!({ "callbackPrefix": "https://hooks.example/in/", "dedupe": "X-Id", "retry": true }),
            ),
        ] {
            let opened =
                records.collection.unbounded((collection.to_owned(), Default::default())).await.unwrap();
            opened.put.unbounded((record.as_object().cloned().unwrap(),)).await.unwrap();
        }
        Self {
            db: StateDb::open(dir.path()).unwrap(),
            dir,
            records,
            faults: Faults::default(),
            memory: 1 << 20,
        }
    }

    /// The records of a collection.
    pub async fn collection(&self, name: &str) -> StoredCollection {
        self.records.collection.unbounded((name.to_owned(), Default::default())).await.unwrap()
    }

    fn builder(&self) -> Builder {
        MemoryHost::builder()
            .plugin(ostler_plugin_echo::plugin(), json!({}))
            .plugin(ostler_plugin_bot::plugin(), json!({ "root": self.dir.path().join("root") }))
            .plugin(ostler_plugin_webhook::plugin_with(self.memory), json!({}))
            .options(|options| options.delta_window_ms = 0)
            .records(self.records.clone())
            .vault(vault())
    }

    /// Starts a host on a store of its own.
    pub async fn host(&self) -> World {
        let store =
            Arc::new(SqliteSessions::new(self.db.clone(), ostler_ports::Report::quiet())).into_point();
        World::of(&self.dir, self.builder().sessions(wrapped_store(&store, &self.faults))).await
    }

    /// Starts a host of a cluster, in which a session is read again whose change could not be stored.
    async fn member(&self) -> World {
        let store =
            Arc::new(SqliteSessions::new(self.db.clone(), ostler_ports::Report::quiet())).into_point();
        let faults = Faults { blocks: true, ..self.faults.clone() };
        let host = MemoryCluster::new().start_wrapped("a", store, self.builder(), &faults).await;
        World::with(&self.dir, host.memory)
    }

    pub async fn start(&self, in_cluster: bool) -> World {
        match in_cluster {
            true => self.member().await,
            false => self.host().await,
        }
    }
}

/// Calls an endpoint with the id of a delivery; answers the status, `Retry-After` and the body.
pub async fn deliver(world: &World, endpoint: &str, id: &str, text: &str) -> (u16, Option<String>, Value) {
    let bearer = format!("Bearer {SECRET}");
    let headers = [("authorization", &*bearer), ("content-type", "application/json"), ("x-id", id)];
    let body = json!({ "thread": "t", "text": text, "callback": BACK });
    let response = world.send(request(endpoint, body.to_string(), &headers)).await;
    let after = response.headers().get("retry-after").map(|after| after.to_str().unwrap().to_owned());
    let (status, body) = read(response).await;
    (status, after, body)
}

pub fn refused() -> (u16, Option<String>, Value) {
    let message = "The host cannot store this call now; retry later";
    (503, Some("5".to_owned()), json!({ "message": message }))
}

/// The turns of an endpoint's chat: the text of each, and its state.
pub async fn turns(world: &World, endpoint: &str) -> Vec<(String, String)> {
    let chat = world.chat_of(endpoint).await;
    let turns = until(async || {
        let state = world.chat(&chat).await;
        let waiting = state["queuedMessages"].as_array().map_or(0, Vec::len);
        let is_idle = state["activeTurn"].is_null() && waiting == 0;
        is_idle.then(|| state["turns"].as_array().unwrap().clone())
    })
    .await;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    turns.iter().map(|turn| (text(&turn["message"]["text"]), text(&turn["state"]))).collect()
}

pub fn complete(texts: &[&str]) -> Vec<(String, String)> {
    texts.iter().map(|text| ((*text).to_owned(), "complete".to_owned())).collect()
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_turn_the_store_refuses_is_to_be_sent_again() {
    for in_cluster in [false, true] {
        for endpoint in ["none", "once", "sync", "back"] {
            let stores = Stores::new().await;
            let world = stores.start(in_cluster).await;
            assert!(deliver(&world, endpoint, "0", "first").await.0 < 300);
            let first = turns(&world, endpoint).await;
            assert_eq!(first, complete(&["first"]));
            stores.faults.set(Fault::Fails(Duration::from_secs(8)));
            let begun = Instant::now();
            assert_eq!(deliver(&world, endpoint, "1", "second").await, refused(), "{endpoint}");
            assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
            stores.faults.set(None);
            let (status, _, body) = deliver(&world, endpoint, "1", "second").await;
            assert_eq!(status, if endpoint == "sync" { 200 } else { 202 }, "{endpoint}: {body}");
            let mut expected = vec!["first", "second"];
            if endpoint == "none" && !in_cluster {
                // Nothing tells that it is the same call.
                expected.push("second");
            }
            assert_eq!(turns(&world, endpoint).await, complete(&expected), "{endpoint}, {in_cluster}");
            if endpoint != "none" {
                assert_eq!(
                    deliver(&world, endpoint, "1", "second").await,
                    (status, None, body),
                    "{endpoint}"
                );
                assert_eq!(turns(&world, endpoint).await, complete(&expected), "{endpoint}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_turn_is_stored_although_the_store_reports_an_error_runs_once() {
    for endpoint in ["once", "sync", "back"] {
        let stores = Stores::new().await;
        let world = stores.host().await;
        assert!(deliver(&world, endpoint, "0", "first").await.0 < 300);
        turns(&world, endpoint).await;
        stores.faults.set(Fault::LosesAnswers(Duration::from_secs(1)));
        assert_eq!(deliver(&world, endpoint, "1", "second").await, refused(), "{endpoint}");
        stores.faults.set(None);
        let (status, _, body) = deliver(&world, endpoint, "1", "second").await;
        match endpoint {
            "sync" => assert_eq!((status, &body["text"]), (200, &json!("second"))),
            _ => assert_eq!((status, &body["thread"]), (202, &json!("t"))),
        }
        assert_eq!(turns(&world, endpoint).await, complete(&["first", "second"]), "{endpoint}");
        if endpoint == "back" {
            let posts = world.posts.wait_for(2).await;
            assert_eq!((&posts[1].1["turn"], &posts[1].1["text"]), (&body["turn"], &json!("second")));
        }
        assert_eq!(deliver(&world, endpoint, "1", "second").await, (status, None, body), "{endpoint}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_queued_message_that_the_store_refuses_is_to_be_sent_again_and_runs_once() {
    for in_cluster in [false, true] {
        let stores = Stores::new().await;
        let world = stores.start(in_cluster).await;
        assert_eq!(deliver(&world, "once", "0", "/slow 60s first").await.0, 202);
        stores.faults.set(Fault::Fails(Duration::from_secs(8)));
        assert_eq!(deliver(&world, "once", "1", "second").await, refused());
        stores.faults.set(None);
        assert_eq!(deliver(&world, "once", "1", "second").await.0, 202);
        tokio::time::sleep(Duration::from_secs(60)).await;
        let found = turns(&world, "once").await;
        assert_eq!(found.iter().filter(|(text, _)| text == "second").count(), 1, "{found:?}");
        assert_eq!(found.last().unwrap(), &complete(&["second"])[0]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_stored_or_refused_after_ten_seconds_is_accepted_and_seen_through() {
    let late = Duration::from_secs(12);
    for (in_cluster, fault) in
        [(false, Fault::IsLate(late)), (false, Fault::Fails(late)), (true, Fault::Fails(late))]
    {
        let stores = Stores::new().await;
        let world = stores.start(in_cluster).await;
        assert_eq!(deliver(&world, "back", "0", "first").await.0, 202);
        turns(&world, "back").await;
        world.posts.wait_for(1).await;
        stores.faults.set(fault);
        let begun = Instant::now();
        let (status, _, body) = deliver(&world, "back", "1", "second").await;
        assert_eq!(status, 202, "{body}");
        assert!((10..12).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
        let chat = world.chat_of("back").await;
        let line = format!("the turn in {chat} was not echoed within 10 seconds; the call continues");
        assert!(world.host.log.has(&line), "{:?}", world.host.log.all());
        tokio::time::sleep(Duration::from_secs(5)).await;
        stores.faults.set(None);
        let posts = world.posts.wait_for(2).await;
        let told = json!({ "thread": "t", "turn": body["turn"], "status": "complete", "text": "second" });
        assert_eq!(posts[1..], [(BACK.to_owned(), told)], "{in_cluster} {fault:?}");
        assert_eq!(turns(&world, "back").await, complete(&["first", "second"]), "{in_cluster} {fault:?}");
        let of = world.chat(&chat).await["turns"][1]["id"].clone();
        assert_eq!(of, body["turn"], "under the same id");
        until(async || world.kept("webhook-unconfirmed").await.is_empty().then_some(())).await;
        assert_eq!(deliver(&world, "back", "1", "second").await, (202, None, body));
        assert_eq!(world.posts.all().len(), 2);
    }
}

#[test]
fn a_turn_that_was_not_confirmed_is_sent_again_by_the_next_start() {
    let runtime =
        || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let first = runtime();
    let (stores, turn) = first.block_on(async {
        let stores = Stores::new().await;
        let world = stores.host().await;
        assert_eq!(deliver(&world, "back", "0", "first").await.0, 202);
        turns(&world, "back").await;
        world.posts.wait_for(1).await;
        stores.faults.set(Fault::Fails(Duration::from_secs(3600)));
        let (status, _, body) = deliver(&world, "back", "1", "second").await;
        assert_eq!(status, 202);
        (stores, body["turn"].clone())
    });
    // The host is killed.
    drop(first);
    stores.faults.set(None);
    runtime().block_on(async {
        let world = stores.host().await;
        world.listening().await;
        let told = json!({ "thread": "t", "turn": turn, "status": "complete", "text": "second" });
        assert_eq!(world.posts.wait_for(1).await, [(BACK.to_owned(), told)]);
        assert_eq!(turns(&world, "back").await, complete(&["first", "second"]));
        until(async || world.kept("webhook-unconfirmed").await.is_empty().then_some(())).await;
    });
}
