//! Calls to a webhook endpoint over persistent connections: with the correct token and a JSON object that no automation
//! listens for, with one that an automation listens for, whose run is stored before the response, and with a wrong
//! token. The floors are Node and, if it is installed, Debian's `webhook`, which checks the same header and runs
//! `true`.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::super::context::Context;
use super::super::failure::{Failure, Result};
use super::super::figure::{Figure, Target};
use super::super::net::http_load::{Until, calls_per_second};
use super::super::net::ws::Ws;
use super::super::ostler::{ENDPOINT, Folder, SECRET, call};
use super::super::process::{pin_thread, unpin_thread};
use super::super::progress;
use super::super::rounds::{Bounds, Column, Side, alternate};
use super::debian;

/// Connections, each with one call at a time.
const CONNECTIONS: usize = 32;
/// The duration of the warm-up.
const FIRST: Duration = Duration::from_millis(300);
/// The duration of the measurement.
const TIMED: Duration = Duration::from_millis(1000);

const BODY: &str = r#"{"ref":"refs/heads/main","before":"6113728f27ae82c7b1a177c8d03f9e96e0adf246","after":"76ae82c7b1a177c8d03f9e96e0adf2466113728f","repository":{"full_name":"octo/hello"},"pusher":{"name":"octo"}}"#;

const COLUMNS: &[Column] = &[
    ("webhook calls, right token", "k calls/s", Some(Target::AtLeast(1.0))),
    ("webhook calls, run kept before the answer", "k calls/s", None),
    ("webhook calls, wrong token", "k calls/s", Some(Target::AtLeast(1.2))),
];

const DEBIAN: &[Column] = &[
    ("webhook calls, beside Debian's webhook", "k calls/s", Some(Target::AtLeast(5.0))),
    ("the same, run kept before the answer", "k calls/s", None),
    ("a burst of 10,000, run kept before the answer", "k calls/s", Some(Target::AtLeast(5.0))),
    ("the same until its runs have ended", "ms", None),
];

/// The same burst, with the server on one core and its client on the other one, as `latency` measures.
const APART: &[Column] = &[
    ("a burst of 10,000, run kept before the answer, one core each", "k calls/s", Some(Target::AtLeast(5.0))),
    ("the same until its runs have ended, one core each", "ms", None),
];
/// The core of the client, and that of the server.
const CLIENT: &str = "0";
const SERVER: &str = "1";

/// Calls of a burst.
const BURST: u64 = 10_000;
/// The timeout of its runs after the burst.
const RUNS: Duration = Duration::from_secs(30);
/// The endpoint of the automation with a short response.
const BURST_OF: &str = "burst";

/// The endpoint that an automation listens to.
const WAITED_FOR: &str = "waited-for";

pub fn measure(context: &Context) -> Result<Vec<Figure>> {
    let mut figures = beside_node(context)?;
    match debian::find() {
        true => {
            figures.extend(beside_debian(context)?);
            figures.extend(beside_debian_apart(context)?);
        }
        false => progress("Debian's webhook is not installed, so nothing is measured beside it"),
    }
    Ok(figures)
}

fn beside_node(context: &Context) -> Result<Vec<Figure>> {
    let folder = folder(context)?;
    alternate(context.bounds(7, Duration::from_secs(90)), COLUMNS, |side| {
        let (_server, address) = match (side, &context.node) {
            (Side::Floor, Some(node)) => node.start("floor-http.js", &[SECRET])?,
            (Side::Floor, None) => return Err(Failure::new("there is no node")),
            (Side::Ostler, _) => context.ostler.start(&folder)?,
        };
        // As long as the correct token, so that neither side can reject it by its length alone.
        let wrong = "x".repeat(SECRET.len());
        Ok(vec![
            rate(address, ENDPOINT, SECRET, 202)?,
            rate(address, WAITED_FOR, SECRET, 202)?,
            rate(address, ENDPOINT, &wrong, 401)?,
        ])
    })
}

