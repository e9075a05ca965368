//! The running half of a chat: the backend's session, which receives calls in the order in which they were sent.
//!
//! Calls start in order but are not awaited one after the other: a `begin` that lasts as long as its turn must not
//! delay the answer to a question of that turn.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use ostler_contract::points::{
    Agent, AgentSession, BoundTool, ClientPlugin, SessionTerminal, Start, TurnFrom,
};
use ostler_contract::{Frozen, HostFunction, JsonObject, Pending, Thrown, Value, limit};
use ostler_protocol::wire::state::{ChatInputAnswer, MessageAttachment, ModelSelection};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tracing::Span;

use super::mailbox::ToSession;
use super::queue::Mailbox;
use super::unanswered_calls::{CallRoom, UnansweredCalls};
use crate::core::lean_channel::{self, Receiver, Sender, WeakSender};
use crate::core::plugin_folders::PluginFolder;
use crate::core::tasks;
use crate::users::Credential;

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

/// A call in progress; resolves to its outcome.
type CallUnderWay = futures::future::BoxFuture<'static, Outcome>;

/// The outcome of a call.
enum Outcome {
    /// A call was answered; the id is that of its turn, if it belongs to one.
    Answered(Option<String>, Result<(), Thrown>),
    /// The backend returned its own id, if it has one yet.
    Named(Option<String>),
}

/// The backend of a running chat. It polls its calls while it waits for messages.
struct Lane {
    session: Box<AgentSession>,
    chat: u64,
    mailbox: Mailbox,
    under_way: FuturesUnordered<CallUnderWay>,
    /// The backend's id, as last reported to the session.
    id: Option<String>,
    asks_id: bool,
    /// Whether to ask for the id again.
    asks_again: bool,
    /// The turn that brings the backend the hidden context.
    tells_context: Option<String>,
    /// Work that must finish before the messages in `held` start.
    before: Option<Pending<()>>,
    #[expect(clippy::vec_box, reason = "they arrive boxed and are forwarded as they arrived")]
    held: Vec<Box<Tell>>,
}

async fn serve(session: Box<AgentSession>, chat: u64, mut receiver: Receiver<Box<Tell>>, mailbox: Mailbox) {
    let mut lane = Lane {
        id: None,
        session,
        chat,
        mailbox,
        under_way: FuturesUnordered::new(),
        asks_id: false,
        asks_again: false,
        tells_context: None,
        // What was sent while the backend started is looked through first: a turn can have been cancelled since.
        before: Some(ostler_contract::live::ready(Ok(()))),
        held: Vec::new(),
    };
    lane.ask_id();
    loop {
        let tell = tokio::select! {
            biased;
            Some(outcome) = lane.under_way.next() => {
                lane.take(outcome);
                continue;
            }
            // Messages that were sent before the work of a `Before` finished are handled before the turns that it holds
            // back.
            tell = receiver.recv() => tell,
            () = done(&mut lane.before) => {
                lane.release();
                continue;
            }
        };
        match tell {
            Some(tell) => match *tell {
                Tell::Close { removing, done } => {
                    let close = lane.session.close.unbounded((Some(removing),));
                    lane.close(close).await;
                    let _ = done.send(());
                    return;
                }
                tell => lane.tell(Box::new(tell)),
            },
            None => {
                let close = lane.session.close.within(limit::BACKEND_CLOSE, (None,));
                return lane.close(close).await;
            }
        }
    }
}

/// Resolves when the work before a turn has finished; never resolves if there is none.
async fn done(before: &mut Option<Pending<()>>) {
    match before {
        Some(pending) => {
            let _ = pending.await;
            *before = None;
        }
        None => std::future::pending().await,
    }
}

impl Lane {
    /// Starts a call, or holds it back until the work before its turn has finished.
    fn tell(&mut self, tell: Box<Tell>) {
        if self.before.is_some() {
            match &*tell {
                Tell::Before { .. } | Tell::Begin { .. } | Tell::Ran { .. } | Tell::Steer { .. } => {
                    return self.held.push(tell);
                }
                Tell::Cancel { turn } if self.drop_held(turn) => return,
                _ => {}
            }
        }
        match *tell {
            Tell::Before { done } => {
                let mut before = done.call(());
                if (&mut before).now_or_never().is_none() {
                    self.before = Some(before);
                }
            }
            Tell::TurnEnded => self.ask_id(),
            tell => {
                if let Tell::Begin { turn, tells_context: true, .. } = &tell {
                    self.tells_context = Some(turn.clone());
                }
                // Other calls may be answered long after the turn, which ends in the trace only with all of its calls.
                let turn = match &tell {
                    Tell::Begin { span, .. } | Tell::Ran { span, .. } | Tell::Resume { span, .. } => {
                        span.clone()
                    }
                    _ => Span::none(),
                };
                let call = turn.in_scope(|| begin(&self.session, tell));
                self.start(call);
            }
        }
    }

