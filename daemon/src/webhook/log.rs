//! `ostler webhook log`: the last calls of an endpoint, oldest first, with their outcomes, but without their content.

use std::collections::{HashMap, HashSet};

use ostler_contract::points::StoredCollection;
use ostler_contract::{JsonObject, Value, json, limit};
use ostler_plugin_webhook::recorded_calls::{RecordedCalls, listed_bodies, rows_of};
use ostler_plugin_webhook::{BODY_INDEX, DELIVERIES};
use ostler_protocol::wire::state::{ResponsePart, SnapshotState, TurnState};

use super::{Endpoints, VerbOutput, machine};
use crate::client::Connection;
use crate::client::follow::Named;
use crate::exit::Exit;

pub(super) async fn log(endpoints: &Endpoints, id: &str) -> Result<VerbOutput, Exit> {
    let found = endpoints.find(id).await?;
    // A daemon that runs may answer with an earlier version of a record that cannot be read now.
    let is_unread = endpoints.unread().iter().any(|(unread, _)| unread == id);
    let unread = match found {
        Ok(_) => None,
        Err(why) if is_unread => Some(why),
        Err(unknown) => return Err(Exit::Usage(unknown)),
    };
    let mut all = calls(endpoints, id).await?;
    let stored = stored_bodies(endpoints, id).await?;
    for call in all.iter_mut().filter_map(Value::as_object_mut) {
        // A body can be evicted before it expires.
        if !stored.iter().any(|row| Some(&row["id"]) == call.get("id")) {
            call.shift_remove("keptUntil");
        }
    }
    let unrecorded: Vec<Value> =
        stored.into_iter().filter(|row| !all.iter().any(|call| call["id"] == row["id"])).collect();
    all.extend(unrecorded);
    all.sort_by_key(|row| row["at"].as_str().unwrap_or_default().to_owned());
    let mut output = logged(id, all, endpoints.connect().await).await;
    if let Some(why) = unread {
        output.json["problem"] = why.as_str().into();
        output.lines.push(why);
    }
    Ok(output)
}

/// Returns the output for calls, with their outcomes if a daemon is available.
pub async fn logged(id: &str, mut calls: Vec<Value>, daemon: Result<Option<Connection>, Exit>) -> VerbOutput {
    let asked = match daemon {
        Ok(Some(daemon)) => outcomes(&daemon, &mut calls).await.map_err(|why| why.to_string()),
        Ok(None) => Err("no daemon is running; start it with: ostler start".to_owned()),
        Err(why) => Err(why.to_string()),
    };
    let repeated: HashSet<&str> = calls.iter().filter_map(|row| row["repeats"].as_str()).collect();
    let shown = |row| shown_call(row, row["id"].as_str().is_some_and(|id| repeated.contains(id)));
    let mut lines: Vec<String> = calls.iter().flat_map(shown).collect();
    if let Some(failed) = calls.iter().find_map(repeatable) {
        lines.push(format!("run a failed call again with: ostler webhook replay {}", self::shown(failed)));
    }
    if lines.is_empty() {
        lines.push(format!("no calls of {id} recorded yet"));
    } else if let Err(why) = asked
        && calls.iter().any(|row| row["runs"].is_array() || row["turn"].is_string())
    {
        lines.push(format!("the outcome of these calls is unavailable: {why}"));
    }
    VerbOutput { lines, json: json!({ "id": id, "calls": calls }), names: vec![id.to_owned()], good: true }
}

/// Returns the stored calls of an endpoint, oldest first.
pub(super) async fn calls(endpoints: &Endpoints, id: &str) -> Result<Vec<Value>, Exit> {
    Ok(recorded(&endpoints.collection(DELIVERIES).await?, id).await?.all())
}

/// Returns the stored calls of an endpoint.
pub(super) async fn recorded(deliveries: &StoredCollection, id: &str) -> Result<RecordedCalls, Exit> {
    let (list, rows) = list_and_rows(deliveries, id).await?;
    Ok(RecordedCalls::of(list.as_ref(), rows))
}

/// Returns the list of an endpoint in a collection, and its rows.
pub(super) async fn list_and_rows(
    collection: &StoredCollection,
    id: &str,
) -> Result<(Option<JsonObject>, Vec<JsonObject>), Exit> {
    let list = collection.get.read(limit::STORE, (id.to_owned(),)).await.known().map_err(machine)?;
    let rows = collection.find.read(limit::STORE, (rows_of(id),)).await.known().map_err(machine)?;
    Ok((list, rows))
}

