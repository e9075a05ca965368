//! What a plugin registered is the host's own copy: whatever the plugin does to its values afterwards changes nothing.

use std::sync::{Arc, Mutex};

use ostler_contract::points::{
    Channel, Description, Method, Tool, ToolEffects, ToolSpec, TriggerEvent, TriggerType,
};
use ostler_contract::{Call, JsonObject, Options, PluginHost, Thrown, json};

use crate::side::{Both, Side, Talk, object};

const PLUGIN: Both = Both { spec: "@conformance/copies", native, javascript: "copies.mjs", dress: None };

both! { PLUGIN:
    what_was_registered_stays_as_it_was,
}

/// What the plugin keeps of what it gave.
struct Given {
    tool: Tool,
    schema: JsonObject,
    trigger: TriggerType,
    channel: Channel,
}

fn native(host: PluginHost, _: Options) -> Result<(), Thrown> {
    let given = Given {
        tool: Tool {
            definition: ToolSpec {
                name: "kept".into(),
                description: Some("As it was.".into()),
                ..ToolSpec::default()
            },
            effects: Some(ToolEffects { reads: Some(true), ..ToolEffects::default() }),
            run: Call::now(|_| Ok("as it was".into())),
            ..Tool::default()
        },
        schema: object(json!({ "type": "string", "title": "As it was", "enum": ["a"] })),
        trigger: TriggerType {
            r#type: "kept".into(),
            title: "As it was".into(),
            events: vec![TriggerEvent { id: "e".into(), title: "As it was".into(), description: None }],
            ..TriggerType::default()
        },
        channel: Channel {
            grant: "x-copies:get".into(),
            snapshot: Call::now(|_| Ok("as it was".into())),
            describe: Some(Call::now(|()| {
                Ok(Description { title: Some("As it was".into()), ..Description::default() })
            })),
            ..Channel::default()
        },
    };
    host.register_tool(given.tool.clone())?;
    host.register_session_config("kept".into(), given.schema.clone(), None)?;
    host.register_trigger_type(given.trigger.clone())?;
    host.register_channel("x-copies".into(), given.channel.clone())?;
    let given = Arc::new(Mutex::new(given));
    host.register_method(
        "x-copies/change".into(),
        Method {
            grant: "x-copies:change".into(),
            handle: Call::now(move |_| {
                let mut given = given.lock().unwrap();
                given.tool.definition.description = Some("Changed".into());
                given.tool.effects = None;
                given.tool.run = Call::now(|_| Ok("changed".into()));
                given.schema.insert("title".into(), "Changed".into());
                given.trigger.title = "Changed".into();
                given.channel.grant = "nobody:may".into();
                given.channel.snapshot = Call::now(|_| Ok("changed".into()));
                Ok("it changed what it gave".into())
            }),
            ..Method::default()
        },
    )
}

async fn what_was_registered_stays_as_it_was(side: Side) {
    let host = side.host_with_echo().start().await;
    let mut talk = Talk::with(&host, "echo").await;
    for _ in 0..2 {
        let changed = talk.client.request("x-copies/change", json!({})).await.unwrap();
        assert_eq!(changed, "it changed what it gave");
    }
    assert_eq!(talk.tool("kept", json!({})).await, "as it was");
    let held = host.registry().all::<Tool>().iter().find(|tool| *tool.definition.name == *"kept").unwrap();
    assert_eq!(held.definition.description.as_deref(), Some("As it was."));
    assert_eq!(held.effects.and_then(|effects| effects.reads), Some(true));
    let mut client = host.raw();
    let introduced = client.initialize("c").await;
    let row = json!([{ "scheme": "x-copies", "title": "As it was", "grant": "x-copies:get" }]);
    assert_eq!(introduced["_meta"]["ostler.channels"], row);
    let seen = client.request("subscribe", json!({ "channel": "x-copies://a" })).await.unwrap();
    assert_eq!(seen["snapshot"]["state"], "as it was");
    let resolved = client.request("resolveSessionConfig", json!({})).await.unwrap();
    let setting = &resolved["schema"]["properties"]["kept"];
    assert_eq!((&setting["title"], &setting["enum"]), (&json!("As it was"), &json!(["a"])));
    let kept = &host.registry().all::<TriggerType>()[0];
    assert_eq!((&*kept.title, &*kept.events[0].title), ("As it was", "As it was"));
}
