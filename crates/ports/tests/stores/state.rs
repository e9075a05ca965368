//! The state database, from outside: what crashes and other programs do to it.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::lines::Lines;
use ostler_contract::points::{KeptChat, KeptDraft, KeptSession, KeptTurn, SessionStore};
use ostler_contract::problems::Problems;
use ostler_contract::protocol::wire::state::Turn;
use ostler_contract::{Pending, Thrown, Value, json};
use ostler_ports::conformance::sessions_conformance;
use ostler_ports::{SqliteSessions, StateDb};
use rusqlite::Connection;

fn sessions(folder: &Path) -> SessionStore {
    Arc::new(SqliteSessions::new(StateDb::open(folder).unwrap(), Lines::default().report())).into_point()
}

fn refusal(folder: &Path) -> String {
    let refused = StateDb::open(folder).err().expect("it is refused").message;
    refused.replace(&folder.display().to_string(), "")
}

fn turn(number: usize, size: usize) -> KeptTurn {
    let turn: Value = json!({
        "id": format!("t{number}"), "state": "complete",
        "message": { "text": "x".repeat(size), "origin": { "kind": "user" } }, "responseParts": [],
    });
    KeptTurn {
        turn: serde_json::from_value::<Turn>(turn).unwrap(),
        unended: false,
        charged_usage: None,
        broken: false,
        sender: None,
        transcript_id: None,
    }
}

#[tokio::test]
async fn does_what_a_session_store_does() {
    let folder = tempfile::tempdir().unwrap();
    sessions_conformance(sessions(folder.path())).await;
}

#[tokio::test]
async fn memory_does_what_a_session_store_does() {
    let store = SqliteSessions::new(StateDb::memory().unwrap(), Lines::default().report());
    sessions_conformance(Arc::new(store).into_point()).await;
}

#[tokio::test]
async fn what_was_written_is_in_the_file_itself_once_the_store_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let store = sessions(folder.path());
    store.set_config.unbounded(("s".into(), KeptSession::default())).await.unwrap();
    let log = folder.path().join("state.db-wal");
    assert!(fs::metadata(&log).unwrap().len() > 0);
    store.close.clone().unwrap().unbounded(()).await.unwrap();
    assert_eq!(fs::metadata(&log).unwrap().len(), 0);
    let copy = tempfile::tempdir().unwrap();
    fs::copy(folder.path().join("state.db"), copy.path().join("state.db")).unwrap();
    assert_eq!(sessions(copy.path()).sessions.unbounded(()).await.unwrap(), ["s"]);
}

#[tokio::test]
async fn the_log_has_its_usual_size_from_the_start_and_is_read_as_far_as_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let store = sessions(folder.path());
    store.set_config.unbounded(("s".into(), KeptSession::default())).await.unwrap();
    let log = folder.path().join("state.db-wal");
    let size = fs::metadata(&log).unwrap().len();
    assert_eq!(size, 32 + 1000 * (4096 + 24));
    for at in 0..20 {
        store.set_config.unbounded((format!("s{at}"), KeptSession::default())).await.unwrap();
    }
    assert_eq!(fs::metadata(&log).unwrap().len(), size, "it is written over");
    // As a crash leaves them, once with a log that was being filled.
    for left in [size, size - 5000] {
        let crashed = tempfile::tempdir().unwrap();
        for file in ["state.db", "state.db-wal"] {
            fs::copy(folder.path().join(file), crashed.path().join(file)).unwrap();
        }
        fs::File::options()
            .write(true)
            .open(crashed.path().join("state.db-wal"))
            .unwrap()
            .set_len(left)
            .unwrap();
        assert_eq!(sessions(crashed.path()).sessions.unbounded(()).await.unwrap().len(), 21);
    }
}

/// The pages that were written to the log since it was begun, from the header of its index. Closing that file ends the locks of
/// this process on it, which is harmless because no other process opens the database.
fn logged_pages(folder: &Path) -> u32 {
    let index = fs::read(folder.join("state.db-shm")).unwrap();
    u32::from_ne_bytes(index[16..20].try_into().unwrap())
}

