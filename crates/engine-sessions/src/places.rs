//! A session's surroundings: its working tree, its machine, and terminals that clients can watch; and the workspace's
//! view of a session.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use ostler_contract::points::{ChangesOf, SessionComputer, SessionTerminals, Worktree};
use ostler_contract::read::Read;
use ostler_contract::{JsonObject, Thrown, Value};
use ostler_engine_core::file_uris::file_path;
use ostler_engine_workspace::detached::DetachedTree;
use ostler_engine_workspace::sessions_view::{SessionView, SessionsView};
use ostler_engine_workspace::terminals::Holder;
use ostler_engine_workspace::worktrees::Isolated;
use ostler_protocol::RpcError;
use ostler_protocol::names::{RUN_URL_VARIABLE, RUN_VARIABLE, SESSION_URL_VARIABLE, SESSION_VARIABLE};
use ostler_protocol::wire::state::SessionOrigin;

use super::actor::Actor;
use super::chat::Chat;
use super::directory_facts::{LOOKED_RECENTLY, Occasion};
use super::mailbox::ToSession;
use super::{SessionEntry, View};
use crate::Sessions;

impl View {
    /// Moves the session into the working tree created for it.
    pub(super) fn move_into(&mut self, tree: Isolated) {
        let summary = Arc::make_mut(&mut self.summary);
        if let Some(first) = summary.working_directories.iter_mut().flatten().next() {
            *first = tree.directory;
        }
        Arc::make_mut(&mut self.record).worktree = Some(tree.worktree);
    }
}

impl SessionView for SessionEntry {
    fn uri(&self) -> &str {
        &self.uri
    }

    fn changes_of(&self) -> ChangesOf {
        let view = self.view();
        let title = Some(view.summary.title.clone()).filter(|title| !title.is_empty());
        let mut directories = view.directories().iter().map(|uri| file_path(uri));
        ChangesOf {
            session: self.uri.clone(),
            directory: directories.next(),
            further: directories.collect(),
            title,
        }
    }

    fn worktree(&self) -> Option<Worktree> {
        self.view().record.worktree.clone()
    }

    fn settings(&self) -> JsonObject {
        self.view().record.values.clone()
    }

    fn reviewed(&self, scope: &str) -> JsonObject {
        match self.view().record.reviewed.get(scope) {
            Some(Value::Object(files)) => files.clone(),
            _ => JsonObject::new(),
        }
    }

    fn is_running(&self) -> bool {
        self.view().is_running()
    }
}

impl SessionsView for Sessions {
    fn get(&self, id: &str) -> Option<Arc<dyn SessionView>> {
        self.get(id).map(|entry| entry as _)
    }

    fn load<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Read<Option<Arc<dyn SessionView>>>> {
        self.session_anywhere(id).map(|read| read.map(|entry| entry.map(|entry| entry as _))).boxed()
    }

    fn look_around(&self, session: &dyn SessionView) {
        if let (Some(sessions), Some(entry)) = (self.me(), self.by_uri(session.uri())) {
            sessions.look_around(&entry, true);
        }
    }

    fn head_moved(&self, session: &dyn SessionView, is_other_branch: bool) {
        if let (Some(sessions), Some(entry)) = (self.me(), self.by_uri(session.uri())) {
            sessions.look(&entry, if is_other_branch { Occasion::Branch } else { Occasion::Commit });
        }
    }

    fn facts_moved(&self, session: &dyn SessionView) {
        if let (Some(sessions), Some(entry)) = (self.me(), self.by_uri(session.uri())) {
            sessions.look(&entry, Occasion::Reported);
        }
    }

    fn is_watched(&self, session: &dyn SessionView) {
        if let (Some(sessions), Some(entry)) = (self.me(), self.by_uri(session.uri())) {
            let (looks, last) = (entry.looks.load(Ordering::Relaxed), *entry.looked_at.lock());
            if looks > 1 || last.is_none_or(|last| last.elapsed() > LOOKED_RECENTLY) {
                sessions.look(&entry, Occasion::Branch);
            }
        }
    }

    fn keep_reviewed(&self, session: &dyn SessionView, scope: String, files: JsonObject) {
        if let (Some(sessions), Some(entry)) = (self.me(), self.by_uri(session.uri())) {
            sessions.tell(&entry, ToSession::Reviewed { scope, files });
        }
    }

    fn keep_new_detached<'a>(
        &'a self,
        handle: &'a str,
        detached: &'a DetachedTree,
    ) -> BoxFuture<'a, Result<(), RpcError>> {
        self.keep_new_detached(handle, detached).boxed()
    }

    fn keep_detached<'a>(
        &'a self,
        handle: &'a str,
        detached: &'a DetachedTree,
    ) -> BoxFuture<'a, Result<(), Thrown>> {
        self.keep_detached(handle, detached).boxed()
    }

    fn forget_detached<'a>(&'a self, handle: &'a str) -> BoxFuture<'a, ()> {
        self.forget_detached(handle).boxed()
    }
}

impl Actor {
    /// Stores which files of a changeset users reviewed.
    pub(super) async fn keep_reviewed(&mut self, scope: String, files: JsonObject) {
        self.revise(|record| match files.is_empty() {
            true => drop(record.reviewed.shift_remove(&scope)),
            false => drop(record.reviewed.insert(scope, Value::Object(files))),
        });
        self.stored_session(self.keep_session()).await;
    }

    /// Returns the functions with which a chat's backend opens terminals.
    pub(super) fn terminals_of(&self, chat: &Chat, opener: Option<String>) -> Option<SessionTerminals> {
        self.sessions.workspace.session_terminals(Holder {
            session: self.entry.uri.clone(),
            chat: chat.uri.clone(),
            directory: self.paths_of(chat).into_iter().next(),
            env: self.environment(),
            opener,
        })
    }

    /// Returns the directories that a chat uses, as paths.
    pub(super) fn paths_of(&self, chat: &Chat) -> Vec<String> {
        let folders = chat.state.working_directories.as_ref().or(self.state.working_directories.as_ref());
        folders.into_iter().flatten().map(|directory| file_path(directory)).collect()
    }

    /// Returns the machine in which the session runs.
    pub(super) fn computer_of(&self, paths: &[String]) -> Option<SessionComputer> {
        let values = self.state.config.as_ref().map(|config| &config.values);
        self.sessions.workspace.session_computer(
            self.agent.as_deref()?,
            values,
            paths.first().cloned(),
            self.environment(),
        )
    }

    /// Returns the environment variables that tell a process which session it belongs to and which run started that,
    /// each with its URL.
    pub(super) fn environment(&self) -> BTreeMap<String, String> {
        let session = (SESSION_VARIABLE, SESSION_URL_VARIABLE, self.entry.uri.clone());
        let run = match &self.state.origin {
            Some(SessionOrigin::Automation(origin)) => {
                Some((RUN_VARIABLE, RUN_URL_VARIABLE, origin.run.clone()))
            }
            _ => None,
        };
        let links = &self.core.options.links;
        let both = [Some(session), run].into_iter().flatten();
        let variables = both.flat_map(|(name, url_name, uri)| {
            let url = links.of(&uri).map(|url| (url_name.to_owned(), url));
            [Some((name.to_owned(), uri)), url].into_iter().flatten()
        });
        variables.collect()
    }
}
