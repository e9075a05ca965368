//! Record files, from outside: what people and editors do to them.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::lines::Lines;
use ostler_contract::points::{ChangeType, CollectionOptions, RecordChange, RecordStore, StoredCollection};
use ostler_contract::{JsonObject, Value, json};
use ostler_ports::conformance::{Heard, Numbers, records_conformance, uncached_records_conformance};
use ostler_ports::{FileRecords, Watching, memory_records};

const POLLING: Watching = Watching::Every(Duration::from_millis(20));

struct Kept {
    folder: tempfile::TempDir,
    store: RecordStore,
    lines: Lines,
}

impl Kept {
    fn new(watching: Watching) -> Self {
        Self::in_folder(tempfile::tempdir().unwrap(), watching)
    }

    fn in_folder(folder: tempfile::TempDir, watching: Watching) -> Self {
        let lines = Lines::default();
        let store = Arc::new(FileRecords::watched(folder.path(), lines.report(), watching)).into_point();
        Self { folder, store, lines }
    }

    async fn open(&self, name: &str) -> StoredCollection {
        self.open_with(name, None).await.unwrap()
    }

    async fn open_with(&self, name: &str, body: Option<&str>) -> Result<StoredCollection, String> {
        let options = CollectionOptions { body: body.map(str::to_owned), ..CollectionOptions::default() };
        self.store.collection.unbounded((name.into(), options)).await.map_err(|thrown| thrown.message)
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
        fs::write(self.path(path), text).unwrap();
    }

    /// Writes so that no half of it is ever read.
    fn edit(&self, path: &str, text: &str) {
        crate::edits::write(&self.path(path), text);
    }

