//! What an engine keeps beside its JavaScript values.

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
use crate::native::ports::Endpoint;
use crate::timers::Timers;
use crate::values::Helpers;

/// What an engine keeps. Lives on its thread, behind the runtime's user data.
pub(crate) struct State {
    pub(crate) shared: Arc<Shared>,
    /// Where the host's own futures run: never on a plugin's thread.
    pub(crate) host: Handle,
    pub(crate) post: Post,
    pub(crate) watch: Rc<Watch>,
    pub(crate) functions: Table<Held>,
    pub(crate) promises: Table<Settle>,
    pub(crate) timers: Timers,
    pub(crate) rejections: Rejections,
    pub(crate) frames: Frames,
    pub(crate) helpers: RefCell<Option<Rc<Helpers>>>,
    pub(crate) modules: Modules,
    /// Gives the plugin's own import up, while it is on its way.
    pub(crate) importing: RefCell<Option<Box<dyn FnOnce()>>>,
    /// `process`, once the plugin listens there to what nobody caught.
    pub(crate) listener: RefCell<Option<Persistent<Function<'static>>>>,
    /// Functions that other engines of the plugin have called, by number.
    pub(crate) callbacks: Table<Persistent<Function<'static>>>,
    /// The ends of channels that are here.
    pub(crate) endpoints: Table<Rc<RefCell<Option<Endpoint>>>>,
    /// Hears of what others broadcast.
    pub(crate) broadcast: RefCell<Option<Persistent<Function<'static>>>>,
    /// The workers it started and that run.
    pub(crate) workers: RefCell<HashMap<u64, Arc<Engine>>>,
    /// How many ports keep a worker alive.
    pub(crate) held: Cell<i32>,
    /// Where it is a worker: who started it.
    pub(crate) link: Option<Link>,
    /// Whoever asked whether it rests, with the moment until which a timer counts.
    pub(crate) rest_asked: RefCell<Vec<(Instant, Reply<bool>)>>,
}

/// A function that somebody outside holds, and what it is called on.
#[derive(Clone)]
pub(crate) struct Held {
    pub(crate) function: Persistent<Function<'static>>,
    pub(crate) this: Option<Persistent<Value<'static>>>,
}

/// How a promise is settled that waits for the host.
pub(crate) struct Settle {
    pub(crate) resolve: Persistent<Function<'static>>,
    pub(crate) reject: Persistent<Function<'static>>,
}

#[derive(Clone)]
struct StateRef(Rc<State>);

// SAFETY: it contains no value with a lifetime of the engine's, so its type is the same for every lifetime.
unsafe impl JsLifetime<'_> for StateRef {
    type Changed<'to> = Self;
}

impl State {
    /// The state of the engine this context is of.
    pub(crate) fn of(ctx: &Ctx<'_>) -> Result<Rc<Self>> {
        ctx.userdata::<StateRef>().map(|state| state.0.clone()).ok_or(Error::Unknown)
    }

    pub(crate) fn install(self: &Rc<Self>, ctx: &Ctx<'_>) -> Result<()> {
        ctx.store_userdata(StateRef(self.clone())).map(drop).map_err(|_| Error::Unknown)
    }

    /// Whether the plugin itself listens to what nobody caught.
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
            // A listener that throws has not dealt with it.
            drop(ctx.catch());
            false
        })
    }

    /// Gives the import up if nothing is left that could go on with it. `busy` says whether futures or jobs wait.
    pub(crate) fn give_up_import(&self, busy: impl FnOnce() -> bool) {
        let waits = self.timers.is_waiting() || self.promises.len() > 0 || !self.workers.borrow().is_empty();
        if self.importing.borrow().is_none() || waits || busy() {
            return;
        }
        let give_up = self.importing.take();
        if let Some(give_up) = give_up {
            give_up();
        }
    }

    /// Tells whether the plugin rests, once there is nothing to do for it at the moment: what is under way is known only then.
    pub(crate) fn tell_of_rest(&self, end: Instant, reply: Reply<bool>) {
        self.rest_asked.borrow_mut().push((end, reply));
    }

    /// Answers whoever asked whether it rests. `busy` says whether futures or jobs wait.
    pub(crate) fn answer_rest(&self, busy: impl Fn() -> bool) {
        for (end, reply) in self.rest_asked.take() {
            let works = self.promises.len() > 0
                || self.timers.is_due_before(end)
                || !self.workers.borrow().is_empty()
                || busy();
            reply.send(Ok(!works));
        }
    }

    /// Whether something keeps a worker alive. `busy` says whether futures or jobs wait.
    pub(crate) fn is_held(&self, busy: impl Fn() -> bool) -> bool {
        self.held.get() > 0
            || self.promises.len() > 0
            || self.timers.is_referenced()
            || !self.workers.borrow().is_empty()
            || busy()
    }

    /// Lets go of every JavaScript value: none may outlive the runtime.
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
        drop(self.listener.borrow_mut().take());
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

    /// The value is dropped by the caller: dropping it may run code that looks here again.
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
