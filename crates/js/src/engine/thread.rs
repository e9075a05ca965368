//! The thread of an engine, and access to it from other threads.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ostler_contract::Thrown;
use ostler_contract::live::{Live, Pending};
use rquickjs::{AsyncContext, AsyncRuntime, Ctx};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender, WeakUnboundedSender};
use tokio::time::Instant;

use super::family::MOST_WORKERS;
use super::memory::Counted;
use super::poll::Poll;
use super::worker::Farewell;
use super::{Condition, HeapSummary, Link, Memory, Reply, Setup, Shared, State, Table, Watch, idle, turn};
use crate::options::{JsOptions, Level};
use crate::profile::Profiler;
use crate::timers::Timers;

/// A function to run on an engine's thread.
pub(crate) type Job = Box<dyn for<'js> FnOnce(&Ctx<'js>, &Rc<State>) + Send>;

/// A message to an engine's thread.
pub(crate) enum Message {
    /// Runs a job.
    Run(Job),
    /// Releases a function that is no longer referenced.
    Release(u64),
    /// Settles a promise that waits for the host.
    Settle(u64, Result<Live, Thrown>),
}

/// A handle to an engine. The engine ends when the last clone of the `Arc` around it is dropped; each function of the
/// engine that is referenced outside has such a clone.
pub struct Engine {
    inbox: UnboundedSender<Message>,
    shared: Arc<Shared>,
}

/// A sender that does not keep the engine alive.
#[derive(Clone)]
pub(crate) struct Post(WeakUnboundedSender<Message>);

impl Post {
    /// Sends a message if the engine still exists.
    pub(crate) fn send(&self, message: Message) {
        if let Some(inbox) = self.0.upgrade() {
            // The thread may have ended; then the message has no effect.
            let _ = inbox.send(message);
        }
    }

    pub(crate) fn upgrade(&self, shared: &Arc<Shared>) -> Option<Arc<Engine>> {
        self.0.upgrade().map(|inbox| Arc::new(Engine { inbox, shared: shared.clone() }))
    }
}

/// The limit of JavaScript's call depth, in bytes of stack. Deeper calls throw a `RangeError`.
const SCRIPT_STACK: usize = 2 << 20;
/// The stack of the thread, with room for native frames. Only touched pages use memory.
const THREAD_STACK: usize = 8 << 20;
/// The allocated bytes after which the cycle collector runs again.
const COLLECT_AFTER: usize = 2 << 20;

/// The interval at which [`Engine::rest`] queries the plugin.
const LOOK: Duration = Duration::from_millis(10);

impl Engine {
    /// Starts an engine. `host` is the runtime for its calls to the host.
    pub(crate) fn start(label: &str, options: Arc<JsOptions>, host: Handle) -> Result<Arc<Self>, Thrown> {
        let shared = Arc::new(Shared::new(label, options));
        let (inbox, outbox) = mpsc::unbounded_channel();
        let post = Post(inbox.downgrade());
        // The first engine always fits.
        shared.family.join(post.clone());
        spawn(outbox, &shared, post, host, None)?;
        Ok(Arc::new(Self { inbox, shared }))
    }

    /// Starts a worker of an engine and returns its number. The worker runs `internal/worker-main`.
    pub(crate) fn start_worker(
        parent: &Shared,
        setup: Setup,
        host: Handle,
    ) -> Result<(Arc<Self>, u64), Thrown> {
        let (inbox, outbox) = mpsc::unbounded_channel();
        let post = Post(inbox.downgrade());
        let number = parent.family.join(post.clone()).ok_or_else(|| {
            Thrown::new(format_args!(
                "a plugin can have {MOST_WORKERS} workers; end one before you start another"
            ))
        })?;
        let shared = Arc::new(parent.worker(number));
        if let Err(thrown) = spawn(outbox, &shared, post, host, Some(setup)) {
            parent.family.leave(number);
            return Err(thrown);
        }
        Ok((Arc::new(Self { inbox, shared }), number))
    }

    /// Ends the engine, even during a turn.
    pub(crate) fn kill(&self) {
        self.shared.kill();
        self.send(Message::Run(Box::new(|_, _| ())));
    }

    /// Returns the plugin's name for log lines and messages.
    pub fn label(&self) -> String {
        self.shared.label()
    }

    /// Changes the plugin's name, once its id is known.
    pub fn set_label(&self, label: &str) {
        self.shared.set_label(label);
    }

    /// Returns the CPU time that the plugin has used and the bytes of its values, after its last turn.
    pub fn used(&self) -> (Duration, usize) {
        self.shared.used()
    }

    /// Returns the bytes that the plugin's values use.
    pub fn memory_used(&self) -> Pending<usize> {
        self.ask(|_, state, reply| reply.send(Ok(state.watch.memory_used())))
    }

    /// Returns what starts CPU profiles of the plugin's main thread.
    pub fn profiler(&self) -> Profiler {
        self.shared.profiler.clone()
    }

    /// Returns a summary of the plugin's heap, also while the plugin does not pause.
    pub fn heap(&self) -> Pending<HeapSummary> {
        let (reply, answer) = Reply::new(self.shared.clone());
        let waiting = self.shared.heap_asked.add(reply);
        self.send(Message::Run(Box::new(move |ctx, state| {
            state.shared.heap_asked.answer(ctx, state);
            drop(waiting);
        })));
        let shared = self.shared.clone();
        Box::pin(async move {
            answer.await.unwrap_or_else(|_| Err(Thrown::new(shared.sentence("has been stopped"))))
        })
    }

    /// Returns the number of the plugin's functions that are referenced outside.
    pub fn functions_held(&self) -> Pending<usize> {
        self.ask(|ctx, state, reply| {
            ctx.run_gc();
            reply.send(Ok(state.functions.len()));
        })
    }

