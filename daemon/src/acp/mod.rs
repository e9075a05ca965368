//! `ostler acp`: the sessions of the host as an agent of the Agent Client Protocol (ACP), for editors that start an
//! agent on stdio. It is an AHP client of the running daemon like any other, so that AHP clients and editors share
//! sessions.

mod ask;
mod bridge;
mod content;
mod options;
pub mod tools_bridge;
mod wire;

use std::time::Duration;

use clap::Args;

use crate::answer::Answer;
use crate::client::Connection;
use crate::config::RunFlags;
use crate::exit::Exit;
use crate::place::Place;
use crate::process::poll;
use crate::{record, verbs};

/// How long a daemon that another process is starting may take.
const STARTS_WITHIN: Duration = Duration::from_secs(20);

/// The flags of `ostler acp`.
#[derive(Debug, Clone, Default, Args)]
pub struct AcpFlags {
    /// Backend of new sessions [default: the first one]
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// Fail if no daemon is running instead of starting one
    #[arg(long)]
    no_start: bool,
}

/// Serves one editor on stdin and stdout until it closes its end.
///
/// # Errors
/// Exit 1 where no daemon runs and none can be started, or the daemon closes the connection.
pub async fn acp(place: &Place, flags: AcpFlags) -> Result<Answer, Exit> {
    let daemon = match Connection::running(place).await? {
        Some(daemon) => daemon,
        None if flags.no_start => Connection::required(place).await?,
        None => {
            start(place).await?;
            Connection::required(place).await?
        }
    };
    let opened = wire::Wire::open(tokio::io::stdin(), tokio::io::stdout()).await;
    let (wire, incoming) = opened.ok_or_else(|| Exit::machine("stdin is closed"))?;
    bridge::Bridge::new(daemon, wire, flags.provider).run(incoming).await?;
    Ok(Answer { printed: true, ..Answer::default() })
}

/// Starts a daemon, or waits for one that another process is starting.
async fn start(place: &Place) -> Result<(), Exit> {
    let folders = place.folders()?;
    let comes_up = || record::running(&folders).is_some() || record::starting(&folders).is_some();
    let started = match comes_up() {
        true => Ok(()),
        false => verbs::start(place, &RunFlags::default(), &start_line(place)).await.map(|_| ()),
    };
    match started {
        // Several editors start at the same time; one of them is first.
        Err(_) if comes_up() => {}
        started => started?,
    }
    let up = poll(STARTS_WITHIN, || {
        let running = record::running(&folders).is_some();
        (running || !comes_up()).then_some(running)
    });
    match up.await {
        Some(true) => Ok(()),
        _ => Err(Exit::machine("the daemon that was starting did not come up; see ostler logs")),
    }
}

/// The command line of a daemon started on demand: on the same configuration, in this directory.
fn start_line(place: &Place) -> Vec<String> {
    let mut line = vec!["ostler".to_owned(), "start".to_owned()];
    if let Some(file) = &place.common.config_file {
        line.extend(["--config-file".to_owned(), file.display().to_string()]);
    }
    line
}
