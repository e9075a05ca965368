//! The settings of a run: configuration files and flags, validated together.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use jiff::tz::TimeZone;
use ostler_contract::time_zone::time_zone;
use ostler_contract::{JsonObject, Secret};
use ostler_engine::usage::{UsageOptions, UsagePer};
use ostler_engine::{HostOptions, Links, Log};
use ostler_loader::PluginConfig;
use ostler_ports::{RunRetention, Stamp};
use ostler_protocol::names;
use ostler_server::names_a_host;

use crate::bundled;
use crate::cli::ReusedPorts;
use crate::config::{
    self, Config, ConfigFiles, Folders, HttpApi, JavaScriptLimits, Per, PluginEntry, RunFlags,
    StorageLocation,
};
use crate::exit::Exit;
use crate::mcp_servers::wrong_with;
use crate::parts::console;
use crate::token::TokenSource;
use ostler_engine::users::Issuer;
use ostler_telemetry::log::LogOptions;
use ostler_telemetry::otlp::Collector;

pub const DEFAULT_PORT: u16 = 9187;
/// The default address.
pub const DEFAULT_HOST: &str = "127.0.0.1";

/// The settings of a run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The address to listen on.
    pub address: SocketAddr,
    /// The separate listener for plugin routes.
    pub routes: Option<SocketAddr>,
    /// The HTTP API, if enabled.
    pub http: Option<Http>,
    /// Whether the web console is served.
    pub console: bool,
    /// The public URLs of this host.
    pub origins: Vec<String>,
    /// The configured URL under which others reach the daemon, without a trailing `/`.
    pub public_url: Option<String>,
    /// One connection on stdin and stdout instead of a listener.
    pub stdio: bool,
    /// The served directories.
    pub paths: Vec<String>,
    /// The connection token.
    pub token: TokenSource,
    /// The users file.
    pub users: Option<PathBuf>,
    /// The configured URL that users sign in to.
    pub resource: Option<String>,
    /// The default issuer.
    pub issuer: Option<Issuer>,
    /// Whether a personal token on the handshake is authentication.
    pub trust_token: bool,
    /// The configuration folder: the configuration, and what users edit beside it.
    pub dir: PathBuf,
    /// The state folder: what the host itself writes.
    pub state_dir: PathBuf,
    /// The configuration files.
    pub files: Vec<PathBuf>,
    /// Where sessions are stored.
    pub sessions: StorageLocation,
    /// Where automations are stored.
    pub automations: StorageLocation,
    /// Which ended runs of automations are retained.
    pub runs: RunRetention,
    /// The file for recorded frames.
    pub wire: Option<PathBuf>,
    /// The options of the host. `compose` adds what the machine determines.
    pub host: HostOptions,
    pub log: LogOptions,
    /// The collector that traces and metrics are exported to.
    pub otlp: Option<Collector>,
    /// MCP servers by name.
    pub mcp_servers: JsonObject,
    /// The limits of JavaScript plugins.
    pub javascript: JavaScriptLimits,
    /// Plugins to load, in order.
    pub plugins: Vec<PluginConfig>,
    /// The addresses at which each JavaScript plugin can listen, by its spec.
    pub plugin_listen: BTreeMap<String, Vec<String>>,
    /// Plugin options for this run, as typed.
    pub plugin_options: Vec<String>,
    /// Whether the daemon restarts when a file of a plugin changes.
    pub watch_plugins: bool,
    /// Whether `start` created this process.
    pub detached: bool,
    /// The ports to reuse for port 0.
    pub kept: Option<ReusedPorts>,
    /// Lines for the log.
    pub warnings: Vec<String>,
    /// The flags and the working directory, from which a restart makes its settings.
    pub given: (RunFlags, PathBuf),
}

/// The listener of the HTTP API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Http {
    /// The daemon's listener.
    Here,
    /// A separate listener.
    At(SocketAddr),
}

