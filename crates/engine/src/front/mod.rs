//! The way in: connections and what their messages ask, plugins' own connections, and what plugins ask of the host.

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

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use ostler_contract::{JsonObject, PluginId};
use parking_lot::Mutex;

use crate::automations::Automations;
use crate::channels::Channels;
use crate::core::shared::Core;
use crate::resources::Resources;
use crate::sessions::Sessions;
use crate::usage::Ledger;
use crate::users::access::Access;
use crate::workspace::Workspace;

/// What connections and plugins reach: the parts of the host.
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
    /// What plugins have announced; nothing once that is over.
    announcements: Mutex<Option<Vec<String>>>,
    /// Which plugin has each collection of records.
    collections: Mutex<HashMap<String, PluginId>>,
    meta: OnceLock<JsonObject>,
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
        })
    }

    /// Ends the announcements: a line said later is dropped.
    pub(crate) fn end_announcements(&self) -> Vec<String> {
        self.announcements.lock().take().unwrap_or_default()
    }
}
