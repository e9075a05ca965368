//! Records and automations as files.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use ostler_contract::points::{CollectionOptions, KeptAutomation};
use ostler_contract::stores::automations::check_id;
use ostler_contract::stores::records::check_options;
use ostler_contract::stores::transfer::{Content, Item, Kind, Position};
use ostler_contract::{JsonObject, Slug, Thrown};

use super::{Bodies, Page};
use crate::Report;
use crate::atomic::{self, Access};
use crate::automations::{automation_text, read_automation};
use crate::folder::read_text;
use crate::frontmatter;
use crate::records::RecordFormat;
use crate::runs::Titles;
use crate::sessions::encode;

/// The folder of automations.
const AUTOMATIONS: &str = "automations";
/// Folders in the configuration folder that contain no records.
const OTHERS: [&str; 2] = ["wire", "client-plugins"];

/// The files of a configuration folder.
pub(super) struct Files {
    pub(super) config_dir: PathBuf,
    pub(super) bodies: Bodies,
    pub(super) report: Report,
}

impl Files {
    pub(super) fn read(&self, kind: Kind, after: Option<&Position>) -> Result<Vec<Item>, Thrown> {
        let name =
            |at: usize| after.and_then(|after| after.key.get(at)).map(String::as_str).unwrap_or_default();
        let mut page = Page::default();
        if kind == Kind::Automation {
            for id in self.automation_ids()? {
                if id.as_str() <= name(0) {
                    continue;
                }
                let Some(kept) = self.automation(&id)? else { continue };
                if page.add(Item::json(vec![id], 0, encode(&kept)?)) {
                    break;
                }
            }
            return Ok(page.items);
        }
        for collection in collections(&self.config_dir)? {
            if collection.as_str() < name(0) {
                continue;
            }
            let begin = if collection == name(0) { name(1) } else { "" };
            for id in self.record_ids(&collection)? {
                if id.as_str() <= begin {
                    continue;
                }
                let Some(record) = self.record(&collection, &id)? else { continue };
                if page.add(Item::json(vec![collection.clone(), id], 0, encode(&record)?)) {
                    return Ok(page.items);
                }
            }
        }
        Ok(page.items)
    }

    /// Reads a record; `None` for a file that is none.
    pub(super) fn record(&self, collection: &str, id: &str) -> Result<Option<JsonObject>, Thrown> {
        let path = self.config_dir.join(collection).join(format!("{id}.md"));
        let wrong = |why: String| {
            Thrown::new(format_args!("{}: {why}; fix the file, or move it away", path.display()))
        };
        let text = read_text(&path).map_err(wrong)?;
        if !has_frontmatter(&text) {
            self.report.say(format!(
                "{} has no frontmatter, so it is not a record; it is not copied",
                path.display()
            ));
            return Ok(None);
        }
        let (fields, body) = frontmatter::split(&text).map_err(|error| wrong(error.to_string()))?;
        let known = self.bodies.get(collection);
        if !known.is_some_and(Option::is_some) && !body.trim().is_empty() {
            match known {
                Some(_) => self.report.say(format!(
                    "{}: the text below the frontmatter is not part of the record; it is not copied",
                    path.display()
                )),
                None => {
                    return Err(Thrown::new(format_args!(
                        "{} has text below the frontmatter, and the field of {collection} for it is not known; name the \
                         field with --body {collection}=<field>",
                        path.display()
                    )));
                }
            }
        }
        let format = RecordFormat { body: known.cloned().flatten() };
        format.complete(id, fields, &body).map(Some).map_err(wrong)
    }

    pub(super) fn automation(&self, id: &str) -> Result<Option<KeptAutomation>, Thrown> {
        let path = automation_path(&self.config_dir, id);
        let wrong = |why: String| {
            Thrown::new(format_args!("{}: {why}; fix the file, or move it away", path.display()))
        };
        let mut ignored = Vec::new();
        let kept = read_automation(&path, id, &mut ignored).map_err(wrong)?;
        for line in ignored {
            self.report.say(format!("{}: {line}; it is not copied", path.display()));
        }
        Ok(kept)
    }

    /// The ids of the files of automations.
    pub(super) fn automation_ids(&self) -> Result<Vec<String>, Thrown> {
        let mut ids = names(&self.config_dir.join(AUTOMATIONS))?;
        ids.retain(|id| check_id(id).is_ok());
        Ok(ids)
    }

    /// The ids of the files of a collection.
    pub(super) fn record_ids(&self, collection: &str) -> Result<Vec<String>, Thrown> {
        let mut ids = names(&self.config_dir.join(collection))?;
        ids.retain(|id| Slug::parse(id).is_some());
        Ok(ids)
    }

