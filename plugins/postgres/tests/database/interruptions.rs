//! The stores while the server, the network or another host misbehaves. `.ci/postgres` runs these tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::server::Postgres;
use crate::support::{Stores, applied, options, until};
use ostler_contract::points::{KeptSession, UsageEntry, UsageQuery};
use ostler_contract::{Thrown, json};
use ostler_plugin_postgres::Retention;

fn entry(pool: &str, number: usize) -> UsageEntry {
    serde_json::from_value(json!({
        "kind": "model", "at": "2026-01-01T00:00:00.000Z", "pools": [pool], "turn": number.to_string(),
    }))
    .unwrap()
}

fn session(id: &str, title: String) -> (String, KeptSession) {
    (id.to_owned(), KeptSession { uri: format!("echo:/{id}"), title, ..KeptSession::default() })
}

async fn save(stores: &Stores, id: &str, title: &str) -> Result<(), Thrown> {
    stores.sessions.set_config.unbounded(session(id, title.to_owned())).await
}

/// What a writer was told.
#[derive(Default)]
struct Told {
    pool: String,
    session: String,
    /// How many entries it recorded, or tried to.
    tried: usize,
    acknowledged: Vec<usize>,
    /// The last title that was acknowledged.
    title: usize,
}

/// Writers record usage, which would count twice if it were stored twice, and save sessions, while the server is killed and
/// started again. A restart may take longer than the lease; what fails then may be stored or not, but not twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn no_acknowledged_write_is_lost_or_stored_twice_when_the_server_restarts() {
    let server = Arc::new(Postgres::start());
    let stores = Stores::open(&server, "ostler").await;
    let (ends, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let (stores, ends, done) = (stores.clone(), ends.clone(), done.clone());
            tokio::spawn(async move {
                let mut told = Told {
                    pool: format!("user:w{writer}"),
                    session: format!("s{writer}"),
                    ..Told::default()
                };
                while !ends.load(Ordering::Relaxed) {
                    let number = told.tried;
                    told.tried += 1;
                    let recorded = stores.usage.record.unbounded((entry(&told.pool, number),)).await;
                    let saved = save(&stores, &told.session, &number.to_string()).await;
                    if recorded.is_ok() {
                        told.acknowledged.push(number);
                    }
                    match saved {
                        Ok(()) => {
                            told.title = number;
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                        // The database is unavailable.
                        Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                    }
                }
                told
            })
        })
        .collect();
    for _ in 0..4 {
        let before = done.load(Ordering::Relaxed);
        until("the writers write", async || done.load(Ordering::Relaxed) > before + 50).await;
        let server = server.clone();
        tokio::task::spawn_blocking(move || server.restart_immediately()).await.unwrap();
    }
    let before = done.load(Ordering::Relaxed);
    until("the writers write", async || done.load(Ordering::Relaxed) > before + 8).await;
    ends.store(true, Ordering::Relaxed);
    for writer in writers {
        let told = writer.await.unwrap();
        let query = UsageQuery { pool: Some(told.pool.clone()), ..UsageQuery::default() };
        let entries = stores.usage.records.unbounded((query,)).await.unwrap();
        let mut numbers: Vec<usize> =
            entries.iter().map(|entry| entry.turn.as_ref().unwrap().parse().unwrap()).collect();
        numbers.sort_unstable();
        let stored = numbers.len();
        numbers.dedup();
        assert_eq!(numbers.len(), stored, "{}: an entry is stored twice", told.pool);
        assert!(!told.acknowledged.is_empty() && numbers.last() < Some(&told.tried), "{numbers:?}");
        for number in &told.acknowledged {
            assert!(numbers.binary_search(number).is_ok(), "{}: entry {number} is lost", told.pool);
        }
        let kept = stores.sessions.config.unbounded((told.session.clone(),)).await.unwrap().unwrap();
        let title: usize = kept.title.parse().unwrap();
        assert!((told.title..told.tried).contains(&title), "{}: {title} after {}", told.session, told.title);
    }
    stores.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn without_the_database_calls_fail_in_time_and_work_again_afterwards() {
    let server = Postgres::start();
    let stores = Stores::open(&server, "ostler").await;
    save(&stores, "s", "before").await.unwrap();
    server.stop();
    let begun = Instant::now();
    let (written, read) =
        tokio::join!(save(&stores, "s", "during"), stores.sessions.config.unbounded(("s".into(),)));
    for refused in [written.unwrap_err(), read.unwrap_err()] {
        assert!(refused.message.contains("could not renew its lease for 6 seconds"), "{refused}");
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "the host waits 10 seconds for a store");
    // From now on they fail immediately.
    let begun = Instant::now();
    save(&stores, "s", "during").await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(1));
    server.start_again();
    until("the store works again", async || save(&stores, "s", "after").await.is_ok()).await;
    let kept = stores.sessions.config.unbounded(("s".into(),)).await.unwrap().unwrap();
    assert_eq!(kept.title, "after");
    stores.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn a_second_host_is_refused_while_the_first_runs_and_takes_over_when_its_lease_has_expired() {
    let server = Postgres::start();
    let first = Stores::open(&server, "ostler").await;
    save(&first, "s", "of the first").await.unwrap();
    let refused = applied(options(&server, "ostler"), Retention::default()).await.err().unwrap();
    assert!(refused.message.contains("another host uses the database: inn:/inn"), "{refused}");
    // The first does not notice.
    save(&first, "s", "still the first").await.unwrap();

    // It cannot renew any more, as a host that was stopped; its connections stay.
    server.psql(
        "ostler",
        "UPDATE ostler.host SET expires_at = clock_timestamp() - interval '1 second', incarnation = 'gone'",
    );
    let second = Stores::open(&server, "ostler").await;
    let refused = save(&first, "s", "zombie").await.unwrap_err();
    assert!(refused.message.contains("another host has taken over"), "{refused}");
    save(&second, "s", "of the second").await.unwrap();
    let kept = second.sessions.config.unbounded(("s".into(),)).await.unwrap().unwrap();
    assert_eq!(kept.title, "of the second");
    assert_eq!(
        server.psql("ostler", "SELECT epoch FROM ostler.session_heads"),
        "2",
        "a takeover is a new epoch"
    );
    until("the first stops reading too", async || {
        first
            .sessions
            .config
            .unbounded(("s".into(),))
            .await
            .is_err_and(|why| why.message.contains("taken over"))
    })
    .await;
    second.close().await;
    assert_eq!(
        server.psql("ostler", "SELECT count(*) FROM ostler.host"),
        "0",
        "a lease that is given up is gone"
    );
    Stores::open(&server, "ostler").await.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn an_append_checks_owner_epoch_and_position() {
    let server = Postgres::start();
    let stores = Stores::open(&server, "ostler").await;
    for change in ["epoch = epoch + 1", "head = head + 1", "owner = 'other'"] {
        save(&stores, "s", "before").await.unwrap();
        if change.starts_with("owner") {
            server.psql(
                "ostler",
                "INSERT INTO ostler.host (id, incarnation, expires_at) VALUES ('other', 'other', 'infinity')",
            );
        }
        server.psql("ostler", &format!("UPDATE ostler.session_heads SET {change} WHERE session = 's'"));
        let refused = save(&stores, "s", change).await.unwrap_err();
        assert!(refused.message.contains("session s is owned by another host"), "{change}: {refused}");
        let kept = stores.sessions.config.unbounded(("s".into(),)).await.unwrap().unwrap();
        assert_eq!(kept.title, "before", "{change}");
        // Another session is not affected.
        save(&stores, "free", change).await.unwrap();
    }
    save(&stores, "s", "owned by a host that lives").await.unwrap_err();
    server.psql("ostler", "DELETE FROM ostler.host WHERE id = 'other'");
    save(&stores, "s", "mine again").await.unwrap();
    stores.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn connections_that_are_cut_lose_nothing() {
    let server = Postgres::start();
    let stores = Stores::open(&server, "ostler").await;
    for number in 0..20 {
        stores.usage.record.unbounded((entry("user:ada", number),)).await.unwrap();
        if number % 3 == 0 {
            server.psql(
                "ostler",
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'ostler'",
            );
        }
        save(&stores, "s", &number.to_string()).await.unwrap();
        let kept = stores.sessions.config.unbounded(("s".into(),)).await.unwrap().unwrap();
        assert_eq!(kept.title, number.to_string());
    }
    let query = UsageQuery { pool: Some("user:ada".into()), ..UsageQuery::default() };
    assert_eq!(stores.usage.records.unbounded((query,)).await.unwrap().len(), 20);
    stores.close().await;
}
