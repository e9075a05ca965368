//! Memory used on behalf of peers: bytes queued, bodies being read, responses being built. The code that allocates
//! charges a budget first; a charge ends when it is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::sync::{Notify, Semaphore};

/// Up to this size a charge may use the last quarter of a budget, so that small messages pass while large ones wait.
pub const SMALL: usize = 64 * 1024;
/// The memory of one JSON value in addition to its text, in bytes.
pub const VALUE: usize = 128;

/// A limited number of bytes. Clones share it.
#[derive(Debug, Clone)]
pub struct Budget(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    limit: usize,
    used: AtomicUsize,
    closed: AtomicBool,
    /// The waiters of this budget form a queue: only the first one tries again when a charge ends.
    turns: Semaphore,
    /// The budget that contains this one; charges count against both.
    whole: Option<Budget>,
    /// Notified when a charge ends; shared by a budget and its parts.
    freed: Arc<Notify>,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self::with(limit, None, Arc::default())
    }

    /// A part of this budget that may use at most `limit` bytes of it.
    #[must_use]
    pub fn part(&self, limit: usize) -> Self {
        Self::with(limit, Some(self.clone()), self.0.freed.clone())
    }

    fn with(limit: usize, whole: Option<Self>, freed: Arc<Notify>) -> Self {
        Self(Arc::new(Pool {
            limit,
            used: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            turns: Semaphore::new(1),
            whole,
            freed,
        }))
    }

    /// The maximum size of one growing charge, in bytes.
    pub fn largest(&self) -> usize {
        self.0.limit - self.0.limit / 4
    }

    /// The limit in bytes.
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// How many bytes are in use.
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Acquire)
    }

    /// Charges `bytes` if they are available. An unused budget grants any number.
    pub fn try_take(&self, bytes: usize) -> Option<Charge> {
        self.reserve(bytes, bytes).then(|| Charge { budget: self.clone(), bytes })
    }

    /// Charges `bytes` that are already in use, even beyond the limit.
    pub fn take_anyway(&self, bytes: usize) -> Charge {
        self.add(bytes);
        Charge { budget: self.clone(), bytes }
    }

    /// Charges `bytes` as soon as they are available, after earlier waiters; `None` once the budget is closed.
    pub async fn take(&self, bytes: usize) -> Option<Charge> {
        let _turn = self.0.turns.acquire().await.ok()?;
        loop {
            let freed = self.0.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if self.0.closed.load(Ordering::Acquire) {
                return None;
            }
            if let Some(charge) = self.try_take(bytes) {
                return Some(charge);
            }
            freed.await;
        }
    }

    /// Waits until a charge of this budget or of the one that contains it ends.
    pub async fn changed(&self) {
        self.0.freed.notified().await;
    }

    /// Ends every wait for this budget.
    pub fn close(&self) {
        self.0.closed.store(true, Ordering::Release);
        self.0.turns.close();
        self.0.freed.notify_waiters();
    }

    /// Reserves bytes of a charge whose total becomes `total`.
    fn reserve(&self, bytes: usize, total: usize) -> bool {
        let most = match &self.0.whole {
            None if total > SMALL => self.largest(),
            _ => self.0.limit,
        };
        let fits = |used: usize| {
            let after = used.checked_add(bytes)?;
            (after <= most || used == 0).then_some(after)
        };
        if self.0.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).is_err() {
            return false;
        }
        if self.0.whole.as_ref().is_none_or(|whole| whole.reserve(bytes, total)) {
            return true;
        }
        self.0.used.fetch_sub(bytes, Ordering::AcqRel);
        false
    }

    fn add(&self, bytes: usize) {
        self.0.used.fetch_add(bytes, Ordering::AcqRel);
        if let Some(whole) = &self.0.whole {
            whole.add(bytes);
        }
    }

    fn give_back(&self, bytes: usize) {
        let mut budget = Some(self);
        while let Some(Self(pool)) = budget {
            pool.used.fetch_sub(bytes, Ordering::AcqRel);
            budget = pool.whole.as_ref();
        }
        self.0.freed.notify_waiters();
    }
}

/// Bytes of a budget in use until this is dropped.
#[derive(Debug)]
pub struct Charge {
    budget: Budget,
    bytes: usize,
}

impl Charge {
    /// The number of charged bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Charges more bytes if they are available; returns whether they were.
    pub fn try_grow(&mut self, more: usize) -> bool {
        let grown = self.budget.reserve(more, self.bytes + more);
        if grown {
            self.bytes += more;
        }
        grown
    }

    /// Charges more bytes as soon as they are available.
    pub async fn grow(&mut self, more: usize) {
        let whole = self.budget.clone();
        loop {
            let freed = whole.0.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if self.try_grow(more) {
                return;
            }
            freed.await;
        }
    }

