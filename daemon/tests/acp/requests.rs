//! What agents ask of the host: files, commands and approvals, inside and outside what they may.

use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::agent;
use crate::support::wait_for;
use crate::talk::{Stage, Talk, all, last, text_of};

async fn asked(talk: &mut Talk, method: &str, params: &Value) -> Value {
    let said = talk.say(&format!("!request {method} {params}")).await;
    serde_json::from_str(&said).unwrap_or_else(|why| panic!("{why}: {said}"))
}

#[tokio::test]
async fn a_command_starts_inside_the_sessions_directories() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let (work, outside) = (stage.work(), tempfile::tempdir().unwrap());
    std::fs::create_dir(work.join("below")).unwrap();
    symlink(outside.path(), work.join("link")).unwrap();
    symlink(work.join("below"), work.join("own")).unwrap();
    let mut terminals = 0;
    for (cwd, inside) in [
        (work.clone(), true),
        (work.join("below"), true),
        (work.join("own"), true),
        (work.join("below/.."), true),
        (outside.path().to_owned(), false),
        (work.join(".."), false),
        (work.join("link"), false),
        (work.join("missing"), false),
        ("/".into(), false),
        ("below".into(), false),
    ] {
        let params = json!({ "command": "touch", "args": ["started"], "cwd": cwd });
        let answer = asked(&mut talk, "terminal/create", &params).await;
        match inside {
            true => {
                terminals += 1;
                let of = json!({ "terminalId": answer["terminalId"] });
                let ended = asked(&mut talk, "terminal/wait_for_exit", &of).await;
                assert_eq!(ended["exitCode"], 0, "{}: {answer}", cwd.display());
                let started = cwd.join("started");
                std::fs::remove_file(&started).unwrap_or_else(|why| panic!("{}: {why}", started.display()));
            }
            false => assert_eq!(answer["code"], -32602, "{}: {answer}", cwd.display()),
        }
    }
    assert_eq!(terminals, 4);
    assert!(!outside.path().join("started").exists());
}

#[tokio::test]
async fn files_outside_the_sessions_directories_are_neither_read_nor_written() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let (work, outside) = (stage.work(), tempfile::tempdir().unwrap());
    let secret = outside.path().join("secret");
    std::fs::write(&secret, "secret").unwrap();
    symlink(outside.path(), work.join("folder")).unwrap();
    symlink(&secret, work.join("file")).unwrap();
    symlink(outside.path().join("new"), work.join("dangling")).unwrap();
    let up = work.join("..").join(outside.path().file_name().unwrap()).join("secret");
    for path in [
        secret.clone(),
        work.join("file"),
        work.join("folder/secret"),
        work.join("folder/new"),
        work.join("dangling"),
        up,
        "secret".into(),
    ] {
        for (method, params) in [
            ("fs/read_text_file", json!({ "path": path })),
            ("fs/write_text_file", json!({ "path": path, "content": "changed" })),
        ] {
            let answer = asked(&mut talk, method, &params).await;
            assert!(answer["code"].is_i64(), "{method} {}: {answer}", path.display());
        }
    }
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "secret");
    assert!(!outside.path().join("new").exists());
}

#[tokio::test]
async fn only_regular_files_are_read_and_written() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let pipe = stage.work().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let params = json!({ "path": pipe, "content": "x" });
    // None of these keeps a thread waiting for the other end of the pipe.
    let script = format!(
        "!requests 600 fs/read_text_file {params}\n!requests 600 fs/write_text_file {params}\n!request fs/read_text_file {params}"
    );
    let said = tokio::time::timeout(Duration::from_secs(20), talk.say(&script)).await;
    let said = said.expect("an answer while nobody writes into the pipe");
    assert!(said.contains("is not a regular file"), "{said}");
    let mut other =
        tokio::time::timeout(Duration::from_secs(20), stage.talk_in("fake:/two", json!({}))).await.unwrap();
    assert_eq!(tokio::time::timeout(Duration::from_secs(20), other.say("!say on")).await.unwrap(), "on");
    let folder = json!({ "path": stage.work(), "content": "x" });
    for method in ["fs/read_text_file", "fs/write_text_file"] {
        let answer = asked(&mut talk, method, &folder).await;
        assert!(answer["message"].as_str().unwrap().contains("is not a regular file"), "{method}: {answer}");
    }
}

