//! The creation of sessions in steps: claimed, created, stored, announced. A failed step leaves nothing behind.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use futures::future::OptionFuture;
use ostler_contract::events::Event;
use ostler_contract::points::{
    Agent, AgentSession, KeptChat, KeptDraft, KeptSession, SessionFlags, Start, Worktree,
};
use ostler_contract::registry::Owned;
use ostler_contract::{Cross, Frozen, JsonObject, Thrown, Value, in_time, limit};
use ostler_engine_core::file_uris::names_a_directory;
use ostler_engine_core::refusals::{LOST_LEASE, NOT_MOVED, STOPPING, moving, no_provider, try_again};
use ostler_engine_core::tasks;
use ostler_engine_users::users::policies::Use;
use ostler_engine_workspace::directories::Directories;
use ostler_engine_workspace::machines::SETTING;
use ostler_protocol::message::encode;
use ostler_protocol::wire::actions::{ChatMovableChangedAction, StateAction};
use ostler_protocol::wire::state::{
    SessionActiveClient, SessionConfigState, SessionLifecycle, SessionState, SessionStatus, SessionSummary,
};
use ostler_protocol::{RpcError, names, uri};
use serde::Serialize;
use tokio::sync::watch;

use super::actor::Actor;
use super::awake_limit::refuse;
use super::backend::Backend;
use super::bound_tools::creator;
use super::chat::Chat;
use super::lane::take_settings;
use super::mailbox::ToSession;
use super::moving::Lent;
use super::queue::{Inbox, Mailbox};
use super::store_writes::kept;
use super::summary::marks;
use super::view::Published;
use super::waking::wake;
use super::{Resting, SessionEntry, View};
use crate::Sessions;
use crate::config::Chosen;

/// A request for a new session.
#[derive(Debug, Default)]
pub struct NewSession {
    /// The id that the client chose.
    pub id: String,
    /// The agent's provider; `None` stands for the first agent.
    pub provider: Option<String>,
    pub owner: Option<String>,
    /// Another owner in whose name the session works.
    pub works_for: Option<String>,
    /// `file://` URIs; if empty, the host's first directory.
    pub working_directories: Vec<String>,
    /// Which directories are permitted.
    pub directories: Directories,
    /// The chosen settings.
    pub config: JsonObject,
    /// The initial title, if there is one.
    pub title: Option<String>,
    /// The model of the turn that follows immediately.
    pub model: Option<String>,
    /// The model of the first turn, whenever that comes.
    pub first_model: Option<String>,
    /// Whether the policies have already allowed the session.
    pub allowed: bool,
    /// The origin of the session, if that is not a user.
    pub origin: Option<Value>,
    /// The creator's entry as an active client.
    pub active_client: Option<SessionActiveClient>,
    /// The id of the creating client.
    pub client: Option<String>,
    /// Whether the session is announced and listed only once a turn starts.
    pub draft: bool,
    /// The tokens of the requesting connection, by protected resource.
    pub credentials: Option<BTreeMap<String, String>>,
}

/// A session whose id is claimed and whose mailbox is open, before its backend exists.
#[derive(Debug)]
pub struct Claimed {
    pub(super) entry: Arc<SessionEntry>,
    agent: Owned<Agent>,
    new: NewSession,
    mailbox: Mailbox,
    inbox: Inbox,
    /// The number of [`Sessions::generation`] when it was claimed.
    generation: u64,
}

