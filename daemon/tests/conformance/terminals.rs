//! `registerTerminals`: a terminal is a live object, both ways, and what clients and backends do with it.

use std::sync::Arc;

use ostler_contract::points::{
    Agent, AgentSession, Emit, SessionTerminal, SessionTerminalRequest, Start, Terminal, TerminalEvents,
    TerminalRequest, TerminalStore,
};
use ostler_contract::{Call, Frozen, HostFunction, JsonObject, Options, PluginHost, Thrown, Value, json};
use ostler_testkit::{MemoryHost, RawClient};

use crate::side::{Both, Side, Talk, action};

const PLUGIN: Both =
    Both { spec: "@conformance/terminals", native, javascript: "terminals.mjs", dress: None };

both! { PLUGIN:
    a_terminal_is_opened_typed_into_and_disposed_of,
    what_a_terminal_said_last_is_kept,
    a_client_that_does_not_keep_up_is_sent_the_state,
    commands_are_seen_by_their_marks,
    who_holds_a_terminal_hands_it_over,
    what_cannot_be_opened_leaves_nothing_behind,
    a_backend_opens_terminals_people_watch,
    a_line_after_the_prefix_is_run_in_a_terminal,
    terminals_end_with_their_session_and_the_host,
}

fn terminal(host: PluginHost, request: TerminalRequest, events: TerminalEvents) -> Result<Terminal, Thrown> {
    let cwd = request.cwd.unwrap_or_default();
    if cwd == "/nowhere" {
        return Err("no luck".into());
    }
    let command = request.command.unwrap_or_else(|| "shell".to_owned());
    let words = [vec![command.clone()], request.args.unwrap_or_default()].concat().join("+");
    let shell = request.shell.unwrap_or_else(|| "none".to_owned());
    let size = format!("{}x{}", request.cols, request.rows);
    events.data.call((format!("{cwd} {size} {shell} {words} {}\n", request.env.len()),))?;
    if command == "done" {
        events.exited.call((Some(3),))?;
    }
    let (typed, resized, killed, uri) = (events.clone(), events.clone(), events, request.terminal);
    Ok(Terminal {
        title: Some("parrot".into()),
        is_pty: Some(cwd == "/pty"),
        input: Call::new(move |(data,): (String,)| {
            let typed = typed.clone();
            async move {
                if data == "ready" {
                    typed.ready.call(()).await?;
                }
                parrot(&typed, data)
            }
        }),
        resize: Some(Call::now(move |(cols, rows): (u16, u16)| {
            resized.data.call((format!("now {cols}x{rows}\n"),))
        })),
        kill: Some(Call::now(move |(signal,): (Option<String>,)| {
            killed.data.call((format!("{}\n", signal.as_deref().unwrap_or("SIGTERM")),))?;
            killed.exited.call((None,))?;
            killed.data.call(("too late".to_owned(),))
        })),
        dispose: Call::now(move |()| host.log(format!("disposed {uri}"))),
        ..Terminal::default()
    })
}

fn parrot(events: &TerminalEvents, data: String) -> Result<(), Thrown> {
    let (word, said) = data.split_once(' ').unwrap_or(("", ""));
    match (data.as_str(), word) {
        ("throw", _) => Err("not that".into()),
        (_, "exit") => events.exited.call((said.parse().ok(),)),
        (_, "title") => events.title.call((said.to_owned(),)),
        (_, "cd") => events.cwd.call((said.to_owned(),)),
        (_, "flood") => events.data.call(("x".repeat(said.parse().unwrap()),)),
        _ => events.data.call((data,)),
    }
}

fn end(start: &Start, turn: &str, content: &str) -> Result<(), Thrown> {
    let part = json!({ "kind": "markdown", "id": turn, "content": content });
    start
        .emit
        .call((Emit::Chat, action(json!({ "type": "chat/responsePart", "turnId": turn, "part": part }))?))?;
    start
        .emit
        .call((Emit::Chat, action(json!({ "type": "chat/turnComplete", "turnId": turn, "duration": 0 }))?))
}

