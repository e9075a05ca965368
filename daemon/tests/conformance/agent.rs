//! `registerAgent`: a session is a live handle, both ways.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use ostler_contract::points::{
    Agent, AgentSession, Emit, Offered, OfferedModel, Start, Tool, ToolCallPlace, ToolEffects, ToolSpec,
};
use ostler_contract::{Call, Frozen, Func, Options, PluginHost, Thrown, Value, json};
use ostler_engine::McpServers;
use serde_json::Value::Null;

use crate::side::{Both, Side, Talk, action, lines_of, object};

pub const PLUGIN: Both = Both { spec: "@conformance/agent", native, javascript: "agent.mjs", dress: None };

both! { PLUGIN:
    a_backend_is_listed_with_what_it_offers,
    a_turn_streams_back_and_settings_reach_the_backend,
    a_start_says_where_it_is,
    a_cancelled_turn_is_told_to_its_backend,
    a_backend_calls_the_tools_it_was_handed,
    a_backend_reads_what_clients_publish_and_attach,
    a_token_reaches_the_sessions_of_the_client_that_lends_it,
    a_chosen_option_reaches_the_backend,
    what_a_backend_throws_fails_its_turn_alone,
    an_action_in_the_wrong_place_changes_nothing,
    a_session_that_ends_is_closed_and_let_go_of,
}

struct Session {
    host: PluginHost,
    start: Start,
    waiting: Mutex<HashMap<String, String>>,
}

impl Session {
    fn emit(&self, channel: Emit, what: Value) -> Result<(), Thrown> {
        self.start.emit.call((channel, action(what)?))
    }

    fn say(&self, turn: &str, content: &str) -> Result<(), Thrown> {
        let part = json!({ "kind": "markdown", "id": turn, "content": content });
        self.emit(Emit::Chat, json!({ "type": "chat/responsePart", "turnId": turn, "part": part }))
    }

    fn end(&self, turn: &str) -> Result<(), Thrown> {
        self.emit(Emit::Chat, json!({ "type": "chat/turnComplete", "turnId": turn, "duration": 0 }))
    }

    async fn begin(&self, turn: String, text: String) -> Result<(), Thrown> {
        match text.as_str() {
            "wait" => return Ok(()),
            "throw" => return Err(Thrown::new("it will not")),
            "tool" => {
                let tools = self.start.tools.iter().flatten();
                let double = tools.clone().find(|tool| tool.definition.name == "double").unwrap();
                let place = ToolCallPlace { turn_id: Some(turn.clone()), tool_call_id: Some("c".into()) };
                let answer = double.run.as_ref().unwrap().call((json!({ "n": 21 }), Some(place))).await?;
                self.say(&turn, &format!("{answer} {}", double.effects.unwrap().reads.unwrap()))?;
            }
            "start" => {
                let Start { uri, chat_uri, working_directory, mcp_servers, tools_server, env, .. } =
                    &self.start;
                let said =
                    json!([uri, chat_uri, working_directory, mcp_servers, tools_server.is_some(), env]);
                self.say(&turn, &said.to_string())?;
            }
            "misplaced" => {
                self.emit(Emit::Chat, json!({ "type": "session/titleChanged", "title": "x" }))?;
            }
            "approve" => {
                let call = format!("{turn}-call");
                let options = json!([
                    { "id": "once", "label": "Once", "kind": "approve", "group": 1 },
                    { "id": "never", "label": "Never", "kind": "deny", "group": 2 },
                ]);
                let base = json!({ "turnId": turn, "toolCallId": call });
                let with = |more: Value| {
                    let mut whole = object(base.clone());
                    whole.extend(object(more));
                    Value::Object(whole)
                };
                self.emit(
                    Emit::Chat,
                    with(json!({ "type": "chat/toolCallStart", "toolName": "rm", "displayName": "Remove" })),
                )?;
                self.emit(Emit::Chat, with(json!({
                    "type": "chat/toolCallReady", "invocationMessage": "Removing", "toolInput": "{}", "options": options })))?;
                self.emit(Emit::Session, json!({ "type": "session/inputNeededSet", "request": {
                    "kind": "toolConfirmation", "id": call, "chat": self.start.chat_uri, "turnId": turn,
                    "toolCall": { "status": "pending-confirmation", "toolCallId": call, "toolName": "rm", "displayName": "Remove",
                        "invocationMessage": "Removing", "toolInput": "{}", "options": options } } }))?;
                self.waiting.lock().unwrap().insert(call, turn);
                return Ok(());
            }
            text if text.starts_with("read ") => {
                let read = self.start.read.as_ref().unwrap();
                let said = match read.call((text["read ".len()..].to_owned(),)).await {
                    Ok(content) => {
                        let encoding = serde_json::to_value(content.encoding).unwrap();
                        json!([content.data, encoding, content.content_type])
                    }
                    Err(why) => json!(why.message),
                };
                self.say(&turn, &said.to_string())?;
            }
            text => {
                self.say(&turn, self.start.settings["prefix"].as_str().unwrap())?;
                for word in text.split_inclusive(' ') {
                    tokio::task::yield_now().await;
                    self.emit(
                        Emit::Chat,
                        json!({ "type": "chat/delta", "turnId": turn, "partId": turn, "content": word }),
                    )?;
                }
            }
        }
        self.end(&turn)
    }

