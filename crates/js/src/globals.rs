//! Globals. They are created at their first use, because most plugins use few.

use rquickjs::function::Func;
use rquickjs::{Ctx, Object, Result};

/// Installs the globals of a new engine.
pub(crate) fn install(ctx: &Ctx<'_>) -> Result<()> {
    crate::modules::builtin(ctx, "internal/globals").map(drop)
}

/// Returns the native functions for `internal/globals`.
pub(crate) fn native<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    let native = Object::new(ctx.clone())?;
    native.set("load", Func::from(|ctx: Ctx<'js>, name: String| crate::modules::builtin(&ctx, &name)))?;
    native.set("version", env!("CARGO_PKG_VERSION"))?;
    Ok(native)
}
