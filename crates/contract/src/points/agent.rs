//! Backends, which run agent sessions. Spec: *Registration methods*, *Backend extensions*.

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
use crate::call::{Call, Func, HostFunction};
use crate::cross::{Frozen, Mismatch, Text};
use crate::recorder::{Key, Space, Unique};
use crate::registry::Registrant;

/// A backend a client names in `createSession`.
///
/// The host stores the session's state. A backend reports with `start.emit`, in the protocol's actions, and receives
/// users' requests through the members of the session that `create` returns.
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
    /// The id that clients name, unique on the host; the scheme of its session URIs.
    pub provider: Text,
    /// Display name.
    pub display_name: Text,
    /// A one-line description.
    pub description: Option<String>,
    /// The schema of the session settings, `{ properties }`. Used before a session exists and by every session.
    pub schema: Call<fn() -> Value>,
    /// The default value of each setting.
    pub defaults: Call<fn() -> JsonObject>,
    /// Starts or resumes one chat's conversation.
    pub create: Call<fn(start: Frozen<Start>) -> AgentSession>,
    /// The kinds of additional chats; absent for one chat per session.
    pub chats: Option<ChatAbilities>,
    /// Whether a session can have several directories.
    pub multiple_directories: Option<bool>,
    /// RFC 9728 metadata of the resources that need a token; without it the backend gets no tokens.
    pub protected_resources: Option<Vec<ProtectedResourceMetadata>>,
    /// The needs of the backend in a machine, by name. Called when a machine is created, never at load.
    pub machine: Option<Call<fn() -> BTreeMap<String, MachineNeed>>>,
    /// Whether only this plugin starts sessions with it. Such a backend is not listed, never the default, and not
    /// available to clients.
    pub unlisted: Option<bool>,
    /// Called once at the start, before any session.
    pub probe: Option<Call<fn() -> Offered>>,
    /// Deletes the backend's copy of a session; resolves if there is none.
    pub delete: Option<Call<fn(id: String, directory: Option<String>)>>,
}

/// The kinds of additional chats.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct ChatAbilities {
    /// A chat can be forked from a turn.
    #[serde(default)]
    pub fork: bool,
    /// A side chat can be opened next to a turn.
    #[serde(default)]
    pub side_chat: bool,
}

/// What a backend offers, requested at the start, and again when one of its conversations has begun or reports a setting that its
/// session does not have.
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

/// A model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct OfferedModel {
    /// The id used as `model.id`.
    pub id: String,
    /// Display name.
    pub name: String,
    /// Size of the context window in tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_context_window: Option<i64>,
    /// Maximum output in tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<i64>,
    /// Whether the model accepts images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supports_vision: Option<bool>,
}