    fn confirm(&self, call: &str, approved: bool, option: Option<String>) -> Result<(), Thrown> {
        let turn = self.waiting.lock().unwrap().get(call).cloned().unwrap();
        let result = json!({ "success": approved, "pastTenseMessage": "Removed" });
        self.emit(
            Emit::Chat,
            json!({ "type": "chat/toolCallComplete", "turnId": turn, "toolCallId": call, "result": result }),
        )?;
        self.say(&turn, &format!("{approved} {}", option.as_deref().unwrap_or("plain")))?;
        self.end(&turn)
    }
}

fn native(host: PluginHost, _: Options) -> Result<(), Thrown> {
    host.register_tool(Tool {
        definition: ToolSpec {
            name: "double".into(),
            description: Some("Twice as much.".into()),
            input_schema: Some(object(json!({ "type": "object" }))),
            ..ToolSpec::default()
        },
        effects: Some(ToolEffects { reads: Some(true), ..ToolEffects::default() }),
        run: Call::now(|(input, _): (Value, _)| Ok((input["n"].as_i64().unwrap() * 2).into())),
        ..Tool::default()
    })?;
    let of_agent = host.clone();
    host.register_agent(Agent {
        provider: "parrot".into(),
        display_name: "Parrot".into(),
        description: Some("Says what it hears.".into()),
        schema: Call::now(|()| {
            Ok(json!({ "type": "object", "properties": { "prefix": { "type": "string", "title": "Prefix" } } }))
        }),
        defaults: Call::now(|()| Ok(object(json!({ "prefix": "heard: " })))),
        protected_resources: Some(vec![serde_json::from_value(resource()).unwrap()]),
        probe: Some(Call::now(|()| {
            let model = OfferedModel { id: "m".into(), name: "M".into(), max_context_window: Some(1000), ..OfferedModel::default() };
            Ok(Offered { models: vec![model], ..Offered::default() })
        })),
        create: Call::now(move |(start,): (Frozen<Start>,)| {
            let session = Arc::new(Session { host: of_agent.clone(), start: start.0, waiting: Mutex::default() });
            let (begun, confirmed, cancelled) = (session.clone(), session.clone(), session.clone());
            let (lent, closed) = (session.clone(), session);
            Ok(AgentSession {
                begin: Call::new(move |(turn, text, ..): (String, String, _, _, _)| {
                    let session = begun.clone();
                    async move { session.begin(turn, text).await }
                }),
                confirm: Some(Call::now(move |(call, approved, option): (String, bool, Option<String>)| {
                    confirmed.confirm(&call, approved, option)
                })),
                authenticated: Some(Call::now(move |(resource, token): (String, String)| {
                    lent.host.log(format!("{} {resource} {token}", lent.start.uri))
                })),
                cancel: Call::now(move |(turn,): (String,)| cancelled.host.log(format!("cancel {turn}"))),
                close: Call::now(move |(removing,): (Option<bool>,)| {
                    let how = removing.map_or_else(|| "kept".to_owned(), |removing| removing.to_string());
                    closed.host.log(format!("close {how}"))
                }),
                ..AgentSession::default()
            })
        }),
        ..Agent::default()
    })
}

