//! The sessions in memory, and which of them has a chat with a separate URI.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use ostler_protocol::uri::{self, Channel};
use parking_lot::{Mutex, RwLock};

use super::catalogue::Loading;
use super::{Place, SessionEntry, Sessions};

/// The sessions in memory: every awake one, and sleeping ones that were used recently.
#[derive(Debug, Default)]
pub(super) struct InMemory {
    /// The sessions, by id.
    pub entries: RwLock<HashMap<String, Arc<SessionEntry>>>,
    /// The sessions' ids, by the URI of a chat that has a separate URI.
    pub chats: RwLock<HashMap<String, String>>,
    /// The loads in progress, by the session's id.
    pub loading: Mutex<HashMap<String, Loading>>,
    /// The number of sessions in memory from which eviction is attempted.
    pub next_look: AtomicUsize,
    /// Whether all sessions are in memory: there is no store, or it cannot be read on demand.
    pub whole: AtomicBool,
    /// The counter for `SessionEntry::used`.
    uses: AtomicU64,
}

impl Sessions {
    /// Returns the session with an id, if it is in memory.
    pub fn get(&self, id: &str) -> Option<Arc<SessionEntry>> {
        let entry = self.in_memory.entries.read().get(id).cloned()?;
        self.touch(&entry);
        Some(entry)
    }

    pub(super) fn touch(&self, entry: &SessionEntry) {
        entry.used.store(self.in_memory.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Returns the session that a URI names, regardless of its scheme, if it is in memory.
    pub fn by_uri(&self, uri: &str) -> Option<Arc<SessionEntry>> {
        self.get(uri::session_id(uri)?)
    }

    /// Returns all sessions in memory; every awake session is among them.
    pub fn all(&self) -> Vec<Arc<SessionEntry>> {
        self.in_memory.entries.read().values().cloned().collect()
    }

    /// Returns the session in memory that has a chat with this separate URI.
    pub fn session_of_chat(&self, chat: &str) -> Option<Arc<SessionEntry>> {
        let owner = self.in_memory.chats.read().get(chat).cloned();
        owner.and_then(|id| self.get(&id))
    }

    /// Parses a channel URI, using the chats in memory: a chat may have any URI that its client chose.
    pub fn channel(&self, spelled: &str) -> Channel {
        match self.in_memory.chats.read().contains_key(spelled) {
            true => Channel::Chat(spelled.to_owned()),
            false => Channel::parse(spelled),
        }
    }

    /// Returns the session and the place in it that a channel names, if it is in memory.
    pub fn locate(&self, channel: &Channel) -> Option<(Arc<SessionEntry>, Place)> {
        match channel {
            Channel::Session(id) => Some((self.get(id)?, Place::Session)),
            Channel::DefaultChat(id) => Some((self.get(id)?, Place::DefaultChat)),
            Channel::Annotations(id) => Some((self.get(id)?, Place::Annotations)),
            Channel::Chat(chat) => {
                if let Some(entry) = self.session_of_chat(chat) {
                    return Some((entry, Place::Chat(chat.clone())));
                }
                let entry = self.get(uri::old_default_chat(chat)?)?;
                Some((entry, Place::DefaultChat))
            }
            Channel::Worker { session, call } => {
                let named = self.by_uri(session);
                let chat = uri::worker_chat(named.as_ref().map_or(session, |entry| &entry.uri), call);
                // It may have been moved with the chat that opened it.
                let entry = self.session_of_chat(&chat).or(named)?;
                Some((entry, Place::Chat(chat)))
            }
            _ => None,
        }
    }

    /// Adds a session to the catalogue. Returns whether its id was free.
    pub(super) fn claim(&self, entry: &Arc<SessionEntry>) -> bool {
        match self.in_memory.entries.write().entry(entry.id.clone()) {
            Entry::Occupied(_) => false,
            Entry::Vacant(free) => {
                self.touch(entry);
                free.insert(entry.clone());
                self.counts.total.fetch_add(1, Ordering::AcqRel);
                true
            }
        }
    }

    /// Removes a session from the catalogue.
    pub fn remove(&self, entry: &SessionEntry) {
        let mut entries = self.in_memory.entries.write();
        if entries.get(&entry.id).is_some_and(|held| std::ptr::eq(&**held, entry)) {
            entries.remove(&entry.id);
            // In a cluster, the session may be one that another host created.
            let _ = self
                .counts
                .total
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |total| Some(total.saturating_sub(1)));
            self.drafts.lock().remove(&entry.id);
        }
        self.removals.lock().add(&entry.id);
        self.in_memory.chats.write().retain(|_, session| *session != entry.id);
    }

    /// Whether a chat belongs to a session.
    pub(super) fn holds(&self, entry: &SessionEntry, chat: &str) -> bool {
        chat == uri::default_chat(&entry.uri) || self.in_memory.chats.read().get(chat) == Some(&entry.id)
    }

    /// Claims a new chat's URI for a session. Returns whether it was free.
    pub(super) fn claim_new_chat(&self, chat: &str, session: &str) -> bool {
        if self.locate(&self.channel(chat)).is_some() {
            return false;
        }
        match self.in_memory.chats.write().entry(chat.to_owned()) {
            Entry::Occupied(_) => false,
            Entry::Vacant(free) => {
                free.insert(session.to_owned());
                true
            }
        }
    }

    /// Records that a chat now belongs to another session.
    pub(super) fn give_chat(&self, chat: &str, session: &str) {
        self.in_memory.chats.write().insert(chat.to_owned(), session.to_owned());
    }

    /// Releases a chat's URI.
    pub(super) fn release_chat(&self, chat: &str) {
        self.in_memory.chats.write().remove(chat);
    }

    /// Records which session a chat with a separate URI belongs to. Returns whether the URI was free or already
    /// belonged to that session.
    pub(super) fn claim_chat(&self, chat: &str, session: &str) -> bool {
        match self.in_memory.chats.write().entry(chat.to_owned()) {
            Entry::Occupied(held) => held.get() == session,
            Entry::Vacant(free) => {
                free.insert(session.to_owned());
                true
            }
        }
    }
}
