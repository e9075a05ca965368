//! The format of an automation: its definition as frontmatter, its message as the body.

use std::fs::Metadata;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use jiff::Timestamp;
use ostler_contract::cross::{Mismatch, check_data};
use ostler_contract::owner::Owner;
use ostler_contract::points::KeptAutomation;
use ostler_contract::protocol::wire::state::{AutomationDefinition, AutomationDefinitionPatch, Message};
use ostler_contract::shape::{FieldShape, Shape};
use ostler_contract::{Cross, JsonObject, Text, Value, json};
use serde::{Deserialize, Serialize};

use crate::folder::{Format, read_text};
use crate::frontmatter;
use ostler_contract::stores::automations::{TIMESTAMP, check, is_timestamp};
use ostler_contract::stores::automations::{iso, message};

/// The fields of the frontmatter that users can write. Parsed only for their shape.
#[derive(Debug, Clone, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
struct AutomationFile {
    /// The name of the file also contains it.
    id: Option<Text>,
    title: Text,
    enabled: Option<bool>,
    session: Option<SessionFields>,
    triggers: Option<Vec<TriggerFields>>,
    disable_conditions: Option<Vec<ConditionFields>>,
    owner: Option<Text>,
    created_at: Option<Text>,
    modified_at: Option<Text>,
    /// The fields of a message in addition to its text.
    message: Option<MessageFields>,
    #[serde(rename = "_meta")]
    meta: Option<JsonObject>,
}

#[derive(Debug, Clone, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
struct SessionFields {
    provider: Option<Text>,
    model: Option<ModelFields>,
    agent: Option<AgentFields>,
    working_directories: Option<Vec<String>>,
    config: Option<JsonObject>,
    customizations: Option<Vec<JsonObject>>,
}

#[derive(Debug, Clone, Serialize, Deserialize, Cross)]
#[cross(data)]
struct ModelFields {
    id: Text,
    config: Option<JsonObject>,
}

#[derive(Debug, Clone, Serialize, Deserialize, Cross)]
#[cross(data)]
struct AgentFields {
    uri: Text,
}

#[derive(Debug, Clone, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
struct MessageFields {
    attachments: Option<Vec<JsonObject>>,
    model: Option<ModelFields>,
    agent: Option<AgentFields>,
    #[serde(rename = "_meta")]
    meta: Option<JsonObject>,
}

#[derive(Debug, Clone, Serialize, Deserialize, Cross)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum TriggerFields {
    Schedule {
        id: Text,
        schedule: ScheduleFields,
        misfire_policy: Option<Misfire>,
    },
    Event {
        id: Text,
        r#type: Text,
        title: Option<Text>,
        description: Option<String>,
        events: Vec<EventFields>,
        config: Option<JsonObject>,
    },
}

#[derive(Debug, Clone, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
#[cross(data)]
struct ScheduleFields {
    expression: Text,
    time_zone: Option<Text>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Cross)]
#[serde(rename_all = "camelCase")]
enum Misfire {
    Skip,
    RunOnce,
}

#[derive(Debug, Clone, Serialize, Deserialize, Cross)]
#[cross(data)]
struct EventFields {
    id: Text,
    title: Option<Text>,
    description: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize, Cross)]
#[serde(tag = "kind", rename_all = "camelCase")]
enum ConditionFields {
    AfterRuns { max: i64 },
    AfterDate { date: Text },
}

/// A parsed file.
#[derive(Clone)]
pub(super) struct ParsedAutomation {
    pub(super) kept: KeptAutomation,
    /// All its fields, including unknown ones.
    fields: JsonObject,
    body: String,
}

pub(super) struct AutomationFormat;

impl Format for AutomationFormat {
    type Value = Arc<ParsedAutomation>;
    type Index = ();

    fn check_id(&self, id: &str) -> Result<(), String> {
        ostler_contract::stores::automations::check_id(id)
    }

