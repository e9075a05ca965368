//! Modules: the built-in ones, and those that plugins import from files and packages.

mod builtins;
mod commonjs;
mod compile;
mod kind;
mod links;
mod load;
mod names;
mod resolve;
mod source_maps;

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};

pub(crate) use builtins::node_modules;
pub(crate) use compile::script;
pub(crate) use load::source;
use rquickjs::{AsyncRuntime, Ctx, Module, Object, Persistent, Result, Value};
pub(crate) use source_maps::Loaded;

use crate::engine::State;
use crate::errors::plain_error;

/// The module state of an engine.
#[derive(Default)]
pub(crate) struct Modules {
    /// Namespaces that were requested without an `import`.
    namespaces: RefCell<HashMap<String, Persistent<Object<'static>>>>,
    pub(crate) resolvers: resolve::Resolvers,
    pub(crate) kinds: kind::Kinds,
    pub(crate) source_maps: source_maps::SourceMaps,
    /// The full names of the first declared modules of files.
    files: RefCell<BTreeSet<String>>,
}

/// The maximum number of names of modules. Errors of linking are less exact for later ones.
const MOST_FILES: usize = 10_000;

impl Modules {
    /// Remembers the name of a declared module of a file.
    fn declared(&self, name: &str) {
        let mut files = self.files.borrow_mut();
        if files.len() < MOST_FILES {
            files.insert(name.to_owned());
        }
    }

    pub(crate) fn clear(&self) {
        let namespaces = self.namespaces.take();
        drop(namespaces);
        self.source_maps.clear();
    }
}

/// Sets the engine's resolver and loader.
pub(crate) async fn install(runtime: &AsyncRuntime) {
    runtime.set_loader(resolve::Resolve, load::Load).await;
}

/// Returns the namespace of a built-in module such as `internal/bridge` or `node:events`.
pub(crate) fn builtin<'js>(ctx: &Ctx<'js>, name: &str) -> Result<Object<'js>> {
    match name.split_once('/') {
        Some(("internal" | "native", _)) => evaluate_now(ctx, &format!("{}{name}", builtins::PREFIX)),
        _ => evaluate_now(ctx, name),
    }
}

/// Evaluates a module synchronously by its full name and returns its namespace. A module with a top-level await throws.
pub(crate) fn evaluate_now<'js>(ctx: &Ctx<'js>, name: &str) -> Result<Object<'js>> {
    let state = State::of(ctx)?;
    if let Some(known) = state.modules.namespaces.borrow().get(name) {
        return known.clone().restore(ctx);
    }
    // The engine does not return modules that are already loaded, but a new module can import them.
    let asking = format!("{}now/{name}", builtins::PREFIX);
    let source = format!("export * as namespace from {};", serde_json::Value::from(name));
    let (module, evaluated) = Module::declare(ctx.clone(), asking, source)?.eval()?;
    match evaluated.result::<Value>() {
        Some(Ok(_)) => {}
        Some(Err(_)) => {
            // The error is thrown here, so the promise needs no handler.
            let reason = ctx.catch();
            state.rejections.track(ctx, evaluated.into_value(), reason.clone(), true);
            return Err(ctx.throw(reason));
        }
        None => {
            return Err(plain_error(
                ctx,
                format_args!("{name} awaits something at its top level; import() it instead of requiring it"),
            ));
        }
    }
    let namespace: Object<'js> = module.get("namespace")?;
    let kept = Persistent::save(ctx, namespace.clone());
    state.modules.namespaces.borrow_mut().insert(name.to_owned(), kept);
    Ok(namespace)
}
