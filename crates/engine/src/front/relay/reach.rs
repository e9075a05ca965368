//! Whether the hosts of a cluster can be reached at the addresses that they announce.
//!
//! A host connects to itself as others do. Otherwise only they would notice that its address is wrong, when their clients
//! need its sessions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use ostler_contract::cluster::ClusterHost;
use ostler_engine_core::tasks;
use ostler_engine_sessions::ask;
use parking_lot::Mutex;

use super::wire::LinkMessage;
use super::{DIAL_LIMIT, Link, Relay};

/// How often a host checks its own address.
const CHECK_EVERY: Duration = Duration::from_secs(30);

/// What is known of the addresses of hosts.
#[derive(Debug, Default)]
pub(super) struct Reach {
    /// Why hosts cannot be reached, by their ids.
    unreachable: Mutex<BTreeMap<String, String>>,
    /// Whether a task checks the address of this host.
    is_checking: AtomicBool,
}

impl Relay {
    /// Returns why hosts cannot be reached from here, by their ids; with this one, if it cannot be reached at its own address.
    pub(crate) fn unreachable(&self) -> BTreeMap<String, String> {
        self.reach.unreachable.lock().clone()
    }

    /// Takes note of an attempt to connect to a host; returns whether its outcome is another one than before.
    pub(super) fn reached(&self, host: &ClusterHost, outcome: Result<(), &str>) -> bool {
        let mut unreachable = self.reach.unreachable.lock();
        match outcome {
            Ok(()) => unreachable.remove(&host.id).is_some(),
            Err(why) => unreachable.insert(host.id.clone(), why.to_owned()).is_none(),
        }
    }

    /// Forgets hosts that no longer run.
    pub(super) fn forget_unreachable(&self, alive: &[ClusterHost]) {
        let is_alive = |id: &str| alive.iter().any(|host| host.is_alive && host.id == id);
        self.reach.unreachable.lock().retain(|id, _| is_alive(id));
    }

    /// Checks the address of this host from now on.
    pub(super) fn check_own_address(self: &Arc<Self>) {
        if self.reach.is_checking.swap(true, Ordering::AcqRel) {
            return;
        }
        let relay = Arc::downgrade(self);
        tasks::spawn(async move {
            while let Some(relay) = relay.upgrade() {
                let Some(front) = relay.front.upgrade().filter(|front| !front.core.is_stopping()) else {
                    return;
                };
                let own = relay.cluster.incarnation();
                let hosts = ask(relay.cluster.hosts()).await.unwrap_or_default();
                let here = hosts.into_iter().find(|host| host.incarnation == own && host.url.is_some());
                if let Some(here) = here {
                    let outcome = relay.connects_to_itself(&here).await;
                    let is_new = relay.reached(&here, outcome.as_ref().map(drop).map_err(String::as_str));
                    match outcome {
                        Ok(()) if is_new => front.core.log.info("this host is reachable at its cluster.url again"),
                        Err(why) if is_new && !front.core.is_stopping() => front.core.log.warn(format_args!(
                            "this host does not reach itself at its cluster.url, so others cannot serve its sessions either: \
                             {why}; set cluster.url to an address that leads to this host"
                        )),
                        _ => {}
                    }
                }
                drop((front, relay));
                tokio::time::sleep(CHECK_EVERY).await;
            }
        });
    }

    /// Opens a link to this host at its address.
    async fn connects_to_itself(&self, here: &ClusterHost) -> Result<(), String> {
        let link = Link::new(Arc::new(here.clone()), 0);
        let mut transport = self.dial(&link).await?;
        let first = tokio::time::timeout(DIAL_LIMIT, transport.incoming.next()).await;
        let bytes = match first {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Err(format!("{} closed the connection", address(here))),
            Err(_) => return Err(format!("{} did not answer", address(here))),
        };
        let text = std::str::from_utf8(&bytes).unwrap_or_default();
        match LinkMessage::parse(text) {
            Ok((LinkMessage::Hello { incarnation }, _)) if incarnation == here.incarnation => Ok(()),
            Ok((LinkMessage::Hello { .. }, _)) => Err(format!("{} is another host", address(here))),
            _ => Err(format!("{} is not a host of the cluster", address(here))),
        }
    }
}

fn address(host: &ClusterHost) -> &str {
    host.url.as_deref().unwrap_or_default()
}
