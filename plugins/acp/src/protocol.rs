//! What agents report, in this plugin's own types. Agents deviate from the protocol's schema in many ways: every member
//! is parsed leniently, and invalid ones are omitted instead of failing the message.

use ostler_contract::Value;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::limits::{self, List};
use crate::masks::Masks;

/// Parses a member; `None` if it is absent or has another type.
pub fn member<T: DeserializeOwned>(value: &Value, name: &str) -> Option<T> {
    value.get(name).filter(|member| !member.is_null()).and_then(|member| T::deserialize(member).ok())
}

/// Parses the valid entries of a list, within its limits.
pub fn entries<T: DeserializeOwned>(value: &Value, list: &List) -> Option<Vec<T>> {
    Some(list.of(value)?.filter_map(|entry| T::deserialize(entry).ok()).collect())
}

/// One `session/update`.
#[derive(Debug, Clone, PartialEq)]
pub enum Update {
    /// A chunk of a message or thought.
    Chunk(Chunk),
    /// A tool call, announced or changed.
    ToolCall(ToolCallChange),
    /// The whole plan.
    Plan(Vec<PlanEntry>),
    /// The slash commands.
    Commands(Vec<Command>),
    /// The current mode.
    Mode(String),
    /// The whole list of configuration options.
    ConfigOptions(Vec<ConfigOption>),
    /// The session's title; `None` if it was removed.
    Title(Option<String>),
    /// An update without supported content.
    Nothing,
    /// The usage of the context, and the cost of the session.
    Usage(ContextUsage),
    /// A message for the user outside the conversation.
    Notice(Notice),
    /// The state of a compaction.
    Compaction(Compaction),
    /// A chunk of a compaction's summary.
    CompactionSummary(String),
    /// A session that this one created for a part of its work; not stable.
    Subagent(Subagent),
    /// An unknown update, by its name.
    Unknown(String),
}

impl Update {
    /// Masks notices and errors.
    pub fn masked(self, masks: &Masks) -> Self {
        match self {
            Self::Notice(Notice { severity, title, description }) => Self::Notice(Notice {
                severity,
                title: masks.hide(&title),
                description: description.map(|text| masks.hide(&text)),
            }),
            Self::Compaction(compaction) => Self::Compaction(Compaction {
                error: compaction.error.map(|why| masks.hide(&why)),
                ..compaction
            }),
            Self::Unknown(name) => Self::Unknown(masks.hide(&name)),
            other => other,
        }
    }
}

/// Who a chunk is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Voice {
    /// The user: sent in replays.
    User,
    /// The agent's answer.
    Agent,
    /// The agent's reasoning.
    Thought,
}

/// A chunk of a message or thought.
#[derive(Debug, Clone, PartialEq)]
pub struct Chunk {
    /// Who it is from.
    pub voice: Voice,
    /// Its message, if the agent identifies messages.
    pub message: Option<String>,
    /// The piece.
    pub content: Content,
}

/// A content block.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// Text, as Markdown.
    Text(String),
    /// An image or sound.
    Media {
        /// Base64.
        data: String,
        /// Its MIME type.
        mime: String,
    },
    /// A reference to a resource.
    Link {
        /// Where it is.
        uri: String,
        /// Shown to users.
        name: String,
        /// Its MIME type.
        mime: Option<String>,
    },
    /// A resource with its text.
    Embedded {
        /// Where it is.
        uri: String,
        /// Its text.
        text: String,
    },
    /// An unknown kind of content.
    Unknown(String),
}

/// The members of a tool call that a message names.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolCallChange {
    /// The call.
    pub id: String,
    /// What it does, for users.
    pub title: Option<String>,
    /// The tool's own name.
    pub name: Option<String>,
    /// `read`, `edit`, `execute`, …
    pub kind: Option<String>,
    /// Its status.
    pub status: Option<ToolStatus>,
    /// Its content.
    pub content: Option<Vec<ToolContent>>,
    /// The files it works on.
    pub locations: Option<Vec<Location>>,
    /// Its arguments.
    pub raw_input: Option<Value>,
    /// Its result.
    pub raw_output: Option<Value>,
}

/// The status of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    /// Its input streams, or it waits for approval.
    Pending,
    /// It runs.
    InProgress,
    /// It succeeded.
    Completed,
    /// It failed.
    Failed,
}

/// Content of a tool call.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolContent {
    /// A content block.
    Block(Content),
    /// A file's change.
    Diff(Diff),
    /// A terminal of the client, by its id.
    Terminal(String),
}

