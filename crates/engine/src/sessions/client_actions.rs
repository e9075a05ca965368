//! What clients do to a session and its chats. An action that cannot be is refused to its sender with a
//! reason; one that changes nothing is not echoed.

use std::collections::BTreeMap;

use ostler_protocol::actions::Scope;
use ostler_protocol::wire::actions::{
    ChatInputCompletedAction, ChatPendingMessageSetAction, ChatToolCallCompleteAction,
    ChatToolCallConfirmedAction, ChatTruncatedAction, ChatTurnStartedAction, SessionActiveClientSetAction,
    SessionConfigChangedAction, StateAction,
};
use ostler_protocol::wire::state::{
    ChatInputQuestion, ChatInputRequest, ChatInputResponseKind, Message, MessageKind, PendingMessageKind,
    ResponsePart, ToolCallContributor, ToolCallState,
};
use ostler_protocol::{Value, json};
use tokio::sync::oneshot;

use super::Place;
use super::actor::Actor;
use super::backend::Tell;
use super::mailbox::{Dispatch, ToSession};
use super::turns::tidy_title;
use crate::fanout::{Origin, rejection};

/// Why an action is refused.
type Refused = Result<(), String>;

fn refuse(why: impl Into<String>) -> Refused {
    Err(why.into())
}

impl Actor {
    /// Takes one dispatched action.
    pub(super) async fn handle_dispatch(&mut self, dispatch: Dispatch) {
        let action = match read(&dispatch, &self.host.clock.iso()) {
            Ok(action) => action,
            Err(why) => return self.reject(&dispatch, &why),
        };
        if let StateAction::SessionConfigChanged(changed) = &action
            && let Some(at) = self.chat_at(&Place::DefaultChat)
            && self.chats[at].backend.is_some()
        {
            match self.check_config(changed) {
                Ok(()) => return self.ask_backend(at, changed.config.clone(), dispatch),
                Err(why) => return self.reject(&dispatch, &why),
            }
        }
        let origin = dispatch.origin.clone();
        let outcome = match self.chat_at(&dispatch.place) {
            _ if dispatch.place == Place::Session => self.session_action(action, origin, &dispatch).await,
            Some(at) => self.chat_action(at, action, origin, &dispatch).await,
            None => return self.reject(&dispatch, "there is no such chat"),
        };
        if let Err(why) = outcome {
            self.reject(&dispatch, &why);
        }
    }

    /// Tells the sender, and nobody else, why its action was not taken.
    pub(super) fn reject(&mut self, dispatch: &Dispatch, why: &str) {
        self.flush_out();
        let seq = self.host.fanout.seq();
        let frame = rejection(&dispatch.spelled, &dispatch.action.to_string(), seq, &dispatch.origin, why);
        dispatch.connection.outbox.send(frame);
    }

