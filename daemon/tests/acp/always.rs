//! Answers that hold: an option for always is stored per session and tool, and answers the next question.

use serde_json::{Value, json};

use crate::support::wait_for;
use crate::talk::{Stage, Talk, all, last, text_of};

fn options() -> Value {
    json!([
        { "optionId": "yes", "name": "Once", "kind": "allow_once" },
        { "optionId": "always", "name": "Always", "kind": "allow_always" },
        { "optionId": "no", "name": "No", "kind": "reject_once" },
        { "optionId": "never", "name": "Never", "kind": "reject_always" },
    ])
}

fn ask(call: &str, kind: &str, title: &str, options: &Value) -> String {
    let params =
        json!({ "toolCall": { "toolCallId": call, "title": title, "kind": kind }, "options": options });
    format!("!request session/request_permission {params}")
}

/// Has a user choose an option; answers what the agent was told.
async fn choose(talk: &mut Talk, script: &str, approved: bool, option: &str) -> String {
    let turn = talk.begin(script).await;
    let seen = talk.until(&["session/inputNeededSet"]).await;
    let call = &last(&seen)["request"]["id"];
    let mut answer = json!({ "type": "chat/toolCallConfirmed", "turnId": turn, "toolCallId": call, "approved": approved,
        "selectedOptionId": option });
    match approved {
        true => answer["confirmed"] = "user-action".into(),
        false => answer["reason"] = "denied".into(),
    }
    talk.act(answer).await;
    chosen(&talk.until(&["chat/turnComplete"]).await)
}

/// The option that the agent was told.
fn chosen(seen: &[Value]) -> String {
    let answer: Value = serde_json::from_str(&text_of(seen)).unwrap();
    answer["outcome"]["optionId"].as_str().unwrap_or_default().to_owned()
}

/// A turn in which no user is asked.
async fn unasked(talk: &mut Talk, script: &str) -> Vec<Value> {
    let seen = talk.turn(script).await;
    assert_eq!(last(&seen)["type"], "chat/turnComplete", "{seen:#?}");
    assert!(all(&seen, "session/inputNeededSet").is_empty(), "{seen:#?}");
    seen
}

/// A turn in which a user is asked, and answers once.
async fn asked(talk: &mut Talk, script: &str) {
    assert_eq!(choose(talk, script, true, "yes").await, "yes");
}

#[tokio::test]
async fn an_answer_for_always_holds_for_the_tool_in_the_session_and_after_a_restart() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    assert_eq!(choose(&mut talk, &ask("a", "edit", "Edit a", &options()), true, "always").await, "always");
    let seen = unasked(&mut talk, &ask("b", "edit", "Edit b", &options())).await;
    assert_eq!(chosen(&seen), "always");
    assert_eq!(all(&seen, "chat/toolCallReady")[0]["confirmed"], "setting");
    // Another tool, and another session, are asked about.
    asked(&mut talk, &ask("c", "read", "Read a", &options())).await;
    let mut other = stage.talk_in("fake:/two", json!({})).await;
    asked(&mut other, &ask("a", "edit", "Edit a", &options())).await;
    drop((talk, other));

    let stage = stage.restarted(true);
    let mut talk = Talk::join(stage.daemon.initialized("later").await, "fake:/one").await;
    assert_eq!(chosen(&unasked(&mut talk, &ask("d", "edit", "Edit d", &options())).await), "always");
    // Once the session is removed, nothing of it holds.
    let params = json!({ "channel": talk.session });
    talk.client.request("disposeSession", params).await.unwrap();
    let gone = wait_for(|| (!stage.folder.read("acp-approvals/fake.md").contains("fake:/one")).then_some(()));
    assert!(gone.is_some(), "{}", stage.folder.read("acp-approvals/fake.md"));
}

#[tokio::test]
async fn a_denial_for_always_holds_too() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let script = ask("a", "edit", "Edit a", &options());
    let turn = talk.begin(&script).await;
    talk.until(&["session/inputNeededSet"]).await;
    talk.act(json!({ "type": "chat/toolCallConfirmed", "turnId": turn, "toolCallId": "a", "approved": false,
        "reason": "denied", "selectedOptionId": "never" }))
        .await;
    assert_eq!(chosen(&talk.until(&["chat/turnComplete"]).await), "never");
    let seen = unasked(&mut talk, &ask("b", "edit", "Edit b", &options())).await;
    assert_eq!(chosen(&seen), "never");
}

#[tokio::test]
async fn an_answer_about_a_shell_holds_for_the_same_command_only() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    choose(&mut talk, &ask("a", "execute", "ls", &options()), true, "always").await;
    assert_eq!(chosen(&unasked(&mut talk, &ask("b", "execute", "ls", &options())).await), "always");
    asked(&mut talk, &ask("c", "execute", "rm -r /", &options())).await;
}

#[tokio::test]
async fn an_answer_holds_only_where_the_same_option_is_offered() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    choose(&mut talk, &ask("a", "edit", "Edit a", &options()), true, "always").await;
    let mut other = options();
    other[1]["name"] = "Always, everywhere".into();
    asked(&mut talk, &ask("b", "edit", "Edit b", &other)).await;
}

#[tokio::test]
async fn an_answer_for_once_holds_once() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    asked(&mut talk, &ask("a", "edit", "Edit a", &options())).await;
    asked(&mut talk, &ask("b", "edit", "Edit b", &options())).await;
}
