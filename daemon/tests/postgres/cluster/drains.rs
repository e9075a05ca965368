//! What clients and callers notice of a host that is drained under load.
//!
//! `cargo xtask verify --long cluster` runs more rounds (`OSTLER_DRAIN_ROUNDS`).

use std::time::{Duration, Instant};

use ostler_testkit::postgres::Postgres;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::history::{check_owners, record_owners};
use super::hosts::{
    add_bot, add_plugin, chat_of, client, connected, folder, folder_with_bots, get, run_turn,
};
use crate::support::{self, Client, Daemon, Folder, LIMIT};

/// The shortest time for which a session of a killed host is not served: its lease was renewed up to 2 of 8 seconds before.
const COST_OF_A_KILL: Duration = Duration::from_secs(6);
/// The pause before a client connects again, and of a person between two turns.
const PAUSE: Duration = Duration::from_millis(20);

/// What a client noticed.
#[derive(Debug, Default)]
struct Noticed {
    name: String,
    /// How often its connection ended.
    cuts: usize,
    /// The longest time from the end of its connection until it was served again: all its sessions, with a turn if it writes.
    longest: Duration,
    /// How many turns it wrote.
    turns: usize,
}

/// A client of sessions that connects again when its connection ends.
struct Follower {
    /// The hosts that it connects to, in turn.
    urls: Vec<String>,
    sessions: Vec<String>,
    /// The turns that it writes, if it does.
    text: Option<&'static str>,
    ends: watch::Receiver<bool>,
    noticed: Noticed,
    cut_at: Option<Instant>,
}

impl Follower {
    fn start(mut self) -> JoinHandle<Noticed> {
        tokio::spawn(async move {
            let mut tried = 0;
            while !*self.ends.borrow() {
                let url = self.urls[tried % self.urls.len()].clone();
                tried += 1;
                if let Some(client) = connected(&url, &self.noticed.name).await
                    && self.follow(client).await.is_none()
                {
                    self.noticed.cuts += 1;
                    self.cut_at.get_or_insert_with(Instant::now);
                }
                tokio::time::sleep(PAUSE).await;
            }
            self.noticed
        })
    }

    fn is_served(&mut self) {
        if let Some(cut_at) = self.cut_at.take() {
            self.noticed.longest = self.noticed.longest.max(cut_at.elapsed());
        }
    }

    /// Follows the sessions until the test or the connection ends; `None` if it was the connection.
    async fn follow(&mut self, mut client: Client) -> Option<()> {
        for session in &self.sessions {
            for channel in [session.clone(), chat_of(session)] {
                if client.try_request("subscribe", json!({ "channel": channel })).await?.is_err() {
                    return Some(());
                }
            }
        }
        let Some(text) = self.text else {
            self.is_served();
            loop {
                tokio::select! {
                    frame = client.next_frame() => { frame?; }
                    _ = self.ends.changed() => return Some(()),
                }
            }
        };
        while !*self.ends.borrow() {
            let id = format!("{}-{}-{}", self.noticed.name, self.noticed.cuts, self.noticed.turns);
            if run_turn(&mut client, &chat_of(&self.sessions[0]), &id, text).await? {
                self.noticed.turns += 1;
                self.is_served();
            }
            tokio::time::sleep(PAUSE).await;
        }
        Some(())
    }
}

/// Creates a session with a working directory and subscribes to its chat.
async fn create_in(client: &mut Client, session: &str, directory: &str) -> String {
    let params = json!({ "channel": session, "provider": "echo", "workingDirectories": [directory] });
    client.request("createSession", params).await.unwrap();
    client.subscribe(&chat_of(session)).await;
    chat_of(session)
}

/// Drains a host; returns how long that took.
async fn drain(folder: &Folder) -> Duration {
    let mut drain = folder.command(&["cluster", "drain"]);
    let begun = Instant::now();
    let ended = tokio::task::spawn_blocking(move || support::ended(&mut drain)).await.unwrap();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    begun.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn a_drain_cuts_a_client_once_per_session_and_for_less_than_a_kill() {
    let server = Postgres::start();
    let (first, second) = (folder(&server, "first"), folder(&server, "second"));
    for folder in [&first, &second] {
        add_plugin(folder, json!({ "name": "@ostler/git" }));
    }
    let (a, b) = (first.start(), second.start());
    record_owners(&server);
    let sessions: Vec<String> = (0..8).map(|at| format!("echo:/s{at}")).collect();
    let mut maker = client(&a, "maker").await;
    // As of a user, in a directory of git, which the host follows.
    let tree = first.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let made = std::process::Command::new("git").args(["init", "--quiet"]).current_dir(&tree).status();
    assert!(made.unwrap().success());
    let directory = format!("file://{}", tree.display());
    for session in &sessions {
        let chat = create_in(&mut maker, session, &directory).await;
        assert_eq!(run_turn(&mut maker, &chat, "first", "first").await, Some(true));
    }
    drop(maker);
    let (end, ends) = watch::channel(false);
    let follow = |name: String, urls: &[&str], sessions: &[String], text: Option<&'static str>| {
        let follower = Follower {
            urls: urls.iter().map(|url| (*url).to_owned()).collect(),
            sessions: sessions.to_vec(),
            text,
            ends: ends.clone(),
            noticed: Noticed { name, ..Noticed::default() },
            cut_at: None,
        };
        (sessions.len(), follower.start())
    };
    let mut followers = Vec::new();
    for (at, session) in sessions.iter().enumerate() {
        // Balancers lead clients to another host at some time; clients without one return to the same.
        let urls: &[&str] = match at % 3 {
            0 => &[&a.url],
            1 => &[&a.url, &b.url],
            _ => &[&b.url],
        };
        let text = ["/slow 300ms words", "/slow 1500ms words"][at % 2];
        followers.push(follow(format!("writer{at}"), urls, std::slice::from_ref(session), Some(text)));
    }
    followers.push(follow("near".to_owned(), &[&a.url], &sessions, None));
    followers.push(follow("far".to_owned(), &[&b.url], &sessions, None));
    // Turns run then.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let took = drain(&first).await;
    // Nobody is cut after the end.
    tokio::time::sleep(Duration::from_secs(2)).await;
    end.send(true).unwrap();
    let mut failures = Vec::new();
    for (sessions, follower) in followers {
        let noticed = follower.await.unwrap();
        println!("{noticed:?}");
        if noticed.cuts == 0 || noticed.cuts > sessions || noticed.longest >= COST_OF_A_KILL {
            failures.push(noticed);
        }
    }
    println!("the drain took {took:?}");
    assert!(failures.is_empty(), "the drain took {took:?}: {failures:#?}");
    check_owners(&server);
}

