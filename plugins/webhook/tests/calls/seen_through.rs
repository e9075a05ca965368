//! Callbacks and unconfirmed turns whose records fail, and hosts that are killed between two writes: every accepted call runs once
//! and its end is posted once.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ostler_contract::points::{CollectionOptions, RecordStore};
use ostler_contract::{Call, Thrown, json};
use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio::time::Instant;

use crate::support::{Outside, World, until};
use crate::unstored_turns::{BACK, Fault, Stores, complete, deliver, refused, turns};

const UNCONFIRMED: &str = "webhook-unconfirmed";
const CALLBACKS: &str = "webhook-callbacks";

/// How often the next writes of collections fail, by `put` or `remove` and the collection.
#[derive(Clone, Default)]
struct Failures(Arc<Mutex<HashMap<(&'static str, String), usize>>>);

impl Failures {
    fn set(&self, what: &'static str, collection: &str, times: usize) {
        self.0.lock().insert((what, collection.to_owned()), times);
    }

    fn next(&self, what: &'static str, collection: &str) -> Result<(), Thrown> {
        match self.0.lock().get_mut(&(what, collection.to_owned())) {
            Some(times) if *times > 0 => {
                *times -= 1;
                Err(Thrown::new("the disk is full"))
            }
            _ => Ok(()),
        }
    }

    fn wrap(&self, store: &RecordStore) -> RecordStore {
        let (inner, failures) = (store.collection.clone(), self.clone());
        let collection = Call::new(move |(name, options): (String, CollectionOptions)| {
            let (inner, failures) = (inner.clone(), failures.clone());
            async move {
                let mut opened = inner.unbounded((name.clone(), options)).await?;
                let (put, remove) = (opened.put.clone(), opened.remove.clone());
                let (of_put, of_remove) = ((failures.clone(), name.clone()), (failures, name));
                opened.put = Call::new(move |arguments| {
                    let (put, allowed) = (put.clone(), of_put.0.next("put", &of_put.1));
                    async move {
                        allowed?;
                        put.unbounded(arguments).await
                    }
                });
                opened.remove = Call::new(move |arguments| {
                    let (remove, allowed) = (remove.clone(), of_remove.0.next("remove", &of_remove.1));
                    async move {
                        allowed?;
                        remove.unbounded(arguments).await
                    }
                });
                Ok(opened)
            }
        });
        RecordStore { collection, ..store.clone() }
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

async fn failing() -> (Stores, Failures) {
    let (mut stores, failures) = (Stores::new().await, Failures::default());
    stores.records = failures.wrap(&stores.records);
    (stores, failures)
}

async fn all_removed(world: &World) {
    for collection in [UNCONFIRMED, CALLBACKS] {
        until(async || world.kept(collection).await.is_empty().then_some(())).await;
    }
}

/// The texts of all posts, up to that of another call.
async fn posted(world: &World, endpoint: &str) -> Vec<String> {
    assert_eq!(deliver(world, endpoint, "marker", "marker").await.0, 202);
    let texts =
        || world.posts.all().iter().map(|(_, body)| body["text"].as_str().unwrap().to_owned()).collect();
    until(async || {
        let texts: Vec<String> = texts();
        (texts.last()? == "marker").then_some(texts)
    })
    .await
}

fn sorted(mut turns: Vec<(String, String)>) -> Vec<(String, String)> {
    turns.sort();
    turns
}

#[tokio::test(start_paused = true)]
async fn turns_without_memory_for_their_messages_run_after_a_long_outage() {
    for endpoint in ["back", "kept"] {
        let mut stores = Stores::new().await;
        stores.memory = 1;
        let world = stores.start(true).await;
        assert_eq!(deliver(&world, endpoint, "0", "first").await.0, 202);
        turns(&world, endpoint).await;
        stores.faults.set(Fault::Fails(Duration::from_secs(700)));
        let (second, third) =
            tokio::join!(deliver(&world, endpoint, "1", "second"), deliver(&world, endpoint, "2", "third"));
        assert_eq!((second.0, third.0), (202, 202));
        tokio::time::sleep(Duration::from_secs(680)).await;
        stores.faults.set(None);
        let posts = world.posts.wait_for(3).await;
        assert!(posts.iter().all(|(_, body)| body["status"] == "complete"), "{posts:?}");
        assert_eq!(sorted(turns(&world, endpoint).await), complete(&["first", "second", "third"]));
        all_removed(&world).await;
        assert_eq!(posted(&world, endpoint).await.len(), 4);
    }
}

#[test]
fn turns_without_memory_for_their_messages_run_after_a_restart() {
    let first = runtime();
    let stores = first.block_on(async {
        let mut stores = Stores::new().await;
        stores.memory = 1;
        let world = stores.host().await;
        assert_eq!(deliver(&world, "kept", "0", "first").await.0, 202);
        turns(&world, "kept").await;
        world.posts.wait_for(1).await;
        until(async || world.kept(CALLBACKS).await.is_empty().then_some(())).await;
        stores.faults.set(Fault::Fails(Duration::from_secs(3600)));
        let (second, third) =
            tokio::join!(deliver(&world, "kept", "1", "second"), deliver(&world, "kept", "2", "third"));
        assert_eq!((second.0, third.0), (202, 202));
        stores
    });
    // The host is killed.
    drop(first);
    stores.faults.set(None);
    runtime().block_on(async {
        let world = stores.host().await;
        world.listening().await;
        let posts = world.posts.wait_for(2).await;
        assert!(posts.iter().all(|(_, body)| body["status"] == "complete"), "{posts:?}");
        assert_eq!(sorted(turns(&world, "kept").await), complete(&["first", "second", "third"]));
        all_removed(&world).await;
        assert_eq!(posted(&world, "kept").await.len(), 3);
    });
}

#[tokio::test(start_paused = true)]
async fn what_is_done_is_removed_although_that_fails_at_first() {
    let (stores, failures) = failing().await;
    let world = stores.host().await;
    assert_eq!(deliver(&world, "kept", "0", "first").await.0, 202);
    turns(&world, "kept").await;
    world.posts.wait_for(1).await;
    failures.set("remove", UNCONFIRMED, 3);
    failures.set("remove", CALLBACKS, 3);
    stores.faults.set(Fault::IsLate(Duration::from_secs(12)));
    assert_eq!(deliver(&world, "kept", "1", "second").await.0, 202);
    // Time is paused.
    tokio::time::sleep(Duration::from_secs(5)).await;
    stores.faults.set(None);
    world.posts.wait_for(2).await;
    all_removed(&world).await;
    assert_eq!(turns(&world, "kept").await, complete(&["first", "second"]));
    world.host.host.close().await;
    drop(world);
    let world = stores.host().await;
    world.listening().await;
    assert_eq!(posted(&world, "kept").await, ["marker"], "what was posted is not posted again");
    assert_eq!(turns(&world, "kept").await, complete(&["first", "second", "marker"]));
}

#[test]
fn a_start_with_a_turn_and_its_callback_posts_it_once() {
    let first = runtime();
    let stores = first.block_on(async {
        let (stores, failures) = failing().await;
        let world = stores.host().await;
        assert_eq!(deliver(&world, "kept", "0", "first").await.0, 202);
        turns(&world, "kept").await;
        world.posts.wait_for(1).await;
        until(async || world.kept(CALLBACKS).await.is_empty().then_some(())).await;
        failures.set("remove", UNCONFIRMED, 100);
        world.posts.answer(&[Outside::Hangs]);
        stores.faults.set(Fault::IsLate(Duration::from_secs(12)));
        assert_eq!(deliver(&world, "kept", "1", "second").await.0, 202);
        // Time is paused.
        tokio::time::sleep(Duration::from_secs(5)).await;
        stores.faults.set(None);
        assert_eq!(world.posts.wait_for(2).await[1].1["text"], "second");
        assert_eq!((world.kept(UNCONFIRMED).await.len(), world.kept(CALLBACKS).await.len()), (1, 1));
        failures.set("remove", UNCONFIRMED, 0);
        stores
    });
    // The host is killed.
    drop(first);
    runtime().block_on(async {
        let world = stores.host().await;
        world.listening().await;
        world.posts.wait_for(1).await;
        all_removed(&world).await;
        assert_eq!(posted(&world, "kept").await, ["second", "marker"]);
        assert_eq!(turns(&world, "kept").await, complete(&["first", "second", "marker"]));
    });
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_callback_cannot_be_stored_does_not_begin() {
    let (stores, failures) = failing().await;
    let world = stores.host().await;
    failures.set("put", CALLBACKS, 3);
    assert_eq!(deliver(&world, "anew", "", "hello").await, refused());
    assert_eq!(deliver(&world, "anew", "", "hello").await.0, 202);
    world.posts.wait_for(1).await;
    assert_eq!(turns(&world, "anew").await, complete(&["hello"]));
    assert_eq!(posted(&world, "anew").await, ["hello", "marker"]);
    failures.set("put", CALLBACKS, 2);
    assert_eq!(deliver(&world, "anew", "", "again").await.0, 202);
    assert_eq!(turns(&world, "anew").await, complete(&["hello", "marker", "again"]));
}

#[tokio::test(start_paused = true)]
async fn a_refused_call_leaves_no_callback() {
    let (stores, failures) = failing().await;
    let world = stores.start(true).await;
    assert_eq!(deliver(&world, "anew", "", "first").await.0, 202);
    world.posts.wait_for(1).await;
    all_removed(&world).await;
    stores.faults.set(Fault::Fails(Duration::from_secs(8)));
    failures.set("remove", CALLBACKS, 2);
    assert_eq!(deliver(&world, "anew", "", "second").await, refused());
    assert!(world.kept(CALLBACKS).await.is_empty());
    stores.faults.set(None);
    assert_eq!(posted(&world, "anew").await, ["first", "marker"]);
}

/// Kills a host between the record of a call's callback and its turn.
fn killed_before_the_turn() -> Stores {
    let first = runtime();
    let stores = first.block_on(async {
        let stores = Stores::new().await;
        let world = stores.host().await;
        assert_eq!(deliver(&world, "kept", "0", "first").await.0, 202);
        world.posts.wait_for(1).await;
        all_removed(&world).await;
        stores.faults.set(Fault::Fails(Duration::from_secs(3600)));
        let call = deliver(&world, "kept", "1", "second");
        // Time is paused.
        assert!(tokio::time::timeout(Duration::from_secs(3), call).await.is_err());
        assert_eq!(world.kept(CALLBACKS).await.len(), 1);
        stores
    });
    // The host is killed.
    drop(first);
    stores.faults.set(None);
    stores
}

#[test]
fn a_callback_whose_turn_was_not_accepted_waits_for_the_repeated_delivery() {
    let stores = killed_before_the_turn();
    runtime().block_on(async {
        let world = stores.host().await;
        world.listening().await;
        // Time is paused.
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(world.posts.all(), []);
        let (status, _, body) = deliver(&world, "kept", "1", "second").await;
        assert_eq!(status, 202);
        let told = json!({ "thread": "t", "turn": body["turn"], "status": "complete", "text": "second" });
        assert_eq!(world.posts.wait_for(1).await, [(BACK.to_owned(), told)]);
        all_removed(&world).await;
        assert_eq!(posted(&world, "kept").await, ["second", "marker"]);
        assert_eq!(turns(&world, "kept").await, complete(&["first", "second", "marker"]));
    });
}

#[test]
fn a_callback_whose_turn_never_comes_is_an_error() {
    let stores = killed_before_the_turn();
    runtime().block_on(async {
        let world = stores.host().await;
        world.listening().await;
        // Time is paused.
        tokio::time::sleep(Duration::from_secs(590)).await;
        assert_eq!(world.posts.all(), []);
        let posts = world.posts.wait_for(1).await;
        assert_eq!(posts[0].1["status"], "error");
        let why =
            "the host does not have the turn: it ended before it accepted it, or the message was withdrawn";
        assert_eq!(posts[0].1["error"], why);
        all_removed(&world).await;
        assert_eq!(turns(&world, "kept").await, complete(&["first"]));
    });
}

#[test]
fn a_repeated_delivery_does_not_delay_the_callback_of_the_first_one() {
    let first = runtime();
    let stores = first.block_on(async {
        let stores = Stores::new().await;
        let world = stores.host().await;
        assert_eq!(deliver(&world, "kept", "0", "/slow 60s first").await.0, 202);
        assert_eq!(deliver(&world, "kept", "1", "/slow 40s second").await.0, 202);
        stores
    });
    // The host is killed before it remembers the deliveries.
    drop(first);
    runtime().block_on(async {
        let world = stores.host().await;
        let repeats = stores.collection("webhook-repeats").await;
        for record in repeats.list.unbounded(()).await.unwrap() {
            repeats.remove.unbounded((record["id"].as_str().unwrap().to_owned(),)).await.unwrap();
        }
        world.listening().await;
        let chat = world.chat_of("kept").await;
        until(async || (!world.chat(&chat).await["activeTurn"].is_null()).then_some(())).await;
        let begun = Instant::now();
        assert_eq!(deliver(&world, "kept", "1", "/slow 40s second").await.0, 202);
        let ended = async || {
            let posts = world.posts.all();
            posts.iter().any(|(_, body)| body["text"] == "second").then_some(())
        };
        until(ended).await;
        assert!((39..42).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    });
}
