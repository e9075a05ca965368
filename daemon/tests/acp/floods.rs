//! Agents that send more than the host can use: the memory of the daemon stays bounded, and others are served.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::wait_within;
use crate::talk::{Stage, all, last, text_of};

/// The most memory that a process has occupied, in MiB.
fn peak(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() >> 10
}

#[tokio::test]
async fn a_turn_is_limited_and_the_next_one_starts_the_agent_again() {
    let commands = json!({ "sessionUpdate": "available_commands_update", "availableCommands": [] });
    let stage = Stage::with(json!({ "early": [commands] }), json!({ "turnOutputLimitMb": 4 }));
    let mut talk = stage.talk().await;
    talk.say("hello").await;
    let before = peak(stage.daemon.child.id());
    let seen = tokio::time::timeout(Duration::from_secs(60), talk.turn("!bulk 20000 20000")).await.unwrap();
    let grown = peak(stage.daemon.child.id()) - before;
    assert!(grown < 100, "400 MB of text took {grown} MiB");
    assert_eq!(
        last(&seen)["part"]["error"],
        json!({ "errorType": "agentOutput", "message": "fake sent more than 4 MB in one turn and was stopped; raise \
            turnOutputLimitMb, or send the message again to restart it" })
    );
    assert_eq!(talk.say("!say on").await, "on");
    // The limit is one of a turn, not of a session.
    for _ in 0..3 {
        assert_eq!(talk.say("!bulk 100 20000").await.len(), 2_000_000);
    }
}

#[tokio::test]
async fn updates_that_come_faster_than_the_host_takes_them_wait_in_the_agent() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    talk.say("hello").await;
    let before = peak(stage.daemon.child.id());
    talk.begin("!bulk 100000 20000").await;
    // A client that is behind is disconnected; nobody watches then.
    drop(talk);
    // That is more than a loaded machine takes in the time of other waits.
    let stopped = "fake sent more than 64 MB in one turn and was stopped";
    let line = wait_within(Duration::from_secs(300), || {
        stage.folder.read("log").lines().find(|line| line.contains(stopped)).map(str::to_owned)
    });
    let line = line.unwrap_or_else(|| panic!("the log never says {stopped:?}: {}", stage.folder.read("log")));
    let grown = peak(stage.daemon.child.id()) - before;
    println!("grown by {grown} MiB");
    // Of the 64 MB there are some copies at once (the state, what is stored, what is sent), more of them on a loaded machine.
    assert!(grown < 512, "2 GB of text took {grown} MiB: {line}");
}

#[tokio::test]
async fn updates_before_the_session_is_open_are_retained_up_to_a_limit() {
    let stage = Stage::new(json!({ "earlyBulk": "400 100000" }));
    let mut talk = stage.talk().await;
    let before = peak(stage.daemon.child.id());
    let seen = talk.turn("!say on").await;
    let grown = peak(stage.daemon.child.id()) - before;
    println!("grown by {grown} MiB");
    assert!(grown < 25, "40 MB of early text took {grown} MiB");
    assert!(text_of(&seen).ends_with("on"), "{:?}", last(&seen));
    stage.folder.wait_for_log("updates that the agent sent before its session was open are left out");
}

