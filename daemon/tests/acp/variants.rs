//! Variants of the schema that [`crate::schema`] does not drive: updates, questions, options, MCP servers and errors.

use agent_client_protocol::v1::schema as acp;
use serde_json::{Value, json};

use crate::agent;
use crate::schema::{answered, covers, update};
use crate::support::wait_for;
use crate::talk::{Stage, all, last, text_of};

#[tokio::test]
async fn every_update_is_shown() {
    let chunk = |kind: &str| json!({ "sessionUpdate": kind, "content": { "type": "text", "text": "hay" } });
    let option = json!({ "id": "fast", "name": "Fast", "type": "boolean", "currentValue": true });
    let rows = [
        (chunk("user_message_chunk"), ""),
        (chunk("agent_message_chunk"), "chat/responsePart"),
        (chunk("agent_thought_chunk"), "chat/responsePart"),
        (json!({ "sessionUpdate": "tool_call", "toolCallId": "a", "title": "T" }), "chat/toolCallStart"),
        (
            json!({ "sessionUpdate": "tool_call_update", "toolCallId": "b", "status": "completed" }),
            "chat/toolCallComplete",
        ),
        (
            json!({ "sessionUpdate": "plan", "entries": [{ "content": "a", "priority": "low", "status": "pending" }] }),
            "chat/responsePart",
        ),
        (
            json!({ "sessionUpdate": "available_commands_update", "availableCommands": [{ "name": "c", "description": "C" }] }),
            "session/customizationUpdated",
        ),
        (json!({ "sessionUpdate": "current_mode_update", "currentModeId": "b" }), "session/configChanged"),
        (
            json!({ "sessionUpdate": "config_option_update", "configOptions": [option] }),
            "session/configChanged",
        ),
        (json!({ "sessionUpdate": "session_info_update", "title": "Haymaking" }), "session/titleChanged"),
        (json!({ "sessionUpdate": "usage_update", "used": 5, "size": 10 }), "chat/usage"),
        (json!({ "sessionUpdate": "notice", "severity": "info", "title": "T" }), "chat/responsePart"),
        (
            json!({ "sessionUpdate": "compaction_update", "compactionId": "x", "status": "completed" }),
            "chat/responsePart",
        ),
        (
            json!({ "sessionUpdate": "compaction_summary_chunk", "compactionId": "x",
                "content": { "type": "text", "text": "hay" } }),
            "",
        ),
    ];
    covers::<acp::SessionUpdate>(rows.iter().map(|(row, _)| row["sessionUpdate"].as_str().unwrap()));
    let modes = json!({ "currentModeId": "a", "availableModes": [{ "id": "a", "name": "A" }, { "id": "b", "name": "B" }] });
    let stage = Stage::new(json!({ "new": { "modes": modes } }));
    let mut talk = stage.talk().await;
    talk.say("hello").await;
    for (row, expected) in rows {
        let params = json!({ "sessionId": "session-1", "update": row });
        let notification = json!({ "jsonrpc": "2.0", "method": "session/update", "params": params });
        let seen = talk.turn(&format!("!raw {notification}")).await;
        let of_turn = ["chat/turnStarted", "chat/turnComplete", "chat/activityChanged"];
        let told = seen.iter().filter_map(|action| action["type"].as_str());
        let told: Vec<&str> = told.filter(|kind| !of_turn.contains(kind)).collect();
        match expected {
            "" => assert!(!told.iter().any(|kind| kind.starts_with("chat/")), "{row}: {seen:#?}"),
            expected => assert!(told.contains(&expected), "{row}: {seen:#?}"),
        }
    }
}

/// What a client is asked for a field of a form.
async fn asked(talk: &mut crate::talk::Talk, property: &Value) -> Value {
    let schema = json!({ "type": "object", "properties": { "f": property } });
    let ask = json!({ "mode": "form", "message": "?", "requestedSchema": schema });
    talk.begin(&format!("!request elicitation/create {ask}")).await;
    let seen = talk.until(&["session/inputNeededSet"]).await;
    let request = last(&seen)["request"]["request"].clone();
    let completed =
        json!({ "type": "chat/inputCompleted", "requestId": request["id"], "response": "decline" });
    talk.act(completed).await;
    talk.until(&["chat/turnComplete"]).await;
    request["questions"][0].clone()
}

