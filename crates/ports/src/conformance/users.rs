use std::sync::Arc;

use ostler_contract::users::{EditUsers, UsersStore};
use ostler_contract::{Thrown, Value, json};

/// How many changes each of both makes at the same time as the other.
const AT_ONCE: usize = 8;

/// A change that adds a user.
fn add(id: String) -> EditUsers {
    Arc::new(move |text| {
        let mut file: Value =
            text.map_or_else(|| json!({ "users": [] }), |text| serde_json::from_str(text).unwrap());
        file["users"].as_array_mut().unwrap().push(json!({ "id": id }));
        Ok(Some(file.to_string()))
    })
}

fn ids(text: Option<String>) -> Vec<String> {
    let file: Value = serde_json::from_str(&text.expect("there are users")).unwrap();
    let users = file["users"].as_array().unwrap().iter();
    users.map(|user| user["id"].as_str().unwrap().to_owned()).collect()
}

/// Tests two writers of one store of the users file, which is empty at the start.
pub async fn users_conformance(one: Arc<dyn UsersStore>, other: Arc<dyn UsersStore>) {
    assert!(!one.place().is_empty());
    assert_eq!(one.read().await, Ok(None));
    // A change that is rejected, and one that changes nothing.
    let rejected = one.change(Arc::new(|_| Err(Thrown::new("no")))).await.unwrap_err();
    assert_eq!(rejected.message, "no");
    assert_eq!(one.change(Arc::new(|_| Ok(None))).await, Ok(None));
    assert_eq!(other.read().await, Ok(None));

    // The answer is what is stored, and both read it.
    let stored = one.change(add("ada".to_owned())).await.unwrap();
    assert_eq!(ids(stored.clone()), ["ada"]);
    assert_eq!((one.read().await, other.read().await), (Ok(stored.clone()), Ok(stored.clone())));
    assert_eq!(other.change(Arc::new(|_| Ok(None))).await, Ok(stored.clone()));
    other.change(Arc::new(|_| Err(Thrown::new("no")))).await.unwrap_err();
    assert_eq!(one.read().await, Ok(stored));

    // A change sees what was stored before it, also by the other one.
    let seen: EditUsers = Arc::new(|text| {
        let text = text.unwrap().replace("ada", "cleo\\u0000\u{1f434}");
        Ok(Some(text))
    });
    assert_eq!(ids(other.change(seen).await.unwrap()), ["cleo\0\u{1f434}"]);

    // No change undoes another one that is made at the same time.
    let mut changes = Vec::new();
    for at in 0..AT_ONCE {
        for (name, store) in [("one", &one), ("other", &other)] {
            let (id, store) = (format!("{name}{at}"), store.clone());
            changes.push(tokio::spawn(async move { store.change(add(id)).await }));
        }
    }
    for change in changes {
        change.await.unwrap().unwrap();
    }
    let mut found = ids(one.read().await.unwrap());
    assert_eq!(found.len(), 1 + 2 * AT_ONCE, "{found:?}");
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 1 + 2 * AT_ONCE, "a change was made twice: {found:?}");
    assert_eq!(other.read().await, one.read().await);
}
