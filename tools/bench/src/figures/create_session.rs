//! `createSession` requests in sequence on one connection. The daemon responds once the session is on disk; the floor
//! puts it into a map.

use std::time::{Duration, Instant};

use serde_json::json;

use super::super::context::Context;
use super::super::failure::{Failure, Result};
use super::super::figure::{Figure, Target};
use super::super::net::ws::Ws;
use super::super::rounds::{Column, alternate};
use super::super::stats::percentile;

/// Sessions created for the warm-up.
const FIRST: usize = 50;
/// Timed sessions.
const TIMED: usize = 500;

const COLUMNS: &[Column] =
    &[("createSession, kept: p50", "ms", Some(Target::Under(1.0))), ("createSession, kept: p99", "ms", None)];

pub fn measure(context: &Context) -> Result<Vec<Figure>> {
    alternate(context.bounds(5, Duration::from_secs(60)), COLUMNS, |side| {
        let server = context.start(side)?;
        let mut client = Ws::introduced(server.address, "bench")?;
        let mut took = Vec::with_capacity(TIMED);
        for at in 0..FIRST + TIMED {
            let params = json!({ "channel": format!("echo:/{at:032x}"), "provider": "echo" });
            let (id, request) = client.request("createSession", params);
            let begun = Instant::now();
            client.exchange(id, &request)?;
            if at >= FIRST {
                took.push(begun.elapsed().as_secs_f64() * 1000.0);
            }
        }
        let share = |share| percentile(&took, share).ok_or_else(|| Failure::new("no session was made"));
        Ok(vec![share(0.5)?, share(0.99)?])
    })
}