    fn read(&self, id: &str, text: &str, ignored: &mut Vec<String>) -> Result<Arc<ParsedAutomation>, String> {
        let (fields, body) = frontmatter::split(text).map_err(|error| error.to_string())?;
        let value = Value::Object(fields.clone());
        let shape = AutomationFile::shape();
        check_data(&value, &shape).map_err(|wrong| must(&wrong))?;
        unknown(&value, &shape, &mut |path| ignored.push(format!("{path} is not a field of an automation")));
        let text = |field: &str| fields.get(field).and_then(Value::as_str);
        if let Some(written) = text("id").filter(|written| *written != id) {
            return Err(format!("id {written} does not match the file name {id}"));
        }
        if text("owner").is_some_and(|owner| Owner::parse(owner).is_none()) {
            return Err(format!("owner must be {}", Owner::FORMS));
        }
        for field in ["createdAt", "modifiedAt"] {
            if text(field).is_some_and(|at| !is_timestamp(at)) {
                return Err(format!("{field} must be {TIMESTAMP}"));
            }
        }
        let kept = KeptAutomation {
            id: id.to_owned(),
            definition: definition(&fields, &body)?,
            owner: text("owner").map(str::to_owned),
            created_at: text("createdAt").unwrap_or_default().to_owned(),
            modified_at: text("modifiedAt").unwrap_or_default().to_owned(),
        };
        Ok(Arc::new(ParsedAutomation { kept, fields, body: body.into_owned() }))
    }

    /// Times that are not in the file are those of the file itself.
    fn date(&self, value: Arc<ParsedAutomation>, found: &Metadata) -> Arc<ParsedAutomation> {
        let mut read = Arc::unwrap_or_clone(value);
        let time = |at: SystemTime| Timestamp::try_from(at).map(iso).ok();
        let modified = found.modified().ok();
        if read.kept.modified_at.is_empty() {
            read.kept.modified_at = modified.and_then(time).unwrap_or_default();
        }
        if read.kept.created_at.is_empty() {
            // A copied file can be younger than its content.
            let made = [found.created().ok(), modified].into_iter().flatten().min();
            read.kept.created_at = made.and_then(time).unwrap_or_default();
        }
        Arc::new(read)
    }

    fn same(&self, one: &Arc<ParsedAutomation>, other: &Arc<ParsedAutomation>) -> bool {
        one.kept.definition == other.kept.definition && one.kept.owner == other.kept.owner
    }
}

fn must(wrong: &Mismatch) -> String {
    format!("{} must be {}", wrong.path, wrong.expected)
}

/// Returns the definition of a file in the form of the protocol, with defaults for what users omit.
fn definition(fields: &JsonObject, body: &str) -> Result<AutomationDefinition, String> {
    let field = |name: &str| fields.get(name).filter(|value| !value.is_null()).cloned();
    let mut said = field("message").unwrap_or_else(|| json!({}));
    said["text"] = body.into();
    said["origin"] = json!({ "kind": "automation" });
    let triggers: Vec<Value> = match field("triggers") {
        Some(Value::Array(triggers)) => triggers.into_iter().map(complete).collect(),
        _ => Vec::new(),
    };
    let definition = json!({
        "title": field("title"), "enabled": field("enabled").unwrap_or(true.into()), "message": said,
        "session": field("session").unwrap_or_else(|| json!({})), "triggers": triggers,
        "disableConditions": field("disableConditions").filter(|conditions| *conditions != json!([])),
        "_meta": field("_meta"),
    });
    let definition: AutomationDefinition =
        serde_json::from_value(definition).map_err(|error| format!("not an automation: {error}"))?;
    let definition = AutomationDefinition { message: message(definition.message), ..definition };
    check(&definition)?;
    Ok(definition)
}

/// Adds the defaults that users omit from a trigger: titles, and the time zone of a schedule.
fn complete(mut trigger: Value) -> Value {
    let named_after = |value: &mut Value, other: &str| {
        if value["title"].is_null() {
            value["title"] = value[other].clone();
        }
    };
    if trigger["kind"] == "event" {
        named_after(&mut trigger, "type");
        trigger["events"].as_array_mut().into_iter().flatten().for_each(|event| named_after(event, "id"));
    } else if trigger["schedule"]["timeZone"].is_null() {
        trigger["schedule"]["timeZone"] = "UTC".into();
    }
    trigger
}

/// Returns the fields that the shape does not have.
fn unknown(value: &Value, shape: &Shape, found: &mut dyn FnMut(String)) {
    match (shape.core(), value) {
        (Shape::Object(object), Value::Object(given)) => unknown_fields(given, &object().fields, None, found),
        (Shape::Union(union), Value::Object(given)) => {
            let union = union();
            let tag = given.get(union.tag).and_then(Value::as_str);
            if let Some(variant) = union.variants.iter().find(|variant| Some(variant.tag) == tag) {
                unknown_fields(given, &variant.fields, Some(union.tag), found);
            }
        }
        (Shape::List(inner), Value::Array(entries)) => {
            for (at, entry) in entries.iter().enumerate() {
                unknown(entry, inner, &mut |path| found(format!("[{at}]{}", dotted(&path))));
            }
        }
        _ => {}
    }
}

