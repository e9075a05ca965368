//! A state database brought from where an earlier version wrote it.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use ostler_contract::points::{KeptSession, SessionStore};
use ostler_ports::{Relocated, SqliteSessions, StateDb};
use rusqlite::Connection;

fn sessions(folder: &Path) -> SessionStore {
    Arc::new(SqliteSessions::new(StateDb::open(folder).unwrap(), ostler_ports::Report::quiet())).into_point()
}

async fn names(folder: &Path) -> Vec<String> {
    sessions(folder).sessions.unbounded(()).await.unwrap()
}

/// A database of which all is in the write-ahead log still, as a killed host leaves it.
async fn killed_at(folder: &Path) {
    let elsewhere = tempfile::tempdir().unwrap();
    let store = sessions(elsewhere.path());
    store.set_config.unbounded(("s".into(), KeptSession::default())).await.unwrap();
    fs::create_dir_all(folder).unwrap();
    for file in ["state.db", "state.db-wal"] {
        fs::copy(elsewhere.path().join(file), folder.join(file)).unwrap();
    }
    assert!(fs::metadata(folder.join("state.db-wal")).unwrap().len() > 0);
}

fn files(folder: &Path) -> Vec<String> {
    let mut files: Vec<String> =
        fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    files.sort();
    files
}

async fn moves_whole(old: &Path, new: &Path) {
    killed_at(old).await;
    assert_eq!(StateDb::relocate(old, new).unwrap(), Relocated::Moved);
    assert_eq!(files(old), Vec::<String>::new());
    assert_eq!(files(new), ["state.db"]);
    assert_eq!(StateDb::relocate(old, new).unwrap(), Relocated::Unneeded, "once");
    assert_eq!(names(new).await, ["s"]);
}

#[tokio::test]
async fn what_only_the_log_of_a_killed_host_holds_is_moved_too() {
    let dir = tempfile::tempdir().unwrap();
    moves_whole(&dir.path().join("config"), &dir.path().join("a/b/state")).await;
    assert_eq!(StateDb::relocate(dir.path(), dir.path()).unwrap(), Relocated::Unneeded);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn to_another_file_system_too() {
    let dir = tempfile::tempdir().unwrap();
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else {
        return crate::not_run::not_run("/dev/shm is not there");
    };
    let new = memory.path().join("state");
    moves_whole(&dir.path().join("config"), &new).await;
    use std::os::unix::fs::PermissionsExt as _;
    assert_eq!(fs::metadata(new.join("state.db")).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn a_newer_one_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("config"), dir.path().join("state"));
    killed_at(&old).await;
    drop(StateDb::open(&new).unwrap());
    assert_eq!(StateDb::relocate(&old, &new).unwrap(), Relocated::Leftover);
    assert_eq!(names(&new).await, Vec::<String>::new());
    assert_eq!(names(&old).await, ["s"]);
}

#[cfg(unix)]
#[tokio::test]
async fn a_link_goes_on_leading_to_the_database() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("config"), dir.path().join("state"));
    killed_at(&dir.path().join("disk")).await;
    fs::create_dir(&old).unwrap();
    std::os::unix::fs::symlink("../disk/state.db", old.join("state.db")).unwrap();
    assert_eq!(StateDb::relocate(&old, &new).unwrap(), Relocated::Moved);
    assert_eq!(names(&new).await, ["s"]);
    assert!(fs::symlink_metadata(old.join("state.db")).is_err());
}

#[tokio::test]
async fn what_is_open_damaged_or_of_another_program_stays_where_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("config"), dir.path().join("state"));
    let refused = || {
        let why = StateDb::relocate(&old, &new).unwrap_err().message;
        assert!(!new.join("state.db").exists() && old.join("state.db").exists());
        why.replace(&dir.path().display().to_string(), "")
    };
    killed_at(&old).await;
    let open = Connection::open(old.join("state.db")).unwrap();
    open.query_row("SELECT count(*) FROM sqlite_schema", (), |_| Ok(())).unwrap();
    insta::assert_snapshot!(refused(), @"/config/state.db is locked by another process; it cannot be moved");
    drop(open);
    fs::write(old.join("state.db"), "this is no database, ".repeat(500)).unwrap();
    let _ = fs::remove_file(old.join("state.db-wal"));
    insta::assert_snapshot!(refused(), @"/config/state.db is damaged: file is not a database; stop the host and restore a backup, or move the file away to start empty");
    fs::remove_file(old.join("state.db")).unwrap();
    Connection::open(old.join("state.db")).unwrap().execute_batch("CREATE TABLE theirs (a)").unwrap();
    insta::assert_snapshot!(refused(), @"/config/state.db is the database of another program; move it away");
}
