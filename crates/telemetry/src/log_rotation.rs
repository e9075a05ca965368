//! The log of a daemon in the background: its standard error, which is `daemon.log`. A large file becomes `daemon.log.1`
//! while the daemon runs.
//!
//! It is copied and emptied rather than renamed: `ostler start` opened it, and what a panic, a library or another process
//! prints has to follow. The lines of the log wait meanwhile.

use std::fs::{self, File, Metadata};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

/// The size from which the log is rotated.
pub const ROTATES_AT: u64 = 5 * 1024 * 1024;
/// The size from which it is emptied even if it cannot be copied.
const EMPTIED_AT: u64 = 2 * ROTATES_AT;
/// How much is written between two looks at the size.
const LOOKS_EVERY: usize = 64 * 1024;

/// Returns the path of the rotated log.
pub fn rotated(path: &Path) -> PathBuf {
    path.with_extension("log.1")
}

/// Opens a log to append to it.
///
/// # Errors
/// It cannot be created or opened.
pub fn open(path: &Path) -> io::Result<File> {
    File::options().append(true).create(true).mode(0o600).open(path)
}

/// Standard error, and the file that it is if it is the log.
#[derive(Debug)]
pub struct LogOutput {
    path: Option<PathBuf>,
    /// How much was written since the last look at the size.
    written: Mutex<usize>,
}

impl LogOutput {
    /// Creates it with the path of the log that standard error was opened as.
    pub fn new(path: Option<PathBuf>) -> Self {
        Self { path, written: Mutex::new(0) }
    }

    /// Writes a line, and rotates the log if it has become large.
    pub fn write(&self, line: &str) {
        let mut stderr = io::stderr().lock();
        // There is no other place to report that stderr is closed.
        let _ = stderr.write_all(line.as_bytes());
        let Some(path) = &self.path else { return };
        let mut written = self.written.lock();
        *written += line.len();
        if *written < LOOKS_EVERY {
            return;
        }
        *written = 0;
        if let Err(error) = rotate_large(path) {
            let _ = writeln!(stderr, "{} cannot be rotated: {error}", path.display());
        }
    }
}

fn rotate_large(path: &Path) -> io::Result<()> {
    let id = |found: &Metadata| (found.dev(), found.ino());
    let stderr = File::from(io::stderr().as_fd().try_clone_to_owned()?).metadata()?;
    let log = match File::options().read(true).append(true).open(path) {
        Ok(log) => log,
        // Removed by hand.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let found = log.metadata()?;
    // After another program has moved or replaced the file, it is not where this process writes.
    if id(&found) != id(&stderr) || found.len() < ROTATES_AT {
        return Ok(());
    }
    let copied = copy(&log, path);
    if copied.is_ok() || found.len() >= EMPTIED_AT {
        log.set_len(0)?;
    }
    copied
}

/// Copies the log, under another name first, so that an earlier one is replaced by a whole file.
fn copy(mut log: &File, path: &Path) -> io::Result<()> {
    let new = path.with_extension("log.new");
    let _ = fs::remove_file(&new);
    let copied = open(&new).and_then(|mut file| io::copy(&mut log, &mut file));
    let renamed = copied.and_then(|_| fs::rename(&new, rotated(path)));
    renamed.inspect_err(|_| drop(fs::remove_file(&new)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_that_is_standard_error_is_rotated() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("daemon.log");
        rotate_large(&path).unwrap();
        fs::write(&path, vec![b'x'; 6 << 20]).unwrap();
        rotate_large(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 6 << 20);
        assert!(!rotated(&path).exists());
    }

    #[test]
    fn a_log_is_copied_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("daemon.log");
        fs::write(&path, "new\n").unwrap();
        fs::write(rotated(&path), "old\n").unwrap();
        fs::write(path.with_extension("log.new"), "of a process that was killed\n").unwrap();
        copy(&File::open(&path).unwrap(), &path).unwrap();
        assert_eq!(fs::read_to_string(rotated(&path)).unwrap(), "new\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "new\n");
        assert!(!path.with_extension("log.new").exists());
    }
}
