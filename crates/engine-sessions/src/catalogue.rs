//! The catalogue of sessions: those in memory, and those in the store that are loaded on demand.
//!
//! If the store supports reads on demand, nothing is loaded at startup. A session is loaded by its id, its URI or the
//! URI of one of its chats. It is evicted when it is asleep, has no references, and enough other sessions were used
//! since.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use ostler_contract::cluster::SessionElsewhere;
use ostler_contract::points::{KeptChat, SessionStore, StoredSession};
use ostler_contract::read::{Read, Unknown};
use ostler_contract::{Thrown, limit};
use ostler_engine_core::refusals::LOST_LEASE;
use ostler_engine_core::tasks;
use ostler_protocol::uri::{self, Channel, SessionOf};

use super::create::entry_of;
use super::moving::{finish_moves, is_no_session};
use super::ownership::RowChange;
use super::{Place, Resting, SessionEntry, Sessions};

/// The first and the longest pause after the store failed at the start. The time doubles in between.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Only the store can tell which session a channel belongs to.
#[derive(Debug, Clone, Copy)]
pub struct NotAtHand;

/// A load of a session in progress, shared by all callers that wait for it.
pub(super) type Loading = Shared<BoxFuture<'static, Result<Option<Arc<SessionEntry>>, Thrown>>>;

impl Sessions {
    /// Whether all sessions are always in memory.
    pub(super) fn is_whole(&self) -> bool {
        self.in_memory.whole.load(Ordering::Acquire)
    }

