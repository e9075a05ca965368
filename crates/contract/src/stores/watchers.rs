//! Watchers of a store: each is called in its own task, in the order of the changes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::Report;
use crate::call::{Call, HostFunction};
use crate::cross::Cross;
use crate::thrown::Thrown;

/// The watchers of one store.
pub struct Watchers<C> {
    inner: Arc<Mutex<Inner<C>>>,
    /// The name of the store, for the log line when a watcher fails.
    what: String,
    report: Report,
    /// The runtime that calls them, because a store changes on its own threads.
    runtime: Handle,
}

struct Inner<C> {
    next: u64,
    watching: HashMap<u64, mpsc::UnboundedSender<C>>,
}

impl<C> std::fmt::Debug for Watchers<C> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.what)
    }
}

impl<C> Clone for Watchers<C> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            what: self.what.clone(),
            report: self.report.clone(),
            runtime: self.runtime.clone(),
        }
    }
}

impl<C: Cross + Clone> Watchers<C> {
    /// Creates a list without watchers, which are called on the current runtime. `what` names the store in lines of the log.
    ///
    /// # Errors
    /// There is no runtime.
    pub fn new(what: String, report: Report) -> Result<Self, Thrown> {
        let inner = Arc::new(Mutex::new(Inner { next: 0, watching: HashMap::new() }));
        Ok(Self { inner, what, report, runtime: runtime()? })
    }

    fn inner(&self) -> MutexGuard<'_, Inner<C>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notifies a function of every change from now on, until the returned function is called.
    pub fn add(&self, on_change: HostFunction<fn(C)>) -> Call<fn()> {
        let (tell, mut changes) = mpsc::unbounded_channel();
        let stopped = Arc::new(AtomicBool::new(false));
        let number = {
            let mut inner = self.inner();
            inner.next += 1;
            let number = inner.next;
            inner.watching.insert(number, tell);
            number
        };
        let (what, report, stop) = (self.what.clone(), self.report.clone(), stopped.clone());
        self.runtime.spawn(async move {
            while let Some(change) = changes.recv().await {
                if stopped.load(Ordering::Acquire) {
                    return;
                }
                if let Err(thrown) = on_change.call((change,)).await {
                    report.say(format!("a watcher of {what} failed: {}", thrown.for_log()));
                }
            }
        });
        let inner = Arc::downgrade(&self.inner);
        Call::now(move |()| {
            stop.store(true, Ordering::Release);
            if let Some(inner) = inner.upgrade() {
                inner.lock().unwrap_or_else(PoisonError::into_inner).watching.remove(&number);
            }
            Ok(())
        })
    }

    /// Notifies all watchers of a change.
    pub fn notify(&self, change: &C) {
        // A watcher that has stopped is about to be removed from the map.
        self.inner().watching.values().for_each(|tell| drop(tell.send(change.clone())));
    }
}

/// Returns the tokio runtime of the caller.
///
/// # Errors
/// There is none.
pub fn runtime() -> Result<Handle, Thrown> {
    Handle::try_current().map_err(|_| Thrown::new("this store is used on a tokio runtime"))
}

/// Runs work that blocks or takes long on a thread for blocking work.
///
/// # Errors
/// The work panicked, or there is no runtime.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Thrown> {
    runtime()?
        .spawn_blocking(work)
        .await
        .map_err(|error| Thrown::new(format_args!("the task failed: {error}")))
}
