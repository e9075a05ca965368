//! Authorization of what a plugin serves under its own grant: a reader without the grant can still be accepted by the
//! plugin's `authorize`.

use ostler_contract::Thrown;
use ostler_contract::points::Reader;
use ostler_contract::registry::Registrant;
use ostler_protocol::RpcError;
use ostler_protocol::grants::Grant;

use crate::users::access::Access;
use crate::users::principal::Principal;

impl Access {
    /// Returns whether a principal has the plugin's grant. Without a valid grant, no one has it.
    pub fn require_named(&self, principal: &Principal, grant: &str) -> Result<(), RpcError> {
        match Grant::parse(grant) {
            Some(asked) => self.gate.require(principal, &asked),
            None if !self.gate.is_guarded() => Ok(()),
            None => Err(RpcError::permission_denied(format!("{grant:?} is not a grant, so this is denied"))),
        }
    }

    /// Asks a plugin about a reader without the grant; returns whether it accepts the reader. An error rejects.
    pub async fn authorized<A: Future<Output = Result<bool, Thrown>>>(
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

    /// Returns a principal in the form for plugins' channels and commands; `None` on a host without a users file.
    pub fn reader_known(&self, principal: &Principal) -> Option<Reader> {
        principal.reader().filter(|_| self.gate.is_guarded())
    }
}
