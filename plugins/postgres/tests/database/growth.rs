//! How large the tables become: the rows that hosts write for many calls, written by the test, and what is left of them while hosts
//! run. `.ci/postgres` runs this with few calls, `cargo xtask verify --long growth` with ten million.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ostler_contract::points::UsageEntry;
use ostler_plugin_postgres::{Retention, pruning};

use crate::support::calls::Joined;
use crate::support::server::Postgres;
use crate::support::{Stores, applied_to, options_of_member};

/// The automations that are called.
const AUTOMATIONS: usize = 20;
/// How many runs of each are retained.
const RETAINED: usize = 250;
/// The tables that calls write, and what each may take with its indexes: so many times what the rows of one round and those that are
/// retained take in a new table. Hosts write most of them twice.
const TABLES: [(&str, f64); 5] = [
    ("automation_wakes", 4.0),
    ("automation_runs", 4.0),
    ("automation_run_words", 4.0),
    ("changes", 4.0),
    ("records", 4.0),
];
/// How many pages a query of a host may look at while nothing waits for it, whatever the tables contain.
const MOST_PAGES: u64 = 400;
/// How long a write of another caller may take while rows are written and removed. A statement fails after eight seconds.
const MOST_WAIT: Duration = Duration::from_secs(5);

fn calls() -> usize {
    std::env::var("OSTLER_GROWTH_CALLS").ok().and_then(|calls| calls.parse().ok()).unwrap_or(20_000)
}

/// The calls are written in so many rounds. Each is removed before the next one, as if half a minute had passed.
fn rounds() -> usize {
    (calls() / 500_000).clamp(4, 20)
}

fn number(server: &Postgres, sql: &str) -> u64 {
    server.psql("ostler", &format!("SET search_path = ostler; {sql}")).parse().unwrap()
}

fn execute(server: &Postgres, statement: &str) {
    // Rows of `changes` are written here too. Otherwise each row of `records` adds one.
    let settings = "SET search_path = ostler; SET session_replication_role = replica";
    server.psql("ostler", &format!("{settings}; {statement}"));
}

/// What `count` calls leave that were made three hours ago, with every version of a row that a host writes.
fn write_calls(server: &Postgres, count: usize) {
    let run =
        "'{\"resource\":\"ahp-automation-run:/' || n || '\",\"origin\":\"' || repeat('oats ', 40) || '\"}'";
    let automation = format!("'a' || n % {AUTOMATIONS}");
    let of_calls = format!("FROM generate_series(1, {count}) AS n");
    let runs = [
        format!(
            "INSERT INTO automation_runs (uri, automation, cause, ended, bytes, run, state, accepted_at, owner)
                 SELECT 'ahp-automation-run:/' || gen_random_uuid(), {automation}, 'webhook:in:' || gen_random_uuid(),
                     false, 500, {run}, 'running', '2026-01-01T00:00:00.000Z', 'host' {of_calls}"
        ),
        "UPDATE automation_runs SET ended = true, ended_at = '2026-01-01T00:00:00.000Z', state = 'completed'
             WHERE NOT ended"
            .to_owned(),
        "INSERT INTO automation_run_words (number, words)
             SELECT number, to_tsvector('simple', uri || ' ' || automation) FROM automation_runs
             ON CONFLICT DO NOTHING"
            .to_owned(),
    ];
    let log = [
        format!(
            "INSERT INTO automation_wakes (uri, automation, cause, kind, run, at)
                 SELECT 'ahp-automation-run:/' || gen_random_uuid(), {automation}, 'webhook:in:' || gen_random_uuid(),
                     '\"event\"', {run}, now() - interval '3 hours' {of_calls}"
        ),
        "UPDATE automation_wakes SET done = true, run = 'null', outcome = uri WHERE NOT done".to_owned(),
        // A row of the log, its replacement after the answer, and the change of the run and of its session.
        format!(
            "INSERT INTO changes (kind, collection, id, operation, origin, at)
                 SELECT CASE of WHEN 1 THEN 'run' WHEN 2 THEN 'session' ELSE 'record' END, 'webhook-deliveries', 'd-' || n,
                     'update', 'host', now() - interval '11 minutes'
                 {of_calls}, generate_series(1, 4) AS of"
        ),
        format!(
            "INSERT INTO records (collection, id, record, digest, fields)
                 SELECT 'webhook-deliveries', 'd-' || gen_random_uuid(), {run}, sha256(n::text::bytea),
                     ARRAY[1, 2, 3, 4, hashint8extended(n, 1), hashint8extended(n, 2), hashint8extended(n, 3)]
                 {of_calls}"
        ),
        "UPDATE records SET digest = sha256(id::bytea), fields = fields || 5 WHERE NOT fields @> '{5}'".to_owned(),
    ];
    std::thread::scope(|scope| {
        scope.spawn(|| runs.iter().for_each(|sql| execute(server, sql)));
        log.iter().for_each(|sql| execute(server, sql));
    });
}

