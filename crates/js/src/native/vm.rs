//! Scripts that run in the plugin's own context.

use std::ffi::CString;

use rquickjs::{Ctx, Object, Result, Value, qjs};

use super::natives;
use crate::errors::type_error;

/// Returns the native functions for `node:vm`.
pub(crate) fn native<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    natives! { ctx; "run": run, "check": check }
}

fn run<'js>(ctx: Ctx<'js>, code: String, name: String) -> Result<Value<'js>> {
    crate::modules::script(&ctx, code, name)
}

/// Compiles a script without running it; throws its `SyntaxError`.
fn check(ctx: Ctx<'_>, code: String, name: String) -> Result<()> {
    let length = code.len();
    let (Ok(code), Ok(name)) = (CString::new(code), CString::new(name)) else {
        return Err(type_error(&ctx, "a script and its name cannot contain U+0000"));
    };
    let flags = qjs::JS_EVAL_TYPE_GLOBAL | qjs::JS_EVAL_FLAG_COMPILE_ONLY;
    // SAFETY: the context is alive, and the text ends with a zero byte after `length` bytes. The result is freed here
    // and not used further.
    let failed = unsafe {
        let ctx = ctx.as_raw().as_ptr();
        let compiled = qjs::JS_Eval(ctx, code.as_ptr(), length as _, name.as_ptr(), flags as i32);
        let failed = qjs::JS_IsException(compiled);
        qjs::JS_FreeValue(ctx, compiled);
        failed
    };
    if failed { Err(rquickjs::Error::Exception) } else { Ok(()) }
}
