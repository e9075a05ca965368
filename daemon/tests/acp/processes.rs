//! No agent's process outlives its session, however it behaves.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Signal, wait_for};
use crate::talk::{Stage, Talk};

/// The processes that agents of a daemon started and that still run.
fn left(daemon: u32) -> Vec<String> {
    let marker = format!(".{daemon}.");
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter(|entry| {
            let environ = fs::read(entry.path().join("environ")).unwrap_or_default();
            environ.split(|byte| *byte == 0).any(|variable| {
                let variable = String::from_utf8_lossy(variable);
                variable
                    .strip_prefix("OSTLER_AGENT_SCOPE=ostler-agent.")
                    .is_some_and(|of| of.contains(&marker))
            })
        })
        .map(|entry| fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default().replace('\0', " "))
        .collect()
}

async fn none_is_left(daemon: u32) {
    let end = Instant::now() + Duration::from_secs(20);
    while !left(daemon).is_empty() {
        assert!(Instant::now() < end, "{:?}", left(daemon));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// An agent that ignores the end of its input and leaves a process in a session of its own.
fn stubborn() -> Value {
    json!({ "ignoreEof": true, "daemon": true })
}

const SCOPES: [&str; 2] = ["auto", "group"];

async fn dispose(talk: &mut Talk) {
    let params = json!({ "channel": talk.session });
    talk.client.request("disposeSession", params).await.unwrap();
}

#[tokio::test]
async fn closing_a_session_ends_everything_its_agent_started() {
    for scope in SCOPES {
        let stage = Stage::with(stubborn(), json!({ "scope": scope }));
        let daemon = stage.daemon.child.id();
        let mut talk = stage.talk().await;
        talk.say("hello").await;
        let running = left(daemon);
        assert!(running.iter().any(|line| line.contains("sleep 300")), "{scope}: {running:?}");
        dispose(&mut talk).await;
        none_is_left(daemon).await;
    }
}

#[tokio::test]
async fn what_an_agent_left_behind_when_it_ended_is_ended_too() {
    for scope in SCOPES {
        let stage = Stage::with(stubborn(), json!({ "scope": scope }));
        let daemon = stage.daemon.child.id();
        let mut talk = stage.talk().await;
        talk.fail("!exit 1").await;
        none_is_left(daemon).await;
    }
}

#[tokio::test]
async fn a_daemon_that_stops_leaves_nothing() {
    for scope in SCOPES {
        let stage = Stage::with(stubborn(), json!({ "scope": scope }));
        let daemon = stage.daemon.child.id();
        let mut talk = stage.talk().await;
        talk.say("hello").await;
        stage.daemon.stop();
        none_is_left(daemon).await;
    }
}

#[tokio::test]
async fn the_next_start_removes_what_a_killed_daemon_left() {
    for scope in SCOPES {
        let stage = Stage::with(stubborn(), json!({ "scope": scope }));
        let daemon = stage.daemon.child.id();
        let mut talk = stage.talk().await;
        talk.say("hello").await;
        stage.daemon.signal(Signal::KILL);
        let stage = stage.restarted(true);
        none_is_left(daemon).await;
        drop(stage);
    }
}

#[tokio::test]
async fn an_idle_agent_sleeps_and_the_next_turn_wakes_it() {
    let stage = Stage::with(json!({}), json!({ "idleMinutes": 0.005 }));
    let daemon = stage.daemon.child.id();
    let mut talk = stage.talk().await;
    talk.say("remember seven").await;
    assert!(!left(daemon).is_empty());
    none_is_left(daemon).await;
    let said = talk.say("!heard").await;
    assert!(said.contains("User: remember seven"), "{said}");
}

#[tokio::test]
async fn terminals_end_with_their_session() {
    for scope in SCOPES {
        let stage = Stage::with(json!({}), json!({ "scope": scope }));
        let daemon = stage.daemon.child.id();
        let mut talk = stage.talk().await;
        talk.say(r#"!request terminal/create { "command": "sleep", "args": ["300"] }"#).await;
        let runs = || left(daemon).iter().any(|line| line.contains("sleep 300")).then_some(());
        assert!(wait_for(runs).is_some(), "{scope}: {:?}", left(daemon));
        dispose(&mut talk).await;
        none_is_left(daemon).await;
    }
}

#[tokio::test]
async fn many_sessions_of_a_stubborn_agent_leave_nothing() {
    const SESSIONS: usize = 200;
    const AT_ONCE: usize = 20;
    for scope in SCOPES {
        let stage = Stage::with(stubborn(), json!({ "scope": scope }));
        let daemon = stage.daemon.child.id();
        for batch in 0..SESSIONS / SCOPES.len() / AT_ONCE {
            let sessions = (0..AT_ONCE).map(|at| {
                let stage = &stage;
                async move {
                    let mut talk = stage.talk_in(&format!("fake:/{batch}-{at}"), json!({})).await;
                    talk.say("hello").await;
                    dispose(&mut talk).await;
                }
            });
            futures::future::join_all(sessions).await;
        }
        none_is_left(daemon).await;
        let zombies = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            let (_, rest) = stat.rsplit_once(')')?;
            let mut fields = rest.split_whitespace();
            (fields.next()? == "Z" && fields.next()? == daemon.to_string()).then_some(())
        });
        assert_eq!(zombies.count(), 0, "{scope}: processes whose end was not collected");
    }
}
