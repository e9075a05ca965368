//! Composes a host from stores, plugins and the engine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use ostler_contract::points::{Agent, AutomationStore, Diagnostics, Port, SessionStore, Vault};
use ostler_contract::problem::Problem;
use ostler_contract::problems::{Finding, ProblemKind};
use ostler_contract::recorder::Recorder;
use ostler_contract::registry::{Registrant, Registry};
use ostler_contract::{Call, Caller, HostFacts, Module, PluginHost, Slug, Thrown};
use ostler_engine::{
    Gate, Host, HostOptions, Log, McpServers, Outbound, PluginHostCalls, Yaml, session_tools,
};
use ostler_js::{Engine, HttpClient, JsOptions, JsSource, ListenRule, LogSink, network};
use ostler_loader::{Hidden, InspectedPlugin, Loaded, LoadedPlugin, Loader, PluginConfig, State};
use ostler_ports::{
    DiskFiles, DiskProbe, FileAutomations, FilePolicies, FileRecords, FileVault, MemoryAutomations,
    Relocated, Report, RunRetention, SqliteSessions, SqliteUsage, StateDb, atomic, yaml,
};
use ostler_protocol::names;
use ostler_server::{ToolServers, WebSocketLinks};
use ostler_telemetry::clock;
use tokio_tungstenite::Connector;

use crate::bundled;
use crate::client_plugins::ClientPluginFolders;
use crate::config::{JavaScriptLimits, StorageLocation};
use crate::diagnostics;
use crate::exit::Exit;
use crate::frame_log::WireFile;
use crate::host_users::HostUsers;
use crate::local_system::OnDisk;
use crate::parts::console::Changes;
use crate::parts::postgres;
use crate::plugin_options;
use crate::settings::{Settings, reachable};
use crate::sources::Sources;
use crate::token::TokenSource;

/// The beginning of the announcement of a host without persistent automations.
pub const AUTOMATIONS_IN_MEMORY: &str = "automations in memory";

/// A host with its plugins applied, before connections are accepted.
pub struct Composed {
    pub host: Arc<Host>,
    /// Every configured plugin with its state.
    pub plugins: Vec<LoadedPlugin>,
    /// Lines to print as `skipped: <line>`.
    pub skipped: Vec<String>,
    /// Where automations are stored, for the announcement.
    pub automations: String,
    /// Where secrets are stored, for the announcement.
    pub vault: String,
    /// The plugin that stores the secrets, if any.
    pub vault_plugin: Option<String>,
    /// The tools endpoints of its sessions.
    pub tools: ToolServers,
    /// Keeps the engines of the plugins alive.
    pub modules: Vec<Module>,
    /// The files of the plugins, if they are watched.
    pub sources: Sources,
    /// The notifications of the console's pages.
    pub changes: Changes,
    /// The lines of the log.
    pub lines: diagnostics::Lines,
    /// The HTTP client of the host.
    pub http: HttpClient,
}

impl Composed {
    /// The engines of the JavaScript plugins.
    pub fn engines(&self) -> Vec<Weak<Engine>> {
        let kept = self.modules.iter().filter_map(|module| module.keep.clone());
        kept.filter_map(|kept| kept.downcast::<Engine>().ok()).map(|engine| Arc::downgrade(&engine)).collect()
    }

    /// Returns the ids of the applied plugins, in configuration order.
    pub fn applied(&self) -> Vec<String> {
        self.plugins
            .iter()
            .filter(|plugin| plugin.state == State::Applied)
            .filter_map(|plugin| plugin.id.as_ref().map(ToString::to_string))
            .collect()
    }
}

/// Composes a host and applies its plugins.
///
/// # Errors
/// Exit 1 if a store cannot be opened or no backend is loaded.
pub async fn compose(settings: &Settings, log: &Log, hidden: &Hidden) -> Result<Composed, Exit> {
    compose_with(bundled::agents(), settings, log, hidden).await
}

