//! Hosts that move from files to a real PostgreSQL and back, and the commands that use its database. `.ci/postgres` runs these
//! tests.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use crate::support::{Client, Daemon, Ended, Folder};
use ostler::migrate::copy;
use ostler_contract::points::{
    AutomationProgress, CollectionOptions, KeptAttachment, KeptChat, KeptSession, KeptTurn, SessionFlags,
    UsageEntry,
};
use ostler_contract::protocol::wire::state::{AutomationDefinition, AutomationRunState, Turn};
use ostler_contract::stores::transfer::Transfer;
use ostler_contract::{JsonObject, Value, json};
use ostler_plugin_postgres::{Direct, ExclusiveSchema};
use ostler_ports::{
    Bodies, FileAutomations, FilePolicies, FileRecords, FileTransfer, FileVault, SqliteSessions, SqliteUsage,
    StateDb,
};
use ostler_testkit::postgres::{PASSWORD, Postgres};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use rusqlite::types::Value as Sql;

const TOKEN: &str = "the-token";

/// Tables of the state database whose rows follow from others, or are an index.
const DERIVED: [&str; 3] = ["automation_run_totals", "automation_run_words", "sqlite_sequence"];

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z ]{0,12}", "\\PC{0,20}", Just("a\u{0}b\n---\nc: d'\"".to_owned())]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e9..1e9_f64).prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,6}", inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn fields() -> impl Strategy<Value = JsonObject> {
    prop::collection::btree_map("[a-z]{3,8}", value(), 0..4)
        .prop_map(|fields| fields.into_iter().filter(|(name, _)| name != "instructions").collect())
}

/// What a host has stored.
#[derive(Debug, Clone)]
struct Content {
    secrets: BTreeMap<String, String>,
    policies: Vec<String>,
    records: BTreeMap<(String, String), JsonObject>,
    bots: BTreeMap<String, String>,
    automations: BTreeMap<String, (String, String, Option<String>)>,
    runs: Vec<(u8, u8, JsonObject)>,
    sessions: Vec<(String, bool, Value, Vec<(u8, Vec<String>)>)>,
    attachments: Vec<Vec<u8>>,
    usage: Vec<(u64, f64)>,
}

fn content() -> impl Strategy<Value = Content> {
    let names = || "[a-z][a-z0-9-]{0,8}";
    let stored = (
        prop::collection::btree_map("host:[a-z]{1,8}", "[!-~]{1,40}", 0..4),
        prop::collection::hash_set(names(), 0..5).prop_map(|ids| ids.into_iter().collect()),
        prop::collection::btree_map(
            (prop_oneof![Just("notes".to_owned()), Just("webhooks".to_owned()), names()], names()),
            fields(),
            0..8,
        ),
        prop::collection::btree_map(names(), text(), 0..3),
        prop::collection::btree_map(
            "[a-z0-9][A-Za-z0-9_-]{0,8}",
            ("[a-z]{1,12}", text(), prop::option::of(Just("user:ada".to_owned()))),
            1..5,
        ),
    );
    let written = (
        prop::collection::vec((0..4_u8, 0..5_u8, fields()), 0..40),
        prop::collection::vec(
            (
                text(),
                any::<bool>(),
                value(),
                prop::collection::vec((0..3_u8, prop::collection::vec(text(), 0..4)), 0..3),
            ),
            0..6,
        ),
        prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..4),
        prop::collection::vec((0..1000_u64, 0.0..9.0_f64), 0..20),
    );
    (stored, written).prop_map(
        |((secrets, policies, records, bots, automations), (runs, sessions, attachments, usage))| Content {
            secrets,
            policies,
            records: records
                .into_iter()
                .filter(|((collection, _), _)| {
                    !["sessions", "usage", "automations", "wire", "bots"].contains(&collection.as_str())
                })
                .collect(),
            bots,
            automations,
            runs,
            sessions,
            attachments,
            usage,
        },
    )
}

fn object(value: Value) -> JsonObject {
    value.as_object().unwrap().clone()
}

fn bodies() -> Bodies {
    Bodies::from([("bots".to_owned(), Some("instructions".to_owned()))])
}

fn run(number: usize, automation: &str, state: u8, event: &JsonObject) -> AutomationRunState {
    let at = jiff::Timestamp::new(1_790_000_000 + number as i64, 0).unwrap();
    let at = at.strftime("%Y-%m-%dT%H:%M:%S.000Z").to_string();
    let status = ["pending", "running", "completed", "failed", "cancelled"][usize::from(state)];
    let mut lifecycle = json!({ "status": status, "createdAt": at });
    if state > 0 {
        lifecycle["startedAt"] = at.as_str().into();
    }
    if state > 1 {
        lifecycle["completedAt"] = at.as_str().into();
    }
    if state == 3 {
        lifecycle["error"] = json!({ "errorType": "x", "message": "no\u{0} oats" });
    }
    let origin = json!({ "kind": "trigger", "triggerId": "t", "event": event });
    serde_json::from_value(json!({
        "resource": format!("ahp-automation-run:/r{number}"), "automation": format!("ahp-automation:/{automation}"),
        "origin": origin, "lifecycle": lifecycle, "sessions": [], "_meta": { "ostler.owner": "team:ops" },
    }))
    .unwrap()
}

