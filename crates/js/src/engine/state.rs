//! The state of an engine besides its JavaScript values.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use rquickjs::{Ctx, Error, Function, JsLifetime, Persistent, Result, Value};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::{Engine, Link, Post, Rejections, Reply, Shared, Watch};
use crate::modules::Modules;
use crate::native::frames::Frames;
use crate::native::fs::Files;
use crate::native::ports::Endpoint;
use crate::timers::Timers;
use crate::values::Helpers;

/// The state of an engine. Lives on its thread, in the runtime's user data.
pub(crate) struct State {
    pub(crate) shared: Arc<Shared>,
    /// The runtime for the host's futures, which never run on a plugin's thread.
    pub(crate) host: Handle,
    pub(crate) post: Post,
    pub(crate) watch: Rc<Watch>,
    pub(crate) functions: Table<BoundFunction>,
    pub(crate) promises: Table<Settle>,
    pub(crate) timers: Timers,
    pub(crate) rejections: Rejections,
    pub(crate) frames: Frames,
    pub(crate) helpers: RefCell<Option<Rc<Helpers>>>,
    pub(crate) modules: Modules,
    pub(crate) files: Rc<Files>,
    /// Aborts the plugin's import or its `apply`, while that is pending.
    pub(crate) starting: RefCell<Option<Box<dyn FnOnce()>>>,
    /// The function that fails a test which nothing can settle, in an engine for tests. Returns whether there was one.
    pub(crate) stalled: RefCell<Option<Persistent<Function<'static>>>>,
    /// The `process` listener for uncaught errors, once the plugin has set one.
    pub(crate) listener: RefCell<Option<Persistent<Function<'static>>>>,
    /// Returns the functions that run, for CPU profiles.
    pub(crate) frame_reader: RefCell<Option<Persistent<Function<'static>>>>,
    /// Functions that other engines of the plugin call, by number.
    pub(crate) callbacks: Table<Persistent<Function<'static>>>,
    /// The channel endpoints that this engine owns.
    pub(crate) endpoints: Table<Rc<RefCell<Option<Endpoint>>>>,
    /// The function that receives broadcast messages.
    pub(crate) broadcast: RefCell<Option<Persistent<Function<'static>>>>,
    /// The running workers that it started.
    pub(crate) workers: RefCell<HashMap<u64, Arc<Engine>>>,
    /// The number of ports that keep a worker alive.
    pub(crate) held: Cell<i32>,
    /// The link to the parent engine, in a worker.
    pub(crate) link: Option<Link>,
    /// The pending queries whether the plugin is idle, each with the time until which timers count.
    pub(crate) rest_asked: RefCell<Vec<(Instant, Reply<bool>)>>,
}

/// A function with its `this` value, referenced from outside the engine.
#[derive(Clone)]
pub(crate) struct BoundFunction {
    pub(crate) function: Persistent<Function<'static>>,
    pub(crate) this: Option<Persistent<Value<'static>>>,
}

/// The functions that settle a promise which waits for the host.
pub(crate) struct Settle {
    pub(crate) resolve: Persistent<Function<'static>>,
    pub(crate) reject: Persistent<Function<'static>>,
}

#[derive(Clone)]
struct StateRef(Rc<State>);

// SAFETY: it contains no value with a lifetime of the engine, so its type is the same for every lifetime.
unsafe impl JsLifetime<'_> for StateRef {
    type Changed<'to> = Self;
}

impl State {
    /// Returns the state of the engine that a context belongs to.
    pub(crate) fn of(ctx: &Ctx<'_>) -> Result<Rc<Self>> {
        ctx.userdata::<StateRef>().map(|state| state.0.clone()).ok_or(Error::Unknown)
    }

    pub(crate) fn install(self: &Rc<Self>, ctx: &Ctx<'_>) -> Result<()> {
        ctx.store_userdata(StateRef(self.clone())).map(drop).map_err(|_| Error::Unknown)
    }

