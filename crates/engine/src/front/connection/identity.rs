//! Who a connection is, what it is shown, and what ends when that changes.

use std::sync::Arc;

use ostler_engine_core::outbox::Closed;
use ostler_engine_users::users::Credential;
use ostler_engine_users::users::principal::Principal;
use ostler_protocol::RpcError;
use ostler_protocol::grants::Grant;

use super::Connection;
use crate::front::channels::kind_of;

impl Connection {
    /// Waits a moment until the host is sure who its users are, if the connection is or may become one of theirs.
    pub(super) async fn knows_users(&self) -> Result<(), RpcError> {
        let is_of_user = matches!(self.state.lock().principal, Principal::Person(_) | Principal::Anyone);
        match is_of_user && self.front.access.gate.check_users().is_err() {
            true => self.front.access.gate.settled().await,
            false => Ok(()),
        }
    }

    /// Sets the identity of the connection. Returns the number of the token among those of the sign-in.
    pub(crate) fn become_principal(&self, resource: &str, principal: Principal, by: Credential) -> u64 {
        self.set_principal(principal, by);
        self.state.lock().give(resource)
    }

    /// Sets the identity of the connection, here and at other hosts.
    pub(crate) fn change_principal(&self, principal: Principal) {
        self.set_principal(principal, Credential::default());
    }

    fn set_principal(&self, principal: Principal, by: Credential) {
        if let Some(relayed) = self.relayed_if_any() {
            relayed.principal_changed(&principal);
        }
        {
            let mut state = self.state.lock();
            (state.principal, state.signed_in_by) = (principal, by);
        }
        self.show_lists();
    }

    /// Decides what the root channel shows the connection as it is now.
    pub(super) fn show_lists(&self) {
        let (principal, core) = (self.principal(), &self.front.core);
        let lists = self.front.access.gate.require(&principal, &Grant::of("session", "list"));
        // Nothing is noted for a connection that has closed meanwhile.
        let state = self.state.lock();
        if !state.closed {
            core.root.knows(self.id, principal != Principal::Anyone);
            core.fanout.shows_lists(self.id, lists.is_ok());
        }
    }

    /// Ends what the connection may no longer have, after users have changed or a page has signed out: the connection
    /// itself, if its credential is no longer valid, or its identity and its subscriptions.
    pub(crate) fn review(self: &Arc<Self>) {
        if !self.opened_by.is_valid() {
            self.outbox.close(Closed::SignedOut);
            return self.close();
        }
        let (stored, signed_in_by) = {
            let state = self.state.lock();
            (state.principal.clone(), state.signed_in_by.clone())
        };
        let now = self.front.access.gate.now(stored.clone());
        let has_identity = matches!(stored, Principal::Person(_));
        if has_identity && (now == Principal::Anyone || !signed_in_by.is_valid()) {
            self.lose_identity();
        } else {
            self.show_lists();
        }
        self.drop_forbidden();
    }

    /// Returns whether this is the latest token of a resource.
    pub(crate) fn still_spends(&self, resource: &str, nth: u64) -> bool {
        let state = self.state.lock();
        !state.closed && state.given.get(resource) == Some(&nth)
    }

    /// Ends the subscriptions that the connection is no longer authorized for.
    pub(crate) fn drop_forbidden(self: &Arc<Self>) {
        let held: Vec<String> = self.state.lock().subscriptions.keys().cloned().collect();
        for spelled in held {
            kind_of(&self.front, &spelled).recheck(self, &spelled);
        }
    }
}
