//! Real agents, where they are installed: `OSTLER_TEST_AGENTS` names a folder that holds one npm project for each.
//! Without it these tests do not run; they are never counted as passed.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::talk::{Stage, Talk, all, last, text_of};

/// A file of an installed agent.
fn installed(agent: &str, file: &str) -> PathBuf {
    let folder =
        std::env::var("OSTLER_TEST_AGENTS").expect("OSTLER_TEST_AGENTS names the folder of the agents");
    let path = PathBuf::from(folder).join(agent).join("node_modules").join(file);
    assert!(path.is_file(), "{} is missing; .ci/run installs it", path.display());
    path
}

fn example() -> Stage {
    let script = installed("example", "@agentclientprotocol/sdk/dist/examples/agent.js");
    Stage::of(json!({ "command": "node", "args": [script], "name": "Example" }), json!({}))
}

/// Waits for an approval and answers it; answers the actions until then.
async fn approve(talk: &mut Talk, turn: &str, option: Option<&str>) -> Vec<Value> {
    let seen = talk.until(&["session/inputNeededSet"]).await;
    let call = last(&seen)["request"]["toolCall"]["toolCallId"].clone();
    let mut answer = json!({ "type": "chat/toolCallConfirmed", "turnId": turn, "toolCallId": call });
    match option {
        Some(option) => {
            answer["approved"] = true.into();
            answer["confirmed"] = "user-action".into();
            answer["selectedOptionId"] = option.into();
        }
        None => {
            answer["approved"] = false.into();
            answer["reason"] = "denied".into();
        }
    }
    talk.act(answer).await;
    seen
}

#[tokio::test]
#[ignore = "needs the example agent of the ACP SDK"]
async fn the_example_agent_runs_a_tool_with_approval_and_with_denial() {
    let stage = example();
    let mut talk = stage.talk().await;
    let turn = talk.begin("hello").await;
    let mut seen = approve(&mut talk, &turn, Some("allow")).await;
    seen.extend(talk.until(&["chat/turnComplete"]).await);
    let said = text_of(&seen);
    assert!(
        said.starts_with("I'll help you with that.") && said.ends_with("The changes have been applied."),
        "{said}"
    );
    let results = all(&seen, "chat/toolCallComplete");
    assert_eq!((results.len(), &results[1]["result"]["success"]), (2, &json!(true)), "{results:?}");
    let turn = talk.begin("again").await;
    let mut seen = approve(&mut talk, &turn, None).await;
    seen.extend(talk.until(&["chat/turnComplete"]).await);
    assert!(text_of(&seen).ends_with("I'll skip the configuration update."), "{}", text_of(&seen));
    assert_eq!(stage.daemon.stop(), Some(0));
}

#[tokio::test]
#[ignore = "needs the example agent of the ACP SDK"]
async fn the_example_agent_is_cancelled_and_answers_again() {
    let stage = example();
    let mut talk = stage.talk().await;
    let turn = talk.begin("hello").await;
    talk.until(&["chat/responsePart"]).await;
    talk.act(json!({ "type": "chat/turnCancelled", "turnId": turn, "duration": 0 })).await;
    talk.until(&["chat/turnCancelled"]).await;
    talk.begin("again").await;
    let seen = talk.until(&["chat/responsePart"]).await;
    assert!(text_of(&seen).starts_with("I'll help you with that."), "{seen:?}");
}

#[tokio::test]
#[ignore = "needs the example agent of the ACP SDK"]
async fn two_clients_watch_the_example_agent() {
    let stage = example();
    let mut talk = stage.talk().await;
    let other = stage.daemon.initialized("other").await;
    let mut other = Talk::join(other, "fake:/one").await;
    let turn = talk.begin("hello").await;
    let mine = approve(&mut talk, &turn, Some("allow")).await;
    let theirs = other.until(&["session/inputNeededSet"]).await;
    assert_eq!(text_of(&mine), text_of(&theirs));
    assert_eq!(
        text_of(&talk.until(&["chat/turnComplete"]).await),
        text_of(&other.until(&["chat/turnComplete"]).await)
    );
}
