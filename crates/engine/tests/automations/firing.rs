//! Automations: events wake runs, runs start sessions, and what was kept is found again.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ostler_contract::http::{Body, Method, Request};
use ostler_contract::points::{AutomationStore, Route, SessionStore, TriggerEvent, TriggerType};
use ostler_contract::{Plugin, Value, json};
use ostler_ports::{FileAutomations, FileVault, SqliteSessions, StateDb, memory_records};
use ostler_testkit::{Builder, MemoryHost, RawClient, Stage, builds};

async fn stores(dir: &Path) -> (SessionStore, AutomationStore) {
    let quiet = ostler_ports::Report::quiet();
    let db = StateDb::open(dir).unwrap();
    let automations = FileAutomations::open(dir, db.clone(), quiet.clone()).await.unwrap();
    (Arc::new(SqliteSessions::new(db, quiet)).into_point(), Arc::new(automations).into_point())
}

async fn builder(dir: &Path) -> Builder {
    let (sessions, automations) = stores(dir).await;
    MemoryHost::builder()
        .plugin(ostler_plugin_echo::plugin(), json!({}))
        .plugin(builds(), json!({}))
        .options(|options| options.delta_window_ms = 0)
        .sessions(sessions)
        .automations(automations)
}

fn write(dir: &Path, id: &str, config: &str, message: &str) {
    let trigger = format!(
        "id: t, kind: event, type: build, title: A build, events: [{{ id: done }}], config: {config}"
    );
    write_with(dir, id, &format!("triggers:\n  - {{ {trigger} }}"), message);
}

/// Writes an automation with a head of its own beside what every one has.
fn write_with(dir: &Path, id: &str, head: &str, message: &str) {
    let folder = dir.join("automations");
    std::fs::create_dir_all(&folder).unwrap();
    let text =
        format!("---\ntitle: {id}\nenabled: true\nsession: {{ provider: echo }}\n{head}\n---\n{message}\n");
    std::fs::write(folder.join(format!("{id}.md")), text).unwrap();
}

/// The head of an automation that calls of webhooks wake.
fn webhook_trigger(r#type: &str, events: &str, config: &str) -> String {
    format!(
        "triggers:\n  - {{ id: p, kind: event, type: {type}, title: P, events: [{events}], config: {config} }}"
    )
}

/// A host with the webhook plugin, and no endpoints.
async fn with_webhooks(dir: &Path) -> MemoryHost {
    let builder = builder(dir).await.plugin(ostler_plugin_webhook::plugin(), json!({}));
    builder.records(memory_records()).start().await
}

fn said_of_automations(host: &MemoryHost) -> Vec<String> {
    host.log.all().into_iter().filter(|line| line.starts_with("automation ")).collect()
}

fn object(value: Value) -> ostler_contract::JsonObject {
    value.as_object().cloned().unwrap()
}

