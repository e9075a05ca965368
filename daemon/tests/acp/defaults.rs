//! What a session has chosen is its own: a new session begins with the agent's own defaults and what an administrator
//! wrote.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::agent;
use crate::support::wait_for;
use crate::talk::{Stage, Talk, last};

fn options(mode: &str, effort: &str) -> Value {
    let choices = |values: &[&str]| -> Value {
        values.iter().map(|value| json!({ "value": value, "name": value })).collect()
    };
    let (modes, models, efforts) =
        (choices(&["ask", "code", "allow"]), choices(&["small", "large"]), choices(&["low", "high"]));
    json!([
        { "id": "mode", "name": "Mode", "category": "mode", "type": "select", "currentValue": mode, "options": modes },
        { "id": "model", "name": "Model", "category": "model", "type": "select", "currentValue": "small", "options": models },
        { "id": "effort", "name": "Effort", "type": "select", "currentValue": effort, "options": efforts },
        { "id": "allow_all", "name": "Allow all", "type": "boolean", "currentValue": false },
    ])
}

/// The same in the older members, which have neither an effort nor booleans.
fn older() -> Value {
    json!({
        "modes": { "currentModeId": "ask", "availableModes": [{ "id": "ask", "name": "Ask" }, { "id": "allow", "name": "Allow" }] },
        "models": { "currentModelId": "small",
            "availableModels": [{ "modelId": "small", "name": "S" }, { "modelId": "large", "name": "L" }] },
    })
}

/// What the agents were told to set, in order: the setting, or the member of the older requests, and its value.
fn set(log: &Path) -> Vec<(String, Value)> {
    let sent = std::fs::read_to_string(log).unwrap();
    let frames = sent.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let change = |frame: Value| {
        let params = &frame["params"];
        match frame["method"].as_str()? {
            "session/set_config_option" => {
                Some((params["configId"].as_str()?.to_owned(), params["value"].clone()))
            }
            "session/set_mode" => Some(("mode".to_owned(), params["modeId"].clone())),
            "session/set_model" => Some(("model".to_owned(), params["modelId"].clone())),
            _ => None,
        }
    };
    frames.filter_map(change).collect()
}

/// VS Code sends with each session what its user chose for its own agent.
#[tokio::test]
async fn what_an_editor_chose_for_another_agent_prevents_no_session() {
    for new in [json!({ "configOptions": options("ask", "low") }), older()] {
        let log = tempfile::NamedTempFile::new().unwrap();
        let stage = Stage::new(json!({ "log": log.path(), "new": new }));
        for (session, mode) in
            [("fake:/one", "interactive"), ("fake:/two", "interactive"), ("fake:/three", "autopilot")]
        {
            let editors = json!({ "isolation": "folder", "autoApprove": "default", "mode": mode });
            let mut talk = stage.talk_in(session, editors).await;
            assert_eq!(talk.say("!say hello").await, "hello", "{session}");
            let state = talk.client.subscribe(session).await;
            assert_eq!(state["config"]["values"]["mode"], "ask", "{session}: the agent's own: {state}");
        }
        assert_eq!(set(log.path()), [], "nothing that no user chose for this agent");
        // The first session was made before the agent had said what it offers.
        for session in
            ["fake:/two: mode has no value \"interactive\"", "fake:/three: mode has no value \"autopilot\""]
        {
            stage.folder.wait_for_log(&format!("{session}; the agent's own is used"));
        }
    }
}

/// Chooses a setting in a running session.
async fn choose(talk: &mut Talk, config: Value) {
    let session = talk.session.clone();
    talk.act_on(&session, json!({ "type": "session/configChanged", "config": config })).await;
    loop {
        let seen = talk.until(&["session/configChanged"]).await;
        if last(&seen)["config"] == config {
            return;
        }
    }
}

async fn values(talk: &mut Talk) -> Value {
    let session = talk.session.clone();
    talk.client.subscribe(&session).await["config"]["values"].clone()
}

