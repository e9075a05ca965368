//! How a WebSocket connection ends (RFC 6455), and what a peer that does not read costs.

use std::net::SocketAddr;
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use ostler_contract::json;
use ostler_engine::Limits;
use ostler_server::{HostNames, Listener, Server};
use ostler_testkit::MemoryHost;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

const LIMIT: Duration = Duration::from_secs(20);
const TEXT: u8 = 0x81;
const BEGIN_TEXT: u8 = 0x01;
const CONTINUE: u8 = 0x80;
const CLOSE: u8 = 0x88;
const PING: u8 = 0x89;

async fn start() -> (MemoryHost, SocketAddr, watch::Sender<bool>) {
    start_with(Limits::default()).await
}

async fn start_with(limits: Limits) -> (MemoryHost, SocketAddr, watch::Sender<bool>) {
    let host = MemoryHost::builder()
        .plugin(ostler_plugin_echo::plugin(), json!({}))
        .options(|options| options.limits = limits)
        .start()
        .await;
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.address();
    let server = Server::new(Vec::new()).with_protocol(host.host.clone(), None, HostNames::of(address));
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(server.serve(listener, stopped));
    (host, address, stop)
}

async fn connect(address: SocketAddr) -> WebSocketStream<TcpStream> {
    let stream = TcpStream::connect(address).await.unwrap();
    tokio_tungstenite::client_async(format!("ws://{address}/"), stream).await.unwrap().0
}

