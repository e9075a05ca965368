//! The calls of a running backend. They start in the order in which they were sent, and are polled while the lane waits for
//! messages: a `begin` that lasts as long as its turn must not delay the answer to a question of that turn.

use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use ostler_contract::points::AgentSession;
use ostler_contract::{JsonObject, Pending, Thrown, Value, limit};
use ostler_engine_core::lean_channel::Receiver;
use tracing::Span;

use super::backend::Tell;
use super::mailbox::ToSession;
use super::queue::Mailbox;

/// A call in progress; resolves to its outcome.
type CallUnderWay = futures::future::BoxFuture<'static, Outcome>;

/// The outcome of a call.
enum Outcome {
    /// A call was answered; the id is that of its turn, if it belongs to one.
    Answered(Option<String>, Result<(), Thrown>),
    /// The backend returned its own id, if it has one yet.
    Named(Option<String>),
    /// The backend returned why it can no longer continue, if it cannot.
    Ended(Option<String>),
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
    is_closing: bool,
    /// Work that must finish before the messages in `held` start.
    before: Option<Pending<()>>,
    #[expect(clippy::vec_box, reason = "they arrive boxed and are forwarded as they arrived")]
    held: Vec<Box<Tell>>,
}

/// Serves a backend until its session closes it, or nobody can send to it any more.
pub(super) async fn serve(
    session: Box<AgentSession>,
    chat: u64,
    mut receiver: Receiver<Box<Tell>>,
    mailbox: Mailbox,
) {
    let mut lane = Lane {
        id: None,
        session,
        chat,
        mailbox,
        under_way: FuturesUnordered::new(),
        asks_id: false,
        asks_again: false,
        tells_context: None,
        is_closing: false,
        // What was sent while the backend started is looked through first: a turn can have been cancelled since.
        before: Some(ostler_contract::live::ready(Ok(()))),
        held: Vec::new(),
    };
    lane.ask_id();
    lane.ask_ended();
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
            Tell::TurnEnded => {
                self.ask_id();
                self.ask_ended();
            }
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
                self.ask_ended();
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
            Outcome::Ended(Some(why)) if !self.is_closing => {
                let _ = self.mailbox.send(ToSession::BackendEnded { chat: self.chat, why });
            }
            Outcome::Ended(_) => {}
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

    /// Asks whether the backend can continue: at its start, after a failed call, and at the end of a turn.
    fn ask_ended(&mut self) {
        if let Some(ended) = &self.session.ended {
            let asked = ended.within(limit::BACKEND_FACTS, ());
            self.start(Box::pin(async move { Outcome::Ended(asked.await.ok().flatten()) }));
        }
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
        self.is_closing = true;
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
