//! What every store of a point has to do, whoever provides it: one suite per point. A case that fails panics.
//!
//! Each wants an empty store, and a tokio runtime around it.

// These are tests, in a place where others can run them too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod automations;
mod policies;
mod records;
mod sessions;
mod usage;
mod vault;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ostler_contract::{Cross, HostFunction};
use tokio::sync::Notify;

pub use automations::automations_conformance;
pub use policies::policies_conformance;
pub use records::{Numbers, records_conformance, uncached_records_conformance};
pub use sessions::sessions_conformance;
pub use usage::usage_conformance;
pub use vault::vault_conformance;

/// What a watcher was told.
#[derive(Clone)]
pub struct Heard<C>(Arc<(Mutex<std::collections::VecDeque<C>>, Notify)>);

impl<C> Default for Heard<C> {
    fn default() -> Self {
        Self(Arc::new((Mutex::default(), Notify::new())))
    }
}

impl<C: Cross + Sync> Heard<C> {
    /// The function to hand to `watch`.
    pub fn listener(&self) -> HostFunction<fn(C)> {
        let heard = self.0.clone();
        HostFunction::now(move |(change,)| {
            heard.0.lock().unwrap().push_back(change);
            heard.1.notify_one();
            Ok(())
        })
    }

    /// The next change; one that does not come in time fails.
    pub async fn next(&self) -> C {
        let next = async {
            loop {
                if let Some(change) = self.0.0.lock().unwrap().pop_front() {
                    return change;
                }
                self.0.1.notified().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), next).await.expect("a watcher is told of a change")
    }

    /// What was told and not asked for.
    pub fn unheard(&self) -> Vec<C> {
        self.0.0.lock().unwrap().drain(..).collect()
    }
}
