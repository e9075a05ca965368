//! The declarations of the configuration keys: documentation, type, flag, root setting and effect of each. Error messages
//! for wrong values are derived from these declarations, and a test compares `docs/configuration.md` with them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use clap::Args;
use ostler_contract::cross::{data_from_live, data_to_live};
use ostler_contract::live::Live;
use ostler_contract::shape::Shape;
use ostler_contract::{Cross, JsonObject, Mismatch, json};
use ostler_engine::Limits;
use ostler_ports::RunRetention;
use serde::{Deserialize, Serialize};

use super::declare::{Effect, Flag, Key, RootSetting, keys};
use crate::cli::ReusedPorts;
use crate::exit::Exit;
use crate::otlp::Collector;
use crate::root_settings;
use crate::settings::{self, Settings};

keys! {
    /// Port to listen on; 0 selects a free port. Default: 9187.
    port: Port {
        flag {
            /// Port to listen on; 0 selects a free port [default: 9187]
            #[arg(long, value_name = "N")]
            port: Option<u16>
        }
        root "Port" => Effect::Restart;
    }

    /// Address to listen on. Default: `127.0.0.1`. An address that is not loopback requires one of the three token
    /// settings.
    host: String {
        flag {
            /// Address to listen on [default: 127.0.0.1]
            #[arg(long, value_name = "ADDRESS")]
            host: Option<String>
        }
        root "Address" => Effect::Restart;
    }

    /// Directories to serve; the first is the default for new sessions. Clients create sessions only in and below these
    /// directories. Default: the working directory.
    paths: Vec<String> {
        relative: true;
        flag {
            /// Directory to serve (repeatable); the first is the default for new sessions [default: the working directory]
            #[arg(long, value_name = "DIR")]
            path: Vec<PathBuf>
        }
        also {
            /// Do not serve the working directory by default
            #[arg(long)]
            no_cwd: bool
        }
        root "Served directories" => Effect::Restart;
    }

    /// Token required from every connection.
    connection_token: String {
        hides { "writeOnly": true };
        flag {
            /// Token required from every connection
            #[arg(long, value_name = "TOKEN")]
            connection_token: Option<String>
        }
    }

    /// File with the connection token; created with a random token if missing.
    connection_token_file: String {
        relative: true;
        flag {
            /// File with the connection token; created with a random token if missing
            #[arg(long, value_name = "FILE")]
            connection_token_file: Option<PathBuf>
        }
    }

    /// Whether to accept connections without a token from any address. They name the host by loopback, by the address
    /// that it listens on, or by a host of `origins`.
    without_connection_token: bool {
        flag {
            /// Accept connections without a token from any address
            #[arg(long)]
            without_connection_token: bool
        }
    }

    /// Users file with roles, teams, projects and users. Without one, grants are not checked.
    users: String {
        relative: true;
        flag {
            /// Users file with roles and grants; without one, grants are not checked
            #[arg(long, value_name = "FILE")]
            users: Option<PathBuf>
        }
        sets |settings, file| settings.users = Some(file.into());
    }

    /// HTTPS URL that users sign in to. Default: derived from the listening address.
    resource: String {
        flag {
            /// HTTPS URL that users sign in to [default: derived from the listening address]
            #[arg(long, value_name = "URL")]
            resource: Option<String>
        }
        sets |settings, url| settings.resource = Some(settings::sign_in_resource(url)?);
    }

    /// Default issuer of user sign-ins: `github`, or the URL of an OpenID Connect provider.
    issuer: String {
        flag {
            /// Default issuer of user sign-ins: github, or the URL of an OpenID Connect provider
            #[arg(long, value_name = "ISSUER")]
            issuer: Option<String>
        }
        sets |settings, name| settings.issuer = Some(settings::issuer(&name)?);
    }

    /// Whether a personal token on the handshake authenticates the connection as its user.
    trust_token: bool {
        flag {
            /// Treat a personal token on the handshake as authentication
            #[arg(long)]
            trust_token: bool
        }
        also {
            /// Serve one connection on stdin and stdout, one message per line
            #[arg(long)]
            stdio: bool
        }
        sets |settings, trusted| settings.trust_token = trusted;
    }

    /// Where to store automations: `file` or `memory`. Default: `file`.
    automations: StorageLocation {
        flag {
            /// Where to store automations [default: file]
            #[arg(long, value_enum)]
            automations: Option<StorageLocation>
        }
        sets |settings, keep| settings.automations = keep;
    }

    /// Automations without an owner that events may start: `every` or `none`. Default: `every`.
    unowned_automations: Unowned {
        flag {
            /// Automations without an owner that events may start [default: every]
            #[arg(long, value_enum)]
            unowned_automations: Option<Unowned>
        }
        sets |settings, which| settings.host.unowned_automations = which == Unowned::Every;
    }

    /// Where to store sessions: `file` or `memory`. Default: `file`.
    sessions: StorageLocation {
        flag {
            /// Where to store sessions [default: file]
            #[arg(long, value_enum)]
            sessions: Option<StorageLocation>
        }
        sets |settings, keep| settings.sessions = keep;
    }

    /// Timeout of client tools in milliseconds; 0 disables it. Default: 600000.
    client_tool_timeout_ms: u64 {
        flag {
            /// Timeout of client tools in milliseconds; 0 disables it [default: 600000]
            #[arg(long, value_name = "MS")]
            client_tool_timeout_ms: Option<u64>
        }
        sets |settings, timeout| settings.host.client_tool_timeout_ms = timeout;
    }

    /// How long deltas after a part's first one are coalesced, in milliseconds, 0 to 1000. Default: 75.
    delta_window_ms: DeltaWindow {
        sets |settings, window| settings.host.delta_window_ms = window.0.into();
    }

    /// Whether to offer tools that require the operator's permission.
    advanced_tools: bool {
        flag {
            /// Offer tools that require the operator's permission
            #[arg(long)]
            advanced_tools: bool
        }
        root "Offer tools that require the operator's permission" => Effect::Live(root_settings::advanced_tools);
        sets |settings, offered| settings.host.advanced_tools = offered;
    }

    /// File that records the frames of every connection as JSON lines, without credentials and at most 1 MiB of each
    /// frame. It is rotated at 75 MiB; five files are retained.
    wire: String {
        relative: true;
        flag {
            /// Record the frames of every connection to a file, as JSON lines
            #[arg(long, value_name = "FILE")]
            wire: Option<PathBuf>
        }
        root "Record frames to" => Effect::Live(root_settings::wire);
        sets |settings, file| settings.wire = Some(file.into());
    }

    /// MCP servers by name: `{ type: 'stdio', command, args?, env?, cwd? }` or `{ type: 'http', url, headers? }`. A
    /// value in `env` or `headers` is a credential and may be `{ $secret: <name> }`.
    mcp_servers: JsonObject {
        hides { "additionalProperties": { "properties": {
            "env": { "additionalProperties": { "writeOnly": true } },
            "headers": { "additionalProperties": { "writeOnly": true } },
        } } };
        root "MCP servers" => Effect::Live(root_settings::mcp_servers);
    }

    /// Public URLs of this host, and origins of other web pages that may connect to it. Requests may name their hosts,
    /// and a listener without a token accepts pages from exactly these origins, scheme and port included.
    origins: Vec<String> {
        sets |settings, urls| settings.origins = settings::origins(urls)?;
    }

    /// URL under which other people reach the daemon; links to it begin with this URL. Its host is accepted as those of
    /// `origins` are. Default: the listener's address.
    public_url: String {
        sets |settings, url| settings.public_url = Some(settings::public_url(&url)?);
    }

    /// Separate listener for plugin routes.
    routes: RoutesListener {}

    /// HTTP API: `true` serves it on the daemon's port, `{ port, host }` on a separate listener. It requires a
    /// connection token or a users file. With the web console it is always served on the daemon's port.
    http: HttpApi {
        root "HTTP API" => Effect::Restart;
    }

    /// Policy enforcement.
    policies: PolicySwitch {
        sets |settings, policies| settings.host.check_policies = policies.check.unwrap_or_default();
    }

    /// Usage accounting.
    usage: UsageSettings {}

    /// Which ended runs of automations are retained. The oldest are removed first.
    runs: RunSettings {
        sets |settings, runs| settings.runs = runs.over(settings.runs);
    }

    /// Limits of each JavaScript plugin. A plugin that exceeds one is interrupted.
    javascript: JavaScriptLimits {
        sets |settings, limits| settings.javascript = limits;
    }

    /// Limits on resources used for clients and callers. Work beyond a limit waits, is rejected, or sleeps.
    limits: LimitSettings {
        sets |settings, limits| settings.host.limits = limits.over(settings.host.limits);
    }

    /// Log on standard error.
    log: LogSettings {}

    /// OpenTelemetry collector that traces and metrics are exported to, as JSON over OTLP/HTTP. Default: none.
    otlp: OtlpSettings {
        hides { "properties": { "headers": { "additionalProperties": { "writeOnly": true } } } };
        sets |settings, otlp| settings.otlp = Some(Collector::new(&otlp)?);
    }

    /// Plugins to load, in order.
    plugins: Vec<PluginEntry> {
        flag {
            /// Plugin to load instead of the configured ones (repeatable)
            #[arg(long, value_name = "SPEC", conflicts_with = "no_plugins")]
            plugin: Vec<String>
        }
        also {
            /// Load no plugins
            #[arg(long)]
            no_plugins: bool
        }
        also {
            /// Plugin option for this run: <id>.<key>[.<key>]=<value> (repeatable)
            #[arg(long, value_name = "OPTION")]
            plugin_option: Vec<String>
        }
        also {
            /// Restart on the same port when a file of a plugin changes
            #[arg(long, conflicts_with_all = ["stdio", "no_plugins"])]
            watch_plugins: bool
        }
    }
}