fn turn(id: &str, text: &str) -> KeptTurn {
    let turn = json!({
        "id": id, "message": { "text": text, "origin": { "kind": "user" } }, "state": "complete", "responseParts": [],
    });
    let turn: Turn = serde_json::from_value(turn).unwrap();
    KeptTurn {
        turn,
        unended: false,
        charged_usage: None,
        broken: false,
        sender: Some("user:ada".into()),
        transcript_id: Some("x".into()),
    }
}

/// Fills the stores of a host through the functions that a host calls.
async fn fill(folder: &Path, content: &Content) {
    let db = StateDb::open(&folder.join("state")).unwrap();
    let quiet = ostler_ports::Report::quiet;
    let sessions = Arc::new(SqliteSessions::new(db.clone(), quiet())).into_point();
    let usage = Arc::new(SqliteUsage::new(db.clone(), quiet())).into_point();
    let automations = FileAutomations::open(folder, db, quiet()).await.unwrap();
    let automations = Arc::new(automations).into_point();
    let records = Arc::new(FileRecords::new(folder, quiet())).into_point();
    let vault = Arc::new(FileVault::new(folder, quiet()).unwrap()).into_point();
    let policies = Arc::new(FilePolicies::new(folder)).into_point();
    for (name, value) in &content.secrets {
        vault.set.unbounded((name.clone(), value.clone())).await.unwrap();
    }
    for (at, id) in content.policies.iter().enumerate() {
        let effect = ["allow", "deny"][at % 2];
        let row = json!({ "id": id, "scope": "all", "kind": "agent", "effect": effect, "match": { "agent": ["echo"] } });
        policies.put.unbounded((object(row),)).await.unwrap();
    }
    for ((collection, id), fields) in &content.records {
        let options = CollectionOptions::default();
        let opened = records.collection.unbounded((collection.clone(), options)).await.unwrap();
        let mut record = fields.clone();
        record.insert("id".into(), id.as_str().into());
        opened.put.unbounded((record,)).await.unwrap();
    }
    for (id, text) in &content.bots {
        let options = CollectionOptions { body: Some("instructions".into()), ..CollectionOptions::default() };
        let opened = records.collection.unbounded(("bots".into(), options)).await.unwrap();
        opened.put.unbounded((object(json!({ "id": id, "instructions": text, "n": 1 })),)).await.unwrap();
    }
    for (id, (title, text, owner)) in &content.automations {
        let definition: AutomationDefinition = serde_json::from_value(json!({
            "title": title, "enabled": true, "message": { "text": text, "origin": { "kind": "automation" } },
            "session": { "provider": "echo" }, "_meta": { "ostler": { "overlap": "skip" } },
            "triggers": [{ "kind": "schedule", "id": "s", "schedule": { "expression": "0 3 * * *", "timeZone": "UTC" } }],
        }))
        .unwrap();
        automations.create.unbounded((id.clone(), definition, owner.clone())).await.unwrap();
        let progress = AutomationProgress { run_count: Some(3), ..AutomationProgress::default() };
        automations.keep_progress.as_ref().unwrap().unbounded((id.clone(), progress)).await.unwrap();
    }
    let ids: Vec<&String> = content.automations.keys().collect();
    for (number, (automation, state, event)) in content.runs.iter().enumerate() {
        let automation = ids[usize::from(*automation) % ids.len()];
        automations.run.unbounded((run(number, automation, *state, event),)).await.unwrap();
    }
    for (at, (title, draft, value, chats)) in content.sessions.iter().enumerate() {
        let id = format!("s{}", (at * 7) % 10);
        let kept = KeptSession {
            uri: format!("echo:/{id}"),
            provider: "echo".into(),
            title: title.clone(),
            created_at: "2026-01-01T00:00:00.000Z".into(),
            modified_at: format!("2026-01-01T00:00:0{at}.000Z"),
            values: object(json!({ "any": value })),
            draft: draft.then(Default::default),
            ..KeptSession::default()
        };
        sessions.set_config.unbounded((id.clone(), kept)).await.unwrap();
        let flags = SessionFlags { is_read: *draft, is_archived: !draft };
        sessions.set_flags.unbounded((id.clone(), flags)).await.unwrap();
        sessions.set_artifacts.unbounded((id.clone(), vec![value.clone()])).await.unwrap();
        sessions.set_pull_requests.unbounded((id.clone(), object(json!({ "d": value })))).await.unwrap();
        sessions
            .set_annotations
            .as_ref()
            .unwrap()
            .unbounded((id.clone(), vec![value.clone()]))
            .await
            .unwrap();
        let mut kept = Vec::new();
        for (chat, texts) in chats {
            let uri = format!("ahp-chat:/{id}-{chat}");
            sessions.set_chat_title.unbounded((id.clone(), uri.clone(), Some(title.clone()))).await.unwrap();
            for (place, text) in texts.iter().enumerate() {
                let stored = (id.clone(), uri.clone(), place as u64, turn(&format!("t{place}"), text));
                sessions.set_turn.as_ref().unwrap().unbounded(stored).await.unwrap();
            }
            kept.push(KeptChat { uri, closed: *chat == 2, ..KeptChat::default() });
        }
        sessions.set_chats.unbounded((id, kept)).await.unwrap();
    }
    for (at, bytes) in content.attachments.iter().enumerate() {
        let data = base64(bytes);
        let kept = KeptAttachment { content_type: "image/png".into(), data };
        let stored = (format!("s{at}"), format!("a{at}"), kept);
        sessions.set_attachment.as_ref().unwrap().unbounded(stored).await.unwrap();
    }
    for (input, amount) in &content.usage {
        let entry: UsageEntry = serde_json::from_value(json!({
            "kind": "model", "at": "2026-01-01T00:00:00Z", "owner": "user:ada", "team": "ops", "other": [1],
            "model": { "name": "m", "input": input }, "cost": { "amount": amount, "currency": "USD" },
        }))
        .unwrap();
        usage.record.unbounded((entry,)).await.unwrap();
    }
    for close in [sessions.close, automations.close, usage.close] {
        close.unwrap().unbounded(()).await.unwrap();
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = bytes.chunks(3).flat_map(|part| {
        let all = part.iter().chain(&[0, 0]).take(3).fold(0_u32, |all, byte| (all << 8) | u32::from(*byte));
        (0..4).map(move |at| match at <= part.len() {
            true => char::from(DIGITS[(all >> (18 - 6 * at) & 63) as usize]),
            false => '=',
        })
    });
    digits.collect()
}

/// Everything in a folder, read without the code that copies: rows, and files as the stores read them.
async fn everything(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let reader = rusqlite::Connection::open(folder.join("state/state.db")).unwrap();
    let mut tables =
        reader.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").unwrap();
    let tables: Vec<String> = tables.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    for table in tables {
        if DERIVED.iter().any(|derived| table.starts_with(derived)) {
            continue;
        }
        let mut rows = reader.prepare(&format!("SELECT * FROM {table}")).unwrap();
        let columns = rows.column_count();
        let rows = rows
            .query_map([], |row| (0..columns).map(|at| row.get::<_, Sql>(at)).collect::<Result<Vec<_>, _>>());
        let mut rows: Vec<String> = rows.unwrap().map(|row| format!("{table} {:?}", row.unwrap())).collect();
        if !["sessions", "automation_runs", "usage"].contains(&table.as_str()) {
            rows.sort();
        }
        found.extend(rows);
    }
    let quiet = ostler_ports::Report::quiet;
    let db = StateDb::open(&folder.join("state")).unwrap();
    let automations = Arc::new(FileAutomations::open(folder, db, quiet()).await.unwrap()).into_point();
    for kept in automations.list.unbounded(()).await.unwrap() {
        // A file without this time has that of its last change, which is the one of the copied automation.
        found.push(format!("automation {}", serde_json::to_value(kept).unwrap()));
    }
    let vault = Arc::new(FileVault::new(folder, quiet()).unwrap()).into_point();
    for name in vault.list.unbounded(()).await.unwrap() {
        found.push(format!("{name} {:?}", vault.get.unbounded((name.clone(),)).await));
    }
    let policies = Arc::new(FilePolicies::new(folder)).into_point();
    found.extend(
        policies.list.unbounded(()).await.unwrap().into_iter().map(|row| format!("{}", Value::Object(row))),
    );
    let mut folders: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| {
            entry.path().is_dir() && !["state", "automations"].map(Into::into).contains(&entry.file_name())
        })
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    folders.sort();
    let records = Arc::new(FileRecords::new(folder, quiet())).into_point();
    for name in folders {
        let body = (name == "bots").then(|| "instructions".to_owned());
        let options = CollectionOptions { body, ..CollectionOptions::default() };
        let opened = records.collection.unbounded((name.clone(), options)).await.unwrap();
        for record in opened.list.unbounded(()).await.unwrap() {
            let sorted: BTreeMap<_, _> = record.into_iter().collect();
            found.push(format!("{name} {}", serde_json::to_string(&sorted).unwrap()));
        }
    }
    found
}

