//! The newest QuickJS release under the bindings that `rquickjs` 0.11 expects (D-008). The older release frees a waiting
//! `async` function if only a closure can resume it. `rquickjs` stays at 0.11 because the web streams require it. This
//! crate adapts the functions that differ between the two releases.

#![no_std]

extern crate alloc;

use alloc::boxed::Box;
use core::ptr;

pub use newest::*;

/// What a class keeps with an object; null where it is none of the class. `rquickjs` asks to find that out, and an error
/// left behind by the asking would be taken for one of the next import.
///
/// # Safety
/// `obj` is a value of a live context.
#[allow(non_snake_case, reason = "the engine's own name")]
pub unsafe fn JS_GetOpaque2(_: *mut JSContext, obj: JSValue, class_id: JSClassID) -> *mut c_void {
    // SAFETY: as the caller's.
    unsafe { JS_GetOpaque(obj, class_id) }
}

/// The bytes of an `ArrayBuffer`; null where it is none, or none any more, and never where it is an empty one. It leaves
/// no error behind either.
///
/// # Safety
/// `obj` is a value of the live context `ctx`, and `size` may be written.
#[allow(non_snake_case, reason = "the engine's own name")]
pub unsafe fn JS_GetArrayBuffer(ctx: *mut JSContext, size: *mut size_t, obj: JSValue) -> *mut u8 {
    // SAFETY: as the caller's; an error that is new is the context's own.
    unsafe {
        let failed_before = JS_HasException(ctx);
        let bytes = newest::JS_GetArrayBuffer(ctx, size, obj);
        if !bytes.is_null() || failed_before {
            return bytes;
        }
        match JS_HasException(ctx) {
            false => ptr::dangling_mut(),
            true => {
                JS_FreeValue(ctx, JS_GetException(ctx));
                bytes
            }
        }
    }
}

/// Frees the memory behind an `ArrayBuffer`.
pub type JSFreeArrayBufferDataFunc =
    Option<unsafe extern "C" fn(rt: *mut JSRuntime, opaque: *mut c_void, ptr: *mut c_void)>;

/// Who frees the memory behind an `ArrayBuffer`.
struct Memory {
    free: unsafe extern "C" fn(rt: *mut JSRuntime, opaque: *mut c_void, ptr: *mut c_void),
    opaque: *mut c_void,
    len: size_t,
    /// Whether it was moved to memory of the C library, which frees it itself.
    moved: bool,
}

/// An `ArrayBuffer` over memory of somebody else's, which `free_func` frees.
///
/// # Safety
/// `buf` is valid for `len` bytes until `free_func` is called with it and `opaque`; `ctx` is a live context.
#[allow(non_snake_case, reason = "the engine's own name")]
pub unsafe fn JS_NewArrayBuffer(
    ctx: *mut JSContext,
    buf: *mut u8,
    len: size_t,
    free_func: JSFreeArrayBufferDataFunc,
    opaque: *mut c_void,
    is_shared: bool,
) -> JSValue {
    let Some(free) = free_func else {
        // SAFETY: as the caller's; memory nobody frees is never resized either.
        return unsafe { newest::JS_NewArrayBuffer(ctx, buf, len, 0, None, opaque, is_shared) };
    };
    let memory = Box::into_raw(Box::new(Memory { free, opaque, len, moved: false }));
    // SAFETY: as the caller's; `memory` lives until the engine says that the buffer is to be freed.
    let made = unsafe { newest::JS_NewArrayBuffer(ctx, buf, len, 0, Some(resize), memory.cast(), is_shared) };
    // SAFETY: it only reads the value's tag.
    if unsafe { JS_IsException(made) } {
        // SAFETY: there is no buffer that could ask for it; the caller frees `buf`.
        drop(unsafe { Box::from_raw(memory) });
    }
    made
}

/// Frees the memory where `size` is nothing, else moves it to as much; null where it cannot be had.
unsafe extern "C" fn resize(
    rt: *mut JSRuntime,
    opaque: *mut c_void,
    block: *mut c_void,
    size: size_t,
) -> *mut c_void {
    let memory: *mut Memory = opaque.cast();
    if size == 0 {
        // SAFETY: the engine frees a buffer once, and asks for nothing of it afterwards.
        unsafe { free(rt, &Box::from_raw(memory), block) };
        return ptr::null_mut();
    }
    // SAFETY: `memory` is the buffer's own, and nobody else looks at it meanwhile.
    let memory = unsafe { &mut *memory };
    // SAFETY: any size may be asked for.
    let bigger = unsafe { libc::malloc(size as usize) };
    if bigger.is_null() {
        return bigger;
    }
    // SAFETY: both are valid for the smaller of the two sizes, and apart.
    unsafe {
        ptr::copy_nonoverlapping(block.cast::<u8>(), bigger.cast::<u8>(), memory.len.min(size) as usize);
        free(rt, memory, block);
    }
    memory.moved = true;
    memory.len = size;
    bigger
}

/// # Safety
/// `block` is what `memory` is of, and nobody uses it any more.
unsafe fn free(rt: *mut JSRuntime, memory: &Memory, block: *mut c_void) {
    // SAFETY: as the caller's.
    unsafe {
        match memory.moved {
            true => libc::free(block),
            false => (memory.free)(rt, memory.opaque, block),
        }
    }
}
