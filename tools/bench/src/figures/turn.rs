//! A turn of 1,000 deltas: the number of actions delivered per second, over all subscribers. Every subscriber must
//! receive every delta as a separate action, in order; coalesced deltas fail the run.

use std::time::Duration;

use serde_json::json;

use super::super::context::{Context, Running};
use super::super::failure::{Failure, Result};
use super::super::figure::{Figure, Target};
use super::super::net::crowd::{Crowd, TurnActions};
use super::super::net::frames;
use super::super::net::ws::Ws;
use super::super::rounds::{Column, alternate};
use super::super::stats::median;

/// Deltas of a turn.
const WORDS: usize = 1000;
/// Turns for the warm-up.
const FIRST: usize = 2;
/// Timed turns; the median counts.
const TIMED: usize = 9;

const COLUMNS: &[Column] = &[
    ("1,000 deltas to 1 subscriber", "k actions/s", Some(Target::AtLeast(2.0))),
    ("1,000 deltas to 10 subscribers", "k actions/s", Some(Target::AtLeast(4.0))),
    ("1,000 deltas to 100 subscribers", "k actions/s", Some(Target::AtLeast(4.0))),
];
const CROWDS: [usize; 3] = [1, 10, 100];

pub fn measure(context: &Context) -> Result<Vec<Figure>> {
    alternate(context.bounds(7, Duration::from_secs(90)), COLUMNS, |side| {
        let server = context.start(side)?;
        CROWDS.into_iter().map(|subscribers| rate(&server, subscribers)).collect()
    })
}

/// Returns the thousands of actions delivered per second in the median turn.
fn rate(server: &Running, subscribers: usize) -> Result<f64> {
    let session = format!("echo:/{subscribers:032x}");
    let mut first = Ws::introduced(server.address, "bench-0")?;
    first.ask("createSession", json!({ "channel": session, "provider": "echo" }))?;
    let subscribed = first.ask("subscribe", json!({ "channel": session }))?;
    let chat = subscribed
        .pointer("/snapshot/state/defaultChat")
        .and_then(|chat| chat.as_str())
        .ok_or_else(|| Failure::new(format!("the session has no chat: {subscribed}")))?
        .to_owned();
    let mut connections = vec![first];
    for at in 1..subscribers {
        connections.push(Ws::introduced(server.address, &format!("bench-{at}"))?);
    }
    for connection in &mut connections {
        connection.ask("subscribe", json!({ "channel": chat }))?;
    }
    let mut crowd = Crowd::new(connections, &TurnActions::of("chat"))?;
    let mut rates = Vec::with_capacity(TIMED);
    for at in 0..FIRST + TIMED {
        let begin = frames::text(
            &json!({ "jsonrpc": "2.0", "method": "dispatchAction", "params": {
                "channel": chat, "clientSeq": at + 1,
                "action": { "type": "chat/turnStarted", "turnId": format!("turn-{at}"),
                    "message": { "text": format!("/words {WORDS}"), "origin": { "kind": "user" } } } } })
            .to_string(),
        );
        let took = crowd.run_turn(&begin, WORDS)?;
        if at >= FIRST {
            rates.push((WORDS * subscribers) as f64 / took.as_secs_f64() / 1000.0);
        }
    }
    median(&rates).ok_or_else(|| Failure::new("no turn was timed"))
}