#[tokio::test]
async fn the_end_of_a_turn_writes_the_page_of_its_start() {
    let folder = tempfile::tempdir().unwrap();
    let store = sessions(folder.path());
    let set = store.set_turn.unwrap();
    let mut written = 0;
    for at in 0..60 {
        set.unbounded(("s".into(), "c".into(), at, turn(0, 10))).await.unwrap();
        let before = logged_pages(folder.path());
        set.unbounded(("s".into(), "c".into(), at, turn(0, 300))).await.unwrap();
        written += logged_pages(folder.path()) - before;
    }
    // Some pages have no room for the longer turn.
    assert!(written <= 90, "{written} pages for 60 ends");
}

#[tokio::test]
async fn what_is_kept_is_there_when_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = sessions(folder.path());
    store.set_config.unbounded(("s".into(), KeptSession::default())).await.unwrap();
    store.set_turn.unwrap().unbounded(("s".into(), "c".into(), 0, turn(0, 10))).await.unwrap();
    let again = sessions(folder.path());
    assert_eq!(again.sessions.unbounded(()).await.unwrap(), ["s"]);
    assert_eq!(again.turns.unwrap().unbounded(("s".into(), "c".into())).await.unwrap(), [turn(0, 10)]);
    #[cfg(unix)]
    for file in fs::read_dir(folder.path()).unwrap() {
        use std::os::unix::fs::PermissionsExt as _;
        let file = file.unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", file.file_name());
    }
}

