//! The state of one channel, as a client has it.

use ahp::reducers::{
    apply_action_to_annotations, apply_action_to_automation, apply_action_to_chat, apply_action_to_root,
    apply_action_to_session,
};
use ostler_contract::Value;
use ostler_protocol::wire::actions::StateAction;
use ostler_protocol::wire::state::{AnnotationsState, AutomationState, ChatState, RootState, SessionState};
use ostler_protocol::{Version, uri};
use serde_json::from_value;

/// The state of a channel.
#[derive(Debug, Clone)]
pub enum State {
    /// Of `ahp-root://`.
    Root(RootState),
    /// Of a session.
    Session(Box<SessionState>),
    /// Of a chat.
    Chat(Box<ChatState>),
    /// Of the annotations of a session.
    Annotations(AnnotationsState),
    /// Of the automations.
    Automations(AutomationState),
}

impl State {
    /// Reads the state of a snapshot.
    ///
    /// # Panics
    /// When it is not one of that channel.
    pub(super) fn read(channel: &str, state: Value) -> Self {
        let read = match channel {
            uri::ROOT => from_value(state).map(Self::Root),
            uri::AUTOMATIONS => from_value(state).map(Self::Automations),
            _ if channel.ends_with("/annotations") => from_value(state).map(Self::Annotations),
            _ if channel.starts_with("ahp-chat:") => from_value(state).map(Self::Chat),
            _ => from_value(state).map(Self::Session),
        };
        read.unwrap_or_else(|why| panic!("{channel}: {why}"))
    }

    pub(super) fn apply(&mut self, action: &StateAction) {
        match self {
            Self::Root(state) => drop(apply_action_to_root(state, action)),
            Self::Session(state) => drop(apply_action_to_session(state, action)),
            Self::Chat(state) => drop(apply_action_to_chat(state, action)),
            Self::Annotations(state) => drop(apply_action_to_annotations(state, action)),
            Self::Automations(state) => drop(apply_action_to_automation(state, action)),
        }
    }

    /// The state as JSON, without what no action of its channel changes: the title of a chat is told on the channel of
    /// its session, the number of annotations and the project in the listing. 0.9 has no action for the order of chats.
    pub(super) fn shown(&self, version: Version) -> Value {
        let shown = match self {
            Self::Root(state) => serde_json::to_value(state),
            Self::Session(state) => {
                let mut state = state.clone();
                state.annotations = None;
                state.project = None;
                if version == Version::V0_9 {
                    state.chats.sort_by(|one, other| one.resource.cmp(&other.resource));
                }
                serde_json::to_value(state)
            }
            Self::Chat(state) => {
                let mut state = state.clone();
                state.title.clear();
                serde_json::to_value(state)
            }
            Self::Annotations(state) => serde_json::to_value(state),
            Self::Automations(state) => serde_json::to_value(state),
        };
        shown.expect("a state is JSON")
    }
}
