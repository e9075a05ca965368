//! What a run is set up with: flags over files, checked together.

use std::fs::{self, Metadata};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use jiff::tz::TimeZone;
use ostler_contract::{JsonObject, Secret};
use ostler_engine::usage::{UsageOptions, UsagePer};
use ostler_engine::{HostOptions, Limits, Log};
use ostler_loader::Entry;
use ostler_ports::Stamp;
use ostler_server::names_a_host;

use crate::cli::{KeptPorts, RunFlags};
use crate::config::{
    self, ConfigFiles, Folders, HttpApi, JavaScriptLimits, Keep, LimitSettings, Mebibytes, Per, PluginEntry,
    Unowned,
};
use crate::exit::Exit;
use crate::mcp_servers::wrong_with;
use crate::token::TokenSource;
use ostler_engine::users::Issuer;

/// The port listened on where none is said.
pub const DEFAULT_PORT: u16 = 9187;
/// The address listened on where none is said.
pub const DEFAULT_HOST: &str = "127.0.0.1";

/// What a run is set up with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where to listen.
    pub address: SocketAddr,
    /// A listener of their own for plugin routes.
    pub routes: Option<SocketAddr>,
    /// The HTTP API, where it is on.
    pub http: Option<Http>,
    /// URLs this host is reached by from outside.
    pub origins: Vec<String>,
    /// One connection on stdin and stdout instead of a listener.
    pub stdio: bool,
    /// Directories served.
    pub paths: Vec<String>,
    /// What admits connections.
    pub token: TokenSource,
    /// The file that says who may do what.
    pub users: Option<PathBuf>,
    /// The URL people sign in against, where one was given.
    pub resource: Option<String>,
    /// Who signs in people whose record names no issuer.
    pub issuer: Option<Issuer>,
    /// Whether a person's token at the door says who comes in.
    pub trust_token: bool,
    /// The configuration folder: the configuration, and what users edit beside it.
    pub dir: PathBuf,
    /// The state folder: what the host itself writes.
    pub state_dir: PathBuf,
    /// The files read.
    pub files: Vec<PathBuf>,
    /// Where sessions are kept.
    pub sessions: Keep,
    /// Where automations are kept.
    pub automations: Keep,
    /// Which automations without an owner events may run.
    pub unowned: Unowned,
    /// In milliseconds.
    pub client_tool_timeout_ms: u64,
    /// In milliseconds.
    pub delta_window_ms: u64,
    /// Whether tools that ask for the operator's leave are offered.
    pub advanced_tools: bool,
    /// The file that takes the frames of every connection.
    pub wire: Option<PathBuf>,
    /// Whether policies are asked before work starts.
    pub check_policies: bool,
    /// How what work costs is counted.
    pub usage: UsageOptions,
    /// MCP servers by name.
    pub mcp_servers: JsonObject,
    /// What a plugin in JavaScript may take.
    pub javascript: JavaScriptLimits,
    /// How much is used on behalf of clients and callers.
    pub limits: Limits,
    /// Plugins to load, in order.
    pub plugins: Vec<Entry>,
    /// Options of plugins for this run, as typed.
    pub plugin_options: Vec<String>,
    /// Whether the daemon starts again when a file of a plugin changes.
    pub watch_plugins: bool,
    /// Whether `start` made this process.
    pub detached: bool,
    /// The ports to take again, where any free one is asked for.
    pub kept: Option<KeptPorts>,
    /// Lines for the log.
    pub warnings: Vec<String>,
}

/// Where the HTTP API is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Http {
    /// On the daemon's own port.
    Here,
    /// On a listener of its own.
    At(SocketAddr),
}

