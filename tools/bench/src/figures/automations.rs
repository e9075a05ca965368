//! The cost of an event that matches one of many automations with the same trigger type: calls to an endpoint that all
//! of them listen to, filtered by another field of the body. The floor is the daemon itself with only the matching
//! automation.
//!
//! The automation's first run never ends. So a call is matched, added to the pending run and stored before its
//! response, and no session is created.

use std::time::Duration;

use super::super::context::Context;
use super::super::failure::Result;
use super::super::figure::{Figure, Target};
use super::super::net::http_load::{Until, calls_per_second};
use super::super::ostler::{ENDPOINT, Folder, SECRET, call};
use super::super::rounds::{Bounds, Column, Side, alternate};

/// Automations with the same trigger type.
const AUTOMATIONS: usize = 10_000;
/// The one that is called.
const CALLED: usize = 7_777;
/// Connections, each with one call at a time.
const CONNECTIONS: usize = 32;
/// The duration of the warm-up.
const FIRST: Duration = Duration::from_millis(300);
/// The duration of the measurement.
const TIMED: Duration = Duration::from_millis(1000);

const COLUMNS: &[Column] =
    &[("webhook calls, one of 10,000 automations", "k calls/s", Some(Target::AtLeast(0.8)))];

pub fn measure(context: &Context) -> Result<Vec<Figure>> {
    let bounds = Bounds { floor: true, ..context.bounds(5, Duration::from_secs(90)) };
    let folders = (folder(context, 0..AUTOMATIONS)?, folder(context, CALLED..CALLED + 1)?);
    alternate(bounds, COLUMNS, |side| {
        let folder = match side {
            Side::Ostler => &folders.0,
            Side::Floor => &folders.1,
        };
        let (_process, address) = context.ostler.start(folder)?;
        let body = format!(r#"{{"repository":"r{CALLED}","ref":"refs/heads/main"}}"#);
        let request = call(address, ENDPOINT, SECRET, &body);
        calls_per_second(address, CONNECTIONS, request.as_bytes(), 202, Until::Time(FIRST))?;
        Ok(vec![
            calls_per_second(address, CONNECTIONS, request.as_bytes(), 202, Until::Time(TIMED))? / 1000.0,
        ])
    })
}

fn folder(context: &Context, automations: std::ops::Range<usize>) -> Result<Folder> {
    let folder = Folder::usual(&context.root)?;
    for at in automations {
        let text = format!(
            "---\ntitle: Repository {at}\nsession: {{ provider: echo }}\ntriggers:\n  - {{ id: called, kind: event, \
             type: webhook, events: [{{ id: call }}], config: {{ endpoint: {ENDPOINT}, repository: r{at} }} }}\n---\n\
             /hang\n"
        );
        folder.write(&format!("automations/r{at}.md"), &text)?;
    }
    Ok(folder)
}
