//! The table of client commands: one row each, with the grant beside the name.
//!
//! A row defines the decoded [`Command`], the required grant and the channel. The engine matches [`Command`]
//! exhaustively, so a command without a handler does not compile.

use ahp_types::commands as c;
use ahp_types::state::TerminalClaim;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::grants::Grant;
use crate::message::Params;
use crate::run_list::RunFilter;
use crate::{RpcError, own, uri};

/// The grant that a command requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Needs {
    /// None: the command is open to everyone, or checks grants per channel. A row without this or a grant does not
    /// compile.
    Nothing,
    /// This grant.
    Grant(Grant),
    /// This operation on the scheme of the URI named.
    OnScheme {
        /// `get`, `put`, …
        operation: &'static str,
        /// The URI in the parameters.
        uri: String,
    },
}

/// The `channel` that a command must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum On {
    /// Any channel, or none.
    Any,
    /// This one, also if `channel` is absent.
    Literal(&'static str),
}

/// `dispatchAction`: the action stays JSON until its channel is known, so that missing fields can be added before it is
/// parsed.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DispatchAction {
    /// The channel.
    pub channel: String,
    /// The client's sequence number; 0 if it has none.
    #[serde(default)]
    pub client_seq: i64,
    /// `{ type, … }`
    pub action: Value,
}

/// `dispatchAction` with an invalid action, of a client that numbers its actions.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnreadAction {
    /// The channel.
    pub channel: String,
    /// The client's sequence number.
    pub client_seq: i64,
    /// The action as it was sent, if it was.
    pub action: Option<Box<RawValue>>,
    /// Why it is invalid.
    #[serde(skip)]
    pub why: String,
}

/// `createTerminal`: without a claim, the client that opens a terminal claims it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CreateTerminal {
    /// The URI that the client chose.
    pub channel: String,
    /// The claim.
    #[serde(default)]
    pub claim: Option<TerminalClaim>,
    /// Its name.
    #[serde(default)]
    pub name: Option<String>,
    /// A `file:` URI.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Width in columns.
    #[serde(default)]
    pub cols: Option<i64>,
    /// Height in rows.
    #[serde(default)]
    pub rows: Option<i64>,
}

/// `vscode/devContainers/connect`
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DevContainerConnect {
    /// The client's name for the connection.
    pub connection_id: String,
    /// A path on the host, or a `file:` URI.
    pub workspace_folder: String,
    /// Display name.
    #[serde(default)]
    pub name: Option<String>,
}

/// `vscode/devContainers/relaySend`
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DevContainerSend {
    /// The client's name for the connection.
    pub connection_id: String,
    /// One frame.
    pub data: String,
}

/// `vscode/devContainers/disconnect`
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DevContainerRelay {
    /// The client's name for the connection.
    pub connection_id: String,
}

/// A container, by the address of its connection.
#[derive(Debug, Deserialize)]
pub struct DevContainer {
    /// `devcontainer:<id>`
    pub address: String,
}

/// `vscode/createAgentHostDetachedWorktree`
#[derive(Debug, Deserialize)]
pub struct DetachedWorktreeCreate {
    /// The session whose repository and settings it uses.
    pub session: String,
    /// Its purpose; ignored.
    #[serde(default)]
    pub prompt: Option<String>,
}

/// A working tree by its handle.
#[derive(Debug, Deserialize)]
pub struct DetachedWorktree {
    /// The handle from the creation of the tree.
    pub handle: String,
}

/// `vscode/setAgentHostDetachedWorktreeArchived`
#[derive(Debug, Deserialize)]
pub struct DetachedWorktreeArchived {
    /// The handle from the creation of the tree.
    pub handle: String,
    /// Whether it is archived.
    pub archived: bool,
}

/// `vscode/reconcileAgentHostDetachedWorktrees`
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DetachedWorktrees {
    /// The trees that the window knows; ignored, because only unnamed trees are removed.
    pub scope: String,
    /// The handles that the window still uses.
    pub active_handles: Vec<String>,
}

