//! The writing end of a pipe or a socket, for JavaScript.

use std::io;
use std::rc::Rc;

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
