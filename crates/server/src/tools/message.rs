//! The messages that an endpoint accepts, one per request: `initialize`, `tools/list`, `tools/call` and nothing else.

use ostler_contract::bodies::{JsonBody, JsonBodyError};
use ostler_contract::budget::SMALL;
use ostler_contract::http::{self, Body, BodyError, Request, Response, StatusCode, Uri};
use ostler_contract::points::{BoundTool, tool_text};
use ostler_contract::tools_endpoint::{NO_NAME, REVISION, no_method, no_tool};
use ostler_contract::{Bodies, JsonObject, Thrown, Value, json};
use ostler_protocol::error::code;

use super::endpoint::Endpoint;
use crate::reply::{Reply, TooLong, charged, refuse};

/// The header with the client's version of MCP.
const VERSION_HEADER: &str = "mcp-protocol-version";
/// The method that calls a tool.
const CALL: &str = "tools/call";
/// The maximum size of a message.
const BODY_LIMIT: usize = 8 * 1024 * 1024;

enum Message {
    Request {
        id: Value,
        method: String,
        params: Value,
    },
    /// A notification, or an unexpected answer.
    Said,
}

/// Answers a POST.
pub(super) async fn answer(endpoint: &Endpoint, request: Request) -> Response {
    let bodies = request.extensions().get::<Bodies>().cloned().unwrap_or_default();
    let (head, body) = request.into_parts();
    // The message is charged until the call is answered.
    let body = match bodies.read_json(body, BODY_LIMIT).await {
        Ok(body) => body,
        Err(JsonBodyError::Body(
            error @ (BodyError::TooLarge(_) | BodyError::TooManyValues { .. } | BodyError::NoMemory),
        )) => return refuse(&error.into()),
        Err(error) => return refuse(&Reply::NotOneMessage(format!(": {error}"))),
    };
    let JsonBody { value, charge: _charge } = body;
    let message = match read(value) {
        Ok(message) => message,
        Err(why) => return refuse(&Reply::NotOneMessage(why)),
    };
    let Message::Request { id, method, params } = message else {
        let mut accepted = Response::new(Body::Empty);
        *accepted.status_mut() = StatusCode::ACCEPTED;
        return accepted;
    };
    let spoken = head.headers.get(VERSION_HEADER).map(|spoken| String::from_utf8_lossy(spoken.as_bytes()));
    if let (Some(spoken), false) = (spoken, method == "initialize")
        && spoken != REVISION
    {
        let why = format!(" of revision {REVISION}, not {spoken}");
        return refuse(&Reply::NotOneMessage(why));
    }
    let whole = response(&id, result(endpoint, agent(&head.uri), &method, params).await);
    // The agent may not read its responses.
    match charged(&bodies, whole).await {
        Ok(whole) => whole,
        Err(TooLong(bytes)) => {
            let why = match method == CALL {
                true => format!(
                    "the tool was called, but the host has no memory for the response of {bytes} bytes now \
                     (limits.memoryMb); read the responses that wait before the next call"
                ),
                false => format!(
                    "the host has no memory for the response of {bytes} bytes now (limits.memoryMb); read the \
                     responses that wait, then try again"
                ),
            };
            let refused = response(&id, Err((code::INTERNAL_ERROR, why)));
            // The id may be what is long.
            match refused.body() {
                Body::Full(body) if body.len() > SMALL => refuse(&Reply::NoMemory),
                _ => refused,
            }
        }
    }
}

fn response(id: &Value, outcome: Result<Value, (i32, String)>) -> Response {
    let mut whole = match outcome {
        Ok(result) => json!({ "jsonrpc": "2.0", "result": result }),
        Err((code, why)) => json!({ "jsonrpc": "2.0", "error": { "code": code, "message": why } }),
    };
    whole["id"] = id.clone();
    http::json(StatusCode::OK, &whole)
}

