//! The messages to a session. Everything that reads or changes its state is one of them and passes its mailbox
//! (`queue.rs`).

use std::sync::Arc;

use ostler_contract::points::{Emit, Lender};
use ostler_contract::{Charge, JsonObject, Thrown, Value};
use ostler_protocol::actions::{Action, Class};
use ostler_protocol::wire::actions::StateAction;
use ostler_protocol::wire::state::{ChatSummary, Customization, Message, ModelSelection, Turn};
use ostler_protocol::{RpcError, json};
use tokio::sync::oneshot;

use super::chats::{ChatReady, NewChat};
use super::emit_limit::EmittedSize;
use super::moving::Lent;
use super::queue::Posted;
use super::{Entry, Place};
use crate::core::fanout::{Origin, Subscriber, rejection};
use crate::core::ids::ConnectionId;
use crate::core::plugin_folders::PluginFolder;
use crate::core::responder::{ConnectionRef, Responder};

/// A subscription asked for.
#[derive(Debug)]
pub struct Subscription {
    /// The URI as the client spelt it.
    pub spelled: String,
    /// Which of the session's channels.
    pub place: Place,
    /// Who.
    pub subscriber: Subscriber,
    /// How many of the newest turns it wants, where it said.
    pub turns: Option<usize>,
    /// The client's id.
    pub client: String,
    /// Gets the snapshot.
    pub answer: Snapshots,
    /// What a large one is made with.
    pub room: Option<Charge>,
}

/// Who gets a snapshot.
#[derive(Debug)]
pub enum Snapshots {
    /// `subscribe`: the answer goes out before anything later.
    Subscribe(Responder),
    /// `initialize` and `reconnect`: one of several in an answer made elsewhere, as JSON text.
    Collect(oneshot::Sender<Option<Collected>>),
}

/// A snapshot for an answer made elsewhere.
#[derive(Debug)]
pub struct Collected {
    /// Its JSON text.
    pub text: String,
    /// Its part of the connection's budget, where it was charged.
    pub charge: Option<Charge>,
}

/// An action a client dispatched.
#[derive(Debug)]
pub struct Dispatch {
    /// The URI as the client spelt it.
    pub spelled: String,
    /// Which of the session's channels.
    pub place: Place,
    /// Its row in the table.
    pub row: &'static Action,
    /// The action, as it was sent.
    pub action: Arc<Value>,
    /// Who and under which count.
    pub origin: Origin,
    /// Where a refusal goes.
    pub connection: ConnectionRef,
    /// `user:<id>`, `root:<host>` or `plugin:<id>`, when the host knows.
    pub sender: Option<String>,
    /// The length of its text.
    pub length: usize,
    /// What a long one takes in memory until it is handled.
    pub charge: Option<Charge>,
    /// Whether there is memory for it in the session's state, once that was waited for.
    pub room: Option<Result<Charge, String>>,
}

