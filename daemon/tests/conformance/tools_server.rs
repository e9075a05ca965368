//! `start.toolsServer()`: the tools bound to a session, served over MCP on a real listener.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::channel::oneshot;
use ostler_contract::points::{
    Agent, AgentSession, ChatAbilities, Emit, Start, Tool, ToolContext, ToolEffects, ToolSpec, ToolsChanged,
    ToolsServer, ToolsServerOptions,
};
use ostler_contract::{Bodies, Budget, Call, Frozen, JsonObject, Options, PluginHost, Thrown, Value, json};
use ostler_server::{Listener, Server, ToolServers};
use ostler_testkit::{MemoryHost, RawClient};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::side::{Both, Side, Talk, action, object};

const PLUGIN: Both =
    Both { spec: "@conformance/tools-server", native, javascript: "tools-server.mjs", dress: None };

both! { PLUGIN:
    an_endpoint_serves_the_tools_of_its_session,
    what_a_clients_tool_came_to_is_what_the_agent_is_told,
    nothing_is_looked_at_before_the_token,
    a_body_is_one_message,
    a_backend_that_asked_is_told_of_changes,
    a_backend_that_did_not_ask_lists_again,
    an_endpoint_lasts_as_long_as_its_session,
    a_long_response_is_charged_until_it_is_read,
}

/// A backend's running half.
struct Session {
    start: Start,
    turn: Mutex<String>,
    server: Mutex<Option<ToolsServer>>,
    waiting: Mutex<HashMap<String, oneshot::Sender<Value>>>,
    calls: AtomicU64,
}

impl Session {
    fn emit(&self, kind: &str, more: Value) -> Result<(), Thrown> {
        let mut whole = object(more);
        whole.insert("type".into(), kind.into());
        whole.insert("turnId".into(), self.turn.lock().unwrap().as_str().into());
        self.start.emit.call((Emit::Chat, action(Value::Object(whole))?))
    }

    fn end(&self, text: &str) -> Result<(), Thrown> {
        let id = self.turn.lock().unwrap().clone();
        self.emit("chat/responsePart", json!({ "part": { "kind": "markdown", "id": id, "content": text } }))?;
        self.emit("chat/turnComplete", json!({ "duration": 0 }))
    }

    async fn begin(self: Arc<Self>, turn: String, text: String) -> Result<(), Thrown> {
        *self.turn.lock().unwrap() = turn;
        let (word, way) = text.split_once(' ').unwrap_or((&text, ""));
        if word == "hold" {
            return self.emit("chat/activityChanged", json!({ "activity": "holding" }));
        }
        if word == "close" {
            self.server.lock().unwrap().as_ref().unwrap().close.call(())?;
            return self.end("closed");
        }
        let mine = self.clone();
        let options = (!way.is_empty()).then(|| ToolsServerOptions {
            tools_changed: Some(if way == "notify" { ToolsChanged::Notify } else { ToolsChanged::List }),
            run_client: Some(Call::new(move |(name, input): (String, Value)| {
                let session = mine.clone();
                async move { session.run_client(name, input).await }
            })),
        });
        let opened = match &self.start.tools_server {
            Some(open) => open.call((options,)).await?,
            None => None,
        };
        let said = match &opened {
            Some(server) => json!([server.url, server.token]),
            None => json!(if self.start.tools_server.is_some() { "function" } else { "undefined" }),
        };
        *self.server.lock().unwrap() = opened;
        self.end(&said.to_string())
    }

    /// Has the client a tool is of run it, and answers what the client said became of it.
    async fn run_client(&self, name: String, input: Value) -> Result<Value, Thrown> {
        let (answer, wait) = oneshot::channel();
        let call = format!("call-{}", self.calls.fetch_add(1, Ordering::Relaxed));
        self.waiting.lock().unwrap().insert(call.clone(), answer);
        let contributor = json!({ "kind": "client", "clientId": name.split("__").next() });
        let start =
            json!({ "toolCallId": call, "toolName": name, "displayName": name, "contributor": contributor });
        self.emit("chat/toolCallStart", start)?;
        let ready = json!({ "toolCallId": call, "invocationMessage": name, "toolInput": input.to_string(),
            "confirmed": "not-needed" });
        self.emit("chat/toolCallReady", ready)?;
        wait.await.map_err(|_| Thrown::new("nobody answered"))
    }

