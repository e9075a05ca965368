//! The sessions of a host in a cluster: it claims a session before it loads or creates it, and releases it when it leaves
//! memory. A host without a cluster owns every session and does nothing here.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ostler_contract::cluster::{Cluster, ClusterHost, SessionElsewhere, SessionOwner};
use ostler_contract::live::Pending;
use ostler_contract::read::Read;
use ostler_contract::{Thrown, in_time, limit};
use ostler_engine_core::file_uris::file_path;
use ostler_engine_core::outbox::Closed;
use ostler_engine_core::tasks;
use ostler_protocol::RpcError;
use parking_lot::{Mutex, RwLock};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::actor::Actor;
use super::queue::Inbox;
use super::{Resting, SessionEntry, Sessions, ToSession};

/// A change of a row of the listing that no notification of this host reports.
#[derive(Debug)]
pub enum RowChange {
    /// A session of a cluster, by its id, was loaded from the store.
    Loaded(String),
    /// A session, by its id, has left memory without the result of its last writes.
    Unknown(String),
}

/// Receives changes of rows. It must not block.
pub type RowListener = Box<dyn Fn(RowChange) + Send + Sync>;

/// How often sessions that are handed over are asked to leave.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// How long sessions that leave are gathered. A client of several that leave at the same time is disconnected once.
const GATHERED: Duration = Duration::from_millis(100);
/// How long a session that is in use stays, beyond its running turns. Work that found it a moment ago starts within that time.
const IN_USE: Duration = Duration::from_secs(1);
/// How long sessions may take to leave memory for the host that has their files.
const RETURN: Duration = Duration::from_secs(10);
/// The references to the entry of a session whose actor alone uses it: its own and that of the sessions in memory.
const OWN_REFERENCES: usize = 2;

/// What this host knows of the owners of sessions in a cluster.
#[derive(Default)]
pub(super) struct Ownership {
    /// How often all sessions left memory because the host lost its lease.
    generation: AtomicU64,
    /// Whether a task hands sessions over to other hosts.
    hands_over: AtomicBool,
    /// The ids of the other hosts that take sessions, as far as known.
    serving: RwLock<HashSet<String>>,
    /// The sessions that have left and are about to be removed from memory.
    left: Mutex<Vec<Arc<SessionEntry>>>,
    /// The ids of the sessions that are being released.
    releasing: Mutex<HashSet<String>>,
    /// What receives changes of rows, once it is set.
    row_listener: OnceLock<RowListener>,
}

impl std::fmt::Debug for Ownership {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Ownership").field("serving", &self.serving).finish_non_exhaustive()
    }
}

impl Sessions {
    /// Whether the sessions in memory and their number are those of the store.
    pub(super) fn is_alone(&self) -> bool {
        self.core.cluster().is_none()
    }

    /// Returns a number that changes when all sessions leave memory because the host lost its lease.
    pub(super) fn generation(&self) -> u64 {
        self.ownership.generation.load(Ordering::SeqCst)
    }

    /// Claims a stored session that is about to be loaded. Returns the host that has its files, if that is another one, which
    /// is lost.
    ///
    /// # Errors
    /// [`SessionElsewhere`]: another host serves it. Otherwise the error of the cluster.
    pub(super) async fn own(
        &self,
        cluster: &Arc<dyn Cluster>,
        id: &str,
    ) -> Result<Option<ClusterHost>, Thrown> {
        let elsewhere = |host: ClusterHost| Thrown::from(SessionElsewhere { session: id.to_owned(), host });
        let files_at = ask(cluster.bound_to(id.to_owned())).await?.filter(|host| host.id != cluster.id());
        let serves = |host: &ClusterHost| host.is_alive && !host.is_draining;
        let better = match &files_at {
            Some(host) if serves(host) => Some(host.clone()),
            _ if cluster.is_draining() => another(cluster, id).await?,
            _ => None,
        };
        if let Some(better) = better {
            return match ask(cluster.owner(id.to_owned())).await? {
                SessionOwner::Elsewhere(owner) => Err(elsewhere(owner)),
                SessionOwner::Here => {
                    ask(cluster.release(id.to_owned())).await?;
                    Err(elsewhere(better))
                }
                SessionOwner::Nobody { .. } => Err(elsewhere(better)),
            };
        }
        match ask(cluster.claim(id.to_owned())).await? {
            SessionOwner::Here => Ok(files_at),
            SessionOwner::Elsewhere(owner) => Err(elsewhere(owner)),
            SessionOwner::Nobody { .. } => {
                Err(Thrown::new(format_args!("session {id} could not be claimed")))
            }
        }
    }

