//! Files that users edit, on a host whose stores are in a database: their import, their export, and a watched folder.
//!
//! Each item that was once equal in a file and in the database is recorded with its hash. This tells which of both has
//! changed since; if both have, or nothing is known, that is a conflict, and neither is changed.

mod users;
pub mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ostler_contract::stores::edits::{EditedItem, EditedKey, automation_value};
use ostler_contract::stores::transfer::{Item, Kind};
use ostler_contract::{JsonObject, Thrown, Value};
use ostler_plugin_bot::BOTS;
use ostler_plugin_webhook::ENDPOINTS;
use ostler_ports::atomic::{self, Access};
use ostler_ports::{Bodies, EditedContent, EditedFile, read_edited_files, write_edited_file};
use ring::digest::{SHA256, digest};

use crate::parts::postgres::Direct;
use crate::verbs;

/// The collections of records that users edit.
const COLLECTIONS: [&str; 2] = [ENDPOINTS, BOTS];
/// The file with the recorded hashes, in the state folder.
const RECORDED: &str = "edited-files.json";

/// Why a removed item stays in the database.
const NEWER_IN_DATABASE: &str =
    "the file was removed, and the database has a newer version; export it, or remove it there";
/// Why an edited item is not written to its file.
const DIFFERENT_VERSIONS: &str =
    "the file and the database have different versions; import, or overwrite with --overwrite";
/// Why an item is not stored.
const CHANGED_MEANWHILE: &str = "it changed in the database at the same time; try again";

/// A folder with files that users edit.
pub struct EditedFolder {
    folder: PathBuf,
    collections: Vec<String>,
    bodies: Bodies,
    /// The users file, if it is one of them.
    users: Option<PathBuf>,
    /// Where the hashes are recorded; nowhere for a folder that is not the configuration folder.
    recorded: Option<PathBuf>,
}

/// What became of the items.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Names of files whose content was stored in the database.
    pub stored: Vec<String>,
    /// Names of removed files whose items were removed from the database.
    pub removed: Vec<String>,
    /// Names of files that were written.
    pub written: Vec<String>,
    /// Names of files that differ and were left as they are, with the reason.
    pub conflicts: Vec<(String, String)>,
    /// How many are equal.
    pub equal: usize,
}

/// An item in a file and in the database.
#[derive(Default)]
struct Pair {
    file: Option<FileSide>,
    database: Option<EditedItem>,
}

enum FileSide {
    Value(Value),
    Invalid(String),
}

/// What a command asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Force {
    /// Whether to overwrite what differs.
    pub overwrite: bool,
    /// Whether to remove items whose file was removed.
    pub remove: bool,
}

impl EditedFolder {
    /// The configuration folder of a host, with its users file.
    pub fn of_host(
        config_dir: &Path,
        state_dir: &Path,
        collections: &[String],
        users: Option<PathBuf>,
    ) -> Self {
        Self { recorded: Some(state_dir.join(RECORDED)), users, ..Self::elsewhere(config_dir, collections) }
    }

    /// Another folder with such files.
    pub fn elsewhere(folder: &Path, collections: &[String]) -> Self {
        let mut all: Vec<String> = COLLECTIONS.map(str::to_owned).to_vec();
        all.extend(collections.iter().filter(|name| !COLLECTIONS.contains(&name.as_str())).cloned());
        let bodies = Bodies::from([
            (ENDPOINTS.to_owned(), None),
            (BOTS.to_owned(), ostler_plugin_bot::bots_options().body),
        ]);
        Self {
            folder: folder.to_owned(),
            collections: all,
            bodies,
            users: Some(folder.join(verbs::users::FILE)),
            recorded: None,
        }
    }

