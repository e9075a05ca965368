//! Debian's `webhook`, if it is installed: a Go program that runs a command for a call with a matching header.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use super::super::failure::{Failure, Result};
use super::super::ostler::{ENDPOINT, Folder, SECRET};
use super::super::process::{Output, Process};

const LIMIT: Duration = Duration::from_secs(20);

/// Returns whether it is installed.
pub fn find() -> bool {
    Command::new("webhook").arg("-version").output().is_ok_and(|said| said.status.success())
}

/// Starts it with one hook, under the same path as the daemon's, and waits until it listens.
///
/// # Errors
/// The system's error.
pub fn start(folder: &Folder) -> Result<(Process, SocketAddr)> {
    let hook = json!([{
        "id": ENDPOINT,
        "execute-command": "/bin/true",
        "success-http-response-code": 202,
        "http-methods": ["POST"],
        "trigger-rule": { "match": {
            "type": "value", "value": format!("Bearer {SECRET}"),
            "parameter": { "source": "header", "name": "Authorization" },
        } },
    }]);
    folder.write("hooks.json", &hook.to_string())?;
    // It needs a fixed port, because it does not print the one it uses.
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let mut command = Command::new("webhook");
    command
        .args(["-ip", "127.0.0.1", "-port", &address.port().to_string(), "-urlprefix", "plugins/webhook"])
        .arg("-hooks")
        .arg(folder.path().join("hooks.json"));
    let process = Process::spawn(&mut command, Output::Out)?;
    let end = Instant::now() + LIMIT;
    while TcpStream::connect(address).is_err() {
        if Instant::now() > end {
            return Err(Failure::new("Debian's webhook does not listen"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok((process, address))
}
