//! `ostler demo`: a separate host, a call of a webhook, and the resulting agent session, followed by the official
//! client.

mod call;
mod daemon;
mod folder;
mod watch;

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::exit::Exit;
use crate::signals::Signals;

use daemon::Daemon;
use folder::Folder;

/// The limit of the whole demonstration.
const LIMIT: Duration = Duration::from_secs(60);

/// The demonstration.
#[derive(Debug, Clone, Args)]
pub struct DemoFlags {
    /// Keep serving after the demonstration
    #[arg(long)]
    keep: bool,
    /// Folder to work in [default: a temporary folder]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Prints one step.
fn step(line: impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

/// Runs the demonstration, which succeeds only if the run completes.
///
/// # Errors
/// Exit 1 with the reason.
pub async fn demo(flags: &DemoFlags) -> Result<(), Exit> {
    // Handled from here on, so that no host and no folder remains after an interrupt.
    let (mut signals, _sender) = Signals::listen(false)?;
    let folder = Folder::make(flags.dir.as_deref())?;
    let shown = tokio::select! {
        shown = play(&folder) => shown,
        () = signals.stop() => {
            folder.clear();
            return Err(Exit::machine("stopped before the run completed"));
        }
    };
    let mut daemon = shown?;
    if flags.keep {
        step("");
        step(format!("Serving on {} until you press Ctrl-C.", daemon.url));
        daemon.wait(&mut signals).await;
        folder.clear();
    } else {
        daemon.stop().await;
        folder.clear();
        step("");
        step("The host has stopped. Use `ostler demo --keep` to keep it running.");
    }
    Ok(())
}

/// Runs all steps up to the run's end; returns the daemon, which still serves.
async fn play(folder: &Folder) -> Result<Daemon, Exit> {
    step(format!("1. Created a temporary host in {}", folder.dir.display()));
    for file in &folder.files {
        step(format!("   {file}"));
    }
    let mut daemon = Daemon::start(folder).await?;
    step(format!("2. {}", daemon.announced));
    for line in &daemon.plugins {
        step(format!("   {line}"));
    }
    let shown = tokio::time::timeout(LIMIT, watch::show(&daemon, folder)).await;
    let outcome = match shown {
        Ok(outcome) => outcome,
        Err(_) => Err(Exit::machine(format!("the run did not end within {} seconds", LIMIT.as_secs()))),
    };
    if let Err(why) = outcome {
        step(format!("The daemon's log: {}", folder.log().display()));
        daemon.stop().await;
        return Err(why);
    }
    step("");
    step("The same call by hand, while the host runs:");
    step(call::curl(&daemon, folder));
    Ok(daemon)
}
