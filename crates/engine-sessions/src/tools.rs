//! Tools of a session: the host's own, which run here, and those that clients contribute, which run there.

use std::sync::{Arc, Weak};

use ostler_contract::call::Signature;
use ostler_contract::events::{Event, EventName};
use ostler_contract::points::{BoundTool, ToolCallPlace, ToolChat, ToolContext, ToolSession};
use ostler_contract::{Frozen, HostFunction, Thrown, Value, json};
use ostler_engine_core::agents::OfferedTool;
use ostler_engine_core::message::message;
use ostler_engine_core::refusals::nothing_at;
use ostler_engine_core::tasks;
use ostler_engine_core::titles::named;
use ostler_engine_core::weak::upgraded;
use ostler_protocol::wire::state::{
    ChatOrigin, MessageKind, SessionInputRequest, SessionSummary, ToolCallContributor, ToolCallState,
};
use tracing::Span;

use super::actor::Actor;
use super::backend::Tell;
use super::bound_tools::brought_by;
use super::mailbox::{ToSession, TurnRequest, TurnTaken};
use super::{Place, SessionEntry};
use crate::Sessions;

impl Actor {
    /// Returns every tool that a backend may offer its model in this chat.
    pub(super) fn bound_tools(&self, chat: &str) -> Vec<BoundTool> {
        let own = self.core.offered_tools().cloned();
        let place = BoundPlace::new(&self.entry.uri, chat);
        let own = own.map(|tool| bind(&self.sessions, tool, &place));
        own.chain(brought_by(&self.state.active_clients)).collect()
    }

    /// Sends the current tools to every running backend.
    pub(super) fn tools_changed(&self) {
        self.entry.bring(&self.state.active_clients, &self.active_clients, &self.sessions.limits.states);
        for (at, chat) in self.chats.iter().enumerate() {
            if chat.backend.is_some() {
                self.tell_if_awake(at, Tell::SetTools(self.bound_tools(&chat.uri)));
            }
        }
    }

    /// Fails the tool calls that a disconnected client was running, and notifies the backends.
    pub(super) fn client_gone(&mut self, client: &str) {
        for at in 0..self.chats.len() {
            let calls: Vec<String> = self.running_calls_of(at, client);
            for call in calls {
                let why = format!("{client} disconnected before it had run this tool");
                self.client_tool_result(at, call, client, failed(&why));
            }
        }
        self.tell_all(|| Tell::ClientGone { client: client.to_owned() });
    }

    fn running_calls_of(&self, at: usize, client: &str) -> Vec<String> {
        use ostler_protocol::wire::state::ResponsePart;
        let Some(active) = &self.chats[at].state.active_turn else { return Vec::new() };
        let running = active.response_parts.iter().filter_map(|part| match part {
            ResponsePart::ToolCall(part) => match &part.tool_call {
                ToolCallState::Running(running) if run_by(&running.contributor, client) => {
                    Some(running.tool_call_id.clone())
                }
                _ => None,
            },
            _ => None,
        });
        running.collect()
    }

    /// Passes the result of a client tool to the backend, which completes the call.
    pub(super) fn client_tool_result(&mut self, at: usize, call: String, client: &str, result: Value) {
        self.withdraw_call(at, &call);
        self.tell_if_awake(at, Tell::ToolResult { call, client: client.to_owned(), result });
    }

    /// Starts the timeout of a call to a client tool.
    pub(super) fn watch_client_tool(&self, at: usize, call: &str) {
        let limit = self.core.options.client_tool_timeout_ms;
        let Some(ToolCallState::Running(running)) = self.tool_call(at, call) else { return };
        if limit == 0 || !matches!(running.contributor, Some(ToolCallContributor::Client(_))) {
            return;
        }
        let (mailbox, call, chat) = (self.mailbox.clone(), call.to_owned(), self.chats[at].number);
        tasks::spawn(async move {
            tokio::time::sleep(std::time::Duration::from_millis(limit)).await;
            let _ = mailbox.send(ToSession::ToolTimedOut { chat, call });
        });
    }

    /// Fails a call to a client tool that timed out.
    pub(super) fn tool_timed_out(&mut self, at: usize, call: &str) {
        let Some(ToolCallState::Running(running)) = self.tool_call(at, call) else { return };
        let Some(ToolCallContributor::Client(owner)) = running.contributor.clone() else { return };
        let seconds = self.core.options.client_tool_timeout_ms / 1000;
        let why = format!("{} did not answer within {seconds} seconds", owner.client_id);
        self.client_tool_result(at, call.to_owned(), &owner.client_id, failed(&why));
    }
}