async fn begin(start: Arc<Start>, turn: String, text: String) -> Result<(), Thrown> {
    let Some(terminals) = &start.terminals else { return end(&start, &turn, "no terminals") };
    let request = SessionTerminalRequest {
        command: Some(text.clone()),
        args: Some(vec!["-l".into()]),
        env: Some([("A".to_owned(), "b".to_owned())].into()),
        name: Some("Mine".into()),
        turn_id: Some(turn.clone()),
        tool_call_id: Some("c".into()),
        ..SessionTerminalRequest::default()
    };
    let open = terminals.open.call((request,)).await?;
    open.write.call(("typed".into(),)).await?;
    open.resize.call((100, 30)).await?;
    match text.as_str() {
        "kill" => open.kill.call(()).await?,
        _ => open.write.call(("exit 7".into(),)).await?,
    }
    let code = open.wait.call(()).await?;
    end(&start, &turn, &json!([open.uri, code, open.output.call(()).await?]).to_string())?;
    match text.as_str() {
        "release" => open.release.call(()).await,
        _ => Ok(()),
    }
}

fn native(host: PluginHost, _: Options) -> Result<(), Thrown> {
    let (opens, closes) = (host.clone(), host.clone());
    host.register_terminals(
        TerminalStore {
            create: Call::now(move |(request, events)| terminal(opens.clone(), request, events)),
            close: Some(Call::now(move |()| closes.log("store closed".into()))),
        },
        None,
    )?;
    host.register_agent(Agent {
        provider: "runner".into(),
        display_name: "Runner".into(),
        schema: Call::now(|()| Ok(json!({ "properties": {} }))),
        defaults: Call::now(|()| Ok(JsonObject::new())),
        create: Call::now(|(start,): (Frozen<Start>,)| {
            let start = Arc::new(start.0);
            let ran = start.clone();
            Ok(AgentSession {
                begin: Call::new(move |(turn, text, ..): (String, String, _, _, _)| {
                    begin(start.clone(), turn, text)
                }),
                ran: Some(Call::new(move |(turn, command, run): (String, String, Run)| {
                    let start = ran.clone();
                    async move {
                        let open = run.call((Some("call".into()),)).await?;
                        let code = open.wait.call(()).await?;
                        let said = open.output.call(()).await?;
                        end(&start, &turn, &json!([command, code, said]).to_string())
                    }
                })),
                cancel: Call::now(|(_turn,)| Ok(())),
                close: Call::now(|(_removing,)| Ok(())),
                ..AgentSession::default()
            })
        }),
        ..Agent::default()
    })
}

type Run = HostFunction<fn(tool_call_id: Option<String>) -> SessionTerminal>;

const ONE: &str = "ahp-terminal:/one";

async fn start(side: Side) -> (MemoryHost, RawClient) {
    let host = side.host().options(|options| options.paths = vec!["/srv".into()]).start().await;
    let mut client = host.raw();
    let result = client.initialize("one").await;
    assert_eq!(result["terminalCommandPrefix"], "!");
    let root = client.request("subscribe", json!({ "channel": "ahp-root://" })).await.unwrap();
    assert_eq!(root["snapshot"]["state"]["terminals"], json!([]));
    (host, client)
}

async fn open(client: &mut RawClient, more: Value) -> Result<Value, Value> {
    let mut params = crate::side::object(json!({ "channel": ONE }));
    params.extend(crate::side::object(more));
    client.request("createTerminal", params.into()).await
}

async fn snapshot(client: &mut RawClient) -> Value {
    client.request("subscribe", json!({ "channel": ONE })).await.unwrap()["snapshot"]["state"].clone()
}

/// The next action of the terminal's own channel.
async fn next(client: &mut RawClient) -> Value {
    loop {
        let seen = client.next_action().await;
        if seen["channel"] == ONE {
            return seen;
        }
    }
}