fn options(server: &Postgres, schema: &str) -> JsonObject {
    object(json!({
        "url": server.url(), "schema": schema, "passwordFile": server.password_file(), "vaultKeyFile": server.key_file(),
    }))
}

fn report() -> ostler_ports::Report {
    fn fail(line: String) {
        panic!("{line}");
    }
    ostler_ports::Report::new(fail)
}

fn source(folder: &Path) -> FileTransfer {
    FileTransfer::source(folder, &folder.join("state"), bodies(), report()).unwrap()
}

async fn direct(server: &Postgres, schema: &str) -> Arc<Direct> {
    Direct::connect(&options(server, schema), Path::new("/")).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn any_content_is_the_same_after_it_moved_to_postgres_and_back() {
    let server = Postgres::start();
    let mut runner = TestRunner::deterministic();
    let mut items = 0;
    for case in 0..12 {
        let content = content().new_tree(&mut runner).unwrap().current();
        let schema = format!("case_{case}");
        let (before, after) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fill(before.path(), &content).await;
        let expected = everything(before.path()).await;
        let into = ExclusiveSchema::target(direct(&server, &schema).await).await.unwrap();
        let there = copy(&source(before.path()), &into, "", &mut |_: &str| {}).await.unwrap();
        // Again, as after an interruption at the end.
        let again = copy(&source(before.path()), &into, "", &mut |_: &str| {}).await.unwrap();
        assert!(again.iter().all(|one| one.copied == 0));
        drop(into);
        assert_eq!(everything(before.path()).await, expected, "the source is unchanged");

        let from = loop {
            // The lock of the connection that was just closed.
            if let Ok(from) = ExclusiveSchema::source(direct(&server, &schema).await).await {
                break from;
            }
        };
        let target =
            FileTransfer::target(after.path(), &after.path().join("state"), bodies(), report()).unwrap();
        let back = copy(&from, &target, "", &mut |_: &str| {}).await.unwrap();
        for (one, other) in there.iter().zip(&back) {
            assert_eq!((one.kind, one.items, &one.sha256), (other.kind, other.items, &other.sha256));
        }
        drop(target);
        let found = everything(after.path()).await;
        assert_eq!(found, expected, "{content:?}");
        items += found.len();
    }
    assert!(items > 500, "{items} items are few");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn pages_are_bounded_and_many_runs_are_copied_in_their_order() {
    let server = Postgres::start();
    let folder = tempfile::tempdir().unwrap();
    drop(StateDb::open(&folder.path().join("state")).unwrap());
    let db = rusqlite::Connection::open(folder.path().join("state/state.db")).unwrap();
    db.execute_batch("BEGIN").unwrap();
    for number in 0..5000_usize {
        let run = run(number, "many", 2, &JsonObject::new());
        let text = serde_json::to_string(&run).unwrap();
        let sql = "INSERT INTO automation_runs (uri, automation, ended, run) VALUES (?1, 'many', 1, ?2)";
        db.execute(sql, [&run.resource, &text]).unwrap();
    }
    // A page ends after 4 MB.
    for number in 0..20 {
        let sql = "INSERT INTO attachments (session, id, content_type, content) VALUES ('s', ?1, 'x/y', zeroblob(3000000))";
        db.execute(sql, [format!("a{number:02}")]).unwrap();
    }
    db.execute_batch("COMMIT").unwrap();
    drop(db);
    let into = ExclusiveSchema::target(direct(&server, "many").await).await.unwrap();
    let copied = copy(&source(folder.path()), &into, "", &mut |_: &str| {}).await.unwrap();
    let count = |kind: &str| copied.iter().find(|one| one.kind == kind).unwrap().items;
    assert_eq!((count("runs"), count("attachments")), (5000, 20));
    for of in [&source(folder.path()) as &dyn Transfer, &into] {
        let kind = ostler_contract::stores::transfer::Kind::Attachment;
        assert_eq!(of.read(kind, None).await.unwrap().len(), 2, "{}", of.place());
    }
    let order = "SELECT count(*) FROM (SELECT uri, 'ahp-automation-run:/r' || row_number() OVER (ORDER BY number) - 1 AS wanted
         FROM many.automation_runs) AS runs WHERE uri = wanted";
    assert_eq!(server.psql("ostler", order), "5000");
}

fn migrate(folder: &Folder, server: &Postgres, arguments: &[&str]) -> Ended {
    let (url, password, key) = (server.url(), server.password_file(), server.key_file());
    let (password, key) = (password.to_str().unwrap(), key.to_str().unwrap());
    let named = ["migrate", "--url", url.as_str(), "--password-file", password, "--vault-key-file", key];
    folder.run(&[&named[..], arguments].concat())
}

#[track_caller]
fn ok(ended: Ended) -> String {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!ended.out.contains(PASSWORD) && !ended.err.contains(PASSWORD));
    ended.out
}

