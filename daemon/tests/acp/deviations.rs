//! What real agents do that a client has to bear: each as it was seen.

use serde_json::{Value, json};

use crate::support::wait_for;
use crate::talk::{Stage, all, last, text_of};

fn text(text: &str) -> Value {
    json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": text } })
}

fn approval(call: &str) -> String {
    let params = json!({ "toolCall": { "toolCallId": call, "title": "Run ls", "kind": "execute" },
        "options": [{ "optionId": "yes", "name": "Yes", "kind": "allow_once" }] });
    format!("!request session/request_permission {params}")
}

#[tokio::test]
async fn an_approval_for_a_call_that_was_never_announced_opens_it() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let done = json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed" });
    let turn = talk.begin(&format!("{}\n!update {done}", approval("c"))).await;
    let mut seen = talk.until(&["session/inputNeededSet"]).await;
    let confirm = json!({ "type": "chat/toolCallConfirmed", "turnId": turn, "toolCallId": "c", "approved": true, "confirmed": "user-action" });
    talk.act(confirm).await;
    seen.extend(talk.until(&["chat/turnComplete"]).await);
    let steps: Vec<&str> = seen
        .iter()
        .filter_map(|action| action["type"].as_str())
        .filter(|kind| kind.starts_with("chat/toolCall"))
        .collect();
    assert_eq!(
        steps,
        ["chat/toolCallStart", "chat/toolCallReady", "chat/toolCallConfirmed", "chat/toolCallComplete"]
    );
    assert_eq!(all(&seen, "chat/toolCallComplete")[0]["result"]["success"], true);
}

#[tokio::test]
async fn an_update_before_its_call_is_merged_with_it() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let update = json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "in_progress" });
    let call = json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "Read a", "kind": "read", "status": "completed",
        "content": [{ "type": "content", "content": { "type": "text", "text": "hay" } }] });
    let seen = talk.turn(&format!("!update {update}\n!update {call}")).await;
    assert_eq!(all(&seen, "chat/toolCallStart").len(), 1);
    let complete = all(&seen, "chat/toolCallComplete")[0];
    assert_eq!(
        (&complete["result"]["pastTenseMessage"], &complete["result"]["content"][0]["text"]),
        (&json!("Read a"), &json!("hay"))
    );
}

#[tokio::test]
async fn a_request_with_an_unknown_method_is_refused_and_the_turn_continues() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let said = talk.say("!request craft/drainMidTurnQueue {}\n!say after").await;
    assert!(said.contains("-32601") && said.ends_with("after"), "{said}");
}

#[tokio::test]
async fn parts_that_come_after_the_answer_are_in_the_turn() {
    let stage = Stage::new(json!({ "late": " and late" }));
    let mut talk = stage.talk().await;
    assert_eq!(talk.say("!say early").await, "early and late");
}

#[tokio::test]
async fn parts_that_trickle_after_the_answer_are_in_their_turn_and_not_in_the_next() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let said = talk.say("!say early\n!trickle 40 20").await;
    assert_eq!(said, format!("early{}", ".".repeat(40)));
    assert_eq!(talk.say("!sleep 500\n!say second").await, "second");
}

#[tokio::test]
async fn parts_that_come_after_the_turn_are_a_turn_of_the_agent() {
    for millis in [120, 400, 800] {
        let stage = Stage::new(json!({}));
        let mut talk = stage.talk().await;
        assert_eq!(talk.say(&format!("!say early\n!after {millis} late\n!after 20 r")).await, "early");
        let own = talk.until(&["chat/turnComplete"]);
        let seen =
            tokio::time::timeout(std::time::Duration::from_secs(10), own).await.expect("a turn of its own");
        let started = all(&seen, "chat/turnStarted")[0];
        assert_eq!(started["message"], json!({ "text": "", "origin": { "kind": "agent" } }), "{millis}");
        assert_eq!(started["turnId"], last(&seen)["turnId"]);
        assert_eq!(text_of(&seen), "later", "{millis}");
        assert_eq!(talk.say("!say second").await, "second");
    }
}

#[tokio::test]
async fn parts_that_come_after_a_cancelled_turn_are_in_no_turn() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let stage = Stage::new(json!({ "log": log.path() }));
    let mut talk = stage.talk().await;
    let ask = json!({ "jsonrpc": "2.0", "id": "late", "method": "fs/read_text_file", "params": {
        "sessionId": "session-1", "path": stage.work().join("missing") } });
    let turn = talk.begin(&format!("!say begun\n!after 100 late\n!later {ask}\n!wait")).await;
    talk.until(&["chat/responsePart"]).await;
    talk.act(json!({ "type": "chat/turnCancelled", "turnId": turn, "duration": 0 })).await;
    talk.until(&["chat/turnCancelled"]).await;
    // The host answers what the agent asks after its late words.
    let answered = || std::fs::read_to_string(log.path()).unwrap().contains("\"id\":\"late\"").then_some(());
    wait_for(answered).expect("the agent is answered");
    let seen = talk.turn("!say second").await;
    assert_eq!(text_of(&seen), "second");
    assert_eq!(all(&seen, "chat/turnStarted").len(), 1, "{seen:#?}");
}