#[tokio::test]
async fn what_is_asked_before_the_session_is_open_is_answered() {
    let work = tempfile::tempdir().unwrap();
    let requests = json!([["fs/read_text_file", { "path": work.path().join("missing") }], ["craft/unknown", {}],
        ["terminal/create", { "command": "true" }]]);
    let stage =
        Stage::with(json!({ "requests": { "session/new": requests } }), json!({ "startTimeoutSeconds": 5 }));
    let mut talk = stage.talk().await;
    let answers: Value = serde_json::from_str(&talk.say("!answers").await).unwrap();
    assert_eq!(answers[0]["code"], -32602, "outside the directories: {answers}");
    assert_eq!(answers[1]["code"], -32601, "{answers}");
    assert_eq!(answers[2]["terminalId"], "terminal-1", "{answers}");
}

#[tokio::test]
async fn an_approval_before_the_session_is_open_is_asked_of_the_user() {
    let permission = json!({ "toolCall": { "toolCallId": "c", "title": "Trust this folder", "kind": "other" },
        "options": [{ "optionId": "yes", "name": "Yes", "kind": "allow_once" }] });
    let requests = json!([["session/request_permission", permission]]);
    let stage =
        Stage::with(json!({ "requests": { "session/new": requests } }), json!({ "startTimeoutSeconds": 2 }));
    let mut talk = stage.talk().await;
    let turn = talk.begin("!answers").await;
    let seen = talk.until(&["session/inputNeededSet", "chat/error"]).await;
    assert_eq!(last(&seen)["request"]["turnId"], turn.as_str(), "{seen:#?}");
    // The user may take longer than the agent, whose time is over unnoticed.
    tokio::time::sleep(Duration::from_millis(2200)).await;
    let answer = json!({ "type": "chat/toolCallConfirmed", "turnId": turn, "toolCallId": "c", "approved": true,
        "confirmed": "user-action" });
    talk.act(answer).await;
    let seen = talk.until(&["chat/turnComplete", "chat/error"]).await;
    let answers: Value =
        serde_json::from_str(&text_of(&seen)).unwrap_or_else(|why| panic!("{why}: {seen:#?}"));
    assert_eq!(answers, json!([{ "outcome": { "outcome": "selected", "optionId": "yes" } }]));
}

#[tokio::test]
async fn a_call_that_was_denied_is_asked_about_again_when_the_agent_asks_again() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let permission = json!({ "toolCall": { "toolCallId": "c", "title": "Run ls", "kind": "execute" },
        "options": [{ "optionId": "yes", "name": "Yes", "kind": "allow_once" }, { "optionId": "no", "name": "No", "kind": "reject_once" }] });
    let ask = format!("!request session/request_permission {permission}");
    let turn = talk.begin(&format!("{ask}\n{ask}")).await;
    for (approved, more) in
        [(false, json!({ "reason": "denied" })), (true, json!({ "confirmed": "user-action" }))]
    {
        let seen = talk.until(&["session/inputNeededSet", "chat/turnComplete"]).await;
        assert_eq!(last(&seen)["type"], "session/inputNeededSet", "{seen:#?}");
        let mut answer = json!({ "type": "chat/toolCallConfirmed", "turnId": turn,
            "toolCallId": last(&seen)["request"]["toolCall"]["toolCallId"], "approved": approved });
        answer.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        talk.act(answer).await;
    }
    let seen = talk.until(&["chat/turnComplete"]).await;
    assert!(text_of(&seen).ends_with("\"optionId\":\"yes\"}}"), "{seen:#?}");
}

