//! Loading: modules are imported concurrently, applied one after the other in configuration order, and merged.

use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt;
use ostler_contract::points::{Port, ProblemLine, Vault};
use ostler_contract::problem::Problem;
use ostler_contract::recorder::Recorder;
use ostler_contract::registry::{Fold, Registry};
use ostler_contract::{
    Call, Caller, Grant, HostCalls, HostFacts, JsonObject, Module, Options, Plugin, PluginHost, PluginId,
    PluginSource, Thrown, Value,
};
use tokio::time::Instant;
use tokio::time::error::Elapsed;
use tracing::Level;

use crate::hidden::Hidden;
use crate::inspect::{Importer, InspectedPlugin, LineSink, known};
use crate::options::{self, SchemaInfo, UnknownOption};

/// The limit of an import or an `apply`, after which the daemon continues without the plugin.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// How long it can take before the log names what the start waits for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Waits for an import or an `apply`, and logs if it takes long.
///
/// # Errors
/// It exceeds the limit.
pub(crate) async fn in_time<T>(
    work: impl Future<Output = T>,
    name: &str,
    what: &str,
    say: impl FnOnce(&str),
) -> Result<T, Elapsed> {
    let limit = Instant::now() + LIMIT;
    let mut work = std::pin::pin!(work);
    match tokio::time::timeout(PATIENCE, &mut work).await {
        Ok(done) => return Ok(done),
        Err(_) => say(&format!(
            "plugin {name}: still {what} after {} seconds; the start continues without it after {}",
            PATIENCE.as_secs(),
            LIMIT.as_secs()
        )),
    }
    tokio::time::timeout_at(limit, work).await
}

/// One entry of the configuration's `plugins` list. Spec: *Configuration entry*.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginConfig {
    /// The spec.
    pub name: String,
    /// Option values.
    pub options: JsonObject,
    /// `false` turns the plugin off.
    pub enabled: bool,
    /// Grants of the plugin's connection, as written.
    pub grants: Vec<String>,
    /// The folder against which a relative path is resolved. Default: the configuration folder.
    pub base: Option<PathBuf>,
}

impl PluginConfig {
    /// Creates an entry with only a spec.
    pub fn named(spec: &str) -> Self {
        Self {
            name: spec.to_owned(),
            options: JsonObject::new(),
            enabled: true,
            grants: Vec::new(),
            base: None,
        }
    }

    /// Returns the folder against which a relative path is resolved.
    pub(crate) fn base<'a>(&'a self, config_dir: &'a Path) -> &'a Path {
        self.base.as_deref().unwrap_or(config_dir)
    }
}

/// The inputs of loading.
pub struct Loader {
    /// Native plugins, by spec.
    pub bundled: Vec<Plugin>,
    /// Imports everything else.
    pub source: Arc<dyn PluginSource>,
    /// Where packages are installed.
    pub config_dir: PathBuf,
    /// Facts for every plugin; `version` is the version of the SDK.
    pub facts: Arc<HostFacts>,
    pub calls: Arc<dyn HostCalls>,
    /// Takes log lines.
    pub log: LineSink,
    /// Receives every credential that is passed to a plugin.
    pub hidden: Hidden,
}

/// The state of a plugin after loading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It was applied.
    Applied,
    /// It is turned off.
    Off,
    /// It was rejected, failed, or is the second one with its id.
    Skipped,
}

/// One configured plugin after loading.
#[derive(Debug, Clone)]
pub struct LoadedPlugin {
    /// The spec as written.
    pub spec: String,
    /// Its id, once known.
    pub id: Option<PluginId>,
    /// What a listing prints.
    pub title: Option<String>,
    /// The file it was imported from; `None` for a bundled one.
    pub path: Option<PathBuf>,
    pub state: State,
    /// Whether its module could be imported.
    pub imported: bool,
    /// Its schema, if it could be imported and has one.
    pub schema: Option<Value>,
    /// Why it was skipped, or could not be imported although it is off.
    pub problem: Option<Problem>,
    /// Its options that its schema does not have.
    pub unknown_options: Vec<UnknownOption>,
    /// How long import and apply took.
    pub took: Duration,
}

impl LoadedPlugin {
    /// Returns its schema for redaction; unknown for a plugin that is off or was not imported.
    pub fn known(&self) -> SchemaInfo<'_> {
        match self.state {
            State::Off => SchemaInfo::Unknown,
            _ if !self.imported => SchemaInfo::Unknown,
            _ => known(self.schema.as_ref()),
        }
    }
}

