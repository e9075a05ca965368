//! `on` and `registerClose`: what a plugin is told of, and what it does at the end.

use std::time::Duration;

use ostler_contract::events::{Event, EventName, Handler};
use ostler_contract::points::{AutomationStore, RecordStore, SessionStore, Tool, ToolSpec};
use ostler_contract::{Call, Frozen, Options, PluginContext, PluginHost, Thrown, Value, json};
use ostler_testkit::cases::{empty_automations, empty_sessions};

use crate::side::{Both, Side, Talk, lines_of};

const PLUGIN: Both = Both { spec: "@conformance/listener", native, javascript: "listener.mjs", dress: None };

both! { PLUGIN:
    listeners_hear_in_order_and_change_nothing,
    what_is_said_while_listening_is_announced,
    a_listener_is_handed_the_context_of_apply,
    nothing_is_heard_that_was_asked_for_after_apply,
    closing_runs_every_function_in_order,
}

fn native(host: PluginHost, _: Options) -> Result<(), Thrown> {
    let told: Handler = Call::now(|(mut event, context): (Frozen<Event>, Frozen<PluginContext>)| {
        let said = match &event.0 {
            Event::SessionStart { session, provider, client } => {
                format!("session_start {session} {provider} {}", client.as_deref().unwrap_or_default())
            }
            Event::TurnStart { session, .. } => format!("turn_start {session}"),
            Event::TurnEnd { session, status, .. } => format!("turn_end {session} {}", status.as_str()),
            Event::SessionEnd { session, reason } => format!("session_end {session} {reason}"),
            _ => unreachable!(),
        };
        // Its own copy: nobody else sees what is written to it.
        if let Event::TurnEnd { session, .. } = &mut event.0 {
            *session = "forged".to_owned();
        }
        context.log.call((format!("{said} on {}", context.host_name),))
    });
    for event in [EventName::SessionStart, EventName::TurnStart, EventName::TurnEnd, EventName::SessionEnd] {
        host.on(event, told.clone())?;
    }
    host.on(EventName::TurnEnd, Call::new(|_| async { Err("deaf".into()) }))?;
    host.on(
        EventName::TurnEnd,
        Call::now(|(_, context): (_, Frozen<PluginContext>)| {
            context.log.call(("after the deaf one".into(),))
        }),
    )?;
    host.on(
        EventName::Listening,
        Call::now(|(event, context): (Frozen<Event>, Frozen<PluginContext>)| {
            let Event::Listening { runtime, port, .. } = &event.0 else { return Ok(()) };
            let context = context.0;
            let yaml = context.stringify_yaml.call((json!({ "yes": ["no", 1] }),))?;
            let facts = json!([
                context.path,
                context.paths,
                context.version,
                context.host_name,
                context.config_dir,
                context.parse_yaml.call((yaml,))?
            ]);
            context.log.call((format!("context {facts}"),))?;
            context.say.call((format!("hears {runtime} on {port} at {}", context.config_dir),))
        }),
    )?;
    let tool = |name: &str, run| Tool {
        definition: ToolSpec { name: name.into(), ..ToolSpec::default() },
        run,
        ..Tool::default()
    };
    let (late, says) = (host.clone(), host.clone());
    host.register_tool(tool(
        "late",
        Call::now(move |_| {
            let logs = late.clone();
            let refused =
                late.on(EventName::TurnEnd, Call::now(move |_| logs.log("never".into()))).unwrap_err();
            Ok(refused.message.into())
        }),
    ))?;
    host.register_tool(tool(
        "say",
        Call::now(move |_| {
            says.say("too late".into())?;
            Ok(serde_json::Value::Null)
        }),
    ))?;
    let (first, last) = (host.clone(), host.clone());
    host.register_close(Call::new(move |()| {
        let host = first.clone();
        async move {
            // The others would close before it if it were not awaited.
            tokio::time::sleep(Duration::from_millis(20)).await;
            host.log("closes first".into())
        }
    }))?;
    host.register_close(Call::now(|()| Err("stuck".into())))?;
    host.register_close(Call::now(move |()| last.log("closes last".into())))
}

