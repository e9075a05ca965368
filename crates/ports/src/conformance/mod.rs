//! Conformance tests of stores: one suite per registration point, for every provider. A failed case panics.
//!
//! Each requires an empty store and a tokio runtime.

// These are tests, located where other crates can run them too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod automations;
mod cluster;
mod find_runs;
mod nul;
mod policies;
mod records;
mod sessions;
mod usage;
mod users;
mod vault;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ostler_contract::{Cross, HostFunction};
use tokio::sync::Notify;

pub use automations::automations_conformance;
pub use cluster::{ClusterMember, cluster_conformance};
pub use find_runs::{find_runs_conformance, found_runs, numbered_run};
pub use nul::nul_conformance;
pub use policies::policies_conformance;
pub use records::{Numbers, records_conformance, uncached_records_conformance};
pub use sessions::sessions_conformance;
pub use usage::usage_conformance;
pub use users::users_conformance;
pub use vault::vault_conformance;

/// The changes that a watcher received.
#[derive(Clone)]
pub struct Heard<C>(Arc<(Mutex<std::collections::VecDeque<C>>, Notify)>);

impl<C> Default for Heard<C> {
    fn default() -> Self {
        Self(Arc::new((Mutex::default(), Notify::new())))
    }
}

impl<C: Cross + Sync> Heard<C> {
    /// Returns the function for `watch`.
    pub fn listener(&self) -> HostFunction<fn(C)> {
        let heard = self.0.clone();
        HostFunction::now(move |(change,)| {
            heard.0.lock().unwrap().push_back(change);
            heard.1.notify_one();
            Ok(())
        })
    }

    /// Returns the next change; fails if it does not arrive in time.
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

    /// Returns the received changes that were not read yet.
    pub fn unheard(&self) -> Vec<C> {
        self.0.0.lock().unwrap().drain(..).collect()
    }
}
