//! Callbacks of several hosts that share their stores.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ostler_contract::call::Signature;
use ostler_contract::points::{RecordStore, SessionStore};
use ostler_contract::{Call, Thrown, Value, json};
use ostler_ports::{SqliteSessions, StateDb};
use ostler_testkit::MemoryCluster;
use ostler_testkit::wrapped_store::{WrapCall, wrapped_records};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::support::{Posts, World, builder, endpoint, folder, records, until};

const BACK: &str = "https://hooks.example/in/x";

/// A cluster with the endpoint `back`.
struct Hosts {
    cluster: MemoryCluster,
    sessions: SessionStore,
    records: RecordStore,
    /// The folders of the hosts, and of what they share.
    folders: Vec<Arc<TempDir>>,
}

impl Hosts {
    fn new() -> Self {
        let shared = folder();
        endpoint(shared.path(), "back", "bot: bot://echo\ncallbackPrefix: https://hooks.example/in/");
        let sessions = SqliteSessions::new(StateDb::memory().unwrap(), ostler_ports::Report::quiet());
        let (sessions, records) = (Arc::new(sessions).into_point(), records(shared.path()));
        Self { cluster: MemoryCluster::new(), sessions, records, folders: vec![shared] }
    }

    /// Waits until the turn of a chat is stored as one that runs. One that has not begun starts again on another host.
    async fn has_begun(&self, chat: &str) {
        until(async || {
            for id in self.sessions.sessions.unbounded(()).await.unwrap() {
                let turns = self.sessions.turns.as_ref().unwrap().unbounded((id, chat.to_owned()));
                if !turns.await.unwrap().is_empty() {
                    return Some(());
                }
            }
            None
        })
        .await;
    }

    async fn start(&mut self, id: &str) -> World {
        let dir = folder();
        self.folders.push(dir.clone());
        let builder = builder(dir.path()).await.records(self.records.clone());
        let host = self.cluster.start(id, self.sessions.clone(), builder).await;
        let world = World::with(&dir, host.memory);
        world.listening().await;
        world
    }
}

/// Starts a turn that does not end; returns its chat and the turn.
async fn hang(world: &World) -> (String, Value) {
    let (status, body) = world.say_back("back", "t", "/hang", BACK).await;
    assert_eq!(status, 202, "{body}");
    (world.chat_of("back").await, body["turn"].clone())
}

/// Lets a minute pass in which hosts look for what others left.
async fn a_minute_passes() {
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(61)).await;
    tokio::time::resume();
}

