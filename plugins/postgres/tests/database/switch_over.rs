//! A standby replaces the server of a host, and the old server stays up. `.ci/postgres` runs these tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use crate::support::server::Postgres;
use crate::support::{Stores, applied, options, until};
use ostler_contract::Value;
use ostler_contract::points::{ChangeType, CollectionOptions, KeptSession, RecordChange};
use ostler_plugin_postgres::Retention;
use ostler_ports::conformance::Heard;
use tokio::net::{TcpListener, TcpStream};

async fn save(stores: &Stores, title: &str) -> Result<(), String> {
    let kept = KeptSession { uri: "echo:/s".into(), title: title.into(), ..KeptSession::default() };
    stores.sessions.set_config.unbounded(("s".into(), kept)).await.map_err(|why| why.message)
}

/// Options of which the URL names both servers.
fn of_both(server: &Postgres, standby: &Postgres) -> Value {
    let mut options = options(server, "ostler");
    options["url"] = format!(
        "postgresql://ostler@127.0.0.1:{},127.0.0.1:{}/ostler?target_session_attrs=read-write",
        server.port, standby.port
    )
    .into();
    options
}

/// Waits until the standby has what the server has, and makes it the primary.
async fn promote(server: &Postgres, standby: &Postgres) {
    until("the standby follows", async || {
        let written = server.psql("ostler", "SELECT pg_current_wal_lsn()");
        standby.psql("ostler", &format!("SELECT pg_last_wal_replay_lsn() >= '{written}'")) == "t"
    })
    .await;
    standby.psql("ostler", "SELECT pg_promote()");
}

const CONNECTIONS: &str = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'ostler'";

/// Everything of the host is at a server: what it writes, reads and is notified of.
async fn uses(stores: &Stores, server: &Postgres, other: &Postgres) {
    until("the host writes", async || save(stores, "after").await.is_ok()).await;
    assert_eq!(server.psql("ostler", "SELECT kept::json ->> 'title' FROM ostler.sessions"), "after");
    let policy =
        r#"{ "id": "p", "scope": "all", "kind": "agent", "effect": "deny", "match": { "agent": ["echo"] } }"#;
    server.psql("ostler", &format!("INSERT INTO ostler.policies (id, policy) VALUES ('p', '{policy}')"));
    for _ in 0..8 {
        // More reads at the same time than there are connections.
        let read = || stores.policies.list.unbounded(());
        let all = tokio::join!(read(), read(), read(), read(), read());
        for listed in [all.0, all.1, all.2, all.3, all.4] {
            assert_eq!(listed.unwrap().len(), 1, "a read is of the other server");
        }
    }
    let notes =
        stores.records.collection.unbounded(("notes".into(), CollectionOptions::default())).await.unwrap();
    let heard = Heard::<RecordChange>::default();
    notes.watch.unbounded((heard.listener(),)).await.unwrap();
    server.psql(
        "ostler",
        "INSERT INTO ostler.records (collection, id, record) VALUES ('notes', 'a', '{\"id\":\"a\"}')",
    );
    assert_eq!(heard.next().await, RecordChange { id: "a".into(), r#type: ChangeType::Added });
    until("no connection is of the other server", async || other.psql("ostler", CONNECTIONS) == "0").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn after_a_switch_over_everything_is_at_the_new_server_although_the_old_one_answers() {
    let server = Postgres::start();
    let standby = server.standby();
    let stores = applied(of_both(&server, &standby), Retention::default()).await.unwrap();
    save(&stores, "before").await.unwrap();
    stores.policies.list.unbounded(()).await.unwrap();
    promote(&server, &standby).await;
    server.psql("ostler", "ALTER SYSTEM SET default_transaction_read_only = on");
    server.psql("ostler", "SELECT pg_reload_conf()");
    // The server signals its other connections after it has read its settings again.
    until("the old server refuses writes", async || {
        server.psql("ostler", "SHOW default_transaction_read_only") == "on"
    })
    .await;
    uses(&stores, &standby, &server).await;
    stores.close().await;
}

/// Leads connections to a server, and new ones to another server once that is set, as an address that moves does.
async fn address(server: &Postgres) -> (u16, Arc<AtomicU16>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, to) = (listener.local_addr().unwrap().port(), Arc::new(AtomicU16::new(server.port)));
    let leads = to.clone();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let to = leads.load(Ordering::Relaxed);
            tokio::spawn(async move {
                let mut server = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
                drop(tokio::io::copy_bidirectional(&mut client, &mut server).await);
            });
        }
    });
    (port, to)
}

