//! Sessions before their first turn. A client creates one when a user opens a form. Other clients are not notified of
//! it before its first message, and it is removed if its clients leave before that.

use std::sync::{Arc, Weak};
use std::time::Duration;

use ostler_contract::points::KeptDraft;
use ostler_engine_core::tasks;
use ostler_protocol::uri;
use ostler_protocol::wire::actions::{SessionReadyAction, StateAction};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::actor::Actor;
use super::create::announce;
use super::mailbox::ToSession;
use super::{SessionEntry, Sessions};

/// How long an unused draft stays.
const GRACE: Duration = Duration::from_secs(30);

/// The host's record of a draft.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// The client that created the draft, until it unsubscribes. While connected, it counts as using the draft.
    client: Option<String>,
    /// When the draft became unused; a task then waits to remove it.
    unused: Option<Instant>,
}

impl Sessions {
    /// Records that a session is a draft.
    pub(super) fn draft(&self, entry: &SessionEntry) {
        let kept = entry.view().record.draft.clone();
        if let Some(kept) = kept {
            let draft = Draft { client: kept.client, unused: None };
            self.drafts.lock().insert(entry.id.clone(), draft);
        }
    }

    /// Whether a session is a draft, which is neither announced nor listed.
    pub fn is_draft(&self, entry: &SessionEntry) -> bool {
        self.drafts.lock().contains_key(&entry.id)
    }

    /// Returns all channels of a session to which clients that use it subscribe.
    pub(super) fn channels_of(&self, entry: &SessionEntry) -> Vec<String> {
        let mut channels = vec![entry.uri.clone(), entry.default_chat(), uri::annotations(&entry.uri)];
        let chats = self.in_memory.chats.read();
        channels
            .extend(chats.iter().filter(|(_, session)| **session == entry.id).map(|(chat, _)| chat.clone()));
        channels
    }

    /// Returns the drafts that a client created.
    fn drafts_by(&self, client: &str) -> Vec<Arc<SessionEntry>> {
        let drafts = self.drafts.lock();
        let ids: Vec<String> = drafts
            .iter()
            .filter(|(_, draft)| draft.client.as_deref() == Some(client))
            .map(|(id, _)| id.clone())
            .collect();
        drop(drafts);
        ids.iter().filter_map(|id| self.get(id)).collect()
    }
}

impl Sessions {
    /// Starts the removal timeout for every draft found in the store.
    pub(super) fn drafts_loaded(&self) {
        let ids: Vec<String> = self.drafts.lock().keys().cloned().collect();
        for entry in ids.iter().filter_map(|id| self.get(id)) {
            self.draft_unused(&entry);
        }
    }

    /// Checks the drafts that a client may have used on a connection that has closed.
    pub fn drafts_left<'a>(&self, client: &str, channels: impl Iterator<Item = &'a String>) {
        let watched = channels.filter_map(|channel| {
            let (entry, _) = self.locate(&self.channel(channel))?;
            self.is_draft(&entry).then_some(entry)
        });
        for entry in watched.chain(self.drafts_by(client)) {
            self.draft_unused(&entry);
        }
    }

    /// Checks a session that a client unsubscribed from or omitted when it reconnected.
    pub fn draft_left(&self, entry: &Arc<SessionEntry>, client: &str) {
        if !self.is_draft(entry)
            || self.watches(entry, |connection| self.access.clients.is_client(connection, client))
        {
            return;
        }
        if let Some(draft) = self.drafts.lock().get_mut(&entry.id)
            && draft.client.as_deref() == Some(client)
        {
            draft.client = None;
        }
        self.draft_unused(entry);
    }

    /// Checks the drafts that a client omitted when it reconnected.
    pub fn drafts_left_out(&self, client: &str) {
        for entry in self.drafts_by(client) {
            self.draft_left(&entry, client);
        }
    }

    fn watches(
        &self,
        entry: &SessionEntry,
        which: impl Fn(ostler_engine_core::ids::ConnectionId) -> bool,
    ) -> bool {
        let channels = self.channels_of(entry);
        channels.iter().any(|channel| self.core.fanout.watchers(channel).into_iter().any(&which))
    }

    /// Whether a client subscribes to a draft, or its creator is connected and has not left it.
    fn draft_is_used(&self, entry: &SessionEntry) -> bool {
        let client = match self.drafts.lock().get(&entry.id) {
            Some(draft) => draft.client.clone(),
            None => return true,
        };
        self.watches(entry, |_| true)
            || client.is_some_and(|client| {
                self.access
                    .clients
                    .open()
                    .iter()
                    .any(|connection| connection.client_id().as_ref() == Some(&client))
            })
    }

    /// Schedules the removal of a draft if no client uses it.
    pub(super) fn draft_unused(&self, entry: &Arc<SessionEntry>) {
        if self.draft_is_used(entry) {
            return;
        }
        let (Some(sessions), Ok(runtime)) = (self.me(), Handle::try_current()) else { return };
        let mut drafts = self.drafts.lock();
        let Some(draft) = drafts.get_mut(&entry.id) else { return };
        if draft.unused.replace(Instant::now()).is_none() {
            runtime.spawn(wait_for_use(Arc::downgrade(&sessions), entry.clone()));
        }
    }

    /// Returns when a draft is to be removed; `None` if it is in use, has started or was removed.
    fn draft_ends(&self, entry: &SessionEntry) -> Option<Instant> {
        let used = self.draft_is_used(entry);
        let mut drafts = self.drafts.lock();
        let draft = drafts.get_mut(&entry.id)?;
        if used {
            draft.unused = None;
        }
        draft.unused.map(|since| since + GRACE)
    }
}

/// Removes a draft once no client has used it until the timeout.
async fn wait_for_use(sessions: Weak<Sessions>, entry: Arc<SessionEntry>) {
    loop {
        let Some(end) = sessions.upgrade().and_then(|sessions| sessions.draft_ends(&entry)) else { return };
        if end <= Instant::now() {
            break;
        }
        tokio::time::sleep_until(end).await;
    }
    if let Some(sessions) = sessions.upgrade() {
        sessions.tell(&entry, ToSession::Abandoned);
    }
}

impl Actor {
    /// Whether the session is a draft whose timeout has passed.
    pub(super) fn is_abandoned(&self) -> bool {
        match self.sessions.draft_ends(&self.entry) {
            Some(end) if end <= Instant::now() => true,
            Some(_) => {
                tasks::spawn(wait_for_use(Arc::downgrade(&self.sessions), self.entry.clone()));
                false
            }
            None => false,
        }
    }

    /// Clears the draft mark in the session's record. The caller then stores the record and announces the session.
    pub(super) fn begin_draft(&mut self) -> Option<KeptDraft> {
        match &self.entry.view().record.draft {
            Some(draft) if !draft.moving => self.revise(|record| record.draft.take()),
            _ => None,
        }
    }

    /// Announces a session that was a draft, after the change was stored.
    pub(super) fn announce_begun(&mut self, draft: KeptDraft) {
        self.refresh_summaries();
        // The session is listed before any client sees the turn, so a client that sees the turn can find the session.
        self.sessions.drafts.lock().remove(&self.entry.id);
        self.flush_out();
        self.announced = true;
        announce(&self.sessions, &self.entry, draft.client);
        self.apply_session(StateAction::SessionReady(SessionReadyAction {}), None);
    }
}