#[tokio::test]
async fn every_form_is_a_question_and_every_value_an_answer() {
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let formats = ["email", "uri", "date", "date-time"];
    covers::<acp::StringFormat>(formats);
    for format in formats {
        let question = asked(&mut talk, &json!({ "type": "string", "format": format })).await;
        assert_eq!((&question["kind"], &question["format"]), (&json!("text"), &json!(format)));
    }
    covers::<acp::ElicitationSchemaType>(["object"]);
    let items = [
        ("string", json!({ "type": "string", "enum": ["a"] }), json!([{ "id": "a", "label": "a" }])),
        (
            "TitledMultiSelectItems",
            json!({ "anyOf": [{ "const": "a", "title": "A" }] }),
            json!([{ "id": "a", "label": "A" }]),
        ),
        // Of a kind that is not known yet: the choices that can be read are offered.
        ("{type}", json!({ "type": "_colour", "enum": ["red"] }), json!([{ "id": "red", "label": "red" }])),
    ];
    covers::<acp::MultiSelectItems>(items.iter().map(|(name, ..)| *name));
    for (name, items, expected) in items {
        let question = asked(&mut talk, &json!({ "type": "array", "items": items })).await;
        assert_eq!((&question["kind"], &question["options"]), (&json!("multi-select"), &expected), "{name}");
    }
    let values = [
        ("string", json!({ "type": "string" }), json!({ "kind": "text", "value": "x" }), json!("x")),
        ("int64", json!({ "type": "integer" }), json!({ "kind": "number", "value": 2.0 }), json!(2)),
        ("double", json!({ "type": "number" }), json!({ "kind": "number", "value": 1.5 }), json!(1.5)),
        ("boolean", json!({ "type": "boolean" }), json!({ "kind": "boolean", "value": false }), json!(false)),
        (
            "string[]",
            json!({ "type": "array", "items": { "type": "string", "enum": ["a"] } }),
            json!({ "kind": "selected-many", "value": ["a"] }),
            json!(["a"]),
        ),
    ];
    covers::<acp::ElicitationContentValue>(values.iter().map(|(name, ..)| *name));
    for (name, property, answer, expected) in values {
        let told = answered(&mut talk, &property, "accept", answer).await;
        assert_eq!(told["content"]["f"], expected, "{name}");
    }
}

#[tokio::test]
async fn a_question_is_about_a_session_or_about_the_request_that_opens_it() {
    let scopes = ["ElicitationSessionScope", "ElicitationRequestScope"];
    covers::<acp::ElicitationFormMode>(scopes);
    covers::<acp::ElicitationUrlMode>(scopes);
    covers::<acp::CreateElicitationRequest>(scopes.into_iter().chain(["form", "url"]));
    let form = json!({ "mode": "form", "message": "Which stable?",
        "requestedSchema": { "type": "object", "properties": { "n": { "type": "string" } } } });
    let url = json!({ "mode": "url", "message": "Which stable?", "elicitationId": "e", "url": "https://example.com" });
    let mut asked = Vec::new();
    for (ask, response, end) in [
        (&form, "accept", "chat/turnComplete"),
        (&form, "cancel", "chat/error"),
        (&url, "accept", "chat/turnComplete"),
    ] {
        let stage =
            Stage::with(json!({ "ask": { "session/new": ask } }), json!({ "startTimeoutSeconds": 2 }));
        let mut talk = stage.talk().await;
        talk.begin("hello").await;
        let seen = talk.until(&["session/inputNeededSet"]).await;
        let request = last(&seen)["request"]["request"].clone();
        assert_eq!(request["message"], "Which stable?");
        asked.push((stage, talk, request, ask, response, end));
    }
    // A user may take longer than the agents, whose time is over unnoticed.
    tokio::time::sleep(std::time::Duration::from_millis(2200)).await;
    for (_stage, mut talk, request, ask, response, end) in asked {
        let mut completed =
            json!({ "type": "chat/inputCompleted", "requestId": request["id"], "response": response });
        if response == "accept" && ask == &form {
            let answer = json!({ "state": "submitted", "value": { "kind": "text", "value": "the old one" } });
            completed["answers"] = json!({ "n": answer });
        }
        talk.act(completed).await;
        let seen = talk.until(&["chat/turnComplete", "chat/error"]).await;
        assert_eq!(last(&seen)["type"], end, "{seen:#?}");
    }
}

