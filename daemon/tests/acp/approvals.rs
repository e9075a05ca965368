//! An answer to a request for approval never means more than the user said, nor the opposite, whatever the agent offers.

use serde_json::{Value, json};

use crate::agent;
use crate::support::wait_for;
use crate::talk::{Stage, Talk, all, last, text_of};

fn option(id: &str, kind: &str) -> Value {
    json!({ "optionId": id, "name": format!("{id} {kind}"), "kind": kind })
}

fn permission(call: &str, options: &Value) -> Value {
    json!({ "toolCall": { "toolCallId": call, "title": "Run make", "kind": "execute" }, "options": options })
}

fn ask(call: &str, options: &Value) -> String {
    format!("!request session/request_permission {}", permission(call, options))
}

/// What the agent was told.
fn told(seen: &[Value]) -> Value {
    serde_json::from_str::<Value>(&text_of(seen)).unwrap_or_else(|why| panic!("{why}: {seen:#?}"))
}

fn notices(seen: &[Value]) -> Vec<&str> {
    let parts = all(seen, "chat/responsePart").into_iter();
    parts.filter_map(|action| action["part"]["content"]["markdown"].as_str()).collect()
}

fn answer(turn: &str, call: &Value, approved: bool) -> Value {
    let mut answer =
        json!({ "type": "chat/toolCallConfirmed", "turnId": turn, "toolCallId": call, "approved": approved });
    match approved {
        true => answer["confirmed"] = "user-action".into(),
        false => answer["reason"] = "denied".into(),
    }
    answer
}

/// Answers a request without naming an option; returns the actions until the end of the turn.
async fn plainly(talk: &mut Talk, options: &Value, approved: bool) -> Vec<Value> {
    let turn = talk.begin(&ask("c", options)).await;
    let seen = talk.until(&["session/inputNeededSet", "chat/turnComplete"]).await;
    assert_eq!(last(&seen)["type"], "session/inputNeededSet", "{seen:#?}");
    talk.act(answer(&turn, &last(&seen)["request"]["id"], approved)).await;
    talk.until(&["chat/turnComplete"]).await
}

#[tokio::test]
async fn an_answer_without_an_option_is_one_for_once_or_none() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let selected = |id: &str| json!({ "outcome": { "outcome": "selected", "optionId": id } });
    let cancelled = json!({ "outcome": { "outcome": "cancelled" } });
    let (once, always) = (option("once", "allow_once"), option("ever", "allow_always"));
    let (no, never) = (option("no", "reject_once"), option("never", "reject_always"));
    let odd = json!({ "optionId": "odd", "name": "For this session", "kind": "allow_session" });
    for (options, approved, expected) in [
        (json!([always, once, never, no]), true, selected("once")),
        (json!([always, once, never, no]), false, selected("no")),
        (json!([no, always]), true, cancelled.clone()),
        (json!([no, odd]), true, cancelled.clone()),
        (json!([no, option("a", "allow_once"), option("b", "allow_once")]), true, cancelled.clone()),
        (json!([once, never]), false, cancelled.clone()),
        (json!([once]), false, cancelled.clone()),
        (json!([no]), true, cancelled.clone()),
        // The same option twice is one.
        (json!([once, once, no]), true, selected("once")),
    ] {
        let seen = plainly(&mut talk, &options, approved).await;
        assert_eq!(told(&seen), expected, "{options} {approved}");
        let unclear = approved && expected == cancelled;
        let ended = all(&seen, "chat/toolCallComplete");
        if unclear {
            assert_eq!(ended[0]["result"]["success"], false, "{options}: {ended:?}");
            let notices = notices(&seen);
            assert!(
                notices.iter().any(|notice| notice.contains("answered as cancelled")),
                "{options}: {notices:?}"
            );
        } else if approved {
            assert_eq!(ended[0]["result"]["success"], true, "{options}: {ended:?}");
        }
    }
    // Such an option is chosen by its name.
    let turn = talk.begin(&ask("named", &json!([no, always]))).await;
    let seen = talk.until(&["session/inputNeededSet"]).await;
    assert_eq!(last(&seen)["request"]["toolCall"]["_meta"]["ostler.optionNeeded"], true, "{seen:#?}");
    let mut named = answer(&turn, &json!("named"), true);
    named["selectedOptionId"] = "ever".into();
    talk.act(named).await;
    assert_eq!(told(&talk.until(&["chat/turnComplete"]).await), selected("ever"));
}

