//! The tables, and the migrations of older schemas.

use ostler_contract::Thrown;
use ring::digest;
use tokio_postgres::{Client, Error};

use crate::failure;

/// The migrations. A released one never changes; its checksum is stored with it.
const MIGRATIONS: &[(&str, &str)] = &[
    ("stores", include_str!("migrations/0001_stores.sql")),
    ("cluster", include_str!("migrations/0002_cluster.sql")),
    ("run_index", include_str!("migrations/0003_run_index.sql")),
    ("runs", include_str!("migrations/0004_runs.sql")),
    ("users", include_str!("migrations/0005_users.sql")),
    ("unowned_automations", include_str!("migrations/0006_unowned_automations.sql")),
    ("host_keys", include_str!("migrations/0007_host_keys.sql")),
];

/// Serializes hosts that start: held until the transaction ends.
const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtextextended('ostler:' || $1, 0))";

/// The state of a schema.
pub struct SchemaState {
    /// The number of its applied migrations.
    version: usize,
}

impl SchemaState {
    /// How many migrations this program knows.
    pub const NEWEST: usize = MIGRATIONS.len();

    /// Returns whether the schema has tables.
    pub fn has_tables(&self) -> bool {
        self.version > 0
    }

    /// Returns whether the schema tells hosts of a cluster from others.
    pub fn has_members(&self) -> bool {
        self.version > 1
    }

    /// Returns whether the schema tells what identifies the secrets of hosts.
    pub fn has_keys(&self) -> bool {
        self.version > 6
    }

    /// Returns the number of applied migrations.
    pub fn version(&self) -> usize {
        self.version
    }

    /// Returns whether all migrations were applied.
    pub fn is_current(&self) -> bool {
        self.version == MIGRATIONS.len()
    }
}

fn checksum(sql: &str) -> String {
    hex::encode(digest::digest(&digest::SHA256, sql.as_bytes()))
}

fn failed(error: Error) -> Thrown {
    failure::thrown(&error)
}

/// Locks the schema for the current transaction, creates it if it is missing, and checks its version.
///
/// # Errors
/// A newer host wrote it, or one of its migrations differs from that of this program.
pub async fn lock(client: &Client, schema: &str) -> Result<SchemaState, Thrown> {
    client.execute(LOCK, &[&schema]).await.map_err(failed)?;
    let exists = client.query_opt("SELECT 1 FROM pg_namespace WHERE nspname = $1", &[&schema]).await;
    if exists.map_err(failed)?.is_none() {
        // The name is letters, digits and underscores.
        client.batch_execute(&format!("CREATE SCHEMA \"{schema}\"")).await.map_err(failed)?;
    }
    client
        .batch_execute(&format!(
            "CREATE TABLE IF NOT EXISTS \"{schema}\".migrations (
                 version integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL,
                 applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
             )"
        ))
        .await
        .map_err(failed)?;
    applied(client, schema).await
}

/// Returns the version of a schema. Changes nothing.
///
/// # Errors
/// As [`lock`].
pub async fn inspect(client: &Client, schema: &str) -> Result<SchemaState, Thrown> {
    let exists = "SELECT 1 FROM pg_tables WHERE schemaname = $1 AND tablename = 'migrations'";
    match client.query_opt(exists, &[&schema]).await.map_err(failed)? {
        Some(_) => applied(client, schema).await,
        None => Ok(SchemaState { version: 0 }),
    }
}

async fn applied(client: &Client, schema: &str) -> Result<SchemaState, Thrown> {
    let sql = format!("SELECT version, name, checksum FROM \"{schema}\".migrations ORDER BY version");
    let applied = client.query(&sql, &[]).await;
    let applied = applied.map_err(failed)?;
    for (at, row) in applied.iter().enumerate() {
        let (version, name, stored): (i32, String, String) = (row.get(0), row.get(1), row.get(2));
        let Some((_, sql)) = MIGRATIONS.get(at) else {
            return Err(Thrown::new(format_args!(
                "schema {schema} was written by a newer ostler (version {}, and this one knows up to {}); update ostler, or \
                 set the option schema to another one",
                applied.len(),
                MIGRATIONS.len()
            )));
        };
        if usize::try_from(version).ok() != Some(at + 1) || stored != checksum(sql) {
            return Err(Thrown::new(format_args!(
                "schema {schema}: migration {version} ({name}) is not the one of this ostler; it was written by another \
                 build. Set the option schema to another one"
            )));
        }
    }
    Ok(SchemaState { version: applied.len() })
}

/// Applies the missing migrations of a locked schema.
///
/// # Errors
/// A statement failed; the transaction has to be rolled back.
pub async fn apply(client: &Client, found: &SchemaState) -> Result<(), Thrown> {
    for (at, (name, sql)) in MIGRATIONS.iter().enumerate().skip(found.version) {
        client.batch_execute(sql).await.map_err(failed)?;
        let version = i32::try_from(at + 1).unwrap_or(i32::MAX);
        client
            .execute(
                "INSERT INTO migrations (version, name, checksum) VALUES ($1, $2, $3)",
                &[&version, name, &checksum(sql)],
            )
            .await
            .map_err(failed)?;
    }
    Ok(())
}
