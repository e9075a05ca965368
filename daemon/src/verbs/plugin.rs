//! `ostler plugin …`: the configured plugins and their configuration. Changes take effect at the daemon's next start.

use clap::Subcommand;
use ostler_contract::problems::ProblemKind;
use ostler_contract::{Value, json};
use ostler_loader::options::option_path;

use super::ask;
use super::author::{self, AuthorVerb};
use super::measure::{self, MeasureVerb};
use crate::answer::Answer;
use crate::api::problem_shapes::Problem;
use crate::api::shapes::{
    ChangedPlugin, ConfigurePlugin, InstallPlugin, Installed, NamedPlugin, Plugin, RemoveOption,
    RemovePlugin, Removed, SetOption, UnsetOption, UpdatePlugin, Updated,
};
use crate::backends;
use crate::config::ConfigFiles;
use crate::daemon_file;
use crate::exit::Exit;
use crate::place::Place;
use crate::plugins::{self, Change, Changed, Row};
use crate::problems;
use crate::progress::Progress;
use crate::remote::Remote;
use crate::settings::entries;

/// The `ostler plugin` commands.
#[derive(Debug, Clone, Subcommand)]
pub enum PluginVerb {
    /// List the configured plugins with their options
    List,
    /// Install plugins and add them to the configuration
    Install {
        /// Package, package version (name@1.2), archive, or path
        #[arg(required = true, value_name = "SPEC")]
        name: Vec<String>,
        /// Do not change the configuration
        #[arg(long)]
        no_enable: bool,
    },
    /// Remove plugins from the configuration and uninstall their packages
    Remove {
        /// Plugin id or configured spec
        #[arg(required = true, value_name = "PLUGIN")]
        name: Vec<String>,
        /// Do not uninstall the packages
        #[arg(long)]
        keep: bool,
        /// Skip the confirmation prompt
        #[arg(long)]
        yes: bool,
    },
    /// Update plugin packages
    Update {
        /// Plugin id or configured spec; all updates every package
        #[arg(required = true, value_name = "PLUGIN")]
        name: Vec<String>,
        /// Install the latest version, ignoring the version range
        #[arg(long)]
        force: bool,
    },
    /// Show, set or unset options: config <id>, config <id> <key>[.<key>] <value>, config unset <id> <key>
    Config {
        /// Plugin id or configured spec, or the word unset
        #[arg(value_name = "PLUGIN")]
        name: String,
        /// Option key, with dots for nested keys
        key: Option<String>,
        /// Value, as JSON or as text
        #[arg(allow_hyphen_values = true)]
        value: Option<String>,
    },
    #[command(flatten)]
    Author(AuthorVerb),
    #[command(flatten)]
    Measure(MeasureVerb),
    /// Enable a plugin
    Enable {
        /// Plugin id or configured spec
        #[arg(value_name = "PLUGIN")]
        name: String,
    },
    /// Disable a plugin without removing it
    Disable {
        /// Plugin id or configured spec
        #[arg(value_name = "PLUGIN")]
        name: String,
    },
}

/// Runs the command.
///
/// # Errors
/// Exit 2 for an invalid argument, 1 for a failure of the machine.
pub async fn plugin(at: &Place, verb: PluginVerb) -> Result<Answer, Exit> {
    match verb {
        PluginVerb::Author(verb) => author::author(at, verb).await,
        // Output is often pasted into reports; the API and the root channel redact the same.
        verb => match run(at, verb).await {
            Ok(answer) => Ok(answer.without_passwords()),
            Err(exit) => Err(exit.without_passwords()),
        },
    }
}

