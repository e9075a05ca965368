//! The vault file, from outside.

use std::fs;
use std::sync::Arc;

use crate::lines::Lines;
use ostler_contract::points::Vault;
use ostler_ports::FileVault;
use ostler_ports::conformance::vault_conformance;

/// When the vault looks at its file again.
async fn later() {
    tokio::time::advance(std::time::Duration::from_millis(21)).await;
}

struct Kept {
    folder: tempfile::TempDir,
    vault: Vault,
    lines: Lines,
}

impl Kept {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let lines = Lines::default();
        let vault = Arc::new(FileVault::new(folder.path(), lines.report()).unwrap()).into_point();
        Self { folder, vault, lines }
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("vault.json")
    }

    /// Writes the file as an editor does that writes in place; the vault looks again by then.
    async fn write(&self, text: &str) {
        fs::write(self.path(), text).unwrap();
        #[cfg(unix)]
        fs::set_permissions(self.path(), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        later().await;
    }

    async fn get(&self, name: &str) -> Result<Option<String>, String> {
        self.vault.get.unbounded((name.into(),)).await.map_err(|thrown| thrown.message)
    }

    fn lines(&self) -> Vec<String> {
        self.lines.taken(&self.folder.path().display().to_string())
    }
}

#[tokio::test(start_paused = true)]
async fn does_what_a_vault_does() {
    vault_conformance(Kept::new().vault).await;
}

#[tokio::test(start_paused = true)]
async fn is_a_plain_file_for_its_owner() {
    let kept = Kept::new();
    assert!(!kept.path().exists());
    kept.vault.set.unbounded(("host:key".into(), "value".into())).await.unwrap();
    assert_eq!(fs::read_to_string(kept.path()).unwrap(), "{\n  \"host:key\": \"value\"\n}\n");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(fs::metadata(kept.path()).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(kept.get("host:key").await, Ok(Some("value".into())));
        assert_eq!(kept.lines(), [""; 0]);

        for _ in 0..2 {
            fs::set_permissions(kept.path(), fs::Permissions::from_mode(0o644)).unwrap();
            later().await;
            assert_eq!(kept.get("host:key").await, Ok(Some("value".into())));
            fs::set_permissions(kept.path(), fs::Permissions::from_mode(0o640)).unwrap();
            later().await;
            assert_eq!(kept.get("host:key").await, Ok(Some("value".into())));
        }
        assert_eq!(
            kept.lines(),
            ["/vault.json is readable by other users of this computer; run chmod 600 /vault.json"]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_edit_by_hand_holds_at_once() {
    let kept = Kept::new();
    for value in 0..200 {
        // As long as the one before, within a tick of the clock.
        kept.write(&format!(r#"{{ "host:key": "{value:03}" }}"#)).await;
        assert_eq!(kept.get("host:key").await, Ok(Some(format!("{value:03}"))));
    }
    fs::remove_file(kept.path()).unwrap();
    later().await;
    assert_eq!(kept.get("host:key").await, Ok(None));
    assert_eq!(kept.lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_broken_file_is_refused_and_left_alone() {
    let kept = Kept::new();
    let broken = "{\n  \"host:key\": \"s3cret\"\n  \"host:other\": \"x\"\n}\n";
    kept.write(broken).await;
    let refused = kept.get("host:key").await.unwrap_err();
    kept.get("host:key").await.unwrap_err();
    kept.vault.set.unbounded(("host:key".into(), "new".into())).await.unwrap_err();
    kept.vault.delete.unbounded(("host:key".into(),)).await.unwrap_err();
    kept.vault.list.unbounded(()).await.unwrap_err();
    assert_eq!(fs::read_to_string(kept.path()).unwrap(), broken);
    let refused = refused.replace(&kept.folder.path().display().to_string(), "");
    insta::assert_snapshot!(refused, @"the vault is unavailable until /vault.json is fixed: line 3, column 3: not JSON");
    insta::assert_debug_snapshot!(kept.lines(), @r#"
    [
        "the vault is unavailable until /vault.json is fixed: line 3, column 3: not JSON",
    ]
    "#);

    kept.write("[\"s3cret\"]").await;
    insta::assert_snapshot!(kept.get("host:key").await.unwrap_err().replace(&kept.folder.path().display().to_string(), ""), @"the vault is unavailable until /vault.json is fixed: must be an object of names and values");
    kept.write("{ \"host:key\": \"mended\" }").await;
    assert_eq!(kept.get("host:key").await, Ok(Some("mended".into())));
}

#[tokio::test(start_paused = true)]
async fn what_it_does_not_know_is_ignored_and_kept() {
    let kept = Kept::new();
    kept.write(r#"{ "key": "a", "host:pin": 1234, "host:key": "b" }"#).await;
    assert_eq!(kept.get("host:pin").await, Ok(None));
    assert_eq!(kept.vault.list.unbounded(()).await.unwrap(), ["host:key"]);
    insta::assert_debug_snapshot!(kept.lines(), @r#"
    [
        "/vault.json: key is not a vault name: a secret is named host:<name>, team:<team>/<name> or user:<id>/<name>; ignored",
        "/vault.json: the value of host:pin must be text; ignored",
    ]
    "#);
    kept.vault.set.unbounded(("host:new".into(), "c".into())).await.unwrap();
    let text = fs::read_to_string(kept.path()).unwrap();
    assert!(text.contains("1234") && text.contains("\"key\": \"a\""), "{text}");
}

#[tokio::test(start_paused = true)]
async fn two_processes_set_secrets() {
    let kept = Kept::new();
    let other = Arc::new(FileVault::new(kept.folder.path(), Lines::default().report()).unwrap()).into_point();
    let mut writes = Vec::new();
    for number in 0..50 {
        for (vault, whose) in [(&kept.vault, "a"), (&other, "b")] {
            writes.push(vault.set.unbounded((format!("host:{whose}{number}"), "x".into())));
        }
    }
    for write in writes {
        write.await.unwrap();
    }
    assert_eq!(kept.vault.list.unbounded(()).await.unwrap().len(), 100);
}