async fn compose_with(
    agents: Vec<Agent>,
    settings: &Settings,
    log: &Log,
    hidden: &Hidden,
) -> Result<Composed, Exit> {
    let lines = diagnostics::Lines::default();
    let heard = lines.clone();
    let log = &log.through(move |log, level, line| {
        heard.tell(line);
        log.write(level, line);
    });
    atomic::make_folder(&settings.dir).map_err(|error| {
        Exit::machine(format!("{} could not be created: {error}", settings.dir.display()))
    })?;
    let facts = Arc::new(HostFacts {
        paths: settings.paths.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        host_name: host_name(),
        config_dir: settings.dir.to_string_lossy().into_owned(),
    });
    let has_database = settings.plugins.iter().any(|entry| entry.enabled && entry.name == postgres::NAME);
    // Before anything is announced, or a waiting run is read.
    if settings.needs_state_db() {
        let folders = if has_database { vec![settings.state_dir.clone()] } else { written_folders(settings) };
        let probe = DiskProbe::new(folders);
        probe.write().map_err(|why| Exit::machine(format!("Could not start it: {why}")))?;
    }
    let users = HostUsers::of(settings, has_database);
    let people = users.as_ref().map(|users| users.people(settings, &facts.host_name));
    let gate = people.map_or_else(Gate::default, Gate::of);
    let host = Host::new(options(settings, &facts, log), clock(), log.clone(), host_yaml(), gate);
    host.core.set_local_system(Arc::new(OnDisk::new(&settings.dir)));
    host.core.set_plugin_folders(Arc::new(ClientPluginFolders::new(&settings.state_dir)));
    if let Some(file) = &settings.wire {
        host.core.record_frames(Some(Arc::new(WireFile::open(file, hidden.clone(), log.clone())?)));
    }
    if let (Some(users), false) = (&users, has_database) {
        users.open(None, log).await?;
        users.clone().follow(&host);
    }
    let tools = tool_servers(settings);
    host.sessions.set_tools_server(tools.opener());
    let calls = PluginHostCalls::new(&host.front);
    let http = network();
    let told = diagnostics::own(lines.clone(), http.clone());
    let log_lines = lines;
    let changes = Changes::default();
    let (own, automations, state) =
        own(agents, told, settings, log, &facts, (&host, calls.clone()), hidden).await?;
    if let Some(port) = own.all::<Port<SessionStore>>().next() {
        host.core.set_own_sessions(port.value.clone());
    }
    let (lines, plugin_lines) = (log.clone(), log.clone());
    let (native, exported) = (http.clone(), http.clone());
    host.core.set_outbound(Outbound::new(move |request| native(request)));
    host.front.set_link_dialer(Arc::new(WebSocketLinks {
        largest: host.core.budget.limit(),
        connector: || ostler_net::tls().map(Connector::Rustls).map_err(|error| error.to_string()),
    }));
    let sources = Sources::default();
    let mut js = JsOptions {
        http,
        ..javascript(&settings.javascript, Arc::new(move |line| log_of_plugin(&plugin_lines, &line)))
    };
    js.listen = listen_rule(settings.plugin_listen.clone());
    if settings.watch_plugins {
        js.read = sources.sink();
    }
    let loader = Loader {
        bundled: bundled::plugins_with(changes.clone(), retention(settings)),
        source: Arc::new(JsSource::new(js)),
        config_dir: settings.dir.clone(),
        facts,
        calls,
        log: Arc::new(move |level, line| lines.write(level, line)),
        hidden: hidden.clone(),
    };
    check_order(&settings.plugins)?;
    let mut looked = loader.importer().inspect(&settings.plugins).await;
    if settings.watch_plugins {
        looked.iter().for_each(|plugin| note(&sources, plugin, settings));
    }
    plugin_options::apply(&settings.plugin_options, &mut looked)?;
    let loaded = loader.apply_all(looked, own).await;
    check_stores(&loaded.plugins, hidden)?;
    if let (Some(users), true) = (users, has_database) {
        users.open(host.core.users_store().cloned(), log).await?;
        users.follow(&host);
    }
    let skipped = loaded.problems.iter().map(|line| hidden.hide(&line.to_string()).into_owned()).collect();
    list_problems(&host, &loaded, hidden);
    let vault_plugin = match loaded.registry.holder::<Vault>() {
        Some(Registrant::Plugin(id)) => Some(id.to_string()),
        _ => None,
    };
    let vault = match &vault_plugin {
        Some(_) => "vault from a plugin".to_owned(),
        None => format!("vault {}", settings.dir.join(FileVault::FILE).display()),
    };
    let automations = match loaded.registry.holder::<AutomationStore>() {
        Some(Registrant::Plugin(id)) => format!("automations from plugin {id}, schedules fire"),
        _ => automations,
    };
    if let Some(db) = state.filter(|_| stores_in_files(&loaded.registry)) {
        db.watch_disk(DiskProbe::new(written_folders(settings)));
    }
    host.build(loaded.registry).await;
    Ok(Composed {
        http: exported,
        host,
        plugins: loaded.plugins,
        skipped,
        automations,
        vault,
        vault_plugin,
        tools,
        modules: loaded.modules,
        sources,
        changes,
        lines: log_lines,
    })
}