async fn run(at: &Place, verb: PluginVerb) -> Result<Answer, Exit> {
    if let Some(remote) = at.remote()? {
        return over_http(at, &remote, verb).await;
    }
    // Plugins can be written and checked with or without a configuration.
    let configured = || at.files();
    match verb {
        PluginVerb::List => {
            let files = configured()?;
            let mut rows: Vec<Plugin> = rows(at, &files).await.iter().map(Row::shown).collect();
            if let Some(record) = daemon_file::running(&files.folders()) {
                mark_skipped(&mut rows, &problems::here(&record).await);
            }
            Ok(list(&rows))
        }
        PluginVerb::Install { name, no_enable } => install(at, &configured()?, &name, !no_enable).await,
        PluginVerb::Remove { name: names, keep, yes } => {
            ask::sure(at, yes, &format!("Remove {}?", names.join(", ")))?;
            let files = configured()?;
            let rows = rows(at, &files).await;
            let _progress = Progress::begin(&at.common, "removing");
            let mut removed = Vec::new();
            for name in &names {
                removed.push(plugins::remove(&files, &rows, name, keep).await?);
            }
            Ok(backend_note(at, hint(&files, self::removed(removed)))?)
        }
        PluginVerb::Update { name, force } => {
            let files = configured()?;
            let rows = rows(at, &files).await;
            let _progress = Progress::begin(&at.common, "updating");
            let moved = plugins::update(&files, &rows, &name, force).await?;
            match moved.is_empty() {
                true => Ok(updated(moved)),
                false => Ok(hint(&files, updated(moved))),
            }
        }
        PluginVerb::Author(verb) => author::author(at, verb).await,
        PluginVerb::Measure(verb) => measure::measure(at, verb).await,
        PluginVerb::Config { name, key, value } => {
            let asked = Configure::read(name, key, value)?;
            configure(at, &configured()?, asked).await
        }
        PluginVerb::Enable { name } => enable(at, &configured()?, &name, true).await,
        PluginVerb::Disable { name } => enable(at, &configured()?, &name, false).await,
    }
}

/// Puts into the rows of the files which plugins the running daemon skipped.
fn mark_skipped(rows: &mut [Plugin], problems: &[Problem]) {
    let is_error =
        |problem: &&Problem| problem.is_about(&[ProblemKind::Plugins]) && problem.severity == "error";
    for row in rows.iter_mut().filter(|row| row.state == "ready") {
        let skipped = problems.iter().filter(is_error).find(|problem| problem.place == row.name);
        if let Some(problem) = skipped {
            "error".clone_into(&mut row.state);
            row.problem = Some(problem.found.clone());
        }
    }
}

async fn rows(at: &Place, files: &ConfigFiles) -> Vec<Row> {
    let _progress = Progress::begin(&at.common, "reading plugins");
    plugins::fresh(at, files).await
}

