//! The vault in a file: `vault.json`, one object of names and values, readable only by its owner.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ostler_contract::call::Answering;
use ostler_contract::live::{Pending, ready};
use ostler_contract::points::Vault;
use ostler_contract::problems::{Finding, ProblemKind};
use ostler_contract::protocol::error::no_json;
use ostler_contract::{Call, JsonObject, Thrown, Value, VaultName};
use tokio::time::Instant;

use crate::Report;
use crate::atomic::{self, Access};
use crate::stamp::Stamp;
use crate::worker::Worker;

/// How long cached values are returned without a check of the file. Every webhook call reads a secret, and the check
/// costs more than the answer.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Secrets in `<configDir>/vault.json`. An edit by hand or by another process takes effect within 20 ms; one through
/// this store takes effect immediately.
pub struct FileVault {
    path: PathBuf,
    file: Worker<VaultFile>,
    latest: Latest,
}

/// The content of the file at the last check, and the time of that check.
#[derive(Clone, Default)]
struct Latest(Arc<Mutex<Option<(Instant, JsonObject)>>>);

impl Latest {
    fn put(&self, looked: Instant, held: &JsonObject) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((looked, held.clone()));
    }

    fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Returns the value of a name; `None` if the file has to be checked again.
    fn get(&self, name: &str) -> Option<Option<String>> {
        let latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, held) = latest.as_ref().filter(|(at, _)| at.elapsed() < LOOK_EVERY)?;
        Some(held.get(name).and_then(Value::as_str).map(str::to_owned))
    }
}

impl FileVault {
    /// The name of the file.
    pub const FILE: &str = "vault.json";

    /// Creates the vault of a configuration folder. The first secret creates the file.
    pub fn new(config_dir: &Path, report: Report) -> Result<Self, Thrown> {
        let path = config_dir.join(Self::FILE);
        let latest = Latest::default();
        let file = VaultFile {
            path: path.clone(),
            report,
            seen: None,
            held: Ok(JsonObject::new()),
            open: false,
            latest: latest.clone(),
        };
        let file = Worker::start("vault", file)
            .map_err(|error| Thrown::new(format_args!("the vault cannot start a thread: {error}")))?;
        Ok(Self { path, file, latest })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the vault as its registration point declares it.
    pub fn into_point(self: Arc<Self>) -> Vault {
        let (get, set, delete, list) = (self.clone(), self.clone(), self.clone(), self);
        Vault {
            get: Call::either(move |(name,): (String,)| match VaultName::parse(&name) {
                Ok(_) => match get.latest.get(&name) {
                    Some(value) => Answering::Now(Ok(value)),
                    None => {
                        // Uses the clock of the caller, because tests cannot pause that of a separate thread.
                        let looked = Instant::now();
                        Answering::Later(get.with(name, move |file, name| file.get(name, looked)))
                    }
                },
                Err(wrong) => Answering::Now(Err(wrong.into())),
            }),
            set: Call::new(move |(name, value): (String, String)| {
                set.with(name, |file, name| {
                    file.change(|held| (held.insert(name.to_string(), value.into()), ()).1)
                })
            }),
            delete: Call::new(move |(name,): (String,)| {
                delete.file.ask(move |file| {
                    let existed = file.change(|held| held.shift_remove(&name).is_some())?;
                    match VaultName::parse(&name) {
                        // A name that an earlier version accepted can be deleted, though no other use of it is accepted.
                        Err(wrong) if !existed => Err(wrong.into()),
                        _ => Ok(existed),
                    }
                })
            }),
            list: Call::new(move |()| list.file.ask(|file| file.list())),
            close: None,
        }
    }

    fn with<T: Send + 'static>(
        &self,
        name: String,
        job: impl FnOnce(&mut VaultFile, VaultName) -> Result<T, Thrown> + Send + 'static,
    ) -> Pending<T> {
        match VaultName::parse(&name) {
            Ok(name) => self.file.ask(|file| job(file, name)),
            Err(wrong) => ready(Err(wrong.into())),
        }
    }
}

/// The file as it was last read.
struct VaultFile {
    path: PathBuf,
    report: Report,
    seen: Option<Stamp>,
    /// Its content, or why it cannot be read. Never printed.
    held: Result<JsonObject, String>,
    /// Whether other users can read it.
    open: bool,
    /// Answers for a short time without the thread.
    latest: Latest,
}

impl VaultFile {
    fn get(&mut self, name: VaultName, looked: Instant) -> Result<Option<String>, Thrown> {
        let latest = self.latest.clone();
        let held = self.read()?;
        latest.put(looked, held);
        Ok(held.get(&name.to_string()).and_then(Value::as_str).map(str::to_owned))
    }

