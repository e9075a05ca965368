//! Agents that fail: the turn ends with one error that says what to do, and the next turn continues the conversation.

use std::time::Duration;

use serde_json::{Value, json};

use crate::talk::{Stage, last};

#[tokio::test]
async fn an_agent_that_ends_during_a_turn_is_started_again_with_the_conversation() {
    let stage = Stage::new(json!({ "stderr": "panic: out of hay" }));
    let mut talk = stage.talk().await;
    assert_eq!(talk.say("remember seven").await, "You said: remember seven");
    let error = talk.fail("!say working\n!exit 9").await;
    assert_eq!(error["errorType"], "agentEnded");
    let message = error["message"].as_str().unwrap();
    assert!(message.starts_with("fake ended with exit code 9; its last output was:\n"), "{message}");
    assert!(
        message.contains("panic: out of hay") && message.ends_with("; send the message again to restart it"),
        "{message}"
    );
    // This one can neither load nor resume: it is told.
    let said = talk.say("!heard").await;
    assert!(said.contains("User: remember seven\n\nAssistant: You said: remember seven"), "{said}");
    assert_eq!(talk.say("!heard").await, "!heard", "told once");
}

#[tokio::test]
async fn an_agent_that_can_resume_is_told_nothing_again() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let stage = Stage::new(
        json!({ "log": log.path(), "initialize": { "agentCapabilities": { "sessionCapabilities": { "resume": {} }, "loadSession": true } } }),
    );
    let mut talk = stage.talk().await;
    talk.say("one").await;
    talk.fail("!exit 1").await;
    assert_eq!(talk.say("!heard").await, "!heard");
    let sent = std::fs::read_to_string(log.path()).unwrap();
    assert!(sent.contains("\"method\":\"session/resume\"") && !sent.contains("session/load"), "{sent}");
}

#[tokio::test]
async fn an_agent_that_lost_its_session_is_told_the_conversation() {
    let refused = json!({ "code": -32002, "message": "Resource not found" });
    let stage = Stage::new(
        json!({ "initialize": { "agentCapabilities": { "loadSession": true } }, "refuse": { "session/load": refused } }),
    );
    let mut talk = stage.talk().await;
    talk.say("remember seven").await;
    talk.fail("!exit 1").await;
    let said = talk.say("!heard").await;
    assert!(said.contains("User: remember seven"), "{said}");
    stage.folder.wait_for_log("session/load failed: Resource not found");
}

#[tokio::test]
async fn a_conversation_continues_after_the_host_restarts() {
    for kill in [false, true] {
        let stage = Stage::new(json!({}));
        let mut talk = stage.talk().await;
        talk.say("remember seven").await;
        drop(talk);
        let stage = stage.restarted(kill);
        let client = stage.daemon.initialized("later").await;
        let mut talk = crate::talk::Talk::join(client, "fake:/one").await;
        let said = talk.say("!heard").await;
        assert!(said.contains("User: remember seven"), "{said}");
    }
}

#[tokio::test]
async fn a_signal_is_named() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let error = talk.fail("!abort").await;
    assert!(error["message"].as_str().unwrap().starts_with("fake ended by signal 9"), "{error}");
}

#[tokio::test]
async fn a_missing_program_says_how_to_install_it() {
    let stage = Stage::of(json!({ "command": "no-such-agent", "name": "Nobody" }), json!({}));
    let mut talk = stage.talk().await;
    let error = talk.fail("hello").await;
    assert_eq!(
        error,
        json!({ "errorType": "agentNotInstalled", "message":
            "Nobody cannot start: no-such-agent is not installed; install it, or correct agents.fake.command" })
    );
    let stage = Stage::of(json!({ "preset": "gemini", "env": { "PATH": "/nowhere" } }), json!({}));
    let mut talk = stage.talk().await;
    let error = talk.fail("hello").await;
    assert_eq!(
        error["message"],
        "Gemini CLI cannot start: npx is not installed; install Node.js, which brings npx"
    );
}

#[tokio::test]
async fn an_expired_login_names_the_ways_to_sign_in() {
    let required = json!({ "code": -32000, "message": "Authentication required" });
    let methods = json!([{ "id": "oauth", "name": "Log in with Hay" }, { "id": "t", "type": "terminal", "name": "Terminal", "args": ["login"] }]);
    let stage = Stage::new(
        json!({ "initialize": { "authMethods": methods }, "refuse": { "session/new": required } }),
    );
    let mut talk = stage.talk().await;
    let error = talk.fail("hello").await;
    assert_eq!(error["errorType"], "agentNotSignedIn");
    let message = error["message"].as_str().unwrap();
    assert_eq!(
        message,
        "fake is not signed in; run `ostler agent login fake --method oauth` (Log in with Hay), or run `ostler agent login \
         fake --method t` (Terminal), or set its API key in agents.fake.env"
    );
}