#[tokio::test]
async fn a_request_that_no_user_can_answer_is_not_shown() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let many: Vec<Value> = (0..100).map(|at| option(&format!("o{at}"), "allow_once")).collect();
    for (options, said) in [
        (json!([]), "without options"),
        (json!([{ "name": "Yes", "kind": "allow_once" }]), "without options"),
        (Value::Null, "without options"),
        (json!([option("x", "allow_once"), option("x", "reject_once")]), "the same id"),
        (
            json!([option("x", "reject_once"), option("y", "reject_once"), option("x", "allow_always")]),
            "the same id",
        ),
        (json!(many), "more options than can be shown"),
    ] {
        let seen = talk.turn(&ask("c", &options)).await;
        assert!(all(&seen, "session/inputNeededSet").is_empty(), "{options}: {seen:#?}");
        assert_eq!(told(&seen), json!({ "outcome": { "outcome": "cancelled" } }), "{options}");
        let ended = all(&seen, "chat/toolCallComplete");
        assert!(
            ended[0]["result"]["error"]["message"].as_str().unwrap().contains(said),
            "{options}: {ended:?}"
        );
    }
}

#[tokio::test]
async fn requests_for_a_session_that_is_not_open_are_refused() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    std::fs::write(stage.work().join("file"), "text").unwrap();
    let mut approval = permission("c", &json!([option("yes", "allow_once"), option("no", "reject_once")]));
    let mut form = json!({ "mode": "form", "message": "Which?",
        "requestedSchema": { "type": "object", "properties": { "a": { "type": "string" } } } });
    let mut read = json!({ "path": stage.work().join("file") });
    let mut command = json!({ "command": "true" });
    for (method, params) in [
        ("session/request_permission", &mut approval),
        ("elicitation/create", &mut form),
        ("fs/read_text_file", &mut read),
        ("terminal/create", &mut command),
    ] {
        params["sessionId"] = "never-opened".into();
        let seen = talk.turn(&format!("!request {method} {params}")).await;
        assert_eq!(told(&seen)["code"], -32602, "{method}: {seen:#?}");
        for shown in ["session/inputNeededSet", "chat/inputRequested", "chat/toolCallStart"] {
            assert!(all(&seen, shown).is_empty(), "{method}: {seen:#?}");
        }
    }
}

#[tokio::test]
async fn a_request_for_another_session_than_the_one_that_opens_is_taken_back() {
    let mut permission = permission("c", &json!([option("yes", "allow_once")]));
    permission["sessionId"] = "another".into();
    let log = tempfile::NamedTempFile::new().unwrap();
    // The agent opens the session while the request waits.
    let stage = Stage::new(
        json!({ "log": log.path(), "unanswered": { "session/new": [["session/request_permission", permission]] } }),
    );
    let mut talk = stage.talk().await;
    let seen = talk.turn("!say on").await;
    assert_eq!(last(&seen)["type"], "chat/turnComplete", "{seen:#?}");
    let heard = wait_for(|| {
        let heard = std::fs::read_to_string(log.path()).unwrap();
        heard
            .lines()
            .find(|line| line.contains("\"answers\":\"session/request_permission\""))
            .map(str::to_owned)
    });
    let heard: Value = serde_json::from_str(&heard.expect("an answer")).unwrap();
    let refused = heard["error"]["code"] == -32602 || heard["result"]["outcome"]["outcome"] == "cancelled";
    assert!(refused, "{heard}");
    let session = talk.session.clone();
    let state = talk.client.subscribe(&session).await;
    assert_eq!(state["inputNeeded"].as_array().map_or(0, Vec::len), 0, "{state}");
}

#[tokio::test]
async fn an_answer_to_an_earlier_request_does_not_approve_a_later_one() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let stage = Stage::new(json!({ "log": log.path() }));
    let mut talk = stage.talk().await;
    let options = json!([option("yes", "allow_once"), option("no", "reject_once")]);
    let mut worse = permission("c", &options);
    worse["toolCall"]["title"] = "Run rm".into();
    let script = format!(
        "!requests 1 session/request_permission {}\n!request session/request_permission {worse}",
        permission("c", &options)
    );
    let turn = talk.begin(&script).await;
    let first = last(&talk.until(&["session/inputNeededSet"]).await)["request"]["id"].clone();
    let second = last(&talk.until(&["session/inputNeededSet"]).await)["request"].clone();
    assert_ne!(first, second["id"]);
    assert_eq!(second["toolCall"]["confirmationTitle"], "Run rm");
    // The user clicks on the first one, which is no longer shown to wait.
    talk.act(answer(&turn, &first, true)).await;
    talk.act(answer(&turn, &second["id"], false)).await;
    let seen = talk.until(&["chat/turnComplete"]).await;
    assert_eq!(told(&seen), json!({ "outcome": { "outcome": "selected", "optionId": "no" } }));
    let heard = std::fs::read_to_string(log.path()).unwrap();
    assert!(
        heard.contains("\"outcome\":{\"outcome\":\"cancelled\"}") && !heard.contains("\"yes\""),
        "{heard}"
    );
}

