//! Imports plugin modules, each into a separate engine.

use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use ostler_contract::live::Pending;
use ostler_contract::shape::{FunctionShape, Shape};
use ostler_contract::{Module, PluginHost, PluginSource, Thrown, Value};
use rquickjs::{Ctx, Module as JsModule, Object, Result};

use crate::engine::{Engine, State};
use crate::functions::{self, JsFunction};
use crate::options::JsOptions;
use crate::values;

/// Imports JavaScript and TypeScript plugins, each into a separate engine.
#[derive(Debug, Clone)]
pub struct JsSource {
    options: Arc<JsOptions>,
}

impl JsSource {
    /// Creates a source whose engines use these options.
    pub fn new(options: JsOptions) -> Self {
        Self { options: Arc::new(options) }
    }
}

impl Default for JsSource {
    fn default() -> Self {
        Self::new(JsOptions::default())
    }
}

impl PluginSource for JsSource {
    fn import(&self, path: &Path, label: &str) -> Pending<Module> {
        let Ok(host) = tokio::runtime::Handle::try_current() else {
            return ostler_contract::live::ready(Err(Thrown::new("plugins are imported on a tokio runtime")));
        };
        let engine = match Engine::start(label, self.options.clone(), host) {
            Ok(engine) => engine,
            Err(thrown) => return ostler_contract::live::ready(Err(thrown)),
        };
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let imported = import(&engine, &path, read_exports);
        Box::pin(async move { Ok(into_module(imported.await.map_err(with_place)?, engine)) })
    }
}

/// Imports a module and converts its namespace. Fails as soon as nothing is left that could complete the import.
pub(crate) fn import<T, F>(engine: &Engine, path: &Path, convert: F) -> Pending<T>
where
    T: Send + 'static,
    F: for<'a> Fn(&Ctx<'a>, &Rc<State>, &rquickjs::Value<'a>) -> Result<T> + Send + 'static,
{
    let path = path.to_string_lossy().into_owned();
    engine.ask(move |ctx, state, reply| match JsModule::import(ctx, path) {
        Ok(promise) => {
            let reply = functions::Starting::begin(state, reply, "awaits at its top level");
            functions::answer(ctx, state, promise.into_value(), reply, convert);
        }
        Err(error) => reply.send(Err(crate::errors::caught(ctx, state, error))),
    })
}

/// The exports of a module, read on its engine's thread.
struct Exports {
    name: Option<Value>,
    title: Option<String>,
    defaults: Option<Value>,
    options_schema: Option<Value>,
    apply: Option<JsFunction>,
}

fn read_exports<'js>(ctx: &Ctx<'js>, state: &Rc<State>, namespace: &rquickjs::Value<'js>) -> Result<Exports> {
    let namespace: Object<'js> = namespace.get()?;
    let data = |name: &str| -> Result<Option<Value>> {
        match namespace.contains_key(name)? {
            true => values::json(&namespace.get::<_, rquickjs::Value>(name)?),
            false => Ok(None),
        }
    };
    let apply: rquickjs::Value<'js> = namespace.get("apply")?;
    Ok(Exports {
        name: data("name")?,
        title: data("title")?.and_then(|title| title.as_str().map(str::to_owned)),
        defaults: data("defaults")?,
        options_schema: data("optionsSchema")?,
        apply: apply.as_function().and_then(|apply| functions::hold(ctx, state, apply, None, apply_shape())),
    })
}

/// Returns the shape of `apply(host, options)`, which returns nothing.
fn apply_shape() -> &'static FunctionShape {
    static SHAPE: OnceLock<FunctionShape> = OnceLock::new();
    SHAPE.get_or_init(|| FunctionShape {
        params: vec![Shape::Frozen(Box::new(Shape::Any)), Shape::Fields],
        returns: Shape::Nothing,
        now: false,
    })
}

fn into_module(exports: Exports, engine: Arc<Engine>) -> Module {
    let kept = engine.clone();
    let apply = exports.apply.map(|apply| -> Arc<Apply> {
        Arc::new(move |host: PluginHost, options| {
            // From here on the plugin's id is known.
            engine.set_label(host.id());
            let applied =
                apply.call_at_start(vec![host.into_live(), options.into_live()], "awaits in its apply");
            Box::pin(async move { applied.await.map(drop) })
        })
    });
    Module {
        name: exports.name,
        title: exports.title,
        defaults: exports.defaults,
        options_schema: exports.options_schema,
        apply,
        keep: Some(kept),
    }
}

type Apply = dyn Fn(PluginHost, ostler_contract::Options) -> Pending<()> + Send + Sync;

/// Adds the position of a syntax error to its message, because it has no other stack frame.
fn with_place(mut thrown: Thrown) -> Thrown {
    if thrown.name == "SyntaxError"
        && let Some(stack) = &thrown.stack
        && let Some(place) = stack.lines().next().and_then(|line| line.trim().strip_prefix("at "))
        && !place.contains("ostler:")
        && !thrown.message.ends_with(')')
    {
        thrown.message = format!("{} ({place})", thrown.message);
    }
    thrown
}
