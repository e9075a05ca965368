//! Summaries of an engine's heap.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rquickjs::{Ctx, qjs};

use super::{Reply, State};

/// The memory of one kind of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeapUse {
    /// The kind.
    pub kind: &'static str,
    /// How many there are; `None` for what is not counted.
    pub count: Option<u64>,
    /// Their memory; `None` for those whose memory is that of other kinds.
    pub bytes: Option<u64>,
}

/// What a plugin has in memory, after a collection. Sizes are in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeapSummary {
    /// What counts against its limit: `heap`, `outside` and `workers`.
    pub used: u64,
    /// The limit, if there is one.
    pub limit: Option<u64>,
    /// The values of the plugin and the code of its modules.
    pub heap: u64,
    /// What the host has for the plugin outside its heap: memory of WebAssembly, source maps, bytes that are sent.
    pub outside: u64,
    /// What its workers use, as they last reported it.
    pub workers: u64,
    /// The heap by kind.
    pub kinds: Vec<HeapUse>,
    /// Functions of the plugin that the host can call: registrations, listeners, callbacks.
    pub functions_held: u64,
    /// Promises of the plugin that wait for the host.
    pub promises_waiting: u64,
    /// Its timers.
    pub timers: u64,
    /// Its running workers.
    pub workers_running: u64,
}

type Waiting = Mutex<Option<Reply<HeapSummary>>>;

/// The requests for a summary. They are answered between two instructions if the plugin does not pause.
#[derive(Default)]
pub(super) struct HeapAsked {
    is_any: AtomicBool,
    /// Each belongs to a message to the engine, so that it is dropped with the message when the engine ends.
    waiting: Mutex<Vec<Weak<Waiting>>>,
}

impl HeapAsked {
    pub(super) fn add(&self, reply: Reply<HeapSummary>) -> Arc<Waiting> {
        let reply = Arc::new(Mutex::new(Some(reply)));
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&reply));
        self.is_any.store(true, Ordering::Relaxed);
        reply
    }

    pub(super) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Relaxed)
    }

    /// Answers the requests.
    pub(super) fn answer(&self, ctx: &Ctx<'_>, state: &State) {
        if !self.is_any.swap(false, Ordering::Relaxed) {
            return;
        }
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        let replies = waiting.into_iter().filter_map(|reply| {
            let reply = reply.upgrade()?;
            reply.lock().unwrap_or_else(PoisonError::into_inner).take()
        });
        let replies: Vec<_> = replies.collect();
        if replies.is_empty() {
            return;
        }
        let summary = summary(ctx, state);
        for reply in replies {
            reply.send(Ok(summary.clone()));
        }
    }
}

/// Collects the garbage and returns what is left. Runs no code of the plugin.
fn summary(ctx: &Ctx<'_>, state: &State) -> HeapSummary {
    ctx.run_gc();
    let mut usage = MaybeUninit::<qjs::JSMemoryUsage>::uninit();
    // SAFETY: `ctx` proves that the runtime is alive and used by this thread alone. The engine is between two instructions or
    // runs nothing, so that all its objects are complete; the function only reads them, and writes the whole structure.
    let usage = unsafe {
        qjs::JS_ComputeMemoryUsage(qjs::JS_GetRuntime(ctx.as_raw().as_ptr()), usage.as_mut_ptr());
        usage.assume_init()
    };
    let number = |count: i64| u64::try_from(count).unwrap_or_default();
    let row = |kind, count: i64, bytes: i64| HeapUse {
        kind,
        count: Some(number(count)),
        bytes: Some(number(bytes)),
    };
    let element = size_of::<qjs::JSValue>() as i64;
    let mut kinds = vec![
        row("objects", usage.obj_count, usage.obj_size),
        row("properties", usage.prop_count, usage.prop_size),
        row("shapes of objects", usage.shape_count, usage.shape_size),
        row(
            "elements of arrays",
            usage.fast_array_elements,
            usage.fast_array_elements.saturating_mul(element),
        ),
        row("strings", usage.str_count, usage.str_size),
        row("names and symbols", usage.atom_count, usage.atom_size),
        row("functions of modules", usage.js_func_count, usage.js_func_size + usage.js_func_code_size),
        row("line tables", usage.js_func_pc2line_count, usage.js_func_pc2line_size),
    ];
    let listed = kinds.iter().filter_map(|row| row.bytes).sum();
    let memory = state.watch.memory();
    let (outside, workers) = (memory.outside(), memory.used_by_others());
    let heap = memory.used().saturating_sub(outside) as u64;
    kinds.push(HeapUse {
        kind: "buffers, maps, sets, closures and others",
        count: None,
        bytes: Some(heap.saturating_sub(listed)),
    });
    for (kind, count) in [("arrays", usage.array_count), ("native functions", usage.c_func_count)] {
        kinds.push(HeapUse { kind, count: Some(number(count)), bytes: None });
    }
    HeapSummary {
        used: (memory.used() + workers) as u64,
        limit: state.shared.options.memory_limit.map(|limit| limit as u64),
        heap,
        outside: outside as u64,
        workers: workers as u64,
        kinds,
        functions_held: state.functions.len() as u64,
        promises_waiting: state.promises.len() as u64,
        timers: state.timers.len() as u64,
        workers_running: state.workers.borrow().len() as u64,
    }
}
