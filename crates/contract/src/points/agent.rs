//! Backends: what runs agent sessions. Spec: *Registration methods*, *Backend extensions*.

use std::collections::BTreeMap;
use std::sync::Arc;

use ostler_contract_derive::Cross;
use ostler_protocol::JsonObject;
use ostler_protocol::wire::actions::StateAction;
use ostler_protocol::wire::state::{
    ChatInputAnswer, Customization, Message, MessageAttachment, ModelSelection, ProtectedResourceMetadata,
    SessionConfigSchema, SessionModelInfo, ToolDefinition, Turn,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::resource_provider::{ResourceContent, refuse_reserved};
use super::{Contribution, SessionComputer, SessionTerminal, SessionTerminals, Slot, ToolEffects};
use crate::call::{Call, Func};
use crate::cross::{Frozen, Mismatch, Text};
use crate::recorder::{Key, Space, Unique};
use crate::registry::Owner;

/// A backend a client names in `createSession`.
///
/// The host keeps the session's state: a backend says what happens with `start.emit`, in the protocol's own
/// actions, and is told what people do through the members of the session it answers.
///
/// ```
/// use ostler_contract::points::{Agent, AgentSession, Emit, Start};
/// use ostler_contract::{Call, Frozen, JsonObject, Thrown, Value, json, wire::StateAction};
///
/// fn action(value: Value) -> Result<StateAction, Thrown> {
///     serde_json::from_value(value).map_err(|error| Thrown::new(error))
/// }
///
/// let parrot = Agent {
///     provider: "parrot".into(),
///     display_name: "Parrot".into(),
///     schema: Call::now(|()| Ok(json!({ "type": "object", "properties": {} }))),
///     defaults: Call::now(|()| Ok(JsonObject::new())),
///     create: Call::now(|(start,): (Frozen<Start>,)| {
///         let start = start.0;
///         Ok(AgentSession {
///             begin: Call::now(move |(turn, text, ..): (String, String, _, _, _)| {
///                 let said = json!({ "kind": "markdown", "id": "p", "content": text });
///                 start.emit.call((Emit::Chat, action(json!({ "type": "chat/responsePart", "turnId": turn, "part": said }))?))?;
///                 start.emit.call((Emit::Chat, action(json!({ "type": "chat/turnComplete", "turnId": turn, "duration": 0 }))?))
///             }),
///             cancel: Call::now(|(_turn,)| Ok(())),
///             close: Call::now(|(_removing,)| Ok(())),
///             ..AgentSession::default()
///         })
///     }),
///     ..Agent::default()
/// };
/// # assert!(ostler_contract::Cross::check(&parrot).is_ok());
/// ```
#[derive(Debug, Clone, Default, Cross)]
pub struct Agent {
    /// The id a client names, unique on the host; the scheme of its session URIs.
    pub provider: Text,
    /// Shown to people.
    pub display_name: Text,
    /// One line.
    pub description: Option<String>,
    /// The settings of a session, `{ properties }`: used before one exists and by every session.
    pub schema: Call<fn() -> Value>,
    /// The value per setting when nothing is chosen.
    pub defaults: Call<fn() -> JsonObject>,
    /// Starts or resumes one chat's conversation.
    pub create: Call<fn(start: Frozen<Start>) -> AgentSession>,
    /// What a second chat may be made from; without it a session has one chat.
    pub chats: Option<ChatAbilities>,
    /// Whether it works in more than one directory.
    pub multiple_directories: Option<bool>,
    /// RFC 9728 records; without them no token can be given to it.
    pub protected_resources: Option<Vec<ProtectedResourceMetadata>>,
    /// What a machine needs to run it, by name. Called when a machine is made, never at load.
    pub machine: Option<Call<fn() -> BTreeMap<String, MachineNeed>>>,
    /// Whether a session in a machine runs in a host started inside it.
    pub runs_nested: Option<bool>,
    /// Whether it is built from a preset: a nested host has none of these.
    pub variant: Option<bool>,
    /// Whether only its own plugin starts sessions with it: it is not listed, never the default, and no
    /// client may name it.
    pub unlisted: Option<bool>,
    /// Asked once at the start, before any session.
    pub probe: Option<Call<fn() -> Offered>>,
    /// Directories it will work in.
    pub directories: Option<Call<fn() -> Vec<String>>>,
    /// Its own stored sessions.
    pub list: Option<Call<fn() -> Vec<Listed>>>,
    /// One of them.
    pub find: Option<Call<fn(id: String) -> Option<Listed>>>,
    /// Removes its own copy; resolves when it is already gone.
    pub delete: Option<Call<fn(id: String, directory: Option<String>)>>,
    /// Past turns of one of its sessions, with nothing started.
    pub transcript: Option<Call<fn(id: String) -> Option<Vec<Turn>>>>,
}

/// What a second chat may be made from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct ChatAbilities {
    /// A chat up to one of its turns.
    #[serde(default)]
    pub fork: bool,
    /// A turn, for a conversation beside it.
    #[serde(default)]
    pub side_chat: bool,
}