impl Sessions {
    /// Claims a session's id and opens its mailbox; messages sent to the session from then on wait. The caller first
    /// has to look up an id chosen by a client in the store: this function checks only the sessions in memory.
    ///
    /// # Errors
    /// `-32002` if no such agent is loaded, `-32003` if the id is taken, `-32602` for an invalid working directory,
    /// `-32603` while the host stops.
    pub fn claim_session(&self, new: NewSession) -> Result<Claimed, RpcError> {
        let agent = match &new.provider {
            Some(provider) => self.core.agent(provider).ok_or_else(|| no_provider(&self.core, provider))?,
            None => self.core.first_agent().ok_or_else(|| no_provider(&self.core, "default"))?,
        };
        if self.core.is_stopping() {
            return Err(try_again(STOPPING));
        }
        if let Some(lost) = self.core.lost_storage() {
            return Err(try_again(lost));
        }
        if let Some(other) = new.working_directories.iter().find(|text| !names_a_directory(text)) {
            let why = format!("workingDirectories: {other} is neither a file: URI nor an absolute path");
            return Err(RpcError::invalid_params(why));
        }
        let provider = agent.provider.to_string();
        let now = self.core.clock.iso();
        let directories = match new.working_directories.is_empty() {
            true => self
                .core
                .options
                .paths
                .first()
                .map(|path| ostler_engine_core::file_uris::file_uri(path))
                .into_iter()
                .collect(),
            false if agent.multiple_directories == Some(true) => new.working_directories.clone(),
            false => new.working_directories[..1].to_vec(),
        };
        let kept = KeptSession {
            uri: uri::session(&provider, &new.id),
            provider: provider.clone(),
            owner: new.owner.clone(),
            works_for: new.works_for.clone(),
            client: new.client.clone(),
            title: new.title.clone().unwrap_or_default(),
            created_at: now.clone(),
            modified_at: now,
            values: new.config.clone(),
            working_directories: directories,
            origin: new.origin.clone(),
            draft: new.draft.then(|| KeptDraft { client: new.client.clone(), ..KeptDraft::default() }),
            model: new.first_model.clone(),
            ..KeptSession::default()
        };
        let (mailbox, inbox) = Mailbox::open();
        let coming = Resting::Open(mailbox.clone(), self.limits.census.come());
        let generation = self.generation();
        let entry = Arc::new(entry_of(&new.id, kept, SessionFlags::default(), coming));
        entry.is_being_created.store(true, Ordering::Release);
        if let (Some(lender), Some(tokens)) = (entry.lender(), new.credentials.clone()) {
            entry.borrow(&lender, tokens);
        }
        if !self.claim(&entry) {
            return Err(RpcError::session_exists(format!("a session {} exists already", new.id)));
        }
        self.draft(&entry);
        // Its client may have disconnected while the id was looked up.
        self.draft_unused(&entry);
        Ok(Claimed { entry, agent, new, mailbox, inbox, generation })
    }

    /// Sends a message to a session and wakes it if it is asleep. Returns false if the session is gone.
    pub fn tell(self: &Arc<Self>, entry: &Arc<SessionEntry>, message: ToSession) -> bool {
        if let ToSession::Dispatch(dispatch) = &message {
            entry.stop_if_cancelled(dispatch);
        }
        let mut resting = entry.mailbox.lock();
        match &*resting {
            Resting::Open(mailbox, _) => mailbox.send(message).is_ok(),
            Resting::Gone => false,
            Resting::Left => {
                drop(resting);
                refuse(self, message, &moving(&entry.uri));
                true
            }
            Resting::Asleep => {
                let (mailbox, inbox) = Mailbox::open();
                let sent = mailbox.send(message).is_ok();
                *resting = self.open(&mailbox);
                tasks::spawn(wake(self.clone(), entry.clone(), mailbox, inbox));
                sent
            }
        }
    }
}

pub(super) fn entry_of(id: &str, kept: KeptSession, flags: SessionFlags, resting: Resting) -> SessionEntry {
    SessionEntry {
        id: id.to_owned(),
        uri: kept.uri.clone(),
        provider: kept.provider.clone(),
        owner: kept.owner.clone(),
        works_for: kept.works_for.clone(),
        client: kept.client.clone(),
        origin: kept.origin.clone(),
        scope: kept.scope.clone(),
        published: Published::new(kept, flags),
        unstored: std::sync::atomic::AtomicBool::default(),
        brought: watch::Sender::default(),
        lent_tokens: parking_lot::Mutex::default(),
        client_resources: super::client_resources::ClientResources::default(),
        mailbox: parking_lot::Mutex::new(resting),
        stops: super::stop::Stops::default(),
        memory: std::sync::atomic::AtomicUsize::default(),
        files_at: None,
        is_being_created: std::sync::atomic::AtomicBool::default(),
        background: std::sync::atomic::AtomicBool::default(),
        waits_for_token: std::sync::atomic::AtomicBool::default(),
        lacks_reports: std::sync::atomic::AtomicBool::default(),
        settings_reports: std::sync::atomic::AtomicU64::default(),
        used: std::sync::atomic::AtomicU64::default(),
        looks: std::sync::atomic::AtomicU64::default(),
        looked_at: parking_lot::Mutex::default(),
    }
}

