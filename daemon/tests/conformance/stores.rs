//! The ports a plugin may fill: each store does what the port's own suite asks, whoever provides it.

use std::sync::Arc;

use ostler_contract::points::{AutomationStore, Policies, RecordStore, SessionStore, Usage, Vault, When};
use ostler_contract::registry::Registrant;
use ostler_contract::{Call, Options, PluginHost, Thrown, json};
use ostler_ports::conformance::{
    Numbers, automations_conformance, policies_conformance, records_conformance, sessions_conformance,
    usage_conformance, vault_conformance,
};
use ostler_ports::{
    FilePolicies, FileVault, MemoryAutomations, SqliteSessions, SqliteUsage, StateDb, memory_records,
};
use ostler_testkit::{Builder, MemoryHost};

use crate::side::{Both, Kind, Side, Talk, builder};

const VAULT: Both =
    Both { spec: "@conformance/vault", native: vault, javascript: "examples/plugins/vault.ts", dress: None };
const RECORDS: Both = Both {
    spec: "@conformance/records",
    native: records,
    javascript: "examples/plugins/records.ts",
    dress: None,
};
const POLICIES: Both = Both {
    spec: "@conformance/policies",
    native: policies,
    javascript: "examples/plugins/policies.ts",
    dress: None,
};
const AUTOMATIONS: Both = Both {
    spec: "@conformance/automations",
    native: automations,
    javascript: "examples/plugins/automations.ts",
    dress: None,
};
const SESSIONS: Both = Both {
    spec: "@conformance/sessions",
    native: sessions,
    javascript: "examples/plugins/sessions.ts",
    dress: None,
};
const USAGE: Both =
    Both { spec: "@conformance/usage", native: usage, javascript: "examples/plugins/usage.ts", dress: None };
const HELD: Both = Both { spec: "@conformance/held", native: held, javascript: "held.mjs", dress: None };

both! { HELD:
    a_vault_keeps_secrets,
    a_vault_that_replaces_answers_for_secrets,
    a_record_store_keeps_records,
    a_record_store_that_replaces_serves_plugins,
    a_policy_store_keeps_policies,
    a_usage_store_keeps_what_work_cost,
    an_automation_store_keeps_definitions_and_runs,
    a_session_store_keeps_sessions,
    a_session_store_that_replaces_keeps_what_is_said,
    a_port_that_is_held_does_not_move_without_replace,
}

fn report() -> ostler_ports::Report {
    ostler_ports::Report::quiet()
}

fn vault(host: PluginHost, _: Options) -> Result<(), Thrown> {
    let vault = FileVault::new(host.facts().config_dir.as_ref(), report())?;
    host.register_vault(Arc::new(vault).into_point(), Some(When::Replace))
}

fn records(host: PluginHost, _: Options) -> Result<(), Thrown> {
    host.register_records(memory_records(), Some(When::Replace))
}

fn policies(host: PluginHost, _: Options) -> Result<(), Thrown> {
    let policies = FilePolicies::new(host.facts().config_dir.as_ref());
    host.register_policies(Arc::new(policies).into_point(), Some(When::Replace))
}

fn usage(host: PluginHost, _: Options) -> Result<(), Thrown> {
    let usage = SqliteUsage::new(StateDb::open(host.facts().config_dir.as_ref())?, report());
    host.register_usage(Arc::new(usage).into_point(), Some(When::Replace))
}

fn automations(host: PluginHost, _: Options) -> Result<(), Thrown> {
    host.register_automations(Arc::new(MemoryAutomations::new(report())?).into_point(), Some(When::Replace))
}

fn sessions(host: PluginHost, _: Options) -> Result<(), Thrown> {
    let store = SqliteSessions::new(StateDb::memory()?, report());
    host.register_sessions(Arc::new(store).into_point(), Some(When::Replace))
}

/// Registers without `replace`.
fn held(host: PluginHost, _: Options) -> Result<(), Thrown> {
    host.register_vault(
        Vault {
            get: Call::now(|_| Ok(Some("the plugin's".into()))),
            set: Call::now(|_| Ok(())),
            delete: Call::now(|_| Ok(false)),
            list: Call::now(|()| Ok(vec![])),
            close: None,
        },
        None,
    )
}

/// A host with stores of its own and a folder to write in.
fn with_stores(builder: Builder, dir: &std::path::Path) -> Builder {
    builder
        .folder(dir)
        .plugin(ostler_plugin_echo::plugin(), json!({}))
        .vault(Arc::new(FileVault::new(&dir.join("own"), report()).unwrap()).into_point())
        .records(memory_records())
}

async fn with(side: Side, both: Both, dir: &std::path::Path) -> MemoryHost {
    let host = side.other(both).load(with_stores(builder(), dir), json!({})).start().await;
    assert!(host.problems.is_empty(), "{:?}", host.problems);
    host
}

async fn a_vault_keeps_secrets(side: Side) {
    let dir = tempfile::tempdir().unwrap();
    let host = with(side, VAULT, dir.path()).await;
    vault_conformance(host.registry().port::<Vault>().unwrap().clone()).await;
}

async fn a_vault_that_replaces_answers_for_secrets(side: Side) {
    let dir = tempfile::tempdir().unwrap();
    let host = with(side, VAULT, dir.path()).await;
    assert!(matches!(host.registry().holder::<Vault>(), Some(Registrant::Plugin(id)) if &**id == "vault"));
    let vault = host.registry().port::<Vault>().unwrap();
    vault.set.unbounded(("host:key".into(), "s3cret".into())).await.unwrap();
    assert_eq!(host.plugin("vault").secret("host:key".into(), None).await, Ok("s3cret".into()));
    // What was kept is there for the next start.
    let again = with(side, VAULT, dir.path()).await;
    assert_eq!(again.plugin("vault").secret("host:key".into(), None).await, Ok("s3cret".into()));
}

