//! Work that equal requests share: one run of a program answers all that ask for it at the same time.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt as _, Shared, WeakShared};
use parking_lot::Mutex;

/// Work that runs once at a time. Requests that wait at the same time get the result of one run, which begins after all of
/// them. Work that no request waits for any more is dropped, whether it waits or runs.
pub struct SharedWork<T: Clone>(Arc<State<T>>);

type Run<T> = Shared<BoxFuture<'static, T>>;

struct State<T: Clone> {
    /// Locked during a run.
    running: tokio::sync::Mutex<()>,
    /// The run that has not begun.
    waiting: Mutex<Option<WeakShared<BoxFuture<'static, T>>>>,
}

impl<T: Clone> Default for SharedWork<T> {
    fn default() -> Self {
        Self(Arc::new(State { running: tokio::sync::Mutex::default(), waiting: Mutex::default() }))
    }
}

impl<T: Clone + Send + Sync + 'static> SharedWork<T> {
    /// Returns the result of a run that begins after this call. `work` has to be equal for all requests.
    pub fn run<F>(&self, work: impl FnOnce() -> F + Send + 'static) -> Run<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        self.join(|| {}, work)
    }

    /// As [`SharedWork::run`]. `joins` is called for each request; none is while `work` is called.
    pub fn join<F>(&self, joins: impl FnOnce(), work: impl FnOnce() -> F + Send + 'static) -> Run<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut waiting = self.0.waiting.lock();
        joins();
        if let Some(run) = waiting.as_ref().and_then(WeakShared::upgrade) {
            return run;
        }
        let state = self.0.clone();
        let run = async move {
            let _running = state.running.lock().await;
            let work = {
                // Later requests may see something newer.
                let mut waiting = state.waiting.lock();
                *waiting = None;
                work()
            };
            work.await
        };
        let run = run.boxed().shared();
        *waiting = run.downgrade();
        run
    }
}

/// [`SharedWork`] by what it is about. A key is remembered as long as a request for it waits.
pub struct SharedByKey<K, T: Clone>(Mutex<HashMap<K, OfKey<T>>>);

struct OfKey<T: Clone> {
    work: SharedWork<T>,
    requests: usize,
}

/// A request that waits.
struct Waits<'a, K: Eq + Hash, T: Clone> {
    all: &'a Mutex<HashMap<K, OfKey<T>>>,
    key: K,
}

impl<K: Eq + Hash, T: Clone> Drop for Waits<'_, K, T> {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        let Some(of_key) = all.get_mut(&self.key) else { return };
        of_key.requests -= 1;
        if of_key.requests == 0 {
            all.remove(&self.key);
        }
    }
}

impl<K, T: Clone> Default for SharedByKey<K, T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash, T: Clone + Send + Sync + 'static> SharedByKey<K, T> {
    /// Returns the result of a run for this key that begins after this call.
    pub async fn run<F>(&self, key: K, work: impl FnOnce() -> F + Send + 'static) -> T
    where
        F: Future<Output = T> + Send + 'static,
    {
        let shared = {
            let mut all = self.0.lock();
            let new = || OfKey { work: SharedWork::default(), requests: 0 };
            let of_key = all.entry(key.clone()).or_insert_with(new);
            of_key.requests += 1;
            SharedWork(of_key.work.0.clone())
        };
        // Dropped after the run, so that no other run for this key begins during it.
        let _waits = Waits { all: &self.0, key };
        shared.run(work).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;
    use tokio::sync::Semaphore;

    use super::*;

    /// Work that waits for a permit and returns the number of its run.
    #[derive(Clone)]
    struct Work {
        begun: Arc<AtomicUsize>,
        permits: Arc<Semaphore>,
    }

    impl Work {
        fn new() -> Self {
            Self { begun: Arc::default(), permits: Arc::new(Semaphore::new(0)) }
        }

        fn request(&self, shared: &SharedWork<usize>) -> Run<usize> {
            let work = self.clone();
            shared.run(move || async move {
                let number = work.begun.fetch_add(1, Ordering::Relaxed) + 1;
                work.permits.acquire().await.unwrap().forget();
                number
            })
        }

        fn begun(&self) -> usize {
            self.begun.load(Ordering::Relaxed)
        }
    }

    #[tokio::test]
    async fn requests_that_wait_share_a_run_that_begins_after_them() {
        let (shared, work) = (SharedWork::default(), Work::new());
        let mut first = work.request(&shared);
        assert!(futures::poll!(&mut first).is_pending());
        let later: Vec<_> = (0..500).map(|_| work.request(&shared)).collect();
        work.permits.add_permits(500);
        assert_eq!(first.await, 1);
        assert_eq!(join_all(later).await, [2; 500]);
        assert_eq!(work.begun(), 2);
        assert_eq!(work.request(&shared).await, 3, "an earlier result is not used again");
    }

    #[tokio::test]
    async fn work_that_no_request_waits_for_is_dropped() {
        let (shared, work) = (SharedWork::default(), Work::new());
        let mut running = work.request(&shared);
        assert!(futures::poll!(&mut running).is_pending());
        let mut abandoned = work.request(&shared);
        assert!(futures::poll!(&mut abandoned).is_pending());
        drop((running, abandoned));
        work.permits.add_permits(1);
        assert_eq!(work.request(&shared).await, 2, "what waited did not run");

        // It continues as long as one of its requests waits, whichever polled it first.
        let mut one = work.request(&shared);
        let mut other = work.request(&shared);
        assert!(futures::poll!(&mut one).is_pending());
        assert!(futures::poll!(&mut other).is_pending());
        drop(one);
        work.permits.add_permits(1);
        assert_eq!(other.await, 3);
    }

    #[tokio::test]
    async fn work_of_other_keys_does_not_wait() {
        let (shared, work) = (SharedByKey::<&str, usize>::default(), Work::new());
        let never = shared.run("slow", std::future::pending);
        futures::pin_mut!(never);
        assert!(futures::poll!(&mut never).is_pending());
        work.permits.add_permits(1);
        assert_eq!(shared.run("other", || async { 7 }).await, 7);
    }

    #[tokio::test]
    async fn a_key_is_forgotten_with_its_last_request() {
        let shared = SharedByKey::<usize, usize>::default();
        let known = || shared.0.lock().len();
        let mut one = Box::pin(shared.run(1, std::future::pending));
        let mut other = Box::pin(shared.run(1, std::future::pending));
        assert!(futures::poll!(&mut one).is_pending());
        assert!(futures::poll!(&mut other).is_pending());
        assert_eq!(shared.run(2, || async { 7 }).await, 7);
        assert_eq!(known(), 1);
        drop(one);
        assert_eq!(known(), 1, "another request waits");
        drop(other);
        assert_eq!(known(), 0);
    }
}
