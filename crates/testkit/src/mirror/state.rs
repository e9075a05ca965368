//! A client's state of one channel.

use ahp::reducers::{
    apply_action_to_annotations, apply_action_to_automation, apply_action_to_changeset, apply_action_to_chat,
    apply_action_to_root, apply_action_to_session, apply_action_to_terminal,
};
use ostler_contract::{Value, json};
use ostler_protocol::wire::actions::StateAction;
use ostler_protocol::wire::state::{
    AnnotationsState, AutomationState, ChangesetState, ChatState, RootState, SessionState, TerminalState,
};
use ostler_protocol::{Version, uri};
use serde_json::from_value;

/// The state of one channel.
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
    /// Of a terminal.
    Terminal(Box<TerminalState>),
    /// Of a changeset.
    Changeset(ChangesetState),
}

/// How much of a terminal's text is compared, in characters: less than the host stores.
const TEXT: usize = 10_000;

impl State {
    /// Reads the state of a snapshot.
    ///
    /// # Panics
    /// If the state does not fit the channel.
    pub(super) fn read(channel: &str, state: Value) -> Self {
        let read = match channel {
            uri::ROOT => from_value(state).map(Self::Root),
            uri::AUTOMATIONS => from_value(state).map(Self::Automations),
            _ if channel.starts_with("ahp-terminal:") => from_value(state).map(Self::Terminal),
            _ if channel.contains("/changeset/") => from_value(state).map(Self::Changeset),
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
            Self::Terminal(state) => drop(apply_action_to_terminal(state, action)),
            Self::Changeset(state) => drop(apply_action_to_changeset(state, action)),
        }
    }

    /// Returns the state as JSON, without the fields that no action of its channel changes: a chat's title is published
    /// on the channel of its session, and the number of annotations and the project in the listing. 0.9 has no action
    /// for the order of chats.
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
            Self::Terminal(state) => serde_json::to_value(state),
            Self::Changeset(state) => serde_json::to_value(state),
        };
        let mut shown = shown.expect("a state is JSON");
        match self {
            // A new entry is last for subscribers.
            Self::Automations(_) => sort(&mut shown["entries"], "resource"),
            Self::Changeset(_) => sort(&mut shown["files"], "id"),
            // A snapshot has the same text in fewer parts, and only as much as the host stores.
            Self::Terminal(_) => {
                let parts = shown["content"].as_array().into_iter().flatten();
                let text: String =
                    parts.filter_map(|part| part["value"].as_str().or(part["output"].as_str())).collect();
                let over = text.chars().count().saturating_sub(TEXT);
                shown["content"] = json!(text.chars().skip(over).collect::<String>());
            }
            _ => {}
        }
        shown
    }
}

/// Sorts rows by one of their fields.
fn sort(rows: &mut Value, by: &str) {
    if let Some(rows) = rows.as_array_mut() {
        rows.sort_by_key(|row| row[by].to_string());
    }
}
