//! Settings that the editor changes, and those that a session gets later.

use std::time::Duration;

use ostler_contract::{Value, json};
use ostler_protocol::wire::actions::SessionConfigChangedAction;
use ostler_protocol::wire::state::SnapshotState;

use super::{Bridge, Open, Sent, TaskEvent};
use crate::acp::editor_connection::{Failure, Request};
use crate::acp::options;

/// How long the daemon may take to confirm a change. Its agents may take 10 seconds.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(15);

/// A changed setting that the daemon has not confirmed yet.
pub(super) struct PendingSetting {
    session: String,
    id: String,
    value: Value,
    request: Request,
}

impl PendingSetting {
    fn has_value_in(&self, open: &Open) -> bool {
        value_of(open, &self.id) == Some(&self.value)
    }
}

fn value_of<'a>(open: &'a Open, id: &str) -> Option<&'a Value> {
    open.session.config.as_ref()?.values.get(id)
}

/// Returns whether the session has this setting.
fn has_setting(open: &Open, id: &str) -> bool {
    open.session.config.as_ref().is_some_and(|config| config.schema.properties.contains_key(id))
}

impl Bridge {
    pub(super) async fn set(&mut self, request: Request, session: &str, id: String, value: Value) {
        let Some(open) = self.open.get(session) else {
            return request.answer(Err(Failure::not_found(format!("{session} is not open; load it first"))));
        };
        let known = self.config_options(open);
        let Some(option) = known.iter().find(|option| option["id"] == id.as_str()) else {
            return request.answer(Err(Failure::bad_params(format!("the session has no option {id:?}"))));
        };
        let choices = option["options"].as_array();
        let is_valid = match choices {
            Some(choices) => choices.iter().any(|choice| choice["value"] == value),
            None => value.is_boolean(),
        };
        if !is_valid {
            return request.answer(Err(Failure::bad_params(format!("{id} has no value {value}"))));
        }
        if !has_setting(open, &id) {
            if let Some(open) = self.open.get_mut(session) {
                open.model = value.as_str().map(str::to_owned);
            }
            return self.answer_setting(session, request);
        }
        let changes = self.settings.values().any(|other| other.session == session && other.id == id);
        let is_unchanged = !changes && value_of(open, &id) == Some(&value);
        let action = json!({ "type": "session/configChanged", "config": { &id: &value } });
        if is_unchanged {
            // The host stores it as the user's choice, and has no change to send.
            let _ = self.dispatch(session, action, Sent::Other).await;
            return self.answer_setting(session, request);
        }
        self.changed_settings += 1;
        let number = self.changed_settings;
        let pending = PendingSetting { session: session.to_owned(), id, value, request };
        self.settings.insert(number, pending);
        let sender = self.task_event_sender.clone();
        tokio::spawn(async move {
            tokio::time::sleep(CONFIRMED_WITHIN).await;
            let _ = sender.send(TaskEvent::SettingExpired { number });
        });
        if let Err(why) = self.dispatch(session, action, Sent::Setting { number }).await {
            self.fail_setting(number, Failure::internal(why));
        }
    }

    /// Answers a request for a changed setting with the options of the session.
    pub(super) fn answer_setting(&self, session: &str, request: Request) {
        let mut answer = json!({});
        if request.method == "session/set_config_option" {
            answer["configOptions"] = self.settings_of(session)["configOptions"].take();
        }
        request.answer(Ok(answer));
    }

    /// The daemon has confirmed a change.
    pub(super) fn setting_confirmed(&mut self, number: u64) {
        if let Some(PendingSetting { session, request, .. }) = self.settings.remove(&number) {
            self.answer_setting(&session, request);
        }
    }

    /// A change failed. Others of this setting may have the value that they ask for.
    pub(super) fn fail_setting(&mut self, number: u64, why: Failure) {
        if let Some(PendingSetting { session, id, request, .. }) = self.settings.remove(&number) {
            request.answer(Err(why));
            self.settle_settings(&session, |changed| changed == id);
        }
    }

