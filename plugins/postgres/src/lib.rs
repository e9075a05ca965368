//! `@ostler/postgres`: the stores of a host in PostgreSQL.
//!
//! Sessions, automations and runs, records, policies, usage, users and the vault replace the stores of files and SQLite. One task
//! writes, a transaction for many writes; a pool reads. A lease makes sure that one host at a time writes, or, in a cluster, that
//! one host at a time writes a session.

#![forbid(unsafe_code)]

/// A member of a point that calls a function of its store.
macro_rules! member {
    ($store:expr, $function:expr) => {{
        let store = $store.clone();
        ostler_contract::Call::new(move |arguments| $function(&store, arguments))
    }};
}

mod automations;
#[doc(hidden)]
pub mod batch;
mod cluster;
#[doc(hidden)]
pub mod commit;
mod connect;
mod database;
mod direct;
mod edits;
mod external_changes;
mod failure;
mod find_runs;
mod joining;
#[doc(hidden)]
pub mod keep_lease;
#[doc(hidden)]
pub mod lease;
mod migrations;
mod options;
mod policies;
mod pooler;
#[doc(hidden)]
pub mod pruning;
mod records;
mod renewal;
mod runs;
mod server;
mod sessions;
mod shared_runs;
mod text;
mod tls;
mod transfer;
mod usage;
mod users;
mod vault;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ostler_contract::events::{Event, EventName};
use ostler_contract::points::When;
use ostler_contract::shared_runs::SharedRuns;
use ostler_contract::stores::Report;
use ostler_contract::{Call, Frozen, Options, Plugin, PluginContext, PluginHost, Thrown, json};
use tokio::sync::{Notify, watch};

pub use direct::{Direct, RunningHost, Status};
pub use failure::remedy;
#[doc(hidden)]
pub use migrations::{Migration, Tables};
pub use runs::Retention;
pub use transfer::ExclusiveSchema;

use automations::Automations;
use cluster::Hosts;
use connect::Connector;
use database::Database;
use external_changes::Listeners;
use joining::Candidate;
use keep_lease::Keeper;
use options::ClusterSettings;
use policies::Policies;
use records::Records;
use renewal::Renewal;
use runs::Runs;
use sessions::Sessions;
use shared_runs::Shared;
use usage::Usage;
use users::Users;
use vault::{Cipher, Vault};

/// The name of the plugin in a configuration.
pub const NAME: &str = "@ostler/postgres";
/// The number of stores.
const STORES: usize = 6;

/// The plugin. Ended runs are retained by these rules.
pub fn plugin(retention: Retention) -> Plugin {
    plugin_of(retention, Tables::default())
}

/// The plugin of a later version, which has these tables, for tests of hosts of several versions on one schema.
#[doc(hidden)]
pub fn plugin_of(retention: Retention, tables: Tables) -> Plugin {
    Plugin::new(NAME, move |host, options| {
        Box::pin(async move {
            let environment = |name: &str| std::env::var(name).ok();
            apply(&host, &options, retention, tables, &environment).await
        })
    })
    .title("PostgreSQL")
    .defaults(json!({}))
    .options_schema(options::schema())
}