async fn listed(client: &mut RawClient) -> Value {
    client.actions_until("root/terminalsChanged").await.pop().unwrap()["action"]["terminals"].clone()
}

async fn type_in(client: &mut RawClient, data: &str) {
    client.dispatch(ONE, 1, json!({ "type": "terminal/input", "data": data })).await;
}

async fn a_terminal_is_opened_typed_into_and_disposed_of(side: Side) {
    let (host, mut client) = start(side).await;
    client
        .dispatch(
            "ahp-root://",
            1,
            json!({ "type": "root/configChanged", "config": { "defaultShell": "/bin/zsh" } }),
        )
        .await;
    assert_eq!(open(&mut client, json!({ "cols": 120, "rows": 40 })).await, Ok(Value::Null));
    let held = json!({ "kind": "client", "clientId": "one" });
    let row =
        json!({ "resource": ONE, "title": "parrot", "claim": held, "lifecycle": { "status": "running" } });
    assert_eq!(listed(&mut client).await, json!([row]));
    let first = "/srv 120x40 /bin/zsh shell 0\n";
    assert_eq!(
        snapshot(&mut client).await,
        json!({ "title": "parrot", "cwd": "file:///srv", "cols": 120, "rows": 40, "claim": held,
            "content": [{ "type": "unclassified", "value": first }], "lifecycle": { "status": "running" },
            "supportsCommandDetection": false, "isPty": false })
    );
    // What is typed is echoed to nobody; what the process says to everybody.
    let mut other = host.raw();
    other.initialize("two").await;
    snapshot(&mut other).await;
    type_in(&mut client, "hello").await;
    for client in [&mut client, &mut other] {
        let said = next(client).await;
        assert_eq!(said["action"], json!({ "type": "terminal/data", "data": "hello" }));
        assert!(said.get("origin").is_none());
    }
    other.dispatch(ONE, 7, json!({ "type": "terminal/resized", "cols": 90, "rows": 20 })).await;
    let resized = next(&mut client).await;
    assert_eq!(resized["action"], json!({ "type": "terminal/resized", "cols": 90, "rows": 20 }));
    assert_eq!(resized["origin"], json!({ "clientId": "two", "clientSeq": 7 }));
    assert_eq!(next(&mut client).await["action"]["data"], "now 90x20\n");
    type_in(&mut client, "title busy").await;
    assert_eq!(next(&mut client).await["action"]["title"], "busy");
    assert_eq!(listed(&mut client).await[0]["title"], "busy");
    // A name a person gave is not taken back by a process.
    client.dispatch(ONE, 2, json!({ "type": "terminal/titleChanged", "title": "  my   own " })).await;
    assert_eq!(next(&mut client).await["action"]["title"], "my own");
    type_in(&mut client, "title busy").await;
    type_in(&mut client, "cd /tmp/x y").await;
    let moved = next(&mut client).await;
    assert_eq!(moved["action"], json!({ "type": "terminal/cwdChanged", "cwd": "file:///tmp/x%20y" }));
    client.dispatch(ONE, 3, json!({ "type": "terminal/cleared" })).await;
    assert_eq!(next(&mut client).await["action"]["type"], "terminal/cleared");
    let cleared = snapshot(&mut client).await;
    assert_eq!((&cleared["content"], &cleared["title"]), (&json!([]), &json!("my own")));
    type_in(&mut client, "throw").await;
    host.log.wait_for("ahp-terminal:/one: not that").await;
    type_in(&mut client, "exit 4").await;
    assert_eq!(next(&mut client).await["action"], json!({ "type": "terminal/exited", "exitCode": 4 }));
    assert_eq!(snapshot(&mut client).await["lifecycle"], json!({ "status": "exited", "exitCode": 4 }));
    type_in(&mut client, "more").await;
    assert_eq!(next(&mut client).await["rejectionReason"], "the terminal has exited");
    let gone = client.request("disposeTerminal", json!({ "channel": ONE })).await;
    assert_eq!(gone, Ok(Value::Null));
    host.log.wait_for("plugin terminals: disposed ahp-terminal:/one").await;
    let error = client.request("disposeTerminal", json!({ "channel": ONE })).await.unwrap_err();
    assert_eq!(
        (&error["code"], &error["message"]),
        (&json!(-32008), &json!("No terminal at ahp-terminal:/one"))
    );
    let root = client.request("subscribe", json!({ "channel": "ahp-root://" })).await.unwrap();
    assert_eq!(root["snapshot"]["state"]["terminals"], json!([]));
}

