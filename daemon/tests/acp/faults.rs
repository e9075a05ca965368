//! Agents that fail: the turn ends with one error that says what to do, and the next turn continues the conversation.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::wait_for;
use crate::talk::{Stage, Talk, last};

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

/// An agent uses the code for something else too, such as a quota: its words are what happened, and a sign-in is a hint.
#[tokio::test]
async fn what_an_agent_says_beside_the_code_for_a_sign_in_is_shown() {
    let method = json!([{ "id": "oauth", "name": "Log in with Hay" }]);
    let quota = "the quota of this month is used up";
    let key = ", or set its API key in agents.fake.env";
    for (methods, said, kind, sentence) in [
        (json!([]), quota, "agent", format!("fake refused session/prompt: {quota}")),
        (
            json!([]),
            "Please log in",
            "agentNotSignedIn",
            format!("fake asks for a sign-in: Please log in; sign in with /bin/sh in a terminal{key}"),
        ),
        (
            method,
            quota,
            "agentNotSignedIn",
            format!(
                "fake asks for a sign-in: {quota}; run `ostler agent login fake --method oauth` (Log in with Hay){key}"
            ),
        ),
    ] {
        let stage = Stage::new(json!({ "initialize": { "authMethods": methods } }));
        let refused = json!({ "code": -32000, "message": said });
        let error = stage.talk().await.fail(&format!("!refuse {refused}")).await;
        assert_eq!((&error["errorType"], &error["message"]), (&json!(kind), &json!(sentence)));
    }
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
async fn a_command_that_downloads_the_agent_first_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let npx = folder.path().join("npx");
    std::fs::write(&npx, "#!/bin/sh\nexec sleep 60\n").unwrap();
    std::fs::set_permissions(&npx, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let entry = json!({ "command": npx, "args": ["-y", "some-agent"] });
    let stage = Stage::of(entry, json!({ "startTimeoutSeconds": 1 }));
    let error = stage.talk().await.fail("hello").await;
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("did not answer initialize within 1 seconds"), "{message}");
    assert!(message.contains("; npx downloads it at its first start: check that"), "{message}");
    assert!(message.contains("or raise startTimeoutSeconds; send the message again"), "{message}");
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
async fn a_failed_turn_can_be_run_again_after_a_restart() {
    for kill in [false, true] {
        let stage = Stage::new(json!({}));
        let mut talk = stage.talk().await;
        // Two chunks and a call, which the agent names alike each time.
        let call = json!({ "sessionUpdate": "tool_call", "toolCallId": "dig", "title": "Dig", "status": "completed" });
        let turn = talk.begin(&format!("!say one\n!say two\n!update {call}\n!exit 1")).await;
        let before = last(&talk.until(&["chat/error"]).await)["part"]["error"].clone();
        drop(talk);
        let stage = stage.restarted(kill);
        let mut talk = Talk::join(stage.daemon.initialized("again").await, "fake:/one").await;
        talk.act(json!({ "type": "chat/turnResume", "turnId": turn })).await;
        let seen = talk.until(&["chat/error"]).await;
        let after = &last(&seen)["part"]["error"];
        assert_eq!(after["errorType"], before["errorType"], "the agent was sent the message: {after}");
        let chat = talk.client.subscribe(&talk.chat).await;
        let parts = chat["turns"][0]["responseParts"].as_array().unwrap();
        let said: Vec<_> = parts.iter().filter_map(|part| part["content"].as_str()).collect();
        assert_eq!(said, ["onetwo", "onetwo"], "{parts:?}");
        let calls: Vec<_> = parts.iter().filter_map(|part| part["toolCall"]["status"].as_str()).collect();
        assert_eq!(calls, ["completed", "completed"], "{parts:?}");
    }
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
    let (_stage, mut talk) = with_context(entry).await;
    assert_eq!(talk.fail("hello").await["errorType"], "agentEnded");
    let said = talk.say("!heard").await;
    assert!(said.contains("mind the horses"), "{said}");
    assert_eq!(talk.say("!heard").await, "!heard", "told once");
}

/// A stage whose second chats have a hidden context, and a client in one.
async fn with_context(entry: Value) -> (Stage, Talk) {
    let preamble = "export const name = 'preamble'\nexport const apply = (host) => host.registerChatPreamble(() => 'mind the horses')";
    let stage = Stage::configured(entry, json!({}), json!({}), Some(preamble));
    let mut talk = stage.talk().await;
    let chat = "ahp-chat:/second";
    talk.client.request("createChat", json!({ "channel": talk.session, "chat": chat })).await.unwrap();
    talk.client.subscribe(chat).await;
    talk.chat = chat.to_owned();
    (stage, talk)
}

/// An agent that cannot load its session begins anew: with the conversation, to which the context belongs.
#[tokio::test]
async fn the_hidden_context_is_part_of_the_conversation_that_another_process_is_told() {
    for restarts in [false, true] {
        let (mut stage, mut talk) = with_context(crate::agent::entry(json!({}))).await;
        assert_eq!(talk.say("!say neigh").await, "neigh");
        if restarts {
            stage = stage.restarted(true);
            talk = Talk::join(stage.daemon.initialized("again").await, "fake:/one").await;
            talk.client.subscribe("ahp-chat:/second").await;
            talk.chat = "ahp-chat:/second".to_owned();
        } else {
            talk.fail("!exit 1").await;
        }
        let said = talk.say("!heard").await;
        assert!(said.starts_with("The conversation so far"), "{said}");
        assert!(said.contains("\n\nmind the horses\n\nUser: !say neigh"), "{said}");
        assert_eq!(said.matches("mind the horses").count(), 1, "{said}");
        assert_eq!(talk.say("!heard").await, "!heard", "told once");
        drop(stage);
    }
}

#[tokio::test]
async fn what_is_told_beside_a_message_is_told_again_until_a_prompt_was_answered() {
    let refused = json!({ "code": -32603, "message": "quota exceeded" });
    for fails in [format!("!refuse {refused}"), "!exit 1".to_owned()] {
        let (_stage, mut talk) = with_context(crate::agent::entry(json!({}))).await;
        for _ in 0..2 {
            talk.fail(&fails).await;
        }
        let said = talk.say("!heard").await;
        assert_eq!(said.matches("mind the horses").count(), 1, "{fails}: {said}");
        // Only an agent that was started again has not heard the messages.
        assert_eq!(said.contains(&format!("User: {fails}")), fails == "!exit 1", "{said}");
        assert_eq!(talk.say("!heard").await, "!heard", "told once");
    }
}

#[tokio::test]
async fn a_new_session_is_told_the_conversation_until_a_prompt_was_answered() {
    let refused = json!({ "code": -32603, "message": "quota exceeded" });
    for fails in ["!exit 2".to_owned(), format!("!refuse {refused}")] {
        let folder = tempfile::tempdir().unwrap();
        let lost = json!({ "code": -32002, "message": "Resource not found" });
        let stage = Stage::new(
            json!({ "initialize": { "agentCapabilities": { "sessionCapabilities": { "resume": {} } } },
        "refuse": { "session/resume": lost }, "refusesUntil": folder.path().join("refused") }),
        );
        let mut talk = stage.talk().await;
        talk.say("remember seven").await;
        talk.fail("!exit 1").await;
        // Its session is lost: a new one fails with the prompt that tells it.
        talk.fail(&fails).await;
        stage.folder.wait_for_log("session/resume failed: Resource not found");
        let said = talk.say("!heard").await;
        assert!(said.contains("User: remember seven"), "{said}");
        assert_eq!(talk.say("!heard").await, "!heard", "told once");
    }
}

fn resumes() -> Value {
    json!({ "agentCapabilities": { "sessionCapabilities": { "resume": {} } } })
}

/// Has the agent begin to answer, and kills the daemon. Answers the next one, with a client in the session.
async fn killed_in_a_turn(stage: Stage, mut talk: Talk) -> (Stage, Talk) {
    talk.begin("!say begun\n!hang").await;
    talk.until(&["chat/responsePart"]).await;
    killed(stage, talk).await
}

/// Kills the daemon. Answers the next one, with a client in the session.
async fn killed(stage: Stage, mut talk: Talk) -> (Stage, Talk) {
    // This is acknowledged when it is stored, with what came before it.
    let title = format!("Daemon {}", stage.daemon.child.id());
    talk.act_on("fake:/one", json!({ "type": "session/titleChanged", "title": title })).await;
    talk.until(&["session/titleChanged"]).await;
    drop(talk);
    let stage = stage.restarted(true);
    let talk = Talk::join(stage.daemon.initialized("later").await, "fake:/one").await;
    (stage, talk)
}

#[tokio::test]
async fn a_new_session_that_was_not_told_when_the_host_was_killed_is_told_after_its_restart() {
    let folder = tempfile::tempdir().unwrap();
    let lost = json!({ "code": -32002, "message": "Resource not found" });
    // Its session is lost once: it has the new one.
    let stage = Stage::new(json!({ "initialize": resumes(), "refuse": { "session/resume": lost },
        "refusesUntil": folder.path().join("refused") }));
    let mut talk = stage.talk().await;
    talk.say("remember seven").await;
    talk.fail("!exit 1").await;
    let (stage, mut talk) = killed_in_a_turn(stage, talk).await;
    stage.folder.wait_for_log("session/resume failed: Resource not found");
    let said = talk.say("!heard").await;
    assert!(said.contains("User: remember seven"), "{said}");
    // It answered that prompt: nothing of it is told again.
    let (_stage, mut talk) = killed(stage, talk).await;
    assert_eq!(talk.say("!heard").await, "!heard", "told once");
}

#[tokio::test]
async fn a_rewound_conversation_is_told_after_a_restart_whenever_the_host_was_killed() {
    for opens in [true, false] {
        let (log, flag) = (tempfile::NamedTempFile::new().unwrap(), tempfile::tempdir().unwrap());
        let flag = flag.path().join("hangs");
        let sound = json!({ "initialize": resumes(), "log": log.path() });
        let mut hanging = sound.clone();
        hanging["hangOn"] = "session/new".into();
        let stage = Stage::of(crate::agent::changing(sound, &flag, &hanging), json!({}));
        let mut talk = stage.talk().await;
        let first = talk.begin("remember seven").await;
        talk.until(&["chat/turnComplete"]).await;
        talk.say("forget eight").await;
        talk.act(json!({ "type": "chat/truncated", "turnId": first })).await;
        talk.until(&["chat/truncated"]).await;
        std::fs::write(log.path(), "").unwrap();
        let (stage, mut talk) = if opens {
            killed_in_a_turn(stage, talk).await
        } else {
            std::fs::write(&flag, "").unwrap();
            talk.begin("hello").await;
            let asked = || opened(log.path()).contains(&"session/new".to_owned()).then_some(());
            assert!(wait_for(asked).is_some(), "the agent is asked for a session");
            std::fs::remove_file(&flag).unwrap();
            killed(stage, talk).await
        };
        let said = talk.say("!heard").await;
        assert!(said.contains("User: remember seven") && !said.contains("eight"), "{opens}: {said}");
        drop((talk, stage));
        // Its earlier session has the turn that was removed.
        let asked = if opens { "session/resume" } else { "session/new" };
        assert_eq!(opened(log.path()), ["initialize", "session/new", "initialize", asked], "{opens}");
    }
}

#[tokio::test]
async fn a_session_that_replaced_a_lost_one_is_the_one_that_continues() {
    let (log, flag) = (tempfile::NamedTempFile::new().unwrap(), tempfile::tempdir().unwrap());
    let lost = json!({ "code": -32002, "message": "Resource not found" });
    let second = json!({ "initialize": resumes(), "log": log.path(), "new": { "sessionId": "session-2" },
        "refuse": { "session/resume": lost }, "refusesUntil": flag.path().join("refused") });
    let changed = flag.path().join("changed");
    let first = json!({ "initialize": resumes() });
    let stage = Stage::of(crate::agent::changing(first, &changed, &second), json!({}));
    let mut talk = stage.talk().await;
    talk.say("remember seven").await;
    std::fs::write(&changed, "").unwrap();
    talk.fail("!exit 1").await;
    let said = talk.say("!heard").await;
    assert!(said.contains("User: remember seven"), "{said}");
    std::fs::write(log.path(), "").unwrap();
    let (_stage, mut talk) = killed(stage, talk).await;
    assert_eq!(talk.say("!heard").await, "!heard", "it has the conversation");
    let sent = std::fs::read_to_string(log.path()).unwrap();
    let resumed = sent.lines().find(|line| line.contains("session/resume")).expect("a resumed session");
    assert!(resumed.contains("\"sessionId\":\"session-2\""), "{resumed}");
}

fn both() -> Value {
    json!({ "agentCapabilities": { "sessionCapabilities": { "resume": {} }, "loadSession": true } })
}

/// How often the agent was started, and what it was asked for a session, from its log of frames.
fn opened(log: &Path) -> Vec<String> {
    let sent = std::fs::read_to_string(log).unwrap();
    let frames = sent.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let methods = frames.filter_map(|frame| frame["method"].as_str().map(str::to_owned));
    let opens = ["initialize", "session/new", "session/load", "session/resume"];
    methods.filter(|method| opens.contains(&method.as_str())).collect()
}

#[tokio::test]
async fn an_agent_that_fails_to_resume_its_session_is_asked_to_load_it() {
    for fault in ["exitOn", "hangOn"] {
        let log = tempfile::NamedTempFile::new().unwrap();
        let stage = Stage::with(
            json!({ "log": log.path(), "initialize": both(), fault: "session/resume" }),
            json!({ "startTimeoutSeconds": 5 }),
        );
        let mut talk = stage.talk().await;
        talk.say("remember seven").await;
        talk.fail("!exit 1").await;
        assert_eq!(talk.say("!heard").await, "!heard", "{fault}: it has the conversation");
        stage.folder.wait_for_log("session/resume failed, and session/load is tried: fake ");
        let expected =
            ["initialize", "session/new", "initialize", "session/resume", "initialize", "session/load"];
        assert_eq!(opened(log.path()), expected, "{fault}");
    }
}

#[tokio::test]
async fn an_agent_that_always_fails_is_started_three_times_for_a_turn() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let flag = tempfile::tempdir().unwrap();
    let broken = flag.path().join("broken");
    let sound = json!({ "log": log.path(), "initialize": both() });
    let mut faulty = sound.clone();
    faulty["exitOn"] = json!(["session/resume", "session/load", "session/new"]);
    let stage = Stage::of(crate::agent::changing(sound, &broken, &faulty), json!({}));
    let mut talk = stage.talk().await;
    talk.say("remember seven").await;
    std::fs::write(broken, "").unwrap();
    talk.fail("!exit 1").await;
    for _ in 0..2 {
        std::fs::write(log.path(), "").unwrap();
        let error = talk.fail("hello").await;
        started_three_times(&error);
        let expected =
            ["initialize", "session/resume", "initialize", "session/load", "initialize", "session/new"];
        assert_eq!(opened(log.path()), expected);
    }
    stage.folder.wait_for_log("the agent was started 3 times for one turn, which fails");
}

