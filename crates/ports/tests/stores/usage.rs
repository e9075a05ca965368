//! Use in the state database.

use std::sync::Arc;

use ostler_contract::points::{Usage, UsageEntry, UsageQuery};
use ostler_ports::conformance::usage_conformance;
use ostler_ports::{SqliteUsage, StateDb};
use proptest::prelude::*;

fn store(db: Arc<StateDb>) -> Usage {
    Arc::new(SqliteUsage::new(db, ostler_ports::Report::quiet())).into_point()
}

#[tokio::test]
async fn the_database_is_a_store_of_use() {
    let dir = tempfile::tempdir().unwrap();
    usage_conformance(store(StateDb::open(dir.path()).unwrap())).await;
    usage_conformance(store(StateDb::memory().unwrap())).await;
    let kept = store(StateDb::open(dir.path()).unwrap());
    assert_eq!(kept.pools.unbounded(()).await.unwrap().len(), 4, "it is there for the next start");
}

#[tokio::test]
async fn an_entry_without_an_instant_is_refused_and_instants_are_kept_in_utc() {
    let usage = store(StateDb::memory().unwrap());
    let refused = usage.record.unbounded((UsageEntry::default(),)).await.unwrap_err();
    assert_eq!(refused.message, "a usage entry requires a time");
    let soon = UsageEntry { at: Some("soon".into()), ..UsageEntry::default() };
    assert_eq!(
        usage.record.unbounded((soon,)).await.unwrap_err().message,
        "\"soon\" is not an ISO 8601 timestamp"
    );
    let entry = UsageEntry {
        at: Some("2026-01-01T01:00:00+02:00".into()),
        owner: Some("user:ada".into()),
        team: Some("web".into()),
        project: Some("shop".into()),
        ..UsageEntry::default()
    };
    usage.record.unbounded((entry,)).await.unwrap();
    assert_eq!(usage.pools.unbounded(()).await.unwrap(), ["project:web:shop", "team:web", "user:ada"]);
    let kept = usage.records.unbounded((UsageQuery::default(),)).await.unwrap();
    assert_eq!(kept[0].at.as_deref(), Some("2025-12-31T23:00:00.000Z"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// What is asked of the database is what adding the entries up comes to.
    #[test]
    fn totals_are_the_sum_of_their_entries(
        rows in prop::collection::vec((0_u8..28, 0_usize..3, 0_u64..1000, 0_u32..100), 0..30),
        from in 1_u8..28, days in 0_u8..28,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let usage = store(StateDb::memory().unwrap());
            for (day, pool, input, cents) in rows {
                let entry = ostler_contract::json!({
                    "kind": "model", "at": format!("2026-01-{:02}T00:00:00Z", day + 1), "pools": [format!("user:{pool}")],
                    "model": { "name": "m", "input": input }, "cost": { "amount": f64::from(cents), "currency": "USD" }
                });
                usage.record.unbounded((serde_json::from_value(entry).unwrap(),)).await.unwrap();
            }
            let query = UsageQuery {
                pool: Some("user:1".into()),
                from: Some(format!("2026-01-{from:02}T00:00:00Z")),
                until: Some(format!("2026-01-{:02}T00:00:00Z", (from + days).min(28))),
                limit: None,
            };
            let mut sum = ostler_contract::points::UsageTotal::default();
            usage.records.unbounded((query.clone(),)).await.unwrap().iter().for_each(|entry| sum.add(entry));
            assert_eq!(usage.total.unbounded((query,)).await.unwrap(), sum);
        });
    }
}
