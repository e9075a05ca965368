//! One host on PostgreSQL, beside the same on SQLite, whose file is on the same disk.

use std::time::{Duration, Instant};

use serde_json::json;

use super::super::super::context::Context;
use super::super::super::failure::Result;
use super::super::super::figure::Figure;
use super::super::super::net::http_load::{Until, calls_per_second, latencies};
use super::super::super::net::talk::Talk;
use super::super::super::net::ws::Ws;
use super::super::super::postgres::Postgres;
use super::super::super::rounds::{Bounds, Column, Side, alternate};
use super::super::super::timing::{share, timed};
use super::hosts::{CONNECTIONS, Host, Hosts, Runs};

/// Operations for the warm-up.
const FIRST: usize = 50;
/// Timed operations.
const TIMED: usize = 300;
/// The duration of the warm-up of calls over many connections.
const BEFORE: Duration = Duration::from_millis(300);
/// The duration of their measurement.
const DURING: Duration = Duration::from_millis(1000);

const COLUMNS: &[Column] = &[
    ("createSession on PostgreSQL, beside SQLite: p50", "ms", None),
    ("the same: p99", "ms", None),
    ("a title to its own echo on PostgreSQL, beside SQLite: p50", "ms", None),
    ("webhook call, run stored, on PostgreSQL, beside SQLite: p50", "ms", None),
    ("the same over 32 connections", "k calls/s", None),
];

pub fn measure(context: &Context, server: &Postgres) -> Result<Vec<Figure>> {
    let bounds = Bounds { floor: true, ..context.bounds(3, Duration::from_secs(45)) };
    alternate(bounds, COLUMNS, |side| match side {
        Side::Ostler => one(&Hosts::alone(context, server)?.each[0], || server.analyze()),
        Side::Floor => one(&Host::on_files(context)?, || Ok(())),
    })
}

/// Measures a host; `settle` runs between the warm-up and the measurement.
fn one(host: &Host, settle: impl FnOnce() -> Result<()>) -> Result<Vec<f64>> {
    let mut client = Ws::introduced(host.address, "creator")?;
    let mut talk = Talk::create(host.address, "echo:/talk")?;
    let mut number = 0;
    let mut create = |_| {
        number += 1;
        let params = json!({ "channel": format!("echo:/{number:032x}"), "provider": "echo" });
        let (id, request) = client.request("createSession", params);
        let begun = Instant::now();
        client.exchange(id, &request)?;
        Ok(begun.elapsed())
    };
    let request = host.call(Runs::Wait, 0);
    let rate = |time| calls_per_second(host.address, CONNECTIONS, &request, 202, Until::Time(time));
    timed(FIRST, 0, &mut create)?;
    timed(FIRST, 0, |at| talk.title(at))?;
    rate(BEFORE)?;
    settle()?;
    let created = timed(FIRST, TIMED, &mut create)?;
    let titled = timed(FIRST, TIMED, |at| talk.title(FIRST + at))?;
    let called = latencies(host.address, &request, 202, FIRST, TIMED)?;
    let rate = rate(DURING)? / 1000.0;
    Ok(vec![share(&created, 0.5)?, share(&created, 0.99)?, share(&titled, 0.5)?, share(&called, 0.5)?, rate])
}
