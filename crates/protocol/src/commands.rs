//! The table of client commands: one row each, with the grant beside the name.
//!
//! From a row come the decoded [`Command`], the grant it asks and the channel it must name. The engine matches
//! [`Command`] exhaustively, so a command without a handler does not compile.

use ahp_types::commands as c;
use ahp_types::state::TerminalClaim;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::grants::Grant;
use crate::message::Params;
use crate::run_list::RunFilter;
use crate::{RpcError, own, uri};

/// What a caller must hold before a command runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: the command is open to everybody, or asks by channel as it goes. A row says so itself; one that
    /// says neither this nor a grant does not compile.
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

/// The `channel` a command must carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum On {
    /// Any channel, or none.
    Any,
    /// This one; an absent `channel` is taken for it.
    Literal(&'static str),
}

/// `dispatchAction`: the action stays JSON until its channel is known, so that what a client leaves out can
/// be filled in before it is typed.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DispatchAction {
    /// Where to.
    pub channel: String,
    /// The client's own count; a peer that keeps none is taken at 0.
    #[serde(default)]
    pub client_seq: i64,
    /// `{ type, … }`
    pub action: Value,
}

/// `dispatchAction` whose action does not read, of a client that counts its own.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnreadAction {
    /// Where to.
    pub channel: String,
    /// The client's own count.
    pub client_seq: i64,
    /// As it was sent, where it was.
    pub action: Option<Box<RawValue>>,
    /// Why it does not read.
    #[serde(skip)]
    pub why: String,
}

/// `createTerminal`: whoever opens a terminal and names no claim holds it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CreateTerminal {
    /// The URI the client chose.
    pub channel: String,
    /// Who holds it.
    #[serde(default)]
    pub claim: Option<TerminalClaim>,
    /// What it is called.
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
    /// The client's own name for the connection.
    pub connection_id: String,
    /// A path on the host, or a `file:` URI.
    pub workspace_folder: String,
    /// Shown to people.
    #[serde(default)]
    pub name: Option<String>,
}

/// `vscode/devContainers/relaySend`
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DevContainerSend {
    /// The client's own name for the connection.
    pub connection_id: String,
    /// One frame.
    pub data: String,
}

/// `vscode/devContainers/disconnect`
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DevContainerRelay {
    /// The client's own name for the connection.
    pub connection_id: String,
}

/// A container, by the address it was connected under.
#[derive(Debug, Deserialize)]
pub struct DevContainer {
    /// `devcontainer:<id>`
    pub address: String,
}

/// `vscode/createAgentHostDetachedWorktree`
#[derive(Debug, Deserialize)]
pub struct DetachedWorktreeCreate {
    /// The session whose repository and settings it is made with.
    pub session: String,
    /// What it is for; not read.
    #[serde(default)]
    pub prompt: Option<String>,
}

/// A working tree by its handle.
#[derive(Debug, Deserialize)]
pub struct DetachedWorktree {
    /// As it was answered when the tree was made.
    pub handle: String,
}

/// `vscode/setAgentHostDetachedWorktreeArchived`
#[derive(Debug, Deserialize)]
pub struct DetachedWorktreeArchived {
    /// As it was answered when the tree was made.
    pub handle: String,
    /// Whether it is put away.
    pub archived: bool,
}

