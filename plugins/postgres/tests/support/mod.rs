//! The plugin, applied as a host would, and its stores.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, dead_code)]

// Not from the crate of the test kit, so that these tests build no engine.
pub mod server;

pub mod not_run;

pub mod calls;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_contract::points::{AutomationStore, Policies, Port, RecordStore, SessionStore, Usage, Vault};
use ostler_contract::{
    Caller, HostCalls, HostFacts, JsonObject, NoHost, Options, PluginHost, Slug, Thrown, Value, json,
};
use ostler_plugin_postgres::{Retention, Tables, plugin_of};
use server::Postgres;

/// How long anything may take before a test gives up.
pub const LIMIT: Duration = Duration::from_secs(180);

/// The stores of one host.
#[derive(Clone)]
pub struct Stores {
    pub sessions: SessionStore,
    pub automations: AutomationStore,
    pub records: RecordStore,
    pub vault: Vault,
    pub policies: Policies,
    pub usage: Usage,
}

/// The options for a schema of a server.
pub fn options(server: &Postgres, schema: &str) -> Value {
    json!({
        "url": server.url(), "schema": schema, "passwordFile": server.password_file(), "vaultKeyFile": server.key_file(),
    })
}

/// The options for a host of a cluster on the schema `ostler` of a server.
pub fn options_of_member(server: &Postgres, id: &str) -> Value {
    let token = server.password_file().with_file_name("cluster.token");
    if !token.exists() {
        std::fs::write(&token, "a token of the cluster, with 32 bytes or more").unwrap();
    }
    let mut options = options(server, "ostler");
    options["cluster"] = json!({ "url": format!("ws://{id}:1"), "tokenFile": token, "id": id });
    options
}

/// Applies the plugin with these options.
pub async fn applied(options: Value, retention: Retention) -> Result<Stores, Thrown> {
    applied_to(Arc::new(NoHost), options, retention).await
}

/// Applies the plugin with these options to a host.
pub async fn applied_to(
    calls: Arc<dyn HostCalls>,
    options: Value,
    retention: Retention,
) -> Result<Stores, Thrown> {
    applied_of(Tables::default(), calls, options, retention).await
}

/// Applies the plugin of a version with these tables to a host.
pub async fn applied_of(
    tables: Tables,
    calls: Arc<dyn HostCalls>,
    options: Value,
    retention: Retention,
) -> Result<Stores, Thrown> {
    let facts = HostFacts { host_name: "inn".into(), config_dir: "/inn".into(), ..HostFacts::default() };
    let caller = Caller { plugin: Slug::parse("postgres").unwrap(), grants: Arc::new([]), vault: None };
    let host = PluginHost::new(Arc::new(facts), caller, calls);
    let options: JsonObject = options.as_object().unwrap().clone();
    plugin_of(retention, tables).module.apply(host.clone(), Options::from(options)).await?;
    let own = host.seal();
    macro_rules! port {
        ($of:ty) => {
            own.all::<Port<$of>>().next().unwrap().value.clone()
        };
    }
    Ok(Stores {
        sessions: port!(SessionStore),
        automations: port!(AutomationStore),
        records: port!(RecordStore),
        vault: port!(Vault),
        policies: port!(Policies),
        usage: port!(Usage),
    })
}

impl Stores {
    /// The stores of a new host on a schema.
    pub async fn open(server: &Postgres, schema: &str) -> Self {
        applied(options(server, schema), Retention::default()).await.unwrap()
    }

    /// Closes all of them, as a host does.
    pub async fn close(self) {
        for close in [
            self.sessions.close,
            self.automations.close,
            self.records.close,
            self.vault.close,
            self.policies.close,
            self.usage.close,
        ] {
            close.unwrap().unbounded(()).await.unwrap();
        }
    }
}

/// Waits until something holds.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !holds().await {
        assert!(Instant::now() < end, "{what} does not come true");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
