//! The messages to a session. Every read and change of its state is such a message and passes its mailbox (`queue.rs`).

use std::sync::Arc;

use ostler_contract::points::{Emit, Lender};
use ostler_contract::{Charge, JsonObject, Thrown, Value};
use ostler_engine_core::fanout::{Origin, Subscriber, rejection};
use ostler_engine_core::ids::ConnectionId;
use ostler_engine_core::plugin_folders::PluginFolder;
use ostler_engine_core::refusals::Rejection;
use ostler_engine_core::responder::{ConnectionRef, Responder};
use ostler_protocol::actions::{Action, Class};
use ostler_protocol::origins::WayIn;
use ostler_protocol::wire::actions::StateAction;
use ostler_protocol::wire::state::{
    AnnotationsState, ChatSummary, Customization, Message, ModelSelection, SessionConfigState, Turn,
};
use ostler_protocol::{RpcError, json};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tracing::Span;

use super::chats::{ChatReady, NewChat};
use super::emit_limit::EmittedSize;
use super::moving::Lent;
use super::queue::Posted;
use super::senders::TurnRefusal;
use super::snapshot_receiver::Snapshots;
use super::{Place, SessionEntry};

/// A request to subscribe.
#[derive(Debug)]
pub struct Subscription {
    /// The URI as the client spelled it.
    pub spelled: String,
    /// The channel of the session.
    pub place: Place,
    pub subscriber: Subscriber,
    /// The number of newest turns that the client asked for, if any.
    pub turns: Option<usize>,
    /// The client's id.
    pub client: String,
    /// The receiver of the snapshot.
    pub answer: Snapshots,
    /// The memory charged for a large snapshot.
    pub room: Option<Charge>,
}

/// An action that a client dispatched.
#[derive(Debug)]
pub struct Dispatch {
    /// The URI as the client spelled it.
    pub spelled: String,
    /// The channel of the session.
    pub place: Place,
    /// The action's row in the table of actions.
    pub row: &'static Action,
    /// The action as it was sent.
    pub action: Arc<Value>,
    /// The client and its sequence number.
    pub origin: Origin,
    /// The connection that receives a rejection.
    pub connection: ConnectionRef,
    /// `user:<id>`, `root:<host>` or `plugin:<id>`, if known.
    pub sender: Option<String>,
    /// How the action entered the host.
    pub way: WayIn,
    /// The length of the action's text.
    pub length: usize,
    /// The memory charged for a long action until it is handled.
    pub charge: Option<Charge>,
    /// The memory charged in the session's state for the action, or why there is none, once the wait for it has ended.
    pub room: Option<Result<Arc<Charge>, String>>,
}

impl Dispatch {
    /// Returns the memory that is charged for the action's text, if it is long.
    pub(super) fn charge(&self) -> Option<Arc<Charge>> {
        self.room.as_ref().and_then(|room| room.as_ref().ok().cloned())
    }

    /// Sends a rejection without the text of the message, because there is no memory for that.
    pub(super) fn refuse(&self, why: impl Into<Rejection>, seq: u64) {
        let mut action = json!({ "type": self.row.name });
        for key in ["id", "kind", "turnId"] {
            if let Some(Value::String(value)) = self.action.get(key) {
                action[key] = value.as_str().into();
            }
        }
        if let Some(place) = ["message", "draft"].into_iter().find(|place| self.action.get(*place).is_some())
        {
            action[place] = json!({ "text": "", "origin": { "kind": "user" } });
        }
        let frame = rejection(&self.spelled, &action.to_string(), seq, &self.origin, why);
        self.connection.outbox.send(frame);
    }
}

/// A turn that the host itself starts: for an automation, a `startSession` prompt or a tool.
#[derive(Debug)]
pub struct TurnRequest {
    /// The chat.
    pub place: Place,
    pub message: Message,
    pub model: Option<ModelSelection>,
    /// The principal that counts as the sender.
    pub sender: Option<String>,
    /// Whether the message is queued, rather than rejected, if the chat has a running turn.
    pub queue: bool,
    /// Whether the policies have already allowed the turn.
    pub allowed: bool,
    /// The trace span that the turn is part of, for example that of a run.
    pub span: Span,
}

/// The outcome of a [`TurnRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnTaken {
    Started {
        /// The turn's id.
        turn: String,
    },
    /// The message waits for the running turn to end.
    Queued,
}

