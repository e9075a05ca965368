//! The automations of an endpoint: the existing ones, and the creation of a first one.

use std::path::Path;
use std::time::Duration;

use ostler_contract::protocol::names;
use ostler_contract::protocol::wire::state::AutomationDefinition;
use ostler_contract::{JsonObject, Thrown, Value, json};
use ostler_plugin_webhook::{CALL, TRIGGER};
use ostler_ports::{atomic, frontmatter};

use super::{AddFlags, Endpoints};

/// How long to wait until a daemon has read a new automation.
const READ_LIMIT: Duration = Duration::from_secs(5);
/// The interval of requests to it.
const LOOK: Duration = Duration::from_millis(20);

/// An automation that an endpoint can fire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listener {
    pub id: String,
    pub title: String,
    pub enabled: bool,
}

impl Listener {
    pub fn json(&self) -> Value {
        json!({ "id": self.id, "title": self.title, "enabled": self.enabled })
    }

    pub fn line(&self) -> String {
        let Self { id, title, enabled } = self;
        match enabled {
            true => format!("starts automation {id} ({title})"),
            false => format!(
                "automation {id} ({title}) is disabled; enable it with: ostler automation enable {id}"
            ),
        }
    }

    fn of(id: &str, definition: &Value) -> Self {
        Self {
            id: id.to_owned(),
            title: definition["title"].as_str().unwrap_or(id).to_owned(),
            enabled: definition["enabled"].as_bool().unwrap_or(true),
        }
    }
}

/// Returns the lines about what a call to an endpoint starts.
pub(super) fn lines(endpoint: &str, listeners: &[Listener]) -> Vec<String> {
    match listeners.is_empty() {
        true => vec![format!("no automation has a trigger for {endpoint}; calls to it start nothing")],
        false => listeners.iter().map(Listener::line).collect(),
    }
}

impl Endpoints {
    /// Returns the automations that a call to an endpoint fires, including disabled ones, from the running daemon,
    /// otherwise from the files.
    pub(super) async fn listeners(&self, endpoint: &str) -> Vec<Listener> {
        let asked = match self.connect().await {
            Ok(Some(daemon)) => daemon.automations().await.ok(),
            _ => None,
        };
        let mut found: Vec<Listener> = match asked {
            Some(entries) => entries
                .iter()
                .filter_map(|entry| {
                    let definition = serde_json::to_value(&entry.definition).unwrap_or_default();
                    let id = crate::client::automations::id_of(entry);
                    listens(&definition, endpoint).then(|| Listener::of(id, &definition))
                })
                .collect(),
            // Without a daemon that answers this user, the stores are read.
            None if self.database.is_some() => self.in_database_of(endpoint).await,
            None => self.automations.as_deref().map(|dir| in_files(dir, endpoint)).unwrap_or_default(),
        };
        found.sort_by(|one, other| one.id.cmp(&other.id));
        found
    }

    /// Writes an automation that calls of the endpoint fire, if the endpoint has none; returns the automations, and the
    /// text of a new one if it could not be written.
    pub(super) async fn listen(&self, flags: &AddFlags) -> (Vec<Listener>, NewAutomation) {
        let listeners = self.listeners(&flags.id).await;
        let is_described = flags.prompt.is_some()
            || flags.provider.is_some()
            || flags.owner.is_some()
            || flags.worktree
            || flags.after.is_some();
        if !listeners.is_empty() && !is_described {
            return (listeners, NewAutomation::Nothing);
        }
        let text = text(flags);
        if let Some(direct) = &self.database {
            let stored = match definition(flags) {
                Ok(definition) => direct.create_automation(&flags.id, definition, flags.owner.clone()).await,
                Err(why) => Err(why),
            };
            return match stored {
                Ok(()) => {
                    let own = Listener { id: flags.id.clone(), title: title(&flags.id), enabled: true };
                    let written = NewAutomation::Stored { unread: !self.is_read(&flags.id).await };
                    (listeners.into_iter().chain([own]).collect(), written)
                }
                Err(why) => (listeners, NewAutomation::Printed(text, why.message)),
            };
        }
        let Some(dir) = &self.automations else {
            return (listeners, NewAutomation::Printed(text, "automations are stored in memory".to_owned()));
        };
        let file = dir.join(format!("{}.md", flags.id));
        match write_new(&file, &text) {
            Ok(()) => {
                let own = Listener { id: flags.id.clone(), title: title(&flags.id), enabled: true };
                let written = NewAutomation::File {
                    file: file.display().to_string(),
                    unread: !self.is_read(&flags.id).await,
                };
                (listeners.into_iter().chain([own]).collect(), written)
            }
            Err(error) => {
                let why = match error.kind() {
                    std::io::ErrorKind::AlreadyExists => format!("{} already exists", file.display()),
                    _ => format!("{} cannot be written: {error}", file.display()),
                };
                (listeners, NewAutomation::Printed(text, why))
            }
        }
    }
}

impl Endpoints {
    /// The automations in the database that a call to an endpoint fires.
    async fn in_database_of(&self, endpoint: &str) -> Vec<Listener> {
        let Some(direct) = &self.database else { return Vec::new() };
        let all = direct.automations().await.unwrap_or_default();
        let fires = all.iter().filter_map(|kept| {
            let definition = serde_json::to_value(&kept.definition).unwrap_or_default();
            listens(&definition, endpoint).then(|| Listener::of(&kept.id, &definition))
        });
        fires.collect()
    }