/// Returns the machine that settings name.
pub fn computer_in(config: &JsonObject) -> Option<&str> {
    config.get(SETTING).and_then(Value::as_str).filter(|named| !named.is_empty())
}

impl Claimed {
    /// Returns the session's URI, as the host lists it.
    pub fn uri(&self) -> &str {
        &self.entry.uri
    }

    /// Creates the backend, stores the session and announces it unless it is a draft. A failure leaves nothing behind.
    ///
    /// # Errors
    /// `-32602` for a directory that does not exist, `-32009` for one that a client may not name or if a policy denies
    /// the session; otherwise the error of the backend, its machine or the store.
    pub async fn start(self, sessions: &Arc<Sessions>) -> Result<Arc<SessionEntry>, RpcError> {
        let planned = OnceLock::new();
        let made = Box::pin(self.made(sessions, &planned)).await;
        // First, so that sessions that leave memory from now on end this one too.
        self.entry.is_being_created.store(false, Ordering::SeqCst);
        let is_owned = sessions.generation() == self.generation;
        match made.and_then(|actor| if is_owned { Ok(actor) } else { Err(try_again(LOST_LEASE)) }) {
            Ok(mut actor) => {
                let Self { entry, new, inbox, .. } = self;
                if !new.draft {
                    announce(sessions, &entry, new.client);
                    actor.announced = true;
                }
                actor.sync_client_plugins();
                tasks::spawn(actor.run(inbox));
                sessions.look_around(&entry, false);
                Ok(entry)
            }
            Err(error) => {
                let Self { entry, mut inbox, .. } = self;
                let record = entry.view().record.clone();
                let is_planned = planned.get().is_some();
                if let Some(tree) = planned.into_inner().or(record.worktree.clone()) {
                    sessions.workspace.undo_tree(&entry.uri, tree, &record.values).await;
                }
                if is_planned {
                    sessions.forget_planned(&entry.id).await;
                }
                entry.end();
                entry.end_channels(&sessions.core.fanout);
                sessions.remove(&entry);
                sessions.disown(&entry.id);
                inbox.close();
                let gone = format!("the session could not be started: {}", error.message);
                let gone = RpcError::session_not_found(gone);
                while let Some(posted) = inbox.try_next() {
                    refuse(sessions, posted.message, &gone);
                }
                Err(error)
            }
        }
    }

    /// Completes the creation. Sets `planned` once the session is stored for its working tree.
    async fn made(
        &self,
        sessions: &Arc<Sessions>,
        planned: &OnceLock<Worktree>,
    ) -> Result<Box<Actor>, RpcError> {
        let Self { entry, agent, new, .. } = self;
        sessions.own_new(&entry.id, new.client.is_some()).await?;
        let model = new.model.as_deref().or(new.first_model.as_deref());
        let wanted = Use { agent: &entry.provider, model, computer: computer_in(&new.config) };
        sessions.workspace.check_directories(&new.working_directories, new.directories).await?;
        sessions.room_for_session(entry).await?;
        if !new.allowed {
            sessions.access.may_use(entry.owner.as_deref(), &sessions.charged_to(entry), wanted).await?;
        }
        let directory = entry.directory().map(|(path, _)| path);
        if let Some(wanted) = sessions.workspace.wants_tree(&entry.id, directory, agent, &new.config).await? {
            if let Some(tree) = sessions.workspace.plan_tree(&wanted).await? {
                self.keep_planned(sessions, tree.clone()).await?;
                let _ = planned.set(tree);
            }
            let tree = sessions.workspace.isolate(wanted).await?;
            self.revise(|view| view.move_into(tree));
        }
        self.make(sessions).await
    }

