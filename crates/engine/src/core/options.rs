//! How a host is set up: what its configuration and its builder decide.

use std::sync::Arc;

use jiff::tz::TimeZone;
use ostler_contract::JsonObject;

use crate::core::fanout::DEFAULT_REPLAY;
use crate::core::limits::Limits;
use crate::core::outbox::DEFAULT_LIMIT;
use crate::core::web_links::Links;

/// How a host is set up.
#[derive(Debug, Clone)]
pub struct HostOptions {
    /// What this host is called, for work nobody started as themselves.
    pub host_name: String,
    /// The daemon's version.
    pub version: String,
    /// Every directory served; the first is the default for new work.
    pub paths: Vec<String>,
    /// How long streamed text that follows a part's first delta is coalesced, in ms; 0 coalesces nothing.
    pub delta_window_ms: u64,
    /// How long a client's tool may take, in ms; 0 = forever.
    pub client_tool_timeout_ms: u64,
    /// Whether automations nobody owns are run by events.
    pub unowned_automations: bool,
    /// Whether tools that ask for the operator's leave are offered.
    pub advanced_tools: bool,
    /// Whether policies are asked before work starts.
    pub check_policies: bool,
    /// How use is counted.
    pub usage: UsageOptions,
    /// The `mcpServers` entries.
    pub mcp_servers: McpServers,
    /// How much of the past is kept for reconnecting clients, in bytes.
    pub replay: usize,
    /// How much may wait for one client, in bytes.
    pub outbox: usize,
    /// How many sessions that rest stay in memory.
    pub resting_sessions: usize,
    /// How much is used on behalf of clients.
    pub limits: Limits,
    /// Where runs and sessions are served over HTTP.
    pub links: Links,
}

impl HostOptions {
    /// The window streamed text is gathered in, where nothing else is said.
    pub const DELTA_WINDOW_MS: u64 = 75;
    /// How long a client's tool may take, where nothing else is said.
    pub const CLIENT_TOOL_TIMEOUT_MS: u64 = 600_000;
    /// How many sessions that rest stay in memory, where nothing else is said.
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
    /// From a function that answers them as they are now.
    pub fn new(read: impl Fn() -> JsonObject + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(read)))
    }

    /// The entries as they are now; nothing where there are none.
    pub(crate) fn read(&self) -> Option<JsonObject> {
        self.0.as_ref().map(|read| read()).filter(|servers| !servers.is_empty())
    }
}

impl std::fmt::Debug for McpServers {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("McpServers")
    }
}

/// How use is counted.
#[derive(Debug, Clone)]
pub struct UsageOptions {
    /// Which entries a turn makes.
    pub per: UsagePer,
    /// Where days start.
    pub timezone: TimeZone,
}

impl Default for UsageOptions {
    fn default() -> Self {
        Self { per: UsagePer::default(), timezone: TimeZone::UTC }
    }
}

/// Which entries a turn makes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UsagePer {
    /// One, at its end.
    #[default]
    Turn,
    /// One for each report of its backend, of what the report adds.
    Report,
}
