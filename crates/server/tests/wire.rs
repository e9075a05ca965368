//! Every wire transcript, over every way in: the host says the same to a WebSocket client, to the one on
//! stdio, and to a plugin.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "wire/ports.rs"]
mod ports;

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{SinkExt, StreamExt};
use ostler_contract::points::{Tool, ToolContext, ToolSpec};
use ostler_contract::{Call, JsonObject, Plugin, PluginHost, Value, json};
use ostler_ports::MemoryAutomations;
use ostler_server::{HostNames, Listener, Server, serve_stdio};
use ostler_testkit::wire::{End, Transcript, play, recording};
use ostler_testkit::{MemoryHost, build};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::{Notify, mpsc, watch};
use tokio_tungstenite::tungstenite::Message as Frame;

const DOORS: [&str; 3] = ["websocket", "stdio", "memory"];

/// What transcripts have beside a backend: a tool, a trigger type, and the plugin whose connection they use.
fn stable() -> Plugin {
    Plugin::new("stable", |host, _| {
        Box::pin(async move {
            host.register_tool(Tool {
                definition: ToolSpec {
                    name: "shout".into(),
                    description: Some("Says it louder.".into()),
                    ..ToolSpec::default()
                },
                run: Call::now(|(input, _): (Value, ToolContext)| {
                    Ok(input["text"].as_str().unwrap_or_default().to_uppercase().into())
                }),
                ..Tool::default()
            })?;
            host.register_trigger_type(build())
        })
    })
}

async fn host(setup: &JsonObject) -> MemoryHost {
    let mut builder = MemoryHost::builder()
        .plugin(ostler_plugin_echo::plugin(), json!({}))
        .plugin(stable(), json!({}))
        .options(|options| {
            options.delta_window_ms = 0;
            if let Some(replay) = setup.get("replay").and_then(Value::as_u64) {
                options.replay = usize::try_from(replay).unwrap();
            }
        });
    for (name, plugin) in [("terminals", ports::terminals()), ("changes", ports::changes())] {
        if setup.get(name) == Some(&json!(true)) {
            builder = builder.plugin(plugin, json!({}));
        }
    }
    if setup.get("automations") == Some(&json!(true)) {
        let store = MemoryAutomations::new(ostler_ports::Report::quiet()).unwrap();
        builder = builder.automations(Arc::new(store).into_point());
    }
    builder.start().await
}

fn websocket(address: std::net::SocketAddr) -> BoxFuture<'static, End> {
    Box::pin(async move {
        let (socket, _) = tokio_tungstenite::connect_async(format!("ws://{address}")).await.unwrap();
        let (mut sink, mut stream) = socket.split();
        let (say, mut said) = mpsc::unbounded_channel::<String>();
        let (heard, hear) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(text) = said.recv().await {
                if sink.send(Frame::text(text)).await.is_err() {
                    return;
                }
            }
            let _ = sink.close().await;
        });
        tokio::spawn(async move {
            while let Some(Ok(frame)) = stream.next().await {
                if let Frame::Text(text) = frame {
                    let _ = heard.send(serde_json::from_str(&text).unwrap());
                }
            }
        });
        End { say, hear, ordered: true }
    })
}

fn stdio(host: Arc<ostler_engine::Host>) -> BoxFuture<'static, End> {
    Box::pin(async move {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (read, write) = tokio::io::split(theirs);
        tokio::spawn(async move { serve_stdio(&host, read, write).await });
        let (read, mut write) = tokio::io::split(ours);
        let (say, mut said) = mpsc::unbounded_channel::<String>();
        let (heard, hear) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(text) = said.recv().await {
                if write.write_all(format!("{text}\n").as_bytes()).await.is_err() {
                    return;
                }
            }
            let _ = write.shutdown().await;
        });
        tokio::spawn(async move {
            let mut lines = BufReader::new(read).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let _ = heard.send(serde_json::from_str(&line).unwrap());
            }
        });
        End { say, hear, ordered: true }
    })
}

/// A plugin's own connection: what the plugin asked and was told, as the frames it stands for.
fn memory(plugin: PluginHost) -> BoxFuture<'static, End> {
    Box::pin(async move {
        let peer = plugin.connect().unwrap();
        let (say, mut said) = mpsc::unbounded_channel::<String>();
        let (heard, hear) = mpsc::unbounded_channel();
        let (notified, mut passing) = mpsc::unbounded_channel();
        let answered = notified.clone();
        let closed = Arc::new(Notify::new());
        let over = closed.clone();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    biased;
                    frame = passing.recv() => match frame {
                        Some(frame) => { let _ = heard.send(frame); }
                        None => return,
                    },
                    () = over.notified() => return,
                }
            }
        });
        let listener = Call::now(move |(message,): (Value,)| {
            let mut frame = json!({ "jsonrpc": "2.0" });
            frame.as_object_mut().unwrap().extend(message.as_object().cloned().unwrap());
            let _ = notified.send(without_the_plugin(frame));
            Ok(())
        });
        peer.on_message.call((listener,)).unwrap();
        tokio::spawn(async move {
            while let Some(text) = said.recv().await {
                let frame: Value = serde_json::from_str(&text).unwrap();
                let method = frame["method"].as_str().unwrap().to_owned();
                let params = frame["params"].as_object().cloned();
                let Some(id) = frame.get("id").cloned() else {
                    let _ = peer.notify.call((method, params));
                    continue;
                };
                let answer = peer.request.call((method, params));
                let (answered, peer, closed) = (answered.clone(), peer.clone(), closed.clone());
                tokio::spawn(async move {
                    let frame = match answer.await {
                        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
                        // A connection that is closed has nothing to say.
                        Err(thrown) if thrown.rpc.is_none() => return,
                        Err(thrown) => json!({ "jsonrpc": "2.0", "id": id, "error": thrown.into_rpc() }),
                    };
                    let refused = frame.get("error").is_some();
                    let _ = answered.send(without_the_plugin(frame));
                    // A plugin learns that its connection has ended from the next thing it asks.
                    if refused && peer.request.call(("ping".to_owned(), None)).await.is_err() {
                        closed.notify_one();
                    }
                });
            }
            let _ = peer.close.call(());
        });
        End { say, hear, ordered: false }
    })
}

