//! The most memory the daemon takes while peers waste it, how long another client waits meanwhile, and what long
//! prompts and awake sessions cost. There is no floor: a server without limits keeps what it is sent.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use super::super::context::{Context, Running};
use super::super::failure::{During, Failure, Result};
use super::super::figure::{Figure, Target};
use super::super::net::frames;
use super::super::net::ws::Ws;
use super::super::ostler::{ENDPOINT, Folder, SECRET, call};
use super::super::process::{Process, pin_thread};
use super::super::rounds::{Bounds, Column, Side, alternate};
use super::super::stats::percentile;

/// How long a peer sends.
const LASTS: Duration = Duration::from_secs(2);
/// How long a write may wait before the peer looks whether its time is up.
const STALL: Duration = Duration::from_millis(100);
/// The same where there are many peers.
const SHORT_STALL: Duration = Duration::from_millis(2);
/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(30);
/// How long the other client pauses between two requests.
const PAUSE: Duration = Duration::from_millis(5);
/// The file that is read.
const LARGE: usize = 30 << 20;
/// How often it is asked for.
const READS: usize = 3000;
/// Peers that send a body each and never end it.
const SLOW: usize = 1200;
/// Callers that post long JSON.
const CALLERS: usize = 40;
/// How long sessions are made.
const MAKING: Duration = Duration::from_secs(10);
/// The longest text of a message, in bytes.
const LONGEST_MESSAGE: usize = 4 << 20;
/// Sessions made before the first look, and between the two.
const SESSIONS: (usize, usize) = (100, 1000);
/// The endpoint whose bodies are signed.
const SIGNED: &str = "signed";
/// The core of peers that waste memory.
const WASTERS: &str = "0";
/// The core of the daemon and its other client.
const OTHERS: &str = "1";

const MEMORY: Option<Target> = Some(Target::Under(512.0));
const SERVED: Option<Target> = Some(Target::Under(100.0));

const COLUMNS: &[Column] = &[
    ("most memory, 3,000 reads of 30 MiB by a peer that reads nothing", "MB", MEMORY),
    ("another client during these reads, p99", "ms", SERVED),
    ("most memory, pings of a peer that reads nothing", "MB", MEMORY),
    ("another client during these pings, p99", "ms", SERVED),
    ("most memory, 1,200 unverified bodies that never end", "MB", MEMORY),
    ("another client during these bodies, p99", "ms", SERVED),
    ("most memory, 40 authenticated calls of 24 MiB of JSON", "MB", MEMORY),
    ("another client during these calls, p99", "ms", SERVED),
    ("most memory, sessions created for 10 s", "MB", MEMORY),
    ("another client during this creation, p99", "ms", SERVED),
    ("a prompt of 4 MiB to the echo backend, to the end of its turn", "s", Some(Target::Under(2.0))),
    ("memory per awake idle session", "kB", Some(Target::Under(16.0))),
    (
        "memory per awake idle session, its client subscribed to it and its chat",
        "kB",
        Some(Target::Under(16.0)),
    ),
];

pub fn measure(context: &Context) -> Result<Vec<Figure>> {
    let bounds = Bounds { floor: false, ..context.bounds(2, Duration::from_secs(60)) };
    alternate(bounds, COLUMNS, |_| {
        let wasted =
            [reads(context)?, pings(context)?, bodies(context)?, json_bodies(context)?, making(context)?];
        let costs = [prompt(context)?, sessions(context, false)?, sessions(context, true)?];
        Ok([wasted.as_flattened(), &costs].concat())
    })
}

