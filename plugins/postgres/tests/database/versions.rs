//! Hosts of versions that follow each other on one schema. `.ci/postgres` runs these tests.

use std::process::Stdio;
use std::sync::Arc;

use ostler_contract::Thrown;
use ostler_contract::points::KeptSession;
use ostler_plugin_postgres::{Migration, Retention, Tables};
use ostler_ports::conformance::{ClusterMember, cluster_conformance};

use crate::support::calls::Joined;
use crate::support::server::Postgres;
use crate::support::{Stores, applied_of, options_of_member, until};

/// How many migrations this version knows.
const KNOWN: usize = 9;
/// The version after this one adds something.
const EXPANDS: Migration = Migration {
    name: "expands",
    sql: "ALTER TABLE records ADD COLUMN note text; CREATE TABLE notes (id bigint PRIMARY KEY)",
    needs: KNOWN,
};
/// The one after that removes something, which the version before it does not use.
const CONTRACTS: Migration =
    Migration { name: "contracts", sql: "DROP INDEX automation_runs_unindexed", needs: KNOWN + 1 };
const NEXT: &[Migration] = &[EXPANDS];
const SECOND_NEXT: &[Migration] = &[EXPANDS, CONTRACTS];

/// A host of a cluster.
struct Host {
    stores: Stores,
    joined: Arc<Joined>,
}

impl Host {
    async fn start(server: &Postgres, id: &str, later: &'static [Migration]) -> Result<Self, Thrown> {
        let joined = Arc::new(Joined::default());
        let options = options_of_member(server, id);
        let stores = applied_of(Tables::with(later), joined.clone(), options, Retention::default()).await?;
        Ok(Self { stores, joined })
    }

    fn member(&self) -> ClusterMember {
        ClusterMember {
            cluster: self.joined.cluster.lock().unwrap().clone().unwrap(),
            sessions: self.stores.sessions.clone(),
            automations: self.stores.automations.clone(),
            runs: self.joined.runs.lock().unwrap().clone().unwrap(),
        }
    }

    /// Reads and writes a session.
    async fn is_serving(&self, session: &str) {
        let Self { stores, joined } = self;
        let kept = KeptSession { uri: format!("echo:/{session}"), ..KeptSession::default() };
        let cluster = joined.cluster.lock().unwrap().clone().unwrap();
        // A host that has just joined again has its lease a moment later.
        until("the session is claimed", async || cluster.claim(session.to_owned()).await.is_ok()).await;
        stores.sessions.set_config.unbounded((session.to_owned(), kept.clone())).await.unwrap();
        assert_eq!(stores.sessions.config.unbounded((session.to_owned(),)).await, Ok(Some(kept)));
    }
}

async fn refused(server: &Postgres, id: &str, later: &'static [Migration]) -> String {
    match Host::start(server, id, later).await {
        Ok(_) => panic!("{id} starts"),
        Err(why) => why.message,
    }
}

