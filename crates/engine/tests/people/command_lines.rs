//! Command lines: a message that begins with `!` runs in a terminal if its way in and its sender may, on every road to a
//! turn, and is refused or is a message for the agent otherwise.

use std::sync::Arc;

use ostler_contract::points::{
    Agent, AgentSession, SessionTerminal, Start, Terminal, TerminalEvents, TerminalRequest, TerminalStore,
};
use ostler_contract::{Call, Frozen, HostFunction, JsonObject, Plugin, PluginHost, Thrown, Value, json};
use ostler_engine::users::{UsersFile, hash_of};
use ostler_engine::{People, Principal};
use ostler_protocol::grants::Grant;
use ostler_protocol::origins::{COMMAND_LINE, Effect, Rule, WayIn, rule};
use ostler_protocol::uri;
use ostler_testkit::{MemoryHost, RawClient, SIGN_IN, action};
use parking_lot::Mutex;

const SESSION: &str = "runner:/1";
const LINE: &str = "!touch x";

/// What came of a message.
#[derive(Debug, PartialEq)]
enum Came {
    /// The shell got its command.
    Ran,
    /// The agent got its text.
    Asked,
    /// Neither did; the reason.
    Refused(String),
}

/// How a message becomes a turn.
#[derive(Debug, Clone, Copy)]
enum Road {
    Direct,
    Queued,
    Steering,
    Edited,
    NewChat,
}

const ROADS: [Road; 5] = [Road::Direct, Road::Queued, Road::Steering, Road::Edited, Road::NewChat];

type Run = HostFunction<fn(tool_call_id: Option<String>) -> SessionTerminal>;

/// A backend that answers `ran <command>` or `asked <text>`; `hold` lasts until it is cancelled, and it takes every
/// steering message.
fn runner(host: PluginHost) -> Result<(), Thrown> {
    host.register_agent(Agent {
        provider: "runner".into(),
        display_name: "Runner".into(),
        schema: Call::now(|()| Ok(json!({ "properties": {} }))),
        defaults: Call::now(|()| Ok(JsonObject::new())),
        chats: Some(Default::default()),
        create: Call::now(|(start,): (Frozen<Start>,)| {
            let start = Arc::new(start.0);
            let (began, ran, cancelled, steered) = (start.clone(), start.clone(), start.clone(), start);
            let holds: Arc<Mutex<String>> = Arc::default();
            let held = holds.clone();
            Ok(AgentSession {
                begin: Call::now(move |(turn, text, ..): (String, String, _, _, _)| match text.as_str() {
                    "hold" => {
                        *holds.lock() = turn;
                        Ok(())
                    }
                    _ => end(&began, &turn, &format!("asked {text}")),
                }),
                ran: Some(Call::new(move |(turn, command, run): (String, String, Run)| {
                    let start = ran.clone();
                    async move {
                        run.call((None,)).await?;
                        end(&start, &turn, &format!("ran {command}"))
                    }
                })),
                steer: Some(Call::now(move |(_, text, _): (String, String, _)| {
                    end(&steered, &held.lock(), &format!("asked {text}"))?;
                    Ok(true)
                })),
                cancel: Call::now(move |(turn,): (String,)| end(&cancelled, &turn, "held")),
                close: Call::now(|_| Ok(())),
                ..AgentSession::default()
            })
        }),
        ..Agent::default()
    })
}

fn end(start: &Start, turn: &str, content: &str) -> Result<(), Thrown> {
    let part = json!({ "kind": "markdown", "id": turn, "content": content });
    let part = json!({ "type": "chat/responsePart", "turnId": turn, "part": part });
    let complete = json!({ "type": "chat/turnComplete", "turnId": turn, "duration": 0 });
    start.emit.call((ostler_contract::points::Emit::Chat, action(part)))?;
    start.emit.call((ostler_contract::points::Emit::Chat, action(complete)))
}