impl OfferedModel {
    /// Returns the model as listed in the root state.
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

/// A `/` command.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct OfferedCommand {
    /// Name without the slash.
    pub name: String,
    /// Description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// A need of a backend in a machine. The field that determines its shape contains its value: `directory` and `file`
/// with `target`, `name`, `source` with `target`, `part`, or `state`. Spec: *Backend extensions*.
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
    /// A host path, copied to `target` after the machine is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// An agent's command-line program, or `ostler` itself, at the version in the versions file, read-only at
    /// `/opt/ostler/<part>` with the parts it requires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// A named volume for the agent's configuration, by its path in the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Path in the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Whether the mount is read-only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// A host directory that replaces a part without a version in the versions file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
    /// Host files that initialize a new volume, each under its own name; never a login file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<Vec<String>>,
    /// The value if neither the profile nor an option has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// Whether a machine without a value is rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required: Option<bool>,
    /// A description for users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// The target of an emitted action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "lowercase")]
pub enum Emit {
    /// The session's channel.
    Session,
    /// This chat's channel.
    Chat,
    /// A terminal that the host opened for the session.
    Terminal,
}

/// The argument of `create`: names, settings and handles. Frozen.
#[derive(Debug, Clone, Cross)]
pub struct Start {
    /// The session's URI.
    pub uri: String,
    /// The chat's URI.
    pub chat_uri: String,
    /// The name of this chat's conversation; absent for the first chat of a session.
    pub chat_id: Option<String>,
    /// The session's settings: the client's values over the defaults.
    pub settings: JsonObject,
    /// Those of the settings that were chosen for the session; the others have the backend's defaults.
    pub chosen_settings: JsonObject,
    /// The session's directory, a path.
    pub working_directory: Option<String>,
    /// Further directories.
    pub additional: Option<Vec<String>>,
    /// The tools of the session.
    pub tools: Option<Vec<BoundTool>>,
    /// The `mcpServers` of the host by name; absent if there are none.
    pub mcp_servers: Option<JsonObject>,
    /// The plugins that clients brought to the session, as copies on this host; absent if there are none.
    pub client_plugins: Option<Vec<ClientPlugin>>,
    /// The instructions of the offered host tools.
    pub instructions: Option<Vec<String>>,
    /// Timeout of client tools in milliseconds; 0 disables it.
    pub client_tool_timeout_ms: u64,
    /// Reports on the running turn, in this order: a part opens (`chat/responsePart`) before its text (`chat/delta`,
    /// `chat/reasoning`); a tool call is `chat/toolCallStart`, `chat/toolCallReady`, `chat/toolCallComplete`;
    /// `chat/usage` precedes the end; and one of `chat/turnComplete`, `chat/turnCancelled` and `chat/error` ends the
    /// turn. An action that is out of order, or about another turn, has no effect and is not sent. The host emits
    /// `chat/turnStarted` and `chat/toolCallConfirmed`. Throws for an unknown action, and a `QuotaExceededError` when
    /// 50,000 actions are waiting; the backend then pauses and emits again.
    pub emit: Func<fn(channel: Emit, action: StateAction)>,
    /// Opens a read-only chat for a worker, once per tool call id.
    pub subagent: Option<HostFunction<fn(tool_call_id: String, request: WorkerRequest) -> Worker>>,
    /// Reads a resource with the grants of the session's owner: an attachment, a resource of a client, or one of a
    /// provider. A client has 30 seconds and 16 MiB for its response.
    pub read: Option<HostFunction<fn(uri: String) -> ResourceContent>>,
    /// The current settings of the editors that are active in the session: `telemetryLevel` (`off`, `crash`, `error`,
    /// `all`), `systemProxyEnabled`, `terminalAutoApproveEnabled`, `terminalAutoApproveRules` (by command: `true`,
    /// `false` or `{ approve, matchCommandLine? }`), `autoReplyEnabled`, and, of editors whose users may
    /// `config:change`, `http.proxy`, `http.noProxy` (a list) and `http.proxyKerberosServicePrincipal`. The address of a
    /// proxy can contain a password. A setting that no editor sent is absent; if editors differ, the most restrictive
    /// value applies, and no proxy.
    pub client_settings: Option<HostFunction<fn() -> JsonObject>>,
    /// Opens the session's tools endpoint, which stays the same for the session's life; absent on a host without tool
    /// servers.
    pub tools_server: Option<HostFunction<fn(options: Option<ToolsServerOptions>) -> Option<ToolsServer>>>,
    /// Opens terminals that the host lists; absent on a host without a terminal store.
    pub terminals: Option<SessionTerminals>,
    /// The machine of the session; absent if it runs on the host.
    pub computer: Option<SessionComputer>,
    /// Environment variables for the processes of a backend: `OSTLER_SESSION`, the session's URI, and `OSTLER_RUN`, the
    /// URI of the automation run that started the session. Terminals of the host and processes in machines already have
    /// them.
    pub env: BTreeMap<String, String>,
    /// The backend's id of the conversation to continue.
    pub resume: Option<String>,
    /// The backend's name of the turn to fork at, under a new id.
    pub fork_at: Option<String>,
    /// The backend's name of the turn to rewind to, under the same id; ignored with `forkAt`.
    pub rewind_at: Option<String>,
    /// Hidden context before the text of the first turn; never sent to clients.
    pub context: Option<String>,
    /// The known turns.
    pub seed: Option<Vec<Turn>>,
    /// The hidden context before the text of the first turn, if a backend has received it: who begins anew from `seed` needs it,
    /// and who continues the conversation of `resume` has it.
    pub seed_context: Option<String>,
    /// Records the backend's name of a turn.
    pub on_turn_recorded: Func<fn(turn_id: String, transcript_id: String)>,
    /// Tokens by protected resource, of the requesting connection only.
    pub credentials: Option<BTreeMap<String, String>>,
}

/// A plugin that a client brought to a session, in Open Plugins format.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct ClientPlugin {
    /// The id it is listed under in the session's customizations.
    pub id: String,
    /// The client.
    pub client_id: String,
    /// Its URI, as the client knows it.
    pub uri: String,
    /// Name.
    pub name: String,
    /// Version, as its manifest has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The folder with the copy of its files, a path of the host; the copy lasts as long as the client brings it.
    pub path: String,
    /// Whether it is on.
    pub enabled: bool,
}