/// The folders that a host with its stores in files writes to.
fn written_folders(settings: &Settings) -> Vec<PathBuf> {
    vec![settings.dir.clone(), settings.state_dir.clone()]
}

/// Whether sessions or automations are stored in files, so that nothing can be stored without room for them.
fn stores_in_files(registry: &Registry) -> bool {
    let hosts = Some(&Registrant::Host);
    registry.holder::<SessionStore>() == hosts || registry.holder::<AutomationStore>() == hosts
}

/// The rules for ended runs, in the form for stores of plugins.
fn retention(settings: &Settings) -> postgres::Retention {
    let RunRetention { count, age, bytes } = settings.runs;
    postgres::Retention { count, age, bytes }
}

/// Checks that the plugin with the stores precedes all others, whose data belongs into these stores.
fn check_order(plugins: &[PluginConfig]) -> Result<(), Exit> {
    match plugins.iter().filter(|entry| entry.enabled).position(|entry| entry.name == postgres::NAME) {
        None | Some(0) => Ok(()),
        Some(_) => Err(Exit::usage(format!(
            "{} must be the first of the plugins in the configuration, so that the others find its stores",
            postgres::NAME
        ))),
    }
}

/// Checks that the configured stores were registered. Otherwise the host would serve and fill others.
fn check_stores(plugins: &[LoadedPlugin], hidden: &Hidden) -> Result<(), Exit> {
    let Some(plugin) = plugins.iter().find(|plugin| plugin.spec == postgres::NAME) else { return Ok(()) };
    match (&plugin.state, &plugin.problem) {
        (State::Skipped, Some(problem)) => Err(Exit::machine(hidden.hide(&problem.to_string()).into_owned())),
        _ => Ok(()),
    }
}

/// Lists what was skipped and which options no plugin knows; the loader has logged both.
fn list_problems(host: &Host, loaded: &Loaded, hidden: &Hidden) {
    let known = host.core.log.problems();
    let of_plugins: Vec<&Problem> =
        loaded.plugins.iter().filter_map(|plugin| plugin.problem.as_ref()).collect();
    for plugin in &loaded.plugins {
        let unknown = plugin.unknown_options.iter();
        let mut findings: Vec<Finding> =
            unknown.map(|unknown| Finding::warning(&*unknown.line).fixed_by(&*unknown.fix)).collect();
        if let (State::Skipped, Some(problem)) = (plugin.state, &plugin.problem) {
            let fix = format!("find the cause with: ostler plugin check {}", plugin.spec);
            findings.push(Finding::error(hidden.hide(&problem.to_string())).fixed_by(fix));
        }
        known.set(ProblemKind::Plugins, &plugin.spec, findings);
    }
    let others = loaded.problems.iter().filter(|problem| !of_plugins.contains(problem));
    let others = others.map(|problem| {
        let fix = "find the cause with: ostler plugin check <plugin>";
        Finding::error(hidden.hide(&problem.to_string())).fixed_by(fix)
    });
    known.set(ProblemKind::Plugins, "plugins", others.collect());
}

/// Records the files of a plugin, or the searched paths.
fn note(sources: &Sources, plugin: &InspectedPlugin, settings: &Settings) {
    let spec = &plugin.entry.name;
    match &plugin.path {
        Some(path) => sources.add_module(path),
        None if spec.starts_with('.') || Path::new(spec).is_absolute() => {
            sources.add(&plugin.entry.base.as_ref().unwrap_or(&settings.dir).join(spec));
        }
        None => {}
    }
}

/// Creates the tools endpoints of a daemon on its port; a daemon on stdio has none.
fn tool_servers(settings: &Settings) -> ToolServers {
    let address = (!settings.stdio).then(|| reachable(settings.address));
    let origin = move || address.map(|address| format!("http://{address}"));
    ToolServers::new(origin, names::HOST, env!("CARGO_PKG_VERSION"))
}

/// Allows the listeners that the configuration names, by the plugin's spec. Port 0 means every port of the host.
fn listen_rule(allowed: BTreeMap<String, Vec<String>>) -> ListenRule {
    Arc::new(move |spec, place| allowed.get(spec).is_some_and(|places| listens(places, place)))
}

/// Returns whether `listen` of a plugin's entry allows a place.
pub fn listens(allowed: &[String], place: &str) -> bool {
    allowed.iter().any(|known| {
        known == place
            || known.strip_suffix(":0").is_some_and(|host| {
                place.rsplit_once(':').is_some_and(|(on, port)| on == host && port.parse::<u16>().is_ok())
            })
    })
}