async fn what_a_terminal_said_last_is_kept(side: Side) {
    let (_host, mut client) = start(side).await;
    open(&mut client, json!({})).await.unwrap();
    snapshot(&mut client).await;
    for typed in ["flood 150000", "flood 149999", "."] {
        type_in(&mut client, typed).await;
        next(&mut client).await;
    }
    let content = snapshot(&mut client).await["content"].clone();
    let kept = content[0]["value"].as_str().unwrap();
    assert_eq!((content.as_array().unwrap().len(), kept.len()), (1, 200_000));
    assert!(kept.ends_with("x.") && kept.starts_with("xx"));
}

async fn a_client_that_does_not_keep_up_is_sent_the_state(side: Side) {
    let (host, mut client) = start(side).await;
    open(&mut client, json!({})).await.unwrap();
    snapshot(&mut client).await;
    let (mut slow, mut elsewhere) = (host.raw(), host.raw());
    for (other, name) in [(&mut slow, "two"), (&mut elsewhere, "three")] {
        other.initialize(name).await;
        snapshot(other).await;
    }
    // It reads nothing until all is said, and nothing of that takes place in what others wait for.
    for typed in [&["flood 150000"; 20][..], &["title busy", "cd /tmp", "ready"]].concat() {
        type_in(&mut client, typed).await;
        next(&mut client).await;
        next(&mut elsewhere).await;
    }
    let mut before = 0;
    let mut last = 0;
    let mut state = Vec::new();
    while state.last().is_none_or(|action: &Value| action["type"] != "terminal/claimed") {
        let seen = next(&mut slow).await;
        let seq = seen["serverSeq"].as_u64().unwrap();
        assert!(seq > last);
        last = seq;
        match state.is_empty() && seen["action"]["type"] != "terminal/cleared" {
            true => before += 1,
            false => state.push(seen["action"].clone()),
        }
    }
    assert!((1..20).contains(&before), "{before}");
    let data = state[1]["data"].as_str().unwrap().to_owned();
    assert!(data.len() == 200_000 && data.ends_with("xready"));
    state[1]["data"] = Value::Null;
    let expected = json!([
        { "type": "terminal/cleared" },
        { "type": "terminal/data", "data": null },
        { "type": "terminal/cwdChanged", "cwd": "file:///tmp" },
        { "type": "terminal/titleChanged", "title": "busy" },
        { "type": "terminal/resized", "cols": 80, "rows": 24 },
        { "type": "terminal/claimed", "claim": { "kind": "client", "clientId": "one" } },
    ]);
    assert_eq!(Value::from(state), expected);
    // It follows again.
    type_in(&mut client, "and on").await;
    for client in [&mut slow, &mut client, &mut elsewhere] {
        assert_eq!(next(client).await["action"]["data"], "and on");
    }
    // One that comes back is owed the state only where something was said meanwhile.
    type_in(&mut client, "exit 3").await;
    let seen = next(&mut elsewhere).await["serverSeq"].clone();
    let mut back = host.raw();
    let params = json!({ "channel": "ahp-root://", "clientId": "one", "lastSeenServerSeq": seen, "subscriptions": [ONE] });
    let answer = back.request("reconnect", params).await.unwrap();
    assert_eq!(answer, json!({ "type": "replay", "actions": [], "missing": [] }));
    assert_eq!(
        next(&mut back).await["action"]["type"],
        "terminal/cleared",
        "some client missed something before"
    );
    let mut actions = vec![next(&mut back).await["action"].clone()];
    while actions.last().is_none_or(|action| action["type"] != "terminal/exited") {
        actions.push(next(&mut back).await["action"].clone());
    }
    assert!(actions[0]["data"].as_str().unwrap().ends_with("xreadyand on"));
    assert_eq!(actions.last(), Some(&json!({ "type": "terminal/exited", "exitCode": 3 })));
}

