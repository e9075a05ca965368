//! `ostler status`: where the daemon runs.

use ostler_contract::{Value, json};

use crate::answer::Answer;
use crate::exit::Exit;
use crate::place::Place;
use crate::record::{self, Record};

/// Says where it runs; exit 1 where none does.
///
/// # Errors
/// Exit 2 for a configuration file that is named and not there.
pub fn status(place: &Place) -> Result<Answer, Exit> {
    let folders = place.folders()?;
    let Some(record) = record::running(&folders) else {
        let mut none = Answer::none_running("running");
        if let Some(pid) = record::starting(&folders) {
            none.text = format!("None running: starting (pid {pid}).\n");
            none.json["starting"] = pid.into();
        }
        return Ok(none);
    };
    let Record { pid, url, paths, started_at, state, automations, .. } = &record;
    let mut lines = vec![
        format!("ostler on {url} (pid {pid}), started {started_at}"),
        format!("serving {}", paths.join(", ")),
    ];
    lines.extend(automations.clone());
    lines.extend(state.as_ref().map(|state| format!("state in {}", state.display())));
    lines.extend(record.said.iter().cloned());
    Ok(Answer::new(lines, status_json(&record)).named([url]))
}

/// The same as JSON; the token is not in it.
pub fn status_json(record: &Record) -> Value {
    let mut json = json!({
        "pid": record.pid, "url": record.url, "paths": record.paths, "startedAt": record.started_at,
    });
    if let Some(automations) = &record.automations {
        json["automations"] = automations.clone().into();
    }
    if let Some(state) = &record.state {
        json["state"] = state.display().to_string().into();
    }
    if !record.said.is_empty() {
        json["said"] = json!(record.said);
    }
    json
}