    /// Writes as careful editors do: another file in its place.
    fn replace(&self, path: &str, text: &str) {
        let temporary = self.path(&format!("{path}.swp"));
        fs::write(&temporary, text).unwrap();
        fs::rename(temporary, self.path(path)).unwrap();
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    fn lines(&self) -> Vec<String> {
        self.lines.taken(&self.folder.path().display().to_string())
    }

    /// Waits for a line to be reported.
    async fn line(&self) -> Vec<String> {
        let mut lines = Vec::new();
        until(|| {
            lines.extend(self.lines());
            !lines.is_empty()
        })
        .await;
        lines
    }
}

async fn until(mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "it does not come");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn record(value: Value) -> JsonObject {
    match value {
        Value::Object(record) => record,
        _ => panic!("no record"),
    }
}

async fn get(collection: &StoredCollection, id: &str) -> Option<Value> {
    collection.get.unbounded((id.into(),)).await.unwrap().map(Value::Object)
}

async fn put(collection: &StoredCollection, value: Value) {
    collection.put.unbounded((record(value),)).await.unwrap();
}

async fn watch(collection: &StoredCollection) -> Heard<RecordChange> {
    let heard = Heard::default();
    collection.watch.unbounded((heard.listener(),)).await.unwrap();
    heard
}

fn change(id: &str, how: ChangeType) -> RecordChange {
    RecordChange { id: id.into(), r#type: how }
}

#[tokio::test]
async fn files_do_what_a_store_does() {
    records_conformance(Kept::new(Watching::Events).store, Numbers::Exact).await;
}

#[tokio::test]
async fn files_compared_do_what_a_store_does() {
    records_conformance(Kept::new(Watching::Every(Duration::from_millis(1))).store, Numbers::Exact).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_are_not_cached_do_what_a_store_does() {
    uncached_records_conformance(Kept::new(Watching::Events).store, Numbers::Exact).await;
}

#[tokio::test]
async fn records_that_are_not_cached_are_read_for_each_call() {
    let kept = Kept::new(Watching::Events);
    let open = |uncached| {
        let options = CollectionOptions { uncached, ..CollectionOptions::default() };
        kept.store.collection.unbounded(("large".to_owned(), options))
    };
    let large = open(Some(true)).await.unwrap();
    large.put.unbounded((json!({ "id": "a", "n": 1 }).as_object().cloned().unwrap(),)).await.unwrap();
    fs::write(kept.path("large/a.md"), "---\nid: a\nn: 2\n---\n").unwrap();
    fs::write(kept.path("large/b.md"), "---\nn: [\n---\n").unwrap();
    let get = |id: &str| large.get.unbounded((id.to_owned(),));
    assert_eq!(get("a").await.unwrap().unwrap()["n"], 2);
    let why = get("b").await.unwrap_err().message;
    assert!(why.contains("large/b.md: "), "{why}");
    assert_eq!(large.list.unbounded(()).await.unwrap().len(), 1, "what cannot be read is left out");
    let ids = large.ids.as_ref().unwrap();
    assert_eq!(ids.unbounded(()).await.unwrap(), ["a", "b"], "no file is read for its id");
    assert_eq!(
        open(None).await.unwrap_err().message,
        "records large is already open and uncached; open it with the same option uncached"
    );
}

#[tokio::test]
async fn memory_does_what_a_store_does() {
    records_conformance(memory_records(), Numbers::Exact).await;
}

#[tokio::test]
async fn names_that_are_refused() {
    let kept = Kept::new(Watching::Events);
    let mut refused = Vec::new();
    let long = "n".repeat(41);
    for name in [
        "sessions",
        "usage",
        "automations",
        "agentPlugins",
        "node_modules",
        "Notes",
        "../notes",
        "",
        "1st",
        &long,
    ] {
        refused.push(kept.open_with(name, None).await.unwrap_err());
        assert!(
            memory_records().collection.unbounded((name.into(), CollectionOptions::default())).await.is_err()
        );
    }
    insta::assert_debug_snapshot!(refused, @r#"
    [
        "records sessions cannot be opened: the name is reserved for the host",
        "records usage cannot be opened: the name is reserved for the host",
        "records automations cannot be opened: the name is reserved for the host",
        "records agentPlugins cannot be opened: the name is reserved for the host",
        "records node_modules cannot be opened: the name is reserved for the host",
        "records Notes cannot be opened: the name must be a slug: lowercase letters, digits and dashes, 1 to 40 characters, starting with a letter",
        "records ../notes cannot be opened: the name must be a slug: lowercase letters, digits and dashes, 1 to 40 characters, starting with a letter",
        "records  cannot be opened: the name must be a slug: lowercase letters, digits and dashes, 1 to 40 characters, starting with a letter",
        "records 1st cannot be opened: the name must be a slug: lowercase letters, digits and dashes, 1 to 40 characters, starting with a letter",
        "records nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn cannot be opened: the name must be a slug: lowercase letters, digits and dashes, 1 to 40 characters, starting with a letter",
    ]
    "#);
    kept.open_with(&long[1..], None).await.unwrap();
    kept.open_with("notes", Some("text")).await.unwrap();
    insta::assert_snapshot!(kept.open_with("notes", None).await.unwrap_err(), @"records notes is already open with body text; cannot open it with body none");
}

#[tokio::test]
async fn a_record_is_a_file() {
    let kept = Kept::new(Watching::Events);
    let notes = kept.open_with("notes", Some("text")).await.unwrap();
    assert!(!kept.path("notes").exists(), "a folder is made with the first record");
    put(&notes, json!({ "title": "Milk", "id": "first", "text": "# Milk\n", "tags": ["a", "yes"] })).await;
    insta::assert_snapshot!(kept.read("notes/first.md"), @r#"
    ---
    title: Milk
    id: first
    tags:
    - a
    - "yes"
    ---
    # Milk
    "#);

    assert!(kept.open_with("odd", Some("id")).await.is_err(), "a body is no id");
    let plain = kept.open("threads").await;
    put(&plain, json!({ "id": "one", "chat": "ahp-chat:/1" })).await;
    insta::assert_snapshot!(kept.read("threads/one.md"), @"
    ---
    id: one
    chat: ahp-chat:/1
    ---
    ");
    put(&plain, json!({ "id": "none" })).await;
    assert_eq!(kept.read("threads/none.md"), "---\nid: none\n---\n");
    assert_eq!(kept.lines(), [""; 0]);

    // An unchanged record leaves the file as a person wrote it.
    let text = "---\n# mine\nid: one\nchat: 'ahp-chat:/1'\n---\n";
    kept.write("threads/one.md", text);
    put(&plain, json!({ "id": "one", "chat": "ahp-chat:/1" })).await;
    assert_eq!(kept.read("threads/one.md"), text);

    let id = "the-end".to_owned();
    plain.remove.unbounded((id.clone(),)).await.unwrap();
    put(&plain, json!({ "id": id })).await;
    plain.remove.unbounded((id,)).await.unwrap();
    assert!(!kept.path("threads/the-end.md").exists());
    let mut deep = json!(1);
    for _ in 0..150 {
        deep = json!([deep]);
    }
    let refused = plain.put.unbounded((record(json!({ "id": "deep", "deep": deep })),)).await.unwrap_err();
    assert!(refused.message.contains("cannot store deep"), "{refused}");
    assert!(!kept.path("threads/deep.md").exists());
}

#[tokio::test]
async fn what_is_there_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let kept = Kept::in_folder(folder, Watching::Events);
    kept.write("notes/no-id.md", "\u{feff}---\r\ntitle: Milk\r\n---\r\nlines\r\nof it\r\n");
    kept.write("notes/other.md", "---\nid: another\n---\n");
    kept.write("notes/broken.md", "---\nid: broken\ntitle: a: b\n---\n");
    kept.write("notes/README.md", "# About these\n");
    kept.write("notes/plain.md", "# No fields\n");
    kept.write("notes/doubled.md", "---\ntext: among them\n---\nand below\n");
    kept.write("notes/.hidden.md", "---\n");
    kept.write("notes/notes.txt", "nothing");
    fs::create_dir(kept.path("notes/folder.md")).unwrap();
    fs::write(kept.path("notes/latin.md"), b"---\nid: latin\ntitle: \xe4\n---\n").unwrap();

    let notes = kept.open_with("notes", Some("text")).await.unwrap();
    assert_eq!(
        notes.list.unbounded(()).await.unwrap(),
        [record(json!({ "id": "no-id", "title": "Milk", "text": "lines\nof it\n" }))]
    );
    insta::assert_debug_snapshot!(kept.lines(), @r#"
    [
        "/notes/README.md: the file name must be the record's id, a slug: lowercase letters, digits and dashes, 1 to 40 characters, starting with a letter; ignored",
        "/notes/broken.md: line 3, column 9: mapping values are not allowed in this context; skipped until the file is fixed",
        "/notes/doubled.md: text is the Markdown body and must not be in the frontmatter; skipped until the file is fixed",
        "/notes/latin.md: line 3: not UTF-8 text; skipped until the file is fixed",
        "/notes/other.md: id another does not match the file name other; skipped until the file is fixed",
        "/notes/plain.md: line 1, column 1: the file must begin with frontmatter between two lines of ---; skipped until the file is fixed",
    ]
    "#);
    // A broken file was no record, and is left to the person who wrote it.
    assert_eq!(notes.remove.unbounded(("broken".into(),)).await, Ok(false));
    assert!(kept.path("notes/broken.md").exists());
    put(&notes, json!({ "id": "broken", "title": "mended" })).await;
    assert_eq!(get(&notes, "broken").await, Some(json!({ "id": "broken", "title": "mended", "text": "" })));
}

/// Every way of editing, with the system's events and without.
async fn edits(watching: Watching) {
    let kept = Kept::new(watching);
    let notes = kept.open("notes").await;
    let heard = watch(&notes).await;
    put(&notes, json!({ "id": "a", "n": 0 })).await;
    assert_eq!(heard.next().await, change("a", ChangeType::Added));

    kept.edit("notes/a.md", "---\nid: a\nn: 1\n---\n");
    assert_eq!(heard.next().await, change("a", ChangeType::Updated));
    assert_eq!(get(&notes, "a").await, Some(json!({ "id": "a", "n": 1 })));
    kept.replace("notes/a.md", "---\nid: a\nn: 2\n---\n");
    assert_eq!(heard.next().await, change("a", ChangeType::Updated));
    assert_eq!(get(&notes, "a").await, Some(json!({ "id": "a", "n": 2 })));

    kept.edit("notes/b.md", "---\nn: 1\n---\n");
    assert_eq!(heard.next().await, change("b", ChangeType::Added));
    fs::rename(kept.path("notes/b.md"), kept.path("notes/c.md")).unwrap();
    let mut both = [heard.next().await, heard.next().await];
    both.sort_by(|one, other| one.id.cmp(&other.id));
    assert_eq!(both, [change("b", ChangeType::Deleted), change("c", ChangeType::Added)]);
    fs::remove_file(kept.path("notes/c.md")).unwrap();
    assert_eq!(heard.next().await, change("c", ChangeType::Deleted));
    assert_eq!(get(&notes, "c").await, None);
    assert_eq!(kept.lines(), [""; 0]);

    // The record it had is kept while the file does not read.
    kept.edit("notes/a.md", "---\nid: a\nn: [2\n---\n");
    let said = kept.line().await;
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].starts_with("/notes/a.md: line "), "{said:?}");
    assert!(said[0].ends_with("; keeping the last valid version until the file is fixed"), "{said:?}");
    assert_eq!(get(&notes, "a").await, Some(json!({ "id": "a", "n": 2 })));
    kept.edit("notes/a.md", "---\nid: other\n---\n");
    assert_eq!(
        kept.line().await,
        [
            "/notes/a.md: id other does not match the file name a; keeping the last valid version until the file is fixed"
        ]
    );
    kept.edit("notes/a.md", "---\nid: a\nn: 3\n---\n");
    assert_eq!(heard.next().await, change("a", ChangeType::Updated));

    // The folder goes, and comes again.
    fs::rename(kept.path("notes"), kept.path("elsewhere")).unwrap();
    assert_eq!(heard.next().await, change("a", ChangeType::Deleted));
    assert_eq!(notes.list.unbounded(()).await, Ok(vec![]));
    kept.edit("notes/d.md", "---\nn: 1\n---\n");
    assert_eq!(heard.next().await, change("d", ChangeType::Added));
    kept.edit("notes/d.md", "---\nn: 2\n---\n");
    assert_eq!(heard.next().await, change("d", ChangeType::Updated));
    kept.edit("elsewhere/a.md", "---\nn: 9\n---\n");
    fs::remove_dir_all(kept.path("notes")).unwrap();
    assert_eq!(heard.next().await, change("d", ChangeType::Deleted));
    put(&notes, json!({ "id": "e" })).await;
    assert_eq!(heard.next().await, change("e", ChangeType::Added));
    kept.edit("notes/e.md", "---\nn: 1\n---\n");
    assert_eq!(heard.next().await, change("e", ChangeType::Updated));
    assert_eq!(heard.unheard(), []);
    assert_eq!(kept.lines(), [""; 0]);
}

#[tokio::test]
async fn edits_the_system_tells_of() {
    edits(Watching::Events).await;
}

#[tokio::test]
async fn edits_nobody_tells_of() {
    edits(POLLING).await;
}

#[tokio::test]
async fn own_writes_are_told_once() {
    let kept = Kept::new(POLLING);
    let notes = kept.open("notes").await;
    let heard = watch(&notes).await;
    for n in 0..200 {
        put(&notes, json!({ "id": "a", "n": n })).await;
    }
    // An edit from outside comes after whatever else would be told.
    kept.write("notes/last.md", "---\n---\n");
    let mut told = Vec::new();
    loop {
        let next = heard.next().await;
        if next.id == "last" {
            break;
        }
        told.push(next.r#type);
    }
    assert_eq!(told.len(), 200);
    assert_eq!(told.iter().filter(|how| **how == ChangeType::Added).count(), 1);
}

#[tokio::test]
async fn json_is_converted_once() {
    let kept = Kept::new(Watching::Events);
    kept.write("notes/a.json", r#"{ "id": "a", "text": "body", "n": 1.5 }"#);
    kept.write("notes/b.json", r#"{ "n": 2 }"#);
    kept.write("notes/c.json", r#"{ "n": 3 }"#);
    kept.write("notes/c.md", "---\nn: 4\n---\n");
    kept.write("notes/d.json", r#"{ "id": "other" }"#);
    kept.write("notes/e.json", "{ broken");
    kept.write("notes/package.lock.json", "{}");
    let notes = kept.open_with("notes", Some("text")).await.unwrap();
    assert_eq!(
        notes.list.unbounded(()).await.unwrap(),
        [
            record(json!({ "id": "a", "n": 1.5, "text": "body" })),
            record(json!({ "id": "b", "n": 2, "text": "" })),
            record(json!({ "id": "c", "n": 4, "text": "" })),
        ]
    );
    let mut files: Vec<_> = fs::read_dir(kept.path("notes"))
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    insta::assert_debug_snapshot!(files, @r#"
    [
        "a.json.migrated",
        "a.md",
        "b.json.migrated",
        "b.md",
        "c.json",
        "c.md",
        "d.json",
        "e.json",
        "package.lock.json",
    ]
    "#);
    let mut lines = kept.lines();
    lines.sort();
    insta::assert_debug_snapshot!(lines, @r#"
    [
        "/notes/d.json: id other does not match the file name d; not converted until the file is fixed",
        "/notes/e.json: key must be a string at line 1 column 3; not converted until the file is fixed",
    ]
    "#);
}

/// Enough records for an index, which has to answer as looking at each of them does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_records_are_found_as_few_are() {
    let kept = Kept::new(Watching::Events);
    let of = |number: usize, turn: usize| {
        json!({
            "id": format!("r{number}"), "kind": number * turn % 3, "half": (number % 2) as f64, "at": [number % 5],
            "own": format!("o{number}"), "none": if number.is_multiple_of(7) { json!(null) } else { json!(number % 4) },
        })
    };
    for number in 0..1500 {
        kept.write(&format!("many/r{number}.md"), &format!("---\n{}\n---\n", of(number, 1)));
    }
    let (many, memory) = (kept.open("many").await, memory_records());
    let memory = memory.collection.unbounded(("many".into(), CollectionOptions::default())).await.unwrap();
    for number in 0..1500 {
        put(&memory, of(number, 1)).await;
    }
    let searches = [
        json!({}),
        json!({ "kind": 1 }),
        json!({ "kind": 2.0, "half": 0 }),
        json!({ "own": "o77" }),
        json!({ "none": null }),
        json!({ "own": "o78", "kind": 9 }),
        json!({ "at": [3], "half": 1 }),
        json!({ "missing": null }),
        json!({ "id": "r9" }),
    ];
    // Fields are indexed while records change.
    let changing = tokio::spawn({
        let many = many.clone();
        async move {
            for number in 0..200 {
                put(
                    &many,
                    json!({ "id": format!("z{number}"), "kind": 1, "own": format!("z{}", number % 3) }),
                )
                .await;
                if number >= 3 {
                    many.remove.unbounded((format!("z{}", number - 3),)).await.unwrap();
                }
            }
            for number in 197..200 {
                many.remove.unbounded((format!("z{number}"),)).await.unwrap();
            }
        }
    });
    many.find.unbounded((record(json!({ "own": "z1", "kind": 1 })),)).await.unwrap();
    changing.await.unwrap();
    assert!(many.find.unbounded((record(json!({ "own": "z1" })),)).await.unwrap().is_empty());
    for turn in 1..4 {
        for wanted in &searches {
            let found = many.find.unbounded((record(wanted.clone()),)).await.unwrap();
            assert_eq!(
                found,
                {
                    let mut same = memory.find.unbounded((record(wanted.clone()),)).await.unwrap();
                    same.sort_by(|one, other| one["id"].as_str().cmp(&other["id"].as_str()));
                    same
                },
                "{wanted}"
            );
        }
        for number in (0..1500).step_by(37) {
            for store in [&many, &memory] {
                put(store, of(number, turn + 1)).await;
                store.remove.unbounded((format!("r{}", number + turn),)).await.unwrap();
            }
        }
        // By hand, too.
        let id = format!("hand{turn}");
        kept.write(&format!("many/{id}.md"), "---\nkind: 1\nown: o77\n---\n");
        put(&memory, json!({ "id": id, "kind": 1, "own": "o77" })).await;
        let deadline = Instant::now() + Duration::from_secs(20);
        while get(&many, &id).await.is_none() {
            assert!(Instant::now() < deadline, "an edit is not noticed");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

#[tokio::test]
async fn opening_holds_no_other_collection_up() {
    let kept = Kept::new(Watching::Events);
    for number in 0..1000 {
        kept.write(&format!("slow/r{number}.md"), &format!("---\nn: {number}\n---\n"));
    }
    // So much to read that it takes until there is no more of it; on the disk it is nothing.
    let large: Vec<PathBuf> = (0..1000).map(|number| kept.path(&format!("slow/large{number}.md"))).collect();
    for path in &large {
        fs::File::create(path).unwrap().set_len(16 << 20).unwrap();
    }
    let slow = kept.open("slow");
    tokio::pin!(slow);
    assert!(poll_once(slow.as_mut()).is_none());
    let quick = kept.open("quick").await;
    put(&quick, json!({ "id": "a" })).await;
    assert!(poll_once(slow.as_mut()).is_none(), "too little to tell");
    for path in &large {
        fs::remove_file(path).unwrap();
    }
    assert_eq!(slow.await.list.unbounded(()).await.unwrap().len(), 1000);
}

fn poll_once<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
    match future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
        std::task::Poll::Ready(value) => Some(value),
        std::task::Poll::Pending => None,
    }
}

#[cfg(unix)]
#[tokio::test]
async fn what_cannot_be_read_is_not_forgotten() {
    use std::os::unix::fs::symlink;
    let kept = Kept::new(POLLING);
    let notes = kept.open("notes").await;
    put(&notes, json!({ "id": "a", "n": 1 })).await;
    // A link is followed; one that leads round in a circle cannot be.
    let elsewhere = kept.path("elsewhere.md");
    fs::write(&elsewhere, "---\nn: 2\n---\n").unwrap();
    symlink(&elsewhere, kept.path("notes/link.md")).unwrap();
    let heard = watch(&notes).await;
    assert_eq!(heard.next().await, change("link", ChangeType::Added));
    put(&notes, json!({ "id": "link", "v": 3 })).await;
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "---\nid: link\nv: 3\n---\n");

    fs::remove_file(kept.path("notes/a.md")).unwrap();
    symlink(kept.path("notes/a.md"), kept.path("notes/a.md")).unwrap();
    let said = kept.line().await;
    assert!(said[0].contains("keeping the last valid version"), "{said:?}");
    assert_eq!(get(&notes, "a").await, Some(json!({ "id": "a", "n": 1 })));
}

/// A sequence of numbers that looks random and is the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// Whatever people and plugins do at once: memory ends up as the folder is, and watchers were told a story that
/// leads there.
async fn agrees_in_the_end(watching: Watching, seed: u64) {
    let kept = Kept::new(watching);
    let notes = kept.open("notes").await;
    let heard = watch(&notes).await;
    let mut dice = Dice(seed);
    let (mut calls, mut removals) = (Vec::new(), Vec::new());
    for step in 0..400 {
        let id = format!("r{}", dice.roll(8));
        let file = format!("notes/{id}.md");
        match dice.roll(12) {
            0..4 => calls.push(tokio::spawn(notes.put.unbounded((record(json!({ "id": id, "n": step })),)))),
            4 => removals.push(tokio::spawn(notes.remove.unbounded((id,)))),
            5..7 => kept.write(&file, &format!("---\nid: {id}\nn: {step}\n---\n")),
            7 => kept.write(&file, &format!("---\nid: {id}\nn: [{step}\n---\n")),
            8 => drop(fs::remove_file(kept.path(&file))),
            9 if kept.path("notes").exists() => kept.replace(&file, &format!("---\nn: {step}\n---\n")),
            10 => drop(fs::rename(kept.path(&file), kept.path(&format!("notes/r{}.md", dice.roll(8))))),
            11 if dice.roll(8) == 0 => drop(fs::remove_dir_all(kept.path("notes"))),
            // Less than 20 ms: the watcher sees any part of the steps.
            _ => tokio::time::sleep(Duration::from_millis(dice.roll(20))).await,
        }
    }
    for call in calls {
        // The folder may be removed under a write; then it says so.
        let _ = call.await.unwrap();
    }
    // A removal that came late would take a file of the last edits.
    for removal in removals {
        let _ = removal.await.unwrap();
    }
    // One more edit each makes every file readable, and ends what is told of it.
    for number in 0..8 {
        kept.write(&format!("notes/r{number}.md"), &format!("---\nlast: {number}\n---\n"));
    }
    let last = |number: usize| json!({ "id": format!("r{number}"), "last": number });
    let deadline = Instant::now() + Duration::from_secs(20);
    while {
        let all = notes.list.unbounded(()).await.unwrap();
        all != (0..8).map(|number| record(last(number))).collect::<Vec<_>>()
    } {
        assert!(Instant::now() < deadline, "seed {seed}: memory is not as the folder is");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    put(&notes, json!({ "id": "end" })).await;
    let mut there = std::collections::HashSet::new();
    loop {
        let change = heard.next().await;
        if change.id == "end" {
            break;
        }
        let told = format!("seed {seed}: {change:?}");
        match change.r#type {
            ChangeType::Added => assert!(there.insert(change.id), "{told}"),
            ChangeType::Updated => assert!(there.contains(&change.id), "{told}"),
            ChangeType::Deleted => assert!(there.remove(&change.id), "{told}"),
        }
    }
    assert_eq!(there.len(), 8, "seed {seed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_and_folder_agree_in_the_end() {
    for seed in 0..6 {
        agrees_in_the_end(Watching::Events, seed).await;
        agrees_in_the_end(POLLING, seed).await;
    }
}

#[test]
fn child() {
    let Some(folder) = crate::killed::folder() else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async move {
        let store = Arc::new(FileRecords::new(&folder, Lines::default().report())).into_point();
        let options = CollectionOptions { body: Some("text".into()), ..CollectionOptions::default() };
        let notes = store.collection.unbounded(("notes".into(), options)).await.unwrap();
        let begun = notes.list.unbounded(()).await.unwrap().len();
        for round in begun.. {
            let puts: Vec<_> = (0..3)
                .map(|part| {
                    let id = format!("r{round}-{part}");
                    let text = "x".repeat(round * 7919 % 100_000);
                    (
                        id.clone(),
                        notes.put.unbounded((record(json!({ "id": id, "size": text.len(), "text": text })),)),
                    )
                })
                .collect();
            for (id, put) in puts {
                put.await.unwrap();
                crate::killed::acknowledge(&id);
            }
        }
    });
}

#[tokio::test]
async fn a_killed_writer_loses_nothing_it_acknowledged() {
    let mut kept = Kept::new(Watching::Events);
    let mut acknowledged = Vec::new();
    for _ in 0..10 {
        acknowledged.extend(crate::killed::run_and_kill("records::child", kept.folder.path()));
        kept = Kept::in_folder(kept.folder, Watching::Events);
        let notes = kept.open_with("notes", Some("text")).await.unwrap();
        for record in notes.list.unbounded(()).await.unwrap() {
            assert_eq!(record["size"], record["text"].as_str().unwrap().len(), "{} is cut", record["id"]);
        }
        for id in &acknowledged {
            assert!(get(&notes, id).await.is_some(), "{id} is gone");
        }
        assert_eq!(kept.lines(), [""; 0], "what a killed writer leaves is nobody's concern");
    }
    assert!(acknowledged.len() > 30, "{} is too few to tell", acknowledged.len());
}
