//! Files written whole: a reader, and a start after a crash, finds what a file held before or what it holds
//! now, never half of it.

use std::borrow::Cow;
use std::fs::{self, File, Metadata, Permissions, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use tempfile::{Builder, NamedTempFile};

use crate::stamp::Stamp;

const LEFTOVER: &str = ".ostler-tmp";
/// By when no writer is still at it.
const STALE: Duration = Duration::from_secs(3600);
/// How long another process may hold a file.
const HELD: Duration = Duration::from_secs(30);

/// Who may read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Whoever could before; a new file is as the process makes files.
    Usual,
    /// Its owner alone.
    Owner,
}

/// Writes a file, in place of what it held. When this returns, a crash does not lose it.
pub fn write(path: &Path, content: &[u8], access: Access) -> io::Result<()> {
    let staged = Staged::new(path, content, access)?;
    let target = staged.target.clone();
    staged.place()?;
    sync_folder(folder_of(&target))
}

/// A file's new content, safe on disk beside it.
pub(crate) struct Staged {
    file: NamedTempFile,
    target: PathBuf,
}

impl Staged {
    pub(crate) fn new(path: &Path, content: &[u8], access: Access) -> io::Result<Self> {
        // A link stays one: what it leads to is written.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let prefix = format!(".{}.", name_of(&target));
        let mut builder = Builder::new();
        builder.prefix(&prefix).suffix(LEFTOVER);
        let before = fs::metadata(&target).ok().map(|found| found.permissions());
        let wanted = match access {
            Access::Owner => mode(0o600),
            Access::Usual => before.clone().or_else(|| mode(0o666)),
        };
        if let Some(wanted) = wanted {
            builder.permissions(wanted);
        }
        let mut file = builder.tempfile_in(folder_of(&target))?;
        if let (Access::Usual, Some(before)) = (access, before) {
            // The process's mask was taken off it above.
            file.as_file().set_permissions(before)?;
        }
        file.write_all(content)?;
        file.as_file().sync_all()?;
        Ok(Self { file, target })
    }

    /// Puts it in the file's place; durable once the folder is. Answers the stamp of what was put there.
    pub(crate) fn place(self) -> io::Result<(Metadata, Stamp)> {
        let before = self.file.as_file().metadata()?;
        // What the path leads to may be somebody else's file by now; this is ours.
        let file = self.file.persist(&self.target).map_err(|failed| failed.error)?;
        let found = file.metadata()?;
        let ours = before.modified().ok() == found.modified().ok() && before.len() == found.len();
        let stamp = if ours { Stamp::of_own(&found) } else { Stamp::unknown() };
        Ok((found, stamp))
    }
}

#[cfg(unix)]
fn mode(bits: u32) -> Option<Permissions> {
    Some(std::os::unix::fs::PermissionsExt::from_mode(bits))
}

#[cfg(not(unix))]
fn mode(_: u32) -> Option<Permissions> {
    None
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

fn name_of(path: &Path) -> Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}

/// Makes what was placed in a folder, or removed from it, durable.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    // Elsewhere a folder is no file to open, and renames are durable without.
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Makes a folder where there is none.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(folder)?;
    sync_folder(folder_of(folder))
}

/// Makes an empty file only its owner may read, unless there is a file.
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    let mut options = File::options();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

/// Removes what a killed writer left, if that is what the file is.
pub(crate) fn sweep(path: &Path) {
    let left = name_of(path).ends_with(LEFTOVER);
    let age = || SystemTime::now().duration_since(fs::metadata(path).ok()?.modified().ok()?).ok();
    if left && age().is_some_and(|age| age > STALE) {
        // The next start tries again.
        let _ = fs::remove_file(path);
    }
}

/// Holds a file against other processes that hold it too, until dropped: for what is read, changed and
/// written back. The lock stands beside the file, which is another one after each write.
pub fn hold(path: &Path) -> io::Result<File> {
    let lock = path.with_file_name(format!(".{}.lock", name_of(path)));
    make_private(&lock)?;
    let file = File::options().write(true).open(lock)?;
    let end = Instant::now() + HELD;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if Instant::now() >= end => {
                return Err(io::Error::new(io::ErrorKind::WouldBlock, "another process holds it"));
            }
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(1)),
        }
    }
}
