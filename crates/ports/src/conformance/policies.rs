use ostler_contract::points::Policies;
use ostler_contract::{JsonObject, json};

fn row(id: &str, effect: &str) -> JsonObject {
    let row = json!({ "id": id, "scope": "all", "kind": "agent", "effect": effect, "match": { "agent": ["echo"] } });
    row.as_object().cloned().unwrap()
}

/// Tests a policy store, which is empty at the start.
pub async fn policies_conformance(policies: Policies) {
    let ids = async || -> Vec<String> {
        let rows = policies.list.unbounded(()).await.unwrap();
        rows.iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids().await, [""; 0]);
    assert_eq!(policies.get.unbounded(("a".into(),)).await, Ok(None));
    assert_eq!(policies.remove.unbounded(("a".into(),)).await, Ok(false));
    for id in ["b", "a", "c"] {
        policies.put.unbounded((row(id, "allow"),)).await.unwrap();
    }
    policies.put.unbounded((row("b", "deny"),)).await.unwrap();
    assert_eq!(ids().await, ["b", "a", "c"], "a row put again keeps its place");
    assert_eq!(policies.get.unbounded(("b".into(),)).await, Ok(Some(row("b", "deny"))));
    let refused = policies.put.unbounded((row("d", "maybe"),)).await.unwrap_err();
    assert_eq!(refused.rpc.map(|rpc| rpc.code), Some(-32602));
    assert_eq!(refused.message, "effect must be one of allow, deny");
    assert_eq!(policies.remove.unbounded(("a".into(),)).await, Ok(true));
    assert_eq!(policies.remove.unbounded(("a".into(),)).await, Ok(false));
    assert_eq!(ids().await, ["b", "c"]);
    let both = tokio::join!(
        policies.put.unbounded((row("e", "allow"),)),
        policies.put.unbounded((row("f", "allow"),))
    );
    assert_eq!(both, (Ok(()), Ok(())));
    assert_eq!(ids().await.len(), 4, "one write undid the other");
}
