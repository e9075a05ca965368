//! Converts values to JavaScript.

use bytes::Bytes;
use ostler_contract::live::{Live, LiveFields};
use rquickjs::object::Property;
use rquickjs::{Array, ArrayBuffer, Ctx, Object, Result, TypedArray, Value};

use super::{data, helpers};
use crate::engine::State;
use crate::{functions, http};

/// Converts a live value to JavaScript.
pub(crate) fn to_js<'js>(ctx: &Ctx<'js>, state: &State, live: Live) -> Result<Value<'js>> {
    match live {
        Live::Undefined => Ok(Value::new_undefined(ctx.clone())),
        Live::Data(value) => data(ctx, &value),
        Live::Bytes(value) => bytes(ctx, value),
        Live::Function(function) => functions::to_js(ctx, function),
        Live::Object(fields) => object(ctx, state, fields),
        Live::List(entries) => {
            let list = Array::new(ctx.clone())?;
            for (at, entry) in entries.into_iter().enumerate() {
                list.set(at, to_js(ctx, state, entry)?)?;
            }
            Ok(list.into_value())
        }
        Live::Request(request) => http::request_to_js(ctx, *request),
        Live::Response(response) => http::response_to_js(ctx, *response),
        Live::Frozen(inner) => {
            let value = to_js(ctx, state, *inner)?;
            if !value.is_object() {
                return Ok(value);
            }
            helpers(ctx, state)?.freeze.clone().restore(ctx)?.call((value,))
        }
    }
}

fn object<'js>(ctx: &Ctx<'js>, state: &State, fields: LiveFields) -> Result<Value<'js>> {
    let object = Object::new(ctx.clone())?;
    for (name, value) in fields {
        let value = match value {
            Live::Function(function) => functions::to_js_named(ctx, function, &name)?,
            other => to_js(ctx, state, other)?,
        };
        // Defined instead of set, because a key may be `__proto__`.
        object.prop(&*name, Property::from(value).writable().configurable().enumerable())?;
    }
    Ok(object.into_value())
}

/// Returns bytes as a `Uint8Array` with its own buffer.
pub(crate) fn bytes<'js>(ctx: &Ctx<'js>, bytes: Bytes) -> Result<Value<'js>> {
    let buffer = ArrayBuffer::new_copy(ctx.clone(), bytes)?;
    TypedArray::<u8>::from_arraybuffer(buffer).map(TypedArray::into_value)
}