impl Settings {
    /// Puts flags over files.
    ///
    /// # Errors
    /// What does not go together: exit 2.
    pub fn new(flags: &RunFlags, files: ConfigFiles, working_dir: &Path) -> Result<Self, Exit> {
        let (config, mut warnings) = (files.config.clone(), files.warnings.clone());
        let host = flags.host.clone().or(config.host).unwrap_or_else(|| DEFAULT_HOST.to_owned());
        let ip = ip(&host)?;
        let port = flags.port.or(config.port.map(|port| port.0)).unwrap_or(DEFAULT_PORT);
        let token = token(
            flags,
            config.connection_token,
            config.connection_token_file,
            config.without_connection_token,
        )?;
        if !ip.is_loopback() && token == TokenSource::Unsaid && !flags.stdio {
            return Err(Exit::usage(format!(
                "{host} is reachable from other computers, so connections need a token: pass --connection-token, \
                 --connection-token-file or --without-connection-token"
            )));
        }
        let routes = match config.routes {
            None => None,
            Some(_) if flags.stdio => {
                return Err(Exit::usage("routes requires a listener, which --stdio does not have"));
            }
            Some(routes) => match (routes.port, routes.host) {
                (None, Some(_)) => return Err(Exit::usage("routes.host requires routes.port")),
                (None, None) => None,
                (Some(port), host) => {
                    Some(SocketAddr::new(self::ip(host.as_deref().unwrap_or(DEFAULT_HOST))?, port.0))
                }
            },
        };
        let users =
            flags.users.as_ref().map(|file| working_dir.join(file)).or(config.users.map(PathBuf::from));
        let http = match config.http {
            None => None,
            Some(_) if flags.stdio => {
                return Err(Exit::usage("http requires a listener, which --stdio does not have"));
            }
            Some(_) if users.is_none() && matches!(token, TokenSource::Unsaid | TokenSource::Without) => {
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
        let mcp_servers = mcp_servers(&files, &mut warnings);
        Ok(Self {
            address: SocketAddr::new(ip, port),
            routes,
            http,
            origins: config.origins.map(origins).transpose()?.unwrap_or_default(),
            stdio: flags.stdio,
            paths: paths(flags, &files, working_dir)?,
            token,
            users,
            resource: flags.resource.clone().or(config.resource).map(sign_in_resource).transpose()?,
            issuer: flags.issuer.clone().or(config.issuer).map(issuer).transpose()?,
            trust_token: flags.trust_token || config.trust_token.unwrap_or_default(),
            dir: files.dir.clone(),
            state_dir: files.state_dir.clone(),
            files: files.files.clone(),
            sessions: flags.sessions.or(config.sessions).unwrap_or_default(),
            automations: flags.automations.or(config.automations).unwrap_or_default(),
            unowned: flags.unowned_automations.or(config.unowned_automations).unwrap_or_default(),
            client_tool_timeout_ms: flags
                .client_tool_timeout_ms
                .or(config.client_tool_timeout_ms)
                .unwrap_or(HostOptions::CLIENT_TOOL_TIMEOUT_MS),
            delta_window_ms: config
                .delta_window_ms
                .map_or(HostOptions::DELTA_WINDOW_MS, |window| u64::from(window.0)),
            advanced_tools: flags.advanced_tools || config.advanced_tools.unwrap_or_default(),
            wire: flags.wire.as_ref().map(|file| working_dir.join(file)).or(config.wire.map(PathBuf::from)),
            check_policies: config.policies.and_then(|policies| policies.check).unwrap_or_default(),
            usage: usage(&files, &mut warnings),
            mcp_servers,
            javascript: config.javascript.unwrap_or_default(),
            limits: limits(&config.limits.unwrap_or_default()),
            plugins: plugins(flags, &files, working_dir),
            plugin_options: flags.plugin_option.clone(),
            watch_plugins: flags.watch_plugins,
            detached: flags.detached,
            kept: flags.kept,
            warnings,
        })
    }
}

impl Settings {
    /// The folders of the host.
    pub fn folders(&self) -> Folders {
        Folders { config: self.dir.clone(), state: self.state_dir.clone() }
    }
}

fn limits(said: &LimitSettings) -> Limits {
    let default = Limits::default();
    let number = |said: u32| usize::try_from(said).unwrap_or(usize::MAX);
    let bytes = |said: &Option<Mebibytes>, default: usize| {
        said.as_ref().map_or(default, |said| number(said.0).saturating_mul(1024 * 1024))
    };
    Limits {
        memory: bytes(&said.memory_mb, default.memory),
        connection_memory: bytes(&said.connection_memory_mb, default.connection_memory),
        unverified_bodies: bytes(&said.unverified_bodies_mb, default.unverified_bodies),
        awake_sessions: said.awake_sessions.map_or(default.awake_sessions, |said| number(said.0)),
    }
}

fn origins(urls: Vec<String>) -> Result<Vec<String>, Exit> {
    match urls.iter().position(|url| !names_a_host(url)) {
        None => Ok(urls),
        Some(at) => Err(Exit::usage(format!(
            "origins[{at}] must be a URL with a host, such as https://host.example, not {:?}",
            urls[at]
        ))),
    }
}

fn issuer(name: String) -> Result<Issuer, Exit> {
    Issuer::parse(&name).map_err(|why| Exit::usage(format!("issuer {why}")))
}

fn sign_in_resource(resource: String) -> Result<String, Exit> {
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

fn token(
    flags: &RunFlags,
    given: Option<String>,
    file: Option<String>,
    without: Option<bool>,
) -> Result<TokenSource, Exit> {
    let by_flag = [
        flags.connection_token.is_some(),
        flags.connection_token_file.is_some(),
        flags.without_connection_token,
    ];
    let sources = match by_flag.iter().filter(|said| **said).count() {
        0 => (given, file.map(PathBuf::from), without == Some(true)),
        1 => (
            flags.connection_token.clone(),
            flags.connection_token_file.clone(),
            flags.without_connection_token,
        ),
        _ => {
            return Err(Exit::usage(
                "pass one of --connection-token, --connection-token-file and --without-connection-token",
            ));
        }
    };
    match sources {
        (None, None, false) => Ok(TokenSource::Unsaid),
        (None, None, true) => Ok(TokenSource::Without),
        (Some(token), None, false) if token.trim().is_empty() => {
            Err(Exit::usage("the connection token is empty"))
        }
        (Some(token), None, false) => Ok(TokenSource::Given(Secret::new(token))),
        (None, Some(file), false) => Ok(TokenSource::File(std::path::absolute(&file).unwrap_or(file))),
        _ => Err(Exit::usage(
            "the configuration has more than one of connectionToken, connectionTokenFile and withoutConnectionToken",
        )),
    }
}

fn paths(flags: &RunFlags, files: &ConfigFiles, working_dir: &Path) -> Result<Vec<String>, Exit> {
    let (named, said): (Vec<PathBuf>, _) = match flags.path.is_empty() {
        false => (flags.path.clone(), "--path".to_owned()),
        true => {
            let configured = files.config.paths.iter().flatten();
            (configured.map(PathBuf::from).collect(), files.at("paths"))
        }
    };
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

fn plugins(flags: &RunFlags, files: &ConfigFiles, working_dir: &Path) -> Vec<Entry> {
    if flags.no_plugins {
        return Vec::new();
    }
    if !flags.plugin.is_empty() {
        let named = |spec: &String| Entry { base: Some(working_dir.to_owned()), ..Entry::named(spec) };
        return flags.plugin.iter().map(named).collect();
    }
    entries(files)
}

/// The configured plugins. A relative path is resolved against the folder of the file that lists it.
pub fn entries(files: &ConfigFiles) -> Vec<Entry> {
    let base = files.folder_of("plugins");
    let entry = |entry: PluginEntry| Entry {
        name: entry.name,
        options: entry.options.unwrap_or_default(),
        enabled: entry.enabled.unwrap_or(true),
        grants: entry.grants.unwrap_or_default(),
        base: base.clone(),
    };
    files.config.plugins.iter().flatten().cloned().map(entry).collect()
}

impl Settings {
    /// The MCP servers as the files say them now; where a file does not read, as they were at the start. Files that did not
    /// change are not read again: each time one is opened, whoever watches its folder is woken.
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
                    warnings.iter().filter(|line| !said.contains(line)).for_each(|line| log.line(line));
                    let stamp = |found: &Option<Metadata>| {
                        found.as_ref().map_or_else(Stamp::unknown, Stamp::before_reading)
                    };
                    *last = Some((found.iter().map(stamp).collect(), servers.clone()));
                    servers
                }
                Err(why) => {
                    log.line(format_args!("{why}; keeping the mcpServers read at the start"));
                    started.clone()
                }
            }
        }
    }
}

/// A time zone nobody knows is a line, and the system's stands in.
fn usage(files: &ConfigFiles, warnings: &mut Vec<String>) -> UsageOptions {
    let said = files.config.usage.clone().unwrap_or_default();
    let per = match said.per.unwrap_or_default() {
        Per::Turn => UsagePer::Turn,
        Per::Report => UsagePer::Report,
    };
    let named = said.timezone.as_deref().map(|name| (name, TimeZone::get(name)));
    let timezone = match named {
        Some((_, Ok(zone))) => zone,
        Some((name, Err(_))) => {
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

/// Leaves out servers that cannot be started, and fields none has, each with a line.
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
