//! The visible stores of `AsyncLocalStorage`: a frame of them is carried through every `await`.
//!
//! The engine continues after an `await` in a separate job, without a callback. But its jobs run in order, so another
//! job right before that one restores the frame. It is queued when the engine inspects the awaited value: if that is a
//! promise, the engine reads its `constructor` (see `internal/follow`); otherwise it creates a promise, which calls the
//! hook in this module. A job without a restored frame sees no store. Until there is a store, no hook is set.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use rquickjs::{Ctx, Object, Persistent, Result, Value, qjs};

use super::natives;
use crate::engine::State;

/// The current frame. Lives on its engine's thread.
#[derive(Default)]
pub(crate) struct Frames {
    following: Cell<bool>,
    current: RefCell<Option<Persistent<Value<'static>>>>,
    /// Whether the frame was restored for the next job.
    held: Cell<bool>,
}

impl Frames {
    /// Prepares for the next job, which sees no store unless its frame was restored.
    pub(crate) fn between(&self) {
        if self.following.get() && !self.held.replace(false) {
            self.clear();
        }
    }

    /// Clears the frame, so that no store is visible.
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

/// Returns the native functions for `internal/context`.
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
    // SAFETY: `ctx` proves that the runtime is alive; the hook only needs the context that it receives.
    unsafe {
        let runtime = qjs::JS_GetRuntime(ctx.as_raw().as_ptr());
        qjs::JS_SetPromiseHook(runtime, Some(made_or_kept), std::ptr::null_mut());
    }
    Ok(())
}

/// Queues a job that restores the current frame for the job after it.
fn mark(ctx: &Ctx<'_>) -> Result<()> {
    let mut frame = State::of(ctx)?.frames.current(ctx)?.as_raw();
    // SAFETY: the context is alive, and the queue takes its own reference to the frame, which the state retains during
    // the call.
    unsafe { qjs::JS_EnqueueJob(ctx.as_raw().as_ptr(), Some(put_back), 1, &mut frame) };
    // If there is no memory for this job, there is none for the one after it either.
    Ok(())
}

/// The promise hook: the engine created or resolved a promise, and may await it next.
unsafe extern "C" fn made_or_kept(
    ctx: *mut qjs::JSContext,
    what: qjs::JSPromiseHookType,
    _: qjs::JSValue,
    _: qjs::JSValue,
    _: *mut c_void,
) {
    let told = [qjs::JSPromiseHookType_JS_PROMISE_HOOK_INIT, qjs::JSPromiseHookType_JS_PROMISE_HOOK_RESOLVE];
    let Some(ctx) = NonNull::new(ctx).filter(|_| told.contains(&what)) else { return };
    // SAFETY: the engine calls this with the running context.
    let ctx = unsafe { Ctx::from_raw(ctx) };
    // It only fails while the engine is being dropped.
    let _ = mark(&ctx);
}

unsafe extern "C" fn put_back(ctx: *mut qjs::JSContext, _: c_int, given: *mut qjs::JSValue) -> qjs::JSValue {
    if let Some(raw) = NonNull::new(ctx) {
        // SAFETY: the engine calls this with the running context and the one queued argument, to which this takes its
        // own reference.
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