async fn commands_are_seen_by_their_marks(side: Side) {
    let (_host, mut client) = start(side).await;
    open(&mut client, json!({ "cwd": "file:///pty" })).await.unwrap();
    assert_eq!(snapshot(&mut client).await["isPty"], true);
    for typed in [
        "\u{1b}]133;A\u{7}$ \u{1b}]133;B\u{7}make\r\n",
        "\u{1b}]133;C\u{7}done\r\n\u{1b}]13",
        "3;D;2\u{7}\u{1b}]7;file://box/srv/a%20b\u{7}\u{1b}]2;after\u{7}",
    ] {
        type_in(&mut client, typed).await;
    }
    let mut seen = Vec::new();
    loop {
        let mut action = next(&mut client).await["action"].clone();
        for clock in ["timestamp", "durationMs"] {
            if let Some(at) = action.get_mut(clock) {
                assert!(at.is_i64());
                *at = 0.into();
            }
        }
        let done = action["type"] == "terminal/titleChanged";
        seen.push(action);
        if done {
            break;
        }
    }
    let expected = json!([
        { "type": "terminal/commandDetectionAvailable" },
        { "type": "terminal/data", "data": "$ " },
        { "type": "terminal/data", "data": "make\r\n" },
        { "type": "terminal/commandExecuted", "commandId": "1", "commandLine": "make", "timestamp": 0 },
        { "type": "terminal/data", "data": "done\r\n" },
        { "type": "terminal/commandFinished", "commandId": "1", "exitCode": 2, "durationMs": 0 },
        { "type": "terminal/cwdChanged", "cwd": "file:///srv/a%20b" },
        { "type": "terminal/data", "data": "\u{1b}]2;after\u{7}" },
        { "type": "terminal/titleChanged", "title": "after" },
    ]);
    assert_eq!(Value::from(seen), expected);
    let state = snapshot(&mut client).await;
    assert_eq!(state["supportsCommandDetection"], true);
    let command = &state["content"][1];
    assert_eq!(
        (&command["commandLine"], &command["output"], &command["isComplete"]),
        (&json!("make"), &json!("done\r\n"), &json!(true))
    );
}

async fn who_holds_a_terminal_hands_it_over(side: Side) {
    let (host, mut client) = start(side).await;
    let mut other = host.raw();
    other.initialize("two").await;
    client.request("createSession", json!({ "channel": "runner:/1" })).await.unwrap();
    open(&mut client, json!({})).await.unwrap();
    snapshot(&mut client).await;
    snapshot(&mut other).await;
    let mine = |client: &str| json!({ "type": "terminal/claimed", "claim": { "kind": "client", "clientId": client } });
    other.dispatch(ONE, 1, mine("two")).await;
    let refused = next(&mut other).await;
    assert_eq!(refused["rejectionReason"], "one has claimed this terminal; only it can hand it over");
    let session = json!({ "kind": "session", "session": "runner:/1", "chat": "ahp-chat:/1", "turnId": "t" });
    client.dispatch(ONE, 2, json!({ "type": "terminal/claimed", "claim": session })).await;
    assert_eq!(next(&mut other).await["action"]["claim"], session);
    // A session hands nothing over by itself: whoever may claim takes it.
    other.dispatch(ONE, 3, mine("two")).await;
    assert_eq!(next(&mut client).await["action"]["claim"], session);
    assert_eq!(next(&mut client).await["action"]["claim"]["clientId"], "two");
    // Nor does a client that is gone.
    other.connection.close();
    client.dispatch(ONE, 4, mine("one")).await;
    assert_eq!(next(&mut client).await["action"]["claim"]["clientId"], "one");
    for (claim, why) in [
        (json!({ "kind": "client", "clientId": " " }), "claim.clientId must name a client"),
        (
            json!({ "kind": "session", "session": "runner:/9", "chat": "x:/1" }),
            "No agent for session runner:/9",
        ),
    ] {
        client.dispatch(ONE, 5, json!({ "type": "terminal/claimed", "claim": claim })).await;
        assert_eq!(next(&mut client).await["rejectionReason"], why);
    }
}

