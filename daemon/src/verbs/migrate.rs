//! `ostler migrate`: moves a host from files to PostgreSQL and back.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use clap::{Args, ValueEnum};
use ostler_contract::stores::transfer::{Kind, Transfer};
use ostler_contract::{JsonObject, Thrown, Value, json};
use ostler_plugin_bot::BOTS;
use ostler_plugin_webhook::COLLECTIONS;
use ostler_ports::{Bodies, FileTransfer, Report, atomic};

use crate::answer::Answer;
use crate::config::{ConfigFiles, Folders, edit};
use crate::daemon_file::{self, Holding};
use crate::exit::Exit;
use crate::migrate::{Copied, copy};
use crate::parts::postgres::{Direct, ExclusiveSchema, NAME};
use crate::place::Place;
use crate::progress::Progress;
use crate::verbs::users;

/// The prefix of a folder with files that a migration moved aside, and of a copy of the configuration.
pub const ASIDE: &str = ".before-migrate-";

/// The format of the time in such names.
const STAMP: &str = "%Y%m%dT%H%M%SZ";

/// Where the data goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Destination {
    /// The database of @ostler/postgres
    Postgres,
    /// Files in the configuration folder, and the state database
    Files,
}

/// The flags of `ostler migrate`.
#[derive(Debug, Clone, Args)]
pub struct MigrateFlags {
    /// Where the data goes
    #[arg(long, value_enum, value_name = "STORE")]
    pub to: Destination,
    /// Database, without a password [default: option url of @ostler/postgres]
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Schema of the tables [default: option schema]
    #[arg(long, value_name = "NAME")]
    pub schema: Option<String>,
    /// File with the password; a relative path is in the configuration folder [default: option passwordFile]
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// File with the key of the vault; a relative path is in the configuration folder [default: option vaultKeyFile]
    #[arg(long, value_name = "FILE")]
    pub vault_key_file: Option<PathBuf>,
    /// Field of a collection of records that is the text below the frontmatter (repeatable)
    #[arg(long, value_name = "COLLECTION=FIELD")]
    pub body: Vec<String>,
    /// Enable or disable @ostler/postgres in the configuration after the copy
    #[arg(long)]
    pub write_config: bool,
    /// Move other data in the target aside: files into a folder, a schema to another name
    #[arg(long)]
    pub force: bool,
}

/// Copies all data of a host that does not run to its other stores, and verifies it.
///
/// # Errors
/// Exit 2 for invalid options; exit 1 if a daemon runs, the target has other data, or a store fails. The source is not
/// changed.
pub async fn migrate(at: &Place, flags: MigrateFlags) -> Result<Answer, Exit> {
    let files = at.files()?;
    let options = options(&files, &flags)?;
    let bodies = bodies(&flags.body)?;
    let folders = files.folders();
    if let Some(running) = daemon_file::running(&folders) {
        let (url, pid) = (running.url, running.pid);
        return Err(Exit::machine(format!(
            "{url} is running (pid {pid}) on these files; run ostler stop first"
        )));
    }
    let _held = Holding::take(&folders)?;
    let notes = Notes::default();
    let configured = files.config.users.as_ref().map(PathBuf::from);
    let users_file = configured.clone().unwrap_or_else(|| folders.config.join(users::FILE));
    let progress = Progress::begin(&at.common, "migrating");
    let direct = Direct::connect(&options, &folders.config).await.map_err(failed)?;
    let mut aside = None;
    let (from, to): (Box<dyn Transfer>, Box<dyn Transfer>) = match flags.to {
        Destination::Postgres => {
            let source = FileTransfer::source(&folders.config, &folders.state, bodies, notes.report());
            let source = source.map_err(failed)?;
            let schema = match flags.force {
                false => ExclusiveSchema::target(direct).await.map_err(failed)?,
                true => {
                    let name = stamp("%Y%m%dt%H%M%S");
                    let (schema, renamed) =
                        ExclusiveSchema::empty_target(direct, &name).await.map_err(failed)?;
                    aside = renamed.map(|name| format!("schema {name}"));
                    schema
                }
            };
            (Box::new(source.with_users(configured.clone())), Box::new(schema))
        }
        Destination::Files => {
            let schema = ExclusiveSchema::source(direct).await.map_err(failed)?;
            if flags.force {
                aside = set_aside(&folders, &users_file)?;
            }
            let target = FileTransfer::target(&folders.config, &folders.state, bodies, notes.report());
            (Box::new(schema), Box::new(target.map_err(failed)?.with_users(Some(users_file.clone()))))
        }
    };
    let hint = match flags.to {
        Destination::Postgres => "name another schema with --schema; --force renames this one",
        Destination::Files => "--force moves these files aside",
    };
    let copied = copy(&*from, &*to, hint, &mut |what| progress.say(what)).await?;
    drop(progress);
    let has_users = copied.iter().any(|one| one.kind == Kind::Users.name() && one.items > 0);
    // Without the key, a host with files checks no grants.
    let is_open = flags.to == Destination::Files && configured.is_none() && has_users;
    let changed = match flags.write_config {
        true => write_config(&files, flags.to, &options, is_open.then_some(&*users_file))?,
        false => None,
    };
    if is_open && !flags.write_config {
        notes.report().say(format!(
            "set \"users\": \"{0}\" in config.json before you start the host; without it, grants are not checked",
            users_file.display()
        ));
    }
    Ok(answer(&flags, (&from.place(), &to.place()), &copied, &options, (changed, aside), notes))
}

