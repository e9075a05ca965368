//! What clients notice while a host hands its sessions over.

use std::time::Duration;

use ostler_contract::points::Emit;
use ostler_contract::{Value, json};
use ostler_protocol::uri::default_chat;
use ostler_testkit::{Builder, ClusteredHost, MemoryHost, RawClient, Stage};
use tokio::sync::watch;
use tokio::time::Instant;

use super::cluster::{Inn, say_in};

/// What a client noticed that connects again when its connection ends.
#[derive(Debug, Default)]
struct Noticed {
    /// How often its connection ended.
    cuts: usize,
    /// The longest time from the end of its connection until it subscribed to all its sessions again.
    longest: Duration,
}

/// A client of a host that subscribes to sessions and their chats.
struct Follower<'a> {
    host: &'a ClusteredHost,
    sessions: &'a [&'a str],
    noticed: Noticed,
    cut_at: Option<Instant>,
}

impl<'a> Follower<'a> {
    fn new(host: &'a ClusteredHost, sessions: &'a [&'a str]) -> Self {
        Self { host, sessions, noticed: Noticed::default(), cut_at: None }
    }

    /// Follows until the test ends.
    async fn run(mut self, mut ends: watch::Receiver<bool>) -> Noticed {
        while !*ends.borrow() {
            let mut client = self.host.connect("follower").await;
            tokio::select! {
                _ = ends.changed() => {}
                is_cut = self.follow(&mut client) => if is_cut {
                    self.noticed.cuts += 1;
                    self.cut_at.get_or_insert_with(Instant::now);
                },
            }
            client.connection.close();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.noticed
    }

    /// Returns whether the connection ended, and not only a subscription was refused.
    async fn follow(&mut self, client: &mut RawClient) -> bool {
        for session in self.sessions {
            for channel in [(*session).to_owned(), default_chat(session)] {
                match client.try_request("subscribe", json!({ "channel": channel })).await {
                    None => return true,
                    Some(Ok(_)) => {}
                    Some(Err(refused)) => {
                        assert_eq!(refused["data"]["retryable"], true, "{refused}");
                        return false;
                    }
                }
            }
        }
        if let Some(cut_at) = self.cut_at.take() {
            self.noticed.longest = self.noticed.longest.max(cut_at.elapsed());
        }
        while client.next_frame().await.is_some() {}
        true
    }
}

async fn create(host: &ClusteredHost, sessions: &[&str]) -> RawClient {
    let mut maker = host.connect("maker").await;
    for session in sessions {
        maker.request("createSession", json!({ "channel": session })).await.unwrap();
        maker.request("subscribe", json!({ "channel": default_chat(session) })).await.unwrap();
    }
    maker
}

/// Creates sessions of the echo agent with a turn each.
async fn create_used(host: &ClusteredHost, sessions: &[&str]) -> RawClient {
    let mut maker = create(host, sessions).await;
    for session in sessions {
        say_in(&mut maker, session, 1, "first", "words").await;
        maker.actions_until("chat/turnComplete").await;
    }
    maker
}

/// Waits until a host has no sessions, at most 30 seconds; returns how long that took.
async fn emptied(host: &ClusteredHost) -> Duration {
    let begun = Instant::now();
    while !host.host.sessions.all().is_empty() && begun.elapsed() < Duration::from_secs(30) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    begun.elapsed()
}

/// Drains a host while clients of it and of another one follow sessions; returns what each noticed, and how long the drain took.
async fn drained(
    (from, to): (&ClusteredHost, &ClusteredHost),
    sessions: &[&str],
) -> ([Noticed; 2], Duration) {
    let (end, ends) = watch::channel(false);
    let follow = |host| Follower::new(host, sessions).run(ends.clone());
    let drain = async {
        // The clients have subscribed by then.
        tokio::time::sleep(Duration::from_secs(1)).await;
        from.host.set_draining(true).await.unwrap();
        let took = emptied(from).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        end.send_replace(true);
        took
    };
    let (near, far, took) = futures::join!(follow(from), follow(to), drain);
    ([near, far], took)
}

#[tokio::test(start_paused = true)]
async fn a_client_is_cut_once_its_session_can_move() {
    let inn = Inn::new();
    let stage = Stage::default().never_closing();
    let builder = || -> Builder { MemoryHost::builder().plugin(stage.plugin(), json!({})) };
    let (a, b) = (inn.start("a", builder()).await, inn.start("b", builder()).await);
    let sessions = ["stage:/one", "stage:/two"];
    let mut maker = create(&a, &sessions).await;
    for (at, session) in sessions.iter().enumerate() {
        say_in(&mut maker, session, 1, "t1", "words").await;
        maker.actions_until("chat/turnStarted").await;
        while stage.started() <= at {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let ended = json!({ "type": "chat/turnComplete", "turnId": "t1", "duration": 1 });
        stage.emit(at, Emit::Chat, ended);
        maker.actions_until("chat/turnComplete").await;
    }
    let (noticed, took) = drained((&a, &b), &sessions).await;
    println!("{noticed:?}, the drain took {took:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
    for Noticed { cuts, longest } in noticed {
        assert_eq!(cuts, 1, "both sessions move at the same time");
        assert!(longest < Duration::from_secs(1), "{longest:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_in_use_moves_later_and_cuts_its_clients_once() {
    let inn = Inn::new();
    let (a, b) = (inn.host("a").await, inn.host("b").await);
    let sessions = ["echo:/one"];
    create_used(&a, &sessions).await;
    let held = a.host.sessions.get("one").unwrap();
    let (noticed, took) = drained((&a, &b), &sessions).await;
    drop(held);
    println!("{noticed:?}, the drain took {took:?}");
    for Noticed { cuts, longest } in noticed {
        assert_eq!(cuts, 1);
        assert!(longest < Duration::from_secs(1), "{longest:?}");
    }
    assert!(took < Duration::from_secs(6), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_busy_session_moves_when_its_turn_ends() {
    let inn = Inn::new();
    let (a, b) = (inn.host("a").await, inn.host("b").await);
    let sessions = ["echo:/idle", "echo:/soon", "echo:/late"];
    let mut maker = create_used(&a, &sessions).await;
    say_in(&mut maker, sessions[1], 1, "t1", "/slow 5s done").await;
    say_in(&mut maker, sessions[2], 2, "t1", "/slow 10s done").await;
    let (noticed, took) = drained((&a, &b), &sessions).await;
    println!("{noticed:?}, the drain took {took:?}");
    for Noticed { cuts, longest } in noticed {
        assert_eq!(cuts, 3, "once for each");
        assert!(longest < Duration::from_secs(1), "{longest:?}");
    }
    let mut reader = b.connect("reader").await;
    for session in &sessions[1..] {
        let subscribed = reader.request("subscribe", json!({ "channel": default_chat(session) })).await;
        let turns: Value = subscribed.unwrap()["snapshot"]["state"]["turns"].clone();
        assert_eq!(turns[1]["state"], "complete", "{turns}");
    }
}

#[tokio::test(start_paused = true)]
async fn queued_messages_do_not_delay_a_drain_and_start_at_the_other_host() {
    let inn = Inn::new();
    let (a, b) = (inn.host("a").await, inn.host("b").await);
    let session = "echo:/one";
    let mut maker = create_used(&a, &[session]).await;
    say_in(&mut maker, session, 2, "t1", "/slow 5s done").await;
    maker.actions_until("chat/turnStarted").await;
    for number in 0..5 {
        let queued = json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": format!("q{number}"),
            "message": { "text": format!("/slow 10s {number}") } });
        maker.dispatch(&default_chat(session), 3 + number, queued).await;
        maker.actions_until("chat/pendingMessageSet").await;
    }
    a.host.set_draining(true).await.unwrap();
    let took = emptied(&a).await;
    assert!(took < Duration::from_secs(6), "{took:?}");
    let mut reader = b.connect("reader").await;
    reader.request("subscribe", json!({ "channel": default_chat(session) })).await.unwrap();
    for number in 0..5 {
        let ended = reader.actions_until("chat/turnComplete").await;
        assert!(json!(ended).to_string().contains(&format!("{number}")), "{ended:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn sessions_stay_where_no_other_host_takes_them() {
    let inn = Inn::new();
    let (a, b) = (inn.host("a").await, inn.host("b").await);
    let sessions = ["echo:/one"];
    let mut maker = create_used(&a, &sessions).await;
    b.host.set_draining(true).await.unwrap();
    a.host.set_draining(true).await.unwrap();
    // Longer than all limits of a drain.
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(!maker.connection.outbox.is_closed(), "its client stays connected");
    say_in(&mut maker, sessions[0], 1, "t1", "words").await;
    maker.actions_until("chat/turnComplete").await;
    // It moves once another host takes sessions.
    b.host.set_draining(false).await.unwrap();
    maker.ended().await;
    assert!(emptied(&a).await < Duration::from_secs(1));
}
