//! What users edit as files: automations, policies and some collections of records.

use std::path::Path;

use ostler_contract::points::KeptAutomation;
use ostler_contract::policy::read_policies;
use ostler_contract::{JsonObject, Thrown, Value};

use super::Bodies;
use super::files::{self, Files};
use crate::Report;
use crate::atomic::{self, Access};
use crate::policies::FilePolicies;
use crate::records::RecordFormat;

/// Which item a file contains.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum EditedFile {
    /// `automations/<id>.md`
    Automation(String),
    /// `<collection>/<id>.md`
    Record(String, String),
    /// A policy of `policies.json`.
    Policy(String),
}

/// The content of a file.
#[derive(Debug, Clone, PartialEq)]
pub enum EditedContent {
    /// An automation.
    Automation(Box<KeptAutomation>),
    /// A record or a policy.
    Object(JsonObject),
    /// What is wrong with the file.
    Invalid(String),
}

/// Reads the automations, the policies, and the records of these collections. A file that is invalid is listed as such; an
/// invalid `policies.json` is an error, because it is unknown which policies it has. Blocks.
///
/// # Errors
/// A folder or `policies.json` cannot be read.
pub fn read_edited_files(
    config_dir: &Path,
    bodies: Bodies,
    collections: &[String],
    report: Report,
) -> Result<Vec<(EditedFile, EditedContent)>, Thrown> {
    let read = Files { config_dir: config_dir.to_owned(), bodies, report };
    let mut found = Vec::new();
    for id in read.automation_ids()? {
        let content = match read.automation(&id) {
            Ok(Some(kept)) => EditedContent::Automation(Box::new(kept)),
            Ok(None) => continue,
            Err(why) => EditedContent::Invalid(why.message),
        };
        found.push((EditedFile::Automation(id), content));
    }
    for collection in collections {
        for id in read.record_ids(collection)? {
            let content = match read.record(collection, &id) {
                Ok(Some(record)) => EditedContent::Object(record),
                Ok(None) => continue,
                Err(why) => EditedContent::Invalid(why.message),
            };
            found.push((EditedFile::Record(collection.clone(), id), content));
        }
    }
    let path = config_dir.join(FilePolicies::FILE);
    match std::fs::read(&path) {
        Ok(text) => {
            for row in read_policies(path.display(), &text)? {
                let id = row.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
                found.push((EditedFile::Policy(id), EditedContent::Object(row)));
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => {
            return Err(Thrown::new(format_args!("{} could not be read: {error}", path.display())));
        }
    }
    Ok(found)
}

/// Writes the file of an automation or a record. Blocks.
///
/// # Errors
/// The file cannot be written, or the item is a policy.
pub fn write_edited_file(
    config_dir: &Path,
    bodies: &Bodies,
    file: &EditedFile,
    content: EditedContent,
) -> Result<(), Thrown> {
    let (path, text) = match (file, content) {
        (EditedFile::Automation(id), EditedContent::Automation(kept)) => {
            (files::automation_path(config_dir, id), crate::automations::automation_text(*kept))
        }
        (EditedFile::Record(collection, id), EditedContent::Object(record)) => {
            let body = bodies.get(collection).cloned().flatten();
            (config_dir.join(collection).join(format!("{id}.md")), RecordFormat { body }.text(record))
        }
        _ => return Err(Thrown::new("only automations and records have separate files")),
    };
    let failed = |error| Thrown::new(format_args!("{} could not be written: {error}", path.display()));
    if let Some(folder) = path.parent() {
        atomic::make_folder(folder).map_err(failed)?;
    }
    atomic::write(&path, text.as_bytes(), Access::Owner).map_err(failed)
}
