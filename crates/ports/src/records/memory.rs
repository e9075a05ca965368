//! Records in memory, for tests.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ostler_contract::points::{ChangeType, CollectionOptions, RecordChange, RecordStore, StoredCollection};
use ostler_contract::{Call, JsonObject, Thrown, Value};

use super::{check_options, check_record};
use crate::Report;
use ostler_contract::stores::equality::{contains_fields, equal_objects};
use ostler_contract::stores::watchers::Watchers;

/// Returns a store in memory that otherwise behaves like [`FileRecords`](super::FileRecords).
pub fn memory_records() -> RecordStore {
    let open: Arc<Mutex<HashMap<String, MemoryCollection>>> = Arc::default();
    RecordStore {
        collection: Call::new(move |(name, options): (String, CollectionOptions)| {
            let open = open.clone();
            async move {
                check_options(&name, &options)?;
                let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(collection) = open.get(&name) {
                    return Ok(collection.clone().into_point());
                }
                let collection = MemoryCollection::new(name.clone(), options.body)?;
                open.insert(name, collection.clone());
                Ok(collection.into_point())
            }
        }),
        close: None,
    }
}

#[derive(Clone)]
struct MemoryCollection {
    name: String,
    body: Option<String>,
    held: Arc<Mutex<BTreeMap<String, JsonObject>>>,
    watchers: Watchers<RecordChange>,
}

impl MemoryCollection {
    fn new(name: String, body: Option<String>) -> Result<Self, Thrown> {
        // Only errors of watchers are reported, and tests see those themselves.
        let report = Report::quiet();
        let watchers = Watchers::new(format!("records {name}"), report)?;
        Ok(Self { name, body, held: Arc::default(), watchers })
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<String, JsonObject>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn into_point(self) -> StoredCollection {
        let (get, list, find) = (self.clone(), self.clone(), self.clone());
        let (ids, put, remove, watch) = (self.clone(), self.clone(), self.clone(), self);
        StoredCollection {
            get: Call::now(move |(id,): (String,)| Ok(get.held().get(&id).cloned())),
            ids: Some(Call::now(move |()| Ok(ids.held().keys().cloned().collect()))),
            list: Call::now(move |()| Ok(list.held().values().cloned().collect())),
            find: Call::now(move |(wanted,)| {
                Ok(find.held().values().filter(|record| contains_fields(record, &wanted)).cloned().collect())
            }),
            put: Call::now(move |(record,)| put.put(record)),
            remove: Call::now(move |(id,): (String,)| Ok(remove.remove(&id))),
            watch: Call::now(move |(on_change,)| Ok(Some(watch.watchers.add(on_change)))),
        }
    }

    fn put(&self, mut record: JsonObject) -> Result<(), Thrown> {
        let id = check_record(&self.name, self.body.as_deref(), &record)?;
        if let Some(body) = &self.body
            && !record.get(body).is_some_and(Value::is_string)
        {
            record.insert(body.clone(), "".into());
        }
        let mut held = self.held();
        let how = match held.get(&id) {
            Some(before) if equal_objects(before, &record) => return Ok(()),
            Some(_) => ChangeType::Updated,
            None => ChangeType::Added,
        };
        held.insert(id.clone(), record);
        // Under the lock, so that watchers are notified in the order of the changes.
        self.watchers.notify(&RecordChange { id, r#type: how });
        Ok(())
    }

    fn remove(&self, id: &str) -> bool {
        let mut held = self.held();
        let there = held.remove(id).is_some();
        if there {
            self.watchers.notify(&RecordChange { id: id.to_owned(), r#type: ChangeType::Deleted });
        }
        there
    }
}
