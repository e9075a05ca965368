//! Backups of a host that runs, and restoring them.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::support::{Daemon, Ended, Folder, ended, post, wait_for};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

/// A folder without a configuration.
fn empty() -> Folder {
    Folder { dir: tempfile::tempdir().unwrap() }
}

fn webhook() -> Folder {
    Folder::with_webhook("Note {{event.n}}.")
}

#[track_caller]
fn ok(ended: Ended) -> String {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.out
}

#[track_caller]
fn refused(ended: &Ended, code: i32, says: &str) {
    assert_eq!(ended.code, Some(code), "{ended:?}");
    assert!(ended.err.contains(says), "{says:?} is not in {:?}", ended.err);
}

/// An archive outside the folder.
fn archive(place: &tempfile::TempDir) -> PathBuf {
    place.path().join("backup.tar.gz")
}

fn back_up(folder: &Folder, file: &Path) -> Ended {
    folder.run(&["backup", file.to_str().unwrap()])
}

fn restore(folder: &Folder, file: &Path, flags: &[&str]) -> Ended {
    folder.run(&[&["restore", file.to_str().unwrap()], flags].concat())
}

/// The names and the content of an archive's entries.
fn entries(file: &Path) -> Vec<(String, u32, Vec<u8>)> {
    let mut archive = tar::Archive::new(GzDecoder::new(File::open(file).unwrap()));
    archive
        .entries()
        .unwrap()
        .map(|entry| {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            (entry.path().unwrap().to_str().unwrap().to_owned(), entry.header().mode().unwrap(), content)
        })
        .collect()
}

/// An archive of these entries.
fn packed<'a>(file: &Path, entries: impl IntoIterator<Item = (&'a str, &'a [u8])>) {
    let mut tar = tar::Builder::new(GzEncoder::new(File::create(file).unwrap(), Compression::fast()));
    for (name, content) in entries {
        let mut head = tar::Header::new_gnu();
        head.set_size(content.len() as u64);
        head.set_mode(0o600);
        // Names that `tar` itself refuses to write.
        head.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        head.set_cksum();
        tar.append(&head, content).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap();
}