    /// The titles of the automations, by id.
    pub(super) fn titles(&self) -> Result<Titles, Thrown> {
        let mut titles = Titles::new();
        for id in self.automation_ids()? {
            if let Some(kept) = self.automation(&id)? {
                titles.insert(id, kept.definition.title);
            }
        }
        Ok(titles)
    }

    pub(super) fn append(&self, kind: Kind, items: Vec<Item>) -> Result<(), Thrown> {
        for item in items {
            let Content::Json(json) = &item.content else { continue };
            let failed = |error: serde_json::Error| {
                Thrown::new(format_args!("{} {} cannot be read: {error}", kind.name(), item.name(kind)))
            };
            let key = &item.position.key;
            let (path, text) = match (kind, key.as_slice()) {
                (Kind::Automation, [id]) => {
                    check_id(id).map_err(|why| Thrown::new(format_args!("automation {id}: {why}")))?;
                    let kept: KeptAutomation = serde_json::from_str(json).map_err(failed)?;
                    (automation_path(&self.config_dir, id), automation_text(kept))
                }
                (Kind::Record, [collection, id]) => {
                    check_options(collection, &CollectionOptions::default())?;
                    if Slug::parse(id).is_none() {
                        return Err(Thrown::new(format_args!(
                            "record {collection}/{id}: the id is not a slug"
                        )));
                    }
                    let record: JsonObject = serde_json::from_str(json).map_err(failed)?;
                    let body = self.bodies.get(collection).cloned().flatten();
                    if let Some(field) = &body
                        && record.get(field).is_some_and(|text| !text.is_string() && !text.is_null())
                    {
                        return Err(Thrown::new(format_args!(
                            "record {collection}/{id}: {field} is the body of a file and must be text"
                        )));
                    }
                    let path = self.config_dir.join(collection).join(format!("{id}.md"));
                    (path, RecordFormat { body }.text(record))
                }
                _ => return Err(Thrown::new(format_args!("{} are not files", kind.name()))),
            };
            write_new(&path, &text)?;
        }
        Ok(())
    }
}

/// The folders of a configuration folder that can be collections.
fn collections(config_dir: &Path) -> Result<Vec<String>, Thrown> {
    let mut found = Vec::new();
    for entry in entries(config_dir)? {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let is_collection = check_options(name, &CollectionOptions::default()).is_ok()
            && !OTHERS.contains(&name)
            && entry.path().is_dir();
        found.extend(is_collection.then(|| name.to_owned()));
    }
    found.sort_unstable();
    Ok(found)
}

/// The folders with records or automations.
pub(super) fn stored(config_dir: &Path) -> Result<Vec<PathBuf>, Thrown> {
    let mut found = vec![config_dir.join(AUTOMATIONS)];
    for collection in collections(config_dir)? {
        let folder = config_dir.join(&collection);
        let is_record = |id: &String| {
            let text = read_text(&folder.join(format!("{id}.md"))).unwrap_or_default();
            Slug::parse(id).is_some() && has_frontmatter(&text)
        };
        if names(&folder)?.iter().any(is_record) {
            found.push(folder);
        }
    }
    Ok(found)
}

fn has_frontmatter(text: &str) -> bool {
    let first = text.strip_prefix('\u{feff}').unwrap_or(text).lines().next().unwrap_or_default();
    first.trim_end() == "---"
}

/// The file of an automation.
pub(super) fn automation_path(config_dir: &Path, id: &str) -> PathBuf {
    config_dir.join(AUTOMATIONS).join(format!("{id}.md"))
}

/// Writes a file that does not exist.
fn write_new(path: &Path, text: &str) -> Result<(), Thrown> {
    let failed = |error| Thrown::new(format_args!("{} could not be written: {error}", path.display()));
    if fs::symlink_metadata(path).is_ok() {
        return Err(Thrown::new(format_args!("{} exists already; move it away", path.display())));
    }
    if let Some(folder) = path.parent() {
        atomic::make_folder(folder).map_err(failed)?;
    }
    atomic::write(path, text.as_bytes(), Access::Owner).map_err(failed)
}

/// The names of the Markdown files of a folder without their ending, in the order of their bytes.
fn names(folder: &Path) -> Result<Vec<String>, Thrown> {
    let mut found = Vec::new();
    for entry in entries(folder)? {
        let name = entry.file_name();
        let id = name.to_str().and_then(|name| name.strip_suffix(".md"));
        found.extend(id.filter(|id| !id.starts_with('.')).map(str::to_owned));
    }
    found.sort_unstable();
    Ok(found)
}

fn entries(folder: &Path) -> Result<Vec<fs::DirEntry>, Thrown> {
    let failed = |error| Thrown::new(format_args!("{} could not be read: {error}", folder.display()));
    match fs::read_dir(folder) {
        Ok(entries) => entries.collect::<Result<_, _>>().map_err(failed),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(Vec::new())
        }
        Err(error) => Err(failed(error)),
    }
}
