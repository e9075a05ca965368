//! Control of the running daemon by clients: the loaded plugins, the configuration, and its changes, one after the
//! other.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock, Weak};

use ostler_contract::JsonObject;
use ostler_contract::points::Vault;
use ostler_contract::problems::{Finding, ProblemKind};
use ostler_engine::Host;
use ostler_js::Engine;
use ostler_loader::{Hidden, LoadedPlugin, State};
use ostler_protocol::nearest::did_you_mean;
use ostler_server::{SignIns, Token};
use ostler_telemetry::metrics::{Metrics, Used, UsedByPlugin};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::api::Streams;
use crate::api::problem_shapes::Problem;
use crate::backends::Backends;
use crate::compose::Composed;
use crate::config::ConfigFiles;
use crate::daemon_file::Record;
use crate::diagnostics::Lines;
use crate::exit::Exit;
use crate::parts::acp;
use crate::place::Place;
use crate::plugins::{self, Row};
use crate::settings::Settings;
use crate::signals::SignalSender;

/// The running daemon.
pub struct Control {
    /// Where it was started, with its configuration.
    pub place: Place,
    pub host: Arc<Host>,
    /// Sends the signals to stop and restart.
    pub signal_sender: SignalSender,
    /// Locked while a file is written, so that changes are made one after the other.
    pub writing: tokio::sync::Mutex<()>,
    /// Texts that no answer contains.
    pub hidden: Hidden,
    /// The signed-in pages.
    pub sign_ins: SignIns,
    /// The connection token, if there is one; set before requests are served.
    pub token: OnceLock<Token>,
    /// The open event streams of the API.
    pub streams: Streams,
    /// Acquired by the request of the API that reads the turns of a session.
    pub reads_of_turns: Semaphore,
    /// The prefix of links in notifications; set before requests are served.
    pub notify_base: OnceLock<String>,
    /// The last lines of the log.
    pub lines: Lines,
    /// The plugins with and without backends.
    pub backends: Backends,
    loaded: Vec<LoadedPlugin>,
    metrics: Metrics,
    engines: Vec<Weak<Engine>>,
    detached: bool,
    record: OnceLock<Record>,
    restart_needed: Mutex<BTreeSet<String>>,
    /// What the configuration files said at the start.
    begun_with: Option<JsonObject>,
}

/// Returns why a plugin cannot be measured.
pub fn not_javascript(plugin: &str) -> String {
    format!("plugin {plugin} is part of the host; only plugins in JavaScript or TypeScript can be measured")
}

/// What configuration files say, without what is read again while the daemon runs.
fn said(files: &ConfigFiles) -> JsonObject {
    let mut said = files.said.clone();
    said.shift_remove("mcpServers");
    said
}

