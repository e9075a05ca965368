//! Every variant of the protocol's schema, driven through the daemon: the names of a table's rows are exactly those of the
//! schema, so that a new version of the schema fails here until its variants have rows.

use std::collections::BTreeSet;

use agent_client_protocol::v1::schema as acp;
use schemars::{JsonSchema, schema_for};
use serde_json::{Value, json};

use crate::talk::{Stage, Talk, all, last, text_of};

/// The names of the variants of a type with this schema; none where it has no variants.
pub fn variants(schema: &Value) -> BTreeSet<String> {
    let lists = ["oneOf", "anyOf"].iter().filter_map(|list| schema[list].as_array());
    let names = lists.flatten().flat_map(|variant| match variants(variant) {
        nested if nested.is_empty() => BTreeSet::from([name(variant)]),
        nested => nested,
    });
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    names.chain(schema["enum"].as_array().into_iter().flatten().map(text)).collect()
}

/// What tells a variant apart: its constant, plain or of a member, and otherwise its type.
fn name(variant: &Value) -> String {
    let of_type = |schema: &Value| {
        let tail = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next());
        tail.or_else(|| schema["format"].as_str()).or_else(|| schema["type"].as_str()).map(str::to_owned)
    };
    let members = || variant["properties"].as_object().into_iter().flatten();
    let constant = variant.get("const").or_else(|| members().find_map(|(_, member)| member.get("const")));
    if let Some(constant) = constant {
        return constant.as_str().map_or_else(|| constant.to_string(), str::to_owned);
    }
    match (of_type(variant).as_deref(), members().next()) {
        (Some("array"), _) => format!("{}[]", of_type(&variant["items"]).unwrap_or_default()),
        (Some("object"), Some((member, _))) => format!("{{{member}}}"),
        (Some(name), _) => name.to_owned(),
        (None, _) => panic!("nothing tells this apart: {variant}"),
    }
}

#[track_caller]
pub fn covers<'a, T: JsonSchema>(rows: impl IntoIterator<Item = &'a str>) {
    let rows: BTreeSet<String> = rows.into_iter().map(str::to_owned).collect();
    assert_eq!(rows, variants(&schema_for!(T).to_value()));
}

pub fn update(update: &Value) -> String {
    format!("!update {update}")
}

fn blocks() -> [(&'static str, Value); 5] {
    [
        ("text", json!({ "type": "text", "text": "hay" })),
        ("image", json!({ "type": "image", "data": "AA==", "mimeType": "image/png" })),
        ("audio", json!({ "type": "audio", "data": "AA==", "mimeType": "audio/wav" })),
        ("resource_link", json!({ "type": "resource_link", "uri": "file:///a", "name": "a" })),
        ("resource", json!({ "type": "resource", "resource": { "uri": "file:///a", "text": "hay" } })),
    ]
}

#[tokio::test]
async fn every_content_block_is_shown() {
    covers::<acp::ContentBlock>(blocks().iter().map(|(name, _)| *name));
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let shown = [
        ("text", json!("hay")),
        ("image", json!("data:image/png;base64,AA==")),
        ("audio", json!("data:audio/wav;base64,AA==")),
        ("resource_link", json!("[a](file:///a)")),
        ("resource", json!("\nfile:///a\n```\nhay\n```\n")),
    ];
    for ((name, block), (_, expected)) in blocks().iter().zip(shown) {
        let chunk = json!({ "sessionUpdate": "agent_message_chunk", "content": block });
        let seen = talk.turn(&update(&chunk)).await;
        let part = &all(&seen, "chat/responsePart")[0]["part"];
        let text = if part["kind"] == "contentRef" { &part["uri"] } else { &part["content"] };
        assert_eq!(*text, expected, "{name}: {part}");
    }
}

#[tokio::test]
async fn every_content_of_a_tool_call_is_shown() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let mut rows = vec![("diff", json!({ "type": "diff", "path": "/a", "newText": "x" }), "fileEdit")];
    let kinds = ["text", "embeddedResource", "embeddedResource", "resource", "text"];
    for ((_, block), kind) in blocks().into_iter().zip(kinds) {
        rows.push(("content", json!({ "type": "content", "content": block }), kind));
    }
    let create = json!({ "command": "true" });
    rows.push(("terminal", json!({ "type": "terminal", "terminalId": "terminal-1" }), ""));
    covers::<acp::ToolCallContent>(rows.iter().map(|(name, ..)| *name));
    for (at, (name, content, kind)) in rows.into_iter().enumerate() {
        let call = json!({ "sessionUpdate": "tool_call", "toolCallId": format!("c{at}"), "title": "T", "status": "completed",
            "content": [content] });
        let before =
            if name == "terminal" { format!("!request terminal/create {create}\n") } else { String::new() };
        let seen = talk.turn(&format!("{before}{}", update(&call))).await;
        let shown = &all(&seen, "chat/toolCallComplete")[0]["result"]["content"][0];
        assert!(shown["type"].is_string() && (kind.is_empty() || shown["type"] == kind), "{name}: {shown}");
    }
}