/// A message to a session.
#[derive(Debug)]
pub enum ToSession {
    /// Wakes the actor for the messages in the priority lane.
    Priority,
    /// The settings of the session, read after its backend began.
    SettingsRead(Box<SessionConfigState>),
    /// A connection subscribes.
    Subscribe(Box<Subscription>),
    /// A client has, or may have, no subscription left; its presence is checked.
    Left {
        /// The client's id.
        client: String,
    },
    /// A client dispatched an action.
    Dispatch(Box<Dispatch>),
    /// A backend emitted an action in a chat.
    Emit {
        /// The chat's number, which stays the same when other chats close.
        chat: u64,
        /// The kind of channel.
        channel: Emit,
        action: StateAction,
    },
    /// A backend reported its own id of a turn.
    TurnRecorded {
        /// The chat's number.
        chat: u64,
        /// The turn's id in the host.
        turn: String,
        /// The turn's id in the backend.
        transcript: String,
    },
    BackendStarted {
        /// The chat's number.
        chat: u64,
        /// Whether it can continue failed turns.
        resumes: bool,
    },
    /// A backend failed to start for an MCP server.
    McpServerFailed {
        /// The chat's number.
        chat: u64,
        /// The server.
        id: String,
        why: Thrown,
    },
    /// A backend can no longer continue.
    BackendEnded {
        /// The chat's number.
        chat: u64,
        /// The sentence with which later messages are refused.
        why: String,
    },
    /// A backend received a turn that starts with the chat's hidden context.
    ContextTold {
        /// The chat's number.
        chat: u64,
    },
    /// A backend failed to start, or one of its calls failed.
    BackendFailed {
        /// The chat's number.
        chat: u64,
        /// The turn that was to begin, if any.
        turn: Option<String>,
        why: Thrown,
    },
    /// A turn that has already started may not run; no backend runs it.
    TurnRefused {
        /// The chat's number.
        chat: u64,
        turn: String,
        why: TurnRefusal,
    },
    /// A backend reported its own id.
    BackendId {
        /// The chat's number.
        chat: u64,
        /// The backend's id.
        id: String,
    },
    /// The host starts a turn.
    Turn {
        request: Box<TurnRequest>,
        /// The receiver of the outcome.
        taken: oneshot::Sender<Result<TurnTaken, String>>,
    },
    /// An automation steers the running turn.
    Steer {
        request: Box<TurnRequest>,
        /// The receiver of whether the backend accepted it.
        taken: oneshot::Sender<bool>,
    },
    /// A backend accepted a steering message or did not.
    Steered {
        /// The chat's number.
        chat: u64,
        /// The message's id.
        id: String,
        /// The number of the call, if the message came from a client.
        call: Option<u64>,
        /// Whether the backend accepted it.
        taken: bool,
        /// The receiver of the same result, if the message did not come from a client.
        answer: Option<oneshot::Sender<bool>>,
    },
    /// The annotations were read from the store, or could not be.
    AnnotationsRead { outcome: Result<AnnotationsState, Thrown> },
    /// The preparation of a client's action has finished or failed.
    Prepared {
        /// The number of the preparation.
        number: u64,
        dispatch: Box<Dispatch>,
        /// The action to handle, or the reason for the rejection.
        outcome: Result<Box<StateAction>, Rejection>,
    },
    /// The policies were evaluated for a queued message.
    QueuedAsked {
        /// The chat's number.
        chat: u64,
        /// The message's id.
        id: String,
        /// The reason, if they denied it.
        refused: Option<String>,
    },
    /// A tool or plugin renames the session.
    Rename { title: String },
    /// Asks for the turns of a chat.
    Turns {
        /// The chat.
        place: Place,
        /// The receiver of the turns.
        answer: oneshot::Sender<Option<Vec<Turn>>>,
    },
    /// Asks for the customizations.
    Customizations {
        /// The receiver of the customizations.
        answer: oneshot::Sender<Option<Vec<Customization>>>,
    },
    /// Asks for the chats.
    Chats {
        /// The receiver of the chats.
        answer: oneshot::Sender<Vec<ChatSummary>>,
    },
    /// A client asks for older turns of a chat.
    FetchTurns {
        /// The chat's URI as the client spelled it.
        spelled: String,
        /// The chat.
        place: Place,
        cursor: Option<String>,
        connection: ConnectionRef,
        /// The receiver of the empty result, which follows the turns.
        responder: Responder,
        /// The memory charged for a large page.
        room: Option<Charge>,
    },
    /// A message that waited for memory.
    Room {
        /// The number of the preparation.
        number: u64,
        /// The message; `None` if its connection has closed.
        posted: Option<Box<Posted>>,
    },
    /// The backend accepted or refused settings that a client changed.
    ConfigAnswered {
        dispatch: Box<Dispatch>,
        /// Whether the action changed settings when it arrived.
        changes: bool,
        /// The reason, if it refused.
        refused: Option<String>,
    },
    /// A client pushed a token for the chats that it created.
    TokenLent {
        /// The client.
        lender: Lender,
        /// The protected resource.
        resource: String,
        token: String,
    },
    /// A client tool timed out.
    ToolTimedOut {
        /// The chat's number.
        chat: u64,
        /// The tool call's id.
        call: String,
    },
    /// The copy of a client's plugin succeeded or failed.
    PluginCopied {
        /// The number of the copy.
        number: u64,
        /// The copied folder, or the reason for the failure.
        outcome: Result<PluginFolder, String>,
    },
    /// A channel of the session lost its last subscriber; the delay until the session sleeps starts again.
    Unwatched,
    /// The users have changed: turns whose sender may no longer run them end.
    Review,
    /// Too many sessions are in memory; the session sleeps if it is idle.
    Rest,
    /// Queued messages may start that could not before.
    GoOn,
    /// The session belongs to another host; it leaves memory if nothing runs.
    Leave {
        /// Whether it leaves although something uses it.
        even_if_used: bool,
    },
    /// The session ends and is deleted.
    Dispose {
        /// Told whether the store has deleted it.
        done: oneshot::Sender<bool>,
    },
    /// No client has used the session until the timeout; it is removed if it is still a draft.
    Abandoned,
    /// The host closes.
    Close {
        /// Notified once the session is closed.
        done: oneshot::Sender<()>,
    },
    /// The host may no longer write the session, which leaves memory as it is.
    Abandon {
        /// Notified once nothing of the session is left.
        done: oneshot::Sender<()>,
    },
    /// A backend opens a worker chat.
    Worker(Box<WorkerOpened>),
    /// A backend emitted an action in a worker chat.
    WorkerEmit {
        /// The chat's number.
        chat: u64,
        action: StateAction,
    },
    /// Asks for a new chat.
    OpenChat {
        chat: Box<NewChat>,
        /// The receiver of the outcome, once the chat is open or has failed to open.
        answer: oneshot::Sender<Result<(), RpcError>>,
    },
    /// The backend of a new chat was created or failed to start.
    ChatReady(Box<ChatReady>),
    /// Asks to close and delete a chat.
    CloseChat {
        /// The chat's URI as the client spelled it.
        spelled: String,
        /// The chat.
        place: Place,
        /// The receiver of the outcome, once the chat is closed.
        answer: oneshot::Sender<Result<(), RpcError>>,
    },
    /// Asks to move a chat to another place in the session's list.
    MoveWithin {
        /// The chat's URI as the client spelled it.
        spelled: String,
        /// The chat.
        place: Place,
        /// The chat that precedes it; `None` to move it to the front.
        after: Option<String>,
        /// The receiver of the outcome.
        answer: oneshot::Sender<Result<(), RpcError>>,
    },
    /// Asks to hand a chat over to another session.
    LendChat {
        /// The chat's URI as the client spelled it.
        spelled: String,
        /// The chat.
        place: Place,
        /// The receiver of the chat.
        answer: oneshot::Sender<Result<Lent, RpcError>>,
    },
    /// Adds a chat that comes from another session.
    TakeChat {
        /// The chat, until the session takes it. A session that ends before that leaves it to the sender.
        lent: Arc<Mutex<Option<Lent>>>,
        /// The chat that precedes it; `None` to place it at the front.
        after: Option<String>,
        /// The receiver of the outcome; a failure returns the chat.
        answer: oneshot::Sender<Result<(), Box<(RpcError, Lent)>>>,
    },
    /// A chat that was handed over now belongs to another session, or is returned.
    LoanEnded {
        /// The chat's URI.
        uri: String,
        /// The session that has the chat, with the URIs of its workers' chats; or the returned chat.
        outcome: Box<Result<(Arc<SessionEntry>, Vec<String>), Lent>>,
        /// Notified once that is stored.
        done: oneshot::Sender<()>,
    },
    /// The session whose chat this session was created for has given the chat up.
    Made {
        /// Notified once that is stored.
        done: oneshot::Sender<()>,
    },
    /// Asks for the running turn of a chat.
    Running {
        /// The chat.
        place: Place,
        /// The receiver of the turn's id.
        answer: oneshot::Sender<Option<String>>,
    },
    /// Facts that were read about the session's directory.
    DirectoryFacts(Box<super::DirectoryFacts>),
    /// Files of a changeset that users reviewed, by id, in place of the former ones.
    Reviewed {
        /// The scope of the changeset.
        scope: String,
        /// Fingerprints of their changes.
        files: JsonObject,
    },
    /// Asks for the session's current settings.
    Settings {
        /// The receiver of the settings.
        answer: oneshot::Sender<JsonObject>,
    },
}