/// What a backend offers, asked once at the start.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct Offered {
    /// Its models.
    #[serde(default)]
    pub models: Vec<OfferedModel>,
    /// Its `/` commands.
    #[serde(default)]
    pub commands: Vec<OfferedCommand>,
    /// Its customizations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub customizations: Option<Vec<Customization>>,
}

/// One model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct OfferedModel {
    /// What `model.id` names.
    pub id: String,
    /// Shown to people.
    pub name: String,
    /// In tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_context_window: Option<i64>,
    /// In tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<i64>,
    /// Whether it sees images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supports_vision: Option<bool>,
}

impl OfferedModel {
    /// The model as the root state lists it.
    pub fn listed(&self, provider: &str) -> SessionModelInfo {
        SessionModelInfo {
            id: self.id.clone(),
            provider: provider.to_owned(),
            name: self.name.clone(),
            max_context_window: self.max_context_window,
            max_output_tokens: self.max_output_tokens,
            max_prompt_tokens: None,
            supports_vision: self.supports_vision,
            policy_state: None,
            config_schema: None,
            meta: None,
        }
    }
}

/// One `/` command.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct OfferedCommand {
    /// Without the slash.
    pub name: String,
    /// What it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// One stored session of a backend.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct Listed {
    /// The backend's own id.
    pub id: String,
    /// Its title.
    pub title: String,
    /// ISO 8601.
    pub created_at: String,
    /// ISO 8601.
    pub modified_at: String,
    /// `file://` URIs.
    #[serde(default)]
    pub working_directories: Vec<String>,
}

/// One thing a machine needs to run a backend. The field that names the shape carries its value: `directory`
/// and `file` with `target`, `name`, `source` with `target`, `part`, or `state`. Spec: *Backend extensions*.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct MachineNeed {
    /// A host directory, mounted at `target`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// A host file, mounted at `target`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// An environment variable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A host path copied to `target` after the machine is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// One agent command line, or `ostler` itself, built at the version the host's versions file pins. It is at
    /// `/opt/ostler/<part>`, read-only, with the parts it requires beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// A named volume for the agent's own configuration: where in the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Where in the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Whether a mount may not be written to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// What stands in for a part the versions file does not pin: a host folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
    /// Host files a new volume is seeded from, each under its own name; never a login file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<Vec<String>>,
    /// The value when neither the profile nor an option gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// Whether a machine without it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required: Option<bool>,
    /// For a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// Where an emitted action goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "lowercase")]
pub enum Emit {
    /// The session's channel.
    Session,
    /// This chat's channel.
    Chat,
    /// A terminal the host opened for it.
    Terminal,
}

