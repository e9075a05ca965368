//! Hosts behind PgBouncer. `.ci/postgres` runs these tests.

use std::process::Stdio;

use crate::support::not_run::not_run;
use crate::support::server::{Pooler, Postgres};
use crate::support::{Stores, applied, options, until};
use ostler_contract::points::{ChangeType, CollectionOptions, KeptSession, RecordChange};
use ostler_contract::{Options, Value, json};
use ostler_plugin_postgres::{Direct, Retention, remedy};
use ostler_ports::conformance::Heard;

const MISSING: &str = "PgBouncer is not installed";

fn through(pooler: &Pooler, server: &Postgres, schema: &str) -> Value {
    let mut options = options(server, schema);
    options["url"] = pooler.url().into();
    options
}

async fn save(stores: &Stores, title: &str) -> Result<(), String> {
    let kept = KeptSession { uri: "echo:/s".into(), title: title.into(), ..KeptSession::default() };
    stores.sessions.set_config.unbounded(("s".into(), kept)).await.map_err(|why| why.message)
}

/// What is stored about the session in a schema.
fn stored(server: &Postgres, schema: &str) -> String {
    server.psql("ostler", &format!("SELECT kept::json ->> 'title' FROM {schema}.sessions"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn in_session_mode_a_host_has_its_own_schema_limits_and_notifications() {
    let server = Postgres::start();
    let Some(pooler) = Pooler::start(&server, "pool_mode = session") else { return not_run(MISSING) };
    // The schema that the server searches without a setting, because the user has its name.
    let own = Stores::open(&server, "ostler").await;
    save(&own, "of the other host").await.unwrap();
    for settings in [
        "pool_mode = session",
        "pool_mode = session\nignore_startup_parameters = extra_float_digits,options",
        "pool_mode = session\nserver_round_robin = 1",
    ] {
        pooler.reload(settings);
        let mut options = through(&pooler, &server, "other");
        options["statementTimeoutSeconds"] = json!(1);
        let stores =
            applied(options, Retention::default()).await.unwrap_or_else(|why| panic!("{settings}: {why}"));
        save(&stores, settings).await.unwrap();
        assert_eq!(stored(&server, "other"), settings.trim());
        assert_eq!(stored(&server, "ostler"), "of the other host", "{settings}");

        // A statement ends in time.
        let sql = "BEGIN; LOCK other.policies; SELECT pg_sleep(60)";
        let mut locking =
            server.psql_command("ostler", sql).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let locked = "SELECT count(*) FROM pg_locks WHERE relation = 'other.policies'::regclass AND granted
            AND mode = 'AccessExclusiveLock'";
        until("the table is locked", async || server.psql("ostler", locked) == "1").await;
        stores.policies.list.unbounded(()).await.unwrap_err();
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE query LIKE '%pg_sleep(60)%' AND pid <> pg_backend_pid()";
        server.psql("ostler", end);
        locking.wait().unwrap();

        let notes = stores
            .records
            .collection
            .unbounded(("notes".into(), CollectionOptions::default()))
            .await
            .unwrap();
        let heard = Heard::<RecordChange>::default();
        notes.watch.unbounded((heard.listener(),)).await.unwrap();
        server.psql(
            "ostler",
            "INSERT INTO other.records (collection, id, record) VALUES ('notes', 'a', '{\"id\":\"a\"}')",
        );
        assert_eq!(heard.next().await, RecordChange { id: "a".into(), r#type: ChangeType::Added });
        server.psql("ostler", "DELETE FROM other.records");
        stores.close().await;
    }
    own.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn pooled_transactions_and_statements_are_refused_with_the_remedy() {
    let server = Postgres::start();
    let Some(pooler) = Pooler::start(&server, "pool_mode = session") else { return not_run(MISSING) };
    Stores::open(&server, "ostler").await.close().await;
    for settings in [
        "pool_mode = transaction",
        "pool_mode = transaction\nignore_startup_parameters = extra_float_digits,options",
        "pool_mode = transaction\nserver_round_robin = 1",
        "pool_mode = transaction\ndefault_pool_size = 1",
        "pool_mode = transaction\nmin_pool_size = 8",
        "pool_mode = statement",
    ] {
        pooler.reload(settings);
        let options = through(&pooler, &server, "ostler");
        let refused = applied(options.clone(), Retention::default()).await.err();
        let refused = refused.unwrap_or_else(|| panic!("{settings}: it starts"));
        assert!(refused.message.contains("pool_mode = session"), "{settings}: {refused}");
        let given = Options::from(options.as_object().unwrap().clone());
        let refused = Direct::connect(&given, std::path::Path::new("/")).await.err();
        let refused = refused.unwrap_or_else(|| panic!("{settings}: a command connects"));
        assert!(
            remedy(&refused).is_some_and(|remedy| remedy.contains("pool_mode = session")),
            "{settings}: {refused}"
        );
        assert_eq!(
            server.psql("ostler", "SELECT count(*) FROM ostler.host"),
            "0",
            "{settings}: it has no lease"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn a_host_whose_connections_become_shared_stores_nothing_until_they_are_its_own_again() {
    let server = Postgres::start();
    let Some(pooler) = Pooler::start(&server, "pool_mode = session") else { return not_run(MISSING) };
    let stores = applied(through(&pooler, &server, "ostler"), Retention::default()).await.unwrap();
    save(&stores, "session").await.unwrap();
    pooler.reload("pool_mode = transaction");
    let mut last = String::new();
    until("the host has no lease", async || {
        let (saved, read) = tokio::join!(save(&stores, "transaction"), stores.policies.list.unbounded(()));
        for refused in [saved.err(), read.err().map(|why| why.message)].into_iter().flatten() {
            last = refused;
        }
        last.contains("could not renew its lease")
    })
    .await;
    pooler.reload("pool_mode = session");
    until("the host stores again", async || save(&stores, "again").await.is_ok()).await;
    assert_eq!(stored(&server, "ostler"), "again");
    stores.close().await;
}
