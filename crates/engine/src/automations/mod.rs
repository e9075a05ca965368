//! Automations: what they are, which events wake them, and the runs that come of it.

mod catalogue;
mod message;
mod run;
mod triggers;

use std::collections::HashMap;

use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use catalogue::Catalogue;
use run::Runs;
use triggers::Index;

/// Every automation and every run that has not ended.
#[derive(Debug, Default)]
pub struct Automations {
    catalogue: Mutex<Catalogue>,
    index: RwLock<Index>,
    runs: Mutex<Runs>,
    /// Whether the automations of the store were read.
    pub(crate) loaded: watch::Sender<bool>,
    /// The run a hand-made request already started, by automation and request id.
    requests: Mutex<HashMap<(String, String), String>>,
}