impl Dispatch {
    /// Tells the sender why its action was not taken, without the text of its message: there is no memory for that.
    pub(super) fn refuse(&self, why: &str, seq: u64) {
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

/// A turn the host itself starts: an automation's, a `startSession` prompt, a tool's.
#[derive(Debug)]
pub struct TurnRequest {
    /// In which chat.
    pub place: Place,
    /// What is said.
    pub message: Message,
    /// The model it asks for.
    pub model: Option<ModelSelection>,
    /// Who it counts as.
    pub sender: Option<String>,
    /// Whether a busy chat queues it rather than refusing.
    pub queue: bool,
    /// Whether the policies have been asked about it already.
    pub allowed: bool,
}

/// What became of a [`TurnRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnTaken {
    /// It runs.
    Started {
        /// Its id.
        turn: String,
    },
    /// It waits for the running one.
    Queued,
}

/// A message to a session.
#[derive(Debug)]
pub enum ToSession {
    /// Wakes the actor for the messages in the priority lane.
    Priority,
    /// Somebody wants to watch.
    Subscribe(Box<Subscription>),
    /// Somebody stopped watching, or may have: its presence is looked after.
    Left {
        /// The client's id.
        client: String,
    },
    /// A client dispatched an action.
    Dispatch(Box<Dispatch>),
    /// The backend says what happened in a chat.
    Emit {
        /// The chat's number: it keeps when chats before it close.
        chat: u64,
        /// Where to.
        channel: Emit,
        /// What.
        action: StateAction,
    },
    /// The backend keeps its own name for a turn.
    TurnRecorded {
        /// The chat's number.
        chat: u64,
        /// The host's id.
        turn: String,
        /// The backend's.
        transcript: String,
    },
    /// The backend could not be started, or threw when it was told something.
    BackendFailed {
        /// The chat's number.
        chat: u64,
        /// The turn that was to begin, if one was.
        turn: Option<String>,
        /// What it threw.
        why: Thrown,
    },
    /// The policies refuse a turn that has begun; nothing runs it.
    TurnRefused {
        /// The chat's number.
        chat: u64,
        /// The turn.
        turn: String,
        /// Their sentence.
        why: String,
    },
    /// The backend named itself.
    BackendId {
        /// The chat's number.
        chat: u64,
        /// Its own id.
        id: String,
    },
    /// The host starts a turn.
    Turn {
        /// What.
        request: Box<TurnRequest>,
        /// What became of it.
        taken: oneshot::Sender<Result<TurnTaken, String>>,
    },
    /// An automation says something in the running turn.
    Steer {
        /// What.
        request: Box<TurnRequest>,
        /// Whether the backend took it.
        taken: oneshot::Sender<bool>,
    },
    /// A backend took a steering message in, or did not.
    Steered {
        /// The chat's number.
        chat: u64,
        /// The message.
        id: String,
        /// Whether the backend took it.
        taken: bool,
        /// Gets the same, where no client sent it.
        answer: Option<oneshot::Sender<bool>>,
    },
    /// A client's action was prepared, or refused meanwhile.
    Prepared {
        /// Which preparation.
        number: u64,
        /// What the client dispatched.
        dispatch: Box<Dispatch>,
        /// The action to take.
        outcome: Result<Box<StateAction>, String>,
    },
    /// The policies were asked about a queued message.
    QueuedAsked {
        /// The chat's number.
        chat: u64,
        /// The message.
        id: String,
        /// Their sentence, where they refuse it.
        refused: Option<String>,
    },
    /// A tool or plugin renames the session.
    Rename {
        /// The new title.
        title: String,
    },
    /// The turns of a chat, as they are.
    Turns {
        /// Which chat.
        place: Place,
        /// Gets them.
        answer: oneshot::Sender<Option<Vec<Turn>>>,
    },
    /// The customizations, as they are.
    Customizations {
        /// Gets them.
        answer: oneshot::Sender<Option<Vec<Customization>>>,
    },
    /// The chats, as they are.
    Chats {
        /// Gets them.
        answer: oneshot::Sender<Vec<ChatSummary>>,
    },
    /// A client wants older turns of a chat.
    FetchTurns {
        /// Which chat, as spelt.
        spelled: String,
        /// Which chat.
        place: Place,
        /// Where it was.
        cursor: Option<String>,
        /// Who.
        connection: ConnectionRef,
        /// Gets the empty result, after the turns.
        responder: Responder,
        /// What a large page is made with.
        room: Option<Charge>,
    },
    /// A message that waited for memory.
    Room {
        /// Which.
        number: u64,
        /// The message; none where its connection is gone.
        posted: Option<Box<Posted>>,
    },
    /// The backend took or refused settings a client changed.
    ConfigAnswered {
        /// What the client dispatched.
        dispatch: Box<Dispatch>,
        /// The sentence that refuses, or nothing.
        refused: Option<String>,
    },
    /// A client pushed a token for the chats it created.
    TokenLent {
        /// The client.
        lender: Lender,
        /// What the token is for.
        resource: String,
        /// The token.
        token: String,
    },
    /// A client's tool took too long.
    ToolTimedOut {
        /// The chat's number.
        chat: u64,
        /// The call.
        call: String,
    },
    /// A plugin of a client was copied, or could not be.
    PluginCopied {
        /// Which copy.
        number: u64,
        /// The copy.
        outcome: Result<PluginFolder, String>,
    },
    /// One of its channels lost its last subscriber: it decides anew when to sleep.
    Unwatched,
    /// Too many sessions are in memory: it sleeps if it is idle.
    Rest,
    /// The session ends and is forgotten.
    Dispose {
        /// Answered when it is gone.
        done: oneshot::Sender<()>,
    },
    /// No client has used the session for a while: it is removed if it is still a draft.
    Abandoned,
    /// The host closes.
    Close {
        /// Answered when it is closed.
        done: oneshot::Sender<()>,
    },
    /// A worker chat is opened by the backend.
    Worker(Box<WorkerOpened>),
    /// What happened in a worker chat.
    WorkerEmit {
        /// The chat's number.
        chat: u64,
        /// What.
        action: StateAction,
    },
    /// One more chat is asked for.
    OpenChat {
        /// Which.
        chat: Box<NewChat>,
        /// Answered when it is there, or cannot be.
        answer: oneshot::Sender<Result<(), RpcError>>,
    },
    /// A chat's backend is there, or could not be had.
    ChatReady(Box<ChatReady>),
    /// A chat is to be closed and forgotten.
    CloseChat {
        /// As spelt.
        spelled: String,
        /// Which.
        place: Place,
        /// Answered when it is gone.
        answer: oneshot::Sender<Result<(), RpcError>>,
    },
    /// A chat goes to another place in the session's list.
    MoveWithin {
        /// As spelt.
        spelled: String,
        /// Which.
        place: Place,
        /// The chat before it; none where it goes first.
        after: Option<String>,
        /// Answered when it is there.
        answer: oneshot::Sender<Result<(), RpcError>>,
    },
    /// A chat is to go to another session.
    LendChat {
        /// As spelt.
        spelled: String,
        /// Which.
        place: Place,
        /// Gets it.
        answer: oneshot::Sender<Result<Lent, RpcError>>,
    },
    /// A chat comes from another session.
    TakeChat {
        /// The chat.
        lent: Box<Lent>,
        /// The chat before it; none where it goes first.
        after: Option<String>,
        /// Answered when it is there, or gets it back.
        answer: oneshot::Sender<Result<(), Box<(RpcError, Lent)>>>,
    },
    /// A chat that was lent is another session's, or comes back.
    LoanEnded {
        /// Its URI.
        uri: String,
        /// Who has it, with its workers' chats.
        outcome: Box<Result<(Arc<Entry>, Vec<String>), Lent>>,
        /// Answered when that is put down.
        done: oneshot::Sender<()>,
    },
    /// The session that a chat came from, for which this one was made, has let go of it.
    Made {
        /// Answered when that is put down.
        done: oneshot::Sender<()>,
    },
    /// The turn that runs in a chat.
    Running {
        /// Which chat.
        place: Place,
        /// Gets its id.
        answer: oneshot::Sender<Option<String>>,
    },
    /// What was found around where it works.
    DirectoryFacts(Box<super::DirectoryFacts>),
    /// The session's settings as they are now.
    Settings {
        /// Gets them.
        answer: oneshot::Sender<JsonObject>,
    },
}

impl ToSession {
    /// The place in the session it is for, where it is for one.
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

