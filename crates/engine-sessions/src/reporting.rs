//! Notifications of the observer about the end of turns.

use ostler_contract::events::TurnStatus;
use ostler_engine_core::message::run_of;
use ostler_protocol::wire::state::ResponsePart;

use super::Happened;
use super::actor::Actor;

impl Actor {
    /// Reports how a run's turn ended, if the turn belongs to a run.
    pub(super) fn report_run(&self, at: usize, turn: &str, status: TurnStatus) {
        let ended = self.chats[at].state.turns.iter().rfind(|ended| ended.id == turn);
        let Some(ended) = ended else { return };
        if let Some(run) = run_of(&ended.message)
            && let Some(observer) = self.sessions.observer()
        {
            let why = match ended.response_parts.last() {
                Some(ResponsePart::Error(part)) => Some(part.error.message.clone()),
                _ => None,
            };
            observer.run_turn_ended(run, status, why);
        }
    }

    /// Notifies the observer that nothing follows a turn in its chat.
    pub(super) fn fall_quiet(&mut self, at: usize) {
        let busy = self.chats.iter().any(|chat| chat.running().is_some());
        if !busy {
            self.happened(at, Happened::Quiet);
        }
        if let Some(observer) = self.sessions.observer() {
            let waits = (0..self.chats.len()).any(|chat| self.first_queued(chat).is_some());
            observer.session_quiet(&self.entry.uri, busy, waits);
        }
    }
}