#[tokio::test]
async fn a_setting_that_approves_all_calls_leaves_the_choice_of_an_option_to_users() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    talk.client.subscribe("ahp-root://").await;
    let set = json!({ "type": "root/configChanged", "config": { "globalAutoApproveEnabled": true } });
    talk.act_on("ahp-root://", set).await;
    talk.until(&["root/configChanged"]).await;
    let seen =
        talk.turn(&ask("a", &json!([option("yes", "allow_once"), option("ever", "allow_always")]))).await;
    assert_eq!(told(&seen)["outcome"]["optionId"], "yes");
    let turn =
        talk.begin(&ask("b", &json!([option("ever", "allow_always"), option("no", "reject_once")]))).await;
    let seen = talk.until(&["session/inputNeededSet", "chat/turnComplete"]).await;
    assert_eq!(last(&seen)["type"], "session/inputNeededSet", "{seen:#?}");
    talk.act(answer(&turn, &json!("b"), false)).await;
    assert_eq!(told(&talk.until(&["chat/turnComplete"]).await)["outcome"]["optionId"], "no");
}

#[tokio::test]
async fn an_edited_input_is_refused_because_the_agent_would_run_its_own() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let turn =
        talk.begin(&ask("c", &json!([option("yes", "allow_once"), option("no", "reject_once")]))).await;
    talk.until(&["session/inputNeededSet"]).await;
    let mut edited = answer(&turn, &json!("c"), true);
    edited["editedToolInput"] = "ls".into();
    talk.act(edited).await;
    talk.act(answer(&turn, &json!("c"), false)).await;
    let seen = talk.until(&["chat/turnComplete"]).await;
    assert_eq!(told(&seen)["outcome"]["optionId"], "no");
}

#[tokio::test]
async fn a_standing_answer_is_for_one_command_and_ends_with_its_session() {
    let stage = Stage::of(agent::entry(json!({})), json!({}));
    let options = json!([option("once", "allow_once"), option("ever", "allow_always")]);
    let shell = |call: &str, command: &str| {
        let mut permission = permission(call, &options);
        permission["toolCall"]["rawInput"] = json!({ "command": command });
        format!("!request session/request_permission {permission}")
    };
    let mut talk = stage.talk().await;
    let turn = talk.begin(&shell("a", "ls")).await;
    talk.until(&["session/inputNeededSet"]).await;
    let mut ever = answer(&turn, &json!("a"), true);
    ever["selectedOptionId"] = "ever".into();
    talk.act(ever).await;
    talk.until(&["chat/turnComplete"]).await;
    let seen = talk.turn(&shell("b", "ls")).await;
    assert!(all(&seen, "session/inputNeededSet").is_empty(), "{seen:#?}");
    // Another command with the same title.
    let turn = talk.begin(&shell("c", "rm -r /")).await;
    let seen = talk.until(&["session/inputNeededSet", "chat/turnComplete"]).await;
    assert_eq!(last(&seen)["type"], "session/inputNeededSet", "{seen:#?}");
    talk.act(answer(&turn, &json!("c"), false)).await;
    talk.until(&["chat/turnComplete"]).await;
    drop(talk);
    // The session sleeps when it is removed, and another one gets its URI.
    let stage = stage.restarted(false);
    let mut client = stage.daemon.initialized("later").await;
    client.request("disposeSession", json!({ "channel": "fake:/one" })).await.unwrap();
    drop(client);
    let mut talk = stage.talk().await;
    talk.begin(&shell("d", "ls")).await;
    let seen = talk.until(&["session/inputNeededSet", "chat/turnComplete"]).await;
    assert_eq!(last(&seen)["type"], "session/inputNeededSet", "{seen:#?}");
}
