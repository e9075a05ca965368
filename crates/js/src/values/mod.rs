//! Conversion of values: [`Live`](ostler_contract::Live) to JavaScript and back.

mod data;
mod from_js;
mod to_js;

use std::rc::Rc;

use rquickjs::{Ctx, Function, Object, Persistent, Result, Value};

pub(crate) use data::{data, json};
pub(crate) use from_js::{bytes as bytes_of, from_js};
pub(crate) use to_js::{bytes as bytes_to_js, to_js};

use crate::engine::State;

/// Functions of the embedded `bridge` module that the engine calls.
pub(crate) struct Helpers {
    pub(crate) error: Persistent<Function<'static>>,
    pub(crate) rpc_error: Persistent<Function<'static>>,
    pub(crate) freeze: Persistent<Function<'static>>,
    pub(crate) wait: Persistent<Function<'static>>,
}

/// Returns the helpers of this engine, loaded at the first call.
pub(crate) fn helpers<'js>(ctx: &Ctx<'js>, state: &State) -> Result<Rc<Helpers>> {
    if let Some(helpers) = &*state.helpers.borrow() {
        return Ok(helpers.clone());
    }
    let bridge: Object<'js> = crate::modules::builtin(ctx, "internal/bridge")?;
    let function = |name| -> Result<_> { Ok(Persistent::save(ctx, bridge.get::<_, Function>(name)?)) };
    let helpers = Rc::new(Helpers {
        error: function("error")?,
        rpc_error: function("rpcError")?,
        freeze: function("deepFreeze")?,
        wait: function("wait")?,
    });
    *state.helpers.borrow_mut() = Some(helpers.clone());
    Ok(helpers)
}

/// Returns the text of a string, or of a value that converts to one. A lone surrogate becomes `U+FFFD`.
pub(crate) fn text(value: &Value<'_>) -> Option<String> {
    let read = |text: &rquickjs::String<'_>| text.to_string().ok();
    if let Some(string) = value.as_string() {
        if let Some(text) = read(string) {
            return Some(text);
        }
        // The string is not well-formed; JavaScript's `toWellFormed` fixes it.
        let mend: Function = value
            .ctx()
            .globals()
            .get::<_, Object>("String")
            .ok()?
            .get::<_, Object>("prototype")
            .ok()?
            .get("toWellFormed")
            .ok()?;
        let mended: Value = mend.call((rquickjs::function::This(value.clone()),)).ok()?;
        return read(mended.as_string()?);
    }
    if value.is_undefined() || value.is_null() || value.is_symbol() {
        return None;
    }
    let to_string: Function = value.ctx().globals().get("String").ok()?;
    let string: Value = to_string.call((value.clone(),)).ok()?;
    read(string.as_string()?)
}
