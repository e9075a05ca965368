//! Links between hosts of a cluster, over real sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_contract::json;
use ostler_contract::points::Emit;
use ostler_ports::{SqliteSessions, StateDb};
use ostler_server::{HostNames, Listener, Server, WebSocketLinks};
use ostler_testkit::{ClusteredHost, MemoryCluster, MemoryHost, RawClient, Stage};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_tungstenite::Connector;

const SESSION: &str = "stage:/one";

fn chat() -> String {
    ostler_protocol::uri::default_chat(SESSION)
}

struct Running {
    host: ClusteredHost,
    address: SocketAddr,
    stop: watch::Sender<bool>,
}

async fn serve(host: Arc<ostler_engine::Host>) -> (SocketAddr, watch::Sender<bool>) {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.address();
    let server = Server::new(Vec::new()).with_protocol(host, None, HostNames::of(address));
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(server.serve(listener, stopped));
    (address, stop)
}

async fn start(cluster: &MemoryCluster, db: &Arc<StateDb>, id: &str, stage: &Stage) -> Running {
    let store = Arc::new(SqliteSessions::new(db.clone(), ostler_ports::Report::new(|line| panic!("{line}"))))
        .into_point();
    let builder = MemoryHost::builder()
        .plugin(stage.plugin(), json!({}))
        .options(|options| options.delta_window_ms = 0)
        .links(Arc::new(WebSocketLinks { largest: 64 << 20, connector: || Ok(Connector::Plain) }));
    let host = cluster.start(id, store, builder).await;
    let (address, stop) = serve(host.host.clone()).await;
    host.host.core.cluster().unwrap().set_url(format!("ws://{address}"));
    Running { host, address, stop }
}

/// Requests a link with a token; returns the status.
async fn link(address: SocketAddr, token: &str) -> u16 {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "GET /cluster/link HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
         Authorization: Bearer {token}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).await.unwrap();
    std::str::from_utf8(&head[9..]).unwrap().parse().unwrap()
}

async fn subscribe(client: &mut RawClient) {
    client.request("subscribe", json!({ "channel": chat() })).await.unwrap();
}

#[tokio::test]
async fn a_link_requires_the_token_of_the_cluster() {
    let (cluster, db) = (MemoryCluster::new(), StateDb::memory().unwrap());
    let a = start(&cluster, &db, "a", &Stage::default()).await;
    for token in ["", "wrong", "cluster-toke", "cluster-token2"] {
        assert_eq!(link(a.address, token).await, 401, "{token:?}");
    }
    assert_eq!(link(a.address, "cluster-token").await, 101);
    // A host without a cluster has no such path: it serves an AHP client there, as everywhere.
    let alone = MemoryHost::builder().plugin(Stage::default().plugin(), json!({})).start().await;
    let (address, _stop) = serve(alone.host.clone()).await;
    assert_eq!(link(address, "wrong").await, 101);
}

#[tokio::test]
async fn a_host_notices_that_its_address_leads_to_another_one() {
    let (cluster, db) = (MemoryCluster::new(), StateDb::memory().unwrap());
    let a = start(&cluster, &db, "a", &Stage::default()).await;
    let store = Arc::new(SqliteSessions::new(db.clone(), ostler_ports::Report::new(|line| panic!("{line}"))))
        .into_point();
    let builder = MemoryHost::builder()
        .links(Arc::new(WebSocketLinks { largest: 64 << 20, connector: || Ok(Connector::Plain) }));
    let b = cluster.start("b", store, builder).await;
    b.host.core.cluster().unwrap().set_url(format!("ws://{}", a.address));
    let end = Instant::now() + Duration::from_secs(20);
    let why = loop {
        let state = b.host.cluster_state().await.unwrap().unwrap();
        match state.unreachable.get("b") {
            // The address before that was that of the host in memory.
            Some(why) if why.contains(&a.address.to_string()) => break why.clone(),
            why => assert!(Instant::now() < end, "{why:?}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert!(why.ends_with("is another host"), "{why}");
    let state = a.host.host.cluster_state().await.unwrap().unwrap();
    assert!(!state.unreachable.contains_key("a"), "{state:?}");
}

/// How many actions are measured.
const MEASURED: usize = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_another_host_receives_actions_over_one_websocket() {
    let (cluster, db) = (MemoryCluster::new(), StateDb::memory().unwrap());
    let stage = Stage::default();
    let a = start(&cluster, &db, "a", &stage).await;
    let b = start(&cluster, &db, "b", &Stage::default()).await;
    let mut near = a.host.connect("near").await;
    near.request("createSession", json!({ "channel": SESSION })).await.unwrap();
    let mut far = b.host.connect("far").await;
    subscribe(&mut near).await;
    subscribe(&mut far).await;
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t1", "message": { "text": "go" } });
    far.dispatch(&chat(), 1, turn).await;
    for client in [&mut near, &mut far] {
        client.actions_until("chat/turnStarted").await;
    }
    stage.wait_told("begin").await;
    let part = json!({ "type": "chat/responsePart", "turnId": "t1",
        "part": { "kind": "markdown", "id": "p1", "content": "" } });
    stage.emit(0, Emit::Chat, part);
    for client in [&mut near, &mut far] {
        client.actions_until("chat/responsePart").await;
    }
    let arrives = |mut client: RawClient| {
        tokio::spawn(async move {
            let mut at = Vec::new();
            while at.len() < MEASURED {
                client.actions_until("chat/delta").await;
                at.push(Instant::now());
            }
            (at, client)
        })
    };
    let (near, far) = (arrives(near), arrives(far));
    for number in 0..MEASURED {
        let delta =
            json!({ "type": "chat/delta", "turnId": "t1", "partId": "p1", "content": format!("{number} ") });
        stage.emit(0, Emit::Chat, delta);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let ((near, _), (far, mut client)) = (near.await.unwrap(), far.await.unwrap());
    let mut added: Vec<_> =
        near.iter().zip(&far).map(|(near, far)| far.saturating_duration_since(*near)).collect();
    added.sort_unstable();
    println!("relay: p50 {:?}, p99 {:?}", added[MEASURED / 2], added[MEASURED * 99 / 100]);
    // The limit is 1 ms; a test program is not optimized, and other tests run beside it.
    assert!(added[MEASURED / 2] < Duration::from_millis(5), "{added:?}");
    // The end of the owner's listener ends the link.
    a.stop.send_replace(true);
    assert_eq!(client.ended().await, ostler_engine::outbox::Closed::Moved);
}
