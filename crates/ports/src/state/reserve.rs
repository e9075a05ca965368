//! Creates the write-ahead log's file with its usual size.
//!
//! A commit that extends the file also has to store its new length, which takes half again as long as overwriting.
//! SQLite restarts the log once it contains [`PAGES`] pages, so a log of that size is only overwritten.

use std::fs::OpenOptions;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;

use rusqlite::Connection;

use super::{execute, log_of};

/// The pages of the log after which SQLite merges it into the database (`wal_autocheckpoint`, its default).
const PAGES: u64 = 1000;
/// The size of the header of each page in the log.
pub(super) const FRAME_HEADER: u64 = 24;
/// The size of a page of the database in the log.
const FRAME: u64 = 4096 + FRAME_HEADER;
/// The size of the log's header.
pub(super) const HEADER: u64 = 32;
const SIZE: u64 = HEADER + PAGES * FRAME;
/// The size of one write.
static PIECE: [u8; 64 << 10] = [0; 64 << 10];

/// Fills the log of the database at `path` with zeros up to its usual size. SQLite reads the log as far as its
/// checksums are valid and ignores the zeros after that. If the disk is full, the log stays unchanged.
pub(super) fn reserve(connection: &Connection, path: &Path) {
    // Prevents other processes from extending the log in the meantime.
    if execute(connection, "BEGIN IMMEDIATE").is_err() {
        return;
    }
    // The only effect of a failure is that commits take longer.
    let _ = fill(path);
    // Nothing was written. Where this fails, the first write cannot begin, and says why.
    let _ = execute(connection, "ROLLBACK");
}

fn fill(path: &Path) -> std::io::Result<()> {
    // A log with content beside an empty database means that the database was truncated.
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