/// A host with terminals, on which `ben` has grants, if it has users.
async fn host(grants: Option<&[&str]>) -> MemoryHost {
    let builder = MemoryHost::builder()
        .plugin(Plugin::new("@test/runner", |host, _| Box::pin(async move { runner(host) })), json!({}))
        .plugin(Plugin::new("@test/caller", |_, _| Box::pin(async { Ok(()) })), json!({}))
        .grants(&["session:*", "terminal:*"])
        .own(|host| {
            let create = Call::now(|(_, events): (TerminalRequest, TerminalEvents)| {
                events.exited.call((Some(0),))?;
                let dispose = Call::now(|()| Ok(()));
                Ok(Terminal { input: Call::now(|_| Ok(())), dispose, ..Terminal::default() })
            });
            host.register_terminals(TerminalStore { create, ..TerminalStore::default() }, None)
        });
    let Some(grants) = grants else { return builder.start().await };
    let host = builder.people(People::new(SIGN_IN, "inn")).start().await;
    set(&host, grants);
    host
}

fn set(host: &MemoryHost, grants: &[&str]) {
    let file = json!({
        "roles": { "r": grants },
        "users": [{ "id": "ben", "roles": ["r"], "token": hash_of("ben's") }],
    });
    host.host.access.gate.people().unwrap().set(UsersFile::parse(&file.to_string()).unwrap()).unwrap();
    host.host.review_authority();
}

fn principal(host: &MemoryHost, way: WayIn) -> Principal {
    let grants: Arc<[Grant]> = [Grant::of("session", "*"), Grant::of("terminal", "*")].into();
    match (way, host.host.access.gate.people()) {
        (WayIn::Plugin, _) => Principal::Plugin { id: "caller".to_owned(), grants },
        (_, Some(people)) => Principal::Person(people.now().person("ben").unwrap()),
        (_, None) => Principal::Anyone,
    }
}

/// Sends the line by a road; `between` happens while it waits for its turn.
async fn send(client: &mut RawClient, road: Road, between: impl FnOnce()) -> Came {
    let chat = uri::default_chat(SESSION);
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    client.request("subscribe", json!({ "channel": chat })).await.unwrap();
    let start = |id: &str, text: &str| json!({ "type": "chat/turnStarted", "turnId": id, "message": { "text": text } });
    let wait = |kind: &str, text: &str| {
        let message = json!({ "text": text });
        json!({ "type": "chat/pendingMessageSet", "kind": kind, "id": "q", "message": message })
    };
    if matches!(road, Road::Queued | Road::Steering | Road::Edited) {
        client.dispatch(&chat, 1, start("held", "hold")).await;
        client.actions_until("chat/turnStarted").await;
    }
    match road {
        Road::Direct => client.dispatch(&chat, 2, start("line", LINE)).await,
        Road::Queued => client.dispatch(&chat, 2, wait("queued", LINE)).await,
        Road::Steering => client.dispatch(&chat, 2, wait("steering", LINE)).await,
        Road::Edited => {
            client.dispatch(&chat, 2, wait("queued", "Something else.")).await;
            client.dispatch(&chat, 3, wait("queued", LINE)).await;
        }
        Road::NewChat => {
            between();
            let message = json!({ "text": LINE, "origin": { "kind": "user" } });
            let new = json!({ "channel": SESSION, "chat": "ahp-chat:/2", "initialMessage": message });
            client.request("createChat", new).await.unwrap();
            return last(client, "ahp-chat:/2", LINE).await;
        }
    }
    if !matches!(road, Road::Direct) {
        client.actions_until("chat/pendingMessageSet").await;
        between();
        client.dispatch(&chat, 4, json!({ "type": "chat/turnCancelled", "turnId": "held" })).await;
    }
    loop {
        let seen = client.next_action().await;
        if let Some(why) = seen["rejectionReason"].as_str()
            && seen["action"]["turnId"] == "line"
        {
            return Came::Refused(why.to_owned());
        }
        if ["chat/turnComplete", "chat/error"].iter().any(|end| seen["action"]["type"] == *end) {
            let came = last(client, &chat, LINE).await;
            if came != Came::Refused("held".to_owned()) {
                return came;
            }
        }
    }
}

