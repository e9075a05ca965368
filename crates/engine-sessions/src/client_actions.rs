//! Client actions in a session and its chats. An invalid action is rejected with a reason; an action that changes
//! nothing is not echoed.

use std::borrow::Cow;

use ostler_engine_core::fanout::{Origin, rejection};
use ostler_engine_core::long_work::long_work;
use ostler_engine_core::refusals::{
    FOLDERS_IN_USE, NO_SUCH_CHAT, Rejection, STOPPING, does_not_belong, lacks_field, one_folder,
};
use ostler_engine_core::tasks;
use ostler_engine_core::titles::named;
use ostler_engine_users::users::clients::ClientIdentity;
use ostler_engine_workspace::directories::Directories;
use ostler_protocol::JsonObject;
use ostler_protocol::actions::{self, Class, Scope};
use ostler_protocol::wire::actions::{
    ChatTurnStartedAction, ChatWorkingDirectoryRemovedAction, SessionActiveClientSetAction,
    SessionConfigChangedAction, StateAction,
};
use ostler_protocol::{Value, json};
use tokio::sync::oneshot;

use super::Place;
use super::actor::Actor;
use super::backend::Tell;
use super::deferred::DeferredPart;
use super::mailbox::{Dispatch, ToSession};
use crate::config::refuses;

/// The result of an action, with the reason for a rejection.
pub(super) type Refused = Result<(), Rejection>;

pub(super) fn refuse(why: impl Into<Rejection>) -> Refused {
    Err(why.into())
}

/// Rejects an action that can be sent again later.
pub(super) fn refuse_for_now(why: impl Into<String>) -> Refused {
    Err(Rejection::retryable(why))
}

/// The action by which a client says that it is active in a session.
pub const ACTIVE_CLIENT_SET: &str = "session/activeClientSet";

impl Actor {
    pub(super) async fn handle_dispatch(&mut self, dispatch: Dispatch) {
        if let Some(Err(why)) = &dispatch.room {
            self.flush_out();
            self.answer_activity(&dispatch);
            return dispatch.refuse(Rejection::retryable(why), self.core.fanout.seq());
        }
        let mut action = match long_work(dispatch.length, || read(&dispatch, || self.core.clock.iso())) {
            Ok(action) => action,
            Err(why) => return self.reject(&dispatch, why),
        };
        if let StateAction::SessionConfigChanged(changed) = &action
            && let Some(at) = self.chat_at(&Place::DefaultChat)
            && self.chats[at].backend.is_some()
        {
            match self.check_config(changed) {
                Ok(()) => {
                    let changes = self.changes_config(changed);
                    return self.ask_backend(at, self.of_backend(&changed.config), changes, dispatch);
                }
                Err(why) => return self.reject(&dispatch, why),
            }
        }
        let dispatch = match self.chat_at(&dispatch.place) {
            Some(at) => match self.prepare(at, &mut action, dispatch) {
                Ok(Some(dispatch)) => dispatch,
                Ok(None) => return,
                Err((dispatch, why)) => return self.reject(&dispatch, why),
            },
            None => dispatch,
        };
        let origin = dispatch.origin.clone();
        let outcome = match self.chat_at(&dispatch.place) {
            // Boxed, because every message occupies as much memory as the largest future.
            _ if dispatch.place == Place::Annotations => Box::pin(self.annotate(action, Some(origin))).await,
            _ if dispatch.place == Place::Session => self.session_action(action, origin, &dispatch).await,
            Some(at) => self.chat_action(at, action, origin, &dispatch).await,
            None => return self.reject(&dispatch, NO_SUCH_CHAT),
        };
        self.answer_failure(&dispatch, outcome);
    }

    /// Rejects an action that was refused, or whose change could not be stored.
    pub(super) fn answer_failure(&mut self, dispatch: &Dispatch, outcome: Refused) {
        match outcome {
            Err(why) => self.reject(dispatch, why),
            // Without an echo, it is rejected.
            Ok(()) => {
                if let Err(why) = self.acknowledge() {
                    self.reject(dispatch, &why);
                }
            }
        }
    }

    /// Sends a rejection with its reason to the sender only.
    pub(super) fn reject(&mut self, dispatch: &Dispatch, why: impl Into<Rejection>) {
        self.flush_out();
        self.answer_activity(dispatch);
        let seq = self.core.fanout.seq();
        let frame = rejection(&dispatch.spelled, &dispatch.action.to_string(), seq, &dispatch.origin, why);
        dispatch.connection.outbox.send(frame);
    }

