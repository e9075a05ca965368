//! `ostler config`: prints the configuration files unchanged. It is the only answer that shows credentials; with
//! `--remote` they are redacted.

use ostler_contract::json;

use crate::answer::Answer;
use crate::api::shapes::Configuration;
use crate::config::{FILE, parse};
use crate::exit::Exit;
use crate::place::Place;

/// Prints each file unchanged, with its path on stderr, so that stdout contains only the file.
///
/// # Errors
/// Exit 2 for an unreadable file.
pub async fn config(place: &Place) -> Result<Answer, Exit> {
    if let Some(remote) = place.remote()? {
        let shown: Configuration = remote.get("/api/config").await?;
        let text = serde_json::to_string_pretty(&shown.config).unwrap_or_default();
        let answer = Answer::of_text(&text, json!(shown)).named(shown.files.clone());
        return Ok(shown.files.into_iter().fold(answer, Answer::note));
    }
    let files = place.files()?;
    let mut answer = Answer::default();
    let mut rows = Vec::new();
    for file in &files.files {
        let shown = file.display().to_string();
        let text = std::fs::read_to_string(file)
            .map_err(|error| Exit::usage(format!("{shown} could not be read: {error}")))?;
        rows.push(json!({ "file": shown, "config": parse(&shown, &text).unwrap_or_default() }));
        answer.text.push_str(&text);
        if !text.ends_with('\n') {
            answer.text.push('\n');
        }
        answer.notes.push(shown.clone());
        answer.names.push(shown);
    }
    if rows.is_empty() {
        let own = files.dir.join(FILE);
        answer.notes.push(format!("no configuration file found; expected {}", own.display()));
    }
    answer.notes.extend(files.warnings);
    answer.json = json!({ "files": rows });
    Ok(answer)
}
