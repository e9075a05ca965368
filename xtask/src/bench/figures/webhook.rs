//! Calls to a webhook endpoint over connections that are kept: with the right token and a JSON object that no
//! automation waits for, with one that an automation waits for, whose run is kept before the answer, and with a wrong
//! token. Beside Node, and beside Debian's `webhook` where it is installed, which checks the same header and is told to
//! run `true`.

use std::net::SocketAddr;
use std::time::Duration;

use super::super::context::Context;
use super::super::failure::{Failure, Result};
use super::super::figure::{Figure, Target};
use super::super::net::http_load::calls_per_second;
use super::super::ostler::{ENDPOINT, Folder, SECRET, call};
use super::super::progress;
use super::super::rounds::{Bounds, Column, Side, alternate};
use super::debian;

/// Connections, on each one call at a time.
const CONNECTIONS: usize = 32;
/// How long a server is called before the clock runs.
const FIRST: Duration = Duration::from_millis(300);
/// How long it is called then.
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
];

/// The endpoint an automation waits for.
const WAITED_FOR: &str = "waited-for";

pub fn measure(context: &Context) -> Result<Vec<Figure>> {
    let mut figures = beside_node(context)?;
    match debian::find() {
        true => figures.extend(beside_debian(context)?),
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
        // As long as the right one, so that its length alone gives it away to neither side.
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
            Ok(vec![rate(address, ENDPOINT, SECRET, 202)?, rate(address, WAITED_FOR, SECRET, 202)?])
        }
        Side::Floor => {
            let (_process, address) = debian::start(&folder)?;
            let rate = rate(address, ENDPOINT, SECRET, 202)?;
            Ok(vec![rate, rate])
        }
    })
}

/// A usual folder with an automation whose first run goes on for ever: a call is matched, counted into the run that
/// waits and kept before it is answered, and no session is made.
fn folder(context: &Context) -> Result<Folder> {
    let folder = Folder::usual(&context.root)?;
    folder.endpoint(WAITED_FOR, "automation: true")?;
    let automation = format!(
        "---\ntitle: Waits\nsession: {{ provider: echo }}\ntriggers:\n  - {{ id: called, kind: event, type: webhook, \
         events: [{{ id: call }}], config: {{ endpoint: {WAITED_FOR} }} }}\n---\n/hang\n"
    );
    folder.write("automations/waits.md", &automation)?;
    Ok(folder)
}

/// Thousands of calls answered a second.
fn rate(address: SocketAddr, endpoint: &str, token: &str, status: u16) -> Result<f64> {
    let request = call(address, endpoint, token, BODY);
    calls_per_second(address, CONNECTIONS, request.as_bytes(), status, FIRST)?;
    Ok(calls_per_second(address, CONNECTIONS, request.as_bytes(), status, TIMED)? / 1000.0)
}