#[tokio::test]
async fn long_lists_of_an_agent_are_left_out_before_they_take_memory() {
    let stage = Stage::new(json!({}));
    let mut talks = [stage.talk().await, stage.talk_in("fake:/two", json!({})).await];
    for talk in &mut talks {
        talk.say("hello").await;
    }
    let before = peak(stage.daemon.child.id());
    for talk in &mut talks {
        let seen = talk.turn("!commands 2000\n!say on").await;
        let listed = all(&seen, "session/customizationUpdated");
        assert_eq!(listed[0]["customization"]["children"].as_array().unwrap().len(), 1000);
        // Such a message is not even parsed.
        let seen = talk.turn("!commands 60000\n!say on").await;
        assert!(all(&seen, "session/customizationUpdated").is_empty());
        assert_eq!(text_of(&seen), "on");
    }
    let grown = peak(stage.daemon.child.id()) - before;
    println!("grown by {grown} MiB");
    assert!(grown < 100, "four lists of commands took {grown} MiB");
    stage.folder.wait_for_log("availableCommands has more than 1000 entries");
    stage.folder.wait_for_log("a message of more than 100000 values is left out");
    let stored = stage.folder.read("acp-agents/fake.md");
    assert!(stored.len() < 400 << 10, "{}", stored.len());
    // A request cannot be left out.
    let many: Vec<u8> = vec![0; 150_000];
    let error =
        talks[0].fail(&format!("!request fs/read_text_file {}", json!({ "path": "/a", "x": many }))).await;
    assert!(error["message"].as_str().unwrap().contains("more than 100000 values"), "{error}");
    assert_eq!(talks[0].say("!say on").await, "on");
}

#[tokio::test]
async fn the_calls_of_a_turn_are_limited() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let seen = talk.turn("!calls 6000\n!say on").await;
    assert_eq!(last(&seen)["type"], "chat/turnComplete", "{:#?}", last(&seen));
    assert_eq!(all(&seen, "chat/toolCallStart").len(), 5000);
    assert!(text_of(&seen).ends_with("on"));
    stage.folder.wait_for_log("a turn has more than 5000 tool calls");
}

#[tokio::test]
async fn a_name_that_is_not_known_is_logged_in_short() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let update = json!({ "sessionUpdate": "u".repeat(20_000) });
    assert_eq!(
        talk.say(&format!("!update {update}\n!update {update}\n!update {update}\n!say on")).await,
        "on"
    );
    let line = stage.folder.wait_for_log("an update is left out");
    assert!(line.len() < 1000, "{} bytes", line.len());
    let lines =
        stage.folder.read("log").lines().filter(|line| line.contains("an update is left out")).count();
    assert_eq!(lines, 1, "once for each name");
}

#[tokio::test]
async fn the_output_of_released_terminals_is_bounded() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let round = |at: u32| {
        let of = json!({ "terminalId": format!("terminal-{at}") });
        let create = json!({ "command": "sh", "args": ["-c", "head -c 1000000 /dev/zero | tr '\\0' x"] });
        format!(
            "!request terminal/create {create}\n!request terminal/wait_for_exit {of}\n!request terminal/release {of}"
        )
    };
    talk.say(&round(1)).await;
    let before = peak(stage.daemon.child.id());
    let script: Vec<String> = (2..102).map(round).collect();
    talk.say(&script.join("\n")).await;
    let grown = peak(stage.daemon.child.id()) - before;
    println!("grown by {grown} MiB");
    assert!(grown < 40, "100 MB of output took {grown} MiB");
    // What a call shows is there although the terminal is released.
    let call = json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "Run", "status": "completed",
        "content": [{ "type": "terminal", "terminalId": "terminal-101" }] });
    let seen = talk.turn(&format!("!update {call}")).await;
    let text = seen.iter().find_map(|action| action["result"]["content"][0]["text"].as_str()).unwrap();
    assert!(text.ends_with("xxx"), "{} bytes", text.len());
}

#[tokio::test]
async fn requests_whose_answers_are_not_read_wait_in_the_agent() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let file = stage.work().join("large");
    std::fs::write(&file, "y".repeat(4 << 20)).unwrap();
    talk.say("hello").await;
    let before = peak(stage.daemon.child.id());
    // It reads no answer before it ends.
    let begun = Instant::now();
    let params = json!({ "path": file });
    let turn = talk
        .begin(&format!("!say begun\n!requests 200 fs/read_text_file {params}\n!sleep 2000\n!exit 0"))
        .await;
    let seen = talk.until(&["chat/error", "chat/turnComplete"]).await;
    assert_eq!(last(&seen)["turnId"], turn.as_str());
    let grown = peak(stage.daemon.child.id()) - before;
    println!("grown by {grown} MiB in {:?}", begun.elapsed());
    assert!(grown < 150, "800 MB of answers took {grown} MiB");
}