/// The runs of the automation, once all have ended. One that was going while the backup was made ends as after a crash.
fn runs(folder: &Folder, expected: usize) -> Vec<Value> {
    let ended = |run: &Value| {
        run["state"] == "completed" || run["error"] == "the host stopped while this run was going"
    };
    let list = || folder.run(&["automation", "runs", "note", "--json"]);
    wait_for(|| {
        let list: Value = serde_json::from_str(&list().out).ok()?;
        let runs = list["runs"].as_array()?.clone();
        (runs.len() >= expected && runs.iter().all(ended)).then_some(runs)
    })
    .unwrap_or_else(|| panic!("not all runs ended: {:?}", list()))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_before_a_backup_of_a_running_host_is_there_after_a_restore() {
    let (folder, place) = (webhook(), tempfile::tempdir().unwrap());
    let daemon = folder.start();
    folder.wait_for_status(&daemon, "/plugins/webhook/in", 202).await;
    // Calls before, while and after it is written.
    let (stop, accepted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(1)));
    let caller = tokio::spawn({
        let (stop, accepted, address) = (stop.clone(), accepted.clone(), daemon.address().to_owned());
        async move {
            while !stop.load(Ordering::SeqCst) {
                let answer = post(&address, "/plugins/webhook/in", Some("right"), "{ \"n\": 1 }").await;
                assert_eq!(answer.unwrap().0, 202);
                accepted.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    while accepted.load(Ordering::SeqCst) < 20 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let before = accepted.load(Ordering::SeqCst);
    let file = archive(&place);
    let told = tokio::task::block_in_place(|| ok(back_up(&folder, &file)));
    stop.store(true, Ordering::SeqCst);
    caller.await.unwrap();
    assert!(told.contains("It contains secrets; keep it private."), "{told}");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    daemon.kill();

    let other = empty();
    let told = tokio::task::block_in_place(|| ok(restore(&other, &file, &[])));
    let program = format!("ostler --config-file {}", other.path().join("config.json").display());
    assert!(told.contains(&format!("Next: {program} doctor, then {program} start")), "{told}");
    let daemon = other.start();
    let (runs, sessions) = tokio::task::block_in_place(|| {
        let sessions = ok(other.run(&["session", "list", "--json"]));
        (runs(&other, before), serde_json::from_str::<Value>(&sessions).unwrap())
    });
    assert!(runs.len() >= before, "{} of {before}", runs.len());
    assert_ne!(sessions["sessions"], json!([]), "{sessions}");
    // The secret of the endpoint came with it.
    let (status, _) = daemon.post("/plugins/webhook/in", Some("right"), "{ \"n\": 2 }").await;
    assert_eq!(status, 202);
}

#[test]
fn a_backup_has_what_users_write_and_not_what_belongs_to_a_process_or_comes_from_npm() {
    let (folder, place, elsewhere) = (webhook(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let daemon = folder.start();
    for (file, text) in [
        ("node_modules/a/index.js", "1"),
        ("package.json", "{}"),
        ("wire/one.jsonl", "{}"),
        ("notes/a/b.md", "deep"),
        (".before-restore-x/config.json", "{}"),
        (".config.json.abc123.ostler-tmp", "half"),
        (".webhooks.lock", ""),
    ] {
        folder.write(file, text);
    }
    fs::write(elsewhere.path().join("own.ts"), "export const name = 'own';\n").unwrap();
    symlink(elsewhere.path().join("own.ts"), folder.path().join("own.ts")).unwrap();
    symlink(folder.path(), folder.path().join("again")).unwrap();
    symlink("nowhere", folder.path().join("dangling")).unwrap();
    let file = archive(&place);
    let ended = back_up(&folder, &file);
    refused(&ended, 0, "dangling is a broken link");
    let entries = entries(&file);
    let names: Vec<&str> = entries.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "backup.json",
            "config/automations/note.md",
            "config/config.json",
            "config/log",
            "config/notes/a/b.md",
            "config/own.ts",
            "config/package.json",
            "config/vault.json",
            "config/webhooks/in.md",
            "state/state.db",
            "contents.json",
        ]
    );
    let (_, mode, linked) = entries.iter().find(|(name, ..)| name == "config/own.ts").unwrap();
    assert_eq!((*mode & 0o700, linked.as_slice()), (0o600, b"export const name = 'own';\n".as_slice()));
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
fn a_restore_keeps_what_is_there_unless_it_is_told_otherwise_and_then_moves_it_aside() {
    let (folder, place) = (webhook(), tempfile::tempdir().unwrap());
    let file = archive(&place);
    ok(back_up(&folder, &file));
    refused(&back_up(&folder, &file), 1, "already exists; remove it, or name another file");

    let daemon = folder.start();
    wait_for(|| (folder.run(&["status"]).code == Some(0)).then_some(())).unwrap();
    refused(&restore(&folder, &file, &["--force"]), 1, "run ostler stop first");
    assert_eq!(daemon.stop(), Some(0));
    folder.write("vault.json", r#"{ "host:in": "other" }"#);
    folder.write("node_modules/a/index.js", "1");
    refused(&restore(&folder, &file, &[]), 1, "is in use");
    assert!(folder.read("vault.json").contains("other"));

    let told: Value = serde_json::from_str(&ok(restore(&folder, &file, &["--force", "--json"]))).unwrap();
    assert!(folder.read("vault.json").contains("right"));
    assert_eq!(folder.read("node_modules/a/index.js"), "1");
    assert!(!folder.state_file("state.db").exists(), "the backup had none");
    let replaced: Vec<PathBuf> = told["replaced"]
        .as_array()
        .unwrap()
        .iter()
        .map(|path| PathBuf::from(path.as_str().unwrap()))
        .collect();
    let [config, state] = replaced.as_slice() else { panic!("{told}") };
    assert!(fs::read_to_string(config.join("vault.json")).unwrap().contains("other"));
    assert!(state.join("state.db").exists());
    // The host starts on it, and neither backs up nor serves what was replaced.
    let daemon: Daemon = folder.start();
    let second = place.path().join("second.tar.gz");
    ok(back_up(&folder, &second));
    assert!(!entries(&second).iter().any(|(name, ..)| name.contains("before-restore")));
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
fn a_folder_with_a_lock_alone_is_empty() {
    let (folder, other, place) = (webhook(), empty(), tempfile::tempdir().unwrap());
    let file = archive(&place);
    ok(back_up(&folder, &file));
    // What a command that found no endpoint leaves.
    other.write(".webhooks.lock", "");
    ok(restore(&other, &file, &[]));
    assert!(other.read("vault.json").contains("right"));
}

#[test]
fn a_damaged_or_foreign_archive_changes_nothing() {
    let (folder, place) = (webhook(), tempfile::tempdir().unwrap());
    folder.start().stop();
    let file = archive(&place);
    ok(back_up(&folder, &file));
    let whole = fs::read(&file).unwrap();
    let other = empty();
    let unchanged = |ended: &Ended, what: &str| {
        assert!(matches!(ended.code, Some(1 | 2)), "{what}: {ended:?}");
        let left: Vec<_> =
            fs::read_dir(other.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| name == "daemon.lock" || name == ".state"), "{what}: {left:?}");
        let state = fs::read_dir(other.state_home().join("ostler")).into_iter().flatten().flatten();
        let stored = state
            .flat_map(|folder| fs::read_dir(folder.path()).unwrap())
            .map(|file| file.unwrap().file_name());
        let stored: Vec<_> = stored.filter(|name| name != "daemon.lock").collect();
        assert_eq!(stored, Vec::<std::ffi::OsString>::new(), "{what}");
    };
    let broken = place.path().join("broken.tar.gz");
    for cut in [0, 1, 100, whole.len() / 2, whole.len() - 20] {
        fs::write(&broken, &whole[..cut]).unwrap();
        unchanged(&restore(&other, &broken, &[]), &format!("cut at {cut}"));
    }
    for at in [whole.len() / 3, whole.len() - 100] {
        let mut changed = whole.clone();
        changed[at] ^= 0x10;
        fs::write(&broken, &changed).unwrap();
        unchanged(&restore(&other, &broken, &[]), &format!("changed at {at}"));
    }

    let original = entries(&file);
    let with = |change: &dyn Fn(&str, &[u8]) -> Option<Vec<u8>>, more: &[(&str, &[u8])]| {
        let changed: Vec<(&str, Vec<u8>)> = original
            .iter()
            .filter_map(|(name, _, content)| Some((name.as_str(), change(name, content)?)))
            .collect();
        let mut all: Vec<(&str, &[u8])> =
            changed.iter().map(|(name, content)| (*name, content.as_slice())).collect();
        all.splice(1..1, more.iter().copied());
        packed(&broken, all);
    };
    let same = |_: &str, content: &[u8]| Some(content.to_vec());
    with(&|name, content| (name != "config/vault.json").then(|| content.to_vec()), &[]);
    let ended = restore(&other, &broken, &[]);
    refused(&ended, 1, "its files are not those it lists");
    unchanged(&ended, "a file less");
    for name in
        ["config/../../escaped", "/config/escaped", "config/node_modules/a", "state/other.db", "config"]
    {
        with(&same, &[(name, b"x")]);
        let ended = restore(&other, &broken, &[]);
        refused(&ended, 1, "nothing was changed");
        unchanged(&ended, name);
    }
    with(
        &|name, content| {
            let newer = || json!({ "program": "ostler", "format": 99, "version": "9.9.9", "createdAt": "x" });
            Some(if name == "backup.json" { newer().to_string().into_bytes() } else { content.to_vec() })
        },
        &[],
    );
    let ended = restore(&other, &broken, &[]);
    refused(&ended, 1, "was written by ostler 9.9.9, in a format that this version");
    unchanged(&ended, "a newer format");
    packed(&broken, [("readme.txt", b"hello".as_slice())]);
    let ended = restore(&other, &broken, &[]);
    refused(&ended, 2, "is not a backup of ostler");
    unchanged(&ended, "a foreign archive");

    ok(restore(&other, &file, &[]));
    assert_eq!(other.start().stop(), Some(0));
}

#[test]
fn an_archive_passes_through_a_pipe() {
    let folder = webhook();
    let out = folder.command(&["backup", "-"]).stdin(Stdio::null()).output().unwrap();
    assert!(out.status.success(), "{out:?}");
    assert!(String::from_utf8_lossy(&out.stderr).contains("It contains secrets"), "{out:?}");
    let other = empty();
    let mut restoring =
        other.command(&["restore", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    restoring.stdin.take().unwrap().write_all(&out.stdout).unwrap();
    assert!(restoring.wait_with_output().unwrap().status.success());
    assert!(other.read("vault.json").contains("right"));
}

#[test]
fn what_the_configuration_names_elsewhere_is_told() {
    let (folder, place) = (webhook(), tempfile::tempdir().unwrap());
    let users = place.path().join("users.json");
    fs::write(&users, "{}").unwrap();
    folder.write(
        "config.json",
        &json!({
            "plugins": [
                { "name": "@ostler/echo" },
                { "name": place.path().join("plugin.js") },
                { "name": "./inside.js" },
                { "name": "@ostler/acp", "options": { "registry": place.path().join("registry.json") } },
            ],
            "users": users.to_str().unwrap(),
        })
        .to_string(),
    );
    fs::write(place.path().join("plugin.js"), "").unwrap();
    fs::write(place.path().join("registry.json"), r#"{ "agents": [] }"#).unwrap();
    folder.write("inside.js", "");
    let ended = back_up(&folder, &archive(&place));
    refused(&ended, 0, "because it is outside the configuration folder");
    for file in ["users.json", "plugin.js", "registry.json"] {
        let line = format!("outside the configuration folder: {}", place.path().join(file).display());
        assert!(ended.err.contains(&line), "{file}: {}", ended.err);
    }
    assert!(!ended.err.contains("inside.js"), "{}", ended.err);
    // A configuration that cannot be read is backed up too.
    folder.write("config.json", "{ broken");
    let ended = back_up(&folder, &place.path().join("second.tar.gz"));
    refused(&ended, 0, "");
    let empty = empty();
    fs::remove_dir_all(empty.path()).unwrap();
    let missing = ended_without(&empty);
    refused(&missing, 2, "does not exist");
}

/// A backup where there is no configuration.
fn ended_without(folder: &Folder) -> Ended {
    let mut command = crate::support::program();
    command.arg("--config-file").arg(folder.path().join("config.json")).args(["backup", "-"]);
    ended(&mut command)
}
