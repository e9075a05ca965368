//! Changing one plugin's configuration entry.

use std::path::PathBuf;

use ostler_contract::{JsonObject, Value, VaultName};
use ostler_loader::options::{self, SchemaInfo, option_path};

use super::rows::{Row, named};
use crate::config::{self, ConfigFiles};
use crate::exit::Exit;

/// A change of options.
#[derive(Debug, Clone)]
pub enum Change {
    /// One option, by its path.
    Set(String, Value),
    /// The removal of one option.
    Unset(String),
    /// Options from a client: `<set>` keeps the stored value, `null` removes it, and options that are not named stay.
    Patch(JsonObject),
}

/// The result of a change.
#[derive(Debug, Clone)]
pub struct Changed {
    /// The written file; `None` if nothing changed.
    pub file: Option<PathBuf>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

impl Change {
    /// Changes a plugin's options in the file.
    ///
    /// # Errors
    /// Exit 2 for an invalid option; the message does not contain values.
    pub fn apply(self, files: &ConfigFiles, rows: &[Row], name: &str) -> Result<Changed, Exit> {
        let row = named(rows, name)?;
        let path = |rest: &str| format!("plugins.{}.options{rest}", row.name());
        let mut notes = Vec::new();
        let mut gone = false;
        let keys: Vec<String> = match &self {
            Self::Set(at, _) | Self::Unset(at) => at.split('.').take(1).map(str::to_owned).collect(),
            Self::Patch(sent) => sent.keys().cloned().collect(),
        };
        let file = entry(files, row, |fields| {
            let mut options = fields.get("options").and_then(Value::as_object).cloned().unwrap_or_default();
            match self {
                Self::Set(at, value) => {
                    let keys = option_path::keys(&at).map_err(|why| Exit::usage(why.to_string()))?;
                    let value = options::replaced(&options, &keys, &value, row.marks.known())
                        .map_err(|why| Exit::usage(path(&why.to_string())))?;
                    match value {
                        Some(value) => option_path::set(&mut options, &at, value).map(drop),
                        None => option_path::unset(&mut options, &at).map(drop),
                    }
                    .map_err(|why| Exit::usage(why.to_string()))?;
                }
                Self::Unset(at) => {
                    gone =
                        !option_path::unset(&mut options, &at).map_err(|why| Exit::usage(why.to_string()))?;
                }
                Self::Patch(sent) => {
                    options = options::patched(&options, &sent, row.marks.known())
                        .map_err(|why| Exit::usage(path(&why.to_string())))?;
                }
            }
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            judge(row, &options, &keys).map_err(|why| Exit::usage(path(&why)))?;
            notes.extend(unknown(row, &options, &keys));
            if options.is_empty() {
                fields.shift_remove("options");
            } else {
                fields.insert("options".to_owned(), Value::Object(options));
            }
            Ok(())
        })?;
        if gone {
            notes.push(format!("{} is not set", path(&format!(".{}", keys.join(".")))));
        }
        Ok(Changed { file, notes })
    }
}

/// Turns a plugin on or off in the file.
///
/// # Errors
/// Exit 2 if the plugin does not exist.
pub fn set_enabled(files: &ConfigFiles, rows: &[Row], name: &str, enabled: bool) -> Result<Changed, Exit> {
    let file = entry(files, named(rows, name)?, |fields| {
        match enabled {
            true => fields.shift_remove("enabled"),
            false => fields.insert("enabled".to_owned(), false.into()),
        };
        Ok(())
    })?;
    Ok(Changed { file, notes: Vec::new() })
}

/// Changes a plugin's entry in the file that lists it.
fn entry(
    files: &ConfigFiles,
    row: &Row,
    change: impl FnOnce(&mut JsonObject) -> Result<(), Exit>,
) -> Result<Option<PathBuf>, Exit> {
    config::edit(files, "plugins", |fields| {
        let entries = fields.get_mut("plugins").and_then(Value::as_array_mut).into_iter().flatten();
        let mut entries = entries.filter_map(Value::as_object_mut);
        let entry = entries.find(|entry| entry.get("name").and_then(Value::as_str) == Some(&row.entry.name));
        change(entry.ok_or_else(|| Exit::usage(format!("{} is no longer configured", row.entry.name)))?)
    })
}

/// Returns what is wrong with the options below some keys: `.key must be text`. Options of a plugin that cannot be
/// inspected are accepted.
fn judge(row: &Row, options: &JsonObject, keys: &[&str]) -> Result<(), String> {
    for reference in options::references(&Value::Object(options.clone()), row.marks.schema()) {
        let Some(options::walk::Step::Key(key)) = reference.path.first() else { continue };
        let named = reference.name.as_str().map(VaultName::parse);
        if keys.contains(&key.as_str()) && !matches!(named, Some(Ok(_))) {
            let path = options::walk::path_text(&reference.path);
            return Err(format!("{path}: {}", ostler_contract::vault_name::NotAVaultName));
        }
    }
    match row.marks.known() {
        SchemaInfo::Declared(Some(schema)) => options::wrong(schema, options, keys).map_or(Ok(()), Err),
        _ => Ok(()),
    }
}

fn unknown(row: &Row, options: &JsonObject, keys: &[&str]) -> Vec<String> {
    let Some(schema) = row.marks.schema() else { return Vec::new() };
    let unknown = options::unknown_options(row.name(), Some(schema), options).into_iter();
    unknown.filter(|unknown| keys.contains(&unknown.key.as_str())).map(|unknown| unknown.line).collect()
}
