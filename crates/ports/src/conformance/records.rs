use ostler_contract::points::{ChangeType, CollectionOptions, RecordChange, RecordStore, StoredCollection};
use ostler_contract::{HostFunction, JsonObject, Value, json};

use super::Heard;

/// The numbers that a store can represent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbers {
    /// All numbers of JSON.
    Exact,
    /// Numbers of JavaScript: integers beyond 2^53 are rounded.
    Doubles,
}

/// Tests a record store, which is empty at the start.
pub async fn records_conformance(store: RecordStore, numbers: Numbers) {
    records_conformance_of(store, numbers, None).await;
}

/// Tests the uncached collections of a record store.
pub async fn uncached_records_conformance(store: RecordStore, numbers: Numbers) {
    records_conformance_of(store, numbers, Some(true)).await;
}

async fn records_conformance_of(store: RecordStore, numbers: Numbers, uncached: Option<bool>) {
    let open = |name: &'static str, body: Option<&'static str>| {
        let options = CollectionOptions { body: body.map(str::to_owned), uncached };
        let opened = store.collection.unbounded((name.into(), options));
        async move { opened.await.unwrap() }
    };
    keeps_and_forgets(&open("conform-keep", None).await).await;
    finds(&open("conform-find", None).await).await;
    refuses_ids(&open("conform-ids", None).await).await;
    keeps_a_body(&open("conform-body", Some("text")).await).await;
    keeps_any_value(&open("conform-values", None).await, numbers).await;
    tells_watchers(&open("conform-watch", None).await).await;
    keeps_order(&open("conform-order", None).await).await;

    let other = open("conform-other", None).await;
    assert_eq!(other.list.unbounded(()).await, Ok(vec![]), "collections are apart");
    put(&other, json!({ "id": "a", "n": 1 })).await;
    if let Some(ids) = &other.ids {
        assert_eq!(ids.unbounded(()).await, Ok(vec!["a".to_owned()]));
    }
    let again = open("conform-other", None).await;
    assert_eq!(ids(again.list.unbounded(()).await.unwrap()), ["a"], "a collection opened again is the same");
}

fn record(value: Value) -> JsonObject {
    match value {
        Value::Object(record) => record,
        other => panic!("no record: {other}"),
    }
}

async fn put(collection: &StoredCollection, value: Value) {
    collection.put.unbounded((record(value),)).await.unwrap();
}

async fn get(collection: &StoredCollection, id: &str) -> Option<Value> {
    collection.get.unbounded((id.into(),)).await.unwrap().map(Value::Object)
}

fn ids(records: Vec<JsonObject>) -> Vec<String> {
    let mut ids: Vec<_> = records.iter().map(|record| record["id"].as_str().unwrap().to_owned()).collect();
    ids.sort();
    ids
}

async fn keeps_and_forgets(collection: &StoredCollection) {
    assert_eq!(get(collection, "a").await, None);
    assert_eq!(collection.list.unbounded(()).await, Ok(vec![]));
    assert_eq!(collection.remove.unbounded(("a".into(),)).await, Ok(false));

    put(collection, json!({ "id": "a", "n": 1, "old": true })).await;
    put(collection, json!({ "id": "b", "n": 2 })).await;
    assert_eq!(get(collection, "a").await, Some(json!({ "id": "a", "n": 1, "old": true })));
    assert_eq!(ids(collection.list.unbounded(()).await.unwrap()), ["a", "b"]);
    put(collection, json!({ "id": "a", "n": 3 })).await;
    assert_eq!(get(collection, "a").await, Some(json!({ "id": "a", "n": 3 })), "put replaces");

    assert_eq!(collection.remove.unbounded(("a".into(),)).await, Ok(true));
    assert_eq!(collection.remove.unbounded(("a".into(),)).await, Ok(false));
    assert_eq!(get(collection, "a").await, None);
    assert_eq!(ids(collection.list.unbounded(()).await.unwrap()), ["b"]);
}

async fn finds(collection: &StoredCollection) {
    put(collection, json!({ "id": "a", "kind": "x", "n": 1, "tags": ["p", "q"], "at": { "k": null } })).await;
    put(collection, json!({ "id": "b", "kind": "x", "n": 2, "tags": [], "none": null })).await;
    put(collection, json!({ "id": "c", "kind": "y", "n": 1 })).await;
    let find = async |wanted: Value| ids(collection.find.unbounded((record(wanted),)).await.unwrap());

    // Twice, because a store can answer differently once it has an index.
    for _ in 0..2 {
        assert_eq!(find(json!({})).await, ["a", "b", "c"]);
        assert_eq!(find(json!({ "kind": "x" })).await, ["a", "b"]);
        assert_eq!(find(json!({ "kind": "x", "n": 1 })).await, ["a"]);
        assert_eq!(find(json!({ "n": 1.0 })).await, ["a", "c"]);
        assert_eq!(find(json!({ "n": "1" })).await, [""; 0]);
        assert_eq!(find(json!({ "tags": ["p", "q"] })).await, ["a"]);
        assert_eq!(find(json!({ "tags": ["q", "p"] })).await, [""; 0]);
        assert_eq!(find(json!({ "at": { "k": null } })).await, ["a"]);
        assert_eq!(find(json!({ "at": {} })).await, [""; 0]);
        assert_eq!(find(json!({ "none": null })).await, ["b"], "a field that is not there is not null");
        assert_eq!(find(json!({ "id": "c" })).await, ["c"]);
        assert_eq!(find(json!({ "kind": "x", "nothing": 1 })).await, [""; 0]);
    }
    put(collection, json!({ "id": "c", "kind": "x", "n": 1 })).await;
    collection.remove.unbounded(("a".into(),)).await.unwrap();
    assert_eq!(find(json!({ "kind": "x" })).await, ["b", "c"], "what is found follows what is kept");
    assert_eq!(find(json!({ "kind": "y" })).await, [""; 0]);
}

