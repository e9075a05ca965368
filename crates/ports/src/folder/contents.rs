//! The values of a folder, in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use ostler_contract::points::ChangeType;

use super::Format;
use crate::stamp::Stamp;

/// Values by id, in order.
pub(crate) struct Contents<F: Format> {
    entries: BTreeMap<Arc<str>, StampedValue<F::Value>>,
    pub(crate) index: F::Index,
}

/// Values by id, without their index.
pub(crate) struct Entries<'a, V>(&'a BTreeMap<Arc<str>, StampedValue<V>>);

impl<'a, V> Entries<'a, V> {
    pub(crate) fn get(&self, id: &str) -> Option<&'a V> {
        self.0.get(id).map(|entry| &entry.value)
    }
}

struct StampedValue<V> {
    value: V,
    /// The file it was read from.
    stamp: Stamp,
}

impl<F: Format> Default for Contents<F> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), index: F::Index::default() }
    }
}

impl<F: Format> Contents<F> {
    pub(crate) fn get(&self, id: &str) -> Option<&F::Value> {
        self.entries.get(id).map(|entry| &entry.value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &F::Value)> {
        self.entries.iter().map(|(id, entry)| (id, &entry.value))
    }

    /// The index, for a change, and the values it refers to.
    pub(crate) fn index_and_entries(&mut self) -> (&mut F::Index, Entries<'_, F::Value>) {
        (&mut self.index, Entries(&self.entries))
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn stamp(&self, id: &str) -> Option<&Stamp> {
        self.entries.get(id).map(|entry| &entry.stamp)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.entries.keys()
    }

    /// Stores a value. Returns its id and the kind of change, if anything changed.
    pub(super) fn put(
        &mut self,
        format: &F,
        id: &str,
        value: F::Value,
        stamp: Stamp,
    ) -> Option<(Arc<str>, ChangeType)> {
        if let Some(entry) = self.entries.get_mut(id) {
            let changed = !format.same(&entry.value, &value);
            let before = std::mem::replace(entry, StampedValue { value, stamp }).value;
            if !changed {
                return None;
            }
            let id = self.entries.get_key_value(id)?.0.clone();
            self.moved(&id, Some(&before));
            return Some((id, ChangeType::Updated));
        }
        let id: Arc<str> = id.into();
        self.entries.insert(id.clone(), StampedValue { value, stamp });
        self.moved(&id, None);
        Some((id, ChangeType::Added))
    }

    pub(super) fn take(&mut self, id: &str) -> Option<(Arc<str>, ChangeType)> {
        let (id, before) = self.entries.remove_entry(id)?;
        self.moved(&id, Some(&before.value));
        Some((id, ChangeType::Deleted))
    }

    fn moved(&mut self, id: &Arc<str>, before: Option<&F::Value>) {
        let after = self.entries.get(id).map(|entry| &entry.value);
        F::reindex(&mut self.index, id, before, after);
    }
}