    /// Claims the id of a session that is being created. A draining host creates none for clients.
    ///
    /// # Errors
    /// `-32003` if the session exists; [`SessionElsewhere`] if another host should create it; the error of the cluster.
    pub(super) async fn own_new(&self, id: &str, is_of_client: bool) -> Result<(), RpcError> {
        let Some(cluster) = self.core.cluster() else { return Ok(()) };
        if is_of_client
            && cluster.is_draining()
            && let Some(host) = another(cluster, id).await.map_err(Thrown::into_rpc)?
        {
            return Err(SessionElsewhere { session: id.to_owned(), host }.into());
        }
        let exists = || RpcError::session_exists(format!("a session {id} exists already"));
        match ask(cluster.claim(id.to_owned())).await.map_err(Thrown::into_rpc)? {
            SessionOwner::Here => {}
            _ => return Err(exists()),
        }
        // Another host may have created it since the id was looked up.
        let Some(store) = self.core.session_store() else { return Ok(()) };
        match store.config.read(limit::STORE, (id.to_owned(),)).await {
            Read::Known(None) => Ok(()),
            Read::Known(Some(_)) => {
                self.disown(id);
                Err(exists())
            }
            Read::Unknown(why) => {
                self.disown(id);
                Err(why.into())
            }
        }
    }

    /// Records that a session needs the files of this host if one of its directories is not the same on every host.
    pub(super) async fn bind(&self, entry: &SessionEntry) -> Result<(), RpcError> {
        let Some(cluster) = self.core.cluster() else { return Ok(()) };
        let view = entry.view();
        if view.directories().iter().all(|directory| cluster.is_shared(&file_path(directory))) {
            return Ok(());
        }
        ask(cluster.bind(entry.id.clone())).await.map_err(Thrown::into_rpc)
    }

    /// Sets what receives changes of rows.
    pub fn listen_to_rows(&self, listener: RowListener) {
        let _ = self.ownership.row_listener.set(listener);
    }

    pub(super) fn row_changed(&self, change: RowChange) {
        if let Some(listener) = self.ownership.row_listener.get() {
            listener(change);
        }
    }

    /// Releases a session that has left memory. The release follows its writes and precedes a later claim.
    pub(super) fn disown(&self, id: &str) {
        drop(self.released(id));
    }

    /// Like [`Sessions::disown`]; the task ends once the session is released.
    fn released(&self, id: &str) -> Option<tokio::task::JoinHandle<()>> {
        let released = ask(self.core.cluster()?.release(id.to_owned()));
        let (sessions, log, id) = (self.me(), self.core.log.clone(), id.to_owned());
        self.ownership.releasing.lock().insert(id.clone());
        Some(tasks::spawn(async move {
            if let Err(why) = released.await {
                log.warn(format_args!("session {id} could not be released: {why}"));
            }
            if let Some(sessions) = sessions {
                sessions.ownership.releasing.lock().remove(&id);
            }
        }))
    }