/// `vscode/reconcileAgentHostDetachedWorktrees`
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DetachedWorktrees {
    /// Which of its trees the window knows; not read, as only unnamed trees go.
    pub scope: String,
    /// The handles the window still uses.
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
            /// A method no row names: `-32601`; a wrong literal channel, or parameters that do not fit: `-32602`.
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

            /// What the caller must hold.
            #[allow(unused_variables)]
            pub fn needs(&self) -> Needs {
                match self {
                    $(Self::$variant(params) => {
                        let needs: fn(&$params) -> Needs = $needs;
                        needs(params)
                    })+
                }
            }

            /// The command's name on the wire.
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
    /// Opens the protocol; must come first.
    "initialize" Initialize(c::InitializeParams) ROOT, open!();
    /// Answered at any time.
    "ping" Ping(Ignored) On::Any, open!();
    /// Takes up where a lost connection was.
    "reconnect" Reconnect(c::ReconnectParams) ROOT, open!();
    /// Says who the connection is.
    "authenticate" Authenticate(c::AuthenticateParams) ROOT, open!();
    /// Asks by channel.
    "subscribe" Subscribe(c::SubscribeParams) On::Any, open!();
    /// The catalogue, newest first.
    "listSessions" ListSessions(c::ListSessionsParams) ROOT, grant!("session", "list");
    /// Makes a session under a URI the client chose.
    "createSession" CreateSession(c::CreateSessionParams) On::Any, grant!("session", "create");
    /// Ends a session and forgets it.
    "disposeSession" DisposeSession(c::DisposeSessionParams) On::Any, grant!("session", "dispose");
    /// Opens one more chat in a session.
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
    /// What may follow what a person typed.
    "completions" Completions(c::CompletionsParams) On::Any, grant!("file", "list");
    /// The settings of a session that is about to be made.
    "resolveSessionConfig" ResolveSessionConfig(c::ResolveSessionConfigParams) ROOT, grant!("session", "create");
    /// Rows for one setting's picker.
    "sessionConfigCompletions" SessionConfigCompletions(c::SessionConfigCompletionsParams)
        ROOT, grant!("session", "create");
    /// Reads what a URI names.
    "resourceRead" ResourceRead(c::ResourceReadParams) ROOT, on_scheme!("get", uri);
    /// Lists a directory or a scheme's root.
    "resourceList" ResourceList(c::ResourceListParams) ROOT, on_scheme!("list", uri);
    /// Facts about what a URI names.
    "resourceResolve" ResourceResolve(c::ResourceResolveParams) ROOT, on_scheme!("resolve", uri);
    /// Writes what a URI names.
    "resourceWrite" ResourceWrite(c::ResourceWriteParams) ROOT, on_scheme!("put", uri);
    /// Makes a directory and its parents.
    "resourceMkdir" ResourceMkdir(c::ResourceMkdirParams) ROOT, on_scheme!("mkdir", uri);
    /// Removes what a URI names.
    "resourceDelete" ResourceDelete(c::ResourceDeleteParams) ROOT, on_scheme!("delete", uri);
    /// Moves within one scheme.
    "resourceMove" ResourceMove(c::ResourceMoveParams) ROOT, on_scheme!("move", source);
    /// Copies within one scheme.
    "resourceCopy" ResourceCopy(c::ResourceCopyParams) ROOT, on_scheme!("copy", source);
    /// Asks for access to what a URI names.
    "resourceRequest" ResourceRequest(c::ResourceRequestParams) ROOT, on_scheme!("request", uri);
    /// Opens a channel of changes under a URI.
    "createResourceWatch" CreateResourceWatch(c::CreateResourceWatchParams) ROOT, on_scheme!("watch", uri);
    /// Opens a shell.
    "createTerminal" CreateTerminal(CreateTerminal) On::Any, grant!("terminal", "create");
    /// Ends a shell.
    "disposeTerminal" DisposeTerminal(c::DisposeTerminalParams) On::Any, grant!("terminal", "dispose");
    /// Whether a dev container can be made.
    "vscode/devContainers/isDockerAvailable" DevContainersAvailable(Ignored) On::Any, open!();
    /// Makes a folder's dev container and connects to the host inside it.
    "vscode/devContainers/connect" DevContainersConnect(DevContainerConnect) On::Any, grant!("container", "connect");
    /// Sends a frame to the host inside.
    "vscode/devContainers/relaySend" DevContainersRelaySend(DevContainerSend) On::Any, grant!("container", "relay");
    /// Ends a connection; the container goes on.
    "vscode/devContainers/disconnect" DevContainersDisconnect(DevContainerRelay)
        On::Any, grant!("container", "disconnect");
    /// Stops a container.
    "x-ostler/containers/stop" DevContainersStop(DevContainer) On::Any, grant!("container", "stop");
    /// Stops a container and removes it.
    "x-ostler/containers/remove" DevContainersRemove(DevContainer) On::Any, grant!("container", "remove");
    /// Makes a working tree that a window looks after.
    "vscode/createAgentHostDetachedWorktree" DetachedWorktreeCreate(DetachedWorktreeCreate)
        On::Any, grant!("session", "worktree");
    /// Keeps such a tree.
    "vscode/claimAgentHostDetachedWorktree" DetachedWorktreeClaim(DetachedWorktree)
        On::Any, grant!("session", "worktree");
    /// Takes such a tree off the disk while it is clean, or puts it back.
    "vscode/setAgentHostDetachedWorktreeArchived" DetachedWorktreeSetArchived(DetachedWorktreeArchived)
        On::Any, grant!("session", "worktree");
    /// Removes such a tree and its branch.
    "vscode/deleteAgentHostDetachedWorktree" DetachedWorktreeDelete(DetachedWorktree)
        On::Any, grant!("session", "worktree");
    /// Removes those that no window named for a day.
    "vscode/reconcileAgentHostDetachedWorktrees" DetachedWorktreesReconcile(DetachedWorktrees)
        On::Any, grant!("session", "worktree");
    /// Runs an operation of a changeset.
    "invokeChangesetOperation" InvokeChangesetOperation(c::InvokeChangesetOperationParams) On::Any, grant!("session", "changes");
    /// The event types an automation may wait for.
    "listAutomationTriggerDefinitions" ListAutomationTriggerDefinitions(c::ListAutomationTriggerDefinitionsParams)
        ROOT, grant!("automation", "list");
    /// Starts a run by hand.
    "runAutomation" RunAutomation(c::RunAutomationParams) AUTOMATIONS, grant!("automation", "run");
    /// What pools were charged. Whose pool it is may read it; others need `usage:get`, asked for each pool.
    "x-ostler/usage/totals" UsageTotals(own::UsageTotalsParams) On::Any, open!();
    /// The entries of a pool, newest first, under the same terms.
    "x-ostler/usage/records" UsageRecords(own::UsageRecordsParams) On::Any, open!();
    /// What was charged by people, teams and projects, of what the caller may read.
    "x-ostler/usage/groups" UsageGroups(own::UsageGroupsParams) On::Any, open!();
    /// Makes a pull request for the branch of a session.
    "x-ostler/pull-request/create" PullRequestCreate(own::PullRequestCreateParams) On::Any, grant!("session", "changes");
    /// Facts about the network as the host sees it.
    "x-ostler/diagnostics/network" DiagnosticsNetwork(Ignored) On::Any, grant!("diagnostics", "network");
    /// Tries to reach a URL.
    "x-ostler/diagnostics/fetch" DiagnosticsFetch(own::DiagnosticsFetchParams) On::Any, grant!("diagnostics", "fetch");
    /// A page of the runs of all automations, by what is known of them.
    "x-ostler/runs/list" RunsList(RunFilter) On::Any, grant!("automation", "list");
    /// Loads older runs into an automation's entry.
    "fetchAutomationRuns" FetchAutomationRuns(c::FetchAutomationRunsParams) AUTOMATIONS, grant!("automation", "list");
}

