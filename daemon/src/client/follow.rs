//! Following a run or a chat: what is there already, then what happens, as one stream of things to show.

use std::collections::HashMap;

use ahp::{ClientEvent, ClientEventStream, SubscriptionEvent};
use ostler_contract::{Value, json};
use ostler_protocol::uri::{Channel, SessionOf};
use ostler_protocol::wire::actions::{ActionEnvelope, StateAction};
use ostler_protocol::wire::state::{
    ActiveTurn, AutomationRunLifecycle, AutomationRunState, ChatState, Message, ResponsePart, SnapshotState,
    ToolCallState, ToolResultContent, Turn, TurnState,
};
use ostler_protocol::{names, uri};

use super::automations::object;
use super::{Connection, exit, lost};
use crate::exit::Exit;
use crate::notify::request::Request;
use crate::pending::{PendingRequest, cancelling};

/// What is seen of a run or a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen<'a> {
    /// The run started this session.
    Session(&'a str),
    /// A turn began with this message.
    Asked(&'a str),
    /// The backend calls a tool.
    Called(&'a str),
    /// What a tool returned as text.
    Answered(&'a str),
    /// A piece of the reply.
    Text(&'a str),
    /// A chat of this session waits for an answer to this.
    Waits(&'a str, &'a PendingRequest),
    /// The turn ended.
    Over,
}

/// How a turn ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TurnEnd {
    pub turn: String,
    /// `complete`, `cancelled` or `error`.
    pub status: &'static str,
    /// The text of the reply.
    pub text: String,
    /// Why it failed.
    pub error: Option<String>,
}

impl TurnEnd {
    pub fn json(&self) -> Value {
        json!({ "turn": self.turn, "status": self.status, "text": self.text, "error": self.error })
    }
}

/// How a run ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunEnd {
    pub run: String,
    /// The session it ran in.
    pub session: Option<String>,
    /// `completed`, `failed` or `cancelled`.
    pub status: &'static str,
    /// When it ended.
    pub at: String,
    /// The text of its last reply.
    pub text: String,
    /// Why it failed.
    pub error: Option<String>,
}

impl RunEnd {
    pub fn completed(&self) -> bool {
        self.status == "completed"
    }

    pub fn json(&self) -> Value {
        json!({
            "run": self.run, "session": self.session, "status": self.status, "at": self.at,
            "text": self.text, "error": self.error,
        })
    }

    pub fn line(&self) -> String {
        let why = self.error.as_ref().map(|why| format!(": {}", ostler_telemetry::printable::one_line(why)));
        format!("run {} {}{}", self.run, self.status, why.unwrap_or_default())
    }
}

/// Status, time and error of a run's lifecycle.
pub fn outcome(lifecycle: &AutomationRunLifecycle) -> (&'static str, &str, Option<&str>) {
    match lifecycle {
        AutomationRunLifecycle::Pending(run) => ("pending", &run.created_at, None),
        AutomationRunLifecycle::Running(run) => ("running", &run.started_at, None),
        AutomationRunLifecycle::Completed(run) => ("completed", &run.completed_at, None),
        AutomationRunLifecycle::Failed(run) => ("failed", &run.completed_at, Some(&run.error.message)),
        AutomationRunLifecycle::Cancelled(run) => ("cancelled", &run.completed_at, None),
    }
}

fn is_over(run: &AutomationRunState) -> bool {
    !matches!(run.lifecycle, AutomationRunLifecycle::Pending(_) | AutomationRunLifecycle::Running(_))
}

/// The events of a connection, in the order the host sent them.
struct Events(ClientEventStream);

impl Events {
    async fn next(&mut self) -> Result<(String, ActionEnvelope), Exit> {
        loop {
            match self.0.recv().await {
                Some(ClientEvent { channel, event: SubscriptionEvent::Action(envelope) })
                    if envelope.rejection_reason.is_none() =>
                {
                    return Ok((channel, envelope));
                }
                Some(_) => {}
                None => return Err(lost()),
            }
        }
    }
}

impl Connection {
    /// Follows a run to its end, and the turn it started.
    ///
    /// # Errors
    /// Exit 2 when there is no such run, exit 1 when the connection ends.
    pub async fn follow_run(&self, run: &str, see: &mut impl FnMut(&Seen<'_>)) -> Result<RunEnd, Exit> {
        let mut events = Events(self.client().events());
        let (subscribed, _keep) = self.client().subscribe(run.to_owned()).await.map_err(exit)?;
        let Some(snapshot) = subscribed.snapshot else { return Err(lost()) };
        let SnapshotState::AutomationRun(mut state) = snapshot.state else {
            return Err(Exit::usage(format!("{run} is not a run")));
        };
        // What came before is in the snapshot.
        let from = u64::try_from(snapshot.from_seq).unwrap_or_default();
        let mut chat: Option<(String, FollowedChat)> = None;
        let mut requests = FollowedRequests::default();
        loop {
            if let (None, Some(session)) = (&chat, &state.primary_session) {
                see(&Seen::Session(session));
                let channel = uri::default_chat(session);
                let mut followed = FollowedChat::default();
                match self.client().subscribe(channel.clone()).await {
                    Ok((subscribed, _)) => {
                        if let Some(snapshot) = subscribed.snapshot
                            && let SnapshotState::Chat(state) = snapshot.state
                        {
                            followed.last(&state, see);
                            followed.from = snapshot.from_seq;
                        }
                        chat = Some((channel, followed));
                        requests = FollowedRequests::of(self, session, see).await?;
                    }
                    // Disposed since; how the run ended is known all the same.
                    Err(_) if is_over(&state) => {}
                    Err(error) => return Err(exit(error)),
                }
            }
            if is_over(&state) {
                break;
            }
            let (channel, envelope) = events.next().await?;
            match &mut chat {
                _ if channel == run && envelope.server_seq > from => {
                    ahp::reducers::apply_action_to_automation_run(&mut state, &envelope.action);
                }
                Some((of, followed)) if *of == channel => followed.action(&envelope, see),
                _ => {
                    requests.action(&channel, &envelope, see);
                }
            }
        }
        let (status, at, error) = outcome(&state.lifecycle);
        Ok(RunEnd {
            run: run.to_owned(),
            session: state.primary_session.clone(),
            status,
            at: at.to_owned(),
            text: chat.map(|(_, followed)| followed.end.text).unwrap_or_default(),
            error: error.map(str::to_owned),
        })
    }

    /// Follows one turn of a chat to its end. A message that waits for a turn is followed under its own name.
    ///
    /// # Errors
    /// Exit 2 when there is no such chat, exit 1 when the chat has no such turn or the connection ends.
    pub async fn follow_turn(
        &self,
        chat: &str,
        turn: &str,
        see: &mut impl FnMut(&Seen<'_>),
    ) -> Result<TurnEnd, Exit> {
        let mut events = Events(self.client().events());
        let (state, from) = self.chat(chat).await?;
        let mut followed = FollowedChat { only: Some(turn.to_owned()), from, ..FollowedChat::default() };
        match Named::find(&state, turn) {
            Some(Named::Ended(ended)) => followed.ended(ended, see),
            Some(Named::Active(active)) => {
                followed.only = Some(active.id.clone());
                followed.active(active, see);
            }
            Some(Named::Waiting(_)) => {}
            None => return Err(Exit::machine(format!("{chat} has no turn {turn}"))),
        }
        if followed.over {
            return Ok(followed.end);
        }
        let mut requests = FollowedRequests::of_chat(self, chat, see).await?;
        while !followed.over {
            let (channel, envelope) = events.next().await?;
            match channel == chat {
                true => followed.action(&envelope, see),
                false => {
                    requests.action(&channel, &envelope, see);
                }
            }
        }
        Ok(followed.end)
    }

    /// Follows a chat, and what its session waits for, until the connection ends, or until no turn runs.
    ///
    /// # Errors
    /// Exit 2 when there is no such chat, exit 1 when the connection ends.
    pub async fn follow_chat(
        &self,
        chat: &str,
        until_idle: bool,
        see: &mut impl FnMut(&Seen<'_>),
        raw: &mut impl FnMut(&ActionEnvelope),
    ) -> Result<(), Exit> {
        let mut events = Events(self.client().events());
        let (state, from) = self.chat(chat).await?;
        let mut followed = FollowedChat { from, ..FollowedChat::default() };
        followed.last(&state, see);
        let mut requests = FollowedRequests::of_chat(self, chat, see).await?;
        let mut runs = state.active_turn.is_some();
        while runs || !until_idle {
            let (channel, envelope) = events.next().await?;
            if channel == chat {
                followed.action(&envelope, see);
                raw(&envelope);
                runs = !followed.over;
            } else if requests.action(&channel, &envelope, see) {
                raw(&envelope);
            }
        }
        Ok(())
    }

    /// Cancels a turn of a chat, or the message of one that waits; of no named one, the turn that runs. Returns the turn, or
    /// `None` if it does not run.
    ///
    /// # Errors
    /// Exit 2 when there is no such chat or the host rejects it, exit 1 when the connection ends.
    pub async fn cancel_turn(&self, chat: &str, turn: Option<&str>) -> Result<Option<String>, Exit> {
        let (state, _) = self.chat(chat).await?;
        let named = match turn {
            Some(turn) => Named::find(&state, turn),
            None => state.active_turn.as_ref().map(Named::Active),
        };
        let (id, action) = match named {
            Some(Named::Active(active)) => (active.id.as_str(), cancelling(&active.id, &active.started_at)),
            Some(Named::Waiting(id)) => {
                (id, json!({ "type": "chat/pendingMessageRemoved", "kind": "queued", "id": id }))
            }
            Some(Named::Ended(_)) | None => return Ok(None),
        };
        self.dispatch(chat, object(action)).await?;
        Ok(Some(id.to_owned()))
    }

    /// Subscribes to a chat; returns its state and the number it was taken at.
    async fn chat(&self, chat: &str) -> Result<(Box<ChatState>, i64), Exit> {
        let (subscribed, _) = self.client().subscribe(chat.to_owned()).await.map_err(exit)?;
        match subscribed.snapshot {
            Some(snapshot) => match snapshot.state {
                SnapshotState::Chat(state) => Ok((state, snapshot.from_seq)),
                _ => Err(Exit::usage(format!("{chat} is not a chat"))),
            },
            None => Err(lost()),
        }
    }
}

/// Where a chat has a turn. One whose message waited is a turn under another name; a webhook's message carries the name
/// that its caller was told.
#[derive(Debug, Clone, Copy)]
pub enum Named<'a> {
    /// It has ended.
    Ended(&'a Turn),
    /// It runs.
    Active(&'a ActiveTurn),
    /// Its message, of this id, waits for the turns before it.
    Waiting(&'a str),
}

impl<'a> Named<'a> {
    /// Finds it in the state of a chat.
    pub fn find(state: &'a ChatState, turn: &str) -> Option<Self> {
        let is = |id: &str, message: &Message| id == turn || called(message) == Some(turn);
        if let Some(ended) = state.turns.iter().rev().find(|ended| is(&ended.id, &ended.message)) {
            return Some(Self::Ended(ended));
        }
        if let Some(active) = state.active_turn.as_ref().filter(|active| is(&active.id, &active.message)) {
            return Some(Self::Active(active));
        }
        let mut waiting = state.queued_messages.iter().flatten();
        let queued = waiting.find(|queued| is(&queued.id, &queued.message));
        queued.map(|queued| Self::Waiting(&queued.id))
    }
}

/// The name that the caller of a webhook was told for a message.
fn called(message: &Message) -> Option<&str> {
    message.meta.as_ref()?.get(&names::meta_key("webhook"))?.get("turn")?.as_str()
}

/// What a session waits for in all of its chats, as far as it has been printed: a turn also waits for its workers.
#[derive(Debug, Default)]
struct FollowedRequests {
    session: String,
    /// Actions up to this number are in the snapshot.
    from: i64,
    /// The digests of the requests that are printed and not answered, by id.
    shown: HashMap<String, String>,
}

impl FollowedRequests {
    /// Subscribes to a session and shows what it waits for. Of one that the host does not show, nothing.
    async fn of(daemon: &Connection, session: &str, see: &mut impl FnMut(&Seen<'_>)) -> Result<Self, Exit> {
        let subscribed = match daemon.client().subscribe(session.to_owned()).await {
            Ok((subscribed, _)) => subscribed,
            Err(ahp::ClientError::Rpc(_)) => return Ok(Self::default()),
            Err(error) => return Err(exit(error)),
        };
        let Some(snapshot) = subscribed.snapshot else { return Ok(Self::default()) };
        let SnapshotState::Session(state) = snapshot.state else { return Ok(Self::default()) };
        let id = uri::session_id(session).unwrap_or(session);
        let mut followed = Self {
            session: uri::session(&state.provider, id),
            from: snapshot.from_seq,
            shown: HashMap::new(),
        };
        Request::all(&state).for_each(|request| followed.show(&request, see));
        Ok(followed)
    }

    /// The same for the session of a chat.
    async fn of_chat(daemon: &Connection, chat: &str, see: &mut impl FnMut(&Seen<'_>)) -> Result<Self, Exit> {
        let session = match Channel::parse(chat).session() {
            SessionOf::Id(id) => Some(uri::session_alias(id)),
            SessionOf::Chat(chat) => {
                let has_it = |row: &Value| {
                    row["chats"].as_array().into_iter().flatten().any(|one| one["resource"] == *chat)
                };
                let rows = daemon.sessions(1, has_it).await?;
                rows.first().and_then(|row| row["resource"].as_str()).map(str::to_owned)
            }
            SessionOf::None => None,
        };
        match session {
            Some(session) => Self::of(daemon, &session, see).await,
            None => Ok(Self::default()),
        }
    }

    fn show(&mut self, request: &Request, see: &mut impl FnMut(&Seen<'_>)) {
        let before = self.shown.insert(request.id.clone(), request.digest.clone());
        if before.as_ref() != Some(&request.digest) {
            see(&Seen::Waits(&self.session, &PendingRequest::of(request)));
        }
    }

    /// Shows a new request; returns whether the action is about what the session waits for.
    fn action(&mut self, channel: &str, envelope: &ActionEnvelope, see: &mut impl FnMut(&Seen<'_>)) -> bool {
        let is_of_session =
            uri::session_id(channel).is_some_and(|id| uri::session_id(&self.session) == Some(id));
        if !is_of_session || envelope.server_seq <= u64::try_from(self.from).unwrap_or_default() {
            return false;
        }
        match &envelope.action {
            StateAction::SessionInputNeededSet(set) => {
                if let Some(request) = Request::read(&set.request) {
                    self.show(&request, see);
                }
                true
            }
            StateAction::SessionInputNeededRemoved(removed) => {
                self.shown.remove(&removed.id);
                true
            }
            _ => false,
        }
    }
}

/// How far a followed chat has been printed.
#[derive(Debug, Default)]
struct FollowedChat {
    /// The one turn that is followed.
    only: Option<String>,
    /// Actions up to this number are in the snapshot.
    from: i64,
    over: bool,
    end: TurnEnd,
}

impl FollowedChat {
    /// Shows the turn that runs, or else the last one.
    fn last(&mut self, state: &ChatState, see: &mut impl FnMut(&Seen<'_>)) {
        match (&state.active_turn, state.turns.last()) {
            (Some(active), _) => self.active(active, see),
            (None, Some(last)) => self.ended(last, see),
            (None, None) => {}
        }
    }

    fn ended(&mut self, turn: &Turn, see: &mut impl FnMut(&Seen<'_>)) {
        self.begins(&turn.id, &turn.message.text, see);
        turn.response_parts.iter().for_each(|part| self.part(part, see));
        let status = match turn.state {
            TurnState::Complete => "complete",
            TurnState::Cancelled => "cancelled",
            _ => "error",
        };
        let error = turn.response_parts.iter().rev().find_map(|part| match part {
            ResponsePart::Error(part) => Some(part.error.message.clone()),
            _ => None,
        });
        self.ends(status, error, see);
    }

    fn active(&mut self, turn: &ActiveTurn, see: &mut impl FnMut(&Seen<'_>)) {
        self.begins(&turn.id, &turn.message.text, see);
        turn.response_parts.iter().for_each(|part| self.part(part, see));
    }

    fn begins(&mut self, turn: &str, text: &str, see: &mut impl FnMut(&Seen<'_>)) {
        self.over = false;
        self.end = TurnEnd { turn: turn.to_owned(), ..TurnEnd::default() };
        see(&Seen::Asked(text));
    }

    fn ends(&mut self, status: &'static str, error: Option<String>, see: &mut impl FnMut(&Seen<'_>)) {
        self.over = true;
        self.end.status = status;
        self.end.error = error;
        see(&Seen::Over);
    }

    fn text(&mut self, text: &str, see: &mut impl FnMut(&Seen<'_>)) {
        self.end.text.push_str(text);
        see(&Seen::Text(text));
    }

    fn part(&mut self, part: &ResponsePart, see: &mut impl FnMut(&Seen<'_>)) {
        match part {
            ResponsePart::Markdown(part) => self.text(&part.content, see),
            ResponsePart::ToolCall(part) => {
                // The name is in every state of a call.
                let call = serde_json::to_value(&part.tool_call).unwrap_or_default();
                see(&Seen::Called(call["toolName"].as_str().unwrap_or_default()));
                if let ToolCallState::Completed(call) = &part.tool_call {
                    answered(call.content.as_deref().unwrap_or_default(), see);
                }
            }
            _ => {}
        }
    }

    fn action(&mut self, envelope: &ActionEnvelope, see: &mut impl FnMut(&Seen<'_>)) {
        if envelope.server_seq <= u64::try_from(self.from).unwrap_or_default() {
            return;
        }
        if let (Some(only), StateAction::ChatTurnStarted(turn)) = (&mut self.only, &envelope.action)
            && turn.queued_message_id.as_deref() == Some(only.as_str())
        {
            turn.turn_id.clone_into(only);
        }
        if let (Some(only), Some(turn)) = (&self.only, turn_of(&envelope.action))
            && only != turn
        {
            return;
        }
        match &envelope.action {
            StateAction::ChatTurnStarted(turn) => self.begins(&turn.turn_id, &turn.message.text, see),
            StateAction::ChatResponsePart(part) => self.part(&part.part, see),
            StateAction::ChatDelta(delta) => self.text(&delta.content, see),
            StateAction::ChatToolCallStart(call) => see(&Seen::Called(&call.tool_name)),
            StateAction::ChatToolCallComplete(done) => {
                answered(done.result.content.as_deref().unwrap_or_default(), see);
            }
            StateAction::ChatTurnComplete(_) => self.ends("complete", None, see),
            StateAction::ChatTurnCancelled(_) => self.ends("cancelled", None, see),
            StateAction::ChatPendingMessageRemoved(removed) if self.only.as_ref() == Some(&removed.id) => {
                self.ends("cancelled", None, see);
            }
            StateAction::ChatError(failed) => {
                self.ends("error", Some(failed.part.error.message.clone()), see);
            }
            _ => {}
        }
    }
}

fn answered(content: &[ToolResultContent], see: &mut impl FnMut(&Seen<'_>)) {
    for part in content {
        if let ToolResultContent::Text(text) = part {
            see(&Seen::Answered(&text.text));
        }
    }
}

/// The turn an action is about, where it is about one.
fn turn_of(action: &StateAction) -> Option<&str> {
    match action {
        StateAction::ChatTurnStarted(action) => Some(&action.turn_id),
        StateAction::ChatResponsePart(action) => Some(&action.turn_id),
        StateAction::ChatDelta(action) => Some(&action.turn_id),
        StateAction::ChatToolCallStart(action) => Some(&action.turn_id),
        StateAction::ChatToolCallReady(action) => Some(&action.turn_id),
        StateAction::ChatToolCallComplete(action) => Some(&action.turn_id),
        StateAction::ChatTurnComplete(action) => Some(&action.turn_id),
        StateAction::ChatTurnCancelled(action) => Some(&action.turn_id),
        StateAction::ChatError(action) => Some(&action.turn_id),
        _ => None,
    }
}