fn beside_debian(context: &Context) -> Result<Vec<Figure>> {
    let folder = folder(context)?;
    let bounds = Bounds { floor: true, ..context.bounds(5, Duration::from_secs(60)) };
    alternate(bounds, DEBIAN, |side| match side {
        Side::Ostler => {
            let (_process, address) = context.ostler.start(&folder)?;
            let rates = [rate(address, ENDPOINT, SECRET, 202)?, rate(address, WAITED_FOR, SECRET, 202)?];
            let begun = Instant::now();
            let burst = burst(address, BURST_OF)?;
            until_runs_end(address)?;
            Ok(vec![rates[0], rates[1], burst, begun.elapsed().as_secs_f64() * 1000.0])
        }
        Side::Floor => {
            let (_process, address) = debian::start(&folder)?;
            let rate = rate(address, ENDPOINT, SECRET, 202)?;
            let begun = Instant::now();
            let burst = burst(address, ENDPOINT)?;
            Ok(vec![rate, rate, burst, begun.elapsed().as_secs_f64() * 1000.0])
        }
    })
}

/// The burst alone, each side on a core of its own.
fn beside_debian_apart(context: &Context) -> Result<Vec<Figure>> {
    let folder = folder(context)?;
    let bounds = Bounds { floor: true, ..context.bounds(5, Duration::from_secs(60)) };
    let figures = alternate(bounds, APART, |side| {
        // A process inherits the core of the thread that starts it, and so do the commands that Debian's `webhook` runs.
        pin_thread(SERVER);
        let ((_process, address), warm_up, endpoint) = match side {
            Side::Ostler => (context.ostler.start(&folder)?, WAITED_FOR, BURST_OF),
            Side::Floor => (debian::start(&folder)?, ENDPOINT, ENDPOINT),
        };
        pin_thread(CLIENT);
        rate(address, warm_up, SECRET, 202)?;
        let begun = Instant::now();
        let burst = burst(address, endpoint)?;
        if side == Side::Ostler {
            until_runs_end(address)?;
        }
        Ok(vec![burst, begun.elapsed().as_secs_f64() * 1000.0])
    });
    unpin_thread();
    figures
}

/// Creates a usual folder with two automations. The first run of one never ends: a call is matched, added to the
/// pending run and stored before its response, and no session is created. The other one's runs end, one after the
/// other.
fn folder(context: &Context) -> Result<Folder> {
    let folder = Folder::usual(&context.root)?;
    for (id, endpoint, says) in [("waits", WAITED_FOR, "/hang"), ("burst", BURST_OF, "/words 1")] {
        folder.endpoint(endpoint, "automation: true")?;
        let automation = format!(
            "---\ntitle: {id}\nsession: {{ provider: echo }}\ntriggers:\n  - {{ id: called, kind: event, \
             type: webhook, events: [{{ id: call }}], config: {{ endpoint: {endpoint} }} }}\n\
             _meta: {{ ostler: {{ hourlyCap: 1000000 }} }}\n---\n{says}\n"
        );
        folder.write(&format!("automations/{id}.md"), &automation)?;
    }
    Ok(folder)
}

/// Returns the thousands of calls answered per second.
fn rate(address: SocketAddr, endpoint: &str, token: &str, status: u16) -> Result<f64> {
    let request = call(address, endpoint, token, BODY);
    calls_per_second(address, CONNECTIONS, request.as_bytes(), status, Until::Time(FIRST))?;
    Ok(calls_per_second(address, CONNECTIONS, request.as_bytes(), status, Until::Time(TIMED))? / 1000.0)
}

/// Returns the thousands of calls of a burst answered per second.
fn burst(address: SocketAddr, endpoint: &str) -> Result<f64> {
    let request = call(address, endpoint, SECRET, BODY);
    Ok(calls_per_second(address, CONNECTIONS, request.as_bytes(), 202, Until::Answers(BURST))? / 1000.0)
}

/// Waits until no run of the burst is pending or running.
fn until_runs_end(address: SocketAddr) -> Result<()> {
    let mut client = Ws::introduced(address, "bench")?;
    let deadline = Instant::now() + RUNS;
    let mut last = String::new();
    while Instant::now() < deadline {
        let seen = client.ask("subscribe", serde_json::json!({ "channel": "ahp-automations://" }))?;
        let entries = seen.pointer("/snapshot/state/entries");
        let burst = entries
            .and_then(|entries| {
                entries.as_array()?.iter().find(|entry| entry["resource"] == "ahp-automation:/burst")
            })
            .ok_or_else(|| Failure::new(format!("the burst's automation is not listed: {seen}")))?
            .to_string();
        if !burst.contains(r#""status":"pending""#) && !burst.contains(r#""status":"running""#) {
            return Ok(());
        }
        last = burst;
        std::thread::sleep(Duration::from_millis(5));
    }
    Err(Failure::new(format!("the runs of the burst did not end: {last}")))
}