/// A tool as a backend uses it.
#[derive(Debug, Clone, Cross)]
pub struct BoundTool {
    /// Name, description and schema.
    pub definition: Arc<ToolDefinition>,
    /// Runs the tool; absent if a client runs it. Resolves to what the tool's `run` returned: any JSON value, usually a
    /// string; `null` for nothing, whose text for the model is empty. It is not the protocol's `ToolCallResult`, which the
    /// backend builds from it, or from the error of a failed tool, for `chat/toolCallComplete`.
    pub run: Option<HostFunction<fn(input: Value, call: Option<ToolCallPlace>) -> Value>>,
    /// The effects that the tool declares.
    pub effects: Option<ToolEffects>,
    /// The client that runs the tool: the call's `contributor` is `{ kind: 'client', clientId: owner }`, and its result
    /// is passed to `completeToolCall`. The definition's name is `<owner>__<name>`; the client knows the tool as
    /// `<name>`.
    pub owner: Option<String>,
    /// Whether the tool may be described to the model later.
    pub defer_loading: Option<bool>,
}

/// The turn and tool call in which a backend runs a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct ToolCallPlace {
    /// Turn id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<String>,
    /// Tool call id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

/// The request for a worker chat.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct WorkerRequest {
    /// Title of the chat.
    pub title: String,
    /// Name of the worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_name: Option<String>,
    /// Description of the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The text that opens its turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The tool call of the worker that requested this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_tool_call_id: Option<String>,
}

/// An open worker chat.
#[derive(Debug, Clone, Cross)]
pub struct Worker {
    /// The chat's URI.
    pub uri: String,
    /// The id of its only turn; every emitted part contains it.
    pub turn_id: String,
    /// Emits an action in the worker chat.
    pub emit: Func<fn(action: StateAction)>,
    /// Ends the turn, once.
    pub end: Func<fn(status: crate::events::TurnStatus, why: Option<String>)>,
}

/// Options of a tools endpoint.
#[derive(Debug, Clone, Default, Cross)]
pub struct ToolsServerOptions {
    /// Has a client run its tool. If it returns the client's result, that result determines whether the call failed.
    pub run_client: Option<Call<fn(name: String, input: Value) -> Value>>,
    /// `notify` reports changes on the stream; `list` requires a new listing. Default: `list`.
    pub tools_changed: Option<ToolsChanged>,
}

/// How an agent learns of changed tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "lowercase")]
pub enum ToolsChanged {
    /// The endpoint sends `notifications/tools/list_changed`.
    Notify,
    /// The agent lists the tools again.
    List,
}

/// A session's tools endpoint.
#[derive(Debug, Clone, Cross)]
pub struct ToolsServer {
    /// URL.
    pub url: String,
    /// Bearer token of this URL.
    pub token: String,
    /// Whether an agent's latest list of the tools lacks one that the session has now, or has an earlier definition of it.
    /// The agent is the one that requests the list at this URL with the query `?agent=<agent>`, which a backend appends to
    /// tell its agents, and the starts of an agent, apart. `false` for one that has not requested the list.
    pub outdated: Func<fn(agent: String) -> bool>,
    /// Releases the endpoint for this backend; the URL stops working when no backend of the session uses it.
    pub close: Func<fn()>,
}

