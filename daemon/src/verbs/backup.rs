//! `ostler backup` and `ostler restore`: the host's files in one archive.

use std::fs::File;
use std::io::{BufReader, BufWriter, IsTerminal as _, Read, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use ostler_contract::json;
use ostler_loader::PluginConfig;
use ostler_ports::atomic;
use ostler_protocol::names;

use crate::answer::Answer;
use crate::backup::{self, BackupSummary, Restored};
use crate::config::RunFlags;
use crate::daemon_file::{self, Holding};
use crate::database;
use crate::exit::Exit;
use crate::parts::acp;
use crate::place::Place;
use crate::progress::Progress;
use crate::settings::Settings;

/// Means standard input or output instead of a file.
const STREAM: &str = "-";

/// The options of bundled plugins that name files of the user.
const FILE_OPTIONS: &[(&str, &str)] = &[(acp::NAME, "registry")];

/// The flags of `ostler backup`.
#[derive(Debug, Clone, Args)]
pub struct BackupFlags {
    /// Archive to write, which must not exist; - for standard output
    pub file: PathBuf,
}

/// The flags of `ostler restore`.
#[derive(Debug, Clone, Args)]
pub struct RestoreFlags {
    /// Archive that `ostler backup` wrote; - for standard input
    pub file: PathBuf,
    /// Move an existing configuration and state aside
    #[arg(long)]
    pub force: bool,
}

/// Writes the configuration folder and the state database into one archive, also while the daemon runs.
///
/// # Errors
/// Exit 1 if the archive exists or a file cannot be read or written.
pub async fn backup(at: &Place, flags: BackupFlags) -> Result<Answer, Exit> {
    let folders = at.folders()?;
    if !folders.config.is_dir() {
        return Err(Exit::machine(format!(
            "{} does not exist; there is nothing to back up",
            folders.config.display()
        )));
    }
    let outside = outside(at);
    let database = at.files().ok().and_then(|files| database::options(&files));
    let created_at = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let progress = Progress::begin(&at.common, "backing up");
    let (file, at_time) = (flags.file.clone(), created_at.clone());
    let written = blocking(move || match is_stream(&file) {
        true => {
            let out = std::io::stdout();
            if out.is_terminal() {
                return Err(Exit::usage(
                    "an archive is not written to a terminal; name a file, or redirect the output",
                ));
            }
            let mut out = BufWriter::new(out.lock());
            let written = backup::write(&folders, at_time, &mut out)?;
            out.flush().map_err(|error| Exit::machine(format!("standard output: {error}")))?;
            Ok(written)
        }
        false => to_file(&file, |out| backup::write(&folders, at_time, out)),
    })
    .await?;
    drop(progress);
    let mut answer = told(&flags.file, created_at, written, outside);
    if let Some(options) = database {
        let line = database::backup_line(&options);
        answer.json["database"] = line.as_str().into();
        answer = answer.note(format!("not in the backup: {line}")).without_passwords();
    }
    Ok(answer)
}

/// Writes an archive to a temporary file, and renames it once it is complete and durable.
fn to_file(
    file: &Path,
    write: impl FnOnce(&mut BufWriter<&File>) -> Result<BackupSummary, Exit>,
) -> Result<BackupSummary, Exit> {
    let failed =
        |error: std::io::Error| Exit::machine(format!("{} could not be written: {error}", file.display()));
    let exists =
        || Exit::machine(format!("{} already exists; remove it, or name another file", file.display()));
    if std::fs::symlink_metadata(file).is_ok() {
        return Err(exists());
    }
    let archive = atomic::temporary(file).map_err(failed)?;
    let mut out = BufWriter::new(archive.as_file());
    let written = write(&mut out)?;
    out.flush().map_err(failed)?;
    drop(out);
    archive.as_file().sync_all().map_err(failed)?;
    archive.persist_noclobber(file).map_err(|refused| match refused.error.kind() {
        std::io::ErrorKind::AlreadyExists => exists(),
        _ => failed(refused.error),
    })?;
    atomic::sync_folder(
        file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")),
    )
    .map_err(failed)?;
    Ok(written)
}

fn told(file: &Path, created_at: String, written: BackupSummary, outside: Vec<String>) -> Answer {
    let BackupSummary { files, bytes, state, left_out } = written;
    let shown = file.display().to_string();
    let database = match &state {
        Some(path) => format!("the state database {}", path.display()),
        None => "no state database, because there is none".to_owned(),
    };
    let json = json!({
        "file": shown, "createdAt": created_at, "files": files, "bytes": bytes,
        "state": state.map(|path| path.display().to_string()), "leftOut": left_out, "outside": outside,
    });
    let line =
        format!("Backed up {files} files and {database} to {shown}. It contains secrets; keep it private.");
    let mut answer = Answer::new([line], json).named([shown]);
    for path in &left_out {
        answer = answer.note(format!("not in the backup: {path}"));
    }
    for path in &outside {
        answer =
            answer.note(format!("not in the backup, because it is outside the configuration folder: {path}"));
    }
    if is_stream(file) {
        // Standard output is the archive.
        answer.notes.insert(0, answer.text.trim_end().replace(" to -.", "."));
        answer.printed = true;
    }
    answer
}

/// Returns the files that the configuration names outside its folder. Empty if the configuration cannot be read,
/// because its user may need a backup right then.
fn outside(at: &Place) -> Vec<String> {
    let Ok(files) = at.files() else { return Vec::new() };
    let Ok(settings) = Settings::new(&RunFlags::default(), files, &at.working_dir) else { return Vec::new() };
    let token = match &settings.token {
        crate::token::TokenSource::File(file) => Some(file),
        _ => None,
    };
    let named = settings.files.iter().chain(&settings.users).chain(token).cloned();
    let of_plugins = settings.plugins.iter().flat_map(|plugin| of_plugin(plugin, &settings.dir, at));
    let dir = real(&settings.dir);
    let mut paths: Vec<String> = named
        .chain(of_plugins)
        .filter(|path| path.exists() && !real(path).starts_with(&dir))
        .map(|path| path.display().to_string())
        .collect();
    paths.sort();
    paths.dedup();
    paths
}

/// The module of a plugin if the configuration names its path, and the files that its options name.
fn of_plugin(plugin: &PluginConfig, dir: &Path, at: &Place) -> Vec<PathBuf> {
    let spec = plugin.name.as_str();
    let base = plugin.base.as_deref().unwrap_or(dir);
    let module = match spec.starts_with("file:") {
        true => url::Url::parse(spec).ok().and_then(|url| url.to_file_path().ok()),
        false => (spec.starts_with('.') || Path::new(spec).is_absolute()).then(|| base.join(spec)),
    };
    let options = FILE_OPTIONS.iter().filter(|(name, _)| *name == spec);
    let options = options.filter_map(|(_, option)| plugin.options.get(*option)?.as_str());
    module.into_iter().chain(options.map(|path| at.working_dir.join(path))).collect()
}

/// A path without links and `..`, to compare it.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Restores an archive into the folders of the configuration.
///
/// # Errors
/// Exit 1 if a daemon runs, files exist, or the archive is damaged; 2 for a file that is not a backup.
pub async fn restore(at: &Place, flags: RestoreFlags) -> Result<Answer, Exit> {
    let folders = at.future_folders()?;
    if let Some(running) = daemon_file::running(&folders) {
        let (url, pid) = (running.url, running.pid);
        return Err(Exit::machine(format!(
            "{url} is running (pid {pid}) on these files; run ostler stop first"
        )));
    }
    let progress = Progress::begin(&at.common, "restoring");
    let (RestoreFlags { file, force }, into) = (flags, folders.clone());
    let restored = blocking(move || {
        let source: Box<dyn Read> =
            match is_stream(&file) {
                true => Box::new(std::io::stdin().lock()),
                false => Box::new(File::open(&file).map_err(|error| {
                    Exit::machine(format!("{} could not be read: {error}", file.display()))
                })?),
            };
        let _held = Holding::take(&into)?;
        let stamp = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        backup::restore(&into, BufReader::new(source), force, &stamp)
    })
    .await?;
    drop(progress);
    let Restored { created_at, version, files, state, replaced } = restored;
    let config = folders.config.display();
    let with = if state { " and the state database" } else { "" };
    let mut lines =
        vec![format!("Restored {files} files{with} of {created_at} (ostler {version}) to {config}.")];
    let replaced: Vec<String> = replaced.iter().map(|path| path.display().to_string()).collect();
    lines.extend(replaced.iter().map(|path| format!("What was there before is in {path}.")));
    if folders.config.join("package.json").exists() && !folders.config.join("node_modules").exists() {
        lines.push(format!("Install its plugin packages: npm install --prefix {config}"));
    }
    if at.files().is_ok_and(|files| database::options(&files).is_some()) {
        lines.push(format!(
            "Its sessions, automations, records, secrets, users, policies and usage are in PostgreSQL, which this did not restore: see {}",
            names::page("postgres")
        ));
    }
    let program = at.common.program();
    lines.push(format!("Next: {program} doctor, then {program} start"));
    let json = json!({
        "createdAt": created_at, "version": version, "files": files, "state": state, "replaced": replaced,
        "config": config.to_string(),
    });
    Ok(Answer::new(lines, json).named([config.to_string()]))
}

fn is_stream(file: &Path) -> bool {
    file.as_os_str() == STREAM
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Exit> + Send + 'static,
) -> Result<T, Exit> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Exit::machine(format!("it ended unexpectedly: {error}"))))
}
