//! The latency of one client: its own actions, and the first words of a turn. The floor is the Rust server of
//! `benches/floor`: it commits one row before it responds to a durable operation, and uses a map for the others. The
//! server runs on one core and its client on another, because otherwise the scheduler places them randomly.

use std::time::{Duration, Instant};

use serde_json::json;

use super::super::context::{Context, Running};
use super::super::failure::Result;
use super::super::figure::{Figure, Target};
use super::super::floor::Persistence;
use super::super::net::talk::{Channel, Talk};
use super::super::net::ws::Ws;
use super::super::process::{pin_thread, unpin_thread};
use super::super::rounds::{Bounds, Column, Side, alternate};
use super::super::timing::{share, timed};

/// The core of the client, and that of the server.
const CLIENT: &str = "0";
const SERVER: &str = "1";
/// The session of the actions.
const SESSION: &str = "echo:/00000000000000000000000000000001";
/// Operations for the warm-up.
const FIRST: usize = 50;
/// Timed operations.
const TIMED: usize = 500;

const CREATED: &[Column] = &[
    ("createSession, durable: p50", "ms", Some(Target::AtMost(1.5))),
    ("createSession, durable: p99", "ms", None),
];
const TITLED: &[Column] = &[("a title to its own echo, durable: p50", "ms", Some(Target::AtMost(1.5)))];
const MARKED: &[Column] = &[("a read mark to its own echo: p50", "ms", Some(Target::AtMost(1.5)))];
const SPOKEN: &[Column] = &[("the first delta of a turn, durable: p50", "ms", Some(Target::AtMost(1.5)))];

pub fn measure(context: &Context) -> Result<Vec<Figure>> {
    pin_thread(CLIENT);
    let figures = measure_pinned(context);
    unpin_thread();
    figures
}

fn measure_pinned(context: &Context) -> Result<Vec<Figure>> {
    let bounds = Bounds { floor: true, ..context.bounds(5, Duration::from_secs(30)) };
    let mut figures = alternate(bounds, CREATED, |side| {
        let server = start(context, side, Persistence::Durable)?;
        let mut client = Ws::introduced(server.address, "bench")?;
        let took = timed(FIRST, TIMED, |at| {
            let params = json!({ "channel": format!("echo:/{at:032x}"), "provider": "echo" });
            let (id, request) = client.request("createSession", params);
            let begun = Instant::now();
            client.exchange(id, &request)?;
            Ok(begun.elapsed())
        })?;
        Ok(vec![share(&took, 0.5)?, share(&took, 0.99)?])
    })?;
    figures.extend(alternate(bounds, TITLED, |side| {
        let server = start(context, side, Persistence::Durable)?;
        let mut talk = Talk::create(server.address, SESSION)?;
        let took = timed(FIRST, TIMED, |at| talk.title(at))?;
        Ok(vec![share(&took, 0.5)?])
    })?);
    figures.extend(alternate(bounds, MARKED, |side| {
        let server = start(context, side, Persistence::InMemory)?;
        let mut talk = Talk::create(server.address, SESSION)?;
        let took = timed(FIRST, TIMED, |at| talk.mark(at))?;
        Ok(vec![share(&took, 0.5)?])
    })?);
    figures.extend(alternate(bounds, SPOKEN, |side| {
        let server = start(context, side, Persistence::Durable)?;
        let mut talk = Talk::create(server.address, SESSION)?;
        let took = timed(FIRST, TIMED, |at| {
            let action = json!({ "type": "chat/turnStarted", "turnId": format!("turn-{at}"),
                "message": { "text": "/words 1", "origin": { "kind": "user" } } });
            let took = talk.echo(Channel::Chat, &action, "\"chat/delta\"")?;
            talk.until(b"\"chat/turnComplete\"")?;
            Ok(took)
        })?;
        Ok(vec![share(&took, 0.5)?])
    })?);
    Ok(figures)
}

fn start(context: &Context, side: Side, persistence: Persistence) -> Result<Running> {
    let running = match side {
        Side::Ostler => context.start(side),
        Side::Floor => context.start_rust_floor(persistence),
    }?;
    running.process.pin(SERVER);
    Ok(running)
}
