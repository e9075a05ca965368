//! Globals. They are created at their first use, because most plugins use few.

use rquickjs::function::Func;
use rquickjs::{Ctx, Function, Object, Persistent, Result};

use crate::engine::State;

/// Installs the globals of a new engine.
pub(crate) fn install(ctx: &Ctx<'_>) -> Result<()> {
    crate::modules::builtin(ctx, "internal/globals").map(drop)
}

/// Returns the native functions for `internal/globals`.
pub(crate) fn native<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    let native = Object::new(ctx.clone())?;
    native.set("load", Func::from(|ctx: Ctx<'js>, name: String| crate::modules::builtin(&ctx, &name)))?;
    native.set(
        "mapped",
        Func::from(|ctx: Ctx<'js>, stack: String| {
            let state = State::of(&ctx)?;
            Ok::<_, rquickjs::Error>(state.modules.source_maps.apply(&state, &stack))
        }),
    )?;
    native.set(
        "hasSourceMaps",
        Func::from(|ctx: Ctx<'js>| State::of(&ctx).map(|state| state.modules.source_maps.is_enabled())),
    )?;
    native.set(
        "setSourceMaps",
        Func::from(|ctx: Ctx<'js>, enabled: bool| {
            State::of(&ctx).map(|state| state.modules.source_maps.set_enabled(enabled))
        }),
    )?;
    native.set(
        "readFramesWith",
        Func::from(|ctx: Ctx<'js>, frames: Function<'js>| {
            *State::of(&ctx)?.frame_reader.borrow_mut() = Some(Persistent::save(&ctx, frames));
            Ok::<_, rquickjs::Error>(())
        }),
    )?;
    native.set("version", env!("CARGO_PKG_VERSION"))?;
    Ok(native)
}