#[tokio::test]
async fn every_kind_and_status_of_a_tool_call_is_shown() {
    let kinds =
        ["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"];
    covers::<acp::ToolKind>(kinds);
    let statuses = [
        ("pending", "chat/toolCallStart"),
        ("in_progress", "chat/toolCallReady"),
        ("completed", "chat/toolCallComplete"),
        ("failed", "chat/toolCallComplete"),
    ];
    covers::<acp::ToolCallStatus>(statuses.iter().map(|(name, _)| *name));
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    for kind in kinds {
        let call = json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "T", "kind": kind, "status": "completed" });
        let seen = talk.turn(&update(&call)).await;
        assert_eq!(all(&seen, "chat/toolCallStart")[0]["toolName"], kind);
    }
    for (status, reached) in statuses {
        let call = json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "T", "status": status });
        let seen = talk.turn(&format!("{}\n!say end", update(&call))).await;
        // What follows the words is what the end of the turn makes of an unfinished call.
        let words = seen.iter().position(|action| action["part"]["kind"] == "markdown").unwrap();
        let before = &seen[..words];
        let of_call = before.iter().rfind(|action| action["toolCallId"] == "c").unwrap();
        assert_eq!(of_call["type"], reached, "{status}");
        if reached == "chat/toolCallComplete" {
            assert_eq!(of_call["result"]["success"], status == "completed");
        }
    }
}

#[tokio::test]
async fn every_kind_of_permission_and_outcome_is_used() {
    let kinds = [
        ("allow_once", "approve", true),
        ("allow_always", "approve", true),
        ("reject_once", "deny", false),
        ("reject_always", "deny", false),
    ];
    covers::<acp::PermissionOptionKind>(kinds.iter().map(|(name, ..)| *name));
    covers::<acp::RequestPermissionOutcome>(["selected", "cancelled"]);
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    for (kind, shown, approved) in kinds {
        let ask = json!({ "toolCall": { "toolCallId": "c", "title": kind },
            "options": [{ "optionId": "x", "name": "X", "kind": kind }] });
        let turn = talk.begin(&format!("!request session/request_permission {ask}")).await;
        let seen = talk.until(&["session/inputNeededSet"]).await;
        assert_eq!(last(&seen)["request"]["toolCall"]["options"][0]["kind"], shown);
        let mut answer = json!({ "type": "chat/toolCallConfirmed", "turnId": turn, "toolCallId": "c", "approved": approved,
            "selectedOptionId": "x" });
        match approved {
            true => answer["confirmed"] = "user-action".into(),
            false => answer["reason"] = "denied".into(),
        }
        talk.act(answer).await;
        let told: Value = serde_json::from_str(&text_of(&talk.until(&["chat/turnComplete"]).await)).unwrap();
        assert_eq!(told["outcome"], json!({ "outcome": "selected", "optionId": "x" }));
    }
    // The other outcome: there is no option of the kind that was chosen.
    let ask = json!({ "toolCall": { "toolCallId": "c", "title": "none" }, "options": [{ "optionId": "no", "name": "No", "kind": "reject_once" }] });
    let turn = talk.begin(&format!("!request session/request_permission {ask}")).await;
    talk.until(&["session/inputNeededSet"]).await;
    let answer = json!({ "type": "chat/toolCallConfirmed", "turnId": turn, "toolCallId": "c", "approved": true,
        "confirmed": "user-action" });
    talk.act(answer).await;
    let told: Value = serde_json::from_str(&text_of(&talk.until(&["chat/turnComplete"]).await)).unwrap();
    assert_eq!(told["outcome"], json!({ "outcome": "cancelled" }));
}

