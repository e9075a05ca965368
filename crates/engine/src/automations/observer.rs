//! Automations as what sessions report to.

use std::sync::Weak;

use futures::future::BoxFuture;
use ostler_contract::events::TurnStatus;

use crate::automations::Automations;
use crate::sessions::{Happening, Observer};

/// Tells the automations of a host what its sessions do. Does not keep the host alive.
#[derive(Debug)]
pub(crate) struct SessionObserver(Weak<Automations>);

impl SessionObserver {
    /// An observer for the automations of a host.
    pub(crate) fn new(automations: Weak<Automations>) -> Self {
        Self(automations)
    }
}

impl Observer for SessionObserver {
    fn watches(&self) -> bool {
        self.0.upgrade().is_some_and(|automations| automations.watches())
    }

    fn happened(&self, happening: Happening) {
        if let Some(automations) = self.0.upgrade() {
            automations.happened(happening);
        }
    }

    fn session_quiet(&self, session: &str, status: TurnStatus, why: Option<String>, busy: bool) {
        if let Some(automations) = self.0.upgrade() {
            automations.session_quiet(session, status, why, busy);
        }
    }

    fn made_by(&self, child: &str, parent: &str) {
        if let Some(automations) = self.0.upgrade() {
            automations.made_by(child, parent);
        }
    }

    fn session_gone<'a>(&'a self, session: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if let Some(automations) = self.0.upgrade() {
                automations.session_gone(session).await;
            }
        })
    }
}
