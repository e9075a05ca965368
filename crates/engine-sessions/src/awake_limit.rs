//! The limit of sessions in memory. Beyond it, idle sessions are put to sleep.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ostler_contract::limit;
use ostler_engine_core::ids::ConnectionId;
use ostler_protocol::RpcError;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::actor::Actor;
use super::annotations::Annotations;
use super::create::state_of;
use super::queue::Inbox;
use super::reported::any_runs;
use super::{Resting, SessionEntry, Snapshots, ToSession};
use crate::Sessions;

/// How long a new session waits for other sessions to fall asleep.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a waiting session asks idle sessions to sleep again.
const ASK_AGAIN: Duration = Duration::from_millis(250);

/// The capacity, in messages, that an empty list may retain.
const KEPT: usize = 8;
/// How long a session without subscribers and running turns stays in memory.
pub(super) const SLEEP_AFTER: Duration = Duration::from_secs(600);

/// The number of sessions in memory.
#[derive(Debug, Default)]
pub(super) struct Census {
    awake: AtomicUsize,
    fewer: Notify,
    asking: AtomicBool,
}

/// The place of one session in memory; dropping it frees the place.
#[derive(Debug)]
pub(super) struct Awake {
    census: Arc<Census>,
    /// Whether the session counts. A session that is being created counts once there is room for it.
    counts: AtomicBool,
}

impl Census {
    pub fn enter(self: &Arc<Self>) -> Awake {
        self.awake.fetch_add(1, Ordering::AcqRel);
        Awake { census: self.clone(), counts: AtomicBool::new(true) }
    }

    /// Registers a session that is being created, which does not count yet.
    pub fn come(self: &Arc<Self>) -> Awake {
        Awake { census: self.clone(), counts: AtomicBool::new(false) }
    }

    pub fn count(&self) -> usize {
        self.awake.load(Ordering::Acquire)
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        if *self.counts.get_mut() {
            self.census.awake.fetch_sub(1, Ordering::AcqRel);
        }
        self.census.fewer.notify_waiters();
    }
}

impl Awake {
    /// Counts the session if at most `most` sessions are awake then. Returns whether it counts.
    fn count_within(&self, most: usize) -> bool {
        if self.counts.load(Ordering::Acquire) {
            return true;
        }
        let one_more = |awake: usize| (awake < most).then_some(awake + 1);
        let counts = self.census.awake.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).is_ok();
        self.counts.store(counts, Ordering::Release);
        counts
    }
}

impl SessionEntry {
    /// Counts a session that is being created. A session that was disposed in the meantime needs no room.
    pub(super) fn counts_within(&self, most: usize) -> bool {
        match &*self.mailbox.lock() {
            Resting::Open(_, awake) => awake.count_within(most),
            _ => true,
        }
    }
}

impl Sessions {
    /// Waits until there is room for a new session in memory, then counts it.
    ///
    /// # Errors
    /// All sessions in memory run a turn or have subscribers.
    pub(super) async fn room_for_session(&self, entry: &SessionEntry) -> Result<(), RpcError> {
        let census = &self.limits.census;
        let most = self.core.options.limits.awake_sessions;
        let room = async {
            loop {
                let fewer = census.fewer.notified();
                tokio::pin!(fewer);
                fewer.as_mut().enable();
                if entry.counts_within(most) {
                    return;
                }
                self.rest_idle_sessions();
                let _ = tokio::time::timeout(ASK_AGAIN, fewer).await;
            }
        };
        tokio::time::timeout(PATIENCE, room).await.map_err(|_| full(most))
    }

    /// Checks whether a session may be woken. Sessions with subscribers may exceed the limit by a quarter. Sessions
    /// that are about to sleep do not count, as long as the total stays within two and a quarter times the limit.
    ///
    /// # Errors
    /// Too many sessions are in memory, and none of them can sleep now.
    pub fn may_wake(&self, entry: &SessionEntry) -> Result<(), RpcError> {
        let most = self.core.options.limits.awake_sessions;
        if self.awake() < most || entry.is_awake() {
            return Ok(());
        }
        let staying = self.awake().saturating_sub(self.rest_idle_sessions());
        match staying > most + most / 4 || self.awake() > 2 * most + most / 4 {
            true => Err(full(most)),
            false => Ok(()),
        }
    }

