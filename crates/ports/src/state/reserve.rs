//! The write-ahead log's file at its usual size from the start.
//!
//! A commit that lengthens the file has to store its new length as well, which takes half again as long as writing over
//! what is there. SQLite begins the log anew once it holds [`PAGES`] pages, so a log of that size is written over for as
//! long as the host runs.

use std::fs::OpenOptions;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;

use rusqlite::Connection;

use super::{execute, log_of};

/// Pages of the log after which SQLite brings it into the database (`wal_autocheckpoint`, its default).
const PAGES: u64 = 1000;
/// What the log adds to each page of the database.
pub(super) const FRAME_HEADER: u64 = 24;
/// A page of the database, as the log has it.
const FRAME: u64 = 4096 + FRAME_HEADER;
/// What the log begins with.
pub(super) const HEADER: u64 = 32;
const SIZE: u64 = HEADER + PAGES * FRAME;
/// How much is written at once.
static PIECE: [u8; 64 << 10] = [0; 64 << 10];

/// Fills the log of the database at `path` with zeros up to its usual size. SQLite reads the log as far as its checksums
/// are right, so zeros after that are nothing to it. Where the disk has no room, the log stays as it is.
pub(super) fn reserve(connection: &Connection, path: &Path) {
    // Keeps other processes from lengthening the log meanwhile.
    if execute(connection, "BEGIN IMMEDIATE").is_err() {
        return;
    }
    // The only effect of a failure is that commits take longer.
    let _ = fill(path);
    // Nothing was written. Where this fails, the first write cannot begin, and says why.
    let _ = execute(connection, "ROLLBACK");
}

fn fill(path: &Path) -> std::io::Result<()> {
    // Beside an empty database, a log that is not means that the database was cut.
    if std::fs::metadata(path)?.len() == 0 {
        return Ok(());
    }
    let mut log = OpenOptions::new().write(true).open(log_of(path))?;
    let length = log.seek(SeekFrom::End(0))?;
    let mut left = SIZE.saturating_sub(length);
    while left > 0 {
        let piece = usize::try_from(left).map_or(PIECE.len(), |left| left.min(PIECE.len()));
        if let Err(error) = log.write_all(&PIECE[..piece]) {
            log.set_len(length)?;
            return Err(error);
        }
        left -= piece as u64;
    }
    log.sync_data()
}