    /// Waits until the running daemon has read an automation, because an earlier call would start nothing. Returns
    /// whether it has; without a daemon it does not wait.
    async fn is_read(&self, id: &str) -> bool {
        let Ok(Some(daemon)) = self.connect().await else { return true };
        let listed = async {
            loop {
                match daemon.automations().await {
                    Ok(entries)
                        if entries.iter().any(|entry| crate::client::automations::id_of(entry) == id) =>
                    {
                        return true;
                    }
                    Ok(_) => tokio::time::sleep(LOOK).await,
                    // It does not answer to this user.
                    Err(_) => return true,
                }
            }
        };
        tokio::time::timeout(READ_LIMIT, listed).await.unwrap_or(false)
    }
}

/// The result of creating an automation for a new endpoint.
pub(super) enum NewAutomation {
    /// One exists.
    Nothing,
    /// It was written to this file.
    File {
        /// Its path.
        file: String,
        /// Whether the running daemon has not read it.
        unread: bool,
    },
    /// It was stored in the database.
    Stored {
        /// Whether the running daemon has not read it.
        unread: bool,
    },
    /// Its text, and why it was not written.
    Printed(String, String),
}

fn title(endpoint: &str) -> String {
    format!("Calls of {endpoint}")
}

/// Returns the text of the automation's file.
fn text(flags: &AddFlags) -> String {
    let mut fields = crate::client::automations::object(fields(flags));
    if let Some(owner) = &flags.owner {
        fields.insert("owner".to_owned(), owner.as_str().into());
    }
    frontmatter::join(&fields, &format!("{}\n", message(flags)))
}

fn definition(flags: &AddFlags) -> Result<AutomationDefinition, Thrown> {
    let mut fields = fields(flags);
    fields["message"] = json!({ "text": message(flags), "origin": { "kind": "automation" } });
    for event in fields["triggers"][0]["events"].as_array_mut().into_iter().flatten() {
        event["title"] = event["id"].clone();
    }
    serde_json::from_value(fields).map_err(Thrown::new)
}

fn message(flags: &AddFlags) -> String {
    match &flags.prompt {
        Some(prompt) => prompt.trim_end().to_owned(),
        None => format!(
            "The webhook {} was called and says hello to \"{{{{event.hello}}}}\". Answer in one sentence.",
            flags.id
        ),
    }
}

fn fields(flags: &AddFlags) -> Value {
    let mut session = JsonObject::new();
    if let Some(provider) = &flags.provider {
        session.insert("provider".to_owned(), provider.as_str().into());
    }
    if flags.worktree {
        session.insert("config".to_owned(), json!({ "isolation": "worktree" }));
    }
    let mut fields = json!({
        "title": title(&flags.id),
        "enabled": true,
        "session": session,
        "triggers": [{
            "id": "called", "kind": "event", "type": TRIGGER, "title": format!("A call of {}", flags.id),
            "events": [{ "id": CALL }], "config": { "endpoint": flags.id },
        }],
    });
    if let Some(operation) = &flags.after {
        fields["_meta"] = json!({ names::HOST: { "after": operation } });
    }
    fields
}

fn write_new(file: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        atomic::make_folder(folder)?;
    }
    // Written completely under another name first, because the daemon reads the folder as it changes.
    let mut whole = tempfile::Builder::new().prefix(".new-").tempfile_in(file.parent().unwrap_or(file))?;
    std::io::Write::write_all(&mut whole, text.as_bytes())?;
    whole.as_file().sync_all()?;
    whole.persist_noclobber(file).map_err(|failed| failed.error)?;
    atomic::sync_folder(file.parent().unwrap_or(file))
}

fn in_files(dir: &Path, endpoint: &str) -> Vec<Listener> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let mut found = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        let (Some(id), true) = (
            path.file_stem().and_then(|stem| stem.to_str()),
            path.extension().is_some_and(|extension| extension == "md"),
        ) else {
            continue;
        };
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let Ok((fields, _)) = frontmatter::split(&text) else { continue };
        let definition = Value::Object(fields);
        if listens(&definition, endpoint) {
            found.push(Listener::of(id, &definition));
        }
    }
    found
}

/// Returns whether a trigger of a definition is for calls of an endpoint.
fn listens(definition: &Value, endpoint: &str) -> bool {
    definition["triggers"].as_array().into_iter().flatten().any(|trigger| {
        trigger["kind"] == "event"
            && trigger["type"] == TRIGGER
            && trigger["config"]["endpoint"] == endpoint
            && trigger["events"].as_array().into_iter().flatten().any(|event| event["id"] == CALL)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_automation_listens_to_its_endpoint() {
        let flags =
            AddFlags { id: "ci".to_owned(), provider: Some("echo".to_owned()), ..AddFlags::default() };
        let text = text(&flags);
        let (fields, body) = frontmatter::split(&text).unwrap();
        assert_eq!(fields["session"], json!({ "provider": "echo" }));
        assert!(body.contains("{{event.hello}}"), "{body}");
        let definition = Value::Object(fields);
        assert!(listens(&definition, "ci") && !listens(&definition, "other"));

        let tree = AddFlags { worktree: true, after: Some("create-pr".to_owned()), ..flags.clone() };
        let tree = frontmatter::split(&super::text(&tree)).unwrap().0;
        assert_eq!(tree["session"]["config"], json!({ "isolation": "worktree" }));
        assert_eq!(tree["_meta"], json!({ "ostler": { "after": "create-pr" } }));
        let owned = super::text(&AddFlags { owner: Some("team:core".to_owned()), ..flags });
        assert_eq!(frontmatter::split(&owned).unwrap().0["owner"], "team:core");

        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("automations/ci.md");
        write_new(&file, &text).unwrap();
        assert_eq!(write_new(&file, "other").unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
        let found = in_files(file.parent().unwrap(), "ci");
        assert_eq!(lines("ci", &found), ["starts automation ci (Calls of ci)"]);
        assert_eq!(in_files(file.parent().unwrap(), "other"), []);
    }
}