    /// Whether all sessions are in memory now, so that the store has no other id.
    pub fn holds_all(&self) -> bool {
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
        let connected = self.access.clients.identities();
        let mut entries = self.in_memory.entries.write();
        let resting = entries.values().filter(|entry| {
            // References are only handed out by this map or by another holder.
            Arc::strong_count(entry) == 1
                && entry.can_go()
                && !watched(entry)
                && !entry.has_connected_clients(&connected)
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
            && !self.waits_for_token.load(Ordering::Acquire)
    }
}

impl Sessions {
    /// Counts the sessions of the store; loads all of them if the store does not support reads on demand.
    pub async fn open_sessions(&self) {
        self.in_memory.next_look.store(self.core.options.resting_sessions, Ordering::Release);
        let Some(store) = self.core.session_store() else {
            return self.in_memory.whole.store(true, Ordering::Release);
        };
        if store.reads_on_demand() {
            let count = match &store.count {
                Some(count) => count.read(limit::STORE, ()).await,
                None => store.sessions.read(limit::STORE, ()).await.map(|ids| ids.len() as u64),
            };
            match count {
                Read::Known(count) => {
                    self.counts
                        .total
                        .fetch_add(usize::try_from(count).unwrap_or(usize::MAX), Ordering::AcqRel);
                    self.counts.counted.store(true, Ordering::Release);
                }
                Read::Unknown(why) => {
                    self.core.log.warn(format_args!("the sessions of the store could not be counted: {why}"))
                }
            }
            let drafts = match &store.drafts {
                Some(drafts) => drafts.read(limit::STORE, ()).await,
                None => Read::Known(Vec::new()),
            };
            let drafts =
                drafts.or_assume(Vec::new(), "what they left is repaired at the next start", |why| {
                    self.core.log.warn(format_args!("the drafts of the store could not be read: {why}"));
                });
            let mut drafts = self.claimed_drafts(drafts).await;
            let trees = self.load_detached(store, &mut drafts).await;
            let undone = self.undo_unfinished(store, &drafts).await;
            let _ = self.counts.total.fetch_update(Ordering::AcqRel, Ordering::Acquire, |total| {
                Some(total.saturating_sub(undone + trees))
            });
            finish_moves(&self.core, store, &drafts).await;
            for id in drafts {
                // A failure is logged, and the next client of the session reads it again.
                let _loaded = self.session_here(&id).await;
            }
            self.drafts_loaded();
            return;
        }
        let mut pause = FIRST_PAUSE;
        // A session that is not known now would be absent as long as the host runs, and its URI could be taken.
        while let Err(why) = self.open_all(store).await {
            self.core
                .log
                .warn(format_args!("the sessions of the store could not be read: {why}; trying again"));
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        self.counts.total.store(self.in_memory.entries.read().len(), Ordering::Release);
        self.in_memory.whole.store(true, Ordering::Release);
        self.drafts_loaded();
    }

    /// Loads all sessions of a store that does not support reads on demand.
    async fn open_all(&self, store: &SessionStore) -> Result<(), Thrown> {
        let mut rows = rows_of(store).await?;
        let being_made = rows.iter().filter(|stored| is_no_session(&stored.session));
        let mut being_made: Vec<_> = being_made.map(|stored| stored.id.clone()).collect();
        self.load_detached(store, &mut being_made).await;
        if !being_made.is_empty() {
            self.undo_unfinished(store, &being_made).await;
            finish_moves(&self.core, store, &being_made).await;
            rows = rows_of(store).await?;
        }
        let generation = self.generation();
        rows.retain(|stored| !is_no_session(&stored.session));
        for stored in &mut rows {
            // A session without its chats would overwrite them.
            stored.chats = Some(chats_of(store, stored).await.known()?);
        }
        for StoredSession { id, session, flags, chats } in rows {
            let entry = entry_of(&id, session, flags, Resting::Asleep);
            self.take_in(Arc::new(entry), &chats.unwrap_or_default(), generation);
        }
        Ok(())
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
        let chats = chats_of(store, stored).await;
        chats.or_assume(Vec::new(), "the list still has the session, with what is known of it", |why| {
            self.core.log.warn(format_args!("{}: its chats could not be read: {why}", stored.id));
        })
    }

    /// Returns the session with an id, from memory or from the store.
    pub async fn session(&self, id: &str) -> Read<Option<Arc<SessionEntry>>> {
        self.load_session(id).await.into()
    }

    async fn load_session(&self, id: &str) -> Result<Option<Arc<SessionEntry>>, Thrown> {
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

    /// Returns the session that a URI names, regardless of its scheme, from memory or from the store. One that another host serves is
    /// unknown ([`SessionElsewhere`]).
    pub async fn session_at(&self, uri: &str) -> Read<Option<Arc<SessionEntry>>> {
        match uri::session_id(uri) {
            Some(id) => self.session_anywhere(id).await,
            None => Read::Known(None),
        }
    }

    /// Like [`Self::session_at`], for work that continues in the session if this host has it: none if another host serves it.
    pub async fn session_at_here(&self, uri: &str) -> Read<Option<Arc<SessionEntry>>> {
        match uri::session_id(uri) {
            Some(id) => self.session_here(id).await,
            None => Read::Known(None),
        }
    }

    /// Returns the session with an id, from memory or from the store; none if another host serves it. Only for work of this host:
    /// to a client, a session of another host is not absent.
    pub(super) async fn session_here(&self, id: &str) -> Read<Option<Arc<SessionEntry>>> {
        match self.session_anywhere(id).await {
            Read::Unknown(why) if SessionElsewhere::is(&why.0) => Read::Known(None),
            read => read,
        }
    }

    /// Like [`Self::session`], with a line in the log if it cannot be read.
    pub(super) async fn session_anywhere(&self, id: &str) -> Read<Option<Arc<SessionEntry>>> {
        let read = self.session(id).await;
        if let Read::Unknown(why) = &read
            && !SessionElsewhere::is(&why.0)
        {
            self.core.log.warn(format_args!("{id}: the session could not be read from the store: {why}"));
        }
        read
    }

    /// Returns the session that a channel belongs to, if that session is in memory, or `None` if the channel belongs to
    /// no session.
    ///
    /// # Errors
    /// The store has to be asked.
    pub fn at_hand(&self, spelled: &str) -> Result<Option<Arc<SessionEntry>>, NotAtHand> {
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

    /// Loads the session that a channel belongs to. It stays in memory while the returned reference is held. One that another host
    /// serves by now is unknown ([`SessionElsewhere`]).
    pub async fn load_channel(&self, spelled: &str) -> Read<Option<Arc<SessionEntry>>> {
        if self.is_whole() {
            return Read::Known(None);
        }
        let channel = self.channel(spelled);
        // Its chat may have been moved to another session than the one in its name.
        if let Channel::Worker { .. } = &channel {
            if let Some((entry, _)) = self.locate(&channel) {
                return Read::Known(Some(entry));
            }
            match self.stored_chat(spelled).await {
                Read::Known(None) => {}
                known_or_unknown => return known_or_unknown,
            }
        }
        match channel.session() {
            SessionOf::Id(id) => {
                if let Some(entry) = self.get(id) {
                    return Read::Known(Some(entry));
                }
                // The URI of a session can also be that of a chat.
                if matches!(channel, Channel::Session(_)) {
                    match self.stored_chat(spelled).await {
                        Read::Known(None) => {}
                        known_or_unknown => return known_or_unknown,
                    }
                }
                self.session_anywhere(id).await
            }
            SessionOf::Chat(chat) => {
                if let Some(entry) = self.session_of_chat(chat) {
                    return Read::Known(Some(entry));
                }
                match (self.stored_chat(chat).await, uri::old_default_chat(chat)) {
                    (Read::Known(None), Some(id)) => self.session_anywhere(id).await,
                    (known_or_unknown, _) => known_or_unknown,
                }
            }
            SessionOf::None => Read::Known(None),
        }
    }

    /// Loads the sessions that several channels belong to. They stay in memory while the returned references are held.
    pub async fn load_channels(&self, spelled: &[&str]) -> Read<Vec<Arc<SessionEntry>>> {
        if self.is_whole() {
            return Read::Known(Vec::new());
        }
        if let [one] = spelled {
            return self.load_channel(one).await.map(|entry| entry.into_iter().collect());
        }
        // Concurrently, so that a store that does not respond costs only one timeout.
        let loads = spelled.iter().map(|spelled| self.load_channel(spelled));
        let loaded = futures::future::join_all(loads).await.into_iter().map(Read::known);
        match loaded.collect::<Result<Vec<_>, Unknown>>() {
            Ok(loaded) => Read::Known(loaded.into_iter().flatten().collect()),
            Err(why) => Read::Unknown(why),
        }
    }

    /// Returns the session and the place in it that a channel URI names, from memory or from the store.
    pub async fn located(&self, spelled: &str) -> Read<Option<(Arc<SessionEntry>, Place)>> {
        // Held until it is located.
        let held = self.load_channel(spelled).await;
        held.map(|_held| self.locate(&self.channel(spelled)))
    }

    /// Returns the session that a chat is stored with.
    async fn stored_chat(&self, chat: &str) -> Read<Option<Arc<SessionEntry>>> {
        match self.owner_of_chat(chat).await {
            Read::Known(Some(id)) => self.session_anywhere(&id).await,
            Read::Known(None) => Read::Known(None),
            Read::Unknown(why) => Read::Unknown(why),
        }
    }

    pub async fn owner_of_chat(&self, chat: &str) -> Read<Option<String>> {
        let store = self.core.session_store();
        let Some(session_of_chat) = store.and_then(|store| store.session_of_chat.as_ref()) else {
            return Read::Known(None);
        };
        let owner = session_of_chat.read(limit::STORE, (chat.to_owned(),)).await;
        if let Read::Unknown(why) = &owner {
            self.core.log.warn(format_args!("{chat}: its session could not be read from the store: {why}"));
        }
        owner
    }

    /// Evicts sleeping sessions once many are in memory.
    pub fn let_go_of_sessions(&self) {
        self.let_go(self.core.options.resting_sessions, |entry| {
            !self.core.fanout.watchers(&entry.uri).is_empty()
                || !self.core.fanout.watchers(&entry.default_chat()).is_empty()
        });
    }

    /// Records that a session fell asleep.
    pub fn rests(&self) {
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
            Some(session) => session.read(limit::STORE, (id.clone(),)).await.known()?,
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
        Read::Known(chats) => chats,
        Read::Unknown(why) => {
            sessions.disown(&id);
            return Err(why.into());
        }
    };
    // A chat that was being moved to another session when the host was killed may be stored with both.
    let first = uri::default_chat(&stored.session.uri);
    let mut others = Vec::new();
    for chat in chats.iter().filter(|chat| !chat.closed && chat.worker_of.is_none() && chat.uri != first) {
        match sessions.owner_of_chat(&chat.uri).await {
            Read::Known(owner) if owner.as_ref().is_some_and(|owner| *owner != id) => {
                others.push(chat.uri.clone());
            }
            Read::Known(_) => {}
            Read::Unknown(why) => {
                sessions.disown(&id);
                return Err(why.into());
            }
        }
    }
    let is_of_others = |uri: &String| others.contains(uri);
    chats.retain(|chat| !is_of_others(&chat.uri) && !chat.worker_of.as_ref().is_some_and(is_of_others));
    let entry = SessionEntry { files_at, ..entry_of(&id, stored.session, stored.flags, Resting::Asleep) };
    match sessions.take_in(Arc::new(entry), &chats, generation) {
        Some(entry) => Ok(Some(entry)),
        None => Err(Thrown::new(LOST_LEASE)),
    }
}

async fn chats_of(store: &SessionStore, stored: &mut StoredSession) -> Read<Vec<KeptChat>> {
    match stored.chats.take() {
        Some(chats) => Read::Known(chats),
        None => store.chats.read(limit::STORE, (stored.id.clone(),)).await,
    }
}

async fn rows_of(store: &SessionStore) -> Result<Vec<StoredSession>, Thrown> {
    match &store.all {
        Some(all) => Ok(all.read(limit::STORE_SCAN, ()).await.known()?),
        None => one_by_one(store).await,
    }
}

async fn one(store: &SessionStore, id: String) -> Result<Option<StoredSession>, Thrown> {
    let Some(session) = store.config.read(limit::STORE, (id.clone(),)).await.known()? else {
        return Ok(None);
    };
    let flags = store.flags.read(limit::STORE, (id.clone(),)).await.known()?.unwrap_or_default();
    Ok(Some(StoredSession { id, session, flags, chats: None }))
}

async fn one_by_one(store: &SessionStore) -> Result<Vec<StoredSession>, Thrown> {
    let mut rows = Vec::new();
    for id in store.sessions.read(limit::STORE_SCAN, ()).await.known()? {
        rows.extend(one(store, id).await?);
    }
    Ok(rows)
}
