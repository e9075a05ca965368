//! One row per configured plugin.

use std::path::PathBuf;
use std::sync::Arc;

use ostler_contract::problem::Problem;
use ostler_contract::{JsonObject, Value};
use ostler_js::JsSource;
use ostler_loader::options::{self, SchemaInfo, UnknownOption};
use ostler_loader::{Importer, InspectedPlugin, LoadedPlugin, PluginConfig, State};
use ostler_protocol::nearest::did_you_mean;
use ostler_telemetry::printable::printable;

use crate::api::shapes::{ChangedPlugin, Plugin, UnsetOption};
use crate::bundled;
use crate::compose::javascript;
use crate::config::ConfigFiles;
use crate::exit::Exit;
use crate::place::Place;
use crate::settings::entries;

/// The schema of a plugin, for redaction.
#[derive(Debug, Clone, PartialEq)]
pub enum Marks {
    /// The plugin declares this schema, or none.
    Schema(Option<Value>),
    /// The schema is unknown.
    Unknown,
}

impl Marks {
    fn of(known: SchemaInfo<'_>) -> Self {
        match known {
            SchemaInfo::Declared(schema) => Self::Schema(schema.cloned()),
            SchemaInfo::Unknown => Self::Unknown,
        }
    }

    /// Returns the schema for redaction.
    pub fn known(&self) -> SchemaInfo<'_> {
        match self {
            Self::Schema(schema) => SchemaInfo::Declared(schema.as_ref()),
            Self::Unknown => SchemaInfo::Unknown,
        }
    }

    /// Returns the schema, if there is one.
    pub fn schema(&self) -> Option<&Value> {
        match self {
            Self::Schema(schema) => schema.as_ref(),
            Self::Unknown => None,
        }
    }
}

/// One configured plugin.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Its entry in the file.
    pub entry: PluginConfig,
    /// Its id, if known.
    pub id: Option<String>,
    /// The title in listings.
    pub title: Option<String>,
    /// The imported file.
    pub path: Option<PathBuf>,
    pub bundled: bool,
    /// `ready`, `disabled`, `missing`, `incompatible`, `unconfigured` or `error`; `pending` if the running daemon has
    /// not loaded it.
    pub state: &'static str,
    /// Why it is not ready.
    pub problem: Option<String>,
    /// Its options that its schema does not have.
    pub unknown_options: Vec<UnknownOption>,
    /// Its schema, which marks credentials.
    pub marks: Marks,
}

impl Row {
    /// Returns its options, redacted.
    pub fn options(&self) -> JsonObject {
        options::redacted(&self.entry.options, self.marks.known())
    }

    /// Returns its name in commands: its id, or its spec if the id is unknown.
    pub fn name(&self) -> &str {
        self.id.as_deref().unwrap_or(&self.entry.name)
    }

    /// Returns its description for users, redacted.
    pub fn shown(&self) -> Plugin {
        Plugin {
            name: self.entry.name.clone(),
            state: self.state.to_owned(),
            enabled: self.entry.enabled,
            options: self.options(),
            grants: self.entry.grants.clone(),
            id: self.id.clone(),
            title: self.title.clone(),
            path: self.path.as_ref().map(|path| path.display().to_string()),
            bundled: self.bundled,
            problem: self.problem.clone(),
            warnings: self
                .unknown_options
                .iter()
                .map(|unknown| format!("{}; {}", unknown.line, unknown.fix))
                .collect(),
        }
    }

    /// Returns its description with the unset options of its schema.
    pub fn described(&self) -> ChangedPlugin {
        let offered = self.marks.schema().and_then(|schema| schema.get("properties")?.as_object());
        let unset = offered.into_iter().flatten().filter(|(key, _)| !self.entry.options.contains_key(*key));
        let unset = unset.map(|(key, node)| UnsetOption {
            key: key.clone(),
            description: node.get("description").and_then(Value::as_str).map(str::to_owned),
        });
        ChangedPlugin { plugin: self.shown(), unset: unset.collect(), restart: None, notes: Vec::new() }
    }
}

/// Finds a row by id or by spec as written.
///
/// # Errors
/// Exit 2 with the existing plugins.
pub fn named<'a>(rows: &'a [Row], name: &str) -> Result<&'a Row, Exit> {
    let by_spec = || rows.iter().find(|row| row.entry.name == name);
    rows.iter().find(|row| row.id.as_deref() == Some(name)).or_else(by_spec).ok_or_else(|| {
        let known: Vec<&str> = rows.iter().map(Row::name).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let hint = did_you_mean(name, rows.iter().map(Row::name));
        Exit::usage(format!("unknown plugin {name}; configured plugins: {known}{hint}"))
    })
}

