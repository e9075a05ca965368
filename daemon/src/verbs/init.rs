//! `ostler init`: creates a first configuration.

use std::fs::File;
use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use ostler_contract::problem::built_without;
use ostler_contract::{JsonObject, Value, json};
use ostler_protocol::names;
use ostler_protocol::nearest::nearest;

use crate::answer::Answer;
use crate::bundled;
use crate::config::FILE;
use crate::created_files::CreatedFiles;
use crate::exit::Exit;
use crate::parts::{acp, console, containers, git, github};
use crate::place::Place;
use crate::plugins;
use crate::progress::Progress;
use crate::settings::DEFAULT_PORT;

/// The bundled backend.
const ECHO: &str = "@ostler/echo";
/// The webhook plugin.
const WEBHOOK: &str = "@ostler/webhook";

/// The contents of the first configuration.
#[derive(Debug, Clone, Default, Args)]
pub struct InitFlags {
    /// Agent: echo, a preset such as claude-acp, or the npm package or path of a plugin [default: prompt for it]
    #[arg(long, value_name = "SPEC")]
    pub agent: Option<String>,
    /// Directory to serve (repeatable) [default: the working directory of each start]
    #[arg(long, value_name = "DIR")]
    pub path: Vec<PathBuf>,
    /// Port to listen on [default: 9187]
    #[arg(long, value_name = "N")]
    pub port: Option<u16>,
    /// Omit the terminal plugin
    #[arg(long)]
    pub no_terminal: bool,
    /// Omit the webhook plugin
    #[arg(long)]
    pub no_webhook: bool,
    /// Omit the git plugin
    #[arg(long)]
    pub no_git: bool,
    /// Omit the plugin for pull requests
    #[arg(long)]
    pub no_github: bool,
    /// Omit the web console
    #[arg(long)]
    pub no_console: bool,
    /// Omit the plugin for containers, which is named if Docker or Podman is found
    #[arg(long)]
    pub no_containers: bool,
}

/// Writes a first configuration; never replaces an existing one.
///
/// # Errors
/// Exit 2 if one exists or no agent is named, exit 1 if it cannot be written.
pub async fn init(at: &Place, flags: InitFlags) -> Result<Answer, Exit> {
    let file = file(at)?;
    let shown = file.display().to_string();
    if file.exists() {
        return Err(Exit::usage(format!(
            "{shown} already exists and was not changed; print it with ostler config, check it with ostler doctor"
        )));
    }
    let agent = match flags.agent.clone() {
        Some(agent) => agent,
        None => ask(at)?,
    };
    let agent = agent.trim();
    let bundled = bundled_entry(agent)?;
    let mut entries: Vec<Value> = Vec::new();
    entries.extend(bundled.clone());
    let is_omitted = |flag: bool, spec: &str| flag || bundled::is_left_out(spec);
    let beside = [
        (
            flags.no_terminal,
            json!({ "name": ostler_plugin_terminal::NAME, "options": { "shellIntegration": true } }),
        ),
        (flags.no_webhook, json!({ "name": WEBHOOK })),
        (is_omitted(flags.no_git, git::NAME), json!({ "name": git::NAME })),
        (is_omitted(flags.no_github, github::NAME), json!({ "name": github::NAME })),
        (is_omitted(flags.no_console, console::NAME), json!({ "name": console::NAME })),
        (flags.no_containers || !containers::is_runtime_found(), json!({ "name": containers::NAME })),
    ];
    entries.extend(beside.into_iter().filter(|(omitted, _)| !omitted).map(|(_, entry)| entry));
    let mut fields = JsonObject::new();
    if let Some(port) = flags.port {
        fields.insert("port".to_owned(), port.into());
    }
    if !flags.path.is_empty() {
        fields.insert("paths".to_owned(), served(at, &flags.path)?.into());
    }
    fields.insert("plugins".to_owned(), entries.into());
    let mut made = CreatedFiles::default();
    if let Err(error) = write_new(&file, &format!("{:#}\n", Value::Object(fields)), &mut made) {
        made.undo();
        return Err(Exit::machine(format!("{shown} cannot be written: {error}")));
    }
    let installed = match &bundled {
        Some(entry) if entry["name"] == ECHO => Ok(ECHO.to_owned()),
        Some(_) => Ok(agent.to_owned()),
        None => install(at, agent).await,
    };
    let is_preset = bundled.is_some_and(|entry| entry["name"] == acp::NAME);
    let agent = match installed {
        Ok(agent) => agent,
        Err(why) => {
            // As if no agent had been requested.
            made.undo();
            return Err(why);
        }
    };
    let host = at.common.program();
    let start = format!("{host} start");
    let mut lines = vec![format!("Created {shown} with agent {agent}.")];
    if is_preset {
        lines.push(format!("Check the agent: {host} agent check {agent}"));
    }
    lines.push(format!("Next: {start}"));
    lines.push(format!("Then: {host} session send --new \"Hello\""));
    let port = flags.port.unwrap_or(DEFAULT_PORT);
    if !is_omitted(flags.no_console, console::NAME) && port != 0 {
        lines.push(format!("Console: http://127.0.0.1:{port}{}", names::route("console", "")));
    }
    Ok(Answer::new(lines, json!({ "file": shown, "agent": agent, "next": start })).named([shown]))
}

