//! `registerSessionConfig`: settings of sessions beside the backend's own, and pickers.

use ostler_contract::points::{SessionSetting, SettingAnswerer, SettingChoice, SettingQuery};
use ostler_contract::{Call, JsonObject, Options, PluginHost, Thrown, Value, json};
use ostler_testkit::{MemoryHost, RawClient};

use crate::side::{Both, Side, lines_of, object};

const PLUGIN: Both =
    Both { spec: "@conformance/session-setting", native, javascript: "session-setting.mjs", dress: None };
const LATER: Both =
    Both { spec: "@conformance/later", native: later, javascript: "session-setting-later.mjs", dress: None };

both! { PLUGIN:
    a_setting_stands_beside_the_backends_own,
    a_session_takes_what_fits,
    a_picker_is_marked_and_shows_its_first_rows,
    a_picker_is_asked_as_a_person_types,
    an_answerer_that_fails_costs_its_key_alone,
    mistakes_and_taken_keys_are_named,
}

fn picker<F>(answer: F) -> Option<SettingAnswerer>
where
    F: Fn(SettingQuery) -> Result<Vec<SettingChoice>, Thrown> + Send + Sync + 'static,
{
    Some(Call::now(move |(asked,)| answer(asked)))
}

fn native(host: PluginHost, _: Options) -> Result<(), Thrown> {
    let mood = json!({ "type": "string", "title": "Mood", "enum": ["calm", "wild"], "default": "calm",
        "sessionMutable": true });
    host.register_session_config("mood".into(), object(mood), None)?;
    let logs = host.clone();
    let branches = picker(move |asked| {
        logs.log(serde_json::to_string(&asked).unwrap())?;
        let rows = ["main", "oats", "hay"].iter().filter(|branch| branch.contains(&asked.query));
        Ok(rows
            .map(|branch| SettingChoice {
                value: (*branch).to_owned(),
                label: format!("The {branch}"),
                description: (*branch == "main").then(|| "As it is.".to_owned()),
            })
            .collect())
    });
    host.register_session_config(
        "branch".into(),
        object(json!({ "description": "Where to work." })),
        branches,
    )?;
    let own = picker(|asked| {
        let label = format!("?{}", asked.query);
        Ok(vec![SettingChoice { value: asked.query, label, description: None }])
    });
    host.register_session_config("own".into(), object(json!({ "enum": ["a"], "enumLabels": ["A"] })), own)?;
    let text = || object(json!({ "type": "string" }));
    host.register_session_config("angry".into(), text(), picker(|_| Err(Thrown::new("no luck today"))))?;
    host.register_session_config(
        "wrong".into(),
        text(),
        picker(|_| Err(Thrown::new("its answer needs [0].value to be a string"))),
    )?;
    let attempts = [
        ("", json!({})),
        ("MOOD", json!({})),
        ("odd", json!({ "title": 5 })),
        ("odd", json!({ "type": "mood" })),
        ("provider", json!({})),
    ];
    for (key, schema) in attempts {
        let attempt = host.register_session_config(key.into(), object(schema), None);
        host.log(attempt.map_or_else(|thrown| thrown.message, |()| "taken".to_owned()))?;
    }
    Ok(())
}

fn later(host: PluginHost, _: Options) -> Result<(), Thrown> {
    host.register_session_config("mood".into(), object(json!({ "type": "string", "title": "Mine" })), None)?;
    host.register_session_config("loud".into(), object(json!({ "type": "boolean" })), None)
}

async fn client(host: &MemoryHost) -> RawClient {
    let mut client = host.raw();
    client.initialize("c").await;
    client
}

async fn resolve(client: &mut RawClient, params: Value) -> Value {
    client.request("resolveSessionConfig", params).await.unwrap()
}

async fn complete(client: &mut RawClient, params: Value) -> Value {
    client.request("sessionConfigCompletions", params).await.unwrap()["items"].clone()
}

