//! What every `register…` method refuses, with the same sentence for a plugin of either kind, and what a plugin that
//! fails costs.

use ostler_contract::events::EventName;
use ostler_contract::points::{
    Agent, AgentSession, Channel, Method, RecordStore, ResourceContent, ResourceProvider, Tool, ToolSpec,
    TriggerEvent, TriggerType, Vault, When,
};
use ostler_contract::{Call, JsonObject, Options, PluginHost, Thrown, Value, json};
use ostler_loader::State;

use crate::side::{Both, Side, Talk, builder, lines_of};

const PLUGIN: Both =
    Both { spec: "@conformance/registration", native, javascript: "registration.mjs", dress: None };

both! { PLUGIN:
    mistakes_are_named_and_cost_themselves,
    a_plugin_that_fails_its_apply_leaves_nothing_behind,
}

fn agent(provider: &str) -> Agent {
    Agent {
        provider: provider.into(),
        display_name: "A".into(),
        schema: Call::now(|()| Ok(json!({}))),
        defaults: Call::now(|()| Ok(JsonObject::new())),
        create: Call::now(|_| Ok(AgentSession::default())),
        ..Agent::default()
    }
}

fn vault() -> Vault {
    Vault {
        get: Call::now(|_| Ok(None)),
        set: Call::now(|_| Ok(())),
        delete: Call::now(|_| Ok(false)),
        list: Call::now(|()| Ok(vec![])),
        close: None,
    }
}

fn tool(name: &'static str) -> Tool {
    Tool {
        definition: ToolSpec { name: name.into(), ..ToolSpec::default() },
        run: Call::now(move |_| Ok(name.into())),
        ..Tool::default()
    }
}

fn trigger(name: &str, ids: &[&str]) -> TriggerType {
    let event = |id: &&str| TriggerEvent { id: (*id).into(), title: (*id).into(), description: None };
    TriggerType {
        r#type: name.into(),
        title: "T".into(),
        events: ids.iter().map(event).collect(),
        ..TriggerType::default()
    }
}

fn reads() -> ResourceProvider {
    ResourceProvider { read: Call::now(|_| Ok(ResourceContent::text(""))), ..ResourceProvider::default() }
}

fn native(host: PluginHost, options: Options) -> Result<(), Thrown> {
    host.register_tool(tool("here"))?;
    match options.get("fatal").and_then(Value::as_str) {
        Some("agent") => host.register_agent(agent("a")).and_then(|()| host.register_agent(agent("a")))?,
        Some("port") => {
            host.register_vault(vault(), Some(When::Replace))?;
            host.register_vault(vault(), Some(When::Replace))?;
        }
        Some("reserved") => host.register_agent(agent("ahp-mine"))?,
        Some("scheme") => host.register_resource_provider("https".into(), reads())?,
        Some("throw") => return Err(Thrown::new("no luck today")),
        _ => {}
    }
    if options.contains_key("fatal") || options.contains_key("quiet") {
        return Ok(());
    }
    let route = || host.register_route(Call::now(|_| Ok(ostler_contract::http::Response::default())));
    let channel = |scheme: &str, channel: Channel| host.register_channel(scheme.into(), channel).map(drop);
    let board = || Channel {
        grant: "x-board:get".into(),
        snapshot: Call::now(|_| Ok(Value::Null)),
        ..Channel::default()
    };
    let moves = || Method {
        grant: "x-board:move".into(),
        handle: Call::now(|_| Ok(Value::Null)),
        ..Method::default()
    };
    let attempts = [
        host.register_agent(agent("")),
        host.register_agent(Agent { display_name: "".into(), ..agent("a") }),
        host.register_agent(Agent { create: Call::missing(), ..agent("a") }),
        host.register_agent(agent("not a scheme")),
        host.register_agent(agent("session")),
        host.register_agent(agent("X-mine")),
        host.register_agent(agent("a")),
        host.register_agent(agent("A")),
        host.register_tool(tool("")),
        host.register_tool(tool("here")),
        host.register_tool(Tool { run: Call::missing(), ..tool("idle") }),
        host.register_resource_provider("".into(), reads()),
        host.register_resource_provider("file".into(), reads()),
        host.register_resource_provider("a".into(), reads()),
        host.register_resource_provider("b".into(), ResourceProvider::default()),
        host.register_vault(Vault { set: Call::missing(), ..vault() }, None),
        host.register_records(RecordStore::default(), None),
        host.register_route(Call::missing()),
        route(),
        route(),
        host.register_trigger_type(trigger("session", &["e"])),
        host.register_trigger_type(trigger("watch", &["e"])),
        host.register_trigger_type(trigger("", &["e"])),
        host.register_trigger_type(trigger("build", &[])),
        host.register_trigger_type(trigger("build", &["e", "e"])),
        host.register_trigger_type(trigger("build", &["e"])),
        host.register_trigger_type(trigger("build", &["e"])),
        host.register_close(Call::missing()),
        host.on(EventName::Listening, Call::missing()),
        channel("", board()),
        channel("board", board()),
        channel("x-", board()),
        channel("x-a board", board()),
        channel("x-board", Channel { snapshot: Call::missing(), ..board() }),
        channel("x-board", Channel { grant: "".into(), ..board() }),
        channel("x-board", Channel { grant: "everybody".into(), ..board() }),
        channel("x-board", Channel { grant: "session:shoe".into(), ..board() }),
        channel("x-board", board()),
        channel("X-Board", board()),
        host.register_method("board/move".into(), moves()),
        host.register_method("x-".into(), moves()),
        host.register_method("x-board/ move".into(), moves()),
        host.register_method("x-board/move".into(), Method { handle: Call::missing(), ..moves() }),
        host.register_method("x-board/move".into(), Method { grant: "".into(), ..moves() }),
        host.register_method("x-board/move".into(), moves()),
        host.register_method("x-board/move".into(), moves()),
        host.register_resource_provider("x-notes".into(), reads()),
    ];
    for (at, attempt) in attempts.into_iter().enumerate() {
        host.log(
            attempt.map_or_else(|thrown| format!("{at} {}", thrown.message), |()| format!("{at} taken")),
        )?;
    }
    Ok(())
}