/// What `create` is handed: names, settings, and handles to act with. Frozen.
#[derive(Debug, Clone, Cross)]
pub struct Start {
    /// The session's URI.
    pub uri: String,
    /// The chat's URI.
    pub chat_uri: String,
    /// The name this chat's conversation is kept under; absent for a session's first chat.
    pub chat_id: Option<String>,
    /// Defaults with the client's values on top.
    pub settings: JsonObject,
    /// A path.
    pub working_directory: Option<String>,
    /// More paths.
    pub additional: Option<Vec<String>>,
    /// Tools bound to this session.
    pub tools: Option<Vec<BoundTool>>,
    /// The host's `mcpServers` by name; absent, not empty, when it holds none.
    pub mcp_servers: Option<JsonObject>,
    /// One text per offered host tool that has one.
    pub instructions: Option<Vec<String>>,
    /// How long a client's tool may take, in milliseconds; 0 = forever.
    pub client_tool_timeout_ms: u64,
    /// Reports what happened in the running turn, in this order: a part opens (`chat/responsePart`) before its text
    /// (`chat/delta`, `chat/reasoning`); a tool call goes `chat/toolCallStart`, `chat/toolCallReady`,
    /// `chat/toolCallComplete`; `chat/usage` comes before the end; and one of `chat/turnComplete`, `chat/turnCancelled`
    /// and `chat/error` ends the turn. An action out of that order, or about another turn, changes nothing and is sent
    /// to no client. The host itself emits `chat/turnStarted` and `chat/toolCallConfirmed`. Throws on an action the
    /// protocol does not have, and a `QuotaExceededError` where 50,000 emitted ones wait already: a backend that is so
    /// far ahead pauses and emits again.
    pub emit: Func<fn(channel: Emit, action: StateAction)>,
    /// Opens a read-only chat for a worker, once per call id.
    pub subagent: Option<Call<fn(tool_call_id: String, request: WorkerRequest) -> Worker>>,
    /// Reads a resource as the session's owner: a message's attachment, what a client publishes, what a provider serves.
    /// A client is asked, and has 30 seconds and 16 MiB for its answer.
    pub read: Option<Call<fn(uri: String) -> ResourceContent>>,
    /// The settings of the editors that are active in the session, as they are now: `telemetryLevel` (`off`, `crash`,
    /// `error`, `all`), `systemProxyEnabled`, `terminalAutoApproveEnabled`, `terminalAutoApproveRules` (by command:
    /// `true`, `false` or `{ approve, matchCommandLine? }`), `autoReplyEnabled`. One that no editor sent is absent; where
    /// editors differ the most careful value counts.
    pub client_settings: Option<Call<fn() -> JsonObject>>,
    /// Opens the session's tools endpoint, the same one for its life; absent on a host built without tool servers.
    pub tools_server: Option<Call<fn(options: Option<ToolsServerOptions>) -> Option<ToolsServer>>>,
    /// Opens terminals the host lists; absent on a host without a terminal store.
    pub terminals: Option<SessionTerminals>,
    /// The machine the session runs in; absent where it runs on this host.
    pub computer: Option<SessionComputer>,
    /// Environment variables for the processes a backend starts: `OSTLER_SESSION`, the session's URI, and, in a
    /// session that a run of an automation started, `OSTLER_RUN`, the run's URI. Terminals the host opens and
    /// processes in machines have them already.
    pub env: BTreeMap<String, String>,
    /// The backend's own id to continue.
    pub resume: Option<String>,
    /// The backend's name for the turn to fork at, under a new id.
    pub fork_at: Option<String>,
    /// The backend's name for the turn to rewind to, under the same id; ignored beside `forkAt`.
    pub rewind_at: Option<String>,
    /// Hidden context for the first turn, before its text; never on the wire.
    pub context: Option<String>,
    /// Turns already known.
    pub seed: Option<Vec<Turn>>,
    /// Keeps the backend's own name for a turn.
    pub on_turn_recorded: Func<fn(turn_id: String, transcript_id: String)>,
    /// A token per protected resource, from the asking connection only.
    pub credentials: Option<BTreeMap<String, String>>,
}