#[tokio::test]
async fn a_setting_that_the_agent_does_not_answer_keeps_nothing_waiting() {
    let options = json!([{ "id": "level", "name": "Level", "type": "select", "currentValue": "a",
        "options": [{ "value": "a", "name": "A" }, { "value": "b", "name": "B" }] }]);
    let log = tempfile::NamedTempFile::new().unwrap();
    let stage = Stage::new(
        json!({ "log": log.path(), "hangOn": "session/set_config_option", "new": { "configOptions": options } }),
    );
    let mut talk = stage.talk().await;
    talk.say("hello").await;
    // Settings that are known when a session is created can be changed in it.
    let mut talk = stage.talk_in("fake:/two", json!({})).await;
    let turn = talk.begin("!say begun\n!wait").await;
    talk.until(&["chat/responsePart"]).await;
    let session = talk.session.clone();
    talk.act_on(&session, json!({ "type": "session/configChanged", "config": { "level": "b" } })).await;
    let sent =
        || std::fs::read_to_string(log.path()).unwrap().contains("session/set_config_option").then_some(());
    wait_for(sent).expect("the agent hears of the setting");
    let begun = std::time::Instant::now();
    talk.act(json!({ "type": "chat/turnCancelled", "turnId": turn, "duration": 0 })).await;
    let cancelled =
        || std::fs::read_to_string(log.path()).unwrap().contains("session/cancel\"").then_some(());
    wait_for(cancelled).expect("the agent hears of the cancellation");
    assert!(begun.elapsed() < Duration::from_secs(3), "after {:?}", begun.elapsed());
}

#[tokio::test]
async fn a_title_that_the_agent_takes_back_is_the_hosts_own_again() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let info = |title: Value| {
        format!("!update {}", json!({ "sessionUpdate": "session_info_update", "title": title }))
    };
    // It has given none yet.
    let seen = talk.turn("Feed the horses").await;
    assert!(seen.iter().any(|action| action["title"] == "Feed the horses"), "{seen:#?}");
    let titles = |seen: &[Value]| -> Vec<Value> {
        let changed = seen.iter().filter(|action| action["type"] == "session/titleChanged");
        changed.map(|action| action["title"].clone()).collect()
    };
    assert_eq!(titles(&talk.turn(&info(Value::Null)).await), Vec::<Value>::new());
    assert_eq!(titles(&talk.turn(&info("Hay".into())).await), ["Hay"]);
    // An update without a title changes nothing.
    let nothing = json!({ "sessionUpdate": "session_info_update" });
    let seen = talk.turn(&format!("!update {nothing}\n{}", info(Value::Null))).await;
    assert_eq!(titles(&seen), ["Feed the horses"]);
    // One that a user gave is not taken back.
    talk.turn(&info("Straw".into())).await;
    let session = talk.session.clone();
    talk.act_on(&session, json!({ "type": "session/titleChanged", "title": "Stables" })).await;
    talk.until(&["session/titleChanged"]).await;
    assert_eq!(titles(&talk.turn(&info(Value::Null)).await), Vec::<Value>::new());
}

#[tokio::test]
async fn an_approved_call_without_a_later_status_ends_well() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let permission = json!({ "toolCall": { "toolCallId": "c", "title": "Run ls", "kind": "execute" },
        "options": [{ "optionId": "yes", "name": "Yes", "kind": "allow_once" }] });
    let turn = talk.begin(&format!("!request session/request_permission {permission}")).await;
    talk.until(&["session/inputNeededSet"]).await;
    let answer = json!({ "type": "chat/toolCallConfirmed", "turnId": turn, "toolCallId": "c", "approved": true,
        "confirmed": "user-action" });
    talk.act(answer).await;
    let seen = talk.until(&["chat/turnComplete"]).await;
    let complete = all(&seen, "chat/toolCallComplete");
    assert_eq!(complete.len(), 1, "{seen:#?}");
    assert_eq!(complete[0]["result"]["success"], true, "{seen:#?}");
}