/// Runs the command on the daemon at a URL.
async fn over_http(at: &Place, remote: &Remote, verb: PluginVerb) -> Result<Answer, Exit> {
    match verb {
        PluginVerb::List => Ok(list(&remote.get::<Vec<Plugin>>("/api/plugin/list").await?)),
        PluginVerb::Install { name: names, no_enable } => {
            if let Some(path) = names.iter().find(|name| name.starts_with('.')) {
                return Err(Exit::usage(format!(
                    "{path} is a relative path; with --remote, use an absolute path on the daemon's computer"
                )));
            }
            let mut installed = Vec::new();
            for name in names {
                let _progress = Progress::begin(&at.common, &format!("installing {name}"));
                let body = InstallPlugin { name, enable: !no_enable };
                installed.extend(remote.post::<Installed>("/api/plugin/install", &body).await?.installed);
            }
            let mut answer = Answer::default();
            for plugin in &installed {
                answer.text.push_str(&installed_line(
                    &plugin.name,
                    plugin.version.as_ref(),
                    plugin.id.as_ref(),
                ));
            }
            answer.json = json!({ "installed": installed });
            let names = installed.into_iter().map(|plugin| plugin.id.unwrap_or(plugin.name));
            Ok(hinted(answer.named(names)))
        }
        PluginVerb::Remove { name: names, keep, yes } => {
            ask::sure(at, yes, &format!("Remove {}?", names.join(", ")))?;
            let _progress = Progress::begin(&at.common, "removing");
            let mut gone = Vec::new();
            for name in names {
                let body = RemovePlugin { name, keep };
                gone.extend(remote.post::<Removed>("/api/plugin/remove", &body).await?.removed);
            }
            Ok(hinted(removed(gone)))
        }
        PluginVerb::Update { name: names, force } => {
            let _progress = Progress::begin(&at.common, "updating");
            let mut moved = Vec::new();
            for name in names {
                let body = UpdatePlugin { name, force };
                moved.extend(remote.post::<Updated>("/api/plugin/update", &body).await?.updated);
            }
            match moved.is_empty() {
                true => Ok(updated(moved)),
                false => Ok(hinted(updated(moved))),
            }
        }
        PluginVerb::Config { name, key, value } => {
            let changed: ChangedPlugin = match Configure::read(name, key, value)? {
                Configure::Show(name) => {
                    let body = ConfigurePlugin { name, options: None, enabled: None };
                    remote.post("/api/plugin/config", &body).await?
                }
                Configure::Set(name, key, value) => {
                    remote.post("/api/plugin/config/set", &SetOption { name, key, value }).await?
                }
                Configure::Unset(name, key) => {
                    remote.post("/api/plugin/config/unset", &RemoveOption { name, key }).await?
                }
            };
            Ok(changed_answer(&changed))
        }
        PluginVerb::Enable { name } => {
            Ok(changed_answer(&remote.post("/api/plugin/enable", &NamedPlugin { name }).await?))
        }
        PluginVerb::Disable { name } => {
            Ok(changed_answer(&remote.post("/api/plugin/disable", &NamedPlugin { name }).await?))
        }
        PluginVerb::Measure(verb) => measure::measure(at, verb).await,
        PluginVerb::Author(_) => Err(Exit::usage("--remote is not supported by this command")),
    }
}

fn changed_answer(changed: &ChangedPlugin) -> Answer {
    let answer = changed.notes.iter().fold(show(changed), Answer::note);
    match changed.restart {
        Some(true) => hinted(answer),
        _ => answer,
    }
}

fn removed(specs: Vec<String>) -> Answer {
    let lines = specs.iter().map(|spec| format!("Removed {spec}."));
    Answer::new(lines, json!({ "removed": specs })).named(specs.clone())
}

fn updated(moved: Vec<String>) -> Answer {
    if moved.is_empty() {
        return Answer::new(["Nothing to update."], json!({ "updated": [] }));
    }
    Answer::new(moved.clone(), json!({ "updated": moved })).named(moved)
}

fn installed_line(spec: &str, version: Option<&String>, id: Option<&String>) -> String {
    let version = version.map(|version| format!(" {version}")).unwrap_or_default();
    let called = id.map(|id| format!(", id {id}")).unwrap_or_default();
    format!("Installed {spec}{version}{called}.\n")
}

fn list(rows: &[Plugin]) -> Answer {
    let lines: Vec<String> = match rows.is_empty() {
        true => vec!["no plugins configured".to_owned()],
        false => rows.iter().flat_map(Plugin::lines).collect(),
    };
    Answer::new(lines, json!(rows)).named(rows.iter().map(Plugin::called))
}

/// Notes that the running daemon is not changed, and what to do.
fn hint(files: &ConfigFiles, answer: Answer) -> Answer {
    match daemon_file::running(&files.folders()) {
        Some(_) => hinted(answer),
        None => answer,
    }
}

fn hinted(mut answer: Answer) -> Answer {
    if let Value::Object(fields) = &mut answer.json {
        fields.insert("restart".to_owned(), true.into());
    }
    answer.note("Restart the daemon to apply the change: ostler restart")
}

