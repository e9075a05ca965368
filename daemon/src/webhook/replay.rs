//! `ostler webhook replay`: makes the running daemon deliver a call again whose body is stored.

use clap::Args;
use ostler_contract::{Value, json};
use ostler_plugin_webhook::REPLAY;

use super::{Endpoints, VerbOutput, follow};
use crate::client::Connection;
use crate::client::screen::Screen;
use crate::exit::Exit;

/// The flags of `ostler webhook replay`.
#[derive(Debug, Clone, Default, Args)]
pub struct ReplayFlags {
    /// Delivery id, as shown by `ostler webhook log`
    pub delivery: String,
    /// Print the resulting runs or turn until they end
    #[arg(short, long)]
    pub follow: bool,
}

pub(super) async fn replay(endpoints: &Endpoints, flags: &ReplayFlags) -> Result<VerbOutput, Exit> {
    let daemon = endpoints.connect().await?;
    let daemon = daemon.ok_or_else(|| Exit::machine("no daemon is running; start it with: ostler start"))?;
    replay_on(&daemon, endpoints.screen, flags).await
}

/// Replays a delivery on a daemon, possibly on another computer.
///
/// # Errors
/// Exit 2 for a delivery whose body is not stored, 1 if the daemon fails.
pub async fn replay_on(
    daemon: &Connection,
    mut screen: Screen,
    flags: &ReplayFlags,
) -> Result<VerbOutput, Exit> {
    let row = daemon.request(REPLAY, json!({ "delivery": flags.delivery })).await?;
    let mut output = replayed(flags, &row);
    if flags.follow && output.good {
        for said in &output.lines {
            screen.line(said);
        }
        let followed = follow::follow(daemon, screen, &row, &mut output.json).await?;
        return Ok(VerbOutput { lines: followed.lines, good: followed.good, ..output });
    }
    Ok(output)
}

/// Returns the output for a replayed delivery.
pub fn replayed(flags: &ReplayFlags, row: &Value) -> VerbOutput {
    let endpoint = row["endpoint"].as_str().unwrap_or_default();
    let good = row["status"].as_u64().is_some_and(|status| (200..300).contains(&status));
    let mut said = format!("replayed {} on {endpoint}: {}", flags.delivery, row["status"]);
    if let Some(why) = row["why"].as_str() {
        said.push_str(&format!(", {why}"));
    }
    if row["leftOut"] == true {
        said.push_str(", left out by when");
    }
    let unstarted = row["unstarted"].as_array().into_iter().flatten().filter_map(Value::as_str);
    unstarted.for_each(|why| said.push_str(&format!("; {why}")));
    let mut lines = vec![said];
    if good && row["runs"].is_array() && !flags.follow {
        lines.push(format!("see the outcome with: ostler webhook log {endpoint}, or use --follow"));
    }
    let json = json!({ "id": endpoint, "delivery": flags.delivery, "call": row });
    VerbOutput { lines, json, names: vec![endpoint.to_owned()], good }
}