/// Removes what the plugin of webhooks does not retain of an endpoint, as it does while calls come.
fn forget_calls(server: &Postgres) {
    execute(
        server,
        "DELETE FROM records WHERE collection = 'webhook-deliveries' AND id NOT IN (
             SELECT id FROM records WHERE collection = 'webhook-deliveries' LIMIT 50
         )",
    );
}

/// The size of a table with its indexes.
fn size(server: &Postgres, table: &str) -> u64 {
    number(server, &format!("SELECT pg_total_relation_size('{table}')"))
}

/// The size that a new table with the same rows has.
fn size_when_new(server: &Postgres, table: &str) -> u64 {
    execute(server, &format!("CREATE TABLE copied (LIKE {table} INCLUDING ALL)"));
    execute(server, &format!("INSERT INTO copied OVERRIDING SYSTEM VALUE SELECT * FROM {table}"));
    let new = size(server, "copied");
    execute(server, "DROP TABLE copied");
    new
}

/// How many pages a statement looks at, without those of its preparation.
fn pages(server: &Postgres, sql: &str) -> u64 {
    let twice = format!("SET search_path = ostler; {sql}; EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) {sql}");
    let plan = server.psql("ostler", &twice);
    let line = plan.lines().find(|line| line.trim_start().starts_with("Buffers: shared")).unwrap_or_default();
    line.split([' ', '=']).filter_map(|word| word.parse::<u64>().ok()).sum()
}

