//! What crosses the boundary holds to its declaration, whichever side it comes from.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::{Arc, Mutex};

use futures::executor::block_on;
use ostler_contract::call::Answering;
use ostler_contract::live::LiveFields;
use ostler_contract::points::*;
use ostler_contract::registry::{Fold, Registrant};
use ostler_contract::*;
use serde_json::json;

fn host(id: &str) -> PluginHost {
    let caller = Caller { plugin: Slug::parse(id).unwrap(), grants: Arc::new([]), vault: None };
    PluginHost::new(Arc::default(), caller, Arc::new(NoHost))
}

/// Calls a registration method as JavaScript would.
fn register(host: &PluginHost, method: &str, arguments: Vec<Live>) -> Result<Live, String> {
    let Live::Frozen(object) = host.clone().into_live() else { panic!("the host is not frozen") };
    let Live::Object(fields) = *object else { panic!("the host is no object") };
    let found = fields.into_iter().find(|(name, _)| name == method).map(|(_, value)| value);
    let Some(Live::Function(function)) = found else { panic!("no method {method}") };
    function.call_now(arguments).map_err(|thrown| thrown.message)
}

fn function() -> Live {
    Call::<fn()>::now(|()| Ok(())).into_live()
}

fn object(fields: Vec<(&'static str, Live)>) -> Live {
    Live::Object(fields.into_iter().map(|(key, value)| (key.into(), value)).collect::<LiveFields>())
}

fn agent(provider: &str) -> Live {
    object(vec![
        ("provider", Live::Data(provider.into())),
        ("displayName", Live::Data("An agent".into())),
        ("schema", function()),
        ("defaults", function()),
        ("create", function()),
    ])
}

#[test]
fn a_missing_member_is_named() {
    let host = host("notes");
    let refused = |method: &str, value: Live| register(&host, method, vec![value]).unwrap_err();
    insta::assert_snapshot!(refused("registerAgent", object(vec![])), @"plugin notes: registerAgent needs provider to be a non-empty string");
    let no_create = object(vec![
        ("provider", Live::Data("a".into())),
        ("displayName", Live::Data("A".into())),
        ("schema", function()),
        ("defaults", function()),
        ("create", Live::Data(json!(5))),
    ]);
    insta::assert_snapshot!(refused("registerAgent", no_create), @"plugin notes: registerAgent needs create to be a function");
    insta::assert_snapshot!(refused("registerAgent", Live::Undefined), @"plugin notes: registerAgent needs agent to be an object");
    insta::assert_snapshot!(refused("registerTool", object(vec![("definition", Live::Data(json!({ "name": "" }))), ("run", function())])), @"plugin notes: registerTool needs definition.name to be a non-empty string");
    insta::assert_snapshot!(refused("registerVault", object(vec![("get", function())])), @"plugin notes: registerVault needs vault.set to be a function");
    let vault = ["get", "set", "delete", "list"].map(|name| (name, function())).into();
    let later =
        register(&host, "registerVault", vec![object(vault), Live::Data("later".into())]).unwrap_err();
    insta::assert_snapshot!(later, @"plugin notes: registerVault needs when to be one of replace");
    insta::assert_snapshot!(refused("registerRoute", Live::Data(json!("x"))), @"plugin notes: registerRoute needs handler to be a function");
    insta::assert_snapshot!(refused("on", Live::Data(json!("nonsense"))), @"plugin notes: on needs event to be one of session_start, session_end, session_opened, turn_start, turn_end, message, tool_call, input_needed_set, input_needed_removed, client_connect, client_disconnect, authenticated, automation_fire, resource_write, terminal_open, listening, stopping, log");
}

#[test]
fn a_native_value_is_held_to_the_same() {
    let refused = host("notes").register_vault(Vault::default(), None).unwrap_err();
    assert_eq!(refused.message, "plugin notes: registerVault needs vault.get to be a function");
    let refused = host("notes").register_agent(Agent::default()).unwrap_err();
    assert_eq!(refused.message, "plugin notes: registerAgent needs provider to be a non-empty string");
}

#[test]
fn reserved_and_repeated_names_are_thrown() {
    let host = host("notes");
    for name in ["file", "ahp-chat", "ostler-x", "x-y", "session", "https", "FILE"] {
        let thrown = register(&host, "registerAgent", vec![agent(name)]).unwrap_err();
        assert!(thrown.contains("is reserved"), "{thrown}");
        let provider = object(vec![("read", function())]);
        let thrown =
            register(&host, "registerResourceProvider", vec![Live::Data(name.into()), provider]).unwrap_err();
        assert!(thrown.contains("is reserved"), "{thrown}");
    }
    register(&host, "registerAgent", vec![agent("echo")]).unwrap();
    insta::assert_snapshot!(register(&host, "registerAgent", vec![agent("Echo")]).unwrap_err(), @"plugin notes: registerAgent needs provider to be a provider no other agent in this plugin uses");
    register(&host, "registerRoute", vec![function()]).unwrap();
    insta::assert_snapshot!(register(&host, "registerRoute", vec![function()]).unwrap_err(), @"plugin notes: registerRoute needs route to be registered only once");
    let trigger =
        |name: &str, events: Value| Live::Data(json!({ "type": name, "title": "T", "events": events }));
    insta::assert_snapshot!(register(&host, "registerTriggerType", vec![trigger("session", json!([{ "id": "a", "title": "A" }]))]).unwrap_err(), @"plugin notes: registerTriggerType needs type to be a name other than session, which is reserved for the host");
    insta::assert_snapshot!(register(&host, "registerTriggerType", vec![trigger("build", json!([]))]).unwrap_err(), @"plugin notes: registerTriggerType needs events to be a list with at least one event");
    insta::assert_snapshot!(register(&host, "registerTriggerType", vec![trigger("build", json!([{ "id": "a", "title": "A" }, { "id": "a", "title": "A" }]))]).unwrap_err(), @"plugin notes: registerTriggerType needs events[1].id to be an event id no other event of this type uses");
    register(&host, "registerTriggerType", vec![trigger("build", json!([{ "id": "a", "title": "A" }]))])
        .unwrap();
    insta::assert_snapshot!(register(&host, "registerTriggerType", vec![trigger("build", json!([{ "id": "a", "title": "A" }]))]).unwrap_err(), @"plugin notes: registerTriggerType needs type to be a type name no other type in this plugin uses");
}

#[test]
fn every_subject_a_grant_names_is_reserved() {
    let host = host("notes");
    let names = ostler_contract::protocol::grants::SUBJECTS.iter().map(|subject| subject.name);
    // The daemon's own words beside.
    let names: Vec<&str> =
        names.chain(["terminal", "automation", "diagnostics", "container", "proxy", "trust"]).collect();
    for name in names {
        for method in ["registerAgent", "registerResourceProvider"] {
            let arguments = match method {
                "registerAgent" => vec![agent(name)],
                _ => vec![Live::Data(name.into()), object(vec![("read", function())])],
            };
            let thrown = register(&host, method, arguments).unwrap_err();
            assert!(thrown.ends_with(&format!("other than {name}, which is reserved")), "{thrown}");
        }
    }
}

/// What the specification's table of registration methods holds: the ports, and everything else.
const PORTS: &[&str] = &[
    "registerResources",
    "registerTerminals",
    "registerChanges",
    "registerDirectories",
    "registerWorktrees",
    "registerGithub",
    "registerAutomations",
    "registerSessions",
    "registerDiagnostics",
    "registerComputers",
    "registerContainers",
    "registerUsage",
    "registerPolicies",
    "registerVault",
    "registerRecords",
];
const OTHERS: &[&str] = &[
    "registerAgent",
    "registerTool",
    "registerSessionConfig",
    "registerResourceProvider",
    "registerChannel",
    "registerMethod",
    "registerRoute",
    "registerTriggerType",
    "registerChatPreamble",
    "registerClose",
];

#[test]
fn nothing_is_registered_but_what_the_table_says() {
    for point in POINTS.iter().filter(|point| point.method.starts_with("register")) {
        let known = if point.slot == Slot::Port { PORTS } else { OTHERS };
        assert!(known.contains(&point.method), "{} is no {}", point.method, point.slot.word());
    }
    let others: Vec<&str> =
        POINTS.iter().map(|point| point.method).filter(|method| !method.starts_with("register")).collect();
    assert_eq!(others, ["on", "problem"]);
}

#[test]
fn agents_and_tools_are_appended_and_never_taken_over() {
    let tool = || object(vec![("definition", Live::Data(json!({ "name": "shout" }))), ("run", function())]);
    let mut fold = Fold::default();
    for id in ["first", "second"] {
        let host = host(id);
        register(&host, "registerAgent", vec![agent("echo"), Live::Data("replace".into())]).unwrap();
        register(&host, "registerTool", vec![tool(), Live::Data("replace".into())]).unwrap();
        register(&host, "registerAgent", vec![agent(id)]).unwrap();
        let sealed = host.seal();
        fold.plugin(host, sealed);
    }
    let (registry, problems) = fold.finish();
    let of = |id: &str| Registrant::Plugin(Slug::parse(id).unwrap());
    let agents: Vec<_> = registry
        .all::<Agent>()
        .iter()
        .map(|agent| (agent.provider.to_string(), agent.owner.clone()))
        .collect();
    assert_eq!(
        agents,
        [
            ("echo".to_owned(), of("first")),
            ("first".to_owned(), of("first")),
            ("second".to_owned(), of("second"))
        ]
    );
    assert_eq!(registry.all::<Tool>().len(), 1);
    assert_eq!(registry.all::<Tool>()[0].owner, of("first"));
    assert_eq!(problems.len(), 2, "{problems:?}");
}

#[test]
fn nothing_is_registered_after_the_seal() {
    let host = host("notes");
    host.seal();
    assert_eq!(
        register(&host, "registerRoute", vec![function()]).unwrap_err(),
        "notes: nothing may be registered after apply returned"
    );
    assert_eq!(
        register(&host, "on", vec![Live::Data("turn_end".into()), function()]).unwrap_err(),
        "notes: nothing may be registered after apply returned"
    );
}

fn vault(name: &'static str) -> Vault {
    Vault {
        get: Call::now(move |(_,)| Ok(Some(name.to_owned()))),
        set: Call::now(|_| Ok(())),
        delete: Call::now(|_| Ok(false)),
        list: Call::now(|()| Ok(vec![])),
        ..Vault::default()
    }
}

#[test]
fn the_fold_keeps_order_and_names_both_sides_of_a_clash() {
    let (daemon, a, b) = (host("host"), host("a"), host("b"));
    daemon.register_vault(vault("daemon"), None).unwrap();
    for host in [&a, &b] {
        register(host, "registerAgent", vec![agent("echo")]).unwrap();
        register(
            host,
            "registerTriggerType",
            vec![Live::Data(
                json!({ "type": "build", "title": "T", "events": [{ "id": "e", "title": "E" }] }),
            )],
        )
        .unwrap();
        register(host, "registerRoute", vec![function()]).unwrap();
    }
    a.register_vault(vault("a"), None).unwrap();
    b.register_vault(vault("b"), Some(When::Replace)).unwrap();
    register(
        &b,
        "registerResourceProvider",
        vec![Live::Data("ECHO".into()), object(vec![("read", function())])],
    )
    .unwrap();
    let mut fold = Fold::default();
    fold.host(daemon.seal());
    for host in [a, b] {
        let recorder = host.seal();
        fold.plugin(host, recorder);
    }
    let (registry, problems) = fold.finish();
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    plugin a sets vault, which the daemon already set; pass 'replace' to take it over
    agent provider clash: plugin b registers agent echo, which plugin a already registered
    plugin b registers trigger type build, which plugin a already registered
    plugin b registers scheme ECHO, which plugin a already registered
    ");
    assert_eq!(registry.all::<Agent>().len(), 1);
    assert_eq!(registry.all::<Route>().len(), 2);
    let held = registry.port::<Vault>().unwrap().get.unbounded(("host:x".into(),));
    assert_eq!(block_on(held), Ok(Some("b".to_owned())));
}

#[test]
fn a_harness_and_a_scheme_of_one_plugin_cannot_share_a_name() {
    let scheme = |host: &PluginHost, name: &str| {
        register(
            host,
            "registerResourceProvider",
            vec![Live::Data(name.into()), object(vec![("read", function())])],
        )
        .unwrap();
    };
    let (a, b) = (host("a"), host("b"));
    register(&a, "registerAgent", vec![agent("notes")]).unwrap();
    scheme(&a, "Notes");
    scheme(&b, "files");
    register(&b, "registerAgent", vec![agent("files")]).unwrap();
    let mut fold = Fold::default();
    for host in [a, b] {
        let recorder = host.seal();
        fold.plugin(host, recorder);
    }
    let (registry, problems) = fold.finish();
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    plugin a registers scheme Notes, which plugin a already registered
    agent provider clash: plugin b registers agent files, which plugin b already registered
    ");
    assert_eq!(
        (registry.all::<Agent>().len(), registry.all::<SchemeProvider>().len()),
        (1, 1),
        "the first stays"
    );
}

#[test]
fn points_come_together_as_the_specs_table_says() {
    let words: Vec<String> =
        POINTS.iter().map(|point| format!("{}: {}", point.method, point.slot.word())).collect();
    for said in [
        "registerAgent: append",
        "registerTool: append",
        "registerResourceProvider: register, open key",
        "registerAutomations: set",
        "registerSessions: set",
        "registerVault: set",
        "registerPolicies: set",
        "registerRecords: set",
        "registerRoute: register, open key",
        "registerTriggerType: register, open key",
        "registerClose: register, open key",
    ] {
        assert!(words.iter().any(|word| word == said), "{said}: {words:?}");
    }
}

#[test]
fn live_handles_cross_both_ways_and_are_released_on_drop() {
    // A backend of the other side: `create` takes a start object and answers a session that emits through it.
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let released = Arc::new(());
    let held = released.clone();
    let foreign = Call::<fn(start: Frozen<Start>) -> AgentSession>::now(move |(start,)| {
        let (start, held) = (start.0, held.clone());
        Ok(AgentSession {
            begin: Call::now(move |(turn, text, ..): (String, String, _, _, _)| {
                let _held = &held;
                let action = json!({ "type": "chat/responsePart", "turnId": turn,
                    "part": { "kind": "markdown", "id": "p", "content": text } });
                start.emit.call((Emit::Chat, serde_json::from_value(action).unwrap()))
            }),
            cancel: Call::now(|_| Ok(())),
            close: Call::now(|_| Ok(())),
            ..AgentSession::default()
        })
    });
    // Over the boundary as JavaScript would hold it: only shapes and live values in between.
    let Live::Function(function) = foreign.into_live() else { panic!("no function") };
    let create =
        Call::<fn(start: Frozen<Start>) -> AgentSession>::from_live(Live::Function(function)).unwrap();
    let listener = heard.clone();
    let start = Start {
        uri: "echo:/1".into(),
        chat_uri: "ahp-chat:/1".into(),
        chat_id: None,
        settings: JsonObject::new(),
        chosen_settings: Default::default(),
        working_directory: None,
        additional: None,
        tools: None,
        mcp_servers: None,
        client_plugins: None,
        instructions: None,
        client_tool_timeout_ms: 0,
        emit: Func::new(move |(channel, action): (Emit, wire::StateAction)| {
            listener.lock().unwrap().push(format!(
                "{} {}",
                channel.as_str(),
                serde_json::to_string(&action).unwrap()
            ));
            Ok(())
        }),
        subagent: None,
        read: None,
        client_settings: None,
        tools_server: None,
        terminals: None,
        computer: None,
        env: Default::default(),
        resume: None,
        fork_at: None,
        rewind_at: None,
        context: None,
        seed: None,
        seed_context: None,
        on_turn_recorded: Func::new(|_| Ok(())),
        credentials: None,
    };
    let session = block_on(create.unbounded((Frozen(start),))).unwrap();
    let session = AgentSession::from_live(session.into_live()).unwrap();
    block_on(session.begin.unbounded(("t1".into(), "hello".into(), None, None, None))).unwrap();
    assert_eq!(heard.lock().unwrap().len(), 1);
    assert!(heard.lock().unwrap()[0].starts_with("chat {\"type\":\"chat/responsePart\""));
    assert_eq!(Arc::strong_count(&released), 3);
    drop(session);
    assert_eq!(Arc::strong_count(&released), 2, "the session's hold is released with it");
    drop(create);
    assert_eq!(Arc::strong_count(&released), 1, "the backend's hold is released with it");
}

#[test]
fn an_action_the_protocol_lacks_is_thrown_at_the_emitter() {
    let emit = Func::<fn(channel: Emit, action: wire::StateAction)>::new(|_| Ok(())).into_live();
    let Live::Function(emit) = emit else { panic!("no function") };
    let thrown = emit.call_now(vec![
        Live::Data("chat".into()),
        Live::Data(json!({ "type": "chat/turnComplete", "turnId": "t" })),
    ]);
    // A known type with a field missing decodes as nothing known, so it is the engine that refuses it.
    assert!(thrown.is_ok());
    let thrown = emit.call_now(vec![Live::Data("chit".into()), Live::Data(json!({}))]).unwrap_err();
    assert_eq!(thrown.message, "argument 1 needs to be one of session, chat, terminal");
}

#[test]
fn every_point_and_call_has_docs_and_named_parameters() {
    for point in POINTS {
        assert!(point.docs.trim().len() > 10, "{}", point.method);
        assert_eq!(point.params.len(), (point.shape)().params.len(), "{}", point.method);
    }
    for call in host::HOST_CALLS {
        assert!(call.docs.len() > 10, "{}", call.name);
        let shape::Shape::Function(function) = (call.shape)() else { panic!("{} is no function", call.name) };
        assert_eq!(call.params.len(), function().params.len(), "{}", call.name);
    }
}

#[test]
fn a_native_function_that_panics_fails_that_call() {
    let now = Call::<fn()>::new(|()| async { panic!("boom") });
    assert_eq!(block_on(now.unbounded(())).unwrap_err().message, "it panicked: boom");
    let at_once = Call::<fn()>::now(|()| panic!("bang"));
    assert_eq!(block_on(at_once.unbounded(())).unwrap_err().message, "it panicked: bang");
    let either = Call::<fn(later: bool)>::either(|(later,)| {
        assert!(later, "not now");
        Answering::Later(Box::pin(async { panic!("later") }))
    });
    for (later, said) in [(false, "it panicked: not now"), (true, "it panicked: later")] {
        assert_eq!(block_on(either.unbounded((later,))).unwrap_err().message, said);
    }
    assert_eq!(Func::<fn()>::new(|()| panic!("bing")).call(()).unwrap_err().message, "it panicked: bing");
}

#[derive(Debug, Clone, serde::Serialize, serde::Deserialize, Cross)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Trigger {
    Schedule { at: String },
    Event { id: Text },
}

#[test]
fn a_union_names_its_tag() {
    let wrong = |value: Value| {
        let list = shape::Shape::List(Box::new(Trigger::shape()));
        cross::check_data(&json!([value]), &list).unwrap_err().to_string()
    };
    assert_eq!(wrong(json!({ "kind": "push" })), "[0].kind to be one of schedule, event");
    assert_eq!(wrong(json!({})), "[0].kind to be one of schedule, event");
    assert_eq!(wrong(json!(1)), "[0] to be an object whose kind is one of schedule, event");
    assert_eq!(wrong(json!({ "kind": "event", "id": "" })), "[0].id to be a non-empty string");
}

#[test]
fn content_that_says_it_is_base64_is() {
    let read =
        |data: &str| ResourceContent::from_live(Live::Data(json!({ "data": data, "encoding": "base64" })));
    assert_eq!(read("AAE=").unwrap().data, "AAE=");
    for wrong in ["AAE", "A A E", "<>"] {
        assert_eq!(read(wrong).unwrap_err().to_string(), "data to be base64", "{wrong}");
    }
}
