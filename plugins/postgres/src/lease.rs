//! The lease of the host, which allows it to write.
//!
//! A row of `host` is the lease, by the clock of the database. It is renewed every 2 seconds and expires after 8. A host that
//! could not renew it for 6 seconds by its own clock stops writing before another one can take over. A host without a cluster
//! resumes once it can renew. A host of a cluster lets the lapsed lease go, because another host may own its sessions by then,
//! and joins again under a new name of its run once no session is in its memory.

use std::sync::Arc;
use std::time::Duration;

use ostler_contract::Thrown;
use ostler_contract::cluster::{ClusterEvent, ClusterListener};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

/// How long a lease is valid, by the clock of the database.
pub const LENGTH: &str = "8 seconds";
/// How long it is valid for the host itself, from the moment a renewal was sent.
pub const VALID: Duration = Duration::from_secs(6);

/// The state of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Valid until then.
    Until(Instant),
    /// A host of a cluster could not renew it, or another host took over; it can join again.
    Lapsed,
    /// Another host took over permanently.
    Lost,
    /// Released.
    Closed,
}

struct Inner {
    /// This run of the host.
    incarnation: Arc<str>,
    /// When the last successful renewal was sent, and how long it took.
    renewed: (Instant, Duration),
}

/// The lease of this host.
pub struct Lease {
    /// The stable name of the host.
    pub id: String,
    /// Whether the host is in a cluster.
    pub is_member: bool,
    inner: Mutex<Inner>,
    state: watch::Sender<State>,
    listeners: Mutex<Vec<ClusterListener>>,
}

impl Lease {
    /// Creates a lease that was acquired by a statement sent at this time.
    pub fn new(id: String, is_member: bool, incarnation: &str, sent: Instant) -> Arc<Self> {
        let inner = Inner { incarnation: incarnation.into(), renewed: (sent, sent.elapsed()) };
        Arc::new(Self {
            id,
            is_member,
            inner: Mutex::new(inner),
            state: watch::Sender::new(State::Until(sent + VALID)),
            listeners: Mutex::default(),
        })
    }

    /// Returns the name of this run of the host.
    pub fn incarnation(&self) -> Arc<str> {
        self.inner.lock().incarnation.clone()
    }

    /// Returns an error unless the host may use the database.
    ///
    /// # Errors
    /// The lease could not be renewed in time, was taken over, or was released.
    pub fn check(&self) -> Result<(), Thrown> {
        match *self.state.borrow() {
            State::Until(until) if Instant::now() < until => Ok(()),
            State::Until(_) => Err(Thrown::new(
                "PostgreSQL: the host could not renew its lease for 6 seconds and stores nothing until the database answers \
                 again",
            )),
            State::Lapsed => Err(lapsed()),
            State::Lost => Err(Thrown::new(
                "PostgreSQL: another host has taken over the database, so this one stores nothing more; stop it, or restart \
                 it after the other one",
            )),
            State::Closed => Err(Thrown::new("PostgreSQL: the stores are closed")),
        }
    }

