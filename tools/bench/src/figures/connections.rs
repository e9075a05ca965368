//! The memory of an idle connection that is initialized and subscribed to the root.

use std::time::Duration;

use serde_json::json;

use super::super::context::Context;
use super::super::failure::Result;
use super::super::figure::{Figure, Target};
use super::super::net::ws::Ws;
use super::super::rounds::{Column, alternate};

/// Connections before the first measurement, so that one-time costs are not counted.
const FIRST: usize = 100;
/// Connections between the two measurements.
const COUNTED: usize = 1000;

const COLUMNS: &[Column] = &[("memory per idle connection", "kB", Some(Target::Under(20.0)))];

pub fn measure(context: &Context) -> Result<Vec<Figure>> {
    alternate(context.bounds(3, Duration::from_secs(60)), COLUMNS, |side| {
        let server = context.start(side)?;
        let mut connections = Vec::with_capacity(FIRST + COUNTED);
        let mut open = |count: usize| -> Result<()> {
            for _ in 0..count {
                let mut connection = Ws::introduced(server.address, &format!("idle-{}", connections.len()))?;
                connection.ask("subscribe", json!({ "channel": "ahp-root://" }))?;
                connections.push(connection);
            }
            Ok(())
        };
        open(FIRST)?;
        let before = server.process.memory_when_idle()?;
        open(COUNTED)?;
        let after = server.process.memory_when_idle()?;
        Ok(vec![(after.written - before.written) * 1.024 / COUNTED as f64])
    })
}
