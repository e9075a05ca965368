//! What the sessions of the host may use together.

use std::sync::Arc;

use ostler_contract::Budget;
use tokio::sync::Semaphore;

use super::awake_limit::Census;
use super::{client_plugins, memory_limit};

/// What the sessions of the host may use together.
#[derive(Debug)]
pub(super) struct SharedLimits {
    /// The awake sessions.
    pub census: Arc<Census>,
    /// The memory of the states of awake sessions and of what waits for their backends.
    pub states: Budget,
    /// SharedLimits the sessions that are loaded from the store concurrently.
    pub waking: Semaphore,
    /// The disk space of the copies of clients' plugins.
    pub client_plugins: Budget,
}

impl SharedLimits {
    /// Returns limits that nothing uses yet, with `states` bytes for the states of awake sessions.
    pub fn new(states: usize) -> Self {
        Self {
            census: Arc::default(),
            states: Budget::new(states),
            waking: Semaphore::new(memory_limit::WAKING),
            client_plugins: Budget::new(client_plugins::ALL_MAX),
        }
    }
}
