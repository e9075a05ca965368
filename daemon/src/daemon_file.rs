//! The record of the running daemon for other processes: `daemon.json` in its state folder, and a lock in its
//! configuration folder that shows whether the record is current and where it is.

use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ostler_engine::Links;
use ostler_ports::atomic::{self, Access};
use serde::{Deserialize, Serialize};

use crate::config::Folders;
use crate::exit::Exit;
use crate::process;

/// How long other processes can check the lock while a daemon starts.
const LOOKED_AT: Duration = Duration::from_secs(1);

/// The record of a running daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Its process id.
    pub pid: u32,
    /// Its address.
    pub url: String,
    /// The address of plugin routes, before `/plugins/`.
    pub routes: String,
    /// The beginning of the URLs under which others reach it, if that is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_url: Option<String>,
    /// `url` with the token; like the whole file, only for the owner.
    pub connect_url: String,
    /// The served directories.
    pub paths: Vec<String>,
    /// When it started.
    pub started_at: String,
    /// Its state folder; earlier versions had none and wrote beside the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<PathBuf>,
    /// Where automations are stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub automations: Option<String>,
    /// The plugin that stores the secrets, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vault: Option<String>,
    /// The announcements of plugins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub said: Vec<String>,
    /// The specs of its plugins with backends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backends: Vec<String>,
    /// The page of its web console, and its HTTP API, which URLs of sessions begin with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub console: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api: Option<String>,
    /// Its command line; earlier versions recorded it for detached daemons only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// Whether it runs in the foreground and cannot be restarted by another process.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub foreground: bool,
    /// Where it was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathBuf>,
}

impl Record {
    /// Returns the services that URLs of sessions and runs belong to.
    pub fn links(&self) -> Links {
        Links { console: self.console.clone(), api: self.api.clone() }
    }

    /// Returns whether it was started by `ostler start` and can be restarted.
    pub fn is_detached(&self) -> bool {
        self.argv.is_some() && !self.foreground
    }

    /// Returns the log of this daemon, if it is detached.
    pub fn log_file(&self, folders: &Folders) -> PathBuf {
        log_file(self.state.as_ref().unwrap_or(&folders.config))
    }
}

fn file(state: &Path) -> PathBuf {
    state.join("daemon.json")
}

/// Returns the log of a detached daemon with this state folder.
pub fn log_file(state: &Path) -> PathBuf {
    state.join("daemon.log")
}

fn lock_file(dir: &Path) -> PathBuf {
    dir.join("daemon.lock")
}

/// Returns the daemon that runs on a configuration folder. Removes the record of a killed one.
pub fn running(folders: &Folders) -> Option<Record> {
    match look(&folders.config) {
        Lock::Held(Some(holder)) => holder.record(folders),
        Lock::Held(None) => None,
        // No daemon starts in the meantime, so this does not remove the record of a new one.
        Lock::Free(_ours) => {
            remove_records(folders);
            None
        }
        Lock::None => None,
    }
}

/// Returns the process that has locked a folder and has no record: it starts or ends.
pub fn starting(folders: &Folders) -> Option<u32> {
    let Lock::Held(Some(holder)) = look(&folders.config) else { return None };
    (!holder.record_file(folders).exists()).then_some(holder.pid)
}

fn remove_records(folders: &Folders) {
    let _ = fs::remove_file(file(&folders.state));
    // The path of earlier versions.
    let _ = fs::remove_file(file(&folders.config));
}

/// The daemon that has a lock, from the lock's file: its process id and, on the next line, its state folder.
struct Holder {
    pid: u32,
    state: Option<PathBuf>,
}

impl Holder {
    fn read(lock: &Path) -> Option<Self> {
        let text = fs::read_to_string(lock).ok()?;
        let (pid, state) = text.split_once('\n').unwrap_or((&text, ""));
        let state = Some(state.trim_end_matches('\n')).filter(|state| !state.is_empty()).map(PathBuf::from);
        Some(Self { pid: pid.trim().parse().ok()?, state })
    }

    fn write(&self, mut lock: &File) -> std::io::Result<()> {
        let state = self.state.iter().map(|state| format!("\n{}\n", state.display())).collect::<String>();
        lock.set_len(0)?;
        lock.write_all(format!("{}{state}", self.pid).as_bytes())
    }

    fn record_file(&self, folders: &Folders) -> PathBuf {
        file(self.state.as_ref().unwrap_or(&folders.config))
    }

    fn record(&self, folders: &Folders) -> Option<Record> {
        serde_json::from_slice(&fs::read(self.record_file(folders)).ok()?).ok()
    }
}

/// The lock of a folder.
enum Lock {
    /// A daemon has it; which one is unknown at the moment of locking.
    Held(Option<Holder>),
    /// No daemon has it, and none can lock it until this is dropped.
    Free(File),
    /// No daemon has used the folder.
    None,
}