    /// Polls a call once, so that calls start in the order in which they were sent.
    fn start(&mut self, mut call: CallUnderWay) {
        match (&mut call).now_or_never() {
            Some(outcome) => self.take(outcome),
            None => self.under_way.push(call),
        }
    }

    fn take(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Answered(turn, Err(why)) => {
                let _ = self.mailbox.send(ToSession::BackendFailed { chat: self.chat, turn, why });
            }
            Outcome::Answered(turn, Ok(())) => {
                if turn.is_some()
                    && self.tells_context.take_if(|tells| Some(&*tells) == turn.as_ref()).is_some()
                {
                    let _ = self.mailbox.send(ToSession::ContextTold { chat: self.chat });
                }
                if turn.is_some() || self.id.is_none() {
                    self.ask_id();
                }
            }
            Outcome::Named(id) => {
                self.asks_id = false;
                if let Some(id) = id.filter(|id| self.id.as_ref() != Some(id)) {
                    self.id = Some(id.clone());
                    let _ = self.mailbox.send(ToSession::BackendId { chat: self.chat, id });
                }
                if std::mem::take(&mut self.asks_again) {
                    self.ask_id();
                }
            }
        }
    }

    /// Asks for the backend's own id: at its start, after it received a turn, and at the end of a turn.
    fn ask_id(&mut self) {
        let Some(agent_id) = &self.session.agent_id else { return };
        if self.asks_id {
            self.asks_again = true;
            return;
        }
        let asked = agent_id.within(limit::BACKEND_FACTS, ());
        self.asks_id = true;
        self.start(Box::pin(async move { Outcome::Named(asked.await.ok().flatten()) }));
    }

    /// Starts the calls that were held back, up to the next one that must finish first.
    fn release(&mut self) {
        let mut held = std::mem::take(&mut self.held).into_iter();
        while self.before.is_none()
            && let Some(tell) = held.next()
        {
            self.tell(tell);
        }
        self.held.extend(held);
    }

    /// Drops a turn that was held back and that the backend has not received. Returns whether there was one.
    fn drop_held(&mut self, turn: &str) -> bool {
        let is_it = |tell: &Tell| matches!(tell, Tell::Begin { turn: held, .. } | Tell::Ran { turn: held, .. } if held == turn);
        let Some(at) = self.held.iter().position(|tell| is_it(tell)) else { return false };
        self.held.remove(at);
        // Its steering messages.
        while self.held.get(at).is_some_and(|tell| matches!(**tell, Tell::Steer { .. })) {
            self.held.remove(at);
        }
        true
    }

    /// Waits until the backend has closed. Its other calls continue until then.
    async fn close(mut self, close: impl Future<Output = Result<(), Thrown>>) {
        let mut close = std::pin::pin!(close);
        loop {
            tokio::select! {
                biased;
                _ = &mut close => return,
                Some(outcome) = self.under_way.next() => self.take(outcome),
            }
        }
    }
}

/// Passes settings to a backend, in order. Returns the sentence of the first refusal.
pub(super) fn take_settings(
    session: &AgentSession,
    values: JsonObject,
) -> impl Future<Output = Result<(), String>> + Send + use<> {
    let calls: Vec<_> = match &session.set_config {
        Some(set) => values.into_iter().map(|setting| set.unbounded(setting)).collect(),
        None => Vec::new(),
    };
    async move {
        for call in calls {
            match call.await {
                Ok(Value::String(sentence)) => return Err(sentence),
                Ok(Value::Bool(false)) => return Err("the backend refuses this setting".to_owned()),
                Ok(_) => {}
                Err(thrown) => return Err(thrown.message),
            }
        }
        Ok(())
    }
}

