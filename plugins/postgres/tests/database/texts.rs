//! Texts that PostgreSQL does not store, and what callers are told about failures. `.ci/postgres` runs these tests.

use std::sync::Arc;

use crate::support::calls::Joined;
use crate::support::server::Postgres;
use crate::support::{applied_to, options};
use ostler_contract::points::{CollectionOptions, KeptSession, UsageEntry, UsageQuery};
use ostler_contract::protocol::wire::state::AutomationDefinition;
use ostler_contract::{JsonObject, Value, json};
use ostler_plugin_postgres::Retention;
use ostler_ports::conformance::nul_conformance;

fn of<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// The columns with JSON text, which the schema itself names.
fn json_columns(server: &Postgres) -> Vec<(String, String)> {
    let columns = "SELECT DISTINCT relname, attname FROM pg_constraint
        JOIN pg_class ON pg_class.oid = conrelid
        JOIN pg_attribute ON attrelid = conrelid AND attnum = ANY (conkey)
        WHERE contype = 'c' AND connamespace = 'ostler'::regnamespace
            AND pg_get_constraintdef(pg_constraint.oid) LIKE '%::json%'";
    let columns = server.psql("ostler", columns);
    columns
        .lines()
        .filter_map(|line| line.split_once('|'))
        .map(|(table, column)| (table.into(), column.into()))
        .collect()
}

