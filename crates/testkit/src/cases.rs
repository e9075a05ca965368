//! Guarantees for plugins, whatever language they are written in. Each case expects a host that has its subject: a
//! plugin that behaves as the case's doc comment describes. A case that fails panics.

use std::time::Duration;

use ostler_contract::call::Signature;
use ostler_contract::events::{Event, TurnStatus};
use ostler_contract::host::SessionRequest;
use ostler_contract::points::{
    AutomationStore, Emit, RecordStore, ResourceContent, ResourceProvider, SessionStore, Tool, ToolSpec,
    Vault,
};
use ostler_contract::{Call, Plugin, Value, json};

use ostler_engine::Principal;
use ostler_engine::users::UsersFile;

use crate::{Builder, Lines, Stage};

/// Every kind of event that an in-memory host raises, except those of automations.
pub const EVENTS: &[&str] = &[
    "session_start",
    "session_end",
    "session_opened",
    "turn_start",
    "turn_end",
    "message",
    "tool_call",
    "input_needed_set",
    "input_needed_removed",
    "client_connect",
    "client_disconnect",
    "authenticated",
    "resource_write",
    "listening",
    "stopping",
    "log",
];

/// Returns the lines that a plugin logged.
fn said(log: &Lines, plugin: &str) -> Vec<String> {
    let head = format!("plugin {plugin}: ");
    log.all().iter().filter_map(|line| line.strip_prefix(&head)).map(str::to_owned).collect()
}

/// Returns a plugin with a writable scheme `desk` and the tools `good` and `bad`.
fn furniture() -> Plugin {
    Plugin::new("@test/furniture", |host, _| {
        Box::pin(async move {
            host.register_resource_provider(
                "desk".into(),
                ResourceProvider {
                    read: Call::now(|_| Ok(ResourceContent::text("A desk."))),
                    write: Some(Call::now(|_| Ok(()))),
                    ..ResourceProvider::default()
                },
            )?;
            for name in ["good", "bad"] {
                host.register_tool(Tool {
                    definition: ToolSpec {
                        name: name.into(),
                        description: Some("A tool.".into()),
                        input_schema: json!({ "type": "object" }).as_object().cloned(),
                        ..ToolSpec::default()
                    },
                    run: Call::now(move |(input, _)| match name {
                        "good" => Ok(input),
                        _ => Err("it broke".into()),
                    }),
                    ..Tool::default()
                })?;
            }
            Ok(())
        })
    })
}

