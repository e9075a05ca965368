//! `ostler webhook test`: one call, as a sender would make it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use futures::StreamExt;
use ostler_contract::http::{Body, HeaderValue, Method, Request, header};
use ostler_contract::{Value, json};
use ostler_net::Client;
use ostler_plugin_webhook::tools::Facts;

use super::{Endpoints, Told, curl};
use crate::exit::Exit;

/// How long the daemon may take beyond what a sync call may.
const LIMIT: Duration = Duration::from_secs(120);
/// How long a daemon may take to read a record that was just written.
const READ_WITHIN: Duration = Duration::from_secs(5);
/// How much of an answer is shown.
const SHOWN: usize = 1 << 20;

/// What to call an endpoint with.
#[derive(Debug, Clone, Default, Args)]
pub struct TestFlags {
    /// The endpoint
    pub id: String,
    /// The body [default: one the endpoint takes]
    #[arg(long, value_name = "TEXT")]
    pub body: Option<String>,
}

pub(super) async fn test(endpoints: &Endpoints, flags: TestFlags) -> Result<Told, Exit> {
    let id = &flags.id;
    let facts =
        Facts::read(&endpoints.record(id).await?).map_err(|why| Exit::usage(format!("{id}: {why}")))?;
    let secret = endpoints.secret(&facts.secret).await?;
    let secret = secret.ok_or_else(|| {
        let name = &facts.secret;
        Exit::usage(format!("{name} is not set; ostler vault set {name} keeps it"))
    })?;
    let body = flags.body.unwrap_or_else(|| curl::body(&facts));
    let url = endpoints.url(id);
    // The record is there and valid, but the daemon may not have read it yet.
    let begun = Instant::now();
    let (status, answer) = loop {
        let (status, answer) = call(&facts, &url, &secret, body.clone()).await?;
        if status != 404 || begun.elapsed() > READ_WITHIN {
            break (status, answer);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let good = (200..300).contains(&status);
    let lines = vec![format!("{url} answered {status}"), answer.clone()];
    let answer: Value = serde_json::from_str(&answer).unwrap_or(Value::String(answer));
    let json = json!({ "id": id, "url": url, "status": status, "answer": answer });
    Ok(Told { lines, json, names: vec![id.clone()], good })
}

async fn call(facts: &Facts, url: &str, secret: &str, body: String) -> Result<(u16, String), Exit> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let delivery = uuid::Uuid::new_v4().to_string();
    let admission = facts.admission(secret, &delivery, now, body.as_bytes());
    let mut request = Request::new(Body::from(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = url.parse().map_err(|_| Exit::usage(format!("{url} cannot be called")))?;
    let headers = request.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in admission {
        let name = header::HeaderName::try_from(name).ok();
        let value = HeaderValue::try_from(value).ok();
        let (Some(name), Some(mut value)) = (name, value) else {
            return Err(Exit::usage(format!("the secret {} cannot stand in a header", facts.secret)));
        };
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    let failed = |why: &dyn std::fmt::Display| {
        Exit::machine(format!("{url} did not answer: {why}; ostler status says where the daemon runs"))
    };
    let client = Client::default();
    let response = tokio::time::timeout(LIMIT, client.send(request))
        .await
        .map_err(|_| failed(&format!("nothing came within {} seconds", LIMIT.as_secs())))?
        .map_err(|why| failed(&why))?;
    let status = response.status().as_u16();
    let mut answer = Vec::new();
    if let Some(mut chunks) = response.into_body() {
        while let Some(Ok(chunk)) = chunks.next().await {
            answer.extend_from_slice(&chunk);
            if answer.len() > SHOWN {
                break;
            }
        }
    }
    Ok((status, String::from_utf8_lossy(&answer).into_owned()))
}
