//! What writes and reads of a session take in PostgreSQL and in SQLite, on the same disk. For figures:
//! `OSTLER_MEASURE=2000 .ci/postgres cargo test --release -p ostler-plugin-postgres --test figures -- --ignored --nocapture`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_contract::points::{KeptSession, SessionStore};
use ostler_ports::{SqliteSessions, StateDb};
use support::Stores;
use support::server::Postgres;

/// How many write at the same time.
const LANES: usize = 64;

fn many() -> usize {
    std::env::var("OSTLER_MEASURE").ok().and_then(|many| many.parse().ok()).unwrap_or(200)
}

async fn save(store: &SessionStore, number: usize) {
    let id = format!("s{number}");
    let kept =
        KeptSession { uri: format!("echo:/{id}"), title: "Oats ".repeat(40), ..KeptSession::default() };
    store.set_config.unbounded((id, kept)).await.unwrap();
}

/// The middle of what `times` calls take, one after the other.
async fn median(times: usize, mut call: impl AsyncFnMut(usize)) -> Duration {
    let mut took = Vec::with_capacity(times);
    for number in 0..times {
        let begun = Instant::now();
        call(number).await;
        took.push(begun.elapsed());
    }
    took.sort_unstable();
    took[times / 2]
}

struct Figures {
    create: Duration,
    save: Duration,
    read: Duration,
    rate: f64,
}

async fn measure(store: &SessionStore) -> Figures {
    let times = many();
    let create = median(times, async |number| save(store, number).await).await;
    let again = median(times, async |number| save(store, number).await).await;
    let read = median(times, async |number| {
        store.config.unbounded((format!("s{number}"),)).await.unwrap().unwrap();
    })
    .await;
    let begun = Instant::now();
    let lanes = (0..LANES).map(|lane| {
        let store = store.clone();
        tokio::spawn(async move {
            for number in 0..times / 4 {
                save(&store, lane * 1_000_000 + number).await;
            }
        })
    });
    for lane in lanes.collect::<Vec<_>>() {
        lane.await.unwrap();
    }
    let rate = (LANES * (times / 4)) as f64 / begun.elapsed().as_secs_f64();
    Figures { create, save: again, read, rate }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn sessions_in_postgresql_and_in_sqlite() {
    let server = Postgres::start();
    let stores = Stores::open(&server, "ostler").await;
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    let sqlite =
        Arc::new(SqliteSessions::new(StateDb::open(folder.path()).unwrap(), ostler_ports::Report::quiet()))
            .into_point();
    for (name, store) in [("SQLite", &sqlite), ("PostgreSQL", &stores.sessions)] {
        let Figures { create, save, read, rate } = measure(store).await;
        println!(
            "{name}: new session {create:?}, write {save:?}, read {read:?}, {rate:.0} writes/s of {LANES} at once"
        );
    }
    stores.close().await;
}
