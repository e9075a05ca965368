//! Four clients of a real daemon act, lose their connections and reconnect, while it is killed and restarted. In the end
//! all of them have what a client has that has just connected. `crates/engine/tests/reconnect.rs` plays the same steps on a
//! host in memory, many more of them.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ostler_protocol::Version;
use ostler_testkit::mirror::{Beside, Mirror, ROWS, Step};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::json;
use support::{Client, Daemon, Folder, LIMIT};

/// How many histories are played, which `OSTLER_RECONNECT_DAEMON_CASES` overrides.
const CASES: u32 = 6;
/// How long a client waits for the next frame before it does something else.
const PAUSE: Duration = Duration::from_millis(2);

/// What the clients follow beside sessions.
const BESIDE: Beside = Beside { automations: true, terminals: true, changesets: true };

/// What a client does: which client, what, to what, and how.
#[derive(Clone, Copy)]
struct Choice(usize, Step, u8, u8);

impl std::fmt::Debug for Choice {
    /// On one line, however the steps around it are printed.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self(client, step, at, how) = self;
        write!(formatter, "Choice({client}, Step::{step:?}, {at}, {how})")
    }
}

fn choice() -> impl Strategy<Value = Choice> {
    let choice = (0..4_usize, 0..ROWS.len(), any::<u8>(), any::<u8>());
    choice.prop_map(|(client, row, at, how)| Choice(client, ROWS[row], at, how))
}

/// A client and its connection.
struct Peer {
    mirror: Mirror,
    socket: Option<Client>,
}

impl Peer {
    fn new(name: &str, version: Version) -> Self {
        Self { mirror: Mirror::new(name, version).with(BESIDE), socket: None }
    }

    async fn connect(&mut self, daemon: &Daemon) {
        if self.socket.is_none() {
            self.socket = Some(daemon.client().await);
            self.mirror.connect();
        }
    }

    /// Sends what there is to send, and reads what is there.
    async fn exchange(&mut self) {
        let Some(socket) = &mut self.socket else { return };
        for frame in self.mirror.outgoing() {
            socket.send(&frame).await;
        }
        while let Ok(frame) = tokio::time::timeout(PAUSE, socket.next_frame()).await {
            self.mirror.receive(&frame.expect("the daemon runs"));
        }
    }

    fn disconnect(&mut self) {
        if self.socket.take().is_some() {
            self.mirror.disconnected();
        }
    }
}

async fn play(steps: &[Choice]) -> Result<(), String> {
    let folder = Folder::new(json!({}));
    let repository = folder.path().canonicalize().unwrap().join("yard");
    std::fs::create_dir(&repository).unwrap();
    let run = |arguments: &[&str]| {
        let mut git = std::process::Command::new("git");
        git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        let done = git.args(arguments).current_dir(&repository).status();
        assert!(done.unwrap().success(), "{arguments:?}");
    };
    run(&["init", "-q", "-b", "main"]);
    run(&["config", "user.name", "Ann"]);
    run(&["config", "user.email", "ann@example.com"]);
    run(&["commit", "-q", "--allow-empty", "-m", "First"]);
    let plugins =
        json!([{ "name": "@ostler/echo" }, { "name": "@ostler/terminal" }, { "name": "@ostler/git" }]);
    let config = json!({ "port": 0, "paths": [repository], "plugins": plugins });
    folder.write("config.json", &config.to_string());
    let start = || {
        let mut command = folder.command(&[]);
        command.env("SHELL", "/bin/sh").env("HOME", folder.path());
        folder.started(command)
    };
    let mut daemon = start();
    let mut peers: Vec<Peer> = [Version::V1, Version::V0_9, Version::V1, Version::V0_9]
        .into_iter()
        .enumerate()
        .map(|(at, version)| Peer::new(&format!("c{at}"), version))
        .collect();
    for peer in &mut peers {
        peer.connect(&daemon).await;
    }
    for (number, &Choice(client, step, at, how)) in steps.iter().enumerate() {
        match step {
            Step::Drop => peers[client].disconnect(),
            Step::Return => peers[client].connect(&daemon).await,
            Step::Restart => {
                // What was sent a moment ago may be in the middle of anything.
                if how % 4 == 3 {
                    daemon.stop();
                } else {
                    daemon.kill();
                }
                daemon = start();
                for peer in &mut peers {
                    let connected = peer.socket.take().is_some();
                    peer.mirror.host_ended();
                    if connected {
                        peer.connect(&daemon).await;
                    }
                }
            }
            // Up to 32 ms: what the daemon and the connection do in between is any part of their work.
            Step::Wait => tokio::time::sleep(Duration::from_millis(u64::from(how) / 8)).await,
            step => {
                let peer = &mut peers[client];
                peer.mirror.step(step, number, at, how);
                if let Some(socket) = &mut peer.socket {
                    for frame in peer.mirror.outgoing() {
                        socket.send(&frame).await;
                    }
                }
            }
        }
        // Every other step finds the clients as they were before the last one.
        if how.is_multiple_of(2) {
            for peer in &mut peers {
                peer.exchange().await;
            }
        }
    }
    equal(&daemon, &mut peers).await
}

/// Connects everybody and waits until all have what a client of their version has that has just connected.
async fn equal(daemon: &Daemon, peers: &mut [Peer]) -> Result<(), String> {
    for peer in peers.iter_mut() {
        peer.connect(daemon).await;
        peer.exchange().await;
        peer.mirror.want_everything();
    }
    let mut fresh = [("older", Version::V0_9), ("newer", Version::V1)]
        .map(|(name, version)| Peer { mirror: Mirror::new(name, version).with(BESIDE), socket: None });
    let end = Instant::now() + LIMIT / 2;
    loop {
        for peer in peers.iter_mut() {
            peer.connect(daemon).await;
            peer.exchange().await;
        }
        // A session that is asked for is its client's own once it is there.
        let own: BTreeSet<String> = peers.iter().flat_map(|peer| peer.mirror.own()).cloned().collect();
        for peer in &mut fresh {
            peer.connect(daemon).await;
            peer.mirror.follow_sessions(own.clone());
            peer.exchange().await;
        }
        let compared = peers.iter().try_for_each(|peer| {
            let fresh = fresh.iter().find(|fresh| fresh.mirror.version() == peer.mirror.version()).unwrap();
            fresh.mirror.compare(&fresh.mirror).and_then(|()| peer.mirror.compare(&fresh.mirror))
        });
        if compared.is_ok() || Instant::now() > end {
            return compared;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn all_clients_of_a_daemon_that_is_killed_end_equal() {
    let cases = std::env::var("OSTLER_RECONNECT_DAEMON_CASES").ok().and_then(|cases| cases.parse().ok());
    // A history takes seconds, and another run of it may take another course: few smaller ones are tried.
    let config =
        ProptestConfig { cases: cases.unwrap_or(CASES), max_shrink_iters: 16, ..ProptestConfig::default() };
    let histories = proptest::collection::vec(choice(), 20..120);
    TestRunner::new(config)
        .run(&histories, |steps| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(play(&steps)).map_err(TestCaseError::fail)
        })
        .unwrap_or_else(|failure| panic!("{failure}"));
}
