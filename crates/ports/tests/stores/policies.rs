//! The policies of a configuration folder.

use std::sync::Arc;

use ostler_contract::{Value, json};
use ostler_ports::FilePolicies;
use ostler_ports::conformance::policies_conformance;

#[tokio::test]
async fn the_file_is_a_policy_store() {
    let dir = tempfile::tempdir().unwrap();
    policies_conformance(Arc::new(FilePolicies::new(dir.path())).into_point()).await;
}

#[tokio::test]
async fn the_file_is_edited_by_hand_and_never_written_over_where_it_does_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("policies.json");
    let policies = Arc::new(FilePolicies::new(dir.path())).into_point();
    let row = json!({ "id": "a", "scope": "all", "kind": "agent", "effect": "allow", "until": "2026-01-31" });
    std::fs::write(&file, json!([row]).to_string()).unwrap();
    let read = policies.get.unbounded(("a".into(),)).await.unwrap().unwrap();
    assert_eq!(read["until"], "2026-01-31T23:59:59.999Z");
    for (broken, sentence) in [
        ("{", "policies.json is not JSON"),
        ("{}", "policies.json must be a JSON array of policies"),
        (r#"[{ "id": "a", "scope": "some" }]"#, "policies.json: [0]: scope must be all"),
    ] {
        std::fs::write(&file, broken).unwrap();
        let why = policies.list.unbounded(()).await.unwrap_err().message;
        assert!(why.contains(sentence), "{why}");
        let Value::Object(row) = row.clone() else { panic!("a row") };
        policies.put.unbounded((row,)).await.unwrap_err();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), broken);
    }
}
