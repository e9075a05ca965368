//! `ostler restart`: restarts the running daemon as it was started.

use std::time::Duration;

use clap::Args;
use ostler_protocol::names;
use ostler_telemetry::log::message;

use super::start::{Tail, started};
use crate::answer::Answer;
use crate::api::shapes::{self as api, DaemonStatus, Restarting};
use crate::cli::Cli;
use crate::config::RunFlags;
use crate::daemon_file::{self, Record};
use crate::exit::Exit;
use crate::place::Place;
use crate::process::{self, Signal, poll};
use crate::progress::Progress;
use crate::remote::Remote;
use crate::run::{RESTART_REFUSED, RESTART_STOPPING};
use crate::settings::Settings;

/// The limit of an answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
/// The path of the request for its start time.
const STATUS: &str = "/api/status";
/// The limit for closing and starting again.
const UP_WITHIN: Duration = Duration::from_secs(45);

/// The flags of `ostler restart`.
#[derive(Debug, Clone, Default, Args)]
pub struct RestartFlags {
    /// Restart even if turns are running, which ends them
    #[arg(long)]
    pub force: bool,
}

/// Sends a signal to restart and waits until it has restarted.
///
/// # Errors
/// Exit 2 for an invalid configuration, exit 1 if it does not start or a turn runs.
pub async fn restart(place: &Place, flags: &RestartFlags) -> Result<Answer, Exit> {
    if let Some(remote) = place.remote()? {
        return over_http(place, &remote, flags).await;
    }
    let folders = place.files()?.folders();
    let Some(record) = daemon_file::running(&folders) else { return Ok(Answer::none_running("restarted")) };
    check(place, &record)?;
    let mut log = Tail::at_end(record.log_file(&folders));
    let progress = Progress::begin(&place.common, "restarting");
    process::send_signal(record.pid, if flags.force { Signal::RestartAnyway } else { Signal::Restart })?;
    let answered = poll(ANSWERS_WITHIN, || {
        let text = log.text();
        let refused = text
            .lines()
            .find_map(|line| message(line).split_once(RESTART_REFUSED).map(|(_, why)| why.to_owned()));
        match refused {
            Some(why) => Some(Err(why)),
            None => text.contains(RESTART_STOPPING).then_some(Ok(())),
        }
    });
    match answered.await {
        None => {
            let seconds = ANSWERS_WITHIN.as_secs();
            return Err(Exit::machine(format!(
                "pid {} did not respond within {seconds} seconds",
                record.pid
            )));
        }
        Some(Err(why)) => {
            return Err(Exit::machine(format!("cannot restart it: {why}; use --force to end it")));
        }
        Some(Ok(())) => {}
    }
    let up = poll(UP_WITHIN, || match daemon_file::running(&folders) {
        Some(now) if now.started_at != record.started_at => Some(Some(now)),
        _ if !process::runs(record.pid) => Some(None),
        _ => None,
    })
    .await;
    drop(progress);
    let shown = log.path.display().to_string();
    match up {
        Some(Some(now)) => Ok(started(&now, &log.skipped(now.pid)).await),
        Some(None) => Err(Exit::machine(format!(
            "the daemon stopped but could not restart; see {shown}{}",
            log.last_words()
        ))),
        None => {
            Err(Exit::machine(format!("the daemon stopped and did not listen again in time; see {shown}")))
        }
    }
}

/// Restarts the daemon at a URL, and waits until it is up again.
async fn over_http(place: &Place, remote: &Remote, flags: &RestartFlags) -> Result<Answer, Exit> {
    let progress = Progress::begin(&place.common, "restarting");
    let before: DaemonStatus = remote.get(STATUS).await?;
    let _: Restarting = remote.post("/api/restart", &api::Restart { force: flags.force }).await?;
    let end = tokio::time::Instant::now() + UP_WITHIN;
    while tokio::time::Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(200)).await;
        match remote.get::<DaemonStatus>(STATUS).await {
            Ok(now) if now.status.started_at != before.status.started_at => {
                drop(progress);
                return Ok(now.status.answer());
            }
            // It is stopping or starting.
            Ok(_) | Err(Exit::Machine(_)) => {}
            Err(exit) => return Err(exit),
        }
    }
    Err(Exit::machine(format!(
        "{} restarts and did not listen there again in time; with port 0 it selects another port; at its computer, see \
         ostler status and ostler logs",
        remote.url()
    )))
}

/// Checks the configuration before the daemon stops. Returns the settings of its next start.
pub fn check(place: &Place, record: &Record) -> Result<Settings, Exit> {
    if !record.is_detached() {
        return Err(Exit::machine(format!(
            "pid {} runs in the foreground; stop it there and start it again",
            record.pid
        )));
    }
    let (place, flags) = started_as(place, record)?;
    let settings = Settings::new(&flags, place.files()?, &place.working_dir)?;
    settings.token.token()?;
    Ok(settings)
}

/// Returns the flags that a daemon was started with, and where: its configuration files and its working directory, independent of
/// those of this command.
///
/// # Errors
/// This program does not know one of the flags: exit 2.
pub fn started_as(place: &Place, record: &Record) -> Result<(Place, RunFlags), Exit> {
    let argv = record.argv.iter().flatten().cloned();
    let line: Vec<String> = std::iter::once(names::HOST.to_owned()).chain(argv).collect();
    let read = Cli::read(&line)?.map_err(|error| Exit::usage(error.to_string()))?;
    let (mut common, flags) = read.into_run();
    let cwd = record.cwd.clone().unwrap_or_else(|| place.working_dir.clone());
    common.config_file = common.config_file.map(|file| cwd.join(file));
    Ok((Place { common, working_dir: cwd, ..place.clone() }, flags))
}
