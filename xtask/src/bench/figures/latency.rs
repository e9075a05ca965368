//! The latency of one client: its own actions, and the first words of a turn. The floor is the Rust server of
//! `benches/floor`: it commits one row before it responds to a durable operation, and uses a map for the others. The
//! server runs on one core and its client on another, because otherwise the scheduler places them randomly.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::context::{Context, Running};
use super::super::failure::{Failure, Result};
use super::super::figure::{Figure, Target};
use super::super::floor::Persistence;
use super::super::net::frames;
use super::super::net::ws::Ws;
use super::super::process::{pin_thread, unpin_thread};
use super::super::rounds::{Bounds, Column, Side, alternate};
use super::super::stats::percentile;

/// The core of the client, and that of the server.
const CLIENT: &str = "0";
const SERVER: &str = "1";
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
        let took = timed(|at| {
            let params = json!({ "channel": format!("echo:/{at:032x}"), "provider": "echo" });
            let (id, request) = client.request("createSession", params);
            let begun = Instant::now();
            client.exchange(id, &request)?;
            Ok(begun.elapsed())
        })?;
        Ok(vec![share(&took, 0.5)?, share(&took, 0.99)?])
    })?;
    figures.extend(alternate(bounds, TITLED, |side| {
        let mut at_work = AtWork::begin(start(context, side, Persistence::Durable)?)?;
        let took = timed(|at| {
            let title = format!("title {at}");
            let action = json!({ "type": "session/titleChanged", "title": title });
            at_work.echo(Channel::Session, &action, &format!("\"{title}\""))
        })?;
        Ok(vec![share(&took, 0.5)?])
    })?);
    figures.extend(alternate(bounds, MARKED, |side| {
        let mut at_work = AtWork::begin(start(context, side, Persistence::InMemory)?)?;
        let took = timed(|at| {
            let is_read = at % 2 == 0;
            let action = json!({ "type": "session/isReadChanged", "isRead": is_read });
            at_work.echo(Channel::Session, &action, &format!("\"isRead\":{is_read}"))
        })?;
        Ok(vec![share(&took, 0.5)?])
    })?);
    figures.extend(alternate(bounds, SPOKEN, |side| {
        let mut at_work = AtWork::begin(start(context, side, Persistence::Durable)?)?;
        let took = timed(|at| {
            let action = json!({ "type": "chat/turnStarted", "turnId": format!("turn-{at}"),
                "message": { "text": "/words 1", "origin": { "kind": "user" } } });
            let took = at_work.echo(Channel::Chat, &action, "\"chat/delta\"")?;
            at_work.client.until(b"\"chat/turnComplete\"")?;
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

fn timed(mut operation: impl FnMut(usize) -> Result<Duration>) -> Result<Vec<f64>> {
    let mut took = Vec::with_capacity(TIMED);
    for at in 0..FIRST + TIMED {
        let one = operation(at)?;
        if at >= FIRST {
            took.push(one.as_secs_f64() * 1000.0);
        }
    }
    Ok(took)
}

fn share(took: &[f64], share: f64) -> Result<f64> {
    percentile(took, share).ok_or_else(|| Failure::new("nothing was timed"))
}

#[derive(Clone, Copy)]
enum Channel {
    Session,
    Chat,
}

/// One client of one session, subscribed to it and its chat.
struct AtWork {
    client: Ws,
    session: String,
    chat: String,
    seq: u64,
    _server: Running,
}

impl AtWork {
    fn begin(server: Running) -> Result<Self> {
        let session = format!("echo:/{:032x}", 1);
        let mut client = Ws::introduced(server.address, "bench")?;
        client.ask("createSession", json!({ "channel": session, "provider": "echo" }))?;
        let subscribed = client.ask("subscribe", json!({ "channel": session }))?;
        let chat = subscribed
            .pointer("/snapshot/state/defaultChat")
            .and_then(Value::as_str)
            .ok_or_else(|| Failure::new(format!("the session has no chat: {subscribed}")))?
            .to_owned();
        client.ask("subscribe", json!({ "channel": chat }))?;
        Ok(Self { client, session, chat, seq: 0, _server: server })
    }

    /// Returns the time from the dispatch of an action to a frame that contains `wanted`.
    fn echo(&mut self, channel: Channel, action: &Value, wanted: &str) -> Result<Duration> {
        self.seq += 1;
        let channel = match channel {
            Channel::Session => &self.session,
            Channel::Chat => &self.chat,
        };
        let params = json!({ "channel": channel, "clientSeq": self.seq, "action": action });
        let dispatch = json!({ "jsonrpc": "2.0", "method": "dispatchAction", "params": params });
        let frame = frames::text(&dispatch.to_string());
        let begun = Instant::now();
        self.client.write(&frame)?;
        self.client.until(wanted.as_bytes())?;
        Ok(begun.elapsed())
    }
}
