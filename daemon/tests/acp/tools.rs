//! The session's tools and the configured MCP servers reach the agent.

use serde_json::{Value, json};

use crate::agent;
use crate::talk::{Stage, all, last, text_of};

const TOOLS: &str = "
export const name = 'tools';
export function apply(host) {
  host.registerTool({ definition: { name: 'shout', description: 'Shouts.', inputSchema: { type: 'object' } },
    run: ({ text }) => text.toUpperCase() });
}
";

fn stage(config: Value) -> Stage {
    let servers = json!({
        "files": { "type": "stdio", "command": "mcp-files", "args": ["--all"], "env": { "K": { "$secret": "host:files" } } },
        "web": { "type": "http", "url": "https://example.com/mcp", "headers": { "Authorization": "Bearer b" } },
    });
    Stage::configured(agent::entry(config), json!({}), json!({ "mcpServers": servers }), Some(TOOLS))
}

#[tokio::test]
async fn the_agent_calls_the_tools_of_plugins() {
    let stage = stage(json!({}));
    let mut talk = stage.talk().await;
    let said = talk.say("!mcp tools/list").await;
    assert!(said.contains("\"name\":\"shout\""), "{said}");
    let said = talk.say(r#"!mcp tools/call { "name": "shout", "arguments": { "text": "hay" } }"#).await;
    assert!(said.contains("HAY"), "{said}");
}

#[tokio::test]
async fn a_clients_tool_is_run_by_the_client() {
    let stage = stage(json!({}));
    let mut talk = stage.talk().await;
    let tool = json!({ "name": "weigh", "description": "Weighs.", "inputSchema": { "type": "object" } });
    let present = json!({ "type": "session/activeClientSet",
        "activeClient": { "clientId": "fake--one", "customizations": [], "tools": [tool] } });
    let session = talk.session.clone();
    talk.client.dispatch(&session, 90, present).await;
    talk.until(&["session/activeClientSet"]).await;
    let listed = talk.say("!mcp tools/list").await;
    let name = listed
        .split('"')
        .find(|word| word.ends_with("__weigh"))
        .unwrap_or_else(|| panic!("{listed}"))
        .to_owned();
    let call = json!({ "name": name, "arguments": { "of": "hay" } });
    let turn = talk.begin(&format!("!mcp tools/call {call}")).await;
    let seen = talk.until(&["session/inputNeededSet"]).await;
    let asked = &last(&seen)["request"];
    assert_eq!((&asked["kind"], &asked["turnId"]), (&json!("toolClientExecution"), &json!(turn)));
    let started = all(&seen, "chat/toolCallStart")[0];
    assert_eq!((&started["toolName"], &started["contributor"]["kind"]), (&json!("weigh"), &json!("client")));
    let result = json!({ "success": true, "pastTenseMessage": "Weighed", "content": [{ "type": "text", "text": "seven stone" }] });
    let id = asked["toolCall"]["toolCallId"].clone();
    talk.act(json!({ "type": "chat/toolCallComplete", "turnId": turn, "toolCallId": id, "result": result }))
        .await;
    let seen = talk.until(&["chat/turnComplete"]).await;
    assert!(text_of(&seen).contains("seven stone"), "{}", text_of(&seen));
}

#[tokio::test]
async fn the_agent_hears_that_the_tools_changed_over_http_and_over_stdio() {
    for http in [true, false] {
        hears_of_changes(http).await;
    }
}

async fn hears_of_changes(http: bool) {
    let stage =
        stage(json!({ "initialize": { "agentCapabilities": { "mcpCapabilities": { "http": http } } } }));
    let mut talk = stage.talk().await;
    talk.begin("!mcp-changes").await;
    talk.until(&["chat/responsePart"]).await;
    let tool = json!({ "name": "weigh", "description": "Weighs.", "inputSchema": { "type": "object" } });
    let present = json!({ "type": "session/activeClientSet",
        "activeClient": { "clientId": "fake--one", "customizations": [], "tools": [tool] } });
    let session = talk.session.clone();
    talk.client.dispatch(&session, 90, present).await;
    let said = text_of(&talk.until(&["chat/turnComplete"]).await);
    assert!(said.contains("notifications/tools/list_changed"), "{said}");
}

#[tokio::test]
async fn configured_servers_are_passed_on_with_their_secrets() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let stage = stage(json!({ "log": log.path() }));
    stage.folder.write("vault.json", r#"{ "host:files": "right" }"#);
    let stage = stage.restarted(false);
    let mut talk = stage.talk().await;
    talk.say("hello").await;
    let sent = std::fs::read_to_string(log.path()).unwrap();
    let opened = sent.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let opened = opened.into_iter().find(|frame| frame["method"] == "session/new").unwrap();
    let servers = opened["params"]["mcpServers"].as_array().unwrap();
    let of = |name: &str| {
        servers.iter().find(|server| server["name"] == name).unwrap_or_else(|| panic!("{servers:?}"))
    };
    assert_eq!(
        of("files"),
        &json!({ "name": "files", "command": "mcp-files", "args": ["--all"], "env": [{ "name": "K", "value": "right" }] })
    );
    assert_eq!(of("web")["headers"], json!([{ "name": "Authorization", "value": "Bearer b" }]));
    assert_eq!(of("ostler")["type"], "http");
    assert!(!stage.folder.read("log").contains("right"), "no secret in the log");
}

#[tokio::test]
async fn an_agent_without_http_calls_the_tools_over_stdio() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let none = json!({ "agentCapabilities": { "mcpCapabilities": { "http": false } } });
    let stage = stage(json!({ "log": log.path(), "initialize": none }));
    let mut talk = stage.talk().await;
    let said = talk.say("!mcp tools/list").await;
    assert!(said.contains("\"name\":\"shout\""), "{said}");
    let said = talk.say(r#"!mcp tools/call { "name": "shout", "arguments": { "text": "hay" } }"#).await;
    assert!(said.contains("HAY"), "{said}");
    let said = talk.say("!mcp nonsense").await;
    assert!(said.contains("\"error\""), "{said}");
    stage.folder.wait_for_log("MCP server web is left out: the agent has no support for MCP over HTTP");
    let sent = std::fs::read_to_string(log.path()).unwrap();
    assert!(!sent.contains("https://example.com/mcp"), "{sent}");
}

#[tokio::test]
async fn questions_of_the_agent_are_answered_by_users() {
    let stage = stage(json!({}));
    let mut talk = stage.talk().await;
    let schema = json!({ "type": "object", "required": ["name"], "properties": {
        "name": { "type": "string", "title": "Name" }, "count": { "type": "integer" },
        "colour": { "type": "string", "enum": ["red", "blue"] } } });
    let ask = json!({ "mode": "form", "message": "Who are you?", "requestedSchema": schema });
    talk.begin(&format!("!request elicitation/create {ask}")).await;
    let seen = talk.until(&["session/inputNeededSet"]).await;
    let request = &last(&seen)["request"]["request"];
    assert_eq!(
        (&request["message"], request["questions"].as_array().unwrap().len()),
        (&json!("Who are you?"), 3)
    );
    let submitted =
        |kind: &str, value: Value| json!({ "state": "submitted", "value": { "kind": kind, "value": value } });
    let answers = json!({ "name": submitted("text", json!("Ada")), "count": submitted("number", json!(3.0)),
        "colour": submitted("selected", json!("blue")) });
    let completed = json!({ "type": "chat/inputCompleted", "requestId": request["id"], "response": "accept", "answers": answers });
    talk.act(completed).await;
    let seen = talk.until(&["chat/turnComplete"]).await;
    let answer: Value = serde_json::from_str(&text_of(&seen)).unwrap();
    assert_eq!(
        answer,
        json!({ "action": "accept", "content": { "name": "Ada", "count": 3, "colour": "blue" } })
    );
    let ask = json!({ "mode": "url", "elicitationId": "e", "url": "https://example.com/sign", "message": "Sign in" });
    talk.begin(&format!("!request elicitation/create {ask}")).await;
    let seen = talk.until(&["session/inputNeededSet"]).await;
    assert_eq!(last(&seen)["request"]["request"]["url"], "https://example.com/sign");
    let id = last(&seen)["request"]["id"].clone();
    talk.act(json!({ "type": "chat/inputCompleted", "requestId": id, "response": "decline" })).await;
    let seen = talk.until(&["chat/turnComplete"]).await;
    assert_eq!(text_of(&seen), "{\"action\":\"decline\"}");
}

/// Answers a form with what fits and what does not; the question is asked until an answer fits.
#[tokio::test]
async fn an_answer_that_does_not_fit_its_form_is_asked_for_again() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let stage = stage(json!({ "log": log.path() }));
    let mut talk = stage.talk().await;
    let text = |value: &str| json!({ "kind": "text", "value": value });
    let number = |value: f64| json!({ "kind": "number", "value": value });
    let many = |values: &[&str]| json!({ "kind": "selected-many", "value": values });
    let selected = |value: &str| json!({ "kind": "selected", "value": value });
    let titled = json!([{ "const": "red", "title": "Red" }, { "const": "blue", "title": "Blue" }]);
    let cases = [
        (
            json!({ "type": "string", "minLength": 2 }),
            text("a"),
            "text of at least 2 characters",
            text("ab"),
            json!("ab"),
        ),
        (
            json!({ "type": "string", "maxLength": 1 }),
            text("ab"),
            "text of at most 1 character",
            text("a"),
            json!("a"),
        ),
        (
            json!({ "type": "string", "pattern": "^[a-c]+$" }),
            text("hay"),
            "text that matches ^[a-c]+$",
            text("abc"),
            json!("abc"),
        ),
        (
            json!({ "type": "string", "pattern": "(", "minLength": 2 }),
            text("a"),
            "text of at least 2 characters",
            text("ab"),
            json!("ab"),
        ),
        (
            json!({ "type": "string", "format": "email" }),
            text("ada at example.com"),
            "an email address",
            text("ada@example.com"),
            json!("ada@example.com"),
        ),
        (
            json!({ "type": "string", "format": "uri" }),
            text("example.com/hay"),
            "a URI, such as https://example.com/hay",
            text("https://example.com/hay"),
            json!("https://example.com/hay"),
        ),
        (
            json!({ "type": "string", "format": "date" }),
            text("2026-02-30"),
            "a date, such as 2026-11-23",
            text("2028-02-29"),
            json!("2028-02-29"),
        ),
        (
            json!({ "type": "string", "format": "date-time" }),
            text("2026-11-23 half past five"),
            "a date and a time with its offset, such as 2026-11-23T17:30:00Z",
            text("2026-11-23T17:30:00+01:00"),
            json!("2026-11-23T17:30:00+01:00"),
        ),
        // A format that the protocol does not have is a hint.
        (
            json!({ "type": "string", "format": "hostname", "minLength": 2 }),
            text("-"),
            "text of at least 2 characters",
            text("--"),
            json!("--"),
        ),
        (json!({ "type": "string" }), number(3.0), "text", text("a"), json!("a")),
        (
            json!({ "type": "boolean" }),
            text("true"),
            "true or false",
            json!({ "kind": "boolean", "value": true }),
            json!(true),
        ),
        (json!({ "type": "integer" }), number(3.5), "an integer", number(3.0), json!(3)),
        (
            json!({ "type": "integer", "minimum": 1, "maximum": 3 }),
            number(4.0),
            "an integer between 1 and 3",
            number(3.0),
            json!(3),
        ),
        (
            json!({ "type": "number", "minimum": 1 }),
            number(0.5),
            "a number of 1 or more",
            number(1.5),
            json!(1.5),
        ),
        (
            json!({ "type": "string", "enum": ["red", "blue"] }),
            selected("green"),
            "one of red, blue",
            selected("red"),
            json!("red"),
        ),
        (
            json!({ "type": "string", "oneOf": titled }),
            selected("Red"),
            "one of red, blue",
            selected("red"),
            json!("red"),
        ),
        (
            json!({ "type": "array", "items": { "type": "string", "enum": ["a", "b"] } }),
            many(&["a", "c"]),
            "one of a, b",
            many(&["a"]),
            json!(["a"]),
        ),
        (
            json!({ "type": "array", "maxItems": 1, "items": { "anyOf": titled } }),
            many(&["red", "blue"]),
            "a list of at most 1 entry",
            many(&["red"]),
            json!(["red"]),
        ),
    ];
    for (property, wrong, expected, right, value) in cases {
        let mut property = property;
        property["title"] = "The field".into();
        let schema = json!({ "type": "object", "properties": { "f": property } });
        let ask = json!({ "mode": "form", "message": "What?", "requestedSchema": schema });
        std::fs::write(log.path(), "").unwrap();
        talk.begin(&format!("!request elicitation/create {ask}")).await;
        let mut message = "What?".to_owned();
        let mut ids = Vec::new();
        // One that the form does not have is left out.
        for answer in [&wrong, &wrong, &right] {
            let seen = talk.until(&["session/inputNeededSet"]).await;
            let request = last(&seen)["request"]["request"].clone();
            assert_eq!(request["message"], message, "{property}");
            assert!(!ids.contains(&request["id"]), "{property}: {ids:?}");
            let answers = json!({ "f": { "state": "submitted", "value": answer },
                "other": { "state": "submitted", "value": text("x") } });
            let completed = json!({ "type": "chat/inputCompleted", "requestId": request["id"], "response": "accept", "answers": answers });
            ids.push(request["id"].clone());
            talk.act(completed).await;
            message = format!("What?\n\nThe answer was not sent: The field must be {expected}");
        }
        let seen = talk.until(&["chat/turnComplete"]).await;
        let answer: Value = serde_json::from_str(&text_of(&seen)).unwrap();
        assert_eq!(answer, json!({ "action": "accept", "content": { "f": value } }), "{property}");
        let sent = std::fs::read_to_string(log.path()).unwrap();
        assert_eq!(sent.matches("\"answers\":\"elicitation/create\"").count(), 1, "{property}: {sent}");
    }
}

#[tokio::test]
async fn a_required_answer_that_is_skipped_and_one_that_never_fits_reach_no_agent() {
    let stage = stage(json!({}));
    let mut talk = stage.talk().await;
    let schema =
        json!({ "type": "object", "required": ["name"], "properties": { "name": { "type": "string" } } });
    let ask = json!({ "mode": "form", "message": "Who?", "requestedSchema": schema });
    talk.begin(&format!("!request elicitation/create {ask}")).await;
    for round in 0..10 {
        let seen = talk.until(&["session/inputNeededSet"]).await;
        let request = last(&seen)["request"]["request"].clone();
        let asked_again = request["message"] == "Who?\n\nThe answer was not sent: name must be given";
        assert_eq!(asked_again, round > 0, "{request}");
        let completed = json!({ "type": "chat/inputCompleted", "requestId": request["id"], "response": "accept",
            "answers": { "name": { "state": "skipped" } } });
        talk.act(completed).await;
    }
    let seen = talk.until(&["chat/turnComplete"]).await;
    assert_eq!(text_of(&seen), "{\"action\":\"cancel\"}");
}
