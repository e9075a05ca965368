//! Copies of the database while a host writes to it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ostler_contract::Thrown;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use super::{BUSY, StateDb, refuse_cut, schema, sentence, thrown};

/// How long to wait for another process's lock of the file.
const RETRY: Duration = Duration::from_millis(20);

impl StateDb {
    /// Copies the database that a start would open into `copy`, an empty file or none, as it is at one moment; the host
    /// can run and write at the same time. Returns the copied file, or `None` if there is none. Rejects what
    /// [`StateDb::open`] rejects. Blocks.
    pub fn copy_to(former: &Path, dir: &Path, copy: &Path) -> Result<Option<PathBuf>, Thrown> {
        let Some(path) = Self::found(former, dir) else { return Ok(None) };
        let place = path.display().to_string();
        refuse_cut(&path, &place)?;
        let failed = |error| Thrown::new(sentence(&place, &error));
        let source = readable(&path).map_err(failed)?;
        schema::check(&source, &place).map_err(|failure| thrown(&place, failure))?;
        let target = copy.display().to_string();
        let unwritten = |error| Thrown::new(format_args!("{place} could not be copied to {target}: {error}"));
        let mut written = Connection::open(copy).map_err(unwritten)?;
        let backup = Backup::new(&source, &mut written).map_err(unwritten)?;
        // All pages in one step, because a write of the host between two steps would restart the copy.
        let end = Instant::now() + BUSY;
        loop {
            match backup.step(-1).map_err(unwritten)? {
                StepResult::Done => return Ok(Some(path)),
                _ if Instant::now() < end => std::thread::sleep(RETRY),
                _ => {
                    return Err(Thrown::new(format_args!("{place} is locked by another program; try again")));
                }
            }
        }
    }

    /// Checks every page of a copy that no process has open: it must be complete, from ostler, and not from a newer
    /// version. Blocks.
    pub fn verify(copy: &Path) -> Result<(), Thrown> {
        let place = copy.display().to_string();
        let failed = |error| Thrown::new(sentence(&place, &error));
        let connection = super::untouched(copy).map_err(failed)?;
        schema::check(&connection, &place).map_err(|failure| thrown(&place, failure))?;
        let found: String =
            connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)).map_err(failed)?;
        match found.as_str() {
            "ok" => Ok(()),
            damage => Err(Thrown::new(format_args!("{place} is damaged: {damage}"))),
        }
    }
}

/// Opens a database for reading, also while a host has it open.
fn readable(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    Ok(connection)
}
