//! The search of runs in the built-in stores.

use std::fs;
use std::sync::Arc;

use ostler_contract::points::RunQuery;
use ostler_ports::conformance::{find_runs_conformance, found_runs, numbered_run};
use ostler_ports::{FileAutomations, MemoryAutomations, StateDb};

#[tokio::test]
async fn files_find_runs() {
    let folder = tempfile::tempdir().unwrap();
    let db = StateDb::open(folder.path()).unwrap();
    let store = FileAutomations::open(folder.path(), db, ostler_ports::Report::quiet()).await.unwrap();
    find_runs_conformance(&Arc::new(store.retaining(retaining_all())).into_point()).await;
}

#[tokio::test]
async fn memory_finds_runs() {
    let store = MemoryAutomations::new(ostler_ports::Report::quiet()).unwrap();
    find_runs_conformance(&Arc::new(store.retaining(retaining_all())).into_point()).await;
}

fn retaining_all() -> ostler_ports::RunRetention {
    ostler_ports::RunRetention { count: 1_000_000, ..ostler_ports::RunRetention::default() }
}

#[tokio::test]
async fn runs_of_an_earlier_version_are_found() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("automations")).unwrap();
    drop(StateDb::open(folder.path()).unwrap());
    // What version 8 had: the same without what finds runs, and without what finds unfinished work.
    let path = folder.path().join("state.db");
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute_batch(
        "DROP TRIGGER automation_run_facts_added; DROP TRIGGER automation_run_facts_changed;
         DROP TRIGGER automation_run_facts_removed; DROP TABLE automation_run_facts; DROP TABLE automation_run_words;
         DROP INDEX session_chats_waiting; DROP TABLE session_reported;
         DROP TABLE unended_turns; DROP TRIGGER turns_begun; DROP TRIGGER turns_resumed; DROP TRIGGER turns_ended;
         DROP TRIGGER turns_removed;",
    )
    .unwrap();
    db.pragma_update(None, "user_version", 8).unwrap();
    for number in 0..20 {
        let run = numbered_run(number);
        let ended = run["lifecycle"]["completedAt"].is_string();
        let sql = "INSERT INTO automation_runs (uri, automation, ended, run) VALUES (?1, 'common', ?2, ?3)";
        db.execute(sql, rusqlite::params![run["resource"].as_str(), ended, run.to_string()]).unwrap();
    }
    db.execute(
        "INSERT INTO automation_runs (uri, automation, ended, run) VALUES ('x', 'common', 1, 'damaged')",
        [],
    )
    .unwrap();
    drop(db);
    let db = StateDb::open(folder.path()).unwrap();
    let store = FileAutomations::open(folder.path(), db, ostler_ports::Report::quiet()).await.unwrap();
    let store = Arc::new(store).into_point();
    let all = RunQuery { limit: 50, ..RunQuery::default() };
    assert_eq!(found_runs(&store, &all).await, (0..20).rev().collect::<Vec<_>>());
    let failed: Vec<usize> = (0..20).rev().filter(|number| number % 7 % 3 == 1).collect();
    assert_eq!(found_runs(&store, &RunQuery { state: Some("failed".into()), ..all.clone() }).await, failed);
    let full: Vec<usize> = failed.iter().copied().filter(|number| number % 3 == 0).collect();
    assert_eq!(found_runs(&store, &RunQuery { text: Some("disk".into()), ..all }).await, full);
}