async fn refuses_ids(collection: &StoredCollection) {
    let bad = [
        json!("A"),
        json!("1a"),
        json!(""),
        json!("a/b"),
        json!("../a"),
        json!("a.b"),
        json!("a".repeat(41)),
    ];
    for id in bad.into_iter().chain([json!(1), json!(null)]) {
        let refused = collection.put.unbounded((record(json!({ "id": id })),)).await;
        assert!(refused.is_err(), "{id} is no id");
    }
    assert!(collection.put.unbounded((JsonObject::new(),)).await.is_err());
    assert_eq!(collection.list.unbounded(()).await, Ok(vec![]));
    assert_eq!(collection.remove.unbounded(("../a".into(),)).await, Ok(false));
    assert_eq!(get(collection, "../a").await, None);
    put(collection, json!({ "id": "a-1" })).await;
    put(collection, json!({ "id": "a".repeat(40) })).await;
    assert_eq!(collection.list.unbounded(()).await.unwrap().len(), 2);
}

async fn keeps_a_body(collection: &StoredCollection) {
    for text in ["", "one line", "\n\n---\nid: b\n---\r\n# Title\n\n", "trailing \n\n", "---"] {
        put(collection, json!({ "id": "a", "text": text, "n": 1 })).await;
        assert_eq!(get(collection, "a").await, Some(json!({ "id": "a", "text": text, "n": 1 })));
    }
    put(collection, json!({ "id": "a", "n": 1 })).await;
    assert_eq!(
        get(collection, "a").await,
        Some(json!({ "id": "a", "n": 1, "text": "" })),
        "no body reads as empty"
    );
    assert!(collection.put.unbounded((record(json!({ "id": "b", "text": 1 })),)).await.is_err());
    let found = collection.find.unbounded((record(json!({ "text": "" })),)).await.unwrap();
    assert_eq!(ids(found), ["a"]);
}

async fn keeps_any_value(collection: &StoredCollection, numbers: Numbers) {
    let mut value = json!({
        "id": "a", "text": "null", "yes": "yes", "when": "2026-01-01", "space": " x ", "lines": "a\nb\n", "odd": "\u{0}\u{85}😀",
        "int": -9_223_372_036_854_775_807_i64, "large": 18_446_744_073_709_551_615_u64, "float": 0.1, "small": 5e-324,
        "nothing": null, "no": false, "list": [[], {}, [null]], "map": { "": "", "a: b": { "<<": [1] } }, "true": 1,
    });
    if numbers == Numbers::Doubles {
        value["int"] = json!(-9_007_199_254_740_991_i64);
        value["large"] = json!(9_007_199_254_740_991_u64);
    }
    put(collection, value.clone()).await;
    assert_eq!(get(collection, "a").await, Some(value));
}

async fn tells_watchers(collection: &StoredCollection) {
    let change = |id: &str, how| RecordChange { id: id.into(), r#type: how };
    let (first, second) = (Heard::default(), Heard::default());
    let stop = collection.watch.unbounded((first.listener(),)).await.unwrap();
    collection.watch.unbounded((second.listener(),)).await.unwrap();
    collection.watch.unbounded((HostFunction::now(|_| Err("watchers may throw".into())),)).await.unwrap();

    put(collection, json!({ "id": "a", "n": 1 })).await;
    assert_eq!(first.next().await, change("a", ChangeType::Added));
    // Storing an equal record is not a change.
    put(collection, json!({ "n": 1, "id": "a" })).await;
    put(collection, json!({ "id": "a", "n": 2 })).await;
    assert_eq!(first.next().await, change("a", ChangeType::Updated));
    collection.remove.unbounded(("a".into(),)).await.unwrap();
    assert_eq!(first.next().await, change("a", ChangeType::Deleted));
    collection.remove.unbounded(("a".into(),)).await.unwrap();
    put(collection, json!({ "id": "b" })).await;
    assert_eq!(first.next().await, change("b", ChangeType::Added));

    stop.unwrap().unbounded(()).await.unwrap();
    put(collection, json!({ "id": "c" })).await;
    let all = [
        ("a", ChangeType::Added),
        ("a", ChangeType::Updated),
        ("a", ChangeType::Deleted),
        ("b", ChangeType::Added),
        ("c", ChangeType::Added),
    ];
    for (id, how) in all {
        assert_eq!(second.next().await, change(id, how));
    }
    assert_eq!(first.unheard(), [], "a watcher that was stopped is still told");
}

async fn keeps_order(collection: &StoredCollection) {
    let heard = Heard::default();
    collection.watch.unbounded((heard.listener(),)).await.unwrap();
    let mut calls = Vec::new();
    for n in 0..50 {
        calls.push(collection.put.unbounded((record(json!({ "id": "a", "n": n })),)));
        calls.push(collection.put.unbounded((record(json!({ "id": format!("b{n}"), "n": n })),)));
    }
    // Awaited in reverse: calls are ordered by when they are made.
    while let Some(call) = calls.pop() {
        call.await.unwrap();
    }
    assert_eq!(get(collection, "a").await, Some(json!({ "id": "a", "n": 49 })));
    assert_eq!(collection.list.unbounded(()).await.unwrap().len(), 51);
    let mut of_a = Vec::new();
    for _ in 0..100 {
        let change = heard.next().await;
        if change.id == "a" {
            of_a.push(change.r#type);
        }
    }
    assert_eq!(of_a[0], ChangeType::Added);
    assert!(of_a.len() == 50 && of_a[1..].iter().all(|how| *how == ChangeType::Updated), "{of_a:?}");
}