async fn listeners_hear_in_order_and_change_nothing(side: Side) {
    let host = side.host_with_echo().options(|options| options.host_name = "inn".into()).start().await;
    let mut talk = Talk::with(&host, "echo").await;
    assert_eq!(talk.say("one").await, "one");
    let session = talk.session.clone();
    talk.client.request("disposeSession", json!({ "channel": session })).await.unwrap();
    host.log.wait_for("session_end").await;
    let first_lines: Vec<String> = lines_of(&host.log, "listener")
        .iter()
        .filter_map(|line| line.lines().next())
        .map(str::to_owned)
        .collect();
    assert_eq!(
        first_lines,
        [
            "session_start echo:/talk echo talker on inn",
            "turn_start echo:/talk on inn",
            "turn_end echo:/talk complete on inn",
            "its turn_end listener failed: deaf",
            "after the deaf one",
            "session_end echo:/talk disposed on inn",
        ]
    );
}

async fn what_is_said_while_listening_is_announced(side: Side) {
    let dir = tempfile::tempdir().unwrap();
    let host = side.host_with_echo().folder(dir.path()).start().await;
    let listening =
        Event::Listening { runtime: "ostler".into(), host: "127.0.0.1".into(), port: 9187, guarded: true };
    host.host.core.events.raise_and_wait(listening).await;
    let said = host.host.end_announcements();
    assert_eq!(said, [format!("hears ostler on 9187 at {}", dir.path().display())]);
    Talk::with(&host, "echo").await.tool("say", json!({})).await;
    host.log.wait_for("plugin listener: announced after the start, dropped: too late").await;
    assert_eq!(host.host.end_announcements(), [""; 0]);
}

async fn a_listener_is_handed_the_context_of_apply(side: Side) {
    let dir = tempfile::tempdir().unwrap();
    let builder = side.host_with_echo().folder(dir.path()).options(|options| {
        options.host_name = "inn".into();
        options.paths = vec!["/srv/work".into(), "/srv/more".into()];
    });
    let host = builder.start().await;
    let listening =
        Event::Listening { runtime: "ostler".into(), host: "127.0.0.1".into(), port: 9187, guarded: true };
    host.host.core.events.raise_and_wait(listening).await;
    let lines = lines_of(&host.log, "listener");
    let handed =
        lines.iter().find_map(|line| line.strip_prefix("context ")).unwrap_or_else(|| panic!("{lines:?}"));
    let version = &host.plugin("listener").facts().version;
    assert!(!version.is_empty());
    let folder = dir.path().display().to_string();
    assert_eq!(
        serde_json::from_str::<Value>(handed).unwrap(),
        json!(["/srv/work", ["/srv/work", "/srv/more"], version, "inn", folder, { "yes": ["no", 1] }])
    );
}

async fn nothing_is_heard_that_was_asked_for_after_apply(side: Side) {
    let host = side.host_with_echo().start().await;
    let mut talk = Talk::with(&host, "echo").await;
    assert_eq!(
        talk.tool("late", json!({})).await,
        "listener: nothing may be registered after apply returned"
    );
    talk.say("more").await;
    host.log.wait_for("after the deaf one").await;
    assert!(!host.log.has("never"));
}

async fn closing_runs_every_function_in_order(side: Side) {
    let builder = side.other(crate::agent::PLUGIN).load(side.host_with_echo(), json!({}));
    let log = builder.log();
    let closes = move |store: &'static str| {
        let log = log.clone();
        Some(Call::<fn()>::now(move |()| {
            log.write(&format!("store {store} closes"));
            Ok(())
        }))
    };
    let collection = Call::now(|_| Err("there are none".into()));
    let host = builder
        .automations(AutomationStore { close: closes("automations"), ..empty_automations() })
        .sessions(SessionStore { close: closes("sessions"), ..empty_sessions() })
        .records(RecordStore { collection, close: closes("records") })
        .start()
        .await;
    assert_eq!(Talk::with(&host, "parrot").await.say("one").await, "heard: one");
    host.host.close().await;
    let lines = host.log.all();
    let at = |text: &str| {
        lines.iter().position(|line| line.contains(text)).unwrap_or_else(|| panic!("{text}: {lines:#?}"))
    };
    assert!(lines[at("stuck")].starts_with("plugin listener: its close failed: stuck"), "{lines:#?}");
    // Sessions close first, then the functions of plugins, one after the other, and then the stores.
    let order = ["plugin agent: close", "closes first", "its close failed", "closes last", "store "].map(at);
    assert!(order.is_sorted(), "{lines:#?}");
    for store in ["automations", "sessions", "records"] {
        at(&format!("store {store} closes"));
    }
}