fn look(dir: &Path) -> Lock {
    let path = lock_file(dir);
    let Ok(lock) = File::open(&path) else { return Lock::None };
    match lock.try_lock_shared() {
        Err(TryLockError::WouldBlock) => Lock::Held(Holder::read(&path)),
        _ => Lock::Free(lock),
    }
}

/// Returns why a second daemon cannot start on a folder.
pub fn already(folders: &Folders) -> String {
    match (running(folders), starting(folders)) {
        (Some(record), _) => {
            format!("One is already running: {} (pid {}); stop it with: ostler stop", record.url, record.pid)
        }
        (None, Some(pid)) => format!("One is already starting (pid {pid})"),
        (None, None) => "One is already starting".to_owned(),
    }
}

/// The locks of a configuration folder and a state folder, until dropped.
#[derive(Debug)]
pub struct Holding {
    folders: Folders,
    _config: File,
    _state: Option<File>,
}

impl Holding {
    /// Locks the folders, and moves what earlier versions wrote beside the configuration into the state folder.
    ///
    /// # Errors
    /// Exit 1 if another daemon has locked one of them.
    pub fn take(folders: &Folders) -> Result<Self, Exit> {
        let Folders { config, state } = folders;
        // A process that a killed daemon was just starting still has its locks for a moment.
        let lock = taken(config, || running(folders).is_some_and(|record| process::runs(record.pid)))?
            .ok_or_else(|| Exit::machine(format!("Could not start it: {}", already(folders))))?;
        // Configurations can share a state folder; two daemons would write one database.
        let state_lock = match state == config {
            true => None,
            false => Some(taken(state, || holder_runs(state))?.ok_or_else(|| {
                let pid = Holder::read(&lock_file(state)).map(|holder| format!(" (pid {})", holder.pid));
                Exit::machine(format!(
                    "Could not start it: another daemon{} uses the state folder {}; set XDG_STATE_HOME to another folder",
                    pid.unwrap_or_default(),
                    state.display()
                ))
            })?),
        };
        remove_records(folders);
        move_log(folders);
        // For commands that stop it before it is up. If writing fails, they do not find it.
        let holder = Holder { pid: std::process::id(), state: Some(state.clone()) };
        let _ = holder.write(&lock);
        if let Some(state_lock) = &state_lock {
            let _ = holder.write(state_lock);
        }
        Ok(Self { folders: folders.clone(), _config: lock, _state: state_lock })
    }

    /// Writes the record, readable only by its owner.
    ///
    /// # Errors
    /// Exit 1 with the error of the system.
    pub fn record(&self, record: &Record) -> Result<(), Exit> {
        let path = file(&self.folders.state);
        let text = serde_json::to_string_pretty(record).unwrap_or_default() + "\n";
        atomic::write(&path, text.as_bytes(), Access::Owner)
            .map_err(|error| Exit::machine(format!("{} could not be written: {error}", path.display())))
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        let _ = fs::remove_file(file(&self.folders.state));
    }
}

/// Returns whether the daemon that has the lock of a folder runs, also if it has just locked it.
fn holder_runs(dir: &Path) -> bool {
    Holder::read(&lock_file(dir)).is_none_or(|holder| process::runs(holder.pid))
}