    /// Returns the name of this run of the host if it may use the database.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn current(&self) -> Result<Arc<str>, Thrown> {
        self.check()?;
        Ok(self.incarnation())
    }

    /// Returns an error unless the host may use the database under this name of its run.
    ///
    /// # Errors
    /// As [`Self::check`]; the host has joined again under another name.
    pub fn check_for(&self, incarnation: &str) -> Result<(), Thrown> {
        self.check()?;
        if *self.inner.lock().incarnation == *incarnation { Ok(()) } else { Err(lapsed()) }
    }

    pub fn state(&self) -> State {
        *self.state.borrow()
    }

    /// Returns whether the lease was taken over or released permanently.
    pub fn is_over(&self) -> bool {
        matches!(self.state(), State::Lost | State::Closed)
    }

    /// Returns when the last successful renewal was sent, and how long it took.
    pub fn renewed(&self) -> (Instant, Duration) {
        self.inner.lock().renewed
    }

    /// Records that the lease of this run was taken over.
    pub fn lose(&self, incarnation: &str) {
        if self.is_member {
            return self.lapse(|_| *self.inner.lock().incarnation == *incarnation);
        }
        self.state.send_if_modified(|state| {
            let has_lease = matches!(state, State::Until(_));
            if has_lease {
                *state = State::Lost;
            }
            has_lease
        });
    }

    /// Ends the attempts of a host of a cluster to join again.
    pub fn stay_lost(&self) {
        self.state.send_if_modified(|state| {
            let is_lapsed = *state == State::Lapsed;
            if is_lapsed {
                *state = State::Lost;
            }
            is_lapsed
        });
    }

    /// Releases the lease; returns whether the host had it.
    pub fn close(&self) -> bool {
        matches!(self.state.send_replace(State::Closed), State::Until(_))
    }

    /// Extends the lease by a renewal sent at this time; returns whether it had not lapsed.
    pub fn extend(&self, sent: Instant) -> bool {
        self.check_clock();
        let extended = self.state.send_if_modified(|state| {
            let State::Until(until) = state else { return false };
            *until = sent + VALID;
            true
        });
        if extended {
            self.inner.lock().renewed = (sent, sent.elapsed());
        }
        extended
    }

    /// Records that the host has joined again by a statement sent at this time.
    pub fn join_again(&self, incarnation: &str, sent: Instant) -> bool {
        *self.inner.lock() = Inner { incarnation: incarnation.into(), renewed: (sent, sent.elapsed()) };
        let joined = self.state.send_if_modified(|state| {
            let is_lapsed = *state == State::Lapsed;
            if is_lapsed {
                *state = State::Until(sent + VALID);
            }
            is_lapsed
        });
        if joined {
            self.tell(&ClusterEvent::LeaseRegained);
        }
        joined
    }

    /// Lets the lease of a host of a cluster lapse if it was not renewed in time.
    fn check_clock(&self) {
        if self.is_member {
            let now = Instant::now();
            self.lapse(|until| until <= now);
        }
    }

    /// Lets the lease lapse under a condition.
    fn lapse(&self, condition: impl FnOnce(Instant) -> bool) {
        let lapsed = self.state.send_if_modified(|state| {
            let lapses = matches!(state, State::Until(until) if condition(*until));
            if lapses {
                *state = State::Lapsed;
            }
            lapses
        });
        if lapsed {
            self.tell(&ClusterEvent::LeaseLost);
        }
    }

    /// Watches the clock of a host of a cluster until the lease is over, because a renewal can take longer than the lease.
    pub async fn watch(self: Arc<Self>) {
        let mut changes = self.state.subscribe();
        loop {
            let state = *changes.borrow_and_update();
            let changed = match state {
                State::Until(until) => {
                    self.check_clock();
                    tokio::time::timeout_at(until, changes.changed()).await.ok()
                }
                State::Lapsed => Some(changes.changed().await),
                State::Lost | State::Closed => return,
            };
            if changed.is_some_and(|changed| changed.is_err()) {
                return;
            }
        }
    }

    /// Adds a listener of events. It learns of a lease that has lapsed already.
    pub fn listen(&self, listener: ClusterListener) {
        if matches!(self.state(), State::Lapsed | State::Lost) {
            listener(ClusterEvent::LeaseLost);
        }
        self.listeners.lock().push(listener);
    }

    pub fn has_listeners(&self) -> bool {
        !self.listeners.lock().is_empty()
    }

    /// Notifies the listeners.
    pub fn tell(&self, event: &ClusterEvent) {
        let listeners = self.listeners.lock().clone();
        listeners.iter().for_each(|listener| listener(event.clone()));
    }
}

fn lapsed() -> Thrown {
    Thrown::new(
        "PostgreSQL: the host could not renew its lease in the cluster, so it stores nothing until it has joined again",
    )
}
