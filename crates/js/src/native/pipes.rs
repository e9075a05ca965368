//! The writing end of a pipe or a socket, as JavaScript holds it.

use std::io;
use std::rc::Rc;

use rquickjs::{Ctx, Function, Promise, Result, Value};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::Mutex;

use super::{SystemError, system_error};
use crate::values::bytes_of;

/// One end, until it is closed.
pub(super) type Slot<T> = Rc<Mutex<Option<T>>>;

/// A function that writes bytes to what is open still; `failed` says how it is told where they cannot be.
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