/// A plugin that logs `turn_start` hears the host's own name for its operator, and the id of a person.
pub async fn listeners_hear_who_sent_a_turn_where_the_host_knows(builder: Builder) {
    let stage = Stage::default();
    let host = builder.plugin(stage.plugin(), json!({})).guarded().start().await;
    let mut root = host.raw_as(Principal::Root);
    root.initialize("c").await;
    root.request("createSession", json!({ "channel": "stage:/1" })).await.expect("created");
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "Go." } });
    root.dispatch(&ostler_protocol::uri::default_chat("stage:/1"), 1, turn).await;
    let line = host.log.wait_for("turn_start").await;
    assert!(line.contains(r#""sender":"root:localhost""#), "{line}");

    let people = host.host.access.gate.people().expect("users");
    let file = json!({ "users": [{ "id": "ada", "roles": ["admin"] }] });
    people.set(UsersFile::parse(&file.to_string()).expect("a file of users")).expect("set");
    let mut ada = host.raw_as(Principal::Person(people.now().person("ada").expect("ada")));
    ada.initialize("a").await;
    ada.request("createSession", json!({ "channel": "stage:/2" })).await.expect("created");
    let turn = json!({ "type": "chat/turnStarted", "turnId": "u", "message": { "text": "Go." } });
    ada.dispatch(&ostler_protocol::uri::default_chat("stage:/2"), 1, turn).await;
    host.log.wait_for(r#""sender":"user:ada""#).await;
}

/// The subject, `subject`, listens to each kind of [`EVENTS`] and logs the event as JSON, with the context that it
/// receives.
pub async fn events_are_told_with_their_fields(builder: Builder) {
    let resource = "https://api.example/";
    let stage = Stage::default().asking_for(resource);
    let host = builder
        .plugin(stage.plugin(), json!({}))
        .plugin(furniture(), json!({}))
        .options(|options| options.delta_window_ms = 0)
        .start()
        .await;
    let mut client = host.raw();
    client.initialize("c").await;
    let session = "stage:/1";
    let chat = ostler_protocol::uri::default_chat(session);
    client.request("createSession", json!({ "channel": session, "provider": "stage" })).await.expect("made");
    client.request("subscribe", json!({ "channel": session })).await.expect("watched");
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "Hello." } });
    client.dispatch(&chat, 1, turn).await;
    stage.wait_told("begin").await;
    let tools = stage.start(0).tools.unwrap_or_default();
    for tool in tools {
        let _ = tool.run.expect("it runs here").call((json!({}), None)).await;
    }
    let question = json!({ "kind": "chatInput", "id": "q", "chat": chat, "request": { "id": "q", "message": "Which?" } });
    stage.emit(0, Emit::Session, json!({ "type": "session/inputNeededSet", "request": question }));
    stage.emit(0, Emit::Session, json!({ "type": "session/inputNeededRemoved", "id": "q" }));
    stage.emit(0, Emit::Chat, json!({ "type": "chat/turnComplete", "turnId": "t", "duration": 1 }));
    host.log.wait_for("\"turn_end\"").await;
    client
        .request("resourceWrite", json!({ "uri": "desk://a", "data": "x", "encoding": "utf-8" }))
        .await
        .expect("written");
    client.request("authenticate", json!({ "resource": resource, "token": "k" })).await.expect("kept");
    host.host.core.log.warn("A line.");
    client.request("disposeSession", json!({ "channel": session })).await.expect("gone");
    client.connection.close();
    let request = SessionRequest { owner: "user:ada".into(), ..SessionRequest::default() };
    let own = host.plugin("furniture").start_session(request).await.expect("made");
    let listening =
        Event::Listening { runtime: "test".into(), host: "127.0.0.1".into(), port: 7, guarded: false };
    host.host.core.events.raise_and_wait(listening).await;
    host.host.stop().await;
    let events: Vec<Value> = said(&host.log, "subject")
        .iter()
        .map(|line| serde_json::from_str(line).expect("an event as JSON"))
        .collect();
    let expected = json!([
        { "type": "client_connect", "client": "c" },
        { "type": "session_opened", "session": session, "client": "c" },
        { "type": "session_start", "session": session, "provider": "stage", "client": "c" },
        { "type": "turn_start", "session": session, "chat": chat, "turn": "t" },
        { "type": "message", "session": session, "chat": chat, "turn": "t", "text": "Hello." },
        { "type": "tool_call", "session": session, "chat": chat, "tool": "good", "ok": true },
        { "type": "log", "line": "plugin furniture: its tool bad failed: it broke" },
        { "type": "tool_call", "session": session, "chat": chat, "tool": "bad", "ok": false, "error": "it broke" },
        { "type": "input_needed_set", "session": session, "chat": chat, "id": "q", "kind": "chatInput" },
        { "type": "input_needed_removed", "session": session, "id": "q" },
        { "type": "turn_end", "session": session, "chat": chat, "turn": "t", "status": "complete" },
        { "type": "resource_write", "uri": "desk://a" },
        { "type": "authenticated", "client": "c", "resource": resource },
        { "type": "log", "line": "A line." },
        { "type": "session_end", "session": session, "reason": "disposed" },
        { "type": "client_disconnect", "client": "c" },
        { "type": "session_start", "session": own, "provider": "stage" },
        { "type": "listening", "runtime": "test", "host": "127.0.0.1", "port": 7, "guarded": false },
        { "type": "stopping" },
    ]);
    pretty(&events, &expected);
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    assert!(EVENTS.iter().all(|kind| kinds.contains(kind)));
}

