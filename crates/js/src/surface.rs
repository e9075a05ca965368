//! What there is for plugins: Node's modules and their exports, and the globals.

use std::collections::BTreeMap;
use std::sync::Arc;

use ostler_contract::Thrown;
use ostler_contract::protocol::names::SDK;
use rquickjs::object::Filter;
use rquickjs::{Ctx, Function, Object, Value};

use crate::engine::Engine;
use crate::errors::caught;
use crate::modules::{builtin, node_modules};
use crate::options::JsOptions;

/// What there is for plugins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surface {
    /// The modules there are, with their exports: Node's by the name behind `node:`, and the SDK.
    pub modules: BTreeMap<String, Vec<String>>,
    /// Those of the exports that may be imported, and say when they are called that they are not there.
    pub absent: BTreeMap<String, Vec<String>>,
    /// The globals there are.
    pub globals: Vec<String>,
    /// What there is of the algorithms of `node:crypto`, by kind.
    pub algorithms: Vec<(String, Vec<String>)>,
    /// What there is of the algorithms of `crypto.subtle`, by operation.
    pub subtle: Vec<(String, Vec<String>)>,
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
    let (mut modules, mut absent) = (BTreeMap::new(), BTreeMap::new());
    let is_absent: Function = builtin(ctx, "internal/absent")?.get("isAbsent")?;
    for name in node_modules() {
        let module = builtin(ctx, &format!("node:{name}"))?;
        let exports = names(&module)?;
        let mut lacking = Vec::new();
        for export in &exports {
            if is_absent.call((module.get::<_, Value>(export)?,))? {
                lacking.push(export.clone());
            }
        }
        if !lacking.is_empty() {
            absent.insert(name.to_owned(), lacking);
        }
        modules.insert(name.to_owned(), exports);
    }
    modules.insert(SDK.to_owned(), names(&builtin(ctx, SDK)?)?);
    let crypto = builtin(ctx, "node:crypto")?;
    let mut algorithms = Vec::new();
    for (kind, ask) in [("Digests", "getHashes"), ("Ciphers", "getCiphers"), ("Curves", "getCurves")] {
        algorithms.push((kind.to_owned(), crypto.get::<_, Function>(ask)?.call(())?));
    }
    let supported: Object = builtin(ctx, "internal/webcrypto")?.get("ALGORITHMS")?;
    let subtle = supported.props().collect::<rquickjs::Result<_>>()?;
    Ok(Surface { modules, absent, globals: names(&ctx.globals())?, algorithms, subtle })
}

fn names(object: &Object<'_>) -> rquickjs::Result<Vec<String>> {
    let mut names =
        object.own_keys::<String>(Filter::new().string()).collect::<rquickjs::Result<Vec<_>>>()?;
    names.sort_unstable();
    Ok(names)
}
