//! Usage: the entries that turns and plugins record, and their queries.

mod period;
mod read;
mod scheme;
mod turns;

use std::sync::Arc;

use jiff::Timestamp;
use ostler_contract::points::{Usage, UsageEntry};
use ostler_contract::{RpcError, Thrown, limit};
use ostler_engine_core::clock::iso;
use ostler_engine_core::shared::Core;

use crate::users::access::Access;

pub use ostler_engine_core::options::{UsageOptions, UsagePer};

pub use scheme::provider;
pub use turns::Taken;

/// The usage of the host: recording and reading.
#[derive(Debug)]
pub struct Ledger {
    core: Arc<Core>,
    access: Arc<Access>,
}

impl Ledger {
    pub fn new(core: Arc<Core>, access: Arc<Access>) -> Arc<Self> {
        Arc::new(Self { core, access })
    }

    pub fn usage_store(&self) -> Option<&Usage> {
        self.core.registry()?.port::<Usage>()
    }

    /// Stores one entry. Without a usage store it does nothing and does not fail.
    pub fn record_use(
        &self,
        mut entry: UsageEntry,
    ) -> impl Future<Output = Result<(), Thrown>> + Send + use<> {
        let recorded = self.usage_store().map(|store| {
            let at = entry.at.as_deref().and_then(|at| at.parse::<Timestamp>().ok());
            entry.at = Some(at.map_or_else(|| self.core.clock.iso(), iso));
            entry.pools = Some(entry.charged());
            store.record.within(limit::STORE, (entry,))
        });
        async move {
            match recorded {
                Some(recorded) => recorded.await,
                None => Ok(()),
            }
        }
    }

    /// Returns the error for a client after a store threw, and logs it with the plugin's name.
    pub fn use_failed(&self, why: Thrown) -> RpcError {
        let owner = self.core.registry().and_then(|registry| registry.holder::<Usage>());
        if let (None, Some(owner)) = (&why.rpc, owner) {
            self.core.report_failed(owner, "its usage store", &why);
        }
        why.into_rpc()
    }

    /// Returns the usage store, or the error that there is none.
    pub fn use_kept(&self) -> Result<&Usage, RpcError> {
        self.usage_store().ok_or_else(|| RpcError::method_not_found("this host has no usage store"))
    }
}
