//! Authority ends when it ends: what a browser, a program and an endpoint hold of a daemon, after the token, the sign-in or
//! the user that let them in is gone. The table of all kinds is `crates/engine/tests/people/authority.rs`.

use std::time::Duration;

use crate::support::{Client, Daemon, Folder, LIMIT};
use crate::tools_endpoint;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::HeaderValue;

const TOKEN: &str = "the-hosts-own";
const ADA: &str = "adas-own-token";

/// The code of a connection whose credential has ended.
const SIGNED_OUT: u16 = 1008;

/// A way in which ada loses a credential.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Change {
    TokenReplaced,
    Removed,
    SignedOut,
}

/// What ada's credential opened.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Opened {
    /// A connection of a page that signed in.
    PageConnection,
    /// An event stream of that page.
    PageStream,
    /// A connection with the personal token, which the host takes for its user.
    TokenConnection,
    /// An event stream with the personal token.
    TokenStream,
}

const OPENED: [Opened; 4] =
    [Opened::PageConnection, Opened::PageStream, Opened::TokenConnection, Opened::TokenStream];

fn ends(opened: Opened, change: Change) -> bool {
    match change {
        Change::TokenReplaced | Change::Removed => true,
        Change::SignedOut => matches!(opened, Opened::PageConnection | Opened::PageStream),
    }
}

fn users() -> Value {
    let hash = ostler_engine::users::hash_of;
    json!({ "trustToken": true, "users": [{ "id": "ada", "roles": ["member"], "token": hash(ADA) }] })
}

