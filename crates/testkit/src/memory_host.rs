//! A host without sockets and files. The host's own loader loads the plugins.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ahp::{Client, ClientConfig};
use jiff::Timestamp;
use ostler_contract::live::ready;
use ostler_contract::points::{AutomationStore, Policies, RecordStore, SessionStore, Vault};
use ostler_contract::{
    Caller, HostFacts, Module, Pending, Plugin, PluginHost, PluginSource, Registry, Slug, Thrown, Value,
};
use ostler_engine::{
    Clock, Connection, Gate, Host, HostOptions, LinkDialer, LocalSystem, Log, People, PluginHostCalls,
    Principal, Yaml,
};
use ostler_loader::{LoadedPlugin, Loader, PluginConfig, State};
use ostler_protocol::origins::WayIn;
use parking_lot::Mutex;

use crate::{MemoryTransport, RawClient};

/// The resource that users sign in to.
pub const SIGN_IN: &str = "https://inn.example";

/// Log lines in their order.
#[derive(Debug, Clone, Default)]
pub struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    /// Returns every line so far.
    pub fn all(&self) -> Vec<String> {
        self.0.lock().clone()
    }

    /// Whether any line contains a text.
    pub fn has(&self, text: &str) -> bool {
        self.0.lock().iter().any(|line| line.contains(text))
    }

    /// Adds a line.
    pub fn write(&self, line: &str) {
        self.0.lock().push(line.to_owned());
    }

    /// Waits for a line that contains a text, and returns the first one.
    ///
    /// # Panics
    /// If no such line is written for a long time.
    pub async fn wait_for(&self, text: &str) -> String {
        let end = std::time::Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(line) = self.0.lock().iter().find(|line| line.contains(text)) {
                return line.clone();
            }
            assert!(std::time::Instant::now() < end, "no line holds {text:?}: {:#?}", self.all());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// An in-memory host.
#[derive(Debug)]
pub struct MemoryHost {
    /// The host itself.
    pub host: Arc<Host>,
    /// The lines that it logged.
    pub log: Lines,
    /// The lines a start prints as `skipped: <line>`.
    pub problems: Vec<String>,
    /// Every named plugin, and how far it was loaded.
    pub loaded: Vec<LoadedPlugin>,
    /// Keeps the plugins' runtimes alive.
    _modules: Vec<Module>,
}

/// Builds an in-memory host.
#[derive(Default)]
pub struct Builder {
    options: HostOptions,
    people: Option<Arc<People>>,
    bundled: Vec<Plugin>,
    entries: Vec<PluginConfig>,
    source: Option<Arc<dyn PluginSource>>,
    folder: PathBuf,
    yaml: Yaml,
    log: Lines,
    clock: Option<Clock>,
    may_fail: bool,
    sessions: Option<SessionStore>,
    automations: Option<AutomationStore>,
    records: Option<RecordStore>,
    vault: Option<Vault>,
    policies: Option<Policies>,
    session_tools: bool,
    own: Vec<Own>,
    here: Option<Arc<dyn LocalSystem>>,
    links: Option<Arc<dyn LinkDialer>>,
}

/// Registers a contribution of the host itself.
type Own = Box<dyn FnOnce(&PluginHost) -> Result<(), Thrown> + Send>;

/// A source for hosts that import no files.
struct NoSource;

impl PluginSource for NoSource {
    fn import(&self, _: &Path, _: &str) -> Pending<Module> {
        ready(Err(Thrown::new("this host imports no files")))
    }
}

impl Builder {
    /// Adds a native plugin with its options.
    #[must_use]
    pub fn plugin(mut self, plugin: Plugin, options: Value) -> Self {
        let options = options.as_object().cloned().unwrap_or_default();
        let entry = PluginConfig { options, ..PluginConfig::named(plugin.spec) };
        self.bundled.push(plugin);
        self.entry(entry)
    }

    /// Makes a native plugin available to entries.
    #[must_use]
    pub fn bundled(mut self, plugin: Plugin) -> Self {
        self.bundled.push(plugin);
        self
    }

    /// Adds a plugin as a configuration does.
    #[must_use]
    pub fn entry(mut self, entry: PluginConfig) -> Self {
        self.entries.push(entry);
        self
    }

    /// Sets the grants of the plugin added last.
    #[must_use]
    pub fn grants(mut self, grants: &[&str]) -> Self {
        if let Some(last) = self.entries.last_mut() {
            last.grants = grants.iter().map(|grant| (*grant).to_owned()).collect();
        }
        self
    }

    /// Sets the source that imports plugins from files.
    #[must_use]
    pub fn source(mut self, source: Arc<dyn PluginSource>) -> Self {
        self.source = Some(source);
        self
    }

    /// Sets the folder of relative specs, which plugins receive as the configuration folder.
    #[must_use]
    pub fn folder(mut self, folder: &Path) -> Self {
        folder.clone_into(&mut self.folder);
        self
    }

    /// Sets the YAML parser and writer.
    #[must_use]
    pub fn yaml(mut self, yaml: Yaml) -> Self {
        self.yaml = yaml;
        self
    }

    /// Returns the log before the host exists, for plugin sources.
    pub fn log(&self) -> Lines {
        self.log.clone()
    }

    /// Starts the host even if a plugin does not load.
    #[must_use]
    pub fn may_fail(mut self) -> Self {
        self.may_fail = true;
        self
    }

    /// Changes the options of the host.
    #[must_use]
    pub fn options(mut self, change: impl FnOnce(&mut HostOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// Gives the host an empty users file.
    #[must_use]
    pub fn guarded(self) -> Self {
        self.people(People::new(SIGN_IN, "inn"))
    }

    /// Gives the host these users.
    #[must_use]
    pub fn people(mut self, people: People) -> Self {
        self.people = Some(Arc::new(people));
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

    /// Sets the time at the start.
    #[must_use]
    pub fn started(self, at: Timestamp) -> Self {
        self.clock(Clock::following_tokio(at))
    }

    /// Sets the clock. The default one follows tokio's time from the beginning of 2026 on.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Gives the host policies.
    #[must_use]
    pub fn policies(mut self, policies: Policies) -> Self {
        self.policies = Some(policies);
        self
    }

    /// Registers the host's own tools, as the daemon does.
    #[must_use]
    pub fn session_tools(mut self) -> Self {
        self.session_tools = true;
        self
    }

    /// Registers a contribution of the host itself, as the daemon does with its stores.
    #[must_use]
    pub fn own(mut self, register: impl FnOnce(&PluginHost) -> Result<(), Thrown> + Send + 'static) -> Self {
        self.own.push(Box::new(register));
        self
    }

    /// Sets the host's access to the local system.
    #[must_use]
    pub fn here(mut self, here: Arc<dyn LocalSystem>) -> Self {
        self.here = Some(here);
        self
    }

    /// Sets how other hosts of the cluster are reached.
    #[must_use]
    pub fn links(mut self, links: Arc<dyn LinkDialer>) -> Self {
        self.links = Some(links);
        self
    }

    pub(crate) fn links_unless_set(mut self, links: Arc<dyn LinkDialer>) -> Self {
        self.links.get_or_insert(links);
        self
    }

    /// Loads the plugins as the daemon does, and starts the host.
    ///
    /// # Panics
    /// If a plugin does not load, unless [`Self::may_fail`] allows it.
    pub async fn start(self) -> MemoryHost {
        let log = self.log;
        let written = log.clone();
        let clock = self
            .clock
            .unwrap_or_else(|| Clock::following_tokio("2026-01-01T00:00:00Z".parse().expect("a timestamp")));
        let gate = self.people.map_or_else(Gate::default, Gate::of);
        let host = Host::new(self.options, clock, Log::new(move |line| written.write(line)), self.yaml, gate);
        if let Some(here) = self.here {
            host.core.set_local_system(here);
        }
        if let Some(links) = self.links {
            host.front.set_link_dialer(links);
        }
        let door = PluginHostCalls::new(&host.front);
        let facts = Arc::new(HostFacts {
            paths: host.core.options.paths.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host_name: host.core.options.host_name.clone(),
            config_dir: self.folder.to_string_lossy().into_owned(),
        });
        let caller = Caller {
            plugin: Slug::parse("host").expect("a slug"),
            grants: Arc::new([]),
            vault: self.vault.clone(),
        };
        let own = PluginHost::new(facts.clone(), caller, door.clone());
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
        if let Some(policies) = self.policies {
            own.register_policies(policies, None).expect("policies");
        }
        if self.session_tools {
            for tool in ostler_engine::session_tools(&host.sessions) {
                own.register_tool(tool).expect("a tool of the host's own");
            }
        }
        for register in self.own {
            register(&own).expect("something of the host's own");
        }
        let lines = log.clone();
        let loader = Loader {
            bundled: self.bundled,
            source: self.source.unwrap_or_else(|| Arc::new(NoSource)),
            config_dir: self.folder,
            facts,
            calls: door,
            log: Arc::new(move |_, line| lines.write(line)),
            hidden: Default::default(),
        };
        let loaded = loader.load(&self.entries, own.seal()).await;
        let problems: Vec<String> = loaded.problems.iter().map(ToString::to_string).collect();
        let all_there = loaded.plugins.iter().all(|plugin| plugin.state != State::Skipped);
        assert!(self.may_fail || all_there, "{problems:#?}");
        host.build(loaded.registry).await;
        host.core.listening();
        MemoryHost { host, log, problems, loaded: loaded.plugins, _modules: loaded.modules }
    }
}

impl MemoryHost {
    /// Returns a builder.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Returns the host as a plugin sees it.
    ///
    /// # Panics
    /// If no such plugin is loaded.
    pub fn plugin(&self, id: &str) -> &PluginHost {
        let id = Slug::parse(id).expect("a slug");
        self.registry().plugin(&id).expect("a plugin of that id")
    }

    /// Returns the contributions of the plugins and the host.
    ///
    /// # Panics
    /// Never: the host is built.
    pub fn registry(&self) -> &Registry {
        self.host.core.registry().expect("the host is built")
    }

    /// Connects and initializes the official client under a name.
    ///
    /// # Panics
    /// If the host rejects it.
    pub async fn client(&self, name: &str) -> Client {
        let client = self.stranger().await;
        let versions = ahp_versions();
        client.initialize(name.to_owned(), versions, vec![]).await.expect("the client is let in");
        client
    }

    /// Connects the official client without `initialize`.
    ///
    /// # Panics
    /// If it does not connect.
    pub async fn stranger(&self) -> Client {
        let connection = Connection::open(&self.host.front, Principal::Anyone, WayIn::Client);
        let config = ClientConfig { subscription_buffer: 65_536, ..ClientConfig::default() };
        Client::connect(MemoryTransport::new(connection), config).await.expect("a connection")
    }

    /// Disconnects all clients.
    pub fn close_clients(&self) {
        self.host.disconnect_clients();
    }

    /// Connects a client that sends JSON text, for messages that the official client cannot send.
    pub fn raw(&self) -> RawClient {
        self.raw_as(Principal::Anyone)
    }

    /// Connects a client that sends JSON text, as a principal.
    pub fn raw_as(&self, principal: Principal) -> RawClient {
        let way = match principal {
            Principal::Plugin { .. } => WayIn::Plugin,
            _ => WayIn::Client,
        };
        self.raw_by(way, principal)
    }

    /// Connects a client that sends JSON text by a way in, as a principal.
    pub fn raw_by(&self, way: WayIn, principal: Principal) -> RawClient {
        RawClient::new(Connection::open(&self.host.front, principal, way))
    }
}

fn ahp_versions() -> Vec<String> {
    ostler_protocol::wire::SUPPORTED_PROTOCOL_VERSIONS.iter().map(|version| (*version).to_owned()).collect()
}