    /// Waits until the plugin is idle, for `limit` at most: no timer is due within that time, it does not wait for the
    /// host, and no other operation is pending, such as a request or a child process.
    pub async fn rest(&self, limit: Duration) {
        let end = Instant::now() + limit;
        let rests = async {
            loop {
                match self.ask(move |_, state, reply| state.tell_of_rest(end, reply)).await {
                    Ok(false) => tokio::time::sleep(LOOK).await,
                    Ok(true) | Err(_) => return,
                }
            }
        };
        // A plugin that never pauses does not answer.
        let _ = tokio::time::timeout_at(end, rests).await;
    }

    pub(crate) fn send(&self, message: Message) {
        // A message to an ended thread is dropped together with its reply, which then sends an error.
        let _ = self.inbox.send(message);
    }

    /// Runs a job on the engine's thread. Its position in the queue is fixed at the call.
    pub(crate) fn ask<T, F>(&self, job: F) -> Pending<T>
    where
        T: Send + 'static,
        F: for<'js> FnOnce(&Ctx<'js>, &Rc<State>, Reply<T>) + Send + 'static,
    {
        let (reply, answer) = Reply::new(self.shared.clone());
        self.send(Message::Run(Box::new(move |ctx, state| job(ctx, state, reply))));
        let shared = self.shared.clone();
        Box::pin(async move {
            answer.await.unwrap_or_else(|_| Err(Thrown::new(shared.sentence("has been stopped"))))
        })
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Engine({})", self.label())
    }
}

fn spawn(
    outbox: UnboundedReceiver<Message>,
    shared: &Arc<Shared>,
    post: Post,
    host: Handle,
    setup: Option<Setup>,
) -> Result<(), Thrown> {
    let inside = shared.clone();
    std::thread::Builder::new()
        .name(if setup.is_some() { "plugin worker" } else { "plugin" }.to_owned())
        .stack_size(THREAD_STACK)
        .spawn(move || run(outbox, &inside, post, host, setup))
        .map(drop)
        .map_err(|error| Thrown::new(format_args!("no thread could be started for it: {error}")))
}

/// Marks the engine as ended when dropped, however its thread ends.
struct Ending<'a>(&'a Shared);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.set_condition(Condition::Ended);
        self.0.family.leave(self.0.number);
    }
}

fn run(
    mut outbox: UnboundedReceiver<Message>,
    shared: &Arc<Shared>,
    post: Post,
    host: Handle,
    setup: Option<Setup>,
) {
    // Dropped last, after the engine's memory is freed.
    let farewell = setup.as_ref().map(|setup| Farewell(setup.ended.clone()));
    // Dropped before the unread messages, so that their replies contain the reason.
    let _ending = Ending(shared);
    let runtime = idle::observe(&mut tokio::runtime::Builder::new_current_thread()).enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return shared.log(Level::Error, format!("no engine could be started: {error}")),
    };
    let ran = runtime.block_on(serve(&mut outbox, shared, post, host, setup));
    if let Some(Farewell(ended)) = &farewell
        && (ran.is_err() || shared.is_killed())
    {
        // The exit code of a worker that was killed; one that ended by itself has its own code.
        ended.exit(1);
    }
    if let Err(error) = ran {
        shared.log(Level::Error, format!("no engine could be started: {error}"));
    }
}

async fn serve(
    outbox: &mut UnboundedReceiver<Message>,
    shared: &Arc<Shared>,
    post: Post,
    host: Handle,
    setup: Option<Setup>,
) -> rquickjs::Result<()> {
    let (limit, stack) = setup.as_ref().map_or((None, None), |setup| (setup.memory, setup.stack));
    let memory = Rc::new(Memory::new(limit, shared.family.clone()));
    // Dropped after the runtime.
    let _poll;
    let runtime = AsyncRuntime::new_with_alloc(Counted(memory.clone()))?;
    runtime.set_max_stack_size(stack.map_or(SCRIPT_STACK, |stack| stack.min(SCRIPT_STACK))).await;
    runtime.set_gc_threshold(COLLECT_AFTER).await;
    let watch = Rc::new(Watch::new(shared.clone(), memory));
    let context = AsyncContext::full(&runtime).await?;
    // SAFETY: JavaScript runs only during this function, and the result is dropped at its end.
    _poll = context.with(|ctx| unsafe { Poll::install(&ctx, shared, &watch) }).await;
    let state = Rc::new(State {
        shared: shared.clone(),
        host,
        post,
        watch,
        functions: Table::default(),
        promises: Table::default(),
        timers: Timers::default(),
        rejections: Default::default(),
        frames: Default::default(),
        helpers: Default::default(),
        modules: Default::default(),
        files: Rc::default(),
        starting: Default::default(),
        stalled: Default::default(),
        listener: Default::default(),
        frame_reader: Default::default(),
        callbacks: Table::default(),
        endpoints: Table::default(),
        broadcast: Default::default(),
        workers: Default::default(),
        held: Default::default(),
        link: setup.map(Link::new),
        rest_asked: Default::default(),
    });
    let tracked = state.clone();
    runtime
        .set_host_promise_rejection_tracker(Some(Box::new(move |ctx, promise, reason, heard| {
            tracked.rejections.track(&ctx, promise, reason, heard);
        })))
        .await;
    crate::modules::install(&runtime).await;
    let started = context.with(|ctx| state.install(&ctx).and_then(|()| crate::globals::install(&ctx))).await;
    if started.is_ok() && state.link.is_some() {
        turn::begin(&context, &state, "internal/worker-main");
    }
    if started.is_ok() {
        turn::drive(&context, &state, outbox).await;
    }
    shared.set_condition(Condition::Ended);
    context.with(|_| state.clear()).await;
    started
}