    /// Corrects the charge to the bytes in use.
    pub fn set(&mut self, bytes: usize) {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.budget.add(more),
            None => self.budget.give_back(self.bytes - bytes),
        }
        self.bytes = bytes;
    }

    /// Merges another charge of the same budget into this one.
    pub fn merge(&mut self, mut other: Self) {
        debug_assert!(Arc::ptr_eq(&self.budget.0, &other.budget.0), "the charges are of one budget");
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Bytes that end the charge when their last clone is dropped.
    pub fn around(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Charged { bytes, _charge: self })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.give_back(self.bytes);
        }
    }
}

struct Charged {
    bytes: Bytes,
    _charge: Charge,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1024;

    #[test]
    fn a_charge_ends_with_its_drop_and_counts_against_the_whole() {
        let host = Budget::new(1024 * KIB);
        let (one, other) = (host.part(512 * KIB), host.part(512 * KIB));
        let mut charge = one.try_take(500 * KIB).unwrap();
        assert_eq!((one.used(), host.used()), (500 * KIB, 500 * KIB));
        assert!(!charge.try_grow(100 * KIB), "more than its part");
        assert!(other.try_take(400 * KIB).is_none(), "large charges leave a quarter of the whole free");
        let small = other.try_take(64 * KIB).unwrap();
        charge.set(100 * KIB);
        assert_eq!((one.used(), host.used()), (100 * KIB, 164 * KIB));
        let kept = small.around(Bytes::from_static(b"text"));
        let clone = kept.clone();
        drop(kept);
        assert_eq!(other.used(), 64 * KIB);
        drop((clone, charge));
        assert_eq!((one.used(), other.used(), host.used()), (0, 0, 0));
    }

    #[test]
    fn a_single_thing_larger_than_the_budget_passes_alone() {
        let host = Budget::new(100 * KIB);
        let large = host.try_take(200 * KIB).unwrap();
        assert!(host.try_take(1).is_none());
        drop(large);
        assert!(host.try_take(1).is_some());
    }

    #[tokio::test]
    async fn a_wait_ends_with_room_or_with_the_budget() {
        let budget = Budget::new(100);
        let held = budget.try_take(100).unwrap();
        let (waits, ends) = (budget.clone(), budget.clone());
        let waits = tokio::spawn(async move { waits.take(60).await.map(|charge| charge.bytes()) });
        tokio::task::yield_now().await;
        drop(held);
        assert_eq!(waits.await.unwrap(), Some(60));
        let _held = budget.try_take(100).unwrap();
        let closed = tokio::spawn(async move { ends.take(60).await.is_none() });
        tokio::task::yield_now().await;
        budget.close();
        assert!(closed.await.unwrap());
    }

    #[tokio::test]
    async fn who_waits_is_served_in_turn() {
        let host = Budget::new(1000);
        let part = host.part(100);
        let mut held = part.try_take(100).unwrap();
        let (first, second) = (part.take(60), part.take(10));
        tokio::pin!(first, second);
        assert!(futures::poll!(&mut first).is_pending() && futures::poll!(&mut second).is_pending());
        held.set(80);
        assert!(futures::poll!(&mut first).is_pending());
        assert!(
            futures::poll!(&mut second).is_pending(),
            "there is room for it, but not for the one before it"
        );
        held.set(0);
        let first = first.await.unwrap();
        assert_eq!((first.bytes(), second.await.unwrap().bytes()), (60, 10));
        let mut both = part.try_take(20).unwrap();
        both.merge(part.try_take(10).unwrap());
        assert_eq!((both.bytes(), part.used()), (30, 90));
        drop((first, both));
        assert_eq!(host.used(), 0);
    }

    proptest::proptest! {
        /// Whatever is taken, grown and dropped, nothing is left in use at the end and no limit is exceeded.
        #[test]
        fn nothing_is_lost(steps in proptest::collection::vec((0..4_u8, 1..200_000_usize), 0..60)) {
            let host = Budget::new(512 * KIB);
            let part = host.part(256 * KIB);
            let mut held: Vec<Charge> = Vec::new();
            for (what, bytes) in steps {
                match what {
                    0 => held.extend(part.try_take(bytes)),
                    1 => held.extend(host.try_take(bytes)),
                    2 => { held.pop(); }
                    _ => if let Some(last) = held.last_mut() { last.try_grow(bytes); },
                }
                proptest::prop_assert!(host.used() <= 512 * KIB && part.used() <= 256 * KIB);
                proptest::prop_assert_eq!(host.used(), held.iter().map(Charge::bytes).sum::<usize>());
            }
            held.clear();
            proptest::prop_assert_eq!((host.used(), part.used()), (0, 0));
        }
    }
}
