//! Finds records by their fields. A field is indexed from its first search on.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use ostler_contract::{JsonObject, Value};

use super::encoded::EncodedRecord;
use ostler_contract::stores::equality::digest;

/// The maximum number of indexed fields; others are compared record by record.
const FIELDS: usize = 16;

type Index = BTreeSet<(u64, Arc<str>)>;

/// Ids by the values of fields.
#[derive(Default)]
pub(crate) struct Finder {
    fields: HashMap<String, Index>,
    /// Fields whose index is being built, with the records that changed since.
    making: HashMap<String, Vec<Arc<str>>>,
}

/// A snapshot of records by id.
pub(super) type Snapshot = Vec<(Arc<str>, EncodedRecord)>;

impl Finder {
    pub(super) fn moved(
        &mut self,
        id: &Arc<str>,
        before: Option<&EncodedRecord>,
        after: Option<&EncodedRecord>,
    ) {
        for changed in self.making.values_mut() {
            changed.push(id.clone());
        }
        if self.fields.is_empty() {
            return;
        }
        let (before, after) = (before.map(EncodedRecord::decode), after.map(EncodedRecord::decode));
        let value = |record: &Option<JsonObject>, field: &str| {
            record.as_ref().and_then(|record| record.get(field)).map(digest)
        };
        for (field, index) in &mut self.fields {
            let (before, after) = (value(&before, field), value(&after, field));
            if before == after {
                continue;
            }
            if let Some(before) = before {
                index.remove(&(before, id.clone()));
            }
            if let Some(after) = after {
                index.insert((after, id.clone()));
            }
        }
    }

    /// Returns the fields of `wanted` that are neither indexed nor being indexed.
    pub(super) fn begin(&mut self, wanted: &JsonObject) -> Vec<String> {
        let free = FIELDS.saturating_sub(self.fields.len() + self.making.len());
        let lacking =
            |field: &&String| !self.fields.contains_key(*field) && !self.making.contains_key(*field);
        let fields: Vec<_> = wanted.keys().filter(lacking).take(free).cloned().collect();
        self.making.extend(fields.iter().map(|field| (field.clone(), Vec::new())));
        fields
    }

    /// Adds an index that was built from a snapshot, updated with the changes since.
    pub(super) fn end<'a>(
        &mut self,
        field: String,
        mut made: Index,
        snapshot: &Snapshot,
        now: impl Fn(&str) -> Option<&'a EncodedRecord>,
    ) {
        for id in self.making.remove(&field).unwrap_or_default() {
            let before = snapshot.binary_search_by(|(other, _)| other.cmp(&id)).ok();
            if let Some(before) = before.and_then(|at| held(&snapshot[at].1, &field)) {
                made.remove(&(before, id.clone()));
            }
            if let Some(after) = now(&id).and_then(|record| held(record, &field)) {
                made.insert((after, id));
            }
        }
        self.fields.insert(field, made);
    }

    /// Returns the ids of records that can match, unordered, from the field with the fewest. `None` if no field is
    /// indexed.
    pub(super) fn candidates(&self, wanted: &JsonObject) -> Option<Vec<&Arc<str>>> {
        let mut narrowed: Vec<_> = wanted
            .iter()
            .filter_map(|(field, value)| Some((ids(self.fields.get(field)?, value), Vec::new())))
            .collect();
        if narrowed.is_empty() {
            return None;
        }
        // In parallel: the iterator that ends first is the shortest.
        loop {
            for (ids, found) in &mut narrowed {
                match ids.next() {
                    Some(id) => found.push(id),
                    None => return Some(std::mem::take(found)),
                }
            }
        }
    }
}

fn ids<'a>(index: &'a Index, value: &Value) -> impl Iterator<Item = &'a Arc<str>> + use<'a> {
    let digest = digest(value);
    index.range((digest, Arc::from(""))..).take_while(move |(other, _)| *other == digest).map(|(_, id)| id)
}

/// Builds the index of a field over a snapshot.
pub(super) fn index(field: &str, snapshot: &Snapshot) -> Index {
    snapshot.iter().filter_map(|(id, record)| Some((held(record, field)?, id.clone()))).collect()
}

fn held(record: &EncodedRecord, field: &str) -> Option<u64> {
    record.decode().get(field).map(digest)
}