/// The most memory of a daemon while peers waste it, in MB, and how long the slowest but one in a hundred answers to
/// another client takes, in ms. Peers run on one core, the daemon and its other client on the other.
fn wasted(
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

fn reads(context: &Context) -> Result<[f64; 2]> {
    let folder = Folder::usual(&context.root)?;
    folder.write("served/large", &"0123456789abcde\n".repeat(LARGE / 16))?;
    let served = folder.path().join("served");
    let (process, address) = context.ostler.start_serving(&folder, &served)?;
    let uri = format!("file://{}", served.join("large").display());
    wasted(&process, address, || {
        let mut client = Ws::introduced(address, "greedy")?;
        let mut requests = Vec::new();
        for _ in 0..READS {
            let params = json!({ "channel": "ahp-root://", "uri": uri });
            requests.extend(client.request("resourceRead", params).1);
        }
        send_for_a_while(&mut client.into_parts().0, &requests, 1)
    })
}

fn pings(context: &Context) -> Result<[f64; 2]> {
    let server = context.start(Side::Ostler)?;
    wasted(&server.process, server.address, || {
        let mut stream = Ws::connect(server.address)?.into_parts().0;
        let pings = frames::ping(&[7; 125]).repeat(8000);
        send_for_a_while(&mut stream, &pings, usize::MAX)
    })
}

fn bodies(context: &Context) -> Result<[f64; 2]> {
    let folder = Folder::usual(&context.root)?;
    folder.endpoint(SIGNED, "automation: true\nverify: github")?;
    let (process, address) = context.ostler.start(&folder)?;
    let head = format!(
        "POST /plugins/webhook/{SIGNED} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         X-Hub-Signature-256: sha256={:064}\r\nContent-Length: 25165824\r\n\r\n",
        0
    );
    let part = [head.into_bytes(), vec![b' '; 2 << 20]].concat();
    wasted(&process, address, || {
        let mut streams = Vec::new();
        for _ in 0..SLOW {
            let mut stream = TcpStream::connect(address).during(address)?;
            stream.set_write_timeout(Some(SHORT_STALL))?;
            // Where it is refused, that is what is measured.
            let _ = stream.write_all(&part);
            streams.push(stream);
        }
        std::thread::sleep(LASTS);
        Ok(())
    })
}

fn json_bodies(context: &Context) -> Result<[f64; 2]> {
    let server = context.start(Side::Ostler)?;
    let address = server.address;
    let body = format!(r#"{{"x":[{}1]}}"#, "{},".repeat(8 << 20));
    let request = call(address, ENDPOINT, SECRET, &body);
    wasted(&server.process, address, || {
        let posts: Vec<_> = (0..CALLERS)
            .map(|_| {
                let request = request.clone();
                std::thread::spawn(move || {
                    pin_thread(WASTERS);
                    let mut stream = TcpStream::connect(address)?;
                    stream.set_read_timeout(Some(LIMIT))?;
                    // A daemon that has no memory answers before it has read everything.
                    let _ = stream.write_all(request.as_bytes());
                    let _ = stream.read(&mut [0; 512]);
                    Ok::<_, Failure>(())
                })
            })
            .collect();
        posts.into_iter().try_for_each(|post| post.join().map_err(|_| Failure::new("a thread panicked"))?)
    })
}

fn making(context: &Context) -> Result<[f64; 2]> {
    let server = context.start(Side::Ostler)?;
    wasted(&server.process, server.address, || {
        let mut client = Ws::introduced(server.address, "maker")?;
        let begun = Instant::now();
        let mut made = 0;
        while begun.elapsed() < MAKING {
            made += 1;
            let session = json!({ "channel": format!("echo:/{made:032x}"), "provider": "echo" });
            client.ask("createSession", session)?;
        }
        Ok(())
    })
}

/// How long a long prompt takes, in seconds.
fn prompt(context: &Context) -> Result<f64> {
    let Running { address, .. } = &context.start(Side::Ostler)?;
    let mut client = Ws::introduced(*address, "bench")?;
    client.ask("createSession", json!({ "channel": "echo:/long", "provider": "echo" }))?;
    let session = client.ask("subscribe", json!({ "channel": "echo:/long" }))?;
    let chat = session["snapshot"]["state"]["defaultChat"].clone();
    client.ask("subscribe", json!({ "channel": chat }))?;
    let text = "word ".repeat(LONGEST_MESSAGE / 5);
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t",
        "message": { "text": text, "origin": { "kind": "user" } } });
    let params = json!({ "channel": chat, "clientSeq": 1, "action": turn });
    let action = json!({ "jsonrpc": "2.0", "method": "dispatchAction", "params": params });
    let frame = frames::text(&action.to_string());
    let begun = Instant::now();
    client.write(&frame)?;
    client.until(b"\"chat/turnComplete\"")?;
    Ok(begun.elapsed().as_secs_f64())
}

/// Creates sessions and measures what each adds to the memory that is the daemon's own.
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

/// Writes so often, or until the time is up; that the daemon does not read on or hangs up is what it should do.
fn send_for_a_while(stream: &mut TcpStream, bytes: &[u8], times: usize) -> Result<()> {
    stream.set_write_timeout(Some(STALL))?;
    let begun = Instant::now();
    for _ in 0..times {
        let mut left = bytes;
        while !left.is_empty() {
            if begun.elapsed() > LASTS {
                return Ok(());
            }
            match stream.write(left) {
                Ok(0) => return Ok(()),
                Ok(written) => left = &left[written..],
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == std::io::ErrorKind::TimedOut => {}
                Err(_) => return Ok(()),
            }
        }
    }
    match begun.elapsed() < LASTS {
        true => std::thread::sleep(LASTS - begun.elapsed()),
        false => return Err(Failure::new("the clock went on")),
    }
    Ok(())
}