fn pretty(events: &[Value], expected: &Value) {
    let lines = |values: &[Value]| values.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    assert_eq!(lines(events), lines(expected.as_array().expect("a list")));
}

/// The subject, `subject`, listens to `turn_end` three times. The first listener logs `first begun`, continues for a
/// moment, logs `first ended` and throws `boom`; the second logs `second` and returns `false`; the third logs `third`.
pub async fn listeners_run_in_order_and_a_throw_stops_nothing(builder: Builder) {
    let host = builder.start().await;
    let ended = Event::TurnEnd {
        session: "stage:/1".into(),
        chat: "ahp-chat:/1".into(),
        turn: "t".into(),
        status: TurnStatus::Complete,
        sender: None,
    };
    host.host.core.events.raise_and_wait(ended).await;
    assert_eq!(
        said(&host.log, "subject"),
        ["first begun", "first ended", "its turn_end listener failed: boom", "second", "third"]
    );
}

/// The subject, `subject`, calls `say` with `early` in `apply` and with `while` on the event `listening`.
pub async fn what_is_said_is_announced_until_listening_was_heard(builder: Builder) {
    let host = builder.start().await;
    let listening =
        Event::Listening { runtime: "test".into(), host: "127.0.0.1".into(), port: 7, guarded: false };
    host.host.core.events.raise_and_wait(listening).await;
    assert_eq!(host.host.end_announcements(), ["early", "while"]);
    host.plugin("subject").say("late".to_owned()).expect("it is only dropped");
    assert!(host.host.end_announcements().is_empty());
}

/// The subject, `subject`, logs the error that `connect` throws in `apply`.
pub async fn connect_is_refused_while_plugins_are_applied(builder: Builder) {
    let host = builder.start().await;
    assert_eq!(
        said(&host.log, "subject"),
        [
            "plugin subject: connect needs a connection to be asked for once a host is built over this plugin; \
          connect from `listening` or later"
        ]
    );
}

/// The subject, `subject`, opens the collection `notes` in `apply`. Without awaiting anything there, it watches the
/// collection with a log of `<type> <id>`, puts `{ id: 'a', n: 1 }`, and after that logs `put` and the JSON of
/// `get('a')`. A plugin `later`, named after it, logs `applied` in its `apply`.
pub async fn records_asked_for_in_apply_wait_for_every_plugin(builder: Builder) {
    let host = builder.start().await;
    host.log.wait_for("\"n\":1").await;
    host.log.wait_for("added a").await;
    let lines = host.log.all();
    let at = |text: &str| lines.iter().position(|line| line.contains(text)).expect("the line is there");
    assert!(at("plugin later: applied") < at("plugin subject: put"), "{lines:#?}");
    assert!(at("plugin later: applied") < at("plugin subject: added a"), "{lines:#?}");
    let refused = host.plugin("later").records("notes".to_owned(), None).expect_err("it is another plugin's");
    assert_eq!(refused.message, "plugin later: records notes belong to plugin subject");
}