    fn list(&mut self) -> Result<Vec<String>, Thrown> {
        let mut names: Vec<_> = self
            .read()?
            .iter()
            .filter(|(name, value)| problem(name, value).is_none())
            .map(|(name, _)| name.clone())
            .collect();
        names.sort_unstable();
        Ok(names)
    }

    fn change<T>(&mut self, change: impl FnOnce(&mut JsonObject) -> T) -> Result<T, Thrown> {
        let failed = |path: &Path, error| {
            Thrown::new(format_args!("{} could not be written: {error}", path.display()))
        };
        let folder = self.path.parent().unwrap_or(Path::new("."));
        atomic::make_folder(folder).map_err(|error| failed(folder, error))?;
        self.latest.forget();
        // Another process can set a secret at the same time.
        let _held = atomic::lock(&self.path).map_err(|error| failed(&self.path, error))?;
        let before = match fs::read(&self.path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(Thrown::new(self.broken(&error.to_string()))),
        };
        let read = before.as_deref().map_or_else(|| Ok(JsonObject::new()), parse);
        let read = read.map_err(|why| Thrown::new(self.broken(&why)))?;
        let mut held = read.clone();
        let answer = change(&mut held);
        if read != held {
            let text = format!("{:#}\n", Value::Object(held));
            let replaced = atomic::replace(&self.path, before.as_deref(), text.as_bytes(), Access::Owner);
            if !replaced.map_err(|error| failed(&self.path, error))? {
                return Err(Thrown::new(atomic::edited(&self.path)));
            }
        }
        Ok(answer)
    }

    /// Returns the current content of the file, and reads it only if it has changed.
    fn read(&mut self) -> Result<&JsonObject, Thrown> {
        match fs::metadata(&self.path) {
            Ok(found) => {
                if !self.seen.is_some_and(|seen| seen.still(&found)) {
                    let before = self.seen.replace(Stamp::before_reading(&found));
                    let held =
                        fs::read(&self.path).map_err(|error| error.to_string()).and_then(|text| parse(&text));
                    // A file that is read again only because it was just written is not reported again.
                    if before.is_none() || held != self.held {
                        self.tell(&held);
                    }
                    self.held = held;
                    self.warn(open_to_others(&found));
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.seen = None;
                self.report.set(ProblemKind::Vault, &self.path.display().to_string(), Vec::new());
                self.held = Ok(JsonObject::new());
            }
            Err(error) => {
                self.seen = None;
                self.held = Err(error.to_string());
            }
        }
        self.held.as_ref().map_err(|why| Thrown::new(self.broken(why)))
    }

    fn broken(&self, why: &str) -> String {
        format!("the vault is unavailable until {} is fixed: {why}", self.path.display())
    }

    fn tell(&self, held: &Result<JsonObject, String>) {
        let path = self.path.display().to_string();
        let findings: Vec<Finding> = match held {
            Ok(held) => {
                let ignored = held.iter().filter_map(|(name, value)| problem(name, value));
                ignored.map(|why| Finding::warning(format!("{path}: {why}; ignored"))).collect()
            }
            Err(why) => vec![Finding::error(self.broken(why))],
        };
        findings.iter().for_each(|finding| self.report.say(finding.found.clone()));
        let fix = "correct the file; ostler vault lists and sets secrets";
        let findings = findings.into_iter().map(|finding| finding.fixed_by(fix)).collect();
        self.report.set(ProblemKind::Vault, &path, findings);
    }

    fn warn(&mut self, open: bool) {
        if open && !self.open {
            let path = self.path.display();
            self.report
                .say(format!("{path} is readable by other users of this computer; run chmod 600 {path}"));
        }
        self.open = open;
    }
}

fn parse(text: &[u8]) -> Result<JsonObject, String> {
    if text.trim_ascii().is_empty() {
        return Ok(JsonObject::new());
    }
    match serde_json::from_slice(text) {
        Ok(Value::Object(held)) => Ok(held),
        Ok(_) => Err("must be an object of names and values".to_owned()),
        Err(error) => Err(no_json(&error)),
    }
}

fn problem(name: &str, value: &Value) -> Option<String> {
    match (VaultName::parse(name), value) {
        (Err(wrong), _) => Some(format!("{name} is not a vault name: {wrong}")),
        (Ok(name), value) if !value.is_string() => Some(format!("the value of {name} must be text")),
        _ => None,
    }
}

#[cfg(unix)]
fn open_to_others(found: &fs::Metadata) -> bool {
    std::os::unix::fs::PermissionsExt::mode(&found.permissions()) & 0o077 != 0
}

#[cfg(not(unix))]
fn open_to_others(_: &fs::Metadata) -> bool {
    false
}
