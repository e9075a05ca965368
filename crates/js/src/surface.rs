//! What there is for plugins: Node's modules and their exports, and the globals.

use std::collections::BTreeMap;
use std::sync::Arc;

use ostler_contract::Thrown;
use ostler_contract::protocol::names::SDK;
use rquickjs::object::Filter;
use rquickjs::{Ctx, Object};

use crate::engine::Engine;
use crate::errors::caught;
use crate::modules::{builtin, node_modules};
use crate::options::JsOptions;

/// What there is for plugins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surface {
    /// The modules there are, with their exports: Node's by the name behind `node:`, and the SDK.
    pub modules: BTreeMap<String, Vec<String>>,
    /// The globals there are.
    pub globals: Vec<String>,
}

/// What there is for plugins, asked of an engine.
pub async fn surface() -> Result<Surface, Thrown> {
    let host = tokio::runtime::Handle::current();
    let engine = Engine::start("surface", Arc::new(JsOptions::default()), host)?;
    let asked = engine.ask(|ctx, state, reply| {
        reply.send(read(ctx).map_err(|error| caught(ctx, state, error)));
    });
    asked.await
}

fn read(ctx: &Ctx<'_>) -> rquickjs::Result<Surface> {
    let mut modules = BTreeMap::new();
    for name in node_modules() {
        modules.insert(name.to_owned(), names(&builtin(ctx, &format!("node:{name}"))?)?);
    }
    modules.insert(SDK.to_owned(), names(&builtin(ctx, SDK)?)?);
    Ok(Surface { modules, globals: names(&ctx.globals())? })
}

fn names(object: &Object<'_>) -> rquickjs::Result<Vec<String>> {
    let mut names =
        object.own_keys::<String>(Filter::new().string()).collect::<rquickjs::Result<Vec<_>>>()?;
    names.sort_unstable();
    Ok(names)
}