/// A client's notification, decoded.
#[derive(Debug)]
pub enum Notification {
    /// Changes state, or is refused to its sender.
    DispatchAction(DispatchAction),
    /// Is refused to its sender.
    UnreadAction(UnreadAction),
    /// Ends a subscription of this connection.
    Unsubscribe(c::UnsubscribeParams),
}

impl Notification {
    /// Decodes a notification; one no row names is `None`, as JSON-RPC leaves it unanswered.
    ///
    /// # Errors
    /// Parameters that do not fit: `-32602`.
    pub fn decode(method: &str, params: &Params) -> Option<Result<Self, RpcError>> {
        match method {
            "dispatchAction" => Some(params.decode(method).map(Self::DispatchAction).or_else(|error| {
                // Whose it is can be told from the rest, and a sender is owed a reason.
                let unread = params.decode(method).map_err(|_: RpcError| error.clone())?;
                Ok(Self::UnreadAction(UnreadAction { why: error.message, ..unread }))
            })),
            "unsubscribe" => Some(params.decode(method).map(Self::Unsubscribe)),
            _ => None,
        }
    }
}

/// Parameters nothing is read from.
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

/// How many bytes the URI of a channel or a directory may take: what is found by it keeps it several times.
pub const LONGEST_URI: usize = 4096;
/// How many bytes a client's id may take: hosts remember those of clients that are gone.
pub const LONGEST_CLIENT_ID: usize = 512;
/// How many directories one command may name.
const MOST_DIRECTORIES: usize = 256;

/// What hosts keep of a command's parameters to find things by.
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

/// Refuses names longer than any that is meant.
fn check_lengths(method: &str, params: &Params) -> Result<(), RpcError> {
    if params.text().len() <= LONGEST_CLIENT_ID {
        return Ok(());
    }
    // What does not fit is reported where the command itself is read.
    let Ok(named) = params.decode::<Named<'_>>(method) else { return Ok(()) };
    let too_long = |member: &str, length: usize, most: usize| {
        RpcError::invalid_params(format!("{method}: {member} may take {most} bytes, not {length}"))
    };
    if named.working_directories.len() > MOST_DIRECTORIES {
        return Err(RpcError::invalid_params(format!(
            "{method}: workingDirectories may name {MOST_DIRECTORIES} directories, not {}",
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
        Some(channel) => Err(RpcError::invalid_params(format!(
            "{method} is a command of {wanted}; its channel said {channel}"
        ))),
    }
}

/// Decodes parameters, putting in the literal channel a client left out.
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
            (code::INVALID_PARAMS, "initialize: clientId may take 512 bytes, not 513")
        );
        let session = |channel: String, directory: String| json!({ "channel": channel, "provider": "echo", "workingDirectories": [directory] });
        assert!(decode("createSession", session(long(LONGEST_URI), long(LONGEST_URI))).is_ok());
        for (channel, directory, member) in [
            (long(LONGEST_URI + 1), long(1), "channel"),
            (long(1), long(LONGEST_URI + 1), "workingDirectories"),
        ] {
            let error = decode("createSession", session(channel, directory)).expect_err("too long");
            assert_eq!(error.message, format!("createSession: {member} may take 4096 bytes, not 4097"));
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