impl Settings {
    /// Creates the settings from files and flags, which have priority.
    ///
    /// # Errors
    /// Invalid or conflicting values: exit 2.
    pub fn new(flags: &RunFlags, files: ConfigFiles, working_dir: &Path) -> Result<Self, Exit> {
        let (token, mut config) = token(flags, files.config.clone(), working_dir)?;
        let mut warnings = files.warnings.clone();
        let host = config.host.clone().unwrap_or_else(|| DEFAULT_HOST.to_owned());
        let ip = ip(&host)?;
        let port = config.port.map_or(DEFAULT_PORT, |port| port.0);
        if !flags.stdio {
            check_reachable(&host, ip, &token)?;
        }
        let routes = match &config.routes {
            None => None,
            Some(_) if flags.stdio => {
                return Err(Exit::usage("routes requires a listener, which --stdio does not have"));
            }
            Some(routes) => match (routes.port, &routes.host) {
                (None, Some(_)) => return Err(Exit::usage("routes.host requires routes.port")),
                (None, None) => None,
                (Some(port), host) => {
                    Some(SocketAddr::new(self::ip(host.as_deref().unwrap_or(DEFAULT_HOST))?, port.0))
                }
            },
        };
        let http = match &config.http {
            None => None,
            Some(_) if flags.stdio => {
                return Err(Exit::usage("http requires a listener, which --stdio does not have"));
            }
            Some(_)
                if config.users.is_none() && matches!(token, TokenSource::Unsaid | TokenSource::Without) =>
            {
                return Err(Exit::usage(
                    "http needs a credential: pass --connection-token, --connection-token-file or --users.",
                ));
            }
            Some(HttpApi { port: None, host: Some(_) }) => {
                return Err(Exit::usage("http.host requires http.port"));
            }
            Some(HttpApi { port: None, host: None }) => Some(Http::Here),
            Some(HttpApi { port: Some(port), host }) => {
                Some(Http::At(SocketAddr::new(self::ip(host.as_deref().unwrap_or(DEFAULT_HOST))?, port.0)))
            }
        };
        let plugins = plugins(flags, &files, &config, working_dir);
        // Its pages use the API on the same listener.
        let console = !flags.stdio
            && plugins.iter().any(|entry| entry.enabled && entry.name == console::NAME)
            && !bundled::is_left_out(console::NAME);
        let http = http.or_else(|| console.then_some(Http::Here));
        let mut settings = Self {
            address: SocketAddr::new(ip, port),
            routes,
            http,
            origins: Vec::new(),
            public_url: None,
            stdio: flags.stdio,
            paths: paths(flags, &files, &config, working_dir)?,
            token,
            users: None,
            resource: None,
            issuer: None,
            trust_token: false,
            dir: files.dir.clone(),
            state_dir: files.state_dir.clone(),
            files: files.files.clone(),
            sessions: StorageLocation::default(),
            automations: StorageLocation::default(),
            runs: RunRetention::default(),
            wire: None,
            host: HostOptions { usage: usage(&files, &mut warnings), ..HostOptions::default() },
            log: config.log.take().unwrap_or_default().options()?,
            otlp: None,
            mcp_servers: mcp_servers(&files, &mut warnings),
            javascript: JavaScriptLimits::default(),
            plugins,
            console,
            plugin_listen: plugin_listen(&config),
            plugin_options: flags.plugin_option.clone(),
            watch_plugins: flags.watch_plugins,
            detached: flags.detached,
            kept: flags.kept,
            warnings,
            given: (flags.clone(), working_dir.to_owned()),
        };
        config.set(&mut settings)?;
        Ok(settings)
    }

    /// Returns the settings of the next start, from the files as they are now.
    ///
    /// # Errors
    /// Invalid or conflicting values: exit 2.
    pub fn next(&self, files: ConfigFiles) -> Result<Self, Exit> {
        let (flags, working_dir) = &self.given;
        Self::new(flags, files, working_dir)
    }
}

