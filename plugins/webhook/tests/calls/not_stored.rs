//! Calls that cannot be stored are answered with 503, so that their senders repeat them, and are remembered until then.

use std::future::{pending, ready};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use crate::support::{SECRET, World, automation, builder, endpoint, folder, read, records, request};
use ostler_contract::points::{AutomationStore, CollectionOptions, RecordStore};
use ostler_contract::protocol::wire::state::AutomationRunState;
use ostler_contract::{Call, JsonObject, Thrown, Value, json};
use ostler_engine::Core;
use ostler_ports::{FileAutomations, StateDb};
use tokio::sync::Notify;

const MESSAGE: &str = "The host cannot store this call now; retry later";

/// Calls an endpoint with the id of a delivery; answers the status.
async fn deliver(world: &World, endpoint: &str, id: &str, body: &Value) -> u16 {
    let bearer = format!("Bearer {SECRET}");
    let headers = [("authorization", &*bearer), ("content-type", "application/json"), ("x-id", id)];
    let response = world.send(request(endpoint, body.to_string(), &headers)).await;
    let waits = response.headers().get("retry-after").cloned();
    let (status, body) = read(response).await;
    assert_eq!(status == 503, waits.is_some_and(|waits| waits == "5"), "{body}");
    assert!(status != 503 || body == json!({ "message": MESSAGE }), "{body}");
    status
}

/// A store in which a record of one collection is written once `before` allows it.
fn checked<F: Future<Output = Result<(), Thrown>> + Send + 'static>(
    store: &RecordStore,
    collection: &'static str,
    before: impl Fn() -> F + Clone + Send + Sync + 'static,
) -> RecordStore {
    let inner = store.collection.clone();
    let collection = Call::new(move |(name, options): (String, CollectionOptions)| {
        let (inner, before) = (inner.clone(), before.clone());
        async move {
            let mut opened = inner.unbounded((name.clone(), options)).await?;
            if name == collection {
                let put = opened.put.clone();
                opened.put = Call::new(move |(record,): (JsonObject,)| {
                    let (put, allowed) = (put.clone(), before());
                    async move {
                        allowed.await?;
                        put.unbounded((record,)).await
                    }
                });
            }
            Ok(opened)
        }
    });
    RecordStore { collection, ..store.clone() }
}

#[tokio::test]
async fn a_delivery_whose_answer_cannot_be_stored_runs_once_and_is_acknowledged_when_it_is_stored() {
    let dir = folder();
    endpoint(dir.path(), "fire", "automation: true\ndedupe: X-Id");
    endpoint(dir.path(), "talk", "bot: bot://echo\nreply: none\ndedupe: X-Id");
    automation(dir.path(), "fire");
    let fails = Arc::new(AtomicBool::new(false));
    let is_full = fails.clone();
    let store = checked(&records(dir.path()), "webhook-repeats", move || {
        ready(match is_full.load(Ordering::SeqCst) {
            true => Err(Thrown::new("the disk is full")),
            false => Ok(()),
        })
    });
    let world = World::of(&dir, builder(dir.path()).await.records(store)).await;
    let said = json!({ "thread": "t", "text": "hello" });
    fails.store(true, Ordering::SeqCst);
    for _ in 0..2 {
        assert_eq!(deliver(&world, "fire", "1", &json!({})).await, 503);
        assert_eq!(deliver(&world, "talk", "1", &said).await, 503);
    }
    assert!(world.host.log.has("cannot store a call: the disk is full"));
    fails.store(false, Ordering::SeqCst);
    for _ in 0..2 {
        assert_eq!(deliver(&world, "fire", "1", &json!({})).await, 202);
        assert_eq!(deliver(&world, "talk", "1", &said).await, 202);
    }
    assert_eq!(world.runs("fire").await, 1);
    let turns = world.chat(&world.chat_of("talk").await).await["turns"].as_array().unwrap().len();
    assert_eq!(turns, 1);
    let world = world.again().await;
    assert_eq!(deliver(&world, "fire", "1", &json!({})).await, 202, "the next start knows it");
    assert_eq!(world.runs("fire").await, 1);
}

#[tokio::test]
async fn a_delivery_whose_caller_leaves_before_its_answer_is_stored_runs_once() {
    let dir = folder();
    endpoint(dir.path(), "fire", "automation: true\ndedupe: X-Id");
    automation(dir.path(), "fire");
    let (hangs, begun) = (Arc::new(AtomicBool::new(true)), Arc::new(Notify::new()));
    let (is_first, has_begun) = (hangs.clone(), begun.clone());
    let store = checked(&records(dir.path()), "webhook-repeats", move || {
        let is_first = is_first.swap(false, Ordering::SeqCst);
        has_begun.notify_one();
        async move {
            match is_first {
                true => pending().await,
                false => Ok(()),
            }
        }
    });
    let world = World::of(&dir, builder(dir.path()).await.records(store)).await;
    let body = json!({});
    tokio::select! {
        status = deliver(&world, "fire", "1", &body) => panic!("{status}"),
        () = begun.notified() => {}
    }
    assert_eq!(deliver(&world, "fire", "1", &body).await, 202);
    assert_eq!(world.runs("fire").await, 1);
}

