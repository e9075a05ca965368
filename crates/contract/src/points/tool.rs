//! Host tools. Spec: *Host tool*.

use ostler_contract_derive::Cross;
use ostler_protocol::JsonObject;
use ostler_protocol::wire::state::{ChatSummary, SessionSummary, ToolDefinition, Turn};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Contribution, Slot};
use crate::call::{Call, HostFunction};
use crate::cross::{Frozen, Mismatch, Text};
use crate::recorder::{Key, Space, Unique};

/// A tool offered to every session's model.
///
/// ```
/// use ostler_contract::{Call, Value, json, points::{Tool, ToolContext, ToolSpec}};
///
/// let tool = Tool {
///     definition: ToolSpec {
///         name: "shout".into(),
///         description: Some("Says it louder.".into()),
///         input_schema: json!({ "type": "object", "properties": { "text": { "type": "string" } } }).as_object().cloned(),
///         ..ToolSpec::default()
///     },
///     run: Call::new(|(input, _at): (Value, ToolContext)| async move {
///         Ok(input["text"].as_str().unwrap_or_default().to_uppercase().into())
///     }),
///     ..Tool::default()
/// };
/// # assert!(ostler_contract::Cross::check(&tool).is_ok());
/// ```
#[derive(Debug, Clone, Default, Cross)]
pub struct Tool {
    /// `{ name, description, inputSchema }`
    pub definition: ToolSpec,
    /// The effects the tool declares; a backend uses them to decide whether to ask for approval.
    pub effects: Option<ToolEffects>,
    /// Whether sessions get the tool only with the operator's `advancedTools` setting.
    pub advanced_permission: Option<bool>,
    /// Instructions for the model in addition to the description.
    pub instruction: Option<String>,
    /// Whether the tool may be described to the model later.
    pub defer_loading: Option<bool>,
    /// Runs the tool. The model receives the message of an error.
    pub run: Call<fn(input: Value, at: ToolContext) -> Value>,
}

/// The description of a tool for a model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct ToolSpec {
    /// The name that the model calls.
    pub name: Text,
    /// Display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Description for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema of the input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<JsonObject>,
    /// JSON Schema of the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<JsonObject>,
}

/// What a tool returned as the text of its result: a string as it is, nothing (`null`) as the empty text, any other value
/// as JSON.
pub fn tool_text(returned: &Value) -> String {
    match returned {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

impl From<&ToolSpec> for ToolDefinition {
    fn from(spec: &ToolSpec) -> Self {
        Self {
            name: spec.name.to_string(),
            title: spec.title.clone(),
            description: spec.description.clone(),
            input_schema: spec.input_schema.clone().map(Value::Object),
            output_schema: spec.output_schema.clone().map(Value::Object),
            annotations: None,
            meta: None,
        }
    }
}

/// The effects a tool declares; undeclared ones are unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct ToolEffects {
    /// Reads data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<bool>,
    /// Writes data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes: Option<bool>,
    /// Uses the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<bool>,
    /// Cannot be undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destructive: Option<bool>,
}

/// The context of a tool call and the operations available to it.
#[derive(Debug, Clone, Cross)]
pub struct ToolContext {
    /// The session's URI.
    pub session: String,
    /// The chat's URI.
    pub chat: String,
    /// The session's backend.
    pub provider: Option<String>,
    /// The id of the running turn, if any.
    pub turn: HostFunction<fn() -> Option<String>>,
    /// All sessions that the host lists.
    pub sessions: HostFunction<fn() -> Vec<SessionSummary>>,
    /// The chats of a session.
    pub chats: HostFunction<fn(session: String) -> Vec<ChatSummary>>,
    /// The turns of a chat, frozen. Default: the session's default chat.
    pub context: HostFunction<fn(session: String, chat: Option<String>) -> Frozen<Vec<Turn>>>,
    /// Sends a message to a chat, immediately or through the queue. Returns `sent` or `queued`.
    pub send: HostFunction<fn(session: String, chat: Option<String>, text: String) -> String>,
    /// Starts a session with the same owner and returns its URI.
    pub create: HostFunction<fn(request: ToolSession) -> String>,
    /// Opens a chat in a session, sends its first message and returns its URI.
    pub create_chat: HostFunction<fn(session: String, request: ToolChat) -> String>,
    /// Renames a session.
    pub rename: HostFunction<fn(session: String, title: String)>,
    /// Disposes of another session.
    pub remove: HostFunction<fn(session: String)>,
    /// Reads a resource with the grants of the session's owner.
    pub read: HostFunction<fn(uri: String) -> String>,
}

/// A request for a session by a tool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct ToolSession {
    /// Text of the first turn.
    pub prompt: String,
    /// Title of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// A path. Default: the directory of the tool's session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// A backend. Default: the backend of the tool's session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Model id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// A request for a chat by a tool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct ToolChat {
    /// Text of the first turn.
    pub prompt: String,
    /// Title of the chat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Model id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

impl Contribution for Tool {
    const SLOT: Slot = Slot::Append;

    fn key(&self) -> Option<Key> {
        Some(Key {
            space: Space::Tool,
            name: self.definition.name.to_string(),
            member: "definition.name",
            unique: Unique::Among { kind: "tool", takes: "name", other: "tool" },
        })
    }

    fn refuse(&self) -> Result<(), Mismatch> {
        if self.definition.name.trim().is_empty() {
            return Err(Mismatch::of::<Text>().within("definition.name"));
        }
        Ok(())
    }
}
