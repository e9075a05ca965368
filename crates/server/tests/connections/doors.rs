//! The doors from outside, over real sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use ostler_contract::http::{self, Body, Request, Response, StatusCode};
use ostler_contract::{Call, Plugin, Thrown, Value, json};
use ostler_server::{HostNames, Listener, Server, Token, plugin_routes, serve_stdio};
use ostler_testkit::MemoryHost;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

/// A plugin whose route does what its path says.
fn routes() -> Plugin {
    Plugin::new("@test/routes", |host, _| {
        Box::pin(async move {
            let own = host.clone();
            host.register_route(Call::new(move |(request,): (Request,)| {
                let own = own.clone();
                async move {
                    let path = request.uri().path().to_owned();
                    if path.ends_with("/throw") {
                        return Err(Thrown::new("the reason"));
                    }
                    if path.ends_with("/reads") {
                        own.log("it reads".to_owned())?;
                    }
                    if path.ends_with("/unread") {
                        return Ok(http::message(StatusCode::UNAUTHORIZED, "no"));
                    }
                    let method = request.method().to_string();
                    match request.into_body().read(1024).await {
                        Ok(body) => {
                            let text = String::from_utf8_lossy(&body).into_owned();
                            Ok(http::json(
                                StatusCode::OK,
                                &json!({ "path": path, "method": method, "body": text }),
                            ))
                        }
                        Err(error) => Ok(http::message(StatusCode::BAD_REQUEST, error)),
                    }
                }
            }))
        })
    })
}

struct Running {
    host: MemoryHost,
    address: SocketAddr,
    stop: watch::Sender<bool>,
}

async fn start(token: Option<&str>) -> Running {
    let host = MemoryHost::builder()
        .plugin(ostler_plugin_echo::plugin(), json!({}))
        .plugin(routes(), json!({}))
        .options(|options| options.delta_window_ms = 0)
        .start()
        .await;
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.address();
    let names = HostNames::of(address);
    let mount = plugin_routes(
        host.host.core.registry().unwrap(),
        names.clone(),
        host.host.core.log.clone(),
        host.host.core.bodies.clone(),
    );
    let token = token.map(|token| Token::new(token.to_owned()));
    let server = Server::new(vec![mount]).with_protocol(host.host.clone(), token, names);
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(server.serve(listener, stopped));
    Running { host, address, stop }
}

impl Running {
    /// Sends a request as it is; answers the status and the body.
    async fn send(&self, request: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        answer(&mut stream).await
    }

    async fn get(&self, path: &str) -> (u16, String) {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address))
            .await
    }

    async fn connect(&self, query: &str) -> tokio_tungstenite::WebSocketStream<TcpStream> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (socket, _) =
            tokio_tungstenite::client_async(format!("ws://{}/{query}", self.address), stream).await.unwrap();
        socket
    }
}

async fn answer(stream: &mut TcpStream) -> (u16, String) {
    let mut bytes = Vec::new();
    tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut bytes)).await.unwrap().unwrap();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let status = text.split_whitespace().nth(1).unwrap_or("0").parse().unwrap_or(0);
    let body = text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
    (status, body)
}