async fn mistakes_are_named_and_cost_themselves(side: Side) {
    let host = side.host().start().await;
    let said = lines_of(&host.log, "registration").join("\n").replace("plugin registration: ", "");
    let expected = "\
0 registerAgent needs provider to be a non-empty string
1 registerAgent needs displayName to be a non-empty string
2 registerAgent needs create to be a function
3 registerAgent needs provider to be a URI scheme, as echo
4 registerAgent needs provider to be a name other than session, which is reserved
5 registerAgent needs provider to be a name other than X-mine, which is reserved
6 taken
7 registerAgent needs provider to be a provider no other agent in this plugin uses
8 registerTool needs definition.name to be a non-empty string
9 registerTool needs definition.name to be a name no other tool in this plugin uses
10 registerTool needs run to be a function
11 registerResourceProvider needs scheme to be a non-empty string
12 registerResourceProvider needs scheme to be a name other than file, which is reserved
13 taken
14 registerResourceProvider needs provider.read to be a function
15 registerVault needs vault.set to be a function
16 registerRecords needs store.collection to be a function
17 registerRoute needs handler to be a function
18 taken
19 registerRoute needs route to be registered only once
20 registerTriggerType needs type to be a name other than session, which is reserved for the host
21 registerTriggerType needs type to be a name other than watch, which is reserved for the host
22 registerTriggerType needs type to be a non-empty string
23 registerTriggerType needs events to be a list with at least one event
24 registerTriggerType needs events[1].id to be an event id no other event of this type uses
25 taken
26 registerTriggerType needs type to be a type name no other type in this plugin uses
27 registerClose needs close to be a function
28 on needs handler to be a function
29 registerChannel needs scheme to be a non-empty string
30 registerChannel needs scheme to be a URI scheme that starts with x-, as x-board
31 registerChannel needs scheme to be a URI scheme that starts with x-, as x-board
32 registerChannel needs scheme to be a URI scheme that starts with x-, as x-board
33 registerChannel needs channel.snapshot to be a function
34 registerChannel needs channel.grant to be a non-empty string
35 registerChannel needs channel.grant to be a grant, <subject>:<operation>, as x-board:get
36 registerChannel needs channel.grant to be a known grant; session has no operation shoe
37 taken
38 registerChannel needs scheme to be a scheme no other channel in this plugin uses
39 registerMethod needs name to be a command's name that starts with x-, as x-board/move
40 registerMethod needs name to be a command's name that starts with x-, as x-board/move
41 registerMethod needs name to be a command's name that starts with x-, as x-board/move
42 registerMethod needs method.handle to be a function
43 registerMethod needs method.grant to be a non-empty string
44 taken
45 registerMethod needs name to be a name no other command in this plugin uses
46 registerResourceProvider needs scheme to be a name other than x-notes, which is reserved";
    assert_eq!(said, expected);
    // A name a harness and a scheme share costs the later one, where plugins come together.
    let clash = "plugin registration registers scheme a, which plugin registration already registered";
    assert!(host.problems.iter().any(|line| line == clash), "{:?}", host.problems);
}

async fn a_plugin_that_fails_its_apply_leaves_nothing_behind(side: Side) {
    for (fatal, why) in [
        ("agent", "registerAgent needs provider to be a provider no other agent in this plugin uses"),
        ("port", "registerVault needs vault to be registered only once"),
        ("reserved", "registerAgent needs provider to be a name other than ahp-mine, which is reserved"),
        ("scheme", "registerResourceProvider needs scheme to be a name other than https, which is reserved"),
        ("throw", "no luck today"),
    ] {
        let builder = builder().plugin(ostler_plugin_echo::plugin(), json!({})).may_fail();
        let host = side.load(builder, json!({ "fatal": fatal })).start().await;
        let [problem] = &host.problems[..] else { panic!("{fatal}: {:?}", host.problems) };
        assert!(problem.contains("registration") && problem.contains(why), "{fatal}: {problem}");
        let states: Vec<State> = host.loaded.iter().map(|plugin| plugin.state).collect();
        assert_eq!(states, [State::Applied, State::Skipped], "{fatal}");
        assert!(
            host.registry().all::<Tool>().is_empty(),
            "{fatal}: what it registered before is gone with it"
        );
        assert_eq!(Talk::with(&host, "echo").await.say("still here").await, "still here");
    }
}
