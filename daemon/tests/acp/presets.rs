//! VS Code's traffic against what the agent of each preset announces in its answer to `session/new`.
//!
//! `presets.json` has a row for each preset: what its agent was recorded to announce, in the version of the preset, with shorter
//! lists and without descriptions. A new preset, and a new version of one, needs a new recording.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use crate::agent;
use crate::talk::{Stage, Talk, text_of};

/// What VS Code sends with each session and again when a user opens its settings: the values of its own agent.
fn of_editor() -> Value {
    json!({ "isolation": "folder", "autoApprove": "default", "mode": "interactive" })
}

/// The recordings, by preset. Fails if one is missing, or is of another version.
fn rows() -> BTreeMap<String, Value> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/acp/presets.json");
    let rows: BTreeMap<String, Value> =
        serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugins/acp/presets");
    let mut presets = Vec::new();
    for preset in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(preset.unwrap().path().join("agent.json")).unwrap();
        let preset: Value = serde_json::from_str(&text).unwrap();
        let (id, version) = (preset["id"].as_str().unwrap().to_owned(), &preset["version"]);
        let row = rows
            .get(&id)
            .unwrap_or_else(|| panic!("the preset {id} has no row in daemon/tests/acp/presets.json"));
        assert_eq!(row["version"], *version, "{id}: record what this version announces");
        presets.push(id);
    }
    presets.sort_unstable();
    assert_eq!(presets, rows.keys().cloned().collect::<Vec<_>>(), "a row is of a preset");
    rows
}

/// The settings in an answer: their ids, values and choices.
fn settings(new: &Value) -> Vec<(String, Value, Vec<Value>)> {
    let list =
        |of: &Value, key: &str| of.as_array().into_iter().flatten().map(|one| one[key].clone()).collect();
    let options = new["configOptions"].as_array().into_iter().flatten();
    let mut settings: Vec<(String, Value, Vec<Value>)> = options
        .map(|option| {
            let id = option["id"].as_str().unwrap().to_owned();
            (id, option["currentValue"].clone(), list(&option["options"], "value"))
        })
        .collect();
    let older = [
        ("mode", "modes", "currentModeId", "availableModes", "id"),
        ("model", "models", "currentModelId", "availableModels", "modelId"),
    ];
    for (id, member, current, all, key) in older {
        if new[member].is_object() && settings.iter().all(|(known, ..)| known != id) {
            settings.push((id.to_owned(), new[member][current].clone(), list(&new[member][all], key)));
        }
    }
    settings
}

/// Dispatches a change of settings; returns whether it was accepted. Each is answered to its sender: with an echo that has
/// its origin, or with a reason.
async fn change(talk: &mut Talk, config: &Value) -> bool {
    let session = talk.session.clone();
    talk.act_on(&session, json!({ "type": "session/configChanged", "config": config })).await;
    loop {
        let frame = talk.client.next_frame().await.expect("the connection is open");
        let params = &frame["params"];
        let is_own = params["origin"].is_object() && params["action"]["type"] == "session/configChanged";
        if is_own && params["action"]["config"] == *config {
            return params.get("rejectionReason").is_none();
        }
    }
}

/// What an agent was told to set.
fn set(log: &Path) -> usize {
    let sent = std::fs::read_to_string(log).unwrap();
    sent.lines().filter(|line| line.contains("\"method\":\"session/set_")).count()
}

#[tokio::test]
async fn vs_code_creates_and_configures_sessions_of_each_preset() {
    let rows = rows();
    let logs = tempfile::tempdir().unwrap();
    let log = |id: &str| logs.path().join(id);
    let mut agents = json!({});
    for (id, row) in &rows {
        std::fs::write(log(id), "").unwrap();
        agents[id] =
            agent::entry(json!({ "log": log(id), "new": row["new"], "announces": row["announces"] }));
    }
    let stage = Stage::with(json!({}), json!({ "agents": agents }));
    for (id, row) in &rows {
        let settings = settings(&row["new"]);
        for session in ["one", "two"] {
            let uri = format!("{id}:/{id}-{session}");
            let about = format!("{uri}: {}", row["new"]);
            let client_id = uri.replace([':', '/'], "-");
            let mut client = stage.daemon.initialized(&client_id).await;
            let editor = json!({ "clientId": client_id, "tools": [] });
            let params =
                json!({ "channel": uri, "provider": id, "config": of_editor(), "activeClient": editor });
            client.request("createSession", params).await.unwrap_or_else(|why| panic!("{about}: {why}"));
            let mut talk = Talk::join(client, &uri).await;
            talk.act_on(&uri, json!({ "type": "session/activeClientSet", "activeClient": editor })).await;
            talk.begin("!say hello").await;
            let seen = talk.until(&["chat/turnComplete", "chat/error"]).await;
            assert_eq!(text_of(&seen), "hello", "{about}: {seen:#?}");
            let values = talk.client.subscribe(&uri).await["config"]["values"].clone();
            for (setting, own, _) in &settings {
                assert_eq!(values[setting], *own, "{setting}: the agent's own, {about}");
            }
            let before = set(&log(id));
            // The whole of it again: no value of it is one of the agent's.
            assert!(!change(&mut talk, &of_editor()).await, "{about}");
            assert!(!change(&mut talk, &json!({ "mode": "interactive" })).await, "{about}");
            let again = talk.client.subscribe(&uri).await["config"]["values"].clone();
            assert_eq!((&again, set(&log(id))), (&values, before), "{about}");
            // Each setting is changed, and changed back.
            for (setting, own, choices) in &settings {
                let Some(other) = choices.iter().find(|choice| *choice != own) else { continue };
                for value in [other, own] {
                    assert!(
                        change(&mut talk, &json!({ setting: value })).await,
                        "{setting} = {value}, {about}"
                    );
                    let values = talk.client.subscribe(&uri).await["config"]["values"].clone();
                    assert_eq!(values[setting], *value, "{about}");
                }
            }
            talk.begin("!say bye").await;
            assert_eq!(text_of(&talk.until(&["chat/turnComplete", "chat/error"]).await), "bye", "{about}");
        }
    }
}