impl Control {
    /// Creates the control of a composed host.
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
            streams: Streams::default(),
            reads_of_turns: Semaphore::new(1),
            notify_base: OnceLock::new(),
            lines: composed.lines.clone(),
            writing: tokio::sync::Mutex::default(),
            backends: Backends::of(settings, composed),
            loaded: composed.plugins.clone(),
            metrics,
            engines: composed.engines(),
            detached: settings.detached,
            record: OnceLock::new(),
            restart_needed: Mutex::default(),
            begun_with: place.files().ok().as_ref().map(said),
        })
    }

    /// The metrics as text.
    pub fn metrics(&self) -> String {
        let plugins = self.engines.iter().filter_map(Weak::upgrade).map(|engine| {
            let (time, memory) = engine.used();
            UsedByPlugin { plugin: engine.label(), time, memory }
        });
        let agents = acp::agent_processes().into_iter().collect();
        self.metrics.text(&self.host, Used { plugins: plugins.collect(), agents })
    }

    /// Returns a running plugin in JavaScript by its id or spec: its id and its engine.
    ///
    /// # Errors
    /// Exit 2 for a plugin that is unknown or not in JavaScript, exit 1 for one that does not run.
    pub fn engine_of(&self, name: &str) -> Result<(String, Arc<Engine>), Exit> {
        let by_spec = || self.loaded.iter().find(|plugin| plugin.spec == name);
        let named = self.loaded.iter().find(|plugin| plugin.id.as_deref() == Some(name)).or_else(by_spec);
        let Some(plugin) = named else {
            let known: Vec<&str> =
                self.loaded.iter().map(|plugin| plugin.id.as_deref().unwrap_or(&plugin.spec)).collect();
            let hint = did_you_mean(name, known.iter().copied());
            return Err(Exit::usage(format!("unknown plugin {name}; plugins: {}{hint}", known.join(", "))));
        };
        let Some(id) = plugin.id.as_ref().filter(|_| plugin.state == State::Applied) else {
            let why =
                plugin.problem.as_ref().map_or_else(|| "it is disabled".to_owned(), ToString::to_string);
            return Err(Exit::machine(format!("plugin {name} does not run: {why}")));
        };
        let id = id.to_string();
        if plugin.path.is_none() {
            return Err(Exit::usage(not_javascript(&id)));
        }
        let engine = self.engines.iter().filter_map(Weak::upgrade).find(|engine| engine.label() == id);
        let engine = engine.ok_or_else(|| Exit::machine(format!("the engine of plugin {id} has ended")))?;
        Ok((id, engine))
    }

    /// Returns whether the plugin of an id is loaded.
    pub fn has_applied(&self, id: &str) -> bool {
        self.loaded.iter().any(|plugin| plugin.state == State::Applied && plugin.id.as_deref() == Some(id))
    }

    /// Returns the usage of each JavaScript plugin: CPU milliseconds and bytes.
    pub fn used(&self) -> Vec<(String, u128, usize)> {
        let engines = self.engines.iter().filter_map(Weak::upgrade);
        engines
            .map(|engine| {
                let (time, bytes) = engine.used();
                (engine.label(), time.as_millis(), bytes)
            })
            .collect()
    }

    pub fn up(&self, record: Record) {
        let _ = self.record.set(record);
    }

    /// Returns its record, once it is up.
    ///
    /// # Errors
    /// Exit 1 before that.
    pub fn record(&self) -> Result<&Record, Exit> {
        self.record.get().ok_or_else(|| Exit::machine("the daemon is still starting"))
    }

    /// Returns whether it can restart itself.
    pub fn detached(&self) -> bool {
        self.detached
    }

    /// Reads the configuration and its plugins from the files.
    ///
    /// # Errors
    /// An invalid file: exit 2.
    pub fn configured(&self) -> Result<(ConfigFiles, Vec<Row>), Exit> {
        let files = self.place.files()?;
        let rows = plugins::running(&files, &self.loaded);
        Ok((files, rows))
    }

    /// Returns the vault of the host.
    ///
    /// # Errors
    /// Exit 1 if there is none.
    pub fn vault(&self) -> Result<Vault, Exit> {
        self.host.core.vault().cloned().ok_or_else(|| Exit::machine("this host has no vault"))
    }

    /// Records a written key that takes effect at the next start.
    pub fn needs_restart(&self, key: &str) {
        self.restart_needed.lock().insert(key.to_owned());
    }

    /// Returns the keys that take effect at the next start.
    pub fn restart_needed(&self) -> Vec<String> {
        self.restart_needed.lock().iter().cloned().collect()
    }

    /// Returns what is wrong now.
    pub async fn problems(&self) -> Vec<Problem> {
        let changed = self.changed_configuration().await;
        let log = &self.host.core.log;
        log.problems().set(ProblemKind::Configuration, "configuration", changed.into_iter().collect());
        self.host.problems().await.into_iter().map(Problem::of).collect()
    }

    /// Compares the configuration with that of the start.
    async fn changed_configuration(&self) -> Option<Finding> {
        let begun = self.begun_with.as_ref()?;
        let place = self.place.clone();
        let now = match tokio::task::spawn_blocking(move || place.files()).await.ok()? {
            Ok(files) => said(&files),
            Err(why) => {
                let found =
                    format!("the configuration can no longer be read; using that of the start: {why}");
                return Some(Finding::error(found).fixed_by("correct the file before the next start"));
            }
        };
        let keys = begun.keys().chain(now.keys().filter(|key| !begun.contains_key(*key)));
        let changed: Vec<&str> =
            keys.filter(|key| begun.get(*key) != now.get(*key)).map(String::as_str).collect();
        let found = || format!("the configuration has changed since the start: {}", changed.join(", "));
        (!changed.is_empty()).then(|| Finding::warning(found()).fixed_by("apply it with: ostler restart"))
    }

    /// Returns the whole configuration, redacted.
    ///
    /// # Errors
    /// An invalid file: exit 2.
    pub fn shown(&self) -> Result<JsonObject, Exit> {
        let (files, rows) = self.configured()?;
        Ok(crate::config_redaction::config(&files, &rows))
    }
}
