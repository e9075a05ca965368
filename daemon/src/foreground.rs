//! A program in the foreground, which has the terminal of this process and receives interrupts from the keyboard
//! itself.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use tokio::process::Command;

use crate::signals;

/// How long the processes of the program can take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);

/// How a program in the foreground ended.
#[derive(Debug)]
pub enum Ended {
    /// By itself.
    Itself(ExitStatus),
    /// A signal ended this process, which ended the program. Contains the exit code that a shell expects then.
    Signalled(u8),
}

/// Runs a program until it ends or until a signal ends this process. No process of the program remains.
///
/// # Errors
/// It cannot be started.
pub async fn run(command: &mut Command) -> io::Result<Ended> {
    let termination = signals::termination_in_foreground();
    tokio::pin!(termination);
    // Signals are handled before the program starts.
    tokio::select! {
        biased;
        code = &mut termination => return Ok(Ended::Signalled(code)),
        () = std::future::ready(()) => {}
    }
    let mut child = command.spawn()?;
    let code = tokio::select! {
        status = child.wait() => return status.map(Ended::Itself),
        code = termination => code,
    };
    let (status, ()) =
        tokio::join!(tokio::time::timeout(GRACE, child.wait()), ostler_processes::end_descendants(GRACE));
    if status.is_err() {
        child.kill().await?;
    }
    Ok(Ended::Signalled(code))
}