/// The subjects, `first` and `second`, each register two close functions. Those of `first` log `one` and throw `boom`,
/// then log `two`; those of `second` never end, then log `four`.
pub async fn the_host_closes_in_order(builder: Builder) {
    let stage = Stage::default();
    let lines = Lines::default();
    let logged = |what: &'static str| {
        let lines = lines.clone();
        Some(Call::<fn()>::now(move |()| {
            lines.write(what);
            Ok(())
        }))
    };
    let host = builder
        .plugin(stage.plugin(), json!({}))
        .automations(AutomationStore { close: logged("automations"), ..empty_automations() })
        .sessions(SessionStore { close: logged("sessions"), ..empty_sessions() })
        .records(RecordStore { collection: Call::now(|_| Err("none".into())), close: logged("records") })
        .vault(Vault { close: logged("vault"), ..empty_vault() })
        .start()
        .await;
    let mut client = host.raw();
    client.initialize("c").await;
    client.request("createSession", json!({ "channel": "stage:/1" })).await.expect("made");
    let begun = tokio::time::Instant::now();
    let told = stage.clone();
    let (closing, watched) = (host.host.clone(), host.log.clone());
    let close = tokio::spawn(async move { closing.close().await });
    watched.wait_for("plugin first: one").await;
    assert_eq!(told.told(), [json!({ "close": false })], "sessions end first");
    assert_eq!(lines.all(), Vec::<String>::new(), "stores close after what plugins close");
    close.await.expect("it closes");
    let of_plugins: Vec<String> = host
        .log
        .all()
        .into_iter()
        .filter(|line| line.starts_with("plugin ") && !line.contains(" ms"))
        .collect();
    assert_eq!(
        of_plugins,
        [
            "plugin first: one",
            "plugin first: its close failed: boom",
            "plugin first: two",
            "plugin second: its close failed: it did not answer within 10 seconds",
            "plugin second: four",
        ]
    );
    assert_eq!(lines.all(), ["automations", "sessions", "records", "vault"]);
    assert!(begun.elapsed() < Duration::from_secs(15));
}

/// Returns an automation store that stores nothing.
pub fn empty_automations() -> AutomationStore {
    AutomationStore {
        list: Call::now(|()| Ok(Vec::new())),
        get: Call::now(|_| Ok(None)),
        triggers: Call::now(|()| Ok(Vec::new())),
        create: Call::now(|_| Err("none".into())),
        update: Call::now(|_| Err("none".into())),
        remove: Call::now(|_| Ok(false)),
        run: Call::now(|_| Ok(())),
        run_of: Call::now(|_| Ok(None)),
        runs: Call::now(|_| Ok(ostler_contract::points::RunPage::default())),
        ..AutomationStore::default()
    }
}

/// Returns a session store that stores nothing.
pub fn empty_sessions() -> SessionStore {
    SessionStore {
        flags: Call::now(|_| Ok(None)),
        set_flags: Call::now(|_| Ok(())),
        config: Call::now(|_| Ok(None)),
        set_config: Call::now(|_| Ok(())),
        artifacts: Call::now(|_| Ok(Vec::new())),
        set_artifacts: Call::now(|_| Ok(())),
        pull_requests: Call::now(|_| Ok(ostler_contract::JsonObject::new())),
        set_pull_requests: Call::now(|_| Ok(())),
        chat_title: Call::now(|_| Ok(None)),
        set_chat_title: Call::now(|_| Ok(())),
        chats: Call::now(|_| Ok(Vec::new())),
        set_chats: Call::now(|_| Ok(())),
        sessions: Call::now(|()| Ok(Vec::new())),
        forget: Call::now(|_| Ok(())),
        ..SessionStore::default()
    }
}

/// Returns a session store whose calls complete immediately: paused time does not wait for the threads of a database.
pub fn at_once(store: SessionStore) -> SessionStore {
    fn now<S: Signature>(call: Call<S>) -> Call<S> {
        Call::new(move |arguments| {
            let answer = futures::executor::block_on(call.unbounded(arguments));
            async move { answer }
        })
    }
    macro_rules! all {
        ($($must:ident)+; $($may:ident)+) => {
            SessionStore { $($must: now(store.$must),)+ $($may: store.$may.map(now),)+ }
        };
    }
    all!(
        flags set_flags config set_config artifacts set_artifacts pull_requests set_pull_requests chat_title
        set_chat_title chats set_chats sessions forget;
        all session page session_of_chat drafts waiting count turns set_turn drop_turns annotations set_annotations
        reported set_reported set_attachment attachment close
    )
}

fn empty_vault() -> Vault {
    Vault {
        get: Call::now(|_| Ok(None)),
        set: Call::now(|_| Ok(())),
        delete: Call::now(|_| Ok(false)),
        list: Call::now(|()| Ok(Vec::new())),
        ..Vault::default()
    }
}
