//! The catalogue of sessions: those in memory, and those in the store that are loaded on demand.
//!
//! If the store supports reads on demand, nothing is loaded at startup. A session is loaded by its id, its URI or the
//! URI of one of its chats. It is evicted when it is asleep, has no references, and enough other sessions were used
//! since.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use ostler_contract::cluster::SessionElsewhere;
use ostler_contract::points::{KeptChat, SessionStore, StoredSession};
use ostler_contract::{Thrown, limit};
use ostler_protocol::uri::{self, Channel, SessionOf};

use super::create::entry_of;
use super::moving::{finish_moves, is_no_session};
use super::ownership::RowChange;
use super::{Place, Resting, SessionEntry, Sessions};
use crate::core::refusals::LOST_LEASE;
use crate::core::tasks;

/// Only the store can tell which session a channel belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NotAtHand;

/// A load of a session in progress, shared by all callers that wait for it.
pub(super) type Loading = Shared<BoxFuture<'static, Result<Option<Arc<SessionEntry>>, Thrown>>>;

impl Sessions {
    /// Whether all sessions are always in memory.
    pub(super) fn is_whole(&self) -> bool {
        self.in_memory.whole.load(Ordering::Acquire)
    }

    /// Whether all sessions are in memory now, so that the store has no other id.
    pub(crate) fn holds_all(&self) -> bool {
        if self.core.cluster().is_some() {
            // Other hosts create sessions too.
            return false;
        }
        let entries = self.in_memory.entries.read();
        self.is_whole()
            || self.counts.counted.load(Ordering::Acquire)
                && entries.len() >= self.counts.total.load(Ordering::Acquire)
    }

    /// Inserts a session that was read from the store. Returns the existing entry if another load was faster, and `None` if all
    /// sessions have left memory since the load began.
    fn take_in(
        &self,
        entry: Arc<SessionEntry>,
        chats: &[KeptChat],
        generation: u64,
    ) -> Option<Arc<SessionEntry>> {
        let mut entries = self.in_memory.entries.write();
        if self.generation() != generation {
            return None;
        }
        if let Some(held) = entries.get(&entry.id) {
            return Some(held.clone());
        }
        // The chats are claimed before the entry can be found.
        self.claim_kept(&entry, chats);
        self.draft(&entry);
        self.touch(&entry);
        entries.insert(entry.id.clone(), entry.clone());
        if !self.is_alone() {
            // Another host published actions of these channels until now.
            let channels = self.channels_of(&entry);
            self.core.fanout.end_pasts(channels.iter().map(String::as_str));
            drop(entries);
            self.row_changed(RowChange::Loaded(entry.id.clone()));
        }
        Some(entry)
    }

    /// Evicts the least recently used sessions once there are many: stored sessions that are asleep, have no references
    /// and for whose channels `watched` returns false. At most `limit` sleeping sessions stay.
    fn let_go(&self, limit: usize, watched: impl Fn(&SessionEntry) -> bool) {
        if self.is_whole()
            || self.in_memory.entries.read().len() <= self.in_memory.next_look.load(Ordering::Acquire)
        {
            return;
        }
        let mut entries = self.in_memory.entries.write();
        let resting = entries.values().filter(|entry| {
            // References are only handed out by this map or by another holder.
            Arc::strong_count(entry) == 1 && entry.can_go() && !watched(entry)
        });
        let mut resting: Vec<_> =
            resting.map(|entry| (entry.used.load(Ordering::Relaxed), entry.id.clone())).collect();
        resting.sort_unstable();
        let stay = limit - limit / 4;
        resting.truncate(resting.len().saturating_sub(stay));
        let gone: HashSet<String> = resting.into_iter().map(|(_, id)| id).collect();
        entries.retain(|id, entry| {
            let goes = gone.contains(id);
            if goes {
                drop(self.left_memory(entry));
            }
            !goes
        });
        self.in_memory.chats.write().retain(|_, session| !gone.contains(session));
        // The next eviction waits until there is enough to evict.
        self.in_memory.next_look.store(limit.max(entries.len() + limit / 4), Ordering::Release);
    }
}

impl SessionEntry {
    /// Whether the store can restore everything about the session.
    fn can_go(&self) -> bool {
        // Lent tokens exist only in memory.
        matches!(*self.mailbox.lock(), Resting::Asleep)
            && self.is_stored()
            && self.view().record.draft.is_none()
            && self.lent_tokens.lock().is_empty()
    }
}