/// Starts one call.
fn begin(session: &AgentSession, tell: Tell) -> CallUnderWay {
    fn about(turn: Option<String>, call: Pending<()>) -> CallUnderWay {
        Box::pin(async move { Outcome::Answered(turn, call.await) })
    }
    fn quiet<T: Send + 'static>(call: Option<Pending<T>>) -> CallUnderWay {
        match call {
            Some(call) => Box::pin(async move { Outcome::Answered(None, call.await.map(|_| ())) }),
            None => Box::pin(std::future::ready(Outcome::Answered(None, Ok(())))),
        }
    }
    match tell {
        Tell::Begin { turn, text, model, from, attachments, .. } => {
            about(Some(turn.clone()), session.begin.unbounded((turn, text, model, Some(from), attachments)))
        }
        Tell::Ran { turn, command, run, provider, .. } => match &session.ran {
            Some(ran) => about(Some(turn.clone()), ran.unbounded((turn, command, run))),
            None => {
                let why = format!("{provider} cannot run a command in a turn; use a terminal instead");
                about(Some(turn), ostler_contract::live::ready(Err(why.into())))
            }
        },
        Tell::Cancel { turn } => about(None, session.cancel.unbounded((turn,))),
        Tell::Resume { turn, .. } => match &session.resume {
            Some(resume) => {
                let resumed = resume.unbounded((turn.clone(),));
                Box::pin(async move {
                    let outcome = match resumed.await {
                        Ok(true) => Ok(()),
                        Ok(false) => Err(Thrown::new("the backend cannot continue this turn")),
                        Err(thrown) => Err(thrown),
                    };
                    Outcome::Answered(Some(turn), outcome)
                })
            }
            None => about(
                Some(turn),
                ostler_contract::live::ready(Err("the backend cannot continue a turn".into())),
            ),
        },
        Tell::Steer { id, text, attachments, allowed, taken, room } => match &session.steer {
            // It has been queued for the next turn, if nobody has waited for so long.
            Some(steer) if !taken.is_closed() && allowed.is_valid() => {
                let steered = steer.unbounded((id, text, attachments));
                Box::pin(async move {
                    let outcome = steered.await;
                    let _ = taken.send(matches!(outcome, Ok(true)));
                    drop(room);
                    Outcome::Answered(None, outcome.map(|_| ()))
                })
            }
            _ => {
                let _ = taken.send(false);
                quiet::<()>(None)
            }
        },
        Tell::Confirm { call, approved, option } => {
            quiet(session.confirm.as_ref().map(|confirm| confirm.unbounded((call, approved, option))))
        }
        Tell::Answer { request, accepted, answers, response } => quiet(
            session
                .answer
                .as_ref()
                .map(|answer| answer.unbounded((request, accepted, answers, response.to_owned()))),
        ),
        Tell::SetAnswer { request, question, answer, room } => {
            let set = session.set_answer.as_ref().map(|set| set.unbounded((request, question, answer)));
            Box::pin(async move {
                let outcome = match set {
                    Some(set) => set.await.map(|_| ()),
                    None => Ok(()),
                };
                drop(room);
                Outcome::Answered(None, outcome)
            })
        }
        Tell::SetTools(tools) => quiet(session.set_tools.as_ref().map(|set| set.unbounded((tools,)))),
        Tell::SetClientPlugins { plugins, left } => {
            let set = session.set_client_plugins.as_ref().map(|set| set.unbounded((plugins,)));
            Box::pin(async move {
                let outcome = match set {
                    Some(set) => set.await.map(|_| ()),
                    None => Ok(()),
                };
                drop(left);
                Outcome::Answered(None, outcome)
            })
        }
        Tell::ToolResult { call, client, result } => quiet(
            session.complete_tool_call.as_ref().map(|complete| complete.unbounded((call, client, result))),
        ),
        Tell::ClientGone { client } => {
            quiet(session.client_gone.as_ref().map(|gone| gone.unbounded((client,))))
        }
        Tell::SetConfig { values, answered } => {
            let taken = take_settings(session, values);
            Box::pin(async move {
                let _ = answered.send(taken.await.err());
                Outcome::Answered(None, Ok(()))
            })
        }
        Tell::Authenticated { resource, token } => {
            let told = session.authenticated.as_ref();
            quiet(told.map(|authenticated| authenticated.unbounded((resource, token))))
        }
        Tell::SetTitle { title } => quiet(session.set_title.as_ref().map(|set| set.unbounded((title,)))),
        Tell::Customization { id, on } => {
            quiet(session.set_customization_enabled.as_ref().map(|set| set.unbounded((id, on))))
        }
        Tell::McpServer { id, start } => {
            let member = if start { &session.start_mcp_server } else { &session.stop_mcp_server };
            quiet(member.as_ref().map(|call| call.unbounded((id,))))
        }
        Tell::StopWorker { call, lead_turn } => match (&session.stop_worker, lead_turn) {
            (Some(stop), _) => quiet(Some(stop.unbounded((call,)))),
            (None, Some(turn)) => about(None, session.cancel.unbounded((turn,))),
            (None, None) => quiet::<()>(None),
        },
        Tell::ForkPoint { turn, named, answered } => {
            let asked = session.fork_point.as_ref().map(|point| point.unbounded((turn,)));
            Box::pin(async move {
                let point = match asked {
                    Some(asked) => asked.await,
                    None => Ok(Some(named)),
                };
                let _ = answered.send(point);
                Outcome::Answered(None, Ok(()))
            })
        }
        // The lane handles these.
        Tell::Before { .. } | Tell::TurnEnded | Tell::Close { .. } => quiet::<()>(None),
    }
}