#[tokio::test]
async fn every_category_of_an_option_and_every_list_of_values_is_a_setting() {
    let categories = [("mode", "a"), ("model", "b"), ("model_config", "c"), ("thought_level", "d")];
    // Any other is a setting like these.
    covers::<acp::SessionConfigOptionCategory>(categories.iter().map(|(name, _)| *name).chain(["string"]));
    covers::<acp::SessionConfigSelectOptions>(["SessionConfigSelectOption[]", "SessionConfigSelectGroup[]"]);
    let flat = json!([{ "value": "1", "name": "One" }, { "value": "2", "name": "Two" }]);
    let grouped = json!([{ "group": "g", "name": "G", "options": flat }]);
    for options in [&flat, &grouped] {
        let option = |category: &str, id: &str| json!({ "id": id, "name": id, "category": category, "type": "select", "currentValue": "1", "options": options });
        let all = categories.iter().chain([&("_stable", "e")]);
        let all: Vec<Value> = all.map(|(category, id)| option(category, id)).collect();
        let stage = Stage::new(json!({ "new": { "configOptions": all } }));
        let mut talk = stage.talk().await;
        talk.say("hello").await;
        let params = json!({ "provider": "fake", "config": {} });
        let resolved = talk.client.request("resolveSessionConfig", params).await.unwrap();
        for (category, id) in categories.iter().chain([&("_stable", "e")]) {
            let property = &resolved["schema"]["properties"][id];
            assert_eq!(property["enumLabels"], json!(["One", "Two"]), "{category}: {resolved}");
            assert_eq!(resolved["values"][id], "1", "{category}");
        }
    }
}

#[tokio::test]
async fn every_kind_of_value_is_sent() {
    covers::<acp::SetSessionConfigOptionRequest>(["boolean", "{value}"]);
    let log = tempfile::NamedTempFile::new().unwrap();
    let options = json!([
        { "id": "level", "name": "Level", "type": "select", "currentValue": "a",
            "options": [{ "value": "a", "name": "A" }, { "value": "b", "name": "B" }] },
        { "id": "fast", "name": "Fast", "type": "boolean", "currentValue": false },
    ]);
    let stage = Stage::new(json!({ "log": log.path(), "new": { "configOptions": options } }));
    stage.talk().await.say("hello").await;
    stage.talk_in("fake:/two", json!({ "level": "b", "fast": true })).await.say("hello").await;
    let sent = std::fs::read_to_string(log.path()).unwrap();
    let frames = sent.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let set = frames.filter(|frame| frame["method"] == "session/set_config_option");
    let mut set: Vec<Value> = set.map(|frame| frame["params"].clone()).collect();
    set.sort_by_key(|params| params["configId"].to_string());
    assert_eq!((&set[0]["type"], &set[0]["value"]), (&json!("boolean"), &json!(true)));
    assert_eq!((set[1].get("type"), &set[1]["value"]), (None, &json!("b")));
}