    /// Tells a connection whether its client is active here, if it has said so.
    fn answer_activity(&self, dispatch: &Dispatch) {
        if dispatch.row.name == ACTIVE_CLIENT_SET
            && let Some(client) = self.sessions.access.clients.get(dispatch.connection.id)
        {
            let is_active = self.active_clients.iter().any(|active| active.is_of(&*client));
            client.answered(&self.entry.uri, is_active);
        }
    }

    async fn session_action(&mut self, action: StateAction, origin: Origin, dispatch: &Dispatch) -> Refused {
        let origin = Some(origin);
        match action {
            StateAction::SessionTitleChanged(changed) => {
                let title = named(&changed.title)?;
                self.rename(&title, origin).await;
                Ok(())
            }
            StateAction::SessionIsReadChanged(changed) => {
                if self.flags().is_read != changed.is_read {
                    self.apply_session(StateAction::SessionIsReadChanged(changed), origin);
                    self.deferred.add(DeferredPart::Flags);
                }
                Ok(())
            }
            StateAction::SessionIsArchivedChanged(changed) => {
                let archived = changed.is_archived;
                if self.flags().is_archived != archived {
                    self.apply_session(StateAction::SessionIsArchivedChanged(changed), origin);
                    self.stored_session(self.keep_flags(self.flags())).await;
                    self.settle_tree(archived);
                }
                Ok(())
            }
            StateAction::SessionActiveClientSet(set) => {
                self.set_active_client(set, origin, dispatch)?;
                self.answer_activity(dispatch);
                Ok(())
            }
            StateAction::SessionActiveClientRemoved(removed) => {
                if removed.client_id != dispatch.origin.client_id {
                    return refuse("a client can only remove itself from a session");
                }
                self.client_gone(&removed.client_id);
                if self.apply_session(StateAction::SessionActiveClientRemoved(removed), origin) {
                    self.active_clients_changed();
                }
                if let Some(client) = self.sessions.access.clients.get(dispatch.connection.id) {
                    client.leaves(&self.entry.uri);
                }
                Ok(())
            }
            StateAction::SessionConfigChanged(changed) => {
                self.check_config(&changed)?;
                self.change_config(changed, false, origin).await
            }
            StateAction::SessionWorkingDirectorySet(_)
            | StateAction::SessionWorkingDirectoryRemoved(_)
            | StateAction::SessionWorkingDirectoryReplaced(_) => {
                self.change_directories(action, origin).await
            }
            StateAction::SessionCustomizationToggled(toggled) => self.toggle(toggled, origin).await,
            StateAction::SessionMcpServerStartRequested(request) => {
                let id = request.id.clone();
                self.mcp_server(
                    StateAction::SessionMcpServerStartRequested(request),
                    id,
                    origin,
                    Some(dispatch),
                )
            }
            StateAction::SessionMcpServerStopRequested(request) => {
                let id = request.id.clone();
                self.mcp_server(StateAction::SessionMcpServerStopRequested(request), id, origin, None)
            }
            StateAction::SessionMcpServerBackgroundRequested(request) => {
                self.apply_session(StateAction::SessionMcpServerBackgroundRequested(request), origin);
                Ok(())
            }
            _ => refuse(does_not_belong(dispatch.row.name, "a session")),
        }
    }