/// Checks that an address that other computers can reach has a token, or explicitly needs none.
pub(crate) fn check_reachable(host: &str, ip: IpAddr, token: &TokenSource) -> Result<(), Exit> {
    if ip.is_loopback() || *token != TokenSource::Unsaid {
        return Ok(());
    }
    Err(Exit::usage(format!(
        "{host} is reachable from other computers, so connections need a token: pass --connection-token, \
         --connection-token-file or --without-connection-token"
    )))
}

impl Settings {
    /// Returns whether a start opens the state database.
    pub fn needs_state_db(&self) -> bool {
        (self.sessions, self.automations) != (StorageLocation::Memory, StorageLocation::Memory)
    }

    /// Returns the URL under which others reach the daemon, without a trailing `/`: the configured one, otherwise the
    /// listener's address. `None` on stdio without a configured one.
    pub fn base_url(&self) -> Option<String> {
        let listener = || (!self.stdio).then(|| format!("http://{}", reachable(self.address)));
        self.public_url.clone().or_else(listener)
    }

    /// Returns the HTTP services of runs and sessions. Pages of the console work only on the daemon's listener.
    pub(crate) fn links(&self) -> Links {
        let Some(base) = self.base_url().filter(|_| !self.stdio) else { return Links::default() };
        let console = self.console && self.routes.is_none();
        let api = match (self.http, &self.public_url) {
            (None, _) => None,
            (Some(Http::At(address)), None) if !self.console => {
                Some(format!("http://{}", reachable(address)))
            }
            (Some(_), _) => Some(base.clone()),
        };
        Links {
            console: console.then(|| format!("{base}{}", names::route("console", ""))),
            api: api.map(|api| format!("{api}/api")),
        }
    }

    /// Returns the URLs whose hosts are names of this host.
    pub fn named_by(&self) -> impl Iterator<Item = &str> {
        self.origins.iter().chain(&self.public_url).map(String::as_str)
    }

    /// Returns the folders of the host.
    pub fn folders(&self) -> Folders {
        Folders { config: self.dir.clone(), state: self.state_dir.clone() }
    }
}

/// Returns the address at which this computer reaches a listener: loopback for one on all addresses.
pub(crate) fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

/// Parses `publicUrl`: an HTTP URL without a query and a fragment.
pub(crate) fn public_url(text: &str) -> Result<String, Exit> {
    let wrong = |why| {
        Exit::usage(format!("publicUrl must be an http or https URL such as https://host.example: {why}"))
    };
    let url = url::Url::parse(text).map_err(|error| wrong(format!("{error}")))?;
    let lacking = match url.scheme() {
        "http" | "https" if !url.username().is_empty() || url.password().is_some() => {
            "remove the credentials"
        }
        "http" | "https" if url.query().is_some() || url.fragment().is_some() => {
            "remove the query and the fragment"
        }
        "http" | "https" => return Ok(url.as_str().trim_end_matches('/').to_owned()),
        _ => "its scheme is another one",
    };
    Err(wrong(lacking.to_owned()))
}

/// Checks the URLs of `origins`.
pub(crate) fn origins(urls: Vec<String>) -> Result<Vec<String>, Exit> {
    match urls.iter().position(|url| !names_a_host(url)) {
        None => Ok(urls),
        Some(at) => Err(Exit::usage(format!(
            "origins[{at}] must be a URL with a host, such as https://host.example, not {:?}",
            urls[at]
        ))),
    }
}

/// Parses an issuer.
pub(crate) fn issuer(name: &str) -> Result<Issuer, Exit> {
    Issuer::parse(name).map_err(|why| Exit::usage(format!("issuer {why}")))
}