/// A file's change.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Diff {
    /// The file.
    pub path: String,
    /// Its text before; `None` for a new file.
    pub old_text: Option<String>,
    /// Its text after.
    #[serde(default)]
    pub new_text: String,
}

/// A place in a file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Location {
    /// The file.
    pub path: String,
    /// Its line, from 1.
    pub line: Option<u64>,
}

/// One entry of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanEntry {
    /// What is to be done.
    pub content: String,
    /// `high`, `medium` or `low`.
    #[serde(default)]
    pub priority: String,
    /// `pending`, `in_progress` or `completed`.
    #[serde(default)]
    pub status: String,
}

/// A slash command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Command {
    /// Without the slash.
    pub name: String,
    /// What it does.
    #[serde(default)]
    pub description: String,
}

/// A setting of the agent's session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConfigOption {
    /// The agent's id.
    pub id: String,
    /// Shown to users.
    pub name: String,
    /// One line.
    pub description: Option<String>,
    /// `mode`, `model`, `thought_level`, …
    pub category: Option<String>,
    /// Its kind and value.
    pub value: ConfigValue,
}

/// The kind of a setting, and its value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ConfigValue {
    /// One of several.
    Select {
        /// The chosen one; empty in the catalogue, where no session has chosen.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        current: String,
        /// All of them.
        choices: Vec<Choice>,
    },
    /// On or off.
    Boolean(bool),
}

/// One value of a setting, a mode or a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// The agent's id.
    pub id: String,
    /// Shown to users.
    pub name: String,
    /// One line.
    pub description: Option<String>,
    /// Whether the agent had it as its value, and does not list it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unlisted: bool,
}

/// The usage of the context, and the cost of the session so far.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ContextUsage {
    /// Tokens in the context.
    pub used: u64,
    /// Tokens the context can hold.
    #[serde(default)]
    pub size: u64,
    /// The cost of the session so far.
    #[serde(default)]
    pub cost: Option<Cost>,
}

/// An amount of money.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Cost {
    /// The amount.
    pub amount: f64,
    /// ISO 4217.
    pub currency: String,
}

/// A message for the user outside the conversation.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Notice {
    /// `info`, `warning`, `error`, …
    #[serde(default)]
    pub severity: String,
    /// One line.
    #[serde(default)]
    pub title: String,
    /// More.
    pub description: Option<String>,
}

/// The state of a compaction.
#[derive(Debug, Clone, PartialEq)]
pub struct Compaction {
    /// `in_progress`, `completed`, `failed`, `cancelled`, …
    pub status: String,
    /// Its whole summary, in place of the chunks so far; `None` if it is unchanged.
    pub summary: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
}

impl Compaction {
    fn read(update: &Value) -> Self {
        let summary = update.get("summary").map(|blocks| {
            let text = |block: &Value| match Content::read(block) {
                Content::Text(text) | Content::Embedded { text, .. } => Some(text),
                _ => None,
            };
            let texts: Vec<String> = blocks.as_array().into_iter().flatten().filter_map(text).collect();
            texts.join("\n\n")
        });
        Self { status: member(update, "status").unwrap_or_default(), summary, error: member(update, "error") }
    }
}

/// An update of a subagent; omitted members are unchanged.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Subagent {
    /// The agent's id of its session.
    pub session: String,
    /// Its title.
    pub title: Option<String>,
    /// Its purpose.
    pub description: Option<String>,
    /// Its state: `running`, `idle`, `requires_action`, …
    pub state: Option<String>,
    /// Why it stopped.
    pub stop_reason: Option<String>,
    /// Whether it can be cancelled; `None` if that is unchanged.
    pub cancel: Option<bool>,
}

impl Subagent {
    fn read(update: &Value) -> Option<Self> {
        let state = update.get("state");
        let cancel = |capabilities: &Value| capabilities.get("cancel").is_some_and(Value::is_object);
        Some(Self {
            session: member(update, "sessionId")?,
            title: member(update, "title"),
            description: member(update, "description"),
            state: state.and_then(|state| member(state, "state")),
            stop_reason: state.and_then(|state| member(state, "stopReason")),
            cancel: update.get("capabilities").map(cancel),
        })
    }
}

