//! The writing end of a pipe or a socket, for JavaScript.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use rquickjs::convert::List;
use rquickjs::{Ctx, Function, Promise, Result, Value};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::Mutex;

use super::{SystemError, system_error};
use crate::values::bytes_of;

/// The writing end, until it is closed.
pub(super) type Slot<T> = Rc<Mutex<Option<T>>>;

/// Returns a function that writes bytes while the end is open; `failed` converts a write error.
pub(super) fn write_to<'js, W>(
    ctx: &Ctx<'js>,
    slot: Slot<W>,
    failed: fn(io::Error) -> SystemError,
) -> Result<Function<'js>>
where
    W: AsyncWrite + Unpin + 'static,
{
    Function::new(ctx.clone(), move |ctx: Ctx<'js>, bytes: Value<'js>| {
        let bytes = bytes_of(&bytes).unwrap_or_default();
        let (slot, inside) = (slot.clone(), ctx.clone());
        Promise::wrap_future(&ctx, async move {
            let done = match &mut *slot.lock().await {
                Some(open) => match open.write_all(&bytes).await {
                    Ok(()) => open.flush().await,
                    failed => failed,
                },
                None => Err(io::Error::from(io::ErrorKind::BrokenPipe)),
            };
            done.map_err(|error| system_error(&inside, failed(error)))
        })
    })
}

/// Returns a function that writes what the end takes at once: how many bytes that were, and whether they are on their way.
/// JavaScript waits for the rest with the function of [`write_to`], and calls neither while it waits.
pub(super) fn write_now_to<'js, W>(
    ctx: &Ctx<'js>,
    slot: Slot<W>,
    failed: fn(io::Error) -> SystemError,
) -> Result<Function<'js>>
where
    W: AsyncWrite + Unpin + 'static,
{
    Function::new(ctx.clone(), move |ctx: Ctx<'js>, bytes: Value<'js>| {
        let bytes = bytes_of(&bytes).unwrap_or_default();
        let Ok(mut held) = slot.try_lock() else { return Ok(List((0, false))) };
        let Some(open) = &mut *held else { return Ok(List((0, false))) };
        // Whoever waits for the rest polls again and is woken then.
        let mut unwoken = Context::from_waker(Waker::noop());
        let mut sent = 0;
        while sent < bytes.len() {
            match Pin::new(&mut *open).poll_write(&mut unwoken, &bytes[sent..]) {
                Poll::Ready(Ok(0)) | Poll::Pending => return Ok(List((sent, false))),
                Poll::Ready(Ok(more)) => sent += more,
                Poll::Ready(Err(error)) => return Err(system_error(&ctx, failed(error))),
            }
        }
        match Pin::new(open).poll_flush(&mut unwoken) {
            Poll::Ready(Ok(())) => Ok(List((sent, true))),
            Poll::Pending => Ok(List((sent, false))),
            Poll::Ready(Err(error)) => Err(system_error(&ctx, failed(error))),
        }
    })
}
