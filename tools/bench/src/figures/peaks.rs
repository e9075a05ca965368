//! The peak memory of the daemon while peers waste it, the waiting time of another client during that, and the costs of
//! long prompts and awake sessions. There is no floor: a server without limits retains everything that it receives.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use super::super::context::{Context, Running};
use super::super::failure::{During, Failure, Result};
use super::super::figure::{Figure, Target};
use super::super::net::ws::Ws;
use super::super::process::{Process, pin_thread};
use super::super::rounds::{Bounds, Column, Side, alternate};
use super::super::stats::percentile;
use super::attacks::{attacked, dispatch, made};
use super::kinds::{self, Kind, LONGEST};

/// The pause of the other client between two requests.
const PAUSE: Duration = Duration::from_millis(5);
/// Sessions created before the first measurement, and between the two.
const SESSIONS: (usize, usize) = (100, 1000);
/// The core of peers that waste memory.
pub const WASTERS: &str = "0";
/// The core of the daemon and its other client.
const OTHERS: &str = "1";

const MEMORY: Option<Target> = Some(Target::Under(512.0));
const SERVED: Option<Target> = Some(Target::Under(100.0));

const COSTS: &[Column] = &[
    ("a prompt of 4 MiB to the echo backend, to the end of its turn", "s", Some(Target::Under(2.0))),
    ("memory per awake idle session", "kB", Some(Target::Under(16.0))),
    (
        "memory per awake idle session, its client subscribed to it and its chat",
        "kB",
        Some(Target::Under(16.0)),
    ),
];

pub fn measure(context: &Context) -> Result<Vec<Figure>> {
    let bounds = Bounds { floor: false, ..context.bounds(2, Duration::from_secs(120)) };
    let is_made = |kind: &&Kind| context.attack.as_ref().is_none_or(|part| kind.figures()[0].contains(part));
    let kinds: Vec<Kind> = Kind::ALL.iter().filter(is_made).copied().collect();
    if kinds.is_empty() {
        let names: Vec<&str> = Kind::ALL.iter().map(|kind| kind.figures()[0]).collect();
        return Err(Failure::new(format!(
            "--attack: no attack has this in its name; they are: {}",
            names.join("; ")
        )));
    }
    let costs = if context.attack.is_none() { COSTS } else { &[] };
    let attacks = kinds.iter().flat_map(|kind| {
        let [memory, waits] = kind.figures();
        [(memory, "MB", MEMORY), (waits, "ms", SERVED)]
    });
    let columns: Vec<Column> = attacks.chain(costs.iter().copied()).collect();
    alternate(bounds, &columns, |_| {
        let mut values = Vec::new();
        for kind in &kinds {
            values.extend(attacked(context, *kind).during(kind.figures()[0])?);
        }
        if !costs.is_empty() {
            values.extend([prompt(context)?, sessions(context, false)?, sessions(context, true)?]);
        }
        Ok(values)
    })
}

/// Returns the peak memory of a daemon while peers waste it, in MB, and the 99th percentile of the response times for
/// another client, in ms. Peers run on one core, the daemon and its other client on another.
pub fn wasted(
    process: &Process,
    address: SocketAddr,
    waste: impl FnOnce() -> Result<()> + Send,
) -> Result<[f64; 2]> {
    process.pin(OTHERS);
    let peak = process.watch_peak();
    let over = AtomicBool::new(false);
    let took = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            pin_thread(OTHERS);
            let mut client = Ws::introduced(address, "other")?;
            let mut took = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let asked = Instant::now();
                client.ask("listSessions", json!({ "channel": "ahp-root://" }))?;
                took.push(asked.elapsed().as_secs_f64() * 1000.0);
                std::thread::sleep(PAUSE);
            }
            Ok::<_, Failure>(took)
        });
        let wasters = scope.spawn(|| {
            pin_thread(WASTERS);
            waste()
        });
        let wasted = wasters.join();
        over.store(true, Ordering::Relaxed);
        let took = other.join();
        let panicked = || Failure::new("a thread panicked");
        wasted.map_err(|_| panicked())??;
        took.map_err(|_| panicked())?
    })?;
    let slowest = percentile(&took, 0.99).ok_or_else(|| Failure::new("nothing was asked"))?;
    Ok([peak.megabytes()?, slowest])
}

/// Returns the time of a long prompt, in seconds.
fn prompt(context: &Context) -> Result<f64> {
    let Running { address, .. } = &context.start(Side::Ostler)?;
    let mut client = Ws::introduced(*address, "bench")?;
    let chat = made(&mut client, "echo:/long")?;
    client.ask("subscribe", json!({ "channel": chat }))?;
    let frame = dispatch(&chat, 1, &kinds::prompt(&"word ".repeat(LONGEST / 5)));
    let begun = Instant::now();
    client.write(&frame)?;
    client.until(b"\"chat/turnComplete\"")?;
    Ok(begun.elapsed().as_secs_f64())
}

/// Creates sessions and returns the daemon's private memory for each.
fn sessions(context: &Context, subscribes: bool) -> Result<f64> {
    let Running { process, address, .. } = &context.start(Side::Ostler)?;
    let mut client = Ws::introduced(*address, "bench")?;
    let mut made = 0;
    let mut make = |count: usize| -> Result<()> {
        for _ in 0..count {
            made += 1;
            let session = format!("echo:/{made:032x}");
            client.ask("createSession", json!({ "channel": session, "provider": "echo" }))?;
            if subscribes {
                let subscribed = client.ask("subscribe", json!({ "channel": session }))?;
                let chat = &subscribed["snapshot"]["state"]["defaultChat"];
                client.ask("subscribe", json!({ "channel": chat }))?;
            }
        }
        Ok(())
    };
    make(SESSIONS.0)?;
    let before = process.memory_when_idle()?;
    make(SESSIONS.1)?;
    let after = process.memory_when_idle()?;
    Ok((after.written - before.written) * 1.024 / SESSIONS.1 as f64)
}
