//! A cache of responses for conditional requests.

use std::collections::HashMap;
use std::hash::Hash;

use bytes::Bytes;
use ostler_contract::http::HeaderValue;

/// The most responses, and their size in bytes.
const ENTRIES: usize = 512;
const BYTES: usize = 8 << 20;
/// The maximum size of a cached response.
const ENTRY_BYTES: usize = 512 << 10;

/// A response with its validators.
#[derive(Debug, Clone)]
pub(crate) struct Cached {
    pub etag: HeaderValue,
    pub body: Bytes,
    /// The URL of the next page.
    pub next: Option<String>,
}

/// Responses by request; the least recently used is removed first.
#[derive(Debug)]
pub(crate) struct Cache<K> {
    entries: HashMap<K, (u64, Cached)>,
    bytes: usize,
    used: u64,
}

impl<K> Default for Cache<K> {
    fn default() -> Self {
        Self { entries: HashMap::new(), bytes: 0, used: 0 }
    }
}

impl<K: Clone + Eq + Hash> Cache<K> {
    pub(crate) fn get(&mut self, key: &K) -> Option<Cached> {
        self.used += 1;
        let (used, cached) = self.entries.get_mut(key)?;
        *used = self.used;
        Some(cached.clone())
    }

    pub(crate) fn put(&mut self, key: K, cached: Cached) {
        self.remove(&key);
        if cached.body.len() > ENTRY_BYTES {
            return;
        }
        self.used += 1;
        self.bytes += cached.body.len();
        self.entries.insert(key, (self.used, cached));
        while self.bytes > BYTES || self.entries.len() > ENTRIES {
            let oldest = self.entries.iter().min_by_key(|(_, (used, _))| *used).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else { return };
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, key: &K) {
        if let Some((_, cached)) = self.entries.remove(key) {
            self.bytes -= cached.body.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_asked_for_goes_first() {
        let cached = |length: usize| Cached {
            etag: HeaderValue::from_static("\"1\""),
            body: vec![b'x'; length].into(),
            next: None,
        };
        let mut cache = Cache::default();
        cache.put(0, cached(1));
        for key in 1..=ENTRIES {
            assert!(cache.get(&0).is_some(), "asked for each time");
            cache.put(key, cached(1));
        }
        assert!(cache.get(&0).is_some() && cache.get(&1).is_none());
        assert_eq!((cache.entries.len(), cache.bytes), (ENTRIES, ENTRIES));
        for key in 0..2 * BYTES / ENTRY_BYTES {
            cache.put(key, cached(ENTRY_BYTES));
        }
        assert!(cache.bytes <= BYTES);
        cache.put(9, cached(ENTRY_BYTES + 1));
        assert!(cache.get(&9).is_none(), "a long one is not kept, nor the one before it");
    }
}