fn folder() -> Folder {
    let grants = ["bot:get", "bot:chat", "session:read", "session:create", "session:write"];
    let folder = Folder::new(json!({}));
    let config = json!({
        "port": 0, "connectionToken": TOKEN, "users": "users.json", "plugins": [
            { "name": "@ostler/echo" },
            { "name": "@ostler/console" },
            { "name": "@ostler/bot", "options": { "root": folder.path().join("bot-folders") } },
            { "name": "@ostler/webhook", "grants": grants },
        ]
    });
    folder.write("config.json", &config.to_string());
    folder.write("users.json", &users().to_string());
    folder.write("vault.json", r#"{ "host:in": "right" }"#);
    folder.write(
        "bots/desk.md",
        "---\nid: desk\nname: Desk\nharness: echo\nanswers: true\nowner: user:ada\n---\n",
    );
    folder.write("webhooks/desk.md", "---\nid: desk\nbot: bot://desk\nsecret: host:in\nreply: sync\n---\n");
    folder
}

fn request(daemon: &Daemon, head: &str, headers: &str, body: &str) -> String {
    let (address, length) = (daemon.address(), body.len());
    format!(
        "{head} HTTP/1.1\r\nHost: {address}\r\nOrigin: http://{address}\r\nContent-Type: application/json\r\n\
         {headers}Content-Length: {length}\r\n\r\n{body}"
    )
}

/// Sends a request on a connection of its own; the head and the body of the answer.
async fn ask(daemon: &Daemon, head: &str, headers: &str, body: &str) -> (u16, String) {
    let headers = format!("Connection: close\r\n{headers}");
    let answer = daemon.exchange(request(daemon, head, &headers, body).as_bytes()).await;
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

/// Signs a page in; its cookie.
async fn sign_in(daemon: &Daemon) -> String {
    let (code, answer) = ask(daemon, "POST /api/sign-in", "", &json!({ "token": ADA }).to_string()).await;
    assert_eq!(code, 200, "{answer}");
    let set = answer
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("set-cookie: ").map(str::to_owned));
    set.unwrap().split(';').next().unwrap().to_owned()
}

async fn connection(daemon: &Daemon, header: (&'static str, &str)) -> Client {
    let mut request = format!("{}/", daemon.url).into_client_request().unwrap();
    let origin = format!("http://{}", daemon.address());
    for (name, value) in [header, ("origin", &origin)] {
        request.headers_mut().insert(name, HeaderValue::from_str(value).unwrap());
    }
    let (socket, _) = tokio_tungstenite::connect_async(request).await.unwrap();
    let mut client = Client::of(socket);
    client.initialize("ada").await;
    client.request("listSessions", json!({})).await.unwrap();
    client
}

/// An event stream of the sessions, past its first event.
async fn stream(daemon: &Daemon, header: &str) -> TcpStream {
    let mut stream = TcpStream::connect(daemon.address()).await.unwrap();
    let headers = format!("Connection: close\r\nAccept: text/event-stream\r\n{header}\r\n");
    stream.write_all(request(daemon, "GET /api/sessions", &headers, "").as_bytes()).await.unwrap();
    until(&mut stream, "event: ready").await;
    stream
}

/// Reads until a text arrives; false if the stream ends first.
async fn until(stream: &mut TcpStream, text: &str) -> bool {
    let (mut seen, mut buffer) = (String::new(), [0; 4096]);
    let read = async {
        while !seen.contains(text) {
            match stream.read(&mut buffer).await.unwrap_or_default() {
                0 => return false,
                read => seen.push_str(&String::from_utf8_lossy(&buffer[..read])),
            }
        }
        true
    };
    tokio::time::timeout(LIMIT, read).await.expect("the stream ends or goes on")
}

async fn change(daemon: &Daemon, change: Change, cookie: &str) {
    let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
    let id = json!({ "id": "ada" }).to_string();
    let (code, answer) = match change {
        Change::TokenReplaced => ask(daemon, "POST /api/user/token", &bearer, &id).await,
        Change::Removed => ask(daemon, "POST /api/user/rm", &bearer, &id).await,
        Change::SignedOut => ask(daemon, "POST /api/sign-out", &format!("Cookie: {cookie}\r\n"), "{}").await,
    };
    assert_eq!(code, 200, "{answer}");
}

#[tokio::test]
async fn what_a_credential_opened_ends_with_it() {
    for made in [Change::TokenReplaced, Change::Removed, Change::SignedOut] {
        let folder = folder();
        let daemon = folder.start();
        let cookie = sign_in(&daemon).await;
        let bearer = format!("Bearer {ADA}");
        let mut page = connection(&daemon, ("cookie", &cookie)).await;
        let mut program = connection(&daemon, ("authorization", &bearer)).await;
        let mut page_stream = stream(&daemon, &format!("Cookie: {cookie}")).await;
        let mut program_stream = stream(&daemon, &format!("Authorization: {bearer}")).await;
        change(&daemon, made, &cookie).await;
        for opened in OPENED {
            let ended = match opened {
                Opened::PageConnection => is_closed(&mut page).await,
                Opened::TokenConnection => is_closed(&mut program).await,
                // A heartbeat comes every few seconds.
                Opened::PageStream => !until(&mut page_stream, "heartbeat").await,
                Opened::TokenStream => !until(&mut program_stream, "heartbeat").await,
            };
            assert_eq!(ended, ends(opened, made), "{opened:?} after {made:?}");
        }
    }
}

/// Whether the host closed a connection because its credential has ended.
async fn is_closed(client: &mut Client) -> bool {
    if let Some(answer) = client.try_request("listSessions", json!({})).await {
        assert!(answer.is_ok(), "{answer:?}");
        return false;
    }
    true
}

#[tokio::test]
async fn a_connection_is_told_why_it_ends() {
    let folder = folder();
    let daemon = folder.start();
    let mut program = connection(&daemon, ("authorization", &format!("Bearer {ADA}"))).await;
    change(&daemon, Change::Removed, "").await;
    let (code, why) = tokio::time::timeout(LIMIT, program.closed()).await.unwrap();
    assert_eq!(
        (code, why.as_str()),
        (SIGNED_OUT, "the token or the sign-in of this connection is no longer valid")
    );
}

#[tokio::test]
async fn a_bot_answers_no_longer_than_its_owner_may() {
    let folder = folder();
    let daemon = folder.start();
    let call = async |thread: &str| {
        let body = json!({ "thread": thread, "text": "Hello" }).to_string();
        daemon.post("/plugins/webhook/desk", Some("right"), &body).await
    };
    assert_eq!(call("known").await.0, 200);
    change(&daemon, Change::Removed, "").await;
    for thread in ["known", "new"] {
        let (code, answer) = call(thread).await;
        assert_eq!(code, 409, "{answer}");
        assert!(
            answer.contains("Desk answers no more: its owner user:ada may not session:create here"),
            "{answer}"
        );
    }
}

/// Both the call whose turn runs and the one that waits for it were accepted before.
#[tokio::test]
async fn calls_that_a_bot_has_accepted_end_with_its_owner() {
    let folder = folder();
    let daemon = folder.start();
    let call = async |text: &str| {
        let body = json!({ "thread": "one", "text": text }).to_string();
        daemon.post("/plugins/webhook/desk", Some("right"), &body).await
    };
    let mut client = Client::connect(&format!("{}/?tkn={TOKEN}", daemon.url)).await;
    client.initialize("watcher").await;
    let rest = async {
        let chat = loop {
            let listed = client.request("listSessions", json!({})).await.unwrap();
            if let Some(session) = listed["items"][0]["resource"].as_str() {
                break ostler_protocol::uri::default_chat(session);
            }
            tokio::task::yield_now().await;
        };
        // One thread takes its calls in order: the echo of the first one says nothing, and the second one waits for it.
        while client.subscribe(&chat).await["activeTurn"].is_null() {
            tokio::task::yield_now().await;
        }
        let removed = async {
            while client.subscribe(&chat).await["queuedMessages"][0].is_null() {
                tokio::task::yield_now().await;
            }
            change(&daemon, Change::Removed, "").await;
        };
        tokio::join!(call("/say second"), removed).0
    };
    let (first, second) = tokio::join!(call("/hang"), rest);
    for (code, answer) in [first, second] {
        assert!(answer.contains("may not session:create here"), "{code} {answer}");
    }
}

/// The endpoint stays as it is for the agent, which may hold its address for as long as the session lives.
#[tokio::test]
async fn the_tools_endpoint_calls_nothing_for_an_owner_who_is_removed() {
    let folder = Folder::new(json!({}));
    let config = json!({
        "port": 0, "http": true, "connectionToken": TOKEN, "users": "users.json",
        "plugins": [{ "name": "./agent.mjs" }],
    });
    folder.write("config.json", &config.to_string());
    folder.write("users.json", &users().to_string());
    folder.write("agent.mjs", tools_endpoint::AGENT);
    let daemon = folder.start();
    let connected = async |name: &str, token: &str| {
        let mut client = Client::connect(&format!("{}/?tkn={token}", daemon.url)).await;
        client.initialize(name).await;
        client
    };
    let mut ada = connected("ada", ADA).await;
    let told = tools_endpoint::said(&mut ada, "agent:/1").await;
    let (url, token) = (told["server"][0].as_str().unwrap(), told["server"][1].as_str().unwrap());
    // A tool of another user's client, which would run there.
    let mut root = connected("root", TOKEN).await;
    root.subscribe("agent:/1").await;
    let tool = json!({ "name": "weigh", "description": "Weighs.", "inputSchema": { "type": "object" } });
    let present = json!({ "type": "session/activeClientSet",
        "activeClient": { "clientId": "root", "customizations": [], "tools": [tool] } });
    root.dispatch("agent:/1", 1, present).await;
    root.actions_until("session/activeClientSet").await;
    let ask = async |method: &str, params: Value| {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        let (code, answer) = tools_endpoint::ask(url, token, "POST", &body).await;
        assert_eq!(code, 200, "{answer}");
        answer["result"].clone()
    };
    let names = async || {
        let listed = ask("tools/list", json!({})).await;
        let tools = listed["tools"].as_array().unwrap().iter();
        tools.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let listed = names().await;
    let weigh = listed.iter().find(|name| name.ends_with("weigh")).unwrap_or_else(|| panic!("{listed:?}"));
    let shout = json!({ "name": "shout", "arguments": { "text": "hay" } });
    assert!(ask("tools/call", shout.clone()).await.to_string().contains("HAY"));
    change(&daemon, Change::Removed, "").await;
    assert_eq!(names().await, listed);
    for call in [shout, json!({ "name": weigh, "arguments": {} })] {
        let answer = ask("tools/call", call).await;
        assert_eq!(answer["isError"], true, "{answer}");
        assert!(answer.to_string().contains("user:ada may not session:create here"), "{answer}");
    }
}

/// A caller that is not known has little memory for what it sends.
#[tokio::test]
async fn a_sign_in_sends_little() {
    let folder = folder();
    let daemon = folder.start();
    let long = json!({ "token": "x".repeat(5000) }).to_string();
    let (code, answer) = ask(&daemon, "POST /api/sign-in", "", &long).await;
    assert_eq!(code, 413, "{answer}");
    let short = json!({ "token": "x".repeat(3000) }).to_string();
    assert_eq!(ask(&daemon, "POST /api/sign-in", "", &short).await.0, 401);
    // Who is known may send more.
    let add = json!({ "id": "ben", "roles": ["x".repeat(5000)] }).to_string();
    let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
    assert_ne!(ask(&daemon, "POST /api/user/add", &bearer, &add).await.0, 413);
    tokio::time::timeout(Duration::from_secs(60), ask(&daemon, "GET /api/status", &bearer, ""))
        .await
        .unwrap();
}