async fn install(at: &Place, files: &ConfigFiles, specs: &[String], enable: bool) -> Result<Answer, Exit> {
    let mut installed = Vec::new();
    let importer = plugins::importer(at, files);
    for spec in specs {
        let _progress = Progress::begin(&at.common, &format!("installing {spec}"));
        installed.push(plugins::install(files, &importer, &at.working_dir, spec, enable).await?);
    }
    let files = at.files()?;
    let rows = rows(at, &files).await;
    let mut answer = Answer::default();
    let mut named = Vec::new();
    let mut json = Vec::new();
    for plugin in &installed {
        let row = rows.iter().find(|row| row.entry.name == plugin.spec);
        let id = row.and_then(|row| row.id.clone());
        answer.text.push_str(&installed_line(&plugin.spec, plugin.version.as_ref(), id.as_ref()));
        if let Some(problem) = row.and_then(|row| row.problem.as_ref()) {
            answer.notes.push(format!("{}: {problem}", plugin.spec));
        }
        named.push(id.clone().unwrap_or_else(|| plugin.spec.clone()));
        json.push(json!({ "name": plugin.spec, "version": plugin.version, "id": id, "enabled": enable }));
    }
    answer.json = json!({ "installed": json });
    Ok(hint(&files, answer.named(named)))
}

/// The parsed arguments of `ostler plugin config`.
enum Configure {
    Show(String),
    Set(String, String, Value),
    Unset(String, String),
}

impl Configure {
    fn read(plugin: String, key: Option<String>, value: Option<String>) -> Result<Self, Exit> {
        match (plugin, key, value) {
            (unset, Some(name), Some(key)) if unset == "unset" => Ok(Self::Unset(name, key)),
            (name, Some(key), Some(value)) => {
                let value = option_path::typed(&value).map_err(|why| Exit::usage(format!("{key}: {why}")))?;
                Ok(Self::Set(name, key, value))
            }
            (name, Some(key), None) => Err(Exit::usage(format!(
                "missing value for {key}: ostler plugin config {name} {key} <value>, or ostler plugin config unset {name} {key}"
            ))),
            (name, None, _) => Ok(Self::Show(name)),
        }
    }
}

async fn configure(at: &Place, files: &ConfigFiles, asked: Configure) -> Result<Answer, Exit> {
    let rows = rows(at, files).await;
    let (name, change) = match asked {
        Configure::Show(name) => return Ok(show(&plugins::named(&rows, &name)?.described())),
        Configure::Set(name, key, value) => (name, Change::Set(key, value)),
        Configure::Unset(name, key) => (name, Change::Unset(key)),
    };
    let changed = change.apply(files, &rows, &name)?;
    told(at, &name, changed).await
}

async fn enable(at: &Place, files: &ConfigFiles, name: &str, enabled: bool) -> Result<Answer, Exit> {
    let changed = plugins::set_enabled(files, &rows(at, files).await, name, enabled)?;
    let answer = told(at, name, changed).await?;
    if enabled { Ok(answer) } else { backend_note(at, answer) }
}

/// Notes if the running daemon would not restart because no plugin with a backend is enabled any more.
fn backend_note(at: &Place, answer: Answer) -> Result<Answer, Exit> {
    let files = at.files()?;
    let running = daemon_file::running(&files.folders());
    let note = running.and_then(|record| backends::note(&record.backends, &entries(&files)));
    Ok(note.into_iter().fold(answer, Answer::note))
}

fn show(described: &ChangedPlugin) -> Answer {
    let ChangedPlugin { plugin, unset, .. } = described;
    let lines = plugin.lines().into_iter().chain(unset.iter().map(UnsetOption::line));
    Answer::new(lines, json!(described)).named([plugin.called()])
}

/// Returns the configured plugins.
async fn told(at: &Place, name: &str, changed: Changed) -> Result<Answer, Exit> {
    let files = at.files()?;
    let rows = rows(at, &files).await;
    let answer = show(&plugins::named(&rows, name)?.described());
    let answer = changed.notes.iter().fold(answer, |answer, note| answer.note(note));
    Ok(match changed.file {
        Some(file) => hint(&files, answer.note(format!("wrote {}", file.display()))),
        None => answer,
    })
}
