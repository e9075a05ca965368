//! A plugin before it is loaded: a module that can be asked its name and applied.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use ostler_protocol::JsonObject;
use ostler_protocol::names::HOST;
use serde_json::Value;

use crate::host::PluginHost;
use crate::live::{Live, Pending};
use crate::secret::Secret;
use crate::thrown::Thrown;

/// The conditions under which a package's `exports` are read, by a manifest's reader and by an `import` alike.
pub const IMPORT_CONDITIONS: [&str; 5] = [HOST, "node", "import", "module-sync", "default"];

type Apply = dyn Fn(PluginHost, Options) -> BoxFuture<'static, Result<(), Thrown>> + Send + Sync;

/// The options `apply` is handed: the plugin's own copy, of its schema's types. A node marked `secretAtUse`
/// stands as it was written and is frozen on the JavaScript side.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    values: JsonObject,
    frozen: Vec<String>,
    secrets: Secrets,
    left_out: Vec<LeftOutNode>,
}

/// A node of a plugin's options that was left out, as its schema allows for it, with a problem of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftOutNode {
    /// The names and positions that lead to it.
    pub at: Vec<String>,
    /// The same as text: `agents.one`.
    pub place: String,
    /// What is wrong.
    pub why: String,
    /// What to do.
    pub remedy: String,
}

type Secrets = Secret<Vec<String>>;

impl From<JsonObject> for Options {
    fn from(values: JsonObject) -> Self {
        Self { values, ..Self::default() }
    }
}

impl Options {
    /// Freezes the nodes at these JSON pointers.
    #[must_use]
    pub fn frozen(mut self, at: Vec<String>) -> Self {
        self.frozen = at;
        self
    }

    /// Tells which texts among the values were read from the vault.
    #[must_use]
    pub fn with_secrets(mut self, secrets: Vec<String>) -> Self {
        self.secrets = Secret::new(secrets);
        self
    }

    /// The texts among the values that were read from the vault.
    pub fn secrets(&self) -> &[String] {
        self.secrets.reveal()
    }

    /// Tells which nodes were left out.
    #[must_use]
    pub fn without(mut self, left_out: Vec<LeftOutNode>) -> Self {
        self.left_out = left_out;
        self
    }

    /// The nodes that were left out.
    pub fn left_out(&self) -> &[LeftOutNode] {
        &self.left_out
    }

    /// For JavaScript.
    pub fn into_live(self) -> Live {
        fn live(value: Value, at: &str, frozen: &[String]) -> Live {
            if frozen.iter().any(|node| node == at) {
                return Live::Frozen(Box::new(Live::Data(value)));
            }
            let below = format!("{at}/");
            if !frozen.iter().any(|node| node.starts_with(&below)) {
                return Live::Data(value);
            }
            match value {
                Value::Object(fields) => {
                    let fields = fields.into_iter().map(|(key, value)| {
                        let at = format!("{below}{}", key.replace('~', "~0").replace('/', "~1"));
                        (key.into(), live(value, &at, frozen))
                    });
                    Live::Object(fields.collect())
                }
                Value::Array(entries) => {
                    let entries = entries.into_iter().enumerate();
                    Live::List(
                        entries
                            .map(|(index, value)| live(value, &format!("{below}{index}"), frozen))
                            .collect(),
                    )
                }
                other => Live::Data(other),
            }
        }
        live(Value::Object(self.values), "", &self.frozen)
    }
}

impl std::ops::Deref for Options {
    type Target = JsonObject;

    fn deref(&self) -> &JsonObject {
        &self.values
    }
}

/// What a module exports. Spec: *Plugin module*.
#[derive(Clone)]
pub struct Module {
    /// The plugin's id, if the module names itself.
    pub name: Option<Value>,
    /// What a listing prints.
    pub title: Option<String>,
    /// Option values merged under the configured ones.
    pub defaults: Option<Value>,
    /// What the merged options are checked against.
    pub options_schema: Option<Value>,
    /// `None` where the module exports no such function.
    pub apply: Option<Arc<Apply>>,
    /// Keeps whatever runs the module; dropped when the plugin is.
    pub keep: Option<Arc<dyn std::any::Any + Send + Sync>>,
}

impl Module {
    /// Runs `apply`.
    pub fn apply(&self, host: PluginHost, options: Options) -> Pending<()> {
        match &self.apply {
            Some(apply) => apply(host, options),
            None => crate::live::ready(Err(Thrown::new("the module exports no apply function"))),
        }
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Module").field("name", &self.name).field("title", &self.title).finish()
    }
}

/// A native plugin: what stands behind a bundled spec such as `@ostler/webhook`.
#[derive(Debug, Clone)]
pub struct Plugin {
    /// The spec a configuration names it by; its id is the part behind the scope.
    pub spec: &'static str,
    /// What it exports.
    pub module: Module,
    /// The feature of the program that it needs, in a program that was built without it. It cannot be loaded.
    pub left_out: Option<&'static str>,
}

impl Plugin {
    /// A plugin from its `apply`. Its id is the package name without the scope.
    pub fn new<F>(spec: &'static str, apply: F) -> Self
    where
        F: Fn(PluginHost, Options) -> BoxFuture<'static, Result<(), Thrown>> + Send + Sync + 'static,
    {
        let name = spec.rsplit('/').next().unwrap_or(spec);
        Self {
            spec,
            module: Module {
                name: Some(name.into()),
                title: None,
                defaults: None,
                options_schema: None,
                apply: Some(Arc::new(apply)),
                keep: None,
            },
            left_out: None,
        }
    }

    /// A plugin that the program was built without: a configuration that names it is told which feature it needs.
    pub fn left_out(spec: &'static str, feature: &'static str) -> Self {
        Self { left_out: Some(feature), ..Self::new(spec, |_, _| Box::pin(async { Ok(()) })) }
    }

    /// What a listing prints.
    #[must_use]
    pub fn title(mut self, title: &str) -> Self {
        self.module.title = Some(title.to_owned());
        self
    }

    /// Option values merged under the configured ones.
    #[must_use]
    pub fn defaults(mut self, defaults: Value) -> Self {
        self.module.defaults = Some(defaults);
        self
    }

    /// What the merged options are checked against.
    #[must_use]
    pub fn options_schema(mut self, schema: Value) -> Self {
        self.module.options_schema = Some(schema);
        self
    }
}

/// Whatever turns a file into a [`Module`]: the JavaScript engine, in the daemon.
pub trait PluginSource: Send + Sync {
    /// Imports a module from an absolute path. `label` names the plugin in log lines until its id is known.
    fn import(&self, path: &std::path::Path, label: &str) -> Pending<Module>;
}
