use ostler_contract::points::Vault;
use ostler_contract::vault_name::NotAVaultName;

/// Tests a vault, which is empty at the start.
pub async fn vault_conformance(vault: Vault) {
    let get = |name: &str| vault.get.unbounded((name.into(),));
    let set = |name: &str, value: &str| vault.set.unbounded((name.into(), value.into()));
    let delete = |name: &str| vault.delete.unbounded((name.into(),));
    let list = || vault.list.unbounded(());

    assert_eq!(list().await, Ok(vec![]));
    assert_eq!(get("host:key").await, Ok(None));
    assert_eq!(delete("host:key").await, Ok(false));
    assert_eq!(list().await, Ok(vec![]), "what is not there was made by asking for it");

    let values = ["one", "", " two\nlines\n", "\u{1}\"\\😀", &"long".repeat(50_000)];
    for value in values {
        set("host:key", value).await.unwrap();
        assert_eq!(get("host:key").await.as_ref().map(Option::as_deref), Ok(Some(value)));
    }
    set("team:inn/key", "of the team").await.unwrap();
    set("user:ada/key", "of a person").await.unwrap();
    let mut names = list().await.unwrap();
    names.sort();
    assert_eq!(names, ["host:key", "team:inn/key", "user:ada/key"]);
    assert_eq!(get("user:ada/key").await.unwrap().as_deref(), Some("of a person"));
    assert_eq!(get("user:ada/other").await, Ok(None));

    assert_eq!(delete("host:key").await, Ok(true));
    assert_eq!(delete("host:key").await, Ok(false));
    assert_eq!(get("host:key").await, Ok(None));
    assert_eq!(get("team:inn/key").await.unwrap().as_deref(), Some("of the team"));

    for name in ["", "key", "host:", "team:inn", "root:inn/key", "HOST:key"] {
        let forms = NotAVaultName.to_string();
        let refused = |message: String| assert!(message.contains(&forms), "{name}: {message}");
        refused(get(name).await.unwrap_err().message);
        refused(set(name, "value").await.unwrap_err().message);
        refused(delete(name).await.unwrap_err().message);
    }
    let both = tokio::join!(set("host:a", "1"), set("host:b", "2"));
    assert_eq!(both, (Ok(()), Ok(())));
    assert_eq!(get("host:a").await.unwrap().as_deref(), Some("1"), "one write undid the other");

    for name in list().await.unwrap() {
        assert_eq!(delete(&name).await, Ok(true));
    }
    assert_eq!(list().await, Ok(vec![]));
}
