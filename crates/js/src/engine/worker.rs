//! What an engine has more where it is a worker's.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};

use rquickjs::{Ctx, Function, Persistent, Value};

use super::{Message, Post, State};
use crate::native::ports::{Endpoint, Packet};
use crate::values::bytes_to_js;

/// What a worker is started with.
pub(crate) struct Setup {
    /// What it is to run, and its data.
    pub(crate) packet: Packet,
    /// Its `parentPort`.
    pub(crate) port: Endpoint,
    /// How many bytes its values may take, beside the limit of the plugin.
    pub(crate) memory: Option<usize>,
    /// How many bytes its calls may nest to.
    pub(crate) stack: Option<usize>,
    pub(crate) ended: Ended,
}

/// Tells who started a worker how it goes.
#[derive(Clone)]
pub(crate) struct Ended(Arc<Telling>);

struct Telling {
    post: Post,
    callback: u64,
    code: AtomicI32,
    /// 0: runs; 1: has a code that nothing changes any more.
    settled: AtomicU8,
}

impl Ended {
    pub(crate) fn new(post: Post, callback: u64) -> Self {
        Self(Arc::new(Telling { post, callback, code: AtomicI32::new(0), settled: AtomicU8::new(0) }))
    }

    /// It ends now, with this code.
    pub(crate) fn exit(&self, code: i32) {
        if self.0.settled.swap(1, Ordering::AcqRel) == 0 {
            self.0.code.store(code, Ordering::Release);
        }
    }

    /// The code it ends with if nothing else happens.
    pub(crate) fn set_code(&self, code: i32) {
        if self.0.settled.load(Ordering::Acquire) == 0 {
            self.0.code.store(code, Ordering::Release);
        }
    }

    /// Calls back with an event and its bytes.
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

/// Tells of the end of a worker when it is dropped, however its thread ends.
pub(super) struct Farewell(pub(super) Ended);

impl Drop for Farewell {
    fn drop(&mut self) {
        self.0.tell("exit", Vec::new());
    }
}

/// What a worker's engine knows of who started it.
pub(crate) struct Link {
    pub(crate) setup: RefCell<Option<(Packet, Endpoint)>>,
    pub(crate) ended: Ended,
    /// Makes bytes of what nobody caught.
    pub(crate) describe: RefCell<Option<Persistent<Function<'static>>>>,
    /// Is called before it ends by itself.
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

    /// What nobody caught ends the worker: who started it hears of it.
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
        // To describe it takes some memory and some time again.
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

    /// Calls what is to be called before the end, once.
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
