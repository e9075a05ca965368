//! The immutable view of a session for all readers except its actor. Only this file replaces it: for the catalogue when
//! it loads the session, for the task that creates the session, and from then on for its actor.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ostler_contract::JsonObject;
use ostler_contract::points::{KeptChat, KeptDraft, KeptSession, SessionFlags, Worktree};
use ostler_protocol::uri;
use ostler_protocol::wire::state::{AnnotationsSummary, SessionState, SessionStatus, SessionSummary};
use parking_lot::RwLock;

use super::actor::Actor;
use super::annotations;
use super::create::Claimed;
use super::summary::{flags_in, rest, summary_at_rest};
use super::{SessionEntry, Sessions};

/// A session as it was last published.
#[derive(Debug, Clone)]
pub struct View {
    /// The data that listings show: title, flags, directories and facts.
    pub summary: Arc<SessionSummary>,
    /// The URI of the default chat.
    pub default_chat: String,
    /// The data that clients do not see.
    pub record: Arc<Record>,
}

/// The stored data of a session that is not part of the state that clients see.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// The chosen values of its settings. The others are the defaults of its backend, read at each waking.
    pub values: JsonObject,
    /// The backend's id of the conversation to continue.
    pub backend_id: Option<String>,
    /// Its working tree.
    pub worktree: Option<Worktree>,
    /// The draft mark, if the session is a draft.
    pub draft: Option<KeptDraft>,
    /// The facts about its directory that were read last.
    pub facts: JsonObject,
    /// What its backend added to its `_meta`.
    pub meta: JsonObject,
    /// The customizations that were enabled or disabled, by id.
    pub toggled: JsonObject,
    /// The files of changesets that users reviewed, by scope and id.
    pub reviewed: JsonObject,
    /// The model of the first turn, unless its message names one.
    pub model: Option<String>,
}

/// The current view of a session, as stored in [`SessionEntry`].
#[derive(Debug)]
pub(super) struct Published(RwLock<Arc<View>>);

impl Published {
    /// Creates the view of a session that is new or comes from the store, without its chats.
    pub fn new(kept: KeptSession, flags: SessionFlags) -> Self {
        let summary = Arc::new(summary_at_rest(&kept, flags));
        let default_chat = uri::default_chat(&kept.uri);
        let KeptSession {
            values, backend_id, worktree, draft, facts, meta, toggled, reviewed, model, ..
        } = kept;
        let record =
            Arc::new(Record { values, backend_id, worktree, draft, facts, meta, toggled, reviewed, model });
        Self(RwLock::new(Arc::new(View { summary, default_chat, record })))
    }

    fn replace(&self, view: View) -> Arc<View> {
        let view = Arc::new(view);
        *self.0.write() = view.clone();
        view
    }

    fn revise(&self, change: impl FnOnce(&mut View)) {
        let mut view = View::clone(&self.0.read());
        change(&mut view);
        self.replace(view);
    }
}

impl View {
    /// Whether the session has a running turn.
    pub fn is_running(&self) -> bool {
        self.summary.status & SessionStatus::InProgress.bits() != 0
    }

    pub(super) fn flags(&self) -> SessionFlags {
        flags_in(self.summary.status)
    }

    /// Returns the session's directories as `file://` URIs.
    pub fn directories(&self) -> &[String] {
        self.summary.working_directories.as_deref().unwrap_or_default()
    }
}

impl SessionEntry {
    /// Whether a turn runs, or a backend works in the background.
    pub fn is_at_work(&self) -> bool {
        self.view().is_running() || self.background.load(Ordering::Acquire)
    }

    /// Returns the session as it was last published.
    pub fn view(&self) -> Arc<View> {
        self.published.0.read().clone()
    }

    /// Returns the URI of the session's default chat, as the host spells it.
    pub fn default_chat(&self) -> String {
        self.published.0.read().default_chat.clone()
    }

    /// Returns the session in its stored form.
    pub(super) fn kept(&self) -> KeptSession {
        let view = self.view();
        self.kept_as(&view, &view.summary.title, view.directories(), view.summary.annotations.as_ref())
    }