async fn what_cannot_be_opened_leaves_nothing_behind(side: Side) {
    let (_host, mut client) = start(side).await;
    for (params, code, why) in [
        (json!({ "channel": "runner:/1" }), -32602, "runner:/1 is not a terminal URI: ahp-terminal:/<id>"),
        (
            json!({ "channel": "ahp-terminal:/" }),
            -32602,
            "ahp-terminal:/ is not a terminal URI: ahp-terminal:/<id>",
        ),
        (json!({ "cwd": "/srv" }), -32602, "cwd must be a file: URI, not /srv"),
        (json!({ "cols": 0 }), -32602, "cols must be an integer between 1 and 4096"),
        (json!({ "rows": 70_000 }), -32602, "rows must be an integer between 1 and 4096"),
        (
            json!({ "claim": { "kind": "client", "clientId": "" } }),
            -32602,
            "claim.clientId must name a client",
        ),
        (
            json!({ "claim": { "kind": "session", "session": "runner:/9", "chat": "x:/1" } }),
            -32001,
            "No agent for session runner:/9",
        ),
        (json!({ "cwd": "file:///nowhere" }), -32603, "the terminal could not be opened: no luck"),
    ] {
        let error = open(&mut client, params).await.unwrap_err();
        assert_eq!((&error["code"], &error["message"]), (&json!(code), &json!(why)));
    }
    let error = open(&mut client, json!({ "claim": { "kind": "robot" } })).await.unwrap_err();
    assert_eq!(error["code"], -32602, "{error}");
    let error = client.request("subscribe", json!({ "channel": ONE })).await.unwrap_err();
    assert_eq!(error["code"], -32008);
    open(&mut client, json!({ "name": "Mine" })).await.unwrap();
    assert_eq!(listed(&mut client).await[0]["title"], "Mine");
    let error = open(&mut client, json!({})).await.unwrap_err();
    assert_eq!(
        (&error["code"], &error["message"]),
        (&json!(-32003), &json!("ahp-terminal:/one already exists"))
    );
    client.dispatch("ahp-terminal:/two", 9, json!({ "type": "terminal/input", "data": "x" })).await;
    assert_eq!(client.next_action().await["rejectionReason"], "No terminal at ahp-terminal:/two");
    client.dispatch(ONE, 9, json!({ "type": "terminal/data", "data": "x" })).await;
    assert_eq!(client.next_action().await["rejectionReason"], "only the host sends terminal/data");
    client.dispatch(ONE, 9, json!({ "type": "chat/draftChanged" })).await;
    assert_eq!(
        client.next_action().await["rejectionReason"],
        "chat/draftChanged does not belong on a terminal"
    );
}

