//! A host with no sockets and no files: plugins are applied to it as the loader would.

use std::sync::Arc;

use ahp::{Client, ClientConfig};
use ostler_contract::points::{AutomationStore, RecordStore, SessionStore, Vault};
use ostler_contract::registry::Fold;
use ostler_contract::{Caller, Grant, HostFacts, JsonObject, Options, Plugin, PluginHost, Slug, Value};
use ostler_engine::{Clock, Connection, Gate, Host, HostDoor, HostOptions, Log, Principal, Yaml};
use parking_lot::Mutex;

use crate::{MemoryTransport, RawClient};

/// Log lines, as they came.
#[derive(Debug, Clone, Default)]
pub struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    /// Every line so far.
    pub fn all(&self) -> Vec<String> {
        self.0.lock().clone()
    }

    /// Whether some line holds a text.
    pub fn has(&self, text: &str) -> bool {
        self.0.lock().iter().any(|line| line.contains(text))
    }

    /// Adds a line.
    pub fn write(&self, line: &str) {
        self.0.lock().push(line.to_owned());
    }

    /// The first line that holds a text, once there is one.
    ///
    /// # Panics
    /// When none comes for a long time.
    pub async fn wait_for(&self, text: &str) -> String {
        for _ in 0..3000 {
            if let Some(line) = self.0.lock().iter().find(|line| line.contains(text)) {
                return line.clone();
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        panic!("no line holds {text:?}: {:#?}", self.all());
    }
}

/// A host in memory.
#[derive(Debug)]
pub struct MemoryHost {
    /// The host itself.
    pub host: Arc<Host>,
    /// What it logged.
    pub log: Lines,
    /// The problem lines of the fold.
    pub problems: Vec<String>,
    plugins: Vec<PluginHost>,
}

/// Puts a host together.
#[derive(Debug, Default)]
pub struct Builder {
    options: HostOptions,
    guarded: bool,
    plugins: Vec<(Plugin, Value, Vec<Grant>)>,
    sessions: Option<SessionStore>,
    automations: Option<AutomationStore>,
    records: Option<RecordStore>,
    vault: Option<Vault>,
}

impl Builder {
    /// Names one more plugin, with its options.
    #[must_use]
    pub fn plugin(mut self, plugin: Plugin, options: Value) -> Self {
        self.plugins.push((plugin, options, Vec::new()));
        self
    }

    /// Gives the plugin named last grants.
    #[must_use]
    pub fn grants(mut self, grants: &[&str]) -> Self {
        let grants = grants.iter().map(|grant| Grant::parse(grant).expect("a grant")).collect();
        if let Some(last) = self.plugins.last_mut() {
            last.2 = grants;
        }
        self
    }

    /// Changes how the host is set up.
    #[must_use]
    pub fn options(mut self, change: impl FnOnce(&mut HostOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// Makes the host one that knows people.
    #[must_use]
    pub fn guarded(mut self) -> Self {
        self.guarded = true;
        self
    }

    /// Gives the host a session store.
    #[must_use]
    pub fn sessions(mut self, store: SessionStore) -> Self {
        self.sessions = Some(store);
        self
    }

    /// Gives the host an automation store.
    #[must_use]
    pub fn automations(mut self, store: AutomationStore) -> Self {
        self.automations = Some(store);
        self
    }

    /// Gives the host a record store.
    #[must_use]
    pub fn records(mut self, store: RecordStore) -> Self {
        self.records = Some(store);
        self
    }

    /// Gives the host a vault.
    #[must_use]
    pub fn vault(mut self, vault: Vault) -> Self {
        self.vault = Some(vault);
        self
    }

    /// Applies the plugins and starts the host.
    ///
    /// # Panics
    /// When a plugin does not apply.
    pub async fn start(self) -> MemoryHost {
        let log = Lines::default();
        let written = log.clone();
        let clock = Clock::following_tokio("2026-01-01T00:00:00Z".parse().expect("a timestamp"));
        let host = Host::new(
            self.options,
            clock,
            Log::new(move |line| written.0.lock().push(line.to_owned())),
            Yaml::default(),
            Gate { guarded: self.guarded },
        );
        let door = HostDoor::new(&host);
        let facts = Arc::new(HostFacts { host_name: host.options.host_name.clone(), ..HostFacts::default() });
        let vault = self.vault.clone();
        let plugin_host = |id: &str, grants: Vec<Grant>| {
            let plugin = Slug::parse(id).expect("a slug");
            let caller = Caller { plugin, grants: grants.into(), vault: vault.clone() };
            PluginHost::new(facts.clone(), caller, door.clone())
        };
        let mut fold = Fold::default();
        let own = plugin_host("host", Vec::new());
        if let Some(store) = self.sessions {
            own.register_sessions(store, None).expect("a session store");
        }
        if let Some(store) = self.automations {
            own.register_automations(store, None).expect("an automation store");
        }
        if let Some(store) = self.records {
            own.register_records(store, None).expect("a record store");
        }
        if let Some(vault) = self.vault {
            own.register_vault(vault, None).expect("a vault");
        }
        fold.host(own.seal());
        let mut plugins = Vec::new();
        for (plugin, options, grants) in self.plugins {
            let id = plugin.module.name.as_ref().and_then(Value::as_str).expect("an id").to_owned();
            let mut merged: JsonObject =
                plugin.module.defaults.as_ref().and_then(Value::as_object).cloned().unwrap_or_default();
            merged.extend(options.as_object().cloned().unwrap_or_default());
            let handed = plugin_host(&id, grants);
            plugin.module.apply(handed.clone(), Options::from(merged)).await.expect("the plugin applies");
            let recorder = handed.seal();
            fold.plugin(handed.clone(), recorder);
            plugins.push(handed);
        }
        let (registry, problems) = fold.finish();
        host.build(registry).await;
        host.listening();
        MemoryHost { host, log, problems: problems.iter().map(ToString::to_string).collect(), plugins }
    }
}

impl MemoryHost {
    /// A host to put together.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The host as a plugin sees it.
    ///
    /// # Panics
    /// When no such plugin is loaded.
    pub fn plugin(&self, id: &str) -> &PluginHost {
        self.plugins.iter().find(|plugin| &**plugin.id() == id).expect("a plugin of that id")
    }

    /// The official client, connected and introduced under a name.
    ///
    /// # Panics
    /// When it is not let in.
    pub async fn client(&self, name: &str) -> Client {
        let client = self.stranger().await;
        let versions = ahp_versions();
        client.initialize(name.to_owned(), versions, vec![]).await.expect("the client is let in");
        client
    }

    /// The official client, connected but not introduced.
    ///
    /// # Panics
    /// When it does not connect.
    pub async fn stranger(&self) -> Client {
        let connection = Connection::open(&self.host, Principal::Anyone);
        let config = ClientConfig { subscription_buffer: 65_536, ..ClientConfig::default() };
        Client::connect(MemoryTransport::new(connection), config).await.expect("a connection")
    }

    /// A client that speaks JSON text, for what the official one cannot say.
    pub fn raw(&self) -> RawClient {
        RawClient::new(Connection::open(&self.host, Principal::Anyone))
    }
}

fn ahp_versions() -> Vec<String> {
    ostler_protocol::wire::SUPPORTED_PROTOCOL_VERSIONS.iter().map(|version| (*version).to_owned()).collect()
}