async fn a_backend_is_listed_with_what_it_offers(side: Side) {
    let host = side.host().start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    let agents = loop {
        let root = client.request("subscribe", json!({ "channel": "ahp-root://" })).await.unwrap();
        let agents = root["snapshot"]["state"]["agents"].clone();
        if agents[0]["models"] != json!([]) || std::time::Instant::now() > end {
            break agents;
        }
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    };
    assert_eq!(agents.as_array().unwrap().len(), 1);
    assert_eq!(agents[0]["provider"], "parrot");
    assert_eq!(agents[0]["displayName"], "Parrot");
    assert_eq!(agents[0]["description"], "Says what it hears.");
    assert_eq!(
        agents[0]["models"][0],
        json!({ "id": "m", "provider": "parrot", "name": "M", "maxContextWindow": 1000 })
    );
    let resolved =
        client.request("resolveSessionConfig", json!({ "provider": "parrot", "config": {} })).await.unwrap();
    assert_eq!(resolved["schema"]["properties"]["prefix"]["title"], "Prefix", "{resolved}");
    assert_eq!(resolved["values"]["prefix"], "heard: ");
}

async fn a_turn_streams_back_and_settings_reach_the_backend(side: Side) {
    let host = side.host().start().await;
    let mut talk = Talk::with(&host, "parrot").await;
    let turn = talk.begin("one two").await;
    let actions = talk.client.actions_until("chat/turnComplete").await;
    let seen: Vec<String> = actions
        .iter()
        .map(|seen| {
            let action = &seen["action"];
            let said = action["content"].as_str().or_else(|| action["part"]["content"].as_str());
            format!("{} {}", action["type"].as_str().unwrap(), said.unwrap_or_default())
        })
        .collect();
    assert_eq!(
        seen,
        [
            "chat/turnStarted ",
            "chat/responsePart heard: ",
            "chat/delta one ",
            "chat/delta two",
            "chat/turnComplete "
        ]
    );
    assert!(actions.iter().all(|seen| seen["action"]["turnId"] == turn.as_str()));
    let config = json!({ "channel": "parrot:/b", "provider": "parrot", "config": { "prefix": "" } });
    talk.client.request("createSession", config).await.unwrap();
    talk.chat = ostler_protocol::uri::default_chat("parrot:/b");
    talk.client.request("subscribe", json!({ "channel": talk.chat })).await.unwrap();
    assert_eq!(talk.say("three").await, "three");
}

async fn a_start_says_where_it_is(side: Side) {
    let host = side.host().options(|options| options.paths = vec!["/srv/work".into()]).start().await;
    let mut talk = Talk::with(&host, "parrot").await;
    let said: Value = serde_json::from_str(&talk.say("start").await).unwrap();
    assert_eq!(
        said,
        json!(["parrot:/talk", talk.chat, "/srv/work", Null, false, { "OSTLER_SESSION": "parrot:/talk" }])
    );
    let servers = json!({
        "files": { "type": "stdio", "command": "mcp-files", "args": ["-r", "."], "env": { "KEY": "k" }, "cwd": "/srv" },
        "notes": { "type": "http", "url": "https://a.example/mcp", "headers": { "x-key": "k" } },
    });
    let held = object(servers.clone());
    let host = side
        .host()
        .options(|options| options.mcp_servers = McpServers::new(move || held.clone()))
        .start()
        .await;
    let said: Value = serde_json::from_str(&Talk::with(&host, "parrot").await.say("start").await).unwrap();
    assert_eq!(said[3], servers);
}