#[tokio::test]
async fn files_that_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");

    let junk = "this is no database, ".repeat(500);
    fs::write(&path, &junk).unwrap();
    insta::assert_snapshot!(refusal(folder.path()), @"/state.db is damaged: file is not a database; stop the host and restore a backup, or move the file away to start empty");
    assert_eq!(fs::read_to_string(&path).unwrap(), junk, "it is left as it is");

    fs::remove_file(&path).unwrap();
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE theirs (a)").unwrap();
    let theirs = fs::read(&path).unwrap();
    insta::assert_snapshot!(refusal(folder.path()), @"/state.db is the database of another program; move it away");
    assert_eq!(fs::read(&path).unwrap(), theirs, "it is left as it is");

    fs::remove_file(&path).unwrap();
    drop(StateDb::open(folder.path()).unwrap());
    let version = |version: i64| {
        Connection::open(&path).unwrap().pragma_update(None, "user_version", version).unwrap();
    };
    version(99);
    insta::assert_snapshot!(refusal(folder.path()), @"/state.db was written by a newer ostler (its tables are of version 99, and this one knows up to 12); update ostler, or move the file away to start empty");
    version(12);
    StateDb::open(folder.path()).unwrap();

    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    insta::assert_snapshot!(refusal(folder.path()), @"/state.db could not be created: Is a directory (os error 21)");
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_that_is_removed_or_cut_while_it_is_open_takes_no_more_writes() {
    for (what, happens) in [
        ("was removed", (|path: &Path| fs::remove_file(path).unwrap()) as fn(&Path)),
        ("was truncated", |path| fs::File::options().write(true).open(path).unwrap().set_len(0).unwrap()),
        ("was truncated", |path| fs::File::options().write(true).open(path).unwrap().set_len(5000).unwrap()),
        ("was replaced by another file", |path| {
            fs::copy(path, path.with_extension("copy")).unwrap();
            fs::rename(path.with_extension("copy"), path).unwrap();
        }),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.db");
        let db = StateDb::open(folder.path()).unwrap();
        let (hears, heard) = std::sync::mpsc::channel();
        db.watch_file(move |lost| hears.send(lost.map(str::to_owned)).unwrap());
        let store = Arc::new(SqliteSessions::new(db, Lines::default().report())).into_point();
        let set = |id: &str| store.set_config.unbounded((id.into(), KeptSession::default()));
        set("before").await.unwrap();
        store.close.clone().unwrap().unbounded(()).await.unwrap();
        happens(&path);
        let sentence = format!(
            "{} {what} while the host runs, so nothing more is stored; stop the host, restore the file or a backup \
             of it, and start it again",
            path.display()
        );
        assert_eq!(set("after").await.unwrap_err().message, sentence);
        assert_eq!(heard.try_recv(), Ok(Some(sentence.clone())), "it is told");
        assert_eq!(store.close.clone().unwrap().unbounded(()).await.unwrap_err().message, sentence);
        assert!(heard.try_recv().is_err(), "once");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_log_that_is_cut_while_it_is_open_takes_no_more_writes() {
    for length in [0, 5000] {
        let folder = tempfile::tempdir().unwrap();
        let (path, log) = (folder.path().join("state.db"), folder.path().join("state.db-wal"));
        let db = StateDb::open(folder.path()).unwrap();
        let (hears, heard) = std::sync::mpsc::channel();
        db.watch_file(move |lost| hears.send(lost.map(str::to_owned)).unwrap());
        let store = Arc::new(SqliteSessions::new(db, Lines::default().report())).into_point();
        let set = |id: &str| store.set_config.unbounded((id.into(), KeptSession::default()));
        set("kept").await.unwrap();
        store.close.clone().unwrap().unbounded(()).await.unwrap();
        for at in 0..3 {
            set(&format!("before {at}")).await.unwrap();
        }
        let kept = fs::read(&path).unwrap();
        fs::File::options().write(true).open(&log).unwrap().set_len(length).unwrap();
        let sentence = format!(
            "{} was truncated while the host runs, so nothing more is stored; stop the host, restore the file or a \
             backup of it, and start it again",
            log.display()
        );
        assert_eq!(set("after").await.unwrap_err().message, sentence);
        assert_eq!(heard.try_recv(), Ok(Some(sentence.clone())), "it is told");
        assert_eq!(store.close.clone().unwrap().unbounded(()).await.unwrap_err().message, sentence);
        drop(store);
        // The threads of the database end by themselves.
        for _ in 0..200 {
            if !folder.path().join("state.db-shm").exists() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(fs::read(&path).unwrap() == kept, "the database is as it was before");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_that_is_moved_away_is_missed_though_nothing_is_written_and_taken_up_when_it_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let (path, away) = (folder.path().join("state.db"), folder.path().join("away.db"));
    let db = StateDb::open(folder.path()).unwrap();
    let (hears, heard) = std::sync::mpsc::channel();
    db.watch_file(move |lost| hears.send(lost.is_some()).unwrap());
    let store = Arc::new(SqliteSessions::new(db, Lines::default().report())).into_point();
    fs::rename(&path, &away).unwrap();
    let soon = std::time::Duration::from_secs(60);
    assert_eq!(heard.recv_timeout(soon), Ok(true));
    fs::rename(&away, &path).unwrap();
    assert_eq!(heard.recv_timeout(soon), Ok(false));
    store.set_config.unbounded(("s".into(), KeptSession::default())).await.unwrap();
    // Another program may make the file smaller, and it stays whole.
    for place in 0..50 {
        let set = store.set_turn.as_ref().unwrap();
        set.unbounded(("s".into(), "c".into(), place, turn(place as usize, 3000))).await.unwrap();
    }
    store.drop_turns.clone().unwrap().unbounded(("s".into(), "c".into(), 0)).await.unwrap();
    store.close.clone().unwrap().unbounded(()).await.unwrap();
    let long = fs::metadata(&path).unwrap().len();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    assert!(fs::metadata(&path).unwrap().len() < long);
    store.set_config.unbounded(("t".into(), KeptSession::default())).await.unwrap();
}

#[tokio::test]
async fn an_empty_file_beside_a_log_is_not_begun_anew() {
    let folder = tempfile::tempdir().unwrap();
    let store = sessions(folder.path());
    store.set_config.unbounded(("s".into(), KeptSession::default())).await.unwrap();
    let crashed = tempfile::tempdir().unwrap();
    fs::copy(folder.path().join("state.db-wal"), crashed.path().join("state.db-wal")).unwrap();
    fs::write(crashed.path().join("state.db"), "").unwrap();
    insta::assert_snapshot!(
        refusal(crashed.path()),
        @"/state.db is empty, but its log /state.db-wal is not: it was truncated; restore a backup, or move both away to start empty"
    );
}

#[tokio::test]
async fn sessions_of_an_older_database_are_listed_and_their_chats_found_and_its_runs_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    drop(sessions(folder.path()));
    let db = Connection::open(&path).unwrap();
    db.execute_batch(
        "DROP TRIGGER session_chats_stored; DROP TABLE session_chat_uris; DROP INDEX sessions_listed;
         DROP INDEX sessions_drafts; DROP INDEX session_chats_waiting; DROP TABLE session_reported;
         DROP TABLE unended_turns; DROP TRIGGER turns_begun; DROP TRIGGER turns_resumed; DROP TRIGGER turns_ended;
         DROP TRIGGER turns_removed;
         ALTER TABLE sessions DROP COLUMN draft; ALTER TABLE sessions DROP COLUMN listed_at; ALTER TABLE sessions DROP COLUMN uri;
         DROP TRIGGER automation_run_facts_added; DROP TRIGGER automation_run_facts_changed;
         DROP TRIGGER automation_run_facts_removed; DROP TABLE automation_run_facts; DROP TABLE automation_run_words;
         DROP TABLE automation_run_totals; DROP TRIGGER automation_runs_added; DROP TRIGGER automation_runs_changed;
         DROP TRIGGER automation_runs_removed; DROP INDEX automation_runs_ended;
         ALTER TABLE automation_runs DROP COLUMN ended_at;
         INSERT INTO automation_runs (uri, automation, ended, run) VALUES ('1', 'a', 1, '{'), ('2', 'a', 1, '{}'), ('3', 'a', 0, '{}');
         PRAGMA user_version = 5;",
    )
    .unwrap();
    let row = |id: &str, kept: &str| {
        db.execute("INSERT INTO sessions (id, kept) VALUES (?1, ?2)", [id, kept]).unwrap();
    };
    for (id, day) in [("a", 1), ("b", 3), ("c", 2)] {
        let modified_at = format!("2026-01-0{day}T00:00:00.000Z");
        let kept = KeptSession { uri: format!("echo:/{id}"), modified_at, ..KeptSession::default() };
        row(id, &serde_json::to_string(&kept).unwrap());
    }
    row("damaged", "{");
    row("unread", r#"{"uri":"echo:/unread","modifiedAt":"2026-01-09T00:00:00.000Z"}"#);
    row("odd", r#"{"uri":7,"modifiedAt":[1]}"#);
    let chats = [
        (
            "a",
            r#"[{"uri":"ahp-chat://default/ZQ","default":true},{"uri":"ahp-chat:/a2"},{"uri":"ahp-chat:/a3","closed":true}]"#,
        ),
        ("b", "["),
    ];
    for (id, chats) in chats {
        db.execute("INSERT INTO session_chats (session, chats) VALUES (?1, ?2)", [id, chats]).unwrap();
    }
    drop(db);

    let lines = Lines::default();
    let store = SqliteSessions::new(StateDb::open(folder.path()).unwrap(), lines.report());
    let store = Arc::new(store).into_point();
    let page = store.page.clone().unwrap();
    for _ in 0..2 {
        let listed = page.unbounded((3, None)).await.unwrap();
        assert_eq!(listed.iter().map(|listed| listed.id.as_str()).collect::<Vec<_>>(), ["b", "c", "a"]);
        assert_eq!(listed[0].chats, None, "chats that cannot be read are said when they are asked for");
    }
    let said = lines.taken("");
    assert_eq!(said.len(), 2, "each that cannot be read is reported once: {said:?}");
    let of = store.session_of_chat.clone().unwrap();
    let of = async |chat: &str| of.unbounded((chat.into(),)).await.unwrap();
    assert_eq!(of("ahp-chat:/a2").await.as_deref(), Some("a"));
    assert_eq!((of("ahp-chat:/a3").await, of("ahp-chat://default/ZQ").await), (None, None));
    let damaged = store.session.clone().unwrap().unbounded(("damaged".into(),)).await;
    assert!(damaged.unwrap_err().message.contains("damaged"));
    let totals = Connection::open(&path).unwrap().query_row(
        "SELECT automation, runs, bytes FROM automation_run_totals",
        [],
        |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)),
    );
    assert_eq!(totals.unwrap(), ("a".to_owned(), 2, 3));
}

/// What a future that needs no thread returns at its first poll.
fn immediately<T>(mut pending: Pending<T>) -> Option<Result<T, Thrown>> {
    match pending.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}

#[tokio::test]
async fn a_session_is_looked_up_on_its_callers_thread() {
    let folder = tempfile::tempdir().unwrap();
    let store = sessions(folder.path());
    store.set_config.unbounded(("s".into(), KeptSession::default())).await.unwrap();
    let session = store.session.clone().unwrap();
    let found = immediately(session.unbounded(("s".into(),))).expect("no thread is needed").unwrap();
    assert_eq!(found.map(|found| found.id).as_deref(), Some("s"));
    assert_eq!(immediately(session.unbounded(("free".into(),))), Some(Ok(None)));
}

#[tokio::test]
async fn a_draft_is_counted_and_not_listed() {
    let folder = tempfile::tempdir().unwrap();
    let store = sessions(folder.path());
    let session = |draft: Option<KeptDraft>| KeptSession {
        uri: "echo:/s".into(),
        modified_at: "2026-01-01T00:00:00.000Z".into(),
        draft,
        ..KeptSession::default()
    };
    let (count, page) = (store.count.clone().unwrap(), store.page.clone().unwrap());
    for (draft, listed) in [(Some(KeptDraft::default()), 0), (None, 1)] {
        store.set_config.unbounded(("s".into(), session(draft))).await.unwrap();
        assert_eq!(count.unbounded(()).await.unwrap(), 1);
        assert_eq!(page.unbounded((10, None)).await.unwrap().len(), listed);
    }
}

#[tokio::test]
async fn a_page_of_sessions_is_read_in_the_order_of_an_index() {
    let folder = tempfile::tempdir().unwrap();
    drop(sessions(folder.path()));
    let db = Connection::open(folder.path().join("state.db")).unwrap();
    let plan = |sql: &str| {
        let mut plan = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let rows = plan.query_map([], |row| row.get::<_, String>("detail")).unwrap();
        rows.map(Result::unwrap).collect::<Vec<_>>().join("; ")
    };
    let first = plan("SELECT id FROM sessions WHERE listed_at IS NOT NULL ORDER BY listed_at DESC, uri");
    let next = plan(
        "SELECT id FROM sessions WHERE listed_at <= '2026' AND (listed_at < '2026' OR uri > 'e')
         ORDER BY listed_at DESC, uri",
    );
    for plan in [first, next] {
        assert!(plan.contains("SEARCH sessions USING INDEX sessions_listed"), "{plan}");
        assert!(!plan.contains("TEMP B-TREE"), "{plan}");
    }
}

#[tokio::test]
async fn damage_is_said_where_it_is_met() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    let store = sessions(folder.path());
    store.set_config.unbounded(("s".into(), KeptSession::default())).await.unwrap();
    for place in 0..50 {
        let set = store.set_turn.as_ref().unwrap();
        set.unbounded(("s".into(), "c".into(), place, turn(place as usize, 3000))).await.unwrap();
    }
    // Into the one file, and then over the turns in it.
    Connection::open(&path).unwrap().query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(store);
    let mut bytes = fs::read(&path).unwrap();
    // Whole pages.
    let pages = bytes.len() / 4096;
    bytes[pages / 2 * 4096..pages * 3 / 4 * 4096].fill(0xAA);
    fs::write(&path, &bytes).unwrap();

    let store = sessions(folder.path());
    let refused =
        store.turns.as_ref().unwrap().unbounded(("s".into(), "c".into())).await.unwrap_err().message;
    insta::assert_snapshot!(refused.replace(&folder.path().display().to_string(), ""), @"/state.db is damaged: database disk image is malformed; stop the host and restore a backup, or move the file away to start empty");
    assert_eq!(store.sessions.unbounded(()).await.unwrap(), ["s"], "what is whole is still read");
}

#[tokio::test]
async fn a_session_that_cannot_be_read_hides_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let lines = Lines::default();
    let db = StateDb::open(folder.path()).unwrap();
    let problems = Problems::default();
    let report = lines.report().keeping(problems.clone());
    let store = Arc::new(SqliteSessions::new(db, report)).into_point();
    for id in ["a", "b"] {
        store.set_config.unbounded((id.into(), KeptSession::default())).await.unwrap();
    }
    let other = Connection::open(folder.path().join("state.db")).unwrap();
    other.execute("UPDATE sessions SET kept = '{}' WHERE id = 'a'", []).unwrap();
    let all = store.all.unwrap().unbounded(()).await.unwrap();
    assert_eq!(all.len(), 1);
    insta::assert_debug_snapshot!(lines.taken(""), @r#"
    [
        "cannot read the stored session a: missing field `uri` at line 1 column 2; skipped until it is fixed",
    ]
    "#);
    assert_eq!(problems.list()[0].place, "session a");
    insta::assert_snapshot!(store.config.unbounded(("a".into(),)).await.unwrap_err(), @"cannot read the stored session a: missing field `uri` at line 1 column 2");
    store.forget.unbounded(("a".into(),)).await.unwrap();
    assert_eq!(problems.list(), [], "it is gone");
}

#[test]
fn child() {
    let Some(folder) = crate::killed::folder() else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async move {
        let store = Arc::new(sessions(&folder));
        let begun = store.sessions.unbounded(()).await.unwrap().len();
        let mut writers = Vec::new();
        for writer in 0..4 {
            let store = store.clone();
            writers.push(tokio::spawn(async move {
                for round in begun.. {
                    let id = format!("{writer}-{round}");
                    // As one session is made: two writes together.
                    let kept = KeptSession { title: id.clone(), ..KeptSession::default() };
                    let chats = vec![KeptChat { uri: id.clone(), ..KeptChat::default() }];
                    let set = store.set_turn.as_ref().unwrap();
                    let made = tokio::join!(
                        store.set_config.unbounded((id.clone(), kept)),
                        store.set_chats.unbounded((id.clone(), chats)),
                        set.unbounded((id.clone(), "c".into(), 0, turn(round, round * 131 % 20_000))),
                    );
                    made.0.and(made.1).and(made.2).unwrap();
                    crate::killed::acknowledge(&id);
                }
            }));
        }
        for writer in writers {
            writer.await.unwrap();
        }
    });
}

#[tokio::test]
async fn a_killed_writer_loses_nothing_it_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged = Vec::new();
    for _ in 0..10 {
        acknowledged.extend(crate::killed::run_and_kill("state::child", folder.path()));
        let store = sessions(folder.path());
        let turns = store.turns.as_ref().unwrap();
        for id in &acknowledged {
            let kept = store.config.unbounded((id.clone(),)).await.unwrap().expect("the session is there");
            assert_eq!(&kept.title, id);
            assert_eq!(&store.chats.unbounded((id.clone(),)).await.unwrap()[0].uri, id);
            assert_eq!(turns.unbounded((id.clone(), "c".into())).await.unwrap().len(), 1);
        }
        // Whatever was not acknowledged is whole all the same.
        for session in store.all.as_ref().unwrap().unbounded(()).await.unwrap() {
            assert_eq!(session.session.title, session.id);
            turns.unbounded((session.id, "c".into())).await.unwrap();
        }
        let whole: String = Connection::open(folder.path().join("state.db"))
            .unwrap()
            .query_row("PRAGMA integrity_check", [], |row| row.get(0))
            .unwrap();
        assert_eq!(whole, "ok");
    }
    assert!(acknowledged.len() > 50, "{} is too few to tell", acknowledged.len());
}