    async fn make(&self, sessions: &Arc<Sessions>) -> Result<Box<Actor>, RpcError> {
        let Self { entry, agent, new, .. } = self;
        let failed = |why: Thrown| failed(entry, why);
        // Sessions that are no drafts are work of plugins, where nobody would see that another value is used.
        let chosen = sessions.chosen_settings(agent, &entry.uri, &new.config, new.draft).await;
        let mut chosen = chosen.map_err(failed)?;
        if !chosen.left_out.is_empty() || !chosen.translated.is_empty() {
            self.revise(|view| {
                let record = Arc::make_mut(&mut view.record);
                record.values.retain(|key, _| !chosen.left_out.contains(key));
                record.values.extend(chosen.translated.clone());
            });
        }
        if entry.view().record.worktree.is_some() {
            sessions
                .workspace
                .offer_trees(&mut chosen.config, new.working_directories.first().map(String::as_str))
                .await;
        }
        let directory = entry.directory().map(|(path, _)| path);
        let (uri, owner) = (&*entry.uri, entry.owner.as_deref());
        let computer =
            sessions.workspace.settle_computer(uri, owner, agent, &mut chosen.config, directory).await?;
        if let Some(computer) = &computer {
            self.revise(|view| {
                let record = Arc::make_mut(&mut view.record);
                record.values.insert(SETTING.to_owned(), computer.uri().into());
            });
        }
        let made = self.make_in(sessions, chosen).await;
        if let (Err(_), Some(computer)) = (&made, computer) {
            sessions.workspace.unmake(computer).await;
        }
        made
    }

    /// Completes the creation of a session once its machine is known.
    async fn make_in(&self, sessions: &Arc<Sessions>, chosen: Chosen) -> Result<Box<Actor>, RpcError> {
        let Self { entry, agent, new, mailbox, .. } = self;
        let failed = |why: Thrown| failed(entry, why);
        let mut state = state_of(entry, Some(chosen.config));
        state.active_clients.extend(new.active_client.clone());
        // Charged here only until the created session charges it itself.
        let _room = sessions.room_for_client(new.active_client.as_ref()).await?;
        entry.bring(&state.active_clients, &creator(entry, &state.active_clients), &sessions.limits.states);
        let chat = Chat::new(
            0,
            entry.default_chat(),
            new.title.as_deref().unwrap_or_default(),
            sessions.core.clock.iso(),
            sessions.core.fanout.audience(&entry.default_chat()),
        );
        state.chats = vec![chat.summary()];
        state.default_chat = Some(chat.uri.clone());
        let mut actor = Actor::new(
            sessions.clone(),
            entry.clone(),
            Some(agent.clone()),
            state,
            vec![chat],
            mailbox.clone(),
        );
        let mut start = actor.start_of(&actor.chats[0], new.credentials.clone());
        start.mcp_servers = sessions.mcp_servers_for(entry).await;
        let session = started(agent, start).await.map_err(failed)?;
        let taken = take_settings(&session, chosen.asked);
        let taken = in_time(limit::BACKEND_START, async {
            taken.await.map_err(|why| RpcError::invalid_params(why).into())
        });
        if let Err(why) = taken.await {
            let _ = session.close.within(limit::BACKEND_CLOSE, (Some(true),)).await;
            return Err(failed(why));
        }
        actor.chats[0].backend = Some(Backend::running(session, 0, mailbox.clone()));
        actor.chats[0].notes = chosen.notes;
        sessions.bind(entry).await?;
        self.keep(sessions, &actor).await.map_err(|why| {
            try_again(format!("the session could not be stored, so it was not started: {why}"))
        })?;
        actor.account();
        Ok(actor)
    }
}

