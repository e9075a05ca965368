//! The configuration on the root channel: the keys that clients can edit, and `plugins.<id>` for each plugin.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use ostler_contract::live::{Pending, ready};
use ostler_contract::secret::SET;
use ostler_contract::shape::Shape;
use ostler_contract::{JsonObject, Value, json};
use ostler_engine::settings::{OwnChange, OwnSettings, no_setting};
use ostler_engine::wire::FrameRecorder;
use ostler_loader::options::walk::Nodes;
use ostler_loader::options::{PlaceholderError, SchemaInfo, patched, redacted_value};
use ostler_ports::atomic;
use ostler_protocol::names;

use crate::config::{self, Apply, ConfigFiles, Effect, KEYS, Key, RootSetting};
use crate::config_redaction::{self, MARKS};
use crate::control::Control;
use crate::exit::Exit;
use crate::frame_log::WireFile;
use crate::mcp_servers::{wrong_change, wrong_with};
use crate::plugins::{self, Change, Row};

const PLUGIN: &str = "plugins.";
/// The folder in the configuration folder for recordings that clients request.
const RECORDINGS: &str = "wire";
/// The maximum depth of a plugin's schema, which can be recursive.
const DEEPEST: usize = 6;

/// The configuration on the root channel.
pub struct RootSettings(pub Arc<Control>);

/// A key that clients can edit.
fn editable(name: &str) -> Option<(&'static Key, &'static RootSetting)> {
    let key = KEYS.iter().find(|key| key.name == name)?;
    Some((key, key.root.as_ref()?))
}

impl OwnSettings for RootSettings {
    fn owns(&self, key: &str) -> bool {
        key.starts_with(PLUGIN) || editable(key).is_some()
    }

    fn schema(&self) -> JsonObject {
        let rows = self.0.configured().map(|(_, rows)| rows).unwrap_or_default();
        let keys = KEYS.iter().filter_map(|key| {
            let (kind, title) = (key.kind(), key.root.as_ref()?.title);
            let mut property = json!({ "type": kind, "title": title });
            if kind == "array" {
                property["items"] = json!({ "type": "string", "title": "Entry" });
            }
            Some((key.name.to_owned(), property))
        });
        let plugins = rows.iter().map(|row| (format!("{PLUGIN}{}", row.name()), of_plugin(row)));
        keys.chain(plugins).collect()
    }

    fn values(&self) -> JsonObject {
        match self.0.configured() {
            Ok((files, rows)) => values(&files, &rows),
            Err(_) => JsonObject::new(),
        }
    }

    fn meta(&self) -> JsonObject {
        let needed = self.0.restart_needed();
        match needed.is_empty() {
            true => JsonObject::new(),
            false => [(names::meta_key("restartNeeded"), json!(needed))].into_iter().collect(),
        }
    }

    fn change(&self, config: JsonObject) -> Pending<OwnChange> {
        let control = self.0.clone();
        let changing = tokio::task::spawn_blocking(move || {
            let _writing = control.writing.blocking_lock();
            change(&control, config)
        });
        Box::pin(async move {
            match changing.await {
                Ok(changed) => Ok(changed),
                Err(error) => ready(Err(ostler_contract::Thrown::new(error))).await,
            }
        })
    }
}

fn values(files: &ConfigFiles, rows: &[Row]) -> JsonObject {
    let said = config_redaction::config(files, rows);
    let keys = said.into_iter().filter(|(name, _)| editable(name).is_some());
    let plugins = rows.iter().map(|row| {
        let value = json!({ "enabled": row.entry.enabled, "options": row.options() });
        (format!("{PLUGIN}{}", row.name()), value)
    });
    keys.chain(plugins).map(|(key, value)| (key, config_redaction::without_userinfo(value))).collect()
}

fn change(control: &Control, config: JsonObject) -> OwnChange {
    let mut changed = OwnChange::default();
    for (key, value) in config {
        if let Err(why) = change_one(control, &key, value) {
            changed.refused = Some(control.hidden.hide(&why.to_string()).into_owned());
            break;
        }
        if let Ok((files, rows)) = control.configured() {
            // A removed value is reported as such.
            let now = values(&files, &rows).shift_remove(&key).unwrap_or(Value::Null);
            changed.shown.insert(key, now);
        }
    }
    changed
}