/// The result of loading.
#[derive(Debug)]
pub struct Loaded {
    pub registry: Registry,
    /// Lines to print as `skipped: <line>`.
    pub problems: Vec<Problem>,
    /// Every entry, in configuration order.
    pub plugins: Vec<LoadedPlugin>,
    /// Keeps native and JavaScript modules loaded.
    pub modules: Vec<Module>,
}

impl Loader {
    /// Returns the importer of modules.
    pub fn importer(&self) -> Importer {
        Importer {
            bundled: self.bundled.clone(),
            source: self.source.clone(),
            config_dir: self.config_dir.clone(),
            sdk_version: self.facts.version.clone(),
            log: self.log.clone(),
        }
    }

    /// Loads every entry and merges the registrations with those of the daemon itself. A reserved or repeated name
    /// among the latter was rejected when it was recorded.
    pub async fn load(&self, entries: &[PluginConfig], own: Recorder) -> Loaded {
        self.apply_all(self.importer().inspect(entries).await, own).await
    }

    /// Like [`Loader::load`], for inspected entries.
    pub async fn apply_all(&self, looked: Vec<InspectedPlugin>, own: Recorder) -> Loaded {
        let mut problems = Vec::new();
        let mut plugins = Vec::new();
        let mut modules = Vec::new();
        let mut fold = Fold::default();
        let mut vault = own.all::<Port<Vault>>().next().map(|port| port.value.clone());
        let mut first_secret: Option<PluginId> = None;
        let mut readers: Vec<(PluginId, Arc<AtomicBool>)> = Vec::new();
        fold.host(own);
        for looked in looked {
            let mut row = LoadedPlugin {
                spec: looked.entry.name.clone(),
                id: looked.id.clone(),
                title: looked.title.clone(),
                path: looked.path.clone(),
                state: State::Off,
                imported: looked.module.is_some(),
                schema: looked.schema().cloned(),
                problem: looked.problem.clone(),
                unknown_options: looked.unknown_options(),
                took: looked.took,
            };
            match (&looked.id, &looked.module, &looked.problem) {
                (Some(id), Some(module), None) if looked.entry.enabled => {
                    match self.apply(id, &looked, module, vault.as_ref(), &mut problems).await {
                        Ok(Applied { host, mut recorder, named_secret, asked, took }) => {
                            row.took += took;
                            row.state = State::Applied;
                            let reader = readers.iter().find(|(_, asked)| asked.load(Ordering::Acquire));
                            let earlier = first_secret.as_ref().or(reader.map(|(id, _)| id));
                            self.take_vault(id, &mut recorder, &mut vault, earlier, &mut problems);
                            if named_secret {
                                first_secret.get_or_insert(id.clone());
                            }
                            readers.push((id.clone(), asked));
                            problems.extend(
                                recorder.all::<ProblemLine>().map(|said| Problem::Said {
                                    id: id.to_string(),
                                    line: said.line.clone(),
                                }),
                            );
                            let from = looked
                                .path
                                .as_ref()
                                .map_or_else(|| "bundled".to_owned(), |path| path.display().to_string());
                            let line = format!("plugin {id} from {from} in {} ms", row.took.as_millis());
                            (self.log)(Level::INFO, &line);
                            fold.plugin(host, recorder);
                        }
                        Err(problem) => {
                            row.state = State::Skipped;
                            row.problem = Some(problem.clone());
                            problems.push(problem);
                        }
                    }
                    modules.push(module.clone());
                }
                (_, _, Some(problem)) if looked.entry.enabled || looked.module.is_some() => {
                    row.state = State::Skipped;
                    problems.push(problem.clone());
                }
                // A plugin that is off costs nothing, even if it is not installed.
                (_, _, Some(problem)) => {
                    self.warn(&format!("plugin {} is disabled: {problem}", looked.entry.name))
                }
                _ => {}
            }
            plugins.push(row);
        }
        let (registry, clashes) = fold.finish();
        problems.extend(clashes);
        Loaded { registry, problems, plugins, modules }
    }

    fn warn(&self, line: &str) {
        (self.log)(Level::WARN, line);
    }

