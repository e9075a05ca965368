//! Changes of settings by users: one after the other, on a separate task, and before the next prompt.

use std::collections::HashSet;
use std::time::Duration;

use futures::FutureExt;
use ostler_contract::{JsonObject, Value, json};
use tokio::sync::oneshot;

use super::{Conversation, Live};
use crate::agent_connection::Failure;
use crate::settings::{self, Setting};

/// The limit for changing a setting.
const LIMIT: Duration = Duration::from_secs(10);

/// A queued change of a setting.
pub(super) struct Change {
    id: String,
    value: Value,
    of: Chooser,
    /// Whether others were changed before it, because one of them can enable the choice it needs.
    deferred: bool,
}

/// The source of a change of a setting.
pub(super) enum Chooser {
    /// A user, who receives the result.
    User(oneshot::Sender<Result<(), String>>),
    /// The message of this turn, which fails with it.
    Turn(String),
    /// An opened session, which receives the earlier choices of users.
    Opened,
}

impl Conversation {
    /// Changes a setting of the running agent, or of the next one.
    pub(super) async fn set(&mut self, id: String, value: Value, of: Chooser) {
        self.changes.push_back(Change { id, value, of, deferred: false });
        self.change_next().await;
    }

    /// Applies the earlier choices of users to an opened session.
    pub(super) async fn apply_chosen(&mut self) {
        for (id, value) in self.chosen.clone() {
            self.changes.push_back(Change { id, value, of: Chooser::Opened, deferred: false });
        }
        self.change_next().await;
    }

    /// Reports the settings of an opened session that no user chose and that are not as clients see them: the agent has
    /// another default by now, or its continued session has values of its own. The host itself shows the defaults of
    /// settings that were not `known` before.
    pub(super) async fn show_unchosen(&mut self, known: &HashSet<String>) {
        let defaults = self.shared.catalogue.defaults();
        let Some(live) = &self.live else { return };
        let is_other = |setting: &&Setting| {
            let id = &setting.option.id;
            let shown = self.start.settings.get(id);
            let shown = shown.or_else(|| defaults.get(id).filter(|_| !known.contains(id)));
            !self.chosen.contains_key(id) && shown != Some(&setting.value())
        };
        let others = live.settings.iter().filter(is_other);
        let config: JsonObject = others.map(|setting| (setting.option.id.clone(), setting.value())).collect();
        if !config.is_empty() {
            self.emit.session(json!({ "type": "session/configChanged", "config": config })).await;
        }
    }

    /// Sends the next change to the agent. One at a time, because a setting can change the choices of another.
    async fn change_next(&mut self) {
        while self.changing.is_none()
            && let Some(change) = self.changes.pop_front()
        {
            let request = self.request_of(&change);
            if request.is_err() && matches!(change.of, Chooser::Opened) {
                let others = self.changes.iter().any(|change| matches!(change.of, Chooser::Opened));
                if others && !change.deferred {
                    self.changes.push_back(Change { deferred: true, ..change });
                    continue;
                }
                self.forget(&change.id).await;
            }
            match request {
                Ok(Some((method, params))) => {
                    let Some(live) = &self.live else { continue };
                    let asked = live.running.wire.request(method, params);
                    let asked = tokio::time::timeout(LIMIT, asked).map(|answer| {
                        let late =
                            || Failure::internal(format!("no answer within {} seconds", LIMIT.as_secs()));
                        answer.unwrap_or_else(|_| Err(late()))
                    });
                    self.changing = Some(asked.map(|answer| (change, answer)).boxed());
                }
                Ok(None) => self.change_ended(change, Ok(())).await,
                Err(why) => self.change_ended(change, Err(why)).await,
            }
        }
    }