/// Checks the URL of `resource`.
pub(crate) fn sign_in_resource(resource: String) -> Result<String, Exit> {
    match resource
        .strip_prefix("https://")
        .is_some_and(|rest| !rest.is_empty() && !rest.contains(char::is_whitespace))
    {
        true => Ok(resource),
        false => Err(Exit::usage(format!("resource must be an https URL, not {resource}"))),
    }
}

fn ip(host: &str) -> Result<IpAddr, Exit> {
    match host {
        "localhost" => Ok(IpAddr::from([127, 0, 0, 1])),
        other => other
            .trim_start_matches('[')
            .trim_end_matches(']')
            .parse()
            .map_err(|_| Exit::usage(format!("invalid address {other}: use an IP address or localhost"))),
    }
}

/// Returns the connection token, and the configuration with the flags applied. A flag for a token replaces all settings
/// of tokens.
fn token(flags: &RunFlags, mut config: Config, working_dir: &Path) -> Result<(TokenSource, Config), Exit> {
    let by_flag = [
        flags.connection_token.is_some(),
        flags.connection_token_file.is_some(),
        flags.without_connection_token,
    ];
    match by_flag.iter().filter(|given| **given).count() {
        0 => {}
        1 => {
            config.connection_token = None;
            config.connection_token_file = None;
            config.without_connection_token = None;
        }
        _ => {
            return Err(Exit::usage(
                "pass one of --connection-token, --connection-token-file and --without-connection-token",
            ));
        }
    }
    let mut config = config.overridden(flags, working_dir);
    let without = config.without_connection_token == Some(true);
    let token = match (config.connection_token.take(), config.connection_token_file.take(), without) {
        (None, None, false) => TokenSource::Unsaid,
        (None, None, true) => TokenSource::Without,
        (Some(token), None, false) if token.trim().is_empty() => {
            return Err(Exit::usage("the connection token is empty"));
        }
        (Some(token), None, false) => TokenSource::Given(Secret::new(token)),
        (None, Some(file), false) => {
            let file = PathBuf::from(file);
            TokenSource::File(std::path::absolute(&file).unwrap_or(file))
        }
        _ => {
            return Err(Exit::usage(
                "the configuration has more than one of connectionToken, connectionTokenFile and withoutConnectionToken",
            ));
        }
    };
    Ok((token, config))
}

fn paths(
    flags: &RunFlags,
    files: &ConfigFiles,
    config: &Config,
    working_dir: &Path,
) -> Result<Vec<String>, Exit> {
    let said = if flags.path.is_empty() { files.at("paths") } else { "--path".to_owned() };
    let named: Vec<PathBuf> = config.paths.iter().flatten().map(PathBuf::from).collect();
    if named.is_empty() {
        if flags.no_cwd {
            return Err(Exit::usage(
                "--no-cwd without a directory to serve; pass --path, or set \"paths\" in the configuration",
            ));
        }
        return Ok(vec![working_dir.to_string_lossy().into_owned()]);
    }
    named
        .into_iter()
        .map(|path| {
            let path = working_dir.join(path);
            let wrong = |path: &Path, why| Exit::usage(format!("{said}: {} {why}", path.display()));
            let path = path.canonicalize().map_err(|_| wrong(&path, "does not exist"))?;
            if !path.is_dir() {
                return Err(wrong(&path, "is not a directory"));
            }
            Ok(path.to_string_lossy().into_owned())
        })
        .collect()
}

fn plugins(flags: &RunFlags, files: &ConfigFiles, config: &Config, working_dir: &Path) -> Vec<PluginConfig> {
    match (flags.no_plugins, flags.plugin.is_empty()) {
        (true, _) => Vec::new(),
        (false, true) => entries(files),
        (false, false) => entries_of(config, Some(working_dir.to_owned())),
    }
}

/// Returns the configured plugins. A relative path is resolved against the folder of its file.
pub fn entries(files: &ConfigFiles) -> Vec<PluginConfig> {
    entries_of(&files.config, files.folder_of("plugins"))
}

