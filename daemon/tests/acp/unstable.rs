//! Parts of the protocol that are not stable, behind their switch: native forks, and subagents as worker chats.

use serde_json::{Value, json};

use crate::talk::{Stage, Talk, all, last, text_of};

fn forking() -> Value {
    json!({ "agentCapabilities": { "loadSession": true, "sessionCapabilities": { "fork": {} } } })
}

async fn fork(talk: &mut Talk, turn: &str, chat: &str) {
    let source = json!({ "kind": "fork", "chat": talk.chat, "turnId": turn });
    let params = json!({ "channel": talk.session, "chat": chat, "source": source });
    talk.client.request("createChat", params).await.unwrap();
    talk.client.subscribe(chat).await;
    talk.chat = chat.to_owned();
}

#[tokio::test]
async fn a_fork_at_the_latest_turn_is_the_agents_own_where_that_is_switched_on() {
    for on in [true, false] {
        let log = tempfile::NamedTempFile::new().unwrap();
        let options = if on { json!({ "unstable": ["fork"] }) } else { json!({}) };
        let stage = Stage::with(json!({ "log": log.path(), "initialize": forking() }), options);
        let mut talk = stage.talk().await;
        let first = talk.begin("remember seven").await;
        talk.until(&["chat/turnComplete"]).await;
        fork(&mut talk, &first, "ahp-chat:/forked").await;
        let said = talk.say("!heard").await;
        assert_eq!(
            said.contains("User: remember seven"),
            !on,
            "the agent's own fork knows the turns: {said}"
        );
        let sent = std::fs::read_to_string(log.path()).unwrap();
        assert_eq!(sent.contains("session/fork"), on, "{sent}");
        if on {
            // It is a session of its own, which continues after its process ended.
            talk.fail("!exit 1").await;
            talk.say("!heard").await;
            let sent = std::fs::read_to_string(log.path()).unwrap();
            assert!(
                sent.lines().any(|line| line.contains("session/load") && line.contains("forked-session-1")),
                "{sent}"
            );
        }
    }
}

#[tokio::test]
async fn a_fork_at_an_earlier_turn_is_told_the_turns() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let stage =
        Stage::with(json!({ "log": log.path(), "initialize": forking() }), json!({ "unstable": ["fork"] }));
    let mut talk = stage.talk().await;
    let first = talk.begin("remember seven").await;
    talk.until(&["chat/turnComplete"]).await;
    talk.say("forget eight").await;
    fork(&mut talk, &first, "ahp-chat:/forked").await;
    let said = talk.say("!heard").await;
    assert!(said.contains("User: remember seven") && !said.contains("eight"), "{said}");
    assert!(!std::fs::read_to_string(log.path()).unwrap().contains("session/fork"));
}

fn state(state: &str) -> Value {
    json!({ "sessionUpdate": "subagent_update", "sessionId": "child", "title": "Look around", "description": "Explores",
        "state": { "state": state } })
}

fn of_child(update: &Value) -> String {
    let params = json!({ "sessionId": "child", "update": update });
    format!("!raw {}", json!({ "jsonrpc": "2.0", "method": "session/update", "params": params }))
}

fn chunk(text: &str) -> Value {
    json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": text } })
}

/// What a subagent says and does, in the middle of a turn.
fn script() -> String {
    let call = json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "Read a", "kind": "read", "status": "completed" });
    [
        "!say before".to_owned(),
        format!("!update {}", state("running")),
        of_child(&chunk("found ")),
        of_child(&chunk("hay")),
        of_child(&call),
        format!("!update {}", state("idle")),
        "!say  after".to_owned(),
    ]
    .join("\n")
}

#[tokio::test]
async fn a_subagent_is_a_worker_chat_where_that_is_switched_on() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let stage = Stage::with(json!({ "log": log.path() }), json!({ "unstable": ["subagents"] }));
    let mut talk = stage.talk().await;
    let seen = talk.turn(&script()).await;
    assert_eq!(text_of(&seen), "before after");
    let added = all(&seen, "session/chatAdded")[0];
    assert_eq!(added["summary"]["title"], "Look around", "{added}");
    let chat = added["summary"]["resource"].as_str().unwrap().to_owned();
    let state = talk.client.subscribe(&chat).await;
    assert_eq!(state["interactivity"], "read-only", "{state}");
    let turn = &state["turns"][0];
    assert_eq!(
        (&turn["state"], &turn["responseParts"][0]["content"]),
        (&json!("complete"), &json!("found hay")),
        "{state}"
    );
    assert_eq!(turn["responseParts"][1]["toolCall"]["status"], "completed", "{state}");
    // It may work again, in another turn of its chat.
    talk.turn(&script()).await;
    let again = talk.client.request("subscribe", json!({ "channel": chat })).await.unwrap();
    assert_eq!(again["snapshot"]["state"]["turns"].as_array().unwrap().len(), 2, "{again}");
    assert!(std::fs::read_to_string(log.path()).unwrap().contains("\"subagents\":{}"));
}

#[tokio::test]
async fn a_subagent_ends_with_its_turn() {
    let stage = Stage::with(json!({}), json!({ "unstable": ["subagents"] }));
    let mut talk = stage.talk().await;
    let turn =
        talk.begin(&format!("!update {}\n{}\n!wait", state("running"), of_child(&chunk("looking")))).await;
    let seen = talk.until(&["session/chatAdded"]).await;
    let chat = last(&seen)["summary"]["resource"].as_str().unwrap().to_owned();
    let mut watch = Talk::join(stage.daemon.initialized("watch").await, "fake:/one").await;
    let began = watch.client.subscribe(&chat).await;
    assert!(began["activeTurn"].is_object(), "{began}");
    talk.act(json!({ "type": "chat/turnCancelled", "turnId": turn, "duration": 0 })).await;
    loop {
        let frame = watch.client.next_frame().await.unwrap();
        if frame["params"]["channel"] == chat.as_str()
            && frame["params"]["action"]["type"] == "chat/turnCancelled"
        {
            break;
        }
    }
}

#[tokio::test]
async fn without_the_switch_a_subagent_is_not_shown() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let stage = Stage::new(json!({ "log": log.path() }));
    let mut talk = stage.talk().await;
    let seen = talk.turn(&script()).await;
    assert_eq!(text_of(&seen), "before after");
    assert!(all(&seen, "session/chatAdded").is_empty());
    assert!(!std::fs::read_to_string(log.path()).unwrap().contains("subagents"));
}
