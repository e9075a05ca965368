//! Where a session's backend runs and speaks beside its chat: its machine, and terminals people can watch.

use std::collections::BTreeMap;

use ostler_contract::points::{SessionComputer, SessionTerminals};
use ostler_protocol::names::{RUN_VARIABLE, SESSION_VARIABLE};
use ostler_protocol::wire::state::SessionOrigin;

use super::actor::Actor;
use super::chat::Chat;
use crate::workspace::terminals::Holder;

impl Actor {
    /// How a chat's backend opens terminals.
    pub(super) fn terminals_of(&self, chat: &Chat) -> Option<SessionTerminals> {
        let folders = chat.state.working_directories.as_ref().or(self.state.working_directories.as_ref());
        let directory = folders.into_iter().flatten().next();
        self.host.session_terminals(Holder {
            session: self.entry.uri.clone(),
            chat: chat.uri.clone(),
            directory: directory.map(|directory| crate::core::file_uris::file_path(directory)),
            env: self.environment(),
        })
    }

    /// The machine the session runs in.
    pub(super) fn computer_of(&self, paths: &[String]) -> Option<SessionComputer> {
        let values = self.state.config.as_ref().map(|config| &config.values);
        self.host.session_computer(self.agent.as_deref()?, values, paths.first().cloned(), self.environment())
    }

    /// Environment variables that tell a process of this session where it belongs: the session, and the run that
    /// started it.
    pub(super) fn environment(&self) -> BTreeMap<String, String> {
        let session = (SESSION_VARIABLE.to_owned(), self.entry.uri.clone());
        let run = match &self.state.origin {
            Some(SessionOrigin::Automation(origin)) => Some((RUN_VARIABLE.to_owned(), origin.run.clone())),
            _ => None,
        };
        [session].into_iter().chain(run).collect()
    }
}
