//! The stores as the daemon has them: registered like a plugin's.

use std::path::Path;
use std::sync::Arc;

use crate::lines::Lines;
use ostler_contract::points::*;
use ostler_contract::registry::{Fold, Registrant};
use ostler_contract::{Caller, NoHost, PluginHost, Slug, Thrown};
use ostler_ports::conformance::{
    Numbers, automations_conformance, nul_conformance, records_conformance, sessions_conformance,
    vault_conformance,
};
use ostler_ports::{
    FileAutomations, FilePolicies, FileRecords, FileVault, Report, SqliteSessions, SqliteUsage, StateDb,
    memory_records,
};

fn plugin_host(id: &str) -> PluginHost {
    let caller = Caller { plugin: Slug::parse(id).unwrap(), grants: Arc::new([]), vault: None };
    PluginHost::new(Arc::default(), caller, Arc::new(NoHost))
}

/// Registers every store of a configuration folder.
async fn install(host: &PluginHost, folder: &Path, report: Report) -> Result<(), Thrown> {
    let db = StateDb::open(folder)?;
    let automations = FileAutomations::open(folder, db.clone(), report.clone()).await?;
    host.register_records(Arc::new(FileRecords::new(folder, report.clone())).into_point(), None)?;
    host.register_vault(Arc::new(FileVault::new(folder, report.clone())?).into_point(), None)?;
    host.register_automations(Arc::new(automations).into_point(), None)?;
    host.register_usage(Arc::new(SqliteUsage::new(db.clone(), report.clone())).into_point(), None)?;
    host.register_sessions(Arc::new(SqliteSessions::new(db, report)).into_point(), None)
}

#[tokio::test]
async fn every_store_is_served_from_the_registry() {
    let (folder, another) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let lines = Lines::default();
    let (daemon, plugin) = (plugin_host("host"), plugin_host("other"));
    install(&daemon, folder.path(), lines.report()).await.unwrap();
    let twice = install(&daemon, another.path(), lines.report()).await;
    assert!(twice.is_err(), "a port is registered once");
    plugin.register_records(memory_records(), Some(When::Replace)).unwrap();

    let mut fold = Fold::default();
    fold.host(daemon.seal());
    fold.plugin(plugin.clone(), plugin.seal());
    let (registry, problems) = fold.finish();
    assert_eq!(problems, []);
    assert_eq!(registry.holder::<Vault>(), Some(&Registrant::Host));
    assert_ne!(registry.holder::<RecordStore>(), Some(&Registrant::Host), "a plugin may take it over");

    records_conformance(registry.port::<RecordStore>().unwrap().clone(), Numbers::Exact).await;
    vault_conformance(registry.port::<Vault>().unwrap().clone()).await;
    automations_conformance(registry.port::<AutomationStore>().unwrap().clone()).await;
    sessions_conformance(registry.port::<SessionStore>().unwrap().clone()).await;
    assert_eq!(lines.taken(""), [""; 0]);
}

#[tokio::test]
async fn texts_with_nul_find_nothing_and_are_stored() {
    let (folder, lines) = (tempfile::tempdir().unwrap(), Lines::default());
    let (db, report) = (StateDb::open(folder.path()).unwrap(), lines.report());
    let automations = FileAutomations::open(folder.path(), db.clone(), report.clone()).await.unwrap();
    let sessions = Arc::new(SqliteSessions::new(db.clone(), report.clone())).into_point();
    let policies = Arc::new(FilePolicies::new(folder.path())).into_point();
    let usage = Arc::new(SqliteUsage::new(db, report)).into_point();
    nul_conformance(&sessions, &Arc::new(automations).into_point(), &policies, &usage).await;
}

#[tokio::test]
async fn a_damaged_store_is_said() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("state.db"), "junk".repeat(500)).unwrap();
    let refused = StateDb::open(folder.path()).err().unwrap();
    assert!(refused.message.contains("state.db is damaged"), "{refused}");
}
