//! The users file on disk: read at the start and after changes, and written by one writer at a time.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use ostler_contract::Thrown;
use ostler_engine::users::{Change, UsersFile};
use ostler_engine::{Host, Log, People};
use ostler_ports::atomic::{self, Access};
use ostler_protocol::RpcError;
use tokio::sync::Mutex;

use crate::settings::Settings;

/// How often the file is checked. It is small, and its author waits until it takes effect.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How often a change is repeated if the file is edited at the same time.
const ATTEMPTS: usize = 10;

/// The users file.
#[derive(Debug, Clone)]
pub struct UsersOnDisk {
    path: Arc<PathBuf>,
    /// The text in force, once it is followed. Locked from reading the file until its content is in force, so that no
    /// older content follows it.
    taking: Arc<Mutex<Option<Text>>>,
    /// The host that follows it.
    host: Arc<OnceLock<Weak<Host>>>,
}

/// The text of the file, if there is one, or why it cannot be read.
type Text = Result<Option<String>, String>;

impl UsersOnDisk {
    /// Creates it for a path.
    pub fn new(path: PathBuf) -> Self {
        Self { path: Arc::new(path), taking: Arc::default(), host: Arc::default() }
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads its current content.
    ///
    /// # Errors
    /// A line with the path and the error, without content of the file.
    pub fn read(&self) -> Result<UsersFile, String> {
        let text = self.text();
        self.parse(text.as_ref().map(Option::as_deref))
    }

    /// Returns the line for a missing file.
    pub(crate) fn absent(&self) -> Option<String> {
        let shown = self.path().display();
        (!self.path().exists()).then(|| format!("{shown} does not exist; no user can sign in until it does"))
    }

    /// Returns its text; empty if there is no file.
    fn text(&self) -> Result<Option<String>, String> {
        let read = || fs::read_to_string(self.path());
        // An editor that writes in place first empties it, and users must not lose their grants for that moment.
        let found = match read() {
            Ok(text) if text.trim().is_empty() => {
                std::thread::sleep(LOOK_EVERY);
                read()
            }
            found => found,
        };
        match found {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("{} could not be read: {error}", self.path().display())),
        }
    }

    fn parse(&self, text: Result<Option<&str>, &String>) -> Result<UsersFile, String> {
        let file = match text {
            Ok(text) => UsersFile::parse(text.unwrap_or_default()),
            Err(why) => return Err(why.clone()),
        };
        let named = |why: String| format!("{}: {}", self.path().display(), why.trim_start_matches('.'));
        let file = file.map_err(named)?;
        file.directory().map_err(named)?;
        Ok(file)
    }

    /// Changes the file. An unreadable file stays unchanged. If it is edited before the change is written, the change
    /// is applied to the new content.
    ///
    /// # Errors
    /// Why it could not be read or written, or why the change was rejected.
    pub fn change(
        &self,
        change: impl Fn(&mut UsersFile) -> Result<(), RpcError>,
    ) -> Result<UsersFile, RpcError> {
        let failed = |why: String| RpcError::internal(why);
        let written = |error: std::io::Error| {
            failed(format!("{} could not be written: {error}", self.path().display()))
        };
        if let Some(folder) = self.path().parent() {
            atomic::make_folder(folder).map_err(written)?;
        }
        let _held = atomic::lock(self.path()).map_err(written)?;
        for _ in 0..ATTEMPTS {
            let text = self.text().map_err(failed)?;
            let before = self.parse(Ok(text.as_deref())).map_err(failed)?;
            let mut file = before.clone();
            change(&mut file)?;
            let text = text.as_deref().map(str::as_bytes);
            if file == before
                || atomic::replace(self.path(), text, file.text().as_bytes(), Access::Owner)
                    .map_err(written)?
            {
                return Ok(file);
            }
        }
        Err(failed(atomic::edited(self.path())))
    }

    /// Returns its users, for a new host.
    pub fn people(&self, settings: &Settings, host_name: &str, log: &Log) -> Arc<People> {
        let resource = settings.resource.clone().unwrap_or_else(|| format!("https://{}", settings.address));
        let users = self.clone();
        let people = Arc::new_cyclic(|me: &Weak<People>| {
            let (me, reread) = (me.clone(), self.clone());
            People::new(&resource, host_name)
                .reread_by(Arc::new(move || {
                    let users = reread.clone();
                    Box::pin(async move {
                        users.look().await;
                    })
                }))
                .trusting(settings.trust_token)
                .issued_by(settings.issuer.clone())
                .written_by(Arc::new(move |change: Change| {
                    let (users, me) = (users.clone(), me.clone());
                    Box::pin(async move {
                        let _taking = users.taking.clone().lock_owned().await;
                        let changing = tokio::task::spawn_blocking(move || {
                            let file = users.change(change)?;
                            if let Some(people) = me.upgrade() {
                                people.set(file).map_err(RpcError::internal)?;
                            }
                            Ok::<(), RpcError>(())
                        });
                        changing.await.map_err(Thrown::new)?.map_err(Thrown::from)
                    })
                }))
        });
        self.absent().iter().for_each(|line| log.line(line));
        self.take(&people, self.read(), log);
        people
    }