/// Returns the file for recordings that a client names. It must be in a folder of the host, because the host writes it
/// with its own rights, and a client could otherwise name any file that the host can write.
fn recording(dir: &Path, named: &str) -> Result<PathBuf, Exit> {
    let folder = dir.join(RECORDINGS);
    let shown = folder.display();
    let refused = || Exit::usage(format!("wire must name a file in {shown}, such as frames.jsonl"));
    let named = Path::new(named);
    let file = if named.is_absolute() { named.strip_prefix(&folder).map_err(|_| refused())? } else { named };
    let mut parts = file.components();
    let (Some(Component::Normal(name)), None) = (parts.next(), parts.next()) else { return Err(refused()) };
    let failed = |error: io::Error| Exit::machine(format!("wire: {shown} could not be created: {error}"));
    atomic::make_folder(&folder).map_err(failed)?;
    let path = folder.join(name);
    // Neither may be a link to another place.
    let is = |path: &Path| fs::symlink_metadata(path).map(|found| found.file_type());
    let file = match is(&path) {
        Ok(kind) => kind.is_file(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    match file && is(&folder).map_err(failed)?.is_dir() {
        true => Ok(path),
        false => Err(refused()),
    }
}

/// Returns the configuration with the sent values.
fn with(said: &JsonObject, sent: &JsonObject) -> Result<JsonObject, Exit> {
    let in_message = |why: PlaceholderError| Exit::usage(why.to_string().trim_start_matches('.'));
    patched(said, sent, SchemaInfo::Declared(Some(&MARKS))).map_err(in_message)
}

fn change_one(control: &Control, key: &str, value: Value) -> Result<(), Exit> {
    let (files, rows) = control.configured()?;
    if let Some(name) = key.strip_prefix(PLUGIN) {
        return change_plugin(control, &files, &rows, name, value);
    }
    let Some((known, setting)) = editable(key) else { return Err(Exit::usage(no_setting(key))) };
    let mut sent: JsonObject = [(key.to_owned(), value)].into_iter().collect();
    // Checked before any file is opened.
    with(&files.said, &sent)?;
    let apply = match (&setting.effect, sent.get_mut(key)) {
        (Effect::Live(check), Some(value)) => Some(check(control, &files, value)?),
        _ => None,
    };
    let written = config::edit(&files, key, |fields| {
        let held = fields.get(key).cloned();
        let mut after = with(fields, &sent)?;
        // An object with declared members is one value, in which only credentials are retained.
        if let (Some(Value::Object(sent)), Some(Value::Object(held)), Some(Value::Object(after))) =
            (sent.get(key), held, after.get_mut(key))
            && matches!(known.shape.core(), Shape::Object(_))
        {
            after.retain(|name, _| sent.contains_key(name) || !held.contains_key(name));
        }
        *fields = after;
        Ok(())
    })?;
    match apply {
        Some(apply) => apply(&control.host),
        None if written.is_some() => control.needs_restart(key),
        None => {}
    }
    Ok(())
}

pub(crate) fn advanced_tools(_: &Control, _: &ConfigFiles, value: &mut Value) -> Result<Apply, Exit> {
    Ok(match value {
        Value::Bool(_) | Value::Null => {
            let offered = *value == Value::Bool(true);
            Box::new(move |host| host.core.set_advanced_tools(offered))
        }
        // The file rejects it.
        _ => Box::new(|_| {}),
    })
}

pub(crate) fn wire(control: &Control, files: &ConfigFiles, value: &mut Value) -> Result<Apply, Exit> {
    let file = match value {
        // A value of the operator in the file stays; a client that sends it back changes nothing.
        Value::String(_) if files.said.get("wire") == Some(value) => return Ok(Box::new(|_| {})),
        Value::String(file) => recording(&files.dir, file)?,
        Value::Null => return Ok(Box::new(|host| host.core.record_frames(None))),
        // The file rejects it.
        _ => return Ok(Box::new(|_| {})),
    };
    let open = Arc::new(WireFile::open(&file, control.hidden.clone(), control.host.core.log.clone())?);
    *value = file.to_string_lossy().into_owned().into();
    Ok(Box::new(move |host| host.core.record_frames(Some(open as Arc<dyn FrameRecorder>))))
}

/// Rejects a value with invalid servers. Sessions read the file at their start.
pub(crate) fn mcp_servers(_: &Control, files: &ConfigFiles, value: &mut Value) -> Result<Apply, Exit> {
    let key = "mcpServers";
    let applied: Apply = Box::new(|_| {});
    let Value::Object(changed) = value else { return Ok(applied) };
    let sent: JsonObject = [(key.to_owned(), Value::Object(changed.clone()))].into_iter().collect();
    let after = with(&files.said, &sent)?;
    for name in changed.iter().filter(|(_, server)| !server.is_null()).map(|(name, _)| name) {
        let server = after.get(key).and_then(|servers| servers.get(name)).unwrap_or(&Value::Null);
        if let Some(wrong) = wrong_with(server).first() {
            let hint = if wrong.unknown { "; send null to remove it" } else { "" };
            return Err(Exit::usage(format!("{key}.{name}{} {}{hint}", wrong.path, wrong.what)));
        }
        if let Some(held) = files.said.get(key).and_then(|servers| servers.get(name))
            && let Some(sent) = changed.get(name).and_then(Value::as_object)
            && let Some((path, what)) = wrong_change(held, sent, server)
        {
            return Err(Exit::usage(format!("{key}.{name}{path} {what}")));
        }
    }
    Ok(applied)
}

/// Changes `{ enabled, options }`; omitted fields stay.
fn change_plugin(
    control: &Control,
    files: &ConfigFiles,
    rows: &[Row],
    name: &str,
    value: Value,
) -> Result<(), Exit> {
    let wrong = || Exit::usage(format!("{PLUGIN}{name} must be {{ enabled, options }}"));
    let Value::Object(mut sent) = value else { return Err(wrong()) };
    let options = match sent.shift_remove("options") {
        None => None,
        Some(Value::Object(options)) => Some(options),
        Some(_) => return Err(wrong()),
    };
    let enabled = match sent.shift_remove("enabled") {
        None => None,
        Some(Value::Bool(enabled)) => Some(enabled),
        Some(_) => return Err(wrong()),
    };
    if !sent.is_empty() {
        return Err(wrong());
    }
    let mut written = false;
    if let Some(options) = options {
        written |= Change::Patch(options).apply(files, rows, name)?.file.is_some();
    }
    if let Some(enabled) = enabled {
        written |= plugins::set_enabled(files, rows, name, enabled)?.file.is_some();
    }
    if written {
        control.needs_restart(&format!("{PLUGIN}{name}"));
    }
    Ok(())
}

/// Returns the schema of a plugin's entry for clients.
fn of_plugin(row: &Row) -> Value {
    let title = row.title.clone().unwrap_or_else(|| row.name().to_owned());
    let mut options = match row.marks.schema() {
        Some(schema) => property("options", &Nodes::of(Some(schema)), DEEPEST),
        None => json!({ "type": "object" }),
    };
    options["title"] = "Options".into();
    let enabled = json!({ "type": "boolean", "title": "Enabled", "default": true });
    json!({ "type": "object", "title": title, "properties": { "enabled": enabled, "options": options } })
}

/// Returns the part of a schema that a configuration schema supports, without defaults and values of credentials.
fn property(name: &str, nodes: &Nodes<'_>, deep: usize) -> Value {
    let said = |key: &str| nodes.all().iter().find_map(|node| node.get(key));
    let kind = match said("type") {
        Some(Value::String(kind)) => kind.clone(),
        Some(Value::Array(kinds)) => {
            let first = kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null");
            first.unwrap_or("string").to_owned()
        }
        _ if said("properties").is_some() || said("additionalProperties").is_some() => "object".to_owned(),
        _ if said("items").is_some() => "array".to_owned(),
        _ => "string".to_owned(),
    };
    let title = said("title").and_then(Value::as_str).unwrap_or(name);
    let mut property = json!({ "type": kind, "title": title });
    let described = said("description").and_then(Value::as_str);
    if nodes.hidden() {
        property["writeOnly"] = true.into();
        property["description"] = match described {
            Some(described) => format!("{described} ({SET} keeps the stored value)").into(),
            None => format!("A credential; {SET} keeps the stored value").into(),
        };
        return property;
    }
    if let Some(described) = described {
        property["description"] = described.into();
    }
    if let Some(default) = said("default") {
        property["default"] = redacted_value(default, nodes);
    }
    for key in ["enum", "minItems", "maxItems", "required"] {
        if let Some(value) = said(key) {
            property[key] = value.clone();
        }
    }
    if deep > 0 {
        let members = nodes.keys();
        if !members.is_empty() {
            let member = |key: &&str| ((*key).to_owned(), self::property(key, &nodes.member(key), deep - 1));
            property["properties"] = members.iter().map(member).collect();
        }
        if said("items").is_some_and(Value::is_object) {
            property["items"] = self::property(name, &nodes.entry(0), deep - 1);
        }
        if said("additionalProperties").is_some_and(Value::is_object) {
            // No option has this name, so its schema is the one of all other keys.
            property["additionalProperties"] = self::property(name, &nodes.member("\u{0}"), deep - 1);
        }
    }
    property
}