    /// Ends a connection's subscription to a channel. If it was the channel's last one, the delay until the session
    /// sleeps starts again.
    pub fn unsubscribe(&self, channel: &str, connection: ConnectionId) {
        if !self.core.fanout.unsubscribe(channel, connection) || self.core.fanout.is_watched(channel) {
            return;
        }
        if let Some((entry, _)) = self.locate(&self.channel(channel))
            && let Resting::Open(mailbox, _) = &*entry.mailbox.lock()
        {
            let _ = mailbox.send(ToSession::Unwatched);
        }
    }

    /// Asks idle sessions to sleep, the least recently changed first: as many as exceed the limit, and a few more.
    /// Returns how many were asked.
    pub(super) fn rest_idle_sessions(&self) -> usize {
        let most = self.core.options.limits.awake_sessions;
        let surplus = (self.limits.census.count() + 1).saturating_sub(most) + most / 16;
        let mut asked = 0;
        let enough = |_: &SessionEntry| {
            asked += 1;
            asked <= surplus
        };
        self.rest_idle(enough).unwrap_or(surplus)
    }

    /// Asks idle sessions to sleep, the least recently changed first, for as long as `wanted` returns true. Returns how
    /// many were asked, or `None` if another call is asking at the same time.
    pub(super) fn rest_idle(&self, mut wanted: impl FnMut(&SessionEntry) -> bool) -> Option<usize> {
        let census = &self.limits.census;
        if census.asking.swap(true, Ordering::AcqRel) {
            return None;
        }
        let mut idle: Vec<(String, Arc<SessionEntry>)> = self
            .all()
            .into_iter()
            .filter(|entry| entry.is_awake() && !self.core.fanout.is_watched(&entry.uri))
            .filter_map(|entry| {
                let view = entry.view();
                let is_idle = !entry.is_at_work() && !self.core.fanout.is_watched(&view.default_chat);
                is_idle.then(|| (view.summary.modified_at.clone(), entry))
            })
            .collect();
        idle.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        let mut asked = 0;
        for (_, entry) in idle.iter().take_while(|(_, entry)| wanted(entry)) {
            asked += 1;
            if let Resting::Open(mailbox, _) = &*entry.mailbox.lock() {
                let _ = mailbox.send(ToSession::Rest);
            }
        }
        census.asking.store(false, Ordering::Release);
        Some(asked)
    }
}

fn full(most: usize) -> RpcError {
    RpcError::internal(format!(
        "{most} sessions are at work or watched, as many as limits.awakeSessions allows; end or leave one, then try again"
    ))
}

impl Actor {
    /// Whether no turn runs and no connection is subscribed.
    pub(super) fn is_idle(&self) -> bool {
        self.audience.count() == 0
            && self.chats.iter().all(|chat| chat.audience.count() == 0)
            && self.is_unoccupied()
    }

    /// Whether no turn runs, and nothing that was begun waits for its end.
    pub(super) fn is_unoccupied(&self) -> bool {
        self.opening.is_empty()
            && self.preparing.is_empty()
            && !matches!(self.annotations, Annotations::Reading(_))
            && self.chats.iter().all(|chat| chat.running().is_none() && chat.gathered.is_none())
            && self.chats.iter().all(|chat| chat.asking.is_none() && chat.steering.is_empty())
            && !self.works_in_background()
    }

    /// Whether a backend works in the background, which ends with it.
    pub(super) fn works_in_background(&self) -> bool {
        (0..self.chats.len()).any(|at| {
            has_some(self.chats[at].state.background_work.as_deref())
                && self.chats[self.lead_of(at)].backend.as_ref().is_some_and(|backend| !backend.is_dead())
        })
    }

    pub(super) fn may_sleep(&self) -> bool {
        self.is_idle() && self.can_rest() && self.busy_at + SLEEP_AFTER <= Instant::now()
    }

    /// Whether the whole state can be read back from a store.
    pub(super) fn can_rest(&self) -> bool {
        self.annotations_rest()
            && self.core.session_store().is_some()
            && self.core.turn_store().is_some_and(|store| store.turns.is_some())
    }

