//! `ostler files …`: import and export of the files that users edit, on a host whose stores are in a database.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use ostler_contract::json;

use crate::answer::Answer;
use crate::database;
use crate::edited_files::{EditedFolder, Force, Outcome};
use crate::exit::Exit;
use crate::place::Place;
use crate::verbs::users;

/// The `ostler files` commands.
#[derive(Debug, Clone, Subcommand)]
pub enum FilesVerb {
    /// Store automations, endpoints, bots, policies and users from files in the database
    Import(FilesFlags),
    /// Write automations, endpoints, bots, policies and users of the database to files
    Export(FilesFlags),
}

/// The flags of these commands.
#[derive(Debug, Clone, Default, Args)]
pub struct FilesFlags {
    /// Files or folders below the folder, such as automations/deploy.md [default: all]
    pub names: Vec<String>,
    /// Folder with the files [default: the configuration folder]
    #[arg(long, value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
    /// Further collection of records, besides webhooks and bots (repeatable)
    #[arg(long, value_name = "NAME")]
    pub collection: Vec<String>,
    /// Overwrite what differs
    #[arg(long)]
    pub overwrite: bool,
}

/// Runs the command; exit 1 if an item is left as it is because of a conflict.
///
/// # Errors
/// Exit 2 without a database; 1 if it or a file cannot be used.
pub async fn files(at: &Place, verb: FilesVerb) -> Result<Answer, Exit> {
    let files = at.files()?;
    let none = || {
        Exit::usage(
            "the stores of this host are files, which it reads when they change; this command is for hosts with @ostler/postgres",
        )
    };
    let direct = database::connect(&files).await?.ok_or_else(none)?;
    let users = files.config.users.as_ref().map_or_else(|| files.dir.join(users::FILE), PathBuf::from);
    let folder = |flags: &FilesFlags| match &flags.folder {
        Some(folder) => EditedFolder::elsewhere(&at.working_dir.join(folder), &flags.collection),
        None => EditedFolder::of_host(&files.dir, &files.state_dir, &flags.collection, Some(users.clone())),
    };
    let outcome = match &verb {
        FilesVerb::Import(flags) => {
            let force = Force { overwrite: flags.overwrite, remove: false };
            folder(flags).import(&direct, &flags.names, force).await
        }
        FilesVerb::Export(flags) => folder(flags).export(&direct, &flags.names, flags.overwrite).await,
    };
    Ok(answer(outcome.map_err(|why| Exit::machine(why.message))?))
}

fn answer(outcome: Outcome) -> Answer {
    let Outcome { stored, removed, written, conflicts, equal } = outcome;
    let mut lines = Vec::new();
    lines.extend(stored.iter().map(|name| format!("stored {name}")));
    lines.extend(removed.iter().map(|name| format!("removed {name}")));
    lines.extend(written.iter().map(|name| format!("wrote {name}")));
    lines.extend(conflicts.iter().map(|(name, why)| format!("conflict {name}: {why}")));
    let plural = if equal == 1 { "" } else { "s" };
    lines.push(format!("{equal} item{plural} equal in files and database"));
    let rows: Vec<_> = conflicts.iter().map(|(name, why)| json!({ "name": name, "problem": why })).collect();
    let json = json!({ "stored": stored, "removed": removed, "written": written, "conflicts": rows, "equal": equal });
    let names: Vec<String> = stored.into_iter().chain(written).collect();
    Answer { code: u8::from(!rows.is_empty()), ..Answer::new(lines, json).named(names) }
}
