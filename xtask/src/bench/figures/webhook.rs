//! Calls to a webhook endpoint over connections that are kept: with the right token and a JSON object that no
//! automation waits for, and with a wrong token.

use std::net::SocketAddr;
use std::time::Duration;

use super::super::context::Context;
use super::super::failure::{Failure, Result};
use super::super::figure::{Figure, Target};
use super::super::net::http_load::calls_per_second;
use super::super::ostler::{ENDPOINT, SECRET};
use super::super::rounds::{Column, Side, alternate};

/// Connections, on each one call at a time.
const CONNECTIONS: usize = 32;
/// How long a server is called before the clock runs.
const FIRST: Duration = Duration::from_millis(300);
/// How long it is called then.
const TIMED: Duration = Duration::from_millis(1000);

const BODY: &str = r#"{"ref":"refs/heads/main","before":"6113728f27ae82c7b1a177c8d03f9e96e0adf246","after":"76ae82c7b1a177c8d03f9e96e0adf2466113728f","repository":{"full_name":"octo/hello"},"pusher":{"name":"octo"}}"#;

const COLUMNS: &[Column] = &[
    ("webhook calls, right token", "k calls/s", Some(Target::AtLeast(1.0))),
    ("webhook calls, wrong token", "k calls/s", Some(Target::AtLeast(1.2))),
];

pub fn measure(context: &Context) -> Result<Vec<Figure>> {
    alternate(context.bounds(7, Duration::from_secs(90)), COLUMNS, |side| {
        let (_server, address) = match (side, &context.node) {
            (Side::Floor, Some(node)) => {
                let (process, address) = node.start("floor-http.js", &[SECRET])?;
                (Err(process), address)
            }
            (Side::Floor, None) => return Err(Failure::new("there is no node")),
            (Side::Ostler, _) => {
                let running = context.start(side)?;
                let address = running.address;
                (Ok(running), address)
            }
        };
        // As long as the right one, so that its length alone gives it away to neither side.
        let wrong = "x".repeat(SECRET.len());
        Ok(vec![rate(address, SECRET, 202)?, rate(address, &wrong, 401)?])
    })
}

/// Thousands of calls answered a second.
fn rate(address: SocketAddr, token: &str, status: u16) -> Result<f64> {
    let request = format!(
        "POST /plugins/webhook/{ENDPOINT} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{BODY}",
        BODY.len()
    );
    calls_per_second(address, CONNECTIONS, request.as_bytes(), status, FIRST)?;
    Ok(calls_per_second(address, CONNECTIONS, request.as_bytes(), status, TIMED)? / 1000.0)
}