/// How long a caller of a bot waits for the answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many conversations call at the same time.
const CALLERS: usize = 6;

/// The calls of a bot, of which each was answered.
#[derive(Debug, Default)]
struct Calls {
    count: usize,
    slowest: Duration,
    /// How often a host asked the caller to try again.
    again: usize,
}

/// The hosts that are ready, as a balancer sees them.
async fn ready(hosts: &[Daemon]) -> Vec<&Daemon> {
    let each = hosts.iter().map(async |host| (host, get(host, "/api/ready").await.0));
    let answers = futures::future::join_all(each).await;
    answers.into_iter().filter(|(_, status)| *status == 200).map(|(host, _)| host).collect()
}

/// Calls the bot in one conversation at hosts that are ready, until the test ends.
async fn converse(hosts: &[Daemon], name: usize, ends: watch::Receiver<bool>) -> Calls {
    let mut calls = Calls::default();
    while !*ends.borrow() {
        let text = format!("/slow 200ms call {name}-{}", calls.count);
        let body = json!({ "thread": format!("t{name}"), "text": text }).to_string();
        let begun = Instant::now();
        let mut tried = name + calls.count;
        loop {
            let ready = ready(hosts).await;
            let Some(host) = ready.get(tried % ready.len().max(1)) else { continue };
            let called = host.post("/plugins/webhook/ask", Some("right"), &body);
            let left = PATIENCE.saturating_sub(begun.elapsed());
            let answered = tokio::time::timeout(left, called).await;
            let (status, answer) = answered.unwrap_or_else(|_| {
                panic!("call {} of {name} is not answered within {PATIENCE:?} at {}", calls.count, host.url)
            });
            if status == 200 {
                assert!(answer.contains(&format!("call {name}-{}", calls.count)), "{answer}");
                break;
            }
            assert!(
                status == 503 && begun.elapsed() < PATIENCE,
                "{status} {answer} after {:?}",
                begun.elapsed()
            );
            calls.again += 1;
            tried += 1;
            tokio::time::sleep(PAUSE).await;
        }
        calls.count += 1;
        calls.slowest = calls.slowest.max(begun.elapsed());
    }
    calls
}

fn rounds() -> usize {
    std::env::var("OSTLER_DRAIN_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn calls_at_ready_hosts_are_answered_through_three_drains_in_a_row() {
    let server = Postgres::start();
    let folders = ["a", "b", "c"].map(|id| folder_with_bots(&server, id));
    let hosts = folders.each_ref().map(Folder::start);
    record_owners(&server);
    add_bot(&server, &hosts[0]).await;
    for host in &hosts {
        let begun = Instant::now();
        let body = json!({ "thread": "first", "text": "hello" }).to_string();
        // A host knows the endpoint a moment after it was added.
        while host.post("/plugins/webhook/ask", Some("right"), &body).await.0 != 200 {
            assert!(begun.elapsed() < LIMIT, "the endpoint is known");
            tokio::time::sleep(PAUSE).await;
        }
    }
    let (end, ends) = watch::channel(false);
    let callers = (0..CALLERS).map(|name| converse(&hosts, name, ends.clone()));
    let drains = async {
        let mut slowest = Duration::ZERO;
        for _ in 0..rounds() {
            for folder in &folders {
                // Calls reach the host before.
                tokio::time::sleep(Duration::from_secs(1)).await;
                slowest = slowest.max(drain(folder).await);
                let undone = folder.run(&["cluster", "drain", "--undo"]);
                assert_eq!(undone.code, Some(0), "{undone:?}");
            }
        }
        end.send_replace(true);
        slowest
    };
    let (calls, slowest) = futures::join!(futures::future::join_all(callers), drains);
    let count: usize = calls.iter().map(|calls| calls.count).sum();
    let again: usize = calls.iter().map(|calls| calls.again).sum();
    let slowest_call = calls.iter().map(|calls| calls.slowest).max().unwrap();
    println!(
        "{} drains, the slowest took {slowest:?}; {count} calls, the slowest took {slowest_call:?}; {again} were repeated",
        rounds() * folders.len()
    );
    assert!(calls.iter().all(|calls| calls.count > 0), "{calls:?}");
    let turns = server.psql("ostler", "SELECT count(*) FROM ostler.turns WHERE kept LIKE '%call %'");
    assert_eq!(turns, count.to_string(), "each call is one turn");
    check_owners(&server);
}