    fn complete(&self, call: &str, result: Value) -> Result<bool, Thrown> {
        self.emit("chat/toolCallComplete", json!({ "toolCallId": call, "result": result }))?;
        let waiting = self.waiting.lock().unwrap().remove(call).unwrap();
        Ok(waiting.send(result).is_ok())
    }
}

fn tool(name: &str, run: Call<fn(Value, ToolContext) -> Value>) -> Tool {
    Tool { definition: ToolSpec { name: name.into(), ..ToolSpec::default() }, run, ..Tool::default() }
}

fn native(host: PluginHost, _: Options) -> Result<(), Thrown> {
    host.register_tool(Tool {
        definition: ToolSpec {
            name: "double".into(),
            description: Some("Twice as much.".into()),
            input_schema: Some(object(json!({ "type": "object", "required": ["n"] }))),
            ..ToolSpec::default()
        },
        effects: Some(ToolEffects { writes: Some(false), network: Some(true), ..ToolEffects::default() }),
        run: Call::now(|(input, _): (Value, ToolContext)| {
            Ok(input["n"].as_i64().map_or(Value::Null, |n| (n * 2).into()))
        }),
        ..Tool::default()
    })?;
    host.register_tool(tool("fails", Call::now(|_| Err(Thrown::new("it has no hands")))))?;
    let mut located = tool(
        "where",
        Call::new(|(_, at): (Value, ToolContext)| async move {
            Ok(json!({ "session": at.session, "chat": at.chat, "turn": at.turn.call(()).await? }))
        }),
    );
    located.definition.output_schema = Some(object(json!({ "type": "object" })));
    host.register_tool(located)?;
    host.register_agent(Agent {
        provider: "server".into(),
        display_name: "Server".into(),
        chats: Some(ChatAbilities::default()),
        schema: Call::now(|()| Ok(json!({ "type": "object", "properties": {} }))),
        defaults: Call::now(|()| Ok(JsonObject::new())),
        create: Call::now(|(start,): (Frozen<Start>,)| {
            let session = Arc::new(Session {
                start: start.0,
                turn: Mutex::default(),
                server: Mutex::default(),
                waiting: Mutex::default(),
                calls: AtomicU64::default(),
            });
            let completed = session.clone();
            Ok(AgentSession {
                begin: Call::new(move |(turn, text, ..): (String, String, _, _, _)| {
                    session.clone().begin(turn, text)
                }),
                complete_tool_call: Some(Call::now(move |(call, _, result): (String, String, Value)| {
                    completed.complete(&call, result)
                })),
                cancel: Call::now(|_| Ok(())),
                close: Call::now(|_| Ok(())),
                ..AgentSession::default()
            })
        }),
        ..Agent::default()
    })
}

/// A host whose tools endpoints are served on a port of their own.
struct Served {
    host: MemoryHost,
    address: String,
    _stop: watch::Sender<bool>,
}

impl Served {
    async fn start(side: Side) -> Self {
        Self::start_with(side, Bodies::default()).await
    }

    async fn start_with(side: Side, bodies: Bodies) -> Self {
        let host = side.host().start().await;
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.address().to_string();
        let origin = format!("http://{address}");
        let servers = ToolServers::new(move || Some(origin.clone()), "ostler", "1.2.3");
        host.host.sessions.set_tools_server(servers.opener());
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(Server::new(vec![servers.mount(bodies)]).serve(listener, stopped));
        Self { host, address, _stop: stop }
    }

    async fn talk(&self) -> Talk {
        Talk::with(&self.host, "server").await
    }

    /// Has the backend open its endpoint.
    async fn open(&self, talk: &mut Talk, way: &str) -> Endpoint {
        let said = talk.say(format!("open {way}").trim()).await;
        let [url, token]: [String; 2] = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
        let path = url.strip_prefix(&format!("http://{}", self.address)).unwrap().to_owned();
        assert!(path.starts_with("/ahp-mcp/"), "{url}");
        Endpoint { address: self.address.clone(), path, token }
    }
}

/// An endpoint, as an agent behind its backend knows it.
#[derive(Clone, Debug, PartialEq)]
struct Endpoint {
    address: String,
    path: String,
    token: String,
}

