//! The time from the spawn of the process until a small JavaScript plugin is applied, and the cost of each further one,
//! which has a separate engine.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::context::Context;
use super::super::failure::{Failure, Result};
use super::super::figure::{Figure, Target};
use super::super::ostler::Folder;
use super::super::process::{Output, Process};
use super::super::rounds::{Column, Side, alternate};

/// Plugins of the larger daemon.
const MANY: usize = 10;

const COLUMNS: &[Column] = &[
    ("start until a JavaScript plugin is applied", "ms", Some(Target::AtMost(0.5))),
    ("the same with ten", "ms", None),
    ("each further plugin: time", "ms", Some(Target::Under(2.0))),
    ("each further plugin: memory", "MB", Some(Target::Under(2.0))),
];

pub fn measure(context: &Context) -> Result<Vec<Figure>> {
    let (one, many) = (folder(context, 1)?, folder(context, MANY)?);
    let mut figures = alternate(context.bounds(11, Duration::from_secs(90)), COLUMNS, |side| {
        let (process, took) = match (side, &context.node) {
            (Side::Floor, Some(node)) => {
                let process = node.spawn("floor-plugin.mjs", &[], Output::Err)?;
                // Node has no further engines to add.
                return Ok(vec![applied(process, 1)?.1, f64::NAN, f64::NAN, f64::NAN]);
            }
            (Side::Floor, None) => return Err(Failure::new("there is no node")),
            (Side::Ostler, _) => applied(context.ostler.spawn(&one, Output::Err)?, 1)?,
        };
        let small = process.memory_when_idle()?;
        drop(process);
        let (process, took_many) = applied(context.ostler.spawn(&many, Output::Err)?, MANY)?;
        let large = process.memory_when_idle()?;
        let further = (MANY - 1) as f64;
        Ok(vec![
            took,
            took_many,
            (took_many - took) / further,
            (large.written - small.written) * 1.024 / 1000.0 / further,
        ])
    })?;
    for figure in &mut figures {
        figure.rounds.iter_mut().for_each(|pair| pair.floor = pair.floor.filter(|floor| floor.is_finite()));
    }
    Ok(figures)
}

/// Creates a daemon's folder with the echo backend and this many copies of the plugin.
fn folder(context: &Context, plugins: usize) -> Result<Folder> {
    let names: Vec<String> = (0..plugins).map(|at| format!("small-{at}.mjs")).collect();
    let mut entries: Vec<Value> = vec![json!({ "name": "@ostler/echo" })];
    entries.extend(names.iter().map(|name| json!({ "name": format!("./{name}") })));
    let folder = Folder::new(&context.root, &entries)?;
    for name in &names {
        folder.copy(&context.root.join("benches/small-plugin.mjs"), name)?;
    }
    Ok(folder)
}

/// Waits until this many small plugins are applied: both sides print a line for each after its `apply` has returned.
/// Returns the time since the spawn, in milliseconds.
pub(super) fn applied(mut process: Process, plugins: usize) -> Result<(Process, f64)> {
    for _ in 0..plugins {
        process
            .wait_for(|line| (line.contains("plugin small") && !line.ends_with("loading")).then_some(()))?;
    }
    let took = process.begun.elapsed().as_secs_f64() * 1000.0;
    Ok((process, took))
}
