//! A process that is killed at any moment loses nothing that was answered, shown or finished.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;
use support::{Client, Daemon, Folder, runs_of};

const ROUNDS: u32 = 6;

/// What a client was told, which therefore has to be there after the next start.
#[derive(Default)]
struct Told {
    calls: usize,
    turns: BTreeSet<(String, String)>,
}

/// Talks to a session, turn after turn, until the daemon is gone; every turn whose end was seen is noted.
async fn talk(mut client: Client, session: String) -> Vec<(String, String)> {
    let chat = ostler_protocol::uri::default_chat(&session);
    let mut seen = Vec::new();
    for (method, params) in [
        ("createSession", json!({ "channel": session, "provider": "echo" })),
        ("subscribe", json!({ "channel": chat })),
    ] {
        if client.try_request(method, params).await.is_none() {
            return seen;
        }
    }
    for at in 0.. {
        let id = format!("t{at}");
        let turn =
            json!({ "type": "chat/turnStarted", "turnId": id, "message": { "text": format!("say {at}") } });
        if !client.try_dispatch(&chat, at, turn).await {
            break;
        }
        loop {
            let Some(frame) = client.next_frame().await else { return seen };
            if frame["params"]["action"]["type"] == "chat/turnComplete" {
                seen.push((session.clone(), id));
                break;
            }
        }
    }
    seen
}

/// Calls the endpoint until the daemon is gone; answers how many calls were accepted.
async fn call(address: String) -> usize {
    let mut accepted = 0;
    while support::post(&address, "/plugins/webhook/in", Some("right"), "{}")
        .await
        .is_some_and(|(status, _)| status == 202)
    {
        accepted += 1;
    }
    accepted
}

async fn round(folder: &Folder, at: u32, told: &mut Told) {
    let daemon = folder.start();
    check(folder, &daemon, told).await;
    let mut work = Vec::new();
    for lane in 0..3 {
        let client = daemon.initialized(&format!("talker-{lane}")).await;
        work.push(tokio::spawn(talk(client, format!("echo:/{at}-{lane}"))));
    }
    let caller = tokio::spawn(call(daemon.address().to_owned()));
    // Another moment every time.
    tokio::time::sleep(Duration::from_millis(u64::from(40 + 37 * at))).await;
    daemon.kill();
    for lane in work {
        told.turns.extend(lane.await.unwrap());
    }
    told.calls += caller.await.unwrap();
}

async fn check(folder: &Folder, daemon: &Daemon, told: &Told) {
    let mut client = daemon.initialized("checker").await;
    let catalogue = client.subscribe("ahp-automations://").await;
    let entry = catalogue["entries"]
        .as_array()
        .unwrap()
        .iter()
        .find(|entry| entry["resource"] == "ahp-automation:/note");
    assert!(entry.is_some(), "{catalogue}");
    let kept = all_runs(&mut client).await;
    assert!(kept >= told.calls, "{kept} runs of {} accepted calls", told.calls);
    assert_eq!(runs_of(&catalogue, "note").is_empty(), told.calls == 0);
    for session in told.turns.iter().map(|(session, _)| session).collect::<BTreeSet<_>>() {
        let chat = client.subscribe(&ostler_protocol::uri::default_chat(session)).await;
        let turns = chat["turns"].as_array().unwrap();
        for (_, id) in told.turns.iter().filter(|(of, _)| of == session) {
            let turn = turns.iter().find(|turn| turn["id"] == json!(id));
            let turn = turn.unwrap_or_else(|| panic!("{session} has lost its turn {id}: {turns:?}"));
            let said = format!("say {}", &id[1..]);
            assert_eq!(turn["message"]["text"], json!(said));
            assert_eq!(turn["responseParts"][0]["content"], json!(said));
        }
    }
    assert_eq!(daemon.post("/plugins/webhook/in", Some("wrong"), "{}").await.0, 401);
    assert!(!folder.read("log").contains("could not be read"), "{}", folder.read("log"));
}

/// How many runs the automation has had: those of the snapshot, and page after page of those before.
async fn all_runs(client: &mut Client) -> usize {
    let mut catalogue = client.subscribe("ahp-automations://").await;
    let mut shown = 0;
    loop {
        let entry =
            catalogue["entries"].as_array().unwrap().iter().find(|entry| entry["runs"].is_array()).cloned();
        let Some(entry) = entry else { return 0 };
        let held = entry["runs"].as_array().unwrap().len();
        let Some(cursor) = entry["runsNextCursor"].as_str() else { return held };
        assert!(held > shown, "a page brings more");
        shown = held;
        let params =
            json!({ "channel": "ahp-automations://", "automation": entry["resource"], "cursor": cursor });
        client.request("fetchAutomationRuns", params).await.unwrap();
        catalogue = client.subscribe("ahp-automations://").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_answered_is_lost_when_the_process_is_killed() {
    let folder = Folder::with_webhook("hello");
    folder.write("notes/kept.md", "---\nid: kept\n---\nStill here.\n");
    let mut told = Told::default();
    for at in 0..ROUNDS {
        round(&folder, at, &mut told).await;
    }
    assert!(told.calls > 0 && !told.turns.is_empty(), "{} calls, {} turns", told.calls, told.turns.len());
    let daemon = folder.start();
    check(&folder, &daemon, &told).await;
    assert_eq!(folder.read("notes/kept.md"), "---\nid: kept\n---\nStill here.\n");
}