impl Claimed {
    /// Stores that a working tree is about to be created for the session, so that the next start of the host can remove
    /// it if this one does not complete the creation.
    async fn keep_planned(&self, sessions: &Sessions, tree: Worktree) -> Result<(), RpcError> {
        let Some(store) = sessions.core.session_store() else { return Ok(()) };
        let draft = Some(KeptDraft { creating: true, ..KeptDraft::default() });
        let kept = KeptSession { worktree: Some(tree), draft, ..self.entry.kept() };
        let write = store.set_config.within(limit::STORE, (self.entry.id.clone(), kept));
        write.await.map_err(|why| {
            try_again(format!("the session could not be stored, so it was not started: {why}"))
        })
    }

    /// Stores the new session, unless all sessions have left memory since it was claimed.
    async fn keep(&self, sessions: &Sessions, actor: &Actor) -> Result<(), Thrown> {
        match sessions.generation() == self.generation {
            true => keep_new(sessions, actor).await,
            false => Err(Thrown::new(LOST_LEASE)),
        }
    }

    /// Creates a session for chats that come from another one: stored, then announced. A failure returns the chats.
    pub(super) async fn adopt(
        self,
        sessions: &Arc<Sessions>,
        mut lent: Lent,
    ) -> Result<Arc<SessionEntry>, (RpcError, Lent)> {
        let wanted = &self.new.config;
        let uses = Use { agent: &self.entry.provider, model: None, computer: computer_in(wanted) };
        let charged = sessions.charged_to(&self.entry);
        let config = match sessions.own_new(&self.entry.id, false).await {
            Ok(()) => match sessions.access.may_use(self.entry.owner.as_deref(), &charged, uses).await {
                Ok(()) => sessions.session_settings(&self.agent, wanted).await.map_err(Thrown::into_rpc),
                Err(refused) => Err(refused),
            },
            Err(refused) => Err(refused),
        };
        let config = match config {
            Ok(config) => sessions.bind(&self.entry).await.map(|()| config),
            Err(refused) => Err(refused),
        };
        let config = match config {
            Ok(config) => config,
            Err(refused) => {
                self.entry.end();
                sessions.remove(&self.entry);
                sessions.disown(&self.entry.id);
                return Err((refused, lent));
            }
        };
        lent.renumber(0);
        let mut chats = lent.chats;
        if let Some(first) = chats.first_mut() {
            first.state.movable = Some(false);
            self.revise(|view| {
                view.default_chat.clone_from(&first.uri);
                let record = Arc::make_mut(&mut view.record);
                record.backend_id.clone_from(&first.backend_id);
                record.draft = Some(KeptDraft { moving: true, ..KeptDraft::default() });
            });
        }
        let Self { entry, agent, mailbox, inbox, generation, .. } = self;
        let mut state = state_of(&entry, Some(config));
        state.default_chat = chats.first().map(|chat| chat.uri.clone());
        state.chats = chats.iter().map(Chat::summary).collect();
        let mut actor = Actor::new(sessions.clone(), entry.clone(), Some(agent), state, chats, mailbox);
        entry.is_being_created.store(false, Ordering::SeqCst);
        if !(sessions.generation() == generation
            && sessions.adopt_attachments(&entry, &actor.chats).await
            && actor.keep_all_turns().await
            && actor.keep_chats().await
            && actor.keep_reported().await
            && actor.keep_session().await)
        {
            entry.end();
            sessions.remove(&entry);
            // A partly stored session would look like a move that the next start has to finish.
            if let Some(store) = sessions.core.session_store() {
                let forgotten = store.forget.within(limit::STORE, (entry.id.clone(),));
                kept(&sessions.core.log, &entry.uri, forgotten).await;
            }
            let refused = RpcError::internal(NOT_MOVED);
            return Err((refused, Lent { chats: actor.chats }));
        }
        for chat in &actor.chats {
            sessions.give_chat(&chat.uri, &entry.id);
        }
        announce(sessions, &entry, None);
        actor.announced = true;
        // The chat's subscribers still have it as movable.
        let stays = StateAction::ChatMovableChanged(ChatMovableChangedAction { movable: false });
        actor.republish(0, &stays, None);
        actor.settle();
        tasks::spawn(actor.run(inbox));
        Ok(entry)
    }
}