fn started_three_times(error: &Value) {
    assert_eq!(error["errorType"], "agentEnded");
    let message = error["message"].as_str().unwrap();
    let said = "fake was started 3 times for this message; the last time: fake ended with exit code 9";
    assert!(message.starts_with(said), "{message}");
}

fn level() -> Value {
    json!([{ "id": "level", "name": "Level", "type": "select", "currentValue": "a",
        "options": [{ "value": "a", "name": "A" }, { "value": "b", "name": "B" }] }])
}

#[tokio::test]
async fn an_agent_that_ends_with_a_setting_is_not_started_forever() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let stage = Stage::new(json!({ "log": log.path(), "new": { "configOptions": level() },
        "exitOn": "session/set_config_option" }));
    stage.talk().await.say("hello").await;
    std::fs::write(log.path(), "").unwrap();
    let mut talk = stage.talk_in("fake:/two", json!({ "level": "b" })).await;
    let error = tokio::time::timeout(Duration::from_secs(60), talk.fail("hello")).await.unwrap();
    started_three_times(&error);
    assert_eq!(opened(log.path()).iter().filter(|method| *method == "initialize").count(), 3);
}

#[tokio::test]
async fn a_login_that_a_setting_finds_expired_fails_the_turn() {
    let required = json!({ "code": -32000, "message": "Authentication required" });
    let stage = Stage::new(json!({ "new": { "configOptions": level() },
        "refuse": { "session/set_config_option": required } }));
    stage.talk().await.say("hello").await;
    let mut talk = stage.talk_in("fake:/two", json!({ "level": "b" })).await;
    let error = tokio::time::timeout(Duration::from_secs(60), talk.fail("hello")).await.unwrap();
    assert_eq!(error["errorType"], "agentNotSignedIn", "{error}");
}