/// A tool as a backend sees it.
#[derive(Debug, Clone, Cross)]
pub struct BoundTool {
    /// Name, description, schema.
    pub definition: Arc<ToolDefinition>,
    /// Runs it; absent where a client runs it. Resolves to what the tool's own `run` returned, any JSON value and mostly
    /// a text, not to the protocol's `ToolCallResult`: the backend makes that of it, and of the error a failed tool
    /// rejects with, for `chat/toolCallComplete`.
    pub run: Option<Call<fn(input: Value, call: Option<ToolCallPlace>) -> Value>>,
    /// The tool's own claim of what it does.
    pub effects: Option<ToolEffects>,
    /// The client that runs it: the call's `contributor` is `{ kind: 'client', clientId: owner }`, and its result comes to
    /// `completeToolCall`. The definition's name is then `<owner>__<name>`; the client knows the tool as `<name>`.
    pub owner: Option<String>,
    /// Whether the model need not be told of it at once.
    pub defer_loading: Option<bool>,
}

/// In which turn and call a backend runs a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct ToolCallPlace {
    /// The turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<String>,
    /// The call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

/// A worker chat asked for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct WorkerRequest {
    /// Shown to people.
    pub title: String,
    /// What the worker is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_name: Option<String>,
    /// What it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What it was asked; opens its turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The call of the worker this one was spawned by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_tool_call_id: Option<String>,
}

/// A worker chat opened.
#[derive(Debug, Clone, Cross)]
pub struct Worker {
    /// The chat's URI.
    pub uri: String,
    /// Its one turn; every part emitted names it.
    pub turn_id: String,
    /// Says what happened in it.
    pub emit: Func<fn(action: StateAction)>,
    /// Ends its turn, once.
    pub end: Func<fn(status: crate::events::TurnStatus, why: Option<String>)>,
}

/// How a backend wants its tools endpoint.
#[derive(Debug, Clone, Default, Cross)]
pub struct ToolsServerOptions {
    /// Has a client run a tool it contributed. Where the answer is the result the client reported, that says whether
    /// the call failed.
    pub run_client: Option<Call<fn(name: String, input: Value) -> Value>>,
    /// `notify` to hear of changes on the stream, `list` (where left out) to ask again.
    pub tools_changed: Option<ToolsChanged>,
}

/// How a backend learns that its tools changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "lowercase")]
pub enum ToolsChanged {
    /// Is sent `notifications/tools/list_changed`.
    Notify,
    /// Asks again.
    List,
}

/// A session's tools endpoint.
#[derive(Debug, Clone, Cross)]
pub struct ToolsServer {
    /// Where.
    pub url: String,
    /// The bearer token of this path.
    pub token: String,
    /// Closes it for this backend; once no other backend of the session holds it, its path is gone.
    pub close: Func<fn()>,
}

