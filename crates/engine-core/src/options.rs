//! The options of a host, from its configuration and its builder.

use std::sync::Arc;

use jiff::tz::TimeZone;
use ostler_contract::JsonObject;

use crate::fanout::DEFAULT_REPLAY;
use crate::limits::Limits;
use crate::outbox::DEFAULT_LIMIT;
use crate::web_links::Links;

#[derive(Debug, Clone)]
pub struct HostOptions {
    /// The name of this host, which is the owner of work without a user.
    pub host_name: String,
    /// The daemon's version.
    pub version: String,
    /// Every directory served; the first is the default for new work.
    pub paths: Vec<String>,
    /// How long streamed text after a part's first delta is coalesced, in ms; 0 coalesces nothing.
    pub delta_window_ms: u64,
    /// The limit of a client tool, in ms; 0 means none.
    pub client_tool_timeout_ms: u64,
    /// Whether events run automations without an owner.
    pub unowned_automations: bool,
    /// Whether advanced tools, which the operator must enable, are offered.
    pub advanced_tools: bool,
    /// Whether policies are checked before work starts.
    pub check_policies: bool,
    /// How usage is counted.
    pub usage: UsageOptions,
    /// The `mcpServers` entries.
    pub mcp_servers: McpServers,
    /// How much of the past is retained for reconnecting clients, in bytes.
    pub replay: usize,
    /// How much can be queued for one client, in bytes.
    pub outbox: usize,
    /// How many sessions that are not awake stay in memory.
    pub resting_sessions: usize,
    /// Limits of the memory for clients.
    pub limits: Limits,
    /// Where runs and sessions are served over HTTP.
    pub links: Links,
}

impl HostOptions {
    /// The default window in which streamed text is coalesced.
    pub const DELTA_WINDOW_MS: u64 = 75;
    /// The default limit of a client tool.
    pub const CLIENT_TOOL_TIMEOUT_MS: u64 = 600_000;
    /// The default number of sessions that are not awake and stay in memory.
    pub const RESTING_SESSIONS: usize = 1000;
}

impl Default for HostOptions {
    fn default() -> Self {
        Self {
            host_name: "localhost".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            paths: Vec::new(),
            delta_window_ms: Self::DELTA_WINDOW_MS,
            client_tool_timeout_ms: Self::CLIENT_TOOL_TIMEOUT_MS,
            unowned_automations: true,
            advanced_tools: false,
            check_policies: false,
            usage: UsageOptions::default(),
            mcp_servers: McpServers::default(),
            replay: DEFAULT_REPLAY,
            outbox: DEFAULT_LIMIT,
            resting_sessions: Self::RESTING_SESSIONS,
            limits: Limits::default(),
            links: Links::default(),
        }
    }
}

/// The `mcpServers` entries by name, read anew at each session's start.
#[derive(Clone, Default)]
pub struct McpServers(Option<Arc<dyn Fn() -> JsonObject + Send + Sync>>);

impl McpServers {
    /// Creates it from a function that returns the current entries.
    pub fn new(read: impl Fn() -> JsonObject + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(read)))
    }

    /// Returns the current entries.
    pub fn read(&self) -> Option<JsonObject> {
        self.0.as_ref().map(|read| read()).filter(|servers| !servers.is_empty())
    }
}

impl std::fmt::Debug for McpServers {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("McpServers")
    }
}

/// How usage is counted.
#[derive(Debug, Clone)]
pub struct UsageOptions {
    /// The entries of a turn.
    pub per: UsagePer,
    /// The time zone of days.
    pub timezone: TimeZone,
}

impl Default for UsageOptions {
    fn default() -> Self {
        Self { per: UsagePer::default(), timezone: TimeZone::UTC }
    }
}

/// The entries of a turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UsagePer {
    /// One at its end.
    #[default]
    Turn,
    /// One for each report of its backend, with what the report adds.
    Report,
}