fn run_by(contributor: &Option<ToolCallContributor>, client: &str) -> bool {
    matches!(contributor, Some(ToolCallContributor::Client(owner)) if owner.client_id == client)
}

fn failed(why: &str) -> Value {
    json!({ "success": false, "pastTenseMessage": why, "error": { "message": why } })
}

/// The session and the chat that tools are bound to.
pub(super) struct BoundPlace {
    session: String,
    chat: String,
}

impl BoundPlace {
    pub fn new(session: &str, chat: &str) -> Arc<Self> {
        Arc::new(Self { session: session.to_owned(), chat: chat.to_owned() })
    }
}

/// Binds a host tool to a session and a chat.
pub(super) fn bind(sessions: &Arc<Sessions>, tool: OfferedTool, place: &Arc<BoundPlace>) -> BoundTool {
    let OfferedTool { tool, definition } = tool;
    let (sessions, bound) = (Arc::downgrade(sessions), place.clone());
    let (effects, defer_loading) = (tool.effects, tool.defer_loading);
    let run = HostFunction::new(move |(input, place): (Value, Option<ToolCallPlace>)| {
        let (sessions, tool, bound) = (upgraded(&sessions), tool.clone(), bound.clone());
        async move {
            let sessions = sessions?;
            let (session, chat) = (bound.session.clone(), bound.chat.clone());
            if let Some(entry) = sessions.by_uri(&session) {
                sessions.may_work_for_owner(&entry)?;
            }
            let at = context(&sessions, &session, &chat, place);
            let name = tool.definition.name.to_string();
            let outcome = tool.run.unbounded((input, at)).await;
            if let Err(why) = &outcome {
                sessions.core.report_failed(&tool.owner, &format!("its tool {name}"), why);
            }
            if sessions.core.events.listened(EventName::ToolCall) {
                let error = outcome.as_ref().err().map(|thrown| thrown.message.clone());
                let ok = outcome.is_ok();
                sessions.core.events.raise(Event::ToolCall { session, chat, tool: name, ok, error });
            }
            outcome
        }
    });
    BoundTool { definition, run: Some(run), effects, owner: None, defer_loading }
}

/// Returns the id of a tool call in any state.
pub(super) fn call_id(state: &ToolCallState) -> Option<&str> {
    Some(match state {
        ToolCallState::Streaming(call) => &call.tool_call_id,
        ToolCallState::PendingConfirmation(call) => &call.tool_call_id,
        ToolCallState::Running(call) => &call.tool_call_id,
        ToolCallState::AuthRequired(call) => &call.tool_call_id,
        ToolCallState::PendingResultConfirmation(call) => &call.tool_call_id,
        ToolCallState::Completed(call) => &call.tool_call_id,
        ToolCallState::Cancelled(call) => &call.tool_call_id,
        ToolCallState::Unknown(value) => return value.get("toolCallId").and_then(Value::as_str),
    })
}

/// Returns the tool call that a request belongs to.
pub(super) fn call_of(request: &SessionInputRequest) -> Option<&str> {
    use ostler_protocol::wire::state::ToolCallConfirmationState as Confirmation;
    match request {
        SessionInputRequest::ToolConfirmation(request) => match &request.tool_call {
            Confirmation::PendingConfirmation(call) => Some(&call.tool_call_id),
            Confirmation::PendingResultConfirmation(call) => Some(&call.tool_call_id),
            Confirmation::Unknown(value) => value.get("toolCallId").and_then(Value::as_str),
        },
        SessionInputRequest::ToolClientExecution(request) => Some(&request.tool_call.tool_call_id),
        SessionInputRequest::ToolAuthentication(request) => Some(&request.tool_call.tool_call_id),
        SessionInputRequest::ChatInput(_) | SessionInputRequest::Unknown(_) => None,
    }
}

/// The place where a tool runs.
struct At {
    sessions: Weak<Sessions>,
    session: String,
    chat: String,
    /// The turn and the call, as far as the backend reported them.
    place: ToolCallPlace,
}

impl At {
    fn sessions(&self) -> Result<Arc<Sessions>, Thrown> {
        upgraded(&self.sessions)
    }

    async fn session(&self, sessions: &Sessions, uri: &str) -> Result<Arc<SessionEntry>, Thrown> {
        sessions.session_at(uri).await.known()?.ok_or_else(|| no_session(uri))
    }
}