impl RunSettings {
    /// Returns the rules, with those of `default` for absent ones.
    fn over(&self, default: RunRetention) -> RunRetention {
        RunRetention {
            count: self.count.map_or(default.count, |count| count.0),
            age: self
                .days
                .map_or(default.age, |days| Some(Duration::from_secs(u64::from(days.0) * 24 * 60 * 60))),
            bytes: self.size_mb.map_or(default.bytes, |size| Some(u64::from(size.0) << 20)),
        }
    }
}

/// Which ended runs of automations are retained.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct RunSettings {
    /// How many of each automation. Default: 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<RunCount>,
    /// For how many days after their end. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub days: Option<Days>,
    /// How much those of all automations take in the state database, in MiB. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_mb: Option<Mebibytes>,
}

impl LimitSettings {
    /// Returns the limits, with those of `default` for absent ones.
    fn over(&self, default: Limits) -> Limits {
        let number = |value: u32| usize::try_from(value).unwrap_or(usize::MAX);
        let bytes = |value: Option<Mebibytes>, default: usize| {
            value.map_or(default, |value| number(value.0).saturating_mul(1024 * 1024))
        };
        Limits {
            memory: bytes(self.memory_mb, default.memory),
            connection_memory: bytes(self.connection_memory_mb, default.connection_memory),
            unverified_bodies: bytes(self.unverified_bodies_mb, default.unverified_bodies),
            session_memory: bytes(self.session_memory_mb, default.session_memory),
            awake_sessions: self.awake_sessions.map_or(default.awake_sessions, |count| number(count.0)),
        }
    }
}