#[tokio::test]
async fn a_route_is_reached_by_whole_segments_and_guarded_by_its_host() {
    let running = start(None).await;
    let (status, body) = running.get("/plugins/routes/a/b?x=1").await;
    assert_eq!(status, 200);
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["path"], "/plugins/routes/a/b");
    assert_eq!(running.get("/plugins/routes").await.0, 200);
    for path in ["/plugins/routesy/a", "/plugins/", "/plugins", "/plugins/none/a"] {
        assert_eq!(
            running.get(path).await,
            (404, format!(r#"{{"message":"No plugin route at {path}"}}"#)),
            "{path}"
        );
    }
    for path in ["/plugins/routes/%zz", "/plugins/routes/%2", "/plugins/routes/%ff%fe"] {
        assert_eq!(
            running.get(path).await,
            (400, r#"{"message":"The request path or Host is not valid"}"#.to_owned()),
            "{path}"
        );
    }
    let foreign = "GET /plugins/routes/ HTTP/1.1\r\nHost: evil.org\r\nConnection: close\r\n\r\n";
    assert_eq!(
        running.send(foreign).await,
        (403, r#"{"message":"This route does not answer to evil.org"}"#.to_owned())
    );
    for none in ["GET /plugins/routes/ HTTP/1.0\r\n\r\n", "GET /plugins/routes/ HTTP/1.0\r\nHost:\r\n\r\n"] {
        assert_eq!(
            running.send(none).await,
            (403, r#"{"message":"This route does not answer to a request with no Host"}"#.to_owned())
        );
    }
    for (path, second) in [
        ("/plugins/routes/", "evil.org".to_owned()),
        ("/plugins/routes/", running.address.to_string()),
        ("/", String::new()),
    ] {
        let first = running.address;
        let two =
            format!("GET {path} HTTP/1.1\r\nHost: {first}\r\nHost: {second}\r\nConnection: close\r\n\r\n");
        assert_eq!(
            running.send(&two).await,
            (400, r#"{"message":"The request path or Host is not valid"}"#.to_owned()),
            "{path} {second}"
        );
    }
}

#[tokio::test]
async fn a_route_that_throws_costs_one_answer() {
    let running = start(None).await;
    let (status, body) = running.get("/plugins/routes/throw").await;
    assert_eq!(status, 500);
    assert_eq!(
        body,
        r#"{"message":"The route plugin routes registered failed; its reason is in the daemon log"}"#
    );
    assert!(running.host.log.has("plugin routes failed at /plugins/routes/throw: the reason"));
    assert_eq!(running.get("/plugins/routes/again").await.0, 200);
}

#[tokio::test]
async fn a_body_too_long_or_cut_short_is_said_to_be() {
    let running = start(None).await;
    let head = |path: &str, length: usize| {
        format!(
            "POST /plugins/routes/{path} HTTP/1.1\r\nHost: {}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n",
            running.address
        )
    };
    let (status, body) = running.send(&format!("{}{}", head("x", 2000), "a".repeat(2000))).await;
    assert_eq!((status, body.as_str()), (400, r#"{"message":"the body is larger than 1024 bytes"}"#));
    // Refused before a byte of the body has come.
    let (status, _) = running.send(&head("unread", 5_000_000)).await;
    assert_eq!(status, 401);
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    stream.write_all(format!("{}abc", head("x", 10)).as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let (status, _) = answer(&mut stream).await;
    assert_eq!(status, 400);
    assert_eq!(running.get("/plugins/routes/again").await.0, 200);
}

#[tokio::test]
async fn a_body_slower_than_the_limit_is_said_to_be() {
    let running = start(None).await;
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    let head = format!(
        "POST /plugins/routes/reads HTTP/1.1\r\nHost: {}\r\nContent-Length: 10\r\n\r\nabc",
        running.address
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // The sender stays, and says nothing more. Time flies while nothing else is to come over the socket.
    running.host.log.wait_for("it reads").await;
    tokio::time::pause();
    let mut said = [0; 1024];
    let read = stream.read(&mut said).await.unwrap();
    tokio::time::resume();
    let said = String::from_utf8_lossy(&said[..read]);
    assert!(said.starts_with("HTTP/1.1 400"), "{said}");
    assert!(said.ends_with(r#"{"message":"the body did not arrive within 30 seconds"}"#), "{said}");
    assert_eq!(running.get("/plugins/routes/again").await.0, 200);
}

#[tokio::test]
async fn what_is_no_handshake_is_told_so() {
    let running = start(None).await;
    assert_eq!(
        running.get("/").await,
        (426, "ostler speaks the Agent Host Protocol over WebSocket".to_owned())
    );
    assert_eq!(running.get("/api/status").await, (404, r#"{"message":"No API at /api/status"}"#.to_owned()));
    assert_eq!(running.get("/v1/models").await.0, 404);
    assert_eq!(running.get("/apis").await.0, 426);
}

#[tokio::test]
async fn a_connection_shows_its_token_and_a_page_of_another_site_is_kept_out() {
    let handshake = |address: SocketAddr, path: &str, more: &str| {
        format!(
            "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
        )
    };
    let running = start(Some("open sesame")).await;
    let (status, body) = running
        .send(&handshake(
            running.address,
            "/?tkn=wrong",
            "Authorization: Bearer open sesame\r\nX-Close: 1\r\nConnection: close\r\n",
        ))
        .await;
    assert_eq!((status, body.as_str()), (401, "A connection token is required"));
    running.connect("?tkn=open%20sesame").await;
    let open = start(None).await;
    let (own, other_port) = (format!("http://{}", open.address), "http://127.0.0.1:1");
    for origins in [
        &["https://evil.org"][..],
        &[other_port],
        &["http://localhost"],
        &["chrome-extension://abcdef"],
        &["file://"],
        &[own.as_str(), "https://evil.org"],
    ] {
        let origins: String = origins.iter().map(|origin| format!("Origin: {origin}\r\n")).collect();
        let (status, _) =
            open.send(&handshake(open.address, "/", &format!("{origins}Connection: close\r\n"))).await;
        assert_eq!(status, 403, "{origins}");
    }
    for origin in [own.as_str(), "vscode-file://vscode-app"] {
        let stream = TcpStream::connect(open.address).await.unwrap();
        let mut request = format!("ws://{}/", open.address).into_client_request().unwrap();
        request.headers_mut().insert("origin", origin.parse().unwrap());
        tokio_tungstenite::client_async(request, stream).await.unwrap();
    }
    // A name that leads to this computer, as that of a page whose domain is resolved to loopback.
    let foreign = handshake(open.address, "/", "Connection: close\r\n");
    let foreign = foreign.replace(&format!("Host: {}", open.address), "Host: evil.org");
    let refused = (403, r#"{"message":"This host does not answer to evil.org"}"#.to_owned());
    assert_eq!(open.send(&foreign).await, refused);
}

#[tokio::test]
async fn frames_that_are_no_messages_are_answered_and_the_connection_goes_on() {
    let running = start(None).await;
    let mut socket = running.connect("").await;
    let mut ask = async |frame: Frame| -> Value {
        socket.send(frame).await.unwrap();
        let Frame::Text(text) = socket.next().await.unwrap().unwrap() else { panic!("not text") };
        serde_json::from_str(&text).unwrap()
    };
    assert_eq!(ask(Frame::text("{")).await["error"]["code"], -32700);
    assert_eq!(ask(Frame::text("[]")).await["error"]["code"], -32600);
    assert_eq!(ask(Frame::text(r#"{"jsonrpc":"2.0","id":1,"method":5}"#)).await["id"], 1);
    assert_eq!(
        ask(Frame::text(r#"{"jsonrpc":"2.0","id":"a","method":"ping"}"#)).await,
        json!({ "jsonrpc": "2.0", "id": "a", "result": null })
    );
    assert_eq!(ask(Frame::binary(r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#)).await["id"], 2);
    assert_eq!(
        ask(Frame::text(r#"{"jsonrpc":"2.0","id":3,"method":"setClientManagedSettingsPermissions"}"#)).await
            ["error"]["code"],
        -32601
    );
    socket.send(Frame::Ping("x".into())).await.unwrap();
    assert!(matches!(socket.next().await.unwrap().unwrap(), Frame::Pong(_)));
}

/// A frame of a client: masked with nothing.
fn frame(opcode: u8, payload: usize) -> Vec<u8> {
    let mut frame = vec![opcode, 0xff];
    frame.extend_from_slice(&(payload as u64).to_be_bytes());
    frame.extend_from_slice(&[0; 4]);
    frame.resize(frame.len() + payload, b' ');
    frame
}

/// Writes everything before it reads anything; answers what was there to read.
async fn write_then_read(stream: &mut TcpStream, parts: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    for part in parts {
        stream.write_all(&part).await.expect("it takes all that is sent");
    }
    let mut read = Vec::new();
    stream.read_to_end(&mut read).await.expect("it is not reset");
    read
}

#[tokio::test]
async fn a_frame_over_the_limit_ends_the_connection_and_nothing_else() {
    let running = start(None).await;
    let one = |opcode, megabytes: usize| frame(opcode, megabytes << 20);
    let fragments = (0..40).map(|at| one(if at == 0 { 0x01 } else { 0x00 }, 1));
    for sent in [vec![one(0x81, 33)], vec![one(0x81, 64)], fragments.collect()] {
        let mut socket = running.connect("").await.into_inner();
        let read = write_then_read(&mut socket, sent).await;
        let wanted = [&[0x88, 24, 0x03, 0xf1][..], b"the frame is too large"].concat();
        assert!(read.ends_with(&wanted), "{read:?}");
    }
    assert_eq!(running.get("/plugins/routes/again").await.0, 200);
}

#[tokio::test]
async fn a_body_nobody_reads_does_not_take_the_answer_away() {
    let running = start(None).await;
    for (path, status) in [("unread", 401), ("throw", 500), ("over", 400)] {
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        let head = format!(
            "POST /plugins/routes/{path} HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\r\n",
            running.address,
            30 << 20
        );
        let read = write_then_read(&mut stream, [head.into_bytes(), vec![b' '; 30 << 20]]).await;
        let read = String::from_utf8_lossy(&read);
        assert!(read.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {read}");
    }
}

#[tokio::test]
async fn the_official_client_runs_a_turn_over_a_socket() {
    use ahp::{Client, ClientConfig, SubscriptionEvent};
    use ostler_protocol::wire::actions::StateAction;
    let running = start(None).await;
    let transport = ahp_ws::WebSocketTransport::connect(&format!("ws://{}", running.address)).await.unwrap();
    let client = Client::connect(transport, ClientConfig::default()).await.unwrap();
    client.initialize("c".into(), vec!["0.9.0".into()], vec!["ahp-root://".into()]).await.unwrap();
    let created = json!({ "channel": "echo:/1", "provider": "echo" });
    let _: Value = client.request("createSession", created).await.unwrap();
    let chat = ostler_protocol::uri::default_chat("echo:/1");
    let (_, mut events) = client.subscribe(chat.clone()).await.unwrap();
    let started = serde_json::from_value(
        json!({ "type": "chat/turnStarted", "turnId": "t", "startedAt": "2026-01-01T00:00:00Z",
        "message": { "text": "hello", "origin": { "kind": "user" } } }),
    )
    .unwrap();
    client.dispatch(chat, started).await.unwrap();
    let mut said = String::new();
    loop {
        let Some(SubscriptionEvent::Action(envelope)) = events.recv().await else { panic!("lost") };
        match envelope.action {
            StateAction::ChatDelta(delta) => said.push_str(&delta.content),
            StateAction::ChatTurnComplete(_) => break,
            _ => {}
        }
    }
    assert_eq!(said, "hello");
    running.stop.send_replace(true);
    client.shutdown().await;
}

#[tokio::test]
async fn stdio_serves_one_message_a_line() {
    let host = MemoryHost::builder().plugin(ostler_plugin_echo::plugin(), json!({})).start().await;
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (read, write) = tokio::io::split(theirs);
    let served: Arc<_> = host.host.clone();
    let serving = tokio::spawn(async move { serve_stdio(&served, read, write).await });
    let (read, mut write) = tokio::io::split(ours);
    let mut lines = BufReader::new(read).lines();
    write.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n\nnonsense\n").await.unwrap();
    assert_eq!(lines.next_line().await.unwrap().unwrap(), r#"{"jsonrpc":"2.0","id":1,"result":null}"#);
    assert!(lines.next_line().await.unwrap().unwrap().contains("-32700"));
    drop(write);
    drop(lines);
    serving.await.unwrap();
    let _ = Response::new(Body::Empty);
}

#[tokio::test]
async fn what_was_asked_before_stdin_ended_is_answered() {
    let host = MemoryHost::builder().plugin(ostler_plugin_echo::plugin(), json!({})).start().await;
    let asked = [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "channel": "ahp-root://", "clientId": "pipe", "protocolVersions": ["1.0.0"],
            "initialSubscriptions": ["ahp-root://"] } }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "createSession", "params": {
            "channel": "ahp-session:/piped", "provider": "echo" } }),
        json!({ "jsonrpc": "2.0", "id": 3, "method": "subscribe", "params": {
            "channel": "ahp-session:/piped" } }),
        json!({ "jsonrpc": "2.0", "id": 4, "method": "listSessions", "params": {
            "channel": "ahp-root://" } }),
    ];
    let input = asked.iter().map(|asked| format!("{asked}\n")).collect::<String>();
    let (output, theirs) = tokio::io::duplex(1 << 20);
    serve_stdio(&host.host, input.as_bytes(), theirs).await;
    let mut lines = BufReader::new(output).lines();
    let mut answered = Vec::new();
    while let Some(line) = lines.next_line().await.unwrap() {
        let said: Value = serde_json::from_str(&line).unwrap();
        if let Some(id) = said["id"].as_u64() {
            assert!(said.get("error").is_none(), "{said}");
            answered.push(id);
        }
    }
    answered.sort_unstable();
    assert_eq!(answered, [1, 2, 3, 4]);
}