async fn a_cancelled_turn_is_told_to_its_backend(side: Side) {
    let host = side.host().start().await;
    let mut talk = Talk::with(&host, "parrot").await;
    let turn = talk.begin("wait").await;
    talk.client.actions_until("chat/turnStarted").await;
    let chat = talk.chat.clone();
    talk.client
        .dispatch(&chat, 9, json!({ "type": "chat/turnCancelled", "turnId": turn, "duration": 0 }))
        .await;
    talk.client.actions_until("chat/turnCancelled").await;
    host.log.wait_for("plugin agent: cancel t1").await;
    assert_eq!(talk.say("again").await, "heard: again");
}

async fn a_backend_reads_what_clients_publish_and_attach(side: Side) {
    let host = side.host().start().await;
    let mut talk = Talk::with(&host, "parrot").await;
    let mut editor = host.raw();
    editor.initialize("editor").await;
    let editing = tokio::spawn(async move {
        for reply in [
            json!({ "result": { "data": "hay", "encoding": "utf-8", "contentType": "text/plain" } }),
            json!({ "result": { "data": "/w==", "encoding": "base64" } }),
            json!({ "error": { "code": -32009, "message": "not this one" } }),
        ] {
            let asked = editor.next_frame().await.unwrap();
            assert_eq!(
                (&asked["method"], &asked["params"]["uri"]),
                (&json!("resourceRead"), &json!("file:///a"))
            );
            let mut answer = object(json!({ "jsonrpc": "2.0", "id": asked["id"] }));
            answer.extend(object(reply));
            editor.send(&Value::Object(answer).to_string()).await;
        }
    });
    for said in
        [json!(["hay", "utf-8", "text/plain"]), json!(["/w==", "base64", Null]), json!("not this one")]
    {
        let read: Value =
            serde_json::from_str(&talk.say("read vscode-agent-client://editor/file/-/a").await).unwrap();
        assert_eq!(read, said);
    }
    editing.await.unwrap();
    let read: Value = serde_json::from_str(&talk.say("read ostler-attachment:/none").await).unwrap();
    assert_eq!(read, json!("No attachment at ostler-attachment:/none"));
}

fn resource() -> Value {
    json!({ "resource": "https://seed.example", "resource_name": "Seed", "required": false })
}

async fn a_token_reaches_the_sessions_of_the_client_that_lends_it(side: Side) {
    let host = side.host().start().await;
    let mut clients = Vec::new();
    for name in ["ada", "bob"] {
        let mut client = host.raw();
        client.initialize(name).await;
        let session = json!({ "channel": format!("parrot:/{name}"), "provider": "parrot" });
        client.request("createSession", session).await.unwrap();
        clients.push(client);
    }
    for (client, token) in clients.iter_mut().zip(["a-token", "b-token"]) {
        let lent = json!({ "resource": "https://seed.example", "token": token });
        client.request("authenticate", lent).await.unwrap();
        host.log.wait_for(token).await;
    }
    let told: Vec<String> = host.log.all().into_iter().filter(|line| line.contains("-token")).collect();
    assert_eq!(
        told,
        [
            "plugin agent: parrot:/ada https://seed.example a-token",
            "plugin agent: parrot:/bob https://seed.example b-token"
        ]
    );
}

async fn a_backend_calls_the_tools_it_was_handed(side: Side) {
    let host = side.host().start().await;
    assert_eq!(Talk::with(&host, "parrot").await.say("tool").await, "42 true");
}