/// The time now, for names.
fn stamp(format: &str) -> String {
    jiff::Timestamp::now().strftime(format).to_string()
}

fn failed(why: Thrown) -> Exit {
    Exit::machine(why.message)
}

/// The lines that the stores report, each once.
#[derive(Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    fn report(&self) -> Report {
        let lines = self.0.clone();
        Report::new(move |line| {
            let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
            if !lines.contains(&line) {
                lines.push(line);
            }
        })
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The options of the plugin: those of the configuration, also of a disabled entry, with the flags in their place. Relative files are
/// in the configuration folder in both, because `--write-config` makes options of the flags.
fn options(files: &ConfigFiles, flags: &MigrateFlags) -> Result<JsonObject, Exit> {
    let entry = files.config.plugins.iter().flatten().find(|entry| entry.name == NAME);
    let mut options = entry.and_then(|entry| entry.options.clone()).unwrap_or_default();
    let mut set = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            options.insert(name.to_owned(), value.into());
        }
    };
    let file = |path: &Option<PathBuf>| path.as_ref().map(|path| path.to_string_lossy().into_owned());
    set("url", flags.url.clone());
    set("schema", flags.schema.clone());
    set("passwordFile", file(&flags.password_file));
    set("vaultKeyFile", file(&flags.vault_key_file));
    match options.contains_key("url") {
        true => Ok(options),
        false => Err(Exit::usage(format!(
            "no database is named; use --url, or add {NAME} with its options and \"enabled\": false to the plugins in the \
             configuration"
        ))),
    }
}

/// The body fields of the known collections, with those of the flags.
fn bodies(flags: &[String]) -> Result<Bodies, Exit> {
    let without = COLLECTIONS.into_iter().chain(["bot-chats", "notify-links", "automation-sessions"]);
    let mut bodies: Bodies = without.map(|name| (name.to_owned(), None)).collect();
    bodies.insert(BOTS.to_owned(), ostler_plugin_bot::bots_options().body);
    for flag in flags {
        let (collection, field) = flag
            .split_once('=')
            .filter(|(collection, field)| !collection.is_empty() && !field.is_empty())
            .ok_or_else(|| Exit::usage(format!("--body {flag}: write <collection>=<field>")))?;
        bodies.insert(collection.to_owned(), Some(field.to_owned()));
    }
    Ok(bodies)
}

/// Moves what a copy to files would write into folders beside it. Returns them.
fn set_aside(folders: &Folders, users: &Path) -> Result<Option<String>, Exit> {
    let stamp = stamp(STAMP);
    let mut moved = Vec::new();
    let mut stored = FileTransfer::stored(&folders.config, &folders.state).map_err(failed)?;
    stored.extend(users.exists().then(|| users.to_owned()));
    for path in stored {
        let system = |error: std::io::Error| Exit::machine(format!("{}: {error}", path.display()));
        let folder = path.parent().unwrap_or(Path::new(".")).join(format!("{ASIDE}{stamp}"));
        atomic::make_private_folder(&folder).map_err(system)?;
        fs::rename(&path, folder.join(path.file_name().unwrap_or_default())).map_err(system)?;
        moved.push(folder.display().to_string());
    }
    moved.dedup();
    Ok((!moved.is_empty()).then(|| moved.join(" and ")))
}

