//! Channels that are neither a session's nor an automation's: the settings of the root channel, telemetry, and the
//! channels of plugins.

pub(crate) mod plugin;
pub mod root_settings;
pub(crate) mod telemetry;

use std::sync::{Arc, OnceLock, Weak};

use ostler_engine_core::shared::Core;
use ostler_engine_users::users::access::Access;
use plugin::PluginChannels;
use root_settings::OwnSettings;
use telemetry::Exports;

/// The channels of the host that belong to no session and no automation.
#[derive(Debug)]
pub struct Channels {
    core: Arc<Core>,
    access: Arc<Access>,
    plugin_channels: PluginChannels,
    telling: Exports,
    own_settings: OnceLock<Arc<dyn OwnSettings>>,
    me: Weak<Self>,
}

impl Channels {
    pub(crate) fn new(core: Arc<Core>, access: Arc<Access>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            core,
            access,
            plugin_channels: PluginChannels::default(),
            telling: Exports::default(),
            own_settings: OnceLock::new(),
            me: me.clone(),
        })
    }

    /// Returns a weak reference to these channels.
    fn weak(&self) -> Weak<Self> {
        self.me.clone()
    }
}
