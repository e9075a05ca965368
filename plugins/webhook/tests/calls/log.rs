//! The log of calls: what each call started, or why it started nothing.

use crate::support::{SECRET, World, automation, endpoint, folder, read, request, until, write};
use ostler_contract::http::Method;
use ostler_contract::{Value, json};

const BEARER: [(&str, &str); 1] = [("authorization", "Bearer s3cret")];

/// An automation of the endpoint `hub`.
fn hub(dir: &std::path::Path, id: &str, fields: &str, trigger: &str, message: &str) {
    let text = format!(
        "---\ntitle: Hub\nsession: {{ provider: echo }}\n{fields}\ntriggers:\n  - {{ id: t, kind: event, type: webhook, \
         title: T, {trigger} }}\n---\n{message}\n"
    );
    write(dir, &format!("automations/{id}.md"), &text);
}

const OF_HUB: &str = "events: [{ id: call }], config: { endpoint: hub }";

/// The reasons in the only row of a call to `hub` whose automations a test writes.
async fn unstarted(prepare: impl FnOnce(&std::path::Path)) -> (usize, Value) {
    let dir = folder();
    endpoint(dir.path(), "hub", "automation: true");
    prepare(dir.path());
    let world = World::start(&dir).await;
    let answer = world.post_with("hub", r#"{"ref":"main"}"#, &BEARER).await;
    assert_eq!(answer, (202, json!({ "endpoint": "hub" })), "the caller learns nothing of it");
    let row = world.deliveries("hub", 1).await.remove(0);
    (row["runs"].as_array().map_or(0, Vec::len), row["unstarted"].clone())
}

#[tokio::test]
async fn a_call_that_starts_nothing_says_why() {
    let none = "no automation that could be read waits for this event";
    assert_eq!(unstarted(|_| {}).await, (0, json!([none])));
    let other = |dir: &std::path::Path| automation(dir, "other");
    assert_eq!(unstarted(other).await, (0, json!([none])));
    let of_other = "events: [{ id: call }], config: { endpoint: other, ref: main }";
    let shares_a_value =
        |dir: &std::path::Path| hub(dir, "other", "enabled: false", of_other, "{{event.ref}}");
    assert_eq!(unstarted(shares_a_value).await, (0, json!([none])), "its endpoint is another one");
    let (runs, why) = unstarted(|dir| {
        let text = "---\ntitle: Hub\nsession: { provider: echo }\ntriggers:\n  - { id: t, kind: evnt, type: webhook, title: T, \
                    events: [{ id: call }], config: { endpoint: hub } }\n---\n{{event.ref}}\n";
        write(dir, "automations/hub.md", text);
    })
    .await;
    let why = why[0].as_str().unwrap();
    assert!(runs == 0 && why.starts_with("automation hub: it cannot be read: "), "{why}");
    assert!(
        why.contains("automations/hub.md") && why.contains("triggers[0].kind"),
        "the file and its problem: {why}"
    );
    for (fields, trigger, why) in [
        ("enabled: false", OF_HUB, "it is disabled; enable it with: ostler automation enable hub"),
        (
            "",
            "events: [{ id: cal }], config: { endpoint: hub }",
            "its trigger t does not name the event call",
        ),
        (
            "",
            "events: [{ id: call }], config: { endpoint: hub, ref: dev }",
            "its trigger t requires another value of ref",
        ),
        (
            "enabled: false",
            "events: [{ id: call }], config: { endpoint: hub, ref: dev }",
            "its trigger t requires another value of ref",
        ),
    ] {
        let row = unstarted(|dir| hub(dir, "hub", fields, trigger, "{{event.ref}}")).await;
        assert_eq!(row, (0, json!([format!("automation hub: {why}")])));
    }
    let two = |dir: &std::path::Path| {
        hub(dir, "hub", "", OF_HUB, "{{event.ref}}");
        hub(dir, "off", "enabled: false", OF_HUB, "{{event.ref}}");
    };
    assert_eq!(unstarted(two).await, (1, Value::Null), "the call was for the automation that it started");
}

#[tokio::test]
async fn a_call_that_an_automation_drops_says_why() {
    let dir = folder();
    for id in ["capped", "skips"] {
        endpoint(dir.path(), id, "automation: true");
    }
    let (of_capped, of_skips) = (OF_HUB.replace("hub", "capped"), OF_HUB.replace("hub", "skips"));
    hub(
        dir.path(),
        "capped",
        "_meta: { ostler: { overlap: parallel, hourlyCap: 1 } }",
        &of_capped,
        "{{event.ref}}",
    );
    hub(dir.path(), "other", "_meta: { ostler: { overlap: parallel } }", &of_capped, "{{event.ref}}");
    hub(dir.path(), "skips", "_meta: { ostler: { overlap: skip } }", &of_skips, "/hang {{event.ref}}");
    let world = World::start(&dir).await;
    for path in ["capped", "capped", "skips", "skips"] {
        assert_eq!(world.post_with(path, r#"{"ref":"main"}"#, &BEARER).await.0, 202);
    }
    let started = |row: &Value| (row["runs"].as_array().map_or(0, Vec::len), row["unstarted"].clone());
    let rows = world.deliveries("capped", 2).await;
    let cap = "automation capped: 1 runs in the last hour reach its hourlyCap";
    assert_eq!([started(&rows[0]), started(&rows[1])], [(2, Value::Null), (1, json!([cap]))]);
    let rows = world.deliveries("skips", 2).await;
    let skipped = "automation skips: a run of it is active, and its overlap is skip";
    assert_eq!([started(&rows[0]), started(&rows[1])], [(1, Value::Null), (0, json!([skipped]))]);
}

#[tokio::test]
async fn the_owner_of_an_automation_is_named_where_it_may_not_run() {
    let dir = folder();
    endpoint(dir.path(), "hub", "automation: true");
    hub(dir.path(), "hub", "", OF_HUB, "{{event.ref}}");
    let builder = crate::support::builder(dir.path()).await;
    let world = World::of(&dir, builder.options(|options| options.unowned_automations = false)).await;
    assert_eq!(world.post_with("hub", r#"{"ref":"main"}"#, &BEARER).await.0, 202);
    let row = world.deliveries("hub", 1).await.remove(0);
    assert_eq!(row["unstarted"], json!(["automation hub: it has no owner, and unownedAutomations is none"]));
}

#[tokio::test]
async fn a_prompt_and_an_order_reach_into_lists_and_quoted_names() {
    let dir = folder();
    endpoint(
        dir.path(),
        "hub",
        "automation: true\norderBy: commits[0].id\nwhen: event.commits[0].id != \"none\"",
    );
    let message = "{{event.commits.0.id}} {{event.commits[1].id}} {{event.labels[\"app.kubernetes.io/name\"]}} {{event.commits.7.id}}.";
    hub(dir.path(), "hub", "", OF_HUB, message);
    let world = World::start(&dir).await;
    for pad in [0, 300 * 1024] {
        let body = json!({
            "commits": [{ "id": "c1" }, { "id": 1.5 }], "labels": { "app.kubernetes.io/name": "web" },
            "pad": "x".repeat(pad),
        });
        assert_eq!(world.post_with("hub", body.to_string(), &BEARER).await.0, 202);
    }
    let sessions = until(async || {
        let entries = world.chat("ahp-automations://").await["entries"].clone();
        let runs = entries[0]["runs"].as_array()?.clone();
        let are_done = runs.len() == 2 && runs.iter().all(|run| run["lifecycle"]["status"] == "completed");
        are_done.then(|| {
            runs.iter().map(|run| run["primarySession"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        })
    })
    .await;
    for session in sessions {
        let chat = world.chat(&session).await["defaultChat"].as_str().unwrap().to_owned();
        let text = world.chat(&chat).await["turns"][0]["message"]["text"].as_str().unwrap().to_owned();
        assert!(text.starts_with("c1 1.5 web .\n"), "{text}");
    }
}

#[tokio::test]
async fn a_run_without_a_message_ends_with_that_reason() {
    let dir = folder();
    endpoint(dir.path(), "hub", "automation: true");
    hub(dir.path(), "hub", "", OF_HUB, "{{event.head_commit.message}}\n{{event.missing}}");
    let world = World::start(&dir).await;
    for body in [r#"{"head_commit":{"message":" "}}"#, r#"{"head_commit":{"message":"fix"}}"#] {
        assert_eq!(world.post_with("hub", body, &BEARER).await.0, 202);
    }
    let why = "its message is empty: its placeholders have no values";
    world.host.log.wait_for(&format!("could not start: {why}")).await;
    let ended = async |state: &str| {
        until(async || {
            let entries = world.chat("ahp-automations://").await["entries"].clone();
            let runs = entries[0]["runs"].as_array()?.clone();
            runs.into_iter().find(|run| run["lifecycle"]["status"] == state)
        })
        .await
    };
    let failed = ended("failed").await;
    assert_eq!(failed["lifecycle"]["error"]["message"], why, "{failed}");
    assert!(failed.get("primarySession").is_none(), "no agent was woken: {failed}");
    assert!(ended("completed").await.get("primarySession").is_some());
}

#[tokio::test]
async fn a_refused_check_is_in_the_log_and_checks_do_not_fill_it() {
    let dir = folder();
    endpoint(dir.path(), "check", "automation: true");
    let world = World::start(&dir).await;
    let ask = async |method: &str| {
        let mut asked = request("check?hub.challenge=1158201444", "", &[]);
        *asked.method_mut() = Method::from_bytes(method.as_bytes()).unwrap();
        let response = world.send(asked).await;
        assert_eq!(response.headers()["allow"], "POST");
        read(response).await
    };
    for (at, (method, named)) in
        [("GET", "GET"), ("HEAD", "HEAD"), ("OPTIONS", "OPTIONS"), ("X-CHECK", "another method")]
            .into_iter()
            .enumerate()
    {
        assert_eq!(ask(method).await, (405, json!({ "message": "The method must be POST" })));
        let row = world.refused("check", at + 1).await.pop().unwrap();
        assert_eq!(
            (&row["status"], &row["why"]),
            (&json!(405), &json!(format!("The method must be POST, not {named}")))
        );
        assert!(!row.to_string().contains("1158201444"), "nothing of the URL");
    }
    for _ in 0..100 {
        ask("GET").await;
    }
    assert_eq!(ask("PUT").await.0, 405);
    let rows = until(async || {
        let rows = world.refused("check", 5).await;
        rows.last().is_some_and(|row| row["why"].as_str().unwrap().ends_with("not PUT")).then_some(rows)
    })
    .await;
    let counted: Vec<u64> = rows.iter().map(|row| row["times"].as_u64().unwrap_or(1)).collect();
    assert_eq!(counted, [1, 1, 1, 101, 1], "one row for each reason, the latest last");
}

#[tokio::test]
async fn a_token_beside_other_credentials_is_refused_in_any_order() {
    let dir = folder();
    endpoint(dir.path(), "basic", "automation: true");
    let world = World::start(&dir).await;
    let (bearer, basic) = (format!("Bearer {SECRET}"), "Basic dXNlcjpzM2NyZXQ=");
    for headers in [&[basic][..], &[&bearer, basic], &[basic, &bearer], &[&bearer, &bearer]] {
        let headers: Vec<_> = headers.iter().map(|value| ("authorization", *value)).collect();
        assert_eq!(world.post_with("basic", "{}", &headers).await.0, 401, "{headers:?}");
    }
    assert_eq!(world.post("basic", "{}").await.0, 202);
}

#[tokio::test]
async fn a_repeated_delivery_names_the_first_which_can_be_run_again() {
    let dir = folder();
    write(
        dir.path(),
        "vault.json",
        &json!({ "host:hook": SECRET, "host:webhook-bodies": "k".repeat(32) }).to_string(),
    );
    endpoint(dir.path(), "hub", "automation: true\ndedupe: x-id\nkeepBodies: 1h");
    let broken = |provider: &str| {
        let text = format!(
            "---\ntitle: Hub\nsession: {{ provider: {provider} }}\ntriggers:\n  - {{ id: t, kind: event, type: webhook, title: T, \
             {OF_HUB} }}\n---\n{{{{event.ref}}}}\n"
        );
        write(dir.path(), "automations/hub.md", &text);
    };
    broken("missing");
    let mut world = World::start(&dir).await;
    let send = async |world: &World| {
        let headers = [BEARER[0], ("x-id", "1")];
        assert_eq!(world.post_with("hub", r#"{"ref":"main"}"#, &headers).await.0, 202);
    };
    send(&world).await;
    send(&world).await;
    let rows = world.deliveries("hub", 2).await;
    let first = rows[0]["id"].clone();
    assert_eq!((&rows[1]["again"], &rows[1]["repeats"]), (&json!(true), &first));
    world = world.again().await;
    send(&world).await;
    assert_eq!(world.deliveries("hub", 3).await[2]["repeats"], first, "also after a restart");
    broken("echo");
    world = world.again().await;
    let mut client = world.client().await;
    let row: Value = client.request("x-webhook/replay", json!({ "delivery": first })).await.unwrap();
    assert_eq!((&row["replays"], row["runs"].as_array().unwrap().len()), (&first, 1), "despite dedupe");
    let completed = async || {
        let entries = world.chat("ahp-automations://").await["entries"].clone();
        let statuses = entries[0]["runs"]
            .as_array()?
            .iter()
            .map(|run| run["lifecycle"]["status"].clone())
            .collect::<Vec<_>>();
        (statuses == [json!("completed"), json!("failed")]).then_some(())
    };
    until(completed).await;
}
