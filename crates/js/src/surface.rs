//! The API surface for plugins: Node's modules with their exports, and the globals.

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

/// The API surface for plugins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surface {
    /// The available modules with their exports: Node's by the name after `node:`, and the SDK.
    pub modules: BTreeMap<String, Vec<String>>,
    /// The exports that can be imported but only throw an error when called, because they are not supported.
    pub absent: BTreeMap<String, Vec<String>>,
    /// The exports that can be imported but are `undefined`, so that packages that ask for them do without.
    pub undefined: BTreeMap<String, Vec<String>>,
    /// The available globals.
    pub globals: Vec<String>,
    /// The supported algorithms of `node:crypto`, by kind.
    pub algorithms: Vec<(String, Vec<String>)>,
    /// The supported algorithms of `crypto.subtle`, by operation.
    pub subtle: Vec<(String, Vec<String>)>,
}

/// Returns the API surface, as an engine reports it.
pub async fn surface() -> Result<Surface, Thrown> {
    let host = tokio::runtime::Handle::current();
    let engine = Engine::start("surface", Arc::new(JsOptions::default()), host)?;
    let asked = engine.ask(|ctx, state, reply| {
        reply.send(read(ctx).map_err(|error| caught(ctx, state, error)));
    });
    asked.await
}

fn read(ctx: &Ctx<'_>) -> rquickjs::Result<Surface> {
    let (mut modules, mut absent, mut undefined) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let is_absent: Function = builtin(ctx, "internal/absent")?.get("isAbsent")?;
    for name in node_modules() {
        let module = builtin(ctx, &format!("node:{name}"))?;
        let exports = names(&module)?;
        let (mut throwing, mut lacking) = (Vec::new(), Vec::new());
        for export in &exports {
            let value: Value = module.get(export)?;
            if value.is_undefined() {
                lacking.push(export.clone());
            } else if is_absent.call((value,))? {
                throwing.push(export.clone());
            }
        }
        for (list, names) in [(&mut absent, throwing), (&mut undefined, lacking)] {
            if !names.is_empty() {
                list.insert(name.to_owned(), names);
            }
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
    Ok(Surface { modules, absent, undefined, globals: names(&ctx.globals())?, algorithms, subtle })
}

fn names(object: &Object<'_>) -> rquickjs::Result<Vec<String>> {
    let mut names =
        object.own_keys::<String>(Filter::new().string()).collect::<rquickjs::Result<Vec<_>>>()?;
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod page;
