//! `ostler webhook log`: the last calls of an endpoint, oldest first. What they said is nowhere in it.

use ostler_contract::{Value, json};
use ostler_plugin_webhook::DELIVERIES;

use super::{Endpoints, Told, machine};
use crate::exit::Exit;

pub(super) async fn log(endpoints: &Endpoints, id: &str) -> Result<Told, Exit> {
    endpoints.record(id).await?;
    let held = endpoints.collection(DELIVERIES).await?.get.call((id.to_owned(),)).await.map_err(machine)?;
    let rows = |field: &str| -> Vec<Value> {
        let rows = held.as_ref().and_then(|held| held.get(field)).and_then(Value::as_array);
        rows.cloned().unwrap_or_default()
    };
    let mut all = [rows("deliveries"), rows("refused")].concat();
    all.sort_by_key(|row| row["at"].as_str().unwrap_or_default().to_owned());
    let mut lines: Vec<String> = all.iter().map(line).collect();
    if lines.is_empty() {
        lines.push(format!("no call of {id} is kept yet"));
    }
    Ok(Told { lines, json: json!({ "id": id, "calls": all }), names: vec![id.to_owned()], good: true })
}

fn line(row: &Value) -> String {
    let text = |field: &str| row[field].as_str();
    let mut line = format!("{} {} {} ms", text("at").unwrap_or_default(), row["status"], row["ms"]);
    if row["again"] == true {
        line.push_str(", delivered again");
    }
    for (field, word) in [("thread", "thread"), ("turn", "turn"), ("chat", "in")] {
        if let Some(value) = text(field) {
            line.push_str(&format!(", {word} {}", shown(value)));
        }
    }
    for run in row["runs"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        line.push_str(&format!(", run {run}"));
    }
    if let Some(callback) = text("callback") {
        line.push_str(&format!(", callback {callback}"));
    }
    if let Some(why) = text("why") {
        line.push_str(&format!(": {}", shown(why)));
    }
    line
}

/// A caller's words on a terminal: nothing in them moves the cursor.
fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