/// A masked frame; the mask is of zeros.
fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![kind];
    match payload.len() {
        short @ 0..126 => frame.push(0x80 | u8::try_from(short).unwrap()),
        long => {
            frame.push(0xff);
            frame.extend_from_slice(&(long as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(payload);
    frame
}

/// Sends frames and answers the code the host closes with.
async fn closed_with(address: SocketAddr, frames: &[Vec<u8>]) -> u16 {
    let mut stream = connect(address).await.into_inner();
    stream.write_all(&frames.concat()).await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(LIMIT, stream.read_to_end(&mut answer)).await.expect("it closes").unwrap();
    match answer[..] {
        [CLOSE, _, high, low, ..] => u16::from_be_bytes([high, low]),
        _ => panic!("no close frame: {answer:?}"),
    }
}

#[tokio::test]
async fn a_close_code_no_peer_may_send_is_answered_with_1002() {
    let (_host, address, _stop) = start().await;
    for (sent, answered) in [
        (0_u16, 1002),
        (999, 1002),
        (1004, 1002),
        (1005, 1002),
        (1006, 1002),
        (1015, 1002),
        (1016, 1002),
        (2999, 1002),
        (5000, 1002),
        (65535, 1002),
        (1000, 1000),
        (1001, 1000),
        (1011, 1000),
        (3000, 1000),
        (4999, 1000),
    ] {
        assert_eq!(closed_with(address, &[frame(CLOSE, &sent.to_be_bytes())]).await, answered, "{sent}");
    }
    assert_eq!(closed_with(address, &[frame(CLOSE, &[])]).await, 1000);
    assert_eq!(closed_with(address, &[frame(CLOSE, &[3])]).await, 1002, "half a code");
    assert_eq!(
        closed_with(address, &[frame(CLOSE, &[3, 232, 0xff])]).await,
        1007,
        "a reason that is no text"
    );
}

#[tokio::test]
async fn text_that_is_not_utf_8_ends_the_connection_with_1007() {
    let (_host, address, _stop) = start().await;
    for bytes in [&b"\xff"[..], b"ab\xc0\xaf", b"\xed\xa0\x80", b"{\"a\":\"\xf0\x9f\x98\"}"] {
        assert_eq!(closed_with(address, &[frame(TEXT, bytes)]).await, 1007, "{bytes:?}");
    }
    let parts = [frame(BEGIN_TEXT, b"\xce"), frame(CONTINUE, b"\xce")];
    assert_eq!(closed_with(address, &parts).await, 1007, "broken between two parts");
    let whole = [frame(BEGIN_TEXT, b"\"\xce"), frame(CONTINUE, b"\xba\""), frame(CLOSE, &[3, 232])];
    let mut stream = connect(address).await.into_inner();
    stream.write_all(&whole.concat()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert!(answer.ends_with(&[CLOSE, 2, 3, 232]), "a character may be in two parts: {answer:?}");
}

#[tokio::test]
async fn only_the_latest_ping_is_answered_to_a_peer_that_does_not_read() {
    let (_host, address, _stop) = start().await;
    let mut stream = connect(address).await.into_inner();
    // More pongs than all buffers between the two hold.
    let pings = 400_000_u32;
    for chunk in (0..pings).collect::<Vec<_>>().chunks(1000) {
        let bytes: Vec<u8> = chunk
            .iter()
            .flat_map(|number| {
                let mut payload = [0; 120];
                payload[..4].copy_from_slice(&number.to_be_bytes());
                frame(PING, &payload)
            })
            .collect();
        tokio::time::timeout(LIMIT, stream.write_all(&bytes)).await.expect("it is read on").unwrap();
    }
    stream.write_all(&frame(CLOSE, &[3, 232])).await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(LIMIT, stream.read_to_end(&mut answer)).await.expect("it closes").unwrap();
    let pongs = (answer.len() - 4) / 122;
    assert!(pongs < pings as usize / 2, "{pongs} pongs");
    let last = &answer[(pongs - 1) * 122..][2..6];
    assert_eq!(last, (pings - 1).to_be_bytes(), "the latest ping is answered");
}

#[tokio::test]
async fn requests_of_a_peer_that_does_not_read_its_answers_wait() {
    let (host, address, _stop) = start().await;
    let mut socket = connect(address).await;
    let initialize = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "channel": "ahp-root://", "protocolVersions": ["1.0.0"], "clientId": "greedy" } });
    socket.send(Message::text(initialize.to_string())).await.unwrap();
    let _ = socket.next().await;
    let asked = json!({ "jsonrpc": "2.0", "id": 1, "method": "no", "params": {} });
    // Each answer names the method, so it is about as long as the request.
    let asked = asked.to_string().replace("\"no\"", &format!("{:?}", "n".repeat(64 * 1024)));
    let most = 8 * 1024 * 1024;
    // As many as fill that and what the system holds of a connection, several times over.
    let mut sent = 0;
    loop {
        sent += 1;
        assert!(sent < 2000, "the host reads on");
        let used = host.host.core.budget.used();
        assert!(used < most, "{used} bytes are in use");
        // A peer is not told that it is not read: a message that is not taken for so long waits.
        let message = Message::text(asked.clone());
        match tokio::time::timeout(Duration::from_millis(300), socket.send(message)).await {
            Ok(sent) => sent.unwrap(),
            Err(_) => break,
        }
    }
}

#[tokio::test]
async fn a_message_that_finds_no_memory_ends_its_connection_with_1013() {
    const MIB: usize = 1024 * 1024;
    let limits = Limits { memory: 8 * MIB, connection_memory: 8 * MIB, ..Limits::default() };
    let (host, address, _stop) = start_with(limits).await;
    let long = frame(TEXT, &vec![b' '; 3 * MIB / 2]);
    let mut other = connect(address).await.into_inner();
    other.write_all(&long[..5 * MIB / 4]).await.unwrap();
    while host.host.core.budget.used() < 3 * MIB {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(closed_with(address, std::slice::from_ref(&long)).await, 1013);
    let mut socket = connect(address).await;
    socket
        .send(Message::text(json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }).to_string()))
        .await
        .unwrap();
    let answer = socket.next().await.unwrap().unwrap().into_text().unwrap();
    assert!(answer.contains("\"result\":null"), "a short message passes: {answer}");
    other.write_all(&long[5 * MIB / 4..]).await.unwrap();
    let mut answer = [0; 4];
    tokio::time::timeout(LIMIT, other.read_exact(&mut answer)).await.expect("it is answered").unwrap();
    assert_eq!(answer[0], TEXT, "the message that was read first is taken");
    drop(other);
    socket.send(Message::text(" ".repeat(3 * MIB / 2))).await.unwrap();
    assert!(socket.next().await.unwrap().unwrap().is_text(), "there is memory again");
}
