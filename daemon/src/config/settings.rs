//! Every configuration key, once: its name, its type and what it does. What a wrong value is told is made from here,
//! and the page of the keys is held against it.

use ostler_contract::cross::{data_from_live, data_to_live};
use ostler_contract::live::Live;
use ostler_contract::shape::Shape;
use ostler_contract::{Cross, JsonObject, Mismatch};
use serde::{Deserialize, Serialize};

/// What a configuration file may say.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase", default)]
#[cross(data)]
pub struct Config {
    /// The port to listen on; 0 takes any free one. 9187 when left out.
    pub port: Option<Port>,
    /// The address to listen on. `127.0.0.1` when left out; any other than a loopback address needs one of the
    /// three token settings.
    pub host: Option<String>,
    /// The directories served; the first is the default for new work. Clients create sessions in these and below them
    /// only. The working directory when left out.
    pub paths: Option<Vec<String>>,
    /// The token a connection has to show.
    pub connection_token: Option<String>,
    /// The file that holds that token; made with a fresh one when it is missing.
    pub connection_token_file: Option<String>,
    /// Lets connections in without a token, wherever they come from.
    pub without_connection_token: Option<bool>,
    /// The file that says who may do what: roles, teams, projects and people. Without one nothing is gated.
    pub users: Option<String>,
    /// The https URL people sign in against. Made of the address listened on when left out.
    pub resource: Option<String>,
    /// Who signs in people whose record names no issuer: `github`, or the URL of an OpenID Connect provider.
    pub issuer: Option<String>,
    /// Whether a person's token at the door says who comes in, and not only that somebody does.
    pub trust_token: Option<bool>,
    /// How long a client's tool may take, in milliseconds; 0 = forever. 600000 when left out.
    pub client_tool_timeout_ms: Option<u64>,
    /// How long streamed text that follows a part's first delta is coalesced, in milliseconds, 0 to 1000. 75 when left out.
    pub delta_window_ms: Option<DeltaWindow>,
    /// Whether tools that ask for the operator's leave are offered to sessions.
    pub advanced_tools: Option<bool>,
    /// Where sessions are kept: `file` (when left out) or `memory`.
    pub sessions: Option<Keep>,
    /// Where automations are kept: `file` (when left out) or `memory`.
    pub automations: Option<Keep>,
    /// Whether automations nobody owns are run by events: `every` (when left out) or `none`.
    pub unowned_automations: Option<Unowned>,
    /// A file that takes the frames of every connection, one JSON object a line, without credentials: at most 1 MiB of
    /// each. It is put aside at 75 MiB, and five are kept.
    pub wire: Option<String>,
    /// MCP servers by a name of your choice: `{ type: 'stdio', command, args?, env?, cwd? }` or
    /// `{ type: 'http', url, headers? }`. A value in `env` or `headers` is a credential, and may be
    /// `{ $secret: <name> }`.
    pub mcp_servers: Option<JsonObject>,
    /// URLs this host is reached by from outside; their hosts are accepted by plugin routes, and their pages by a
    /// listener without a token.
    pub origins: Option<Vec<String>>,
    /// A listener of their own for plugin routes.
    pub routes: Option<RoutesListener>,
    /// The HTTP API: `true` serves it on the daemon's own port, `{ port, host }` on one of its own. It needs a
    /// credential: a connection token, or a users file.
    pub http: Option<HttpApi>,
    /// Whether policies bind.
    pub policies: Option<PolicySwitch>,
    /// How what work costs is counted.
    pub usage: Option<UsageSettings>,
    /// What a plugin in JavaScript may take.
    pub javascript: Option<JavaScriptLimits>,
    /// How much is used on behalf of clients and callers. What exceeds a limit waits, is refused, or sleeps.
    pub limits: Option<LimitSettings>,
    /// The plugins to load, in order.
    pub plugins: Option<Vec<PluginEntry>>,
}

/// How much is used on behalf of clients and callers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct LimitSettings {
    /// Memory for messages, request bodies and answers of all connections together, in MiB. 192 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<Mebibytes>,
    /// Memory for messages and answers of one connection, in MiB. 96 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_memory_mb: Option<Mebibytes>,
    /// Memory for request bodies whose signature is not checked yet, in MiB. 64 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unverified_bodies_mb: Option<Mebibytes>,
    /// Sessions in memory at the same time; idle ones beyond that sleep. 2000 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awake_sessions: Option<AwakeSessions>,
}

/// What each plugin in JavaScript may take. What goes beyond is interrupted and costs that plugin alone.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct JavaScriptLimits {
    /// How long it may run without a pause, in milliseconds. 10000 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_limit_ms: Option<BusyLimit>,
    /// How much memory its values may take, in MiB. 512 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit_mb: Option<MemoryLimit>,
}

/// One entry of `plugins`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct PluginEntry {
    /// The plugin's spec: a package name or a path.
    pub name: String,
    /// Option values for the plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<JsonObject>,
    /// `false` turns the plugin off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Grants the plugin's own connection holds, as `bot:get`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grants: Option<Vec<String>>,
}

/// Whether policies bind. They are kept and served either way.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct PolicySwitch {
    /// `true` asks them before a session or a turn starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<bool>,
}

/// How what work costs is counted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct UsageSettings {
    /// Which entries a turn makes: one for the whole `turn` (when left out), or one for each `report` of its backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per: Option<Per>,
    /// The IANA time zone whose midnight begins a day. The system's when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
}

/// Which entries a turn makes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "lowercase")]
pub enum Per {
    /// One, at its end.
    #[default]
    Turn,
    /// One for each report of its backend, of what the report adds.
    Report,
}

/// A listener for plugin routes alone.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct RoutesListener {
    /// The port; 0 takes any free one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<Port>,
    /// The address; `127.0.0.1` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// The HTTP API, and the listener it has for itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
pub struct HttpApi {
    /// The port; the daemon's own when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<Port>,
    /// The address; `127.0.0.1` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// Where something is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Cross, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Keep {
    /// On disk.
    #[default]
    File,
    /// Only while the daemon runs.
    Memory,
}

/// Which automations without an owner events may run.
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
