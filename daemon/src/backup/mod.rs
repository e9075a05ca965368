//! Backups of a host: one compressed tar archive of the configuration folder and the state database.
//!
//! The first entry describes the archive, the last one lists every file with its checksum, so that a truncated or
//! changed archive is detected before anything is restored.

mod read;
mod write;

use std::io::{self, Read, Write};

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use crate::config::Folders;
use crate::verbs::migrate::ASIDE;

pub use read::{Restored, restore};
pub use write::{BackupSummary, write};

/// The version of the archive's layout that this program writes, and the newest it reads.
const FORMAT: u32 = 1;
/// The first entry.
const HEADER: &str = "backup.json";
/// The last entry.
const CONTENTS: &str = "contents.json";
/// The folder in the archive with the files of the configuration folder.
const CONFIG: &str = "config";
/// The state database.
const STATE: &str = "state/state.db";
/// The program that the header names.
const PROGRAM: &str = env!("CARGO_PKG_NAME");
/// The prefix of a folder with what a restore replaced.
const REPLACED: &str = ".before-restore-";
/// The prefix of a folder into which a restore unpacks.
const UNPACKED: &str = ".restore-";

/// Names in the configuration folder that are not in backups: files of a running process, what `ostler plugin install`
/// restores, recordings for debugging, and the state database, which has a separate entry.
const LEFT_OUT: &[&str] = &[
    "node_modules",
    "wire",
    "client-plugins",
    "daemon.json",
    "daemon.lock",
    "daemon.log",
    "daemon.log.1",
    "state.db",
    "state.db-shm",
    "state.db-wal",
];

/// The first entry, which describes the archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Header {
    program: String,
    format: u32,
    version: String,
    created_at: String,
}

/// The last entry, which lists all files in between.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Contents {
    files: Vec<ArchivedFile>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ArchivedFile {
    path: String,
    size: u64,
    sha256: String,
}

/// Returns whether an entry of the configuration folder is part of a backup. `is_state` means that it is the state
/// folder.
fn is_covered(name: &str, is_state: bool) -> bool {
    let is_aside = [REPLACED, UNPACKED, ASIDE].iter().any(|prefix| name.starts_with(prefix));
    !is_state && !LEFT_OUT.contains(&name) && !is_aside
}

/// Returns whether a path is the state folder, or a link to it.
fn is_state(path: &std::path::Path, folders: &Folders) -> bool {
    folders.state != folders.config && folders.state.starts_with(path)
}

/// Passes bytes on, and records their number and checksum.
struct Hashed<T> {
    inner: T,
    size: u64,
    context: Context,
}

impl<T> Hashed<T> {
    fn new(inner: T) -> Self {
        Self { inner, size: 0, context: Context::new(&SHA256) }
    }

    fn take_in(&mut self, bytes: &[u8]) {
        self.size += bytes.len() as u64;
        self.context.update(bytes);
    }

    fn stored(self, path: String) -> ArchivedFile {
        let sha256 = hex::encode(self.context.finish());
        ArchivedFile { path, size: self.size, sha256 }
    }
}

impl<T: Read> Read for Hashed<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.take_in(&buffer[..read]);
        Ok(read)
    }
}

impl<T: Write> Write for Hashed<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.take_in(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
