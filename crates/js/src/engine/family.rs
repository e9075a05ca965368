//! The engines of one plugin: its main engine and those of its workers. They share one memory limit.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Post;
use crate::modules::Loaded;

/// The maximum number of workers of a plugin.
pub(crate) const MOST_WORKERS: usize = 32;

/// The state that the engines of one plugin share.
pub(crate) struct Family {
    limit: Option<usize>,
    used: AtomicUsize,
    /// CPU time of the workers, in nanoseconds.
    worked: AtomicU64,
    next: AtomicU64,
    members: Mutex<BTreeMap<u64, Post>>,
    /// The files that the engines have loaded.
    pub(crate) loaded: Loaded,
}

impl Family {
    pub(crate) fn new(limit: Option<usize>) -> Self {
        Self {
            limit,
            used: AtomicUsize::new(0),
            worked: AtomicU64::new(0),
            next: AtomicU64::new(0),
            members: Mutex::default(),
            loaded: Loaded::default(),
        }
    }

    fn members(&self) -> MutexGuard<'_, BTreeMap<u64, Post>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the bytes that all engines use, as last reported.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    pub(crate) fn limit(&self) -> Option<usize> {
        self.limit
    }

    /// Replaces the reported usage of one engine.
    pub(super) fn report(&self, before: usize, now: usize) {
        match now.checked_sub(before) {
            Some(more) => self.used.fetch_add(more, Ordering::Relaxed),
            None => self.used.fetch_sub(before - now, Ordering::Relaxed),
        };
    }

    /// Charges memory for a message between two engines, unless that exceeds the limit. Returns whether it was charged.
    pub(crate) fn charge(&self, bytes: usize) -> bool {
        let after = self.used.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let fits = self.limit.is_none_or(|limit| after <= limit);
        if !fits {
            self.discharge(bytes);
        }
        fits
    }

    pub(crate) fn discharge(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Adds CPU time of a worker.
    pub(super) fn add_worked(&self, time: Duration) {
        self.worked.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(super) fn worked(&self) -> Duration {
        Duration::from_nanos(self.worked.load(Ordering::Relaxed))
    }

    /// Registers an engine and returns its number, 0 for the plugin's main engine. Returns `None` if there are too
    /// many.
    pub(crate) fn join(&self, post: Post) -> Option<u64> {
        let mut members = self.members();
        if members.len() > MOST_WORKERS {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        members.insert(number, post);
        Some(number)
    }

    pub(crate) fn leave(&self, number: u64) {
        self.members().remove(&number);
    }

    /// Returns the inboxes of the other engines.
    pub(crate) fn others(&self, number: u64) -> Vec<Post> {
        self.members().iter().filter(|(of, _)| **of != number).map(|(_, post)| post.clone()).collect()
    }
}