    /// Applies the content. An invalid one is reported with a line, and the previous one stays in force.
    fn take(&self, people: &People, file: Result<UsersFile, String>, log: &Log) {
        let shown = self.path().display();
        match file.and_then(|file| people.set(file)) {
            Ok(lines) => lines.iter().for_each(|line| log.line(format_args!("{shown}: {line}"))),
            Err(why) => log.line(format_args!("{why}; keeping the last valid users and grants")),
        }
    }

    /// Reads it again after every change, until the host ends.
    pub fn follow(self, host: &Arc<Host>) {
        let _ = self.host.set(Arc::downgrade(host));
        if let Ok(mut seen) = self.taking.try_lock() {
            *seen = Some(self.text());
        }
        tokio::spawn(async move {
            let mut look = tokio::time::interval(LOOK_EVERY);
            loop {
                look.tick().await;
                if self.look().await.is_none() {
                    return;
                }
            }
        });
    }

    /// Reads it again, and applies it if it has changed. `None` once the host has ended.
    async fn look(&self) -> Option<()> {
        let users = self.clone();
        let mut seen = self.taking.lock().await;
        let text = tokio::task::spawn_blocking(move || users.text()).await.ok()?;
        let host = self.host.get()?.upgrade()?;
        if seen.as_ref() == Some(&text) {
            return Some(());
        }
        let text = &*seen.insert(text);
        let people = host.access.gate.people()?;
        if matches!(text, Ok(None)) {
            let shown = self.path().display();
            host.core.log.line(format_args!("{shown} was removed; keeping the last valid users and grants"));
            return Some(());
        }
        let file = self.parse(text.as_ref().map(Option::as_deref));
        self.take(people, file, &host.core.log);
        drop(seen);
        host.people_changed();
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// What is edited by hand between the host's reading and its writing stays.
    #[test]
    fn an_edit_that_falls_into_a_change_stays() {
        let dir = tempfile::tempdir().unwrap();
        let users = UsersOnDisk::new(dir.path().join("users.json"));
        let (both, one) = (r#"{"users":[{"id":"ada"},{"id":"ben"}]}"#, r#"{"users":[{"id":"ada"}]}"#);
        let rounds = Cell::new(0);
        let sign_in = |id: &'static str, edit: &'static str| {
            let (rounds, users) = (&rounds, &users);
            rounds.set(0);
            move |file: &mut UsersFile| {
                rounds.set(rounds.get() + 1);
                if rounds.get() == 1 {
                    fs::write(users.path(), edit).unwrap();
                }
                file.set_signed_in(id, "2026-01-01T00:00:00Z")
            }
        };
        fs::write(users.path(), both).unwrap();
        let refused = users.change(sign_in("ben", one)).unwrap_err();
        assert_eq!(refused.message, "unknown user ben");
        assert_eq!(fs::read_to_string(users.path()).unwrap(), one, "who was removed is not restored");
        assert_eq!(rounds.get(), 2);

        let more = r#"{"users":[{"id":"ada","roles":["guest"]}]}"#;
        users.change(sign_in("ada", more)).unwrap();
        let written = fs::read_to_string(users.path()).unwrap();
        assert!(written.contains("guest") && written.contains("signedIn"), "{written}");
        // The first time is what counts.
        users.change(|file| file.set_signed_in("ada", "2027-01-01T00:00:00Z")).unwrap();
        assert_eq!(fs::read_to_string(users.path()).unwrap(), written);

        // A file that never rests is not overwritten.
        fs::write(users.path(), both).unwrap();
        let always = |file: &mut UsersFile| {
            rounds.set(rounds.get() + 1);
            fs::write(users.path(), format!("{both}{}", " ".repeat(rounds.get()))).unwrap();
            file.set_signed_in("ben", "2026-01-01T00:00:00Z")
        };
        assert!(users.change(always).unwrap_err().message.contains("was edited at the same time"));
        assert_eq!(fs::read_to_string(users.path()).unwrap().trim(), both);
    }
}