    /// Returns whether the plugin's own listener handled an uncaught error.
    pub(crate) fn heard<'js>(
        &self,
        ctx: &Ctx<'js>,
        event: &str,
        error: &Value<'js>,
        promise: Option<Value<'js>>,
    ) -> bool {
        let Some(listener) = self.listener.borrow().clone() else { return false };
        let promise = promise.unwrap_or_else(|| Value::new_undefined(ctx.clone()));
        let heard = listener.restore(ctx).and_then(|tell| tell.call((event, error.clone(), promise)));
        heard.unwrap_or_else(|_| {
            // A listener that throws has not handled the error.
            drop(ctx.catch());
            false
        })
    }

    /// Aborts the import or the `apply` if nothing is left that could complete it. `busy` returns whether futures or
    /// jobs are pending.
    pub(crate) fn give_up_start(&self, busy: impl FnOnce() -> bool) {
        let waits = self.timers.is_waiting() || self.promises.len() > 0 || !self.workers.borrow().is_empty();
        if self.starting.borrow().is_none() || waits || busy() {
            return;
        }
        let give_up = self.starting.take();
        if let Some(give_up) = give_up {
            give_up();
        }
    }

    /// Returns whether a running test could not be settled any more. `busy` returns whether futures or jobs are pending.
    pub(crate) fn can_stall(&self, busy: impl Fn() -> bool) -> bool {
        self.stalled.borrow().is_some() && !self.is_held(busy)
    }

    /// Fails a test that nothing can settle. Returns whether there was one.
    pub(crate) fn fail_stalled(&self, ctx: &Ctx<'_>) -> bool {
        let stalled = self.stalled.borrow().clone();
        let failed =
            stalled.map(|stalled| stalled.restore(ctx).and_then(|stalled| stalled.call::<_, bool>(())));
        failed.is_some_and(|failed| {
            failed.unwrap_or_else(|_| {
                drop(ctx.catch());
                false
            })
        })
    }

    /// Queues a query whether the plugin is idle. It is answered once the engine has nothing to do at the moment,
    /// because only then the pending operations are known.
    pub(crate) fn tell_of_rest(&self, end: Instant, reply: Reply<bool>) {
        self.rest_asked.borrow_mut().push((end, reply));
    }

    /// Answers the queries whether the plugin is idle. `busy` returns whether futures or jobs are pending.
    pub(crate) fn answer_rest(&self, busy: impl Fn() -> bool) {
        for (end, reply) in self.rest_asked.take() {
            let works = self.promises.len() > 0
                || self.timers.is_due_before(end)
                || !self.workers.borrow().is_empty()
                || busy();
            reply.send(Ok(!works));
        }
    }

    /// Returns whether something keeps a worker alive. `busy` returns whether futures or jobs are pending.
    pub(crate) fn is_held(&self, busy: impl Fn() -> bool) -> bool {
        self.held.get() > 0
            || self.promises.len() > 0
            || self.timers.is_referenced()
            || !self.workers.borrow().is_empty()
            || busy()
    }

    /// Drops every JavaScript value, because none may outlive the runtime.
    pub(crate) fn clear(&self) {
        for (_, worker) in self.workers.take() {
            worker.kill();
        }
        self.callbacks.clear();
        self.endpoints.clear();
        drop(self.broadcast.borrow_mut().take());
        if let Some(link) = &self.link {
            link.clear();
        }
        self.functions.clear();
        self.promises.clear();
        self.timers.clear();
        self.rejections.clear();
        self.frames.clear();
        self.modules.clear();
        drop(self.helpers.borrow_mut().take());
        drop(self.stalled.borrow_mut().take());
        drop(self.listener.borrow_mut().take());
        drop(self.frame_reader.borrow_mut().take());
    }
}

/// Values by number.
pub(crate) struct Table<T> {
    rows: RefCell<HashMap<u64, T>>,
    next: Cell<u64>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { rows: RefCell::default(), next: Cell::new(1) }
    }
}

impl<T> Table<T> {
    pub(crate) fn insert(&self, value: T) -> u64 {
        let id = self.next.get();
        self.next.set(id + 1);
        self.rows.borrow_mut().insert(id, value);
        id
    }

    /// Removes a value. The caller drops it, because its drop may run code that accesses this table.
    pub(crate) fn remove(&self, id: u64) -> Option<T> {
        self.rows.borrow_mut().remove(&id)
    }

    pub(crate) fn get(&self, id: u64) -> Option<T>
    where
        T: Clone,
    {
        self.rows.borrow().get(&id).cloned()
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.borrow().len()
    }

    pub(crate) fn clear(&self) {
        let rows = std::mem::take(&mut *self.rows.borrow_mut());
        drop(rows);
    }
}