impl Update {
    /// Parses the `update` of a `session/update`.
    pub fn read(update: &Value) -> Self {
        let name = update.get("sessionUpdate").and_then(Value::as_str).unwrap_or_default();
        let chunk = |voice| {
            let content = Content::read(update.get("content").unwrap_or(&Value::Null));
            Self::Chunk(Chunk { voice, message: member(update, "messageId"), content })
        };
        let known = match name {
            "user_message_chunk" => Some(chunk(Voice::User)),
            "agent_message_chunk" => Some(chunk(Voice::Agent)),
            "agent_thought_chunk" => Some(chunk(Voice::Thought)),
            "tool_call" | "tool_call_update" => ToolCallChange::read(update).map(Self::ToolCall),
            "plan" => entries(update, &limits::PLAN).map(Self::Plan),
            "available_commands_update" => entries(update, &limits::COMMANDS).map(Self::Commands),
            "current_mode_update" => member(update, "currentModeId").map(Self::Mode),
            "config_option_update" => ConfigOption::read_all(update).map(Self::ConfigOptions),
            "session_info_update" => Some(match update.get("title") {
                Some(title) => Self::Title(title.as_str().map(str::to_owned)),
                None => Self::Nothing,
            }),
            "usage_update" => ContextUsage::deserialize(update).ok().map(Self::Usage),
            "notice" => Notice::deserialize(update).ok().map(Self::Notice),
            "compaction_update" => Some(Self::Compaction(Compaction::read(update))),
            "subagent_update" => Subagent::read(update).map(Self::Subagent),
            "compaction_summary_chunk" => {
                let text = update.get("content").and_then(|content| member(content, "text"));
                Some(text.map_or(Self::Nothing, Self::CompactionSummary))
            }
            _ => None,
        };
        known.unwrap_or_else(|| Self::Unknown(name.to_owned()))
    }
}

impl Content {
    /// Parses a content block.
    pub fn read(block: &Value) -> Self {
        let kind = block.get("type").and_then(Value::as_str).unwrap_or_default();
        let text = |name: &str| member::<String>(block, name);
        let known = match kind {
            "text" => text("text").map(Self::Text),
            "image" | "audio" => {
                text("data").zip(text("mimeType")).map(|(data, mime)| Self::Media { data, mime })
            }
            "resource_link" => text("uri").map(|uri| Self::Link {
                name: text("title").or_else(|| text("name")).unwrap_or_else(|| uri.clone()),
                mime: text("mimeType"),
                uri,
            }),
            "resource" => block.get("resource").and_then(|resource| {
                let uri = member::<String>(resource, "uri")?;
                Some(match (member(resource, "text"), member(resource, "blob")) {
                    (Some(text), _) => Self::Embedded { uri, text },
                    (None, Some(data)) => Self::Media {
                        data,
                        mime: member(resource, "mimeType")
                            .unwrap_or_else(|| "application/octet-stream".to_owned()),
                    },
                    (None, None) => Self::Link { name: uri.clone(), mime: member(resource, "mimeType"), uri },
                })
            }),
            _ => None,
        };
        known.unwrap_or_else(|| Self::Unknown(kind.to_owned()))
    }
}

impl ToolCallChange {
    /// Parses a tool call; `None` if it has no id.
    pub fn read(call: &Value) -> Option<Self> {
        let content = limits::CONTENT.of(call);
        Some(Self {
            id: member(call, "toolCallId")?,
            title: member(call, "title"),
            name: member(call, "name"),
            kind: member(call, "kind"),
            status: member(call, "status"),
            content: content.map(|content| content.filter_map(ToolContent::read).collect()),
            locations: entries(call, &limits::LOCATIONS),
            raw_input: member(call, "rawInput"),
            raw_output: member(call, "rawOutput"),
        })
    }
}

impl ToolContent {
    fn read(content: &Value) -> Option<Self> {
        match content.get("type").and_then(Value::as_str)? {
            "content" => Some(Self::Block(Content::read(content.get("content")?))),
            "diff" => Diff::deserialize(content).ok().map(Self::Diff),
            "terminal" => member(content, "terminalId").map(Self::Terminal),
            // Some agents send the block without its wrapper.
            _ => Some(Self::Block(Content::read(content))),
        }
    }
}

impl ConfigOption {
    /// Parses the `configOptions` of a message; `None` if it has none.
    pub fn read_all(message: &Value) -> Option<Vec<Self>> {
        Some(limits::OPTIONS.of(message)?.filter_map(Self::read).collect())
    }

    fn read(option: &Value) -> Option<Self> {
        let id: String = member(option, "id")?;
        let current = option.get("currentValue")?;
        let value = match (option.get("type").and_then(Value::as_str), current) {
            (_, Value::Bool(on)) => ConfigValue::Boolean(*on),
            (Some("select") | None, Value::String(current)) => ConfigValue::Select {
                current: current.clone(),
                choices: Choice::read_all(option, &limits::CHOICES, "value"),
            },
            _ => return None,
        };
        Some(Self {
            name: member(option, "name").unwrap_or_else(|| id.clone()),
            description: member(option, "description"),
            category: member(option, "category"),
            value,
            id,
        })
    }
}

