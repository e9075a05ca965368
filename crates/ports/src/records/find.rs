//! Finding records by their fields. A field that was once searched for is indexed from then on.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use ostler_contract::{JsonObject, Value};

use super::packed::Packed;
use crate::same::digest;

/// Fields beyond these are compared record by record.
const FIELDS: usize = 16;

type Index = BTreeSet<(u64, Arc<str>)>;

/// Ids by what a field holds.
#[derive(Default)]
pub(super) struct Finder {
    fields: HashMap<String, Index>,
}

impl Finder {
    pub(super) fn moved(&mut self, id: &Arc<str>, before: Option<&Packed>, after: Option<&Packed>) {
        if self.fields.is_empty() {
            return;
        }
        let (before, after) = (before.map(Packed::open), after.map(Packed::open));
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

    /// The fields of `wanted` that could be indexed and are not.
    pub(super) fn lacks(&self, wanted: &JsonObject) -> Vec<String> {
        let free = FIELDS.saturating_sub(self.fields.len());
        wanted.keys().filter(|field| !self.fields.contains_key(*field)).take(free).cloned().collect()
    }

    pub(super) fn add(&mut self, field: String, index: Index) {
        self.fields.insert(field, index);
    }

    /// Ids of records that may hold what is wanted, in no order: the fewest some field narrows them to. Nothing
    /// where no field of it is indexed.
    pub(super) fn candidates(&self, wanted: &JsonObject) -> Option<Vec<&Arc<str>>> {
        let mut narrowed: Vec<_> = wanted
            .iter()
            .filter_map(|(field, value)| Some((ids(self.fields.get(field)?, value), Vec::new())))
            .collect();
        if narrowed.is_empty() {
            return None;
        }
        // All at once: whichever ends first is the shortest.
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

/// The index of a field over all records.
pub(super) fn index<'a>(field: &str, records: impl Iterator<Item = (&'a Arc<str>, &'a Packed)>) -> Index {
    records.filter_map(|(id, record)| Some((digest(record.open().get(field)?), id.clone()))).collect()
}
