//! The users file on a host whose users are in a database. Its records are compared one by one: roles, teams, projects, users,
//! and all other fields together. A missing file changes nothing, so that no one loses access by it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use ostler_contract::users::{EditUsers, UsersStore};
use ostler_contract::{Thrown, Value};
use ostler_engine::users::{RecordKey, UsersFile};

use super::{
    CHANGED_MEANWHILE, DIFFERENT_VERSIONS, Force, NEWER_IN_DATABASE, Outcome, conflict_of, hash, is_selected,
};
use crate::parts::postgres::Direct;
use crate::users_file::{UsersOnDisk, parse};

/// Hashes of what was equal in both, by name.
type Recorded = BTreeMap<String, String>;
/// A record before and after a change.
type Changes = BTreeMap<RecordKey, (Option<Value>, Option<Value>)>;

/// The records on both sides.
struct Sides {
    file: BTreeMap<RecordKey, Value>,
    database: BTreeMap<RecordKey, Value>,
}

impl Sides {
    fn keys(&self) -> BTreeSet<RecordKey> {
        self.file.keys().chain(self.database.keys()).cloned().collect()
    }
}

/// Stores what is in the file in the database.
pub(super) async fn import(
    path: &Path,
    direct: &Arc<Direct>,
    only: &[String],
    force: Force,
    (recorded, outcome): (&mut Recorded, &mut Outcome),
) -> Result<(), Thrown> {
    let (disk, store) = (UsersOnDisk::new(path.to_owned()), direct.users());
    let Some(text) = UsersStore::read(&disk).await? else { return Ok(()) };
    let Some(sides) = sides(&disk, Some(text), &*store, only, outcome).await? else { return Ok(()) };
    let mut changes = Changes::new();
    for key in sides.keys() {
        let name = name(&disk, &key);
        if !is_selected(&name, only) {
            continue;
        }
        let base = recorded.get(&name).cloned();
        let (file, now) = (sides.file.get(&key), sides.database.get(&key));
        let database = now.map(hash).transpose()?;
        let Some(value) = file else {
            match (base, &database) {
                (Some(base), Some(now)) if force.remove && base == *now => {
                    changes.insert(key.clone(), (sides.database.get(&key).cloned(), None));
                }
                (Some(_), Some(_)) if force.remove => {
                    outcome.conflicts.push((name, NEWER_IN_DATABASE.to_owned()));
                }
                (_, None) => drop(recorded.remove(&name)),
                (_, Some(_)) => {}
            }
            continue;
        };
        let file = hash(value)?;
        if database.as_ref() == Some(&file) {
            recorded.insert(name, file);
            outcome.equal += 1;
            continue;
        }
        match conflict_of(base.as_deref(), &file, database.as_deref()).filter(|_| !force.overwrite) {
            Some(why) => outcome.conflicts.push((name, why.to_owned())),
            None => drop(changes.insert(key, (now.cloned(), Some(value.clone())))),
        }
    }
    let lost = apply(&*store, &changes).await?;
    for (key, (_, after)) in changes {
        let name = name(&disk, &key);
        match after {
            _ if lost.contains(&key) => outcome.conflicts.push((name, CHANGED_MEANWHILE.to_owned())),
            Some(value) => {
                recorded.insert(name.clone(), hash(&value)?);
                outcome.stored.push(name);
            }
            None => {
                recorded.remove(&name);
                outcome.removed.push(name);
            }
        }
    }
    Ok(())
}

/// Writes what is in the database to the file.
pub(super) async fn export(
    path: &Path,
    direct: &Arc<Direct>,
    only: &[String],
    overwrite: bool,
    (recorded, outcome): (&mut Recorded, &mut Outcome),
) -> Result<(), Thrown> {
    let (disk, store) = (UsersOnDisk::new(path.to_owned()), direct.users());
    let text = UsersStore::read(&disk).await?;
    let Some(sides) = sides(&disk, text, &*store, only, outcome).await? else { return Ok(()) };
    let mut changes = Changes::new();
    for (key, value) in &sides.database {
        let name = name(&disk, key);
        if !is_selected(&name, only) {
            continue;
        }
        let database = hash(value)?;
        let file = sides.file.get(key).map(hash).transpose()?;
        if file.as_ref() == Some(&database) {
            recorded.insert(name, database);
            outcome.equal += 1;
            continue;
        }
        let is_unchanged = file.is_none() || recorded.get(&name) == file.as_ref();
        match is_unchanged || overwrite {
            true => drop(changes.insert(key.clone(), (sides.file.get(key).cloned(), Some(value.clone())))),
            false => outcome.conflicts.push((name, DIFFERENT_VERSIONS.to_owned())),
        }
    }
    let lost = apply(&disk, &changes).await?;
    for (key, (_, after)) in changes {
        let name = name(&disk, &key);
        match after {
            Some(value) if !lost.contains(&key) => {
                recorded.insert(name.clone(), hash(&value)?);
                outcome.written.push(name);
            }
            _ => outcome.conflicts.push((name, "the file was edited at the same time; try again".to_owned())),
        }
    }
    Ok(())
}

/// Returns the records of both; nothing if one of them is invalid, which is a conflict.
async fn sides(
    disk: &UsersOnDisk,
    text: Option<String>,
    store: &dyn UsersStore,
    only: &[String],
    outcome: &mut Outcome,
) -> Result<Option<Sides>, Thrown> {
    let database = store.read().await?;
    let file = parse(&disk.place(), text.as_deref());
    let database = parse(&store.place(), database.as_deref());
    match (file, database) {
        (Ok(file), Ok(database)) => Ok(Some(Sides { file: file.records(), database: database.records() })),
        (Err(why), _) | (_, Err(why)) => {
            let name = file_name(disk);
            if is_selected(&name, only) {
                outcome.conflicts.push((name, why));
            }
            Ok(None)
        }
    }
}

/// Makes the changes of records that are still as before. Returns the others.
async fn apply(store: &dyn UsersStore, changes: &Changes) -> Result<BTreeSet<RecordKey>, Thrown> {
    if changes.is_empty() {
        return Ok(BTreeSet::new());
    }
    let lost = Arc::new(Mutex::new(BTreeSet::new()));
    let (place, changes, others) = (store.place(), changes.clone(), lost.clone());
    let edit: EditUsers = Arc::new(move |text| {
        let before = parse(&place, text).map_err(Thrown::new)?;
        let (mut file, now): (UsersFile, _) = (before.clone(), before.records());
        let mut others = others.lock().unwrap_or_else(PoisonError::into_inner);
        others.clear();
        for (key, (expected, after)) in &changes {
            match now.get(key) == expected.as_ref() {
                true => file.set_record(key, after.clone()),
                false => drop(others.insert(key.clone())),
            }
        }
        file.directory().map_err(|why| Thrown::new(format_args!("{place}: {why}")))?;
        Ok((file != before || text.is_none()).then(|| file.text()))
    });
    store.change(edit).await?;
    let lost = std::mem::take(&mut *lost.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(lost)
}

fn file_name(disk: &UsersOnDisk) -> String {
    disk.path().file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The name of a record, as its file has it.
fn name(disk: &UsersOnDisk, key: &RecordKey) -> String {
    format!("{} {}", file_name(disk), key.name())
}