    /// Stores what is in the files, or in those with the names in `only`, in the database.
    ///
    /// # Errors
    /// The folder cannot be read, or the database fails.
    pub async fn import(
        &self,
        direct: &Arc<Direct>,
        only: &[String],
        force: Force,
    ) -> Result<Outcome, Thrown> {
        let mut recorded = self.recorded()?;
        let mut outcome = Outcome::default();
        for (key, pair) in self.pairs(direct).await? {
            let name = name_of(&key);
            if !is_selected(&name, only) {
                continue;
            }
            let base = recorded.get(&name).cloned();
            let database = pair.database.as_ref().map(|item| hash(&item.value)).transpose()?;
            let conflict = |why: &str| (name.clone(), why.to_owned());
            let value = match pair.file {
                Some(FileSide::Invalid(why)) => {
                    outcome.conflicts.push((name, why));
                    continue;
                }
                None => {
                    // It was never a file, or its file was removed.
                    match (base, &database) {
                        (Some(base), Some(now)) if force.remove && base == *now => {
                            let before = pair.database.as_ref().map(|item| item.stored.as_str());
                            if direct.replace_item(&key, before, None).await? {
                                recorded.remove(&name);
                                outcome.removed.push(name);
                            }
                        }
                        (Some(_), Some(_)) if force.remove => {
                            outcome.conflicts.push(conflict(NEWER_IN_DATABASE));
                        }
                        (_, None) => drop(recorded.remove(&name)),
                        (_, Some(_)) => {}
                    }
                    continue;
                }
                Some(FileSide::Value(value)) => value,
            };
            let file = hash(&value)?;
            if database.as_ref() == Some(&file) {
                recorded.insert(name, file);
                outcome.equal += 1;
                continue;
            }
            if let Some(why) = conflict_of(base.as_deref(), &file, database.as_deref())
                && !force.overwrite
            {
                outcome.conflicts.push(conflict(why));
                continue;
            }
            let before = pair.database.as_ref().map(|item| item.stored.as_str());
            match direct.replace_item(&key, before, Some(&value)).await {
                Ok(true) => {
                    recorded.insert(name.clone(), file);
                    outcome.stored.push(name);
                }
                Ok(false) => outcome.conflicts.push(conflict(CHANGED_MEANWHILE)),
                Err(why) => outcome.conflicts.push((name, why.message)),
            }
        }
        if let Some(path) = &self.users {
            users::import(path, direct, only, force, (&mut recorded, &mut outcome)).await?;
        }
        self.record(&recorded)?;
        Ok(outcome)
    }

    /// Writes what is in the database, or the items with the names in `only`, to files.
    ///
    /// # Errors
    /// A file cannot be written, or the database fails.
    pub async fn export(
        &self,
        direct: &Arc<Direct>,
        only: &[String],
        overwrite: bool,
    ) -> Result<Outcome, Thrown> {
        let mut recorded = self.recorded()?;
        let mut outcome = Outcome::default();
        let mut policies = Vec::new();
        for (key, pair) in self.pairs(direct).await? {
            let name = name_of(&key);
            let Some(item) = pair.database.filter(|_| is_selected(&name, only)) else { continue };
            let database = hash(&item.value)?;
            let why = match pair.file {
                None => None,
                Some(FileSide::Invalid(why)) => Some(why),
                Some(FileSide::Value(value)) => {
                    let file = hash(&value)?;
                    if file == database {
                        recorded.insert(name, database);
                        outcome.equal += 1;
                        continue;
                    }
                    let is_unchanged = recorded.get(&name) == Some(&file);
                    (!is_unchanged).then(|| DIFFERENT_VERSIONS.to_owned())
                }
            };
            if let Some(why) = why
                && !overwrite
            {
                outcome.conflicts.push((name, why));
                continue;
            }
            match &key {
                EditedKey::Policy(_) => policies.extend(item.value.as_object().cloned()),
                _ => self.write(&key, &item)?,
            }
            recorded.insert(name.clone(), database);
            outcome.written.push(name);
        }
        let store = Arc::new(ostler_ports::FilePolicies::new(&self.folder)).into_point();
        for row in policies {
            store.put.unbounded((row,)).await?;
        }
        if let Some(path) = &self.users {
            users::export(path, direct, only, overwrite, (&mut recorded, &mut outcome)).await?;
        }
        self.record(&recorded)?;
        Ok(outcome)
    }

    fn write(&self, key: &EditedKey, item: &EditedItem) -> Result<(), Thrown> {
        let (file, content) = match key {
            EditedKey::Automation(id) => {
                let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string();
                let kept = serde_json::from_value(ostler_contract::json!({
                    "id": id, "definition": item.value["definition"], "owner": item.value["owner"],
                    "createdAt": now, "modifiedAt": now,
                }));
                (
                    EditedFile::Automation(id.clone()),
                    EditedContent::Automation(Box::new(kept.map_err(Thrown::new)?)),
                )
            }
            EditedKey::Record(collection, id) => {
                let record = item.value.as_object().cloned().unwrap_or_default();
                (EditedFile::Record(collection.clone(), id.clone()), EditedContent::Object(record))
            }
            EditedKey::Policy(_) => return Ok(()),
        };
        write_edited_file(&self.folder, &self.bodies, &file, content)
    }

