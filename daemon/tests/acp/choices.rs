//! What an agent reports of its modes, models and options, as clients can choose it.

use serde_json::{Value, json};

use crate::support::wait_for;
use crate::talk::{Stage, Talk, last};

/// Chooses a setting in a running session. A choice that is refused is never echoed, so that the frames end.
async fn choose(talk: &mut Talk, id: &str, value: &str) {
    let session = talk.session.clone();
    talk.act_on(&session, json!({ "type": "session/configChanged", "config": { id: value } })).await;
    loop {
        let frame = talk.client.next_frame().await.expect("the connection is open");
        let params = &frame["params"];
        assert!(params.get("rejectionReason").is_none(), "{id} = {value}: {frame}");
        if params["action"]["config"] == json!({ id: value }) {
            return;
        }
    }
}

/// The settings of an agent, each with a value that it does not list, and a boolean.
fn unlisted() -> [(Value, &'static [&'static str]); 2] {
    let values = json!([{ "value": "a", "name": "A" }, { "value": "b", "name": "B" }]);
    let option = |id: &str, category: Value| json!({ "id": id, "name": id, "category": category, "type": "select", "currentValue": "own", "options": values });
    let options = json!([
        option("mode", "mode".into()),
        option("model", "model".into()),
        option("effort", Value::Null)
    ]);
    let older = json!({
        "modes": { "currentModeId": "own", "availableModes": [{ "id": "a", "name": "A" }, { "id": "b", "name": "B" }] },
        "models": { "currentModelId": "own",
            "availableModels": [{ "modelId": "a", "name": "A" }, { "modelId": "b", "name": "B" }] },
    });
    [(json!({ "configOptions": options }), &["mode", "model", "effort"]), (older, &["mode", "model"])]
}

#[tokio::test]
async fn a_value_that_the_agent_does_not_list_stays_a_choice() {
    for (new, ids) in unlisted() {
        let stage = Stage::new(json!({ "new": new }));
        stage.talk().await.say("hello").await;
        let mut talk = stage.talk_in("fake:/two", json!({})).await;
        talk.say("hello").await;
        let schema = talk.client.subscribe("fake:/two").await["config"]["schema"]["properties"].clone();
        for id in ids {
            assert_eq!(schema[id]["enum"], json!(["a", "b", "own"]), "{id}: {schema}");
            for value in ["a", "own", "b", "own"] {
                choose(&mut talk, id, value).await;
            }
            talk.say("hello").await;
        }
        // At the creation of a session, too, and for a single message.
        for (at, value) in ["own", "a"].into_iter().enumerate() {
            let config: Value = ids
                .iter()
                .map(|id| ((*id).to_owned(), json!(value)))
                .collect::<serde_json::Map<_, _>>()
                .into();
            let mut next = stage.talk_in(&format!("fake:/three{at}"), config.clone()).await;
            next.say("hello").await;
            let session = next.session.clone();
            assert_eq!(next.client.subscribe(&session).await["config"]["values"], config);
        }
        let message = json!({ "text": "!say hello", "model": { "id": "a" } });
        talk.act(json!({ "type": "chat/turnStarted", "turnId": "a", "message": message })).await;
        talk.until(&["chat/turnComplete"]).await;
        let message = json!({ "text": "!say hello", "model": { "id": "own" } });
        talk.act(json!({ "type": "chat/turnStarted", "turnId": "own", "message": message })).await;
        let seen = talk.until(&["chat/turnComplete", "chat/error"]).await;
        assert_eq!(last(&seen)["type"], "chat/turnComplete", "{seen:#?}");
    }
}

