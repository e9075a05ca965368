//! A process that is killed at any moment loses nothing that was answered, shown or finished.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{Client, Daemon, Folder, runs_of};

/// The moments it is killed at, which `OSTLER_CRASH_ROUNDS` overrides, and how long each of them may take on average.
/// It takes longer only where the machine is so slow that there was nothing to lose yet.
const ROUNDS: u32 = 12;
const EACH: Duration = Duration::from_secs(1);
/// How long it works at most before it is killed.
const LONGEST: Duration = Duration::from_millis(300);

/// A plugin whose tool keeps a record of its own, and whose other tool says which are kept.
const NOTES: &str = "
export const name = 'notes';
export function apply(host) {
  const notes = host.records('notes', { body: 'text' });
  const tool = (name, run) => host.registerTool({ definition: { name, description: name }, run });
  tool('keep', async ({ id, text }) => { await notes.put({ id, text }); return 'kept'; });
  tool('kept', async () => JSON.stringify((await notes.list()).map(({ id, text }) => [id, text])));
}
";

/// What a client was told, which therefore has to be there after the next start.
#[derive(Default)]
struct Told {
    calls: usize,
    turns: BTreeSet<(String, String)>,
    records: BTreeSet<String>,
    automations: BTreeSet<String>,
}

impl Told {
    /// Whether there is something of every kind that could be lost.
    fn of_every_kind(&self) -> bool {
        self.calls > 0 && !self.turns.is_empty() && !self.records.is_empty() && !self.automations.is_empty()
    }
}

/// Another number every time, and the same for a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % sides
    }
}

/// Returns the first action of a type; none where the daemon is gone before, or refuses an action of this client.
async fn until(client: &mut Client, name: &str) -> Option<Value> {
    loop {
        let frame = client.next_frame().await?;
        if frame["params"].get("rejectionReason").is_some() {
            // What it waits for does not come.
            return None;
        }
        if frame["params"]["action"]["type"] == name {
            return Some(frame["params"]["action"].clone());
        }
    }
}

/// A session of its own, with its chat subscribed to.
async fn begun(client: &mut Client, session: &str) -> Option<String> {
    let chat = ostler_protocol::uri::default_chat(session);
    let create = json!({ "channel": session, "provider": "echo" });
    client.try_request("createSession", create).await?.ok()?;
    client.try_request("subscribe", json!({ "channel": chat })).await?.ok()?;
    Some(chat)
}

/// Has records kept until the daemon is gone; those the tool said are kept are noted.
async fn keep(mut client: Client, round: u32) -> Vec<String> {
    let mut seen = Vec::new();
    let Some(chat) = begun(&mut client, &format!("echo:/keeper-{round}")).await else { return seen };
    for at in 0.. {
        let id = format!("r{round}-{at}");
        let text = format!("/tool keep {}", json!({ "id": id, "text": format!("text of {id}\n") }));
        let turn =
            json!({ "type": "chat/turnStarted", "turnId": format!("t{at}"), "message": { "text": text } });
        if !client.try_dispatch(&chat, at, turn).await {
            break;
        }
        let Some(done) = until(&mut client, "chat/toolCallComplete").await else { break };
        assert_eq!(done["result"]["content"][0]["text"], "kept", "{done}");
        seen.push(id);
        if until(&mut client, "chat/turnComplete").await.is_none() {
            break;
        }
    }
    seen
}

/// Makes automations, and changes each once, until the daemon is gone; those that were shown are noted.
async fn automate(mut client: Client, round: u32) -> Vec<String> {
    let mut seen = Vec::new();
    let all = "ahp-automations://";
    if client.try_request("subscribe", json!({ "channel": all })).await.is_none() {
        return seen;
    }
    for at in 0.. {
        let uri = format!("ahp-automation:/a{round}-{at}");
        let definition = json!({ "title": "Made", "message": { "text": "x", "origin": { "kind": "automation" } },
            "session": { "provider": "echo" }, "enabled": true, "triggers": [] });
        for action in [
            json!({ "type": "automation/createRequested", "resource": uri, "definition": definition }),
            json!({ "type": "automation/updateRequested", "resource": uri, "changes": { "enabled": false } }),
        ] {
            if !client.try_dispatch(all, at, action).await {
                return seen;
            }
            // Calls and runs show theirs as well.
            loop {
                let Some(set) = until(&mut client, "automation/set").await else { return seen };
                if set["automation"]["resource"] == json!(uri) {
                    break;
                }
            }
            seen.push(uri.clone());
        }
    }
    seen
}

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