    async fn session_action(&mut self, action: StateAction, origin: Origin, dispatch: &Dispatch) -> Refused {
        let origin = Some(origin);
        match action {
            StateAction::SessionTitleChanged(changed) => {
                let title = tidy_title(&changed.title).ok_or("a title needs at least one character")?;
                self.rename(&title, origin).await;
                Ok(())
            }
            StateAction::SessionIsReadChanged(changed) => {
                if self.entry.row.lock().flags.is_read != changed.is_read {
                    self.entry.row.lock().flags.is_read = changed.is_read;
                    self.apply_session(StateAction::SessionIsReadChanged(changed), origin);
                    self.keep_flags().await;
                }
                Ok(())
            }
            StateAction::SessionIsArchivedChanged(changed) => {
                if self.entry.row.lock().flags.is_archived != changed.is_archived {
                    self.entry.row.lock().flags.is_archived = changed.is_archived;
                    self.apply_session(StateAction::SessionIsArchivedChanged(changed), origin);
                    self.keep_flags().await;
                }
                Ok(())
            }
            StateAction::SessionActiveClientSet(set) => self.set_active_client(set, origin, dispatch),
            StateAction::SessionActiveClientRemoved(removed) => {
                if removed.client_id != dispatch.origin.client_id {
                    return refuse("a client may only take itself out of a session");
                }
                self.client_gone(&removed.client_id);
                if self.apply_session(StateAction::SessionActiveClientRemoved(removed), origin) {
                    self.tools_changed();
                }
                Ok(())
            }
            StateAction::SessionConfigChanged(changed) => {
                self.check_config(&changed)?;
                self.change_config(changed, origin).await
            }
            StateAction::SessionWorkingDirectorySet(_)
            | StateAction::SessionWorkingDirectoryRemoved(_)
            | StateAction::SessionWorkingDirectoryReplaced(_) => {
                self.change_directories(action, origin).await
            }
            StateAction::SessionCustomizationToggled(toggled) => {
                let on = match toggled.enablement.first() {
                    None => true,
                    Some(first) => serde_json::to_value(first)
                        .ok()
                        .and_then(|first| first.get("enabled").and_then(Value::as_bool))
                        .unwrap_or(true),
                };
                let id = toggled.id.clone();
                if !self.apply_session(StateAction::SessionCustomizationToggled(toggled), origin) {
                    return refuse(format!("there is no customization {id}"));
                }
                for at in 0..self.chats.len() {
                    self.tell_if_awake(at, Tell::Customization { id: id.clone(), on });
                }
                Ok(())
            }
            StateAction::SessionMcpServerStartRequested(request) => {
                let id = request.id.clone();
                self.mcp_server(StateAction::SessionMcpServerStartRequested(request), id, true, origin)
            }
            StateAction::SessionMcpServerStopRequested(request) => {
                let id = request.id.clone();
                self.mcp_server(StateAction::SessionMcpServerStopRequested(request), id, false, origin)
            }
            StateAction::SessionMcpServerBackgroundRequested(request) => {
                self.apply_session(StateAction::SessionMcpServerBackgroundRequested(request), origin);
                Ok(())
            }
            _ => refuse("this action does not belong on a session"),
        }
    }

    fn mcp_server(
        &mut self,
        action: StateAction,
        id: String,
        start: bool,
        origin: Option<Origin>,
    ) -> Refused {
        if !self.apply_session(action, origin) {
            return refuse(format!("there is no MCP server {id}"));
        }
        for at in 0..self.chats.len() {
            self.tell_if_awake(at, Tell::McpServer { id: id.clone(), start });
        }
        Ok(())
    }

    fn set_active_client(
        &mut self,
        set: SessionActiveClientSetAction,
        origin: Option<Origin>,
        dispatch: &Dispatch,
    ) -> Refused {
        if set.active_client.client_id != dispatch.origin.client_id {
            return refuse("a client may only set itself active");
        }
        if self.state.active_clients.contains(&set.active_client) {
            return Ok(());
        }
        self.apply_session(StateAction::SessionActiveClientSet(set), origin);
        self.tools_changed();
        Ok(())
    }