/// What the picker `branch` was asked.
fn asked(host: &MemoryHost) -> Vec<JsonObject> {
    let lines = lines_of(&host.log, "session-setting");
    lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

async fn a_setting_stands_beside_the_backends_own(side: Side) {
    let host = side.host_with_echo().start().await;
    let mut client = client(&host).await;
    let resolved = resolve(&mut client, json!({ "provider": "echo" })).await;
    let properties = &resolved["schema"]["properties"];
    assert_eq!(
        properties["mood"],
        json!({ "type": "string", "title": "Mood", "enum": ["calm", "wild"], "default": "calm", "sessionMutable": true })
    );
    assert_eq!(properties["delayMs"]["type"], "number", "the backend's own: {properties}");
    // A title and a type the author left out are given.
    assert_eq!(
        (&properties["branch"]["title"], &properties["branch"]["type"]),
        (&json!("branch"), &json!("string"))
    );
    assert_eq!((&resolved["values"]["mood"], &resolved["values"]["delayMs"]), (&json!("calm"), &json!(0)));
    let chosen = resolve(&mut client, json!({ "config": { "mood": "wild" } })).await;
    assert_eq!(chosen["values"]["mood"], "wild");
}

async fn a_session_takes_what_fits(side: Side) {
    let host = side.host_with_echo().start().await;
    let mut client = client(&host).await;
    let create = async |client: &mut RawClient, id: &str, config: Value| {
        let session = format!("echo:/{id}");
        client
            .request("createSession", json!({ "channel": session, "provider": "echo", "config": config }))
            .await
    };
    let refused = create(&mut client, "bad", json!({ "mood": "sad" })).await.unwrap_err();
    assert_eq!(refused["code"], ostler_protocol::error::code::INVALID_PARAMS, "{refused}");
    assert!(refused["message"].as_str().unwrap().starts_with("mood does not fit: "), "{refused}");
    // What a picker showed first is not all it may be.
    create(&mut client, "good", json!({ "mood": "wild", "own": "b" })).await.unwrap();
    let state = client.request("subscribe", json!({ "channel": "echo:/good" })).await.unwrap();
    let config = &state["snapshot"]["state"]["config"];
    assert_eq!((&config["values"]["mood"], &config["values"]["own"]), (&json!("wild"), &json!("b")));
    assert_eq!(config["schema"]["properties"]["branch"]["enumDynamic"], true);
    for (seq, value) in [(1, json!("sad")), (2, json!("calm"))] {
        let action = json!({ "type": "session/configChanged", "config": { "mood": value } });
        client.dispatch("echo:/good", seq, action).await;
    }
    let refused = client.next_action().await;
    assert!(refused["rejectionReason"].as_str().unwrap().starts_with("mood does not fit: "), "{refused}");
    let taken = client.next_action().await;
    assert_eq!((&taken["action"]["config"]["mood"], taken.get("rejectionReason")), (&json!("calm"), None));
}

async fn a_picker_is_marked_and_shows_its_first_rows(side: Side) {
    let host = side.host_with_echo().start().await;
    let mut client = client(&host).await;
    let params = json!({ "provider": "echo", "workingDirectory": "file:///srv/inn",
        "config": { "mood": "wild", "branch": "oats", "query": "a setting of that name" } });
    let properties = resolve(&mut client, params).await["schema"]["properties"].clone();
    assert_eq!(
        properties["branch"],
        json!({ "type": "string", "title": "branch", "description": "Where to work.", "enumDynamic": true,
            "enum": ["main", "oats", "hay"], "enumLabels": ["The main", "The oats", "The hay"],
            "enumDescriptions": ["As it is.", "", ""] })
    );
    // Asked once, with nothing typed, and told what is answered beside it.
    assert_eq!(
        asked(&host),
        [object(json!({ "query": "", "provider": "echo", "workingDirectory": "/srv/inn", "mood": "wild" }))]
    );
    // A key with rows of its own keeps them.
    let own = &properties["own"];
    assert_eq!((&own["enum"], &own["enumLabels"]), (&json!(["a"]), &json!(["A"])));
    assert_eq!(own["enumDynamic"], true);
    assert!(properties["mood"].get("enumDynamic").is_none(), "{properties}");
}

async fn a_picker_is_asked_as_a_person_types(side: Side) {
    let host = side.host_with_echo().start().await;
    let mut client = client(&host).await;
    let hay = json!([{ "value": "hay", "label": "The hay" }]);
    assert_eq!(complete(&mut client, json!({ "property": "branch", "query": "ha" })).await, hay);
    let params = json!({ "property": "branch", "query": "i", "provider": "echo",
        "workingDirectory": "/srv/inn", "config": { "mood": "calm", "branch": "oats" } });
    let main = json!([{ "value": "main", "label": "The main", "description": "As it is." }]);
    assert_eq!(complete(&mut client, params).await, main);
    assert_eq!(complete(&mut client, json!({ "property": "branch" })).await.as_array().unwrap().len(), 3);
    assert_eq!(
        asked(&host),
        [
            object(json!({ "query": "ha" })),
            object(
                json!({ "query": "i", "provider": "echo", "workingDirectory": "/srv/inn", "mood": "calm" })
            ),
            object(json!({ "query": "" })),
        ]
    );
    assert_eq!(
        complete(&mut client, json!({ "property": "own", "query": "b" })).await,
        json!([{ "value": "b", "label": "?b" }])
    );
    // A setting that is no picker, the backend's own and one nobody has answer nothing.
    for property in ["mood", "delayMs", "nobodys"] {
        assert_eq!(complete(&mut client, json!({ "property": property })).await, json!([]));
    }
    let error = client
        .request("sessionConfigCompletions", json!({ "property": "branch", "provider": "nobody" }))
        .await
        .unwrap_err();
    assert_eq!(error["message"], "No provider called nobody");
}

async fn an_answerer_that_fails_costs_its_key_alone(side: Side) {
    let host = side.host_with_echo().start().await;
    let mut client = client(&host).await;
    let properties = resolve(&mut client, json!({})).await["schema"]["properties"].clone();
    for key in ["angry", "wrong"] {
        let property = &properties[key];
        assert_eq!((property.get("enum"), &property["enumDynamic"]), (None, &json!(true)), "{property}");
        assert_eq!(complete(&mut client, json!({ "property": key, "query": "x" })).await, json!([]));
    }
    assert_eq!(properties["branch"]["enum"].as_array().unwrap().len(), 3);
    let why = host.log.wait_for("the answerer of angry failed: no luck today").await;
    assert!(why.starts_with("plugin session-setting: "), "{why}");
    host.log.wait_for("the answerer of wrong failed: ").await;
}

async fn mistakes_and_taken_keys_are_named(side: Side) {
    let host = side.other(LATER).load(side.host_with_echo(), json!({})).start().await;
    let said = lines_of(&host.log, "session-setting").join("\n").replace("plugin session-setting: ", "");
    assert_eq!(
        said,
        "registerSessionConfig needs key to be a non-empty string\n\
         registerSessionConfig needs key to be a key no other setting in this plugin uses\n\
         registerSessionConfig needs schema to be the schema of a setting (invalid type: integer `5`, expected a string)\n\
         registerSessionConfig needs schema.type to be one of string, number, integer, boolean, array, object, null\n\
         registerSessionConfig needs key to be none of query, provider, workingDirectory: pickers are asked with those"
    );
    assert_eq!(
        host.problems,
        ["plugin later registers session setting mood, which plugin session-setting already declares"]
    );
    let keys: Vec<String> =
        host.registry().all::<SessionSetting>().iter().map(|setting| setting.key.to_string()).collect();
    assert_eq!(keys, ["mood", "branch", "own", "angry", "wrong", "loud"]);
    let mut client = client(&host).await;
    let properties = resolve(&mut client, json!({})).await["schema"]["properties"].clone();
    assert_eq!(
        (&properties["mood"]["title"], &properties["loud"]["type"]),
        (&json!("Mood"), &json!("boolean"))
    );
}