/// Enables or disables the plugin in the configuration, and keeps a copy of the file. Returns the file and its copy.
fn write_config(
    files: &ConfigFiles,
    to: Destination,
    options: &JsonObject,
    users: Option<&Path>,
) -> Result<Option<(PathBuf, PathBuf)>, Exit> {
    let stamp = stamp(STAMP);
    let mut copies = Vec::new();
    for file in &files.files {
        let mut name = file.clone().into_os_string();
        name.push(format!("{ASIDE}{stamp}"));
        let copy = PathBuf::from(name);
        fs::copy(file, &copy)
            .map_err(|error| Exit::machine(format!("{} could not be written: {error}", copy.display())))?;
        copies.push((file.clone(), copy));
    }
    let changed = edit(files, "plugins", |fields| {
        let plugins = fields.entry("plugins").or_insert_with(|| json!([]));
        let Some(entries) = plugins.as_array_mut() else {
            return Err(Exit::usage("plugins is not a list"));
        };
        let found = entries.iter().position(|entry| entry["name"] == NAME || *entry == NAME);
        let mut entry = found.map_or_else(|| json!({}), |at| entries.remove(at));
        if !entry.is_object() {
            entry = json!({});
        }
        entry["name"] = NAME.into();
        entry["options"] = Value::Object(options.clone());
        match to {
            Destination::Files => entry["enabled"] = false.into(),
            Destination::Postgres => {
                entry.as_object_mut().map(|fields| fields.shift_remove("enabled"));
            }
        }
        entries.insert(0, entry);
        if let Some(users) = users {
            fields.insert("users".to_owned(), users.to_string_lossy().into());
        }
        Ok(())
    })?;
    let mut written = None;
    for (file, copy) in copies {
        match changed.as_ref() == Some(&file) {
            true => written = Some((file, copy)),
            // Only of the file that was changed a copy stays.
            false => drop(fs::remove_file(copy)),
        }
    }
    Ok(written)
}

fn answer(
    flags: &MigrateFlags,
    (from, to): (&str, &str),
    copied: &[Copied],
    options: &JsonObject,
    (changed, aside): (Option<(PathBuf, PathBuf)>, Option<String>),
    notes: Notes,
) -> Answer {
    let mut lines = vec![format!("Copied {from} to {to}, and verified every item:")];
    for Copied { kind, items, copied, sha256 } in copied.iter().filter(|one| one.items > 0) {
        let before = match items - copied {
            0 => String::new(),
            there => format!(" ({there} were there)"),
        };
        lines.push(format!("  {kind:<26} {items:>9}  sha256 {}{before}", &sha256[..16]));
    }
    if copied.iter().all(|one| one.items == 0) {
        lines.push("  nothing, because there is no data".to_owned());
    }
    lines.push(format!("{from}: unchanged"));
    lines.extend(aside.iter().map(|folder| format!("What was there before is in {folder}.")));
    match (&changed, flags.to) {
        (Some((file, copy)), to) => {
            let how = if to == Destination::Postgres { "Enabled" } else { "Disabled" };
            lines.push(format!("{how} {NAME} in {}; a copy is {}.", file.display(), copy.display()));
        }
        (None, _) if flags.write_config => lines.push("The configuration is right as it is.".to_owned()),
        (None, Destination::Postgres) => {
            let entry = json!({ "name": NAME, "options": options });
            lines.push(format!("Make this the first of the plugins in config.json: {entry}"));
        }
        (None, Destination::Files) => {
            lines.push(format!("Set \"enabled\": false for {NAME} in config.json, or remove it."));
        }
    }
    lines.push("Next: ostler doctor, then ostler start".to_owned());
    let json = json!({
        "from": from, "to": to, "kinds": copied, "verified": true, "aside": aside,
        "configuration": changed.as_ref().map(|(file, _)| file.display().to_string()),
        "configurationCopy": changed.map(|(_, copy)| copy.display().to_string()),
    });
    let names: Vec<&str> = copied.iter().filter(|one| one.items > 0).map(|one| one.kind).collect();
    let mut answer = Answer::new(lines, json).named(names);
    for line in notes.take() {
        answer = answer.note(line);
    }
    answer.without_passwords()
}
