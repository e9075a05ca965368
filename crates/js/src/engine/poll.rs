//! What an engine does between two instructions of the code that runs: checks its limits, samples it for a profile, and
//! answers requests for a summary of its heap.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use rquickjs::{Ctx, qjs};

use super::{Shared, State, Watch};
use crate::profile::{self, Frame};

/// What the interrupt handler of an engine uses.
pub(super) struct Poll {
    shared: Arc<Shared>,
    watch: Rc<Watch>,
    context: NonNull<qjs::JSContext>,
    /// Whether the handler runs: it calls the engine, which calls the handler.
    is_inside: Cell<bool>,
}

impl Poll {
    /// Sets the interrupt handler of an engine. The binding's own would get a second exclusive reference when the engine calls
    /// it during its call.
    ///
    /// # Safety
    /// No JavaScript runs after the result is dropped.
    pub(super) unsafe fn install(ctx: &Ctx<'_>, shared: &Arc<Shared>, watch: &Rc<Watch>) -> Rc<Self> {
        let poll = Rc::new(Self {
            shared: shared.clone(),
            watch: watch.clone(),
            context: ctx.as_raw(),
            is_inside: Cell::new(false),
        });
        // SAFETY: `ctx` proves that the runtime is alive. The handler runs during JavaScript only, when the value is alive, as the
        // caller ensures, and only shares it.
        unsafe {
            let runtime = qjs::JS_GetRuntime(ctx.as_raw().as_ptr());
            qjs::JS_SetInterruptHandler(runtime, Some(handle), Rc::as_ptr(&poll).cast_mut().cast());
        }
        poll
    }

    /// Returns whether the running code has to stop.
    fn run(&self) -> bool {
        // SAFETY: the handler runs on the thread that holds the lock of the runtime, during JavaScript of this context, and the
        // value does not leave this function. The engine calls the handler between two instructions, or between two steps of a
        // regular expression or of a loop of its own that uses no address which a call could change; all objects are complete.
        let ctx = || unsafe { Ctx::from_raw(self.context) };
        if self.watch.overrun(|| ctx().run_gc()) {
            return true;
        }
        if self.shared.profiler.is_due()
            && let Ok(state) = State::of(&ctx())
        {
            let running = profile::running(&ctx(), &state);
            self.shared.profiler.sample(running, |frame| origin(&state, frame));
        }
        if self.shared.heap_asked.is_any()
            && let Ok(state) = State::of(&ctx())
        {
            self.shared.heap_asked.answer(&ctx(), &state);
        }
        false
    }
}

unsafe extern "C" fn handle(_: *mut qjs::JSRuntime, poll: *mut c_void) -> c_int {
    // SAFETY: `install` sets the handler with a pointer to a `Poll` that is alive while JavaScript runs.
    let poll = unsafe { &*poll.cast::<Poll>() };
    if poll.is_inside.replace(true) {
        return 0;
    }
    // A panic must not unwind through the engine; it stops the code that runs.
    let stops = catch_unwind(AssertUnwindSafe(|| poll.run())).unwrap_or(true);
    poll.is_inside.set(false);
    c_int::from(stops)
}

/// Returns a function of built code at its place in the source.
fn origin(state: &State, frame: &Frame) -> Option<Frame> {
    let (file, at) = state.modules.source_maps.origin_of(state, &frame.file, frame.at?)?;
    Some(Frame { name: frame.name.clone(), file, at: Some(at) })
}