#[tokio::test]
async fn a_choice_of_one_session_is_not_the_default_of_the_next() {
    let all = json!({ "mode": "allow", "model": "large", "effort": "high", "allow_all": true });
    let old = json!({ "mode": "allow", "model": "large" });
    for (new, choices) in [(json!({ "configOptions": options("ask", "low") }), all), (older(), old)] {
        let log = tempfile::NamedTempFile::new().unwrap();
        let stage = Stage::new(json!({ "log": log.path(), "new": new }));
        stage.talk().await.say("hello").await;
        let mut talk = stage.talk_in("fake:/two", json!({})).await;
        let own = values(&mut talk).await;
        talk.say("hello").await;
        for (id, value) in choices.as_object().unwrap() {
            choose(&mut talk, json!({ id: value })).await;
        }
        // By the agent itself, too, and for a single message.
        let announced =
            json!({ "sessionUpdate": "config_option_update", "configOptions": options("allow", "high") });
        talk.say(&format!("!update {announced}\n!say done")).await;
        let message = json!({ "text": "!say hello", "model": { "id": "large" } });
        talk.act(json!({ "type": "chat/turnStarted", "turnId": "by-model", "message": message })).await;
        talk.until(&["chat/turnComplete"]).await;
        let chosen = set(log.path()).len();
        assert!(chosen >= choices.as_object().unwrap().len(), "{:?}", set(log.path()));
        let mut next = stage.talk_in("fake:/three", json!({})).await;
        next.say("hello").await;
        assert_eq!(values(&mut next).await, own);
        assert_eq!(set(log.path()).len(), chosen, "{:?}", set(log.path()));
        // What is stored is no default after a restart, and the choices are still those of their session.
        drop((talk, next));
        let stage = stage.restarted(true);
        let mut next = stage.talk_in("fake:/four", json!({})).await;
        next.say("hello").await;
        assert_eq!(values(&mut next).await, own);
        assert_eq!(set(log.path()).len(), chosen, "{:?}", set(log.path()));
        let mut talk = Talk::join(stage.daemon.initialized("later").await, "fake:/two").await;
        assert_eq!(values(&mut talk).await["mode"], "allow");
        talk.say("hello").await;
        let again = set(log.path()).split_off(chosen);
        assert!(again.contains(&("mode".to_owned(), json!("allow"))), "{again:?}");
    }
}

#[tokio::test]
async fn a_session_takes_over_another_default_of_its_agent_and_keeps_what_was_chosen_in_it() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let flag = log.path().with_extension("flag");
    let before = json!({ "log": log.path(), "new": { "configOptions": options("ask", "low") } });
    let after = json!({ "log": log.path(), "new": { "configOptions": options("code", "low") } });
    let stage = Stage::of(agent::changing(before, &flag, &after), json!({}));
    stage.talk().await.say("hello").await;
    let mut talk = stage.talk_in("fake:/two", json!({})).await;
    talk.say("hello").await;
    choose(&mut talk, json!({ "effort": "high" })).await;
    // A default that a user chooses is a choice.
    let mut firm = stage.talk_in("fake:/firm", json!({ "mode": "ask" })).await;
    firm.say("hello").await;
    let chosen = set(log.path());
    assert_eq!(chosen, [("effort".to_owned(), json!("high"))]);
    drop((talk, firm));
    std::fs::write(&flag, "").unwrap();
    let stage = stage.restarted(true);
    let mut new = stage.talk_in("fake:/three", json!({})).await;
    new.say("hello").await;
    assert_eq!(values(&mut new).await["mode"], "code");
    assert_eq!(set(log.path()).len(), 1, "{:?}", set(log.path()));
    let mut talk = Talk::join(stage.daemon.initialized("later").await, "fake:/two").await;
    talk.say("hello").await;
    assert_eq!(values(&mut talk).await["mode"], "code");
    assert_eq!(set(log.path())[1..], [("effort".to_owned(), json!("high"))]);
    let mut firm = Talk::join(stage.daemon.initialized("firm").await, "fake:/firm").await;
    firm.say("hello").await;
    assert_eq!(values(&mut firm).await["mode"], "ask");
    assert_eq!(set(log.path())[2..], [("mode".to_owned(), json!("ask"))]);
    std::fs::remove_file(flag).unwrap();
}

