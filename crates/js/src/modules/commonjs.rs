//! CommonJS: the parts that need native code, which are files, resolution and compilation. The rest is in
//! `std/internal/commonjs.js`.

use std::path::Path;

use rquickjs::{Array, Ctx, Function, IntoJs, Object, Result, Value};

use super::kind::Kind;
use super::resolve::{self, How};
use super::{evaluate_now, load};
use crate::engine::State;
use crate::errors::plain_error;

/// The code before a CommonJS file, on the file's first line.
pub(super) const WRAPPER: &str = "(function (exports, require, module, __filename, __dirname) {";

/// Returns the exports of a CommonJS file. The file runs at the first call.
pub(super) fn load<'js>(ctx: &Ctx<'js>, path: &str) -> Result<Value<'js>> {
    let commonjs = super::builtin(ctx, "internal/commonjs")?;
    commonjs.get::<_, Function>("load")?.call((path,))
}

/// Returns the native functions for `internal/commonjs`.
pub(super) fn native<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    let native = Object::new(ctx.clone())?;
    native.set("resolve", Function::new(ctx.clone(), specify))?;
    native.set("read", Function::new(ctx.clone(), read))?;
    native.set("compile", Function::new(ctx.clone(), compile))?;
    native
        .set("module", Function::new(ctx.clone(), |ctx: Ctx<'js>, name: String| evaluate_now(&ctx, &name)))?;
    Ok(native)
}

fn specify(ctx: Ctx<'_>, specifier: String, from: String) -> Result<String> {
    let state = State::of(&ctx)?;
    resolve::specify(&state.modules.resolvers, &from, &specifier, How::Require).map_err(|why| {
        let code = if why.code == "ERR_MODULE_NOT_FOUND" { "MODULE_NOT_FOUND" } else { why.code };
        let error = resolve::throw(&ctx, why);
        let value = ctx.catch();
        if let Some(thrown) = value.as_object() {
            // Packages that try several modules check the code.
            let _ = thrown.set("code", code);
        }
        drop(error);
        ctx.throw(value)
    })
}

/// Returns the kind of a file and its text.
fn read<'js>(ctx: Ctx<'js>, path: String) -> Result<Array<'js>> {
    let path = Path::new(&path);
    match Kind::by_ending(path) {
        Some(Kind::Addon) => return Err(load::addon(&ctx, &path.to_string_lossy())),
        Some(Kind::Wasm) => {
            return Err(plain_error(
                &ctx,
                format_args!(
                    "{} is a WebAssembly module, which require cannot load; import it",
                    path.display()
                ),
            ));
        }
        _ => {}
    }
    let source = load::read(&ctx, path)?;
    let (kind, source) = match State::of(&ctx)?.modules.kinds.of(path, &source) {
        Kind::Module => ("module", String::new()),
        Kind::Json => ("json", source),
        Kind::CommonJs | Kind::Addon | Kind::Wasm => ("commonjs", load::strip(&ctx, path, source)?),
    };
    let answer = Array::new(ctx.clone())?;
    answer.set(0, kind.into_js(&ctx)?)?;
    answer.set(1, source.into_js(&ctx)?)?;
    Ok(answer)
}

/// Compiles the function around a CommonJS file. It starts on the file's first line, so that line numbers are
/// unchanged.
fn compile<'js>(ctx: Ctx<'js>, source: String, path: String) -> Result<Value<'js>> {
    super::script(&ctx, format!("{WRAPPER}{source}\n}})"), path)
}