macro_rules! commands {
    ($(
        $(#[$doc:meta])*
        $name:literal $variant:ident($params:ty) $on:expr, $needs:expr;
    )+) => {
        /// A client's request, decoded.
        #[derive(Debug)]
        #[allow(clippy::large_enum_variant)]
        pub enum Command {
            $($(#[$doc])* $variant($params),)+
        }

        /// Every command's name, in table order.
        pub const NAMES: &[&str] = &[$($name),+];

        impl Command {
            /// Decodes a request.
            ///
            /// # Errors
            /// Unknown method: `-32601`. Wrong literal channel or invalid parameters: `-32602`.
            pub fn decode(method: &str, params: &Params) -> Result<Self, RpcError> {
                match method {
                    $($name => {
                        check_lengths(method, params)?;
                        check_channel(method, params, $on)?;
                        Ok(Self::$variant(decode_on(method, params, $on)?))
                    })+
                    _ => Err(RpcError::no_command(method)),
                }
            }

            /// Returns the required grant.
            #[allow(unused_variables)]
            pub fn needs(&self) -> Needs {
                match self {
                    $(Self::$variant(params) => {
                        let needs: fn(&$params) -> Needs = $needs;
                        needs(params)
                    })+
                }
            }

            /// Returns the name of the command.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $name,)+
                }
            }
        }
    };
}

macro_rules! grant {
    ($subject:literal, $operation:literal) => {
        |_| Needs::Grant(Grant::of($subject, $operation))
    };
}

macro_rules! open {
    () => {
        |_| Needs::Nothing
    };
}

macro_rules! on_scheme {
    ($operation:literal, $field:ident) => {
        |params| Needs::OnScheme { operation: $operation, uri: params.$field.clone() }
    };
}

const ROOT: On = On::Literal(uri::ROOT);
const AUTOMATIONS: On = On::Literal(uri::AUTOMATIONS);

commands! {
    /// Opens the connection; must be the first request.
    "initialize" Initialize(c::InitializeParams) ROOT, open!();
    /// Returns an answer at any time.
    "ping" Ping(Ignored) On::Any, open!();
    /// Continues a lost connection.
    "reconnect" Reconnect(c::ReconnectParams) ROOT, open!();
    /// Authenticates the connection.
    "authenticate" Authenticate(c::AuthenticateParams) ROOT, open!();
    /// Subscribes to a channel; its kind determines the grant.
    "subscribe" Subscribe(c::SubscribeParams) On::Any, open!();
    /// Lists the sessions, newest first.
    "listSessions" ListSessions(c::ListSessionsParams) ROOT, grant!("session", "list");
    /// Creates a session under a URI that the client chose.
    "createSession" CreateSession(c::CreateSessionParams) On::Any, grant!("session", "create");
    /// Ends a session and deletes it.
    "disposeSession" DisposeSession(c::DisposeSessionParams) On::Any, grant!("session", "dispose");
    /// Opens another chat in a session.
    "createChat" CreateChat(c::CreateChatParams) On::Any, |params| Needs::Grant(match &params.source {
        Some(c::ChatSource::Fork(_)) => Grant::of("chat", "fork"),
        _ => Grant::of("chat", "create"),
    });
    /// Closes a chat.
    "disposeChat" DisposeChat(c::DisposeChatParams) On::Any, grant!("chat", "dispose");
    /// Moves a chat to another session (1.0.0).
    "moveChat" MoveChat(c::MoveChatParams) On::Any, grant!("chat", "move");
    /// Loads older turns into a chat's state.
    "fetchTurns" FetchTurns(c::FetchTurnsParams) On::Any, grant!("chat", "turns");
    /// Completes typed text.
    "completions" Completions(c::CompletionsParams) On::Any, grant!("file", "list");
    /// Returns the settings of a session before its creation.
    "resolveSessionConfig" ResolveSessionConfig(c::ResolveSessionConfigParams) ROOT, grant!("session", "create");
    /// Returns the rows of a setting's picker.
    "sessionConfigCompletions" SessionConfigCompletions(c::SessionConfigCompletionsParams)
        ROOT, grant!("session", "create");
    /// Reads a resource.
    "resourceRead" ResourceRead(c::ResourceReadParams) ROOT, on_scheme!("get", uri);
    /// Lists a directory or the root of a scheme.
    "resourceList" ResourceList(c::ResourceListParams) ROOT, on_scheme!("list", uri);
    /// Returns facts about a resource.
    "resourceResolve" ResourceResolve(c::ResourceResolveParams) ROOT, on_scheme!("resolve", uri);
    /// Writes a resource.
    "resourceWrite" ResourceWrite(c::ResourceWriteParams) ROOT, on_scheme!("put", uri);
    /// Creates a directory and its parents.
    "resourceMkdir" ResourceMkdir(c::ResourceMkdirParams) ROOT, on_scheme!("mkdir", uri);
    /// Deletes a resource.
    "resourceDelete" ResourceDelete(c::ResourceDeleteParams) ROOT, on_scheme!("delete", uri);
    /// Moves a resource within a scheme.
    "resourceMove" ResourceMove(c::ResourceMoveParams) ROOT, on_scheme!("move", source);
    /// Copies a resource within a scheme.
    "resourceCopy" ResourceCopy(c::ResourceCopyParams) ROOT, on_scheme!("copy", source);
    /// Requests access to a resource.
    "resourceRequest" ResourceRequest(c::ResourceRequestParams) ROOT, on_scheme!("request", uri);
    /// Opens a channel with the changes under a URI.
    "createResourceWatch" CreateResourceWatch(c::CreateResourceWatchParams) ROOT, on_scheme!("watch", uri);
    /// Opens a terminal.
    "createTerminal" CreateTerminal(CreateTerminal) On::Any, grant!("terminal", "create");
    /// Ends a terminal.
    "disposeTerminal" DisposeTerminal(c::DisposeTerminalParams) On::Any, grant!("terminal", "dispose");
    /// Returns whether a dev container can be created.
    "vscode/devContainers/isDockerAvailable" DevContainersAvailable(Ignored) On::Any, open!();
    /// Creates the dev container of a folder and connects to the host inside it.
    "vscode/devContainers/connect" DevContainersConnect(DevContainerConnect) On::Any, grant!("container", "connect");
    /// Sends a frame to the host inside a container.
    "vscode/devContainers/relaySend" DevContainersRelaySend(DevContainerSend) On::Any, grant!("container", "relay");
    /// Ends a connection; the container continues to run.
    "vscode/devContainers/disconnect" DevContainersDisconnect(DevContainerRelay)
        On::Any, grant!("container", "disconnect");
    /// Stops a container.
    "x-ostler/containers/stop" DevContainersStop(DevContainer) On::Any, grant!("container", "stop");
    /// Stops and removes a container.
    "x-ostler/containers/remove" DevContainersRemove(DevContainer) On::Any, grant!("container", "remove");
    /// Creates a working tree that a window manages.
    "vscode/createAgentHostDetachedWorktree" DetachedWorktreeCreate(DetachedWorktreeCreate)
        On::Any, grant!("session", "worktree");
    /// Retains such a tree.
    "vscode/claimAgentHostDetachedWorktree" DetachedWorktreeClaim(DetachedWorktree)
        On::Any, grant!("session", "worktree");
    /// Removes such a tree from the disk if it is clean, or restores it.
    "vscode/setAgentHostDetachedWorktreeArchived" DetachedWorktreeSetArchived(DetachedWorktreeArchived)
        On::Any, grant!("session", "worktree");
    /// Removes such a tree and its branch.
    "vscode/deleteAgentHostDetachedWorktree" DetachedWorktreeDelete(DetachedWorktree)
        On::Any, grant!("session", "worktree");
    /// Removes the trees that no window named for a day.
    "vscode/reconcileAgentHostDetachedWorktrees" DetachedWorktreesReconcile(DetachedWorktrees)
        On::Any, grant!("session", "worktree");
    /// Runs an operation of a changeset.
    "invokeChangesetOperation" InvokeChangesetOperation(c::InvokeChangesetOperationParams) On::Any, grant!("session", "changes");
    /// Lists the event types that automations can wait for.
    "listAutomationTriggerDefinitions" ListAutomationTriggerDefinitions(c::ListAutomationTriggerDefinitionsParams)
        ROOT, grant!("automation", "list");
    /// Starts a run manually.
    "runAutomation" RunAutomation(c::RunAutomationParams) AUTOMATIONS, grant!("automation", "run");
    /// Returns the charges of pools. The owner of a pool can read it; others need `usage:get`, checked per pool.
    "x-ostler/usage/totals" UsageTotals(own::UsageTotalsParams) On::Any, open!();
    /// Lists the entries of a pool, newest first, with the same grants.
    "x-ostler/usage/records" UsageRecords(own::UsageRecordsParams) On::Any, open!();
    /// Returns the charges of users, teams and projects that the caller can read.
    "x-ostler/usage/groups" UsageGroups(own::UsageGroupsParams) On::Any, open!();
    /// Creates a pull request for the branch of a session.
    "x-ostler/pull-request/create" PullRequestCreate(own::PullRequestCreateParams) On::Any, grant!("session", "changes");
    /// Returns facts about the host's network.
    "x-ostler/diagnostics/network" DiagnosticsNetwork(Ignored) On::Any, grant!("diagnostics", "network");
    /// Requests a URL and returns the outcome.
    "x-ostler/diagnostics/fetch" DiagnosticsFetch(own::DiagnosticsFetchParams) On::Any, grant!("diagnostics", "fetch");
    /// Reads the users file again, and returns once its content is in force. It needs no grant, because the host reads the
    /// file by itself a moment later.
    "x-ostler/users/reload" UsersReload(Ignored) On::Any, open!();
    /// Lists the runs of all automations that match a filter, in pages.
    "x-ostler/runs/list" RunsList(RunFilter) On::Any, grant!("automation", "list");
    /// Loads older runs into the entry of an automation.
    "fetchAutomationRuns" FetchAutomationRuns(c::FetchAutomationRunsParams) AUTOMATIONS, grant!("automation", "list");
}

/// A client's notification, decoded.
#[derive(Debug)]
pub enum Notification {
    /// Dispatches an action; only its sender receives a rejection.
    DispatchAction(DispatchAction),
    /// An invalid dispatch, which is rejected to its sender.
    UnreadAction(UnreadAction),
    /// Ends a subscription of this connection.
    Unsubscribe(c::UnsubscribeParams),
}

impl Notification {
    /// Decodes a notification. An unknown one is `None`, because JSON-RPC does not answer notifications.
    ///
    /// # Errors
    /// Invalid parameters: `-32602`.
    pub fn decode(method: &str, params: &Params) -> Option<Result<Self, RpcError>> {
        match method {
            "dispatchAction" => Some(params.decode(method).map(Self::DispatchAction).or_else(|error| {
                // The rest identifies the sender, who must receive a reason.
                let unread = params.decode(method).map_err(|_: RpcError| error.clone())?;
                Ok(Self::UnreadAction(UnreadAction { why: error.message, ..unread }))
            })),
            "unsubscribe" => Some(params.decode(method).map(Self::Unsubscribe)),
            _ => None,
        }
    }
}

/// Parameters that are ignored.
#[derive(Debug)]
pub struct Ignored;

impl<'de> Deserialize<'de> for Ignored {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        serde::de::IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

#[derive(Deserialize)]
struct ChannelOf<'a> {
    #[serde(borrow, default)]
    channel: Option<std::borrow::Cow<'a, str>>,
}

/// The maximum length of the URI of a channel or a directory in bytes, because the host stores several copies of it.
pub const LONGEST_URI: usize = 4096;
/// The maximum length of a client id in bytes, because hosts store the ids of disconnected clients.
pub const LONGEST_CLIENT_ID: usize = 512;
/// The maximum number of directories in a command.
const MOST_DIRECTORIES: usize = 256;

/// The parameters of a command that hosts store as keys.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Named<'a> {
    #[serde(borrow, default)]
    channel: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow, default)]
    chat: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow, default)]
    session: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow, default)]
    client_id: Option<std::borrow::Cow<'a, str>>,
    #[serde(default)]
    working_directories: Vec<String>,
    #[serde(default)]
    initial_subscriptions: Vec<String>,
    #[serde(default)]
    subscriptions: Vec<String>,
}

