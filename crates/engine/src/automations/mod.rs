//! Automations: what they are, which events wake them, and the runs that come of it.

mod catalogue;
mod check;
mod clockwork;
mod fire;
mod lanes;
mod large;
mod listing;
mod message;
mod noted;
mod observer;
mod pace;
mod plan;
mod rule;
mod run;
mod schedule;
mod settings;
mod shown;
mod triggers;
mod watching;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, watch};

use catalogue::Catalogue;
use plan::Plans;
use run::Runs;
use triggers::Index;
use watching::Watching;

pub(crate) use observer::SessionObserver;

/// Every automation and every run that has not ended.
#[derive(Debug, Default)]
pub struct Automations {
    catalogue: Mutex<Catalogue>,
    index: RwLock<Index>,
    runs: Mutex<Runs>,
    plans: Mutex<Plans>,
    /// Told when there may be something to do sooner.
    planned: Arc<Notify>,
    watching: Watching,
    /// Held while a long text is read.
    reading_text: tokio::sync::Mutex<()>,
    /// Held while the store is told, so that it is told in order.
    keeping: Mutex<()>,
    /// Whether the automations of the store were read.
    pub(crate) loaded: watch::Sender<bool>,
    /// The run a hand-made request already started, by automation and request id.
    requests: Mutex<HashMap<(String, String), String>>,
}