#[tokio::test]
async fn an_agent_that_hangs_is_stopped() {
    for method in ["initialize", "session/new"] {
        let stage = Stage::with(
            json!({ "hangOn": method, "stderr": "waiting for hay" }),
            json!({ "startTimeoutSeconds": 1 }),
        );
        let mut talk = stage.talk().await;
        let error = talk.fail("hello").await;
        assert_eq!(error["errorType"], "agentNotResponding");
        let message = error["message"].as_str().unwrap();
        assert!(
            message.starts_with(&format!("fake did not answer {method} within 1 seconds and was stopped")),
            "{message}"
        );
        assert!(message.contains("waiting for hay"), "{message}");
    }
}

#[tokio::test]
async fn a_cancelled_prompt_that_is_not_answered_stops_the_agent() {
    let stage = Stage::with(json!({}), json!({ "cancelTimeoutSeconds": 1 }));
    let mut talk = stage.talk().await;
    let turn = talk.begin("!say begun\n!sleep 30000").await;
    talk.until(&["chat/responsePart"]).await;
    talk.act(json!({ "type": "chat/turnCancelled", "turnId": turn, "duration": 0 })).await;
    talk.until(&["chat/turnCancelled"]).await;
    let said = tokio::time::timeout(Duration::from_secs(20), talk.say("hello")).await.unwrap();
    assert!(said.ends_with("hello"), "{said}");
}

#[tokio::test]
async fn output_that_is_not_acp_is_quoted() {
    let stage = Stage::of(
        json!({ "command": "/bin/sh", "args": ["-c", "echo 'usage: tool [--acp]'; exec sleep 60"] }),
        json!({ "startTimeoutSeconds": 1 }),
    );
    let mut talk = stage.talk().await;
    let message = talk.fail("hello").await["message"].as_str().unwrap().to_owned();
    assert!(message.contains("; its output is not ACP: \"usage: tool [--acp]\""), "{message}");
}

#[tokio::test]
async fn a_flood_that_is_not_acp_ends_the_agent() {
    let stage = Stage::of(json!({ "command": "/bin/sh", "args": ["-c", "yes"] }), json!({}));
    let mut talk = stage.talk().await;
    let error = tokio::time::timeout(Duration::from_secs(30), talk.fail("hello")).await.unwrap();
    assert!(error["message"].as_str().unwrap().contains("its output is not ACP: \"y\""), "{error}");
}

#[tokio::test]
async fn a_flood_of_updates_arrives_whole() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let said = talk.say("!flood 5000").await;
    let expected: String = (0..5000).map(|at| format!("{at} ")).collect();
    assert_eq!(said, expected);
}

#[tokio::test]
async fn another_version_of_the_protocol_is_refused() {
    let stage = Stage::new(json!({ "initialize": { "protocolVersion": 2 } }));
    let mut talk = stage.talk().await;
    let message = talk.fail("hello").await["message"].as_str().unwrap().to_owned();
    assert!(
        message.starts_with("fake refused initialize: ") && message.contains("protocol version 1"),
        "{message}"
    );
}

#[tokio::test]
async fn a_refused_prompt_keeps_the_agent() {
    let refused =
        json!({ "code": -32603, "message": "Internal error", "data": { "details": "quota exceeded" } });
    let stage = Stage::new(json!({ "refuse": { "session/prompt": refused } }));
    let mut talk = stage.talk().await;
    let error = talk.fail("hello").await;
    assert_eq!(error["message"], "fake refused session/prompt: Internal error: quota exceeded");
}

#[tokio::test]
async fn a_failed_turn_can_be_run_again() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let turn = talk.begin("!exit 1").await;
    let seen = talk.until(&["chat/error"]).await;
    assert_eq!(last(&seen)["part"]["resumable"], true);
    talk.act(json!({ "type": "chat/turnResume", "turnId": turn })).await;
    let seen = talk.until(&["chat/error"]).await;
    assert_eq!(last(&seen)["turnId"], Value::String(turn), "the agent was asked again, and ended again");
}

