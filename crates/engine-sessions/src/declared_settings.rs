//! Settings that a backend declares only once its conversation has begun, as agents do that report their modes then.

use std::sync::atomic::Ordering;

use ostler_contract::JsonObject;
use ostler_engine_core::tasks;
use ostler_protocol::wire::actions::{SessionConfigChangedAction, StateAction};
use ostler_protocol::wire::state::SessionConfigState;

use super::actor::Actor;
use super::mailbox::ToSession;

impl Actor {
    /// Reads the settings of the session again, and what its backend offers, outside its mailbox. What is reported during a
    /// reading is read by one more.
    pub(super) fn read_settings(&self) {
        let Some(agent) = self.agent.clone() else { return };
        let (sessions, entry) = (self.sessions.clone(), self.entry.clone());
        if entry.settings_reports.fetch_add(1, Ordering::AcqRel) > 0 {
            return;
        }
        tasks::spawn(async move {
            let mut reports = entry.settings_reports.load(Ordering::Acquire);
            while reports > 0 {
                let chosen = entry.view().record.values.clone();
                match sessions.session_settings(&agent, &chosen).await {
                    Ok(config) if entry.is_awake() => {
                        sessions.tell(&entry, ToSession::SettingsRead(Box::new(config)));
                    }
                    _ => {}
                }
                sessions.core.probe_again(&agent).await;
                let done =
                    entry.settings_reports.compare_exchange(reports, 0, Ordering::AcqRel, Ordering::Acquire);
                reports = done.err().unwrap_or_default();
            }
        });
    }

    /// Whether a backend reports a setting that the session does not have.
    pub(super) fn is_undeclared(&self, changed: &SessionConfigChangedAction) -> bool {
        let known = self.shared.properties();
        changed.config.keys().any(|key| known.is_none_or(|known| !known.contains_key(key)))
    }

    /// Adds settings that the session does not have. No action changes the schema: clients are sent the new values, if
    /// there are any, and see the settings when they subscribe again.
    pub(super) fn add_settings(&mut self, mut read: SessionConfigState) {
        let known = self.shared.properties();
        read.schema.properties.retain(|key, _| !known.is_some_and(|known| known.contains_key(key)));
        if read.schema.properties.is_empty() {
            return;
        }
        let values = self.state.config.as_ref().map(|config| &config.values);
        let is_new = |key: &str| {
            read.schema.properties.contains_key(key) && !values.is_some_and(|values| values.contains_key(key))
        };
        let config: JsonObject = read.values.into_iter().filter(|(key, _)| is_new(key)).collect();
        self.shared.add(&self.sessions, read.schema.properties);
        self.dirty = true;
        let changed = SessionConfigChangedAction { config, replace: None };
        self.apply_session(StateAction::SessionConfigChanged(changed), None);
    }
}
