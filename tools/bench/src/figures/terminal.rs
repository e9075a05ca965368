//! A terminal that prints 16 MiB to 1 and 20 subscribers, compared with Node and `script`, which send everything to
//! every subscriber. The measured time ends when the last subscriber has received the end. The daemon skips output for
//! subscribers that do not keep up, so the received amount is a separate figure.

use std::io::Read;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::json;

use super::super::context::Context;
use super::super::failure::{Failure, Result};
use super::super::figure::Figure;
use super::super::net::frames;
use super::super::net::ws::Ws;
use super::super::ostler::Folder;
use super::super::rounds::{Column, Side, alternate};

/// The amount of printed data, in MiB.
const PRINTED: usize = 16;
const CROWDS: [usize; 2] = [1, 20];
/// The end of the output. The typed command does not contain it.
const END: &[u8] = b"over-2";
/// The maximum size of a read.
const READ: usize = 256 * 1024;

const COLUMNS: &[Column] = &[
    ("a terminal prints 16 MiB to 1 subscriber", "MB/s", None),
    ("what it received", "MB/s", None),
    ("to 20 subscribers", "MB/s", None),
    ("what they received together", "MB/s", None),
];

pub fn measure(context: &Context) -> Result<Vec<Figure>> {
    let folder = Folder::new(
        &context.root,
        &[
            json!({ "name": "@ostler/echo" }),
            json!({ "name": "@ostler/terminal", "options": { "shell": "/bin/sh" } }),
        ],
    )?;
    alternate(context.bounds(5, Duration::from_secs(90)), COLUMNS, |side| {
        let (_process, address) = match (side, &context.node) {
            (Side::Ostler, _) => context.ostler.start(&folder)?,
            (Side::Floor, Some(node)) => node.start("floor-terminal.js", &[])?,
            (Side::Floor, None) => return Err(Failure::new("there is no node")),
        };
        let mut rates = Vec::with_capacity(COLUMNS.len());
        for subscribers in CROWDS {
            rates.extend(print(address, subscribers)?);
        }
        Ok(rates)
    })
}

/// Returns the megabytes printed per second, and received per second.
fn print(address: SocketAddr, subscribers: usize) -> Result<[f64; 2]> {
    let terminal = format!("ahp-terminal:/{subscribers}");
    let mut typist = Ws::introduced(address, "typist")?;
    typist.ask("createTerminal", json!({ "channel": terminal }))?;
    let mut watchers = Vec::with_capacity(subscribers);
    for at in 0..subscribers {
        let mut watcher = Ws::introduced(address, &format!("watcher-{at}"))?;
        watcher.ask("subscribe", json!({ "channel": terminal }))?;
        watchers.push(watcher);
    }
    let bytes = PRINTED << 20;
    let line = format!("head -c {bytes} /dev/zero | tr '\\0' x; echo; echo over-$((1 + 1))\r");
    let input = json!({ "jsonrpc": "2.0", "method": "dispatchAction", "params": { "channel": terminal,
        "clientSeq": 1, "action": { "type": "terminal/input", "data": line } } });
    let input = frames::text(&input.to_string());
    let begun = Instant::now();
    typist.write(&input)?;
    let read = std::thread::scope(|scope| {
        let readers: Vec<_> = watchers.into_iter().map(|watcher| scope.spawn(|| received(watcher))).collect();
        let read = readers.into_iter().map(|reader| {
            reader.join().unwrap_or_else(|_| Err(Failure::new("a subscriber's thread panicked")))
        });
        read.sum::<Result<usize>>()
    })?;
    let took = begun.elapsed().as_secs_f64();
    typist.ask("disposeTerminal", json!({ "channel": terminal }))?;
    Ok([bytes as f64 / took / 1e6, read as f64 / took / 1e6])
}

/// Returns the number of bytes that a subscriber received up to the end.
fn received(watcher: Ws) -> Result<usize> {
    let (mut stream, mut tail) = watcher.into_parts();
    let mut count = tail.len();
    let mut buffer = vec![0; READ];
    while memchr::memmem::find(&tail, END).is_none() {
        // The end may be split between two reads.
        tail.drain(..tail.len().saturating_sub(END.len()));
        match stream.read(&mut buffer)? {
            0 => return Err(Failure::new("the server closed the connection")),
            read => {
                count += read;
                tail.extend_from_slice(&buffer[..read]);
            }
        }
    }
    Ok(count)
}
