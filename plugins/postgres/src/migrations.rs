//! The tables, and the migrations of older schemas.
//!
//! Programs of two versions that follow each other run on one schema. A migration that only adds leaves a program that does not
//! know it as it was, so the table `compatible_migrations` lists it, which that program does not ask. Once a migration needs it,
//! the table `migrations` does, which every program has to know. So a version expands the tables, and the next one may remove
//! what they were before.

use ostler_contract::Thrown;
use ring::digest;
use tokio_postgres::{Client, Error};

use crate::failure;

/// A change of the tables.
#[derive(Debug, Clone, Copy)]
pub struct Migration {
    pub name: &'static str,
    /// Its statements.
    pub sql: &'static str,
    /// How many migrations a program has to know to run on a schema with this one: its own number, unless the programs before it
    /// run on it too.
    pub needs: usize,
}

/// The migrations. A released one never changes; its checksum is stored with it.
const MIGRATIONS: &[Migration] = &[
    Migration { name: "stores", sql: include_str!("migrations/0001_stores.sql"), needs: 1 },
    Migration { name: "cluster", sql: include_str!("migrations/0002_cluster.sql"), needs: 2 },
    Migration { name: "run_index", sql: include_str!("migrations/0003_run_index.sql"), needs: 3 },
    Migration { name: "runs", sql: include_str!("migrations/0004_runs.sql"), needs: 4 },
    Migration { name: "users", sql: include_str!("migrations/0005_users.sql"), needs: 5 },
    Migration {
        name: "unowned_automations",
        sql: include_str!("migrations/0006_unowned_automations.sql"),
        needs: 6,
    },
    Migration { name: "host_keys", sql: include_str!("migrations/0007_host_keys.sql"), needs: 7 },
    Migration { name: "vacuum", sql: include_str!("migrations/0008_vacuum.sql"), needs: 7 },
    Migration { name: "unfinished", sql: include_str!("migrations/0009_unfinished.sql"), needs: 7 },
];
/// The number of the migration after which hosts store how many migrations they know.
const KNOWS: usize = 8;

/// Serializes hosts that start: held until the transaction ends.
const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtextextended('ostler:' || $1, 0))";
/// How long a migration waits for a table: what other hosts want of it waits behind the migration.
const PATIENCE: &str = "2s";

/// The tables that a program knows.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tables {
    /// The migrations of a later version.
    later: &'static [Migration],
}

impl Tables {
    /// Returns the tables of a program that knows more migrations than this one.
    pub fn with(later: &'static [Migration]) -> Self {
        Self { later }
    }

    /// Returns how many migrations the program knows.
    pub fn known(self) -> usize {
        MIGRATIONS.len() + self.later.len()
    }

    fn all(self) -> impl Iterator<Item = &'static Migration> {
        MIGRATIONS.iter().chain(self.later)
    }
}

#[derive(Debug)]
pub struct SchemaState {
    /// The number of its applied migrations.
    version: usize,
    /// How many of them a program has to know.
    required: usize,
    /// The tables that the program knows.
    tables: Tables,
}

impl SchemaState {
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

    /// Returns an expression for the number of migrations that a host in the table `host` knows.
    pub fn known_by_host(&self) -> String {
        match self.version {
            KNOWS.. => format!("coalesce(knows, {})", KNOWS - 1),
            // A host knew each migration of the schema it started on.
            before => before.to_string(),
        }
    }

    /// Returns the number of applied migrations.
    pub fn version(&self) -> usize {
        self.version
    }

    /// Returns whether all migrations were applied, so that the program can be used.
    pub fn is_served(&self) -> bool {
        self.version >= self.tables.known()
    }

    /// Returns whether exactly the migrations were applied that the program knows.
    pub fn is_current(&self) -> bool {
        self.version == self.tables.known()
    }