fn unknown_fields(
    given: &JsonObject,
    fields: &[FieldShape],
    tag: Option<&str>,
    found: &mut dyn FnMut(String),
) {
    for (key, value) in given {
        match fields.iter().find(|field| field.name == key) {
            Some(field) => unknown(value, &field.shape, &mut |path| found(format!("{key}{}", dotted(&path)))),
            None if tag == Some(key) => {}
            None => found(key.clone()),
        }
    }
}

fn dotted(path: &str) -> String {
    if path.starts_with('[') { path.to_owned() } else { format!(".{path}") }
}

/// A patch with all of a definition.
fn whole(definition: AutomationDefinition) -> AutomationDefinitionPatch {
    AutomationDefinitionPatch {
        title: Some(definition.title),
        message: Some(definition.message),
        session: Some(definition.session),
        enabled: Some(definition.enabled),
        triggers: Some(definition.triggers),
        disable_conditions: definition.disable_conditions,
        meta: definition.meta,
    }
}

/// Returns the text of a new automation's file.
pub(super) fn text(definition: AutomationDefinition, owner: Option<&str>) -> String {
    let mut fields = JsonObject::new();
    let mut body = String::new();
    patch_file(&mut fields, &mut body, whole(definition));
    if let Some(owner) = owner {
        fields.insert("owner".to_owned(), owner.into());
    }
    fields.insert("createdAt".to_owned(), iso(Timestamp::now()).into());
    frontmatter::join(&fields, &body)
}

/// Returns the text of the file of an automation that exists elsewhere, with its times.
pub(crate) fn automation_text(kept: KeptAutomation) -> String {
    let KeptAutomation { definition, owner, created_at, modified_at, .. } = kept;
    let mut fields = JsonObject::new();
    let mut body = String::new();
    patch_file(&mut fields, &mut body, whole(definition));
    if let Some(owner) = owner {
        fields.insert("owner".to_owned(), owner.into());
    }
    fields.insert("createdAt".to_owned(), created_at.into());
    fields.insert("modifiedAt".to_owned(), modified_at.into());
    frontmatter::join(&fields, &body)
}

/// Reads the file of an automation; `None` if it does not exist.
pub(crate) fn read_automation(
    path: &Path,
    id: &str,
    ignored: &mut Vec<String>,
) -> Result<Option<KeptAutomation>, String> {
    let found = match std::fs::metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let read = AutomationFormat.read(id, &read_text(path)?, ignored)?;
    Ok(Some(AutomationFormat.date(read, &found).kept.clone()))
}

/// Returns the text of an automation's file with the changes applied, and everything else unchanged.
pub(super) fn patched_text(read: &ParsedAutomation, patch: AutomationDefinitionPatch) -> String {
    let (mut fields, mut body) = (read.fields.clone(), read.body.clone());
    patch_file(&mut fields, &mut body, patch);
    if fields.contains_key("modifiedAt") {
        fields.insert("modifiedAt".to_owned(), iso(Timestamp::now()).into());
    }
    if !fields.contains_key("createdAt") {
        // Writing updates the time of the file.
        fields.insert("createdAt".to_owned(), read.kept.created_at.clone().into());
    }
    frontmatter::join(&fields, &body)
}

fn patch_file(fields: &mut JsonObject, body: &mut String, patch: AutomationDefinitionPatch) {
    let Ok(Value::Object(changes)) = serde_json::to_value(&patch) else { return };
    for (key, value) in changes {
        let empty = value.as_array().is_some_and(Vec::is_empty)
            || value.as_object().is_some_and(JsonObject::is_empty);
        match key.as_str() {
            "message" => {}
            "disableConditions" | "_meta" | "session" if empty => drop(fields.shift_remove(&key)),
            _ => drop(fields.insert(key, value)),
        }
    }
    if let Some(said) = patch.message.map(message) {
        *body = if said.text.is_empty() { String::new() } else { format!("{}\n", said.text) };
        match beside_text(&said) {
            beside if beside.is_empty() => drop(fields.shift_remove("message")),
            beside => drop(fields.insert("message".to_owned(), beside.into())),
        }
    }
}

fn beside_text(said: &Message) -> JsonObject {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(said) else { return JsonObject::new() };
    fields.shift_remove("text");
    fields.shift_remove("origin");
    fields
}
