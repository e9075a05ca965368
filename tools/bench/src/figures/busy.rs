//! A JavaScript plugin under load, compared with the same plugin in Node: its tool called in a turn, its route called,
//! and its channel published to 100 subscribers, where the plugin checks visibility for each subscriber.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::json;

use super::super::context::Context;
use super::super::failure::{Failure, Result};
use super::super::figure::Figure;
use super::super::net::crowd::{Crowd, TurnActions};
use super::super::net::frames;
use super::super::net::http_load::{Until, calls_per_second};
use super::super::net::ws::Ws;
use super::super::ostler::Folder;
use super::super::rounds::{Column, Side, alternate};
use super::super::stats::{median, percentile};

/// Turns for the warm-up, and timed turns.
const TURNS: (usize, usize) = (30, 300);
/// Connections that call the route.
const CALLERS: usize = 32;
/// Subscribers of the channel.
const SUBSCRIBERS: usize = 100;
/// Actions published per repetition.
const WORDS: usize = 200;
/// Repetitions for the warm-up, and timed ones.
const GOES: (usize, usize) = (2, 7);

const COLUMNS: &[Column] = &[
    ("turn that calls a JavaScript tool: p50", "ms", None),
    ("JavaScript route answered, 32 connections", "k calls/s", None),
    ("published to 100 through a JavaScript visible", "k actions/s", None),
];

pub fn measure(context: &Context) -> Result<Vec<Figure>> {
    let folder = folder(context)?;
    alternate(context.bounds(5, Duration::from_secs(90)), COLUMNS, |side| {
        let (_process, address) = match (side, &context.node) {
            (Side::Ostler, _) => context.ostler.start(&folder)?,
            (Side::Floor, Some(node)) => node.start("floor-host.mjs", &[])?,
            (Side::Floor, None) => return Err(Failure::new("there is no node")),
        };
        Ok(vec![tool(address)?, route(address)?, publishes(address)?])
    })
}

fn folder(context: &Context) -> Result<Folder> {
    let folder = Folder::new(
        &context.root,
        &[json!({ "name": "@ostler/echo" }), json!({ "name": "./busy-plugin.mjs" })],
    )?;
    folder.copy(&context.root.join("benches/busy-plugin.mjs"), "busy-plugin.mjs")?;
    Ok(folder)
}

/// Returns the milliseconds from the message that begins a turn to the action that ends it, including a tool call.
fn tool(address: SocketAddr) -> Result<f64> {
    // The folder is reused, with its sessions.
    let session = format!("echo:/{:032x}", address.port());
    let mut client = Ws::introduced(address, "caller")?;
    client.ask("createSession", json!({ "channel": session, "provider": "echo" }))?;
    let subscribed = client.ask("subscribe", json!({ "channel": session }))?;
    let chat = subscribed.pointer("/snapshot/state/defaultChat").cloned().unwrap_or_default();
    client.ask("subscribe", json!({ "channel": chat }))?;
    let mut took = Vec::with_capacity(TURNS.1);
    for at in 0..TURNS.0 + TURNS.1 {
        let begin = json!({ "jsonrpc": "2.0", "method": "dispatchAction", "params": {
            "channel": chat, "clientSeq": at + 1,
            "action": { "type": "chat/turnStarted", "turnId": format!("turn-{at}"),
                "message": { "text": format!("/tool stamp {{\"n\":{at}}}"), "origin": { "kind": "user" } } } } });
        let begin = frames::text(&begin.to_string());
        let begun = Instant::now();
        client.write(&begin)?;
        client.until(format!("stamped {}", at + 1).as_bytes())?;
        client.until(br#""type":"chat/turnComplete""#)?;
        if at >= TURNS.0 {
            took.push(begun.elapsed().as_secs_f64() * 1000.0);
        }
    }
    percentile(&took, 0.5).ok_or_else(|| Failure::new("no turn was timed"))
}

/// Returns the thousands of calls answered per second.
fn route(address: SocketAddr) -> Result<f64> {
    let request = format!("GET /plugins/busy-plugin/horses HTTP/1.1\r\nHost: {address}\r\n\r\n");
    calls_per_second(address, CALLERS, request.as_bytes(), 200, Until::Time(Duration::from_millis(300)))?;
    Ok(calls_per_second(address, CALLERS, request.as_bytes(), 200, Until::Time(Duration::from_millis(1000)))?
        / 1000.0)
}

/// Returns the thousands of actions delivered per second.
fn publishes(address: SocketAddr) -> Result<f64> {
    let mut connections = Vec::with_capacity(SUBSCRIBERS);
    for at in 0..SUBSCRIBERS {
        let mut connection = Ws::introduced(address, &format!("watcher-{at}"))?;
        connection.ask("subscribe", json!({ "channel": "x-busy://board" }))?;
        connections.push(connection);
    }
    let mut crowd = Crowd::new(connections, &TurnActions::of("x-busy"))?;
    let mut rates = Vec::with_capacity(GOES.1);
    for at in 0..GOES.0 + GOES.1 {
        let params = json!({ "channel": "ahp-root://", "words": WORDS });
        let go = json!({ "jsonrpc": "2.0", "id": 1000 + at, "method": "x-busy/say", "params": params });
        let took = crowd.run_turn(&frames::text(&go.to_string()), WORDS)?;
        if at >= GOES.0 {
            rates.push((WORDS * SUBSCRIBERS) as f64 / took.as_secs_f64() / 1000.0);
        }
    }
    median(&rates).ok_or_else(|| Failure::new("nothing was published"))
}