impl ToSession {
    /// Returns the place in the session that the message is for, if any.
    pub(super) fn place(&self) -> Option<&Place> {
        match self {
            Self::Subscribe(subscription) => Some(&subscription.place),
            Self::Dispatch(dispatch) => Some(&dispatch.place),
            Self::Turn { request, .. } | Self::Steer { request, .. } => Some(&request.place),
            Self::Turns { place, .. }
            | Self::FetchTurns { place, .. }
            | Self::CloseChat { place, .. }
            | Self::MoveWithin { place, .. }
            | Self::LendChat { place, .. }
            | Self::Running { place, .. } => Some(place),
            _ => None,
        }
    }

    /// Returns the size that the message releases from the limit of emitted actions.
    pub(super) fn taken(&self) -> EmittedSize {
        match self {
            Self::Emit { action, .. } | Self::WorkerEmit { action, .. } => EmittedSize::one(action),
            _ => EmittedSize::default(),
        }
    }

    /// Whether a backend emitted the message.
    pub(super) fn is_emitted(&self) -> bool {
        matches!(self, Self::Emit { .. } | Self::WorkerEmit { .. })
    }

    /// Returns the connection that dispatched the message.
    pub(super) fn dispatched_by(&self) -> Option<ConnectionId> {
        match self {
            Self::Dispatch(dispatch) => Some(dispatch.connection.id),
            _ => None,
        }
    }

