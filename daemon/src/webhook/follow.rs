//! Follows the outcome of a call and prints it until it ends.

use ostler_contract::Value;

use crate::client::Connection;
use crate::client::screen::Screen;
use crate::exit::Exit;

/// The outcome of a followed call.
#[derive(Debug, Default)]
pub struct Followed {
    /// The lines that are still to be printed.
    pub lines: Vec<String>,
    /// Whether there was a run or a turn.
    pub any: bool,
    /// Whether all of it succeeded.
    pub good: bool,
}

/// Prints the runs and the turn of a row of the log until they end, and adds their outcomes under `runs` and `turn`.
///
/// # Errors
/// Exit 1 if the connection ends, or the chat does not contain the turn.
pub async fn follow(
    daemon: &Connection,
    mut screen: Screen,
    call: &Value,
    json: &mut Value,
) -> Result<Followed, Exit> {
    let mut followed = Followed { good: true, ..Followed::default() };
    let mut ends = Vec::new();
    for run in call["runs"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        screen.line(format_args!("run {run}"));
        let end = daemon.follow_run(run, &mut |seen| screen.see(seen)).await?;
        screen.line(end.line());
        followed.good &= end.completed();
        ends.push(end.json());
    }
    followed.any = !ends.is_empty();
    if let (Some(chat), Some(turn)) = (call["chat"].as_str(), call["turn"].as_str()) {
        screen.line(format_args!("turn {turn} in {chat}"));
        let end = daemon.follow_turn(chat, turn, &mut |seen| screen.see(seen)).await?;
        followed.lines.push(match &end.error {
            Some(why) => format!("turn failed: {why}"),
            None => format!("turn {}", end.status),
        });
        followed.any = true;
        followed.good &= end.status == "complete";
        json["turn"] = end.json();
    }
    json["runs"] = ends.into();
    Ok(followed)
}