/// A plugin's work is the plugin's own, and says so; beside that it is what anybody's is.
fn without_the_plugin(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(without_the_plugin).collect(),
        Value::Object(fields) => {
            let named = |value: &Value| value == "plugin:stable";
            let fields = fields.into_iter().filter(|(_, value)| !named(value));
            let fields = fields.map(|(key, value)| {
                let emptied = key == "_meta" && value.as_object().is_some_and(|meta| !meta.is_empty());
                let value = without_the_plugin(value);
                (key, value, emptied)
            });
            fields
                .filter(|(_, value, emptied)| !emptied || value != &json!({}))
                .map(|(key, value, _)| (key, value))
                .collect()
        }
        other => other,
    }
}

async fn over(door: &str, transcript: &Transcript) -> Result<(), String> {
    let transcript = &transcript.over(door);
    let host = host(&transcript.setup).await;
    match door {
        "websocket" => {
            let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
            let address = listener.address();
            let server =
                Server::new(Vec::new()).with_protocol(host.host.clone(), None, HostNames::of(address));
            let (_stop, stopped) = watch::channel(false);
            let serving = tokio::spawn(server.serve(listener, stopped));
            let outcome = play(transcript, || websocket(address)).await;
            serving.abort();
            outcome
        }
        "stdio" => play(transcript, || stdio(host.host.clone())).await,
        _ => play(transcript, || memory(host.plugin("stable").clone())).await,
    }
}

#[tokio::test]
async fn every_transcript_is_the_same_over_every_way_in() {
    let only = std::env::var("OSTLER_WIRE_ONLY").ok();
    let mut failures = Vec::new();
    for transcript in Transcript::all() {
        if only.as_ref().is_some_and(|only| *only != transcript.name()) {
            continue;
        }
        // What is written down is written once, and played over the others the next time.
        let doors = if transcript.is_open() && recording() { &DOORS[..1] } else { &DOORS[..] };
        for door in doors.iter().filter(|door| transcript.plays_over(door)) {
            if let Err(why) = over(door, &transcript).await {
                failures.push(format!("{} over {door}: {why}", transcript.name()));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[tokio::test]
async fn each_connection_of_a_plugin_is_its_own_and_the_plugins() {
    let early = Arc::new(parking_lot::Mutex::new(String::new()));
    let said = early.clone();
    let eager = Plugin::new("eager", move |host, _| {
        let said = said.clone();
        Box::pin(async move {
            *said.lock() = host.connect().map(|_| ()).unwrap_err().message;
            Ok(())
        })
    });
    let host = MemoryHost::builder()
        .plugin(ostler_plugin_echo::plugin(), json!({}))
        .plugin(stable(), json!({}))
        .plugin(eager, json!({}))
        .start()
        .await;
    assert!(early.lock().contains("host"), "{}", early.lock());
    let plugin = host.plugin("stable");
    let (one, other) = (plugin.connect().unwrap(), plugin.connect().unwrap());
    let ask = |peer: &ostler_contract::host::Peer, method: &str, params: Value| {
        peer.request.call((method.to_owned(), params.as_object().cloned()))
    };
    let hello = json!({ "clientId": "p", "protocolVersions": ["0.9.0"] });
    ask(&one, "initialize", hello.clone()).await.unwrap();
    // The other has not said who it is.
    assert_eq!(ask(&other, "listSessions", json!({})).await.unwrap_err().rpc.unwrap().code, -32600);
    ask(&other, "initialize", hello).await.unwrap();
    ask(&one, "createSession", json!({ "channel": "echo:/mine", "provider": "echo" })).await.unwrap();
    let listed = ask(&other, "listSessions", json!({})).await.unwrap();
    assert_eq!(listed["items"][0]["_meta"]["ostler.owner"], "plugin:stable", "{listed}");
    // Closing one leaves the other.
    one.close.call(()).unwrap();
    assert!(ask(&one, "ping", json!({})).await.unwrap_err().rpc.is_none());
    ask(&other, "ping", json!({})).await.unwrap();
}
