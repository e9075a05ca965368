//! `ostler webhook list`: lists all endpoints with their actions and problems.

use ostler_contract::{JsonObject, Value, json, limit};
use ostler_plugin_webhook::tools::{EndpointFacts, no_endpoint};
use ostler_plugin_webhook::{DELIVERIES, ENDPOINTS};

use super::{Endpoints, VerbOutput, machine};
use crate::exit::Exit;

pub(super) async fn list(endpoints: &Endpoints) -> Result<VerbOutput, Exit> {
    let mut records =
        endpoints.collection(ENDPOINTS).await?.list.read(limit::STORE, ()).await.known().map_err(machine)?;
    records.sort_by_key(|record| id_of(record).to_owned());
    let deliveries = endpoints.collection(DELIVERIES).await?;
    let mut rows = Vec::new();
    for record in &records {
        let id = id_of(record);
        let url = endpoints.url(id);
        let facts = match EndpointFacts::read(record) {
            Ok(facts) => facts,
            Err(why) => {
                rows.push(json!({ "id": id, "url": url, "problem": why }));
                continue;
            }
        };
        let set = endpoints.secret(&facts.secret).await?.is_some_and(|secret| !secret.is_empty());
        let last = super::log::recorded(&deliveries, id).await?.accepted.pop();
        rows.push(json!({
            "id": id, "url": url, "bot": facts.bot, "automation": facts.bot.is_none(), "reply": facts.reply,
            "verify": facts.verify(), "secret": facts.secret, "secretSet": set, "warnings": facts.warnings,
            "last": last,
        }));
    }
    for (id, why) in endpoints.unread() {
        if !rows.iter().any(|row| row["id"] == *id) {
            rows.push(json!({ "id": id, "url": endpoints.url(&id), "unread": why }));
        }
    }
    rows.sort_by_key(|row| text(row, "id").to_owned());
    Ok(listed(rows))
}

/// Returns the output for endpoints.
pub fn listed(rows: Vec<Value>) -> VerbOutput {
    let names = rows.iter().map(|row| text(row, "id").to_owned()).collect();
    let mut lines: Vec<String> = rows.iter().map(line).collect();
    if lines.is_empty() {
        lines.push("no endpoints; add one with: ostler webhook add <id> --automation".to_owned());
    }
    VerbOutput { lines, json: rows.into(), names, good: true }
}

fn text<'a>(row: &'a Value, field: &str) -> &'a str {
    row[field].as_str().unwrap_or_default()
}

fn line(row: &Value) -> String {
    let id = text(row, "id");
    if let Some(why) = row["problem"].as_str() {
        return format!("{id}: {}", no_endpoint(why));
    }
    if let Some(why) = row["unread"].as_str() {
        return format!("{id}: {why}");
    }
    let does = match (row["bot"].as_str(), row["reply"].as_str()) {
        (Some(bot), Some(reply)) => format!("{bot}, {reply}"),
        _ => "automations".to_owned(),
    };
    let mut line = format!("{id}: {does}, {}", text(row, "url"));
    if let Some(verify) = row["verify"].as_str() {
        line.push_str(&format!(", {verify} signature"));
    }
    if row["secretSet"] != true {
        line.push_str(&format!(", {} is not set", text(row, "secret")));
    }
    if let Some(at) = row["last"]["at"].as_str() {
        line.push_str(&format!(", last called {at} ({})", row["last"]["status"]));
    }
    for warning in row["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        line.push_str(&format!(", {warning}"));
    }
    line
}

fn id_of(record: &JsonObject) -> &str {
    record.get("id").and_then(Value::as_str).unwrap_or_default()
}
