//! What work cost: what turns and plugins record, and how it is read back.

mod period;
mod read;
mod scheme;
mod turns;

use std::sync::Arc;

use jiff::Timestamp;
use ostler_contract::points::{Usage, UsageEntry};
use ostler_contract::{RpcError, Thrown, limit};

use crate::core::clock::iso;
use crate::core::shared::Core;
use crate::users::access::Access;

pub use crate::core::options::{UsageOptions, UsagePer};

pub(crate) use scheme::provider;
pub(crate) use turns::Taken;

/// The usage of the host: what is recorded, and who may read it.
#[derive(Debug)]
pub struct Ledger {
    core: Arc<Core>,
    access: Arc<Access>,
}

impl Ledger {
    pub(crate) fn new(core: Arc<Core>, access: Arc<Access>) -> Arc<Self> {
        Arc::new(Self { core, access })
    }

    /// Where use is kept.
    pub fn usage_store(&self) -> Option<&Usage> {
        self.core.registry()?.port::<Usage>()
    }

    /// Keeps one entry; where nothing keeps use, nothing is kept and nothing fails.
    pub(crate) fn record_use(
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

    /// What a client is told of a store that threw; logged against whose it is.
    pub(crate) fn use_failed(&self, why: Thrown) -> RpcError {
        let owner = self.core.registry().and_then(|registry| registry.holder::<Usage>());
        if let (None, Some(owner)) = (&why.rpc, owner) {
            self.core.report_failed(owner, "its usage store", &why);
        }
        why.into_rpc()
    }

    /// Where use is kept, or that nothing keeps it.
    pub(crate) fn use_kept(&self) -> Result<&Usage, RpcError> {
        self.usage_store().ok_or_else(|| RpcError::method_not_found("nothing here keeps what work costs"))
    }
}
