//! Inspection of configured plugins: imports each module to read its id, title and schema, without `apply`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ostler_contract::problem::Problem;
use ostler_contract::protocol::nearest::nearest;
use ostler_contract::{Module, Plugin, PluginId, PluginSource, Value};
use tokio::time::Instant;
use tracing::Level;

use crate::id::id_of;
use crate::load::{LIMIT, PluginConfig, in_time};
use crate::manifest::Manifest;
use crate::options::{self, SchemaInfo, UnknownOption};
use crate::resolve::resolve;

/// Receives log lines with their level: `WARN` for what failed, `INFO` for what works.
pub type LineSink = Arc<dyn Fn(Level, &str) + Send + Sync>;

/// Imports the plugins of a configuration.
#[derive(Clone)]
pub struct Importer {
    /// Native plugins, by spec.
    pub bundled: Vec<Plugin>,
    /// Imports all other plugins.
    pub source: Arc<dyn PluginSource>,
    /// The folder in which packages are installed.
    pub config_dir: PathBuf,
    pub sdk_version: String,
    /// Receives log lines.
    pub log: LineSink,
}

/// An inspected entry of the configuration.
#[derive(Debug, Clone)]
pub struct InspectedPlugin {
    pub entry: PluginConfig,
    /// Its id, if known.
    pub id: Option<PluginId>,
    /// The title in listings.
    pub title: Option<String>,
    /// The file it was imported from; `None` for a bundled one.
    pub path: Option<PathBuf>,
    /// The module, if it could be imported.
    pub module: Option<Module>,
    /// Why it cannot be applied.
    pub problem: Option<Problem>,
    /// How long the import took.
    pub took: Duration,
}

impl InspectedPlugin {
    /// Returns its schema, if it has one.
    pub fn schema(&self) -> Option<&Value> {
        self.module.as_ref()?.options_schema.as_ref()
    }

    /// Returns its options that its schema does not have.
    pub fn unknown_options(&self) -> Vec<UnknownOption> {
        let id = self.id.as_ref().map_or(self.entry.name.as_str(), |id| id);
        match self.known() {
            SchemaInfo::Declared(schema) => options::unknown_options(id, schema, &self.entry.options),
            SchemaInfo::Unknown => Vec::new(),
        }
    }

    /// Returns the schema for redaction.
    pub fn known(&self) -> SchemaInfo<'_> {
        match &self.module {
            Some(_) if self.entry.enabled => known(self.schema()),
            _ => SchemaInfo::Unknown,
        }
    }
}

/// Returns a schema for redaction; an invalid schema is unknown.
pub(crate) fn known(schema: Option<&Value>) -> SchemaInfo<'_> {
    match schema {
        Some(schema) if options::check_schema(schema).is_err() => SchemaInfo::Unknown,
        schema => SchemaInfo::Declared(schema),
    }
}

/// A module and its source.
struct Imported {
    module: Module,
    manifest: Manifest,
    path: Option<PathBuf>,
    took: Duration,
}

/// Returns the installed packages of a configuration folder, with their scopes.
fn installed(config_dir: &Path) -> Vec<String> {
    let names = |dir: &Path| -> Vec<String> {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    };
    let modules = config_dir.join("node_modules");
    let mut installed = Vec::new();
    for name in names(&modules) {
        match name.starts_with('@') {
            true => {
                installed.extend(names(&modules.join(&name)).iter().map(|inner| format!("{name}/{inner}")))
            }
            false => installed.push(name),
        }
    }
    installed
}