    /// What it gives back of the places of emitted actions.
    pub(super) fn taken(&self) -> EmittedSize {
        match self {
            Self::Emit { action, .. } | Self::WorkerEmit { action, .. } => EmittedSize::one(action),
            _ => EmittedSize::default(),
        }
    }

    /// Whether a backend emitted it.
    pub(super) fn is_emitted(&self) -> bool {
        matches!(self, Self::Emit { .. } | Self::WorkerEmit { .. })
    }

    /// The connection that dispatched it.
    pub(super) fn dispatched_by(&self) -> Option<ConnectionId> {
        match self {
            Self::Dispatch(dispatch) => Some(dispatch.connection.id),
            _ => None,
        }
    }

    /// Whether a client cancels a turn with it.
    pub(super) fn is_cancellation(&self) -> bool {
        matches!(self, Self::Dispatch(dispatch) if dispatch.row.class == Class::Cancel)
    }

    /// Whether it reports what a turn consumed.
    pub(super) fn is_usage(&self) -> bool {
        let (Self::Emit { action, .. } | Self::WorkerEmit { action, .. }) = self else { return false };
        matches!(action, StateAction::ChatUsage(_))
    }

    /// The number of the chat a backend says it of.
    pub(super) fn chat_number(&self) -> Option<u64> {
        match self {
            Self::Emit { chat, .. }
            | Self::TurnRecorded { chat, .. }
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

/// A worker chat on its way.
#[derive(Debug)]
pub struct WorkerOpened {
    /// The chat the call is in.
    pub parent: u64,
    /// The call.
    pub call: String,
    /// What was asked.
    pub request: ostler_contract::points::WorkerRequest,
    /// Gets the chat's number, URI and turn.
    pub answer: oneshot::Sender<Result<(u64, String, String), Thrown>>,
}