/// Locks a folder, which is created if missing. `None` if another process has it: a daemon according to `is_daemon`, or
/// one that keeps it longer than a check.
fn taken(dir: &Path, is_daemon: impl Fn() -> bool) -> Result<Option<File>, Exit> {
    let path = lock_file(dir);
    let failed = |error| Exit::machine(format!("{} could not be created: {error}", path.display()));
    atomic::make_private_folder(dir).map_err(failed)?;
    let mut options = File::options();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let lock = options.open(&path).map_err(failed)?;
    let end = Instant::now() + LOOKED_AT;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(Some(lock)),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
            Err(TryLockError::WouldBlock) if is_daemon() || Instant::now() >= end => return Ok(None),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Moves the log that earlier versions wrote beside the configuration into the state folder. If that fails, it stays,
/// and the new log begins empty.
pub fn move_log(folders: &Folders) {
    for name in ["daemon.log", "daemon.log.1"] {
        let (old, new) = (folders.config.join(name), folders.state.join(name));
        if old != new && old.exists() && !new.exists() {
            let _ = atomic::relocate(&old, &new);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            pid: 7,
            url: "ws://127.0.0.1:1".to_owned(),
            routes: "http://127.0.0.1:1".to_owned(),
            public_url: None,
            connect_url: "ws://127.0.0.1:1/".to_owned(),
            paths: Vec::new(),
            started_at: "2026-01-01T00:00:00Z".to_owned(),
            state: None,
            automations: None,
            vault: None,
            said: Vec::new(),
            backends: Vec::new(),
            console: None,
            api: None,
            argv: None,
            foreground: false,
            cwd: None,
        }
    }

    fn folders(dir: &Path) -> Folders {
        Folders { config: dir.join("config"), state: dir.join("state") }
    }

    #[test]
    fn a_record_holds_as_long_as_its_daemon_does() {
        let dir = tempfile::tempdir().unwrap();
        let folders = &folders(dir.path());
        assert_eq!(running(folders), None);
        let holding = Holding::take(folders).unwrap();
        assert_eq!(running(folders), None, "it has not said anything yet");
        assert_eq!(starting(folders), Some(std::process::id()));
        holding.record(&record()).unwrap();
        assert_eq!(running(folders), Some(record()));
        assert!(folders.state.join("daemon.json").exists() && !folders.config.join("daemon.json").exists());
        // A command with another environment finds it too.
        let elsewhere = Folders { state: dir.path().join("elsewhere"), ..folders.clone() };
        assert_eq!(running(&elsewhere), Some(record()));
        let second = Holding::take(&elsewhere).unwrap_err().to_string();
        assert_eq!(
            second,
            "Could not start it: One is already running: ws://127.0.0.1:1 (pid 7); stop it with: ostler stop"
        );
        assert_eq!(starting(folders), None, "it is up");
        drop(holding);
        assert_eq!((running(folders), starting(folders)), (None, None));
        // One that was killed leaves its record behind, and no lock.
        fs::write(file(&folders.state), serde_json::to_string(&record()).unwrap()).unwrap();
        assert_eq!(running(folders), None);
        assert!(!file(&folders.state).exists());
        drop(Holding::take(folders).unwrap());
    }

    #[test]
    fn a_process_that_has_the_locks_of_a_killed_daemon_for_a_moment_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let folders = &folders(dir.path());
        drop(Holding::take(folders).unwrap());
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let record = Record { pid: ended.id(), ..record() };
        fs::write(file(&folders.state), serde_json::to_string(&record).unwrap()).unwrap();
        let locks = [&folders.config, &folders.state].map(|folder| {
            let lock = File::options().write(true).open(lock_file(folder)).unwrap();
            let holder = Holder { pid: ended.id(), state: Some(folders.state.clone()) };
            holder.write(&lock).unwrap();
            lock.lock().unwrap();
            lock
        });
        let child = std::thread::spawn(move || {
            // Longer than the other thread takes until it finds the locks taken.
            std::thread::sleep(Duration::from_millis(100));
            drop(locks);
        });
        drop(Holding::take(folders).unwrap());
        child.join().unwrap();
    }

    #[test]
    fn two_configurations_with_one_state_folder_have_one_daemon() {
        let dir = tempfile::tempdir().unwrap();
        let one = folders(dir.path());
        let other = Folders { config: dir.path().join("other"), ..one.clone() };
        let holding = Holding::take(&one).unwrap();
        let refused = Holding::take(&other).unwrap_err().to_string();
        let (pid, state) = (std::process::id(), one.state.display());
        assert_eq!(
            refused,
            format!(
                "Could not start it: another daemon (pid {pid}) uses the state folder {state}; set XDG_STATE_HOME to another folder"
            )
        );
        drop(holding);
        drop(Holding::take(&other).unwrap());
        let both = Folders { config: one.state.clone(), state: one.state };
        drop(Holding::take(&both).unwrap());
    }

    #[test]
    fn what_an_earlier_version_wrote_beside_the_configuration_is_found_and_moved() {
        let dir = tempfile::tempdir().unwrap();
        let folders = folders(dir.path());
        // A daemon of the earlier version: its process in the lock, its record beside it.
        let lock = taken(&folders.config, || true).unwrap().unwrap();
        (&lock).write_all(b"7").unwrap();
        fs::write(file(&folders.config), serde_json::to_string(&record()).unwrap()).unwrap();
        fs::write(log_file(&folders.config), "a line\n").unwrap();
        fs::write(folders.config.join("daemon.log.1"), "an older line\n").unwrap();
        assert_eq!(running(&folders), Some(record()));
        assert_eq!(record().log_file(&folders), log_file(&folders.config));
        drop(lock);
        let _holding = Holding::take(&folders).unwrap();
        assert!(!file(&folders.config).exists());
        assert!(!log_file(&folders.config).exists());
        assert_eq!(fs::read_to_string(log_file(&folders.state)).unwrap(), "a line\n");
        assert_eq!(fs::read_to_string(folders.state.join("daemon.log.1")).unwrap(), "an older line\n");
    }

    #[cfg(unix)]
    #[test]
    fn only_its_owner_reads_the_token_in_it() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let folders = folders(dir.path());
        let holding = Holding::take(&folders).unwrap();
        holding.record(&record()).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&file(&folders.state)), mode(&folders.state)), (0o600, 0o700));
    }
}
