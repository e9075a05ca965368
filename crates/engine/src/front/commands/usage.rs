//! The host's commands about usage.

use ostler_contract::points::Reader;
use ostler_engine_users::users::principal::Principal;
use ostler_protocol::RpcError;
use ostler_protocol::grants::Grant;

use super::Requester;

impl Requester {
    /// Returns the reader of usage, as for the scheme: users can read their own pools without a grant.
    pub(super) fn reader_of_use(&self) -> Result<Option<Reader>, RpcError> {
        let front = self.front();
        front.usage.use_kept()?;
        if self.principal == Principal::Anyone {
            front.access.gate.require(&self.principal, &Grant::of("usage", "get"))?;
        }
        Ok(self.principal.reader().filter(|_| front.access.gate.is_guarded()))
    }
}