#[tokio::test]
async fn every_kind_of_mcp_server_is_offered_or_has_a_substitute() {
    covers::<acp::McpServer>(["http", "sse", "McpServerStdio"]);
    let servers = json!({
        "files": { "type": "stdio", "command": "mcp-files" },
        "web": { "type": "http", "url": "https://example.com/mcp" },
    });
    let tools = "export const name = 'tools'; export function apply(host) { host.registerTool({
        definition: { name: 'shout', description: 'Shouts.', inputSchema: { type: 'object' } }, run: () => 'HAY' }); }";
    // The host has no server with server-sent events, the protocol's older form of HTTP: an agent that knows nothing newer
    // is offered the session's tools over stdio.
    let rows = [
        (
            json!({ "http": true, "sse": true }),
            vec![("files", None), ("ostler", Some("http")), ("web", Some("http"))],
        ),
        (json!({ "http": false, "sse": true }), vec![("files", None), ("ostler", None)]),
        (json!({ "http": false, "sse": false }), vec![("files", None), ("ostler", None)]),
    ];
    for (capabilities, expected) in rows {
        let log = tempfile::NamedTempFile::new().unwrap();
        let config = json!({ "log": log.path(), "initialize": { "agentCapabilities": { "mcpCapabilities": capabilities } } });
        let stage =
            Stage::configured(agent::entry(config), json!({}), json!({ "mcpServers": servers }), Some(tools));
        assert!(stage.talk().await.say("!mcp tools/list").await.contains("\"name\":\"shout\""));
        let sent = std::fs::read_to_string(log.path()).unwrap();
        let frames = sent.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let opened = frames.into_iter().find(|frame| frame["method"] == "session/new").unwrap();
        let offered = opened["params"]["mcpServers"].as_array().unwrap().iter();
        let mut offered: Vec<_> =
            offered.map(|server| (server["name"].as_str().unwrap(), server["type"].as_str())).collect();
        offered.sort_unstable();
        assert_eq!(offered, expected);
    }
}

#[tokio::test]
async fn every_error_ends_the_turn_with_its_words() {
    let codes = [-32700, -32600, -32601, -32602, -32603, -32800, -32000, -32002];
    let names: Vec<String> = codes.iter().map(i32::to_string).collect();
    // Any other is treated like these.
    covers::<acp::ErrorCode>(names.iter().map(String::as_str).chain(["int32"]));
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    for code in codes.into_iter().chain([-31000]) {
        let refusal =
            json!({ "code": code, "message": "No hay", "data": { "details": "the loft is empty" } });
        let error = talk.fail(&format!("!refuse {refusal}")).await;
        assert_eq!(error["errorType"], "agent", "{code}: {error}");
        let words = "fake refused session/prompt: No hay: the loft is empty";
        assert!(error["message"].as_str().unwrap().starts_with(words), "{code}: {error}");
    }
    let said = talk.say("hello").await;
    assert!(said.ends_with("hello"), "{said}");
}

#[tokio::test]
async fn every_kind_of_request_id_is_answered_and_can_be_taken_back() {
    // A request has one that is not null.
    covers::<acp::RequestId>(["null", "int64", "string"]);
    let log = tempfile::NamedTempFile::new().unwrap();
    let stage = Stage::new(json!({ "log": log.path() }));
    let mut talk = stage.talk().await;
    talk.say("hello").await;
    let answer_of = |id: &Value| {
        let sent = std::fs::read_to_string(log.path()).unwrap();
        let mut frames = sent.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        frames.find(|frame| frame["id"] == *id && frame.get("method").is_none())
    };
    for id in [json!(7), json!("seven")] {
        let ask = json!({ "sessionId": "session-1", "toolCall": { "toolCallId": format!("c{id}"), "title": "T" },
            "options": [{ "optionId": "y", "name": "Y", "kind": "allow_once" }] });
        let request =
            json!({ "jsonrpc": "2.0", "id": id, "method": "session/request_permission", "params": ask });
        let cancel = json!({ "jsonrpc": "2.0", "method": "$/cancel_request", "params": { "requestId": id } });
        let turn = talk.begin(&format!("!raw {request}\n!sleep 100\n!raw {cancel}\n!wait")).await;
        talk.until(&["session/inputNeededSet"]).await;
        talk.until(&["session/inputNeededRemoved"]).await;
        let answer = wait_for(|| answer_of(&id)).expect("an answer");
        assert!(
            answer["result"]["outcome"]["outcome"] == "cancelled" || answer["error"]["code"] == -32800,
            "{answer}"
        );
        talk.act(json!({ "type": "chat/turnCancelled", "turnId": turn, "duration": 0 })).await;
        talk.until(&["chat/turnCancelled"]).await;
    }
}

