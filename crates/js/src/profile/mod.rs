//! CPU profiles: samples of the functions that run, taken between two instructions of a plugin.
//!
//! The thread of the engine takes the samples, so that also a plugin that never pauses has a profile. A profile is started
//! and ended by any other thread, which waits for nothing.

mod frames;
mod recording;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

pub(crate) use frames::{Frame, running};
use recording::Recording;
pub use recording::{CpuProfile, ProfileNode};

/// Starts the CPU profiles of an engine. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Profiler(Arc<State>);

#[derive(Debug)]
struct State {
    /// Profiles count their time from here.
    epoch: Instant,
    is_on: AtomicBool,
    /// Whether the engine runs a turn.
    is_busy: AtomicBool,
    recording: Mutex<Option<Recording>>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            epoch: Instant::now(),
            is_on: AtomicBool::default(),
            is_busy: AtomicBool::default(),
            recording: Mutex::default(),
        }
    }
}

impl Profiler {
    fn recording(&self) -> MutexGuard<'_, Option<Recording>> {
        self.0.recording.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a profile. Returns `None` if one is being recorded.
    pub fn start(&self) -> Option<Profiling> {
        let mut recording = self.recording();
        if recording.is_some() {
            return None;
        }
        // In this order, and the other way round in `turn`: a turn that begins or ends now is seen by one of both.
        self.0.is_on.store(true, Ordering::SeqCst);
        let is_busy = self.0.is_busy.load(Ordering::SeqCst);
        *recording = Some(Recording::new(self.0.epoch, Instant::now(), is_busy));
        Some(Profiling(Some(self.clone())))
    }

    /// Records that the engine begins a turn or ends it.
    pub(crate) fn turn(&self, is_busy: bool) {
        self.0.is_busy.store(is_busy, Ordering::SeqCst);
        if self.0.is_on.load(Ordering::SeqCst)
            && let Some(recording) = &mut *self.recording()
        {
            recording.turn(is_busy, Instant::now());
        }
    }

    /// Returns whether a sample is due. Costs nothing while no profile is recorded.
    pub(crate) fn is_due(&self) -> bool {
        self.0.is_on.load(Ordering::Relaxed)
            && self.recording().as_ref().is_some_and(|recording| recording.is_due(Instant::now()))
    }

    /// Records a sample: the functions that run, the innermost first. `origin` returns the place of a function in its source.
    pub(crate) fn sample(&self, running: Vec<Frame>, origin: impl Fn(&Frame) -> Option<Frame>) {
        if let Some(recording) = &mut *self.recording() {
            recording.sample(running, origin, Instant::now());
        }
    }
}

/// A profile that is being recorded. It is discarded when dropped without a call of [`Profiling::end`].
#[derive(Debug)]
pub struct Profiling(Option<Profiler>);

impl Profiling {
    /// Stops once: the next profile can start immediately.
    fn stop(&mut self) -> Option<Recording> {
        let profiler = self.0.take()?;
        let mut recording = profiler.recording();
        profiler.0.is_on.store(false, Ordering::SeqCst);
        recording.take()
    }

    /// Ends the profile and returns it.
    pub fn end(mut self) -> CpuProfile {
        let now = Instant::now();
        self.stop().map(|recording| recording.end(now)).unwrap_or_default()
    }
}

impl Drop for Profiling {
    fn drop(&mut self) {
        drop(self.stop());
    }
}