/// The result of `create`: a running chat. `begin`, `cancel` and `close` are required.
#[derive(Debug, Clone, Default, Cross)]
pub struct AgentSession {
    /// Runs a turn. It can resolve before the turn ends: only an emitted action ends the turn. If it throws or rejects
    /// during the turn, the host ends the turn with a `chat/error` of type `backend` and the error's message; after the
    /// turn, the error is only logged. The next turn starts in either case.
    pub begin: Call<
        fn(
            turn_id: String,
            text: String,
            model: Option<ModelSelection>,
            from: Option<TurnFrom>,
            attachments: Option<Vec<MessageAttachment>>,
        ),
    >,
    /// Runs a turn that is a command line, such as `!ls`: it reports a tool call, lets the host run the command in a
    /// visible terminal, and ends the turn. Without it, such a turn fails.
    pub ran: Option<
        Call<
            fn(
                turn_id: String,
                command: String,
                run: HostFunction<fn(tool_call_id: Option<String>) -> SessionTerminal>,
            ),
        >,
    >,
    /// Cancels a running turn and all its pending questions.
    pub cancel: Call<fn(turn_id: String)>,
    /// Ends the conversation; with `removing`, its record is deleted too.
    pub close: Call<fn(removing: Option<bool>)>,
    /// The backend's id of the conversation, which `start.resume` contains when it continues; nothing until the agent has
    /// one. The host asks at the start, once a turn has begun and when one has ended, and stores the latest.
    pub agent_id: Option<Call<fn() -> Option<String>>>,
    /// Continues the latest turn, which failed; `false` rejects. The usage that it reports then is what it uses from here on.
    pub resume: Option<Call<fn(turn_id: String) -> bool>>,
    /// Adds a message to the running turn; `false` rejects.
    pub steer:
        Option<Call<fn(id: String, text: String, attachments: Option<Vec<MessageAttachment>>) -> bool>>,
    /// Stops one worker.
    pub stop_worker: Option<Call<fn(tool_call_id: String)>>,
    /// Answers a tool call that waits for approval.
    pub confirm: Option<Call<fn(tool_call_id: String, approved: bool, option_id: Option<String>)>>,
    /// Answers a question; `false` rejects. `response` is the client's: `accept`, `decline` or `cancel`, of which only the
    /// first is `accepted`.
    pub answer: Option<
        Call<
            fn(
                request_id: String,
                accepted: bool,
                answers: BTreeMap<String, ChatInputAnswer>,
                response: String,
            ) -> bool,
        >,
    >,
    /// Receives one of several answers while the user is still editing.
    pub set_answer:
        Option<Call<fn(request_id: String, question_id: String, answer: Option<ChatInputAnswer>) -> bool>>,
    /// Replaces the tools of the session.
    pub set_tools: Option<Call<fn(tools: Vec<BoundTool>) -> bool>>,
    /// Replaces the plugins that clients brought. The folders of those that are left out are removed when it resolves.
    /// Without it, a change reaches the next backend of the chat.
    pub set_client_plugins: Option<Call<fn(plugins: Vec<ClientPlugin>) -> bool>>,
    /// Receives the `ToolCallResult` of a client tool: the client's, or a failed one if the client disconnected or
    /// exceeded `clientToolTimeoutMs`. The backend emits `chat/toolCallComplete` with it. `false` rejects.
    pub complete_tool_call: Option<Call<fn(tool_call_id: String, client_id: String, result: Value) -> bool>>,
    /// Reports that a client has left; its running tool calls have failed.
    pub client_gone: Option<Call<fn(client_id: String)>>,
    /// Changes a setting; returns `true`, or the message of a rejection.
    pub set_config: Option<Call<fn(key: String, value: Value) -> Value>>,
    /// Changes the title.
    pub set_title: Option<Call<fn(title: String)>>,
    /// Enables or disables a customization.
    pub set_customization_enabled: Option<Call<fn(id: String, on: bool)>>,
    /// Starts an MCP server.
    pub start_mcp_server: Option<Call<fn(id: String)>>,
    /// Stops an MCP server.
    pub stop_mcp_server: Option<Call<fn(id: String)>>,
    /// Receives the token of a protected resource.
    pub authenticated: Option<Call<fn(resource: String, token: String)>>,
    /// The backend's name of the point after a turn where a fork begins, or nothing if there is none. Without it,
    /// `forkAt` is the turn's id.
    pub fork_point: Option<Call<fn(turn_id: String) -> Option<String>>>,
    /// The reason why the session can no longer continue; later actions are rejected with it.
    pub ended: Option<Call<fn() -> Option<String>>>,
}

/// The origin of a turn.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct TurnFrom {
    /// `{ kind }`: `user`, `agent`, `tool`, `automation` or `systemNotification`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Value>,
    /// The message's own `_meta`.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<JsonObject>,
    /// `{ uri }` of the selected custom agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Value>,
}

impl TurnFrom {
    /// Returns the origin that a message declares.
    pub fn of(message: &Message) -> Self {
        Self {
            origin: serde_json::to_value(&message.origin).ok(),
            meta: message.meta.clone(),
            agent: message.agent.as_ref().and_then(|agent| serde_json::to_value(agent).ok()),
        }
    }
}

impl Agent {
    /// Returns the settings schema in the protocol's form; an invalid schema is empty.
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

    fn clash(&self, key: &Key, owner: &Registrant, holder: &Registrant) -> String {
        format!("agent provider clash: {}", key.clash(owner, holder, "registered"))
    }
}