/// What `create` answers: the running half of one chat. `begin`, `cancel` and `close` are required.
#[derive(Debug, Clone, Default, Cross)]
pub struct AgentSession {
    /// Runs a turn. It may resolve before the turn has ended: only an emitted action ends it. Where it throws or rejects
    /// while the turn runs, the host ends the turn with a `chat/error` of the type `backend` and the error's message;
    /// after the end it is a line in the log. The conversation goes on with the next turn either way.
    pub begin: Call<
        fn(
            turn_id: String,
            text: String,
            model: Option<ModelSelection>,
            from: Option<TurnFrom>,
            attachments: Option<Vec<MessageAttachment>>,
        ),
    >,
    /// Runs a turn that is a command line, `!ls` say: it reports a tool call, has the host run the command in a
    /// terminal that people can watch, and ends the turn. Without it such a turn fails.
    pub ran: Option<
        Call<
            fn(
                turn_id: String,
                command: String,
                run: Call<fn(tool_call_id: Option<String>) -> SessionTerminal>,
            ),
        >,
    >,
    /// Stops a running turn. Every parked question is settled.
    pub cancel: Call<fn(turn_id: String)>,
    /// Ends the conversation; `removing` when its record goes too.
    pub close: Call<fn(removing: Option<bool>)>,
    /// The backend's own id; nothing until the agent named itself.
    pub agent_id: Option<Call<fn() -> Option<String>>>,
    /// Continues the latest turn, which failed; `false` refuses.
    pub resume: Option<Call<fn(turn_id: String) -> bool>>,
    /// Takes a message into the running turn; `false` refuses.
    pub steer:
        Option<Call<fn(id: String, text: String, attachments: Option<Vec<MessageAttachment>>) -> bool>>,
    /// Stops one worker.
    pub stop_worker: Option<Call<fn(tool_call_id: String)>>,
    /// Answers a tool call that waits for approval.
    pub confirm: Option<Call<fn(tool_call_id: String, approved: bool, option_id: Option<String>)>>,
    /// Answers a question; `false` refuses.
    pub answer: Option<
        Call<fn(request_id: String, accepted: bool, answers: BTreeMap<String, ChatInputAnswer>) -> bool>,
    >,
    /// Takes one answer of several while a person still writes.
    pub set_answer:
        Option<Call<fn(request_id: String, question_id: String, answer: Option<ChatInputAnswer>) -> bool>>,
    /// Takes the tools bound to this session anew.
    pub set_tools: Option<Call<fn(tools: Vec<BoundTool>) -> bool>>,
    /// Takes the result of a tool a client ran, a `ToolCallResult`: the client's own, or a failed one where the client
    /// left or took longer than `clientToolTimeoutMs`. The backend emits `chat/toolCallComplete` with it. `false` refuses.
    pub complete_tool_call: Option<Call<fn(tool_call_id: String, client_id: String, result: Value) -> bool>>,
    /// A client left; its running tool calls are failed.
    pub client_gone: Option<Call<fn(client_id: String)>>,
    /// Takes a setting; `true`, or the sentence that refuses.
    pub set_config: Option<Call<fn(key: String, value: Value) -> Value>>,
    /// Takes a title.
    pub set_title: Option<Call<fn(title: String)>>,
    /// Turns a customization on or off.
    pub set_customization_enabled: Option<Call<fn(id: String, on: bool)>>,
    /// Starts an MCP server.
    pub start_mcp_server: Option<Call<fn(id: String)>>,
    /// Stops one.
    pub stop_mcp_server: Option<Call<fn(id: String)>>,
    /// A resource got its token.
    pub authenticated: Option<Call<fn(resource: String, token: String)>>,
    /// The backend's name for where a fork after a turn begins; nothing where none can. Without it `forkAt` is the
    /// turn's own id.
    pub fork_point: Option<Call<fn(turn_id: String) -> Option<String>>>,
    /// A sentence, once it can go on no more: every later action is refused with it.
    pub ended: Option<Call<fn() -> Option<String>>>,
}

/// Who a turn came from.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct TurnFrom {
    /// `{ kind }`: `user`, `agent`, `tool`, `automation` or `systemNotification`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Value>,
    /// The message's own `_meta`.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<JsonObject>,
    /// `{ uri }` of the custom agent chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Value>,
}

impl TurnFrom {
    /// What a message says of where it came from.
    pub fn of(message: &Message) -> Self {
        Self {
            origin: serde_json::to_value(&message.origin).ok(),
            meta: message.meta.clone(),
            agent: message.agent.as_ref().and_then(|agent| serde_json::to_value(agent).ok()),
        }
    }
}

impl Agent {
    /// The settings of its sessions, as the protocol carries them. A schema that does not read is empty.
    pub fn read_schema(schema: Value) -> Option<SessionConfigSchema> {
        serde_json::from_value(crate::settings::drawn(schema)).ok()
    }
}

impl Contribution for Agent {
    const SLOT: Slot = Slot::Append;

    fn key(&self) -> Option<Key> {
        Some(Key {
            space: Space::Scheme,
            name: self.provider.to_string(),
            member: "provider",
            unique: Unique::Among { kind: "agent", takes: "provider", other: "agent" },
        })
    }

    fn refuse(&self) -> Result<(), Mismatch> {
        if !ostler_protocol::uri::is_scheme(&self.provider) {
            return Err(Mismatch::expected("a URI scheme, as echo").within("provider"));
        }
        refuse_reserved(&self.provider, "provider")
    }

    fn clash(&self, key: &Key, owner: &Owner, holder: &Owner) -> String {
        format!("agent provider clash: {}", key.clash(owner, holder, "registered"))
    }
}
