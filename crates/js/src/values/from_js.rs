//! Converts JavaScript values by the shape that the receiver expects. A value that does not match is converted as plain
//! data, so that the contract reports the mismatch.

use bytes::Bytes;
use ostler_contract::live::{Live, LiveFields};
use ostler_contract::shape::{FieldShape, Shape};
use rquickjs::{Ctx, Function, Object, Result, Value, qjs};
use serde_json::Value as Json;

use super::json;
use crate::engine::State;
use crate::errors::type_error;
use crate::{functions, http};

/// The maximum nesting depth of objects with shapes.
const DEPTH: usize = 64;

/// Converts a value for the receiver.
pub(crate) fn from_js<'js>(ctx: &Ctx<'js>, state: &State, value: &Value<'js>, shape: &Shape) -> Result<Live> {
    Reader { ctx, state }.read(value, shape, None, 0)
}

struct Reader<'a, 'js> {
    ctx: &'a Ctx<'js>,
    state: &'a State,
}

impl<'js> Reader<'_, 'js> {
    /// `owner` is the object from which a member was read: its functions are called on it.
    fn read(
        &self,
        value: &Value<'js>,
        shape: &Shape,
        owner: Option<&Value<'js>>,
        depth: usize,
    ) -> Result<Live> {
        if depth > DEPTH {
            return Err(type_error(self.ctx, "this value is nested too deeply to be passed to the host"));
        }
        let live = match shape {
            Shape::Nothing => Some(Live::Undefined),
            Shape::Optional(_) if value.is_undefined() => Some(Live::Undefined),
            Shape::Optional(inner) | Shape::Frozen(inner) => Some(self.read(value, inner, owner, depth)?),
            Shape::Function(function) => value
                .as_function()
                .and_then(|callable| functions::from_js(self.ctx, self.state, callable, owner, function())),
            Shape::Bytes => bytes(value).map(Live::Bytes),
            Shape::List(inner) if is_data(inner) => None,
            Shape::List(inner) => match value.as_array() {
                Some(list) => {
                    let entries =
                        list.iter::<Value>().map(|entry| self.read(&entry?, inner, None, depth + 1));
                    Some(Live::List(entries.collect::<Result<_>>()?))
                }
                None => None,
            },
            Shape::Map(inner) if is_data(inner) => None,
            Shape::Map(inner) => match plain_object(value) {
                Some(object) => Some(Live::Object(self.map(object, inner, depth)?)),
                None => None,
            },
            Shape::Object(object) => match plain_object(value) {
                Some(given) => {
                    let shape = object();
                    let given = if shape.data { self.to_json(given)? } else { given.clone() };
                    let mut fields = LiveFields::new();
                    self.fields(&given, &shape.fields, depth, &mut fields)?;
                    Some(Live::Object(fields))
                }
                None => None,
            },
            Shape::Union(union) => match plain_object(value) {
                Some(given) => self.variant(given, union(), depth)?,
                None => None,
            },
            Shape::Request => http::request_from_js(self.ctx, self.state, value)?,
            Shape::Response => http::response_from_js(self.ctx, self.state, value)?,
            Shape::Boolean
            | Shape::Integer
            | Shape::IntegerBetween { .. }
            | Shape::Number
            | Shape::Text { .. }
            | Shape::Any
            | Shape::Fields
            | Shape::Wire(_)
            | Shape::Names { .. } => None,
        };
        match live {
            Some(live) => Ok(live),
            None => Ok(json(value)?.map_or(Live::Undefined, Live::Data)),
        }
    }

    /// Returns the result of an object's `toJSON`, if it has one, as `JSON.stringify` does.
    fn to_json(&self, object: &Object<'js>) -> Result<Object<'js>> {
        let Some(says) = object.get::<_, Value>("toJSON")?.into_function() else { return Ok(object.clone()) };
        let said: Value = says.call((rquickjs::function::This(object.clone()),))?;
        Ok(said.into_object().unwrap_or_else(|| object.clone()))
    }

    /// Reads declared members by plain property access, so that getters and classes work.
    fn fields(
        &self,
        object: &Object<'js>,
        shapes: &[FieldShape],
        depth: usize,
        fields: &mut LiveFields,
    ) -> Result<()> {
        for field in shapes {
            if field.flatten {
                self.beside(object, field, shapes, depth, fields)?;
                continue;
            }
            let value: Value = object.get(field.name)?;
            if value.is_undefined() {
                continue;
            }
            let live = self.read(&value, &field.shape, Some(object.as_value()), depth + 1)?;
            if !live.is_undefined() {
                fields.push((field.name.into(), live));
            }
        }
        Ok(())
    }

    /// Reads the members in addition to the declared ones.
    fn beside(
        &self,
        object: &Object<'js>,
        field: &FieldShape,
        declared: &[FieldShape],
        depth: usize,
        fields: &mut LiveFields,
    ) -> Result<()> {
        if let Shape::Object(inner) = field.shape.core() {
            return self.fields(object, &inner().fields, depth + 1, fields);
        }
        let inner = match field.shape.core() {
            Shape::Map(inner) => inner,
            _ => &Shape::Any,
        };
        for (name, live) in self.map(object, inner, depth)? {
            if !declared.iter().any(|field| field.name == name) && !live.is_undefined() {
                fields.push((name, live));
            }
        }
        Ok(())
    }

    fn map(&self, object: &Object<'js>, inner: &Shape, depth: usize) -> Result<LiveFields> {
        let mut fields = LiveFields::new();
        for entry in object.props::<String, Value>() {
            let (name, value) = entry?;
            fields.push((name.into(), self.read(&value, inner, Some(object.as_value()), depth + 1)?));
        }
        Ok(fields)
    }

    fn variant(
        &self,
        object: &Object<'js>,
        union: &'static ostler_contract::shape::UnionShape,
        depth: usize,
    ) -> Result<Option<Live>> {
        let tag: Value = object.get(union.tag)?;
        let Some(tag) = tag.as_string().and_then(|tag| tag.to_string().ok()) else { return Ok(None) };
        let Some(variant) = union.variants.iter().find(|variant| variant.tag == tag) else { return Ok(None) };
        let mut fields: LiveFields = vec![(union.tag.into(), Live::Data(Json::String(tag)))];
        self.fields(object, &variant.fields, depth, &mut fields)?;
        Ok(Some(Live::Object(fields)))
    }
}

