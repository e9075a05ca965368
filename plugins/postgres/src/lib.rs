//! `@ostler/postgres`: the stores of a host in PostgreSQL.
//!
//! Sessions, automations and runs, records, policies, usage and the vault replace the stores of files and SQLite. One task
//! writes, a transaction for many writes; a pool reads. A lease makes sure that one host at a time writes.

#![forbid(unsafe_code)]

/// A member of a point that calls a function of its store.
macro_rules! member {
    ($store:expr, $function:expr) => {{
        let store = $store.clone();
        ostler_contract::Call::new(move |arguments| $function(&store, arguments))
    }};
}

mod automations;
mod connect;
mod database;
mod direct;
mod edits;
mod external_changes;
mod failure;
mod find_runs;
mod lease;
mod migrations;
mod options;
mod policies;
mod records;
mod runs;
mod sessions;
mod tls;
mod transfer;
mod usage;
mod vault;
mod writer;

use std::path::Path;
use std::sync::Arc;

use ostler_contract::events::{Event, EventName};
use ostler_contract::points::When;
use ostler_contract::stores::Report;
use ostler_contract::{Call, Frozen, Options, Plugin, PluginContext, PluginHost, Thrown, json};
use parking_lot::Mutex;
use tokio::sync::Notify;
use uuid::Uuid;

pub use direct::{Direct, RunningHost, Status};
pub use edits::{EditedItem, EditedKey, automation_value};
pub use runs::Retention;
pub use transfer::ExclusiveSchema;

use automations::Automations;
use connect::Connector;
use database::Database;
use external_changes::Listeners;
use lease::Renewal;
use policies::Policies;
use records::Records;
use runs::Runs;
use sessions::Sessions;
use usage::Usage;
use vault::{Cipher, Vault};

/// The name of the plugin in a configuration.
pub const NAME: &str = "@ostler/postgres";
/// The number of stores.
const STORES: usize = 6;

/// The plugin. Ended runs are retained by these rules.
pub fn plugin(retention: Retention) -> Plugin {
    Plugin::new(NAME, move |host, options| {
        Box::pin(async move {
            let environment = |name: &str| std::env::var(name).ok();
            apply(&host, &options, retention, &environment).await
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
    environment: &(dyn Fn(&str) -> Option<String> + Sync),
) -> Result<(), Thrown> {
    let settings = options::read(options, Path::new(&host.facts().config_dir), environment)?;
    let cipher = Cipher::new(&settings.vault_key)?;
    let connector = Connector::new(&settings);
    let logs = host.clone();
    let say: Report = Arc::new(move |line: String| {
        // A closing host accepts no lines.
        drop(logs.log(format!("postgres: {line}")));
    });
    let id = format!("{}:{}", host.facts().host_name, host.facts().config_dir);
    let incarnation = Uuid::new_v4().to_string();
    let lease = lease::acquire(&connector, &id, incarnation, &say).await?;
    let (wake, stop, url) = (Arc::new(Notify::new()), Arc::new(Notify::new()), Arc::new(Mutex::new(None)));
    let database = Database::start(connector.clone(), lease.clone(), stop.clone(), STORES)?;
    let renewal = Renewal { connector, lease, wake: wake.clone(), stop, url: url.clone(), say: say.clone() };
    tokio::spawn(renewal.run());
    let listeners = Arc::new(Listeners::default());
    tokio::spawn(external_changes::follow(database.clone(), listeners.clone(), wake));

    let replace = Some(When::Replace);
    let place = format!("PostgreSQL, schema {}", settings.schema);
    let runs = Runs::new(database.clone(), say.clone(), retention)?;
    let automations = Automations::new(database.clone(), runs, say.clone(), &listeners, place)?;
    host.register_vault(Arc::new(Vault::new(database.clone(), cipher)).into_point(), replace)?;
    host.register_sessions(Arc::new(Sessions::new(database.clone(), say.clone())).into_point(), replace)?;
    host.register_automations(Arc::new(automations).into_point(), replace)?;
    host.register_records(
        Arc::new(Records::new(database.clone(), say.clone(), listeners)).into_point(),
        replace,
    )?;
    host.register_policies(Arc::new(Policies::new(database.clone())).into_point(), replace)?;
    host.register_usage(Arc::new(Usage::new(database, say)).into_point(), replace)?;
    host.on(
        EventName::Listening,
        Call::now(move |(event, _): (Frozen<Event>, Frozen<PluginContext>)| {
            if let Event::Listening { host, port, .. } = event.0 {
                *url.lock() = Some(format!("{host}:{port}"));
            }
            Ok(())
        }),
    )
}