/// What came of the message with this text, or of a message that steered, in the ended turns of a chat.
async fn last(client: &mut RawClient, chat: &str, text: &str) -> Came {
    loop {
        let state = client.request("subscribe", json!({ "channel": chat })).await.unwrap();
        let state = &state["snapshot"]["state"];
        let turns: Vec<Value> = state["turns"].as_array().cloned().unwrap_or_default();
        let said = |turn: &Value| {
            let parts = turn["responseParts"].as_array().cloned().unwrap_or_default();
            parts.iter().find_map(|part| {
                let error = part["error"]["message"].as_str().map(|why| Came::Refused(why.to_owned()));
                let content = part["content"].as_str().unwrap_or_default();
                let came = match content.split_once(' ') {
                    Some(("ran", _)) => Some(Came::Ran),
                    Some(("asked", asked)) if asked == text => Some(Came::Asked),
                    _ => None,
                };
                error.or(came)
            })
        };
        if let Some(came) = turns.iter().find_map(said) {
            return came;
        }
        if state["activeTurn"].is_null() && state["queuedMessages"].as_array().is_none_or(Vec::is_empty) {
            return Came::Refused("held".to_owned());
        }
        tokio::task::yield_now().await;
    }
}

/// The ways in by which a connection can be opened.
fn connections() -> impl Iterator<Item = WayIn> {
    let connects = |way: &&WayIn| {
        matches!(way, WayIn::Client | WayIn::Console | WayIn::Editor | WayIn::CommandLine | WayIn::Plugin)
    };
    WayIn::ALL.iter().filter(connects).copied()
}

#[tokio::test]
async fn a_way_in_that_is_offered_command_lines_may_send_them_on_every_road() {
    for way in connections() {
        let may = matches!(rule(way, Effect::CommandLine), Rule::Granted(..));
        for road in ROADS {
            for grants in [None, Some(&["session:*", "terminal:*"][..])] {
                let host = host(grants).await;
                let mut client = host.raw_by(way, principal(&host, way));
                let offered = client.initialize("c").await["terminalCommandPrefix"] == "!";
                let came = send(&mut client, road, || {}).await;
                let expected = if may { Came::Ran } else { Came::Asked };
                assert_eq!((offered, came), (may, expected), "{way:?} {road:?} {grants:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_user_without_the_grants_of_a_terminal_runs_nothing() {
    for (lacking, grants) in [
        ("terminal:create", &["session:*"][..]),
        ("terminal:create", &["session:*", "terminal:input"]),
        ("terminal:input", &["session:*", "terminal:create"]),
    ] {
        assert!(COMMAND_LINE.iter().any(|grant| grant.to_string() == lacking));
        for road in ROADS {
            let host = host(Some(grants)).await;
            let mut client = host.raw_by(WayIn::Client, principal(&host, WayIn::Client));
            client.initialize("c").await;
            let came = send(&mut client, road, || {}).await;
            let why = format!(
                "user:ben may not {lacking} here, which a command line (a message that begins with !) needs"
            );
            assert_eq!(came, Came::Refused(why), "{road:?} {grants:?}");
        }
    }
}

/// The grants are those at the time when the line would run.
#[tokio::test]
async fn a_line_that_waits_is_asked_about_when_it_runs() {
    for road in [Road::Queued, Road::Steering, Road::Edited] {
        let host = host(Some(&["session:*", "terminal:*"])).await;
        let mut client = host.raw_by(WayIn::Client, principal(&host, WayIn::Client));
        client.initialize("c").await;
        let came = send(&mut client, road, || set(&host, &["session:*"])).await;
        assert!(matches!(&came, Came::Refused(why) if why.contains("terminal:create")), "{road:?} {came:?}");
    }
}

/// Neither the way in nor the sender is what a client says it is.
#[tokio::test]
async fn a_client_cannot_write_how_its_message_came() {
    let host = host(None).await;
    let mut client = host.raw_by(WayIn::Plugin, principal(&host, WayIn::Plugin));
    client.initialize("c").await;
    client.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    let chat = uri::default_chat(SESSION);
    client.request("subscribe", json!({ "channel": chat })).await.unwrap();
    let meta = json!({ "ostler.wayIn": "client", "ostler.sender": "root:inn", "mine": 1 });
    let turn =
        json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": LINE, "_meta": meta } });
    client.dispatch(&chat, 1, turn).await;
    let started = client.actions_until("chat/turnStarted").await.pop().unwrap();
    let meta = &started["action"]["message"]["_meta"];
    assert_eq!(*meta, json!({ "mine": 1, "ostler.wayIn": "plugin" }));
    client.actions_until("chat/turnComplete").await;
    assert_eq!(last(&mut client, &chat, LINE).await, Came::Asked);
}