#[track_caller]
fn refused(ended: &Ended, code: i32, says: &str) {
    assert_eq!(ended.code, Some(code), "{ended:?}");
    assert!(ended.err.contains(says), "{says:?} is not in {:?}", ended.err);
}

async fn client(daemon: &Daemon) -> Client {
    let mut client = Client::connect(&format!("{}/?tkn={TOKEN}", daemon.url)).await;
    client.initialize("ada").await;
    client
}

/// A host that has a session with a turn, an endpoint with its secret, an automation, and a run.
async fn used() -> Folder {
    let folder = Folder::with_webhook("noted {{event.n}}");
    let mut config: Value = serde_json::from_str(&folder.read("config.json")).unwrap();
    config["connectionToken"] = TOKEN.into();
    config["plugins"].as_array_mut().unwrap().push(json!({ "name": "@ostler/console" }));
    folder.write("config.json", &config.to_string());
    let daemon = folder.start();
    let mut ada = client(&daemon).await;
    let chat = ostler_protocol::uri::default_chat("echo:/one");
    ada.request("createSession", json!({ "channel": "echo:/one", "provider": "echo" })).await.unwrap();
    ada.request("subscribe", json!({ "channel": chat })).await.unwrap();
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "hello" } });
    assert!(ada.try_dispatch(&chat, 1, turn).await);
    while ada.next_frame().await.expect("the turn ends")["params"]["action"]["type"] != "chat/turnComplete" {}
    let (status, _) = daemon.post("/plugins/webhook/in", Some("right"), r#"{ "n": 1 }"#).await;
    assert_eq!(status, 202);
    runs(&folder, 1);
    assert_eq!(daemon.stop(), Some(0));
    folder
}