async fn a_chosen_option_reaches_the_backend(side: Side) {
    let host = side.host().start().await;
    let mut talk = Talk::with(&host, "parrot").await;
    let session = talk.session.clone();
    talk.client.request("subscribe", json!({ "channel": session })).await.unwrap();
    for (chosen, approved, said) in [
        (json!({ "selectedOptionId": "once" }), true, "true once"),
        (json!({}), true, "true plain"),
        (json!({ "selectedOptionId": "never" }), false, "false never"),
        (json!({}), false, "false plain"),
    ] {
        let turn = talk.begin("approve").await;
        let seen = talk.client.actions_until("session/inputNeededSet").await;
        let ready = seen.iter().find(|seen| seen["action"]["type"] == "chat/toolCallReady").unwrap();
        assert_eq!(ready["action"]["options"][1]["kind"], "deny");
        assert_eq!(seen.last().unwrap()["action"]["request"]["toolCall"]["options"][0]["id"], "once");
        let mut confirmed = object(json!({ "type": "chat/toolCallConfirmed", "turnId": turn,
            "toolCallId": format!("{turn}-call"), "approved": approved }));
        confirmed.extend(object(chosen));
        let chat = talk.chat.clone();
        talk.client.dispatch(&chat, 90, confirmed.into()).await;
        let rest = talk.client.actions_until("chat/turnComplete").await;
        let part = rest.iter().find(|seen| seen["action"]["type"] == "chat/responsePart").unwrap();
        assert_eq!(part["action"]["part"]["content"], said);
    }
}

async fn what_a_backend_throws_fails_its_turn_alone(side: Side) {
    let host = side.host().start().await;
    let mut talk = Talk::with(&host, "parrot").await;
    assert_eq!(talk.say("throw").await, "error: it will not");
    host.log.wait_for("backend parrot failed: it will not").await;
    assert_eq!(talk.say("more").await, "heard: more");
}

async fn an_action_in_the_wrong_place_changes_nothing(side: Side) {
    let host = side.host().start().await;
    let mut talk = Talk::with(&host, "parrot").await;
    assert_eq!(talk.say("misplaced").await, "");
    host.log.wait_for("session/titleChanged").await;
    let listed = talk.client.request("listSessions", json!({})).await.unwrap();
    assert_ne!(listed["items"][0]["title"], "x");
}

async fn a_session_that_ends_is_closed_and_let_go_of(side: Side) {
    let host = side.host().start().await;
    let mut talk = Talk::with(&host, "parrot").await;
    talk.say("hello").await;
    let session = talk.session.clone();
    talk.client.request("disposeSession", json!({ "channel": session })).await.unwrap();
    host.log.wait_for("plugin agent: close true").await;

    let held = Arc::new(());
    let agent = host.host.core.agent("parrot").unwrap();
    let session = agent.create.unbounded((Frozen(start(&held)),)).await.unwrap();
    session.begin.unbounded(("t".into(), "wait".into(), None, None, None)).await.unwrap();
    assert!(Arc::strong_count(&held) > 1, "the backend holds what it was handed");
    session.close.unbounded((None,)).await.unwrap();
    assert_eq!(lines_of(&host.log, "agent").last().unwrap(), "close kept");
    drop(session);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while Arc::strong_count(&held) > 1 {
        assert!(std::time::Instant::now() < end, "what the backend was handed is never let go of");
        tokio::task::yield_now().await;
    }
}

/// A start whose handles hold this.
fn start(held: &Arc<()>) -> Start {
    let (emits, records) = (held.clone(), held.clone());
    Start {
        uri: "parrot:/1".into(),
        chat_uri: "ahp-chat:/1".into(),
        chat_id: None,
        settings: object(json!({ "prefix": "" })),
        chosen_settings: Default::default(),
        working_directory: None,
        additional: None,
        tools: None,
        mcp_servers: None,
        client_plugins: None,
        instructions: None,
        client_tool_timeout_ms: 0,
        emit: Func::new(move |_| {
            let _held = &emits;
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
        on_turn_recorded: Func::new(move |_| {
            let _held = &records;
            Ok(())
        }),
        credentials: None,
    }
}