/// Removes the list of an endpoint from a collection, and its rows.
pub(super) async fn remove_list_and_rows(collection: &StoredCollection, id: &str) -> Result<(), Exit> {
    let (_, rows) = list_and_rows(collection, id).await?;
    let ids = rows.iter().filter_map(|row| row.get("id")?.as_str());
    for id in ids.chain([id]) {
        collection.remove.within(limit::STORE, (id.to_owned(),)).await.map_err(machine)?;
    }
    Ok(())
}

/// Returns the calls whose bodies are stored. Their answers may not be recorded, because the log is written up to half
/// a second after a call, and the daemon can end in between.
async fn stored_bodies(endpoints: &Endpoints, id: &str) -> Result<Vec<Value>, Exit> {
    let (list, rows) = list_and_rows(&endpoints.collection(BODY_INDEX).await?, id).await?;
    let rows = listed_bodies(list.as_ref(), rows);
    let now = jiff::Timestamp::now();
    let row = |row: &Value| {
        let until =
            jiff::Timestamp::from_second(row["expires"].as_i64()?).ok().filter(|until| *until > now)?;
        let mut call = json!({ "id": row["id"], "bytes": row["bytes"], "keptUntil": format!("{until:.3}") });
        if row["at"].is_string() {
            call["at"] = row["at"].clone();
        }
        Some(call)
    };
    Ok(rows.iter().filter_map(row).collect())
}

/// Adds the outcomes of its runs or turn to each call, under `outcomes`.
async fn outcomes(daemon: &Connection, calls: &mut [Value]) -> Result<(), Exit> {
    let mut known: HashMap<String, Value> = HashMap::new();
    for call in calls {
        let runs: Vec<String> = call["runs"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|run| run.as_str().map(str::to_owned))
            .collect();
        let mut rows = Vec::new();
        for run in runs {
            if !known.contains_key(&run) {
                let row = daemon
                    .run_row(&run)
                    .await?
                    .unwrap_or_else(|| json!({ "run": run, "status": "unknown", "error": "run not found" }));
                known.insert(run.clone(), row);
            }
            rows.extend(known.get(&run).cloned());
        }
        if let (Some(chat), Some(turn)) = (call["chat"].as_str(), call["turn"].as_str()) {
            rows.extend(turn_row(daemon, chat, turn).await?);
        }
        if !rows.is_empty() {
            call["outcomes"] = rows.into();
        }
    }
    Ok(())
}

/// Returns the outcome of a turn of a bot's chat; `None` if the chat no longer exists.
async fn turn_row(daemon: &Connection, chat: &str, turn: &str) -> Result<Option<Value>, Exit> {
    let state = match daemon.state(chat).await {
        Ok(SnapshotState::Chat(state)) => state,
        Ok(_) | Err(Exit::Usage(_)) => return Ok(None),
        Err(other) => return Err(other),
    };
    let ended = match Named::find(&state, turn) {
        Some(Named::Ended(ended)) => ended,
        Some(Named::Active(_)) => return Ok(Some(json!({ "turn": turn, "status": "running" }))),
        Some(Named::Waiting(_)) => return Ok(Some(json!({ "turn": turn, "status": "waiting" }))),
        None => return Ok(None),
    };
    let status = match ended.state {
        TurnState::Complete => "complete",
        TurnState::Cancelled => "cancelled",
        _ => "error",
    };
    let error = ended.response_parts.iter().rev().find_map(|part| match part {
        ResponsePart::Error(part) => Some(part.error.message.clone()),
        _ => None,
    });
    Ok(Some(json!({ "turn": turn, "status": status, "error": error })))
}

/// Returns the id of a call that has a failed run and a stored body.
fn repeatable(row: &Value) -> Option<&str> {
    let outcomes = row["outcomes"].as_array()?;
    let has_failed = outcomes.iter().any(|outcome| outcome["status"] == "failed");
    row["keptUntil"].as_str().filter(|_| has_failed).and(row["id"].as_str())
}

/// Returns a call as lines: one for the call, with its id if that is needed, then one for each outcome.
fn shown_call(row: &Value, is_repeated: bool) -> Vec<String> {
    let mut lines = vec![line(row, is_repeated)];
    for outcome in row["outcomes"].as_array().into_iter().flatten() {
        let what = match outcome["run"].as_str() {
            Some(run) => format!("run {}", shown(run)),
            None => "turn".to_owned(),
        };
        let status = outcome["status"].as_str().unwrap_or_default();
        let session =
            outcome["session"].as_str().map(|session| format!(" in {}", shown(session))).unwrap_or_default();
        let why = outcome["error"].as_str().map(|why| format!(": {}", shown(why))).unwrap_or_default();
        lines.push(format!("  {what} {status}{session}{why}"));
    }
    lines
}