/// Lets minutes pass until something is so.
async fn minutes_pass_until(is_so: impl Fn() -> bool) {
    for _ in 0..30 {
        a_minute_passes().await;
        for _ in 0..20 {
            if is_so() {
                return;
            }
            // The store of records has a thread of its own, for which paused time does not wait, so a look can fail.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

fn posted(posts: &Posts, turn: &Value) -> Vec<Value> {
    let all = posts.all().into_iter().map(|(_, body)| body);
    all.filter(|body| body["turn"] == *turn).map(|body| body["status"].clone()).collect()
}

#[tokio::test]
async fn a_host_that_starts_leaves_the_callbacks_of_one_that_runs_to_it() {
    let mut hosts = Hosts::new();
    let first = hosts.start("one").await;
    let (chat, turn) = hang(&first).await;
    let second = hosts.start("two").await;
    a_minute_passes().await;
    let cancelled = json!({ "type": "chat/turnCancelled", "turnId": turn, "duration": 1 });
    first.client().await.dispatch(&chat, 1, cancelled).await;
    first.posts.wait_for(1).await;
    a_minute_passes().await;
    assert_eq!(posted(&first.posts, &turn), ["cancelled"]);
    assert_eq!(posted(&second.posts, &turn), [""; 0]);
    until(async || first.kept("webhook-callbacks").await.is_empty().then_some(())).await;
}

#[tokio::test]
async fn a_host_posts_the_callback_of_a_turn_that_the_loss_of_another_one_broke() {
    let mut hosts = Hosts::new();
    let first = hosts.start("one").await;
    let second = hosts.start("two").await;
    let third = hosts.start("three").await;
    let (chat, turn) = hang(&first).await;
    hosts.has_begun(&chat).await;
    hosts.cluster.expire_id("one");
    minutes_pass_until(|| !second.posts.all().is_empty() || !third.posts.all().is_empty()).await;
    a_minute_passes().await;
    let all = [posted(&second.posts, &turn), posted(&third.posts, &turn)].concat();
    assert_eq!(all, ["error"], "by one of the other hosts");
    assert_eq!(posted(&first.posts, &turn), [""; 0]);
}

/// A store of records whose writes are done, but whose answers are lost while this is set.
#[derive(Clone, Default)]
struct Unanswered(Arc<AtomicBool>);

impl WrapCall for Unanswered {
    fn wrap<S: Signature>(&self, call: &Call<S>, writes: bool) -> Call<S> {
        let (unanswered, call) = (self.clone(), call.clone());
        Call::new(move |arguments| {
            let (answer, unanswered) = (call.unbounded(arguments), unanswered.clone());
            async move {
                let answer = answer.await;
                match writes && unanswered.0.load(Ordering::SeqCst) {
                    true => Err(Thrown::new("the answer was lost")),
                    false => answer,
                }
            }
        })
    }
}

#[tokio::test]
async fn a_host_posts_the_callback_that_it_took_over_without_an_answer_of_its_store() {
    let mut hosts = Hosts::new();
    let first = hosts.start("one").await;
    let unanswered = Unanswered::default();
    hosts.records = wrapped_records(&hosts.records, &unanswered);
    let second = hosts.start("two").await;
    let (chat, turn) = hang(&first).await;
    hosts.has_begun(&chat).await;
    unanswered.0.store(true, Ordering::SeqCst);
    hosts.cluster.expire_id("one");
    minutes_pass_until(|| !second.posts.all().is_empty()).await;
    unanswered.0.store(false, Ordering::SeqCst);
    a_minute_passes().await;
    assert_eq!(posted(&second.posts, &turn), ["error"]);
    until(async || second.kept("webhook-callbacks").await.is_empty().then_some(())).await;
}

/// A message that was accepted by a host that was lost before the turn was confirmed runs on another one, once, and its end is
/// posted once.
#[tokio::test]
async fn a_host_sees_an_unconfirmed_turn_of_a_lost_one_through() {
    let mut hosts = Hosts::new();
    let world = hosts.start("two").await;
    let (status, body) = world.say_back("back", "t", "first", BACK).await;
    assert_eq!(status, 202, "{body}");
    world.posts.wait_for(1).await;
    let thread = world.kept("webhook-threads").await.remove(0);
    // As a host stores it that is killed before its turn is confirmed.
    let turn = "0b0c5f0a-unconfirmed";
    let digest = Sha256::new().chain_update(turn.len().to_be_bytes()).chain_update(turn).finalize();
    let record = json!({
        "id": format!("u{}", hex::encode(&digest[..16])), "host": "one", "heldBy": "lost", "endpoint": "back",
        "session": thread["session"], "chat": thread["chat"], "thread": "t", "turn": turn, "url": BACK,
        "message": { "text": "second" }, "since": "2026-01-01T00:00:00.000Z",
    });
    let unconfirmed = hosts.records.collection.unbounded(("webhook-unconfirmed".into(), Default::default()));
    let unconfirmed = unconfirmed.await.unwrap();
    unconfirmed.put.unbounded((record.as_object().unwrap().clone(),)).await.unwrap();
    minutes_pass_until(|| world.posts.all().len() > 1).await;
    a_minute_passes().await;
    assert_eq!(posted(&world.posts, &turn.into()), ["complete"]);
    until(async || world.kept("webhook-unconfirmed").await.is_empty().then_some(())).await;
    let chat = world.chat(thread["chat"].as_str().unwrap()).await;
    let said = chat["turns"].as_array().unwrap().iter().map(|turn| &turn["message"]["text"]);
    assert_eq!(said.collect::<Vec<_>>(), ["first", "second"]);
}
