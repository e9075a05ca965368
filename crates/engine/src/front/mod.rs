//! The entry points: connections and their messages, plugins' connections, and the calls of plugins to the host.

pub(crate) mod advertised;
mod channels;
pub(crate) mod client_requests;
mod command_slots;
pub(crate) mod commands;
pub(crate) mod completions;
pub mod connection;
pub(crate) mod host_calls;
pub(crate) mod mentions;
mod order;
pub(crate) mod peer;
pub(crate) mod plugin_commands;
pub mod relay;
mod take_over;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use ostler_contract::{JsonObject, PluginId};
use ostler_engine_automations::Automations;
use ostler_engine_core::shared::Core;
use ostler_engine_sessions::Sessions;
use ostler_engine_users::resources::Resources;
use ostler_engine_users::usage::Ledger;
use ostler_engine_users::users::access::Access;
use ostler_engine_workspace::Workspace;
use parking_lot::Mutex;

use crate::channels::Channels;
use crate::front::relay::{LinkDialer, Relay};

/// The parts of the host that connections and plugins use.
#[derive(Debug)]
pub struct Front {
    pub(crate) core: Arc<Core>,
    pub(crate) access: Arc<Access>,
    pub(crate) usage: Arc<Ledger>,
    pub(crate) resources: Arc<Resources>,
    pub(crate) workspace: Arc<Workspace>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) automations: Arc<Automations>,
    pub(crate) channels: Arc<Channels>,
    /// The announcements of plugins; `None` once they are over.
    announcements: Mutex<Option<Vec<String>>>,
    /// The plugin of each collection of records.
    collections: Mutex<HashMap<String, PluginId>>,
    meta: OnceLock<JsonObject>,
    /// The relay to other hosts of the cluster, if the host is in one.
    relay: OnceLock<Arc<Relay>>,
    dialer: Arc<OnceLock<Arc<dyn LinkDialer>>>,
}

impl Front {
    pub(crate) fn new(
        sessions: Arc<Sessions>,
        automations: Arc<Automations>,
        channels: Arc<Channels>,
    ) -> Arc<Self> {
        Arc::new(Self {
            core: sessions.core.clone(),
            access: sessions.access.clone(),
            usage: sessions.usage.clone(),
            resources: sessions.resources.clone(),
            workspace: sessions.workspace.clone(),
            sessions,
            automations,
            channels,
            announcements: Mutex::new(Some(Vec::new())),
            collections: Mutex::default(),
            meta: OnceLock::new(),
            relay: OnceLock::new(),
            dialer: Arc::default(),
        })
    }

    /// Ends the announcements; later lines are dropped.
    pub(crate) fn end_announcements(&self) -> Vec<String> {
        self.announcements.lock().take().unwrap_or_default()
    }
}
