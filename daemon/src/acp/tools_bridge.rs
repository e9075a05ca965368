//! `ostler mcp-bridge`: a session's tools endpoint as an MCP server on stdio, for agents that cannot connect to one over
//! HTTP. Not for users: the agent starts it.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use ostler_contract::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::answer::Answer;
use crate::exit::Exit;

/// The longest message, in bytes.
const LONGEST: u64 = 16 << 20;

/// The limit for opening the endpoint's stream of messages.
const STREAM_LIMIT: Duration = Duration::from_secs(5);

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// A tools endpoint.
#[derive(Debug, Clone)]
struct Endpoint {
    address: String,
    path: String,
    token: String,
}

impl Endpoint {
    /// Reads it from the variables that the agent sets.
    fn of_environment() -> Option<Self> {
        use ostler_plugin_acp::{BRIDGE_TOKEN, BRIDGE_URL};
        let url = std::env::var(BRIDGE_URL).ok()?;
        let (address, path) = url.strip_prefix("http://")?.split_once('/')?;
        let token = std::env::var(BRIDGE_TOKEN).ok()?;
        Some(Self { address: address.to_owned(), path: format!("/{path}"), token })
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, Failed> {
        let stream = TcpStream::connect(&self.address).await?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }

    async fn send(&self, method: Method, body: String) -> Result<Response<Incoming>, Failed> {
        let request = Request::builder()
            .method(method)
            .uri(&self.path)
            .header(HOST, &self.address)
            .header(AUTHORIZATION, format!("Bearer {}", self.token))
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream")
            .body(Full::new(Bytes::from(body)))?;
        Ok(self.connect().await?.send_request(request).await?)
    }
}

/// Serves one agent until it closes its end.
///
/// # Errors
/// Exit 2 without an endpoint.
pub async fn bridge() -> Result<Answer, Exit> {
    let endpoint = Endpoint::of_environment().ok_or_else(|| {
        Exit::usage("mcp-bridge is started by an agent of @ostler/acp, which names the endpoint")
    })?;
    let (tell, mut lines) = mpsc::channel::<String>(64);
    // Before the first answer, so that the agent is notified of every change after it lists the tools.
    if let Some(stream) = stream(&endpoint).await {
        tokio::spawn(changes(stream, tell.clone()));
    }
    tokio::spawn(async move {
        let mut out = tokio::io::stdout();
        while let Some(line) = lines.recv().await {
            if out.write_all(format!("{line}\n").as_bytes()).await.is_err() || out.flush().await.is_err() {
                return;
            }
        }
    });
    let mut input = BufReader::new(tokio::io::stdin());
    let mut calls = tokio::task::JoinSet::new();
    loop {
        let mut line = String::new();
        match (&mut input).take(LONGEST).read_line(&mut line).await {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        if line.trim().is_empty() {
            continue;
        }
        // A call can wait for an approval; other calls continue.
        let (endpoint, tell) = (endpoint.clone(), tell.clone());
        calls.spawn(async move {
            if let Some(answer) = call(&endpoint, line).await {
                let _ = tell.send(answer).await;
            }
        });
        while calls.try_join_next().is_some() {}
    }
    calls.join_all().await;
    Ok(Answer { printed: true, ..Answer::default() })
}

/// Forwards one message; returns the endpoint's answer as one line.
async fn call(endpoint: &Endpoint, line: String) -> Option<String> {
    let id = serde_json::from_str::<Value>(&line).ok().and_then(|message| message.get("id").cloned());
    let answered = async {
        let response = endpoint.send(Method::POST, line.trim().to_owned()).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        Ok::<_, Failed>((status, String::from_utf8_lossy(&body).into_owned()))
    };
    let failed = |why: String| {
        let id = id.clone()?;
        Some(json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32603, "message": why } }).to_string())
    };
    match answered.await {
        Ok((StatusCode::OK, body)) => {
            Some(body.replace(['\n', '\r'], " ")).filter(|body| !body.trim().is_empty())
        }
        Ok((StatusCode::ACCEPTED, _)) => None,
        Ok((status, body)) => failed(format!("the session's tools endpoint answered {status}: {body}")),
        Err(why) => failed(format!("the session's tools endpoint does not answer: {why}")),
    }
}

/// Opens the endpoint's stream of messages, if it has one.
async fn stream(endpoint: &Endpoint) -> Option<Incoming> {
    let asked = tokio::time::timeout(STREAM_LIMIT, endpoint.send(Method::GET, String::new()));
    let response = asked.await.ok()?.ok()?;
    (response.status() == StatusCode::OK).then(|| response.into_body())
}

/// Forwards notifications of changed tools, until the session ends.
async fn changes(mut body: Incoming, tell: mpsc::Sender<String>) {
    let mut pending = String::new();
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else { continue };
        pending.push_str(&String::from_utf8_lossy(&data));
        while let Some((line, rest)) = pending.split_once('\n') {
            let message = line.strip_prefix("data:").map(|data| data.trim().to_owned());
            pending = rest.to_owned();
            if let Some(message) = message
                && tell.send(message).await.is_err()
            {
                return;
            }
        }
    }
}
