//! The stores against a real PostgreSQL: the suites that every store passes, and what only these do. `.ci/postgres` runs them.

use std::time::Duration;

use crate::support::calls::Joined;
use crate::support::server::{PASSWORD, Postgres};
use crate::support::{Stores, applied, applied_to, options, until};
use ostler_contract::points::{
    AutomationChange, ChangeType, CollectionOptions, KeptSession, RecordChange, RunQuery, UsageQuery,
};
use ostler_contract::protocol::error::code;
use ostler_contract::protocol::wire::state::AutomationRunState;
use ostler_contract::{JsonObject, Value, json};
use ostler_plugin_postgres::Retention;
use ostler_ports::conformance::{
    ClusterMember, Heard, Numbers, automations_conformance, cluster_conformance, find_runs_conformance,
    policies_conformance, records_conformance, sessions_conformance, uncached_records_conformance,
    usage_conformance, vault_conformance,
};

fn object(value: Value) -> JsonObject {
    value.as_object().unwrap().clone()
}

fn run(id: &str, scheduled_for: Option<&str>, status: &str) -> AutomationRunState {
    let at = "2026-01-01T00:00:00.000Z";
    let lifecycle = match status {
        "pending" => json!({ "status": status, "createdAt": at }),
        _ => json!({ "status": status, "createdAt": at, "startedAt": at, "completedAt": at }),
    };
    let origin = json!({ "kind": "trigger", "triggerId": "night", "scheduledFor": scheduled_for });
    serde_json::from_value(json!({
        "resource": format!("ahp-automation-run:/{id}"), "automation": "ahp-automation:/a", "origin": origin,
        "lifecycle": lifecycle, "sessions": [],
    }))
    .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn the_stores_pass_the_suites_of_every_store() {
    let server = Postgres::start();
    let stores = Stores::open(&server, "suites").await;
    sessions_conformance(stores.sessions.clone()).await;
    automations_conformance(stores.automations.clone()).await;
    records_conformance(stores.records.clone(), Numbers::Exact).await;
    policies_conformance(stores.policies.clone()).await;
    usage_conformance(stores.usage.clone()).await;
    vault_conformance(stores.vault.clone()).await;
    stores.close().await;

    // Another schema of the same database, over the Unix socket; the password comes from the file all the same.
    let mut other = options(&server, "other");
    other["url"] = server.socket_url().into();
    let stores = applied(other, Retention::default()).await.unwrap();
    uncached_records_conformance(stores.records.clone(), Numbers::Exact).await;
    stores.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn the_hosts_of_a_cluster_pass_the_suite_of_every_shared_store() {
    let server = Postgres::start();
    let token = server.password_file().with_file_name("cluster.token");
    std::fs::write(&token, "a token of the cluster, with 32 bytes or more").unwrap();
    let member = async |id: &str| {
        let mut options = options(&server, "cluster");
        options["cluster"] = json!({ "url": format!("ws://{id}:1"), "tokenFile": token, "id": id });
        let joined = std::sync::Arc::new(Joined::default());
        let stores = applied_to(joined.clone(), options, Retention::default()).await.unwrap();
        let member = ClusterMember {
            cluster: joined.cluster.lock().unwrap().clone().unwrap(),
            sessions: stores.sessions.clone(),
            automations: stores.automations.clone(),
            runs: joined.runs.lock().unwrap().clone().unwrap(),
        };
        (member, stores)
    };
    let ((one, of_one), (other, of_other)) = (member("one").await, member("other").await);
    cluster_conformance(one, other).await;
    of_one.close().await;
    of_other.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn runs_are_found_as_in_every_store_also_those_of_an_earlier_version() {
    let server = Postgres::start();
    let retention = Retention { count: 1_000_000, ..Retention::default() };
    let stores = applied(options(&server, "runs"), retention).await.unwrap();
    find_runs_conformance(&stores.automations).await;
    // As the version before stored it: without what finds it.
    stores.automations.run.unbounded((run("old", None, "completed"),)).await.unwrap();
    server.psql(
        "ostler",
        "UPDATE runs.automation_runs SET state = NULL, work_owner = NULL, accepted_at = NULL",
    );
    server.psql("ostler", "DELETE FROM runs.automation_run_words");
    stores.close().await;
    let stores = applied(options(&server, "runs"), retention).await.unwrap();
    let find = stores.automations.find_runs.clone().unwrap();
    until("the run is found", async || {
        let query = RunQuery {
            state: Some("completed".into()),
            text: Some("old".into()),
            limit: 9,
            ..RunQuery::default()
        };
        find.unbounded((query,)).await.unwrap().runs == [run("old", None, "completed")]
    })
    .await;
    stores.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn what_is_stored_is_there_after_the_stores_are_opened_again_and_secrets_are_encrypted() {
    let server = Postgres::start();
    let stores = Stores::open(&server, "ostler").await;
    let kept = KeptSession { uri: "echo:/s".into(), title: "Oats\u{0}".into(), ..KeptSession::default() };
    stores.sessions.set_config.unbounded(("s".into(), kept.clone())).await.unwrap();
    stores.vault.set.unbounded(("host:key".into(), "hunter2".into())).await.unwrap();
    stores.automations.run.unbounded((run("r", None, "pending"),)).await.unwrap();
    stores.close().await;

    let stores = Stores::open(&server, "ostler").await;
    assert_eq!(stores.sessions.config.unbounded(("s".into(),)).await, Ok(Some(kept)));
    assert_eq!(stores.vault.get.unbounded(("host:key".into(),)).await, Ok(Some("hunter2".into())));
    let unfinished = stores.automations.unfinished.clone().unwrap();
    assert_eq!(unfinished.unbounded(()).await, Ok(vec![run("r", None, "pending")]));
    let row = server.psql("ostler", "SELECT name, encode(value, 'escape') FROM ostler.vault");
    assert!(row.starts_with("host:key|") && !row.contains("hunter2"), "{row}");
    stores.close().await;

    let mut wrong = options(&server, "ostler");
    let other_key = server.key_file().with_file_name("other.key");
    std::fs::write(&other_key, "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n").unwrap();
    wrong["vaultKeyFile"] = json!(other_key);
    let stores = applied(wrong, Retention::default()).await.unwrap();
    let refused = stores.vault.get.unbounded(("host:key".into(),)).await.unwrap_err();
    assert!(refused.message.contains("host:key was encrypted with another key"), "{refused}");
    stores.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn a_cause_starts_one_run_and_ended_runs_are_retained_as_configured() {
    let server = Postgres::start();
    let retention = Retention { count: 3, ..Retention::default() };
    let stores = applied(options(&server, "ostler"), retention).await.unwrap();
    let keep = async |run: AutomationRunState| stores.automations.run.unbounded((run,)).await;
    let at = Some("2026-01-01T03:00:00.000Z");
    keep(run("first", at, "pending")).await.unwrap();
    let both = tokio::join!(keep(run("second", at, "pending")), keep(run("other", None, "pending")));
    let refused = both.0.unwrap_err().into_rpc();
    assert_eq!(refused.code, code::ALREADY_EXISTS, "{refused:?}");
    assert_eq!(both.1, Ok(()), "what is refused takes nothing else with it");
    // The same run may be stored again.
    keep(run("first", at, "completed")).await.unwrap();
    keep(run("next", Some("2026-01-02T03:00:00.000Z"), "pending")).await.unwrap();
    for number in 0..6 {
        keep(run(&format!("old-{number}"), None, "completed")).await.unwrap();
    }
    let count =
        "SELECT count(*) FILTER (WHERE ended), count(*) FILTER (WHERE NOT ended) FROM ostler.automation_runs";
    until("the oldest ended runs are removed", async || server.psql("ostler", count) == "3|2").await;
    stores.close().await;

    // By their size, and by their age. The next start applies both.
    let size = server.psql("ostler", "SELECT min(bytes) FROM ostler.automation_runs WHERE ended");
    let bytes = size.parse::<u64>().unwrap() * 2 + 10;
    for (retention, left) in [
        (Retention { bytes: Some(bytes), ..Retention::default() }, "2|2"),
        (Retention { age: Some(Duration::from_secs(3600)), ..Retention::default() }, "0|2"),
    ] {
        let stores = applied(options(&server, "ostler"), retention).await.unwrap();
        until("what is not retained is removed", async || server.psql("ostler", count) == left).await;
        stores.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn changes_with_sql_are_noticed() {
    let server = Postgres::start();
    let stores = Stores::open(&server, "ostler").await;
    let notes =
        stores.records.collection.unbounded(("notes".into(), CollectionOptions::default())).await.unwrap();
    let (records, automations) = (Heard::default(), Heard::default());
    notes.watch.unbounded((records.listener(),)).await.unwrap();
    let watch = stores.automations.watch.clone().unwrap();
    watch.unbounded((automations.listener(),)).await.unwrap();
    notes.put.unbounded((object(json!({ "id": "a", "n": 1 })),)).await.unwrap();
    assert_eq!(records.next().await, RecordChange { id: "a".into(), r#type: ChangeType::Added });

    server.psql("ostler", r#"UPDATE ostler.records SET record = '{ "id": "a", "n": 2 }' WHERE id = 'a'"#);
    assert_eq!(records.next().await, RecordChange { id: "a".into(), r#type: ChangeType::Updated });
    let found = notes.find.unbounded((object(json!({ "n": 2 })),)).await.unwrap();
    assert_eq!(found, [object(json!({ "id": "a", "n": 2 }))], "an index that is out of date is not used");
    assert_eq!(notes.find.unbounded((object(json!({ "n": 1 })),)).await, Ok(vec![]));
    server.psql("ostler", "DELETE FROM ostler.records");
    assert_eq!(records.next().await, RecordChange { id: "a".into(), r#type: ChangeType::Deleted });

    let definition = r#"{ "title": "T", "enabled": true, "message": { "text": "x", "origin": { "kind": "automation" } },
        "session": {}, "triggers": [] }"#;
    let insert = format!(
        "INSERT INTO ostler.automations VALUES ('hand', '{definition}', NULL, '2026-01-01T00:00:00Z', '2026-01-01T00:00:00Z')"
    );
    server.psql("ostler", &insert);
    assert_eq!(automations.next().await, AutomationChange { id: "hand".into(), r#type: ChangeType::Added });
    let listed = stores.automations.list.unbounded(()).await.unwrap();
    assert_eq!(listed.iter().map(|one| one.definition.title.as_str()).collect::<Vec<_>>(), ["T"]);
    // Who calls knows: a watcher of automations is not told of the host's own changes.
    let patch = serde_json::from_value(json!({ "title": "U" })).unwrap();
    stores.automations.update.unbounded(("hand".into(), patch)).await.unwrap();
    server.psql("ostler", "DELETE FROM ostler.automations");
    assert_eq!(automations.next().await, AutomationChange { id: "hand".into(), r#type: ChangeType::Deleted });

    let policy =
        r#"{ "id": "p", "scope": "all", "kind": "agent", "effect": "deny", "match": { "agent": ["echo"] } }"#;
    server.psql("ostler", &format!("INSERT INTO ostler.policies (id, policy) VALUES ('p', '{policy}')"));
    assert_eq!(stores.policies.list.unbounded(()).await.unwrap().len(), 1);
    server.psql("ostler", "UPDATE ostler.policies SET policy = '{}'");
    let refused = stores.policies.list.unbounded(()).await.unwrap_err();
    assert!(
        refused.message.contains("row p of the table policies"),
        "an invalid policy allows nothing: {refused}"
    );
    stores.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn a_wrong_configuration_is_refused_without_secrets() {
    let server = Postgres::start_encrypted();
    let refused = async |options: Value| {
        let message = applied(options, Retention::default()).await.err().unwrap().message;
        assert!(!message.contains(PASSWORD) && !message.contains("hunter2"), "{message}");
        message
    };
    let mut wrong = options(&server, "ostler");
    let file = server.password_file().with_file_name("wrong");
    std::fs::write(&file, "hunter2").unwrap();
    wrong["passwordFile"] = json!(file);
    assert!(refused(wrong).await.contains("password authentication failed for user \"ostler\""));
    let mut wrong = options(&server, "ostler");
    wrong["url"] = json!(format!("{}missing", server.url().trim_end_matches("ostler")));
    assert!(refused(wrong).await.contains("database \"missing\" does not exist"));
    // The certificate is of localhost.
    let encrypted = |host: &str, ca: &str| {
        let mut options = options(&server, "ostler");
        options["url"] = json!(server.url().replace("127.0.0.1", host));
        options["tls"] = json!("verify-full");
        options["tlsCaFile"] = json!(server.password_file().with_file_name(ca));
        options
    };
    assert!(refused(encrypted("127.0.0.1", "server.crt")).await.contains("certificate not valid for name"));
    assert!(refused(encrypted("localhost", "other.crt")).await.contains("invalid peer certificate"));
    assert!(refused(encrypted("localhost", "password")).await.contains("has no certificate in PEM format"));
    let stores = applied(encrypted("localhost", "server.crt"), Retention::default()).await.unwrap();
    let plain = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
        WHERE application_name = 'ostler' AND NOT ssl";
    stores.vault.list.unbounded(()).await.unwrap();
    assert_eq!(server.psql("ostler", plain), "0");
    stores.close().await;

    Stores::open(&server, "ostler").await.close().await;
    server.psql("ostler", "UPDATE ostler.migrations SET checksum = 'x'");
    assert!(refused(options(&server, "ostler")).await.contains("is not the one of this ostler"));
    server.psql("ostler", "INSERT INTO ostler.migrations SELECT 99, 'future', 'x'");
    let newer = refused(options(&server, "ostler")).await;
    assert!(newer.contains("is not the one") || newer.contains("newer ostler"), "{newer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn a_slow_statement_fails_within_its_limit() {
    let server = Postgres::start();
    let mut slow = options(&server, "ostler");
    slow["statementTimeoutSeconds"] = json!(1);
    let stores = applied(slow, Retention::default()).await.unwrap();
    let all = || stores.usage.total.unbounded((UsageQuery::default(),));
    all().await.unwrap();
    // Somebody holds the table for longer than the limit.
    let sql = "BEGIN; LOCK ostler.usage; SELECT pg_sleep(4); COMMIT";
    let (refused, _) = tokio::join!(
        async {
            let locked = "SELECT count(*) FROM pg_locks WHERE relation = 'ostler.usage'::regclass AND granted
                AND mode = 'AccessExclusiveLock'";
            until("the table is locked", async || server.psql("ostler", locked) == "1").await;
            tokio::time::timeout(Duration::from_secs(10), all()).await.unwrap().unwrap_err()
        },
        tokio::task::spawn_blocking({
            let (server, sql) = (server.psql_command("ostler", sql), sql);
            move || drop((sql, { server }.output()))
        })
    );
    assert_eq!(refused.message, "the database did not answer in time; try again");
    all().await.unwrap();
    stores.close().await;
}