    /// Returns the request of a change; `None` if the agent has the value, or does not run.
    fn request_of(&mut self, change: &Change) -> Result<Option<(&'static str, Value)>, String> {
        let Change { id, value, of, .. } = change;
        let live = self.live.as_ref().and_then(|live| live.setting(id));
        let setting = match (of, live) {
            // Settings of another agent, or of another version of it, are skipped.
            (Chooser::Opened, None) => return Ok(None),
            (_, live) => live.or_else(|| self.shared.catalogue.setting(id)),
        };
        let Some(setting) = setting else {
            return Err(format!("{} has no setting {id}", self.shared.agent.name));
        };
        let changed = setting.accept(value)?;
        // The agent has to accept it first.
        if let Some((value, live)) = changed.zip(self.live.as_ref()) {
            return Ok(Some(setting.change(&live.session, &value)));
        }
        self.chosen.insert(id.clone(), value.clone());
        Ok(None)
    }

    /// Handles the agent's answer to a change, or its absence.
    pub(super) async fn changed_setting(&mut self, change: Change, answer: Result<Value, Failure>) {
        let auth_required = answer.as_ref().is_err_and(Failure::is_auth_required);
        // It read its login at its start for this turn, so a restart would not help.
        let is_over = auth_required && self.waiting.is_some() && self.starts > 0;
        let signed_out = answer.as_ref().err().filter(|_| is_over).cloned();
        let outcome = match answer {
            Ok(answer) => {
                self.chosen.insert(change.id.clone(), change.value.clone());
                let setting = self.live.as_mut().and_then(|live| live.setting_mut(&change.id));
                if let Some(setting) = setting {
                    setting.set(&change.value);
                }
                if answer.get("configOptions").is_some() {
                    self.settings(settings::read(&answer)).await;
                }
                Ok(())
            }
            Err(why) => {
                self.expired_with(&why);
                if why == Failure::Closed {
                    self.hung_up().await;
                } else if matches!(change.of, Chooser::Opened) && !auth_required {
                    self.forget(&change.id).await;
                }
                Err(super::turns::refusal(&why))
            }
        };
        self.change_ended(change, outcome).await;
        if let Some(failure) = signed_out {
            self.fail_signed_out("session/set_config_option", &failure).await;
        }
        self.change_next().await;
        self.advance().await;
    }

    /// Handles a rejected setting that was chosen before the start: it is not sent again, and the agent's value is
    /// shown.
    async fn forget(&mut self, id: &str) {
        self.chosen.remove(id);
        if let Some(setting) = self.live.as_ref().and_then(|live| live.setting(id)) {
            let shown = json!({ "type": "session/configChanged", "config": { id: setting.value() } });
            self.emit.session(shown).await;
        }
    }

    async fn change_ended(&mut self, change: Change, outcome: Result<(), String>) {
        match (change.of, outcome) {
            (Chooser::User(done), outcome) => drop(done.send(outcome)),
            (Chooser::Turn(turn), Err(why)) => {
                let waits = self.waiting.is_some() && self.turn.as_ref().is_some_and(|now| now.id == turn);
                if waits {
                    self.fail("agent", why).await;
                }
            }
            (Chooser::Opened, Err(why)) => {
                self.log(format_args!("setting {} is left as it is: {why}", change.id));
                self.notify_refused(&change.id, &change.value, &why).await;
            }
            (Chooser::Turn(_) | Chooser::Opened, Ok(())) => {}
        }
    }

    /// Tells the user of the running turn that the agent goes on with another value than the one that was chosen, which may have
    /// been a stricter one.
    async fn notify_refused(&mut self, id: &str, chosen: &Value, why: &str) {
        let setting = self.live.as_ref().and_then(|live| live.setting(id));
        let (Some(setting), Some(turn)) = (setting, &mut self.turn) else { return };
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let (chosen, value, name) = (text(chosen), text(&setting.value()), &setting.option.name);
        turn.notification(format!(
            "Warning: the agent did not take {name} = {chosen}, which was chosen for this session, and continues with {value}.\n\n{why}"
        ))
        .await;
    }

    /// Rejects all queued changes because the conversation ends.
    pub(super) fn abandon_changes(&mut self) {
        self.changing = None;
        self.changes.clear();
    }
}

impl Live {
    fn setting(&self, id: &str) -> Option<Setting> {
        self.settings.iter().find(|setting| setting.option.id == id).cloned()
    }

    fn setting_mut(&mut self, id: &str) -> Option<&mut Setting> {
        self.settings.iter_mut().find(|setting| setting.option.id == id)
    }
}