/// Returns a function of the tool context, which receives the place where the tool runs with its arguments.
fn at<S: Signature, F, O>(at: &Arc<At>, function: F) -> HostFunction<S>
where
    F: Fn(Arc<At>, S::Arguments) -> O + Send + Sync + 'static,
    O: Future<Output = Result<S::Answer, Thrown>> + Send + 'static,
{
    let at = at.clone();
    HostFunction::new(move |arguments| function(at.clone(), arguments))
}

/// Returns the context of a host tool's call.
fn context(sessions: &Arc<Sessions>, session: &str, chat: &str, place: Option<ToolCallPlace>) -> ToolContext {
    let provider = sessions.by_uri(session).map(|entry| entry.provider.clone());
    let here = Arc::new(At {
        sessions: Arc::downgrade(sessions),
        session: session.to_owned(),
        chat: chat.to_owned(),
        place: place.unwrap_or_default(),
    });
    ToolContext {
        session: session.to_owned(),
        chat: chat.to_owned(),
        provider,
        turn: at(&here, |at, ()| async move {
            match &at.place.turn_id {
                Some(turn) => Ok(Some(turn.clone())),
                None => Ok(at.sessions()?.running_turn(&at.session, &at.chat).await.known()?),
            }
        }),
        sessions: at(&here, |at, ()| async move {
            let sessions = at.sessions()?;
            let mut rows = sessions.session_rows().await?;
            // A tool of a session's first turn may run before the session is listed.
            if !rows.iter().any(|row| row.resource == at.session)
                && let Some(entry) = sessions.by_uri(&at.session)
            {
                rows.insert(0, SessionSummary::clone(&entry.view().summary));
            }
            Ok(rows)
        }),
        chats: at(&here, |at, (session,): (String,)| async move {
            let sessions = at.sessions()?;
            let entry = at.session(&sessions, &session).await?;
            sessions.chats_of(&entry).await.ok_or_else(|| no_session(&session))
        }),
        context: at(&here, |at, (session, chat): (String, Option<String>)| async move {
            let sessions = at.sessions()?;
            let entry = at.session(&sessions, &session).await?;
            let turns = sessions
                .turns_of(&entry, place_of(&sessions, chat).await?)
                .await
                .ok_or_else(|| no_session(&session))?;
            Ok(Frozen(turns))
        }),
        send: at(&here, |at, (session, chat, text): (String, Option<String>, String)| async move {
            let sessions = at.sessions()?;
            let entry = at.session(&sessions, &session).await?;
            let request = TurnRequest {
                place: place_of(&sessions, chat).await?,
                message: message(text, MessageKind::Agent),
                model: None,
                sender: None,
                queue: true,
                allowed: false,
                span: Span::current(),
            };
            match sessions.start_turn(&entry, request).await.map_err(Thrown::new)? {
                TurnTaken::Started { .. } => Ok("sent".to_owned()),
                TurnTaken::Queued => Ok("queued".to_owned()),
            }
        }),
        create: at(&here, |at, (request,): (ToolSession,)| async move {
            at.sessions()?.session_by_tool(&at.session, request).await
        }),
        create_chat: at(&here, |at, (session, request): (String, ToolChat)| async move {
            let sessions = at.sessions()?;
            let entry = at.session(&sessions, &session).await?;
            let origin = at
                .place
                .tool_call_id
                .clone()
                .map(|tool_call_id| ChatOrigin::Tool { chat: at.chat.clone(), tool_call_id });
            sessions.chat_by_tool(&entry, origin, request).await
        }),
        rename: at(&here, |at, (session, title): (String, String)| async move {
            let sessions = at.sessions()?;
            let entry = at.session(&sessions, &session).await?;
            named(&title).map_err(Thrown::new)?;
            sessions.tell(&entry, ToSession::Rename { title });
            Ok(())
        }),
        remove: at(&here, |at, (session,): (String,)| async move {
            let sessions = at.sessions()?;
            let entry = at.session(&sessions, &session).await?;
            if entry.uri == at.session {
                return Err(Thrown::new("a session cannot remove itself"));
            }
            sessions.dispose_session(&entry).await.map_err(Thrown::from)
        }),
        read: at(&here, |at, (uri,): (String,)| async move {
            at.sessions()?.read_as_session(&at.session, &uri).await
        }),
    }
}

fn no_session(session: &str) -> Thrown {
    Thrown::from(nothing_at(session))
}

async fn place_of(sessions: &Sessions, chat: Option<String>) -> Result<Place, Thrown> {
    let Some(chat) = chat else { return Ok(Place::DefaultChat) };
    let located = sessions.located(&chat).await.known()?;
    Ok(located.map_or(Place::DefaultChat, |(_, place)| place))
}
