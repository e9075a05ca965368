//! `ostler plugin …`: what is configured, and changing it. The daemon that runs takes it up at its next start.

use clap::Subcommand;
use ostler_contract::{Value, json};
use ostler_loader::options::place;

use super::ask;
use super::author::{self, AuthorVerb};
use crate::answer::Answer;
use crate::config::ConfigFiles;
use crate::exit::Exit;
use crate::place::Place;
use crate::plugins::{self, Change, Changed, Row};
use crate::progress::Progress;
use crate::record;

/// The `ostler plugin` commands.
#[derive(Debug, Clone, Subcommand)]
pub enum PluginVerb {
    /// List the configured plugins with their options
    List,
    /// Install plugins and add them to the configuration
    Install {
        /// Package, package version (name@1.2), archive, or path
        #[arg(required = true)]
        spec: Vec<String>,
        /// Do not change the configuration
        #[arg(long)]
        no_enable: bool,
    },
    /// Remove plugins from the configuration and uninstall their packages
    Remove {
        /// Plugin id or configured spec
        #[arg(required = true)]
        plugin: Vec<String>,
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
        #[arg(required = true)]
        plugin: Vec<String>,
        /// Install the latest version, ignoring the version range
        #[arg(long)]
        force: bool,
    },
    /// Show, set or unset options: config <id>, config <id> <key>[.<key>] <value>, config unset <id> <key>
    Config {
        /// Plugin id or configured spec, or the word unset
        plugin: String,
        /// Option key, with dots for nested keys
        key: Option<String>,
        /// Value, as JSON or as text
        #[arg(allow_hyphen_values = true)]
        value: Option<String>,
    },
    #[command(flatten)]
    Author(AuthorVerb),
    /// Enable a plugin
    Enable {
        /// Plugin id or configured spec
        plugin: String,
    },
    /// Disable a plugin without removing it
    Disable {
        /// Plugin id or configured spec
        plugin: String,
    },
}

/// Does it.
///
/// # Errors
/// Exit 2 for a wrong argument, 1 where the machine cannot.
pub async fn plugin(at: &Place, verb: PluginVerb) -> Result<Answer, Exit> {
    match verb {
        PluginVerb::Author(verb) => author::author(at, verb).await,
        // What is printed is pasted into reports; the API and the root channel hide the same.
        verb => match run(at, verb).await {
            Ok(answer) => Ok(answer.without_passwords()),
            Err(exit) => Err(exit.without_passwords()),
        },
    }
}

async fn run(at: &Place, verb: PluginVerb) -> Result<Answer, Exit> {
    // A plugin is written and checked with or without a configuration.
    let configured = || at.files();
    match verb {
        PluginVerb::List => Ok(list(&rows(at, &configured()?).await)),
        PluginVerb::Install { spec, no_enable } => install(at, &configured()?, &spec, !no_enable).await,
        PluginVerb::Remove { plugin, keep, yes } => {
            ask::sure(at, yes, &format!("Remove {}?", plugin.join(", ")))?;
            let files = configured()?;
            let rows = rows(at, &files).await;
            let _progress = Progress::begin(&at.common, "removing");
            let mut removed = Vec::new();
            for name in &plugin {
                removed.push(plugins::remove(&files, &rows, name, keep).await?);
            }
            let lines = removed.iter().map(|spec| format!("Removed {spec}."));
            Ok(hint(&files, Answer::new(lines, json!({ "removed": removed })).named(removed.clone())))
        }
        PluginVerb::Update { plugin, force } => {
            let files = configured()?;
            let rows = rows(at, &files).await;
            let _progress = Progress::begin(&at.common, "updating");
            let moved = plugins::update(&files, &rows, &plugin, force).await?;
            if moved.is_empty() {
                return Ok(Answer::new(["Nothing to update."], json!({ "updated": [] })));
            }
            Ok(hint(&files, Answer::new(moved.clone(), json!({ "updated": moved })).named(moved)))
        }
        PluginVerb::Author(verb) => author::author(at, verb).await,
        PluginVerb::Config { plugin, key, value } => configure(at, &configured()?, plugin, key, value).await,
        PluginVerb::Enable { plugin } => enable(at, &configured()?, &plugin, true).await,
        PluginVerb::Disable { plugin } => enable(at, &configured()?, &plugin, false).await,
    }
}