#[tokio::test]
async fn an_approval_in_a_turn_of_the_agent_waits_for_the_user() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let stage = Stage::new(json!({ "log": log.path() }));
    let mut talk = stage.talk().await;
    let ask = json!({ "jsonrpc": "2.0", "id": "late", "method": "session/request_permission", "params": {
        "sessionId": "session-1", "toolCall": { "toolCallId": "c", "title": "Run ls", "kind": "execute" },
        "options": [{ "optionId": "yes", "name": "Yes", "kind": "allow_once" }] } });
    talk.say(&format!("!say early\n!after 200 late\n!later {ask}")).await;
    let seen = talk.until(&["session/inputNeededSet"]).await;
    let turn = last(&seen)["request"]["turnId"].clone();
    assert_eq!(all(&seen, "chat/turnStarted")[0]["turnId"], turn, "{seen:#?}");
    // Longer than nothing may come in such a turn before it ends, which is 400 ms.
    tokio::time::sleep(Duration::from_millis(600)).await;
    let answer = json!({ "type": "chat/toolCallConfirmed", "turnId": turn, "toolCallId": "c", "approved": true,
        "confirmed": "user-action" });
    talk.act(answer).await;
    let seen = talk.until(&["chat/turnComplete"]).await;
    assert_eq!(all(&seen, "chat/toolCallConfirmed").len(), 1, "{seen:#?}");
    let approved =
        || std::fs::read_to_string(log.path()).unwrap().contains("\"optionId\":\"yes\"").then_some(());
    wait_for(approved).expect("the agent hears of the approval");
}

#[tokio::test]
async fn an_agent_that_ends_while_its_own_turn_asks_ends_the_turn() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let ask = json!({ "jsonrpc": "2.0", "id": "late", "method": "session/request_permission", "params": {
        "sessionId": "session-1", "toolCall": { "toolCallId": "c", "title": "Run ls", "kind": "execute" },
        "options": [{ "optionId": "yes", "name": "Yes", "kind": "allow_once" }] } });
    let agent = talk.say(&format!("!pid\n!after 200 late\n!later {ask}")).await;
    talk.until(&["session/inputNeededSet"]).await;
    assert!(Command::new("sh").args(["-c", &format!("kill -KILL {agent}")]).status().unwrap().success());
    let seen = talk.until(&["chat/turnComplete"]).await;
    assert_eq!(all(&seen, "session/inputNeededRemoved").len(), 1, "{seen:#?}");
    assert_eq!(talk.say("!say again").await, "again");
}

#[tokio::test]
async fn a_setting_that_the_agent_rejected_is_not_sent_again() {
    let options = json!([{ "id": "level", "name": "Level", "type": "select", "currentValue": "a",
        "options": [{ "value": "a", "name": "A" }, { "value": "b", "name": "B" }] }]);
    let log = tempfile::NamedTempFile::new().unwrap();
    let rejected = json!({ "code": -32603, "message": "no such level" });
    let stage = Stage::new(json!({ "log": log.path(), "new": { "configOptions": options },
        "refuse": { "session/set_config_option": rejected } }));
    stage.talk().await.say("hello").await;
    // Settings that are known when a session is created can be changed in it.
    let mut talk = stage.talk_in("fake:/two", json!({})).await;
    talk.say("hello").await;
    let session = talk.session.clone();
    talk.act_on(&session, json!({ "type": "session/configChanged", "config": { "level": "b" } })).await;
    let sent = || std::fs::read_to_string(log.path()).unwrap().matches("session/set_config_option").count();
    wait_for(|| (sent() == 1).then_some(())).expect("the agent hears of the setting");
    talk.fail("!exit 1").await;
    assert_eq!(talk.say("!say again").await, "again");
    assert_eq!(sent(), 1);
}

