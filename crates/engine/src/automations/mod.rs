//! Automations: what they are, which events wake them, and the runs that come of it.

pub(crate) mod by_value;
mod catalogue;
mod check;
mod clockwork;
mod fire;
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
mod rule;
mod run;
mod run_summary;
mod schedule;
mod settings;
mod starting;
mod triggers;
mod watching;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use ostler_contract::points::StoredCollection;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, OnceCell, watch};

use crate::core::shared::Core;
use crate::sessions::Sessions;
use crate::users::access::Access;
use catalogue::Catalogue;
use observer::SessionObserver;
use plan::Plans;
use run::Runs;
use triggers::Index;
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
    runs: Mutex<Runs>,
    plans: Mutex<Plans>,
    /// Told when there may be something to do sooner.
    planned: Arc<Notify>,
    watching: Watching,
    /// Held while an event that has an order is given its place.
    ordering: Mutex<()>,
    /// Held while a long text is read.
    reading_text: tokio::sync::Mutex<()>,
    /// Held while the store is told, so that it is told in order.
    keeping: Mutex<()>,
    /// Which session each value has.
    values: OnceCell<StoredCollection>,
    /// Held while those are changed.
    rewriting: tokio::sync::Mutex<()>,
    /// Whether the automations of the store were read.
    loaded: watch::Sender<bool>,
    /// Automations that are not listed, and that runs wait for.
    sought: Mutex<HashSet<String>>,
    /// The run a hand-made request already started, by automation and request id.
    requests: Mutex<HashMap<(String, String), String>>,
}

impl Automations {
    /// None yet; they are told what sessions do.
    pub(crate) fn new(core: Arc<Core>, access: Arc<Access>, sessions: Arc<Sessions>) -> Arc<Self> {
        let automations = Arc::new_cyclic(|me: &Weak<Self>| Self {
            core,
            access,
            sessions,
            me: me.clone(),
            catalogue: Mutex::default(),
            index: RwLock::default(),
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
        });
        automations.sessions.set_observer(Arc::new(SessionObserver::new(automations.me.clone())));
        automations
    }

    /// These automations for a task of their own.
    fn me(&self) -> Option<Arc<Self>> {
        self.me.upgrade()
    }

    /// These automations for something that must not keep them.
    fn weak(&self) -> Weak<Self> {
        self.me.clone()
    }
}
