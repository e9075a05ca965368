//! The additional state of a worker's engine.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};

use rquickjs::{Ctx, Function, Persistent, Value};

use super::{Message, Post, State};
use crate::native::ports::{Endpoint, Packet};
use crate::values::bytes_to_js;

/// The parameters of a new worker.
pub(crate) struct Setup {
    /// Its code and its data.
    pub(crate) packet: Packet,
    /// Its `parentPort`.
    pub(crate) port: Endpoint,
    /// The memory limit of its values in bytes, in addition to the plugin's limit.
    pub(crate) memory: Option<usize>,
    /// The limit of its call stack, in bytes.
    pub(crate) stack: Option<usize>,
    pub(crate) ended: Ended,
}

/// Notifies the parent engine of a worker's events.
#[derive(Clone)]
pub(crate) struct Ended(Arc<Telling>);

struct Telling {
    post: Post,
    callback: u64,
    code: AtomicI32,
    /// 0: it is running; 1: its exit code is final.
    settled: AtomicU8,
}

impl Ended {
    pub(crate) fn new(post: Post, callback: u64) -> Self {
        Self(Arc::new(Telling { post, callback, code: AtomicI32::new(0), settled: AtomicU8::new(0) }))
    }

    /// Makes this exit code final.
    pub(crate) fn exit(&self, code: i32) {
        if self.0.settled.swap(1, Ordering::AcqRel) == 0 {
            self.0.code.store(code, Ordering::Release);
        }
    }

    /// Sets the exit code, unless it is already final.
    pub(crate) fn set_code(&self, code: i32) {
        if self.0.settled.load(Ordering::Acquire) == 0 {
            self.0.code.store(code, Ordering::Release);
        }
    }

    /// Calls the parent's callback with an event and its bytes.
    pub(crate) fn tell(&self, event: &'static str, bytes: Vec<u8>) {
        self.0.tell(event, bytes);
    }
}

impl Telling {
    fn tell(&self, event: &'static str, bytes: Vec<u8>) {
        let (callback, code) = (self.callback, self.code.load(Ordering::Acquire));
        self.post.send(Message::Run(Box::new(move |ctx, state| {
            let call = state.callbacks.get(callback);
            let called = call
                .map(|call| call.restore(ctx)?.call::<_, ()>((event, bytes_to_js(ctx, bytes.into())?, code)));
            if let Some(Err(error)) = called {
                crate::errors::report_uncaught(ctx, state, error);
            }
        })));
    }
}

/// Notifies the parent of the worker's exit when dropped, however its thread ends.
pub(super) struct Farewell(pub(super) Ended);

impl Drop for Farewell {
    fn drop(&mut self) {
        self.0.tell("exit", Vec::new());
    }
}

/// A worker's link to its parent engine.
pub(crate) struct Link {
    pub(crate) setup: RefCell<Option<(Packet, Endpoint)>>,
    pub(crate) ended: Ended,
    /// Serializes an uncaught error.
    pub(crate) describe: RefCell<Option<Persistent<Function<'static>>>>,
    /// Called before the worker ends by itself.
    pub(crate) at_end: RefCell<Option<Persistent<Function<'static>>>>,
}

impl Link {
    pub(super) fn new(setup: Setup) -> Self {
        Self {
            setup: RefCell::new(Some((setup.packet, setup.port))),
            ended: setup.ended,
            describe: RefCell::default(),
            at_end: RefCell::default(),
        }
    }

    /// Ends the worker after an uncaught error, and notifies its parent.
    pub(crate) fn fail<'js>(&self, ctx: &Ctx<'js>, state: &State, error: &Value<'js>) {
        if state.shared.is_killed() {
            return;
        }
        let limit = state.watch.interrupted().map(|why| state.shared.overran(why));
        let kind = match state.watch.starved() {
            true => "memory",
            false if limit.is_some() => "busy",
            false => "error",
        };
        // The serialization needs memory and time again.
        let describe = self.describe.borrow().clone();
        let described = describe.and_then(|describe| {
            let bytes = describe.restore(ctx).and_then(|describe| {
                describe.call::<_, Value>((error.clone(), kind, limit.unwrap_or_default()))
            });
            crate::values::bytes_of(&bytes.ok()?).map(|bytes| bytes.to_vec())
        });
        if described.is_none() {
            drop(ctx.catch());
        }
        self.ended.exit(1);
        self.ended.tell(kind, described.unwrap_or_default());
        state.shared.kill();
    }

    /// Calls the `at_end` function, at most once.
    pub(crate) fn end(&self, ctx: &Ctx<'_>, state: &State) -> bool {
        let call = self.at_end.borrow_mut().take();
        let Some(call) = call else { return false };
        if let Err(error) = call.restore(ctx).and_then(|call| call.call::<_, ()>(())) {
            crate::errors::report_uncaught(ctx, state, error);
        }
        true
    }

    pub(super) fn clear(&self) {
        self.setup.borrow_mut().take();
        self.describe.borrow_mut().take();
        self.at_end.borrow_mut().take();
    }
}