async fn a_backend_opens_terminals_people_watch(side: Side) {
    let (host, mut client) = start(side).await;
    let mut talk = Talk::with(&host, "runner").await;
    let said: Value = serde_json::from_str(&talk.say("build").await).unwrap();
    assert_eq!(said[1], 7);
    assert_eq!(said[2], "/srv 80x24 none build+-l 2\ntypednow 100x30\n");
    let row = listed(&mut client).await[0].clone();
    assert_eq!((&row["resource"], &row["title"]), (&said[0], &json!("Mine")));
    assert_eq!(
        row["claim"],
        json!({ "kind": "session", "session": "runner:/talk", "chat": talk.chat, "turnId": "t1", "toolCallId": "c" })
    );
    let state = client.request("subscribe", json!({ "channel": said[0] })).await.unwrap();
    assert_eq!(state["snapshot"]["state"]["cols"], 100);
    let killed: Value = serde_json::from_str(&talk.say("kill").await).unwrap();
    assert_eq!(killed[1], Value::Null);
    assert!(killed[2].as_str().unwrap().ends_with("SIGTERM\n"), "{killed}");
    let released: Value = serde_json::from_str(&talk.say("release").await).unwrap();
    let line = format!("plugin terminals: disposed {}", released[0].as_str().unwrap());
    host.log.wait_for(&line).await;
    let gone = client.request("subscribe", json!({ "channel": released[0] })).await.unwrap_err();
    assert_eq!(gone["code"], -32008);
}

async fn a_line_after_the_prefix_is_run_in_a_terminal(side: Side) {
    let (host, _client) = start(side).await;
    let mut talk = Talk::with(&host, "runner").await;
    let said = talk.say("!done").await;
    assert_eq!(said, json!(["done", 3, "/srv 80x24 none done 1\n"]).to_string());
    let state = talk.client.request("subscribe", json!({ "channel": "ahp-root://" })).await.unwrap();
    let claim = &state["snapshot"]["state"]["terminals"][0]["claim"];
    assert_eq!((&claim["turnId"], &claim["toolCallId"]), (&json!("t1"), &json!("call")));
    // The prefix alone is a text, and so is one in the middle.
    assert!(talk.say("!  ").await.contains("!  +-l"));
    assert!(talk.say("so !done").await.contains("so !done+-l"));
    let echo = side.host_with_echo().start().await;
    let said = Talk::with(&echo, "echo").await.say("!done").await;
    assert_eq!(said, "error: echo cannot run a command in a turn; use a terminal instead");
}

async fn terminals_end_with_their_session_and_the_host(side: Side) {
    let (host, mut client) = start(side).await;
    let mut talk = Talk::with(&host, "runner").await;
    let said: Value = serde_json::from_str(&talk.say("build").await).unwrap();
    open(&mut client, json!({})).await.unwrap();
    client.request("disposeSession", json!({ "channel": "runner:/talk" })).await.unwrap();
    host.log.wait_for(&format!("plugin terminals: disposed {}", said[0].as_str().unwrap())).await;
    assert!(!host.log.has("disposed ahp-terminal:/one"), "a client's is nobody else's");
    host.host.close().await;
    assert!(host.log.has("plugin terminals: disposed ahp-terminal:/one"));
    assert!(host.log.has("plugin terminals: store closed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_store_none_is_served() {
    let host = crate::side::builder().plugin(ostler_plugin_echo::plugin(), json!({})).start().await;
    let mut client = host.raw();
    assert!(client.initialize("c").await.get("terminalCommandPrefix").is_none());
    let root = client.request("subscribe", json!({ "channel": "ahp-root://" })).await.unwrap();
    assert!(root["snapshot"]["state"].get("terminals").is_none());
    let error = open(&mut client, json!({})).await.unwrap_err();
    assert_eq!(
        (&error["code"], &error["message"]),
        (&json!(-32601), &json!("This host does not serve createTerminal yet"))
    );
    let error = client.request("disposeTerminal", json!({ "channel": "ahp-terminal:/t" })).await.unwrap_err();
    assert_eq!(
        (&error["code"], &error["message"]),
        (&json!(-32601), &json!("This host does not serve disposeTerminal yet"))
    );
    assert_eq!(Talk::with(&host, "echo").await.say("!done").await, "!done", "it is a text like any other");
}