/// Parses a body as exactly one message. The error is the text after *one JSON-RPC message*.
fn read(body: Option<Value>) -> Result<Message, String> {
    let Some(body) = body else { return Err(", and it is empty".to_owned()) };
    let Value::Object(mut fields) = body else { return Err(", an object".to_owned()) };
    if fields.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(": jsonrpc must be 2.0".to_owned());
    }
    let params = fields.shift_remove("params").unwrap_or_default();
    if !(params.is_null() || params.is_object()) {
        return Err(": params must be an object".to_owned());
    }
    match (fields.shift_remove("method"), fields.shift_remove("id")) {
        (Some(Value::String(_)), None) => Ok(Message::Said),
        (Some(Value::String(method)), Some(id)) if id.is_string() || id.is_number() => {
            Ok(Message::Request { id, method, params })
        }
        (Some(Value::String(_)), Some(_)) => Err(": its id must be text or a number".to_owned()),
        (None, Some(_)) if fields.contains_key("result") || fields.contains_key("error") => Ok(Message::Said),
        _ => Err(": it has no method".to_owned()),
    }
}

/// Returns the name of the agent that sends a request.
fn agent(uri: &Uri) -> Option<&str> {
    uri.query().into_iter().flat_map(|query| query.split('&')).find_map(|pair| pair.strip_prefix("agent="))
}

async fn result(
    endpoint: &Endpoint,
    agent: Option<&str>,
    method: &str,
    params: Value,
) -> Result<Value, (i32, String)> {
    match method {
        "initialize" => Ok(json!({
            "protocolVersion": REVISION,
            "capabilities": { "tools": { "listChanged": endpoint.notifies() } },
            "serverInfo": { "name": endpoint.about.name, "version": endpoint.about.version },
        })),
        "tools/list" => Ok(json!({ "tools": endpoint.list(agent).iter().map(listed).collect::<Vec<_>>() })),
        CALL => {
            let invalid = |why: String| (code::INVALID_PARAMS, why);
            let Some(name) = params.get("name").and_then(Value::as_str) else {
                return Err(invalid(NO_NAME.to_owned()));
            };
            let input = match params.get("arguments") {
                None | Some(Value::Null) => Value::Object(JsonObject::new()),
                Some(input @ Value::Object(_)) => input.clone(),
                Some(_) => return Err(invalid("arguments must be an object".to_owned())),
            };
            let called = endpoint.call(name, input).await;
            called.map(ToolOutcome::result).ok_or_else(|| invalid(no_tool(name)))
        }
        _ => Err((code::METHOD_NOT_FOUND, no_method(method))),
    }
}

/// Returns a tool in the form of MCP.
fn listed(tool: &BoundTool) -> Value {
    let definition = &tool.definition;
    let mut row = json!({
        "name": definition.name,
        "inputSchema": definition.input_schema.clone().unwrap_or_else(|| json!({ "type": "object" })),
    });
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            row[key] = value;
        }
    };
    put("title", definition.title.clone().map(Value::String));
    put("description", definition.description.clone().map(Value::String));
    put("outputSchema", definition.output_schema.clone());
    let own = definition.annotations.as_ref().and_then(|hints| serde_json::to_value(hints).ok());
    put("annotations", own.or_else(|| hints(tool)));
    row
}

/// Returns the declared effects of a tool in the form of MCP; undeclared effects are omitted.
fn hints(tool: &BoundTool) -> Option<Value> {
    let effects = tool.effects?;
    let mut hints = JsonObject::new();
    let mut put = |key: &str, value: Option<bool>| {
        if let Some(value) = value {
            hints.insert(key.to_owned(), value.into());
        }
    };
    put("readOnlyHint", effects.writes.map(|writes| !writes));
    put("destructiveHint", effects.destructive);
    put("openWorldHint", effects.network);
    (!hints.is_empty()).then_some(Value::Object(hints))
}

/// The outcome of a call.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ToolOutcome {
    content: Value,
    structured: Option<Value>,
    failed: bool,
    /// The unchanged answer of the tool.
    answer: Value,
}

/// Converts the answer or the error of a tool.
pub(super) fn outcome(outcome: Result<Value, Thrown>, has_schema: bool) -> ToolOutcome {
    match outcome {
        Ok(answer) => {
            let text = tool_text(&answer);
            let structured = (has_schema && answer.is_object()).then(|| answer.clone());
            ToolOutcome {
                content: json!([{ "type": "text", "text": text }]),
                structured,
                failed: false,
                answer,
            }
        }
        Err(thrown) => ToolOutcome::failed(thrown.message),
    }
}

