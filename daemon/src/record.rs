//! The daemon that runs, as others find it: `daemon.json` beside the configuration, and a lock that says
//! whether what it says still holds.

use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ostler_ports::atomic::{self, Access};
use serde::{Deserialize, Serialize};

use crate::exit::Exit;

/// How long others may look while a daemon starts.
const LOOKED_AT: Duration = Duration::from_secs(1);

/// What a daemon says about itself while it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Its process.
    pub pid: u32,
    /// Where it listens.
    pub url: String,
    /// Where routes of plugins are, before `/plugins/`.
    pub routes: String,
    /// The same as `url` with the token; for this machine's user alone, as the whole file is.
    pub connect_url: String,
    /// The directories it serves.
    pub paths: Vec<String>,
    /// When it began to.
    pub started_at: String,
    /// Where automations are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub automations: Option<String>,
    /// The plugin that keeps the secrets, where one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vault: Option<String>,
    /// What plugins announced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub said: Vec<String>,
    /// How it was started, if it was detached and can be started again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// Where it was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathBuf>,
}

/// The record's file.
pub fn file(dir: &Path) -> PathBuf {
    dir.join("daemon.json")
}

/// The log of a detached daemon.
pub fn log_file(dir: &Path) -> PathBuf {
    dir.join("daemon.log")
}

fn lock_file(dir: &Path) -> PathBuf {
    dir.join("daemon.lock")
}

/// The daemon that runs on a configuration folder. A record of one that is gone is removed.
pub fn running(dir: &Path) -> Option<Record> {
    match look(dir) {
        Lock::Held => fs::read(file(dir)).ok().and_then(|text| serde_json::from_slice(&text).ok()),
        // None starts meanwhile, so what is removed is not the record of one that just did.
        Lock::Free(_ours) => {
            let _ = fs::remove_file(file(dir));
            None
        }
        Lock::None => None,
    }
}

/// The process that has a folder and has not said yet where it listens: it starts, or ends.
pub fn starting(dir: &Path) -> Option<u32> {
    (is_held(dir) && !file(dir).exists())
        .then(|| fs::read_to_string(lock_file(dir)).ok()?.trim().parse().ok())?
}

/// The lock of a folder.
enum Lock {
    /// A daemon has it.
    Held,
    /// None has it, and none takes it until this is dropped.
    Free(File),
    /// No daemon has been there.
    None,
}

fn look(dir: &Path) -> Lock {
    let Ok(lock) = File::open(lock_file(dir)) else { return Lock::None };
    match lock.try_lock_shared() {
        Err(TryLockError::WouldBlock) => Lock::Held,
        _ => Lock::Free(lock),
    }
}

fn is_held(dir: &Path) -> bool {
    matches!(look(dir), Lock::Held)
}

/// Why a second daemon does not start on a folder.
pub fn already(dir: &Path) -> String {
    match (running(dir), starting(dir)) {
        (Some(record), _) => format!("One is already running: {} (pid {})", record.url, record.pid),
        (None, Some(pid)) => format!("One is already starting (pid {pid})"),
        (None, None) => "One is already starting".to_owned(),
    }
}

/// The one daemon of a configuration folder, until dropped.
#[derive(Debug)]
pub struct Holding {
    dir: PathBuf,
    _lock: File,
}

impl Holding {
    /// Takes the folder.
    ///
    /// # Errors
    /// Exit 1 where another daemon has it.
    pub fn take(dir: &Path) -> Result<Self, Exit> {
        let path = lock_file(dir);
        let failed = |error| Exit::machine(format!("{} could not be made: {error}", path.display()));
        fs::create_dir_all(dir).map_err(failed)?;
        let mut options = File::options();
        options.write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let lock = options.open(&path).map_err(failed)?;
        let end = Instant::now() + LOOKED_AT;
        loop {
            match lock.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(error)) => return Err(failed(error)),
                Err(TryLockError::WouldBlock) => {
                    if running(dir).is_some() || Instant::now() >= end {
                        return Err(Exit::machine(format!("Could not start it: {}", already(dir))));
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        }
        let _ = fs::remove_file(file(dir));
        // For whoever wants to end it before it is up.
        let _ = lock.set_len(0).and_then(|()| (&lock).write_all(std::process::id().to_string().as_bytes()));
        Ok(Self { dir: dir.to_owned(), _lock: lock })
    }

    /// Writes the record, for its owner's eyes alone.
    ///
    /// # Errors
    /// Exit 1 with what the system says.
    pub fn record(&self, record: &Record) -> Result<(), Exit> {
        let path = file(&self.dir);
        let text = serde_json::to_string_pretty(record).unwrap_or_default() + "\n";
        atomic::write(&path, text.as_bytes(), Access::Owner)
            .map_err(|error| Exit::machine(format!("{} could not be written: {error}", path.display())))
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        let _ = fs::remove_file(file(&self.dir));
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
            connect_url: "ws://127.0.0.1:1/".to_owned(),
            paths: Vec::new(),
            started_at: "2026-01-01T00:00:00Z".to_owned(),
            automations: None,
            vault: None,
            said: Vec::new(),
            argv: None,
            cwd: None,
        }
    }

    #[test]
    fn a_record_holds_as_long_as_its_daemon_does() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        assert_eq!(running(dir), None);
        let holding = Holding::take(dir).unwrap();
        assert_eq!(running(dir), None, "it has not said anything yet");
        assert_eq!(starting(dir), Some(std::process::id()));
        holding.record(&record()).unwrap();
        assert_eq!(running(dir), Some(record()));
        let second = Holding::take(dir).unwrap_err().to_string();
        assert_eq!(second, "Could not start it: One is already running: ws://127.0.0.1:1 (pid 7)");
        assert_eq!(starting(dir), None, "it is up");
        drop(holding);
        assert_eq!((running(dir), starting(dir)), (None, None));
        // One that was killed leaves its record behind, and no lock.
        fs::write(file(dir), serde_json::to_string(&record()).unwrap()).unwrap();
        assert_eq!(running(dir), None);
        assert!(!file(dir).exists());
        drop(Holding::take(dir).unwrap());
    }

    #[cfg(unix)]
    #[test]
    fn nobody_else_reads_the_token_in_it() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let holding = Holding::take(dir.path()).unwrap();
        holding.record(&record()).unwrap();
        let mode = fs::metadata(file(dir.path())).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