/// Limits on resources used for clients and callers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct LimitSettings {
    /// Memory for messages, request bodies and responses of all connections, and for content that backends and tools read,
    /// in MiB. Default: 192.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<Mebibytes>,
    /// Memory for messages and responses of one connection, in MiB. Default: 96.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_memory_mb: Option<Mebibytes>,
    /// Memory for request bodies of senders that the host has not authenticated, in MiB: of signed webhook calls before
    /// verification, and of JavaScript routes. Default: 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unverified_bodies_mb: Option<Mebibytes>,
    /// Memory for the states of awake sessions, in MiB: their turns, drafts, queued messages and annotations. Beyond three
    /// quarters of it idle sessions sleep, and what would enlarge the others is rejected; short messages may use the
    /// rest. Default: 128.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_memory_mb: Option<Mebibytes>,
    /// Maximum number of awake sessions; idle sessions beyond it sleep. Watched sessions may exceed it by a
    /// quarter, those about to sleep by as much again as the limit. Default: 2000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awake_sessions: Option<AwakeSessions>,
}

/// The log on standard error.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct LogSettings {
    /// Level of the lines: `error`, `warn`, `info`, `debug` or `trace`. `<module>=<level>` sets the level of one module;
    /// separate several with commas. The variable `OSTLER_LOG` overrides it. Default: `info`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
    /// Format of the lines: `text` or `json`. Default: `text`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<LogFormat>,
}