#[tokio::test]
async fn a_setting_of_a_new_session_that_the_agent_rejects_is_shown_as_it_is_and_not_sent_again() {
    let level = |values: &[&str]| {
        let values: Vec<Value> =
            values.iter().map(|value| json!({ "value": value, "name": value })).collect();
        json!([{ "id": "level", "name": "Level", "type": "select", "currentValue": "a", "options": values }])
    };
    let rejected = json!({ "code": -32603, "message": "no such level" });
    // One that the agent rejects, and one that it no longer has.
    for (value, sends) in [("b", 1), ("c", 0)] {
        let log = tempfile::NamedTempFile::new().unwrap();
        let flag = log.path().with_extension("flag");
        let before = json!({ "new": { "configOptions": level(&["a", "b", "c"]) } });
        let after = json!({ "log": log.path(), "new": { "configOptions": level(&["a", "b"]) },
            "refuse": { "session/set_config_option": rejected } });
        let stage = Stage::of(agent::changing(before, &flag, &after), json!({}));
        stage.talk().await.say("hello").await;
        std::fs::write(&flag, "").unwrap();
        let mut talk = stage.talk_in("fake:/two", json!({ "level": value })).await;
        let seen = talk.turn("hello").await;
        assert_eq!(last(&seen)["type"], "chat/turnComplete", "{seen:#?}");
        let shown = all(&seen, "session/configChanged");
        assert_eq!(shown.last().expect("it is shown")["config"]["level"], "a", "{value}: {shown:?}");
        let told = format!(
            "the agent did not take Level = {value}, which was chosen for this session, and continues with a."
        );
        let told = |part: &&Value| {
            part["part"]["content"]["markdown"].as_str().is_some_and(|text| text.contains(&told))
        };
        assert_eq!(all(&seen, "chat/responsePart").iter().copied().filter(told).count(), 1, "{seen:#?}");
        stage.folder.wait_for_log("setting level is left as it is: ");
        let sent =
            || std::fs::read_to_string(log.path()).unwrap().matches("session/set_config_option").count();
        assert_eq!(sent(), sends, "{value}");
        talk.fail("!exit 1").await;
        assert_eq!(talk.say("!say again").await, "again");
        let session = talk.session.clone();
        drop(talk);
        let stage = stage.restarted(false);
        let mut client = stage.daemon.initialized("later").await;
        let state = client.request("subscribe", json!({ "channel": session })).await.unwrap();
        assert_eq!(state["snapshot"]["state"]["config"]["values"]["level"], "a", "{state}");
        let mut talk = Talk::join(client, &session).await;
        assert_eq!(talk.say("!say on").await, "on");
        assert_eq!(sent(), sends, "{value}");
        std::fs::remove_file(flag).unwrap();
    }
}

#[tokio::test]
async fn each_summary_of_a_compaction_is_its_own() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let state = |id: &str, status: &str| json!({ "sessionUpdate": "compaction_update", "compactionId": id, "status": status });
    let piece = |id: &str, text: &str| {
        json!({ "sessionUpdate": "compaction_summary_chunk", "compactionId": id,
            "content": { "type": "text", "text": text } })
    };
    let mut whole = state("a", "completed");
    whole["summary"] = json!([{ "type": "text", "text": "the whole" }]);
    let updates = [
        state("a", "in_progress"),
        piece("a", "a part"),
        whole,
        state("b", "in_progress"),
        piece("b", "of the cancelled one"),
        state("b", "cancelled"),
        state("c", "in_progress"),
        piece("c", "third"),
        state("c", "completed"),
    ];
    let script: Vec<String> = updates.iter().map(|update| format!("!update {update}")).collect();
    let seen = talk.turn(&script.join("\n")).await;
    let notes = all(&seen, "chat/responsePart");
    let notes: Vec<&str> =
        notes.iter().filter_map(|part| part["part"]["content"]["markdown"].as_str()).collect();
    let running = "Compacting the conversation";
    assert_eq!(
        notes,
        [
            running,
            "Compacted the conversation\n\nthe whole",
            running,
            "The compaction was cancelled",
            running,
            "Compacted the conversation\n\nthird"
        ]
    );
}
