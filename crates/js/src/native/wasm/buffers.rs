//! The `ArrayBuffer` of a memory: the memory itself, not a copy.
//!
//! It is detached before JavaScript runs again after the memory has moved. It cannot be moved to another `ArrayBuffer`:
//! `internal/globals` lets `transfer` refuse it.

use std::ffi::c_void;
use std::rc::Rc;

use rquickjs::{Array, Class, Ctx, Result, Value, qjs};

use super::realm::{Realm, RealmRef};

/// What keeps the memory while the buffer is there.
type Keeper = Rc<Realm>;

/// The buffer of a memory. `buffers` are those of the realm, by the numbers of their memories.
pub(super) fn buffer<'js>(
    ctx: Ctx<'js>,
    realm: Class<'js, RealmRef>,
    buffers: Array<'js>,
    number: u32,
) -> Result<Value<'js>> {
    let realm = realm.borrow().0.clone();
    let at = usize::try_from(number).unwrap_or(usize::MAX);
    let known: Value = buffers.get(at)?;
    if known.is_object() {
        return Ok(known);
    }
    let (place, length) = realm.seen(&ctx, number)?;
    let keeper = Rc::into_raw(realm).cast_mut().cast::<c_void>();
    // SAFETY: the memory is at `place` until it grows, and then the buffer is detached before anyone reads it; `keeper`
    // keeps its store until the buffer is gone or detached, and is given up there once.
    let made = unsafe {
        let raw = qjs::JS_NewArrayBuffer(
            ctx.as_raw().as_ptr(),
            place,
            length as _,
            0,
            Some(release),
            keeper,
            false,
        );
        if qjs::JS_IsException(raw) {
            drop(Keeper::from_raw(keeper.cast_const().cast()));
            return Err(rquickjs::Error::Exception);
        }
        Value::from_raw(ctx.clone(), raw)
    };
    buffers.set(at, made.clone())?;
    Ok(made)
}

/// Gives up what keeps the memory; `size` is 0 where the buffer ends, and nothing else is possible.
unsafe extern "C" fn release(
    _: *mut qjs::JSRuntime,
    keeper: *mut c_void,
    _: *mut c_void,
    size: qjs::size_t,
) -> *mut c_void {
    if size == 0 {
        // SAFETY: `buffer` made it of an `Rc`, and the engine calls this once with 0.
        drop(unsafe { Keeper::from_raw(keeper.cast_const().cast::<Realm>()) });
    }
    std::ptr::null_mut()
}

/// Detaches the buffers of memories that have moved or grown.
pub(super) fn refresh<'js>(ctx: &Ctx<'js>, realm: &Realm, buffers: &Array<'js>) -> Result<()> {
    for number in realm.moved() {
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        let known: Value = buffers.get(at)?;
        if known.is_object() {
            // SAFETY: it is a live value of this context's; one that is no `ArrayBuffer` is left alone.
            unsafe { qjs::JS_DetachArrayBuffer(ctx.as_raw().as_ptr(), known.as_raw()) };
            buffers.set(at, Value::new_undefined(ctx.clone()))?;
        }
    }
    Ok(())
}