impl Sessions {
    /// Counts the sessions of the store; loads all of them if the store does not support reads on demand.
    pub(crate) async fn open_sessions(&self) {
        self.in_memory.next_look.store(self.core.options.resting_sessions, Ordering::Release);
        let Some(store) = self.core.session_store() else {
            return self.in_memory.whole.store(true, Ordering::Release);
        };
        if store.reads_on_demand() {
            let count = match &store.count {
                Some(count) => count.within(limit::STORE, ()).await,
                None => store.sessions.within(limit::STORE, ()).await.map(|ids| ids.len() as u64),
            };
            match count {
                Ok(count) => {
                    self.counts
                        .total
                        .fetch_add(usize::try_from(count).unwrap_or(usize::MAX), Ordering::AcqRel);
                    self.counts.counted.store(true, Ordering::Release);
                }
                Err(why) => {
                    self.core.log.warn(format_args!("the sessions of the store could not be counted: {why}"))
                }
            }
            let drafts = match &store.drafts {
                Some(drafts) => drafts.within(limit::STORE, ()).await,
                None => Ok(Vec::new()),
            };
            let drafts = drafts.unwrap_or_else(|why| {
                self.core.log.warn(format_args!("the drafts of the store could not be read: {why}"));
                Vec::new()
            });
            let mut drafts = self.claimed_drafts(drafts).await;
            let trees = self.load_detached(store, &mut drafts).await;
            let undone = self.undo_unfinished(store, &drafts).await;
            let _ = self.counts.total.fetch_update(Ordering::AcqRel, Ordering::Acquire, |total| {
                Some(total.saturating_sub(undone + trees))
            });
            finish_moves(&self.core, store, &drafts).await;
            for id in drafts {
                self.session_or_log(&id).await;
            }
            self.drafts_loaded();
            return;
        }
        let mut rows = rows_of(store).await;
        let being_made = rows.iter().flatten().filter(|stored| is_no_session(&stored.session));
        let mut being_made: Vec<_> = being_made.map(|stored| stored.id.clone()).collect();
        self.load_detached(store, &mut being_made).await;
        if !being_made.is_empty() {
            self.undo_unfinished(store, &being_made).await;
            finish_moves(&self.core, store, &being_made).await;
            rows = rows_of(store).await;
        }
        let generation = self.generation();
        match rows {
            Ok(rows) => {
                for mut stored in rows.into_iter().filter(|stored| !is_no_session(&stored.session)) {
                    let chats = self.chats_in(store, &mut stored).await;
                    self.take_in(
                        Arc::new(entry_of(&stored.id, stored.session, stored.flags, Resting::Asleep)),
                        &chats,
                        generation,
                    );
                }
            }
            Err(why) => {
                self.core.log.warn(format_args!("the sessions of the store could not be read: {why}"))
            }
        }
        self.counts.total.store(self.in_memory.entries.read().len(), Ordering::Release);
        self.in_memory.whole.store(true, Ordering::Release);
        self.drafts_loaded();
    }

    /// Claims the drafts of the store that no other host of a cluster owns, and returns those.
    async fn claimed_drafts(&self, drafts: Vec<String>) -> Vec<String> {
        let Some(cluster) = self.core.cluster() else { return drafts };
        let mut own = Vec::new();
        for id in drafts {
            match self.own(cluster, &id).await {
                Ok(_) => own.push(id),
                Err(why) if SessionElsewhere::is(&why) => {}
                Err(why) => self.core.log.warn(format_args!("draft {id} could not be claimed: {why}")),
            }
        }
        own
    }

    /// Returns the stored chats of a session for a list; none if they cannot be read.
    pub(super) async fn chats_in(&self, store: &SessionStore, stored: &mut StoredSession) -> Vec<KeptChat> {
        chats_of(store, stored).await.unwrap_or_else(|why| {
            self.core.log.warn(format_args!("{}: its chats could not be read: {why}", stored.id));
            Vec::new()
        })
    }

