//! The configuration keys: name, type and description of each. Error messages for wrong values are derived from these
//! declarations, and a test compares `docs/configuration.md` with them.

use ostler_contract::cross::{data_from_live, data_to_live};
use ostler_contract::live::Live;
use ostler_contract::shape::Shape;
use ostler_contract::{Cross, JsonObject, Mismatch};
use serde::{Deserialize, Serialize};

/// The contents of a configuration file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase", default)]
#[cross(data)]
pub struct Config {
    /// Port to listen on; 0 selects a free port. Default: 9187.
    pub port: Option<Port>,
    /// Address to listen on. Default: `127.0.0.1`. An address that is not loopback requires one of the three token
    /// settings.
    pub host: Option<String>,
    /// Directories to serve; the first is the default for new sessions. Clients create sessions only in and below these
    /// directories. Default: the working directory.
    pub paths: Option<Vec<String>>,
    /// Token required from every connection.
    pub connection_token: Option<String>,
    /// File with the connection token; created with a random token if missing.
    pub connection_token_file: Option<String>,
    /// Whether to accept connections without a token from any address.
    pub without_connection_token: Option<bool>,
    /// Users file with roles, teams, projects and users. Without one, grants are not checked.
    pub users: Option<String>,
    /// HTTPS URL that users sign in to. Default: derived from the listening address.
    pub resource: Option<String>,
    /// Default issuer of user sign-ins: `github`, or the URL of an OpenID Connect provider.
    pub issuer: Option<String>,
    /// Whether a personal token on the handshake authenticates the connection as its user.
    pub trust_token: Option<bool>,
    /// Timeout of client tools in milliseconds; 0 disables it. Default: 600000.
    pub client_tool_timeout_ms: Option<u64>,
    /// How long deltas after a part's first one are coalesced, in milliseconds, 0 to 1000. Default: 75.
    pub delta_window_ms: Option<DeltaWindow>,
    /// Whether to offer tools that require the operator's permission.
    pub advanced_tools: Option<bool>,
    /// Where to store sessions: `file` or `memory`. Default: `file`.
    pub sessions: Option<Keep>,
    /// Where to store automations: `file` or `memory`. Default: `file`.
    pub automations: Option<Keep>,
    /// Automations without an owner that events may start: `every` or `none`. Default: `every`.
    pub unowned_automations: Option<Unowned>,
    /// File that records the frames of every connection as JSON lines, without credentials and at most 1 MiB of each
    /// frame. It is rotated at 75 MiB; five files are retained.
    pub wire: Option<String>,
    /// MCP servers by name: `{ type: 'stdio', command, args?, env?, cwd? }` or `{ type: 'http', url, headers? }`. A
    /// value in `env` or `headers` is a credential and may be `{ $secret: <name> }`.
    pub mcp_servers: Option<JsonObject>,
    /// Public URLs of this host. Plugin routes accept their hosts, and a listener without a token accepts web pages
    /// from them.
    pub origins: Option<Vec<String>>,
    /// Separate listener for plugin routes.
    pub routes: Option<RoutesListener>,
    /// HTTP API: `true` serves it on the daemon's port, `{ port, host }` on a separate listener. It requires a
    /// connection token or a users file.
    pub http: Option<HttpApi>,
    /// Policy enforcement.
    pub policies: Option<PolicySwitch>,
    /// Usage accounting.
    pub usage: Option<UsageSettings>,
    /// Limits of each JavaScript plugin. A plugin that exceeds one is interrupted.
    pub javascript: Option<JavaScriptLimits>,
    /// Limits on resources used for clients and callers. Work beyond a limit waits, is rejected, or sleeps.
    pub limits: Option<LimitSettings>,
    /// Plugins to load, in order.
    pub plugins: Option<Vec<PluginEntry>>,
}

/// Limits on resources used for clients and callers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct LimitSettings {
    /// Memory for messages, request bodies and responses of all connections, in MiB. Default: 192.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<Mebibytes>,
    /// Memory for messages and responses of one connection, in MiB. Default: 96.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_memory_mb: Option<Mebibytes>,
    /// Memory for request bodies of senders that the host has not authenticated, in MiB: of signed webhook calls before
    /// verification, and of JavaScript routes. Default: 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unverified_bodies_mb: Option<Mebibytes>,
    /// Maximum number of awake sessions; idle sessions beyond it sleep. Default: 2000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awake_sessions: Option<AwakeSessions>,
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
    /// Grants of the plugin's own connection, such as `bot:get`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grants: Option<Vec<String>>,
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

/// Where something is stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Cross, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Keep {
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
    /// A TCP port; 0 takes any free one.
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
}

/// Keys this host does not serve: refused, not silently taken.
pub const KEYS_NOT_SERVED: &[&str] = &["worktreesRoot", "updateCheck", "closedChats", "proxy"];