impl Endpoint {
    /// A request with these headers; answers status and body.
    async fn exchange(&self, method: &str, headers: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        let whole = format!(
            "{method} {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n{body}",
            self.path,
            self.address,
            body.len()
        );
        stream.write_all(whole.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let read = stream.read_to_string(&mut answer);
        tokio::time::timeout(Duration::from_secs(20), read).await.expect("an answer in time").unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let typed = answer.to_lowercase().contains("\r\ncontent-type: application/json\r\n");
        assert!(typed || status != 200 || method != "POST", "{answer}");
        (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
    }

    async fn with_token(&self, method: &str, body: &str) -> (u16, String) {
        self.exchange(method, &format!("Authorization: Bearer {}\r\n", self.token), body).await
    }

    async fn ask(&self, method: &str, params: Value) -> Value {
        let message = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
        let (status, body) = self.with_token("POST", &message.to_string()).await;
        assert_eq!(status, 200, "{body}");
        let answer: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!(7)));
        answer
    }

    async fn names(&self) -> Vec<String> {
        let listed = self.ask("tools/list", json!({})).await;
        let tools = listed["result"]["tools"].as_array().unwrap();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    async fn call(&self, name: &str, input: Value) -> Value {
        self.ask("tools/call", json!({ "name": name, "arguments": input })).await
    }

    /// Opens the stream of changes.
    async fn stream(&self) -> Stream {
        let mut socket = TcpStream::connect(&self.address).await.unwrap();
        let head = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nAccept: text/event-stream\r\n\r\n",
            self.path, self.address, self.token
        );
        socket.write_all(head.as_bytes()).await.unwrap();
        let mut stream = Stream { socket, seen: String::new() };
        assert!(stream.until("\r\n\r\n").await, "{}", stream.seen);
        assert!(stream.seen.starts_with("HTTP/1.1 200") && stream.seen.contains("text/event-stream"));
        stream
    }
}

/// A stream that is read bit by bit.
struct Stream {
    socket: TcpStream,
    seen: String,
}

impl Stream {
    /// Reads until something was said; `false` where the stream ends before. What came before it is forgotten.
    async fn until(&mut self, what: &str) -> bool {
        loop {
            if let Some(at) = self.seen.find(what) {
                if what != "\r\n\r\n" {
                    self.seen.drain(..at + what.len());
                }
                return true;
            }
            let mut bytes = [0; 1024];
            let read = tokio::time::timeout(Duration::from_secs(20), self.socket.read(&mut bytes));
            match read.await.expect("something in time") {
                Ok(0) | Err(_) => return false,
                Ok(count) => self.seen.push_str(std::str::from_utf8(&bytes[..count]).unwrap()),
            }
            if self.seen.ends_with("0\r\n\r\n") && !self.seen.contains(what) {
                return false;
            }
        }
    }