/// Asks a backend to create the session that runs a chat.
pub(super) async fn started(agent: &Agent, start: Start) -> Result<AgentSession, Thrown> {
    let session = agent.create.within(limit::BACKEND_START, (Frozen(start),)).await?;
    session.check().map_err(|wrong| Thrown::new(format_args!("its session needs {wrong}")))?;
    Ok(session)
}

fn failed(entry: &SessionEntry, why: Thrown) -> RpcError {
    match why.rpc {
        Some(_) => why.into_rpc(),
        None => RpcError::internal(format!("{} could not start a session: {}", entry.provider, why.message)),
    }
}

/// Stores a new session in one commit. Its list of chats is omitted if it contains only an unchanged default chat,
/// which a session without a list implies.
async fn keep_new(sessions: &Sessions, actor: &Actor) -> Result<(), Thrown> {
    let Some(store) = sessions.core.session_store() else { return Ok(()) };
    let id = actor.entry.id.clone();
    let default = actor.state.default_chat.as_deref();
    let chats: Vec<_> =
        actor.chats.iter().map(|chat| chat.kept(Some(&*chat.uri) == default, actor.lead_uri(chat))).collect();
    let only = uri::default_chat(&actor.entry.uri);
    let implied = [KeptChat { uri: only, default: true, derived: true, ..KeptChat::default() }];
    let session = store.set_config.within(limit::STORE, (id.clone(), actor.kept()));
    let chats =
        OptionFuture::from((chats != implied).then(|| store.set_chats.within(limit::STORE, (id, chats))));
    let (session, chats) = futures::join!(session, chats);
    session.and(chats.unwrap_or(Ok(())))
}

/// The params of `root/sessionAdded`.
#[derive(Serialize)]
struct SessionAdded<'a> {
    channel: &'a str,
    summary: &'a SessionSummary,
}

pub(super) fn announce(sessions: &Arc<Sessions>, entry: &Arc<SessionEntry>, client: Option<String>) {
    let view = entry.view();
    let params = SessionAdded { channel: uri::ROOT, summary: &view.summary };
    if let Ok(frame) = encode::notification("root/sessionAdded", &params) {
        sessions.core.fanout.notify(uri::ROOT, frame);
    }
    sessions.core.feeds.sessions.put(|| view.summary.clone());
    sessions.counts_listed(true);
    sessions.core.root.set_active_sessions(&sessions.core.fanout, sessions.count());
    let (session, provider) = (entry.uri.clone(), entry.provider.clone());
    sessions.core.events.raise(Event::SessionStart { session, provider, client });
}

pub(super) fn state_of(entry: &SessionEntry, config: Option<SessionConfigState>) -> SessionState {
    let view = entry.view();
    let View { summary, record, .. } = &*view;
    let mut meta = record.meta.clone();
    meta.extend(record.facts.clone());
    if let Some(owner) = &entry.owner {
        meta.insert(names::meta_key("owner"), owner.as_str().into());
    }
    SessionState {
        provider: entry.provider.clone(),
        title: summary.title.clone(),
        status: SessionStatus::Idle.bits() | marks(view.flags()),
        activity: summary.activity.clone(),
        origin: summary.origin.clone(),
        project: summary.project.clone(),
        working_directories: summary.working_directories.clone(),
        annotations: summary.annotations.clone(),
        lifecycle: match &record.draft {
            Some(draft) if !draft.moving => SessionLifecycle::Creating,
            _ => SessionLifecycle::Ready,
        },
        creation_error: None,
        server_tools: None,
        active_clients: Vec::new(),
        chats: Vec::new(),
        default_chat: None,
        config,
        customizations: None,
        changesets: None,
        input_needed: None,
        meta: (!meta.is_empty()).then_some(meta),
    }
}
