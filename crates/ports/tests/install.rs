//! The stores as the daemon has them: registered like a plugin's.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod lines;

use std::sync::Arc;

use lines::Lines;
use ostler_contract::live::{Pending, ready};
use ostler_contract::points::*;
use ostler_contract::registry::{Fold, Owner};
use ostler_contract::{Caller, HostCalls, JsonObject, PluginHost, Slug, Thrown, Value, host};
use ostler_ports::conformance::{
    Numbers, automations_conformance, records_conformance, sessions_conformance, vault_conformance,
};
use ostler_ports::{Defaults, memory_records};

/// A host that answers nothing.
struct Nobody;

fn never<T>() -> Result<T, Thrown> {
    Err("not here".into())
}

fn later<T: Send + 'static>() -> Pending<T> {
    ready(never())
}

impl HostCalls for Nobody {
    fn log(&self, _: &Caller, _: String) -> Result<(), Thrown> {
        never()
    }
    fn say(&self, _: &Caller, _: String) -> Result<(), Thrown> {
        never()
    }
    fn parse_yaml(&self, _: &Caller, _: String) -> Result<Value, Thrown> {
        never()
    }
    fn stringify_yaml(&self, _: &Caller, _: Value) -> Result<String, Thrown> {
        never()
    }
    fn connect(&self, _: &Caller) -> Result<host::Peer, Thrown> {
        never()
    }
    fn start_session(&self, _: &Caller, _: host::SessionRequest) -> Pending<String> {
        later()
    }
    fn session_kept(&self, _: &Caller, _: String) -> Pending<bool> {
        later()
    }
    fn session_owner(&self, _: &Caller, _: String) -> Pending<Option<String>> {
        later()
    }
    fn record_usage(&self, _: &Caller, _: UsageEntry) -> Pending<()> {
        later()
    }
    fn secret(&self, _: &Caller, _: String, _: Option<host::SecretScope>) -> Pending<String> {
        later()
    }
    fn records(&self, _: &Caller, _: String, _: Option<CollectionOptions>) -> Result<Collection, Thrown> {
        never()
    }
    fn fire_trigger(&self, _: &Caller, _: String, _: String, _: JsonObject) -> Result<host::Fired, Thrown> {
        never()
    }
    fn publish(
        &self,
        _: &Caller,
        _: String,
        _: String,
        _: JsonObject,
        _: Option<PublishOptions>,
    ) -> Result<(), Thrown> {
        never()
    }
    fn subscribers(&self, _: &Caller, _: String, _: String) -> Result<Vec<Subscriber>, Thrown> {
        never()
    }
}

fn plugin_host(id: &str) -> PluginHost {
    let caller = Caller { plugin: Slug::parse(id).unwrap(), grants: Arc::new([]), vault: None };
    PluginHost::new(Arc::default(), caller, Arc::new(Nobody))
}

#[tokio::test]
async fn every_store_is_served_from_the_registry() {
    let folder = tempfile::tempdir().unwrap();
    let lines = Lines::default();
    let stores = Defaults::open(folder.path(), lines.report()).await.unwrap();
    let (daemon, plugin) = (plugin_host("host"), plugin_host("other"));
    stores.install(&daemon).unwrap();
    assert!(stores.install(&daemon).is_err(), "a port is registered once");
    plugin.register_records(memory_records(), Some(When::Replace)).unwrap();

    let mut fold = Fold::default();
    fold.host(daemon.seal());
    fold.plugin(plugin.clone(), plugin.seal());
    let (registry, problems) = fold.finish();
    assert_eq!(problems, []);
    assert_eq!(registry.holder::<Vault>(), Some(&Owner::Host));
    assert_ne!(registry.holder::<RecordStore>(), Some(&Owner::Host), "a plugin may take it over");

    records_conformance(registry.port::<RecordStore>().unwrap().clone(), Numbers::Exact).await;
    vault_conformance(registry.port::<Vault>().unwrap().clone()).await;
    automations_conformance(registry.port::<AutomationStore>().unwrap().clone()).await;
    sessions_conformance(registry.port::<SessionStore>().unwrap().clone()).await;
    assert_eq!(lines.taken(""), [""; 0]);
}

#[tokio::test]
async fn a_damaged_store_is_said() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("state.db"), "junk".repeat(500)).unwrap();
    let refused = Defaults::open(folder.path(), Lines::default().report()).await.unwrap_err();
    assert!(refused.message.contains("state.db is damaged"), "{refused}");
}