    /// The items of the files and of the database.
    async fn pairs(&self, direct: &Direct) -> Result<BTreeMap<EditedKey, Pair>, Thrown> {
        // What is left out of a file is reported by a copy of everything.
        let report = ostler_ports::Report::quiet();
        let (folder, bodies, collections) =
            (self.folder.clone(), self.bodies.clone(), self.collections.clone());
        let read =
            tokio::task::spawn_blocking(move || read_edited_files(&folder, bodies, &collections, report));
        let read = read.await.map_err(Thrown::new)??;
        let mut pairs: BTreeMap<EditedKey, Pair> = BTreeMap::new();
        for (file, content) in read {
            let key = match file {
                EditedFile::Automation(id) => EditedKey::Automation(id),
                EditedFile::Record(collection, id) => EditedKey::Record(collection, id),
                EditedFile::Policy(id) => EditedKey::Policy(id),
            };
            let side = match content {
                EditedContent::Automation(kept) => {
                    FileSide::Value(automation_value(&kept.definition, kept.owner.as_deref()))
                }
                EditedContent::Object(object) => FileSide::Value(Value::Object(object)),
                EditedContent::Invalid(why) => FileSide::Invalid(why),
            };
            pairs.entry(key).or_default().file = Some(side);
        }
        for item in direct.edited_items(&self.collections).await? {
            let pair = pairs.entry(item.key.clone()).or_default();
            pair.database = Some(item);
        }
        Ok(pairs)
    }

    fn recorded(&self) -> Result<BTreeMap<String, String>, Thrown> {
        let Some(path) = &self.recorded else { return Ok(BTreeMap::new()) };
        match std::fs::read(path) {
            Ok(text) => serde_json::from_slice(&text)
                .map_err(|error| Thrown::new(format_args!("{}: {error}; remove the file", path.display()))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(error) => Err(Thrown::new(format_args!("{} could not be read: {error}", path.display()))),
        }
    }

    fn record(&self, recorded: &BTreeMap<String, String>) -> Result<(), Thrown> {
        let Some(path) = &self.recorded else { return Ok(()) };
        if self.recorded()? == *recorded {
            return Ok(());
        }
        let failed = |error| Thrown::new(format_args!("{} could not be written: {error}", path.display()));
        if let Some(folder) = path.parent() {
            atomic::make_private_folder(folder).map_err(failed)?;
        }
        let text = serde_json::to_string_pretty(recorded).map_err(Thrown::new)? + "\n";
        atomic::write(path, text.as_bytes(), Access::Owner).map_err(failed)
    }

    /// The names of all files that were once equal to the database, for a watch.
    fn paths(&self) -> BTreeSet<PathBuf> {
        let mut paths = BTreeSet::from([self.folder.join("policies.json")]);
        paths.extend(self.users.clone());
        for folder in self.collections.iter().map(String::as_str).chain(["automations"]) {
            paths.insert(self.folder.join(folder));
        }
        paths
    }
}

/// Returns why a file is not stored, by the hashes of what was equal in both, of the file, and of the database.
fn conflict_of(base: Option<&str>, file: &str, database: Option<&str>) -> Option<&'static str> {
    match (base, database) {
        (None, None) => None,
        (Some(base), Some(now)) if base == now => None,
        (Some(base), None) if base == file => {
            Some("it was removed from the database; remove the file, or overwrite with --overwrite")
        }
        (Some(base), Some(_)) if base == file => {
            Some("the database has a newer version, and the file is unchanged; export it")
        }
        _ => Some("the file and the database have different versions; export, or overwrite with --overwrite"),
    }
}

/// The name of an item, as its file has it.
fn name_of(key: &EditedKey) -> String {
    match key {
        EditedKey::Automation(id) => format!("automations/{id}.md"),
        EditedKey::Record(collection, id) => format!("{collection}/{id}.md"),
        EditedKey::Policy(id) => format!("policies.json {id}"),
    }
}

/// Whether a name is one of those asked for: all without any, a file, or everything of a folder or of `policies.json`.
fn is_selected(name: &str, only: &[String]) -> bool {
    only.is_empty()
        || only.iter().any(|one| {
            let rest = name.strip_prefix(one.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', ' ']) || one.ends_with('/'))
        })
}

fn hash(value: &Value) -> Result<String, Thrown> {
    let text = serde_json::to_string(value).map_err(Thrown::new)?;
    let mut bytes = Vec::new();
    Item::json(Vec::new(), 0, text)
        .hash(Kind::Automation, &mut |part| bytes.extend_from_slice(part))
        .map_err(Thrown::new)?;
    Ok(hex::encode(digest(&SHA256, &bytes)))
}

/// Returns whether the options of the plugin ask for a watched folder.
pub fn is_watched(options: &JsonObject) -> bool {
    options.get("watchFiles") == Some(&Value::Bool(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_select_a_file_a_folder_or_the_policies() {
        let only = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert!(is_selected("automations/a.md", &[]));
        assert!(is_selected("automations/a.md", &only(&["automations/a.md"])));
        assert!(is_selected("automations/a.md", &only(&["webhooks", "automations"])));
        assert!(is_selected("policies.json one", &only(&["policies.json"])));
        assert!(!is_selected("automations/a.md", &only(&["automations/b.md", "auto"])));
    }
}
