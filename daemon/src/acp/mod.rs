//! `ostler acp`: the sessions of the host as an agent of the Agent Client Protocol (ACP), for editors that start an
//! agent on stdio. It is an AHP client of the running daemon like any other, so that AHP clients and editors share
//! sessions.

mod bridge;
mod content;
mod editor_connection;
mod editor_requests;
mod options;
pub mod tools_bridge;

use std::time::{Duration, Instant};

use crate::answer::Answer;
use crate::client::Connection;
use crate::config::RunFlags;
use crate::exit::Exit;
use crate::place::Place;
use crate::process::poll;
use crate::verbs::AcpFlags;
use crate::{daemon_file, verbs};

/// How long to wait for a daemon that another process is starting.
const STARTS_WITHIN: Duration = Duration::from_secs(20);

/// How long to wait for another daemon after one has stopped.
const RETURNS_WITHIN: Duration = Duration::from_secs(10);

/// Serves one editor on stdin and stdout until it closes its end.
///
/// # Errors
/// Exit 1 if no daemon runs and none can be started, or the daemon closes the connection.
pub async fn acp(place: &Place, flags: AcpFlags) -> Result<Answer, Exit> {
    if daemon_file::running(&place.folders()?).is_none() && !flags.no_start {
        start(place).await?;
    }
    let opened = editor_connection::Wire::open(tokio::io::stdin(), tokio::io::stdout()).await;
    let (wire, incoming) = opened.ok_or_else(|| Exit::machine("stdin is closed"))?;
    let daemon = connect(place, &wire).await?;
    let daemon = match daemon {
        Some(daemon) => daemon,
        None => Connection::required(place).await?,
    };
    bridge::Bridge::new(daemon, wire, flags.provider, place.clone()).run(incoming).await?;
    Ok(Answer { printed: true, ..Answer::default() })
}

/// Connects to the running daemon, for a bridge that reads only what its editor has room for.
async fn connect(place: &Place, wire: &editor_connection::Wire) -> Result<Option<Connection>, Exit> {
    let Some(record) = daemon_file::running(&place.folders()?) else { return Ok(None) };
    Connection::paced(&record.connect_url, "ostler-acp", wire.room()).await.map(Some)
}

/// Connects again once a daemon runs. If none is started after the stop, it fails.
async fn reconnect(place: &Place, wire: &editor_connection::Wire) -> Result<Connection, Exit> {
    let folders = place.folders()?;
    let mut seen = Instant::now();
    while seen.elapsed() < RETURNS_WITHIN {
        if daemon_file::starting(&folders).is_some() {
            seen = Instant::now();
        }
        // A stopping daemon still has its record and accepts no connection.
        if let Ok(Some(daemon)) = connect(place, wire).await {
            return Ok(daemon);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Err(crate::client::lost())
}

/// Starts a daemon, or waits for one that another process is starting.
async fn start(place: &Place) -> Result<(), Exit> {
    let folders = place.folders()?;
    let comes_up = || daemon_file::running(&folders).is_some() || daemon_file::starting(&folders).is_some();
    let started = match comes_up() {
        true => Ok(()),
        false => verbs::start(place, &RunFlags::default(), &start_line(place)).await.map(|_| ()),
    };
    match started {
        // Several editors can start at the same time; one of them is first.
        Err(_) if comes_up() => {}
        started => started?,
    }
    let up = poll(STARTS_WITHIN, || {
        let running = daemon_file::running(&folders).is_some();
        (running || !comes_up()).then_some(running)
    });
    match up.await {
        Some(true) => Ok(()),
        _ => Err(Exit::machine("the daemon that was starting did not come up; see ostler logs")),
    }
}

/// Returns the command line of a daemon that is started on demand, with the same configuration, in this directory.
fn start_line(place: &Place) -> Vec<String> {
    let mut line = vec!["ostler".to_owned(), "start".to_owned()];
    if let Some(file) = &place.common.config_file {
        line.extend(["--config-file".to_owned(), file.display().to_string()]);
    }
    line
}