    /// The daemon has not confirmed a change in time.
    pub(super) fn setting_expired(&mut self, number: u64) {
        if let Some(PendingSetting { id, value, .. }) = self.settings.get(&number) {
            let seconds = CONFIRMED_WITHIN.as_secs();
            let why =
                format!("the agent has not confirmed the value {value} of {id} within {seconds} seconds");
            self.fail_setting(number, Failure::internal(why));
        }
    }

    /// Answers the changes of these settings whose value the session has: the value that an agent or another client
    /// has set in the meantime is not confirmed again.
    fn settle_settings(&mut self, session: &str, is_concerned: impl Fn(&str) -> bool) {
        let Some(open) = self.open.get(session) else { return };
        let settled = self.settings.iter().filter(|(_, pending)| {
            pending.session == session && is_concerned(&pending.id) && pending.has_value_in(open)
        });
        let settled: Vec<u64> = settled.map(|(number, _)| *number).collect();
        settled.into_iter().for_each(|number| self.setting_confirmed(number));
    }

    /// Fails the changes in a session that the bridge no longer follows.
    pub(super) fn fail_settings_of(&mut self, session: &str, why: &str) {
        for (_, pending) in self.settings.extract_if(|_, pending| pending.session == session) {
            pending.request.answer(Err(Failure::not_found(why)));
        }
    }

    /// Fails all changes.
    pub(super) fn fail_settings(&mut self, why: &str) {
        for (_, pending) in self.settings.drain() {
            pending.request.answer(Err(Failure::internal(why)));
        }
    }

    /// Handles changed settings, after they are in the session's state. No action changes their schema: an empty change,
    /// or one of a setting that the session did not have, means that it has more settings.
    pub(super) async fn settings_changed(&mut self, session: &str, changed: &SessionConfigChangedAction) {
        let Some(open) = self.open.get(session) else { return };
        let has_more = changed.config.is_empty() || changed.config.keys().any(|id| !has_setting(open, id));
        if has_more {
            self.read_again(session).await;
        }
        self.announce_settings(session);
        let all = has_more || changed.replace == Some(true);
        self.settle_settings(session, |id| all || changed.config.contains_key(id));
    }

    fn announce_settings(&self, session: &str) {
        let Some(open) = self.open.get(session) else { return };
        let options = self.config_options(open);
        if let Some(modes) = options::modes(&options) {
            let mode = &modes["currentModeId"];
            self.update(session, &json!({ "sessionUpdate": "current_mode_update", "currentModeId": mode }));
        }
        self.update(session, &json!({ "sessionUpdate": "config_option_update", "configOptions": options }));
    }

    /// Reads the state of a session again.
    async fn read_again(&mut self, session: &str) {
        let Ok((SnapshotState::Session(state), from)) = self.subscribe(session).await else { return };
        let Some(open) = self.open.get_mut(session) else { return };
        let (commands, title) = (options::commands(&open.session), open.session.title.clone());
        let chat = state.default_chat.clone();
        open.session = state;
        open.session_from = from;
        if open.session.title != title {
            let update = json!({ "sessionUpdate": "session_info_update", "title": open.session.title });
            self.update(session, &update);
        }
        self.announce_commands(session, &commands);
        self.withdraw_answered(session);
        self.ask_waiting(session);
        if let Some(chat) = chat {
            self.default_chat_changed(session, &chat).await;
        }
    }

    /// Sends the commands of a session if they have changed.
    pub(super) fn announce_commands(&self, session: &str, before: &[Value]) {
        let Some(open) = self.open.get(session) else { return };
        let commands = options::commands(&open.session);
        if commands != before {
            let update =
                json!({ "sessionUpdate": "available_commands_update", "availableCommands": commands });
            self.update(session, &update);
        }
    }
}