async fn a_record_store_keeps_records(side: Side) {
    let dir = tempfile::tempdir().unwrap();
    let host = with(side, RECORDS, dir.path()).await;
    let numbers = match side.kind {
        Kind::Native => Numbers::Exact,
        Kind::JavaScript => Numbers::Doubles,
    };
    records_conformance(host.registry().port::<RecordStore>().unwrap().clone(), numbers).await;
}

async fn a_record_store_that_replaces_serves_plugins(side: Side) {
    let dir = tempfile::tempdir().unwrap();
    let host = with(side, RECORDS, dir.path()).await;
    let notes = host.plugin("records").records("notes".into(), None).unwrap();
    let note = json!({ "id": "a", "text": "Milk" }).as_object().cloned().unwrap();
    notes.put.call((note.clone(),)).await.unwrap();
    assert_eq!(notes.list.call(()).await, Ok(vec![note.clone()]));
    let store = host.registry().port::<RecordStore>().unwrap();
    let behind = store.collection.unbounded(("notes".into(), Default::default())).await.unwrap();
    assert_eq!(
        behind.get.unbounded(("a".into(),)).await,
        Ok(Some(note)),
        "it is the plugin's store that holds it"
    );
}

async fn a_policy_store_keeps_policies(side: Side) {
    let dir = tempfile::tempdir().unwrap();
    let own = Arc::new(FilePolicies::new(&dir.path().join("own"))).into_point();
    let host =
        side.other(POLICIES).load(with_stores(builder(), dir.path()).policies(own), json!({})).start().await;
    assert!(host.problems.is_empty(), "{:?}", host.problems);
    assert!(
        matches!(host.registry().holder::<Policies>(), Some(Registrant::Plugin(id)) if &**id == "policies")
    );
    policies_conformance(host.registry().port::<Policies>().unwrap().clone()).await;
    assert!(!dir.path().join("own/policies.json").exists(), "it is the plugin's store that keeps them");
    // The scheme is served by whoever keeps them.
    let mut client = host.raw();
    client.initialize("c").await;
    let read = client.request("resourceRead", json!({ "uri": "policy://b" })).await.unwrap();
    let row: ostler_contract::Value = serde_json::from_str(read["data"].as_str().unwrap()).unwrap();
    assert_eq!(row["effect"], "deny");
}

async fn a_usage_store_keeps_what_work_cost(side: Side) {
    let dir = tempfile::tempdir().unwrap();
    let own = Arc::new(SqliteUsage::new(StateDb::memory().unwrap(), report())).into_point();
    let held = own.clone();
    let builder = with_stores(builder(), dir.path()).own(move |host| host.register_usage(own, None));
    let host = side.other(USAGE).load(builder, json!({})).start().await;
    assert!(host.problems.is_empty(), "{:?}", host.problems);
    assert!(matches!(host.registry().holder::<Usage>(), Some(Registrant::Plugin(id)) if &**id == "usage"));
    usage_conformance(host.registry().port::<Usage>().unwrap().clone()).await;
    assert_eq!(held.pools.unbounded(()).await, Ok(vec![]), "it is the plugin's store that keeps it");
    // What reads use asks whoever keeps it.
    let mut client = host.raw();
    client.initialize("c").await;
    let told = client
        .request(
            "x-ostler/usage/totals",
            json!({ "pools": ["user:ada"], "from": "2026-01-01", "until": "2026-01-31" }),
        )
        .await;
    assert_eq!(told.unwrap()["totals"][0]["range"]["usd"], 1.5);
}

async fn an_automation_store_keeps_definitions_and_runs(side: Side) {
    let dir = tempfile::tempdir().unwrap();
    let host = with(side, AUTOMATIONS, dir.path()).await;
    automations_conformance(host.registry().port::<AutomationStore>().unwrap().clone()).await;
}

async fn a_session_store_keeps_sessions(side: Side) {
    let dir = tempfile::tempdir().unwrap();
    let host = with(side, SESSIONS, dir.path()).await;
    sessions_conformance(host.registry().port::<SessionStore>().unwrap().clone()).await;
}

async fn a_session_store_that_replaces_keeps_what_is_said(side: Side) {
    let dir = tempfile::tempdir().unwrap();
    let host = with(side, SESSIONS, dir.path()).await;
    assert_eq!(Talk::with(&host, "echo").await.say("remember").await, "remember");
    let store = host.registry().port::<SessionStore>().unwrap();
    let ids = store.sessions.unbounded(()).await.unwrap();
    assert_eq!(ids.len(), 1, "{ids:?}");
    let kept = store.config.unbounded((ids[0].clone(),)).await.unwrap().unwrap();
    assert_eq!((kept.uri.as_str(), kept.provider.as_str()), ("echo:/talk", "echo"));
}

async fn a_port_that_is_held_does_not_move_without_replace(side: Side) {
    let dir = tempfile::tempdir().unwrap();
    let host = side.load(with_stores(builder(), dir.path()), json!({})).start().await;
    assert_eq!(host.registry().holder::<Vault>(), Some(&Registrant::Host));
    let unmoved = host.plugin("held").secret("host:key".into(), None).await;
    assert_eq!(unmoved.unwrap_err().message, "the vault holds no host:key");
    let [problem] = &host.problems[..] else { panic!("{:?}", host.problems) };
    assert!(problem.contains("held") && problem.contains("vault"), "{problem}");
}
