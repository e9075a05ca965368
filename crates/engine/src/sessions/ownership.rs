//! The sessions of a host in a cluster: it claims a session before it loads or creates it, and releases it when it leaves
//! memory. A host without a cluster owns every session and does nothing here.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ostler_contract::cluster::{Cluster, ClusterHost, SessionElsewhere, SessionOwner};
use ostler_contract::live::Pending;
use ostler_contract::read::Read;
use ostler_contract::{Thrown, in_time, limit};
use ostler_protocol::RpcError;
use parking_lot::RwLock;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Resting, SessionEntry, Sessions, ToSession};
use crate::core::file_uris::file_path;
use crate::core::outbox::Closed;
use crate::core::tasks;

/// A change of a row of the listing that no notification of this host reports.
#[derive(Debug)]
pub(crate) enum RowChange {
    /// A session of a cluster, by its id, was loaded from the store.
    Loaded(String),
    /// A session, by its id, has left memory without the result of its last writes.
    Unknown(String),
}

/// Receives changes of rows. It must not block.
pub(crate) type RowListener = Box<dyn Fn(RowChange) + Send + Sync>;

/// How long sessions may take to fall asleep before they are looked at again.
const REST: Duration = Duration::from_millis(200);
/// How long sessions may take to leave memory for the host that has their files.
const RETURN: Duration = Duration::from_secs(5);

/// What this host knows of the owners of sessions in a cluster.
#[derive(Default)]
pub(super) struct Ownership {
    /// How often all sessions left memory because the host lost its lease.
    generation: AtomicU64,
    /// Whether a task hands sessions over to other hosts.
    hands_over: AtomicBool,
    /// The ids of the hosts that serve, as far as known, which get the sessions back whose files they have.
    serving: RwLock<HashSet<String>>,
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
    pub(crate) fn listen_to_rows(&self, listener: RowListener) {
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
        let (log, id) = (self.core.log.clone(), id.to_owned());
        Some(tasks::spawn(async move {
            if let Err(why) = released.await {
                log.warn(format_args!("session {id} could not be released: {why}"));
            }
        }))
    }

    /// Removes sleeping sessions from memory and releases them, if `which` returns true.
    fn release_resting(&self, which: impl Fn(&SessionEntry) -> bool) {
        let mut entries = self.in_memory.entries.write();
        let gone: Vec<Arc<SessionEntry>> =
            entries.values().filter(|entry| which(entry) && entry.leaves_at_rest()).cloned().collect();
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

    /// Moves sessions without a running turn out of memory, for other hosts, if `which` returns true. Clients that subscribe to
    /// them are disconnected, so that they reconnect. Returns whether none of these sessions is left.
    pub(crate) async fn hand_over(&self, which: impl Fn(&SessionEntry) -> bool) -> bool {
        for entry in self.all().into_iter().filter(|entry| which(entry) && !entry.view().is_running()) {
            for channel in self.channels_of(&entry) {
                for connection in self.core.fanout.watchers(&channel) {
                    self.access.clients.close(connection, Closed::Moved);
                }
            }
            if let Resting::Open(mailbox, _) = &*entry.mailbox.lock() {
                let _ = mailbox.send(ToSession::Rest);
            }
        }
        tokio::time::sleep(REST).await;
        self.release_resting(&which);
        !self.all().iter().any(|entry| which(entry))
    }

    /// Hands all sessions over for as long as the host drains.
    pub(crate) async fn hand_all_over(self: Arc<Self>) {
        if self.ownership.hands_over.swap(true, Ordering::AcqRel) {
            return;
        }
        while self.core.cluster().is_some_and(|cluster| cluster.is_draining()) && !self.core.is_stopping() {
            self.hand_over(|_| true).await;
        }
        self.ownership.hands_over.store(false, Ordering::Release);
    }

    /// Hands sessions over to hosts that have their files and are back.
    pub(crate) async fn return_to(&self, hosts: &[ClusterHost]) {
        let serve = hosts.iter().filter(|host| host.is_alive && !host.is_draining);
        *self.ownership.serving.write() = serve.map(|host| host.id.clone()).collect();
        let returns = |entry: &SessionEntry| self.returns(entry);
        let end = Instant::now() + RETURN;
        while self.all().iter().any(|entry| returns(entry)) && Instant::now() < end {
            self.hand_over(returns).await;
        }
    }

    /// Returns whether a session in memory belongs to another host that serves.
    fn returns(&self, entry: &SessionEntry) -> bool {
        entry.files_at.as_ref().is_some_and(|host| self.ownership.serving.read().contains(&host.id))
    }

    /// Returns whether a session in memory is about to move to another host: it has no running turn, and this host drains, or
    /// the host with its files is back.
    pub(crate) fn is_leaving(&self, id: &str) -> bool {
        let is_draining = || self.core.cluster().is_some_and(|cluster| cluster.is_draining());
        self.get(id)
            .is_some_and(|entry| !entry.view().is_running() && (self.returns(&entry) || is_draining()))
    }

    /// Removes every session from memory without a write, because other hosts may own them by now.
    pub(crate) async fn abandon_all(&self) {
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

impl SessionEntry {
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
            *resting = Resting::Gone;
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
pub(crate) async fn another(
    cluster: &Arc<dyn Cluster>,
    session: &str,
) -> Result<Option<ClusterHost>, Thrown> {
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
pub(crate) async fn ask<T>(answer: Pending<T>) -> Result<T, Thrown> {
    in_time(limit::STORE, answer).await
}