/// Waits until something is as it should be, for longer than other tests: the tables can be large.
async fn until(what: &str, wanted: &str, mut found: impl FnMut() -> String) {
    let end = Instant::now() + Duration::from_secs(60 + calls() as u64 / 10_000);
    loop {
        let found = found();
        if found == wanted {
            return;
        }
        assert!(Instant::now() < end, "{what}: {wanted} and not {found}");
        // Another process changes the tables.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until at most 2 % of the rows of a table are dead.
async fn vacuumed(server: &Postgres, table: &str) {
    let most = 1000 + number(server, &format!("SELECT count(*) FROM {table}")) / 50;
    let sql = format!("SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = '{table}'");
    let what = format!("dead rows of {table}");
    let allowed = format!("at most {most}");
    until(&what, &allowed, || match number(server, &sql) {
        dead if dead <= most => allowed.clone(),
        dead => dead.to_string(),
    })
    .await;
}

async fn host(server: &Postgres, id: &str) -> (Arc<Joined>, Stores) {
    let joined = Arc::new(Joined::default());
    let retention = Retention { count: RETAINED as u32, ..Retention::default() };
    let stores = applied_to(joined.clone(), options_of_member(server, id), retention).await.unwrap();
    (joined, stores)
}

/// Writes usage, one entry after the other; returns how long the slowest write took.
async fn write_usage(stores: Stores, ends: Arc<AtomicBool>) -> Duration {
    let mut slowest = Duration::ZERO;
    while !ends.load(Ordering::Acquire) {
        let entry = UsageEntry { at: Some("2026-01-01T00:00:00Z".to_owned()), ..UsageEntry::default() };
        let begun = Instant::now();
        stores.usage.record.unbounded((entry,)).await.unwrap();
        slowest = slowest.max(begun.elapsed());
        // Other callers come now and then.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    slowest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn tables_are_bounded_by_what_is_retained_and_removal_delays_no_one() {
    let server = Arc::new(Postgres::start());
    // Rounds follow each other faster than calls do, and vacuuming as well. Nothing is measured that a disk decides.
    for setting in [
        "autovacuum_naptime = '1s'",
        "shared_buffers = '256MB'",
        "maintenance_work_mem = '256MB'",
        "max_wal_size = '1GB'",
        "fsync = off",
        "full_page_writes = off",
    ] {
        server.psql("postgres", &format!("ALTER SYSTEM SET {setting}"));
    }
    server.restart_immediately();
    host(&server, "first").await.1.close().await;
    // What the last two hours have left.
    let (per_round, living) = (calls() / rounds(), (calls() / 20).max(20_000));
    let wakes = format!(
        "INSERT INTO automation_wakes (uri, automation, cause, kind, run, done, outcome)
             SELECT gen_random_uuid(), 'a' || n % {AUTOMATIONS}, gen_random_uuid(), '\"event\"', 'null', true, gen_random_uuid()
             FROM generate_series(1, {living}) AS n"
    );
    execute(&server, &wakes);
    let of_runs = AUTOMATIONS * RETAINED;
    write_calls(&server, of_runs);
    // Before a host removes any of them.
    write_calls(&server, per_round);
    let new = TABLES.map(|(table, _)| size_when_new(&server, table) as f64);
    forget_calls(&server);
    let (joined, stores) = host(&server, "writes").await;
    let ends = Arc::new(AtomicBool::new(false));
    let writing = tokio::spawn(write_usage(stores.clone(), ends.clone()));
    let mut largest = [0.0_f64; TABLES.len()];
    for round in 0..rounds() {
        if round > 0 {
            write_calls(&server, per_round);
            forget_calls(&server);
        }
        // A host that starts removes at once what others remove within half a minute.
        let begun = Instant::now();
        let (_, starts) = host(&server, "starts").await;
        let retained = format!("{of_runs}|{living}|0");
        until("only what is retained is left", &retained, || {
            server.psql(
                "ostler",
                "SELECT (SELECT count(*) FROM ostler.automation_runs), (SELECT count(*) FROM ostler.automation_wakes),
                     (SELECT count(*) FROM ostler.changes WHERE at < now() - interval '10 minutes')",
            )
        })
        .await;
        starts.close().await;
        let sizes = TABLES.map(|(table, _)| size(&server, table) as f64);
        println!("round {round}: removed in {:?}; sizes {sizes:?}", begun.elapsed());
        for at in 0..TABLES.len() {
            largest[at] = largest[at].max(sizes[at] / new[at]);
        }
        for (table, _) in TABLES {
            vacuumed(&server, table).await;
        }
    }
    let mut report = String::new();
    for ((table, _), times) in TABLES.iter().zip(largest) {
        let _ = write!(report, "{table} took {times:.1} times its rows at most, ");
    }
    for ((table, most), times) in TABLES.iter().zip(largest) {
        assert!(times <= *most, "{table}: {report}");
    }

    // A small part of a table is vacuumed too, because queries for work pass its dead rows.
    let some = living as u64 / 20;
    server.psql("ostler", "VACUUM ostler.automation_wakes");
    let updated = "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'automation_wakes'";
    let before = number(&server, updated);
    execute(
        &server,
        &format!(
            "UPDATE automation_wakes SET done = false
                 WHERE number IN (SELECT number FROM automation_wakes LIMIT {some})"
        ),
    );
    execute(&server, "UPDATE automation_wakes SET done = true WHERE NOT done");
    let all = (before + 2 * some).to_string();
    until("the updates are counted", &all, || number(&server, updated).to_string()).await;
    vacuumed(&server, "automation_wakes").await;
    let changes = format!(
        "INSERT INTO changes (kind, id, operation, origin) SELECT 'run', 'r', 'update', '' FROM generate_series(1, {living})"
    );
    execute(&server, &changes);
    // As autovacuum does, at a time when as many wakes wait as usual.
    execute(&server, "ANALYZE");
    report.push_str("pages for queries:");
    for sql in [
        "SELECT unowned_automations('host')".to_owned(),
        pruning::CHANGES.replace("$1", "1000").replace("$2", "'0'").replace("$3", "0"),
        pruning::WAKES.replace("$1", "1000").replace("$2", "'-infinity'"),
        pruning::EXCESS.replace("$1::text[]", "ARRAY['a1']").replace("$2", &RETAINED.to_string()),
    ] {
        let pages = pages(&server, &sql);
        let _ = write!(report, " {pages},");
        assert!((1..=MOST_PAGES).contains(&pages), "{sql}: {report}");
    }
    ends.store(true, Ordering::Release);
    let slowest = writing.await.unwrap();
    let _ = write!(report, " the slowest write of others {} ms", slowest.as_millis());
    println!("growth: {} calls; {report}", calls());
    assert!(slowest < MOST_WAIT, "{report}");
    let lines = joined.lines.lock().unwrap().join("\n");
    assert!(!lines.contains("lease") && !lines.contains("removed"), "{lines}");
    stores.close().await;
}

/// An index of words or of values retains each one that it ever had, whatever is removed and vacuumed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn an_index_with_the_values_of_removed_rows_is_rebuilt() {
    let server = Postgres::start();
    host(&server, "first").await.1.close().await;
    let values = (1..=16).map(|at| format!("hashint8extended(n, {at})")).collect::<Vec<_>>().join(", ");
    execute(
        &server,
        &format!(
            "INSERT INTO records (collection, id, record, fields)
                 SELECT 'notes', 'n' || n, '{{}}', ARRAY[{values}] FROM generate_series(1, 60000) AS n"
        ),
    );
    execute(&server, "DELETE FROM records WHERE collection = 'notes' AND id <> 'n7'");
    server.psql("ostler", "VACUUM ostler.records");
    let size = || number(&server, "SELECT pg_relation_size('records_by_field')");
    let before = size();
    assert!(before > 16 << 20, "{before} bytes");
    let (joined, stores) = host(&server, "first").await;
    until("the index is small", "true", || (size() < 1 << 20).to_string()).await;
    let found = "SELECT id FROM records WHERE fields @> ARRAY[hashint8extended(7, 3)]";
    assert_eq!(server.psql("ostler", &format!("SET search_path = ostler; {found}")), "n7");
    let indexes =
        "SELECT count(*) FROM pg_indexes WHERE schemaname = 'ostler' AND indexname LIKE 'records_by_field%'";
    until("only the new index is left", "1", || server.psql("ostler", indexes)).await;
    assert_eq!(joined.lines.lock().unwrap().join("\n"), "");
    stores.close().await;
}