    /// Returns the session with an id, from memory or from the store.
    ///
    /// # Errors
    /// The error of the store.
    pub async fn session(&self, id: &str) -> Result<Option<Arc<SessionEntry>>, Thrown> {
        if let Some(entry) = self.get(id) {
            return Ok(Some(entry));
        }
        let Some(sessions) = self.me().filter(|_| !self.is_whole()) else { return Ok(None) };
        // A store that answers immediately needs no task.
        let mut load = Box::pin(load_from_store(sessions.clone(), id.to_owned()));
        let under_way = self.in_memory.loading.lock().contains_key(id);
        if !under_way && let Some(loaded) = load.as_mut().now_or_never() {
            if matches!(loaded, Ok(Some(_))) {
                sessions.let_go_of_sessions();
            }
            return loaded;
        }
        let loading = {
            let mut loading = self.in_memory.loading.lock();
            match loading.get(id) {
                Some(loading) => loading.clone(),
                None => {
                    // A load that finished in the meantime inserted its session before it left this map.
                    if let Some(entry) = self.get(id) {
                        return Ok(Some(entry));
                    }
                    let id = id.to_owned();
                    let load = tasks::spawn(finish_loading(sessions, id.clone(), load));
                    let load =
                        load.map(|loaded| loaded.unwrap_or_else(|_| Err(Thrown::new("the host is closing"))));
                    let load = load.boxed().shared();
                    loading.insert(id, load.clone());
                    load
                }
            }
        };
        loading.await
    }

    /// Returns the session that a URI names, regardless of its scheme, from memory or from the store.
    pub async fn session_at(&self, uri: &str) -> Option<Arc<SessionEntry>> {
        self.session_or_log(uri::session_id(uri)?).await
    }

    pub(super) async fn session_or_log(&self, id: &str) -> Option<Arc<SessionEntry>> {
        self.session(id).await.unwrap_or_else(|why| {
            if SessionElsewhere::is(&why) {
                return None;
            }
            self.core.log.warn(format_args!("{id}: the session could not be read from the store: {why}"));
            None
        })
    }

    /// Returns the session that a channel belongs to, if that session is in memory, or `None` if the channel belongs to
    /// no session.
    ///
    /// # Errors
    /// The store has to be asked.
    pub(crate) fn at_hand(&self, spelled: &str) -> Result<Option<Arc<SessionEntry>>, NotAtHand> {
        if self.is_whole() {
            return Ok(None);
        }
        let channel = self.channel(spelled);
        let found = match channel.session() {
            SessionOf::Id(id) => self.get(id),
            SessionOf::Chat(chat) => self.session_of_chat(chat),
            SessionOf::None => return Ok(None),
        };
        found.map(Some).ok_or(NotAtHand)
    }

    /// Loads the session that a channel belongs to. It stays in memory while the returned reference is held.
    pub(crate) async fn load_channel(&self, spelled: &str) -> Option<Arc<SessionEntry>> {
        if self.is_whole() {
            return None;
        }
        let channel = self.channel(spelled);
        match channel.session() {
            SessionOf::Id(id) => {
                if let Some(entry) = self.get(id) {
                    return Some(entry);
                }
                // The URI of a session can also be that of a chat.
                if matches!(channel, Channel::Session(_))
                    && let Some(entry) = self.stored_chat(spelled).await
                {
                    return Some(entry);
                }
                self.session_or_log(id).await
            }
            SessionOf::Chat(chat) => {
                if let Some(entry) = self.session_of_chat(chat) {
                    return Some(entry);
                }
                match self.stored_chat(chat).await {
                    Some(entry) => Some(entry),
                    None => self.session_or_log(uri::old_default_chat(chat)?).await,
                }
            }
            SessionOf::None => None,
        }
    }

    /// Loads the sessions that several channels belong to. They stay in memory while the returned references are held.
    pub(crate) async fn load_channels(&self, spelled: &[&str]) -> Vec<Arc<SessionEntry>> {
        if self.is_whole() {
            return Vec::new();
        }
        if let [one] = spelled {
            return self.load_channel(one).await.into_iter().collect();
        }
        // Concurrently, so that a store that does not respond costs only one timeout.
        let loads = spelled.iter().map(|spelled| self.load_channel(spelled));
        futures::future::join_all(loads).await.into_iter().flatten().collect()
    }

    /// Returns the session and the place in it that a channel URI names, from memory or from the store.
    pub async fn located(&self, spelled: &str) -> Option<(Arc<SessionEntry>, Place)> {
        let _held = self.load_channel(spelled).await;
        self.locate(&self.channel(spelled))
    }

    /// Returns the session that a chat is stored with.
    async fn stored_chat(&self, chat: &str) -> Option<Arc<SessionEntry>> {
        let id = self.owner_of_chat(chat).await?;
        self.session_or_log(&id).await
    }

    pub(crate) async fn owner_of_chat(&self, chat: &str) -> Option<String> {
        let session_of_chat = self.core.session_store()?.session_of_chat.as_ref()?;
        session_of_chat.within(limit::STORE, (chat.to_owned(),)).await.unwrap_or_else(|why| {
            self.core.log.warn(format_args!("{chat}: its session could not be read from the store: {why}"));
            None
        })
    }

