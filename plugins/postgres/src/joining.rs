//! The start of a host on a schema: the migrations, and the row that is its lease.

use std::sync::Arc;
use std::time::Duration;

use ostler_contract::Thrown;
use ostler_contract::stores::Report;
use tokio::time::Instant;
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::connect::{Connector, Purpose};
use crate::failure::{is_locked, thrown};
use crate::lease::{LENGTH, Lease};
use crate::migrations::{self, SchemaState, Tables};
use crate::pooler;

/// How long a start waits for the lease of a host that ended without releasing it.
const PATIENCE: Duration = Duration::from_secs(12);
/// The pause before another try.
const LOOK: Duration = Duration::from_millis(500);
/// The limit for connecting for the first time.
const FIRST: Duration = Duration::from_secs(10);
/// How long the rows of lost hosts stay, so that the cluster can name them.
const REMEMBERED: &str = "1 day";

/// The host that takes a lease.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Its stable name.
    pub id: String,
    /// Its version of ostler.
    pub version: String,
    /// Whether it is in a cluster.
    pub is_member: bool,
    pub is_draining: bool,
    /// What identifies the key of its vault.
    pub vault_key: Vec<u8>,
    /// What identifies the token of its cluster.
    pub token_key: Option<Vec<u8>>,
    /// The tables that it knows.
    pub tables: Tables,
}

/// Returns a new name for a run of a host.
pub fn new_incarnation() -> String {
    Uuid::new_v4().to_string()
}

/// Migrates the schema and acquires the lease. Waits for the lease of a host that ended without releasing it.
///
/// # Errors
/// The database cannot be used, or another host is running on it.
pub async fn acquire(
    connector: &Connector,
    host: &Candidate,
    incarnation: &str,
    report: &Report,
) -> Result<Arc<Lease>, Thrown> {
    let client = connect_first(connector, incarnation, Duration::from_secs(50)).await?;
    let begun = Instant::now();
    let mut before: Option<Holder> = None;
    loop {
        let sent = Instant::now();
        let holder = match take(&client, &connector.schema, host, incarnation).await {
            Ok(None) => return Ok(Lease::new(host.id.clone(), host.is_member, incarnation, sent)),
            Ok(Some(holder)) => holder,
            Err(why) if is_locked(&why) && begun.elapsed() < PATIENCE => {
                report.say(format!("the tables are in use and could not be updated, retrying: {why}"));
                tokio::time::sleep(LOOK).await;
                continue;
            }
            Err(why) => return Err(why),
        };
        let is_renewed = before.as_ref().is_some_and(|before| before.expires_at != holder.expires_at);
        if is_renewed || begun.elapsed() > PATIENCE {
            return Err(holder.refusal(host));
        }
        if before.is_none() {
            report.say(format!(
                "waiting until the lease of {} expires, which ended without giving it up or is running",
                holder.id
            ));
        }
        let rest = Duration::from_millis(u64::try_from(holder.rest).unwrap_or_default() + 50);
        before = Some(holder);
        tokio::time::sleep(rest.min(LOOK)).await;
    }
}

/// A host whose lease prevents another one from starting.
pub struct Holder {
    id: String,
    url: Option<String>,
    expires_at: String,
    /// Milliseconds.
    rest: i64,
    is_member: bool,
    /// Whether both are in clusters, with different keys of the vault.
    has_other_vault: bool,
    /// Whether both are in clusters, with different tokens.
    has_other_token: bool,
    /// Whether it cannot use the tables as the other host would update them.
    is_outdated: bool,
}

impl Holder {
    /// Returns why a host cannot start.
    pub fn refusal(&self, host: &Candidate) -> Thrown {
        let at = self.url.as_ref().map(|url| format!(" at {url}")).unwrap_or_default();
        let what = match (host.is_member, self.is_member) {
            (false, false) => {
                "stop that one, set the option schema to another one, or set the option cluster on both hosts"
            }
            (false, true) => {
                "that one is in a cluster: set the option cluster here too, or the option schema to another one"
            }
            (true, false) => {
                "that one has no option cluster: stop it, set the option there, and start it again, or set the option schema \
                 to another one"
            }
            (true, true) if self.has_other_vault => {
                "it has another key of the vault, so neither could read the secrets of the other: set vaultKeyFile to the same \
                 key on both"
            }
            (true, true) if self.has_other_token => {
                "it has another token, so neither could reach the other: set cluster.tokenFile to the same token on both"
            }
            (true, true) if self.is_outdated && self.id != host.id => {
                "it does not know the tables of this version: update it to the version before this one first, or stop it"
            }
            (true, true) => {
                "it has the same name: stop it, or set the option cluster.id to another name here"
            }
        };
        Thrown::new(format_args!("another host uses the database: {}{at}; {what}", self.id))
    }
}

/// Connects for the first time, and checks that the server and what is between it and this host can be used.
///
/// # Errors
/// What is wrong.
pub async fn connect_first(connector: &Connector, origin: &str, timeout: Duration) -> Result<Client, Thrown> {
    let opening = connector.open(Purpose { origin, timeout, is_of_lease: true, wake: None });
    let opened = tokio::time::timeout(FIRST, opening).await.map_err(|_| {
        Thrown::new("PostgreSQL: no connection within 10 seconds; the server, or a pooler in front of it, is overloaded")
    })??;
    pooler::check(connector, &opened).await?;
    check_server(&opened.client).await?;
    Ok(opened.client)
}