async fn apply(
    host: &PluginHost,
    options: &Options,
    retention: Retention,
    tables: Tables,
    environment: &(dyn Fn(&str) -> Option<String> + Sync),
) -> Result<(), Thrown> {
    let settings = options::read(options, Path::new(&host.facts().config_dir), environment)?;
    let cipher = Cipher::new(&settings.vault_key)?;
    let connector = Connector::new(&settings);
    let logs = host.clone();
    let report = Report::new(move |line: String| {
        // A closing host accepts no lines.
        drop(logs.log(format!("postgres: {line}")));
    })
    .keeping(host.problems()?);
    let id = settings.cluster.as_ref().and_then(|cluster| cluster.id.clone());
    let candidate = Candidate {
        id: id.unwrap_or_else(|| format!("{}:{}", host.facts().host_name, host.facts().config_dir)),
        version: host.facts().version.clone(),
        is_member: settings.cluster.is_some(),
        is_draining: false,
        vault_key: cipher.id().to_vec(),
        token_key: settings.cluster.as_ref().map(|cluster| cipher.identify(cluster.token.reveal())),
        tables,
    };
    let lease = joining::acquire(&connector, &candidate, &joining::new_incarnation(), &report).await?;
    let (wake, stop, url) =
        (Arc::new(Notify::new()), Arc::new(Notify::new()), Arc::new(watch::Sender::new(None)));
    let (is_draining, is_emptied) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let (ended, renewal) = watch::channel(());
    let database =
        Database::start(connector.clone(), lease.clone(), (stop.clone(), renewal), STORES, report.clone())?;
    let keeper = Keeper {
        lease: lease.clone(),
        stop,
        url: url.subscribe(),
        is_emptied: is_emptied.clone(),
        report: report.clone(),
    };
    let mut row =
        Renewal::new(connector.clone(), lease.clone(), candidate, wake.clone(), is_draining.clone());
    tokio::spawn(async move {
        keeper.run(&mut row).await;
        drop(ended);
    });
    if lease.is_member {
        tokio::spawn(lease.watch());
    }
    let advertised = settings.cluster.as_ref().map(|cluster| cluster.url.clone());
    if let Some(ClusterSettings { token, shared_paths, .. }) = settings.cluster {
        let (database, url) = (database.clone(), url.clone());
        host.join_cluster(Arc::new(Hosts { database, token, shared_paths, url, is_draining, is_emptied }))?;
    }
    let listeners = Arc::new(Listeners::default());
    // Before any store is read, so that no change is missed after that.
    let since = external_changes::now(&database).await?;
    tokio::spawn(external_changes::follow(database.clone(), listeners.clone(), wake, since));

    let replace = Some(When::Replace);
    let place = format!("PostgreSQL, schema {}", settings.schema);
    let is_shared = database.lease.is_member;
    let runs = Runs::new(database.clone(), report.clone(), retention, is_shared)?;
    let shared = Arc::new(Shared::new(runs.clone(), report.clone(), listeners.clone()));
    let automations = Automations::new(database.clone(), runs, report.clone(), &listeners, place.clone())?;
    let of_cluster = is_shared.then(|| shared.clone() as Arc<dyn SharedRuns>);
    if let Err(why) = host.join_runs(shared, of_cluster) {
        // A host without the call stores each run by itself.
        if is_shared {
            return Err(why);
        }
    }
    let users = Arc::new(Users::new(database.clone(), connector.clone(), listeners.clone(), &place));
    if let Err(why) = host.join_users(users) {
        // A host without the call has no users.
        if is_shared {
            return Err(why);
        }
    }
    host.register_vault(Arc::new(Vault::new(database.clone(), cipher)).into_point(), replace)?;
    host.register_sessions(Arc::new(Sessions::new(database.clone(), report.clone())).into_point(), replace)?;
    host.register_automations(Arc::new(automations).into_point(), replace)?;
    host.register_records(
        Arc::new(Records::new(database.clone(), report.clone(), listeners)).into_point(),
        replace,
    )?;
    host.register_policies(Arc::new(Policies::new(database.clone())).into_point(), replace)?;
    host.register_usage(Arc::new(Usage::new(database, report)).into_point(), replace)?;
    host.on(
        EventName::Listening,
        Call::now(move |(event, _): (Frozen<Event>, Frozen<PluginContext>)| {
            if let Event::Listening { host, port, .. } = event.0 {
                url.send_replace(Some(match &advertised {
                    Some(advertised) => with_port(advertised, port),
                    None => format!("{host}:{port}"),
                }));
            }
            Ok(())
        }),
    )
}

/// Returns an address with the port on which the host listens in place of port 0.
fn with_port(url: &str, port: u16) -> String {
    let (before, path) = match url.find("://").and_then(|at| Some(at + 3 + url[at + 3..].find('/')?)) {
        Some(at) => url.split_at(at),
        None => (url, ""),
    };
    match before.strip_suffix(":0") {
        Some(before) => format!("{before}:{port}{path}"),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::with_port;

    #[test]
    fn port_0_of_an_address_stands_for_the_port_of_the_host() {
        for (url, address) in [
            ("ws://127.0.0.1:0", "ws://127.0.0.1:7"),
            ("ws://127.0.0.1:0/ostler", "ws://127.0.0.1:7/ostler"),
            ("ws://127.0.0.1:9187", "ws://127.0.0.1:9187"),
            ("wss://inn.example", "wss://inn.example"),
            ("ws://[::1]:0", "ws://[::1]:7"),
        ] {
            assert_eq!(with_port(url, 7), address);
        }
    }
}
