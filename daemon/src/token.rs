//! The connection token and its source.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use ostler_ports::atomic;
use ostler_server::Token;

use crate::exit::Exit;

/// The source of the connection token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenSource {
    /// A flag or a configuration file.
    Given(ostler_contract::Secret<String>),
    /// This file.
    File(PathBuf),
    /// None, as configured.
    Without,
    /// None by default: the host listens only on loopback addresses.
    Unsaid,
}

impl TokenSource {
    /// Reads the token; creates a missing file with a new one.
    ///
    /// # Errors
    /// A file that cannot be read or created, or is empty.
    pub fn token(&self) -> Result<Option<Token>, Exit> {
        Ok(self.text()?.map(Token::new))
    }

    /// Returns the token as text, for the record of the daemon.
    pub(crate) fn text(&self) -> Result<Option<String>, Exit> {
        match self {
            Self::Given(token) => Ok(Some(token.reveal().clone())),
            Self::File(path) => read_or_make(path).map(Some),
            Self::Without | Self::Unsaid => Ok(None),
        }
    }

    /// Returns the file that a start would create for a new token, if it is missing.
    ///
    /// # Errors
    /// A file that cannot be read, or is empty.
    pub(crate) fn missing(&self) -> Result<Option<&Path>, Exit> {
        match self {
            Self::File(path) => Ok(read(path)?.is_none().then_some(path)),
            Self::Given(_) | Self::Without | Self::Unsaid => Ok(None),
        }
    }

    /// Returns the line of the announcement, without the secret.
    pub fn line(&self) -> String {
        match self {
            Self::Given(_) => "connection token from the configuration".to_owned(),
            Self::File(path) => format!("connection token in {}", path.display()),
            Self::Without => "no connection token: connections from any address are accepted".to_owned(),
            Self::Unsaid => "no connection token: connections from this computer are accepted".to_owned(),
        }
    }
}

fn read_or_make(path: &Path) -> Result<String, Exit> {
    if let Some(token) = read(path)? {
        return Ok(token);
    }
    let token = fresh();
    make(path, &token)
        .map_err(|error| Exit::machine(format!("{} could not be created: {error}", path.display())))?;
    Ok(token)
}

/// Returns the token in a file; `None` if there is no file.
fn read(path: &Path) -> Result<Option<String>, Exit> {
    let shown = path.display();
    match fs::read_to_string(path) {
        Ok(text) if text.trim().is_empty() => {
            Err(Exit::usage(format!("{shown} is empty; remove it to create a new token")))
        }
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Exit::usage(format!("{shown} could not be read: {error}"))),
    }
}

/// Creates the file, complete or not at all: one without a token would be refused by the next start.
fn make(path: &Path, token: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        atomic::make_folder(folder)?;
    }
    let mut file = atomic::temporary(path)?;
    writeln!(file, "{token}")?;
    file.as_file().sync_all()?;
    file.persist_noclobber(path).map_err(|failed| failed.error)?;
    path.parent().map_or(Ok(()), atomic::sync_folder)
}

/// Returns a random token.
pub fn fresh() -> String {
    format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple())
}
