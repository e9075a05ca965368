//! The `ArrayBuffer` of a memory: the memory itself, not a copy.
//!
//! After the memory has moved, its buffer is detached before JavaScript runs again. It cannot be transferred to another
//! `ArrayBuffer`: `internal/globals` makes `transfer` reject it.

use std::ffi::c_void;
use std::rc::Rc;

use rquickjs::{Array, Class, Ctx, Result, Value, qjs};

use super::realm::{Realm, RealmRef};

/// Keeps the memory alive while the buffer exists.
type Keeper = Rc<Realm>;

/// Returns the buffer of a memory. `buffers` are those of the realm, by the numbers of their memories.
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
    // SAFETY: the memory is at `place` until it grows, and then the buffer is detached before it is read; `keeper`
    // keeps the store alive until the buffer is freed or detached, and is released there exactly once.
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

/// Releases the keeper of the memory; `size` is 0 when the buffer ends, and no other request succeeds.
unsafe extern "C" fn release(
    _: *mut qjs::JSRuntime,
    keeper: *mut c_void,
    _: *mut c_void,
    size: qjs::size_t,
) -> *mut c_void {
    if size == 0 {
        // SAFETY: `buffer` created it from an `Rc`, and the engine calls this once with 0.
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
            // SAFETY: it is a live value of this context; a value that is not an `ArrayBuffer` is left unchanged.
            unsafe { qjs::JS_DetachArrayBuffer(ctx.as_raw().as_ptr(), known.as_raw()) };
            buffers.set(at, Value::new_undefined(ctx.clone()))?;
        }
    }
    Ok(())
}