    /// Returns how many migrations a program has to know once all of them are applied.
    pub fn required_when_applied(&self) -> usize {
        let new = self.tables.all().skip(self.version);
        new.map(|migration| migration.needs).fold(self.required, usize::max)
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
/// A newer host wrote it and the program cannot use it, or one of its migrations differs from that of this program.
pub async fn lock(client: &Client, schema: &str, tables: Tables) -> Result<SchemaState, Thrown> {
    client.execute(LOCK, &[&schema]).await.map_err(failed)?;
    let exists = client.query_opt("SELECT 1 FROM pg_namespace WHERE nspname = $1", &[&schema]).await;
    if exists.map_err(failed)?.is_none() {
        // The name is letters, digits and underscores.
        client.batch_execute(&format!("CREATE SCHEMA \"{schema}\"")).await.map_err(failed)?;
    }
    for table in ["migrations", "compatible_migrations"] {
        client
            .batch_execute(&format!(
                "CREATE TABLE IF NOT EXISTS \"{schema}\".{table} (
                     version integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL,
                     applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
                 )"
            ))
            .await
            .map_err(failed)?;
    }
    applied(client, schema, &["migrations", "compatible_migrations"], tables).await
}

/// Returns the version of a schema. Changes nothing.
///
/// # Errors
/// As [`lock`].
pub async fn inspect(client: &Client, schema: &str, tables: Tables) -> Result<SchemaState, Thrown> {
    let exists = "SELECT tablename::text FROM pg_tables
         WHERE schemaname = $1 AND tablename IN ('migrations', 'compatible_migrations')";
    let rows = client.query(exists, &[&schema]).await.map_err(failed)?;
    let lists: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    match lists.contains(&"migrations") {
        true => applied(client, schema, &lists, tables).await,
        false => Ok(SchemaState { version: 0, required: 0, tables }),
    }
}

async fn applied(
    client: &Client,
    schema: &str,
    lists: &[&str],
    tables: Tables,
) -> Result<SchemaState, Thrown> {
    let select = |list: &&str| {
        format!("SELECT version, name, checksum, '{list}' = 'migrations' FROM \"{schema}\".{list}")
    };
    let sql = lists.iter().map(select).collect::<Vec<_>>().join(" UNION ALL ");
    let applied = client.query(&format!("{sql} ORDER BY 1"), &[]).await.map_err(failed)?;
    let known: Vec<&Migration> = tables.all().collect();
    let mut required = 0;
    for (at, row) in applied.iter().enumerate() {
        let (version, name, stored): (i32, String, String) = (row.get(0), row.get(1), row.get(2));
        let is_required: bool = row.get(3);
        let is_known = match known.get(at) {
            Some(migration) => stored == checksum(migration.sql),
            None if is_required => {
                return Err(Thrown::new(format_args!(
                    "schema {schema} was written by a newer ostler (version {}, and this one knows up to {}); update ostler, or \
                     set the option schema to another one",
                    applied.len(),
                    known.len()
                )));
            }
            None => true,
        };
        if usize::try_from(version).ok() != Some(at + 1) || !is_known {
            return Err(Thrown::new(format_args!(
                "schema {schema}: migration {version} ({name}) is not the one of this ostler; it was written by another \
                 build; set the option schema to another one"
            )));
        }
        if is_required {
            required = at + 1;
        }
    }
    Ok(SchemaState { version: applied.len(), required, tables })
}

/// Applies the missing migrations of a locked schema.
///
/// # Errors
/// A statement failed; the transaction has to be rolled back. [`failure::is_locked`] tells whether a table was locked for too long.
pub async fn apply(client: &Client, found: &SchemaState) -> Result<(), Thrown> {
    if found.is_served() {
        return Ok(());
    }
    let required = found.required_when_applied();
    client.batch_execute(&format!("SET LOCAL lock_timeout = '{PATIENCE}'")).await.map_err(failed)?;
    for (at, migration) in found.tables.all().enumerate().skip(found.version) {
        client.batch_execute(migration.sql).await.map_err(failed)?;
        let list = if at < required { "migrations" } else { "compatible_migrations" };
        let sql = format!("INSERT INTO {list} (version, name, checksum) VALUES ($1, $2, $3)");
        let sum = checksum(migration.sql);
        client.execute(&sql, &[&integer(at + 1), &migration.name, &sum]).await.map_err(failed)?;
    }
    client.batch_execute("SET LOCAL lock_timeout TO DEFAULT").await.map_err(failed)?;
    let sql = "WITH now_required AS (DELETE FROM compatible_migrations WHERE version <= $1 RETURNING *)
         INSERT INTO migrations SELECT * FROM now_required";
    client.execute(sql, &[&integer(required)]).await.map(drop).map_err(failed)
}

/// A number of migrations as the database has it.
pub fn integer(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A version may remove what the one before it does not use, and nothing that it does.
    #[test]
    fn each_migration_needs_itself_or_programs_that_were_before_it() {
        for (at, migration) in MIGRATIONS.iter().enumerate() {
            assert!((1..=at + 1).contains(&migration.needs), "{}", migration.name);
        }
        let state = |version, required| SchemaState { version, required, tables: Tables::default() };
        assert_eq!(state(0, 0).required_when_applied(), 7);
        assert_eq!(state(7, 7).required_when_applied(), 7);
        assert_eq!(state(9, 8).required_when_applied(), 8, "another program has applied more");
    }
}