impl Importer {
    /// Inspects every entry, in order; imports modules concurrently.
    pub async fn inspect(&self, entries: &[PluginConfig]) -> Vec<InspectedPlugin> {
        let imported = futures::future::join_all(entries.iter().map(|entry| self.import(entry))).await;
        let mut looked: Vec<InspectedPlugin> = Vec::new();
        for (entry, outcome) in entries.iter().zip(imported) {
            let mut row = InspectedPlugin {
                entry: entry.clone(),
                id: None,
                title: None,
                path: None,
                module: None,
                problem: None,
                took: Duration::ZERO,
            };
            match outcome {
                Err(problem) => row.problem = Some(problem),
                Ok(Imported { module, manifest, path, took }) => {
                    match id_of(&module, &manifest, path.as_deref(), &entry.name) {
                        Ok(id) => row.id = Some(id),
                        Err(problem) => row.problem = Some(problem),
                    }
                    row.title = module.title.clone().or(manifest.title);
                    row.path = path;
                    row.took = took;
                    row.module = Some(module);
                }
            }
            let first = looked.iter().find(|other| other.id.is_some() && other.id == row.id);
            if let (Some(first), Some(id)) = (first, &row.id) {
                let (id, first, second) = (id.to_string(), &first.entry, entry.name.clone());
                let name = first.name.clone();
                row.problem = Some(match first.enabled {
                    true => Problem::SameId { id, first: name, second },
                    false => Problem::SameIdOff { id, first: name, second },
                });
            }
            looked.push(row);
        }
        looked
    }

    pub(crate) fn warn(&self, line: &str) {
        (self.log)(Level::WARN, line);
    }

    /// Suggests a plugin with a similar name that can be loaded.
    fn with_hint(&self, problem: Problem) -> Problem {
        let Problem::NotInstalled { name, dir, .. } = problem else { return problem };
        let bundled: Vec<&str> = self.bundled.iter().map(|plugin| plugin.spec).collect();
        let installed = installed(&self.config_dir);
        let known = || bundled.iter().copied().chain(installed.iter().map(String::as_str));
        // For a bundled plugin, the short name is enough.
        let short = |spec: &str| spec.rsplit('/').next().unwrap_or_default().to_owned();
        let meant = nearest(&name, known()).or_else(|| {
            bundled.iter().copied().find(|spec| nearest(&name, [short(spec).as_str()]).is_some())
        });
        let hint = meant.map(|spec| format!(" Did you mean {spec}?")).unwrap_or_default();
        Problem::NotInstalled { name, dir, hint }
    }

    async fn import(&self, entry: &PluginConfig) -> Result<Imported, Problem> {
        if let Some(plugin) = self.bundled.iter().find(|plugin| plugin.spec == entry.name) {
            if let Some(feature) = plugin.left_out {
                return Err(Problem::LeftOut { name: entry.name.clone(), feature });
            }
            return Ok(Imported {
                module: plugin.module.clone(),
                manifest: Manifest::default(),
                path: None,
                took: Duration::ZERO,
            });
        }
        let resolved = resolve(&entry.name, entry.base(&self.config_dir), &self.config_dir);
        let resolved = resolved.map_err(|problem| self.with_hint(problem))?;
        let name = resolved.manifest.name.clone().unwrap_or_else(|| entry.name.clone());
        resolved.manifest.check_sdk(&name, &self.sdk_version)?;
        (self.log)(Level::INFO, &format!("plugin {} loading", entry.name));
        let begun = Instant::now();
        let failed = |why: String| Problem::Import {
            id: entry.name.clone(),
            target: resolved.path.display().to_string(),
            ms: begun.elapsed().as_millis(),
            why,
        };
        let import = self.source.import(&resolved.path, &entry.name);
        let module = match in_time(import, &entry.name, "importing", |line| self.warn(line)).await {
            Ok(Ok(module)) => module,
            Ok(Err(thrown)) => {
                if let Some(stack) = &thrown.stack {
                    self.warn(&format!("plugin {}: {}\n{stack}", entry.name, thrown.message));
                }
                return Err(failed(thrown.message));
            }
            Err(_) => return Err(failed(format!("it did not finish within {} seconds", LIMIT.as_secs()))),
        };
        if module.apply.is_none() {
            let url =
                url::Url::from_file_path(&resolved.path).map_or_else(|()| entry.name.clone(), String::from);
            return Err(Problem::NoApply { url });
        }
        let took = begun.elapsed();
        Ok(Imported { module, manifest: resolved.manifest, path: Some(resolved.path), took })
    }
}

impl std::fmt::Debug for Importer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Importer({})", self.config_dir.display())
    }
}