fn entries_of(config: &Config, base: Option<PathBuf>) -> Vec<PluginConfig> {
    let entry = |entry: PluginEntry| PluginConfig {
        name: entry.name,
        options: entry.options.unwrap_or_default(),
        enabled: entry.enabled.unwrap_or(true),
        grants: entry.grants.unwrap_or_default(),
        base: base.clone(),
    };
    config.plugins.iter().flatten().cloned().map(entry).collect()
}

fn plugin_listen(config: &Config) -> BTreeMap<String, Vec<String>> {
    let entries = config.plugins.iter().flatten();
    entries.filter_map(|entry| Some((entry.name.clone(), entry.listen.clone()?))).collect()
}

impl Settings {
    /// Returns the current MCP servers from the files, or those at the start if a file is unreadable. Unchanged files
    /// are not read again, because opening a file wakes the watchers of its folder.
    pub fn read_mcp_servers(&self) -> impl Fn(&Log) -> JsonObject + Send + Sync + use<> {
        let (files, started, said) = (self.files.clone(), self.mcp_servers.clone(), self.warnings.clone());
        let last: Mutex<Option<(Vec<Stamp>, JsonObject)>> = Mutex::new(None);
        move |log| {
            let found: Vec<Option<Metadata>> = files.iter().map(|file| fs::metadata(file).ok()).collect();
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((stamps, servers)) = &*last
                && stamps
                    .iter()
                    .zip(&found)
                    .all(|(stamp, found)| found.as_ref().is_some_and(|found| stamp.still(found)))
            {
                return servers.clone();
            }
            *last = None;
            match config::read_again(&files) {
                Ok(files) => {
                    let mut warnings = Vec::new();
                    let servers = mcp_servers(&files, &mut warnings);
                    warnings.iter().filter(|line| !said.contains(line)).for_each(|line| log.warn(line));
                    let stamp = |found: &Option<Metadata>| {
                        found.as_ref().map_or_else(Stamp::unknown, Stamp::before_reading)
                    };
                    *last = Some((found.iter().map(stamp).collect(), servers.clone()));
                    servers
                }
                Err(why) => {
                    log.warn(format_args!("{why}; keeping the mcpServers read at the start"));
                    started.clone()
                }
            }
        }
    }
}

/// An unknown time zone is reported with a line, and the system's is used.
fn usage(files: &ConfigFiles, warnings: &mut Vec<String>) -> UsageOptions {
    let said = files.config.usage.clone().unwrap_or_default();
    let per = match said.per.unwrap_or_default() {
        Per::Turn => UsagePer::Turn,
        Per::Report => UsagePer::Report,
    };
    let named = said.timezone.as_deref().map(|name| (name, time_zone(name)));
    let timezone = match named {
        Some((_, Some(zone))) => zone,
        Some((name, None)) => {
            warnings.push(format!(
                "{}: unknown time zone {name}; using the system's",
                files.at("usage.timezone")
            ));
            TimeZone::system()
        }
        None => TimeZone::system(),
    };
    UsageOptions { per, timezone }
}

/// Omits servers that cannot be started and unknown fields, each with a line.
fn mcp_servers(files: &ConfigFiles, warnings: &mut Vec<String>) -> JsonObject {
    let mut servers = files.config.mcp_servers.clone().unwrap_or_default();
    servers.retain(|name, server| {
        let wrong = wrong_with(server);
        let at = files.at(&format!("mcpServers.{name}"));
        match wrong.iter().find(|wrong| !wrong.unknown) {
            Some(wrong) => {
                warnings.push(format!("{at}{} {}; ignored", wrong.path, wrong.what));
                false
            }
            None => {
                for wrong in wrong {
                    warnings.push(format!("{at}{} {}; ignored", wrong.path, wrong.what));
                    if let Some(fields) = server.as_object_mut() {
                        fields.shift_remove(wrong.path.trim_start_matches('.'));
                    }
                }
                true
            }
        }
    });
    servers
}