/// The values that the agent takes itself while a session runs.
#[tokio::test]
async fn an_unlisted_value_that_the_agent_takes_itself_is_a_choice() {
    let new = json!({ "modes": { "currentModeId": "a", "availableModes": [{ "id": "a", "name": "A" }, { "id": "b", "name": "B" }] } });
    let stage = Stage::new(json!({ "new": new }));
    stage.talk().await.say("hello").await;
    let mut talk = stage.talk_in("fake:/two", json!({})).await;
    talk.say(r#"!update { "sessionUpdate": "current_mode_update", "currentModeId": "own" }"#).await;
    choose(&mut talk, "mode", "b").await;
}

#[tokio::test]
async fn a_model_that_is_reported_twice_is_chosen_in_one_place() {
    let values = json!([{ "value": "a", "name": "A" }, { "value": "b", "name": "B" }]);
    let option = json!([{ "id": "llm", "name": "Model", "category": "model", "type": "select", "currentValue": "a", "options": values }]);
    let models = json!({ "currentModelId": "a", "availableModels": [{ "modelId": "a", "name": "A" }, { "modelId": "b", "name": "B" }] });
    let update =
        format!("!update {}", json!({ "sessionUpdate": "config_option_update", "configOptions": option }));
    let both = json!({ "configOptions": option, "models": models });
    for (new, script) in [(both, "!say hello"), (json!({ "models": models }), update.as_str())] {
        let stage = Stage::new(json!({ "new": new }));
        let mut talk = stage.talk().await;
        talk.say(script).await;
        let params = json!({ "provider": "fake", "config": {} });
        let resolved = talk.client.request("resolveSessionConfig", params).await.unwrap();
        let properties = resolved["schema"]["properties"].as_object().unwrap();
        let ids: Vec<&String> = properties.keys().collect();
        assert_eq!(ids, ["llm"], "{resolved}");
        // What is first reported in a running session is a setting of the next one.
        if script == "!say hello" {
            choose(&mut talk, "llm", "b").await;
            talk.say("!say hello").await;
        }
    }
}

/// Agents report the size of the current model's context only.
#[tokio::test]
async fn the_sizes_of_contexts_are_known_after_the_agent_reported_them() {
    let models = json!({ "currentModelId": "a", "availableModels": [{ "modelId": "a", "name": "A" }, { "modelId": "b", "name": "B" }] });
    let sizes = |root: &Value| -> Vec<Value> {
        let models = root["agents"][0]["models"].as_array().into_iter().flatten();
        models.map(|model| json!([model["id"], model["maxContextWindow"]])).collect()
    };
    for (new, expected) in [
        (json!({ "models": models }), vec![json!(["a", 200_000]), json!(["b", null])]),
        (json!({}), vec![json!(["default", 200_000])]),
    ] {
        let stage = Stage::new(json!({ "new": new }));
        let mut talk = stage.talk().await;
        let usage = |size: u64| {
            format!("!update {}", json!({ "sessionUpdate": "usage_update", "used": 1, "size": size }))
        };
        talk.say(&[usage(200_000), usage(0), usage(u64::MAX)].join("\n")).await;
        wait_for(|| stage.folder.read("acp-agents/fake.md").contains("200000").then_some(()))
            .expect("it is stored");
        drop(talk);
        let stage = stage.restarted(false);
        let mut client = stage.daemon.initialized("later").await;
        let root = client.subscribe("ahp-root://").await;
        assert_eq!(sizes(&root), expected, "{root}");
    }
}

/// As Cline reports them: the provider of a model has the category of models, too.
#[tokio::test]
async fn the_model_is_the_option_of_that_name() {
    let option = |id: &str, current: &str, values: [&str; 2]| {
        let values: Vec<Value> =
            values.iter().map(|value| json!({ "value": value, "name": value })).collect();
        json!({ "id": id, "name": id, "category": "model", "type": "select", "currentValue": current, "options": values })
    };
    let options =
        json!([option("provider", "here", ["here", "there"]), option("model", "small", ["small", "large"])]);
    let log = tempfile::NamedTempFile::new().unwrap();
    let stage = Stage::new(json!({ "log": log.path(), "new": { "configOptions": options } }));
    let mut talk = stage.talk().await;
    talk.say("hello").await;
    let message = json!({ "text": "!say hello", "model": { "id": "large" } });
    talk.act(json!({ "type": "chat/turnStarted", "turnId": "large", "message": message })).await;
    let seen = talk.until(&["chat/turnComplete", "chat/error"]).await;
    assert_eq!(last(&seen)["type"], "chat/turnComplete", "{seen:#?}");
    let sent = std::fs::read_to_string(log.path()).unwrap();
    let changes: Vec<&str> = sent.lines().filter(|line| line.contains("session/set_config_option")).collect();
    assert!(changes.len() == 1 && changes[0].contains("\"configId\":\"model\""), "{changes:?}");
    wait_for(|| stage.folder.read("acp-agents/fake.md").contains("large").then_some(()))
        .expect("it is stored");
    drop(talk);
    let stage = stage.restarted(false);
    let root = stage.daemon.initialized("later").await.subscribe("ahp-root://").await;
    let models: Vec<&Value> =
        root["agents"][0]["models"].as_array().unwrap().iter().map(|model| &model["id"]).collect();
    assert_eq!(models, ["small", "large"], "{root}");
}
