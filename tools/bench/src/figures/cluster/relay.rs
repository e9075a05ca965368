//! A client of a host that does not own the session, beside one of the owner: what passing its actions on costs. In the same way, a
//! webhook call that another host than the owner of its automation receives.

use std::time::Duration;

use serde_json::json;

use super::super::super::context::Context;
use super::super::super::failure::Result;
use super::super::super::figure::{Figure, Pair, Target};
use super::super::super::net::crowd::{Crowd, TurnActions};
use super::super::super::net::frames;
use super::super::super::net::http_load::latencies;
use super::super::super::net::talk::Talk;
use super::super::super::postgres::Postgres;
use super::super::super::rounds::{Bounds, Column, Side, alternate};
use super::super::super::stats::median;
use super::super::super::timing::{share, timed};
use super::hosts::{Host, Hosts, Runs};

/// Operations for the warm-up.
const FIRST: usize = 50;
/// Timed operations.
const TIMED: usize = 300;
/// Calls of a webhook, which other hosts answer far later.
const CALLS: (usize, usize) = (10, 50);
/// Deltas of a turn.
const WORDS: usize = 1000;
/// Turns for the warm-up, and timed ones; the median counts.
const TURNS: (usize, usize) = (2, 7);

const COLUMNS: &[Column] = &[
    ("a title to its own echo through another host, beside the owner: p50", "ms", None),
    ("a read mark to its own echo through another host, beside the owner: p50", "ms", None),
    ("1,000 deltas to 1 subscriber at another host, beside the owner", "k actions/s", None),
    ("1,000 deltas to 10 subscribers at another host, beside the owner", "k actions/s", None),
    ("webhook call at another host than the owner, beside the owner: p50", "ms", None),
];
/// What the relay adds to the first two columns.
const ADDED: [&str; 2] = ["what the relay adds to a title: p50", "what the relay adds to a read mark: p50"];
/// The aim for that.
const AIM: Target = Target::Under(1.0);

pub fn measure(context: &Context, server: &Postgres) -> Result<Vec<Figure>> {
    let bounds = Bounds { floor: true, ..context.bounds(3, Duration::from_secs(60)) };
    let hosts = Hosts::cluster(context, server, 2)?;
    let [first, second] = &hosts.each[..] else { return Ok(Vec::new()) };
    // The first call determines the owner of the automation.
    latencies(first.address, &first.call(Runs::Wait, 0), 202, 0, 1)?;
    let caller = match hosts.owners(server)?.get(&Runs::Wait.endpoint(0)) {
        Some(0) => (second, first),
        _ => (first, second),
    };
    let mut measured = 0;
    let mut figures = alternate(bounds, COLUMNS, |side| {
        measured += 1;
        let (client_of, called) = match side {
            Side::Ostler => (second, caller.0),
            Side::Floor => (first, caller.1),
        };
        let values = one(first, client_of, called, measured)?;
        // The first round is the warm-up.
        if measured <= 2 {
            server.analyze()?;
        }
        Ok(values)
    })?;
    for (at, label) in ADDED.into_iter().enumerate() {
        let added = figures[at].rounds.iter().map(|pair| {
            let added = pair.ostler - pair.floor.unwrap_or_default();
            Pair { ostler: added, floor: None }
        });
        let rounds = added.collect();
        figures.push(Figure { label, unit: "ms", target: Some(AIM), rounds });
    }
    Ok(figures)
}

fn one(owner: &Host, client_of: &Host, called: &Host, measured: usize) -> Result<Vec<f64>> {
    let session = |name: &str| format!("echo:/{name}-{measured}");
    // Their creators have disconnected, so that all actions have one subscriber.
    drop(Talk::create(owner.address, &session("talk"))?);
    let mut talk = Talk::follow(client_of.address, &session("talk"), "talking")?;
    let titled = timed(FIRST, TIMED, |at| talk.title(at))?;
    let marked = timed(FIRST, TIMED, |at| talk.mark(at))?;
    drop(talk);
    let mut rates = Vec::new();
    for subscribers in [1, 10] {
        let session = session(&format!("crowd-{subscribers}"));
        drop(Talk::create(owner.address, &session)?);
        rates.push(rate(client_of, &session, subscribers)?);
    }
    let calls = latencies(called.address, &called.call(Runs::Wait, 0), 202, CALLS.0, CALLS.1)?;
    Ok(vec![share(&titled, 0.5)?, share(&marked, 0.5)?, rates[0], rates[1], share(&calls, 0.5)?])
}

/// Returns the thousands of actions delivered per second in the median turn.
fn rate(client_of: &Host, session: &str, subscribers: usize) -> Result<f64> {
    let mut connections = Vec::with_capacity(subscribers);
    let mut chat = String::new();
    for at in 0..subscribers {
        let connection;
        (connection, chat) = Talk::follow(client_of.address, session, &format!("bench-{at}"))?.into_parts();
        connections.push(connection);
    }
    let mut crowd = Crowd::new(connections, &TurnActions::of("chat"))?;
    let mut rates = Vec::with_capacity(TURNS.1);
    for at in 0..TURNS.0 + TURNS.1 {
        let action = json!({ "type": "chat/turnStarted", "turnId": format!("turn-{at}"),
            "message": { "text": format!("/words {WORDS}"), "origin": { "kind": "user" } } });
        let params = json!({ "channel": chat, "clientSeq": at + 1, "action": action });
        let dispatch = json!({ "jsonrpc": "2.0", "method": "dispatchAction", "params": params });
        let took = crowd.run_turn(&frames::text(&dispatch.to_string()), WORDS)?;
        if at >= TURNS.0 {
            rates.push((WORDS * subscribers) as f64 / took.as_secs_f64() / 1000.0);
        }
    }
    Ok(median(&rates).unwrap_or_default())
}
