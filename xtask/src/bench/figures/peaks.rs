//! The most memory the daemon holds while a peer wastes it, and what sessions that are awake cost. There is no floor:
//! a server without limits holds what it is sent.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use super::super::context::{Context, Running};
use super::super::failure::{During, Failure, Result};
use super::super::figure::{Figure, Target};
use super::super::net::frames;
use super::super::net::ws::Ws;
use super::super::ostler::Folder;
use super::super::rounds::{Bounds, Column, Side, alternate};

/// How long a peer sends.
const LASTS: Duration = Duration::from_secs(2);
/// How long a write may wait before the peer looks whether its time is up.
const STALL: Duration = Duration::from_millis(100);
/// The file that is read.
const LARGE: usize = 30 << 20;
/// How often it is asked for.
const READS: usize = 3000;
/// Peers that send a body each and never end it.
const SLOW: usize = 200;
/// Sessions made before the first look, and between the two.
const SESSIONS: (usize, usize) = (100, 1000);
/// The endpoint whose bodies are signed.
const SIGNED: &str = "signed";

const COLUMNS: &[Column] = &[
    ("most memory, 3,000 reads of 30 MiB by a peer that reads nothing", "MB", Some(Target::Under(512.0))),
    ("most memory, pings of a peer that reads nothing", "MB", Some(Target::Under(512.0))),
    ("most memory, 200 unverified bodies that never end", "MB", Some(Target::Under(512.0))),
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
        Ok(vec![
            reads(context)?,
            pings(context)?,
            bodies(context)?,
            sessions(context, false)?,
            sessions(context, true)?,
        ])
    })
}

fn reads(context: &Context) -> Result<f64> {
    let folder = Folder::usual(&context.root)?;
    folder.write("served/large", &"0123456789abcde\n".repeat(LARGE / 16))?;
    let served = folder.path().join("served");
    let (process, address) = context.ostler.start_serving(&folder, &served)?;
    let peak = process.watch_peak();
    let mut client = Ws::introduced(address, "greedy")?;
    let uri = format!("file://{}", served.join("large").display());
    let mut requests = Vec::new();
    for _ in 0..READS {
        let params = json!({ "channel": "ahp-root://", "uri": uri });
        requests.extend(client.request("resourceRead", params).1);
    }
    send_for_a_while(&mut client.into_parts().0, &requests, 1)?;
    peak.megabytes()
}

fn pings(context: &Context) -> Result<f64> {
    let server = context.start(Side::Ostler)?;
    let peak = server.process.watch_peak();
    let mut stream = Ws::connect(server.address)?.into_parts().0;
    let pings = frames::ping(&[7; 125]).repeat(8000);
    send_for_a_while(&mut stream, &pings, usize::MAX)?;
    peak.megabytes()
}

fn bodies(context: &Context) -> Result<f64> {
    let folder = Folder::usual(&context.root)?;
    folder.endpoint(SIGNED, "automation: true\nverify: github")?;
    let (process, address) = context.ostler.start(&folder)?;
    let peak = process.watch_peak();
    let head = format!(
        "POST /plugins/webhook/{SIGNED} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         X-Hub-Signature-256: sha256={:064}\r\nContent-Length: 25165824\r\n\r\n",
        0
    );
    let part = [head.into_bytes(), vec![b' '; 2 << 20]].concat();
    let mut streams = Vec::new();
    for _ in 0..SLOW {
        let mut stream = TcpStream::connect(address).during(address)?;
        stream.set_write_timeout(Some(STALL))?;
        // Where it is refused, that is what is measured.
        let _ = stream.write_all(&part);
        streams.push(stream);
    }
    std::thread::sleep(LASTS);
    peak.megabytes()
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