/// Waits until something holds, for what other threads do.
async fn until<T>(mut what: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..6000 {
        if let Some(found) = what().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it did not come about");
}

async fn entries(client: &mut RawClient) -> Vec<Value> {
    let subscribed = client.request("subscribe", json!({ "channel": "ahp-automations://" })).await.unwrap();
    subscribed["snapshot"]["state"]["entries"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_fired_event_runs_the_automations_it_matches_and_each_settles() {
    let dir = tempfile::tempdir().unwrap();
    write(
        dir.path(),
        "main",
        "{ branch: main }",
        "Build {{event.branch}} was {{event.ok}} in {{event.ms}} ms{{session}}.",
    );
    write(dir.path(), "other", "{ branch: other }", "never");
    let host = builder(dir.path()).await.start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    assert_eq!(entries(&mut client).await.len(), 2);
    let fired = host
        .plugin("builds")
        .fire_trigger(
            "build".into(),
            "done".into(),
            object(json!({ "branch": "main", "ok": true, "ms": 12 })),
        )
        .unwrap();
    let runs = fired.kept.call(()).await.unwrap();
    assert_eq!(runs.len(), 1);
    let run = until(async || {
        let run =
            client.request("subscribe", json!({ "channel": runs[0] })).await.unwrap()["snapshot"]["state"]
                .clone();
        (run["lifecycle"]["status"] == "completed").then_some(run)
    })
    .await;
    assert_eq!(run["origin"]["event"], json!({ "branch": "main", "ok": true, "ms": 12, "event": "done" }));
    let session = run["primarySession"].as_str().unwrap();
    let chat = ostler_protocol::uri::default_chat(session);
    let state =
        client.request("subscribe", json!({ "channel": chat })).await.unwrap()["snapshot"]["state"].clone();
    let turn = &state["turns"][0];
    assert_eq!(turn["message"]["origin"]["kind"], "automation");
    let text = turn["message"]["text"].as_str().unwrap();
    assert!(
        text.starts_with("Build main was true in 12 ms.\n\nWhat woke this run: done\nCount: 1\nAt: "),
        "{text}"
    );
    let listed = client.request("listSessions", json!({})).await.unwrap();
    assert_eq!(listed["items"][0]["origin"]["run"], json!(runs[0]));
}

#[tokio::test]
async fn a_run_is_of_the_backend_that_its_automation_names() {
    let dir = tempfile::tempdir().unwrap();
    for id in ["first", "second"] {
        write(dir.path(), id, "{}", "Hello.");
    }
    let file = dir.path().join("automations/second.md");
    let text = std::fs::read_to_string(&file).unwrap().replace("provider: echo", "provider: stage");
    std::fs::write(&file, text).unwrap();
    // The default is the first, which the one named is not.
    let host = builder(dir.path()).await.plugin(Stage::default().plugin(), json!({})).start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    let fired = host.plugin("builds").fire_trigger("build".into(), "done".into(), object(json!({}))).unwrap();
    let runs = fired.kept.call(()).await.unwrap();
    assert_eq!(runs.len(), 2, "{runs:?}");
    for run in runs {
        let (automation, session) = until(async || {
            let run = client.request("subscribe", json!({ "channel": run })).await.unwrap();
            let state = &run["snapshot"]["state"];
            let session = state["primarySession"].as_str()?.to_owned();
            Some((state["automation"].clone(), session))
        })
        .await;
        let provider = if automation == "ahp-automation:/second" { "stage" } else { "echo" };
        assert!(session.starts_with(&format!("{provider}:/")), "{automation}: {session}");
        let listed = client.request("listSessions", json!({})).await.unwrap();
        let row = listed["items"].as_array().unwrap().iter().find(|row| row["resource"] == *session);
        assert_eq!(row.unwrap()["provider"], provider);
    }
}

#[tokio::test]
async fn a_field_called_event_is_the_events_own() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "main", "{}", "{{event}}: {{event.event.text}}, {{event.event}}, {{{event.kind}}}.");
    let host = builder(dir.path()).await.start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    for (data, said, kept) in [
        (
            json!({ "kind": "k", "event": { "text": "hello" } }),
            "done: hello, {\"text\":\"hello\"}, {k}.",
            json!({ "kind": "k", "event": { "text": "hello" } }),
        ),
        (json!({ "event": "push" }), "done: , push, {}.", json!({ "event": "push" })),
        (json!({ "kind": "k" }), "done: , , {k}.", json!({ "kind": "k", "event": "done" })),
    ] {
        let fired = host.plugin("builds").fire_trigger("build".into(), "done".into(), object(data)).unwrap();
        let run = fired.kept.call(()).await.unwrap().remove(0);
        let state = until(async || {
            let run = client.request("subscribe", json!({ "channel": run })).await.unwrap();
            let state = run["snapshot"]["state"].clone();
            (state["lifecycle"]["status"] == "completed").then_some(state)
        })
        .await;
        assert_eq!(state["origin"]["event"], kept);
        let chat = ostler_protocol::uri::default_chat(state["primarySession"].as_str().unwrap());
        let chat = client.request("subscribe", json!({ "channel": chat })).await.unwrap();
        let text = chat["snapshot"]["state"]["turns"][0]["message"]["text"].clone();
        let text = text.as_str().unwrap();
        assert!(text.starts_with(&format!("{said}\n\nWhat woke this run: done\n")), "{text}");
    }
}

#[tokio::test]
async fn an_event_nobody_registered_is_thrown_at_the_plugin() {
    let dir = tempfile::tempdir().unwrap();
    let host = builder(dir.path()).await.start().await;
    let fire = |r#type: &str, event: &str| {
        host.plugin("builds")
            .fire_trigger(r#type.into(), event.into(), object(json!({})))
            .unwrap_err()
            .message
    };
    assert_eq!(
        fire("other", "done"),
        "plugin builds: fireTrigger needs type to be a type this plugin registered, not other"
    );
    assert_eq!(
        fire("build", "nope"),
        "plugin builds: fireTrigger needs event to be an event build offers, not nope"
    );
    let none = host.plugin("builds").fire_trigger("build".into(), "done".into(), object(json!({}))).unwrap();
    assert_eq!(none.kept.call(()).await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn a_definition_edited_by_hand_holds_from_then_on() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a", "{ branch: main }", "one");
    let host = builder(dir.path()).await.start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    entries(&mut client).await;
    write(dir.path(), "b", "{}", "two");
    let set = client.actions_until("automation/set").await.pop().unwrap();
    assert_eq!(set["action"]["automation"]["resource"], "ahp-automation:/b");
    std::fs::remove_file(dir.path().join("automations/a.md")).unwrap();
    let removed = client.actions_until("automation/removed").await.pop().unwrap();
    assert_eq!(removed["action"]["resource"], "ahp-automation:/a");
    let fired = host
        .plugin("builds")
        .fire_trigger("build".into(), "done".into(), object(json!({ "branch": "main" })))
        .unwrap();
    assert_eq!(fired.kept.call(()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn clients_make_change_run_and_remove_automations() {
    let dir = tempfile::tempdir().unwrap();
    let host = builder(dir.path()).await.start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    entries(&mut client).await;
    let definition = json!({ "title": "By hand", "enabled": false, "session": { "provider": "echo" }, "triggers": [],
        "message": { "text": "", "origin": { "kind": "automation" } } });
    let create = json!({ "type": "automation/createRequested", "resource": "ahp-automation:/mine", "definition": definition });
    client.dispatch("ahp-automations://", 1, create.clone()).await;
    let set = client.actions_until("automation/set").await.pop().unwrap();
    assert_eq!(set["origin"], json!({ "clientId": "c", "clientSeq": 1 }));
    assert!(
        std::fs::read_to_string(dir.path().join("automations/mine.md")).unwrap().contains("title: By hand")
    );
    client.dispatch("ahp-automations://", 2, create).await;
    assert!(client.next_action().await["rejectionReason"].as_str().unwrap().contains("already"));
    let update = json!({ "type": "automation/updateRequested", "resource": "ahp-automation:/mine", "changes": { "title": "Renamed" } });
    client.dispatch("ahp-automations://", 3, update).await;
    assert_eq!(
        client.actions_until("automation/set").await.pop().unwrap()["action"]["automation"]["definition"]["title"],
        "Renamed"
    );
    let params =
        json!({ "channel": "ahp-automations://", "automation": "ahp-automation:/mine", "requestId": "r1" });
    let run = client.request("runAutomation", params.clone()).await.unwrap();
    assert_eq!(
        client.request("runAutomation", params).await.unwrap(),
        run,
        "the same request is the same run"
    );
    let gone = json!({ "automation": "ahp-automation:/none", "requestId": "r" });
    assert_eq!(client.request("runAutomation", gone).await.unwrap_err()["code"], -32001);
    let cursor = json!({ "automation": "ahp-automation:/mine", "cursor": "nonsense" });
    assert_eq!(client.request("fetchAutomationRuns", cursor).await.unwrap_err()["code"], -32602);
    client
        .dispatch(
            "ahp-automations://",
            4,
            json!({ "type": "automation/removed", "resource": "ahp-automation:/mine" }),
        )
        .await;
    client.actions_until("automation/removed").await;
    assert!(!dir.path().join("automations/mine.md").exists());
}

#[tokio::test]
async fn runs_that_no_longer_fit_are_found_page_by_page() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "often", "{}", "x");
    let host = builder(dir.path()).await.start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    let all = json!({ "channel": "ahp-automations://" });
    let mut made = Vec::new();
    for at in 0..45 {
        let run = json!({ "automation": "ahp-automation:/often", "requestId": format!("r{at}") });
        made.insert(0, client.request("runAutomation", run).await.unwrap()["resource"].clone());
    }
    let mut entry = entries(&mut client).await.remove(0);
    assert_eq!(entry["runs"].as_array().unwrap().len(), 20);
    while let Some(cursor) = entry["runsNextCursor"].as_str() {
        let page = json!({ "automation": "ahp-automation:/often", "cursor": cursor });
        client.request("fetchAutomationRuns", page).await.unwrap();
        entry = client.request("subscribe", all.clone()).await.unwrap()["snapshot"]["state"]["entries"][0]
            .clone();
    }
    let shown: Vec<Value> =
        entry["runs"].as_array().unwrap().iter().map(|run| run["resource"].clone()).collect();
    assert_eq!(shown, made);
}

#[tokio::test]
async fn a_large_event_stands_on_its_runs_own_channel_alone() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "any", "{}", "x");
    let host = builder(dir.path()).await.start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    for length in [10, 1 << 20] {
        let data = object(json!({ "log": "x".repeat(length) }));
        let fired = host.plugin("builds").fire_trigger("build".into(), "done".into(), data).unwrap();
        let run = fired.kept.call(()).await.unwrap().remove(0);
        let state = until(async || {
            let run = client.request("subscribe", json!({ "channel": run })).await.unwrap();
            let state = run["snapshot"]["state"].clone();
            (state["lifecycle"]["status"] == "completed").then_some(state)
        })
        .await;
        assert_eq!(state["origin"]["event"]["log"].as_str().unwrap().len(), length);
        let shown = until(async || {
            let entry = entries(&mut client).await.remove(0);
            let shown = entry["runs"].as_array().unwrap().iter().find(|shown| shown["resource"] == *run);
            shown.filter(|shown| shown["lifecycle"]["status"] == "completed").cloned()
        })
        .await;
        assert_eq!(shown["origin"]["triggerId"], "t");
        assert_eq!(shown["origin"]["event"].is_object(), length == 10, "{length}");
    }
}

#[tokio::test]
async fn what_was_kept_is_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a", "{}", "hello");
    let first = builder(dir.path()).await.start().await;
    let fired =
        first.plugin("builds").fire_trigger("build".into(), "done".into(), object(json!({}))).unwrap();
    let runs = fired.kept.call(()).await.unwrap();
    let mut client = first.raw();
    client.initialize("c").await;
    until(async || {
        let run = client.request("subscribe", json!({ "channel": runs[0] })).await.unwrap();
        (run["snapshot"]["state"]["lifecycle"]["status"] == "completed").then_some(())
    })
    .await;
    client.request("createSession", json!({ "channel": "echo:/mine" })).await.unwrap();
    let chat = ostler_protocol::uri::default_chat("echo:/mine");
    client.request("subscribe", json!({ "channel": chat })).await.unwrap();
    client
        .dispatch(
            &chat,
            1,
            json!({ "type": "chat/turnStarted", "turnId": "t1", "message": { "text": "kept" } }),
        )
        .await;
    client.actions_until("chat/turnComplete").await;
    client
        .dispatch(
            &chat,
            2,
            json!({ "type": "chat/turnStarted", "turnId": "t2", "message": { "text": "/hang" } }),
        )
        .await;
    client.actions_until("chat/turnStarted").await;
    drop(client);
    drop(first);
    // Nothing was closed: as if the process had been killed.
    let second = builder(dir.path()).await.start().await;
    let mut client = second.raw();
    client.initialize("c").await;
    let listed = client.request("listSessions", json!({})).await.unwrap();
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);
    let state =
        client.request("subscribe", json!({ "channel": chat })).await.unwrap()["snapshot"]["state"].clone();
    assert_eq!(state["turns"][0]["responseParts"][0]["content"], "kept");
    assert_eq!(state["turns"][1]["state"], "error", "a turn that was running counts as failed");
    assert_eq!(state["title"], "kept");
    let run = client.request("subscribe", json!({ "channel": runs[0] })).await.unwrap();
    assert_eq!(run["snapshot"]["state"]["lifecycle"]["status"], "completed");
    client
        .dispatch(
            &chat,
            3,
            json!({ "type": "chat/turnStarted", "turnId": "t3", "message": { "text": "awake again" } }),
        )
        .await;
    client.actions_until("chat/turnComplete").await;
}

