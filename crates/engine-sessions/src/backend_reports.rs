//! What a backend reports about itself: that it started, and its names of turns.

use ostler_contract::Thrown;
use ostler_protocol::wire::actions::{SessionMcpServerStateChangedAction, StateAction};
use ostler_protocol::wire::state::{ErrorInfo, McpServerErrorState, McpServerState};

use super::actor::Actor;
use super::deferred::DeferredPart;

/// The maximum length of a name of a turn, in bytes.
const LONGEST_NAME: usize = 256;

impl Actor {
    /// Records the backend's name of a turn, which is stored beside the turn.
    pub(super) fn turn_recorded(&mut self, at: usize, turn: String, name: String) {
        let chat = &mut self.chats[at];
        let place = chat.state.turns.iter().rposition(|held| held.id == turn);
        if place.is_none() && chat.running() != Some(turn.as_str()) {
            return;
        }
        if name.len() > LONGEST_NAME {
            let (uri, length) = (&chat.uri, name.len());
            self.core.log.warn(format_args!(
                "{uri}: the backend's name of turn {turn} has {length} bytes; at most {LONGEST_NAME} are recorded"
            ));
            return;
        }
        if chat.recorded.insert(turn, name.clone()).is_some_and(|before| before == name) {
            return;
        }
        match place {
            Some(place) => self.write_unwaited(self.keep_named_turn(at, place)),
            // The running turn is stored again soon, and at its end.
            None => chat.unkept = true,
        }
    }

    /// Records that the backend has the chat's hidden context. That is stored before the end of its turn, so that the context is not
    /// told again after a crash.
    pub(super) fn context_told(&mut self, at: usize) {
        self.chats[at].told = true;
        if self.storing.owed_at.is_some() {
            return self.deferred.add(DeferredPart::Chats);
        }
        let write = self.keep_chats();
        self.write_unwaited(write);
    }

    /// Shows that an MCP server does not run, because the backend that was started for it failed.
    pub(super) fn mcp_server_failed(&mut self, id: String, why: &Thrown) {
        let error = ErrorInfo {
            error_type: "backend".to_owned(),
            message: why.message.clone(),
            stack: None,
            meta: None,
        };
        let state = McpServerState::Error(McpServerErrorState { error });
        let changed = SessionMcpServerStateChangedAction { id, state, channel: None };
        self.apply_session(StateAction::SessionMcpServerStateChanged(Box::new(changed)), None);
    }

    /// Records whether the backend that started can continue failed turns. A running turn is stored in the form that it has
    /// after the end of the host, which says so.
    pub(super) fn backend_started(&mut self, at: usize, resumes: bool) {
        self.chats[at].resumes = resumes;
        if self.chats[at].running().is_some() && self.chats[at].is_given {
            let write = self.keep_running_turn(at);
            self.write_unwaited(write);
        }
    }
}