/// The migrations that a program has to know, and those that it need not know.
fn migrations(server: &Postgres) -> [String; 2] {
    ["migrations", "compatible_migrations"].map(|list| {
        server.psql("ostler", &format!("SELECT string_agg(name, ' ' ORDER BY version) FROM ostler.{list}"))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn a_host_of_the_version_before_goes_on_beside_one_that_adds_to_the_tables() {
    let server = Postgres::start();
    let before = Host::start(&server, "before", &[]).await.unwrap();
    before.is_serving("first").await;
    let next = Host::start(&server, "next", NEXT).await.unwrap();
    let [required, compatible] = migrations(&server);
    assert!(required.ends_with(" unfinished"), "{required}");
    assert_eq!(compatible, "expands");
    cluster_conformance(before.member(), next.member()).await;

    // It joins again after its lease was lost, and starts again.
    let cluster = before.joined.cluster.lock().unwrap().clone().unwrap();
    let run = cluster.incarnation();
    server.psql("ostler", "DELETE FROM ostler.host WHERE id = 'before'");
    until("the host joins again", async || {
        // It has no sessions in memory.
        cluster.emptied();
        cluster.incarnation() != run
    })
    .await;
    before.is_serving("second").await;
    before.stores.close().await;
    let again = Host::start(&server, "before", &[]).await.unwrap();
    again.is_serving("third").await;
    next.is_serving("fourth").await;
    assert_eq!(migrations(&server)[1], "expands");
    again.stores.close().await;
    next.stores.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn a_version_is_not_skipped_while_a_host_runs_and_a_downgrade_beyond_it_is_refused() {
    let server = Postgres::start();
    let before = Host::start(&server, "before", &[]).await.unwrap();
    let why = refused(&server, "second-next", SECOND_NEXT).await;
    assert_eq!(
        why,
        "another host uses the database: before; it does not know the tables of this version: update it to the version before \
         this one first, or stop it"
    );
    before.is_serving("first").await;
    assert_eq!(migrations(&server)[1], "vacuum unfinished", "nothing has changed");

    let next = Host::start(&server, "next", NEXT).await.unwrap();
    before.stores.close().await;
    let second_next = Host::start(&server, "second-next", SECOND_NEXT).await.unwrap();
    cluster_conformance(next.member(), second_next.member()).await;
    assert_eq!(migrations(&server)[1], "contracts");

    let why = refused(&server, "before", &[]).await;
    assert!(
        why.starts_with(
            "schema ostler was written by a newer ostler (version 11, and this one knows up to 9)"
        ),
        "{why}"
    );
    next.stores.close().await;
    second_next.stores.close().await;
    // The version before the newest one is served, also when no other host runs.
    let next = Host::start(&server, "next", NEXT).await.unwrap();
    next.is_serving("second").await;
    next.stores.close().await;
}

/// The tables of the version before this one, as it created them.
const BEFORE: [(&str, &str); 7] = [
    ("stores", include_str!("../../src/migrations/0001_stores.sql")),
    ("cluster", include_str!("../../src/migrations/0002_cluster.sql")),
    ("run_index", include_str!("../../src/migrations/0003_run_index.sql")),
    ("runs", include_str!("../../src/migrations/0004_runs.sql")),
    ("users", include_str!("../../src/migrations/0005_users.sql")),
    ("unowned_automations", include_str!("../../src/migrations/0006_unowned_automations.sql")),
    ("host_keys", include_str!("../../src/migrations/0007_host_keys.sql")),
];
/// Statements of that version: what a running host sends, and its start.
const OF_BEFORE: [&str; 11] = [
    "UPDATE host SET expires_at = clock_timestamp() + interval '8 seconds', url = 'ws://before:1'
         WHERE incarnation = 'run-1' AND expires_at > clock_timestamp()",
    "SELECT write_batch('run-1', (SELECT batch + 1 FROM writer WHERE incarnation = 'run-1'))",
    "INSERT INTO automation_owners (automation, owner, host) VALUES ('a', 'run-1', 'before') ON CONFLICT DO NOTHING",
    "SELECT status, wake FROM send_wakes(
         ARRAY[gen_random_uuid()::text], '{a}', ARRAY[gen_random_uuid()::text], '{\"\\\"event\\\"\"}', '{\"null\"}', 1000,
         NULL, NULL, NULL, NULL, NULL
     )",
    "UPDATE automation_wakes SET done = true, run = 'null', outcome = uri WHERE NOT done",
    "INSERT INTO automation_runs (uri, automation, cause, ended, ended_at, bytes, run, state, work_owner, accepted_at, owner)
         SELECT gen_random_uuid()::text, 'a', NULL, true, '2026-01-01', 4, 'null', 'completed', NULL, '2026-01-01', 'run-1'",
    "INSERT INTO session_parts VALUES ('s', 'chats', '[{\"queued\":[{}]}]')
         ON CONFLICT (session, part) DO UPDATE SET value = excluded.value",
    "INSERT INTO turns VALUES ('s', 'c', 0, '{}') ON CONFLICT (session, chat, place) DO UPDATE SET kept = excluded.kept",
    "DELETE FROM automation_wakes WHERE done AND at < now() - interval '2 hours'",
    "DELETE FROM changes WHERE at < now() - interval '10 minutes'",
    "INSERT INTO host (id, incarnation, expires_at, member, version, draining, vault_key, token_key)
         SELECT 'before', 'run-1', clock_timestamp() + interval '8 seconds', true, '0.0.9', false, vault_key, token_key
         FROM host WHERE id = 'after' ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn statements_of_the_version_before_run_on_the_tables_of_this_one() {
    let server = Postgres::start();
    let sum = |sql: &str| format!("encode(sha256(convert_to($q${sql}$q$, 'UTF8')), 'hex')");
    let mut create = "CREATE SCHEMA ostler; SET search_path = ostler; CREATE TABLE migrations (
             version integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL,
             applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
         );"
    .to_owned();
    for (at, (name, sql)) in BEFORE.iter().enumerate() {
        create += &format!("{sql}; INSERT INTO migrations VALUES ({}, '{name}', {});", at + 1, sum(sql));
    }
    create += "INSERT INTO host (id, incarnation, expires_at, member)
             VALUES ('before', 'run-1', clock_timestamp() + interval '1 hour', true);
         INSERT INTO writer VALUES ('run-1', 0)";
    server.psql("ostler", &create);
    let of_before = |sql: &str| server.psql("ostler", &format!("SET search_path = ostler; {sql}"));
    let list = "SELECT version, name, checksum FROM migrations ORDER BY version";
    let listed = of_before(list);

    // Somebody reads the hosts. What the running host wants of the table does not wait for that behind the start.
    let reads = "BEGIN; SELECT FROM ostler.host; SELECT pg_sleep(3); COMMIT";
    let mut reads = server.psql_command("ostler", reads).stdout(Stdio::null()).spawn().unwrap();
    let locked = "SELECT count(*) FROM pg_locks WHERE relation = 'ostler.host'::regclass AND granted";
    until("the table is read", async || server.psql("ostler", locked) == "1").await;
    // It joins beside the running host, whose secrets are not known.
    let after = Host::start(&server, "after", &[]).await.unwrap();
    let lines = after.joined.lines.lock().unwrap().join("\n");
    assert!(lines.contains("the tables are in use and could not be updated, retrying"), "{lines}");
    reads.wait().unwrap();
    assert_eq!(of_before(list), listed, "the version before can start again");
    assert_eq!(migrations(&server)[1], "vacuum unfinished");
    for sql in OF_BEFORE {
        of_before(sql);
    }
    assert_eq!(
        of_before("SELECT session FROM waiting_sessions"),
        "s",
        "of a session that it stored before and after"
    );
    assert_eq!(of_before("SELECT count(*) FROM unended_turns"), "0");
    after.is_serving("first").await;
    assert_eq!(of_before("SELECT count(*) FROM host WHERE expires_at > clock_timestamp()"), "2");
    after.stores.close().await;
}
