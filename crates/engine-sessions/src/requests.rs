//! The host's own requests to sessions.

use std::sync::Arc;

use ostler_contract::points::{SessionStore, ToolChat, ToolSession};
use ostler_contract::read::Read;
use ostler_contract::{Thrown, limit};
use ostler_engine_core::file_uris::{file_path, file_uri};
use ostler_engine_core::message::message;
use ostler_engine_core::refusals::{NOT_STORED, SESSION_ENDED, nothing_at, try_again};
use ostler_engine_core::titles::tidy_title;
use ostler_engine_users::users::policies::Use;
use ostler_protocol::wire::state::{
    ChatOrigin, ChatSummary, MessageKind, ModelSelection, SessionSummary, Turn,
};
use ostler_protocol::{RpcError, json, uri};
use tokio::sync::oneshot;
use tracing::Span;

use super::{Happened, Happening};
use crate::Sessions;
use crate::{NewChat, NewSession, Place, ReportedRows, SessionEntry, ToSession, TurnRequest, TurnTaken};

impl Sessions {
    /// Returns the listing, most recently modified sessions first.
    ///
    /// # Errors
    /// The error of the store.
    pub async fn session_rows(&self) -> Result<Vec<SessionSummary>, Thrown> {
        Ok(self.session_page(None, usize::MAX).await?.rows(ReportedRows::new()).0)
    }

    pub async fn chats_of(self: &Arc<Self>, entry: &Arc<SessionEntry>) -> Option<Vec<ChatSummary>> {
        let (answer, wait) = oneshot::channel();
        self.tell(entry, ToSession::Chats { answer });
        wait.await.ok()
    }

    /// Returns the turns of a chat.
    pub async fn turns_of(self: &Arc<Self>, entry: &Arc<SessionEntry>, place: Place) -> Option<Vec<Turn>> {
        let (answer, wait) = oneshot::channel();
        self.tell(entry, ToSession::Turns { place, answer });
        wait.await.ok().flatten()
    }

    /// Starts a turn on the host's behalf.
    pub async fn start_turn(
        self: &Arc<Self>,
        entry: &Arc<SessionEntry>,
        mut request: TurnRequest,
    ) -> Result<TurnTaken, String> {
        if !request.allowed {
            let model = request.model.as_ref().or(request.message.model.as_ref());
            let model = model.map(|model| model.id.as_str());
            // A session stays on its machine, which the policies allowed when the session was created.
            let wanted = Use { agent: &entry.provider, model, computer: None };
            let charged = self.charged_to(entry);
            let asked = self.access.may_use(request.sender.as_deref(), &charged, wanted).await;
            asked.map_err(|refused| refused.message)?;
        }
        let stored = self.store_attachments(&entry.id, &mut request.message).await;
        stored.map_err(|refused| refused.why)?;
        let (taken, wait) = oneshot::channel();
        self.tell(entry, ToSession::Turn { request: Box::new(request), taken });
        wait.await.map_err(|_| SESSION_ENDED.to_owned())?
    }

    /// Whether a session's agent is loaded and its backend can run another turn.
    pub async fn can_continue(&self, entry: &SessionEntry) -> bool {
        if entry.is_away().is_some() {
            return false;
        }
        let Some(agent) = self.core.agent(&entry.provider) else { return false };
        match self.session_settings(&agent, &entry.view().record.values).await {
            Ok(config) => self.workspace.stranded(&agent, &config).is_none(),
            // The current settings are unknown; the turn fails if it cannot run.
            Err(_) => true,
        }
    }

    /// Ends a session and deletes it.
    ///
    /// # Errors
    /// `-32001` if it has already ended; an internal error if the store could not delete it, in which case it sleeps.
    pub async fn dispose_session(self: &Arc<Self>, entry: &Arc<SessionEntry>) -> Result<(), RpcError> {
        let (done, wait) = oneshot::channel();
        if !self.tell(entry, ToSession::Dispose { done }) {
            return Err(nothing_at(&entry.uri));
        }
        match wait.await {
            Ok(true) => Ok(()),
            Ok(false) => Err(try_again(NOT_STORED)),
            Err(_) => Err(nothing_at(&entry.uri)),
        }
    }

    /// Asks a backend to delete its own copy of a session or a chat.
    pub(super) async fn delete_copy(&self, entry: &SessionEntry, of: &str, id: String) {
        let delete = self.core.agent(&entry.provider).and_then(|agent| agent.delete.clone());
        let Some(delete) = delete else { return };
        let folder = entry.view().directories().first().map(|uri| file_path(uri));
        if let Err(why) = delete.within(limit::BACKEND_DELETE, (id, folder)).await {
            self.core.log.warn(format_args!("{of}: {} failed to delete its copy: {why}", entry.provider));
        }
    }

    /// Deletes a session from the store. Returns whether the store has deleted it.
    pub async fn delete_stored(&self, entry: &SessionEntry) -> bool {
        let forget = async |store: &SessionStore| {
            let deleted = store.forget.within(limit::STORE, (entry.id.clone(),)).await;
            if let Err(why) = &deleted {
                self.core.log.warn(format_args!("{} could not be deleted from the store: {why}", entry.uri));
            }
            deleted.is_ok()
        };
        if let Some(store) = self.core.session_store()
            && !forget(store).await
        {
            return false;
        }
        // Nothing finds there what the other store does not have.
        if let Some(own) = self.core.own_sessions() {
            forget(own).await;
        }
        true
    }

