//! Turns: each runs a message, a timer or a future, then all its promise jobs, then reports uncaught errors.

use std::future::{Future as _, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use futures::FutureExt;
use rquickjs::{AsyncContext, Ctx, Error, qjs};
use tokio::sync::mpsc::UnboundedReceiver;

use super::{Message, State};
use crate::options::Level;
use crate::{errors, functions};

/// The number of rounds after which the thread polls its sockets and timers, even if more work is queued.
const ROUNDS: usize = 32;
/// The number of messages per round before timers are checked.
const MESSAGES: usize = 32;

/// Serves an engine until all senders are dropped.
pub(super) async fn drive(
    context: &AsyncContext,
    state: &Rc<State>,
    outbox: &mut UnboundedReceiver<Message>,
) {
    poll_fn(|waker| {
        for _ in 0..ROUNDS {
            if state.shared.is_killed() {
                return Poll::Ready(());
            }
            let mut worked = false;
            for _ in 0..MESSAGES {
                match outbox.poll_recv(waker) {
                    Poll::Ready(Some(message)) => turn(context, state, |ctx| deliver(ctx, state, message)),
                    Poll::Ready(None) => return Poll::Ready(()),
                    Poll::Pending => break,
                }
                worked = true;
            }
            for due in state.timers.poll_due(waker) {
                turn(context, state, |ctx| state.timers.fire(ctx, state, due));
                worked = true;
            }
            worked |= poll_futures(context, state, waker);
            if !worked {
                let runtime = context.runtime();
                let busy = || runtime.is_job_pending().now_or_never().unwrap_or(true);
                if state.can_stall(busy) {
                    let mut failed = false;
                    turn(context, state, |ctx| failed = state.fail_stalled(ctx));
                    if failed {
                        continue;
                    }
                }
                state.give_up_start(busy);
                state.answer_rest(busy);
                if let Some(link) = &state.link
                    && !state.is_held(busy)
                {
                    let mut went_on = false;
                    turn(context, state, |ctx| went_on = link.end(ctx, state));
                    if went_on {
                        continue;
                    }
                    return Poll::Ready(());
                }
                return Poll::Pending;
            }
        }
        waker.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Evaluates an embedded module as the first turn.
pub(super) fn begin(context: &AsyncContext, state: &Rc<State>, module: &str) {
    turn(context, state, |ctx| {
        if let Err(error) = crate::modules::builtin(ctx, module) {
            errors::report_uncaught(ctx, state, error);
        }
    });
}

fn deliver(ctx: &Ctx<'_>, state: &Rc<State>, message: Message) {
    match message {
        Message::Run(job) => job(ctx, state),
        Message::Release(id) => drop(state.functions.remove(id)),
        Message::Settle(id, outcome) => functions::settle(ctx, state, id, outcome),
    }
}

/// Polls the futures that native code spawned. Returns whether one made progress.
fn poll_futures(context: &AsyncContext, state: &Rc<State>, waker: &mut Context<'_>) -> bool {
    state.watch.start();
    let polled = catch_unwind(AssertUnwindSafe(|| pin!(context.runtime().execute_pending_job()).poll(waker)));
    let worked = match polled {
        Ok(Poll::Ready(Ok(worked))) => worked,
        // The scheduler has woken us again.
        Ok(Poll::Pending) | Ok(Poll::Ready(Err(_))) => true,
        Err(panic) => {
            report_panic(state, &*panic);
            true
        }
    };
    if worked {
        turn(context, state, |_| ());
    } else {
        state.watch.stop();
    }
    worked
}

/// Runs one turn. A panic ends only this turn.
fn turn(context: &AsyncContext, state: &Rc<State>, run: impl for<'js> FnOnce(&Ctx<'js>)) {
    let ran = catch_unwind(AssertUnwindSafe(|| {
        // The lock is free because nothing else runs on this thread.
        context
            .with(|ctx| {
                state.watch.start();
                run(&ctx);
                finish(&ctx, state);
            })
            .now_or_never()
    }));
    state.watch.stop();
    if let Err(panic) = ran {
        report_panic(state, &*panic);
    }
}

fn finish(ctx: &Ctx<'_>, state: &Rc<State>) {
    loop {
        state.timers.run_ticks(ctx, state);
        run_jobs(ctx, state);
        if state.timers.has_ticks() {
            continue;
        }
        let unheard = state.rejections.take();
        if unheard.is_empty() {
            break;
        }
        for rejection in unheard {
            errors::report_rejection(ctx, state, rejection);
        }
    }
    if state.watch.interrupted().is_some() {
        // Promises of the interrupted code can no longer be settled. The collection drops them, so that their waiters
        // receive an error now.
        ctx.run_gc();
    }
}

/// Runs all promise jobs.
fn run_jobs(ctx: &Ctx<'_>, state: &Rc<State>) {
    loop {
        state.frames.between();
        let mut within = std::ptr::null_mut();
        // SAFETY: `ctx` proves that the runtime is alive and locked by this thread; `within` is only written to.
        let done =
            unsafe { qjs::JS_ExecutePendingJob(qjs::JS_GetRuntime(ctx.as_raw().as_ptr()), &mut within) };
        match done {
            0 => return state.frames.clear(),
            1.. => {}
            // Promise jobs catch thrown errors; only an uncatchable one remains.
            _ => errors::report_uncaught(ctx, state, Error::Exception),
        }
    }
}

fn report_panic(state: &State, panic: &(dyn std::any::Any + Send)) {
    let words = panic.downcast_ref::<&str>().map(|words| (*words).to_owned());
    let words = words.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    state.shared.log(Level::Error, format!("its engine failed: {words}"));
}
