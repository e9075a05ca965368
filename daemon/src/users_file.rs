//! The users file on disk, written by one writer at a time.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ostler_contract::Thrown;
use ostler_contract::live::Pending;
use ostler_contract::users::{EditUsers, UsersStore};
use ostler_engine::users::UsersFile;
use ostler_ports::atomic::{self, Access};
use ostler_protocol::RpcError;

/// How often the file is checked. It is small, and its author waits until it takes effect.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How often a change is repeated if the file is edited at the same time.
const ATTEMPTS: usize = 10;

/// The users file.
#[derive(Debug, Clone)]
pub struct UsersOnDisk {
    path: Arc<PathBuf>,
}

/// Parses the text of a users file; no text has no users. `place` is where it is.
///
/// # Errors
/// A line with the place and the error, without content of the file.
pub fn parse(place: &str, text: Option<&str>) -> Result<UsersFile, String> {
    let named = |why: String| format!("{place}: {}", why.trim_start_matches('.'));
    let file = UsersFile::parse(text.unwrap_or_default()).map_err(named)?;
    file.directory().map_err(named)?;
    Ok(file)
}

impl UsersOnDisk {
    /// Creates it for a path.
    pub fn new(path: PathBuf) -> Self {
        Self { path: Arc::new(path) }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads its current content.
    ///
    /// # Errors
    /// A line with the path and the error, without content of the file.
    pub fn read(&self) -> Result<UsersFile, String> {
        parse(&self.place(), self.text()?.as_deref())
    }

    /// Returns the line for a missing file.
    pub(crate) fn absent(&self) -> Option<String> {
        let shown = self.path().display();
        (!self.path().exists()).then(|| format!("{shown} does not exist; no user can sign in until it does"))
    }

    /// Returns its text, if there is a file.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub(crate) fn text(&self) -> Result<Option<String>, String> {
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

    /// Changes the file. An unreadable file stays unchanged. If it is edited before the change is written, the change
    /// is applied to the new content.
    ///
    /// # Errors
    /// Why it could not be read or written, or why the change was rejected.
    fn edit(
        &self,
        edit: impl Fn(Option<&str>) -> Result<Option<String>, Thrown>,
    ) -> Result<Option<String>, Thrown> {
        let failed = |why: String| Thrown::from(RpcError::internal(why));
        let written = |error: std::io::Error| {
            failed(format!("{} could not be written: {error}", self.path().display()))
        };
        if let Some(folder) = self.path().parent() {
            atomic::make_folder(folder).map_err(written)?;
        }
        let _held = atomic::lock(self.path()).map_err(written)?;
        for _ in 0..ATTEMPTS {
            let before = self.text().map_err(failed)?;
            let Some(text) = edit(before.as_deref())? else { return Ok(before) };
            let before = before.as_deref().map(str::as_bytes);
            if atomic::replace(self.path(), before, text.as_bytes(), Access::Owner).map_err(written)? {
                return Ok(Some(text));
            }
        }
        Err(failed(atomic::edited(self.path())))
    }
}

/// Calls that block run on a thread for such work.
impl UsersStore for UsersOnDisk {
    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn read(&self) -> Pending<Option<String>> {
        let users = self.clone();
        Box::pin(async move {
            let read = tokio::task::spawn_blocking(move || users.text());
            read.await.map_err(Thrown::new)?.map_err(Thrown::new)
        })
    }

    fn change(&self, edit: EditUsers) -> Pending<Option<String>> {
        let users = self.clone();
        Box::pin(async move {
            tokio::task::spawn_blocking(move || users.edit(&*edit)).await.map_err(Thrown::new)?
        })
    }

    fn listen(&self, _: Arc<dyn Fn() + Send + Sync>) {}
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Changes the file as a host does.
    fn change(
        users: &UsersOnDisk,
        change: impl Fn(&mut UsersFile) -> Result<(), RpcError>,
    ) -> Result<Option<String>, Thrown> {
        users.edit(|text| crate::host_users::edited(&users.place(), text, &change))
    }

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
        let refused = change(&users, sign_in("ben", one)).unwrap_err();
        assert_eq!(refused.message, "unknown user ben");
        assert_eq!(fs::read_to_string(users.path()).unwrap(), one, "who was removed is not restored");
        assert_eq!(rounds.get(), 2);

        let more = r#"{"users":[{"id":"ada","roles":["guest"]}]}"#;
        change(&users, sign_in("ada", more)).unwrap();
        let written = fs::read_to_string(users.path()).unwrap();
        assert!(written.contains("guest") && written.contains("signedIn"), "{written}");
        // The first time is what counts.
        change(&users, |file| file.set_signed_in("ada", "2027-01-01T00:00:00Z")).unwrap();
        assert_eq!(fs::read_to_string(users.path()).unwrap(), written);

        // A file that never rests is not overwritten.
        fs::write(users.path(), both).unwrap();
        let always = |file: &mut UsersFile| {
            rounds.set(rounds.get() + 1);
            fs::write(users.path(), format!("{both}{}", " ".repeat(rounds.get()))).unwrap();
            file.set_signed_in("ben", "2026-01-01T00:00:00Z")
        };
        assert!(change(&users, always).unwrap_err().message.contains("was edited at the same time"));
        assert_eq!(fs::read_to_string(users.path()).unwrap().trim(), both);
    }
}
