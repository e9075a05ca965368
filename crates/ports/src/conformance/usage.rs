use ostler_contract::json;
use ostler_contract::points::{Usage, UsageEntry, UsageQuery, UsageTotal};

fn entry(at: &str, pools: &[&str], input: u64, usd: f64) -> UsageEntry {
    let entry = json!({
        "kind": "model", "at": at, "pools": pools, "session": "echo:/1", "note": { "kept": true },
        "model": { "name": "a/b", "input": input, "output": 2, "cache": { "read": 1 } },
        "cost": { "amount": usd, "currency": "USD", "input": 0.25 }
    });
    serde_json::from_value(entry).unwrap()
}

/// Tests a usage store, which is empty at the start.
pub async fn usage_conformance(usage: Usage) {
    let records = async |query: UsageQuery| usage.records.unbounded((query,)).await.unwrap();
    let total = async |query: UsageQuery| usage.total.unbounded((query,)).await.unwrap();
    let of = |pool: &str| UsageQuery { pool: Some(pool.into()), ..UsageQuery::default() };
    assert_eq!(usage.pools.unbounded(()).await, Ok(vec![]));
    assert_eq!(records(UsageQuery::default()).await, []);
    assert_eq!(total(of("user:ada")).await, UsageTotal::default(), "what was not charged is no measure");

    let days = ["2026-01-01T10:00:00.000Z", "2026-01-02T10:00:00.000Z", "2026-01-03T10:00:00.000Z"];
    let first = entry(days[0], &["user:ada", "team:web"], 10, 0.5);
    let second = entry(days[1], &["user:ben", "team:web"], 20, 0.75);
    let third = entry(days[2], &["user:ada"], 40, 1.0);
    // Not in chronological order.
    for entry in [&second, &first, &third] {
        usage.record.unbounded((entry.clone(),)).await.unwrap();
    }
    let machine = json!({ "kind": "computer", "at": days[2], "pools": ["user:ada"], "computer": "box", "seconds": 1.5,
        "cost": { "amount": 3, "currency": "EUR" } });
    let machine: UsageEntry = serde_json::from_value(machine).unwrap();
    usage.record.unbounded((machine.clone(),)).await.unwrap();

    let mut pools = usage.pools.unbounded(()).await.unwrap();
    pools.sort();
    assert_eq!(pools, ["team:web", "user:ada", "user:ben"]);
    assert_eq!(
        records(of("team:web")).await,
        [second.clone(), first.clone()],
        "newest first, as they were written"
    );
    assert_eq!(records(of("nobody")).await, []);
    let limited = UsageQuery { limit: Some(2), ..of("user:ada") };
    assert_eq!(records(limited).await, [machine, third]);
    let second_day =
        UsageQuery { from: Some(days[1].into()), until: Some(days[2].into()), ..UsageQuery::default() };
    assert_eq!(records(second_day.clone()).await, [second], "from an instant on, before another");

    let asked = total(of("user:ada")).await;
    let expected = UsageTotal {
        usd: Some(1.5),
        input_usd: Some(0.5),
        output_usd: None,
        tokens: Some(56),
        input: Some(50),
        output: Some(4),
        cache_read: Some(2),
        cache_write: None,
        calls: Some(2),
        seconds: Some(1.5),
    };
    assert_eq!(asked, expected);
    let asked = total(UsageQuery { pool: Some("team:web".into()), ..second_day }).await;
    assert_eq!((asked.usd, asked.tokens, asked.calls), (Some(0.75), Some(23), Some(1)));

    let both = tokio::join!(
        usage.record.unbounded((entry(days[0], &["root:inn"], 1, 1.0),)),
        usage.record.unbounded((entry(days[0], &["root:inn"], 1, 1.0),))
    );
    assert_eq!(both, (Ok(()), Ok(())));
    assert_eq!(total(of("root:inn")).await.calls, Some(2), "one write undid the other");
}
