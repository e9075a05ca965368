//! Modules: compilation, imports and exports.

use rquickjs::{Array, Class, Ctx, Object, Result, Value};
use wasmi::{ExternType, Module};

use super::values::type_name;
use super::{binary, engine, held};
use crate::engine::State;
use crate::native::crypto::given;
use crate::values::bytes_to_js;

/// The approximate memory that the interpreter retains per byte of a module until the plugin ends.
const KEPT: usize = 8;

held!(Compiled, Source, "WebAssemblyCode");

pub(super) struct Source {
    pub(super) module: Module,
    pub(super) exports: Vec<String>,
    pub(super) starts: bool,
}

/// Compiles a module: returns an object with `code`, `imports`, `exports` and `custom`, or the error message.
pub(super) fn compile<'js>(ctx: Ctx<'js>, bytes: Value<'js>) -> Result<Value<'js>> {
    let bytes = given(&ctx, &bytes)?;
    let memory = State::of(&ctx)?.watch.memory();
    if !memory.charge(bytes.len().saturating_mul(KEPT)) {
        return said(&ctx, "out of memory");
    }
    let outline = binary::outline(&bytes);
    let starts = outline.rewritten.is_some();
    let source = outline.rewritten.as_deref().unwrap_or(&bytes);
    let module = match Module::new(&engine(), source) {
        Ok(module) => module,
        Err(error) => {
            memory.discharge(bytes.len().saturating_mul(KEPT));
            return said(&ctx, &error.to_string());
        }
    };
    let made = Object::new(ctx.clone())?;
    let imports = Array::new(ctx.clone())?;
    for (at, import) in module.imports().enumerate() {
        let row = described(&ctx, import.ty())?;
        row.set("module", import.module())?;
        row.set("name", import.name())?;
        imports.set(at, row)?;
    }
    let exports = Array::new(ctx.clone())?;
    for (at, name) in outline.exports.iter().enumerate() {
        if let Some(kind) = module.get_export(name) {
            let row = described(&ctx, &kind)?;
            row.set("name", name.as_str())?;
            exports.set(at, row)?;
        }
    }
    let custom = Array::new(ctx.clone())?;
    for (at, section) in module.custom_sections().enumerate() {
        let row = Array::new(ctx.clone())?;
        row.set(0, section.name())?;
        row.set(1, bytes_to_js(&ctx, section.data().to_vec().into())?)?;
        custom.set(at, row)?;
    }
    made.set("imports", imports)?;
    made.set("exports", exports)?;
    made.set("custom", custom)?;
    let code = Compiled(std::rc::Rc::new(Source { module, exports: outline.exports, starts }));
    made.set("code", Class::instance(ctx, code)?)?;
    Ok(made.into_value())
}

fn said<'js>(ctx: &Ctx<'js>, words: &str) -> Result<Value<'js>> {
    rquickjs::String::from_str(ctx.clone(), words).map(rquickjs::String::into_value)
}

fn described<'js>(ctx: &Ctx<'js>, kind: &ExternType) -> Result<Object<'js>> {
    let row = Object::new(ctx.clone())?;
    match kind {
        ExternType::Func(kind) => {
            row.set("kind", "function")?;
            row.set("parameters", kind.params().iter().map(|kind| type_name(*kind)).collect::<Vec<_>>())?;
            row.set("results", kind.results().iter().map(|kind| type_name(*kind)).collect::<Vec<_>>())?;
        }
        ExternType::Memory(_) => row.set("kind", "memory")?,
        ExternType::Table(kind) => {
            row.set("kind", "table")?;
            row.set("value", type_name(kind.element().into()))?;
        }
        ExternType::Global(kind) => {
            row.set("kind", "global")?;
            row.set("value", type_name(kind.content()))?;
            row.set("mutable", kind.mutability().is_mut())?;
        }
    }
    Ok(row)
}
