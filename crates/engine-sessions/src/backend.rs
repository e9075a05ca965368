//! The running half of a chat: the backend's session, and the messages to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use ostler_contract::points::{
    Agent, AgentSession, BoundTool, ClientPlugin, SessionTerminal, Start, TurnFrom,
};
use ostler_contract::{Frozen, HostFunction, JsonObject, Thrown, Value, limit};
use ostler_engine_core::lean_channel::{self, Sender, WeakSender};
use ostler_engine_core::plugin_folders::PluginFolder;
use ostler_engine_core::tasks;
use ostler_engine_users::users::Credential;
use ostler_protocol::wire::state::{ChatInputAnswer, MessageAttachment, ModelSelection};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tracing::Span;

use super::lane::serve;
use super::mailbox::ToSession;
use super::queue::Mailbox;
use super::unanswered_calls::{CallRoom, UnansweredCalls};

/// The sending end of a backend's lane. Messages are boxed, because they may be held back before they start.
#[derive(Debug)]
pub(super) struct Backend {
    lane: Sender<Box<Tell>>,
    /// The calls of clients that it has not answered.
    pub calls: UnansweredCalls,
}

/// A message to a backend.
#[derive(Debug)]
pub(super) enum Tell {
    Begin {
        turn: String,
        text: String,
        model: Option<ModelSelection>,
        from: TurnFrom,
        attachments: Option<Vec<MessageAttachment>>,
        /// Whether the backend was started with hidden context that no turn has brought it yet.
        tells_context: bool,
        /// The turn's trace span.
        span: Span,
    },
    /// A turn that consists of a command line.
    Ran {
        turn: String,
        command: String,
        run: HostFunction<fn(tool_call_id: Option<String>) -> SessionTerminal>,
        provider: String,
        /// The turn's trace span.
        span: Span,
    },
    /// Work that must finish before the next turn begins.
    Before {
        done: HostFunction<fn()>,
    },
    Cancel {
        turn: String,
    },
    Resume {
        turn: String,
        /// The turn's trace span.
        span: Span,
    },
    Steer {
        id: String,
        text: String,
        attachments: Option<Vec<MessageAttachment>>,
        /// Whether its sender may still send it.
        allowed: Credential,
        taken: oneshot::Sender<bool>,
        room: CallRoom,
    },
    Confirm {
        call: String,
        approved: bool,
        option: Option<String>,
    },
    Answer {
        request: String,
        accepted: bool,
        answers: BTreeMap<String, ChatInputAnswer>,
        /// The client's response, as the protocol spells it.
        response: &'static str,
    },
    SetAnswer {
        request: String,
        question: String,
        answer: Option<ChatInputAnswer>,
        room: CallRoom,
    },
    SetTools(Vec<BoundTool>),
    SetClientPlugins {
        plugins: Vec<ClientPlugin>,
        /// The folders of removed plugins, retained until the backend has the new list.
        left: Vec<Arc<PluginFolder>>,
    },
    ToolResult {
        call: String,
        client: String,
        result: Value,
    },
    ClientGone {
        client: String,
    },
    SetConfig {
        values: JsonObject,
        /// The sentence with which the backend refuses, or `None`.
        answered: oneshot::Sender<Option<String>>,
    },
    SetTitle {
        title: String,
    },
    Authenticated {
        resource: String,
        token: String,
    },
    Customization {
        id: String,
        on: bool,
    },
    McpServer {
        id: String,
        start: bool,
    },
    StopWorker {
        call: String,
        lead_turn: Option<String>,
    },
    ForkPoint {
        turn: String,
        /// Where a fork after the turn begins if the backend has no such point of its own.
        named: String,
        /// The backend's id of the fork point, or `None` if it cannot fork there.
        answered: oneshot::Sender<Result<Option<String>, Thrown>>,
    },
    /// A turn has ended; the backend's id may have changed.
    TurnEnded,
    Close {
        removing: bool,
        done: oneshot::Sender<()>,
    },
}

impl Backend {
    /// Queues a message for the backend.
    pub fn tell(&self, tell: Tell) {
        let _ = self.lane.send(Box::new(tell));
    }

    /// Returns a weak sender for cancellations; it does not keep the backend alive.
    pub fn stopper(&self) -> WeakSender<Box<Tell>> {
        self.lane.downgrade()
    }

    /// Whether the backend failed to start or has ended.
    pub fn is_dead(&self) -> bool {
        self.lane.is_closed()
    }

    /// Ends the backend. Resolves when it has ended or the timeout has passed.
    pub async fn close(self, removing: bool) {
        let (done, wait) = oneshot::channel();
        self.tell(Tell::Close { removing, done });
        let _ = tokio::time::timeout(limit::BACKEND_CLOSE, wait).await;
    }

    /// Returns the lane of a session that already exists.
    pub fn running(session: AgentSession, chat: u64, mailbox: Mailbox) -> Self {
        let (lane, receiver) = lean_channel::channel();
        started(&session, chat, &mailbox);
        tasks::spawn(serve(Box::new(session), chat, receiver, mailbox));
        Self { lane, calls: UnansweredCalls::default() }
    }

    /// Returns a lane whose session is created after the chat's previous backend has ended. Messages sent before then
    /// wait for it.
    pub fn waking(
        agent: &Agent,
        mut start: Start,
        around: impl Future<Output = (Option<JsonObject>, Vec<ClientPlugin>)> + Send + 'static,
        chat: u64,
        mailbox: Mailbox,
        ending: Option<JoinHandle<()>>,
    ) -> Self {
        let (lane, mut receiver) = lean_channel::channel();
        let create = agent.create.clone();
        tasks::spawn(async move {
            // Boxed, so that the task of a running backend does not retain the memory of its start.
            let made = Box::pin(async move {
                if let Some(ending) = ending {
                    let _ = ending.await;
                }
                let (mcp_servers, plugins) = around.await;
                start.mcp_servers = mcp_servers;
                start.client_plugins = Some(plugins).filter(|plugins| !plugins.is_empty());
                create.within(limit::BACKEND_START, (Frozen(start),)).await.map(Box::new)
            });
            match made.await {
                Ok(session) => {
                    started(&session, chat, &mailbox);
                    serve(session, chat, receiver, mailbox).await;
                }
                Err(why) => {
                    let mut told = false;
                    // Until the lane is dropped, every turn that waits for this backend receives the error.
                    while let Some(tell) = receiver.recv().await {
                        match *tell {
                            Tell::Begin { turn, .. } | Tell::Ran { turn, .. } | Tell::Resume { turn, .. } => {
                                told = true;
                                let failed =
                                    ToSession::BackendFailed { chat, turn: Some(turn), why: why.clone() };
                                let _ = mailbox.send(failed);
                            }
                            Tell::McpServer { id, start: true } => {
                                told = true;
                                let failed = ToSession::McpServerFailed { chat, id, why: why.clone() };
                                let _ = mailbox.send(failed);
                            }
                            Tell::Close { done, .. } => {
                                let _ = done.send(());
                                return;
                            }
                            _ => {}
                        }
                        if told {
                            return;
                        }
                    }
                }
            }
        });
        Self { lane, calls: UnansweredCalls::default() }
    }
}

/// Reports that a backend started. Without the ability there is nothing to report.
fn started(session: &AgentSession, chat: u64, mailbox: &Mailbox) {
    if session.resume.is_some() {
        let _ = mailbox.send(ToSession::BackendStarted { chat, resumes: true });
    }
}