/// What the host's list of problems names.
fn wrong(host: &Joined) -> Vec<String> {
    host.problems.list().into_iter().map(|problem| problem.place).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn what_cannot_be_read_is_a_problem_until_it_can_or_is_gone() {
    let server = Postgres::start();
    let host = Arc::new(Joined::default());
    let stores = applied_to(host.clone(), options(&server, "ostler"), Retention::default()).await.unwrap();
    let notes =
        stores.records.collection.unbounded(("notes".into(), CollectionOptions::default())).await.unwrap();
    notes.put.unbounded((of(json!({ "id": "a" })),)).await.unwrap();
    let definition: AutomationDefinition = of(json!({
        "title": "a", "enabled": true, "message": { "text": "b", "origin": { "kind": "automation" } },
        "session": {}, "triggers": [],
    }));
    stores.automations.create.unbounded(("a".into(), definition, None)).await.unwrap();
    stores.sessions.set_config.unbounded(("s".into(), KeptSession::default())).await.unwrap();
    let list = async || {
        notes.list.unbounded(()).await.unwrap();
        stores.automations.list.unbounded(()).await.unwrap();
        stores.sessions.all.as_ref().unwrap().unbounded(()).await.unwrap();
        wrong(&host)
    };
    assert_eq!(list().await, Vec::<String>::new());
    let before = server.psql("ostler", "SELECT definition FROM ostler.automations");
    for sql in ["automations SET definition = '{}'", "records SET record = '1'", "sessions SET kept = '{}'"] {
        server.psql("ostler", &format!("UPDATE ostler.{sql}"));
    }
    assert_eq!(list().await, ["session s", "stored automation a", "record notes/a"]);
    list().await;
    assert_eq!(host.lines.lock().unwrap().len(), 3, "each is logged once");
    server.psql("ostler", &format!("UPDATE ostler.automations SET definition = '{}'", before.trim()));
    notes.remove.unbounded(("a".into(),)).await.unwrap();
    stores.sessions.forget.unbounded(("s".into(),)).await.unwrap();
    assert_eq!(list().await, Vec::<String>::new());
    stores.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn texts_with_nul_are_stored_and_leave_all_tables_readable_with_sql() {
    let server = Postgres::start();
    let host = Arc::new(Joined::default());
    let stores = applied_to(host.clone(), options(&server, "ostler"), Retention::default()).await.unwrap();
    nul_conformance(&stores.sessions, &stores.automations, &stores.policies, &stores.usage).await;

    let notes =
        stores.records.collection.unbounded(("notes".into(), CollectionOptions::default())).await.unwrap();
    let note: JsonObject = of(json!({ "id": "a", "text": "a\0b", "c\0d": ["\0"] }));
    notes.put.unbounded((note.clone(),)).await.unwrap();
    assert_eq!(notes.get.unbounded(("a".into(),)).await, Ok(Some(note.clone())));
    assert_eq!(notes.find.unbounded((of(json!({ "text": "a\0b" })),)).await, Ok(vec![note]));
    let definition: AutomationDefinition = of(json!({
        "title": "a\0b", "enabled": true, "message": { "text": "c\0d", "origin": { "kind": "automation" } },
        "session": {}, "triggers": [],
    }));
    let made =
        stores.automations.create.unbounded(("a".into(), definition, Some("user:\0".into()))).await.unwrap();
    let listed = stores.automations.list.unbounded(()).await.unwrap();
    assert_eq!(listed[0].definition, made.definition);
    let policy: JsonObject = of(json!({
        "id": "p", "scope": "all", "kind": "agent", "effect": "deny", "match": { "agent": ["a\0b"] },
    }));
    stores.policies.put.unbounded((policy.clone(),)).await.unwrap();
    assert_eq!(stores.policies.list.unbounded(()).await, Ok(vec![policy]));
    let entry: UsageEntry = of(json!({
        "kind": "model", "at": "2026-01-01T00:00:00.000Z", "pools": ["user:a\0b"], "turn": "a\0b",
    }));
    stores.usage.record.unbounded((entry.clone(),)).await.unwrap();
    let query = UsageQuery { pool: Some("user:a\0b".into()), ..UsageQuery::default() };
    assert_eq!(stores.usage.records.unbounded((query,)).await, Ok(vec![entry]));
    let users = host.users.lock().unwrap().clone().unwrap();
    let text = r#"{"users":{"ada":{"note":"a\u0000b"}}}"#;
    users.change(Arc::new(move |_| Ok(Some(text.to_owned())))).await.unwrap();
    assert_eq!(users.read().await, Ok(Some(text.to_owned())));

    let columns = json_columns(&server);
    assert!(columns.len() >= 11, "{columns:?}");
    let mut marked = Vec::new();
    for (table, column) in columns {
        let read = format!(
            "SELECT count({column}::jsonb) || ' ' || count(*) FILTER (WHERE position(U&'\\FFFF0' in {column}) > 0) FROM ostler.{table}"
        );
        let read = server.psql("ostler", &read);
        if !read.ends_with(" 0") {
            marked.push(format!("{table}.{column}"));
        }
    }
    marked.sort();
    let written = [
        "automation_runs.run",
        "automations.definition",
        "policies.policy",
        "records.record",
        "session_parts.value",
        "sessions.kept",
        "turns.kept",
        "usage.entry",
        "users.content",
    ];
    assert_eq!(marked, written);
    stores.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn callers_are_told_a_sentence_and_the_log_what_the_database_reports() {
    let server = Postgres::start();
    let host = Arc::new(Joined::default());
    let stores = applied_to(host.clone(), options(&server, "ostler"), Retention::default()).await.unwrap();
    server.psql("ostler", "ALTER TABLE ostler.usage RENAME TO elsewhere");
    server.psql("ostler", "ALTER TABLE ostler.sessions RENAME TO elsewhere_too");
    let read = stores.usage.total.unbounded((UsageQuery::default(),)).await.unwrap_err();
    let kept = KeptSession { uri: "echo:/s".into(), ..KeptSession::default() };
    let written = stores.sessions.set_config.unbounded(("s".into(), kept)).await.unwrap_err();
    for told in [read, written] {
        assert_eq!(told.message, "the database rejected this; see the log of the host");
    }
    let lines = host.lines.lock().unwrap().join("\n");
    for (table, code) in [("usage", "42P01"), ("sessions", "42P01")] {
        let line = format!("relation \"{table}\" does not exist ({code})");
        assert!(lines.contains(&line), "{lines}");
    }
    server.psql("ostler", "ALTER TABLE ostler.elsewhere RENAME TO usage");
    server.psql("ostler", "ALTER TABLE ostler.elsewhere_too RENAME TO sessions");

    // The server ends, and with it what a statement waits for.
    server.stop();
    let away = stores.usage.total.unbounded((UsageQuery::default(),)).await.unwrap_err();
    let is_plain = !["57P", "os error", "PostgreSQL: error", "(5", "connection closed"]
        .iter()
        .any(|raw| away.message.contains(raw));
    assert!(is_plain, "{away}");
    server.start_again();
    stores.close().await;
}