    /// Evicts sleeping sessions once many are in memory.
    pub(crate) fn let_go_of_sessions(&self) {
        self.let_go(self.core.options.resting_sessions, |entry| {
            !self.core.fanout.watchers(&entry.uri).is_empty()
                || !self.core.fanout.watchers(&entry.default_chat()).is_empty()
        });
    }

    /// Records that a session fell asleep.
    pub(crate) fn rests(&self) {
        // One more session can be evicted, so the next eviction comes one session earlier.
        let limit = self.core.options.resting_sessions;
        let _ = self
            .in_memory
            .next_look
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |next| (next > limit).then(|| next - 1));
        self.let_go_of_sessions();
    }
}

async fn finish_loading(
    sessions: Arc<Sessions>,
    id: String,
    load: impl Future<Output = Result<Option<Arc<SessionEntry>>, Thrown>>,
) -> Result<Option<Arc<SessionEntry>>, Thrown> {
    let loaded = load.await;
    sessions.in_memory.loading.lock().remove(&id);
    sessions.let_go_of_sessions();
    loaded
}

async fn load_from_store(sessions: Arc<Sessions>, id: String) -> Result<Option<Arc<SessionEntry>>, Thrown> {
    let Some(store) = sessions.core.session_store() else { return Ok(None) };
    let generation = sessions.generation();
    // A session that is still being created after startup's repair holds nothing that the other session lacks.
    let read = async || {
        let stored = match &store.session {
            Some(session) => session.within(limit::STORE, (id.clone(),)).await?,
            None => one(store, id.clone()).await?,
        };
        Ok::<_, Thrown>(stored.filter(|stored| !is_no_session(&stored.session)))
    };
    let Some(mut stored) = read().await? else { return Ok(None) };
    let mut files_at = None;
    if let Some(cluster) = sessions.core.cluster() {
        files_at = sessions.own(cluster, &id).await?;
        // Another host may have written it until then.
        match read().await {
            Ok(Some(again)) => stored = again,
            unread => {
                sessions.disown(&id);
                return unread.map(|_| None);
            }
        }
    }
    // A session without its chats would overwrite them.
    let mut chats = match chats_of(store, &mut stored).await {
        Ok(chats) => chats,
        Err(why) => {
            sessions.disown(&id);
            return Err(why);
        }
    };
    // A chat that was being moved to another session when the host was killed may be stored with both.
    let first = uri::default_chat(&stored.session.uri);
    let mut others = Vec::new();
    for chat in chats.iter().filter(|chat| !chat.closed && chat.uri != first) {
        if sessions.owner_of_chat(&chat.uri).await.is_some_and(|owner| owner != id) {
            others.push(chat.uri.clone());
        }
    }
    chats.retain(|chat| !others.contains(&chat.uri));
    let entry = SessionEntry { files_at, ..entry_of(&id, stored.session, stored.flags, Resting::Asleep) };
    match sessions.take_in(Arc::new(entry), &chats, generation) {
        Some(entry) => Ok(Some(entry)),
        None => Err(Thrown::new(LOST_LEASE)),
    }
}

/// Reads the chats of a session.
async fn chats_of(store: &SessionStore, stored: &mut StoredSession) -> Result<Vec<KeptChat>, Thrown> {
    match stored.chats.take() {
        Some(chats) => Ok(chats),
        None => store.chats.within(limit::STORE, (stored.id.clone(),)).await,
    }
}

async fn rows_of(store: &SessionStore) -> Result<Vec<StoredSession>, Thrown> {
    match &store.all {
        Some(all) => all.within(limit::STORE_SCAN, ()).await,
        None => one_by_one(store).await,
    }
}

async fn one(store: &SessionStore, id: String) -> Result<Option<StoredSession>, Thrown> {
    let Some(session) = store.config.within(limit::STORE, (id.clone(),)).await? else { return Ok(None) };
    let flags = store.flags.within(limit::STORE, (id.clone(),)).await?.unwrap_or_default();
    Ok(Some(StoredSession { id, session, flags, chats: None }))
}

async fn one_by_one(store: &SessionStore) -> Result<Vec<StoredSession>, Thrown> {
    let mut rows = Vec::new();
    for id in store.sessions.within(limit::STORE_SCAN, ()).await? {
        rows.extend(one(store, id).await?);
    }
    Ok(rows)
}