#[tokio::test]
async fn an_agent_whose_login_expires_during_a_session_is_started_again() {
    let stage = Stage::new(
        json!({ "initialize": { "authMethods": [{ "id": "oauth", "name": "Log in with Hay" }] } }),
    );
    let mut talk = stage.talk().await;
    let before = talk.say("!pid").await;
    let required = json!({ "code": -32000, "message": "Authentication required" });
    let error = talk.fail(&format!("!refuse {required}")).await;
    assert_eq!(error["errorType"], "agentNotSignedIn");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("run `ostler agent login fake --method oauth` (Log in with Hay)"), "{message}");
    assert_eq!(error["_meta"]["ostler.authMethods"][0]["id"], "oauth", "{error}");
    // It has read its login when it started.
    let after = talk.say("!pid").await;
    assert_ne!(before, after);
    let said = talk.say("!heard").await;
    assert!(!said.contains("User:"), "told once: {said}");
}

#[tokio::test]
async fn a_program_that_cannot_be_run_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent");
    std::fs::write(&file, "#!/bin/sh\n").unwrap();
    for scope in ["auto", "group"] {
        let stage = Stage::of(json!({ "command": file }), json!({ "scope": scope }));
        let error = stage.talk().await.fail("hello").await;
        let expected = format!(
            "fake cannot start: {} is not executable; make it an executable program, or correct agents.fake.command",
            file.display()
        );
        assert_eq!((&error["errorType"], &error["message"]), (&json!("agent"), &json!(expected)), "{scope}");
    }
    let stage = Stage::of(json!({ "command": "/bin/sh", "args": ["-c", "exit 126"] }), json!({}));
    let error = stage.talk().await.fail("hello").await;
    let message = error["message"].as_str().unwrap();
    assert!(
        message.starts_with("fake ended with exit code 126: its program could not be run; "),
        "{message}"
    );
}

#[tokio::test]
async fn an_agent_that_fails_with_its_session_gets_a_new_one_that_is_told_the_conversation() {
    let load = json!({ "agentCapabilities": { "loadSession": true } });
    let resume = json!({ "agentCapabilities": { "sessionCapabilities": { "resume": {} } } });
    for (fault, method, initialize) in
        [("exitOn", "session/load", load), ("hangOn", "session/resume", resume)]
    {
        let stage = Stage::with(
            json!({ "initialize": initialize, fault: method }),
            json!({ "startTimeoutSeconds": 5 }),
        );
        let mut talk = stage.talk().await;
        talk.say("remember seven").await;
        talk.fail("!exit 1").await;
        let said = talk.say("!heard").await;
        assert!(said.contains("User: remember seven"), "{fault}: {said}");
        stage.folder.wait_for_log(&format!("{method} failed, and a new session is opened: fake "));
        assert_eq!(talk.say("!heard").await, "!heard", "told once");
    }
}

#[tokio::test]
async fn a_message_that_is_too_long_is_named() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let error = talk.fail("!bulk 1 17000000").await;
    assert_eq!(error["errorType"], "agentEnded");
    let message = error["message"].as_str().unwrap();
    assert!(message.starts_with("fake was stopped: it sent a message of more than 16 MiB"), "{message}");
    assert!(message.ends_with("; send the message again to restart it"), "{message}");
    assert_eq!(talk.say("!say again").await, "again");
}

#[tokio::test]
async fn the_hidden_context_of_a_chat_waits_until_its_agent_runs() {
    let flag = tempfile::tempdir().unwrap();
    let mut entry = crate::agent::entry(json!({}));
    let line = entry["args"][1].as_str().unwrap().to_owned();
    let flag = flag.path().join("started");
    entry["args"][1] = format!("if [ ! -e {0} ]; then touch {0}; exit 7; fi; {line}", flag.display()).into();
    let preamble = "export const name = 'preamble'\nexport const apply = (host) => host.registerChatPreamble(() => 'mind the horses')";
    let stage = Stage::configured(entry, json!({}), json!({}), Some(preamble));
    let mut talk = stage.talk().await;
    let chat = "ahp-chat:/second";
    talk.client.request("createChat", json!({ "channel": talk.session, "chat": chat })).await.unwrap();
    talk.client.subscribe(chat).await;
    talk.chat = chat.to_owned();
    assert_eq!(talk.fail("hello").await["errorType"], "agentEnded");
    let said = talk.say("!heard").await;
    assert!(said.contains("mind the horses"), "{said}");
    assert_eq!(talk.say("!heard").await, "!heard", "told once");
}