    /// Removes the sessions that have left from memory and releases them; with them sleeping ones that are handed over.
    /// Their clients are disconnected, so that they reconnect: other hosts can serve them from now on.
    fn remove_left(&self) {
        let mut gone = std::mem::take(&mut *self.ownership.left.lock());
        {
            let entries = self.in_memory.entries.write();
            let at_rest = entries.values().filter(|entry| self.belongs_elsewhere(entry));
            gone.extend(at_rest.filter(|entry| entry.leaves_at_rest()).cloned());
        }
        // Before the pasts of the channels end, so that none of the clients sees a later number.
        for channel in gone.iter().flat_map(|entry| self.channels_of(entry)) {
            for connection in self.core.fanout.watchers(&channel) {
                self.access.clients.close(connection, Closed::Moved);
            }
        }
        let mut entries = self.in_memory.entries.write();
        // Without its lease, the host has removed all sessions.
        gone.retain(|entry| entries.get(&entry.id).is_some_and(|current| Arc::ptr_eq(current, entry)));
        for entry in &gone {
            entries.remove(&entry.id);
            self.drafts.lock().remove(&entry.id);
            drop(self.left_memory(entry));
        }
        self.in_memory.chats.write().retain(|_, session| !gone.iter().any(|entry| entry.id == *session));
    }

    /// Removes a session from memory, a change of which could not be stored, and releases it. Its row is read again once no
    /// write of it can follow.
    pub(super) fn leave_memory(&self, entry: &Arc<SessionEntry>) {
        let mut entries = self.in_memory.entries.write();
        if entries.get(&entry.id).is_some_and(|current| Arc::ptr_eq(current, entry)) {
            entries.remove(&entry.id);
            self.drafts.lock().remove(&entry.id);
            let released = self.left_memory(entry);
            self.in_memory.chats.write().retain(|_, session| *session != entry.id);
            if let (Some(released), Some(sessions)) = (released, self.me()) {
                let id = entry.id.clone();
                tasks::spawn(async move {
                    let _ = released.await;
                    sessions.row_changed(RowChange::Unknown(id));
                });
            }
        }
    }

    /// Releases a session that was evicted, while `entries` is locked. In a cluster, the task ends once it is released.
    pub(super) fn left_memory(&self, entry: &SessionEntry) -> Option<tokio::task::JoinHandle<()>> {
        if self.is_alone() {
            return None;
        }
        let channels = self.channels_of(entry);
        self.core.fanout.end_pasts(channels.iter().map(String::as_str));
        self.released(&entry.id)
    }

    /// Asks sessions without a running turn that belong to another host to leave memory, and those that did not since
    /// `IN_USE` to leave although something uses them. `asked_at` has when each was asked first.
    async fn hand_over(&self, asked_at: &mut HashMap<String, Instant>) {
        let now = Instant::now();
        let asked: Vec<_> = self
            .all()
            .into_iter()
            .filter(|entry| self.belongs_elsewhere(entry) && !entry.is_at_work())
            .map(|entry| {
                let since = asked_at.get(&entry.id).copied().unwrap_or(now);
                let mailbox = match &*entry.mailbox.lock() {
                    Resting::Open(mailbox, _) => Some(mailbox.clone()),
                    _ => None,
                };
                (entry.id.clone(), since, mailbox)
            })
            .collect();
        *asked_at = asked.iter().map(|(id, since, _)| (id.clone(), *since)).collect();
        for (_, since, mailbox) in asked {
            if let Some(mailbox) = mailbox {
                let _ = mailbox.send(ToSession::Leave { even_if_used: now >= since + IN_USE });
            }
        }
        tokio::time::sleep(ASK_AGAIN).await;
        self.remove_left();
    }

    /// Hands all sessions over for as long as the host drains.
    pub async fn hand_all_over(self: Arc<Self>) {
        if self.ownership.hands_over.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut asked_at = HashMap::new();
        while self.is_draining() && !self.core.is_stopping() {
            self.hand_over(&mut asked_at).await;
        }
        self.ownership.hands_over.store(false, Ordering::Release);
        self.go_on();
    }

