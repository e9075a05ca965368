//! A process killed at any moment leaves every file whole.

use std::fs;
use std::path::Path;

use ostler_ports::atomic::{self, Access};

const FILES: [&str; 3] = ["a", "b", "c"];

/// A file that says how long it is.
fn content(round: usize) -> String {
    let size = (round * 7919) % 200_000;
    format!("{size}\n{}", "x".repeat(size))
}

fn whole(text: &str) -> bool {
    text.split_once('\n').is_some_and(|(size, rest)| size.parse() == Ok(rest.len()))
}

#[test]
fn child() {
    let Some(folder) = crate::killed::folder() else { return };
    for round in 0.. {
        let name = FILES[round % FILES.len()];
        atomic::write(&folder.join(name), content(round).as_bytes(), Access::Usual).unwrap();
        crate::killed::acknowledge(&format!("{name} {round}"));
    }
}

#[test]
fn a_killed_writer_leaves_every_file_whole() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..15 {
        let acknowledged = crate::killed::run_and_kill("atomic::child", folder.path());
        for name in FILES {
            let path = folder.path().join(name);
            if !path.exists() {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            assert!(whole(&text), "{name} is cut");
            let last = acknowledged.iter().rev().find_map(|line| line.strip_prefix(&format!("{name} ")));
            if let Some(last) = last.and_then(|round| round.parse::<usize>().ok()) {
                let after = [content(last), content(last + FILES.len())];
                assert!(after.contains(&text), "{name} is older than what was acknowledged");
            }
        }
    }
}

#[test]
fn one_write_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    atomic::write(&path, b"one", Access::Usual).unwrap();
    atomic::write(&path, b"two", Access::Usual).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"two");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "something was left behind");
    let missing = folder.path().join("no").join("file");
    assert!(atomic::write(&missing, b"", Access::Usual).is_err());
}

#[cfg(unix)]
#[test]
fn who_may_read_it() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");

    atomic::write(&path, b"", Access::Usual).unwrap();
    assert_eq!(mode(&path), 0o600, "a new file is its owner's");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o664)).unwrap();
    atomic::write(&path, b"", Access::Usual).unwrap();
    assert_eq!(mode(&path), 0o664);
    atomic::write(&path, b"", Access::Owner).unwrap();
    assert_eq!(mode(&path), 0o600);

    let link = folder.path().join("link");
    symlink(&path, &link).unwrap();
    atomic::write(&link, b"through", Access::Usual).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read(&path).unwrap(), b"through");
}

/// What somebody has written since it was read is not overwritten.
#[test]
fn a_file_that_was_edited_since_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let replace = |before: Option<&str>, content: &str| {
        atomic::replace(&path, before.map(str::as_bytes), content.as_bytes(), Access::Owner).unwrap()
    };
    assert!(!replace(Some(""), "a") && !path.exists(), "it was removed");
    assert!(replace(None, "a"));
    assert!(!replace(None, "b"), "it was made");
    assert!(!replace(Some("b"), "c"));
    assert_eq!(fs::read(&path).unwrap(), b"a");
    assert!(replace(Some("a"), "b"));
    assert_eq!(fs::read(&path).unwrap(), b"b");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "something was left behind");
}