fn line(row: &Value, is_repeated: bool) -> String {
    let text = |field: &str| row[field].as_str();
    let at = text("at").unwrap_or("unknown time");
    let mut line = match row["status"].is_null() {
        true => format!("{at} answer not recorded"),
        false => format!("{at} {} {} ms", row["status"], row["ms"]),
    };
    if let Some(times) = row["times"].as_u64().filter(|times| *times > 1) {
        line.push_str(&format!(", the last of {times} for this reason"));
    }
    if row["again"] == true {
        let of = text("repeats").map(|first| format!(" of {}", shown(first))).unwrap_or_default();
        line.push_str(&format!(", repeated delivery{of}"));
    }
    if row["leftOut"] == true {
        line.push_str(", left out by when");
    }
    if let Some(replayed) = text("replays") {
        line.push_str(&format!(", replay of {}", shown(replayed)));
    }
    if let Some(id) = text("id").filter(|_| is_repeated || text("keptUntil").is_some()) {
        line.push_str(&format!(", delivery {}", shown(id)));
    }
    for (field, word) in [("thread", "thread"), ("turn", "turn"), ("chat", "in")] {
        if let Some(value) = text(field) {
            line.push_str(&format!(", {word} {}", shown(value)));
        }
    }
    let list = |field: &str| row[field].as_array().map(Vec::as_slice).unwrap_or_default();
    let why: Vec<String> = list("unstarted").iter().filter_map(Value::as_str).map(shown).collect();
    match list("runs").len() {
        0 if why.is_empty() => {}
        0 => line.push_str(", started no run"),
        1 => line.push_str(", started 1 run"),
        runs => line.push_str(&format!(", started {runs} runs")),
    }
    if row.get("outcomes").is_none() {
        for run in row["runs"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            line.push_str(&format!(", run {}", shown(run)));
        }
    }
    if let Some(callback) = text("callback") {
        line.push_str(&format!(", callback {}", shown(callback)));
    }
    let whys: Vec<String> = text("why").map(shown).into_iter().chain(why).collect();
    if !whys.is_empty() {
        line.push_str(&format!(": {}", whys.join("; ")));
    }
    line
}

/// Escapes a caller's text for a terminal, so that it cannot move the cursor.
fn shown(text: &str) -> String {
    // Line and paragraph separators, and characters that change the direction of text.
    let breaks = |c: char| matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" / ");
    lines.chars().map(|c| if c.is_control() || breaks(c) { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_of_several_lines_is_one_line() {
        let row = json!({ "at": "now", "status": 500, "ms": 3, "why": "it ended:\n  no hay\r\n\u{1b}[1m\n" });
        assert_eq!(line(&row, false), "now 500 3 ms: it ended: / no hay / \u{fffd}[1m");
        let row = json!({ "id": "d1", "at": "now", "keptUntil": "later" });
        assert_eq!(line(&row, false), "now answer not recorded, delivery d1");
    }

    #[test]
    fn a_call_says_what_it_started_or_why_nothing() {
        let of = |mut row: Value, is_repeated| {
            for (field, value) in
                [("id", json!("d1")), ("at", json!("now")), ("status", json!(202)), ("ms", json!(1))]
            {
                row[field] = value;
            }
            line(&row, is_repeated)
        };
        let why = json!(["automation a: it is disabled", "automation b: 3 runs"]);
        for (row, is_repeated, expected) in [
            (
                json!({ "unstarted": why }),
                false,
                ", started no run: automation a: it is disabled; automation b: 3 runs",
            ),
            (json!({ "runs": ["r1"], "outcomes": [] }), false, ", started 1 run"),
            (
                json!({ "runs": ["r1", "r2"], "outcomes": [], "unstarted": ["automation b: x"] }),
                false,
                ", started 2 runs: automation b: x",
            ),
            (json!({ "again": true, "repeats": "d0" }), false, ", repeated delivery of d0"),
            (json!({ "again": true }), false, ", repeated delivery"),
            (json!({ "times": 7, "why": "no" }), false, ", the last of 7 for this reason: no"),
            (json!({ "leftOut": true }), true, ", left out by when, delivery d1"),
        ] {
            assert_eq!(of(row, is_repeated), format!("now 202 1 ms{expected}"));
        }
        let row = json!({ "id": "d1", "keptUntil": "later", "outcomes": [{ "status": "failed" }] });
        assert_eq!(repeatable(&row), Some("d1"));
        assert_eq!(repeatable(&json!({ "id": "d1", "outcomes": [{ "status": "failed" }] })), None);
    }
}