    /// Cleans up after a session that the store has deleted.
    pub async fn forget_session(&self, entry: &Arc<SessionEntry>, backend_ids: Vec<String>) {
        self.workspace.end_terminals_of(&entry.uri).await;
        for id in backend_ids {
            self.delete_copy(entry, &entry.uri, id).await;
        }
        let record = entry.view().record.clone();
        match &record.worktree {
            Some(tree) if record.draft.is_some() => {
                self.workspace.undo_tree(&entry.uri, tree.clone(), &record.values).await;
            }
            Some(tree) => drop(self.workspace.release_tree(&entry.uri, tree.clone()).await),
            None => {}
        }
        self.workspace.clear_changesets(&entry.uri);
        self.workspace.leave_computer(&entry.kept()).await;
        let announced = !self.is_draft(entry);
        self.remove(entry);
        let params = json!({ "channel": uri::ROOT, "session": entry.uri });
        if announced {
            self.core.feeds.sessions.remove(&entry.uri);
            self.counts_listed(false);
        }
        if announced
            && let Ok(frame) = ostler_protocol::message::encode::notification("root/sessionRemoved", &params)
        {
            self.core.fanout.notify(uri::ROOT, frame);
        }
        self.core.root.set_active_sessions(&self.core.fanout, self.count());
        if let Some(observer) = self.observer() {
            observer.session_gone(&entry.uri).await;
            let (session, what) = (entry.clone(), Happened::Gone);
            observer.happened(Happening { session, what, running: false, queued: 0, tool_calls: 0 });
        }
    }

    /// Creates a session for a tool: with the same owner and, by default, the directories of the calling session.
    pub async fn session_by_tool(
        self: &Arc<Self>,
        from: &str,
        request: ToolSession,
    ) -> Result<String, Thrown> {
        let entry = self.session_at(from).await.known()?;
        let entry = entry.ok_or_else(|| Thrown::from(nothing_at(from)))?;
        let directories = match &request.working_directory {
            Some(path) => vec![file_uri(path)],
            None => entry.view().directories().to_vec(),
        };
        let new = NewSession {
            id: self.core.new_id(),
            provider: Some(request.provider.unwrap_or_else(|| entry.provider.clone())),
            owner: entry.owner.clone(),
            works_for: entry.works_for.clone(),
            working_directories: directories,
            title: request.title,
            ..NewSession::default()
        };
        let prompt = Some(request.prompt);
        if let Some(observer) = self.observer() {
            let child = uri::session(new.provider.as_deref().unwrap_or_default(), &new.id);
            observer.made_by(&child, from);
        }
        self.session_with_prompt(new, prompt, request.model, MessageKind::Agent)
            .await
            .map(|entry| entry.uri.clone())
    }

    /// Opens a chat for a tool and sends its first message. Returns the chat's URI.
    pub async fn chat_by_tool(
        self: &Arc<Self>,
        entry: &Arc<SessionEntry>,
        origin: Option<ChatOrigin>,
        request: ToolChat,
    ) -> Result<String, Thrown> {
        if request.prompt.trim().is_empty() {
            return Err(Thrown::from(RpcError::invalid_params(
                "prompt is blank; say what the chat is to begin with",
            )));
        }
        let mut message = message(request.prompt, MessageKind::Agent);
        message.model = request.model.map(|id| ModelSelection { id, config: None });
        let uri = uri::chat(&self.core.new_id());
        let new = NewChat {
            uri: uri.clone(),
            origin,
            title: request.title.as_deref().and_then(tidy_title),
            message: Some(message),
            sender: entry.owner.clone(),
            ..NewChat::default()
        };
        let opened = self.open_chat(entry, new)?.await;
        opened.map_err(|_| Thrown::new(SESSION_ENDED))??;
        Ok(uri)
    }

    /// Returns the running turn of a chat.
    pub async fn running_turn(self: &Arc<Self>, session: &str, chat: &str) -> Read<Option<String>> {
        let read = async {
            let Some(entry) = self.session_at(session).await.known()? else { return Ok(None) };
            let Some((_, place)) = self.located(chat).await.known()? else { return Ok(None) };
            let (answer, wait) = oneshot::channel();
            self.tell(&entry, ToSession::Running { place, answer });
            // A session that ends runs no turn.
            Ok::<_, Thrown>(wait.await.ok().flatten())
        };
        read.await.into()
    }

    /// Creates a session and sends its first message.
    pub async fn session_with_prompt(
        self: &Arc<Self>,
        mut new: NewSession,
        prompt: Option<String>,
        model: Option<String>,
        kind: MessageKind,
    ) -> Result<Arc<SessionEntry>, Thrown> {
        if prompt.as_ref().is_some_and(|prompt| prompt.trim().is_empty()) {
            return Err(Thrown::from(RpcError::invalid_params(
                "prompt is blank; leave it out to open a session with nobody speaking",
            )));
        }
        let owner = new.owner.clone();
        // The policies are evaluated once, for the session and its first turn together.
        match prompt.is_some() {
            true => new.model.clone_from(&model),
            false => new.first_model.clone_from(&model),
        }
        let entry = self.claim_session(new)?.start(self).await?;
        if let Some(text) = prompt {
            let request = TurnRequest {
                place: Place::DefaultChat,
                message: message(text, kind),
                model: model.map(|id| ModelSelection { id, config: None }),
                sender: owner,
                queue: false,
                allowed: true,
                span: Span::current(),
            };
            if let Err(why) = self.start_turn(&entry, request).await {
                let _ = self.dispose_session(&entry).await;
                return Err(Thrown::new(why));
            }
        }
        Ok(entry)
    }
}
