//! `ostler plugin profile` and `ostler plugin memory`: measure a plugin of the running daemon.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use ostler_contract::json;

use crate::answer::Answer;
use crate::api::profile_shapes::{CpuProfile, LONGEST, PluginMemory, PluginProfile, ProfilePlugin};
use crate::api::rows::{PLUGIN_MEMORY, PLUGIN_PROFILE};
use crate::api::shapes::NamedPlugin;
use crate::daemon_file;
use crate::exit::Exit;
use crate::place::Place;
use crate::progress::Progress;
use crate::remote::Remote;

/// The `ostler plugin` commands that measure.
#[derive(Debug, Clone, Subcommand)]
pub enum MeasureVerb {
    /// Record a CPU profile of a plugin in the running daemon
    Profile {
        /// Plugin id or configured spec
        #[arg(value_name = "PLUGIN")]
        name: String,
        /// How long to record, at most 60 [default: 10]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(LONGEST)))]
        seconds: Option<u32>,
        /// File to write [default: <plugin>.cpuprofile]
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Show what a plugin has in memory in the running daemon
    Memory {
        /// Plugin id or configured spec
        #[arg(value_name = "PLUGIN")]
        name: String,
    },
}

/// Runs the command.
///
/// # Errors
/// Exit 1 if no profile can be recorded or written; exit 2 for a plugin that is unknown or not in JavaScript.
pub async fn measure(at: &Place, verb: MeasureVerb) -> Result<Answer, Exit> {
    let daemon = match at.remote()? {
        Some(remote) => remote,
        None => match daemon_file::running(&at.folders()?) {
            Some(record) => Remote::here(&record)?,
            None => return Ok(Answer::none_running("running")),
        },
    };
    match verb {
        MeasureVerb::Profile { name, seconds, out } => {
            let progress = Progress::begin(&at.common, "recording");
            let asked = ProfilePlugin { name, seconds };
            let PluginProfile { plugin, full, profile } = daemon.post(PLUGIN_PROFILE, &asked).await?;
            drop(progress);
            let file = out.unwrap_or_else(|| format!("{}.cpuprofile", plugin.replace('/', "-")).into());
            write(&at.working_dir.join(&file), &profile)?;
            let shown = file.display().to_string();
            let lines = std::iter::once(format!("Wrote {shown}.")).chain(profile.lines());
            let json =
                json!({ "plugin": plugin, "file": shown, "full": full, "functions": profile.summary() });
            let answer = Answer::new(lines, json).named([shown]);
            Ok(if full { answer.note(FULL) } else { answer })
        }
        MeasureVerb::Memory { name } => {
            let memory: PluginMemory = daemon.post(PLUGIN_MEMORY, &NamedPlugin { name }).await?;
            Ok(Answer::new(memory.lines(), json!(memory)).named([memory.plugin.clone()]))
        }
    }
}

/// What to know about a profile that ended early.
pub const FULL: &str = "The profile ended early: it has the maximum number of samples.";

/// Writes a profile to a file.
///
/// # Errors
/// Exit 1 if it cannot be written.
pub fn write(file: &Path, profile: &CpuProfile) -> Result<(), Exit> {
    let cannot = |why: &dyn std::fmt::Display| {
        Exit::machine(format!("cannot write the profile to {}: {why}", file.display()))
    };
    let text = serde_json::to_string(profile).map_err(|error| cannot(&error))?;
    std::fs::write(file, text).map_err(|error| cannot(&error))
}
