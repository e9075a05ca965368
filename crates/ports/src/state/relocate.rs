//! Moves the database of an earlier version to its current place.

use std::fs;
use std::path::Path;

use ostler_contract::Thrown;
use rusqlite::Connection;

use super::{StateDb, configure, log_of, schema, sentence, thrown};
use crate::atomic;

/// The outcome for a database at its former place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relocated {
    /// There is none.
    Unneeded,
    /// It is at its new place.
    Moved,
    /// The new place already has one, and this one is not used.
    Leftover,
}

impl StateDb {
    /// Moves the database of one folder to another, unless that has one. Its write-ahead log is merged into the file
    /// first, so that a single rename moves it. No process may have it open. Blocks.
    pub fn relocate(from: &Path, to: &Path) -> Result<Relocated, Thrown> {
        let (old, new) = (Self::file(from), Self::file(to));
        if from == to || fs::symlink_metadata(&old).is_err() {
            return Ok(Relocated::Unneeded);
        }
        if fs::symlink_metadata(&new).is_ok() {
            return Ok(Relocated::Leftover);
        }
        fold_log(&old)?;
        let failed = |error| {
            Thrown::new(format_args!("{} could not be moved to {}: {error}", old.display(), to.display()))
        };
        atomic::make_private_folder(to).map_err(failed)?;
        atomic::relocate(&old, &new).map_err(failed)?;
        Ok(Relocated::Moved)
    }
}

/// Merges the write-ahead log of a database into its file, and removes it.
fn fold_log(path: &Path) -> Result<(), Thrown> {
    let place = path.display().to_string();
    let failed = |error| Thrown::new(sentence(&place, &error));
    let connection = Connection::open(path).map_err(failed)?;
    schema::check(&connection, &place).map_err(|failure| thrown(&place, failure))?;
    let connection = configure(connection).map_err(failed)?;
    let busy: bool =
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| row.get(0)).map_err(failed)?;
    connection.close().map_err(|(_, error)| failed(error))?;
    // Closing the last connection removes them.
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if busy || log_of(&real).exists() {
        return Err(Thrown::new(format_args!("{place} is locked by another process; it cannot be moved")));
    }
    Ok(())
}
