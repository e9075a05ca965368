//! `ostler stop`: stops the running daemon.

use std::time::Duration;

use ostler_contract::json;

use crate::answer::Answer;
use crate::daemon_file;
use crate::exit::Exit;
use crate::place::Place;
use crate::process::{self, Signal};
use crate::progress::Progress;

/// Longer than the limit of closing.
const LIMIT: Duration = Duration::from_secs(30);

/// Sends a signal to stop and waits for the end; exit 1 if none runs.
///
/// # Errors
/// Exit 1 if it does not end.
pub async fn stop(place: &Place) -> Result<Answer, Exit> {
    let folders = place.folders()?;
    let (url, pid) = match (daemon_file::running(&folders), daemon_file::starting(&folders)) {
        (Some(record), _) => (Some(record.url), record.pid),
        (None, Some(pid)) => (None, pid),
        (None, None) => return Ok(Answer::none_running("stopped")),
    };
    process::send_signal(pid, Signal::Stop)?;
    let progress = Progress::begin(&place.common, "stopping");
    let gone = || daemon_file::running(&folders).is_none() && daemon_file::starting(&folders).is_none();
    let ended = process::poll(LIMIT, || (!process::runs(pid) || gone()).then_some(())).await;
    drop(progress);
    if ended.is_none() {
        let limit = LIMIT.as_secs();
        return Err(Exit::machine(format!(
            "pid {pid} is still running {limit} seconds after the stop signal"
        )));
    }
    let shown = url.clone().unwrap_or_else(|| "the starting daemon".to_owned());
    let json = json!({ "stopped": true, "url": url, "pid": pid });
    Ok(Answer::new([format!("Stopped {shown} (pid {pid}).")], json).named([shown]))
}
