//! Which stores of `AsyncLocalStorage` are seen: a frame of them, carried through every `await`.
//!
//! The engine goes on after an `await` in a job of its own and tells nobody. But its jobs run in order, so the frame
//! is put back by a job right before that one: it is queued when the engine looks at what it awaits. Awaiting a promise,
//! it reads the promise's `constructor` (see `internal/follow`); awaiting anything else, it makes a promise, and the
//! hook here is told. A job before which nothing was put back sees no store. Until there is a store, there is no hook.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use rquickjs::{Ctx, Object, Persistent, Result, Value, qjs};

use super::natives;
use crate::engine::State;

/// The frame that is seen now. Lives on its engine's thread.
#[derive(Default)]
pub(crate) struct Frames {
    following: Cell<bool>,
    current: RefCell<Option<Persistent<Value<'static>>>>,
    /// Whether the frame is that of the job that comes next.
    held: Cell<bool>,
}

impl Frames {
    /// A job comes next: it sees no store where none was put back for it.
    pub(crate) fn between(&self) {
        if self.following.get() && !self.held.replace(false) {
            self.clear();
        }
    }

    /// Nothing is seen.
    pub(crate) fn clear(&self) {
        self.held.set(false);
        let left = self.current.borrow_mut().take();
        drop(left);
    }

    fn enter<'js>(&self, ctx: &Ctx<'js>, frame: Value<'js>) {
        let next = (!frame.is_undefined()).then(|| Persistent::save(ctx, frame));
        let left = std::mem::replace(&mut *self.current.borrow_mut(), next);
        drop(left);
    }

    fn current<'js>(&self, ctx: &Ctx<'js>) -> Result<Value<'js>> {
        let current = self.current.borrow().clone();
        current.map_or_else(|| Ok(Value::new_undefined(ctx.clone())), |frame| frame.restore(ctx))
    }
}

/// What `internal/context` is built on.
pub(crate) fn native<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    natives! { ctx;
        "frame": |ctx: Ctx<'js>| State::of(&ctx)?.frames.current(&ctx),
        "enter": |ctx: Ctx<'js>, frame: Value<'js>| {
            State::of(&ctx)?.frames.enter(&ctx, frame);
            Ok::<_, rquickjs::Error>(())
        },
        "hold": |ctx: Ctx<'js>, frame: Value<'js>| {
            let state = State::of(&ctx)?;
            state.frames.enter(&ctx, frame);
            state.frames.held.set(true);
            Ok::<_, rquickjs::Error>(())
        },
        "mark": |ctx: Ctx<'js>| mark(&ctx),
        "pending": |promise: Value<'js>| {
            promise.as_promise().is_some_and(|promise| promise.state() == rquickjs::promise::PromiseState::Pending)
        },
        "start": start,
    }
}

fn start(ctx: Ctx<'_>) -> Result<()> {
    State::of(&ctx)?.frames.following.set(true);
    // SAFETY: `ctx` proves that the runtime is alive; the hook needs nothing beside the context it is given.
    unsafe {
        let runtime = qjs::JS_GetRuntime(ctx.as_raw().as_ptr());
        qjs::JS_SetPromiseHook(runtime, Some(made_or_kept), std::ptr::null_mut());
    }
    Ok(())
}

/// Queues a job that lets the one after it see what is seen now.
fn mark(ctx: &Ctx<'_>) -> Result<()> {
    let mut frame = State::of(ctx)?.frames.current(ctx)?.as_raw();
    // SAFETY: the context is alive, and the queue takes a reference of its own to the frame, which the state holds
    // meanwhile.
    unsafe { qjs::JS_EnqueueJob(ctx.as_raw().as_ptr(), Some(put_back), 1, &mut frame) };
    // Where there is no memory for a job there is none for what it was to come before.
    Ok(())
}

/// The engine made a promise, or one was kept: what it awaits may be next.
unsafe extern "C" fn made_or_kept(
    ctx: *mut qjs::JSContext,
    what: qjs::JSPromiseHookType,
    _: qjs::JSValue,
    _: qjs::JSValue,
    _: *mut c_void,
) {
    let told = [qjs::JSPromiseHookType_JS_PROMISE_HOOK_INIT, qjs::JSPromiseHookType_JS_PROMISE_HOOK_RESOLVE];
    let Some(ctx) = NonNull::new(ctx).filter(|_| told.contains(&what)) else { return };
    // SAFETY: the engine calls this with the context that runs.
    let ctx = unsafe { Ctx::from_raw(ctx) };
    // It fails where the engine is being taken down.
    let _ = mark(&ctx);
}

unsafe extern "C" fn put_back(ctx: *mut qjs::JSContext, _: c_int, given: *mut qjs::JSValue) -> qjs::JSValue {
    if let Some(raw) = NonNull::new(ctx) {
        // SAFETY: the engine calls this with the context that runs and the one argument that was queued, to which
        // this takes a reference of its own.
        let (ctx, frame) = unsafe {
            let ctx = Ctx::from_raw(raw);
            let frame = Value::from_raw(ctx.clone(), qjs::JS_DupValue(raw.as_ptr(), *given));
            (ctx, frame)
        };
        if let Ok(state) = State::of(&ctx) {
            state.frames.enter(&ctx, frame);
            state.frames.held.set(true);
        }
    }
    qjs::JS_UNDEFINED
}
