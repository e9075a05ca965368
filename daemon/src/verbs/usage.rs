//! `ostler usage`: prints the charges of a pool from the running daemon.

use clap::Args;
use ostler_contract::json;
use ostler_contract::owner::Owner;

use crate::answer::Answer;
use crate::api::shapes::{PoolUsage, Total};
use crate::client::Connection;
use crate::exit::Exit;
use crate::place::Place;

/// The command of the protocol.
const TOTALS: &str = "x-ostler/usage/totals";

/// The flags of `ostler usage`.
#[derive(Debug, Clone, Args)]
pub struct UsageFlags {
    /// Pool: user:<id>, team:<id> or project:<team>:<id>
    pub pool: String,
}

/// Prints the charges of a pool today, this week and this month.
///
/// # Errors
/// Exit 2 for a pool that the caller cannot read, 1 if no daemon runs or it stores no usage.
pub async fn usage(at: &Place, UsageFlags { pool }: UsageFlags) -> Result<Answer, Exit> {
    check_pool(&pool)?;
    if let Some(remote) = at.remote()? {
        return Ok(shown(&remote.get_named("/api/usage/", &pool).await?));
    }
    let daemon = Connection::required(at).await?;
    let mut totals = daemon.request(TOTALS, json!({ "pools": [pool] })).await?;
    let total = totals.pointer_mut("/totals/0").map(ostler_contract::Value::take).unwrap_or_default();
    let total = serde_json::from_value(total);
    Ok(shown(
        &total.map_err(|error| Exit::machine(format!("the daemon returned no total of {pool}: {error}")))?,
    ))
}

/// Checks that a text names a pool. A misspelled one would look like a pool without charges.
///
/// # Errors
/// Exit 2 with the forms of pools.
pub fn check_pool(pool: &str) -> Result<(), Exit> {
    match Owner::parse(pool) {
        Some(_) => Ok(()),
        None => Err(Exit::usage(format!("invalid pool {pool}: use {}", Owner::FORMS))),
    }
}

fn shown(usage: &PoolUsage) -> Answer {
    let lines = [("today", &usage.day), ("this week", &usage.week), ("this month", &usage.month)];
    let lines = lines.map(|(when, total)| format!("{} {when}: {}", usage.pool, sum(total)));
    Answer::new(lines, json!(usage)).named([usage.pool.as_str()])
}

fn sum(total: &Total) -> String {
    let measures = [
        total.usd.map(|usd| format!("{usd:.4} USD")),
        total.tokens.map(|tokens| format!("{tokens} tokens")),
        total.calls.map(|calls| format!("{calls} calls")),
        total.seconds.map(|seconds| format!("{seconds:.0} machine seconds")),
    ];
    let measures: Vec<String> = measures.into_iter().flatten().collect();
    if measures.is_empty() { "nothing charged".to_owned() } else { measures.join(", ") }
}