    async fn changed(&mut self) -> bool {
        self.until(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#).await
    }
}

/// A client that is active in the session, with tools of its own.
async fn active(served: &Served, id: &str, tools: &[&str]) -> RawClient {
    let mut client = served.host.raw();
    client.initialize(id).await;
    client.request("subscribe", json!({ "channel": "server:/talk" })).await.unwrap();
    let tools: Vec<Value> =
        tools.iter().map(|name| json!({ "name": name, "description": "Its own." })).collect();
    let set = json!({ "type": "session/activeClientSet",
        "activeClient": { "clientId": id, "tools": tools, "customizations": [] } });
    client.dispatch("server:/talk", 1, set).await;
    client.actions_until("session/activeClientSet").await;
    client
}

async fn gone(client: &mut RawClient, id: &str) {
    let removed = json!({ "type": "session/activeClientRemoved", "clientId": id });
    client.dispatch("server:/talk", 2, removed).await;
    client.actions_until("session/activeClientRemoved").await;
}

async fn an_endpoint_serves_the_tools_of_its_session(side: Side) {
    let served = Served::start(side).await;
    let mut talk = served.talk().await;
    let endpoint = served.open(&mut talk, "").await;
    let _ada = active(&served, "ada", &["hay", "not a word"]).await;
    let params = json!({ "protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": { "name": "agent", "version": "1" } });
    let initialized = endpoint.ask("initialize", params).await["result"].clone();
    assert_eq!(
        initialized,
        json!({ "protocolVersion": "2025-06-18", "capabilities": { "tools": { "listChanged": false } },
            "serverInfo": { "name": "ostler", "version": "1.2.3" } })
    );
    let listed = endpoint.ask("tools/list", json!({})).await["result"]["tools"].clone();
    assert_eq!(
        listed,
        json!([
            { "name": "double", "description": "Twice as much.", "inputSchema": { "type": "object", "required": ["n"] },
              "annotations": { "readOnlyHint": true, "openWorldHint": true } },
            { "name": "fails", "inputSchema": { "type": "object" } },
            { "name": "where", "inputSchema": { "type": "object" }, "outputSchema": { "type": "object" } },
            { "name": "ada__hay", "description": "Its own.", "inputSchema": { "type": "object" } },
        ]),
        "every registered tool, and what the session's clients brought"
    );
    let text = |text: &str, failed: bool| json!({ "content": [{ "type": "text", "text": text }], "isError": failed });
    assert_eq!(endpoint.call("double", json!({ "n": 21 })).await["result"], text("42", false));
    assert_eq!(endpoint.call("double", json!({})).await["result"], text("", false), "nothing is no null");
    assert_eq!(endpoint.call("fails", json!({})).await["result"], text("it has no hands", true));
    let turn = talk.begin("hold").await;
    talk.client.actions_until("chat/activityChanged").await;
    let here = json!({ "session": "server:/talk", "chat": talk.chat, "turn": turn });
    assert_eq!(endpoint.call("where", json!({})).await["result"]["structuredContent"], here);
    let unasked = endpoint.call("ada__hay", json!({})).await["result"].clone();
    assert_eq!(unasked["isError"], true, "this backend asks no client: {unasked}");
    let none = endpoint.call("none", json!({})).await;
    assert_eq!(none["error"], json!({ "code": -32602, "message": "there is no tool none" }));
    for (method, code) in [("ping", -32601), ("resources/list", -32601), ("tools/call", -32602)] {
        assert_eq!(endpoint.ask(method, json!({})).await["error"]["code"], code, "{method}");
    }
}

async fn what_a_clients_tool_came_to_is_what_the_agent_is_told(side: Side) {
    let served = Served::start(side).await;
    let mut talk = served.talk().await;
    let endpoint = served.open(&mut talk, "list").await;
    let mut ada = active(&served, "ada", &["hay"]).await;
    let chat = talk.chat.clone();
    ada.request("subscribe", json!({ "channel": chat })).await.unwrap();
    talk.begin("hold").await;
    talk.client.actions_until("chat/activityChanged").await;
    for (result, told) in [
        (
            json!({ "success": true, "pastTenseMessage": "Fed", "content": [{ "type": "text", "text": "fed 3" }] }),
            json!({ "content": [{ "type": "text", "text": "fed 3" }], "isError": false }),
        ),
        (
            json!({ "success": false, "pastTenseMessage": "Tried", "error": { "message": "the barn is shut" } }),
            json!({ "content": [{ "type": "text", "text": "the barn is shut" }], "isError": true }),
        ),
    ] {
        let asked = endpoint.clone();
        let call = tokio::spawn(async move { asked.call("ada__hay", json!({ "n": 3 })).await });
        let ready = ada.actions_until("chat/toolCallReady").await.pop().unwrap()["action"].clone();
        assert_eq!(ready["toolInput"], r#"{"n":3}"#);
        let done = json!({ "type": "chat/toolCallComplete", "turnId": ready["turnId"],
            "toolCallId": ready["toolCallId"], "result": result });
        ada.dispatch(&chat, 5, done).await;
        assert_eq!(call.await.unwrap()["result"], told);
    }
}

async fn nothing_is_looked_at_before_the_token(side: Side) {
    let served = Served::start(side).await;
    let mut talk = served.talk().await;
    let endpoint = served.open(&mut talk, "").await;
    let other = {
        let create = json!({ "channel": "server:/other", "provider": "server" });
        talk.client.request("createSession", create).await.unwrap();
        let chat = ostler_protocol::uri::default_chat("server:/other");
        talk.client.request("subscribe", json!({ "channel": chat })).await.unwrap();
        talk.chat = chat;
        served.open(&mut talk, "").await
    };
    assert!(other.path != endpoint.path && other.token != endpoint.token);
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }).to_string();
    for headers in [
        String::new(),
        "Authorization: Bearer wrong\r\n".to_owned(),
        format!("Authorization: Basic {}\r\n", endpoint.token),
        format!("Authorization: Bearer {}\r\n", other.token),
        format!("Authorization: Bearer {}x\r\n", endpoint.token),
    ] {
        for (method, body) in [("POST", list.as_str()), ("POST", "nonsense"), ("GET", ""), ("DELETE", "")] {
            let (status, _) = endpoint.exchange(method, &headers, body).await;
            assert_eq!(status, 401, "{method} {headers}");
        }
    }
    let (status, _) = endpoint.exchange("POST", &format!("X: ?tkn={}\r\n", endpoint.token), &list).await;
    assert_eq!(status, 401);
    // The answer comes without the body that was promised.
    let mut socket = TcpStream::connect(&served.address).await.unwrap();
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Length: 100000\r\n\r\n",
        endpoint.path, served.address
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut stream = Stream { socket, seen: String::new() };
    assert!(stream.until("HTTP/1.1 401").await);
    assert_eq!(endpoint.with_token("POST", &list).await.0, 200);
    for path in ["/ahp-mcp", "/ahp-mcp/", "/ahp-mcp/none", &format!("{}/more", endpoint.path)] {
        let elsewhere = Endpoint { path: path.to_owned(), ..endpoint.clone() };
        assert_eq!(elsewhere.with_token("POST", &list).await.0, 404, "{path}");
    }
}