    /// Lets sessions whose queues were left to another host start them, if they stay after all.
    fn go_on(&self) {
        for entry in self.all() {
            if let Resting::Open(mailbox, _) = &*entry.mailbox.lock() {
                let _ = mailbox.send(ToSession::GoOn);
            }
        }
    }

    /// Takes note of the hosts, and hands sessions over to those that have their files and are back.
    pub async fn return_to(&self, hosts: &[ClusterHost]) {
        self.hosts_are(hosts);
        let (end, mut asked_at) = (Instant::now() + RETURN, HashMap::new());
        while self.all().iter().any(|entry| self.returns(entry)) && Instant::now() < end {
            self.hand_over(&mut asked_at).await;
        }
    }

    /// Takes note of the hosts that take sessions.
    pub fn hosts_are(&self, hosts: &[ClusterHost]) {
        let own = self.core.cluster().map(|cluster| cluster.id());
        let serve = hosts.iter().filter(|host| host.is_alive && !host.is_draining);
        let others = serve.filter(|host| own.as_ref() != Some(&host.id));
        let serving = others.map(|host| host.id.clone()).collect();
        let before = std::mem::replace(&mut *self.ownership.serving.write(), serving);
        if before != *self.ownership.serving.read() {
            self.go_on();
        }
    }

    pub(super) fn is_draining(&self) -> bool {
        self.core.cluster().is_some_and(|cluster| cluster.is_draining())
    }

    /// Returns whether a session in memory belongs to another host that serves.
    fn returns(&self, entry: &SessionEntry) -> bool {
        entry.files_at.as_ref().is_some_and(|host| self.ownership.serving.read().contains(&host.id))
    }

    /// Returns whether another host should serve a session in memory: the one with its files is back, or this host drains and
    /// another one takes sessions.
    pub(super) fn belongs_elsewhere(&self, entry: &SessionEntry) -> bool {
        self.returns(entry) || (self.is_draining() && !self.ownership.serving.read().is_empty())
    }

    /// Returns whether a session is about to move to another host: nothing runs and it belongs elsewhere, or it is being
    /// released.
    pub fn is_leaving(&self, id: &str) -> bool {
        self.get(id)
            .is_some_and(|entry| entry.has_left() || (!entry.is_at_work() && self.belongs_elsewhere(&entry)))
            || self.ownership.releasing.lock().contains(id)
    }

    /// Removes every session from memory without a write, because other hosts may own them by now.
    pub async fn abandon_all(&self) {
        self.ownership.generation.fetch_add(1, Ordering::SeqCst);
        let waits: Vec<_> = self
            .all()
            .into_iter()
            .filter_map(|entry| {
                let (done, wait) = oneshot::channel();
                // The creation of a session fails later, because the generation differs.
                let is_served = !entry.is_being_created.load(Ordering::SeqCst);
                let is_told = match &*entry.mailbox.lock() {
                    Resting::Open(mailbox, _) if is_served => {
                        mailbox.send(ToSession::Abandon { done }).is_ok()
                    }
                    _ => false,
                };
                if !is_told {
                    entry.end();
                }
                is_told.then_some(wait)
            })
            .collect();
        futures::future::join_all(waits).await;
        let mut entries = self.in_memory.entries.write();
        let channels: Vec<String> = entries.values().flat_map(|entry| self.channels_of(entry)).collect();
        self.core.fanout.end_pasts(channels.iter().map(String::as_str));
        entries.clear();
        self.in_memory.chats.write().clear();
        self.drafts.lock().clear();
    }
}

impl Actor {
    /// Whether the session can move to another host: nothing runs, and nothing is in progress that only memory has.
    fn can_leave(&self) -> bool {
        self.is_unoccupied()
            && self.can_rest()
            && !self.has_queued_run()
            && self.sessions.belongs_elsewhere(&self.entry)
    }