#[tokio::test]
async fn what_an_agent_says_of_its_secrets_is_masked() {
    let ends = r#"echo "no hay for $KEY$KEY, $PIN and $PLAIN" >&2; exit 3"#;
    let refuses = r#"read line; printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"wrong: %s","data":{"details":"%s %s"}}}\n' "$(echo "$line" | sed 's/.*"id":\("[^"]*"\|[0-9]*\).*/\1/')" "$KEY" "$PIN" "$PLAIN"; sleep 5"#;
    let noises = r#"echo "hello $KEY $PIN $PLAIN"; exit 3"#;
    let noises_part = r#"printf 'hello %s %.12s' "$PIN" "$KEY"; exit 3"#;
    // The beginning of what is retained is in the middle of it.
    let long = r#"i=0; while [ $i -lt 1000 ]; do printf '%s ' "$KEY"; i=$((i + 1)); done >&2; exit 3"#;
    for (name, script, told) in [
        ("ends", ends, "no hay for <set><set>, <set> and <set>"),
        ("refuses", refuses, "refused initialize: wrong: <set>: <set> <set>"),
        ("noises", noises, "its output is not ACP: \"hello <set> <set> <set>\""),
        ("noises a part", noises_part, "its output is not ACP: \"hello <set> <set>\""),
        ("long", long, "<set> <set>"),
    ] {
        let secret = |name: &str| json!({ "$secret": name });
        let env = json!({ "KEY": secret("host:key"), "PIN": secret("host:pin"), "PLAIN": "plain-token-1" });
        let entry = json!({ "command": "/bin/sh", "args": ["-c", script], "env": env });
        let options = json!({ "agents": { "fake": entry } });
        let folder = crate::support::Folder::new(
            json!({ "plugins": [{ "name": "@ostler/acp", "options": options }] }),
        );
        folder.write("vault.json", r#"{ "host:key": "sk-live-9f8e7d6c", "host:pin": "pin4" }"#);
        let unsaid = |text: &str| {
            for secret in ["sk-live", "9f8e7d6c", "pin4", "plain-token-1"] {
                assert!(!text.contains(secret), "{name}: {secret}: {text}");
            }
        };
        let alone = folder.run(&["agent", "check", "fake", "--json"]);
        let daemon = folder.start();
        let checked = folder.run(&["agent", "check", "fake", "--json"]);
        let sent = folder.run(&["session", "send", "--new", "hello", "--json"]);
        let session = serde_json::from_str::<Value>(&sent.out).unwrap()["session"].clone();
        let shown = folder.run(&["session", "show", session.as_str().unwrap()]);
        assert_eq!(daemon.stop(), Some(0));
        for ended in [&alone, &checked, &sent, &shown] {
            unsaid(&ended.out);
            unsaid(&ended.err);
        }
        let problem = &serde_json::from_str::<Value>(&checked.out).unwrap()["problem"];
        assert!(problem.as_str().unwrap().contains(told), "{name}: {problem}");
        for entry in walk(&folder.state_home()) {
            unsaid(&String::from_utf8_lossy(&std::fs::read(&entry).unwrap()));
        }
    }
}

#[test]
fn what_an_agent_inherits_is_masked() {
    let folder = crate::support::Folder::new(json!({ "plugins": [{ "name": "@ostler/acp", "options":
        { "presets": ["gemini"], "agents": { "own": { "command": "npx" } } } }] }));
    // Its last words are cut in the middle of a key.
    let script = "#!/bin/sh\nprintf 'no {\"key\":\"%s\", \"password\":\"p\\\\u0026w-7-hay\"} %s sk-inherited-12' \
                  \"$GEMINI_API_KEY\" \"$OTHER_TOKEN\" >&2; exit 3\n";
    let npx = folder.path().join("npx");
    std::fs::write(&npx, script).unwrap();
    std::fs::set_permissions(&npx, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    for agent in ["gemini", "own"] {
        let mut check = folder.command(&["agent", "check", agent, "--json"]);
        check.env("PATH", &path).env("GEMINI_API_KEY", "sk-inherited-123456");
        check.env("OTHER_TOKEN", "of-another-9876").env("DB_PASSWORD", "p&w-7-hay");
        let ended = crate::support::ended(&mut check);
        let problem = serde_json::from_str::<Value>(&ended.out).unwrap()["problem"].clone();
        let told = "no {\"key\":\"<set>\", \"password\":\"<set>\"} <set> <set>\n";
        assert!(problem.as_str().unwrap().contains(told), "{agent}: {problem}");
    }
}

#[test]
fn an_answer_that_a_check_cuts_has_no_part_of_a_secret_at_its_end() {
    let mut entry = crate::agent::entry(json!({}));
    entry["env"]["KEY"] = "sk-live-9f8e7d6c".into();
    let options = json!({ "agents": { "fake": entry } });
    let folder =
        crate::support::Folder::new(json!({ "plugins": [{ "name": "@ostler/acp", "options": options }] }));
    let prompt = format!("!say {}\n!env KEY\n!say and more", "x".repeat((16 << 10) - 10));
    let ended = folder.run(&["agent", "check", "fake", "--prompt", &prompt, "--json"]);
    let report: Value = serde_json::from_str(&ended.out).unwrap_or_else(|why| panic!("{why}: {ended:?}"));
    let text = report["answer"]["text"].as_str().unwrap();
    assert!(text.ends_with("xx<set>"), "{}", &text[text.len() - 40..]);
}

/// The files below a folder.
fn walk(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    let below = |entry: std::fs::DirEntry| match entry.path().is_dir() {
        true => walk(&entry.path()),
        false if entry.path().is_file() => vec![entry.path()],
        false => Vec::new(),
    };
    entries.flat_map(below).collect()
}
