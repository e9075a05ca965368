//! The state that an engine's thread shares with its callers.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use ostler_contract::Thrown;
use tokio::sync::oneshot;

use super::heap::HeapAsked;
use super::{Family, Overrun};
use crate::options::{JsOptions, Level, Line};
use crate::profile::Profiler;

/// The state that an engine's thread shares with its callers.
pub(crate) struct Shared {
    label: Arc<RwLock<String>>,
    /// The spec with which the plugin was imported.
    pub(crate) spec: String,
    pub(crate) options: Arc<JsOptions>,
    /// The engines of the plugin, including this one.
    pub(crate) family: Arc<Family>,
    /// The number of this engine; 0 for the plugin's main engine.
    pub(crate) number: u64,
    killed: AtomicBool,
    condition: AtomicU8,
    /// CPU time of the thread after its last turn, in nanoseconds.
    cpu: AtomicU64,
    /// Bytes of the plugin's values after its last turn.
    memory: AtomicUsize,
    /// Its CPU profile.
    pub(crate) profiler: Profiler,
    /// Who waits for a summary of its heap.
    pub(super) heap_asked: HeapAsked,
}

/// The condition of an engine, for the error of a call that it does not answer.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Condition {
    /// It is running.
    Running = 0,
    /// The current turn exceeded the busy limit.
    Interrupted = 1,
    /// It has ended or is ending.
    Ended = 2,
    /// The current turn exceeded the memory limit.
    Starved = 3,
}

impl Shared {
    pub(crate) fn new(label: &str, options: Arc<JsOptions>) -> Self {
        let family = Arc::new(Family::new(options.memory_limit));
        let profiler = options.profiler.clone().unwrap_or_default();
        let shared = Self::of(Arc::new(RwLock::new(label.to_owned())), label.to_owned(), options, family, 0);
        Self { profiler, ..shared }
    }

    /// Creates the state of a worker that this engine starts.
    pub(crate) fn worker(&self, number: u64) -> Self {
        Self::of(self.label.clone(), self.spec.clone(), self.options.clone(), self.family.clone(), number)
    }

    fn of(
        label: Arc<RwLock<String>>,
        spec: String,
        options: Arc<JsOptions>,
        family: Arc<Family>,
        number: u64,
    ) -> Self {
        Self {
            label,
            spec,
            options,
            family,
            number,
            killed: AtomicBool::new(false),
            condition: AtomicU8::new(Condition::Running as u8),
            cpu: AtomicU64::default(),
            memory: AtomicUsize::default(),
            profiler: Profiler::default(),
            heap_asked: HeapAsked::default(),
        }
    }

    /// Returns the plugin's name for messages.
    pub(crate) fn label(&self) -> String {
        self.label.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_label(&self, label: &str) {
        *self.label.write().unwrap_or_else(PoisonError::into_inner) = label.to_owned();
    }

    /// Ends the engine; none of its code runs after that.
    pub(crate) fn kill(&self) {
        self.killed.store(true, Ordering::Release);
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.killed.load(Ordering::Relaxed)
    }

    /// Records the thread's usage.
    pub(crate) fn set_used(&self, cpu: Duration, memory: usize) {
        let now = u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX);
        let before = self.cpu.swap(now, Ordering::Relaxed);
        if self.number > 0 {
            self.family.add_worked(Duration::from_nanos(now.saturating_sub(before)));
        }
        self.memory.store(memory, Ordering::Relaxed);
    }

    /// Returns the CPU time and the memory that the plugin and its workers used after their last turns.
    pub(crate) fn used(&self) -> (Duration, usize) {
        let cpu = Duration::from_nanos(self.cpu.load(Ordering::Relaxed)) + self.family.worked();
        (cpu, self.memory.load(Ordering::Relaxed).max(self.family.used()))
    }

    pub(crate) fn set_condition(&self, condition: Condition) {
        self.condition.store(condition as u8, Ordering::Release);
    }

    pub(crate) fn is(&self, condition: Condition) -> bool {
        self.condition.load(Ordering::Acquire) == condition as u8
    }

    /// Logs a line of this plugin.
    pub(crate) fn log(&self, level: Level, text: impl Into<String>) {
        (self.options.log)(Line { label: self.label(), level, text: text.into() });
    }

    /// Returns a sentence with the plugin as its subject.
    pub(crate) fn sentence(&self, of: &str) -> String {
        format!("plugin {} {of}", self.label())
    }

    /// Returns the predicate of the message for an interruption.
    pub(crate) fn overran(&self, why: Overrun) -> String {
        match why {
            Overrun::Busy => self.busy(),
            Overrun::Memory => self.out_of_memory(),
        }
    }

    fn busy(&self) -> String {
        format!("ran for more than {} without a pause and was interrupted", seconds(self.options.busy_limit))
    }

    /// Returns the predicate of the message for an exceeded memory limit.
    pub(crate) fn out_of_memory(&self) -> String {
        match self.options.memory_limit {
            Some(limit) => format!("needs more memory than its limit of {} MB", limit >> 20),
            None => "needs more memory than there is".to_owned(),
        }
    }

    /// Returns the error message of a call that was not answered.
    pub(crate) fn unanswered(&self) -> String {
        if std::thread::panicking() {
            self.sentence("broke its engine; see the log")
        } else if self.is(Condition::Interrupted) {
            self.sentence(&self.busy())
        } else if self.is(Condition::Starved) {
            self.sentence(&self.out_of_memory())
        } else if self.is(Condition::Ended) {
            self.sentence("has been stopped")
        } else {
            self.sentence("will never answer: its promise can no longer be settled")
        }
    }
}

fn seconds(limit: std::time::Duration) -> String {
    match limit.as_secs_f64() {
        one if (one - 1.0).abs() < f64::EPSILON => "1 second".to_owned(),
        many => format!("{many} seconds"),
    }
}

/// The receiver of an answer. If it is dropped without one, it sends an error with the reason.
pub(crate) struct Reply<T> {
    to: Option<oneshot::Sender<Result<T, Thrown>>>,
    shared: Arc<Shared>,
}

impl<T> Reply<T> {
    pub(crate) fn new(shared: Arc<Shared>) -> (Self, oneshot::Receiver<Result<T, Thrown>>) {
        let (to, from) = oneshot::channel();
        (Self { to: Some(to), shared }, from)
    }

    pub(crate) fn send(mut self, answer: Result<T, Thrown>) {
        if let Some(to) = self.to.take() {
            // The caller may no longer be waiting.
            let _ = to.send(answer);
        }
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        if let Some(to) = self.to.take() {
            let _ = to.send(Err(Thrown::new(self.shared.unanswered())));
        }
    }
}