/// The collector that traces and metrics are exported to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct OtlpSettings {
    /// URL of the collector; `/v1/traces` and `/v1/metrics` are appended to it.
    pub endpoint: String,
    /// Headers of each request. A value is a credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<BTreeMap<String, String>>,
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// A time and a text.
    #[default]
    Text,
    /// A JSON object.
    Json,
}

/// Limits of each JavaScript plugin. A plugin that exceeds one is interrupted; other plugins are not affected.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct JavaScriptLimits {
    /// CPU time without a pause, in milliseconds. Default: 10000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_limit_ms: Option<BusyLimit>,
    /// Memory of the plugin's values, in MiB. Default: 512.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit_mb: Option<MemoryLimit>,
}

/// One entry of `plugins`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct PluginEntry {
    /// Spec of the plugin: a package name or a path.
    pub name: String,
    /// Option values for the plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<JsonObject>,
    /// `false` disables the plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// List of grants of the plugin's own connection, such as `["bot:get"]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grants: Option<Vec<String>>,
    /// List of places where a JavaScript plugin may open listeners, such as `["127.0.0.1:8080"]`: `<host>:<port>`, with
    /// port 0 for every port, or the path of a socket. Default: nowhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<Vec<String>>,
}

/// Policy enforcement. Policies are stored and served in any case.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct PolicySwitch {
    /// Whether to check policies before a session or turn starts. Default: `false`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<bool>,
}

/// Usage accounting.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct UsageSettings {
    /// Granularity of entries: one per `turn`, or one per `report` of the backend. Default: `turn`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per: Option<Per>,
    /// IANA time zone that defines the start of a day. Default: the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
}

/// The granularity of usage entries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "lowercase")]
pub enum Per {
    /// One entry at the end of the turn.
    #[default]
    Turn,
    /// One entry per report of the backend, with the increment of that report.
    Report,
}

/// A separate listener for plugin routes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct RoutesListener {
    /// Port; 0 selects a free port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<Port>,
    /// Address. Default: `127.0.0.1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// The HTTP API and its optional separate listener.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct HttpApi {
    /// Port. Default: the daemon's port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<Port>,
    /// Address. Default: `127.0.0.1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// Where sessions or automations are stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Cross, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum StorageLocation {
    /// On disk.
    #[default]
    File,
    /// In memory, until the daemon stops.
    Memory,
}

/// The automations without an owner that events may start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Cross, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Unowned {
    /// Every one.
    #[default]
    Every,
    /// None.
    None,
}

macro_rules! integers {
    ($($(#[$doc:meta])* $name:ident($ty:ty): $low:literal to $high:literal;)+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $ty);

        impl Cross for $name {
            fn shape() -> Shape {
                Shape::IntegerBetween { low: $low, high: $high }
            }

            fn into_live(self) -> Live {
                data_to_live(&self)
            }

            fn from_live(live: Live) -> Result<Self, Mismatch> {
                data_from_live(live, &Self::shape())
            }
        }
    )+};
}

integers! {
    /// A TCP port; 0 means any free one.
    Port(u16): 0 to 65535;
    /// Milliseconds.
    DeltaWindow(u16): 0 to 1000;
    /// Milliseconds.
    BusyLimit(u32): 10 to 3_600_000;
    /// MiB.
    MemoryLimit(u32): 8 to 65_536;
    /// MiB.
    Mebibytes(u32): 1 to 65_536;
    /// Sessions.
    AwakeSessions(u32): 1 to 1_000_000;
    /// Runs of an automation.
    RunCount(u32): 1 to 10_000_000;
    /// Days.
    Days(u32): 1 to 36_500;
}

/// Keys that this host does not support, which are rejected instead of ignored.
pub const KEYS_NOT_SERVED: &[&str] = &["worktreesRoot", "updateCheck", "closedChats", "proxy"];
