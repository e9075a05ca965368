//! Server tools. Spec: *Host tool*.

use ostler_contract_derive::Cross;
use ostler_protocol::JsonObject;
use ostler_protocol::wire::state::{ChatSummary, SessionSummary, ToolDefinition, Turn};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Contribution, Slot};
use crate::call::Call;
use crate::cross::{Frozen, Mismatch, Text};
use crate::recorder::{Key, Space, Unique};

/// A server tool offered to every session's model.
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
    /// What the tool says it does: a claim, by which a backend decides whether to ask a person.
    pub effects: Option<ToolEffects>,
    /// Withheld from every session until the operator's `advancedTools` setting allows it.
    pub advanced_permission: Option<bool>,
    /// A text for the model beside the description.
    pub instruction: Option<String>,
    /// Whether the model need not be told of it at once.
    pub defer_loading: Option<bool>,
    /// The body. What it throws is what the model is told.
    pub run: Call<fn(input: Value, at: ToolContext) -> Value>,
}

/// What a model is told of a tool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct ToolSpec {
    /// The name a model calls.
    pub name: Text,
    /// Shown to people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it does, for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema of its input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<JsonObject>,
    /// JSON Schema of what it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<JsonObject>,
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

/// What a tool says it does; nothing is assumed of what it does not say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct ToolEffects {
    /// It reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<bool>,
    /// It writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes: Option<bool>,
    /// It goes out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<bool>,
    /// It cannot be undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destructive: Option<bool>,
}

/// Where a tool runs, and what it may do there.
#[derive(Debug, Clone, Cross)]
pub struct ToolContext {
    /// The session's URI.
    pub session: String,
    /// The chat's URI.
    pub chat: String,
    /// The session's backend.
    pub provider: Option<String>,
    /// The running turn's id, if one runs.
    pub turn: Call<fn() -> Option<String>>,
    /// Every session the host lists.
    pub sessions: Call<fn() -> Vec<SessionSummary>>,
    /// The chats of a session.
    pub chats: Call<fn(session: String) -> Vec<ChatSummary>>,
    /// The turns of a chat, frozen; the session's default chat when none is named.
    pub context: Call<fn(session: String, chat: Option<String>) -> Frozen<Vec<Turn>>>,
    /// Says something in a chat: at once when it is free, else queued. Answers `sent` or `queued`.
    pub send: Call<fn(session: String, chat: Option<String>, text: String) -> String>,
    /// Starts a session of this one's owner; answers its URI.
    pub create: Call<fn(request: ToolSession) -> String>,
    /// Opens one more chat in a session and says the first thing in it; answers its URI.
    pub create_chat: Call<fn(session: String, request: ToolChat) -> String>,
    /// Renames a session.
    pub rename: Call<fn(session: String, title: String)>,
    /// Removes a session other than this one.
    pub remove: Call<fn(session: String)>,
    /// Reads what a URI names, as this session's owner.
    pub read: Call<fn(uri: String) -> String>,
}

/// A session a tool starts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct ToolSession {
    /// The first turn.
    pub prompt: String,
    /// The session's title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// A path; this session's own when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// A backend; this session's own when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// A model's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// A chat a tool opens.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct ToolChat {
    /// The first turn.
    pub prompt: String,
    /// The chat's title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// A model's id.
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