/// Ends one connection of the host, which its last statement identifies.
fn end_one(server: &Postgres, last: &str) {
    let ended = server.psql(
        "ostler",
        &format!(
            "SELECT count(pg_terminate_backend(pid)) FROM (
                 SELECT pid FROM pg_stat_activity WHERE application_name = 'ostler' AND query LIKE '{last}' LIMIT 1
             ) AS one"
        ),
    );
    assert_eq!(ended, "1", "{last}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn one_connection_to_a_newer_primary_moves_all_others_there() {
    // The connection that writes, one that reads, and that of the lease.
    for last in ["COMMIT", "SELECT %", "UPDATE host%"] {
        let server = Postgres::start();
        let standby = server.standby();
        let (port, to) = address(&server).await;
        let mut options = options(&server, "ostler");
        options["url"] = format!("postgresql://ostler@127.0.0.1:{port}/ostler").into();
        let stores = applied(options, Retention::default()).await.unwrap();
        save(&stores, "before").await.unwrap();
        stores.policies.list.unbounded(()).await.unwrap();
        promote(&server, &standby).await;
        // The old server can still be written.
        to.store(standby.port, Ordering::Relaxed);
        until("the connection exists", async || {
            let exists =
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'ostler' AND query LIKE";
            server.psql("ostler", &format!("{exists} '{last}'")) != "0"
        })
        .await;
        end_one(&server, last);
        until("the ended connection is used again", async || {
            // Several at a time, which need all connections that read.
            let reads = (0..4).map(|_| stores.policies.list.unbounded(()));
            let _ = tokio::join!(save(&stores, "after"), futures::future::join_all(reads));
            server.psql("ostler", CONNECTIONS) == "0"
        })
        .await;
        uses(&stores, &standby, &server).await;

        stores.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn an_address_that_leads_to_the_old_primary_again_is_not_used() {
    let server = Postgres::start();
    let standby = server.standby();
    let (port, to) = address(&server).await;
    let mut options = options(&server, "ostler");
    options["url"] = format!("postgresql://ostler@127.0.0.1:{port}/ostler").into();
    let stores = applied(options, Retention::default()).await.unwrap();
    promote(&server, &standby).await;
    to.store(standby.port, Ordering::Relaxed);
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'ostler'";
    server.psql("ostler", end);
    until("the new server is used", async || save(&stores, "new").await.is_ok()).await;
    assert_eq!(standby.psql("ostler", "SELECT kept::json ->> 'title' FROM ostler.sessions"), "new");

    // The old server can be written, too.
    to.store(server.port, Ordering::Relaxed);
    standby.psql("ostler", end);
    stores.policies.list.unbounded(()).await.unwrap_err();
    until("no connection is of the old server", async || server.psql("ostler", CONNECTIONS) == "0").await;
    to.store(standby.port, Ordering::Relaxed);
    until("the new server is used again", async || save(&stores, "again").await.is_ok()).await;
    assert_eq!(standby.psql("ostler", "SELECT kept::json ->> 'title' FROM ostler.sessions"), "again");
    stores.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn a_store_that_cannot_write_does_not_answer_the_host_that_asks_whether_it_works() {
    let server = Postgres::start();
    let stores = Stores::open(&server, "ostler").await;
    let config = async |id: &str| {
        let read = stores.sessions.config.unbounded((id.into(),));
        tokio::time::timeout(Duration::from_secs(1), read).await
    };
    assert_eq!(config("").await, Ok(Ok(None)));
    let mut locking =
        server.psql_command("ostler", "BEGIN; LOCK ostler.writer IN EXCLUSIVE MODE; SELECT pg_sleep(60)");
    let mut locking =
        locking.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
    let locked = "SELECT count(*) FROM pg_locks WHERE relation = 'ostler.writer'::regclass AND granted
        AND mode = 'ExclusiveLock'";
    until("the table is locked", async || server.psql("ostler", locked) == "1").await;
    config("").await.unwrap_err();
    assert_eq!(config("s").await, Ok(Ok(None)), "it can read");
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE query LIKE '%pg_sleep(60)%' AND pid <> pg_backend_pid()";
    server.psql("ostler", end);
    locking.wait().unwrap();
    until("it can write", async || config("").await == Ok(Ok(None))).await;
    stores.close().await;
}