    /// Whether the message is a client's cancellation of a turn.
    pub(super) fn is_cancellation(&self) -> bool {
        matches!(self, Self::Dispatch(dispatch) if dispatch.row.class == Class::Cancel)
    }

    /// Returns the turn that a client's action names.
    pub(super) fn turn(&self) -> Option<&str> {
        match self {
            Self::Dispatch(dispatch) => dispatch.action.get("turnId").and_then(Value::as_str),
            _ => None,
        }
    }

    /// Whether the message reports a turn's usage.
    pub(super) fn is_usage(&self) -> bool {
        let (Self::Emit { action, .. } | Self::WorkerEmit { action, .. }) = self else { return false };
        matches!(action, StateAction::ChatUsage(_))
    }

    /// Returns the number of the chat that a backend's message belongs to.
    pub(super) fn chat_number(&self) -> Option<u64> {
        match self {
            Self::Emit { chat, .. }
            | Self::TurnRecorded { chat, .. }
            | Self::BackendStarted { chat, .. }
            | Self::ContextTold { chat }
            | Self::BackendEnded { chat, .. }
            | Self::McpServerFailed { chat, .. }
            | Self::BackendFailed { chat, .. }
            | Self::TurnRefused { chat, .. }
            | Self::BackendId { chat, .. }
            | Self::Steered { chat, .. }
            | Self::QueuedAsked { chat, .. }
            | Self::WorkerEmit { chat, .. } => Some(*chat),
            Self::Worker(opened) => Some(opened.parent),
            _ => None,
        }
    }
}

/// A worker chat that is being opened.
#[derive(Debug)]
pub struct WorkerOpened {
    /// The number of the chat that contains the call.
    pub parent: u64,
    /// The tool call's id.
    pub call: String,
    pub request: ostler_contract::points::WorkerRequest,
    /// The receiver of the chat's number, URI and turn.
    pub answer: oneshot::Sender<Result<(u64, String, String), Thrown>>,
}