/// Waits until the automation has so many ended runs.
fn runs(folder: &Folder, count: usize) {
    let list = || {
        let listed = folder.run(&["automation", "runs", "note", "--state", "completed", "--json"]);
        let listed: Value = serde_json::from_str(&listed.out).ok()?;
        (listed["runs"].as_array()?.len() == count).then_some(())
    };
    crate::support::wait_for(list).expect("the runs end");
}

/// Checks that a daemon serves what was stored, and accepts another call; there are `count` runs afterwards.
async fn serves(folder: &Folder, count: usize) {
    let daemon = folder.start();
    let mut ada = client(&daemon).await;
    let chat = ada.subscribe(&ostler_protocol::uri::default_chat("echo:/one")).await;
    assert_eq!(chat["turns"][0]["message"]["text"], "hello", "{chat}");
    let (status, answer) = daemon.post("/plugins/webhook/in", Some("right"), r#"{ "n": 2 }"#).await;
    assert_eq!(status, 202, "{answer}");
    runs(folder, count);
    let searched = folder.run(&["automation", "runs", "--text", "note", "--json"]);
    let searched: Value = serde_json::from_str(&ok(searched)).unwrap();
    assert_eq!(searched["runs"].as_array().map(Vec::len), Some(count), "{searched}");
    let during = folder.run(&["migrate", "--to", "files", "--url", "postgresql://a@127.0.0.1/b"]);
    refused(&during, 1, "run ostler stop first");
    assert_eq!(daemon.stop(), Some(0));
    let log: Value = serde_json::from_str(&ok(folder.run(&["webhook", "log", "in", "--json"]))).unwrap();
    let calls = log["calls"].as_array().unwrap();
    assert_eq!(calls.len(), count, "the log of calls was copied, too: {log}");
    assert!(calls.iter().all(|call| call["status"] == 202 && call["runs"][0].is_string()), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn a_daemon_serves_the_same_after_its_host_moved_to_postgres_and_back() {
    let server = Postgres::start();
    let folder = used().await;
    refused(&folder.run(&["migrate", "--to", "postgres"]), 2, "no database is named");
    let before = folder.read("config.json");
    let told = ok(migrate(&folder, &server, &["--to", "postgres"]));
    assert!(
        told.contains("verified every item") && told.contains("Make this the first of the plugins"),
        "{told}"
    );
    assert_eq!(folder.read("config.json"), before);
    serves(&folder, 2).await;
    // The files have another run since.
    refused(&migrate(&folder, &server, &["--to", "postgres"]), 1, "has other data");
    assert_eq!(server.psql("ostler", "SELECT count(*) FROM ostler.automation_runs"), "1");

    let told = ok(migrate(&folder, &server, &["--to", "postgres", "--force", "--write-config", "--json"]));
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["verified"], true);
    assert!(told["aside"].as_str().unwrap().starts_with("schema ostler_before_"), "{told}");
    let copy = told["configurationCopy"].as_str().unwrap();
    assert_eq!(fs::read_to_string(copy).unwrap(), before);
    let config: Value = serde_json::from_str(&folder.read("config.json")).unwrap();
    assert_eq!(config["plugins"][0]["name"], "@ostler/postgres");
    serves(&folder, 3).await;
    assert_eq!(server.psql("ostler", "SELECT count(*) FROM ostler.automation_runs"), "3");

    // The files are those from before.
    refused(&folder.run(&["migrate", "--to", "files"]), 1, "--force moves these files aside");
    assert!(folder.read("vault.json").contains("right"));
    let told = ok(folder.run(&["migrate", "--to", "files", "--force", "--write-config"]));
    assert!(told.contains("Disabled @ostler/postgres") && told.contains(".before-migrate-"), "{told}");
    assert!(folder.read("automations/note.md").contains("title: Note"));
    serves(&folder, 4).await;
    assert_eq!(
        server.psql("ostler", "SELECT count(*) FROM ostler.automation_runs"),
        "3",
        "it is not used any more"
    );
    ok(folder.run(&["migrate", "--to", "postgres", "--schema", "fresh"]));
    folder.write("vault.json", r#"{ "host:in": "other" }"#);
    refused(&folder.run(&["migrate", "--to", "postgres", "--schema", "fresh"]), 1, "has other data");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn a_killed_copy_is_completed_by_the_next_one() {
    let server = Postgres::start();
    let folder = used().await;
    let db = rusqlite::Connection::open(folder.state_file("state.db")).unwrap();
    db.execute_batch("BEGIN").unwrap();
    for number in 0..20_000 {
        let text = serde_json::to_string(&turn("t", &"oats ".repeat(100))).unwrap();
        let sql = "INSERT INTO turns (session, chat, place, kept) VALUES ('many', 'ahp-chat:/many', ?1, ?2)";
        db.execute(sql, rusqlite::params![number, text]).unwrap();
    }
    db.execute_batch("COMMIT").unwrap();
    drop(db);
    let (url, password, key) = (server.url(), server.password_file(), server.key_file());
    let mut cut = 0;
    for least in [1, 3000, 8000] {
        let mut command = folder.command(&["migrate", "--to", "postgres", "--url", &url, "--password-file"]);
        command.arg(&password).arg("--vault-key-file").arg(&key);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let count = "SELECT count(*) FROM ostler.turns";
        let exists = "SELECT count(*) FROM pg_tables WHERE schemaname = 'ostler' AND tablename = 'turns'";
        let begun = || {
            let has = server.psql("ostler", exists) == "1";
            (has && server.psql("ostler", count).parse::<u64>().unwrap() >= least).then_some(())
        };
        crate::support::wait_for(begun).expect("the copy begins");
        child.kill().unwrap();
        child.wait().unwrap();
        let copied = "SELECT count(*) FROM ostler.turns WHERE session = 'many'";
        cut += usize::from(server.psql("ostler", copied) != "20000");
    }
    assert!(cut > 0, "every copy was complete before it was killed");
    let told = ok(migrate(&folder, &server, &["--to", "postgres"]));
    assert!(told.contains(" were there)"), "{told}");
    assert_eq!(server.psql("ostler", "SELECT count(*) FROM ostler.turns WHERE session = 'many'"), "20000");
    // The source serves as before.
    serves(&folder, 2).await;
    ok(migrate(&folder, &server, &["--to", "postgres", "--force", "--write-config"]));
    serves(&folder, 3).await;
}

/// A host whose stores are in the database.
fn in_database(server: &Postgres, more: Value) -> Folder {
    let mut options = Value::Object(options(server, "ostler"));
    for (name, value) in object(more) {
        options[name] = value;
    }
    let plugins = json!([
        { "name": "@ostler/postgres", "options": options }, { "name": "@ostler/echo" }, { "name": "@ostler/webhook" },
    ]);
    Folder::new(json!({ "connectionToken": TOKEN, "plugins": plugins }))
}

/// Runs a command with a text on standard input.
fn piped(folder: &Folder, arguments: &[&str], text: &str) -> Ended {
    let file = folder.path().join("input");
    fs::write(&file, text).unwrap();
    let mut command = folder.command(arguments);
    command.stdin(fs::File::open(file).unwrap());
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// The checks of `ostler doctor` with this subject: their states and findings.
fn checks(folder: &Folder, of: &str) -> Vec<(String, String)> {
    let told: Value = serde_json::from_str(&folder.run(&["doctor", "--json"]).out).unwrap();
    let rows = told["checks"].as_array().unwrap().iter().filter(|row| row["check"] == of);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    rows.map(|row| (text(&row["state"]), text(&row["found"]))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn commands_use_the_database_whether_or_not_the_daemon_runs() {
    let server = Postgres::start();
    let folder = in_database(&server, json!({}));
    refused(&piped(&folder, &["vault", "set", "host:early"], "x"), 1, "start the host once");
    let daemon = folder.start();
    let added = ok(folder.run(&["webhook", "add", "ci", "--automation", "--provider", "echo", "--json"]));
    let added: Value = serde_json::from_str(&added).unwrap();
    assert_eq!(added["automation"], "ci", "{added}");
    let token = added["token"].as_str().unwrap();
    let (status, answer) = daemon.post("/plugins/webhook/ci", Some(token), r#"{ "hello": "you" }"#).await;
    assert_eq!(status, 202, "{answer}");
    let started =
        || (server.psql("ostler", "SELECT count(*) FROM ostler.automation_runs") == "1").then_some(());
    crate::support::wait_for(started).expect("the call starts a run");
    let found = checks(&folder, "database");
    assert!(found.len() == 1 && found[0].0 == "ok" && found[0].1.contains("lease of "), "{found:?}");
    assert_eq!(daemon.stop(), Some(0));

    ok(piped(&folder, &["vault", "set", "host:two"], "second"));
    ok(folder.run(&["webhook", "add", "two", "--automation", "--secret", "host:two", "--json"]));
    let listed: Value = serde_json::from_str(&ok(folder.run(&["webhook", "list", "--json"]))).unwrap();
    let ids: Vec<&str> = listed.as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["ci", "two"], "{listed}");
    let secrets = ok(folder.run(&["vault", "list"]));
    assert!(secrets.contains("host:two set") && secrets.contains("host:webhook-ci set"), "{secrets}");
    // A name that an earlier version accepted can be deleted.
    server.psql(
        "ostler",
        "INSERT INTO ostler.vault SELECT 'host:a//b', key_id, value FROM ostler.vault WHERE name = 'host:two'",
    );
    assert!(ok(folder.run(&["vault", "list"])).contains("host:a//b set"));
    let delete = || folder.run(&["vault", "delete", "host:a//b", "--yes"]);
    assert_eq!(ok(delete()), "Deleted host:a//b.\n");
    refused(&delete(), 2, "a secret is named host:<name>");
    for file in ["vault.json", "webhooks", "automations"] {
        assert!(!folder.path().join(file).exists(), "{file}");
    }
    let found = checks(&folder, "database");
    assert!(
        found.len() == 1 && found[0].0 == "ok" && found[0].1.contains("no host has a lease"),
        "{found:?}"
    );
    let archive = folder.path().join("backup.tar.gz");
    let backed_up = folder.run(&["backup", archive.to_str().unwrap()]);
    assert!(backed_up.err.contains("pg_dump --schema=ostler"), "{backed_up:?}");
    assert!(!backed_up.err.contains(PASSWORD));

    let daemon = folder.start();
    let (status, _) = daemon.post("/plugins/webhook/two", Some("second"), "{}").await;
    assert_eq!(status, 202);
    ok(folder.run(&["webhook", "rm", "two", "--yes"]));
    let (status, _) = daemon.post("/plugins/webhook/two", Some("second"), "{}").await;
    assert_eq!(status, 404);
    assert_eq!(daemon.stop(), Some(0));

    let other = folder.path().join("other.key");
    fs::write(&other, "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n").unwrap();
    let config =
        folder.read("config.json").replace(server.key_file().to_str().unwrap(), other.to_str().unwrap());
    folder.write("config.json", &config);
    let found = checks(&folder, "database");
    assert!(
        found.iter().any(|(state, found)| state == "error" && found.contains("another key")),
        "{found:?}"
    );
    server.stop();
    let found = checks(&folder, "database");
    assert!(found.len() == 1 && found[0].0 == "error", "{found:?}");
    server.start_again();
}

const AUTOMATION: &str = "---\ntitle: Noted\nsession: { provider: echo }\ntriggers: []\n---\nNote it.\n";

/// The definition of an automation in the database.
fn stored(server: &Postgres, id: &str) -> String {
    server.psql("ostler", &format!("SELECT definition FROM ostler.automations WHERE id = '{id}'"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn edits_of_watched_files_reach_the_database_and_conflicts_change_nothing() {
    let server = Postgres::start();
    let folder = in_database(&server, json!({ "watchFiles": true }));
    folder.write("automations/note.md", AUTOMATION);
    folder.write("webhooks/in.md", "---\nautomation: true\nsecret: host:in\n---\n");
    let daemon = folder.start();
    let has = |id: &str, text: &str| {
        let has = || stored(&server, id).contains(text).then_some(());
        crate::support::wait_for(has)
            .unwrap_or_else(|| panic!("{text} is not stored: {}", stored(&server, id)));
    };
    has("note", "Note it.");
    let endpoint = || {
        (server.psql("ostler", "SELECT count(*) FROM ostler.records WHERE collection = 'webhooks'") == "1")
            .then_some(())
    };
    crate::support::wait_for(endpoint).expect("the endpoint is stored");
    folder.write("automations/note.md", &AUTOMATION.replace("Note it.", "Write it down."));
    has("note", "Write it down.");

    // Of an invalid file, the last valid version stays.
    folder.write("automations/note.md", "---\ntitle: [\n---\n");
    folder.wait_for_log("automations/note.md is not stored");
    has("note", "Write it down.");

    // Both have changed.
    folder.write("automations/note.md", &AUTOMATION.replace("Note it.", "Write it down."));
    server.psql(
        "ostler",
        "UPDATE ostler.automations SET definition = replace(definition, 'Write it down.', 'From SQL.')",
    );
    folder.write("automations/note.md", &AUTOMATION.replace("Note it.", "From the file."));
    folder.wait_for_log("different versions");
    has("note", "From SQL.");
    assert!(folder.read("automations/note.md").contains("From the file."));
    ok(folder.run(&["files", "import", "automations/note.md", "--overwrite"]));
    has("note", "From the file.");

    fs::remove_file(folder.path().join("automations/note.md")).unwrap();
    let gone = || stored(&server, "note").is_empty().then_some(());
    crate::support::wait_for(gone).expect("it is removed with its file");
    assert_eq!(daemon.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn files_are_exported_and_imported_and_conflicts_are_reported() {
    let server = Postgres::start();
    let folder = in_database(&server, json!({}));
    assert_eq!(folder.start().stop(), Some(0));
    let policy = r#"[{ "id": "echo-only", "scope": "all", "kind": "agent", "effect": "allow", "match": { "agent": ["echo"] } }]"#;
    folder.write("policies.json", policy);
    folder.write("automations/note.md", AUTOMATION);
    folder.write("bots/echo.md", "---\nname: Echo\n---\nBe brief.\n");
    folder.write("automations/broken.md", "---\ntitle: [\n---\n");
    let ended = folder.run(&["files", "import", "--json"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let told: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(
        told["stored"],
        json!(["automations/note.md", "bots/echo.md", "policies.json echo-only"]),
        "{told}"
    );
    assert!(told["conflicts"][0]["name"] == "automations/broken.md", "{told}");
    fs::remove_file(folder.path().join("automations/broken.md")).unwrap();
    let bot = server.psql("ostler", "SELECT record FROM ostler.records WHERE collection = 'bots'");
    assert!(bot.contains("Be brief."), "{bot}");

    // Unchanged in the database since: an edit of the file is stored. Changed there only: the file is written.
    folder.write("automations/note.md", &AUTOMATION.replace("Note it.", "Edited."));
    ok(folder.run(&["files", "import"]));
    assert!(stored(&server, "note").contains("Edited."));
    server.psql(
        "ostler",
        "UPDATE ostler.automations SET definition = replace(definition, 'Edited.', 'From SQL.')",
    );
    refused(&folder.run(&["files", "import"]), 1, "");
    assert!(stored(&server, "note").contains("From SQL."));
    ok(folder.run(&["files", "export"]));
    assert!(folder.read("automations/note.md").contains("From SQL."));
    // Both have changed.
    folder.write("automations/note.md", &AUTOMATION.replace("Note it.", "From the file."));
    server.psql(
        "ostler",
        "UPDATE ostler.automations SET definition = replace(definition, 'From SQL.', 'Again.')",
    );
    for command in ["import", "export"] {
        let ended = folder.run(&["files", command]);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.out.contains("conflict automations/note.md"), "{ended:?}");
    }
    assert!(folder.read("automations/note.md").contains("From the file."));
    assert!(stored(&server, "note").contains("Again."));

    let elsewhere = folder.path().join("working-copy");
    ok(folder.run(&["files", "export", "--folder", "working-copy"]));
    assert!(fs::read_to_string(elsewhere.join("automations/note.md")).unwrap().contains("Again."));
    assert!(fs::read_to_string(elsewhere.join("bots/echo.md")).unwrap().ends_with("---\nBe brief.\n"));
    let told = ok(folder.run(&["files", "import", "--folder", "working-copy", "--json"]));
    assert_eq!(serde_json::from_str::<Value>(&told).unwrap()["equal"], 3, "{told}");
}
