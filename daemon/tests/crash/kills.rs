//! A process that is killed at any moment loses nothing that was answered, shown or finished.

use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use crate::roads::{self, Outside};
use crate::support::{Client, Folder};
use crate::told::Told;
use crate::{Dice, found, rounds, seed};

/// The moments it is killed at, which `OSTLER_CRASH_ROUNDS` overrides, and how long each of them may take on average.
/// It takes longer only where the machine is so slow that there was nothing to lose yet.
const ROUNDS: u32 = 12;
const EACH: Duration = Duration::from_secs(1);
/// How long it works at most before it is killed.
const LONGEST: Duration = Duration::from_millis(300);

/// Edits a file by hand, as an editor that saves in place does, until it is told to stop.
async fn edit(path: std::path::PathBuf, stop: tokio::sync::watch::Receiver<bool>) {
    for at in 0.. {
        if *stop.borrow() {
            return;
        }
        std::fs::write(&path, format!("---\nid: edited\n---\nEdited {at} times.\n")).unwrap();
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}

async fn round(folder: &Folder, outside: &Outside, at: u32, told: &Told, dice: &mut Dice) {
    let daemon = folder.start();
    found::check(folder, &daemon, outside, told, SystemTime::now()).await;
    let lanes = roads::begin(folder, &daemon, outside, told, at).await;
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let editor = tokio::spawn(edit(folder.path().join("notes/edited.md"), stopped));
    // Another moment every time: while it starts to work, or in the middle of it.
    let longest = if told.of_every_kind() { LONGEST } else { LONGEST * (at + 1) };
    // The moment of the kill.
    tokio::time::sleep(Duration::from_micros(dice.roll(longest.as_micros() as u64))).await;
    daemon.kill();
    lanes.join_all().await;
    stop.send_replace(true);
    editor.await.unwrap();
}

/// A session of its own, with its chat subscribed to.
async fn begun(client: &mut Client, session: &str) -> String {
    client.request("createSession", json!({ "channel": session, "provider": "echo" })).await.unwrap();
    let chat = ostler_protocol::uri::default_chat(session);
    client.subscribe(&chat).await;
    chat
}

#[cfg(unix)]
#[tokio::test]
async fn a_state_file_that_is_removed_is_noticed_and_nothing_more_is_taken() {
    let folder = Folder::with_webhook("hello");
    let daemon = folder.start();
    let mut client = daemon.initialized("c").await;
    let chat = begun(&mut client, "echo:/before").await;
    let (path, away) = (folder.state_file("state.db"), folder.state_file("away.db"));
    std::fs::rename(&path, &away).unwrap();
    folder.wait_for_log("state.db was removed while the host runs, so nothing more is stored");
    let lost = |why: &Value| why.as_str().is_some_and(|why| why.contains("was removed while the host runs"));
    let refused = client.request("createSession", json!({ "channel": "echo:/after" })).await.unwrap_err();
    assert!(lost(&refused["message"]), "{refused}");
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "hello" } });
    client.dispatch(&chat, 1, turn.clone()).await;
    let refused = client.actions_until("chat/turnStarted").await.pop().unwrap();
    assert!(lost(&refused["rejectionReason"]), "{refused}");
    assert_eq!(daemon.post("/plugins/webhook/in", Some("hello"), "{}").await.0, 401);
    let (status, _) = daemon.post("/plugins/webhook/in", Some("right"), "{}").await;
    assert_eq!(status, 503, "a call whose run cannot be stored is not accepted");
    std::fs::rename(&away, &path).unwrap();
    folder.wait_for_log("state.db is available again");
    client.dispatch(&chat, 2, turn).await;
    client.actions_until("chat/turnComplete").await;
    assert_eq!(daemon.post("/plugins/webhook/in", Some("right"), "{}").await.0, 202);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_answered_is_lost_when_the_process_is_killed() {
    let seed = seed();
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let outside = Outside::start().await;
    let folder = roads::folder(&outside);
    let told = Told::default();
    let rounds = rounds("OSTLER_CRASH_ROUNDS", ROUNDS);
    let begun = Instant::now();
    for at in 0..5 * rounds {
        if told.of_every_kind() && (at >= rounds || begun.elapsed() >= EACH * rounds) {
            break;
        }
        round(&folder, &outside, at, &told, &mut dice).await;
    }
    println!("{}", told.figures());
    assert!(told.of_every_kind(), "{}", told.figures());
    let left = [
        "notes/.r1.md.VWC9EQ.ostler-tmp",
        "automations/.a.md.a1B2c3.ostler-tmp",
        ".vault.json.000000.ostler-tmp",
    ];
    let theirs = ["notes/.r1.md.VWC9.ostler-tmp", "notes/r1.ostler-tmp", ".ostler-tmp"];
    for file in left.iter().chain(&theirs) {
        folder.write(file, "---\nid: r1\n---\nhalf of");
    }
    let daemon = folder.start();
    found::check(&folder, &daemon, &outside, &told, SystemTime::now()).await;
    for below in ["", "notes", "automations", "webhooks"] {
        for file in std::fs::read_dir(folder.path().join(below)).unwrap() {
            let name = file.unwrap().path().strip_prefix(folder.path()).unwrap().to_str().unwrap().to_owned();
            assert!(
                !name.ends_with(".ostler-tmp") || theirs.contains(&&*name),
                "{name} was left by a killed writer"
            );
        }
    }
    for file in theirs {
        assert!(folder.path().join(file).is_file(), "{file} was nobody's but theirs");
    }
    assert_eq!(folder.read("notes/kept.md"), "---\nid: kept\n---\nStill here.\n");
    assert!(folder.read("notes/edited.md").starts_with("---\nid: edited\n---\nEdited "));
}
