//! The time until a client's turn is cancelled, while that turn and those of three other sessions stream words as fast
//! as the daemon accepts them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::context::Context;
use super::super::failure::{Failure, Result};
use super::super::figure::{Figure, Target};
use super::super::net::frames;
use super::super::net::ws::Ws;
use super::super::rounds::{Bounds, Column, Side, alternate};
use super::super::stats::percentile;

/// Other sessions that stream concurrently, each to its own client.
const OTHERS: usize = 3;
/// Words of a turn: more than are streamed before it is cancelled.
const WORDS: usize = 200_000;
/// Timed cancellations.
const TIMED: usize = 50;

const COLUMNS: &[Column] = &[
    ("a cancel to its own echo while four sessions stream: p50", "ms", None),
    ("a cancel to its own echo while four sessions stream: the slowest", "ms", Some(Target::Under(100.0))),
];

pub fn measure(context: &Context) -> Result<Vec<Figure>> {
    let bounds = Bounds { floor: false, ..context.bounds(3, Duration::from_secs(60)) };
    alternate(bounds, COLUMNS, |_| {
        let server = context.start(Side::Ostler)?;
        let over = AtomicBool::new(false);
        let took = thread::scope(|scope| {
            let others: Vec<_> = (1..=OTHERS)
                .map(|number| {
                    let (over, address) = (&over, server.address);
                    scope.spawn(move || -> Result<()> {
                        let mut streaming = Streaming::begin(address, number)?;
                        while !over.load(Ordering::Relaxed) {
                            streaming.cancelled()?;
                        }
                        Ok(())
                    })
                })
                .collect();
            let took = Streaming::begin(server.address, 0).and_then(|mut streaming| {
                (0..TIMED).map(|_| streaming.cancelled()).collect::<Result<Vec<f64>>>()
            });
            over.store(true, Ordering::Relaxed);
            for other in others {
                other.join().map_err(|_| Failure::new("a client panicked"))??;
            }
            took
        })?;
        let share = |share| percentile(&took, share).ok_or_else(|| Failure::new("nothing was timed"));
        Ok(vec![share(0.5)?, share(1.0)?])
    })
}

/// A client with its own session.
struct Streaming {
    client: Ws,
    chat: String,
    seq: u64,
}

impl Streaming {
    fn begin(address: SocketAddr, number: usize) -> Result<Self> {
        let session = format!("echo:/{number:032x}");
        let mut client = Ws::introduced(address, &format!("bench-{number}"))?;
        client.ask("createSession", json!({ "channel": session, "provider": "echo" }))?;
        let subscribed = client.ask("subscribe", json!({ "channel": session }))?;
        let chat = subscribed
            .pointer("/snapshot/state/defaultChat")
            .and_then(Value::as_str)
            .ok_or_else(|| Failure::new(format!("the session has no chat: {subscribed}")))?
            .to_owned();
        client.ask("subscribe", json!({ "channel": chat }))?;
        Ok(Self { client, chat, seq: 0 })
    }

    /// Begins a turn, cancels it after its first words, and returns the milliseconds until the cancellation is echoed.
    fn cancelled(&mut self) -> Result<f64> {
        let turn = format!("turn-{}", self.seq);
        self.dispatch(&json!({ "type": "chat/turnStarted", "turnId": turn,
            "message": { "text": format!("/words {WORDS}"), "origin": { "kind": "user" } } }))?;
        self.client.until(b"\"chat/delta\"")?;
        let begun = Instant::now();
        self.dispatch(&json!({ "type": "chat/turnCancelled", "turnId": turn, "duration": 0 }))?;
        self.client.until(b"\"chat/turnCancelled\"")?;
        Ok(begun.elapsed().as_secs_f64() * 1000.0)
    }

    fn dispatch(&mut self, action: &Value) -> Result<()> {
        self.seq += 1;
        let params = json!({ "channel": self.chat, "clientSeq": self.seq, "action": action });
        let dispatch = json!({ "jsonrpc": "2.0", "method": "dispatchAction", "params": params });
        self.client.write(&frames::text(&dispatch.to_string()))
    }
}