#[tokio::test]
async fn every_stop_reason_ends_the_turn() {
    let reasons = [
        ("end_turn", "chat/turnComplete"),
        ("max_tokens", "chat/turnComplete"),
        ("max_turn_requests", "chat/turnComplete"),
        ("refusal", "chat/error"),
        ("cancelled", "chat/turnCancelled"),
    ];
    covers::<acp::StopReason>(reasons.iter().map(|(name, _)| *name));
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    for (reason, end) in reasons {
        assert_eq!(last(&talk.turn(&format!("!say x\n!stop {reason}")).await)["type"], end, "{reason}");
    }
}

#[tokio::test]
async fn every_plan_entry_notice_and_compaction_is_shown() {
    let statuses = ["pending", "in_progress", "completed"];
    covers::<acp::PlanEntryStatus>(statuses);
    let priorities = ["high", "medium", "low"];
    covers::<acp::PlanEntryPriority>(priorities);
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let notified = |seen: &[Value]| -> Vec<String> {
        let parts = all(seen, "chat/responsePart").into_iter();
        parts.filter_map(|part| part["part"]["content"]["markdown"].as_str().map(str::to_owned)).collect()
    };
    for (priority, status) in priorities.into_iter().zip(statuses) {
        let plan = json!({ "sessionUpdate": "plan", "entries": [{ "content": priority, "priority": priority, "status": status }] });
        let mark = if status == "completed" { 'x' } else { ' ' };
        assert_eq!(notified(&talk.turn(&update(&plan)).await), [format!("- [{mark}] {priority}")]);
    }
    let severities = [("info", "T"), ("warning", "Warning: T"), ("error", "Error: T")];
    covers::<acp::NoticeSeverity>(severities.iter().map(|(name, _)| *name).chain(["string"]));
    for (severity, expected) in severities.into_iter().chain([("unheard-of", "T")]) {
        let notice = json!({ "sessionUpdate": "notice", "severity": severity, "title": "T" });
        assert_eq!(notified(&talk.turn(&update(&notice)).await), [expected]);
    }
    let compactions = [
        ("in_progress", "Compacting the conversation"),
        ("completed", "Compacted the conversation"),
        ("failed", "The conversation could not be compacted"),
        ("cancelled", "The compaction was cancelled"),
    ];
    covers::<acp::CompactionStatus>(compactions.iter().map(|(name, _)| *name).chain(["string"]));
    for (status, expected) in compactions {
        let compaction =
            json!({ "sessionUpdate": "compaction_update", "compactionId": "x", "status": status });
        assert_eq!(notified(&talk.turn(&update(&compaction)).await), [expected]);
    }
    let summary = |text: &str| {
        let content = json!({ "type": "text", "text": text });
        update(
            &json!({ "sessionUpdate": "compaction_summary_chunk", "compactionId": "x", "content": content }),
        )
    };
    let done =
        update(&json!({ "sessionUpdate": "compaction_update", "compactionId": "x", "status": "completed" }));
    let script = [summary("Hay "), summary("is fed."), done].join("\n");
    assert_eq!(notified(&talk.turn(&script).await), ["Compacted the conversation\n\nHay is fed."]);
    let other = json!({ "sessionUpdate": "compaction_update", "compactionId": "x", "status": "unheard-of" });
    assert!(notified(&talk.turn(&update(&other)).await).is_empty());
}

