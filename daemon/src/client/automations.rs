//! The automations of a running daemon, as its clients see them.

use ostler_contract::{JsonObject, Value, json};
use ostler_protocol::wire::state::{AutomationEntry, AutomationRunSummary, AutomationTrigger, SnapshotState};
use ostler_protocol::{names, uri};

use super::Connection;
use super::follow::outcome;
use crate::api::list_shapes::INPUT_NEEDED;
use crate::exit::Exit;
use ostler_protocol::nearest::did_you_mean;
use ostler_telemetry::printable::one_line;

impl Connection {
    /// Every automation of the host.
    ///
    /// # Errors
    /// As [`Connection::request`].
    pub async fn automations(&self) -> Result<Vec<AutomationEntry>, Exit> {
        match self.state(uri::AUTOMATIONS).await? {
            SnapshotState::Automations(state) => Ok(state.entries),
            // An empty catalogue reads as any state.
            _ => Ok(Vec::new()),
        }
    }

    /// The automation a command names, by id or URI.
    ///
    /// # Errors
    /// Exit 2 when there is none.
    pub async fn automation(&self, name: &str) -> Result<AutomationEntry, Exit> {
        let entries = self.automations().await?;
        let id = uri::automation_id(name).unwrap_or(name);
        if let Some(entry) = entries.iter().find(|entry| id_of(entry) == id) {
            return Ok(entry.clone());
        }
        let hint = did_you_mean(id, entries.iter().map(id_of));
        Err(Exit::usage(format!(
            "unknown automation {name}; list automations with: ostler automation list{hint}"
        )))
    }

    /// Enables or disables an automation.
    ///
    /// # Errors
    /// Exit 2 with the host's reason when it is rejected.
    pub async fn enable(&self, automation: &str, enabled: bool) -> Result<(), Exit> {
        let action = json!({
            "type": "automation/updateRequested", "resource": automation, "changes": { "enabled": enabled },
        });
        let subscribed = self.client().subscribe(uri::AUTOMATIONS.to_owned()).await.map_err(super::exit)?;
        let dispatched = self.dispatch(uri::AUTOMATIONS, object(action)).await;
        drop(subscribed);
        dispatched
    }

    /// Removes an automation with its runs.
    ///
    /// # Errors
    /// Exit 2 with the host's reason when it is rejected.
    pub async fn remove_automation(&self, automation: &str) -> Result<(), Exit> {
        let action = json!({ "type": "automation/removed", "resource": automation });
        let subscribed = self.client().subscribe(uri::AUTOMATIONS.to_owned()).await.map_err(super::exit)?;
        let dispatched = self.dispatch(uri::AUTOMATIONS, object(action)).await;
        drop(subscribed);
        dispatched
    }

    /// Starts a run by hand; returns its URI.
    ///
    /// # Errors
    /// As [`Connection::request`].
    pub async fn run_automation(&self, automation: &str) -> Result<String, Exit> {
        let request = uuid::Uuid::new_v4().to_string();
        let params = json!({ "channel": uri::AUTOMATIONS, "automation": automation, "requestId": request });
        let answer = self.request("runAutomation", params).await?;
        Ok(answer["resource"].as_str().unwrap_or_default().to_owned())
    }

    /// How a run went: the row of [`run_json`], or `None` when the host no longer knows it.
    ///
    /// # Errors
    /// Exit 1 when the connection ends.
    pub async fn run_row(&self, run: &str) -> Result<Option<Value>, Exit> {
        match self.state(run).await {
            Ok(SnapshotState::AutomationRun(state)) => {
                let (status, at, error) = outcome(&state.lifecycle);
                Ok(Some(json!({
                    "run": run, "automation": state.automation, "status": status, "at": at,
                    "session": state.primary_session, "error": error,
                })))
            }
            Ok(_) | Err(Exit::Usage(_)) => Ok(None),
            Err(other) => Err(other),
        }
    }
}

pub fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(fields) => fields,
        _ => JsonObject::new(),
    }
}

pub fn id_of(entry: &AutomationEntry) -> &str {
    uri::automation_id(&entry.resource).unwrap_or(&entry.resource)
}

/// What wakes an automation, a phrase each.
pub fn triggers(entry: &AutomationEntry) -> Vec<String> {
    entry.definition.triggers.iter().map(trigger).collect()
}

fn trigger(trigger: &AutomationTrigger) -> String {
    match trigger {
        AutomationTrigger::Schedule(trigger) => {
            format!("schedule {} {}", trigger.schedule.expression, trigger.schedule.time_zone)
        }
        AutomationTrigger::Event(trigger) => {
            let endpoint = trigger.config.as_ref().and_then(|config| config.get("endpoint")?.as_str());
            match endpoint {
                Some(endpoint) => format!("{} {endpoint}", trigger.r#type),
                None => {
                    let events: Vec<&str> = trigger.events.iter().map(|event| event.id.as_str()).collect();
                    format!("{} {}", trigger.r#type, events.join(", "))
                }
            }
        }
    }
}

/// A run as a row.
pub fn run_json(run: &AutomationRunSummary) -> Value {
    let (status, at, error) = outcome(&run.lifecycle);
    json!({
        "run": run.resource, "status": status, "at": at, "session": run.primary_session, "error": error,
        "origin": run.origin, "after": run.meta.as_ref().and_then(|meta| meta.get(&names::meta_key("after"))),
    })
}

/// The state of a row of [`run_json`], as messages name it.
pub fn run_word(row: &Value) -> &str {
    match row["waiting"] == true {
        true => INPUT_NEEDED,
        false => row["status"].as_str().unwrap_or_default(),
    }
}

/// A row of [`run_json`] as a line.
pub fn run_line(row: &Value) -> String {
    let text = |field: &str| row[field].as_str().unwrap_or_default();
    let mut line = format!("{} {}, {}", text("run"), run_word(row), text("at"));
    if let Some(session) = row["session"].as_str() {
        line.push_str(&format!(", session {session}"));
    }
    line.push_str(&outcome_words(row["error"].as_str(), row["after"]["message"].as_str()));
    line
}

/// Why a run failed, or else what was done with its changes after its turn, as the end of its line.
pub fn outcome_words(error: Option<&str>, done: Option<&str>) -> String {
    error.or(done).map(|text| format!(": {}", one_line(text))).unwrap_or_default()
}