impl Choice {
    /// Parses a list of choices, flat or in groups, whose ids are in `key`.
    pub fn read_all(message: &Value, list: &List, key: &str) -> Vec<Self> {
        let entries = list.of(message).into_iter().flatten();
        entries
            .flat_map(|entry| match limits::CHOICES.of(entry) {
                Some(grouped) => grouped.collect::<Vec<_>>(),
                None => vec![entry],
            })
            .take(limits::CHOICES.most())
            .filter_map(|entry| {
                let id: String = member(entry, key)?;
                let name = member(entry, "name").unwrap_or_else(|| id.clone());
                Some(Self { id, name, description: member(entry, "description"), is_unlisted: false })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use ostler_contract::json;

    use super::*;

    #[test]
    fn an_update_that_cannot_be_read_is_named_and_nothing_else() {
        for update in [
            json!({ "sessionUpdate": "tool_call" }),
            json!({}),
            json!({ "sessionUpdate": "brand_new", "x": 1 }),
        ] {
            let name = update["sessionUpdate"].as_str().unwrap_or_default().to_owned();
            assert_eq!(Update::read(&update), Update::Unknown(name));
        }
    }

    /// Every update of the schema that is shown somewhere, and why another is not.
    const UPDATES: &[(&str, &str)] = &[
        ("user_message_chunk", "read; the host has the user's words already"),
        ("agent_message_chunk", "read"),
        ("agent_thought_chunk", "read"),
        ("tool_call", "read"),
        ("tool_call_update", "read"),
        ("plan", "read"),
        ("available_commands_update", "read"),
        ("current_mode_update", "read"),
        ("config_option_update", "read"),
        ("session_info_update", "read"),
        ("usage_update", "read"),
        ("notice", "read"),
        ("compaction_update", "read"),
        ("compaction_summary_chunk", "read; the summary is the agent's own, only the compaction is shown"),
    ];

    #[test]
    fn every_update_of_the_schema_is_read() {
        let schema = schemars::schema_for!(agent_client_protocol::v1::schema::SessionUpdate).to_value();
        let variants = schema["oneOf"].as_array().unwrap();
        let names: Vec<&str> = variants
            .iter()
            .map(|variant| variant["properties"]["sessionUpdate"]["const"].as_str().unwrap())
            .collect();
        let known: Vec<&str> = UPDATES.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, known);
        let block = json!({ "type": "text", "text": "t" });
        for name in names {
            let update = json!({ "sessionUpdate": name, "content": block, "toolCallId": "c", "entries": [],
                "availableCommands": [], "currentModeId": "m", "configOptions": [], "used": 1, "size": 2,
                "severity": "info", "title": "t", "compactionId": "x", "status": "completed" });
            assert!(!matches!(Update::read(&update), Update::Unknown(_)), "{name}");
        }
    }

    #[test]
    fn members_of_another_shape_are_left_out() {
        let update = json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "title": 7, "status": "odd",
            "content": [{ "type": "diff" }, { "type": "content", "content": { "type": "text", "text": "t" } }] });
        let Update::ToolCall(call) = Update::read(&update) else { panic!("{update}") };
        assert_eq!((call.title, call.status), (None, None));
        assert_eq!(call.content, Some(vec![ToolContent::Block(Content::Text("t".into()))]));
    }

    #[test]
    fn choices_are_read_flat_and_grouped() {
        let ids = |options: Value| {
            let all = ConfigOption::read_all(&json!({ "configOptions": [
                { "id": "model", "name": "Model", "type": "select", "currentValue": "a", "options": options }
            ] }));
            let Some(ConfigValue::Select { choices, .. }) = all.unwrap().pop().map(|option| option.value)
            else {
                panic!()
            };
            choices.into_iter().map(|choice| choice.id).collect::<Vec<_>>()
        };
        let (a, b) = (json!({ "value": "a", "name": "A" }), json!({ "value": "b", "name": "B" }));
        assert_eq!(ids(json!([a, b])), ["a", "b"]);
        assert_eq!(
            ids(
                json!([{ "group": "g", "name": "G", "options": [a] }, { "group": "h", "name": "H", "options": [b] }])
            ),
            ["a", "b"]
        );
    }
}
