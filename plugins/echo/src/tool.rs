//! Tool calls: host tools run here, client tools on the client, both after approval if required.

use ostler_contract::points::{BoundTool, Emit, ToolCallPlace, tool_text};
use ostler_contract::wire::commands::ContentEncoding;
use ostler_contract::{JsonObject, Thrown, Value, json, proxy};
use tokio::sync::oneshot;

use crate::session::{Stopped, Turn};

/// The option that approves a tool for the rest of its session.
const ALWAYS: &str = "alwaysApprove";
/// How much of a call's input its message shows, in characters. All of it is in `toolInput`.
const INPUT_SHOWN: usize = 500;

/// Receives whether a call is approved, with the chosen option.
type Approval = oneshot::Receiver<(bool, Option<String>)>;

/// A running call.
struct ToolCall {
    id: String,
    /// The name of the tool for its runner.
    name: String,
    /// The client that runs it, if any.
    client: Option<String>,
    message: String,
    /// The input as JSON text.
    input: String,
}

impl ToolCall {
    /// Returns the call's fields in the form of its state.
    fn state(&self, status: &str) -> Value {
        let mut state = json!({ "status": status, "toolCallId": self.id, "toolName": self.name,
            "displayName": self.name, "invocationMessage": self.message, "toolInput": self.input });
        if let Some(contributor) = self.contributor() {
            state["contributor"] = contributor;
        }
        state
    }

    fn contributor(&self) -> Option<Value> {
        self.client.as_ref().map(|client| json!({ "kind": "client", "clientId": client }))
    }
}

impl Turn {
    /// Calls a tool and streams its result.
    pub(crate) async fn tool(&mut self, name: &str, input: Value, confirm: bool) -> Result<(), Stopped> {
        let tool = find(&self.conversation.tools.lock(), name);
        let shown = input.to_string();
        let call = ToolCall {
            id: format!("{}-call", self.id),
            name: tool.as_ref().map_or(name, own_name).to_owned(),
            client: tool.as_ref().and_then(|tool| tool.owner.clone()),
            message: match confirm {
                true => format!("Calling {name} with {}", shortened(&shown)),
                false => format!("Calling {name}"),
            },
            input: shown,
        };
        let mut start = json!({ "toolName": call.name, "displayName": call.name });
        if let Some(contributor) = call.contributor() {
            start["contributor"] = contributor;
        }
        self.emit(Emit::Chat, self.about(&call, "chat/toolCallStart", start))?;
        let mut ready = json!({ "invocationMessage": call.message, "toolInput": call.input });
        let always = confirm && self.conversation.always_approves(name);
        match confirm && !always {
            true => {
                ready["confirmationTitle"] = format!("Call {}", call.name).into();
                ready["options"] = options();
            }
            false => ready["confirmed"] = if always { "setting" } else { "not-needed" }.into(),
        }
        // Before clients can answer.
        let approval = (confirm && !always).then(|| self.approval_of(&call));
        self.emit(Emit::Chat, self.about(&call, "chat/toolCallReady", ready))?;
        if let Some(approval) = approval
            && !self.approved(&call, name, approval).await?
        {
            return self.say("answer", &format!("{name} was not approved.")).await;
        }
        let result = match (&call.client, tool.and_then(|tool| tool.run)) {
            (Some(client), _) => self.run_by_client(&call, client).await?,
            (None, Some(run)) => {
                let place =
                    ToolCallPlace { turn_id: Some(self.id.clone()), tool_call_id: Some(call.id.clone()) };
                result_of(name, self.wait(run.call((input, Some(place)))).await?)
            }
            (None, None) => result_of(name, Err(Thrown::new(format_args!("there is no tool {name}")))),
        };
        let said = text_of(&result);
        self.emit(Emit::Chat, self.about(&call, "chat/toolCallComplete", json!({ "result": result })))?;
        self.say("answer", &said).await
    }

    /// Reads a resource and streams its content.
    pub(crate) async fn read(&mut self, uri: &str) -> Result<(), Stopped> {
        let Some(read) = self.conversation.read.clone() else {
            return self.say("answer", "Nothing can be read here.").await;
        };
        let content = self.wait(read.call((uri.to_owned(),))).await??;
        let said = match content.encoding {
            ContentEncoding::Utf8 => content.data,
            ContentEncoding::Base64 => {
                format!("{} {}", content.content_type.unwrap_or_default(), content.data)
            }
        };
        self.say("answer", &said).await
    }

    /// Streams the settings of the session's editors.
    pub(crate) async fn say_settings(&mut self) -> Result<(), Stopped> {
        let mut settings = match self.conversation.client_settings.clone() {
            Some(settings) => self.wait(settings.call(())).await??,
            None => JsonObject::new(),
        };
        // The address of a proxy can contain a password, and others read the chat.
        if let Some(Value::String(proxy)) = settings.get_mut(proxy::SETTING)
            && let Some((_, address)) = proxy.rsplit_once('@')
        {
            *proxy = format!("***@{address}");
        }
        self.say("answer", &Value::Object(settings).to_string()).await
    }

