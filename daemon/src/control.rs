//! The daemon that runs, as clients change it: what it loaded, the configuration it was started from, and one
//! change after the other.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock, Weak};

use ostler_contract::JsonObject;
use ostler_contract::points::Vault;
use ostler_engine::Host;
use ostler_js::Engine;
use ostler_loader::{Hidden, LoadedPlugin, State};
use ostler_server::{SignIns, Token};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::api::MOST_STREAMS;
use crate::compose::Composed;
use crate::config::ConfigFiles;
use crate::daemon_file::Record;
use crate::diagnostics::Lines;
use crate::exit::Exit;
use crate::metrics::Metrics;
use crate::place::Place;
use crate::plugins::{self, Row};
use crate::settings::Settings;
use crate::signals::SignalSender;

/// The daemon that runs.
pub struct Control {
    /// Where it was started.
    pub place: Place,
    /// The host.
    pub host: Arc<Host>,
    /// Sends the signals to stop and restart.
    pub signal_sender: SignalSender,
    /// Held while a file is written, so that one change is made after the other.
    pub writing: tokio::sync::Mutex<()>,
    /// What no answer may hold.
    pub hidden: Hidden,
    /// The pages that signed in.
    pub sign_ins: SignIns,
    /// The connection token, where there is one; set before requests are served.
    pub token: OnceLock<Token>,
    /// Permits of streams of the API.
    pub streams: Arc<Semaphore>,
    /// What links of notifications begin with; set before requests are served.
    pub notify_base: OnceLock<String>,
    /// The last lines of the log.
    pub lines: Lines,
    loaded: Vec<LoadedPlugin>,
    metrics: Metrics,
    engines: Vec<Weak<Engine>>,
    detached: bool,
    record: OnceLock<Record>,
    restart_needed: Mutex<BTreeSet<String>>,
}

impl Control {
    /// The control of a host that was put together.
    pub fn new(
        settings: &Settings,
        place: &Place,
        composed: &Composed,
        metrics: Metrics,
        hidden: &Hidden,
        signal_sender: SignalSender,
    ) -> Arc<Self> {
        Arc::new(Self {
            place: place.clone(),
            host: composed.host.clone(),
            signal_sender,
            hidden: hidden.clone(),
            sign_ins: SignIns::default(),
            token: OnceLock::new(),
            streams: Arc::new(Semaphore::new(MOST_STREAMS)),
            notify_base: OnceLock::new(),
            lines: composed.lines.clone(),
            writing: tokio::sync::Mutex::default(),
            loaded: composed.plugins.clone(),
            metrics,
            engines: composed.engines(),
            detached: settings.detached,
            record: OnceLock::new(),
            restart_needed: Mutex::default(),
        })
    }

    /// The metrics as text.
    pub fn metrics(&self) -> String {
        self.metrics.text(&self.host, &self.engines)
    }

    /// Whether the plugin of an id is loaded.
    pub fn has_applied(&self, id: &str) -> bool {
        self.loaded.iter().any(|plugin| plugin.state == State::Applied && plugin.id.as_deref() == Some(id))
    }

    /// How much each JavaScript plugin has used: CPU milliseconds and bytes.
    pub fn used(&self) -> Vec<(String, u128, usize)> {
        let engines = self.engines.iter().filter_map(Weak::upgrade);
        engines
            .map(|engine| {
                let (time, bytes) = engine.used();
                (engine.label(), time.as_millis(), bytes)
            })
            .collect()
    }

    /// Says that it is up.
    pub fn up(&self, record: Record) {
        let _ = self.record.set(record);
    }

    /// What it says about itself, once it is up.
    ///
    /// # Errors
    /// Exit 1 before.
    pub fn record(&self) -> Result<&Record, Exit> {
        self.record.get().ok_or_else(|| Exit::machine("the daemon is still starting"))
    }

    /// Whether it can start itself again.
    pub fn detached(&self) -> bool {
        self.detached
    }

    /// The configuration as the files say it now, and its plugins.
    ///
    /// # Errors
    /// What is wrong in them: exit 2.
    pub fn configured(&self) -> Result<(ConfigFiles, Vec<Row>), Exit> {
        let files = self.place.files()?;
        let rows = plugins::running(&files, &self.loaded);
        Ok((files, rows))
    }

    /// The vault of the host.
    ///
    /// # Errors
    /// Exit 1 where there is none.
    pub fn vault(&self) -> Result<Vault, Exit> {
        self.host.core.vault().cloned().ok_or_else(|| Exit::machine("this host has no vault"))
    }

    /// Remembers that a key was written which holds from the next start on.
    pub fn needs_restart(&self, key: &str) {
        self.restart_needed.lock().insert(key.to_owned());
    }

    /// The keys that hold from the next start on.
    pub fn restart_needed(&self) -> Vec<String> {
        self.restart_needed.lock().iter().cloned().collect()
    }

    /// The whole configuration as it is shown.
    ///
    /// # Errors
    /// What is wrong in the files: exit 2.
    pub fn shown(&self) -> Result<JsonObject, Exit> {
        let (files, rows) = self.configured()?;
        Ok(crate::config_redaction::config(&files, &rows))
    }
}