#[tokio::test]
async fn a_webhook_call_fires_the_automation_that_names_its_endpoint() {
    let dir = tempfile::tempdir().unwrap();
    let head = webhook_trigger("webhook", "{ id: call }", "{ endpoint: push, branch: main }");
    write_with(dir.path(), "push", &head, "{{event.who}} pushed to {{event.endpoint}}");
    let records = memory_records();
    let vault = Arc::new(FileVault::new(dir.path(), ostler_ports::Report::quiet()).unwrap()).into_point();
    vault.set.unbounded(("host:push".into(), "s3cret".into())).await.unwrap();
    let endpoints = records.collection.unbounded(("webhooks".into(), Default::default())).await.unwrap();
    for record in [
        json!({ "id": "push", "automation": true, "secret": "host:push" }),
        json!({ "id": "bare", "automation": true, "secret": "host:none" }),
        json!({ "id": "broken", "automation": true }),
        json!({ "id": "bot", "bot": "bot://helper", "secret": "host:push", "reply": "none" }),
    ] {
        endpoints.put.unbounded((object(record),)).await.unwrap();
    }
    let host = builder(dir.path())
        .await
        .plugin(ostler_plugin_webhook::plugin(), json!({}))
        .records(records)
        .vault(vault)
        .start()
        .await;
    let route = host.host.core.registry().unwrap().all::<Route>()[0].handler.clone();
    let call = async |method: Method, path: &str, token: Option<&str>, body: &str| {
        let mut request = Request::new(Body::from(body.to_owned()));
        *request.method_mut() = method;
        *request.uri_mut() = format!("/plugins/webhook/{path}").parse().unwrap();
        if let Some(token) = token {
            request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        let response = route.unbounded((request,)).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().read(1 << 16).await.unwrap();
        (status, serde_json::from_slice::<Value>(&body).unwrap())
    };
    let message = |text: &str| json!({ "message": text });
    let post = Method::POST;
    assert_eq!(
        call(post.clone(), "push", None, "{}").await,
        (401, message("The endpoint's secret is required as bearer token"))
    );
    assert_eq!(call(post.clone(), "push", Some("wrong"), "{}").await.0, 401);
    assert_eq!(call(post.clone(), "bare", Some("s3cret"), "{}").await.0, 401);
    assert!(host.log.has("endpoint webhooks/bare is unavailable: the vault holds no host:none"));
    for path in ["none", "broken", "push/more", "push/", "", "%70ush", "../webhook/push"] {
        assert_eq!(call(post.clone(), path, Some("s3cret"), "{}").await.0, 404, "{path}");
    }
    until(async || host.log.has("endpoint webhooks/broken: secret must be the vault name").then_some(()))
        .await;
    assert_eq!(call(Method::GET, "push", Some("s3cret"), "").await.0, 405);
    assert_eq!(call(post.clone(), "push", Some("s3cret"), "{").await, (400, message("The body is not JSON")));
    assert_eq!(call(post.clone(), "push", Some("s3cret"), "").await, (400, message("The body is not JSON")));
    assert_eq!(
        call(post.clone(), "push", Some("s3cret"), "[1]").await,
        (400, message("The body is not a JSON object"))
    );
    assert_eq!(
        call(post.clone(), "bot", Some("s3cret"), "{}").await,
        (400, message("The call has no thread"))
    );
    assert_eq!(
        call(post.clone(), "bot", Some("s3cret"), r#"{"thread":"t","text":"hello"}"#).await,
        (409, message("nothing here serves bot:"))
    );
    let body = r#"{"who":"Ada","branch":"main","endpoint":"forged"}"#;
    assert_eq!(call(post.clone(), "push", Some("s3cret"), body).await, (202, json!({ "endpoint": "push" })));
    assert_eq!(
        call(post.clone(), "push", Some("s3cret"), r#"{"branch":"dev"}"#).await.0,
        202,
        "matched nothing, and that is no failure"
    );
    let mut client = host.raw();
    client.initialize("c").await;
    let entry = entries(&mut client).await.remove(0);
    assert_eq!(entry["runs"].as_array().unwrap().len(), 1);
    let run = entry["runs"][0]["resource"].clone();
    let session = until(async || {
        let run = client.request("subscribe", json!({ "channel": run })).await.unwrap();
        run["snapshot"]["state"]["primarySession"].as_str().map(str::to_owned)
    })
    .await;
    let chat = ostler_protocol::uri::default_chat(&session);
    let text = until(async || {
        let state = client.request("subscribe", json!({ "channel": chat })).await.unwrap();
        state["snapshot"]["state"]["turns"][0]["message"]["text"].as_str().map(str::to_owned)
    })
    .await;
    assert!(text.starts_with("Ada pushed to push"), "{text}");
}

#[tokio::test]
async fn a_call_wakes_only_what_names_its_endpoint() {
    let dir = tempfile::tempdir().unwrap();
    for (id, config) in [
        ("none", "{}"),
        ("other", "{ branch: main }"),
        ("empty", "{ endpoint: null }"),
        ("named", "{ endpoint: push }"),
    ] {
        write_with(dir.path(), id, &webhook_trigger("webhook", "{ id: call }", config), "Hello.");
    }
    let host = with_webhooks(dir.path()).await;
    let data = object(json!({ "endpoint": "push", "branch": "main" }));
    let fired = host.plugin("webhook").fire_trigger("webhook".into(), "call".into(), data).unwrap();
    assert_eq!(fired.kept.call(()).await.unwrap().len(), 1);
    let mut client = host.raw();
    client.initialize("c").await;
    for entry in entries(&mut client).await {
        let woken = !entry["runs"].as_array().unwrap().is_empty();
        assert_eq!(woken, entry["resource"] == "ahp-automation:/named", "{entry}");
    }
    for id in ["none", "other", "empty"] {
        let line = format!(
            "automation {id}: its trigger p of type webhook names no endpoint, so no event wakes it; \
             write config: {{ endpoint: <endpoint> }}"
        );
        assert_eq!(host.log.all().iter().filter(|said| **said == line).count(), 1, "{:#?}", host.log.all());
    }
    assert!(!host.log.has("automation named"));
}

#[tokio::test]
async fn a_trigger_nothing_fires_is_named() {
    let dir = tempfile::tempdir().unwrap();
    for (id, r#type, events) in
        [("type", "webhok", "{ id: call }"), ("event", "webhook", "{ id: cal }, { id: call }")]
    {
        write_with(dir.path(), id, &webhook_trigger(r#type, events, "{ endpoint: push }"), "Hello.");
    }
    let host = with_webhooks(dir.path()).await;
    assert_eq!(
        said_of_automations(&host),
        [
            "automation event: trigger p: no loaded plugin offers the event cal; webhook offers only call",
            "automation type: its trigger p never fires: no loaded plugin offers the type webhok, only session, watch, \
             build, webhook",
        ]
    );
    let data = object(json!({ "endpoint": "push" }));
    let fired = host.plugin("webhook").fire_trigger("webhook".into(), "call".into(), data).unwrap();
    assert_eq!(fired.kept.call(()).await.unwrap().len(), 1, "the event that is one still wakes it");
}

#[tokio::test]
async fn a_setting_that_means_nothing_is_named() {
    let dir = tempfile::tempdir().unwrap();
    for (id, own) in [
        ("good", "{ session: pinned, overlap: skip, hourlyCap: 1 }"),
        ("bad", "{ session: pined, overlap: steeer, hourlyCap: '5', overlaps: skip }"),
        ("flat", "pinned"),
    ] {
        write_with(dir.path(), id, &format!("_meta: {{ ostler: {own} }}"), "Hello.");
    }
    let host = builder(dir.path()).await.start().await;
    assert_eq!(
        said_of_automations(&host),
        [
            "automation bad: _meta.ostler.session is not one of new, pinned, so the first applies",
            "automation bad: _meta.ostler.overlap is not one of queue, steer, parallel, skip, so the first applies",
            "automation bad: _meta.ostler.hourlyCap is not an integer of at least 1, so 20 applies",
            "automation bad: _meta.ostler.overlaps is unknown and ignored; the settings are session, overlap, hourlyCap, onHostLost, after",
            "automation flat: _meta.ostler is not an object, so it is ignored",
        ]
    );
}

/// A plugin that fires in `apply`, and keeps what was fired.
fn eager(spec: &'static str, fired: &Arc<std::sync::Mutex<Vec<ostler_contract::host::Fired>>>) -> Plugin {
    let kept = fired.clone();
    Plugin::new(spec, move |host, _| {
        let kept = kept.clone();
        Box::pin(async move {
            host.register_trigger_type(TriggerType {
                r#type: "early".into(),
                title: "Early".into(),
                events: vec![TriggerEvent { id: "done".into(), title: "Done".into(), description: None }],
                ..TriggerType::default()
            })?;
            let fired = host.fire_trigger("early".into(), "done".into(), object(json!({ "from": spec })))?;
            kept.lock().unwrap().push(fired);
            Ok(())
        })
    })
}

#[tokio::test]
async fn an_event_fired_in_apply_is_heard_once_the_automations_are_read() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a", "{}", "From {{event.from}}.");
    let file = dir.path().join("automations/a.md");
    std::fs::write(&file, std::fs::read_to_string(&file).unwrap().replace("type: build", "type: early"))
        .unwrap();
    let fired = Arc::default();
    let host = builder(dir.path())
        .await
        .plugin(eager("@test/one", &fired), json!({}))
        .plugin(eager("@test/two", &fired), json!({}))
        .start()
        .await;
    let fired = fired.lock().unwrap().clone();
    assert_eq!(fired[0].kept.call(()).await.unwrap().len(), 1);
    // The second lost the name to the first.
    let lost = "plugin two: fireTrigger needs type to be a type this plugin registered, not early";
    assert_eq!(fired[1].kept.call(()).await.unwrap_err().message, lost);
    assert!(host.log.has(lost));
    let thrown = host.plugin("two").fire_trigger("early".into(), "done".into(), object(json!({})));
    assert_eq!(thrown.unwrap_err().message, lost);
    assert_eq!(
        host.problems,
        ["plugin two registers trigger type early, which plugin one already registered"]
    );
}

#[tokio::test]
async fn a_run_that_starts_is_told_of() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a", "{}", "Hello.");
    let listens = Plugin::new("@test/listens", |host, _| {
        Box::pin(async move {
            let log = host.clone();
            host.on(
                ostler_contract::events::EventName::AutomationFire,
                ostler_contract::Call::now(move |(event, _)| {
                    let event: ostler_contract::Frozen<ostler_contract::events::Event> = event;
                    log.log(serde_json::to_string(&event.0).unwrap())
                }),
            )
        })
    });
    let host = builder(dir.path()).await.plugin(listens, json!({})).start().await;
    let fired = host.plugin("builds").fire_trigger("build".into(), "done".into(), object(json!({}))).unwrap();
    let run = fired.kept.call(()).await.unwrap().remove(0);
    let told = json!({ "type": "automation_fire", "automation": "ahp-automation:/a", "run": run });
    host.log.wait_for(&format!("plugin listens: {told}")).await;
}

#[tokio::test]
async fn firing_does_not_wait_for_what_it_starts() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a", "{}", "Hello.");
    let (_, store) = stores(dir.path()).await;
    let stuck = AutomationStore { run: ostler_contract::Call::new(|_| std::future::pending()), ..store };
    let host = MemoryHost::builder()
        .plugin(ostler_plugin_echo::plugin(), json!({}))
        .plugin(builds(), json!({}))
        .automations(stuck)
        .start()
        .await;
    let fired = host.plugin("builds").fire_trigger("build".into(), "done".into(), object(json!({}))).unwrap();
    let mut kept = fired.kept.call(());
    for _ in 0..50 {
        tokio::task::yield_now().await;
        assert!(futures::poll!(&mut kept).is_pending(), "the run it started is never kept");
    }
}
