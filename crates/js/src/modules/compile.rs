//! Compilation of texts that may contain U+0000, which the engine takes and the functions of its binding do not.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};

use rquickjs::context::EvalOptions;
use rquickjs::module::Declared;
use rquickjs::{Ctx, Module, Result, Value, qjs};

use crate::engine::State;

/// Evaluates with these flags; the result may be an exception.
///
/// # Safety
/// The context is alive and used by this thread.
unsafe fn evaluate(ctx: *mut qjs::JSContext, mut text: Vec<u8>, name: &CStr, flags: u32) -> qjs::JSValue {
    let length = text.len();
    // The engine reads one byte after the text.
    text.push(0);
    // SAFETY: the text has `length` bytes and a zero byte after them; the context is alive, as the caller says.
    unsafe { qjs::JS_Eval(ctx, text.as_ptr().cast(), length as _, name.as_ptr(), flags as i32) }
}

/// Declares a module.
pub(super) fn declare<'js>(ctx: &Ctx<'js>, name: &str, text: String) -> Result<Module<'js, Declared>> {
    State::of(ctx)?.shared.family.loaded.add(name);
    if !text.contains('\0') {
        return Module::declare(ctx.clone(), name, text);
    }
    thread_local! {
        static TEXT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    unsafe extern "C" fn compiled(ctx: *mut qjs::JSContext, name: *const c_char) -> *mut qjs::JSModuleDef {
        let flags = qjs::JS_EVAL_TYPE_MODULE | qjs::JS_EVAL_FLAG_STRICT | qjs::JS_EVAL_FLAG_COMPILE_ONLY;
        // SAFETY: the binding calls this at once, with its own context and a name that ends with a zero byte. A module
        // belongs to its context, so that its value needs no release.
        unsafe {
            let module = evaluate(ctx, TEXT.take(), CStr::from_ptr(name), flags);
            if qjs::JS_IsException(module) {
                std::ptr::null_mut()
            } else {
                qjs::JS_VALUE_GET_PTR(module).cast()
            }
        }
    }
    TEXT.set(text.into_bytes());
    // SAFETY: the function returns a module of the context, or null with a pending exception.
    unsafe { Module::from_load_fn(ctx.clone(), name, compiled) }
}

/// Evaluates a script in the global scope, in sloppy mode.
pub(crate) fn script<'js>(ctx: &Ctx<'js>, text: String, name: String) -> Result<Value<'js>> {
    State::of(ctx)?.shared.family.loaded.add(&name);
    if text.contains('\0')
        && let Ok(name) = CString::new(name.as_str())
    {
        // SAFETY: the context is alive, and the result is owned by the returned value.
        return unsafe {
            let value = evaluate(ctx.as_raw().as_ptr(), text.into_bytes(), &name, qjs::JS_EVAL_TYPE_GLOBAL);
            if qjs::JS_IsException(value) {
                Err(rquickjs::Error::Exception)
            } else {
                Ok(Value::from_raw(ctx.clone(), value))
            }
        };
    }
    let mut options = EvalOptions::default();
    options.strict = false;
    options.filename = Some(name);
    ctx.eval_with_options(text, options)
}