#[tokio::test]
async fn what_an_administrator_wrote_is_the_default_and_stays_in_the_record() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let flag = log.path().with_extension("flag");
    let before = json!({ "log": log.path(), "new": { "configOptions": options("ask", "low") } });
    let after = json!({ "log": log.path(), "new": { "configOptions": options("ask", "low") },
        "initialize": { "agentInfo": { "name": "fake", "version": "2.0.0" } } });
    let stage = Stage::of(agent::changing(before, &flag, &after), json!({}));
    // Before the agent has reported anything.
    stage.folder.write("acp-agents/fake.md", "---\ndefaults:\n  mode: code\n---\n");
    let stage = stage.restarted(false);
    let mut talk = stage.talk().await;
    talk.say("hello").await;
    assert_eq!(set(log.path()), [("mode".to_owned(), json!("code"))]);
    wait_for(|| stage.folder.read("acp-agents/fake.md").contains("effort").then_some(()))
        .expect("the settings are stored");
    let mut talk = stage.talk_in("fake:/two", json!({})).await;
    assert_eq!(values(&mut talk).await["mode"], "code");
    talk.say("hello").await;
    // Another version of the agent, and a choice, change nothing of it.
    choose(&mut talk, json!({ "mode": "allow" })).await;
    std::fs::write(&flag, "").unwrap();
    stage.talk_in("fake:/three", json!({ "mode": "ask" })).await.say("hello").await;
    let stored = wait_for(|| stage.folder.read("acp-agents/fake.md").contains("2.0.0").then_some(()));
    assert!(stored.is_some() && stage.folder.read("acp-agents/fake.md").contains("mode: code"));
    let mut talk = stage.talk_in("fake:/four", json!({})).await;
    assert_eq!(values(&mut talk).await["mode"], "code");
    talk.say("hello").await;
    assert_eq!(set(log.path()).last().unwrap(), &("mode".to_owned(), json!("code")));
    // One that is changed while the daemon runs.
    let record = stage.folder.read("acp-agents/fake.md");
    stage.folder.write("acp-agents/fake.md", &record.replace("mode: code", "mode: allow"));
    let params = json!({ "provider": "fake", "config": {} });
    let end = Instant::now() + Duration::from_secs(10);
    while talk.client.request("resolveSessionConfig", params.clone()).await.unwrap()["values"]["mode"]
        != "allow"
    {
        assert!(Instant::now() < end, "the change is not read");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    std::fs::remove_file(flag).unwrap();
}

#[tokio::test]
async fn a_record_of_an_earlier_version_sets_nothing() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let stage = Stage::new(json!({ "log": log.path(), "new": { "configOptions": options("ask", "low") } }));
    let setting = |value: Value| {
        let option =
            json!({ "id": "mode", "name": "Mode", "description": null, "category": "mode", "value": value });
        json!({ "option": option, "via": "Option" })
    };
    let choices: Vec<Value> =
        ["ask", "allow"].iter().map(|id| json!({ "id": id, "name": id, "description": null })).collect();
    let settings = json!([setting(json!({ "Select": { "current": "allow", "choices": choices } }))]);
    stage.folder.write("acp-agents/fake.md", &format!("---\nsettings: {settings}\ncommands: []\n---\n"));
    // A record is read at the start.
    let stage = stage.restarted(false);
    let mut talk = stage.talk().await;
    // Its choices are known.
    let resolved = talk.client.request("resolveSessionConfig", json!({ "provider": "fake", "config": {} }));
    let resolved = resolved.await.unwrap();
    assert_eq!(resolved["schema"]["properties"]["mode"]["enum"], json!(["ask", "allow"]), "{resolved}");
    assert_eq!(resolved["values"]["mode"], Value::Null, "{resolved}");
    talk.say("hello").await;
    assert_eq!(values(&mut talk).await["mode"], "ask");
    assert!(set(log.path()).is_empty(), "{:?}", set(log.path()));
}