#[tokio::test]
async fn updates_before_the_session_is_named_belong_to_it() {
    let commands = json!({ "sessionUpdate": "available_commands_update", "availableCommands": [{ "name": "early", "description": "" }] });
    let stage = Stage::new(json!({ "early": [commands, text("Welcome. ")] }));
    let mut talk = stage.talk().await;
    talk.begin("!say hello").await;
    let seen = talk.until(&["chat/turnComplete"]).await;
    assert_eq!(text_of(&seen), "Welcome. hello");
    assert_eq!(
        all(&seen, "session/customizationUpdated")[0]["customization"]["children"][0]["name"],
        "early"
    );
}

#[tokio::test]
async fn updates_of_another_session_are_left_out() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let foreign = json!({ "jsonrpc": "2.0", "method": "session/update", "params": { "sessionId": "other", "update": text("foreign") } });
    assert_eq!(talk.say(&format!("!raw {foreign}\n!say own")).await, "own");
}

#[tokio::test]
async fn an_update_this_version_does_not_know_is_left_out() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let unknown = json!({ "sessionUpdate": "brand_new", "anything": [1] });
    assert_eq!(talk.say(&format!("!update {unknown}\n!say after")).await, "after");
    stage.folder.wait_for_log("an update is left out: \"brand_new\"");
}

#[tokio::test]
async fn older_modes_and_models_are_settings_and_their_ids_opaque() {
    let new = json!({
        "modes": { "currentModeId": "https://x/modes#agent", "availableModes": [
            { "id": "https://x/modes#agent", "name": "Agent" }, { "id": "https://x/modes#plan", "name": "Plan" } ] },
        "models": { "currentModelId": "$runtime|openai|m(openai)", "availableModels": [
            { "modelId": "$runtime|openai|m(openai)", "name": "M" }, { "modelId": "n", "name": "N" } ] },
    });
    let log = tempfile::NamedTempFile::new().unwrap();
    let stage = Stage::new(json!({ "new": new, "log": log.path() }));
    let mut talk = stage.talk().await;
    talk.say("hello").await;
    let resolved = talk
        .client
        .request("resolveSessionConfig", json!({ "provider": "fake", "config": {} }))
        .await
        .unwrap();
    assert_eq!(resolved["values"]["model"], "$runtime|openai|m(openai)");
    assert_eq!(resolved["values"]["mode"], "https://x/modes#agent");
    let mode = json!({ "sessionUpdate": "current_mode_update", "currentModeId": "https://x/modes#plan" });
    talk.begin(&format!("!update {mode}")).await;
    let seen = talk.until(&["session/configChanged"]).await;
    assert_eq!(last(&seen)["config"], json!({ "mode": "https://x/modes#plan" }));
    let mut talk = stage.talk_in("fake:/two", json!({ "mode": "https://x/modes#plan", "model": "n" })).await;
    talk.say("hello").await;
    let sent = std::fs::read_to_string(log.path()).unwrap();
    assert!(
        sent.contains("\"modelId\":\"n\"") && sent.contains("\"modeId\":\"https://x/modes#plan\""),
        "{sent}"
    );
}

#[tokio::test]
async fn where_an_agent_has_both_its_options_go_before_the_older_fields() {
    let options = json!([{ "id": "engine", "name": "Model", "category": "model", "type": "select", "currentValue": "small",
        "options": [{ "value": "small", "name": "Small" }, { "value": "large", "name": "Large" }] }]);
    let older = json!({ "currentModelId": "old", "availableModels": [{ "modelId": "old", "name": "Old" }] });
    let modes = json!({ "currentModeId": "a", "availableModes": [{ "id": "a", "name": "A" }, { "id": "b", "name": "B" }] });
    let log = tempfile::NamedTempFile::new().unwrap();
    let stage = Stage::new(json!({ "log": log.path(),
        "new": { "configOptions": options, "models": older, "modes": modes } }));
    let mut talk = stage.talk().await;
    talk.say("hello").await;
    let params = json!({ "provider": "fake", "config": {} });
    let resolved = talk.client.request("resolveSessionConfig", params).await.unwrap();
    assert_eq!(resolved["values"], json!({ "engine": "small", "mode": "a" }), "{resolved}");
    let mut talk = stage.talk_in("fake:/two", json!({ "engine": "large", "mode": "b" })).await;
    talk.say("hello").await;
    let sent = std::fs::read_to_string(log.path()).unwrap();
    let sent: Vec<Value> = sent.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let sets =
        |frame: &&Value| frame["method"].as_str().is_some_and(|method| method.starts_with("session/set_"));
    let mut set: Vec<&str> =
        sent.iter().filter(sets).map(|frame| frame["method"].as_str().unwrap()).collect();
    set.sort_unstable();
    assert_eq!(set, ["session/set_config_option", "session/set_mode"]);
}

