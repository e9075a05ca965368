//! The tools endpoint of a real daemon: on its own port, asked by an agent while its backend is still being made.

use crate::support::{Client, Folder, exchange};
use serde_json::{Value, json};

/// A backend that has its agent list the tools before it answers, and says where they are.
pub const AGENT: &str = "
export const name = 'agent';
export function apply(host) {
  host.registerTool({ definition: { name: 'shout' }, run: ({ text }) => text.toUpperCase() });
  host.registerAgent({
    provider: 'agent', displayName: 'Agent', chats: {},
    schema: () => ({ type: 'object', properties: {} }), defaults: () => ({}),
    async create(start) {
      const server = await start.toolsServer({ toolsChanged: 'notify' });
      const ask = async (method, params) => {
        const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method, params });
        const headers = { authorization: `Bearer ${server.token}`, 'content-type': 'application/json' };
        return (await (await fetch(server.url, { method: 'POST', headers, body })).json()).result;
      };
      const listed = server && (await ask('tools/list')).tools.map(({ name }) => name);
      return {
        begin(turnId, text) {
          const said = JSON.stringify({ server: server && [server.url, server.token], listed });
          start.emit('chat', { type: 'chat/responsePart', turnId, part: { kind: 'markdown', id: turnId, content: said } });
          start.emit('chat', { type: 'chat/turnComplete', turnId, duration: 0 });
        },
        cancel() {},
        close() {},
      };
    },
  });
}
";

fn folder() -> Folder {
    let folder = Folder::new(json!({ "plugins": [{ "name": "./agent.mjs" }] }));
    folder.write("agent.mjs", AGENT);
    folder
}

/// What the backend says of its endpoint.
pub async fn said(client: &mut Client, session: &str) -> Value {
    client.request("createSession", json!({ "channel": session, "provider": "agent" })).await.unwrap();
    let chat = ostler_protocol::uri::default_chat(session);
    client.subscribe(&chat).await;
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "where?" } });
    client.dispatch(&chat, 1, turn).await;
    let seen = client.actions_until("chat/turnComplete").await;
    let part = seen.iter().find(|seen| seen["action"]["type"] == "chat/responsePart").unwrap();
    serde_json::from_str(part["action"]["part"]["content"].as_str().unwrap()).unwrap()
}

/// Asks an endpoint; answers status and body.
pub async fn ask(url: &str, token: &str, method: &str, body: &str) -> (u16, Value) {
    ask_from(url, token, method, body, "").await
}

/// The same with more headers (`Name: value\r\n`).
async fn ask_from(url: &str, token: &str, method: &str, body: &str, more: &str) -> (u16, Value) {
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let request = format!(
        "{method} /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n{more}\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = exchange(address, request.as_bytes()).await;
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    (status, serde_json::from_str(body).unwrap_or_default())
}

#[tokio::test]
async fn an_agent_calls_tools_on_the_daemons_own_port() {
    let folder = folder();
    let daemon = folder.start();
    let mut client = daemon.initialized("c").await;
    let told = said(&mut client, "agent:/1").await;
    assert_eq!(told["listed"], json!(["createChat", "shout"]), "listed while the backend was being made");
    let (url, token) = (told["server"][0].as_str().unwrap(), told["server"][1].as_str().unwrap());
    assert!(url.starts_with(&format!("http://{}/ahp-mcp/", daemon.address())), "{url}");
    let call = |name: &str, input: Value| {
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": name, "arguments": input } })
            .to_string()
    };
    let (status, answer) = ask(url, token, "POST", &call("shout", json!({ "text": "hay" }))).await;
    assert_eq!((status, &answer["result"]["content"][0]["text"]), (200, &json!("HAY")));
    let input = json!({ "prompt": "Go on.", "title": "Beside" });
    let (_, answer) = ask(url, token, "POST", &call("createChat", input)).await;
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("Chat created (agent-host-session://agent/1?chat="), "{answer}");
    let session = client.subscribe("agent:/1").await;
    assert_eq!(session["chats"][1]["title"], "Beside");
    assert_eq!(ask(url, "wrong", "POST", "nonsense").await.0, 401);
    let other = said(&mut client, "agent:/2").await;
    assert_eq!(
        ask(url, other["server"][1].as_str().unwrap(), "POST", "{}").await.0,
        401,
        "a token names one path"
    );
    assert_eq!(ask(url, token, "POST", "[]").await.0, 400);
    for (origin, expected) in [
        ("http://evil.example", 403),
        ("null", 403),
        ("chrome-extension://abc", 403),
        ("http://localhost:3000", 200),
        ("vscode-file://vscode-app", 200),
    ] {
        let body = call("shout", json!({ "text": "hay" }));
        let (status, _) = ask_from(url, token, "POST", &body, &format!("Origin: {origin}\r\n")).await;
        assert_eq!(status, expected, "{origin}");
    }
    client.request("disposeSession", json!({ "channel": "agent:/1" })).await.unwrap();
    assert_eq!(ask(url, token, "POST", &call("shout", json!({}))).await.0, 404);
    assert!(!folder.read("log").contains(token), "no token in the log");
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
fn a_daemon_over_stdio_opens_none() {
    let folder = folder();
    let mut daemon = folder.over_stdio();
    daemon.initialize("1.0.0");
    let chat = ostler_protocol::uri::default_chat("agent:/1");
    for message in [
        json!({ "id": 2, "method": "createSession", "params": { "channel": "agent:/1", "provider": "agent" } }),
        json!({ "id": 3, "method": "subscribe", "params": { "channel": chat } }),
        json!({ "method": "dispatchAction", "params": { "channel": chat, "clientSeq": 1,
            "action": { "type": "chat/turnStarted", "turnId": "t", "message": { "text": "where?" } } } }),
    ] {
        daemon.send(message);
    }
    let part = std::iter::from_fn(|| daemon.next())
        .find(|frame| frame["params"]["action"]["type"] == "chat/responsePart")
        .unwrap();
    assert_eq!(part["params"]["action"]["part"]["content"], "{}", "undefined where none can be opened");
    assert_eq!(daemon.end().code, Some(0));
}