    /// Returns an action about a call.
    fn about(&self, call: &ToolCall, kind: &str, more: Value) -> Value {
        let mut action = json!({ "type": kind, "turnId": self.id, "toolCallId": call.id });
        if let (Some(action), Value::Object(more)) = (action.as_object_mut(), more) {
            action.extend(more);
        }
        action
    }

    /// Returns what receives the approval of a call.
    fn approval_of(&self, call: &ToolCall) -> Approval {
        let (approve, approved) = oneshot::channel();
        self.conversation.waiting.lock().approvals.insert(call.id.clone(), approve);
        approved
    }

    async fn approved(&mut self, call: &ToolCall, tool: &str, approved: Approval) -> Result<bool, Stopped> {
        let mut waiting = call.state("pending-confirmation");
        waiting["confirmationTitle"] = format!("Call {}", call.name).into();
        waiting["options"] = options();
        self.emit(
            Emit::Session,
            json!({ "type": "session/inputNeededSet", "request": {
            "kind": "toolConfirmation", "id": call.id, "chat": self.conversation.chat_uri,
            "turnId": self.id, "toolCall": waiting } }),
        )?;
        let (approved, option) = self.wait(approved).await?.unwrap_or((false, None));
        if approved && option.as_deref() == Some(ALWAYS) {
            let mut all = self.conversation.ways.approved.lock();
            all.entry(self.conversation.uri.clone()).or_default().insert(tool.to_owned());
        }
        Ok(approved)
    }

    /// Makes the client that contributed a tool run it; the host answers for a client that leaves or takes too long.
    async fn run_by_client(&mut self, call: &ToolCall, client: &str) -> Result<Value, Stopped> {
        let (complete, completed) = oneshot::channel();
        self.conversation.waiting.lock().results.insert(call.id.clone(), complete);
        let mut running = call.state("running");
        running["confirmed"] = "not-needed".into();
        self.emit(
            Emit::Session,
            json!({ "type": "session/inputNeededSet", "request": {
            "kind": "toolClientExecution", "id": call.id, "chat": self.conversation.chat_uri,
            "turnId": self.id, "clientId": client, "toolCall": running } }),
        )?;
        let completed = self.wait(completed).await;
        self.conversation.waiting.lock().results.remove(&call.id);
        Ok(completed?.unwrap_or_else(|_| failed("the session ended before the tool had run")))
    }
}

/// Finds a tool by name. A client tool is also found by the client's name of it.
fn find(tools: &[BoundTool], name: &str) -> Option<BoundTool> {
    let exact = tools.iter().find(|tool| tool.definition.name == name);
    exact.or_else(|| tools.iter().find(|tool| tool.owner.is_some() && own_name(tool) == name)).cloned()
}

/// Returns the client's name of a tool.
fn own_name(tool: &BoundTool) -> &str {
    let name = tool.definition.name.as_str();
    let own = tool.owner.as_ref().and_then(|client| name.strip_prefix(client.as_str())?.strip_prefix("__"));
    own.unwrap_or(name)
}

/// Converts the answer of a host tool to the result of a call.
fn result_of(name: &str, outcome: Result<Value, Thrown>) -> Value {
    let text = match outcome {
        Ok(value) => tool_text(&value),
        Err(thrown) => {
            let mut result = failed(&thrown.message);
            result["pastTenseMessage"] = format!("Called {name}").into();
            return result;
        }
    };
    json!({ "success": true, "pastTenseMessage": format!("Called {name}"),
        "content": [{ "type": "text", "text": text }] })
}

fn failed(why: &str) -> Value {
    json!({ "success": false, "pastTenseMessage": why, "content": [{ "type": "text", "text": why }],
        "error": { "message": why } })
}

/// Returns the text of a result.
fn text_of(result: &Value) -> String {
    let content = result["content"].as_array().into_iter().flatten();
    let texts: Vec<&str> = content.filter_map(|part| part["text"].as_str()).collect();
    match (texts.is_empty(), result["error"]["message"].as_str()) {
        (false, _) => texts.join("\n"),
        (true, Some(why)) => why.to_owned(),
        (true, None) => "Done.".to_owned(),
    }
}

fn shortened(input: &str) -> String {
    match input.char_indices().nth(INPUT_SHOWN) {
        Some((end, _)) => format!("{}…", &input[..end]),
        None => input.to_owned(),
    }
}

/// The options of an approval.
fn options() -> Value {
    json!([
        { "id": "approve", "label": "Allow once", "kind": "approve", "group": 0 },
        { "id": ALWAYS, "label": "Allow this tool for the session", "kind": "approve", "group": 0 },
        { "id": "deny", "label": "Deny", "kind": "deny", "group": 1 },
    ])
}