    /// Stores the state, closes the backends and ends the actor. Returns false if a message arrived in the meantime;
    /// the session then stays awake.
    pub(super) async fn fall_asleep(&mut self, inbox: &mut Inbox) -> bool {
        // The next load of the session reads the store.
        self.settle_writes().await;
        self.keep_unsaved().await;
        if !self.pay(Instant::now() + limit::STORE).await {
            self.busy_at = Instant::now();
            return false;
        }
        let waits_for_token = self.any_waits_for_token();
        {
            let mut resting = self.entry.mailbox.lock();
            if !inbox.is_empty() || !matches!(*resting, Resting::Open(..)) {
                return false;
            }
            let forgets = self.forgets_state();
            let clients = std::mem::take(&mut self.state.active_clients);
            self.entry.rest_clients(clients, &self.active_clients);
            self.entry.waits_for_token.store(waits_for_token, Ordering::Release);
            *resting = Resting::Asleep;
            inbox.close();
            if forgets {
                let channels = self.chats.iter().map(|chat| &*chat.uri).chain([&*self.entry.uri]);
                self.core.fanout.end_pasts(channels);
            }
        }
        self.close_backends(false).await;
        self.entry.forgets_memory();
        self.sessions.rests();
        true
    }
}

impl Actor {
    /// Whether clients have seen a state that the session does not have when it wakes, and that no action removes. Facts
    /// of its directories are read again, and an action says what they are.
    fn forgets_state(&self) -> bool {
        let (state, woken) = (&self.state, state_of(&self.entry, None));
        state.creation_error != woken.creation_error
            || has_some(Some(&state.active_clients))
            || state.customizations.iter().flatten().any(|listed| self.client_plugins.lists(listed))
            || any_runs(state.customizations.as_deref())
            || self.core.report_store().is_none()
            || self.entry.lacks_reports.load(Ordering::Acquire)
            || self.chats.iter().any(|chat| {
                let chat_state = &chat.state;
                chat_state.activity != chat.stored_activity
                    || chat_state.changes.is_some()
                    || has_some(chat_state.background_work.as_deref())
                    || chat_state.meta.is_some()
            })
    }
}

/// Whether a list has items: a list of which all were removed and none at all are the same to clients.
pub(super) fn has_some<T>(list: Option<&[T]>) -> bool {
    list.is_some_and(|list| !list.is_empty())
}

/// Frees the memory of an empty list.
pub(super) fn release<T>(list: &mut Vec<T>) {
    if list.is_empty() && list.capacity() > KEPT {
        *list = Vec::new();
    }
}

/// Rejects a message that waits for a session that cannot be started.
pub(super) fn refuse(sessions: &Sessions, message: ToSession, gone: &RpcError) {
    let gone = gone.clone();
    match message {
        ToSession::Subscribe(subscription) => match subscription.answer {
            Snapshots::Subscribe(responder) => responder.fail(gone),
            Snapshots::Collect(collect) => {
                let _ = collect.send(None);
            }
        },
        ToSession::FetchTurns { responder, .. } => responder.fail(gone),
        ToSession::Room { posted: Some(posted), .. } => refuse(sessions, posted.message, &gone),
        ToSession::Dispatch(dispatch) => dispatch.refuse(&gone, sessions.core.fanout.seq()),
        ToSession::Turn { taken, .. } => {
            let _ = taken.send(Err(gone.message));
        }
        ToSession::Dispose { done } => {
            let _ = done.send(false);
        }
        ToSession::Close { done } | ToSession::Abandon { done } => {
            let _ = done.send(());
        }
        _ => {}
    }
}

/// Leaves a session asleep in the store and rejects the messages that wait for it.
pub(super) fn stay_asleep(sessions: &Sessions, entry: &SessionEntry, mut inbox: Inbox, refused: &RpcError) {
    {
        let mut resting = entry.mailbox.lock();
        if matches!(*resting, Resting::Open(..)) {
            *resting = Resting::Asleep;
        }
        inbox.close();
    }
    while let Some(posted) = inbox.try_next() {
        refuse(sessions, posted.message, refused);
    }
}
