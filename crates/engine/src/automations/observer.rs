//! Automations as what sessions report to.

use std::sync::Weak;

use futures::future::BoxFuture;
use ostler_contract::events::TurnStatus;

use crate::host::Host;
use crate::sessions::{Happening, Observer};

/// Tells the automations of a host what its sessions do. Does not keep the host alive.
#[derive(Debug)]
pub(crate) struct SessionObserver(Weak<Host>);

impl SessionObserver {
    /// An observer for the automations of a host.
    pub(crate) fn new(host: Weak<Host>) -> Self {
        Self(host)
    }
}

impl Observer for SessionObserver {
    fn watches(&self) -> bool {
        self.0.upgrade().is_some_and(|host| host.automations.watches())
    }

    fn happened(&self, happening: Happening) {
        if let Some(host) = self.0.upgrade() {
            host.happened(happening);
        }
    }

    fn session_quiet(&self, session: &str, status: TurnStatus, why: Option<String>, busy: bool) {
        if let Some(host) = self.0.upgrade() {
            host.session_quiet(session, status, why, busy);
        }
    }

    fn made_by(&self, child: &str, parent: &str) {
        if let Some(host) = self.0.upgrade() {
            host.automations.made_by(child, parent);
        }
    }

    fn session_gone<'a>(&'a self, session: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if let Some(host) = self.0.upgrade() {
                host.automations.session_gone(&host, session).await;
            }
        })
    }
}