#[tokio::test]
async fn a_call_whose_run_cannot_be_stored_is_refused_and_not_remembered() {
    let dir = folder();
    endpoint(dir.path(), "fire", "automation: true\ndedupe: X-Id");
    automation(dir.path(), "fire");
    let db = StateDb::open(dir.path()).unwrap();
    let automations = FileAutomations::open(dir.path(), db, ostler_ports::Report::quiet()).await.unwrap();
    let store = Arc::new(automations).into_point();
    let fails = Arc::new(AtomicBool::new(true));
    let (run, is_full) = (store.run.clone(), fails.clone());
    let run = Call::new(move |(state,): (AutomationRunState,)| {
        let (run, fails) = (run.clone(), is_full.load(Ordering::SeqCst));
        async move {
            match fails {
                true => Err(Thrown::new("the disk is full")),
                false => run.unbounded((state,)).await,
            }
        }
    });
    let store = AutomationStore { run, ..store };
    let world = World::of(&dir, builder(dir.path()).await.automations(store)).await;
    assert_eq!(deliver(&world, "fire", "1", &json!({})).await, 503);
    fails.store(false, Ordering::SeqCst);
    assert_eq!(deliver(&world, "fire", "1", &json!({})).await, 202);
    assert_eq!(world.runs("fire").await, 1);
}

#[tokio::test]
async fn while_nothing_can_be_stored_no_call_takes_effect() {
    let dir = folder();
    endpoint(dir.path(), "fire", "automation: true");
    endpoint(dir.path(), "talk", "bot: bot://echo\nreply: none");
    automation(dir.path(), "fire");
    let world = World::start(&dir).await;
    let said = json!({ "thread": "t", "text": "hello" });
    let core = &world.host.host.core;
    core.set_lost_storage(Some("the disk is full".to_owned()));
    assert_eq!(deliver(&world, "fire", "", &json!({})).await, 503);
    assert_eq!(deliver(&world, "talk", "", &said).await, 503);
    assert_eq!(deliver(&world, "nowhere", "", &said).await, 404);
    core.set_lost_storage(None);
    assert_eq!(deliver(&world, "fire", "", &json!({})).await, 202);
    assert_eq!(deliver(&world, "talk", "", &said).await, 202);
    assert_eq!(world.runs("fire").await, 1);
}

#[tokio::test]
async fn a_turn_that_is_refused_because_nothing_can_be_stored_is_to_be_sent_again() {
    let dir = folder();
    endpoint(dir.path(), "talk", "bot: bot://echo\nreply: none");
    let core: Arc<OnceLock<Weak<Core>>> = Arc::default();
    // The disk is found full between the first look and the turn.
    let lost = core.clone();
    let store = checked(&records(dir.path()), "webhook-threads", move || {
        let core = lost.get().and_then(Weak::upgrade).unwrap();
        core.set_lost_storage(Some("the disk is full".to_owned()));
        ready(Ok(()))
    });
    let world = World::of(&dir, builder(dir.path()).await.records(store)).await;
    core.set(Arc::downgrade(&world.host.host.core)).unwrap();
    let said = json!({ "thread": "t", "text": "hello" });
    assert_eq!(deliver(&world, "talk", "", &said).await, 503);
    world.host.host.core.set_lost_storage(None);
    assert_eq!(deliver(&world, "talk", "", &said).await, 202);
}

/// The run is stored before the record by which the repeated delivery is recognized.
#[tokio::test]
async fn a_delivery_that_is_repeated_to_a_host_that_was_killed_before_it_stored_the_answer_runs_once() {
    let dir = folder();
    endpoint(dir.path(), "fire", "automation: true\ndedupe: X-Id");
    automation(dir.path(), "fire");
    let store =
        checked(&records(dir.path()), "webhook-repeats", || ready(Err(Thrown::new("the disk is full"))));
    let world = World::of(&dir, builder(dir.path()).await.records(store)).await;
    assert_eq!(deliver(&world, "fire", "1", &json!({})).await, 503);
    assert_eq!(world.runs("fire").await, 1);
    let world = world.again().await;
    for _ in 0..2 {
        assert_eq!(deliver(&world, "fire", "1", &json!({})).await, 202);
        assert_eq!(world.runs("fire").await, 1);
    }
    assert_eq!(deliver(&world, "fire", "2", &json!({})).await, 202);
    assert_eq!(world.runs("fire").await, 2);
}
