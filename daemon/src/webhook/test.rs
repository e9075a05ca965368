//! `ostler webhook test`: calls an endpoint like a sender.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use futures::StreamExt;
use ostler_contract::http::{Body, HeaderValue, Method, Request, header};
use ostler_contract::{Value, json};
use ostler_net::Client;
use ostler_plugin_webhook::tools::EndpointFacts;

use super::{Endpoints, VerbOutput, automation, curl, follow, log};
use crate::exit::Exit;

/// The limit of the daemon in addition to that of a sync call.
const LIMIT: Duration = Duration::from_secs(120);
/// How long to wait until a daemon has read a new record.
const READ_WITHIN: Duration = Duration::from_secs(5);
/// How long a call may be missing in the log of a busy daemon.
const RECORDED_WITHIN: Duration = Duration::from_secs(30);
/// The shown length of an answer.
const SHOWN: usize = 1 << 20;

/// The flags of `ostler webhook test`.
#[derive(Debug, Clone, Default, Args)]
pub struct TestFlags {
    /// Endpoint id
    pub id: String,
    /// Request body [default: a minimal valid body]
    #[arg(long, value_name = "TEXT")]
    pub body: Option<String>,
    /// Print the resulting runs or turn until they end
    #[arg(short, long)]
    pub follow: bool,
}

pub(super) async fn test(endpoints: &Endpoints, flags: TestFlags) -> Result<VerbOutput, Exit> {
    let id = &flags.id;
    let facts = EndpointFacts::read(&endpoints.record(id).await?)
        .map_err(|why| Exit::usage(format!("{id}: {why}")))?;
    let secret = endpoints.secret(&facts.secret).await?;
    let secret = secret.ok_or_else(|| {
        let name = &facts.secret;
        Exit::usage(format!("{name} is not set; set it with: ostler vault set {name}"))
    })?;
    if let Some(why) = facts.unusable(&secret) {
        return Err(Exit::usage(format!("{} {why}", facts.secret)));
    }
    let body = flags.body.unwrap_or_else(|| curl::body(&facts));
    let (url, local) = (endpoints.url(id), endpoints.local_url(id));
    let daemon = match flags.follow {
        true => Some(endpoints.connect().await?.ok_or_else(|| {
            Exit::machine("no daemon is running, so the run cannot be followed; start it with: ostler start")
        })?),
        false => None,
    };
    let before = log::calls(endpoints, id).await?;
    // The record exists and is valid, but the daemon may not have read it yet.
    let begun = Instant::now();
    let (status, answer) = loop {
        let (status, answer) = call(&facts, &local, &secret, body.clone()).await?;
        if status != 404 || begun.elapsed() > READ_WITHIN {
            break (status, answer);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let mut good = (200..300).contains(&status);
    let called = if url == local { url.clone() } else { format!("{url} (called at {local})") };
    let said = [format!("{called} returned {status}"), answer.clone()];
    let answer: Value = serde_json::from_str(&answer).unwrap_or(Value::String(answer));
    let mut json = json!({ "id": id, "url": url, "status": status, "answer": answer });
    let Some(daemon) = daemon.filter(|_| good) else {
        if good {
            // The log contains the call from here on.
            let _ = logged(endpoints, id, &before).await;
        }
        let mut lines = said.to_vec();
        if good && facts.bot.is_none() {
            lines.push(format!("see the outcome with: ostler webhook log {id}, or use --follow"));
        }
        return Ok(VerbOutput { lines, json, names: vec![id.clone()], good });
    };
    let mut screen = endpoints.screen;
    said.iter().for_each(|line| screen.line(line));
    let call = logged(endpoints, id, &before).await?;
    let mut followed = follow::follow(&daemon, screen, &call, &mut json).await?;
    if !followed.any && facts.bot.is_none() {
        good = false;
        followed.lines.push("the call started no run".to_owned());
        let listeners = endpoints.listeners(id).await;
        let why = call["unstarted"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let why: Vec<String> = why.map(str::to_owned).collect();
        match listeners.is_empty() && why.iter().all(|why| !why.starts_with("automation ")) {
            true => followed.lines.extend(automation::lines(id, &listeners)),
            false => followed.lines.extend(why),
        }
    }
    Ok(VerbOutput { lines: followed.lines, json, names: vec![id.clone()], good: good && followed.good })
}

/// Returns the log row of this call, which the plugin stores within half a second.
async fn logged(endpoints: &Endpoints, id: &str, before: &[Value]) -> Result<Value, Exit> {
    let begun = Instant::now();
    loop {
        // A full log has as many rows as before, so the row is known by its id.
        let calls = log::calls(endpoints, id).await?;
        let is_new = |call: &Value| !before.iter().any(|older| older["id"] == call["id"]);
        if let Some(call) = calls.into_iter().rev().find(is_new) {
            return Ok(call);
        }
        if begun.elapsed() > RECORDED_WITHIN {
            return Err(Exit::machine(format!(
                "the call was not recorded in the log of {id}; see ostler logs"
            )));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn call(facts: &EndpointFacts, url: &str, secret: &str, body: String) -> Result<(u16, String), Exit> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let delivery = uuid::Uuid::new_v4().to_string();
    let call = facts.call(secret, &delivery, now, body).map_err(Exit::usage)?;
    let mut request = Request::new(Body::from(call.body));
    *request.method_mut() = Method::POST;
    let url = &call.query.map_or_else(|| url.to_owned(), |query| format!("{url}?{query}"));
    *request.uri_mut() = url.parse().map_err(|_| Exit::usage(format!("{url} is not a valid URL to call")))?;
    let headers = request.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in call.headers {
        let name = header::HeaderName::try_from(name).ok();
        let value = HeaderValue::try_from(value).ok();
        let (Some(name), Some(mut value)) = (name, value) else {
            return Err(Exit::usage(format!(
                "the secret {} contains characters that are not allowed in a header",
                facts.secret
            )));
        };
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    let failed = |why: &dyn std::fmt::Display| {
        Exit::machine(format!("{url} did not respond: {why}; check the daemon with: ostler status"))
    };
    let client = Client::default();
    let response = tokio::time::timeout(LIMIT, client.send(request))
        .await
        .map_err(|_| failed(&format!("no response within {} seconds", LIMIT.as_secs())))?
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