    /// Whether settings may be changed while the session runs.
    fn check_config(&self, changed: &SessionConfigChangedAction) -> Refused {
        let Some(config) = &self.state.config else { return refuse("this session has no settings") };
        for key in changed.config.keys() {
            match config.schema.properties.get(key) {
                None => return refuse(format!("{key} is not a setting of this session")),
                Some(property) if property.session_mutable == Some(false) => {
                    return refuse(format!("{key} cannot be changed in a running session"));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Asks the backend whether it takes settings; its answer comes back into the mailbox.
    fn ask_backend(&self, at: usize, values: ostler_protocol::JsonObject, dispatch: Dispatch) {
        let (answered, wait) = oneshot::channel();
        self.tell_if_awake(at, Tell::SetConfig { values, answered });
        let mailbox = self.mailbox.clone();
        tokio::spawn(async move {
            let refused = wait.await.unwrap_or_default();
            let _ = mailbox.send(ToSession::ConfigAnswered { dispatch: Box::new(dispatch), refused });
        });
    }

    /// Goes on where [`Actor::ask_backend`] stopped.
    pub(super) async fn config_answered(&mut self, dispatch: Dispatch, refused: Option<String>) {
        if let Some(why) = refused {
            return self.reject(&dispatch, &why);
        }
        if let Ok(StateAction::SessionConfigChanged(changed)) = read(&dispatch, "") {
            let _ = self.change_config(changed, Some(dispatch.origin)).await;
        }
    }

    async fn change_config(
        &mut self,
        changed: SessionConfigChangedAction,
        origin: Option<Origin>,
    ) -> Refused {
        let values = self.state.config.as_ref().map(|config| &config.values);
        let same = changed.replace != Some(true)
            && changed
                .config
                .iter()
                .all(|(key, value)| values.and_then(|values| values.get(key)) == Some(value));
        if same {
            return Ok(());
        }
        self.apply_session(StateAction::SessionConfigChanged(changed), origin);
        if let Some(config) = &self.state.config {
            self.entry.row.lock().kept.values = config.values.clone();
        }
        self.keep_session().await;
        Ok(())
    }

    async fn change_directories(&mut self, action: StateAction, origin: Option<Origin>) -> Refused {
        if self.chats.iter().any(|chat| chat.running().is_some()) {
            return refuse("TurnInProgress: folders cannot be changed while a turn runs");
        }
        let folders = self.state.working_directories.clone().unwrap_or_default();
        let agent = self.agent.as_ref();
        let many = agent.is_some_and(|agent| agent.multiple_directories == Some(true));
        match &action {
            StateAction::SessionWorkingDirectorySet(_) if !many => {
                return refuse(format!("{} works in one folder", self.entry.provider));
            }
            StateAction::SessionWorkingDirectoryRemoved(removed)
                if folders.first() == Some(&removed.directory) =>
            {
                return refuse("the first folder can be replaced but not removed");
            }
            StateAction::SessionWorkingDirectoryRemoved(removed) if !folders.contains(&removed.directory) => {
                return refuse(format!("{} is not a folder of this session", removed.directory));
            }
            StateAction::SessionWorkingDirectoryReplaced(replaced)
                if folders.first() == Some(&replaced.directory) =>
            {
                return refuse(format!("{} cannot move to another first folder", self.entry.provider));
            }
            _ => {}
        }
        if self.apply_session(action, origin) {
            self.refresh_row();
            self.keep_session().await;
        }
        Ok(())
    }

    async fn chat_action(
        &mut self,
        at: usize,
        action: StateAction,
        origin: Origin,
        dispatch: &Dispatch,
    ) -> Refused {
        let origin = Some(origin);
        match action {
            StateAction::ChatTurnStarted(started) => self.start_turn(at, started, origin, dispatch).await,
            StateAction::ChatTurnCancelled(cancelled) => {
                if self.chats[at].running() != Some(cancelled.turn_id.as_str()) {
                    return refuse("no such turn is running in this chat");
                }
                let turn = cancelled.turn_id.clone();
                if self.chats[at].worker {
                    self.stop_worker(at);
                } else {
                    self.tell_if_awake(at, Tell::Cancel { turn });
                }
                self.end_turn(at, StateAction::ChatTurnCancelled(cancelled), origin).await;
                Ok(())
            }
            StateAction::ChatToolCallConfirmed(confirmed) => self.confirm(at, confirmed, origin),
            StateAction::ChatToolCallComplete(complete) => self.client_tool_done(at, complete, dispatch),
            StateAction::ChatToolCallContentChanged(changed) => {
                self.owned_call(at, &changed.tool_call_id, &dispatch.origin.client_id)?;
                self.flush_gathered(at);
                self.apply_chat(at, StateAction::ChatToolCallContentChanged(changed), origin);
                Ok(())
            }
            StateAction::ChatToolCallResultConfirmed(_) => {
                refuse("results of tool calls are not confirmed on this host")
            }
            StateAction::ChatInputAnswerChanged(changed) => {
                if self.open_question(at, &changed.request_id).is_none() {
                    return refuse(format!("nothing called {} waits for an answer", changed.request_id));
                }
                self.flush_gathered(at);
                let tell = Tell::SetAnswer {
                    request: changed.request_id.clone(),
                    question: changed.question_id.clone(),
                    answer: changed.answer.clone(),
                };
                if self.apply_chat(at, StateAction::ChatInputAnswerChanged(changed), origin) {
                    self.tell_if_awake(at, tell);
                }
                Ok(())
            }
            StateAction::ChatInputCompleted(completed) => self.answer(at, completed, origin),
            StateAction::ChatPendingMessageSet(set) => self.set_pending(at, set, origin, dispatch).await,
            StateAction::ChatPendingMessageRemoved(removed) => {
                let id = removed.id.clone();
                if !self.apply_chat(at, StateAction::ChatPendingMessageRemoved(removed), origin) {
                    return refuse(format!("no message {id} waits here"));
                }
                self.keep_chats().await;
                Ok(())
            }
            StateAction::ChatQueuedMessagesReordered(reordered) => {
                if self.apply_chat(at, StateAction::ChatQueuedMessagesReordered(reordered), origin) {
                    self.keep_chats().await;
                }
                Ok(())
            }
            StateAction::ChatDraftChanged(changed) => {
                if self.chats[at].state.draft != changed.draft {
                    self.apply_chat(at, StateAction::ChatDraftChanged(changed), origin);
                    self.keep_chats().await;
                }
                Ok(())
            }
            StateAction::ChatTurnResume(resume) => {
                let turn = resume.turn_id.clone();
                if self.chats[at].worker || !self.apply_chat(at, StateAction::ChatTurnResume(resume), origin)
                {
                    return refuse(
                        "only the latest turn can go on, and only where it failed and says it can",
                    );
                }
                self.keep_running_turn(at).await;
                self.tell_backend(at, Tell::Resume { turn });
                Ok(())
            }
            StateAction::ChatTruncated(truncated) => self.truncate(at, truncated, origin).await,
            StateAction::ChatIsReadChanged(_) | StateAction::ChatIsArchivedChanged(_) => {
                self.apply_chat(at, action, origin);
                Ok(())
            }
            StateAction::SessionTitleChanged(changed) => {
                let title = tidy_title(&changed.title).ok_or("a title needs at least one character")?;
                self.chats[at].titled = true;
                self.set_title(at, title, origin).await;
                Ok(())
            }
            _ => refuse("this action does not belong on a chat"),
        }
    }

    async fn start_turn(
        &mut self,
        at: usize,
        mut started: ChatTurnStartedAction,
        origin: Option<Origin>,
        dispatch: &Dispatch,
    ) -> Refused {
        self.may_talk(at, &started.message)?;
        let chat = &self.chats[at];
        if chat.running().is_some() {
            return refuse("a turn is running in this chat; send the message as a pending one");
        }
        if started.turn_id.trim().is_empty() {
            return refuse("a turn needs an id");
        }
        if chat.state.turns.iter().any(|turn| turn.id == started.turn_id) {
            return refuse(format!("there was a turn {} in this chat already", started.turn_id));
        }
        self.sign(&mut started.message, dispatch.sender.as_deref());
        self.begin_turn(at, started, origin, dispatch.sender.clone()).await;
        Ok(())
    }

    /// Whether a client may say something in a chat.
    fn may_talk(&self, at: usize, message: &Message) -> Refused {
        if !self.chats[at].is_open() {
            return refuse("this chat is read-only");
        }
        if message.origin.kind != MessageKind::User {
            return refuse("a client may only send messages of a person");
        }
        if self.host.is_stopping() {
            return refuse("the host is stopping");
        }
        if self.agent.is_none() {
            return refuse(format!("{} is not loaded on this host", self.entry.provider));
        }
        Ok(())
    }

    async fn set_pending(
        &mut self,
        at: usize,
        mut set: ChatPendingMessageSetAction,
        origin: Option<Origin>,
        dispatch: &Dispatch,
    ) -> Refused {
        self.may_talk(at, &set.message)?;
        self.sign(&mut set.message, dispatch.sender.as_deref());
        if set.kind == PendingMessageKind::Steering {
            let Some(backend) = &self.chats[at].backend else {
                return refuse("no turn is running that could take this message");
            };
            if self.chats[at].running().is_none() {
                return refuse("no turn is running that could take this message");
            }
            let (taken, wait) = oneshot::channel();
            backend.tell(Tell::Steer {
                id: set.id.clone(),
                text: set.message.text.clone(),
                attachments: set.message.attachments.clone(),
                taken,
            });
            let id = set.id.clone();
            self.apply_chat(at, StateAction::ChatPendingMessageSet(set), origin);
            self.flush_out();
            // A backend takes a message in at once; one that cannot leaves it to the queue.
            let steered = tokio::time::timeout(std::time::Duration::from_secs(5), wait).await;
            return self.steered(at, &id, matches!(steered, Ok(Ok(true)))).await;
        }
        self.apply_chat(at, StateAction::ChatPendingMessageSet(set), origin);
        self.keep_chats().await;
        if self.chats[at].running().is_none() {
            self.begin_queued(at).await;
        }
        Ok(())
    }

    /// What becomes of a steering message: it is in the turn, or waits for the next one.
    async fn steered(&mut self, at: usize, id: &str, taken: bool) -> Refused {
        let message = self.chats[at].state.steering_message.clone().filter(|message| message.id == id);
        let removed = json!({ "type": "chat/pendingMessageRemoved", "kind": "steering", "id": id });
        if let Ok(action) = serde_json::from_value(removed) {
            self.apply_chat(at, action, None);
        }
        if let (false, Some(message)) = (taken, message) {
            let queued = ChatPendingMessageSetAction {
                kind: PendingMessageKind::Queued,
                id: message.id,
                message: message.message,
            };
            self.apply_chat(at, StateAction::ChatPendingMessageSet(queued), None);
            self.keep_chats().await;
        }
        Ok(())
    }

    fn confirm(
        &mut self,
        at: usize,
        confirmed: ChatToolCallConfirmedAction,
        origin: Option<Origin>,
    ) -> Refused {
        let call = confirmed.tool_call_id.clone();
        if !matches!(self.tool_call(at, &call), Some(ToolCallState::PendingConfirmation(_))) {
            return refuse(format!("the tool call {call} does not wait for an approval"));
        }
        let (approved, option) = (confirmed.approved, confirmed.selected_option_id.clone());
        self.flush_gathered(at);
        let mut confirmed = confirmed;
        if approved && confirmed.confirmed.is_none() {
            confirmed.confirmed = Some(ostler_protocol::wire::state::ToolCallConfirmationReason::UserAction);
        }
        if !self.apply_chat(at, StateAction::ChatToolCallConfirmed(confirmed), origin) {
            return refuse(format!("the tool call {call} cannot be confirmed"));
        }
        self.withdraw_call(at, &call);
        self.tell_if_awake(at, Tell::Confirm { call: call.clone(), approved, option });
        if approved {
            self.watch_client_tool(at, &call);
        }
        Ok(())
    }

    fn answer(&mut self, at: usize, completed: ChatInputCompletedAction, origin: Option<Origin>) -> Refused {
        let request = completed.request_id.clone();
        let Some(open) = self.open_question(at, &request).cloned() else {
            return refuse(format!("nothing called {request} waits for an answer"));
        };
        let mut answers: BTreeMap<_, _> = open.answers.clone().unwrap_or_default().into_iter().collect();
        answers.extend(completed.answers.clone().unwrap_or_default());
        let accepted = completed.response == ChatInputResponseKind::Accept;
        if accepted && let Some(missing) = required(&open).find(|question| !answers.contains_key(*question)) {
            return refuse(format!("the question {missing} needs an answer"));
        }
        self.flush_gathered(at);
        if !self.apply_chat(at, StateAction::ChatInputCompleted(completed), origin) {
            return refuse(format!("nothing called {request} waits for an answer"));
        }
        self.withdraw(&request);
        self.tell_if_awake(at, Tell::Answer { request, accepted, answers });
        Ok(())
    }

    async fn truncate(
        &mut self,
        at: usize,
        truncated: ChatTruncatedAction,
        origin: Option<Origin>,
    ) -> Refused {
        let Some(turn) = truncated.turn_id.clone() else {
            return refuse("say after which turn: turnId is missing");
        };
        let Some(place) = self.chats[at].state.turns.iter().position(|held| held.id == turn) else {
            return refuse(format!("{turn} is not a turn of this chat"));
        };
        if let Some(running) = self.chats[at].running().map(str::to_owned) {
            self.tell_if_awake(at, Tell::Cancel { turn: running });
        }
        self.flush_gathered(at);
        self.apply_chat(at, StateAction::ChatTruncated(truncated), origin);
        self.drop_turns(at, place + 1).await;
        // The conversation is taken up again from what is left.
        if let Some(backend) = self.chats[at].backend.take() {
            backend.close(false).await;
        }
        self.chats[at].rewind = true;
        Ok(())
    }

    /// A tool call of the running turn.
    pub(super) fn tool_call(&self, at: usize, call: &str) -> Option<&ToolCallState> {
        let active = self.chats[at].state.active_turn.as_ref()?;
        active.response_parts.iter().find_map(|part| match part {
            ResponsePart::ToolCall(part) if super::tools::call_id(&part.tool_call) == Some(call) => {
                Some(&part.tool_call)
            }
            _ => None,
        })
    }

    /// A question of the running turn that nobody answered yet.
    fn open_question(&self, at: usize, request: &str) -> Option<&ChatInputRequest> {
        let active = self.chats[at].state.active_turn.as_ref()?;
        active.response_parts.iter().find_map(|part| match part {
            ResponsePart::InputRequest(part) if part.response.is_none() && part.request.id == request => {
                Some(&part.request)
            }
            _ => None,
        })
    }

    /// Whether a running tool call is this client's to report on.
    pub(super) fn owned_call(&self, at: usize, call: &str, client: &str) -> Refused {
        let Some(state) = self.tool_call(at, call) else {
            return refuse(format!("there is no tool call {call} in the running turn"));
        };
        let ToolCallState::Running(running) = state else {
            return refuse(format!("the tool call {call} is not running"));
        };
        match &running.contributor {
            Some(ToolCallContributor::Client(owner)) if owner.client_id == client => Ok(()),
            _ => refuse(format!("the tool call {call} is not run by this client")),
        }
    }

    fn client_tool_done(
        &mut self,
        at: usize,
        done: ChatToolCallCompleteAction,
        dispatch: &Dispatch,
    ) -> Refused {
        self.owned_call(at, &done.tool_call_id, &dispatch.origin.client_id)?;
        let result = serde_json::to_value(&done.result).unwrap_or_default();
        self.client_tool_result(at, done.tool_call_id, &dispatch.origin.client_id, result);
        Ok(())
    }
}

/// The questions of a request that need an answer.
fn required(request: &ChatInputRequest) -> impl Iterator<Item = &str> {
    request.questions.iter().flatten().filter_map(|question| {
        let (id, required) = match question {
            ChatInputQuestion::Text(question) => (&question.id, question.required),
            ChatInputQuestion::Number(question) | ChatInputQuestion::Integer(question) => {
                (&question.id, question.required)
            }
            ChatInputQuestion::Boolean(question) => (&question.id, question.required),
            ChatInputQuestion::SingleSelect(question) => (&question.id, question.required),
            ChatInputQuestion::MultiSelect(question) => (&question.id, question.required),
            ChatInputQuestion::Unknown(_) => return None,
        };
        (required == Some(true)).then_some(id.as_str())
    })
}

/// Types a dispatched action, filling in what clients are known to leave out: when a turn started and that a
/// message is a person's.
fn read(dispatch: &Dispatch, now: &str) -> Result<StateAction, String> {
    let wanted = match dispatch.place {
        Place::Session => Scope::Session,
        _ => Scope::Chat,
    };
    let renames_chat = dispatch.row.name == "session/titleChanged" && wanted == Scope::Chat;
    if dispatch.row.scope != wanted && !renames_chat {
        return Err(format!("{} does not belong on {}", dispatch.row.name, dispatch.spelled));
    }
    let mut action = dispatch.action.clone();
    if let Some(message) = action.get_mut("message").and_then(Value::as_object_mut) {
        message.entry("origin").or_insert_with(|| json!({ "kind": "user" }));
        message.entry("text").or_insert_with(|| "".into());
    }
    if dispatch.row.name == "chat/turnStarted"
        && let Some(fields) = action.as_object_mut()
    {
        let readable =
            |started: &Value| started.as_str().is_some_and(|at| at.parse::<jiff::Timestamp>().is_ok());
        if !fields.get("startedAt").is_some_and(readable) {
            fields.insert("startedAt".to_owned(), now.into());
        }
    }
    if dispatch.row.name == "chat/turnCancelled"
        && let Some(fields) = action.as_object_mut()
    {
        fields.entry("duration").or_insert_with(|| 0.into());
    }
    match serde_json::from_value(action) {
        Ok(StateAction::Unknown(_)) | Err(_) => Err(format!(
            "{} lacks a field the protocol gives it, or has one of another type",
            dispatch.row.name
        )),
        Ok(action) => Ok(action),
    }
}
