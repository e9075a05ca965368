//! What work cost: what turns and plugins record, and how it is read back.

mod period;
mod read;
mod scheme;
mod turns;

use jiff::Timestamp;
use ostler_contract::live::ready;
use ostler_contract::points::{Usage, UsageEntry};
use ostler_contract::{Pending, RpcError, Thrown};

use crate::core::clock::iso;
use crate::host::Host;

pub use crate::core::options::{UsageOptions, UsagePer};

pub(crate) use scheme::provider;
pub(crate) use turns::Taken;

impl Host {
    /// Where use is kept.
    pub fn usage_store(&self) -> Option<&Usage> {
        self.registry()?.port::<Usage>()
    }

    /// Keeps one entry; where nothing keeps use, nothing is kept and nothing fails.
    pub(crate) fn record_use(&self, mut entry: UsageEntry) -> Pending<()> {
        let Some(store) = self.usage_store() else { return ready(Ok(())) };
        let at = entry.at.as_deref().and_then(|at| at.parse::<Timestamp>().ok());
        entry.at = Some(at.map_or_else(|| self.clock.iso(), iso));
        entry.pools = Some(entry.charged());
        store.record.call((entry,))
    }

    /// What a client is told of a store that threw; logged against whose it is.
    pub(crate) fn use_failed(&self, why: Thrown) -> RpcError {
        let owner = self.registry().and_then(|registry| registry.holder::<Usage>());
        if let (None, Some(owner)) = (&why.rpc, owner) {
            self.report_failed(owner, "its usage store", &why);
        }
        why.into_rpc()
    }

    /// Where use is kept, or that nothing keeps it.
    pub(crate) fn use_kept(&self) -> Result<&Usage, RpcError> {
        self.usage_store().ok_or_else(|| RpcError::method_not_found("nothing here keeps what work costs"))
    }
}
