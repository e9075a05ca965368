//! Conversion of values between JavaScript and the interpreter. References are converted to numbers of their realm.

use rquickjs::{BigInt, Ctx, IntoJs as _, Result, Value};
use wasmi::{ExternRef, F32, F64, Func, Nullable, RefType, Val, ValType};

use super::realm::Realm;
use crate::errors::type_error;

pub(super) fn type_name(kind: ValType) -> &'static str {
    match kind {
        ValType::I32 => "i32",
        ValType::I64 => "i64",
        ValType::F32 => "f32",
        ValType::F64 => "f64",
        ValType::V128 => "v128",
        ValType::FuncRef => "anyfunc",
        ValType::ExternRef => "externref",
    }
}

pub(super) fn type_of(name: &str) -> Option<ValType> {
    Some(match name {
        "i32" => ValType::I32,
        "i64" => ValType::I64,
        "f32" => ValType::F32,
        "f64" => ValType::F64,
        "anyfunc" | "funcref" => ValType::FuncRef,
        "externref" => ValType::ExternRef,
        _ => return None,
    })
}

pub(super) fn ref_type(kind: ValType) -> Option<RefType> {
    match kind {
        ValType::FuncRef => Some(RefType::Func),
        ValType::ExternRef => Some(RefType::Extern),
        _ => None,
    }
}

impl Realm {
    /// Converts a value for JavaScript.
    pub(super) fn to_js<'js>(&self, ctx: &Ctx<'js>, value: &Val) -> Result<Value<'js>> {
        match value {
            Val::I32(value) => value.into_js(ctx),
            Val::I64(value) => BigInt::from_i64(ctx.clone(), *value)?.into_js(ctx),
            Val::F32(value) => f64::from(value.to_float()).into_js(ctx),
            Val::F64(value) => value.to_float().into_js(ctx),
            Val::FuncRef(Nullable::Val(function)) => self.number_of(*function).into_js(ctx),
            Val::ExternRef(Nullable::Val(object)) => self.extern_number(*object).into_js(ctx),
            Val::FuncRef(Nullable::Null) | Val::ExternRef(Nullable::Null) => Ok(Value::new_null(ctx.clone())),
            Val::V128(_) => Err(type_error(ctx, "a v128 cannot be handed to JavaScript")),
        }
    }

    /// Converts a value from JavaScript, which has already converted it to the type.
    pub(super) fn of_js<'js>(&self, ctx: &Ctx<'js>, value: &Value<'js>, kind: ValType) -> Result<Val> {
        Ok(match kind {
            ValType::I32 => Val::I32(value.as_int().unwrap_or_default()),
            ValType::I64 => match value.as_big_int() {
                Some(value) => Val::I64(value.clone().to_i64()?),
                None => return Err(type_error(ctx, "an i64 is a BigInt")),
            },
            #[expect(clippy::cast_possible_truncation, reason = "an f32 is what it is rounded to")]
            ValType::F32 => Val::F32(F32::from_float(value.as_number().unwrap_or(f64::NAN) as f32)),
            ValType::F64 => Val::F64(F64::from_float(value.as_number().unwrap_or(f64::NAN))),
            ValType::FuncRef => Val::FuncRef(self.function(ctx, value)?),
            ValType::ExternRef => Val::ExternRef(self.object(value)),
            ValType::V128 => return Err(type_error(ctx, "a v128 cannot come from JavaScript")),
        })
    }

    fn function<'js>(&self, ctx: &Ctx<'js>, value: &Value<'js>) -> Result<Nullable<Func>> {
        let Some(number) = value.as_int() else { return Ok(Nullable::Null) };
        self.func(ctx, u32::try_from(number).unwrap_or(u32::MAX)).map(Nullable::Val)
    }

    fn object(&self, value: &Value<'_>) -> Nullable<ExternRef> {
        let Some(number) = value.as_int().and_then(|number| u32::try_from(number).ok()) else {
            return Nullable::Null;
        };
        Nullable::Val(self.extern_ref(number))
    }
}