#[tokio::test]
async fn a_replay_where_the_host_has_the_turns_is_left_out() {
    for capability in [json!({ "sessionCapabilities": { "resume": {} } }), json!({ "loadSession": true })] {
        let stage = Stage::new(
            json!({ "initialize": { "agentCapabilities": capability }, "replay": [text("replayed")] }),
        );
        let mut talk = stage.talk().await;
        assert_eq!(talk.say("one").await, "You said: one");
        assert_eq!(talk.fail("!exit 3").await["errorType"], "agentEnded");
        assert_eq!(talk.say("two").await, "You said: two", "{capability}");
    }
}

#[tokio::test]
async fn a_question_the_agent_takes_back_is_no_longer_asked() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let params = json!({ "toolCall": { "toolCallId": "c", "title": "Run ls" },
        "options": [{ "optionId": "yes", "name": "Yes", "kind": "allow_once" }] });
    talk.begin(&format!("!withdraw {params}")).await;
    let seen = talk.until(&["session/inputNeededRemoved"]).await;
    assert_eq!(last(&seen)["id"], "c");
    talk.until(&["chat/turnComplete"]).await;
}

#[tokio::test]
async fn warnings_sent_as_text_are_text() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    assert_eq!(talk.say("!say Warning: unknown model m").await, "Warning: unknown model m");
}

#[tokio::test]
async fn lines_that_are_no_messages_are_left_out() {
    let stage = Stage::new(json!({ "garbage": 3 }));
    let mut talk = stage.talk().await;
    assert_eq!(talk.say("!raw Loading plugins…\n!raw 42\n!raw {\"half\":\n!say hello").await, "hello");
}

#[tokio::test]
async fn what_an_agent_writes_around_its_messages_is_left_out() {
    for (before, after) in [
        ("\u{1b}]0;busy\u{7}", ""),
        ("\r 10%\r100%\r", ""),
        ("\u{feff}", ""),
        ("[info] ", ""),
        ("[", "]"),
        ("", " done"),
        ("{\"jsonrpc\":\"2.0\",\"method\":\"other/notification\"} ", ""),
    ] {
        let stage = Stage::new(json!({ "before": before, "after": after }));
        let mut talk = stage.talk().await;
        assert_eq!(talk.say("!say hello").await, "hello", "{before:?} {after:?}");
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_understood_fails_its_turn() {
    for (members, said) in [
        (
            json!({ "error": { "message": "the model is overloaded" } }),
            "{\"message\":\"the model is overloaded\"}",
        ),
        (json!({ "error": "busy" }), "\"busy\""),
        (json!({}), "neither a result nor an error"),
        (
            json!({ "result": { "stopReason": "end_turn" }, "error": { "code": 1, "message": "both" } }),
            "{\"code\":1,\"message\":\"both\"}",
        ),
    ] {
        let stage = Stage::new(json!({ "answers": { "session/prompt": members } }));
        let mut talk = stage.talk().await;
        let message = talk.fail("hello").await["message"].as_str().unwrap().to_owned();
        assert!(message.starts_with("fake refused session/prompt: its response is invalid: "), "{message}");
        assert!(message.ends_with(said), "{message}");
    }
}

#[tokio::test]
async fn half_of_a_surrogate_pair_costs_that_half() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let update = r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"session-1","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"lone \ud800 surrogate "}}}}"#;
    assert_eq!(talk.say(&format!("!raw {update}\n!say and more")).await, "lone \u{fffd} surrogate and more");
}

#[tokio::test]
async fn a_title_with_code_is_markdown() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let call = |title: &str| json!({ "sessionUpdate": "tool_call", "toolCallId": title, "title": title, "kind": "execute", "status": "completed" });
    let script = format!("!update {}\n!update {}", call("Run `make test`"), call("Search **/*.rs"));
    let seen = talk.turn(&script).await;
    let ready: Vec<&Value> = seen.iter().filter(|action| action["type"] == "chat/toolCallReady").collect();
    assert_eq!(ready[0]["invocationMessage"], json!({ "markdown": "Run `make test`" }));
    assert_eq!(ready[1]["invocationMessage"], "Search **/*.rs");
}
