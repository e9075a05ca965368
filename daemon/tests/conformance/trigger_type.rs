//! `registerTriggerType` and `fireTrigger`: events of a plugin's that wake automations.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_contract::points::{Tool, ToolSpec, TriggerEvent, TriggerType};
use ostler_contract::{Call, Options, PluginHost, Thrown, Value, json};
use ostler_ports::{FileAutomations, StateDb};
use ostler_testkit::Builder;

use crate::side::{Both, Side, Talk, object};

const PLUGIN: Both =
    Both { spec: "@conformance/trigger-type", native, javascript: "trigger-type.mjs", dress: None };
const LATER: Both =
    Both { spec: "@conformance/later", native: later, javascript: "trigger-type-later.mjs", dress: None };

both! { PLUGIN:
    a_type_is_offered_as_it_was_registered,
    a_fired_event_runs_what_it_matches,
    a_fired_event_runs_each_that_waits_for_it_and_no_other,
    what_was_not_registered_cannot_be_fired,
    a_type_two_plugins_claim_is_the_firsts,
}

fn fire_tool(host: &PluginHost, name: &str) -> Tool {
    let host = host.clone();
    Tool {
        definition: ToolSpec { name: name.into(), ..ToolSpec::default() },
        run: Call::new(move |(input, _): (Value, _)| {
            let host = host.clone();
            async move {
                let word = |key: &str, default: &str| input[key].as_str().unwrap_or(default).to_owned();
                let data = input["data"].as_object().cloned().unwrap_or_default();
                match host.fire_trigger(word("type", "build"), word("event", "done"), data) {
                    Ok(fired) => Ok(json!(fired.kept.call(()).await?)),
                    Err(thrown) => Ok(thrown.message.into()),
                }
            }
        }),
        ..Tool::default()
    }
}

fn event(id: &str, title: &str, description: Option<&str>) -> TriggerEvent {
    TriggerEvent { id: id.into(), title: title.into(), description: description.map(str::to_owned) }
}

fn native(host: PluginHost, _: Options) -> Result<(), Thrown> {
    host.register_trigger_type(TriggerType {
        r#type: "build".into(),
        title: "A build".into(),
        description: Some("Fired when a build ends.".into()),
        events: vec![event("done", "Done", None), event("failed", "Failed", Some("It did not pass."))],
        config_schema: Some(object(
            json!({ "type": "object", "properties": { "branch": { "type": "string" } } }),
        )),
    })?;
    host.register_tool(fire_tool(&host, "fire"))
}

fn later(host: PluginHost, _: Options) -> Result<(), Thrown> {
    for (name, title) in [("build", "Mine"), ("deploy", "A deployment")] {
        host.register_trigger_type(TriggerType {
            r#type: name.into(),
            title: title.into(),
            events: vec![event("done", "Done", None)],
            ..TriggerType::default()
        })?;
    }
    host.register_tool(fire_tool(&host, "fire-later"))
}

/// An automation of these settings: the id, whether it is enabled, the type and event it waits for, and its config.
type Saved = (&'static str, bool, &'static str, &'static str, &'static str);

async fn with_automations(builder: Builder, dir: &Path) -> Builder {
    let saved = [
        ("main", true, "build", "done", "{ branch: main }"),
        ("other", true, "build", "done", "{ branch: other }"),
    ];
    with_saved(builder, dir, &saved).await
}

async fn with_saved(builder: Builder, dir: &Path, saved: &[Saved]) -> Builder {
    let folder = dir.join("automations");
    std::fs::create_dir_all(&folder).unwrap();
    for (id, enabled, r#type, event, config) in saved {
        let text = format!(
            "---\ntitle: {id}\nenabled: {enabled}\nsession:\n  provider: echo\ntriggers:\n  - id: t\n    kind: event\n    \
             type: {type}\n    title: A build\n    events:\n      - id: {event}\n    config: {config}\n---\nBuilt {{{{event.branch}}}}.\n"
        );
        std::fs::write(folder.join(format!("{id}.md")), text).unwrap();
    }
    let db = StateDb::open(dir).unwrap();
    let store =
        FileAutomations::open(dir, db, ostler_ports::Report::new(|line| panic!("{line}"))).await.unwrap();
    builder.automations(Arc::new(store).into_point())
}

async fn fire(talk: &mut Talk, tool: &str, input: Value) -> Value {
    let said = talk.tool(tool, input).await;
    serde_json::from_str(&said).unwrap_or(Value::String(said))
}

async fn a_type_is_offered_as_it_was_registered(side: Side) {
    let dir = tempfile::tempdir().unwrap();
    let host = with_automations(side.host_with_echo(), dir.path()).await.start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    let offered = client.request("listAutomationTriggerDefinitions", json!({})).await.unwrap();
    let types = offered.as_object().unwrap().values().find_map(Value::as_array).unwrap();
    let build =
        types.iter().find(|offered| offered["type"] == "build").unwrap_or_else(|| panic!("{offered}"));
    assert_eq!(build["title"], "A build");
    assert_eq!(build["description"], "Fired when a build ends.");
    assert_eq!(
        build["events"][1],
        json!({ "id": "failed", "title": "Failed", "description": "It did not pass." })
    );
    let branch = json!({ "type": "string", "title": "branch" });
    assert_eq!(build["configSchema"]["properties"]["branch"], branch, "{build}");
}

