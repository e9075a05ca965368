//! Who may use what a plugin serves under a grant it named itself: the grant decides, and where it refuses, the plugin's
//! own `authorize` may let a reader in.

use ostler_contract::Thrown;
use ostler_contract::points::Reader;
use ostler_contract::registry::Registrant;
use ostler_protocol::RpcError;
use ostler_protocol::grants::Grant;

use crate::users::access::Access;
use crate::users::principal::Principal;

impl Access {
    /// Whether a principal holds the grant a plugin named. One that names none lets nobody in.
    pub(crate) fn require_named(&self, principal: &Principal, grant: &str) -> Result<(), RpcError> {
        match Grant::parse(grant) {
            Some(asked) => self.gate.require(principal, &asked),
            None if !self.gate.guarded => Ok(()),
            None => Err(RpcError::permission_denied(format!("{grant:?} is not a grant, so this is denied"))),
        }
    }

    /// Asks a plugin about a reader the grant refused; answers whether it lets the reader in. One that throws does not.
    pub(crate) async fn authorized<A: Future<Output = Result<bool, Thrown>>>(
        &self,
        owner: &Registrant,
        what: &str,
        principal: &Principal,
        ask: Option<impl FnOnce(Reader) -> A>,
    ) -> bool {
        let (Some(ask), Some(reader)) = (ask, self.reader_known(principal)) else { return false };
        ask(reader).await.unwrap_or_else(|why| {
            self.core.report_failed(owner, &format!("the authorize of {what}"), &why);
            false
        })
    }

    /// What a plugin's channel or command is told of a principal: nothing on a host that knows no people.
    pub(crate) fn reader_known(&self, principal: &Principal) -> Option<Reader> {
        principal.reader().filter(|_| self.gate.guarded)
    }
}