    /// Starts or stops an MCP server; `starts` is the action that starts it. Where no backend runs, one starts for it.
    fn mcp_server(
        &mut self,
        action: StateAction,
        id: String,
        origin: Option<Origin>,
        starts: Option<&Dispatch>,
    ) -> Refused {
        let default = self.state.default_chat.as_deref();
        let at = self.chats.iter().position(|chat| Some(&*chat.uri) == default);
        let at = at.filter(|_| starts.is_some() && self.chats.iter().all(|chat| chat.backend.is_none()));
        if let (Some(at), Some(dispatch)) = (at, starts) {
            if self.agent.is_none() {
                return refuse(self.without_backend());
            }
            if self.core.is_stopping() {
                return refuse_for_now(STOPPING);
            }
            if let Err(refused) = self.sessions.may_work_for_owner(&self.entry) {
                return refuse(refused.message);
            }
            self.check_tokens_for(at, dispatch)?;
        }
        if !self.apply_session(action, origin) {
            return refuse(format!("there is no MCP server {id}"));
        }
        let start = starts.is_some();
        match at {
            Some(at) => self.tell_backend(at, Tell::McpServer { id, start }),
            None => self.tell_all(|| Tell::McpServer { id: id.clone(), start }),
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
        let client =
            ClientIdentity { id: set.active_client.client_id.clone(), owner: dispatch.sender.clone() };
        if self.state.active_clients.contains(&set.active_client) && self.active_clients.contains(&client) {
            return Ok(());
        }
        self.active_clients.retain(|other| other.id != client.id);
        self.active_clients.push(client);
        self.apply_session(StateAction::SessionActiveClientSet(set), origin);
        self.active_clients_changed();
        Ok(())
    }

    /// Updates what the session's active clients contribute.
    pub(super) fn active_clients_changed(&mut self) {
        let active = &self.state.active_clients;
        self.active_clients.retain(|client| active.iter().any(|other| other.client_id == client.id));
        self.tools_changed();
        self.sync_client_plugins();
    }

    /// Checks whether settings may be changed while the session runs.
    fn check_config(&self, changed: &SessionConfigChangedAction) -> Refused {
        let Some(properties) = self.shared.properties() else {
            return refuse("this session has no settings");
        };
        for (key, value) in &changed.config {
            match properties.get(key) {
                None => return refuse(format!("{key} is not a setting of this session")),
                Some(property) if property.session_mutable == Some(false) => {
                    return refuse(format!("{key} cannot be changed in a running session"));
                }
                Some(property) => {
                    let wrong = match self.sessions.contributed_setting(key, property) {
                        Some(setting) => refuses(setting, value),
                        None => self.sessions.mistyped_setting(&self.entry.provider, (key, property), value),
                    };
                    if let Some(why) = wrong {
                        return refuse(why);
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the settings of a change that belong to the backend, without those that plugins contributed.
    fn of_backend(&self, config: &JsonObject) -> JsonObject {
        let properties = self.shared.properties();
        let contributed = |key: &str| {
            let property = properties.and_then(|properties| properties.get(key));
            property.is_some_and(|property| self.sessions.contributed_setting(key, property).is_some())
        };
        let own = config.iter().filter(|(key, _)| !contributed(key));
        own.map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// Asks the backend whether it accepts settings. Its answer arrives as a message in the mailbox.
    fn ask_backend(&self, at: usize, values: JsonObject, changes: bool, dispatch: Dispatch) {
        let (answered, wait) = oneshot::channel();
        self.tell_if_awake(at, Tell::SetConfig { values, answered });
        let mailbox = self.mailbox.clone();
        tasks::spawn(async move {
            let refused = wait.await.unwrap_or_default();
            let _ =
                mailbox.send(ToSession::ConfigAnswered { dispatch: Box::new(dispatch), changes, refused });
        });
    }

    /// Continues after [`Actor::ask_backend`].
    pub(super) async fn config_answered(
        &mut self,
        dispatch: Dispatch,
        changes: bool,
        refused: Option<String>,
    ) {
        if let Some(why) = refused {
            return self.reject(&dispatch, why);
        }
        if let Ok(StateAction::SessionConfigChanged(changed)) = read(&dispatch, String::new) {
            let outcome = self.change_config(changed, changes, Some(dispatch.origin.clone())).await;
            self.answer_failure(&dispatch, outcome);
        }
    }

    /// Whether an action changes settings.
    pub(super) fn changes_config(&self, changed: &SessionConfigChangedAction) -> bool {
        let values = self.state.config.as_ref().map(|config| &config.values);
        let mut all = changed.config.iter();
        changed.replace == Some(true)
            || !all.all(|(key, value)| values.and_then(|values| values.get(key)) == Some(value))
    }

    /// Applies settings and stores them with the session, without the defaults of the others. The sender of an action that
    /// changed something when it arrived is answered, although the backend may have reported the change in the meantime.
    pub(super) async fn change_config(
        &mut self,
        changed: SessionConfigChangedAction,
        changes: bool,
        origin: Option<Origin>,
    ) -> Refused {
        let mut chosen = match changed.replace {
            Some(true) => JsonObject::new(),
            _ => self.entry.view().record.values.clone(),
        };
        chosen.extend(changed.config.clone());
        let same = !changes && !self.changes_config(&changed);
        // A user who chooses a default has chosen it.
        if same && (origin.is_none() || chosen == self.entry.view().record.values) {
            return Ok(());
        }
        if !same {
            self.apply_session(StateAction::SessionConfigChanged(changed), origin);
        }
        self.revise(|record| record.values = chosen);
        self.stored_session(self.keep_session()).await;
        Ok(())
    }

    async fn change_directories(&mut self, action: StateAction, origin: Option<Origin>) -> Refused {
        if self.chats.iter().any(|chat| chat.running().is_some()) {
            return refuse(FOLDERS_IN_USE);
        }
        let folders = self.state.working_directories.clone().unwrap_or_default();
        let agent = self.agent.as_ref();
        let many = agent.is_some_and(|agent| agent.multiple_directories == Some(true));
        match &action {
            StateAction::SessionWorkingDirectorySet(_) if !many => {
                return refuse(one_folder(&self.entry.provider));
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
        let removed = match &action {
            StateAction::SessionWorkingDirectoryRemoved(removed) => Some(removed.directory.clone()),
            _ => None,
        };
        let named = match &action {
            StateAction::SessionWorkingDirectorySet(set) => Some(set.directory.clone()),
            StateAction::SessionWorkingDirectoryReplaced(replaced) => Some(replaced.replacement.clone()),
            _ => None,
        };
        if let Some(named) = named {
            let checked = self.sessions.workspace.check_directories(&[named], Directories::Served).await;
            checked.map_err(|refused| refused.message)?;
        }
        if self.apply_session(action, origin) {
            self.refresh_row();
            self.stored_session(self.keep_session()).await;
            // A backend receives its directories only at its start.
            for at in 0..self.chats.len() {
                if self.chats[at].state.working_directories.is_none() && !self.chats[at].is_worker() {
                    self.restart_backend(at);
                }
            }
            if let Some(directory) = removed {
                self.leave_folder(directory).await;
            }
            // The session's changesets depend on its directories.
            self.sessions.look_around(&self.entry, false);
        }
        Ok(())
    }

    /// Removes a folder that was removed from the session from its chats too.
    async fn leave_folder(&mut self, directory: String) {
        let mut left = false;
        for at in 0..self.chats.len() {
            let removed = ChatWorkingDirectoryRemovedAction { directory: directory.clone() };
            if self.apply_chat(at, StateAction::ChatWorkingDirectoryRemoved(removed), None) {
                self.restart_backend(at);
                left = true;
            }
        }
        if left {
            self.stored_session(self.keep_chats()).await;
        }
    }
}

/// Parses a dispatched action. Fills in fields that clients are known to omit, such as the origin of a user's message.
/// The host sets the start time of a turn, because clients' clocks differ.
fn read(dispatch: &Dispatch, now: impl FnOnce() -> String) -> Result<StateAction, String> {
    let wanted = match dispatch.place {
        Place::Session => Scope::Session,
        Place::Annotations => Scope::Annotations,
        _ => Scope::Chat,
    };
    let renames_chat = dispatch.row.name == "session/titleChanged" && wanted == Scope::Chat;
    if dispatch.row.scope != wanted && !renames_chat {
        return Err(does_not_belong(dispatch.row.name, &dispatch.spelled));
    }
    // A rejection returns the action as it was sent, so missing fields are filled in on a copy.
    let mut action = Cow::Borrowed(&*dispatch.action);
    let lacks = |message: &JsonObject| !message.contains_key("origin") || !message.contains_key("text");
    if action.get("message").and_then(Value::as_object).is_some_and(lacks)
        && let Some(message) = action.to_mut().get_mut("message").and_then(Value::as_object_mut)
    {
        message.entry("origin").or_insert_with(|| json!({ "kind": "user" }));
        message.entry("text").or_insert_with(|| "".into());
    }
    if dispatch.row.name == "chat/turnStarted"
        && !action.get("startedAt").is_some_and(Value::is_string)
        && let Some(fields) = action.to_mut().as_object_mut()
    {
        fields.insert("startedAt".to_owned(), "".into());
    }
    if dispatch.row.class == Class::Cancel
        && action.get("duration").is_none()
        && let Some(fields) = action.to_mut().as_object_mut()
    {
        fields.insert("duration".to_owned(), 0.into());
    }
    match actions::read(&*action) {
        Ok(StateAction::Unknown(action)) => Err(lacks_field(dispatch.row.name, &action)),
        Err(_) => Err(lacks_field(dispatch.row.name, &dispatch.action)),
        Ok(StateAction::ChatTurnStarted(started)) => {
            Ok(StateAction::ChatTurnStarted(ChatTurnStartedAction { started_at: now(), ..started }))
        }
        Ok(action) => Ok(action),
    }
}