async fn check_server(client: &Client) -> Result<(), Thrown> {
    let row = client
        .query_one(
            "SELECT current_setting('server_version_num')::int, current_setting('server_version'),
                 current_setting('server_encoding')",
            &[],
        )
        .await
        .map_err(|why| thrown(&why))?;
    let (number, version, encoding): (i32, String, String) = (row.get(0), row.get(1), row.get(2));
    if number < 140_000 {
        return Err(Thrown::new(format_args!("PostgreSQL {version} is too old; 14 or newer is required")));
    }
    if encoding != "UTF8" {
        return Err(Thrown::new(format_args!(
            "the database has the encoding {encoding}; create one with UTF8"
        )));
    }
    Ok(())
}

/// Acquires the lease in one transaction with the migrations, or returns the host that prevents it.
///
/// # Errors
/// The database cannot be used.
pub async fn take(
    client: &Client,
    schema: &str,
    host: &Candidate,
    incarnation: &str,
) -> Result<Option<Holder>, Thrown> {
    client.batch_execute("BEGIN").await.map_err(|why| thrown(&why))?;
    let taken = take_within(client, schema, host, incarnation).await;
    let end = if matches!(taken, Ok(None)) { "COMMIT" } else { "ROLLBACK" };
    let ended = client.batch_execute(end).await.map_err(|why| thrown(&why));
    let holder = taken?;
    ended.map(|()| holder)
}

async fn take_within(
    client: &Client,
    schema: &str,
    host: &Candidate,
    incarnation: &str,
) -> Result<Option<Holder>, Thrown> {
    let failed = |why: tokio_postgres::Error| thrown(&why);
    let found = migrations::lock(client, schema, host.tables).await?;
    // Before any change, so that a host that may not start changes nothing.
    if found.has_tables()
        && let Some(holder) = holder(client, &found, host).await?
    {
        return Ok(Some(holder));
    }
    migrations::apply(client, &found).await?;
    // Removing a row waits for transactions of that run.
    match host.is_member {
        false => client.execute("DELETE FROM host", &[]).await,
        true => {
            let old = format!(
                "DELETE FROM host WHERE id = $1 OR expires_at < clock_timestamp() - interval '{REMEMBERED}'"
            );
            client.execute(&old, &[&host.id]).await
        }
    }
    .map_err(failed)?;
    let writers = "DELETE FROM writer WHERE NOT EXISTS (SELECT 1 FROM host WHERE host.incarnation = writer.incarnation)";
    client.batch_execute(writers).await.map_err(failed)?;
    client
        .execute(
            &format!(
                "INSERT INTO host (id, incarnation, expires_at, member, version, draining, vault_key, token_key, knows)
                 VALUES ($1, $2, clock_timestamp() + interval '{LENGTH}', $3, $4, $5, $6, $7, $8)"
            ),
            &[
                &host.id,
                &incarnation,
                &host.is_member,
                &host.version,
                &host.is_draining,
                &host.vault_key,
                &host.token_key,
                &migrations::integer(host.tables.known()),
            ],
        )
        .await
        .map_err(failed)?;
    client
        .execute("INSERT INTO writer (incarnation, batch) VALUES ($1, 0)", &[&incarnation])
        .await
        .map_err(failed)?;
    Ok(None)
}

/// Returns a running host that prevents another one from starting: any host, unless both are in a cluster with the same secrets
/// under different names, and it knows the tables that the other one needs.
async fn holder(client: &Client, found: &SchemaState, host: &Candidate) -> Result<Option<Holder>, Thrown> {
    let member = if found.has_members() { "member" } else { "false" };
    // Hosts of versions that did not store what identifies their secrets are not compared.
    let other = |column: &str, parameter: &str| match found.has_keys() {
        true => format!("coalesce({member} AND $1 AND {column} <> {parameter}, false)"),
        false => format!("({parameter}::bytea IS NULL AND false)"),
    };
    let (vault, token) = (other("vault_key", "$3"), other("token_key", "$4"));
    let outdated = format!("({} < $5)", found.known_by_host());
    let sql = format!(
        "SELECT id, url, expires_at::text, (extract(epoch FROM expires_at - clock_timestamp()) * 1000)::bigint, {member},
             {vault}, {token}, {outdated}
         FROM host
         WHERE expires_at > clock_timestamp()
             AND NOT ({member} AND $1 AND id <> $2 AND NOT {vault} AND NOT {token} AND NOT {outdated})
         ORDER BY expires_at DESC LIMIT 1"
    );
    let required = migrations::integer(found.required_when_applied());
    let given: [&(dyn ToSql + Sync); 5] =
        [&host.is_member, &host.id, &host.vault_key, &host.token_key, &required];
    let row = client.query_opt(&sql, &given).await.map_err(|why| thrown(&why))?;
    Ok(row.map(|row| Holder {
        id: row.get(0),
        url: row.get(1),
        expires_at: row.get(2),
        rest: row.get(3),
        is_member: row.get(4),
        has_other_vault: row.get(5),
        has_other_token: row.get(6),
        is_outdated: row.get(7),
    }))
}
