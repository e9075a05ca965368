//! Automations: their definitions, the events that wake them, and their runs.

pub mod by_value;
mod catalogue;
mod check;
mod clockwork;
mod explain;
mod finishing;
mod fire;
pub mod found;
mod lanes;
mod large;
mod listing;
mod loading;
mod merged_wakes;
mod message;
mod observer;
mod order;
mod pace;
mod pinned;
mod plan;
mod recovery;
mod room;
mod rule;
mod run;
mod run_summary;
mod runs_elsewhere;
pub mod schedule;
mod settings;
mod shared;
mod starting;
mod stored_runs;
mod triggers;
mod unheard;
mod unheard_events;
mod wake_event;
mod watching;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use ostler_contract::points::StoredCollection;
use ostler_engine_core::shared::Core;
use ostler_engine_sessions::Sessions;
use ostler_engine_users::users::access::Access;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, OnceCell, watch};

use catalogue::Catalogue;
use observer::SessionObserver;
use plan::Plans;
use run::Runs;
use runs_elsewhere::RunsElsewhere;
use shared::Shared;
use triggers::Index;
use unheard_events::UnheardEvents;
use watching::Watching;

/// Every automation and every run that has not ended.
#[derive(Debug)]
pub struct Automations {
    core: Arc<Core>,
    access: Arc<Access>,
    sessions: Arc<Sessions>,
    me: Weak<Self>,
    catalogue: Mutex<Catalogue>,
    index: RwLock<Index>,
    /// Events that no automation waits for.
    unheard_events: UnheardEvents,
    runs: Mutex<Runs>,
    plans: Mutex<Plans>,
    /// Notified when something may be due sooner.
    planned: Arc<Notify>,
    watching: Watching,
    /// Locked while an ordered event is given its place.
    ordering: Mutex<()>,
    /// Locked while a long text is parsed.
    reading_text: tokio::sync::Mutex<()>,
    /// Locked while requests are sent to the store, so that they are sent in order.
    keeping: Mutex<()>,
    /// The records of the session for each value.
    values: OnceCell<StoredCollection>,
    /// Locked while those are changed.
    rewriting: tokio::sync::Mutex<()>,
    /// Whether the automations of the store are loaded.
    loaded: watch::Sender<bool>,
    /// Unlisted automations that runs wait for.
    sought: Mutex<HashSet<String>>,
    /// The run that a client's request started, by automation and request id.
    requests: Mutex<HashMap<(String, String), String>>,
    /// The stored runs of earlier starts whose causes start no other run, by automation and cause.
    causes: Mutex<HashMap<(String, String), String>>,
    /// The wakes of runs that hosts share.
    shared: Shared,
    /// The runs of other hosts.
    elsewhere: RunsElsewhere,
}

impl Automations {
    /// Creates an empty set of automations that observes the sessions.
    pub fn new(core: Arc<Core>, access: Arc<Access>, sessions: Arc<Sessions>) -> Arc<Self> {
        let automations = Arc::new_cyclic(|me: &Weak<Self>| Self {
            core,
            access,
            sessions,
            me: me.clone(),
            catalogue: Mutex::default(),
            index: RwLock::default(),
            unheard_events: UnheardEvents::default(),
            runs: Mutex::default(),
            plans: Mutex::default(),
            planned: Arc::default(),
            watching: Watching::default(),
            ordering: Mutex::default(),
            reading_text: tokio::sync::Mutex::default(),
            keeping: Mutex::default(),
            values: OnceCell::new(),
            rewriting: tokio::sync::Mutex::default(),
            loaded: watch::Sender::default(),
            sought: Mutex::default(),
            requests: Mutex::default(),
            causes: Mutex::default(),
            shared: Shared::default(),
            elsewhere: RunsElsewhere::default(),
        });
        automations.sessions.set_observer(Arc::new(SessionObserver::new(automations.me.clone())));
        automations
    }

    /// Returns an owned reference for a task.
    fn me(&self) -> Option<Arc<Self>> {
        self.me.upgrade()
    }

    /// Returns a reference that does not keep the automations alive.
    fn weak(&self) -> Weak<Self> {
        self.me.clone()
    }
}
