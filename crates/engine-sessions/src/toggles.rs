//! The customizations of a session that were enabled or disabled. At each start a backend lists them in their default
//! state, so the decisions are stored with the session and applied again.

use ostler_engine_core::fanout::Origin;
use ostler_protocol::wire::actions::{SessionCustomizationToggledAction, StateAction};
use ostler_protocol::wire::state::{Customization, CustomizationEnablement};

use super::actor::Actor;
use super::backend::Tell;
use super::client_actions::{Refused, refuse};

/// Returns whether a customization with these decisions is enabled: the first one counts; without one, it is.
pub fn is_enabled(decisions: &[CustomizationEnablement]) -> bool {
    match decisions.first() {
        Some(
            CustomizationEnablement::Global { enabled }
            | CustomizationEnablement::Workspace { enabled, .. }
            | CustomizationEnablement::Session { enabled },
        ) => *enabled,
        // As the reducer takes it.
        Some(CustomizationEnablement::Unknown(_)) => false,
        None => true,
    }
}

impl Actor {
    /// Enables or disables a customization.
    pub(super) async fn toggle(
        &mut self,
        toggled: SessionCustomizationToggledAction,
        origin: Option<Origin>,
    ) -> Refused {
        let id = toggled.id.clone();
        let (on, decisions) =
            (is_enabled(&toggled.enablement), serde_json::to_value(&toggled.enablement).unwrap_or_default());
        if !self.apply_session(StateAction::SessionCustomizationToggled(toggled), origin) {
            return refuse(format!("there is no customization {id}"));
        }
        self.revise(|record| record.toggled.insert(id.clone(), decisions));
        self.stored_session(self.keep_session()).await;
        self.tell_all(|| Tell::Customization { id: id.clone(), on });
        self.client_plugin_toggled();
        for chat in &mut self.chats {
            chat.toggled.insert(id.clone());
        }
        Ok(())
    }

    /// Applies the decisions to a backend's list again, and sends the backend those that it has not received since its
    /// start.
    pub(super) fn toggle_listed(&mut self, at: usize, listed: &mut Vec<Customization>) {
        let toggled = self.entry.view().record.toggled.clone();
        if toggled.is_empty() {
            return;
        }
        let mut state = self.state.clone();
        state.customizations = Some(std::mem::take(listed));
        for (id, decisions) in toggled {
            let Ok(enablement) = serde_json::from_value::<Vec<_>>(decisions) else { continue };
            let on = is_enabled(&enablement);
            let action = SessionCustomizationToggledAction { id: id.clone(), enablement };
            let action = StateAction::SessionCustomizationToggled(action);
            let applied = ahp::reducers::apply_action_to_session(&mut state, &action);
            if applied == ahp::reducers::ReduceOutcome::Applied && self.chats[at].toggled.insert(id.clone()) {
                self.tell_if_awake(at, Tell::Customization { id, on });
            }
        }
        *listed = state.customizations.unwrap_or_default();
    }
}
