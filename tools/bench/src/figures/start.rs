//! The time from the spawn of the process to its first accepted connection, and its memory when it is idle.

use std::time::Duration;

use super::super::context::Context;
use super::super::failure::{Failure, Result};
use super::super::figure::{Figure, Target};
use super::super::net::ws::Ws;
use super::super::ostler::Folder;
use super::super::rounds::{Column, Side, alternate};

const COLUMNS: &[Column] = &[
    ("start to first connection", "ms", Some(Target::AtMost(0.25))),
    ("memory just then: proportional", "MB", None),
    ("memory when idle: proportional", "MB", None),
    ("memory when idle: dirty", "MB", Some(Target::AtMost(0.4))),
];

pub fn measure(context: &Context) -> Result<Vec<Figure>> {
    // The folder exists before the measured starts, as for a daemon that restarts.
    let folder = Folder::usual(&context.root)?;
    alternate(context.bounds(11, Duration::from_secs(60)), COLUMNS, |side| {
        let (process, address) = match (side, &context.node) {
            (Side::Ostler, _) => context.ostler.start(&folder)?,
            (Side::Floor, Some(node)) => node.start("floor-ws.js", &[])?,
            (Side::Floor, None) => return Err(Failure::new("there is no node")),
        };
        let connection = Ws::connect(address)?;
        let took = process.begun.elapsed();
        let at_once = process.memory()?;
        drop(connection);
        let memory = process.memory_when_idle()?;
        let megabytes = |kilobytes: f64| kilobytes / 1000.0 * 1.024;
        Ok(vec![
            took.as_secs_f64() * 1000.0,
            megabytes(at_once.pss),
            megabytes(memory.pss),
            megabytes(memory.written),
        ])
    })
}