    fn kept_as(
        &self,
        view: &View,
        title: &str,
        directories: &[String],
        annotated: Option<&AnnotationsSummary>,
    ) -> KeptSession {
        let Record { values, backend_id, worktree, draft, facts, meta, toggled, reviewed, model } =
            &*view.record;
        KeptSession {
            uri: self.uri.clone(),
            provider: self.provider.clone(),
            owner: self.owner.clone(),
            works_for: self.works_for.clone(),
            client: self.client.clone(),
            title: title.to_owned(),
            created_at: view.summary.created_at.clone(),
            modified_at: view.summary.modified_at.clone(),
            values: values.clone(),
            working_directories: directories.to_vec(),
            project: view.summary.project.as_ref().and_then(|project| serde_json::to_value(project).ok()),
            facts: facts.clone(),
            meta: meta.clone(),
            activity: view.summary.activity.clone(),
            origin: self.origin.clone(),
            backend_id: backend_id.clone(),
            worktree: worktree.clone(),
            scope: self.scope.clone(),
            draft: draft.clone(),
            toggled: toggled.clone(),
            reviewed: reviewed.clone(),
            model: model.clone(),
            annotations: annotated.map(annotations::counts_in).unwrap_or_default(),
        }
    }

    /// Whether the store has the published state.
    pub(super) fn is_stored(&self) -> bool {
        !self.unstored.load(Ordering::Acquire)
    }

    /// Records whether the store has the published state.
    pub(super) fn set_stored(&self, stored: bool) {
        self.unstored.store(!stored, Ordering::Release);
    }
}

impl Sessions {
    /// Claims the chats that a session was stored with.
    pub(super) fn claim_kept(&self, entry: &SessionEntry, chats: &[KeptChat]) {
        entry.published.revise(|view| {
            for chat in chats.iter().filter(|chat| !chat.closed) {
                if chat.uri != uri::default_chat(&entry.uri) {
                    self.claim_chat(&chat.uri, &entry.id);
                }
                if chat.default {
                    view.default_chat.clone_from(&chat.uri);
                }
            }
            let held = chats.iter().filter(|chat| !chat.closed && self.holds(entry, &chat.uri));
            rest(Arc::make_mut(&mut view.summary), view.default_chat.clone(), held);
        });
    }
}

impl Claimed {
    /// Changes the view of a session that is being created.
    pub(super) fn revise(&self, change: impl FnOnce(&mut View)) {
        self.entry.published.revise(change);
    }
}

impl Actor {
    /// Publishes the session with a new summary.
    pub(super) fn publish(&self, summary: SessionSummary) -> Arc<View> {
        let last = self.entry.view();
        let (default_chat, record) = (self.named_default(&last), last.record.clone());
        self.entry.published.replace(View { summary: Arc::new(summary), default_chat, record })
    }

    /// Publishes a change of the data that clients do not see, together with the current default chat.
    pub(super) fn revise<T>(&self, change: impl FnOnce(&mut Record) -> T) -> T {
        let last = self.entry.view();
        let mut record = Record::clone(&last.record);
        let outcome = change(&mut record);
        let (summary, default_chat) = (last.summary.clone(), self.named_default(&last));
        self.entry.published.replace(View { summary, default_chat, record: Arc::new(record) });
        outcome
    }

    fn named_default(&self, last: &View) -> String {
        self.state.default_chat.as_ref().unwrap_or(&last.default_chat).clone()
    }

    pub(super) fn flags(&self) -> SessionFlags {
        flags_in(self.state.status)
    }

    /// Returns the session in its stored form, from its state, which may be ahead of the view.
    pub(super) fn kept(&self) -> KeptSession {
        let SessionState { title, working_directories, annotations, .. } = &self.state;
        let directories = working_directories.as_deref().unwrap_or_default();
        self.entry.kept_as(&self.entry.view(), title, directories, annotations.as_ref())
    }
}
