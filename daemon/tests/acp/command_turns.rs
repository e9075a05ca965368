//! `!` commands: run by the host in a terminal, shown in the turn, told to the agent with the next prompt.

use std::path::Path;

use serde_json::{Value, json};

use crate::agent;
use crate::talk::{Stage, Talk};

fn stage(agent: Value) -> Stage {
    let config = json!({ "plugins": [{ "name": "@ostler/terminal" }] });
    Stage::configured(agent::entry(agent), json!({}), config, None)
}

fn of<'a>(seen: &'a [Value], kind: &str) -> &'a Value {
    seen.iter().find(|action| action["type"] == kind).unwrap_or_else(|| panic!("no {kind} in {seen:#?}"))
}

/// The prompts that an agent has been sent, from its log of frames.
fn prompts_in(log: &Path) -> Vec<Value> {
    let sent = std::fs::read_to_string(log).unwrap();
    let frames = sent.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    frames
        .filter(|frame| frame["method"] == "session/prompt")
        .map(|frame| frame["params"]["prompt"].clone())
        .collect()
}

#[tokio::test]
async fn a_command_runs_in_a_terminal_and_the_agent_is_told_of_it() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let stage = stage(json!({ "log": log.path() }));
    let mut talk = stage.talk().await;
    let seen = talk.turn("!pwd; printf 'oats\\n'; exit 3").await;
    of(&seen, "chat/turnComplete");
    assert_eq!(of(&seen, "chat/toolCallReady")["toolInput"], "pwd; printf 'oats\\n'; exit 3");
    let terminal = of(&seen, "chat/toolCallContentChanged")["content"][0].clone();
    let result = &of(&seen, "chat/toolCallComplete")["result"];
    assert_eq!((&result["success"], &result["error"]["message"]), (&json!(false), &json!("exit code 3")));
    let output = format!("{}\r\noats\r\n", stage.work().display());
    assert_eq!(result["content"][1]["text"], output);
    // For clients that do not see the terminal.
    let mut ended = terminal.clone();
    ended["result"] = json!({ "exitCode": 3, "preview": output, "truncated": false });
    assert_eq!((&terminal["isPty"], &result["content"][0]), (&json!(true), &ended));
    let shown = talk.client.request("subscribe", json!({ "channel": terminal["resource"] })).await.unwrap();
    assert_eq!(shown["snapshot"]["state"]["lifecycle"]["exitCode"], 3);

    let seen = talk.turn("!true").await;
    assert_eq!(of(&seen, "chat/toolCallComplete")["result"]["success"], true);
    assert!(
        !std::fs::read_to_string(log.path()).unwrap().contains("session/prompt"),
        "the agent is not asked"
    );
    talk.turn("What did I do?").await;
    talk.turn("And now?").await;
    let prompts = prompts_in(log.path());
    let told = prompts[0][0]["text"].as_str().unwrap();
    assert!(
        told.contains("oats") && told.contains("(exit code 3)") && told.ends_with("$ true\n\n(exit code 0)"),
        "{told}"
    );
    assert_eq!(prompts[0][1]["text"], "What did I do?");
    assert_eq!(prompts[1].as_array().unwrap().len(), 1, "it is told once");
}

#[tokio::test]
async fn the_agent_is_told_after_a_restart_of_the_daemon_too() {
    for kill in [false, true] {
        let log = tempfile::NamedTempFile::new().unwrap();
        let capabilities = json!({ "sessionCapabilities": { "resume": {} } });
        let stage = stage(json!({ "log": log.path(), "initialize": { "agentCapabilities": capabilities } }));
        let mut talk = stage.talk().await;
        talk.turn("!printf 'barley\\n'").await;
        talk.say("hello").await;
        talk.turn("!printf 'oats\\n'; exit 3").await;
        talk.turn("!true").await;
        drop(talk);
        let stage = stage.restarted(kill);
        let mut talk = Talk::join(stage.daemon.initialized("later").await, "fake:/one").await;
        talk.say("What did I do?").await;
        talk.say("And now?").await;
        let prompts = prompts_in(log.path());
        let told = prompts[1][0]["text"].as_str().unwrap();
        let expected = "oats\n(exit code 3)\n\n$ true\n\n(exit code 0)";
        assert!(told.ends_with(expected) && !told.contains("barley"), "{told}");
        assert_eq!(prompts[2].as_array().unwrap().len(), 1, "it is told once: {prompts:?}");
    }
}

#[tokio::test]
async fn a_command_that_is_cancelled_is_ended() {
    let stage = stage(json!({}));
    let mut talk = stage.talk().await;
    let turn = talk.begin("!sleep 1000").await;
    let seen = talk.until(&["chat/toolCallContentChanged"]).await;
    let terminal = of(&seen, "chat/toolCallContentChanged")["content"][0]["resource"].clone();
    talk.client.subscribe(terminal.as_str().unwrap()).await;
    talk.act(json!({ "type": "chat/turnCancelled", "turnId": turn, "duration": 1 })).await;
    // The turn and the terminal are watched on different channels: either may be told first.
    for _ in 0..2 {
        talk.until(&["terminal/exited", "chat/turnCancelled"]).await;
    }
    let seen = talk.turn("!true").await;
    assert_eq!(of(&seen, "chat/toolCallComplete")["result"]["success"], true);
}

#[tokio::test]
async fn the_agent_is_told_of_a_command_until_it_takes_the_prompt() {
    let (log, folder) = (tempfile::NamedTempFile::new().unwrap(), tempfile::tempdir().unwrap());
    let refused = json!({ "code": -32603, "message": "quota exceeded" });
    let stage = stage(json!({ "log": log.path(), "refuse": { "session/prompt": refused },
        "refusesUntil": folder.path().join("refused") }));
    let mut talk = stage.talk().await;
    of(&talk.turn("!printf oats").await, "chat/turnComplete");
    talk.fail("What did I do?").await;
    of(&talk.turn("!printf hay").await, "chat/turnComplete");
    talk.say("What did I do?").await;
    talk.say("And now?").await;
    let told: Vec<Vec<usize>> = prompts_in(log.path())
        .iter()
        .map(|prompt| {
            ["$ printf oats", "$ printf hay"].map(|run| prompt.to_string().matches(run).count()).to_vec()
        })
        .collect();
    assert_eq!(told, [[1, 0], [1, 1], [0, 0]]);
}