async fn a_body_is_one_message(side: Side) {
    let served = Served::start(side).await;
    let mut talk = served.talk().await;
    let endpoint = served.open(&mut talk, "").await;
    let one = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    for body in [
        "",
        "nonsense",
        "[]",
        &format!("[{one}]"),
        &format!("{one}{one}"),
        &format!("{one}\n{one}"),
        r#"{"id":1}"#,
    ] {
        assert_eq!(endpoint.with_token("POST", body).await.0, 400, "{body}");
    }
    let noted = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    assert_eq!(endpoint.with_token("POST", noted).await, (202, String::new()));
    let spoken = |revision: &str| {
        format!("Authorization: Bearer {}\r\nMCP-Protocol-Version: {revision}\r\n", endpoint.token)
    };
    assert_eq!(endpoint.exchange("POST", &spoken("2025-06-18"), one).await.0, 200);
    let (status, why) = endpoint.exchange("POST", &spoken("2024-11-05"), one).await;
    assert_eq!(status, 400);
    assert!(why.contains("2025-06-18"), "{why}");
    assert_eq!(endpoint.with_token("DELETE", "").await.0, 405);
}

async fn a_backend_that_asked_is_told_of_changes(side: Side) {
    let served = Served::start(side).await;
    let mut talk = served.talk().await;
    let endpoint = served.open(&mut talk, "notify").await;
    let initialized = endpoint.ask("initialize", json!({})).await;
    assert_eq!(initialized["result"]["capabilities"]["tools"]["listChanged"], true);
    assert_eq!(endpoint.names().await, ["double", "fails", "where"]);
    let mut stream = endpoint.stream().await;
    let mut ada = active(&served, "ada", &["hay"]).await;
    assert!(stream.changed().await);
    assert_eq!(endpoint.names().await, ["double", "fails", "where", "ada__hay"]);
    gone(&mut ada, "ada").await;
    assert!(stream.changed().await);
    // What changed before the stream was opened is told at once, and there is one stream.
    let mut next = endpoint.stream().await;
    assert!(next.changed().await);
    assert!(!stream.changed().await, "the one before has ended");
    assert_eq!(talk.say("close").await, "closed");
    assert!(!next.changed().await, "and this one with the endpoint");
    assert_eq!(endpoint.with_token("GET", "").await.0, 404);
}

async fn a_backend_that_did_not_ask_lists_again(side: Side) {
    for way in ["list", ""] {
        let served = Served::start(side).await;
        let mut talk = served.talk().await;
        let endpoint = served.open(&mut talk, way).await;
        assert_eq!(endpoint.with_token("GET", "").await.0, 405);
        assert_eq!(endpoint.names().await.len(), 3);
        let mut ada = active(&served, "ada", &["hay"]).await;
        assert_eq!(endpoint.names().await.pop().as_deref(), Some("ada__hay"));
        gone(&mut ada, "ada").await;
        assert_eq!(endpoint.names().await.len(), 3);
    }
}