/// Creates the engines of JavaScript plugins, with the log for their lines.
pub fn javascript(limits: &JavaScriptLimits, log: LogSink) -> JsOptions {
    let mut options =
        JsOptions { log, sdk_version: env!("CARGO_PKG_VERSION").to_owned(), ..JsOptions::default() };
    if let Some(limit) = limits.busy_limit_ms {
        options.busy_limit = Duration::from_millis(limit.0.into());
    }
    if let Some(limit) = limits.memory_limit_mb {
        options.memory_limit = usize::try_from(limit.0).ok().map(|megabytes| megabytes << 20);
    }
    options
}

fn options(settings: &Settings, facts: &HostFacts, log: &Log) -> HostOptions {
    let (mcp_servers, log) = (settings.read_mcp_servers(), log.clone());
    HostOptions {
        host_name: facts.host_name.clone(),
        version: facts.version.clone(),
        paths: settings.paths.clone(),
        mcp_servers: McpServers::new(move || mcp_servers(&log)),
        links: settings.links(),
        ..settings.host.clone()
    }
}

/// Returns the host name of the machine.
fn host_name() -> String {
    let named =
        std::fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(|| std::env::var("HOSTNAME").ok());
    named
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "localhost".to_owned())
}

/// The implementation of YAML.
pub(crate) fn host_yaml() -> Yaml {
    Yaml {
        parse: Arc::new(|text| yaml::parse(text).map_err(Thrown::new)),
        stringify: Arc::new(|value| Ok(yaml::stringify(value))),
    }
}

/// Returns a vault whose values are redacted in all lines once they were read.
fn unsaid(vault: Vault, hidden: Hidden) -> Vault {
    let get = vault.get.clone();
    let get = Call::either(move |(name,): (String,)| {
        // The caller sets the limit.
        let (asked, hidden) = (get.answering_unbounded((name,)), hidden.clone());
        asked.map(move |value| {
            value.iter().for_each(|value| hidden.add(value));
            value
        })
    });
    Vault { get, ..vault }
}

/// Opens the state database, after moving it from the configuration folder, where earlier versions wrote it.
fn state_db(settings: &Settings, log: &Log) -> Result<Arc<StateDb>, Thrown> {
    let (old, new) = (&settings.dir, &settings.state_dir);
    match StateDb::relocate(old, new)? {
        Relocated::Unneeded => {}
        Relocated::Moved => {
            log.info(format_args!("moved {} to {}", StateDb::file(old).display(), new.display()));
        }
        Relocated::Leftover => log.warn(format_args!(
            "{} is ignored because {} already has one; move it away",
            StateDb::file(old).display(),
            new.display()
        )),
    }
    StateDb::open(new)
}