#[tokio::test]
async fn every_command_is_offered_whatever_its_input() {
    covers::<acp::AvailableCommandInput>(["UnstructuredCommandInput"]);
    let stage = Stage::new(json!({}));
    let mut talk = stage.talk().await;
    let commands = json!([{ "name": "plan", "description": "Plans", "input": { "hint": "what to plan" } },
        { "name": "tidy", "description": "Tidies" }]);
    let seen = talk
        .turn(&update(
            &json!({ "sessionUpdate": "available_commands_update", "availableCommands": commands }),
        ))
        .await;
    let offered = &all(&seen, "session/customizationUpdated")[0]["customization"]["children"];
    let names: Vec<&str> =
        offered.as_array().unwrap().iter().map(|child| child["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["plan", "tidy"]);
}

#[tokio::test]
async fn every_content_of_a_resource_is_shown_and_sent_whoever_it_is_for() {
    covers::<acp::EmbeddedResourceResource>(["TextResourceContents", "BlobResourceContents"]);
    covers::<acp::Role>(["assistant", "user"]);
    let capabilities = json!({ "promptCapabilities": { "embeddedContext": true } });
    let stage = Stage::new(json!({ "initialize": { "agentCapabilities": capabilities } }));
    let mut talk = stage.talk().await;
    let rows = [
        (json!({ "uri": "file:///a", "text": "hay" }), "/content", "\nfile:///a\n```\nhay\n```\n"),
        (
            json!({ "uri": "file:///a", "blob": "AA==", "mimeType": "image/png" }),
            "/uri",
            "data:image/png;base64,AA==",
        ),
    ];
    for (resource, at, expected) in rows {
        for audience in [json!(["assistant"]), json!(["user"])] {
            let block =
                json!({ "type": "resource", "resource": resource, "annotations": { "audience": audience } });
            let seen = talk
                .turn(&update(&json!({ "sessionUpdate": "agent_message_chunk", "content": block })))
                .await;
            assert_eq!(all(&seen, "chat/responsePart")[0]["part"].pointer(at).unwrap(), expected);
        }
    }
    let attachments = json!([
        { "type": "embeddedResource", "label": "a.txt", "data": "aGF5", "contentType": "text/plain" },
        { "type": "embeddedResource", "label": "a.bin", "data": "AA==", "contentType": "application/zip" },
    ]);
    let message = json!({ "text": "!blocks", "attachments": attachments });
    talk.act(json!({ "type": "chat/turnStarted", "turnId": "attached", "message": message })).await;
    let blocks: Value = serde_json::from_str(&text_of(&talk.until(&["chat/turnComplete"]).await)).unwrap();
    assert_eq!(
        (&blocks[1]["resource"]["text"], &blocks[2]["resource"]["blob"]),
        (&json!("hay"), &json!("AA=="))
    );
}

#[tokio::test]
async fn a_question_answered_at_its_address_is_accepted() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let stage = Stage::new(json!({ "log": log.path() }));
    let mut talk = stage.talk().await;
    let params = json!({ "sessionId": "session-1", "mode": "url", "elicitationId": "e", "message": "Sign in",
        "url": "https://example.com" });
    let request = json!({ "jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": params });
    let complete =
        json!({ "jsonrpc": "2.0", "method": "elicitation/complete", "params": { "elicitationId": "e" } });
    talk.begin(&format!("!raw {request}\n!sleep 100\n!raw {complete}\n!sleep 100")).await;
    let seen = talk.until(&["session/inputNeededRemoved"]).await;
    assert_eq!(all(&seen, "chat/inputCompleted")[0]["response"], "accept", "{seen:#?}");
    talk.until(&["chat/turnComplete"]).await;
    talk.say("hello").await;
    let sent = std::fs::read_to_string(log.path()).unwrap();
    let mut frames = sent.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let answer = frames.find(|frame| frame["id"] == "q").unwrap();
    assert_eq!(answer["result"], json!({ "action": "accept" }));
}