async fn round(folder: &Folder, at: u32, told: &mut Told, dice: &mut Dice) {
    let daemon = folder.start();
    check(folder, &daemon, told).await;
    let mut talk_all = Vec::new();
    for lane in 0..3 {
        let client = daemon.initialized(&format!("talker-{lane}")).await;
        talk_all.push(tokio::spawn(talk(client, format!("echo:/{at}-{lane}"))));
    }
    let keeper = tokio::spawn(keep(daemon.initialized("keeper").await, at));
    let maker = tokio::spawn(automate(daemon.initialized("maker").await, at));
    let caller = tokio::spawn(call(daemon.address().to_owned()));
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let editor = tokio::spawn(edit(folder.path().join("notes/edited.md"), stopped));
    // Another moment every time: while it starts to work, or in the middle of it.
    let longest = if told.of_every_kind() { LONGEST } else { LONGEST * (at + 1) };
    // The moment of the kill.
    tokio::time::sleep(Duration::from_micros(dice.roll(longest.as_micros() as u64))).await;
    daemon.kill();
    for lane in talk_all {
        told.turns.extend(lane.await.unwrap());
    }
    told.records.extend(keeper.await.unwrap());
    told.automations.extend(maker.await.unwrap());
    told.calls += caller.await.unwrap();
    stop.send_replace(true);
    editor.await.unwrap();
}

async fn check(folder: &Folder, daemon: &Daemon, told: &Told) {
    let mut client = daemon.initialized("checker").await;
    let catalogue = client.subscribe("ahp-automations://").await;
    let there: BTreeSet<&str> = catalogue["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["resource"].as_str().unwrap())
        .collect();
    assert!(there.contains("ahp-automation:/note"), "{catalogue}");
    let gone: Vec<_> = told.automations.iter().filter(|uri| !there.contains(uri.as_str())).collect();
    assert!(gone.is_empty(), "automations that were shown are gone: {gone:?}");
    kept_records(&mut client, told).await;
    let kept = all_runs(&mut client).await;
    assert!(kept >= told.calls, "{kept} runs of {} accepted calls", told.calls);
    // One that was kept, and killed before it was answered, is there as well.
    assert!(told.calls == 0 || !runs_of(&catalogue, "note").is_empty(), "{catalogue}");
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

/// Asks the plugin which records it has.
async fn kept_records(client: &mut Client, told: &Told) {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let session = format!("echo:/checker-{}", ASKED.fetch_add(1, Ordering::Relaxed));
    let chat = begun(client, &session).await.unwrap();
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "/tool kept {}" } });
    client.dispatch(&chat, 1, turn).await;
    let done = until(client, "chat/toolCallComplete").await.unwrap();
    let text = done["result"]["content"][0]["text"].as_str().unwrap().to_owned();
    until(client, "chat/turnComplete").await.unwrap();
    let kept: BTreeMap<String, String> = serde_json::from_str::<Vec<(String, String)>>(&text)
        .unwrap_or_else(|error| panic!("{error}: {done}"))
        .into_iter()
        .collect();
    for id in &told.records {
        let text = kept.get(id).unwrap_or_else(|| panic!("the record {id} is gone: {:?}", kept.keys()));
        assert_eq!(text, &format!("text of {id}\n"));
    }
    assert_eq!(kept["kept"], "Still here.\n");
}

fn of_note(entry: &Value) -> bool {
    entry["resource"] == "ahp-automation:/note"
}

/// How many runs the automation has had: those of the snapshot, and page after page of those before.
async fn all_runs(client: &mut Client) -> usize {
    let mut catalogue = client.subscribe("ahp-automations://").await;
    let mut shown = 0;
    loop {
        let entry = catalogue["entries"].as_array().unwrap().iter().find(|entry| of_note(entry)).cloned();
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

#[cfg(unix)]
#[tokio::test]
async fn a_state_file_that_is_removed_is_noticed_and_nothing_more_is_taken() {
    let folder = Folder::with_webhook("hello");
    let daemon = folder.start();
    let mut client = daemon.initialized("c").await;
    let chat = begun(&mut client, "echo:/before").await.unwrap();
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
    until(&mut client, "chat/turnComplete").await.unwrap();
    assert_eq!(daemon.post("/plugins/webhook/in", Some("right"), "{}").await.0, 202);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_answered_is_lost_when_the_process_is_killed() {
    let seed = RandomState::new().build_hasher().finish() | 1;
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let folder = Folder::with_webhook("hello");
    folder.write("notes.mjs", NOTES);
    let mut config: Value = serde_json::from_str(&folder.read("config.json")).unwrap();
    config["plugins"].as_array_mut().unwrap().push(json!({ "name": "./notes.mjs" }));
    folder.write("config.json", &config.to_string());
    folder.write("notes/kept.md", "---\nid: kept\n---\nStill here.\n");
    let mut told = Told::default();
    let rounds =
        std::env::var("OSTLER_CRASH_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(ROUNDS);
    let begun = Instant::now();
    for at in 0..5 * rounds {
        if told.of_every_kind() && (at >= rounds || begun.elapsed() >= EACH * rounds) {
            break;
        }
        round(&folder, at, &mut told, &mut dice).await;
    }
    let Told { calls, turns, records, automations } = &told;
    let figures = format!(
        "{calls} calls, {} turns, {} records, {} automations",
        turns.len(),
        records.len(),
        automations.len()
    );
    println!("{figures}");
    assert!(told.of_every_kind(), "{figures}");
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
    check(&folder, &daemon, &told).await;
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