async fn a_fired_event_runs_what_it_matches(side: Side) {
    let dir = tempfile::tempdir().unwrap();
    let host = with_automations(side.host_with_echo(), dir.path()).await.start().await;
    let mut talk = Talk::with(&host, "echo").await;
    assert_eq!(
        fire(&mut talk, "fire", json!({ "event": "failed", "data": { "branch": "main" } })).await,
        json!([])
    );
    let runs = fire(&mut talk, "fire", json!({ "data": { "branch": "main", "ms": 12 } })).await;
    assert_eq!(runs.as_array().unwrap().len(), 1, "{runs}");
    let mut client = host.raw();
    client.initialize("c").await;
    let end = Instant::now() + Duration::from_secs(30);
    let run = loop {
        let subscribed = client.request("subscribe", json!({ "channel": runs[0] })).await.unwrap();
        let run = subscribed["snapshot"]["state"].clone();
        if run["lifecycle"]["status"] == "completed" {
            break run;
        }
        assert!(Instant::now() < end, "{run}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    };
    assert!(run["automation"].as_str().unwrap().ends_with("main"), "{run}");
    assert_eq!(run["origin"]["event"]["ms"], 12);
    let chat = ostler_protocol::uri::default_chat(run["primarySession"].as_str().unwrap());
    let state = client.request("subscribe", json!({ "channel": chat })).await.unwrap();
    let said = state["snapshot"]["state"]["turns"][0]["message"]["text"].as_str().unwrap();
    assert!(said.starts_with("Built main."), "{said}");
}

async fn a_fired_event_runs_each_that_waits_for_it_and_no_other(side: Side) {
    let dir = tempfile::tempdir().unwrap();
    let saved = [
        ("empty", true, "build", "done", "{}"),
        ("main", true, "build", "done", "{ branch: main }"),
        ("number", true, "build", "done", "{ n: 1 }"),
        ("tagged", true, "build", "done", "{ branch: main, tag: v1 }"),
        ("off", false, "build", "done", "{}"),
        ("failed", true, "build", "failed", "{}"),
        ("another", true, "session", "done", "{}"),
    ];
    let host = with_saved(side.host_with_echo(), dir.path(), &saved).await.start().await;
    let mut talk = Talk::with(&host, "echo").await;
    let mut client = host.raw();
    client.initialize("c").await;
    for (event, data, woken) in [
        ("done", json!({ "branch": "main", "n": "1" }), &["empty", "main", "tagged"][..]),
        ("done", json!({ "branch": "main", "n": 2, "tag": "v2" }), &["empty", "main"]),
        ("done", json!({ "branch": "dev", "n": 1, "tag": "v1" }), &["empty", "number"]),
        // What the data lacks never blocks.
        ("done", json!({}), &["empty", "main", "number", "tagged"]),
        ("failed", json!({ "branch": "main" }), &["failed"]),
    ] {
        let runs = fire(&mut talk, "fire", json!({ "event": event, "data": data })).await;
        let mut names = Vec::new();
        for run in runs.as_array().unwrap_or_else(|| panic!("{runs}")) {
            let subscribed = client.request("subscribe", json!({ "channel": run })).await.unwrap();
            let automation = subscribed["snapshot"]["state"]["automation"].as_str().unwrap().to_owned();
            names.push(automation.strip_prefix("ahp-automation:/").unwrap().to_owned());
        }
        names.sort_unstable();
        assert_eq!(names, woken, "{event} {data}");
    }
}

async fn what_was_not_registered_cannot_be_fired(side: Side) {
    let host = side.host_with_echo().start().await;
    let mut talk = Talk::with(&host, "echo").await;
    assert_eq!(
        fire(&mut talk, "fire", json!({ "type": "other" })).await,
        "plugin trigger-type: fireTrigger needs type to be a type this plugin registered, not other"
    );
    assert_eq!(
        fire(&mut talk, "fire", json!({ "event": "nope" })).await,
        "plugin trigger-type: fireTrigger needs event to be an event build offers, not nope"
    );
}

async fn a_type_two_plugins_claim_is_the_firsts(side: Side) {
    let host = side.other(LATER).load(side.host_with_echo(), json!({})).start().await;
    let types: Vec<String> =
        host.registry().all::<TriggerType>().iter().map(|held| held.title.to_string()).collect();
    assert_eq!(types, ["A build", "A deployment"], "the second keeps what else it has");
    assert_eq!(host.problems.len(), 1, "{:?}", host.problems);
    assert!(
        host.problems[0].contains("build")
            && host.problems[0].contains("trigger-type")
            && host.problems[0].contains("later")
    );
    let lost = fire(&mut Talk::with(&host, "echo").await, "fire-later", json!({ "type": "build" })).await;
    assert_eq!(lost, "plugin later: fireTrigger needs type to be a type this plugin registered, not build");
}