async fn rows(at: &Place, files: &ConfigFiles) -> Vec<Row> {
    let _progress = Progress::begin(&at.common, "reading plugins");
    plugins::fresh(at, files).await
}

fn list(rows: &[Row]) -> Answer {
    let lines: Vec<String> = match rows.is_empty() {
        true => vec!["no plugins configured".to_owned()],
        false => rows.iter().flat_map(Row::lines).collect(),
    };
    let json = rows.iter().map(Row::json).collect();
    Answer::new(lines, json).named(rows.iter().map(Row::name))
}

/// A daemon that runs goes on as it is; says what to do about it.
fn hint(files: &ConfigFiles, mut answer: Answer) -> Answer {
    if record::running(&files.folders()).is_some() {
        if let Value::Object(fields) = &mut answer.json {
            fields.insert("restart".to_owned(), true.into());
        }
        return answer.note("Restart the daemon to apply the change: ostler restart");
    }
    answer
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
        let version = plugin.version.as_ref().map(|version| format!(" {version}")).unwrap_or_default();
        let id = row.and_then(|row| row.id.clone());
        let called = id.as_ref().map(|id| format!(", id {id}")).unwrap_or_default();
        answer.text.push_str(&format!("Installed {}{version}{called}.\n", plugin.spec));
        if let Some(problem) = row.and_then(|row| row.problem.as_ref()) {
            answer.notes.push(format!("{}: {problem}", plugin.spec));
        }
        named.push(id.clone().unwrap_or_else(|| plugin.spec.clone()));
        json.push(json!({ "name": plugin.spec, "version": plugin.version, "id": id, "enabled": enable }));
    }
    answer.json = json!({ "installed": json });
    Ok(hint(&files, answer.named(named)))
}

async fn configure(
    at: &Place,
    files: &ConfigFiles,
    plugin: String,
    key: Option<String>,
    value: Option<String>,
) -> Result<Answer, Exit> {
    let rows = rows(at, files).await;
    let (name, change) = match (plugin, key, value) {
        (unset, Some(name), Some(key)) if unset == "unset" => (name, Change::Unset(key)),
        (name, Some(key), Some(value)) => {
            let value = place::typed(&value).map_err(|why| Exit::usage(format!("{key}: {why}")))?;
            (name, Change::Set(key, value))
        }
        (name, Some(key), None) => {
            return Err(Exit::usage(format!(
                "missing value for {key}: ostler plugin config {name} {key} <value>, or ostler plugin config unset {name} {key}"
            )));
        }
        (name, None, _) => return Ok(show(plugins::named(&rows, &name)?)),
    };
    let changed = change.apply(files, &rows, &name)?;
    told(at, &name, changed).await
}

async fn enable(at: &Place, files: &ConfigFiles, name: &str, enabled: bool) -> Result<Answer, Exit> {
    let changed = plugins::set_enabled(files, &rows(at, files).await, name, enabled)?;
    told(at, name, changed).await
}

fn show(row: &Row) -> Answer {
    let lines = row.lines().into_iter().chain(row.offered());
    Answer::new(lines, row.json()).named([row.name()])
}

/// What is configured now.
async fn told(at: &Place, name: &str, changed: Changed) -> Result<Answer, Exit> {
    let files = at.files()?;
    let rows = rows(at, &files).await;
    let answer = show(plugins::named(&rows, name)?);
    let answer = changed.notes.iter().fold(answer, |answer, note| answer.note(note));
    Ok(match changed.file {
        Some(file) => hint(&files, answer.note(format!("wrote {}", file.display()))),
        None => answer,
    })
}