fn state_of(problem: &Problem) -> &'static str {
    match problem {
        Problem::NotInstalled { .. }
        | Problem::LeftOut { .. }
        | Problem::NotThere { .. }
        | Problem::NoEntry { .. } => "missing",
        Problem::Range { .. } => "incompatible",
        Problem::Option { expected, .. } if expected == "be given" => "unconfigured",
        _ => "error",
    }
}

/// Creates the importer of plugins for a command; their output is printed if the command is verbose.
pub fn importer(place: &Place, files: &ConfigFiles) -> Importer {
    let verbose = place.common.verbose;
    let say = move |line: &str| {
        if verbose {
            let line = printable(line) + "\n";
            let _ = std::io::Write::write_all(&mut std::io::stderr().lock(), line.as_bytes());
        }
    };
    let limits = files.config.javascript.clone().unwrap_or_default();
    let js = javascript(&limits, Arc::new(move |line| say(&line.to_string())));
    Importer {
        bundled: bundled::plugins(),
        source: Arc::new(JsSource::new(js)),
        config_dir: files.dir.clone(),
        sdk_version: env!("CARGO_PKG_VERSION").to_owned(),
        log: Arc::new(move |_, line| say(line)),
    }
}

/// Returns the configured plugins, each imported to read its id and schema.
pub async fn fresh(place: &Place, files: &ConfigFiles) -> Vec<Row> {
    importer(place, files).inspect(&entries(files)).await.into_iter().map(of_looked).collect()
}

fn of_looked(looked: InspectedPlugin) -> Row {
    let marks = Marks::of(looked.known());
    let missing = missing(&looked);
    let unknown_options = looked.unknown_options();
    let (state, problem) = match (&looked.problem, looked.entry.enabled) {
        (problem, false) => ("disabled", problem.as_ref().map(ToString::to_string)),
        (Some(problem), true) => (state_of(problem), Some(problem.to_string())),
        (None, true) if !missing.is_empty() => {
            ("unconfigured", Some(format!("needs {}", missing.join(", "))))
        }
        (None, true) => ("ready", None),
    };
    Row {
        bundled: looked.module.is_some() && looked.path.is_none(),
        id: looked.id.map(|id| id.to_string()),
        title: looked.title,
        path: looked.path,
        entry: looked.entry,
        state,
        problem,
        unknown_options,
        marks,
    }
}

/// Returns required options that are not set.
fn missing(looked: &InspectedPlugin) -> Vec<String> {
    let Some(schema) = looked.schema() else { return Vec::new() };
    let mut merged = looked
        .module
        .as_ref()
        .and_then(|module| module.defaults.as_ref()?.as_object().cloned())
        .unwrap_or_default();
    merged.extend(looked.entry.options.clone());
    options::fill(&mut merged, &looked.entry.options, Some(schema), &|name| std::env::var(name).ok());
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    required.filter_map(Value::as_str).filter(|key| !merged.contains_key(*key)).map(str::to_owned).collect()
}

/// Returns the configured plugins with their state in the running daemon, which does not know those configured later.
pub fn running(files: &ConfigFiles, loaded: &[LoadedPlugin]) -> Vec<Row> {
    entries(files)
        .into_iter()
        .map(|entry| {
            let plugin = loaded.iter().find(|plugin| plugin.spec == entry.name);
            let marks = match plugin {
                Some(plugin) if entry.enabled => Marks::of(plugin.known()),
                _ => Marks::Unknown,
            };
            let (state, problem) = match plugin {
                _ if !entry.enabled => ("disabled", None),
                None => ("pending", Some("restart the daemon to load it".to_owned())),
                Some(LoadedPlugin { problem: Some(problem), .. }) => {
                    (state_of(problem), Some(problem.to_string()))
                }
                Some(LoadedPlugin { state: State::Off, .. }) => {
                    ("pending", Some("restart the daemon to load it".to_owned()))
                }
                Some(_) => ("ready", None),
            };
            Row {
                id: plugin.and_then(|plugin| plugin.id.as_ref().map(ToString::to_string)),
                title: plugin.and_then(|plugin| plugin.title.clone()),
                path: plugin.and_then(|plugin| plugin.path.clone()),
                bundled: plugin.is_some_and(|plugin| plugin.imported && plugin.path.is_none()),
                entry,
                state,
                problem,
                unknown_options: plugin.map(|plugin| plugin.unknown_options.clone()).unwrap_or_default(),
                marks,
            }
        })
        .collect()
}