impl ToolOutcome {
    pub fn failed(why: String) -> Self {
        let content = json!([{ "type": "text", "text": why }]);
        Self { content, structured: None, failed: true, answer: Value::Null }
    }

    /// Converts the answer of a client tool, which is a result of the protocol and states whether it succeeded.
    pub fn of_client(self) -> Self {
        let Some(success) = self.answer.get("success").and_then(Value::as_bool) else { return self };
        if self.failed || self.answer.get("pastTenseMessage").is_none() {
            return self;
        }
        if !success {
            let said = self.answer.pointer("/error/message").or_else(|| self.answer.get("pastTenseMessage"));
            return Self::failed(
                said.and_then(Value::as_str).unwrap_or("the client's tool failed").to_owned(),
            );
        }
        let texts = self.answer.get("content").and_then(Value::as_array).into_iter().flatten();
        let texts: Vec<Value> =
            texts.filter(|part| part.get("type").is_some_and(|kind| kind == "text")).cloned().collect();
        let content = match texts.is_empty() {
            true => json!([{ "type": "text", "text": self.answer["pastTenseMessage"] }]),
            false => Value::Array(texts),
        };
        Self { content, ..self }
    }

    fn result(self) -> Value {
        let mut result = json!({ "content": self.content, "isError": self.failed });
        if let Some(structured) = self.structured {
            result["structuredContent"] = structured;
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use ostler_protocol::surrogates::read_json;

    use super::*;

    fn message(text: &[u8]) -> Result<Message, String> {
        let value = (!text.is_empty()).then(|| read_json(text)).transpose();
        read(value.map_err(|error| error.to_string())?)
    }

    #[test]
    fn a_body_is_exactly_one_message() {
        let is = |text: &str| match message(text.as_bytes()) {
            Ok(Message::Request { .. }) => "request",
            Ok(Message::Said) => "said",
            Err(_) => "none",
        };
        for (text, kind) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#, "request"),
            (r#"{"jsonrpc":"2.0","id":"a","method":"tools/list","params":{}}"#, "request"),
            (r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, "said"),
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, "said"),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]"#, "none"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"a"}{"jsonrpc":"2.0","id":2,"method":"a"}"#, "none"),
            (r#"{"jsonrpc":"2.0","id":null,"method":"tools/list"}"#, "none"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"a","params":[1]}"#, "none"),
            (r#"{"jsonrpc":"1.0","id":1,"method":"tools/list"}"#, "none"),
            (r#"{"jsonrpc":"2.0","id":1}"#, "none"),
            (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, "none"),
            ("", "none"),
            ("[]", "none"),
            ("nonsense", "none"),
        ] {
            assert_eq!(is(text), kind, "{text}");
        }
    }

    #[test]
    fn what_a_client_said_of_its_tool_is_what_became_of_it() {
        let of = |answer: Value| outcome(Ok(answer), false).of_client().result();
        let text = |text: &str, failed: bool| json!({ "content": [{ "type": "text", "text": text }], "isError": failed });
        assert_eq!(of(json!("plain")), text("plain", false));
        assert_eq!(of(Value::Null), text("", false), "nothing is said of nothing");
        let failed =
            json!({ "success": false, "pastTenseMessage": "Tried", "error": { "message": "no hands" } });
        assert_eq!(of(failed), text("no hands", true));
        assert_eq!(of(json!({ "success": false, "pastTenseMessage": "Tried" })), text("Tried", true));
        let done = json!({ "success": true, "pastTenseMessage": "Did", "content": [
            { "type": "text", "text": "hay" }, { "type": "resource", "uri": "file:///x" }] });
        assert_eq!(of(done), text("hay", false));
        assert_eq!(of(json!({ "success": true, "pastTenseMessage": "Did" })), text("Did", false));
        assert_eq!(of(json!({ "success": false })), text(r#"{"success":false}"#, false));
    }

    proptest::proptest! {
        #[test]
        fn nothing_posted_panics(text in proptest::collection::vec(proptest::arbitrary::any::<u8>(), 0..200)) {
            let _ = message(&text);
        }
    }
}