    async fn apply(
        &self,
        id: &PluginId,
        looked: &InspectedPlugin,
        module: &Module,
        vault: Option<&Vault>,
        problems: &mut Vec<Problem>,
    ) -> Result<Applied, Problem> {
        let (schema, configured) = (looked.schema(), &looked.entry.options);
        if let Some(Err(why)) = schema.map(options::check_schema) {
            return Err(Problem::Schema { id: id.to_string(), why });
        }
        let mut merged = match &module.defaults {
            None => JsonObject::new(),
            Some(Value::Object(defaults)) => defaults.clone(),
            Some(_) => return Err(Problem::Defaults { id: id.to_string() }),
        };
        merged.extend(configured.clone());
        options::fill(&mut merged, configured, schema, &|name| std::env::var(name).ok());
        let mut read = options::resolve(id, &merged, schema, vault).await?;
        if let Some(schema) = schema {
            options::leave_out(&mut read, schema);
        }
        problems.extend(read.left_out.iter().map(|node| {
            let line = format!("plugins.{id}.options.{} is left out: {}", node.place, node.why);
            Problem::Said { id: id.to_string(), line }
        }));
        read.secrets.iter().for_each(|secret| self.hidden.add(secret));
        options::credentials(&read.handed, schema).iter().for_each(|secret| self.hidden.add(secret));
        if let Some(schema) = schema {
            options::check(id, schema, &read.checked)?;
        }
        options::unknown_options(id, schema, configured).iter().for_each(|unknown| self.warn(&unknown.line));
        let asked = Arc::new(AtomicBool::new(false));
        let caller = Caller {
            plugin: id.clone(),
            grants: grants(id, &looked.entry.grants, problems),
            vault: vault.map(|vault| noticed(vault, &asked)),
        };
        let host = PluginHost::new(self.facts.clone(), caller, self.calls.clone());
        host.set_options(read.handed.clone());
        let begun = Instant::now();
        let (handed, options) = (host.clone(), Options::from(read.handed));
        let options = options.frozen(read.frozen).with_secrets(read.secrets).without(read.left_out);
        let applying = async { module.apply(handed, options).await };
        let applying = AssertUnwindSafe(applying).catch_unwind();
        let outcome = match in_time(applying, id, "in its apply", |line| self.warn(line)).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(Thrown::new("apply panicked")),
            Err(_) => {
                Err(Thrown::new(format_args!("apply did not return within {} seconds", LIMIT.as_secs())))
            }
        };
        // From here on, registrations are rejected.
        let recorder = host.seal();
        let took = begun.elapsed();
        if let Err(thrown) = outcome {
            if let Some(stack) = &thrown.stack {
                self.warn(&format!("plugin {id}: {}\n{stack}", thrown.message));
            }
            return Err(Problem::Failed { id: id.to_string(), ms: took.as_millis(), why: thrown.message });
        }
        if read.named && recorder.has::<Port<Vault>>() {
            return Err(Problem::VaultNamesSecret { id: id.to_string() });
        }
        Ok(Applied { host, recorder, named_secret: read.named, asked, took })
    }

    /// Makes a plugin's vault the source of the secrets of later plugins, unless some were read already.
    fn take_vault(
        &self,
        id: &PluginId,
        recorder: &mut Recorder,
        vault: &mut Option<Vault>,
        first_secret: Option<&PluginId>,
        problems: &mut Vec<Problem>,
    ) {
        let Some(port) = recorder.all::<Port<Vault>>().next() else { return };
        let (new, replaces) = (port.value.clone(), port.when.is_some());
        if vault.is_some() && !replaces {
            return;
        }
        match first_secret {
            Some(earlier) => {
                recorder.withdraw::<Port<Vault>>();
                problems.push(Problem::VaultTooLate { id: id.to_string(), earlier: earlier.to_string() });
            }
            None => *vault = Some(new),
        }
    }
}

struct Applied {
    host: PluginHost,
    recorder: Recorder,
    named_secret: bool,
    /// Whether the plugin read the vault.
    asked: Arc<AtomicBool>,
    took: Duration,
}

/// Returns a vault that records whether a secret is read.
fn noticed(vault: &Vault, asked: &Arc<AtomicBool>) -> Vault {
    let (get, asked) = (vault.get.clone(), asked.clone());
    let get = Call::new(move |(name,): (String,)| {
        asked.store(true, Ordering::Release);
        // The caller sets the limit.
        get.unbounded((name,))
    });
    Vault { get, ..vault.clone() }
}

/// Returns the grants of an entry. Invalid ones are dropped, each with a line.
fn grants(id: &PluginId, written: &[String], problems: &mut Vec<Problem>) -> Arc<[Grant]> {
    written
        .iter()
        .filter_map(|word| {
            let grant = Grant::parse(word);
            if grant.is_none() {
                problems.push(Problem::Grant { id: id.to_string(), grant: word.clone() });
            }
            grant
        })
        .collect()
}
