//! Whether other hosts may write to the store of records.

use std::sync::{Arc, OnceLock};

use ostler_contract::PluginHost;

/// Tells whether other hosts may write to the store of records, and whether records are stored together with runs.
#[derive(Debug, Clone)]
pub(crate) struct SharedStore {
    host: PluginHost,
    is_shared: Arc<OnceLock<bool>>,
}

impl SharedStore {
    pub fn new(host: PluginHost) -> Self {
        Self { host, is_shared: Arc::default() }
    }

    /// Returns whether it is so. Known once all plugins are loaded.
    pub fn is_shared(&self) -> bool {
        *self.is_shared.get_or_init(|| self.host.has_run_transactions().unwrap_or(false))
    }
}
