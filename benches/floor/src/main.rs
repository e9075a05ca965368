//! A synthetic floor: a WebSocket server that does the least a host of the Agent Host Protocol could do in Rust.
//!
//! `ostler-floor memory` keeps sessions in a map. `ostler-floor durable <folder>` commits one row to SQLite (WAL,
//! `synchronous=FULL`) before it answers whatever ostler answers only once it is durable. It checks nothing, serves
//! each connection in one task of an event loop, commits in that task, and publishes to the connection that asked.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use futures::{SinkExt as _, StreamExt as _};
use rusqlite::Connection;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

/// Where what is promised is kept.
enum Store {
    Memory(HashMap<String, String>),
    Durable(Connection),
}

type Socket = WebSocketStream<TcpStream>;
type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let store = match &*arguments.iter().map(String::as_str).collect::<Vec<_>>() {
        ["memory"] => Ok(Store::Memory(HashMap::new())),
        ["durable", folder] => open(Path::new(folder)),
        _ => Err("usage: ostler-floor memory | ostler-floor durable <folder>".into()),
    };
    match store.and_then(serve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "{why}");
            ExitCode::FAILURE
        }
    }
}

fn open(folder: &Path) -> Result<Store, Failure> {
    let db = Connection::open(folder.join("floor.db"))?;
    db.pragma_update(None, "journal_mode", "wal")?;
    db.pragma_update(None, "synchronous", "full")?;
    db.execute_batch("CREATE TABLE kept (id TEXT PRIMARY KEY, kept TEXT NOT NULL) STRICT")?;
    Ok(Store::Durable(db))
}

fn serve(store: Store) -> Result<(), Failure> {
    let store = Arc::new(Mutex::new(store));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_io().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        writeln!(std::io::stdout(), "floor on ws://{}", listener.local_addr()?)?;
        loop {
            let (stream, _) = listener.accept().await?;
            let store = store.clone();
            tokio::spawn(async move {
                if let Err(why) = converse(stream, &store).await {
                    let _ = writeln!(std::io::stderr(), "{why}");
                }
            });
        }
    })
}

async fn converse(stream: TcpStream, store: &Mutex<Store>) -> Result<(), Failure> {
    stream.set_nodelay(true)?;
    let mut socket = tokio_tungstenite::accept_async(stream).await?;
    let mut seq = 0;
    while let Some(message) = socket.next().await {
        let text = match message? {
            Message::Text(text) => text,
            Message::Close(_) => return Ok(()),
            _ => continue,
        };
        let message: Value = serde_json::from_str(&text)?;
        match message["method"].as_str() {
            Some("dispatchAction") => dispatch(&mut socket, store, &message["params"], &mut seq).await?,
            method => {
                let result = answer(store, method.unwrap_or_default(), &message["params"])?;
                send(&mut socket, &json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))
                    .await?;
            }
        }
    }
    Ok(())
}

fn answer(store: &Mutex<Store>, method: &str, params: &Value) -> Result<Value, Failure> {
    Ok(match method {
        "initialize" => json!({ "protocolVersion": "1.0.0", "serverSeq": 0, "snapshots": [] }),
        "createSession" => {
            keep(store, params["channel"].as_str().unwrap_or_default(), params)?;
            Value::Null
        }
        "subscribe" => {
            let channel = &params["channel"];
            let chat = format!("{}/chat", channel.as_str().unwrap_or_default());
            json!({ "snapshot": { "resource": channel, "state": { "defaultChat": chat }, "fromSeq": 0 } })
        }
        _ => Value::Null,
    })
}

/// Publishes an action to its sender; a turn `/words <n>` as the echo backend answers it.
async fn dispatch(
    socket: &mut Socket,
    store: &Mutex<Store>,
    params: &Value,
    seq: &mut u64,
) -> Result<(), Failure> {
    let (channel, action) = (params["channel"].as_str().unwrap_or_default(), &params["action"]);
    let kind = action["type"].as_str().unwrap_or_default();
    let durable = !matches!(kind, "session/isReadChanged" | "chat/draftChanged");
    if durable {
        keep(store, channel, action)?;
    }
    let mut publish = async |action: &Value| {
        *seq += 1;
        let params = json!({ "channel": channel, "action": action, "serverSeq": *seq });
        send(socket, &json!({ "jsonrpc": "2.0", "method": "action", "params": params })).await
    };
    publish(action).await?;
    if kind != "chat/turnStarted" {
        return Ok(());
    }
    let turn = &action["turnId"];
    let text = action["message"]["text"].as_str().unwrap_or_default();
    let words: u64 = text.strip_prefix("/words ").and_then(|count| count.parse().ok()).unwrap_or(1);
    let part = json!({ "kind": "markdown", "id": "answer", "content": "" });
    publish(&json!({ "type": "chat/responsePart", "turnId": turn, "part": part })).await?;
    for at in 0..words {
        let content = format!("word {at} ");
        publish(&json!({ "type": "chat/delta", "turnId": turn, "partId": "answer", "content": content }))
            .await?;
    }
    keep(store, channel, action)?;
    publish(&json!({ "type": "chat/turnComplete", "turnId": turn, "duration": 0 })).await
}

fn keep(store: &Mutex<Store>, id: &str, value: &Value) -> Result<(), Failure> {
    match &mut *store.lock().unwrap_or_else(PoisonError::into_inner) {
        Store::Memory(kept) => {
            kept.insert(id.to_owned(), value.to_string());
        }
        Store::Durable(db) => {
            let mut insert = db.prepare_cached("INSERT OR REPLACE INTO kept (id, kept) VALUES (?1, ?2)")?;
            insert.execute([id, &value.to_string()])?;
        }
    }
    Ok(())
}

async fn send(socket: &mut Socket, message: &Value) -> Result<(), Failure> {
    Ok(socket.send(Message::text(message.to_string())).await?)
}