    /// Stores the state, closes the backends, and leaves memory for another host, while clients stay connected. Returns false
    /// if a message arrived in the meantime, or something uses the session; it then stays.
    pub(super) async fn leave(&mut self, inbox: &mut Inbox, even_if_used: bool) -> bool {
        if !self.can_leave() {
            return false;
        }
        self.settle_writes().await;
        self.keep_unsaved().await;
        self.close_backends(false).await;
        let sessions = self.sessions.clone();
        if !self.can_leave() || !sessions.leaves(&self.entry, inbox, even_if_used) {
            return false;
        }
        self.entry.forgets_memory();
        sessions.rests();
        true
    }
}

impl Sessions {
    /// Ends the mailbox of a session that leaves, and removes it from memory a moment later. Returns false if a message is in
    /// the mailbox, a change is not stored, or something uses the session.
    fn leaves(self: &Arc<Self>, entry: &Arc<SessionEntry>, inbox: &mut Inbox, even_if_used: bool) -> bool {
        // What follows the directories holds a reference for each.
        let own = OWN_REFERENCES + self.workspace.references_to(&entry.uri);
        {
            // Nothing can find the session while this is locked.
            let _entries = self.in_memory.entries.write();
            let mut resting = entry.mailbox.lock();
            // The task that removes an unused draft holds a reference.
            let is_used = entry.view().record.draft.is_none() && Arc::strong_count(entry) > own;
            let is_open = matches!(*resting, Resting::Open(..));
            if !inbox.is_empty() || !is_open || !entry.is_stored() || (is_used && !even_if_used) {
                return false;
            }
            *resting = Resting::Left;
            inbox.close();
        }
        entry.end_tools();
        let mut left = self.ownership.left.lock();
        left.push(entry.clone());
        if left.len() == 1 {
            let sessions = self.clone();
            tasks::spawn(async move {
                tokio::time::sleep(GATHERED).await;
                sessions.remove_left();
            });
        }
        true
    }
}

impl SessionEntry {
    /// Whether another host serves the session from now on.
    fn has_left(&self) -> bool {
        matches!(*self.mailbox.lock(), Resting::Left)
    }

    /// Ends the session in memory if it is asleep, stored and not in use; tokens that only memory has are sent again by clients.
    /// Returns whether it did.
    fn leaves_at_rest(self: &Arc<Self>) -> bool {
        // The task that removes an unused draft holds a reference.
        let is_draft = self.view().record.draft.is_some();
        let mut resting = self.mailbox.lock();
        let leaves = matches!(*resting, Resting::Asleep)
            && self.is_stored()
            && (is_draft || Arc::strong_count(self) == 1);
        if leaves {
            *resting = Resting::Left;
        }
        leaves
    }

    /// Returns why the session cannot continue here: another host has its files.
    pub(super) fn is_away(&self) -> Option<String> {
        let host = self.files_at.as_ref()?;
        let state = if host.is_alive { "about to stop" } else { "not running" };
        Some(format!(
            "the files of this session are on host {}, which is {state}; start that host again, or start a new session",
            host.id
        ))
    }
}

/// Returns another host that takes new sessions: the same one for everybody who asks about a session.
pub async fn another(cluster: &Arc<dyn Cluster>, session: &str) -> Result<Option<ClusterHost>, Thrown> {
    let (mut hosts, own) = (ask(cluster.hosts()).await?, cluster.id());
    hosts.retain(|host| host.is_alive && !host.is_draining && host.id != own);
    if hosts.is_empty() {
        return Ok(None);
    }
    let at = session.bytes().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(byte)));
    let at = at % hosts.len();
    Ok(Some(hosts.swap_remove(at)))
}

/// Waits for an answer of the cluster, within the limit of a store.
pub async fn ask<T>(answer: Pending<T>) -> Result<T, Thrown> {
    in_time(limit::STORE, answer).await
}