pub async fn answered(talk: &mut Talk, property: &Value, action: &str, answer: Value) -> Value {
    let schema = json!({ "type": "object", "properties": { "f": property } });
    let ask = json!({ "mode": "form", "message": "?", "requestedSchema": schema });
    talk.begin(&format!("!request elicitation/create {ask}")).await;
    let seen = talk.until(&["session/inputNeededSet"]).await;
    let id = &last(&seen)["request"]["id"];
    let mut completed = json!({ "type": "chat/inputCompleted", "requestId": id, "response": action });
    if !answer.is_null() {
        completed["answers"] = json!({ "f": { "state": "submitted", "value": answer } });
    }
    talk.act(completed).await;
    serde_json::from_str(&text_of(&talk.until(&["chat/turnComplete"]).await)).unwrap()
}

#[tokio::test]
async fn every_property_mode_and_answer_of_a_question_is_used() {
    let fields = [
        ("string", json!({ "type": "string" }), json!({ "kind": "text", "value": "x" }), json!("x")),
        ("number", json!({ "type": "number" }), json!({ "kind": "number", "value": 1.5 }), json!(1.5)),
        ("integer", json!({ "type": "integer" }), json!({ "kind": "number", "value": 2.0 }), json!(2)),
        ("boolean", json!({ "type": "boolean" }), json!({ "kind": "boolean", "value": true }), json!(true)),
        (
            "array",
            json!({ "type": "array", "items": { "type": "string", "enum": ["a", "b"] } }),
            json!({ "kind": "selected-many", "value": ["a"] }),
            json!(["a"]),
        ),
        // Of a type that is not known yet.
        ("{type}", json!({ "type": "_colour" }), json!({ "kind": "text", "value": "red" }), json!("red")),
    ];
    covers::<acp::ElicitationPropertySchema>(fields.iter().map(|(name, ..)| *name));
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    for (name, property, answer, expected) in fields {
        let told = answered(&mut talk, &property, "accept", answer).await;
        assert_eq!(told, json!({ "action": "accept", "content": { "f": expected } }), "{name}");
    }
    // Another action is a later version's: it is never sent.
    covers::<acp::CreateElicitationResponse>(["accept", "decline", "cancel", "{action}"]);
    let property = json!({ "type": "string" });
    for response in ["decline", "cancel"] {
        let told = answered(&mut talk, &property, response, Value::Null).await;
        assert_eq!(told, json!({ "action": response }));
    }
    let ask = json!({ "mode": "url", "elicitationId": "e", "url": "https://example.com", "message": "?" });
    talk.begin(&format!("!request elicitation/create {ask}")).await;
    let seen = talk.until(&["session/inputNeededSet"]).await;
    assert_eq!(last(&seen)["request"]["request"]["url"], "https://example.com");
    let id = &last(&seen)["request"]["id"];
    talk.act(json!({ "type": "chat/inputCompleted", "requestId": id, "response": "accept" })).await;
    let told: Value = serde_json::from_str(&text_of(&talk.until(&["chat/turnComplete"]).await)).unwrap();
    assert_eq!(told, json!({ "action": "accept" }));
}

#[tokio::test]
async fn every_kind_of_option_is_a_setting_and_every_way_to_sign_in_is_named() {
    covers::<acp::SessionConfigOption>(["select", "boolean"]);
    let options = json!([
        { "id": "level", "name": "Level", "type": "select", "currentValue": "a", "options": [{ "value": "a", "name": "A" }] },
        { "id": "fast", "name": "Fast", "type": "boolean", "currentValue": true },
    ]);
    let stage = Stage::new(json!({ "new": { "configOptions": options } }));
    let mut talk = stage.talk().await;
    talk.say("hello").await;
    let params = json!({ "provider": "fake", "config": {} });
    let resolved = talk.client.request("resolveSessionConfig", params).await.unwrap();
    assert_eq!(resolved["values"], json!({ "level": "a", "fast": true }));
    covers::<acp::AuthMethod>(["terminal", "AuthMethodAgent"]);
    let methods = json!([{ "id": "agent", "name": "Agent" }, { "id": "t", "type": "terminal", "name": "T", "args": ["x"] }]);
    let required = json!({ "code": -32000, "message": "Authentication required" });
    let stage = Stage::new(
        json!({ "initialize": { "authMethods": methods }, "refuse": { "session/new": required } }),
    );
    let error = stage.talk().await.fail("hello").await;
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("--method agent` (Agent)") && message.contains("--method t` (T)"), "{message}");
}