/// Returns whether values of this shape are plain data, without instances of the author's classes.
fn is_data(shape: &Shape) -> bool {
    match shape {
        Shape::Boolean
        | Shape::Integer
        | Shape::Number
        | Shape::Text { .. }
        | Shape::Any
        | Shape::Fields
        | Shape::Wire(_)
        | Shape::Names { .. } => true,
        Shape::Optional(inner) | Shape::Frozen(inner) | Shape::List(inner) | Shape::Map(inner) => {
            is_data(inner)
        }
        _ => false,
    }
}

/// Returns the value as an object, unless it is an array or a function.
fn plain_object<'a, 'js>(value: &'a Value<'js>) -> Option<&'a Object<'js>> {
    value.as_object().filter(|object| !object.is_array() && !object.is_function())
}

/// Returns a copy of the bytes of an `ArrayBuffer` or a view of one.
pub(crate) fn bytes(value: &Value<'_>) -> Option<Bytes> {
    let object = value.as_object()?;
    if let Some(bytes) = copied(object, |bytes| Some(bytes)) {
        return Some(bytes);
    }
    let is_view: Function = value.ctx().globals().get::<_, Object>("ArrayBuffer").ok()?.get("isView").ok()?;
    if !is_view.call::<_, bool>((object.clone(),)).ok()? {
        return None;
    }
    let buffer: Object<'_> = object.get("buffer").ok()?;
    let (start, length): (usize, usize) = (object.get("byteOffset").ok()?, object.get("byteLength").ok()?);
    copied(&buffer, |bytes| bytes.get(start..start + length))
}

/// Returns a copy of a part of an `ArrayBuffer`; `None` if the object is not one, or is detached.
fn copied(object: &Object<'_>, part: impl FnOnce(&[u8]) -> Option<&[u8]>) -> Option<Bytes> {
    let ctx = object.ctx();
    let engine = ctx.as_raw().as_ptr();
    let mut size = 0;
    // SAFETY: `object` is a value of this live context, and `size` is written to.
    let (failed_before, data) =
        unsafe { (qjs::JS_HasException(engine), qjs::JS_GetArrayBuffer(engine, &mut size, object.as_raw())) };
    if !data.is_null() {
        // SAFETY: the buffer is valid for `size` bytes until JavaScript runs, which does not happen before they are
        // copied.
        let bytes = unsafe { std::slice::from_raw_parts(data, usize::try_from(size).ok()?) };
        return part(bytes).map(Bytes::copy_from_slice);
    }
    if failed_before {
        return None;
    }
    // SAFETY: the context is live. An empty buffer has a null pointer without an exception.
    if unsafe { qjs::JS_HasException(engine) } {
        // A pending exception would be reported as one of the next import.
        drop(ctx.catch());
        return None;
    }
    part(&[]).map(Bytes::copy_from_slice)
}