/// Returns the file to write.
fn file(at: &Place) -> Result<PathBuf, Exit> {
    match &at.common.config_file {
        Some(file) => Ok(at.working_dir.join(file)),
        None => Ok(at.folders()?.config.join(FILE)),
    }
}

/// Prompts for the agent on a terminal.
fn ask(at: &Place) -> Result<String, Exit> {
    if at.common.json || !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(Exit::usage(
            "no agent given and standard input is not a terminal; pass --agent echo, --agent <preset>, --agent <npm package> or --agent <path>",
        ));
    }
    let mut err = std::io::stderr().lock();
    let presets = acp::bundled_presets();
    if !presets.is_empty() {
        let _ = writeln!(err, "Agents of the Agent Client Protocol: {}", presets.join(", "));
    }
    let _ = writeln!(err, "Other agents: the npm package or the path of a plugin, or");
    let _ = writeln!(err, "  echo  repeats each message; needs no model and no installation");
    let _ = write!(err, "Agent [echo]: ");
    let _ = err.flush();
    let mut answer = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut answer)
        .map_err(|error| Exit::usage(format!("cannot read the agent: {error}")))?;
    Ok(answer.trim().to_owned())
}

/// Returns the configuration entry of a bundled agent: echo, or an agent of a bundled preset.
fn bundled_entry(agent: &str) -> Result<Option<Value>, Exit> {
    match agent {
        "" | "echo" | ECHO => Ok(Some(json!({ "name": ECHO }))),
        preset if acp::bundled_presets().iter().any(|id| id == preset) => {
            Ok(Some(json!({ "name": acp::NAME, "options": { "presets": [preset] } })))
        }
        other if bundled::plugins().iter().any(|plugin| plugin.spec == other) => {
            let presets = acp::bundled_presets();
            let or = match presets.is_empty() {
                true => String::new(),
                false => format!(", or one of {}", presets.join(", ")),
            };
            Err(Exit::usage(format!("{other} is not an agent; pass echo, which needs no model{or}")))
        }
        other => match meant(other) {
            Some(name) => Err(Exit::usage(format!(
                "no agent is called {other}; did you mean {name}? To install an npm package of that name, pass {other}@latest"
            ))),
            // It may be a preset, of which this program knows none; no package of that name is to be installed instead.
            None if bundled::is_left_out(acp::NAME) && is_bare(other) => Err(Exit::usage(format!(
                "{other} is unknown: {}, which has the presets; pass echo, or {other}@latest for an npm package",
                built_without("acp")
            ))),
            None => Ok(None),
        },
    }
}

/// Returns the similar bundled agent or plugin for a name. Paths, packages with a version and packages of other scopes
/// are used as given.
fn meant(agent: &str) -> Option<String> {
    let own = ECHO.rsplit_once('/').is_some_and(|(scope, _)| agent.starts_with(&format!("{scope}/")));
    let known: Vec<String> = match own {
        true => bundled::plugins().iter().map(|plugin| plugin.spec.to_owned()).collect(),
        false if !is_bare(agent) => Vec::new(),
        false => std::iter::once("echo".to_owned())
            .chain(acp::bundled_presets().iter().map(|id| id.to_string()))
            .collect(),
    };
    nearest(agent, known.iter().map(String::as_str)).map(str::to_owned)
}

/// Whether an agent is given by a name, and not by a path or a package with its scope or version.
fn is_bare(agent: &str) -> bool {
    !agent.contains(['/', '\\', ':', '.', '@'])
}

fn served(at: &Place, paths: &[PathBuf]) -> Result<Vec<String>, Exit> {
    let absolute = |path: &PathBuf| {
        let path = at.working_dir.join(path);
        match path.canonicalize() {
            Ok(path) if path.is_dir() => Ok(path.display().to_string()),
            _ => Err(Exit::usage(format!("--path: {} is not a directory", path.display()))),
        }
    };
    paths.iter().map(absolute).collect()
}

/// Installs the plugin of the agent and adds it to the new configuration; returns its spec.
async fn install(at: &Place, agent: &str) -> Result<String, Exit> {
    let files = at.files()?;
    let _progress = Progress::begin(&at.common, &format!("installing {agent}"));
    let installed =
        plugins::install(&files, &plugins::importer(at, &files), &at.working_dir, agent, true).await?;
    Ok(installed.spec)
}

fn write_new(file: &Path, text: &str, made: &mut CreatedFiles) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        made.folder(folder)?;
    }
    made.note(file.to_owned());
    let mut written = File::create_new(file)?;
    written.write_all(text.as_bytes())?;
    written.sync_all()
}