async fn an_endpoint_lasts_as_long_as_its_session(side: Side) {
    let served = Served::start(side).await;
    let mut talk = served.talk().await;
    let endpoint = served.open(&mut talk, "").await;
    assert_eq!(served.open(&mut talk, "list").await, endpoint, "a session has one");
    // Another chat's backend is given the same, and holds it as well.
    let first = talk.chat.clone();
    let open = json!({ "channel": talk.session, "chat": "ahp-chat:/second" });
    talk.client.request("createChat", open).await.unwrap();
    talk.client.request("subscribe", json!({ "channel": "ahp-chat:/second" })).await.unwrap();
    talk.chat = "ahp-chat:/second".into();
    assert_eq!(served.open(&mut talk, "").await, endpoint);
    assert_eq!(talk.say("close").await, "closed");
    assert_eq!(endpoint.names().await.len(), 3);
    talk.chat = first;
    assert_eq!(talk.say("close").await, "closed");
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    assert_eq!(endpoint.with_token("POST", list).await.0, 404, "closed");
    assert_eq!(served.open(&mut talk, "").await, endpoint, "the same for life");
    assert_eq!(endpoint.names().await.len(), 3);
    let session = talk.session.clone();
    talk.client.request("disposeSession", json!({ "channel": session })).await.unwrap();
    assert_eq!(endpoint.with_token("POST", list).await.0, 404, "disposed of");
    let mut again = served.talk().await;
    assert_ne!(
        served.open(&mut again, "").await.path,
        endpoint.path,
        "a later session of that name is another"
    );
}

async fn a_long_response_is_charged_until_it_is_read(side: Side) {
    const KIB: usize = 1024;
    let budget = Budget::new(1024 * KIB);
    let served = Served::start_with(side, Bodies::new(budget.clone(), KIB)).await;
    let mut talk = served.talk().await;
    let endpoint = served.open(&mut talk, "list").await;
    let mut ada = active(&served, "ada", &["hay"]).await;
    let chat = talk.chat.clone();
    ada.request("subscribe", json!({ "channel": chat })).await.unwrap();
    talk.begin("hold").await;
    talk.client.actions_until("chat/activityChanged").await;
    let long = "x".repeat(300 * KIB);
    let call = async |ada: &mut RawClient| {
        let asked = endpoint.clone();
        let call = tokio::spawn(async move { asked.call("ada__hay", json!({})).await });
        let ready = ada.actions_until("chat/toolCallReady").await.pop().unwrap()["action"].clone();
        let result = json!({ "success": true, "pastTenseMessage": "Fed", "content": [{ "type": "text", "text": long }] });
        let done = json!({ "type": "chat/toolCallComplete", "turnId": ready["turnId"],
            "toolCallId": ready["toolCallId"], "result": result });
        ada.dispatch(&chat, 5, done).await;
        call.await.unwrap()
    };
    let other = budget.try_take(600 * KIB).unwrap();
    let refused = call(&mut ada).await;
    let why = refused["error"]["message"].as_str().unwrap();
    assert!(
        why.starts_with("the tool was called, but the host has no memory for the response of 307"),
        "{why}"
    );
    assert_eq!(endpoint.names().await.len(), 4, "short responses pass");
    drop(other);
    assert_eq!(call(&mut ada).await["result"]["content"][0]["text"], long);

    // The list of tools is as long as their descriptions.
    let tools = json!([{ "name": "hay", "description": long }]);
    let set = json!({ "type": "session/activeClientSet",
        "activeClient": { "clientId": "ada", "tools": tools, "customizations": [] } });
    ada.dispatch("server:/talk", 6, set).await;
    ada.actions_until("session/activeClientSet").await;
    let other = budget.try_take(600 * KIB).unwrap();
    let refused = endpoint.ask("tools/list", json!({})).await;
    let why = refused["error"]["message"].as_str().unwrap();
    assert!(why.starts_with("the host has no memory for the response of 307"), "{why}");
    drop(other);
    assert_eq!(endpoint.names().await.len(), 4);
    assert_eq!(budget.used(), 0);
}
