//! The timers of one engine. LLRT stores its timers per process; these live and end with their engine.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rquickjs::{Ctx, Function, Object, Persistent, Result};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::engine::State;
use crate::errors;

/// The pending timers.
#[derive(Default)]
pub(crate) struct Timers {
    waiting: RefCell<HashMap<u64, Timer>>,
    /// By time, then in the order of their starts.
    clock: RefCell<BinaryHeap<Reverse<(Instant, u64, u64)>>>,
    /// `setImmediate`
    soon: RefCell<VecDeque<u64>>,
    /// `process.nextTick`
    ticks: RefCell<VecDeque<Persistent<Function<'static>>>>,
    sleep: RefCell<Option<Pin<Box<Sleep>>>>,
    next: Cell<u64>,
    /// The timers that do not keep a worker alive.
    unreferenced: RefCell<HashSet<u64>>,
}

struct Timer {
    callback: Persistent<Function<'static>>,
    /// The number of its current start. A restarted timer ignores its old time.
    start: u64,
    every: Option<Duration>,
}

impl Timers {
    fn number(&self) -> u64 {
        self.next.set(self.next.get() + 1);
        self.next.get()
    }

    /// Starts a timeout or an interval; returns the timer's id.
    fn start(&self, callback: Persistent<Function<'static>>, after: Duration, repeat: bool) -> u64 {
        let id = self.number();
        let every = repeat.then_some(after);
        self.waiting.borrow_mut().insert(id, Timer { callback, start: id, every });
        self.clock.borrow_mut().push(Reverse((Instant::now() + after, id, id)));
        id
    }

    /// Starts a timer that fires after the work that is queued now.
    fn start_soon(&self, callback: Persistent<Function<'static>>) -> u64 {
        let id = self.number();
        self.waiting.borrow_mut().insert(id, Timer { callback, start: id, every: None });
        self.soon.borrow_mut().push_back(id);
        id
    }

    fn stop(&self, id: u64) {
        self.unreferenced.borrow_mut().remove(&id);
        let timer = self.waiting.borrow_mut().remove(&id);
        drop(timer);
    }

    /// Returns the timers that are due; wakes the engine when the next one is due.
    pub(crate) fn poll_due(&self, waker: &mut Context<'_>) -> Vec<u64> {
        let mut due: Vec<u64> = self.soon.borrow_mut().drain(..).collect();
        let mut clock = self.clock.borrow_mut();
        let now = Instant::now();
        while let Some(Reverse((at, start, id))) = clock.peek().copied() {
            let current = self.waiting.borrow().get(&id).is_some_and(|timer| timer.start == start);
            if current && at > now {
                let mut sleep = self.sleep.borrow_mut();
                let sleep = sleep.get_or_insert_with(|| Box::pin(sleep_until(at)));
                if sleep.deadline() != at {
                    sleep.as_mut().reset(at);
                }
                if sleep.as_mut().poll(waker) == Poll::Pending {
                    break;
                }
            }
            clock.pop();
            if current {
                due.push(id);
            }
        }
        due
    }

    /// Fires a timer. An error in its callback is reported and does not affect the others.
    pub(crate) fn fire(&self, ctx: &Ctx<'_>, state: &State, id: u64) {
        let callback = {
            let mut waiting = self.waiting.borrow_mut();
            let Some(timer) = waiting.get_mut(&id) else { return };
            match timer.every {
                Some(every) => {
                    timer.start = self.number();
                    self.clock.borrow_mut().push(Reverse((Instant::now() + every, timer.start, id)));
                    Some(timer.callback.clone())
                }
                None => {
                    self.unreferenced.borrow_mut().remove(&id);
                    waiting.remove(&id).map(|timer| timer.callback)
                }
            }
        };
        if let Some(callback) = callback {
            call_back(ctx, state, callback);
        }
    }

    pub(crate) fn has_ticks(&self) -> bool {
        !self.ticks.borrow().is_empty()
    }

    /// Runs the callbacks that wait for the current code to return; promise jobs run after them.
    pub(crate) fn run_ticks(&self, ctx: &Ctx<'_>, state: &State) {
        loop {
            let next = self.ticks.borrow_mut().pop_front();
            let Some(callback) = next else { return };
            call_back(ctx, state, callback);
        }
    }

    /// Returns whether a timer is due before a time.
    pub(crate) fn is_due_before(&self, moment: Instant) -> bool {
        let waiting = self.waiting.borrow();
        let is_due = |Reverse((at, start, id)): &Reverse<(Instant, u64, u64)>| {
            *at < moment && waiting.get(id).is_some_and(|timer| timer.start == *start)
        };
        !self.soon.borrow().is_empty() || self.clock.borrow().iter().any(is_due)
    }

    fn set_referenced(&self, id: u64, referenced: bool) {
        let mut unreferenced = self.unreferenced.borrow_mut();
        if referenced {
            unreferenced.remove(&id);
        } else if self.waiting.borrow().contains_key(&id) {
            unreferenced.insert(id);
        }
    }

    /// Returns whether a pending timer keeps a worker alive.
    pub(crate) fn is_referenced(&self) -> bool {
        let unreferenced = self.unreferenced.borrow();
        !self.ticks.borrow().is_empty() || self.waiting.borrow().keys().any(|id| !unreferenced.contains(id))
    }

    /// Returns the number of pending timers.
    pub(crate) fn len(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// Returns whether a timer is pending.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }

    pub(crate) fn clear(&self) {
        let waiting = self.waiting.take();
        drop(waiting);
        self.clock.take();
        self.soon.take();
        let ticks = self.ticks.take();
        drop(ticks);
        self.sleep.take();
    }
}

fn call_back(ctx: &Ctx<'_>, state: &State, callback: Persistent<Function<'static>>) {
    if let Err(error) = callback.restore(ctx).and_then(|callback| callback.call::<_, ()>(())) {
        errors::report_uncaught(ctx, state, error);
    }
}

/// Returns the native functions for `internal/timers`.
pub(crate) fn native<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    let native = Object::new(ctx.clone())?;
    native.set(
        "start",
        Function::new(ctx.clone(), |ctx: Ctx<'js>, callback: Function<'js>, after: f64, repeat: bool| {
            let after = Duration::try_from_secs_f64(after / 1000.0).unwrap_or_default();
            let callback = Persistent::save(&ctx, callback);
            Ok::<_, rquickjs::Error>(State::of(&ctx)?.timers.start(callback, after, repeat))
        }),
    )?;
    native.set(
        "soon",
        Function::new(ctx.clone(), |ctx: Ctx<'js>, callback: Function<'js>| {
            let callback = Persistent::save(&ctx, callback);
            Ok::<_, rquickjs::Error>(State::of(&ctx)?.timers.start_soon(callback))
        }),
    )?;
    native.set(
        "tick",
        Function::new(ctx.clone(), |ctx: Ctx<'js>, callback: Function<'js>| {
            let callback = Persistent::save(&ctx, callback);
            State::of(&ctx)?.timers.ticks.borrow_mut().push_back(callback);
            Ok::<_, rquickjs::Error>(())
        }),
    )?;
    native.set(
        "stop",
        Function::new(ctx.clone(), |ctx: Ctx<'js>, id: u64| {
            State::of(&ctx)?.timers.stop(id);
            Ok::<_, rquickjs::Error>(())
        }),
    )?;
    native.set(
        "reference",
        Function::new(ctx.clone(), |ctx: Ctx<'js>, id: u64, referenced: bool| {
            State::of(&ctx)?.timers.set_referenced(id, referenced);
            Ok::<_, rquickjs::Error>(())
        }),
    )?;
    Ok(native)
}
