//! `ostler plugin new` and `ostler plugin check`, for plugin authors.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Subcommand;
use ostler_contract::id::SLUG_RULE;
use ostler_contract::{Value, json};
use ostler_telemetry::printable::one_line;

use super::measure;
use crate::answer::Answer;
use crate::api::profile_shapes::CpuProfile;
use crate::exit::Exit;
use crate::place::Place;
use crate::plugin_check::{Checked, CheckedEntry, EntryFlags, Measures, PluginCheck, Print};
use crate::plugin_new::plugin_new;
use crate::progress::Progress;
use crate::signals::Signals;
use crate::sources::Sources;

/// The `ostler plugin` commands for plugin authors.
#[derive(Debug, Clone, Subcommand)]
pub enum AuthorVerb {
    /// Create a plugin with a test in a new folder
    New {
        #[arg(help = format!("Name of the plugin: {SLUG_RULE}"))]
        name: String,
    },
    /// Load one plugin, list its registrations and problems, and run its tests
    Check {
        /// Package or path of the plugin
        spec: String,
        /// Plugin option: <key>[.<key>]=<value> (repeatable)
        #[arg(long, value_name = "OPTION")]
        option: Vec<String>,
        /// Grant of the plugin's connection, such as bot:get (repeatable)
        #[arg(long, value_name = "GRANT")]
        grant: Vec<String>,
        /// Where the plugin may listen: <host>:<port> or the path of a socket (repeatable)
        #[arg(long, value_name = "ADDRESS")]
        listen: Vec<String>,
        /// Repeat the check when a file of the plugin changes
        #[arg(long)]
        watch: bool,
        /// Record a CPU profile of the plugin and its tests in this file
        #[arg(long, value_name = "FILE")]
        cpu_profile: Option<PathBuf>,
        /// Show what the plugin has in memory once it has started
        #[arg(long)]
        heap: bool,
    },
}

/// Runs the command.
///
/// # Errors
/// Exit 2 for an invalid argument, 1 for a failure of the machine.
pub async fn author(at: &Place, verb: AuthorVerb) -> Result<Answer, Exit> {
    match verb {
        AuthorVerb::New { name } => new(at, &name),
        AuthorVerb::Check { spec, option, grant, listen, watch, cpu_profile, heap } => {
            let measures = Measures { cpu: cpu_profile.is_some(), heap };
            let flags = EntryFlags { option, grant, listen };
            check(at, spec, &flags, watch, measures, cpu_profile.as_deref()).await
        }
    }
}

/// Writes a new plugin below the working directory.
///
/// # Errors
/// Exit 2 for a name that is not a slug, or a folder that is not empty.
fn new(at: &Place, name: &str) -> Result<Answer, Exit> {
    let folder = plugin_new(name, &at.working_dir)?;
    let shown = folder.display().to_string();
    let lines = [
        format!("Created {shown}."),
        format!(
            "Check it with: ostler plugin check ./{name}. Install it with: ostler plugin install ./{name}."
        ),
    ];
    Ok(Answer::new(lines, json!({ "name": name, "folder": shown })).named([shown]))
}

/// Loads one plugin into a separate host, with its configured entry if it has one, and prints what is found as it is
/// found. Exit 1 if it has problems, uncaught errors, or failed tests. `watch` repeats this after each change, until a
/// signal to stop. A CPU profile is written to the file `profile`.
///
/// # Errors
/// Exit 2 for an invalid flag or configuration, 1 if no host can be composed.
async fn check(
    at: &Place,
    spec: String,
    flags: &EntryFlags,
    watch: bool,
    measures: Measures,
    profile: Option<&Path>,
) -> Result<Answer, Exit> {
    // A plugin can be checked anywhere, also where no configuration has a place. One that cannot be read is not taken for none: the
    // plugin would be checked without its entry.
    let files = if at.can_have_files() { Some(at.files()?) } else { None };
    let config_dir = files.as_ref().map_or_else(|| at.working_dir.clone(), |files| files.dir.clone());
    let (mut signals, _sender) = Signals::listen(false)?;
    // The entry of the files as they are now; a later change of them is no change of the plugin.
    let entry = CheckedEntry::find(&spec, &at.working_dir, files.as_ref()).with(flags)?;
    let javascript = files.and_then(|files| files.config.javascript).unwrap_or_default();
    let check = PluginCheck { entry, javascript, working_dir: at.working_dir.clone(), config_dir, measures };
    let streams = !at.common.json && !at.common.quiet;
    loop {
        let sources = Sources::default();
        let progress = Arc::new(Progress::begin(&at.common, "checking"));
        let around = progress.clone();
        let print: Print = Arc::new(move |line| {
            if streams {
                around.print(line);
            }
        });
        let checked = tokio::select! {
            checked = check.run(&sources, print) => checked?,
            () = signals.stop() => return Err(Exit::machine("stopped before the check completed")),
        };
        let mut answer = answer_of(&checked, at.common.verbose);
        if let Some(memory) = &checked.memory {
            answer.json["memory"] = json!(memory);
        }
        if let (Some(file), Some(recorded)) = (profile, &checked.profile) {
            let profile = CpuProfile::of(recorded.clone());
            measure::write(&at.working_dir.join(file), &profile)?;
            let shown = file.display().to_string();
            if streams {
                progress.print(&format!("Wrote {shown}."));
                profile.lines().iter().for_each(|line| progress.print(&one_line(line)));
            }
            if recorded.is_full {
                answer.notes.push(measure::FULL.to_owned());
            }
            answer.json["profile"] =
                json!({ "file": shown, "full": recorded.is_full, "functions": profile.summary() });
        }
        drop(progress);
        if streams {
            // Already printed.
            answer.text.clear();
        }
        if !watch {
            return Ok(answer);
        }
        answer.print(&at.common);
        let _ = writeln!(std::io::stderr(), "watching {spec} for changes");
        tokio::select! {
            file = sources.changed() => {
                let _ = writeln!(std::io::stderr(), "{} changed", file.display());
            }
            () = signals.stop() => return Ok(Answer { printed: true, code: answer.code, ..Answer::default() }),
        }
    }
}

fn answer_of(checked: &Checked, verbose: bool) -> Answer {
    let mut answer = Answer::new(&checked.lines, json_of(checked)).named(checked.id.clone());
    if verbose {
        answer.notes.clone_from(&checked.loading);
    }
    answer.code = u8::from(!checked.holds());
    answer
}

fn json_of(checked: &Checked) -> Value {
    let registered = checked.registered.iter();
    let registered: Vec<Value> =
        registered.map(|row| json!({ "method": row.method, "name": row.name, "at": row.at })).collect();
    let refused: Vec<Value> =
        checked.refused.iter().map(|row| json!({ "line": row.line, "at": row.at })).collect();
    let tests = checked.tests.iter().map(|(file, tested)| {
        let row = |test: &ostler_js::TestResult| {
            let outcome = format!("{:?}", test.outcome).to_lowercase();
            json!({ "name": test.name, "outcome": outcome, "why": test.why, "at": test.at })
        };
        let results: Vec<Value> = tested.results.iter().map(row).collect();
        let mut shown = json!({ "file": file.display().to_string(), "tests": results });
        if let (Some(shown), Some(problem)) = (shown.as_object_mut(), &tested.problem) {
            shown.insert("problem".to_owned(), problem.for_log().into());
        }
        shown
    });
    json!({
        "id": checked.id, "file": checked.file, "holds": checked.holds(), "registered": registered,
        "refused": refused, "said": checked.said, "log": checked.log, "uncaught": checked.uncaught, "tests": tests.collect::<Vec<_>>(),
    })
}
