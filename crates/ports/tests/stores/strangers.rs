//! Files as nobody would write them: what reads is written back and reads the same, what does not is left as
//! it is, and what was kept before stays.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_contract::points::{AutomationStore, CollectionOptions, KeptAutomation, StoredCollection};
use ostler_contract::{JsonObject, Value, json};
use ostler_ports::{FileAutomations, FileRecords, StateDb, Watching};
use proptest::prelude::*;

/// What a person, a program or an accident may leave between the fences and below them.
fn fields() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        4 => ("[a-zA-Z_][a-zA-Z0-9_-]{0,8}", scalar()).prop_map(|(key, value)| format!("{key}: {value}")),
        1 => "[-a-z:#'\"{}\\[\\],&*!|> ]{0,20}",
        1 => "[^\n]{0,20}",
    ];
    prop::collection::vec(line, 0..6).prop_map(|lines| lines.join("\n"))
}

fn scalar() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z ]{0,12}",
        "-?[0-9]{1,20}(\\.[0-9]{1,4})?",
        "(true|false|null|~|yes|no|0x1f|1e3|\\.inf|\\.nan|2026-01-31)",
        "'[a-z: #]{0,8}'",
        "\"[a-z\\\\n]{0,6}\"",
        "\\[[a-z0-9, ]{0,10}\\]",
        "\\{ [a-z]{1,4}: [a-z0-9]{1,4} \\}",
        "\\|\n  [a-z ]{1,10}",
        "[^\n]{0,12}",
    ]
}

fn bytes(header: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let end = prop_oneof![Just("\n"), Just("\r\n")];
    let whole = (fields(), "([a-zA-Z #*{}.\u{e4}-]|\n|\r\n|---\n){0,40}", end)
        .prop_map(move |(fields, body, end)| {
            format!("---{end}{header}{fields}{end}---{end}{body}").into_bytes()
        })
        .boxed();
    let cut = (whole.clone(), any::<prop::sample::Index>()).prop_map(|(mut bytes, at)| {
        bytes.truncate(at.index(bytes.len() + 1));
        bytes
    });
    let spoilt =
        (whole.clone(), any::<prop::sample::Index>(), any::<u8>()).prop_map(|(mut bytes, at, with)| {
            let at = at.index(bytes.len());
            bytes[at] = with;
            bytes
        });
    prop_oneof![
        6 => whole,
        2 => cut,
        2 => spoilt,
        1 => prop::collection::vec(any::<u8>(), 0..60),
    ]
}

fn folder_of(header: &'static str) -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(bytes(header), 24..32)
}

fn write_all(folder: &Path, files: &[Vec<u8>]) {
    fs::create_dir_all(folder).unwrap();
    for (at, bytes) in files.iter().enumerate() {
        fs::write(folder.join(format!("f{at}.md")), bytes).unwrap();
    }
}

async fn notes(folder: &Path, watching: Watching) -> StoredCollection {
    let store = Arc::new(FileRecords::watched(folder, ostler_ports::Report::quiet(), watching)).into_point();
    let options = CollectionOptions { body: Some("text".to_owned()), ..CollectionOptions::default() };
    store.collection.unbounded(("notes".into(), options)).await.unwrap()
}

async fn listed(notes: &StoredCollection) -> BTreeMap<String, JsonObject> {
    let id = |record: &JsonObject| record["id"].as_str().unwrap().to_owned();
    notes.list.unbounded(()).await.unwrap().into_iter().map(|record| (id(&record), record)).collect()
}

async fn automations(folder: &Path) -> AutomationStore {
    let db = StateDb::open(folder).unwrap();
    Arc::new(FileAutomations::open(folder, db, ostler_ports::Report::quiet()).await.unwrap()).into_point()
}

async fn kept(store: &AutomationStore) -> BTreeMap<String, KeptAutomation> {
    store.list.unbounded(()).await.unwrap().into_iter().map(|kept| (kept.id.clone(), kept)).collect()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Whichever of the files are not among these ids are as they were written.
fn untouched<V>(folder: &Path, files: &[Vec<u8>], but: &BTreeMap<String, V>) {
    for (at, bytes) in files.iter().enumerate() {
        let id = format!("f{at}");
        if !but.contains_key(&id) {
            assert_eq!(&fs::read(folder.join(format!("{id}.md"))).unwrap(), bytes, "{id}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_record_that_reads_is_written_back_and_reads_the_same(files in folder_of("")) {
        runtime().block_on(async {
            let folder = tempfile::tempdir().unwrap();
            write_all(&folder.path().join("notes"), &files);
            let first = notes(folder.path(), Watching::Events).await;
            let mut read = listed(&first).await;
            for record in read.values_mut() {
                record.insert("again".to_owned(), json!("yes: it is"));
                first.put.unbounded((record.clone(),)).await.unwrap();
            }
            let second = notes(folder.path(), Watching::Events).await;
            assert_eq!(listed(&second).await, read);
            untouched(&folder.path().join("notes"), &files, &read);
        });
    }

    #[test]
    fn an_automation_that_reads_is_written_back_and_reads_the_same(files in folder_of("title: T\n")) {
        runtime().block_on(async {
            let folder = tempfile::tempdir().unwrap();
            write_all(&folder.path().join("automations"), &files);
            let first = automations(folder.path()).await;
            let mut read = kept(&first).await;
            for (id, automation) in &mut read {
                let patch = serde_json::from_value(json!({ "enabled": !automation.definition.enabled })).unwrap();
                let updated = first.update.unbounded((id.clone(), patch)).await.unwrap();
                assert_eq!(updated.definition.message, automation.definition.message);
                *automation = updated;
            }
            let second = automations(folder.path()).await;
            assert_eq!(kept(&second).await, read);
            untouched(&folder.path().join("automations"), &files, &read);
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    /// Whatever a file is overwritten with while the host runs, the record is there: the new one, or the old.
    #[test]
    fn no_bytes_lose_a_kept_record(files in folder_of("")) {
        runtime().block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let notes = notes(folder.path(), Watching::Every(Duration::from_millis(20))).await;
            let old = |id: &str| json!({ "id": id, "n": 1, "text": "kept" });
            for at in 0..files.len() {
                let record: JsonObject = old(&format!("f{at}")).as_object().cloned().unwrap();
                notes.put.unbounded((record,)).await.unwrap();
            }
            write_all(&folder.path().join("notes"), &files);
            // Read after all of them.
            fs::write(folder.path().join("notes/last.md"), "---\n---\n").unwrap();
            let end = Instant::now() + Duration::from_secs(20);
            loop {
                let read = listed(&notes).await;
                for (at, bytes) in files.iter().enumerate() {
                    assert!(read.contains_key(&format!("f{at}")), "f{at} is lost: {bytes:?}");
                }
                if read.contains_key("last") {
                    break;
                }
                assert!(Instant::now() < end, "the folder is not read again");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            // What a new start reads of a file is what is held now; of the others the old is.
            let fresh = listed(&again(folder.path()).await).await;
            for (id, record) in listed(&notes).await {
                match fresh.get(&id) {
                    Some(new) => assert!(&record == new || Value::Object(record) == old(&id), "{id}"),
                    None => assert_eq!(Value::Object(record), old(&id)),
                }
            }
            untouched(&folder.path().join("notes"), &files, &BTreeMap::<String, ()>::new());
        });
    }
}

async fn again(folder: &Path) -> StoredCollection {
    notes(folder, Watching::Events).await
}