/// Rejects names that exceed the limits.
fn check_lengths(method: &str, params: &Params) -> Result<(), RpcError> {
    if params.text().len() <= LONGEST_CLIENT_ID {
        return Ok(());
    }
    // Decoding of the command reports what does not fit.
    let Ok(named) = params.decode::<Named<'_>>(method) else { return Ok(()) };
    let too_long = |member: &str, length: usize, most: usize| {
        RpcError::invalid_params(format!("{method}: {member} has {length} bytes; the limit is {most}"))
    };
    if named.working_directories.len() > MOST_DIRECTORIES {
        return Err(RpcError::invalid_params(format!(
            "{method}: workingDirectories has more than {MOST_DIRECTORIES} directories: {}",
            named.working_directories.len()
        )));
    }
    let each = |member: &'static str, uris: Vec<String>| uris.into_iter().map(move |uri| (member, uri.len()));
    let lengths = [("channel", named.channel), ("chat", named.chat), ("session", named.session)]
        .into_iter()
        .filter_map(|(member, uri)| Some((member, uri?.len())));
    let lengths = lengths
        .chain(each("workingDirectories", named.working_directories))
        .chain(each("initialSubscriptions", named.initial_subscriptions))
        .chain(each("subscriptions", named.subscriptions));
    for (member, length) in lengths {
        if length > LONGEST_URI {
            return Err(too_long(member, length, LONGEST_URI));
        }
    }
    match named.client_id.map(|id| id.len()) {
        Some(length) if length > LONGEST_CLIENT_ID => Err(too_long("clientId", length, LONGEST_CLIENT_ID)),
        _ => Ok(()),
    }
}