/// Registers the built-in contributions of the daemon, like a plugin. Returns them with where automations are stored, and the
/// state database if there is one.
async fn own(
    agents: Vec<Agent>,
    diagnostics: Diagnostics,
    settings: &Settings,
    log: &Log,
    facts: &Arc<HostFacts>,
    (running, calls): (&Arc<Host>, Arc<PluginHostCalls>),
    hidden: &Hidden,
) -> Result<(Recorder, String, Option<Arc<StateDb>>), Exit> {
    let lines = log.clone();
    let report = Report::new(move |line| lines.warn(line)).keeping(log.problems().clone());
    let failed = |why: Thrown| Exit::machine(why.message);
    atomic::sweep(&settings.dir);
    atomic::sweep(&settings.state_dir);
    let file = match settings.needs_state_db() {
        true => Some(state_db(settings, log).map_err(failed)?),
        false => None,
    };
    if let Some(db) = &file {
        ClientPluginFolders::sweep(&settings.state_dir);
        let (host, log) = (Arc::downgrade(running), log.clone());
        db.watch_file(move |lost| {
            // Before it is logged: a message that is sent because of the log is accepted.
            if let Some(host) = host.upgrade() {
                host.core.set_lost_storage(lost.map(str::to_owned));
            }
            match lost {
                Some(lost) => log.warn(lost),
                None => log.info("state.db is available again; storing resumes"),
            }
        });
    }
    let plugin = Slug::parse("host").ok_or_else(|| Exit::machine("host is not a slug"))?;
    let host = PluginHost::new(facts.clone(), Caller { plugin, grants: Arc::new([]), vault: None }, calls);
    let sessions: SessionStore = match (&file, settings.sessions) {
        (Some(db), StorageLocation::File) => {
            Arc::new(SqliteSessions::new(db.clone(), report.clone())).into_point()
        }
        _ => Arc::new(SqliteSessions::new(StateDb::memory().map_err(failed)?, report.clone())).into_point(),
    };
    let (automations, kept): (AutomationStore, String) = match (&file, settings.automations) {
        (Some(db), StorageLocation::File) => {
            let store =
                FileAutomations::open(&settings.dir, db.clone(), report.clone()).await.map_err(failed)?;
            let dir = settings.dir.join("automations");
            (
                Arc::new(store.retaining(settings.runs)).into_point(),
                format!("automations in {}, schedules fire", dir.display()),
            )
        }
        _ => {
            let store = MemoryAutomations::new(report.clone()).map_err(failed)?;
            (
                Arc::new(store.retaining(settings.runs)).into_point(),
                format!("{AUTOMATIONS_IN_MEMORY}, schedules do not fire"),
            )
        }
    };
    let db = match &file {
        Some(db) => db.clone(),
        None => StateDb::memory().map_err(failed)?,
    };
    let usage = Arc::new(SqliteUsage::new(db, report.clone())).into_point();
    let served: Vec<PathBuf> = settings.paths.iter().map(PathBuf::from).collect();
    let mut private = vec![settings.dir.clone(), settings.state_dir.clone()];
    private.extend(settings.files.iter().chain(&settings.users).cloned());
    private.extend(match &settings.token {
        TokenSource::File(file) => Some(file.clone()),
        _ => None,
    });
    let files = Arc::new(DiskFiles::without(&served, &private)).into_point();
    let records = Arc::new(FileRecords::new(&settings.dir, report.clone())).into_point();
    let vault = Arc::new(FileVault::new(&settings.dir, report).map_err(failed)?).into_point();
    let vault = unsaid(vault, hidden.clone());
    host.register_sessions(sessions, None)
        .and_then(|()| host.register_automations(automations, None))
        .and_then(|()| host.register_records(records, None))
        .and_then(|()| host.register_policies(Arc::new(FilePolicies::new(&settings.dir)).into_point(), None))
        .and_then(|()| host.register_usage(usage, None))
        .and_then(|()| host.register_diagnostics(diagnostics, None))
        .and_then(|()| host.register_resources(files, None))
        .and_then(|()| host.register_vault(vault, None))
        .and_then(|()| agents.into_iter().try_for_each(|agent| host.register_agent(agent)))
        .and_then(|()| {
            session_tools(&running.sessions).into_iter().try_for_each(|tool| host.register_tool(tool))
        })
        .map_err(failed)?;
    Ok((host.seal(), kept, file))
}

/// Writes a line of a JavaScript plugin's console, or about its failure, with its level.
fn log_of_plugin(log: &Log, line: &ostler_js::Line) {
    match line.level {
        ostler_js::Level::Debug | ostler_js::Level::Info => log.info(line),
        ostler_js::Level::Warn | ostler_js::Level::Error | ostler_js::Level::Uncaught => log.warn(line),
    }
}

#[cfg(test)]
mod tests {
    use ostler_contract::points::AgentSession;
    use ostler_contract::{JsonObject, json};

    use super::*;
    use crate::config::RunFlags;
    use crate::config::{ConfigFiles, StorageLocation};

    /// Composes a host built with one backend of this name.
    async fn built_with(provider: &str) -> Result<Composed, Exit> {
        let dir = tempfile::tempdir().unwrap();
        let flags = RunFlags {
            sessions: Some(StorageLocation::Memory),
            automations: Some(StorageLocation::Memory),
            ..RunFlags::default()
        };
        let files = ConfigFiles { dir: dir.path().to_owned(), ..ConfigFiles::default() };
        let mut settings = Settings::new(&flags, files, dir.path())?;
        settings.plugins = vec![PluginConfig::named("@ostler/echo")];
        let agent = Agent {
            provider: provider.into(),
            display_name: "Built in".into(),
            schema: Call::now(|()| Ok(json!({}))),
            defaults: Call::now(|()| Ok(JsonObject::new())),
            create: Call::now(|_| Ok(AgentSession::default())),
            ..Agent::default()
        };
        compose_with(vec![agent], &settings, &Log::new(|_| {}), &Hidden::default()).await
    }

    #[tokio::test]
    async fn a_backend_built_in_under_a_reserved_name_stops_the_start() {
        for name in ["session", "x-mine", "ahp-mine", "FILE"] {
            let Err(exit) = built_with(name).await else { panic!("it started with {name}") };
            let wanted =
                format!("registerAgent needs provider to be a name other than {name}, which is reserved");
            assert!(exit.to_string().contains(&wanted), "{exit}");
        }
        let composed = built_with("mine").await.ok().unwrap();
        let names: Vec<String> =
            composed.host.core.listed_agents().map(|agent| agent.provider.to_string()).collect();
        assert_eq!(names, ["mine", "echo"]);
    }
}
