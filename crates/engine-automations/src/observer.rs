//! The automations' observer of sessions.

use std::sync::Weak;

use futures::future::BoxFuture;
use ostler_contract::events::TurnStatus;
use ostler_engine_sessions::{Happening, Observer};

use crate::Automations;

/// Notifies the automations of a host of session events. It does not keep the host alive.
#[derive(Debug)]
pub struct SessionObserver(Weak<Automations>);

impl SessionObserver {
    /// Creates an observer for the automations of a host.
    pub fn new(automations: Weak<Automations>) -> Self {
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

    fn run_turn_ended(&self, run: &str, status: TurnStatus, why: Option<String>) {
        if let Some(automations) = self.0.upgrade() {
            automations.run_turn_ended(run, status, why);
        }
    }

    fn run_withdrawn(&self, run: &str) {
        if let Some(automations) = self.0.upgrade() {
            automations.run_withdrawn(run);
        }
    }

    fn session_quiet(&self, session: &str, busy: bool, waits: bool) {
        if let Some(automations) = self.0.upgrade() {
            automations.session_quiet(session, busy, waits);
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