fn check_channel(method: &str, params: &Params, on: On) -> Result<(), RpcError> {
    let On::Literal(wanted) = on else { return Ok(()) };
    let named: ChannelOf<'_> = params.decode(method)?;
    match named.channel.as_deref() {
        None => Ok(()),
        Some(channel) if channel == wanted => Ok(()),
        Some(uri::AUTOMATIONS_CATALOG) if wanted == uri::AUTOMATIONS => Ok(()),
        Some(channel) => {
            Err(RpcError::invalid_params(format!("{method} is a command of {wanted}, not of {channel}")))
        }
    }
}

/// Decodes parameters and adds the literal channel if it is missing.
fn decode_on<T: for<'a> Deserialize<'a>>(method: &str, params: &Params, on: On) -> Result<T, RpcError> {
    if let On::Literal(wanted) = on {
        let named: ChannelOf<'_> = params.decode(method)?;
        if named.channel.is_none() {
            let mut value: Value = params.decode(method)?;
            if let Value::Object(fields) = &mut value {
                fields.insert("channel".to_owned(), wanted.into());
            }
            let filled = Params::from_value(&value).map_err(|error| RpcError::internal(error.to_string()))?;
            return filled.decode(method);
        }
    }
    params.decode(method)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::error::code;
    use crate::origins::{By, COMMAND_LINE, Effect, READ, Rule, WayIn, rule};

    fn decode(method: &str, params: Value) -> Result<Command, RpcError> {
        Command::decode(method, &Params::from_value(&params).expect("params"))
    }

    #[test]
    fn a_literal_channel_may_be_left_out_but_not_wrong() {
        assert!(decode("listSessions", json!({})).is_ok());
        assert!(decode("listSessions", json!({ "channel": "ahp-root://" })).is_ok());
        let error = decode("listSessions", json!({ "channel": "ahp-automations://" })).expect_err("refused");
        assert_eq!(error.code, code::INVALID_PARAMS);
        assert!(error.message.contains("ahp-root://"), "{}", error.message);
        let run = json!({ "channel": "ahp-automations://catalog", "automation": "ahp-automation:/a", "requestId": "1" });
        assert!(decode("runAutomation", run).is_ok());
    }

    #[test]
    fn names_have_a_length() {
        let long = |length: usize| "x".repeat(length);
        let client =
            |id: String| json!({ "channel": "ahp-root://", "clientId": id, "protocolVersions": ["1.0.0"] });
        assert!(decode("initialize", client(long(LONGEST_CLIENT_ID))).is_ok());
        let error = decode("initialize", client(long(LONGEST_CLIENT_ID + 1))).expect_err("too long");
        assert_eq!(
            (error.code, &*error.message),
            (code::INVALID_PARAMS, "initialize: clientId has 513 bytes; the limit is 512")
        );
        let session = |channel: String, directory: String| json!({ "channel": channel, "provider": "echo", "workingDirectories": [directory] });
        assert!(decode("createSession", session(long(LONGEST_URI), long(LONGEST_URI))).is_ok());
        for (channel, directory, member) in [
            (long(LONGEST_URI + 1), long(1), "channel"),
            (long(1), long(LONGEST_URI + 1), "workingDirectories"),
        ] {
            let error = decode("createSession", session(channel, directory)).expect_err("too long");
            assert_eq!(error.message, format!("createSession: {member} has 4097 bytes; the limit is 4096"));
        }
    }

    #[test]
    fn the_hosts_own_commands_are_named_as_such() {
        let own: Vec<_> = NAMES.iter().filter(|name| name.starts_with("x-")).collect();
        for name in &own {
            let (_, path) = name.split_once('/').expect("a path");
            let (domain, verb) = path.split_once('/').expect("a domain and a verb");
            assert!(!domain.is_empty() && !verb.is_empty(), "{name} lacks a domain or a verb");
            assert!(crate::names::is_own_command(name), "{name}");
        }
        assert!(own.contains(&&"x-ostler/usage/totals"));
    }

    #[test]
    fn unknown_and_malformed_commands_differ() {
        assert_eq!(
            decode("shutdownEverything", json!({})).expect_err("unknown").code,
            code::METHOD_NOT_FOUND
        );
        let error = decode("subscribe", json!({})).expect_err("malformed");
        assert_eq!(error.code, code::INVALID_PARAMS);
        assert_eq!(error.message, "subscribe: missing field `channel`");
    }

    #[test]
    fn a_fork_asks_for_its_own_grant() {
        let plain = json!({ "channel": "echo:/1", "chat": "ahp-chat:/2" });
        let fork = json!({ "channel": "echo:/1", "chat": "ahp-chat:/2",
            "source": { "kind": "fork", "chat": "ahp-chat:/1", "turnId": "t" } });
        let needs = |params| decode("createChat", params).expect("decoded").needs();
        assert_eq!(needs(plain), Needs::Grant(Grant::of("chat", "create")));
        assert_eq!(needs(fork), Needs::Grant(Grant::of("chat", "fork")));
    }

    #[test]
    fn what_a_client_asks_for_needs_what_the_table_of_origins_says() {
        let needs = |method, params| decode(method, params).expect("decoded").needs();
        let read = needs("resourceRead", json!({ "channel": uri::ROOT, "uri": "file:///a" }));
        assert_eq!(read, Needs::OnScheme { operation: READ, uri: "file:///a".to_owned() });
        for way in [WayIn::Client, WayIn::Console, WayIn::Editor, WayIn::CommandLine] {
            assert_eq!(rule(way, Effect::LookUp), Rule::GrantedOnScheme(READ, By::Sender), "{way:?}");
        }
        let opened = json!({ "channel": "ahp-terminal:/a", "claim": { "kind": "client", "clientId": "c" } });
        let terminal = [needs("createTerminal", opened), Needs::Grant(Grant::of("terminal", "input"))];
        assert_eq!(terminal, [0, 1].map(|at| Needs::Grant(COMMAND_LINE[at].clone())));
    }

    #[test]
    fn a_dispatch_may_leave_out_its_count() {
        let params =
            Params::from_value(&json!({ "channel": "echo:/1", "action": { "type": "x" } })).expect("params");
        let Some(Ok(Notification::DispatchAction(dispatch))) =
            Notification::decode("dispatchAction", &params)
        else {
            panic!("not decoded")
        };
        assert_eq!(dispatch.client_seq, 0);
    }
}
