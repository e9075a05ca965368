//! `ostler webhook list`: every record, what it does, and what is wrong with it.

use ostler_contract::{JsonObject, Value, json, limit};
use ostler_plugin_webhook::tools::{Facts, no_endpoint};
use ostler_plugin_webhook::{DELIVERIES, ENDPOINTS};

use super::{Endpoints, Told, machine};
use crate::exit::Exit;

pub(super) async fn list(endpoints: &Endpoints) -> Result<Told, Exit> {
    let mut records =
        endpoints.collection(ENDPOINTS).await?.list.within(limit::STORE, ()).await.map_err(machine)?;
    records.sort_by_key(|record| id_of(record).to_owned());
    let deliveries = endpoints.collection(DELIVERIES).await?;
    let (mut lines, mut rows, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for record in &records {
        let id = id_of(record);
        names.push(id.to_owned());
        let url = endpoints.url(id);
        let facts = match Facts::read(record) {
            Ok(facts) => facts,
            Err(why) => {
                lines.push(format!("{id}: {}", no_endpoint(&why)));
                rows.push(json!({ "id": id, "url": url, "problem": why }));
                continue;
            }
        };
        let set = endpoints.secret(&facts.secret).await?.is_some_and(|secret| !secret.is_empty());
        let last = deliveries.get.within(limit::STORE, (id.to_owned(),)).await.map_err(machine)?;
        let last = last.as_ref().and_then(|log| log.get("deliveries")).and_then(Value::as_array);
        let last = last.and_then(|rows| rows.last()).cloned();
        lines.push(line(&facts, &url, set, last.as_ref()));
        rows.push(json!({
            "id": id, "url": url, "bot": facts.bot, "automation": facts.bot.is_none(), "reply": facts.reply,
            "verify": facts.verify(), "secret": facts.secret, "secretSet": set, "warnings": facts.warnings,
            "last": last,
        }));
    }
    if lines.is_empty() {
        lines.push("no endpoints; add one with: ostler webhook add <id>".to_owned());
    }
    Ok(Told { lines, json: rows.into(), names, good: true })
}

fn line(facts: &Facts, url: &str, set: bool, last: Option<&Value>) -> String {
    let does = match (&facts.bot, facts.reply) {
        (Some(bot), Some(reply)) => format!("{bot}, {reply}"),
        _ => "automations".to_owned(),
    };
    let mut line = format!("{}: {does}, {url}", facts.id);
    if let Some(verify) = facts.verify() {
        line.push_str(&format!(", {verify} signature"));
    }
    if !set {
        line.push_str(&format!(", {} is not set", facts.secret));
    }
    if let Some(last) = last {
        let at = last["at"].as_str().unwrap_or_default();
        line.push_str(&format!(", last called {at} ({})", last["status"]));
    }
    for warning in &facts.warnings {
        line.push_str(&format!(", {warning}"));
    }
    line
}

fn id_of(record: &JsonObject) -> &str {
    record.get("id").and_then(Value::as_str).unwrap_or_default()
}
